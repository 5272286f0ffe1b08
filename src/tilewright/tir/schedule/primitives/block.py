"""``blockize``: making a nest, or several blocks that follow one another, a block of its own.

Each iteration variable inside is divided into a part over the loops outside, which the new block
gets, and a part over the loops inside, which the old block keeps: ``value = outer * extent +
inner``. The last of the outer parts may be cut short; what cuts it stays a condition of the inner
block, written with the iteration variables of the outer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer, conjuncts
from tilewright.ir import (
    LT,
    Expr,
    Range,
    Var,
    add,
    and_,
    const,
    expr_equal,
    floordiv,
    floormod,
    free_vars,
    is_const,
    mul,
    sub,
    substitute,
    uses_var,
)
from tilewright.tir import (
    REDUCE,
    SERIAL,
    THREAD_BINDING,
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    For,
    IterVar,
    SeqStmt,
    seq,
)
from tilewright.tir.analysis.regions import relax, same_box, union_box
from tilewright.tir.schedule.footprint import fills_box
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import CONVERTERS, primitive
from tilewright.tir.schedule.state import child_blocks, statements

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


def _target(value: Any) -> Any:
    if type(value) is LoopRV:
        return value
    return CONVERTERS["Sequence[BlockRV]"](value)


CONVERTERS["LoopRV | Sequence[BlockRV]"] = _target


@primitive
def blockize(
    sch: Schedule, target: LoopRV | Sequence[BlockRV], preserve_unit_iters: bool = True
) -> BlockRV:
    """Make a nest, or several blocks that follow one another, one block of a level above.

    ``target`` is a loop, whose nest is taken with all blocks in it, or a list of blocks: the
    statements from the first to the last of them are taken. ``preserve_unit_iters=False`` leaves
    out iteration variables of the new block that have one value only. Returns the new block, named
    after the first one inside. The init of a single reduction goes to the new block.

    Preconditions:
        - the statements taken contain the blocks given and no others
        - there are only loops and blocks among them, and no extent depends on another loop
        - blocks that are given are different and in one scope
        - each binding is ``outer * extent + inner``: over loops outside, and over loops inside that
          together fill the box from zero to their extents, which are not zero
        - conditions on loops inside only keep bindings inside their domains
        - a reduction is alone, or all its loops are inside
        - the init of a single reduction does not leave loops that are bound to threads
        - all loops inside a reduction are used by its bindings
        - what is a reduction axis of one block is no spatial axis of another
        - of several blocks, those that run outside of an axis's domain are kept in it by conditions
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
    for stmt in (item for top in run for item in statements(top)):
        if type(stmt) not in (For, SeqStmt, BlockRealize):
            raise sch.error(
                f"a {type(stmt).__name__} outside of blocks is among the statements taken",
                stmt,
                remedy="only loops and blocks can be taken into a block",
            )
    parts = [_Division(sch, run, realize, preserve_unit_iters) for realize in blocks]
    name = sch.state.fresh_block_name(func_name, f"{blocks[0].block.name}_o")
    outer = _Outer(sch, func_name, run, parts).build(name)
    if len(run) == 1:
        sch.state.replace(run[0], outer)
    else:
        parent = sch.state.parent(run[0])
        first = parent.stmts.index(run[0])
        rest = parent.stmts[first + len(run) :]
        sch.state.replace(parent, seq(*parent.stmts[:first], outer, *rest))
    return BlockRV(func_name, name)


def _run_of(sch: Schedule, handles: Sequence[BlockRV]) -> tuple[str, list[BlockRealize], list[Any]]:
    """Return the statements, side by side, that contain the blocks given and no others."""
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


