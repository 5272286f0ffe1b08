"""Primitives that choose: tile sizes, one of several values, where to compute a block.

Each draws from the schedule's generator unless ``decision`` is given, and records what it chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

from tilewright.ir import Expr, Var, as_int
from tilewright.support.errors import ScheduleError
from tilewright.tir import For
from tilewright.tir.analysis import block_dependencies
from tilewright.tir.schedule.handles import CALCULATIONS, INLINE, ROOT, BlockRV, ExprRV, LoopRV
from tilewright.tir.schedule.instruction import PRIMITIVES, primitive
from tilewright.tir.schedule.sampling import sample_covering, sample_partitioned, sample_perfect
from tilewright.tir.schedule.state import SymbolicTile

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule

# More than any extent has prime factors.
_MOST_FACTORS = 64


def _constant_extent(sch: Schedule, loop: For) -> int:
    extent = as_int(loop.extent)
    if extent is None:
        raise sch.error(
            lambda: f"the extent {loop.extent!r} of the loop is not constant, so it has no tiles",
            loop,
            remedy="split it by constant factors, which gives a predicate",
        )
    if extent < 1:
        raise sch.error(f"the extent of the loop is {extent}: it never runs and has no tiles", loop)
    return extent


def _check_factor_count(sch: Schedule, loop: For, n: int) -> None:
    if n < 1:
        raise sch.error(f"the number of factors must be positive, got {n}", loop)
    if n > _MOST_FACTORS:
        raise sch.error(f"a tile has up to {_MOST_FACTORS} factors, got {n}", loop)


def _checked_tile(
    sch: Schedule, loop: For, extent: int, n: int, decision: Sequence[Any]
) -> list[int]:
    """Check a decision, which may come from another trace and not fit this loop."""
    made = [int(item) for item in decision]
    if len(made) != n or any(item < 1 for item in made) or prod(made) != extent:
        raise sch.error(
            f"the decision {made} is not a tile of {n} factors with product {extent}", loop
        )
    return made


def _symbolic_tile(
    sch: Schedule, extent: Expr, n: int, max_innermost: int, *, exact: bool = True
) -> list[ExprRV]:
    count = sum(len(tile.variables) for tile in sch.state.symbolic)
    variables = tuple(Var(f"v{count + position}", extent.dtype) for position in range(n))
    sch.state.symbolic.append(SymbolicTile(variables, extent, max_innermost, exact))
    return [ExprRV(var) for var in variables]


@primitive(pure=True)
def sample_perfect_tile(
    sch: Schedule,
    loop: LoopRV,
    n: int,
    max_innermost_factor: int = 16,
    decision: Sequence[int] | None = None,
) -> list[ExprRV]:
    """Choose ``n`` factors whose product is the loop's extent, uniformly among all ways.

    The last factor is at most ``max_innermost_factor`` (no limit if that is 0 or less). A symbolic
    schedule returns fresh variables and notes what is known of them in ``state.symbolic``.

    Preconditions:
        - the loop's extent is constant and positive, unless the schedule is symbolic
        - ``n`` is positive, and at most 64
        - a decision, if given, is ``n`` positive factors whose product is the extent
    """
    target = sch.state.get_loop(loop)
    _check_factor_count(sch, target, n)
    if sch.symbolic and decision is None:
        return _symbolic_tile(sch, target.extent, n, max_innermost_factor)
    extent = _constant_extent(sch, target)
    if decision is None:
        made = sample_perfect(sch.rng, extent, n, max_innermost_factor)
    else:
        made = _checked_tile(sch, target, extent, n, decision)
    sch.note(decision=made)
    return [ExprRV(item) for item in made]


@primitive(pure=True)
def sample_tile(
    sch: Schedule,
    loop: LoopRV,
    n: int,
    max_innermost_factor: int = 16,
    *,
    decision: Sequence[int] | None = None,
) -> list[ExprRV]:
    """Choose ``n`` factors that cover the loop's extent, but need not divide it.

    The last factor, at most ``max_innermost_factor`` (no limit if that is 0 or less), divides the
    extent or is a multiple of 4. The others may be rounded up as well, if the tiles are at most a
    quarter larger than the loop; the first is minimal. All such tiles are equally likely. Give them
    to ``split`` with the tail strategy of your choice. A symbolic schedule returns fresh variables
    and notes what is known of them in ``state.symbolic``.

    Preconditions:
        - the loop's extent is constant and positive, unless the schedule is symbolic
        - ``n`` is positive, and at most 64
        - a decision, if given, is ``n`` positive factors whose product covers the extent
    """
    target = sch.state.get_loop(loop)
    _check_factor_count(sch, target, n)
    if sch.symbolic and decision is None:
        return _symbolic_tile(sch, target.extent, n, max_innermost_factor, exact=False)
    extent = _constant_extent(sch, target)
    if decision is None:
        made = sample_covering(sch.rng, extent, n, max_innermost_factor)
    else:
        made = [int(item) for item in decision]
        if len(made) != n or any(item < 1 for item in made) or prod(made) < extent:
            raise sch.error(
                f"the decision {made} is not a tile of {n} factors that cover {extent}", target
            )
    sch.note(decision=made)
    return [ExprRV(item) for item in made]


@primitive(pure=True)
def sample_partitioned_tile(
    sch: Schedule,
    loop: LoopRV,
    n: int,
    partition_pos: int = 0,
    innerpart_factor: int = 1,
    decision: Sequence[int] | None = None,
) -> list[ExprRV]:
    """Choose ``n`` factors of the loop's extent, uniformly, with a divisible inner part.

    ``innerpart_factor`` divides the product of the factors from ``partition_pos`` on. A symbolic
    schedule returns fresh variables and notes what is known of them in ``state.symbolic``.

    Preconditions:
        - the loop's extent is constant and positive, unless the schedule is symbolic
        - ``partition_pos`` is a position of the ``n`` factors
        - ``innerpart_factor`` is positive and divides the extent
        - a decision, if given, is ``n`` positive factors whose product is the extent
    """
    target = sch.state.get_loop(loop)
    _check_factor_count(sch, target, n)
    if not 0 <= partition_pos < n:
        raise sch.error(f"partition_pos must be within 0 .. {n - 1}, got {partition_pos}", target)
    if innerpart_factor < 1:
        raise sch.error(f"innerpart_factor must be positive, got {innerpart_factor}", target)
    if sch.symbolic and decision is None:
        return _symbolic_tile(sch, target.extent, n, 0)
    extent = _constant_extent(sch, target)
    if decision is None:
        if extent % innerpart_factor:
            raise sch.error(
                f"innerpart_factor {innerpart_factor} does not divide the extent {extent}", target
            )
        made = sample_partitioned(sch.rng, extent, n, partition_pos, innerpart_factor)
    else:
        made = _checked_tile(sch, target, extent, n, decision)
    sch.note(decision=made)
    return [ExprRV(item) for item in made]


@primitive(pure=True)
def calculate(sch: Schedule, op: str, a: int | ExprRV, b: int | ExprRV) -> ExprRV:
    """Calculate with values: ``op`` is one of ``+``, ``-``, ``*``, ``//``, ``%``.

    A schedule that gets a formula (``sch.split(loop, [a * b, c])``) records this, so that other
    decisions for ``a`` and ``b`` give another product.

    Preconditions:
        - the operation is known
        - a divisor is not zero
    """
    if op not in CALCULATIONS:
        raise sch.error(f"unknown operation {op!r}; there are {', '.join(CALCULATIONS)}")
    x, y = (sch.get(item) if isinstance(item, ExprRV) else item for item in (a, b))
    if op in ("//", "%") and as_int(y) == 0:
        raise sch.error(f"{x!r} {op} 0 has no value")
    return ExprRV(CALCULATIONS[op](x, y))


@primitive(pure=True)
def sample_categorical(
    sch: Schedule,
    candidates: Sequence[int],
    probs: Sequence[float],
    decision: int | None = None,
) -> ExprRV:
    """Choose one of ``candidates`` with the given probabilities; the decision is its position.

    Preconditions:
        - there are as many probabilities as candidates, and at least one
        - probabilities are not negative, and not all zero
        - a decision, if given, is a position of the candidates
    """
    if not candidates or len(candidates) != len(probs):
        raise sch.error(
            f"there are {len(candidates)} candidates but {len(probs)} probabilities; "
            "there must be as many, and at least one"
        )
    if min(probs) < 0 or sum(probs) <= 0:
        raise sch.error(f"probabilities can't be negative, and not all zero: {list(probs)}")
    if decision is None:
        decision = sch.rng.pick(list(accumulate(probs)))
    elif not 0 <= decision < len(candidates):
        raise sch.error(f"the decision {decision} is not within 0 .. {len(candidates) - 1}")
    sch.note(decision=int(decision))
    return ExprRV(candidates[decision])


@primitive(pure=True)
def sample_compute_location(sch: Schedule, block: BlockRV, decision: int | None = None) -> LoopRV:
    """Choose where a block is computed.

    That is a loop of its consumers, inline (decision -2), or where it is (decision -1), uniformly
    among the legal choices. Pass the result to ``compute_at``, which accepts all three.

    Preconditions:
        - the block is inside another block
        - a decision, if given, is -2, -1 or the position of a loop around all consumers
    """
    realize = sch.state.get_block(block)
    loops = consumer_loops(sch, block)
    if decision is None:
        decision = _draw_location(sch, block, loops)
    elif not -2 <= decision < len(loops):
        raise sch.error(
            f"the decision {decision} is not -2 (inline), -1 (stay) or one of the {len(loops)} "
            "loops around the consumers",
            realize,
        )
    sch.note(decision=int(decision))
    if decision < 0:
        return LoopRV(block.func, None, INLINE if decision == -2 else ROOT)
    return LoopRV(block.func, loops[decision].loop_var)


def consumer_loops(sch: Schedule, block: BlockRV) -> list[For]:
    """Return the loops that are around all consumers of a block, the outermost first."""
    state = sch.state
    realize = state.get_block(block)
    graph = block_dependencies(state.scope_block(realize))
    common: list[For] | None = None
    own = set(state.loops_above(realize))
    for name in graph.consumers(realize.block.name):
        above = state.loops_above(graph.children[name])
        if common is None:
            common = above
        else:
            together = [a for a, b in zip(common, above) if a is b]
            common = together
    return [loop for loop in common or () if loop not in own]


def _draw_location(sch: Schedule, block: BlockRV, loops: list[For]) -> int:
    """Draw a legal location; one that the primitives refuse is not drawn again.

    All legal locations are equally likely, and few have to be tried.
    """
    state = sch.state
    places = list(range(-2, len(loops)))
    while True:
        place = places.pop(sch.rng.below(len(places)))
        if place == -1:
            return place
        saved = state.snapshot()
        try:
            if place == -2:
                PRIMITIVES.get("compute_inline").function(sch, block)
            else:
                at = LoopRV(block.func, loops[place].loop_var)
                PRIMITIVES.get("compute_at").function(sch, block, at)
        except ScheduleError:
            continue
        finally:
            state.restore(saved)
        return place
