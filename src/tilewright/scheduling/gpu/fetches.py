"""Which neighbours of a tile lie side by side where an operand comes from, so that vectors move.

An operand may be read through quotients and remainders: the channels of a window of an image lie
side by side, but windows don't. What matters is what is inside of a vector: if the axis is taken
apart into aligned vectors and their elements, elements must follow each other, and every condition
(padding, the end of a sum) must be the same for all of them.

Where no vectors move, neighbouring threads should still fetch neighbouring elements: most pixels of
an image have a neighbour in memory, also where they are rows of a matrix of windows.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from tilewright.arith import Analyzer, NotEvaluable, evaluate
from tilewright.ir import (
    Call,
    Expr,
    Range,
    Var,
    as_int,
    collect,
    dtypes,
    free_vars,
    substitute,
    uses_var,
)
from tilewright.scheduling.blocks import loads_of, stride_of
from tilewright.scheduling.gpu.elementwise import VECTOR_BYTES
from tilewright.scheduling.gpu.roofs import SECTOR_BYTES
from tilewright.tir import Block, BufferLoad, IterVar

_SAMPLE = 512
"""Elements along an axis that are looked at."""
_WARP = 32
_SIZE = 1 << 10
"""What sizes of the call are taken to be, then."""


def is_contiguous(block: Block, axis: int) -> bool:
    """Whether neighbours along an axis of a copy are neighbours where they come from.

    Those in windows are, if they are so by aligned vectors.
    """
    var = block.iter_vars[axis].var
    strides = [stride_of(load.indices, load.buffer, var) for load in loads_of(block)]
    if None in strides:
        return _vector(block, axis, _most_lanes(block)) > 1
    return 1 in strides and all(step in (0, 1) for step in strides)


def is_turned(block: Block) -> bool:
    """Whether a tile's copy goes along its rows (axis 1), not along what is summed over (axis 2).

    Along the axis that vectors lie along, else the one along which a warp reads fewer sectors.
    Single bytes are not turned for that: tensor cores read them along the sum.
    """
    if is_contiguous(block, 2):
        return False
    if is_contiguous(block, 1):
        return True
    if any(dtypes.bits_of(load.buffer.dtype) < 16 for load in loads_of(block)):
        return False
    return _sectors(block, 1) < _sectors(block, 2)


def are_rows_neighbours(block: Block) -> bool:
    """Whether neighbours in memory are rows of a tile (axis 1), but can't be stored as such.

    Elements come one by one, or bytes, which are never turned.
    """
    if is_contiguous(block, 2) or _sectors(block, 1) >= _sectors(block, 2):
        return False
    bits = max(dtypes.bits_of(load.buffer.dtype) for load in loads_of(block))
    return bits < 16 or not is_contiguous(block, 1)


def _sectors(block: Block, axis: int) -> float:
    """Sectors of memory for each element that a warp along an axis reads, in the worst load."""
    var, extent = block.iter_vars[axis].var, as_int(block.iter_vars[axis].dom.extent)
    moving = [load for load in loads_of(block) if uses_var(load, {var})]
    along = np.arange(min(extent or _SAMPLE, _SAMPLE))
    if not moving or len(along) < 2:
        return 1.0
    others = {item.var: 0 for item in block.iter_vars}
    return max(_sectors_of_one(load, {**others, var: along}) for load in moving)


def _sectors_of_one(load: BufferLoad, values: dict[Var, object]) -> float:
    place: Any = 0
    parts = (*load.indices, *load.buffer.shape)
    known = {var: _SIZE for part in parts for var in free_vars(part)}
    try:
        for index, extent in zip(load.indices, load.buffer.shape):
            size, at = (evaluate(expr, {**known, **values}) for expr in (extent, index))
            place = place * size + at
    except NotEvaluable:
        return 1.0
    if not np.ndim(place):
        return 1.0
    sectors = place * dtypes.bits_of(load.buffer.dtype) // (8 * SECTOR_BYTES)
    warps = range(0, len(sectors), _WARP)
    return sum(len(np.unique(sectors[n : n + _WARP])) for n in warps) / len(sectors)


def fetch_lanes(block: Block, axis: int, run: int, each: int) -> int:
    """Elements along an axis that one load brings: a power of two, divides ``run`` and ``each``.

    They are side by side and aligned, and on one side of every condition.
    """
    most = gcd(_most_lanes(block), run, each) if each else 1
    return _vector(block, axis, most)


def _most_lanes(block: Block) -> int:
    bits = max(dtypes.bits_of(load.buffer.dtype) for load in loads_of(block))
    return max(1, 8 * VECTOR_BYTES // bits)


def _vector(block: Block, axis: int, most: int) -> int:
    """The most elements of an aligned vector along an axis, at most so many; 1 if there is none."""
    lanes = most
    while lanes > 1 and not _is_vector(block, block.iter_vars[axis], lanes):
        lanes //= 2
    return lanes


def _is_vector(block: Block, axis: IterVar, lanes: int) -> bool:
    """Whether so many aligned elements along an axis are one vector in memory."""
    analyzer, extent = Analyzer(), as_int(axis.dom.extent)
    for item in block.iter_vars:
        if item is not axis:
            analyzer.bind(item.var, item.dom)
    vector, lane = Var("vector", axis.var.dtype), Var("lane", axis.var.dtype)
    analyzer.limit(vector, 0, None if extent is None else -(-extent // lanes) - 1)
    analyzer.bind(lane, Range(0, lanes))

    def apart(expr: Expr) -> Expr:
        return analyzer.simplify(substitute(expr, {axis.var: vector * lanes + lane}))

    for call in collect(block.body, Call):
        if call.op.name == "if_then_else" and uses_var(apart(call.args[0]), {lane}):
            return False
    moving = [load for load in loads_of(block) if uses_var(load, {axis.var})]
    for load in moving:
        rows, last, length = _split_place(load, axis.var)
        first = analyzer.simplify(apart(last) - lane)
        if length is None or any(uses_var(index, {lane}) for index in (*map(apart, rows), first)):
            return False
        start = analyzer.modular_set(first)
        if gcd(length, start.coeff, start.base) % lanes:
            return False
    return bool(moving)


def _split_place(load: BufferLoad, var: Var) -> tuple[list[Expr], Expr, int | None]:
    """Take the indices of a load apart: those that an axis doesn't move, and the place inside.

    The last dimensions, in which it moves, are one; also returns how long that is. ``None`` where
    it isn't known, or rows of the buffer are not one after the other.
    """
    shape = [as_int(extent) for extent in load.buffer.shape]
    outer = next(n for n, index in enumerate(load.indices) if uses_var(index, {var}))
    place, length = load.indices[outer], shape[outer]
    for index, extent in zip(load.indices[outer + 1 :], shape[outer + 1 :]):
        if extent is None:
            return [], place, None
        place = place * extent + index
        length = None if length is None else length * extent
    if outer == len(shape) - 1 or not load.buffer.strides:
        return list(load.indices[:outer]), place, length
    return [], place, None
