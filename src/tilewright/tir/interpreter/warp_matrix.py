"""What the matrix operators of a warp mean: ``ptx_mma``, ``ldmatrix`` and the fragments of wmma.

The lanes of a warp have arrived together; their fragments become one matrix by the maps of
``tir/fragments.py``, NumPy multiplies, and the result goes back. Products are exact in double
precision (operands have 8, 16 or 19 bits), and sums are rounded once to the accumulator's dtype;
hardware rounds differently within that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.support.errors import RunError
from tilewright.tir.fragments import mma_maps, operand_map

Array = np.ndarray[Any, Any]


class Constant(NamedTuple):
    """What doesn't change about an operand that is memory."""

    name: str
    rows: int
    columns: int
    bytewise: bool
    private: bool
    scope: str
    number: int


class Operand:
    """Memory that one lane brings: a run of elements, or a tile of rows."""

    __slots__ = ("along", "constant", "down", "first", "lane", "loops", "memory")

    def __init__(self, brought: Any, lane: Any) -> None:
        self.memory: Array = brought[0]
        self.first, self.down, self.along = brought[1:4]
        self.constant = Constant(*brought[4])
        self.loops: tuple[int, ...] = brought[5]
        self.lane = lane

    def row_stride(self) -> int:
        """Elements from one row to the next."""
        rows = self.constant.rows
        return int((self.down - self.first) // (rows - 1)) if rows > 1 else 0

    def places(self) -> Array:
        """Places of all elements, rows x columns."""
        rows, columns = self.constant.rows, self.constant.columns
        down = np.arange(rows)[:, None] * self.row_stride()
        made: Array = self.first + down + np.arange(columns)[None, :]
        return made

    def byte(self) -> int:
        """Where the first element lies, in bytes from an aligned address."""
        return int(self.first * self.memory.itemsize)

    def check_aligned(self, size: int, site: str) -> None:
        """Raise ``RunError`` if the first element is at no multiple of ``size`` bytes."""
        if self.byte() % size:
            raise RunError(
                f"thread ({self.lane}) at {site}: element {self.first} of {self.constant.name} is "
                f"{self.byte() % size} bytes after a multiple of {size} bytes, where it must lie"
            )

    def read(self) -> Array:
        """All elements, as rows x columns; the access is noted."""
        places = self.places()
        self.note("read", places)
        made: Array = self.memory[places]
        return made

    def write(self, values: Array) -> None:
        """Store rows x columns of values; the access is noted."""
        places = self.places()
        values = values.astype(self.memory.dtype)
        self.note("write", places, values)
        self.memory[places] = values

    def count(self, places: Array) -> None:
        """Count an access that is noted elsewhere."""
        traffic = None if self.lane is None else self.lane.block.traffic
        if traffic is not None and self.constant.number >= 0:
            number, loops = self.constant.number, self.loops
            if self.constant.rows > 1 and places.ndim > 1:
                traffic.note_tile(self.lane, number, loops, self.memory, places)
            else:
                traffic.note(self.lane, number, loops, self.memory, places.reshape(-1))

    def note(self, access: str, places: Array, values: Array | None = None) -> None:
        """Tell the lane what it accesses."""
        if self.lane is not None and self.lane.follows:
            self.count(places)
            self.lane.touch(access, self, places, values)


def _same(operands: Sequence[Operand], site: str) -> Operand:
    """The operand of all lanes, which must agree."""
    one = operands[0]
    for other in operands[1:]:
        if (other.first, other.down) != (one.first, one.down):
            raise RunError(
                f"lanes of a warp bring different places of {one.constant.name} to {site}: thread "
                f"({one.lane}) element {one.first}, thread ({other.lane}) element {other.first}; "
                "the operator takes one place for the warp"
            )
    return one


def _stacked(operands: Sequence[Operand]) -> Array:
    """Fragments of all lanes: lanes x elements."""
    count = operands[0].constant.columns
    if operands[0].lane.follows:
        return np.concatenate([operand.read() for operand in operands])
    return np.stack([o.memory[o.first : o.first + count] for o in operands])


def _spread(operands: Sequence[Operand], values: Array) -> None:
    """Give each lane its row."""
    count = operands[0].constant.columns
    if operands[0].lane.follows:
        for operand, own in zip(operands, values):
            operand.write(own[None, :])
        return
    for operand, own in zip(operands, values):
        operand.memory[operand.first : operand.first + count] = own


def _column(lanes: Sequence[Any], brought: Sequence[Any], position: int) -> list[Operand]:
    return [Operand(own[position], lane) for lane, own in zip(lanes, brought)]


def _wide(values: Array, kind: str = "") -> Array:
    """Numbers in which products of operands are exact."""
    if kind == "tf32":  # the unit ignores the last 13 bits
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    made: Array = values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)
    return made


def _product(a: Array, b: Array, c: Array, saturate: bool = False) -> Array:
    with np.errstate(all="ignore"):
        if a.dtype.kind == "i":
            total = a @ b + c.astype(np.int64)
            if saturate:
                total = np.clip(total, -(2**31), 2**31 - 1)
            wrapped: Array = total.astype(np.int32)
            return wrapped
        made: Array = (a @ b + c.astype(np.float64)).astype(c.dtype)
        return made


# ---- fragments in registers -------------------------------------------------------------------


