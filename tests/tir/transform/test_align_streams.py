"""Tiles that are streamed begin where lines do, wherever their result begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, cast, select
from tilewright.script import tir as T
from tilewright.support.errors import CodegenError
from tilewright.target import Target
from tilewright.tir.attrs import STREAMING_STORES
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform.pipeline import cpu_pipeline

SMALL_CACHE = "-l1=1024 -l2=2048 -l3=16384"


def target_of(cores: int, cpu: str = "") -> Target:
    return Target(f"llvm -mcpu={cpu or Target('native').mcpu} -num-cores={cores} {SMALL_CACHE}")


# Its vectors hold a line.
WIDE = target_of(1, "skylake-avx512")


def array_at(offset: int, shape: tuple[int, ...], dtype: str) -> Any:
    """An array that begins ``offset`` bytes after a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, "uint8")
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size].view(dtype).reshape(shape)


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    return (np.arange(np.prod(shape)).reshape(shape) % 119).astype(dtype)


def lowered(mod: IRModule, target: Target) -> IRModule:
    with target:
        return cpu_pipeline(target)(mod)


def transposed(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, cores: int) -> IRModule:
    x = te.placeholder(shape, dtype, "x")
    mod = IRModule({"main": te.create_prim_func([x, topi.transpose(x, axes)])})
    target = target_of(cores, "skylake-avx512")
    return dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(mod)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((128, 192), (1, 0), "float32"),
        ((2048, 16), (1, 0), "float32"),
        ((112, 37), (1, 0), "float32"),
        ((3, 64, 12, 12), (0, 2, 3, 1), "float32"),
        ((256, 96), (1, 0), "float64"),
        ((256, 96), (1, 0), "int16"),
        ((256, 128), (1, 0), "int8"),
    ],
)
def test_any_address_is_right(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, cores: int
) -> None:
    mod = transposed(shape, axes, dtype, cores)
    assert "misalignment" in lowered(mod, target_of(cores, "skylake-avx512")).script()
    compiled = driver.compile(mod, target_of(cores))
    data = numbers(shape, dtype)
    size = np.dtype(dtype).itemsize
    for offset in (0, size, 16, 64 - size):
        result = array_at(offset, data.transpose(axes).shape, dtype)
        compiled["main"](data, result)
        np.testing.assert_array_equal(result, data.transpose(axes))


def test_the_interpreter_moves_tiles_too() -> None:
    data = numbers((64, 48), "float32")
    mod = lowered(transposed((64, 48), (1, 0), "float32", 1), WIDE)
    assert "misalignment" in mod.script()
    for offset in (0, 16, 36):
        result = array_at(offset, (48, 64), "float32")
        run(mod["main"], data, result)
        np.testing.assert_array_equal(result, data.T)


def tiled(definition: Any) -> IRModule:
    """A 48 x 64 result of ``x``, ``b`` and ``places``, in vectors of a line that are streamed."""
    x, b = te.placeholder((64, 64), name="x"), te.placeholder((64,), name="b")
    blocks = te.placeholder((4, 48, 16), name="blocks")
    places = te.placeholder((64,), "int64", name="places")
    y = te.compute((48, 64), lambda i, j: definition(x, b, blocks, places, i, j), name="y")
    sch = Schedule(IRModule({"main": te.create_prim_func([x, b, blocks, places, y])}))
    block = sch.get_block("y")
    _, lanes = sch.split(sch.get_loops(block)[-1], [None, 16])
    sch.vectorize(lanes)
    sch.annotate(block, STREAMING_STORES, 2)
    return sch.mod


@pytest.mark.parametrize(
    ("definition", "moves"),
    [
        (lambda x, b, blocks, places, i, j: x(i, j), True),
        (lambda x, b, blocks, places, i, j: x(j, i) * b(j) + b(i), True),
        (lambda x, b, blocks, places, i, j: x(i, 63 - j), True),
        (lambda x, b, blocks, places, i, j: x(i, j) + cast(j, "float32"), False),
        (lambda x, b, blocks, places, i, j: blocks(j // 16, i, j % 16), False),
        (lambda x, b, blocks, places, i, j: select(j < 40, x(i, j), 0.0), False),
        (lambda x, b, blocks, places, i, j: x(i, places(j)), False),
    ],
)
def test_only_what_depends_on_the_place_in_the_row_moves(definition: Any, moves: bool) -> None:
    mod = tiled(definition)
    assert ("misalignment" in lowered(mod, WIDE).script()) == moves
    rng = np.random.default_rng(0)
    operands = [rng.random(s, "float32") for s in ((64, 64), (64,), (4, 48, 16))]
    operands.append(rng.permutation(64))
    expected = np.zeros((48, 64), "float32")
    run(mod["main"], *operands, expected)
    compiled = driver.compile(mod, target_of(1))
    for offset in (0, 16, 60):
        result = array_at(offset, (48, 64), "float32")
        compiled["main"](*operands, result)
        np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_operands_that_may_overlap_stay() -> None:
    mod = tiled(lambda x, b, blocks, places, i, j: x(j, i))
    func = mod["main"].with_attr("tir.noalias", False)
    assert "misalignment" not in lowered(IRModule({"main": func}), WIDE).script()


def test_misalignment_takes_a_power_of_two() -> None:
    @T.prim_func
    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((1,), "int64")):
        B[0] = T.misalignment(T.address_of(A[0], dtype="handle"), 24, dtype="int64")

    with pytest.raises(CodegenError, match="power of two"):
        driver.compile(IRModule({"main": main}), target_of(1))
