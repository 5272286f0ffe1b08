"""Padding."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Expr, and_, as_int, const, if_then_else
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute


def pad(
    x: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    pad_value: float = 0.0,
    name: str = "pad_temp",
) -> Tensor:
    """Surround ``x`` with ``pad_value``; one number of elements per dimension and side.

    Raises ``VerifyError`` if there are not as many numbers as dimensions.
    """
    after = pad_before if pad_after is None else pad_after
    if len(pad_before) != x.ndim or len(after) != x.ndim:
        raise VerifyError(f"pad: {x.name} has {x.ndim} dimensions, got {list(pad_before)}")
    shape = tuple(extent + low + high for extent, low, high in zip(x.shape, pad_before, after))

    def formula(*i: Expr) -> Expr:
        inside, source = [], []
        for a in range(x.ndim):
            index = i[a] - pad_before[a]
            source.append(index)
            if as_int(pad_before[a]) != 0:
                inside.append(i[a] >= pad_before[a])
            if as_int(after[a]) != 0:
                inside.append(i[a] < x.shape[a] + pad_before[a])
        if not inside:
            return x(*i)
        return if_then_else(and_(*inside), x(*source), const(pad_value, x.dtype))

    made: Tensor = compute(shape, formula, name=name, tag="injective,pad")
    return made
