"""Primitives that split one loop into consecutive ones, and merge several into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import Expr, Var, add, as_int, const, is_const
from tilewright.tir import BlockRealize, For, SeqStmt, Stmt, seq
from tilewright.tir.analysis.dependency import has_outside_effect
from tilewright.tir.schedule.handles import LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.iterations import apart
from tilewright.tir.schedule.legality import check_one_name, check_only_blocks
from tilewright.tir.schedule.primitives._index_set_splitting import subrange_of
from tilewright.tir.schedule.primitives._rewrite import rewrite_outside_blocks, substitute_index
from tilewright.tir.schedule.primitives.loops import check_serial_loop, resolve_factors
from tilewright.tir.schedule.vocabulary import Factor
from tilewright.tir.schedule.zero_trips import analyzer_where_begun
from tilewright.tir.walk import child_blocks

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def loop_partition(
    sch: Schedule,
    loop: LoopRV,
    factors: Sequence[Factor],
    preserve_unit_iters: bool = True,
) -> list[LoopRV]:
    """Split the range of a loop into consecutive loops, one per factor, and return these.

    One factor may be ``None``: it becomes the remainder. Without it, a remainder becomes an
    additional loop. All loops start at 0, so that they can be scheduled further. Each has its own
    blocks, named by loop variable and number: ``B`` becomes ``B_i0``, ``B_i1``, … below ``i``; the
    old handle of ``B`` refers to the first. Predicates that always hold in a subrange are dropped
    there. With ``preserve_unit_iters=False`` variables of subranges of extent 1 don't occur in the
    bindings.

    Preconditions:
        - the loop is serial, starts at 0 and carries no annotations
        - there is at least one factor, at most one is None, and numbers are positive
        - the factors provably add up to no more than the extent, and to less if one is None
    Before:
        for i in range(100):
            with T.block("B"):
                vi = T.axis.spatial(100, i)
                B[vi] = A[vi] * T.float32(2)
    After ``loop_partition(i, [1, None])``:
        for i0 in range(1):
            with T.block("B_i0"):
                vi = T.axis.spatial(100, i0)
                B[vi] = A[vi] * T.float32(2)
        for i1 in range(99):
            with T.block("B_i1"):
                vi = T.axis.spatial(100, i1 + 1)
                B[vi] = A[vi] * T.float32(2)
    """
    target = sch.state.get_loop(loop)
    check_serial_loop(sch, target)
    given = resolve_factors(sch, factors, target)
    extents = _adding_up(sch, target, given)
    dtype, name = target.loop_var.dtype, target.loop_var.name
    taken = set(sch.state.index(loop.func).blocks)
    renamed: dict[str, str] = {}
    start: Expr = const(0, dtype)
    variables, parts = [], []
    for number, extent in enumerate(extents):
        var = Var(f"{name}{number}", dtype)
        keep = preserve_unit_iters or not is_const(extent, 1)
        parts.append(
            subrange_of(
                sch,
                target,
                var,
                extent,
                add(var, start) if keep else start,
                suffix=f"_{name}{number}",
                taken=taken,
                renamed=None if number else renamed,
            )
        )
        variables.append(var)
        start = add(start, extent)
    sch.state.replace(target, seq(parts))
    for old, new in renamed.items():
        sch.state.note_rename(loop.func, old, new)
    return [LoopRV(loop.func, var) for var in variables]


def _adding_up(sch: Schedule, loop: For, given: Sequence[Expr | None]) -> list[Expr]:
    """Return the extents of all parts, in order."""
    extent = loop.extent
    total: Expr = const(0, loop.loop_var.dtype)
    for item in given:
        if item is not None:
            total = add(total, item)
    known = analyzer_where_begun(sch.state, loop)
    total = known.simplify(total)
    left = known.simplify(extent - total)
    least = 1 if None in given else 0
    number = as_int(left)
    fits = number >= least if number is not None else known.can_prove_ge(left, least)
    if not fits:
        raise sch.error(
            f"the factors add up to {total!r}, which is not known to be "
            f"{'less' if least else 'no more'} than the extent {extent!r}",
            loop,
            remedy="give smaller factors",
        )
    if least:
        return [left if item is None else item for item in given]
    parts = [item for item in given if item is not None]
    return parts if number == 0 else [*parts, left]


@primitive
def merge(sch: Schedule, *loops: LoopRV) -> LoopRV:
    """Merge several consecutive loops into one that runs their bodies in turn.

    Each given loop may have its own enclosing loops, equal in number and extents; these are merged
    as well. Returns the innermost merged loop.

    Preconditions:
        - there are at least two loops, all of one function and different
        - the loops and those around each are serial, start at 0 and carry no annotations
        - each loop is the only statement in the loops around it that are merged as well
        - the loops are equally deep below what is around all of them, and have equal extents
        - nothing is between the loops, which are in one sequence
        - only blocks that declare what they write are below the loops; memory has one name, and
          side effects other than writes are below one loop at most
        - no block uses or overwrites what an earlier loop would touch in a later iteration only
    Before:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] * T.float32(2)
        for i in range(16):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = B[vi] + T.float32(1)
    After ``merge(i, j)``:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] * T.float32(2)
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = B[vi] + T.float32(1)
    """
    if len(loops) < 2:
        raise sch.error("merge needs at least two loops")
    targets = [sch.state.get_loop(item) for item in loops]
    if len(set(targets)) != len(targets) or len({item.func for item in loops}) > 1:
        raise sch.error("the loops must be different ones of one function", *targets)
    nests = _nests(sch, loops[0].func, targets)
    for around in nests:
        for item in around:
            check_serial_loop(sch, item)
    _check_equal_extents(sch, nests)
    parents = sch.state.index(loops[0].func).parents
    sequence = parents[nests[0][0]]
    if type(sequence) is not SeqStmt:
        raise sch.error("the loops don't come one after the other in one sequence", *targets)
    _check_adjacent(sch, sequence, nests)
    order = sorted(nests, key=lambda around: sequence.stmts.index(around[0]))
    for position, later in enumerate(order):
        for earlier in order[:position]:
            _check_mergeable(sch, earlier, later)
    merged = _merged(order)
    gone = {around[0] for around in order[1:]}
    rest = [merged if item is order[0][0] else item for item in sequence.stmts if item not in gone]
    sch.state.replace(sequence, seq(rest))
    return LoopRV(loops[0].func, order[0][-1].loop_var)


def _nests(sch: Schedule, func_name: str, targets: list[For]) -> list[list[For]]:
    """Return, for each loop, the loops from their common ancestor down to it."""
    parents = sch.state.index(func_name).parents
    paths: list[list[Any]] = []
    for target in targets:
        path: list[Any] = [target]
        while parents[path[-1]] is not None:
            path.append(parents[path[-1]])
        path.reverse()
        paths.append(path)
    shared = 0
    while all(len(path) > shared + 1 and path[shared] is paths[0][shared] for path in paths):
        shared += 1
    nests = [path[shared:] for path in paths]
    if len({nest[0] for nest in nests}) < len(nests):
        raise sch.error("one of the loops is inside another", *targets)
    for nest in nests:
        for item in nest:
            if type(item) is not For:
                raise sch.error(
                    f"loop {nest[-1].loop_var.name!r} is not the only statement in the loops "
                    "around it that would be merged",
                    nest[-1],
                    remedy="merge the outer loops first",
                )
    return nests


def _check_equal_extents(sch: Schedule, nests: list[list[For]]) -> None:
    first = nests[0]
    known = sch.state.analyzer_at(first[0])
    for nest in nests[1:]:
        if len(nest) != len(first):
            raise sch.error(
                f"loop {first[-1].loop_var.name!r} is {len(first)} deep below what is around "
                f"all, loop {nest[-1].loop_var.name!r} {len(nest)}",
                first[-1],
                nest[-1],
            )
        for mine, other in zip(first, nest):
            if not known.can_prove_equal(mine.extent, other.extent):
                raise sch.error(
                    f"loops {mine.loop_var.name!r} and {other.loop_var.name!r} are not known to "
                    f"have equal extents: {mine.extent!r} and {other.extent!r}",
                    mine,
                    other,
                )


def _check_adjacent(sch: Schedule, sequence: SeqStmt, nests: list[list[For]]) -> None:
    places = sorted(sequence.stmts.index(nest[0]) for nest in nests)
    for place in range(places[0], places[-1]):
        if place not in places:
            raise sch.error(
                "something is between the loops, and would come to be after them",
                sequence.stmts[place],
                remedy="merge that as well, or move it away",
            )


def _check_mergeable(sch: Schedule, earlier: list[For], later: list[For]) -> None:
    """Refuse if a block below ``later`` must wait for more than one iteration of ``earlier``."""
    sides: list[list[BlockRealize]] = []
    for nest, other in ((earlier, later), (later, earlier)):
        written = [r for item in child_blocks(other[-1].body) for r in item.block.writes]
        check_only_blocks(sch, nest[-1].body, "running the loops together", written)
        sides.append(child_blocks(nest[-1].body))
        for realize in sides[-1]:
            if not realize.block.writes:
                raise sch.error(
                    f"block {realize.block.name!r} declares no writes, so nothing is known of "
                    "what must come before it",
                    realize,
                )
    check_one_name(sch, [*sides[0], *sides[1]], "running the loops together")
    for source in sides[0]:
        for target in sides[1]:
            a, b = source.block, target.block
            if has_outside_effect(a) and has_outside_effect(b):
                raise sch.error(
                    f"blocks {a.name!r} and {b.name!r} both have effects outside of any buffer, "
                    "whose order must stay",
                    target,
                    source,
                )
            for first, second in ((a.writes, b.reads), (a.writes, b.writes), (a.reads, b.writes)):
                used = {region.buffer for region in second}
                for buffer in dict.fromkeys(region.buffer for region in first):
                    if buffer in used and not apart(
                        sch.state,
                        (source, first, earlier),
                        (target, second, later),
                        buffer,
                        ordered=True,
                    ):
                        raise sch.error(
                            f"block {b.name!r} may use or overwrite elements of {buffer.name!r} "
                            f"that block {a.name!r} touches in a later iteration only",
                            target,
                            source,
                            remedy="choose loops over what both have in common, or compute_at",
                        )


def _merged(nests: list[list[For]]) -> For:
    first = nests[0]
    bodies = [first[-1].body, *(_renamed(nest, first) for nest in nests[1:])]
    made = first[-1].replace(body=seq(bodies))
    for item in reversed(first[:-1]):
        made = item.replace(body=made)
    return made


def _renamed(nest: list[For], first: list[For]) -> Stmt:
    """Return the body of a nest in terms of the loops of another."""
    mapping: dict[Var, Expr] = {other.loop_var: mine.loop_var for mine, other in zip(first, nest)}
    body: Stmt = rewrite_outside_blocks(nest[-1].body, lambda expr: substitute_index(expr, mapping))
    return body
