"""Operators of neural networks."""

from __future__ import annotations

from tilewright.topi.nn.activation import (
    celu,
    elu,
    gelu,
    gelu_tanh,
    glu,
    hard_sigmoid,
    hard_swish,
    hardshrink,
    hardtanh,
    leaky_relu,
    log_sigmoid,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    silu,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from tilewright.topi.nn.attention import paged_attention, scaled_dot_product_attention
from tilewright.topi.nn.binary import binarize_pack, binary_dense, bitpack
from tilewright.topi.nn.conv import (
    conv,
    conv1d,
    conv2d,
    conv3d,
    depthwise_conv2d,
)
from tilewright.topi.nn.conv_forms import (
    conv1d_ncw,
    conv1d_nwc,
    conv1d_transpose_ncw,
    conv2d_hwcn,
    conv2d_nchw,
    conv2d_NCHWc,
    conv2d_NCHWc_OIHWo,
    conv2d_nhwc,
    conv2d_transpose_nchw,
    conv3d_ncdhw,
    conv3d_ndhwc,
    conv3d_transpose_ncdhw,
    depthwise_conv2d_nchw,
    depthwise_conv2d_NCHWc,
    depthwise_conv2d_nhwc,
    group_conv1d_ncw,
    group_conv1d_nwc,
    group_conv1d_transpose_ncw,
    group_conv2d_nchw,
    group_conv2d_nhwc,
    group_conv2d_transpose_nchw,
    group_conv3d_transpose_ncdhw,
    unpack_NCHWc_to_nchw,
)
from tilewright.topi.nn.conv_gradient import (
    conv_weight_backward,
    depthwise_conv2d_backward_input_nhwc,
    depthwise_conv2d_backward_weight_nhwc,
)
from tilewright.topi.nn.conv_layout import check_groups, kernel_layout_of
from tilewright.topi.nn.conv_transpose import (
    conv1d_transpose,
    conv2d_transpose,
    conv3d_transpose,
)
from tilewright.topi.nn.deformable import (
    correlation_nchw,
    deformable_conv2d_nchw,
    deformable_conv2d_nhwc,
)
from tilewright.topi.nn.dense import batch_matmul, dense, matmul
from tilewright.topi.nn.int4 import (
    dense_int4,
    dequantize_int4,
    pack_int4,
    quantize_int4,
    unpack_int4,
)
from tilewright.topi.nn.lstm_scan import lstm
from tilewright.topi.nn.mapping import (
    fifo_buffer,
    flatten,
    lrn,
    nll_loss,
    scale_shift_nchw,
    scale_shift_nchwc,
    scale_shift_nhwc,
)
from tilewright.topi.nn.norm import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from tilewright.topi.nn.pad import (
    circular_pad,
    dilate,
    get_padded_shape,
    mirror_pad,
    pad,
    reflect_pad,
    replicate_pad,
)
from tilewright.topi.nn.pages import append_paged_kv
from tilewright.topi.nn.pool_forms import (
    adaptive_pool,
    adaptive_pool1d,
    adaptive_pool3d,
    global_pool,
    pool1d,
    pool2d,
    pool3d,
    pool_grad,
)
from tilewright.topi.nn.pool_places import adaptive_max_pool_places, max_pool_places
from tilewright.topi.nn.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    global_avg_pool2d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from tilewright.topi.nn.quantized import (
    ZeroPoint,
    conv2d_int8,
    dense_int8,
    dequantize,
    quantize,
    requantize,
    weight_sums,
)
from tilewright.topi.nn.recurrent import recurrence
from tilewright.topi.nn.softmax import fast_softmax, log_softmax, softmax, softmax_common
from tilewright.topi.nn.space import (
    batch_to_space_nd,
    depth_to_space,
    space_to_batch_nd,
    space_to_depth,
)
from tilewright.topi.nn.spatial import (
    get_pad_tuple,
    get_pad_tuple1d,
    get_pad_tuple3d,
    get_pad_tuple_generic,
)
from tilewright.topi.nn.strassen import (
    STRASSEN,
    STRASSEN_PRODUCTS,
    matmul_strassen,
    strassen_scales,
    strassen_weight,
)
from tilewright.topi.nn.upsampling import upsampling, upsampling3d
from tilewright.topi.nn.winograd import (
    WINOGRAD_TILE,
    conv2d_winograd,
    conv2d_winograd_weight_transform,
    conv2d_winograd_without_weight_transform,
    winograd_matrices,
    winograd_weight,
)
from tilewright.topi.nn.winograd_forms import (
    conv2d_winograd_nchw,
    conv2d_winograd_nhwc,
    winograd_transform_matrices,
)
from tilewright.topi.nn.winograd_gradient import WINOGRAD_GRADIENT, conv2d_weight_backward_winograd

__all__ = [
    "STRASSEN", "STRASSEN_PRODUCTS", "WINOGRAD_GRADIENT", "WINOGRAD_TILE", "ZeroPoint",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "adaptive_max_pool_places", "adaptive_pool",
    "adaptive_pool1d", "adaptive_pool3d", "append_paged_kv", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "batch_matmul", "batch_norm", "batch_to_space_nd", "binarize_pack",
    "binary_dense", "bitpack", "celu", "check_groups", "circular_pad", "conv", "conv1d",
    "conv1d_ncw", "conv1d_nwc", "conv1d_transpose", "conv1d_transpose_ncw", "conv2d",
    "conv2d_NCHWc", "conv2d_NCHWc_OIHWo", "conv2d_hwcn", "conv2d_int8", "conv2d_nchw",
    "conv2d_nhwc", "conv2d_transpose", "conv2d_transpose_nchw", "conv2d_weight_backward_winograd",
    "conv2d_winograd", "conv2d_winograd_nchw", "conv2d_winograd_nhwc",
    "conv2d_winograd_weight_transform", "conv2d_winograd_without_weight_transform", "conv3d",
    "conv3d_ncdhw", "conv3d_ndhwc", "conv3d_transpose", "conv3d_transpose_ncdhw",
    "conv_weight_backward", "correlation_nchw", "deformable_conv2d_nchw", "deformable_conv2d_nhwc",
    "dense", "dense_int4", "dense_int8", "depth_to_space", "depthwise_conv2d",
    "depthwise_conv2d_NCHWc", "depthwise_conv2d_backward_input_nhwc",
    "depthwise_conv2d_backward_weight_nhwc", "depthwise_conv2d_nchw", "depthwise_conv2d_nhwc",
    "dequantize", "dequantize_int4", "dilate", "elu", "fast_softmax", "fifo_buffer", "flatten",
    "gelu", "gelu_tanh", "get_pad_tuple", "get_pad_tuple1d", "get_pad_tuple3d",
    "get_pad_tuple_generic", "get_padded_shape", "global_avg_pool2d", "global_pool", "glu",
    "group_conv1d_ncw", "group_conv1d_nwc", "group_conv1d_transpose_ncw", "group_conv2d_nchw",
    "group_conv2d_nhwc", "group_conv2d_transpose_nchw", "group_conv3d_transpose_ncdhw",
    "group_norm", "hard_sigmoid", "hard_swish", "hardshrink", "hardtanh", "instance_norm",
    "kernel_layout_of", "layer_norm", "leaky_relu", "log_sigmoid", "log_softmax", "lrn", "lstm",
    "matmul", "matmul_strassen", "max_pool1d", "max_pool2d", "max_pool3d", "max_pool_places",
    "mirror_pad", "mish", "nll_loss", "pack_int4", "pad", "paged_attention", "pool1d", "pool2d",
    "pool3d", "pool_grad", "prelu", "quantize", "quantize_int4", "recurrence", "reflect_pad",
    "relu", "relu6", "replicate_pad", "requantize", "rms_norm", "scale_shift_nchw",
    "scale_shift_nchwc", "scale_shift_nhwc", "scaled_dot_product_attention", "selu", "silu",
    "softmax", "softmax_common", "softplus", "softshrink", "softsign", "space_to_batch_nd",
    "space_to_depth", "strassen_scales", "strassen_weight", "tanhshrink", "threshold",
    "unpack_NCHWc_to_nchw",
    "unpack_int4", "upsampling", "upsampling3d", "weight_sums", "winograd_matrices",
    "winograd_transform_matrices", "winograd_weight",
]  # fmt: skip
