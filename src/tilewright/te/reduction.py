"""Reductions for ``te.compute``: those of the registry of reducers, and custom ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import TRUE, Expr, ExprLike, as_expr
from tilewright.support.errors import VerifyError
from tilewright.te.tensor import Reduce
from tilewright.tir import REDUCE, REDUCERS, CommReducer, IterVar, make_reducer


def _axes(axis: IterVar | Sequence[IterVar]) -> tuple[IterVar, ...]:
    axes = (axis,) if isinstance(axis, IterVar) else tuple(axis)
    for item in axes:
        if not isinstance(item, IterVar) or item.kind != REDUCE:
            raise VerifyError(f"a reduction needs te.reduce_axis(...) axes, got {item!r}")
    return axes


def _reduce(
    reducer: CommReducer,
    source: tuple[Expr, ...],
    axis: IterVar | Sequence[IterVar],
    where: ExprLike | None,
) -> Reduce | tuple[Reduce, ...]:
    axes = _axes(axis)
    condition = TRUE if where is None else as_expr(where)
    made = tuple(
        Reduce(reducer, source, axes, condition, index, expr.dtype)
        for index, expr in enumerate(reducer.result)
    )
    return made[0] if len(made) == 1 else made


def reducer(name: str) -> Callable[..., Any]:
    """Return the reduction by a registered reducer: ``te.reducer("argmax_last")((i, x), axis=k)``.

    An unknown name raises an error with near matches.
    """
    REDUCERS.get(name)

    def build(
        expr: Expr, axis: IterVar | Sequence[IterVar], where: ExprLike | None = None
    ) -> Reduce | tuple[Reduce, ...]:
        source = tuple(map(as_expr, expr)) if isinstance(expr, (tuple, list)) else (as_expr(expr),)
        made = REDUCERS.get(name)(*(item.dtype for item in source))
        return _reduce(made, source, axis, where)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = (
        f"Reduce by ``{name}`` over reduction axes. ``where`` keeps what satisfies a condition; "
        "an empty reduction gives the neutral element."
    )
    return build


sum = reducer("sum")
prod = reducer("prod")
min = reducer("min")
max = reducer("max")
all_of = reducer("all")
any_of = reducer("any")
argmax = reducer("argmax")
argmin = reducer("argmin")
argmax_last = reducer("argmax_last")
argmin_last = reducer("argmin_last")
bitwise_and = reducer("bitwise_and")
bitwise_or = reducer("bitwise_or")
bitwise_xor = reducer("bitwise_xor")


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """Make a custom reduction.

    For one value, ``fcombine(x, y)`` and ``fidentity(dtype)``; for tuples they take and return
    tuples (``fidentity`` takes one dtype per element). The combination must be associative and
    commutative. Schedules recognise it in a program (for ``rfactor``) only if it is registered too,
    by ``tir.register_reducer``.
    """

    def build(
        expr: Expr, axis: IterVar | Sequence[IterVar], where: ExprLike | None = None
    ) -> Reduce | tuple[Reduce, ...]:
        source = tuple(map(as_expr, expr)) if isinstance(expr, (tuple, list)) else (as_expr(expr),)
        made = make_reducer(fcombine, fidentity, *(item.dtype for item in source))
        return _reduce(made, source, axis, where)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"Reduce by the custom combination ``{name}``."
    return build
