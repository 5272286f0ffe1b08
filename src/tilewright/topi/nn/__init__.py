"""Operators of neural networks."""

from __future__ import annotations

from tilewright.topi.nn.activation import (
    gelu,
    gelu_tanh,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    relu,
    relu6,
    silu,
    softplus,
)
from tilewright.topi.nn.conv import (
    conv1d,
    conv2d,
    conv2d_transpose,
    conv3d,
    depthwise_conv2d,
)
from tilewright.topi.nn.dense import batch_matmul, dense, matmul
from tilewright.topi.nn.norm import batch_norm, group_norm, layer_norm, rms_norm
from tilewright.topi.nn.pad import pad
from tilewright.topi.nn.pooling import (
    adaptive_avg_pool2d,
    avg_pool2d,
    global_avg_pool2d,
    max_pool2d,
)
from tilewright.topi.nn.softmax import log_softmax, softmax
from tilewright.topi.nn.winograd import (
    WINOGRAD_TILE,
    conv2d_winograd,
    conv2d_winograd_weight_transform,
    conv2d_winograd_without_weight_transform,
    winograd_matrices,
    winograd_weight,
)

__all__ = [
    "WINOGRAD_TILE", "adaptive_avg_pool2d", "avg_pool2d", "batch_matmul", "batch_norm", "conv1d",
    "conv2d", "conv2d_transpose", "conv2d_winograd", "conv2d_winograd_weight_transform",
    "conv2d_winograd_without_weight_transform", "conv3d", "dense", "depthwise_conv2d", "gelu",
    "gelu_tanh", "global_avg_pool2d", "group_norm", "hard_sigmoid", "hard_swish", "layer_norm",
    "leaky_relu", "log_softmax", "matmul", "max_pool2d", "pad", "relu", "relu6", "rms_norm", "silu",
    "softmax", "softplus", "winograd_matrices", "winograd_weight",
]  # fmt: skip
