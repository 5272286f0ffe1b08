"""How arguments are drawn for primitives that change loops."""

from __future__ import annotations

from typing import Any

from tilewright.ir import expr_equal
from tilewright.testing.fuzz.draw import Draw, Drawer, factors
from tilewright.testing.fuzz.steps import LoopRef, Step


def draw_split(d: Draw) -> Step | None:
    """Split a loop."""
    loop = d.loop()
    if loop is None:
        return None
    options: dict[str, Any] = {}
    if d.chance(0.3):
        options["preserve_unit_iters"] = d.flag()
    if d.chance(0.3):
        options["tail"] = d.rng.choice(["predicate", "peel", "peel", "pad", "overlap", "overlap"])
    elif d.chance(0.03):
        options["disable_predication"] = True
    return Step("split", (loop, factors(d, loop)), options)


def draw_loop_partition(d: Draw) -> Step | None:
    """Cut a loop into parts."""
    loop = d.loop()
    if loop is None:
        return None
    parts: list[Any] = [d.rng.choice([1, 1, 2, 3]) for _ in range(d.rng.choice([1, 1, 2]))]
    if d.chance(0.7):
        parts.insert(d.rng.randint(0, len(parts)), None)
    if d.chance(0.03):
        parts = d.rng.choice([[], [0, None], [None, None], [99]])
    options = {"preserve_unit_iters": d.flag()} if d.chance(0.3) else {}
    return Step("loop_partition", (loop, parts), options)


def draw_merge(d: Draw) -> Step | None:
    """Make one nest of neighbouring nests: of loops at one depth around blocks in a row."""
    names = [name for name, item in d.blocks.items() if d.loops_of(item)]
    if len(names) < 2:
        return None
    at = d.rng.randrange(len(names) - 1)
    chosen = names[at : at + d.rng.choice([2, 2, 2, 3])]
    nests = [d.loops_of(d.blocks[name]) for name in chosen]
    # As deep as extents agree and the nests are different ones.
    depths = []
    for depth, loops in enumerate(zip(*nests)):
        if not all(expr_equal(loops[0].extent, item.extent) for item in loops):
            break
        if len(set(loops)) == len(loops):
            depths.append(depth)
    if not depths:
        if d.chance(0.9):
            return None
        depths = [0]
    depth = d.rng.choice(depths)
    return Step("merge", tuple(LoopRef(name, depth) for name in chosen))


def draw_fuse(d: Draw) -> Step | None:
    """Fuse neighbours of a nest, now and then loops that don't fit."""
    loops = d.nest()
    if not loops:
        return None
    start = d.rng.randrange(len(loops))
    chosen = loops[start : start + d.rng.choice([1, 2, 2, 2, 3])]
    if d.chance(0.05):
        d.rng.shuffle(loops)
        chosen = loops[:2]
    options = {"preserve_unit_iters": d.flag()} if d.chance(0.3) else {}
    return Step("fuse", tuple(chosen), options)


def draw_reorder(d: Draw) -> Step | None:
    """Give some loops of a nest another order."""
    loops = d.nest()
    if len(loops) < 2 and d.chance(0.9):
        return None
    chosen = d.rng.sample(loops, d.rng.randint(min(2, len(loops)), len(loops)))
    if d.chance(0.02):
        other = d.loop()
        if other is not None:
            chosen.append(other)
    return Step("reorder", tuple(chosen))


def draw_add_unit_loop(d: Draw) -> Step | None:
    """Add a loop around a loop or a block."""
    target = d.loop() if d.flag() else d.block()
    return None if target is None else Step("add_unit_loop", (target,))


def draw_bind(d: Draw) -> Step | None:
    """Bind a loop to a thread axis."""
    loop = d.loop()
    tags = ["blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y", "vthread.x", "vthread"]
    tag = d.rng.choice(tags) if d.chance(0.97) else "threadIdx.w"
    return None if loop is None else Step("bind", (loop, tag))


def draw_move(name: str, consumers: bool) -> Drawer:
    """Move a block to a loop of one that it feeds, or that feeds it."""

    def draw(d: Draw) -> Step | None:
        block = d.block()
        near = d.neighbours(consumers)
        realize = d.realize
        if d.chance(0.05) and name == "compute_at":
            return Step(name, (block, Step("sample_compute_location", (block,))))
        target = None
        if near and d.chance(0.95):
            target = d.loop(d.blocks[d.rng.choice(near)])
        elif d.chance(0.3):
            target = d.loop()
        d.realize = realize
        if target is None:
            return None
        options: dict[str, Any] = {}
        if d.chance(0.3):
            options["preserve_unit_loops"] = d.flag()
        if d.chance(0.3):
            options["index"] = d.rng.choice([-1, -1, -2, -2, 0, 1, 7])
        return Step(name, (block, target), options)

    return draw


def draw_loop_of_block(name: str) -> Drawer:
    """Take a block and one of its own loops."""

    def draw(d: Draw) -> Step | None:
        block = d.block()
        loop = d.loop(d.realize) if d.chance(0.95) else d.loop()
        return None if loop is None else Step(name, (block, loop))

    return draw
