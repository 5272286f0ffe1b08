"""Operators of object detection, against NumPy, compiled by rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_rule import evaluate, moved, numbers, results

from tilewright import te, topi
from tilewright.support.errors import VerifyError

vision = topi.vision


def boxes(images: int, count: int, classes: int = 2, seed: int = 0) -> np.ndarray:
    """Class, score, left, top, right, bottom of random boxes."""
    rng = np.random.default_rng(seed)
    corner, size = rng.random((images, count, 2)) * 4, rng.random((images, count, 2)) * 3 + 0.2
    kinds, scores = rng.integers(0, classes, (images, count, 1)), rng.random((images, count, 1))
    return np.concatenate([kinds, scores, corner, corner + size], 2).astype("float32")


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    inner = np.prod(np.maximum(high - low, 0))
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inner
    return float(inner / union) if union > 0 else 0.0


def kept_boxes(data: np.ndarray, most: int, limit: float, force: bool, top_k: int) -> list[int]:
    order = list(np.argsort(-data[:, 1], kind="stable"))[: top_k if top_k > 0 else None]
    kept: list[int] = []
    for n in order:
        hits = [
            m for m in kept
            if (force or data[m, 0] == data[n, 0]) and overlap(data[m, 2:], data[n, 2:]) >= limit
        ]  # fmt: skip
        if not hits and (most < 0 or len(kept) < most):
            kept.append(n)
    return kept


SUPPRESSIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "few": {"max_output_size": 3},
    "0 is no limit": {"max_output_size": 0},
    "all classes": {"force_suppress": True},
    "the best": {"top_k": 5},
    "small overlaps": {"iou_threshold": 0.1, "force_suppress": True},
}


@pytest.mark.parametrize("name", SUPPRESSIONS)
def test_non_max_suppression(name: str) -> None:
    options = SUPPRESSIONS[name]
    data, valid = boxes(2, 11), np.array([11, 7], "int32")
    data[:, 2, 0] = -1  # A class as others are.
    numbers_of = np.tile(np.arange(100, 111, dtype="int32"), (2, 1))
    places, count = results(
        lambda d, v, i: vision.non_max_suppression(d, v, i, **options), data, valid, numbers_of
    )
    rows = evaluate(
        lambda d, v, i: vision.non_max_suppression(
            d, v, i, return_indices=False, invalid_to_bottom=True, **options
        ), data, valid, numbers_of,
    )  # fmt: skip
    for b in range(2):
        kept = kept_boxes(
            data[b, : valid[b]], options.get("max_output_size", 0) or -1,
            options.get("iou_threshold", 0.5), options.get("force_suppress", False),
            options.get("top_k", -1),
        )  # fmt: skip
        assert count[b, 0] == len(kept)
        assert list(places[b]) == [100 + n for n in kept] + [-1] * (11 - len(kept))
        np.testing.assert_array_equal(rows[b, : len(kept)], data[b, kept])
        assert (rows[b, len(kept) :] == -1).all()


def test_soft_suppression_lowers_scores() -> None:
    data = boxes(1, 6, 1)
    none, one = np.array([6], "int32"), np.arange(6, dtype="int32")[None]
    rows, places, count = results(
        lambda d, v, i: vision.non_max_suppression(
            d, v, i, soft_nms_sigma=0.5, score_threshold=0.05
        ), data, none, one,
    )  # fmt: skip
    left, kept, scores = list(range(6)), [], data[0, :, 1].astype(float)
    while left:
        best = max(left, key=lambda n: scores[n])
        left.remove(best)
        if scores[best] <= 0.05:
            continue
        kept.append(best)
        for n in left:
            scores[n] *= np.exp(-(overlap(data[0, best, 2:], data[0, n, 2:]) ** 2))
    assert list(places[0, : count[0, 0]]) == kept
    np.testing.assert_allclose(rows[0, : len(kept), 1], scores[kept], rtol=1e-4)


@pytest.mark.parametrize("id_index", [0, -1])
def test_valid_boxes_come_first(id_index: int) -> None:
    data = boxes(2, 9)
    data[0, 3, 0] = -1
    count, rows, places = results(lambda d: vision.get_valid_counts(d, 0.4, id_index, 1), data)
    for b in range(2):
        valid = data[b, :, 1] > np.float32(0.4)
        if id_index == 0:
            valid &= data[b, :, 0] >= 0
        wanted = np.flatnonzero(valid)
        assert count[b] == len(wanted) and list(places[b]) == [*wanted] + [-1] * (9 - len(wanted))
        np.testing.assert_array_equal(rows[b, : count[b]], data[b, wanted])
        assert (rows[b, count[b] :] == -1).all()


@pytest.mark.parametrize("most", [2, 20])
def test_all_classes_by_themselves(most: int) -> None:
    corners = boxes(2, 8)[..., 2:].copy()
    scores = np.random.default_rng(1).random((2, 3, 8)).astype("float32")
    rows, total = results(
        lambda b, s: vision.all_class_non_max_suppression(b, s, most, 0.3, 0.2), corners, scores
    )
    expected = []
    for b, c in np.ndindex(2, 3):
        kept: list[int] = []
        for n in np.argsort(-scores[b, c], kind="stable"):
            free = all(overlap(corners[b, m], corners[b, n]) <= 0.3 for m in kept)
            if scores[b, c, n] > 0.2 and free and len(kept) < most:
                kept.append(n)
        expected += [[b, c, n] for n in kept]
    assert total[0] == len(expected) and len(rows) == 6 * min(most, 8)
    np.testing.assert_array_equal(rows[: total[0]], expected)
    places, best, count = results(
        lambda b, s: vision.all_class_non_max_suppression(b, s, most, 0.3, 0.2, "tensorflow"),
        corners,
        scores,
    )
    for b in range(2):
        own = [row[1:] for row in expected if row[0] == b]
        assert count[b] == len(own)
        np.testing.assert_array_equal(places[b, : len(own)], own)
        np.testing.assert_array_equal(best[b, : len(own)], [scores[b, c, n] for c, n in own])


def sample(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """The image ``[C, H, W]`` at a place between pixels."""
    height, width = image.shape[1:]
    if y < -1 or x < -1 or y > height or x > width:
        return np.zeros(len(image))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    low = int(min(y, max(height - 2, 0))), int(min(x, max(width - 2, 0)))
    p, q = y - low[0], x - low[1]
    below, right = min(low[0] + 1, height - 1), min(low[1] + 1, width - 1)
    top = image[:, low[0], low[1]] * (1 - q) + image[:, low[0], right] * q
    bottom = image[:, below, low[1]] * (1 - q) + image[:, below, right] * q
    return top * (1 - p) + bottom * p


ROIS = np.array(
    [[0, 1.1, 0.7, 5.2, 4.6], [1, -1, 0, 8, 9], [0, 2, 2, 2.2, 2.1], [1, 0, 0, 3, 3]], "float32"
)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [-1, 2])
@pytest.mark.parametrize("aligned", [True, False])
def test_roi_align(layout: str, mode: str, ratio: int, aligned: bool) -> None:
    x = numbers(2, 11 if aligned else 3, 6, 7)  # more channels than a vector has lanes, and less
    made = evaluate(
        lambda a, r: vision.roi_align(a, r, (3, 2), 0.7, mode, ratio, aligned, layout),
        moved(x, "NCHW", layout), ROIS,
    )  # fmt: skip
    made = moved(made, layout, "NCHW")
    for number, (image, *corners) in enumerate(ROIS):
        left, top, right, bottom = np.array(corners) * np.float32(0.7)
        size = np.array([bottom - top, right - left])
        step = (size if aligned else np.maximum(size, 1)) / (3, 2)
        counts = [ratio] * 2 if ratio > 0 else [int(np.ceil(s)) for s in step]
        for p, q in np.ndindex(3, 2):
            samples = [
                sample(
                    x[int(image)],
                    top + (p + (i + 0.5) / counts[0]) * step[0],
                    left + (q + (j + 0.5) / counts[1]) * step[1],
                )
                for i, j in np.ndindex(*counts)
            ]
            wanted = np.mean(samples, 0) if mode == "avg" else np.max(samples, 0)
            np.testing.assert_allclose(made[number, :, p, q], wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("channels", [3, 11])
def test_roi_pool(channels: int) -> None:
    x = numbers(2, channels, 6, 7)
    made = evaluate(lambda a, r: vision.roi_pool(a, r, (3, 2), 0.7), x, ROIS)
    for number, (image, *corners) in enumerate(ROIS):
        left, top, right, bottom = (int(np.rint(c * 0.7)) for c in corners)
        height, width = max(bottom - top + 1, 1) / 3, max(right - left + 1, 1) / 2
        for p, q in np.ndindex(3, 2):
            rows = np.clip([np.floor(p * height) + top, np.ceil((p + 1) * height) + top], 0, 6)
            columns = np.clip([np.floor(q * width) + left, np.ceil((q + 1) * width) + left], 0, 7)
            part = x[int(image), :, int(rows[0]) : int(rows[1]), int(columns[0]) : int(columns[1])]
            wanted = part.max((1, 2)) if part.size else 0
            np.testing.assert_allclose(made[number, :, p, q], wanted, rtol=1e-5)


def test_multibox() -> None:
    scores, offsets = numbers(2, 3, 5), numbers(2, 20)
    low = np.random.default_rng(0).random((1, 5, 2)).astype("float32")
    anchors = np.concatenate([low, low + 0.3], 2)
    found, shares = results(
        lambda c, l_, a: vision.multibox_transform_loc(
            c, l_, a, (0.1, 0.1, 0.2, 0.2), True, 0.3, False
        ), scores, offsets, anchors,
    )  # fmt: skip
    moves = offsets.reshape(2, 5, 4)
    middle = (anchors[..., :2] + anchors[..., 2:]) / 2 + moves[..., :2] * 0.1 * 0.3
    reach = np.exp(moves[..., 2:] * 0.2) * 0.3 / 2
    expected = np.concatenate([(middle - reach)[..., ::-1], (middle + reach)[..., ::-1]], 2)
    np.testing.assert_allclose(found, np.clip(expected, 0, 1), rtol=1e-4, atol=1e-5)
    powers = np.exp(scores)
    wanted = powers / powers.sum(1, keepdims=True)
    wanted[wanted < 0.3] = 0
    wanted[:, 0] = 0
    np.testing.assert_allclose(shares, wanted, rtol=1e-4)


@pytest.mark.parametrize("images", [0, 2])
def test_symbolic_and_empty(images: int) -> None:
    n, m = te.var("n"), te.var("m")
    data = boxes(images, 4)
    valid, ids = np.full(images, 4, "int32"), np.tile(np.arange(4, dtype="int32"), (images, 1))
    places = evaluate(
        vision.non_max_suppression, data, valid, ids,
        shapes=[(n, m, 6), (n,), (n, m)], n=images, m=4,
    )  # fmt: skip
    for b in range(images):
        kept = kept_boxes(data[b], -1, 0.5, False, -1)
        assert list(places[b][: len(kept)]) == kept
    none = np.zeros((0, 5), "float32")
    made = evaluate(
        lambda a, r: vision.roi_align(a, r, 2, 1.0), numbers(1, 2, 3, 3), none,
        shapes=[(1, 2, 3, 3), (n, 5)], n=0,
    )  # fmt: skip
    assert made.shape == (0, 2, 2, 2)


def test_what_is_refused() -> None:
    x, rois = te.placeholder((1, 2, 4, 4)), te.placeholder((3, 5))
    with pytest.raises(VerifyError, match="mode is 'avg' or 'max', got 'sum'"):
        vision.roi_align(x, rois, 2, 1.0, "sum")
    with pytest.raises(VerifyError, match="layout is 'NCHW' or 'NHWC'"):
        vision.roi_pool(x, rois, 2, 1.0, "CHWN")
    with pytest.raises(VerifyError, match="numbers of a region"):
        vision.roi_pool(x, te.placeholder((3, 4)), 2, 1.0)
    with pytest.raises(VerifyError, match="output_format is 'onnx' or 'tensorflow'"):
        vision.all_class_non_max_suppression(
            te.placeholder((1, 2, 4)), te.placeholder((1, 1, 2)), 1, 0.5, 0.5, "torch"
        )
