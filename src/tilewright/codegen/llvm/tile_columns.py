"""Columns of a tile on the stack, by shuffles: the transposition of register tiles.

A vector of elements that lie a row apart is a column of the tile. Reading one column element by
element costs as much as reading all columns together by a network of shuffles, which moves every
element a logarithmic number of times. Shuffles within 128 bits and of whole 128 bits are cheap
everywhere, so the network is made of these: *within*, each group of rows is transposed inside every
128 bits; *across*, whole 128 bits change places.

``tir.transform.transpose_tiles`` transposes, too, and can't be the same: its operands are memory,
so it puts stores that belong together into a new order, proves that they may change places, and
works on 32 bits only, whose vectors all go through registers at once. Here nothing moves but the
reading of a tile at constant places, by elements of any size. Where both apply (tiles of 32 bits on
the stack) they are equally fast; what comes first, the pass, does it.
"""

from __future__ import annotations

from tilewright.codegen.llvm.emits import Emits
from tilewright.codegen.llvm.types import memory_bytes, memory_type
from tilewright.tir import Buffer

# Bytes in which shuffles are cheap, and rows of a tile that fit into the registers.
_LANE_BYTES = 16
_MOST_ROWS = 16
# Fewer rows are read element by element.
_LEAST_ROWS = 4


def tile_column(emitter: Emits, buffer: Buffer, start: int, stride: int, lanes: int) -> str | None:
    """Return elements ``start + stride * i``, for ``i`` below ``lanes``, of a buffer on the stack.

    They have their form in memory. ``None`` if the tile isn't made of whole groups.
    """
    size = emitter.stack_elements.get(buffer.data)
    group = _LANE_BYTES // memory_bytes(buffer.dtype)
    if size is None or group < 2 or lanes < _LEAST_ROWS or stride % group or lanes & (lanes - 1):
        return None
    first, column = start - start % stride, start % stride
    if start < 0 or first + lanes * stride > size:
        return None
    whole = stride == lanes <= _MOST_ROWS
    width = stride if whole else group
    first += 0 if whole else column - column % group
    rows = [_read(emitter, buffer, first + row * stride, width) for row in range(lanes)]
    key = tuple(rows)
    known = emitter.tile_columns.get(key)
    if known is None:
        element = memory_type(buffer.dtype)
        make = _whole_columns if whole else _columns_of_group if lanes >= group else _of_few_rows
        known = emitter.tile_columns[key] = make(emitter, rows, group, element)
    found: str = known[column if whole else column % group]
    return found


def _read(emitter: Emits, buffer: Buffer, at: int, count: int) -> str:
    """Read neighbours; what is read twice stands once."""
    element, data = memory_type(buffer.dtype), emitter.visit(buffer.data)
    pointer = emitter.pure(f"getelementptr {element}, ptr {data}, i64 {at}", data) if at else data
    text = f"load <{count} x {element}>, ptr {pointer}, align {memory_bytes(buffer.dtype)}"
    return str(emitter.memory_read(text, buffer.data, pointer))


def _within(emitter: Emits, rows: list[str], lanes: int, element: str) -> list[str]:
    """Transpose ``len(rows)`` vectors inside each group of ``len(rows)`` lanes."""
    group, half = len(rows), len(rows) // 2
    low = [g + k + side for g in range(0, lanes, group) for k in range(half) for side in (0, lanes)]
    high = [pick + half for pick in low]
    for _ in range(group.bit_length() - 1):
        rows = [
            emitter.pick(rows[i], rows[i + half], lanes, picks, element)
            for i in range(half)
            for picks in (low, high)
        ]
    return rows


def _across(emitter: Emits, rows: list[str], group: int, element: str) -> list[str]:
    """Transpose ``len(rows)`` vectors of as many groups."""
    count, lanes = len(rows), len(rows) * group
    even, odd = (
        [g * group + k for g in range(side, 2 * count, 2) for k in range(group)] for side in (0, 1)
    )
    for _ in range(count.bit_length() - 1):
        rows = [
            emitter.pick(rows[i], rows[i + 1], lanes, picks, element)
            for picks in (even, odd)
            for i in range(0, count, 2)
        ]
    return rows


def _whole_columns(emitter: Emits, rows: list[str], group: int, element: str) -> list[str]:
    """All columns of a square tile whose rows are in registers."""
    lanes = len(rows)
    parts = [
        _within(emitter, rows[first : first + group], lanes, element)
        for first in range(0, lanes, group)
    ]
    columns = [""] * lanes
    for number in range(group):
        for place, column in enumerate(
            _across(emitter, [p[number] for p in parts], group, element)
        ):
            columns[place * group + number] = column
    return columns


def _of_few_rows(emitter: Emits, rows: list[str], group: int, element: str) -> list[str]:
    """The columns in 128 bits of each row, of fewer rows than such a vector has elements."""
    lanes = len(rows)
    columns = _within(emitter, rows + ["poison"] * (group - lanes), group, element)
    return [emitter.pick(c, "poison", group, list(range(lanes)), element) for c in columns]


def _columns_of_group(emitter: Emits, rows: list[str], group: int, element: str) -> list[str]:
    """The columns that lie in 128 bits of each row, which are put together to vectors first."""
    joined = []
    for number in range(group):
        parts, width = rows[number::group], group
        while len(parts) > 1:
            parts = [
                emitter.pick(a, b, width, list(range(2 * width)), element)
                for a, b in zip(parts[::2], parts[1::2])
            ]
            width *= 2
        joined.append(parts[0])
    return _within(emitter, joined, len(rows), element)
