"""Integers of data wrap: what is simplified, interpreted and compiled is what NumPy says."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import compile, te, tir
from tilewright.arith import Analyzer, simplify
from tilewright.ir import (
    Cast,
    Expr,
    IntImm,
    Range,
    Select,
    Var,
    as_expr,
    call,
    const,
    floordiv,
    floormod,
    is_const,
    maximum,
    minimum,
    truncdiv,
)
from tilewright.script import tir as T
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

# Identities that are false where numbers wrap or a divisor is zero. Each is given expressions, or
# columns of NumPy.
Functions = dict[str, Callable[..., Any]]
SYMBOLIC: Functions = {
    "div": floordiv,
    "mod": floormod,
    "quotient": truncdiv,
    "min": minimum,
    "max": maximum,
    "pick": Select,
    "abs": lambda x: call("abs", x),
}


def _quotient(a: Any, b: Any) -> Any:
    whole, rest = np.floor_divide(a, b), np.fmod(a, b)
    return whole + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


NUMERIC: Functions = {
    "div": np.floor_divide,
    "mod": np.remainder,
    "quotient": _quotient,
    "min": np.minimum,
    "max": np.maximum,
    "pick": np.where,
    "abs": np.abs,
}

CONDITIONS: list[Callable[..., Any]] = [
    lambda f, a, b, k: a + k > a,
    lambda f, a, b, k: a - b < k - k,
    lambda f, a, b, k: a * k < b * k,
    lambda f, a, b, k: a + b < a + k,
    lambda f, a, b, k: f["max"](a, k) - f["max"](b, k) <= k,
    lambda f, a, b, k: f["min"](a, a + k) == a,
    lambda f, a, b, k: a - k == b - k,
    lambda f, a, b, k: f["abs"](a) >= k - k,
    lambda f, a, b, k: f["div"](a, k) + k < f["div"](b, k),
]
VALUES: list[Callable[..., Any]] = [
    lambda f, a, b, k: f["div"](a * k, k),
    lambda f, a, b, k: f["mod"](a * k + b, k),
    lambda f, a, b, k: f["div"](f["div"](a, k) + k, k),
    lambda f, a, b, k: f["div"](a * b, b),
    lambda f, a, b, k: f["div"](a, b) * b + f["mod"](a, b),
    lambda f, a, b, k: f["quotient"](a * k, k),
    lambda f, a, b, k: f["min"](a + b, a + k) - a,
    lambda f, a, b, k: f["max"](a * k, b * k),
    lambda f, a, b, k: f["pick"](a + k > a, a + k, b),
    lambda f, a, b, k: (a + k) * (b - k) - a * b,
    lambda f, a, b, k: f["div"](a - b, k) - f["mod"](b, k),
    lambda f, a, b, k: f["div"](a + k - k, a),
]


def numbers(dtype: str) -> list[int]:
    info = np.iinfo(dtype)
    small = [-3, -2, -1, 0, 1, 2, 3, 7]
    edges = [info.min, info.min + 1, info.min // 2, info.max // 2, info.max // 3, info.max]
    return sorted({value for value in small + edges if info.min <= value <= info.max})


def columns(dtype: str) -> tuple[Any, Any]:
    pairs = np.array(list(itertools.product(numbers(dtype), repeat=2)), dtype)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def check(dtype: str, builders: list[Callable[..., Any]], factor: int) -> None:
    """Compare what is interpreted and compiled, of plain and of simplified expressions."""
    a, b = columns(dtype)
    x, y = (te.placeholder((len(a),), dtype, name) for name in "ab")
    outputs, expected = [], []
    for build in builders:
        with np.errstate(all="ignore"):
            made = build(NUMERIC, a, b, np.dtype(dtype).type(factor))
        expected.append(np.asarray(made))

        def value(i: Any, build: Callable[..., Any] = build) -> Expr:
            plain = build(SYMBOLIC, x[i], y[i], const(factor, dtype))
            plain = Cast("int8", plain) if plain.dtype == "bool" else plain
            return as_expr(simplify(plain))

        outputs.append(te.compute((len(a),), value, name=f"c{len(outputs)}"))
    func = te.create_prim_func([x, y, *outputs])
    for execute in (compile(func), lambda *args: run(func, *args)):
        found = [np.zeros(len(a), output.dtype) for output in outputs]
        execute(a, b, *found)
        for number, (one, wanted) in enumerate(zip(found, expected)):
            np.testing.assert_array_equal(one, wanted, err_msg=f"{number} {dtype} {factor}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_identities_of_whole_numbers(dtype: str, factor: int) -> None:
    check(dtype, CONDITIONS + VALUES, factor)


class _Maker:
    """Random expressions, built twice: of nodes and of NumPy columns."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.random = random.Random(seed)
        self.dtype = dtype

    def value(self, depth: int) -> Callable[..., Any]:
        pick = self.random
        if depth == 0:
            constant = pick.choice(numbers(self.dtype))
            return pick.choice([
                lambda f, a, b, k: a,
                lambda f, a, b, k: b,
                lambda f, a, b, k: a * 0 + constant if isinstance(a, np.ndarray)
                else const(constant, a.dtype),
            ])  # fmt: skip
        first, second = self.value(depth - 1), self.value(pick.randrange(depth))
        name = pick.choice(["+", "-", "*", "div", "mod", "quotient", "min", "max", "pick"])

        def build(f: Functions, a: Any, b: Any, k: Any) -> Any:
            u, v = first(f, a, b, k), second(f, a, b, k)
            if name in "+-*":
                return {"+": u + v, "-": u - v, "*": u * v}[name]
            return f["pick"](u < v, u, v) if name == "pick" else f[name](u, v)

        return build


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64"])
def test_random_expressions(dtype: str, seed: int) -> None:
    maker = _Maker(seed, dtype)
    made = [maker.value(maker.random.randrange(1, 4)) for _ in range(12)]
    conditions = [
        lambda f, a, b, k, u=u, v=v: u(f, a, b, k) < v(f, a, b, k)
        for u, v in zip(made[::2], made[1::2])
    ]
    check(dtype, [*made, *conditions], 2)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_what_is_proven_of_data(dtype: str) -> None:
    A, narrow = tir.decl_buffer((64,), dtype, "A"), tir.decl_buffer((64,), "int8", "N")
    i = Var("i")
    analyzer = Analyzer()
    analyzer.bind(i, Range.from_min_extent(IntImm("int64", 0), IntImm("int64", 64)))
    x, y = A[i], A[i + 1]
    for unknown in (x + 1 > x, x - y < 0, x * 3 < y * 3, (x * 2) // 2 - x, x // x):
        assert not is_const(analyzer.simplify(as_expr(unknown)))
    # Sums and products are still known modulo powers of two.
    assert analyzer.can_prove_equal(x + y - x, y)
    assert analyzer.can_prove_equal((x + 1) * 2 - 2, x + x)
    # What can't leave the dtype doesn't wrap.
    small = narrow[i].astype(dtype)
    assert analyzer.can_prove(small + 1 > small)
    assert analyzer.can_prove_equal((small * 2) // 2, small)
    assert analyzer.can_prove(x % 8 < 8) and analyzer.can_prove(minimum(maximum(x, 0), 9) + i >= i)
    # Indices don't wrap.
    assert analyzer.can_prove(i + 1 > i) and analyzer.can_prove_equal((i * 2) // 2, i)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_variables_and_scalars_that_are_data(dtype: str) -> None:
    @T.prim_func
    def main(A: T.Buffer((4,), dtype), C: T.Buffer((4,), "int8")):
        for i in range(4):
            with T.block("c"):
                v = T.axis.spatial(4, i)
                x: T.let = A[v]
                C[v] = T.Cast("int8", x + T.Cast(dtype, 1) > x)

    values = np.array([0, -1, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    for execute in (compile(main), lambda *args: run(main, *args)):
        found = np.zeros(4, "int8")
        execute(values, found)
        np.testing.assert_array_equal(found, [1, 1, 0, 1])


def test_scalar_parameters_of_other_types_than_the_index_type_wrap() -> None:
    @T.prim_func
    def main(n: T.int32, C: T.Buffer((2,), "int32")):
        for i in range(2):
            with T.block("c"):
                v = T.axis.spatial(2, i)
                C[v] = T.Select(n + 1 > n, T.truncdiv(n * 2, 2), 7)

    for execute in (compile(main), lambda *args: run(main, *args)):
        for n, expected in ((5, 5), (2**31 - 1, 7), (-(2**31), 0)):
            found = np.zeros(2, "int32")
            execute(n, found)
            np.testing.assert_array_equal(found, [expected] * 2)


def test_sums_of_integers_wrap() -> None:
    for dtype in DTYPES:
        x = te.placeholder((3, 4), dtype, "x")
        k = te.reduce_axis((0, 4), "k")
        func: PrimFunc = te.create_prim_func([x, te.compute((3,), lambda i: te.sum(x[i, k], k))])  # noqa: B023
        values = np.full((3, 4), np.iinfo(dtype).max, dtype)
        for execute in (compile(func), lambda *args: run(func, *args)):  # noqa: B023
            found = np.zeros(3, dtype)
            execute(values, found)
            np.testing.assert_array_equal(found, values.sum(axis=1, dtype=dtype))


def test_regions_of_indices_from_memory_are_unbounded() -> None:
    @T.prim_func
    def main(A: T.Buffer((2,), "int8"), B: T.Buffer((2,), "int64"), C: T.Buffer((2,), "int8")):
        D = T.alloc_buffer((2,), "int8")
        for i in range(2):
            with T.block("d"):
                v = T.axis.spatial(2, i)
                D[v] = T.Select(A[v] * A[B[v]] < A[v], A[v] * A[B[v]], A[v])
        for i in range(2):
            with T.block("c"):
                v = T.axis.spatial(2, i)
                C[v] = D[v]

    sch = tir.Schedule(main)
    loop = sch.get_loops(sch.get_block("d"))[0]
    sch.reverse_compute_at(sch.get_block("c"), loop)
    outer = sch.blockize(loop)
    reads = {region.buffer.name: region.region[0] for region in sch.get(outer).reads}
    assert is_const(reads["A"].min, 0) and is_const(reads["A"].extent, 2)


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_indices_cast_to_fewer_bits_wrap(dtype: str) -> None:
    extent = 70000
    cast = te.compute((extent,), lambda i: i.astype(dtype), "cast")
    square = te.compute(
        (extent,), lambda i: (cast[i] * cast[i] >= const(0, dtype)).astype("int8"), "square"
    )
    func = te.create_prim_func([square])
    sch = tir.Schedule(func)
    sch.compute_inline(sch.get_block("cast"))
    numbers = np.arange(extent).astype(dtype)
    for program in (func, sch.mod["main"]):
        for execute in (compile(program), lambda *args, p=program: run(p, *args)):
            found = np.zeros(extent, "int8")
            execute(found)
            np.testing.assert_array_equal(found, numbers * numbers >= 0)
