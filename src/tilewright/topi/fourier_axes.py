"""Fourier transforms along any axis of a tensor, whose length is known.

Along the last axis each row is transformed by itself. Along another one neighbouring columns are
transformed together, in the lanes of vectors; a last stage puts them side by side again::

    [before, n, between, columns] ──> stages, rows [before, between, groups] ──> [before, m, between, columns]
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.ir import EQ, Expr, Var, as_expr, compare, const, select
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, extern
from tilewright.tir import Buffer, Stmt, seq
from tilewright.tir.building import Axis, block, load, loop, store
from tilewright.topi.butterflies import Complex, negative, rotated
from tilewright.topi.fourier import STAGE, Parts, Source, Transform, of_parts, turns_of
from tilewright.topi.fourier_chirps import transform_any
from tilewright.topi.fourier_columns import Columns
from tilewright.topi.fourier_real import Spectra
from tilewright.topi.utils import normal_axis, sum_dtype

_LINE = 512
"""Bits of columns that are transformed together: those of a cache line."""
_WIDTHS = {"float32": 32, "float64": 64}


def transform_axis(parts: Parts, axis: int, length: int, sign: float, scale: float) -> Parts:
    """Transform complex numbers along an axis of so many elements."""
    where = _Place.of(parts[0], axis)
    what = Transform((), sign, where.dtype, scale, where.lanes)
    if where.columns is None:
        what = what._replace(result=where.result_dtype)
        return transform_any(of_parts(parts, where.dtype), where.rows, length, what)
    made = transform_any(_moved(of_parts(parts, where.dtype), where), where.rows, length, what)

    def element(buffers: Sequence[Buffer], at: _At, f: Expr) -> tuple[list[Expr], list[Stmt]]:
        return list(at(buffers, f)), []

    re, im = where.finished("fourier", made, (), length, element, 2)
    return re, im


def transform_real_axis(x: Tensor, axis: int, length: int, scale: float) -> Parts:
    """Transform real numbers along an axis to the first ``length // 2 + 1`` frequencies."""
    where = _Place.of(x, axis)
    spectra = Spectra(length, where.dtype, scale)
    paired = spectra.is_paired
    what = Transform((), -1.0, where.dtype, 1.0, where.lanes, cyclic=paired)

    def pair(buffers: Sequence[Buffer], *place: Expr) -> Complex:
        def at(k: Expr) -> Expr:
            return cast_expr(load(buffers[0], *where.source(place, k)), where.dtype)

        k = place[where.axis_of_rows]
        return (at(2 * k), at(2 * k + 1)) if paired else (at(k), const(0.0, where.dtype))

    count = length // 2 if paired else length
    made = transform_any(Source((x,), pair), where.rows, count, what)

    def element(buffers: Sequence[Buffer], at: _At, f: Expr) -> tuple[list[Expr], list[Stmt]]:
        value, lets = spectra.element(lambda k: at(buffers, k), f, length // 2 + 1, buffers[2:])
        return list(value), lets

    frequencies = length // 2 + 1
    re, im = where.finished("spectra", made, spectra.turns(), frequencies, element, 2)
    return re, im


def transform_to_real_axis(parts: Parts, axis: int, length: int, scale: float) -> Tensor:
    """Transform the first ``length // 2 + 1`` frequencies along an axis to ``length`` real numbers.

    An even length is two axes of the result: ``length // 2``, and 2. The exponent is positive.
    Imaginary parts of what is its own conjugate don't count.
    """
    where = _Place.of(parts[0], axis)
    paired, half = length % 2 == 0, length // 2
    count = half if paired else length
    turns = turns_of(length, 1.0, where.dtype, half) if paired else ()
    what = Transform((), 1.0, where.dtype, scale, where.lanes)

    def frequency(buffers: Sequence[Buffer], *place: Expr) -> Complex:
        k = place[where.axis_of_rows]

        def at(number: Expr) -> Complex:
            place_of = where.source(place, number)
            re, im = (cast_expr(load(b, *place_of), where.dtype) for b in buffers[:2])
            return re, select(compare(EQ, k, 0), const(0.0, where.dtype), im)

        if not paired:
            re, im = at(select(k > half, length - k, k))
            return re, select(k > half, negative(im), im)
        a, b = at(k), at(half - k)
        even = a[0] + b[0], a[1] - b[1]
        odd = rotated((a[0] - b[0], a[1] + b[1]), *(load(t, k) for t in buffers[2:]))
        return even[0] - odd[1], even[1] + odd[0]

    made = transform_any(Source((*parts, *turns), frequency), where.rows, count, what)

    def element(buffers: Sequence[Buffer], at: _At, n: Expr) -> tuple[list[Expr], list[Stmt]]:
        re, im = at(buffers, n)
        return [re, im] if paired else [re], []

    (found,) = where.finished("signal", made, (), count, element, 1, paired)
    return found


_At = Callable[[Sequence[Buffer], Expr], Complex]
"""An element of what the stages gave, for one row or column."""


class _Place(NamedTuple):
    """Where the elements of an axis are, and what is transformed together."""

    before: tuple[Expr, ...]
    between: tuple[Expr, ...]
    columns: Columns | None
    dtype: str
    """Of sums."""
    result_dtype: str

    @staticmethod
    def of(x: Tensor, axis: int) -> _Place:
        at, dtype = normal_axis(axis, x.ndim), sum_dtype(x.dtype)
        shape = tuple(map(as_expr, x.shape))
        if at == x.ndim - 1:
            return _Place(shape[:at], (), None, dtype, x.dtype)
        columns = Columns(shape[-1], _LINE // _WIDTHS[dtype])
        return _Place(shape[:at], shape[at + 1 : -1], columns, dtype, x.dtype)

    @property
    def lanes(self) -> int:
        return 1 if self.columns is None else self.columns.together

    @property
    def rows(self) -> tuple[Expr, ...]:
        groups = () if self.columns is None else (self.columns.groups,)
        return (*self.before, *self.between, *groups)

    @property
    def axis_of_rows(self) -> int:
        """Where the axis is in the place of an element of rows."""
        return len(self.rows)

    def source(self, place: Sequence[Expr], k: Expr) -> tuple[Expr, ...]:
        """Where element ``k`` of a row is in the tensor."""
        count = len(self.before)
        if self.columns is None:
            return (*place[:count], k)
        group = place[self.axis_of_rows - 1]
        column = self.columns.read(group, place[-1] if self.lanes > 1 else None)
        return (*place[:count], k, *place[count : self.axis_of_rows - 1], column)

    def finished(
        self,
        name: str,
        made: Parts,
        tables: Sequence[Tensor],
        count: int,
        element: Callable[..., tuple[list[Expr], list[Stmt]]],
        outputs: int,
        paired: bool = False,
    ) -> list[Tensor]:
        """The last stage, in the order of results: ``count`` elements, or ``[count, 2]``."""
        lanes, split, dtype = self.lanes, len(self.before), self.result_dtype

        def body(operands: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
            def one(*place: Var) -> Stmt:
                row, f = place[: len(self.rows)], place[len(self.rows)]

                def write(column: Expr | None, lane: Expr, _: bool) -> Stmt:
                    def at(buffers: Sequence[Buffer], k: Expr) -> Complex:
                        re, im = (load(b, *row, k * lanes + lane) for b in buffers[:2])
                        return re, im

                    values, lets = element(operands, at, f)
                    values = [cast_expr(value, dtype) for value in values]

                    def put(out: Buffer, value: Expr, *k: Expr) -> Stmt:
                        if column is None:
                            return store(out, value, *row, *k)
                        return store(out, value, *row[:split], *k, *row[split:-1], column)

                    if not paired:
                        return seq(*lets, *(put(o, v, f) for o, v in zip(outs, values)))

                    def give(part: Expr) -> Stmt:
                        return put(outs[0], select(compare(EQ, part, 0), *values), f, part)

                    if column is None:
                        return seq(*lets, loop("part", 2, give))
                    return seq(*lets, *(give(const(part)) for part in range(2)))

                if self.columns is None:
                    return write(None, const(0), True)
                return self.columns.written(row[-1], place[-1], write)

            extents: list[Expr | int] = [*self.rows, count]
            if self.columns is not None:
                extents.append(lanes)
            axes = [Axis(f"i{n}", extent) for n, extent in enumerate(extents)]
            return block(name, axes, one, (), {STAGE: len(self.rows)})

        extents = (as_expr(count), as_expr(2)) if paired else (as_expr(count),)
        columns = () if self.columns is None else (*self.between, self.columns.number)
        shape = (*self.before, *extents, *columns)
        found: list[Tensor] = extern(
            [shape] * outputs, [*made, *tables], body, dtype=[dtype] * outputs, name=name
        )
        return found if isinstance(found, list) else [found]


def _moved(source: Source, where: _Place) -> Source:
    """Read columns from where they are."""

    def element(buffers: Sequence[Buffer], *place: Expr) -> Complex:
        return source.element(buffers, *where.source(place, place[where.axis_of_rows]))

    return Source(source.tensors, element)
