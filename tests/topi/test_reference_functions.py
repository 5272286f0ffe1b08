"""``topi.testing``: what it computes is what the operators compute."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import reference_cases
import torch
from reference_cases import CASES, f32

from tilewright import te
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run
from tilewright.topi import testing


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_its_operator(name: str) -> None:
    build, reference, arrays = CASES[name]
    inputs = [te.placeholder(a.shape, str(a.dtype), f"x{n}") for n, a in enumerate(arrays)]
    made = build(*inputs)
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    found = [np.zeros([int(e) for e in x.shape], x.dtype) for x in outputs]
    run(te.create_prim_func([*inputs, *outputs]), *(array.copy() for array in arrays), *found)
    wanted = reference(*arrays)
    expected = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
    assert len(found) == len(expected)
    for here, there in zip(found, expected):
        assert here.shape == np.shape(there)
        assert here.dtype == there.dtype
        np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradient_of_weights(layout: str, groups: int) -> None:
    """The gradient is the adjoint of the convolution, which is linear in its weights."""
    x, w = f32(2, 4, 6, 5), f32(6, 4 // groups, 3, 2)
    dy = f32(*testing.conv2d_nchw_python(x, w, (2, 1), (1, 0), groups).shape)
    expected = (testing.conv2d_nchw_python(x, w, (2, 1), (1, 0), groups) * dy).sum()
    order = [0, 2, 3, 1] if layout == "NHWC" else [0, 1, 2, 3]
    made = testing.conv2d_backward_weight_python(
        dy.transpose(order), x.transpose(order), (3, 2), (2, 1), (1, 0), layout, groups, 6
    )
    np.testing.assert_allclose((made * w.transpose(order)).sum(), expected, rtol=1e-3)


@pytest.mark.parametrize("projected", [False, True])
def test_lstm(projected: bool) -> None:
    network = torch.nn.LSTM(3, 4, proj_size=2 if projected else 0)
    wi, wh, bi, bh, *proj = (each.detach().numpy() for each in network.parameters())
    x, h, c = f32(5, 2, 3), f32(1, 2, 2 if projected else 4), f32(1, 2, 4)
    expected, (_, cell) = network(torch.from_numpy(x), tuple(map(torch.from_numpy, (h, c))))
    made, cells = testing.lstm_python(x, wi, wh, bi, bh, h[0], c[0], *proj)
    np.testing.assert_allclose(made, expected.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cells[-1], cell[0].detach(), rtol=1e-5, atol=1e-6)
    backwards, _ = testing.lstm_python(x, wi, wh, bi, bh, h[0], c[0], *proj, reverse=True)
    again, _ = testing.lstm_python(x[::-1], wi, wh, bi, bh, h[0], c[0], *proj)
    np.testing.assert_array_equal(backwards, again)


def test_reorg() -> None:
    x = np.arange(2 * 4 * 2 * 6, dtype="float32").reshape(2, 4, 2, 6)
    made = testing.reorg_python(x, 2)
    assert made.shape == (2, 16, 1, 3)
    # One channel of twice the size: rows of 12, of which the blocks' corners come first.
    wide = x.reshape(2, 1, 4, 12)
    np.testing.assert_array_equal(made.reshape(2, 4, 2, 6)[:, 1], wide[:, 0, ::2, 1::2])


def test_every_function_is_tried() -> None:
    others = (test_gradient_of_weights, test_lstm, test_reorg)
    texts = inspect.getsource(reference_cases).replace("ref.", "testing.")
    texts += "".join(map(inspect.getsource, others))
    untried = [name for name in testing.__all__ if f"testing.{name}" not in texts]
    assert untried == []


X, W = f32(1, 4, 3, 3), f32(2, 4, 3, 3)
REFUSED = {
    "channels that don't fit": lambda: testing.conv2d_nchw_python(X, W, 1, 0, 2),
    "a padding of three numbers": lambda: testing.conv2d_nchw_python(X, W, 1, (1, 2, 3)),
    "a padding by another name": lambda: testing.conv2d_nchw_python(X, W, 1, "FULL"),
    "an unknown pool": lambda: testing.adaptive_pool(X, 1, "sum", "NCHW"),
    "an unknown layout": lambda: testing.adaptive_pool(X, 1, "max", "NCHW4c"),
    "a method of resizing": lambda: testing.resize2d_python(X, (2, 2), method="bilinear"),
    "an activation": lambda: testing.lstm_python(f32(1, 1, 1), f32(4, 1), f32(4, 1), f_act="exp"),
    "an output padding beyond the stride": lambda: testing.conv2d_transpose_nchw_python(
        X, f32(4, 1, 1, 1), 2, 0, 2
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(VerifyError):
        REFUSED[name]()
