"""Helpers shared by operators over images of one to three axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright.ir import Expr, ExprLike, as_expr, as_int
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute
from tilewright.topi.nn.pad import pad
from tilewright.topi.utils import padding_of, pair

_NAMES = ("d", "h", "w")

#: One number, one per axis, all numbers before and then all after, ``"SAME"`` or ``"VALID"``.
Padding: TypeAlias = "int | str | Sequence[int]"


def image_axes(spatial: int) -> str:
    """Return the axes of images in the usual order: ``NCHW`` of two spatial ones."""
    return "NC" + "DHW"[3 - spatial :]


def axis_names(spatial: int) -> tuple[str, ...]:
    """Names of the last ``spatial`` axes of an image."""
    return _NAMES[3 - spatial :]


def compute_image(
    shape: Sequence[Any],
    channel: str,
    formula: Callable[..., Expr],
    name: str,
    tag: str,
    blocked: bool = False,
    layout: str = "",
) -> Tensor:
    """Compute ``formula(n, channel, *place)`` over axes with the usual names.

    If channels are ``blocked``, the index within a block comes last. The result is stored with its
    channels first, or in the order of ``layout``; ``shape`` has that order.
    """
    lane = ("b",) if blocked else ()
    plain = ("n", channel, *axis_names(len(shape) - 2 - len(lane)), *lane)
    stored = [channel if axis == "C" else axis.lower() for axis in layout] or plain
    scope: dict[str, Any] = {"formula": formula}
    named = eval(f"lambda {', '.join(stored)}: formula({', '.join(plain)})", scope)
    made: Tensor = compute(tuple(shape), named, name=name, tag=tag)
    return made


def padding_around(
    padding: Padding, spatial: int, kernel: Sequence[object] = (), dilation: Sequence[int] = ()
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return padding before and after each of ``spatial`` axes, as ``padding_of`` does.

    ``"VALID"`` is none. ``"SAME"`` surrounds an image by one element less than a window covers,
    whatever the stride; the larger half comes before it.

    Raises ``VerifyError`` for other words, and for ``"SAME"`` around windows of unknown extents.
    """
    if not isinstance(padding, str):
        return padding_of(padding, spatial)
    if padding == "VALID":
        return (0,) * spatial, (0,) * spatial
    if padding != "SAME":
        raise VerifyError(f"padding is 'SAME', 'VALID' or numbers, got {padding!r}")
    before, after = [], []
    for extent, step in zip(kernel, dilation or (1,) * spatial):
        taps = as_int(as_expr(extent))
        if taps is None:
            raise VerifyError(f"padding 'SAME' needs windows of constant extents, got {extent}")
        total = (taps - 1) * step
        before.append((total + 1) // 2)
        after.append(total // 2)
    return tuple(before), tuple(after)


@dataclass(frozen=True)
class Convolution:
    """How filters slide over an image, with one number per spatial axis.

    ``before`` and ``after`` are the padding. Channels are divided into ``groups``: the filters of a
    group see only its channels.
    """

    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @classmethod
    def over(
        cls,
        spatial: int,
        strides: int | Sequence[int],
        padding: Padding,
        dilation: int | Sequence[int],
        groups: int,
        kernel: Sequence[object] = (),
    ) -> Convolution:
        """Normalise the arguments of an operator over ``spatial`` axes.

        ``kernel`` has the windows' extents, which ``padding="SAME"`` goes by.

        Raises ``VerifyError`` if one has the wrong length.
        """
        stride, reach = pair(strides, spatial, "strides"), pair(dilation, spatial, "dilation")
        before, after = padding_around(padding, spatial, kernel, reach)
        return cls(stride, before, after, reach, groups)

    @property
    def spatial(self) -> int:
        """The number of spatial axes."""
        return len(self.stride)

    def taps(self, extents: Sequence[object], kernel: Sequence[object]) -> list[Taps]:
        """Return what windows use along each axis of an image and a kernel of these extents."""
        numbers = zip(extents, kernel, self.stride, self.dilation, self.before, self.after)
        return [taps_of(*axis) for axis in numbers]


@dataclass(frozen=True)
class Taps:
    """What windows of stride ``stride`` use along one axis of an image with ``out`` outputs.

    The ``count`` taps from ``first`` on are ``dilation`` apart; for the first output, the first one
    reads element ``begin`` of the image padded by ``before`` and ``after`` zeros.
    """

    first: int
    count: Any
    before: int
    after: int
    begin: int
    out: Any


def taps_of(
    extent: ExprLike, kernel: Any, stride: int, dilation: int, before: int, after: int
) -> Taps:
    """Return the taps of a window, without those at its ends that read only padding.

    On small images, or with large dilations, those would only add zeros.
    """
    out = (extent + before + after - (kernel - 1) * dilation - 1) // stride + 1
    whole = Taps(0, kernel, before, after, 0, out)
    size, taps, places = (as_int(as_expr(item)) for item in (extent, kernel, out))
    if size is None or taps is None or places is None:
        return whole
    meeting = [
        tap
        for tap in range(taps)
        if any(0 <= o * stride + tap * dilation - before < size for o in range(places))
    ]
    if not meeting or len(meeting) == taps:
        return whole
    start = meeting[0] * dilation - before
    end = (places - 1) * stride + meeting[-1] * dilation - before + 1
    count = meeting[-1] - meeting[0] + 1
    return Taps(meeting[0], count, max(0, -start), max(0, end - size), max(0, start), out)


def pad_image(data: Tensor, used: Sequence[Taps], first: int = 2) -> Tensor:
    """Pad the axes of an image from the ``first`` spatial one on, as far as windows reach."""
    before, after = [taps.before for taps in used], [taps.after for taps in used]
    if not any(before) and not any(after):
        return data
    lead, rest = (0,) * first, (0,) * (data.ndim - first - len(used))
    return pad(data, (*lead, *before, *rest), (*lead, *after, *rest), name="pad_temp")


def get_pad_tuple_generic(
    padding: Padding, kernel: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return padding before and after the axes of a window ``kernel``; see ``padding_around``."""
    return padding_around(padding, len(kernel), kernel)


def _flat(axes: int) -> Callable[[Padding, Sequence[int]], tuple[int, ...]]:
    def get_pad_tuple(padding: Padding, kernel: Sequence[int]) -> tuple[int, ...]:
        before, after = padding_around(padding, axes, kernel)
        return (*before, *after)

    get_pad_tuple.__doc__ = f"Return padding before {axes} axes of a window, and then after them."
    return get_pad_tuple


get_pad_tuple1d, get_pad_tuple, get_pad_tuple3d = map(_flat, (1, 2, 3))
