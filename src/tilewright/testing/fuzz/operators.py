"""Programs from ``topi`` that rules recognise, with random extents and small whole numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te, topi
from tilewright.ir import IRModule
from tilewright.support.errors import TilewrightError
from tilewright.testing.fuzz.operator_draws import HUGE, USUAL, OperatorDraw
from tilewright.testing.fuzz.operators_hard import HARD
from tilewright.testing.fuzz.operators_mixed import MIXED
from tilewright.testing.fuzz.programs import Program, Tensor
from tilewright.tir import PrimFunc

_NARROW = {"float16": 4e-3, "bfloat16": 3e-2}


@dataclass(frozen=True)
class Operator(Program):
    """A program that is a tensor function, as ``te`` makes it."""

    func: Any = None
    label: str = ""
    rounds: bool = False
    huge: bool = False

    @property
    def tolerance(self) -> float:
        """How much results may differ: sums of halves are rounded once, or as often as stages."""
        narrow = {tensor.dtype for tensor in self.params}.intersection(_NARROW)
        return max((_NARROW[dtype] for dtype in narrow), default=super().tolerance)

    @property
    def runs(self) -> bool:
        """Whether there is memory and time for it."""
        return not self.huge

    @property
    def exact(self) -> bool:
        """Whether results can be compared bit for bit."""
        return not self.rounds

    @property
    def forms(self) -> tuple[str, ...]:
        """What to count it as."""
        return (self.label,)

    def text(self) -> str:
        """Return the function in the dialect ``T``."""
        text: str = self.func.script()
        return text

    def build(self) -> PrimFunc:
        """Return the function."""
        made: PrimFunc = self.func
        return made

    def module(self) -> IRModule:
        """Return the function as a module."""
        return IRModule({"main": self.func})

    def sizes(self) -> list[dict[str, int]]:
        """Return values of the dimensions: those drawn, and larger ones."""
        larger = {name: extent + 1 for name, extent in self.dims.items()}
        return [dict(self.dims), larger] if self.dims else [{}]

    def is_valid(self) -> bool:
        """There is nothing to make simpler."""
        return True


def _matmul(d: OperatorDraw) -> te.Tensor:
    m, n, k = d.size(), d.size(), d.size()
    ta, tb = d.rng.random() < 0.5, d.rng.random() < 0.5
    dtype = d.rng.choice(["float32", "float16", "int8", "bfloat16", "float64"])
    a = d.input(*((k, m) if ta else (m, k)), dtype=dtype)
    b = d.input(*((n, k) if tb else (k, n)), dtype=dtype)
    made = topi.matmul(a, b, ta, tb, "int32" if dtype == "int8" else "float32")
    return topi.nn.relu(made) if d.rng.random() < 0.4 else made


def _tiles(d: OperatorDraw) -> te.Tensor:
    """A product of a few tiles and steps of Hopper's tensor cores."""
    m, n = (d.extent(d.rng.choice([8, 40, 64, 65, 72])) for _ in range(2))
    k = d.rng.choice([72, 72, 128, 136, 192])
    ta, tb = d.rng.random() < 0.3, d.rng.random() < 0.7
    dtype = d.rng.choice(["float16", "bfloat16", "int8"])
    a = d.input(*((k, m) if ta else (m, k)), dtype=dtype)
    b = d.input(*((n, k) if tb else (k, n)), dtype=dtype)
    made = topi.matmul(a, b, ta, tb, "int32" if dtype == "int8" else "float32")
    return topi.nn.relu(made) if d.rng.random() < 0.4 else made


