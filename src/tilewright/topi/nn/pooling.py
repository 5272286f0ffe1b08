"""Pooling over windows of channel-first tensors."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir import Expr, as_int, const, maximum, minimum
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute
from tilewright.topi.elementwise import fast_dtype
from tilewright.topi.nn.pad import pad
from tilewright.topi.reduction import mean
from tilewright.topi.utils import padding_of, pair, require_ndim


def _window(
    x: Tensor, pool_size: Any, strides: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[Any, ...]:
    """Return kernel, strides, dilation, padding before and after, and the output extents."""
    require_ndim("pool2d", x, 4)
    kernel, stride = pair(pool_size, 2), pair(strides, 2)
    dilate = pair(dilation, 2)
    before, after_given = padding_of(padding, 2)
    after = list(after_given)
    out = []
    for a in range(2):
        span = x.shape[2 + a] + before[a] + after[a] - (kernel[a] - 1) * dilate[a] - 1
        count = span // stride[a] + 1
        if ceil_mode:
            size = as_int(x.shape[2 + a])
            if size is None:
                raise VerifyError("pool2d: ceil_mode needs constant extents")
            number = -(-int(as_int(span) or 0) // stride[a]) + 1
            # The last window must start inside the input or its leading padding.
            if (number - 1) * stride[a] >= size + before[a]:
                number -= 1
            after[a] += max(0, (number - 1) * stride[a] - int(as_int(span) or 0))
            count = const(number)
        out.append(count)
    return kernel, stride, dilate, before, tuple(after), out


def max_pool2d(
    x: Tensor,
    pool_size: Any,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the maximum over windows of ``x [N, C, H, W]``; padding never wins."""
    kernel, stride, dilate, before, after, out = _window(
        x, pool_size, strides, padding, dilation, ceil_mode
    )
    source = x
    if any(before) or any(after):
        lowest = float("-inf") if x.dtype.startswith(("float", "bfloat")) else None
        value = lowest if lowest is not None else te.min_value(x.dtype).value  # type: ignore[attr-defined]
        source = pad(x, (0, 0, *before), (0, 0, *after), value)
    rh, rw = te.reduce_axis((0, kernel[0]), "rh"), te.reduce_axis((0, kernel[1]), "rw")
    made: Tensor = compute(
        (*x.shape[:2], *out),
        lambda n, c, h, w: te.max(
            source(n, c, h * stride[0] + rh.var * dilate[0], w * stride[1] + rw.var * dilate[1]),
            axis=[rh, rw],
        ),
        name="max_pool2d",
        tag="pool_max",
    )
    return made


def avg_pool2d(
    x: Tensor,
    pool_size: Any,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Tensor:
    """Return the mean over windows of ``x [N, C, H, W]``.

    ``count_include_pad`` says whether padding counts as elements; what ``ceil_mode`` adds never
    does.
    """
    kernel, stride, dilate, before, after, out = _window(
        x, pool_size, strides, padding, dilation, ceil_mode
    )
    padded = any(before) or any(after)
    source = pad(x, (0, 0, *before), (0, 0, *after), 0.0) if padded else x
    wide = fast_dtype(x.dtype)
    rh, rw = te.reduce_axis((0, kernel[0]), "rh"), te.reduce_axis((0, kernel[1]), "rw")
    total = compute(
        (*x.shape[:2], *out),
        lambda n, c, h, w: te.sum(
            cast_expr(
                source(
                    n, c, h * stride[0] + rh.var * dilate[0], w * stride[1] + rw.var * dilate[1]
                ),
                wide,
            ),
            axis=[rh, rw],
        ),
        name="pool_sum",
        tag="pool_sum",
    )
    _, limit_after = padding_of(padding, 2)

    def window_count(place: Expr, a: int) -> Expr:
        start = place * stride[a]
        if dilate[a] != 1:
            if padded:
                raise VerifyError("avg_pool2d: dilation with padding is not supported")
            return const(kernel[a])
        low = const(0) if count_include_pad else const(before[a])
        high = x.shape[2 + a] + before[a] + (limit_after[a] if count_include_pad else 0)
        return minimum(start + kernel[a], high) - maximum(start, low)

    def formula(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        if not padded:
            divisor: Expr = const(kernel[0] * kernel[1], wide)
        else:
            divisor = cast_expr(window_count(h, 0) * window_count(w, 1), wide)
        return cast_expr(total(n, c, h, w) / divisor, x.dtype)

    made: Tensor = compute(total.shape, formula, name="avg_pool2d", tag="elemwise")
    return made


def global_avg_pool2d(x: Tensor) -> Tensor:
    """Return the mean over H and W: ``[N, C, H, W] -> [N, C, 1, 1]``."""
    require_ndim("global_avg_pool2d", x, 4)
    return mean(x, axis=(2, 3), keepdims=True)


def adaptive_avg_pool2d(x: Tensor, output_size: Any) -> Tensor:
    """Return means over windows chosen so that the output has ``output_size``."""
    require_ndim("adaptive_avg_pool2d", x, 4)
    size = pair(output_size, 2, "output_size")
    if size == (1, 1):
        return global_avg_pool2d(x)
    extents = [as_int(extent) for extent in x.shape[2:]]
    if any(extent is None or extent % s for extent, s in zip(extents, size)):
        raise VerifyError(
            f"adaptive_avg_pool2d: input extents {list(x.shape[2:])} must be constant multiples of "
            f"the output size {list(size)}"
        )
    kernel = [int(extent or 0) // s for extent, s in zip(extents, size)]
    return avg_pool2d(x, kernel, kernel)
