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

from tilewright.ir import (
    OPS,
    Expr,
    ExprLike,
    Op,
    StringImm,
    Var,
    as_expr,
    as_int,
    call,
    cast,
    const,
    dtypes,
    located,
    structural_equal,
)
from tilewright.script.allowance import register_values
from tilewright.script.operators import to_value
from tilewright.support.errors import VerifyError
from tilewright.tir import calls as call_functions
from tilewright.tir import op as op_functions
from tilewright.tir.buffer import Buffer, BufferLoad, access_dtype
from tilewright.tir.reducer import CommReducer, known_reducers
from tilewright.tir.script.scalars import DTypeLike, ScalarType, as_dtype
from tilewright.tir.stmt import BufferStore, Evaluate, IfThenElse

_USUAL = {
    "assume": "bool",
    "call_extern": "int32",
    "call_pure_extern": "int32",
    "prefetch": "void",
    "ret": "void",
    "storage_sync": "void",
}
"""What calls give whose dtype nobody has told: an error code, or nothing."""

_OF_BUFFERS = {
    "address_of": call_functions.first_element,
    "call_packed": call_functions.packed_tensor,
}
"""What calls that take buffers make of them."""

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

    told = signature.parameters.get("dtype") if signature is not None else None
    default = told.default if told is not None else None
    usual = default if isinstance(default, str) else _USUAL.get(op.name)

    def build(
        *args: ExprLike | ScalarType,
        dtype: DTypeLike | None = None,
        span: object = None,
        **named: ExprLike,
    ) -> Expr:
        if named:
            args = _placed(op, names, args, named)
        if dtype is None and _tells_dtype(op, args):
            dtype, args = args[0], args[1:]  # type: ignore[assignment]  # a dtype, as was found
        if op.arity is not None and len(args) != op.arity:
            raise VerifyError(f"{op.name} takes {op.arity} arguments, got {len(args)}")
        values = [to_value(arg) for arg in args]
        if op.name in _OF_BUFFERS:
            convert = _OF_BUFFERS[op.name]
            values = [convert(each) if isinstance(each, Buffer) else each for each in values]
        if dtype is None and op.name in _OF_VALUE:
            dtype = as_expr(values[1]).dtype
        made = usual if dtype is None else as_dtype(dtype)
        return located(call(op, *values, dtype=made), span)

    build.__name__ = build.__qualname__ = op.name
    build.__doc__ = op.doc or f"The intrinsic ``{op.name}``."
    if signature is not None:
        build.__signature__ = signature  # type: ignore[attr-defined]
    return build


def call_intrin(
    dtype: DTypeLike,
    func_name: str | Op,
    *args: ExprLike,
    attrs: object = None,
    span: object = None,
) -> Expr:
    """Call an operator by name (``"exp"``, or TVM's ``"tir.exp"``), with the result's dtype.

    Raises ``VerifyError`` for ``attrs``, which operators don't have here.
    """
    if attrs:
        raise VerifyError(f"operators have no attributes here, got {attrs!r}; pass operands")
    name = func_name.name if isinstance(func_name, Op) else func_name
    if not isinstance(name, str):
        raise VerifyError(f"call_intrin takes the name of an operator, got {name!r}")
    op = OPS.get(name.removeprefix("tirx.").removeprefix("tir."))
    return located(call(op, *map(to_value, args), dtype=as_dtype(dtype)), span)


def masked_load(
    dtype: DTypeLike, buffer: Buffer, *indices_and_mask: ExprLike | Sequence[ExprLike]
) -> Expr:
    """Read the lanes of a vector that a mask, the last argument, has: the others are zero."""
    load, mask = _under_mask("masked_load", buffer, indices_and_mask)
    if load.dtype != as_dtype(dtype):
        raise VerifyError(f"masked_load of {as_dtype(dtype)}: the indices read a {load.dtype}")
    return call("if_then_else", mask, load, const(0, load.dtype))


def masked_store(
    buffer: Buffer, value: ExprLike, *indices_and_mask: ExprLike | Sequence[ExprLike]
) -> IfThenElse:
    """Write the lanes of a vector that a mask, the last argument, has; a statement."""
    load, mask = _under_mask("masked_store", buffer, indices_and_mask)
    dtype = access_dtype(buffer, load.indices)
    return IfThenElse(mask, BufferStore(buffer, cast(to_value(value), dtype), load.indices))


def _under_mask(name: str, buffer: Buffer, given: tuple[Any, ...]) -> tuple[BufferLoad, Expr]:
    """The access that indices and a mask say, and the mask."""
    if not isinstance(buffer, Buffer) or len(given) != buffer.ndim + 1:
        raise VerifyError(f"{name} takes a buffer, an index for each of its axes, and a mask")
    *indices, mask = (as_expr(to_value(item)) for item in given)
    load = BufferLoad(buffer, tuple(indices))
    lanes = dtypes.lanes_of(load.dtype)
    if mask.dtype != dtypes.vector_dtype("bool", lanes):
        raise VerifyError(f"the mask of {name} is a bool for each of {lanes} lanes: {mask.dtype}")
    return load, mask


