"""Each pass over random lowered programs: what they compute stays the same, to the last bit.

Two sources: functions lowered after random schedules, and random statements, which hold what
schedules never leave behind: divisions and loads that only conditions make harmless, loops that may
not run, stores between equal expressions, and memory of short life.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from schedule_cases import arrays
from test_random_schedules import PROGRAMS, Walk
from transform_cases import lowered, same

from tilewright import driver
from tilewright.ir import (
    Expr,
    FloorDiv,
    FloorMod,
    IRModule,
    Pass,
    PassContext,
    Sequential,
    Var,
    and_,
    as_expr,
    const,
    if_then_else,
    maximum,
    minimum,
    select,
)
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    While,
    decl_buffer,
    seq,
    transform,
)
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

PASSES: dict[str, Callable[[], Pass]] = {
    "canonicalize": transform.CanonicalizeLoops,
    "cse": transform.CommonSubexpressionElimination,
    "cse of all": lambda: transform.CommonSubexpressionElimination(min_cost=1),
    "hoist": transform.HoistInvariants,
    "hoist all": lambda: transform.HoistInvariants(unswitch_limit=1000, min_cost=1),
    "narrow": transform.NarrowDataType,
    "no-ops": transform.RemoveNoOp,
    "renormalize": transform.RenormalizeSplitPattern,
    "storage": lambda: transform.StorageRewrite(scopes=("global", "local")),
}
#: The passes that have always been in the order for CPUs, on programs that schedules don't make.
USUAL: dict[str, Callable[[], Pass]] = {
    "simplify": transform.Simplify,
    "partition": transform.LoopPartition,
    "unroll": transform.UnrollLoop,
    "promote": transform.PromoteAccumulators,
    "divisions": transform.LowerIntDiv,
}
ALL = Sequential([make() for make in PASSES.values()], "All")
OPTIONS = {"tir.cse": True, "tir.hoist_invariants": True, "tir.narrow_dtype": True}


def random_schedule(name: str, seed: int) -> tuple[PrimFunc, Schedule]:
    """A program, and a random schedule of it with loops of all kinds."""
    func = PROGRAMS[name]()
    sch = Schedule(func, seed=0)
    walk = Walk(sch, seed)
    kinds = [sch.parallel, sch.vectorize, sch.unroll]
    for step in range(12):
        try:
            if step < 8:
                walk.step()
            else:
                walk.rng.choice(kinds)(walk.some_loop([walk.some_block()]))
        except ScheduleError:
            continue
    return func, sch


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(6))
def test_passes_after_random_schedules(name: str, seed: int) -> None:
    func, sch = random_schedule(name, seed)
    flat = [*transform.block_passes(), transform.FlattenBuffer()]
    simple = [transform.Simplify()] if seed % 2 else []
    mod = Sequential([*flat, *simple])(sch.mod)
    expected = arrays(func, n=5)
    run(mod, *expected)
    for make in (*PASSES.values(), lambda: ALL):
        made = make()(mod)
        verify(made)
        actual = arrays(func, n=5)
        run(made, *actual)
        for a, b in zip(expected, actual):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_with_all_options(name: str) -> None:
    func, sch = random_schedule(name, 100)
    expected, actual = arrays(func, n=5), arrays(func, n=5)
    run(func, *expected)
    with PassContext(config=OPTIONS):
        built = driver.compile(sch.mod, Target("llvm -mcpu=x86-64-v3 -num-cores=1"))
    built["main"](*actual)
    for a, b in zip(expected, actual):
        np.testing.assert_allclose(a, b, rtol=1e-5)


class Statements:
    """Draws programs on three arrays of 8 integers and two numbers, which never go wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.buffers = [decl_buffer((8,), "int64", name) for name in "ABC"]
        self.numbers = [Var("n"), Var("m")]
        self.names = 0

    def func(self) -> PrimFunc:
        handles = [Var(f"{buffer.name}_handle", "handle") for buffer in self.buffers]
        parameters = dict(zip(handles, self.buffers))
        numbers = list(self.numbers)
        body = seq(*(self.stmt(4) for _ in range(3)))
        return PrimFunc((*handles, *numbers), parameters, body)

    def name(self, base: str) -> str:
        self.names += 1
        return f"{base}{self.names}"

    def expr(self, depth: int) -> Expr:
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            return rng.choice([*self.numbers, const(rng.randint(-3, 9))])
        a, b = self.expr(depth - 1), self.expr(depth - 1)
        buffer, k = rng.choice(self.buffers), rng.choice([2, 3, 4, 6, 7])
        makers: list[Callable[[], Expr]] = [
            lambda: a + b,
            lambda: a - b,
            lambda: a * k,
            lambda: as_expr(a) // k,
            lambda: as_expr(a) % k,
            lambda: a // k // rng.choice([2, 3]),
            lambda: a % (6 * k) // k,
            lambda: minimum(a, b),
            lambda: maximum(a, b),
            lambda: select(a < b, a, b),
            lambda: BufferLoad(buffer, (a % 8,)),
            lambda: BufferLoad(buffer, (b % 8,)),
            lambda: if_then_else(and_(a >= 0, a < 8), BufferLoad(buffer, (a,)), b),
            lambda: if_then_else(b.__ne__(0), FloorDiv(a, b), a),
            lambda: if_then_else(self.condition(1), a, b),
        ]
        return rng.choice(makers)()

    def condition(self, depth: int) -> Expr:
        a, b = self.expr(depth), self.expr(depth)
        if self.rng.random() < 0.3:
            return and_(b.__ne__(0), FloorMod(a, b) < 3)
        return a < b

    def stmt(self, depth: int) -> Stmt:
        rng = self.rng
        if depth == 0:
            return self.store()
        return rng.choice([self.store, self.several, self.loop, self.branch, self.let,
                           self.memory, self.repeat, self.pointless])(depth)  # fmt: skip

    def several(self, depth: int) -> Stmt:
        return seq(*(self.stmt(depth - 1) for _ in range(self.rng.randint(2, 4))))

    def store(self, depth: int = 0) -> Stmt:
        place = self.expr(1) % 8
        return BufferStore(self.rng.choice(self.buffers), self.expr(3) % 97, (place,))

    def pointless(self, depth: int) -> Stmt:
        buffer, place = self.rng.choice(self.buffers), self.expr(1) % 8
        return BufferStore(buffer, BufferLoad(buffer, (place,)), (place,))

    def loop(self, depth: int) -> Stmt:
        var = Var(self.name("i"))
        start = self.rng.choice([const(0), const(0), const(2), self.expr(1) % 5])
        extent = self.rng.choice([const(3), const(1), self.numbers[0], self.expr(1) % 4])
        kind = self.rng.choice(["serial", "serial", "unrolled", "parallel"])
        return For(var, start, extent, kind, self.scoped(var, depth))

    def scoped(self, var: Var, depth: int) -> Stmt:
        self.numbers += [var, var]
        body = seq(*(self.stmt(depth - 1) for _ in range(self.rng.randint(1, 2))))
        del self.numbers[-2:]
        return body

    def branch(self, depth: int) -> Stmt:
        other = self.stmt(depth - 1) if self.rng.random() < 0.5 else None
        return IfThenElse(self.condition(2), self.stmt(depth - 1), other)

    def let(self, depth: int) -> Stmt:
        var = Var(self.name("x"))
        value = self.rng.choice([self.expr(2), BufferLoad(self.buffers[0], (self.expr(1) % 8,))])
        return LetStmt(var, value, self.scoped(var, depth))

    def memory(self, depth: int) -> Stmt:
        buffer = decl_buffer((self.rng.choice([8, 16]),), "int64", self.name("T"))
        var = Var(self.name("k"))
        # Memory holds nothing at first: write before the first read.
        first = For(var, const(0), const(8), "serial", BufferStore(buffer, self.expr(2), (var,)))
        self.buffers.append(buffer)
        body = seq(first, *(self.stmt(depth - 1) for _ in range(2)))
        self.buffers.remove(buffer)
        return Allocate(buffer, body)

    def repeat(self, depth: int) -> Stmt:
        """A loop with a counter in memory, which nothing else knows."""
        counter: Buffer = decl_buffer((1,), "int64", self.name("count"))
        value = BufferLoad(counter, (const(0),))
        step = BufferStore(counter, value + 1, (const(0),))
        condition = and_(value < 3, self.condition(1))
        body = While(condition, seq(self.stmt(depth - 1), step))
        return Allocate(counter, seq(BufferStore(counter, const(0), (const(0),)), body))


