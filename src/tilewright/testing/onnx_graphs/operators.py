"""How nodes are drawn, operator by operator; ``emit`` refuses what ONNX does not allow."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilewright.relax.frontend.onnx import require_onnx
from tilewright.testing.onnx_graphs.drawing import (
    FLOATS,
    INTS,
    Array,
    Drawing,
    Redraw,
    dtype_named,
)

Draw = Callable[[Drawing], Any]
OPERATORS: dict[str, Draw] = {}
ALL = (*FLOATS, *INTS, "bool")
NUMBERS = (*FLOATS, *INTS)


def is_finite(array: Array) -> bool:
    """Whether there are elements, and none is infinite."""
    return array.size > 0 and bool(np.all(np.isfinite(array.astype(float))))


def _drawn(function: Callable[[Drawing, str], Any], name: str, d: Drawing) -> Any:
    return function(d, name)


def draws(*names: str) -> Callable[[Callable[[Drawing, str], Any]], Callable[..., Any]]:
    """Register what draws a node of an operator, by the operators' names."""

    def register(function: Callable[[Drawing, str], Any]) -> Callable[..., Any]:
        for name in names:
            OPERATORS[name] = partial(_drawn, function, name)
        return function

    return register


# ---- elementwise ---------------------------------------------------------------------------------


@draws(
    *(
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish Identity IsNaN "
        "Log Mish Neg Not Reciprocal Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan "
        "Tanh BitwiseNot"
    ).split()
)
def _unary(d: Drawing, kind: str) -> object:
    return d.emit(kind, [d.value(ALL)])


def _pair(d: Drawing, dtypes: Any) -> tuple[str, str]:
    """Two values that broadcast."""
    first = d.value(dtypes)
    a = d.of(first)

    def fits(b: Any) -> bool:
        if b.dtype != a.dtype:
            return False
        try:
            return math.prod(np.broadcast_shapes(a.shape, b.shape)) <= 2000
        except ValueError:
            return False

    second = d.pick(fits) if d.rng.random() < 0.5 else None
    if second is None:
        shape = [1 if d.rng.random() < 0.3 else extent for extent in a.shape]
        shape = shape[d.rng.randint(0, len(shape)) :]
        if d.rng.random() < 0.1 and len(shape) == a.ndim and a.ndim < 5:
            shape = [d.rng.choice((1, 2, 3)), *shape]
        second = d.fresh(shape, a.dtype.name)
    return (first, second) if d.rng.random() < 0.5 else (second, first)


@draws(
    *(
        "Add Sub Mul Div And Or Xor BitwiseAnd BitwiseOr BitwiseXor Equal Greater GreaterOrEqual "
        "Less LessOrEqual Max Min Sum Mean"
    ).split()
)
def _binary(d: Drawing, kind: str) -> object:
    pair = list(_pair(d, ALL))
    if kind in ("Max", "Min", "Sum", "Mean"):
        pair = pair[: d.rng.randint(1, 2)] + pair[: d.rng.randint(0, 1)]
    if kind == "Div" and d.of(pair[0]).dtype.kind in "iu" and not np.all(d.of(pair[1])):
        raise Redraw
    return d.emit(kind, pair)


@draws("Pow")
def _pow(d: Drawing, kind: str) -> object:
    a, b = _pair(d, ("float32", "float64", "int32", "int64", "float16"))
    if d.of(a).dtype.kind == "i":
        b = d.leaf(np.abs(d.of(b)) % 4)
    elif d.rng.random() < 0.5 and d.opset >= 12:
        b = d.fresh(d.of(b).shape, d.rng.choice(("int64", "int32", "float32", "float64")), "tame")
    return d.emit(kind, [a, b])


@draws("Mod")
def _mod(d: Drawing, kind: str) -> object:
    a, b = _pair(d, NUMBERS)
    if not np.all(d.of(b)) or not np.all(np.isfinite(d.of(b).astype(float))):
        raise Redraw
    fmod = 1 if d.of(a).dtype.kind not in "iu" else d.rng.choice((None, 0, 1))
    return d.emit(kind, [a, b], fmod=fmod)


