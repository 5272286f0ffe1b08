"""Adapt a recorded schedule to a similar program: other extents, another fusion, other cores.

The trace is replayed on its own program and on the other one side by side. Blocks correspond by
name or by their place, reductions to reductions; the block that writes what a reduction gives plays
the part of the recorded epilogue. Instructions on blocks that aren't there are left out, tiles
are chosen near the recorded ones. What the trace doesn't touch is inlined or fused. Every primitive
proves on the new program that it may be applied there, so the result computes the same as the
unscheduled program, or there is none. How fast it is nobody knows before it is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilewright.ir import IRModule, as_int, pre_order
from tilewright.meta_schedule.database.extents import (
    departure,
    nearest_cover,
    nearest_factors,
    nearest_tile,
)
from tilewright.meta_schedule.postproc import Postproc
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import REDUCE, Block
from tilewright.tir.attrs import PARALLEL_KEY
from tilewright.tir.schedule import (
    PRIMITIVES,
    BlockRV,
    ExprRV,
    Instruction,
    LoopRV,
    Schedule,
    Trace,
)
from tilewright.tir.schedule.handles import ROOT
from tilewright.tir.schedule.primitives.lookup import get_consumers, get_loops
from tilewright.tir.schedule.trace import check_safe, mapped

_BLOCKS = frozenset(
    {"get_block", "get_child_blocks", "get_consumers", "get_producers", "get_output_blocks"}
)
_INLINING = frozenset({"compute_inline", "reverse_compute_inline"})
_TILES = frozenset({"sample_perfect_tile", "sample_partitioned_tile", "sample_tile"})
# Tiles that divide may have inner factors this far from the recorded ones, in factors of e; from
# there on a tile that covers the loop, with some waste at its end, is the better one.
_FAR = 0.8
# The longest innermost loop of a fused block that becomes a vector.
_LONGEST_VECTOR = 64


def adapted_schedule(
    trace: Trace,
    recorded: IRModule,
    mod: IRModule,
    target: Target | None = None,
    recorded_target: Target | None = None,
) -> Schedule:
    """Return the schedule of a module that is most like what a trace makes of its own module.

    Both modules have one function, ``main``. Raises ``ScheduleError`` if they differ too much.
    """
    try:
        return _Adaptation(trace, recorded, mod, target, recorded_target).run()
    except ScheduleError:
        raise
    except Exception as error:
        # A record may be a stranger's: whatever comes of it, the build goes on without it.
        raise ScheduleError(f"it can't be adapted: {type(error).__name__}: {error}") from error


class _Adaptation:
    def __init__(
        self,
        trace: Trace,
        recorded: IRModule,
        mod: IRModule,
        target: Target | None,
        recorded_target: Target | None,
    ) -> None:
        self.trace, self.target = trace, target
        self.old, self.new = Schedule(recorded, record=False), Schedule(mod)
        self.old_handles: dict[Any, Any] = {}
        self.handles: dict[Any, Any] = {}
        self.names: dict[str, str] = {}
        """Blocks of the new program by the recorded names."""
        self.touched: set[str] = set()
        self.anchors: list[str] = []
        self.pairs: list[tuple[str, str]] = []
        """Reductions: the recorded one, and the one here."""
        self.originals: dict[str, None] = {}
        self.same = False
        """Whether the programs have the same blocks in the same order."""
        self.cores = 1.0
        if target is not None and recorded_target is not None:
            self.cores = target.num_cores / recorded_target.num_cores

    def run(self) -> Schedule:
        """Replay and complete the schedule."""
        insts = self.trace.simplified(remove_postproc=True).insts
        parallel = {
            inst.args[2]
            for inst in insts
            if inst.name == "annotate" and inst.args[1] == PARALLEL_KEY
            if type(inst.args[2]) is ExprRV
        }
        self._correspond()
        if not self.same:
            self._inline_the_rest()
        for inst in insts:
            check_safe(inst)
            scaled = self.cores if parallel & set(inst.outputs) else 1.0
            self._instruction(inst, scaled)
        is_open = self.trace.has_postproc
        if not self.same:
            self._place_the_rest(is_open)
        if is_open and self.target is not None:
            self._complete(self.target)
        self.new.verify()
        return self.new

    # ---- which block is which -----------------------------------------------------------------
    def _correspond(self) -> None:
        """Find pairs of blocks: all of them in order, or the reductions, and equal names.

        Raises ``ScheduleError`` if the programs don't have the same reductions.
        """
        old, new = _blocks(self.old), _blocks(self.new)
        self.same = [kinds for _, kinds in old] == [kinds for _, kinds in new]
        if not self.same:
            own = [item for item in old if REDUCE in item[1]]
            others = [item for item in new if REDUCE in item[1]]
            if [kinds for _, kinds in own] != [kinds for _, kinds in others] or not own:
                raise ScheduleError(
                    f"it is for other reductions: {[name for name, _ in own]}, this program has "
                    f"{[name for name, _ in others]}"
                )
        else:
            own, others = old, new
        self.names = {a: b for (a, _), (b, _) in zip(own, others)}
        rest = {name for name, _ in new} - set(self.names.values())
        self.names |= {n: n for n, _ in old if n not in self.names and n in rest}
        self.originals = dict.fromkeys(name for name, _ in new)
        self.anchors = [name for name, kinds in new if REDUCE in kinds]
        self.pairs = [(a, self.names[a]) for a, kinds in old if REDUCE in kinds]

    def _inline_the_rest(self) -> None:
        """Inline what no recorded block stands for, but for what writes results."""
        meant = set(self.names.values())
        for name, _ in _blocks(self.new):
            if name not in meant:
                self._inlined("compute_inline", name)

    def _consumers(self, sch: Schedule, anchor: str) -> list[str]:
        return [item.name for item in get_consumers(sch, BlockRV("main", anchor))]

    def _meet_epilogues(self, inst: Instruction) -> None:
        """Where the record goes on with what reads a reduction, find what does so here.

        If nothing does, a copy of the results stands in for it.
        """
        if self.same or inst.name in _INLINING:
            return
        for handle in inst.handles:
            if type(handle) is not BlockRV or handle in self.handles:
                continue
            name = self.old_handles[handle].name
            for old_anchor, anchor in self.pairs:
                if not _has(self.old, old_anchor) or not _has(self.new, anchor):
                    continue
                if self._consumers(self.old, old_anchor) != [name]:
                    continue
                found = self._consumers(self.new, anchor)
                if not found:
                    found = [self.new.cache_write(self._block(anchor), 0, "global").name]
                if len(found) == 1 and found[0] not in self.names.values():
                    self.names[name] = found[0]
                    self.handles[handle] = self._block(found[0])

    # ---- instructions -------------------------------------------------------------------------
    def _instruction(self, inst: Instruction, scaled: float) -> None:
        self._meet_epilogues(inst)
        old_made = _as_list(
            inst.primitive.run(self.old, mapped(inst.args, self.old_handles), inst.decision)
        )
        if len(old_made) != len(inst.outputs):
            raise ScheduleError(f"{inst.name} gives other results on the recorded program")
        self.old_handles.update(zip(inst.outputs, old_made))
        if inst.name in _BLOCKS:
            made: list[Any] | None = [self._named(item) for item in old_made]
        elif any(handle not in self.handles for handle in inst.handles):
            return  # it is about a block that isn't there
        else:
            made = self._applied(inst, scaled)
        if made is None:
            return
        if len(made) != len(inst.outputs):
            raise ScheduleError(
                f"{inst.name} gives {len(made)} results on this program, {len(inst.outputs)} on "
                "the recorded one"
            )
        for output, old, new in zip(inst.outputs, old_made, made):
            if new is not None:
                self.handles[output] = new
                if type(new) is BlockRV:
                    self.names[old.name] = new.name

    def _named(self, old: BlockRV) -> BlockRV | None:
        """The block that a recorded one stands for, if there is one."""
        name = self.names.get(old.name)
        if name is None and (old.name == ROOT or self.same):
            name = old.name
        if name is None or not _has(self.new, name):
            return None
        return self._block(name)

    def _applied(self, inst: Instruction, scaled: float) -> list[Any] | None:
        """Run an instruction on the new program, with decisions that fit; ``None`` to leave out."""
        args = list(mapped(inst.args, self.handles))
        primitive, decision = inst.primitive, inst.decision
        blocks = [item.name for item in args if type(item) is BlockRV]
        self.touched.update(blocks)
        if not self.same:
            if inst.name in _INLINING:
                self._inlined(inst.name, blocks[0])
                return None
            if inst.name == "cache_write" and args[1] == 0 and blocks[0] in self.anchors:
                found = self._consumers(self.new, blocks[0])
                if len(found) == 1 and found[0] not in self.names.values():
                    # What reads the results here plays the part of the recorded copy.
                    self.touched.update(found)
                    self.new.set_scope(args[0], args[1], args[2])
                    return [self._block(found[0])]
            if inst.name == "set_scope" and not self._consumers(self.new, blocks[0]):
                self.touched.add(self.new.cache_write(args[0], args[1], args[2]).name)
                return []
        if inst.name in _TILES:
            return self._tile(inst, args)
        if inst.name == "split":
            args[1] = self._factors(args[0], args[1])
        elif inst.name == "sample_categorical" and scaled != 1.0:
            args[0] = [max(1, round(scaled * int(value))) for value in args[0]]
        return _as_list(primitive.run(self.new, tuple(args), decision))

    def _tile(self, inst: Instruction, args: list[Any]) -> list[Any]:
        """Choose a tile near the recorded one."""
        extent = as_int(self.new.get(args[0]).extent)
        if extent is None or extent < 1:
            raise ScheduleError(f"a loop of extent {extent} has no tiles")
        recorded, primitive = list(inst.decision), inst.primitive
        limit = int(args[2]) if inst.name != "sample_partitioned_tile" else 0
        made = nearest_tile(recorded, extent)
        far = departure(recorded, made) > _FAR and inst.name == "sample_perfect_tile"
        if prod(recorded) == extent:
            made = recorded
        elif inst.name == "sample_tile" or far:
            primitive, made = PRIMITIVES.get("sample_tile"), nearest_cover(recorded, extent, limit)
        elif inst.name == "sample_partitioned_tile" and prod(made[args[2] :]) % args[3]:
            raise ScheduleError(f"{made} is no tile with an inner part divisible by {args[3]}")
        return _as_list(primitive.run(self.new, tuple(args), made))

    def _factors(self, loop: LoopRV, factors: Sequence[Any]) -> Any:
        if any(type(item) is ExprRV for item in factors):
            return factors  # they were chosen for this loop
        extent = as_int(self.new.get(loop).extent)
        known = [None if item is None else int(item) for item in factors]
        numbers = [item for item in known if item is not None]
        if len(numbers) == len(known) and prod(numbers) == extent:
            return factors
        return nearest_factors(known, extent)

    # ---- what is left -------------------------------------------------------------------------
    def _block(self, name: str) -> BlockRV:
        """Look a block up that may have another name by now."""
        return self.new.get_block(self.new.get(BlockRV("main", name)).name, "main")

    def _attempt(self, action: Callable[..., object], *args: Any) -> bool:
        """Do something to the new program, or nothing if it isn't possible."""
        before = self.new
        self.new = before.copy()
        try:
            action(*args)
        except ScheduleError:
            self.new = before
            return False
        return True

    def _inlined(self, primitive: str, name: str) -> bool:
        def inline() -> None:
            getattr(self.new, primitive)(self._block(name))

        return self._attempt(inline)

    def _place_the_rest(self, is_open: bool) -> None:
        """Fuse blocks that no instruction has touched.

        Raises ``ScheduleError`` if one stays by itself; with ``is_open`` postprocs schedule that.
        """
        for name in self.originals:
            if (
                name in self.touched
                or not _has(self.new, name)
                or self._inlined("compute_inline", name)
            ):
                continue
            if self._inlined("reverse_compute_inline", name) or self._fused(name) or is_open:
                continue
            raise ScheduleError(f"nothing in the record says how block {name} is computed")

    def _fused(self, name: str) -> bool:
        """Compute a block inside of the loops of the reduction that it reads, as deep as it may."""
        for anchor in reversed(self.anchors):
            if not _has(self.new, anchor) or name not in self._consumers(self.new, anchor):
                continue
            depth = len(get_loops(self.new, BlockRV("main", anchor)))
            if any(
                self._attempt(self._fuse_at, name, anchor, position)
                for position in reversed(range(depth))
            ):
                return True
        return False

    def _fuse_at(self, name: str, anchor: str, position: int) -> None:
        sch = self.new
        outer = sch.get_loops(self._block(anchor))[: position + 1]
        sch.reverse_compute_at(self._block(name), outer[-1])
        inner = sch.get_loops(self._block(name))[len(outer) :]
        extent = as_int(sch.get(inner[-1]).extent) if inner else None
        if extent is not None and 2 <= extent <= _LONGEST_VECTOR:
            self._attempt(lambda: self.new.vectorize(inner[-1]))

    def _complete(self, target: Target) -> None:
        """Apply the postprocs, which are made for any program."""
        self.new.enter_postproc()
        for postproc in Postproc.create(target.kind):
            postproc.initialize(target)
            refused = postproc.rejection(self.new)
            if refused is not None:
                raise ScheduleError(f"{postproc.name}: {refused.reason}")


def _blocks(sch: Schedule) -> list[tuple[str, tuple[str, ...]]]:
    """The blocks of a schedule's function in order: their names, and the kinds of their axes."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for item in pre_order(sch.mod["main"]):
        if isinstance(item, Block) and item.name != ROOT:
            found.append((item.name, tuple(var.kind for var in item.iter_vars)))
    return found


def _has(sch: Schedule, name: str) -> bool:
    """Whether a block is there, maybe under another name by now."""
    try:
        sch.get(BlockRV("main", name))
    except ScheduleError:
        return False
    return True


def _as_list(result: object) -> list[Any]:
    if result is None:
        return []
    return list(result) if isinstance(result, (list, tuple)) else [result]
