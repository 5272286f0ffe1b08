"""What thread tags number, and which of the threads share memory of a scope.

Threads of one block share memory of scope ``shared`` and meet at barriers, those of a warp share
memory of scope ``warp``; memory of scope ``local`` belongs to one thread.
"""

from __future__ import annotations


def is_block_tag(tag: str | None) -> bool:
    """Whether a thread tag numbers blocks."""
    return tag is not None and tag.startswith("blockIdx")


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
