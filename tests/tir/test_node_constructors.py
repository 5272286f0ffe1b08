"""Nodes are made with TVM's arguments, in TVM's order and by TVM's names."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright import ir, te, tir
from tilewright.script import parse
from tilewright.script import tir as T
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run

X, F, BIT = tir.Var("x", "int32"), tir.Var("f", "float32"), tir.Var("c", "bool")
BINARY = "Add Sub Mul FloorDiv FloorMod Min Max EQ NE LT LE GT GE".split()
BITS = "BitwiseAnd BitwiseOr BitwiseXor LShift RShift Mod".split()


@pytest.mark.parametrize("name", [*BINARY, *BITS, "Div"])
def test_operators_are_classes_that_take_numbers(name):
    kind = getattr(T, name)
    for a, b in ((X, 2), (X, np.int32(2)), (2, X)):
        made = kind(a, b)
        assert isinstance(made, kind) and made.a.dtype == made.b.dtype == "int32"
    assert isinstance(kind(a=X, b=X), kind)
    assert not isinstance(X, kind) and not isinstance(T.And(BIT, BIT), kind)


def test_a_division_is_one_of_its_operands():
    assert T.Div(X, 2).op.name == "truncdiv"
    assert type(T.Div(F, 2)) is ir.Div and isinstance(T.Div(F, 2), T.Div)


def test_only_operators_that_are_nodes_elsewhere_have_operands_by_letter():
    with pytest.raises(AttributeError, match="a call of exp has `args`"):
        _ = tir.exp(F).a
    with pytest.raises(AttributeError, match="not `b`"):
        _ = (~X).b


MADE = {
    "Not": (lambda: T.Not(BIT), "a dtype"),
    "And": (lambda: T.And(BIT, True), "a b"),
    "Or": (lambda: T.Or(BIT, False), "a b"),
    "Select": (lambda: T.Select(BIT, F, 1), "condition true_value false_value"),
    "Cast": (lambda: T.Cast(T.float16, 1), "value dtype"),
    "Ramp": (lambda: T.Ramp(X, 1, 4), "base stride lanes"),
    "Broadcast": (lambda: T.Broadcast(1.0, lanes=4), "value lanes"),
    "Shuffle": (lambda: T.Shuffle([X, 3], [1, 0]), "vectors indices"),
    "IntImm": (lambda: T.IntImm(dtype="int8", value=3), "value dtype"),
    "FloatImm": (lambda: T.FloatImm("float16", 3), "value dtype"),
    "Var": (lambda: T.Var("x", T.int8), "name dtype"),
    "IterVar": (lambda: T.IterVar((2, 8), "k", 2), "dom var iter_type thread_tag"),
    "CommReducer": (lambda: T.CommReducer([X], [F], [F], identity_element=[F]), "identity_element"),
}


@pytest.mark.parametrize("name", MADE)
def test_nodes_of_the_dialect_are_the_classes(name):
    make, members = MADE[name]
    made = make()
    assert isinstance(made, getattr(T, name)) and getattr(T, name) is type(made)
    assert all(hasattr(made, member) for member in members.split())
    copy = made.replace()
    assert type(copy) is type(made) and ir.structural_equal(copy, made, map_free_vars=True)
    assert ir.structural_equal(ir.load_json(ir.save_json(made)), made, map_free_vars=True)


def ends(made: ir.Range) -> tuple[object, object, str]:
    return ir.as_int(made.min), ir.as_int(made.extent), made.extent.dtype


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: ir.Range(2, 10), (2, 8, "int64")),
        (lambda: ir.Range(10), (0, 10, "int64")),
        (lambda: ir.Range(begin=0, end=tir.const(8, "int32")), (0, 8, "int32")),
        (lambda: ir.Range(3, 3), (3, 0, "int64")),
        (lambda: ir.Range.from_min_extent(2, 10), (2, 10, "int64")),
        (lambda: ir.Range.from_min_extent(min_value=2, extent=10), (2, 10, "int64")),
        (lambda: T.Range(begin=2, end=10), (2, 8, "int64")),
        (lambda: ir.Range(2, 10).replace(min=tir.const(1)), (1, 8, "int64")),
    ],
)
def test_ranges(made, expected):
    assert ends(made()) == expected


def test_ranges_with_variables():
    made = ir.Range(X, X + 4)
    assert made.min is X and made.extent.dtype == "int32"
    assert ir.Range(X).extent is X and ir.Range(X).min.dtype == "int32"
    assert ir.Range(0, X).extent is X


def test_statements_and_functions():
    body = tir.Evaluate(1)
    assert tir.SeqStmt(seq=[body, body]).seq == (body, body)
    attr = tir.AttrStmt(node=X, attr_key="k", value=tir.const(1), body=body)
    assert (attr.attr_key, attr.key) == ("k", "k") and attr.replace(key="m").attr_key == "m"
    assert tir.For(X, 0, 4, 0, body, thread_binding=None, annotations={"a": 1}).annotations
    assert ir.GlobalVar(name_hint="f").name == "f"
    assert tir.Var(name_hint="n", ty="int8").dtype == "int8"
    axis = te.reduce_axis((0, 4), "k")
    combiner = tir.make_reducer(lambda a, b: a + b, lambda t: tir.const(0, t), "float32")
    made = tir.Reduce(combiner, src=[F], rdom=[axis], condition=tir.const(True), value_index=0)
    assert made.source == (F,) and made.axis == (axis,)


def test_maps_of_indices_take_a_dtype_and_an_inverse():
    made = tir.IndexMap.from_func(lambda i: (i // 4, i % 4), None, lambda a, b: a * 4 + b)
    assert made.inverse_index_map is made.inverse_map is not None
    narrow = tir.IndexMap.from_func(mapping_function=lambda *i: i, ndim=2, index_dtype="int32")
    assert {var.dtype for var in narrow.initial_indices} == {"int32"}
    assert narrow.is_equivalent_to(other_map=T.index_map(lambda i, j: [i, j], index_dtype="int32"))


def test_axes_have_the_methods_of_variables():
    axis = tir.IterVar((0, 8), X, tir.IterVar.DataPar)
    assert axis.astype("float32").dtype == "float32" and isinstance(axis.equal(3), tir.EQ)


TEXT = """
@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float8_e4m3")):
    A[0] = T.BitwiseAnd(A[1], 3)
    A[1] = T.Mod(A[1], T.IntImm("int32", 3))
    A[2] = T.Cast(T.int32, T.Select(A[0] < 1, 2, A[3]))
    B[0] = T.float8_e4m3(T.FloatImm("float32", 0.5))
    B[2:4] = T.vectorlow("float8_e4m3x2", T.Broadcast(T.float8_e4m3(1), 4))
    A[4:8] = T.vectorcombine("int32x4", T.vectorhigh("int32x2", A[0:4]), T.Ramp(A[0], 1, 2))
"""


def test_text_calls_the_classes():
    func = parse(TEXT)
    a, b = np.array([9, 7, 0, 5, 0, 0, 0, 0], "int32"), np.zeros(8, ml_dtypes.float8_e4m3)
    run(func, a, b)
    assert a.tolist() == [3, 1, 5, 5, 5, 5, 3, 4] and b[:4].tolist() == [0.5, 0, 1, 1]
    assert ir.structural_equal(parse(func.script()), func)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tir.IntImm(3, "int32"), "a dtype is text"),
        (lambda: tir.Cast(X, "int8"), "a dtype is text"),
        (lambda: tir.Add(X, object()), "expected an expression or a number"),
        (lambda: T.Select(X, 1, 2), "a condition must be bool"),
        (lambda: tir.IterVar((0, 8), "k", "sideways"), "unknown kind of axis"),
        (lambda: tir.IterVar(8, "k", 0), "a variable and a range"),
        (lambda: tir.Var(), "the name of a variable is text"),
    ],
)
def test_refused(make, message):
    with pytest.raises(VerifyError, match=message):
        make()
