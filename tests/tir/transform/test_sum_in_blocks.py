"""Long sums in blocks: what is cut, that it computes the same, and that it is closer."""

from __future__ import annotations

import random

import numpy as np
import pytest
from transform_cases import applied, body, lowered, same

from tests.everyday import few
from tilewright import compile as compile_
from tilewright import te
from tilewright.dlight import default_schedule
from tilewright.ir import IRModule, PassContext, Var, const, if_then_else
from tilewright.target import Target
from tilewright.tir import (
    Allocate,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    PrimFunc,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.interpreter import run
from tilewright.tir.transform import SumInBlocks

SUMS = """
@T.prim_func
def main(A: T.Buffer((2048,), "float32"), C: T.Buffer((16,), "float32")):
    acc = T.allocate((16,), "float32", scope="local")
    acc[0:16] = T.Broadcast(T.float32(1), 16)
    for k in range(128):
        acc[0:16] = acc[0:16] + A[k * 16:k * 16 + 16]
    C[0:16] = acc[0:16]
"""


def whole(count: int) -> np.ndarray:
    """Numbers whose sums are exact."""
    return np.random.default_rng(count).integers(-8, 9, count).astype("float32")


def test_sums_of_blocks_are_added() -> None:
    text = applied(SumInBlocks(32, 64), lowered(SUMS), whole(2048), np.zeros(16, "float32"))
    assert "\n".join(text.splitlines()[-14:-1]) == (
        """\
    with T.allocate((32,), "float32", scope="local") as acc_aside:
        for k_block in range(4):
            if k_block > 0:
                k_old: T.int64 = k_block % 2
                k_new: T.int64 = 1 - k_old
                if k_block > 1:
                    acc[0:16] = acc_aside[k_old * 16:k_old * 16 + 16] + acc[0:16]
                acc_aside[k_new * 16:k_new * 16 + 16] = acc[0:16]
                acc[0:16] = T.Broadcast(T.float32(-0.0), 16)
            for k in range(32):
                acc[0:16] = acc[0:16] + A_1[(k_block * 32 + k) * 16:(k_block * 32 + k) * 16 + 16]
        k_old: T.int64 = 0
        acc[0:16] = acc_aside[k_old * 16:k_old * 16 + 16] + acc[0:16]"""
    )


def test_other_loops_stay() -> None:
    short = SUMS.replace("range(128)", "range(64)")
    differences = SUMS.replace("= acc[0:16] + A", "= A").replace("+ 16]", "+ 16] - acc[0:16]")
    integers = SUMS.replace("float32", "int32")
    doubles = SUMS.replace("float32", "float64")
    for text in (short, integers, doubles, differences):
        assert text != SUMS
        mod = lowered(text)
        assert body(SumInBlocks(32, 64)(mod)) == body(mod)


def test_what_reads_the_sum_keeps_it() -> None:
    """A running sum is needed at each step."""
    mod = lowered(
        """
@T.prim_func
def main(A: T.Buffer((128,), "float32"), C: T.Buffer((128,), "float32")):
    acc = T.allocate((1,), "float32", scope="local")
    acc[0] = T.float32(0)
    for k in range(128):
        acc[0] = acc[0] + A[k]
        C[k] = acc[0]
"""
    )
    assert body(SumInBlocks(8, 16)(mod)) == body(mod)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 100])
def test_lengths_that_come_with_the_call(n: int) -> None:
    mod = lowered(
        """
@T.prim_func
def main(n: T.int64, A: T.Buffer((128,), "float32"), C: T.Buffer((1,), "float32")):
    acc = T.allocate((1,), "float32", scope="local")
    acc[0] = T.float32(3)
    for k in range(n):
        acc[0] = acc[0] + A[k] + A[127 - k]
    C[0] = acc[0]
"""
    )
    made = SumInBlocks(8, 16)(mod)
    assert "T.Select(n <= 8, 1, (n + 3) // 4)" in body(made)  # 8 iterations add 16 terms
    assert "for k in range(T.min(k_size, n - k_block * k_size))" in body(made)
    same(mod, made, n, whole(128), np.zeros(1, "float32"))


