"""Parses the statements of the dialect ``T`` into TensorIR.

Walks the Python ``ast`` of a function. Expressions are evaluated by the machinery in
``tilewright.script``; this file gives ``for``, ``with``, assignments and the rest their meaning,
adds the root block where a program has blocks, and infers what a block reads and writes where the
text does not say it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir import (
    INDEX,
    TRUE,
    Expr,
    Range,
    Var,
    as_expr,
    call,
    const,
    dtypes,
    set_span,
)
from tilewright.script.diagnostics import Source
from tilewright.script.evaluator import Evaluator, Scope, build_arithmetic, to_value
from tilewright.script.parser import FunctionDecorator, captured_by, function_source
from tilewright.support.errors import ParseError, VerifyError
from tilewright.tir.analysis.regions import block_access_regions
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion, access_dtype
from tilewright.tir.function import PrimFunc
from tilewright.tir.script import declarations as decl
from tilewright.tir.script.scalars import LetMarker, ScalarType
from tilewright.tir.stmt import (
    ITER_KINDS,
    NO_OP,
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
    MatchBufferRegion,
    SeqStmt,
    Stmt,
    While,
    make_root_block,
)


@dataclass
class Rest:
    """A statement whose body is the rest of the suite."""

    build: Callable[[Stmt], Stmt]


@dataclass
class BlockFrame:
    """What has been said about a block so far; the function's frame stands for the root block."""

    declaration: decl.BlockDecl | None = None
    iter_vars: list[IterVar] = field(default_factory=list)
    values: list[Expr | None] = field(default_factory=list)
    predicate: Expr | None = None
    reads: tuple[BufferRegion, ...] | None = None
    writes: tuple[BufferRegion, ...] | None = None
    annotations: dict[str, Any] = field(default_factory=dict)
    allocations: list[Buffer] = field(default_factory=list)
    matches: list[MatchBufferRegion] = field(default_factory=list)
    init: Stmt | None = None


@dataclass
class FunctionFrame:
    """What belongs to the function: parameters, attributes, names of blocks."""

    params: list[Var] = field(default_factory=list)
    buffer_map: dict[Var, Buffer] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)


class Macro:
    """A piece of program that is parsed where it is called: ``@T.macro``.

    Its names are its own; with ``hygienic=False`` it also sees those of its caller.
    """

    def __init__(
        self, source: Source, node: ast.FunctionDef, captured: Mapping[str, Any], hygienic: bool
    ) -> None:
        self.source = source
        self.node = node
        self.captured = captured
        self.hygienic = hygienic

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise VerifyError(
            f"macro {self.node.name!r} is a statement of its own inside @T.prim_func, "
            "and gives no value"
        )


class MacroDecorator:
    """``@T.macro``."""

    def __init__(self, hygienic: bool = True) -> None:
        self.hygienic = hygienic

    def __call__(self, function: Any = None, *, hygienic: bool = True) -> Any:
        """Decorate a Python function."""
        if function is None:
            return MacroDecorator(hygienic)
        source, node = function_source(function)
        return Macro(source, node, captured_by(function, 2), self.hygienic)

    def define_from_ast(self, source: Source, node: ast.FunctionDef, scope: Scope) -> Macro:
        """Make a macro of a definition in script text."""
        return Macro(source, node, scope.flatten(), self.hygienic)


macro = MacroDecorator()


def set_name(symbol: Any, name: str) -> None:
    """Give a new variable or buffer the name that it is assigned to."""
    object.__setattr__(symbol, "name", name)
    if isinstance(symbol, Buffer) and not symbol.data.name:
        object.__setattr__(symbol.data, "name", name)


def join(stmts: list[Stmt]) -> Stmt:
    """Make one statement of a suite's, as they stand."""
    if len(stmts) == 1:
        return stmts[0]
    return SeqStmt(tuple(stmts)) if stmts else NO_OP


