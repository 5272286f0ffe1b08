from __future__ import annotations

import pytest
from schedule_cases import (
    chain,
    check,
    conv2d,
    loop_extents,
    matmul,
    matmul_relu,
    predicate_of,
    refuses,
)

from tilewright import te
from tilewright.ir import Var, const, expr_equal, is_const, substitute
from tilewright.tir.schedule import Schedule


def test_producer_moves_under_the_tile_loop_of_its_consumer() -> None:
    func = chain()
    sch = Schedule(func)
    _, c, d = (sch.get_block(name) for name in "BCD")
    i, _ = sch.get_loops(d)
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at(c, i0)
    assert loop_extents(sch, "C") == [4, 4, 12]
    assert is_const(predicate_of(sch, "C"), 1)
    check(sch, func)


def test_chain_of_producers_follows() -> None:
    func = chain()
    sch = Schedule(func)
    b, c, d = (sch.get_block(name) for name in "BCD")
    i, j = sch.get_loops(d)
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 3])
    sch.reorder(i0, j0, i1, j1)
    sch.compute_at(c, j0)
    sch.compute_at(b, i1 if False else j0)
    assert loop_extents(sch, "B") == [4, 4, 4, 3]
    check(sch, func)


def test_padding_moves_into_the_tiles_of_a_convolution() -> None:
    func = conv2d(size=8)
    sch = Schedule(func)
    conv, pad = sch.get_block("conv"), sch.get_block("pad")
    h, w, f, rh, rw, rc = sch.get_loops(conv)
    h0, h1 = sch.split(h, [None, 4])
    w0, w1 = sch.split(w, [None, 2])
    sch.reorder(h0, w0, rh, rw, rc, h1, w1, f)
    sch.compute_at(pad, w0)
    assert loop_extents(sch, "pad") == [2, 4, 6, 4, 3]
    assert is_const(predicate_of(sch, "pad"), 1)
    check(sch, func)


def test_padding_inside_the_reduction_shrinks_to_the_window_position() -> None:
    func = conv2d(size=8)
    sch = Schedule(func)
    conv, pad = sch.get_block("conv"), sch.get_block("pad")
    h, w, f, rh, rw, rc = sch.get_loops(conv)
    h0, h1 = sch.split(h, [None, 4])
    sch.reorder(h0, rh, rw, rc, h1, w, f)
    sch.compute_at(pad, rc)
    assert loop_extents(sch, "pad") == [2, 3, 3, 3, 4, 8]
    check(sch, func)


def test_odd_tiles_get_a_predicate() -> None:
    func = chain(10, 7)
    sch = Schedule(func)
    c, d = sch.get_block("C"), sch.get_block("D")
    i, _j = sch.get_loops(d)
    i0, _i1 = sch.split(i, [None, 4])
    sch.compute_at(c, i0)
    assert not is_const(predicate_of(sch, "C"), 1)
    check(sch, func)


def test_strided_window_over_an_odd_extent() -> None:
    func = conv2d(size=9, stride=2)
    sch = Schedule(func)
    conv, pad = sch.get_block("conv"), sch.get_block("pad")
    h, _w, *_ = sch.get_loops(conv)
    h0, _h1 = sch.split(h, [None, 2])
    sch.compute_at(pad, h0)
    assert loop_extents(sch, "pad")[:2] == [3, 5]
    check(sch, func)


def test_unit_loops_are_kept_on_request() -> None:
    func = chain()
    for keep, expected in ((False, [16, 12]), (True, [16, 12, 1, 1])):
        sch = Schedule(func)
        c, d = sch.get_block("C"), sch.get_block("D")
        sch.compute_at(c, sch.get_loops(d)[1], preserve_unit_loops=keep)
        assert loop_extents(sch, "C") == expected
        check(sch, func)


def test_index_chooses_the_position() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((16,), lambda i: a[i] * 2.0, name="C")
    d = te.compute((16,), lambda i: b[i] + c[i], name="D")
    func = te.create_prim_func([a, d])
    for index, order in ((-1, ["B", "C", "D"]), (-2, ["C", "B", "D"]), (0, ["C", "B", "D"])):
        sch = Schedule(func)
        (i,) = sch.get_loops(sch.get_block("D"))
        sch.compute_at(sch.get_block("B"), i)
        sch.compute_at(sch.get_block("C"), i, index=index)
        assert [item.name for item in sch.get_child_blocks(i)] == order
        check(sch, func)
    sch = Schedule(func)
    (i,) = sch.get_loops(sch.get_block("D"))
    refuses(sch, lambda: sch.compute_at(sch.get_block("B"), i, index=5), "index 5")


