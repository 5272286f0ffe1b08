"""Commutative reducers: what a reduction block may combine with, as an extensible registry.

A reduction block is recognised by its form (``analysis.reduction``): its update must read like the
combination of a registered reducer. ``te`` builds such blocks from the same entries. A reducer must
be associative and commutative and its identity neutral, since schedules regroup and reorder what it
combines; ``analysis.check_reducer`` tries that out before a schedule relies on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tilewright.ir import (
    Expr,
    Node,
    Var,
    and_,
    call,
    children,
    const,
    definitions,
    dtypes,
    greatest_of,
    least_of,
    maximum,
    minimum,
    node,
    or_,
    select,
    substitute,
)
from tilewright.support.errors import VerifyError
from tilewright.support.registry import Registry


@node
class CommReducer(Node):
    """``result`` combines ``lhs`` with ``rhs`` (one entry per element of the tuple reduced).

    Associative and commutative (for floats: up to rounding), with ``identity`` as neutral element.
    """

    own_scope = True

    lhs: tuple[Var, ...] = definitions()
    rhs: tuple[Var, ...] = definitions()
    result: tuple[Expr, ...] = children()
    identity: tuple[Expr, ...] = children(alias="identity_element")

    @property
    def identity_element(self) -> tuple[Expr, ...]:
        """The identity, as TVM calls it."""
        return self.identity

    def combine(self, lhs: Sequence[Expr], rhs: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the expressions that combine two tuples of values."""
        mapping = dict(zip((*self.lhs, *self.rhs), (*lhs, *rhs)))
        return tuple(substitute(expr, mapping) for expr in self.result)


ReducerFactory = Callable[..., CommReducer]
REDUCERS: Registry[ReducerFactory] = Registry("reducer")
"""Reducers by name: functions of the dtypes of the reduced tuple.

A factory takes one dtype per element of its tuple and raises ``VerifyError`` for dtypes that it is
not for. Add your own with :func:`register_reducer`.
"""


def make_reducer(
    combine: Callable[..., Expr | tuple[Expr, ...]],
    identity: Callable[..., Expr | tuple[Expr, ...]],
    *dtypes: str,
) -> CommReducer:
    """Make a reducer from Python functions.

    For one element ``combine(x, y) -> expr`` and ``identity(dtype) -> expr``; for several,
    ``combine((x0, x1), (y0, y1)) -> tuple`` and ``identity(dtype0, dtype1) -> tuple``.

    Raises ``VerifyError`` if the functions give other dtypes.
    """
    lhs = tuple(Var(f"x{index}", dtype) for index, dtype in enumerate(dtypes))
    rhs = tuple(Var(f"y{index}", dtype) for index, dtype in enumerate(dtypes))
    if len(dtypes) == 1:
        result, neutral = combine(lhs[0], rhs[0]), identity(dtypes[0])
    else:
        result, neutral = combine(lhs, rhs), identity(*dtypes)
    made = CommReducer(lhs, rhs, _as_tuple(result), _as_tuple(neutral))
    for what, values in (("combination", made.result), ("identity", made.identity)):
        found = tuple(value.dtype for value in values)
        if found != dtypes:
            raise VerifyError(
                f"the reducer's {what} has dtypes {list(found)}, the tuple has {list(dtypes)}"
            )
    return made


