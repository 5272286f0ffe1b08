"""Frames that build TensorIR in Python: the statements of ``tir.script.ir_builder``.

What script says by indentation is a ``with`` frame here, what it says by a line is a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import TRUE, Expr, ExprLike, Range, Var, as_expr, call, const
from tilewright.script.ir_builder import Frame, IRBuilder, enclosing
from tilewright.script.ir_builder.ir import IRModuleFrame
from tilewright.script.operators import to_value
from tilewright.support.errors import VerifyError
from tilewright.tir.analysis.regions import block_access_regions
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.reducer import CommReducer
from tilewright.tir.script import declarations as decl
from tilewright.tir.script import threads
from tilewright.tir.script.frames import BlockFrame, Rest, flatten, join, set_name
from tilewright.tir.script.intrinsics import REDUCE_SCOPE
from tilewright.tir.script.intrinsics import tvm_thread_allreduce as thread_allreduce
from tilewright.tir.script.scalars import DTypeLike, ScalarType, as_dtype
from tilewright.tir.stmt import (
    ITER_KINDS,
    THREAD_BINDING,
    AssertStmt,
    Block,
    BlockRealize,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    Stmt,
    make_root_block,
)
from tilewright.tir.stmt import While as WhileStmt

_LOOP_NAMES = "ijklmn"


class StmtFrame(Frame):
    """A frame whose body is statements; some of them hold for all that follows in the frame."""

    def __init__(self) -> None:
        self.parts: list[Stmt | Rest] = []

    def body(self) -> Stmt:
        """What the body of the ``with`` has given."""
        made: list[Stmt] = []
        for part in reversed(self.parts):
            made = [part.build(join(made))] if isinstance(part, Rest) else [part, *made]
        return join(made)

    def close(self, builder: IRBuilder) -> None:
        """Put what is built around the body into the frame outside; if none is, it is all."""
        made = self.build(self.body())
        if builder.find_frame(StmtFrame) is not None:
            emit(made)
        elif builder.result is None:
            builder.result = made
        else:
            raise VerifyError("several statements need a frame: `with T.seq_scope():`")

    def build(self, body: Stmt) -> Stmt:
        """Make the statement of this frame."""
        raise NotImplementedError(f"{type(self).__name__} must define build")


def emit(part: Stmt | Rest) -> None:
    """Add a statement, or what holds for the rest of its frame, to the frame that is open."""
    enclosing(StmtFrame, "statements stand inside `with T.prim_func():`").parts.append(part)


# ---- functions --------------------------------------------------------------------------------


class PrimFuncFrame(StmtFrame):
    """A function that is being built."""

    def __init__(self) -> None:
        super().__init__()
        self.name: str | None = None
        self.params: list[Var] = []
        self.buffer_map: dict[Var, Buffer] = {}
        self.attrs: dict[str, Any] = {}
        self.ret_dtype = "void"
        self.block = BlockFrame()
        self.names: set[str] = set()
        self.loops: dict[Var, Range] = {}
        self.tags: dict[Var, str] = {}

    def open(self, builder: IRBuilder) -> None:
        """Check that this is no function inside another one."""
        if builder.find_frame(PrimFuncFrame) is not None:
            raise VerifyError("T.prim_func() stands inside another one; close that first")

    def close(self, builder: IRBuilder) -> None:
        """Make the function, and give it to the module or the builder."""
        body, allocations = self.body(), tuple(self.block.allocations)
        whole = isinstance(body, BlockRealize) and body.block.name == "root"
        if allocations or (self.names and not whole):
            body = make_root_block(body, allocations)
        made = PrimFunc(self.params, body, self.ret_dtype, self.attrs, buffer_map=self.buffer_map)
        module = builder.find_frame(IRModuleFrame)
        if module is None:
            builder.result = made
        elif self.name is None:
            raise VerifyError("a function of a module needs T.func_name(...)")
        else:
            module.define(self.name, made)


def prim_func(
    is_private: bool = False,
    s_tir: bool = False,
    persistent: bool = False,
    *,
    private: bool | None = None,
) -> PrimFuncFrame:
    """A function; functions of a module are called by their names, private or not.

    It has a root block if it has blocks, whatever ``s_tir`` says.
    """
    for name, value in (("is_private", is_private), ("s_tir", s_tir), ("private", private)):
        if not isinstance(value, (bool, type(None))):
            raise VerifyError(f"{name} is True or False, got {value!r}")
    if persistent:
        raise VerifyError("prim_func has no persistent=True: write the loop over tiles")
    return PrimFuncFrame()


def function_frame() -> PrimFuncFrame:
    """Return the frame of the function that is being built."""
    return enclosing(PrimFuncFrame, "this stands inside `with T.prim_func():`")


def _around() -> PrimFuncFrame:
    """What knows the blocks and loops so far: the function, or what stands for it where none is."""
    builder = IRBuilder.current()
    if builder.outside is None:
        builder.outside = PrimFuncFrame()
    found = builder.find_frame(PrimFuncFrame)
    made: PrimFuncFrame = builder.outside if found is None else found
    return made


def func_name(name: str) -> None:
    """Name the function in its module."""
    function_frame().name = name


def func_attr(attrs: Mapping[str, object]) -> None:
    """State attributes of the function."""
    function_frame().attrs.update(decl.func_attr(attrs).attrs)


def func_ret(ret_type: DTypeLike) -> None:
    """State the dtype of what the function returns."""
    function_frame().ret_dtype = as_dtype(ret_type)


def arg(name: str, obj: object) -> Any:
    """Add a parameter: a buffer, or a variable such as ``T.int32()`` or ``T.handle()``."""
    frame = function_frame()
    if isinstance(obj, ScalarType):
        obj = obj()
    if isinstance(obj, Buffer):
        var = Var(f"{name}_handle", "handle")
        frame.buffer_map[var] = obj
    elif type(obj) is Var:
        var = obj
    else:
        raise VerifyError(f"parameter {name!r} is a buffer or a variable, got {obj!r}")
    set_name(obj, name)
    frame.params.append(var)
    return obj


# ---- blocks -----------------------------------------------------------------------------------


class BlockStmtFrame(StmtFrame):
    """A block that is being built."""

    def __init__(self, declaration: decl.BlockDecl) -> None:
        super().__init__()
        self.block = BlockFrame(declaration)

    def open(self, builder: IRBuilder) -> None:
        """Take a name that no other block of the function has."""
        names, given = _around().names, self.block.declaration
        assert given is not None
        name, number = given.name or "block", 0
        while not given.name and name in names:
            number += 1
            name = f"block_{number}"
        if name in names:
            raise VerifyError(f"the function has two blocks named {name!r}")
        names.add(name)
        self.name = name

    def build(self, body: Stmt) -> Stmt:
        """Make the block; what it accesses is inferred where it was not said."""
        frame = self.block
        made = Block(
            tuple(frame.iter_vars), frame.reads or (), frame.writes or (), self.name, body,
            frame.init, tuple(frame.allocations), tuple(frame.matches), frame.annotations,
        )  # fmt: skip
        if (frame.reads is None or frame.writes is None) and self.name != "root":
            reads, writes = block_access_regions(made)
            made = made.replace(
                reads=reads if frame.reads is None else frame.reads,
                writes=writes if frame.writes is None else frame.writes,
            )
        if frame.declaration is not None and frame.declaration.no_realize:
            return made
        values = tuple(value for value in frame.values if value is not None)
        return BlockRealize(values, TRUE if frame.predicate is None else frame.predicate, made)


def block(name: str = "", no_realize: bool = False, exec_scope: str = "") -> BlockStmtFrame:
    """A block."""
    return BlockStmtFrame(decl.block(name, no_realize, exec_scope))


def block_frame() -> BlockFrame:
    """Return what the innermost block holds so far."""
    return enclosing(BlockStmtFrame, "this stands inside `with T.block(...):`").block


class InitFrame(StmtFrame):
    """What runs at the first iteration of a reduction."""

    def close(self, builder: IRBuilder) -> None:
        """Give it to the block."""
        if block_frame().init is not None:
            raise VerifyError("the block has two T.init")
        block_frame().init = self.body()


def init() -> InitFrame:
    """What runs at the first iteration of a reduction."""
    return InitFrame()


def reads(*regions: Any) -> None:
    """State what an instance of the block reads."""
    block_frame().reads = decl.reads(*regions).regions


def writes(*regions: Any) -> None:
    """State what an instance of the block writes."""
    block_frame().writes = decl.writes(*regions).regions


def where(predicate: ExprLike) -> None:
    """Run the block only where ``predicate`` holds."""
    block_frame().predicate = as_expr(predicate)


def block_attr(attrs: Mapping[str, object]) -> None:
    """State annotations of the block."""
    block_frame().annotations.update(decl.block_attr(attrs).attrs)


def _axis(made: decl.AxisDecl) -> Var:
    frame = block_frame()
    var = Var(f"v{len(frame.iter_vars)}", made.dtype)
    if made.value is None and not (frame.declaration and frame.declaration.no_realize):
        raise VerifyError("an axis needs the value that it takes: T.axis.spatial(extent, value)")
    frame.iter_vars.append(IterVar(made.dom, var, made.kind))
    if made.value is not None:
        frame.values.append(made.value)
    return var


class axis:
    """``T.axis``: adds axes to the block."""

    @staticmethod
    def spatial(dom: Any, binding: Any = None, dtype: DTypeLike | None = None) -> Var:
        """An axis whose iterations are independent."""
        return _axis(decl.axis.spatial(dom, binding, dtype))

    @staticmethod
    def reduce(dom: Any, binding: Any = None, dtype: DTypeLike | None = None) -> Var:
        """An axis that is reduced over."""
        return _axis(decl.axis.reduce(dom, binding, dtype))

    @staticmethod
    def opaque(dom: Any, binding: Any = None, dtype: DTypeLike | None = None) -> Var:
        """An axis about whose iterations nothing is known."""
        return _axis(decl.axis.opaque(dom, binding, dtype))

    @staticmethod
    def remap(kinds: str, bindings: Sequence[Any], dtype: DTypeLike | None = None) -> Any:
        """Axes over the ranges of the loops they are bound to."""
        made = decl.axis.remap(kinds, bindings, dtype)
        axes = []
        for letter, value in zip(made.kinds, made.values):
            var = to_value(value)
            dom = _around().loops.get(var) if isinstance(var, Var) else None
            if dom is None:
                raise VerifyError(f"remap takes loop variables, got {value!r}")
            axes.append(_axis(decl.AxisDecl(ITER_KINDS[letter], dom, var, var.dtype)))
        return axes[0] if len(axes) == 1 else axes

    S = spatial
    R = reduce
    scan = opaque


# ---- loops and branches -----------------------------------------------------------------------


class ForFrame(StmtFrame):
    """Loops that are being built; ``as`` names their variables."""

    def __init__(self, loops: decl.Loops) -> None:
        super().__init__()
        loops, self.bound = decl.over_steps(loops)
        self.loops = loops
        names = _LOOP_NAMES if len(loops.nest) <= len(_LOOP_NAMES) else ["i"] * len(loops.nest)
        self.vars = [
            Var(name, loop.dtype or loop.extent.dtype) for name, loop in zip(names, loops.nest)
        ]

    def open(self, builder: IRBuilder) -> None:
        """Note the ranges of the loops."""
        known = _around().loops
        for var, loop in zip(self.vars, self.loops.nest):
            if loop.step is None:
                known[var] = Range.from_min_extent(loop.minimum, loop.extent)

    def value(self) -> Any:
        """One variable, or a list of them."""
        made: list[Expr] = [
            var if loop.step is None else loop.minimum + var * loop.step
            for var, loop in zip(self.vars, self.loops.nest)
        ]
        return made[0] if len(made) == 1 else made

    def build(self, body: Stmt) -> Stmt:
        """Make the loops."""
        for var, loop in reversed(list(zip(self.vars, self.loops.nest))):
            low = loop.minimum if loop.step is None else const(0, loop.extent.dtype)
            hints = dict(loop.annotations)
            body = For(var, low, loop.extent, loop.kind, body, loop.thread, hints)
        for var, value in reversed(self.bound):
            body = LetStmt(var, value, body)
        return body


def _loops(declare: Callable[..., decl.Loops]) -> Callable[..., ForFrame]:
    def open_loops(*args: object, **named: object) -> ForFrame:
        return ForFrame(declare(*args, **named))

    open_loops.__name__ = open_loops.__qualname__ = declare.__name__
    open_loops.__doc__ = declare.__doc__
    return open_loops


serial = _loops(decl.serial)
parallel = _loops(decl.parallel)
vectorized = _loops(decl.vectorized)
unroll = _loops(decl.unroll)
thread_binding = _loops(decl.thread_binding)
grid = _loops(decl.grid)


class WrapFrame(StmtFrame):
    """A frame that only builds something around its body; ``as`` names ``given``."""

    def __init__(self, wrap: Callable[[Stmt], Stmt], given: Any = None) -> None:
        super().__init__()
        self.wrap = wrap
        self.given = given

    def value(self) -> Any:
        """What ``as`` names."""
        return self.given

    def build(self, body: Stmt) -> Stmt:
        """Make the statement."""
        return self.wrap(body)


class IfFrame(Frame):
    """A branch that is being built."""

    def __init__(self, condition: ExprLike) -> None:
        self.condition = as_expr(condition)
        self.cases: dict[str, Stmt] = {}

    def close(self, builder: IRBuilder) -> None:
        """Make the branch; raises ``VerifyError`` without ``T.Then``."""
        if "Then" not in self.cases:
            raise VerifyError("T.If holds one T.Then() and perhaps one T.Else()")
        emit(IfThenElse(self.condition, self.cases["Then"], self.cases.get("Else")))


class CaseFrame(StmtFrame):
    """One case of a branch."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def close(self, builder: IRBuilder) -> None:
        """Give it to the branch."""
        found = builder.frames[-1] if builder.frames else None
        if not isinstance(found, IfFrame) or self.name in found.cases:
            raise VerifyError(f"T.{self.name} stands once inside `with T.If(...):`")
        found.cases[self.name] = self.body()


