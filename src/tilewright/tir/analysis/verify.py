"""Well-formedness: what every TensorIR program must satisfy, checked after parsing and passes.

- every variable and buffer is defined once, and used only where its definition can be seen;
- a block sees outer loops only through its iteration variables;
- block names are unique in a function; a realize has one value per iteration variable;
- accesses have one integer index per dimension, stored values have the buffer's dtype;
- no access that is always reached is outside of its buffer, as far as bounds are known;
- conditions and predicates are bool; thread loops have a thread tag;
- operands of an expression have one dtype, and a variable that of what it stands for; what counts
  (extents, bounds of loops and ranges, strides, offsets) is a whole number;
- annotations and attributes that passes, rules and kernels read have values that these take;
- what a block says that it reads and writes leaves nothing out (``verify_regions``);
- iterations that run at the same time don't race for an element (``verify_races``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from tilewright.ir import (
    GLOBAL_SYMBOL,
    Call,
    Expr,
    IRModule,
    Let,
    Node,
    Var,
    dtypes,
    free_vars,
    pre_order,
)
from tilewright.script import to_text
from tilewright.support.errors import VerifyError
from tilewright.support.text import indent
from tilewright.tir.analysis.verify_bounds import Ends, runs_for_sure
from tilewright.tir.analysis.verify_dtypes import bound_to, wrong_dtypes
from tilewright.tir.analysis.verify_races import find_race
from tilewright.tir.analysis.verify_regions import left_out
from tilewright.tir.attrs import wrong_annotation
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.function import PrimFunc
from tilewright.tir.loop_exits import own_exits
from tilewright.tir.stmt import (
    REDUCE,
    THREAD_BINDING,
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from tilewright.tir.walk import outermost, symbols_in


def verify(target: IRModule | PrimFunc) -> None:
    """Raise ``VerifyError``, with the program and the culprit marked, if it is not well formed."""
    if isinstance(target, PrimFunc):
        _Verifier(target, target.attrs.get(GLOBAL_SYMBOL, "main")).run()
        return
    wrong = wrong_annotation(target)
    if wrong is not None:
        raise VerifyError(f"the module is not well formed: {wrong}")
    for name, func in target.functions.items():
        if isinstance(func, PrimFunc):
            _Verifier(func, name).run()


class _Right(NamedTuple):
    """A statement of an outermost block that was checked, and what that depended on."""

    outside: tuple[Any, ...]
    memory: list[Buffer | None]
    defined: frozenset[Any]
    block_names: frozenset[str]


_RIGHT: WeakKeyDictionary[Stmt, _Right] = WeakKeyDictionary()


class _Verifier:
    def __init__(self, func: PrimFunc, name: str) -> None:
        self.func, self.name = func, name
        self.defined: set[Any] = set()
        self.visible: set[Any] = set()
        # Loop variables that the blocks inside may not see.
        self.loops: set[Var] = set()
        self.hidden_loops: set[Var] = set()
        self.block_names: set[str] = set()
        self.axes: list[IterVar] = []  # of the blocks around
        self.ends = Ends()
        self.reached: set[Any] | None = None
        self.may_be_wrong = False  # if what is around were another program

    def fail(self, message: str, culprit: Node) -> VerifyError:
        def render() -> str:
            try:
                text = to_text(self.func, underline=[culprit])
            except Exception as error:  # What is not well formed need not be printable.
                text = f"(the program can't be printed: {error!r})\nat {culprit!r}"
            return f"function {self.name!r} is not well formed: {message}\n{indent(text)}"

        return VerifyError(render)

    def run(self) -> None:
        func = self.func
        self.annotations(func)
        for var in func.params:
            self.define(var, func)
        for var in _sizes(func):
            self.define(var, func)
        for buffer in func.buffers:
            self.define_buffer(buffer, func)
            self.ends.owns(buffer)
        self.stmt(func.body)
        for name in sorted(own_exits(func.body)):
            raise self.fail(f"{name}() stands in no loop", func)
        race = find_race(func)
        if race is not None:
            loop, message = race
            raise self.fail(message, loop)

    def annotations(
        self, node: For | Block | Allocate | AttrStmt | PrimFunc, *, name: str = ""
    ) -> None:
        wrong = wrong_annotation(node)
        if wrong is not None:
            raise self.fail(f"{name}: {wrong}" if name else wrong, node)

    def define(self, symbol: Buffer | Var, where: Node) -> None:
        if symbol in self.defined:
            raise self.fail(f"{symbol.name!r} is defined twice", where)
        self.defined.add(symbol)
        self.visible.add(symbol)

    def define_buffer(self, buffer: Buffer, where: Node) -> None:
        self.define(buffer, where)
        for what, numbers in (("an extent", buffer.shape), ("a stride", buffer.strides)):
            for number in numbers:
                self.number(number, f"{what} of buffer {buffer.name!r}", where)
        if buffer.elem_offset is not None:
            self.number(buffer.elem_offset, f"the offset of buffer {buffer.name!r}", where)
        # Several buffers may share one pointer; the pointer counts as seen from the first on.
        self.visible.add(buffer.data)

    # ---- expressions ----------------------------------------------------------------------------

    def expr(self, expr: Expr, where: Node) -> None:
        lets: set[Var] = set()
        item: Any
        for item in pre_order(expr):
            kind = type(item)
            if kind is Var:
                if item not in self.visible and item not in lets:
                    self.unseen(item, where if where is not None else expr)
            elif kind is BufferLoad:
                self.access(item.buffer, item.indices, item)
            elif kind is Let:
                if item.var in self.defined:
                    raise self.fail(f"{item.var.name!r} is defined twice", item)
                self.defined.add(item.var)
                lets.add(item.var)
            elif kind is Call and item.op.name == "ret" and not _is_value_of(where, item):
                raise self.fail("ret() stands alone, as a statement: nothing gets its value", item)
            wrong = wrong_dtypes(item)
            if wrong is not None:
                raise self.fail(wrong, item)

    def unseen(self, item: Any, where: Node) -> None:
        if item in self.hidden_loops:
            raise self.fail(
                f"loop variable {item.name!r} of an outer loop is used inside a block; "
                "bind it to an iteration variable",
                where,
            )
        raise self.fail(f"{item.name!r} is used where it is not defined", where)

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], where: Node) -> None:
        if buffer not in self.visible:
            raise self.fail(f"buffer {buffer.name!r} is used where it is not defined", where)
        if len(indices) != buffer.ndim:
            raise self.fail(
                f"buffer {buffer.name!r} has {buffer.ndim} dimensions but {len(indices)} indices",
                where,
            )
        for position, index in enumerate(indices):
            if not dtypes.is_integer(dtypes.element_of(index.dtype)):
                raise self.fail(f"index {position} of {buffer.name!r} is {index.dtype}", where)
        wrong = self.ends.outside(buffer, indices)
        if wrong is not None:
            self.may_be_wrong = True
            if self.reached is None:
                self.reached = runs_for_sure(self.func)
            if where in self.reached:
                raise self.fail(wrong, where)

    def condition(self, expr: Expr, where: Node, *, lanes: bool = False) -> None:
        self.expr(expr, where)
        if not dtypes.is_bool(expr.dtype):
            raise self.fail(f"a condition must be bool, this one is {expr.dtype}", where)
        if not lanes and dtypes.lanes_of(expr.dtype) > 1:
            raise self.fail(f"a condition must be one truth value here, not {expr.dtype}", where)

    def number(self, expr: Expr, what: str, where: Node) -> None:
        """Check something that counts: an extent, a bound, a stride."""
        self.expr(expr, where)
        if not dtypes.is_integer(expr.dtype) or dtypes.lanes_of(expr.dtype) > 1:
            raise self.fail(f"{what} is {expr.dtype}, an integer is expected", where)

    def binding(self, var: Var, value: Expr, where: Node) -> None:
        self.expr(value, where)
        wrong = bound_to(var, value)
        if wrong is not None:
            raise self.fail(wrong, where)

    # ---- statements of the outermost block --------------------------------------------------

    def part(self, stmt: Stmt) -> None:
        """Check a statement, unless it is known to be right where its symbols mean the same."""
        known = _RIGHT.get(stmt)
        if (
            known is not None
            and self.visible.issuperset(known.outside)
            and self.defined.isdisjoint(known.defined)
            and self.block_names.isdisjoint(known.block_names)
            and known.memory == self.ends.memory_of(known.outside)
        ):
            self.defined |= known.defined
            self.block_names |= known.block_names
            return
        outside = tuple(item for item in symbols_in(stmt) if item in self.visible)
        memory = self.ends.memory_of(outside)
        defined, block_names = frozenset(self.defined), frozenset(self.block_names)
        self.may_be_wrong = False
        self.stmt(stmt)
        if not self.may_be_wrong:
            _RIGHT[stmt] = _Right(
                outside,
                memory,
                frozenset(self.defined - defined),
                frozenset(self.block_names - block_names),
            )

    # ---- statements -----------------------------------------------------------------------------

    def stmt(self, stmt: Any) -> None:
        kind = type(stmt)
        if kind is SeqStmt:
            for item in stmt.stmts:
                self.stmt(item)
        elif kind is For:
            self.loop(stmt)
        elif kind is BlockRealize:
            self.realize(stmt)
        elif kind is BufferStore:
            self.expr(stmt.value, stmt)
            for index in stmt.indices:
                self.expr(index, stmt)
            self.access(stmt.buffer, stmt.indices, stmt)
            self.store_dtype(stmt)
        elif kind is IfThenElse:
            self.condition(stmt.condition, stmt, lanes=True)
            self.stmt(stmt.then_case)
            if stmt.else_case is not None:
                self.stmt(stmt.else_case)
        elif kind is While:
            self.condition(stmt.condition, stmt)
            self.stmt(stmt.body)
        elif kind is LetStmt:
            self.binding(stmt.var, stmt.value, stmt)
            self.define(stmt.var, stmt)
            self.ends.bind(stmt.var, stmt.value)
            self.stmt(stmt.body)
            self.visible.discard(stmt.var)
        elif kind is Allocate or kind is DeclBuffer:
            if kind is DeclBuffer:
                self.expr(stmt.buffer.data, stmt)
            else:
                self.annotations(stmt)
                self.ends.owns(stmt.buffer)
            self.define_buffer(stmt.buffer, stmt)
            self.stmt(stmt.body)
            self.visible.discard(stmt.buffer)
        elif kind is AttrStmt:
            self.annotations(stmt)
            self.expr(stmt.value, stmt)
            self.stmt(stmt.body)
        elif kind is AssertStmt:
            self.condition(stmt.condition, stmt)
            for value in stmt.values:
                self.expr(value, stmt)
        else:
            for item in stmt.child_nodes():
                if isinstance(item, Expr):
                    self.expr(item, stmt)
                elif not isinstance(item, Buffer):
                    self.stmt(item)

    def store_dtype(self, stmt: BufferStore) -> None:
        lanes = max([dtypes.lanes_of(index.dtype) for index in stmt.indices], default=1)
        element, own = dtypes.split_dtype(stmt.buffer.dtype)
        expected = dtypes.vector_dtype(element, own * lanes)
        if stmt.value.dtype != expected:
            raise self.fail(
                f"buffer {stmt.buffer.name!r} holds {expected} here, the value is "
                f"{stmt.value.dtype}",
                stmt,
            )

    def loop(self, loop: For) -> None:
        name = loop.loop_var.name
        if loop.annotations:
            self.annotations(loop, name=f"loop {name!r}")
        for what, number in (("first value", loop.min), ("extent", loop.extent)):
            self.number(number, f"the {what} of loop {name!r}", loop)
            if number.dtype != loop.loop_var.dtype:
                raise self.fail(
                    f"loop variable {name!r} is {loop.loop_var.dtype}, the {what} {number.dtype}",
                    loop,
                )
        if (loop.kind == THREAD_BINDING) != (loop.thread is not None):
            raise self.fail("a loop has a thread tag if and only if it is thread_binding", loop)
        self.define(loop.loop_var, loop)
        self.loops.add(loop.loop_var)
        with self.ends.inside(loop):
            self.stmt(loop.body)
        self.loops.discard(loop.loop_var)
        self.visible.discard(loop.loop_var)

    def regions(self, regions: Iterable[BufferRegion], block: Block) -> None:
        for region in regions:
            if len(region.region) != region.buffer.ndim:
                raise self.fail(
                    f"a region of {region.buffer.name!r} has {len(region.region)} ranges for "
                    f"{region.buffer.ndim} dimensions",
                    block,
                )
            if region.buffer not in self.visible:
                raise self.fail(
                    f"buffer {region.buffer.name!r} is used where it is not defined", block
                )
            for item in region.region:
                for number in (item.min, item.extent):
                    self.number(number, f"a bound of a region of {region.buffer.name!r}", block)

    def realize(self, realize: BlockRealize) -> None:
        block = realize.block
        if block.name in self.block_names:
            raise self.fail(f"there are two blocks with the name {block.name!r}", realize)
        self.block_names.add(block.name)
        if block.annotations:
            self.annotations(block, name=f"block {block.name!r}")
        if len(block.iter_vars) != len(realize.iter_values):
            raise self.fail(
                f"block {block.name!r} has {len(block.iter_vars)} iteration variables but "
                f"{len(realize.iter_values)} values",
                realize,
            )
        for iter_var, value in zip(block.iter_vars, realize.iter_values):
            self.binding(iter_var.var, value, realize)
            self.ends.bind(iter_var.var, value)
            for number in (iter_var.dom.min, iter_var.dom.extent):
                self.number(number, f"a bound of axis {iter_var.var.name!r}", realize)
        self.condition(realize.predicate, realize)
        outer_loops, outer_hidden, outer_visible = self.loops, self.hidden_loops, self.visible
        self.hidden_loops = outer_hidden | outer_loops
        self.visible = outer_visible - outer_loops
        self.loops = set()
        for iter_var in block.iter_vars:
            self.define(iter_var.var, realize)
        for buffer in block.alloc_buffers:
            self.define_buffer(buffer, realize)
            self.ends.owns(buffer)
        self.regions((match.source for match in block.match_buffers), block)
        for match in block.match_buffers:
            mismatch = match.mismatch()
            if mismatch is not None:
                raise self.fail(f"block {block.name!r}: {mismatch}", block)
            # Strides and offset of a matched buffer may be variables that the match defines.
            for extent in (*match.buffer.strides, match.buffer.elem_offset):
                if type(extent) is Var and extent not in self.visible:
                    self.define(extent, block)
            self.define_buffer(match.buffer, realize)
            self.ends.stands_for(match.buffer, match.source)
        self.regions(block.reads, block)
        self.regions(block.writes, block)
        self.axes += block.iter_vars
        if block.init is not None:
            self.init_is_apart(block, block.init)
            with self.ends.apart():
                self.stmt(block.init)
        parts = outermost(realize) if realize is self.func.body else ()
        for part in parts:
            self.part(part)
        if not parts:
            self.stmt(block.body)
        self.loops, self.hidden_loops, self.visible = outer_loops, outer_hidden, outer_visible
        del self.axes[len(self.axes) - len(block.iter_vars) :]
        # The root block declares nothing. Regions are made of expressions that have been checked.
        wrong = None if realize is self.func.body else left_out(block, self.axes)
        if wrong is not None:
            raise self.fail(wrong, block)

    def init_is_apart(self, block: Block, init: Stmt) -> None:
        reduced = {item.var for item in block.iter_vars if item.kind == REDUCE}
        for item in pre_order(init):
            if type(item) is Var and item in reduced:
                raise self.fail(
                    f"the init of block {block.name!r} uses reduction axis {item.name!r}, which "
                    "has no value there",
                    block,
                )


def _is_value_of(stmt: Node, expr: Expr) -> bool:
    return type(stmt) is Evaluate and stmt.value is expr


def _sizes(func: PrimFunc) -> list[Var]:
    """Variables that a call's arrays give values: those of shapes, strides and offsets."""
    numbers = (
        number
        for buffer in func.buffers
        for number in (*buffer.shape, *buffer.strides, buffer.elem_offset)
        if number is not None
    )
    scalars = {var for var in func.params if var not in func.buffer_map}
    found = {var: None for number in numbers for var in free_vars(number) if var not in scalars}
    return list(found)
