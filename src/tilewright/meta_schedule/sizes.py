"""The sizes that functions with symbolic ones are measured at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tilewright.ir import IRModule
from tilewright.meta_schedule.arg_info import size_names
from tilewright.support.errors import TuneError
from tilewright.support.registry import near_matches
from tilewright.tir import PrimFunc

Symbols = Mapping[str, int | Sequence[int]]
"""Sizes by name; one of them may have several values."""


#: Sizes are tuned at values that grow by at most this factor, ...
_STEP = 16
#: ... but at no more than so many.
_MOST_VALUES = 5
#: Bounds above this say what is allowed, not what is usual: tensors of such sizes may not fit.
_USUAL = 1 << 16


def values_between(least: int, most: int) -> list[int]:
    """Return the values to tune a size at that has bounds: both, and some between by equal ratios.

    values_between(1, 64) == [1, 8, 64]
    """
    least = max(1, least)
    if most <= least:
        return [least]
    steps = max(2, min(_MOST_VALUES - 1, math.ceil(math.log(most / least, _STEP))))
    ratio = (most / least) ** (1 / steps)
    return sorted({most, *(round(least * ratio**step) for step in range(steps))})


def symbols_within(bounds: Mapping[str, tuple[int, int]]) -> dict[str, int | list[int]]:
    """Return sizes to tune at, by bounds: several of the size that varies most, one of others."""
    found: dict[str, int | list[int]] = {}
    bounds = {name: (low, max(low, min(high, _USUAL))) for name, (low, high) in bounds.items()}
    widest = max(bounds, key=lambda name: bounds[name][1] / max(1, bounds[name][0]), default=None)
    for name, (least, most) in bounds.items():
        values = values_between(least, most)
        found[name] = values if name == widest else values[len(values) // 2]
    return found


def spread(symbols: Symbols | None) -> tuple[str | None, list[dict[str, int]]]:
    """Return the symbol with several values, if there is one, and all sizes for each value.

    Raises ``TuneError`` if several symbols have several values, or one has none or none positive.
    """
    fixed: dict[str, int] = {}
    several: dict[str, list[int]] = {}
    for name, value in (symbols or {}).items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            if not value or any(type(item) is not int or item < 1 for item in value):
                raise TuneError(f"the values of size {name} are positive numbers, got {value}")
            several[name] = sorted(set(value))
        elif type(value) is int and value < 1:
            raise TuneError(f"the size {name} is a positive number, got {value}")
        else:
            fixed[name] = value
    if not several:
        return None, [fixed]
    if len(several) > 1:
        raise TuneError(f"one size may have several values, not {', '.join(several)}")
    ((name, values),) = several.items()
    return name, [{**fixed, name: value} for value in values]


def check_names(symbols: Symbols | None, known: Iterable[str]) -> None:
    """Raise ``TuneError`` for a size that there isn't: it would be measured at another value."""
    known = list(known)
    for name in symbols or ():
        if name not in known:
            raise TuneError(
                f"symbols: no function has a size {name!r}; {near_matches(name, known)}"
            )


def sizes_of(mod: IRModule, symbols: Symbols | None) -> list[tuple[str, dict[str, int]]]:
    """Return the sizes that a task is measured at, each with what is added to the task's name."""
    symbol, sizes = spread(symbols)
    func = mod["main"]
    if symbol is None or not isinstance(func, PrimFunc) or symbol not in size_names(func):
        return [("", sizes[-1])]
    return [(f"@{symbol}={item[symbol]}", item) for item in sizes]
