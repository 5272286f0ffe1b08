"""Operators around products, of every dtype and of several axes, for ``operators``.

Two products in one function, a product of a matrix with itself, operands of bytes with and without
a sign, attention made of its parts; chains of elementwise steps whose operands are broadcast and
change their dtype; reductions over any axes; gathers, scatters and scans of any kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te, topi
from tilewright.testing.fuzz.operator_draws import OperatorDraw

_HALVES = ("float16", "bfloat16")
_INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
_ANY = (*_INTEGERS, "bool", *_HALVES, "float32", "float64", "float8_e4m3fn", "float8_e5m2")


def _product_with_itself(d: OperatorDraw) -> Any:
    """A matrix times its own transpose, alone or in batches."""
    dtype = d.rng.choice(["float32", *_HALVES, "int8"])
    rows, columns = d.rng.choice([d.size(), 16, 64, 72]), d.rng.choice([d.size(), 16, 64])
    batch = (d.size(3),) if d.rng.random() < 0.3 else ()
    a = d.input(*batch, rows, columns, dtype=dtype)
    first = d.rng.random() < 0.5
    return topi.matmul(a, a, first, not first, "int32" if dtype == "int8" else "float32")


def _two_products(d: OperatorDraw) -> Any:
    """Two products in one function: side by side, or one after the other."""
    dtype = d.rng.choice(["float32", "float32", *_HALVES])
    m, k, n = (d.rng.choice([d.size(17), 16, 40, 64]) for _ in range(3))
    x = d.input(m, k, dtype=dtype)
    if d.rng.random() < 0.5:
        gate, up = d.input(k, n, dtype=dtype), d.input(k, n, dtype=dtype)
        gated = topi.nn.relu(topi.matmul(x, gate, False, False, "float32"))
        return topi.multiply(gated, topi.matmul(x, up, False, False, "float32"))
    middle = topi.matmul(x, d.input(k, n, dtype=dtype), False, False, "float32")
    if d.rng.random() < 0.5:
        middle = topi.nn.relu(middle)
    return topi.matmul(topi.cast(middle, dtype), d.input(n, d.size(17), dtype=dtype), False, False,
                       "float32")  # fmt: skip


def _product_of_integers(d: OperatorDraw) -> Any:
    """Integers of one dtype or of two, added up in 32 or 64 bits."""
    total = d.rng.choice(["int32", "int32", "int64"])
    kinds = [d.rng.choice(_INTEGERS[:4]) for _ in range(2)]
    if d.rng.random() < 0.5:
        kinds = [d.rng.choice(["uint8", "int8"])] * 2
    m, n, k = (d.rng.choice([d.size(), 16, 32, 64]) for _ in range(3))
    a, b = d.input(m, k, dtype=kinds[0]), d.input(n, k, dtype=kinds[1])
    step = te.reduce_axis((0, k), "k")

    def dot(i: Any, j: Any) -> Any:
        return te.sum(a(i, step).astype(total) * b(j, step).astype(total), step)

    return te.compute((m, n), dot, name="product")


def _attention_of_parts(d: OperatorDraw) -> te.Tensor:
    """Scores, a softmax and a sum of values, as three operators in one function."""
    dtype = d.rng.choice(["float32", *_HALVES])
    batch, m, n, depth = d.size(3), d.size(17), d.size(17), d.rng.choice([8, 16, 5])
    q, k = d.input(batch, m, depth, dtype=dtype), d.input(batch, n, depth, dtype=dtype)
    v = d.input(batch, n, depth, dtype=dtype)
    scores = topi.matmul(q, k, False, True, "float32")
    if d.rng.random() < 0.4:
        scores = topi.add(scores, d.input(1, 1, n))
    shares = topi.cast(topi.nn.softmax(scores, -1), dtype)
    return topi.matmul(shares, v, False, False, "float32")


def _elementwise(d: OperatorDraw) -> Any:
    """Some steps on operands of any dtype, each broadcast along some axes."""
    rank = d.rng.choice([0, 1, 2, 3, 4])
    shape = [d.size(9) for _ in range(rank)]
    if rank:
        shape[-1] = d.size()
    dtype = d.rng.choice(_ANY)
    made = d.input(*shape, dtype=dtype)
    for _ in range(d.rng.choice([1, 2, 3])):
        kind = d.rng.randrange(5)
        wide = made if made.dtype in ("float32", "int32", "int64") else topi.cast(made, "float32")
        if kind == 0:
            made = topi.cast(wide, d.rng.choice(["float32", "int32", "int64", "float16"]))
        elif kind == 1:
            made = topi.clip(wide, -2, 3)
        elif kind == 2:
            made = topi.where(topi.greater(wide, topi.cast(1, wide.dtype)), wide, -wide)
        else:
            own = [1 if d.rng.random() < 0.4 else extent for extent in shape]
            other = topi.cast(d.input(*own[d.rng.randrange(rank + 1) :], dtype=d.rng.choice(_ANY)),
                              wide.dtype)  # fmt: skip
            made = d.rng.choice([topi.add, topi.multiply, topi.maximum])(wide, other)
    return made


def _reduction_of_any_axes(d: OperatorDraw) -> Any:
    """Sums, extrema and products over any axes, and what is left broadcast again."""
    rank = d.rng.choice([1, 2, 3, 4])
    shape = [d.size(9) for _ in range(rank)]
    shape[d.rng.randrange(rank)] = d.size()
    axes = [axis for axis in range(rank) if d.rng.random() < 0.5] or [rank - 1]
    dtype = d.rng.choice(["int64", "uint8", "int8", "float16", "bfloat16", "float32", "float64"])
    data = d.input(*shape, dtype=dtype)
    if d.rng.random() < 0.2:
        return topi.prod(topi.cast(data, "int32"), axes, d.rng.random() < 0.5)
    if d.rng.random() < 0.3:
        wide = topi.cast(data, "float32")
        return topi.subtract(wide, topi.sum(wide, axes, True))
    if dtype in _HALVES:
        data = topi.cast(data, "float32")
    return d.rng.choice([topi.sum, topi.max, topi.min])(data, axes, d.rng.random() < 0.5)


def _gather(d: OperatorDraw) -> te.Tensor:
    """Elements, rows or places that indices of 32 or 64 bits say."""
    dtype, places = d.rng.choice(_ANY), d.rng.choice(["int32", "int64"])
    rows, columns, count = d.size(9, 5), d.size(17, 5), d.size(12)
    data = d.input(rows, columns, dtype=dtype)
    kind = d.rng.randrange(3)
    if kind == 0:
        axis = d.rng.choice([0, 1])
        shape = (count, columns) if axis == 0 else (rows, count)
        return topi.gather(data, axis, d.input(*shape, dtype=places), "clip")
    if kind == 1:
        return topi.one_hot(d.input(rows, dtype=places), 1, 0, d.value(count), -1, "float32")
    return topi.take(data, d.input(count, d.size(5), dtype=places), d.rng.choice([0, 1]))


def _put(d: OperatorDraw) -> te.Tensor:
    """Rows added or written where indices say."""
    dtype = d.rng.choice(["float32", "int32", "int64"])
    rows, columns, count = d.size(9, 5), d.size(), d.size(12)
    data, values = d.input(rows, columns, dtype=dtype), d.input(count, columns, dtype=dtype)
    return topi.index_put(data, [d.input(count, dtype="int64")], values, d.rng.random() < 0.5)


def _running(d: OperatorDraw) -> Any:
    """Scans of any dtype along any of three axes."""
    shape = d.size(5), d.size(17), d.size(9)
    axis, kind = d.rng.choice([0, 1, 2, -1]), d.rng.randrange(4)
    if kind == 0:
        return topi.cumprod(d.input(*shape, dtype=d.rng.choice(["int32", "int64"])), axis)
    if kind == 1:
        return list(topi.cummax(d.input(*shape, dtype=d.rng.choice(["float32", "int8"])), axis))
    data = d.input(*shape, dtype=d.rng.choice(["float32", "float64", "int64", "uint8", "bool"]))
    return topi.cumsum(data, axis, "int64" if data.dtype == "bool" else None, kind == 2)


def _moved(d: OperatorDraw) -> te.Tensor:
    """Moves of elements of any dtype: rolled, repeated, padded, stacked, cut, in blocks."""
    dtype = d.rng.choice(_ANY)
    a, b = d.size(9, 2), d.size(17, 2)
    data = d.input(a, b, dtype=dtype)
    kind = d.rng.randrange(7)
    if kind == 0:
        return topi.roll(data, d.rng.choice([1, -2]), d.rng.choice([0, 1]))
    if kind == 1:
        return topi.repeat(data, d.rng.choice([2, 3]), d.rng.choice([0, 1]))
    if kind == 2:
        return topi.nn.pad(data, (0, d.rng.choice([0, 1])), (d.rng.choice([0, 3]), 2))
    if kind == 3:
        return topi.stack([data, d.input(a, b, dtype=dtype)], d.rng.choice([0, 1, 2]))
    if kind == 4:
        return topi.strided_slice(data, [0, 1], [2, 2], [1, 1])
    if kind == 5:
        return topi.tril(topi.cast(data, "float32"), d.rng.choice([-1, 0, 2]))
    image = d.input(d.size(3), 2 * d.lanes, d.size(5), d.size(5), dtype=dtype)
    return topi.layout_transform(image, "NCHW", d.rng.choice(["NHWC", f"NCHW{d.lanes}c"]))


def _conv_with_epilogue(d: OperatorDraw) -> Any:
    """Channels last in whole vectors, any batch; a bias, a residual and an activation follow."""
    dtype = d.rng.choice([*_HALVES, "float32", "int8"])
    total = "int32" if dtype == "int8" else "float32"
    ins, outs = d.rng.choice([4, 8, 16, 24, 64]), d.rng.choice([8, 16, 24, 64])
    taps, stride, around = d.rng.choice([1, 3]), d.rng.choice([1, 2]), d.rng.choice([0, 1])
    batch, side = d.size(3), d.rng.choice([4, 5, 8])
    layout = d.rng.choice(["HWIO", "OHWI"])
    shape = (taps, taps, ins, outs) if layout == "HWIO" else (outs, taps, taps, ins)
    data, weight = d.input(batch, side, side, ins, dtype=dtype), d.input(*shape, dtype=dtype)
    made = topi.nn.conv2d(data, weight, stride, around, 1, "NHWC", layout, total)
    if d.rng.random() < 0.5:
        made = topi.add(made, d.input(outs, dtype=total))
    if d.rng.random() < 0.3:
        made = topi.add(made, d.input(*made.shape, dtype=total))
    return topi.nn.relu(made) if d.rng.random() < 0.5 else made


def _norm_of_channels(d: OperatorDraw) -> Any:
    """Norms over images, alone or of each batch, in halves too."""
    dtype = d.rng.choice(["float32", "float16"])
    channels = d.size(9)
    data = d.input(d.size(5), channels, d.size(9), d.size(9), dtype=dtype)
    gamma, beta = d.input(channels, dtype=dtype), d.input(channels, dtype=dtype)
    if d.rng.random() < 0.5:
        return topi.nn.instance_norm(data, gamma, beta, 1, [2, 3])
    return topi.variance(topi.cast(data, "float32"), d.rng.choice([[0, 2, 3], [1], [2, 3]]))


MIXED: dict[str, tuple[Callable[[OperatorDraw], Any], bool]] = {
    "product with itself": (_product_with_itself, False),
    "two products": (_two_products, True),
    "product of integers": (_product_of_integers, False),
    "attention of its parts": (_attention_of_parts, True),
    "elementwise steps": (_elementwise, True),
    "reduction of any axes": (_reduction_of_any_axes, False),
    "gather": (_gather, False),
    "put": (_put, False),
    "running results": (_running, False),
    "moves": (_moved, False),
    "conv with epilogue": (_conv_with_epilogue, False),
    "norm of channels": (_norm_of_channels, True),
}
"""What makes an operator, and whether its results are rounded in an order that is free."""
