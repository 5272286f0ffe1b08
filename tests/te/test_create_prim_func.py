from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.ir import structural_equal, structural_hash
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run


def matmul(n: int = 8) -> PrimFunc:
    a, b = te.placeholder((n, 6), name="A"), te.placeholder((6, 5), name="B")
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((n, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def test_matmul_means_matmul() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((8, 6), "float32"), rng.random((6, 5), "float32")
    c = np.zeros((8, 5), "float32")
    run(matmul(), a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-6)


def test_the_same_definition_twice_is_structurally_equal() -> None:
    assert structural_equal(matmul(), matmul())
    assert structural_hash(matmul()) == structural_hash(matmul())
    assert structural_hash(matmul()) != structural_hash(matmul(9))


def test_intermediate_tensors_become_allocated_buffers() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4,), lambda i: b[i] * 2.0, name="C")
    func = te.create_prim_func([a, c])
    assert [buffer.name for buffer in func.root.alloc_buffers] == ["B"]
    out = np.zeros(4, "float32")
    run(func, np.arange(4, dtype="float32"), out)
    np.testing.assert_array_equal(out, [2, 4, 6, 8])


def test_symbolic_extent() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    func = te.create_prim_func([a, b])
    for size in (1, 5):
        out = np.zeros(size, "float32")
        run(func, np.ones(size, "float32"), out)
        np.testing.assert_array_equal(out, np.full(size, 2.0))


def test_custom_reducer_and_condition() -> None:
    a = te.placeholder((3, 4), name="A")
    k = te.reduce_axis((0, 4), "k")
    biggest = te.comm_reducer(lambda x, y: te.maximum(x, y), te.min_value, name="biggest")
    c = te.compute((3,), lambda i: biggest(a[i, k], axis=k, where=k.var < 2), name="C")
    data = np.arange(12, dtype="float32").reshape(3, 4)
    out = np.zeros(3, "float32")
    run(te.create_prim_func([a, c]), data, out)
    np.testing.assert_array_equal(out, data[:, :2].max(1))


def test_tuple_reduction_writes_both() -> None:
    a = te.placeholder((5,), name="A")
    k = te.reduce_axis((0, 5), "k")
    index, value = te.compute((), lambda: te.argmax((k.var, a[k]), axis=k), name="C")
    func = te.create_prim_func([a, index, value])
    at, best = np.zeros((), "int64"), np.zeros((), "float32")
    run(func, np.array([1, 5, 2, 5, 0], "float32"), at, best)
    assert (int(at), float(best)) == (1, 5.0)


def test_unknown_placeholder() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i], name="B")
    with pytest.raises(VerifyError, match="'A' is used but not an argument"):
        te.create_prim_func([b])


def test_reduction_inside_a_formula() -> None:
    a = te.placeholder((4,), name="A")
    k = te.reduce_axis((0, 4), "k")
    with pytest.raises(VerifyError, match="compute of its own"):
        te.compute((1,), lambda i: te.sum(a[k], axis=k) + 1.0)


def test_wrong_number_of_indices() -> None:
    a = te.placeholder((4, 4), name="A")
    with pytest.raises(VerifyError, match="A has 2 dimensions, got 1"):
        te.compute((4,), lambda i: a[i])


def test_axes_take_part_in_arithmetic() -> None:
    a, w = te.placeholder((10,), name="A"), te.placeholder((3,), name="W")
    r = te.reduce_axis((0, 3), "r")
    c = te.compute((4,), lambda i: te.sum(a[i * 2 + r] * w[2 - r], axis=r), name="C")
    x, k = np.arange(10, dtype="float32"), np.array([1, 2, 3], "float32")
    out = np.zeros(4, "float32")
    run(te.create_prim_func([a, w, c]), x, k, out)
    np.testing.assert_array_equal(out, [x[2 * i : 2 * i + 3] @ k[::-1] for i in range(4)])
