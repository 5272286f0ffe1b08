"""Convolutions: those of ResNet-50 and MobileNetV2 at batch 1, and the other kinds."""

from __future__ import annotations

import numpy as np

from benchmarks.workload import Array, Workload, data, weight
from tilewright import topi


def conv_reference(x: Array, w: Array, stride: int, pad: int) -> Array:
    """Convolve over any number of spatial axes, as a product of windows and weights."""
    spatial = x.ndim - 2
    x = np.pad(x, ((0, 0), (0, 0), *((pad, pad),) * spatial))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], tuple(range(2, x.ndim)))
    windows = windows[(slice(None), slice(None), *(slice(None, None, stride),) * spatial)]
    axes = tuple(range(2 + spatial, 2 + 2 * spatial))
    made = np.tensordot(windows, w, axes=((1, *axes), tuple(range(1, w.ndim))))
    return np.ascontiguousarray(np.moveaxis(made, -1, 1))


def _depthwise_reference(x: Array, w: Array, stride: int, pad: int) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.asarray(np.einsum("nchwij,cij->nchw", windows[:, :, ::stride, ::stride], w[:, 0]))


def _transpose_reference(x: Array, w: Array, stride: int, pad: int) -> Array:
    n, _, height, width = x.shape
    filters, kernel = w.shape[1], w.shape[2]
    full = (height - 1) * stride + kernel, (width - 1) * stride + kernel
    made = np.zeros((n, filters, *full), x.dtype)
    for i in range(kernel):
        for j in range(kernel):
            part = np.einsum("nchw,cf->nfhw", x, w[:, :, i, j], optimize=True)
            made[:, :, i : i + height * stride : stride, j : j + width * stride : stride] += part
    return np.ascontiguousarray(made[:, :, pad : full[0] - pad, pad : full[1] - pad])


def _conv(
    family: str, channels: int, size: int, filters: int, kernel: int = 1, stride: int = 1
) -> Workload:
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    step = f"/{stride}" if stride > 1 else ""
    return Workload(
        f"conv2d {channels}->{filters} {kernel}x{kernel}{step} @{size}",
        family,
        (data(1, channels, size, size), weight(filters, channels, kernel, kernel)),
        lambda x, w: topi.nn.conv2d(x, w, strides=stride, padding=pad),
        lambda x, w: conv_reference(x, w, stride, pad),
        lambda torch, F, x, w: F.conv2d(x, w, stride=stride, padding=pad),
        (lambda g, x, w: g.op("Conv", x, w, strides=[stride] * 2, pads=[pad] * 4),),
        2.0 * channels * kernel * kernel * filters * out * out,
        graph=lambda op, x, w: op.nn.conv2d(x, w, strides=stride, padding=pad),
        quick=(channels, size, filters, kernel) == (64, 56, 64, 3),
    )


def _depthwise(channels: int, size: int, stride: int = 1, kernel: int = 3) -> Workload:
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    step = f"/{stride}" if stride > 1 else ""
    return Workload(
        f"depthwise {channels} {kernel}x{kernel}{step} @{size}",
        "depthwise",
        (data(1, channels, size, size), weight(channels, 1, kernel, kernel)),
        lambda x, w: topi.nn.depthwise_conv2d(x, w, strides=stride, padding=pad),
        lambda x, w: _depthwise_reference(x, w, stride, pad),
        lambda torch, F, x, w: F.conv2d(x, w, stride=stride, padding=pad, groups=channels),
        (lambda g, x, w: g.op("Conv", x, w, strides=[stride] * 2, pads=[pad] * 4, group=channels),),
        2.0 * channels * kernel * kernel * out * out,
    )


def _conv3d(channels: int, depth: int, size: int, filters: int) -> Workload:
    return Workload(
        f"conv3d {channels}->{filters} 3x3x3 @{depth}x{size}x{size}",
        "conv3d",
        (data(1, channels, depth, size, size), weight(filters, channels, 3, 3, 3)),
        lambda x, w: topi.nn.conv3d(x, w, strides=1, padding=1),
        lambda x, w: conv_reference(x, w, 1, 1),
        lambda torch, F, x, w: F.conv3d(x, w, stride=1, padding=1),
        (lambda g, x, w: g.op("Conv", x, w, pads=[1] * 6),),
        2.0 * channels * 27 * filters * depth * size * size,
    )


