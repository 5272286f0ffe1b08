"""Postprocs: parallel, vectorised and unrolled loops, decomposed reductions, what is rejected."""

from __future__ import annotations

import pytest

from tests.meta_schedule.conftest import matmul
from tilewright import te
from tilewright.meta_schedule.postproc import (
    POSTPROCS,
    DisallowDynamicLoop,
    Rejected,
    RewriteParallelVectorizeUnroll,
    RewriteReductionBlock,
    VerifyCodeSize,
)
from tilewright.meta_schedule.space_generator import PostOrderApply, SpaceGenerator
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.support.errors import TuneError
from tilewright.tir import PARALLEL, UNROLLED, VECTORIZED
from tilewright.tir.analysis import estimate_code_size
from tilewright.tir.attrs import PARALLEL_KEY, UNROLL_KEY, VECTORIZE_KEY
from tilewright.tir.schedule import Schedule


def scaled(*shape: int):
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a[i] * 2.0, name="B")
    return te.create_prim_func([a, b])


def annotated(func, **notes):
    sch = Schedule(func)
    keys = {"parallel": PARALLEL_KEY, "vectorize": VECTORIZE_KEY, "unroll": UNROLL_KEY}
    for name, value in notes.items():
        sch.annotate(sch.get_block("root"), keys[name], value)
    return sch


def rewrite(sch, target):
    postproc = RewriteParallelVectorizeUnroll()
    postproc.initialize(target)
    assert postproc.apply(sch) is None
    return sch


def nest(sch, name):
    loops = [sch.get(loop) for loop in sch.get_loops(sch.get_block(name))]
    return [(loop.kind, loop.extent.value) for loop in loops]


def test_all_postprocs_on_every_sketch(task, target, same_result):
    generator = SpaceGenerator.create("post-order-apply", target=target)
    for sketch in generator.generate_design_space(Schedule(task).mod):
        sketch.enter_postproc()
        for postproc in generator.postprocs:
            assert postproc.apply(sketch) is None
        same_result(task, sketch.mod)
        assert all(
            realize.block.init is None for realize in sketch.state.index("main").blocks.values()
        )
        # What postprocs did is recorded: the trace makes the same program again.
        again = Schedule(task)
        sketch.trace.simplified().apply_to_schedule(again)
        assert again.mod.script() == sketch.mod.script()


def test_outer_loops_become_parallel_up_to_the_limit(target):
    sch = rewrite(annotated(scaled(4, 8, 10, 16), parallel=32), target)
    assert nest(sch, "B") == [(PARALLEL, 32), ("serial", 10), ("serial", 16)]


def test_one_long_loop_is_parallel_though_it_exceeds_the_limit(target):
    sch = rewrite(annotated(scaled(100, 16), parallel=8), target)
    assert nest(sch, "B")[0] == (PARALLEL, 100)


def test_reduction_loops_are_never_parallel(target):
    sch = annotated(matmul(1, 4, 64), parallel=8)
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(k, i, j)
    rewrite(sch, target)
    assert all(kind == "serial" for kind, _ in nest(sch, "C"))


def test_innermost_loop_becomes_vectors(target):
    assert nest(rewrite(annotated(scaled(4, 48), vectorize=64), target), "B")[-1] == (
        VECTORIZED,
        48,
    )


def test_long_loops_are_split_before_vectorising(target, same_result):
    assert nest(rewrite(annotated(scaled(4, 512), vectorize=64), target), "B") == [
        ("serial", 4),
        ("serial", 8),
        (VECTORIZED, 64),
    ]
    func = scaled(3, 131)
    sch = rewrite(annotated(func, vectorize=64), target)
    assert nest(sch, "B")[-1] == (VECTORIZED, 64)
    same_result(func, sch.mod)


def test_strided_writes_are_not_vectorised(target):
    sch = annotated(scaled(16, 8), vectorize=64)
    sch.reorder(*reversed(sch.get_loops(sch.get_block("B"))))
    assert all(kind == "serial" for kind, _ in nest(rewrite(sch, target), "B"))


