"""Matrix times vector: the rule takes what it should, and results stay right."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import driver, te, topi
from tilewright.dlight import NotApplicable
from tilewright.dlight.cpu import MatrixVector
from tilewright.ir import IRModule, as_int, collect
from tilewright.target import Target
from tilewright.tir import Block, For, PrimFunc
from tilewright.tir.attrs import LAYOUT_FREE, PREFETCH_NEXT
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

NATIVE = Target("native").with_options(num_cores=1)
LANES = NATIVE.vector_lanes(32)


def product(n: int, k: int, *, along: bool, batch: int = 0, epilogue: bool = False) -> PrimFunc:
    lead = (batch,) if batch else ()
    x = te.placeholder((*lead, 1, k), name="x")
    w = te.placeholder((*lead, *((n, k) if along else (k, n))), name="w")
    build = topi.nn.batch_matmul if batch else topi.nn.matmul
    out = build(x, w, transpose_b=along)
    if not epilogue:
        return te.create_prim_func([x, w, out])
    b = te.placeholder((n,), name="b")
    return te.create_prim_func([x, w, b, topi.nn.relu(topi.add(out, b))])


def applied(func: PrimFunc, target: Target = NATIVE) -> PrimFunc | NotApplicable:
    made = MatrixVector().apply_to(Schedule(IRModule({"main": func})), target)
    return made if isinstance(made, NotApplicable) else made.mod["main"]


def check(func: PrimFunc, target: Target = NATIVE) -> PrimFunc:
    made = applied(func, target)
    assert isinstance(made, PrimFunc), made
    rng = np.random.default_rng(0)
    shapes = [[as_int(e) or 0 for e in buffer.shape] for buffer in func.buffers]
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    expected, interpreted = np.zeros_like(arrays[-1]), np.zeros_like(arrays[-1])
    run(func, *arrays[:-1], expected)
    run(made, *arrays[:-1], interpreted)
    driver.compile(made, target)(*arrays)
    np.testing.assert_allclose(interpreted, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(arrays[-1], expected, rtol=1e-4, atol=1e-4)
    return made


@pytest.mark.parametrize(("n", "k"), [(8, 128), (7, 64), (12, 32), (33, 32), (64, 48)])
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("epilogue", [False, True])
def test_rows_along_the_reduction(n: int, k: int, cores: int, epilogue: bool) -> None:
    func = product(n, k, along=True, epilogue=epilogue)
    check(func, Target("native").with_options(num_cores=cores))


@pytest.mark.parametrize(("n", "k"), [(64, 16), (128, 6), (100, 12), (33, 9), (17, 14)])
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("epilogue", [False, True])
def test_rows_across_the_reduction(n: int, k: int, cores: int, epilogue: bool) -> None:
    func = product(n, k, along=False, epilogue=epilogue)
    check(func, Target("native").with_options(num_cores=cores))


@pytest.mark.parametrize("along", [False, True])
def test_batches_of_vectors(along: bool) -> None:
    check(product(32, 64, along=along, batch=3))


def test_threads_share_the_columns() -> None:
    made = check(product(256, 128, along=False), Target("native").with_options(num_cores=2))
    assert [as_int(x.extent) for x in collect(made.body, For) if x.kind == "parallel"] == [2]


def test_rows_that_follow_are_asked_for() -> None:
    made = applied(product(1024, 64, along=False))
    assert isinstance(made, PrimFunc)
    assert any(PREFETCH_NEXT in loop.annotations for loop in collect(made.body, For))
    lowered = driver.compile(made, NATIVE)
    assert "llvm.prefetch" in lowered.get_source("ll")


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (product(8, 33, along=True), "divide"),
        (product(8, LANES, along=True), "divide"),
        (product(64, 7, along=False), "divide"),
        (product(5, 8, along=False), "divide"),
    ],
    ids=["depth", "one-vector", "rows", "columns"],
)
def test_odd_sizes_are_left_to_other_rules(func: PrimFunc, why: str) -> None:
    made = applied(func)
    assert isinstance(made, NotApplicable)
    assert why in made.reason


def test_products_with_reuse_are_left_to_other_rules() -> None:
    a, b = te.placeholder((4, 32), name="a"), te.placeholder((32, 64), name="b")
    made = applied(te.create_prim_func([a, b, topi.matmul(a, b)]))
    assert isinstance(made, NotApplicable)
    assert "once" in made.reason


AVX2, AVX512 = (Target(f"llvm -mcpu=x86-64-v{v}").with_options(num_cores=1) for v in (3, 4))


@pytest.mark.parametrize(
    ("target", "n", "along"),
    [(AVX512, 64, True), (AVX2, 64, False), (AVX2, 66, True)],
    ids=["panels are as fast", "no rows", "rows are left over"],
)
def test_constant_matrices_are_left_to_be_packed(target: Target, n: int, along: bool) -> None:
    made = applied(product(n, 64, along=along).with_attr(LAYOUT_FREE, [1]), target)
    assert isinstance(made, NotApplicable)
    assert "constant" in made.reason


def test_constant_matrices_stay_where_rows_are_read_faster() -> None:
    made = check(product(64, 64, along=True, epilogue=True).with_attr(LAYOUT_FREE, [1]), AVX2)
    assert not [block for block in collect(made.body, Block) if block.name.startswith("w_")]
