"""What the primitives that move computation ask about the blocks of one scope.

A *scope* is the body of a block (of the root block, mostly). The blocks directly inside it, in
program order, with their signatures (``reads``, ``writes``) tell who produces and who consumes a
buffer. A :class:`Scope` is computed once per version of a function and kept with its index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tilewright.arith import Analyzer, detect_iter_map, simplify
from tilewright.arith.polynomial import constant_of, poly_add, poly_atoms
from tilewright.ir import (
    GE,
    GT,
    LE,
    LT,
    TRUE,
    And,
    Expr,
    IntImm,
    Node,
    Range,
    Var,
    and_,
    as_int,
    const,
    expr_equal,
    free_vars,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir import (
    NO_OP,
    SPATIAL,
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    DeclBuffer,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    SeqStmt,
    While,
)
from tilewright.tir.analysis import COMPLETE, REDUCTION, block_facts, is_injective_binding
from tilewright.tir.analysis.dependency import shared_memory
from tilewright.tir.schedule.primitives._regions import Regions
from tilewright.tir.schedule.state import ScheduleState


class Scope:
    """The blocks directly inside one block, with who reads and writes which buffer."""

    def __init__(self, state: ScheduleState, realize: BlockRealize, func_name: str) -> None:
        self.state = state
        self.func_name = func_name
        self.realize = realize
        self.block: Block = realize.block
        self.branches: dict[BlockRealize, IfThenElse] = {}
        """Blocks that run under a condition, with the innermost one."""
        self._hidden: dict[BlockRealize, Any] = {}
        self._declared: dict[Buffer, Any] = {}
        self.blocks = self._find_blocks(realize.block.body)
        self.position = {child: number for number, child in enumerate(self.blocks)}
        self._loops: dict[BlockRealize, list[For]] = {}
        self._shared: dict[Buffer, tuple[Buffer, BlockRealize]] | None = None
        self.settled: dict[tuple[Any, ...], bool] = {}
        self._whole: dict[BlockRealize, bool] = {}
        self._readers: dict[Buffer, list[BlockRealize]] = {}
        self._writers: dict[Buffer, list[BlockRealize]] = {}
        for child in self.blocks:
            for buffer in regions_buffers(child.block.reads):
                self._readers.setdefault(buffer, []).append(child)
            for buffer in regions_buffers(child.block.writes):
                self._writers.setdefault(buffer, []).append(child)

    def _find_blocks(self, body: Any) -> list[BlockRealize]:
        """Return the blocks in program order, noting what besides loops is around them."""
        found: list[BlockRealize] = []
        stack: list[tuple[Any, Any, Any]] = [(body, None, None)]
        while stack:
            item, branch, hidden = stack.pop()
            kind = type(item)
            if kind is For:
                stack.append((item.body, branch, hidden))
            elif kind is BlockRealize:
                found.append(item)
                if branch is not None:
                    self.branches[item] = branch
                if hidden is not None:
                    self._hidden[item] = hidden
            elif kind is SeqStmt:
                stack.extend((part, branch, hidden) for part in reversed(item.stmts))
            elif kind is IfThenElse:
                if item.else_case is not None:
                    stack.append((item.else_case, item, hidden))
                stack.append((item.then_case, item, hidden))
            elif kind is AttrStmt:
                stack.append((item.body, branch, hidden))
            elif kind is DeclBuffer:
                self._declared[item.buffer] = item
                stack.append((item.body, branch, hidden))
            elif kind is LetStmt or kind is While or kind is Allocate:
                stack.append((item.body, branch, item))
        return found

    def readers(self, buffer: Buffer) -> list[BlockRealize]:
        """Blocks that read ``buffer``, in program order; refuses if that isn't all known."""
        found = self._readers.get(buffer, [])
        self._check_known(buffer, found)
        return found

    def writers(self, buffer: Buffer) -> list[BlockRealize]:
        """Blocks that write ``buffer``, in program order; refuses if that isn't all known."""
        found = self._writers.get(buffer, [])
        self._check_known(buffer, found)
        return found

    def check_known(self, realize: BlockRealize) -> None:
        """Refuse a block that loops and names of buffers don't tell enough about.

        It is below a ``while``, or a definition that it could not be taken out of, or uses memory
        that goes by several names.
        """
        for region in (*realize.block.reads, *realize.block.writes):
            self._check_known(region.buffer, (realize,))

    def _check_known(self, buffer: Buffer, users: Iterable[BlockRealize]) -> None:
        for user in users:
            if user in self._hidden:
                stmt = self._hidden[user]
                raise self.state.error(
                    f"block {user.block.name!r} is inside of a {type(stmt).__name__}; only loops "
                    "and branches around blocks are supported by what moves computation",
                    user,
                    stmt,
                )
        if buffer in self._declared:
            raise self.state.error(
                f"{buffer.name} is declared as a view of memory between the blocks, so who uses "
                "this memory isn't known",
                self._declared[buffer],
                remedy="allocate it in a block, or match it in the block that uses it",
            )
        if self._shared is None:
            around = [item.block for item in self.state.parents(self.realize)
                      if type(item) is BlockRealize]  # fmt: skip
            self._shared = shared_memory(self.blocks, (*reversed(around), self.block))
        if buffer in self._shared:
            other, user = self._shared[buffer]
            raise self.state.error(
                f"{buffer.name} and {other.name} are names of the same memory, which is changed in "
                f"this scope: what depends on {buffer.name} isn't known",
                user,
                remedy="use one name for the memory",
            )

    def loops(self, realize: BlockRealize) -> list[For]:
        """Loops around a block of this scope, the outermost first."""
        found = self._loops.get(realize)
        if found is None:
            found = self._loops[realize] = self.state.loops_above(realize)
        return found

    def shared_loops(self, a: BlockRealize, b: BlockRealize) -> list[For]:
        """Loops that are around both of two blocks and have more than one iteration."""
        return [x for x, y in zip(self.loops(a), self.loops(b)) if x is y and as_int(x.extent) != 1]

    def is_fixed(self, realize: BlockRealize, iter_var: IterVar) -> bool:
        """Whether the range of a block's axis depends on no loop around the block."""
        dom = iter_var.dom
        if type(dom.extent) is IntImm and type(dom.min) is IntImm:
            return True
        loops = {loop.loop_var for loop in self.loops(realize)}
        return not (uses_var(dom.min, loops) or uses_var(dom.extent, loops))

    def has_fixed_domain(self, realize: BlockRealize) -> bool:
        """Whether the ranges of a block's axes depend on no loop around the block."""
        return all(self.is_fixed(realize, iter_var) for iter_var in realize.block.iter_vars)

    def is_whole(self, realize: BlockRealize) -> bool:
        """Whether the loops around a block and its predicate run all of its domain."""
        found = self._whole.get(realize)
        if found is None:
            found = self._whole[realize] = _runs_whole_domain(self, realize)
        return found

    def is_visible_outside(self, buffer: Buffer) -> bool:
        """Whether ``buffer`` outlives the scope: it is allocated elsewhere, or a parameter."""
        return buffer not in self.block.alloc_buffers

    def consumers(self, realize: BlockRealize) -> list[BlockRealize]:
        """Other blocks that read what ``realize`` writes, in program order."""
        found = {
            reader: None
            for buffer in regions_buffers(realize.block.writes)
            for reader in self.readers(buffer)
            if reader is not realize
        }
        return sorted(found, key=self.position.__getitem__)

    def producers(self, realize: BlockRealize) -> list[BlockRealize]:
        """Other blocks that write what ``realize`` reads, in program order."""
        found = {
            writer: None
            for buffer in regions_buffers(realize.block.reads)
            for writer in self.writers(buffer)
            if writer is not realize
        }
        return sorted(found, key=self.position.__getitem__)


