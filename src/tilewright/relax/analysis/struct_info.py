"""Comparing, joining and weakening what is known of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir import Expr, GlobalVar, IntImm, Var
from tilewright.relax.expr import Function, FunctionRef, RelaxCall, RelaxExpr
from tilewright.relax.struct_info import (
    BaseCheckResult,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    defined_vars,
    erase_extents,
    extents_of,
    prove_equal,
    struct_info_base_check,
    substitute_info,
    used_vars,
)
from tilewright.support.calling import other_names
from tilewright.support.errors import VerifyError


@other_names(sinfo="ty")
def erase_to_well_defined(
    ty: StructInfo,
    shape_var_map: Mapping[Var, Expr] | None = None,
    var_map: Mapping[Any, object] | None = None,
) -> StructInfo:
    """Replace symbolic extents by their values, and forget shapes that use any other.

    ``shape_var_map`` gives the extents that stay: ``{n: n}`` keeps ``n``. Struct infos here hold
    no graph variables, so ``var_map`` may only be empty.

    Raises ``VerifyError`` for a ``var_map`` with anything in it.
    """
    if var_map:
        raise VerifyError("var_map must be empty: struct infos hold no graph variables")
    return erase_extents(ty, dict(shape_var_map or {}))


@other_names(func_sinfo="func_ty")
def derive_call_ret_struct_info(
    func_ty: FuncStructInfo, call: RelaxCall, ctx: object = None
) -> StructInfo:
    """Return what a call of a function gives, from what it takes and from the call's arguments.

    Symbolic extents of the parameters are those of the arguments; a shape that no argument
    determines is forgotten. ``ctx``, a ``BlockBuilder``, knows the functions of the module that are
    passed as arguments.

    Raises ``VerifyError`` if the arguments don't fit the parameters.
    """
    if func_ty.params is None:
        return erase_to_well_defined(func_ty.ret)
    name, args = call.op_name, call.args
    if name == "invoke_closure":  # what is called stands first
        name, args = repr(args[0]), args[1:]
    if len(func_ty.params) != len(args):
        raise VerifyError(f"{name} takes {len(func_ty.params)} arguments, got {len(args)}")
    known: dict[Var, Expr] = {}
    infos = [_info_of(arg, ctx) for arg in args]
    for param, info in zip(func_ty.params, infos):
        extents, actual = extents_of(param), extents_of(info)
        if len(extents) == len(actual):
            for extent, value in zip(extents, actual):
                if type(extent) is Var:
                    known.setdefault(extent, value)
    for number, (param, info) in enumerate(zip(func_ty.params, infos)):
        wanted = substitute_info(param, dict(known))
        if struct_info_base_check(wanted, info) is BaseCheckResult.FAIL_L0:
            raise VerifyError(f"argument {number} of {name} must be {wanted!r}, got {info!r}")
    return erase_to_well_defined(func_ty.ret, known)


def _info_of(arg: RelaxExpr, ctx: Any) -> StructInfo:
    if ctx is not None and isinstance(arg, FunctionRef) and isinstance(arg.callee, GlobalVar):
        found = ctx.get().functions.get(arg.name)
        if isinstance(found, Function):
            return found.struct_info
    return arg.struct_info


@other_names(sinfo="ty")
def tir_vars_in_struct_info(ty: StructInfo) -> list[Var]:
    """Symbolic extents that occur in a struct info, once each, in order."""
    return used_vars(ty)


@other_names(sinfo="ty")
def definable_tir_vars_in_struct_info(ty: StructInfo) -> list[Var]:
    """Symbolic extents that a parameter of this struct info says what they are, in order."""
    return defined_vars([ty])


@other_names(sinfo="ty")
def collect_non_negative_expressions(ty: StructInfo) -> list[Expr]:
    """Extents of tensors and shapes in a struct info that are no numbers: none is below 0."""
    if isinstance(ty, TupleStructInfo):
        found = [e for field in ty.fields for e in collect_non_negative_expressions(field)]
    elif isinstance(ty, (TensorStructInfo, ShapeStructInfo)):
        found = [extent for extent in ty.values if not isinstance(extent, IntImm)]
    else:
        found = []
    kept: list[Expr] = []
    for extent in found:
        if not any(prove_equal(extent, other) for other in kept):
            kept.append(extent)
    return kept


def get_static_type(ty: StructInfo) -> StructInfo:
    """Forget sizes: dtypes, numbers of dimensions and fields of tuples are left."""
    if isinstance(ty, TensorStructInfo):
        return TensorStructInfo(None, ty.dtype, ndim=ty.ndim)
    if isinstance(ty, ShapeStructInfo):
        return ShapeStructInfo(None, ty.ndim)
    if isinstance(ty, PrimStructInfo):
        return PrimStructInfo(ty.dtype)
    if isinstance(ty, TupleStructInfo):
        return TupleStructInfo(tuple(map(get_static_type, ty.fields)))
    if isinstance(ty, FuncStructInfo):
        params = None if ty.params is None else tuple(map(get_static_type, ty.params))
        return FuncStructInfo(params, get_static_type(ty.ret), ty.purity)
    return ty
