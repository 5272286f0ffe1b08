"""Barriers in shared memory and bulk copies: a producer and consumers in turn, and wrong use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.support.errors import CodegenError, RunError, VerifyError
from tilewright.target import Target
from tilewright.tir.interpreter import run, simulate

# A warp copies rows into two places in turn, another one doubles them. full[s] says that a row is
# there, empty[s] that it was used.
PIPELINE = """
@T.prim_func
def main_kernel(A: T.Buffer((512,), "float32"), B: T.Buffer((512,), "float32")):
    T.func_attr({"calling_conv": "device_kernel_launch",
        "tir.kernel_launch_params": ["threadIdx.x"]})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        S = T.allocate((128,), "float32", scope="shared")
        full = T.allocate((2,), "uint64", scope="shared")
        empty = T.allocate((2,), "uint64", scope="shared")
        if tx == 0:
            for s in range(2):
                T.evaluate(T.ptx_init_barrier_thread_count(T.address_of(full[s]), 1))
                T.evaluate(T.ptx_init_barrier_thread_count(T.address_of(empty[s]), 32))
            T.evaluate(T.ptx_fence_barrier_init())
        T.evaluate(T.storage_sync("shared", dtype="void"))
        if tx >= 32:
            T.evaluate(T.ptx_setmaxnreg(40, 0))
            for k in range(8):
                T.evaluate(T.ptx_wait_barrier(T.address_of(empty[k % 2]), 1 - k // 2 % 2))
                if tx == 32:
                    T.evaluate(T.ptx_arrive_barrier_expect_tx(T.address_of(full[k % 2]), 256))
                    T.evaluate(T.ptx_cp_async_bulk(
                        T.address_of(S[T.Ramp(k % 2 * 64, 1, 64)]),
                        T.address_of(A[T.Ramp(k * 64, 1, 64)]), 256, T.address_of(full[k % 2])))
        else:
            for k in range(8):
                T.evaluate(T.ptx_wait_barrier(T.address_of(full[k % 2]), k // 2 % 2))
                for i in range(2):
                    B[k * 64 + i * 32 + tx] = S[k % 2 * 64 + i * 32 + tx] * T.float32(2)
                T.evaluate(T.ptx_arrive_barrier(T.address_of(empty[k % 2])))
"""


def _run(text: str = PIPELINE, **options: bool) -> tuple[Any, Any]:
    a, b = np.arange(512, dtype="float32"), np.zeros(512, "float32")
    run(parse(text), a, b, **options)
    return a, b


def _without(text: str, old: str, new: str = "pass") -> str:
    assert old in text
    return text.replace(old, new)


def test_a_pipeline_is_right_and_has_no_race() -> None:
    for races in (False, True):
        a, b = _run(check_races=races)
        np.testing.assert_array_equal(b, a * 2)


def test_barriers_are_not_counted_as_accesses() -> None:
    report = simulate(parse(PIPELINE), np.zeros(512, "float32"), np.zeros(512, "float32"))
    assert {item.site.buffer for item in report.accesses} == {"A", "S", "B"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # the consumer doesn't wait for the copy
        (
            "T.evaluate(T.ptx_wait_barrier(T.address_of(full[k % 2]), k // 2 % 2))", "pass",
            "race|nothing has written|nobody waits",
        ),
        # the producer doesn't wait until a row was used
        (
            "T.evaluate(T.ptx_wait_barrier(T.address_of(empty[k % 2]), 1 - k // 2 % 2))", "pass",
            "arrivals of the phase are there already|race",
        ),
        # nobody says that a row was used
        (
            "T.evaluate(T.ptx_arrive_barrier(T.address_of(empty[k % 2])))", "pass",
            r"waits at ptx_wait_barrier .* lacks 32 of 32 arrivals",
        ),
        # bytes that don't come
        ("full[k % 2]), 256))", "full[k % 2]), 512))", "lacks 0 of 1 arrivals and 256 bytes"),
        # never armed
        (
            "T.evaluate(T.ptx_arrive_barrier_expect_tx(T.address_of(full[k % 2]), 256))", "pass",
            "lacks 1 of 1 arrivals and -256 bytes",
        ),
        # too few arrivals are waited for
        ("T.address_of(empty[s]), 32)", "T.address_of(empty[s]), 33)", "lacks 1 of 33 arrivals"),
        ("T.address_of(empty[s]), 32)", "T.address_of(empty[s]), 0)", "count is 1 to 1048575"),
        (
            "T.evaluate(T.ptx_init_barrier_thread_count(T.address_of(full[s]), 1))", "pass",
            "is no barrier: nothing has initialised it",
        ),
        ('T.evaluate(T.storage_sync("shared", dtype="void"))', "pass", "uses the barrier"),
        ("T.Ramp(k * 64, 1, 64)]), 256", "T.Ramp(k * 63, 1, 64)]), 256", "a multiple of 16 bytes"),
    ],
)  # fmt: skip
def test_wrong_use_is_an_error(old: str, new: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        _run(_without(PIPELINE, old, new), check_races=True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"uint64"', '"int32"', "a barrier is one uint64 of shared memory"),
        ("ptx_setmaxnreg(40, 0)", "ptx_setmaxnreg(41, 0)", "a multiple of 8 from 24 to 256"),
        (", 256, T.address_of(full", ", 24, T.address_of(full", "bytes is a multiple of 16"),
    ],
)
def test_calls_that_mean_nothing_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        _run(_without(PIPELINE, old, new))


def test_the_kernel_compiles_for_hopper_alone() -> None:
    nvrtc = pytest.importorskip("tilewright.codegen.cuda.nvrtc")
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.codegen.cuda.emit import emit_kernels

    module = IRModule({"main_kernel": parse(PIPELINE)})
    code = emit_kernels(module, Target("cuda -arch=sm_90a"))
    (resources,) = nvrtc.compile_text(code.text, "sm_90a").resources.values()
    assert resources.spill_bytes == 0
    for name in ("mbarrier.try_wait", "cp.async.bulk.shared", "setmaxnreg.dec", "mbarrier.init"):
        assert name in code.text
    with pytest.raises(CodegenError, match="needs sm_90"):
        emit_kernels(module, Target("cuda -arch=sm_80"))
