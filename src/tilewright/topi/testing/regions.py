"""Regions of interest and boxes in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.topi.testing.convolution import Numbers
from tilewright.topi.testing.sampling import sampled
from tilewright.topi.testing.windows import Array, moved, per_dimension


def _aligned(
    a_np: Array, rois_np: Array, out: tuple[int, ...], spatial_scale: float, sample_ratio: int,
    mode: str | bytes, aligned: bool,
) -> Array:  # fmt: skip
    mode = mode.decode() if isinstance(mode, bytes) else mode
    if mode not in ("avg", "max"):
        raise VerifyError(f'mode is "avg" or "max", got "{mode}"')
    made = np.zeros((len(rois_np), a_np.shape[1], *out))
    for number, roi in enumerate(rois_np.astype("float64")):
        image = a_np[int(roi[0])].astype("float64")
        low = roi[[2, 1]] * spatial_scale
        extent = (roi[[4, 3]] - roi[[2, 1]]) * spatial_scale
        cell = (extent if aligned else np.maximum(extent, 1.0)) / out
        each = [sample_ratio if sample_ratio > 0 else int(np.ceil(np.float32(c))) for c in cell]
        if min(each) <= 0:
            continue
        ys, xs = (
            begin + (np.arange(o * n).reshape(o, n) + 0.5) * size / n
            for begin, size, n, o in zip(low, cell, each, out)
        )
        found = _clamped(image, ys.ravel(), xs.ravel())
        found = found.reshape(-1, out[0], each[0], out[1], each[1])
        made[number] = found.max((2, 4)) if mode == "max" else found.mean((2, 4))
    return made.astype(a_np.dtype)


def _clamped(image: Array, ys: Array, xs: Array) -> Array:
    """Sample rows and columns; up to a pixel outside is as the border, and beyond it zero."""
    height, width = image.shape[1:]
    y, x = np.meshgrid(ys, xs, indexing="ij")
    near = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    at = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    return np.where(near, sampled(image, at), 0.0)


def _roi_align_in(layout: str, doc: str) -> Callable[..., Array]:
    def roi_align(
        a_np: Array,
        rois_np: Array,
        pooled_size: Numbers,
        spatial_scale: float,
        sample_ratio: int,
        mode: str | bytes = b"avg",
        aligned: bool = False,
    ) -> Array:
        x, out = moved(a_np, layout, "NCHW"), per_dimension(pooled_size, 2)
        made = _aligned(x, rois_np, out, spatial_scale, sample_ratio, mode, aligned)
        return moved(made, "NCHW", layout)

    return named(roi_align, f"roi_align_{layout.lower()}_python", doc)


roi_align_nchw_python = _roi_align_in(
    "NCHW",
    """Pool samples within the cells of regions (image, left, top, right, bottom).

    A cell has ``sample_ratio`` samples each way, or as many as it has pixels, rounded up. Unless
    ``aligned``, regions are at least a pixel large.
    """,
)
roi_align_nhwc_python = _roi_align_in("NHWC", "Do as ``roi_align_nchw_python`` with channels last.")


def roi_pool_nchw_python(
    a_np: Array, rois_np: Array, pooled_size: Numbers, spatial_scale: float
) -> Array:
    """Return the largest element in each cell of regions (image, left, top, right, bottom).

    Regions are rounded to pixels and end with their last; an empty cell is zero.
    """
    rows, columns = per_dimension(pooled_size, 2)
    made = np.zeros((len(rois_np), a_np.shape[1], rows, columns), a_np.dtype)
    for number, roi in enumerate(rois_np):
        image = a_np[int(roi[0])]
        left, top, right, bottom = (int(np.floor(e * spatial_scale + 0.5)) for e in roi[1:])
        ys = _cells(top, bottom, rows, image.shape[1])
        xs = _cells(left, right, columns, image.shape[2])
        for i, j in np.ndindex(rows, columns):
            part = image[:, ys[i], xs[j]]
            if part.size:
                made[number, :, i, j] = part.max((1, 2))
    return made


def _cells(first: int, last: int, count: int, size: int) -> list[slice]:
    """Return which pixels of a row or column each cell has."""
    extent = max(last - first + 1, 1)
    edges = [
        (first + i * extent // count, first - (-(i + 1) * extent // count)) for i in range(count)
    ]
    return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]


def get_valid_counts_python(
    data: Array, score_threshold: float = 0, id_index: int = 0, score_index: int = 1
) -> tuple[Array, Array, Array]:
    """Move boxes ``(batch, boxes, values)`` above a threshold to the front; fill the rest with -1.

    Return how many there are in each image, the boxes, and which ones they were. With an
    ``id_index`` boxes of a negative class don't count.
    """
    counts = np.zeros(data.shape[0], "int32")
    made = np.full_like(data, -1)
    origins = np.full(data.shape[:2], -1, "int32")
    for image, boxes in enumerate(data):
        valid = boxes[:, score_index] > score_threshold
        if id_index >= 0:
            valid &= boxes[:, id_index] >= 0
        (chosen,) = np.nonzero(valid)
        counts[image] = len(chosen)
        made[image, : len(chosen)] = boxes[chosen]
        origins[image, : len(chosen)] = chosen
    return counts, made, origins


def _overlap(a: Array, b: Array) -> float:
    """Return the intersection of two boxes over their union."""
    low = np.maximum(np.minimum(a[:2], a[2:]), np.minimum(b[:2], b[2:]))
    high = np.minimum(np.maximum(a[:2], a[2:]), np.maximum(b[:2], b[2:]))
    common = np.prod(np.maximum(high - low, 0))
    union = abs(np.prod(a[2:] - a[:2])) + abs(np.prod(b[2:] - b[:2])) - common
    return float(common / union) if union > 0 else 0.0


def order_of(scores: Array, top_k: int) -> Array:
    """Return indices by falling score (equal ones as they came), at most ``top_k``."""
    order = np.argsort(-scores, kind="stable")
    return np.asarray(order if top_k < 0 else order[:top_k])


def non_max_suppression_python(
    data: Array,
    valid_count: Array,
    indices: Array,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0,
    score_threshold: float = 0.0,
) -> list[Array] | Array:
    """Drop boxes that overlap a better one of their class (or any, with ``force_suppress``).

    The first ``valid_count`` boxes of an image are looked at, the best first and at most ``top_k``.
    With ``soft_nms_sigma`` scores of boxes that overlap less fall by ``exp(-overlap**2 / (2 *
    sigma))`` (Bodla et al., 2017), and boxes are dropped that have no more than
    ``score_threshold``. Return which boxes are kept, by
    ``indices``, and their number; or with ``return_indices=False`` the boxes, the best first, -1
    in place of others, which ``invalid_to_bottom`` moves to the end.
    """
    rows = np.full_like(data, -1)
    places = np.full(data.shape[:2], -1, "int32")
    counts = np.zeros((len(data), 1), "int32")
    classes = not force_suppress and id_index >= 0
    for image, boxes in enumerate(data):
        boxes = boxes[: int(valid_count[image])].copy()
        scores = boxes[:, score_index]  # a view: decay is seen in the boxes
        left = list(order_of(scores, top_k))
        kept: list[int] = []
        for rank in range(len(left)):
            if soft_nms_sigma > 0:
                left.sort(key=lambda n: -scores[n])
            this = left.pop(0)
            full = 0 < max_output_size <= len(kept)
            if full or scores[this] <= (score_threshold if soft_nms_sigma > 0 else 0):
                continue
            rivals = [n for n in left if not classes or boxes[n, id_index] == boxes[this, id_index]]
            for other in rivals:
                corners = slice(coord_start, coord_start + 4)
                overlap = _overlap(boxes[this, corners], boxes[other, corners])
                if overlap >= iou_threshold:
                    scores[other] = -1
                elif soft_nms_sigma > 0:
                    scores[other] *= np.exp(-0.5 * overlap**2 / soft_nms_sigma)
            rows[image, len(kept) if invalid_to_bottom or return_indices else rank] = boxes[this]
            kept.append(int(this))
        places[image, : len(kept)] = indices[image, kept]
        counts[image] = len(kept)
    if not return_indices:
        return rows
    return [rows, places, counts] if soft_nms_sigma > 0 else [places, counts]
