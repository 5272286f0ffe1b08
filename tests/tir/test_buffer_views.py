"""Buffers as TVM's users write them (pointers, vectors, offsets), and ``specialize``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.ir import const_value, structural_equal
from tilewright.script import tir as T
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run

B = tir.decl_buffer((4, 8), "float32", "B")
M, O = tir.Var("m"), tir.Var("o")
S = tir.decl_buffer((4, 8), "float32", "S", strides=[M, 1], elem_offset=O, offset_factor=4)


def numbers(call: Any) -> list[object]:
    return [const_value(arg) for arg in call.args[1:]]


def test_pointers() -> None:
    assert B.access_ptr("r").args[0] is B.data and numbers(B.access_ptr("r")) == [0, 32, 1]
    assert numbers(B.access_ptr("rw", offset=3, extent=5)) == [3, 5, 3]
    made = S.access_ptr(tir.BufferAccessKind.WRITE)
    assert structural_equal(made.args[2], M * 4, map_free_vars=False) and made.args[1] is O
    assert numbers(B.access_ptr("w", content_lanes=4)) == [0, 32, 2]
    for wrong in ({"access_mask": "x"}, {"access_mask": 0}, {"access_mask": 1, "ptr_type": "int"}):
        with pytest.raises(VerifyError):
            B.access_ptr(**wrong)
    with pytest.raises(VerifyError, match="no multiple of 4 lanes"):
        B.access_ptr("r", content_lanes=4, offset=2)


def test_vectors() -> None:
    assert B.vload((1, 2)).dtype == "float32"
    wide = B.vload((1, 0), "float32x4")
    assert wide.dtype == "float32x4" and isinstance(wide.indices[1], tir.Ramp)
    store = B.vstore((1, 0), tir.Broadcast(tir.const(1.0), 4))
    assert store.indices[1].lanes == 4 and isinstance(B.vstore((1, 0), 2.0), tir.BufferStore)
    with pytest.raises(VerifyError, match="has no float16x8"):
        B.vload((1, 0), "float16x8")
    with pytest.raises(VerifyError, match="2 dimensions, got 1"):
        B.vload(1)


def test_offsets() -> None:
    assert [int(place) for place in B.offset_of((1, 2))] == [10]
    i = tir.Var("i")
    (place,) = S.offset_of((i, 2))
    assert structural_equal(place, M * i + 2 + O, map_free_vars=False)
    split = tir.decl_buffer((4, 8, 2), axis_separators=[1])
    assert [int(place) for place in split.offset_of((3, 1, 1))] == [3, 3]
    assert int(B.byte_offset_of((1, 2))) == 40
    flat = B.get_flattened_buffer()
    assert flat.data is B.data and int(flat.shape[0]) == 32 and flat.ndim == 1
    assert flat.get_flattened_buffer() is flat
    assert structural_equal(S.get_flattened_buffer().shape[0], M * 4, map_free_vars=False)
    assert [int(x) for x in split.get_flattened_buffer().shape] == [4, 16]
    assert int(tir.decl_buffer(()).get_flattened_buffer().shape[0]) == 1


def test_names_of_tvm() -> None:
    assert B.scope() == B.scope == "global" and B.data_alignment == 64 and B.offset_factor == 1
    shared = tir.decl_buffer((4,), scope="shared", data_alignment=16)
    assert shared.scope() == "shared" and shared.alignment == 16
    moved = tir.decl_buffer((4,), offset_factor=4)
    assert isinstance(moved.elem_offset, tir.Var)
    assert tir.decl_buffer((4,), elem_offset=24).offset_factor == 8
    with pytest.raises(VerifyError, match="no multiple of 4"):
        tir.decl_buffer((4,), elem_offset=6, offset_factor=4)
    assert B.with_dtype("int32").dtype == "int32"
    with pytest.raises(VerifyError, match="another size"):
        B.with_dtype("int8")


def add_one(n: Any, m: Any, *scalars: Any) -> tir.PrimFunc:
    a = te.placeholder((n, m), name="A")
    return te.create_prim_func([*scalars, a, te.compute((n, m * 2), lambda i, j: a[i, j // 2])])


def test_specialize_by_a_buffer() -> None:
    n, m = te.var("n"), te.var("m")
    func = add_one(n, m)
    made = func.specialize({func.params[0]: tir.decl_buffer((4, 8))})
    assert structural_equal(made, add_one(4, 8))
    assert func.symbolic_vars() and not made.symbolic_vars()
    x, y = np.arange(32, dtype="float32").reshape(4, 8), np.zeros((4, 16), "float32")
    run(made, x, y)
    np.testing.assert_array_equal(y, np.repeat(x, 2, axis=1))


def test_specialize_by_numbers() -> None:
    n, m = te.var("n"), te.var("m")
    scalars = add_one(n, m, n, m)
    made = scalars.specialize({n: 4})
    assert [param.name for param in made.params] == ["m", "A_handle", "compute_handle"]
    assert structural_equal(made.specialize({made.params[0]: 8}), add_one(4, 8))
    assert structural_equal(add_one(n, m).specialize({n: 4, m: 8}), add_one(4, 8))


def test_specialize_by_another_size() -> None:
    n, m = te.var("n"), te.var("m")
    func = add_one(n, m)
    k = te.var("k")
    for given in ({n: m}, {func.params[0]: tir.decl_buffer((m, m))}):
        assert structural_equal(func.specialize(given), add_one(k, k))
    assert structural_equal(func.specialize({n: m + 1}), add_one(k + 1, k))


def test_specialize_refuses_what_does_not_fit() -> None:
    n, m = te.var("n"), te.var("m")
    func = add_one(n, m, n)
    handle = func.params[1]
    for given, message in (
        ({te.var("z"): 3}, "is neither"),
        ({handle: tir.decl_buffer((4, 8, 3))}, "does not fit"),
        ({handle: tir.decl_buffer((4, 8), "int8")}, "does not fit"),
        ({handle: 3}, "gets a buffer"),
        ({n: tir.decl_buffer((4,))}, "is a scalar"),
        ({n: 1.5}, "no integer"),
        ({n: 3, handle: tir.decl_buffer((4, 8))}, "can't be both 3 and 4"),
    ):
        with pytest.raises(VerifyError, match=message):
            func.specialize(given)
    square = te.placeholder((n, n), name="A")
    twice = te.create_prim_func([square, te.compute((n,), lambda i: square[i, i])])
    with pytest.raises(VerifyError, match="can't be both 4 and 5"):
        twice.specialize({twice.params[0]: tir.decl_buffer((4, 5))})


def test_views_at_a_symbolic_offset() -> None:
    @T.prim_func
    def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        for i in range(8):
            with T.block("row"):
                v = T.axis.spatial(8, i)
                T.reads(A[v, 0:4])
                T.writes(B[v, 0:4])
                X = T.match_buffer(A[v, 0:4], (4,), offset_factor=4)
                off = T.int64()
                Y = T.match_buffer(B[v, 0:4], (4,), elem_offset=off, offset_factor=4)
                for j in range(4):
                    Y[j] = X[j] + T.Cast("float32", off)

    x, y = np.ones((8, 4), "float32"), np.zeros((8, 4), "float32")
    run(main, x, y)
    np.testing.assert_array_equal(y[:, 0], 1 + 4 * np.arange(8))
