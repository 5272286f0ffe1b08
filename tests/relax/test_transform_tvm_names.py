"""Passes that users of TVM call by name: batch normalisation, names, weights one by one."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tests.relax.helpers import agree, graph, graph_of, random, tensor, values
from tilewright import relax
from tilewright.ir import GLOBAL_SYMBOL, GlobalVar, IRModule, PassContext
from tilewright.relax import interpreter, op
from tilewright.relax import transform as t
from tilewright.support.errors import VerifyError


def normalised(layout: str, kernel: str, *, training: bool = False, **options: bool) -> IRModule:
    channels = layout.find("C")
    shape, filters = [2, 5, 5, 5], [3, 3, 3, 3]
    shape[channels], filters[kernel.find("O")], filters[kernel.find("I")] = 4, 6, 4
    stats = [relax.const(random(6, seed=n)) for n in range(3)]
    var = relax.const(np.abs(random(6, seed=4)) + 0.5)

    def body(x: relax.Var) -> relax.Expr:
        conv = op.nn.conv2d(
            x, relax.const(random(*filters)), data_layout=layout, kernel_layout=kernel
        )
        made = op.nn.batch_norm(
            conv, *stats, var, axis=channels, training=training, epsilon=1e-3, **options
        )
        return made[0]

    return graph_of(body, random(*shape))


@pytest.mark.parametrize("layouts", [("NCHW", "OIHW")])
@pytest.mark.parametrize("options", [{}, {"scale": False}, {"center": False}])
def test_batch_norms_fold_into_filters(layouts: tuple[str, str], options: dict[str, bool]) -> None:
    mod = normalised(*layouts, **options)
    made = t.FoldBatchnormToConv2D()(mod)
    assert "nn.batch_norm" not in values(made)
    info = mod["main"].params[0].struct_info
    agree(mod, made, random(*(int(str(n)) for n in info.shape), seed=9), tolerance=1e-4)
    folded = t.DeadCodeElimination()(t.FoldConstant()(made))
    assert [name for name in values(folded) if name != "Constant"] == ["nn.conv2d", "add"]


def test_batch_norms_that_stay() -> None:
    mod = normalised("NCHW", "OIHW", training=True)
    assert t.FoldBatchnormToConv2D()(mod) is mod
    ones = relax.const(np.ones(4, "float32"))

    def twice(x: relax.Var) -> relax.Expr:
        conv = op.nn.conv2d(x, relax.const(random(4, 4, 1, 1)))
        return op.add(op.nn.batch_norm(conv, ones, ones, ones, ones, 1, training=False)[0], conv)

    def loose(x: relax.Var) -> relax.Expr:
        conv = op.nn.conv2d(x, x)
        return op.nn.batch_norm(conv, ones, ones, ones, ones, 1, training=False)[0]

    def narrow(x: relax.Var) -> relax.Expr:
        filters = relax.const(random(4, 4, 1, 1, dtype="float16"))
        conv = op.nn.conv2d(op.astype(x, "float16"), filters, out_dtype="float32")
        return op.nn.batch_norm(conv, ones, ones, ones, ones, 1, training=False)[0]

    for body in (twice, loose, narrow):
        mod = graph(body, tensor((4, 4, 3, 3)))
        assert t.FoldBatchnormToConv2D()(mod) is mod


def two_functions() -> IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((4,)))
    with builder.function("inner", [x], {GLOBAL_SYMBOL: "helper"}):
        builder.emit_func_output(builder.emit(op.exp(x)))
    y = relax.Var("y", tensor((4,)))
    with builder.function("helper", [y]):
        builder.emit_func_output(builder.emit_te(lambda a: a + a, y))
    z = relax.Var("z", tensor((4,)))
    with builder.function("main", [z], {GLOBAL_SYMBOL: "main"}):
        first = builder.emit_call("inner", z)
        builder.emit_func_output(builder.emit_call("helper", first))
    return builder.get()


def test_functions_get_the_names_that_they_export() -> None:
    mod = two_functions()
    made = t.NormalizeGlobalVar()(mod)
    assert made["helper"].attrs[GLOBAL_SYMBOL] == "helper" and "inner" not in made
    assert all(
        function.attrs.get(GLOBAL_SYMBOL, name) == name for name, function in made.functions.items()
    )
    agree(mod, made, random(4))
    assert t.NormalizeGlobalVar()(made) is made
    twice = mod.with_function("other", mod["inner"])
    with pytest.raises(VerifyError, match="'other' and 'inner' have one global_symbol"):
        t.NormalizeGlobalVar()(twice)


def weights() -> IRModule:
    params = relax.Var("params", relax.TupleStructInfo([tensor((4,)), tensor((3,))]))
    builder = relax.BlockBuilder()
    with builder.function("main_transform_params", [params]):
        with builder.dataflow():
            a, c = builder.emit(params[0]), builder.emit(params[1])
            out = builder.emit_output(relax.Tuple([builder.emit(op.exp(a)), c]))
        builder.emit_func_output(out)
    return t.CanonicalizeBindings()(builder.get())


def test_weights_are_transformed_one_by_one() -> None:
    given, log, taken = [random(4), random(3)], [], {}

    @tilewright.register_global_func("test.lazy.get", override=True)
    def get(loader: object, index: int) -> np.ndarray:
        log.append(("get", index))
        return given[index]

    @tilewright.register_global_func("test.lazy.set", override=True)
    def put(index: int, value: object) -> None:
        log.append(("set", index))
        taken[index] = np.array(value)

    loader = relax.Var("loader", tensor((1,)))
    made = t.LazyTransformParams("test.lazy.get", "test.lazy.set", [loader], None)(weights())
    function = made["main_transform_params"]
    assert function.params == (loader,) and not function.is_pure
    relax.verify_graph(made)
    interpreter.run(made, random(1), name="main_transform_params")
    assert log == [("get", 0), ("set", 0), ("get", 1), ("set", 1)]
    np.testing.assert_allclose(taken[0], np.exp(given[0]), rtol=1e-6)
    np.testing.assert_array_equal(taken[1], given[1])
    kept = t.LazyTransformParams("test.lazy.get", None, [loader])(weights())
    found = interpreter.run(kept, random(1), name="main_transform_params")
    np.testing.assert_array_equal(found[1], given[1])


def test_weights_must_be_a_tuple_whose_items_are_taken() -> None:
    mod = graph(op.exp, tensor((4,)))
    assert t.LazyTransformParams()(mod) is mod
    with pytest.raises(VerifyError, match="a tuple of weights"):
        t.LazyTransformParams()(IRModule({"transform_params": mod["main"]}))
    params = relax.Var("params", relax.TupleStructInfo([tensor((4,))]))
    whole = relax.Function([params], params)
    with pytest.raises(VerifyError, match="as a whole"):
        t.LazyTransformParams()(IRModule({"transform_params": whole}))


def test_names_in_calls_are_those_of_the_module() -> None:
    made = t.NormalizeGlobalVar()(two_functions())
    for name, function in made.functions.items():
        for called in relax.analysis.called_global_vars(function):
            assert isinstance(called, GlobalVar) and called in made, name


def test_one_function_or_all() -> None:
    ones = relax.const(np.ones(4, "float32"))
    norm = graph(
        lambda x: op.nn.batch_norm(x, ones, ones, ones, ones, 1, training=False)[0], tensor((2, 4))
    )
    mod = norm.with_function("other", norm["main"])
    made = t.DecomposeOpsForInference(func_name="other")(mod)
    assert made["main"] is mod["main"] and "nn.batch_norm" not in values(made, "other")
    assert "nn.batch_norm" not in values(t.DecomposeOpsForInference()(mod))
    with pytest.raises(VerifyError, match="no function 'others'"):
        t.DecomposeOpsForInference("others")(mod)


def test_levels_of_fusion() -> None:
    mod = t.AnnotateTIROpPattern()(
        t.LegalizeOps()(graph(lambda x: op.exp(op.abs(x)), tensor((4,))))
    )
    assert t.FuseOps(fuse_opt_level=0)(mod) is mod
    assert len(values(t.FuseOps(2)(mod))) == 1
    with PassContext(opt_level=0):
        assert t.FuseOps()(mod) is mod and t.FuseOps(fuse_opt_level=1)(mod) is not mod


def test_layouts_by_call() -> None:
    mod = graph(lambda x: op.nn.conv2d(x, relax.const(random(32, 16, 3, 3))), tensor((1, 16, 8, 8)))
    seen: list[str] = []

    def choose(call: relax.Call) -> dict[str, list[str]]:
        seen.append(call.op_name)
        return {"relax.nn.conv2d": ["NCHW16c", "OIHW16i16o"]}

    made = t.ConvertLayout({}, layout_cb=choose)(mod)
    assert seen == ["nn.conv2d"] and "layout_transform" in values(made)
    assert t.ConvertLayout({}, lambda call: {})(mod) is mod
    agree(mod, made, random(1, 16, 8, 8), tolerance=1e-4)