def test_reduction_moves_as_a_whole() -> None:
    func = matmul_relu()
    sch = Schedule(func)
    c, d = sch.get_block("C"), sch.get_block("D")
    i, _j = sch.get_loops(d)
    sch.compute_at(c, i)
    assert loop_extents(sch, "C") == [12, 8, 10]
    check(sch, func)


def test_symbolic_extent() -> None:
    n = te.var("n")
    a = te.placeholder((n, 12), name="A")
    b = te.compute((n, 12), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, 12), lambda i, j: b[i, j] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    for inner in (0, 1):
        sch = Schedule(func)
        i, _ = sch.get_loops(sch.get_block("C"))
        loops = sch.split(i, [None, 4]) if inner else [i]
        sch.compute_at(sch.get_block("B"), loops[0])
        for size in (3, 8):
            check(sch, func, n=size)


def test_fused_outer_loop() -> None:
    func = chain(16, 12)
    sch = Schedule(func)
    c, d = sch.get_block("C"), sch.get_block("D")
    i, j = sch.get_loops(d)
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 3])
    sch.reorder(i0, j0, i1, j1)
    fused = sch.fuse(i0, j0)
    sch.compute_at(c, fused)
    assert loop_extents(sch, "C") == [16, 4, 3]
    assert is_const(predicate_of(sch, "C"), 1)
    check(sch, func)


def test_what_compute_at_refuses() -> None:
    func = chain()
    sch = Schedule(func)
    b, c, d = (sch.get_block(name) for name in "BCD")
    refuses(sch, lambda: sch.compute_at(d, sch.get_loops(c)[0]), "output block")
    refuses(sch, lambda: sch.compute_at(b, sch.get_loops(d)[0]), "not under loop", "'C'")
    refuses(sch, lambda: sch.compute_at(b, sch.get_loops(b)[0]), "already")


def test_consumer_moves_under_the_tile_loop_of_its_producer() -> None:
    func = matmul_relu()
    sch = Schedule(func)
    c, d = sch.get_block("C"), sch.get_block("D")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 2])
    sch.reorder(i0, j0, k, i1, j1)
    sch.reverse_compute_at(d, j0)
    assert loop_extents(sch, "D") == [3, 4, 4, 2]
    assert is_const(predicate_of(sch, "D"), 1)
    check(sch, func)


def test_consumer_may_not_see_unfinished_reductions() -> None:
    func = matmul_relu()
    sch = Schedule(func)
    c, d = sch.get_block("C"), sch.get_block("D")
    k = sch.get_loops(c)[2]
    refuses(sch, lambda: sch.reverse_compute_at(d, k), "reduction", "not complete")


def test_consumer_follows_odd_tiles() -> None:
    func = matmul_relu(10, 7, 5)
    sch = Schedule(func)
    c, d = sch.get_block("C"), sch.get_block("D")
    i, _j, _k = sch.get_loops(c)
    i0, _i1 = sch.split(i, [None, 4])
    sch.reverse_compute_at(d, i0)
    check(sch, func)


