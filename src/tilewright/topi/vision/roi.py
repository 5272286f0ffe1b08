"""Regions of images as grids of one size: ``roi_align`` and ``roi_pool``.

How many pixels a cell is made of depends on the region, so cells are loops over these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import (
    INDEX,
    Expr,
    Var,
    and_,
    call,
    cast,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.te import Tensor, extern, require_equal, with_conditions
from tilewright.tir import Buffer, Stmt, decl_buffer, seq
from tilewright.tir.building import Axis, block, let, load, loop, store
from tilewright.topi.layout import layout_of
from tilewright.topi.utils import pair, require_elements, require_ndim


@with_conditions
def _regions(
    what: str,
    data: Tensor,
    rois: Tensor,
    pooled_size: int | Sequence[int],
    layout: str,
    cell: Callable[..., Stmt],
) -> Tensor:
    """A result of cells; ``cell`` gives the statement that leaves one in its ``total``."""
    if layout not in ("NCHW", "NHWC"):
        raise VerifyError(f"{what}: layout is 'NCHW' or 'NHWC', got {layout!r}")
    require_ndim(what, data, 4)
    require_ndim(what, rois, 2)
    require_equal(f"{what}: numbers of a region", rois.shape[1], 5)
    x = layout_of(layout)
    image = x.extents(data.shape)
    require_elements(what, image["N"], rois.shape[0])
    rows, columns = pair(pooled_size, 2, "pooled_size")
    wide = "float64" if data.dtype == "float64" else "float32"
    extents = {"N": rois.shape[0], "C": image["C"], "H": const(rows), "W": const(columns)}
    order = [(axis, extents[axis]) for axis in layout]

    def body(sources: Sequence[Buffer], results: Sequence[Buffer]) -> Stmt:
        pixels, regions = sources
        total = decl_buffer((1,), wide, "total", scope="local")

        def one(*at: Var) -> Stmt:
            place = dict(zip(layout, at))
            last = image["N"] - 1
            number = cast(load(regions, place["N"], 0), INDEX)
            batch = maximum(minimum(number, last), 0)

            def pixel(row: Expr, column: Expr) -> Expr:
                index = x.indices({"N": batch, "C": place["C"], "H": row, "W": column})
                return cast(load(pixels, *index), wide)

            corners = [cast(load(regions, place["N"], n), wide) for n in (2, 1, 4, 3)]
            sizes = [image["H"], image["W"]]
            return seq(
                cell(pixel, corners, sizes, (place["H"], place["W"]), total),
                store(results[0], cast(load(total, 0), data.dtype), *at),
            )

        return block(what, [Axis(axis.lower(), extent) for axis, extent in order], one, [total])

    shape = tuple(extent for _, extent in order)
    made: tuple[Tensor, ...] = extern([shape], [data, rois], body, dtype=[data.dtype], name=what)
    return made[0] if isinstance(made, (tuple, list)) else made


def _align(
    data: Tensor, rois: Tensor, pooled_size: int | Sequence[int], spatial_scale: float,
    mode: str | bytes, sample_ratio: int, aligned: bool, layout: str,
) -> Tensor:  # fmt: skip
    kind = mode.decode() if isinstance(mode, bytes) else mode
    if kind not in ("avg", "max"):
        raise VerifyError(f"roi_align: mode is 'avg' or 'max', got {mode!r}")
    pooled = pair(pooled_size, 2, "pooled_size")
    largest = kind == "max"

    def cell(
        pixel: Callable[[Expr, Expr], Expr], corners: Sequence[Expr], sizes: Sequence[Any],
        place: Sequence[Expr], total: Buffer,
    ) -> Stmt:  # fmt: skip
        wide = total.dtype

        def number(value: float) -> Expr:
            return const(float(value), wide)

        begin, end = (
            [corner * number(spatial_scale) for corner in side]
            for side in (corners[:2], corners[2:])
        )
        span = [b - a for a, b in zip(begin, end)]
        if not aligned:
            span = [maximum(extent, number(1.0)) for extent in span]
        step = [extent / number(count) for extent, count in zip(span, pooled)]
        if sample_ratio > 0:
            counts: list[Expr] = [const(sample_ratio)] * 2
        else:
            counts = [cast(call("ceil", extent), INDEX) for extent in step]

        def sampled(i: Var, j: Var) -> Stmt:
            at = [
                first + cast(p, wide) * size
                + (cast(s, wide) + number(0.5)) * size / cast(count, wide)
                for first, p, size, s, count in zip(begin, place, step, (i, j), counts)
            ]  # fmt: skip
            value = _linear(pixel, at, sizes, wide)
            old = load(total, 0)
            return store(total, maximum(old, value) if largest else old + value, 0)

        start = number(-math.inf if largest else 0.0)
        count = cast(maximum(counts[0] * counts[1], 1), wide)
        samples = loop("i", counts[0], lambda i: loop("j", counts[1], lambda j: sampled(i, j)))
        empty = counts[0] * counts[1] <= 0
        old = load(total, 0)
        result = select(empty, number(0.0), old) if largest else old / count
        return seq(store(total, start, 0), samples, store(total, result, 0))

    return _regions("roi_align", data, rois, pooled_size, layout, cell)


def _linear(
    pixel: Callable[[Expr, Expr], Expr], at: Sequence[Expr], sizes: Sequence[Any], wide: str
) -> Expr:
    """The image at a place; zero further than a pixel outside."""
    zero, one = const(0.0, wide), const(1.0, wide)
    inside = and_(*(
        condition
        for p, size in zip(at, sizes)
        for condition in (p >= const(-1.0, wide), p <= cast(size, wide))
    ))  # fmt: skip
    low, high, part = [], [], []
    for p, size in zip(at, sizes):
        place = maximum(p, zero)
        first = minimum(cast(place, INDEX), size - 1)
        low.append(maximum(first, 0))
        high.append(maximum(minimum(first + 1, size - 1), 0))
        part.append(minimum(place, cast(size - 1, wide)) - cast(first, wide))
    top = pixel(low[0], low[1]) * (one - part[1]) + pixel(low[0], high[1]) * part[1]
    bottom = pixel(high[0], low[1]) * (one - part[1]) + pixel(high[0], high[1]) * part[1]
    return select(inside, top * (one - part[0]) + bottom * part[0], zero)


def roi_align(
    data: Tensor,
    rois: Tensor,
    pooled_size: int | Sequence[int],
    spatial_scale: float,
    mode: str | bytes = "avg",
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: str = "NCHW",
) -> Tensor:
    """Give regions of images as grids of ``pooled_size`` cells, by samples between pixels.

    ``rois [R, 5]`` has the image's number, left, top, right and bottom, which ``spatial_scale``
    turns into pixels. Regions are at least a pixel large, unless ``aligned``; as in TVM, they are
    not moved by half a pixel then (subtract ``0.5 / spatial_scale`` for PyTorch's). A cell is the
    mean (``mode="avg"``) or maximum of ``sample_ratio`` squared samples; -1 takes as many as
    there are pixels. Algorithm: He et al., Mask R-CNN (2017).

    Raises ``VerifyError`` for other modes and layouts, and shapes that don't fit.
    """
    return _align(data, rois, pooled_size, spatial_scale, mode, sample_ratio, aligned, layout)


def _roi_align_in(layout: str, doc: str) -> Callable[..., Tensor]:
    def roi_align(
        data: Tensor,
        rois: Tensor,
        pooled_size: int | Sequence[int],
        spatial_scale: float,
        mode: str | bytes,
        sample_ratio: int = -1,
        aligned: bool = False,
    ) -> Tensor:
        return _align(data, rois, pooled_size, spatial_scale, mode, sample_ratio, aligned, layout)

    return named(roi_align, f"roi_align_{layout.lower()}", doc)


roi_align_nchw = _roi_align_in("NCHW", ":func:`roi_align` of images ``[N, C, H, W]``.")
roi_align_nhwc = _roi_align_in(
    "NHWC",
    ":func:`roi_align` of images ``[N, H, W, C]``; the result has its channels last too.",
)


def roi_pool(
    data: Tensor,
    rois: Tensor,
    pooled_size: int | Sequence[int],
    spatial_scale: float,
    layout: str = "NCHW",
) -> Tensor:
    """Give the maxima of regions' cells, whose edges are rounded to pixels.

    ``rois`` are as of :func:`roi_align`. Cells outside of the image are zero. Algorithm: Girshick,
    Fast R-CNN (2015).

    Raises ``VerifyError`` for other layouts, and shapes that don't fit.
    """
    pooled = pair(pooled_size, 2, "pooled_size")

    def cell(
        pixel: Callable[[Expr, Expr], Expr], corners: Sequence[Expr], sizes: Sequence[Any],
        place: Sequence[Expr], total: Buffer,
    ) -> Stmt:  # fmt: skip
        wide = total.dtype
        scale = const(float(spatial_scale), wide)
        begin, end = (
            [cast(call("floor", c * scale + const(0.5, wide)), INDEX) for c in side]
            for side in (corners[:2], corners[2:])
        )
        edges = []
        for a in range(2):
            span = cast(maximum(end[a] - begin[a] + 1, 1), wide) / const(float(pooled[a]), wide)
            low = cast(call("floor", cast(place[a], wide) * span), INDEX) + begin[a]
            high = cast(call("ceil", cast(place[a] + 1, wide) * span), INDEX) + begin[a]
            edges.append([maximum(minimum(edge, sizes[a]), 0) for edge in (low, high)])
        (top, bottom), (left, right) = edges
        lowest, old = const(-math.inf, wide), load(total, 0)

        def whole(t: Expr, b: Expr, l_: Expr, r: Expr) -> Stmt:
            def one(i: Var, j: Var) -> Stmt:
                return store(total, maximum(old, pixel(t + i, l_ + j)), 0)

            is_empty = (b <= t) | (r <= l_)
            return seq(
                store(total, lowest, 0),
                loop("i", b - t, lambda i: loop("j", r - l_, lambda j: one(i, j))),
                store(total, select(is_empty, const(0.0, wide), old), 0),
            )

        return let("top", top, lambda t: let("bottom", bottom, lambda b: let(
            "left", left, lambda l_: let("right", right, lambda r: whole(t, b, l_, r))
        )))  # fmt: skip

    return _regions("roi_pool", data, rois, pooled_size, layout, cell)


def roi_pool_nchw(
    data: Tensor, rois: Tensor, pooled_size: int | Sequence[int], spatial_scale: float
) -> Tensor:
    """:func:`roi_pool` of images ``[N, C, H, W]``."""
    return roi_pool(data, rois, pooled_size, spatial_scale)