class _Division:
    """Divides the iteration of one block into a part outside and a part inside a nest.

    ``outer`` holds (iteration variable, value) pairs for the new block, ``inner`` those that the
    old one keeps. ``conditions`` are of the inner block, over its and the outer iteration
    variables; ``outer_conditions`` are over loops outside.
    """

    def __init__(self, sch: Schedule, run: Any, realize: BlockRealize, keep_unit: bool) -> None:
        self.sch, self.realize, self.block = sch, realize, realize.block
        self.keep_unit = keep_unit
        state = sch.state
        top = next(item for item in (realize, *state.parents(realize)) if item in run)
        loops = state.loops_above(realize)
        above = state.loops_above(top)
        self.nest: list[For] = loops[len(above) :]
        self.inner_vars = {loop.loop_var for loop in self.nest}
        self.outer_vars = {loop.loop_var for loop in above}
        for loop in self.nest:
            if uses_var(loop.extent, {*self.inner_vars, *self.outer_vars}):
                raise sch.error(
                    f"the extent of loop {loop.loop_var.name!r} depends on another loop", loop
                )
        self.analyzer: Analyzer = state.analyzer_at(realize)
        # Where the nest has no iterations, its loops say nothing.
        self.outside: Analyzer = state.analyzer_at(top)
        func_name = state.func_name_of(realize)
        self.sizes = {*state.func(func_name).symbolic_vars()}
        for tile in state.symbolic:
            self.sizes.update(tile.variables)
        self.outer: list[tuple[IterVar, Expr]] = []
        self.inner: list[tuple[IterVar, Expr]] = []
        self.mapping: dict[Var, Expr] = {}
        self.conditions: list[Expr] = []
        self.outer_conditions: list[Expr] = []
        self.cut: list[IterVar] = []  # axes whose last tile reaches out of their domain
        limits = [
            item
            for item in conjuncts(realize.predicate)
            if type(item) is LT and not uses_var(item, self.outer_vars)
        ]
        for iter_var, value in zip(self.block.iter_vars, realize.iter_values):
            self._divide(iter_var, value, limits)
        self._check_box()
        for condition in conjuncts(realize.predicate):
            self._place_condition(condition)
        for iter_var in self.cut:
            inside = self.mapping[iter_var.var] < iter_var.dom.extent
            if not any(expr_equal(inside, condition) for condition in self.conditions):
                self.conditions.append(inside)

    def _divide(self, iter_var: IterVar, value: Expr, limits: list[Any]) -> None:
        """Write ``value`` as ``outer * extent + inner``."""
        name, dtype = iter_var.var.name, iter_var.var.dtype
        if not uses_var(value, self.inner_vars):
            made = Var(name + "_o", dtype)
            self.outer.append((IterVar(made, iter_var.dom, iter_var.kind), value))
            self.mapping[iter_var.var] = made
            return
        zero = const(0, dtype)
        simplify = self.analyzer.simplify
        others = [v for v in free_vars(value) if v not in self.inner_vars and v not in self.sizes]
        inner = simplify(substitute(value, dict.fromkeys(others, zero)))
        outer = simplify(substitute(value, dict.fromkeys(self.inner_vars, zero)))
        loops = [loop for loop in self.nest if uses_var(inner, {loop.loop_var})]
        top = substitute(inner, {loop.loop_var: sub(loop.extent, 1) for loop in loops})
        extent = simplify(add(top, 1))
        for limit in limits:
            if self.analyzer.can_prove_equal(limit.a, inner) and self.analyzer.can_prove(
                limit.b <= extent
            ):
                extent = limit.b
        if (
            is_const(extent, 0)
            or not all(is_const(loop.min, 0) for loop in loops)
            or not is_const(simplify(substitute(inner, dict.fromkeys(self.inner_vars, zero))), 0)
            or not self.analyzer.can_prove_equal(value, add(outer, inner))
            or not is_const(simplify(floormod(outer, extent)), 0)
            or not is_const(iter_var.dom.min, 0)
        ):
            raise self._refuse(iter_var, value)
        inner_var = Var(name + "_i", dtype)
        self.inner.append((IterVar(inner_var, Range(zero, extent), iter_var.kind), inner))
        whole = self.analyzer.can_prove_equal(iter_var.dom.extent, extent)
        if not whole and not self.outside.can_prove(extent > 0):
            raise self._refuse(iter_var, value)  # the number of tiles would be divided by zero
        count = simplify(floordiv(add(iter_var.dom.extent, sub(extent, 1)), extent))
        if whole or is_const(count, 1):
            count = const(1, dtype)
        outer_value = simplify(floordiv(outer, extent))
        divides = whole or is_const(simplify(floormod(iter_var.dom.extent, extent)), 0)
        if not divides:
            # A last tile that reaches out of the domain: left out if nobody asks for it, else cut.
            full = simplify(floordiv(iter_var.dom.extent, extent))
            if self.analyzer.can_prove(outer_value < full):
                count, divides = full, True
        if not self.analyzer.can_prove(outer_value < count):
            self.outer_conditions.append(outer_value < count)  # else nothing would run inside
        if not divides:
            self.cut.append(iter_var)
        if is_const(count, 1) and not self.keep_unit:
            self.mapping[iter_var.var] = inner_var
            return
        outer_var = Var(name + "_o", dtype)
        outer_iter = IterVar(outer_var, Range(zero, count), iter_var.kind)
        self.outer.append((outer_iter, outer_value))
        self.mapping[iter_var.var] = add(mul(outer_var, extent), inner_var)

    def _refuse(self, iter_var: IterVar, value: Expr) -> Exception:
        return self.sch.error(
            lambda: (
                f"the binding {value!r} of {iter_var.var.name!r} is not outer * extent + inner, "
                "with loops of the nest that fill the range as inner part, which is not empty"
            ),
            self.realize,
            remedy="reorder the loops that vary fastest inside, and split by factors that nest",
        )

    def _check_box(self) -> None:
        """Refuse unless the loops inside give all combinations of inner values."""
        values = [value for _, value in self.inner]
        if not fills_box(values, self.nest, lambda: self.analyzer):
            culprit = next(
                n
                for n in range(len(values))
                if not fills_box(values[: n + 1], self.nest, lambda: self.analyzer)
            )
            raise self._refuse(*self.inner[culprit])
        if any(iter_var.kind == REDUCE for iter_var in self.block.iter_vars):
            for loop in self.nest:
                if not is_const(loop.extent, 1) and not any(
                    uses_var(value, {loop.loop_var}) for _, value in self.inner
                ):
                    raise self.sch.error(
                        f"loop {loop.loop_var.name!r} repeats reduction block {self.block.name!r}: "
                        "no binding uses it",
                        loop,
                    )

    def _place_condition(self, condition: Any) -> None:
        if not uses_var(condition, self.inner_vars):
            self.outer_conditions.append(condition)
            return
        found = self.over_axes(condition)
        if found is None:
            raise self.sch.error(
                lambda: (
                    f"the condition `{condition!r}` is not one that keeps an iteration variable "
                    "inside its domain"
                ),
                self.realize,
                remedy="use factors that divide the extent",
            )
        self.conditions.append(found)

    def over_axes(self, condition: Any) -> Expr | None:
        """Write ``value + rest < bound`` with iteration variables for the value, if it is that."""
        if type(condition) is not LT or uses_var(condition.b, {*self.inner_vars, *self.outer_vars}):
            return None
        for iter_var, value in zip(self.block.iter_vars, self.realize.iter_values):
            rest = self.analyzer.simplify(sub(condition.a, value))
            if uses_var(rest, {*self.inner_vars, *self.outer_vars}):
                continue
            limit = sub(condition.b, rest) if not is_const(rest, 0) else condition.b
            if not self.analyzer.can_prove(limit >= iter_var.dom.extent):
                continue
            made: Expr = self.mapping[iter_var.var] < limit
            return made
        # The inner part alone may be cut to its extent.
        for iter_var, value in self.inner:
            if expr_equal(condition.b, iter_var.dom.extent) and self.analyzer.can_prove_equal(
                condition.a, value
            ):
                made = iter_var.var < condition.b
                return made
        return None

    def inner_realize(self, init: Any) -> BlockRealize:
        """The old block, over its inner part; ``init`` is what it keeps of its init."""
        block = self.block
        writes = tuple(substitute(item, self.mapping) for item in block.writes)
        # Without init the block reads what it reduces into.
        own = writes if block.init is not None and init is None else ()
        made = block.replace(
            iter_vars=tuple(item for item, _ in self.inner),
            reads=(*own, *(substitute(item, self.mapping) for item in block.reads)),
            writes=writes,
            body=substitute(block.body, self.mapping),
            init=None if init is None else substitute(init, self.mapping),
            match_buffers=tuple(substitute(item, self.mapping) for item in block.match_buffers),
        )
        bound = {item.var: value for item, value in self.inner}
        predicate = substitute(and_(*self.conditions), bound)
        return BlockRealize(tuple(value for _, value in self.inner), predicate, made)

    def relaxed(self, regions: Iterable[BufferRegion]) -> dict[Buffer, tuple[Range, ...]]:
        """What all instances inside touch, over the outer iteration variables."""
        domain = {item.var: item.dom for item, _ in self.inner}
        known = self.analyzer
        for item, _ in (*self.outer, *self.inner):
            known.bind(item.var, item.dom)
        guard = and_(*self.conditions)
        found: dict[Buffer, tuple[Range, ...]] = {}
        for region in regions:
            ranges = [substitute(item, self.mapping) for item in region.region]
            box = tuple(relax(ranges, domain, guard, region.buffer, known))
            before = found.get(region.buffer)
            if before is not None and not same_box(before, box):
                box = union_box(before, box, known)
            found[region.buffer] = box
        return found

    def init_nest(self, func_name: str) -> Any:
        """Initialise all that one instance of the new block reduces into."""
        for loop in self.nest:
            if loop.kind == THREAD_BINDING:
                raise self.sch.error(
                    f"loop {loop.loop_var.name!r} is bound to {loop.thread}: the init of block "
                    f"{self.block.name!r} would be run by all threads",
                    loop,
                    remedy="bind after blockize, or decompose the reduction first",
                )
        spatial = [(item, value) for item, value in self.inner if item.kind != REDUCE]
        loops = [
            loop
            for loop in self.nest
            if any(uses_var(value, {loop.loop_var}) for _, value in spatial)
        ]
        loop_vars: dict[Any, Any] = {loop.loop_var: Var(loop.loop_var.name) for loop in loops}
        fresh: dict[Any, Any] = {
            item.var: Var(item.var.name, item.var.dtype) for item, _ in spatial
        }
        values = tuple(substitute(value, loop_vars) for _, value in spatial)
        mapping = {var: substitute(expr, fresh) for var, expr in self.mapping.items()}
        name = self.sch.state.fresh_block_name(func_name, f"{self.block.name}_init")
        block = Block(
            tuple(IterVar(fresh[item.var], item.dom, item.kind) for item, _ in spatial),
            (),
            tuple(substitute(item, mapping) for item in self.block.writes),
            name,
            substitute(self.block.init, mapping),
        )
        bound = dict(zip((item.var for item, _ in spatial), values))
        body: Any = BlockRealize(values, substitute(self._condition_at_start(), bound), block)
        for loop in reversed(loops):
            body = For(loop_vars[loop.loop_var], loop.min, loop.extent, SERIAL, body)
        return body

    def _condition_at_start(self) -> Expr:
        """The conditions where the reduction starts."""
        zeros = {
            item.var: const(0, item.var.dtype)
            for item, _ in (*self.outer, *self.inner)
            if item.kind == REDUCE
        }
        made = [substitute(condition, zeros) for condition in self.conditions]
        # The ranges of the axes prove nothing here: the conditions are what keeps them inside.
        return and_(*(item for item in made if not Analyzer().can_prove(item)))


