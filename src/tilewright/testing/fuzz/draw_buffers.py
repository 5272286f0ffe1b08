"""How arguments are drawn for primitives that change buffers and what accesses them."""

from __future__ import annotations

from tilewright.ir import Range, as_int, free_vars
from tilewright.testing.fuzz.draw import Draw, Drawer
from tilewright.testing.fuzz.steps import BlockRef, LoopRef, Step
from tilewright.tir import Block


def draw_cache(name: str) -> Drawer:
    """Cache a buffer that a block reads or writes, for some of the consumers or all."""

    def draw(d: Draw) -> Step | None:
        block = d.block()
        position = d.read_position() if name == "cache_read" else d.write_position()
        step = Step(name, (block, position, d.scope()))
        if d.chance(0.2):
            near = d.neighbours(True) or list(d.blocks)
            chosen = [BlockRef(item) for item in near if d.flag()]
            step.kwargs["consumer_blocks"] = chosen
        return step

    return draw


def draw_layout(d: Draw) -> Step | None:
    """Give a buffer another layout."""
    block, buffer = d.block(), d.buffer()
    if d.realize is None:
        return None
    step = Step("transform_layout", (block, buffer, d.index_map(d.buffer_ndim(buffer))))
    if d.chance(0.4):
        step.kwargs["pad_value"] = d.rng.choice([0, 0, 1])
    return step


def draw_reindex_cache(name: str) -> Drawer:
    """Cache a buffer in a layout made of the block's axes."""

    def draw(d: Draw) -> Step | None:
        block = d.block()
        position = d.read_position() if name == "reindex_cache_read" else d.write_position()
        if d.realize is None:
            return None
        axes = [item.var.name for item in d.realize.block.iter_vars]
        regions = d.realize.block.reads if name == "reindex_cache_read" else d.realize.block.writes
        used = axes
        if 0 <= position < len(regions) and d.chance(0.9):
            region = regions[position].region
            found = {var.name for item in region for var in free_vars(item.min)}
            used = [axis for axis in axes if axis in found]
        results = [f"x{axes.index(axis)}" for axis in used]
        if d.chance(0.5):
            d.rng.shuffle(results)
        if results and d.chance(0.2):
            at, factor = d.rng.randrange(len(results)), d.rng.choice([2, 4])
            results[at : at + 1] = [f"{results[at]} // {factor}", f"{results[at]} % {factor}"]
        names = ", ".join(f"x{number}" for number in range(len(axes)))
        text = f"lambda {names}: ({''.join(item + ', ' for item in results)})"
        return Step(name, (block, position, d.scope(), text))

    return draw


def draw_cache_inplace(d: Draw) -> Step | None:
    """Cache a buffer that a block updates."""
    names = [
        name
        for name, item in d.blocks.items()
        if {r.buffer for r in item.block.reads} & {r.buffer for r in item.block.writes}
    ]
    if not names and d.chance(0.9):
        return None
    return Step("cache_inplace", (d.block(names), d.read_position(), d.scope()))


def draw_axis_separator(d: Draw) -> Step | None:
    """Group the dimensions of a buffer."""
    block, buffer = d.block(), d.buffer()
    if d.realize is None:
        return None
    between = range(1, max(2, d.buffer_ndim(buffer)))
    chosen = [n for n in between if d.flag()]
    return Step("set_axis_separator", (block, buffer, chosen if d.chance(0.97) else [0, 0]))


def draw_storage_align(d: Draw) -> Step | None:
    """Ask for padding between rows."""
    axis, factor = d.rng.choice([0, 0, -1, -2, 1]), d.rng.choice([4, 8, 32, 0])
    return Step(
        "storage_align", (d.block(), d.write_position(), axis, factor, d.rng.choice([0, 1, 3]))
    )


WIDER = {"float32": ["float64"], "int8": ["int32", "int64"], "uint8": ["int32"], "int32": ["int64"]}


