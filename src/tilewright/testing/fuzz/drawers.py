"""How to draw the arguments of each primitive.

``DRAWERS`` has a row per primitive: how often it is tried, and a function that looks at the
schedule and returns a step. Arguments are plausible most of the time; now and then they are wrong
on purpose, since a refusal is checked too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import Call, Range, as_int, expr_equal, free_vars
from tilewright.testing.fuzz.intrinsics import LONGEST, copy_intrinsic
from tilewright.testing.fuzz.steps import BlockRef, LoopRef, Made, Step
from tilewright.tir import BlockRealize, BufferLoad, BufferStore, For
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule

Drawer = Callable[["Draw"], "Step | None"]


class Draw:
    """What drawers use: the schedule, the generator, and handles that earlier steps returned."""

    def __init__(self, sch: Schedule, rng: random.Random, made: dict[int, Any]) -> None:
        self.sch = sch
        self.rng = rng
        self.made = made
        self.realize: BlockRealize | None = None
        """The block that was drawn last."""

    def chance(self, probability: float) -> bool:
        """Return true that often."""
        return self.rng.random() < probability

    @property
    def blocks(self) -> dict[str, BlockRealize]:
        """Blocks by name, without the root."""
        found = self.sch.state.index(self.sch.working_func).blocks
        return {name: item for name, item in found.items() if name != "root"}

    def block(self, names: Sequence[str] = ()) -> Any:
        """Draw a block."""
        blocks = self.blocks
        if self.chance(0.01):
            self.realize = self.sch.state.index(self.sch.working_func).blocks["root"]
            return BlockRef("root")
        if self.chance(0.08):
            handle = self._old_handle(BlockRV)
            if handle is not None:
                return handle
        name = self.rng.choice([item for item in names if item in blocks] or list(blocks))
        self.realize = blocks[name]
        return BlockRef(name)

    def _old_handle(self, kind: type) -> Any:
        """Return a handle that an earlier step gave, which may be gone by now."""
        found = [
            Made(number, place)
            for number, results in self.made.items()
            for place, item in enumerate(results)
            if type(item) is kind
        ]
        if not found:
            return None
        chosen = self.rng.choice(found[-6:])
        if kind is BlockRV:
            name = self.made[chosen.step][chosen.place].name
            self.realize = self.blocks.get(name, self.realize)
            if self.realize is None:
                return None
        return chosen

    def loops_of(self, realize: BlockRealize) -> list[For]:
        """Return the loops around a block."""
        return self.sch.state.loops_above(realize)

    def loop(self, realize: BlockRealize | None = None) -> Any:
        """Draw a loop around a block, any block if none is given."""
        if self.chance(0.08):
            handle = self._old_handle(LoopRV)
            if handle is not None:
                return handle
        if realize is None:
            candidates = [item for item in self.blocks.values() if self.loops_of(item)]
            if not candidates:
                return None
            realize = self.rng.choice(candidates)
        count = len(self.loops_of(realize))
        if not count:
            return None
        self.realize = realize
        return LoopRef(realize.block.name, self.rng.randrange(count))

    def nest(self) -> list[LoopRef]:
        """Return references to all loops around a block that has some."""
        candidates = [item for item in self.blocks.values() if self.loops_of(item)]
        if not candidates:
            return []
        realize = self.realize = self.rng.choice(candidates)
        return [LoopRef(realize.block.name, n) for n in range(len(self.loops_of(realize)))]

    def extent(self, loop: Any) -> int | None:
        """Return a loop's extent if it is a number."""
        if isinstance(loop, LoopRef):
            return as_int(self.loops_of(self.blocks[loop.block])[loop.place].extent)
        return None

    def flag(self) -> bool:
        """Draw true or false."""
        return self.chance(0.5)

    def position(self, count: int) -> int:
        """Draw a position in a list, now and then one that is not there."""
        if self.chance(0.03) or not count:
            return self.rng.choice([count, -1, 5])
        return self.rng.randrange(count)

    def read_position(self) -> int:
        """Draw which buffer that the last block reads."""
        return self.position(len(self.realize.block.reads) if self.realize else 0)

    def write_position(self) -> int:
        """Draw which buffer that the last block writes."""
        return self.position(len(self.realize.block.writes) if self.realize else 0)

    def buffer(self) -> Any:
        """Draw a buffer of the last block: ``("read", 0)`` or a name."""
        if self.realize is None:
            return ("write", 0)
        kind = self.rng.choice(["read", "write"])
        regions = self.realize.block.reads if kind == "read" else self.realize.block.writes
        if regions and self.chance(0.2):
            return self.rng.choice(regions).buffer.name
        return (kind, self.position(len(regions)))

    def buffer_ndim(self, buffer: Any) -> int:
        """Return the number of dimensions of what ``buffer`` draws."""
        assert self.realize is not None
        block = self.realize.block
        regions = [*block.reads, *block.writes]
        if isinstance(buffer, tuple):
            regions = list(block.reads if buffer[0] == "read" else block.writes)
            regions = regions[buffer[1] : buffer[1] + 1] if buffer[1] >= 0 else []
        else:
            regions = [item for item in regions if item.buffer.name == buffer]
        return regions[0].buffer.ndim if regions else 2

    def scope(self) -> str:
        """Draw a storage scope."""
        return self.rng.choice(["global", "global", "local", "shared"])

    def neighbours(self, consumers: bool) -> list[str]:
        """Return blocks that read (or write) what the last block writes (or reads)."""
        if self.realize is None:
            return []
        own = self.realize.block
        mine = {r.buffer for r in (own.writes if consumers else own.reads)}
        return [
            name
            for name, item in self.blocks.items()
            if item.block is not own
            and any(
                r.buffer in mine for r in (item.block.reads if consumers else item.block.writes)
            )
        ]

    def index_map(self, ndim: int) -> str:
        """Draw a map of indices: permuted, tiled, fused; rarely one that loses elements."""
        names = [f"x{n}" for n in range(ndim)]
        results = list(names)
        if ndim and self.chance(0.45):
            at = self.rng.randrange(ndim)
            factor = self.rng.choice([2, 2, 3, 4])
            results[at : at + 1] = [f"{names[at]} // {factor}", f"{names[at]} % {factor}"]
        elif ndim > 1 and self.chance(0.3):
            at = self.rng.randrange(ndim - 1)
            extent = self.rng.choice([4, 6, 8])
            results[at : at + 2] = [f"{names[at]} * {extent} + {names[at + 1]}"]
        if self.chance(0.5):
            self.rng.shuffle(results)
        if self.chance(0.04) and results:
            results[0] = self.rng.choice(["x0 // 2", "0", "x0 + x0", "7 - x0", "x0 + 1"])
        return f"lambda {', '.join(names)}: ({''.join(item + ', ' for item in results)})"