@pytest.mark.parametrize("extent", ["n", "100", "n - m", "T.min(n, 40)"])
@pytest.mark.parametrize("n", [0, 3, 16, 17, 100])
def test_loops_of_narrow_integers(extent: str, n: int) -> None:
    mod = lowered(
        f"""
@T.prim_func
def main(
    n: T.int32, m: T.int32, A: T.Buffer((128,), "float32"), C: T.Buffer((1,), "float32")
):
    acc = T.allocate((1,), "float32", scope="local")
    acc[0] = T.float32(3)
    for k in T.serial(m, m + {extent}):
        acc[0] = acc[0] + A[k]
    C[0] = acc[0]
"""
    )
    made = SumInBlocks(8, 16)(mod)
    assert "k_block" in body(made)
    same(mod, made, n, 2, whole(128), found := np.zeros(1, "float32"))
    run(mod, n, 2, whole(128), found)
    kernel = compile_(made, "llvm")["main"]
    kernel(n, 2, whole(128), again := np.zeros(1, "float32"))
    np.testing.assert_array_equal(found, again)


ONE = """
@T.prim_func
def main(A: T.Buffer((128,), "float32"), N: T.Buffer((2,), "int64"), C: T.Buffer((1,), "float32")):
    acc = T.allocate((1,), "float32", scope="local")
    acc[0] = T.float32(START)
    for k in T.serial(BEGIN, END):
        acc[0] = acc[0] + A[k]
        LAST
    C[0] = acc[0]
"""


def one(start: str, begin: str, end: str, last: str) -> IRModule:
    """A sum in a loop that does something else, too."""
    text = ONE.replace("START", start).replace("BEGIN", begin).replace("END", end)
    return lowered(text.replace("LAST", last))


@pytest.mark.parametrize(
    "begin, end, last",
    [
        ("0", "N[0]", "N[0] = N[0] - 1"),
        ("N[0]", "100", "N[0] = N[0] - 1"),
        ("N[1]", "N[1] + N[0]", "N[1] = N[1] + 1"),
        ("0", "T.Cast('int64', acc[0])", "pass"),
    ],
)
def test_ends_are_what_they_are_before_the_loop(begin: str, end: str, last: str) -> None:
    mod = one("20.0", begin, end, "" if last == "pass" else last)
    made = SumInBlocks(8, 16)(mod)
    assert "k_block" in body(made)
    same(mod, made, whole(128), np.array([40, 3]), np.zeros(1, "float32"))


@pytest.mark.parametrize("first", [-0.0, 0.0])
def test_sums_of_zeros_keep_their_sign(first: float) -> None:
    mod = one(str(first), "0", "128", "")
    made = SumInBlocks(8, 16)(mod)
    assert "k_block" in body(made)
    result = np.ones(1, "float32")
    run(made, np.full(128, -0.0, "float32"), np.zeros(2, "int64"), result)
    assert result[0] == 0 and np.signbit(result[0]) == np.signbit(first)


def test_sums_that_a_pointer_reaches_stay() -> None:
    text = ONE.replace("    for k", "    p: T.handle = T.address_of(acc[0])\n    for k")
    text = text.replace("START", "0.0").replace("BEGIN", "0").replace("END", "128")
    mod = lowered(text.replace("LAST", 'T.call_extern("void", "look", p)'))
    assert body(SumInBlocks(8, 16)(mod)) == body(mod)


def test_a_very_long_sum_is_cut_at_once() -> None:
    """Its divisors aren't all tried."""
    mod = lowered(SUMS.replace("range(128)", "range(2**40)").replace("2048", "2**44"))
    assert "for k in range(512)" in body(SumInBlocks()(mod))


