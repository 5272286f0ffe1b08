"""What rules are told of a contraction: axes by role, operands by how they are read, blocks."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import te, topi
from tilewright.ir import IRModule
from tilewright.scheduling import (
    Contraction,
    NotApplicable,
    contraction_of,
    depends,
    describe,
    dimension_of,
    dimensions_of,
    reduction_of,
    stride,
)
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import LAYOUT_FREE
from tilewright.tir.schedule import Schedule


def start(func: PrimFunc) -> Schedule:
    return Schedule(IRModule({"main": func}))


def described(func: PrimFunc) -> Contraction:
    found = describe(start(func))
    assert isinstance(found, Contraction)
    return found


def product(*after: Any, shape: tuple[int, int, int] = (6, 8, 10)) -> PrimFunc:
    m, n, k = shape
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    out = topi.matmul(a, b)
    for follow in after:
        out = follow(out)
    return te.create_prim_func([a, b, out])


def convolution(padding: int = 0) -> PrimFunc:
    x, w = te.placeholder((1, 4, 9, 9), name="x"), te.placeholder((8, 4, 3, 3), name="w")
    return te.create_prim_func([x, w, topi.nn.conv2d(x, w, 1, padding)])


def test_axes_of_a_product_by_what_depends_on_them() -> None:
    found = described(product())
    m, n = found.spatial
    (k,) = found.steps
    a, b = found.loads
    assert [axis.extent for axis in (m, n, k)] == [6, 8, 10]
    assert found.along(m) == [a] and found.along(n) == [b] and found.along(k) == [a, b]
    assert found.reusing(a) == [n] and found.reusing(b) == [m] and found.reusing(a, b) == []
    assert found.other_than(a) == [b]
    assert depends(a, k) and not depends(a, n)


def test_strides_and_dimensions() -> None:
    found = described(product())
    m, n = found.spatial
    (k,) = found.steps
    a, b = found.loads
    assert [stride(a, axis) for axis in (m, n, k)] == [10, 0, 1]
    assert [stride(b, axis) for axis in (m, n, k)] == [0, 1, 8]
    assert dimension_of(b, n) == 1 and dimension_of(b, m) is None
    assert found.is_contiguous(n) and not found.is_contiguous(m)


def test_axes_of_one_element_are_no_places() -> None:
    found = described(product(shape=(1, 8, 10)))
    assert [axis.extent for axis in found.spatial] == [1, 8]
    assert [axis.extent for axis in found.places] == [8]


def test_taps_go_along_with_places_of_an_image() -> None:
    found = described(convolution())
    _, filters, row, column = found.spatial
    channels, *window = found.steps
    image, weight = found.loads
    assert found.taps(image, row) == window[:1]
    assert found.taps(image, row, column) == window
    assert found.taps(image, filters) == [] and found.taps(weight, row) == []
    assert dimensions_of(image, row) == [2] and dimension_of(image, row) is None
    assert dimension_of(weight, channels) == 1


@pytest.mark.parametrize(
    ("after", "consumers", "one"),
    [
        ((), 0, True),
        ((topi.nn.relu,), 1, True),
        ((lambda x: topi.add(x, topi.transpose(x)),), 2, False),
        ((topi.nn.relu, lambda x: topi.cumsum(x, 1)), 1, False),
    ],
    ids=["alone", "an epilogue", "read by two", "more after it"],
)
def test_what_follows(after: tuple[Any, ...], consumers: int, one: bool) -> None:
    sch = start(product(*after, shape=(8, 8, 4)))
    found = contraction_of(sch, sch.get_block(_first_reduction(sch)))
    assert isinstance(found, Contraction)
    assert len(found.consumers) == consumers
    assert found.has_one_epilogue is one


def _first_reduction(sch: Schedule) -> str:
    blocks = sch.get_child_blocks(sch.get_block("root"))
    name: str = next(rv.name for rv in blocks if sch.get(rv).init is not None)
    return name


def test_operands_that_are_known_before_the_function_runs() -> None:
    func = product().with_attr(LAYOUT_FREE, [1])
    found = described(func)
    assert [load.buffer in found.constants for load in found.loads] == [False, True]


def test_what_pads_is_around_it() -> None:
    found = described(convolution(padding=1))
    (padding,) = found.others
    assert padding.name != found.main.name and found.consumers == ()


def test_several_reductions_are_none() -> None:
    x = te.placeholder((4, 8), name="x")
    refused = describe(start(te.create_prim_func([x, topi.nn.softmax(x)])))
    assert isinstance(refused, NotApplicable)
    assert "reductions, one is expected" in refused.reason


def test_a_reduction_of_several_values_is_not_described() -> None:
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] * y[1]),
        lambda *types: (te.const(0, types[0]), te.const(1, types[1])),
        name="both",
    )
    x, k = te.placeholder((4, 8), name="x"), te.reduce_axis((0, 8), "k")
    outs = te.compute((4,), lambda i: both((x[i, k.var], x[i, k.var]), axis=k), name="S")
    refused = describe(start(te.create_prim_func([x, *outs])))
    assert isinstance(refused, NotApplicable) and "one buffer" in refused.reason


def test_loops_that_are_not_axes() -> None:
    sch = start(product())
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    sch.split(sch.get_loops(block)[0], [2, 3])
    refused = contraction_of(sch, block)
    assert isinstance(refused, NotApplicable) and refused.reason == "the loops are not the axes"


def test_looking_at_what_is_reduced_leaves_only_look_ups_in_the_trace() -> None:
    sch = start(product())
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    before = len(sch.trace.insts)
    reduction_of(sch, block)
    assert [inst.name for inst in sch.trace.insts[before:]] == ["get_loops"]