@dataclass(frozen=True)
class Row:
    """A primitive's drawer and how often it is tried."""

    weight: float
    draw: Drawer


def args(*kinds: Callable[[Draw], Any], **options: Callable[[Draw], Any]) -> Drawer:
    """Make a drawer of one function per argument; options are left out half of the time."""

    def draw_named(name: str) -> Drawer:
        def draw(d: Draw) -> Step | None:
            values = []
            for kind in kinds:
                value = kind(d)
                if value is None:
                    return None
                values.append(value)
            named = {key: kind(d) for key, kind in options.items() if d.chance(0.5)}
            return Step(name, tuple(values), named)

        return draw

    return _Named(draw_named)  # type: ignore[return-value]


class _Named:
    """A drawer that still has to be told its primitive's name."""

    def __init__(self, make: Callable[[str], Drawer]) -> None:
        self.make = make


# ---- kinds of arguments ---------------------------------------------------------------------


def block(d: Draw) -> Any:
    """A block."""
    return d.block()


def loop(d: Draw) -> Any:
    """A loop."""
    return d.loop()


def flag(d: Draw) -> bool:
    """True or false."""
    return d.flag()


def factors(d: Draw, loop: Any) -> Any:
    """Tile factors for a loop: with a None, exact, not dividing, sampled or wrong."""
    rng, extent = d.rng, d.extent(loop)
    count = rng.choice([1, 2, 2, 2, 3, 3])
    draw = rng.random()
    if extent is not None and draw < 0.2:
        return Step("sample_perfect_tile", (loop, count, rng.choice([0, 4, 16])))
    if extent is not None and draw < 0.25:
        return Step("sample_partitioned_tile", (loop, count, rng.randrange(count), 1))
    if extent is not None and draw < 0.32:
        return Step("sample_tile", (loop, count, rng.choice([0, 4, 16])))
    if d.chance(0.03):
        return rng.choice([[0, 4], [-1, None], [None, None], [], [100, 2], [1]])
    numbers: list[Any] = [rng.choice([1, 2, 2, 3, 4, 4, 5, 8]) for _ in range(count)]
    if d.chance(0.85) or extent is None:
        numbers[rng.randrange(count)] = None
    return numbers


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


