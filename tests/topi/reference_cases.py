"""Operators beside the functions of ``topi.testing`` that say what they compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.topi import image, nn, vision
from tilewright.topi import testing as ref

RNG = np.random.default_rng(11)
Case = tuple[Callable[..., Any], Callable[..., Any], list[np.ndarray]]


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def whole(low: int, high: int, *shape: int, dtype: str = "int32") -> np.ndarray:
    return RNG.integers(low, high, shape).astype(dtype)


def dilated(w: Any, dilation: int) -> Any:
    return ref.dilate_python(w, (1, 1, *[dilation] * (w.ndim - 2)))


CASES: dict[str, Case] = {}


def case(name: str, build: Any, reference: Any, *arrays: np.ndarray) -> None:
    CASES[name] = (build, reference, list(arrays))


X, W = f32(2, 4, 7, 6), f32(6, 4, 3, 2)
NHWC, HWIO = X.transpose(0, 2, 3, 1).copy(), W.transpose(2, 3, 1, 0).copy()

# --- convolutions ---

for p in [0, (1, 2), (1, 2, 0, 1), "SAME", "VALID"]:
    case(f"conv2d_nchw, padding {p}", lambda x, w, p=p: nn.conv2d_nchw(x, w, (2, 1), p, 1),
         lambda x, w, p=p: ref.conv2d_nchw_python(x, w, (2, 1), p), X, W)  # fmt: skip
case("conv2d_nchw, dilated", lambda x, w: nn.conv2d_nchw(x, w, 1, 1, 2),
     lambda x, w: ref.conv2d_nchw_python(x, dilated(w, 2), 1, 1), X, W)  # fmt: skip
case("group_conv2d_nchw", lambda x, w: nn.group_conv2d_nchw(x, w, 1, 1, 1, 2),
     lambda x, w: ref.conv2d_nchw_python(x, w, 1, 1, 2), X, f32(6, 2, 3, 3))  # fmt: skip
case("conv2d_nhwc", lambda x, w: nn.conv2d_nhwc(x, w, 2, "SAME", 1),
     lambda x, w: ref.conv2d_nhwc_python(x, w, 2, "SAME"), NHWC, HWIO)  # fmt: skip
case("group_conv2d_nhwc", lambda x, w: nn.group_conv2d_nhwc(x, w, 1, (1, 0), 1, 2),
     lambda x, w: ref.conv2d_nhwc_python(x, w, 1, (1, 0), 2), NHWC, f32(3, 2, 2, 6))  # fmt: skip
case("conv2d_hwcn", lambda x, w: nn.conv2d_hwcn(x, w, (1, 2), 1, 1),
     lambda x, w: ref.conv2d_hwcn_python(x, w, (1, 2), 1), f32(6, 5, 3, 2), f32(3, 3, 3, 4)
)  # fmt: skip
case("conv3d_ncdhw", lambda x, w: nn.conv3d_ncdhw(x, w, (2, 1, 1), (1, 0, 2), 1, 1),
     lambda x, w: ref.conv3d_ncdhw_python(x, w, (2, 1, 1), (1, 0, 2)),
     f32(1, 2, 4, 5, 3), f32(3, 2, 2, 3, 2))  # fmt: skip
case("conv3d_ndhwc in groups", lambda x, w: nn.conv3d_ndhwc(x, w, 1, "SAME", 1, 2),
     lambda x, w: ref.conv3d_ndhwc_python(x, w, 1, "SAME", 2),
     f32(1, 3, 4, 3, 2), f32(2, 3, 2, 1, 4))  # fmt: skip
case("conv1d", lambda x, w: nn.conv1d(x, w, 2, (1, 2), 2),
     lambda x, w: ref.conv1d_ncw_python(x, w, 2, (1, 2), 2), f32(2, 4, 9), f32(3, 4, 3)
)  # fmt: skip
case("group_conv1d_ncw", lambda x, w: nn.group_conv1d_ncw(x, w, 2, "SAME", 1, 2),
     lambda x, w: ref.group_conv1d_ncw_python(x, w, 2, "SAME", 1, 2), f32(2, 4, 9), f32(6, 2, 3)
)  # fmt: skip
for p in [1, (1, 0, 1, 2), "VALID"]:
    case(f"depthwise_conv2d_nchw, padding {p}",
         lambda x, w, p=p: nn.depthwise_conv2d_nchw(x, w, (2, 1), p, 1),
         lambda x, w, p=p: ref.depthwise_conv2d_python_nchw(x, w, (2, 1), p), X, f32(4, 2, 3, 2)
    )  # fmt: skip
case("depthwise_conv2d_nhwc", lambda x, w: nn.depthwise_conv2d_nhwc(x, w, 2, 1, 1),
     lambda x, w: ref.depthwise_conv2d_python_nhwc(x, w, 2, 1), NHWC, f32(3, 3, 4, 2)
)  # fmt: skip
case("depthwise_conv2d_NCHWc",
     lambda x, w: nn.depthwise_conv2d_NCHWc(x, w, 1, (1, 1), 1, "NCHW2c", "NCHW2c"),
     lambda x, w: ref.depthwise_conv2d_python_nchwc(x, w, 1, (1, 1)),
     f32(1, 2, 5, 4, 2), f32(2, 1, 3, 3, 1, 2))  # fmt: skip
case("conv1d_transpose_ncw", lambda x, w: nn.conv1d_transpose_ncw(x, w, 3, (1, 2), "float32", 2),
     lambda x, w: ref.conv1d_transpose_ncw_python(x, w, 3, (1, 2), 2), f32(2, 4, 5), f32(4, 3, 4)
)  # fmt: skip
case("group_conv1d_transpose_ncw",
     lambda x, w: nn.group_conv1d_transpose_ncw(x, w, (2,), 1, "float32", (1,), 2),
     lambda x, w: ref.group_conv1d_transpose_ncw_python(x, w, (2,), 1, (1,), 2),
     f32(2, 4, 5), f32(4, 3, 3))  # fmt: skip
for p in [2, (1, 0, 1, 2), "SAME"]:
    case(f"conv2d_transpose_nchw, padding {p}",
         lambda x, w, p=p: nn.conv2d_transpose_nchw(x, w, (2, 3), p, "float32", (1, 0)),
         lambda x, w, p=p: ref.conv2d_transpose_nchw_python(x, w, (2, 3), p, (1, 0)),
         f32(1, 4, 3, 4), f32(4, 3, 3, 2))  # fmt: skip
case("group_conv2d_transpose_nchw",
     lambda x, w: nn.group_conv2d_transpose_nchw(x, w, 2, 1, "float32", 1, 2),
     lambda x, w: ref.conv2d_transpose_nchw_python(x, w, 2, 1, 1, 2),
     f32(1, 4, 3, 4), f32(4, 3, 3, 3))  # fmt: skip
case("conv2d_transpose of NHWC",
     lambda x, w: topi.transpose(nn.conv2d_transpose_nchw(
         topi.transpose(x, [0, 3, 1, 2]), topi.transpose(w, [3, 2, 0, 1]), 2, 1, "float32", 0
     ), [0, 2, 3, 1]),
     lambda x, w: ref.conv2d_transpose_nhwc_python(x, w, "HWOI", 2, 1),
     f32(1, 3, 4, 2), f32(3, 3, 3, 2))  # fmt: skip
case("conv3d_transpose_ncdhw",
     lambda x, w: nn.conv3d_transpose_ncdhw(x, w, (2, 1, 2), 1, "float32", (1, 0, 1)),
     lambda x, w: ref.conv3d_transpose_ncdhw_python(x, w, (2, 1, 2), 1, (1, 0, 1)),
     f32(1, 2, 3, 2, 2), f32(2, 3, 3, 2, 3))  # fmt: skip
for g in (1, 2):
    case(f"deformable_conv2d_nchw, {g} groups",
         lambda x, o, w, g=g: nn.deformable_conv2d_nchw(x, o, w, 1, 1, 1, 2, g, "float32"),
         lambda x, o, w, g=g: ref.deformable_conv2d_nchw_python(x, o, w, 1, 1, 1, 2, g),
         f32(1, 2, 4, 3), 2 * f32(1, 36, 4, 3), f32(2, 2 // g, 3, 3))  # fmt: skip
case("deformable_conv2d_nhwc",
     lambda x, o, w: nn.deformable_conv2d_nhwc(x, o, w, 2, 0, 1, 1, 1, "float32"),
     lambda x, o, w: ref.deformable_conv2d_nhwc_python(x, o, w, 2, 0, 1, 1, 1),
     f32(1, 5, 5, 2), f32(1, 2, 2, 18), f32(3, 3, 2, 3))  # fmt: skip
for name, options in {
    "products": (1, 2, 1, 1, 2, True), "differences": (3, 2, 2, 2, 3, False),
}.items():  # fmt: skip
    case(f"correlation_nchw of {name}", lambda a, b, o=options: nn.correlation_nchw(a, b, *o),
         lambda a, b, o=options: ref.correlation_nchw_python(a, b, *o),
         f32(1, 2, 6, 5), f32(1, 2, 6, 5))  # fmt: skip

# --- pools ---

for layout, shape in {
    "NCHW": (1, 2, 7, 5), "NHWC": (1, 7, 5, 2), "NCDHW": (1, 2, 4, 3, 5), "NCW": (1, 2, 7),
}.items():  # fmt: skip
    for kind in ("max", "avg"):
        d = len(shape) - 2
        pool = {1: nn.pool1d, 2: nn.pool2d, 3: nn.pool3d}[d]
        for ceil, pads in ((False, True), (True, False)):
            case(f"pool of {layout}: {kind}, ceil {ceil}, counts padding {pads}",
                 lambda x, k=kind, y=layout, p=pool, d=d, c=ceil, i=pads: p(
                     x, [3] * d, [2] * d, [1] * d, [1] * d + [0] * d, k, c, y, i),
                 lambda x, k=kind, y=layout, d=d, c=ceil, i=pads: ref.poolnd_python(
                     x, [3] * d, [2] * d, [1] * d, [1] * d, [0] * d, k, i, c, layout=y),
                 f32(*shape))  # fmt: skip
        if d > 1:
            adapt = nn.adaptive_pool if d == 2 else nn.adaptive_pool3d
            case(f"adaptive_pool of {layout}: {kind}",
                 lambda x, k=kind, y=layout, a=adapt, d=d: a(x, (3,) * d, k, y),
                 lambda x, k=kind, y=layout, d=d: ref.adaptive_pool(x, (3,) * d, k, y),
                 f32(*shape))  # fmt: skip
for kind in ("max", "avg"):
    for counts in (True, False):
        case(f"pool_grad: {kind}, counts padding {counts}",
             lambda g, x, k=kind, c=counts: nn.pool_grad(
                 g, x, (3, 2), (2, 2), (1, 0, 0, 1), k, True, c),
             lambda g, x, k=kind, c=counts: ref.pool_grad_nchw(
                 x, g, (3, 2), (2, 2), (1, 0, 0, 1), k, True, c),
             f32(1, 2, 4, 3), f32(1, 2, 7, 5))  # fmt: skip

# --- normalizations ---

CHANNELS = [f32(4), f32(4), f32(4), abs(f32(4)) + 1]
for training in (False, True):
    for options in ((True, True), (False, True), (True, False)):
        case(f"batch_norm, training {training}, center and scale {options}",
             lambda *t, o=options, i=training: nn.batch_norm(*t, 1, 1e-3, *o, i, 0.3)[: 1 + 2 * i],
             lambda *t, o=options, i=training: ref.batch_norm(*t, 1, 1e-3, *o, i, 0.3)[: 1 + 2 * i],
             X, *CHANNELS)  # fmt: skip
case("group_norm", lambda x, g, b: nn.group_norm(x, g, b, 2, 1, [2, 3]),
     lambda x, g, b: ref.group_norm_python(x, g, b, 2, 1, [2, 3]), X, *CHANNELS[:2])  # fmt: skip
case("instance_norm", lambda x, g, b: nn.instance_norm(x, g, b, 1, [2, 3]),
     lambda x, g, b: ref.instance_norm_python(x, g, b, [2, 3]), X, *CHANNELS[:2])  # fmt: skip
case("layer_norm", lambda x, g, b: nn.layer_norm(x, g, b, [2, 3]),
     lambda x, g, b: ref.layer_norm_python(x, g, b, (2, 3)), X, f32(7, 6), f32(7, 6))  # fmt: skip
case("rms_norm", lambda x, w: nn.rms_norm(x, w, [-1]),
     lambda x, w: ref.rms_norm_python(x, w, -1), X, f32(6))  # fmt: skip
case("lrn", lambda x: nn.lrn(x, 5, 1, 0.1, 0.75, 2.0),
     lambda x: ref.lrn_python(x, 5, 1, 2.0, 0.1, 0.75), X)  # fmt: skip
case("softmax", partial(nn.softmax, axis=2), partial(ref.softmax_python, axis=2), X)
case("log_softmax", partial(nn.log_softmax, axis=1), ref.log_softmax_python, f32(3, 5))
case("l2_normalize",
     lambda x: topi.divide(x, topi.sqrt(topi.maximum(topi.sum(x * x, 1, True), 1e-3))),
     lambda x: ref.l2_normalize_python(x, 1e-3, 1), X)  # fmt: skip

# --- products, recurrent networks, losses ---

case("dense", lambda x, y, b: nn.relu(nn.dense(x, y, b)),
     lambda x, y, b: ref.dense(x, y, b, True, True), f32(3, 4), f32(5, 4), f32(5))  # fmt: skip
case("dense of int8", lambda x, y: nn.dense(x, y, None, "int32"),
     lambda x, y: ref.dense(x, y, None, out_dtype="int32"),
     whole(-128, 128, 3, 40, dtype="int8"), whole(-128, 128, 5, 40, dtype="int8"))  # fmt: skip
case("batch_matmul", nn.batch_matmul, ref.batch_matmul, f32(2, 3, 4), f32(2, 5, 4))
case("batch_matmul, transposed", lambda x, y: nn.batch_matmul(x, y, None, None, True, False),
     lambda x, y: ref.batch_matmul(x, y, None, True, False), f32(1, 4, 3), f32(2, 4, 5)
)  # fmt: skip
for causal in (None, "TopLeft", "BottomRight"):
    for keys in (3, 6):
        case(f"attention, {causal}, {keys} keys",
             lambda q, k, v, b, c=causal: nn.scaled_dot_product_attention(
                 q, k, v, b, scale=0.4, causal_mask=c, layout="BSHD"),
             lambda q, k, v, b, c=causal: ref.attention_python(q, k, v, b, 0.4, c or "none"),
             f32(1, 4, 2, 4), f32(1, keys, 2, 4), f32(1, keys, 2, 3), f32(1, 2, 4, keys)
        )  # fmt: skip
case("nll_loss", lambda p, t, w: nn.nll_loss(p, t, w, "mean", 1),
     lambda p, t, w: ref.nll_loss(p, t, w, "mean", 1), f32(2, 4, 5), whole(0, 4, 2, 5), f32(4)
)  # fmt: skip

LAYERS = {"Xs": f32(3, 2, 4), "Wi": f32(20, 4), "Wh": f32(20, 5)}
for name, more, options in (
    ("plain", {}, {}),
    ("projected", {"Wh": f32(20, 3), "proj": f32(3, 5)}, {}),
    ("with all, backwards", {
        "Bi": f32(20), "Bh": f32(20), "h_init": f32(2, 5), "c_init": f32(2, 5),
        "p_i": f32(2, 5), "p_f": f32(2, 5), "p_o": f32(2, 5),
     }, {"reverse": True, "weight_layout": "OIGF", "f_act": topi.tanh, "g_act": topi.sigmoid}),
):  # fmt: skip
    given = LAYERS | more
    acts = {key: getattr(value, "__name__", value) for key, value in options.items()}
    case(f"lstm, {name}",
         lambda *t, k=tuple(given), o=options: nn.lstm(**dict(zip(k, t)), **o),
         lambda *t, k=tuple(given), o=acts: ref.lstm_python(**dict(zip(k, t)), **o),
         *given.values())  # fmt: skip
case("conv2d_winograd_nchw", lambda x, w: nn.conv2d_winograd_nchw(x, w, 1, 1, 1, "float32"),
     lambda x, w: ref.conv2d_nchw_python(x, w, 1, 1), f32(1, 2, 5, 6), f32(3, 2, 3, 3)
)  # fmt: skip
case("conv2d_winograd_nhwc",
     lambda x, w: nn.conv2d_winograd_nhwc(x, w, (1, 1), 0, (1, 1), "float64"),
     lambda x, w: ref.conv2d_nhwc_python(x, w, 1, 0).astype("float64"),
     f32(1, 6, 5, 2), f32(3, 3, 2, 3))  # fmt: skip
case("conv2d_winograd_nchw, transformed",
     lambda x, w: nn.conv2d_winograd_nchw(
         x, nn.conv2d_winograd_weight_transform(w, 4), 1, 1, 1, "float32", pre_computed=True),
     lambda x, w: ref.conv2d_nchw_python(x, w, 1, 1), f32(1, 2, 4, 4), f32(3, 2, 3, 3)
)  # fmt: skip
for fast in (True, False):
    case(f"softmax_common, {fast}", lambda x, f=fast: nn.softmax_common(x, 1, f),
         lambda x: ref.softmax_python(x, 1), f32(3, 4))  # fmt: skip
case("batch_norm of TVM's defaults", lambda *t: nn.batch_norm(*t)[:1],
     lambda *t: ref.batch_norm(*t, 1, 1e-5, True, True, False, 0.1)[:1], X, *CHANNELS)  # fmt: skip

# --- indexing ---

case("gather", lambda x, i: topi.gather(x, 1, i), lambda x, i: ref.gather_python(x, 1, i),
     f32(3, 5), whole(0, 5, 3, 2))  # fmt: skip
case("gather_nd", topi.gather_nd, ref.gather_nd_python, f32(3, 4, 2), whole(0, 3, 2, 5))
for mode in ("end", "size"):
    case(f"strided_slice by {mode}",
         lambda x, m=mode: topi.strided_slice(x, [1, 0], [3, 4], [1, 2], [1, 2], m),
         lambda x, m=mode: ref.strided_slice_python(x, [1, 0], [3, 4], [1, 2], m, [1, 2]),
         f32(2, 5, 6))  # fmt: skip
case("strided_slice backwards", lambda x: topi.strided_slice(x, [4, 5], [0, -7], [-2, -1]),
     lambda x: ref.strided_slice_python(x, [4, 5], [0, -7], [-2, -1]), f32(5, 6))  # fmt: skip
case("strided_set", lambda x, v, b, e, s: topi.strided_set(x, v, b, e, s), ref.strided_set_python,
     f32(4, 5), f32(2, 2), *np.array([[1, 0], [3, 4], [1, 2]], "int32"))  # fmt: skip
case("slice_axis", lambda x: topi.strided_slice(x, [1], [-1], axes=[1]),
     lambda x: ref.slice_axis_python(x, 1, 1, -1), f32(2, 5))  # fmt: skip
for axis in (-1, 0, 1):
    case(f"one_hot, axis {axis}", lambda i, a=axis: topi.one_hot(i, 2.0, 0.5, 4, a, "float32"),
         lambda i, a=axis: ref.one_hot(i, 2.0, 0.5, 4, a, "float32"), whole(-1, 5, 2, 3)
    )  # fmt: skip
for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"):
    case(f"matrix_set_diag, {align}",
         lambda x, d, a=align: topi.matrix_set_diag(x, d, (-1, 1), a),
         lambda x, d, a=align: ref.matrix_set_diag(x, d, (-1, 1), a), f32(2, 4, 5), f32(2, 3, 4)
    )  # fmt: skip
case("matrix_set_diag, many",
     lambda x, d: topi.matrix_set_diag(x, d, (-3, 6)),
     lambda x, d: ref.matrix_set_diag(x, d, (-3, 6)), f32(2, 9, 40), f32(2, 10, 9))  # fmt: skip
case("matrix_set_diag, low",
     lambda x, d: topi.matrix_set_diag(x, d, -2),
     lambda x, d: ref.matrix_set_diag(x, d, -2), f32(9, 40), f32(7))  # fmt: skip
case("matrix_set_diag, one", lambda x, d: topi.matrix_set_diag(x, d, 2),
     lambda x, d: ref.matrix_set_diag(x, d, 2), f32(4, 5), f32(3))  # fmt: skip
for axis in (0, 1):
    case(f"sequence_mask, axis {axis}", lambda x, n, a=axis: topi.sequence_mask(x, n, -1.0, a),
         lambda x, n, a=axis: ref.sequence_mask(x, n, -1.0, a), f32(3, 3, 2),
         np.array([1, 0, 9], "int32"))  # fmt: skip
for right in (False, True):
    case(f"searchsorted, right {right}",
         lambda s, v, r=right: topi.searchsorted(s, v, r, "int32"),
         lambda s, v, r=right: ref.searchsorted_ref(s, v, r, "int32"),
         np.sort(whole(0, 6, 2, 9), 1), whole(-1, 7, 2, 5))  # fmt: skip

# --- space ---

case("dilate", lambda x: nn.dilate(x, (1, 1, 2, 3), 1.5),
     lambda x: ref.dilate_python(x, (1, 1, 2, 3), 1.5), X)  # fmt: skip
case("space_to_batch_nd", lambda x: nn.space_to_batch_nd(x, [2, 3], [0, 1], [0, 2], 7.0),
     lambda x: ref.space_to_batch_nd_python(x, [2, 3], [0, 1], [0, 2], 7.0), f32(1, 4, 6, 2)
)  # fmt: skip
case("batch_to_space_nd", lambda x: nn.batch_to_space_nd(x, [2, 3], [0, 1], [1, 0]),
     lambda x: ref.batch_to_space_nd_python(x, [2, 3], [0, 1], [1, 0]), f32(6, 2, 3, 2)
)  # fmt: skip
for mode in ("DCR", "CRD"):
    case(f"depth_to_space, {mode}", lambda x, m=mode: nn.depth_to_space(x, 2, "NCHW", m),
         lambda x, m=mode: ref.depth_to_space_python(x, 2, m), f32(1, 8, 2, 3))  # fmt: skip
case("space_to_depth", lambda x: nn.space_to_depth(x, 2),
     lambda x: ref.space_to_depth_python(x, 2), f32(1, 3, 4, 6))  # fmt: skip

# --- images ---

case("affine_grid", lambda x: image.affine_grid(x, (3, 4)),
     lambda x: ref.affine_grid_python(x, (3, 4)), f32(2, 2, 3))  # fmt: skip
for method in ("nearest", "bilinear", "bicubic"):
    for pads in ("zeros", "border", "reflection"):
        for corners in (True, False):
            case(f"grid_sample, {method}, {pads}, corners {corners}",
                 lambda x, g, o=(method, "NCHW", pads, corners): image.grid_sample(x, g, *o),
                 lambda x, g, o=(method, "NCHW", pads, corners): ref.grid_sample_python(x, g, *o),
                 f32(1, 2, 4, 5), f32(1, 2, 3, 4))  # fmt: skip
case("grid_sample of volumes", lambda x, g: image.grid_sample(x, g, "bilinear", "NCDHW"),
     lambda x, g: ref.grid_sample_python(x, g, "bilinear", "NCDHW"),
     f32(1, 2, 3, 4, 2), f32(1, 3, 2, 2, 3))  # fmt: skip
for mode in ("half_pixel", "align_corners", "asymmetric"):
    for method, roundings in {
        "nearest_neighbor": ("", "round", "floor", "ceil"), "linear": ("",), "cubic": ("",),
    }.items():  # fmt: skip
        for rounding in roundings:
            case(f"resize1d, {mode}, {method}, {rounding}",
                 lambda x, o=("NCW", method, mode, rounding): image.resize1d(
                     x, (0.0,) * 2, 8, *o, bicubic_alpha=-0.5),
                 lambda x, o=("NCW", method, mode, rounding): ref.resize1d_python(x, (1.6,), *o),
                 f32(1, 2, 5))  # fmt: skip
case("resize2d of NHWC",
     lambda x: image.resize2d(x, (0.0,) * 4, (3, 8), "NHWC", "linear", "half_pixel"),
     lambda x: ref.resize2d_python(x, (0.75, 1.6), "NHWC", "linear", "half_pixel"), f32(1, 4, 5, 2)
)  # fmt: skip
case("resize3d",
     lambda x: image.resize3d(x, (0.0,) * 6, (3, 4, 6), "NCDHW", "linear", "asymmetric"),
     lambda x: ref.resize3d_python(x, (1.5, 2, 2), "NCDHW", "linear", "asymmetric"),
     f32(1, 1, 2, 2, 3))  # fmt: skip
BOXES = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.85, 1.2], [0.9, 0.8, 0.15, 0.3]], "float32")
for method in ("bilinear", "nearest_neighbor"):
    for size in ((3, 4), (1, 1)):
        case(f"crop_and_resize, {method}, {size}",
             lambda x, b, i, m=method, s=size: image.crop_and_resize(x, b, i, s, "NHWC", m, 9.0),
             lambda x, b, i, m=method, s=size: ref.crop_and_resize_python(
                 x, b, i, s, "NHWC", m, 9.0),
             f32(2, 5, 6, 2), BOXES, np.array([0, 1, 1], "int32"))  # fmt: skip

# --- regions and boxes ---

REGIONS = np.array(
    [[0, 0, 0, 5, 5], [1, 2, 1, 6.5, 4.2], [1, 3, 3, 3, 3], [0, -2, -3, 9, 12]], "float32"
)
SMALL = f32(2, 1, 7, 6)
for kind, aligned in (("avg", False), ("max", True)):
    for samples in (2, -1):
        case(f"roi_align, {kind}, aligned {aligned}, {samples} samples",
             lambda x, r, k=kind, a=aligned, n=samples: vision.roi_align_nchw(
                 x, r, (2, 3), 0.75, k, n, a),
             lambda x, r, k=kind, a=aligned, n=samples: ref.roi_align_nchw_python(
                 x, r, (2, 3), 0.75, n, k, a), SMALL, REGIONS)  # fmt: skip
case("roi_align_nhwc", lambda x, r: vision.roi_align_nhwc(x, r, 2, 0.5, "avg", 2),
     lambda x, r: ref.roi_align_nhwc_python(x, r, 2, 0.5, 2), NHWC[..., :1].copy(), REGIONS
)  # fmt: skip
for size, scale in (((2, 3), 0.8), (2, 1.0), ((3, 3), 0.5)):
    case(f"roi_pool_nchw, {size}, {scale}",
         lambda x, r, s=size, k=scale: vision.roi_pool_nchw(x, r, s, k),
         lambda x, r, s=size, k=scale: ref.roi_pool_nchw_python(x, r, s, k), SMALL, REGIONS
    )  # fmt: skip


def boxes(images: int, count: int) -> np.ndarray:
    """Class, score, left, top, right, bottom."""
    corner, size = RNG.random((images, count, 2)) * 4, RNG.random((images, count, 2)) * 3 + 0.2
    kinds = RNG.integers(-1, 2, (images, count, 1))
    scores = RNG.permutation(images * count).reshape(images, count, 1) / (images * count)
    return np.concatenate([kinds, scores, corner, corner + size], 2).astype("float32")


for index in (0, -1):
    case(f"get_valid_counts, class {index}", lambda d, i=index: vision.get_valid_counts(d, 0.4, i),
         lambda d, i=index: ref.get_valid_counts_python(d, 0.4, i), boxes(2, 9))  # fmt: skip
for options in (
    {}, {"force_suppress": True}, {"top_k": 4}, {"max_output_size": 2}, {"iou_threshold": 0.1},
    {"id_index": -1}, {"return_indices": False},
    {"return_indices": False, "invalid_to_bottom": True, "force_suppress": True},
    {"return_indices": False, "soft_nms_sigma": 0.5, "force_suppress": True},
    {"soft_nms_sigma": 0.5, "score_threshold": 0.3},
):  # fmt: skip
    case(f"non_max_suppression, {options}",
         lambda d, n, i, o=options: vision.non_max_suppression(d, n, i, **o),
         lambda d, n, i, o=options: ref.non_max_suppression_python(d, n, i, **o),
         boxes(2, 11), np.array([11, 7], "int32"),
         np.tile(np.arange(11, dtype="int32"), (2, 1)))  # fmt: skip
