"""What tests of GPU schedules share: lower, and compare with the program without races."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.codegen.cuda.emit import emit_kernels, kernels_of
from tilewright.codegen.cuda.nvrtc import compile_text
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.transform import gpu_pipeline, launch_extents

RNG = np.random.default_rng(0)
CUDA = Target("cuda")


def lowered(sch: Schedule | IRModule | PrimFunc) -> IRModule:
    """Run the pipeline; what comes out is well formed and has its thread loops at the top.

    As CUDA C++ it compiles.
    """
    mod = gpu_pipeline(CUDA)(sch.mod if isinstance(sch, Schedule) else sch)
    verify(mod)
    for func in mod.functions.values():
        if func.attrs.get("calling_conv") == "device_kernel_launch":
            tags = list(launch_extents(func))
            assert tags == func.attrs["tir.kernel_launch_params"] and len(set(tags)) == len(tags)
    if kernels_of(mod):
        compile_text(emit_kernels(mod, CUDA).text, CUDA.arch)
    return mod


def arrays(func: PrimFunc, **sizes: int) -> list[Any]:
    """Random arguments of a function whose symbolic extents are ``sizes``."""
    made = []
    for buffer in func.buffers:
        shape = [getattr(extent, "value", None) or sizes[extent.name] for extent in buffer.shape]
        made.append((RNG.standard_normal(shape) * 8).astype(buffer.dtype))
    return made


def agree(func: PrimFunc, sch: Schedule, **sizes: int) -> IRModule:
    """Compare the lowered schedule with the unscheduled program; return what was lowered."""
    mod = lowered(sch)
    first = arrays(func, **sizes)
    second = [item.copy() for item in first]
    run(func, *first)
    run(mod, *second, check_races=True)
    for a, b in zip(first, second):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-4)
    return mod


def kernel_text(mod: IRModule, name: str = "main_kernel") -> str:
    """The script of a kernel."""
    return script(mod, name)


def module(text: str) -> IRModule:
    """Parse one function into a module."""
    return IRModule({"main": parse(text)})


def applied(text: str, *passes: Any) -> IRModule:
    """Run passes one after the other; what each makes is well formed."""
    mod = module(text)
    for item in passes:
        mod = item(mod)
        verify(mod)
    return mod


def script(mod: IRModule, name: str = "main") -> str:
    """The script text of a function."""
    text: str = mod[name].script()
    return text


STEP = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int64):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            S = T.allocate((64,), "float32", scope="{scope}")
{body}
"""


def step(body: str, scope: str = "shared") -> str:
    """A kernel of two blocks of 16 threads with the given body; ``S`` has 64 elements."""
    lines = "\n".join("            " + line for line in body.strip().splitlines())
    return STEP.format(body=lines, scope=scope)
