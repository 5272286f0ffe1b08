"""``blockize``: turning a nest, or several consecutive blocks, into a block.

Each iteration variable inside is divided: ``value = outer * extent + inner``, where ``outer``, over
the loops outside, goes to the new block, and ``inner``, over the loops inside, stays with the old
one. The last outer iteration may be partial; the condition for that stays with the inner block, in
terms of the iteration variables of the outer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Expr,
    Range,
    Var,
    add,
    and_,
    expr_equal,
    free_vars,
    is_const,
    pre_order,
    sub,
    substitute,
    uses_var,
)
from tilewright.tir import (
    REDUCE,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    For,
    IterVar,
    SeqStmt,
    seq,
)
from tilewright.tir.analysis.regions import same_box, union_box
from tilewright.tir.schedule.arguments import CONVERTERS
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._division import Division
from tilewright.tir.schedule.zero_trips import surely_runs
from tilewright.tir.stmt import Stmt
from tilewright.tir.walk import child_blocks, scope_statements

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


def _target(value: object) -> Any:
    if type(value) is LoopRV:
        return value
    return CONVERTERS["Sequence[BlockRV]"](value)


CONVERTERS["LoopRV | Sequence[BlockRV]"] = _target


@primitive
def blockize(
    sch: Schedule, target: LoopRV | Sequence[BlockRV], preserve_unit_iters: bool = True
) -> BlockRV:
    """Turn a nest, or several consecutive blocks, into one outer block.

    ``target`` is a loop, whose nest is taken with all blocks in it, or a list of blocks: the
    statements from the first to the last of them are taken. ``preserve_unit_iters=False`` drops
    iteration variables of the new block that have only one value. Returns the new block, named
    after the first one inside. The init of a single reduction moves to the new block.

    Preconditions:
        - the statements taken contain the blocks given and no others
        - there are only loops and blocks among them, and no extent depends on another loop
        - the given blocks are different and in one scope
        - each binding is ``outer * extent + inner``: over loops outside, and over loops inside that
          together fill the box from zero to their extents, which are not zero
        - conditions on loops inside only keep bindings inside their domains
        - a reduction is alone, or all its loops are inside
        - the init of a single reduction does not leave loops that are bound to threads
        - if that init covers several instances, none uses elements of another
        - all loops inside a reduction are used by its bindings
        - a reduction axis of one block is no spatial axis of another
        - with several blocks, any that could leave an axis's domain are kept in it by conditions
          that all of them have
    Before:
        for i0, i1 in T.grid(8, 16):
            with T.block("B"):
                vi = T.axis.spatial(128, i0 * 16 + i1)
                B[vi] = A[vi] * T.float32(2)
    After ``blockize(i1)``:
        for i0 in range(8):
            with T.block("B_o"):
                vi_o = T.axis.spatial(8, i0)
                for i1 in range(16):
                    with T.block("B"):
                        vi_i = T.axis.spatial(16, i1)
                        B[vi_o * 16 + vi_i] = A[vi_o * 16 + vi_i] * T.float32(2)
    """
    if isinstance(target, LoopRV):
        func_name, loop = target.func, sch.state.get_loop(target)
        run: list[Any] = [loop]
        blocks = child_blocks(loop)
    else:
        func_name, blocks, run = _run_of(sch, target)
    for stmt in (item for top in run for item in scope_statements(top)):
        if type(stmt) not in (For, SeqStmt, BlockRealize):
            raise sch.error(
                f"a {type(stmt).__name__} outside of blocks is among the statements taken",
                stmt,
                remedy="only loops and blocks can be taken into a block",
            )
    divisions = [Division(sch, run, realize, preserve_unit_iters) for realize in blocks]
    name = sch.state.fresh_block_name(func_name, f"{blocks[0].block.name}_o")
    outer = _Outer(sch, func_name, run, divisions).build(name)
    if len(run) == 1:
        sch.state.replace(run[0], outer)
    else:
        parent = sch.state.parent(run[0])
        first = parent.stmts.index(run[0])
        rest = parent.stmts[first + len(run) :]
        sch.state.replace(parent, seq(*parent.stmts[:first], outer, *rest))
    return BlockRV(func_name, name)


def _run_of(sch: Schedule, handles: Sequence[BlockRV]) -> tuple[str, list[BlockRealize], list[Any]]:
    """Return the adjacent statements that contain the given blocks and no others."""
    state = sch.state
    if not handles:
        raise sch.error("there is no block to take", remedy="give a loop, or at least one block")
    given = [state.get_block(handle) for handle in handles]
    func_name = handles[0].func
    scopes = {state.scope_realize(realize) for realize in given}
    if len(set(given)) < len(given) or len(scopes) > 1 or None in scopes:
        raise sch.error("the blocks must be different and in one scope", *given)
    paths = []
    for realize in given:
        around = list(state.parents(realize))
        paths.append([*reversed(around), realize])
    depth = 0
    while all(len(path) > depth + 1 for path in paths) and len({p[depth] for p in paths}) == 1:
        depth += 1
    tops = [path[depth] for path in paths]
    parent = paths[0][depth - 1]
    if type(parent) is SeqStmt and len(set(tops)) > 1:
        places = [next(n for n, s in enumerate(parent.stmts) if s is top) for top in tops]
        run = list(parent.stmts[min(places) : max(places) + 1])
    elif len(set(tops)) > 1:
        raise sch.error("the blocks don't follow one another in one sequence", *given)
    else:
        run = [tops[0]]
    inside = [realize for stmt in run for realize in child_blocks(stmt)]
    if set(inside) != set(given):
        others = [realize for realize in inside if realize not in given]
        raise sch.error(
            f"block {others[0].block.name!r} is between the blocks given",
            others[0],
            remedy="give it too, or move it away",
        )
    return func_name, inside, run


class _Outer:
    """Combines divided blocks into one."""

    def __init__(
        self, sch: Schedule, func_name: str, run: list[Any], divisions: list[Division]
    ) -> None:
        self.sch, self.func_name, self.run, self.divisions = sch, func_name, run, divisions
        self.iters: list[tuple[IterVar, Expr]] = []
        self.reads: dict[Buffer, tuple[Range, ...]] = {}
        self.writes: dict[Buffer, tuple[Range, ...]] = {}
        # What is surely written before the block at hand, per buffer.
        self.made: dict[Buffer, tuple[Range, ...]] = {}

    def build(self, name: str) -> BlockRealize:
        """Return the new block, named ``name``."""
        for division in self.divisions:
            self._check_reduction(division)
        renamed = [self._join_axes(division) for division in self.divisions]
        predicate = self._outer_predicate()
        replaced: dict[Any, Any] = {}
        for division, axes in zip(self.divisions, renamed):
            keeps = division.block.init if len(self.divisions) > 1 else None
            self._touch(division, axes)
            replaced[division.realize] = substitute(division.inner_realize(keeps), axes)
        body = seq(*(self._rebuilt(stmt, replaced) for stmt in self.run))
        init = None
        if len(self.divisions) == 1 and self.divisions[0].block.init is not None:
            init = substitute(self.divisions[0].init_nest(self.func_name), renamed[0])
        block = Block(
            tuple(item for item, _ in self.iters),
            tuple(BufferRegion(buffer, box) for buffer, box in self.reads.items()),
            tuple(BufferRegion(buffer, box) for buffer, box in self.writes.items()),
            name,
            body,
            init,
        )
        outside = {var for division in self.divisions for var in division.outer_vars}
        for var in free_vars(block):
            if var in outside:
                raise self.sch.error(
                    f"statements inside depend on loop {var.name!r} outside, other than by the "
                    "bindings of a block",
                    self.run[0],
                    remedy="take that loop in as well, or make extents independent of it",
                )
        return BlockRealize(tuple(value for _, value in self.iters), predicate, block)

    def _rebuilt(self, stmt: Stmt, replaced: dict[Any, Any]) -> Any:
        inside = {r: replaced[r] for r in child_blocks(stmt)}
        return replaced[stmt] if stmt in replaced else self.sch.state.rebuilt(stmt, inside)

    def _join_axes(self, division: Division) -> dict[Any, Any]:
        """Share axes of equal value; returns the replacements of the division's own variables."""
        axes: dict[Any, Any] = {}
        analyzer = self._known_to_run()
        for item, value in division.outer:
            for known, other in self.iters:
                if not analyzer.can_prove_equal(value, other):
                    continue
                unit = is_const(item.dom.extent, 1)  # its value is that of every unit axis
                if known.kind != item.kind and free_vars(value) and not unit:
                    raise self.sch.error(
                        f"`{value!r}` is a {known.kind} axis of one block and a {item.kind} axis "
                        f"of block {division.block.name!r}",
                        division.realize,
                    )
                if known.kind == item.kind and analyzer.can_prove_equal(
                    known.dom.extent, item.dom.extent
                ):
                    axes[item.var] = known.var
                    break
            else:
                self.iters.append((item, value))
        return axes

    def _known_to_run(self) -> Analyzer:
        """Facts around the nest, without those that would follow from empty loops."""
        state, top = self.sch.state, self.run[0]
        made = state.analyzer(self.func_name)
        for loop in state.loops_above(top):
            if surely_runs(state, loop):
                made.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        return made

    def _outer_predicate(self) -> Expr:
        """Conditions on loops outside: of the new block if all blocks have them."""
        first, *others = self.divisions
        shared = [
            condition
            for condition in first.outer_conditions
            if all(any(expr_equal(condition, c) for c in o.outer_conditions) for o in others)
        ]
        for division in self.divisions:
            for condition in division.outer_conditions:
                if any(expr_equal(condition, item) for item in shared):
                    continue
                self._check_domains(shared)
                found = division.over_axes(condition)
                if found is None:
                    raise self.sch.error(
                        f"block {division.block.name!r} has a condition on loops outside that the "
                        "others don't have",
                        division.realize,
                    )
                division.conditions.append(found)
        return and_(*shared)

    def _check_domains(self, shared: list[Expr]) -> None:
        """Refuse if an axis would leave its domain where only some of the blocks run."""
        analyzer = self.sch.state.analyzer_at(self.run[0])
        for item, value in self.iters:
            inside = value < item.dom.extent
            if not analyzer.can_prove(inside) and not any(expr_equal(inside, c) for c in shared):
                raise self.sch.error(
                    lambda value=value, item=item: (  # type: ignore[misc]
                        f"the axis bound to `{value!r}` would leave its domain of "
                        f"{item.dom.extent!r} where only some of the blocks run"
                    ),
                    self.run[0],
                    remedy="blockize blocks with the same predicate, or each by itself",
                )

    def _check_reduction(self, division: Division) -> None:
        if len(self.divisions) == 1 or division.block.init is None:
            return
        for item, value in division.outer:
            if item.kind == REDUCE and not is_const(value, 0):
                raise self.sch.error(
                    f"the reduction of block {division.block.name!r} goes on over loops outside, "
                    "so its init can't be in a block with others",
                    division.realize,
                    remedy="decompose the reduction first",
                )

    def _touch(self, division: Division, axes: dict[Any, Any]) -> None:
        """Add a block's reads and writes, without reads that earlier blocks have surely written."""
        analyzer = division.analyzer
        for item, _ in self.iters:
            analyzer.bind(item.var, item.dom)

        def joined(boxes: dict[Buffer, tuple[Range, ...]]) -> dict[Buffer, tuple[Range, ...]]:
            return {
                buffer: tuple(substitute(item, axes) for item in box)
                for buffer, box in boxes.items()
            }

        # Nobody else would see that an index that data decides stays in what was written.
        loose = {item.buffer for item in division.block.reads if _by_data(item)}
        for buffer, box in joined(division.relaxed(division.block.reads)).items():
            done = None if buffer in loose else self.made.get(buffer)
            if done is None or not _contains(done, box, buffer, analyzer):
                _add(self.reads, buffer, box, analyzer)
        for buffer, box in joined(division.relaxed(division.block.writes)).items():
            _add(self.writes, buffer, box, analyzer)
            own = [region for region in division.block.writes if region.buffer is buffer]
            if (
                len(own) == 1
                and _writes_points(own[0], division.block, analyzer)
                and not division.outer_conditions
            ):
                self.made.setdefault(buffer, box)


