"""Runs graph functions on NumPy arrays without compiling: the oracle of graph passes.

Tensor functions run on TensorIR's reference interpreter, operators are legalised on demand. Works
at every stage: on operators, on ``call_tir``, on fusion groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arith import simplify
from tilewright.ir import Expr, GlobalVar, IRModule, Var, as_int, const, const_value, substitute
from tilewright.relax.assertion import assertion_operands
from tilewright.relax.branches import If, all_bindings
from tilewright.relax.call_packed import CALLS, lowered_packed
from tilewright.relax.call_tir import (
    CALL_TIR,
    CALL_TIR_INPLACE,
    call_tir_operands,
    inplace_indices,
    output_infos,
)
from tilewright.relax.closures import is_invocation
from tilewright.relax.execution.objects import known_objects, lower_objects, named, numbered
from tilewright.relax.expr import (
    Constant,
    Function,
    LocalFunction,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    ShapeExpr,
    StringValue,
    Tuple,
    TupleGetItem,
)
from tilewright.relax.registry import is_call_to
from tilewright.relax.struct_info import PrimStructInfo, ShapeStructInfo, TensorStructInfo
from tilewright.relax.transform import InlineFunctions, LegalizeOps
from tilewright.relax.values import numpy_dtype
from tilewright.runtime import from_numpy, get_global_func
from tilewright.support.errors import RunError
from tilewright.tir.interpreter import run as run_tensor_function


def run(mod: IRModule | Function, *args: object, name: str = "main") -> Any:
    """Run a graph function; returns an array or a tuple of arrays."""
    if isinstance(mod, Function):
        mod = IRModule({name: mod})
    if any(map(_has_closures, mod.functions.values())):
        mod = InlineFunctions()(mod)
    function = mod[name]
    mod = LegalizeOps()(lower_objects(mod))
    if not isinstance(function, Function):
        raise RunError("the interpreter of graphs starts at a graph function")
    with known_objects() as known:
        infos = [param.struct_info for param in function.params]
        given = [numbered(info, arg, known) for info, arg in zip(infos, args)]
        rest = args[len(infos) :]
        result = _call(mod, mod[name], [_array(arg) for arg in (*given, *rest)])
        return named(function.body.struct_info, result, known)


def _has_closures(function: object) -> bool:
    return isinstance(function, Function) and any(
        isinstance(b.value, LocalFunction) or is_invocation(b.value) for b in all_bindings(function)
    )


def _array(value: object) -> Any:
    """An argument as arrays, in tuples."""
    return tuple(map(_array, value)) if isinstance(value, (tuple, list)) else np.asarray(value)


def _call(mod: IRModule, function: Function, args: list[object]) -> Any:
    if len(args) != len(function.params):
        raise RunError(f"expected {len(function.params)} arguments, got {len(args)}")
    values: dict[RelaxVar, Any] = {}
    extents: dict[Var, Any] = {}
    # Scalars and shapes first, as tensors' extents may be computed from them.
    sizes = (PrimStructInfo, ShapeStructInfo)
    scalars = [isinstance(param.struct_info, sizes) for param in function.params]
    for wanted in (True, False):
        for is_scalar, param, arg in zip(scalars, function.params, args):
            values[param] = arg
            if is_scalar is wanted:
                _bind_extents(param.struct_info, arg, extents)
    for param, arg in zip(function.params, args):
        _check_scalar(param, arg, extents)
    return _sequence(mod, function.body, values, extents)


def _sequence(mod: IRModule, body: SeqExpr, values: dict[RelaxVar, Any], extents: Any) -> Any:
    for block in body.blocks:
        for binding in block.bindings:
            value = _evaluate(mod, binding.value, values, extents)
            values[binding.var] = value
            _bind_extents(binding.var.struct_info, value, extents)
    return _evaluate(mod, body.body, values, extents)


def _bind_extents(info: Any, value: Any, extents: dict[Var, Any]) -> None:
    if isinstance(info, PrimStructInfo) and isinstance(info.value, Var):
        extents.setdefault(info.value, const(int(value)))
    if isinstance(info, ShapeStructInfo) and info.ndim >= 0:
        if info.ndim == 1 and np.ndim(value) == 0:
            value = (value,)
        if len(value) != info.ndim:
            raise RunError(f"expected {info!r}, got a shape of {len(value)} extents")
        for extent, size in zip(info.values, value):
            if type(extent) is Var and extent not in extents:
                extents[extent] = const(int(size))
            elif as_int(simplify(substitute(extent, extents))) not in (None, int(size)):
                raise RunError(f"expected {info!r}, got the shape {list(map(int, value))}")
    if not isinstance(info, TensorStructInfo) or not info.has_shape:
        return
    if len(info.shape) != np.ndim(value):
        raise RunError(f"expected {info!r}, got an array of {np.ndim(value)} dimensions")
    for extent, size in zip(info.shape, np.shape(value)):
        if type(extent) is Var and extent not in extents:
            extents[extent] = const(size)
        elif as_int(simplify(substitute(extent, extents))) not in (None, size):
            raise RunError(f"expected {info!r}, got an array of shape {list(np.shape(value))}")


def _check_scalar(param: RelaxVar, value: Any, extents: dict[Var, object]) -> None:
    info = param.struct_info
    if isinstance(info, PrimStructInfo) and info.value is not None:
        expected = simplify(substitute(info.value, extents))
        if as_int(expected) != int(value):
            raise RunError(
                f"{param.name} must be {info.value!r}, which is {expected!r}; got {value}"
            )


def _numbers(shape: Any, extents: dict[Var, Any]) -> list[int]:
    made = [as_int(simplify(substitute(extent, extents))) for extent in shape]
    if any(extent is None for extent in made):
        raise RunError(f"the shape {list(shape)} is not known when it is needed")
    return made  # type: ignore[return-value]


def _assert(condition: Expr, shown: object, message: str, extents: dict[Var, object]) -> None:
    held = as_int(simplify(substitute(condition, extents)))
    if not held:
        raise RunError(message.format(*_numbers(shown, extents)))


def _evaluate(mod: IRModule, value: RelaxExpr, values: Any, extents: dict[Var, Any]) -> Any:
    if isinstance(value, RelaxVar):
        return values[value]
    if isinstance(value, If):
        taken = value.branches[0 if _evaluate(mod, value.cond, values, extents) else 1]
        return _sequence(mod, taken, dict(values), dict(extents))
    if isinstance(value, Constant):
        return value.data
    if isinstance(value, ShapeExpr):
        return tuple(_numbers(value.values, extents))
    if isinstance(value, Tuple):
        return tuple(_evaluate(mod, item, values, extents) for item in value.fields)
    if isinstance(value, TupleGetItem):
        return _evaluate(mod, value.tuple_value, values, extents)[value.index]
    if is_call_to(value, "tensor_to_shape"):
        return tuple(map(int, _evaluate(mod, value.args[0], values, extents)))  # type: ignore[attr-defined]
    if is_call_to(value, "assert_op"):
        _assert(*assertion_operands(value), extents)  # type: ignore[arg-type]
        return ()
    if isinstance(value, StringValue):
        return value.value
    if isinstance(value, PrimValue):
        return _number(value.value, extents)
    if isinstance(value, RelaxCall) and value.op in CALLS:
        return _call_packed(mod, value, values, extents)
    if isinstance(value, RelaxCall) and value.op in (CALL_TIR, CALL_TIR_INPLACE):
        return _call_tensor_function(mod, value, values, extents)
    if isinstance(value, RelaxCall) and isinstance(value.op, GlobalVar):
        operands = [_evaluate(mod, arg, values, extents) for arg in value.args]
        return _call(mod, mod[value.op], operands)
    raise RunError(f"the interpreter of graphs can't evaluate {value!r}")


def _call_tensor_function(
    mod: IRModule, value: RelaxCall, values: Any, extents: dict[Var, Any]
) -> Any:
    ref, args, extra = call_tir_operands(value)
    if not isinstance(ref.callee, GlobalVar):
        raise RunError(f"{ref.name} is a library function, the interpreter can't run it")
    inputs = [np.array(_evaluate(mod, arg, values, extents), order="C") for arg in args]
    outputs, fresh = [], []
    for info, place in zip(output_infos(value), inplace_indices(value)):
        if place == -1:
            fresh.append(np.zeros(_numbers(info.shape, extents), numpy_dtype(info.dtype)))
        outputs.append(fresh[-1] if place == -1 else inputs[place])
    scalars = _numbers(extra.values, extents) if extra is not None else []
    run_tensor_function(mod[ref.callee], *inputs, *fresh, *scalars)
    return outputs[0] if isinstance(value.struct_info, TensorStructInfo) else tuple(outputs)


def _number(value: Expr, extents: dict[Var, object]) -> object:
    made = const_value(simplify(substitute(value, extents)))
    if made is None:
        raise RunError(f"the scalar {value!r} is not known when it is needed")
    return made


def _call_packed(
    mod: IRModule, call: RelaxCall, values: object, extents: dict[Var, object]
) -> object:
    name, args, infos = lowered_packed(call)
    inputs = [_evaluate(mod, arg, values, extents) for arg in args]
    outputs = [
        np.zeros(_numbers(info.shape, extents), numpy_dtype(info.dtype))
        for info in infos
        if isinstance(info, TensorStructInfo)
    ]
    given = [
        x.item()
        if isinstance(arg.struct_info, PrimStructInfo) and isinstance(x, np.ndarray)
        else from_numpy(np.array(x))
        if isinstance(x, np.ndarray)
        else x
        for arg, x in zip(args, inputs)
    ]
    made = [from_numpy(output) for output in outputs]
    get_global_func(name)(*given, *made)
    outputs = [item.numpy() for item in made]
    single = isinstance(call.struct_info, TensorStructInfo)
    return outputs[0] if single else tuple(outputs)