def scope_of(state: ScheduleState, realize: BlockRealize) -> Scope:
    """Return the scope that a block is in; ``ScheduleError`` for the root block."""
    func_name = state.func_name_of(realize)
    around = state.scope_realize(realize)
    if around is None:
        raise state.error(
            "the root block can't be moved or rewritten by this primitive",
            realize,
            remedy="give a block inside it",
        )
    cache = state.index(func_name).cache
    key = ("scope", around)
    found: Scope | None = cache.get(key)
    if found is None:
        found = cache[key] = Scope(state, around, func_name)
    # Copies of a schedule share the index, and so this scope: it works for whoever asks.
    found.state = state
    found.check_known(realize)
    return found


def regions_buffers(regions: Iterable[Any]) -> list[Buffer]:
    """The buffers of regions, once each, in order."""
    return list(dict.fromkeys(region.buffer for region in regions))


# ---- kinds of blocks ----------------------------------------------------------------------------


def check_only_writer(scope: Scope, realize: BlockRealize, buffer: Buffer) -> None:
    """Refuse if another block of the scope writes ``buffer`` too."""
    others = [writer for writer in scope.writers(buffer) if writer is not realize]
    if others:
        raise scope.state.error(
            lambda: (
                f"block {realize.block.name!r} is not the only writer of {buffer.name}: "
                f"block {others[0].block.name!r} writes it too"
            ),
            realize,
            others[0],
            remedy="apply the primitive before decompose_reduction splits the writer",
        )


