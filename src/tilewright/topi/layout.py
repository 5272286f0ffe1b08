"""Layouts of images and filters by name: ``NCHW``, ``NCHW16c``, ``OIHW``, ``OIHW16i16o``.

A capital letter is an axis, a number and a small letter a block of that axis which is stored as a
dimension of its own: channel ``c`` of ``NCHW16c`` is element ``c % 16`` of block ``c // 16``.
Operators take such names as attributes, and graph passes turn one layout into another by the map
between their indices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arith import simplify
from tilewright.ir import FALSE, Expr, ExprLike, as_expr, as_int, const, if_then_else, substitute
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute
from tilewright.tir import IndexMap
from tilewright.tir.attrs import SCHEDULE_RULE

_AXIS = re.compile(r"([A-Z])|([1-9][0-9]*)([a-z])")


@dataclass(frozen=True)
class Layout:
    """The dimensions of a tensor: pairs of an axis (a capital) and 0, or the size of its block."""

    name: str
    dims: tuple[tuple[str, int], ...]

    @property
    def axes(self) -> str:
        """The axes without their blocks, in the order of their dimensions."""
        return "".join(axis for axis, size in self.dims if not size)

    @property
    def ndim(self) -> int:
        """How many dimensions a tensor of this layout has."""
        return len(self.dims)

    def block(self, axis: str) -> int:
        """The size of an axis' block; 1 if it has none."""
        return next((size for name, size in self.dims if name == axis and size), 1)

    def dimension(self, axis: str) -> int:
        """The dimension of an axis; of a blocked one, the dimension that counts its blocks."""
        return self.dims.index((axis, 0))

    def blocked(self, **blocks: int) -> Layout:
        """The same axes, followed by these blocks: ``NCHW`` with ``C=16`` is ``NCHW16c``."""
        return layout_of(
            self.axes + "".join(f"{size}{axis.lower()}" for axis, size in blocks.items())
        )

    def indices(self, place: dict[str, Any]) -> tuple[Any, ...]:
        """Indices of the element at a position, given by axis."""
        made = []
        for axis, size in self.dims:
            whole = self.block(axis)
            made.append(place[axis] % size if size else _quotient(place[axis], whole))
        return tuple(made)

    def shape(self, extents: dict[str, Any]) -> tuple[Any, ...]:
        """Extents of the dimensions, given those of the axes, which blocks must divide.

        Raises ``VerifyError`` if they don't.
        """
        for axis, size in self.dims:
            extent = as_int(as_expr(extents[axis]))
            if size and (extent is None or extent % size):
                raise VerifyError(
                    f"layout {self.name}: blocks of {size} do not divide the extent "
                    f"{extents[axis]} of axis {axis}"
                )
        return tuple(
            size if size else _quotient(extents[axis], self.block(axis)) for axis, size in self.dims
        )

    def extents(self, shape: Sequence[Any]) -> dict[str, Any]:
        """Extents of the axes, given those of the dimensions.

        Raises ``VerifyError`` if they don't fit the layout.
        """
        if len(shape) != self.ndim:
            raise VerifyError(f"layout {self.name} has {self.ndim} dimensions, got {list(shape)}")
        for extent, (axis, size) in zip(shape, self.dims):
            if size and as_int(as_expr(extent)) != size:
                raise VerifyError(f"layout {self.name}: the block of {axis} has extent {extent}")
        return {
            axis: extent if self.block(axis) == 1 else simplify(extent * self.block(axis))
            for extent, (axis, size) in zip(shape, self.dims)
            if not size
        }

    def map_to(self, other: Layout) -> IndexMap:
        """The map from indices in this layout to those in another one of the same axes.

        Raises ``VerifyError`` if the axes differ.
        """
        if sorted(self.axes) != sorted(other.axes):
            raise VerifyError(f"layouts {self.name} and {other.name} have different axes")

        def mapped(*index: Expr) -> tuple[Expr, ...]:
            place: dict[str, Any] = {}
            for position, (axis, size) in enumerate(self.dims):
                if not size:
                    place[axis] = index[position]
            for position, (axis, size) in enumerate(self.dims):
                if size:
                    place[axis] = place[axis] * size + index[position]
            indices: tuple[Expr, ...] = other.indices(place)
            return indices

        return IndexMap.from_func(mapped, self.ndim)

    def transform(self, array: NDArray[Any], other: Layout) -> NDArray[Any]:
        """Convert an array to another layout."""
        extents = self.extents(array.shape)
        order = [self.dims.index(item) for item in _split_dims(self)]
        plain = array.transpose(order).reshape([int(extents[axis]) for axis in self.axes])
        split: list[int] = []
        for axis in self.axes:
            size = other.block(axis)
            other.shape(extents)  # refuses what blocks don't divide
            split += [extents[axis]] if size == 1 else [extents[axis] // size, size]
        names = [(axis, part) for axis in self.axes for part in (0, other.block(axis)) if part != 1]
        cut = plain.reshape(split).transpose([names.index(item) for item in other.dims])
        return np.ascontiguousarray(cut)


def _split_dims(layout: Layout) -> list[tuple[str, int]]:
    """The dimensions with each axis followed by its block."""
    made = []
    for axis in layout.axes:
        made.append((axis, 0))
        if layout.block(axis) != 1:
            made.append((axis, layout.block(axis)))
    return made


def is_in_blocks(extent: int | None, size: int) -> bool:
    """Whether an axis of this extent consists of whole blocks; false if it is unknown or 0."""
    return bool(extent) and (extent or 0) % size == 0


def _quotient(value: ExprLike, size: int) -> ExprLike:
    return value if size == 1 else value // size


@cache
def layout_of(name: str) -> Layout:
    """Parse the name of a layout.

    Raises ``VerifyError`` if it is invalid.
    """
    dims: list[tuple[str, int]] = []
    position = 0
    for match in _AXIS.finditer(name):
        if match.start() != position:
            break
        axis, size, block = match.groups()
        dims.append((axis, 0) if axis else (block.upper(), int(size)))
        position = match.end()
    axes = [axis for axis, size in dims if not size]
    blocks = [axis for axis, size in dims if size]
    valid = position == len(name) and axes and len(set(axes)) == len(axes)
    if not valid or len(set(blocks)) != len(blocks) or not set(blocks) <= set(axes):
        raise VerifyError(
            f"{name!r} is no layout: it takes capitals for axes and a number with a small letter "
            "for each block, as in NCHW16c"
        )
    if any(size == 1 for _, size in dims):
        raise VerifyError(f"{name!r} is no layout: blocks of 1 are none")
    return Layout(name, tuple(dims))


def image_layout(what: str, name: str, axes: str = "NCHW") -> Layout:
    """Parse the layout of a channel-first image: its axes in order, possibly blocks of channels.

    Raises ``VerifyError`` for other layouts.
    """
    made = layout_of(name)
    if made.axes != axes or any(axis != axes[1] and size for axis, size in made.dims):
        raise VerifyError(
            f"{what}: layout {name!r} is not supported, only {axes} and {axes}<n>{axes[1].lower()}"
        )
    return made


def layout_transform(
    array: Tensor, src_layout: str, dst_layout: str, schedule_rule: str = "None"
) -> Tensor:
    """Rearrange a tensor from one layout by name into another.

    ``schedule_rule`` names a registered rule for its block (the annotation ``schedule_rule``).

    Raises ``VerifyError`` if the layouts have different axes, or blocks don't divide their axis.
    """
    source, target = layout_of(src_layout), layout_of(dst_layout)
    target.shape(source.extents(array.shape))
    attrs = {} if schedule_rule == "None" else {SCHEDULE_RULE: schedule_rule}
    return map_layout(array, source.map_to(target), attrs=attrs)


def map_layout(
    x: Tensor,
    index_map: IndexMap | str,
    pad_value: float | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Tensor:
    """Rearrange elements by an index map; padding gets ``pad_value``.

    Raises ``VerifyError`` if there is padding and no ``pad_value``.
    """
    made = IndexMap.from_text(index_map) if isinstance(index_map, str) else index_map
    inverse, padding = made.non_surjective_inverse(x.shape)
    if padding is not FALSE and pad_value is None:
        raise VerifyError(
            f"layout_transform: {made.to_text()} adds padding to the shape {list(x.shape)}: "
            "state pad_value"
        )

    def formula(*index: Expr) -> Expr:
        value = x(*inverse.map_indices(index))
        if padding is FALSE:
            return value
        absent = substitute(padding, dict(zip(inverse.initial_indices, index)))
        return if_then_else(absent, const(pad_value or 0, x.dtype), value)

    result: Tensor = compute(
        made.map_shape(x.shape), formula, name="layout_transform", tag="injective", attrs=attrs
    )
    return result
