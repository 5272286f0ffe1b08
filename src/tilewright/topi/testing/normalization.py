"""Normalizations and softmax in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.topi.testing.windows import Array, wide

Axes = int | Sequence[int]


def _axes(axis: Axes, rank: int) -> tuple[int, ...]:
    given = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    return tuple(a % rank for a in given)


def _along(vector: Array, axis: int, rank: int) -> Array:
    """Return a vector that broadcasts along an axis."""
    return wide(vector).reshape([-1 if a == axis % rank else 1 for a in range(rank)])


def _standard(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = wide(x) - wide(x).mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon))


def batch_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    moving_mean: Array,
    moving_var: Array,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
    training: bool,
    momentum: float,
) -> list[Array]:
    """Normalize channels by moving statistics, or while ``training`` by those of the batch.

    Return the result and the moving mean and variance, which training moves by ``momentum``.
    """
    others = tuple(a for a in range(x.ndim) if a != axis % x.ndim)
    mean, var = wide(moving_mean), wide(moving_var)
    after = mean, var
    if training:
        batch = wide(x).mean(others), wide(x).var(others)
        after = tuple(momentum * new + (1 - momentum) * old for new, old in zip(batch, after))
        mean, var = batch
    made = (wide(x) - _along(mean, axis, x.ndim)) / np.sqrt(_along(var, axis, x.ndim) + epsilon)
    if scale:
        made = made * _along(gamma, axis, x.ndim)
    if center:
        made = made + _along(beta, axis, x.ndim)
    return [made.astype(x.dtype), *(a.astype(moving_mean.dtype) for a in after)]


def group_norm_python(
    data: Array,
    gamma: Array,
    beta: Array,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Array:
    """Normalize groups of channels, each over its channels and ``axes``."""
    rank, channel = data.ndim, channel_axis % data.ndim
    shape = list(data.shape)
    shape[channel : channel + 1] = [num_groups, data.shape[channel] // num_groups]
    reduced = tuple(a + (a > channel) for a in _axes(axes, rank))
    made = _standard(data.reshape(shape), (*reduced, channel + 1), epsilon).reshape(data.shape)
    made = made * _along(gamma, channel, rank) + _along(beta, channel, rank)
    return made.astype(data.dtype)


def instance_norm_python(
    data: Array, gamma: Array, beta: Array, axis: Axes, epsilon: float = 1e-5
) -> Array:
    """Normalize over axes, for each image and each channel (axis 1)."""
    made = _standard(data, _axes(axis, data.ndim), epsilon)
    made = made * _along(gamma, 1, data.ndim) + _along(beta, 1, data.ndim)
    return made.astype(data.dtype)


def layer_norm_python(
    data: Array, gamma: Array, beta: Array | None, axis: Axes, epsilon: float = 1e-5
) -> Array:
    """Normalize over axes; ``gamma`` and ``beta`` have these axes."""
    axes = _axes(axis, data.ndim)
    made = _standard(data, axes, epsilon) * _over(gamma, axes, data)
    if beta is not None:
        made = made + _over(beta, axes, data)
    return made.astype(data.dtype)


def rms_norm_python(data: Array, weight: Array, axis: Axes, epsilon: float = 1e-5) -> Array:
    """Divide by the root of the mean square over axes; ``weight`` has these axes."""
    axes = _axes(axis, data.ndim)
    square = (wide(data) ** 2).mean(axes, keepdims=True)
    made = wide(data) / np.sqrt(square + epsilon) * _over(weight, axes, data)
    return np.asarray(made, data.dtype)


def _over(weight: Array, axes: tuple[int, ...], data: Array) -> Array:
    """Return weights whose axes are those, so that they broadcast."""
    order = np.argsort(axes)
    shape = [data.shape[a] if a in axes else 1 for a in range(data.ndim)]
    return wide(weight).reshape([data.shape[a] for a in axes]).transpose(order).reshape(shape)


def l2_normalize_python(a_np: Array, eps: float, axis: Axes | None = None) -> Array:
    """Divide by the Euclidean norm over axes (or all), whose square is at least ``eps``."""
    axes = tuple(range(a_np.ndim)) if axis is None else _axes(axis, a_np.ndim)
    square = (wide(a_np) ** 2).sum(axes, keepdims=True)
    return np.asarray(a_np / np.sqrt(np.maximum(square, eps)), a_np.dtype)


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    """Divide by ``(bias + alpha / size * squares) ** beta`` of ``size`` neighbours on an axis."""
    square = np.moveaxis(wide(a_np) ** 2, axis, 0)
    half = size // 2
    sums = [square[max(i - half, 0) : i + half + 1].sum(0) for i in range(a_np.shape[axis])]
    total = np.moveaxis(np.stack(sums), 0, axis)
    return np.asarray(a_np / (bias + alpha * total / size) ** beta, a_np.dtype)


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Return exponentials, divided by their sum along an axis."""
    return np.exp(_log_softmax(a_np, axis)).astype(a_np.dtype)


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Return logarithms of ``softmax_python``."""
    return _log_softmax(a_np, axis).astype(a_np.dtype)


def _log_softmax(a_np: Array, axis: int) -> Array:
    shifted = wide(a_np) - wide(a_np).max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))
