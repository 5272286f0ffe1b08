"""Types of expressions, with TVM's names and arguments."""

from __future__ import annotations

import pytest

from tilewright import relax, te, tir
from tilewright.ir import (
    FuncType,
    OpaqueType,
    PointerType,
    PrimType,
    StringImm,
    StringType,
    TupleType,
    Type,
    Var,
    assert_structural_equal,
    is_prim_expr,
    is_prim_var,
    load_json,
    save_json,
)
from tilewright.runtime import DataTypeCode
from tilewright.support.errors import VerifyError

INT = PrimType("int32")
n = Var("n")
p = Var("p", PointerType(PrimType("float32"), "shared"))


@pytest.mark.parametrize(
    "got, wanted",
    [
        (Var("x", "int32").ty, INT),
        (Var("x", INT).ty, INT),
        ((Var("x", "int32") + 1).expr_ty(), INT),
        ((Var("x", "int32") < 1).ty, PrimType("bool")),
        (p.ty, PointerType(PrimType("void"))),
        (StringImm("s").ty, StringType()),
        (tir.IterVar((0, 4), Var("i"), 0).expr_ty(), PrimType("int64")),
        (te.placeholder((4, 4), "float32").expr_ty(), PrimType("float32")),
        (te.placeholder((4, 4), "float32")[0].expr_ty(), PrimType("float32")),
        (relax.Var("x", relax.TensorType((n,), "float32")).ty, relax.TensorType((n,), "float32")),
    ],
)
def test_types_follow_from_dtypes(got, wanted):
    assert got == wanted and hash(got) == hash(wanted)


ALL = [
    INT,
    PrimType("float32x4"),
    PointerType(INT),
    PointerType(INT, "shared"),
    TupleType([INT, StringType()]),
    TupleType([]),
    FuncType([INT], TupleType([])),
    StringType(),
    OpaqueType(),
    Type(),
    relax.TensorType((n, 4), "float32"),
    relax.TensorType((Var("n"), 4), "float32"),
    relax.AnyType(),
]


def test_types_are_values_of_one_hierarchy():
    for place, each in enumerate(ALL):
        assert isinstance(each, Type) and not each.is_missing() and each != "int32"
        assert [each == other for other in ALL] == [place == i for i in range(len(ALL))]
        assert each.is_base_of(each) and each.same_as(each)
        assert_structural_equal(load_json(save_json(each)), each, map_free_vars=True)
    assert Type.missing().is_missing() and Type.Missing().same_as(Type.missing())
    assert relax.Type is Type and relax.TupleType is TupleType and relax.PrimStructInfo is PrimType
    assert PointerType(INT).storage_scope == "global"
    assert FuncType([INT], StringType()).arg_types == (INT,)


def test_a_base_has_all_values_of_what_derives_from_it():
    wide = TupleType([relax.TensorType(None, "float32"), INT])
    assert wide.is_base_of(TupleType([relax.TensorType((n,), "float32"), INT]))
    assert not wide.is_base_of(TupleType([INT, INT])) and not INT.is_base_of(PrimType("int64"))
    assert relax.AnyType().is_base_of(OpaqueType()) and not OpaqueType().is_base_of(StringType())


def test_kinds_of_elements():
    assert INT.matches_code(DataTypeCode.INT) and INT.matches_code(2, 0) and not INT.matches_code(2)
    assert PrimType("bool").matches_code(DataTypeCode.BOOL)
    assert PrimType("bfloat16x2").matches_code(DataTypeCode.BFLOAT)
    assert PrimType("float8_e4m3fn").matches_code(DataTypeCode.Float8E4M3FN)
    assert PrimType("float32x4").matches_element_type(DataTypeCode.FLOAT, 32)
    assert not INT.matches_element_type(0, 64)
    assert INT.is_scalar() and not PrimType("int32x4").is_scalar()


def test_numbers_are_told_from_other_values():
    numbers = [n, n + 1, n < 2, tir.const(1.0, "float32")]
    others = [3, None, "n", p, StringImm("s"), relax.const(1)]
    assert all(map(is_prim_expr, numbers)) and not any(map(is_prim_expr, others))
    assert is_prim_var(n) and not is_prim_var(n + 1) and not is_prim_var(p)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PrimType("int33"),
        lambda: PointerType("int8"),
        lambda: TupleType(["int8"]),
        lambda: FuncType([INT], "int8"),
    ],
)
def test_what_is_no_type(make):
    with pytest.raises(VerifyError):
        make()
