"""Operators that move elements, give tensors other shapes, or read and write by index."""

from __future__ import annotations

import math

import numpy as np

from tilewright.relax.frontend.onnx import require_onnx
from tilewright.testing.onnx_graphs.drawing import Drawing, Redraw
from tilewright.testing.onnx_graphs.operators import ALL, NUMBERS, draws, is_finite

# ---- moves ---------------------------------------------------------------------------------------


@draws("Reshape")
def _reshape(d: Drawing, kind: str) -> object:
    x = d.value(ALL)
    shape = list(d.of(x).shape)
    size = d.of(x).size
    how = d.rng.randrange(5)
    allow = None
    if how == 0:
        shape = [-1] if size else shape
    elif how == 1 and len(shape) > 1:
        shape = [math.prod(shape[:2]), *shape[2:]]
    elif how == 2 and len(shape) > 1:
        shape = [0] * (len(shape) - 1) + [-1] if size else [0] * len(shape)
    elif how == 3:
        shape = [1, *shape, 1]
    if 0 in d.of(x).shape and d.opset >= 14 and how != 2:
        allow = 1
    elif 0 in shape and how != 2:
        raise Redraw
    return d.emit(kind, [x, d.ints(shape)], allowzero=allow)


@draws("Flatten")
def _flatten(d: Drawing, kind: str) -> object:
    x = d.value(ALL)
    ndim = d.of(x).ndim
    low = -ndim if d.opset >= 11 else 0
    return d.emit(kind, [x], axis=d.rng.choice((None, d.rng.randint(low, ndim))) if ndim else 0)


@draws("Transpose")
def _transpose(d: Drawing, kind: str) -> object:
    x = d.value(ALL)
    perm = list(range(d.of(x).ndim))
    d.rng.shuffle(perm)
    return d.emit(kind, [x], perm=perm if perm and d.rng.random() < 0.7 else None)


def _with_axes(d: Drawing, kind: str, x: str, axes: list[int], ndim: int) -> object:
    """Emit with axes as the version of operators has them: negative ones, operands."""
    if d.opset >= 11:
        axes = [a - (ndim if d.rng.random() < 0.3 else 0) for a in axes]
    if d.opset < 13:
        return d.emit(kind, [x], axes=axes)
    return d.emit(kind, [x, d.ints(axes)])


@draws("Squeeze")
def _squeeze(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 4, accept=lambda a: 1 in a.shape)
    ndim = d.of(x).ndim
    ones = [n for n, e in enumerate(d.of(x).shape) if e == 1]
    # Without axes, those whose sizes are names stay.
    axes = d.rng.sample(ones, d.rng.randint(1, len(ones)))
    return _with_axes(d, kind, x, axes, ndim)


@draws("Unsqueeze")
def _unsqueeze(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 0, 3)
    count = d.rng.randint(1, 2)
    ndim = d.of(x).ndim + count
    axes = d.rng.sample(range(ndim), count)
    return _with_axes(d, kind, x, axes, ndim)


@draws("Concat")
def _concat(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 4)
    a = d.of(x)
    axis = d.axis(a.ndim)
    parts = [x]
    for _ in range(d.rng.randint(0, 3)):
        shape = list(a.shape)
        shape[axis] = d.rng.choice((0, 1, 2, 3))
        parts.append(x if d.rng.random() < 0.2 else d.fresh(shape, a.dtype.name))
    d.rng.shuffle(parts)
    return d.emit(kind, parts, axis=axis)


