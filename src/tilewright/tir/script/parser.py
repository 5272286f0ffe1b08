"""Parses the statements of the dialect ``T`` into TensorIR.

Walks the Python ``ast`` of a function. Expressions are evaluated by the machinery in
``tilewright.script``; this file gives ``for``, ``with``, assignments and the rest their meaning,
adds the root block where a program has blocks, and infers what a block reads and writes where the
text does not say it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilewright.ir import (
    INDEX,
    TRUE,
    Expr,
    Var,
    as_expr,
    call,
    set_span,
)
from tilewright.script.diagnostics import Source
from tilewright.script.operators import to_value
from tilewright.script.parser import Configured, FunctionDecorator
from tilewright.script.scope import Scope
from tilewright.support.errors import ParseError
from tilewright.tir.analysis.regions import block_access_regions
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.loop_exits import exit_of
from tilewright.tir.script import buffer_declarations as buffers
from tilewright.tir.script import declarations as decl
from tilewright.tir.script import threads
from tilewright.tir.script.assignments import DECLARATIONS
from tilewright.tir.script.frames import BlockFrame, Macro, Rest, flatten, join, set_name
from tilewright.tir.script.loops import LoopParser
from tilewright.tir.script.scalars import ScalarType
from tilewright.tir.stmt import (
    NO_OP,
    AssertStmt,
    Block,
    BlockRealize,
    Evaluate,
    IfThenElse,
    SeqStmt,
    Stmt,
    While,
    make_root_block,
)


class TirParser(LoopParser):
    """Parses one function, or a fragment."""

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
            return self.fail(
                node, f"{kind} is not part of the dialect; use for, while, if, with, assert"
            )
        return self.guarded_statement(node, method, self)

    # ---- loops and branches --------------------------------------------------------------

    def _if(self, node: ast.If) -> Any:
        condition = to_value(self.eval(node.test))
        if not isinstance(condition, Expr):
            self.check_value(node.test, condition)
            return node.body if condition else node.orelse
        self.check_condition(node.test, condition)
        then = self.suite(node.body)
        return IfThenElse(condition, then, self.suite(node.orelse) if node.orelse else None)

    def _assert(self, node: ast.Assert) -> Any:
        condition = to_value(self.eval(node.test))
        message = self.eval(node.msg) if node.msg is not None else ast.unparse(node.test)
        values: tuple[Any, ...] = ()
        kind = "RuntimeError"
        if isinstance(message, tuple) and len(message) == 2 and isinstance(message[1], list):
            kind, parts = message  # as TVM prints it
            message = self.guard(node.msg or node, _whole_message, parts)
        if isinstance(message, tuple) and message:
            message, *rest = message
            values = tuple(as_expr(value, INDEX) for value in map(to_value, rest))
        if not isinstance(message, str):
            self.fail(node.msg or node, "the message of an assert is text, or text and values")
        if isinstance(condition, bool):
            if not condition:
                self.fail(node, f"this does not hold: {message}")
            return None
        made = self.guard(
            node, AssertStmt, kind, self.check_condition(node.test, condition), message, values
        )
        return made

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
            base, name = name or "block", name or "block"
            number = self.function.copies_of.get(base, 0)
            while name in known:
                number += 1
                name = f"{base}_{number}"
            self.function.copies_of[base] = number
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

    def _with_rest(self, node: ast.With, item: ast.withitem, value: object) -> Stmt:
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

    def _with_if(self, node: ast.With, item: ast.withitem, value: decl.IfFrame) -> Stmt:
        """``with T.If(condition):`` around ``with T.Then():`` and ``with T.Else():``."""
        self._no_target(item)
        condition = self.check_condition(item.context_expr, to_value(value.condition))
        cases: dict[str, Stmt] = {}
        for inner in node.body:
            part = self.eval(inner.items[0].context_expr) if isinstance(inner, ast.With) else None
            if not isinstance(part, decl.BranchFrame) or part.name in cases:
                self.fail(inner, "T.If holds one T.Then() and perhaps one T.Else()")
                raise AssertionError
            assert isinstance(inner, ast.With)
            cases[part.name] = self.suite(inner.body)
        if "Then" not in cases:
            self.fail(node, "T.If holds one T.Then() and perhaps one T.Else()")
        return IfThenElse(condition, cases["Then"], cases.get("Else"))

    def _with_branch(self, node: ast.With, item: ast.withitem, value: decl.BranchFrame) -> None:
        self.fail(node, f"T.{value.name} stands inside `with T.If(...):`")

    def _with_while(self, node: ast.With, item: ast.withitem, value: decl.WhileFrame) -> Stmt:
        self._no_target(item)
        condition = self.check_condition(item.context_expr, to_value(value.condition))
        return While(condition, self.loop_suite(node.body))

    def _with_assert(
        self, node: ast.With, item: ast.withitem, value: decl.AssertFrame
    ) -> list[Stmt]:
        self._no_target(item)
        condition = self.check_condition(item.context_expr, to_value(value.condition))
        check = AssertStmt(value.kind, condition, value.message)
        return [check, *flatten([self.suite(node.body)])]

    # ---- expressions as statements -------------------------------------------------------

    def _expression(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call):
            function = self.named(node.value.func)
            if isinstance(function, Macro):
                return self._expand(node.value, function)
        value = self.eval(node.value)
        if isinstance(value, str) or value is None or value is ...:
            return None  # a docstring, or a call of a Python function for its effect
        if isinstance(value, Stmt):
            if exit_of(value) is not None and not self.block.loops:
                self.fail(node, "this stands inside a loop, in the same block as that")
            return flatten([value])
        method = _EFFECTS.get(type(value))
        if method is not None:
            return method(self, node, value)
        if type(value) in DECLARATIONS:
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
            self.add_attributes(node, self.function.attrs, value.attrs)
        else:
            frame = self._in_block(node, "T.block_attr")
            self.add_attributes(node, frame.annotations, value.attrs)

    def _expand(self, node: ast.Call, macro: Macro) -> list[Stmt]:
        """Parse a macro's body in place."""
        given = self._items(node.args), self._options(node.keywords)
        values = self.guard(node, macro.bind, *given)
        outer = self.source, self.scope
        seen: Mapping[str, Any] = macro.captured
        if not macro.hygienic:
            seen = {**seen, **self.scope.flatten()}
        self.source, self.scope = macro.source, Scope(seen, macro.budget)
        made = self.expanded(macro, values)
        self.source, self.scope = outer
        return flatten([made])

    def expanded(self, macro: Macro, values: Mapping[str, object]) -> Stmt:
        """Parse a macro's body in a scope of its own, with these values of its parameters."""
        for name in macro.parameters:
            given = values[name] if name in values else self.eval(macro.defaults[name])
            self.scope.define(name, given)
        self.copies += 1
        made = self.suite(macro.node.body)
        self.copies -= 1
        return made

    def _return(self, node: ast.Return) -> Stmt:
        """End the function; ``return x`` gives a value of the dtype that the header states."""
        kind = self.function.ret_dtype
        if node.value is None:
            if kind != "void":
                self.fail(node, f"the function returns a {kind}: return a value")
            return Evaluate(call("ret", as_expr(0), dtype="void"))
        value = to_value(self.eval(node.value))
        if kind == "void":
            value = self.guard(node.value, as_expr, value)
        elif isinstance(value, Expr):
            if value.dtype != kind:
                value = self._converted(node.value, value, kind, "the result")
        else:
            value = self._literal(node.value, value, kind, "the result")
        return Evaluate(call("ret", value, dtype="void"))

    def _pass(self, node: ast.Pass) -> None:
        return None

    # ---- functions -----------------------------------------------------------------------

    def parse_function(self, node: ast.FunctionDef, options: Mapping[str, object]) -> PrimFunc:
        """Parse a function definition."""
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
            self.fail(node, "a prim_func takes parameters by position, without defaults")
        self.check_parameters(arguments)
        for item in arguments.args:
            self._parameter(item)
        if node.returns is not None:
            kind = self.eval(node.returns)
            if kind is not None:
                if not isinstance(kind, ScalarType):
                    self.fail(node.returns, "the result is None or a dtype such as T.int32")
                self.function.ret_dtype = kind.dtype
        body = self._with_root(node, self.suite(node.body, own_scope=False), options)
        function = self.function
        made = PrimFunc(
            function.params,
            body,
            function.ret_dtype,
            function.attrs,
            buffer_map=function.buffer_map,
        )
        set_span(made, self.source.span(node))
        return made

    def _with_root(self, node: ast.AST, body: Stmt, options: Mapping[str, object]) -> Stmt:
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
            annotation = self.parse_text(annotation, annotation.value)
        value = self.eval(annotation)
        if isinstance(value, buffers.DeferredBuffer):
            value = self._resolve(annotation, value)
        if isinstance(value, Buffer):
            if value.name:
                value = value.with_fresh_data(name=item.arg)
            else:
                set_name(value, item.arg)
            var = Var(f"{item.arg}_handle", "handle")
            self.function.buffer_map[var] = value
            self.scope.define(item.arg, value)
        elif isinstance(value, ScalarType) or (type(value) is Var and not value.name):
            var = Var(item.arg, value.dtype)  # T.handle, or T.handle("float32")
            self.scope.define(item.arg, var)
        else:
            self.fail(
                annotation, f"parameter {item.arg!r} needs T.Buffer(shape, dtype), T.handle or a "
                f"dtype, got {ast.unparse(annotation)}"
            )  # fmt: skip
            return
        self.function.params.append(var)


