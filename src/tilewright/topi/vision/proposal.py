"""Regions that a network for object detection proposes to look at closer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.ir import (
    EQ,
    Expr,
    Var,
    and_,
    as_expr,
    call,
    cast,
    compare,
    const,
    dtypes,
    floordiv,
    floormod,
    maximum,
    minimum,
    or_,
    select,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, extern, require, require_equal, with_conditions
from tilewright.tir import Buffer, IfThenElse, Stmt, decl_buffer, seq
from tilewright.tir.building import Axis, block, load, loop, store
from tilewright.topi.sort import argsort
from tilewright.topi.utils import require_ndim


@with_conditions
def proposal(
    cls_prob: Tensor,
    bbox_pred: Tensor,
    im_info: Tensor,
    scales: Sequence[float],
    ratios: Sequence[float],
    feature_stride: int,
    threshold: float,
    rpn_pre_nms_top_n: int,
    rpn_post_nms_top_n: int,
    rpn_min_size: int,
    iou_loss: bool,
) -> Tensor:
    """Propose regions ``[B * rpn_post_nms_top_n, 5]``: image, left, top, right, bottom.

    Around each place of a grid ``H x W``, whose cells are ``feature_stride`` pixels wide, stand
    ``A`` anchors: one for each of ``ratios`` (height to width) and ``scales``. ``cls_prob
    [B, 2 * A, H, W]`` has in its second half how likely an object is in each, ``bbox_pred
    [B, 4 * A, H, W]`` how far the object's middle is off and by which exponent it is larger, in
    units of the anchor (with ``iou_loss`` how many pixels its corners are off), and ``im_info
    [B, 3]`` height and width of the image, and the scale of ``rpn_min_size``. Regions stay inside
    of the image; those that are smaller, and of cells outside of it, come last, enlarged.

    Of the ``rpn_pre_nms_top_n`` likeliest, by falling score, one is kept unless its intersection
    over the union with one kept before is above ``threshold``. Where fewer are kept than wanted,
    they are repeated from the first. Pixels count: a region from 2 to 4 is 3 wide.

    Raises ``VerifyError`` if shapes don't fit, the grid has no places, scores are no floats, or a
    number is not positive. Source: Ren et al.,
    Faster R-CNN (2015), section 3.1, with the conventions of its first implementations.
    """
    what = "proposal"
    for tensor, ndim in ((cls_prob, 4), (bbox_pred, 4), (im_info, 2)):
        require_ndim(what, tensor, ndim)
    if not dtypes.is_float(cls_prob.dtype):
        raise VerifyError(f"{what}: scores are floats, got {cls_prob.dtype}")
    anchors = [_anchor(ratio, scale, feature_stride) for ratio in ratios for scale in scales]
    if not anchors or min(feature_stride, rpn_pre_nms_top_n, rpn_post_nms_top_n) < 1:
        raise VerifyError(f"{what}: scales, ratios, the stride and both numbers must be positive")
    batch, channels, height, width = cls_prob.shape
    require_equal(f"{what}: scores", channels, 2 * len(anchors))
    require_equal(f"{what}: offsets", bbox_pred.shape[1], 4 * len(anchors))
    for axis, name in ((0, "images"), (2, "rows"), (3, "columns")):
        require_equal(f"{what}: {name}", bbox_pred.shape[axis], cls_prob.shape[axis])
    require_equal(f"{what}: images", im_info.shape[0], batch)
    require(
        and_(as_expr(height) >= 1, as_expr(width) >= 1),
        f"{what}: a grid of ",
        height,
        " x ",
        width,
        " has no places",
    )
    grid = _Grid(
        cls_prob, bbox_pred, im_info, _table(anchors, cls_prob.dtype), len(anchors),
        feature_stride, rpn_min_size, iou_loss,
    )  # fmt: skip
    count = height * width * len(anchors)
    regions = compute((batch, count, 4), grid.region, name="regions")
    boxes = compute((batch, count, 4), partial(grid.enlarged, regions), name="proposal_boxes")
    scores = compute((batch, count), partial(grid.score, regions), name="proposal_scores")
    order = argsort(scores, axis=1, is_ascend=False, dtype="int64")
    used = minimum(const(rpn_pre_nms_top_n), count)

    def body(sources: Sequence[Buffer], results: Sequence[Buffer]) -> Stmt:
        return _suppress(sources, results[0], used, threshold, rpn_post_nms_top_n)

    made: Tensor = extern(
        [(batch * rpn_post_nms_top_n, 5)], [boxes, order], body,
        dtype=[cls_prob.dtype], name="proposal",
    )  # fmt: skip
    return made


def _anchor(ratio: float, scale: float, stride: int) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of an anchor around the cell at the origin."""
    if not (0 < ratio < math.inf and 0 < scale < math.inf):
        raise VerifyError(f"proposal: ratios and scales are positive, got {ratio} and {scale}")
    side = math.floor(math.sqrt(math.floor(stride * stride / ratio)) + 0.5)
    width, height = side * scale, math.floor(side * ratio + 0.5) * scale
    middle = 0.5 * (stride - 1)
    reach = 0.5 * (width - 1), 0.5 * (height - 1)
    return middle - reach[0], middle - reach[1], middle + reach[0], middle + reach[1]


def _table(anchors: Sequence[tuple[float, ...]], dtype: str) -> Tensor:
    """The anchors as a tensor ``[A, 4]``."""

    def body(_: Sequence[Buffer], results: Sequence[Buffer]) -> Stmt:
        def fill(one: Var) -> Stmt:
            return seq(*(
                store(results[0], const(value, dtype), number, side)
                for number, anchor in enumerate(anchors) for side, value in enumerate(anchor)
            ))  # fmt: skip

        return block("anchors", [Axis("one", 1)], fill)

    made: Tensor = extern([(len(anchors), 4)], [], body, dtype=[dtype], name="anchors")
    return made


