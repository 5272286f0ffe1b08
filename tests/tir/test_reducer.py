"""The registry of reducers: their laws, recognising them, adding one's own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tilewright import te
from tilewright.ir import assert_structural_equal
from tilewright.script import parse
from tilewright.support.errors import TilewrightError, VerifyError
from tilewright.tir import REDUCERS, PrimFunc, make_reducer, register_reducer
from tilewright.tir.analysis.reducer_laws import check_reducer, verify_reducer
from tilewright.tir.analysis.reduction import match_reduction, match_update
from tilewright.tir.interpreter import run
from tilewright.tir.reducer import known_reducers
from tilewright.tir.schedule import Schedule

TUPLES: list[tuple[str, ...]] = [
    *[(t,) for t in ("float32", "float64", "float16", "bfloat16", "int8", "int32", "uint8")],
    ("bool",),
    ("int64", "float32"),
    ("int32", "int8"),
    ("int64", "float16"),
]


@pytest.mark.parametrize("dtypes_", TUPLES, ids="-".join)
def test_registered_reducers_keep_the_laws(dtypes_: tuple[str, ...]) -> None:
    found = dict(known_reducers(*dtypes_))
    assert found
    for name, reducer in found.items():
        assert check_reducer(reducer) == (), name


def test_what_is_registered_for_what() -> None:
    assert set(dict(known_reducers("float32"))) >= {"sum", "prod", "min", "max"}
    assert set(dict(known_reducers("bool"))) >= {"all", "any"}
    assert set(dict(known_reducers("int32"))) >= {"bitwise_and", "bitwise_or", "bitwise_xor"}
    pairs = set(dict(known_reducers("int32", "float32")))
    assert pairs >= {"argmax", "argmin", "argmax_last", "argmin_last"}
    assert "bitwise_or" not in dict(known_reducers("float32"))
    assert "argmax" not in dict(known_reducers("float32", "float32"))


@pytest.mark.parametrize(
    ("combine", "identity", "law"),
    [
        (lambda x, y: x - y, lambda t: te.const(0, t), "not commutative"),
        (lambda x, y: x + y, lambda t: te.const(1, t), "identity is not neutral"),
        (lambda x, y: x * y + x + y + 1, lambda t: te.const(0, t), "not neutral"),
        (lambda x, y: (x + y) * 2, lambda t: te.const(0, t), "not associative"),
    ],
)
def test_broken_laws_are_found(combine: object, identity: object, law: str) -> None:
    made = make_reducer(combine, identity, "int32")
    with pytest.raises(VerifyError, match=law):
        verify_reducer("odd", made)


def test_the_left_one_of_equals_is_not_commutative() -> None:
    """The usual argmax of tutorials takes whichever comes first, so it may not be reordered."""

    def combine(x: tuple, y: tuple) -> tuple:
        left = x[1] >= y[1]
        return te.select(left, x[0], y[0]), te.select(left, x[1], y[1])

    made = make_reducer(combine, lambda i, v: (te.const(-1, i), te.min_value(v)), "int32", "int32")
    assert any("commutative" in text for text in check_reducer(made))


def test_dtypes_must_fit() -> None:
    with pytest.raises(VerifyError, match=r"combination has dtypes \['bool'\]"):
        make_reducer(lambda x, y: x > y, lambda t: te.const(0, t), "int32")
    with pytest.raises(VerifyError, match="is for 2 values, got 1"):
        REDUCERS.get("argmax")("int32")
    with pytest.raises(VerifyError, match="not for float32"):
        REDUCERS.get("bitwise_and")("float32")
    with pytest.raises(TilewrightError, match="did you mean 'argmax'"):
        te.reducer("argmaxx")


def pairs(name: str, n: int = 3, k: int = 12) -> PrimFunc:
    index = te.placeholder((n, k), "int64", name="I")
    a = te.placeholder((n, k), name="A")
    axis = te.reduce_axis((0, k), "k")
    reduce = te.reducer(name)
    made = te.compute((n,), lambda i: reduce((index[i, axis], a[i, axis]), axis=axis), name="C")
    return te.create_prim_func([index, a, *made])


@pytest.mark.parametrize("name", ["argmax", "argmin", "argmax_last", "argmin_last"])
def test_ties(name: str) -> None:
    func = pairs(name)
    index = np.tile(np.arange(12), (3, 1))
    values = np.random.default_rng(0).integers(0, 3, (3, 12)).astype("float32")
    found, best = np.zeros(3, "int64"), np.zeros(3, "float32")
    run(func, index, values, found, best)
    pick = np.max if "max" in name else np.min
    for row, place, value in zip(values, found, best):
        places = np.flatnonzero(row == pick(row))
        assert value == pick(row)
        assert place == places[-1 if name.endswith("last") else 0]


def test_minus_infinity_is_an_element_like_others() -> None:
    func = pairs("argmax", 1, 4)
    found, best = np.zeros(1, "int64"), np.zeros(1, "float32")
    run(func, np.arange(4)[None], np.full((1, 4), -np.inf, "float32"), found, best)
    assert (found[0], best[0]) == (0, -np.inf)


@pytest.mark.parametrize("name", ["argmax", "argmin_last"])
def test_tuple_reductions_print_and_parse(name: str) -> None:
    func = pairs(name)
    again = parse(func.script())
    assert_structural_equal(again, func)
    sch = Schedule(again)
    matched = match_reduction(sch.get(sch.get_block("C")))
    assert matched is not None and matched.name == name
    assert [buffer.dtype for buffer in matched.targets] == ["int64", "float32"]


def bits(name: str) -> PrimFunc:
    a = te.placeholder((4, 6), "int32", name="A")
    axis = te.reduce_axis((0, 6), "k")
    reduce = te.reducer(name)
    c = te.compute((4,), lambda i: reduce(a[i, axis], axis=axis), name="C")
    return te.create_prim_func([a, c])


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits(name: str) -> None:
    func = bits(name)
    a = np.random.default_rng(0).integers(-100, 100, (4, 6)).astype("int32")
    c = np.zeros(4, "int32")
    run(func, a, c)
    np.testing.assert_array_equal(c, getattr(np, name).reduce(a, axis=1))
    sch = Schedule(func)
    matched = match_reduction(sch.get(sch.get_block("C")))
    assert matched is not None and matched.name == name


def test_order_of_stores_and_operands_does_not_matter() -> None:
    func = parse(
        """
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), V: T.Buffer((4,), "float32"), P: T.Buffer((4,), "int64")):
    for i, k in T.grid(4, 8):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                V[vi] = T.float32("-inf")
                P[vi] = T.max_value("int64")
            v: T.float32 = T.Select(A[vi, vk] < V[vi], V[vi], A[vi, vk])
            p: T.int64 = T.Select(
                V[vi] > A[vi, vk] or (A[vi, vk] == V[vi] and P[vi] < vk), P[vi], vk
            )
            V[vi] = v
            P[vi] = p
