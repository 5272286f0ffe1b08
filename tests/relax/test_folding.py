"""What is computed when a graph is compiled is what it would compute when run, bit by bit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.relax.helpers import graph, graph_of, random
from tests.relax.test_ops import CASES
from tilewright import relax
from tilewright.relax import op
from tilewright.relax.expr import ConstantData

SPECIAL = [0.0, -0.0, 1.5, -2.5, 1e9, -1e9, 3e38, np.inf, -np.inf, np.nan, 1e-40, 0.3]


def values(dtype: str, *shape: int) -> np.ndarray:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    size = int(np.prod(shape))
    rng = np.random.default_rng(0)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        some = rng.integers(limits.min, limits.max, size, dtype=kind, endpoint=True)
        edges = np.array([limits.min, limits.max, 0, 1], kind)[: max(size, 0)]
        some[: len(edges)] = edges
        return some.reshape(shape)
    with np.errstate(all="ignore"):
        numbers = np.resize([*SPECIAL, *rng.standard_normal(7) * 3], size)
        return numbers.reshape(shape).astype(kind)


def folded(body: Callable[..., Any], *arrays: np.ndarray) -> Any:
    mod = graph(lambda: body(*map(relax.const, arrays)))
    mod = relax.transform.DecomposeOpsForInference(
        ops=("nn.batch_norm", "nn.dropout", "nn.attention", "nn.group_norm")
    )(mod)
    made = relax.transform.CanonicalizeBindings()(relax.transform.FoldConstant()(mod))
    result = made["main"].body.body
    items = result.fields if isinstance(result, relax.Tuple) else [result]
    assert all(isinstance(item, relax.Constant) for item in items), made
    return [item.data for item in items]


def agree(body: Callable[..., Any], *arrays: np.ndarray) -> None:
    made = relax.build(graph_of(body, *arrays), schedule=None)(*arrays)
    expected = [np.asarray(item) for item in (made if isinstance(made, tuple) else [made])]
    for got, want in zip(folded(body, *arrays), expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        if got.dtype.kind not in "biu":
            got, want = got.astype("float64"), want.astype("float64")
            numbers = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))
        np.testing.assert_array_equal(got, want)


NO_CONSTANTS = ("arange", "zeros_like", "nn.dropout")


@pytest.mark.parametrize("name", [name for name in CASES if name not in NO_CONSTANTS])
def test_every_operator_folds_to_what_it_computes(name):
    body, arrays, _ = CASES[name]
    agree(body, *arrays)


FLOATS = ["float16", "bfloat16", "float32", "float64"]
UNARY = """
exp log log1p sqrt rsqrt tanh sigmoid erf floor ceil trunc round reciprocal abs negative square sign
isnan nn.relu nn.gelu nn.gelu_tanh nn.relu6 nn.softplus nn.hard_sigmoid nn.hard_swish nn.silu
nn.leaky_relu nn.softmax nn.log_softmax sum mean max min prod variance std argmax argmin cumsum
sort argsort
""".split()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_special_values_and_narrow_floats(name, dtype):
    agree(_named(name), values(dtype, 3, 19))


def _named(name: str) -> Any:
    found: Any = op
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("dtype", FLOATS)
def test_two_operands_of_special_values(dtype):
    a, b = values(dtype, 19), values(dtype, 19, 1)
    for name in ("divide", "floor_divide", "floor_mod", "mod", "power", "maximum", "minimum"):
        agree(getattr(op, name), a, b)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_integers_wrap_and_divide(dtype):
    a, b = values(dtype, 9), values(dtype, 9, 1)
    for name in ("add", "multiply", "divide", "floor_divide", "floor_mod", "mod", "less"):
        agree(getattr(op, name), a, b)
    agree(op.sum, a)
    agree(op.prod, a)


@pytest.mark.parametrize("target", ["int8", "uint8", "int32", "int64", "uint64", "bool", "float16"])
@pytest.mark.parametrize("source", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_conversions(source, target):
    agree(lambda x: op.astype(x, target), values(source, 19))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("axes", [(0,), (0, 1), (1, 2), (0, 2)])
def test_norms_over_any_axes(axes, dtype):
    x = random(4, 4, 4).astype(values(dtype, 1).dtype)
    scale = random(*[4] * len(axes), seed=1).astype(x.dtype)
    agree(lambda v, g: op.nn.rms_norm(v, g, axes), x, scale)
    agree(lambda v, g: op.nn.layer_norm(v, g, g, axes), x, scale)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,)])
def test_scalars_and_nothing(shape):
    x = values("float32", *shape)
    for body in (
        op.exp,
        lambda v: op.add(v, v),
        lambda v: op.astype(v, "int32"),
        op.sum,
        op.nn.relu,
    ):
        agree(body, x)
    agree(lambda v: op.reshape(v, (-1,)) if shape == () else op.sum(v, 0), x)
    agree(lambda v: op.expand_dims(v, 0), x)
    agree(lambda v: op.where(op.greater(v, v), v, v), x)


def test_looking_up():
    data, places = random(3, 5, 4), np.array([[[2, 0, 1, 1]]])
    agree(lambda x, i: op.gather_elements(x, i, 0), data, places)
    agree(lambda x, i: op.take(x, i, 1), data, np.array([0, 7, -2, 4]))
    agree(lambda x: op.topk(x, 2, 1), data)
    agree(lambda x: op.split(x, (1, 3), 1), data)
    agree(lambda x: op.layout_transform(x, lambda a, b, c: (c, a, b)), data)
    agree(lambda x: op.roll(x, (2, -1), (0, 2)), data)
    agree(lambda x: op.diagonal(x, -1, 0, 2), data)
    agree(lambda x: op.strided_slice(x, [0, 1], [2, 4], [-4, 0], [-1, -2]), data)


def test_only_moves_of_elements_have_a_second_formula():
    moves = (
        "broadcast_to concat diagonal expand_dims flip layout_transform permute_dims repeat "
        "reshape roll split squeeze strided_slice tile where"
    )
    have = [name for name, operator in op.OPERATORS.items() if operator.numpy is not None]
    assert sorted(have) == sorted(moves.split())


def test_much_work_is_scheduled():
    a, b = random(600, 300), random(300, 500, seed=1)
    (made,) = folded(op.matmul, a, b)
    np.testing.assert_allclose(made, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8"])
def test_moves_of_a_scalar_keep_its_shape(dtype: str) -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            value = relax.const(np.array(1, dtype))
            moved = relax.op.permute_dims(relax.op.broadcast_to(value, ()), ())
            out = builder.emit_output(moved)
        builder.emit_func_output(out)
    made = relax.build(builder.get())["main"]().numpy()
    assert made.shape == () and made == 1 and made.dtype == dtype


def test_one_function_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    module = sys.modules["tilewright.relax.transform.fold_constant"]
    real = module.compile_module

    def compile_module(mod: object, target: object) -> object:
        made.append(mod)
        return real(mod, target)

    monkeypatch.setattr(module, "compile_module", compile_module)
    parts = [np.full(4, number, "float32") for number in (1, 4, 9)]
    (found,) = folded(lambda *x: op.concat([op.sqrt(part) for part in x], 0), *parts)
    np.testing.assert_array_equal(found, np.repeat(np.float32([1, 2, 3]), 4))
    assert len(made) == 1


def test_large_constants_are_moved_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = ConstantData.compute
    monkeypatch.setattr(ConstantData, "compute", lambda data: made.append(data) or real(data))
    weights = np.arange(1 << 14, dtype="float32").reshape(128, 128)
    mod = graph_of(lambda x: op.matmul(x, op.permute_dims(relax.const(weights))), weights)
    mod = relax.transform.FoldConstant()(mod)
    assert not made
    product = next(b.value for b in mod["main"].bindings if len(getattr(b.value, "args", ())) == 2)
    np.testing.assert_array_equal(product.args[1].data, weights.T)


@pytest.fixture
def legalised(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Calls of operators on constants for which tensor functions are made."""
    made: list[object] = []
    module = sys.modules["tilewright.relax.transform.fold_constant"]
    real = module.legalize_call

    def legalize_call(builder: object, call: object, **options: object) -> object:
        made.append(call)
        return real(builder, call, **options)

    monkeypatch.setattr(module, "legalize_call", legalize_call)
    return made


