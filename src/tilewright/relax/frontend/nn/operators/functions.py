"""Calls of a user's own functions: ``te``, tensor functions, libraries; and prints."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.ir import Expr
from tilewright.relax import ops
from tilewright.relax.call_tir import call_tir, call_tir_inplace
from tilewright.relax.expr import RelaxExpr, ShapeExpr, Tuple
from tilewright.relax.frontend.nn.exporter import io_effect
from tilewright.relax.frontend.nn.tensor import Object, Tensor, current_builder, emit, unwrapped
from tilewright.relax.struct_info import PrimStructInfo, StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc

Argument = Tensor | Object | RelaxExpr | Expr | int | float | str


def tensor_expr_op(
    tensor_expr_func: Callable[..., Any],
    name_hint: str,
    args: Sequence[Argument],
    *,
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Call a function of ``te`` tensors; ``attrs`` are the tensor function's attributes."""
    call = current_builder().call_te(
        tensor_expr_func, *unwrapped(list(args)), primfunc_name_hint=name_hint, primfunc_attrs=attrs
    )
    return emit(call, name_hint)


def _operands(args: object) -> tuple[list[RelaxExpr], list[Any]]:
    """Tensors, and sizes for parameters that are scalars, which come last."""
    given = args if isinstance(args, (list, tuple)) else [args]
    tensors: list[RelaxExpr] = []
    scalars: list[Any] = []
    for item in unwrapped(list(given)):
        info = getattr(item, "struct_info", None)
        if isinstance(item, ShapeExpr):
            scalars.extend(item.values)
        elif isinstance(info, PrimStructInfo):
            scalars.append(info.value)
        elif isinstance(item, (int, Expr)):
            scalars.append(item)
        elif isinstance(info, TensorStructInfo) and not scalars:
            tensors.append(item)
        else:
            raise VerifyError(f"a tensor function takes tensors, then sizes, got {item!r}")
    return tensors, scalars


def _outputs(out: object) -> Any:
    if isinstance(out, (tuple, list)):
        return [_outputs(item) for item in out]
    if isinstance(out, StructInfo):
        return out
    if isinstance(out, Tensor):
        return out._expr.struct_info
    raise VerifyError(f"out is a Tensor, such as Tensor.placeholder(...), or several, got {out!r}")


def tensor_ir_op(func: PrimFunc, name_hint: str, args: object, out: object) -> Any:
    """Call a tensor function that writes fresh outputs, which ``out`` describes.

    ``args`` are tensors, then sizes, for parameters after the outputs. Several outputs are a tuple.
    """
    tensors, scalars = _operands(args)
    gvar = current_builder().add_func(func, name_hint)
    return emit(call_tir(gvar, Tuple(tuple(tensors)), _outputs(out), scalars), name_hint)


def tensor_ir_inplace_op(
    func: PrimFunc,
    name_hint: str,
    args: object,
    inplace_indices: int | Sequence[int],
    out: object,
) -> Any:
    """Call a tensor function that writes into its arguments.

    ``inplace_indices`` has for each output the argument whose memory it takes, or -1.
    """
    tensors, scalars = _operands(args)
    gvar = current_builder().add_func(func, name_hint)
    infos = _outputs(out)
    call = call_tir_inplace(gvar, Tuple(tuple(tensors)), inplace_indices, infos, scalars)
    return emit(call, name_hint)


def extern(name: str, args: Sequence[Argument], out: object) -> Any:
    """Call a global function that takes ``args``, then fresh tensors that it writes.

    ``out`` describes these: a ``Tensor``, or several.
    """
    return emit(ops.call_dps_packed(name, unwrapped(list(args)), _outputs(out)), name)


def debug_func(name: str, *args: Argument, _line_info: str | None = None) -> None:
    """Call a global function when the graph runs, for what it does: ``f(line_info, *args)``.

    The export needs ``debug=True``.
    """
    if _line_info is None:
        frame = inspect.stack()[1]
        _line_info = f"{Path(frame.filename)}:{frame.lineno}"
    io_effect().call(name, _line_info, *unwrapped(list(args)))


def print_(tensor: Tensor) -> None:
    """Print a tensor when the graph runs.

    The export needs ``debug=True``.
    """
    frame = inspect.stack()[1]
    debug_func("vm.builtin.debug_print", tensor, _line_info=f"{frame.filename}:{frame.lineno}")


__all__ = [
    "debug_func", "extern", "print_", "tensor_expr_op", "tensor_ir_inplace_op", "tensor_ir_op",
]  # fmt: skip