"""
    )
    sch = Schedule(func)
    block = sch.get(sch.get_block("C"))
    matched = match_reduction(block)
    assert matched is not None and matched.name == "argmax_of_numbers"
    assert [buffer.name for buffer in matched.targets] == ["P", "V"]
    assert match_update(block.replace(init=None)) is not None
    assert match_reduction(block.replace(init=None)) is None


@pytest.fixture
def triple() -> Iterator[str]:
    """Sum, least and greatest at once."""
    name = "test_sum_min_max"
    register_reducer(
        name,
        lambda x, y: (x[0] + y[0], te.minimum(x[1], y[1]), te.maximum(x[2], y[2])),
        lambda a, b, c: (te.const(0, a), te.max_value(b), te.min_value(c)),
        3,
    )
    yield name
    del REDUCERS._entries[name]


def test_a_reducer_of_ones_own(triple: str) -> None:
    a = te.placeholder((4, 24), name="A")
    axis = te.reduce_axis((0, 24), "k")
    reduce = te.reducer(triple)
    made = te.compute(
        (4,), lambda i: reduce((a[i, axis], a[i, axis], a[i, axis]), axis=axis), name="C"
    )
    func = te.create_prim_func([a, *made])
    sch = Schedule(func)
    _, k = sch.get_loops(sch.get_block("C"))
    _, k1 = sch.split(k, [None, 5])
    sch.rfactor(k1, 0)
    sch.decompose_reduction("C", sch.get_loops("C")[1])
    data = np.random.default_rng(0).integers(-9, 9, (4, 24)).astype("float32")
    outs = [np.zeros(4, "float32") for _ in range(3)]
    run(sch.mod["main"], data, *outs)
    for out, how in zip(outs, (np.sum, np.min, np.max)):
        np.testing.assert_array_equal(out, how(data, axis=1))


def test_registering_twice_and_nonsense(triple: str) -> None:
    with pytest.raises(TilewrightError, match="registered twice"):
        register_reducer(triple, lambda x, y: x, lambda t: te.const(0, t))
    with pytest.raises(VerifyError, match="at least one element"):
        register_reducer("test_none", lambda x, y: x, lambda t: te.const(0, t), 0)
