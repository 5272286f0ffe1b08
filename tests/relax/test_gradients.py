"""Gradients of operators against PyTorch's, and against central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, random, symbol, tensor
from tilewright import relax
from tilewright.ir import IRModule, as_int
from tilewright.relax import gradients, interpreter, op
from tilewright.relax.transform import Gradient
from tilewright.support.errors import VerifyError

torch = pytest.importorskip("torch")
F = torch.nn.functional

Body = Callable[..., Any]


def loss_of(body: Body, infos: Sequence[relax.StructInfo]) -> tuple[IRModule, list[relax.Var]]:
    """A module whose ``main`` gives the sum of ``body`` times its last parameter."""
    params = [relax.Var(f"x{n}", info) for n, info in enumerate(infos)]
    builder = relax.BlockBuilder()
    weight = relax.Var("weight", body(*params).struct_info)
    with builder.function("main", [*params, weight]):
        with builder.dataflow():
            out = builder.emit_output(op.sum(op.multiply(body(*params), weight)))
        builder.emit_func_output(out)
    return builder.get(), params


def floats(arrays: Sequence[np.ndarray]) -> list[int]:
    return [n for n, array in enumerate(arrays) if array.dtype.kind == "f"]


def found_gradients(
    body: Body, arrays: Sequence[np.ndarray], *, compiled: bool = False, seed: int = 9
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The weight of the loss, and the gradients of all operands that are floats."""
    infos = [tensor(array.shape, array.dtype.name) for array in arrays]
    mod, params = loss_of(body, infos)
    mod = Gradient("main", [params[n] for n in floats(arrays)])(mod)
    relax.verify_graph(mod)
    shape = [as_int(extent) for extent in mod["main"].params[-1].struct_info.shape]
    weight = random(*shape, seed=seed, dtype=mod["main"].params[-1].struct_info.dtype)
    _, found = interpreter.run(mod, *arrays, weight, name="main_adjoint")
    if compiled:
        _, again = relax.as_numpy(relax.build(mod)["main_adjoint"](*arrays, weight))
        for a, b in zip(found, again):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    return weight, list(found)


def check_with_torch(
    body: Body, reference: Body, arrays: Sequence[np.ndarray], *, compiled: bool = False
) -> None:
    weight, found = found_gradients(body, arrays, compiled=compiled)
    leaves = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    torch.sum(reference(*leaves) * torch.tensor(weight)).backward()
    expected = [leaf.grad for leaf in leaves if leaf.requires_grad]
    assert len(found) == len(expected)
    for got, wanted, array in zip(found, expected, [a for a in arrays if a.dtype.kind == "f"]):
        assert got.shape == array.shape
        assert got.dtype == array.dtype
        wanted = np.zeros(array.shape, array.dtype) if wanted is None else wanted.numpy()
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.abs(random(*shape, seed=seed)) + 0.2


ROWS = random(3, 4)
UNARY: dict[str, tuple[Body, np.ndarray]] = {
    **{
        name: (getattr(torch, name), ROWS)
        for name in (
            "exp", "exp2", "tanh", "sigmoid", "erf", "sin", "cos", "tan", "sinh", "cosh", "atan",
            "abs", "square", "negative",
        )
    },
    **{
        name: (getattr(torch, name), positive(3, 4))
        for name in ("log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal")
    },
    "asin": (torch.asin, np.tanh(ROWS)),
    "acos": (torch.acos, np.tanh(ROWS)),
    "nn.relu": (F.relu, np.array([-1, -0.0, 0, 2, np.inf], "float32")),
    "nn.relu6": (F.relu6, np.array([-1, 0, 3, 6, 7], "float32")),
    "nn.gelu": (F.gelu, ROWS),
    "nn.gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), ROWS),
    "nn.silu": (F.silu, ROWS),
    "nn.softplus": (F.softplus, ROWS),
    "nn.leaky_relu": (F.leaky_relu, ROWS),
    "nn.hard_sigmoid": (F.hardsigmoid, ROWS * 3),
    "nn.hard_swish": (F.hardswish, ROWS * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(UNARY))
def test_operators_on_one_tensor(name: str) -> None:
    reference, x = UNARY[name]
    check_with_torch(op.get_op(name).build, reference, [x])


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 1), (2, 1, 4)), ((), (2, 3)),
                                    ((1, 4), (0, 4)), ((1,), (1, 1))], ids=str)  # fmt: skip
