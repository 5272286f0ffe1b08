"""Places in buffers: pointers, vectors and flat offsets.

``Buffer`` inherits these methods, whose names are TVM's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tilewright.ir import (
    OPS,
    Add,
    Broadcast,
    Call,
    Expr,
    ExprLike,
    Node,
    Ramp,
    as_expr,
    as_int,
    const,
    dtypes,
    floordiv,
    found_lanes,
    product,
)
from tilewright.support.errors import VerifyError

_MASKS = {"r": 1, "w": 2, "rw": 3, "wr": 3}


class BufferPlaces(Node):
    """Methods of buffers that say where elements lie."""

    __slots__ = ()
    if TYPE_CHECKING:
        name: str
        shape: tuple[Expr, ...]
        dtype: str
        strides: tuple[Expr, ...]
        elem_offset: Expr | None
        alignment: int
        axis_separators: tuple[int, ...]
        data: Any

        def __getitem__(self, indices: object) -> Any: ...

        # `tir.stmt` adds it: statements stand on buffers.
        def vstore(self, begin: Sequence[ExprLike] | ExprLike, value: ExprLike) -> Any: ...

    @property
    def data_alignment(self) -> int:
        """The alignment in bytes, as TVM calls it."""
        return self.alignment

    @property
    def byte_offset(self) -> Expr:
        """The offset in bytes."""
        offset = const(0) if self.elem_offset is None else self.elem_offset
        return self._in_bytes(offset)

    @property
    def offset_factor(self) -> int:
        """What the offset is known to be a multiple of, in elements."""
        offset = 0 if self.elem_offset is None else as_int(self.elem_offset)
        return 1 if not offset else offset & -offset

    def access_ptr(
        self,
        access_mask: int | str,
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: ExprLike = 0,
        extent: ExprLike | None = None,
    ) -> Expr:
        """A pointer into the buffer's memory, for a call that reads ("r", 1) or writes ("w", 2).

        ``offset`` and ``extent`` are in elements from the buffer's start, by default all of it;
        with ``content_lanes`` the callee takes vectors of so many.

        Raises ``VerifyError`` for another mask, or offsets that are no multiple of the lanes.
        """
        mask = _MASKS.get(access_mask) if isinstance(access_mask, str) else access_mask
        if mask not in (1, 2, 3):
            raise VerifyError(f"access_mask is 'r', 'w' or 'rw', got {access_mask!r}")
        if ptr_type != "handle":
            raise VerifyError(f"pointers are of dtype handle, got ptr_type={ptr_type!r}")
        start = as_expr(offset)
        for what, number in (("offset", as_int(start)), ("extent", as_int(extent))):
            if content_lanes < 1 or (number is not None and number % content_lanes):
                raise VerifyError(f"the {what} {number} is no multiple of {content_lanes} lanes")
        first = start if self.elem_offset is None else self.elem_offset + start
        size = self._size() - start if extent is None else as_expr(extent)
        return Call.of_fields(
            OPS.get("access_ptr"), (self.data, first, size, const(mask)), "handle"
        )

    def _size(self) -> Expr:
        """Elements from the first to the last one."""
        return self.strides[0] * self.shape[0] if self.strides else product(self.shape)

    def vload(self, begin: Sequence[ExprLike] | ExprLike, dtype: str | None = None) -> Expr:
        """Read an element, or with a vector ``dtype`` neighbours along the last axis.

        A vector of indices, such as a ``Ramp``, says itself which elements it reads.

        Raises ``VerifyError`` for a dtype of other elements.
        """
        made: Expr = self[self._from(begin, self.dtype if dtype is None else dtype)]
        return made

    def _from(self, begin: Sequence[ExprLike] | ExprLike, dtype: str) -> tuple[Expr, ...]:
        indices = [as_expr(i) for i in (begin if isinstance(begin, (tuple, list)) else (begin,))]
        own, own_lanes = dtypes.split_dtype(self.dtype)
        element, lanes = dtypes.split_dtype(dtype)
        if element != own or lanes % own_lanes:
            raise VerifyError(f"buffer {self.name} of {self.dtype} has no {dtype}")
        if lanes > own_lanes:
            if indices and dtypes.lanes_of(indices[-1].dtype) == lanes // own_lanes:
                return tuple(indices)
            if not indices:
                raise VerifyError(f"buffer {self.name} has no axis for a vector")
            last = indices[-1]
            indices[-1] = Ramp(last, const(1, last.dtype), lanes // own_lanes)
        return tuple(indices)

    def offset_of(self, indices: Sequence[ExprLike] | ExprLike) -> list[Expr]:
        """Where an element lies in the flattened buffer: an index for each of its axes."""
        given = indices if isinstance(indices, (tuple, list)) else (indices,)
        places = make_indices(self, given)
        starts = [0, *self.axis_separators, len(places)]
        offsets: list[Expr] = []
        for begin, end in pairwise(starts):
            place: Expr = const(0)
            for axis in range(begin, end):
                if self.strides:
                    place = place + _spread(self.strides[axis], places[axis]) * places[axis]
                else:
                    place = place * _spread(self.shape[axis], place) + places[axis]
            offsets.append(place)
        if self.elem_offset is not None:
            offsets[-1] = offsets[-1] + self.elem_offset
        return offsets

    def byte_offset_of(self, indices: Sequence[ExprLike] | ExprLike, inner: bool = True) -> Expr:
        """The bytes from the start of the memory to an element (``inner``: from the buffer's)."""
        (place,) = self.offset_of(indices)
        if inner and self.elem_offset is not None:
            place = place - self.elem_offset
        return self._in_bytes(place)

    def _in_bytes(self, elements: Expr) -> Expr:
        bits = dtypes.bits_of(self.dtype) * dtypes.lanes_of(self.dtype)
        return elements * (bits // 8) if bits % 8 == 0 else floordiv(elements * bits, 8)

    def get_flattened_buffer(self) -> Any:
        """The same memory as a buffer of one axis, or one for each part that separators make."""
        if not self.axis_separators and len(self.shape) == 1 and not self.strides:
            return self
        starts = [0, *self.axis_separators, len(self.shape)]
        shape = [product(self.shape[a:b]) for a, b in pairwise(starts)]
        if self.strides and len(shape) == 1 and self.shape:
            shape = [self._size()]
        return self.replace(
            shape=tuple(shape), strides=(), axis_separators=tuple(range(1, len(shape)))
        )

    def with_dtype(self, dtype: str) -> Any:
        """A view of the same memory with elements of another dtype of the same size."""
        if dtypes.bytes_of(dtype) != dtypes.bytes_of(self.dtype):
            raise VerifyError(f"{dtype} has another size than {self.dtype}")
        return self.replace(dtype=dtype)


def make_indices(buffer: BufferPlaces, indices: Sequence[object]) -> tuple[Expr, ...]:
    """Turn Python indices (numbers, expressions, constant slices) into index expressions.

    Raises ``VerifyError`` for another number of indices, and slices without a constant extent.
    """
    if len(indices) != len(buffer.shape):
        raise VerifyError(
            f"buffer {buffer.name} has {len(buffer.shape)} dimensions, got {len(indices)} indices"
        )
    made = []
    for index in indices:
        if isinstance(index, slice):
            start, step = as_expr(index.start or 0), as_expr(index.step or 1)
            lanes = _slice_lanes(start, index.stop)
            if lanes is None:
                raise VerifyError(
                    f"a slice of {buffer.name} needs a constant extent, got {index!r}"
                )
            made.append(Ramp(start, step, lanes) if lanes > 1 else start)
        else:
            made.append(as_expr(index))
    return tuple(made)


def _slice_lanes(start: Expr, stop: Any) -> int | None:
    """How many elements a slice has, if that is a number or a multiple of ``vscale``."""
    first = as_int(start)
    for begin, extent in ((stop.a, stop.b), (stop.b, stop.a)) if type(stop) is Add else ():
        if begin is start or (first is not None and as_int(begin) == first):
            return found_lanes(extent)
    return found_lanes(stop - start)


def _spread(value: Expr, like: Expr) -> Expr:
    """A value as many times as another one has lanes."""
    lanes = dtypes.lanes_of(like.dtype)
    return Broadcast(value, lanes) if lanes > 1 else value
