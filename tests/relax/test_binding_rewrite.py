"""``DataflowBlockRewrite``: changing a dataflow block binding by binding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relax.helpers import graph, random, shown, tensor, values
from tilewright import relax
from tilewright.ir import IRModule
from tilewright.relax import DataflowBlockRewrite, analysis, op
from tilewright.support.errors import VerifyError

X = tensor((4,))


def chain() -> tuple[IRModule, DataflowBlockRewrite, list[relax.Var]]:
    """``exp``, then ``negative`` and (unused) ``abs`` of that."""

    def body(x: relax.Var) -> relax.Expr:
        builder = relax.BlockBuilder.current()
        assert builder is not None
        a = builder.emit(op.exp(x), "a")
        builder.emit(op.abs(a), "unused")
        return op.negative(a)

    mod = graph(body, X)
    block = mod["main"].body.blocks[0]
    return mod, DataflowBlockRewrite(block, mod["main"]), [b.var for b in block.bindings]


def test_bindings_are_added_at_the_end() -> None:
    mod, rewrite, (a, *_) = chain()
    local = rewrite.add(op.tanh(a), "t", is_dfvar=True)
    seen = rewrite.add(op.sin(op.cos(local)))
    assert isinstance(local, relax.DataflowVar) and not isinstance(seen, relax.DataflowVar)
    assert [b.var.name for b in rewrite.dfb.bindings[3:]] == ["t", "lv", "tmp"]
    other = relax.Var("other", X)
    rewrite.add_binding(relax.VarBinding(other, a))
    assert rewrite.mutated_dfb().bindings[-1].var is other
    assert analysis.well_formed(rewrite.mutate_irmodule(mod))
    assert values(mod) == ["exp", "abs", "negative"], "the module itself stays as it was"
    with pytest.raises(VerifyError, match="bound already"):
        rewrite.add_binding(relax.VarBinding(other, a))


def test_names_are_free() -> None:
    _, rewrite, (a, *_) = chain()
    names = [rewrite.add(op.sin(op.cos(a)), "a").name for _ in range(2)]
    assert len({*names, "a"}) == 3
    bound = [binding.var.name for binding in rewrite.dfb.bindings]
    assert len(set(bound)) == len(bound)


def test_uses_are_replaced_and_what_is_unused_goes() -> None:
    mod, rewrite, (a, *_) = chain()
    with pytest.raises(VerifyError, match="a is used"):
        rewrite.remove_unused(a)
    rewrite.replace_all_uses(a, mod["main"].params[0])
    rewrite.remove_unused(a)
    rewrite.remove_unused(a, allow_undef=True)
    with pytest.raises(VerifyError, match="doesn't bind a"):
        rewrite.remove_unused(a)
    rewrite.remove_all_unused()
    made = rewrite.mutate_irmodule(mod)
    assert values(made) == ["negative"]
    x = random(4)
    np.testing.assert_array_equal(relax.interpreter.run(made, x), -x)


def test_what_follows_from_a_replaced_value_is_inferred_anew() -> None:
    mod, rewrite, (a, *_) = chain()
    wide = rewrite.add(op.astype(mod["main"].params[0], "float16"), is_dfvar=True)
    assert wide.dtype == "float16"
    rewrite.replace_all_uses(a, wide)
    assert [b.var.dtype for b in rewrite.dfb.bindings] == ["float32"] + ["float16"] * 3


def test_an_emptied_block_can_be_filled_again() -> None:
    x = relax.Var("x", X)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit_output(op.exp(x))
        with builder.dataflow():
            builder.emit_output(op.abs(x))
        builder.emit_func_output(first)
    mod = builder.get()
    rewrite = DataflowBlockRewrite(mod["main"].body.blocks[1], mod["main"])
    rewrite.remove_all_unused()
    assert not rewrite.dfb.bindings and values(rewrite.mutate_irmodule(mod)) == ["exp"]
    rewrite.replace_all_uses(first, rewrite.add(op.sin(first)))
    assert shown(rewrite.mutate_irmodule(mod))[-1] == "return tmp"


def test_other_blocks_and_modules_are_refused() -> None:
    mod, rewrite, _ = chain()
    with pytest.raises(VerifyError, match="a dataflow block of the function"):
        DataflowBlockRewrite(relax.DataflowBlock(()), mod["main"])
    with pytest.raises(VerifyError, match="doesn't have the function"):
        rewrite.mutate_irmodule(IRModule({}))
