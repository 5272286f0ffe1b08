"""May two accesses touch one element from different threads of a block?

What is bounded is decided by counting: the places that each thread touches are computed with NumPy
for all values of loop variables. Where extents are symbolic, equal injective indices prove that a
place belongs to one thread; accesses to places far from each other (stages of a buffer) are told
apart by the bounds of their distance. Whatever else is taken for a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from tilewright.arith import Analyzer, NotEvaluable, conjuncts, evaluate
from tilewright.ir import (
    EQ,
    Add,
    Broadcast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Ramp,
    Range,
    Sub,
    Var,
    as_int,
    const,
    dtypes,
    expr_equal,
    free_vars,
    is_const,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir.analysis import is_injective_binding
from tilewright.tir.buffer import Buffer, BufferLoad

_POINTS = 1 << 19
"""The number of places per access up to which all of them are computed."""

_STAGES = 16
"""Stages of a buffer that are told apart, at most."""

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Access:
    """A read or write of a buffer that threads share.

    ``loops`` are the ranges of the loop variables around it inside the kernel, ``conditions`` what
    holds there. ``own`` are the variables that another access of the same time may have another
    value of; the others (loops around both) have one value.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    write: bool
    atomic: bool
    loops: Mapping[Var, Range]
    conditions: tuple[Expr, ...]
    own: frozenset[Var]
    origin: tuple[Expr, ...] = ()  # the indices as they are written, in whatever iteration

    def leaving(self, var: Var) -> Access:
        """The access as seen from after a loop."""
        return self if var not in self.loops else replace(self, own=self.own | {var})

    def earlier(self, var: Var, distance: Expr, domain: Mapping[Var, Range]) -> Access:
        """The access of an earlier iteration of a loop, ``distance`` before the current one."""
        if var not in self.loops:
            return self
        before = {var: var - distance}
        low = self.loops[var].min
        return replace(
            self,
            indices=tuple(substitute(index, before) for index in self.indices),
            conditions=(
                *(substitute(item, before) for item in self.conditions),
                var - distance >= low,
            ),
            loops={**self.loops, **domain},
            origin=self.origin or self.indices,
            own=self.own | set(domain),
        )