@dataclass(frozen=True)
class _Grid:
    """What is predicted for each anchor at each place; anchors are the innermost."""

    cls_prob: Tensor
    bbox_pred: Tensor
    im_info: Tensor
    anchors: Tensor
    count: int
    stride: int
    min_size: int
    iou_loss: bool

    def _number(self, value: float) -> Expr:
        return const(value, self.cls_prob.dtype)

    def _place(self, n: Expr) -> tuple[Expr, Expr, Expr]:
        """The anchor, row and column of a region."""
        cell, width = floordiv(n, self.count), self.cls_prob.shape[3]
        return floormod(n, self.count), floordiv(cell, width), floormod(cell, width)

    def region(self, b: Expr, n: Expr, side: Expr) -> Expr:
        """A side of a region, inside of the image."""
        anchor, row, column = self._place(n)
        dtype, half, one = self.cls_prob.dtype, self._number(0.5), self._number(1)
        axis, is_first = floormod(side, 2), side < 2
        start = cast(select(compare(EQ, axis, 0), column, row) * self.stride, dtype)
        low, high = (self.anchors(anchor, axis + far) + start for far in (0, 2))
        by, more = (
            cast(self.bbox_pred(b, anchor * 4 + axis + far, row, column), dtype) for far in (0, 2)
        )
        if self.iou_loss:
            end = select(is_first, low + by, high + more)
        else:
            size = high - low + one
            middle = by * size + low + half * (size - one)
            reach = half * (call("exp", more) * size - one)
            end = select(is_first, middle - reach, middle + reach)
        last = cast(self.im_info(b, 1 - axis), dtype) - one
        return maximum(minimum(end, last), self._number(0))

    def _small(self, regions: Tensor, b: Expr, n: Expr) -> tuple[Expr, Expr]:
        """Whether a region is too small, and the least side."""
        least = self._number(self.min_size) * cast(self.im_info(b, 2), self.cls_prob.dtype)
        one = self._number(1)
        sides = (regions(b, n, axis + 2) - regions(b, n, axis) + one for axis in range(2))
        return or_(*(side < least for side in sides)), least

    def enlarged(self, regions: Tensor, b: Expr, n: Expr, side: Expr) -> Expr:
        """A side of a region, which is larger if it was too small."""
        small, least = self._small(regions, b, n)
        grown = select(small, least * self._number(0.5), self._number(0))
        return regions(b, n, side) + select(side < 2, self._number(0) - grown, grown)

    def score(self, regions: Tensor, b: Expr, n: Expr) -> Expr:
        """How likely an object is there; -1 for what comes last."""
        anchor, row, column = self._place(n)
        cells = (
            cast(floordiv(cast(self.im_info(b, axis), "int64"), self.stride), "int64")
            for axis in range(2)
        )
        small, _ = self._small(regions, b, n)
        outside = or_(*(place >= size for place, size in zip((row, column), cells)))
        found = self.cls_prob(b, anchor + self.count, row, column)
        return select(or_(small, outside), self._number(-1), found)


def _suppress(
    sources: Sequence[Buffer], result: Buffer, used: Expr, threshold: float, wanted: int
) -> Stmt:
    """The loops over the regions of an image, by falling score."""
    boxes, order = sources
    dtype, batch = boxes.dtype, boxes.shape[0]
    one = const(1, dtype)
    free = decl_buffer((1,), "int32", "free", scope="local")
    found = decl_buffer((1,), "int64", "found", scope="local")
    kept = decl_buffer((wanted,), "int64", "kept")

    def image(b: Var) -> Stmt:
        def box(index: Expr) -> list[Expr]:
            return [load(boxes, b, index, side) for side in range(4)]

        def overlap(first: Sequence[Expr], second: Sequence[Expr]) -> Expr:
            inner, areas = one, [one, one]
            for axis in range(2):
                ends = [(item[axis], item[axis + 2]) for item in (first, second)]
                low, high = maximum(ends[0][0], ends[1][0]), minimum(ends[0][1], ends[1][1])
                inner = inner * maximum(high - low + one, const(0, dtype))
                areas = [area * (end - start + one) for area, (start, end) in zip(areas, ends)]
            return inner / (areas[0] + areas[1] - inner)

        def look(n: Var) -> Stmt:
            index, number = load(order, b, n), load(found, 0)

            def against(m: Var) -> Stmt:
                hit = overlap(box(index), box(load(kept, m))) > const(threshold, dtype)
                return IfThenElse(hit, store(free, const(0, "int32"), 0), None)

            keep = seq(store(kept, index, number), store(found, number + 1, 0))
            tried = seq(
                store(free, const(1, "int32"), 0),
                loop("m", number, against),
                IfThenElse(compare(EQ, load(free, 0), const(1, "int32")), keep, None),
            )
            return IfThenElse(number < wanted, tried, None)

        def row(n: Var) -> Stmt:
            index = load(kept, floormod(n, maximum(load(found, 0), const(1))))
            place = b * wanted + n
            sides = (store(result, side, place, 1 + k) for k, side in enumerate(box(index)))
            return seq(store(result, cast(b, dtype), place, 0), *sides)

        return seq(
            store(found, const(0, "int64"), 0),
            store(kept, load(order, b, 0), 0),
            loop("n", used, look),
            loop("r", wanted, row),
        )

    return block("propose", [Axis("b", batch)], image, [free, found, kept])
