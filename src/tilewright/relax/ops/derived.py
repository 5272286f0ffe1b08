"""Operators that are a few others: builders without an operator of their own."""

from __future__ import annotations

from typing import Any

from tilewright.ir import ExprLike, as_expr, as_int
from tilewright.relax.conditions import require
from tilewright.relax.expr import Constant, PrimValue, RelaxExpr
from tilewright.relax.ops.binary import add, equal, less, less_equal, minimum, multiply, subtract
from tilewright.relax.ops.common import element_count
from tilewright.relax.ops.create import arange
from tilewright.relax.ops.manipulate import (
    broadcast_to,
    gather_elements,
    reshape,
    strided_slice,
    take,
    where,
)
from tilewright.relax.ops.reduce import sum as total
from tilewright.relax.ops.scan import cumsum
from tilewright.relax.ops.unary import astype, cos
from tilewright.relax.registry import BUILDERS, builder
from tilewright.relax.struct_info import prove_equal
from tilewright.relax.values import const as as_constant
from tilewright.relax.values import shape_values
from tilewright.support.errors import VerifyError
from tilewright.topi.utils import normal_axis


def _rank(x: RelaxExpr, ndim: int, what: str) -> None:
    if x.ndim != ndim:
        raise VerifyError(f"{what} must have {ndim} dimensions, it has {x.ndim}")


def _along(length: ExprLike, axis: int, ndim: int, dtype: str = "int64") -> RelaxExpr:
    """0, 1, … along an axis."""
    made: RelaxExpr = arange(0, length, 1, dtype)
    return reshape(made, [-1 if number == axis else 1 for number in range(ndim)])


# ---- products and sums -----------------------------------------------------------------------


@builder("outer")
def outer(x1: RelaxExpr, x2: RelaxExpr) -> RelaxExpr:
    """Products of each element of ``x1 [m]`` and each of ``x2 [n]``: ``[m, n]``.

    Raises ``VerifyError`` if they aren't vectors.
    """
    _rank(x1, 1, "outer: x1")
    _rank(x2, 1, "outer: x2")
    return multiply(reshape(x1, (x1.shape[0], 1)), reshape(x2, (1, x2.shape[0])))


@builder("ewise_fma")
def ewise_fma(x1: RelaxExpr, x2: RelaxExpr, x3: RelaxExpr) -> RelaxExpr:
    """``x1 * x2 + x3``, element by element."""
    return add(multiply(x1, x2), x3)


@builder("collapse_sum_to")
def collapse_sum_to(data: RelaxExpr, shape: object) -> RelaxExpr:
    """Sum what broadcasting a tensor of ``shape`` to ``data``'s repeats: the opposite of it.

    Raises ``VerifyError`` if ``shape`` doesn't broadcast to ``data``'s.
    """
    wanted = shape_values(shape)
    more = data.ndim - len(wanted)
    if more < 0:
        raise VerifyError(f"collapse_sum_to: {list(wanted)} has more axes than {data!r}")
    axes = list(range(more))
    for axis, extent in enumerate(wanted):
        have = data.shape[more + axis]
        if prove_equal(have, extent):
            continue
        if as_int(extent) != 1:
            raise VerifyError(
                f"collapse_sum_to: {list(wanted)} does not broadcast to {list(data.shape)}"
            )
        axes.append(more + axis)
    if not axes:
        return data
    return reshape(total(data, tuple(axes)), wanted)


@builder("collapse_sum_like")
def collapse_sum_like(data: RelaxExpr, collapse_target: RelaxExpr) -> RelaxExpr:
    """``collapse_sum_to`` the shape of another tensor."""
    return collapse_sum_to(data, collapse_target.shape)


# ---- made from nothing -----------------------------------------------------------------------


@builder("eye")
def eye(
    n: ExprLike | PrimValue,
    m: ExprLike | PrimValue | None = None,
    k: ExprLike | PrimValue = 0,
    dtype: str = "float32",
) -> RelaxExpr:
    """Ones on the diagonal ``k`` places to the right of the main one, zeros elsewhere."""
    rows, columns, offset = _scalar(n), _scalar(n if m is None else m), _scalar(k)
    shifted = reshape(arange(offset, rows + offset, 1, "int64"), (-1, 1))
    return astype(equal(shifted, _along(columns, 1, 2)), dtype)


def _scalar(value: ExprLike | PrimValue) -> ExprLike:
    return value.value if isinstance(value, PrimValue) else value


@builder("eye_like")
def eye_like(x: RelaxExpr, k: ExprLike | PrimValue = 0, dtype: str | None = None) -> RelaxExpr:
    """``eye`` of a matrix's shape, and dtype without another.

    Raises ``VerifyError`` for what is no matrix.
    """
    _rank(x, 2, "eye_like: x")
    return eye(x.shape[0], x.shape[1], k, dtype or x.dtype)


