"""Every operator against NumPy or PyTorch: legalised, interpreted and compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from tests.relax.helpers import graph, graph_of, random, symbol, tensor
from tilewright import relax
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError

X = random(2, 3, 5)
POSITIVE = np.abs(X) + 0.5
SMALL = np.tanh(X) * 0.9
OTHER = random(2, 3, 5, seed=1) + 3
ROW = random(5, seed=2)
INTS = np.random.default_rng(3).integers(-7, 8, (2, 3)).astype("int64")
NONZERO = np.where(INTS == 0, 3, INTS)
TRUTH = X > 0

UNARY: dict[str, tuple[np.ndarray, Callable[..., Any]]] = {
    "exp": (X, np.exp),
    "log": (POSITIVE, np.log),
    "log2": (POSITIVE, np.log2),
    "log1p": (POSITIVE, np.log1p),
    "exp2": (X, np.exp2),
    "sqrt": (POSITIVE, np.sqrt),
    "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x)),
    "tanh": (X, np.tanh),
    "sigmoid": (X, special.expit),
    "erf": (X, special.erf),
    "sin": (X, np.sin),
    "cos": (X, np.cos),
    "tan": (SMALL, np.tan),
    "sinh": (X, np.sinh),
    "cosh": (X, np.cosh),
    "asin": (SMALL, np.arcsin),
    "acos": (SMALL, np.arccos),
    "atan": (X, np.arctan),
    "floor": (X * 3, np.floor),
    "ceil": (X * 3, np.ceil),
    "trunc": (X * 3, np.trunc),
    "round": (X * 3, np.round),
    "reciprocal": (POSITIVE, lambda x: 1 / x),
    "abs": (X, np.abs),
    "negative": (X, np.negative),
    "square": (X, np.square),
    "sign": (X, np.sign),
    "logical_not": (TRUTH, np.logical_not),
    "isnan": (np.array([1.0, np.nan, np.inf], "float32"), np.isnan),
    "nn.relu": (X, lambda x: np.maximum(x, 0)),
    "nn.gelu": (X, lambda x: 0.5 * x * (1 + special.erf(x / np.sqrt(2)))),
    "nn.gelu_tanh": (
        X,
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "nn.silu": (X, lambda x: x * special.expit(x)),
    "nn.leaky_relu": (X, lambda x: np.where(x > 0, x, 0.01 * x)),
    "nn.relu6": (X * 5, lambda x: np.clip(x, 0, 6)),
    "nn.softplus": (X, lambda x: np.log1p(np.exp(x))),
    "nn.hard_sigmoid": (X * 3, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "nn.hard_swish": (X * 3, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "nn.dropout": (X, lambda x: (x, np.ones_like(x))),
    "nn.softmax": (X, lambda x: special.softmax(x, -1)),
    "nn.log_softmax": (X, lambda x: special.log_softmax(x, -1)),
}

BINARY: dict[str, tuple[np.ndarray, np.ndarray, Callable[..., Any]]] = {
    "add": (X, ROW, np.add),
    "subtract": (X, OTHER, np.subtract),
    "multiply": (ROW, X, np.multiply),
    "divide": (X, OTHER, np.divide),
    "floor_divide": (INTS, NONZERO, np.floor_divide),
    "floor_mod": (INTS, NONZERO, np.mod),
    "power": (POSITIVE, ROW, np.power),
    "maximum": (X, ROW, np.maximum),
    "minimum": (X, ROW, np.minimum),
    "equal": (INTS, NONZERO, np.equal),
    "not_equal": (INTS, NONZERO, np.not_equal),
    "less": (X, ROW, np.less),
    "less_equal": (INTS, NONZERO, np.less_equal),
    "greater": (X, ROW, np.greater),
    "greater_equal": (INTS, NONZERO, np.greater_equal),
    "logical_and": (TRUTH, ~TRUTH, np.logical_and),
    "logical_or": (TRUTH, ~TRUTH, np.logical_or),
}

REDUCE: dict[str, tuple[np.ndarray, Callable[..., Any]]] = {
    "sum": (X, np.sum),
    "mean": (X, np.mean),
    "max": (X, np.max),
    "min": (X, np.min),
    "prod": (X, np.prod),
    "variance": (X, np.var),
    "std": (X, np.std),
    "all": (TRUTH, np.all),
    "any": (TRUTH, np.any),
}

Case = tuple[Callable[..., Any], list[np.ndarray], Any]


def _norm(x: np.ndarray, axes: Any, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5) * g + b


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = None) -> np.ndarray:
    q, k, v = (a.transpose(0, 2, 1, 3) for a in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return (special.softmax(scores, -1) @ v).transpose(0, 2, 1, 3)


Q, K, V = random(1, 4, 2, 3), random(1, 4, 2, 3, seed=4), random(1, 4, 2, 3, seed=5)
IMAGE = random(2, 4, 6, 5)
INDEX = np.array([[0, 2], [1, 1]], "int64")
STATS = [random(4, seed=s) for s in (6, 7, 8)] + [np.abs(random(4, seed=9)) + 0.1]


def _batch_norm(x: np.ndarray, g: Any, b: Any, m: Any, v: Any) -> np.ndarray:
    g, b, m, v = (a.reshape(1, -1, 1, 1) for a in (g, b, m, v))
    return (x - m) / np.sqrt(v + 1e-5) * g + b


CASES: dict[str, Case] = {
    "astype": (lambda x: op.astype(x, "int32"), [X * 3], (X * 3).astype("int32")),
    "clip": (lambda x: op.clip(x, -0.5, 0.7), [X], np.clip(X, -0.5, 0.7)),
    "matmul": (op.matmul, [X, random(5, 4)], X @ random(5, 4)),
    "matmul_batch": (op.matmul, [random(2, 1, 3, 4), random(3, 4, 2)],
                     random(2, 1, 3, 4) @ random(3, 4, 2)),
    "matmul_vector": (op.matmul, [X, ROW], X @ ROW),
    "matmul_row": (op.matmul, [random(3), random(3, 4)], random(3) @ random(3, 4)),
    "matmul_transposed": (lambda a, b: op.matmul(a, b, transpose_b=True),
                          [X, random(4, 5)], X @ random(4, 5).T),
    "linear": (op.linear, [X, random(4, 5), random(4)], X @ random(4, 5).T + random(4)),
    "reshape": (lambda x: op.reshape(x, (5, -1)), [X], X.reshape(5, -1)),
    "flatten": (lambda x: op.flatten(x, 1), [X], X.reshape(2, -1)),
    "permute_dims": (lambda x: op.permute_dims(x, (2, 0, 1)), [X], X.transpose(2, 0, 1)),
    "permute_dims_reverse": (op.permute_dims, [X], X.T),
    "expand_dims": (lambda x: op.expand_dims(x, (0, -1)), [X], X[None, ..., None]),
    "squeeze": (op.squeeze, [random(2, 1, 3, 1)], random(2, 1, 3, 1).reshape(2, 3)),
    "broadcast_to": (lambda x: op.broadcast_to(x, (2, 3, 5)), [ROW],
                     np.broadcast_to(ROW, (2, 3, 5))),
    "concat": (lambda x, y: op.concat([x, y], 1), [X, OTHER], np.concatenate([X, OTHER], 1)),
    "stack": (lambda x, y: op.stack([x, y], -1), [X, OTHER], np.stack([X, OTHER], -1)),
    "split": (lambda x: op.split(x, 3, 1), [X], np.split(X, 3, 1)),
    "split_at": (lambda x: op.split(x, [1, 3], 2), [X], np.split(X, [1, 3], 2)),
    "strided_slice": (lambda x: op.strided_slice(x, [-1, 1], [-5, 0], [-1, 3], [2, 2]),
                      [X], X[:, 0:3:2, -5:-1:2]),
    "flip": (lambda x: op.flip(x, 1), [X], X[:, ::-1]),
    "repeat": (lambda x: op.repeat(x, 2, 1), [X], np.repeat(X, 2, 1)),
    "tile": (lambda x: op.tile(x, (2, 1, 3)), [X], np.tile(X, (2, 1, 3))),
    "take": (lambda x, i: op.take(x, i, 1), [X, INDEX], np.take(X, INDEX, 1)),
    "take_wrap": (lambda x, i: op.take(x, i, 2, "wrap"), [X, INDEX - 4],
                  np.take(X, INDEX - 4, 2, mode="wrap")),
    "where": (op.where, [TRUTH, X, ROW], np.where(TRUTH, X, ROW)),
    "where_numbers": (lambda c: op.where(c, relax.const(1.5), relax.const(2.5)), [TRUTH],
                      np.where(TRUTH, np.float32(1.5), np.float32(2.5))),
    "tril": (lambda x: op.tril(x, 1), [X], np.tril(X, 1)),
    "triu": (op.triu, [X], np.triu(X)),
    "zeros_like": (op.zeros_like, [X], np.zeros_like(X)),
    "arange": (lambda x: op.add(x, op.arange(5, dtype="float32")), [X], X + np.arange(5)),
    "argmax": (lambda x: op.argmax(x, 1), [X], X.argmax(1)),
    "argmin": (lambda x: op.argmin(x, -1, True), [X], X.argmin(-1, keepdims=True)),
    "sort": (lambda x: op.sort(x, 1), [X], np.sort(X, 1)),
    "argsort": (lambda x: op.argsort(x, -1, True), [X], np.argsort(-X, -1)),
    "topk": (lambda x: op.topk(x, 2, -1), [X],
             [-np.sort(-X, -1)[..., :2], np.argsort(-X, -1)[..., :2]]),
    "topk_least": (lambda x: op.topk(x, 2, 1, "indices", False), [X], np.argsort(X, 1)[:, :2]),
    "topk_all": (lambda x: op.topk(x, -1, 1, "values"), [X], -np.sort(-X, 1)),
    "layer_norm": (op.nn.layer_norm, [X, ROW, ROW * 2], _norm(X, -1, ROW, ROW * 2)),
    "rms_norm": (op.nn.rms_norm, [X, ROW],
                 X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-5) * ROW),
    "group_norm": (lambda x, g, b: op.nn.group_norm(x, g, b, 2, 1, [2, 3]), [IMAGE, *STATS[:2]],
                   _norm(IMAGE.reshape(2, 2, -1), -1, np.float32(1), np.float32(0))
                   .reshape(IMAGE.shape) * STATS[0].reshape(-1, 1, 1)
                   + STATS[1].reshape(-1, 1, 1)),
    "batch_norm": (lambda *x: op.nn.batch_norm(*x, 1, training=False)[0], [IMAGE, *STATS],
                   _batch_norm(IMAGE, *STATS)),
    "pad": (lambda x: op.nn.pad(x, (0, 0, 1, 2, 0, 1), "constant", 1.5), [X],
            np.pad(X, [(0, 0), (1, 2), (0, 1)], constant_values=1.5)),
    "attention": (op.nn.attention, [Q, K, V], _attention(Q, K, V)),
    "attention_causal": (lambda q, k, v: op.nn.attention(q, k, v, causal_mask=True), [Q, K, V],
                         _attention(Q, K, V, np.tril(np.ones((4, 4), bool)))),
    "composition": (lambda x: (x * 2 + 1) / 3 - x**2, [X], (X * 2 + 1) / 3 - X**2),
}  # fmt: skip
for _name, (_x, _oracle) in UNARY.items():
    _function = getattr(op.nn, _name[3:]) if _name.startswith("nn.") else getattr(op, _name)
    CASES[_name] = (_function, [_x], _oracle(_x))
for _name, (_x, _y, _oracle) in BINARY.items():
    CASES[_name] = (getattr(op, _name), [_x, _y], _oracle(_x, _y))
for _name, (_x, _oracle) in REDUCE.items():
    _f = getattr(op, _name)
    CASES[f"{_name}_all"] = (_f, [_x], _oracle(_x))
    CASES[f"{_name}_axis"] = (
        lambda x, f=_f: f(x, (0, -1), keepdims=True),
        [_x],
        _oracle(_x, axis=(0, 2), keepdims=True),
    )


def check(result: Any, expected: Any) -> None:
    if isinstance(expected, (list, tuple)):
        assert len(result) == len(expected)
        for a, b in zip(result, expected):
            check(a, b)
        return
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.shape == expected.shape
    assert result.dtype.kind == expected.dtype.kind
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_interpreted(name: str) -> None:
    body, arrays, expected = CASES[name]
    check(interpreter.run(graph_of(body, *arrays), *arrays), expected)


@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str) -> None:
    body, arrays, expected = CASES[name]
    check(relax.build(graph_of(body, *arrays), schedule=None)(*arrays), expected)


@pytest.mark.parametrize("name", CASES)
def test_folded(name: str) -> None:
    """Everything constant, nothing left to call."""
    body, arrays, expected = CASES[name]
    mod = graph(lambda: body(*map(relax.const, arrays)))
    for item in (
        relax.transform.DecomposeOpsForInference(
            ops=("nn.batch_norm", "nn.dropout", "nn.attention")
        ),
        relax.transform.FoldConstant(),
    ):
        mod = item(mod)
    check(interpreter.run(mod), expected)


def _torch_cases() -> dict[str, Any]:
    w, w1, dw = random(6, 4, 3, 3, seed=1), random(6, 2, 3, 3, seed=2), random(4, 1, 3, 3, seed=3)
    return {
        "conv2d": (lambda x, w: op.nn.conv2d(x, w, (2, 1), (1, 2)), [IMAGE, w],
                   lambda f, x, w: f.conv2d(x, w, None, (2, 1), (1, 2))),
        "conv2d_groups": (lambda x, w: op.nn.conv2d(x, w, 1, 1, 2, 2), [IMAGE, w1],
                          lambda f, x, w: f.conv2d(x, w, None, 1, 1, 2, 2)),
        "conv2d_depthwise": (lambda x, w: op.nn.conv2d(x, w, groups=4), [IMAGE, dw],
                             lambda f, x, w: f.conv2d(x, w, groups=4)),
        "conv1d": (lambda x, w: op.nn.conv1d(x, w, 2, 1), [random(2, 4, 9), random(3, 4, 3)],
                   lambda f, x, w: f.conv1d(x, w, None, 2, 1)),
        "conv3d": (lambda x, w: op.nn.conv3d(x, w, 1, 1), [random(1, 2, 4, 4, 4),
                                                           random(3, 2, 3, 3, 3)],
                   lambda f, x, w: f.conv3d(x, w, None, 1, 1)),
        "conv2d_transpose": (lambda x, w: op.nn.conv2d_transpose(x, w, 2, 1, 1),
                             [IMAGE, random(4, 3, 3, 3)],
                             lambda f, x, w: f.conv_transpose2d(x, w, None, 2, 1, 1)),
        "conv1d_transpose": (lambda x, w: op.nn.conv1d_transpose(x, w, 3, 1, 2, 2),
                             [random(2, 4, 9), random(4, 3, 4)],
                             lambda f, x, w: f.conv_transpose1d(x, w, None, 3, 1, 2, 1, 2)),
        "conv2d_transpose_groups": (
            lambda x, w: op.nn.conv2d_transpose(x, w, (2, 1), 0, 0, 1, 2),
            [IMAGE, random(4, 3, 2, 3)],
            lambda f, x, w: f.conv_transpose2d(x, w, None, (2, 1), 0, 0, 2)),
        "conv3d_transpose": (lambda x, w: op.nn.conv3d_transpose(x, w, 2, 1),
                             [random(1, 2, 3, 4, 5), random(2, 3, 3, 4, 2)],
                             lambda f, x, w: f.conv_transpose3d(x, w, None, 2, 1)),
        "max_pool3d": (lambda x: op.nn.max_pool3d(x, 2, 1, (1, 0, 1)), [random(1, 2, 3, 4, 5)],
                       lambda f, x: f.max_pool3d(x, 2, 1, (1, 0, 1))),
        "avg_pool1d": (lambda x: op.nn.avg_pool1d(x, 3, 2, 1, count_include_pad=False),
                       [random(2, 4, 9)],
                       lambda f, x: f.avg_pool1d(x, 3, 2, 1, count_include_pad=False)),
        "adaptive_max_pool2d": (lambda x: op.nn.adaptive_max_pool2d(x, (4, 3)), [IMAGE],
                                lambda f, x: f.adaptive_max_pool2d(x, (4, 3))),
        "max_pool2d": (lambda x: op.nn.max_pool2d(x, 3, 2, 1), [IMAGE],
                       lambda f, x: f.max_pool2d(x, 3, 2, 1)),
        "max_pool2d_ceil": (lambda x: op.nn.max_pool2d(x, 2, 2, 0, ceil_mode=True), [IMAGE],
                            lambda f, x: f.max_pool2d(x, 2, 2, 0, ceil_mode=True)),
        "avg_pool2d": (lambda x: op.nn.avg_pool2d(x, 3, 2, 1), [IMAGE],
                       lambda f, x: f.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
        "adaptive_avg_pool2d": (lambda x: op.nn.adaptive_avg_pool2d(x, (3, 1)), [IMAGE],
                                lambda f, x: f.adaptive_avg_pool2d(x, (3, 1))),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(_torch_cases()))
def test_against_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    body, arrays, oracle = _torch_cases()[name]
    expected = oracle(torch.nn.functional, *map(torch.from_numpy, arrays)).numpy()
    mod = graph_of(body, *arrays)
    assert tuple(int(e.value) for e in mod["main"].ret_struct_info.shape) == expected.shape
    np.testing.assert_allclose(
        np.asarray(relax.build(mod, schedule=None)(*arrays)), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: op.add(x, np.zeros((4,), "float32")), r"add\(.*\(2, 3, 5\).*do not broadcast"),
        (lambda x: op.add(x, np.zeros((5,), "float64")), "float32 and float64: convert one"),
        (lambda x: op.matmul(x, np.zeros((4, 2), "float32")), "inner extents differ: 5 against 4"),
        (lambda x: op.reshape(x, (7,)), "numbers of elements differ: 30 against 7"),
        (lambda x: op.reshape(x, (-1, 4)), "do not divide"),
        (lambda x: op.permute_dims(x, (0, 0, 1)), "no permutation"),
        (lambda x: op.sum(x, 3), "axis 3 is out of range for 3 dimensions"),
        (lambda x: op.concat([x, op.sum(x, 0)]), "3 and 2 dimensions"),
        (lambda x: op.split(x, 4, 2), "5 does not divide into 4 sections"),
        (lambda x: op.nn.conv2d(x, x), "data must have 4 dimensions, it has 3"),
        (
            lambda x: op.nn.conv1d_transpose(x, np.zeros((3, 2, 2), "float32"), 1, 0, 1),
            "output_padding 1 must be below stride 1",
        ),
        (
            lambda x: op.nn.conv1d_transpose(x, np.zeros((3, 2, 2), "float32"), groups=2),
            "3 input channels do not divide into 2 groups",
        ),
        (lambda x: op.nn.layer_norm(x, np.zeros(4, "float32")), "extent of gamma"),
        (lambda x: op.take(x, x, 0), "indices must be integers"),
        (lambda x: op.exp(op.astype(x, "int32")), "needs floating-point numbers, got int32"),
        (lambda x: op.nn.softmax(x, 5), "axis 5 is out of range"),
        (lambda x: op.add(x), "missing a required argument: 'x2'"),
    ],
)
def test_wrong_operands(body: Callable[..., Any], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        graph(body, tensor((2, 3, 5)))


def test_symbolic_extents() -> None:
    n = symbol("n")

    def body(x: Any, w: Any) -> Any:
        wide = op.concat([x, x], 0)
        return op.reshape(op.nn.softmax(op.matmul(wide, w)), (-1, 2))

    mod = graph(body, tensor((n, 4)), tensor((4, 6)))
    info = mod["main"].ret_struct_info
    assert repr(info) == "Tensor(((n * 6), 2), float32)"
    run = relax.build(mod, schedule=None)
    for size in (1, 3):
        x, w = random(size, 4), random(4, 6)
        expected = special.softmax(np.concatenate([x, x]) @ w, -1).reshape(-1, 2)
        check(run(x, w), expected)
        check(interpreter.run(mod, x, w), expected)


@pytest.mark.parametrize(
    "name", sorted(name for name, item in op.OPERATORS.items() if item.legalize)
)
def test_the_legalisation_takes_the_attributes_by_name(name: str) -> None:
    declared = op.OPERATORS.get(name)
    assert declared.legalize is not None
    taken = inspect.signature(declared.legalize)
    bound = taken.bind(*declared.operand_kinds, **dict.fromkeys(declared.attributes))
    named = {**bound.arguments, **bound.arguments.get("options", {})}
    assert named.keys() >= set(declared.attributes)
