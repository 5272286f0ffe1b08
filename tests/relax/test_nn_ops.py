"""``nn.op`` and modules have the layouts, orders of arguments and defaults of TVM's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph_of, random
from tilewright import relax
from tilewright.relax import op
from tilewright.relax.frontend import nn
from tilewright.support.errors import VerifyError


def run(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    class Model(nn.Module):
        def forward(self, **tensors: Any) -> Any:
            return function(*tensors.values())

    spec = {f"x{n}": nn.spec.Tensor(a.shape, a.dtype.name) for n, a in enumerate(arrays)}
    mod, _ = Model().export({"forward": spec})
    return np.asarray(relax.build(mod)(*arrays))


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = 0.0) -> np.ndarray:
    """Over [batch, sequence, heads, depth]."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]) + mask
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", powers / powers.sum(-1, keepdims=True), v)


def test_attention_has_the_sequence_before_the_heads():
    q, k, v = random(2, 3, 4, 8), random(2, 5, 4, 8, seed=1), random(2, 5, 4, 6, seed=2)
    found = run(nn.op.scaled_dot_product_attention, q, k, v)
    np.testing.assert_allclose(found, attention(q, k, v), rtol=1e-4, atol=1e-5)
    mask = random(2, 4, 3, 5, seed=3)
    found = run(nn.op.scaled_dot_product_attention, q, k, v, mask)
    np.testing.assert_allclose(found, attention(q, k, v, mask), rtol=1e-4, atol=1e-5)
    causal = run(lambda *x: nn.op.scaled_dot_product_attention(*x, is_causal=True), q, k, v)
    hidden = np.where(np.tri(3, 5, dtype=bool), 0, -np.inf)
    np.testing.assert_allclose(causal, attention(q, k, v, hidden), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [None, True, "TopLeft", "BottomRight"])
def test_attention_of_graphs_takes_the_name_of_its_mask(causal):
    q, k, v = random(1, 3, 2, 8), random(1, 5, 2, 8, seed=1), random(1, 5, 2, 8, seed=2)
    offset = {None: 9, "BottomRight": 2}.get(causal, 0)
    hidden = np.where(np.tri(3, 5, offset, dtype=bool), 0, -np.inf)
    mod = graph_of(lambda *x: op.nn.attention(*x, causal_mask=causal), q, k, v)
    found = np.asarray(relax.build(mod)(q, k, v))
    np.testing.assert_allclose(found, attention(q, k, v, hidden), rtol=1e-4, atol=1e-5)
    with pytest.raises(VerifyError, match="causal_mask must be"):
        graph_of(lambda *x: op.nn.attention(*x, causal_mask="BottomLeft"), q, k, v)


class Norms(nn.Module):
    def __init__(self) -> None:
        self.first = nn.RMSNorm(8, -1, 1e-6)
        self.second = nn.RMSNorm(8, [2], bias=False)

    def forward(self, x: nn.Tensor) -> Any:
        return self.second(self.first(x))


def test_rms_norm_takes_axes_and_has_a_bias():
    mod, params = Norms().export({"forward": {"x": nn.spec.Tensor((2, 3, 8))}})
    assert [name for name, _ in params] == ["first.weight", "first.bias", "second.weight"]
    x, weight, bias = random(2, 3, 8), random(8, seed=1), random(8, seed=2)

    def norm(v: np.ndarray, epsilon: float) -> np.ndarray:
        return v / np.sqrt((v * v).mean(-1, keepdims=True) + epsilon)

    expected = norm(norm(x, 1e-6) * weight + bias, 1e-5) * weight
    found = relax.build(mod)(x, weight, bias, weight)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="axes are ints"):
        nn.RMSNorm(8, 1e-6)  # type: ignore[arg-type]


def test_defaults_are_those_of_nn():
    x = random(1, 3, 1)
    assert run(nn.op.squeeze, x).shape == (1, 3)
    assert run(lambda v: nn.op.squeeze(v, None), x).shape == (3,)
    assert run(lambda v: nn.op.unsqueeze(v, 0), x).shape == (1, 1, 3, 1)
    np.testing.assert_array_equal(run(nn.op.cumsum, x + 1), np.cumsum(x + 1).astype("float32"))
    np.testing.assert_array_equal(run(lambda v: nn.op.repeat(v, 2), x), np.repeat(x, 2))
    found = run(lambda v: nn.op.arange(0, 3) + v, np.zeros((), "float32"))
    np.testing.assert_array_equal(found, [0.0, 1.0, 2.0])
    parts = run(lambda v: nn.op.concat(nn.op.chunk(v, 3, 1)[::-1], 1), x)
    np.testing.assert_array_equal(parts, x[:, ::-1])
    padded = run(lambda v: nn.op.pad(v, [0, 0, 1, 0, 0, 2], "constant", 7.0), x)
    np.testing.assert_array_equal(padded, np.pad(x, [(0, 0), (1, 0), (0, 2)], constant_values=7))
    square = random(3, 3)
    np.testing.assert_array_equal(
        run(lambda v: nn.op.tril(v, diagonal=1), square), np.tril(square, 1)
    )


def test_layers_take_their_arguments_in_the_order_of_nn():
    torch = pytest.importorskip("torch")
    tensor, functional = torch.from_numpy, torch.nn.functional
    x, w, b = random(2, 4, 9), random(6, 2, 3, seed=1), random(6, seed=2)
    found = run(lambda *v: nn.op.conv1d(*v, 2, 1, 1, 2), x, w, b)
    expected = functional.conv1d(*map(tensor, (x, w, b)), 2, 1, 1, 2)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    image, kernel = random(1, 4, 6, 6), random(6, 4, 3, 3, seed=1)
    found = run(lambda *v: nn.op.conv2d(*v, padding=1), image, kernel, b)
    expected = functional.conv2d(*map(tensor, (image, kernel, b)), padding=1)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    back = random(4, 3, 3, seed=3)
    found = run(lambda *v: nn.op.conv1d_transpose(*v, 2, 1, 1, 1, 2), x, back, b)
    expected = functional.conv_transpose1d(*map(tensor, (x, back, b)), 2, 1, 1, 2, 1)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    scale, shift = random(4, 9, seed=4), random(4, 9, seed=5)
    found = run(lambda v, *rest: nn.op.layer_norm(v, (4, 9), *rest, 1e-3), x, scale, shift)
    expected = functional.layer_norm(tensor(x), (4, 9), tensor(scale), tensor(shift), 1e-3)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    found = run(lambda v: nn.op.layer_norm(v, 9), x)
    expected = functional.layer_norm(tensor(x), (9,))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    found = run(lambda v: nn.op.gelu(v, "tanh"), x)
    expected = functional.gelu(tensor(x), approximate="tanh")
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


SIGNATURES = {
    "Linear": "in_features out_features bias dtype out_dtype",
    "Conv1D": "in_channels out_channels kernel_size stride padding dilation groups bias dtype",
    "Conv2D": "in_channels out_channels kernel_size stride padding dilation groups bias dtype "
    "data_layout",
    "LayerNorm": "normalized_shape eps elementwise_affine dtype",
    "RMSNorm": "hidden_size axes epsilon bias dtype",
    "Embedding": "num dim dtype",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_of_modules(name):
    assert list(inspect.signature(getattr(nn, name)).parameters) == SIGNATURES[name].split()
