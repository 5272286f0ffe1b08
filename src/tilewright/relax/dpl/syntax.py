"""What users write for patterns: ``is_op("relax.add")(wildcard(), is_const())``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import ExprLike
from tilewright.relax.dpl.matching import COMMUTATIVE
from tilewright.relax.dpl.pattern import (
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataflowVarPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    GlobalVarPattern,
    NotPattern,
    PrimArrPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
    VarPattern,
    WildcardPattern,
)
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.registry import get_op


def is_var(name: str = "") -> VarPattern:
    """Match a variable, of this name if one is given."""
    return VarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """Match a function of the module."""
    return GlobalVarPattern(name)


def is_dfv(name: str = "") -> DataflowVarPattern:
    """Match a variable of a dataflow block."""
    return DataflowVarPattern(name)


def is_const() -> ConstantPattern:
    """Match a constant tensor."""
    return ConstantPattern()


def is_expr(expr: RelaxExpr) -> ExprPattern:
    """Match one expression."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """Match an operator, by name with or without ``relax.``; call it to match calls.

    Raises ``TilewrightError`` if there is no such operator.
    """
    return ExprPattern(get_op(op_name))


def reject(pattern: DFPattern) -> NotPattern:
    """Match anything that a pattern doesn't match."""
    return NotPattern(pattern)


def is_tuple(fields: Sequence[DFPattern], unordered: bool = False) -> TuplePattern:
    """Match a tuple written out."""
    return UnorderedTuplePattern(fields) if unordered else TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """Match an item of a tuple."""
    return TupleGetItemPattern(tuple_value, index)


def wildcard() -> WildcardPattern:
    """Match anything."""
    return WildcardPattern()


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """Match tensors of a dtype."""
    return DataTypePattern(pattern or wildcard(), dtype)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Match calls that have attributes."""
    return AttrPattern(pattern or wildcard(), attrs)


def is_shape(shape: Sequence[ExprLike]) -> PrimArrPattern:
    """Match a shape of these extents."""
    return PrimArrPattern(shape)


def is_call_tir(
    func_name: str,
    args: Sequence[DFPattern] | TuplePattern | None = None,
    tir_vars: DFPattern | None = None,
) -> CallPattern:
    """Match a call of a tensor function of the module, of any operands if none are given."""
    operands = wildcard() if args is None else args
    if not isinstance(operands, DFPattern):
        operands = TuplePattern(operands)
    extra = () if tir_vars is None else (tir_vars,)
    return is_op("relax.call_tir")(
        GlobalVarPattern(func_name), operands, *extra, varg_default_wildcard=tir_vars is None
    )


def is_call_dps_packed(
    func_name: str, args: Sequence[DFPattern] | TuplePattern | None = None
) -> CallPattern:
    """Match a call of a global function that writes its outputs, of any operands by default."""
    operands = wildcard() if args is None else args
    if not isinstance(operands, DFPattern):
        operands = TuplePattern(operands)
    return is_op("relax.call_dps_packed")(ExternFuncPattern(func_name), operands)


def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> DFPattern:
    """Match a call of a global function for what it returns, of any operands without ``args``."""
    operands = () if args is None else tuple(args)
    made: list[DFPattern] = [
        is_op(f"relax.{name}")(
            ExternFuncPattern(func_name), *operands, varg_default_wildcard=args is None
        )
        for name in ("call_pure_packed", "call_packed")
    ]
    return made[0] | made[1]


def make_fused_bias_activation_pattern(
    op_name: str,
    with_bias: bool = False,
    activation: str | None = None,
    allow_reshape: bool = False,
) -> DFPattern:
    """Match an operator of two operands, then perhaps a sum with a bias and an activation.

    With ``allow_reshape`` a reshape of the bias belongs to what is matched.
    """
    made: DFPattern = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        bias: DFPattern = wildcard()
        if allow_reshape:
            bias = is_op("reshape")(bias, varg_default_wildcard=True) | bias
        made = is_op("relax.add")(made, bias)
    return made if activation is None else is_op(activation)(made)


def make_residual_block_pattern(
    node_output: DFPattern | tuple[DFPattern, ...],
    residual_op: str = "relax.add",
    activation: str | None = None,
) -> DFPattern:
    """Match a sum (or ``residual_op``) of a block's output and anything, then an activation."""
    output = node_output[0] if isinstance(node_output, tuple) else node_output
    other = wildcard()
    made: DFPattern = is_op(residual_op)(output, other)
    if residual_op.removeprefix("relax.") not in COMMUTATIVE:
        made = made | is_op(residual_op)(other, output)
    return made if activation is None else is_op(activation)(made)
