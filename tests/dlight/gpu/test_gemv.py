"""Matrices times vectors, and reductions, by vectors: simulated, compiled, at memory's speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpu_rules import CUDA, agree, compiled, function, kernels, lowered, scheduled, tensor

from tests.everyday import few
from tilewright import te, topi
from tilewright.dlight.gpu import GEMV, LowBatchGEMV, Reduction
from tilewright.ir import dtypes, pre_order
from tilewright.scheduling import NotApplicable, start_schedule
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.tir import BufferStore, PrimFunc

n, m = te.var("n"), te.var("m")


def rows(vectors: Any, results: Any, length: Any, dtype: str = "float32") -> PrimFunc:
    """The matrix is stored by rows."""
    return function(
        lambda a, b: topi.nn.relu(topi.nn.dense(a, b)),
        tensor(vectors, length, dtype=dtype, name="x"),
        tensor(results, length, dtype=dtype, name="W"),
    )


def columns(vectors: Any, results: Any, length: Any, dtype: str = "float32") -> PrimFunc:
    """The matrix is stored by columns."""
    return function(
        topi.matmul,
        tensor(vectors, length, dtype=dtype, name="x"),
        tensor(length, results, dtype=dtype, name="W"),
    )


def int8_rows(results: int, length: int) -> PrimFunc:
    """Weights of 8 bits, with a scale for each row, decoded where they are read."""

    def product(x: te.Tensor, w: te.Tensor, s: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, length), "k")
        decoded = lambda i, k: w[i, k].astype("float32") * s[i]
        return te.compute((results,), lambda i: te.sum(x[k] * decoded(i, k), axis=k), "y")

    x, w, s = tensor(length), tensor(results, length, dtype="int8", name="W"), tensor(results)
    return function(product, x, w, te.placeholder(s.shape, name="S"))


VECTORS: dict[str, tuple[PrimFunc, type, dict[str, int]]] = {
    "rows": (rows(1, 12, 256), GEMV, {}),
    "few rows": (rows(1, 3, 64), GEMV, {}),
    "columns": (columns(1, 64, 40), GEMV, {}),
    "float16": (rows(1, 8, 128, "float16"), GEMV, {}),
    "symbolic rows": (rows(1, n, 128), GEMV, {"n": 7}),
    "decoded weights": (int8_rows(6, 256), GEMV, {}),
    "three vectors": (rows(3, 10, 128), LowBatchGEMV, {}),
    "three vectors, columns": (columns(3, 32, 16), LowBatchGEMV, {}),
}


@pytest.mark.parametrize("name", VECTORS)
def test_products_with_vectors(name: str) -> None:
    func, rule, sizes = VECTORS[name]
    mod = agree(func, rule(), tolerance=2e-3 if name == "float16" else 2e-5, **sizes)
    (text,) = kernels(mod).values()
    assert "W_local[0:" in text  # whole vectors of the matrix


@pytest.mark.parametrize("func", [rows(1, 4096, 4096, "float16"), columns(1, 4096, 4096, "float16"),
                                  rows(4, 4096, 11008, "float16")])  # fmt: skip
def test_large_ones_keep_everything_in_registers(func: PrimFunc) -> None:
    mod = lowered(scheduled(func))
    (resources,) = compiled(mod).values()
    assert resources.spill_bytes == resources.stack_bytes == 0
    assert resources.registers <= 128


SUMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, int]]] = {
    "rows": (lambda x: topi.sum(x, 1), (5, 256), {}),
    "odd rows": (lambda x: topi.sum(x, 1), (5, 37), {}),
    "columns": (lambda x: topi.sum(x, 0), (40, 24), {}),
    "few columns of many": (lambda x: topi.max(x, 0), (200, 5), {}),
    "everything": (lambda x: topi.sum(x), (12, 20), {}),
    "inner axis": (lambda x: topi.sum(x, 1), (3, 20, 8), {}),
    "outer and last": (lambda x: topi.sum(x, (0, 2)), (3, 5, 8), {}),
    "mean": (lambda x: topi.mean(x, 1), (6, 64), {}),
    "minimum, symbolic": (lambda x: topi.min(x, 1), (n, m), {"n": 3, "m": 45}),
    "symbolic columns": (lambda x: topi.sum(x, 0), (n, m), {"n": 9, "m": 40}),
    "no rows": (lambda x: topi.sum(x, 1), (n, m), {"n": 0, "m": 4}),
    "sum of nothing": (lambda x: topi.sum(x, 1), (n, m), {"n": 3, "m": 0}),
    "size 1": (lambda x: topi.sum(x, 1), (1, 1), {}),
    "product": (lambda x: topi.prod(x, 1), (4, 8), {}),
    "all": (lambda x: topi.all(topi.cast(x, "bool"), 1), (4, 9), {}),
}


@pytest.mark.parametrize("name", SUMS)
def test_reductions(name: str) -> None:
    build, shape, sizes = SUMS[name]
    mod = agree(function(build, tensor(*shape)), Reduction(), **sizes)
    assert len(kernels(mod)) == 1


def turned_sums(x: te.Tensor) -> te.Tensor:
    sums = topi.sum(x, 1)
    return te.compute((32, 4), lambda j, i: sums[i, j] * 2.0, "turned")


COLUMNS: dict[str, tuple[Callable[..., Any], tuple[int, ...], str, list[int]]] = {
    "nothing follows": (lambda x: topi.sum(x, 0), (256, 64), "float32", [4]),
    "an odd number of vectors": (lambda x: topi.sum(x, 0), (512, 136), "float16", [8]),
    "between other axes": (lambda x: topi.max(x, 1), (4, 256, 16), "int8", [16]),
    "a step follows": (lambda x: topi.nn.relu(topi.sum(x, 0)), (256, 64), "float32", [4]),
    "wider results": (
        lambda x: topi.cast(topi.sum(x, 0), "float64"), (256, 64), "float16", [2, 2, 2, 2],
    ),
    "results lie otherwise": (turned_sums, (4, 256, 32), "float32", [1, 1, 1, 1]),
}  # fmt: skip


@few("name", COLUMNS, every=2)
def test_sums_of_columns_share_no_bank_and_leave_as_vectors(name: str) -> None:
    build, shape, dtype, expected = COLUMNS[name]
    mod = agree(function(build, tensor(*shape, dtype=dtype)), Reduction(), tolerance=2e-3)
    (bound,) = kernel_bounds(mod, CUDA)
    assert bound.worst(shared=True) == 1.0
    stores = [item for f in mod.functions.values() for item in pre_order(f.body)]
    lanes = [
        dtypes.lanes_of(item.value.dtype)
        for item in stores
        if type(item) is BufferStore and item.buffer.scope == "global"
    ]
    assert lanes == expected
    compiled(mod)


def test_pairs_are_reduced_by_threads_too() -> None:
    def pairs(x: te.Tensor) -> Any:
        k = te.reduce_axis((0, 40), "k")
        reducer = te.comm_reducer(
            lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.maximum(a[1], b[1])),
            lambda i, v: (te.const(-1, i), te.min_value(v)),
        )
        return te.compute((5,), lambda i: reducer((k, x[i, k]), axis=k), "pairs")

    agree(function(pairs, tensor(5, 40)))


def test_what_is_no_product_with_vectors() -> None:
    for rule, func, reason in (
        (GEMV(), rows(32, 32, 32), "more than once"),
        (LowBatchGEMV(), rows(32, 32, 32), "more than 8 times"),
        (LowBatchGEMV(), rows(1, 8, 32), "used once"),
        (GEMV(), function(topi.sum, tensor(4, 5)), "one operand"),
        (GEMV(), function(topi.nn.relu, tensor(4)), "0 reductions"),
    ):
        sch = start_schedule(func)
        assert sch is not None
        refused = rule.apply_to(sch, CUDA)
        assert isinstance(refused, NotApplicable) and reason in refused.reason
