"""Every operator against NumPy (or PyTorch where it is installed), through the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run

RNG = np.random.default_rng(0)


def evaluate(build: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    inputs = [
        te.placeholder(array.shape, str(array.dtype), f"x{number}")
        for number, array in enumerate(arrays)
    ]
    result = build(*inputs)
    func = te.create_prim_func([*inputs, result])
    shape = [extent.value for extent in result.shape]
    out = np.zeros(shape, result.dtype)
    run(func, *arrays, out)
    return out


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype("float32")


def check(actual: np.ndarray, expected: Any, tolerance: float = 2e-5) -> None:
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "name", ["exp", "tanh", "erf", "sin", "floor", "abs", "negative", "square", "sign", "sigmoid"]
)
def test_unary(name: str) -> None:
    x = f32(3, 5)
    reference = {
        "erf": lambda v: np.vectorize(__import__("math").erf)(v),
        "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    }.get(name) or getattr(np, name)
    check(evaluate(getattr(topi, name), x), reference(x))


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "log", "log1p", "reciprocal"])
def test_unary_of_positive_numbers(name: str) -> None:
    x = f32(4, low=0.1)
    reference = {"rsqrt": lambda v: 1 / np.sqrt(v)}.get(name) or getattr(np, name)
    check(evaluate(getattr(topi, name), x), reference(x))


def test_round_is_half_to_even() -> None:
    x = np.array([-1.5, -0.5, 0.5, 1.5, 2.5], "float32")
    check(evaluate(topi.round, x), np.round(x))


@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "divide", "maximum", "minimum", "power"]
)
def test_binary_broadcasts(name: str) -> None:
    a, b = f32(2, 1, 4, low=0.5), f32(3, 1, low=0.5)
    check(evaluate(getattr(topi, name), a, b), getattr(np, name)(a, b))


def test_binary_with_a_number() -> None:
    x = f32(5)
    check(evaluate(lambda a: topi.add(a, 1.5), x), x + 1.5)
    check(evaluate(lambda a: topi.subtract(2.0, a), x), 2 - x)


@pytest.mark.parametrize("name", ["less", "greater_equal", "equal", "not_equal"])
def test_comparisons_give_bool(name: str) -> None:
    a, b = RNG.integers(0, 3, (4, 5)), RNG.integers(0, 3, (5,))
    actual = evaluate(getattr(topi, name), a, b)
    assert actual.dtype == bool
    check(actual, getattr(np, name)(a, b))


def test_shapes_that_do_not_broadcast() -> None:
    a, b = te.placeholder((2, 3)), te.placeholder((4,))
    with pytest.raises(VerifyError, match="do not broadcast: 3 against 4"):
        topi.add(a, b)


def test_integer_division_and_remainder() -> None:
    a, b = np.array([-7, 7, -7, 7]), np.array([2, 2, -2, -2])
    check(evaluate(topi.floor_divide, a, b), a // b)
    check(evaluate(topi.floor_mod, a, b), a % b)
    check(evaluate(topi.divide, a, b), np.trunc(a / b).astype("int64"))
    check(evaluate(topi.mod, a, b), np.fmod(a, b))


def test_where_clip_cast() -> None:
    x, y = f32(3, 4), f32(4)
    check(evaluate(lambda a, b: topi.where(topi.less(a, b), a, b), x, y), np.minimum(x, y))
    check(evaluate(lambda a: topi.clip(a, -1.0, 0.5), x), np.clip(x, -1, 0.5))
    check(evaluate(lambda a: topi.cast(a, "int32"), x), x.astype("int32"))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(axis: Any, keepdims: bool) -> None:
    x = f32(2, 3, 4)
    for name in ("sum", "max", "min", "mean", "prod"):
        expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
        check(evaluate(lambda a, n=name: getattr(topi, n)(a, axis, keepdims), x), expected)
    expected = np.var(x, axis=axis, keepdims=keepdims)
    check(evaluate(lambda a: topi.variance(a, axis, keepdims), x), expected)


@pytest.mark.parametrize("axis", [None, 1, -1])
def test_arg_reductions_take_the_first_of_equals(axis: Any) -> None:
    x = RNG.integers(0, 3, (3, 4, 5)).astype("float32")
    check(evaluate(lambda a: topi.argmax(a, axis), x), np.argmax(x, axis=axis))
    check(evaluate(lambda a: topi.argmin(a, axis), x), np.argmin(x, axis=axis))


def test_matmul_forms() -> None:
    a, b = f32(3, 4), f32(4, 5)
    check(evaluate(topi.matmul, a, b), a @ b)
    check(evaluate(lambda x, y: topi.matmul(x, y, transp_b=True), a, b.T.copy()), a @ b)
    check(evaluate(lambda x, y: topi.matmul(x, y, transp_a=True), a.T.copy(), b), a @ b)
    c, d = f32(2, 1, 3, 4), f32(5, 4, 2)
    check(evaluate(topi.matmul, c, d), c @ d)
    check(evaluate(topi.matmul, f32(4) * 0 + 1, b), b.sum(0))
    check(
        evaluate(topi.nn.dense, a, f32(5, 4) * 0 + 1, f32(5) * 0 + 2),
        a.sum(1, keepdims=True) + np.full((3, 5), 2.0),
    )


def test_matmul_of_wrong_shapes() -> None:
    with pytest.raises(VerifyError, match="inner extents: 4 is not 5"):
        topi.matmul(te.placeholder((3, 4)), te.placeholder((5, 6)))


def test_data_movement() -> None:
    x = f32(2, 3, 4)
    check(evaluate(lambda a: topi.transpose(a, (2, 0, 1)), x), x.transpose(2, 0, 1))
    check(evaluate(lambda a: topi.reshape(a, (4, -1)), x), x.reshape(4, -1))
    check(evaluate(topi.flatten, x), x.reshape(2, -1))
    check(evaluate(lambda a: topi.expand_dims(a, 1), x), x[:, None])
    check(evaluate(lambda a: topi.squeeze(topi.expand_dims(a, -1)), x), x)
    check(evaluate(lambda a: topi.concatenate([a, a], 1), x), np.concatenate([x, x], 1))
    check(evaluate(lambda a: topi.stack([a, a], 0), x), np.stack([x, x]))
    check(evaluate(lambda a: topi.split(a, [1], 2)[1], x), x[:, :, 1:])
    check(
        evaluate(lambda a: topi.strided_slice(a, [0, -1], [2, -4], [1, -1], [0, 1]), x),
        x[0:2, -1:-4:-1],
    )
    check(
        evaluate(lambda a: topi.broadcast_to(a, (5, 2, 3, 4)), x), np.broadcast_to(x, (5, 2, 3, 4))
    )
    check(evaluate(lambda a: topi.flip(a, 1), x), x[:, ::-1])
    check(evaluate(lambda a: topi.tile(a, (2, 1, 1)), x), np.tile(x, (2, 1, 1)))
    check(evaluate(lambda a: topi.repeat(a, 2, 1), x), np.repeat(x, 2, 1))
    check(evaluate(lambda a: topi.nn.pad(a, (1, 0, 2), (0, 1, 1), 7.0), x),
          np.pad(x, ((1, 0), (0, 1), (2, 1)), constant_values=7))  # fmt: skip
    check(evaluate(lambda a: topi.tril(a), x), np.tril(x))


def test_take_and_gather() -> None:
    x, index = f32(5, 3), np.array([[0, 4], [2, 9]])
    check(evaluate(lambda a, i: topi.take(a, i, 0), x, index), x[np.clip(index, 0, 4)])
    pick = RNG.integers(0, 5, (2, 3))
    check(evaluate(lambda a, i: topi.gather(a, 0, i), x, pick), np.take_along_axis(x, pick, 0))


def test_makers() -> None:
    check(evaluate(lambda: topi.arange(2, 11, 3)), np.arange(2, 11, 3))
    check(evaluate(lambda: topi.full((2, 3), "float32", 1.5)), np.full((2, 3), 1.5))
    index = np.array([1, 0, 2])
    check(evaluate(lambda i: topi.one_hot(i, 1.0, 0.0, 3), index), np.eye(3)[index])


torch = pytest.importorskip("torch")
functional = torch.nn.functional


def t(x: np.ndarray) -> Any:
    return torch.from_numpy(x)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 2), ((2, 1), (0, 1), 1, 4)],
)
def test_conv2d(stride: Any, padding: Any, dilation: Any, groups: int) -> None:
    x, w = f32(2, 4, 7, 6), f32(8, 4 // groups, 3, 2)
    expected = functional.conv2d(t(x), t(w), None, stride, padding, dilation, groups)
    check(
        evaluate(lambda a, b: topi.nn.conv2d(a, b, stride, padding, dilation, groups=groups), x, w),
        expected,
    )


def test_conv1d_and_conv3d() -> None:
    x, w = f32(1, 3, 9), f32(2, 3, 3)
    check(evaluate(lambda a, b: topi.nn.conv1d(a, b, 2, 1), x, w),
          functional.conv1d(t(x), t(w), stride=2, padding=1))  # fmt: skip
    x, w = f32(1, 2, 3, 4, 4), f32(3, 2, 2, 3, 3)
    check(evaluate(lambda a, b: topi.nn.conv3d(a, b, 1, 1), x, w),
          functional.conv3d(t(x), t(w), padding=1))  # fmt: skip


@pytest.mark.parametrize(
    ("stride", "padding", "extra", "dilation", "groups"),
    [(1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (2, 1, 0, 2, 2), (3, 0, 2, 1, 1)],
)
def test_conv2d_transpose(
    stride: int, padding: int, extra: int, dilation: int, groups: int
) -> None:
    x, w = f32(1, 4, 4, 5), f32(4, 6 // groups, 3, 3)
    expected = functional.conv_transpose2d(
        t(x), t(w), None, stride, padding, extra, groups, dilation
    )
    actual = evaluate(
        lambda a, b: topi.nn.conv2d_transpose(a, b, stride, padding, extra, dilation, groups), x, w
    )
    check(actual, expected)


def test_depthwise_conv2d() -> None:
    x, w = f32(1, 4, 6, 6), f32(8, 1, 3, 3)
    expected = functional.conv2d(t(x), t(w), padding=1, groups=4)
    check(evaluate(lambda a, b: topi.nn.depthwise_conv2d(a, b, 1, 1), x, w), expected)


def test_conv2d_of_wrong_channels() -> None:
    with pytest.raises(VerifyError, match="2 groups"):
        topi.nn.conv2d(te.placeholder((1, 5, 4, 4)), te.placeholder((4, 2, 3, 3)), groups=2)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("padding", [0, 1])
def test_pooling(ceil_mode: bool, padding: int) -> None:
    x = f32(1, 2, 7, 8)
    expected = functional.max_pool2d(t(x), 3, 2, padding, ceil_mode=ceil_mode)
    check(
        evaluate(lambda a: topi.nn.max_pool2d(a, 3, 2, padding, ceil_mode=ceil_mode), x), expected
    )
    for include in (False, True):
        expected = functional.avg_pool2d(t(x), 3, 2, padding, ceil_mode, include)
        actual = evaluate(
            lambda a, c=include: topi.nn.avg_pool2d(a, 3, 2, padding, 1, ceil_mode, c), x
        )
        check(actual, expected)


def test_adaptive_pooling() -> None:
    x = f32(1, 2, 6, 4)
    for size in (1, (3, 2)):
        expected = functional.adaptive_avg_pool2d(t(x), size)
        check(evaluate(lambda a, s=size: topi.nn.adaptive_avg_pool2d(a, s), x), expected)


@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax(axis: int) -> None:
    x = f32(2, 3, 5, low=-30, high=30)
    check(evaluate(lambda a: topi.nn.softmax(a, axis), x), torch.softmax(t(x), axis))
    check(evaluate(lambda a: topi.nn.log_softmax(a, axis), x), torch.log_softmax(t(x), axis))


def test_norms() -> None:
    x, gamma, beta = f32(2, 3, 8), f32(8), f32(8)
    check(evaluate(topi.nn.layer_norm, x, gamma, beta),
          functional.layer_norm(t(x), (8,), t(gamma), t(beta)))  # fmt: skip
    check(evaluate(topi.nn.rms_norm, x, gamma),
          functional.rms_norm(t(x), (8,), t(gamma), 1e-5))  # fmt: skip
    x, mean, var, gamma, beta = f32(2, 3, 4, 4), f32(3), f32(3, low=0.5), f32(3), f32(3)
    expected = functional.batch_norm(t(x), t(mean), t(var), t(gamma), t(beta))
    check(evaluate(lambda *t: topi.nn.batch_norm(*t)[0], x, gamma, beta, mean, var), expected)
    x, gamma, beta = f32(2, 4, 3, 3), f32(4), f32(4)
    expected = functional.group_norm(t(x), 2, t(gamma), t(beta))
    check(evaluate(lambda a, g, b: topi.nn.group_norm(a, g, b, 2), x, gamma, beta), expected)


@pytest.mark.parametrize(
    "name", ["relu", "relu6", "silu", "gelu", "softplus", "leaky_relu", "hard_swish"]
)
def test_activations(name: str) -> None:
    x = f32(3, 7, low=-5, high=5)
    reference = {"hard_swish": functional.hardswish}.get(name) or getattr(functional, name)
    check(evaluate(getattr(topi.nn, name), x), reference(t(x)))


def test_gelu_tanh() -> None:
    x = f32(20, low=-5, high=5)
    check(evaluate(topi.nn.gelu_tanh, x), functional.gelu(t(x), approximate="tanh"))
