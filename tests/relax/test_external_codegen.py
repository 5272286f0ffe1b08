"""What patterns match becomes functions, which external code generators compile."""

# ruff: noqa: F821
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.relax.helpers import agree, golden, graph, random, symbol, tensor, values
from tilewright import relax, runtime, script
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relax import op
from tilewright.relax import transform as t
from tilewright.relax.dpl import is_const, is_op, is_tuple_get_item, wildcard
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.support.errors import VerifyError
from tilewright.testing.graphs.check import whole_case
from tilewright.testing.graphs.draw import draw_case
from tilewright.testing.graphs.graph import module_of

x_, w_ = wildcard(), wildcard()
MATMUL = is_op("relax.matmul")(x_, w_)
PATTERNS = [
    ("mine.matmul_relu", is_op("relax.nn.relu")(MATMUL)),
    ("mine.exp", is_op("relax.exp")(wildcard())),
]


@I.ir_module
class Plain:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.exp(b)
            d = R.add(c, x)
            R.output(d)
        return d


@I.ir_module
class Grouped:
    @R.function
    def fused_relax_matmul_relax_nn_relu(
        x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")
    ) -> R.Tensor(("n", 4), "float32"):
        R.func_attr({"Composite": "mine.matmul_relu"})
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            R.output(b)
        return b

    @R.function
    def fused_relax_exp(b: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        R.func_attr({"Composite": "mine.exp"})
        with R.dataflow():
            c = R.exp(b)
            R.output(c)
        return c

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            b = R.call(
                cls.fused_relax_matmul_relax_nn_relu, (x, w), out_sinfo=R.Tensor((n, 4), "float32")
            )
            c = R.call(cls.fused_relax_exp, (b,), out_sinfo=R.Tensor((n, 4), "float32"))
            d = R.add(c, x)
            R.output(d)
        return d


NAME = "fused_relax_matmul_relax_nn_relu_relax_exp_mine"


@I.ir_module
class Merged:
    @R.function
    def fused_relax_matmul_relax_nn_relu(
        x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")
    ) -> R.Tensor(("n", 4), "float32"):
        R.func_attr({"Composite": "mine.matmul_relu"})
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            R.output(b)
        return b

    @R.function
    def fused_relax_exp(b: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        R.func_attr({"Composite": "mine.exp"})
        with R.dataflow():
            c = R.exp(b)
            R.output(c)
        return c

    @R.function
    def fused_relax_matmul_relax_nn_relu_relax_exp_mine(
        x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")
    ) -> R.Tensor(("n", 4), "float32"):
        R.func_attr(
            {"Codegen": "mine", "global_symbol": "fused_relax_matmul_relax_nn_relu_relax_exp_mine"}
        )
        with R.dataflow():
            b = R.call(
                cls.fused_relax_matmul_relax_nn_relu, (x, w), out_sinfo=R.Tensor((n, 4), "float32")
            )
            c = R.call(cls.fused_relax_exp, (b,), out_sinfo=R.Tensor((n, 4), "float32"))
            R.output(c)
        return c

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            c = R.call(
                cls.fused_relax_matmul_relax_nn_relu_relax_exp_mine,
                (x, w),
                out_sinfo=R.Tensor((n, 4), "float32"),
            )
            d = R.add(c, x)
            R.output(d)
        return d


INPUTS = random(3, 4), random(4, 4, seed=1)


def test_matches_become_functions() -> None:
    golden(t.FuseOpsByPattern(PATTERNS), Plain, Grouped, *INPUTS)
    same = t.FuseOpsByPattern(PATTERNS, entry_functions=[])(Plain)
    assert_structural_equal(same, Plain)
    with pytest.raises(VerifyError, match="no function 'mein'"):
        t.FuseOpsByPattern(PATTERNS, entry_functions=["mein"])(Plain)


def test_functions_of_one_code_generator_are_merged() -> None:
    golden(t.MergeCompositeFunctions(), Grouped, Merged, *INPUTS)
    assert_structural_equal(script.parse(Merged.script()), Merged)


def test_what_no_code_generator_takes_is_compiled() -> None:
    for mod in (Grouped, Merged):
        executable = relax.build(mod, "llvm")
        assert list(executable.signatures) == ["main"]
        want = relax.build(Plain, "llvm")["main"](*INPUTS)
        np.testing.assert_array_equal(executable["main"](*INPUTS).numpy(), want.numpy())
    unused = t.DeadCodeElimination()(Merged.with_function("main", Plain["main"]))
    assert list(unused.functions) == ["main"]


def test_a_wrapper_for_each_function() -> None:
    made = t.FuseOpsByPattern(PATTERNS[1:], annotate_codegen=True)(Plain)
    assert values(made) == ["matmul", "nn.relu", "fused_relax_exp_mine", "add"]
    wrapper = made["fused_relax_exp_mine"]
    assert dict(wrapper.attrs) == {"Codegen": "mine", "global_symbol": "fused_relax_exp_mine"}
    assert values(made, "fused_relax_exp_mine") == ["fused_relax_exp"]
    agree(Plain, made, *INPUTS)


def test_values_used_elsewhere_keep_a_match_from_being_made() -> None:
    def body(x: Any, w: Any) -> Any:
        product = op.matmul(x, w)
        return op.add(op.nn.relu(product), op.exp(product))

    mod = graph(body, tensor((4, 4)), tensor((4, 4)))
    made = t.FuseOpsByPattern(PATTERNS[:1])(mod)
    assert made is not None and values(made) == ["matmul", "nn.relu", "exp", "add"]


def test_checks_and_attributes() -> None:
    seen: list[t.PatternCheckContext] = []

    def check(context: t.PatternCheckContext) -> bool:
        seen.append(context)
        return len(seen) == 1

    pattern = t.FusionPattern(
        "mine.relu", is_op("relax.nn.relu")(x_), {"x": x_}, check,
        lambda found: {"input": repr(found["x"])},
    )  # fmt: skip
    mod = graph(lambda x: op.nn.relu(op.nn.relu(op.exp(x))), tensor((4,)))
    made = t.FuseOpsByPattern([pattern])(mod)
    assert values(made) == ["exp", "fused_relax_nn_relu", "nn.relu"]
    assert made["fused_relax_nn_relu"].attrs["input"] == "exp(x)"
    context = seen[0]
    (bound,) = context.matched_bindings
    assert context.matched_expr is context.matched_bindings[bound]
    assert context.value_to_bound_var[context.matched_expr] is bound
    assert [var.name for var in context.var_usages[bound]] == ["gv"]
    with pytest.raises(VerifyError, match="is a name and a pattern"):
        t.FuseOpsByPattern([("mine.relu", 3)])


def test_constants_and_symbolic_extents_are_passed() -> None:
    weight = relax.const(random(4, 4))
    pattern = is_op("relax.matmul")(wildcard(), is_const())
    mod = graph(lambda x: op.exp(op.matmul(x, weight)), tensor((2, 4)))
    inside = t.FuseOpsByPattern([("mine.matmul", pattern)])(mod)
    assert len(inside["fused_relax_matmul"].params) == 1
    passed = t.FuseOpsByPattern([("mine.matmul", pattern)], bind_constants=False)(mod)
    assert len(passed["fused_relax_matmul"].params) == 2
    for made in (inside, passed):
        agree(mod, made, random(2, 4))
    n = symbol("n")
    shaped = graph(
        lambda x, y: op.exp(op.reshape(op.add(op.sum(y), x), (n, n))),
        tensor((n * n,)),
        tensor((n,)),
    )
    made = t.FuseOpsByPattern([("mine.reshape", is_op("relax.reshape")(wildcard(), wildcard()))])(
        shaped
    )
    assert len(made["fused_relax_reshape"].params) == 2
    agree(shaped, made, random(9), random(3))
    want = relax.build(shaped, "llvm")["main"](random(9), random(3)).numpy()
    np.testing.assert_array_equal(relax.build(made, "llvm")["main"](random(9), random(3)), want)


def test_groups_do_not_wait_for_themselves() -> None:
    """A sum outside lies between two of the code generator's calls: they can't be one."""

    def body(x: Any) -> Any:
        first = op.exp(x)
        between = op.add(first, first)
        return op.multiply(op.exp(between), op.exp(first))

    mod = graph(body, tensor((4,)))
    grouped = t.FuseOpsByPattern(PATTERNS)(mod)
    made = t.MergeCompositeFunctions()(grouped)
    agree(mod, made, random(4))
    names = [name for name in values(made) if name.endswith("_mine")]
    assert len(names) == 2 and "relax_exp_relax_exp_mine" in "".join(names)
    tuples = values(made).count("TupleGetItem")
    assert tuples == 2  # the first one is a result of its group and used inside it


def test_tuples_are_matched() -> None:
    part = is_tuple_get_item(is_op("relax.split")(wildcard()), 0)
    mod = graph(lambda x: op.exp(op.split(x, 2)[0]), tensor((4,)))
    made = t.FuseOpsByPattern([("mine.half", is_op("relax.exp")(part))])(mod)
    assert values(made) == ["fused_relax_split_relax_exp"]
    agree(mod, made, random(4))


# ---- code generators ------------------------------------------------------------------------


@pytest.fixture
def codegens() -> Iterator[dict[str, Any]]:
    seen: dict[str, Any] = {}

    @tilewright.register_global_func("relax.ext.mine")
    def generate(mods: Any, options: Any, constants: Any) -> Any:
        seen.update(mods=mods, options=options, constants=constants)
        return [seen["make"](mod) for mod in mods]

    yield seen
    runtime.remove_global_func("relax.ext.mine")


def with_python(mod: IRModule) -> Any:
    def run(x: Any, w: Any, out: Any) -> None:
        out.numpy()[...] = np.exp(np.maximum(x.numpy() @ w.numpy(), 0))

    return run


def test_a_function_of_python_takes_over(codegens: dict[str, Any]) -> None:
    codegens["make"] = with_python
    made = t.RunCodegen({"mine": {"level": 3}})(Merged)
    assert list(made.functions) == ["main"]
    assert 'R.call_dps_packed("relax.ext.mine.' in made.script()
    assert codegens["options"] == {"level": 3} and codegens["constants"] == {}
    (part,) = codegens["mods"]
    assert next(iter(part.functions)) == NAME and len(part.functions) == 3
    agree(Plain, made, *INPUTS)
    compiled = relax.build(made, "llvm")["main"](*INPUTS)
    want = relax.build(Plain, "llvm")["main"](*INPUTS)
    np.testing.assert_allclose(compiled.numpy(), want.numpy(), rtol=1e-5)
    runtime.remove_global_func(f"relax.ext.mine.{NAME}")


def test_tensor_functions_take_over(codegens: dict[str, Any]) -> None:
    def make(mod: IRModule) -> Any:
        name = next(iter(mod.functions))
        flat = t.InlineFunctions()(mod)
        legal = t.FuseTIR()(t.FuseOps()(t.AnnotateTIROpPattern()(t.LegalizeOps()(flat))))
        (kernel,) = [f for f in legal.functions.values() if not isinstance(f, relax.Function)][-1:]
        return IRModule({name: kernel})

    codegens["make"] = make
    mod = graph(lambda x: op.tanh(op.exp(x)), tensor((symbol("n"), 4)))
    grouped = t.MergeCompositeFunctions()(t.FuseOpsByPattern(PATTERNS)(mod))
    made = t.RunCodegen()(grouped)
    assert values(made) == ["fused_relax_exp_mine", "tanh"]
    agree(mod, made, random(3, 4))
    result = relax.build(made, "llvm")["main"](random(3, 4)).numpy()
    np.testing.assert_allclose(result, np.tanh(np.exp(random(3, 4))), rtol=1e-5)


def test_constants_have_names(codegens: dict[str, Any]) -> None:
    codegens["make"] = lambda mod: lambda x, out: None
    weight = relax.const(random(4, 4))
    mod = graph(lambda x: op.nn.relu(op.matmul(x, weight)), tensor((2, 4)))
    t.RunCodegen()(t.MergeCompositeFunctions()(t.FuseOpsByPattern(PATTERNS)(mod)))
    assert list(codegens["constants"].values()) == ["fused_relax_matmul_relax_nn_relu_mine_const_0"]


@T.prim_func
def EMPTY(x: T.Buffer((4,), "float32")):
    T.evaluate(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda mod: 3, "must make a PrimFunc, a module or a function of .*, got int"),
        (lambda mod: IRModule({}), "returned a module without a PrimFunc"),
        (
            lambda mod: IRModule({NAME: EMPTY, "fused_relax_exp": EMPTY}),
            "the module has a function 'fused_relax_exp' besides",
        ),
    ],
)
def test_wrong_results_are_refused(codegens: dict[str, Any], make: Any, message: str) -> None:
    codegens["make"] = make
    with pytest.raises(VerifyError, match=message):
        t.RunCodegen()(Merged)


