"""Operators on ``nn.Tensor``: those of ``relax.op``, emitted when called.

Every operator is here under its name (``nn.op.matmul``, ``nn.op.softmax``, …); neural network
operators need no ``nn.`` prefix. Operators whose arguments, defaults or layouts differ between
TVM's ``nn.op`` and ``relax.op`` are written out here, with TVM's signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import ExprLike
from tilewright.relax import ops
from tilewright.relax.frontend.nn.core import Tensor, emit, emit_tensor
from tilewright.relax.registry import BUILDERS, builders_in

_CACHE: dict[str, Callable[..., Any]] = {}


def _find(name: str) -> Callable[..., Any] | None:
    return BUILDERS.get(f"nn.{name}", BUILDERS.get(name))


def __getattr__(name: str) -> Any:
    """Return an operator that takes and returns ``nn.Tensor``."""
    if name.startswith("_"):
        raise AttributeError(name)
    made = _CACHE.get(name)
    if made is None:
        function = _find(name)
        if function is None:
            raise AttributeError(f"nn.op has no operator {name!r}")

        def call(*args: Any, **kwargs: Any) -> Any:
            return emit(function(*map(_unwrapped, args), **kwargs))

        call.__name__ = call.__qualname__ = name
        call.__doc__ = function.__doc__
        made = _CACHE[name] = call
    return made


def _unwrapped(value: object) -> Any:
    """Graph values behind tensors, also in lists."""
    if hasattr(value, "_expr"):
        return value._expr
    if isinstance(value, (list, tuple)):
        return type(value)(_unwrapped(item) for item in value)
    return value


def __dir__() -> list[str]:
    return sorted({*builders_in(), *builders_in("nn"), *_WRITTEN})


# ---- networks --------------------------------------------------------------------------------


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attention; operands and result are ``[batch, sequence, heads, depth]``.

    ``attn_mask`` broadcasts against ``[batch, heads, queries, keys]``: a bool mask says which keys
    a query sees, any other is added to the scores.
    """
    made = ops.nn.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask,
        scale=scale,
        causal_mask="TopLeft" if is_causal else None,
        layout="BSHD",
    )
    return emit_tensor(made, "scaled_dot_product_attention")


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise the last dimensions, which have ``normalized_shape``, then scale and shift."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    gamma = emit_tensor(ops.ones(shape, x.dtype)) if weight is None else weight
    axes = tuple(range(-len(shape), 0))
    return emit_tensor(ops.nn.layer_norm(x, gamma, bias, axes, eps), "layer_norm")


def rms_norm(x: Tensor, weight: Tensor, axes: int | Sequence[int], epsilon: float = 1e-5) -> Tensor:
    """Divide by the root mean square over ``axes``, then scale by ``weight``."""
    chosen = axes if isinstance(axes, int) else tuple(axes)
    return emit_tensor(ops.nn.rms_norm(x, weight, chosen, epsilon), "rms_norm")


def _with_bias(made: Tensor, bias: Tensor | None, spatial: int) -> Tensor:
    if bias is None:
        return made
    return emit_tensor(
        ops.add(made, emit_tensor(ops.reshape(bias._expr, (1, -1, *(1,) * spatial)))), "add"
    )


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int | Sequence[int] = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of ``x [N, C, W]`` and ``weight [O, C / groups, K]``, plus ``bias [O]``."""
    made = emit_tensor(ops.nn.conv1d(x, weight, stride, padding, dilation, groups), "conv1d")
    return _with_bias(made, bias, 1)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of ``x [N, C, H, W]`` and ``weight [O, C / groups, K, L]``, plus ``bias [O]``."""
    made = emit_tensor(ops.nn.conv2d(x, weight, stride, padding, dilation, groups), "conv2d")
    return _with_bias(made, bias, 2)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of ``x [N, C, D, H, W]`` and ``weight [O, C / groups, …]``, plus ``bias [O]``."""
    made = emit_tensor(ops.nn.conv3d(x, weight, stride, padding, dilation, groups), "conv3d")
    return _with_bias(made, bias, 3)


def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Transposed convolution of ``x [N, C, W]`` and ``weight [C, O / groups, K]``, plus bias."""
    made = emit_tensor(
        ops.nn.conv1d_transpose(x, weight, stride, padding, output_padding, dilation, groups),
        "conv1d_transpose",
    )
    return _with_bias(made, bias, 1)


def gelu(x: Tensor, approximate: str | None = None) -> Tensor:
    """X * Phi(x); ``approximate="tanh"`` for the tanh form.

    Raises ``ValueError`` for another form.
    """
    if approximate not in (None, "none", "tanh"):
        raise ValueError(f"approximate must be None, 'none' or 'tanh', got {approximate!r}")
    return emit_tensor(ops.nn.gelu_tanh(x) if approximate == "tanh" else ops.nn.gelu(x), "gelu")


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Pad: ``pad`` has the elements before and after each axis in turn.

    Raises ``ValueError`` for a mode that isn't ``"constant"``.
    """
    if mode != "constant":
        raise ValueError(f"pad: mode must be 'constant', got {mode!r}")
    return emit_tensor(ops.nn.pad(x, tuple(pad), value), "pad")


# ---- shapes and numbers ----------------------------------------------------------------------


def squeeze(x: Tensor, axis: int | Sequence[int] | None = -1) -> Tensor:
    """Remove unit axes: the last one if none is named, all with ``None``."""
    chosen = tuple(axis) if isinstance(axis, (list, tuple)) else axis
    return emit_tensor(ops.squeeze(x, chosen), "squeeze")


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """Insert a unit axis."""
    return emit_tensor(ops.expand_dims(x, dim), "unsqueeze")


def concat(x: Sequence[Tensor], dim: int) -> Tensor:
    """Join tensors along an axis."""
    return emit_tensor(ops.concat(_unwrapped(x), dim), "concat")


def chunk(x: Tensor, chunks: int, dim: int = 0) -> Any:
    """Split an axis into equal chunks."""
    return emit(ops.split(x, chunks, dim), "chunk")


def arange(
    start: ExprLike, end: ExprLike | None = None, step: ExprLike = 1, dtype: str = "float32"
) -> Tensor:
    """``start, start + step, …`` below ``end``, by default as floats."""
    return emit_tensor(ops.arange(start, end, step, dtype), "arange")


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """Keep the lower triangle of the last two axes, zero elsewhere."""
    return emit_tensor(ops.tril(x, diagonal), "tril")


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """Keep the upper triangle of the last two axes, zero elsewhere."""
    return emit_tensor(ops.triu(x, diagonal), "triu")


_WRITTEN = (
    "arange", "chunk", "concat", "conv1d", "conv1d_transpose", "conv2d", "conv3d", "gelu",
    "layer_norm", "pad", "rms_norm", "scaled_dot_product_attention", "squeeze", "tril", "triu",
    "unsqueeze",
)  # fmt: skip
