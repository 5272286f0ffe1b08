"""Buffers that stand for regions of others, and where they contradict them."""

from __future__ import annotations

from tilewright.ir import (
    Expr,
    Node,
    Var,
    as_int,
    child,
    definition,
    node,
)
from tilewright.tir.buffer import Buffer, BufferRegion


@node
class MatchBufferRegion(Node):
    """``buffer`` stands for a region of another buffer inside a block."""

    buffer: Buffer = definition()
    source: BufferRegion = child()

    def mismatch(self) -> str | None:
        """Say how the buffer does not fit the region, if that is certain.

        The buffer has the region's extents; leading extents of 1 may be left out.
        """
        buffer, region = self.buffer, self.source.region
        extents = [item.extent for item in region]
        rest = max(0, len(extents) - len(buffer.shape))
        left_out, kept = extents[:rest], extents[rest:]
        pairs: list[tuple[int | None, int | None]] = [(as_int(extent), 1) for extent in left_out]
        pairs += [(as_int(a), as_int(b)) for a, b in zip(kept, buffer.shape)]
        differs = any(a is not None and b is not None and a != b for a, b in pairs)
        if differs or len(buffer.shape) > len(extents):
            shapes = [", ".join(map(repr, shape)) for shape in (buffer.shape, extents)]
            return (
                f"buffer {buffer.name} has shape ({shapes[0]}), the region of "
                f"{self.source.buffer.name} that it stands for ({shapes[1]})"
            )
        if buffer.dtype != self.source.buffer.dtype:
            return (
                f"buffer {buffer.name} has dtype {buffer.dtype}, "
                f"{self.source.buffer.name} {self.source.buffer.dtype}"
            )
        if buffer.scope != self.source.buffer.scope:
            return (
                f"buffer {buffer.name} is in {buffer.scope} memory, "
                f"{self.source.buffer.name} in {self.source.buffer.scope}"
            )
        return self._place_mismatch()

    def stride_variables(self) -> list[tuple[Var, int]]:
        """Variables that stand for strides, with the axes from whose strides they have their value.

        With one element along an axis, any step along it is right: such an axis says what a
        variable is only if no other does.
        """
        buffer = self.buffer
        found = [
            (stride, axis, as_int(extent) == 1)
            for axis, (stride, extent) in enumerate(zip(buffer.strides, buffer.shape))
            if type(stride) is Var
        ]
        said = [(var, axis) for var, axis, single in found if not single]
        known = {var for var, _ in said}
        rest = {var: axis for var, axis, single in found if single and var not in known}
        return said + list(rest.items())

    def _place_mismatch(self) -> str | None:
        """Say how strides and offset that are stated contradict the source's, if that is certain.

        What is stated is a number, or a variable that takes the first number it stands for.
        """
        source, buffer = self.source.buffer, self.buffer
        strides = constant_strides(source)
        kept = strides[len(strides) - len(buffer.strides) :]
        pairs = [
            (f"stride {{}} on axis {axis}", stated, found)
            for axis, (stated, found) in enumerate(zip(buffer.strides, kept))
            # Where an axis has one element, nothing is ever a step away.
            if as_int(buffer.shape[axis]) != 1
        ]
        if buffer.elem_offset is not None:
            pairs.append(("offset {}", buffer.elem_offset, self._constant_offset(strides)))
        values: dict[Expr, int] = {}
        for what, stated, found in pairs:
            if found is None:
                continue
            number = values.setdefault(stated, found) if type(stated) is Var else as_int(stated)
            if number is not None and number != found:
                shown = f"{stated!r} = {number}" if type(stated) is Var else f"{number}"
                return (
                    f"buffer {buffer.name} has {what.format(shown)}, the region of "
                    f"{source.name} that it stands for {found}"
                )
        return None

    def _constant_offset(self, strides: list[int | None]) -> int | None:
        """Where the region starts in its memory, if that is a number."""
        source = self.source.buffer
        offset = 0 if source.elem_offset is None else as_int(source.elem_offset)
        for item, stride in zip(self.source.region, strides):
            first = as_int(item.min)
            if first == 0:
                continue
            if offset is None or first is None or stride is None:
                return None
            offset += first * stride
        return offset


def constant_strides(buffer: Buffer) -> list[int | None]:
    """The strides of a buffer, as far as they are numbers."""
    strides = [as_int(stride) for stride in buffer.strides]
    if not strides:
        step: int | None = 1
        for extent in reversed(buffer.shape):
            strides.insert(0, step)
            size = as_int(extent)
            step = None if size is None or step is None else step * size
    return strides
