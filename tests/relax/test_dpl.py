"""Patterns of graph values: matching, contexts, rewriting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, graph_of, random, symbol, tensor, values
from tilewright import relax
from tilewright.ir import IRModule, Sequential
from tilewright.relax import dpl, interpreter, op
from tilewright.relax import transform as t
from tilewright.relax.analysis import get_var2val
from tilewright.relax.dpl import (
    DFPattern,
    PatternContext,
    PatternMatchingRewriter,
    has_attr,
    has_dtype,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    make_fused_bias_activation_pattern,
    make_residual_block_pattern,
    rewrite_bindings,
    rewrite_call,
    wildcard,
)
from tilewright.support.errors import TilewrightError, VerifyError


def last(mod: IRModule) -> tuple[Any, dict[Any, Any]]:
    """The variable that ``main`` returns, and the values of variables."""
    return mod["main"].body.body, get_var2val(mod["main"])


def dense() -> IRModule:
    return graph(
        lambda x, w, b: op.nn.relu(op.add(op.matmul(x, w), b)),
        *map(tensor, [(4, 5), (5, 6), (6,)]),
    )


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        (lambda: is_op("relax.nn.relu")(wildcard()), True),
        (lambda: is_op("nn.relu")(is_op("add")(wildcard(), wildcard())), True),
        (lambda: is_op("nn.relu")(is_op("matmul")(wildcard(), wildcard())), False),
        # Sums match in either order.
        (lambda: is_op("nn.relu")(is_var("z") + is_op("matmul")(is_var("x"), is_var())), True),
        (lambda: is_op("nn.relu")(is_var("z") - wildcard()), False),
        (lambda: is_op("nn.relu")(is_const() + wildcard()), False),
        (lambda: is_op("nn.relu")(wildcard(), wildcard()), False),
        (lambda: is_op("nn.relu")(varg_default_wildcard=True), True),
        (lambda: is_op("nn.gelu")(wildcard()) | is_op("nn.relu")(wildcard()), True),
        (lambda: ~is_op("nn.gelu")(wildcard()), True),
        (lambda: ~(is_op("nn.gelu")(wildcard()) | is_op("nn.relu")(wildcard())), False),
        (lambda: wildcard().has_dtype("float32") & wildcard().has_shape((4, 6)), True),
        (lambda: has_dtype("float16"), False),
        (lambda: wildcard().has_struct_info(tensor((4, 6))), True),
        (lambda: wildcard().has_struct_info(tensor((4, 5))), False),
        (lambda: is_dfv(), False),
        (lambda: is_op("nn.relu")(is_dfv()), True),
        (lambda: make_fused_bias_activation_pattern("relax.matmul", True, "relax.nn.relu"), True),
        (lambda: make_residual_block_pattern(
            is_op("matmul")(wildcard(), wildcard()), activation="relax.nn.relu"), True),
        (lambda: make_residual_block_pattern(
            is_op("matmul")(wildcard(), wildcard()), residual_op="multiply"), False),
    ],
)  # fmt: skip
def test_match(pattern: Callable[[], DFPattern], matches: bool) -> None:
    assert pattern().match(*last(dense())) is matches


def test_values_that_are_not_bound_need_no_table() -> None:
    x = relax.Var("x", tensor((4,)))
    value = op.exp(op.negative(x))
    inner = is_op("negative")(is_expr(x))
    pattern = is_op("exp")(inner)
    assert pattern.match(value)
    found = pattern.extract_matched_expr(value)
    assert found is not None
    assert found[inner] is value.args[0]
    assert is_op("exp")(wildcard()).extract_matched_expr(op.negative(x)) is None


def test_one_pattern_is_one_value() -> None:
    mod = graph(lambda x, y: op.multiply(op.exp(x), op.exp(y)), tensor((4,)), tensor((4,)))
    same = is_op("exp")(wildcard())
    assert not is_op("multiply")(same, same).match(*last(mod))
    assert is_op("multiply")(same, same.dup()).match(*last(mod))
    squared = graph(lambda x: op.multiply(op.exp(x), op.negative(op.exp(x))), tensor((4,)))
    x = wildcard()
    pattern = is_op("exp")(x) * is_op("negative")(is_op("exp")(x))
    assert pattern.match(*last(squared))


def test_every_way_is_tried() -> None:
    """The first arm fits the product alone; only the second one fits all of it."""
    mod = graph(lambda x, y: op.add(op.exp(x), op.multiply(x, y)), tensor((4,)), tensor((4,)))
    x, y = wildcard(), wildcard()
    either = is_op("exp")(y) | is_op("exp")(x)
    assert (either + is_op("multiply")(x, y)).match(*last(mod))
    # `not` leaves nothing behind.
    z = wildcard()
    assert ((~is_op("negative")(z)) + is_op("multiply")(z, wildcard())).match(*last(mod))


def test_attributes_tuples_and_shapes() -> None:
    mod = graph(
        lambda x: op.reshape(op.split(op.sum(x, [1], keepdims=True), 2, 0)[1], (1, 2)),
        tensor((4, 3)),
    )
    out, table = last(mod)
    total = is_op("sum")(wildcard()).has_attr({"keepdims": True})
    split = is_op("split")(total)
    assert is_op("reshape")(split[1], is_shape((1, 2))).match(out, table)
    assert is_op("reshape")(split[None], wildcard()).match(out, table)
    assert not is_op("reshape")(split[0], wildcard()).match(out, table)
    assert not is_op("reshape")(wildcard(), is_shape((2, 1))).match(out, table)
    assert not has_attr({"no such": 1}).match(out, table)
    pair = graph(lambda x, y: op.concat([x, op.exp(y)], 0), tensor((4,)), tensor((4,)))
    exp = is_op("exp")(wildcard())
    assert is_op("concat")(is_tuple([is_var("x"), exp])).match(*last(pair))
    assert not is_op("concat")(is_tuple([exp, is_var("x")])).match(*last(pair))
    assert is_op("concat")(is_tuple([exp, is_var("x")], unordered=True)).match(*last(pair))
    assert is_tuple_get_item(wildcard()).match(table[table[out].args[0]])


def test_tensor_functions() -> None:
    mod = t.LegalizeOps()(graph(op.exp, tensor((4,))))
    assert is_call_tir("exp", [wildcard()]).match(*last(mod))
    assert is_call_tir("exp").match(*last(mod))
    assert not is_call_tir("tan").match(*last(mod))
    assert is_op("call_tir")(is_gv(), wildcard()).match(*last(mod))


def test_symbolic_extents() -> None:
    n = symbol("n")
    mod = graph(op.exp, tensor((n, 4)))
    assert wildcard().has_shape((n, 4)).match(*last(mod))
    assert not wildcard().has_shape((n + 1, 4)).match(*last(mod))
    assert not wildcard().has_shape((symbol("n"), 4)).match(*last(mod))


def test_faults_say_what_is_wrong() -> None:
    with pytest.raises(TilewrightError, match="did you mean 'matmul'"):
        is_op("relax.matmull")
    with pytest.raises(VerifyError, match="operands of a call's pattern are patterns, got int"):
        is_op("exp")(1)  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match="used_by is for a context"):
        wildcard().used_by(wildcard())
    with pytest.raises(VerifyError, match="no pattern of a call"), PatternContext() as ctx:
        ctx.match_dfb(dense()["main"].body.blocks[0])
    with pytest.raises(VerifyError, match="no context is open"):
        PatternContext(incremental=True)
    assert PatternContext.current() is None


# ---- several patterns -----------------------------------------------------------------------


def chain(*, use_twice: bool) -> Any:
    """``exp`` of ``x``, which ``negative`` and perhaps ``tanh`` use."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((4,)))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(op.exp(x))
            b = builder.emit(op.negative(a))
            c = builder.emit(op.tanh(a)) if use_twice else b
            out = builder.emit_output(op.add(b, c))
        builder.emit_func_output(out)
    return builder.get()["main"].body.blocks[0]