class _Outer:
    """Puts divided blocks together into one."""

    def __init__(
        self, sch: Schedule, func_name: str, run: list[Any], parts: list[_Division]
    ) -> None:
        self.sch, self.func_name, self.run, self.parts = sch, func_name, run, parts
        self.iters: list[tuple[IterVar, Expr]] = []
        self.reads: dict[Buffer, tuple[Range, ...]] = {}
        self.writes: dict[Buffer, tuple[Range, ...]] = {}
        # What is surely written before the block at hand, per buffer.
        self.made: dict[Buffer, tuple[Range, ...]] = {}

    def build(self, name: str) -> BlockRealize:
        """Return the new block, named ``name``."""
        for part in self.parts:
            self._check_reduction(part)
        renamed = [self._join_axes(part) for part in self.parts]
        predicate = self._outer_predicate()
        replaced: dict[Any, Any] = {}
        for part, axes in zip(self.parts, renamed):
            keeps = part.block.init if len(self.parts) > 1 else None
            self._touch(part, axes)
            replaced[part.realize] = substitute(part.inner_realize(keeps), axes)
        body = seq(*(self._rebuilt(stmt, replaced) for stmt in self.run))
        init = None
        if len(self.parts) == 1 and self.parts[0].block.init is not None:
            init = substitute(self.parts[0].init_nest(self.func_name), renamed[0])
        block = Block(
            tuple(item for item, _ in self.iters),
            tuple(BufferRegion(buffer, box) for buffer, box in self.reads.items()),
            tuple(BufferRegion(buffer, box) for buffer, box in self.writes.items()),
            name,
            body,
            init,
        )
        outside = {var for part in self.parts for var in part.outer_vars}
        for var in free_vars(block):
            if var in outside:
                raise self.sch.error(
                    f"statements inside depend on loop {var.name!r} outside, other than by the "
                    "bindings of a block",
                    self.run[0],
                    remedy="take that loop in as well, or make extents independent of it",
                )
        return BlockRealize(tuple(value for _, value in self.iters), predicate, block)

    def _rebuilt(self, stmt: Any, replaced: dict[Any, Any]) -> Any:
        inside = {r: replaced[r] for r in child_blocks(stmt)}
        return replaced[stmt] if stmt in replaced else self.sch.state.rebuilt(stmt, inside)

    def _join_axes(self, part: _Division) -> dict[Any, Any]:
        """Share axes of equal value; returns what takes the place of the part's own variables."""
        axes: dict[Any, Any] = {}
        for item, value in part.outer:
            for known, other in self.iters:
                if not part.analyzer.can_prove_equal(value, other):
                    continue
                unit = is_const(item.dom.extent, 1)  # its value is that of every unit axis
                if known.kind != item.kind and free_vars(value) and not unit:
                    raise self.sch.error(
                        f"`{value!r}` is a {known.kind} axis of one block and a {item.kind} axis "
                        f"of block {part.block.name!r}",
                        part.realize,
                    )
                if known.kind == item.kind and part.analyzer.can_prove_equal(
                    known.dom.extent, item.dom.extent
                ):
                    axes[item.var] = known.var
                    break
            else:
                self.iters.append((item, value))
        return axes

    def _outer_predicate(self) -> Expr:
        """Conditions on loops outside: of the new block if all blocks have them."""
        first, *others = self.parts
        shared = [
            condition
            for condition in first.outer_conditions
            if all(any(expr_equal(condition, c) for c in o.outer_conditions) for o in others)
        ]
        for part in self.parts:
            for condition in part.outer_conditions:
                if any(expr_equal(condition, item) for item in shared):
                    continue
                self._check_domains(shared)
                found = part.over_axes(condition)
                if found is None:
                    raise self.sch.error(
                        f"block {part.block.name!r} has a condition on loops outside that the "
                        "others don't have",
                        part.realize,
                    )
                part.conditions.append(found)
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

    def _check_reduction(self, part: _Division) -> None:
        if len(self.parts) == 1 or part.block.init is None:
            return
        for item, value in part.outer:
            if item.kind == REDUCE and not is_const(value, 0):
                raise self.sch.error(
                    f"the reduction of block {part.block.name!r} goes on over loops outside, so "
                    "its init can't be in a block with others",
                    part.realize,
                    remedy="decompose the reduction first",
                )

    def _touch(self, part: _Division, axes: dict[Any, Any]) -> None:
        """Add what a block reads and writes; not what blocks before it have surely written."""
        analyzer = part.analyzer
        for item, _ in self.iters:
            analyzer.bind(item.var, item.dom)

        def joined(boxes: dict[Buffer, tuple[Range, ...]]) -> dict[Buffer, tuple[Range, ...]]:
            return {
                buffer: tuple(substitute(item, axes) for item in box)
                for buffer, box in boxes.items()
            }

        for buffer, box in joined(part.relaxed(part.block.reads)).items():
            done = self.made.get(buffer)
            if done is None or not _contains(done, box, buffer, analyzer):
                _add(self.reads, buffer, box, analyzer)
        for buffer, box in joined(part.relaxed(part.block.writes)).items():
            _add(self.writes, buffer, box, analyzer)
            plain = [region for region in part.block.writes if region.buffer is buffer]
            if len(plain) == 1 and _writes_points(plain[0]) and not part.outer_conditions:
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


def _writes_points(region: BufferRegion) -> bool:
    """Whether a box of instances writes a box: each index is an iteration variable of its own."""
    seen: set[Var] = set()
    for item in region.region:
        if not free_vars(item.min) and is_const(item.extent, 1):
            continue
        if type(item.min) is not Var or item.min in seen or not is_const(item.extent, 1):
            return False
        seen.add(item.min)
    return True
