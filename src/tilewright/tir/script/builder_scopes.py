"""What makes frames shorter to write: several of them at once, elements by one number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tilewright.ir import Expr, ExprLike, as_expr, floordiv, floormod
from tilewright.script.ir_builder import Frame
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.script.builder_frames import WrapFrame, buffer_store


def seq_scope() -> WrapFrame:
    """A frame around several statements, such as loops one after the other."""
    return WrapFrame(lambda body: body)


@contextmanager
def frame_scope(frames: Sequence[Frame]) -> Iterator[tuple[Any, ...]]:
    """Open frames one inside the other; ``as`` names the tuple of what each of them gives."""
    with ExitStack() as stack:
        yield tuple(stack.enter_context(frame) for frame in frames)


class BufferProxy:
    """A buffer whose elements are also numbered row by row: ``proxy[7]``, ``proxy[7] = value``."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def __getitem__(self, index: Any) -> BufferLoad:
        return self.buffer[self._places(index)]

    def __setitem__(self, index: Any, value: ExprLike) -> None:
        buffer_store(self.buffer, value, list(self._places(index)))

    def _places(self, index: Any) -> tuple[Any, ...]:
        if isinstance(index, (tuple, list)):
            return tuple(index)
        places: list[Expr] = []
        rest = as_expr(index)
        for extent in reversed(self.buffer.shape[1:]):
            places.append(floormod(rest, extent))
            rest = floordiv(rest, extent)
        return (rest, *reversed(places)) if self.buffer.shape else ()


def buffer_proxy(buf: Buffer) -> BufferProxy:
    """A buffer whose elements are also numbered row by row."""
    return BufferProxy(buf)


__all__ = ["BufferProxy", "buffer_proxy", "frame_scope", "seq_scope"]
