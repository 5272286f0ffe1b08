"""Regions proposed around anchors, against their definition in NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from by_rule import evaluate

import tilewright
from tilewright import te
from tilewright.ir import Var
from tilewright.support.errors import VerifyError
from tilewright.tir import interpreter
from tilewright.topi import vision

_Array = np.ndarray[Any, Any]


def anchors_of(scales: Sequence[float], ratios: Sequence[float], stride: int) -> _Array:
    found = []
    for ratio in ratios:
        for scale in scales:
            side = np.floor(np.sqrt(np.floor(stride**2 / ratio)) + 0.5)
            size = np.array([side, np.floor(side * ratio + 0.5)]) * scale
            middle = (stride - 1) / 2
            found.append([*(middle - (size - 1) / 2), *(middle + (size - 1) / 2)])
    return np.array(found)


def region(
    anchor: _Array, by: _Array, info: _Array, least: float, corners: bool
) -> tuple[_Array, bool]:
    """A region inside of the image, and whether it is too small."""
    if corners:
        made = anchor + by
    else:
        size = anchor[2:] - anchor[:2] + 1
        middle = by[:2] * size + anchor[:2] + (size - 1) / 2
        reach = (np.exp(by[2:]) * size - 1) / 2
        made = np.concatenate([middle - reach, middle + reach])
    made = np.clip(made, 0, np.tile(info[1::-1] - 1, 2))
    small = bool((made[2:] - made[:2] + 1 < least).any())
    return made + np.array([-1, -1, 1, 1]) * (least / 2 if small else 0), small


def share(a: _Array, b: _Array) -> float:
    inner = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]) + 1, 0).prod()
    areas = sum((item[2:] - item[:2] + 1).prod() for item in (a, b))
    return float(inner / (areas - inner))


def expected(cls: _Array, bbox: _Array, info: _Array, how: Sequence[Any]) -> _Array:
    scales, ratios, stride, threshold, before, after, least, corners = how
    anchors, rows = anchors_of(scales, ratios, stride), []
    for b, (scores, offsets) in enumerate(zip(cls[:, len(anchors) :], bbox)):
        regions, likely = [], []
        for row, column, k in np.ndindex(*scores.shape[1:], len(anchors)):
            anchor = anchors[k] + np.array([column, row, column, row]) * stride
            by = offsets[4 * k : 4 * k + 4, row, column].astype("float64")
            made, small = region(anchor, by, info[b], least * info[b, 2], corners)
            outside = row >= int(info[b, 0]) // stride or column >= int(info[b, 1]) // stride
            regions.append(made)
            likely.append(-1 if small or outside else scores[k, row, column])
        kept: list[_Array] = []
        for index in np.argsort(-np.array(likely), kind="stable")[:before]:
            near = any(share(regions[index], item) > threshold for item in kept)
            if not near and len(kept) < after:
                kept.append(regions[index])
        rows += [[b, *kept[n % len(kept)]] for n in range(after)]
    return np.array(rows)


# Images, height, width of the grid; then the arguments from `scales` on.
CASES: list[tuple[tuple[int, int, int], tuple[Any, ...]]] = [
    ((2, 5, 7), ((2, 4), (0.5, 1, 2), 16, 0.7, 100, 20, 4)),
    ((1, 4, 4), ((1.5,), (1,), 8, 0.3, 1000, 30, 16)),  # fewer are kept than wanted
    ((1, 1, 1), ((1,), (1,), 16, 0.5, 1, 3, 1)),
    ((1, 2, 2), ((1,), (1, 2), 16, 0.5, 6, 4, 500)),  # all are too small
]


@pytest.mark.parametrize(
    ("sizes", "how", "corners"), [*((*case, False) for case in CASES), (*CASES[0], True)]
)
def test_proposals(sizes: tuple[int, int, int], how: tuple[Any, ...], corners: bool) -> None:
    batch, height, width = sizes
    count, stride = len(how[0]) * len(how[1]), how[2]
    rng = np.random.default_rng(0)
    cls = rng.permutation(batch * 2 * count * height * width).astype("float32")
    cls = (cls / cls.size).reshape(batch, 2 * count, height, width)
    spread = 3 if corners else 0.3
    bbox = spread * rng.standard_normal((batch, 4 * count, height, width)).astype("float32")
    # The last row of the grid is outside of the image, where there are some.
    info = np.array([[(height - (height > 2)) * stride, width * stride, 1.5]] * batch, "float32")
    arguments = (*how, corners)
    made = evaluate(lambda *x: vision.proposal(*x, *arguments), cls, bbox, info)
    np.testing.assert_allclose(made, expected(cls, bbox, info, arguments), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scales": (1, 2)}, "scores"),
        ({"ratios": (-1,)}, "ratios and scales are positive"),
        ({"ratios": (math.nan,)}, "ratios and scales are positive"),
        ({"scales": (math.inf,)}, "ratios and scales are positive"),
        ({"feature_stride": 0}, "must be positive"),
        ({"rpn_post_nms_top_n": 0}, "must be positive"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], message: str) -> None:
    x, y = te.placeholder((1, 2, 3, 3)), te.placeholder((1, 4, 3, 3))
    usual = {
        "scales": (1,), "ratios": (1,), "feature_stride": 16, "threshold": 0.5,
        "rpn_pre_nms_top_n": 5, "rpn_post_nms_top_n": 3, "rpn_min_size": 1, "iou_loss": False,
    }  # fmt: skip
    with pytest.raises(VerifyError, match=message):
        vision.proposal(x, y, te.placeholder((1, 3)), **{**usual, **change})


def proposals(x: te.Tensor, y: te.Tensor, info: te.Tensor) -> te.Tensor:
    return vision.proposal(x, y, info, (2,), (1,), 16, 0.7, 50, 6, 4, False)


def test_there_are_places_and_floats() -> None:
    info = te.placeholder((1, 3))
    with pytest.raises(VerifyError, match="grid of 0 x 4 has no places"):
        proposals(te.placeholder((1, 2, 0, 4)), te.placeholder((1, 4, 0, 4)), info)
    with pytest.raises(VerifyError, match="scores are floats, got int32"):
        proposals(te.placeholder((1, 2, 3, 4), "int32"), te.placeholder((1, 4, 3, 4)), info)


def test_symbolic_grids() -> None:
    sizes = Var("b"), Var("h"), Var("w")
    arguments = [
        te.placeholder(shape, "float32")
        for shape in ((sizes[0], 2, *sizes[1:]), (sizes[0], 4, *sizes[1:]), (sizes[0], 3))
    ]
    run = tilewright.compile(te.create_prim_func([*arguments, proposals(*arguments)]))
    rng = np.random.default_rng(2)
    for height, width in ((3, 4), (1, 1), (0, 4)):
        made, count = np.zeros((12, 5), "float32"), 2 * 2 * height * width
        cls = (rng.permutation(count) / max(count, 1)).astype("float32")
        cls = cls.reshape(2, 2, height, width)
        bbox = 0.3 * rng.standard_normal((2, 4, height, width)).astype("float32")
        info = np.array([[16 * height, 16 * width, 1]] * 2, "float32")
        if not height:  # nothing could be repeated
            with pytest.raises(RuntimeError, match="has no places"):
                run(cls, bbox, info, made)
            continue
        run(cls, bbox, info, made)
        wanted = expected(cls, bbox, info, ((2,), (1,), 16, 0.7, 50, 6, 4, False))
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("iou_loss", [False, True])
def test_images_of_no_size_have_a_result(iou_loss: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = {"scores": (1, 4, 2, 3), "boxes": (1, 8, 2, 3), "info": (1, 3)}
    inputs = [te.placeholder(shape, "float32", name=name) for name, shape in shapes.items()]
    made: Any = vision.proposal(
        *inputs, (1.0, 2.0), (1.0,), 16, 0.7, 12, 5, rpn_min_size=4, iou_loss=iou_loss
    )
    func = te.create_prim_func([*inputs, made])
    compiled, run = tilewright.compile(func), interpreter.compile_function(func)
    scores = rng.random(shapes["scores"]).astype("float32")
    boxes = (rng.normal(size=shapes["boxes"]) * 0.2).astype("float32")
    boxes[0, :4, 0, 0] = np.nan, np.inf, 1e30, -np.inf
    nan, inf = math.nan, math.inf
    infos = [(0, 0, 0), (-5, -7, 1), (32, 48, -1), (nan, 48, 1), (32, nan, 1), (32, 48, nan)]
    for info in (*infos, (inf, 48, 1), (-inf, -inf, -inf), (nan, nan, nan), (1e30, 0.5, inf)):
        found, wanted = (np.full((5, 5), -7, "float32") for _ in range(2))
        given = np.array([info], "float32")
        with np.errstate(all="ignore"):
            run(scores, boxes, given, wanted)
        compiled(scores, boxes, given, found)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
        assert not (found == -7).all(), "something is written"
