"""What tests of CUDA kernels share: programs as script, and their compilation."""

from __future__ import annotations

from tilewright import driver
from tilewright.codegen.c.kernels import KernelCode
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.codegen.cuda.nvrtc import Compiled, compile_text
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir import PrimFunc

ARCHS = ("sm_75", "sm_80", "sm_90a", "sm_100a")


def function(arguments: str, body: str) -> PrimFunc:
    """Parse a function ``main`` of some arguments."""
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    made: PrimFunc = parse(f"\n@T.prim_func\ndef main({arguments}):\n{lines}\n")
    return made


def emitted(func: PrimFunc | IRModule, arch: str = "sm_80") -> tuple[IRModule, KernelCode]:
    """Lower a program and write its kernels."""
    target = Target(f"cuda -arch={arch}")
    lowered = driver.lower(func, target)
    return lowered, emit_kernels(lowered, target)


def compiled(code: KernelCode, arch: str = "sm_80") -> Compiled:
    """Compile kernels; each of them is there."""
    made = compile_text(code.text, arch)
    assert {*made.resources} == {info.symbol for info in code.kernels.values()}
    return made