def _mma(lanes: Sequence[Any], brought: Sequence[Any], site: str) -> None:
    shape, _, _, a_type, b_type, c_type = brought[0][:6]
    maps = mma_maps(shape, a_type, c_type)
    matrices = []
    for position, name in ((6, "a"), (7, "b"), (8, "c")):
        operands = _column(lanes, brought, position)
        rows, columns = maps[name]
        values = _stacked(operands)
        matrix = np.zeros((int(rows.max()) + 1, int(columns.max()) + 1), values.dtype)
        matrix[rows, columns] = values
        matrices.append(matrix)
    saturate = len(brought[0]) > 9 and bool(brought[0][9])
    a, b = _wide(matrices[0], a_type), _wide(matrices[1], b_type)
    result = _product(a, b, matrices[2], saturate)
    _spread(operands, result[maps["c"]])


def _rows(operands: Sequence[Operand], count: int, site: str) -> list[Operand]:
    """The lanes whose addresses count, after checking them."""
    used = list(operands[: 8 * count])
    for operand in used:
        operand.check_aligned(16, site)
    return used


def _ldmatrix(lanes: Sequence[Any], brought: Sequence[Any], site: str) -> None:
    trans, count = bool(brought[0][0]), brought[0][1]
    used = _rows(_column(lanes, brought, 4), count, site)
    rows = np.concatenate([operand.read() for operand in used]).view(np.uint8)
    words = rows.reshape(count, 8, 16).view(np.uint16)  # matrix, row, column
    if trans:
        words = words.transpose(0, 2, 1)
    # Lane l gets words 2 * (l % 4) and the next of row l // 4, of each matrix.
    own = words.reshape(count, 8, 4, 2).transpose(1, 2, 0, 3).reshape(32, count * 2)
    targets = _column(lanes, brought, 3)
    _spread(targets, np.ascontiguousarray(own).view(targets[0].memory.dtype))


def _stmatrix(lanes: Sequence[Any], brought: Sequence[Any], site: str) -> None:
    trans, count = bool(brought[0][0]), brought[0][1]
    values = np.ascontiguousarray(_stacked(_column(lanes, brought, 4))).view(np.uint16)
    words = values.reshape(8, 4, count, 2).transpose(2, 0, 1, 3).reshape(count, 8, 8)
    if trans:
        words = words.transpose(0, 2, 1)
    rows = np.ascontiguousarray(words).reshape(count * 8, 8)
    for operand, row in zip(_rows(_column(lanes, brought, 3), count, site), rows):
        operand.write(np.ascontiguousarray(row).view(operand.memory.dtype)[None, :])


def _mma_store(lanes: Sequence[Any], brought: Sequence[Any], site: str) -> None:
    m, n = brought[0][:2]
    targets, sources = _column(lanes, brought, 2), _column(lanes, brought, 3)
    tile = _same(targets, site)
    values = _stacked(sources)
    rows, columns = operand_map(m, 8, 32, "c")
    half = rows.shape[1]
    for number in range(n // 8):
        own = values[:, number * half : (number + 1) * half].astype(tile.memory.dtype)
        places = tile.first + rows * tile.row_stride() + columns + 8 * number
        for operand, lane_places, lane_values in zip(targets, places, own):
            operand.note("write", lane_places, lane_values)
            operand.memory[lane_places] = lane_values


# ---- fragments of wmma ------------------------------------------------------------------------


def _check_tile(tile: Operand, site: str) -> None:
    if tile.lane is None:  # not on a GPU yet
        return
    size = tile.memory.itemsize
    tile.check_aligned(min(32, tile.constant.columns * size), site)
    if tile.row_stride() * size % 16:
        raise RunError(
            f"{site}: rows of {tile.constant.name} lie {tile.row_stride() * size} bytes apart, "
            "which must be a multiple of 16"
        )


def _fill(lanes: Sequence[Any], brought: Sequence[Any], site: str) -> None:
    fragment = _same(_column(lanes, brought, 0), site)
    shape = (fragment.constant.rows, fragment.constant.columns)
    fragment.write(np.full(shape, brought[0][4], fragment.memory.dtype))


def _load(lanes: Sequence[Any], brought: Sequence[Any], site: str) -> None:
    fragment, source = (_same(_column(lanes, brought, i), site) for i in (0, 4))
    _check_tile(source, site)
    turned = fragment.constant.scope == "wmma.accumulator" and brought[0][5] == "col_major"
    values = source.read()
    fragment.write(values.T if turned else values)


def _store(lanes: Sequence[Any], brought: Sequence[Any], site: str) -> None:
    fragment, target = (_same(_column(lanes, brought, i), site) for i in (0, 4))
    _check_tile(target, site)
    values = fragment.read()
    target.write(values.T if brought[0][5] == "col_major" else values)


def _mma_sync(lanes: Sequence[Any], brought: Sequence[Any], site: str) -> None:
    d, a, b, c = (_same(_column(lanes, brought, i), site) for i in range(4))
    kind = "tf32" if a.memory.dtype == np.float32 else ""
    left, right = _wide(a.read(), kind), _wide(b.read(), kind)
    left = left.T if brought[0][7] == "col_major" else left
    right = right.T if brought[0][8] == "col_major" else right
    d.write(_product(left, right, c.read()))


WARP_FUNCTIONS: dict[str, Callable[[Sequence[Any], Sequence[Any], str], None]] = {
    "ptx_mma": _mma,
    "ptx_ldmatrix": _ldmatrix,
    "ptx_stmatrix": _stmatrix,
    "mma_store": _mma_store,
    "tvm_fill_fragment": _fill,
    "tvm_load_matrix_sync": _load,
    "tvm_store_matrix_sync": _store,
    "tvm_mma_sync": _mma_sync,
}
"""What the lanes of a warp do together: lanes, what each brings, and the place in the program."""


def run_alone(name: str, site: str, brought: tuple[Any, ...]) -> None:
    """Run an operator of wmma for a thread that stands for its whole warp."""
    WARP_FUNCTIONS[name]([None], [brought], site)
