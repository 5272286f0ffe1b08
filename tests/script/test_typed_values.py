"""Types of `T` make variables, constants and conversions, as TVM's do."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import Broadcast, Cast, IntImm, Var
from tilewright.script import tirx as T
from tilewright.support.errors import VerifyError

KINDS = """
int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 float8_e3m4 float8_e4m3
float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
float6_e2m3fn float6_e3m2fn float4_e2m1fn
""".split()
LANES = (2, 4, 8, 16, 32, 64)
SHORT = {
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "f16": "float16", "f32": "float32", "f64": "float64",
    "bf16": "bfloat16", "boolean": "bool",
}  # fmt: skip

# What `made` looks up, for the search of names that no test tries (`tools/tvm_tried.py`).
SCALAR_PATHS = [f"script.tirx.{name}" for name in (*KINDS, *SHORT, "bfloat16")]
VECTOR_PATHS = [f"script.tirx.{kind}x{lanes}" for kind in KINDS for lanes in LANES]


def made(path: str) -> Any:
    return getattr(T, path.rpartition(".")[2])


@pytest.mark.parametrize("path", SCALAR_PATHS)
def test_scalars(path: str) -> None:
    name = path.rpartition(".")[2]
    dtype = SHORT.get(name, name)
    n = Var("n", "int16" if dtype == "int32" else "int32")
    var, constant, cast = made(path)(), made(path)(1), made(path)(expr=n)
    assert isinstance(var, Var) and constant.value == 1 and isinstance(cast, Cast)
    assert var.dtype == constant.dtype == cast.dtype == dtype and cast.value is n
    assert made(path)(var) is var


@pytest.mark.parametrize("path", VECTOR_PATHS)
def test_vectors(path: str) -> None:
    dtype = path.rpartition(".")[2]
    kind, lanes = dtype.rsplit("x", 1)
    n = Var("n", "int32")
    constant, spread = made(path)(1), made(path)(n)
    assert isinstance(made(path)(), Var)
    assert isinstance(constant, Broadcast) and isinstance(spread, Broadcast)
    assert made(path)().dtype == constant.dtype == spread.dtype == dtype
    assert (constant.value.dtype, constant.value.value) == (kind, 1)
    assert (spread.lanes.value if isinstance(spread.lanes, IntImm) else spread.lanes) == int(lanes)


def test_pointers_and_nothing() -> None:
    for make in (T.Ptr, T.ptr):
        assert make("float32", "shared").dtype == make(T.int8).dtype == "handle"
    assert T.void().dtype == "void"
    with pytest.raises(VerifyError):
        T.void(1)


def test_values_without_operands() -> None:
    assert T.undef().dtype == "int32"
    assert T.undef("float16").dtype == T.undef(dtype="float16").dtype == "float16"


def test_values_of_several_lanes() -> None:
    n = Var("n", "int32")
    spread = T.broadcast(n, 4)
    assert isinstance(spread, Broadcast) and spread.value is n and spread.dtype == "int32x4"
    let = T.Let(n + 1, where={n: 2})
    assert (let.var, let.value.value, let.dtype) == (n, 2, "int32")


def test_threads_and_targets() -> None:
    assert T.target("llvm").kind.name == T.target({"kind": "llvm"}).kind.name == "llvm"
    for shuffle in (
        T.tvm_warp_shuffle, T.tvm_warp_shuffle_up, T.tvm_warp_shuffle_down, T.tvm_warp_shuffle_xor,
    ):  # fmt: skip
        value = Var("x", "float32")
        call = shuffle(T.uint32(0xFFFFFFFF), value, 2, 32, 32)
        assert call.dtype == "float32" and call.args[1] is value
    assert T.tvm_storage_sync("shared").args[0].value == "shared"
    assert T.assume(Var("n", "int32") < 3).dtype == "bool"


def test_kinds_of_effects() -> None:
    kinds = [
        T.CallEffectKind.ExprAnnotation, T.CallEffectKind.Pure, T.CallEffectKind.ReadState,
        T.CallEffectKind.UpdateState, T.CallEffectKind.Opaque,
    ]  # fmt: skip
    assert len(set(kinds)) >= 4 and T.CallEffectKind.Pure != T.CallEffectKind.Opaque
