"""CUDA C++ text to machine code by NVRTC, with what the compiler says about each kernel.

NVRTC comes in a wheel (the extra ``cuda``): no toolkit is needed, and no GPU. Results are kept on
disk beside compiled objects, by their content: text, architecture, options and NVRTC's version.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from tilewright.codegen.llvm.object_cache import read_entry, write_entry
from tilewright.support.errors import CodegenError, MissingExtraError

_EXTRA = ("cuda-bindings and nvidia-cuda-nvrtc-cu12", "cuda", "compiling CUDA kernels (NVRTC)")
#: Operations are rounded as the text says: sums of products are fused where it says ``fma``.
_OPTIONS = ("--std=c++17", "--fmad=false", "--ptxas-options=-v", "-default-device")
_SHOWN_LINES = 12


@dataclass(frozen=True)
class Resources:
    """What a kernel takes: registers and stack of a thread, static shared memory of a block.

    Spills are what doesn't fit into registers; all but ``registers`` are in bytes.
    """

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    constant_bytes: int = 0
    barriers: int = 0


@dataclass(frozen=True)
class Compiled:
    """Machine code for one architecture, its PTX, the compiler's log, and what kernels take."""

    arch: str
    cubin: bytes
    ptx: str
    log: str
    resources: Mapping[str, Resources]


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    """The binding of NVRTC; an error names the extra if it, or the library, isn't there."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise MissingExtraError(*_EXTRA) from error
    try:
        nvrtc.nvrtcVersion()
    except (RuntimeError, OSError) as error:  # the binding is there, the library isn't
        raise MissingExtraError(*_EXTRA) from error
    return nvrtc


def nvrtc_version() -> tuple[int, int]:
    """Return the version of NVRTC; ``MissingExtraError`` if there is none."""
    _, major, minor = _nvrtc().nvrtcVersion()
    return int(major), int(minor)


@lru_cache(maxsize=1)
def supported_archs() -> tuple[str, ...]:
    """Return the architectures that NVRTC compiles for: ``sm_75`` …"""
    _, *rest = _nvrtc().nvrtcGetSupportedArchs()
    numbers = rest[-1]
    return tuple(f"sm_{number}" for number in numbers)


def compile_text(text: str, arch: str, *, options: tuple[str, ...] = ()) -> Compiled:
    """Compile CUDA C++ for an architecture, or find what was compiled before.

    Raises ``CodegenError`` with the compiler's messages and the lines that they are about, and
    ``MissingExtraError`` where NVRTC isn't installed.
    """
    version = nvrtc_version()
    _check_arch(arch)
    parts = [*Compiled.__dataclass_fields__, *Resources.__dataclass_fields__]  # of an entry
    key = f"cuda {version} {arch} {(*_OPTIONS, *options)} {parts}\n{text}"
    kept = read_entry(key)
    if kept is not None:
        return _unpacked(kept)
    made = _compile(text, arch, (*_OPTIONS, *options))
    write_entry(key, _packed(made))
    return made


def _check_arch(arch: str) -> None:
    plain = arch.rstrip("af")
    if plain not in supported_archs():
        major, minor = nvrtc_version()
        raise CodegenError(
            f"NVRTC {major}.{minor} doesn't compile for {arch}; it knows "
            f"{', '.join(supported_archs())}"
        )


def _compile(text: str, arch: str, options: tuple[str, ...]) -> Compiled:
    nvrtc = _nvrtc()
    program = _checked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []))
    try:
        flags = [option.encode() for option in (f"--gpu-architecture={arch}", *options)]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        log = _buffer(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        log_text = log.rstrip(b"\0").decode(errors="replace")
        if int(result) != 0:
            raise CodegenError(_failure(text, arch, log_text))
        cubin = _buffer(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        ptx = _buffer(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    ptx_text = ptx.rstrip(b"\0").decode()
    return Compiled(arch, cubin, ptx_text, log_text, _resources(log_text))


def _checked(result: Any) -> Any:
    code, value = result
    if int(code) != 0:
        raise CodegenError(f"NVRTC failed: {code}")
    return value


def _buffer(size_of: Any, get: Any, program: Any) -> bytes:
    size = int(_checked(size_of(program)))
    data = b" " * size
    (code,) = get(program, data)
    if int(code) != 0:
        raise CodegenError(f"NVRTC failed: {code}")
    return data


_PLACE = re.compile(r"kernels\.cu\((\d+)\)")


def _failure(text: str, arch: str, log: str) -> str:
    """The compiler's errors, with the line of the text that the first one is about."""
    lines = [line for line in log.splitlines() if "error" in line] or log.splitlines()
    match = _PLACE.search(log)
    shown = ""
    if match is not None:
        source = text.splitlines()
        number = int(match[1])
        if 1 <= number <= len(source):
            shown = f"\nline {number}: {source[number - 1].strip()}"
    return f"NVRTC refused the kernels for {arch}:\n" + "\n".join(lines[:_SHOWN_LINES]) + shown


_ENTRY = re.compile(r"Compiling entry function '(\w+)' for")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")


def _resources(log: str) -> dict[str, Resources]:
    """Read what ``ptxas -v`` says."""
    found: dict[str, Resources] = {}
    symbol, stack, spill = "", 0, 0
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            symbol, stack, spill = match[1], 0, 0
        elif match := _STACK.search(line):
            stack, spill = int(match[1]), int(match[2]) + int(match[3])
        elif (match := _USED.search(line)) and symbol:

            def number(pattern: str, line: str = line) -> int:
                own = re.search(pattern, line)
                return int(own[1]) if own else 0

            found[symbol] = Resources(
                int(match[1]), spill, stack, number(r"(\d+) bytes smem"),
                number(r"(\d+) bytes cmem"), number(r"used (\d+) barriers"),
            )  # fmt: skip
            symbol = ""
    return found


def _packed(made: Compiled) -> bytes:
    head = {
        "arch": made.arch,
        "ptx": made.ptx,
        "log": made.log,
        "resources": {name: asdict(item) for name, item in made.resources.items()},
    }
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + made.cubin


def _unpacked(data: bytes) -> Compiled:
    (size,) = struct.unpack_from("<Q", data)
    head = json.loads(data[8 : 8 + size])
    resources = {name: Resources(**item) for name, item in head["resources"].items()}
    return Compiled(head["arch"], data[8 + size :], head["ptx"], head["log"], resources)