def test_context_with_edges() -> None:
    for only, twice, matches in (
        (False, False, True), (False, True, True), (True, False, True), (True, True, False),
    ):  # fmt: skip
        with PatternContext() as ctx:
            exp, negative = is_op("exp")(wildcard()), is_op("negative")(wildcard())
            _ = exp >> negative if only else exp ^ negative
        found = ctx.match_dfb(chain(use_twice=twice))
        assert (found is not None) is matches
        if found is not None:
            assert found[exp].name == "lv"
            assert found[negative].name == "lv1"


def test_edges_have_positions_and_hints_choose() -> None:
    block = graph(lambda x, y: op.subtract(op.exp(x), op.exp(y)), tensor((4,)), tensor((4,)))[
        "main"
    ].body.blocks[0]
    for index, name in ((0, "lv"), (1, "lv1"), (-1, "lv")):
        with PatternContext() as ctx:
            exp = is_op("exp")(wildcard())
            difference = is_op("subtract")(wildcard(), wildcard())
            exp.used_by(difference, index)
        found = ctx.match_dfb(block)
        assert found is not None
        assert found[exp].name == name
    second = block.bindings[1].var
    with PatternContext() as ctx:
        exp = is_op("exp")(wildcard())
    found = ctx.match_dfb(block, start_hint=second, must_include_hint=True)
    assert found is not None
    assert found[exp] is second
    assert ctx.match_dfb(block, start_hint=block.bindings[2].var, must_include_hint=True) is None
    found = ctx.match_dfb(block, start_hint=block.bindings[2].var)
    assert found is not None


