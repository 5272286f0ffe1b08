"""Calls from the graph to global functions (``tilewright.register_global_func``), and ``print``.

``call_dps_packed(name, args, out)`` is pure: the function writes into fresh outputs, which it gets
after its arguments. ``call_pure_packed`` and ``call_packed`` take what the function returns; the
second has effects, so it needs ``R.function(pure=False)`` and is never moved or removed.
``CallTIRRewrite`` makes all of them ``call_dps`` of an ``ExternFunc`` with the attribute
``packed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import as_expr, dtypes
from tilewright.relax.assertion import assert_op as assert_sizes
from tilewright.relax.call_tir import raw_op
from tilewright.relax.expr import (
    ExternFunc,
    FunctionRef,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    StringValue,
    Tuple,
)
from tilewright.relax.registry import builder
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    same_struct_info,
)
from tilewright.relax.values import as_relax
from tilewright.support.calling import other_names
from tilewright.support.errors import VerifyError

PACKED = "packed"
"""Attribute of an ``ExternFunc`` that is a global function, not a symbol of a library."""

_NOTHING = TupleStructInfo(())


def _infer_result(call: RelaxCall) -> StructInfo:
    if len(call.sinfo_args) != 1:
        raise VerifyError(f"{call.op_name} needs sinfo_args: the struct info of its result")
    return call.sinfo_args[0]


def _infer_outputs(call: RelaxCall) -> StructInfo:
    for info in call.sinfo_args:
        if not isinstance(info, TensorStructInfo) or not info.has_shape:
            raise VerifyError(f"call_dps_packed makes tensors of known shape, got {info!r}")
    if not call.sinfo_args:
        raise VerifyError("call_dps_packed needs out_sinfo: the struct info of its outputs")
    return call.sinfo_args[0] if len(call.sinfo_args) == 1 else TupleStructInfo(call.sinfo_args)


CALL_PACKED = raw_op("call_packed", _infer_result, effect="opaque")
CALL_PURE_PACKED = raw_op("call_pure_packed", _infer_result)
CALL_DPS_PACKED = raw_op("call_dps_packed", _infer_outputs)
CALL_INPLACE_PACKED = raw_op("call_inplace_packed", _infer_result)
CALL_WITH_OBJECTS = raw_op("call_with_objects", _infer_result, effect="update")
PRINT = raw_op("print", lambda call: _NOTHING, effect="opaque")
NULL_VALUE = raw_op("null_value", lambda call: ObjectStructInfo())
ASSERT_TENSOR = raw_op("assert_tensor", lambda call: _NOTHING, effect="update")


@builder("call_packed")
@other_names(sinfo_args="ty_args")
def call_packed(
    func: str | ExternFunc, *args: object, ty_args: StructInfo | Sequence[StructInfo] = ()
) -> RelaxCall:
    """Call a global function for what it does or returns.

    ``ty_args`` describes the result: a tensor of known shape, a tuple of these, or nothing,
    ``R.Tuple()``.
    """
    return _returning(CALL_PACKED, func, args, ty_args)


@builder("call_pure_packed")
@other_names(sinfo_args="ty_args")
def call_pure_packed(
    func: str | ExternFunc, *args: object, ty_args: StructInfo | Sequence[StructInfo] = ()
) -> RelaxCall:
    """Call a global function for what it returns; it must have no effects."""
    return _returning(CALL_PURE_PACKED, func, args, ty_args)


@builder("call_py_func")
@other_names(out_sinfo="out_ty")
def call_py_func(
    func_name: str, args: object, out_ty: StructInfo | Sequence[StructInfo]
) -> RelaxCall:
    """Call a function of Python by its name for what it returns; it must have no effects.

    The name is that of a global function (``register_global_func``), or of one of the
    ``BasePyModule`` that calls the graph.
    """
    given = args.fields if isinstance(args, Tuple) else args
    items = given if isinstance(given, (list, tuple)) else (given,)
    if not isinstance(out_ty, StructInfo):
        out_ty = out_ty[0] if len(out_ty) == 1 else TupleStructInfo(tuple(out_ty))
    return call_pure_packed(func_name, *items, ty_args=out_ty)


@builder("call_inplace_packed")
@other_names(sinfo_args="ty_args")
def call_inplace_packed(
    func: str | ExternFunc,
    *args: object,
    inplace_indices: int | Sequence[int],
    ty_args: StructInfo | Sequence[StructInfo],
) -> RelaxCall:
    """Call a global function that changes some of its arguments, and nothing else.

    ``inplace_indices`` has for each result the argument that it is, changed, or -1 for a value that
    the function makes. Tensors are copied before the call; objects are not: what was passed isn't
    to be used later.

    Raises ``VerifyError`` if a result doesn't fit its argument.
    """
    indices = (inplace_indices,) if isinstance(inplace_indices, int) else tuple(inplace_indices)
    given = [ty_args] if isinstance(ty_args, StructInfo) else list(ty_args)
    if len(given) > 1:
        given = [TupleStructInfo(tuple(given))]
    info = given[0]
    infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
    if len(infos) != len(indices):
        raise VerifyError(f"{len(infos)} results need as many inplace_indices: {indices}")
    made = _arguments(args)
    for place, result in zip(indices, infos):
        if place not in range(-1, len(made)):
            raise VerifyError(f"inplace_indices are positions of arguments, or -1: {indices}")
        if place >= 0 and not same_struct_info(made[place].struct_info, result):
            raise VerifyError(
                f"a result in place of argument {place}, {made[place].struct_info!r}, can't be "
                f"{result!r}"
            )
    attrs = {"inplace_indices": indices}
    return RelaxCall(CALL_INPLACE_PACKED, (_reference(func), *made), attrs, (info,))


@builder("call_with_objects")
def call_with_objects(name: str, form: str, *args: object, sinfo_args: StructInfo) -> RelaxCall:
    """What ``LowerObjects`` makes of calls with objects: see ``relax.execution.objects``."""
    operands = (StringValue(name), StringValue(form), *_arguments(args))
    return RelaxCall(CALL_WITH_OBJECTS, operands, {}, (sinfo_args,))


@builder("null_value")
def null_value() -> RelaxCall:
    """No object."""
    return RelaxCall(NULL_VALUE, ())


def _returning(op: Any, func: str | ExternFunc, args: Sequence[object], info: Any) -> RelaxCall:
    if isinstance(info, (list, tuple)):
        if len(info) > 1:
            raise VerifyError(f"{op.key} has one result; several are a TupleStructInfo")
        info = info[0] if info else _NOTHING
    return RelaxCall(op, (_reference(func), *_arguments(args)), {}, (info,))


@builder("call_dps_packed")
@other_names(out_sinfo="out_ty")
def call_dps_packed(
    func: str | ExternFunc, args: object, out_ty: StructInfo | Sequence[StructInfo]
) -> RelaxCall:
    """Call a global function that takes ``args``, then fresh tensors that it writes.

    One output gives a tensor, several (a list in ``out_ty``) a tuple. The function must write
    all of its outputs and have no other effects.
    """
    given = args.fields if isinstance(args, Tuple) else args
    items = given if isinstance(given, (list, tuple)) else (given,)
    infos = (out_ty,) if isinstance(out_ty, StructInfo) else tuple(out_ty)
    if isinstance(out_ty, TupleStructInfo):
        infos = out_ty.fields
    operands = (_reference(func), Tuple(_arguments(items)))
    return RelaxCall(CALL_DPS_PACKED, operands, {}, infos)


@builder("print")
def print(*values: object, format: str = "") -> RelaxCall:
    """Print values when the graph runs; each ``{}`` in ``format`` is replaced by one of them."""
    made = (StringValue(_form(format, len(values))), *_printed(values))
    return RelaxCall(PRINT, made)


@builder("assert_op")
def assert_op(condition: object, format_args: object = None, format: str = "") -> RelaxCall:
    """Stop the graph unless the condition holds.

    It is an expression of sizes, or a tensor of one truth value. The message is ``format``, in
    which each ``{}`` is replaced by one of ``format_args``: sizes, or tensors if the condition is
    one.

    Raises ``VerifyError`` if the number of ``{}`` and of values differ, or the tensor is not one
    truth value.
    """
    condition = getattr(condition, "_expr", condition)
    info = getattr(condition, "struct_info", None)
    if not isinstance(info, TensorStructInfo) or not isinstance(condition, RelaxExpr):
        return assert_sizes(condition, format_args, format)
    if not dtypes.is_bool(info.dtype) or info.ndim != 0:
        raise VerifyError(f"assert_op takes one truth value, got {info!r}")
    shown = format_args.fields if isinstance(format_args, Tuple) else format_args or ()
    shown = shown if isinstance(shown, (list, tuple)) else (shown,)
    message = StringValue(_form(format, len(shown)))
    return RelaxCall(ASSERT_TENSOR, (condition, message, *_printed(shown)))


def _form(format: str, count: int) -> str:
    if format and format.count("{}") != count:
        raise VerifyError(f"{format!r} has no place for {count} values")
    return format


def _reference(func: object) -> FunctionRef:
    if isinstance(func, FunctionRef):
        func = func.callee
    if isinstance(func, str):
        return FunctionRef(ExternFunc(func))
    if isinstance(func, ExternFunc):
        return FunctionRef(func)
    raise VerifyError(f"a global function is given by name, got {type(func).__name__} {func!r}")


def _arguments(args: Sequence[object]) -> tuple[RelaxExpr, ...]:
    made = tuple(
        PrimValue(as_expr(arg)) if isinstance(arg, (bool, int, float)) else as_relax(arg)
        for arg in args
    )
    for arg in made:
        if isinstance(arg, FunctionRef) or isinstance(arg.struct_info, _NOT_PASSED):
            raise VerifyError(
                "global functions take tensors, scalars, shapes, texts and objects; pass the items "
                f"of a tuple one by one: {arg!r} is {arg.struct_info!r}"
            )
    return made


def _printed(args: Sequence[object]) -> tuple[RelaxExpr, ...]:
    made = _arguments(args)
    for arg in made:
        kinds = (TensorStructInfo, PrimStructInfo)
        if not isinstance(arg.struct_info, kinds) and not isinstance(arg, StringValue):
            raise VerifyError(
                f"tensors, scalars and texts are printed, {arg!r} is {arg.struct_info!r}: pass the "
                "extents of a shape one by one"
            )
    return made


_NOT_PASSED = (TupleStructInfo, FuncStructInfo)

CALLS = (
    CALL_PACKED, CALL_PURE_PACKED, CALL_DPS_PACKED, CALL_WITH_OBJECTS, PRINT, ASSERT_TENSOR,
)  # fmt: skip


def lowered_packed(call: RelaxCall) -> tuple[str, tuple[RelaxExpr, ...], tuple[StructInfo, ...]]:
    """The global function that a call comes down to: its name, arguments, and outputs to write."""
    if call.op is PRINT:
        return "relax.print", call.args, ()
    if call.op is ASSERT_TENSOR:
        return "relax.assert_tensor", call.args, ()
    if call.op is CALL_WITH_OBJECTS:
        name, operands = "relax.with_objects", call.args
    else:
        reference, *others = call.args
        assert isinstance(reference, FunctionRef)
        name, operands = reference.name, tuple(others)
    if call.op is CALL_DPS_PACKED:
        arguments = call.args[1]
        assert isinstance(arguments, Tuple)
        return name, arguments.fields, call.sinfo_args
    info = call.struct_info
    infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
    if not infos or isinstance(info, ObjectStructInfo):
        return name, operands, ()
    counted = (StringValue(name), PrimValue(as_expr(len(infos))), *operands)
    return "relax.call_into", counted, infos
