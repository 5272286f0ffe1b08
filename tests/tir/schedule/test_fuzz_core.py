"""Random programs under random primitives.

The interpreter must not see a difference, and traces must replay from JSON and from Python text.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from schedule_cases import arrays, chain, conv2d, matmul, matmul_relu

from tilewright import te
from tilewright.ir import rewrite_bottom_up, structural_equal, substitute
from tilewright.support.errors import ScheduleError
from tilewright.tir import For, PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import LoopRV, Rng, Schedule, Trace
from tilewright.tir.schedule.primitives.loops import rewrite_outside_blocks
from tilewright.tir.schedule.state import child_blocks


def softmax(n: int = 6, m: int = 10) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    k, r = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "r")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    shifted = te.compute((n, m), lambda i, j: a[i, j] - top[i], name="shifted")
    total = te.compute((n,), lambda i: te.sum(shifted[i, r], axis=r), name="total")
    out = te.compute((n, m), lambda i, j: shifted[i, j] + total[i], name="out")
    return te.create_prim_func([a, out])


def reshaped(n: int = 6, m: int = 8) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n * m,), lambda i: a[i // m, i % m] + 1.0, name="B")
    c = te.compute((m, n), lambda i, j: b[j * m + i] * 2.0, name="C")
    return te.create_prim_func([a, c])


PROGRAMS = {
    "matmul": matmul,
    "matmul_relu": matmul_relu,
    "chain": chain,
    "conv2d": lambda: conv2d(5, 2, 3),
    "softmax": softmax,
    "reshaped": reshaped,
}


class Driver:
    """Applies random primitives; counts what was accepted."""

    def __init__(self, sch: Schedule, rng: Rng) -> None:
        self.sch, self.rng = sch, rng

    def choose(self, items: Any) -> Any:
        return items[self.rng.below(len(items))]

    def block(self) -> Any:
        root = self.sch.state.func("main").root
        names = [realize.block.name for realize in child_blocks(root)]
        inner = [
            realize.block.name
            for outer in child_blocks(root)
            for realize in child_blocks(outer.block)
        ]
        return self.sch.get_block(self.choose(names + inner))

    def loops(self) -> list[LoopRV]:
        return self.sch.get_loops(self.block())

    def step(self) -> None:
        sch, rng = self.sch, self.rng
        loops = self.loops()
        if not loops:
            return
        loop = self.choose(loops)
        action = rng.below(12)
        if action <= 2:
            factors: list[Any] = [1 + rng.below(5) for _ in range(1 + rng.below(2))]
            factors.insert(rng.below(len(factors) + 1), None)
            sch.split(loop, factors, preserve_unit_iters=bool(rng.below(2)))
        elif action == 3:
            sch.split(loop, sch.sample_perfect_tile(loop, 2 + rng.below(2), 4))
        elif action == 4:
            start = rng.below(len(loops))
            sch.fuse(*loops[start : start + 2], preserve_unit_iters=bool(rng.below(2)))
        elif action <= 6:
            picked = [item for item in loops if rng.below(2)]
            order = sorted(picked, key=lambda _: rng.next())
            sch.reorder(*order)
        elif action == 7:
            sch.parallel(loop)
        elif action == 8:
            sch.vectorize(loop)
        elif action == 9:
            self.choose([sch.unroll, sch.add_unit_loop])(loop)
        elif action == 10:
            sch.annotate(loop, "note", sch.sample_categorical([1, 2, 3], [0.2, 0.3, 0.5]))
        else:
            sch.blockize(loop, preserve_unit_iters=bool(rng.below(2)))


class Mover(Driver):
    """Also moves computations and data."""

    def step(self) -> None:
        sch, rng = self.sch, self.rng
        if rng.below(2):
            super().step()
            return
        block, loops, action = self.block(), self.loops(), rng.below(9)
        if action <= 1 and loops:
            move = sch.compute_at if action else sch.reverse_compute_at
            move(block, self.choose(loops))
        elif action == 2:
            sch.compute_inline(block)
        elif action == 3:
            sch.reverse_compute_inline(block)
        elif action == 4:
            sch.cache_write(block, 0, "global")
        elif action == 5 and sch.get(block).reads:
            sch.cache_read(block, rng.below(len(sch.get(block).reads)), "global")
        elif action == 6 and sch.get_loops(block):
            sch.decompose_reduction(block, self.choose(sch.get_loops(block)))
        elif action == 7 and loops:
            sch.rfactor(self.choose(loops), 0)
        elif action == 8:
            sch.compute_at(block, sch.sample_compute_location(block))


def backwards(func: PrimFunc) -> PrimFunc:
    """Run loops whose iterations may run at the same time from the end: nobody may notice."""

    def turn(node: Any) -> Any:
        if isinstance(node, For) and node.kind in ("parallel", "vectorized"):
            last = node.min * 2 + node.extent - 1
            body = rewrite_outside_blocks(
                node.body, lambda expr: substitute(expr, {node.loop_var: last - node.loop_var})
            )
            return node.replace(body=body)
        return node

    return func.replace(body=rewrite_bottom_up(func.body, turn))


@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 2**32), st.sampled_from([Driver, Mover]))
def test_random_primitives_preserve_meaning(name: str, seed: int, kind: type[Driver]) -> None:
    before = PROGRAMS[name]()
    sch = Schedule(before, seed=seed)
    driver = kind(sch, Rng(seed))
    for _ in range(10):
        mod, count = sch.mod, len(sch.trace)
        try:
            driver.step()
        except ScheduleError:
            pure = all(inst.primitive.pure for inst in sch.trace.insts[count:])
            assert pure
            assert sch.mod is mod
    verify(sch.mod)
    expected, actual = arrays(before, seed % 1000), arrays(before, seed % 1000)
    run(before, *expected)
    run(sch.mod["main"], *actual)
    for a, b in zip(expected, actual):
        np.testing.assert_allclose(b, a, rtol=1e-5)
    reverse = arrays(before, seed % 1000)
    run(backwards(sch.mod["main"]), *reverse)
    for a, b in zip(expected, reverse):
        np.testing.assert_allclose(b, a, rtol=1e-5)

    data = json.dumps(sch.trace.as_json())
    replayed = Schedule(PROGRAMS[name]())
    Trace.from_json(json.loads(data)).apply_to_schedule(replayed)
    assert structural_equal(replayed.mod, sch.mod)

    scope: dict[str, Any] = {}
    exec(sch.trace.as_python(), scope)
    typed = Schedule(PROGRAMS[name]())
    scope["apply_trace"](typed)
    assert structural_equal(typed.mod, sch.mod)
    assert json.dumps(typed.trace.as_json()) == data

    pruned = Schedule(PROGRAMS[name]())
    sch.trace.simplified().apply_to_schedule(pruned)
    assert structural_equal(pruned.mod, sch.mod)
