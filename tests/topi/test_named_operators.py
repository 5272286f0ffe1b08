"""Operators by TVM's names against NumPy: as defined, and as rules schedule them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from named_cases import CASES, EINSUMS, f32, whole

from tilewright import dlight, te, topi
from tilewright.ir import IRModule
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run

CPU = Target("llvm -mcpu=znver3 -num-cores=1")
GPU = Target("cuda -arch=sm_80")


def defined(name: str) -> tuple[PrimFunc, list[Any], list[Any]]:
    """The function of a case, its arguments, and what the results are to be."""
    chosen = CASES[name]
    inputs = [
        te.placeholder(array.shape, str(array.dtype), f"x{n}")
        for n, array in enumerate(chosen.arrays)
    ]
    made = chosen.build(*inputs)
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    wanted = chosen.numpy(*chosen.arrays)
    expected = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
    results = [np.zeros([int(e) for e in x.shape], x.dtype) for x in outputs]
    func = te.create_prim_func([*inputs, *outputs])
    return func, [*chosen.arrays, *results], expected


def check(func: PrimFunc, arrays: list[Any], expected: list[Any]) -> None:
    run(func, *arrays)
    for found, wanted in zip(arrays[len(arrays) - len(expected) :], expected):
        assert found.shape == np.shape(wanted)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    check(*defined(name))


# All contractions of pairs are one definition to rules.
SCHEDULED = [name for name in CASES if name not in EINSUMS and "tensordot of" not in name]
SCHEDULED.append("einsum of batches")


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", SCHEDULED)
def test_scheduled_by_rule(name: str, target: Target) -> None:
    func, arrays, expected = defined(name)
    made = dlight.default_schedule(target)(IRModule({"main": func}))["main"]
    assert made is not func
    check(made, arrays, expected)


n, m = te.var("n"), te.var("m")
SYMBOLIC: dict[str, tuple[Any, Any, list[Any]]] = {
    "einsum": (
        lambda a, b: topi.einsum("ij,jk->ik", a, b), lambda a, b: a @ b, [(n, m), (m, 3)]
    ),
    "sequence_mask": (
        lambda a, v: topi.sequence_mask(a, topi.cast(v, "int32"), 0, 1),
        lambda a, v: np.where(np.arange(a.shape[1]) < v.astype("int32")[:, None], a, 0),
        [(n, m), (n,)],
    ),
    "meshgrid": (
        lambda a, b: topi.meshgrid([a, b], "ij"), lambda *t: np.meshgrid(*t, indexing="ij"),
        [(n,), (m,)],
    ),
    "eye": (
        lambda a: topi.multiply(topi.eye(a.shape[0], a.shape[1]), a),
        lambda a: np.eye(*a.shape, dtype="float32") * a, [(n, m)],
    ),
    "shape": (topi.shape, lambda a: np.array(a.shape, "int32"), [(n, m)]),
    "collapse_sum": (
        lambda a: topi.collapse_sum(a, (a.shape[1],)), lambda a: a.sum(0), [(n, m)]
    ),
    "cumsum, exclusive": (
        lambda a: topi.cumsum(a, 1, exclusive=True),
        lambda a: np.cumsum(a, 1) - a, [(n, m)],
    ),
    "trilu": (lambda a: topi.trilu(a, 0, False), np.tril, [(n, m)]),
    "matrix_set_diag": (
        lambda a, d: topi.matrix_set_diag(a, d, 0),
        lambda a, d: np.where(np.eye(*a.shape, dtype=bool), d[:, None], a),
        [(n, 2), (n,)],
    ),
    "strided_slice, clamped": (
        lambda a: topi.strided_slice(a, [-2], [9], assume_inbound=False), lambda a: a[-2:9],
        [(n, m)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("sizes", [(2, 5), (1, 1), (4, 0), (0, 3)], ids=str)
@pytest.mark.parametrize("name", SYMBOLIC)
def test_sizes_at_run_time(name: str, sizes: tuple[int, int]) -> None:
    build, reference, shapes = SYMBOLIC[name]
    if name == "matrix_set_diag" and sizes[0] < 2:
        pytest.skip("as many rows as columns, or more")
    inputs = [te.placeholder(shape, name=f"x{number}") for number, shape in enumerate(shapes)]
    made = build(*inputs)
    func = te.create_prim_func([*inputs, *(made if isinstance(made, list) else [made])])
    known = {n: sizes[0], m: sizes[1]}
    arrays = [f32(*(known.get(extent, extent) for extent in shape)) for shape in shapes]
    wanted = reference(*arrays)
    expected = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
    check(func, [*arrays, *map(np.zeros_like, expected)], expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_indices_of_any_integer_dtype(dtype: str) -> None:
    data, places = te.placeholder((3, 4), name="a"), te.placeholder((5,), dtype, "i")
    x, i = f32(3, 4), whole(0, 3, 5, dtype=dtype)
    for build, wanted in (
        (lambda a, i: topi.take(a, i, 0), x[i]),
        (lambda a, i: topi.adv_index(a, [i]), x[i]),
        (lambda a, i: topi.unravel_index(i, (2, 2)), np.stack([i // 2, i % 2])),
        (lambda a, i: topi.sequence_mask(
            topi.reshape(a, (2, 6)), topi.strided_slice(i, [0], [2]), 0, 1),
         np.where(np.arange(6) < i[:2, None], x.reshape(2, 6), 0)),
    ):  # fmt: skip
        func = te.create_prim_func([data, places, build(data, places)])
        check(func, [x, i, np.zeros(wanted.shape, wanted.dtype)], [wanted])


def test_narrow_floats_are_summed_in_float32() -> None:
    a, b = (te.placeholder((2, 3000), "float16", name) for name in "ab")
    ones = np.ones((2, 3000), "float16")
    func = te.create_prim_func([a, b, topi.einsum("ij,kj->ik", a, b)])
    check(func, [ones, ones, np.zeros((2, 2), "float16")], [np.full((2, 2), 3000, "float16")])


def test_einsum_goes_the_cheapest_way() -> None:
    """(ij,jk),kl costs more than ij,(jk,kl) where k is large and l is 1."""
    a, b, c = (te.placeholder(shape, name=name) for shape, name in
               (((8, 9), "a"), ((9, 50), "b"), ((50, 1), "c")))  # fmt: skip
    func = te.create_prim_func([a, b, c, topi.einsum("ij,jk,kl->il", a, b, c)])
    assert "einsum_pair = T.alloc_buffer((9, 1)" in func.script()


def test_indices_of_slices() -> None:
    inside = [bool(topi.within_index(8, 1, -3, i).value) for i in range(10)]
    assert [i for i in range(10) if inside[i]] == [2, 5, 8]
    assert [topi.make_idx(2, 8, 3, 10, i).value for i in (2, 5)] == [0, 1]


REFUSED = {
    "einsum, labels": (lambda x: topi.einsum("ijk->i", x), "labels for 3 axes"),
    "einsum, operands": (lambda x: topi.einsum("ij,jk->ik", x), "of 2 operands, not 1"),
    "einsum, result": (lambda x: topi.einsum("ij->ik", x), "axis 'k' twice, or no operand"),
    "einsum, extents": (lambda x: topi.einsum("ii->i", x), "extents of 'i'"),
    "einsum, signs": (lambda x: topi.einsum("i;j", x), "other signs"),
    "tensordot": (lambda x: topi.tensordot(x, x, 1), "axes 1 and 0: 4 is not 3"),
    "meshgrid": (lambda x: topi.meshgrid([x], "ij"), "vectors and scalars"),
    "take": (lambda x: topi.take(x, topi.cast(x, "int32"), 0, 1), "at most the axis 0"),
    "expand_like": (lambda x: topi.expand_like(x, x, 0), "has 1 dimensions, x has 2"),
    "collapse_sum": (lambda x: topi.collapse_sum(x, (3, 2)), "does not broadcast"),
    "reinterpret": (lambda x: topi.reinterpret(x, "int8"), "differ in their number of bits"),
    "fixed_point_multiply": (lambda x: topi.fixed_point_multiply(x, 1, 1), "takes int32"),
    "sliding_window": (lambda x: topi.sliding_window(x, 0, [4, 1], [1, 1]), "does not fit into 3"),
    "reverse_sequence": (lambda x: topi.reverse_sequence(x, x, 0, 0), "are both 0"),
    "sequence_mask": (lambda x: topi.sequence_mask(x, x, 0, 1), "must have 1 dimensions"),
    "matrix_set_diag": (lambda x: topi.matrix_set_diag(x, x, (0, 1), "UP"), "LEFT and RIGHT"),
    "strided_slice": (lambda x: topi.strided_slice(x, [0], [1], slice_mode="x"), "end or size"),
    "unravel_index": (lambda x: topi.unravel_index(x, (2,)), "indices must be integers"),
    "stft": (lambda x: topi.stft(x, 4, 0, 4, x, 0, 1, [3, 3, 1, 2]), "a hop of at least 1"),
    "dft": (lambda x: topi.dft(x, x, te.var("inverse")), "must be a constant"),
    "layout_transform": (lambda x: topi.layout_transform(x, "NC", "NC3c"), "do not divide"),
    "sparse_to_dense": (lambda x: topi.sparse_to_dense(x, [3], x), "at most 1 dimension"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    build, message = REFUSED[name]
    with pytest.raises(VerifyError, match=message):
        build(te.placeholder((3, 4), name="x"))


def test_parameters_have_tvms_names() -> None:
    for names, functions in {
        "lhs rhs": [topi.add, topi.power, topi.less, topi.left_shift],
        "data axis keepdims": [topi.sum, topi.max, topi.all],
        "data axis keepdims select_last_index": [topi.argmax, topi.argmin],
        "data valid_count axis is_ascend dtype": [topi.argsort],
        "a indices axis batch_dims mode": [topi.take],
        "data axis dtype exclusive": [topi.cumsum, topi.cumprod],
        "array src_layout dst_layout schedule_rule": [topi.layout_transform],
    }.items():
        for function in functions:
            given = list(inspect.signature(function).parameters)
            assert given[: len(names.split())] == names.split(), function.__name__