class Sums:
    """Draws nests of loops that add to some numbers, read them or not, under conditions or not."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.given = decl_buffer((64,), "float32", "A")
        self.made = decl_buffer((8,), "float32", "C")
        self.sums = [decl_buffer((8,), "float32", name, scope="local") for name in ("s", "t")]
        self.n = Var("n")
        self.loops: list[Var] = []

    def func(self) -> PrimFunc:
        handles = {Var(f"{b.name}_handle", "handle"): b for b in (self.given, self.made)}
        places = [const(i) for i in range(8)]
        start = [BufferStore(b, const(2.0, "float32"), (i,)) for b in self.sums for i in places]
        s, t = self.sums
        result = [BufferLoad(s, (i,)) * 3 + BufferLoad(t, (i,)) for i in places]
        end = [BufferStore(self.made, value, (i,)) for i, value in zip(places, result)]
        body: Stmt = seq(*start, *(self.loop(self.rng.randint(1, 3)) for _ in range(2)), *end)
        for buffer in self.sums:
            body = Allocate(buffer, body)
        return PrimFunc((*handles, self.n), body, buffer_map=handles)

    def loop(self, depth: int) -> Stmt:
        rng, var = self.rng, Var(f"k{len(self.loops)}")
        extent = rng.choice([const(rng.randint(1, 7)), const(12), self.n, const(0)])
        self.loops.append(var)
        inside = [self.loop(depth - 1)] if depth else []
        inside += [self.add() for _ in range(rng.randint(1, 3))]
        rng.shuffle(inside)
        self.loops.pop()
        return For(var, const(rng.choice([0, 0, 3])), extent, "serial", seq(*inside))

    def add(self) -> Stmt:
        rng = self.rng
        buffer = rng.choice(self.sums)
        at = (rng.choice([const(1), const(2), const(2), const(5), rng.choice(self.loops) % 8]),)
        place = (sum(self.loops, const(0)) * rng.randint(1, 9) % 64,)
        term = BufferLoad(self.given, place)
        if rng.random() < 0.1:
            term = term + BufferLoad(rng.choice(self.sums), (const(2),)) * 0
        value = BufferLoad(buffer, at) + term
        if rng.random() < 0.3:
            value = value + if_then_else(rng.choice(self.loops) < 2, term, const(1.0, "float32"))
        if rng.random() < 0.1:
            value = term - BufferLoad(buffer, at)
        store = BufferStore(buffer, value, at)
        return IfThenElse(rng.choice(self.loops) < self.n, store) if rng.random() < 0.2 else store


@few("seed", range(120), every=8)
def test_drawn_sums_stay_the_same(seed: int) -> None:
    """Numbers are whole and small: sums are exact in any order."""
    mod = IRModule({"main": Sums(seed).func()})
    size = random.Random(seed).randint(1, 6)
    made = SumInBlocks(size, size + seed % 3)(mod)
    for n in (0, 1, 2, 5):
        same(mod, made, whole(64) % 3, np.zeros(8, "float32"), n)


def test_drawn_sums_are_cut_often() -> None:
    """The test above would be pointless if nothing was cut."""
    cut = [
        "_block" in body(SumInBlocks(3, 5)(IRModule({"main": Sums(n).func()}))) for n in range(40)
    ]
    assert sum(cut) > 20


def test_long_products_are_as_close_as_short_ones() -> None:
    """Terms of one sign, by rule: the error doesn't grow with their number."""
    count = 1 << 15
    a = te.placeholder((4, count), name="A")
    b = te.placeholder((count, 64), name="B")
    k = te.reduce_axis((0, count), "k")
    c = te.compute((4, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    func = te.create_prim_func([a, b, c])
    rng = np.random.default_rng(0)
    left, right = (rng.random(shape, "float32") for shape in ((4, count), (count, 64)))
    exact = left.astype("float64") @ right.astype("float64")

    def error(target: str) -> float:
        found = np.zeros((4, 64), "float32")
        scheduled = default_schedule(Target(target))(IRModule({"main": func}))
        compile_(scheduled, target)(left, right, found)
        return float((np.abs(found - exact) / exact).max())

    with PassContext(disabled_pass=["SumInBlocks"]):
        alone = error("native")
    assert error("native") < min(4e-6, alone / 4)
