"""Passes that change the order or form of bindings, and the order of products."""

# ruff: noqa: F821
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import (
    agree,
    golden,
    graph,
    graph_of,
    random,
    shown,
    symbol,
    tensor,
    values,
)
from tilewright import relax, script
from tilewright.ir import IRModule
from tilewright.relax import interpreter, op
from tilewright.relax import transform as t
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import VerifyError
from tilewright.testing.graphs.check import whole_case
from tilewright.testing.graphs.draw import draw_case
from tilewright.testing.graphs.graph import module_of

# ---- dataflow blocks ------------------------------------------------------------------------


@I.ir_module
class Blocks:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.tanh(a)
            R.output(b)
        c = R.abs(b)
        return c


@I.ir_module
class NoBlocks:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        a = R.exp(x)
        b = R.tanh(a)
        c = R.abs(b)
        return c


@I.ir_module
class OneBlock:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.tanh(a)
            c = R.abs(b)
            R.output(c)
        return c


def test_dataflow_blocks_are_opened_and_closed() -> None:
    golden(t.ToNonDataflow(), Blocks, NoBlocks, random(2, 4))
    golden(t.ConvertToDataflow(), NoBlocks, OneBlock, random(2, 4))
    assert t.ConvertToDataflow(min_size=4)(NoBlocks) is NoBlocks
    assert t.ConvertToDataflow()(Blocks) is Blocks  # one binding is too few
    assert len(t.ConvertToDataflow(1)(Blocks)["main"].body.blocks) == 2
    with pytest.raises(VerifyError, match="at least 1; got 0"):
        t.ConvertToDataflow(0)


def test_calls_and_effects_stay_outside_of_dataflow_blocks() -> None:
    @I.ir_module
    class Before:
        @R.function
        def inner(x: R.Tensor((4,), "float32")):
            y = R.exp(x)
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.tanh(a)
            c = R.call(cls.inner, (b,), out_sinfo=R.Tensor((4,), "float32"))
            d = R.exp(c)
            e = R.tanh(d)
            return e

    made = t.ConvertToDataflow()(Before)
    kinds = [type(block).__name__ for block in made["main"].body.blocks]
    assert kinds == ["DataflowBlock", "BindingBlock", "DataflowBlock"]
    assert [type(b.var).__name__[:8] for b in made["main"].bindings] == [
        "Dataflow", "RelaxVar", "RelaxVar", "Dataflow", "RelaxVar",
    ]  # fmt: skip
    agree(Before, made, random(4))


# ---- order of bindings ----------------------------------------------------------------------


def diamond() -> IRModule:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.tanh(y)
                c = R.abs(a)
                d = R.sin(b)
                e = R.add(c, d)
                f = R.cos(x)
                g = R.multiply(f, e)
                R.output(g)
            return g

    return Module


@pytest.mark.parametrize(
    ("order", "direction", "found"),
    [
        ("depth-first", "from-inputs", "acbdefg"),
        ("breadth-first", "from-inputs", "abfcdeg"),
        ("depth-first", "from-outputs", "acbdefg"),
        ("breadth-first", "from-outputs", "abcdefg"),
    ],
)
def test_bindings_are_sorted(order: str, direction: str, found: str) -> None:
    mod = diamond()
    made = t.TopologicalSort(order, direction)(mod)
    assert "".join(b.var.name for b in made["main"].bindings) == found
    agree(mod, made, random(4), random(4, seed=1))


def test_what_has_effects_keeps_its_place() -> None:
    n = symbol("n")
    checked = t.CheckShapes()(graph(lambda x, y: op.add(op.exp(x), op.add(x, y)),
                                    tensor((n,)), tensor((symbol("m"),))))  # fmt: skip
    for order in ("depth-first", "breadth-first"):
        made = t.TopologicalSort(order, "from-outputs")(checked)
        relax.verify_graph(made)
        assert shown(made)[0] == shown(checked)[0] and "assert_op" in shown(made)[0]
    with pytest.raises(VerifyError, match="order is 'depth-first' or 'breadth-first', got 'up'"):
        t.TopologicalSort("up")
    with pytest.raises(VerifyError, match="direction is 'from-inputs' or 'from-outputs'"):
        t.TopologicalSort(direction="up")


