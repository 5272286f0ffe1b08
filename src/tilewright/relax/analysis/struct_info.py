"""Comparing, joining and weakening what is known of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from tilewright.ir import Expr, GlobalVar, IntImm, Var
from tilewright.relax.expr import Function, FunctionRef, RelaxCall, RelaxExpr
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    defined_vars,
    erase_extents,
    extents_of,
    prove_different,
    prove_equal,
    substitute_info,
    used_vars,
)
from tilewright.support.errors import VerifyError


class BaseCheckResult(IntEnum):
    """Whether a value of one struct info may stand where another is asked for, the worst first."""

    FAIL_L0 = 0
    """Never: they have no value in common."""
    FAIL_L1 = 1
    """Perhaps: a check of kind, dtype or number of dimensions decides when it runs."""
    FAIL_L2 = 2
    """Perhaps: a check of extents decides when it runs."""
    PASS = 3
    """Always."""


def struct_info_base_check(base: StructInfo, derived: StructInfo) -> BaseCheckResult:
    """Check whether each value of ``derived`` is one of ``base``."""
    if isinstance(base, ObjectStructInfo):
        return BaseCheckResult.PASS
    if isinstance(derived, ObjectStructInfo):
        return BaseCheckResult.FAIL_L1
    if type(base) is not type(derived):
        return BaseCheckResult.FAIL_L0
    found: BaseCheckResult = _CHECKS[type(base)](base, derived)
    return found


def _check_prim(base: PrimStructInfo, derived: PrimStructInfo) -> BaseCheckResult:
    if base.dtype != derived.dtype:
        return BaseCheckResult.FAIL_L0
    if base.value is None:
        return BaseCheckResult.PASS
    if derived.value is None:
        return BaseCheckResult.FAIL_L2
    return _check_extents((base.value,), (derived.value,))


def _check_shape(base: TensorStructInfo, derived: TensorStructInfo) -> BaseCheckResult:
    """Compare ranks, then extents, of two shapes or tensors."""
    if base.ndim == -1:
        return BaseCheckResult.PASS
    if derived.ndim == -1:
        return BaseCheckResult.FAIL_L1
    if base.ndim != derived.ndim:
        return BaseCheckResult.FAIL_L0
    if len(base.values) != base.ndim:
        return BaseCheckResult.PASS
    if len(derived.values) != derived.ndim:
        return BaseCheckResult.FAIL_L2
    return _check_extents(base.values, derived.values)


def _check_tensor(base: TensorStructInfo, derived: TensorStructInfo) -> BaseCheckResult:
    return _check_shape(base, derived) if base.dtype == derived.dtype else BaseCheckResult.FAIL_L0


def _check_tuple(base: TupleStructInfo, derived: TupleStructInfo) -> BaseCheckResult:
    return _check_all(base.fields_, derived.fields_)


def _check_function(base: FuncStructInfo, derived: FuncStructInfo) -> BaseCheckResult:
    if base.purity and not derived.purity:
        return BaseCheckResult.FAIL_L0
    found = struct_info_base_check(base.ret, derived.ret)
    if base.params is None:
        return found
    if derived.params is None:
        return min(found, BaseCheckResult.FAIL_L1)
    # What is asked to take much must not take less: parameters are compared the other way round.
    return min(found, _check_all(derived.params, base.params))


def _check_all(bases: Sequence[StructInfo], derived: Sequence[StructInfo]) -> BaseCheckResult:
    if len(bases) != len(derived):
        return BaseCheckResult.FAIL_L0
    return min(map(struct_info_base_check, bases, derived), default=BaseCheckResult.PASS)


def _check_extents(base: Sequence[Expr], derived: Sequence[Expr]) -> BaseCheckResult:
    if any(map(prove_different, base, derived)):
        return BaseCheckResult.FAIL_L0
    return BaseCheckResult.PASS if all(map(prove_equal, base, derived)) else BaseCheckResult.FAIL_L2


_CHECKS: dict[type[StructInfo], Any] = {
    PrimStructInfo: _check_prim,
    ShapeStructInfo: _check_shape,
    TensorStructInfo: _check_tensor,
    TupleStructInfo: _check_tuple,
    FuncStructInfo: _check_function,
}


def erase_to_well_defined(
    sinfo: StructInfo,
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
    return erase_extents(sinfo, dict(shape_var_map or {}))


def derive_call_ret_struct_info(
    func_sinfo: FuncStructInfo, call: RelaxCall, ctx: Any = None
) -> StructInfo:
    """Return what a call of a function gives, from what it takes and from the call's arguments.

    Symbolic extents of the parameters are those of the arguments; a shape that no argument
    determines is forgotten. ``ctx``, a ``BlockBuilder``, knows the functions of the module that are
    passed as arguments.

    Raises ``VerifyError`` if the arguments don't fit the parameters.
    """
    if func_sinfo.params is None:
        return erase_to_well_defined(func_sinfo.ret)
    if len(func_sinfo.params) != len(call.args):
        raise VerifyError(
            f"{call.op_name} takes {len(func_sinfo.params)} arguments, got {len(call.args)}"
        )
    known: dict[Var, Expr] = {}
    infos = [_info_of(arg, ctx) for arg in call.args]
    for param, info in zip(func_sinfo.params, infos):
        extents, actual = extents_of(param), extents_of(info)
        if len(extents) == len(actual):
            for extent, value in zip(extents, actual):
                if type(extent) is Var:
                    known.setdefault(extent, value)
    for number, (param, info) in enumerate(zip(func_sinfo.params, infos)):
        wanted = substitute_info(param, dict(known))
        if struct_info_base_check(wanted, info) is BaseCheckResult.FAIL_L0:
            raise VerifyError(
                f"argument {number} of {call.op_name} must be {wanted!r}, got {info!r}"
            )
    return erase_to_well_defined(func_sinfo.ret, known)


def _info_of(arg: RelaxExpr, ctx: Any) -> StructInfo:
    if ctx is not None and isinstance(arg, FunctionRef) and isinstance(arg.callee, GlobalVar):
        found = ctx.get().functions.get(arg.name)
        if isinstance(found, Function):
            return found.struct_info
    return arg.struct_info


def tir_vars_in_struct_info(sinfo: StructInfo) -> list[Var]:
    """Symbolic extents that occur in a struct info, once each, in order."""
    return used_vars(sinfo)


def definable_tir_vars_in_struct_info(sinfo: StructInfo) -> list[Var]:
    """Symbolic extents that a parameter of this struct info says what they are, in order."""
    return defined_vars([sinfo])


def collect_non_negative_expressions(sinfo: StructInfo) -> list[Expr]:
    """Extents of tensors and shapes in a struct info that are no numbers: none is below 0."""
    if isinstance(sinfo, TupleStructInfo):
        found = [e for field in sinfo.fields_ for e in collect_non_negative_expressions(field)]
    elif isinstance(sinfo, (TensorStructInfo, ShapeStructInfo)):
        found = [extent for extent in sinfo.values if not isinstance(extent, IntImm)]
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
        return TensorStructInfo(None, ty.dtype, ty.ndim)
    if isinstance(ty, ShapeStructInfo):
        return ShapeStructInfo(None, ty.ndim)
    if isinstance(ty, PrimStructInfo):
        return PrimStructInfo(ty.dtype)
    if isinstance(ty, TupleStructInfo):
        return TupleStructInfo(tuple(map(get_static_type, ty.fields_)))
    if isinstance(ty, FuncStructInfo):
        params = None if ty.params is None else tuple(map(get_static_type, ty.params))
        return FuncStructInfo(params, get_static_type(ty.ret), ty.purity)
    return ty
