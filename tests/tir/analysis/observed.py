"""What the interpreter does to memory: the truth that analyses are compared with."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright import te
from tilewright.arith import simplify
from tilewright.ir import as_int, const, substitute
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import Buffer, PrimFunc
from tilewright.tir.interpreter import run, values
from tilewright.tir.schedule import Schedule


class Touched:
    """Places (flat) of one buffer that were read and written, once for each access."""

    def __init__(self) -> None:
        self.reads: list[int] = []
        self.writes: list[int] = []


class _Memory:
    def __init__(self, view: Any, touched: Touched) -> None:
        self.view = view
        self.touched = touched

    def __getitem__(self, place: int) -> Any:
        self.touched.reads.append(place)
        return self.view[place]

    def __setitem__(self, place: int, value: Any) -> None:
        self.touched.writes.append(place)
        self.view[place] = value


def value_of(func: PrimFunc, expr: Any, sizes: dict[str, int]) -> int:
    """The number that an expression of symbolic sizes is."""
    known = {var: const(sizes[var.name]) for var in func.symbolic_vars()}
    value = as_int(simplify(substitute(expr, known)))
    assert value is not None, expr
    return value


def shape_of(func: PrimFunc, buffer: Buffer, sizes: dict[str, int]) -> list[int]:
    """The shape of a buffer as numbers."""
    return [value_of(func, extent, sizes) for extent in buffer.shape]


def observe(func: PrimFunc, monkeypatch: Any, **sizes: int) -> dict[str, Touched]:
    """Run a function on zeros; returns what it touched of its parameters and root buffers."""
    arrays = []
    for buffer in func.buffers:
        arrays.append(np.zeros(shape_of(func, buffer, sizes), buffer.dtype))
    names = [buffer.name for buffer in (*func.buffers, *func.root.alloc_buffers)]
    touched: dict[str, Touched] = defaultdict(Touched)
    real, made = values.view, []

    def view(array: Any, dtype: str) -> Any:
        name = names[len(made)]
        made.append(name)
        return _Memory(real(array, dtype), touched[name])

    with monkeypatch.context() as patch:
        patch.setattr(values, "view", view)
        run(func, *arrays)
    return touched


@st.composite
def indices(draw: Any, names: list[str], *, tricky: bool) -> str:
    """An index: a sum of loop variables with coefficients, or a part of one."""
    terms = []
    for name in names:
        factor = draw(st.sampled_from([0, 0, 1, 1, 1, 2, 3]))
        text = name
        if tricky and draw(st.integers(0, 4)) == 0:
            text = draw(st.sampled_from([f"({name} // 2)", f"({name} % 2)"]))
        if factor:
            terms.append(text if factor == 1 else f"{text} * {factor}")
    shift = draw(st.sampled_from([0, 0, 0, 1, 2]))
    if shift or not terms:
        terms.append(str(shift))
    return " + ".join(terms)


@st.composite
def programs(
    draw: Any, *, conditions: bool = True, tricky: bool = True, symbolic: bool = False
) -> PrimFunc:
    """A function that writes ``B`` from ``A``: one or two nests of blocks with affine accesses."""
    lines = ["@T.prim_func"]
    if symbolic:
        lines += [
            "def main(c: T.handle, a: T.handle, b: T.handle):",
            "    n = T.int64()",
            '    C = T.match_buffer(c, (n,), "float32")',
            '    A = T.match_buffer(a, (n * 9 + 9, n * 9 + 9), "float32")',
            '    B = T.match_buffer(b, (n * 9 + 9, n * 9 + 9), "float32")',
        ]
    else:
        size = draw(st.sampled_from([6, 12, 24, 40]))
        shape = f'T.Buffer(({size}, {size}), "float32")'
        lines.append(f"def main(A: {shape}, B: {shape}):")
    for nest in range(draw(st.integers(1, 2))):
        depth = draw(st.integers(1, 3))
        names = [f"v{nest}_{n}" for n in range(depth)]
        loops = [f"i{nest}_{n}" for n in range(depth)]
        extents = [str(draw(st.integers(1, 5))) for _ in range(depth)]
        if symbolic:
            extents[0] = draw(st.sampled_from(["n", "n", "n + 1", "n * 2"]))
        header = f"for {', '.join(loops)} in T.grid({', '.join(extents)}):"
        if depth == 1:
            header = f"for {loops[0]} in range({extents[0]}):"
        lines += [f"    {header}", f'        with T.block("block{nest}"):']
        for name, extent, loop in zip(names, extents, loops):
            lines.append(f"            {name} = T.axis.opaque({extent}, {loop})")
        if conditions and draw(st.booleans()):
            index = draw(indices(loops, tricky=False))
            lines.append(f"            T.where({index} < {draw(st.integers(1, 9))})")

        def place(names: list[str] = names) -> str:
            return ", ".join(draw(indices(names, tricky=tricky)) for _ in range(2))

        value = f"A[{place()}]"
        if draw(st.booleans()):
            value += f" + A[{place()}]"
        if conditions and draw(st.booleans()):
            limit = draw(st.integers(0, 5))
            other = draw(st.sampled_from(["T.float32(0)", f"A[{place()}]"]))
            value = f"T.if_then_else({names[0]} < {limit}, {value}, {other})"
        pad = "            "
        if conditions and draw(st.booleans()):
            index, limit = draw(indices(names, tricky=tricky)), draw(st.integers(0, 3))
            lines.append(f"{pad}if {index} >= {limit}:")
            pad += "    "
        lines.append(f"{pad}B[{place()}] = {value}")
    return parse("\n".join(lines) + "\n")


def stages(n: Any = 6) -> PrimFunc:
    """Five stages: elementwise, reductions, a window, and one that uses them all."""
    a = te.placeholder((n, 8), name="A")
    b = te.compute((n, 8), lambda i, j: a[i, j] * 2.0, name="B")
    k, k2 = te.reduce_axis((0, 8), "k"), te.reduce_axis((0, 3), "k2")
    c = te.compute((n,), lambda i: te.sum(b[i, k], axis=k), name="C")
    d = te.compute((n, 6), lambda i, j: te.max(b[i, j + k2], axis=k2), name="D")
    e = te.compute((n, 6), lambda i, j: d[i, j] - c[i], name="E")
    return te.create_prim_func([a, e])


def random_step(sch: Schedule, block: str, rng: random.Random) -> None:
    """Apply some primitive to a block, if it may be applied."""
    loops = sch.get_loops(block)
    steps = [
        lambda: sch.split(rng.choice(loops), [None, rng.choice([2, 3])]),
        lambda: sch.reorder(*rng.sample(loops, 2)),
        lambda: sch.compute_at(block, rng.choice(sch.get_loops(sch.get_consumers(block)[0]))),
        lambda: sch.reverse_compute_at(
            block, rng.choice(sch.get_loops(sch.get_producers(block)[0]))
        ),
        lambda: sch.decompose_reduction(block, rng.choice(loops)),
        lambda: sch.cache_read(block, 0, "local"),
        lambda: sch.rfactor(loops[-1], 0),
    ]
    rng.choice(steps)()


def scheduled_at_random(func: PrimFunc, seed: int, steps: int = 12) -> PrimFunc:
    """Apply random primitives to a function."""
    sch, rng = Schedule(func, seed=seed), random.Random(seed)
    for _ in range(steps):
        block = rng.choice([name for name in sch.state.index("main").blocks if name != "root"])
        try:
            random_step(sch, block, rng)
        except (ScheduleError, IndexError, ValueError):
            continue
    scheduled: PrimFunc = sch.mod["main"]
    return scheduled