def test_inner_loops_are_unrolled_up_to_the_limit(target):
    sch = rewrite(annotated(scaled(4, 8, 6), unroll=50), target)
    assert nest(sch, "B") == [("serial", 4), (UNROLLED, 8), (UNROLLED, 6)]
    assert sch.get(sch.get_block("root")).annotations == {}


def test_loops_with_several_statements_are_not_unrolled(target):
    sch = Schedule(matmul(4, 8, 16))
    sch.decompose_reduction(sch.get_block("C"), sch.get_loops(sch.get_block("C"))[2])
    sch.annotate(sch.get_block("root"), UNROLL_KEY, 512)
    assert nest(rewrite(sch, target), "C_update") == [
        ("serial", 4),
        ("serial", 8),
        (UNROLLED, 16),
    ]


def test_init_moves_before_the_first_reduction_loop(same_result):
    func = matmul(4, 8, 16)
    sch = Schedule(func)
    assert RewriteReductionBlock().apply(sch) is None
    assert len(sch.get_loops(sch.get_block("C_init"))) == 2
    same_result(func, sch.mod)


def test_dynamic_loops_are_rejected():
    n = te.var("n") if hasattr(te, "var") else None
    if n is None:
        pytest.skip("te has no symbolic extents")
    a = te.placeholder((n,), name="A")
    sch = Schedule(te.create_prim_func([a, te.compute((n,), lambda i: a[i] + 1.0, name="B")]))
    answer = DisallowDynamicLoop().apply(sch)
    assert isinstance(answer, Rejected)
    assert "not a number" in answer.reason
    assert DisallowDynamicLoop().apply(Schedule(scaled(4))) is None


def unrolled(*shape: int) -> Schedule:
    sch = Schedule(scaled(*shape))
    for loop in sch.get_loops(sch.get_block("B")):
        sch.unroll(loop)
    return sch


def test_code_that_is_too_large_is_rejected(target):
    postproc = VerifyCodeSize(max_instructions=100)
    postproc.initialize(target)
    assert postproc.apply(unrolled(8, 4)) is None
    answer = postproc.apply(unrolled(8, 8))
    assert isinstance(answer, Rejected)
    assert answer.reason == "about 192 vector instructions, more than 100"


def test_twice_the_code_of_the_rules_schedule_is_allowed(target):
    postproc = VerifyCodeSize(max_instructions=100)
    postproc.initialize(target)
    postproc.learn_reference(unrolled(8, 4).mod)  # 96
    assert postproc.apply(unrolled(8, 8)) is None
    assert isinstance(postproc.apply(unrolled(8, 9)), Rejected)


def test_a_limit_without_sense_is_refused():
    with pytest.raises(TuneError, match="max_instructions must be positive, got 0"):
        VerifyCodeSize(0)


def test_the_search_looks_elsewhere_and_counts_what_it_left_out(target, caplog):
    def candidates(*postprocs):
        generator = PostOrderApply(postprocs=postprocs)
        context = TuneContext(matmul(32, 64, 32), target=target, space_generator=generator)
        strategy = context.search_strategy
        spaces = context.generate_design_space()
        strategy._initialize_with_tune_context(context)
        strategy.pre_tuning(24, 24, spaces)
        return context, strategy.generate_measure_candidates(24)

    usual = ["rewrite-parallel-vectorize-unroll", "rewrite-reduction-block"]
    _, free = candidates(*usual)
    limit = sorted(estimate_code_size(item.sch.mod, target.vector_bits) for item in free)[12]
    with caplog.at_level("INFO", "tilewright.meta_schedule"):
        context, found = candidates(*usual, SmallCode(limit))
    sizes = [estimate_code_size(item.sch.mod, target.vector_bits) for item in found]
    assert len(found) == 24 and max(sizes) <= limit
    assert context.rejected["verify-code-size"] > 0
    assert f"vector instructions, more than {limit}" in caplog.text


class SmallCode(VerifyCodeSize):
    """Refuses by the limit alone."""

    def learn_reference(self, mod):
        """Take no account of what the rules make."""


def test_unknown_postproc():
    with pytest.raises(TuneError, match="rewrite-reduction-block"):
        POSTPROCS.get("rewrite-reduction-blok")