def _conv_transpose(
    channels: int, size: int, filters: int, kernel: int = 4, stride: int = 2, pad: int = 1
) -> Workload:
    return Workload(
        f"conv2d_transpose {channels}->{filters} {kernel}x{kernel}/{stride} @{size}",
        "conv2d_transpose",
        (data(1, channels, size, size), weight(channels, filters, kernel, kernel)),
        lambda x, w: topi.nn.conv2d_transpose(x, w, strides=stride, padding=pad),
        lambda x, w: _transpose_reference(x, w, stride, pad),
        lambda torch, F, x, w: F.conv_transpose2d(x, w, stride=stride, padding=pad),
        (lambda g, x, w: g.op("ConvTranspose", x, w, strides=[stride] * 2, pads=[pad] * 4),),
        2.0 * channels * kernel * kernel * filters * size * size,
    )


def _fused(channels: int, size: int, filters: int) -> Workload:
    return Workload(
        f"conv2d+bias+residual+relu {channels}->{filters} 1x1 @{size}",
        "fused conv",
        (
            data(1, channels, size, size),
            weight(filters, channels, 1, 1),
            weight(filters),
            data(1, filters, size, size),
        ),
        lambda x, w, b, r: topi.nn.relu(
            topi.add(topi.add(topi.nn.conv2d(x, w), topi.reshape(b, (1, filters, 1, 1))), r)
        ),
        lambda x, w, b, r: np.maximum(conv_reference(x, w, 1, 0) + b.reshape(1, -1, 1, 1) + r, 0),
        lambda torch, F, x, w, b, r: F.relu(F.conv2d(x, w, b) + r),
        (lambda g, x, w, b, r: g.op("Relu", g.op("Add", g.op("Conv", x, w, b), r)),),
        2.0 * channels * filters * size * size,
    )


# Channels, size, filters, kernel, stride: each convolution of the network once.
_RESNET50 = (
    (3, 224, 64, 7, 2),
    *((64, 56, 64), (64, 56, 64, 3), (64, 56, 256), (256, 56, 64)),
    *((256, 56, 128), (128, 56, 128, 3, 2), (128, 28, 512), (256, 56, 512, 1, 2)),
    *((512, 28, 128), (128, 28, 128, 3)),
    *((512, 28, 256), (256, 28, 256, 3, 2), (256, 14, 1024), (512, 28, 1024, 1, 2)),
    *((1024, 14, 256), (256, 14, 256, 3)),
    *((1024, 14, 512), (512, 14, 512, 3, 2), (512, 7, 2048), (1024, 14, 2048, 1, 2)),
    *((2048, 7, 512), (512, 7, 512, 3)),
)
_POINTWISE = (
    *((32, 112, 16), (16, 112, 96), (96, 56, 24), (24, 56, 144), (144, 28, 32), (32, 28, 192)),
    *((192, 14, 64), (64, 14, 384), (96, 14, 576), (576, 7, 160), (160, 7, 960), (320, 7, 1280)),
)
_DEPTHWISE = (
    *((32, 112), (96, 112), (96, 112, 2), (144, 56), (144, 56, 2), (192, 28), (192, 28, 2)),
    *((384, 14), (576, 14, 2), (960, 7)),
)

WORKLOADS = (
    *(_conv("resnet50", *shape) for shape in _RESNET50),
    *(_conv("pointwise", *shape) for shape in _POINTWISE),
    *(_depthwise(*shape) for shape in _DEPTHWISE),
    _conv3d(16, 16, 56, 32),
    _conv_transpose(128, 28, 64),
    _conv_transpose(128, 28, 64, 3, 2, 1),
    _fused(64, 56, 256),
)
