"""Does it matter in which order the instances of a reduction update an element?

Schedules give loops another order, regroup iterations and let them run at the same time. For a sum
that makes no difference, for ``B = B * 3 + A`` it does. The updates of a block commute if each of
the buffers that it writes is

- updated by one law: by a registered reducer (tuples such as ``argmin`` as a whole), or as
  ``X = X op term`` with one ``op`` of ``+ - * min max and or xor``, under conditions or not, where
  no term, index or condition reads what the block writes; or
- written with values that are the same in all instances of the reduction.

Whole numbers wrap, so that sums and products of them commute; those of floating-point numbers do up
to rounding, as for the registered reducers. All that depends on the order asks here; who keeps the
order of the instances of each element need not (``schedule.instance_order``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tilewright.ir import (
    Add,
    And,
    Call,
    Cast,
    Expr,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Or,
    Select,
    StringImm,
    Sub,
    Var,
    dtypes,
    expr_equal,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir.analysis.reducer_laws import check_reducer
from tilewright.tir.analysis.reduction import Reduction, match_reduction, match_stores, too_long
from tilewright.tir.attrs import TENSOR_INTRIN
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.reducer import REDUCERS
from tilewright.tir.stmt import (
    REDUCE,
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
)
from tilewright.tir.tensor_intrin import TensorIntrin

_commuting: WeakKeyDictionary[Block, None] = WeakKeyDictionary()
_ordered: WeakKeyDictionary[Block, tuple[int, str]] = WeakKeyDictionary()


def updates_commute(block: Block) -> bool:
    """Whether instances of a block that update the same element may run in any order."""
    return not check_updates_commute(block)


def check_updates_commute(block: Block) -> str:
    """Say why the order of a block's instances matters to an element, or return ``""``.

    Instances that differ in spatial axes are taken to write different elements, and to read
    nothing that the others write (``block_facts`` tells).
    """
    if block in _commuting:
        return ""
    known = _ordered.get(block)
    if known is not None and known[0] == len(REDUCERS):
        return known[1]
    reduced = {item.var for item in block.iter_vars if item.kind == REDUCE}
    why = _Updates(block, reduced).check() if reduced else ""
    if why:
        _ordered[block] = len(REDUCERS), why  # a reducer may be registered later
    else:
        _commuting[block] = None
    return why


def feeds_reduction(realize: BlockRealize, variables: set[Var]) -> bool:
    """Whether a reduction axis of a block depends on one of some variables."""
    return any(
        iter_var.kind == REDUCE and type(value) is not IntImm and uses_var(value, variables)
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values)
    )


def threads_combine(block: Block) -> bool:
    """Whether threads can share out a reduction: each reduces a part, then they combine these."""
    return match_reduction(block) is not None and updates_commute(block)


# Laws by the operators that follow them; the other operand comes from anywhere but the target.
_OPERATORS: dict[type, str] = {
    Add: "sum", Mul: "prod", Min: "min", Max: "max", And: "all", Or: "any",
}  # fmt: skip
_CALLS = ("bitwise_and", "bitwise_or", "bitwise_xor")
_KEEPS = "the element itself"
_SAME_VALUE = "the same value"

Law = tuple[Any, ...]


class _Updates:
    """Looks at what one block stores, at any depth."""

    def __init__(self, block: Block, reduced: set[Var]) -> None:
        self.block = block
        # What differs between the instances that update one element.
        self.varies = set(reduced)
        self.memory: dict[Var, Var] = {}  # of names: whose memory it is
        self.laws: dict[Var, Law] = {}
        self.own: set[Var] = set()
        self.conditional = False  # whether only some of the instances do what is looked at
        stores: list[BufferStore] = []
        self._collect(block, stores)
        self.targets = {self._data(store.buffer) for store in stores} - self.own
        # Memory of the block that holds something made of the targets.
        self.tainted = set(self.targets)
        while True:
            found = {
                data
                for store in stores
                if (data := self._data(store.buffer)) not in self.tainted
                and self._reads(store.value, *store.indices)
            }
            if not found:
                break
            self.tainted |= found

    def check(self) -> str:
        return self.stmt(self.block.body, {})

    # ---- what is whose --------------------------------------------------------------------------

    def _collect(self, root: Block, stores: list[BufferStore]) -> None:
        stack: list[Any] = [root]
        while stack:
            item = stack.pop()
            if isinstance(item, Block):
                self.own.update(buffer.data for buffer in item.alloc_buffers)
                for match in item.match_buffers:
                    self.memory[match.buffer.data] = self._data(match.source.buffer)
            elif isinstance(item, Allocate):
                self.own.add(item.buffer.data)
            elif isinstance(item, BufferStore):
                stores.append(item)
            if isinstance(item, Block) and item is root:
                stack.append(item.body)  # ``init`` comes before all updates
            else:
                stack += [x for x in item.child_nodes() if isinstance(x, (Stmt, Block))]

    def _data(self, buffer: Buffer) -> Var:
        data: Var = buffer.data
        while data in self.memory:
            data = self.memory[data]
        return data

    def _reads(self, *exprs: Expr) -> bool:
        """Whether an expression depends on what the block writes."""
        for expr in exprs:
            for item in pre_order(expr):
                if type(item) is BufferLoad:
                    if self._data(item.buffer) in self.tainted:
                        return True
                elif type(item) is Var and self.memory.get(item, item) in self.tainted:
                    return True
        return False

    # ---- statements -----------------------------------------------------------------------------

    def stmt(self, stmt: Any, lets: Mapping[Var, Expr]) -> str:
        """Say why a statement's updates don't commute; learn its laws."""
        kind = type(stmt)
        if kind in (SeqStmt, LetStmt):
            return self.together(stmt, lets)
        if kind is BufferStore:
            spelled_out = substitute(stmt, lets) if lets else stmt
            if lets and too_long(spelled_out):
                return "what it stores is too long without the names it gives to values"
            return self.store(spelled_out)
        if kind is For:
            return self.around([stmt.min, stmt.extent], {stmt.loop_var}, [stmt.body], lets)
        if kind is IfThenElse:
            cases = [case for case in (stmt.then_case, stmt.else_case) if case is not None]
            return self.around([stmt.condition], set(), cases, lets)
        if kind is BlockRealize:
            block = stmt.block
            if block.init is not None:
                return f"block {block.name!r} inside of it begins anew each time"
            axes = {item.var for item in block.iter_vars}
            known = [stmt.predicate, *stmt.iter_values]
            known += [item.min for match in block.match_buffers for item in match.source.region]
            return self.around(known, axes, [block.body], lets)
        if kind is AttrStmt:
            return self.around([stmt.value], set(), [stmt.body], lets)
        if kind in (Allocate, DeclBuffer):
            return self.stmt(stmt.body, lets)
        if kind is Evaluate and not _effects(stmt.value):
            return ""
        return self.intrinsic(stmt)

    def around(
        self, exprs: list[Expr], defined: set[Var], bodies: list[Any], lets: Mapping[Var, Expr]
    ) -> str:
        """Look inside of what decides which stores run, and where."""
        exprs = [substitute(expr, lets) for expr in exprs] if lets else exprs
        if self._reads(*exprs):
            return "what it has written decides what it does"
        before = self.conditional
        if any(uses_var(expr, self.varies) for expr in exprs):
            self.varies |= defined
            self.conditional = True
        why = next((why for body in bodies if (why := self.stmt(body, lets))), "")
        self.conditional = before
        return why

    def together(self, stmt: Any, lets: Mapping[Var, Expr]) -> str:
        """Stores one after the other: each by itself, or all of them as one tuple."""
        known, varies = dict(self.laws), set(self.varies)
        if isinstance(stmt, LetStmt):
            why = self.stmt(stmt.body, {**lets, stmt.var: substitute(stmt.value, lets)})
        else:
            why = next((why for item in stmt.stmts if (why := self.stmt(item, lets))), "")
        if not why:
            return ""
        self.laws, self.varies = known, varies
        spelled_out = substitute(stmt, lets) if lets else stmt
        if lets and too_long(spelled_out):
            return why
        matched = match_stores(spelled_out)
        return why if matched is None else self.reduces(matched)

    # ---- stores ---------------------------------------------------------------------------------

    def store(self, store: BufferStore) -> str:
        data = self._data(store.buffer)
        if _effects(store.value):
            return self.intrinsic(store)
        if data in self.own:
            # Memory of one instance. What is read there is no term if it came from a target.
            return "what it has written decides what it does" if self._reads(*store.indices) else ""
        if self._reads(*store.indices):
            return "what it has written decides where it writes"
        law = self.law(store.value, store)
        if law is None:
            matched = match_stores(store)
            if matched is not None:
                return self.reduces(matched)
            name = store.buffer.name
            if self._reads(store.value):
                return f"{name} becomes `{store.value!r}`, which is no reduction by a known reducer"
            return f"the last value that {name} is given stays"
        return self.obeys(data, (law,), store.buffer.name) if law != _KEEPS else ""

    def obeys(self, data: Var, law: Law, name: str) -> str:
        known = self.laws.setdefault(data, law)
        return "" if known == law else f"{name} is updated by {known[0]} and by {law[0]}"

    def reduces(self, matched: Reduction) -> str:
        """Learn that a tuple follows a registered reducer."""
        if self._reads(*matched.values, *matched.indices):
            return "a part of what it writes is made of another part"
        broken = check_reducer(matched.reducer)
        if broken:
            return f"reducer {matched.name!r} is none: {broken[0]}"
        law = (matched.name, *(self._data(buffer) for buffer in matched.targets))
        found = (
            self.obeys(self._data(buffer), law if len(law) > 2 else law[:1], buffer.name)
            for buffer in matched.targets
        )
        return next((why for why in found if why), "")

    def law(self, value: Expr, store: BufferStore) -> str | None:
        """The law by which a value is made of what was in its place, ``None`` if by none."""
        if isinstance(value, BufferLoad) and value.buffer is store.buffer:
            same = all(map(expr_equal, value.indices, store.indices))
            return _KEEPS if same else None
        if not self._reads(value):
            differs = self.conditional or self._may_differ(value, *store.indices)
            return None if differs else _SAME_VALUE
        return self._law_of_operands(value, store)

    def _may_differ(self, *exprs: Expr) -> bool:
        """Whether instances that update one element may see different values of an expression."""
        return any(
            uses_var(expr, self.varies)
            or any(
                type(item) is BufferLoad and self._data(item.buffer) in self.own
                for item in pre_order(expr)
            )
            for expr in exprs
        )

    def _law_of_operands(self, value: Any, store: BufferStore) -> str | None:
        kind = type(value)
        if kind is Let:
            return self.law(substitute(value.body, {value.var: value.value}), store)
        if kind is Cast:
            found = self.law(value.value, store)
            return found if found and _keeps_law(found, store, value) else None
        name = value.op.name if kind is Call else ""
        if kind is Select or name == "if_then_else":
            condition, *cases = value.child_nodes()
            if self._reads(condition) or not all(self._reads(case) for case in cases):
                return None
            laws = {self.law(case, store) for case in cases} - {_KEEPS} or {_KEEPS}
            return laws.pop() if len(laws) == 1 else None
        if name in ("dot_accumulate", "fma"):
            *terms, total = value.args if name == "fma" else value.args[::-1]
            return None if self._reads(*terms) else self._by("sum", total, store)
        if kind is Sub:
            return None if self._reads(value.b) else self._by("sum", value.a, store)
        law = name if name in _CALLS else _OPERATORS.get(kind)
        if law is None:
            return None
        a, b = value.child_nodes()
        if self._reads(b):
            a, b = b, a
        return None if self._reads(b) else self._by(law, a, store)

    def _by(self, law: str, operand: Expr, store: BufferStore) -> str | None:
        """Return ``law`` if the part that reads the target follows it too."""
        return law if self.law(operand, store) in (law, _KEEPS) else None

    # ---- intrinsics -----------------------------------------------------------------------------

    def intrinsic(self, stmt: Stmt) -> str:
        """Decide by the description of the intrinsic that does the block's work, if one does."""
        name = self.block.annotations.get(TENSOR_INTRIN)
        intrin = TensorIntrin.get(name, allow_missing=True) if isinstance(name, str) else None
        if intrin is None or _calls(self.block.body) != _calls(intrin.impl.body):
            return f"it does `{_short(stmt)}`, of which nothing is known"
        root = intrin.desc.root
        described = _Updates(root, set())
        why = described.check()
        # Its instances work on different elements of what the description reads.
        only_stores = any(law[0] == _SAME_VALUE for law in described.laws.values())
        return why or ("the last value that it stores stays" if only_stores else "")


