from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import numpy as np
import pytest
from schedule_cases import (
    arrays,
    check,
    compiled_agrees,
    conv2d,
    loop_extents,
    matmul,
    matmul_relu,
    predicate_of,
    refuses,
)

import tilewright
from tilewright import te
from tilewright.ir import is_const
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import UPDATE, block_facts, verify
from tilewright.tir.analysis.reduction import match_reduction
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule


def row(name: str = "sum", n: int = 6, k: int = 24) -> PrimFunc:
    a = te.placeholder((n, k), name="A")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((n,), lambda i: getattr(te, name)(a[i, axis], axis=axis), name="C")
    return te.create_prim_func([a, c])


def arg_row(name: str = "argmax", n: int = 4, k: int = 12) -> PrimFunc:
    a = te.placeholder((n, k), "int64", name="I")
    b = te.placeholder((n, k), name="A")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((n,), lambda i: getattr(te, name)((a[i, axis], b[i, axis]), axis=axis), name="C")
    return te.create_prim_func([a, b, *c])


# ---- decompose_reduction ------------------------------------------------------------------------


def test_init_goes_before_the_loop() -> None:
    func = matmul()
    sch = Schedule(func)
    c = sch.get_block("C")
    _i, _j, k = sch.get_loops(c)
    init = sch.decompose_reduction(c, k)
    assert (init.name, sch.get(c).name) == ("C_init", "C_update")
    assert loop_extents(sch, init) == [12, 8]
    check(sch, func)


def test_init_gets_loops_of_its_own_below_an_outer_reduction() -> None:
    func = matmul()
    sch = Schedule(func)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, k, i1, j)
    sch.vectorize(j)
    init = sch.decompose_reduction(c, k)
    assert loop_extents(sch, init) == [3, 4, 8]
    loops = [sch.get(loop) for loop in sch.get_loops(init)]
    assert loops[-1].kind == "vectorized"
    check(sch, func)


def test_remainders_stay_in_both_predicates() -> None:
    func = matmul(10, 7, 9)
    sch = Schedule(func)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, [None, 4])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, k0, k1, i1, j)
    init = sch.decompose_reduction(c, k0)
    assert not is_const(predicate_of(sch, init.name), 1)
    check(sch, func)


def test_decompose_argmax() -> None:
    func = arg_row()
    sch = Schedule(func)
    c = sch.get_block("C")
    sch.decompose_reduction(c, sch.get_loops(c)[1])
    check(sch, func)


def test_decomposed_pairs_are_still_an_update() -> None:
    """What is stored is in variables, which must be looked through."""
    func = arg_row()
    sch = Schedule(func, check=True)
    c = sch.get_block("C")
    i, k = sch.get_loops(c)
    sch.decompose_reduction(c, i)
    assert block_facts(sch.get(c)).kind == UPDATE
    i, k = sch.get_loops(c)
    sch.reorder(k, i)
    sch.vectorize(i)
    check(sch, func)


def test_what_decompose_reduction_refuses() -> None:
    func = matmul()
    sch = Schedule(func)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    sch.reorder(k, i, j)
    refuses(sch, lambda: sch.decompose_reduction(c, i), "loop k", "outside")
    sch.decompose_reduction(c, k)
    refuses(sch, lambda: sch.decompose_reduction(c, k), "no init")
    relu = Schedule(matmul_relu())
    d, c = relu.get_block("D"), relu.get_block("C")
    refuses(relu, lambda: relu.decompose_reduction(c, relu.get_loops(d)[0]), "is not around")


