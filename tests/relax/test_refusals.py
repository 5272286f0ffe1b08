"""Calls of operators that mean nothing are refused when they are built, with a reason."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, random, symbol, tensor
from tilewright import relax
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError

N = symbol("n")
IMAGE = tensor((1, 2, 4, 4))

CASES: dict[str, tuple[Callable[..., Any], list[Any], str]] = {
    "slice axis": (lambda x: op.strided_slice(x, [3], [0], [1]), [tensor((2, 3))],
                   "axis 3 is out of range for 2 dimensions"),
    "slice axis of floats": (lambda x: op.strided_slice(x, [1.0], [0], [1]), [tensor((2, 3))],
                             "an axis is an integer, got 1.0"),
    "slice axis twice": (lambda x: op.strided_slice(x, [0, -2], [0, 0], [1, 1]), [tensor((2, 3))],
                         "name one axis twice"),
    "slice stride 0": (lambda x: op.strided_slice(x, [0], [0], [1], [0]), [tensor((2, 3))],
                       "a stride must not be 0"),
    "slice lengths": (lambda x: op.strided_slice(x, [0], [1, 2], [3]), [tensor((N, 3))],
                      "must have one length"),
    "slice not inside": (lambda x: op.strided_slice(x, [0], [1], [5], assume_inbound=True),
                         [tensor((3, 3))], "the slice 1:5 is not in axis 0 of extent 3"),
    "reshape": (lambda x: op.reshape(x, (-2, -3)), [tensor((2, 3))], "must not be negative"),
    "reshape two": (lambda x: op.reshape(x, (-1, -1)), [tensor((2, 3))], "only one extent"),
    "reshape nothing": (lambda x: op.reshape(x, (-1, 0, 0)), [tensor((2, 0))], "nothing says what"),
    "reshape remainder": (lambda x: op.reshape(x, (-1, 4)), [tensor((2, 3))], "do not divide"),
    "full": (lambda x: op.full((2, -1), 0.0), [tensor((2, 3))], "must not be negative"),
    "broadcast_to": (lambda x: op.broadcast_to(x, (-2,)), [tensor((1,))], "must not be negative"),
    "flatten": (lambda x: op.flatten(x, 2), [tensor((2, 3))], "axis 2 is out of range"),
    "flatten order": (lambda x: op.flatten(x, 1, 0), [tensor((2, 3))], "comes after"),
    "squeeze": (lambda x: op.squeeze(x, 0), [tensor((2, 3))], "extent of axis 0: 2 against 1"),
    "split": (lambda x: op.split(x, 0), [tensor((2, 3))], "sections must be 1 to"),
    "tril": (op.tril, [tensor((3,))], "at least two dimensions"),
    "topk": (lambda x: op.topk(x, -2), [tensor((3,))], "k must be at least 0"),
    "max": (op.max, [tensor((2, 0))], "there is no element along axis 1"),
    "argmin": (lambda x: op.argmin(x, 1), [tensor((2, 0))], "there is no element along axis 1"),
    "take": (lambda x: op.take(x, relax.const(np.zeros(1, "int64")), 0), [tensor((0, 2))],
             "there is nothing to look up along an axis of 0"),
    "gather mode": (lambda x, i: op.gather_elements(x, i, 0, "far"), [tensor((2,))] * 2,
                    "indices must be integers"),
    "gather size": (lambda x, i: op.gather_elements(x, i, 0), [tensor((2, 2)),
                    tensor((2, 3), "int64")], "more indices than elements along axis 1: 3"),
    "layer_norm": (lambda x, g: op.nn.layer_norm(x, g), [tensor((2, 3)), tensor((3,), "int32")],
                   "gamma must be of a floating-point dtype, got int32"),
    "layer_norm data": (lambda x, g: op.nn.layer_norm(x, g), [tensor((2, 3), "int32"),
                        tensor((3,))], "normalises floating-point numbers, got int32"),
    "rms_norm": (lambda x, g: op.nn.rms_norm(x, g), [tensor((2, 3)), tensor((3,), "int8")],
                 "weight must be of a floating-point dtype"),
    "batch_norm": (lambda x, g: op.nn.batch_norm(x, g, g, g, g),
                   [tensor((2, 3)), tensor((3,), "int64")], "gamma must be"),
    "groups": (lambda x, w: op.nn.conv2d(x, w, groups=0), [IMAGE, IMAGE], "must be positive"),
    "stride": (lambda x, w: op.nn.conv2d(x, w, strides=0), [IMAGE, tensor((2, 2, 1, 1))],
               "strides and dilation must be positive"),
    "padding": (lambda x: op.nn.max_pool2d(x, 2, padding=-1), [IMAGE], "padding not negative"),
    "window": (lambda x: op.nn.avg_pool2d(x, 5), [IMAGE], "the window of 5 does not fit extent 4"),
    "window of nothing": (lambda x: op.nn.avg_pool2d(x, 0), [IMAGE], "the window is empty"),
    "image of nothing": (lambda x: op.nn.max_pool2d(x, 1, padding=1), [tensor((1, 2, 0, 4))],
                         "the image is empty"),
    "transposed": (lambda x, w: op.nn.conv2d_transpose(x, w, padding=3),
                   [IMAGE, tensor((2, 2, 1, 1))], "the padding takes more than there is"),
    "adaptive": (lambda x: op.nn.adaptive_avg_pool2d(x, 0), [IMAGE], "must be positive"),
    "adaptive symbolic": (lambda x: op.nn.adaptive_avg_pool2d(x), [tensor((1, 2, N, 4))],
                          "output_size must be given"),
    "resize": (lambda x: op.image.resize2d(x, 2), [tensor((1, 1, 0, 2))], "the image is empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused(name: str) -> None:
    body, infos, reason = CASES[name]
    with pytest.raises(VerifyError) as caught:
        graph(body, *infos)
    assert reason in str(caught.value)


def test_windows_of_ceil_mode_are_pytorchs() -> None:
    functional = pytest.importorskip("torch").nn.functional
    torch = pytest.importorskip("torch")
    for extent, size, stride, padding in itertools.product(
        (1, 2, 4, 5, 7), (1, 2, 3), (1, 2, 4), (0, 1)
    ):
        if padding > size // 2:
            continue
        try:
            expected = functional.max_pool1d(
                torch.zeros(1, 1, extent), size, stride, padding, ceil_mode=True
            )
        except RuntimeError:
            continue
        made = op.nn.max_pool1d(
            relax.Var("x", tensor((1, 1, extent))), size, stride, padding, ceil_mode=True
        )
        assert [e.value for e in made.shape] == list(expected.shape), (extent, size, stride)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_pooling_with_ceil_mode(name: str) -> None:
    functional = pytest.importorskip("torch").nn.functional
    torch = pytest.importorskip("torch")
    for extent, size, stride, padding in [(5, 2, 3, 0), (1, 2, 2, 0), (7, 3, 3, 1)]:
        x = random(1, 1, extent, 6)
        mod = graph(
            lambda a, s=(size, stride, padding): getattr(op.nn, name)(a, *s, ceil_mode=True),
            tensor(x.shape),
        )
        extra = {} if name == "max_pool2d" else {"count_include_pad": False}
        expected = getattr(functional, name)(
            torch.from_numpy(x), size, stride, padding, ceil_mode=True, **extra
        )
        for made in (relax.build(mod, schedule=None)(x), interpreter.run(mod, x)):
            np.testing.assert_allclose(np.asarray(made), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_adaptive_pooling_without_a_size_keeps_it() -> None:
    x = random(1, 2, 3, 4)
    mod = graph(lambda a: op.nn.adaptive_avg_pool2d(a), tensor(x.shape))
    np.testing.assert_allclose(np.asarray(relax.build(mod)(x)), x, rtol=1e-6)
    mod = graph(lambda a: op.nn.adaptive_max_pool2d(a, (None, 2)), tensor(x.shape))
    expected = x.reshape(1, 2, 3, 2, 2).max(-1)
    np.testing.assert_array_equal(np.asarray(relax.build(mod)(x)), expected)


def test_extents_of_zero_say_the_rest() -> None:
    shapes = [((0, 4), (0, -1), (0, 4)), ((3, 0), (3, -1), (3, 0)), ((0, 4), (-1, 2), (0, 2)),
              ((2, 0, 3), (-1, 0, 3), (2, 0, 3)), ((0, 2, 3), (0, 6), (0, 6))]  # fmt: skip
    for have, wanted, expected in shapes:
        made = op.reshape(relax.Var("x", tensor(have)), wanted)
        assert tuple(e.value for e in made.shape) == expected
        x = np.zeros(have, "float32")
        mod = graph(lambda a, w=wanted: op.reshape(a, w), tensor(have))
        assert np.asarray(relax.build(mod)(x)).shape == expected
        assert interpreter.run(mod, x).shape == expected


def test_layouts_of_empty_tensors() -> None:
    for index_map, expected in [(lambda i, j: (j, i), (3, 0)), (lambda i, j: (j, i // 4, i % 4),
                                (3, 0, 0))]:  # fmt: skip
        mod = graph(lambda x, m=index_map: op.layout_transform(x, m), tensor((0, 3)))
        x = np.zeros((0, 3), "float32")
        assert np.asarray(relax.build(mod)(x)).shape == expected
        assert interpreter.run(mod, x).shape == expected