@draws("Split")
def _split(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 4, accept=lambda a: max(a.shape) > 1)
    axis = d.axis(d.of(x).ndim)
    extent = d.of(x).shape[axis]
    if extent < 1:
        raise Redraw
    how = d.rng.randrange(3)
    if how == 0:
        cut = d.rng.randint(0, extent)
        sizes = [cut, extent - cut]
        if d.opset < 13:
            return d.emit(kind, [x], 2, axis=axis, split=sizes)
        return d.emit(kind, [x, d.ints(sizes)], 2, axis=axis)
    count = d.rng.choice([n for n in range(1, extent + 1) if extent % n == 0])
    if d.opset >= 18:
        if how == 2:
            count = d.rng.randint(1, extent)
            size = -(-extent // count)
            if (count - 1) * size >= extent:
                raise Redraw
        return d.emit(kind, [x], count, axis=axis, num_outputs=count)
    return d.emit(kind, [x], count, axis=axis)


@draws("Slice")
def _slice(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 4)
    axes = d.axes(d.of(x).ndim, 1)
    starts: list[int] = []
    ends: list[int] = []
    steps: list[int] = []
    for axis in axes:
        extent = d.of(x).shape[axis]
        step = d.rng.choice((1, 1, 1, 2, -1, -2, 3)) if d.opset >= 10 else 1
        start, end = (d.rng.randint(-extent - 1, extent + 1) for _ in range(2))
        if d.rng.random() < 0.3:
            start = 0 if step > 0 else extent - 1
        if d.rng.random() < 0.3:
            end = 2**63 - 1 if step > 0 else -(2**63) + 1
        if step < 0 and start < -extent:
            start = -extent
        starts, ends, steps = [*starts, start], [*ends, end], [*steps, step]
    if d.opset < 10:
        return d.emit(kind, [x], axes=axes, starts=starts, ends=ends)
    dtype = "int64" if d.rng.random() < 0.8 or max(map(abs, ends)) > 2**30 else "int32"
    given: list[str | None] = [d.ints(v, dtype) for v in (starts, ends, axes, steps)]
    if set(steps) == {1} and d.rng.random() < 0.5:
        given.pop()
    if axes == list(range(len(axes))) and d.rng.random() < 0.5:
        given[2:3] = [None] if len(given) > 3 else []
    return d.emit(kind, [x, *given])


@draws("Expand")
def _expand(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 0, 3)
    shape = [d.rng.choice((0, 1, 2, 3)) if e == 1 else d.rng.choice((1, e)) for e in d.of(x).shape]
    shape = shape[d.rng.randint(0, len(shape)) :] if d.rng.random() < 0.3 else [2, *shape]
    return d.emit(kind, [x, d.ints(shape)])


@draws("Tile")
def _tile(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 3)
    return d.emit(kind, [x, d.ints([d.rng.choice((0, 1, 2, 3)) for _ in d.of(x).shape])])


@draws("Pad")
def _pad(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 4)
    a = d.of(x)
    mode = d.rng.choice((None, "constant", "edge", "reflect", "wrap"))
    if mode == "wrap" and d.opset < 19:
        mode = None
    axes = d.axes(a.ndim, 1) if d.opset >= 18 and d.rng.random() < 0.4 else None
    where = axes or list(range(a.ndim))
    least = -1 if mode in (None, "constant") and d.rng.random() < 0.3 else 0
    pads = []
    for _ in range(2):
        for axis in where:
            extent = a.shape[axis]
            most = {"reflect": extent - 1, "edge": 3 if extent else 0, "wrap": extent}.get(
                mode or "", 3
            )
            pads.append(d.rng.randint(max(least, -(extent // 2)), max(min(most, 3), 0)))
    value = d.rng.choice((None, 0, 2, 1.5)) if mode in (None, "constant") else None
    if d.opset < 11:
        return d.emit(
            kind, [x], pads=pads, mode=mode, value=None if value is None else float(value)
        )
    fill = None if value is None else d.leaf(np.asarray(value).astype(a.dtype))
    return d.emit(kind, [x, d.ints(pads), fill, None if axes is None else d.ints(axes)], mode=mode)


@draws("DepthToSpace", "SpaceToDepth")
def _blocks(d: Drawing, kind: str) -> object:
    b = d.rng.choice((1, 2, 3))
    n, c, h, w = (d.rng.choice((1, 2, 3)) for _ in range(4))
    deep = kind == "DepthToSpace"
    shape = (n, c * b * b, h, w) if deep else (n, c, h * b, w * b)
    x = d.fresh(shape, d.rng.choice(ALL))
    mode = d.rng.choice((None, "DCR", "CRD")) if deep and d.opset >= 11 else None
    return d.emit(kind, [x], blocksize=b, mode=mode)


@draws("Trilu")
def _trilu(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 2, 4)
    k = d.ints(d.rng.randint(-4, 4)) if d.rng.random() < 0.7 else None
    return d.emit(kind, [x, k], upper=d.rng.choice((None, 0, 1)))


@draws("ReverseSequence")
def _reverse_sequence(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 2, 4)
    time = d.rng.choice((0, 1))
    lengths = d.array((d.of(x).shape[1 - time],), "int64", f"index:{d.of(x).shape[time]}")
    lengths = np.abs(lengths) + 1 if d.of(x).shape[time] else lengths * 0
    if lengths.size and lengths.max() > d.of(x).shape[time]:
        raise Redraw
    return d.emit(kind, [x, d.leaf(lengths)], time_axis=time, batch_axis=1 - time)


@draws("CenterCropPad")
def _center_crop_pad(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 4)
    axes = d.axes(d.of(x).ndim, 1) if d.rng.random() < 0.5 else None
    count = len(axes) if axes is not None else d.of(x).ndim
    return d.emit(kind, [x, d.ints([d.rng.randint(0, 8) for _ in range(count)])], axes=axes)


@draws("Shape", "Size")
def _shape(d: Drawing, kind: str) -> object:
    x = d.value(ALL)
    if kind == "Shape" and d.opset >= 15:
        bounds = {k: d.rng.choice((None, *range(-4, 5))) for k in ("start", "end")}
        return d.emit(kind, [x], **bounds)
    return d.emit(kind, [x])


@draws("ConstantOfShape")
def _constant_of_shape(d: Drawing, kind: str) -> object:
    value = None
    if d.rng.random() < 0.7:
        value = require_onnx().numpy_helper.from_array(d.array((1,), d.rng.choice(ALL)))
    return d.emit(kind, [d.ints(list(d.shape()))], value=value)


@draws("Range")
def _range(d: Drawing, kind: str) -> object:
    dtype = d.rng.choice(("int64", "int32", "int16", "float32", "float64"))
    step = d.rng.choice((1, 2, -1, -3, 0.5, -0.25) if dtype[0] == "f" else (1, 2, -1, -3))
    bounds = (d.rng.randint(-5, 5), d.rng.randint(-5, 9), step)
    return d.emit(kind, [d.ints(b, dtype) for b in bounds])


@draws("EyeLike")
def _eye_like(d: Drawing, kind: str) -> object:
    return d.emit(kind, [d.value(NUMBERS, 2, 2)], k=d.rng.choice((None, 0, 1, -1, 5)))


# ---- by index ------------------------------------------------------------------------------------


@draws("Gather")
def _gather(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 3)
    axis = d.axis(d.of(x).ndim)
    extent = d.of(x).shape[axis]
    shape = d.shape(0, 2) if extent else (0,)
    return d.emit(
        kind, [x, d.fresh(shape, d.rng.choice(("int64", "int32")), f"index:{extent}")], axis=axis
    )


@draws("GatherElements")
def _gather_elements(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 3, accept=lambda a: a.size > 0)
    axis = d.axis(d.of(x).ndim)
    shape = [d.rng.randint(0 if d.rng.random() < 0.1 else 1, e) for e in d.of(x).shape]
    shape[axis] = d.rng.choice((1, 2, 5))
    index = d.fresh(shape, d.rng.choice(("int64", "int32")), f"index:{d.of(x).shape[axis]}")
    return d.emit(kind, [x, index], axis=axis)


@draws("GatherND")
def _gather_nd(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 4, accept=lambda a: a.size > 0)
    a = d.of(x)
    batch = d.rng.randint(0, min(1, a.ndim - 1)) if d.opset >= 12 else 0
    depth = d.rng.randint(1, a.ndim - batch)
    lead = (*a.shape[:batch], d.rng.choice((1, 2, 3)))
    columns = [d.array(lead, "int64", f"index:{a.shape[batch + k]}") for k in range(depth)]
    return d.emit(kind, [x, d.leaf(np.stack(columns, -1))], batch_dims=batch or None)


@draws("ScatterElements", "Scatter")
def _scatter_elements(d: Drawing, kind: str) -> object:
    x = d.value(NUMBERS, 1, 3, accept=lambda a: a.size > 0)
    a = d.of(x)
    axis = d.axis(a.ndim)
    reduction = d.rng.choice((None, "none", "add", "mul", "max", "min")) if d.opset >= 18 else None
    shape = [d.rng.randint(1, e) for e in a.shape]
    index = d.array(shape, "int64", f"index:{a.shape[axis]}")
    if reduction in (None, "none"):
        line = np.random.default_rng(d.rng.getrandbits(32)).permutation(a.shape[axis])[
            : shape[axis]
        ]
        view = [1] * a.ndim
        view[axis] = len(line)
        index = np.broadcast_to(line.reshape(view), shape).copy()
    return d.emit(
        kind, [x, d.leaf(index), d.fresh(shape, a.dtype.name)], axis=axis, reduction=reduction
    )


@draws("ScatterND")
def _scatter_nd(d: Drawing, kind: str) -> object:
    x = d.value(NUMBERS, 1, 3, accept=lambda a: a.size > 0)
    a = d.of(x)
    depth = d.rng.randint(1, a.ndim)
    count = min(math.prod(a.shape[:depth]), 3)
    places = np.random.default_rng(d.rng.getrandbits(32)).permutation(math.prod(a.shape[:depth]))[
        :count
    ]
    index = np.stack(np.unravel_index(places, a.shape[:depth]), -1).astype(np.int64)
    reduction = d.rng.choice((None, "add", "mul", "max", "min")) if d.opset >= 18 else None
    return d.emit(
        kind,
        [x, d.leaf(index), d.fresh((count, *a.shape[depth:]), a.dtype.name)],
        reduction=reduction,
    )


@draws("OneHot")
def _one_hot(d: Drawing, kind: str) -> object:
    depth = d.rng.choice((1, 2, 5))
    x = d.fresh(
        d.shape(0, 3), d.rng.choice(("int64", "int32", "uint8", "float32")), f"index:{depth}"
    )
    values = d.fresh((2,), d.rng.choice(ALL), "tame")
    return d.emit(kind, [x, d.ints(depth), values], axis=d.rng.choice((None, -1, 0)))


@draws("TopK")
def _topk(d: Drawing, kind: str) -> object:
    x = d.value(
        NUMBERS,
        1,
        3,
        accept=lambda a: is_finite(a) and np.unique(a.astype(float)).size == a.size,
    )
    axis = d.axis(d.of(x).ndim)
    k = d.rng.randint(0, d.of(x).shape[axis])
    if d.opset < 10:
        return d.emit(kind, [x], 2, axis=axis, k=max(k, 1))
    largest = d.rng.choice((None, 0, 1)) if d.opset >= 11 else None
    return d.emit(kind, [x, d.ints([k])], 2, axis=axis, largest=largest)


@draws("Compress")
def _compress(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 1, 3)
    axis = d.axis(d.of(x).ndim) if d.rng.random() < 0.7 else None
    extent = d.of(x).size if axis is None else d.of(x).shape[axis]
    condition = d.array((d.rng.randint(0, extent),), "bool")
    return d.emit(kind, [x, d.leaf(condition, constant=True)], axis=axis)


@draws("NonZero")
def _non_zero(d: Drawing, kind: str) -> object:
    return d.emit(kind, [d.leaf(d.array(d.shape(1, 3), d.rng.choice(ALL)), constant=True)])


@draws("TensorScatter")
def _tensor_scatter(d: Drawing, kind: str) -> object:
    x = d.value(ALL, 3, 4, accept=lambda a: a.size > 0)
    a = d.of(x)
    axis = d.rng.randint(1, a.ndim - 1)
    shape = list(a.shape)
    shape[axis] = d.rng.randint(1, a.shape[axis])
    mode = d.rng.choice((None, "linear", "circular"))
    most = a.shape[axis] if mode == "circular" else a.shape[axis] - shape[axis] + 1
    start = np.abs(d.array((a.shape[0],), "int64", f"index:{most}")) % most
    given = d.leaf(start) if d.rng.random() < 0.8 else None
    return d.emit(kind, [x, d.fresh(shape, a.dtype.name), given], mode=mode, axis=axis)


@draws("Unique")
def _unique(d: Drawing, kind: str) -> object:
    x = d.leaf(d.array(d.shape(1, 2), d.rng.choice(NUMBERS), "tame"), constant=True)
    axis = d.axis(d.of(x).ndim) if d.rng.random() < 0.5 else None
    return d.emit(
        kind,
        [x],
        d.rng.randint(1, 4),
        axis=axis,
        sorted=d.rng.choice((None, 0, 1)) if axis is None else 1,
    )


@draws("BitCast")
def _bit_cast(d: Drawing, kind: str) -> object:
    helper = require_onnx().helper
    x = d.value(NUMBERS)
    size = d.of(x).dtype.itemsize
    to = d.rng.choice(
        [
            n
            for n in (
                "float32",
                "int32",
                "uint32",
                "int64",
                "float64",
                "int16",
                "uint16",
                "float16",
                "int8",
                "uint8",
            )
            if np.dtype(n).itemsize == size
        ]
    )
    return d.emit(kind, [x], to=int(helper.np_dtype_to_tensor_dtype(np.dtype(to))))


@draws("Det")
def _det(d: Drawing, kind: str) -> object:
    n = d.rng.randint(1, 4)
    return d.emit(
        kind, [d.fresh((*d.shape(0, 1), n, n), d.rng.choice(("float32", "float64")), "tame")]
    )
