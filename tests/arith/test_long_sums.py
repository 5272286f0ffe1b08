"""Sums of many terms: those that don't pair cost no more each than those of a short sum."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tilewright.arith import Analyzer
from tilewright.ir import (
    Expr,
    Var,
    const,
    maximum,
    minimum,
    pre_order,
    truncdiv,
    truncmod,
)

# A term of a variable and its neighbour.
ALONE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "truncated remainders": lambda x, _: truncmod(x, 7),
    "truncated by others": lambda x, _: truncmod(x, 7) + truncdiv(x, 5),
    "truncated of others": lambda x, y: truncmod(x, 7) + truncdiv(y + 1, 7) * 3,
    "remainders": lambda x, _: x % 7,
    "quotients by others": lambda x, _: x % 7 + x // 5 * 3,
    "quotients of others": lambda x, y: x % 7 + (y + 1) // 7 * 2,
    "quotients": lambda x, _: (x % 14 + x) // 7,
    "minima": minimum,
}
PAIRED: dict[str, tuple[Callable[[Expr, Expr], Expr], Callable[[Expr, Expr], Expr]]] = {
    "remainders": (lambda x, _: x % 7 + x // 7 * 7, lambda x, _: x),
    "of others": (lambda x, y: x % 7 + (y + x) // 7 * 7 - (y + x) // 7 * 7, lambda x, _: x % 7),
    "congruent": (lambda x, y: (x + y * 7) % 7 + x // 7 * 7, lambda x, _: x),
    "of remainders": (lambda x, _: x % 7 + x // 7 % 5 * 7, lambda x, _: x % 35),
    "of others' remainders": (
        lambda x, y: x % 7 + (x // 7 + y) % 5 * 7,
        lambda x, y: (x + y * 7) % 35,
    ),
    "truncated": (lambda x, _: truncmod(x, 7) + truncdiv(x, 7) * 7, lambda x, _: x),
    "with a factor": (
        lambda x, y: truncmod(x, 7) * y + truncdiv(x * 2, 14) * y * 7,
        lambda x, y: x * y,
    ),
    "extremes": (lambda x, y: minimum(x, y * 2) + maximum(x, y * 2), lambda x, y: x + y * 2),
}


def calls(function: Callable[[], Any]) -> int:
    """How many functions it calls: a time that no other process changes."""
    count = 0

    def note(frame: object, event: str, what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def long_sum(variables: list[Var], term: Callable[[Expr, Expr], Expr]) -> Expr:
    made: Expr = const(0, "int64")
    for n, var in enumerate(variables):
        made = made + term(var, variables[n - 1])
    return made


@pytest.mark.parametrize("name", ALONE)
def test_terms_that_do_not_pair_take_time_each(name: str) -> None:
    variables = [Var(f"x{n}") for n in range(160)]
    short, long = (long_sum(variables[:count], ALONE[name]) for count in (20, 160))
    first, then = (calls(lambda: Analyzer().simplify(each)) for each in (short, long))  # noqa: B023
    assert then < 10 * first


@pytest.mark.parametrize("name", PAIRED)
def test_pairs_are_found_among_many(name: str) -> None:
    term, expected = PAIRED[name]
    variables = [Var(f"x{n}") for n in range(12)]
    found, wanted = (Analyzer().simplify(long_sum(variables, each)) for each in (term, expected))
    assert Analyzer().can_prove_equal(found, wanted)
    assert sum(1 for _ in pre_order(found)) == sum(1 for _ in pre_order(wanted))
