"""Transposed convolutions of channel-first tensors, over any number of spatial axes.

An output element gathers only the inputs that contribute to it: with stride ``s``, that is every
``s``-th tap of the kernel, and which ones depends on the position modulo ``s``. So no zeros are put
between the inputs, and the arithmetic is that of ``s`` dense convolutions per axis, one for each
remainder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import TRUE, Expr, ExprLike, Var, and_, as_int
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.te import Tensor, require_equal, with_conditions
from tilewright.topi.nn.pad import pad
from tilewright.topi.nn.spatial import Convolution, Padding, axis_names, compute_image
from tilewright.topi.utils import pair, require_groups, require_ndim, rounded, total_dtype


class _Taps:
    """Which inputs and taps contribute to the outputs along one axis.

    With ``p = place + before`` these are the ``k`` with ``p - dilation * k`` a multiple of the
    stride. If stride and dilation have no common factor, the first of them is
    ``p * inverse % stride``, the others follow ``stride`` apart, each ``dilation`` inputs further
    back. A common factor divides ``p`` too, or there are none.
    """

    def __init__(self, kernel: int, stride: int, dilation: int, before: int) -> None:
        self.kernel, self.before = kernel, before
        self.factor = math.gcd(stride, dilation)
        self.stride, self.dilation = stride // self.factor, dilation // self.factor
        self.period = stride
        self.inverse = pow(self.dilation, -1, self.stride) if self.stride > 1 else 0
        self.count = -(-kernel // self.stride)

    def _position(self, place: ExprLike) -> ExprLike:
        at = place + self.before
        return at if self.factor == 1 else at // self.factor

    def first(self, place: Any) -> Any:
        """The first tap that contributes to an output."""
        return self._position(place) * self.inverse % self.stride if self.stride > 1 else 0

    def tap(self, place: Any, step: Any) -> Any:
        """The tap of a step."""
        return self.first(place) + step * self.stride

    def input(self, place: Expr | int, step: Var | int) -> Any:
        """The input of a step, perhaps outside of the image."""
        at = self._position(place)
        if self.dilation != 1:
            at = at - self.first(place) * self.dilation
        return at // self.stride - step * self.dilation

    def exists(self, place: Expr, step: Expr) -> Expr:
        """Whether the tap of a step lies in the kernel and contributes to the output."""
        conditions = []
        if self.factor > 1:
            conditions.append((place + self.before) % self.factor == 0)
        if self.kernel % self.stride:
            conditions.append(self.tap(place, step) < self.kernel)
        return and_(*conditions) if conditions else TRUE

    def reach(self) -> tuple[int, int]:
        """The lowest input that is read, and how far inputs go beyond ``place // stride``."""
        places = range(self.period)
        least = min(self.input(place, self.count - 1) for place in places)
        most = max(self.input(place, 0) for place in places)
        return least, most