def check_complete(scope: Scope, realize: BlockRealize) -> None:
    """Refuse unless the block is *complete*.

    It alone writes its outputs, each element once and for all (spatial axes only), and doesn't
    read what it writes.
    """
    state, block = scope.state, realize.block
    for iter_var in block.iter_vars:
        if iter_var.kind != SPATIAL:
            raise state.error(
                f"block {block.name!r} is not complete: its axis {iter_var.var.name} is "
                f"{iter_var.kind}",
                realize,
                remedy="only blocks whose axes are all spatial can be inlined or cached this way",
            )
    if block.init is not None:
        raise state.error(f"block {block.name!r} is not complete: it has an init", realize)
    reads = set(regions_buffers(block.reads))
    for buffer in regions_buffers(block.writes):
        check_only_writer(scope, realize, buffer)
        if buffer in reads:
            raise state.error(
                f"block {block.name!r} is not complete: it reads {buffer.name}, which it writes",
                realize,
            )


def check_not_output(scope: Scope, realize: BlockRealize) -> None:
    """Refuse if the block writes a buffer that is visible outside the scope."""
    for buffer in regions_buffers(realize.block.writes):
        if scope.is_visible_outside(buffer):
            raise scope.state.error(
                f"block {realize.block.name!r} is an output block: {buffer.name} is visible "
                "outside its scope",
                realize,
                remedy="cache_write it first, and apply the primitive to the block that computes",
            )


def check_inputs_final(scope: Scope, realize: BlockRealize) -> None:
    """Refuse if something that comes later changes what the block reads.

    Such a block may not be computed any later than it is.
    """
    place = scope.position[realize]
    for buffer in regions_buffers(realize.block.reads):
        for writer in scope.writers(buffer):
            if scope.position[writer] > place:
                raise scope.state.error(
                    lambda writer=writer, buffer=buffer: (  # type: ignore[misc]
                        f"block {realize.block.name!r} reads {buffer.name}, which block "
                        f"{writer.block.name!r} changes later: it can't be computed after that"
                    ),
                    realize,
                    writer,
                )


def check_movable(scope: Scope, realize: BlockRealize) -> None:
    """Refuse unless a block may run in other places: it is complete or a reduction."""
    facts = block_facts(realize.block)
    if facts.kind == REDUCTION:
        check_reduces_once(scope, realize)
    if facts.kind in (COMPLETE, REDUCTION):
        return
    why = facts.reason or "it updates what was there before"
    raise scope.state.error(
        f"block {realize.block.name!r} is neither complete nor a reduction: {why}",
        realize,
        remedy="only a block that makes each element anew, whenever it runs, can be moved",
    )


