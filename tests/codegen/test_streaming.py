"""Streaming stores: the same results wherever an array begins, and past the caches where asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule
from tilewright.runtime import Module
from tilewright.target import Target
from tilewright.tir.attrs import STREAMING_STORES
from tilewright.tir.schedule import Schedule

TARGET = Target("native").with_options(num_cores=1)


def streamed(rows: int, columns: int, dtype: str, lanes: int, target: Target = TARGET) -> Module:
    x = te.placeholder((rows, columns), dtype, name="x")
    sch = Schedule(IRModule({"main": te.create_prim_func([x, topi.add(x, x)])}))
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    _, inner = sch.split(sch.fuse(*sch.get_loops(block)), [None, lanes])
    sch.vectorize(inner)
    sch.annotate(block, STREAMING_STORES, 1)
    return driver.compile(sch.mod, target)


def array_at(offset: int, shape: tuple[int, ...], dtype: str) -> Any:
    """An array that begins ``offset`` bytes after a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, "uint8")
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size].view(dtype).reshape(shape)


@pytest.mark.parametrize("offset", [0, 16, 32, 8])
@pytest.mark.parametrize(
    ("dtype", "lanes"),
    [("float32", 16), ("float32", 64), ("float64", 24), ("float16", 32), ("int8", 128)],
)
def test_any_address_is_right(dtype: str, lanes: int, offset: int) -> None:
    module = streamed(7, 111, dtype, lanes)
    data = (np.arange(777).reshape(7, 111) % 50).astype(dtype)
    result = array_at(offset, data.shape, dtype)
    module(data, result)
    np.testing.assert_array_equal(result, data + data)


def test_stores_go_past_the_caches() -> None:
    code = streamed(8, 64, "float32", 16, Target("llvm -mcpu=znver4")).get_source("asm")
    assert "movnt" in code
    assert "sfence" in code


def test_vectors_without_such_an_instruction_are_stored_as_usual() -> None:
    code = streamed(8, 64, "float32", 2, Target("llvm -mcpu=znver4")).get_source("asm")
    assert "movnt" not in code


def test_transpositions_stream_whole_lines_only() -> None:
    target = Target("llvm -mcpu=znver4 -num-cores=1 -l2=65536")
    for shape, streams in (((256, 256), True), ((250, 256), False)):
        x = te.placeholder(shape, name="x")
        mod = IRModule({"main": te.create_prim_func([x, topi.transpose(x)])})
        mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(mod)
        code = driver.compile(mod, target).get_source("asm")
        assert ("movnt" in code) == streams
        assert "movntps\t%xmm" not in code
