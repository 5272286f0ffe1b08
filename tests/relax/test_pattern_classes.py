"""Classes of patterns are made as TVM makes them, and match what their functions match."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import relax
from tilewright.relax import dpl, op
from tilewright.relax.dpl import is_op, is_tuple, wildcard

INFO = relax.TensorStructInfo((2, 3), "float32")
X, Y = relax.Var("x", INFO), relax.Var("y", INFO)
CONST = relax.const(1.0)
SUM = op.add(X, Y)
PAIR = relax.Tuple((X, CONST))

#: Patterns, what they match and what they don't.
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "anything": (dpl.WildcardPattern(), [X, SUM, CONST], []),
    "constants": (dpl.ConstantPattern(), [CONST], [X, SUM]),
    "one expression": (dpl.ExprPattern(X), [X], [Y, SUM]),
    "external functions": (
        dpl.ExternFuncPattern("f"), [relax.ExternFunc("f")], [relax.ExternFunc("g"), X],
    ),
    "both": (dpl.AndPattern(wildcard(), dpl.ConstantPattern()), [CONST], [X]),
    "either": (dpl.OrPattern(dpl.ConstantPattern(), dpl.ExprPattern(X)), [CONST, X], [Y]),
    "not": (dpl.NotPattern(dpl.ConstantPattern()), [X, SUM], [CONST]),
    "a dtype": (dpl.DataTypePattern(wildcard(), "float32"), [X, SUM], [relax.const(1)]),
    "a shape": (dpl.ShapePattern(wildcard(), (2, 3)), [X, SUM], [CONST]),
    "attributes": (
        dpl.AttrPattern(is_op("relax.sum")(wildcard()), {"keepdims": True}),
        [op.sum(X, 0, True)], [op.sum(X, 0)],
    ),
    "a tuple": (dpl.TuplePattern([wildcard(), dpl.ConstantPattern()]), [PAIR], [X]),
    "a tuple in any order": (
        dpl.UnorderedTuplePattern([dpl.ConstantPattern(), dpl.ExprPattern(X)]), [PAIR],
        [relax.Tuple((X, X))],
    ),
    "an element of a tuple": (
        dpl.TupleGetItemPattern(is_tuple([wildcard(), wildcard()]), 1),
        [relax.TupleGetItem(PAIR, 1)], [relax.TupleGetItem(PAIR, 0), X],
    ),
    "extents": (dpl.PrimArrPattern([2, 3]), [relax.ShapeExpr((2, 3))], [relax.ShapeExpr((3,)), X]),
    "a value of dataflow": (
        dpl.DataflowVarPattern("lv"), [relax.DataflowVar("lv", INFO)], [X, relax.Var("lv", INFO)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_matched(name: str) -> None:
    pattern, matched, others = CASES[name]
    assert isinstance(pattern, dpl.DFPattern)
    assert [pattern.match(item) for item in matched] == [True] * len(matched)
    assert [pattern.match(item) for item in others] == [False] * len(others)


def test_parts_of_patterns() -> None:
    left, right = wildcard(), dpl.ConstantPattern()
    for made in (dpl.AndPattern(left, right), dpl.OrPattern(left, right)):
        assert made.left is left and made.right is right


def test_one_value_for_several_uses() -> None:
    with dpl.PatternContext() as context:
        shared, left, right = wildcard(), is_op("relax.exp"), is_op("relax.sqrt")
        first, second = left(wildcard()), right(wildcard())
        shared.fork_to(first, second)
    builder = relax.BlockBuilder()
    with builder.function("main", [X]):
        with builder.dataflow():
            out = builder.emit_output(op.add(builder.emit(op.exp(X)), builder.emit(op.sqrt(X))))
        builder.emit_func_output(out)
    block = builder.get()["main"].body.blocks[0]
    found = dict(context.match_dfb(block).items())
    assert found[shared] is not None and {found[first].name, found[second].name} == {"lv", "lv1"}


class SameDType(dpl.DFConstraint):
    """Demands one dtype of all that its patterns match."""

    def holds(self, operands: Any) -> bool:
        return len({operand.struct_info.dtype for operand in operands}) == 1


def test_demands_of_a_context() -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", [X]):
        with builder.dataflow():
            lv = builder.emit(op.exp(X))
            out = builder.emit_output(op.astype(lv, "float16"))
        builder.emit_func_output(out)
    block = builder.get()["main"].body.blocks[0]
    for kind, found in (("relax.astype", False), ("relax.exp", True)):
        with dpl.PatternContext() as context:
            source = wildcard()
            SameDType(source, is_op(kind)(source))
        assert (context.match_dfb(block) is not None) is found
