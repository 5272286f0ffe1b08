"""Passes that change what is computed where: joined products, half floats, lifted weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import agree, graph, graph_of, random, shown, symbol, tensor, values
from tilewright import relax
from tilewright.ir import IRModule
from tilewright.relax import interpreter, op
from tilewright.relax import transform as t
from tilewright.support.errors import VerifyError

# ---- products that share an operand ---------------------------------------------------------


def test_parallel_products_are_joined() -> None:
    arrays = [random(3, 4), random(4, 2), random(4, 5, seed=1), random(4, 3, seed=2)]

    def body(x: Any, q: Any, k: Any, v: Any) -> Any:
        return op.concat([op.matmul(x, q), op.exp(op.matmul(x, k)), op.matmul(x, v)], 1)

    mod = graph_of(body, *arrays)
    assert values(mod).count("matmul") == 3
    made = t.CombineParallelMatmul()(mod)
    assert values(made)[:3] == ["concat", "matmul", "split"]
    assert values(made).count("matmul") == 1
    agree(mod, made, *arrays)
    assert t.CombineParallelMatmul()(made) is made


@pytest.mark.parametrize("activation", [None, op.nn.relu, op.nn.silu])
def test_biases_and_activations_are_joined(activation: Any) -> None:
    arrays = [random(2, 3, 4), random(4, 2), random(4, 5, seed=1), random(2), random(5, seed=1)]

    def branch(x: Any, w: Any, b: Any) -> Any:
        made = op.add(b, op.matmul(x, w))
        return made if activation is None else activation(made)

    mod = graph_of(lambda x, v, w, a, b: op.concat([branch(x, v, a), branch(x, w, b)], 2), *arrays)
    made = t.CombineParallelMatmul()(mod)
    expected = ["concat", "matmul", "concat", "add", *(["x"] if activation else []), "split"]
    assert len(values(made)) == len(expected) + 3
    assert values(made).count("add") == 1
    agree(mod, made, *arrays)


def test_weights_as_rows_batches_and_symbolic_rows() -> None:
    n = symbol("n")

    def rows(x: Any, v: Any, w: Any) -> Any:
        first, second = (op.matmul(x, weight, transpose_b=True) for weight in (v, w))
        return op.concat([first, second], 1)

    mod = graph(rows, tensor((n, 4)), tensor((2, 4)), tensor((3, 4)))
    made = t.CombineParallelMatmul()(mod)
    assert values(made) == ["concat", "matmul", "split", "TupleGetItem", "TupleGetItem", "concat"]
    agree(mod, made, random(5, 4), random(2, 4), random(3, 4))
    mod = graph(
        lambda x, v, w: op.concat([op.matmul(x, v), op.matmul(x, w)], 2),
        tensor((n, 3, 4)), tensor((n, 4, 2)), tensor((n, 4, 3)),
    )  # fmt: skip
    made = t.CombineParallelMatmul()(mod)
    assert values(made).count("matmul") == 1
    agree(mod, made, random(2, 3, 4), random(2, 4, 2), random(2, 4, 3))


@pytest.mark.parametrize(
    ("body", "infos"),
    [
        # Other rows, a vector, columns of unknown number, two operands, a weight that depends.
        (lambda x, v, w: (op.matmul(x, v), op.matmul(x, w)), [(4,), (4, 2), (4,)]),
        (lambda x, v, w: (op.matmul(x, v), op.matmul(x, w)), [(2, 4), (4, 2), (1, 4, 2)]),
        (lambda x, v, w: (op.matmul(x, v), op.matmul(x, w)), [(2, 4), (4, "n"), (4, "n")]),
        (lambda x, v, w: (op.matmul(x, v), op.matmul(w, v)), [(2, 4), (4, 4), (2, 4)]),
        (lambda x, v, w: op.matmul(x, op.matmul(x, w)), [(4, 4), (4, 4), (4, 4)]),
    ],
)  # fmt: skip
def test_products_that_stay(body: Any, infos: Any) -> None:
    n = symbol("n")
    shapes = [tensor([n if extent == "n" else extent for extent in shape]) for shape in infos]

    def total(*params: Any) -> Any:
        made = body(*params)
        return op.sum(made) if not isinstance(made, tuple) else op.add(*map(op.sum, made))

    mod = graph(total, *shapes)
    assert t.CombineParallelMatmul()(mod) is mod


def test_a_weight_made_late_comes_first() -> None:
    arrays = [random(2, 4), random(4, 3), random(4, 5)]
    mod = graph_of(
        lambda x, v, w: op.concat([op.exp(op.matmul(x, v)), op.matmul(x, op.tanh(w))], 1), *arrays
    )
    made = t.CombineParallelMatmul()(mod)
    assert values(made)[:3] == ["tanh", "concat", "matmul"]
    agree(mod, made, *arrays)


def test_check_decides() -> None:
    seen = []

    def check(x: Any, weights: Any, biases: Any, bindings: Any) -> bool:
        seen.append((x.name, [w.name for w in weights], len(biases), len(bindings)))
        return False

    mod = graph(
        lambda x, v, w: op.concat([op.matmul(x, v), op.matmul(x, w)], 1),
        tensor((2, 4)), tensor((4, 2)), tensor((4, 3)),
    )  # fmt: skip
    assert t.CombineParallelMatmul(check)(mod) is mod
    assert seen == [("x", ["y", "z"], 0, 3)]


# ---- half floats ----------------------------------------------------------------------------


def dtypes_of(mod: IRModule) -> list[str]:
    return [
        f"{name} {b.var.struct_info.dtype}"
        for b, name in zip(mod["main"].bindings, values(mod))
        if name != "astype"
    ]


def test_mixed_precision() -> None:
    arrays = [random(4, 8), random(8, 8, seed=1), random(8, seed=2), random(8, 8, seed=3)]

    def body(x: Any, v: Any, b: Any, w: Any) -> Any:
        hidden = op.nn.relu(op.add(op.matmul(x, v), b))
        return op.nn.softmax(op.matmul(hidden, w))

    mod = graph_of(body, *arrays)
    made = t.ToMixedPrecision()(mod)
    assert dtypes_of(made) == [
        "matmul float32", "add float16", "nn.relu float16", "matmul float32", "nn.softmax float32",
    ]  # fmt: skip
    agree(mod, made, *arrays, tolerance=1e-2)
    half = t.ToMixedPrecision("float16", ["y", "w"])(mod)
    assert dtypes_of(half)[0] == "matmul float16"
    assert [p.struct_info.dtype for p in half["main"].params] == [
        "float32", "float16", "float32", "float16",
    ]  # fmt: skip
    relax.verify_graph(half)
    inputs = [arrays[0], arrays[1].astype("float16"), arrays[2], arrays[3].astype("float16")]
    have = interpreter.run(half, *inputs)
    assert have.dtype == np.float32
    np.testing.assert_allclose(have, interpreter.run(mod, *arrays), atol=2e-2)


def test_what_is_delicate_stays_in_single_precision() -> None:
    def body(x: Any, w: Any) -> Any:
        norm = op.exp(x)  # computed in float32: the sum below may not lose its digits
        return op.add(norm, op.matmul(x, w))

    arrays = [random(4, 4), random(4, 4, seed=1)]
    mod = graph_of(body, *arrays)
    made = t.ToMixedPrecision()(mod)
    assert dtypes_of(made) == ["exp float32", "matmul float32", "add float32"]
    agree(mod, made, *arrays, tolerance=1e-2)
    for dtype in ("float64", "float16"):
        other = graph(op.matmul, tensor((4, 4), dtype), tensor((4, 4), dtype))
        assert t.ToMixedPrecision()(other) is other
    ids = graph(lambda i, w: op.take(w, i, 0), tensor((3,), "int64"), tensor((4, 2)))
    assert t.ToMixedPrecision()(ids) is ids


def test_mixed_precision_of_tuples_and_convolutions() -> None:
    x, w = random(1, 3, 6, 6), random(4, 3, 3, 3, seed=1)

    def body(x: Any, w: Any) -> Any:
        made = op.nn.conv2d(x, w, padding=1)
        parts = op.split(made, 2, 1)
        joined = op.concat([parts[1], op.nn.relu(parts[0])], 1)
        return op.mean(joined, [2, 3])

    mod = graph_of(body, x, w)
    made = t.ToMixedPrecision()(mod)
    assert "mean float32" in [
        f"{n} {b.var.struct_info.dtype}"
        for n, b in zip(values(made), made["main"].bindings)
        if n == "mean"
    ]
    agree(mod, made, x, w, tolerance=2e-2)
    symbolic = graph(lambda x, w: op.nn.relu(op.matmul(x, w)),
                     tensor((symbol("n"), 4)), tensor((4, 4)))  # fmt: skip
    agree(symbolic, t.ToMixedPrecision()(symbolic), random(3, 4), random(4, 4), tolerance=1e-2)


@pytest.mark.parametrize("number", [-1e9, 1e-9])
def test_numbers_that_are_no_halves_stay(number: float) -> None:
    row = np.array([0, number, 0, 0], np.float32)
    for body in (
        lambda x, w: op.nn.softmax(op.add(op.matmul(x, w), relax.const(np.float32(number)))),
        lambda x, w: op.nn.softmax(op.multiply(op.matmul(x, w), relax.const(row))),
        lambda x, w: op.nn.softmax(op.nn.pad(op.matmul(x, w), [0, 1, 0, 0], pad_value=number)),
        lambda x, w: op.add(op.divide(op.matmul(x, w), relax.const(np.float32(number))), x),
    ):
        mod = graph(body, tensor((4, 4)), tensor((4, 4)))
        x, w = random(4, 4), random(4, 4, seed=1)
        want, have = (relax.interpreter.run(m, x, w) for m in (mod, t.ToMixedPrecision()(mod)))
        np.testing.assert_allclose(have, want, rtol=1e-2, atol=np.abs(want).max() * 1e-2)


def test_mixed_precision_refuses() -> None:
    with pytest.raises(VerifyError, match="out_dtype must be float32 or float16, got 'bfloat16'"):
        t.ToMixedPrecision("bfloat16")
    mod = graph(op.exp, tensor((4,)))
    with pytest.raises(VerifyError, match="no graph function has a parameter 'q'"):
        t.ToMixedPrecision(fp16_input_names=["q"])(mod)


# ---- symbolic extents -----------------------------------------------------------------------


def test_symbolic_extents_become_numbers() -> None:
    n, m = symbol("n"), symbol("m")
    mod = graph(
        lambda x, y: op.reshape(op.add(op.exp(x), y), (n * m,)), tensor((n, m)), tensor((1, m))
    )
    made = t.BindSymbolicVars({"n": 2, m: 3})(mod)
    assert made["main"].params[0].struct_info.shape[0].value == 2
    assert made["main"].ret_struct_info.shape[0].value == 6
    agree(mod, made, random(2, 3), random(1, 3))
    partly = t.BindSymbolicVars({"m": 3}, "main")(mod)
    assert partly["main"].params[0].struct_info.shape[0] is n
    agree(mod, partly, random(2, 3), random(1, 3))
    for binding_map, message in (
        ({"k": 1}, "has no symbolic extent 'k'"),
        ({"n": 2.5}, "must be an integer, got 2.5"),
        ({"n": -1}, "has the extent -1, less than nothing"),
        ({"n": 2, n: 3}, "bound to 2 and to 3"),
    ):
        with pytest.raises(VerifyError, match=message):
            t.BindSymbolicVars(binding_map)(mod)  # type: ignore[arg-type]
    twice = graph(lambda x, y: op.sum(x) + op.sum(y),
                  tensor((symbol("n"),)), tensor((symbol("n"),)))  # fmt: skip
    with pytest.raises(VerifyError, match="2 symbolic extents named 'n'"):
        t.BindSymbolicVars({"n": 1})(twice)


# ---- weights --------------------------------------------------------------------------------


def with_inputs(mod: IRModule, count: int, name: str = "main") -> IRModule:
    return mod.with_function(name, mod[name].with_attr("num_input", count))


def dense(x: Any, w: Any, b: Any) -> Any:
    return op.add(op.matmul(op.exp(x), op.permute_dims(op.exp(w))), op.exp(b))


def test_transformations_of_weights_are_lifted() -> None:
    arrays = [random(2, 4), random(3, 4), random(3)]
    mod = with_inputs(graph_of(dense, *arrays), 1)
    made = t.LiftTransformParams()(mod)
    relax.verify_graph(made)
    assert shown(made, "main_transform_params")[:4] == [
        "y = params[0]", "z = params[1]", "lv1 = exp(y)", "lv2 = permute_dims(lv1)",
    ]  # fmt: skip
    assert shown(made)[:2] == ["lv = exp(x)", "lv3 = matmul(lv, lv2)"]
    weights = (np.exp(arrays[1]).T, np.exp(arrays[2]))
    np.testing.assert_allclose(
        interpreter.run(made, arrays[0], *weights), interpreter.run(mod, *arrays), rtol=1e-5
    )
    assert made["main"].attrs["num_input"] == 1
    plain = graph_of(dense, *arrays)
    assert t.LiftTransformParams()(plain) is plain


def test_functions_share_a_transformation() -> None:
    infos = [tensor((2, 4)), tensor((3, 4)), tensor((3,))]
    mod = with_inputs(graph(dense, *infos), 1)
    other = graph(lambda x, w, b: op.matmul(x, op.permute_dims(op.exp(w))), *infos)["main"]
    mod = with_inputs(mod.with_function("decode", other), 1, "decode")
    made = t.LiftTransformParams(shared_transform=True)(mod)
    relax.verify_graph(made)
    assert set(made.functions) == {"main", "decode", "transform_params"}
    assert values(made, "transform_params").count("permute_dims") == 1
    assert [len(made[name].params) for name in ("main", "decode")] == [3, 3]
    only = t.LiftTransformParams(shared_transform=["decode"])(mod)
    assert set(only.functions) == {"main", "decode", "transform_params", "main_transform_params"}
    with pytest.raises(VerifyError, match="'no' is no graph function with the attribute"):
        t.LiftTransformParams(shared_transform=["no"])(mod)
    wide = graph(dense, tensor((2, 4)), tensor((5, 4)), tensor((5,)))["main"]
    with pytest.raises(VerifyError, match="share a transformation, but their weights differ"):
        t.LiftTransformParams(True)(with_inputs(mod.with_function("decode", wide), 1, "decode"))


def test_what_is_not_lifted() -> None:
    n = symbol("n")
    mod = with_inputs(graph(lambda x, w: op.add(op.exp(w), x), tensor(()), tensor((n,))), 1)
    assert t.LiftTransformParams()(mod) is mod  # its extent is the call's
    mod = with_inputs(graph(lambda x, w: op.add(op.exp(x), w), tensor((4,)), tensor((4,))), 1)
    assert t.LiftTransformParams()(mod) is mod
    with pytest.raises(VerifyError, match="num_input must be from 0 to 2"):
        t.LiftTransformParams()(with_inputs(mod, 3))


def test_a_weight_and_its_transformation_are_both_passed() -> None:
    arrays = [random(4), random(4)]
    mod = with_inputs(graph_of(lambda x, w: op.add(op.exp(w), op.multiply(x, w)), *arrays), 1)
    made = t.LiftTransformParams()(mod)
    relax.verify_graph(made)
    result = made["main_transform_params"].body.body.struct_info
    assert len(result.fields) == 2
    by_name = {"lv": np.exp(arrays[1]), "y": arrays[1]}
    inputs = [by_name[param.name] for param in made["main"].params[1:]]
    np.testing.assert_allclose(
        interpreter.run(made, arrays[0], *inputs), interpreter.run(mod, *arrays), rtol=1e-5
    )


def test_weights_become_one_tuple() -> None:
    arrays = [random(2, 4), random(3, 4), random(3)]
    mod = with_inputs(graph_of(dense, *arrays), 1)
    made = t.BundleModelParams()(mod)
    relax.verify_graph(made)
    assert [param.name for param in made["main"].params] == ["x", "model_params"]
    assert shown(made)[:2] == ["y = model_params[0]", "z = model_params[1]"]
    assert t.BundleModelParams()(made) is made
    assert t.BundleModelParams("all")(mod)["main"].params[1].name == "all"
    with pytest.raises(VerifyError, match="a parameter is named 'x' already"):
        t.BundleModelParams("x")(mod)
    passed = with_inputs(graph(lambda x, w: w, tensor((4,)), tensor((symbol("n"),))), 1)
    relax.verify_graph(t.BundleModelParams()(passed))