def _move(name: str, consumers: bool) -> Drawer:
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
    """Hide what is read of a parameter that nobody writes: no dependence goes through it."""
    func = d.sch.state.func(d.sch.working_func)
    written = {r.buffer.data for item in d.blocks.values() for r in item.block.writes}
    block = d.block()
    if d.realize is None:
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


def draw_at(name: str) -> Drawer:
    """Copy what a loop's body reads or writes of a buffer in one go."""

    def draw(d: Draw) -> Step | None:
        block = d.block()
        position = d.read_position() if name == "read_at" else d.write_position()
        loop = d.loop(d.realize)
        return None if loop is None else Step(name, (loop, block, position, d.scope()))

    return draw


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


def draw_loop_of_block(name: str) -> Drawer:
    """Take a block and one of its own loops."""

    def draw(d: Draw) -> Step | None:
        block = d.block()
        loop = d.loop(d.realize) if d.chance(0.95) else d.loop()
        return None if loop is None else Step(name, (block, loop))

    return draw


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
    """Attach something that no pass gives a meaning to."""
    target = d.loop() if d.flag() else d.block()
    if target is None:
        return None
    value: Any = d.rng.choice(ANNOTATIONS)
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


def draw_set_scope(d: Draw) -> Step | None:
    """Move a buffer into another memory."""
    return Step("set_scope", (d.block(), d.write_position(), d.scope()))


def draw_blockize(d: Draw) -> Step | None:
    """Make a block of a nest, or of blocks that follow each other."""
    target: Any = d.loop()
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


def _is_map(realize: BlockRealize) -> bool:
    block = realize.block
    spatial = all(axis.kind == "spatial" for axis in block.iter_vars)
    return spatial and type(block.body) is BufferStore


def _pads(realize: BlockRealize) -> bool:
    body: Any = realize.block.body
    value = body.value if type(body) is BufferStore else None
    return isinstance(value, Call) and value.op.name == "if_then_else"


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


