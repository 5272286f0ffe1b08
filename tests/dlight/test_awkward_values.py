"""Every family of operators on awkward values and sizes, by rule, against NumPy in float64.

Values: random, denormal, huge, with NaN, with infinities. Sizes: odd ones, those of one element,
empty ones. What a result may differ by is a share of the largest one; NaN and infinities must
stand where the reference has them, and what overflows the dtype is infinite.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tests.attention_reference import attention
from tests.everyday import few
from tests.sort_reference import order
from tilewright import dlight, te, topi
from tilewright.ir import IRModule, as_int
from tilewright.runtime import numpy_dtype
from tilewright.target import Target

Shape = tuple[int, ...]
Array = np.ndarray
KINDS = ("random", "denormal", "huge", "nan", "inf", "-inf")
TOLERANCE = {"float32": 2e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}


@dataclass(frozen=True)
class Case:
    """An operator: lists of shapes of its operands (odd, single, empty …), and its meaning.

    Awkward values of some ``kinds`` go into operand number ``awkward``; ``huge`` is the magnitude
    of those, such that nothing overflows on the way (where it squares, say). ``tolerance`` is in
    units of that of the result's dtype.
    """

    build: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: tuple[tuple[Shape, ...], ...]
    dtypes: tuple[str, ...] = ("float32",)
    huge: float = 1e30
    tolerance: float = 1.0
    awkward: int = 0
    kinds: tuple[str, ...] = KINDS

    def dtype_of(self, number: int) -> str:
        return self.dtypes[min(number, len(self.dtypes) - 1)]


def draw(case: Case, number: int, shape: Shape, kind: str, rng: np.random.Generator) -> Array:
    """An operand's values."""
    dtype = numpy_dtype(case.dtype_of(number))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if dtype.itemsize > 1:
            return rng.integers(0, 5, shape, dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    made = rng.standard_normal(shape).astype(dtype)
    if kind == "random" or number != case.awkward or not made.size:
        return made
    if kind == "denormal":
        return (made.astype("float64") * float(ml_dtypes.finfo(dtype).tiny) / 8).astype(dtype)
    if kind == "huge":
        top = min(case.huge, float(ml_dtypes.finfo(dtype).max) / 64)
        return (made.astype("float64") * top).astype(dtype)
    for place in rng.choice(made.size, 1 + made.size // 300, replace=False):
        made.flat[place] = float(kind)
    return made


def check(found: Array, expected: Array, share: float) -> None:
    """Compare with what float64 gives."""
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
        return
    info = ml_dtypes.finfo(found.dtype)
    got = found.astype("float64")
    with np.errstate(all="ignore"):
        expected = np.where(np.abs(expected) > float(info.max), expected * np.inf, expected)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        endless = np.isinf(expected)
        np.testing.assert_array_equal(got[endless], expected[endless])
        regular = np.isfinite(expected)
        largest = np.abs(expected[regular]).max(initial=0.0)
        apart = np.abs(got[regular] - expected[regular])
    unit = float(info.smallest_subnormal)
    assert apart.max(initial=0.0) <= share * largest + 64 * unit


def conv(x: Array, w: Array, stride: int = 1, pad: int = 0, groups: int = 1) -> Array:
    """A convolution over any number of axes."""
    axes = tuple(range(2, x.ndim))
    x = np.pad(x, [(0, 0), (0, 0), *[(pad, pad)] * len(axes)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=axes)
    windows = windows[(slice(None), slice(None), *[slice(None, None, stride)] * len(axes))]
    parts = zip(np.split(windows, groups, 1), np.split(w, groups, 0))
    taps = range(2 + len(axes), 2 + 2 * len(axes))
    made = [np.tensordot(a, b, ((1, *taps), (1, *range(2, b.ndim)))) for a, b in parts]
    return np.moveaxis(np.concatenate(made, -1), -1, 1)


def conv_transpose(x: Array, w: Array, stride: int, pad: int) -> Array:
    """Each element of the input adds its multiple of the filter to the result.

    Where an infinity is among them, a tap beside the image adds nothing.
    """
    n, _, height, width = x.shape
    kernel = w.shape[2:]
    made = np.zeros(
        (n, w.shape[1], *((e - 1) * stride + k for e, k in zip((height, width), kernel)))
    )
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part = np.moveaxis(np.tensordot(x, w[:, :, i, j], ((1,), (0,))), -1, 1)
            rows, columns = (slice(s, s + e * stride, stride) for s, e in ((i, height), (j, width)))
            made[:, :, rows, columns] += part
    return made[:, :, pad : made.shape[2] - pad, pad : made.shape[3] - pad]


def softmax(x: Array) -> Array:
    if not x.size:
        return x
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Array, w: Array, b: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w + b


def rms_norm(x: Array, w: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w


@np.vectorize(otypes=[float])
def gelu(x: float) -> float:
    return x * (0.5 + 0.5 * math.erf(x / math.sqrt(2)))


def max_pool(x: Array) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max(
        (4, 5)
    )


def int4(x: Array, packed: Array, scale: Array) -> Array:
    wide = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1) - 8
    return x @ (wide * np.repeat(scale, 32, 1)).T


PRODUCTS = (
    ((37, 45), (45, 61)),
    ((1, 1), (1, 1)),
    ((1, 45), (45, 61)),
    ((37, 45), (45, 1)),
    ((0, 5), (5, 7)),
    ((3, 0), (0, 7)),
    ((3, 5), (5, 0)),
)
IMAGES = (
    ((1, 16, 14, 13), (24, 16, 3, 3)),
    ((1, 1, 1, 1), (1, 1, 3, 3)),
    ((0, 3, 5, 5), (4, 3, 3, 3)),
)
ROWS = (((33, 517),), ((1, 1),), ((5, 1),), ((0, 7),))
HEADS = (
    ((1, 3, 37, 16), (1, 3, 37, 16), (1, 3, 37, 16)),
    ((1, 1, 1, 1),) * 3,
    ((0, 2, 3, 16),) * 3,
)


def bias_relu(a: Any, b: Any, c: Any) -> Any:
    return topi.nn.relu(topi.add(topi.matmul(a, b), c))


def without(*names: str) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if kind not in names)


def product(a: Array, b: Array) -> Array:
    return a @ b


CASES: dict[str, Case] = {
    "gemm": Case(topi.matmul, product, PRODUCTS),
    "gemm float64": Case(topi.matmul, product, PRODUCTS[:2], ("float64",), huge=1e200),
    "gemm, the other operand": Case(topi.matmul, product, PRODUCTS[:4], awkward=1),
    "batch matmul": Case(
        lambda a, b: topi.nn.batch_matmul(a, b, transpose_b=True),
        lambda a, b: a @ b.swapaxes(1, 2),
        (
            ((3, 37, 20), (3, 29, 20)),
            ((1, 1, 1), (1, 1, 1)),
            ((0, 3, 4), (0, 5, 4)),
            ((2, 3, 0), (2, 5, 0)),
        ),
    ),
    "fused gemm": Case(
        bias_relu,
        lambda a, b, c: np.maximum(a @ b + c, 0),
        (((37, 45), (45, 61), (61,)), ((1, 1), (1, 1), (1,)), ((3, 0), (0, 7), (7,))),
    ),
    "int8": Case(
        lambda a, b: topi.matmul(a, b, out_dtype="int32"),
        product,
        PRODUCTS,
        ("uint8", "int8"),
        kinds=("random",),
    ),
    "int8, both signed": Case(
        lambda a, b: topi.matmul(a, b, out_dtype="int32"),
        product,
        PRODUCTS[:4],
        ("int8",),
        kinds=("random",),
    ),
    # Dot products of bf16 take denormals for zero, as the instruction does.
    "bf16": Case(topi.matmul, product, PRODUCTS, ("bfloat16",), kinds=without("denormal")),
    "fp16": Case(topi.matmul, product, PRODUCTS, ("float16",), huge=100.0),
    "int4": Case(
        topi.nn.dense_int4,
        int4,
        (((5, 96), (37, 48), (37, 3)), ((1, 32), (1, 16), (1, 1)), ((0, 32), (4, 16), (4, 1))),
        ("float32", "uint8", "float32"),
        tolerance=4.0,
        # As ``topi.nn.int4`` says: tiny activations lose bits, rows with infinite ones are NaN.
        kinds=without("denormal", "inf", "-inf"),
    ),
    "int8 conv": Case(
        lambda x, w: topi.nn.conv2d(x, w, padding=1, out_dtype="int32"),
        lambda x, w: conv(x, w, 1, 1),
        IMAGES,
        ("uint8", "int8"),
        kinds=("random",),
    ),
    "conv": Case(
        lambda x, w: topi.nn.conv2d(x, w, padding=1), lambda x, w: conv(x, w, 1, 1), IMAGES
    ),
    "strided conv": Case(
        lambda x, w: topi.nn.conv2d(x, w, strides=2, padding=1),
        lambda x, w: conv(x, w, 2, 1),
        IMAGES,
    ),
    "pointwise": Case(
        topi.nn.conv2d,
        conv,
        (
            ((1, 24, 13, 13), (40, 24, 1, 1)),
            ((1, 1, 1, 1), (1, 1, 1, 1)),
            ((0, 3, 2, 4), (5, 3, 1, 1)),
            ((1, 0, 3, 4), (5, 0, 1, 1)),
        ),
    ),
    "depthwise": Case(
        lambda x, w: topi.nn.depthwise_conv2d(x, w, padding=1),
        lambda x, w: conv(x, w, 1, 1, x.shape[1]),
        (
            ((1, 19, 15, 14), (19, 1, 3, 3)),
            ((1, 1, 1, 1), (1, 1, 3, 3)),
            ((0, 2, 5, 5), (2, 1, 3, 3)),
        ),
    ),
    "conv3d": Case(
        lambda x, w: topi.nn.conv3d(x, w, padding=1),
        lambda x, w: conv(x, w, 1, 1),
        (
            ((1, 4, 5, 7, 6), (8, 4, 3, 3, 3)),
            ((1, 1, 1, 1, 1), (1, 1, 3, 3, 3)),
            ((0, 2, 3, 3, 3), (4, 2, 3, 3, 3)),
        ),
    ),
    "conv2d_transpose": Case(
        lambda x, w: topi.nn.conv2d_transpose(x, w, strides=2, padding=1),
        lambda x, w: conv_transpose(x, w, 2, 1),
        (
            ((1, 12, 9, 7), (12, 17, 4, 4)),
            ((1, 1, 1, 1), (1, 1, 4, 4)),
            ((0, 3, 3, 3), (3, 2, 4, 4)),
        ),
    ),
    "fused conv": Case(
        lambda x, w, b: topi.nn.relu(
            topi.add(topi.nn.conv2d(x, w), topi.reshape(b, (b.shape[0], 1, 1)))
        ),
        lambda x, w, b: np.maximum(conv(x, w) + b[:, None, None], 0),
        (((1, 24, 13, 13), (40, 24, 1, 1), (40,)), ((1, 1, 1, 1), (1, 1, 1, 1), (1,))),
    ),
    "softmax": Case(topi.nn.softmax, softmax, ROWS, tolerance=2.0),
    "log_softmax": Case(
        topi.nn.log_softmax,
        lambda x: (
            x
            - x.max(-1, keepdims=True)
            - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
        ),
        ROWS,
        tolerance=2.0,
    ),
    "layer_norm": Case(
        topi.nn.layer_norm,
        layer_norm,
        (((33, 517), (517,), (517,)), ((1, 1),) + ((1,),) * 2, ((0, 7), (7,), (7,))),
        huge=1e16,
        tolerance=4.0,
    ),
    "rms_norm": Case(
        topi.nn.rms_norm,
        rms_norm,
        (((33, 517), (517,)), ((1, 1), (1,)), ((0, 7), (7,))),
        huge=1e16,
        tolerance=4.0,
    ),
    "gelu": Case(topi.nn.gelu, gelu, (((130, 131),), ((1, 1),), ((0, 5),))),
    "add": Case(
        topi.add, lambda a, b: a + b, (((130, 131), (130, 131)), ((1, 1), (1, 1)), ((0, 5), (0, 5)))
    ),
    "sum of columns": Case(
        lambda x: topi.sum(x, axis=0),
        lambda x: x.sum(0),
        (((131, 133),), ((1, 1),), ((0, 5),), ((5, 0),)),
    ),
    "sum of rows": Case(
        lambda x: topi.sum(x, axis=1),
        lambda x: x.sum(1),
        (((131, 133),), ((1, 1),), ((0, 5),), ((5, 0),)),
    ),
    "mean": Case(
        lambda x: topi.mean(x, axis=(2, 3)),
        lambda x: x.mean((2, 3)),
        (((2, 19, 7, 7),), ((1, 1, 1, 1),), ((0, 2, 3, 3),)),
    ),
    "max": Case(
        lambda x: topi.max(x, axis=1),
        lambda x: x.max(1),
        (((131, 133),), ((1, 1),), ((0, 5),)),
        huge=1e38,
    ),
    "argmax": Case(
        lambda x: topi.argmax(x, axis=1),
        lambda x: x.argmax(1),
        (((131, 133),), ((1, 1),), ((0, 5),)),
        huge=1e38,
    ),
    "transpose": Case(
        topi.transpose, lambda x: x.T, (((131, 133),), ((1, 1),), ((0, 5),)), huge=1e38
    ),
    "pooling": Case(
        lambda x: topi.nn.max_pool2d(x, 3, strides=2, padding=1),
        max_pool,
        (((1, 19, 31, 30),), ((1, 1, 1, 1),), ((0, 2, 5, 5),)),
        huge=1e38,
    ),
    "sort": Case(
        topi.sort,
        lambda x: np.sort(x, -1),
        (((33, 517),), ((1, 1),), ((0, 5),), ((5, 0),)),
        huge=1e38,
    ),
    "topk": Case(
        lambda x: topi.topk(x, 1, ret_type="indices"),
        lambda x: order(x, -1, False)[:, :1],
        (((33, 517),), ((1, 1),), ((0, 5),)),
        huge=1e38,
    ),
    "embedding": Case(
        lambda table, places: topi.take(table, places, 0),
        lambda table, places: np.take(table, places, 0),
        (((5, 133), (37, 4)), ((5, 1), (1, 1)), ((5, 7), (0, 4))),
        ("float32", "int64"),
        huge=1e38,
    ),
    "attention": Case(topi.nn.scaled_dot_product_attention, attention, HEADS, tolerance=4.0),
    "attention, values": Case(
        topi.nn.scaled_dot_product_attention, attention, HEADS, tolerance=4.0, awkward=2
    ),
    "attention bf16": Case(
        topi.nn.scaled_dot_product_attention, attention, HEADS[:1], ("bfloat16",), tolerance=2.0
    ),
}


def kernel_of(case: Case, shapes: Sequence[Shape], threads: int) -> tuple[Any, Any]:
    """The operator as its rule schedules it, and its result's buffer."""
    operands = [te.placeholder(s, case.dtype_of(n), f"x{n}") for n, s in enumerate(shapes)]
    func = te.create_prim_func([*operands, case.build(*operands)])
    target = Target("native").with_options(num_cores=threads)
    mod = dlight.default_schedule(target)(IRModule({"main": func}))
    return tilewright.compile(mod, target)["main"], func.buffers[-1]


@pytest.mark.parametrize("threads", [1, 2])
@few("name", CASES, every=3)
def test_results(name: str, threads: int) -> None:
    case = CASES[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for shapes in case.shapes if threads == 1 else case.shapes[:1]:
        kernel, out = kernel_of(case, shapes, threads)
        for kind in case.kinds:
            arrays = [draw(case, n, shape, kind, rng) for n, shape in enumerate(shapes)]
            found = np.full([as_int(extent) for extent in out.shape], 7, numpy_dtype(out.dtype))
            kernel(*arrays, found)
            wide = [a.astype("float64" if a.dtype.kind not in "iu" else "int64") for a in arrays]
            with np.errstate(all="ignore"):
                expected = np.asarray(case.reference(*wide))
            try:
                check(found, expected, TOLERANCE.get(out.dtype, 0) * case.tolerance)
            except AssertionError as error:
                raise AssertionError(f"{kind} values of shapes {shapes}: {error}") from None
