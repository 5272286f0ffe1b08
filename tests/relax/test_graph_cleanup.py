"""Passes that remove what isn't needed: common values, private functions, parameters, results."""

# ruff: noqa: F821
from __future__ import annotations

from typing import Any

import pytest

from tests.relax.helpers import agree, graph, graph_of, random, shown, symbol, tensor, values
from tilewright import relax
from tilewright.ir import GLOBAL_SYMBOL, GlobalVar, IRModule, PassContext, Sequential
from tilewright.relax import op
from tilewright.relax import transform as t
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import VerifyError


def module(**functions: Any) -> IRModule:
    """Functions of four numbers ``x``, each given as ``(builder, x) -> result``."""
    builder = relax.BlockBuilder()
    for name, body in functions.items():
        x = relax.Var("x", tensor((4,)))
        with builder.function(name, [x]):
            builder.emit_func_output(body(builder, x))
    return builder.get()


# ---- common values --------------------------------------------------------------------------


def test_common_values_are_computed_once() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((4, 6)))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(op.exp(x))
            b = builder.emit(op.exp(x))
            s, u = builder.emit(op.split(a, 2, 1)), builder.emit(op.split(b, 2, 1))
            builder.emit(op.add(s[0], u[1]))
            out = builder.emit_output(op.exp(x))
        again = builder.emit(op.exp(x))
        pair = builder.emit(op.split(again, 3, 1))
        builder.emit_func_output((out, again, builder.emit(pair[0])))
    mod = builder.get()
    assert shown(mod)[:4] == ["lv = exp(x)", "lv1 = exp(x)", "lv2 = split(lv)", "lv3 = split(lv1)"]
    made = t.EliminateCommonSubexpr()(mod)
    assert shown(made) == [
        "lv = exp(x)",
        "lv2 = split(lv)",
        "lv4 = lv2[0]",
        "lv5 = lv2[1]",
        "lv6 = add(lv4, lv5)",
        "gv = lv",  # the result is seen outside, lv is not
        "gv2 = split(gv)",
        "gv3 = gv2[0]",
        "return (gv, gv, gv3,)",
    ]
    agree(mod, made, random(4, 6))
    assert t.EliminateCommonSubexpr()(made) is made


def test_what_differs_stays() -> None:
    n = symbol("n")

    def body(x: Any, y: Any) -> Any:
        shifted = op.add(x, relax.const(0.0)), op.add(x, relax.const(-0.0))
        sums = op.sum(x, [0]), op.sum(x, [1]), op.sum(y, [0])
        return op.concat([*sums, *(op.sum(v, [0]) for v in shifted)], 0)

    mod = graph(body, tensor((n, n)), tensor((n, n)))
    made = t.EliminateCommonSubexpr()(mod)
    assert made is mod
    checked = t.CheckShapes()(graph(lambda x, y: op.add(op.add(x, y), op.add(x, y)),
                                    tensor((n,)), tensor((symbol("m"),))))  # fmt: skip
    once = t.EliminateCommonSubexpr()(checked)
    assert [line for line in shown(once) if "assert_op" in line] == [
        line for line in shown(checked) if "assert_op" in line
    ]
    agree(checked, once, random(3), random(3, seed=1))


def test_call_only_leaves_tuples() -> None:
    mod = graph(lambda x: op.add(op.split(x, 2)[0], op.split(x, 2)[0]), tensor((4,)))
    assert shown(t.EliminateCommonSubexpr(call_only=True)(mod)) == [
        "lv = split(x)", "lv1 = lv[0]", "lv3 = lv[0]", "gv = add(lv1, lv3)", "return gv",
    ]  # fmt: skip


def test_what_is_moved_twice_is_moved_once_or_not_at_all() -> None:
    def reshaped(x: Any) -> Any:
        return op.exp(op.reshape(op.reshape(op.tanh(x), (6,)), (3, 2, 1)))

    def permuted(x: Any) -> Any:
        return op.exp(op.permute_dims(op.permute_dims(op.tanh(x), (1, 2, 0)), (2, 0, 1)))

    for body, shape, kept in (
        (reshaped, (2, 3, 1), ["tanh", "reshape", "exp"]),
        (reshaped, (3, 2, 1), ["tanh", "exp"]),
        (permuted, (3, 2, 1), ["tanh", "exp"]),
        (
            lambda x: op.permute_dims(permuted(x), (1, 0, 2)),
            (3, 2, 1),
            ["tanh", "exp", "permute_dims"],
        ),
        (
            lambda x: op.permute_dims(op.permute_dims(x, (1, 2, 0)), (1, 0, 2)),
            (3, 2, 1),
            ["permute_dims"],
        ),
    ):
        mod = graph(body, tensor(shape))
        made = t.CanonicalizeBindings()(mod)
        assert values(made) == kept
        agree(mod, made, random(*shape))


# ---- private functions ----------------------------------------------------------------------


