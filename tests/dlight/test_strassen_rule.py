"""Strassen's products by rule: stages fused over groups of rows, whatever follows them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.everyday import few
from tilewright import te, topi
from tilewright.dlight import default_schedule
from tilewright.dlight.cpu import Strassen
from tilewright.driver import compile as build
from tilewright.ir import IRModule
from tilewright.scheduling import NotApplicable
from tilewright.target import Target
from tilewright.te import Tensor
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import LAYOUT_FREE
from tilewright.tir.schedule import Schedule
from tilewright.topi.nn import matmul_strassen, strassen_scales, strassen_weight

ONE, TWO = (Target("native").with_options(num_cores=cores) for cores in (1, 2))
NARROW = Target("llvm -mcpu=x86-64-v3 -num-cores=1")
Epilogue = Callable[[Tensor, Tensor], Tensor]


def product(
    shape: tuple[int, ...], width: int, axis: int, epilogue: Epilogue, constant: bool = True
) -> PrimFunc:
    x = te.placeholder(shape, "float32", "x")
    w = te.placeholder((7, shape[-1] // 2, width // 2), "float32", "w")
    scales = [te.placeholder((size,), "float32") for size in (shape[-1], width)]
    b = te.placeholder((width,), "float32", "b")
    made = epilogue(matmul_strassen(x, w, *scales, axis), b)
    func = te.create_prim_func([x, w, *scales, b, made])
    return func.with_attr(LAYOUT_FREE, [1]) if constant else func


def of_matrix(w: np.ndarray) -> tuple[np.ndarray, ...]:
    """What the product reads of it."""
    scales = strassen_scales(w)
    return strassen_weight(w, *scales), *scales


def numbers(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


@few("target", [ONE, TWO, NARROW], TWO, ids=["one", "two", "narrow"])
@pytest.mark.parametrize(
    "shape, width, axis",
    [
        ((64, 64), 96, 0), ((1, 37, 48), 64, 1), ((37, 1, 48), 64, 0), ((37, 3, 32), 64, 0),
        ((3, 17, 34), 160, 1), ((19, 2), 32, 0), ((5, 2, 23, 32), 32, 2), ((1, 8), 32, 0),
    ],
)  # fmt: skip
def test_results_are_exact_for_whole_numbers(
    target: Target, shape: tuple[int, ...], width: int, axis: int
) -> None:
    x, w, b = numbers(*shape, seed=1), numbers(shape[-1], width, seed=2), numbers(width, seed=3)
    func = product(shape, width, axis, lambda y, b: topi.nn.relu(topi.add(y, b)), constant=False)
    sch = Schedule(IRModule({"main": func}))
    assert not isinstance(Strassen().apply_to(sch, target), NotApplicable)
    found = np.full((*shape[:-1], width), np.nan, "float32")
    build(default_schedule(target)(IRModule({"main": func})), target)(x, *of_matrix(w), b, found)
    np.testing.assert_array_equal(found, np.maximum(x @ w + b, 0))


@pytest.mark.parametrize(
    "epilogue",
    [
        lambda y, b: y,
        lambda y, b: topi.reshape(topi.add(y, b), (2, 20, 64)),
        lambda y, b: topi.add(topi.reshape(y, (8, 5, 64)), b),
        lambda y, b: topi.transpose(topi.add(y, b), (1, 0)),
        lambda y, b: topi.add(topi.multiply(y, y), y),
        lambda y, b: topi.cast(topi.add(y, b), "float64"),
    ],
    ids=["none", "reshaped", "reshaped first", "transposed", "used twice", "converted"],
)
def test_whatever_follows(epilogue: Epilogue) -> None:
    x, w, b = numbers(40, 32, seed=1), numbers(32, 64, seed=2), numbers(64, seed=3)
    func = product((40, 32), 64, 0, epilogue, constant=False)
    made = default_schedule(ONE)(IRModule({"main": func}))
    shape = [int(extent) for extent in func.buffers[-1].shape]
    found, expected = (np.full(shape, np.nan, func.buffers[-1].dtype) for _ in range(2))
    arguments = x, *of_matrix(w), b
    if len(func.buffers) < 6:
        arguments = arguments[:4]
    build(made, ONE)(*arguments, found)
    build(IRModule({"main": func}), ONE)(*arguments, expected)
    np.testing.assert_array_equal(found, expected)


def test_the_products_of_a_panel_stay_in_the_cache() -> None:
    func = product((1, 128, 768), 3072, 1, lambda y, b: topi.nn.gelu(topi.add(y, b)))
    sch = Schedule(IRModule({"main": func}))
    wide = Target("llvm -mcpu=znver4 -num-cores=1")
    assert not isinstance(Strassen().apply_to(sch, wide), NotApplicable)
    scopes = {buffer.name: buffer.scope() for buffer in sch.mod["main"].root.alloc_buffers}
    assert scopes["quarters"] == scopes["products_local"] == "local"
    # One loop over panels encloses the seven products and what joins them.
    products, joined = (
        [sch.get(loop) for loop in sch.get_loops(sch.get_block(name))]
        for name in ("products_update", "quarters")
    )
    assert [a is b for a, b in zip(products, joined)][:3] == [True, True, False]


@pytest.mark.parametrize("width, shape", [(40, (8, 8)), (24, (9, 1, 8))])
def test_columns_that_fill_no_vectors_are_left_to_others(
    width: int, shape: tuple[int, ...]
) -> None:
    func = product(shape, width, 0, lambda y, b: topi.add(y, b), constant=False)
    sch = Schedule(IRModule({"main": func}))
    wide = Target("llvm -mcpu=znver4 -num-cores=1")
    assert isinstance(Strassen().apply_to(sch, wide), NotApplicable)
    x, w = numbers(*shape, seed=1), numbers(shape[-1], width, seed=2)
    b, found = numbers(width, seed=3), np.empty((*shape[:-1], width), "float32")
    made = default_schedule(ONE)(IRModule({"main": func}))
    build(made, ONE)(x, *of_matrix(w), b, found)
    np.testing.assert_array_equal(found, x @ w + b)


@pytest.mark.parametrize("shape, width", [((197, 768), 3072), ((197, 768), 768)])
def test_a_matrix_passes_by_all_rows_at_once(shape: tuple[int, ...], width: int) -> None:
    """Groups whose sums stay in a nearer cache would read it once each."""
    func = product(shape, width, 0, lambda y, b: topi.add(y, b))
    sch = Schedule(IRModule({"main": func}))
    assert not isinstance(Strassen().apply_to(sch, NARROW), NotApplicable)
    group, _, _, _, _, _, row, lane = (
        int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_block("products_update"))
    )
    assert group == 1
    assert row * lane >= 12 * 8 and lane > 8
