"""Operators of detectors: regions of images, boxes and their suppression (``relax.op.vision``)."""

from __future__ import annotations

from tilewright import topi
from tilewright.arith import simplify
from tilewright.ir import as_int, dtypes, or_
from tilewright.relax.conditions import require, require_equal
from tilewright.relax.ops.common import (
    known,
    laid_out,
    plain_info,
    require_ndim,
    same_dtype,
    tensor_like,
)
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.layout import layout_of
from tilewright.topi.utils import pair


def _require_floats(info: TensorStructInfo, name: str) -> None:
    if not dtypes.is_float(info.dtype):
        raise VerifyError(f"{name} must be floating-point numbers, got {info.dtype}")


# ---- regions -----------------------------------------------------------------------------------


def _regions(
    data: TensorStructInfo,
    rois: TensorStructInfo,
    pooled_size: int | tuple[int, int],
    layout: str,
) -> StructInfo:
    if layout not in ("NCHW", "NHWC"):
        raise VerifyError(f"layout is 'NCHW' or 'NHWC', got {layout!r}")
    require_ndim(data, 4, "data")
    require_ndim(rois, 2, "rois")
    _require_floats(data, "data")
    _require_floats(rois, "rois")
    count, numbers = known(rois, "rois")
    require_equal("numbers of a region", numbers, 5)
    rows, columns = pair(pooled_size, 2)
    if rows < 1 or columns < 1:
        raise VerifyError(f"pooled_size must be positive, got {[rows, columns]}")
    order = layout_of(layout)
    image = plain_info(data, order, "data", "NCHW")
    for extent in image.shape[2:]:
        require(or_(extent >= 1, count <= 0), "regions of an image with an extent of ", extent)
    made = TensorStructInfo((count, image.shape[1], rows, columns), data.dtype)
    return laid_out(made, order, "NCHW")


@operator("vision.roi_align", legalize=topi.vision.roi_align)
def roi_align(
    data: Tensor,
    rois: Tensor,
    pooled_size: int | tuple[int, int],
    spatial_scale: float,
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: str = "NCHW",
    mode: str = "avg",
) -> StructInfo:
    """Sample regions of images on a grid of ``pooled_size`` cells.

    ``rois [R, 5]`` has for each region its image and its left, top, right and bottom edge, in units
    of ``1 / spatial_scale`` pixels. A cell is the mean (``mode="max"``: the maximum) of
    ``sample_ratio`` times as many points, blended from the pixels around; if it isn't positive,
    of one for each pixel of the cell. Regions are at least a pixel large, unless ``aligned``; that
    doesn't move them, see ``topi.vision.roi_align``.

    Raises ``VerifyError`` for operands and options that don't fit.
    """
    if mode not in ("avg", "max"):
        raise VerifyError(f"mode is 'avg' or 'max', got {mode!r}")
    return _regions(data, rois, pooled_size, layout)


@operator("vision.roi_pool", legalize=topi.vision.roi_pool)
def roi_pool(
    data: Tensor,
    rois: Tensor,
    pooled_size: int | tuple[int, int],
    spatial_scale: float,
    layout: str = "NCHW",
) -> StructInfo:
    """Take the maximum of each of ``pooled_size`` cells of regions; ``rois`` as of ``roi_align``.

    Raises ``VerifyError`` for operands and options that don't fit.
    """
    if layout != "NCHW":
        raise VerifyError(f"layout is 'NCHW', got {layout!r}")
    return _regions(data, rois, pooled_size, layout)


# ---- boxes -------------------------------------------------------------------------------------


def _element(index: int, count: int | None, name: str) -> None:
    if index < -1 or (count is not None and index >= count):
        raise VerifyError(f"{name} is the number of an element of {count}, or -1; got {index}")


@operator("vision.get_valid_counts", legalize=topi.vision.get_valid_counts)
def get_valid_counts(
    data: Tensor, score_threshold: float = 0, id_index: int = 0, score_index: int = 1
) -> StructInfo:
    """Move boxes of ``data [B, N, elements]`` with a score above a threshold to the front.

    Gives their number ``[B]``, the boxes, and where each was ``[B, N]``; what is left is -1. Boxes
    whose class, the element ``id_index``, is negative aren't valid.

    Raises ``VerifyError`` for an element that boxes don't have.
    """
    require_ndim(data, 3, "data")
    batch, count, elements = known(data, "data")
    _require_floats(data, "data")
    _element(id_index, as_int(elements), "id_index")
    _element(score_index, as_int(elements), "score_index")
    return TupleStructInfo(
        (
            TensorStructInfo((batch,), "int32"),
            tensor_like(data),
            TensorStructInfo((batch, count), "int32"),
        )
    )


