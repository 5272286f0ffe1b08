"""Skipping the terms that padding adds to a sum.

A convolution of a padded image multiplies zeros wherever its window reaches beyond the image: with
large dilations that may be most of the work. In a transposed one with a stride, a tap contributes
to only some of the outputs. ``unsafe_skip_padding`` runs the inner loops of such a sum only where
they read something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.arith import conjuncts, int_set
from tilewright.ir import (
    GE,
    GT,
    LE,
    LT,
    Add,
    Call,
    Cast,
    Expr,
    FloatImm,
    IntImm,
    Mul,
    Range,
    Var,
    and_,
    as_int,
    collect,
    expr_equal,
    free_vars,
    if_then_else,
    substitute,
    uses_var,
)
from tilewright.support.errors import ScheduleError
from tilewright.tir import BlockRealize, BufferLoad, BufferStore, For, Stmt
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._scope import Scope, scope_of
from tilewright.tir.schedule.primitives.padding import padding_choice
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.walk import loads_of

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def unsafe_skip_padding(sch: Schedule, block: BlockRV, loop: LoopRV) -> None:
    """Run a sum of products inside of ``loop`` only where it reads more than padding.

    Padding that only the sum read, and no longer does, isn't written either. Unsafe, since zeros
    are skipped whatever they would be multiplied with: the result differs where that is infinite or
    NaN.

    Preconditions:
        - the block adds to one element, and its initialisation has been decomposed
        - ``loop`` is around the block, in the same scope
        - a factor of what it adds is read from a buffer that one block before it fills with values
          or, as padding, zeros, by its own axes; or what it adds is zero unless a condition holds
        - some iteration outside of ``loop`` may read nothing but padding, as shown by comparisons
          that are linear in the loops, or in which inner loops don't occur
    Before:
        for i in range(18):
            with T.block("B"):
                vi = T.axis.spatial(18, i)
                B[vi] = T.if_then_else(vi >= 6 and vi < 12, A[vi - 6], T.float32(0))
        for k, i in T.grid(3, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + B[vi + vk * 6] * W[vk]
    After ``unsafe_skip_padding(C, i)``:
        for i in range(18):
            with T.block("B"):
                vi = T.axis.spatial(18, i)
                B[vi] = T.if_then_else(vi >= 6 and vi < 12, A[vi - 6], T.float32(0))
        for k, i in T.grid(3, 6):
            with T.block("C"):
                T.where(1 <= k and k < 2)
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + B[vi + vk * 6] * W[vk]
    """
    state: ScheduleState = sch.state
    realize, outer = state.get_block(block), state.get_loop(loop)
    scope = scope_of(state, realize)
    around = scope.loops(realize)
    if outer not in around:
        raise state.error(
            f"loop {outer.loop_var.name!r} is not around block {realize.block.name!r}",
            realize,
            outer,
        )
    added = _added(state, realize)
    inner = around[around.index(outer) :]
    tests, product, left = _conditions(state, realize, added, outer, inner)
    loads = list(_factors(product))
    unwritten: dict[BlockRealize, list[Expr]] = {}
    for load in loads:
        found = _padding_of(scope, realize, load)
        if found is None:
            continue
        for conjunct in conjuncts(found.inside):
            read = found.where(conjunct)
            test = _test(state, read, outer, inner)
            if test is None:
                continue
            tests.append(test)
            if found.read_once and not uses_var(read, {item.loop_var for item in inner}):
                unwritten.setdefault(found.writer, []).append(found.written(conjunct))
    if not tests:
        raise state.error(
            f"what block {realize.block.name!r} multiplies is nowhere only padding as long as loop "
            f"{outer.loop_var.name!r} runs",
            realize,
            outer,
            remedy="give a loop further in, which moves less of the window",
        )
    changed: dict[Any, Any] = {
        writer: writer.replace(predicate=and_(writer.predicate, *conditions))
        for writer, conditions in unwritten.items()
    }
    made = realize.replace(predicate=and_(realize.predicate, *tests))
    if left is not added:
        made = made.replace(block=made.block.replace(body=_adding(made.block.body, added, left)))
    changed[realize] = made
    body = state.rebuilt(scope.block.body, changed)
    state.replace(scope.block, scope.block.replace(body=body))


@dataclass(frozen=True)
class _Padding:
    """Where a load reads more than padding: ``inside``, by the axes of the block that fills."""

    writer: BlockRealize
    inside: Expr
    places: dict[Var, Expr]
    """What the load has in the place of the writer's axes, by loops."""
    read_once: bool

    def where(self, conjunct: Expr) -> Expr:
        """A condition, by the loops around the load."""
        made: Expr = substitute(conjunct, self.places)
        return made

    def written(self, conjunct: Expr) -> Expr:
        """A condition, by the loops around the writer."""
        axes = self.writer.block.iter_vars
        values = {item.var: v for item, v in zip(axes, self.writer.iter_values)}
        made: Expr = substitute(conjunct, values)
        return made


def _added(state: ScheduleState, realize: BlockRealize) -> Expr:
    """What the block adds to its element."""
    block = realize.block
    store = block.body
    if block.init is None and isinstance(store, BufferStore) and isinstance(store.value, Add):
        for old, new in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
            if (
                isinstance(old, BufferLoad)
                and old.buffer is store.buffer
                and all(map(expr_equal, old.indices, store.indices))
            ):
                added: Expr = new
                return added
    raise state.error(
        f"block {block.name!r} must add to one element, without initialising it",
        realize,
        remedy="decompose_reduction takes the initialisation out",
    )


def _conditions(
    state: ScheduleState, realize: BlockRealize, added: Expr, outer: For, inner: list[For]
) -> tuple[list[Expr], Expr, Expr]:
    """Conditions without which nothing is added, and in which no inner loop occurs.

    Returns them by the loops outside, the product that is added otherwise, and what is left to add
    where they hold.
    """
    if (
        not isinstance(added, Call)
        or added.op.name != "if_then_else"
        or not _is_zero(added.args[2])
    ):
        return [], added, added
    condition, product, zero = added.args
    values = {item.var: v for item, v in zip(realize.block.iter_vars, realize.iter_values)}
    inside, analyzer = {item.loop_var for item in inner}, state.analyzer_at(outer)
    tests: list[Expr] = []
    left: list[Expr] = []
    for conjunct in conjuncts(condition):
        test = analyzer.simplify(substitute(conjunct, values))
        if as_int(test) == 0 or collect(test, BufferLoad) or uses_var(test, inside):
            left.append(conjunct)
        elif as_int(test) is None:
            tests.append(test)
    if not tests:
        return [], product, added
    return tests, product, if_then_else(and_(*left), product, zero) if left else product


def _is_zero(value: Expr) -> bool:
    return isinstance(value, (IntImm, FloatImm)) and value.value == 0


def _adding(store: Stmt, old: Expr, new: Expr) -> Stmt:
    """The same sum with another term."""
    assert isinstance(store, BufferStore) and isinstance(store.value, Add)
    first, second = store.value.a, store.value.b
    total = Add(new, second) if first is old else Add(first, new)
    return store.replace(value=total)


def _factors(value: Expr) -> Iterator[BufferLoad]:
    """Loads that make a value zero if they are."""
    if isinstance(value, Mul):
        yield from _factors(value.a)
        yield from _factors(value.b)
    elif isinstance(value, Cast):
        yield from _factors(value.value)
    elif isinstance(value, BufferLoad):
        yield value


def _padding_of(scope: Scope, realize: BlockRealize, load: BufferLoad) -> _Padding | None:
    """The padding of a load's buffer; ``None`` if its writer doesn't pad with zeros."""
    writers = scope.writers(load.buffer)
    if len(writers) != 1 or scope.is_visible_outside(load.buffer):
        return None
    (writer,) = writers
    if scope.position[writer] >= scope.position[realize]:
        return None
    try:
        store, inside, _, filling = padding_choice(scope.state, writer)
    except ScheduleError:
        return None
    variables = [index for index in store.indices if isinstance(index, Var)]
    axes = {item.var for item in writer.block.iter_vars}
    used = axes.intersection(free_vars(inside))
    if not _is_zero(filling) or len(set(variables)) < len(variables) or not used <= set(variables):
        return None
    values = {item.var: v for item, v in zip(realize.block.iter_vars, realize.iter_values)}
    places: dict[Var, Expr] = {
        v: substitute(i, values) for v, i in zip(store.indices, load.indices) if isinstance(v, Var)
    }
    loads = [item for item in loads_of(realize.block, load.buffer) if item is not load]
    read_once = not loads and scope.readers(load.buffer) == [realize]
    return _Padding(writer, inside, places, read_once)


def _test(state: ScheduleState, conjunct: Expr, outer: For, inner: list[For]) -> Expr | None:
    """What must hold outside of ``outer`` for a comparison to hold in any iteration inside."""
    if not isinstance(conjunct, (LT, LE, GT, GE)):
        return None
    domain = {item.loop_var: Range.from_min_extent(item.min, item.extent) for item in inner}
    analyzer = state.analyzer_at(outer)
    low, high = (
        (conjunct.a, conjunct.b) if isinstance(conjunct, (LT, LE)) else (conjunct.b, conjunct.a)
    )
    most = int_set(high, domain, analyzer=analyzer.copy()).max
    least = int_set(low, domain, analyzer=analyzer.copy()).min
    if not isinstance(most, Expr) or not isinstance(least, Expr):
        return None
    strict = isinstance(conjunct, (LT, GT))
    test: Expr = analyzer.simplify(least < most if strict else least <= most)
    return None if isinstance(test, IntImm) or uses_var(test, domain) else test
