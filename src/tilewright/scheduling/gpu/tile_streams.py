"""Grids of as many blocks as run at once, each of which goes through tiles of a product.

A product that is scheduled in tiles has a block for each of them. Here the grid has a fixed number
of blocks (persistent thread blocks), which take whole tiles in turn::

    block b of G:    tiles b, b + G, b + 2 G, ...

Of the last tiles, those that don't fill the grid once more, the steps along ``k`` are divided
evenly among all blocks instead (stream-K: Osama et al., *Stream-K: Work-Centric Parallel
Decomposition for Dense Matrix-Matrix Multiplication on the GPU*, PPoPP 2023)::

    tile      0          1          2              steps of three tiles, four blocks
    step   0 1 2 3    0 1 2 3    0 1 2 3
    block  0 0 0 1    1 1 2 2    2 3 3 3

A block that has all steps of a tile writes its results. Of its first and its last tile it may have
a part: these sums go to a workspace, and a second kernel adds the parts of each such tile, in the
order of their steps, and writes its results. So results are the same each time.

Blocks whose operands come by tensor maps have whole tiles only; where they are in clusters, ``b``
is a cluster, and a tile those of its blocks.

This rewrites a program whose tiles are scheduled, of whatever kind they are: a kernel whose grid
has a body of the form ``{sums, with one loop of steps in a software pipeline; writing results}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import (
    TRUE,
    Expr,
    Range,
    Var,
    and_,
    as_int,
    const,
    floordiv,
    floormod,
    maximum,
    minimum,
    pre_order,
    select,
    substitute,
)
from tilewright.scheduling.gpu.binding import BLOCKS
from tilewright.tir import (
    SERIAL,
    SPATIAL,
    THREAD_BINDING,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    decl_buffer,
    seq,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.attrs import (
    PIPELINE_ASYNC_STAGES,
    PIPELINE_ORDER,
    PIPELINE_SPECIALISED,
    PIPELINE_STAGE,
)
from tilewright.tir.rewrite import fresh_name, index_var, renew_definitions
from tilewright.tir.schedule import KERNELS
from tilewright.tir.thread_scope import is_block_tag, is_cluster_tag

TILE_STREAM = "gpu_tile_stream"
_PIPELINE = {PIPELINE_STAGE, PIPELINE_ORDER, PIPELINE_ASYNC_STAGES, PIPELINE_SPECIALISED}
_Assignment = Callable[[BufferLoad, BufferLoad], "tuple[BufferLoad, Expr]"]


@dataclass(frozen=True)
class _Tiles:
    """A kernel in tiles: loops of its grid, its body without and with the writing of results."""

    grid: tuple[For, ...]
    cluster: tuple[For, ...]
    """Loops on the blocks of a cluster, which stay: a tile of the grid is all of theirs."""
    sums: Stmt
    writer: Stmt
    steps: For
    kept: BufferLoad
    """How results read the sums."""


def _build(func: PrimFunc, options: Mapping[str, Any]) -> Block | str:
    root = func.root
    nests = list(root.body.stmts) if isinstance(root.body, SeqStmt) else [root.body]
    found = [n for n, nest in enumerate(nests) if _pipelines(nest)]
    if len(found) != 1:
        return f"{len(found)} of its kernels have steps in a software pipeline, one is expected"
    tiles = _tiles_of(nests[found[0]])
    if isinstance(tiles, str):
        return tiles
    blocks, streamed = int(options.get("blocks", 0)), int(options.get("streamed", 0))
    shape = tuple(int(extent) for extent in options.get("tile", ()))
    if blocks < 1 or len(shape) != 2:
        return f"it takes a number of blocks and a tile's rows and columns, got {dict(options)}"
    made = _Stream(root, tiles, blocks, streamed, shape)
    if why := made.refused():
        return why
    nests[found[0] : found[0] + 1] = made.kernels()
    buffers = [x for x in root.alloc_buffers if x not in made.private]
    if streamed:
        buffers.append(made.workspace)
    return root.replace(body=seq(nests), alloc_buffers=tuple(buffers))


KERNELS.register(TILE_STREAM, _build)


def _pipelines(nest: Stmt) -> list[For]:
    return [x for x in pre_order(nest) if type(x) is For and PIPELINE_STAGE in x.annotations]


def _tiles_of(nest: Stmt) -> _Tiles | str:
    grid: list[For] = []
    body = nest
    while isinstance(body, For) and (
        as_int(body.extent) == 1 if body.thread is None else is_block_tag(body.thread)
    ):
        grid.append(body)
        body = body.body
    steps = _pipelines(nest)
    if not grid or not isinstance(body, SeqStmt) or len(steps) != 1:
        return "its kernel has no grid of tiles with one loop of steps"
    if set(steps[0].annotations) - _PIPELINE:
        return "its steps are more than a software pipeline"
    *sums, writer = body.stmts
    blocks = [x.block for x in pre_order(writer) if type(x) is BlockRealize]
    if len(blocks) != 1 or not isinstance(blocks[0].body, BufferStore):
        return "its results aren't written by one block"
    loads = [x for x in pre_order(blocks[0].body.value) if type(x) is BufferLoad]
    kept = [load for load in loads if load.buffer.scope != "global"]
    if len({load.buffer for load in kept}) != 1 or len({*map(repr, kept)}) != 1:
        return "its results aren't computed of one sum each"
    if any(steps[0] is x for x in pre_order(writer)):
        return "its results are written step by step"
    cluster = tuple(loop for loop in grid if is_cluster_tag(loop.thread))
    tiled = tuple(loop for loop in grid if loop not in cluster)
    return _Tiles(tiled, cluster, seq(sums), writer, steps[0], kept[0])


class _Stream:
    """Makes the kernels."""

    def __init__(
        self, root: Block, tiles: _Tiles, blocks: int, streamed: int, shape: tuple[int, ...]
    ) -> None:
        self.tiles, self.blocks, self.streamed, self.shape = tiles, blocks, streamed, shape
        self.count = reduce(mul, (loop.extent for loop in tiles.grid))
        self.steps = tiles.steps.extent
        self.names = {x.block.name for x in pre_order(root) if type(x) is BlockRealize}
        self.workspace = decl_buffer((blocks, 2, *shape), tiles.kept.buffer.dtype, "workspace")
        used = {x for x in pre_order(seq(tiles.sums, tiles.writer)) if type(x) is Buffer}
        self.private = [x for x in root.alloc_buffers if x in used and x.scope != "global"]

    def refused(self) -> str:
        """Say why the tiles can't be gone through so; empty if they can."""
        if not self.streamed:
            return ""
        if PIPELINE_SPECIALISED in self.tiles.steps.annotations or self.tiles.cluster:
            return "blocks whose producer copies for others, or for later, have whole tiles"
        count = as_int(self.count)
        if count is None or not as_int(self.steps):
            return "the numbers of tiles and steps must be known to divide steps among blocks"
        if not 0 < self.streamed <= count or (count - self.streamed) % self.blocks:
            return f"{self.streamed} of {count} tiles leave no whole rounds of {self.blocks} blocks"
        if self.streamed * (as_int(self.steps) or 0) < self.blocks:
            return f"{self.blocks} blocks are more than the steps that they divide"
        return ""

    def kernels(self) -> list[Stmt]:
        """The kernel of the product and, if sums are divided, the one that joins them."""
        return [self.product(), self.joined()] if self.streamed else [self.product()]

    # ---- which steps a block has ------------------------------------------------------------

    @property
    def whole(self) -> Expr:
        """The number of tiles that aren't divided."""
        return simplify(self.count - self.streamed)

    def first_step(self, block: Expr) -> Expr:
        """The first step of a block, of those that are divided."""
        return floordiv(block * (self.streamed * self.steps), self.blocks)

    def first_tile(self, block: Expr) -> Expr:
        """The tile of a block's first step, of those that are divided."""
        return floordiv(self.first_step(block), self.steps)

    def slot(self, block: Expr, tile: Expr) -> Expr:
        """Which of a block's two parts is that of a tile."""
        return select(tile == self.first_tile(block), const(0), const(1))

    def most_tiles(self) -> int:
        """How many tiles a block has steps of, at most."""
        steps = as_int(self.steps) or 1
        own = -(-self.streamed * steps // self.blocks)
        return (own + steps - 2) // steps + 1

    # ---- the product ------------------------------------------------------------------------

    def product(self) -> Stmt:
        """The kernel that computes tiles, and parts of tiles."""
        block, turn, tile = (index_var(name) for name in ("block", "turn", "tile"))
        rounds = simplify(floordiv(self.whole + self.blocks - 1, self.blocks))
        own = turn * self.blocks + block
        if self.streamed:
            body = self.divided(block, turn, tile, rounds)
            body = LetStmt(
                tile,
                select(turn < rounds, own, self.first_tile(block) + turn + self.whole - rounds),
                body,
            )
            rounds = rounds + self.most_tiles()
        else:
            axes: dict[IterVar, Expr] = {
                IterVar(Range(0, rounds), index_var("turn"), SPATIAL): turn
            }
            inside: list[For] = []
            for loop in self.tiles.cluster:
                inside.append(loop.replace(loop_var=index_var(loop.loop_var.name)))
                axes[IterVar(Range(0, loop.extent), loop.loop_var, SPATIAL)] = inside[-1].loop_var
            body = self.at(tile, axes, seq(self.tiles.sums, self.tiles.writer), self.private)
            body = LetStmt(tile, own, body)
            # Without a condition: each turn has a tile.
            rounds = floordiv(self.count - block + self.blocks - 1, self.blocks)
        body = For(turn, const(0), simplify(rounds), SERIAL, body)
        if not self.streamed:
            for loop in reversed(inside):
                body = loop.replace(body=body)
        notes = self.tiles.grid[0].annotations
        return For(block, const(0), const(self.blocks), THREAD_BINDING, body, BLOCKS, dict(notes))

    def divided(self, block: Var, turn: Var, tile: Var, rounds: Expr) -> Stmt:
        """What a block does in its turns, of which the last ones are of tiles that are divided."""
        begin, count = index_var("begin"), index_var("count")
        named = {n: index_var(n) for n in ("block", "part", "begin", "count")}
        sums = substitute(
            self.tiles.sums,
            {self.tiles.steps: self.tiles.steps.replace(min=named["begin"], extent=named["count"])},
        )
        part = self.copy_of_writer(
            "part", (named["block"], named["part"]), lambda kept, place: (place, kept)
        )
        whole = named["count"] == self.steps
        body = seq(sums, IfThenElse(whole, self.tiles.writer, part))
        slot = self.slot(block, tile - self.whole)
        axes = {
            IterVar(Range(0, self.blocks), named["block"], SPATIAL): block,
            IterVar(Range(0, rounds + self.most_tiles()), index_var("turn"), SPATIAL): turn,
            IterVar(Range(0, 2), named["part"], SPATIAL): slot,
            IterVar(Range(0, self.steps), named["begin"], SPATIAL): begin,
            IterVar(Range(0, self.steps + 1), named["count"], SPATIAL): count,
        }
        body = self.at(tile, axes, body, self.private)
        first = (tile - self.whole) * self.steps
        early = turn < rounds
        end = minimum(self.first_step(block + 1) - first, self.steps)
        start = maximum(self.first_step(block) - first, 0)
        body = IfThenElse(count > 0, body)
        body = LetStmt(count, select(early, self.steps, end - begin), body)
        return LetStmt(begin, select(early, const(0), start), body)

    def at(
        self, tile: Expr, axes: dict[IterVar, Expr], body: Stmt, private: Iterable[Buffer]
    ) -> Stmt:
        """The body of the grid for one tile, with memory of its own, as a block.

        Neighbouring tiles run at once, as in a grid. ``axes`` are what else it depends on.
        """
        inner: Expr = const(1)
        loops: list[tuple[Var, Expr]] = []
        axes = dict(axes)
        for loop in sorted(self.tiles.grid, key=lambda loop: str(loop.thread)):
            place = simplify(floormod(floordiv(tile, inner), loop.extent))
            loops.append((index_var(loop.loop_var.name), place))
            axes[IterVar(Range(0, loop.extent), loop.loop_var, SPATIAL)] = loops[-1][0]
            inner = inner * loop.extent
        block = Block(tuple(axes), (), (), self.fresh("tile"), body, None, tuple(private))
        reads, writes = block_access_regions(block)
        block = block.replace(reads=tuple(reads), writes=tuple(writes))
        body = BlockRealize(tuple(axes.values()), TRUE, block)
        for var, place in loops:
            body = For(var, place, const(1), SERIAL, body)
        return body

    # ---- what joins the parts ---------------------------------------------------------------

    def joined(self) -> Stmt:
        """The kernel that adds parts: a block for each place where steps are divided.

        The first of them in a tile does it.
        """
        block, tile = index_var("block"), index_var("tile")
        kept = self.tiles.kept.buffer
        sums = kept.with_fresh_data(name=f"{kept.name}_joined")
        here, last, other = (index_var(name) for name in ("here", "last", "other"))
        own = index_var("own")

        def part(name: str, at: Expr, of: _Assignment) -> Stmt:
            return self.copy_of_writer(name, (at, self.slot(at, own)), of)

        take = part("first_part", here, lambda load, place: (_on(load, sums), place))
        add = part(
            "next_part",
            here + 1 + other,
            lambda load, place: (_on(load, sums), _on(load, sums) + place),
        )
        add = For(other, const(0), last, SERIAL, add)
        write = renew_definitions(self.tiles.writer, {kept: sums})
        axes = {
            IterVar(Range(0, self.blocks), here, SPATIAL): block,
            IterVar(Range(0, self.streamed), own, SPATIAL): tile,
            IterVar(Range(0, self.blocks), last, SPATIAL): self.last_block(tile) - block,
        }
        body = renew_definitions(
            self.at(tile + self.whole, axes, seq(take, add, self.renamed(write)), [sums])
        )
        border, start = self.first_step(block + 1), tile * self.steps
        body = IfThenElse(and_(border > start, self.first_step(block) <= start), body)
        body = LetStmt(tile, floordiv(border, self.steps), body)
        return For(block, const(0), const(self.blocks - 1), THREAD_BINDING, body, BLOCKS)

    def last_block(self, tile: Expr) -> Expr:
        """The block that has the last step of a tile."""
        end = (tile + 1) * self.steps
        return floordiv(end * self.blocks - 1, self.streamed * self.steps)

    def copy_of_writer(self, name: str, at: tuple[Expr, Expr], of: _Assignment) -> Stmt:
        """A nest as that which writes results, of another assignment.

        ``of`` makes it of the sum, as results read it, and its place in the workspace; ``at`` is
        the block of that and which of its parts.
        """
        found = next(x for x in pre_order(self.tiles.writer) if type(x) is BlockRealize)
        axes = [
            IterVar(Range(0, extent), index_var(tag), SPATIAL)
            for tag, extent in (("block", self.blocks), ("part", 2))
        ]
        kept = self.tiles.kept
        inside = [floormod(i, const(n)) for i, n in zip(kept.indices[-2:], self.shape)]
        place = BufferLoad(self.workspace, (*(axis.var for axis in axes), *inside))
        target, value = of(kept, place)
        store = BufferStore(target.buffer, value, target.indices)
        block = Block(
            (*axes, *found.block.iter_vars),
            tuple(_element(x) for x in pre_order(value) if type(x) is BufferLoad),
            (_element(target),),
            self.fresh(name),
            store,
        )
        # All of a tile, whose sums beyond the results are those of padding: its size is known.
        realize = BlockRealize((*at, *found.iter_values), TRUE, block)
        made: Stmt = renew_definitions(substitute(self.tiles.writer, {found: realize}))
        return made

    def fresh(self, base: str) -> str:
        """A name that no block has."""
        made = fresh_name(base, self.names)
        self.names.add(made)
        return made

    def renamed(self, nest: Stmt) -> Stmt:
        """A nest with its block under another name."""
        block = next(x for x in pre_order(nest) if type(x) is Block)
        made: Stmt = substitute(nest, {block: block.replace(name=self.fresh(block.name))})
        return made


def _element(load: BufferLoad) -> BufferRegion:
    return BufferRegion(
        load.buffer, tuple(Range.from_min_extent(i, const(1)) for i in load.indices)
    )


def _on(load: BufferLoad, buffer: Buffer) -> BufferLoad:
    return BufferLoad(buffer, load.indices)