def outcome(mod: IRModule, n: int, m: int) -> list[np.ndarray]:
    made = [np.arange(8) * k % 11 for k in (3, 5, 7)]
    run(mod, *made, n, m)
    return made


@pytest.mark.parametrize("seed", range(80))
def test_passes_over_random_statements(seed: int) -> None:
    mod = IRModule({"main": Statements(seed).func()})
    verify(mod)
    sizes = [(0, 0), (3, 2), (-1, 5), (8, -4), (2, 0)]
    expected = [outcome(mod, *size) for size in sizes]
    for name, make in (*PASSES.items(), *USUAL.items(), ("all", lambda: ALL)):
        made = make()(mod)
        verify(made)
        for size, arrays_ in zip(sizes, expected):
            for a, b in zip(arrays_, outcome(made, *size)):
                np.testing.assert_array_equal(a, b, err_msg=f"{name} {size}")


def test_a_test_of_the_whole_range_divides_by_nothing_that_was_guarded() -> None:
    """Found by the programs above: the loop was doubled under a test without its guard."""
    mod = lowered(
        """
@T.prim_func
def main(n: T.int64, C: T.Buffer((64,), "int64")):
    for i in range(n + 8):
        for j in range(8):
            if n != 0 and i * 8 + j < 64 % n + 20:
                C[i * 8 + j] = 1
"""
    )
    for n in (0, 3):
        same(mod, transform.LoopPartition()(mod), n, np.zeros(64, "int64"))
