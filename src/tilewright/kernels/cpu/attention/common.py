"""Shared by the attention kernels: small builders.

The kernels (:mod:`.prefill`, :mod:`.decode`) are TensorIR functions made of
blocks within blocks (:mod:`tilewright.tir.building`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import (
    Expr,
    ExprLike,
    Let,
    Shuffle,
    Var,
    call,
    cast,
    const,
    dtypes,
    select,
)
from tilewright.kernels.problems.attention import FLOAT, Attention
from tilewright.tir import (
    VECTORIZED,
    LetStmt,
    Stmt,
)
from tilewright.tir.building import Axis, block, store
from tilewright.topi.nn.attention import in_layout

# ---- vectors ------------------------------------------------------------------------------------


# Lanes in 128 bits.
_GROUP = 4

Lets = list[tuple[Var, Expr]]
"""Definitions that must stand around the use of what they lead to."""


def transposed(rows: Sequence[Expr]) -> tuple[Lets, list[Expr]]:
    """Transpose a square of vectors in registers, by exchanging increasingly large blocks."""
    lets: Lets = []
    values = [_let(lets, row) for row in rows]
    step = 1
    while step < len(rows):
        made = list(values)
        for i in range(len(rows)):
            if not i & step:
                low, high = _exchanged(values[i], values[i + step], step)
                made[i], made[i + step] = _let(lets, low), _let(lets, high)
        values = made
        step *= 2
    return lets, list(values)


def lane_sums(rows: Sequence[Expr], level: int = 0) -> tuple[Lets, Expr]:
    """Sum the lanes of each of a square of vectors: lane ``i`` of the result is that of row ``i``.

    Two vectors become one at each step, which is far cheaper than a sum of each. A power-of-two
    subset of the rows gives a vector of partial sums; those of all subsets are summed from
    ``level`` on, the logarithm of that number.
    """
    lets: Lets = []
    values: list[Expr] = [_let(lets, row) for row in rows]
    while len(values) > 1:
        made = []
        for a, b in zip(values[::2], values[1::2]):
            low, high = _halves(a, b, level)
            made.append(_let(lets, low + high))
        values = list(made)
        level += 1
    return lets, values[0]


def _halves(a: Expr, b: Expr, level: int) -> tuple[Expr, Expr]:
    """The halves of each run of lanes that belongs to one sum: of ``a``, then of ``b``.

    Within 128 bits first, where shuffles are cheap; then whole 128-bit groups are exchanged.
    """
    count = dtypes.lanes_of(a.dtype)
    within = min(count, _GROUP)
    if 1 << level < within:
        half, width = within // 2, 1 << level
        low = tuple(
            side + start + first + lane
            for start in range(0, count, within)
            for first in range(0, half, width)
            for side in (0, count)
            for lane in range(width)
        )
        return Shuffle((a, b), low), Shuffle((a, b), tuple(i + half for i in low))
    stretch = count * within >> level
    low = tuple(
        side + start + lane
        for side in (0, count)
        for start in range(0, count, stretch)
        for lane in range(stretch // 2)
    )
    return Shuffle((a, b), low), Shuffle((a, b), tuple(i + stretch // 2 for i in low))


def _let(lets: Lets, value: Expr) -> Var:
    lets.append((Var(f"t{len(lets)}", value.dtype), value))
    return lets[-1][0]


def _exchanged(a: Expr, b: Expr, step: int) -> tuple[Expr, Expr]:
    """Exchange the blocks of ``step`` lanes that are off the diagonal of a pair of rows."""
    count = dtypes.lanes_of(a.dtype)
    low = tuple(count + j - step if j & step else j for j in range(count))
    high = tuple(count + j if j & step else j + step for j in range(count))
    return Shuffle((a, b), low), Shuffle((a, b), high)


def with_lets(lets: Lets, body: Stmt) -> Stmt:
    """Define variables around a statement."""
    for var, value in reversed(lets):
        body = LetStmt(var, value, body)
    return body


#: Minimax coefficients of 2**r for |r| <= 1/2 (Remez), by their degree: relative errors of 7.5e-5,
#: and of 1.9e-9, far below an ulp of float32.
_EXP2 = {
    3: (0.9999280735394012, 0.6932609854606555, 0.24261112219321604, 0.05517166905792496),
    6: (
        1.0, 0.6931472149680279, 0.24022652782887738, 0.05550310551013797, 0.009617692972993062,
        0.0013406643902351759, 0.0001559467816132662,
    ),
}  # fmt: skip


def exp2_of_negative(x: Expr, degree: int = 6) -> Expr:
    """``2**x`` for ``x <= 0``; results below the normal range are zero, NaN stays NaN.

    Half the work of the general function: no overflow, no gradual underflow.
    """
    limit = const(-127.0, FLOAT)
    # Numbers around 2**23 have no fraction: adding it rounds. What the sum's mantissa counts,
    # shifted up, is the exponent (0 for -127: zero).
    bias = const(2.0**23 + 127.0, FLOAT)

    def let(value: Expr, use: Callable[[Var], Expr]) -> Expr:
        var = Var("e", value.dtype)
        return Let(var, value, use(var))

    def power(bits: Var, rest: Var) -> Expr:
        first, *others = reversed(_EXP2[degree])
        polynomial: Expr = const(first, FLOAT)
        for coefficient in others:
            polynomial = polynomial * rest + const(coefficient, FLOAT)
        shifted = call("shift_left", bits, const(23, "int32"))
        return polynomial * call("reinterpret", shifted, dtype=FLOAT)

    def reduce(bounded: Var) -> Expr:
        def rest(bits: Var) -> Expr:
            return bounded - (call("reinterpret", bits, dtype=FLOAT) - bias)

        # By its bits the sum is a float32 everywhere, also where one computes in float64.
        rounded = call("reinterpret", bounded + bias, dtype="int32")
        return let(rounded, lambda bits: let(rest(bits), lambda rest: power(bits, rest)))

    return let(select(x < limit, limit, x), reduce)


def vector_segments(depth: int, lanes: int, vectors: int) -> list[tuple[int, int, int]]:
    """Divide an axis into segments of at most ``vectors`` vectors: (start, width, count).

    As few different widths as possible, since each needs its own code.
    """
    most = vectors * lanes
    if depth <= most:
        return [(0, depth, 1)]
    whole = [width for width in range(lanes, most + 1, lanes) if depth % width == 0]
    if whole and whole[-1] * 2 >= most:
        return [(0, whole[-1], depth // whole[-1])]
    count = depth // most
    return [(0, most, count), (count * most, depth - count * most, 1)]


def write_rows(
    problem: Attention,
    b: Expr,
    head: Expr,
    first: Expr,
    count: ExprLike,
    value: Callable[[Expr, Expr], Expr],
) -> Stmt:
    """Store ``count`` rows from ``first`` on: ``value(index among them, depth)``."""

    def write(query_head: Expr, query: Expr, place: Expr, d: Expr) -> Stmt:
        at = in_layout(problem.options.layouts[3], b, query_head, query, d)
        return store(problem.out, cast(value(place, d), problem.out.dtype), *at)

    depth = Axis("d", problem.value_depth, VECTORIZED)
    if not problem.mixes_heads:
        axes = [Axis("q", count, keep=True), depth]
        return block("write", axes, lambda q, d: write(head, first + q, q, d))
    # Loops over heads and queries, not rows: it must be obvious that heads write apart.
    axes = [Axis("g", problem.group, keep=True), Axis("q", problem.queries, keep=True), depth]
    return block(
        "write",
        axes,
        lambda g, q, d: write(head * problem.group + g, q, g * problem.queries + q, d),
    )
