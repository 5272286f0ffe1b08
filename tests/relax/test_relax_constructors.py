"""Constructors of graphs and compute definitions refuse what no program can mean."""

from __future__ import annotations

import pytest

from tilewright import relax, script, te
from tilewright.relax.frontend import nn
from tilewright.support.errors import ParseError, VerifyError

INFO = relax.TensorStructInfo((4,), "float32")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: relax.TensorStructInfo((4,), "int99"), "unknown dtype 'int99'"),
        (lambda: relax.TensorStructInfo((4,), ["int8"]), "a dtype is text"),
        (lambda: relax.TensorStructInfo((4, -4)), "a tensor has the extent -4, less than nothing"),
        (lambda: relax.Var(3, relax.TensorStructInfo((4,))), "the name of a variable is text"),
        (lambda: nn.Parameter((4,), "int99"), "unknown dtype 'int99'"),
        (lambda: te.placeholder((4,), "int99"), "unknown dtype 'int99'"),
        (lambda: te.placeholder((-4,), name="A"), "tensor A has the extent -4, less than nothing"),
        (lambda: te.placeholder((4,), name=3), "the name of a tensor is text, got 3"),
        (lambda: te.compute((-4,), lambda i: i, name="B"), "tensor B has the extent -4"),
        (lambda: relax.call_tir((), (), INFO), "what is called is a GlobalVar"),
        (lambda: relax.call_tir(relax.ExternFunc(3), (), INFO), "3 is no symbol of a library"),
        (lambda: relax.expr.RelaxCall((), ()), "() is no operator, and no GlobalVar"),
    ],
)
def test_refused(make, message):
    with pytest.raises(VerifyError) as info:
        make()
    assert message in info.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: R.Tensor((4,), 'int99')", "unknown dtype 'int99'"),
        ("x: R.Tensor((4, -4), 'int8')", "a tensor has the extent -4, less than nothing"),
    ],
)
def test_script_points_at_what_is_refused(text, message):
    with pytest.raises(ParseError) as info:
        script.parse(f"@R.function\ndef f({text}):\n    return x\n")
    assert message in str(info.value)
    assert "--> <script>:2:" in str(info.value)
