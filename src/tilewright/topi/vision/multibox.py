"""Boxes and scores of detectors that predict offsets from anchors."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Expr, call, cast, const, maximum, minimum, select
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.nn.softmax import softmax
from tilewright.topi.utils import require_ndim


@with_conditions
def multibox_transform_loc(
    cls_pred: Tensor,
    loc_pred: Tensor,
    anchor: Tensor,
    variances: Sequence[float],
    clip: bool = False,
    threshold: float = 0.0,
    keep_background: bool = True,
    apply_softmax: bool = True,
) -> list[Tensor]:
    """Turn predictions into boxes ``[B, N, 4]`` (top, left, bottom, right), scores ``[B, C, N]``.

    ``loc_pred [B, 4 * N]`` has for each anchor how far the middle is off and how much larger the
    box is (x, y, width, height), in units of ``variances``; ``anchor [1, N, 4]`` has left, top,
    right and bottom. ``clip`` moves boxes into the image, from 0 to 1. ``cls_pred [B, C, N]``
    become scores by a softmax over classes, if asked for; those below ``threshold`` are zero, and
    the first class is without ``keep_background``.

    Raises ``VerifyError`` if shapes don't fit.
    """
    what = "multibox_transform_loc"
    for tensor, ndim in ((cls_pred, 3), (loc_pred, 2), (anchor, 3)):
        require_ndim(what, tensor, ndim)
    batch, _, count = cls_pred.shape
    require_equal(f"{what}: images", loc_pred.shape[0], batch)
    require_equal(f"{what}: offsets", loc_pred.shape[1], count * 4)
    require_equal(f"{what}: anchors", anchor.shape[1], count)
    if len(variances) != 4:
        raise VerifyError(f"{what}: there are four variances, got {[*variances]}")
    dtype = loc_pred.dtype
    half = const(0.5, dtype)

    def box(b: Expr, n: Expr, side: Expr) -> Expr:
        def edge(axis: int, upper: bool) -> Expr:
            low, high = (cast(anchor(0, n, axis + k), dtype) for k in (0, 2))
            size = high - low
            middle = (low + high) * half
            moved = loc_pred(b, n * 4 + axis) * const(variances[axis], dtype) * size + middle
            grown = loc_pred(b, n * 4 + axis + 2) * const(variances[axis + 2], dtype)
            reach = call("exp", grown) * size * half
            value = moved + reach if upper else moved - reach
            if not clip:
                return value
            return maximum(minimum(value, const(1.0, dtype)), const(0.0, dtype))

        sides = [edge(1, False), edge(0, False), edge(1, True), edge(0, True)]
        made = sides[3]
        for number in (2, 1, 0):
            made = select(side == number, sides[number], made)
        return made

    boxes: Tensor = compute((batch, count, 4), box, name="multibox_boxes")
    shares = softmax(cls_pred, axis=1) if apply_softmax else cls_pred

    def score(b: Expr, c: Expr, n: Expr) -> Expr:
        value: Expr = shares(b, c, n)
        zero = const(0, value.dtype)
        value = select(value >= const(threshold, value.dtype), value, zero)
        return value if keep_background else select(c == 0, zero, value)

    scores: Tensor = compute(cls_pred.shape, score, name="multibox_scores")
    return [boxes, scores]