def test_recomputed_elements_are_not_initialised_once_for_all() -> None:
    """A reduction computed in overlapping windows: the init may not leave the window's loop."""
    a = te.placeholder((12, 5), name="A")
    r = te.reduce_axis((0, 5), "r")
    b = te.compute((12,), lambda i: te.sum(a[i, r], axis=r), name="B")
    c = te.compute((10,), lambda i: b[i] + b[i + 1] + b[i + 2], name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    (i,) = sch.get_loops(sch.get_block("C"))
    b = sch.get_block("B")
    sch.compute_at(b, i)
    assert loop_extents(sch, b) == [10, 3, 5]
    outer, window, _ = sch.get_loops(b)
    refuses(sch, lambda: sch.decompose_reduction(b, outer), "more than once")
    sch.decompose_reduction(b, window)
    check(sch, func)


# ---- rfactor ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_rfactor_of_a_split_reduction(name: str, axis: int) -> None:
    func = row(name)
    sch = Schedule(func)
    c = sch.get_block("C")
    _i, k = sch.get_loops(c)
    _k0, k1 = sch.split(k, [None, 4])
    partial = sch.rfactor(k1, axis)
    assert partial.name == "C_rf"
    (buffer,) = sch.get(sch.get_block("root")).alloc_buffers
    assert [e.value for e in buffer.shape] == ([4, 6] if axis == 0 else [6, 4])
    assert loop_extents(sch, partial) == [6, 6, 4]
    assert loop_extents(sch, c) == [6, 4]
    kinds = [iter_var.kind for iter_var in sch.get(partial).iter_vars]
    assert kinds == ["spatial", "spatial", "reduce"]
    check(sch, func)


def test_rfactor_of_the_outer_part() -> None:
    func = row()
    sch = Schedule(func)
    _i, k = sch.get_loops(sch.get_block("C"))
    k0, _k1 = sch.split(k, [None, 4])
    sch.rfactor(k0, 0)
    check(sch, func)


def test_rfactor_of_a_whole_reduction_loop() -> None:
    func = row()
    sch = Schedule(func)
    _i, k = sch.get_loops(sch.get_block("C"))
    sch.rfactor(k, 0)
    check(sch, func)


@pytest.mark.parametrize("factor", [5, 7, 16])
@pytest.mark.parametrize("which", [0, 1])
def test_rfactor_with_a_remainder(factor: int, which: int) -> None:
    func = row()
    sch = Schedule(func)
    _i, k = sch.get_loops(sch.get_block("C"))
    loops = sch.split(k, [None, factor])
    sch.rfactor(loops[which], 0)
    check(sch, func)


def test_rfactor_where_some_partial_results_are_empty() -> None:
    func = row(k=9)
    sch = Schedule(func)
    _i, k = sch.get_loops(sch.get_block("C"))
    _k0, k1, _k2 = sch.split(k, [1, 4, 4])
    sch.rfactor(k1, 0)
    check(sch, func)


def test_rfactor_of_one_of_several_reduction_axes() -> None:
    func = conv2d(size=4)
    sch = Schedule(func)
    rc = sch.get_loops(sch.get_block("conv"))[5]
    sch.rfactor(rc, 2)
    check(sch, func)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_rfactor_of_pairs(name: str) -> None:
    func = arg_row(name)
    sch = Schedule(func)
    c = sch.get_block("C")
    _i, k = sch.get_loops(c)
    _k0, k1 = sch.split(k, [None, 4])
    partial = sch.rfactor(k1, 1)
    sch.parallel(sch.get_loops(partial)[0])
    check(sch, func)


def test_rfactor_then_decompose_and_move() -> None:
    func = row()
    sch = Schedule(func)
    c = sch.get_block("C")
    _i, k = sch.get_loops(c)
    _k0, k1 = sch.split(k, [None, 4])
    partial = sch.rfactor(k1, 1)
    pi, pk0, pk1 = sch.get_loops(partial)
    sch.reverse_compute_at(c, pi)
    sch.reorder(pk0, pk1)
    sch.vectorize(pk1)
    sch.decompose_reduction(partial, pk0)
    sch.decompose_reduction(c, sch.get_loops(c)[1])
    check(sch, func)


def test_init_with_another_value_than_the_identity() -> None:
    from tilewright.script import parse

    func = parse(
        """
from tilewright.script import tir as T

@T.prim_func
def main(
    A: T.Buffer((4, 8), "float32"), b: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")
):
    for i, k in T.grid(4, 8):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = b[vi]
            C[vi] = A[vi, vk] + C[vi]
"""
    )
    sch = Schedule(func)
    c = sch.get_block("C")
    matched = match_reduction(sch.get(c))
    assert matched is not None and matched.name == "sum"
    _i, k = sch.get_loops(c)
    sch.rfactor(k, 0)
    check(sch, func)
    sch = Schedule(func)
    sch.decompose_reduction(c, sch.get_loops(c)[1])
    check(sch, func)


def test_what_rfactor_refuses() -> None:
    func = row()
    sch = Schedule(func)
    i, k = sch.get_loops(sch.get_block("C"))
    refuses(sch, lambda: sch.rfactor(i, 0), "not part of the reduction")
    refuses(sch, lambda: sch.rfactor(k, 3), "factor_axis 3")
    odd = te.comm_reducer(lambda x, y: x * y + y, lambda t: te.const(0, t), "odd")
    a = te.placeholder((4, 8), name="A")
    r = te.reduce_axis((0, 8), "r")
    c = te.compute((4,), lambda i: odd(a[i, r], axis=r), name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    refuses(sch, lambda: sch.rfactor(sch.get_loops(sch.get_block("C"))[1], 0), "known reducer")


@pytest.mark.parametrize("name", ["argmax", "argmin", "argmax_last", "argmin_last"])
def test_pairs_are_exact_however_they_are_scheduled(name: str) -> None:
    """Ties are many, and every factor, axis and order gives the same index."""
    rng = random.Random(name)
    func = arg_row(name, 3, 26)
    for _ in range(6):
        sch = Schedule(func, check=True)
        c = sch.get_block("C")
        _i, k = sch.get_loops(c)
        loops = sch.split(k, [None, rng.randint(1, 9)])
        if rng.random() < 0.5:
            sch.reorder(*reversed(loops))
        partial = sch.rfactor(rng.choice(loops), rng.choice([0, 1, -1]))
        if rng.random() < 0.5:
            sch.decompose_reduction(c, sch.get_loops(c)[1])
        if rng.random() < 0.5 and sch.get(partial).init is not None:
            sch.decompose_reduction(partial, sch.get_loops(partial)[0])
        inputs = arrays(func)
        inputs[0][:] = np.arange(26)
        inputs[1][:] = np.random.default_rng(1).integers(0, 3, (3, 26))
        expected, actual = [a.copy() for a in inputs], [a.copy() for a in inputs]
        run(func, *expected)
        run(sch.mod["main"], *actual)
        np.testing.assert_array_equal(actual[2], expected[2])
        compiled = [a.copy() for a in inputs]
        tilewright.compile(sch.mod, target="llvm")["main"](*compiled)
        np.testing.assert_array_equal(compiled[2], expected[2])
        np.testing.assert_array_equal(compiled[3], expected[3])


def symbolic_rows(name: str) -> PrimFunc:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), "int32", name="A")
    axis = te.reduce_axis((0, m), "k")
    c = te.compute((n,), lambda i: te.reducer(name)(a[i, axis], axis=axis), name="C")
    return te.create_prim_func([a, c])


