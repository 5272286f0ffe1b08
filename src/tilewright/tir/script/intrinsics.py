"""The part of the dialect ``T`` that calls intrinsics.

Each operator of the table is a function of its name. The dtype of what it gives is told by
``dtype=``, or first, as TVM tells it: ``T.call_extern("float32", "sqrtf", x)``,
``T.reinterpret("int32", x)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import OPS, Expr, ExprLike, Op, StringImm, as_expr, as_int, call, dtypes
from tilewright.script.allowance import register_values
from tilewright.script.operators import to_value
from tilewright.support.errors import VerifyError
from tilewright.tir import calls as call_functions
from tilewright.tir import op as op_functions
from tilewright.tir.script.scalars import DTypeLike, ScalarType, as_dtype

_USUAL = {
    "assume": "bool",
    "call_extern": "int32",
    "call_pure_extern": "int32",
    "prefetch": "void",
    "storage_sync": "void",
}
"""What calls give whose dtype nobody has told: an error code, or nothing."""

_OF_VALUE = ("warp_shuffle", "warp_shuffle_up", "warp_shuffle_down", "warp_shuffle_xor")


def _is_dtype(value: object) -> bool:
    if isinstance(value, ScalarType):
        return True
    try:
        dtypes.split_dtype(value)
    except VerifyError:
        return False
    return True


def _tells_dtype(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether the first argument is the dtype of the result."""
    if op.result != "given" or not args or not isinstance(args[0], (str, ScalarType)):
        return False
    if op.arity is not None:
        return len(args) == op.arity + 1 and _is_dtype(args[0])
    names = isinstance(args[0], ScalarType) or (len(args) > 1 and isinstance(args[1], str))
    return names and _is_dtype(args[0])


def _signature_of(name: str) -> inspect.Signature | None:
    """The parameters of ``tir``'s function of a name, if it has one."""
    function = getattr(op_functions, name, None) or getattr(call_functions, name, None)
    return inspect.signature(function) if inspect.isfunction(function) else None


def _placed(
    op: Op, names: Sequence[str], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Arguments in their places, those told by name after the others."""
    rest = names[len(args) : op.arity]
    if set(rest) != set(named):
        expected = ", ".join(names) or f"{op.arity} arguments without names"
        raise VerifyError(f"{op.name} takes {expected}; got {len(args)} and {', '.join(named)}")
    return (*args, *(named[name] for name in rest))


def operator_function(op: Op) -> Callable[..., Expr]:
    """Return the function of the dialect that calls an operator."""
    signature = _signature_of(op.name)
    names = [
        name
        for name, item in (signature.parameters.items() if signature is not None else ())
        if item.kind is item.POSITIONAL_OR_KEYWORD and name not in ("dtype", "span")
    ]

    def build(
        *args: ExprLike | ScalarType, dtype: DTypeLike | None = None, **named: ExprLike
    ) -> Expr:
        if named:
            args = _placed(op, names, args, named)
        if dtype is None and _tells_dtype(op, args):
            dtype, args = args[0], args[1:]  # type: ignore[assignment]  # a dtype, as was found
        if op.arity is not None and len(args) != op.arity:
            raise VerifyError(f"{op.name} takes {op.arity} arguments, got {len(args)}")
        values = [to_value(arg) for arg in args]
        if dtype is None and op.name in _OF_VALUE:
            dtype = as_expr(values[1]).dtype
        made = _USUAL.get(op.name) if dtype is None else as_dtype(dtype)
        return call(op, *values, dtype=made)

    build.__name__ = build.__qualname__ = op.name
    build.__doc__ = op.doc or f"The intrinsic ``{op.name}``."
    if signature is not None:
        build.__signature__ = signature  # type: ignore[attr-defined]
    return build


def call_intrin(dtype: DTypeLike, func_name: str | Op, *args: ExprLike) -> Expr:
    """Call an operator by name (``"exp"``, or TVM's ``"tir.exp"``), with the result's dtype."""
    name = func_name.name if isinstance(func_name, Op) else func_name
    if not isinstance(name, str):
        raise VerifyError(f"call_intrin takes the name of an operator, got {name!r}")
    op = OPS.get(name.removeprefix("tirx.").removeprefix("tir."))
    return call(op, *map(to_value, args), dtype=as_dtype(dtype))


def thread_return() -> Expr:
    """End this thread, or the function where no threads are."""
    return call("ret", 0, dtype="void")


def tvm_storage_sync(
    storage_scope: str, is_load: bool | Expr = False, num_blocks: int | Expr = -1
) -> Expr:
    """Wait for all threads that share memory of a scope: ``T.storage_sync`` in TVM's terms."""
    if as_int(as_expr(is_load)) != 0 or as_int(as_expr(num_blocks)) != -1:
        raise VerifyError("barriers of a whole grid have no code: is_load is False, num_blocks -1")
    return call("storage_sync", StringImm(storage_scope), dtype="void")


def _shuffle(name: str) -> Callable[..., Expr]:
    def build(
        mask: ExprLike, value: ExprLike, lane: ExprLike, width: ExprLike, warp_size: int
    ) -> Expr:
        size, segment = as_int(as_expr(warp_size)), as_int(as_expr(width))
        if size not in (32, 64) or (segment is not None and segment > size):
            raise VerifyError(
                f"a warp has 32 or 64 threads, a segment no more: got {warp_size!r} and {width!r}"
            )
        made = as_expr(to_value(value))
        return call(name, to_value(mask), made, to_value(lane), segment or width, dtype=made.dtype)

    build.__name__ = build.__qualname__ = f"tvm_{name}"
    build.__doc__ = f"``T.{name}`` in TVM's terms, which state the size of a warp."
    return build


tvm_warp_shuffle = _shuffle("warp_shuffle")
tvm_warp_shuffle_up = _shuffle("warp_shuffle_up")
tvm_warp_shuffle_down = _shuffle("warp_shuffle_down")


def tvm_warp_activemask() -> Expr:
    """Bit mask of the lanes of a warp that are here: ``T.warp_activemask``."""
    return call("warp_activemask", dtype="uint32")


@dataclass
class AllReduce:
    """``T.tvm_thread_allreduce(...)``, below the ``T.attr`` that says how values are joined."""

    values: tuple[Expr, ...]
    condition: Expr
    results: tuple[Any, ...]
    threads: tuple[Expr, ...]


def tvm_thread_allreduce(count: ExprLike, *args: object) -> AllReduce:
    """Join values of threads: ``(count, values..., condition, results..., threads...)``.

    The reducer is that of the ``T.attr(T.comm_reducer(...), "reduce_scope", ...)`` around it; each
    thread gets the results in the elements that are named.
    """
    size = as_int(as_expr(count))
    if size is None or size < 1 or len(args) < 2 * size + 2:
        raise VerifyError("tvm_thread_allreduce takes (count, values, condition, results, threads)")
    values = tuple(as_expr(to_value(arg)) for arg in args[:size])
    threads = tuple(as_expr(to_value(arg)) for arg in args[2 * size + 1 :])
    condition = as_expr(to_value(args[size]))
    return AllReduce(values, condition, args[size + 1 : 2 * size + 1], threads)


register_values(AllReduce)