DRAWERS: dict[str, Row] = {
    "annotate_buffer_access": Row(0.5, draw_annotate_access),
    "cache_inplace": Row(0.4, draw_cache_inplace),
    "cache_index": Row(0.5, args(block, Draw.scope)),
    "can_decompose_padding": Row(0.1, draw_padding("can_decompose_padding")),
    "decompose_padding": Row(1, draw_padding("decompose_padding")),
    "fuse_reduction_epilogue": Row(1.2, draw_epilogue),
    "loop_partition": Row(0.7, draw_loop_partition),
    "merge": Row(0.7, draw_merge),
    "pad_einsum": Row(0.7, draw_pad_einsum),
    "read_at": Row(0.6, draw_at("read_at")),
    "reindex_cache_read": Row(0.6, draw_reindex_cache("reindex_cache_read")),
    "reindex_cache_write": Row(0.6, draw_reindex_cache("reindex_cache_write")),
    "reorder_block_iter_var": Row(0.4, draw_reorder_axes),
    "rolling_buffer": Row(1, draw_rolling_buffer),
    "sample_tile": Row(0.05, args(loop, lambda d: d.rng.choice([0, 1, 2, 3]))),
    "set_axis_separator": Row(0.3, draw_axis_separator),
    "storage_align": Row(0.3, draw_storage_align),
    "unsafe_hide_buffer_access": Row(0.15, draw_hide_access),
    "unsafe_set_dtype": Row(0.5, draw_set_dtype),
    "write_at": Row(0.6, draw_at("write_at")),
    "add_unit_loop": Row(0.5, draw_add_unit_loop),
    "annotate": Row(0.6, draw_annotate),
    "bind": Row(0.6, draw_bind),
    "blockize": Row(1, draw_blockize),
    "cache_read": Row(1.5, draw_cache("cache_read")),
    "cache_write": Row(1.5, draw_cache("cache_write")),
    "compute_at": Row(3, _move("compute_at", True)),
    "compute_inline": Row(1, draw_inline(True)),
    "decompose_reduction": Row(1.5, draw_loop_of_block("decompose_reduction")),
    "enter_postproc": Row(0.05, args()),
    "fuse": Row(2, draw_fuse),
    "get_block": Row(0.05, lambda d: Step("get_block", (d.rng.choice([*d.blocks, "none"]),))),
    "get_child_blocks": Row(0.05, args(block)),
    "get_consumers": Row(0.05, args(block)),
    "get_loops": Row(0.05, args(block)),
    "get_output_blocks": Row(0.05, lambda d: Step("get_output_blocks", (BlockRef("root"),))),
    "get_producers": Row(0.05, args(block)),
    "has_block": Row(0.05, lambda d: Step("has_block", (d.rng.choice([*d.blocks, "none"]),))),
    "parallel": Row(0.7, args(loop)),
    "reindex": Row(1, args(block, Draw.buffer)),
    "reorder": Row(2.5, draw_reorder),
    "reverse_compute_at": Row(2.5, _move("reverse_compute_at", False)),
    "reverse_compute_inline": Row(1, draw_inline(False)),
    "rfactor": Row(1.5, draw_rfactor),
    "sample_categorical": Row(
        0.05, lambda d: Step("sample_categorical", ([1, 2], [0.5, d.rng.choice([0.5, -1.0])]))
    ),
    "sample_compute_location": Row(0.1, args(block)),
    "sample_partitioned_tile": Row(0.05, args(loop, lambda d: 2, lambda d: 1, lambda d: 2)),
    "sample_perfect_tile": Row(0.05, args(loop, lambda d: d.rng.choice([0, 1, 2, 3]))),
    "set_scope": Row(0.5, draw_set_scope),
    "split": Row(4, draw_split),
    "tensorize": Row(0.7, draw_tensorize),
    "transform_block_layout": Row(0.7, draw_block_layout),
    "transform_layout": Row(1.2, draw_layout),
    "unannotate": Row(0.3, draw_unannotate),
    "unroll": Row(0.5, args(loop)),
    "vectorize": Row(0.7, args(loop)),
}
"""Every primitive that is fuzzed."""

EXCLUDED: dict[str, str] = {
    "use_kernel": "a kernel replaces one program, which is not among those that are drawn",
}
"""Primitives that are not fuzzed, and why."""


def drawer(name: str) -> Drawer:
    """Return the drawer of a primitive."""
    draw = DRAWERS[name].draw
    return draw.make(name) if isinstance(draw, _Named) else draw
