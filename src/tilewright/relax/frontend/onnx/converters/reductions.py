"""Reductions, running sums and products, and norms over axes."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.arith import simplify
from tilewright.ir import as_expr, as_int, dtypes
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.onnx.converters.base import Context, Shape, Tensor, converts
from tilewright.relax.frontend.onnx.converters.shapes import cut
from tilewright.relax.values import const

Reduce = Callable[[RelaxExpr, tuple[int, ...], bool], RelaxExpr]


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return op.sum(x, axes, keep)


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if dtypes.is_float(x.dtype):
        return op.mean(x, axes, keep)
    count = simplify(math.prod([x.shape[axis] for axis in axes], start=as_expr(1)))
    known = as_int(count)
    divisor = op.reshape(op.arange(count, count + 1), ()) if known is None else const(known or 1)
    return op.divide(op.sum(x, axes, keep), op.astype(divisor, x.dtype))


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if 0 in [as_int(x.shape[axis]) for axis in axes]:
        return op.log(op.sum(op.exp(x), axes, keep))
    top = op.max(x, axes, True)
    # Of nothing but -inf the difference would be NaN.
    safe = op.where(op.isfinite(top), top, op.zeros(top.shape, top.dtype))
    made = op.add(op.log(op.sum(op.exp(op.subtract(x, safe)), axes, True)), safe)
    return made if keep else op.squeeze(made, axes)


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceProd": lambda x, axes, keep: op.prod(x, axes, keep),
    "ReduceL1": lambda x, axes, keep: op.sum(op.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: _root(op.sum(op.square(x), axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: op.sum(op.square(x), axes, keep),
    "ReduceLogSum": lambda x, axes, keep: op.log(op.sum(x, axes, keep)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": lambda x, axes, keep: _extreme(op.max, x, axes, keep),
    "ReduceMin": lambda x, axes, keep: _extreme(op.min, x, axes, keep),
}


def _root(x: Tensor) -> Tensor:
    if dtypes.is_float(x.dtype):
        return op.sqrt(x)
    return op.astype(op.sqrt(op.astype(x, "float64")), x.dtype)


def _extreme(
    function: Callable[..., RelaxExpr], x: Tensor, axes: tuple[int, ...], keep: bool
) -> Tensor:
    empty = 0 in [as_int(x.shape[axis]) for axis in axes]
    if x.dtype == "bool" and not empty:
        return op.not_equal(function(op.astype(x, "uint8"), axes, keep), const(0, "uint8"))
    if empty:
        # Of nothing: what any element would replace.
        shape = [
            1 if axis in axes else extent
            for axis, extent in enumerate(x.shape)
            if keep or axis not in axes
        ]
        if dtypes.is_float(x.dtype):
            least, most = float("-inf"), float("inf")
        elif x.dtype == "bool":
            least, most = 0, 1
        else:
            least, most = dtypes.integer_limits(x.dtype)
        return op.full(shape, least if function is op.max else most, x.dtype)
    return function(x, axes, keep)


def _reduction(name: str, function: Reduce) -> None:
    @converts(name)
    def convert(
        ctx: Context, x: Tensor, axes: Shape | None = None,
        *, axes_: tuple[int, ...] | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0,
    ) -> Tensor:  # fmt: skip
        given = ctx.ints(axes, "axes") if axes is not None else axes_
        if not given and noop_with_empty_axes:
            # Over no axes, each element is reduced by itself.
            return function(x, (), True) if name not in _PLAIN else x
        where = ctx.axes(given, x.ndim) if given else tuple(range(x.ndim))
        return function(x, where, bool(keepdims))


_PLAIN = frozenset("ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceLogSumExp".split())

for _name, _function in _REDUCTIONS.items():
    _reduction(_name, _function)


def _arg(name: str, function: Callable[..., RelaxExpr]) -> None:
    @converts(name)
    def convert(
        ctx: Context, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Tensor:
        at = ctx.axis(axis, x.ndim)
        if not select_last_index:
            return function(x, at, bool(keepdims))
        found = function(op.flip(x, at), at, bool(keepdims))
        last = op.reshape(op.arange(x.shape[at] - 1, x.shape[at]), ())
        return op.subtract(last, found)


_arg("ArgMax", op.argmax)
_arg("ArgMin", op.argmin)


def _scan(name: str, function: Callable[..., RelaxExpr], first: int) -> None:
    @converts(name)
    def convert(
        ctx: Context, x: Tensor, axis: Shape, *, exclusive: int = 0, reverse: int = 0
    ) -> Tensor:
        at = ctx.axis(ctx.ints(axis, "axis")[0], x.ndim)
        if reverse:
            x = op.flip(x, at)
        if exclusive:
            shape = [1 if n == at else extent for n, extent in enumerate(x.shape)]
            longer = op.concat([op.full(shape, first, x.dtype), x], at)
            x = cut(longer, at, 0, x.shape[at])
        made = function(x, at)
        return op.flip(made, at) if reverse else made


_scan("CumSum", op.cumsum, 0)
_scan("CumProd", op.cumprod, 1)


@converts("LpNormalization")
def _lp_normalization(ctx: Context, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    ctx.require(p in (1, 2), f"p must be 1 or 2, got {p}")
    at = ctx.axis(axis, x.ndim)
    norm = op.sum(op.abs(x), at, True) if p == 1 else op.sqrt(op.sum(op.square(x), at, True))
    zero = op.equal(norm, ctx.scalar(0, x))
    return op.where(zero, ctx.scalar(0, x), op.divide(x, norm))


@converts("MeanVarianceNormalization")
def _mean_variance(ctx: Context, x: Tensor, *, axes: tuple[int, ...] = (0, 2, 3)) -> Tensor:
    where = ctx.axes(axes, x.ndim)
    centred = ctx.emit(op.subtract(x, op.mean(x, where, True)))
    spread = op.sqrt(op.mean(op.square(centred), where, True))
    return op.divide(centred, op.add(spread, ctx.scalar(1e-9, x)))
