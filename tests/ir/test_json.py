"""Nodes as JSON text, and nodes by name."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
import operator
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from tilewright import ir, te, tir
from tilewright.ir import IRModule, load_json, make_node, save_json, structural_equal
from tilewright.script import from_source
from tilewright.support.errors import TilewrightError, VerifyError
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


def test_a_class_may_have_stood_in_another_file_of_its_package() -> None:
    text = save_json(ir.Range(2, 7))
    moved = text.replace("tilewright.ir.range.Range", "tilewright.ir.expr.Range")
    assert moved != text and structural_equal(load_json(moved), ir.Range(2, 7))
    with pytest.raises(VerifyError, match="no class of nodes"):
        load_json(text.replace("tilewright.ir.range.Range", "tilewright.tir.range.Range"))


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


VAR = ["tilewright.ir.expr.Var", {"name": "x", "dtype": "int64"}]
X = {"node": 0}


def text_of(*nodes: object) -> str:
    return json.dumps({"root": {"node": len(nodes)}, "nodes": [VAR, *nodes]})


def expr(kind: str, /, **fields: object) -> list[object]:
    return [f"tilewright.ir.expr.{kind}", fields]


# The node after a variable, and what the error says.
BROKEN: dict[str, tuple[list[Any], str]] = {
    "text as a child": (expr("Add", a="x", b=X), "Add.a is Expr, got 'x'"),
    "no child": (expr("Add", a=None, b=X), "Add.a is Expr"),
    "a statement as a child": (["tilewright.tir.stmt.Evaluate", {"value": 3}], "Evaluate.value is"),
    "a missing field": (expr("Add", a=X), "missing 1 required"),
    "another field": (expr("Add", a=X, b=X, c=X), "'c'"),
    "itself": (expr("Add", a=X, b={"node": 1}), "no node before this one"),
    "one from the end": (expr("Add", a=X, b={"node": -1}), "no node before this one"),
    "a truth value as number": (expr("Add", a=X, b={"node": False}), "no node before this one"),
    "a number as text": (expr("IntImm", value="1", dtype="int64"), "IntImm.value is int"),
    "a fraction": (expr("IntImm", value=1.5, dtype="int64"), "IntImm.value is int"),
    "too large": (expr("IntImm", value=2**63, dtype="int64"), "does not fit int64"),
    "no dtype": (expr("IntImm", value=1, dtype="int65"), "dtype"),
    "a dtype of floats": (expr("IntImm", value=1, dtype="float32"), "IntImm"),
    "a name that is a number": (expr("Var", name=1, dtype="int64"), "Var.name is str"),
    "a dtype that is none": (expr("Var", name="x", dtype=["int64"]), "written as an object"),
    "lanes": (expr("Broadcast", value=X, lanes=2**40), "lanes"),
    "operands": (expr("Call", op={"op": "exp"}, args=X, dtype="float32"), "Call.args is tuple"),
    "a list of operands": (
        expr("Call", op={"op": "exp"}, args={"tuple": ["x"]}, dtype="float32"), "Call.args is tuple"
    ),
    "no operator": (expr("Call", op="exp", args={"tuple": [X]}, dtype="float32"), "Call.op is Op"),
    "a vector cast": (expr("Cast", value=X, dtype="int32x4"), "lanes"),
    "a base": (expr("BinaryExpr", a=X, b=X), "no class of nodes"),
    "all expressions": (expr("Expr"), "no class of nodes"),
    "a program": (["tilewright.__main__.Var", {}], "no class of nodes"),
    "another package": (["os.path.Var", {}], "no class of nodes"),
    "an axis": (
        ["tilewright.tir.axes.IterVar", {"var": X, "dom": X, "kind": "spatial", "thread_tag": ""}],
        "IterVar.dom is",
    ),
    "a kind of axis": (
        ["tilewright.tir.axes.IterVar", {"var": X, "dom": None, "kind": "all", "thread_tag": ""}],
        "kind of axis",
    ),
    "functions": (
        ["tilewright.ir.module.IRModule", {"functions": {"dict": [["f", X]]}, "attrs": None}],
        "IRModule.functions is",
    ),
    "a target": (expr("Var", name={"target": {"kind": "llvm"}}, dtype="int64"), "written as text"),
    "an unknown target": (expr("Var", name={"target": "z80"}, dtype="int64"), "z80"),
    "an array of objects": (
        expr("Var", name={"array": ["object", [1], "AAAAAAAAAAA="]}, dtype="int64"), "no dtype of"
    ),
    "a huge array": (expr("Var", name={"array": ["int8", [10**15], "AA=="]}, dtype="i"), "reshape"),
    "a negative array": (expr("Var", name={"array": ["int8", [-1], "AA=="]}), "the shape"),
    "a word as float": (expr("FloatImm", value={"float": "1e9"}, dtype="float32"), "is written as"),
    "two kinds": (expr("Var", name={"list": [], "tuple": []}, dtype="int64"), "too many values"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_nodes_are_made_of_what_their_fields_hold(name: str) -> None:
    node, message = BROKEN[name]
    with pytest.raises(VerifyError, match="no text of save_json") as caught:
        load_json(text_of(node))
    assert message in str(caught.value)


def test_nodes_that_stand_for_too_many_are_refused() -> None:
    doubled = [expr("Add", a={"node": n}, b={"node": n}) for n in range(64)]
    with pytest.raises(VerifyError, match="the Add stands for"):
        load_json(text_of(*doubled))
    assert load_json(text_of(*doubled[:10])).a.a.dtype == "int64"


def test_no_text_loads_what_declares_no_nodes() -> None:
    for path in ("tilewright.torch.dynamo.Var", "tilewright.testing.workers.Var"):
        module = path.rpartition(".")[0]
        known = module in sys.modules
        with pytest.raises(VerifyError, match="no class of nodes"):
            load_json(text_of([path, {}]))
        assert (module in sys.modules) == known


GRAPH = """
@I.ir_module
class Module:
    I.module_attrs({"a": 3})

    @T.prim_func
    def f(a: T.handle, n: T.int32) -> T.int32:
        A = T.match_buffer(a, (n, 16), "float32", strides=[32, 1])
        for i in T.parallel(n):
            for j in T.vectorized(4):
                A[i, T.ramp(j * 4, 1, 4)] = T.broadcast(T.float32(1), 4)
        B = T.allocate((16,), "int8", "local")
        x: T.int32 = T.if_then_else(n > 3, n, T.int32(2))
        while x > 4:
            T.evaluate(T.call_extern("int32", "g", B.data))
        assert x > 1, ("m {}", x)
        if x > 2:
            return x
        return T.Select(x > 1, 1, T.shift_left(x, 2))

    @R.function
    def main(x: R.Tensor(("m", 4), "float32"), y: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            z = R.add(R.matmul(x, y), x)
            t = R.split(z, 2, axis=1)
            u = R.concat([t[0], t[1]], axis=1)
            R.output(u)
        return u
"""
JUNK: list[Any] = [
    None, True, -1, 2**31, 10**40, 1.5, "", "x", "float32", "int8x4", {}, [], {"node": 0},
    {"node": 9}, {"tuple": []}, {"tuple": [{"node": 0}]}, {"list": [1]}, {"float": "nan"},
    {"op": "exp"}, {"target": "llvm"}, {"dict": []}, {"dict": [["a", 1]]}, "\ud800", "void",
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values inside a value."""
    if not isinstance(value, (dict, list)):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from places(inner, (*path, key))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    return functools.reduce(operator.getitem, path, data)


def changed(rng: Random, data: Any) -> str:
    """The text of data with a value replaced by junk, or by one of its kind from elsewhere."""
    data = copy.deepcopy(data)
    paths = list(places(data))
    path = rng.choice(paths)
    value = rng.choice(JUNK)
    if rng.random() < 0.8:
        old = at(data, path)
        like = [other for value in paths if type(other := at(data, value)) is type(old)]
        value = copy.deepcopy(rng.choice(like))
    at(data, path[:-1])[path[-1]] = value
    return json.dumps(data)


def test_changed_texts_give_sound_nodes_or_an_error() -> None:
    rng, made = Random(0), 0
    sources = [json.loads(save_json(each)) for each in (product(), from_source(GRAPH))]
    for _ in range(220):
        try:
            found = load_json(changed(rng, rng.choice(sources)))
        except VerifyError:
            continue
        if not isinstance(found, (IRModule, tir.PrimFunc)):
            continue
        made += 1
        assert structural_equal(found, found) and ir.structural_hash(found)
        for check in (tir.analysis.verify, lambda mod: mod.script(), save_json):
            with contextlib.suppress(TilewrightError, RecursionError):
                check(found)
    assert made > 10


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