class Conflicts:
    """Answers for the threads of one kernel."""

    def __init__(self, threads: Mapping[Var, Range], analyzer: Analyzer) -> None:
        self.threads = {
            var: domain for var, domain in threads.items() if not is_const(domain.extent, 1)
        }
        self.analyzer = analyzer

    def between(self, a: Access, b: Access) -> bool:
        """Whether the accesses need a barrier between them."""
        if not self.threads or a.buffer.data is not b.buffer.data or not (a.write or b.write):
            return False
        if a.atomic and b.atomic:
            return False
        if self._same_thread(a, b) or self._far_apart(a, b):
            return False
        counted = self._counted(a, b)
        return True if counted is None else counted

    # ---- by proof -------------------------------------------------------------------------

    def _same_thread(self, a: Access, b: Access) -> bool:
        """Whether the accesses have one index that tells the thread."""
        indices = a.origin or a.indices
        if a.buffer is not b.buffer or not all(map(expr_equal, indices, b.origin or b.indices)):
            return False
        used = {var for index in indices for var in free_vars(index)}
        if any(isinstance(item, BufferLoad) for index in indices for item in pre_order(index)):
            return False
        if any(dtypes.lanes_of(index.dtype) > 1 for index in indices):
            return self._each_by_one_thread(a, indices)
        for var in self.threads:
            if var not in used and not (_pinned(var, a) and _pinned(var, b)):
                return False
        ranges = {var: a.loops[var] for var in used if var in a.loops}
        ranges.update((var, domain) for var, domain in self.threads.items() if var in used)
        return is_injective_binding(indices, ranges, analyzer=self.analyzer.copy)

    def _each_by_one_thread(self, access: Access, indices: tuple[Expr, ...]) -> bool:
        """Whether each place belongs to one thread, in all iterations, by counting."""
        whole = replace(access, indices=indices, conditions=(), own=frozenset(access.loops))
        places = _addresses(whole, whole)
        found = None if places is None else self._places(whole, places[0], [], places[2], set())
        return found is not None and not _overlap(found, found)

    def _far_apart(self, a: Access, b: Access) -> bool:
        """Whether all places of one access lie before those of the other.

        Stages follow a loop variable modulo their number, so each remainder is a case.
        """
        places = _addresses(a, b)
        if places is None:
            return False
        first, second, lanes = places
        first, second, _ = self._without_common(a, b, first, second)
        known = {**b.loops, **a.loops, **self.threads, **lanes}
        separate = {*self.threads, *a.own, *b.own, *lanes}
        for case in _remainders(first + second, separate):
            ends = [_ends(substitute(address, case), known) for address in (first, second)]
            if None in ends or not (ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]):  # type: ignore[index]
                return False
        return True

    # ---- by counting ----------------------------------------------------------------------

    def _counted(self, a: Access, b: Access) -> bool | None:
        """Whether a place is touched by two threads; ``None`` if that can't be counted."""
        places = _addresses(a, b)
        if places is None:
            return None
        first, second, lanes = places
        less, other, ignored = self._without_common(a, b, first, second)
        found = self._meet(a, b, (less, other), lanes, ignored)
        conditions = (*a.conditions, *b.conditions)
        if found and any(uses_var(item, ignored) for item in conditions):
            # What was ignored may keep them apart.
            found = self._meet(a, b, (first, second), lanes, set()) is not False
        return found

    def _meet(
        self,
        a: Access,
        b: Access,
        places: tuple[Expr, Expr],
        lanes: Mapping[Var, Range],
        ignored: set[Var],
    ) -> bool | None:
        """Whether two threads touch one of the places; ``None`` if that can't be counted."""
        first, second = places
        common = [
            var
            for var in {*free_vars(first), *free_vars(second)}
            if var not in a.own and var not in b.own
            and var not in self.threads and var not in lanes
        ]  # fmt: skip
        touched = []
        for access, address in ((a, first), (b, second)):
            found = self._places(access, address, common, lanes, ignored)
            if found is None:
                return None
            touched.append(found)
        return _overlap(*touched)

    def _without_common(self, a: Access, b: Access, first: Expr, second: Expr) -> Any:
        """Drop what loops around both add to both addresses alike."""
        ignored: set[Var] = set()
        for var in {*free_vars(first), *free_vars(second)}:
            if var in self.threads or var in a.own or var in b.own:
                continue
            zero = {var: const(0)}
            if _divides(var, first) or _divides(var, second):
                continue
            parts = [
                self.analyzer.simplify(address - substitute(address, zero))
                for address in (first, second)
            ]
            others = {*self.threads, *a.own, *b.own}
            if not any(uses_var(part, others) for part in parts) and (
                self.analyzer.can_prove_equal(*parts)
            ):
                first, second = substitute(first, zero), substitute(second, zero)
                ignored.add(var)
        return first, second, ignored

    def _places(
        self,
        access: Access,
        address: Expr,
        common: list[Var],
        lanes: Mapping[Var, Range],
        ignored: set[Var],
    ) -> tuple[_Array, _Array] | None:
        """Keys of all places that are touched, and the threads that do."""
        known = {**access.loops, **self.threads, **lanes}
        conditions = [
            item
            for condition in access.conditions
            for item in conjuncts(condition)
            if all(var in known and _bounds(known[var]) for var in free_vars(item))
            and not uses_var(item, ignored)
        ]
        used = {var for item in (address, *conditions) for var in free_vars(item)}
        variables = list(dict.fromkeys([*common, *self.threads, *sorted(used, key=id)]))
        sizes = []
        for var in variables:
            bounds = _bounds(known[var]) if var in known else None
            if bounds is None:
                return None
            sizes.append(bounds)
        points = 1
        for _, extent in sizes:
            points *= extent
        if points > _POINTS:
            return None
        grids = np.meshgrid(
            *(np.arange(low, low + extent) for low, extent in sizes), indexing="ij", sparse=True
        )
        values: dict[Var, Any] = dict(zip(variables, grids))
        shape = tuple(extent for _, extent in sizes)
        try:
            places = np.broadcast_to(evaluate(address, values), shape)
            holds = np.ones(shape, bool)
            for condition in conditions:
                holds = holds & np.broadcast_to(evaluate(condition, values), shape)
        except NotEvaluable:
            return None
        thread = _number([values[var] for var in self.threads], self.threads, shape)
        case = _number([values[var] for var in common], {v: known[v] for v in common}, shape)
        span = int(places.max(initial=0)) + 1
        keys = case * max(span, 1 << 40) + places
        return keys[holds], thread[holds]


def _ends(address: Expr, known: Mapping[Var, Range]) -> tuple[int, int] | None:
    """The first and the last place of an access; ``None`` if they can't be counted."""
    variables = free_vars(address)
    bounds = [_bounds(known[var]) if var in known else None for var in variables]
    sizes = [item for item in bounds if item is not None]
    if len(sizes) < len(bounds) or prod(extent for _, extent in sizes) > _POINTS:
        return None
    grids = np.meshgrid(
        *(np.arange(low, low + extent) for low, extent in sizes), indexing="ij", sparse=True
    )
    try:
        places = np.asarray(evaluate(address, dict(zip(variables, grids))))
    except NotEvaluable:
        return None
    return (int(places.min()), int(places.max())) if places.size else None


