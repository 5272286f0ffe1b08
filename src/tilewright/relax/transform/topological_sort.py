"""``TopologicalSort``: bindings of dataflow blocks in another order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tilewright.ir import IRModule, Pass, Var, free_vars
from tilewright.relax.analysis import is_impure, used_graph_vars
from tilewright.relax.branches import map_blocks
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Function,
    MatchCast,
    RelaxVar,
)
from tilewright.relax.struct_info import defined_vars, used_vars
from tilewright.support.errors import VerifyError

ORDERS = ("depth-first", "breadth-first")
DIRECTIONS = ("from-inputs", "from-outputs")


class TopologicalSort(Pass):
    """Order the bindings of each dataflow block.

    ``order`` is ``"depth-first"`` (what uses a value comes soon after it) or ``"breadth-first"``
    (first all that needs only inputs, then all that needs these, …). ``direction`` says where that
    begins: ``"from-inputs"``, or ``"from-outputs"``, which puts each value as late as it may come.
    What has effects stays where it is among the others.

    Raises ``VerifyError`` for another order or direction.

    Before:
        a = R.exp(x)
        b = R.tanh(x)
        c = R.abs(a)
        d = R.add(b, c)
    After ``TopologicalSort("depth-first", "from-inputs")``:
        a = R.exp(x)
        c = R.abs(a)
        b = R.tanh(x)
        d = R.add(b, c)
    """

    def __init__(self, order: str = "depth-first", direction: str = "from-inputs") -> None:
        for name, value, known in (("order", order, ORDERS), ("direction", direction, DIRECTIONS)):
            if value not in known:
                raise VerifyError(f"{name} is {' or '.join(map(repr, known))}, got {value!r}")
        self.order, self.direction = order, direction

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild every function that is no fusion group."""
        return mod.map_functions(
            lambda _, function: function if function.is_primitive else self._sorted(function),
            Function,
        )

    def _sorted(self, function: Function) -> Function:
        body = map_blocks(function.body, self._sort_block)
        return function if body is function.body else function.replace(body=body)

    def _sort_block(self, block: BindingBlock) -> BindingBlock:
        if not isinstance(block, DataflowBlock):
            return block
        bindings = block.bindings
        before = _needs(bindings)
        depth_first = self.order == "depth-first"
        if self.direction == "from-inputs":
            order = _walk(before, depth_first)
        else:
            last = len(bindings) - 1
            # The same walk on the block turned round.
            turned: list[set[int]] = [set() for _ in bindings]
            for position, needed in enumerate(before):
                for other in needed:
                    turned[last - other].add(last - position)
            order = [last - position for position in _walk(turned, depth_first)][::-1]
        made = tuple(bindings[position] for position in order)
        return block if made == bindings else DataflowBlock(made)


def _needs(bindings: Sequence[Binding]) -> list[set[int]]:
    """Positions of the bindings that must come before each binding."""
    bound: dict[RelaxVar, int] = {}
    extents: dict[Var, int] = {}
    found: list[set[int]] = []
    barrier: int | None = None
    for position, binding in enumerate(bindings):
        used = {*free_vars(binding.value), *used_vars(binding.var.struct_info)}
        needed = {bound[var] for var in used_graph_vars(binding.value) if var in bound}
        needed |= {extents[var] for var in used if var in extents}
        if is_impure(binding.value):
            needed |= set(range(position))
            barrier = position
        elif barrier is not None:
            needed.add(barrier)
        if isinstance(binding, MatchCast):
            for var in defined_vars([binding.struct_info]):
                extents.setdefault(var, position)
        bound[binding.var] = position
        found.append(needed - {position})
    return found


def _walk(before: list[set[int]], depth_first: bool) -> list[int]:
    """An order in which each comes after what it needs, near (or far from) the first of these."""
    users: list[list[int]] = [[] for _ in before]
    for position, needed in enumerate(before):
        for other in needed:
            users[other].append(position)
    missing = [len(needed) for needed in before]
    ready = deque(position for position, count in enumerate(missing) if count == 0)
    made: list[int] = []
    while ready:
        position = ready.popleft()
        made.append(position)
        free: list[int] = []
        for user in users[position]:
            missing[user] -= 1
            if missing[user] == 0:
                free.append(user)
        if depth_first:
            ready.extendleft(reversed(free))
        else:
            ready.extend(free)
    return made
