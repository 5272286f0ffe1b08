"""Attention as one kernel: recognised by ``topi``'s definition, replaced by its online form.

The replacement is chosen by shape:

- a few queries per head of keys (decoding): :mod:`.decode`, bound by memory;
- else tiles of queries: :mod:`.prefill_mma` on tensor cores, for half floats where these fit the
  depth of heads, otherwise :mod:`.prefill`. Where a group of heads shares keys and each has but a
  few queries, the group's queries make one tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tilewright.ir import as_int
from tilewright.kernels.gpu.attention.decode import MOST_ROWS, DecodeKernel, DecodeThreads
from tilewright.kernels.gpu.attention.prefill import PrefillKernel, PrefillThreads
from tilewright.kernels.gpu.attention.prefill_mma import CAPABILITY, PrefillMmaKernel, PrefillWarps
from tilewright.kernels.gpu.sizes import known_product
from tilewright.kernels.kernel import Kernel
from tilewright.kernels.problems.attention import Attention, read_attention
from tilewright.scheduling import Choices, NotApplicable
from tilewright.scheduling.gpu import GPULimits, limits_of
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc, make_root_block
from tilewright.tir.schedule import Schedule

PREFILL, DECODE = "attention_prefill_threads", "attention_decode_threads"
PREFILL_MMA = "attention_prefill_mma"

Many = PrefillThreads | PrefillWarps
Plan = Many | DecodeThreads

# Threads along queries and keys, and what each has of both: the largest that fit are preferred, as
# they read least from shared memory per product.
_PREFILL = (
    (16, 16, 8, 4),
    (16, 16, 4, 4),
    (16, 16, 4, 2),
    (16, 8, 4, 4),
    (16, 8, 2, 4),
    (8, 8, 4, 4),
    (8, 8, 2, 2),
    (4, 8, 2, 2),
    (4, 4, 2, 2),
    (4, 4, 1, 1),
    (1, 4, 1, 1),
)
# Warps, keys that are processed together, and stages of them, on tensor cores.
_PREFILL_MMA = (
    (4, 64, 2),
    (8, 64, 2),
    (4, 32, 2),
    (2, 64, 2),
    (2, 32, 2),
    (1, 32, 2),
    (1, 16, 2),
    (1, 16, 1),
)
# Threads, and keys that are processed together.
_DECODE = ((128, 128), (128, 64), (128, 32), (64, 64), (64, 32), (32, 32))
# Thread blocks that a multiprocessor runs at a time, and parts of the keys at most.
_BLOCKS_PER_PROCESSOR, _MOST_SPLITS = 4, 64


class AttentionKernel(Kernel[Attention]):
    """For functions that are scaled dot-product attention, and nothing else."""

    forms: ClassVar = {
        PREFILL: PrefillThreads,
        PREFILL_MMA: PrefillWarps,
        DECODE: DecodeThreads,
    }

    def recognise(self, func: PrimFunc) -> Attention | NotApplicable:
        """Compare with the definition named by the annotation."""
        return read_attention(func)

    def plan(self, problem: Attention, target: Target, choices: Choices) -> Plan | NotApplicable:
        """Choose tiles that fit into shared memory."""
        return choose_threads(problem, target, choices)

    def fault(self, problem: Attention, plan: Plan) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        stacked = isinstance(plan, DecodeThreads) or plan.stacked
        return plan.fault(problem.with_stacked(stacked))

    def build(self, func: PrimFunc, problem: Attention, plan: Plan) -> Block:
        """Write the form."""
        if isinstance(plan, DecodeThreads):
            few = DecodeKernel(problem.with_stacked(True), plan)
            return make_root_block(few.build(), few.root_buffers).block
        problem = problem.with_stacked(plan.stacked)
        if isinstance(plan, PrefillWarps):
            return make_root_block(PrefillMmaKernel(problem, plan).build()).block
        return make_root_block(PrefillKernel(problem, plan).build()).block

    def schedule(
        self,
        sch: Schedule,
        problem: Attention,
        plan: Plan,
        kept: Sequence[str],
        target: Target,
    ) -> None:
        """Do nothing: blocks and threads are the kernel's own."""


