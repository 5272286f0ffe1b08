"""Each pass over random lowered programs: what they compute stays the same, to the last bit.

Two sources: functions lowered after random schedules, and random statements, which hold what
schedules never leave behind: divisions and loads that only conditions make harmless, loops that may
not run, stores between equal expressions, and memory of short life.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import numpy as np
import pytest
from transform_cases import lowered, same

from tests.everyday import few
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
from tilewright.testing.fuzz.driver import Chooser
from tilewright.testing.fuzz.session import Session
from tilewright.testing.fuzz.stages import generate
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
    "unswitch choices": transform.UnswitchChoices,
    "unroll": transform.UnrollLoop,
    "promote": transform.PromoteAccumulators,
    "divisions": transform.LowerIntDiv,
}
#: Passes that are in no order: users call them. On a part of the programs, for time.
CALLED: dict[str, Callable[[], Pass]] = {
    "hoist expressions": transform.HoistExpression,
    "hoist branches": lambda: transform.HoistIfThenElse("basic"),
    "select": transform.RewriteUnsafeSelect,
    "bounds": transform.InstrumentBoundCheckers,
    "ssa": transform.ConvertSSA,
    "irregular": transform.AnnotateIrregularLoop,
    "undef": transform.RemoveStoreUndef,
}
ALL = Sequential([make() for make in PASSES.values()], name="All")
OPTIONS = {"tir.cse": True, "tir.hoist_invariants": True, "tir.narrow_dtype": True}


def random_schedule(case: str) -> Session:
    """A random program after some random primitives."""
    rng = random.Random(case)
    session = Session(generate(case), seed=rng.getrandbits(32))
    chooser = Chooser()
    for number in range(14):
        step = chooser.step(session, rng, number)
        if step is not None:
            session.apply(step, render=False)
    return session


def check_passes(session: Session) -> None:
    """Lower, run each pass, compare on all sets of extents."""
    flat = [*transform.block_passes(), transform.FlattenBuffer()]
    simple = [transform.Simplify()] if session.data_seed % 2 else []
    mod = Sequential([*flat, *simple])(session.sch.mod)
    made = {name: make()(mod) for name, make in (*PASSES.items(), ("all", lambda: ALL))}
    for item in made.values():
        verify(item)
    for sizes in session.sizes:
        expected = session.program.arrays(session.data_seed, sizes)
        run(mod, *expected)
        for name, item in made.items():
            actual = session.program.arrays(session.data_seed, sizes)
            run(item, *actual)
            for a, b in zip(expected, actual):
                np.testing.assert_array_equal(a, b, err_msg=f"{name} {sizes}")


@few("number", range(40), every=4)
def test_passes_after_random_schedules(number: int) -> None:
    check_passes(random_schedule(f"passes-{number}"))


def test_compiled_with_all_options() -> None:
    compiled = 0
    for number in range(12):
        session = random_schedule(f"compiled-{number}")
        with PassContext(config=OPTIONS):
            compiled += not session.check_compiled()
    assert compiled > 6


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
        return PrimFunc((*handles, *numbers), body, buffer_map=parameters)

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


@few("seed", range(80), every=8)
def test_passes_over_random_statements(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is drawn races as it likes: nothing here runs at the same time.
    monkeypatch.setattr(sys.modules["tilewright.tir.analysis.verify"], "find_race", lambda _: None)
    mod = IRModule({"main": Statements(seed).func()})
    verify(mod)
    sizes = [(0, 0), (3, 2), (-1, 5), (8, -4), (2, 0)]
    expected = [outcome(mod, *size) for size in sizes]
    called = CALLED if seed % 8 == 4 else {}
    for name, make in (*PASSES.items(), *USUAL.items(), *called.items(), ("all", lambda: ALL)):
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