# ---- normal form, parameters ----------------------------------------------------------------


def test_nested_operands_are_bound() -> None:
    x = relax.Var("x", tensor((4,)))
    once = op.exp(x)
    gv = relax.Var("gv", tensor((4,)))
    value = op.add(once, op.add(once, op.tanh(x)))
    block = relax.BindingBlock((relax.VarBinding(gv, value),))
    nested = IRModule({"main": relax.Function((x,), relax.SeqExpr((block,), gv))})
    with pytest.raises(VerifyError, match="nested"):
        relax.verify_graph(nested)
    made = t.Normalize()(nested)
    assert values(made) == ["exp", "tanh", "add", "add"]  # one object is computed once
    relax.verify_graph(made)
    data = random(4)
    np.testing.assert_allclose(
        interpreter.run(made, data), np.exp(data) * 2 + np.tanh(data), rtol=1e-5
    )
    assert t.Normalize()(made) is made


def test_struct_infos_of_parameters_change() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 3), "float32")):
            y = R.matmul(x, w)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((8, 4), "float16"), w: R.Tensor((4, 3), "float16")):
            y = R.matmul(x, w)
            return y

    def halves(param: relax.Var) -> relax.StructInfo | None:
        return tensor((8, 4) if param.name == "x" else (4, 3), "float16")

    golden(t.UpdateParamStructInfo(halves), Before, After)
    assert t.UpdateParamStructInfo(lambda param: None)(Before) is Before
    with pytest.raises(VerifyError, match="inner extents differ"):
        t.UpdateParamStructInfo(lambda p: tensor((5, 5)) if p.name == "w" else None)(Before)
    with pytest.raises(VerifyError, match="must return a StructInfo or None, got int for x"):
        t.UpdateParamStructInfo(lambda p: 1)(Before)  # type: ignore[arg-type,return-value]


# ---- products -------------------------------------------------------------------------------


def lora(*bindings: str) -> IRModule:
    """A product with a weight to which ``a @ b`` is added, computed by ``bindings``."""
    text = """
from tilewright.script import ir as I
from tilewright.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 16), "float32"), base: R.Tensor((16, 16), "float32"),
             a: R.Tensor((16, 2), "float32"), b: R.Tensor((2, 16), "float32")):
        with R.dataflow():
            BINDINGS
            R.output(out)
        return out
"""
    return script.parse(text.replace("BINDINGS", f"\n{' ' * 12}".join(bindings)))


def test_lora_is_multiplied_from_the_thin_side() -> None:
    before = lora("lora = R.matmul(a, b)", "weight = R.add(base, lora)",
                  "out = R.matmul(x, weight)")  # fmt: skip
    expanded = lora("lora = R.matmul(a, b)", "lv = R.matmul(x, base)", "lv1 = R.matmul(x, lora)",
                    "out = R.add(lv, lv1)")  # fmt: skip
    after = lora("lv = R.matmul(x, base)", "lv2 = R.matmul(x, a)", "lv1 = R.matmul(lv2, b)",
                 "out = R.add(lv, lv1)")  # fmt: skip
    arrays = [random(3, 16), random(16, 16), random(16, 2), random(2, 16)]
    golden(t.ExpandMatmulOfSum(), before, expanded, *arrays)
    golden(t.AdjustMatmulOrder(), expanded, after, *arrays)
    constant = before["main"].with_attr("num_input", 1)
    assert t.ExpandMatmulOfSum()(IRModule({"main": constant}))["main"] is constant


def test_sums_that_are_not_expanded() -> None:
    mod = graph(lambda x, w, b: op.matmul(x, op.add(w, b)),
                tensor((2, 4)), tensor((4, 4)), tensor((4,)))  # fmt: skip
    assert t.ExpandMatmulOfSum()(mod) is mod


