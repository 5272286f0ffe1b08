"""Design spaces for GPUs: their candidates, lowered and run by the simulator without races.

Nothing here needs a GPU: kernels are run by the interpreter, block by block, with their threads in
step between barriers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tests.meta_schedule.conftest import conv2d, matmul, softmax
from tests.meta_schedule.test_strategies import rest_of
from tilewright import te
from tilewright.ir import as_int, pre_order
from tilewright.meta_schedule import TuneContext
from tilewright.meta_schedule.arg_info import arg_infos, random_arguments
from tilewright.meta_schedule.mutator import MutateThreadBinding
from tilewright.meta_schedule.postproc import (
    RewriteCooperativeFetch,
    RewriteUnboundBlock,
    VerifyGPUCode,
)
from tilewright.meta_schedule.schedule_rule import (
    AutoBind,
    CrossThreadReduction,
    MultiLevelTiling,
    NotApplicable,
    ReuseType,
)
from tilewright.meta_schedule.space_generator import PostOrderApply
from tilewright.script import parse
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import For, PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import gpu_pipeline

CUDA = Target("cuda")


def row_sums(n: int, k: int) -> PrimFunc:
    a = te.placeholder((n, k), name="A")
    r = te.reduce_axis((0, k), "r")
    return te.create_prim_func([a, te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="C")])


def exponentials(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    return te.create_prim_func([a, te.compute((n, m), lambda i, j: te.exp(a[i, j]), name="C")])


def searched(func: PrimFunc, target: Target = CUDA, **options: Any) -> TuneContext:
    made = TuneContext(func, target=target, **{"search_strategy": "replay-trace", **options})
    made.pre_tuning(max_trials=64, num_trials_per_iter=4)
    return made


def agree(func: PrimFunc, sch: Schedule, target: Target = CUDA) -> None:
    """Run the lowered kernels, and compare with the unscheduled program."""
    lowered = gpu_pipeline(target)(sch.mod)
    arguments = random_arguments(arg_infos(func))
    expected = [np.array(item) for item in arguments]
    found = [np.array(item) for item in arguments]
    run(func, *expected)
    run(lowered, *found, check_races=True)
    for a, b in zip(expected, found):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)


def threads_of(sch: Schedule) -> list[tuple[str, int]]:
    """The thread loops of a program, in order."""
    return [
        (node.thread, as_int(node.extent) or 0)
        for node in pre_order(sch.mod["main"])
        if type(node) is For and node.thread is not None
    ]


def scheduled(func: PrimFunc, target: Target, *rules: Any) -> list[Schedule]:
    """Apply rules, then what completes a program for GPUs."""
    generator = PostOrderApply(sch_rules=rules, postprocs="cuda", mutator_probs={})
    generator.initialize(target)
    made = generator.generate_design_space(Schedule(func).mod)
    for sch in made:
        for postproc in generator.postprocs:
            assert postproc.apply(sch) is None
    return made


# ---- whole searches ------------------------------------------------------------------------------

PROGRAMS: dict[str, Callable[[], PrimFunc]] = {
    "matmul": lambda: matmul(8, 8, 4),
    "matmul-epilogue": lambda: matmul(8, 8, 4, epilogue=True),
    "matmul-primes": lambda: matmul(7, 11, 5),
    "row-sums": lambda: row_sums(3, 50),
    "elementwise": lambda: exponentials(9, 7),
    "softmax": lambda: softmax(3, 16),
    "convolution": lambda: conv2d(1, 4, 2),
}


@few("name", PROGRAMS, every=3)
def test_candidates_run_as_kernels(name: str) -> None:
    func = PROGRAMS[name]()
    strategy = "evolutionary" if name == "matmul" else "replay-trace"
    context = searched(func, search_strategy=strategy)
    assert context.search_strategy.fallback_share == 0.0
    candidates = context.generate_measure_candidates(2)
    assert len(candidates) == (1 if name == "elementwise" else 2)  # there is work for 32 threads
    for candidate in candidates:
        agree(func, candidate.sch)
        kinds = {tag.split(".")[0] for tag, _ in threads_of(candidate.sch)}
        assert {"blockIdx", "threadIdx"} <= kinds


def test_a_trace_makes_the_kernel_again() -> None:
    func = matmul(8, 8, 8)
    (candidate,) = searched(func).generate_measure_candidates(1)
    sch = Schedule(func)
    candidate.sch.trace.apply_to_schedule(sch)
    assert threads_of(sch) == threads_of(candidate.sch)
    agree(func, sch)


def test_no_candidate_has_more_threads_than_the_target_allows() -> None:
    small = Target("cuda -max-threads=8")
    context = searched(matmul(16, 16, 4), small)
    (variant,) = context.search_strategy.variants
    rows = variant.draw(200, np.random.default_rng(0))
    assert variant.threads.fits(variant.columns, rows).mean() > 0.9
    found = context.generate_measure_candidates(3)
    for candidate in found:
        extents = [extent for tag, extent in threads_of(candidate.sch) if tag == "threadIdx.x"]
        assert max(extents) <= 8
    agree(matmul(16, 16, 4), found[0].sch, small)


# ---- rules ---------------------------------------------------------------------------------------


def test_tiling_fetches_into_shared_memory() -> None:
    func = matmul(8, 16, 8)
    (sch,) = scheduled(func, CUDA, MultiLevelTiling())
    text = sch.mod["main"].script()
    assert text.count('scope="shared"') == 2 and text.count('scope="local"') == 1
    tags = [tag for tag, _ in threads_of(sch)]
    assert tags == ["blockIdx.x", "vthread.x", "threadIdx.x", "threadIdx.x", "threadIdx.x"]


def test_tiling_follows_its_options(same_result: Any) -> None:
    func = matmul(8, 16, 8)
    rule = MultiLevelTiling(
        "SSRS",
        max_innermost_factor=4,
        tile_binds=["blockIdx.x", "threadIdx.x"],
        vector_load_lens=[2],
        reuse_read=ReuseType("may", [3], "shared"),
        reuse_write=ReuseType("may", [2], "local"),
    )
    made = scheduled(func, CUDA, rule)
    assert len(made) == 2 * 2
    scopes = [sch.mod["main"].script().count('scope="shared"') for sch in made]
    assert scopes == [0, 2, 0, 2]
    for sch in (made[0], made[-1]):
        agree(func, sch)
    # The same on a CPU, where nothing is bound.
    target = Target("llvm -mcpu=znver4 -mtriple=x86_64-unknown-linux-gnu -num-cores=2")
    plain = MultiLevelTiling("SSRS", reuse_write=ReuseType("must", [2], "local"))
    context = TuneContext(
        func, target=target, space_generator=PostOrderApply(sch_rules=[plain]),
        start_from_rules=False,
    )  # fmt: skip
    context.pre_tuning(max_trials=8, num_trials_per_iter=2)
    for candidate in context.generate_measure_candidates():
        same_result(func, candidate.sch.mod)


def test_tiling_can_leave_blocks_out() -> None:
    rule = MultiLevelTiling(filter_fn=lambda block: block.name != "C")
    rule.initialize(CUDA)
    sch = Schedule(matmul(8, 8, 8))
    found = rule.apply(sch, sch.get_block("C"))
    assert isinstance(found, NotApplicable) and "the filter" in found.reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"structure": "SRS", "tile_binds": ["blockIdx.x", "threadIdx.x"]}, "would bind a level"),
        ({"structure": "SXS", "tile_binds": []}, "made of S and R"),
        ({"reuse_read": ReuseType("must", [9])}, "level 9 is none of the structure 'SSSRRS'"),
    ],
)
def test_impossible_structures_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TuneError, match=message):
        MultiLevelTiling(**options)
    with pytest.raises(TuneError, match="req is one of no, may, must"):
        ReuseType("maybe", [1])


def test_threads_reduce_together() -> None:
    func = row_sums(3, 50)
    made = scheduled(func, CUDA, CrossThreadReduction([8]), AutoBind(thread_extents=[2]))
    plain, crossed = map(threads_of, made)
    assert crossed == [("blockIdx.x", 3), ("threadIdx.x", 8)]
    assert plain == [("blockIdx.x", 2), ("threadIdx.x", 2)]
    for sch in made:
        agree(func, sch)
    alone = row_sums(1, 40)
    for sch in scheduled(alone, CUDA, CrossThreadReduction([4])):
        agree(alone, sch)


@pytest.mark.parametrize(("n", "k", "reason"), [(32, 8, "outputs enough"), (8, 2, "too|short")])
def test_other_reductions_are_left_to_other_rules(n: int, k: int, reason: str) -> None:
    rule = CrossThreadReduction()
    rule.initialize(CUDA)
    sch = Schedule(matmul(n, n, k) if n > 8 else row_sums(n, k))
    found = rule.apply(sch, sch.get_block("C"))
    assert isinstance(found, NotApplicable)
    assert any(word in found.reason for word in reason.split("|"))


def test_much_work_is_done_in_steps() -> None:
    func = exponentials(16, 16)
    small = Target("cuda -max-threads=16")
    (sch,) = scheduled(func, small, AutoBind(max_threadblocks=4, thread_extents=[8, 16, 32]))
    threads = dict(threads_of(sch))
    assert threads["blockIdx.x"] == 4 and threads["threadIdx.x"] in (8, 16)
    agree(func, sch, small)


# ---- postprocs and mutators ----------------------------------------------------------------------


def test_what_is_unbound_gets_threads() -> None:
    func = softmax(3, 16)
    (sch,) = scheduled(func, CUDA)
    assert [extent for tag, extent in threads_of(sch) if tag == "threadIdx.x"] == [32, 64, 32, 64]
    agree(func, sch)
    one = te.placeholder((1,), name="A")
    scalar = te.create_prim_func([one, te.compute((1,), lambda i: one[i] + 1.0, name="C")])
    (sch,) = scheduled(scalar, CUDA)
    agree(scalar, sch)


def test_a_fetch_needs_threads() -> None:
    sch = Schedule(exponentials(8, 8))
    sch.annotate(sch.get_block("C"), "meta_schedule.cooperative_fetch", 2)
    refused = RewriteCooperativeFetch().apply(sch)
    assert refused is not None and "no threads are around block 'C'" in refused.reason


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("cuda -max-threads=16", "32 threads, more than 16"),
        ("cuda -max-shared-memory=256", "512 bytes of shared memory, more than 256"),
    ],
)
def test_limits_of_the_target_are_kept(target: str, message: str) -> None:
    sch = Schedule(exponentials(8, 32))
    block = sch.get_block("C")
    copy = sch.cache_read(block, 0, "shared")
    i, j = sch.get_loops(block)
    outer, inner = sch.split(i, [None, 4])
    sch.bind(outer, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    del inner
    sch.compute_at(copy, outer, preserve_unit_loops=True)
    sch.bind(sch.get_loops(copy)[-1], "threadIdx.x")
    verify = VerifyGPUCode()
    assert verify.apply(sch) is None
    verify.initialize(Target(target))
    refused = verify.apply(sch)
    assert refused is not None and message in refused.reason


def test_what_no_kernel_runs_is_refused() -> None:
    sch = Schedule(exponentials(8, 8))
    refused = VerifyGPUCode().apply(sch)
    assert refused is not None and "outside of the GPU's kernels" in refused.reason
    RewriteUnboundBlock().apply(sch)
    assert VerifyGPUCode().apply(sch) is None
    sch = Schedule(exponentials(16, 8))
    i, j = sch.get_loops(sch.get_block("C"))
    sch.bind(i, "vthread.x")
    sch.bind(j, "threadIdx.x")
    refused = VerifyGPUCode().apply(sch)
    assert refused is not None and "16 virtual threads, more than 8" in refused.reason


def test_vectors_are_as_wide_as_loads() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for i in T.thread_binding(8, thread="threadIdx.x"):
        for j in T.vectorized(8):
            with T.block("C"):
                v = T.axis.spatial(64, i * 8 + j)
                C[v] = A[v] + T.float32(1)
"""
    refused = VerifyGPUCode().apply(Schedule(parse(text)))
    assert refused is not None and "vectors of 32 bytes, more than 16" in refused.reason
    assert VerifyGPUCode(max_vector_bytes=32).apply(Schedule(parse(text))) is None


def test_numbers_of_threads_are_mutated() -> None:
    context = searched(row_sums(3, 50))
    columns = [c for v in context.search_strategy.variants for c in v.columns]
    mutator = MutateThreadBinding()
    chosen = [column for column in columns if mutator.applies(column)]
    assert len(chosen) == 1 and len(chosen[0].options) == 4  # 4, 8, 16 or 32 threads reduce
    changed = mutator.mutate(chosen[0], np.zeros(50, dtype=np.int64), np.random.default_rng(0))
    assert set(changed.tolist()) == {1, 2, 3}
    assert len(rest_of(context)) > 4