def check_reduces_once(scope: Scope, realize: BlockRealize) -> None:
    """Refuse unless each element begins with init, and each part is added once.

    Other loops would do just that, whatever those do that are around the block now.
    """
    loops = scope.loops(realize)
    first = {loop.loop_var: loop.min for loop in loops}
    reduce: set[Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values):
        if iter_var.kind == SPATIAL:
            continue
        reduce.update(free_vars(value))
        dom = iter_var.dom
        begin = substitute(value, first)
        if not expr_equal(begin, dom.min) and as_int(simplify(begin - dom.min)) != 0:
            raise scope.state.error(
                f"the reduction of block {realize.block.name!r} over {iter_var.var.name} does not "
                "begin with the instance that runs init",
                realize,
            )
    used = {var for value in realize.iter_values for var in free_vars(value)}
    start = next((n for n, loop in enumerate(loops) if loop.loop_var in reduce), len(loops))
    for loop in loops[start:]:
        if loop.loop_var not in used and as_int(loop.extent) != 1:
            raise scope.state.error(
                f"loop {loop.loop_var.name} repeats parts of the reduction of block "
                f"{realize.block.name!r}",
                realize,
                loop,
            )
    # Each iteration of the loops further out begins afresh.
    if start < len(loops) and not is_injective_binding(
        realize.iter_values,
        loop_ranges(loops[start:]),
        realize.predicate,
        analyzer=lambda: scope.state.analyzer(scope.func_name),
    ):
        raise scope.state.error(
            f"block {realize.block.name!r} is not shown to add each part of its reduction once: "
            "its bindings may be the same for different iterations",
            realize,
        )


def check_not_by_pointer(scope: Scope, realize: BlockRealize, buffer: Buffer) -> None:
    """Refuse if a block uses a buffer's pointer, which goes past any rewriting of its accesses."""
    if any(item is buffer.data for item in pre_order(realize.block)):
        raise scope.state.error(
            f"block {realize.block.name!r} uses {buffer.name} through its pointer", realize
        )


# ---- predicates ---------------------------------------------------------------------------------


def conjuncts(condition: Expr) -> Iterator[Expr]:
    """Split a condition at its ``and``s; true has none."""
    stack = [condition]
    while stack:
        item = stack.pop()
        if isinstance(item, And):
            stack.extend((item.b, item.a))  # type: ignore[attr-defined]
        elif not (isinstance(item, IntImm) and item.value):
            yield item


def restricting_conjuncts(realize: BlockRealize, analyzer: Analyzer | None = None) -> list[Expr]:
    """Return the parts of a block's predicate that say more than "inside the block's domain".

    Splitting with a remainder, and windows that reach over an edge, give predicates which only keep
    the iteration variables inside their domains; these hold wherever the block is moved to.
    """
    predicate = realize.predicate
    if isinstance(predicate, IntImm) and predicate.value:
        return []
    rest = []
    for condition in conjuncts(predicate):
        if not _keeps_domain(condition, realize, analyzer):
            rest.append(condition)
    return rest


def _keeps_domain(condition: Expr, realize: BlockRealize, analyzer: Analyzer | None) -> bool:
    if isinstance(condition, (LT, LE)):
        low, high, slack = condition.a, condition.b, 0 if isinstance(condition, LT) else 1
    elif isinstance(condition, (GT, GE)):
        low, high, slack = condition.b, condition.a, 0 if isinstance(condition, GT) else 1
    else:
        return False
    # The condition is low < high + slack.
    for value, iter_var in zip(realize.iter_values, realize.block.iter_vars):
        dom = iter_var.dom
        end = dom.min + dom.extent
        if expr_equal(low, value):  # value < high + slack: fine if end <= high + slack
            known, limit = as_int(end), as_int(high)
            if known is not None and limit is not None:
                if known <= limit + slack:
                    return True
            elif expr_equal(end, high + slack):
                return True
        elif expr_equal(high, value):  # low < value + slack: fine if low - slack < dom.min
            known, limit = as_int(dom.min), as_int(low)
            if known is not None and limit is not None and limit - slack < known:
                return True
    analyzer = analyzer or Analyzer()
    gap = high - low + slack  # must be >= 1
    for value, iter_var in zip(realize.iter_values, realize.block.iter_vars):
        dom = iter_var.dom
        # Inside the domain dom.min <= value <= end - 1.
        over = as_int(analyzer.simplify(gap - (dom.min + dom.extent - value)))
        under = as_int(analyzer.simplify(gap - (value - dom.min)))
        if (over is not None and over >= 0) or (under is not None and under >= 1):
            return True
    return False