@builder("hamming_window")
def hamming_window(
    window_size: ExprLike | PrimValue,
    periodic: bool | PrimValue = True,
    alpha: float | PrimValue = 0.54,
    beta: float | PrimValue = 0.46,
    dtype: str = "float32",
) -> RelaxExpr:
    """``alpha - beta * cos(2 π n / N)``; ``N`` is the size if ``periodic``, else one less."""
    size = _number(window_size)
    if not isinstance(size, int):
        raise VerifyError(f"hamming_window: the size must be a number, got {size!r}")
    if size == 1:
        return BUILDERS["ones"]((1,), dtype)  # type: ignore[no-any-return]
    step = 2 * 3.141592653589793 / (size if _number(periodic) else size - 1)
    angles = multiply(arange(0, size, 1, dtype), as_constant(step, dtype))
    waves = multiply(cos(angles), as_constant(float(_number(beta)), dtype))
    return subtract(as_constant(float(_number(alpha)), dtype), waves)


def _number(value: object) -> Any:
    found = value.value if isinstance(value, PrimValue) else value
    return getattr(found, "value", found)


@builder("size")
def size(expr: RelaxExpr) -> RelaxExpr:
    """Number of elements of a tensor, as an int64 tensor without axes."""
    count = element_count(expr.shape)
    if as_int(count) is not None:
        return as_constant(as_int(count), "int64")
    return BUILDERS["scalar_to_tensor"](PrimValue(count))  # type: ignore[no-any-return]


@builder("wrap_param")
def wrap_param(data: RelaxExpr, dtype: str = "float32") -> RelaxExpr:
    """A constant in another dtype, as a value of the graph."""
    return data if data.dtype == dtype else astype(data, dtype)


# ---- parts and orders ------------------------------------------------------------------------


@builder("dynamic_strided_slice")
def dynamic_strided_slice(
    x: RelaxExpr, begin: RelaxExpr, end: RelaxExpr, strides: RelaxExpr
) -> RelaxExpr:
    """Parts of all axes, by constants ``[ndim]`` of integers.

    Raises ``VerifyError`` for others: sizes that are computed from data don't leave a graph.
    """
    bounds: list[tuple[int, ...]] = []
    for name, value in (("begin", begin), ("end", end), ("strides", strides)):
        if not isinstance(value, Constant) or value.data.shape != (x.ndim,):
            raise VerifyError(
                f"dynamic_strided_slice: {name} must be a constant of {x.ndim} integers, "
                f"got {value!r}; use strided_slice with sizes, or take with indices from data"
            )
        bounds.append(tuple(map(int, value.data)))
    return strided_slice(x, tuple(range(x.ndim)), *bounds)


@builder("reverse_sequence")
def reverse_sequence(
    data: RelaxExpr, seq_lengths: RelaxExpr, seq_axis: int = 1, batch_axis: int = 0
) -> RelaxExpr:
    """Reverse the first ``seq_lengths[b]`` elements of ``seq_axis`` for each batch ``b``.

    Raises ``VerifyError`` unless there is one length for each.
    """
    ndim = data.ndim
    along, batch = normal_axis(seq_axis, ndim), normal_axis(batch_axis, ndim)
    _rank(seq_lengths, 1, "reverse_sequence: seq_lengths")
    if along == batch:
        raise VerifyError("reverse_sequence: seq_axis and batch_axis must differ")
    require(
        seq_lengths.shape[0] == data.shape[batch],
        "reverse_sequence: there are ", seq_lengths.shape[0], " lengths of ", data.shape[batch],
    )  # fmt: skip
    places = _along(data.shape[along], along, ndim)
    shape = [-1 if axis == batch else 1 for axis in range(ndim)]
    lengths = reshape(astype(seq_lengths, "int64"), shape)
    back = subtract(subtract(lengths, as_constant(1, "int64")), places)
    sources = where(less(places, lengths), back, places)
    return gather_elements(data, broadcast_to(sources, data.shape), along)


@builder("multinomial_from_uniform")
def multinomial_from_uniform(
    prob: RelaxExpr,
    uniform_sample: RelaxExpr,
    sample_indices: RelaxExpr | None = None,
    dtype: str = "int64",
) -> RelaxExpr:
    """Choose an index of a row of ``prob [n, k]`` for each ``uniform_sample [m, 1]``.

    It is the first whose sum of probabilities up to there is more than the sample, or the last.
    ``sample_indices [m, 1]`` says the row of each sample; else ``m`` is ``n``. Returns ``[m, 1]``.
    """
    _rank(prob, 2, "multinomial_from_uniform: prob")
    _rank(uniform_sample, 2, "multinomial_from_uniform: uniform_sample")
    sums = cumsum(prob, 1, "float32")
    if sample_indices is not None:
        sums = take(sums, reshape(sample_indices, (-1,)), 0)
    passed = less_equal(sums, astype(uniform_sample, "float32"))
    count = total(astype(passed, "int64"), (1,), True)
    return astype(minimum(count, size_value(prob.shape[1] - 1)), dtype)


def size_value(extent: ExprLike) -> RelaxExpr:
    """A size as an int64 tensor without axes."""
    number = extent if isinstance(extent, int) else as_int(extent)
    if number is not None:
        return as_constant(number, "int64")
    return BUILDERS["scalar_to_tensor"](PrimValue(as_expr(extent)))  # type: ignore[no-any-return]
