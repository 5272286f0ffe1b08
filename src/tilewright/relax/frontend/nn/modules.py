"""Modules that are ready to use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import Expr
from tilewright.relax import ops
from tilewright.relax.frontend.nn.core import Module, ModuleList
from tilewright.relax.frontend.nn.operators import elementwise, networks, shapes
from tilewright.relax.frontend.nn.tensor import Parameter, Tensor, emit_tensor

Extent = int | str | Expr


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return elementwise.relu(x)


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return elementwise.silu(x)


class GELU(Module):
    """x * Phi(x); ``approximate="tanh"`` for the tanh form."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(f"approximate must be 'none' or 'tanh', got {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return elementwise.gelu(x, self.approximate)


class Linear(Module):
    """``x @ weight.T + bias``; the weight is ``[out_features, in_features]``."""

    def __init__(
        self,
        in_features: Extent,
        out_features: Extent,
        bias: bool = True,
        dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.out_dtype = out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), out_dtype or dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        weight = shapes.permute_dims(self.weight)
        made = elementwise.matmul(x, weight, self.out_dtype)
        return made if self.bias is None else made + self.bias

    def to(self, dtype: str | None = None) -> Linear:
        """Change the element type; a bias of ``out_dtype`` stays."""
        self.weight.to(dtype)
        if self.bias is not None and self.out_dtype is None:
            self.bias.to(dtype)
        return self


def _sizes(value: int | Sequence[int], count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value)


class _Convolution(Module):
    """What convolutions have in common: their options, weight ``[O, I / groups, …]`` and bias."""

    def _set(
        self,
        channels: tuple[int, int],
        kernel: Sequence[int],
        options: tuple[int | Sequence[int], int | Sequence[int], int | Sequence[int], int],
        bias: bool,
        dtype: str | None,
    ) -> None:
        self.in_channels, self.out_channels = channels
        self.stride, self.padding, self.dilation, self.groups = options
        if channels[0] % self.groups or channels[1] % self.groups:
            raise ValueError(
                f"channels {channels[0]} and {channels[1]} do not divide into {self.groups} groups"
            )
        self.weight = Parameter(self._weight_shape(kernel), dtype)
        self.bias = Parameter((channels[1],), dtype) if bias else None

    def _weight_shape(self, kernel: Sequence[int]) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels // self.groups, *kernel)


class Conv1D(_Convolution):
    """Convolution over ``[N, C, W]``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.kernel_size = kernel_size
        options = stride, padding, dilation, groups
        self._set((in_channels, out_channels), [kernel_size], options, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return networks.conv1d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Conv2D(_Convolution):
    """Convolution over images of ``data_layout``, ``"NCHW"`` or ``"NHWC"``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCHW",
    ) -> None:
        self.kernel_size = _sizes(kernel_size, 2)
        self.data_layout = data_layout
        options = stride, padding, dilation, groups
        self._set((in_channels, out_channels), self.kernel_size, options, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return networks.conv2d(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.data_layout,
        )


class Conv3D(_Convolution):
    """Convolution over volumes of ``data_layout``, ``"NCDHW"`` or ``"NDHWC"``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCDHW",
    ) -> None:
        self.kernel_size = _sizes(kernel_size, 3)
        self.data_layout = data_layout
        options = stride, padding, dilation, groups
        self._set((in_channels, out_channels), self.kernel_size, options, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return networks.conv3d(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.data_layout,
        )


class ConvTranspose1D(_Convolution):
    """Transposed convolution over ``[N, C, W]``; the weight is ``[I, O / groups, K]``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.kernel_size = kernel_size
        self.output_padding = output_padding
        options = stride, padding, dilation, groups
        self._set((in_channels, out_channels), [kernel_size], options, bias, dtype)

    def _weight_shape(self, kernel: Sequence[int]) -> tuple[int, ...]:
        return (self.in_channels, self.out_channels // self.groups, *kernel)

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return networks.conv1d_transpose(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.dilation,
            self.groups,
        )


class LayerNorm(Module):
    """Normalise the last dimension, then scale and shift."""

    def __init__(
        self,
        normalized_shape: int,
        eps: float | None = 1e-5,
        elementwise_affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape
        self.eps = 1e-5 if eps is None else eps
        self.elementwise_affine = elementwise_affine
        self.weight = Parameter((normalized_shape,), dtype) if elementwise_affine else None
        self.bias = Parameter((normalized_shape,), dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return networks.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Divide by the root mean square over ``axes``, then scale by a weight, and shift by a bias."""

    def __init__(
        self,
        hidden_size: int,
        axes: int | Sequence[int],
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        chosen: tuple[Any, ...] = tuple(axes) if isinstance(axes, (list, tuple)) else (axes,)
        if not all(isinstance(axis, int) for axis in chosen):
            raise TypeError(f"RMSNorm(hidden_size, axes, epsilon, bias): axes are ints, got {axes}")
        self.axes = chosen
        self.epsilon = epsilon
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        made = networks.rms_norm(x, self.weight, self.axes, self.epsilon)
        return made if self.bias is None else made + self.bias


class GroupNorm(Module):
    """Normalise groups of channels, then scale and shift each channel."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(
        self, x: Tensor, channel_axis: int = 1, axes: Sequence[int] | None = None
    ) -> Tensor:
        """Apply; ``axes`` are those of each group besides the channels."""
        return networks.group_norm(
            x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes
        )


class BatchNorm2D(Module):
    """Normalise channels by running statistics (inference)."""

    def __init__(self, num_features: int, eps: float = 1e-5, dtype: str | None = None) -> None:
        self.eps = eps
        self.weight = Parameter((num_features,), dtype)
        self.bias = Parameter((num_features,), dtype)
        self.running_mean = Parameter((num_features,), dtype)
        self.running_var = Parameter((num_features,), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return emit_tensor(
            ops.nn.batch_norm(
                x,
                self.weight,
                self.bias,
                self.running_mean,
                self.running_var,
                1,
                self.eps,
                training=False,
            )[0]
        )


class Embedding(Module):
    """Rows of a table by index."""

    def __init__(self, num: Extent, dim: Extent, dtype: str | None = None) -> None:
        self.num = num
        self.dim = dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Look up."""
        return shapes.take(self.weight, x, 0)


class Dropout(Module):
    """Identity: graphs are compiled for inference."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return emit_tensor(ops.nn.dropout(x, self.p)[0])


class Sequential(ModuleList):
    """Modules run in order, named by position."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)