def _remainders(expr: Expr, without: set[Var]) -> list[dict[Var, Expr]]:
    """Values of a variable that stand for all of them: it occurs modulo one small number only."""
    divisors: dict[Var, set[int | None]] = {}
    for item in pre_order(expr):
        if isinstance(item, FloorMod):
            for var in set(free_vars(item.a)) - without:
                divisors.setdefault(var, set()).add(as_int(item.b))
    for var, found in divisors.items():
        (divisor, *others) = found
        if others or divisor is None or not 1 < divisor <= _STAGES:
            continue
        cases: list[dict[Var, Expr]] = [{var: const(n, var.dtype)} for n in range(divisor)]
        uses = sum(item is var for item in pre_order(expr))
        within = sum(
            item is var
            for mod in pre_order(expr)
            if isinstance(mod, FloorMod) and as_int(mod.b) == divisor
            for item in pre_order(mod.a)
        )
        if uses == within and all(_is_linear(mod, var) for mod in pre_order(expr)):
            return cases
    return [{}]


def _is_linear(node: Any, var: Var) -> bool:
    """Whether a modulo's operand is the variable, and what doesn't depend on it."""
    if not isinstance(node, FloorMod) or not uses_var(node.a, {var}):
        return True
    rest = node.a
    while isinstance(rest, (Add, Sub)):
        if uses_var(rest.b, {var}):
            return False
        rest = rest.a
    return rest is var


def _divides(var: Var, expr: Expr) -> bool:
    return any(
        isinstance(item, (FloorDiv, FloorMod)) and uses_var(item.b, {var})
        for item in pre_order(expr)
    )


def _number(grids: list[Any], ranges: Mapping[Var, Range], shape: tuple[int, ...]) -> _Array:
    """Number the combinations of some variables."""
    total = np.zeros(shape, np.int64)
    for grid, domain in zip(grids, ranges.values()):
        low, extent = _bounds(domain) or (0, 1)
        total = total * extent + (grid - low)
    return total


def _overlap(a: tuple[_Array, _Array], b: tuple[_Array, _Array]) -> bool:
    """Whether a key occurs in both with different threads."""
    (keys_a, _), (keys_b, _) = a, b
    if not keys_a.size or not keys_b.size:
        return False
    if keys_a.max() < keys_b.min() or keys_b.max() < keys_a.min():  # mostly: stages of a buffer
        return False
    spans = []
    for keys, threads in (a, b):
        order = np.argsort(keys, kind="stable")
        unique, starts = np.unique(keys[order], return_index=True)
        ordered = threads[order]
        low, high = np.minimum.reduceat(ordered, starts), np.maximum.reduceat(ordered, starts)
        spans.append((unique, low, high))
    (keys_a, low_a, high_a), (keys_b, low_b, high_b) = spans
    _, at_a, at_b = np.intersect1d(keys_a, keys_b, assume_unique=True, return_indices=True)
    low = np.minimum(low_a[at_a], low_b[at_b])
    high = np.maximum(high_a[at_a], high_b[at_b])
    return bool((low != high).any())


def _addresses(a: Access, b: Access) -> tuple[Expr, Expr, dict[Var, Range]] | None:
    """Both accesses as places in one unit, with variables for the lanes of vectors."""
    lanes: dict[Var, Range] = {}
    made = []
    for access in (a, b):
        buffer = access.buffer
        if buffer.strides or (buffer is not a.buffer and len(buffer.shape) != 1):
            return None
        total: Expr = const(0)
        for index, extent in zip(access.indices, buffer.shape):
            total = total * extent + _scalar(index, lanes)
        if buffer.elem_offset is not None:
            total = total + buffer.elem_offset
        if any(isinstance(item, BufferLoad) for item in pre_order(total)):
            return None
        made.append(total)
    sizes = [dtypes.bytes_of(access.buffer.dtype) for access in (a, b)]
    if sizes[0] != sizes[1]:
        for position, size in enumerate(sizes):
            byte = Var("byte")
            lanes[byte] = Range.from_min_extent(const(0), const(size))
            made[position] = made[position] * size + byte
    return made[0], made[1], lanes


def _scalar(index: Expr, lanes: dict[Var, Range]) -> Expr:
    if isinstance(index, Broadcast):
        return index.value
    if isinstance(index, Ramp):
        lane = Var("lane")
        lanes[lane] = Range.from_min_extent(const(0), const(index.lanes))
        return index.base + index.stride * lane
    return index


def _bounds(domain: Range) -> tuple[int, int] | None:
    low, extent = as_int(domain.min), as_int(domain.extent)
    return None if low is None or extent is None else (low, extent)


def _pinned(var: Var, access: Access) -> bool:
    """Whether a condition gives a thread index one value."""
    return any(
        isinstance(item, EQ) and item.a is var and isinstance(item.b, IntImm)
        for condition in access.conditions
        for item in conjuncts(condition)
    )
