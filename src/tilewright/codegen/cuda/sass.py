"""Machine code of NVIDIA GPUs as text, by ``nvdisasm``.

The program comes in a wheel of its own (``nvidia-cuda-nvdisasm``) or with CUDA's toolkit. It needs
no GPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import Counter
from functools import lru_cache
from pathlib import Path

from tilewright.support.errors import CodegenError

_WHEEL = Path("nvidia")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_FUNCTION = re.compile(r"^\.text\.(\w+):|^\s*\.section\s+\.text\.(\w+)")


@lru_cache(maxsize=1)
def nvdisasm() -> Path | None:
    """Return the path of ``nvdisasm``: of the wheel, else on ``PATH``; ``None`` without one."""
    packages = Path(sysconfig.get_path("purelib"), _WHEEL)
    found = [*sorted(packages.glob("*/bin/nvdisasm")), shutil.which("nvdisasm")]
    return next((Path(path) for path in found if path), None)


def disassemble(cubin: bytes) -> str:
    """Return the machine code of all kernels of a cubin as text.

    Raises ``CodegenError`` if there is no ``nvdisasm``, or it can't read the cubin.
    """
    program = nvdisasm()
    if program is None:
        raise CodegenError(
            "nvdisasm was not found, which shows machine code of NVIDIA GPUs; get it with: "
            "pip install nvidia-cuda-nvdisasm, or put the one of CUDA's toolkit on PATH"
        )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(program), "--print-code", file.name]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CodegenError(f"nvdisasm can't read the machine code: {done.stderr.strip()[:400]}")
    return done.stdout


def kernels_in(sass: str) -> dict[str, str]:
    """Cut the text of a cubin into that of each kernel, by symbol."""
    found: dict[str, list[str]] = {}
    symbol = ""
    for line in sass.splitlines():
        match = _FUNCTION.match(line)
        if match:
            symbol = match[1] or match[2]
        if symbol:
            found.setdefault(symbol, []).append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def instructions(sass: str) -> Counter[str]:
    """Count instructions with their modifiers: ``LDG.E.128``, ``FFMA`` …"""
    return Counter(_INSTRUCTION.findall(sass))


def innermost_loops(sass: str) -> list[list[str]]:
    """Return the instructions of each loop that has no other one inside, in order."""
    names: list[str] = []
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for line in sass.splitlines():
        if match := re.match(r"^(\.L_\w+):", line.strip()):
            labels[match[1]] = len(names)
        found = _INSTRUCTION.search(line)
        if found is None:
            continue
        names.append(found[1])
        target = re.search(r"`\((\.L_\w+)\)", line)
        if found[1].startswith("BRA") and target and target[1] in labels:
            loops.append((labels[target[1]], len(names)))
    inner = [
        (start, end)
        for start, end in loops
        if end - start > 1
        and not any(start <= s and e <= end and (s, e) != (start, end) for s, e in loops)
    ]
    return [names[start:end] for start, end in inner]