def test_private_functions_go_into_their_callers() -> None:
    mod = module(
        double=lambda b, x: b.emit(op.add(x, x)),
        twice=lambda b, x: b.emit_call("double", b.emit_call("double", x)),
        shared=lambda b, x: b.emit(op.tanh(x)),
        main=lambda b, x: b.emit_call("shared", b.emit_call("twice", x)),
    )
    mod = mod.with_function("shared", mod["shared"].with_attr(GLOBAL_SYMBOL, "shared"))
    made = t.InlinePrivateFunctions()(mod)
    assert list(made.functions) == ["shared", "main"]
    assert values(t.CanonicalizeBindings()(made)) == ["add", "add", "shared"]
    agree(mod, made, random(4))
    assert t.InlinePrivateFunctions()(made) is made


def test_functions_that_call_themselves_stay() -> None:
    x = relax.Var("x", tensor((4,)))
    call = relax.Call(GlobalVar("again"), (x,), {}, (tensor((4,)),))
    mod = module(main=lambda b, x: b.emit(op.exp(x)))
    builder = relax.BlockBuilder(mod)
    with builder.function("again", [x]):
        builder.emit_func_output(builder.emit(call))
    again = builder.get()["again"]
    y = relax.Var("y", tensor((4,)))
    with builder.function("main", [y]):
        builder.emit_func_output(builder.emit(call.replace(args=(y,))))
    mod = builder.get()
    assert mod["again"] is again
    assert t.InlinePrivateFunctions()(mod) is mod


def test_unused_parameters_are_not_passed() -> None:
    n, m = symbol("n"), symbol("m")
    builder = relax.BlockBuilder()
    x, y, z = (relax.Var(name, tensor((4,))) for name in "xyz")
    with builder.function("inner", [x, y]):
        builder.emit_func_output(builder.emit(op.exp(x)))
    with builder.function("outer", [x, y, z]):
        builder.emit_func_output(builder.emit_call("inner", x, z))
    a, b = relax.Var("a", tensor((n,))), relax.Var("b", tensor((m,)))
    with builder.function("sizes", [a, b, x]):
        builder.emit_func_output(builder.emit(op.zeros((n,), "float32")))
    with builder.function("main", [x, y, z]):
        made = builder.emit_call("outer", x, y, z)
        sizes = builder.emit(relax.Call(GlobalVar("sizes"), (made, made, x), {}, (tensor((4,)),)))
        builder.emit_func_output((made, sizes))
    mod = builder.get()
    made = t.RemoveUnusedParameters()(mod)
    assert {name: [p.name for p in f.params] for name, f in made.functions.items()} == {
        "inner": ["x"], "outer": ["x"], "sizes": ["a"], "main": ["x", "y", "z"],
    }  # fmt: skip
    assert shown(made)[:2] == ["gv = outer(x)", "gv1 = sizes(gv)"]
    agree(mod, made, random(4), random(4), random(4))
    assert t.RemoveUnusedParameters()(made) is made


def test_unused_outputs_are_not_returned() -> None:
    def several(b: Any, x: Any) -> Any:
        return (b.emit(op.exp(x)), b.emit(op.tanh(x)), b.emit(op.negative(x)))

    mod = module(
        several=several,
        one=lambda b, x: (b.emit(b.emit_call("several", x)[1]), b.emit(op.exp(x))),
        main=lambda b, x: b.emit(
            op.add(b.emit_call("one", x)[0], b.emit_call("one", b.emit(op.exp(x)))[0])
        ),
    )
    made = t.RemoveUnusedOutputs()(mod)
    assert shown(made, "several") == ["gv1 = tanh(x)", "return gv1"]
    assert "exp" not in " ".join(shown(made, "one"))
    agree(mod, made, random(4))
    assert t.RemoveUnusedOutputs()(made) is made
    # Two of three, the order of the items kept; used as a whole, all stay.
    two = module(
        several=several,
        main=lambda b, x: (lambda c: b.emit(op.subtract(c[2], c[0])))(b.emit_call("several", x)),
    )
    made = t.RemoveUnusedOutputs()(two)
    assert shown(made, "several")[-1] == "return (gv, gv2,)"
    agree(two, made, random(4))
    whole = module(several=several, main=lambda b, x: b.emit_call("several", x))
    assert t.RemoveUnusedOutputs()(whole) is whole


def test_outputs_of_a_tuple_that_is_a_variable() -> None:
    mod = module(
        halves=lambda b, x: b.emit(op.split(x, 2)),
        main=lambda b, x: b.emit(op.exp(b.emit_call("halves", x)[1])),
    )
    made = t.RemoveUnusedOutputs()(mod)
    assert shown(made, "halves")[-2:] == ["gv1 = gv[1]", "return gv1"]
    agree(mod, made, random(4))


# ---- passes made of functions ---------------------------------------------------------------


