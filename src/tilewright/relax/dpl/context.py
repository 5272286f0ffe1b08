"""``PatternContext``: several patterns that match at once, with demands on who uses what.

with PatternContext() as ctx:
    x = wildcard()
    q, k = is_op("relax.matmul")(x, wildcard()), is_op("relax.matmul")(x, wildcard())
found = ctx.match_dfb(block)        # {q: lv, k: lv1, x: x, ...}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.dpl.matching import OPEN_CONTEXTS, Matching
from tilewright.relax.dpl.pattern import (
    CallPattern,
    DFConstraint,
    DFPattern,
)
from tilewright.relax.expr import (
    DataflowBlock,
    DataflowVar,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    Tuple,
    VarBinding,
)
from tilewright.support.errors import VerifyError

Match = dict[DFPattern, RelaxExpr]
"""What each pattern matched: a variable, or a constant."""


class _Edge(NamedTuple):
    """A demand that one value is an operand of another."""

    source: DFPattern
    user: DFPattern
    position: int
    only: bool


class PatternContext:
    """Patterns made inside of ``with`` belong to the context; all of them must match together.

    Different patterns of calls match different variables. An ``incremental`` context goes on from
    the one that is open when it is made: it has that one's patterns and demands too.
    """

    def __init__(self, incremental: bool = False) -> None:
        outer = PatternContext.current() if incremental else None
        if incremental and outer is None:
            raise VerifyError("no context is open: use `with PatternContext() as ctx:`")
        self.patterns: dict[DFPattern, None] = dict(outer.patterns) if outer else {}
        self.edges: list[_Edge] = list(outer.edges) if outer else []
        self.constraints: list[DFConstraint] = list(outer.constraints) if outer else []

    def __enter__(self) -> PatternContext:
        OPEN_CONTEXTS.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        OPEN_CONTEXTS.stack.pop()

    @staticmethod
    def current() -> PatternContext | None:
        """Return the innermost open context; ``None`` if none is open."""
        found: PatternContext | None = OPEN_CONTEXTS.current()
        return found

    def add_pattern(self, pattern: DFPattern) -> None:
        """Add a pattern; those made inside of ``with`` are added by themselves."""
        self.patterns.setdefault(pattern)

    def add_edge(self, source: DFPattern, user: DFPattern, index: int, only: bool) -> None:
        """Demand that ``user`` has ``source`` as an operand: number ``index``, or any (-1)."""
        self.add_pattern(source)
        self.add_pattern(user)
        self.edges.append(_Edge(source, user, index, only))

    def copy_edges(self, copies: Mapping[DFPattern, DFPattern]) -> None:
        """Demand of copies of patterns what is demanded of these among themselves."""
        for edge in tuple(self.edges):
            if edge.source in copies and edge.user in copies:
                self.add_edge(copies[edge.source], copies[edge.user], edge.position, edge.only)

    def add_constraint(self, constraint: DFConstraint) -> None:
        """Add a demand on several patterns; those made inside of ``with`` add themselves."""
        for pattern in constraint.args:
            self.add_pattern(pattern)
        self.constraints.append(constraint)

    def match_dfb(
        self,
        dfb: DataflowBlock,
        start_hint: RelaxVar | None = None,
        must_include_hint: bool = False,
    ) -> Match | None:
        """Return the first match in a dataflow block, or ``None``.

        Matches with the variable ``start_hint`` come first, and are the only ones if it must be
        included.
        """
        if start_hint is not None:
            for found in self.matches(dfb):
                if any(operand is start_hint for operand in found.values()):
                    return found
        if must_include_hint:
            if start_hint is None:
                raise VerifyError("must_include_hint needs start_hint, the variable to include")
            return None
        return next(self.matches(dfb), None)

    def matches(
        self, dfb: DataflowBlock, known: Mapping[RelaxVar, object] | None = None
    ) -> Iterator[Match]:
        """Go through all matches; the values of variables in ``known`` are not looked at.

        Raises ``VerifyError`` if the context has no pattern to look for.
        """
        roots = self._roots()
        if not roots:
            raise VerifyError("the context has no pattern of a call, so nothing can match it")
        for found in _Search(self.edges, roots, dfb, known or {}).run():
            if all(map(partial(_meets, found), self.constraints)):
                yield found

    def _roots(self) -> list[DFPattern]:
        """Patterns to look for: those that are no part of another, leaves only if an edge asks."""
        parts = {part for pattern in self.patterns for part in pattern.parts()}
        asked = {end for edge in self.edges for end in (edge.source, edge.user)}
        asked.update(pattern for each in self.constraints for pattern in each.args)
        found = [
            pattern
            for pattern in self.patterns
            if pattern not in parts and (pattern.parts() or pattern in asked)
        ]
        return sorted(found, key=lambda pattern: not pattern.parts())


def _meets(found: Match, constraint: DFConstraint) -> bool:
    operands = [found.get(pattern) for pattern in constraint.args]
    known = [operand for operand in operands if operand is not None]
    return len(known) == len(operands) and constraint.holds(known)


class _Search:
    """Looks for the patterns of a context in one block."""

    def __init__(
        self,
        edges: list[_Edge],
        roots: list[DFPattern],
        dfb: DataflowBlock,
        known: Mapping[RelaxVar, object],
    ) -> None:
        self.edges = edges
        self.roots = roots
        self.bound = [binding.var for binding in dfb.bindings if isinstance(binding, VarBinding)]
        values = {b.var: b.value for b in dfb.bindings if isinstance(b, VarBinding)}
        self.matching = Matching({var: v for var, v in values.items() if var not in known})
        self.users: dict[RelaxVar, list[RelaxVar]] = {}
        for binding in dfb.bindings:
            for var in used_graph_vars(binding.value):
                self.users.setdefault(var, []).append(binding.var)

    def run(self) -> Iterator[Match]:
        """Go through all matches."""
        for _ in self._assign(self.roots):
            yield {p: o for p, o in self.matching.found.items() if isinstance(o, RelaxExpr)}

    def _assign(self, roots: list[DFPattern]) -> Iterator[None]:
        if not roots:
            if all(map(self._holds, self.edges)):
                yield
            return
        root, candidates = self._next(roots)
        rest = [other for other in roots if other is not root]
        taken = {self.matching.found.get(other) for other in self.roots}
        for candidate in candidates:
            if candidate in taken:
                continue
            for _ in self.matching.ways(root, candidate):
                yield from self._assign(rest)

    def _next(self, roots: list[DFPattern]) -> tuple[DFPattern, list[RelaxExpr]]:
        """A pattern that is next to what is known already, and the values that it can match."""
        found = self.matching.found
        for root in roots:
            for edge in self.edges:
                if edge.user is root and edge.source in found:
                    return root, self._users(found[edge.source])
                if edge.source is root and edge.user in found:
                    return root, _operands(self.matching.value(found[edge.user]))
            for part in root.args if isinstance(root, CallPattern) else ():
                if part in found:
                    return root, self._users(found[part])
        inputs = [var for var in self.users if var not in self.matching.values]
        return roots[0], [*self.bound, *(() if roots[0].parts() else inputs)]

    def _users(self, operand: RelaxExpr) -> list[RelaxExpr]:
        if isinstance(operand, RelaxVar):
            return list(self.users.get(operand, ()))
        return list(self.bound)

    def _holds(self, edge: _Edge) -> bool:
        found = self.matching.found
        if edge.source not in found or edge.user not in found:
            return False
        source = found[edge.source]
        operands = _operands(self.matching.value(found[edge.user]))
        if edge.position >= 0:
            operands = operands[edge.position : edge.position + 1]
        if not any(operand is source for operand in operands):
            return False
        if not edge.only:
            return True
        if source in self.bound and not isinstance(source, DataflowVar):
            return False  # it is used outside of the block
        return all(user is found[edge.user] for user in self._users(source))


def _operands(value: RelaxExpr) -> list[RelaxExpr]:
    """Operands of a call; those of a ``call_tir`` are in its tuple."""
    if not isinstance(value, RelaxCall):
        return [item for item in value.child_nodes() if isinstance(item, RelaxExpr)]
    made: list[RelaxExpr] = []
    for arg in value.args:
        made.extend(arg.fields if isinstance(arg, Tuple) else (arg,))
    return made