def If(condition: ExprLike) -> IfFrame:
    """A branch, around ``with T.Then():`` and ``with T.Else():``."""
    return IfFrame(condition)


def Then() -> CaseFrame:
    """What runs where the condition holds."""
    return CaseFrame("Then")


def Else() -> CaseFrame:
    """What runs where the condition does not hold."""
    return CaseFrame("Else")


def While(condition: ExprLike) -> WrapFrame:
    """Repeat the body while a condition holds."""
    made = as_expr(condition)
    return WrapFrame(lambda body: WhileStmt(made, body))


class AssertFrame(StmtFrame):
    """A check, and what runs after it."""

    def __init__(self, check: AssertStmt) -> None:
        super().__init__()
        self.check = check

    def close(self, builder: IRBuilder) -> None:
        """Put the check before the statements of the body."""
        for stmt in (self.check, *flatten([self.body()])):
            emit(stmt)


def Assert(
    condition: ExprLike, message: str | Sequence[str], error_kind: str = "RuntimeError"
) -> AssertFrame:
    """Check a condition before the body runs."""
    told = decl.assert_frame(condition, message, error_kind)
    return AssertFrame(AssertStmt(told.kind, as_expr(condition), told.message))


# ---- what holds for the rest of a frame -------------------------------------------------------