def test_two_operands_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = positive(*shapes[0]), positive(*shapes[1], seed=1)
    pairs = {
        "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div,
        "power": torch.pow, "maximum": torch.maximum, "minimum": torch.minimum,
        "floor_mod": torch.remainder, "mod": torch.fmod,
    }  # fmt: skip
    check_with_torch(
        lambda a, b: sum((getattr(op, name)(a, b) for name in pairs), start=relax.const(0.0)),
        lambda a, b: sum(function(a, b) for function in pairs.values()),
        [a, b],
    )


def test_ties_and_zeros() -> None:
    a, b = np.array([1, 2, 0, 0, 3], "float32"), np.array([1, 3, 0, 2, 2], "float32")
    for ours, reference in ((op.maximum, torch.maximum), (op.power, torch.pow)):
        check_with_torch(ours, reference, [a, b])
    x = np.array([[2, 2, 1], [0, 0, 0]], "float32")
    check_with_torch(lambda x: op.max(x, 1), lambda x: torch.amax(x, 1), [x])
    for ours, reference in ((op.prod, torch.prod), (op.cumprod, torch.cumprod)):
        for row in ([2, 0, 3, 0, 5], [0, 1, 2, 3, 4], [1, 2, 3, 4, 0]):
            values = np.array(row, "float32")[None]
            check_with_torch(
                lambda x, f=ours: f(x, 1),
                lambda x, f=reference: f(x, 1),
                [values],
            )
    check_with_torch(lambda x: op.clip(x, 1, 2), lambda x: torch.clamp(x, 1, 2), [a])


def test_one_value_used_repeatedly() -> None:
    def body(x: Any) -> Any:
        y = op.multiply(x, x)
        return op.add(op.concat([y, x, y], 0), op.concat([x, x, op.matmul(x, x)], 0))

    def reference(x: Any) -> Any:
        y = x * x
        return torch.cat([y, x, y]) + torch.cat([x, x, x @ x])

    check_with_torch(body, reference, [random(3, 3)])


def _axes(name: str, axis: Any, keepdims: bool) -> Body:
    return lambda x: getattr(op, name)(x, axis, keepdims)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 1, (0, -1)])
