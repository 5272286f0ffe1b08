"""Reductions: of what a ``te.compute`` combines over axes, or of two values at once.

``sum``, ``max`` … are those of the registry of reducers; ``comm_reducer`` makes custom ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import ir
from tilewright.ir import (
    TRUE,
    Expr,
    ExprLike,
    as_expr,
    attr,
    child,
    children,
    derived,
    match_types,
    node,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.reducer import REDUCERS, CommReducer, make_reducer
from tilewright.tir.stmt import REDUCE, IterVar


@node
class Reduce(Expr):
    """A reduction of ``source`` over ``axis``; may only be the whole body of a compute.

    ``condition`` says what counts; ``value_index`` which element of the tuple this is; ``init``
    where it starts, if not at the reducer's identity.
    """

    early_fields = ("axis",)

    combiner: CommReducer = child()
    source: tuple[Expr, ...] = children(alias="src")
    axis: tuple[IterVar, ...] = children(alias="rdom")
    condition: Expr = child()
    value_index: int = attr()
    init: tuple[Expr, ...] = children(default=None)
    dtype: str = derived(lambda reduce: reduce.source[reduce.value_index].dtype)

    def __post_init__(self) -> None:
        if self.init and len(self.init) != len(self.source):
            raise VerifyError(
                f"a reduction of {len(self.source)} values starts at as many, got {len(self.init)}"
            )


Axes = IterVar | Sequence[IterVar]


def _axes(axis: Axes) -> tuple[IterVar, ...]:
    axes = (axis,) if isinstance(axis, IterVar) else tuple(axis)
    for item in axes:
        if not isinstance(item, IterVar) or item.kind != REDUCE:
            raise VerifyError(f"a reduction needs te.reduce_axis(...) axes, got {item!r}")
    return axes


def _tuple(value: object) -> tuple[Expr, ...]:
    return tuple(map(as_expr, value)) if isinstance(value, (tuple, list)) else (as_expr(value),)


def _reduction(make: Callable[..., CommReducer], name: str) -> Callable[..., Any]:
    """Return the function that reduces by what ``make`` gives for the dtypes."""

    def build(
        expr: object, axis: Any, where: ExprLike | None = None, init: Any = None, *args: ExprLike
    ) -> Reduce | tuple[Reduce, ...] | Expr:
        if not isinstance(axis, (IterVar, tuple, list)):
            given = [value for value in (where, init, *args) if value is not None]
            return _of_values(make, name, [expr, axis, *given])
        if args:
            raise VerifyError(f"{name} over axes takes where and init, got {len(args)} more values")
        source = _tuple(expr)
        condition = TRUE if where is None else as_expr(where)
        combiner = make(*(item.dtype for item in source))
        start = () if init is None else _starts(name, init, source)
        made = tuple(
            Reduce(combiner, source, _axes(axis), condition, index, start)
            for index in range(len(source))
        )
        return made[0] if len(made) == 1 else made

    build.__name__ = build.__qualname__ = name
    return build


def _starts(name: str, init: object, source: tuple[Expr, ...]) -> tuple[Expr, ...]:
    found = _tuple(init)
    if len(found) != len(source):
        raise VerifyError(f"{name} of {len(source)} values needs as many to start at: {init!r}")
    return tuple(value.astype(item.dtype) for value, item in zip(found, source))


_FOLDS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "sum": ir.add,
    "prod": ir.mul,
    "min": ir.minimum,
    "max": ir.maximum,
    "all": ir.and_,
    "any": ir.or_,
}
"""What combines two values and folds constants."""


def _of_values(make: Callable[..., CommReducer], name: str, values: list[Any]) -> Expr:
    """Combine single values from left to right."""
    made = as_expr(values[0])
    for value in values[1:]:
        made, other = match_types(made, value)
        if name in _FOLDS:
            made = _FOLDS[name](made, other)
        else:
            (made,) = make(made.dtype).combine((made,), (other,))
    return made


def reducer(name: str) -> Callable[..., Any]:
    """Return the reduction by a registered reducer: ``te.reducer("argmax_last")((i, x), axis=k)``.

    An unknown name raises an error with near matches.
    """
    REDUCERS.get(name)
    build = _reduction(lambda *dtypes: REDUCERS.get(name)(*dtypes), name)
    build.__doc__ = (
        f"Reduce by ``{name}`` over reduction axes, or combine two or more values. ``where`` keeps "
        "what satisfies a condition; a reduction starts at ``init``, else at the neutral element."
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

    def make(*dtypes: str) -> CommReducer:
        return make_reducer(fcombine, fidentity, *dtypes)

    build = _reduction(make, name)
    build.__doc__ = f"Reduce by the custom combination ``{name}``."
    return build
