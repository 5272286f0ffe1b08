"""Where in an image the greatest elements of windows are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.ir import (
    EQ,
    INDEX,
    NE,
    Expr,
    and_,
    as_int,
    compare,
    const,
    if_then_else,
    max_value,
    or_,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor
from tilewright.tir.steps import Steps
from tilewright.topi.nn.pooling import PooledImage, adaptive_windows, lowest, windows_over
from tilewright.topi.nn.spatial import Padding
from tilewright.topi.utils import pair


@dataclass(frozen=True)
class _Along:
    """Windows along an axis: where each begins and ends, and the elements of the largest."""

    begin: Callable[[Expr], Expr]
    size: int
    dilation: int = 1
    end: Callable[[Expr], Expr] | None = None


# Windows of so many elements are compared in one formula.
_FEW_STEPS = 16


def _places_in_steps(
    x: Tensor, windows: Sequence[_Along], out: Sequence[Expr], name: str
) -> Tensor:
    """What ``_places`` gives, element by element of a window, all windows side by side."""
    extents = x.shape[2:]
    small = all((as_int(extent) or 1 << 15) < 1 << 15 for extent in extents)
    kind = "int32" if small and len(extents) < 3 else INDEX
    none = const(-1, kind)

    def formula(*i: Expr) -> Expr:
        n, c, *place = i
        steps = Steps()
        best: Expr = const(lowest(x.dtype), x.dtype)
        found: Expr = none
        begins = [w.begin(p) for w, p in zip(windows, place)]
        for taps in itertools.product(*(range(w.size) for w in windows)):
            at = [b + tap * w.dilation for w, b, tap in zip(windows, begins, taps)]
            inside = [and_(a >= 0, a < extent) for a, extent in zip(at, extents)]
            inside += [a < w.end(p) for w, p, a in zip(windows, place, at) if w.end is not None]
            here = and_(*inside)
            value = steps(if_then_else(here, x(n, c, *at), const(lowest(x.dtype), x.dtype)))
            flat: Expr = const(0)
            for a, extent in zip(at, extents):
                flat = flat * extent + a
            is_nan, was_none = compare(NE, value, value), compare(EQ, found, none)
            better = or_(value > best, and_(is_nan, compare(EQ, best, best)), was_none)
            better = steps(and_(here, better))
            best, found = (
                steps(select(better, value, best)),
                steps(select(better, cast_expr(flat, kind), found)),
            )
        return steps.result(cast_expr(found, INDEX))

    made: Tensor = te.compute((*x.shape[:2], *out), formula, name=name)
    return made


def _places(x: Tensor, windows: Sequence[_Along], out: Sequence[Expr], name: str) -> Tensor:
    """For each window the place of its first greatest element in the image, counted flat.

    NaN is greater than anything.
    """
    if math.prod(w.size for w in windows) <= _FEW_STEPS:
        return _places_in_steps(x, windows, out, name)
    first, second = (
        [te.reduce_axis((0, w.size), f"{letter}{axis}") for axis, w in enumerate(windows)]
        for letter in "rs"
    )
    shape = (*x.shape[:2], *out)

    def read(
        i: Sequence[Expr], steps: Sequence[Any], otherwise: Expr,
        use: Callable[[Expr, Sequence[Expr]], Expr],
    ) -> Expr:  # fmt: skip
        n, c, *place = i
        at = [w.begin(p) + r.var * w.dilation for w, p, r in zip(windows, place, steps)]
        inside = [and_(a >= 0, a < extent) for a, extent in zip(at, x.shape[2:])]
        inside += [a < w.end(p) for w, p, a in zip(windows, place, at) if w.end is not None]
        made: Expr = if_then_else(and_(*inside), use(x(n, c, *at), at), otherwise)
        return made

    def greatest(*i: Expr) -> Expr:
        least = const(lowest(x.dtype), x.dtype)
        made: Expr = te.max(read(i, first, least, lambda value, at: value), axis=first)
        return made

    best = te.compute(shape, greatest, name="greatest")

    def first_of(*i: Expr) -> Expr:
        def place(value: Expr, at: Sequence[Expr]) -> Expr:
            flat: Expr = const(0)
            for a, extent in zip(at, x.shape[2:]):
                flat = flat * extent + a
            found = compare(EQ, value, best(*i))
            return select(or_(found, compare(NE, value, value)), flat, max_value(INDEX))

        made: Expr = te.min(read(i, second, max_value(INDEX), place), axis=second)
        return made

    made: Tensor = te.compute(shape, first_of, name=name)
    return made


def places_of_maxima(
    x: Tensor, along: Sequence[tuple[int, int, int, int]], out: Sequence[Expr]
) -> Tensor:
    """Where in its image each of ``out`` windows' maximum is.

    Windows have a stride, padding before, a size and a dilation along each axis.
    """
    windows = [
        _Along(lambda p, s=step, b=before: p * s - b, size, reach)  # type: ignore[misc]
        for step, before, size, reach in along
    ]
    return _places(x, windows, out, "max_pool_places")


def max_pool_places(
    x: Tensor,
    pool_size: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return where in its image ``[...]`` of ``x [N, C, ...]``, counted flat, each maximum is.

    Options are as of :func:`max_pool2d`; the result is int64. Of equal elements it is the first.
    """
    image = PooledImage.of("max", x, x.ndim - 2)
    w = windows_over(image, pool_size, strides, padding, dilation, ceil_mode)
    along = list(zip(w.stride, w.before, w.kernel, w.dilation))
    return places_of_maxima(x, along, w.out)


def adaptive_max_pool_places(x: Tensor, output_size: int | Sequence[int]) -> Tensor:
    """Return where in its image the maximum of each window of an adaptive pool is; int64."""
    spatial = x.ndim - 2
    size = pair(output_size, spatial, "output_size")
    extents = [as_int(extent) for extent in x.shape[2:]]
    if any(extent is None for extent in extents):
        raise VerifyError(f"adaptive_max_pool: extents must be constant, got {list(x.shape[2:])}")
    along = []
    for extent, count in zip(extents, size):
        n = int(extent or 0)
        longest = max(end - begin for begin, end in adaptive_windows(n, count))
        along.append(
            _Along(
                lambda p, n=n, c=count: p * n // c,  # type: ignore[misc]
                longest,
                end=lambda p, n=n, c=count: (p * n + n + c - 1) // c,  # type: ignore[misc]
            )
        )
    return _places(x, along, [const(count) for count in size], "adaptive_max_pool_places")
