"""Schedule rules: what they do to a block, where they don't apply, and that meaning is kept."""

from __future__ import annotations

import pytest

from tests.meta_schedule.conftest import TASKS, conv2d, matmul, softmax
from tilewright import te, topi
from tilewright.ir import const
from tilewright.meta_schedule.feature import extract
from tilewright.meta_schedule.schedule_rule import (
    SCHEDULE_RULES,
    AddRFactor,
    AutoInline,
    InlineConstantScalars,
    MultiLevelTiling,
    NotApplicable,
    ParallelizeVectorizeUnroll,
    RandomComputeLocation,
    RegisterTile,
)
from tilewright.meta_schedule.schedule_rule.register_tile import STRUCTURE
from tilewright.meta_schedule.space_generator import (
    PostOrderApply,
    ScheduleFn,
    SpaceGenerator,
)
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir.attrs import TILED
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule


def block_names(sch):
    return {name for name in sch.state.index("main").blocks if name != "root"}


def loops_of(sch, name):
    return [sch.get(loop).extent.value for loop in sch.get_loops(sch.get_block(name))]


def test_every_sketch_keeps_the_meaning(task, target, same_result):
    generator = SpaceGenerator.create("post-order-apply", target=target)
    sketches = generator.generate_design_space(Schedule(task).mod)
    assert sketches
    for sketch in sketches:
        same_result(task, sketch.mod)


def test_every_sketch_replays_from_its_trace(task, target):
    generator = SpaceGenerator.create("post-order-apply", target=target)
    for sketch in generator.generate_design_space(Schedule(task).mod):
        again = Schedule(task)
        sketch.trace.simplified().apply_to_schedule(again)
        assert again.mod.script() == sketch.mod.script()


def test_auto_inline_pulls_elementwise_blocks_together():
    sch = Schedule(matmul(8, 8, 8, epilogue=True))
    (made,) = AutoInline().apply(sch, sch.get_block("D"))
    assert block_names(made) == {"C", "E"}


def test_auto_inline_leaves_outputs_and_reductions():
    sch = Schedule(matmul(8, 8, 8, epilogue=True))
    assert isinstance(AutoInline().apply(sch, sch.get_block("C")), NotApplicable)
    assert isinstance(AutoInline(into_producer=False).apply(sch, sch.get_block("E")), NotApplicable)


def test_auto_inline_does_not_repeat_padding_in_a_reduction():
    sch = Schedule(conv2d(2, 6, 4))
    answer = AutoInline().apply(sch, sch.get_block("pad_temp"))
    assert isinstance(answer, NotApplicable)
    assert "again" in answer.reason


def test_auto_inline_keeps_what_would_be_evaluated_at_many_points():
    def three(steps: int) -> Schedule:
        a = te.placeholder((16,), name="A")
        b = te.compute((16,), lambda i: sum((a[i] * float(n) for n in range(1, steps)), a[i]))
        c = te.compute((12,), lambda i: b[i] + b[i + 1] + b[i + 2] + b[i + 3], name="C")
        return Schedule(te.create_prim_func([a, c]))

    small, large = three(4), three(12)
    (made,) = AutoInline().apply(small, small.get_block("compute"))
    assert block_names(made) == {"C"}
    answer = AutoInline(into_producer=False).apply(large, large.get_block("compute"))
    assert isinstance(answer, NotApplicable)
    assert answer.reason == "its 22 operations would be there 4 times"


def test_auto_inline_keeps_transforms_out_of_products():
    x = te.placeholder((1, 8, 8, 8), name="x")
    w = te.placeholder((8, 8, 3, 3), name="w")
    sch = Schedule(te.create_prim_func([x, w, topi.nn.conv2d_winograd(x, w, padding=1)]))
    for name in ("input_rows", "input_transform", "result_rows"):
        answer = AutoInline(into_producer=False).apply(sch, sch.get_block(name))
        assert isinstance(answer, NotApplicable)
        assert "again" in answer.reason or "times" in answer.reason


