"""Running sums and products along an axis: ``cumsum``, ``cumprod``.

Four elements are combined among themselves before they are combined with the running total, so each
group of four waits for one operation of the previous group, not for four. The block carries the
annotation ``SCAN``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import Expr, Var, as_int, const, product
from tilewright.ir import cast as cast_expr
from tilewright.te import Tensor, extern
from tilewright.tir import SERIAL, Buffer, For, Stmt, decl_buffer, seq
from tilewright.tir.attrs import integer, register_annotation
from tilewright.tir.building import Axis, block, load, store
from tilewright.topi.transform import reshape
from tilewright.topi.utils import normal_axis, sum_dtype

SCAN = register_annotation(
    "scan",
    integer(),
    means="On the definition: the axis.",
    read_by=("dlight.cpu.scan",),
)

_GROUP = 4

Combine = Callable[[Expr, Expr], Expr]


def cumsum(x: Tensor, axis: int | None = None, dtype: str | None = None) -> Tensor:
    """Sum of each element and those before it along an axis."""
    return _scan(x, axis, dtype, "cumsum", lambda a, b: a + b, 0)


def cumprod(x: Tensor, axis: int | None = None, dtype: str | None = None) -> Tensor:
    """Product of each element and those before it along an axis."""
    return _scan(x, axis, dtype, "cumprod", lambda a, b: a * b, 1)


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

    made: Tensor = extern([x.shape], [x], body, dtype=[made_as], name=name)[0]
    return made


def _loop(name: str, extent: Expr, body: Callable[[Var], Stmt]) -> Stmt:
    var = Var(name)
    return For(var, const(0), extent, SERIAL, body(var))
