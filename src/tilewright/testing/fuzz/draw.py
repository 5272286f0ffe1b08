"""What draws the arguments of primitives: a view of the schedule, and kinds of arguments."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import as_int
from tilewright.testing.fuzz.steps import BlockRef, LoopRef, Made, Step
from tilewright.tir import BlockRealize, For
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

    def block(self, names: Sequence[str] = ()) -> BlockRef | Made:
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

    def _old_handle(self, kind: type) -> Made | None:
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

    def extent(self, loop: object) -> int | None:
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

    def access(self) -> Any:
        """Draw a buffer of the last block, and often which of its accesses to it."""
        buffer = self.buffer()
        if isinstance(buffer, str) or not self.chance(0.4):
            return buffer
        return (*buffer, self.position(self.rng.choice([1, 2, 3])))

    def buffer_ndim(self, buffer: object) -> int:
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

    return Named(draw_named)  # type: ignore[return-value]


class Named:
    """A drawer that still has to be told its primitive's name."""

    def __init__(self, make: Callable[[str], Drawer]) -> None:
        self.make = make


def drawer(name: str, draw: Drawer) -> Drawer:
    """Return the drawer of a primitive, which its row has."""
    return draw.make(name) if isinstance(draw, Named) else draw


def block(d: Draw) -> Any:
    """A block."""
    return d.block()


def loop(d: Draw) -> Any:
    """A loop."""
    return d.loop()


def flag(d: Draw) -> bool:
    """True or false."""
    return d.flag()


def factors(d: Draw, loop: object) -> Any:
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