def test_different_patterns_are_different_variables() -> None:
    block = graph(lambda x: op.exp(x), tensor((4,)))["main"].body.blocks[0]
    with PatternContext() as ctx:
        is_op("exp")(wildcard())
        is_op("exp")(wildcard())
    assert ctx.match_dfb(block) is None


# ---- rewriting ------------------------------------------------------------------------------


def agree(before: IRModule, after: IRModule, *arrays: np.ndarray) -> None:
    relax.verify_graph(after)
    want, have = interpreter.run(before, *arrays), interpreter.run(after, *arrays)
    want, have = (x if isinstance(x, tuple) else (x,) for x in (want, have))
    for a, b in zip(want, have, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_rewrite_call() -> None:
    arrays = [random(4, 4), random(4, 4, seed=1)]

    def body(x: Any, y: Any) -> Any:
        twice = op.add(op.multiply(x, y), op.multiply(x, y))
        return op.exp(op.add(twice, op.negative(y)))

    mod = graph_of(body, *arrays)
    x, y, z = wildcard(), wildcard(), wildcard()
    factored = is_op("multiply")(x, y) + is_op("multiply")(x, z)
    seen = []

    def rewriter(value: Any, found: Any) -> Any:
        seen.append(value)
        return op.multiply(found[x], op.add(found[y], found[z]))

    made = rewrite_call(factored, rewriter, mod["main"])
    assert [value.op_name for value in seen] == ["add"]
    after = IRModule({"main": made})
    assert values(after) == ["add", "multiply", "negative", "add", "exp"]
    agree(mod, after, *arrays)
    # What doesn't match, or is left as it was, is the same function.
    assert rewrite_call(factored, lambda value, _: value, mod["main"]) is mod["main"]
    assert rewrite_call(is_op("tan")(x), rewriter, mod["main"]) is mod["main"]
    with pytest.raises(VerifyError, match="a rewriter returns a graph value, got int"):
        rewrite_call(factored, lambda value, _: 3, mod["main"])  # type: ignore[arg-type,return-value]


def test_rewrite_call_to_an_operand_and_to_an_output() -> None:
    x = random(4)
    inner = wildcard()
    twice = is_op("negative")(is_op("negative")(inner))
    for body in (
        lambda x: op.negative(op.negative(x)),
        lambda x: op.exp(op.negative(op.negative(op.negative(op.negative(x))))),
    ):
        mod = graph_of(body, x)
        made = IRModule({"main": rewrite_call(twice, lambda _, m: m[inner], mod["main"])})
        agree(mod, made, x)
        assert "negative" not in values(made)


def test_rewrite_bindings_merges_products() -> None:
    arrays = [random(2, 4), random(4, 3), random(4, 5, seed=1)]

    def body(x: Any, v: Any, w: Any) -> Any:
        # The second weight is made after the first product, which will need it.
        return op.concat([op.matmul(x, v), op.matmul(x, op.exp(w))], 1)

    mod = graph_of(body, *arrays)
    with PatternContext() as ctx:
        x, v, w = wildcard(), wildcard(), wildcard()
        first, second = is_op("matmul")(x, v), is_op("matmul")(x, w)

    def rewriter(found: Any, bindings: Any) -> Any:
        assert bindings[found[first]].op_name == "matmul"
        both = op.split(op.matmul(found[x], op.concat([found[v], found[w]], 1)), [3], 1)
        if found[first].shape[1].value != 3:
            return {}
        return {found[first]: both[0], found[second]: both[1]}

    made = IRModule({"main": rewrite_bindings(ctx, rewriter, mod["main"])})
    agree(mod, made, *arrays)
    assert values(made).count("matmul") == 1
    assert rewrite_bindings(ctx, lambda *_: {}, mod["main"]) is mod["main"]


def test_rewrite_bindings_refuses_circles() -> None:
    mod = graph(lambda x: op.exp(op.negative(x)), tensor((4,)))
    with PatternContext() as ctx:
        inner = is_op("negative")(wildcard())
        outer = is_op("exp")(inner)
    with pytest.raises(VerifyError, match="depends on lv itself"):
        rewrite_bindings(ctx, lambda m, _: {m[inner]: op.tanh(m[outer])}, mod["main"])
    with pytest.raises(VerifyError, match="the block doesn't bind it"):
        rewrite_bindings(ctx, lambda m, _: {mod["main"].params[0]: m[outer]}, mod["main"])


def test_rewriter_of_a_module() -> None:
    n = symbol("n")
    rules = graph(lambda x, y: op.nn.relu(x + y), tensor((n,)), tensor((n,)))
    after = graph(lambda x, y: op.maximum(op.add(y, x), op.zeros_like(x)), tensor((n,)),
                  tensor((n,)))  # fmt: skip
    rewriter = PatternMatchingRewriter.from_module(
        IRModule({"pattern": rules["main"], "replacement": after["main"]})
    )
    x, y = random(4), random(4, seed=1)
    mod = graph_of(lambda x, y: op.exp(op.nn.relu(x + y)), x, y)
    made = rewriter(mod)
    assert values(made) == ["add", "full", "maximum", "exp"]
    agree(mod, made, x, y)
    # Extents that differ are not one extent, and dtypes count.
    other = graph(lambda x, y: op.nn.relu(x + y), tensor((4,)), tensor((1,)))
    assert rewriter(other) is other
    half = graph(lambda x, y: op.nn.relu(x + y), *[tensor((4,), "float16")] * 2)
    assert rewriter(half) is half


def test_rewriters_in_order() -> None:
    x = wildcard()
    first = PatternMatchingRewriter.from_pattern(
        is_op("exp")(x), lambda value, found: op.tanh(found[x]) if value.shape else None
    )
    second = PatternMatchingRewriter.from_pattern(
        is_op("exp")(x) | is_op("negative")(x), lambda value, found: op.sigmoid(found[x])
    )
    mod = graph(lambda x: op.exp(op.negative(x)), tensor((4,)))
    assert values((first | second)(mod)) == ["sigmoid", "tanh"]
    scalar = graph(lambda x: op.exp(op.negative(x)), tensor(()))
    assert values((first | second)(scalar)) == ["sigmoid", "sigmoid"]
    assert Sequential([first | second])(mod) is not mod
    with pytest.raises(VerifyError, match="takes a graph function or an IRModule, got int"):
        first(3)
    with pytest.raises(VerifyError, match="same parameters, got 1 and 3"):
        PatternMatchingRewriter.from_module(
            IRModule({"pattern": mod["main"], "replacement": dense()["main"]})
        )


# ---- further forms of TVM's ---------------------------------------------------------------------


def test_shapes_that_must_be_the_same() -> None:
    mod = graph(
        lambda x, y: op.add(op.exp(x), op.broadcast_to(op.abs(y), (2, 6))),
        tensor((2, 6)),
        tensor((6,)),
    )
    for names, found in ((("exp", "broadcast_to"), True), (("exp", "abs"), False)):
        with PatternContext() as ctx:
            first, second = (is_op(name)(wildcard(), varg_default_wildcard=True) for name in names)
            first.same_shape_as(second)
        assert (ctx.match_dfb(mod["main"].body.blocks[0]) is not None) is found
    with pytest.raises(VerifyError, match="SameShapeConstraint is for a context"):
        dpl.SameShapeConstraint(wildcard(), wildcard())


def test_chains_and_their_copies() -> None:
    mod = graph(lambda x: op.exp(op.abs(op.exp(x))), tensor((4,)))
    block = mod["main"].body.blocks[0]
    with PatternContext() as ctx:
        exp, absolute = is_op("exp")(wildcard()), is_op("abs")(wildcard())
        chain = dpl.PatternSeq([exp, absolute], only_use=True)
        copy = chain.dup()
        assert len(copy.patterns) == 2 and copy[0] is not exp
    assert ctx.match_dfb(block) is None, "there is one abs, and both chains want one"
    with PatternContext() as outer:
        exp, absolute = is_op("exp")(wildcard()), is_op("abs")(wildcard())
        exp.only_used_by(absolute)
        with PatternContext(incremental=True) as inner:
            absolute.used_by(last := is_op("exp")(wildcard()))
    assert last not in outer.patterns
    found = inner.match_dfb(block)
    assert found is not None and found[last] is block.bindings[-1].var


def test_functions_inside_of_functions() -> None:
    x, y = relax.Var("x", tensor((4,))), relax.Var("y", tensor((4,)))
    made = relax.BlockBuilder().build_function([y], lambda: op.exp(op.abs(y)))
    inner = relax.LocalFunction(made)
    param = dpl.is_var("y")
    body = is_op("exp")(is_op("abs")(param))
    assert dpl.FunctionPattern([param], body).match(inner)
    assert dpl.FunctionPattern([wildcard()], body).match(made)
    assert not dpl.FunctionPattern([param, wildcard()], body).match(inner)
    assert not dpl.FunctionPattern([param], is_op("abs")(param)).match(inner)
    assert not dpl.FunctionPattern([param], body).match(x)


def test_small_names() -> None:
    x = relax.Var("x", tensor((4,)))
    assert dpl.reject(dpl.is_const()).match(x) and not dpl.reject(wildcard()).match(x)
    assert dpl.VarPattern(name_hint="x").match(x) and dpl.GlobalVarPattern(name_hint="f")
    assert wildcard().has_ty(tensor((4,))).match(x)
    assert dpl.TypePattern(wildcard(), ty=tensor((5,))).ty.shape[0].value == 5
    item = wildcard()
    assert dpl.is_tuple_get_item(item, 0).tuple is item


def test_a_bias_may_be_reshaped() -> None:
    infos = tensor((2, 3)), tensor((3, 4)), tensor((4, 1))
    mod = graph(lambda x, w, b: op.nn.relu(op.add(op.matmul(x, w), op.reshape(b, (4,)))), *infos)
    values = {b.var: b.value for b in mod["main"].bindings}
    pattern = dpl.make_fused_bias_activation_pattern(
        "relax.matmul", with_bias=True, activation="relax.nn.relu", allow_reshape=True
    )
    found = pattern.extract_matched_expr(mod["main"].bindings[-1].value, values)
    assert found is not None
    assert any(getattr(value, "op_name", "") == "reshape" for value in found.values())
