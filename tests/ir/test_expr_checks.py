"""Constructors of expressions refuse what no program can mean."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir import Broadcast, Cast, FloatImm, IntImm, Ramp, Shuffle, StringImm, Var
from tilewright.support.errors import VerifyError

INDEX = Var("i")
VECTOR = Ramp(INDEX, IntImm(1), 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IntImm(300, "int8"), "the constant 300 does not fit int8"),
        (lambda: IntImm(-1, "uint32"), "does not fit uint32"),
        (lambda: IntImm(2, "bool"), "does not fit bool"),
        (lambda: IntImm(1.5, "int32"), "holds an integer, got 1.5"),
        (lambda: IntImm("x", "int32"), "holds an integer, got 'x'"),
        (lambda: IntImm("x"), "holds an integer, got 'x'"),
        (lambda: IntImm(1, "float32"), "of an integer dtype"),
        (lambda: IntImm(1, "int32x4"), "of an integer dtype"),
        (lambda: IntImm(1, "int99"), "unknown dtype 'int99'"),
        (lambda: IntImm(1, None), "a dtype is text"),
        (lambda: FloatImm(1.0, "int32"), "of a floating-point dtype, got 'int32'"),
        (lambda: FloatImm(1.0, "float32x4"), "of a floating-point dtype"),
        (lambda: FloatImm("1.0"), "holds a number, got '1.0'"),
        (lambda: FloatImm(1j), "holds a number"),
        (lambda: StringImm(3), "holds text"),
        (lambda: Cast(INDEX, "float99"), "unknown dtype 'float99'"),
        (lambda: Cast(INDEX, "void"), "a Cast converts values"),
        (lambda: Cast(INDEX, "int32x4"), "keeps the number of lanes"),
        (lambda: Cast(VECTOR, "int32"), "keeps the number of lanes"),
        (lambda: Ramp(INDEX, IntImm(1), 0), "lanes must be a positive number"),
        (lambda: Broadcast(INDEX, 2.0), "lanes must be a positive number"),
        (lambda: Shuffle((VECTOR,), (4,)), "picks from 4 lanes"),
        (lambda: Shuffle((), ()), "picks from 0 lanes"),
    ],
)
def test_refused(make, message):
    with pytest.raises(VerifyError) as info:
        make()
    assert message in info.value.message


def test_numbers_of_other_types_become_pythons():
    assert type(IntImm(np.int8(3), "int8").value) is int
    assert type(IntImm(True, "bool").value) is int
    assert type(FloatImm(np.float32(0.5)).value) is float
    assert type(FloatImm(2).value) is float