def test_a_repeated_call_is_legalised_once(legalised: list[object]) -> None:
    parts = [np.float32([number, 2]) for number in (1, 4, 9)]

    def total(*x: Any) -> Any:
        summed = [op.subtract(op.sqrt(part), part) for part in x]
        return op.concat([*summed, op.subtract(x[1], op.sqrt(x[1]))], 0)

    (found,) = folded(total, *parts)
    want = [np.sqrt(part) - part for part in parts]
    np.testing.assert_array_equal(found, np.concatenate([*want, -want[1]]))
    assert len(legalised) == 2  # sqrt and subtract, of two such arrays


def test_repeated_calls_with_numbers_and_with_one_operand_twice(legalised: list[object]) -> None:
    x, y = np.float32([1, 4, 9]), np.float32([5, 6, 8])
    half, two = np.array(0.5, "float32"), np.array(2, "float32")

    def total(x: Any, y: Any, half: Any, two: Any) -> Any:
        parts = [
            op.divide(x, half),
            op.divide(y, half),
            op.divide(y, two),
            op.divide(two, y),
            op.divide(x, x),
            op.divide(x, y),
            op.divide(y, x),
        ]
        return op.concat(parts, 0)

    (found,) = folded(total, x, y, half, two)
    want = [x / half, y / half, y / two, two / y, x / x, x / y, y / x]
    np.testing.assert_array_equal(found, np.concatenate(want))
    assert len(legalised) == 5  # all but y / half and y / x


def test_repeated_calls_with_attributes_that_only_compare_equal() -> None:
    x = np.float32([-1, 2])

    def total(x: Any) -> Any:
        return op.concat([op.nn.leakyrelu(x, 0.0), op.nn.leakyrelu(x, -0.0)], 0)

    (found,) = folded(total, x)
    assert np.signbit(found).tolist() == [True, False, False, False]


def test_tensors_from_nothing_are_folded_where_they_meet_constants() -> None:
    part = random(2, 4)

    def joined(table: Any) -> Any:
        blank = op.strided_slice(op.full((4, 4), 0.5), [0], [2], [4])
        rows = op.arange(2, -1, -1, "int64")
        return op.take(op.concat([table, blank], 0), rows, 0)

    (found,) = folded(joined, part)
    np.testing.assert_array_equal(found, np.concatenate([part, np.full((1, 4), 0.5)])[::-1])

    def scaled(x: Any) -> Any:
        return op.multiply(x, op.add(op.arange(0, 4, dtype="float32"), op.full((4,), 1.0)))

    kept = relax.transform.FoldConstant()(graph_of(scaled, part))
    assert not any(
        isinstance(item, relax.Constant) for item in kept["main"].bindings[-1].value.args
    )
