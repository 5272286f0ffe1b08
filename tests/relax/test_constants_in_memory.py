"""Where the constants of a built graph lie."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright import driver
from tilewright.ir import IRModule
from tilewright.relax import BlockBuilder, TensorStructInfo, Var, const, op
from tilewright.relax.constant_data import ConstantData
from tilewright.relax.execution.graph_cache import materialize_all
from tilewright.relax.transform.layout_free import packed_data
from tilewright.runtime.huge_pages import HUGE_PAGE, huge_bytes
from tilewright.script import parse

PACK = """
from tilewright.script import tir as T
@T.prim_func
def main(A: T.Buffer((ROWS, 3), "DTYPE"), B: T.Buffer((ROWS, 4), "DTYPE")):
    for i, j in T.grid(ROWS, 3):
        with T.block("B"):
            y, x = T.axis.remap("SS", [i, j])
            B[y, x] = A[y, x]
"""


@pytest.mark.parametrize("size", [0, 1, 64, HUGE_PAGE, HUGE_PAGE + 1])
def test_huge_bytes_are_aligned_zeros(size: int) -> None:
    memory = huge_bytes(size)
    assert memory.size == size and not memory.any()
    assert size == 0 or memory.ctypes.data % HUGE_PAGE == 0
    memory[...] = 7
    assert size == 0 or memory.min() == 7


def test_too_many_bytes_are_refused() -> None:
    with pytest.raises(MemoryError, match="bytes of constants"):
        huge_bytes(1 << 60)


def test_constants_lie_side_by_side() -> None:
    numbers = [
        np.arange(300_001, dtype="float32"),
        np.zeros((3, 0), "int64"),
        np.array(2.5),
        np.arange(7).astype(ml_dtypes.bfloat16),
    ]
    made = [
        ConstantData.later(item.shape, item.dtype, lambda item=item: item.copy())
        for item in numbers
    ]
    materialize_all(made)
    for data, expected in zip(made, numbers):
        np.testing.assert_array_equal(data.array, expected)
        assert data.array.dtype == expected.dtype and not data.array.flags.writeable
    first = made[0].array.ctypes.data
    assert first % HUGE_PAGE == 0
    assert 0 < made[3].array.ctypes.data - first < 1_300_000


def test_what_is_kept_stays_and_what_is_lent_is_copied() -> None:
    own, lent = np.ones(100_000, "float32"), np.ones(100_000, "float32")
    kept, taken = ConstantData(own), ConstantData(lent, lent=True)
    materialize_all([kept, taken])
    assert np.may_share_memory(kept.array, own) and not np.may_share_memory(taken.array, lent)
    lent[...] = 2
    assert taken.array.max() == 1


@pytest.mark.parametrize("rows", [5, 100_000])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_constants_are_packed_where_they_stay(rows: int, dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    text = PACK.replace("ROWS", str(rows)).replace("DTYPE", dtype)
    module = driver.compile(IRModule({"pack": parse(text)}), "native")
    values = (np.arange(rows * 3).reshape(rows, 3) % 100).astype(kind)
    source = ConstantData(values)
    first, second = (packed_data(module, "pack", source, (rows, 4), kind) for _ in range(2))
    assert second.array.flags.writeable is False  # somebody has looked at it before
    materialize_all([first, second])
    for data in (first, second):
        np.testing.assert_array_equal(data.array[:, :3], values)
        assert not data.array[:, 3].any() and not data.array.flags.writeable
    assert first.source is None and first.module is None


@pytest.mark.parametrize("shape", [(70, 1), (70, 33), (300_000, 1)])
@pytest.mark.parametrize("view", [False, True])
def test_arrays_may_be_changed_after_a_build(shape: tuple[int, int], view: bool) -> None:
    weights = np.random.default_rng(0).standard_normal(shape).astype("float32")
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo([2, shape[0]], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            held = op.reshape(const(weights.reshape(-1)), shape) if view else const(weights)
            made = builder.emit_output(op.matmul(x, held))
        builder.emit_func_output(made)
    call = tilewright.compile(builder.get())
    rows = np.random.default_rng(1).standard_normal((2, shape[0])).astype("float32")
    expected = np.array(call(rows))
    np.testing.assert_allclose(expected, rows @ weights, rtol=1e-4, atol=1e-2)
    weights[...] = np.nan
    np.testing.assert_array_equal(call(rows), expected)
