"""Whether a compiled result is right: as near to NumPy's as rounding errors allow.

How far a right result may be away is measured: the graph's meaning is evaluated several times, and
each time the results of operators that round are moved by a few units in the last place. What
moves much under that is ill-conditioned (or jumps) and may differ as much. Where nothing moves,
results must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

_WIDEN = 3.0
"""How many times as far as the farthest of the moved results a right one may be."""


class Noise:
    """Moves arrays of floating-point numbers by some units in the last place, at random."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(
        self, array: np.ndarray[Any, Any], units: float, absolute: float = 0.0
    ) -> np.ndarray[Any, Any]:
        """The array, moved; by ``absolute`` epsilons where that is more."""
        if array.dtype.kind not in "fV" or not array.size:
            return array
        info = ml_dtypes.finfo(array.dtype)
        eps = float(info.eps)
        units = min(units, 2.0) if info.bits == 16 else units
        wide = array.astype(np.float64)
        with np.errstate(all="ignore"):
            reach = np.maximum(eps * units * np.abs(wide), eps * absolute)
            # Below the normal numbers, units are all of one size. Where these are too small for any
            # use, functions may give zero for them: 1 / (1 + exp(95)) is one over infinity.
            least, usual = float(info.smallest_subnormal), float(info.smallest_normal)
            floor = usual if usual < 1e-30 else least
            reach = np.maximum(reach, np.where(wide == 0, 0, floor))
            moved = wide + np.where(np.isinf(wide), 0, reach * self.rng.uniform(-1, 1, wide.shape))
            # What may as well be whole is, at times: quotients tell 0 apart, powers of what is
            # negative all whole numbers.
            whole = np.rint(wide)
            rounds = (np.abs(wide - whole) <= reach) & (self.rng.random(wide.shape) < 0.4)
            moved = np.where(rounds, whole, moved)
            return moved.astype(array.dtype)

    def in_single_precision(self) -> bool:
        """Whether the next operator is evaluated in single precision."""
        return bool(self.rng.random() < 0.3)

    def with_zeros_of_either_sign(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array, its zeros positive or negative at random."""
        if array.dtype.kind not in "fV" or not array.size:
            return array
        signs = self.rng.choice([-0.0, 0.0], array.shape).astype(array.dtype)
        return np.where(array == 0, signs, array)


def difference(
    found: np.ndarray[Any, Any], right: np.ndarray[Any, Any], moved: Sequence[Any]
) -> str:
    """What is wrong with a result; empty if nothing is."""
    if found.shape != right.shape:
        return f"shape {list(found.shape)}, expected {list(right.shape)}"
    if found.dtype != right.dtype:
        return f"dtype {found.dtype}, expected {right.dtype}"
    if not right.size:
        return ""
    wrong = _wrong(found, right, moved)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ, the first at {list(place)}: "
        f"{found[place]!r}, expected {right[place]!r} "
        f"(moved: {[item[place].item() for item in moved[:3]]})"
    )


def _wrong(found: np.ndarray[Any, Any], right: np.ndarray[Any, Any], moved: Sequence[Any]) -> Any:
    if right.dtype.kind in "biu":
        sure = np.ones(right.shape, bool)
        for item in moved:
            sure &= item == right
        return sure & (found != right)
    info = ml_dtypes.finfo(right.dtype)
    wide, expected = found.astype(np.float64), right.astype(np.float64)
    with np.errstate(all="ignore"):
        spread = np.zeros(right.shape)
        sure = np.ones(right.shape, bool)
        either = np.zeros(right.shape, bool)
        for item in moved:
            other = item.astype(np.float64)
            either |= (other < 0) != (expected < 0)
            same = (np.isnan(other) == np.isnan(expected)) & (np.isinf(other) == np.isinf(expected))
            sure &= same & ~(np.isinf(expected) & (other != expected))
            spread = np.maximum(spread, np.nan_to_num(np.abs(other - expected), nan=0.0))
        # Where results move, they may also be rounded once more, or be flushed to zero.
        unit = float(info.eps) * np.abs(expected) + 2 * float(info.smallest_normal)
        allowed = np.where(spread > 0, _WIDEN * spread + 2 * unit, 2 * float(info.smallest_normal))
        near = np.abs(wide - expected) <= allowed
        equal = (wide == expected) | (np.isnan(wide) & np.isnan(expected))
        # A result within the allowance of the greatest number may overflow.
        brink = np.abs(expected) + allowed >= float(info.max)
        # A quotient by what may as well be zero is infinite between the values of either sign.
        brink |= either & (spread >= np.abs(expected))
    return sure & ~(near | equal | (brink & ~np.isnan(wide) & ~np.isinf(expected)))