_SHAPES = {
    "left": [(64, 2), (2, 64), (64, 1)],
    "right": [(1, 64), (64, 2), (2, 64)],
    "batch": [(2, 64, 2), (2, 64), (64, 1)],
}


@pytest.mark.parametrize("shapes", _SHAPES)
@pytest.mark.parametrize("inner_transposed", [False, True])
@pytest.mark.parametrize("outer_transposed", [False, True])
def test_products_are_reordered(
    shapes: str, inner_transposed: bool, outer_transposed: bool
) -> None:
    a, b, c = _SHAPES[shapes]

    def left(x: Any, y: Any, z: Any) -> Any:
        inner = op.matmul(x, y, transpose_b=inner_transposed)
        return op.matmul(inner, z, transpose_b=outer_transposed)

    def right(x: Any, y: Any, z: Any) -> Any:
        inner = op.matmul(y, z, transpose_b=inner_transposed)
        return op.matmul(x, inner, transpose_b=outer_transposed)

    def turned(shape: tuple[int, ...], yes: bool) -> tuple[int, ...]:
        return (*shape[:-2], shape[-1], shape[-2]) if yes else shape

    if shapes == "right":
        # With the outer operand transposed, x has as many columns as the product has.
        data = [random(1, 64), random(64, 2), random(*turned((2, 64), inner_transposed))]
        mod = graph_of(right, *data)
    else:
        data = [
            random(*a),
            random(*turned(b, inner_transposed)),
            random(*turned(c, outer_transposed)),
        ]
        mod = graph_of(left, *data)
    made = t.AdjustMatmulOrder()(mod)
    stays = shapes != "right" and inner_transposed and not outer_transposed
    assert (made is mod) is stays
    agree(mod, made, *data, tolerance=1e-4)


def test_products_that_stay_in_order() -> None:
    n = symbol("n")
    for infos in (
        [tensor((4, 4)), tensor((4, 4)), tensor((4, 4))],  # no better
        [tensor((n, 8)), tensor((8, 8)), tensor((8, n))],  # depends on n
        [tensor((3, 4, 2)), tensor((2,)), tensor((4, 1))],  # a vector is a row, then a column
    ):
        mod = graph(lambda x, y, z: op.matmul(op.matmul(x, y), z), *infos)
        assert t.AdjustMatmulOrder()(mod) is mod

    def twice(x: Any, y: Any, z: Any) -> Any:
        inner = op.matmul(x, y)
        return op.add(op.matmul(inner, z), op.sum(inner))

    mod = graph(twice, tensor((64, 2)), tensor((2, 64)), tensor((64, 1)))
    assert t.AdjustMatmulOrder()(mod) is mod


def test_bounds_of_sizes_decide() -> None:
    mod = graph(lambda x, a, b: op.matmul(x, op.matmul(a, b)),
                tensor((symbol("n"), 16)), tensor((16, 16)), tensor((16, 16)))  # fmt: skip
    assert t.AdjustMatmulOrder()(mod) is mod
    for bound, better in ((8, True), (64, False)):
        bounded = mod.with_function(
            "main", mod["main"].with_attr("tir_var_upper_bound", {"n": bound})
        )
        assert (t.AdjustMatmulOrder()(bounded) is not bounded) is better
    small = mod.with_function("main", mod["main"].with_attr("tir_var_upper_bound", {"n": 8}))
    agree(small, t.AdjustMatmulOrder()(small), random(3, 16), random(16, 16), random(16, 16),
          tolerance=1e-4)  # fmt: skip


# ---- transpositions and choices -------------------------------------------------------------


