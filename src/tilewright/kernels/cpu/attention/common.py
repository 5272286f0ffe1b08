"""Shared by the attention kernels: the recognised problem, and small builders.

The kernels (:mod:`.prefill`, :mod:`.decode`) are TensorIR functions made of
blocks within blocks (:mod:`tilewright.tir.building`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.arith import simplify
from tilewright.ir import (
    Broadcast,
    Expr,
    ExprLike,
    Let,
    Shuffle,
    Var,
    as_int,
    call,
    cast,
    const,
    dtypes,
    floordiv,
    floormod,
    maximum,
    minimum,
    select,
)
from tilewright.tir import (
    VECTORIZED,
    Buffer,
    LetStmt,
    Stmt,
)
from tilewright.tir.building import Axis, block, load, store
from tilewright.topi.nn.attention import AttentionOptions, dims_of, heads_per_key_head, in_layout

LOG2_E = math.log2(math.e)
FLOAT = "float32"
LOWEST = const(-math.inf, FLOAT)

# ---- vectors ------------------------------------------------------------------------------------


def widen(value: Expr) -> Expr:
    """Convert to float32, lane by lane."""
    return cast(value, dtypes.vector_dtype(FLOAT, dtypes.lanes_of(value.dtype)))


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


# ---- the problem --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attention:
    """An attention function: buffers, options, extents.

    Queries are viewed as ``rows`` of a head of keys. If ``stacked``, these are the queries of all
    heads of a group, concatenated; else each query head has its own rows.
    """

    query: Buffer
    key: Buffer
    value: Buffer
    mask: Buffer | None
    out: Buffer
    options: AttentionOptions
    stacked: bool = False

    def with_stacked(self, stacked: bool) -> Attention:
        """The same problem with another view of rows."""
        return replace(self, stacked=stacked)

    @property
    def _q(self) -> dict[str, Expr]:
        return dims_of(self.query.shape, self.options.layouts[0])

    @property
    def batch(self) -> Expr:
        """Extent of the batch."""
        return self._q["B"]

    @property
    def queries(self) -> Expr:
        """Length of the query sequence."""
        return self._q["S"]

    @property
    def keys(self) -> Expr:
        """Length of the key sequence."""
        keys: Expr = dims_of(self.key.shape, self.options.layouts[1])["S"]
        return keys

    @property
    def depth(self) -> int:
        """Elements of a query and of a key."""
        return _constant(self._q["D"])

    @property
    def value_depth(self) -> int:
        """Elements of a value."""
        return _constant(dims_of(self.value.shape, self.options.layouts[2])["D"])

    @property
    def group(self) -> int:
        """Query heads that share a head of keys."""
        key_heads = dims_of(self.key.shape, self.options.layouts[1])["H"]
        return heads_per_key_head(self._q["H"], key_heads)

    @property
    def heads(self) -> Expr:
        """Heads that have their own rows."""
        heads: Expr = self._q["H"]
        return floordiv(heads, const(self.group)) if self.stacked else heads

    @property
    def rows(self) -> Expr:
        """Rows of a head."""
        return self.queries * self.group if self.stacked else self.queries

    @property
    def _mixes_heads(self) -> bool:
        """Whether the rows of a head belong to several query heads."""
        return self.stacked and self.group > 1

    @property
    def scale(self) -> float:
        """Factor of the scores, which are kept as powers of two."""
        return self.options.scale * LOG2_E

    def key_head(self, head: Expr) -> Expr:
        """The head of keys and values for the rows of ``head``."""
        return head if self.stacked else floordiv(head, const(self.group))

    def query_of(self, row: Expr) -> Expr:
        """Position of a row in the query sequence."""
        return floormod(row, self.queries) if self._mixes_heads else row

    def query_head(self, head: Expr, row: Expr) -> Expr:
        """Head of a row in the query tensor."""
        if not self._mixes_heads:
            return head
        return head * self.group + floordiv(row, self.queries)

    def query_elements(self, b: Expr, head: Expr, row: Expr, d: Expr) -> Expr:
        """Elements of a query, unconverted."""
        at = in_layout(
            self.options.layouts[0], b, self.query_head(head, row), self.query_of(row), d
        )
        return load(self.query, *at)

    def key_elements(self, b: Expr, head: Expr, k: Expr, d: Expr) -> Expr:
        """Elements of a key, unconverted."""
        return load(self.key, *in_layout(self.options.layouts[1], b, self.key_head(head), k, d))

    def value_elements(self, b: Expr, head: Expr, k: Expr, d: Expr) -> Expr:
        """Elements of a value, unconverted."""
        return load(self.value, *in_layout(self.options.layouts[2], b, self.key_head(head), k, d))

    def read_query(self, b: Expr, head: Expr, row: Expr, d: Expr) -> Expr:
        """Elements of a query in float32, times the scale."""
        return scaled(widen(self.query_elements(b, head, row, d)), self.scale)

    def read_key(self, b: Expr, head: Expr, k: Expr, d: Expr) -> Expr:
        """Elements of a key in float32."""
        return widen(self.key_elements(b, head, k, d))

    def read_value(self, b: Expr, head: Expr, k: Expr, d: Expr) -> Expr:
        """Elements of a value in float32."""
        return widen(self.value_elements(b, head, k, d))

    def write_rows(
        self,
        b: Expr,
        head: Expr,
        first: Expr,
        count: ExprLike,
        value: Callable[[Expr, Expr], Expr],
    ) -> Stmt:
        """Store ``count`` rows from ``first`` on: ``value(index among them, depth)``."""

        def write(query_head: Expr, query: Expr, place: Expr, d: Expr) -> Stmt:
            at = in_layout(self.options.layouts[3], b, query_head, query, d)
            return store(self.out, cast(value(place, d), self.out.dtype), *at)

        depth = Axis("d", self.value_depth, VECTORIZED)
        if not self._mixes_heads:
            axes = [Axis("q", count, keep=True), depth]
            return block("write", axes, lambda q, d: write(head, first + q, q, d))
        # Loops over heads and queries, not rows: it must be obvious that heads write apart.
        axes = [Axis("g", self.group, keep=True), Axis("q", self.queries, keep=True), depth]
        return block(
            "write",
            axes,
            lambda g, q, d: write(head * self.group + g, q, g * self.queries + q, d),
        )

    # ---- which keys a row sees ----

    @property
    def causal_offset(self) -> Expr | None:
        """Row of query ``i`` sees keys up to ``i + offset``; ``None`` if all."""
        return self.options.causal_offset(self.queries, self.keys)

    def key_limit(self, last_row: Expr) -> Expr:
        """The first key that no row up to ``last_row`` sees."""
        offset = self.causal_offset
        if offset is None:
            return self.keys
        last = self.queries - 1 if self.stacked else minimum(last_row, self.queries - 1)
        return simplify(maximum(minimum(self.keys, last + offset + 1), 0))

    # ---- the mask ----

    @property
    def mask_varies(self) -> bool:
        """Whether the mask differs between rows of one head."""
        if self.mask is None:
            return False
        _, h, s, _ = self._mask_extents()
        return not is_one(s) or (self.stacked and not is_one(h))

    def _mask_extents(self) -> tuple[Expr, ...]:
        assert self.mask is not None
        return (*[const(1)] * (4 - self.mask.ndim), *self.mask.shape)

    def read_mask(self, b: Expr, head: Expr, row: Expr, k: Expr) -> Expr:
        """What the mask adds to scores, in base 2: a vector for neighbouring keys."""
        assert self.mask is not None
        where = (b, self.query_head(head, row), self.query_of(row), k)
        extents = self._mask_extents()
        at = [const(0) if is_one(n) else i for i, n in zip(where, extents)]
        value: Expr = load(self.mask, *at[4 - self.mask.ndim :])
        lanes = dtypes.lanes_of(value.dtype)
        if dtypes.is_bool(value.dtype):
            return select(value, splat(0.0, lanes), splat(-math.inf, lanes))
        return scaled(widen(value), LOG2_E)

    @property
    def mask_has_keys(self) -> bool:
        """Whether the mask differs between keys."""
        return self.mask is not None and not is_one(self._mask_extents()[3])


def splat(value: float, lanes: int) -> Expr:
    """A number in every lane."""
    one = const(value, FLOAT)
    return one if lanes == 1 else Broadcast(one, lanes)


def scaled(value: Expr, factor: float) -> Expr:
    """Multiply a scalar or vector by a number."""
    return value * splat(factor, dtypes.lanes_of(value.dtype))


def is_one(extent: Expr) -> bool:
    """Whether an extent is the constant 1."""
    return as_int(extent) == 1


def _constant(extent: Expr) -> int:
    value = as_int(extent)
    assert value is not None, "the rule refuses symbolic depths"
    return value


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