def test_auto_inline_into_the_producer_where_the_consumer_is_the_output():
    a = te.placeholder((8, 4), name="A")
    b = te.compute((8, 4), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((4, 8), lambda i, j: b[j, i] * 2.0, name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    (made,) = AutoInline(into_consumer=False).apply(sch, sch.get_block("C"))
    assert block_names(made) == {"B"}


def test_inline_constant_scalars(same_result):
    a = te.placeholder((8,), name="A")
    two = te.compute((1,), lambda i: const(2.0, "float32"), name="two")
    b = te.compute((8,), lambda i: a[i] * two[0], name="B")
    func = te.create_prim_func([a, b])
    sch = Schedule(func)
    (made,) = InlineConstantScalars().apply(sch, sch.get_block("two"))
    assert block_names(made) == {"B"}
    same_result(func, made.mod)
    assert isinstance(InlineConstantScalars().apply(sch, sch.get_block("B")), NotApplicable)


def test_tiling_keeps_accumulators_in_a_local_buffer(target):
    rule = MultiLevelTiling(pack=False)
    rule.initialize(target)
    sch = Schedule(matmul(24, 32, 16), seed=1)
    (made,) = rule.apply(sch, sch.get_block("C"))
    assert "C_local" in block_names(made)
    assert 'scope="local"' in made.mod.script()
    # i and j in four parts, k in two: SSSRRS
    assert len(loops_of(made, "C")) == 10


def test_tiling_consumer_takes_the_place_of_the_write_cache(target):
    rule = MultiLevelTiling(pack=False)
    rule.initialize(target)
    sch = Schedule(matmul(24, 32, 16, epilogue=True), seed=1)
    AutoInline().apply(sch, sch.get_block("D"))
    (made,) = rule.apply(sch, sch.get_block("C"))
    assert block_names(made) == {"C", "E"}


def test_tiling_other_structures(target, same_result):
    func = matmul(24, 32, 16)
    rule = MultiLevelTiling(structure="SSRSRS")
    rule.initialize(target)
    sch = Schedule(func, seed=3)
    for made in rule.apply(sch, sch.get_block("C")):
        same_result(func, made.mod)


def test_tiling_packs_an_operand_that_is_used_often(target):
    rule = MultiLevelTiling()
    rule.initialize(target)
    sch = Schedule(matmul(24, 32, 16), seed=1)
    plain, packed = rule.apply(sch, sch.get_block("C"))
    assert "B_global" not in block_names(plain)
    assert "B_global" in block_names(packed)


def test_tiling_turns_a_transposed_operand_round_when_packing(target):
    rule = MultiLevelTiling()
    rule.initialize(target)
    sch = Schedule(matmul(24, 32, 16, transposed=True), seed=1)
    (packed,) = rule.apply(sch, sch.get_block("C"))
    store = packed.get(packed.get_block("B_global")).writes[0].buffer
    assert [extent.value for extent in store.shape] == [16, 32]


def test_tiling_cuts_primes_into_pieces(target):
    rule = MultiLevelTiling(pack=False)
    rule.initialize(target)
    sch = Schedule(matmul(197, 333, 64), seed=1)
    forks = rule.apply(sch, sch.get_block("C"))
    assert len(forks) > 1
    for made in forks:
        extents = loops_of(made, "C")
        assert extents[-1] % 16 == 0
        assert 4 <= extents[-2] <= 14


def with_constants(func, *positions):
    return func.replace(attrs={**func.attrs, "layout_free_buffers": list(positions)})


def prepacked(forks):
    """Return the forks that pack an operand before the program runs, with its packed shape."""
    found = []
    for made in forks:
        _, packers = split_layout_rewrite(made.mod["main"])
        for packer in packers.values():
            found.append((made, [extent.value for extent in packer.buffers[1].shape]))
    return found


def test_tiling_packs_constant_operands_before_the_program_runs(target, same_result):
    func = with_constants(conv2d(4, 14, 64), 1)
    rule = MultiLevelTiling()
    rule.initialize(target)
    sch = Schedule(func, seed=1)
    forks = rule.apply(sch, sch.get_block("conv2d"))
    found = prepacked(forks)
    # As wide as two and four vectors; rows of 14 are too short to be vectors themselves.
    assert [shape for _, shape in found] == [[2, 4, 3, 3, 32], [1, 4, 3, 3, 64]]
    assert len(forks) == len(found)
    for made, shape in found:
        assert loops_of(made, "conv2d")[-1] == shape[-1]
        same_result(func, made.mod)


def test_tiling_reads_long_rows_as_they_are_too(target):
    rule = MultiLevelTiling()
    rule.initialize(target)
    sch = Schedule(with_constants(conv2d(4, 16, 64), 1), seed=1)
    forks = rule.apply(sch, sch.get_block("conv2d"))
    assert (len(prepacked(forks)), len(forks)) == (2, 3)


def test_tiling_pads_the_panels_of_lengths_that_vectors_do_not_divide(target, same_result):
    func = with_constants(matmul(6, 71, 12, transposed=True), 1)
    rule = MultiLevelTiling()
    rule.initialize(target)
    sch = Schedule(func, seed=1)
    forks = rule.apply(sch, sch.get_block("C"))
    assert [shape for _, shape in prepacked(forks)] == [[5, 12, 16], [3, 12, 32]]
    for made in forks:
        same_result(func, made.mod)


def test_tiling_packs_in_the_call_what_is_read_elsewhere_too(target):
    weight = te.placeholder((16, 32), name="B")
    data = te.placeholder((24, 16), name="A")
    k = te.reduce_axis((0, 16), name="k")
    product = te.compute((24, 32), lambda i, j: te.sum(data[i, k] * weight[k, j], axis=k), name="C")
    doubled = te.compute((16, 32), lambda i, j: weight[i, j] * 2.0, name="D")
    func = with_constants(te.create_prim_func([data, weight, product, doubled]), 1)
    rule = MultiLevelTiling()
    rule.initialize(target)
    sch = Schedule(func, seed=1)
    forks = rule.apply(sch, sch.get_block("C"))
    assert "layout_rewrite" not in "".join(made.mod.script() for made in forks)
    assert any("B_global" in block_names(made) for made in forks)


def test_prepacking_has_no_compute_location_and_no_features(target):
    func = with_constants(conv2d(4, 14, 64), 1)
    generator = SpaceGenerator.create("post-order-apply", target=target)
    sketches = generator.generate_design_space(Schedule(func).mod)
    for made, shape in prepacked(sketches):
        by_registers = made.has_block("conv2d_update")
        # Register tiles pack each filter's taps as one run, and transpose the runs of whole panels.
        whole = shape[0] * shape[-1] == 64
        loops = 5 if whole and not by_registers else 4
        assert len(made.get_loops(made.get_block("weight_global"))) == loops
        stores = extract(made.mod["main"]).stores
        # Padding, the reduction's update, both write-backs; its beginning.
        assert len(stores) == (5 if by_registers else 4)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("n", [64, 77])
def test_register_tiles_are_sketches_that_mean_the_same(target, same_result, constant, n):
    func = with_constants(matmul(24, n, 32), 1) if constant else matmul(24, n, 32)
    rule = RegisterTile()
    rule.initialize(target)
    sch = Schedule(func, seed=1)
    forks = rule.apply(sch, sch.get_block("C"))
    assert forks[0] is sch
    assert len(forks) > 2
    for fork in forks[1:]:
        assert fork.get(fork.get_block("C_update")).annotations[TILED] == STRUCTURE
        same_result(func, fork.mod)
        again = Schedule(func)
        fork.trace.apply_to_schedule(again)
        assert again.mod.script() == fork.mod.script()


def test_register_tiles_are_made_once(target):
    rule = RegisterTile()
    rule.initialize(target)
    sch = Schedule(matmul(24, 64, 32), seed=1)
    tiled = rule.apply(sch, sch.get_block("C"))[1]
    again = rule.apply(tiled, tiled.get_block("C_update"))
    assert isinstance(again, NotApplicable)
    assert "already" in again.reason


def test_panels_are_contiguous_to_features():
    func = with_constants(conv2d(4, 14, 64), 1)
    target = Target("llvm -mcpu=znver4 -mtriple=x86_64-unknown-linux-gnu -num-cores=1")
    rule = MultiLevelTiling()
    rule.initialize(target)
    sch = Schedule(func, seed=1)
    made, _ = prepacked(rule.apply(sch, sch.get_block("conv2d")))[0]
    program = extract(made.mod["main"])
    panel = next(
        access for store in program.stores for access in store.accesses if len(access.indices) == 5
    )
    (lane, stride) = next(iter(panel.indices[-1].items()))
    assert (len(panel.indices[-1]), stride, program.loops[lane].extent) == (1, 1, 32)
    assert lane not in panel.indices[0]


def test_tiling_does_not_apply_twice(target):
    rule = MultiLevelTiling(pack=False)
    rule.initialize(target)
    sch = Schedule(matmul(24, 32, 16))
    (made,) = rule.apply(sch, sch.get_block("C"))
    assert isinstance(rule.apply(made, made.get_block("C")), NotApplicable)


def test_tiling_leaves_row_sums_to_rfactor(target, same_result):
    func = softmax(6, 48)
    sch = Schedule(func, seed=2)
    tiling, factoring = MultiLevelTiling(), AddRFactor()
    tiling.initialize(target)
    factoring.initialize(target)
    assert isinstance(tiling.apply(sch, sch.get_block("softmax_sum")), NotApplicable)
    forks = factoring.apply(sch, sch.get_block("softmax_sum"))
    assert len(forks) == 2
    assert "softmax_sum_rf" in block_names(forks[1])
    same_result(func, forks[1].mod)


def test_rfactor_puts_vector_lanes_innermost(target):
    sch = Schedule(softmax(64, 4800), seed=2)
    rule = AddRFactor()
    rule.initialize(target)
    _, made = rule.apply(sch, sch.get_block("softmax_sum"))
    block = made.get(made.get_block("softmax_sum_rf"))
    realize = made.state.get_block(made.get_block("softmax_sum_rf"))
    lane = block.writes[0].region[-1].min
    binding = dict(zip([item.var for item in block.iter_vars], realize.iter_values))
    assert binding[lane] is made.state.loops_above(realize)[-1].loop_var


def test_rfactor_of_a_length_that_vectors_do_not_divide(target, same_result):
    func = softmax(4, 50)
    sch = Schedule(func, seed=2)
    rule = AddRFactor()
    rule.initialize(target)
    _, whole, made = rule.apply(sch, sch.get_block("softmax_sum"))
    assert loops_of(made, "softmax_sum_rf") == [4, 4, 16]
    same_result(func, whole.mod)
    same_result(func, made.mod)


def test_rfactor_parallel_for_few_outputs(target):
    sch = Schedule(softmax(1, 8192), seed=2)
    rule = AddRFactor()
    rule.initialize(target)
    assert len(rule.apply(sch, sch.get_block("softmax_sum"))) == 3
    rule.initialize(target.with_options(num_cores=1))
    sch = Schedule(softmax(1, 8192), seed=2)
    assert len(rule.apply(sch, sch.get_block("softmax_sum"))) == 2


def test_annotations_of_the_root(target):
    rule = ParallelizeVectorizeUnroll(max_jobs_per_core=(8,), unroll_max_steps=(16,))
    rule.initialize(target)
    sch = Schedule(matmul(8, 8, 8))
    (made,) = rule.apply(sch, sch.get_block("root"))
    assert made.get(made.get_block("root")).annotations == {
        "meta_schedule.parallel": 16,
        "meta_schedule.vectorize": 64,
        "meta_schedule.unroll_explicit": 16,
    }
    assert isinstance(rule.apply(sch, sch.get_block("C")), NotApplicable)


def test_one_core_is_not_parallel(target):
    rule = ParallelizeVectorizeUnroll()
    rule.initialize(target.with_options(num_cores=1))
    sch = Schedule(matmul(8, 8, 8))
    (made,) = rule.apply(sch, sch.get_block("root"))
    assert "meta_schedule.parallel" not in made.get(made.get_block("root")).annotations


def test_compute_location_of_padding(target):
    sch = Schedule(conv2d(2, 6, 4), seed=5)
    rule = RandomComputeLocation()
    (made,) = rule.apply(sch, sch.get_block("pad_temp"))
    assert any(inst.name == "sample_compute_location" for inst in made.trace.insts)
    assert isinstance(rule.apply(sch, sch.get_block("relu")), NotApplicable)


def test_forks_are_limited(target):
    generator = PostOrderApply(max_sketches=2)
    generator.initialize(target)
    assert len(generator.generate_design_space(Schedule(TASKS["softmax"]()).mod)) == 2


def test_same_seed_same_sketches(target):
    texts = []
    for _ in range(2):
        generator = PostOrderApply(seed=11)
        generator.initialize(target)
        sketches = generator.generate_design_space(Schedule(matmul(24, 32, 16)).mod)
        texts.append([sketch.mod.script() for sketch in sketches])
    assert texts[0] == texts[1]


def test_a_space_written_by_hand(target):
    def scheduled(sch):
        i = sch.get_loops(sch.get_block("C"))[0]
        sch.split(i, sch.sample_perfect_tile(i, 2))

    generator = ScheduleFn(scheduled, seed=1)
    generator.initialize(target)
    (made,) = generator.generate_design_space(Schedule(matmul(8, 8, 8)).mod)
    assert len(made.get_loops(made.get_block("C"))) == 4
    with pytest.raises(TuneError, match="sch_fn"):
        ScheduleFn(lambda sch: [1]).generate_design_space(Schedule(matmul(4, 4, 4)).mod)


def test_unknown_names_are_answered_with_near_ones(target):
    with pytest.raises(TuneError, match="multi-level-tiling"):
        SCHEDULE_RULES.get("multi-level-tilling")
    with pytest.raises(TuneError, match="post-order-apply"):
        SpaceGenerator.create("post-order-aply", target=target)


def test_targets_without_defaults_say_so():
    with pytest.raises(TuneError, match="no default rules for target 'hexagon'"):
        SpaceGenerator.create(PostOrderApply(postprocs="hexagon"), target=Target("llvm"))
