"""Commutative reducers: what a reduction block may combine with, as an extensible registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import (
    Expr,
    Node,
    Var,
    and_,
    children,
    const,
    definitions,
    max_value,
    maximum,
    min_value,
    minimum,
    node,
    or_,
    select,
    substitute,
)
from tilewright.support.registry import Registry


@node
class CommReducer(Node):
    """``result`` combines ``lhs`` with ``rhs`` (one entry per element of the tuple reduced).

    Associative and commutative (for floats: up to rounding), with ``identity`` as neutral element.
    """

    lhs: tuple[Var, ...] = definitions()
    rhs: tuple[Var, ...] = definitions()
    result: tuple[Expr, ...] = children()
    identity: tuple[Expr, ...] = children()

    def combine(self, lhs: Sequence[Expr], rhs: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the expressions that combine two tuples of values."""
        mapping = dict(zip((*self.lhs, *self.rhs), (*lhs, *rhs)))
        return tuple(substitute(expr, mapping) for expr in self.result)


ReducerFactory = Callable[..., CommReducer]
REDUCERS: Registry[ReducerFactory] = Registry("reducer")
"""Reducers by name: functions of the dtypes of the reduced tuple."""


def make_reducer(
    combine: Callable[..., Expr | tuple[Expr, ...]],
    identity: Callable[..., Expr | tuple[Expr, ...]],
    *dtypes: str,
) -> CommReducer:
    """Make a reducer from Python functions.

    For one element ``combine(x, y) -> expr`` and ``identity(dtype) -> expr``; for several,
    ``combine((x0, x1), (y0, y1)) -> tuple`` and ``identity(dtype0, dtype1) -> tuple``.
    """
    lhs = tuple(Var(f"x{index}", dtype) for index, dtype in enumerate(dtypes))
    rhs = tuple(Var(f"y{index}", dtype) for index, dtype in enumerate(dtypes))
    if len(dtypes) == 1:
        result, neutral = combine(lhs[0], rhs[0]), identity(dtypes[0])
    else:
        result, neutral = combine(lhs, rhs), identity(*dtypes)
    return CommReducer(lhs, rhs, _as_tuple(result), _as_tuple(neutral))


def _as_tuple(value: Expr | tuple[Expr, ...]) -> tuple[Expr, ...]:
    return value if isinstance(value, tuple) else (value,)


def _arg_reducer(
    better: Callable[[Expr, Expr], Expr], worst: Callable[[str], Expr]
) -> ReducerFactory:
    """Reducer of (index, value) pairs; of equal values the lower index wins."""

    def combine(x: Sequence[Expr], y: Sequence[Expr]) -> tuple[Expr, ...]:
        keep = or_(better(x[1], y[1]), and_(x[1] == y[1], x[0] < y[0]))
        return select(keep, x[0], y[0]), select(better(x[1], y[1]), x[1], y[1])

    def make(index_dtype: str, value_dtype: str) -> CommReducer:
        return make_reducer(
            combine, lambda i, v: (max_value(i), worst(v)), index_dtype, value_dtype
        )

    return make


REDUCERS.register("sum", lambda t: make_reducer(lambda x, y: x + y, lambda d: const(0, d), t))
REDUCERS.register("prod", lambda t: make_reducer(lambda x, y: x * y, lambda d: const(1, d), t))
REDUCERS.register("min", lambda t: make_reducer(minimum, max_value, t))
REDUCERS.register("max", lambda t: make_reducer(maximum, min_value, t))
REDUCERS.register("all", lambda t: make_reducer(and_, lambda d: const(True, d), t))
REDUCERS.register("any", lambda t: make_reducer(or_, lambda d: const(False, d), t))
REDUCERS.register("argmax", _arg_reducer(lambda a, b: a > b, min_value))
REDUCERS.register("argmin", _arg_reducer(lambda a, b: a < b, max_value))
