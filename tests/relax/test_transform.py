"""Passes on graphs: structure after each, and the same numbers as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, graph_of, random, symbol, tensor, values
from tilewright import relax
from tilewright.ir import IRModule, Sequential, structural_equal, structural_hash
from tilewright.relax import interpreter, op
from tilewright.relax import transform as t
from tilewright.support.errors import LowerError, VerifyError
from tilewright.tir import PrimFunc

LEGALIZE = Sequential([t.LegalizeOps(), t.CanonicalizeBindings(), t.AnnotateTIROpPattern()])
FUSE = Sequential([LEGALIZE, t.FuseOps(), t.FuseTIR(), t.DeadCodeElimination()])


def kernels(mod: IRModule) -> list[str]:
    return values(mod)


def agree(before: IRModule, after: IRModule, *arrays: np.ndarray) -> None:
    relax.verify_graph(after)
    want, have = interpreter.run(before, *arrays), interpreter.run(after, *arrays)
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def pattern_of(body: Any, *infos: Any) -> t.OpPattern:
    mod = t.LegalizeOps()(graph(body, *infos))
    (func,) = [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
    return t.analyze_pattern(func)


@pytest.mark.parametrize(
    ("body", "infos", "expected"),
    [
        (op.exp, [(4, 5)], t.OpPattern.ELEMENTWISE),
        (op.add, [(4, 5), (4, 5)], t.OpPattern.ELEMENTWISE),
        (op.add, [(4, 5), (5,)], t.OpPattern.BROADCAST),
        (op.add, [(4, 5), (4, 1)], t.OpPattern.BROADCAST),
        (op.permute_dims, [(4, 5)], t.OpPattern.INJECTIVE),
        (lambda x: op.reshape(x, (20,)), [(4, 5)], t.OpPattern.INJECTIVE),
        (lambda x: op.sum(x, 1), [(4, 5)], t.OpPattern.REDUCTION),
        (op.matmul, [(4, 5), (5, 6)], t.OpPattern.OUTPUT_FUSABLE),
        (lambda x, w: op.nn.conv2d(x, w, 1, 1), [(1, 3, 8, 8), (4, 3, 3, 3)],
         t.OpPattern.OUTPUT_FUSABLE),
        (op.nn.softmax, [(4, 5)], t.OpPattern.OUTPUT_FUSABLE),
        (lambda x: op.split(x, 2), [(4, 5)], t.OpPattern.OPAQUE),
    ],
)  # fmt: skip
def test_patterns(body: Any, infos: list[Any], expected: t.OpPattern) -> None:
    assert pattern_of(body, *map(tensor, infos)) == expected


def test_contraction_takes_what_follows() -> None:
    arrays = [random(4, 5), random(5, 6), random(6)]
    mod = graph_of(lambda x, w, b: op.nn.relu(op.add(op.matmul(x, w), b)), *arrays)
    made = FUSE(mod)
    assert kernels(made) == ["fused_matmul_add_relu"]
    assert set(made.functions) == {"main", "fused_matmul_add_relu"}
    func = made["fused_matmul_add_relu"]
    assert [block.name for block in func.root.alloc_buffers] == ["matmul", "add"]
    agree(mod, made, *arrays)


def test_elementwise_chain_and_diamond_join() -> None:
    x = random(4, 5)

    def body(a: Any) -> Any:
        left = op.exp(a)  # one expression object used twice is bound once
        return op.nn.relu(op.add(op.negative(left), op.square(left)))

    mod = graph_of(body, x)
    assert kernels(mod).count("exp") == 1
    made = FUSE(mod)
    assert kernels(made) == ["fused_exp_negative_square_add_relu"]
    agree(mod, made, x)


def test_elementwise_joins_a_reduction_after_it() -> None:
    x = random(4, 5)
    mod = graph_of(lambda a: op.sum(op.exp(a), 1), x)
    made = FUSE(mod)
    assert kernels(made) == ["fused_exp_sum"]
    agree(mod, made, x)


def test_nothing_joins_backwards_into_a_contraction() -> None:
    arrays = [random(4, 5), random(5, 6)]
    made = FUSE(graph_of(lambda x, w: op.matmul(op.nn.relu(x), w), *arrays))
    assert kernels(made) == ["relu", "matmul"]


def test_residual_fuses_into_the_second_contraction() -> None:
    arrays = [random(4, 4), random(4, 4), random(4, 4, seed=1)]

    def body(x: Any, v: Any, w: Any) -> Any:
        hidden = op.nn.relu(op.matmul(x, v))
        return op.nn.relu(op.matmul(hidden, w) + x)

    mod = graph_of(body, *arrays)
    made = FUSE(mod)
    assert kernels(made) == ["fused_matmul_relu", "fused_matmul_add_relu"]
    agree(mod, made, *arrays)


def test_norms_take_what_makes_their_operand() -> None:
    arrays = [random(5, 8), random(5, 8, seed=1), random(8, seed=2)]

    def norm(x: Any, y: Any, weight: Any) -> Any:
        z = op.exp(x + y)
        return z * op.rsqrt(op.mean(z * z, -1, keepdims=True) + 1e-6) * weight

    for body, expected in (
        (norm, ["fused_add_exp_multiply_mean_add_rsqrt_multiply_multiply"]),
        (lambda x, y, _: op.nn.softmax(x * y), ["fused_multiply_softmax"]),
        # A product reads each element often: what makes its operand stays apart.
        (lambda x, y, _: op.matmul(op.exp(x), op.permute_dims(y)), ["exp", "matmul"]),
    ):
        mod = graph_of(body, *arrays)
        made = Sequential([t.FuseTransposeMatmul(), t.DeadCodeElimination(), FUSE])(mod)
        assert kernels(made) == expected
        agree(mod, made, *arrays)


def test_two_users_of_a_contraction_keep_it_apart() -> None:
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", tensor((4, 4))), relax.Var("w", tensor((4, 4)))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            product = builder.emit(op.matmul(x, w))
            a = builder.emit_output(op.exp(product))
            b = builder.emit_output(op.sum(product, 0))
        builder.emit_func_output((a, b))
    made = FUSE(builder.get())
    assert kernels(made) == ["matmul", "exp", "sum"]


def test_equal_operators_share_one_function() -> None:
    mod = graph(lambda x, w: op.matmul(op.matmul(x, w), w), tensor((4, 4)), tensor((4, 4)))
    made = LEGALIZE(mod)
    assert kernels(made) == ["matmul", "matmul"]
    assert len(made.functions) == 2


def test_fused_symbolic_functions() -> None:
    n = symbol("n")
    mod = graph(
        lambda x: op.nn.relu(op.reshape(op.concat([x, x], 0), (2, -1)) * 2.0), tensor((n, 3))
    )
    made = relax.get_pipeline("zero")(mod)
    for size in (1, 4):
        agree(mod, made, random(size, 3))
        run = relax.build(mod, schedule=None)
        want = interpreter.run(mod, random(size, 3))
        np.testing.assert_allclose(run(random(size, 3)), want, rtol=1e-6)


def test_fold_constant() -> None:
    w = random(6, 4)
    mod = graph(lambda x: op.matmul(x, op.permute_dims(relax.const(w)) * 2.0), tensor((3, 4)))
    made = Sequential([t.FoldConstant(), t.DeadCodeElimination()])(mod)
    assert kernels(made) == ["matmul"]
    np.testing.assert_array_equal(made["main"].bindings[0].value.args[1].data, w.T * 2)


def test_fold_constant_keeps_what_would_grow() -> None:
    mod = graph(lambda x: x + op.broadcast_to(relax.const(1.0), (512, 512)), tensor((512, 512)))
    assert kernels(t.FoldConstant()(mod)) == ["broadcast_to", "add"]


def test_fold_constant_runs_what_numpy_does_not_know() -> None:
    x, w = random(1, 2, 5, 5), random(3, 2, 3, 3)
    mod = graph(lambda: op.nn.conv2d(relax.const(x), relax.const(w)))
    expected = interpreter.run(mod)
    for made in (t.FoldConstant()(mod), t.FoldConstant()(t.LegalizeOps()(mod))):
        made = t.CanonicalizeBindings()(made)
        assert not kernels(made)
        np.testing.assert_allclose(made["main"].body.body.data, expected, rtol=1e-5, atol=1e-6)


def test_a_graph_that_was_fused_stays_as_it_is() -> None:
    mod = relax.get_pipeline("zero")(
        graph(lambda x: op.nn.softmax(op.nn.softmax(x)), tensor((3, 4)))
    )
    assert kernels(mod) == ["softmax", "softmax"]
    scheduled = mod.with_function("softmax", mod["softmax"].with_attr("tir.is_scheduled", 1))
    assert t.analyze_pattern(scheduled["softmax"]) == t.OpPattern.OPAQUE
    assert t.FuseOps()(scheduled) is scheduled


def test_batch_norm_folds_into_convolution() -> None:
    x = random(1, 3, 6, 6)
    w, stats = random(4, 3, 3, 3), [random(4, seed=s) for s in range(3)]
    stats.append(np.abs(random(4, seed=3)) + 0.5)
    mod = graph(
        lambda x: op.nn.relu(
            op.nn.batch_norm(op.nn.conv2d(x, w, 1, 1), *map(relax.const, stats), training=False)[0]
        ),
        tensor(x.shape),
    )
    made = relax.get_pipeline("zero")(mod)
    assert kernels(made) == ["fused_conv2d_add_relu"]
    agree(mod, made, x)


def test_factors_of_a_normalisation_are_computed_before_the_convolution_that_uses_them() -> None:
    arrays = [random(1, 3, 6, 6), random(4, 3, 3, 3), *(random(4, seed=s) for s in range(3))]
    arrays.append(np.abs(random(4, seed=3)) + 0.5)
    mod = graph_of(
        lambda x, w, *stats: op.nn.relu(
            op.nn.batch_norm(op.nn.conv2d(x, w, 1, 1), *stats, training=False)[0]
        ),
        *arrays,
    )
    made = FUSE(t.DecomposeOpsForInference()(mod))
    *before, last = kernels(made)
    assert last.startswith("fused_conv2d_") and "sqrt" not in last, kernels(made)
    assert any("sqrt" in name for name in before)
    agree(mod, made, *arrays)


def test_transpose_fuses_into_matmul() -> None:
    arrays = [random(3, 4), random(5, 4)]
    mod = graph_of(op.linear, *arrays)
    made = Sequential([t.FuseTransposeMatmul(), t.DeadCodeElimination()])(mod)
    assert kernels(made) == ["matmul"]
    assert made["main"].bindings[0].value.attrs["transpose_b"]
    agree(mod, made, *arrays)


def test_dead_code() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((4,)))
    with builder.function("main", [x]):
        with builder.dataflow():
            unused = builder.emit(op.exp(x))
            builder.emit(op.log(unused))
            out = builder.emit_output(op.negative(x))
        builder.emit_func_output(out)
    mod = t.LegalizeOps()(builder.get())
    assert len(mod.functions) == 4
    made = t.DeadCodeElimination()(mod)
    assert kernels(made) == ["negative"]
    assert set(made.functions) == {"main", "negative"}
    assert t.DeadCodeElimination()(made) is made


def test_canonicalize() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((4,)))
    with builder.function("main", [x]):
        with builder.dataflow():
            alias = builder.emit(x)
            both = builder.emit(relax.Tuple((alias, x)))
            lv = builder.emit(op.exp(both[0]))
            out = builder.emit_output(lv)
        builder.emit_func_output(out)
    made = t.CanonicalizeBindings()(builder.get())
    (binding,) = made["main"].bindings
    assert binding.value.args[0] is x and binding.var.name == "gv"
    relax.verify_graph(made)


def test_bind_params() -> None:
    n, m = symbol("n"), symbol("m")
    mod = graph(lambda x, y: op.matmul(x, y), tensor((n, m)), tensor((m, 3)))
    y = random(4, 3)
    made = t.BindParams("main", {"y": y})(mod)
    assert [p.name for p in made["main"].params] == ["x"]
    assert repr(made["main"].params[0].struct_info) == "Tensor((n, 4), float32)"
    x = random(2, 4)
    np.testing.assert_allclose(interpreter.run(made, x), x @ y, rtol=1e-5)
    with pytest.raises(VerifyError, match="no parameter 'w'"):
        t.BindParams("main", {"w": y})(mod)
    with pytest.raises(VerifyError, match=r"got an array of float64"):
        t.BindParams("main", {"y": y.astype("float64")})(mod)


def test_custom_legalization() -> None:
    mod = graph(op.exp, tensor((4,)))
    custom = {"relax.exp": lambda builder, call: op.square(call.args[0])}
    assert kernels(t.LegalizeOps(custom)(mod)) == ["square"]
    assert kernels(t.LegalizeOps(skip_ops=["relax.exp"])(mod)) == ["exp"]


def test_memory_is_shared() -> None:
    x = random(64, 64)

    def body(a: Any) -> Any:
        for _ in range(6):
            a = op.nn.softmax(op.matmul(a, a))
        return a

    mod = relax.get_pipeline("zero")(graph_of(body, x))
    planned = Sequential([t.CallTIRRewrite(), t.StaticPlanBlockMemory()])(mod)
    first = planned["main"].bindings[0].value
    assert first.op_name == "memory.workspace"
    assert first.args[0].value.value == 2 * 64 * 64 * 4
    # The result keeps memory of its own.
    assert values(planned).count("memory.empty") == 1


def test_results_have_memory_of_their_own() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((2, 3)))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.exp(x))
            flat = builder.emit_output(op.reshape(y, (6,)))
        builder.emit_func_output((y, x, flat, y, relax.const(np.float32(3))))
    array = random(2, 3)
    results = relax.build(builder.get(), schedule=None)(array)
    expected = (np.exp(array), array, np.exp(array).reshape(6), np.exp(array), np.float32(3))
    pointers = {result.data_ptr() for result in results}
    assert len(pointers) == 5
    for result, want in zip(results, expected):
        np.testing.assert_allclose(result, want, rtol=1e-6)


def test_reshapes_are_views() -> None:
    x = random(4, 6)
    mod = graph_of(lambda a: op.nn.softmax(op.reshape(op.nn.softmax(a), (6, 4))), x)
    made = Sequential([relax.get_pipeline("zero"), t.CallTIRRewrite()])(mod)
    assert "memory.view" in values(made)
    np.testing.assert_allclose(
        relax.build(mod, schedule=None)(x), interpreter.run(mod, x), rtol=1e-6
    )


def test_unlowered_operators_are_named() -> None:
    with pytest.raises(LowerError, match="exp is not a tensor function yet"):
        t.CallTIRRewrite()(graph(op.exp, tensor((4,))))


def test_hash_is_stable_and_ignores_names() -> None:
    def make(name: str) -> IRModule:
        return graph(
            lambda x: op.matmul(x, relax.const(np.ones((4, 4), "float32"))),
            tensor((symbol(name), 4)),
            names=name,
        )

    a, b = make("p"), make("q")
    assert structural_equal(a, b) and structural_hash(a) == structural_hash(b)
    c = graph(
        lambda x: op.matmul(x, relax.const(np.zeros((4, 4), "float32"))), tensor((symbol("n"), 4))
    )
    assert not structural_equal(a, c)
    assert structural_equal(a, c, ignore_ndarray=True)
    assert structural_hash(a, ignore_ndarray=True) == structural_hash(c, ignore_ndarray=True)