def test_pooling_needs_whole_rows() -> None:
    a = te.placeholder((16, 16), name="A")
    b = te.compute((16, 16), lambda i, j: a[i, j] * 2.0, name="B")
    r = te.reduce_axis((0, 3), "r")
    c = te.compute((14, 16), lambda i, j: te.sum(b[i + r, j], axis=r), name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    i, j = sch.get_loops(sch.get_block("B"))
    refuses(sch, lambda: sch.reverse_compute_at(sch.get_block("C"), i), "can't be told")
    sch.reorder(j, i)
    sch.reverse_compute_at(sch.get_block("C"), j)
    assert loop_extents(sch, "C") == [16, 14, 3]
    check(sch, func)


def test_consumer_of_a_reshape() -> None:
    a = te.placeholder((16, 12), name="A")
    b = te.compute((16, 12), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((192,), lambda i: b[i // 12, i % 12] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    i, _j = sch.get_loops(sch.get_block("B"))
    sch.reverse_compute_at(sch.get_block("C"), i)
    assert loop_extents(sch, "C") == [16, 12]
    check(sch, func)


@pytest.mark.parametrize("cut", [2, 3, 4, 6, 12])
def test_consumer_of_fused_rows_that_tiles_cut_evenly(cut: int) -> None:
    # Under the outer loop, (o * cut + i) // 12 is one row, and (o * cut + i) % 12 a whole range.
    a = te.placeholder((8, 12), name="A")
    b = te.compute((8, 12), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((8, 12), lambda i, j: b[i, j] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    row, column = sch.get_loops(sch.get_block("B"))
    _, row = sch.split(row, [2, None])
    tile, _ = sch.split(sch.fuse(row, column), [None, cut])
    sch.reverse_compute_at(sch.get_block("C"), tile)
    assert loop_extents(sch, "C") == [2, 48 // cut, cut]
    check(sch, func)


@pytest.mark.parametrize("cut", [8, 32])
def test_consumer_of_fused_rows_that_tiles_cut_across(cut: int) -> None:
    a = te.placeholder((8, 12), name="A")
    b = te.compute((8, 12), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((8, 12), lambda i, j: b[i, j] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    tile, _ = sch.split(sch.fuse(*sch.get_loops(sch.get_block("B"))), [None, cut])
    refuses(sch, lambda: sch.reverse_compute_at(sch.get_block("C"), tile), "can't be told")


def test_residual_that_is_ready_before_the_loop() -> None:
    a = te.placeholder((16,), name="A")
    r = te.compute((16,), lambda i: a[i] + 3.0, name="R")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((16,), lambda i: b[i] + r[i], name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    order = [item.name for item in sch.get_child_blocks(sch.get_block("root"))]
    first, second = [name for name in order if name != "C"]
    (i,) = sch.get_loops(sch.get_block(second))
    sch.reverse_compute_at(sch.get_block("C"), i)
    check(sch, func)
    sch = Schedule(func)
    (i,) = sch.get_loops(sch.get_block(first))
    refuses(sch, lambda: sch.reverse_compute_at(sch.get_block("C"), i), "also reads")


def test_cropping_consumer_gets_a_predicate_or_refuses() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((10,), lambda i: b[i + 3] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    (i,) = sch.get_loops(sch.get_block("B"))
    i0, _ = sch.split(i, [None, 4])
    sch.reverse_compute_at(sch.get_block("C"), i0)
    check(sch, func)


def test_reduction_consumer_cut_by_the_tile_of_its_input() -> None:
    a = te.placeholder((8, 16), name="A")
    b = te.compute((8, 16), lambda i, j: a[i, j] * 2.0, name="B")
    r = te.reduce_axis((0, 16), "r")
    c = te.compute((8,), lambda i: te.sum(b[i, r], axis=r), name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    i, j = sch.get_loops(sch.get_block("B"))
    j0, _j1 = sch.split(j, [None, 4])
    sch.reverse_compute_at(sch.get_block("C"), j0)
    assert loop_extents(sch, "C") == [8, 4, 4]
    check(sch, func)
    sch = Schedule(func)
    i, j = sch.get_loops(sch.get_block("B"))
    sch.reverse_compute_at(sch.get_block("C"), i)
    check(sch, func)


@pytest.mark.parametrize("make", [matmul, conv2d])
def test_register_tile_skeleton(make: object) -> None:
    """The CPU structure SSRSRS with a local accumulator, an init and an epilogue copy."""
    func = make()  # type: ignore[operator]
    sch = Schedule(func)
    name = "C" if make is matmul else "conv"
    block = sch.get_block(name)
    copy = sch.cache_write(block, 0, "local")
    loops = sch.get_loops(block)
    kinds = [iv.kind for iv in sch.get(block).iter_vars]
    tiles = []
    for loop, kind in zip(loops, kinds):
        extent = sch.get(loop).extent.value
        inner = 2 if extent % 2 == 0 else 1
        if kind == "spatial":
            outer = extent // inner // (2 if (extent // inner) % 2 == 0 else 1)
            tiles.append(sch.split(loop, [None, extent // inner // outer, inner]))
        else:
            tiles.append(sch.split(loop, [None, inner]))
    spatial = [t for t, kind in zip(tiles, kinds) if kind == "spatial"]
    reduce = [t for t, kind in zip(tiles, kinds) if kind != "spatial"]
    order = (
        [t[0] for t in spatial]
        + [t[1] for t in spatial]
        + [t[0] for t in reduce]
        + [t[1] for t in reduce]
        + [t[2] for t in spatial]
    )
    sch.reorder(*order)
    sch.reverse_compute_at(copy, spatial[-1][1], preserve_unit_loops=True)
    assert loop_extents(sch, copy)[-len(spatial) :] == [2] * len(spatial)
    assert is_const(predicate_of(sch, copy.name), 1)
    if make is conv2d:
        sch.compute_at(sch.get_block("pad"), spatial[-1][0])
        assert is_const(predicate_of(sch, "pad"), 1)
    sch.decompose_reduction(block, reduce[0][0])
    check(sch, func)


def test_constant_bindings_stay_constant() -> None:
    func = chain()
    sch = Schedule(func)
    sch.compute_at(sch.get_block("C"), sch.get_loops(sch.get_block("D"))[0])
    value = sch.state.get_block(sch.get_block("C")).iter_values[0]
    assert value is not const(0)


@pytest.mark.parametrize("name", ["matmul", "conv"])
def test_symbolic_tile_factors_give_clean_products(name: str) -> None:
    """The same structure with variables as tile factors, then run for some of their values."""
    func = matmul(8, 12, 6) if name == "matmul" else conv2d(size=4, channels=2, filters=4)
    sch = Schedule(func, symbolic=True)
    block = sch.get_block("C" if name == "matmul" else "conv")
    copy = sch.cache_write(block, 0, "local")
    kinds = [iter_var.kind for iter_var in sch.get(block).iter_vars]
    sizes: dict[Var, int] = {}
    spatial, reduce = [], []
    for loop, kind in zip(sch.get_loops(block), kinds):
        extent = sch.get(loop).extent.value
        factors = sch.sample_perfect_tile(loop, 3 if kind == "spatial" else 2, 0)
        inner = 2 if extent % 2 == 0 else 1
        values = [1, extent // inner, inner] if kind == "spatial" else [extent // inner, inner]
        sizes.update(zip([factor.value for factor in factors], values))
        (spatial if kind == "spatial" else reduce).append(sch.split(loop, factors))
    sch.reorder(
        *[tile[0] for tile in spatial],
        *[tile[1] for tile in spatial],
        *[tile[0] for tile in reduce],
        *[tile[1] for tile in reduce],
        *[tile[2] for tile in spatial],
    )
    sch.reverse_compute_at(copy, spatial[-1][1])
    sch.decompose_reduction(block, reduce[0][0])
    if name == "conv":
        sch.compute_at(sch.get_block("pad"), spatial[-1][0])
        assert is_const(predicate_of(sch, "pad"), 1)
    inner_loops = sch.get_loops(copy)[-len(spatial) :]
    for loop, tile in zip(inner_loops, spatial):
        assert expr_equal(sch.get(loop).extent, sch.get(tile[2]).extent)
    assert is_const(predicate_of(sch, copy.name), 1)
    made = sch.mod["main"]
    concrete = Schedule(
        made.replace(body=substitute(made.body, {k: const(v) for k, v in sizes.items()}))
    )
    check(concrete, func)


def test_nested_remainders_do_not_restrict_a_block() -> None:
    func = chain(9, 7)
    sch = Schedule(func)
    c, d = sch.get_block("C"), sch.get_block("D")
    fused = sch.fuse(*sch.get_loops(c))
    outer, _ = sch.split(fused, [None, 16])
    sch.split(outer, [None, 3])
    i, _ = sch.get_loops(d)
    sch.compute_at(c, i)
    assert loop_extents(sch, "C") == [9, 7]
    check(sch, func)


def test_a_predicate_that_cuts_into_the_domain_is_respected() -> None:
    a = te.placeholder((6, 8), name="A")
    b = te.compute((6, 8), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((48,), lambda i: b[i // 8, i % 8] - 3.0, name="C")
    d = te.compute((45,), lambda i: c[i + 2] * 2.0, name="D")
    func = te.create_prim_func([a, d])
    sch = Schedule(func)
    sch.reverse_compute_inline(sch.get_block("D"))
    sch.transform_block_layout(sch.get_block("C"), lambda i: (i // 2, i % 2))
    refuses(sch, lambda: sch.reverse_compute_inline(sch.get_block("C")), "beyond its domain")
    check(sch, func)