@operator("vision.non_max_suppression", legalize=topi.vision.non_max_suppression)
def non_max_suppression(
    data: Tensor,
    valid_count: Tensor,
    indices: Tensor,
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
) -> StructInfo:
    """Keep the boxes of ``data [B, N, elements]`` that overlap no better one of their class.

    ``valid_count`` and ``indices`` are results of ``get_valid_counts``. With ``return_indices`` it
    gives where in the data the boxes are ``[B, N]``, and their number ``[B, 1]``; else the boxes
    themselves, the others filled with -1. With ``soft_nms_sigma`` scores of overlapping boxes
    shrink instead, and the boxes come before the indices.

    Raises ``VerifyError`` for operands that don't fit.
    """
    require_ndim(data, 3, "data")
    require_ndim(valid_count, 1, "valid_count")
    require_ndim(indices, 2, "indices")
    _require_floats(data, "data")
    for name, info in (("valid_count", valid_count), ("indices", indices)):
        if info.dtype != "int32":
            raise VerifyError(f"{name} must be int32, got {info.dtype}")
    batch, count, elements = known(data, "data")
    require_equal("images of data and valid_count", known(valid_count)[0], batch)
    require_equal("images of data and indices", known(indices)[0], batch)
    require_equal("boxes of data and indices", known(indices)[1], count)
    wanted = as_int(elements)
    _element(id_index, wanted, "id_index")
    _element(score_index, wanted, "score_index")
    if coord_start < 0 or (wanted is not None and coord_start + 4 > wanted):
        raise VerifyError(f"the four corners begin at coord_start={coord_start}, of {wanted}")
    if not return_indices:
        return tensor_like(data)
    places = (TensorStructInfo((batch, count), "int32"), TensorStructInfo((batch, 1), "int32"))
    return TupleStructInfo((tensor_like(data), *places) if soft_nms_sigma > 0 else places)


@operator(
    "vision.all_class_non_max_suppression", legalize=topi.vision.all_class_non_max_suppression
)
def all_class_non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Tensor,
    iou_threshold: Tensor,
    score_threshold: Tensor,
    output_format: str = "onnx",
) -> StructInfo:
    """Suppress overlapping boxes of each class: ``boxes [B, N, 4]``, ``scores [B, C, N]``.

    The limits are numbers, or tensors of one. Format ``onnx``: rows of image, class and box
    ``[B * C * N, 3]``, as many as the second result ``[1]`` says are valid. ``tensorflow``: class
    and box ``[B, C * N, 2]``, their scores ``[B, C * N]`` and the numbers of valid ones ``[B]``.

    Raises ``VerifyError`` for operands and formats that don't fit.
    """
    require_ndim(boxes, 3, "boxes")
    require_ndim(scores, 3, "scores")
    _require_floats(boxes, "boxes")
    _require_floats(scores, "scores")
    limits = (
        ("max_output_boxes_per_class", max_output_boxes_per_class),
        ("iou_threshold", iou_threshold),
        ("score_threshold", score_threshold),
    )
    for name, info in limits:
        if any(as_int(extent) != 1 for extent in known(info, name)):
            raise VerifyError(f"{name} is one number, got {info!r}")
    batch, classes, count = known(scores, "scores")
    require_equal("images of boxes and scores", known(boxes, "boxes")[0], batch)
    require_equal("boxes and scores", known(boxes, "boxes")[1], count)
    require_equal("corners of a box", known(boxes, "boxes")[2], 4)
    total = simplify(classes * count)
    if output_format == "onnx":
        rows = TensorStructInfo((simplify(batch * total), 3), "int64")
        return TupleStructInfo((rows, TensorStructInfo((1,), "int64")))
    if output_format != "tensorflow":
        raise VerifyError(f"output_format is 'onnx' or 'tensorflow', got {output_format!r}")
    return TupleStructInfo(
        (
            TensorStructInfo((batch, total, 2), "int64"),
            TensorStructInfo((batch, total), scores.dtype),
            TensorStructInfo((batch,), "int64"),
        )
    )


@operator("vision.multibox_transform_loc", legalize=topi.vision.multibox_transform_loc)
def multibox_transform_loc(
    cls_pred: Tensor,
    loc_pred: Tensor,
    anchor: Tensor,
    clip: bool = False,
    threshold: float = 0.0,
    variances: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
    keep_background: bool = True,
    apply_softmax: bool = True,
) -> StructInfo:
    """Turn predictions into boxes ``[B, N, 4]`` (top, left, bottom, right), scores ``[B, C, N]``.

    ``loc_pred [B, 4 * N]`` has for each anchor how far the middle is off and how much larger the
    box is (x, y, width, height), in units of ``variances``; ``anchor [1, N, 4]`` has left, top,
    right and bottom. ``clip`` moves boxes into the image, from 0 to 1. ``cls_pred [B, C, N]``
    become scores by a softmax over classes, if asked for; those below ``threshold`` are zero, and
    so are the first class's without ``keep_background``.

    Raises ``VerifyError`` for operands that don't fit.
    """
    for name, info, ndim in (
        ("cls_pred", cls_pred, 3), ("loc_pred", loc_pred, 2), ("anchor", anchor, 3),
    ):  # fmt: skip
        require_ndim(info, ndim, name)
        _require_floats(info, name)
    dtype = same_dtype(cls_pred, loc_pred, anchor)
    batch, _, count = known(cls_pred, "cls_pred")
    offsets, priors = known(loc_pred, "loc_pred"), known(anchor, "anchor")
    require_equal("images of cls_pred and loc_pred", offsets[0], batch)
    require_equal("offsets are four for each anchor", offsets[1], simplify(count * 4))
    require_equal("anchors and predictions", priors[1], count)
    require_equal("images of anchor", priors[0], 1)
    require_equal("edges of an anchor", priors[2], 4)
    if len(variances) != 4:
        raise VerifyError(f"there are four variances, got {list(variances)}")
    return TupleStructInfo((TensorStructInfo((batch, count, 4), dtype), tensor_like(cls_pred)))
