"""Functions that build calls of code that is no operator of ours, and of bits and pointers.

The names and parameters are TVM's: a dtype or ``"void"`` first, then the function's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import (
    INDEX,
    OPS,
    Expr,
    ExprLike,
    Op,
    Ramp,
    StringImm,
    Var,
    as_expr,
    call,
    cast,
    const,
    dtypes,
    least_lanes,
    located,
    scalable,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer, BufferLoad

_PREFIXES = ("tirx.", "tir.")


def _foreign(op: str, dtype: str, name: object, args: Sequence[Any], span: object) -> Expr:
    if not isinstance(name, str):
        raise VerifyError(f"{op} takes the result's dtype, then a function's name, got {name!r}")
    values = [arg.data if isinstance(arg, Buffer) else arg for arg in args]
    return located(call(op, StringImm(name), *values, dtype=dtype), span)


def call_extern(dtype: str, func_name: str, *args: object, span: object = None) -> Expr:
    """Call a function of foreign code, which may do anything; a buffer is passed as its pointer."""
    return _foreign("call_extern", dtype, func_name, args, span)


def call_pure_extern(dtype: str, func_name: str, *args: object, span: object = None) -> Expr:
    """Call a function of foreign code without side effects."""
    return _foreign("call_pure_extern", dtype, func_name, args, span)


def call_llvm_intrin(dtype: str, name: str, *args: object, span: object = None) -> Expr:
    """Call an intrinsic of LLVM, as ``llvm.prefetch``: on targets whose code is LLVM's only."""
    return _foreign("call_llvm_intrin", dtype, name, args, span)


def call_llvm_pure_intrin(dtype: str, name: str, *args: object, span: object = None) -> Expr:
    """Call an intrinsic of LLVM without side effects: ``("float32", "llvm.sqrt", x)``."""
    return _foreign("call_llvm_pure_intrin", dtype, name, args, span)


def call_packed(*args: Any, span: object = None) -> Expr:
    """Call a global function by name: ``call_packed("name", x, "text")``; it gives an int32.

    A buffer is passed as a tensor; it is all of its memory, row by row.

    Raises ``VerifyError`` without a name, and for buffers with strides or an offset.
    """
    if not args or not isinstance(args[0], str):
        raise VerifyError("call_packed takes the name of a global function first")
    values = [packed_tensor(arg) if isinstance(arg, Buffer) else arg for arg in args]
    return located(call("call_packed", *values, dtype="int32"), span)


def packed_tensor(buffer: Buffer) -> Expr:
    """A buffer as an argument of ``call_packed``: all of its memory, row by row."""
    if buffer.strides or buffer.elem_offset is not None:
        raise VerifyError(
            f"call_packed passes whole buffers; {buffer.name} has strides or an offset"
        )
    return call("packed_tensor", buffer.data, StringImm(buffer.dtype), *buffer.shape)


def call_intrin(
    dtype: str, func_name: str | Op, *args: Any, attrs: object = None, span: object = None
) -> Expr:
    """Call an operator by name (``"tirx.exp"``, ``"tir.exp"`` or ``"exp"``).

    Raises ``VerifyError`` for ``attrs``, which our operators don't have, and for a dtype that isn't
    that of the operator's result.
    """
    if attrs:
        raise VerifyError(f"operators have no attributes here, got {attrs!r}; pass operands")
    op = func_name if isinstance(func_name, Op) else OPS.get(_plain(func_name))
    made = call(op, *args, dtype=dtype if op.result == "given" else None)
    if made.dtype != dtype:
        raise VerifyError(f"{op.name} of these operands is of {made.dtype}, not {dtype}")
    return located(made, span)


