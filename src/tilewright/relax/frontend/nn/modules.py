"""Modules that are ready to use."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.relax import ops
from tilewright.relax.frontend.nn.core import Module, ModuleList, Parameter, Tensor, emit_tensor


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return emit_tensor(ops.nn.relu(x))


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return emit_tensor(ops.nn.silu(x))


class GELU(Module):
    """x * Phi(x); ``approximate="tanh"`` for the tanh form."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(f"approximate must be 'none' or 'tanh', got {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return emit_tensor(ops.nn.gelu(x) if self.approximate == "none" else ops.nn.gelu_tanh(x))


class Linear(Module):
    """``x @ weight.T + bias``; the weight is ``[out_features, in_features]``."""

    def __init__(
        self,
        in_features: int | str,
        out_features: int | str,
        bias: bool = True,
        dtype: str = "float32",
        out_dtype: str | None = None,
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.out_dtype = out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), out_dtype or dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        weight = emit_tensor(ops.permute_dims(self.weight), "permute_dims")
        made = emit_tensor(ops.matmul(x, weight, self.out_dtype), "matmul")
        return made if self.bias is None else emit_tensor(ops.add(made, self.bias), "add")


class Conv1D(Module):
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
        dtype: str = "float32",
    ) -> None:
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.weight = Parameter((out_channels, in_channels // groups, kernel_size), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        made = emit_tensor(
            ops.nn.conv1d(x, self.weight, self.stride, self.padding, self.dilation, self.groups)
        )
        if self.bias is None:
            return made
        return emit_tensor(ops.add(made, emit_tensor(ops.reshape(self.bias._expr, (1, -1, 1)))))


class Conv2D(Module):
    """Convolution over ``[N, C, H, W]``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str = "float32",
    ) -> None:
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"channels {in_channels} and {out_channels} do not divide into {groups} groups"
            )
        kernel = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.weight = Parameter((out_channels, in_channels // groups, *kernel), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        made = emit_tensor(
            ops.nn.conv2d(x, self.weight, self.stride, self.padding, self.dilation, self.groups),
            "conv2d",
        )
        if self.bias is None:
            return made
        return emit_tensor(ops.add(made, emit_tensor(ops.reshape(self.bias._expr, (1, -1, 1, 1)))))


class LayerNorm(Module):
    """Normalise the last dimension (or ``axes``), then scale and shift."""

    def __init__(
        self,
        normalized_shape: int,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        dtype: str = "float32",
    ) -> None:
        self.eps = eps
        self.normalized_shape = normalized_shape
        self.dtype = dtype
        self.weight = Parameter((normalized_shape,), dtype) if elementwise_affine else None
        self.bias = Parameter((normalized_shape,), dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        weight: Tensor | None = self.weight
        if weight is None:
            weight = emit_tensor(ops.ones((self.normalized_shape,), self.dtype))
        return emit_tensor(ops.nn.layer_norm(x, weight, self.bias, -1, self.eps))


class RMSNorm(Module):
    """Divide by the root mean square over ``axes``, then scale by a weight, and shift by a bias."""

    def __init__(
        self,
        hidden_size: int,
        axes: int | Sequence[int],
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str = "float32",
    ) -> None:
        chosen = tuple(axes) if isinstance(axes, (list, tuple)) else (axes,)
        if not all(isinstance(axis, int) for axis in chosen):
            raise TypeError(f"RMSNorm(hidden_size, axes, epsilon, bias): axes are ints, got {axes}")
        self.axes = chosen
        self.epsilon = epsilon
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        made = emit_tensor(ops.nn.rms_norm(x, self.weight, self.axes, self.epsilon))
        return made if self.bias is None else emit_tensor(ops.add(made, self.bias))


class BatchNorm2D(Module):
    """Normalise channels by running statistics (inference)."""

    def __init__(self, num_features: int, eps: float = 1e-5, dtype: str = "float32") -> None:
        self.eps = eps
        self.weight = Parameter((num_features,), dtype)
        self.bias = Parameter((num_features,), dtype)
        self.running_mean = Parameter((num_features,), dtype)
        self.running_var = Parameter((num_features,), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return emit_tensor(
            ops.nn.batch_norm(
                x, self.weight, self.bias, self.running_mean, self.running_var, 1, self.eps
            )
        )


class Embedding(Module):
    """Rows of a table by index."""

    def __init__(self, num: int | str, dim: int, dtype: str = "float32") -> None:
        self.num = num
        self.dim = dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Look up."""
        return emit_tensor(ops.take(self.weight, x, 0))


class Dropout(Module):
    """Identity: graphs are compiled for inference."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return emit_tensor(ops.nn.dropout(x, self.p))


class Sequential(ModuleList):
    """Modules run in order, named by position."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)