def test_function_pass() -> None:
    mod = module(main=lambda b, x: b.emit(op.exp(x)))

    @t.function_pass(opt_level=1)
    def tag(function: relax.Function, inside: IRModule, context: PassContext) -> relax.Function:
        assert inside is mod
        return function.with_attr("tag", context.opt_level)

    assert tag.name == "tag"
    assert tag(mod)["main"].attrs["tag"] == 2
    with PassContext(opt_level=0):
        assert Sequential([tag])(mod) is mod

    @t.function_pass
    class Tag:
        """Tags."""

        def __init__(self, value: str) -> None:
            self.value = value

        def transform_function(self, function: Any, inside: Any, context: Any) -> Any:
            return function.with_attr("tag", self.value)

    made = Tag("a")
    assert (made.name, made(mod)["main"].attrs["tag"]) == ("Tag", "a")
    wrong = t.function_pass(lambda *_: 3, name="wrong")
    with pytest.raises(VerifyError, match="wrong must return a graph function, got int"):
        wrong(mod)
    with pytest.raises(VerifyError, match="must define transform_function"):
        t.function_pass(type("Empty", (), {}))


def test_dataflowblock_pass() -> None:
    x = random(4)
    mod = graph_of(lambda x: op.exp(op.negative(x)), x)

    @t.dataflowblock_pass
    def drop_names(block: relax.DataflowBlock, inside: Any, context: Any) -> relax.DataflowBlock:
        return relax.DataflowBlock(block.bindings)

    made = drop_names(mod)
    assert made is not mod
    agree(mod, made, x)
    assert t.dataflowblock_pass(lambda block, *_: block)(mod) is mod
    with pytest.raises(VerifyError, match="must return a DataflowBlock, got int"):
        t.dataflowblock_pass(lambda *_: 3)(mod)


def test_functions_may_name_their_sizes_alike() -> None:
    """An extent of a caller is no extent of a callee, even if it is the same variable."""
    n, m = symbol("n"), symbol("m")
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((n, 4)))
    with builder.function("longer", [x]):
        half = builder.match_cast(x, tensor((m, 4)))
        builder.emit_func_output(builder.emit(op.concat([x, half], 0)))
    a, b = relax.Var("a", tensor((n, 4))), relax.Var("b", tensor((m, 4)))
    with builder.function("main", [a, b]):
        call = relax.Call(GlobalVar("longer"), (b,), {}, (tensor((2 * m, 4)),))
        builder.emit_func_output(builder.emit(op.concat([a, builder.emit(call)], 0)))
    mod = builder.get()
    agree(mod, t.InlineFunctions()(mod), random(2, 4), random(3, 4))
    assert relax.build(mod)["main"](random(2, 4), random(3, 4)).shape == (8, 4)


# ---- several functions at once --------------------------------------------------------------


@I.ir_module
class Effects:
    @R.function(pure=False)
    def both(x: R.Tensor((4,), "float32"), unused: R.Tensor((4,), "float32")):
        R.print(x, format="")
        a = R.exp(x)
        b = R.tanh(x)
        return (a, b)

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        both = R.call(
            cls.both,
            (x, x),
            out_sinfo=R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
            pure=False,
        )
        a = both[0]
        return a


@I.ir_module
class PassedOn:
    @R.function
    def first(x: R.Tensor((4,), "float32"), unused: R.Tensor((4,), "float32")):
        a = R.exp(x)
        return a

    @R.function
    def apply(
        f: R.Callable(
            (R.Tensor((4,), "float32"), R.Tensor((4,), "float32")), R.Tensor((4,), "float32")
        ),
        x: R.Tensor((4,), "float32"),
    ):
        a = R.call(f, (x, x))
        return a

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        a = R.call(cls.first, (x, x), out_sinfo=R.Tensor((4,), "float32"))
        b = R.call(cls.apply, (cls.first, a), out_sinfo=R.Tensor((4,), "float32"))
        return b


@I.ir_module
class Nested:
    """A function takes a tuple of a tensor and a tuple, a shape, and a number of no name."""

    @R.function
    def inner(
        t: R.Tuple(R.Tensor((4,), "float32"), R.Tuple(R.Tensor((4,), "float32"))),
        s: R.Shape(["a", "b"]),
        k: R.Prim("int64"),
    ):
        x = t[0]
        u = t[1]
        y = u[0]
        z = R.reshape(R.add(x, y), R.shape([a, b]))
        return z

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        t = (x, (y,))
        z = R.call(
            cls.inner, (t, R.shape([2, 2]), R.prim_value(3)), out_sinfo=R.Tensor((2, 2), "float32")
        )
        return z


CLEANING = (
    t.RemoveUnusedOutputs,
    t.RemoveUnusedParameters,
    t.FlattenTupleParams,
    t.InlineFunctions,
    t.LambdaLift,
    t.DeadCodeElimination,
)


@pytest.mark.parametrize("first", CLEANING)
@pytest.mark.parametrize("name", ["Effects", "PassedOn", "Nested"])
def test_passes_keep_modules_of_several_functions(name: str, first: Any) -> None:
    mod: Any = {"Effects": Effects, "PassedOn": PassedOn, "Nested": Nested}[name]
    arrays = [random(4), random(4, seed=1)][: len(mod["main"].params)]
    made = first()(mod)
    relax.verify_graph(made)
    agree(mod, made, *arrays)
    for then in CLEANING:
        relax.verify_graph(then()(made))
    agree(mod, t.InlineFunctions()(made), *arrays)
