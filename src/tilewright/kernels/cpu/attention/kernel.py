"""Attention as one kernel: recognised by ``topi``'s definition, replaced by its online form.

The kernel compares the function with the definition named by its annotation, so a function that was
fused or changed is left to rules. The replacement is chosen by shape:

- a few queries per head of keys (decoding): :mod:`.decode`, bound by memory;
- else tiles of queries: :mod:`.prefill`. Where a group of heads shares keys and each has
  but a few queries, the group's queries make one tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tilewright.ir import as_int
from tilewright.kernels.cpu.attention.decode import DecodeKernel, DecodeTiles
from tilewright.kernels.cpu.attention.decode_dots import DotDecodeKernel
from tilewright.kernels.cpu.attention.dots import DotPrefillKernel, has_dots
from tilewright.kernels.cpu.attention.prefill import PrefillKernel, PrefillTiles
from tilewright.kernels.kernel import Kernel
from tilewright.kernels.problems.attention import Attention, read_attention
from tilewright.scheduling import Choices, NotApplicable, others_after
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc, make_root_block
from tilewright.tir.schedule import Schedule

PREFILL, DECODE = "attention_prefill", "attention_decode"

# Up to so many queries per head of keys, lanes along the depth beat lanes along the queries.
_FEW_ROWS = 8
# Register tiles that a search may try, of scores (keys by vectors of queries) and of values.
_SCORES = ((8, 2), (4, 4), (6, 4), (12, 2), (8, 1))
_VALUES = ((4, 4), (8, 2), (6, 4), (8, 1))
# Scores of a block of keys, when there are few queries.
_SCORES_BYTES = 8 << 10
# An extent that isn't known counts as that much work.
_UNKNOWN = 64


class AttentionKernel(Kernel[Attention]):
    """For functions that are scaled dot-product attention, and nothing else."""

    forms: ClassVar = {PREFILL: PrefillTiles, DECODE: DecodeTiles}

    def recognise(self, func: PrimFunc) -> Attention | NotApplicable:
        """Compare with the definition named by the annotation."""
        found = read_attention(func)
        if isinstance(found, Attention) and found.pages is not None:
            return NotApplicable("keys and values lie in pages, which these forms don't read")
        return found

    def plan(
        self, problem: Attention, target: Target, choices: Choices
    ) -> PrefillTiles | DecodeTiles:
        """Lanes along the depth for a few queries, else along the queries."""
        return choose_tiles(problem, target, choices)

    def fault(self, problem: Attention, plan: PrefillTiles | DecodeTiles) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        if isinstance(plan, DecodeTiles):
            problem = problem.with_stacked(True)
            dots = DotDecodeKernel.fault(problem, plan) if plan.dots else None
            return plan.fault(problem) or dots
        if plan.stacked and as_int(problem.queries) is None:
            return "queries of a group make one tile only if their number is known"
        problem = problem.with_stacked(plan.stacked)
        return plan.fault(problem) or (DotPrefillKernel.fault(problem, plan) if plan.dots else None)

    def build(self, func: PrimFunc, problem: Attention, plan: PrefillTiles | DecodeTiles) -> Block:
        """Write the form."""
        if isinstance(plan, DecodeTiles):
            decode = DotDecodeKernel if plan.dots else DecodeKernel
            few = decode(problem.with_stacked(True), plan)
            return make_root_block(few.build(), few.root_buffers).block
        prefill = DotPrefillKernel if plan.dots else PrefillKernel
        return make_root_block(prefill(problem.with_stacked(plan.stacked), plan).build()).block

    def schedule(
        self,
        sch: Schedule,
        problem: Attention,
        plan: PrefillTiles | DecodeTiles,
        kept: Sequence[str],
        target: Target,
    ) -> None:
        """Run heads and tiles of queries in parallel."""
        names = ["attention_tile"]
        if isinstance(plan, DecodeTiles):
            names = ["attention_part"] if plan.splits == 1 else ["attention_part", "join"]
        work = _work(problem)
        for name in names:
            fused = sch.fuse(*sch.get_loops(name))
            if target.num_cores > 1 and work >= target.costs.parallel_work:
                sch.parallel(fused)


def _work(problem: Attention) -> int:
    extents = (problem.batch, problem.heads, problem.rows, problem.keys)
    known = (as_int(extent) for extent in extents)
    return math.prod(_UNKNOWN if n is None else n for n in known) * problem.depth


# ---- choosing -----------------------------------------------------------------------------------


def choose_tiles(
    problem: Attention, target: Target, choices: Choices
) -> PrefillTiles | DecodeTiles:
    """Return the form and its sizes for a problem."""
    lanes, registers = target.vector_lanes(32), target.vector_registers
    queries = as_int(problem.queries)
    rows = None if queries is None else queries * problem.group
    if rows is not None and rows <= _FEW_ROWS:
        splits = _splits(problem, target)
        # Rows that need little arithmetic go fastest in long runs; scores stay in the first cache.
        longest = min(_SCORES_BYTES // 4 // rows, 512 if splits > 1 else 2048)
        keys = choices.choose(
            "attention.keys", others_after(max(longest, 512), (512, 256, 1024, 128))
        )
        ahead = choices.choose("attention.ahead", (4096 if rows == 1 else 8192, 2048, 16384))
        tiles = DecodeTiles(lanes, keys, splits=splits, registers=registers, ahead=ahead)
        dots = has_dots(target) and DotDecodeKernel.fault(problem, tiles) is None
        return replace(tiles, dots=dots)
    stacked = problem.group > 1 and rows is not None and rows <= 4 * lanes
    own = _prefill_tiles(problem.with_stacked(stacked), target)
    return PrefillTiles(
        lanes,
        choices.choose("attention.queries", others_after(own.queries, (4 * lanes, 8 * lanes))),
        choices.choose("attention.keys", others_after(own.keys, (32, 64, 128, 256))),
        *choices.choose("attention.scores", others_after((own.key_rows, own.vectors), _SCORES)),
        *choices.choose(
            "attention.values", others_after((own.query_rows, own.value_vectors), _VALUES)
        ),
        dots=own.dots,
        stacked=stacked,
    )


def _prefill_tiles(problem: Attention, target: Target) -> PrefillTiles:
    """Register tiles of about half the registers; as wide as the number of queries lets them."""
    lanes, registers = target.vector_lanes(32), target.vector_registers
    rows = as_int(problem.rows)
    if registers < 32:
        tiles = PrefillTiles(lanes, 4 * lanes, key_rows=4, vectors=2, value_vectors=2)
    elif rows is not None and rows <= lanes:
        tiles = PrefillTiles(lanes, lanes, vectors=1)
    elif rows is not None and (rows - 1) % (4 * lanes) >= 2 * lanes:
        # As many lanes of the last tile do nothing as in narrower tiles.
        tiles = PrefillTiles(lanes, 4 * lanes, key_rows=4, vectors=4)
    else:
        tiles = PrefillTiles(lanes, 4 * lanes)
    dots = has_dots(target) and DotPrefillKernel.fault(problem, tiles) is None
    return replace(tiles, dots=dots)


def _splits(problem: Attention, target: Target) -> int:
    """Parts of the keys, so that every thread has the same work where there are few heads."""
    batch, heads = as_int(problem.batch), as_int(problem.heads)
    keys, cores = as_int(problem.keys), target.num_cores
    if batch is None or heads is None or cores == 1:
        return 1
    units = batch * (heads // problem.group)
    if units % cores == 0 or units >= 4 * cores:
        return 1
    wanted = cores // math.gcd(units, cores)
    blocks = wanted if keys is None else -(-keys // DecodeTiles(1).keys)
    return max(1, min(wanted, blocks))
