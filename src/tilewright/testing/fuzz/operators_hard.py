"""Operators of shapes, dtypes and reads that rules meet seldom, for ``operators``.

Convolutions of any layout, stride and dilation in half floats, products that tensor cores take,
several results of one function, operands that are read backwards, in steps or through a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te, topi
from tilewright.testing.fuzz.operator_draws import OperatorDraw

_HALVES = ("float16", "bfloat16")
_BYTES = ("float8_e4m3fn", "float8_e5m2")


def _conv_of_any_kind(d: OperatorDraw) -> te.Tensor:
    """One to three axes, groups, and each stride, dilation and padding by itself."""
    rank, groups = d.rng.choice([1, 2, 2, 3]), d.rng.choice([1, 1, 2, 3])
    layout = d.rng.choice([["NCW", "NWC"], ["NCHW", "NHWC"], ["NCDHW", "NDHWC"]][rank - 1])
    if rank == 3:
        layout = "NCDHW"
    dtype = d.rng.choice(["float32", *_HALVES, "int8"])
    channels, filters = groups * d.size(9), groups * d.size(9)
    taps = [d.rng.choice([1, 2, 3]) for _ in range(rank)]
    image = [d.size(9, 6) for _ in range(rank)]
    strides, dilation = ([d.rng.choice([1, 1, 2]) for _ in range(rank)] for _ in range(2))
    padding = [d.rng.choice([0, 1, 2]) for _ in range(2 * rank)]
    batch = d.size(3)
    own = channels // groups
    if layout.endswith("C"):
        data, shape = (batch, *image, channels), (*taps, own, filters)
    else:
        data, shape = (batch, channels, *image), (filters, own, *taps)
    x, weight = d.input(*data, dtype=dtype), d.input(*shape, dtype=dtype)
    total = "int32" if dtype == "int8" else "float32"
    if rank == 3:
        return topi.nn.conv3d(x, weight, strides, padding, dilation, groups, total)
    if rank == 1:
        return topi.nn.conv1d(x, weight, strides, padding, dilation, groups, layout, "", total)
    return topi.nn.conv2d(x, weight, strides, padding, dilation, layout, "", total, groups=groups)


def _conv_for_tensor_cores(d: OperatorDraw) -> te.Tensor:
    dtype, taps = d.rng.choice(_HALVES), d.rng.choice([1, 3])
    ins, outs, side = d.rng.choice([8, 16, 32]), d.rng.choice([8, 16, 40]), d.size(7, 2)
    args = d.rng.choice([1, 2]), d.rng.choice([0, 1]), d.rng.choice([1, 2])
    batch = d.size(2)
    if d.rng.random() < 0.5:
        x, w = (batch, side + 4, side + 4, ins), (taps, taps, ins, outs)
        layout = "NHWC"
    else:
        x, w = (batch, ins, side + 4, side + 4), (outs, ins, taps, taps)
        layout = "NCHW"
    data, weight = d.input(*x, dtype=dtype), d.input(*w, dtype=dtype)
    made = topi.nn.conv2d(data, weight, *args, layout, "", "float32")
    return topi.nn.relu(made) if d.rng.random() < 0.5 else made


def _product_for_tensor_cores(d: OperatorDraw) -> te.Tensor:
    """Sizes of whole vectors, and batches; scales, biases and residuals around the product."""
    dtype = d.rng.choice([*_HALVES, *_HALVES, "int8", *_BYTES])
    total = "int32" if dtype == "int8" else "float32"
    m, n = d.rng.choice([1, 16, 24, 64, 72]), d.rng.choice([16, 40, 64, 128])
    k = d.rng.choice([16, 32, 64, 128])
    if d.symbolic and d.rng.random() < 0.7:
        m = d.size(33)
    ta, tb = d.rng.random() < 0.3, d.rng.random() < 0.5
    batch = (d.size(3),) if d.rng.random() < 0.3 else ()
    a = d.input(*batch, *((k, m) if ta else (m, k)), dtype=dtype)
    b = d.input(*batch, *((n, k) if tb else (k, n)), dtype=dtype)
    made = topi.matmul(a, b, ta, tb, total)
    if d.rng.random() < 0.4:
        made = topi.add(made, d.input(n, dtype=total))
    if d.rng.random() < 0.3:
        made = topi.add(made, d.input(*batch, m, n, dtype=total))
    return topi.nn.relu(made) if d.rng.random() < 0.3 else made


def _decoded_product(d: OperatorDraw) -> te.Tensor:
    """Weights of bytes with a scale for each column, decoded where they are read."""
    m, n, k = d.rng.choice([1, 4, 24, 33]), d.rng.choice([16, 24, 64]), d.rng.choice([32, 64, 96])
    dtype = d.rng.choice(["float16", "float32"])
    x, w = d.input(m, k, dtype=dtype), d.input(n, k, dtype=d.rng.choice(["int8", "uint8"]))
    scale = d.input(n, dtype=dtype)
    decoded = te.compute((n, k), lambda i, j: w(i, j).astype(dtype) * scale(i), name="decoded")
    return topi.matmul(x, decoded, False, True, "float32")


def _attention_of_any_kind(d: OperatorDraw) -> te.Tensor:
    """Groups of heads, masks, layouts, depths that tensor cores take."""
    dtype, group, heads = d.rng.choice(["float32", *_HALVES]), d.rng.choice([1, 2, 4]), d.size(2)
    heads = d.value(heads)
    depth = d.rng.choice([16, 32, 5])
    m, n, batch = d.size(33), d.size(33), d.size(2)
    layout = d.rng.choice(["BHSD", "BSHD"])

    def operand(number: int, rows: Any) -> te.Tensor:
        shape = (batch, number, rows, depth) if layout == "BHSD" else (batch, rows, number, depth)
        return d.input(*shape, dtype=dtype)

    q, k, v = operand(heads * group, m), operand(heads, n), operand(heads, n)
    mask = None
    if d.rng.random() < 0.4:
        kind = d.rng.choice([(1, 1, m, n), (n,), (batch, 1, 1, n)])
        mask = d.input(*kind, dtype=d.rng.choice(["bool", dtype]))
    causal = d.rng.choice([None, "TopLeft", "BottomRight"])
    window = d.rng.choice([None, 1, 3, 8, 40]) if causal is not None else None
    return topi.nn.scaled_dot_product_attention(
        q, k, v, mask, causal_mask=causal, layout=layout, window_size=window
    )


def _several_results(d: OperatorDraw) -> list[te.Tensor]:
    """Sums and extrema of the same elements, or parts of one operand."""
    dtype = d.rng.choice(["float32", "int32"])
    if d.rng.random() < 0.4:
        return list(topi.split(d.input(d.size(9), 12, dtype=dtype), d.rng.choice([2, 3, 4]), 1))
    data, axis = d.input(d.size(17), d.size(), dtype=dtype), d.rng.choice([0, 1, None])
    squares = topi.sum(topi.multiply(data, data), axis)
    return [topi.sum(data, axis), squares, topi.max(data, axis)]


def _normalized(d: OperatorDraw) -> Any:
    """Several reductions one after the other, over rows, images or groups of channels."""
    rows, dtype = d.size(9), d.rng.choice(["float32", "float16"])
    if d.rng.random() < 0.4:
        channels = 2 * d.value(d.size(4))
        data = d.input(d.size(3), channels, d.size(9), d.size(9), dtype=dtype)
        gamma, beta = d.input(channels, dtype=dtype), d.input(channels, dtype=dtype)
        return topi.nn.group_norm(data, gamma, beta, 2, 1, [2, 3])
    data = d.input(rows, d.size(), d.size(5), dtype=dtype)
    if d.rng.random() < 0.5:
        return topi.nn.log_softmax(data, d.rng.choice([0, 1, -1]))
    total = topi.sum(topi.exp(data), -1, True)
    return topi.divide(topi.subtract(data, topi.max(data, -1, True)), total)


def _truths(d: OperatorDraw) -> te.Tensor:
    """Reductions and selections of truth values."""
    rows, columns = d.size(17), d.size()
    if d.rng.random() < 0.5:
        data = d.input(rows, columns, dtype="bool")
        return d.rng.choice([topi.all, topi.any])(data, d.rng.choice([0, 1, None]))
    a, b = d.input(rows, columns), d.input(columns)
    return topi.where(topi.less(a, b), a, topi.maximum(a, b))


def _bytes_of_floats(d: OperatorDraw) -> te.Tensor:
    """Floats of 8 bits: widened, added up along rows or columns, narrowed."""
    dtype = d.rng.choice(_BYTES)
    data = d.input(d.size(17), d.size(), dtype=dtype)
    wide = topi.cast(data, "float32")
    if d.rng.random() < 0.3:
        return topi.cast(topi.nn.relu(wide), dtype)
    return topi.sum(wide, d.rng.choice([0, 1]))


def _read_in_another_order(d: OperatorDraw) -> te.Tensor:
    """Turned, in steps, backwards, in pieces, and what then adds up."""
    a, b, c = d.size(9), d.size(17), d.size()
    dtype = d.rng.choice(["float32", "float16", "int8"])
    data = d.input(a, b, c, dtype=dtype)
    kind = d.rng.randrange(6)
    if kind == 0:
        made = topi.transpose(data, d.rng.choice([(2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2)]))
    elif kind == 1:
        made = topi.flip(data, d.rng.choice([0, 1, 2]))
    elif kind == 2:
        made = te.compute((a, b, (c + 1) // 2), lambda i, j, k: data(i, j, k * 2), name="every_2nd")
    elif kind == 3:
        made = topi.concatenate([data, d.input(a, b, d.size(9), dtype=dtype)], -1)
    elif kind == 4:
        made = topi.reshape(topi.transpose(data, (1, 0, 2)), (b, a * c))
        return made
    else:
        made = topi.tile(data, (1, 2, 1))
    if d.rng.random() < 0.4:
        made = topi.sum(topi.cast(made, "float32"), d.rng.choice([0, 1, 2]))
    return made


def _product_of_gathered_rows(d: OperatorDraw) -> te.Tensor:
    """A product whose rows are looked up, or lie backwards."""
    m, n, k = d.size(17), d.size(33), d.size(17)
    dtype = d.rng.choice(["float32", "float16"])
    table, w = d.input(9, k, dtype=dtype), d.input(k, n, dtype=dtype)
    if d.rng.random() < 0.5:
        rows = topi.take(table, d.input(m, dtype="int32"), 0, mode="wrap")
    else:
        rows = topi.flip(table, 1)
    return topi.matmul(rows, w, False, False, "float32")


HARD: dict[str, tuple[Callable[[OperatorDraw], Any], bool]] = {
    "conv of any kind": (_conv_of_any_kind, False),
    "conv for tensor cores": (_conv_for_tensor_cores, False),
    "product for tensor cores": (_product_for_tensor_cores, False),
    "product of decoded weights": (_decoded_product, True),
    "attention of any kind": (_attention_of_any_kind, True),
    "several results": (_several_results, False),
    "several reductions": (_normalized, True),
    "truth values": (_truths, False),
    "floats of 8 bits": (_bytes_of_floats, False),
    "another order": (_read_in_another_order, False),
    "product of gathered rows": (_product_of_gathered_rows, False),
}
"""What makes an operator, and whether its results are rounded in an order that is free."""
