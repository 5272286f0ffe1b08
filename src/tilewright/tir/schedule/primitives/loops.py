"""Primitives that reshape loop nests: split, fuse, reorder, add_unit_loop, reorder_block_iter_var.

Loops outside a block are visible to the block only through its bindings and predicate, so these
primitives rewrite nothing inside blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    INDEX,
    Expr,
    IntImm,
    Range,
    ScalableLanes,
    Var,
    as_int,
    ceildiv,
    const,
    floordiv,
    floormod,
    found_lanes,
    free_vars,
    is_const,
    lane_count,
    product,
    uses_var,
)
from tilewright.tir import SERIAL, BlockRealize, For, Stmt
from tilewright.tir.analysis import has_division
from tilewright.tir.schedule.handles import BlockRV, ExprRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.legality import check_reorder
from tilewright.tir.schedule.primitives._rewrite import (
    flattened,
    nest,
    rewrite_outside_blocks,
    substitute_index,
)
from tilewright.tir.schedule.primitives._split_tails import (
    check_guard_unneeded,
    overlap,
    pad,
    peel,
)
from tilewright.tir.schedule.vocabulary import TAILS, Factor, Tail
from tilewright.tir.schedule.zero_trips import (
    check_fused_alike,
    check_guard_keeps_inits,
    check_means_nothing,
    surely_at_least,
)
from tilewright.tir.walk import scope_statements

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


def check_serial_loop(sch: Schedule, loop: For) -> None:
    """Refuse a loop with a kind, start or annotations that reshaping would lose."""
    if loop.annotations:
        raise sch.error(
            lambda: f"loop {loop.loop_var.name!r} has annotations {sorted(loop.annotations)}",
            loop,
            remedy="unannotate it first, or annotate after reshaping",
        )
    if loop.kind != SERIAL:
        raise sch.error(
            lambda: (
                f"loop {loop.loop_var.name!r} is {loop.kind}"
                + (f" on {loop.thread}" if loop.thread else "")
                + ", and would lose that"
            ),
            loop,
            remedy="reshape loops first, then mark them parallel, vectorized, unrolled or bound",
        )
    if not is_const(loop.min, 0):
        raise sch.error(
            lambda: f"loop {loop.loop_var.name!r} starts at {loop.min!r}; only 0 is supported",
            loop,
        )


def resolve_factor(sch: Schedule, factor: Factor, loop: For) -> Expr:
    """Turn a factor into an expression; numbers must be positive.

    Lanes of scalable vectors are counted as the loop counts.
    """
    value = factor.value if isinstance(factor, ExprRV) else factor
    if not isinstance(value, Expr):
        value = const(int(value), loop.loop_var.dtype)  # type: ignore[arg-type]
    lanes = found_lanes(value)
    if isinstance(lanes, ScalableLanes):
        value = lane_count(lanes, loop.loop_var.dtype)
    number = as_int(value)
    if number is not None and number < 1:
        raise sch.error(f"a factor must be positive, got {number}", loop)
    return value


def resolve_factors(sch: Schedule, factors: Sequence[Factor], loop: For) -> list[Expr | None]:
    """Turn the factors of a loop into expressions; one of them may be ``None``."""
    if not factors:
        raise sch.error("at least one factor is needed", loop)
    if sum(factor is None for factor in factors) > 1:
        raise sch.error("at most one factor may be None", loop)
    return [None if factor is None else resolve_factor(sch, factor, loop) for factor in factors]


def drawn_for(sch: Schedule, factors: Sequence[Expr], extent: Expr) -> bool | None:
    """Whether symbolic tile factors were drawn for ``extent`` and multiply to exactly it."""
    for tile in sch.state.symbolic:
        if len(tile.variables) == len(factors) and all(
            any(var is factor for factor in factors) for var in tile.variables
        ):
            left, right = as_int(tile.extent), as_int(extent)
            if tile.extent is extent or (left is not None and left == right):
                return tile.exact
    return None


@primitive
def split(
    sch: Schedule,
    loop: LoopRV,
    factors: Sequence[Factor],
    preserve_unit_iters: bool = True,
    disable_predication: bool = False,
    *,
    tail: Tail = "predicate",
) -> list[LoopRV]:
    """Split one loop into a nest of loops, one per factor, the first outermost.

    One factor may be ``None``: it is inferred so as to cover the loop. With
    ``preserve_unit_iters=False`` constant factors of 1 don't occur in the blocks' bindings.

    ``tail`` says how the last tile runs if the factors don't divide the extent:

    - ``"predicate"``: as a full tile, and blocks below get a predicate. With
      ``disable_predication=True`` they get none, for loops whose blocks already have predicates
      that imply it.
    - ``"peel"``: the returned nest runs only full tiles; a loop over the remainder follows. Blocks
      there are copies, named with ``_tail``: ``get_loops("B_tail")``. The factor that is ``None``,
      else the first, becomes the number of full tiles.
    - ``"pad"``: as a full tile without a predicate; the intermediate buffers that blocks below
      write are enlarged.
    - ``"overlap"``: it begins earlier, so that it ends where the loop did and computes some
      elements a second time.

    Preconditions:
        - the loop is serial, starts at 0 and carries no annotations
        - there is at least one factor, at most one is None, and numbers are positive
        - the factors provably cover the extent
        - ``tail`` is one of the four, and disable_predication is used only with "predicate"
        - without predication, the factors divide the extent or the blocks have predicates that
          keep them inside the loop
        - a loop that runs an init when it is empty is split into loops one of which is then empty
          too
        - no branch is needed (because what runs reads memory) between a loop that may be empty and
          the init that it runs then
        - to infer a factor, the others are at least 1
        - to peel, there is a full tile
        - to peel, the extent is not negative
        - to pad, each block below has the loop itself as a spatial iteration variable
        - to pad, each block writes buffers of its scope, indexed by that variable alone, and
          nothing relies on their layout
        - to pad, each block still reads inside of buffers, and does nothing but store
        - to overlap, the loop is provably no shorter than a tile
        - to overlap, only blocks are below the loop, and each iteration can run again: it does not
          update what it finds, and all of a reduction is inside
    Before:
        for i in range(100):
            with T.block("B"):
                vi = T.axis.spatial(100, i)
                B[vi] = A[vi] * T.float32(2)
    After ``split(i, [None, 16])``:
        for i_0, i_1 in T.grid(7, 16):
            with T.block("B"):
                vi = T.axis.spatial(100, i_0 * 16 + i_1)
                T.where(i_0 * 16 + i_1 < 100)
                B[vi] = A[vi] * T.float32(2)
    """
    target = sch.state.get_loop(loop)
    check_serial_loop(sch, target)
    given = resolve_factors(sch, factors, target)
    if disable_predication and tail != TAILS[0]:
        raise sch.error(f"disable_predication makes no sense with tail={tail!r}", target)
    extents, perfect = _covering(sch, target, given)
    if None not in given and not perfect:
        check_means_nothing(sch, target, "tiles that are there all the same")
    name = target.loop_var.name
    variables = [Var(f"{name}_{n}", target.loop_var.dtype) for n in range(len(extents))]
    if perfect or tail == TAILS[0]:
        value = flattened(variables, extents, preserve_unit_iters)
        guard = None if perfect else value < target.extent
        if guard is not None and disable_predication:
            check_guard_unneeded(sch, target)
            guard = None
        mapping = {target.loop_var: value}
        body = rewrite_outside_blocks(
            target.body, lambda expr: substitute_index(expr, mapping), guard
        )
        if guard is not None:
            check_guard_keeps_inits(sch, target, body, guard)
        old, new = target, nest(variables, extents, body)
    elif tail == "peel":
        old, new = peel(sch, target, given, variables, preserve_unit_iters)
    elif tail == "pad":
        old, new = pad(sch, target, extents, variables, preserve_unit_iters)
    else:
        old, new = overlap(sch, target, extents, variables, preserve_unit_iters)
    sch.state.replace(old, new)
    return [LoopRV(loop.func, var) for var in variables]


def _covering(sch: Schedule, loop: For, given: Sequence[Expr | None]) -> tuple[list[Expr], bool]:
    """Return the extents of the new loops, and whether their product is the loop's extent."""
    extent, dtype = loop.extent, loop.loop_var.dtype
    there = [item for item in given if item is not None]
    numbers = [as_int(item) for item in there]
    size = as_int(extent)
    if len(there) < len(given):
        total = product(there)
        number = as_int(total)
        if size is not None and number is not None:
            inferred: Expr = const(-(-size // number), dtype)
            perfect = size % number == 0
        else:
            if not surely_at_least(sch.state, loop, total, 1):
                raise sch.error(
                    f"tiles of {total!r} iterations may be empty",
                    loop,
                    remedy="choose factors that are at least 1",
                )
            analyzer = sch.state.analyzer_at(loop)
            perfect = analyzer.can_prove_equal(floormod(extent, total), 0)
            # Where the loop is empty, so is what is inferred.
            inferred = sch.state.analyzer_at(loop).simplify(
                floordiv(extent, total) if perfect else ceildiv(extent, total)
            )
        return [inferred if item is None else item for item in given], perfect
    if size is not None and None not in numbers:
        number = prod(numbers)  # type: ignore[arg-type]
        if number < size:
            raise sch.error(
                f"the factors multiply to {number}, which does not cover the extent {size}",
                loop,
                remedy="give None for one factor",
            )
        return there, number == size
    known = drawn_for(sch, there, extent)
    if known is not None:
        return there, known
    analyzer = sch.state.analyzer_at(loop)
    total = product(there)
    perfect = analyzer.can_prove_equal(total, extent)
    if not perfect and not analyzer.can_prove(total >= extent):
        raise sch.error(
            lambda: f"the factors are not known to cover the extent {extent!r}",
            loop,
            remedy="give None for one factor",
        )
    return there, perfect


@primitive
def fuse(sch: Schedule, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
    """Fuse a chain of directly nested loops, given outermost first, into one.

    With ``preserve_unit_iters=False`` loops of extent 1 don't occur in the bindings.

    Preconditions:
        - there is at least one loop
        - the loops are serial, start at 0 and carry no annotations
        - each loop is the only statement directly inside the one before it
        - no extent depends on a loop to be fused, and none but the first is known to be 0
        - loops that may be empty then do the same as the fused one: the same inits, or nothing
        - no more than one extent may be negative
    Before:
        for i, j in T.grid(64, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    After ``fuse(i, j)``:
        for i_j_fused in range(1024):
            with T.block("B"):
                vi = T.axis.spatial(64, i_j_fused // 16)
                vj = T.axis.spatial(16, i_j_fused % 16)
                B[vi, vj] = A[vi, vj] * T.float32(2)
    """
    if not loops:
        raise sch.error("fuse needs at least one loop")
    chain = [sch.state.get_loop(item) for item in loops]
    for item in chain:
        check_serial_loop(sch, item)
    for outer, inner in pairwise(chain):
        if outer.body is not inner:
            raise sch.error(
                f"loop {inner.loop_var.name!r} is not the only statement directly inside "
                f"loop {outer.loop_var.name!r}",
                inner,
                remedy="give the loops from outer to inner without gaps; reorder brings them there",
            )
    variables = {item.loop_var for item in chain}
    for item in chain[1:]:
        if type(item.extent) is not IntImm and uses_var(item.extent, variables):
            raise sch.error(
                f"the extent of loop {item.loop_var.name!r} depends on a loop to be fused",
                item,
            )
        if is_const(item.extent, 0):
            raise sch.error(f"loop {item.loop_var.name!r} never runs", item)
    if len(chain) == 1:
        return LoopRV(loops[0].func, chain[0].loop_var)
    name = "_".join(item.loop_var.name for item in chain) + "_fused"
    fused = Var(name, chain[0].loop_var.dtype)
    mapping: dict[Var, Expr] = {}
    rest: Expr = fused
    kept = [item for item in chain if preserve_unit_iters or not is_const(item.extent, 1)]
    for item in chain:
        if item not in kept:
            mapping[item.loop_var] = const(0, item.loop_var.dtype)
    for item in reversed(kept[1:]):
        mapping[item.loop_var] = floormod(rest, item.extent)
        rest = floordiv(rest, item.extent)
    if kept:
        mapping[kept[0].loop_var] = rest
    extent = product([item.extent for item in chain])
    simplify = _Simplifier(sch, chain[0], variables, {fused: extent}, chain[-1].body)
    body = rewrite_outside_blocks(
        chain[-1].body, lambda expr: simplify(expr, substitute_index(expr, mapping))
    )
    made = For(fused, const(0, fused.dtype), extent, SERIAL, body)
    check_fused_alike(sch, chain, made)
    sch.state.replace(chain[0], made)
    return LoopRV(loops[0].func, fused)


class _Simplifier:
    """Simplifies bindings that a rewrite turned into quotients."""

    def __init__(
        self, sch: Schedule, at: For, fused: set[Var], extents: dict[Var, Expr], body: Stmt
    ) -> None:
        self.sch, self.at, self.fused, self.extents, self.body = sch, at, fused, extents, body
        self.analyzer: Any = None

    def __call__(self, old: Expr, new: Expr) -> Expr:
        if new is old or type(new) in (Var, IntImm) or type(old) is Var:
            return new
        # Two fused loops in one sum may join again, and quotients may cancel; else nothing can.
        if not has_division(old) and sum(var in self.fused for var in free_vars(old)) < 2:
            return new
        if self.analyzer is None:
            self.analyzer = loop_analyzer(self.sch, self.at, self.extents, self.body)
        made: Expr = self.analyzer.simplify(new)
        # Of a loop without iterations all is false, but what a reduction over it starts with.
        return new if is_const(made, 0) and made.dtype == "bool" else made


def loop_analyzer(sch: Schedule, at: For, extents: dict[Var, Expr], body: Stmt) -> Analyzer:
    """Return an analyzer for below ``at``, where loops ``extents`` replace it."""
    analyzer = sch.state.analyzer_at(at)
    for var, extent in extents.items():
        analyzer.bind(var, Range.from_min_extent(const(0, var.dtype), extent))
    for stmt in scope_statements(body):
        if type(stmt) is For:
            analyzer.bind(stmt.loop_var, Range.from_min_extent(stmt.min, stmt.extent))
    return analyzer


@primitive
def reorder(sch: Schedule, *loops: LoopRV) -> None:
    """Reorder loops of one nest, the first named outermost.

    Loops of the nest that are not named stay where they are.

    Preconditions:
        - there is at least one loop, and each is named once
        - the loops are in one nest without other statements between them
        - no loop's bounds depend on a loop that would end up inside it
        - only blocks are below the loops
        - blocks below are complete, reductions or updates in place
        - instances of a reduction over the loops all differ
        - updates of a reduction commute, by a known reducer or evidently, or those of each element
          keep their order
        - a reduction with init still starts with the instance that has it
        - no other block below shares a buffer with a reduction over the loops
        - no iteration uses or overwrites what another one makes
    Before:
        for i, j in T.grid(64, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    After ``reorder(j, i)``:
        for j, i in T.grid(16, 64):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    """
    if not loops:
        raise sch.error("reorder needs at least one loop")
    ordered = [sch.state.get_loop(item) for item in loops]
    named = set(ordered)
    if len(named) != len(ordered):
        raise sch.error("a loop is named twice", *ordered[:1])
    chain = _chain_of(sch, ordered, named)
    # The named loops take the places that named loops had, in the order given.
    queue = iter(ordered)
    made = [next(queue) if item in named else item for item in chain]
    if all(new is old for new, old in zip(made, chain)):
        return
    _check_bounds_allow(sch, made)
    check_reorder(sch, chain, made)
    body = chain[-1].body
    for item in reversed(made):
        body = For(
            item.loop_var, item.min, item.extent, item.kind, body, item.thread, item.annotations
        )
    sch.state.replace(chain[0], body)


def _chain_of(sch: Schedule, ordered: list[For], named: set[For]) -> list[For]:
    """Return the loops from the outermost to the innermost named one, which must be a chain."""
    parents = sch.state.index(sch.state.func_name_of(ordered[0])).parents
    # The innermost named loop is the one that has all others above it.
    for start in ordered:
        chain: list[For] = []
        left = set(named)
        current = start
        while type(current) is For:
            chain.append(current)
            left.discard(current)
            if not left:
                return list(reversed(chain))
            current = parents[current]
    raise sch.error(
        "the loops are not in one nest without other statements between them",
        *ordered,
        remedy="only loops with nothing but each other inside can change places",
    )


def _check_bounds_allow(sch: Schedule, made: list[For]) -> None:
    inside: set[Var] = set()
    for item in reversed(made):
        for bound in (item.min, item.extent):
            if type(bound) is not IntImm and inside and uses_var(bound, inside):
                raise sch.error(
                    f"the bounds of loop {item.loop_var.name!r} depend on a loop "
                    "that would come to be inside it",
                    item,
                )
        inside.add(item.loop_var)


@primitive
def add_unit_loop(sch: Schedule, block_or_loop: BlockRV | LoopRV) -> LoopRV:
    """Put a loop of extent 1 around a block or loop.

    Preconditions:
        - a block is inside another block
    Before:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] * T.float32(2)
    After ``add_unit_loop("B")``:
        for i, u in T.grid(16, 1):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] * T.float32(2)
    """
    target: Any
    if isinstance(block_or_loop, BlockRV):
        target = sch.state.get_block(block_or_loop)
        if sch.state.parent(target) is None:
            raise sch.error("the root block can't be inside a loop", target)
    else:
        target = sch.state.get_loop(block_or_loop)
    var = Var("u", INDEX)
    sch.state.replace(target, For(var, const(0), const(1), SERIAL, target))
    return LoopRV(block_or_loop.func, var)


@primitive
def reorder_block_iter_var(sch: Schedule, block: BlockRV, new_order: Sequence[int]) -> None:
    """Reorder the iteration variables of a block.

    ``new_order`` lists the old position of each variable. Loops are unchanged.

    Preconditions:
        - ``new_order`` names each position of an iteration variable once
    Before:
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    After ``reorder_block_iter_var("B", [1, 0])``:
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vj, vi = T.axis.remap("SS", [j, i])
                B[vi, vj] = A[vi, vj] * T.float32(2)
    """
    realize = sch.state.get_block(block)
    count = len(realize.block.iter_vars)
    if sorted(new_order) != list(range(count)):
        raise sch.error(
            f"{list(new_order)} is not an order of the positions 0 .. {count - 1} of the block's "
            "iteration variables",
            realize,
        )
    if list(new_order) == list(range(count)):
        return
    iter_vars = tuple(realize.block.iter_vars[place] for place in new_order)
    values = tuple(realize.iter_values[place] for place in new_order)
    made = BlockRealize(values, realize.predicate, realize.block.replace(iter_vars=iter_vars))
    sch.state.replace(realize, made)
