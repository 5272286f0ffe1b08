"""Clusters of blocks: their barrier, each other's shared memory, multicast; and wrong use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.arith import Analyzer
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.ir import IRModule
from tilewright.scheduling.gpu.kernel_places import copies_of_boxes
from tilewright.script import parse
from tilewright.support.errors import CodegenError, LowerError, RunError, ScheduleError, VerifyError
from tilewright.target import Target
from tilewright.tir import Schedule
from tilewright.tir.interpreter import run, simulate
from tilewright.tir.transform import gpu_pipeline
from tilewright.tir.transform.kernels import thread_nest
from tilewright.tir.transform.multicast import ClusterGrid

HOPPER = Target("cuda -arch=sm_90a")

# Each block brings half of 128 numbers to both; then both add up what the other one has read.
MULTICAST = """
@T.prim_func
def main(A: T.Buffer((3, 128), "float32"), B: T.Buffer((3, 2, 128), "float32")):
    for bx in T.thread_binding(3, thread="blockIdx.x"):
        for cx in T.thread_binding(2, thread="clusterCtaIdx.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                S = T.allocate((128,), "float32", scope="shared")
                full = T.allocate((1,), "uint64", scope="shared")
                empty = T.allocate((1,), "uint64", scope="shared")
                if tx == 0:
                    T.evaluate(T.ptx_init_barrier_thread_count(T.address_of(full[0]), 1))
                    T.evaluate(T.ptx_init_barrier_thread_count(T.address_of(empty[0]), 128))
                    T.evaluate(T.ptx_fence_barrier_init())
                T.evaluate(T.ptx_barrier_cluster_arrive())
                T.evaluate(T.ptx_barrier_cluster_wait())
                with T.attr(None, "memory_barriers", 1):
                    if tx == 0:
                        T.evaluate(T.ptx_arrive_barrier_expect_tx(T.address_of(full[0]), 512))
                        T.evaluate(T.ptx_cp_async_bulk_tensor(
                            T.address_of(S[T.Ramp(cx * 64, 1, 64)]), T.address_of(A[0, 0]),
                            T.address_of(full[0]), 0, 3, 3, 128, 1, bx, 128, 1, 64, cx * 64))
                    T.evaluate(T.ptx_wait_barrier(T.address_of(full[0]), 0))
                    for i in range(2):
                        B[bx, cx, i * 64 + tx] = S[i * 64 + tx] * T.float32(2)
                    T.evaluate(T.ptx_arrive_barrier(T.address_of(empty[0]), cx))
                    T.evaluate(T.ptx_arrive_barrier(T.address_of(empty[0]), 1 - cx))
                    T.evaluate(T.ptx_wait_barrier(T.address_of(empty[0]), 0))
                T.evaluate(T.ptx_barrier_cluster_arrive())
                T.evaluate(T.ptx_barrier_cluster_wait())
"""

# Threads write into a register of theirs what the other block's neighbour has stored, twice.
EXCHANGE = """
@T.prim_func
def main(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for cx in T.thread_binding(2, thread="clusterCtaIdx.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                S = T.allocate((64,), "float32", scope="shared")
                R = T.allocate((64,), "float32", scope="shared")
                own = T.allocate((1,), "float32", scope="local")
                S[tx] = A[bx * 128 + cx * 64 + tx]
                T.evaluate(T.ptx_barrier_cluster_arrive())
                T.evaluate(T.ptx_barrier_cluster_wait())
                T.evaluate(T.ptx_ld_shared_cluster(
                    T.address_of(own[0]), T.address_of(S[63 - tx]), 1 - cx))
                T.evaluate(T.ptx_st_shared_cluster(
                    T.address_of(R[tx]), own[0] + T.float32(1), 1 - cx))
                T.evaluate(T.ptx_barrier_cluster_arrive())
                T.evaluate(T.ptx_barrier_cluster_wait())
                B[bx * 128 + cx * 64 + tx] = R[tx]
"""


def lowered(text: str, target: Target = HOPPER) -> IRModule:
    with target:
        return gpu_pipeline(target)(IRModule({"main": parse(text)}))


def multicast(text: str = MULTICAST, **options: bool) -> None:
    a = np.arange(384, dtype="float32").reshape(3, 128)
    b = np.zeros((3, 2, 128), "float32")
    run(lowered(text), a, b, **options)
    np.testing.assert_array_equal(b, np.stack([a * 2] * 2, axis=1))


def exchange(text: str = EXCHANGE, **options: bool) -> None:
    a, b = np.arange(256, dtype="float32"), np.zeros(256, "float32")
    run(lowered(text), a, b, **options)
    np.testing.assert_array_equal(b, a.reshape(2, 2, 64)[:, :, ::-1].reshape(-1) + 1)


def _replaced(text: str, old: str, new: str, *numbers: int) -> str:
    """Replace some of the places of a text, all of them if none are named."""
    first, *rest = text.split(old)
    assert len(rest) > max(numbers, default=0)
    for number, part in enumerate(rest):
        first += (new if number in numbers or not numbers else old) + part
    return first


def test_multicast() -> None:
    for races in (False, True):
        multicast(check_races=races)


def test_blocks_exchange_elements() -> None:
    for races in (False, True):
        exchange(check_races=races)


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "int32", "float64", "uint64"])
def test_elements_of_all_sizes(dtype: str) -> None:
    text = EXCHANGE.replace("float32", dtype)
    code = emit_kernels(lowered(text), HOPPER).text
    assert f"ld.shared::cluster.u{np.dtype(dtype.replace('bfloat', 'float')).itemsize * 8}" in code
    _compile(code)
    if dtype != "bfloat16":
        a, b = np.arange(256).astype(dtype) % 60, np.zeros(256, dtype)
        run(lowered(text), a, b)
        np.testing.assert_array_equal(b, a.reshape(2, 2, 64)[:, :, ::-1].reshape(-1) + 1)


def _compile(text: str) -> Any:
    nvrtc = pytest.importorskip("tilewright.codegen.cuda.nvrtc")
    pytest.importorskip("cuda.bindings.nvrtc")
    return nvrtc.compile_text(text, "sm_90a")


def test_the_kernel_says_its_cluster() -> None:
    code = emit_kernels(lowered(MULTICAST), HOPPER)
    for part in (
        "__cluster_dims__(2, 1, 1)", ".multicast::cluster", "barrier.cluster.arrive.release",
        "barrier.cluster.wait.acquire", "mapa.shared::cluster", "(blockIdx.x / 2)",
        "(blockIdx.x % 2)", "try_wait.parity.acquire.cluster",
    ):  # fmt: skip
        assert part in code.text
    compiled = _compile(code.text)
    (resources,) = compiled.resources.values()
    assert resources.spill_bytes == 0
    assert ".reqnctapercluster 2, 1, 1" in compiled.ptx


ARRIVE, WAIT = (f"T.evaluate(T.ptx_barrier_cluster_{name}())" for name in ("arrive", "wait"))
WRONG_EXCHANGES = {
    "no barrier before": ((ARRIVE, 0), (WAIT, 0), "may not have begun"),
    "no barrier after": ((ARRIVE, 1), (WAIT, 1), "race|may have ended"),
    "no wait before": ((WAIT, 0), "may not have begun"),
    "no wait after": ((WAIT, 1), "race|may have ended"),
    "waits only": ((ARRIVE, 1), "hasn't arrived there"),
    "an element of its own": ((", 1 - cx))", 1), "race|nothing has written"),
}


@pytest.mark.parametrize("name", WRONG_EXCHANGES)
def test_wrong_exchanges_are_reported(name: str) -> None:
    *changes, message = WRONG_EXCHANGES[name]
    text = EXCHANGE
    for old, number in changes:  # type: ignore[misc]
        text = _replaced(text, old, ", cx))" if old[0] == "," else "pass", number)
    with pytest.raises(RunError, match=message):
        exchange(text, check_races=True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0, 3, 3, 128", "0, 1, 3, 128", "lacks 0 of 1 arrivals and 512 bytes"),
        ("0, 3, 3, 128", "0, 4, 3, 128", "the cluster has 2 blocks, none has number 2"),
        ("0, 3, 3, 128", "0, 65536, 3, 128", "a mask has 16 bits, got 65536"),
        ("full[0]), 512", "full[0]), 256", "lacks|race|nobody waits|nothing has written"),
        ("empty[0]), 1 - cx", "empty[0]), 2", "the cluster has 2 blocks, none has number 2"),
        ("empty[0]), 1 - cx", "empty[0]), 0", "lacks 64 of 128 arrivals|are there already"),
        (ARRIVE, "pass", "is no barrier|may have ended|hasn't arrived"),
    ],
)
def test_wrong_multicasts_are_reported(old: str, new: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        multicast(_replaced(MULTICAST, old, new), check_races=True)


def test_a_block_that_may_end_too_early_is_reported() -> None:
    """Here the other block's arrivals aren't waited for, so only the cluster's barrier tells."""
    text = _replaced(MULTICAST, "T.evaluate(T.ptx_wait_barrier(T.address_of(empty[0]), 0))", "pass")
    multicast(text, check_races=True)
    for old in (ARRIVE, WAIT):
        text = _replaced(text, old, "pass", 1)
    for races in (False, True):
        with pytest.raises(RunError, match="may have ended by then"):
            multicast(text, check_races=races)


def test_a_thread_that_never_arrives_is_named() -> None:
    alone = (
        'if tx + cx == 64:\n                    T.evaluate(T.storage_sync("warp", dtype="void"))'
    )
    text = EXCHANGE.replace(ARRIVE, f"{alone}\n                {ARRIVE}", 1)
    a, b = np.zeros(256, "float32"), np.zeros(256, "float32")
    with pytest.raises(RunError, match=r"for all threads of the cluster; thread \(.*Idx.x=63\)"):
        run(parse(text), a, b)
    again = EXCHANGE.replace(ARRIVE, f"{ARRIVE}\n                {ARRIVE}", 1)
    with pytest.raises(RunError, match="hasn't waited since"):
        run(parse(again), a, b)


CLUSTER = '2, thread="clusterCtaIdx'


def test_what_is_no_cluster_is_refused() -> None:
    for shape, message in (
        ("32", "a cluster has 32 blocks"),
        ("T.int64(2) * bx + 1", "bind a loop whose extent is known when the kernel starts"),
    ):
        with pytest.raises((LowerError, VerifyError), match=message):
            lowered(
                _replaced(EXCHANGE, '2, thread="clusterCtaIdx', f'{shape}, thread="clusterCtaIdx')
            )
    for arch, has in (("sm_80", "no clusters"), ("sm_90a", "at most 16")):
        target = Target(f"cuda -arch={arch}")
        large = _replaced(EXCHANGE, CLUSTER, CLUSTER.replace("2", "16"))
        if arch == "sm_90a":
            emit_kernels(lowered(large, target), target)
            target = Target("cuda -arch=sm_120a")
            has = "at most 8 blocks"
        with pytest.raises(LowerError, match=has):
            lowered(large, target)
    with pytest.raises(CodegenError, match="ptx_barrier_cluster_arrive needs sm_90"):
        emit_kernels(lowered(EXCHANGE), Target("cuda -arch=sm_80"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('own = T.allocate((1,), "float32", scope="local")',
         'own = T.allocate((1,), "float32", scope="shared")', "target lies in local memory"),
        ("own[0] + T.float32(1)", "T.float16(1)", "what it moves is float32"),
        ("T.address_of(R[tx])", "T.address_of(R[T.Ramp(0, 1, 4)])", "target is one element"),
    ],
)  # fmt: skip
def test_calls_that_mean_nothing_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        emit_kernels(lowered(_replaced(EXCHANGE, old, new)), HOPPER)


def test_traffic_counts_each_block() -> None:
    report = simulate(lowered(EXCHANGE), np.zeros(256, "float32"), np.zeros(256, "float32"))
    assert {item.site.buffer for item in report.accesses} >= {"A", "B"}
    (loads,) = [item for item in report.accesses if item.site.buffer == "A"]
    assert loads.requests == 8 and loads.lanes == 256


def test_bind() -> None:
    """Loops on blocks of a cluster are bound like others; what they compute stays the same."""
    text = """
@T.prim_func
def main(A: T.Buffer((96,), "float32"), B: T.Buffer((96,), "float32")):
    for i in range(96):
        with T.block("B"):
            vi = T.axis.spatial(96, i)
            B[vi] = A[vi] + T.float32(1)
"""
    sch = Schedule(IRModule({"main": parse(text)}))
    (loop,) = sch.get_loops(sch.get_block("B"))
    with pytest.raises(ScheduleError, match="the loop has 96 iterations; a cluster"):
        sch.bind(loop, "clusterCtaIdx.x")
    thread, cluster, block = sch.split(loop, [4, 3, None])[::-1]
    sch.bind(block, "blockIdx.x")
    sch.bind(cluster, "clusterCtaIdx.x")
    sch.bind(thread, "threadIdx.x")
    assert 'T.thread_binding(3, thread="clusterCtaIdx.x")' in sch.mod.script()
    with HOPPER:
        module = gpu_pipeline(HOPPER)(sch.mod)
    a, b = np.arange(96, dtype="float32"), np.zeros(96, "float32")
    run(module, a, b, check_races=True)
    np.testing.assert_array_equal(b, a + 1)
    assert "__cluster_dims__(3, 1, 1)" in emit_kernels(module, HOPPER).text
    with pytest.raises(CodegenError, match=r"clusters of 3 blocks .* -arch=sm_80 has no clusters"):
        emit_kernels(module, Target("cuda -arch=sm_80"))
    other = Target("hip")
    with pytest.raises(LowerError, match="no clusters"), other:
        gpu_pipeline(other)(sch.mod)


ALIKE = """
@T.prim_func
def main(A: T.Buffer((64, 64), "float16"), I: T.Buffer((4,), "int32")):
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for cx in T.thread_binding(2, thread="clusterCtaIdx.x"):
            S = T.allocate(SHAPE, "float16", scope="shared")
            N = T.allocate((1,), "int32", scope="shared")
            full = T.allocate((1,), "uint64", scope="shared")
            for k in range(LOOP):
                T.evaluate(T.ptx_cp_async_bulk_tensor(
                    TILE, T.address_of(A[0, 0]),
                    T.address_of(full[0]), 128, 0, 64, 64, 64, PLACE, 64, 1, 64, 0))
"""
MATRIX = "(64, 64)", "T.tile_of(S[T.Ramp(0, 1, 64), 0], S[0, 0:64])"


@pytest.mark.parametrize(
    ("loop", "place", "memory", "alike"),
    [
        ("2", "k", MATRIX, True),
        ("cx, cx + 2", "k", MATRIX, False),
        ("cx + 1", "k", MATRIX, False),
        ("2", "N[0]", MATRIX, False),
        ("2", "I[0]", MATRIX, True),
        ("2", "k", ("(4096,)", "T.tile_of(S[T.Ramp(0, 64, 64)], S[0:64])"), False),
    ],
)
def test_copies_that_blocks_make_alike(
    loop: str, place: str, memory: tuple[str, str], alike: bool
) -> None:
    """A place may depend on the block through loops, and on what blocks have of their own."""
    text = ALIKE.replace("LOOP", loop).replace("PLACE", place)
    func = parse(text.replace("SHAPE", memory[0]).replace("TILE", memory[1]))
    loops, body = thread_nest(func.body)
    (copy,) = copies_of_boxes(body)
    assert ClusterGrid(loops, body, Analyzer()).axes_shared(copy) == ((0,) if alike else ())