def _as_tuple(value: Expr | tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def register_reducer(
    name: str,
    combine: Callable[..., Expr | tuple[Expr, ...]],
    identity: Callable[..., Expr | tuple[Expr, ...]],
    arity: int = 1,
    *,
    accepts: Callable[..., bool] | None = None,
) -> ReducerFactory:
    """Add a reducer of tuples of ``arity`` elements, so that ``rfactor`` and ``te`` know it.

    ``combine`` and ``identity`` are as in :func:`make_reducer`. ``accepts(*dtypes)`` says for which
    dtypes it is, if not for all. Returns the factory, a function of the dtypes.

    >>> register_reducer("sum_and_max", lambda x, y: (x[0] + y[0], te.maximum(x[1], y[1])),
    ...                  lambda t0, t1: (te.const(0, t0), te.min_value(t1)), arity=2)

    Raises ``VerifyError`` for an arity below one.
    """
    if arity < 1:
        raise VerifyError(f"a reducer combines tuples of at least one element, not {arity}")

    def make(*dtypes: str) -> CommReducer:
        if len(dtypes) != arity:
            raise VerifyError(f"reducer {name!r} is for {arity} values, got {len(dtypes)}")
        if accepts is not None and not accepts(*dtypes):
            raise VerifyError(f"reducer {name!r} is not for {', '.join(dtypes)}")
        return make_reducer(combine, identity, *dtypes)

    return REDUCERS.register(name, make)


def known_reducers(*dtypes: str) -> list[tuple[str, CommReducer]]:
    """Return the registered reducers for a tuple of these dtypes, in order of registration."""
    found = [
        (name, _made(factory, dtypes))
        for name, factory in REDUCERS.items()
        if _takes(factory, len(dtypes))
    ]
    return [(name, made) for name, made in found if made is not None]


@cache
def _takes(factory: ReducerFactory, count: int) -> bool:
    try:
        inspect.signature(factory).bind(*range(count))
    except TypeError:
        return False
    return True


@cache
def _made(factory: ReducerFactory, dtypes: tuple[str, ...]) -> CommReducer | None:
    try:
        return factory(*dtypes)
    except VerifyError:
        return None  # not for tuples of this length, or not for these dtypes


# ---- the usual ones -----------------------------------------------------------------------------

Better = Callable[[Any, Any], Expr]


def _arg_combine(better: Better, wins: Better, nans: bool) -> Callable[..., tuple[Expr, ...]]:
    """Combine (index, value) pairs; of equal values the index wins for which ``wins`` holds.

    Comparing the indices, and not only taking the left one, makes it commutative. With ``nans`` a
    NaN is better than any number, and equal to NaN.
    """

    def combine(x: Sequence[Expr], y: Sequence[Expr]) -> tuple[Expr, ...]:
        above, equal = better(x[1], y[1]), x[1] == y[1]
        if nans and dtypes.is_float(x[1].dtype):
            nan = x[1] != x[1]
            above, equal = and_(or_(above, nan), y[1] == y[1]), or_(equal, nan)
        keep = or_(above, and_(equal, wins(x[0], y[0])))
        return select(keep, x[0], y[0]), select(above, x[1], y[1])

    return combine


def _greater(a: Expr, b: Expr) -> Expr:
    made: Expr = a > b
    return made


def _less(a: Expr, b: Expr) -> Expr:
    made: Expr = a < b
    return made


def _is_bool(dtype: str) -> bool:
    return dtypes.is_bool(dtype)


def _is_integer(dtype: str) -> bool:
    return not dtypes.is_float(dtype) and not dtypes.is_bool(dtype)


def _is_index(index: str, value: str) -> bool:
    return _is_integer(index)


def _ones(dtype: str) -> Expr:
    return const(-1, dtype) if dtypes.kind_of(dtype) == "int" else greatest_of(dtype)


register_reducer("sum", lambda x, y: x + y, lambda t: const(0, t))
register_reducer("prod", lambda x, y: x * y, lambda t: const(1, t))
register_reducer("min", minimum, greatest_of)
register_reducer("max", maximum, least_of)
# A comparison and a choice, which is one instruction, where a NaN doesn't count.
register_reducer("max_of_numbers", lambda x, y: select(y > x, y, x), least_of)
register_reducer("all", and_, lambda t: const(True, t), accepts=_is_bool)
register_reducer("any", or_, lambda t: const(False, t), accepts=_is_bool)
for _name, _neutral in (
    ("bitwise_and", _ones),
    ("bitwise_or", lambda t: const(0, t)),
    ("bitwise_xor", lambda t: const(0, t)),
):
    register_reducer(_name, lambda x, y, op=_name: call(op, x, y), _neutral, accepts=_is_integer)
# "argmax" and "argmin": the first index of equals; "_last": the last one. "_of_numbers": as
# programs are often written, which lose NaNs.
for _name, _better, _worst in (("argmax", _greater, least_of), ("argmin", _less, greatest_of)):
    for _suffix, _wins, _index in (("", _less, greatest_of), ("_last", _greater, least_of)):
        for _kind, _nans in (("", True), ("_of_numbers", False)):
            register_reducer(
                _name + _suffix + _kind,
                _arg_combine(_better, _wins, _nans),
                lambda i, v, index=_index, worst=_worst: (index(i), worst(v)),
                2,
                accepts=_is_index,
            )
