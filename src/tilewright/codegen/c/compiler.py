"""The machine's C compiler: C text to object code, if there is one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from tilewright.codegen.llvm.object_cache import read_entry, write_entry
from tilewright.support.errors import BuildError

_COMPILERS = ("cc", "gcc", "clang")
#: Floats as the text says, integers that wrap, code that may lie anywhere and needs no start-up.
_FLAGS = (
    "-std=gnu11 -O3 -c -fPIC -w -ffp-contract=off -fno-math-errno -fwrapv -fno-strict-aliasing "
    "-fno-stack-protector -fno-asynchronous-unwind-tables -fvisibility=hidden"
).split()
_OURS = ("-DTW_RAISE=TVMFFIErrorSetRaisedFromCStr", "-DTW_SYMBOL(name)=__asm__(name)")


@lru_cache(maxsize=1)
def c_compiler() -> str | None:
    """Return the path of a C compiler, or ``None``."""
    return next((path for name in _COMPILERS if (path := shutil.which(name))), None)


@lru_cache(maxsize=8)
def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True)
    return done.stdout


def compile_c(text: str) -> bytes:
    """Compile C text to an object for this machine.

    Raises ``BuildError`` if there is no compiler, or with what it says.
    """
    compiler = c_compiler()
    if compiler is None:
        raise BuildError(
            f"no C compiler was found (looked for {', '.join(_COMPILERS)}); install one, or take "
            'the text (get_source("c")) to a machine that has one'
        )
    key = f"c {compiler} {_version(compiler)} {_FLAGS} {_OURS}\n{text}"
    kept = read_entry(key)
    if kept is not None:
        return kept
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "module.c"), Path(folder, "module.o")
        source.write_text(text)
        command = [compiler, *_FLAGS, "-march=native", *_OURS, "-o", str(made), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines = "\n".join(done.stderr.splitlines()[:12])
            raise BuildError(f"the C compiler refused the generated text:\n{lines}")
        code = made.read_bytes()
    write_entry(key, code)
    return code