def check_predicate_is_domain(scope: Scope, realize: BlockRealize) -> None:
    """Refuse if a block's predicate does more than keep its axes inside their domains.

    Those must be the same wherever the block runs.
    """
    for iter_var in realize.block.iter_vars:
        if not scope.is_fixed(realize, iter_var):
            raise scope.state.error(
                f"the range of axis {iter_var.var.name} of block {realize.block.name!r} depends on "
                "the loops around it",
                realize,
            )
    if realize in scope.branches:
        raise scope.state.error(
            f"block {realize.block.name!r} runs under a branch, which tells where it runs",
            realize,
            scope.branches[realize],
        )
    if realize.predicate is TRUE:
        return
    rest = restricting_conjuncts(realize, scope.state.analyzer(scope.func_name))
    if rest and not scope.is_whole(realize):
        raise scope.state.error(
            lambda: (
                f"the predicate of block {realize.block.name!r} restricts it beyond its domain: "
                f"`{rest[0]!r}`"
            ),
            realize,
            remedy="only predicates that come from splitting with a remainder can be rebuilt",
        )


def check_runs_whole(scope: Scope, realize: BlockRealize) -> None:
    """Refuse if the loops around a block leave out a part of its domain."""
    check_predicate_is_domain(scope, realize)
    if not scope.is_whole(realize):
        raise scope.state.error(
            f"the loops around block {realize.block.name!r} don't run all of its domain",
            realize,
            remedy="an axis that runs over a part of a buffer must have that part as its range",
        )


def _runs_whole_domain(scope: Scope, realize: BlockRealize) -> bool:
    rest: list[Expr] = []
    if realize in scope.branches:
        return False
    if realize.predicate is not TRUE:
        rest = restricting_conjuncts(realize, scope.state.analyzer(scope.func_name))
    elif _is_plain(scope, realize):
        return True
    return _covers_domain(scope, realize, rest) or _is_bijective(scope, realize)


def _is_plain(scope: Scope, realize: BlockRealize) -> bool:
    """Whether each axis is bound to a loop of its own with the axis's range."""
    loops = {loop.loop_var: loop for loop in scope.loops(realize)}
    for value, iter_var in zip(realize.iter_values, realize.block.iter_vars):
        dom = iter_var.dom
        if type(value) is Var:
            loop = loops.pop(value, None)
            if loop is None or not (
                expr_equal(loop.extent, dom.extent) and expr_equal(loop.min, dom.min)
            ):
                return False
        elif as_int(dom.extent) != 1:
            return False
    return True


def _is_bijective(scope: Scope, realize: BlockRealize) -> bool:
    """Whether loops under the predicate and the block's domain correspond one to one."""
    loops = loop_ranges(scope.state.loops_above(realize))
    analyzer = scope.state.analyzer(scope.func_name)
    return _maps_onto_domain(realize, loops, realize.predicate, analyzer)


def _maps_onto_domain(
    realize: BlockRealize,
    loops: dict[Var, Range],
    predicate: Expr,
    analyzer: Analyzer,
) -> bool:
    found = detect_iter_map(
        realize.iter_values, loops, predicate, require_bijective=True, analyzer=analyzer
    )
    if found.errors:
        return False
    for total, iter_var in zip(found.indices, realize.block.iter_vars):
        extent: Expr = const(1)
        if total.args:
            if len(total.args) > 1 or as_int(total.args[0].scale) != 1:
                return False
            extent = total.args[0].extent
        if not analyzer.can_prove_equal(extent, iter_var.dom.extent):
            return False
        if not analyzer.can_prove_equal(total.base, iter_var.dom.min):
            return False
    return True


