"""Bounds of operations on bits."""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir import Range, Var, call, const


def test_joined_bits_have_no_bit_above_the_highest() -> None:
    for low_a, high_a, low_b, high_b in ((0, 5, 0, 3), (2, 9, 4, 4), (0, 0, 0, 0), (7, 8, 0, 15)):
        analyzer = Analyzer()
        x, y = Var("x"), Var("y")
        analyzer.bind(x, Range.from_min_extent(const(low_a), const(high_a - low_a + 1)))
        analyzer.bind(y, Range.from_min_extent(const(low_b), const(high_b - low_b + 1)))
        for name, join in (("bitwise_xor", int.__xor__), ("bitwise_or", int.__or__)):
            bound = analyzer.const_int_bound(call(name, x, y))
            found = [join(a, b) for a in range(low_a, high_a + 1) for b in range(low_b, high_b + 1)]
            assert bound.min <= min(found) and max(found) <= bound.max
            assert bound.max < 2 * max(high_a, high_b, 1)


def test_negative_numbers_have_all_bits() -> None:
    analyzer = Analyzer()
    x, y = Var("x"), Var("y")
    analyzer.bind(x, Range.from_min_extent(const(-3), const(8)))
    analyzer.bind(y, Range.from_min_extent(const(0), const(4)))
    assert analyzer.const_int_bound(call("bitwise_xor", x, y)).min <= -4
