"""Layouts suggested by the order of accesses."""

from __future__ import annotations

import pytest
from schedule_cases import check, matmul

from tilewright.ir import Var, as_expr, substitute
from tilewright.tir import SERIAL, Evaluate, For, decl_buffer
from tilewright.tir.schedule import Schedule, suggest_index_map


def loops(**extents: object) -> tuple[list[Var], list[For]]:
    made = [(Var(name), extent) for name, extent in extents.items()]
    return [var for var, _ in made], [
        For(var, as_expr(0), as_expr(extent), SERIAL, Evaluate(as_expr(0))) for var, extent in made
    ]


def test_order_of_loops_is_the_order_of_dimensions() -> None:
    buffer = decl_buffer((16, 12))
    (j, i), nest = loops(j=12, i=16)
    made = suggest_index_map(buffer, [i, j], nest)
    assert made is not None and made.to_text() == "lambda i0, i1: (i1, i0)"
    (i, j), nest = loops(i=16, j=12)
    made = suggest_index_map(buffer, [i, j], nest)
    assert made is not None and made.is_identity()


def test_tiles_become_dimensions() -> None:
    buffer = decl_buffer((16, 12))
    (k0, j, k1), nest = loops(k0=4, j=12, k1=4)
    made = suggest_index_map(buffer, [k0 * 4 + k1, j], nest)
    assert made is not None and made.to_text() == "lambda i0, i1: (i0 // 4, i1, i0 % 4)"
    (j0, k0, _, k1, j1), nest = loops(j0=3, k0=4, other=9, k1=4, j1=4)
    made = suggest_index_map(buffer, [k0 * 4 + k1, j0 * 4 + j1], nest)
    assert made is not None
    assert made.to_text() == "lambda i0, i1: (i1 // 4, i0 // 4, i0 % 4, i1 % 4)"


def test_symbolic_extents() -> None:
    n = Var("n")
    buffer = decl_buffer((n, 12))
    (j, i), nest = loops(j=12, i=n)
    made = suggest_index_map(buffer, [i, j], nest)
    assert made is not None and made.to_text() == "lambda i0, i1: (i1, i0)"


@pytest.mark.parametrize(
    "indices",
    [
        lambda i, j: [i, i],
        lambda i, j: [i + j, j],
        lambda i, j: [i, j * 2],
        lambda i, j: [i, j + 1],
        lambda i, j: [i * i, j],
    ],
)
def test_accesses_that_suggest_nothing(indices: object) -> None:
    (i, j), nest = loops(i=6, j=6)
    assert suggest_index_map(decl_buffer((16, 12)), indices(i, j), nest) is None  # type: ignore[operator]


def test_the_suggestion_packs_an_operand() -> None:
    func = matmul(12, 8, 10)
    sch = Schedule(func)
    block = sch.get_block("C")
    copy = sch.cache_read(block, 1, "global")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, [None, 4])
    sch.reorder(j0, i, k, j1)
    realize = sch.state.get_block(block)
    region = realize.block.reads[1]
    values = {axis.var: value for axis, value in zip(realize.block.iter_vars, realize.iter_values)}
    indices = [substitute(item.min, values) for item in region.region]
    made = suggest_index_map(region.buffer, indices, sch.state.loops_above(realize))
    assert made is not None and made.to_text() == "lambda i0, i1: (i1 // 4, i0, i1 % 4)"
    sch.transform_layout(copy, ("write", 0), made)
    check(sch, func)
