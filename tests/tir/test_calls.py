"""Calls of foreign code, bits and vectors under TVM's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import driver, te, tir
from tilewright.support.errors import VerifyError

X = tir.Var("x", "float32")
V = tir.Broadcast(X, 8)
BYTES = [tir.Broadcast(tir.const(n, kind), 4) for n, kind in ((1, "int8"), (2, "uint8"))]


@pytest.mark.parametrize(
    ("made", "dtype"),
    [
        (tir.call_extern("int32", "f", X, tir.decl_buffer((4,))), "int32"),
        (tir.call_pure_extern("float32", "sqrtf", X), "float32"),
        (tir.call_llvm_pure_intrin("float32", "llvm.sqrt", X), "float32"),
        (tir.call_intrin("float32", "tirx.exp", X), "float32"),
        (tir.call_intrin("float32x4", "tir.vectorlow", V), "float32x4"),
        (tir.reinterpret("int32", X), "int32"),
        (tir.vectorlow("float32x4", V), "float32x4"),
        (tir.vectorhigh("float32x4", V), "float32x4"),
        (tir.vectorcombine("float32x16", V, V), "float32x16"),
        (tir.dp4a(*BYTES, 3), "int32"),
        (tir.address_of(tir.decl_buffer((4, 4))), "handle"),
        (tir.isnullptr(tir.Var("p", "handle")), "bool"),
        (tir.undef(), "int32"),
        (tir.assume(X > 0.0), "bool"),
        (tir.call_packed("name", tir.decl_buffer((4,)), 3), "int32"),
        (tir.get_active_lane_mask("boolx4", tir.Var("i"), 10), "boolx4"),
        (
            tir.tvm_access_ptr(tir.type_annotation("int8"), tir.Var("p", "handle"), 0, 4, 1),
            "handle",
        ),
    ],
    ids=lambda item: item.op.name if isinstance(item, tir.Call) else "",
)
def test_dtypes(made: Any, dtype: str) -> None:
    assert made.dtype == dtype


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tir.call_extern("f", X), "the result's dtype, then"),
        (lambda: tir.call_intrin("float64", "exp", X), "is of float32, not float64"),
        (lambda: tir.call_intrin("float32", "exp", X, attrs={"a": 1}), "no attributes"),
        (lambda: tir.reinterpret("int64", X), "32 bits, int64 has 64"),
        (lambda: tir.vectorlow("float32x2", V), "is not half of"),
        (lambda: tir.vectorcombine("float32x8", V, V), "don't make float32x8"),
        (lambda: tir.dp4a(V, V), "int8x4 or uint8x4"),
        (lambda: tir.call_packed(X), "the name of a global function"),
        (lambda: tir.call_packed("f", tir.decl_buffer((4,), strides=[2])), "strides or an offset"),
        (lambda: tir.get_active_lane_mask("int32x4", 0, 3), "a vector of bool"),
        (tir.assume, "takes the condition"),
        (lambda: tir.ldexp(X, 1.5), "ldexp takes integers"),
        (lambda: tir.hypot(tir.Var("n"), tir.Var("m")), "takes floating-point numbers"),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        make()


def test_operators_fold_constants() -> None:
    numbers = [tir.truncdiv(-7, 2), tir.truncmod(-7, 2), tir.floordiv(-7, 2), tir.div(-7, 2)]
    assert [int(number) for number in numbers] == [-3, -1, -4, -3]
    assert int(tir.indexdiv(7, 2)) == 3 and int(tir.ceildiv(7, 2)) == 4
    assert float(tir.const(1.5)) == 1.5 and bool(tir.const(0)) is False
    assert tir.convert([1, 2.5])[1].dtype == "float32"
    assert te.exp is tir.exp and te.sum is tir.sum and te.if_then_else is tir.if_then_else


def test_intrinsics_of_llvm_need_no_suffix() -> None:
    a = te.placeholder((8,), name="A")

    def root(i: tir.Var) -> tir.PrimExpr:
        return tir.call_llvm_pure_intrin("float32", "llvm.sqrt", a[i])

    function = driver.compile(te.create_prim_func([a, te.compute((8,), root)]), "llvm")["main"]
    x, y = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    function(x, y)
    np.testing.assert_array_equal(y, np.sqrt(x))
