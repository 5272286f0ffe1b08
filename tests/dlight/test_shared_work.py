"""Results that share arithmetic, operands that are read at two places, and computed operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te
from tilewright.dlight import NotApplicable
from tilewright.dlight.cpu import MatrixVector, SlidingWindow, TiledReduction
from tilewright.ir import IRModule, Var, if_then_else
from tilewright.scheduling import Contraction, describe
from tilewright.scheduling.cpu import sharing_of
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir import op as tir
from tilewright.tir.schedule import Schedule

WIDE = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=1")
NATIVE = [Target("native").with_options(num_cores=cores) for cores in (1, 2)]


def forces(n: Any) -> PrimFunc:
    p, m = te.placeholder((3, n), name="p"), te.placeholder((n,), name="m")
    j = te.reduce_axis((0, n), "j")

    def pull(c: Any, i: Any) -> Any:
        d = [p[axis, j] - p[axis, i] for axis in range(3)]
        far = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 0.01
        return te.sum((p[c, j] - p[c, i]) * (m[j] * tir.rsqrt(far) / far), axis=j)

    return te.create_prim_func([p, m, te.compute((3, n), pull, name="forces")])


def gram(rows: Any, steps: int, first: int = 0, second: int = 0, *, across: bool) -> PrimFunc:
    """Products of rows of a matrix with rows of it, from some row on; across: of its columns."""
    x = te.placeholder((steps, rows) if across else (rows, steps), name="x")
    k = te.reduce_axis((0, steps), "k")

    def at(i: Any) -> Any:
        return x[k, i] if across else x[i, k]

    shape = (rows - first, rows - second)
    product = te.compute(
        shape, lambda i, j: te.sum(at(i + first) * at(j + second), axis=k), name="product"
    )
    return te.create_prim_func([x, product])


def parabolas(rows: int, n: int) -> PrimFunc:
    f, k = te.placeholder((rows, n), name="f"), te.reduce_axis((0, n), "k")
    return te.create_prim_func(
        [f, te.compute(
            (rows, n),
            lambda i, j: te.min(f[i, k] + ((j - k) * (j - k)).astype("float32") * 0.5, axis=k),
            name="lowest",
        )]
    )  # fmt: skip


def differences(n: int, shifts: int, width: int) -> PrimFunc:
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n + shifts), name="b")
    i, j = te.reduce_axis((0, width), "i"), te.reduce_axis((0, width), "j")
    out = n - width + 1
    return te.create_prim_func(
        [a, b, te.compute(
            (shifts, out, out),
            lambda d, y, x: te.sum(tir.abs(a[y + i, x + j] - b[y + i, x + j + d]), axis=[i, j]),
            name="costs",
        )]
    )  # fmt: skip


def ragged(batch: int, length: int, width: int) -> PrimFunc:
    x = te.placeholder((batch, length, width), name="x")
    lengths = te.placeholder((batch,), "int32", name="lengths")
    t = te.reduce_axis((0, length), "t")
    return te.create_prim_func(
        [x, lengths, te.compute(
            (batch, width),
            lambda b, d: te.sum(if_then_else(t < lengths[b], x[b, t, d], 0.0), axis=t),
            name="total",
        )]
    )  # fmt: skip


def computed(func: PrimFunc, target: Target, shape: tuple[int, ...], *inputs: Any) -> Any:
    made = dlight.default_schedule(target)(IRModule({"main": func}))
    out = np.full(shape, np.nan, "float32")
    driver.compile(made, target)["main"](*inputs, out)
    return out


def drawn(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def applies(func: PrimFunc, rule: Any, target: Target = WIDE) -> bool:
    return not isinstance(rule.apply_to(Schedule(IRModule({"main": func})), target), NotApplicable)


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("n", [1, 37, 64])
def test_forces(target: Target, n: int) -> None:
    p, m = drawn(3, n), np.abs(drawn(n)) + 1
    d = (p[:, None, :] - p[:, :, None]).astype("float64")
    expected = (d * (m * ((d * d).sum(0) + 0.01) ** -1.5)).sum(2)
    for func in (forces(n), forces(Var("n", "int64"))):
        found = computed(func, target, (3, n), p, m)
        assert np.abs(found - expected).max() <= 1e-4 * max(1.0, np.abs(expected).max())


def test_a_tile_holds_the_results_that_share_arithmetic() -> None:
    sch = Schedule(IRModule({"main": forces(64)}))
    found = describe(sch)
    assert isinstance(found, Contraction)
    axis, places, _ = found.axes
    shared = sharing_of(found.store.value, found.places, places, 14, WIDE.costs)
    assert shared is not None and shared.axis is axis
    along = sharing_of(found.store.value, found.places, axis, 14, WIDE.costs)
    assert along is None, "nothing is shared along the bodies"
    made = TiledReduction().apply_to(sch, WIDE)
    assert isinstance(made, Schedule)
    assert "T.unroll(3)" in made.mod["main"].script()


def quotients(n: Any) -> PrimFunc:
    """Sum, difference and quotients of two numbers that take a root each."""
    x = te.placeholder((2, n), name="x")

    def made(c: Any, i: Any) -> Any:
        a, b = tir.sqrt(x[0, i] * x[0, i] + 1.0), tir.sqrt(x[1, i] * x[1, i] + 1.0)
        return if_then_else(c == 0, a + b, if_then_else(c == 1, a - b, a / b))

    return te.create_prim_func([x, te.compute((3, n), made, name="made")])


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("n", [300, 1024, 40])
def test_results_side_by_side(target: Target, n: int) -> None:
    x = drawn(2, n)
    a, b = np.sqrt(x.astype("float64") ** 2 + 1)
    for func in (quotients(n), quotients(Var("n", "int64"))):
        found = computed(func, target, (3, n), x)
        np.testing.assert_allclose(found, np.stack([a + b, a - b, a / b]), rtol=1e-5, atol=1e-5)


def test_results_side_by_side_are_unrolled_inside_vectors() -> None:
    made = dlight.default_schedule(WIDE)(IRModule({"main": quotients(4096)}))["main"]
    text = made.script()
    assert text.index("T.serial" if "T.serial" in text else "range(") < text.index("T.unroll(3)")
    short = dlight.default_schedule(WIDE)(IRModule({"main": quotients(64)}))["main"]
    assert "unroll" not in short.script()


def test_large_formulas_are_not_looked_through() -> None:
    x, k = te.placeholder((64, 64), name="x"), te.reduce_axis((0, 64), "k")

    def value(i: Any, j: Any) -> Any:
        terms = [x[k, j] * float(n) for n in range(512)]
        while len(terms) > 1:
            terms = [a + b for a, b in zip(terms[::2], terms[1::2])]
        return te.sum(terms[0] * x[i, k], axis=k)

    sch = Schedule(IRModule({"main": te.create_prim_func([x, te.compute((64, 64), value)])}))
    found = describe(sch)
    assert isinstance(found, Contraction)
    assert sharing_of(found.store.value, found.places, found.axes[1], 14, WIDE.costs) is None


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize(
    ("rows", "steps", "first", "second"),
    [(64, 32, 0, 0), (45, 19, 0, 0), (70, 8, 3, 0), (50, 9, 0, 5)],
)
def test_products_of_a_matrix_with_itself(
    target: Target, across: bool, rows: int, steps: int, first: int, second: int
) -> None:
    x = drawn(steps, rows) if across else drawn(rows, steps)
    r = x.T if across else x
    found = computed(
        gram(rows, steps, first, second, across=across), target, (rows - first, rows - second), x
    )
    expected = r[first:].astype("float64") @ r[second:].T
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_a_product_of_a_matrix_with_itself_is_tiled() -> None:
    func = gram(256, 256, across=False)
    made = TiledReduction().apply_to(Schedule(IRModule({"main": func})), WIDE)
    assert isinstance(made, Schedule)
    # The panels of all columns come first: rows are read from them, too.
    copy = made.get_block("x_global")
    assert [axis.dom.extent.value for axis in made.get(copy).iter_vars] == [256, 256]
    tiles = made.get_loops(made.get_block("product_update"))
    assert not set(made.get_loops(copy)) & set(tiles), "they are not packed tile by tile"


@pytest.mark.parametrize("target", NATIVE)
def test_products_with_itself_of_a_size_that_comes_with_the_call(target: Target) -> None:
    func = gram(Var("n", "int64"), 24, across=True)
    for n in (1, 33, 64):
        x = drawn(24, n)
        found = computed(func, target, (n, n), x)
        np.testing.assert_allclose(found, x.T.astype("float64") @ x, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("target", NATIVE)
def test_what_moves_along_the_vectors_may_be_computed(target: Target) -> None:
    func, at = parabolas(21, 45), np.arange(45)
    assert applies(func, TiledReduction())
    f = drawn(21, 45)
    expected = np.stack([(row + (at[:, None] - at) ** 2 * 0.5).min(1) for row in f])
    np.testing.assert_allclose(computed(func, target, (21, 45), f), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize(("n", "width"), [(24, 5), (41, 3)])
def test_windows_over_two_operands(target: Target, n: int, width: int) -> None:
    func = differences(n, 4, width)
    assert applies(func, SlidingWindow())
    a, b, out = drawn(n, n), drawn(n, n + 4)[:, ::-1].copy(), n - width + 1
    far = [np.abs(a - b[:, d : d + n]) for d in range(4)]
    expected = np.stack(
        [sum(x[i : i + out, j : j + out] for i in range(width) for j in range(width)) for x in far]
    )
    found = computed(func, target, (4, out, out), a, b)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_windows_that_move_differently_are_not_shared() -> None:
    a, b = te.placeholder((40, 40), name="a"), te.placeholder((40, 40), name="b")
    i, j = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 3), "j")
    made = te.compute(
        (30, 30), lambda y, x: te.sum(a[y + i, x + j] * b[y, x + j], axis=[i, j]), name="made"
    )
    refused = SlidingWindow().apply_to(
        Schedule(IRModule({"main": te.create_prim_func([a, b, made])})), WIDE
    )
    assert isinstance(refused, NotApplicable)


@pytest.mark.parametrize("target", NATIVE)
def test_rows_that_a_condition_leaves_out_are_not_streamed(target: Target) -> None:
    func = ragged(5, 24, 32)
    assert not applies(func, MatrixVector())
    x, lengths = drawn(5, 24, 32), np.array([24, 1, 0, 7, 13], "int32")
    expected = np.stack([row[:n].sum(0) for row, n in zip(x.astype("float64"), lengths)])
    found = computed(func, target, (5, 32), x, lengths)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def _all_functions() -> list[Callable[[], PrimFunc]]:
    return [
        lambda: forces(37),
        lambda: gram(45, 19, across=False),
        lambda: gram(70, 8, 3, 0, across=True),
        lambda: parabolas(9, 21),
        lambda: differences(24, 4, 3),
        lambda: ragged(3, 8, 32),
    ]


@pytest.mark.parametrize("build", _all_functions())
@pytest.mark.parametrize("cpu", ["haswell", "x86-64", "skylake-avx512"])
def test_some_rule_applies_for_every_cpu(build: Callable[[], PrimFunc], cpu: str) -> None:
    target = Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu} -num-cores=2")
    made = dlight.default_schedule(target)(IRModule({"main": build()}))
    assert driver.lower(made, target)


def correlations(channels: int, n: int, width: int) -> PrimFunc:
    a = te.placeholder((channels, n, n), name="a")
    b = te.placeholder((channels, n + width - 1, n + width - 1), name="b")
    c = te.reduce_axis((0, channels), "c")
    return te.create_prim_func(
        [a, b, te.compute(
            (width, width, n, n),
            lambda dy, dx, y, x: te.sum(a[c, y, x] * b[c, y + dy, x + dx], axis=c),
            name="volume",
        )]
    )  # fmt: skip


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("n", [16, 21])
def test_tiles_share_what_is_loaded_of_some_operands(target: Target, n: int) -> None:
    func = correlations(5, n, 3)
    assert applies(func, TiledReduction())
    a, b = drawn(5, n, n), drawn(5, n + 2, n + 2)
    expected = [
        [(a.astype("float64") * b[:, y : y + n, x : x + n]).sum(0) for x in range(3)]
        for y in range(3)
    ]
    found = computed(func, target, (3, 3, n, n), a, b)
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("steps", [1, 2])
def test_sums_of_rows_of_a_product(target: Target, steps: int) -> None:
    a, b = te.placeholder((31, steps), name="a"), te.placeholder((steps, 17), name="b")
    k, j = te.reduce_axis((0, steps), "k"), te.reduce_axis((0, 17), "j")
    c = te.compute((31, 17), lambda y, x: te.sum(a[y, k] * b[k, x], axis=k), name="c")
    func = te.create_prim_func([a, b, te.compute((31,), lambda y: te.sum(c[y, j], axis=j))])
    x, w = drawn(31, steps), drawn(steps, 17)
    expected = (x.astype("float64") @ w).sum(1)
    found = computed(func, target, (31,), x, w)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