class ReducerFrame(WrapFrame):
    """``T.attr(T.comm_reducer(...), "reduce_scope", ...)``: how threads join values in its body."""

    def __init__(self, reducer: CommReducer) -> None:
        super().__init__(lambda body: body)
        self.reducer = reducer


def attr(node_or_dict: object, attr_key: str | None = None, value: Any = None) -> WrapFrame:
    """Say something about a node that holds in the body."""
    made = decl.attr(node_or_dict, attr_key, value)
    if isinstance(made, threads.LaunchThread):
        return _launch(made)
    if isinstance(made.node, CommReducer) and made.said[0][0] == REDUCE_SCOPE:
        return ReducerFrame(made.node)
    return WrapFrame(made.around)


def tvm_thread_allreduce(*freduce_args: Any) -> Evaluate:
    """Join values of threads: ``T.evaluate(T.tvm_thread_allreduce(...))``."""
    count, *given = freduce_args
    frame = IRBuilder.current().find_frame(ReducerFrame)
    reducer = None if frame is None else frame.reducer
    return thread_allreduce(count, *given).joined(reducer, _around().tags)


env_thread = threads.env_thread


def launch_thread(thread: str | threads.EnvThread, extent: ExprLike) -> WrapFrame:
    """Run the body on threads of a tag; ``as`` names the number of the thread."""
    return _launch(threads.launch_thread(thread, extent))


