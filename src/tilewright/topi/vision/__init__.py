"""Operators of object detection."""

from __future__ import annotations

from tilewright.topi.vision.multibox import multibox_transform_loc
from tilewright.topi.vision.nms import (
    all_class_non_max_suppression,
    get_valid_counts,
    non_max_suppression,
)
from tilewright.topi.vision.proposal import proposal
from tilewright.topi.vision.roi import (
    roi_align,
    roi_align_nchw,
    roi_align_nhwc,
    roi_pool,
    roi_pool_nchw,
)

__all__ = [
    "all_class_non_max_suppression", "get_valid_counts", "multibox_transform_loc",
    "non_max_suppression", "proposal", "roi_align", "roi_align_nchw", "roi_align_nhwc", "roi_pool",
    "roi_pool_nchw",
]  # fmt: skip
