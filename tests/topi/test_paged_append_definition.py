"""The definition of appending to pages: in the interpreter, compiled, by rule, on GPUs' threads."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from attention_reference import append_operands, append_paged_kv

import tilewright
from tests.everyday import few
from tilewright import dlight, te, topi
from tilewright.ir import IRModule, Var
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run, simulate

RNG = np.random.default_rng(3)
NAMES = ("key", "value", "pages", "page_table", "lengths", "counts")


def definition(arrays: list[Any], shapes: Any = None) -> PrimFunc:
    tensors = [
        te.placeholder(shape, str(a.dtype), name)
        for shape, a, name in zip(shapes or [a.shape for a in arrays], arrays, NAMES)
    ]
    return te.create_prim_func([*tensors, topi.nn.append_paged_kv(*tensors)])


def symbolic(arrays: list[Any]) -> list[Any]:
    """Shapes whose batch, new positions, pages and entries of the table are variables."""
    b, new, number, most = (Var(name) for name in ("b", "m", "n", "t"))
    rows = (b, new, *arrays[0].shape[2:])
    return [rows, rows, (number, *arrays[2].shape[1:]), (b, most), (b,), (b,)]


def check(arrays: list[Any], shapes: Any = None) -> None:
    func = definition(arrays, shapes)
    expected = append_paged_kv(*arrays)
    mod = IRModule({"main": func})
    kinds = ("native", "llvm -mcpu=haswell")
    by_rule = [dlight.default_schedule(Target(kind))(mod) for kind in kinds]
    calls = [partial(run, func), *(tilewright.compile(item, "native") for item in (mod, *by_rule))]
    for call in calls:
        result = np.full(expected.shape, 7, expected.dtype)
        call(*arrays, result)
        np.testing.assert_array_equal(result, expected)


CASES: dict[str, Any] = {
    "one each": ([5, 1, 12], 1, 2, 4, 3, 8, None),
    "none before": ([3, 3], 3, 1, 4, 3, 5, None),
    "across pages": ([11, 7, 12], 7, 2, 4, 3, 6, None),
    "whole pages": ([8, 4], 4, 1, 4, 2, 16, None),
    "fewer of some": ([9, 12, 4, 6], 4, 2, 4, 3, 8, [4, 0, 2, 1]),
    "pages of one": ([3, 5], 2, 2, 1, 6, 4, None),
    "before the sequence": ([2, 0, 1], 3, 1, 4, 2, 8, None),
    "beyond the table": ([9, 30, 10], 3, 1, 4, 2, 8, None),
    "counts that are none": ([6, 6, 6], 2, 1, 4, 2, 8, [-5, 9, -(1 << 31)]),
    "nothing new": ([6], 0, 1, 4, 2, 8, None),
    "no sequences": ([], 2, 1, 4, 2, 8, None),
    "hostile lengths": ([-(1 << 31), (1 << 31) - 1], 2, 1, 4, 2, 8, None),
}


@few("name", list(CASES), every=4)
@pytest.mark.parametrize("sizes", ["known", "symbolic"])
def test_what_is_written(name: str, sizes: str) -> None:
    *rest, counts = CASES[name]
    arrays = append_operands(RNG, *rest, counts)
    check(arrays, symbolic(arrays) if sizes == "symbolic" else None)


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64"])
def test_dtypes(dtype: str) -> None:
    check(append_operands(RNG, [5, 8], 2, 2, 4, 2, 8, dtype=dtype))


def test_bits_are_moved_as_they_are() -> None:
    arrays = append_operands(RNG, [5], 2, 1, 4, 2, 8)
    arrays[0][0, 0, 0, :4] = [np.nan, np.inf, -0.0, 1e-40]
    check(arrays)


def hostile() -> list[np.ndarray]:
    """Entries of the table that name no page, and pages that two sequences share."""
    arrays = append_operands(RNG, [5, 6, 7, 8], 4, 2, 4, 2, 8)
    table = arrays[3]
    table[0] = [-1, len(arrays[2])]
    table[1] = [-(1 << 31), (1 << 31) - 1]
    table[2] = table[3] = [2, 2]
    return arrays


@pytest.mark.parametrize("sizes", ["known", "symbolic"])
def test_pages_that_are_not_there_or_shared(sizes: str) -> None:
    arrays = hostile()
    check(arrays, symbolic(arrays) if sizes == "symbolic" else None)


def test_a_cache_without_pages() -> None:
    arrays = append_operands(RNG, [3], 2, 1, 4, 2, 8)
    arrays[2] = arrays[2][:0]
    check(arrays, symbolic(arrays))


@few(("name", "sizes"), [(n, s) for n in CASES for s in ("known", "symbolic")], every=8)
def test_threads_of_a_gpu(name: str, sizes: str) -> None:
    *rest, counts = CASES[name]
    arrays = append_operands(RNG, *rest, counts)
    on_threads(arrays, symbolic(arrays) if sizes == "symbolic" else None)


def test_hostile_tables_on_threads_of_a_gpu() -> None:
    arrays = hostile()
    on_threads(arrays, symbolic(arrays))


def on_threads(arrays: list[np.ndarray], shapes: Any) -> None:
    target = Target("nvidia/nvidia-h100")
    mod = dlight.default_schedule(target)(IRModule({"main": definition(arrays, shapes)}))
    expected = append_paged_kv(*arrays)
    result = np.full(expected.shape, 7, expected.dtype)
    simulate(mod["main"], *arrays, result)
    np.testing.assert_array_equal(result, expected)
    assert 'thread="threadIdx.x"' in mod.script()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({0: (3, 2, 4)}, "key: .* must have 4 dimensions"),
        ({1: (3, 1, 2, 8)}, "new positions of key and value"),
        ({1: (3, 2, 2, 7)}, "depths of key and value"),
        ({2: (9, 1, 2, 4, 8)}, "keys and values in a page"),
        ({2: (9, 2, 3, 4, 8)}, "heads of key and pages"),
        ({2: (9, 2, 2, 4, 5)}, "depths of key and pages"),
        ({3: (2, 3)}, "batches of key and page_table"),
        ({4: (2,)}, "batches of key and lengths"),
        ({5: (4,)}, "batches of key and counts"),
        ({5: (3, 1)}, "counts: .* must have 1 dimension"),
    ],
)
def test_refusals(changed: Any, message: str) -> None:
    rows = (3, 2, 2, 8)
    shapes = {0: rows, 1: rows, 2: (9, 2, 2, 4, 8), 3: (3, 3), 4: (3,), 5: (3,), **changed}
    dtypes = ["float32"] * 3 + ["int32"] * 3
    tensors = [te.placeholder(shapes[n], dtypes[n], NAMES[n]) for n in range(6)]
    with pytest.raises(VerifyError, match=message):
        topi.nn.append_paged_kv(*tensors)


@pytest.mark.parametrize(
    ("place", "dtype", "message"),
    [
        (1, "float16", "value is float16 and the pages are float32"),
        (3, "int64", "page_table must be int32, got int64"),
        (5, "float32", "counts must be int32, got float32"),
    ],
)
def test_other_dtypes_are_refused(place: int, dtype: str, message: str) -> None:
    arrays = append_operands(RNG, [5], 2, 1, 4, 2, 8, [1])
    arrays[place] = arrays[place].astype(dtype)
    with pytest.raises(VerifyError, match=message):
        definition(arrays)