def print_buffer(
    buffer_var: Var | Buffer,
    dtype: DTypeLike,
    is_string: bool,
    is_scalar: bool,
    dim_num: int,
    *shape: ExprLike | Sequence[ExprLike],
) -> Expr:
    """Print memory when the program runs, on a CPU, by the global function of this name.

    ``buffer_var`` is a buffer or the pointer of one, whose elements are of ``dtype``; ``shape`` has
    ``dim_num`` extents. ``is_string`` prints bytes as text, ``is_scalar`` the first element alone.
    """
    extents = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if as_int(as_expr(dim_num)) != len(extents):
        raise VerifyError(f"print_buffer of {dim_num} dimensions, with {len(extents)} extents")
    data = buffer_var.data if isinstance(buffer_var, Buffer) else buffer_var
    name = StringImm(as_dtype(dtype))
    tensor = call("packed_tensor", data, name, *map(to_value, extents))
    flags = [as_expr(to_value(flag)) for flag in (is_string, is_scalar)]
    return call("call_packed", StringImm(PRINT_BUFFER), tensor, *flags, dtype="int32")


PRINT_BUFFER = "tilewright.print_buffer"
"""The global function that prints memory; it is part of the runtime."""


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


def _shuffle(name: str, mask: Any, value: Any, lane: Any, width: ExprLike, warp_size: int) -> Expr:
    size, segment = as_int(as_expr(warp_size)), as_int(as_expr(width))
    if size not in (32, 64) or (segment is not None and segment > size):
        raise VerifyError(
            f"a warp has 32 or 64 threads, a segment no more: got {warp_size!r} and {width!r}"
        )
    made = as_expr(to_value(value))
    return call(name, to_value(mask), made, to_value(lane), segment or width, dtype=made.dtype)


def tvm_warp_shuffle(
    mask: ExprLike, value: ExprLike, warp_id: ExprLike, width: ExprLike, warp_size: int
) -> Expr:
    """``T.warp_shuffle`` in TVM's terms, which state the size of a warp."""
    return _shuffle("warp_shuffle", mask, value, warp_id, width, warp_size)


def tvm_warp_shuffle_up(
    mask: ExprLike, value: ExprLike, offset: ExprLike, width: ExprLike, warp_size: int
) -> Expr:
    """``T.warp_shuffle_up`` in TVM's terms, which state the size of a warp."""
    return _shuffle("warp_shuffle_up", mask, value, offset, width, warp_size)


def tvm_warp_shuffle_down(
    mask: ExprLike, value: ExprLike, offset: ExprLike, width: ExprLike, warp_size: int
) -> Expr:
    """``T.warp_shuffle_down`` in TVM's terms, which state the size of a warp."""
    return _shuffle("warp_shuffle_down", mask, value, offset, width, warp_size)


def tvm_warp_shuffle_xor(
    mask: ExprLike, value: ExprLike, lane_mask: ExprLike, width: ExprLike, warp_size: int
) -> Expr:
    """``T.warp_shuffle_xor`` in TVM's terms, which state the size of a warp."""
    return _shuffle("warp_shuffle_xor", mask, value, lane_mask, width, warp_size)


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

    def joined(self, reducer: CommReducer | None, tags: Mapping[Var, str]) -> Evaluate:
        """Return the statement; ``tags`` says what threads the variables are of.

        Raises ``VerifyError`` without a registered reducer, and for other variables.
        """
        if reducer is None:
            raise VerifyError(
                'tvm_thread_allreduce stands below T.attr(T.comm_reducer(...), "reduce_scope", ...)'
            )
        known = known_reducers(*(item.dtype for item in self.values))
        names = [
            name for name, made in known if structural_equal(made, reducer, map_free_vars=True)
        ]
        if not names:
            raise VerifyError("no reducer of this form is registered: see tir.register_reducer")
        found = [tags.get(item) for item in self.threads if isinstance(item, Var)]
        if len(found) < len(self.threads) or None in found:
            raise VerifyError("tvm_thread_allreduce takes threads: variables of T.launch_thread")
        values = [
            call("if_then_else", self.condition, item, neutral)
            for item, neutral in zip(self.values, reducer.identity)
        ]
        places = [call("address_of", _element(item)) for item in self.results]
        words = [StringImm(str(word)) for word in (names[0], *found)]
        made = call("thread_allreduce", words[0], *values, *places, *words[1:], dtype="void")
        return Evaluate(made)


REDUCE_SCOPE = "reduce_scope"
"""Key of the attribute that says how ``tvm_thread_allreduce`` joins values."""


def _element(value: object) -> BufferLoad:
    """The element that a result of ``tvm_thread_allreduce`` names."""
    made = to_value(value)
    if isinstance(made, Buffer):
        made = call_functions.first_element(made)
    if not isinstance(made, BufferLoad):
        raise VerifyError(f"a result of threads is an element of a buffer, got {made!r}")
    return made


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
