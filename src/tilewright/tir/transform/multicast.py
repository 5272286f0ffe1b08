"""Copies that blocks of a cluster make alike, divided among them: each copies a part for all.

A copy of a box of a tensor that doesn't depend on the block's place along an axis of its cluster
brings the same to all blocks along that axis. So each of them copies a part of the rows, to the
same place in the shared memory of all (``cp.async.bulk.tensor`` with ``multicast::cluster``), and
the tensor is read once where it was read by each. What a block waits for stays the same: its
barrier is told of all bytes that come to it, whoever sends them.

``SpecialisePipeline`` uses this; it must wait until all receivers have room.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Call,
    Expr,
    Node,
    Ramp,
    Var,
    as_int,
    call,
    const,
    dtypes,
    floormod,
    free_vars,
    pre_order,
)
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.gpu_ops import tensor_box, tile_at
from tilewright.tir.stmt import For, LetStmt
from tilewright.tir.thread_scope import CLUSTER_TAGS

_ATOM_ROWS = 8
"""Rows after which the permutation of rows repeats, so that a part may begin there."""
_ALIGNMENT = 128
"""Bytes that a box in shared memory is aligned to without a permutation."""
Axes = tuple[int, ...]


class ClusterGrid:
    """The blocks of a kernel's clusters: variables, extents and strides along each axis."""

    def __init__(self, loops: Sequence[For], body: Node, analyzer: Analyzer) -> None:
        by_tag = {loop.thread: loop for loop in loops}
        self.analyzer = analyzer
        self.vars: list[Var] = []
        self.extents: list[int] = []
        for tag in CLUSTER_TAGS:
            loop = by_tag.get(tag)
            extent = None if loop is None else as_int(loop.extent)
            if loop is not None and extent is not None and extent > 1:
                self.vars.append(loop.loop_var)
                self.extents.append(extent)
        self.strides = [prod(self.extents[:n]) for n in range(len(self.extents))]
        self.depends: list[set[Var]] = [{var} for var in self.vars]
        for item in pre_order(body):  # what is outside comes first
            if type(item) is LetStmt:
                self._define(item.var, item.value)
            elif type(item) is For:
                self._define(item.loop_var, item.min, item.extent)

    def _define(self, var: Var, *values: Expr) -> None:
        """A variable depends on what its value, or its range, depends on."""
        used = {item for value in values for item in free_vars(value)}
        private = any(_is_private(value) for value in values)
        for own in self.depends:
            if private or own & used:
                own.add(var)

    def axes_alike(self, *nodes: Node) -> Axes:
        """Axes along which all blocks do the same."""
        used = {var for node in nodes for var in pre_order(node) if type(var) is Var}
        return tuple(n for n, own in enumerate(self.depends) if not own & used)

    def shared(self, copy: Call) -> Call:
        """Return the part of a copy that each block sends to all which it is alike for."""
        axes = self.axes_alike(copy)
        if any(_is_private(box.at) for box in tensor_box(copy)):
            return copy
        parts = prod(self.extents[axis] for axis in axes)
        made = None if parts == 1 else self._part(copy, axes, parts)
        return copy if made is None else made

    def axes_shared(self, copy: Call) -> Axes:
        """Axes along which a copy is divided."""
        return () if self.shared(copy) is copy else self.axes_alike(copy)

    def _part(self, copy: Call, axes: Axes, parts: int) -> Call | None:
        pointer, source, barrier, swizzle, _, *_ = copy.args
        tile, boxes = tile_at(pointer), tensor_box(copy)
        rows = tile.rows // parts
        across = [n for n, box in enumerate(boxes[:-1]) if box.box == tile.rows]
        if tile.down is None or tile.rows % parts or len(across) != 1:
            return None
        permuted = as_int(swizzle) != 0
        size = rows * tile.columns * dtypes.bytes_of(tile.along.buffer.dtype)
        if rows % _ATOM_ROWS if permuted else rows < 2 or size % _ALIGNMENT:
            return None
        number = self._index(axes)
        down, along = list(tile.down.indices), list(tile.along.indices)
        axis = next(n for n, index in enumerate(down) if isinstance(index, Ramp))
        ramp: Any = down[axis]
        if isinstance(along[axis], Ramp):  # rows and columns along one axis
            return None
        along[axis] = self.analyzer.simplify(along[axis] + number * (rows * ramp.stride))
        down[axis] = Ramp(along[axis], ramp.stride, rows)
        buffer = tile.along.buffer
        moved = call("tile_of", BufferLoad(buffer, tuple(down)), BufferLoad(buffer, tuple(along)))
        operands: list[Expr] = []
        for n, box in enumerate(boxes):
            count, at = box.box, box.at
            if n == across[0]:
                count, at = rows, self.analyzer.simplify(at + number * rows)
            operands += [box.size, box.stride, const(count), at]
        made = (moved, source, barrier, swizzle, self._mask(axes), *operands)
        return Call.of_fields(copy.op, made, copy.dtype)

    def _index(self, axes: Axes) -> Expr:
        """The number of a block among those along some axes."""
        index: Expr = const(0)
        step = 1
        for axis in axes:
            index = index + self.vars[axis] * step
            step *= self.extents[axis]
        return index

    def _mask(self, axes: Axes) -> Expr:
        """Bits of the blocks along some axes that are elsewhere where a block is."""
        others = [n for n in range(len(self.vars)) if n not in axes]
        places = product(*(range(self.extents[axis]) for axis in axes))
        bits = sum(
            1 << sum(i * self.strides[axis] for i, axis in zip(place, axes)) for place in places
        )
        if not others:
            return const(bits)
        first: Expr = const(0)
        for axis in others:
            first = first + self.vars[axis] * self.strides[axis]
        return call("shift_left", const(bits), first, dtype="int64")

    def neighbours(self, copies: Sequence[Call]) -> list[Expr]:
        """The numbers of the other blocks that send something to a block: it to them, too."""
        ways = {axes for copy in copies if (axes := self.axes_shared(copy))}
        steps = {
            tuple(own.get(n, 0) for n in range(len(self.vars)))
            for axes in ways
            for place in product(*(range(self.extents[axis]) for axis in axes))
            for own in [dict(zip(axes, place))]
        }
        return [self._number_at(step) for step in sorted(steps) if any(step)]

    def _number_at(self, step: tuple[int, ...]) -> Expr:
        number: Expr = const(0)
        for var, extent, stride, own in zip(self.vars, self.extents, self.strides, step):
            place = floormod(var + own, const(extent, var.dtype)) if own else var
            number = number + place * stride
        return self.analyzer.simplify(number)


def _is_private(value: Expr) -> bool:
    """Whether a value is read from memory that blocks have of their own."""
    return any(
        isinstance(item, BufferLoad) and item.buffer.scope != "global" for item in pre_order(value)
    )