def _conv2d(d: OperatorDraw) -> te.Tensor:
    groups = d.rng.choice([1, 1, 2])
    c, f = groups * d.size(8), groups * d.size(9)
    taps, pad = d.rng.choice([1, 3, 3]), d.rng.choice([0, 1, 1, 2])
    data = d.input(1, c, d.size(9, 4), d.size(12, 4))
    weight = d.input(f, c // groups, taps, taps)
    strides, dilation = d.rng.choice([1, 1, 2]), d.rng.choice([1, 1, 2])
    return topi.nn.conv2d(data, weight, strides, pad, dilation, groups=groups)


def _depthwise(d: OperatorDraw) -> te.Tensor:
    c = d.size(9)
    data, weight = d.input(1, c, d.size(12, 2), d.size(17, 2)), d.input(c, 1, 3, 3)
    return topi.nn.depthwise_conv2d(data, weight, d.rng.choice([1, 2]), d.rng.choice([0, 1]))


def _transposed(d: OperatorDraw) -> te.Tensor:
    c, f = d.size(5), d.size(5)
    data, weight = d.input(1, c, d.size(7), d.size(7)), d.input(c, f, 3, 3)
    return topi.nn.conv2d_transpose(data, weight, d.rng.choice([1, 2]), d.rng.choice([0, 1]))


def _pool(d: OperatorDraw) -> te.Tensor:
    data = d.input(1, d.size(9), d.size(12, 3), d.size(17, 3), dtype=d.dtype())
    return topi.nn.max_pool2d(
        data, d.rng.choice([2, 3]), d.rng.choice([1, 2]), d.rng.choice([0, 1])
    )


def _reduce(d: OperatorDraw) -> te.Tensor:
    function = d.rng.choice([topi.sum, topi.max, topi.min])
    axis = d.rng.choice([0, 1, 2, (0, 2), (1, 2), None])
    data = d.input(d.size(12), d.size(17), d.size(), dtype=d.rng.choice(["float32", "int32"]))
    return function(data, axis, d.rng.random() < 0.5)


def _arg_extremum(d: OperatorDraw) -> te.Tensor:
    function = d.rng.choice([topi.argmax, topi.argmin])
    data = d.input(d.size(12), d.size(), dtype=d.dtype())
    axis, dtype = d.rng.choice([0, 1, -1, None]), d.rng.choice(["int32", "int64"])
    return function(data, axis, False, d.rng.random() < 0.5, dtype=dtype)


def _scan(d: OperatorDraw) -> te.Tensor:
    data = d.input(d.size(12), d.size(), dtype=d.rng.choice(["float32", "int32", "int64"]))
    return topi.cumsum(data, d.rng.choice([0, 1, None]))


def _sort(d: OperatorDraw) -> te.Tensor:
    data = d.input(d.size(9), d.size(), dtype=d.dtype())
    axis, is_ascend = d.rng.choice([0, -1]), d.rng.random() < 0.5
    if d.rng.random() < 0.5:
        return topi.sort(data, axis=axis, is_ascend=is_ascend)
    return topi.argsort(data, axis=axis, is_ascend=is_ascend)


def _scatter(d: OperatorDraw) -> te.Tensor:
    dtype, rows, columns = d.rng.choice(["float32", "int32"]), d.size(12), d.size()
    data, count = d.input(rows, columns, dtype=dtype), d.size(12)
    mode = d.rng.choice(["update", "add", "max"])
    if d.rng.random() < 0.5:
        where, updates = d.input(1, count, dtype="int64"), d.input(count, columns, dtype=dtype)
        return topi.scatter_nd(data, where, updates, mode)
    shape, axis = ((count, columns), 0) if d.rng.random() < 0.5 else ((rows, count), 1)
    where, updates = d.input(*shape, dtype="int64"), d.input(*shape, dtype=dtype)
    return topi.scatter_elements(data, where, updates, axis, mode)


def _topk(d: OperatorDraw) -> object:
    data = d.input(d.size(9), 33, dtype=d.dtype())
    return topi.topk(data, d.size(9), -1, "both", d.rng.random() < 0.5)


def _softmax(d: OperatorDraw) -> te.Tensor:
    return topi.nn.softmax(d.input(d.size(), d.size()), d.rng.choice([0, -1]))


def _norm(d: OperatorDraw) -> te.Tensor:
    n = d.size()
    data, gamma, beta = d.input(d.size(), n), d.input(n), d.input(n)
    if d.rng.random() < 0.5:
        return topi.nn.rms_norm(data, gamma)
    return topi.nn.layer_norm(data, gamma, beta)


def _attention(d: OperatorDraw) -> te.Tensor:
    heads, head, m, n = d.size(3), d.size(16), d.size(17), d.size(17)
    q = d.input(1, heads, m, head)
    k, v = d.input(1, heads, n, head), d.input(1, heads, n, head)
    return topi.nn.scaled_dot_product_attention(q, k, v)


def _winograd(d: OperatorDraw) -> te.Tensor:
    tile, filters = d.rng.choice([2, 4]), d.lanes * d.rng.choice([1, 2])
    data = d.input(1, d.lanes, d.size(12, 3), d.size(12, 3))
    weight = d.input(tile + 2, tile + 2, d.lanes, filters)
    made = topi.nn.conv2d_winograd_without_weight_transform(
        data, weight, d.rng.choice([0, 1]), tile
    )
    return topi.nn.relu(made) if d.rng.random() < 0.4 else made


def _winograd_gradient(d: OperatorDraw) -> te.Tensor:
    height, width, padding = d.size(9, 2), d.size(9, 2), d.rng.choice([0, 1])
    channels, filters = d.lanes * d.rng.choice([1, 2]), d.lanes * d.rng.choice([1, 2])
    images = d.size(3)
    data = d.input(images, channels, height, width)
    grad = d.input(images, filters, height + 2 * padding - 2, width + 2 * padding - 2)
    return topi.nn.conv2d_weight_backward_winograd(grad, data, padding)


def _blocked_conv2d(d: OperatorDraw) -> te.Tensor:
    block, size = d.lanes, d.rng.choice([1, 3])
    ins, outs = d.rng.choice([1, 2]), d.rng.choice([1, 2])
    data = d.input(1, ins, d.size(9, 4), d.size(12, 4), block)
    weight = d.input(outs, ins, size, size, block, block)
    layouts = f"NCHW{block}c", f"OIHW{block}i{block}o", f"NCHW{block}c"
    strides, padding, dilation = d.rng.choice([1, 2]), d.rng.choice([0, 1]), d.rng.choice([1, 2])
    made = topi.nn.conv2d(
        data, weight, strides, padding, dilation, *layouts[:2], out_layout=layouts[2]
    )
    return topi.nn.relu(made) if d.rng.random() < 0.4 else made


def _blocked_window(d: OperatorDraw) -> te.Tensor:
    block, blocks = d.lanes, d.rng.choice([1, 2, 3])
    data = d.input(1, blocks, d.size(9, 4), d.size(17, 4), block)
    strides, padding = d.rng.choice([1, 2]), d.rng.choice([0, 1])
    layout = f"NCHW{block}c"
    if d.rng.random() < 0.5:
        return topi.nn.max_pool2d(data, d.rng.choice([2, 3]), strides, padding, layout=layout)
    weight = d.input(blocks, 1, 3, 3, block)
    layouts = layout, f"OIHW{block}o"
    return topi.nn.conv2d(data, weight, strides, padding, 1, *layouts, groups=blocks * block)


def _pointwise(d: OperatorDraw) -> te.Tensor:
    channels, filters = d.size(9), 8 * d.size(5)
    data = d.input(1, channels, d.size(9, 22), d.size(9, 24))
    made = topi.nn.conv2d(data, d.input(filters, channels, 1, 1))
    return topi.nn.relu(made) if d.rng.random() < 0.4 else made


def _place_in_rows(d: OperatorDraw) -> te.Tensor:
    function = d.rng.choice([topi.argmax, topi.argmin])
    data = d.input(d.size(3), d.size(33, 500), dtype=d.rng.choice(["float32", "int32", "int8"]))
    return function(data, -1, False, d.rng.random() < 0.5, dtype="int64")


def _resize(d: OperatorDraw) -> te.Tensor:
    data = d.input(1, d.size(3), d.size(9, 3), d.size(17, 8))
    size = (d.size(17, 3), d.size(33, 16))
    return topi.image.resize2d_by_tables(
        data, size, method=d.rng.choice(["nearest_neighbor", "linear"])
    )


def _int4(d: OperatorDraw) -> te.Tensor:
    inputs, outputs, group = 128, 16 * d.rng.choice([1, 2, 3]), d.rng.choice([32, 64, 128])
    data = d.input(d.size(5), inputs)
    packed = d.input(inputs // 8, outputs, dtype="uint32")
    scales = d.input(inputs // group, outputs)
    return topi.nn.dense_int4(data, packed, scales)


def _recurrence(d: OperatorDraw) -> object:
    cell = d.rng.choice(["lstm", "gru", "tanh", "relu"])
    steps, batch, hidden = d.size(5), d.size(5), d.size(17)
    wide = {"lstm": 4, "gru": 3}.get(cell, 1) * hidden
    x, weight, bias = d.input(steps, batch, wide), d.input(hidden, wide), d.input(wide)
    states = [d.input(batch, hidden) for _ in range(2 if cell == "lstm" else 1)]
    return topi.nn.recurrence(x, weight, bias, *states, cell=cell, reverse=d.rng.random() < 0.3)


def _einsum(d: OperatorDraw) -> te.Tensor:
    i, j, k, m = d.size(9), d.size(), d.size(17), d.size(9)
    shapes = {
        "ij,jk->ik": ((i, j), (j, k)),
        "ij,kj": ((i, j), (k, j)),
        "mij,mjk->imk": ((m, i, j), (m, j, k)),
        "ijk,kj->i": ((i, j, k), (k, j)),
        "ij,jk,km->im": ((i, j), (j, k), (k, m)),
        "...i,i->...": ((m, k, i), (i,)),
        "iij->j": ((i, i, j),),
        "ij,ik->ijk": ((i, j), (i, k)),
    }
    subscripts = d.rng.choice(sorted(shapes))
    return topi.einsum(subscripts, *(d.input(*shape) for shape in shapes[subscripts]))


def _transform(d: OperatorDraw) -> object:
    rows, length = d.size(9), d.rng.choice([1, 2, 7, 12, 66])
    return topi.dft(d.input(rows, length), d.input(rows, length), d.rng.random() < 0.5)


def _sequence(d: OperatorDraw) -> te.Tensor:
    batch, steps, width = d.size(9), d.size(), d.size(9)
    data, lengths = d.input(batch, steps, width), d.input(batch, dtype="int32")
    if d.rng.random() < 0.5:
        return topi.reverse_sequence(data, lengths)
    return topi.sequence_mask(data, lengths, -1, 1)


def _dynamic_slice(d: OperatorDraw) -> te.Tensor:
    rows, columns = d.size(9), d.size()
    data = d.input(rows, columns)
    begin, end, strides = (d.input(2, dtype="int64") for _ in range(3))
    if d.rng.random() < 0.5:
        shape = d.size(9), d.size(9)
        return topi.dynamic_strided_slice(data, begin, end, strides, shape)
    return topi.strided_set(data, d.input(d.size(5), d.size(9)), begin, end, strides)


def _diagonals(d: OperatorDraw) -> te.Tensor:
    rows, columns = d.size(9), d.size(12)
    data, low = d.input(rows, columns), d.rng.choice([-1, 0])
    high = low + d.rng.choice([0, 1])
    length = rows  # enough whatever sizes come with the call
    if isinstance(rows, int) and isinstance(columns, int):
        length = max(min(rows + min(high, 0), columns - max(low, 0)), 0)
    lengths = () if low == high else (high - low + 1,)
    align = d.rng.choice(["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"])
    diagonal = d.input(*lengths, length)
    return topi.matrix_set_diag(data, diagonal, (low, high), align)


def _sparse(d: OperatorDraw) -> te.Tensor:
    count, shape = d.size(12), (d.size(9), d.size(12))
    indices, values = d.input(count, 2, dtype="int32"), d.input(count)
    return topi.sparse_to_dense(indices, shape, values, 1)


def _exclusive_scan(d: OperatorDraw) -> te.Tensor:
    data, axis = d.input(d.size(12), d.size(), dtype="int32"), d.rng.choice([0, 1])
    if d.rng.random() < 0.5:
        return topi.cumsum(data, axis, exclusive=True)
    return topi.scanop(data, lambda a, b: a ^ b, 0, "folded", axis, None, d.rng.random() < 0.5)


def _look_up(d: OperatorDraw) -> te.Tensor:
    batch, rows, columns = d.size(5), d.size(9), d.size()
    data, mode = d.input(batch, rows, columns), d.rng.choice(["clip", "wrap", "nan"])
    if d.rng.random() < 0.5:
        return topi.take(data, d.input(batch, d.size(9), dtype="int64"), 1, 1, mode)
    return topi.take(data, d.input(d.size(9), dtype="int32"), d.rng.choice([0, -1]), mode=mode)


def _conv_by_layout(d: OperatorDraw) -> te.Tensor:
    size, ins, outs = d.rng.choice([1, 3]), d.size(9), d.size(17, 8)
    strides, padding = d.rng.choice([1, 2]), d.rng.choice([0, 1])
    if d.rng.random() < 0.4:
        data, weight = d.input(1, d.size(9, 4), d.size(9, 4), ins), d.input(size, size, ins, 1)
        return topi.nn.depthwise_conv2d_nhwc(data, weight, strides, padding, 1)
    data, weight = d.input(1, d.size(9, 4), d.size(9, 4), ins), d.input(size, size, ins, outs)
    return topi.nn.conv2d_nhwc(data, weight, strides, padding, 1)


def _pool_by_layout(d: OperatorDraw) -> te.Tensor:
    kind, layout = d.rng.choice(["max", "avg"]), d.rng.choice(["NCHW", "NHWC"])
    data = d.input(d.size(3), d.size(9, 4), d.size(9, 4), d.size(9, 4))
    stride, around = d.rng.choice([1, 2]), d.rng.choice([0, 1])
    ceil = d.rng.random() < 0.3
    return topi.nn.pool2d(data, 3, stride, 1, around, kind, ceil, layout)


def _padded_from_inside(d: OperatorDraw) -> te.Tensor:
    pad = d.rng.choice([topi.nn.reflect_pad, topi.nn.replicate_pad, topi.nn.circular_pad])
    return pad(d.input(d.size(5), d.size(17, 4)), (0, d.rng.choice([1, 2])), (0, 3))


def _sampled(d: OperatorDraw) -> te.Tensor:
    data, grid = d.input(1, d.size(3), 4, 5), d.input(1, 2, d.size(5), d.size(9))
    method = d.rng.choice(["bilinear", "bicubic"])
    padding = d.rng.choice(["zeros", "border"])
    return topi.image.grid_sample(data, grid, method, "NCHW", padding, d.rng.random() < 0.5)


OPERATORS: dict[str, tuple[Callable[[OperatorDraw], Any], bool]] = {
    "conv2d by layout": (_conv_by_layout, False),
    "pool by layout": (_pool_by_layout, True),
    "padding from inside": (_padded_from_inside, False),
    "grid sample": (_sampled, True),
    "matmul": (_matmul, False),
    "product of tiles": (_tiles, False),
    "conv2d": (_conv2d, False),
    "depthwise conv2d": (_depthwise, False),
    "transposed conv2d": (_transposed, False),
    "max pool": (_pool, False),
    "reduction": (_reduce, False),
    "place of extremum": (_arg_extremum, False),
    "scan": (_scan, False),
    "sort": (_sort, False),
    "top k": (_topk, False),
    "scatter": (_scatter, False),
    "softmax": (_softmax, True),
    "norm": (_norm, True),
    "attention": (_attention, True),
    "winograd": (_winograd, True),
    "winograd gradient": (_winograd_gradient, True),
    "blocked conv2d": (_blocked_conv2d, False),
    "blocked window": (_blocked_window, False),
    "pointwise conv2d": (_pointwise, False),
    "place in long rows": (_place_in_rows, False),
    "resize": (_resize, True),
    "4-bit product": (_int4, True),
    "recurrent layer": (_recurrence, True),
    "einsum": (_einsum, False),
    "fourier transform": (_transform, True),
    "sequences of lengths": (_sequence, False),
    "dynamic slice": (_dynamic_slice, False),
    "diagonals": (_diagonals, False),
    "sparse to dense": (_sparse, False),
    "exclusive scan": (_exclusive_scan, False),
    "look up": (_look_up, False),
    **HARD,
    **MIXED,
}
"""What makes an operator, and whether its results are rounded in an order that is free."""

LARGE = (
    "matmul", "conv2d", "depthwise conv2d", "max pool", "reduction", "place of extremum", "softmax",
    "norm", "einsum", "look up", "several results", "several reductions", "truth values",
    "floats of 8 bits", "another order", "product with itself", "two products",
    "elementwise steps", "reduction of any axes", "gather", "moves",
)  # fmt: skip
"""Operators whose definition is as long for any extents."""


def operator(
    rng: random.Random,
    seed: int | str,
    label: str = "",
    symbolic: bool = False,
    extents: str = USUAL,
) -> Operator:
    """Draw an operator and its extents, some of which come with the call if ``symbolic``.

    An operator that takes numbers only gets numbers all the same, and one that must have elements
    has some. ``HUGE`` extents are drawn for ``LARGE`` operators, and for no other.
    """
    label = label or rng.choice(sorted(LARGE if extents == HUGE else OPERATORS))
    make, rounds = OPERATORS[label]
    state = rng.getstate()
    for own_symbolic, own_extents in ((symbolic, extents), (False, extents), (False, USUAL)):
        rng.setstate(state)
        draw = OperatorDraw(rng, own_symbolic, own_extents)
        try:
            func = _function(draw, make)
        except (TypeError, ValueError, AttributeError, ArithmeticError, TilewrightError):
            if own_extents == USUAL and not draw.dims:
                raise
        else:
            break
    buffers = [func.buffer_map[var] for var in func.params]
    params = tuple(
        Tensor(buffer.name, tuple(str(extent) for extent in buffer.shape), buffer.dtype, 4)
        for buffer in buffers
    )
    dims = {var.name: draw.dims[var.name] for var in func.symbolic_vars()}
    return Operator(
        seed, dims, frozenset(dims), params, (), frozenset(),
        func=func, label=label, rounds=rounds, huge=own_extents == HUGE,
    )  # fmt: skip


def _function(draw: OperatorDraw, make: Callable[[OperatorDraw], Any]) -> PrimFunc:
    made = make(draw)
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    func = te.create_prim_func([*draw.inputs, *outputs])
    if set(func.sizes()) - set(func.symbolic_vars()):
        raise ValueError("a size is in formulas only: no call says how large it is")
    return func