def _add(
    table: dict[Buffer, tuple[Range, ...]],
    buffer: Buffer,
    box: tuple[Range, ...],
    analyzer: Analyzer,
) -> None:
    known = table.get(buffer)
    if known is not None and not same_box(known, box):
        box = union_box(known, box, analyzer)
    table[buffer] = box


def _contains(
    around: tuple[Range, ...], box: tuple[Range, ...], buffer: Buffer, analyzer: Analyzer
) -> bool:
    return same_box(around, box) or all(
        analyzer.can_prove(inner.min >= outer.min)
        and analyzer.can_prove(add(inner.min, inner.extent) <= add(outer.min, outer.extent))
        for outer, inner in zip(around, box)
    )


def _by_data(region: BufferRegion) -> bool:
    return any(type(item) is BufferLoad for side in region.region for item in pre_order(side))


def _writes_points(region: BufferRegion, block: Block, analyzer: Analyzer) -> bool:
    """Whether a box of instances writes a box: each index is an axis of its own, from somewhere."""
    axes = {item.var for item in block.iter_vars}
    seen: set[Var] = set()
    for item in region.region:
        own = axes.intersection(free_vars(item.min))
        if not is_const(item.extent, 1) or len(own) > 1 or own & seen:
            return False
        if any(uses_var(analyzer.simplify(sub(item.min, axis)), {axis}) for axis in own):
            return False
        seen |= own
    return True
