"""Shapes with more elements than 64-bit indices can count are refused instead of wrapping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.relax.helpers import graph_of, random
from tilewright import relax, te, topi
from tilewright.relax import op
from tilewright.relax.frontend.onnx import from_onnx
from tilewright.support.errors import TilewrightError
from tilewright.tir import decl_buffer

WRAPS = 2**62 + 1
"""Four times this is 4 in 64 bits."""

CASES: dict[str, Callable[[Any], Any]] = {
    "tile": lambda x: op.tile(x, (WRAPS, 1)),
    "repeat": lambda x: op.repeat(x, WRAPS, axis=0),
    "repeat of all": lambda x: op.repeat(x, WRAPS),
    "broadcast": lambda x: op.broadcast_to(op.reshape(x, (1, 1, 4, 3)), (2**31, 2**31, 4, 3)),
    "reshape": lambda x: op.reshape(x, (WRAPS, 4, 3)),
    "concat": lambda x: op.concat([op.broadcast_to(op.sum(x), (2**62, 1))] * 4),
    "pad": lambda x: op.nn.pad(x, (2**62, 2**62, 0, 0)),
    "diagonal": lambda x: op.diag_embed(x, 2**63 - 1),
    "arange": lambda x: op.arange(0, 10**30, 1),
    "range of floats": lambda x: op.arange(0, 1e30, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_graphs(name: str) -> None:
    with pytest.raises(TilewrightError, match=r"count|does not fit int64"):
        graph_of(CASES[name], random(4, 3))


@pytest.mark.parametrize(
    "make",
    [
        lambda a: topi.tile(a, (WRAPS, 1)),
        lambda a: topi.repeat(a, WRAPS, 0),
        lambda a: topi.concatenate([topi.broadcast_to(a, (2**59, 4, 3))] * 16),
        lambda a: topi.nn.pad(a, (2**62, 0), (2**62, 0)),
        lambda a: topi.diag_embed(a, 2**63 - 1),
    ],
)
def test_definitions(make: Callable[[te.Tensor], te.Tensor]) -> None:
    with pytest.raises(TilewrightError, match="does not fit int64"):
        make(te.placeholder((4, 3), "float32", "a"))


@pytest.mark.parametrize("limit", [1e30, float("inf"), float("nan")])
def test_ranges_of_onnx(limit: float) -> None:
    helper = pytest.importorskip("onnx").helper
    names = ("start", "limit", "delta")
    given = [
        helper.make_tensor(name, 1, [], [value]) for name, value in zip(names, (0.0, limit, 1.0))
    ]
    result = helper.make_tensor_value_info("y", 1, [None])
    graph = helper.make_graph([helper.make_node("Range", names, ["y"])], "g", [], [result], given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(TilewrightError, match=r"does not fit int64|is no finite number"):
        from_onnx(model)


def test_constants() -> None:
    with pytest.raises(TilewrightError, match="does not fit int64"):
        relax.const(10**30, "int64")


def test_declarations() -> None:
    for shape in ((2**32, 2**31), (2**21,) * 3):
        with pytest.raises(TilewrightError, match="elements, more than 64-bit indices can count"):
            te.placeholder(shape, "int8", "a")
        with pytest.raises(TilewrightError, match="elements, more than 64-bit indices can count"):
            decl_buffer(shape, "int8")
    assert decl_buffer((2**31, 2**31, 0), "int8").shape[2].value == 0
    assert decl_buffer((2**31, 2**31), "int8").shape[0].value == 2**31