def choose_threads(problem: Attention, target: Target, choices: Choices) -> Plan | NotApplicable:
    """Return the form and its sizes for a problem, or why none fit."""
    limits = limits_of(target)
    rows = as_int(problem.with_stacked(True).rows)
    few = rows is not None and rows <= MOST_ROWS
    made = _decode(problem.with_stacked(True), limits, choices) if few else None
    if made is not None:
        return made
    tensor_cores = target.gpu.capability >= CAPABILITY
    return _prefill(problem, limits, choices, tensor_cores=tensor_cores)


def _decode(problem: Attention, limits: GPULimits, choices: Choices) -> DecodeThreads | None:
    """Sizes for a few queries: the most keys of which several blocks fit on a multiprocessor."""
    fitting = []
    for threads, keys in _DECODE:
        sizes = DecodeThreads(threads, keys)
        needed = sizes.shared_bytes(problem)
        if threads <= limits.max_threads and needed <= limits.max_shared_memory:
            fitting.append((needed > limits.max_shared_memory // _BLOCKS_PER_PROCESSOR, sizes))
    if not fitting:
        return None
    ordered = [sizes for _, sizes in sorted(fitting, key=lambda item: item[0])]
    sizes = choices.choose("attention.threads", ordered)
    usual = _splits(problem, sizes, limits)
    options = [usual, *{max(1, usual // 2), min(2 * usual, _MOST_SPLITS)}.difference({usual})]
    return replace(sizes, splits=choices.choose("attention.splits", options))


def _splits(problem: Attention, sizes: DecodeThreads, limits: GPULimits) -> int:
    """Parts of the keys that fill the GPU; two blocks of keys each, at least."""
    units = known_product([problem.batch, problem.heads]) or 1
    wanted = -(-limits.processors * _BLOCKS_PER_PROCESSOR // max(1, units))
    keys = as_int(problem.keys)
    most = _MOST_SPLITS if keys is None else -(-keys // (2 * sizes.keys))
    return max(1, min(wanted, most, _MOST_SPLITS))


def _prefill(
    problem: Attention, limits: GPULimits, choices: Choices, *, tensor_cores: bool
) -> Many | NotApplicable:
    """Sizes for many queries: on tensor cores, if there are sizes for the problem."""
    fitting: list[Many] = []
    if tensor_cores:
        by_warps = [PrefillWarps(w, keys, stages=stages) for w, keys, stages in _PREFILL_MMA]
        fitting += [s for s in by_warps if s.fault(problem) is None and _fits(s, problem, limits)]
    if not fitting:
        by_threads = [PrefillThreads(*item) for item in _PREFILL]
        fitting += [sizes for sizes in by_threads if _fits(sizes, problem, limits)]
    if not fitting:
        return NotApplicable(
            f"keys of {problem.depth} elements don't fit into {limits.max_shared_memory} bytes of "
            "shared memory"
        )
    queries = as_int(problem.queries)
    stacked = problem.group > 1 and queries is not None and queries < fitting[0].query_tile
    problem = problem.with_stacked(stacked)
    # No more rows than there are, if that is known.
    rows = as_int(problem.rows)
    small = [sizes for sizes in fitting if rows is None or sizes.query_tile < 2 * rows]
    usual = _balanced(small or fitting[-1:], problem, limits)
    others = [sizes for sizes in fitting if sizes != usual]
    chosen = choices.choose("attention.threads", [usual, *others])
    return replace(chosen, stacked=stacked)


def _fits(sizes: Many, problem: Attention, limits: GPULimits) -> bool:
    """Whether a thread block is within the limits."""
    memory = sizes.shared_bytes(problem)
    return sizes.threads <= limits.max_threads and memory <= limits.max_shared_memory


def _balanced(sizes: Sequence[Many], problem: Attention, limits: GPULimits) -> Many:
    """The largest tiles of which there is one for each processor, if the number is known.

    Twice the queries read each key half as often from the level-2 cache.
    """
    known = [as_int(n) for n in (problem.batch, problem.heads, problem.rows)]
    if None in known:
        return sizes[0]
    batch, heads, rows = (n or 0 for n in known)
    for item in sorted(sizes, key=lambda item: item.query_tile, reverse=True):
        if batch * heads * -(-rows // item.query_tile) >= limits.processors:
            return item
    return sizes[0]
