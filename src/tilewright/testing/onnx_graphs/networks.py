"""Products, convolutions, pools, norms and quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.testing.onnx_graphs.drawing import Drawing, Redraw, dtype_named
from tilewright.testing.onnx_graphs.operators import draws, is_finite

_EQUATIONS = (
    "ij,jk->ik", "ij,jk", "bij,bjk->bik", "ij->ji", "ii->i", "ii", "i,j->ij", "ij->", "ij,ij->i",
    "...ij,...jk->...ik", "bi,bi,bi->b", "...i->...", " i j , j -> i ", "ijk,ilm,njm->nkl",
)  # fmt: skip
WIDE = ("float32", "float32", "float64", "float16", "bfloat16")


@draws("MatMul")
def _matmul(d: Drawing, kind: str) -> object:
    a = d.value((*WIDE, "int32", "int64", "uint32"), 1, 4)
    shape = d.of(a).shape
    lead: list[int] = [1 if d.rng.random() < 0.3 else e for e in shape[:-2]]
    if d.rng.random() < 0.2:
        lead = lead[d.rng.randint(0, len(lead)) :]
    k, n = shape[-1], d.rng.choice((0, 1, 2, 3, 5))
    b_shape = (k,) if d.rng.random() < 0.2 else (*lead, k, n)
    return d.emit(kind, [a, d.fresh(b_shape, d.of(a).dtype.name, "tame")])


@draws("Gemm")
def _gemm(d: Drawing, kind: str) -> object:
    dtype = d.rng.choice((*WIDE, "int32", "int64")) if d.opset >= 9 else "float32"
    m, k, n = (d.rng.choice((0, 1, 2, 3, 5)) for _ in range(3))
    ta, tb = d.rng.choice((None, 0, 1)), d.rng.choice((None, 0, 1))
    a = d.fresh((k, m) if ta else (m, k), dtype, "tame")
    b = d.fresh((n, k) if tb else (k, n), dtype, "tame")
    c = None
    if d.opset < 11 or d.rng.random() < 0.7:
        c = d.fresh(d.rng.choice(((n,), (1, n), (m, 1), (), (1,), (m, n))), dtype, "tame")
    whole = dtype[0] == "i"
    alpha, beta = (
        d.rng.choice((None, 1.0, 2.0) if whole else (None, 0.5, 0.0, 2.0)) for _ in range(2)
    )
    return d.emit(kind, [a, b, c], alpha=alpha, beta=beta, transA=ta, transB=tb)


@draws("Einsum")
def _einsum(d: Drawing, kind: str) -> object:
    equation = d.rng.choice(_EQUATIONS)
    extents = {letter: d.rng.choice((1, 2, 3)) for letter in "ijklmnb"}
    dtype = d.rng.choice(("float32", "float64", "int32"))
    inputs = []
    for term in equation.replace(" ", "").split("->")[0].split(","):
        dots = term.startswith("...")
        shape = [extents[c] for c in term.replace(".", "")]
        inputs.append(d.fresh([2, *shape] if dots else shape, dtype, "tame"))
    return d.emit(kind, inputs, equation=equation)


def _window(
    d: Drawing, axes: int, extents: list[int], size: list[int], old: bool
) -> dict[str, Any]:
    strides = [d.rng.choice((1, 1, 2, 3)) for _ in range(axes)] if d.rng.random() < 0.6 else None
    reach = (
        [d.rng.choice((1, 1, 2)) for _ in range(axes)] if d.rng.random() < 0.3 and not old else None
    )
    auto = d.rng.choice((None, None, None, "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    pads = None
    if auto in (None, "NOTSET") and d.rng.random() < 0.6:
        pads = [d.rng.randint(0, s - 1) for s in (*size, *size)]
    for axis in range(axes):
        span = (size[axis] - 1) * (reach[axis] if reach else 1) + 1
        if span > extents[axis] + (pads[axis] + pads[axes + axis] if pads else 0):
            raise Redraw
    return {"strides": strides, "dilations": reach, "auto_pad": auto, "pads": pads}


@draws("Conv", "ConvTranspose", "ConvInteger")
def _conv(d: Drawing, kind: str) -> object:
    axes = d.rng.choice((1, 2, 2, 2, 3))
    group = d.rng.choice((1, 1, 2, 3))
    c, f = group * d.rng.choice((1, 2)), group * d.rng.choice((1, 2))
    extents = [d.rng.choice((1, 3, 5, 6)) for _ in range(axes)]
    size = [d.rng.choice((1, 2, 3)) for _ in range(axes)]
    attrs = _window(d, axes, extents, size, False)
    attrs["group"] = group if group > 1 or d.rng.random() < 0.3 else None
    attrs["kernel_shape"] = size if d.rng.random() < 0.5 else None
    n = d.rng.choice((1, 2))
    shape = (n, c, *extents)
    if kind == "ConvInteger":
        x = d.fresh(shape, d.rng.choice(("uint8", "int8")))
        w = d.fresh((f, c // group, *size), d.rng.choice(("uint8", "int8")))
        zx = d.fresh(d.rng.choice(((), (1,))), d.of(x).dtype.name) if d.rng.random() < 0.7 else None
        zw = (
            d.fresh(d.rng.choice(((), (1,), (f,))), d.of(w).dtype.name)
            if d.rng.random() < 0.6
            else None
        )
        return d.emit(kind, [x, w, zx, zw], **attrs)
    dtype = d.rng.choice(("float32", "float32", "float64", "float16"))
    x = d.fresh(shape, dtype, "tame")
    bias = d.fresh((f,), dtype) if d.rng.random() < 0.5 else None
    if kind == "Conv":
        return d.emit(kind, [x, d.fresh((f, c // group, *size), dtype, "tame"), bias], **attrs)
    if attrs["auto_pad"] in ("SAME_UPPER", "SAME_LOWER"):
        attrs["dilations"] = None
    stride = attrs["strides"] or [1] * axes
    if d.rng.random() < 0.3 and attrs["auto_pad"] in (None, "NOTSET"):
        attrs["output_padding"] = [d.rng.randint(0, s - 1) for s in stride]
    return d.emit(kind, [x, d.fresh((c, f // group, *size), dtype, "tame"), bias], **attrs)


@draws("MaxPool", "AveragePool", "LpPool")
def _pool(d: Drawing, kind: str) -> object:
    axes = d.rng.choice((1, 2, 2, 3))
    extents = [d.rng.choice((1, 3, 5, 6)) for _ in range(axes)]
    size = [d.rng.choice((1, 2, 3)) for _ in range(axes)]
    since = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[kind]
    attrs = _window(d, axes, extents, size, d.opset < since)
    if attrs["auto_pad"] in ("SAME_UPPER", "SAME_LOWER") and attrs["dilations"]:
        raise Redraw  # the reference forgets dilations
    if d.opset >= since:
        attrs["ceil_mode"] = d.rng.choice((None, 0, 1))
    results = 1
    if kind == "AveragePool":
        attrs["count_include_pad"] = d.rng.choice((None, 0, 1))
    if kind == "LpPool":
        attrs["p"] = d.rng.choice((None, 1, 2, 3))
    dtype = d.rng.choice(("float32", "float32", "float64", "float16"))
    if kind == "MaxPool" and attrs["pads"]:
        attrs["pads"] = attrs["pads"][:axes] * 2  # the reference confuses those before and after
    if kind == "MaxPool":
        if d.opset >= 12 and d.rng.random() < 0.3:
            dtype = d.rng.choice(("int8", "uint8"))
        if d.opset >= 8 and d.rng.random() < 0.3:
            results, attrs["storage_order"] = 2, d.rng.choice((None, 0, 1)) if axes == 2 else None
    x = d.fresh((d.rng.choice((1, 2)), d.rng.choice((1, 3)), *extents), dtype, "tame")
    return d.emit(kind, [x], results, kernel_shape=size, **attrs)


@draws("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global(d: Drawing, kind: str) -> object:
    x = d.value(WIDE, 4, 4, accept=lambda a: a.size > 0)
    return d.emit(kind, [x], p=d.rng.choice((None, 1, 2, 3)) if kind == "GlobalLpPool" else None)


@draws("BatchNormalization", "InstanceNormalization")
def _batch_norm(d: Drawing, kind: str) -> object:
    x = d.value(WIDE, 3 if kind[0] == "I" else 2, 4, accept=lambda a: a.size > 0)
    a = d.of(x)
    count = 2 if kind[0] == "I" else 3
    given = [d.fresh((a.shape[1],), a.dtype.name, "tame") for _ in range(count)]
    if kind[0] == "B":
        if 9 <= d.opset < 14:
            raise Redraw  # the reference trains
        given.append(d.fresh((a.shape[1],), a.dtype.name, "positive"))
    return d.emit(kind, [x, *given], epsilon=d.rng.choice((None, 1e-3)))


@draws("LayerNormalization", "RMSNormalization")
def _layer_norm(d: Drawing, kind: str) -> object:
    x = d.value(WIDE, 1, 4, accept=lambda a: a.size > 0)
    a = d.of(x)
    axis = d.axis(a.ndim)
    shape = a.shape[axis:]
    scale = d.fresh(shape, a.dtype.name, "tame")
    bias = d.fresh(shape, a.dtype.name) if kind[0] == "L" and d.rng.random() < 0.6 else None
    # The reference forgets that mean and deviation are float32.
    several = kind[0] == "L" and a.dtype.name == "float32" and d.rng.random() < 0.3
    results = 3 if several else 1
    return d.emit(kind, [x, scale, bias], results, axis=axis, epsilon=d.rng.choice((None, 1e-3)))


@draws("GroupNormalization")
def _group_norm(d: Drawing, kind: str) -> object:
    groups = d.rng.choice((1, 2, 3))
    c = groups * d.rng.choice((1, 2))
    x = d.fresh(
        (d.rng.choice((1, 2)), c, *d.shape(1, 2)), d.rng.choice(("float32", "float16")), "tame"
    )
    if not d.of(x).size:
        raise Redraw
    per = c if d.opset >= 21 else groups
    scale, bias = (d.fresh((per,), d.of(x).dtype.name, "tame") for _ in range(2))
    return d.emit(kind, [x, scale, bias], num_groups=groups)


@draws("LRN")
def _lrn(d: Drawing, kind: str) -> object:
    x = d.value(("float32", "float64"), 4, 4, accept=lambda a: a.size > 0)
    if d.of(x).shape[0] < d.of(x).shape[1]:
        raise Redraw  # the reference stops at the channel that is the number of images
    return d.emit(
        kind,
        [x],
        size=d.rng.choice((1, 2, 3, 5)),
        alpha=d.rng.choice((None, 0.5)),
        bias=d.rng.choice((None, 2.0)),
    )


@draws("QuantizeLinear", "DequantizeLinear")
def _quantize(d: Drawing, kind: str) -> object:
    shape = d.shape(1, 4)
    axis = d.axis(len(shape)) if d.opset >= 13 else None
    where = axis if axis is not None else 1
    quantised = ["int8", "uint8"]
    if d.opset >= 21:
        quantised += ["int16", "uint16", "int4", "uint4"]
    name = d.rng.choice(quantised)
    scale_shape, blocked = _scale_shape(d, shape, where)
    if scale_shape == (1,) and shape[where if where < len(shape) else 0] != 1:
        scale_shape = ()
    scale = d.fresh(scale_shape, "float32", "positive")
    narrow = name in ("int4", "uint4")
    zero = (
        _quantised(d, scale_shape, name)
        if narrow or name != "uint8" or d.rng.random() < 0.7
        else None
    )
    if zero is not None and d.rng.random() < 0.2 and d.opset >= 21:
        zero = d.emit("Reshape", [zero, d.ints(list(scale_shape))]) if scale_shape else zero
    attrs: dict[str, Any] = {"axis": axis, "block_size": blocked or None}
    if kind == "QuantizeLinear":
        x = d.fresh(shape, "float32", "tame")
        made = d.emit(kind, [x, scale, zero], **attrs)
        if narrow:
            made = d.emit("Cast", [made], to=3 if name[0] != "u" else 2)
        return made
    return d.emit(kind, [_quantised(d, shape, name), scale, zero], **attrs)


def _scale_shape(d: Drawing, shape: Sequence[int], where: int) -> tuple[tuple[int, ...], int]:
    """The shape of scales, for all, along an axis or of blocks, and the size of such a block."""
    inside = -len(shape) <= where < len(shape)
    if d.rng.random() < 0.5 or not inside or d.opset < 13:
        drawn: tuple[int, ...] = d.rng.choice(((), (), (1,))) if d.opset >= 13 else ()
        return drawn, 0
    if d.opset >= 21 and d.rng.random() < 0.4 and shape[where]:
        blocked = d.rng.choice((1, 2, 3))
        parts = list(shape)
        parts[where] = -(-shape[where] // blocked)
        if shape[where] % blocked:
            raise Redraw
        return tuple(parts), blocked
    return (shape[where],), 0


def _quantised(d: Drawing, shape: tuple[int, ...], name: str) -> str:
    """Draw numbers of a quantised type."""
    if name not in ("int4", "uint4"):
        return d.fresh(shape, name)
    low = 0 if name[0] == "u" else -8
    drawn = d.array(shape, "uint8", "index:16").astype(int) % 16 + low
    return d.leaf(drawn.astype(dtype_named(name)))


@draws("QdqProduct")
def _qdq_product(d: Drawing, kind: str) -> object:
    """A product of dequantised operands, of which the importer makes one of integers."""
    if d.opset < 13:
        raise Redraw
    dtype = d.rng.choice(("int8", "uint8"))
    conv = d.rng.random() < 0.5
    m, k, n = (d.rng.choice((1, 2, 3, 4)) for _ in range(3))
    a = d.fresh((2, k, 4, 4) if conv else d.rng.choice(((m, k), (2, m, k))), dtype)
    w_shape = (n, k, 2, 2) if conv else (k, n)
    w_dtype = d.rng.choice(("int8", "int8", "uint8"))
    gemm = not conv and d.of(a).ndim == 2 and d.rng.random() < 0.4
    turned = gemm and d.rng.random() < 0.5
    if turned:
        w_shape = w_shape[::-1]
    w = d.fresh(w_shape, w_dtype)
    parts = []
    for x in (a, w):
        axis = None
        shape: tuple[int, ...] = d.rng.choice(((), (), (1,)))
        if d.rng.random() < (0.6 if x is w else 0.15):
            axis = d.axis(d.of(x).ndim)
            shape = (d.of(x).shape[axis],)
        elif shape == (1,):
            axis = next((n for n, e in enumerate(d.of(x).shape) if e == 1), None)
            shape = () if axis is None else shape
        scale = d.fresh(shape, "float32", "positive")
        zero = d.fresh(shape, d.of(x).dtype.name, "tame") if d.rng.random() < 0.6 else None
        parts.append(d.emit("DequantizeLinear", [x, scale, zero], axis=axis))
    if conv:
        pads = [d.rng.choice((0, 1)) for _ in range(4)]
        return d.emit("Conv", parts, pads=pads)
    if gemm:
        return d.emit("Gemm", parts, transB=int(turned))
    return d.emit("MatMul", parts)


@draws("MatMulInteger", "DynamicQuantizeLinear", "QLinearMatMul")
def _integer(d: Drawing, kind: str) -> object:
    if kind == "DynamicQuantizeLinear":
        return d.emit(
            kind,
            [
                d.value(
                    ("float32",),
                    accept=lambda a: is_finite(a) and float(np.abs(a).max()) < 1e30,
                )
            ],
            3,
        )
    m, k, n = (d.rng.choice((1, 2, 3, 4)) for _ in range(3))
    lead = d.rng.choice(((), (2,)))
    a = d.fresh((*lead, m, k), d.rng.choice(("int8", "uint8")))
    b = d.fresh((*lead, k, n), d.rng.choice(("int8", "uint8")))
    if kind == "MatMulInteger":
        za = d.fresh((), d.of(a).dtype.name) if d.rng.random() < 0.6 else None
        zb = d.fresh(d.rng.choice(((), (n,))), d.of(b).dtype.name) if d.rng.random() < 0.6 else None
        return d.emit(kind, [a, b, za, zb])
    scales = [d.fresh((), "float32", "positive") for _ in range(3)]
    y = d.rng.choice(("int8", "uint8"))
    zeros = [d.fresh((), t) for t in (d.of(a).dtype.name, d.of(b).dtype.name, y)]
    return d.emit(kind, [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]])


@draws("Dropout")
def _dropout(d: Drawing, kind: str) -> object:
    return d.emit(kind, [d.value()], d.rng.choice((1, 2)))


@draws("Resize", "Upsample")
def _resize(d: Drawing, kind: str) -> object:
    shape = d.rng.choice(((1, 1, 3, 4), (2, 1, 4, 4), (1, 2, 5, 3)))
    x = d.fresh(shape, "float32", "tame")
    mode = d.rng.choice(("nearest", "linear", "cubic"))
    scales = np.asarray(
        [1.0, 1.0, *(d.rng.choice((1.0, 2.0, 0.5, 1.5, 0.6)) for _ in range(2))], "float32"
    )
    if kind == "Upsample":
        if d.opset != 9:
            raise Redraw
        scales = np.maximum(scales, 1)
        return d.emit(kind, [x, d.ints(scales, "float32")], mode="nearest")
    if d.opset < 11:
        return d.emit(kind, [x, d.ints(scales, "float32")], mode="nearest")
    coord = d.rng.choice((None, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    near = (
        d.rng.choice((None, "floor", "ceil", "round_prefer_ceil", "round_prefer_floor"))
        if mode == "nearest"
        else None
    )
    attrs: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": coord,
        "nearest_mode": near,
    }
    if mode == "cubic" and d.rng.random() < 0.4:
        attrs["cubic_coeff_a"] = -0.5
        attrs["exclude_outside"] = d.rng.choice((0, 1))
    roi = None if d.opset >= 13 else d.ints([], "float32")
    if d.rng.random() < 0.5:
        sizes = [*shape[:2], *(d.rng.randint(1, 8) for _ in range(2))]
        if d.opset >= 18 and d.rng.random() < 0.4:
            axes = d.rng.choice(([2, 3], [3, 2], [-1, -2], [3]))
            return d.emit(
                kind,
                [x, None, None, d.ints([sizes[a] for a in axes])],
                axes=axes,
                keep_aspect_ratio_policy=d.rng.choice(
                    (None, "stretch", "not_larger", "not_smaller")
                ),
                **attrs,
            )
        return d.emit(
            kind, [x, roi, None if d.opset >= 13 else d.ints([], "float32"), d.ints(sizes)], **attrs
        )
    return d.emit(kind, [x, roi, d.ints(scales, "float32")], **attrs)


@draws("GridSample")
def _grid_sample(d: Drawing, kind: str) -> object:
    x = d.fresh((1, 2, 4, 3), "float32", "tame")
    grid = d.leaf(d.array((1, 3, 2, 2), "float32", "unit") * np.float32(1.2))
    modes = ("linear", "nearest", "cubic") if d.opset >= 20 else ("bilinear", "nearest", "bicubic")
    return d.emit(
        kind,
        [x, grid],
        mode=d.rng.choice(modes),
        align_corners=d.rng.choice((None, 0, 1)),
        padding_mode=d.rng.choice((None, "zeros", "border", "reflection")),
    )


@draws("RNN", "GRU", "LSTM")
def _recurrent(d: Drawing, kind: str) -> object:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    direction = d.rng.choice((None, "forward", "reverse", "bidirectional"))
    dirs = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = (d.rng.choice((1, 2, 3)) for _ in range(4))
    x = d.fresh((steps, batch, size), "float32", "tame")
    w = d.fresh((dirs, gates * hidden, size), "float32", "tame")
    r = d.fresh((dirs, gates * hidden, hidden), "float32", "tame")
    b = d.fresh((dirs, 2 * gates * hidden), "float32", "tame") if d.rng.random() < 0.5 else None
    h = d.fresh((dirs, batch, hidden), "float32", "tame") if d.rng.random() < 0.5 else None
    extra: list[str | None] = []
    if kind == "LSTM" and h is not None:
        extra = [d.fresh((dirs, batch, hidden), "float32", "tame")]
        if d.rng.random() < 0.3:
            extra.append(d.fresh((dirs, 3 * hidden), "float32", "tame"))
    linear = d.rng.choice((None, 0, 1)) if kind == "GRU" else None
    return d.emit(
        kind,
        [x, w, r, b, None, h, *extra],
        3 if kind == "LSTM" else 2,
        hidden_size=hidden,
        direction=direction,
        linear_before_reset=linear,
    )


@draws("Attention")
def _attention(d: Drawing, kind: str) -> object:
    batch, heads, q_len, kv_len, size = (d.rng.choice((1, 2, 3)) for _ in range(5))
    kv = heads if d.rng.random() < 0.6 else 1
    q = d.fresh((batch, heads, q_len, size), "float32", "tame")
    k = d.fresh((batch, kv, kv_len, size), "float32", "tame")
    v = d.fresh((batch, kv, kv_len, d.rng.choice((size, 2))), "float32", "tame")
    mask = None
    if d.rng.random() < 0.4:
        shape = d.rng.choice(
            ((q_len, kv_len), (1, 1, q_len, kv_len), (batch, heads, q_len, kv_len))
        )
        mask = d.fresh(shape, "float32", "tame")
    return d.emit(
        kind,
        [q, k, v, mask],
        is_causal=d.rng.choice((None, 0, 1)),
        scale=d.rng.choice((None, 0.5)),
        softcap=d.rng.choice((None, 2.0)),
    )


@draws("RotaryEmbedding")
def _rotary(d: Drawing, kind: str) -> object:
    batch, heads, length = (d.rng.choice((1, 2, 3)) for _ in range(3))
    size = d.rng.choice((2, 4, 8))
    part = d.rng.choice((0, size // 2)) if size > 2 else 0
    x = d.fresh((batch, heads, length, size), "float32", "tame")
    caches = [d.fresh((6, (part or size) // 2), "float32", "tame") for _ in range(2)]
    ids = d.leaf(np.abs(d.array((batch, length), "int64", "index:6")) % 6)
    return d.emit(
        kind,
        [x, *caches, ids],
        interleaved=d.rng.choice((None, 0, 1)),
        rotary_embedding_dim=part or None,
    )


@draws("Hann")
def _hann(d: Drawing, kind: str) -> object:
    return d.emit(
        d.rng.choice(("HannWindow", "HammingWindow", "BlackmanWindow")),
        [d.ints(d.rng.randint(2, 9))],
        periodic=d.rng.choice((None, 0, 1)),
    )


@draws("DFT")
def _dft(d: Drawing, kind: str) -> object:
    x = d.fresh(
        (1, d.rng.choice((2, 4, 5)), d.rng.choice((3, 4)), d.rng.choice((1, 2))), "float32", "tame"
    )
    inverse, onesided = d.rng.choice((None, 0, 1)), None
    if d.of(x).shape[-1] == 1 and not inverse:
        onesided = d.rng.choice((None, 0, 1))
    axis = d.rng.choice((1, 2, -2))
    length = d.ints(d.rng.choice((2, 3, 6))) if d.rng.random() < 0.4 else None
    if d.opset < 20:
        return d.emit(kind, [x, length], axis=axis % 4, inverse=inverse, onesided=onesided)
    return d.emit(kind, [x, length, d.ints(axis)], inverse=inverse, onesided=onesided)