def _covers_domain(scope: Scope, realize: BlockRealize, rest: Iterable[Expr]) -> bool:
    """Whether the block runs its whole domain, some of it repeatedly, in spite of ``rest``.

    A condition ``i0*4 + i1 < 7`` makes one loop over ``[0, 7)`` of the two. With such loops in
    their place, each axis must be covered by loops that no other axis uses.
    """
    regions = Regions(scope.state, scope.func_name, ())
    regions.add_block_axes(scope.block)
    loops = regions.inner_loops(scope.state.loops_above(realize))
    values = [regions.poly(value) for value in realize.iter_values]
    for number, condition in enumerate(rest):
        if type(condition) is not LT:
            return False
        limit = as_int(condition.b)  # type: ignore[attr-defined]
        index = regions.poly(condition.a)  # type: ignore[attr-defined]
        mine = {atom: loops[atom] for atom in poly_atoms(index) if atom in loops}
        span = regions.relax(index, mine)
        if limit is None or span is None or span.min or not span.exact:
            return False
        reach = constant_of(span.extent)
        if reach is None or reach < limit or any(atom not in loops for atom in mine):
            return False
        joint = regions.table.var(Var(f"u{number}"))
        regions.know_range(joint, {}, {(): limit})
        made = [regions.replace_form(value, index, joint) for value in values]
        for atom in mine:
            del loops[atom]
        loops[joint] = ({}, {(): limit})
        if any(value is None for value in made):
            return False
        values = [value for value in made if value is not None]
        if any(regions.depends(atom, mine) for value in values for atom in poly_atoms(value)):
            return False
    used: set[int] = set()
    for value, iter_var in zip(values, realize.block.iter_vars):
        own = {atom for atom in loops if any(regions.depends(a, {atom}) for a in poly_atoms(value))}
        if own & used:
            return False
        used |= own
        span = regions.relax(value, loops)
        if span is None or not span.exact:
            return False
        start, extent = regions.poly(iter_var.dom.min), regions.poly(iter_var.dom.extent)
        below = regions.difference(start, span.min)
        above = regions.difference(poly_add(span.min, span.extent), poly_add(start, extent))
        if below is None or below < 0 or above is None or above < 0:
            return False
    return True


def merge_conditions(*groups: Iterable[Expr]) -> Expr:
    """Join conditions, each once."""
    found: list[Expr] = []
    for group in groups:
        for condition in group:
            if not any(expr_equal(condition, other) for other in found):
                found.append(condition)
    return and_(*found)


# ---- statements ---------------------------------------------------------------------------------


def removal_root(state: ScheduleState, realize: BlockRealize) -> Any:
    """Return the outermost loop (or branch) that holds nothing but ``realize``."""
    parents = state.index(state.func_name_of(realize)).parents
    current: Any = realize
    while True:
        parent = parents[current]
        if type(parent) is For or (type(parent) is IfThenElse and parent.else_case is None):
            current = parent
            continue
        if type(parent) is not SeqStmt:
            raise state.error(
                f"block {realize.block.name!r} is the only statement of its scope: nothing would "
                "be left",
                realize,
            )
        return current


def without(state: ScheduleState, scope: Scope, realize: BlockRealize, **changes: Any) -> Block:
    """Return the scope's block without one inner block; ``changes`` are other fields of it."""
    body = state.rebuilt(scope.block.body, {removal_root(state, realize): NO_OP})
    return scope.block.replace(body=body, **changes)


def loads_of(node: Node, buffer: Buffer) -> list[BufferLoad]:
    """All loads of a buffer below ``node``."""
    return [
        item for item in pre_order(node) if isinstance(item, BufferLoad) and item.buffer is buffer
    ]


def buffer_names(state: ScheduleState, func_name: str) -> set[str]:
    """Names of all buffers of a function, so that new ones can differ."""
    index = state.index(func_name)
    found: set[str] | None = index.cache.get("buffer_names")
    if found is None:
        found = {buffer.name for buffer in index.func.buffers}
        for realize in index.blocks.values():
            found.update(buffer.name for buffer in realize.block.alloc_buffers)
            found.update(match.buffer.name for match in realize.block.match_buffers)
        index.cache["buffer_names"] = found
    return set(found)


def loop_ranges(loops: Iterable[For]) -> dict[Var, Range]:
    """Loop variables with their ranges."""
    return {loop.loop_var: Range(loop.min, loop.extent) for loop in loops}
