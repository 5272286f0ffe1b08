"""What thread tags number, and which of the threads share memory of a scope.

Threads of one block share memory of scope ``shared`` and meet at barriers, those of a warp share
memory of scope ``warp``; memory of scope ``local`` belongs to one thread.

Blocks may form clusters (sm_90), whose blocks run together: in a kernel with a loop on
``clusterCtaIdx``, loops on ``blockIdx`` number clusters, and it their blocks, so that both together
are the grid. Each block has shared memory of its own all the same; what reaches into that of
another one are operators that say so (``tir/gpu_ops.py``).
"""

from __future__ import annotations

CLUSTER = "clusterCtaIdx"
"""The group of tags that number the blocks of a cluster."""
CLUSTER_TAGS = tuple(f"{CLUSTER}.{axis}" for axis in "xyz")
LARGEST_CLUSTER = 16
"""Blocks of a cluster, at most, on any GPU."""


def is_block_tag(tag: str | None) -> bool:
    """Whether a thread tag numbers blocks, of the grid or of a cluster."""
    return tag is not None and tag.startswith(("blockIdx", CLUSTER))


def is_cluster_tag(tag: str | None) -> bool:
    """Whether a thread tag numbers the blocks of a cluster."""
    return tag is not None and tag.startswith(CLUSTER)


def is_vthread(tag: str | None) -> bool:
    """Whether a thread tag is one of virtual threads."""
    return tag is not None and tag.startswith("vthread")


def is_shared(scope: str) -> bool:
    """Whether memory of a scope belongs to a block."""
    return scope == "shared" or scope.startswith("shared.")


def is_private(scope: str) -> bool:
    """Whether memory of a scope belongs to one thread (or to the fragments of one warp)."""
    return scope not in ("global", "warp", "warpgroup") and not is_shared(scope)


def shared_by_threads(scope: str, tag: str) -> bool:
    """Whether the threads that a tag numbers see the same memory of a scope."""
    if scope == "global":
        return True
    if scope in ("warp", "warpgroup") and tag in ("threadIdx.y", "threadIdx.z"):
        return False  # a warp is 32 neighbours along x: LiftThreadBinding asks for that
    return not is_private(scope) and not is_block_tag(tag)