def _keeps_law(law: str, store: BufferStore, cast: Cast) -> bool:
    """Whether a law holds for an element that is computed with in another dtype.

    Whole numbers wrap, so that those with more bits compute the same modulo its own; floating-point
    numbers are rounded.
    """
    own = dtypes.element_of(store.buffer.dtype)
    others = [dtypes.element_of(item.dtype) for item in (cast, cast.value)]
    if not all(item == own or dtypes.bits_of(item) > dtypes.bits_of(own) for item in others):
        return False
    if dtypes.is_float(own):
        return all(dtypes.is_float(item) for item in others)
    whole = all(dtypes.is_integer(x) and not dtypes.is_bool(x) for x in (own, *others))
    return whole and law not in ("min", "max")


def _effects(expr: Expr) -> bool:
    return any(type(x) is Call and x.op.effect in ("update", "opaque") for x in pre_order(expr))


def _calls(stmt: Stmt) -> Counter[Any]:
    """What a statement calls, and how often."""
    found: Counter[Any] = Counter()
    for item in pre_order(stmt):
        if type(item) is Call:
            names: Sequence[Any] = [x.value for x in item.args if isinstance(x, StringImm)]
            found[(item.op.name, *names)] += 1
    return found


def _short(stmt: Stmt) -> str:
    return repr(stmt.value) if isinstance(stmt, (Evaluate, BufferStore)) else type(stmt).__name__
