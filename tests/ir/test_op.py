"""Operators and their calls, with TVM's names and arguments."""

from __future__ import annotations

import pytest

from tilewright import tir
from tilewright.ir import (
    OPS,
    Call,
    Op,
    PrimType,
    StringImm,
    assert_structural_equal,
    call,
    register_op,
)
from tilewright.support.errors import VerifyError

x = tir.Var("x", "float32")
EXP = Op.get("tirx.exp")


@pytest.mark.parametrize(
    "made",
    [
        Call(EXP, [x]),
        Call("tirx.exp", (x,)),
        Call("exp", [x], None, [], None, PrimType("float32")),
        Call(op=EXP, args=[x], ret_ty=PrimType("float32")),
        Call(EXP, [x], dtype="float32"),
        Call(EXP, [x], {}, ()),
    ],
)
def test_calls_are_made_as_tvms(made):
    assert_structural_equal(made, tir.exp(x))
    assert made.op is EXP and made.args == (x,) and made.attrs is None and made.ty_args == ()


def test_results_that_nothing_says():
    assert Call("tirx.call_extern", [StringImm("f"), x], ret_ty=PrimType("int32")).dtype == "int32"
    with pytest.raises(VerifyError):
        Call("tirx.call_extern", [StringImm("f"), x])
    for given in ({"attrs": {"a": 1}}, {"ty_args": [PrimType("int32")]}):
        with pytest.raises(VerifyError, match="no attrs and ty_args"):
            Call(EXP, [x], **given)


def test_what_is_said_of_operators():
    assert EXP is Op.get("exp") is Op.get("tir.exp") and EXP.num_inputs == 1
    assert Op.get("tirx.call_extern").num_inputs == -1
    assert EXP.support_level == 10 and EXP.arguments == () and EXP.attrs_type_key == ""
    with pytest.raises(VerifyError, match=r"Op\.get\(name\)"):
        Op()
    extended = OPS.extended
    made = register_op("test_what_is_said", None, doc="says it")
    try:
        made.set_num_inputs(n=2)
        made.set_support_level(level=3)
        made.set_attrs_type_key(key="Attrs")
        made.add_argument("a", "Tensor", "the first")
        made.add_argument(name="b", type="Tensor", description="the second")
        assert (made.num_inputs, made.support_level, made.attrs_type_key) == (2, 3, "Attrs")
        assert made.description == "says it"
        assert [(a.name, a.type_info, a.description) for a in made.arguments] == [
            ("a", "Tensor", "the first"),
            ("b", "Tensor", "the second"),
        ]
        with pytest.raises(VerifyError):
            call(made.name, x)
        assert call(made.name, x, x).dtype == "float32"
        made.set_num_inputs(-1)
        assert made.arity is None
    finally:
        del OPS._entries["test_what_is_said"]
        OPS.extended = extended


@pytest.mark.parametrize("effect", ["Pure", "write", True, None])
def test_an_effect_is_one_of_the_known_words(effect):
    with pytest.raises(VerifyError, match="one of pure, read, update, opaque"):
        Op("some_operator", 1, effect=effect)