def _whole_message(parts: list[Any]) -> Any:
    """Join the parts of a message; with values, the text that shows them, and these."""
    return parts[0] if len(parts) == 1 and isinstance(parts[0], tuple) else "".join(parts)


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
    ast.Break: TirParser._leave,
    ast.Continue: TirParser._leave,
}
_CONTEXTS: dict[type, Callable[[TirParser, ast.With, ast.withitem, Any], Any]] = {
    decl.BlockDecl: TirParser._with_block,
    decl.InitDecl: TirParser._with_init,
    decl.LetDecl: TirParser._with_rest,
    decl.AttrDecl: TirParser._with_rest,
    buffers.AllocateDecl: TirParser._with_rest,
    buffers.BufferDecl: TirParser._with_rest,
    threads.LaunchThread: TirParser._with_rest,
    decl.SeqDecl: TirParser._with_seq,
    decl.IfFrame: TirParser._with_if,
    decl.BranchFrame: TirParser._with_branch,
    decl.WhileFrame: TirParser._with_while,
    decl.AssertFrame: TirParser._with_assert,
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

    def __call__(
        self,
        func: Any = None,
        private: bool = False,
        check_well_formed: bool = True,
        s_tir: bool = False,
        persistent: bool = False,
        **options: Any,
    ) -> Any:
        """Decorate a Python function, or keep options for it.

        All functions are checked, and are called by the names that their module gives them.
        """
        stated = (private, check_well_formed, s_tir, persistent)
        options.update(zip(_TVM_OPTIONS, stated))
        configured = Configured(self, options)
        return configured if func is None else configured.decorate(func, depth=2)

    def parse_function(
        self, source: Source, node: ast.FunctionDef, scope: Scope, options: Mapping[str, object]
    ) -> PrimFunc:
        """Parse a function definition."""
        unknown = set(options) - {"root", "name", *_TVM_OPTIONS}
        if unknown:
            raise ParseError(f"prim_func takes root= and name=, got {sorted(unknown)[0]}=")
        for option in set(_TVM_OPTIONS) & set(options):
            if not isinstance(options[option], bool):
                raise ParseError(f"{option}= of prim_func is True or False")
        if options.get("persistent"):
            raise ParseError("prim_func has no persistent=True: write the loop over tiles")
        made: PrimFunc = _read(source, scope, lambda parser: parser.parse_function(node, options))
        return made


_TVM_OPTIONS = ("private", "check_well_formed", "s_tir", "persistent")

prim_func = _PrimFuncDecorator()


def _read(source: Source, scope: Scope, read: Callable[[TirParser], Any]) -> Any:
    """Read a program, once more for each time that it turns out to change variables."""
    changed: frozenset[ast.stmt] = frozenset()
    while True:
        inner = scope.inner()
        inner.frames = [dict(frame) for frame in scope.frames]
        parser = TirParser(source, inner, changed)
        made = read(parser)
        if parser.changed <= changed:
            return made
        changed |= parser.changed


def expand(macro: Macro, /, *args: object, **named: object) -> Stmt:
    """Return the statement that a macro stands for, with these arguments.

    Kernels are written as macros and put into a function by Python.
    """

    def read(parser: TirParser) -> Stmt:
        made = parser.expanded(macro, macro.bind(list(args), named))
        if parser.block.allocations:
            raise macro.source.error_at(1, 0, None, "T.alloc_buffer stands inside a block")
        return made

    result: Stmt = _read(macro.source, Scope(macro.captured, macro.budget), read)
    return result


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
            if not isinstance(value, (str, Stmt)) and type(value) not in DECLARATIONS:
                value = to_value(value)
                return as_expr(value) if isinstance(value, (int, float)) else value
            parser = TirParser(source, scope.inner())
            parser.scope.frames = [dict(scope.frames[0])]
        parser = TirParser(source, scope.inner())
    made = parser.suite(nodes)
    for node in parser.changed:
        parser.fail(node, "a variable that changes stands inside a block or function")
    if parser.block.allocations:
        raise source.error_at(1, 0, None, "T.alloc_buffer stands inside a block or function")
    return made