def draw_set_dtype(d: Draw) -> Step | None:
    """Store a buffer with a wider element type: the one promise that the user makes."""
    block, position = d.block(), d.write_position()
    if d.realize is None or not 0 <= position < len(d.realize.block.writes):
        return None
    dtype = d.realize.block.writes[position].buffer.dtype
    return Step("unsafe_set_dtype", (block, position, d.rng.choice(WIDER.get(dtype, [dtype]))))


def draw_hide_access(d: Draw) -> Step | None:
    """Hide what is read of a parameter that nobody writes: no dependence goes through it.

    Not in a block inside of another, which may be copied from where it is said to be read.
    """
    func = d.sch.state.func(d.sch.working_func)
    written = {r.buffer.data for item in d.blocks.values() for r in item.block.writes}
    block = d.block()
    if d.realize is None:
        return None
    around = [item for item in d.sch.state.parents(d.realize) if isinstance(item, Block)]
    if len(around) > 1:
        return None
    hidden = [
        number
        for number, region in enumerate(d.realize.block.reads)
        if region.buffer in func.buffers and region.buffer.data not in written and d.flag()
    ]
    return Step("unsafe_hide_buffer_access", (block, "read", hidden)) if hidden else None


def draw_annotate_access(d: Draw) -> Step | None:
    """Say that a block reads all of a buffer, or writes what it writes; or something wrong."""
    block, kind = d.block(), d.rng.choice(["read", "write"])
    if d.realize is None:
        return None
    regions = d.realize.block.reads if kind == "read" else d.realize.block.writes
    position = d.read_position() if kind == "read" else d.write_position()
    if not 0 <= position < len(regions):
        return Step("annotate_buffer_access", (block, position, kind, "lambda *x: (0, 1)"))
    axes = [item.var for item in d.realize.block.iter_vars]
    parts = []
    for extent, item in zip(regions[position].buffer.shape, regions[position].region):
        size = as_int(extent)
        if kind == "read" and size is not None:
            parts.append(f"0, {size}")
        elif item.min in axes and as_int(item.extent) == 1:
            at = next(n for n, axis in enumerate(axes) if axis is item.min)
            parts.append(f"x{at}, x{at} + {1 if d.chance(0.9) else 2}")
        else:
            return None
    names = ", ".join(f"x{number}" for number in range(len(axes)))
    text = f"lambda {names}: ({', '.join(parts)}{',' if parts else ''})"
    return Step("annotate_buffer_access", (block, position, kind, text))


def draw_at(name: str) -> Drawer:
    """Copy what a loop's body reads or writes of a buffer in one go."""

    def draw(d: Draw) -> Step | None:
        block = d.block()
        position = d.read_position() if name == "read_at" else d.write_position()
        loop = d.loop(d.realize)
        return None if loop is None else Step(name, (loop, block, position, d.scope()))

    return draw


def draw_set_scope(d: Draw) -> Step | None:
    """Move a buffer into another memory."""
    return Step("set_scope", (d.block(), d.write_position(), d.scope()))


def draw_rolling_buffer(d: Draw) -> Step | None:
    """Take a block that shares a loop with one that reads its result by windows.

    Where there is none yet, prepare for one.
    """
    ready, apart = [], []
    for name, item in d.blocks.items():
        d.realize = item
        mine = set(d.loops_of(item))
        buffers = {region.buffer for region in item.block.writes}
        for other in d.neighbours(True):
            reader = d.blocks[other]
            regions = [r for r in reader.block.reads if r.buffer in buffers]
            if not any(_slides(part) for region in regions for part in region.region):
                continue
            loops = d.loops_of(reader)
            if mine & set(loops):
                ready.append(name)
            elif loops:
                place = d.rng.randrange(len(loops))
                apart.append(Step("compute_at", (BlockRef(name), LoopRef(other, place))))
    if not ready:
        return d.rng.choice(apart) if apart else None
    return Step("rolling_buffer", (d.block(ready), d.write_position()))


def _slides(part: Range) -> bool:
    """Whether a range moves on by less than its extent: it is a window, or starts at a sum."""
    return as_int(part.extent) != 1 or len(free_vars(part.min)) > 1
