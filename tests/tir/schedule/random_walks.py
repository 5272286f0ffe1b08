"""Small programs and random steps on them, for tests of what schedules leave behind."""

from __future__ import annotations

import random
from collections.abc import Callable

from schedule_cases import chain, conv2d, matmul_relu, symbolic_sum

from tilewright import te
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule


def softmax() -> PrimFunc:
    a = te.placeholder((5, 7), name="A")
    k, k2 = te.reduce_axis((0, 7), "k"), te.reduce_axis((0, 7), "k2")
    top = te.compute((5,), lambda i: te.max(a[i, k], axis=k), name="top")
    low = te.compute((5, 7), lambda i, j: a[i, j] - top[i], name="low")
    total = te.compute((5,), lambda i: te.sum(low[i, k2], axis=k2), name="total")
    out = te.compute((5, 7), lambda i, j: low[i, j] * 2.0 - total[i], name="out")
    return te.create_prim_func([a, out])


def reshapes() -> PrimFunc:
    a = te.placeholder((6, 8), name="A")
    b = te.compute((6, 8), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((8, 6), lambda i, j: b[j, i] + 1.0, name="C")
    d = te.compute((48,), lambda i: c[i // 6, i % 6] - 3.0, name="D")
    e = te.compute((45,), lambda i: d[i + 2] * 2.0, name="E")
    return te.create_prim_func([a, e])


def pooling() -> PrimFunc:
    a = te.placeholder((9, 9), name="A")
    b = te.compute((9, 9), lambda i, j: a[i, j] + 1.0, name="B")
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 2), "s")
    c = te.compute((4, 8), lambda i, j: te.max(b[i * 2 + r, j + s], axis=[r, s]), name="C")
    d = te.compute((4, 8), lambda i, j: c[i, j] * c[i, j], name="D")
    return te.create_prim_func([a, d])


PROGRAMS: dict[str, Callable[[], PrimFunc]] = {
    "chain": lambda: chain(8, 6),
    "convolution": lambda: conv2d(size=4, channels=2, filters=2),
    "matmul": lambda: matmul_relu(6, 5, 7),
    "pooling": pooling,
    "reshapes": reshapes,
    "softmax": softmax,
    "symbolic": symbolic_sum,
}
LAYOUTS = {
    1: ["lambda i: (i // 2, i % 2)"],
    2: ["lambda i, j: (j, i)", "lambda i, j: (i // 2, j, i % 2)"],
    3: ["lambda i, j, k: (k, i, j)", "lambda i, j, k: (i, j // 2, k, j % 2)"],
}


class Walk:
    """Takes random steps on a schedule."""

    def __init__(self, sch: Schedule, seed: int) -> None:
        self.sch = sch
        self.rng = random.Random(seed)

    def some_block(self) -> BlockRV:
        names = [name for name in self.sch.state.index("main").blocks if name != "root"]
        return self.sch.get_block(self.rng.choice(names))

    def some_loop(self, blocks: list[BlockRV]) -> LoopRV:
        loops = [loop for block in blocks for loop in self.sch.get_loops(block)]
        if not loops:
            raise ScheduleError("no loop to choose")
        return self.rng.choice(loops)

    def step(self) -> None:
        sch, rng, block = self.sch, self.rng, self.some_block()
        loops = sch.get_loops(block)
        which = rng.choice([("read", 0), ("write", 0)])
        at = rng.choice([-1, -1, -2])
        steps: list[Callable[[], object]] = [
            lambda: sch.split(self.some_loop([block]), [None, rng.choice([2, 3, 4])]),
            lambda: sch.reorder(*rng.sample(loops, rng.randint(min(2, len(loops)), len(loops)))),
            lambda: sch.fuse(*loops[-2:]),
            lambda: sch.compute_at(block, self.some_loop(sch.get_consumers(block)), False, at),
            lambda: sch.compute_at(block, self.some_loop(sch.get_consumers(block)), True, at),
            lambda: sch.reverse_compute_at(block, self.some_loop(sch.get_producers(block))),
            lambda: sch.reverse_compute_at(block, self.some_loop(sch.get_producers(block)), True),
            lambda: sch.compute_inline(block),
            lambda: sch.reverse_compute_inline(block),
            lambda: sch.cache_read(block, 0, "local"),
            lambda: sch.cache_write(block, 0, "local"),
            lambda: sch.decompose_reduction(block, self.some_loop([block])),
            lambda: sch.rfactor(self.some_loop([block]), rng.choice([0, -1])),
            lambda: sch.reindex(block, which),
            lambda: sch.reindex(block, ("read", 0, rng.choice([0, 1, 2]))),
            lambda: self.layout(block, which),
            lambda: self.block_layout(block),
        ]
        rng.choice(steps)()

    def layout(self, block: BlockRV, which: tuple[str, int]) -> None:
        node = self.sch.get(block)
        regions = node.reads if which[0] == "read" else node.writes
        if regions and regions[0].buffer.ndim in LAYOUTS:
            mapping = self.rng.choice(LAYOUTS[regions[0].buffer.ndim])
            self.sch.transform_layout(block, which, mapping, pad_value=self.rng.choice([None, 0.0]))

    def block_layout(self, block: BlockRV) -> None:
        ndim = len(self.sch.get(block).iter_vars)
        if ndim in LAYOUTS:
            self.sch.transform_block_layout(block, LAYOUTS[ndim][0])
