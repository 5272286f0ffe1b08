"""Contractions: which tiles are chosen, how operands are packed, and that results stay right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.dlight.cpu import Plan, rank_plans
from tilewright.dlight.cpu.contraction.register_tile import (
    Limits,
    choose_tile,
    rows_in_cache,
    step_cycles,
)
from tilewright.ir import IRModule, Var, as_int, collect
from tilewright.scheduling import Reduction, reduction_of
from tilewright.scheduling.cpu import Axis
from tilewright.target import Target
from tilewright.tir import Block, For, PrimFunc
from tilewright.tir.attrs import KEEP_WHOLE, LAYOUT_FREE, LAYOUT_REWRITE, PREFETCH_NEXT
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import LoopRV

ONE = Target("llvm -mcpu=znver4 -num-cores=1")
TWO = Target("llvm -mcpu=znver4 -num-cores=2")
AVX2 = Target("llvm -mcpu=haswell -num-cores=1")
COSTS = ONE.costs


def product(
    m: Any, n: int, k: int, *, across: bool = False, batch: int = 0, dtype: str = "float32"
) -> PrimFunc:
    lead = (batch,) if batch else ()
    a = te.placeholder((*lead, m, k), dtype, name="A")
    b = te.placeholder((*lead, *((n, k) if across else (k, n))), dtype, name="B")
    build = topi.nn.batch_matmul if batch else topi.nn.matmul
    return te.create_prim_func([a, b, build(a, b, transpose_b=across)])


def with_epilogue(m: int, n: int, k: int) -> PrimFunc:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    bias = te.placeholder((n,), name="bias")
    out = topi.nn.relu(topi.add(topi.matmul(a, b), bias))
    return te.create_prim_func([a, b, bias, out])


def scheduled(func: PrimFunc, target: Target = ONE) -> PrimFunc:
    rules = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)
    made: PrimFunc = rules(IRModule({"main": func}))["main"]
    return made


def best_plan(func: PrimFunc, target: Target = ONE) -> Plan:
    sch = Schedule(IRModule({"main": func}))
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    found = reduction_of(sch, block)
    assert isinstance(found, Reduction)
    return rank_plans(found, target)[0]


def test_rows_that_pass_through_the_cache_are_read_by_wide_tiles() -> None:
    target = Target("llvm -mcpu=emeraldrapids -num-cores=1 -l1=49152 -l2=2097152")
    near, far = (best_plan(product(256, n, 768, across=True), target) for n in (384, 3072))
    assert (near.tile.rows, near.tile.columns) == (12, 32)
    assert (far.tile.rows, far.tile.columns) == (6, 64)
    # That says nothing of other plans, which would pack what is far away.
    deep = best_plan(product(128, 768, 3072, across=True), target)
    assert deep.transposed and (deep.tile.rows, deep.tile.columns) == (6, 64)


def axis(extent: int | None) -> Axis:
    var = Var("i", "int64")
    return Axis(LoopRV("main", var), var, "spatial", extent)


def check(func: PrimFunc, target: Target, rtol: float = 1e-4) -> None:
    """Compiled, with operands packed apart where they are constant, it is what numpy computes."""
    rng = np.random.default_rng(0)
    main, packers = split_layout_rewrite(scheduled(func, target))
    shapes = [[as_int(e) or 7 for e in buffer.shape] for buffer in func.buffers]
    dtype = func.buffers[0].dtype
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes[:-1]]
    a, b = (array.astype("float64") for array in arrays[:2])
    expected = a @ (np.swapaxes(b, -1, -2) if b.shape[-2] != a.shape[-1] else b)
    if len(arrays) == 3:
        expected = np.maximum(expected + arrays[2], 0)
    for position, packer in packers.items():
        packed = np.full([as_int(e) for e in packer.buffers[1].shape], np.nan, dtype)
        driver.compile(packer, target)(arrays[position], packed)
        arrays[position] = packed
    out = np.full(shapes[-1], np.nan, dtype)
    driver.compile(main, target)(*arrays, out)
    np.testing.assert_allclose(out, expected, rtol=rtol, atol=rtol)


# ---- blocks of rows


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize(("rows", "columns"), [(256, 96), (203, 70), (97, 33)])
def test_rows_beyond_the_cache_go_in_blocks(rows: int, columns: int, cores: int) -> None:
    small = Target("native").with_options(num_cores=cores, l3=1 << 15)
    func = product(rows, columns, 160).with_attr(LAYOUT_FREE, [1])
    check(func, small)
    depth = nest_of(scheduled(func, small.with_options(num_cores=1)))
    assert depth == nest_of(scheduled(func, small.with_options(num_cores=1, l3=32 << 20))) + 1


def test_rows_stay_together_for_panels_made_in_the_call() -> None:
    small = Target("native").with_options(num_cores=1, l3=1 << 15)
    large = small.with_options(l3=32 << 20)
    func = product(256, 96, 160)
    assert nest_of(scheduled(func, small)) == nest_of(scheduled(func, large))


def nest_of(func: PrimFunc) -> int:
    """The number of loops around the sums."""
    return sum(
        any(block.name.endswith("_update") for block in collect(loop, Block))
        for loop in collect(func.body, For)
    )


# ---- tiles


@pytest.mark.parametrize(("rows", "columns"), [(512, 512), (197, 197), (128, 768), (5, 33), (1, 9)])
@pytest.mark.parametrize(("lanes", "registers"), [(16, 32), (8, 16), (8, 32), (4, 32), (2, 32)])
@pytest.mark.parametrize("whole", [False, True])
def test_tiles_fit_the_registers(
    rows: int, columns: int, lanes: int, registers: int, whole: bool
) -> None:
    tile = choose_tile(axis(rows), axis(columns), Limits(lanes, registers, COSTS, whole=whole))
    vectors = -(-tile.columns // lanes)
    assert tile.rows * vectors + vectors + 1 <= registers
    assert tile.rows <= rows
    assert tile.columns < columns + lanes
    assert 0 <= tile.score <= 1


def test_large_products_keep_the_multiply_add_units_busy() -> None:
    tile = choose_tile(axis(480), axis(480), Limits(16, 32, COSTS))
    assert tile.rows * tile.columns // 16 >= 16
    assert tile.score > 0.9


def test_cut_off_tiles_count() -> None:
    whole = choose_tile(axis(96), axis(96), Limits(16, 32, COSTS, whole=True))
    cut = choose_tile(axis(97), axis(97), Limits(16, 32, COSTS, whole=True))
    assert cut.score < whole.score
    # 80 columns hold 77 in one tile; narrower tiles would waste more.
    assert choose_tile(axis(333), axis(77), Limits(16, 32, COSTS, whole=True)).columns == 80


def test_a_bound_on_the_width_leaves_two_vectors() -> None:
    assert choose_tile(axis(480), axis(480), Limits(16, 32, COSTS, most_columns=40)).columns == 32
    assert choose_tile(axis(480), axis(480), Limits(16, 32, COSTS, most_columns=1)).columns <= 32


def test_more_work_takes_more_cycles() -> None:
    assert step_cycles(8, 2, COSTS) < step_cycles(12, 2, COSTS) < step_cycles(12, 3, COSTS)
    # However small the tile, a sum waits for its last multiply-add.
    assert step_cycles(1, 1, COSTS) >= 4


def test_rows_a_power_of_two_apart_compete_for_the_cache() -> None:
    assert rows_in_cache(4096, ONE) < rows_in_cache(1024, ONE) < rows_in_cache(788, ONE)
    assert best_plan(product(256, 256, 1024).with_attr(LAYOUT_FREE, [1])).tile.rows <= 8


# ---- plans


def test_constant_operands_are_packed_and_padded() -> None:
    plan = best_plan(product(40, 77, 64).with_attr(LAYOUT_FREE, [1]))
    assert plan.packed is not None
    assert plan.constant
    assert plan.padded
    assert not plan.transposed


def test_small_operands_are_read_in_place() -> None:
    assert best_plan(product(32, 64, 16)).packed is None


def test_what_lies_far_apart_is_packed_in_the_call() -> None:
    plan = best_plan(product(128, 768, 1024))
    assert plan.packed is not None
    assert not plan.constant


def test_of_two_operands_across_the_smaller_one_is_packed() -> None:
    plan = best_plan(product(64, 1024, 1024, across=True))
    assert plan.packed is not None
    assert as_int(plan.packed.buffer.shape[0]) == 64


def test_there_is_one_copy_of_the_kernel_for_columns() -> None:
    made = scheduled(product(24, 61, 64).with_attr(LAYOUT_FREE, [1]))
    loops = collect(made.body, For)
    assert any(KEEP_WHOLE in loop.annotations for loop in loops)
    lowered = driver.lower(IRModule({"main": split_layout_rewrite(made)[0]}), ONE)["main"]
    steps = [loop for loop in collect(lowered.body, For) if as_int(loop.extent) == 64]
    assert len(steps) == 1


def test_the_last_vectors_of_rows_have_a_narrower_tile() -> None:
    for func in (product(197, 197, 64), product(197, 197, 64).with_attr(LAYOUT_FREE, [1])):
        plan = best_plan(func)
        assert not plan.padded
        assert 197 % plan.tile.columns
    assert best_plan(product(197, 61, 64).with_attr(LAYOUT_FREE, [1])).padded


def test_what_lies_across_is_packed_without_padding() -> None:
    plan = best_plan(product(197, 197, 77, across=True))
    assert plan.gathered
    assert not plan.padded
    assert not best_plan(product(256, 256, 64, across=True)).gathered
    assert not best_plan(product(197, 197, 77, across=True), AVX2).gathered


def test_panels_are_made_where_they_are_used() -> None:
    made = scheduled(product(128, 768, 1024))
    (panel,) = [b for b in collect(made.body, Block) if b.annotations.get(LAYOUT_REWRITE)]
    outside = made.root.body
    assert isinstance(outside, For)
    assert panel in collect(outside.body, Block)


def test_large_constant_operands_are_fetched_ahead() -> None:
    large = scheduled(product(64, 1024, 512).with_attr(LAYOUT_FREE, [1]))
    assert any(PREFETCH_NEXT in loop.annotations for loop in collect(large.body, For))
    small = scheduled(product(64, 64, 64).with_attr(LAYOUT_FREE, [1]))
    assert not any(PREFETCH_NEXT in loop.annotations for loop in collect(small.body, For))


# ---- results

SHAPES = [
    (1, 1, 1),
    (1, 70, 33),
    (9, 1, 5),
    (13, 37, 5),
    (30, 50, 16),
    (33, 77, 29),
    (64, 64, 64),
    (97, 97, 3),
    (130, 300, 130),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("constant", [False, True], ids=["dynamic", "constant"])
@pytest.mark.parametrize("across", [False, True], ids=["side-by-side", "across"])
def test_products(shape: tuple[int, int, int], constant: bool, across: bool) -> None:
    func = product(*shape, across=across)
    if shape[1] == shape[2] and across:
        func = product(shape[0], shape[1], shape[2] + 1, across=True)
    check(func.with_attr(LAYOUT_FREE, [1]) if constant else func, Target("native"))


@pytest.mark.parametrize("shape", [(13, 37, 5), (33, 77, 29), (130, 300, 130)], ids=str)
@pytest.mark.parametrize("constant", [False, True], ids=["dynamic", "constant"])
@pytest.mark.parametrize("cores", [1, 2])
def test_products_with_an_epilogue(shape: tuple[int, int, int], constant: bool, cores: int) -> None:
    func = with_epilogue(*shape)
    target = Target("native").with_options(num_cores=cores)
    check(func.with_attr(LAYOUT_FREE, [1]) if constant else func, target)


@pytest.mark.parametrize("across", [False, True], ids=["side-by-side", "across"])
@pytest.mark.parametrize("cores", [1, 2])
def test_batches(across: bool, cores: int) -> None:
    target = Target("native").with_options(num_cores=cores)
    check(product(33, 70, 65, across=across, batch=3), target)
    check(product(64, 128, 192, across=across, batch=3), target)


@pytest.mark.parametrize("constant", [False, True], ids=["dynamic", "constant"])
def test_double_precision(constant: bool) -> None:
    func = product(45, 77, 33, dtype="float64")
    check(func.with_attr(LAYOUT_FREE, [1]) if constant else func, Target("native"), 1e-12)


def test_symbolic_rows() -> None:
    check(product(te.var("n"), 77, 33).with_attr(LAYOUT_FREE, [1]), Target("native"))


def test_narrow_vectors_mean_the_same() -> None:
    if not Target("native").has("avx2"):
        pytest.skip("this machine has no AVX2")
    check(product(33, 77, 29).with_attr(LAYOUT_FREE, [1]), AVX2)
    check(product(33, 77, 29), AVX2)


def test_what_is_not_a_number_stays_in_its_row() -> None:
    func = product(40, 77, 20).with_attr(LAYOUT_FREE, [1])
    main, packers = split_layout_rewrite(scheduled(func, Target("native")))
    a, b = np.ones((40, 20), "float32"), np.ones((20, 77), "float32")
    a[3, 4], a[9, 0], b[7, 76] = np.nan, np.inf, -np.inf
    packed = np.full([as_int(e) for e in packers[1].buffers[1].shape], np.nan, "float32")
    driver.compile(packers[1])(b, packed)
    out = np.zeros((40, 77), "float32")
    driver.compile(main)(a, packed, out)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, a @ b)
