"""Calls from the graph to tensor functions, before and after memory planning.

``call_tir(gvar, args, out)`` is pure: it allocates its outputs. ``CallTIRRewrite`` turns it into
allocations and a call in destination-passing style, ``StaticPlanBlockMemory`` turns allocations
into tensors of one workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import GlobalVar, IRModule
from tilewright.relax.expr import ExternFunc, FunctionRef, RelaxCall, RelaxExpr, ShapeExpr, Tuple
from tilewright.relax.registry import BUILDERS, RelaxOp, builder, get_op, operator
from tilewright.relax.struct_info import (
    ObjectStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    same_struct_info,
)
from tilewright.relax.values import as_relax
from tilewright.support.calling import other_names
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc


def _given(call: RelaxCall) -> StructInfo:
    if len(call.sinfo_args) == 1:
        return call.sinfo_args[0]
    return TupleStructInfo(call.sinfo_args)


def raw_op(
    name: str,
    infer: Any,
    *,
    effect: str = "pure",
    decompose: Callable[[RelaxCall], RelaxExpr | None] | None = None,
) -> RelaxOp:
    """An operator whose operands are not described by a signature."""

    def rule() -> StructInfo:
        raise VerifyError(f"{name} infers from its call")

    rule.__doc__ = f"``{name}``; built by its own function."
    operator(name, effect=effect, decompose=decompose)(rule)
    BUILDERS.pop(name)
    op = get_op(name)
    op.infer = infer  # type: ignore[method-assign]
    return op


def _infer_call_tir(call: RelaxCall) -> StructInfo:
    if not call.sinfo_args:
        raise VerifyError("call_tir needs out_sinfo: the struct info of its outputs")
    for info in call.sinfo_args:
        if not isinstance(info, TensorStructInfo) or not info.has_shape:
            raise VerifyError(f"call_tir makes tensors of known shape, got {info!r}")
    return _given(call)


def _infer_call_tir_inplace(call: RelaxCall) -> StructInfo:
    info = _infer_call_tir(call)
    args, places = call.args[1], call.attrs["inplace_indices"]
    assert isinstance(args, Tuple)
    if len(places) != len(call.sinfo_args):
        raise VerifyError(f"{len(call.sinfo_args)} outputs need as many inplace_indices: {places}")
    taken = [place for place in places if place != -1]
    if not taken or len(set(taken)) < len(taken) or not set(taken) <= set(range(len(args.fields))):
        raise VerifyError(f"inplace_indices are different positions of arguments, or -1: {places}")
    for place, output in zip(places, call.sinfo_args):
        if place != -1 and not same_struct_info(args.fields[place].struct_info, output):
            raise VerifyError(
                f"an output in place of argument {place}, {args.fields[place].struct_info!r}, "
                f"can't be {output!r}"
            )
    return info


CALL_TIR_INPLACE = raw_op("call_tir_inplace", _infer_call_tir_inplace)
CALL_TIR = raw_op("call_tir", _infer_call_tir)
CALL_TIR_WITH_GRAD = raw_op(
    "call_tir_with_grad",
    _infer_call_tir,
    decompose=lambda call: RelaxCall(CALL_TIR, call.args, {}, call.sinfo_args),
)
CALL_DPS = raw_op("call_dps", lambda call: ObjectStructInfo(), effect="update")


@builder("call_tir")
@other_names(out_sinfo="out_ty")
def call_tir(
    gvar: GlobalVar | ExternFunc,
    args: object,
    out_ty: StructInfo | Sequence[StructInfo],
    tir_vars: Any = (),
) -> RelaxCall:
    """Call a tensor function, which gets ``args``, then fresh outputs, then ``tir_vars``.

    One output gives a tensor, several (a list in ``out_ty``) a tuple.
    """
    made = as_relax(args) if not isinstance(args, RelaxExpr) else Tuple((args,))
    if isinstance(args, Tuple):
        made = args
    infos = (out_ty,) if isinstance(out_ty, StructInfo) else tuple(out_ty)
    if isinstance(out_ty, TupleStructInfo):
        infos = out_ty.fields
    operands: tuple[RelaxExpr, ...] = (FunctionRef(gvar), made)
    scalars = tir_vars.values if isinstance(tir_vars, ShapeExpr) else tuple(tir_vars)
    if scalars:
        operands += (ShapeExpr(scalars),)
    return RelaxCall(CALL_TIR, operands, {}, infos)


@builder("call_tir_inplace")
@other_names(out_sinfo="out_ty")
def call_tir_inplace(
    gvar: GlobalVar,
    args: object,
    inplace_indices: int | Sequence[int],
    out_ty: StructInfo | Sequence[StructInfo],
    tir_vars: object = (),
) -> RelaxCall:
    """Call a tensor function that writes outputs into its arguments.

    ``inplace_indices`` has for each output the argument whose memory it takes, or -1 for fresh
    memory, which the function gets after the arguments. A parameter, a constant, and what is used
    after the call too, are copied first.

    Raises ``VerifyError`` if an output doesn't fit its argument.
    """
    plain = call_tir(gvar, args, out_ty, tir_vars)
    indices = (inplace_indices,) if isinstance(inplace_indices, int) else tuple(inplace_indices)
    return RelaxCall(CALL_TIR_INPLACE, plain.args, {"inplace_indices": indices}, plain.sinfo_args)


@builder("call_tir_with_grad")
@other_names(out_sinfo="out_ty")
def call_tir_with_grad(
    gvar: GlobalVar,
    args: object,
    out_ty: StructInfo | Sequence[StructInfo],
    te_grad_name: str,
    te_grad_kwargs: Mapping[str, Any] | None = None,
) -> RelaxCall:
    """Call a tensor function whose gradient is registered under a name: ``call_tir`` otherwise.

    The gradient is ``te`` code (``relax.training.utils.register_te_gradient``), which also gets
    ``te_grad_kwargs``.
    """
    plain = call_tir(gvar, args, out_ty)
    attrs = {
        "te_grad_name": te_grad_name,
        "te_grad_kwargs": tuple(dict(te_grad_kwargs or {}).items()),
    }
    return RelaxCall(CALL_TIR_WITH_GRAD, plain.args, attrs, plain.sinfo_args)


@builder("call_dps")
def call_dps(
    function: FunctionRef, args: Tuple, outputs: Tuple, tir_vars: ShapeExpr | None = None
) -> RelaxCall:
    """Call a tensor function that writes into existing ``outputs``."""
    operands: tuple[RelaxExpr, ...] = (function, args, outputs)
    if tir_vars is not None:
        operands += (tir_vars,)
    return RelaxCall(CALL_DPS, operands)


def is_call_tir(expr: object) -> bool:
    """Whether an expression is a ``call_tir``."""
    return isinstance(expr, RelaxCall) and expr.op is CALL_TIR


def inplace_indices(call: RelaxCall) -> tuple[int, ...]:
    """The argument that each output of a ``call_tir`` is written into; -1: fresh memory."""
    found: tuple[int, ...] = call.attrs.get("inplace_indices", (-1,) * len(call.sinfo_args))
    return found


def call_tir_operands(
    call: RelaxCall,
) -> tuple[FunctionRef, tuple[RelaxExpr, ...], ShapeExpr | None]:
    """Return function, arguments and symbolic arguments of a ``call_tir``."""
    function, args = call.args[0], call.args[1]
    assert isinstance(function, FunctionRef) and isinstance(args, Tuple)
    extra = call.args[2] if len(call.args) > 2 else None
    assert extra is None or isinstance(extra, ShapeExpr)
    return function, args.fields, extra


def tensor_function(mod: IRModule, function: FunctionRef) -> PrimFunc | None:
    """The tensor function of a module that a ``call_tir`` calls; none for one of a library."""
    found = mod.functions.get(function.name) if isinstance(function.callee, GlobalVar) else None
    return found if isinstance(found, PrimFunc) else None


def output_infos(call: RelaxCall) -> tuple[TensorStructInfo, ...]:
    """Struct info of each output of a ``call_tir``."""
    return call.sinfo_args  # type: ignore[return-value]
