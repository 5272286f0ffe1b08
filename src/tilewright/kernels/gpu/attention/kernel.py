"""Attention as one kernel: recognised by ``topi``'s definition, replaced by its online form.

The replacement is :mod:`.prefill`: tiles of queries. Where a group of heads shares keys and each
has but a few queries, the group's queries make one tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tilewright.ir import as_int
from tilewright.kernels.gpu.attention.prefill import PrefillKernel, PrefillThreads
from tilewright.kernels.kernel import Kernel
from tilewright.kernels.problems.attention import Attention, read_attention
from tilewright.scheduling import Choices, NotApplicable
from tilewright.scheduling.gpu import GPULimits, limits_of
from tilewright.target import Target
from tilewright.tir import Block, PrimFunc, make_root_block
from tilewright.tir.schedule import Schedule

PREFILL = "attention_prefill_threads"

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


class AttentionKernel(Kernel[Attention]):
    """For functions that are scaled dot-product attention, and nothing else."""

    forms: ClassVar = {PREFILL: PrefillThreads}

    def recognise(self, func: PrimFunc) -> Attention | NotApplicable:
        """Compare with the definition named by the annotation."""
        return read_attention(func)

    def plan(
        self, problem: Attention, target: Target, choices: Choices
    ) -> PrefillThreads | NotApplicable:
        """Choose tiles that fit into shared memory."""
        return choose_threads(problem, target, choices)

    def fault(self, problem: Attention, plan: PrefillThreads) -> str | None:
        """Say what is wrong with the sizes, if anything is."""
        return plan.fault(problem)

    def build(self, func: PrimFunc, problem: Attention, plan: PrefillThreads) -> Block:
        """Write the form."""
        problem = problem.with_stacked(plan.stacked)
        return make_root_block(PrefillKernel(problem, plan).build()).block

    def schedule(
        self,
        sch: Schedule,
        problem: Attention,
        plan: PrefillThreads,
        kept: Sequence[str],
        target: Target,
    ) -> None:
        """Do nothing: blocks and threads are the kernel's own."""


def choose_threads(
    problem: Attention, target: Target, choices: Choices
) -> PrefillThreads | NotApplicable:
    """Return sizes for a problem, or why none fit."""
    limits = limits_of(target)
    fitting = [
        sizes
        for sizes in (PrefillThreads(*item) for item in _PREFILL)
        if sizes.threads <= limits.max_threads
        and sizes.shared_bytes(problem) <= limits.max_shared_memory
    ]
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


def _balanced(
    sizes: Sequence[PrefillThreads], problem: Attention, limits: GPULimits
) -> PrefillThreads:
    """The largest tiles of which there is one for each processor, if the number is known."""
    known = [as_int(n) for n in (problem.batch, problem.heads, problem.rows)]
    if None in known:
        return sizes[0]
    batch, heads, rows = (n or 0 for n in known)
    for item in sizes:
        if batch * heads * -(-rows // item.query_tile) >= limits.processors:
            return item
    return sizes[0]