def _launch(made: threads.LaunchThread) -> WrapFrame:
    var = made.var or Var(made.tag.replace(".", "_"), made.extent.dtype)
    zero = const(0, made.extent.dtype)
    _around().loops[var] = Range.from_min_extent(zero, made.extent)
    _around().tags[var] = made.tag
    return WrapFrame(lambda body: For(var, zero, made.extent, THREAD_BINDING, body, made.tag), var)


def bind(value: ExprLike, type_annotation: DTypeLike | None = None, *, var: Any = None) -> Var:
    """Bind a variable for the rest of the frame."""
    dtype = None if type_annotation is None else as_dtype(type_annotation)
    made = as_expr(value, dtype) if dtype is not None else as_expr(value)
    named: Var = Var("x", dtype or made.dtype) if var is None else var
    emit(Rest(lambda body: LetStmt(named, made, body)))
    return named


# ---- other statements -------------------------------------------------------------------------


def Break() -> None:
    """Leave the innermost loop."""
    emit(Evaluate(call("break_loop")))


def Continue() -> None:
    """Go on with the next iteration of the innermost loop."""
    emit(Evaluate(call("continue_loop")))


def Return(value: ExprLike) -> None:
    """End the function with a value."""
    emit(Evaluate(call("ret", as_expr(value), dtype="void")))


def add_to_parent(stmt: Stmt) -> None:
    """Add a statement to the frame that is open."""
    emit(stmt)


def buffer_store(buffer: Buffer, value: ExprLike, indices: Any) -> None:
    """Store an element."""
    emit(decl.buffer_store(buffer, value, indices))


def evaluate(value: ExprLike | Stmt) -> None:
    """Evaluate an expression for its effect."""
    emit(decl.evaluate(value))


sblock, sblock_attr, Bind = block, block_attr, bind


__all__ = [
    "Assert", "Bind", "Break", "Continue", "Else", "ForFrame", "If", "PrimFuncFrame", "Return",
    "StmtFrame", "Then", "While", "add_to_parent", "arg", "attr",
    "axis", "bind", "block", "block_attr", "buffer_store",
    "env_thread", "evaluate", "func_attr", "func_name", "func_ret", "grid", "init",
    "launch_thread", "parallel", "prim_func", "reads", "sblock",
    "sblock_attr", "serial", "thread_binding",
    "tvm_thread_allreduce", "unroll", "vectorized", "where", "writes",
]  # fmt: skip