def test_reductions(axis: Any, keepdims: bool) -> None:
    x = random(2, 3, 4)
    all_axes = (0, 1, 2) if axis is None else axis
    for name, reference in (
        ("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax), ("min", torch.amin),
    ):  # fmt: skip
        check_with_torch(
            _axes(name, axis, keepdims), lambda x, f=reference: f(x, all_axes, keepdims), [x]
        )
    for name in ("variance", "std"):
        reference = torch.var if name == "variance" else torch.std
        check_with_torch(
            _axes(name, axis, keepdims),
            lambda x, f=reference: f(x, dim=all_axes, correction=0, keepdim=keepdims),
            [x],
        )


def test_products_over_several_axes() -> None:
    x = random(2, 3, 4)
    check_with_torch(
        lambda x: op.prod(x, (0, 2)), lambda x: x.permute(1, 0, 2).reshape(3, 8).prod(1), [x]
    )
    check_with_torch(op.prod, torch.prod, [x])


MOVES: dict[str, tuple[Body, Body, list[np.ndarray]]] = {
    "reshape": (lambda x: op.reshape(x, (4, -1)), lambda x: x.reshape(4, -1), [ROWS]),
    "permute": (lambda x: op.permute_dims(x, (2, 0, 1)), lambda x: x.permute(2, 0, 1),
                [random(2, 3, 4)]),
    "broadcast_to": (lambda x: op.broadcast_to(x, (2, 3, 4)), lambda x: x.expand(2, 3, 4),
                     [random(3, 1)]),
    "broadcast to nothing": (lambda x: op.broadcast_to(x, (0, 4)), lambda x: x.expand(0, 4),
                             [random(1, 4)]),
    "concat": (lambda x, y: op.concat([x, y, x], -1), lambda x, y: torch.cat([x, y, x], -1),
               [random(2, 3), random(2, 0)]),
    "split": (lambda x: op.split(x, (1, 3), 1)[1], lambda x: x[:, 1:3], [random(2, 5)]),
    "slice": (lambda x: op.strided_slice(x, [0, 1], [1, 0], [9, -1], [2, 3]),
              lambda x: x[1:9:2, 0:-1:3], [random(6, 8)]),
    "slice of nothing": (lambda x: op.strided_slice(x, [0], [2], [2], [2]), lambda x: x[2:2:2],
                         [random(6, 2)]),
    "pad": (lambda x: op.nn.pad(x, (0, 1, 2, 3), pad_value=7.0),
            lambda x: F.pad(x, (2, 3, 0, 1), value=7.0),
            [ROWS]),
    "flip": (lambda x: op.flip(x, 1), lambda x: x.flip(1), [ROWS]),
    "repeat": (lambda x: op.repeat(x, 3, 1), lambda x: x.repeat_interleave(3, 1), [ROWS]),
    "repeat flat": (lambda x: op.repeat(x, 2), lambda x: x.repeat_interleave(2), [ROWS]),
    "tile": (lambda x: op.tile(x, (2, 1, 3)), lambda x: x.tile((2, 1, 3)), [ROWS]),
    "tile fewer": (lambda x: op.tile(x, (3,)), lambda x: x.tile((3,)), [ROWS]),
    "tril": (lambda x: op.tril(x, 1), lambda x: x.tril(1), [ROWS]),
    "triu": (lambda x: op.triu(x, -1), lambda x: x.triu(-1), [ROWS]),
    "where": (op.where, torch.where,
              [random(3, 4) > 0, random(4), random(3, 1)]),
    "take": (lambda x, i: op.take(x, i, 1), lambda x, i: x[:, i],
             [ROWS, np.array([[1, 1], [0, 3]])]),
    "gather": (lambda x, i: op.gather_elements(x, i, 1), lambda x, i: x.gather(1, i),
               [ROWS, np.array([[1, 1], [0, 3]])]),
    "cumsum": (lambda x: op.cumsum(x, 0), lambda x: x.cumsum(0), [ROWS]),
    "cumsum flat": (op.cumsum, lambda x: x.flatten().cumsum(0), [ROWS]),
    "cumprod": (lambda x: op.cumprod(x, 1), lambda x: x.cumprod(1), [ROWS]),
    "sort": (lambda x: op.sort(x, 0, True), lambda x: x.sort(0, True)[0], [ROWS]),
    "topk": (lambda x: op.topk(x, 2, 1)[0], lambda x: x.topk(2, 1)[0], [ROWS]),
    "topk of values": (lambda x: op.topk(x, 2, 0, "values", False),
                       lambda x: x.topk(2, 0, False)[0], [ROWS]),
    "softmax": (lambda x: op.nn.softmax(x, 0), lambda x: x.softmax(0), [ROWS]),
    "log_softmax": (op.nn.log_softmax, lambda x: x.log_softmax(-1), [ROWS]),
    "through an integer": (lambda x: x + op.astype(op.astype(x, "int32"), "float32"),
                           lambda x: x + x.int().float(), [ROWS]),
    "to another float": (lambda x: op.astype(op.astype(x, "float64"), "float32"), lambda x: x * 1,
                         [ROWS]),
    "stopped": (lambda x: x * op.grad.no_grad(x), lambda x: x * x.detach(), [ROWS]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MOVES))
def test_moves_and_rows(name: str) -> None:
    ours, reference, arrays = MOVES[name]
    check_with_torch(ours, reference, arrays)


PRODUCTS = [((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)),
            ((2, 1, 3, 4), (5, 4, 2)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((0, 4), (4, 2)),
            ((1,), (2, 1, 3)), ((1, 3), (3, 1))]  # fmt: skip


@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_products(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check_with_torch(op.matmul, torch.matmul, [random(*shapes[0]), random(*shapes[1], seed=1)])


def test_products_of_transposed_operands() -> None:
    for left in ((3, 4), (2, 3, 4), (4,)):
        check_with_torch(
            lambda x, w: op.matmul(x, w, transpose_b=True), lambda x, w: x @ w.T,
            [random(*left), random(5, 4, seed=1)],
        )  # fmt: skip


CONVOLUTIONS: dict[str, tuple[Body, Body, list[tuple[int, ...]]]] = {
    "1d": (lambda x, w: op.nn.conv1d(x, w, 2, 1, 2), lambda x, w: F.conv1d(x, w, None, 2, 1, 2),
           [(2, 3, 9), (4, 3, 3)]),
    "2d": (lambda x, w: op.nn.conv2d(x, w, (2, 1), 1), lambda x, w: F.conv2d(x, w, None, (2, 1), 1),
           [(2, 3, 6, 5), (4, 3, 3, 2)]),
    "groups": (lambda x, w: op.nn.conv2d(x, w, 2, 0, 1, 2),
               lambda x, w: F.conv2d(x, w, None, 2, 0, 1, 2), [(2, 4, 5, 6), (6, 2, 2, 2)]),
    "depthwise": (lambda x, w: op.nn.conv2d(x, w, 1, 1, 1, 3),
                  lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 3), [(1, 3, 4, 4), (3, 1, 3, 3)]),
    "3d": (lambda x, w: op.nn.conv3d(x, w, 2), lambda x, w: F.conv3d(x, w, None, 2),
           [(1, 2, 4, 3, 3), (2, 2, 2, 1, 2)]),
    "1d transposed": (lambda x, w: op.nn.conv1d_transpose(x, w, 2, 1, 1),
                      lambda x, w: F.conv_transpose1d(x, w, None, 2, 1, 1), [(2, 3, 4), (3, 2, 3)]),
    "2d transposed": (lambda x, w: op.nn.conv2d_transpose(x, w, 2, 1, 0, 1, 2),
                      lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 0, 2),
                      [(2, 4, 3, 4), (4, 3, 3, 2)]),
    "max_pool1d": (lambda x: op.nn.max_pool1d(x, 2, 2), lambda x: F.max_pool1d(x, 2, 2),
                   [(2, 3, 5)]),
    "max_pool2d": (lambda x: op.nn.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1),
                   [(1, 2, 6, 5)]),
    "avg_pool2d": (lambda x: op.nn.avg_pool2d(x, 3, 2, 1),
                   lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), [(1, 2, 6, 5)]),
    "avg_pool3d": (lambda x: op.nn.avg_pool3d(x, 2, 1), lambda x: F.avg_pool3d(x, 2, 1),
                   [(1, 2, 3, 3, 2)]),
    "adaptive to one": (lambda x: op.nn.adaptive_avg_pool2d(x, 1),
                        lambda x: F.adaptive_avg_pool2d(x, 1), [(2, 3, 4, 5)]),
    "adaptive": (lambda x: op.nn.adaptive_avg_pool2d(x, (2, 3)),
                 lambda x: F.adaptive_avg_pool2d(x, (2, 3)), [(2, 3, 5, 4)]),
    "adaptive max": (lambda x: op.nn.adaptive_max_pool2d(x, (2, 3)),
                     lambda x: F.adaptive_max_pool2d(x, (2, 3)), [(1, 2, 5, 4)]),
    "adaptive max 3d": (lambda x: op.nn.adaptive_max_pool3d(x, (2, 1, 2)),
                        lambda x: F.adaptive_max_pool3d(x, (2, 1, 2)), [(1, 2, 3, 2, 4)]),
    "layer_norm": (lambda x, g, b: op.nn.layer_norm(x, g, b),
                   lambda x, g, b: F.layer_norm(x, (5,), g, b), [(2, 3, 5), (5,), (5,)]),
    "layer_norm of axes": (lambda x, g: op.nn.layer_norm(x, g, axes=(1, 2)),
                           lambda x, g: F.layer_norm(x, (3, 5), g), [(2, 3, 5), (3, 5)]),
    "rms_norm": (lambda x, g: op.nn.rms_norm(x, g), lambda x, g: F.rms_norm(x, (5,), g, 1e-5),
                 [(2, 3, 5), (5,)]),
    "group_norm": (lambda x, g, b: op.nn.group_norm(x, g, b, 2, 1, [2]),
                   lambda x, g, b: F.group_norm(x, 2, g, b), [(2, 4, 3), (4,), (4,)]),
    "batch_norm": (lambda x, g, b: op.nn.batch_norm(x, g, b, g, op.exp(b), training=False)[0],
                   lambda x, g, b: (x - g[:, None]) * torch.rsqrt(b.exp() + 1e-5)[:, None]
                   * g[:, None] + b[:, None], [(2, 4, 3), (4,), (4,)]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONVOLUTIONS))
