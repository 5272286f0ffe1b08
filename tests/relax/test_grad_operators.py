"""Operators of gradients, and losses, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, graph_of, random, symbol, tensor
from tilewright import relax
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError

torch = pytest.importorskip("torch")
F = torch.nn.functional


def check(body: Any, *arrays: np.ndarray, expected: Any) -> None:
    mod = graph_of(body, *arrays)
    for found in (interpreter.run(mod, *arrays), relax.build(mod)(*arrays)):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5)


POOLS: list[dict[str, Any]] = [
    {"pool_size": 3, "strides": 2, "padding": 1},
    {"pool_size": (2, 3), "strides": (2, 1)},
    {"pool_size": 3, "strides": 3, "padding": 1, "ceil_mode": True},
]


@pytest.mark.parametrize("options", POOLS, ids=str)
def test_pooling(options: dict[str, Any]) -> None:
    x = np.round(random(1, 2, 7, 6))  # with equal elements
    size, step = options["pool_size"], options["strides"]
    rest = {"padding": options.get("padding", 0), "ceil_mode": options.get("ceil_mode", False)}
    for kind in ("max", "padded", "avg"):
        image = torch.tensor(x, requires_grad=True)
        include = {} if kind == "max" else {"count_include_pad": kind == "padded"}
        forward = F.max_pool2d if kind == "max" else F.avg_pool2d
        y = forward(image, size, step, **rest, **include)
        given = random(*y.shape, seed=1)
        y.backward(torch.tensor(given))
        function = op.grad.max_pool2d_backward if kind == "max" else op.grad.avg_pool2d_backward
        check(
            lambda g, x, f=function, i=include: f(g, x, **options, **i),
            given, x, expected=image.grad.numpy(),
        )  # fmt: skip


def test_padding_never_wins() -> None:
    x = np.full((1, 1, 2), -np.inf, "float32")
    found = interpreter.run(
        graph_of(lambda g, x: op.grad.max_pool1d_backward(g, x, 2, 2, 1), x, x),
        np.ones((1, 1, 2), "float32"), x,
    )  # fmt: skip
    assert found.tolist() == [[[1, 1]]]


def test_pooling_of_symbolic_images() -> None:
    n = symbol("n")
    mod = graph(
        lambda g, x: op.grad.max_pool1d_backward(g, x, 2, 2),
        tensor((1, 1, n // 2)), tensor((1, 1, n)),
    )  # fmt: skip
    found = interpreter.run(mod, np.ones((1, 1, 2), "float32"), random(1, 1, 5))
    assert found.sum() == 2
    assert found[0, 0, 4] == 0


def test_only_floats_have_gradients() -> None:
    with pytest.raises(VerifyError, match="only floating-point numbers have gradients, got int32"):
        image = relax.Var("x", tensor((1, 1, 4, 4), "int32"))
        op.grad.max_pool2d_backward(image, image)


@pytest.mark.parametrize("axis", [0, -1, None])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_take(axis: int | None, dtype: str) -> None:
    x, at = random(5, 3, 2, dtype=dtype), np.array([[0, 1], [1, 1]])
    given = random(*np.take(x, at, axis).shape, seed=1, dtype=dtype)
    expected = np.zeros(x.shape, "float32")
    moved = expected.reshape(-1) if axis is None else np.moveaxis(expected, axis, 0)
    np.add.at(moved, at, given if axis != -1 else np.moveaxis(given, (-2, -1), (0, 1)))
    mod = graph_of(lambda g, x, i: op.grad.take_backward(g, x, i, axis), given, x, at)
    for found in (interpreter.run(mod, given, x, at), relax.build(mod)(given, x, at)):
        assert np.asarray(found).dtype == dtype
        np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-3, atol=1e-3)


def test_lookups_of_nothing_and_out_of_bounds() -> None:
    x, none = random(3, 2), np.zeros(0, "int64")
    check(lambda g, x, i: op.grad.take_backward(g, x, i, 0), random(0, 2), x, none, expected=x * 0)
    for mode, place in (("clip", [0, 2]), ("wrap", [2, 0])):
        mod = graph_of(
            lambda g, x, i, mode=mode: op.grad.take_backward(g, x, i, 0, mode),
            random(2, 2), x, np.zeros(2, "int64"),
        )  # fmt: skip
        found = interpreter.run(mod, np.ones((2, 2), "float32"), x, np.array([-1, 3]))
        assert [row for row in range(3) if found[row, 0]] == sorted(place)


def test_gather_elements() -> None:
    x, at = random(5, 3, 2), np.random.default_rng(0).integers(0, 3, (4, 6, 2))
    source = torch.tensor(x, requires_grad=True)
    y = source.gather(1, torch.tensor(at))
    given = random(*y.shape, seed=1)
    y.backward(torch.tensor(given))
    check(
        lambda g, x, i: op.grad.gather_elements_backward(g, x, i, 1),
        given, x, at, expected=source.grad.numpy(),
    )  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 4, 3)])
def test_nll_loss(shape: tuple[int, ...], reduction: str) -> None:
    x, weights = random(*shape), np.abs(random(4, seed=2))
    rest = () if len(shape) == 1 else (shape[0], *shape[2:])
    at = np.asarray(np.random.default_rng(1).integers(0, 4, rest))
    expected = F.nll_loss(
        torch.tensor(x), torch.tensor(at), torch.tensor(weights), reduction=reduction,
        ignore_index=1,
    )  # fmt: skip
    body = lambda x, i, w: op.nn.nll_loss(x, i, w, reduction, 1)
    check(body, x, at, weights, expected=expected.numpy())


def test_cross_entropy_with_logits() -> None:
    x, labels = random(3, 4), np.abs(random(3, 4, seed=1))
    expected = -(x * labels).sum() / 3
    check(op.nn.cross_entropy_with_logits, x, labels, expected=expected)
    check(op.nn.cross_entropy_with_logits, x[0], labels[0], expected=-(x[0] * labels[0]).sum())


def test_losses_refuse_what_does_not_fit() -> None:
    x, at = relax.Var("x", tensor((3, 4))), relax.Var("i", tensor((3,), "int64"))
    for call, message in (
        (lambda: op.nn.nll_loss(x, x), "targets must be integers"),
        (lambda: op.nn.nll_loss(at, at), "predictions must be floating-point"),
        (lambda: op.nn.nll_loss(x, at, reduction="max"), "must be mean, sum, none, got 'max'"),
        (lambda: op.nn.nll_loss(x, at, relax.const(random(3))), "classes and weights"),
        (lambda: op.nn.cross_entropy_with_logits(x, relax.const(random(2, 4))), "axis 0"),
    ):
        with pytest.raises(VerifyError, match=message):
            call()
