"""Operators in NumPy: what a test of one's own compares results of ``topi`` with.

Each is written for reading and in ``float64`` inside; results have the dtype of the data.
"""

from __future__ import annotations

from tilewright.topi.testing.conv_transpose import (
    conv1d_transpose_ncw_python,
    conv2d_transpose_nchw_python,
    conv2d_transpose_nhwc_python,
    conv3d_transpose_ncdhw_python,
    group_conv1d_transpose_ncw_python,
)
from tilewright.topi.testing.convolution import (
    conv1d_ncw_python,
    conv2d_backward_weight_python,
    conv2d_hwcn_python,
    conv2d_nchw_python,
    conv2d_nhwc_python,
    conv3d_ncdhw_python,
    conv3d_ndhwc_python,
    depthwise_conv2d_python_nchw,
    depthwise_conv2d_python_nchwc,
    depthwise_conv2d_python_nhwc,
    group_conv1d_ncw_python,
)
from tilewright.topi.testing.deformable import (
    correlation_nchw_python,
    deformable_conv2d_nchw_python,
    deformable_conv2d_nhwc_python,
)
from tilewright.topi.testing.indexing import (
    gather_nd_python,
    gather_python,
    matrix_set_diag,
    one_hot,
    searchsorted_ref,
    sequence_mask,
    slice_axis_python,
    strided_set_python,
    strided_slice_python,
)
from tilewright.topi.testing.linear import (
    attention_python,
    batch_matmul,
    dense,
    lstm_python,
    nll_loss,
)
from tilewright.topi.testing.normalization import (
    batch_norm,
    group_norm_python,
    instance_norm_python,
    l2_normalize_python,
    layer_norm_python,
    log_softmax_python,
    lrn_python,
    rms_norm_python,
    softmax_python,
)
from tilewright.topi.testing.pooling import adaptive_pool, pool_grad_nchw, poolnd_python
from tilewright.topi.testing.regions import (
    get_valid_counts_python,
    non_max_suppression_python,
    roi_align_nchw_python,
    roi_align_nhwc_python,
    roi_pool_nchw_python,
)
from tilewright.topi.testing.resizing import (
    crop_and_resize_python,
    resize1d_python,
    resize2d_python,
    resize3d_python,
)
from tilewright.topi.testing.sampling import affine_grid_python, grid_sample_python
from tilewright.topi.testing.space import (
    batch_to_space_nd_python,
    depth_to_space_python,
    dilate_python,
    reorg_python,
    space_to_batch_nd_python,
    space_to_depth_python,
)

__all__ = [
    "adaptive_pool",
    "affine_grid_python",
    "attention_python",
    "batch_matmul",
    "batch_norm",
    "batch_to_space_nd_python",
    "conv1d_ncw_python",
    "conv1d_transpose_ncw_python",
    "conv2d_backward_weight_python",
    "conv2d_hwcn_python",
    "conv2d_nchw_python",
    "conv2d_nhwc_python",
    "conv2d_transpose_nchw_python",
    "conv2d_transpose_nhwc_python",
    "conv3d_ncdhw_python",
    "conv3d_ndhwc_python",
    "conv3d_transpose_ncdhw_python",
    "correlation_nchw_python",
    "crop_and_resize_python",
    "deformable_conv2d_nchw_python",
    "deformable_conv2d_nhwc_python",
    "dense",
    "depth_to_space_python",
    "depthwise_conv2d_python_nchw",
    "depthwise_conv2d_python_nchwc",
    "depthwise_conv2d_python_nhwc",
    "dilate_python",
    "gather_nd_python",
    "gather_python",
    "get_valid_counts_python",
    "grid_sample_python",
    "group_conv1d_ncw_python",
    "group_conv1d_transpose_ncw_python",
    "group_norm_python",
    "instance_norm_python",
    "l2_normalize_python",
    "layer_norm_python",
    "log_softmax_python",
    "lrn_python",
    "lstm_python",
    "matrix_set_diag",
    "nll_loss",
    "non_max_suppression_python",
    "one_hot",
    "pool_grad_nchw",
    "poolnd_python",
    "reorg_python",
    "resize1d_python",
    "resize2d_python",
    "resize3d_python",
    "rms_norm_python",
    "roi_align_nchw_python",
    "roi_align_nhwc_python",
    "roi_pool_nchw_python",
    "searchsorted_ref",
    "sequence_mask",
    "slice_axis_python",
    "softmax_python",
    "space_to_batch_nd_python",
    "space_to_depth_python",
    "strided_set_python",
    "strided_slice_python",
]
