"""What tests of GPU kernels share: small GPUs, and a comparison on the simulator without races."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import driver, te
from tilewright.ir import IRModule
from tilewright.kernels import ApplyKernels, kernels_for
from tilewright.scheduling import first_applied, start_schedule
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.interpreter import run
from tilewright.tir.transform import launch_extents

CUDA = Target("cuda")
#: Few threads, so that small rows take several steps, and are fast to simulate.
SMALL = Target("cuda -max-threads=64 -num-cores=4 -max-shared-memory=4096")


def function(build: Callable[..., Any], *operands: tuple[Sequence[Any], str]) -> PrimFunc:
    """The definition of an operator over operands of these shapes and dtypes."""
    tensors = [te.placeholder(shape, dtype, f"x{n}") for n, (shape, dtype) in enumerate(operands)]
    made = build(*tensors)
    return te.create_prim_func([*tensors, *(made if isinstance(made, (tuple, list)) else [made])])


def applied(func: PrimFunc, target: Target = CUDA) -> IRModule:
    """The function as a kernel; fails if none applies."""
    mod = ApplyKernels(target=target)(IRModule({"main": func}))
    if not mod["main"].attrs.get(IS_SCHEDULED):
        start = start_schedule(func)
        reason = start and first_applied(start, kernels_for(target), target)
        raise AssertionError(f"no kernel applies: {reason}")
    verify(mod)
    return mod


def lowered(mod: IRModule, target: Target = CUDA) -> IRModule:
    """Host functions and kernels, whose launches are within the target's limits."""
    made = driver.lower(mod, target)
    verify(made)
    most = int(target.options.get("max-threads", 1024))
    for kernel in kernels_of(made):
        threads = 1
        for tag, extent in launch_extents(kernel).items():
            if tag.startswith("threadIdx"):
                threads *= extent.value
        assert threads <= most
    return made


def kernels_of(mod: IRModule) -> list[PrimFunc]:
    """The kernels of a lowered module."""
    functions = mod.functions.values()
    return [f for f in functions if f.attrs.get("calling_conv") == "device_kernel_launch"]


def simulated(
    func: PrimFunc, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray],
    target: Target = SMALL,
) -> IRModule:  # fmt: skip
    """Run the kernel on the simulator, with the check for races; results are written in place."""
    mod = lowered(applied(func, target), target)
    run(mod, *arrays, *results, check_races=True)
    return mod
