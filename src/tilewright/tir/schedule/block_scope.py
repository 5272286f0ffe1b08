"""What a schedule knows of a block's place: dependencies among siblings, and three flags.

Primitives ask the analyses themselves (``tir.analysis``); this is the same knowledge in terms of
``StmtSRef``, for passes and rules that people write.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.ir import Range
from tilewright.tir.analysis import check_region_cover, is_affine_binding, is_stage_pipeline
from tilewright.tir.analysis.dependency import DependencyGraph
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Block, For


class Place(Protocol):
    """What is asked of a ``StmtSRef``."""

    stmt: For | Block

    @property
    def parent(self) -> Any:
        """The loop or block around it."""

    @property
    def children(self) -> Any:
        """The loops and blocks directly inside it."""

    @property
    def realize(self) -> Any:
        """Where the block is run, with what its axes are bound to."""


class DepKind(enum.IntEnum):
    """Why a block comes after another: it reads, or writes, what that one has written or read."""

    RAW = 0
    WAW = 1
    WAR = 2
    OPAQUE = 3


@dataclass(frozen=True)
class Dependency:
    """``dst`` comes after ``src``, for a reason of ``kind``."""

    src: Place
    dst: Place
    kind: DepKind


@dataclass(frozen=True)
class CachedFlags:
    """What holds of a block.

    Its bindings are independent quasi-affine maps of its loops (``affine_binding``), all that it
    reads was written before by its siblings (``region_cover``), and its own children are stages
    that may be moved into each other's loops (``stage_pipeline``).
    """

    affine_binding: bool
    region_cover: bool
    stage_pipeline: bool


class BlockScope:
    """The dependencies among blocks of one scope, given in program order."""

    def __init__(self, child_block_srefs: Sequence[Place] = ()) -> None:
        named = {sref.stmt.name: sref for sref in child_block_srefs if isinstance(sref.stmt, Block)}
        realizes = [sref.realize for sref in named.values()]
        graph = DependencyGraph([realize for realize in realizes if realize is not None])
        found = [(edge.source, edge.target, DepKind[edge.kind]) for edge in graph.edges]
        found += [(edge.source, edge.target, DepKind.OPAQUE) for edge in graph.opaque]
        self._edges = [
            Dependency(named[source], named[target], kind)
            for source, target, kind in dict.fromkeys(found)
        ]

    def get_deps_by_src(self, block: Place) -> list[Dependency]:
        """Return the dependencies of others on ``block``."""
        return [edge for edge in self._edges if edge.src == block]

    def get_deps_by_dst(self, block: Place) -> list[Dependency]:
        """Return the dependencies of ``block`` on others."""
        return [edge for edge in self._edges if edge.dst == block]


def scope_below(block_sref: Place) -> BlockScope:
    """Return the scope of a block: its child blocks, whatever loops are around them."""
    return BlockScope(_child_blocks(block_sref))


def _child_blocks(sref: Place) -> list[Place]:
    found: list[Place] = []
    for child in sref.children:
        found += [child] if isinstance(child.stmt, Block) else _child_blocks(child)
    return found


def flags_of(block_sref: Place, func: PrimFunc) -> CachedFlags:
    """Return the flags of a block of ``func``."""
    block, realize = block_sref.stmt, block_sref.realize
    assert isinstance(block, Block)
    loops = {}
    around = block_sref.parent
    while around is not None and isinstance(around.stmt, For):
        loops[around.stmt.loop_var] = Range.from_min_extent(around.stmt.min, around.stmt.extent)
        around = around.parent
    uncovered = []
    if around is not None and isinstance(around.stmt, Block):
        uncovered = [
            item for item in check_region_cover(func, around.stmt) if item.consumer == block.name
        ]
    return CachedFlags(
        realize is None or is_affine_binding(realize, loops),
        not uncovered,
        not _child_blocks(block_sref) or is_stage_pipeline(func, block),
    )