def test_transpositions_move_behind_concat() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, "n", 4), "float32"), y: R.Tensor((2, "n", 3), "float32")):
            with R.dataflow():
                a = R.permute_dims(x, axes=(2, 0, 1))
                b = R.permute_dims(y, axes=(2, 0, 1))
                c = R.concat((a, b), axis=0)
                R.output(c)
            return c

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((2, "n", 4), "float32"), y: R.Tensor((2, "n", 3), "float32")):
            with R.dataflow():
                a = R.concat((x, y), axis=2)
                c = R.permute_dims(a, axes=(2, 0, 1))
                R.output(c)
            return c

    golden(t.ReorderPermuteDimsAfterConcat(), Before, After, random(2, 5, 4), random(2, 5, 3))

    def mixed(x: Any, y: Any) -> Any:
        return op.concat([op.permute_dims(x), op.permute_dims(y, (1, 0))], -1)

    data = random(3, 4), random(2, 4)
    mod = graph_of(mixed, *data)
    made = t.ReorderPermuteDimsAfterConcat()(mod)
    assert made is not mod
    agree(mod, made, *data)
    for body in (
        lambda x, y: op.concat([op.permute_dims(x), y], 0),
        lambda x, y: op.concat([op.permute_dims(x)] * 2, 0),
        lambda x, y: op.concat([op.permute_dims(op.reshape(x, (2, 2, 1)), a)
                                for a in ((0, 1, 2), (1, 0, 2))], 0),
    ):  # fmt: skip
        mod = graph(body, tensor((2, 2)), tensor((2, 2)))
        assert t.ReorderPermuteDimsAfterConcat()(mod) is mod


def test_columns_are_chosen_after_the_product() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            w: R.Tensor((4, 6), "float32"),
            i: R.Tensor((3,), "int64"),
        ):
            with R.dataflow():
                chosen = R.take(w, i, axis=1)
                out = R.matmul(x, chosen)
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            w: R.Tensor((4, 6), "float32"),
            i: R.Tensor((3,), "int64"),
        ):
            with R.dataflow():
                every = R.matmul(x, w)
                out = R.take(every, i, axis=1)
                R.output(out)
            return out

    index = np.array([5, 0, 5])
    golden(t.ReorderTakeAfterMatmul(), Before, After, random(2, 4), random(4, 6), index)


def test_a_matrix_per_batch_is_chosen_after_the_product() -> None:
    n = symbol("n")
    mod = graph(lambda x, w, i: op.matmul(x, op.take(w, i, 0)),
                tensor((n, 2, 4)), tensor((3, 4, 5)), tensor((n,), "int64"))  # fmt: skip
    made = t.ReorderTakeAfterMatmul()(mod)
    assert "take" not in " ".join(shown(made)) and "gather_nd" in " ".join(shown(made))
    agree(mod, made, random(4, 2, 4), random(3, 4, 5), np.array([2, 0, 0, 1]), tolerance=1e-4)
    rows = graph(lambda x, w, i: op.matmul(x, op.take(w, i, 0)),
                 tensor((2, 3)), tensor((4, 5)), tensor((3,), "int64"))  # fmt: skip
    assert t.ReorderTakeAfterMatmul()(rows) is rows


# ---- any graph ------------------------------------------------------------------------------

ANY_GRAPH = (
    t.Normalize(),
    t.ToNonDataflow(),
    t.ConvertToDataflow(),
    t.TopologicalSort("breadth-first", "from-outputs"),
    t.TopologicalSort("depth-first", "from-inputs"),
    t.AdjustMatmulOrder(),
    t.ExpandMatmulOfSum(),
    t.ReorderPermuteDimsAfterConcat(),
    t.ReorderTakeAfterMatmul(),
)


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_keep_their_meaning(seed: int) -> None:
    case = whole_case(draw_case(f"passes-{seed}"))
    mod = module_of(case.inputs, case.constants, case.steps, case.outputs)
    arrays = [np.asarray(case.given[0][value]) for value in case.inputs]
    made = mod
    for change in ANY_GRAPH:
        made = change(made)
        relax.verify_graph(made)
    agree(mod, made, *arrays)
