"""Padding: elements around a tensor that are a number, or taken from the tensor itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, topi
from tilewright.arith import simplify
from tilewright.ir import Expr
from tilewright.relax.conditions import require
from tilewright.relax.ops.common import known
from tilewright.relax.registry import Tensor, operator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.topi.utils import total_extent

_MODES: dict[str, Callable[..., te.Tensor]] = {
    "constant": topi.nn.pad,
    "reflect": topi.nn.reflect_pad,
    "replicate": topi.nn.replicate_pad,
    "circular": topi.nn.circular_pad,
}


def _pairs(pad_width: Sequence[int]) -> list[tuple[int, int]]:
    flat = list(pad_width)
    return list(zip(flat[0::2], flat[1::2]))


def _padded(
    data: te.Tensor, pad_width: Sequence[int], pad_mode: str, pad_value: float
) -> te.Tensor:
    before, after = zip(*_pairs(pad_width)) if pad_width else ((), ())
    value = [pad_value] if pad_mode == "constant" else []
    return _MODES[pad_mode](data, before, after, *value)


def _defaults(
    data: object, pad_width: object, pad_mode: object, pad_value: object
) -> dict[str, Any]:
    """``None`` is the default."""
    return {
        "pad_mode": "constant" if pad_mode is None else pad_mode,
        "pad_value": 0.0 if pad_value is None else pad_value,
    }


@operator("nn.pad", legalize=_padded, prepare=_defaults)
def pad(
    data: Tensor,
    pad_width: tuple[int, ...],
    pad_mode: str | None = "constant",
    pad_value: float | None = 0.0,
) -> StructInfo:
    """Pad: ``pad_width`` has the elements before and after each axis in turn.

    ``pad_mode`` says what they are: ``constant`` (``pad_value``), ``reflect`` (the tensor backwards
    from its edge, which isn't repeated), ``replicate`` (the edge) or ``circular`` (the tensor from
    its other end).

    Raises ``VerifyError`` for a wrong number of widths, other modes, and where there is nothing to
    reflect or repeat.
    """
    if pad_mode not in _MODES:
        raise VerifyError(f"pad_mode is one of {', '.join(_MODES)}, got {pad_mode!r}")
    if not isinstance(pad_value, (int, float)):
        raise VerifyError(f"pad_value must be a number, got {pad_value!r}")
    shape, pairs = known(data, "data"), _pairs(pad_width)
    if len(pad_width) != 2 * len(shape):
        raise VerifyError(
            f"pad_width takes {2 * len(shape)} numbers for {len(shape)} axes, got {len(pad_width)}"
        )
    if pad_mode != "constant":
        _require_source(pad_mode, shape, pairs)
    extents: list[Expr] = [
        simplify(total_extent(extent, *widths)) for extent, widths in zip(shape, pairs)
    ]
    return TensorStructInfo(extents, data.dtype)


def _require_source(mode: str, shape: Sequence[Expr], pairs: Sequence[tuple[int, int]]) -> None:
    for axis, (extent, widths) in enumerate(zip(shape, pairs)):
        if min(widths) < 0:
            raise VerifyError(f"{mode} takes widths that aren't negative, got {widths}")
        need = max(widths) + 1 if mode == "reflect" else 1
        if max(widths):
            require(
                extent >= need,
                f"{mode} of {max(widths)} elements needs {need} along axis {axis}, it has ",
                extent,
            )
