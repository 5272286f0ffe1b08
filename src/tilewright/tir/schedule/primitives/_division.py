"""Division of a block's iteration into an outer and an inner one, outside and inside a nest.

``blockize`` turns the outer one into a new block (and ``tensorize`` builds on that); each axis
becomes ``outer * extent + inner``.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    or_,
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
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.analysis.footprint import fills_box
from tilewright.tir.analysis.regions import relax, same_box, union_box
from tilewright.tir.schedule.primitives._block_checks import check_initialised_together
from tilewright.tir.stmt import Stmt

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


class Division:
    """Divides the iteration of one block into an outer and an inner one.

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
        self.outside: Analyzer = state.analyzer_at(top, least_size=1)
        func_name = state.func_name_of(realize)
        # A reduction over nothing has a value, too: domains are stated for sizes with which the
        # loops around the nest don't run.
        self.sizes_from_zero: Analyzer = state.analyzer(func_name)
        self.around: Analyzer = state.analyzer_at(top)
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
            self.outer.append((IterVar(iter_var.dom, made, iter_var.kind), value))
            self.mapping[iter_var.var] = made
            return
        outer, inner, extent = self._divided(iter_var, value, limits)
        zero = const(0, dtype)
        inner_var = Var(name + "_i", dtype)
        self.inner.append(
            (IterVar(Range.from_min_extent(zero, extent), inner_var, iter_var.kind), inner)
        )
        outer_value = self.analyzer.simplify(floordiv(outer, extent))
        count = self._tile_count(iter_var, value, outer_value, extent)
        if not self.analyzer.can_prove(outer_value < count):
            self.outer_conditions.append(outer_value < count)  # else nothing would run inside
        if is_const(count, 1) and not self.keep_unit:
            self.mapping[iter_var.var] = inner_var
            return
        outer_var = Var(name + "_o", dtype)
        outer_iter = IterVar(Range.from_min_extent(zero, count), outer_var, iter_var.kind)
        self.outer.append((outer_iter, outer_value))
        self.mapping[iter_var.var] = add(mul(outer_var, extent), inner_var)

    def _divided(
        self, iter_var: IterVar, value: Expr, limits: list[Any]
    ) -> tuple[Expr, Expr, Expr]:
        """Return the terms of ``value`` over outer and inner loops, and the latter's extent."""
        zero = const(0, iter_var.var.dtype)
        simplify = self.analyzer.simplify
        others = [v for v in free_vars(value) if v not in self.inner_vars and v not in self.sizes]
        at_start = dict.fromkeys(self.inner_vars, zero)
        inner = simplify(substitute(value, dict.fromkeys(others, zero)))
        outer = simplify(substitute(value, at_start))
        loops = [loop for loop in self.nest if uses_var(inner, {loop.loop_var})]
        top = substitute(inner, {loop.loop_var: sub(loop.extent, 1) for loop in loops})
        # Around the nest, the extent may be none: inside, where it isn't, it would seem to be more.
        extent = self.sizes_from_zero.simplify(add(top, 1))
        for limit in limits:
            if self.analyzer.can_prove_equal(limit.a, inner) and self.analyzer.can_prove(
                limit.b <= extent
            ):
                extent = limit.b
        if (
            is_const(extent, 0)
            or not all(is_const(loop.min, 0) for loop in loops)
            or not is_const(simplify(substitute(inner, at_start)), 0)
            or not self.analyzer.can_prove_equal(value, add(outer, inner))
            or not is_const(simplify(floormod(outer, extent)), 0)
            or not is_const(iter_var.dom.min, 0)
        ):
            raise self._refuse(iter_var, value)
        return outer, inner, extent

    def _tile_count(self, iter_var: IterVar, value: Expr, outer_value: Expr, extent: Expr) -> Expr:
        """How many tiles of ``extent`` the new block has; notes an axis whose last tile is cut."""
        domain = iter_var.dom.extent
        # Inside of the nest, where the domain isn't empty, its extent would seem to be more.
        if self.sizes_from_zero.can_prove_equal(domain, extent):
            return const(1, iter_var.var.dtype)
        if not self.outside.can_prove(extent > 0):
            raise self._refuse(iter_var, value)  # the number of tiles would be divided by zero
        simplify = self.sizes_from_zero.simplify
        count = simplify(floordiv(add(domain, sub(extent, 1)), extent))
        if is_const(outer_value):  # further tiles don't run: a predicate may be what forbids them
            return add(outer_value, 1)
        if is_const(simplify(floormod(domain, extent)), 0):
            return count
        # A last tile that reaches out of the domain: left out if nobody asks for it, else cut.
        full = simplify(floordiv(domain, extent))
        if self.analyzer.can_prove(outer_value < full):
            return full
        self.cut.append(iter_var)
        return count

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

    def _place_condition(self, condition: Expr) -> None:
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
        """Rewrite ``value + rest < bound`` with iteration variables, if it has this form."""
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

    def inner_realize(self, init: Stmt | None) -> BlockRealize:
        """The old block, over its inner iteration; ``init`` is what remains of its init."""
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
        # Where an inner axis is over nothing, so is what is touched.
        known = self.around
        for item, _ in self.outer:
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

    def init_nest(self, func_name: str) -> Stmt:
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
        if loops:
            check_initialised_together(self.sch.state, self.realize)
        loop_vars: dict[Any, Any] = {loop.loop_var: Var(loop.loop_var.name) for loop in loops}
        fresh: dict[Any, Any] = {
            item.var: Var(item.var.name, item.var.dtype) for item, _ in spatial
        }
        values = tuple(substitute(value, loop_vars) for _, value in spatial)
        mapping = {var: substitute(expr, fresh) for var, expr in self.mapping.items()}
        name = self.sch.state.fresh_block_name(func_name, f"{self.block.name}_init")
        assert self.block.init is not None
        block = Block(
            tuple(IterVar(item.dom, fresh[item.var], item.kind) for item, _ in spatial),
            (),
            tuple(substitute(item, mapping) for item in self.block.writes),
            name,
            substitute(self.block.init, mapping),
        )
        block = block.replace(reads=tuple(block_access_regions(block)[0]))
        bound = dict(zip((item.var for item, _ in spatial), values))
        body: Stmt = BlockRealize(values, substitute(self._condition_at_start(), bound), block)
        for loop in reversed(loops):
            body = For(loop_vars[loop.loop_var], loop.min, loop.extent, SERIAL, body)
        return body

    def _condition_at_start(self) -> Expr:
        """The conditions at the start of the reduction, which may be empty."""
        axes = [item for item, _ in (*self.outer, *self.inner) if item.kind == REDUCE]
        zeros = {item.var: const(0, item.var.dtype) for item in axes}
        # The ranges of the axes prove nothing here: the conditions are what keeps them inside. That
        # they have elements may be taken for granted: where they don't, there is no condition.
        state = self.sch.state
        known = state.analyzer(state.func_name_of(self.realize))
        kept = []
        for condition in self.conditions:
            at_start = substitute(condition, zeros)
            if not uses_var(condition, zeros):
                kept.append(condition)
                continue
            with known.constraint(and_(*(item.dom.extent > 0 for item in axes))):
                holds = known.can_prove(at_start)
            if not holds:
                kept.append(or_(at_start, *(item.dom.extent <= 0 for item in axes)))
        return and_(*(known.simplify(item) for item in kept))