@draws("BitShift")
def _bit_shift(d: Drawing, kind: str) -> object:
    a, b = _pair(d, ("uint8", "uint16", "uint32", "uint64"))
    b = d.leaf(d.of(b) % d.of(a).dtype.type(d.of(a).dtype.itemsize * 8))
    return d.emit(kind, [a, b], direction=d.rng.choice(("LEFT", "RIGHT")))


@draws("Clip")
def _clip(d: Drawing, kind: str) -> object:
    x = d.value(NUMBERS)
    dtype = d.of(x).dtype
    low, high = (d.rng.choice((None, -2, 0, 1, 3)) for _ in range(2))
    if d.opset < 11:
        given = {"min": low, "max": high}
        limits: dict[str, Any] = {k: float(v) for k, v in given.items() if v is not None}
        return d.emit(kind, [x], **limits)
    if dtype.kind == "u":
        low, high = (None if v is None else abs(v) for v in (low, high))
    bounds = [None if v is None else d.leaf(np.asarray(v).astype(dtype)) for v in (low, high)]
    return d.emit(kind, [x, *bounds])


@draws("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "Selu", "HardSigmoid", "Shrink", "Swish")
def _activation(d: Drawing, kind: str) -> object:
    alpha = None if d.rng.random() < 0.4 else d.rng.choice((0.5, 0.01, 1.5, -0.5))
    attrs: dict[str, Any] = {} if alpha is None else {"alpha": alpha}
    if kind == "Shrink":
        attrs = {"lambd": abs(alpha or 0.5), "bias": d.rng.choice((0.0, 0.5))}
    if kind == "Selu" and alpha:
        attrs["gamma"] = 1.25
    if kind == "Celu" and alpha:
        attrs["alpha"] = abs(alpha)
    return d.emit(
        kind,
        [d.value((*FLOATS, "int32", "int8", "uint8") if kind == "Shrink" else FLOATS)],
        **attrs,
    )


@draws("PRelu")
def _prelu(d: Drawing, kind: str) -> object:
    x = d.value((*FLOATS, "int32", "int64", "uint32"))
    shape = [1 if d.rng.random() < 0.4 else e for e in d.of(x).shape]
    return d.emit(kind, [x, d.fresh(shape[d.rng.randint(0, len(shape)) :], d.of(x).dtype.name)])


@draws("Gelu")
def _gelu(d: Drawing, kind: str) -> object:
    return d.emit(kind, [d.value()], approximate=d.rng.choice((None, "none", "tanh")))


@draws("Softmax", "LogSoftmax", "Hardmax")
def _softmax(d: Drawing, kind: str) -> object:
    x = d.value(FLOATS, 1, 4, accept=is_finite)
    axis = None if d.rng.random() < 0.3 and d.of(x).ndim > 1 else d.axis(d.of(x).ndim)
    if d.opset < 13:
        axis = -1 if d.opset >= 11 else d.of(x).ndim - 1  # the reference knows no others
    return d.emit(kind, [x], axis=axis)


@draws("IsInf")
def _is_inf(d: Drawing, kind: str) -> object:
    flags: dict[str, Any] = {
        k: d.rng.choice((None, 0, 1)) for k in ("detect_negative", "detect_positive")
    }
    return d.emit(kind, [d.value()], **flags)


@draws("Where")
def _where(d: Drawing, kind: str) -> object:
    a, b = _pair(d, ALL)
    shape = list(np.broadcast_shapes(d.of(a).shape, d.of(b).shape))
    shape = [1 if d.rng.random() < 0.3 else e for e in shape][d.rng.randint(0, len(shape)) :]
    return d.emit(kind, [d.fresh(shape, "bool"), a, b])


@draws("Cast", "CastLike")
def _cast(d: Drawing, kind: str) -> object:
    helper = require_onnx().helper
    x = d.value(ALL)
    narrow = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int4", "uint4")
    to = d.rng.choice(ALL if d.opset < 19 or d.rng.random() < 0.7 else narrow)
    source, kind_to = d.of(x), dtype_named(to)
    whole = kind_to.kind in "iu" or to in ("int4", "uint4")
    if source.dtype.kind not in "iub" and whole:
        limits = {"int4": (-8, 7), "uint4": (0, 15)}.get(to) or (
            np.iinfo(kind_to).min,
            np.iinfo(kind_to).max,
        )
        wide = source.astype(float)
        if not np.all((wide >= limits[0]) & (wide <= limits[1])):
            raise Redraw  # undefined
    if to in narrow and not np.all(np.isfinite(source.astype(float))):
        raise Redraw
    if to in ("int4", "uint4") and source.dtype.kind in "iub":
        wide = source.astype(float)
        if not np.all((wide >= -8) & (wide <= 7)) or (
            to == "uint4" and wide.size and wide.min() < 0
        ):
            raise Redraw
    saturate = d.rng.choice((None, 1, 0)) if to.startswith("float8") else None
    if kind == "CastLike":
        made = d.emit(kind, [x, d.leaf(np.zeros(2, kind_to))], saturate=saturate)
    else:
        made = d.emit(
            kind, [x], to=int(helper.np_dtype_to_tensor_dtype(kind_to)), saturate=saturate
        )
    if to in narrow:
        how = d.rng.randrange(3)
        if how == 1:
            made = d.emit("Identity", [made])
        elif how == 2:
            made = d.emit("Reshape", [made, d.ints([-1])])
        return d.emit("Cast", [made], to=int(helper.np_dtype_to_tensor_dtype(np.dtype("float32"))))
    return made


# ---- reductions ----------------------------------------------------------------------------------


@draws(
    *(
        "ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum "
        "ReduceLogSumExp ReduceMax ReduceMin"
    ).split()
)
def _reduce(d: Drawing, kind: str) -> object:
    x = d.value(ALL)
    if kind == "ReduceMean" and d.of(x).dtype.kind in "iu":
        raise Redraw  # the reference gives floats that it cuts off
    axes = d.axes(d.of(x).ndim)
    keep = d.rng.choice((None, 0, 1))
    since = 13 if kind == "ReduceSum" else 18
    if d.opset < since:
        return d.emit(kind, [x], axes=axes or None, keepdims=keep)
    noop = d.rng.choice((None, 0, 1))
    given = d.ints(axes) if axes or d.rng.random() < 0.3 else None
    return d.emit(kind, [x, given], keepdims=keep, noop_with_empty_axes=noop)


@draws("ArgMax", "ArgMin")
def _arg(d: Drawing, kind: str) -> object:
    x = d.value(NUMBERS, 1, 4, accept=is_finite)
    last = d.rng.choice((None, 0, 1)) if d.opset >= 12 else None
    return d.emit(
        kind,
        [x],
        axis=d.axis(d.of(x).ndim),
        keepdims=d.rng.choice((None, 0, 1)),
        select_last_index=last,
    )


@draws("CumSum", "CumProd")
def _scan(d: Drawing, kind: str) -> object:
    x = d.value(NUMBERS, 1, 4)
    axis = d.leaf(np.asarray(d.axis(d.of(x).ndim), d.rng.choice(("int64", "int32"))), constant=True)
    flags: dict[str, Any] = {k: d.rng.choice((None, 0, 1)) for k in ("exclusive", "reverse")}
    return d.emit(kind, [x, axis], **flags)


@draws("LpNormalization")
def _lp_normalization(d: Drawing, kind: str) -> object:
    x = d.value(FLOATS, 1, 4)
    return d.emit(kind, [x], axis=d.axis(d.of(x).ndim), p=2)  # 1 is without abs in the reference


@draws("MeanVarianceNormalization")
def _mvn(d: Drawing, kind: str) -> object:
    x = d.value(FLOATS, 2, 4, accept=lambda a: a.size > 0)
    made = d.emit(kind, [x], axes=d.axes(d.of(x).ndim, 1))
    if not is_finite(d.of(made)):
        raise Redraw  # the reference takes roots of differences, which may be below 0
    return made
