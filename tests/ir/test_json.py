"""Nodes as JSON text, and nodes by name."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright import ir, te, tir
from tilewright.ir import IRModule, load_json, make_node, save_json, structural_equal
from tilewright.support.errors import VerifyError
from tilewright.target import Target


def product() -> tir.PrimFunc:
    n = te.var("n")
    x, w = te.placeholder((n, 8), name="x"), te.placeholder((8, 4), name="w")
    k = te.reduce_axis((0, 8), name="k")
    y = te.compute((n, 4), lambda i, j: te.sum(te.exp(x[i, k]) * w[k, j], axis=k), name="y")
    return te.create_prim_func([x, w, y])


def test_modules_are_the_same_again() -> None:
    func = product().with_attr({"target": Target("llvm -mcpu=znver4 -num-cores=2"), "k": [1, (2,)]})
    mod = IRModule({"f": func, "g": tir.Schedule(product()).mod["main"]}, {"a": {"b": 1.5}})
    again = load_json(save_json(mod))
    assert structural_equal(again, mod) and again.attrs == mod.attrs
    assert again["f"].attrs["target"] == func.attrs["target"]
    assert again["f"].attrs["k"] == [1, (2,)]
    assert save_json(again) == save_json(mod)


def test_what_is_shared_stays_shared() -> None:
    x = ir.Var("x")
    a, b = load_json(save_json((x + 1, x)))
    assert a.a is b and b is not x


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 0.1, -0.0])
def test_floats_are_exact(value: float) -> None:
    found = load_json(save_json(ir.FloatImm("float64", value))).value
    assert repr(found) == repr(value)


def test_deep_trees_and_arrays() -> None:
    x = deep = ir.Var("x")
    for _ in range(5000):
        deep = deep + x  # type: ignore[assignment]
    assert len(save_json(deep)) > 5000 and structural_equal(
        load_json(save_json(deep)).b, x, map_free_vars=True
    )
    array = np.arange(6, dtype="int16").reshape(2, 3)
    np.testing.assert_array_equal(load_json(save_json({"a": array}))["a"], array)


WRONG = [
    "",
    "[]",
    '{"root": {"node": 3}, "nodes": []}',
    '{"root": 1, "nodes": [["os.system", {}]]}',
    '{"root": 1, "nodes": [["tilewright.ir.op.Op", {}]]}',
    '{"root": {"what": 1}, "nodes": []}',
    "[" * 100_000,
    '{"nodes": [], "root": ' + '{"list": [' * 600 + "]}" * 600 + "}",
]


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:40])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(VerifyError, match="no text of save_json"):
        load_json(text)


def test_values_that_json_cannot_hold_are_named() -> None:
    with pytest.raises(VerifyError, match="can't write a object"):
        save_json(product().with_attr("a", object()))


def test_nodes_are_made_by_name() -> None:
    x = ir.Var("x")
    made = make_node("tirx.Add", a=x, b=x)
    assert type(made) is ir.Add and made.a is x
    with pytest.raises(VerifyError, match="not none"):
        make_node("tirx.Nothing")


def test_names_are_given_once() -> None:
    # As TVM 0.27 does.
    for prefix, whole in (("", "{}"), ("pre", "pre_{}")):
        supply = ir.UniqueNameSupply(prefix)
        made = [supply.fresh_name("x"), supply.fresh_name("x"), supply.fresh_name("x_1")]
        assert made == [whole.format(name) for name in ("x", "x_1", "x_1_1")]
        assert supply.reserve_name("y") == whole.format("y")
        assert supply.fresh_name("y") == whole.format("y_1")
        assert supply.fresh_name("y", add_underscore=False) == whole.format("y2")
        assert supply.contains_name("y") and supply.contains_name("z") is False
        assert supply.contains_name("y", add_prefix=False) == (not prefix)
        assert supply.fresh_name("a.b", add_prefix=False) == "a_b"


def test_operators_have_attributes() -> None:
    op = ir.Op.get("exp")
    assert "exp" in ir.Op.list_op_names()

    @ir.register_op_attr("exp", "TestDoubled")
    def doubled(value: int) -> int:
        return 2 * value

    try:
        assert op.get_attr("TestDoubled") is doubled and op.has_attr("TestDoubled")
        ir.register_op_attr("exp", "TestDoubled", "less", level=5)
        assert op.get_attr("TestDoubled") is doubled
        ir.register_op_attr("exp", "TestDoubled", "more", level=11)
        assert op.get_attr("TestDoubled") == "more"
    finally:
        op.reset_attr("TestDoubled")
    assert op.get_attr("TestDoubled") is None and not op.has_attr("TestDoubled")


def test_places_in_texts() -> None:
    span = ir.Span(ir.SourceName("a.py"), 1, 2, 3, 4)
    assert (span.source_name.name, span.line, span.end_line) == ("a.py", 1, 2)
    assert (span.column, span.end_column, str(span)) == (3, 4, "a.py:1:4")
    assert ir.SequentialSpan([span, span]).spans == (span, span)  # type: ignore[arg-type]
