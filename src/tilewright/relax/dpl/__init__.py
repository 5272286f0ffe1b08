"""A language of patterns over graphs: what to look for, and how to rewrite it.

    x, w, b = wildcard(), wildcard(), is_const()
    pattern = is_op("relax.add")(is_op("relax.matmul")(x, w), b)
    made = rewrite_call(pattern, lambda value, found: ..., mod["main"])

A ``PatternContext`` matches several patterns together; ``relax.transform.FuseOpsByPattern`` makes
functions of what patterns match.
"""

from __future__ import annotations

from tilewright.relax.dpl.context import PatternContext
from tilewright.relax.dpl.pattern import (
    AndPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataflowVarPattern,
    DataTypePattern,
    DFConstraint,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    FunctionPattern,
    GlobalVarPattern,
    NotPattern,
    OrPattern,
    PatternSeq,
    PrimArrPattern,
    SameShapeConstraint,
    ShapePattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
    VarPattern,
    WildcardPattern,
)
from tilewright.relax.dpl.rewriting import (
    ExprPatternRewriter,
    OrRewriter,
    PatternMatchingRewriter,
    rewrite_bindings,
    rewrite_call,
)
from tilewright.relax.dpl.syntax import (
    has_attr,
    has_dtype,
    is_call_dps_packed,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    make_fused_bias_activation_pattern,
    make_residual_block_pattern,
    reject,
    wildcard,
)

# Other names of TVM's: a struct info is its type.
TypePattern = StructInfoPattern

__all__ = [
    "DFConstraint", "FunctionPattern", "SameShapeConstraint", "reject",
    "ExprPatternRewriter", "OrRewriter", "TypePattern", "is_call_dps_packed", "is_call_packed",
    "AndPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern", "DataTypePattern",
    "DataflowVarPattern", "ExprPattern", "ExternFuncPattern", "GlobalVarPattern", "NotPattern",
    "OrPattern", "PatternContext", "PatternMatchingRewriter", "PatternSeq", "PrimArrPattern",
    "ShapePattern", "StructInfoPattern", "TupleGetItemPattern", "TuplePattern",
    "UnorderedTuplePattern", "VarPattern", "WildcardPattern", "has_attr", "has_dtype",
    "is_call_tir", "is_const", "is_dfv", "is_expr", "is_gv", "is_op", "is_shape", "is_tuple",
    "is_tuple_get_item", "is_var", "make_fused_bias_activation_pattern",
    "make_residual_block_pattern", "rewrite_bindings", "rewrite_call", "wildcard",
]  # fmt: skip