def test_networks(name: str) -> None:
    ours, reference, shapes = CONVOLUTIONS[name]
    check_with_torch(ours, reference, [random(*shape, seed=n) for n, shape in enumerate(shapes)])


def _sdpa(q: Any, k: Any, v: Any, *mask: Any, **options: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, *mask, **options)


def test_attention() -> None:
    q, k, v = random(2, 4, 3, 5), random(2, 2, 3, 5, seed=1), random(2, 2, 3, 6, seed=2)
    ours = op.nn.scaled_dot_product_attention
    check_with_torch(
        lambda q, k, v: ours(q, k, v, causal_mask="TopLeft"),
        lambda q, k, v: _sdpa(q, k, v, is_causal=True, enable_gqa=True), [q, k, v],
    )  # fmt: skip
    near = np.tril(np.ones((3, 3), bool)) & ~np.tril(np.ones((3, 3), bool), -2)
    check_with_torch(
        lambda q, k, v: ours(q, k, v, causal_mask="TopLeft", window_size=2),
        lambda q, k, v: _sdpa(q, k, v, torch.tensor(near), enable_gqa=True), [q, k, v],
    )  # fmt: skip
    bias = random(3, 3, seed=3)
    check_with_torch(
        ours, lambda q, k, v, m: _sdpa(q, k, v, m, enable_gqa=True), [q, k, v, bias]
    )  # fmt: skip
    seen = np.array([[True, False, True], [False, False, False], [True, True, True]])
    _, found = found_gradients(ours, [q, k, v, seen])
    assert all(np.isfinite(item).all() for item in found)
    assert not found[0][:, :, 1].any()  # of a query that sees nothing
    t = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, q + 1, q * 2)]
    check_with_torch(
        op.nn.attention, lambda *x: _sdpa(*(y.transpose(1, 2) for y in x)).transpose(1, 2), t
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(reduction: str) -> None:
    x, at, weights = random(3, 4, 2), np.array([[0, 3], [1, 1], [2, 0]]), positive(4)
    scale = torch.tensor(weights)
    check_with_torch(
        lambda x, i: op.nn.nll_loss(op.nn.log_softmax(x, 1), i, relax.const(weights), reduction, 3),
        lambda x, i: F.cross_entropy(x, i, scale, reduction=reduction, ignore_index=3), [x, at],
    )  # fmt: skip


def test_central_differences() -> None:
    """Without PyTorch, in double precision."""

    def body(x: Any, w: Any) -> Any:
        made = op.matmul(op.cumprod(x, 1), w)
        return op.nn.silu(op.nn.rms_norm(made, op.take(w, relax.const(0), 1)))

    arrays = [random(2, 3, dtype="float64"), random(3, 3, seed=1, dtype="float64")]
    weight, found = found_gradients(body, arrays)
    mod, _ = loss_of(body, [tensor(a.shape, "float64") for a in arrays])
    for array, gradient in zip(arrays, found):
        for place in np.ndindex(array.shape):
            sides = []
            kept = array[place]
            for step in (1e-6, -1e-6):
                array[place] = kept + step
                sides.append(float(interpreter.run(mod, *arrays, weight)))
            array[place] = kept
            assert abs((sides[0] - sides[1]) / 2e-6 - gradient[place]) < 1e-6


def test_every_operator_has_a_gradient_or_a_reason() -> None:
    reasons = {
        "assert_op", "assert_tensor", "call_dps", "call_dps_packed", "call_inplace_packed",
        "call_with_objects", "dequantize", "null_value", "quantize",
        "call_packed",
        "call_pure_packed", "call_tir", "call_tir_inplace", "digamma", "image.resize_by_mode",
        "invoke_closure", "nn.append_paged_kv", "nn.paged_attention",
        "print",
    }  # fmt: skip
    for name, item in op.OPERATORS.items():
        known = name in gradients.GRADIENTS or name in gradients.DECOMPOSITIONS
        if not known and item.decompose is None and not name.startswith(("memory.", "vision.")):
            assert name in reasons, name


def test_symbolic_sizes() -> None:
    n, m = symbol("n"), symbol("m")
    infos = [tensor((n, 4, m)), tensor((4, 3))]

    def body(x: Any, w: Any) -> Any:
        rows = op.permute_dims(op.concat([x, x], 0), (0, 2, 1))
        y = op.matmul(rows, w) + op.mean(rows, 1, keepdims=True) * 0.5 @ w
        return op.nn.softmax(op.strided_slice(op.nn.relu(y), [1], [0], [2]), 1)

    def reference(x: Any, w: Any) -> Any:
        rows = torch.cat([x, x]).permute(0, 2, 1)
        y = rows @ w + rows.mean(1, keepdim=True) * 0.5 @ w
        return y.relu()[:, :2].softmax(1)

    mod, params = loss_of(body, infos)
    mod = Gradient("main", params)(mod)
    relax.verify_graph(mod)
    built = relax.build(mod)
    for size in ((1, 1), (2, 3)):
        x, w = random(size[0], 4, size[1]), random(4, 3, seed=1)
        leaves = [torch.tensor(a, requires_grad=True) for a in (x, w)]
        y = reference(*leaves)
        weight = random(*y.shape, seed=2)
        torch.sum(y * torch.tensor(weight)).backward()
        for found in (
            interpreter.run(mod, x, w, weight, name="main_adjoint"),
            built["main_adjoint"](x, w, weight),
        ):
            for got, leaf in zip(found[1], leaves):
                np.testing.assert_allclose(np.asarray(got), leaf.grad, rtol=2e-4, atol=2e-5)


# ---- the pass --------------------------------------------------------------------------------


def scalar(body: Body, *infos: relax.StructInfo) -> IRModule:
    return graph(lambda *x: op.sum(body(*x)), *infos)


def test_gradients_of_tuples_and_of_one_result() -> None:
    pair = relax.TupleStructInfo((tensor((3,)), relax.TupleStructInfo((tensor((3,)),))))
    p, x = relax.Var("p", pair), relax.Var("x", tensor((3,)))
    builder = relax.BlockBuilder()
    with builder.function("main", [p, x]):
        with builder.dataflow():
            inner = builder.emit(p[1])
            both = builder.emit(relax.Tuple((builder.emit(p[0]), builder.emit(inner[0]))))
            product = builder.emit(both[0] * both[1])
            used = builder.emit_output(op.sum(product * both[0]))
            other = builder.emit_output(op.exp(x))
        builder.emit_func_output(relax.Tuple((other, used)))
    mod = Gradient("main", target_index=1)(builder.get())
    relax.verify_graph(mod)
    a, b, c = random(3), random(3, seed=1), random(3, seed=2)
    function = mod["main_adjoint"]
    assert repr(function.ret_struct_info.fields[1].fields[0]) == repr(pair)
    flat = [relax.Var(name, tensor((3,))) for name in "abc"]
    call = relax.BlockBuilder(mod)
    with call.function("flat", flat):
        nested = relax.Tuple((flat[0], relax.Tuple((flat[1],))))
        call.emit_func_output(call.emit_call("main_adjoint", nested, flat[2]))
    _, ((for_a, (for_b,)), for_c) = interpreter.run(call.get(), a, b, c, name="flat")
    np.testing.assert_allclose(for_a, 2 * a * b, rtol=1e-5)
    np.testing.assert_allclose(for_b, a * a, rtol=1e-5)
    assert not for_c.any()


def test_gradients_of_constants_and_parameters_that_are_results() -> None:
    x = relax.Var("x", tensor(()))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    found = interpreter.run(Gradient("main")(builder.get()), np.float32(3), name="main_adjoint")
    assert [np.asarray(item).tolist() for item in (found[0], *found[1])] == [3.0, 1.0]
    constant = relax.BlockBuilder()
    with constant.function("main", [relax.Var("x", tensor((2,)))]):
        constant.emit_func_output(relax.const(1.0))
    _, (zero,) = interpreter.run(Gradient("main")(constant.get()), random(2), name="main_adjoint")
    assert zero.tolist() == [0, 0]


def test_casts_at_run_time_are_passed() -> None:
    x = relax.Var("x", tensor((symbol("n"), 2)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        cast = builder.match_cast(x, tensor((3, 2)))
        builder.emit_func_output(op.sum(cast * cast))
    mod = Gradient("main")(builder.get())
    relax.verify_graph(mod)
    values = random(3, 2)
    _, (found,) = relax.as_numpy(relax.build(mod)["main_adjoint"](values))
    np.testing.assert_allclose(found, 2 * values, rtol=1e-5)


def test_second_derivatives() -> None:
    mod = scalar(lambda x: op.exp(x * x), tensor((3,)))
    once = Gradient("main")(mod)
    x = relax.Var("x", tensor((3,)))
    builder = relax.BlockBuilder(relax.transform.InlineFunctions()(once))
    with builder.function("slope", [x]):
        with builder.dataflow():
            pair = builder.emit_call("main_adjoint", x)
            inner = builder.emit(pair[1])
            out = builder.emit_output(op.sum(builder.emit(inner[0])))
        builder.emit_func_output(out)
    inlined = relax.transform.InlineFunctions()(builder.get())
    twice = Gradient("slope")(inlined)
    values = random(3)
    _, (found,) = interpreter.run(twice, values, name="slope_adjoint")
    expected = np.exp(values**2) * (2 + 4 * values**2)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_the_pass_refuses() -> None:
    plain = scalar(lambda x: x * x, tensor((3,)))
    integers = scalar(lambda x, i: op.take(x, i, 0), tensor((3,)), tensor((2,), "int64"))
    vector = graph(lambda x: op.exp(x), tensor((3,)))
    gamma = scalar(lambda x: op.digamma(x), tensor((3,)))
    called = relax.BlockBuilder(plain)
    param = relax.Var("x", tensor((3,)))
    with called.function("caller", [param]):
        called.emit_func_output(called.emit_call("main", param))
    first = plain["main"].params[0]
    for mod, options, message in (
        (plain, {"require_grads": relax.Var("x", tensor((3,)))}, "x is no parameter of main"),
        (plain, {"require_grads": [first, first]}, "names a parameter twice"),
        (plain, {"target_index": 1}, "target_index is 1, but main has 1 results"),
        (integers, {}, r"parameter y of main has no gradient, it is Tensor\(\(2,\), int64\)"),
        (vector, {}, "not a floating-point number"),
        (gamma, {}, "digamma has no gradient.*register_gradient adds one"),
        (called.get(), {"func_name": "caller"}, "run relax.transform.InlineFunctions first"),
    ):
        with pytest.raises(VerifyError, match=message):
            Gradient(**{"func_name": "main", **options})(mod)


def test_rules_can_be_added_and_replaced() -> None:
    with pytest.raises(VerifyError, match="operator exp has a gradient; override=True"):
        gradients.register_gradient("relax.exp", lambda var, call, grad, ctx: [grad])
    kept = gradients.GRADIENTS["exp"]
    try:
        gradients.register_gradient("exp", lambda *_: [None, None], override=True)
        with pytest.raises(VerifyError, match="one item for each of its 1 arguments, it has 2"):
            Gradient("main")(scalar(op.exp, tensor((3,))))
    finally:
        gradients.register_gradient("exp", kept, override=True)
