"""A condition stays before the reads that it keeps inside of their buffers."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import driver
from tilewright.arith import Analyzer
from tilewright.ir import And, Expr, Or, pre_order
from tilewright.runtime import guarded
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir import BufferLoad, BufferStore

_PROGRAM = """
@T.prim_func
def guards(n: T.int64, a: T.handle, b: T.handle, C: T.Buffer((16,), "bool")):
    A = T.match_buffer(a, (n,), "int32")
    B = T.match_buffer(b, (n,), "int32")
    for i in KIND(16):
        C[i] = VALUE
"""

_BOTH = "(i < n and A[i] >= 0) and (i + 1 < n and B[i] >= 3)"
_EITHER = "(i >= n or A[i] < 0) or (i + 1 >= n or B[i] < 3)"


def first_side(expr: Expr) -> Expr:
    while isinstance(expr, (And, Or)):
        expr = expr.a
    return expr


@pytest.mark.parametrize("value", [_BOTH, _EITHER])
def test_what_a_read_stands_behind_does_not_follow_from_what_stands_behind_the_read(
    value: str,
) -> None:
    func = parse(_PROGRAM.replace("KIND", "range").replace("VALUE", value))
    (store,) = (item for item in pre_order(func) if isinstance(item, BufferStore))
    first = first_side(Analyzer().simplify(store.value))
    assert not any(isinstance(item, BufferLoad) for item in pre_order(first))


@pytest.mark.parametrize("kind", ["range", "T.vectorized"])
@pytest.mark.parametrize("value", [_BOTH, _EITHER])
def test_nothing_is_read_beyond_an_array(kind: str, value: str) -> None:
    func = parse(_PROGRAM.replace("KIND", kind).replace("VALUE", value))
    made = driver.compile(func, Target("native").with_options(num_cores=1))
    for count in range(17):
        draw = np.random.default_rng(count)
        a, b = (draw.integers(-2, 7, count).astype("int32") for _ in range(2))
        found = np.zeros(16, "bool")
        made(count, guarded(a), guarded(b), found)
        holds = (a >= 0) & (b >= 3) & (np.arange(count) + 1 < count)
        expected = np.zeros(16, "bool")
        expected[:count] = holds
        np.testing.assert_array_equal(found, expected if value is _BOTH else ~expected)