@pytest.mark.parametrize("seed", range(12))
def test_random_reductions_of_symbolic_shapes(seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(["sum", "max", "min", "prod", "bitwise_xor", "bitwise_and"])
    func = symbolic_rows(name)
    sch = Schedule(func, check=True)
    c = sch.get_block("C")
    i, k = sch.get_loops(c)
    loops = sch.split(k, [None, *(rng.randint(2, 5) for _ in range(rng.randint(1, 2)))])
    if rng.random() < 0.5:
        order = [*loops, i]
        rng.shuffle(order)
        sch.reorder(*order)
    partial = sch.rfactor(rng.choice(loops), rng.choice([0, 1]))
    for block in (partial, c):
        if rng.random() < 0.6 and sch.get(block).init is not None:
            outer = next(
                loop
                for loop in sch.get_loops(block)
                if sch.get(loop).loop_var.name.startswith("k") or rng.random() < 0.3
            )
            sch.decompose_reduction(block, outer)
    for n, m in ((1, 1), (3, 7), (2, 40)):
        check(sch, func, n=n, m=m)
    compiled_agrees(sch, func, n=3, m=17)


# ---- fuse_reduction_epilogue --------------------------------------------------------------------


def with_bias(reduce: str = "sum", dtype: str = "int32", n: int = 9, k: int = 14) -> PrimFunc:
    a = te.placeholder((n, k), dtype, name="A")
    b = te.placeholder((n,), dtype, name="bias")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((n,), lambda i: te.reducer(reduce)(a[i, axis], axis=axis), name="C")
    ops = {"sum": lambda x, y: x + y, "max": te.maximum, "min": te.minimum}
    d = te.compute((n,), lambda i: ops[reduce](b[i], c[i]), name="D")
    return te.create_prim_func([a, b, d])


@pytest.mark.parametrize("reduce", ["sum", "max", "min"])
@pytest.mark.parametrize("seed", range(4))
def test_fused_epilogues_schedule_on(reduce: str, seed: int) -> None:
    rng = random.Random(seed)
    func = with_bias(reduce)
    sch = Schedule(func, check=True)
    c = sch.get_block("C")
    if seed % 2:
        sch.reverse_compute_at("D", sch.get_loops(c)[0])
    sch.fuse_reduction_epilogue(c, "D")
    assert not sch.get(sch.get_block("root")).alloc_buffers
    check(sch, func)
    _, k = sch.get_loops(c)
    _, k1 = sch.split(k, [None, rng.randint(2, 6)])
    if rng.random() < 0.5:
        sch.rfactor(k1, 0)
        sch.decompose_reduction("C_rf", sch.get_loops("C_rf")[0])
    sch.decompose_reduction(c, sch.get_loops(c)[0])
    check(sch, func)
    compiled_agrees(sch, func)


def test_an_epilogue_after_another() -> None:
    """Bias and residual: the init becomes their sum."""
    a = te.placeholder((6, 8), "int32", name="A")
    b, r = (te.placeholder((6,), "int32", name=name) for name in ("bias", "rest"))
    axis = te.reduce_axis((0, 8), "k")
    c = te.compute((6,), lambda i: te.sum(a[i, axis], axis=axis), name="C")
    d = te.compute((6,), lambda i: c[i] + b[i], name="D")
    e = te.compute((6,), lambda i: r[i] + d[i], name="E")
    func = te.create_prim_func([a, b, r, e])
    sch = Schedule(func, check=True)
    sch.fuse_reduction_epilogue("C", "D")
    sch.fuse_reduction_epilogue("C", "E")
    check(sch, func)


EPILOGUES = {
    "relu": lambda c, b: te.maximum(c, 0),
    "clip": lambda c, b: te.minimum(te.maximum(c + b, -3), 6),
    "twice": lambda c, b: c + c,
    "quotient": lambda c, b: c // 3 - b,
}


def with_steps(*steps: str, dtype: str = "int32", k: int = 12) -> PrimFunc:
    """Sums of rows, and what several epilogues make of them."""
    a = te.placeholder((5, k), dtype, name="A")
    b = te.placeholder((5,), dtype, name="bias")
    axis = te.reduce_axis((0, k), "k")
    value = te.compute((5,), lambda i: te.sum(a[i, axis], axis=axis), name="C")
    for number, step in enumerate(steps):
        made = lambda i, c=value, step=step: EPILOGUES[step](c[i], b[i])
        value = te.compute((5,), made, name=f"D{number}")
    return te.create_prim_func([a, b, value])


@pytest.mark.parametrize("steps", [*((step,) for step in EPILOGUES), ("clip", "twice", "relu")])
def test_epilogues_in_the_last_iteration(steps: tuple[str, ...]) -> None:
    func = with_steps(*steps)
    sch = Schedule(func, check=True)
    for number in range(len(steps)):
        sch.fuse_reduction_epilogue("C", f"D{number}")
    assert not sch.get(sch.get_block("root")).alloc_buffers
    assert sch.mod.script().count("if v_k == 11") == 1
    check(sch, func)
    compiled_agrees(sch, func)


def test_a_start_and_an_end() -> None:
    a = te.placeholder((6, 8), name="A")
    b = te.placeholder((6,), name="bias")
    axis = te.reduce_axis((0, 8), "k")
    c = te.compute((6,), lambda i: te.sum(a[i, axis], axis=axis), name="C")
    d = te.compute((6,), lambda i: c[i] + b[i], name="D")
    e = te.compute((6,), lambda i: te.maximum(d[i], 0.0), name="E")
    func = te.create_prim_func([a, b, e])
    sch = Schedule(func, check=True)
    sch.fuse_reduction_epilogue("C", "D")
    sch.fuse_reduction_epilogue("C", "E")
    assert "= bias[" in sch.mod.script() and "if v_k == 7" in sch.mod.script()
    check(sch, func)


@pytest.mark.parametrize("seed", range(16))
def test_fused_ends_keep_their_order(seed: int) -> None:
    """Whatever is done afterwards is refused, or leaves the end at the end."""
    rng = random.Random(seed)
    func = with_steps(rng.choice([*EPILOGUES]))
    sch = Schedule(func, check=True)
    sch.fuse_reduction_epilogue("C", "D0")
    done = 0
    for _ in range(8):
        loops = sch.get_loops("C")
        loop = rng.choice(loops)
        steps: list[Callable[[], object]] = [
            lambda loop=loop: sch.split(loop, [None, rng.randint(2, 5)]),
            lambda loops=loops: sch.reorder(*rng.sample(loops, len(loops))),
            lambda loops=loops: sch.fuse(*loops[-2:]),
            lambda loop=loop: sch.parallel(loop),
            lambda loop=loop: sch.vectorize(loop),
            lambda loop=loop: sch.unroll(loop),
            lambda loop=loop: sch.bind(loop, "threadIdx.x"),
            lambda loop=loop: sch.rfactor(loop, 0),
            lambda loop=loop: sch.blockize(loop),
            lambda: sch.cache_write("C", 0, "local"),
        ]
        try:
            rng.choice(steps)()
        except ScheduleError:
            continue
        done += 1
        check(sch, func)
    if rng.random() < 0.5 and sch.get(sch.get_block("C")).init is not None:
        with contextlib.suppress(ScheduleError):
            sch.decompose_reduction("C", sch.get_loops("C")[0])
        check(sch, func)
    assert done


def test_decompose_declares_what_the_update_reads_of_its_own_buffer() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((2, 3), "float32"), B: T.Buffer((6,), "float32")):
    for i, k in T.grid(2, 3):
        with T.block("B"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                B[v] = B[v + 2]
            B[v] = B[v] + A[v, r] * B[v + 4]
""")
    )
    sch.decompose_reduction("B", sch.get_loops("B")[1])
    verify(sch.mod)
    assert "T.reads(B[v:v + 5], A[v, r])" in sch.mod.script()
