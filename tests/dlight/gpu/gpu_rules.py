"""What tests of GPU rules share: schedule, look at the kernels, compare with what is meant."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

from tilewright import dlight, te
from tilewright.arith import simplify
from tilewright.codegen.cuda import nvrtc
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.ir import IRModule, as_int, const, dtypes, free_vars, pre_order, substitute
from tilewright.scheduling import ScheduleRule
from tilewright.scheduling.gpu import limits_of
from tilewright.support.errors import MissingExtraError
from tilewright.target import Target
from tilewright.tir import BufferStore, PrimFunc
from tilewright.tir.analysis import allocated_memory, verify
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.interpreter import run
from tilewright.tir.transform import CALLING_CONV, gpu_pipeline, launch_extents

CUDA = Target("cuda -arch=sm_80")


def tensor(*shape: Any, dtype: str = "float32", name: str = "x") -> te.Tensor:
    """A placeholder."""
    return te.placeholder(shape, dtype, name=name)


def function(build: Callable[..., Any], *inputs: te.Tensor) -> PrimFunc:
    """The function of what is built of inputs."""
    made = build(*inputs)
    outputs = made if isinstance(made, (list, tuple)) else [made]
    return te.create_prim_func([*inputs, *outputs])


def compiled(mod: IRModule, target: Target = CUDA) -> dict[str, Any]:
    """What each kernel takes, as NVRTC says; skips the test where there is none."""
    try:
        nvrtc.nvrtc_version()
    except MissingExtraError:
        pytest.skip("needs NVRTC (the extra 'cuda')")
    code = nvrtc.compile_text(emit_kernels(mod, target).text, target.arch)
    return dict(code.resources)


def scheduled(func: PrimFunc, *rules: ScheduleRule, target: Target = CUDA) -> IRModule:
    """Apply rules, those of the target if none are given."""
    mod = dlight.ApplyDefaultSchedule(*rules, target=target)(IRModule({"main": func}))
    assert mod["main"].attrs.get(IS_SCHEDULED), "no rule applied"
    verify(mod)
    return mod


def lowered(mod: IRModule, target: Target = CUDA) -> IRModule:
    """Lower; nothing is left to the host but launches, and kernels are within the limits."""
    made: IRModule = gpu_pipeline(target)(mod)
    verify(made)
    limits = limits_of(target)
    for name, func in made.functions.items():
        if func.attrs.get(CALLING_CONV) != "device_kernel_launch":
            stores = [x for x in pre_order(func.body) if type(x) is BufferStore]
            assert not stores, f"{name} writes memory on the host"
            continue
        threads = prod(
            as_int(n) or 1 for tag, n in launch_extents(func).items() if tag.startswith("threadIdx")
        )
        assert threads <= limits.max_threads
        shared = as_int(allocated_memory(func).get("shared", 0))
        assert shared is not None and shared <= limits.max_shared_memory
    return made


def kernels(mod: IRModule) -> dict[str, str]:
    """The kernels of a lowered module as text."""
    return {
        name: func.script()
        for name, func in mod.functions.items()
        if func.attrs.get(CALLING_CONV) == "device_kernel_launch"
    }


def widest(mod: IRModule) -> int:
    """The most elements that a kernel stores at once."""
    stores = [x for func in mod.functions.values() for x in pre_order(func.body)]
    return max(dtypes.lanes_of(x.value.dtype) for x in stores if type(x) is BufferStore)


def agree(
    func: PrimFunc,
    *rules: ScheduleRule,
    target: Target = CUDA,
    tolerance: float = 2e-5,
    **sizes: int,
) -> IRModule:
    """Simulate what the rules make, races reported, against the program; return the kernels."""
    mod = lowered(scheduled(func, *rules, target=target), target)
    compare(func, mod, tolerance, **sizes)
    return mod


def compare(func: PrimFunc, mod: IRModule, tolerance: float = 2e-5, **sizes: int) -> None:
    """Simulate lowered kernels against the unscheduled program."""
    first = arguments(func, **sizes)
    second = [np.array(item) for item in first]
    run(func, *first)
    run(mod, *second, check_races=True)
    for a, b in zip(first, second):
        np.testing.assert_allclose(
            np.asarray(b, "float64") if b.dtype.kind == "f" else b,
            np.asarray(a, "float64") if a.dtype.kind == "f" else a,
            rtol=tolerance,
            atol=tolerance * 10,
        )


def arguments(func: PrimFunc, **sizes: int) -> list[Any]:
    """Random arguments: small whole numbers, so that the order of a sum does not matter."""
    rng, made = np.random.default_rng(0), []
    for buffer in func.buffers:
        shape = [
            as_int(simplify(substitute(e, {var: const(sizes[var.name]) for var in free_vars(e)})))
            for e in buffer.shape
        ]
        low = 0 if buffer.dtype.startswith(("u", "b")) else -3
        made.append(rng.integers(low, 4 if buffer.dtype != "bool" else 2, shape))
    return [item.astype(buffer.dtype) for item, buffer in zip(made, func.buffers)]
