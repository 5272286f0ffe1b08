"""Padding: with a value, with the elements inside by one of several rules, and between elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import (
    Expr,
    ExprLike,
    and_,
    as_expr,
    as_int,
    cast,
    if_then_else,
    maximum,
    minimum,
    select,
)
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.te import Tensor, compute, require, with_conditions
from tilewright.topi.utils import total_extent

_Widths = Sequence[Any]


def pad(
    data: Tensor,
    pad_before: _Widths,
    pad_after: _Widths | None = None,
    pad_value: ExprLike = 0.0,
    name: str = "PadInput",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor:
    """Surround ``data`` with ``pad_value``; one number of elements per dimension and side.

    ``pad_after`` is ``pad_before`` if not given. ``attrs`` become annotations of the block.

    Raises ``VerifyError`` if there are not as many numbers as dimensions.
    """
    before, after = _widths("pad", data, pad_before, pad_after)
    shape = get_padded_shape(data, before, after)
    value = cast(as_expr(pad_value, data.dtype), data.dtype)

    def formula(*i: Expr) -> Expr:
        inside, source = [], []
        for a in range(data.ndim):
            index = i[a] - before[a]
            source.append(index)
            if as_int(before[a]) != 0:
                inside.append(i[a] >= before[a])
            if as_int(after[a]) != 0:
                inside.append(i[a] < data.shape[a] + before[a])
        if not inside:
            return data(*i)
        return if_then_else(and_(*inside), data(*source), value)

    made: Tensor = compute(shape, formula, name=name, tag="injective,pad", attrs=attrs)
    return made


def get_padded_shape(
    data: Tensor, pad_before: _Widths, pad_after: _Widths | None = None
) -> tuple[Any, ...]:
    """Return the shape of ``data`` with so many more elements per dimension and side."""
    before, after = _widths("get_padded_shape", data, pad_before, pad_after)
    return tuple(map(total_extent, data.shape, before, after))


def _widths(
    what: str, data: Tensor, before: _Widths, after: _Widths | None
) -> tuple[list[Any], list[Any]]:
    """Numbers of elements before and after each axis; constants as ``int``.

    Raises ``VerifyError`` if there are not as many as dimensions.
    """
    after = before if after is None else after
    if len(before) != data.ndim or len(after) != data.ndim:
        raise VerifyError(
            f"{what}: {data.name} has {data.ndim} dimensions, got {list(before)} and {list(after)}"
        )
    low, high = (
        [n if (known := as_int(as_expr(n))) is None else known for n in side]
        for side in (before, after)
    )
    return low, high


#: For an index beyond an axis of an extent: which element stands there.
_Source = Callable[[Expr, Expr], Expr]


def _padded_from_inside(
    data: Tensor, before: Sequence[Any], after: Sequence[Any], source: _Source, name: str
) -> Tensor:
    def formula(*i: Expr) -> Expr:
        at = [
            index if low == high == 0 else source(index - low, extent)
            for index, low, high, extent in zip(i, before, after, data.shape)
        ]
        return data(*at)

    shape = get_padded_shape(data, before, after)
    made: Tensor = compute(shape, formula, name=name, tag="injective,pad")
    return made


@with_conditions
def mirror_pad(
    data: Tensor,
    pad_before: _Widths,
    pad_after: _Widths | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> Tensor:
    """Pad with the elements mirrored at the ends, which are repeated unless ``mode="REFLECT"``.

    Raises ``VerifyError`` if there are fewer elements than are mirrored, and for another mode.
    """
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise VerifyError(f"mirror_pad: mode is 'SYMMETRIC' or 'REFLECT', got {mode!r}")
    before, after = _widths("mirror_pad", data, pad_before, pad_after)
    skipped = 1 if mode == "REFLECT" else 0
    for low, high, extent in zip(before, after, data.shape):
        for width in (low, high):
            if as_int(as_expr(width)) != 0:
                require(
                    extent >= width + skipped, "mirror_pad: ", extent,
                    f" elements do not give {width} (mode {mode})",
                )  # fmt: skip

    def source(index: Expr, extent: Expr) -> Expr:
        inner = select(index < 0, skipped - 1 - index, index)
        return select(index >= extent, extent * 2 - (1 + skipped) - index, inner)

    return _padded_from_inside(data, before, after, source, name)


def reflect_pad(
    data: Tensor,
    pad_before: _Widths,
    pad_after: _Widths | None = None,
    name: str = "ReflectPadInput",
) -> Tensor:
    """Pad with the elements mirrored at the ends, which are not repeated.

    Raises ``VerifyError`` if there are fewer elements than are mirrored.
    """
    return mirror_pad(data, pad_before, pad_after, "REFLECT", name)


def _repeating_pad(name: str, own: str, source: _Source, doc: str) -> Callable[..., Tensor]:
    what = name

    def repeating_pad(
        data: Tensor, pad_before: _Widths, pad_after: _Widths | None = None, name: str = own
    ) -> Tensor:
        before, after = _widths(what, data, pad_before, pad_after)
        _require_elements(what, data, before, after)
        return _padded_from_inside(data, before, after, source, name)

    made: Callable[..., Tensor] = with_conditions(named(repeating_pad, name, doc))
    return made


replicate_pad = _repeating_pad(
    "replicate_pad",
    "ReplicatePadInput",
    lambda i, extent: maximum(minimum(i, extent - 1), 0),
    """Pad with the first and last elements of each axis.

    Raises ``VerifyError`` for padding of an axis without elements.
    """,
)
circular_pad = _repeating_pad(
    "circular_pad",
    "CircularPadInput",
    lambda i, extent: i % extent,
    """Pad with the elements from the other end of each axis, over and over.

    Raises ``VerifyError`` for padding of an axis without elements.
    """,
)


def _require_elements(what: str, data: Tensor, before: _Widths, after: _Widths) -> None:
    for low, high, extent in zip(before, after, data.shape):
        if low != 0 or high != 0:
            require(extent >= 1, f"{what}: there is nothing to repeat along an axis of ", extent)


def dilate(
    data: Tensor, strides: Sequence[int], dilation_value: ExprLike = 0.0, name: str = "DilatedInput"
) -> Tensor:
    """Put ``stride - 1`` times ``dilation_value`` between neighbours along each axis.

    Raises ``VerifyError`` unless there are as many strides as dimensions, all of them positive.
    """
    if len(strides) != data.ndim or min(strides, default=1) < 1:
        raise VerifyError(
            f"dilate: {data.name} takes {data.ndim} positive strides, got {list(strides)}"
        )
    value = cast(as_expr(dilation_value, data.dtype), data.dtype)
    shape = [
        extent if step == 1 else maximum((extent - 1) * step + 1, 0)
        for extent, step in zip(data.shape, strides)
    ]

    def formula(*i: Expr) -> Expr:
        here = [index % step == 0 for index, step in zip(i, strides) if step > 1]
        element = data(*(index // step for index, step in zip(i, strides)))
        return if_then_else(and_(*here), element, value) if here else element

    made: Tensor = compute(shape, formula, name=name, tag="injective,dilate")
    return made
