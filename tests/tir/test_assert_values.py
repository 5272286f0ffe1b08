"""Assertions whose message shows values."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import script
from tilewright.ir import Var
from tilewright.script import tir as T
from tilewright.support.errors import ParseError, RunError, VerifyError
from tilewright.tir import AssertStmt, PrimFunc
from tilewright.tir.interpreter import run


@T.prim_func
def halves(a: T.handle, b: T.handle) -> None:
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    assert n % 2 == 0, ("100% of {} in pairs, {} over", n, n % 2)
    for i in range(n):
        B[i] = A[i] * 2.0


@T.prim_func
def shown_and_used(a: T.handle, b: T.handle) -> None:
    n = T.int64()
    A = T.match_buffer(a, (n,), "int64")
    B = T.match_buffer(b, (n,), "int64")
    assert n > 2, ("{} and {}", n - 2, n * 3)
    for i in range(n - 2):
        B[i] = A[i] + n * 3


def test_the_message_shows_values() -> None:
    a = np.ones(5, "float32")
    with pytest.raises(RunError, match=r"^100% of 5 in pairs, 1 over$"):
        run(halves, a, a.copy())
    compiled = tilewright.compile(halves)
    with pytest.raises(RuntimeError, match="100% of 5 in pairs, 1 over"):
        compiled(a, a.copy())
    compiled(a[:4], out := np.zeros(4, "float32"))
    assert out.tolist() == [2.0] * 4


def test_it_prints_and_parses() -> None:
    text = halves.script()
    assert 'assert n % 2 == 0, ("100% of {} in pairs, {} over", n, n % 2)' in text
    parsed = script.parse(text)
    assert isinstance(parsed, PrimFunc) and parsed.script() == text


def test_each_value_has_a_place_in_the_message() -> None:
    n = Var("n")
    with pytest.raises(VerifyError, match="has no place for 1 values"):
        AssertStmt("RuntimeError", n > 0, "no place", (n,))
    with pytest.raises(VerifyError, match="shows integers"):
        AssertStmt("RuntimeError", n > 0, "{}", (Var("x", "float32"),))
    with pytest.raises(ParseError, match="is text"):
        script.parse(halves.script().replace('("100% of {} in pairs, {} over", n, n % 2)', "3"))


def test_values_that_are_shown_can_be_used_after() -> None:
    compiled = tilewright.compile(shown_and_used)
    a, b = np.arange(4), np.zeros(4, "int64")
    compiled(a, b)
    assert b.tolist() == [12, 13, 0, 0]
    with pytest.raises(RuntimeError, match="-1 and 3"):
        compiled(a[:1], b[:1])
