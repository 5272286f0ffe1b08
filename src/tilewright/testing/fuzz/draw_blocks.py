"""How arguments are drawn for primitives that change blocks."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Call, as_int
from tilewright.testing.fuzz.draw import Draw, Drawer
from tilewright.testing.fuzz.intrinsics import LONGEST, copy_intrinsic
from tilewright.testing.fuzz.steps import BlockRef, LoopRef, Step
from tilewright.tir import BlockRealize, BufferLoad, BufferStore
from tilewright.tir.attrs import CUT_MASKS


def draw_inline(forward: bool) -> Drawer:
    """Inline a block into those that read it, or into the one that makes what it reads."""
    primitive = "compute_inline" if forward else "reverse_compute_inline"

    def draw(d: Draw) -> Step | None:
        names = []
        for name, item in d.blocks.items():
            d.realize = item
            if _is_map(item) and d.neighbours(forward):
                names.append(name)
        if not names and d.chance(0.9):
            return None
        return Step(primitive, (d.block(names),))

    return draw


def draw_epilogue(d: Draw) -> Step | None:
    """Take a reduction and one of those that read its result."""
    pairs = []
    for name, item in d.blocks.items():
        if item.block.init is not None:
            d.realize = item
            pairs += [(name, other) for other in d.neighbours(True)]
    likely = [pair for pair in pairs if _is_map(d.blocks[pair[1]])]
    if not pairs or not (likely or d.chance(0.1)):
        return None
    first, second = d.rng.choice(likely or pairs)
    if d.chance(0.05):
        first, second = second, first
    return Step("fuse_reduction_epilogue", (BlockRef(first), BlockRef(second)))


def draw_reorder_axes(d: Draw) -> Step | None:
    """Give the axes of a block another order."""
    block = d.block()
    order = list(range(len(d.realize.block.iter_vars) if d.realize else 0))
    d.rng.shuffle(order)
    return Step("reorder_block_iter_var", (block, order if d.chance(0.95) else [*order, 0]))


def draw_pad_einsum(d: Draw) -> Step | None:
    """Pad the axes of a block to multiples."""
    block = d.block()
    count = len(d.realize.block.iter_vars) if d.realize else 0
    return Step("pad_einsum", (block, [d.rng.choice([1, 1, 2, 4]) for _ in range(count)]))


def draw_block_layout(d: Draw) -> Step | None:
    """Iterate over a block in another order."""
    block = d.block()
    if d.realize is None:
        return None
    return Step("transform_block_layout", (block, d.index_map(len(d.realize.block.iter_vars))))


def draw_rfactor(d: Draw) -> Step | None:
    """Factor a reduction along a loop."""
    reducing = [
        item for item in d.blocks.values() if any(v.kind == "reduce" for v in item.block.iter_vars)
    ]
    loop = d.loop(d.rng.choice(reducing) if reducing and d.chance(0.9) else None)
    if loop is None:
        return None
    return Step("rfactor", (loop, d.rng.choice([0, 0, 0, 1, -1, 2])))


ANNOTATIONS = [1, 0, -3, 2.5, "text", True, [1, 2], {"a": [1.5, "x"]}, None]


def draw_annotate(d: Draw) -> Step | None:
    """Attach something that no pass gives a meaning to, or let the masks in a loop cut it."""
    of_loop = d.flag()
    target = d.loop() if of_loop else d.block()
    if target is None:
        return None
    if of_loop and d.chance(0.5):
        return Step("annotate", (target, CUT_MASKS, 1))
    value = d.rng.choice(ANNOTATIONS)
    if d.chance(0.2):
        value = Step("sample_categorical", ([1, 2, 4], [0.5, 0.25, 0.25]))
    return Step("annotate", (target, d.rng.choice(["fuzz_a", "fuzz_b"]), value))


def draw_unannotate(d: Draw) -> Step | None:
    """Remove an annotation that is there, most of the time."""
    found: list[tuple[Any, str]] = []
    for name, item in d.blocks.items():
        found += [(BlockRef(name), key) for key in item.block.annotations]
        for place, outer in enumerate(d.loops_of(item)):
            found += [(LoopRef(name, place), key) for key in outer.annotations]
    if found:
        return Step("unannotate", d.rng.choice(found))
    return Step("unannotate", (d.block(), "fuzz_a")) if d.chance(0.1) else None


def draw_blockize(d: Draw) -> Step | None:
    """Make a block of a nest, or of blocks that follow each other."""
    target = d.loop()
    if d.chance(0.25):
        names = list(d.blocks)
        start = d.rng.randrange(len(names))
        target = [BlockRef(name) for name in names[start : start + d.rng.choice([1, 2, 2, 3])]]
    if target is None:
        return None
    options = {"preserve_unit_iters": d.flag()} if d.chance(0.3) else {}
    return Step("blockize", (target,), options)


def draw_padding(name: str) -> Drawer:
    """Take a block that pads, most of the time, and one of its loops."""

    def draw(d: Draw) -> Step | None:
        names = [key for key, item in d.blocks.items() if _pads(item)]
        if not names and d.chance(0.95):
            return None
        block = d.block(names)
        loop = d.loop(d.realize)
        return None if loop is None else Step(name, (block, loop))

    return draw


def _pads(realize: BlockRealize) -> bool:
    body = realize.block.body
    value = body.value if type(body) is BufferStore else None
    return isinstance(value, Call) and value.op.name == "if_then_else"


def draw_tensorize(d: Draw) -> Step | None:
    """Put an intrinsic that copies a row in the place of a loop that does so, or of another."""
    fitting = []
    for name, item in d.blocks.items():
        body, loops = item.block.body, d.loops_of(item)
        if type(body) is BufferStore and type(body.value) is BufferLoad and loops:
            extent = as_int(loops[-1].extent)
            if extent is not None and extent <= LONGEST:
                buffer = body.buffer
                fitting.append((LoopRef(name, len(loops) - 1), buffer.dtype, extent))
    if not fitting:
        return None
    loop, dtype, extent = d.rng.choice(fitting)
    if d.chance(0.05):
        extent = d.rng.randint(1, LONGEST)
    return Step("tensorize", (loop, copy_intrinsic(dtype, extent)))


def _is_map(realize: BlockRealize) -> bool:
    """Whether a block stores one value per iteration and reduces nothing."""
    block = realize.block
    spatial = all(axis.kind == "spatial" for axis in block.iter_vars)
    return spatial and type(block.body) is BufferStore
