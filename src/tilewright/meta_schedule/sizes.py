"""The sizes that functions with symbolic ones are measured at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir import IRModule
from tilewright.meta_schedule.arg_info import size_names
from tilewright.support.errors import TuneError
from tilewright.tir import PrimFunc

Symbols = Mapping[str, int | Sequence[int]]
"""Sizes by name; one of them may have several values."""


def spread(symbols: Symbols | None) -> tuple[str | None, list[dict[str, int]]]:
    """Return the symbol with several values, if there is one, and all sizes for each value.

    Raises ``TuneError`` if several symbols have several values, or one has none.
    """
    fixed: dict[str, int] = {}
    several: dict[str, list[int]] = {}
    for name, value in (symbols or {}).items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            several[name] = sorted(set(value))
        else:
            fixed[name] = value
    if not several:
        return None, [fixed]
    if len(several) > 1:
        raise TuneError(f"one size may have several values, not {', '.join(several)}")
    ((name, values),) = several.items()
    if not values or any(type(value) is not int or value < 1 for value in values):
        raise TuneError(f"the values of size {name} are positive numbers, got {values}")
    return name, [{**fixed, name: value} for value in values]


def sizes_of(mod: IRModule, symbols: Symbols | None) -> list[tuple[str, dict[str, int]]]:
    """Return the sizes that a task is measured at, each with what is added to the task's name."""
    symbol, sizes = spread(symbols)
    func = mod["main"]
    if symbol is None or not isinstance(func, PrimFunc) or symbol not in size_names(func):
        return [("", sizes[-1])]
    return [(f"@{symbol}={item[symbol]}", item) for item in sizes]
