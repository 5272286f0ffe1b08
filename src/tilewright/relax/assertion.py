"""``assert_op``: a condition on sizes as a binding of a graph function."""

from __future__ import annotations

from typing import Any

from tilewright.relax.conditions import Condition
from tilewright.relax.expr import PrimValue, RelaxCall, ShapeExpr
from tilewright.relax.registry import Prim, Shape, operator
from tilewright.relax.struct_info import StructInfo, TupleStructInfo
from tilewright.support.errors import VerifyError


@operator("assert_op", effect="update")
def assert_op(condition: Prim, format_args: Shape | None = None, format: str = "") -> StructInfo:
    """Stop the graph unless the condition holds.

    The message is ``format``, in which each ``{}`` is replaced by one of ``format_args``.

    Raises ``VerifyError`` if the number of ``{}`` and of values differ.
    """
    if format.count("{}") != len(format_args or ()):
        raise VerifyError(f"{format!r} has no place for {len(format_args or ())} values")
    return TupleStructInfo(())


def assertion(condition: Condition) -> RelaxCall:
    """Make the call that checks a condition."""
    values = ShapeExpr(condition.values)
    return assert_op(PrimValue(condition.expr), values, condition.message)


def assertion_operands(call: RelaxCall) -> tuple[Any, tuple[Any, ...], str]:
    """Condition, values and message of a call of ``assert_op``."""
    condition, *rest = call.args
    assert isinstance(condition, PrimValue)
    values = rest[0].values if rest and isinstance(rest[0], ShapeExpr) else ()
    return condition.value, values, str(call.attrs["format"])
