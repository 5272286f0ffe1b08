"""Running results along an axis: ``cumsum``, ``cummax``, ``logcumsumexp``, by any operation ….

Of sums and products, four elements are combined among themselves before they are combined with the
running total, so each group of four waits for one operation of the previous group, not for four.
Blocks carry the annotation ``SCAN``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir import (
    EQ,
    Expr,
    ExprLike,
    Var,
    and_,
    as_int,
    call,
    compare,
    const,
    dtypes,
    if_then_else,
    maximum,
    minimum,
    or_,
    product,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, extern
from tilewright.tir import SERIAL, Buffer, For, IfThenElse, LetStmt, Stmt, decl_buffer, seq
from tilewright.tir.attrs import integer, register_annotation
from tilewright.tir.building import Axis, block, load, store
from tilewright.topi.sort import comparable
from tilewright.topi.transform import reshape
from tilewright.topi.utils import normal_axis, sum_dtype

SCAN = register_annotation(
    "scan",
    integer(),
    means="On the definition: the axis.",
    read_by=("dlight.cpu.annotated_rows", "kernels.problems.scan"),
)

_GROUP = 4

Combine = Callable[[Expr, Expr], Expr]


def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> Tensor:
    """Sum of each element and those before it along an axis, without itself if ``exclusive``."""
    made = _scan(data, axis, dtype, "cumsum", lambda a, b: a + b, 0)
    return _one_later(made, axis, const(0, made.dtype)) if exclusive else made


def cumprod(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> Tensor:
    """Product of each element and those before it, without itself if ``exclusive``."""
    made = _scan(data, axis, dtype, "cumprod", lambda a, b: a * b, 1)
    return _one_later(made, axis, const(1, made.dtype)) if exclusive else made


def scanop(
    data: Tensor,
    binop: Combine,
    identity_value: ExprLike,
    op_name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> Tensor:
    """Combine each element and those before it along an axis by ``binop(before, element)``.

    It starts from ``identity_value``. Without an axis the tensor is flat; ``exclusive`` leaves out
    the element itself.
    """
    if axis is None:
        data, axis = reshape(data, (product(data.shape),)), 0
    axis, made_as = normal_axis(axis, data.ndim), dtype or data.dtype
    neutral = const(identity_value, made_as)

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        source, result = operands[0], outputs[0]
        total = decl_buffer((1,), made_as, "total", scope="local")

        def row(*outer: Var) -> Stmt:
            def add(k: Var) -> Stmt:
                at = (*outer[:axis], k, *outer[axis:])
                element = cast_expr(load(source, *at), made_as)
                combined = store(total, cast_expr(binop(load(total, 0), element), made_as), 0)
                give = store(result, load(total, 0), *at)
                return seq(give, combined) if exclusive else seq(combined, give)

            return seq(store(total, neutral, 0), _loop("k", source.shape[axis], add))

        axes = [Axis(f"i{n}", size) for n, size in enumerate(source.shape) if n != axis]
        return block(op_name, axes, row, [total], {SCAN: axis})

    made: Tensor = extern([data.shape], [data], body, dtype=[made_as], name=op_name)
    return made


def _one_later(x: Tensor, axis: int | None, first: Expr) -> Tensor:
    """Move results one place on; ``first`` is the first one."""
    axis = normal_axis(axis or 0, x.ndim)

    def element(*i: Expr) -> Expr:
        return if_then_else(i[axis] < 1, first, x(*i[:axis], i[axis] - 1, *i[axis + 1 :]))

    made: Tensor = compute(x.shape, element, name=f"exclusive_{x.name}", tag="injective")
    return made


def logcumsumexp(x: Tensor, axis: int = -1) -> Tensor:
    """Logarithm of the sum of ``exp`` of each element and those before it along an axis.

    The sum is that of ``exp(x - top)``, where ``top`` is the greatest element so far; the next sum
    waits for one product and one addition, neither for ``exp`` nor for ``log``. Sums of single
    precision are made in double.

    Raises ``VerifyError`` for integers.
    """
    if not dtypes.is_float(x.dtype):
        raise VerifyError(f"logcumsumexp: needs floating-point numbers, got {x.dtype}")
    axis, inner = normal_axis(axis, x.ndim), sum_dtype(x.dtype)

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        source, result = operands[0], outputs[0]
        top = decl_buffer((1,), inner, "top", scope="local")
        total = decl_buffer((1,), "float64", "total", scope="local")

        def row(*outer: Var) -> Stmt:
            def add(k: Var) -> Stmt:
                at = (*outer[:axis], k, *outer[axis:])
                value = Var("value", inner)
                higher = value > load(top, 0)
                # Of equal infinities the difference is none.
                away = select(
                    compare(EQ, value, load(top, 0)),
                    const(0, inner),
                    call("abs", value - load(top, 0)),
                )
                part = Var("part", inner)
                wide, before = cast_expr(part, "float64"), load(total, 0)
                return seq(
                    LetStmt(value, cast_expr(load(source, *at), inner)),
                    LetStmt(part, call("exp", 0 - away)),
                    store(total, select(higher, before * wide + 1, before + wide), 0),
                    store(top, select(higher, value, load(top, 0)), 0),
                    store(
                        result,
                        cast_expr(
                            load(top, 0) + call("log", cast_expr(load(total, 0), inner)), x.dtype
                        ),
                        *at,
                    ),
                )

            start = seq(
                store(top, const(-math.inf, inner), 0), store(total, const(0, "float64"), 0)
            )
            return seq(start, _loop("k", source.shape[axis], add))

        axes = [Axis(f"i{n}", size) for n, size in enumerate(source.shape) if n != axis]
        return block("logcumsumexp", axes, row, [top, total], {SCAN: axis})

    made: Tensor = extern([x.shape], [x], body, dtype=[x.dtype], name="logcumsumexp")
    return made


def running_log_add_exp(a: Expr, b: Expr) -> Expr:
    """``log(exp(a) + exp(b))``; of equal infinities the same infinity."""
    high, low = maximum(a, b), minimum(a, b)
    # Neither is NaN if they are equal, so only infinities are left to be taken as they are.
    same = and_(compare(EQ, a, b), call("isinf", a))
    return if_then_else(same, a, high + call("log1p", call("exp", low - high)))


def cummax(x: Tensor, axis: int = -1, dtype: str = "int64") -> tuple[Tensor, Tensor]:
    """The greatest of each element and those before it along an axis, and where it is.

    Of equal elements it is the last; NaN is greater than anything. ``dtype`` is that of places.

    Raises ``VerifyError`` if it is not an integer.
    """
    return _cumulative_extremum(x, axis, dtype, "cummax")


def cummin(x: Tensor, axis: int = -1, dtype: str = "int64") -> tuple[Tensor, Tensor]:
    """The least of each element and those before it along an axis, and where it is.

    Of equal elements it is the last; NaN is less than anything. ``dtype`` is that of places.

    Raises ``VerifyError`` if it is not an integer.
    """
    return _cumulative_extremum(x, axis, dtype, "cummin")


def _cumulative_extremum(x: Tensor, axis: int, dtype: str, name: str) -> tuple[Tensor, Tensor]:
    if not dtypes.is_integer(dtype):
        raise VerifyError(f"{name}: places are integers, not {dtype}")
    axis = normal_axis(axis, x.ndim)

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        source, (values, places) = operands[0], outputs
        best = decl_buffer((1,), "int64", "best", scope="local")

        def row(*outer: Var) -> Stmt:
            def at(k: Expr) -> tuple[Expr, ...]:
                return (*outer[:axis], k, *outer[axis:])

            def step(k: Var) -> Stmt:
                known = comparable(load(source, *at(load(best, 0))))
                value = comparable(load(source, *at(k)))
                better: Expr = value >= known if name == "cummax" else value <= known
                if dtypes.is_float(value.dtype):
                    better = or_(better, call("isnan", value))
                return seq(
                    IfThenElse(better, store(best, k, 0)),
                    store(values, load(source, *at(load(best, 0))), *at(k)),
                    store(places, cast_expr(load(best, 0), dtype), *at(k)),
                )

            return seq(store(best, 0, 0), _loop("k", source.shape[axis], step))

        axes = [Axis(f"i{n}", size) for n, size in enumerate(source.shape) if n != axis]
        return block(name, axes, row, [best], {SCAN: axis})

    values, places = extern([x.shape] * 2, [x], body, dtype=[x.dtype, dtype], name=name)
    return values, places


def _scan(
    x: Tensor, axis: int | None, dtype: str | None, name: str, combine: Combine, neutral: int
) -> Tensor:
    """16-bit floats are combined in single precision; without an axis the tensor is flat."""
    if axis is None:
        x, axis = reshape(x, (product(x.shape),)), 0
    axis, made_as = normal_axis(axis, x.ndim), dtype or x.dtype
    inner = sum_dtype(made_as)

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        source, result = operands[0], outputs[0]
        total = decl_buffer((1,), inner, "total", scope="local")
        partials = decl_buffer((_GROUP,), inner, "parts", scope="local")
        extent = source.shape[axis]

        def row(*outer: Var) -> Stmt:
            def element(k: Expr) -> Expr:
                return cast_expr(load(source, *outer[:axis], k, *outer[axis:]), inner)

            def give(value: Expr, k: Expr) -> Stmt:
                return store(result, cast_expr(value, made_as), *outer[:axis], k, *outer[axis:])

            def group(g: Expr) -> Stmt:
                places = [g * _GROUP + number for number in range(_GROUP)]
                before = load(total, 0)
                stmts = [store(partials, element(places[0]), 0)]
                for number in range(1, _GROUP):
                    value = combine(load(partials, number - 1), element(places[number]))
                    stmts.append(store(partials, value, number))
                stmts += [
                    give(combine(before, load(partials, number)), place)
                    for number, place in enumerate(places)
                ]
                return seq(*stmts, store(total, combine(before, load(partials, _GROUP - 1)), 0))

            def rest(number: Expr) -> Stmt:
                place = extent // _GROUP * _GROUP + number
                added = store(total, combine(load(total, 0), element(place)), 0)
                return seq(added, give(load(total, 0), place))

            loops_of_row = (("g", extent // _GROUP, group), ("k", extent % _GROUP, rest))
            loops = [_loop(*loop) for loop in loops_of_row if as_int(loop[1]) != 0]
            return seq(store(total, const(neutral, inner), 0), *loops)

        axes = [Axis(f"i{n}", size) for n, size in enumerate(source.shape) if n != axis]
        return block(name, axes, row, [total, partials], {SCAN: axis})

    made: Tensor = extern([x.shape], [x], body, dtype=[made_as], name=name)
    return made


def _loop(name: str, extent: Expr, body: Callable[[Var], Stmt]) -> Stmt:
    var = Var(name)
    return For(var, const(0), extent, SERIAL, body(var))