def test_missing_code_generators_are_named() -> None:
    with pytest.raises(VerifyError, match="register the global function relax"):
        t.RunCodegen()(Merged)
    assert t.RunCodegen()(Plain) is Plain
    assert t.RunCodegen(entry_functions=[])(Merged) is Merged
    tilewright.register_global_func("relax.ext.mine", lambda mods, options, constants: [])
    with pytest.raises(VerifyError, match="must return a list of 1"):
        t.RunCodegen()(Merged)
    runtime.remove_global_func("relax.ext.mine")


# ---- any graph ------------------------------------------------------------------------------

ANY_OPERATORS = [
    (f"mine.{name}", is_op(f"relax.{name}")(*(wildcard() for _ in range(arity))))
    for arity, names in {
        1: ("exp", "tanh", "sum", "permute_dims", "abs", "nn.relu", "nn.softmax", "negative"),
        2: ("add", "multiply", "subtract", "maximum", "matmul", "divide"),
    }.items()
    for name in names
]


@pytest.mark.parametrize("seed", [12, 16, 17])
def test_random_graphs_keep_their_meaning(seed: int) -> None:
    case = whole_case(draw_case(f"partitions-{seed}"))
    mod = module_of(case.inputs, case.constants, case.steps, case.outputs)
    arrays = [np.asarray(case.given[0][value]) for value in case.inputs]
    grouped = t.FuseOpsByPattern(ANY_OPERATORS, bind_constants=bool(seed % 2))(mod)
    wrapped = t.FuseOpsByPattern(ANY_OPERATORS, bind_constants=False, annotate_codegen=True)(mod)
    assert len(grouped.functions) > 1
    for made in (wrapped, t.MergeCompositeFunctions()(grouped)):
        agree(mod, made, *arrays)
