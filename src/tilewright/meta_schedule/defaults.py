"""The defaults for each kind of target: explicit, ordered lists of names.

A rule in its folder is registered by name; a rule listed here is used in every search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.support.errors import TuneError
from tilewright.target import Target


@dataclass(frozen=True)
class Defaults:
    """Names of rules and postprocs in the order of their application; weights of mutators."""

    sch_rules: tuple[str, ...]
    postprocs: tuple[str, ...]
    mutator_probs: Mapping[str, float]


CPU = Defaults(
    sch_rules=(
        # Blocks that name their rule; all others leave them alone.
        "apply-custom-rule",
        # What can be inlined has no loops to tile, so that comes first.
        "inline-constant-scalars",
        "auto-inline",
        # Each gives a block a structure of its own; what one has tiled the others leave.
        "add-rfactor",
        "register-tile",
        "multi-level-tiling",
        # Annotations of the root, and places for blocks that tiling has not moved.
        "parallelize-vectorize-unroll",
        "random-compute-location",
    ),
    postprocs=(
        # What is refused is not rewritten.
        "disallow-dynamic-loop",
        # Loops are vectorised around what an intrinsic does.
        "rewrite-tensorize",
        # Loops are joined and made parallel before the inits of reductions get loops of their own.
        "rewrite-parallel-vectorize-unroll",
        "rewrite-reduction-block",
        # The size is that of the finished program.
        "verify-code-size",
    ),
    mutator_probs={
        "mutate-tile-size": 0.9,
        "mutate-compute-location": 0.05,
        "mutate-unroll": 0.03,
        "mutate-parallel": 0.02,
        "mutate-choice": 0.02,
    },
)

GPU = Defaults(
    sch_rules=(
        "apply-custom-rule",
        "inline-constant-scalars",
        "auto-inline",
        # What it leaves has outputs enough for all threads.
        "cross-thread-reduction",
        "multi-level-tiling",
        # What a reduction would evaluate again and again, a copy for its threads evaluates once.
        "auto-inline",
        "parallelize-vectorize-unroll",
        # Whatever has no threads yet.
        "auto-bind",
    ),
    postprocs=(
        "disallow-dynamic-loop",
        # The threads that share a copy are those that are bound around it.
        "rewrite-cooperative-fetch",
        "rewrite-unbound-block",
        "rewrite-parallel-vectorize-unroll",
        "rewrite-reduction-block",
        # It lowers the finished program.
        "verify-gpu-code",
    ),
    mutator_probs={
        "mutate-tile-size": 0.9,
        "mutate-thread-binding": 0.05,
        "mutate-unroll": 0.03,
        "mutate-choice": 0.05,
    },
)

GPU_TENSOR_CORE = Defaults(
    sch_rules=(
        "apply-custom-rule",
        "inline-constant-scalars",
        "auto-inline",
        # Products that tensor cores compute; what it has tiled the others leave.
        "multi-level-tiling-tensor-core",
        *GPU.sch_rules[GPU.sch_rules.index("cross-thread-reduction") :],
    ),
    postprocs=(
        "disallow-dynamic-loop",
        "rewrite-cooperative-fetch",
        # Threads are not looked for inside of what intrinsics do.
        "rewrite-tensorize",
        *GPU.postprocs[GPU.postprocs.index("rewrite-unbound-block") :],
    ),
    mutator_probs=GPU.mutator_probs,
)

BY_KIND: dict[str, Defaults] = {
    "llvm": CPU,
    "c": CPU,
    "cuda": GPU,
    "cuda-tensorcore": GPU_TENSOR_CORE,
}


def name_for(target: Target) -> str:
    """Return the name of the defaults that suit a target best."""
    return "cuda-tensorcore" if target.kind == "cuda" and target.gpu.tensor_cores else target.kind


def of_kind(kind: str) -> Defaults:
    """Return the defaults of a kind of target.

    Raises ``TuneError`` if it has none.
    """
    found = BY_KIND.get(kind)
    if found is None:
        raise TuneError(
            f"there are no default rules for target {kind!r} (there are for "
            f"{', '.join(BY_KIND)}); give sch_rules, postprocs and mutator_probs"
        )
    return found