def _plain(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return _RENAMED.get(name, name)


_RENAMED = {
    "vectorlow": "vector_low",
    "vectorhigh": "vector_high",
    "vectorcombine": "vector_combine",
    "tvm_access_ptr": "access_ptr",
    "tvm_storage_sync": "storage_sync",
    "tvm_warp_shuffle": "warp_shuffle",
    "tvm_warp_shuffle_up": "warp_shuffle_up",
    "tvm_warp_shuffle_down": "warp_shuffle_down",
    "tvm_warp_shuffle_xor": "warp_shuffle_xor",
    "tvm_warp_activemask": "warp_activemask",
}
"""TVM's names of operators that have another one here."""


def reinterpret(dtype: str, value: ExprLike, span: object = None) -> Expr:
    """The same bits as a value of another dtype.

    Raises ``VerifyError`` if there are more or fewer of them.
    """
    made = as_expr(value)
    kinds = made.dtype, dtypes.dtype_text(dtype)
    bits = [dtypes.bits_of(kind) * least_lanes(dtypes.lanes_of(kind)) for kind in kinds]
    if bits[0] != bits[1] or dtypes.is_scalable(kinds[0]) != dtypes.is_scalable(kinds[1]):
        raise VerifyError(f"{made.dtype} has {bits[0]} bits, {dtype} has {bits[1]}")
    return located(made if made.dtype == dtype else call("reinterpret", made, dtype=dtype), span)


def vectorlow(dtype: str, vec: Expr) -> Expr:
    """The lower half of a vector."""
    return _half("vector_low", dtype, vec)


def vectorhigh(dtype: str, vec: Expr) -> Expr:
    """The upper half of a vector."""
    return _half("vector_high", dtype, vec)


def _half(op: str, dtype: str, vec: Expr) -> Expr:
    dtype, vec = dtypes.dtype_text(dtype), as_expr(vec)
    element, lanes = dtypes.split_dtype(vec.dtype)
    if lanes % 2 or dtype != dtypes.vector_dtype(element, lanes // 2):
        raise VerifyError(f"{dtype} is not half of {vec.dtype}")
    return call(op, vec, dtype=dtype)


def vectorcombine(dtype: str, vec1: Expr, vec2: Expr) -> Expr:
    """Two vectors of equal lanes, joined."""
    dtype, vec1, vec2 = dtypes.dtype_text(dtype), as_expr(vec1), as_expr(vec2)
    element, lanes = dtypes.split_dtype(vec1.dtype)
    if vec1.dtype != vec2.dtype or dtype != dtypes.vector_dtype(element, 2 * lanes):
        raise VerifyError(f"{vec1.dtype} and {vec2.dtype} don't make {dtype}")
    return call("vector_combine", vec1, vec2, dtype=dtype)


def dp4a(vec1: Expr, vec2: Expr, acc: ExprLike = 0) -> Expr:
    """``acc`` plus the dot product of two vectors of four bytes, as an int32 or uint32."""
    vec1, vec2 = as_expr(vec1), as_expr(vec2)
    kinds = {vec1.dtype, vec2.dtype}
    if not kinds <= {"int8x4", "uint8x4"}:
        raise VerifyError(f"dp4a takes int8x4 or uint8x4, got {vec1.dtype} and {vec2.dtype}")
    dtype = "uint32" if kinds == {"uint8x4"} else "int32"
    return call("dot_accumulate", cast(acc, dtype), vec1, vec2)


def address_of(obj: Buffer | BufferLoad, span: object = None) -> Expr:
    """A pointer to an element of a buffer, or to its first one."""
    load = first_element(obj) if isinstance(obj, Buffer) else obj
    if not isinstance(load, BufferLoad):
        raise VerifyError(f"address_of takes a buffer or an element of one, got {obj!r}")
    return located(call("address_of", load), span)


def first_element(buffer: Buffer) -> BufferLoad:
    """The element of a buffer that a pointer to it points at."""
    return BufferLoad(buffer, tuple(const(0) for _ in buffer.shape))


def tvm_access_ptr(
    ptype: object, data: Var, offset: ExprLike, extent: ExprLike, rw_mask: ExprLike
) -> Expr:
    """A pointer into memory: ``offset`` and ``extent`` in elements, ``rw_mask`` 1, 2 or 3.

    ``ptype`` is ``type_annotation(dtype)``, the dtype of elements, which is the buffer's.
    """
    del ptype  # the buffer whose pointer ``data`` is has the dtype
    return call("access_ptr", data, offset, extent, rw_mask, dtype="handle")


def type_annotation(dtype: str) -> str:
    """A dtype as an operand of ``tvm_access_ptr``."""
    return dtypes.dtype_text(dtype)


def assume(cond: ExprLike | None = None) -> Expr:
    """Promise that a condition holds."""
    if cond is None:
        raise VerifyError("assume takes the condition that holds")
    return call("assume", cond, dtype="bool")


def undef(dtype: str = "int32") -> Expr:
    """A value that must not matter: a store of it may be removed."""
    return call("undef", dtype=dtype)


def trace(args: Sequence[ExprLike], trace_action: str = "tvm.default_trace_action") -> Expr:
    """Show values when the program runs, and give the last one; nothing does that here.

    Raises ``VerifyError``: the interpreter (``tir.interpreter``) runs any function in Python, and
    ``call_packed`` calls a function of yours.
    """
    raise VerifyError(
        f"trace by {trace_action!r} is not supported; call_packed(name, *values) calls a "
        "registered function with values, and the interpreter runs functions step by step"
    )


def vscale() -> Expr:
    """The int32 that the lanes of scalable vectors (SVE, RVV) are multiples of, known at run time.

    ``Ramp`` and ``Broadcast`` take ``4 * vscale()`` lanes, and so do loops that are vectorized.
    """
    return scalable.vscale()


def get_vscale_expr(dtype: str, min_size: int = 128) -> Expr:
    """The lanes of a scalable vector of ``dtype`` whose length is ``min_size`` bits at least."""
    return (min_size // dtypes.bits_of(dtypes.dtype_text(dtype))) * vscale()


def get_active_lane_mask(dtype: str, base: ExprLike, limit: ExprLike) -> Expr:
    """Which lanes of a vector stand below a limit: ``base + lane < limit`` for each lane.

    ``dtype`` is a vector of bool (``"boolx4"``, ``"boolxvscalex4"``), or of TVM's older name of it,
    ``uint1``. The lanes are counted as indices, so that the sum doesn't wrap.
    """
    named = dtype.replace("uint1x", "boolx") if isinstance(dtype, str) else dtype
    element, lanes = dtypes.split_dtype(dtypes.dtype_text(named))
    if element != "bool" or lanes == 1:
        raise VerifyError(f"a mask of lanes is a vector of bool such as boolx4, not {dtype}")
    made: Expr = Ramp(cast(base, INDEX), const(1), lanes) < cast(limit, INDEX)
    return made
