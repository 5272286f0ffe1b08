"""Exchange between the threads of a warp, as texts of one dialect or another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.codegen.c import text as t
from tilewright.codegen.c.kernels import KernelEmitter
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value, Vector
from tilewright.ir import Call, as_int, dtypes
from tilewright.support.errors import CodegenError

CallHandler = Callable[[Any, Call], Value]


def shuffle(form: str, *, whole_warps: bool = False) -> CallHandler:
    """Return the writer of a shuffle: ``{0}`` is the value, ``{1}`` the lane, and ``{width}``.

    Short integers travel as ``int``. With ``whole_warps`` the language has no parts of warps.
    """

    def write(emitter: KernelEmitter, call: Call) -> Value:
        _, value, lane, width = call.args
        size, warp = as_int(width), emitter.target.gpu.warp_size
        if size is None or size & (size - 1) or not 0 < size <= warp:
            raise CodegenError(
                f"{call.op.name}: the width is a power of two up to {warp}, got {width!r}"
            )
        if whole_warps and size != warp and call.op.name != "warp_shuffle_xor":
            raise CodegenError(
                f"{emitter.dialect.name} shuffles whole warps of {warp}, not parts of {size}"
            )
        element = dtypes.element_of(call.dtype)
        other = emitter.scalar(lane)
        short = dtypes.bits_of(element) < 32 and dtypes.kind_of(element) != "float"

        def exchange(x: str) -> Text:
            own = t.prefix("(int)", x) if short else x
            text = Text(form.format(own, other, width=size))
            made = emitter.convert(text, "int32", element) if short else text
            return Text(emitter.let(made, element, "other"))

        source = emitter.visit(value)
        if isinstance(source, Vector):
            return Vector(call.dtype, [exchange(lane) for lane in source.lanes()])
        return exchange(source)

    return write


def vote(form: str, source: str) -> CallHandler:
    """Return the writer of a vote on ``{0}``, whose result is of the dtype ``source``."""

    def write(emitter: KernelEmitter, call: Call) -> Value:
        condition = emitter.scalar(call.args[1])
        element = dtypes.element_of(call.dtype)
        text = emitter.convert(Text(form.format(condition)), source, element)
        return Text(emitter.let(text, element, "vote"))

    return write