@with_conditions
def _conv_transpose(
    data: Tensor,
    weight: Tensor,
    form: Convolution,
    output_padding: int | Sequence[int],
    out_dtype: str | None,
) -> Tensor:
    """Transposed convolution of ``data [N, C, …]`` with ``weight [C, F/groups, …]``.

    Raises ``VerifyError`` if ``output_padding`` reaches stride and dilation.
    """
    spatial, stride, dilate, groups = form.spatial, form.stride, form.dilation, form.groups
    what = f"conv{spatial}d_transpose"
    kernel = _checked_kernel(what, data, weight, groups, spatial)
    extra = pair(output_padding, spatial, "output_padding")
    before, after = form.before, form.after
    for a in range(spatial):
        if extra[a] >= max(stride[a], dilate[a]):
            raise VerifyError(f"{what}: output_padding must be below stride or dilation")
    out_dtype = out_dtype or data.dtype
    taps = [_Taps(kernel[a], stride[a], dilate[a], int(before[a])) for a in range(spatial)]
    # How far a place of the result reaches beyond stride times that of its first input.
    beyond = [
        dilate[a] * (taps[a].kernel - 1) + extra[a] - before[a] - after[a] for a in range(spatial)
    ]
    out = [(data.shape[2 + a] - 1) * stride[a] + (beyond[a] + 1) for a in range(spatial)]
    # Whole periods are computed, so that each remainder has equally many places.
    surplus = [-(as_int(extent) or 0) % step for extent, step in zip(out, stride)]
    low, high = [], []
    for a, axis in enumerate(taps):
        least, most = axis.reach()
        low.append(max(0, -least))
        high.append(max(0, (beyond[a] + surplus[a]) // stride[a] + most))
    source = data
    if any(low) or any(high):
        source = pad(data, (0, 0, *low), (0, 0, *high), name="pad_temp")
    wide = total_dtype(out_dtype, data.dtype, weight.dtype)
    formula = _sum_of_taps(source, weight, taps, low, groups, wide)

    outer, tag = (data.shape[0], weight.shape[1] * groups), f"{what}_nchw"
    if not any(surplus):
        return rounded(compute_image((*outer, *out), "f", formula, what, tag), out_dtype)
    periods = [extent + more for extent, more in zip(out, surplus)]
    whole = compute_image((*outer, *periods), "f", formula, what, tag)

    def cut(*i: Expr) -> Expr:
        return cast_expr(whole(*i), out_dtype)

    return compute_image((*outer, *out), "f", cut, f"{what}_cut", "injective")


def _checked_kernel(
    what: str, data: Tensor, weight: Tensor, groups: int, spatial: int
) -> list[int]:
    """Return the kernel's extents; refuse operands that don't match."""
    require_ndim(what, data, spatial + 2)
    require_ndim(what, weight, spatial + 2)
    require_equal(f"{what}: channels", data.shape[1], weight.shape[0])
    kernel = [extent for extent in map(as_int, weight.shape[2:]) if extent is not None]
    if len(kernel) < spatial:
        raise VerifyError(f"{what}: the kernel's extents must be constant, got {weight.shape}")
    require_groups(what, "channels", data.shape[1], groups)
    return kernel


def _sum_of_taps(
    source: Tensor,
    weight: Tensor,
    taps: Sequence[_Taps],
    low: Sequence[int],
    groups: int,
    wide: str,
) -> Callable[..., Expr]:
    """An output's sum over all channels and steps; ``source`` begins ``low`` before the image."""
    group_in, group_out = source.shape[1] // groups, weight.shape[1]
    rc = te.reduce_axis((0, group_in), "rc")
    steps = [
        te.reduce_axis((0, axis.count), f"r{name}")
        for axis, name in zip(taps, axis_names(len(taps)))
    ]

    def formula(n: Expr, f: Expr, *place: Expr) -> Expr:
        channel = rc.var if groups == 1 else f // group_out * group_in + rc.var
        wanted = list(zip(taps, place, (step.var for step in steps)))
        left = source(n, channel, *(t.input(p, s) + lead for (t, p, s), lead in zip(wanted, low)))
        right = weight(
            channel, f if groups == 1 else f % group_out, *(t.tap(p, s) for t, p, s in wanted)
        )
        result: Expr = te.sum(
            cast_expr(left, wide) * cast_expr(right, wide),
            axis=[rc, *steps],
            where=and_(*(t.exists(p, s) for t, p, s in wanted)),
        )
        return result

    return formula


def _conv_transpose_over(spatial: int, doc: str) -> Callable[..., Tensor]:
    def conv_transpose(
        data: Tensor,
        weight: Tensor,
        strides: int | Sequence[int] = 1,
        padding: Padding = 0,
        output_padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        out_dtype: str | None = None,
    ) -> Tensor:
        form = Convolution.over(spatial, strides, padding, dilation, groups, weight.shape[2:])
        return _conv_transpose(data, weight, form, output_padding, out_dtype)

    return named(conv_transpose, f"conv{spatial}d_transpose", doc)


conv1d_transpose = _conv_transpose_over(
    1, "Transposed convolution of ``data [N, C, W]`` with ``weight [C, F/groups, KW]``."
)
conv2d_transpose = _conv_transpose_over(
    2,
    """Transposed convolution of ``data [N, C, H, W]`` with ``weight [C, F/groups, KH, KW]``.

    The output extent is ``(H - 1) * stride - before - after + dilation * (KH - 1) + 1 +
    output_padding``.
    """,
)
conv3d_transpose = _conv_transpose_over(
    3, "Transposed convolution of ``data [N, C, D, H, W]`` with ``weight [C, F/groups, KD, …]``."
)