class TirParser(Evaluator):
    """Parses one function, or a fragment."""

    def __init__(self, source: Source, scope: Scope) -> None:
        super().__init__(source, scope)
        self.function = FunctionFrame()
        self.blocks: list[BlockFrame] = [BlockFrame()]
        self.loops: dict[Var, Range] = {}
        self.copies = 0  # depth of macros and unrolled loops, whose blocks get new names

    # ---- suites --------------------------------------------------------------------------

    def suite(self, nodes: Iterable[ast.stmt], *, own_scope: bool = True) -> Stmt:
        """Parse statements into one."""
        if own_scope:
            self.scope.push()
        outer: list[tuple[list[Stmt], Rest]] = []
        current: list[Stmt] = []
        todo = list(nodes)[::-1]
        while todo:
            node = todo.pop()
            made = self.statement(node)
            if made is None:
                continue
            if isinstance(made, Stmt):
                if made.span is None and made is not NO_OP:
                    set_span(made, self.source.span(node))
                current.append(made)
            elif isinstance(made, Rest):
                outer.append((current, made))
                current = []
            elif made and isinstance(made[0], ast.stmt):
                todo.extend(reversed(made))  # the branch that a Python condition chose
            else:
                current.extend(made)
        body = join(current)
        for before, rest in reversed(outer):
            body = join([*before, rest.build(body)])
        if own_scope:
            self.scope.pop()
        return body

    def statement(self, node: ast.stmt) -> Any:
        """Parse one: gives a ``Stmt``, a ``Rest``, statements to splice in, or nothing."""
        method = _STATEMENTS.get(type(node))
        if method is None:
            kind = type(node).__name__
            self.fail(node, f"{kind} is not part of the dialect; use for, while, if, with, assert")
        return method(self, node)  # type: ignore[misc]

    @property
    def block(self) -> BlockFrame:
        """The innermost block."""
        return self.blocks[-1]

    # ---- loops and branches --------------------------------------------------------------

    def _for(self, node: ast.For) -> Any:
        if node.orelse:
            self.fail(node.orelse[0], "a loop takes no else")
        loops = self._loops_of(node.iter)
        if not isinstance(loops, decl.Loops):
            return self._unroll(node, loops)
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        if len(targets) != len(loops.ranges):
            self.fail(node.target, f"{len(targets)} variables for {len(loops.ranges)} loops")
        self.scope.push()
        variables = []
        for target, (minimum, extent) in zip(targets, loops.ranges):
            var = Var(self._target_name(target), loops.dtype or extent.dtype)
            self.scope.define(var.name, var)
            self.loops[var] = Range(minimum, extent)
            variables.append(var)
        body = self.suite(node.body)
        self.scope.pop()
        span = self.source.span(node)
        for var, (minimum, extent) in reversed(list(zip(variables, loops.ranges))):
            body = For(
                var, minimum, extent, loops.kind, body, loops.thread, dict(loops.annotations)
            )
            set_span(body, span)
        return body

    def _loops_of(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and self.eval(node.func) is builtins.range:
            arguments = self._items(node.args)
            if len(arguments) == 3 and arguments[2] != 1:
                self.fail(node, "a loop's step is 1; multiply the variable instead")
            return self.guard(node, decl.serial, *arguments[:2])
        return self.eval(node)

    def _unroll(self, node: ast.For, values: Any) -> list[Stmt]:
        """Run a loop over Python values while parsing."""
        if not isinstance(values, Iterable) or isinstance(values, (str, Expr)):
            found = ast.unparse(node.iter)
            self.fail(node.iter, f"`{found}` is no loop; use T.serial, T.grid, range or a list")
        made: list[Stmt] = []
        self.copies += 1
        for value in values:
            self.scope.push()
            self._bind(node.target, value)
            made.append(self.suite(node.body))
            self.scope.pop()
        self.copies -= 1
        return _flatten(made)

    def _while(self, node: ast.While) -> Stmt:
        if node.orelse:
            self.fail(node.orelse[0], "a loop takes no else")
        condition = self.check_condition(node.test, self.eval(node.test))
        return While(condition, self.suite(node.body))

    def _if(self, node: ast.If) -> Any:
        condition = to_value(self.eval(node.test))
        if not isinstance(condition, Expr):
            return node.body if condition else node.orelse
        self.check_condition(node.test, condition)
        then = self.suite(node.body)
        return IfThenElse(condition, then, self.suite(node.orelse) if node.orelse else None)

    def _assert(self, node: ast.Assert) -> Any:
        condition = to_value(self.eval(node.test))
        message = self.eval(node.msg) if node.msg is not None else ast.unparse(node.test)
        if not isinstance(message, str):
            self.fail(node.msg or node, "the message of an assert is text")
        if isinstance(condition, bool):
            if not condition:
                self.fail(node, f"this does not hold: {message}")
            return None
        return AssertStmt(self.check_condition(node.test, condition), message)

    # ---- with ----------------------------------------------------------------------------

    def _with(self, node: ast.With) -> Any:
        if len(node.items) > 1:
            first, *others = node.items
            inner = ast.copy_location(ast.With(items=others, body=node.body), node)
            node = ast.copy_location(ast.With(items=[first], body=[inner]), node)
        item = node.items[0]
        value = self.eval(item.context_expr)
        method = _CONTEXTS.get(type(value))
        if method is None:
            self.fail(
                item.context_expr,
                f"`{ast.unparse(item.context_expr)}` can't stand after with; "
                "expected T.block, T.init, T.LetStmt, T.attr, T.allocate, T.decl_buffer, T.seq",
            )
        return method(self, node, item, value)  # type: ignore[misc]

    def _no_target(self, item: ast.withitem) -> None:
        if item.optional_vars is not None:
            self.fail(item.optional_vars, "nothing to name here")

    def _with_block(self, node: ast.With, item: ast.withitem, value: decl.BlockDecl) -> Stmt:
        self._no_target(item)
        name = self._block_name(item.context_expr, value.name)
        frame = BlockFrame(value)
        self.blocks.append(frame)
        body = self.suite(node.body)
        self.blocks.pop()
        block = Block(
            tuple(frame.iter_vars),
            frame.reads or (),
            frame.writes or (),
            name,
            body,
            frame.init,
            tuple(frame.allocations),
            tuple(frame.matches),
            frame.annotations,
        )
        is_root = len(self.blocks) == 1 and name == "root" and not frame.iter_vars
        if (frame.reads is None or frame.writes is None) and not is_root:
            reads, writes = self.guard(node, block_access_regions, block)
            block = block.replace(
                reads=reads if frame.reads is None else frame.reads,
                writes=writes if frame.writes is None else frame.writes,
            )
        set_span(block, self.source.span(item.context_expr))
        if value.no_realize:
            return block
        realize = BlockRealize(
            tuple(frame.values),  # type: ignore[arg-type]  # each axis of a realized block has one
            TRUE if frame.predicate is None else frame.predicate,
            block,
        )
        set_span(realize, block.span)
        return realize

    def _block_name(self, node: ast.expr, name: str) -> str:
        known = self.function.blocks
        line = getattr(node, "lineno", 0)
        if not name or (self.copies and name in known):
            base, number = name or "block", 0
            name = base
            while name in known:
                number += 1
                name = f"{base}_{number}"
        elif name in known:
            self.fail(
                node, f"the function has two blocks named {name!r}; the other is on line "
                f"{known[name]}"
            )  # fmt: skip
        known[name] = line
        return name

    def _with_init(self, node: ast.With, item: ast.withitem, value: decl.InitDecl) -> None:
        self._no_target(item)
        if self.block.declaration is None:
            self.fail(node, "T.init stands inside a block")
        if self.block.init is not None:
            self.fail(node, "the block has two T.init")
        self.block.init = self.suite(node.body)

    def _with_rest(self, node: ast.With, item: ast.withitem, value: Any) -> Stmt:
        self.scope.push()
        rest = self._declare(node, item.optional_vars, value)
        body = self.suite(node.body)
        self.scope.pop()
        made: Stmt = rest.build(body)
        return made

    def _with_seq(self, node: ast.With, item: ast.withitem, value: decl.SeqDecl) -> Stmt:
        self._no_target(item)
        self.scope.push()
        made: list[Stmt] = []
        for index, inner in enumerate(node.body):
            stmt = self.statement(inner)
            if isinstance(stmt, Rest):
                made.append(stmt.build(self.suite(node.body[index + 1 :], own_scope=False)))
                break
            if isinstance(stmt, Stmt):
                made.append(stmt)
            elif stmt:
                if isinstance(stmt[0], ast.stmt):
                    made.append(self.suite(stmt, own_scope=False))
                else:
                    made.extend(stmt)
        self.scope.pop()
        return SeqStmt(tuple(made))

    # ---- assignment ----------------------------------------------------------------------

    def _target_name(self, target: ast.expr) -> str:
        if not isinstance(target, ast.Name):
            self.fail(target, "expected a name")
            raise AssertionError
        return target.id

    def _assign(self, node: ast.Assign) -> Any:
        if len(node.targets) != 1:
            self.fail(node, "one assignment at a time")
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return self._store(node, target, self.eval(node.value), node.value)
        if isinstance(target, ast.Attribute):
            self.fail(target, "attributes can't be assigned")
        value = self.eval(node.value)
        return self._assign_value(node, target, value)

    def _assign_value(self, node: ast.stmt, target: ast.expr, value: Any) -> Any:
        if isinstance(value, decl.RemapDecl):
            value = self._remap(node, value)
        if isinstance(value, decl.BlockDecl | decl.Loops | decl.InitDecl):
            self.fail(node, "this can't be assigned; blocks stand after with, loops after for-in")
        if isinstance(target, (ast.Tuple, ast.List)):
            self._bind_tuple(node, target, value)
            return None
        if type(value) in _DECLARATIONS:
            return self._declare(node, target, value)
        value = to_value(value)
        if isinstance(value, Expr) and type(value) is not Var:
            return self._let(target, Var(self._target_name(target), value.dtype), value)
        self._bind(target, value)
        return None

    def _bind_tuple(self, node: ast.stmt, target: ast.Tuple | ast.List, value: Any) -> None:
        values = list(value) if isinstance(value, (tuple, list)) else self._iterate(node, value)
        if len(values) != len(target.elts):
            self.fail(target, f"{len(target.elts)} names for {len(values)} values")
        for item, part in zip(target.elts, values):
            if type(part) in _DECLARATIONS:
                made = self._declare(node, item, part)
                if made is not None:
                    self.fail(item, "this declaration needs a line of its own")
            else:
                self._bind(item, part)

    def _iterate(self, node: ast.stmt, value: Any) -> list[Any]:
        if isinstance(value, (Expr, Buffer)) or not isinstance(value, Iterable):
            self.fail(node, "a single value can't be unpacked into several names")
        return list(value)

    def _bind(self, target: ast.expr, value: Any) -> None:
        """Bind names to a value while parsing; new symbols take the name."""
        if isinstance(target, (ast.Tuple, ast.List)):
            self._bind_tuple(target, target, value)  # type: ignore[arg-type]
            return
        name = self._target_name(target)
        if isinstance(value, decl.MetaVar):
            value = value.value
        elif isinstance(value, decl.DeferredBuffer):
            value = self._resolve(target, value)
            set_name(value, name)
        elif isinstance(value, (Var, Buffer)) and not value.name:
            set_name(value, name)
        self.scope.define(name, value)

    def _let(self, target: ast.expr, var: Var, value: Expr) -> Rest:
        self.scope.define(var.name, var)
        return Rest(lambda body: LetStmt(var, value, body))

    def _annotated(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            self.fail(node, "the variable needs a value")
            return None
        kind, value = self.eval(node.annotation), to_value(self.eval(node.value))
        name = self._target_name(node.target)
        if isinstance(kind, LetMarker):
            value = self.guard(node.value, as_expr, value)
            return self._let(node.target, Var(name, value.dtype), value)
        if not isinstance(kind, ScalarType):
            self.fail(node.annotation, "expected a dtype such as T.float32, or T.let")
        if not isinstance(value, Expr):
            value = self._literal(node.value, value, kind.dtype, f"{name}: {kind.dtype}")
        elif value.dtype != kind.dtype:
            self.fail(
                node.value, f"{name} is declared {kind.dtype}, the value is {value.dtype}; "
                "convert it with T.Cast"
            )  # fmt: skip
        return self._let(node.target, Var(name, kind.dtype), value)

    def _literal(self, node: ast.expr, value: Any, dtype: str, where: str) -> Expr:
        """Turn a Python number into a constant of ``dtype``, if it is one."""
        kind = dtypes.kind_of(dtype)
        fits = (
            isinstance(value, bool) if kind == "bool"
            else isinstance(value, int) and not isinstance(value, bool) if kind in ("int", "uint")
            else isinstance(value, (int, float)) and not isinstance(value, bool)
        )  # fmt: skip
        if hasattr(value, "item"):
            return self._literal(node, value.item(), dtype, where)
        if not fits:
            self.fail(node, f"{where} takes {dtype}, got {value!r}")
        made: Expr = self.guard(node, const, value, dtype)
        return made

    def _store(self, node: ast.stmt, target: ast.Subscript, value: Any, at: ast.expr) -> Stmt:
        access = self.eval(target)
        if not isinstance(access, (BufferLoad, decl.BufferSlice)):
            self.fail(target, f"`{ast.unparse(target)}` is not an element of a buffer")
        buffer = access.buffer
        indices = (
            access.indices if isinstance(access, BufferLoad) else self.guard(target, access.indices)
        )
        value = to_value(value)
        dtype = access_dtype(buffer, indices)
        if isinstance(value, Expr):
            if value.dtype != dtype:
                self.fail(
                    at, f"buffer {buffer.name} takes {dtype} here, the value is {value.dtype}; "
                    "convert it with T.Cast or .astype"
                )  # fmt: skip
        else:
            value = self._literal(at, value, dtype, f"buffer {buffer.name}")
        return BufferStore(buffer, value, indices)

    def _augmented(self, node: ast.AugAssign) -> Any:
        if not isinstance(node.target, ast.Subscript):
            self.fail(node.target, "only elements of buffers can be changed; bind a new name")
        old = to_value(self.eval(node.target))
        change = to_value(self.eval(node.value))
        op = type(node.op)
        if op not in (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod):
            self.fail(node, "this operator can't be used with =")
        value = self.guard(node, build_arithmetic, op, old, change)
        assert isinstance(node.target, ast.Subscript)
        return self._store(node, node.target, value, node.value)

    # ---- declarations --------------------------------------------------------------------

    def _declare(self, node: Any, target: ast.expr | None, value: Any) -> Any:
        """Give a declaration its meaning; ``target`` is the name it is assigned to."""
        return _DECLARATIONS[type(value)](self, node, target, value)

    def _named(self, node: ast.AST, target: ast.expr | None, what: str) -> str:
        if target is None:
            self.fail(node, f"{what} needs a name")
            raise AssertionError
        return self._target_name(target)

    def _declare_axis(self, node: Any, target: ast.expr | None, value: decl.AxisDecl) -> None:
        name = self._named(node, target, "an axis")
        frame = self.block
        if frame.declaration is None:
            self.fail(node, "T.axis stands inside a block")
            return
        if value.value is None and not frame.declaration.no_realize:
            self.fail(node, f"axis {name} needs the value that it takes: T.axis(extent, value)")
        var = Var(name, value.dtype)
        frame.iter_vars.append(IterVar(var, value.dom, value.kind))
        if value.value is not None:
            frame.values.append(value.value)
        self.scope.define(name, var)

    def _remap(self, node: ast.stmt, value: decl.RemapDecl) -> Any:
        made = []
        for letter, loop_var in zip(value.kinds, value.values):
            dom = self.loops.get(loop_var) if isinstance(loop_var, Var) else None
            if dom is None:
                self.fail(node, f"remap takes loop variables, got {loop_var!r}")
                raise AssertionError
            made.append(decl.AxisDecl(ITER_KINDS[letter], dom, loop_var, loop_var.dtype))
        return made[0] if len(made) == 1 else tuple(made)

    def _declare_alloc(self, node: Any, target: ast.expr | None, value: decl.AllocBuffer) -> None:
        name = self._named(node, target, "a buffer")
        set_name(value.buffer, name)
        self.block.allocations.append(value.buffer)
        self.scope.define(name, value.buffer)

    def _declare_match(self, node: Any, target: ast.expr | None, value: decl.MatchBuffer) -> None:
        name = self._named(node, target, "a buffer")
        set_name(value.buffer, name)
        if isinstance(value.source, BufferRegion):
            if self.block.declaration is None:
                self.fail(node, "match_buffer of a region stands inside a block")
            self.block.matches.append(MatchBufferRegion(value.buffer, value.source))
        elif not isinstance(value.source, Var) or value.source not in self.function.params:
            self.fail(node, "match_buffer takes a handle parameter or a region of a buffer")
        elif value.source in self.function.buffer_map:
            self.fail(node, f"parameter {value.source.name} has two buffers")
        else:
            if value.source.dtype != "handle":
                self.fail(node, f"parameter {value.source.name} is not a T.handle")
            self.function.buffer_map[value.source] = value.buffer
        self.scope.define(name, value.buffer)

    def _declare_let(self, node: Any, target: ast.expr | None, value: decl.LetDecl) -> Rest:
        name = self._named(node, target, "a let")
        made = self.guard(node, as_expr, value.value, value.dtype)
        assert target is not None
        return self._let(target, Var(name, value.dtype or made.dtype), made)

    def _declare_attr(self, node: Any, target: ast.expr | None, value: decl.AttrDecl) -> Rest:
        if target is not None:
            self.fail(target, "T.attr has no name")
        return Rest(lambda body: AttrStmt(value.node, value.key, value.value, body))

    def _declare_allocate(
        self, node: Any, target: ast.expr | None, value: decl.AllocateDecl
    ) -> Rest:
        name = self._named(node, target, "a buffer")
        set_name(value.buffer, name)
        self.scope.define(name, value.buffer)
        return Rest(lambda body: Allocate(value.buffer, body, value.annotations))

    def _declare_view(self, node: Any, target: ast.expr | None, value: decl.BufferDecl) -> Rest:
        name = self._named(node, target, "a buffer")
        set_name(value.buffer, name)
        self.scope.define(name, value.buffer)
        return Rest(lambda body: DeclBuffer(value.buffer, body))

    def _resolve(self, node: ast.AST, value: decl.DeferredBuffer) -> Buffer:
        """Make the buffer whose shape names symbolic variables by text."""
        shape = []
        for extent in value.shape:
            if isinstance(extent, str):
                shape.append(self._symbolic_extent(node, extent))
            else:
                shape.append(extent)
        made: Buffer = self.guard(node, decl.buffer_type, tuple(shape), **value.options)
        return made

    def _symbolic_extent(self, node: ast.AST, text: str) -> Any:
        try:
            parsed = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            return self.fail(node, f"the extent {text!r} is not an expression")
        for part in ast.walk(parsed):
            if isinstance(part, ast.expr):
                ast.copy_location(part, node)
            if isinstance(part, ast.Name):
                try:
                    self.scope.lookup(part.id)
                except KeyError:
                    self.scope.frames[0][part.id] = Var(part.id, INDEX)
        return self.eval(parsed)

    # ---- expressions as statements -------------------------------------------------------

    def _expression(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call):
            function = self.eval(node.value.func)
            if isinstance(function, Macro):
                return self._expand(node.value, function)
        value = self.eval(node.value)
        if isinstance(value, str) or value is None or value is ...:
            return None  # a docstring, or a call of a Python function for its effect
        if isinstance(value, Stmt):
            return value
        method = _EFFECTS.get(type(value))
        if method is not None:
            return method(self, node, value)
        if type(value) in _DECLARATIONS:
            return self._declare(node, None, value)
        value = to_value(value)
        if isinstance(value, Expr):
            return Evaluate(value)
        return self.fail(node, f"`{ast.unparse(node)}` is no statement")

    def _in_block(self, node: ast.AST, what: str) -> BlockFrame:
        if self.block.declaration is None:
            self.fail(node, f"{what} stands inside a block")
        return self.block

    def _where(self, node: ast.Expr, value: decl.Where) -> None:
        frame = self._in_block(node, "T.where")
        if frame.predicate is not None:
            self.fail(node, "the block has two T.where; join the conditions with and")
        frame.predicate = self.check_condition(node.value, value.predicate)

    def _accesses(self, node: ast.Expr, value: decl.Accesses) -> None:
        frame = self._in_block(node, f"T.{value.kind}")
        if getattr(frame, value.kind) is not None:
            self.fail(node, f"the block has two T.{value.kind}")
        setattr(frame, value.kind, value.regions)

    def _attributes(self, node: ast.Expr, value: decl.Attributes) -> None:
        if value.kind == "func_attr":
            if self.block.declaration is not None:
                self.fail(node, "T.func_attr stands outside of blocks")
            self.function.attrs.update(value.attrs)
        else:
            self._in_block(node, "T.block_attr").annotations.update(value.attrs)

    def _expand(self, node: ast.Call, function: Macro) -> list[Stmt]:
        """Parse a macro's body in place."""
        signature = function.node.args
        names = [item.arg for item in signature.args]
        values = dict(zip(names, self._items(node.args)))
        if len(node.args) > len(names):
            self.fail(node, f"macro {function.node.name!r} takes {len(names)} arguments")
        for keyword in node.keywords:
            if keyword.arg not in names or keyword.arg in values:
                self.fail(node, f"macro {function.node.name!r} can't take {keyword.arg!r}")
            else:
                values[keyword.arg] = self.eval(keyword.value)
        outer = self.source, self.scope
        seen = dict(function.captured)
        if not function.hygienic:
            seen.update(self.scope.flatten())
        self.source, self.scope = function.source, Scope(seen, trusted=self.scope.trusted)
        defaults = dict(zip(names[len(names) - len(signature.defaults) :], signature.defaults))
        for name in names:
            if name in values:
                self.scope.define(name, values[name])
            elif name in defaults:
                self.scope.define(name, self.eval(defaults[name]))
            else:
                self.source, self.scope = outer
                self.fail(node, f"macro {function.node.name!r} needs the argument {name!r}")
        self.copies += 1
        made = self.suite(function.node.body)
        self.copies -= 1
        self.source, self.scope = outer
        return _flatten([made])

    def _return(self, node: ast.Return) -> Stmt:
        value = as_expr(0) if node.value is None else self.eval_expr(node.value)
        return Evaluate(call("ret", value, dtype="void"))

    def _pass(self, node: ast.Pass) -> None:
        return None

    # ---- functions -----------------------------------------------------------------------

    def parse_function(self, node: ast.FunctionDef, options: Mapping[str, Any]) -> PrimFunc:
        """Parse a function definition."""
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
            self.fail(node, "a prim_func takes plain parameters, without defaults")
        for item in arguments.args:
            self._parameter(item)
        ret_dtype = "void"
        if node.returns is not None:
            kind = self.eval(node.returns)
            if kind is not None:
                if not isinstance(kind, ScalarType):
                    self.fail(node.returns, "the result is None or a dtype such as T.int32")
                ret_dtype = kind.dtype
        body = self._with_root(node, self.suite(node.body, own_scope=False), options)
        function = self.function
        made = PrimFunc(
            tuple(function.params), function.buffer_map, body, ret_dtype, function.attrs
        )
        set_span(made, self.source.span(node))
        return made

    def _with_root(self, node: ast.AST, body: Stmt, options: Mapping[str, Any]) -> Stmt:
        allocations = tuple(self.block.allocations)
        if not options.get("root", True):
            if allocations:
                self.fail(node, "T.alloc_buffer outside of blocks needs a root block")
            return body
        if not allocations:
            if not self.function.blocks:
                return body  # a lowered program
            is_root = isinstance(body, BlockRealize) and not body.iter_values
            if is_root and body.block.name == "root":  # type: ignore[attr-defined]
                return body
        if "root" in self.function.blocks:
            self.fail(node, "a block named 'root' must be the whole body of the function")
        return make_root_block(body, allocations)

    def _parameter(self, item: ast.arg) -> None:
        if item.annotation is None:
            self.fail(item, f"parameter {item.arg!r} needs a type: T.Buffer(...) or a dtype")
            return
        annotation = item.annotation
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            parsed = ast.parse(annotation.value.strip(), mode="eval").body
            for part in ast.walk(parsed):
                ast.copy_location(part, item.annotation)
            annotation = parsed
        value = self.eval(annotation)
        if isinstance(value, decl.DeferredBuffer):
            value = self._resolve(annotation, value)
        if isinstance(value, Buffer):
            if value.name:
                value = value.with_fresh_data(name=item.arg)
            else:
                set_name(value, item.arg)
            var = Var(f"{item.arg}_handle", "handle")
            self.function.buffer_map[var] = value
            self.scope.define(item.arg, value)
        elif isinstance(value, ScalarType):
            var = Var(item.arg, value.dtype)
            self.scope.define(item.arg, var)
        else:
            self.fail(
                annotation, f"parameter {item.arg!r} needs T.Buffer(shape, dtype), T.handle or a "
                f"dtype, got {ast.unparse(annotation)}"
            )  # fmt: skip
            return
        self.function.params.append(var)


def _flatten(stmts: list[Stmt]) -> list[Stmt]:
    made: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, SeqStmt):
            made.extend(stmt.stmts)
        elif stmt is not NO_OP:
            made.append(stmt)
    return made


_STATEMENTS: dict[type, Callable[[TirParser, Any], Any]] = {
    ast.For: TirParser._for,
    ast.While: TirParser._while,
    ast.If: TirParser._if,
    ast.Assert: TirParser._assert,
    ast.With: TirParser._with,
    ast.Assign: TirParser._assign,
    ast.AnnAssign: TirParser._annotated,
    ast.AugAssign: TirParser._augmented,
    ast.Expr: TirParser._expression,
    ast.Return: TirParser._return,
    ast.Pass: TirParser._pass,
}
_CONTEXTS: dict[type, Callable[[TirParser, ast.With, ast.withitem, Any], Any]] = {
    decl.BlockDecl: TirParser._with_block,
    decl.InitDecl: TirParser._with_init,
    decl.LetDecl: TirParser._with_rest,
    decl.AttrDecl: TirParser._with_rest,
    decl.AllocateDecl: TirParser._with_rest,
    decl.BufferDecl: TirParser._with_rest,
    decl.SeqDecl: TirParser._with_seq,
}
_DECLARATIONS: dict[type, Callable[[TirParser, Any, Any, Any], Any]] = {
    decl.AxisDecl: TirParser._declare_axis,
    decl.AllocBuffer: TirParser._declare_alloc,
    decl.MatchBuffer: TirParser._declare_match,
    decl.LetDecl: TirParser._declare_let,
    decl.AttrDecl: TirParser._declare_attr,
    decl.AllocateDecl: TirParser._declare_allocate,
    decl.BufferDecl: TirParser._declare_view,
}
_EFFECTS: dict[type, Callable[[TirParser, ast.Expr, Any], Any]] = {
    decl.Where: TirParser._where,
    decl.Accesses: TirParser._accesses,
    decl.Attributes: TirParser._attributes,
}


class _PrimFuncDecorator(FunctionDecorator):
    """``@T.prim_func``.

    ``root=False`` keeps a body with blocks as it is, without a root block around it; ``name`` is
    the function's name in its module, if that is no Python name.
    """

    def parse_function(
        self, source: Source, node: ast.FunctionDef, scope: Scope, options: Mapping[str, Any]
    ) -> PrimFunc:
        """Parse a function definition."""
        unknown = set(options) - {"root", "name"}
        if unknown:
            raise ParseError(f"prim_func takes root= and name=, got {sorted(unknown)[0]}=")
        return TirParser(source, scope).parse_function(node, options)


prim_func = _PrimFuncDecorator()


def parse_fragment(source: Source, nodes: list[ast.stmt], scope: Scope) -> Any:
    """Parse statements or an expression outside of a function."""
    parser = TirParser(source, scope)
    *first, last = nodes
    if isinstance(last, ast.Expr):
        for node in first:
            if parser.statement(node) is not None:
                break
        else:
            value = parser.eval(last.value)
            if not isinstance(value, (str, Stmt)) and type(value) not in _DECLARATIONS:
                value = to_value(value)
                return as_expr(value) if isinstance(value, (int, float)) else value
            parser = TirParser(source, Scope(scope.captured, trusted=scope.trusted))
            parser.scope.frames = [dict(scope.frames[0])]
        parser = TirParser(source, Scope(scope.captured, trusted=scope.trusted))
    made = parser.suite(nodes)
    if parser.block.allocations:
        raise source.error_at(1, 0, None, "T.alloc_buffer stands inside a block or function")
    return made
