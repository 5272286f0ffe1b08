"""A second opinion on what a program means: its text as NumPy, element by element.

The interpreter and the code generator start from the same tree, so both believe the parser, the
constructors of expressions, and each other. This translation starts from the text. Python's own
parser reads it; each scalar is a NumPy scalar of its exact dtype, so that sums wrap, halves round
and quotients by zero are what NumPy makes of them; blocks and loops become ``if`` and ``for``.
Nothing of ``tir`` is used. Schedules are not understood, only what programs start from:
``NotCovered`` says what is missing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from types import CodeType
from typing import Any

import numpy as np

from tilewright.testing.fuzz.oracle_syntax import (
    IGNORED,
    BlockText,
    LoopRange,
    NotCovered,
    address_of,
    argument_of,
    copied,
    dialect_name,
    driven_axes,
    has_init,
    items_of,
    loops_of,
    ranges_of,
    string_of,
    taken_apart,
    uses,
)
from tilewright.testing.fuzz.oracle_values import FILLS, FUNCTIONS, allocate, cast, matched, pointed

_DTYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64",
}  # fmt: skip
_OPERATORS = {"floordiv": "//", "floormod": "%", "bitwise_and": "&", "bitwise_or": "|",
              "bitwise_xor": "^"}  # fmt: skip
_PREFIX = "T_"
"""In front of functions: buffers may be called ``max`` as well."""
_CAST = _PREFIX + "cast"

Function = Callable[..., None]


def numpy_function(text: str, name: str = "main", *, fill: int = FILLS[0]) -> Function:
    """Return a function of arrays (and numbers) that does in place what a program does.

    ``text`` is a function in the dialect ``T``, or a module with several. ``fill`` is the byte
    that memory is full of before something is written.
    """
    functions: dict[str, Function] = {}
    for own, code, constants, python in _translated(text):
        scope: dict[str, Any] = {_PREFIX + item: value for item, value in FUNCTIONS.items()}
        scope.update(constants, np=np, functions=functions, **{_CAST: cast})
        scope.update(matched=matched, pointed=pointed, allocate=partial(allocate, fill=fill))
        exec(code, scope)
        functions[own] = _quiet(scope["program"], python)
    if name not in functions and len(functions) == 1:
        name = next(iter(functions))
    if name not in functions:
        raise NotCovered(f"no function {name}")
    return functions[name]


def _quiet(program: Function, python: str) -> Function:
    def run(*args: object) -> None:
        with np.errstate(all="ignore"):
            program(*args)

    run.text = python  # type: ignore[attr-defined]  # for those who look for a fault
    return run


@lru_cache(maxsize=8)
def _translated(text: str) -> list[tuple[str, CodeType, dict[str, Any], str]]:
    """Name, code, constants and Python text of each function."""
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    made = []
    for node in found:
        function = _Function(node)
        python = function.text()
        code = compile(python, f"<oracle of {node.name}>", "exec")
        made.append((node.name, code, function.constants, python))
    return made


class _Function:
    """Translates one function to Python text."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node
        self.lines: list[str] = []
        self.depth = 1
        self.constants: dict[str, object] = {}
        self.handles: set[str] = set()
        self.loops = 0
        self.hidden: set[int] = set()  # blocks, by identity, that begin elsewhere

    def text(self) -> str:
        params = self.parameters()
        self.extents()
        self.statements(self.node.body)
        return f"def program({', '.join([*params, '*extents'])}):\n" + "\n".join(
            self.lines or ["    pass"]
        )

    # ---- parameters -----------------------------------------------------------------------------

    def parameters(self) -> list[str]:
        names = []
        for arg in self.node.args.args:
            names.append(arg.arg)
            note = arg.annotation
            if isinstance(note, ast.Call) and dialect_name(note) == "Buffer":
                self.parameter(arg.arg, arg.arg, note.args[0])
            elif isinstance(note, ast.Attribute) and note.attr in _DTYPES:
                self.line(f"{arg.arg} = {_CAST}({note.attr!r}, {arg.arg})")
            else:
                self.handles.add(arg.arg)
        return names

    def extents(self) -> None:
        """Give symbolic extents their values: each is the extent of a parameter by itself.

        Functions that call this one, with memory that has no shape, pass them last.
        """
        symbols: set[str] = set()
        count = 0
        for stmt in self.node.body:
            if not (isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Call)):
                continue
            name, call, target = dialect_name(stmt.value), stmt.value, stmt.targets[0]
            if name in _DTYPES and not call.args and isinstance(target, ast.Name):
                symbols.add(target.id)
            elif name == "match_buffer" and isinstance(call.args[0], ast.Name):
                for axis, extent in enumerate(items_of(call.args[1])):
                    if isinstance(extent, ast.Name) and extent.id in symbols:
                        symbols.discard(extent.id)
                        shape = f"{call.args[0].id}.shape[{axis}]"
                        passed = f"extents[{count}] if extents else {shape}"
                        self.line(f"{extent.id} = np.int64({passed})")
                        count += 1

    def parameter(self, name: str, source: str, shape: ast.expr) -> None:
        """Give a parameter the shape that it has: callers may pass memory only."""
        sizes = "".join(f"{self.expr(extent)}, " for extent in items_of(shape))
        self.line(f"{name} = pointed({source}, ({sizes}))")

    # ---- statements -----------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def statements(self, body: Sequence[ast.stmt]) -> None:
        for stmt in body:
            self.statement(stmt)

    def nested(self, head: str, body: Sequence[ast.stmt]) -> None:
        self.line(head)
        self.depth += 1
        self.line("pass")
        self.statements(body)
        self.depth -= 1

    def statement(self, stmt: ast.stmt) -> None:
        if isinstance(stmt, ast.For):
            self.loop(stmt)
        elif isinstance(stmt, ast.With):
            self.with_(stmt)
        elif isinstance(stmt, ast.If):
            self.nested(f"if {self.expr(stmt.test)}:", stmt.body)
            if stmt.orelse:
                self.nested("else:", stmt.orelse)
        elif isinstance(stmt, ast.While):
            self.nested(f"while {self.expr(stmt.test)}:", stmt.body)
        elif isinstance(stmt, ast.AnnAssign) and stmt.value is not None:
            note, value = stmt.annotation, self.expr(stmt.value)
            if isinstance(note, ast.Attribute) and note.attr in _DTYPES:
                value = f"{_CAST}({note.attr!r}, {value})"
            self.line(f"{ast.unparse(stmt.target)} = {value}")
        elif isinstance(stmt, ast.Assign):
            self.assign(stmt)
        elif isinstance(stmt, ast.Expr):
            self.evaluate(stmt.value)
        elif isinstance(stmt, ast.Assert):
            self.line(f"assert {self.expr(stmt.test)}")
        elif not isinstance(stmt, ast.Pass):
            raise NotCovered(type(stmt).__name__)

    def assign(self, stmt: ast.Assign) -> None:
        target, value = stmt.targets[0], stmt.value
        name = dialect_name(value)
        if isinstance(target, ast.Subscript):
            self.line(f"{self.expr(target)} = {self.expr(value)}")
        elif not isinstance(target, ast.Name):
            raise NotCovered(f"assignment to {ast.unparse(target)}")
        elif name in _DTYPES and isinstance(value, ast.Call) and not value.args:
            return  # a variable that something else gives a value
        elif isinstance(value, ast.Call) and name in _MEMORY:
            _MEMORY[name](self, target.id, value)
        else:
            self.line(f"{target.id} = {self.expr(value)}")

    def evaluate(self, value: ast.expr) -> None:
        name = dialect_name(value)
        if isinstance(value, ast.Constant) or name in IGNORED:
            return
        if not isinstance(value, ast.Call):
            raise NotCovered(ast.unparse(value))
        if name == "evaluate":
            self.evaluate(value.args[0])
        elif name == "atomic_add":
            place = self.expr(address_of(value.args[0]))
            self.line(f"{place} += {self.expr(value.args[1])}")
        elif name == "call_extern":
            texts = [item for item in value.args if string_of(item)]
            callee = string_of(texts[-1]) if texts else ""
            args = value.args[value.args.index(texts[-1]) + 1 :] if texts else []
            passed = ", ".join(self.pointer(arg) for arg in args)
            self.line(f"functions[{callee!r}]({passed})")
        else:
            raise NotCovered(ast.unparse(value.func))

    def pointer(self, arg: ast.expr) -> str:
        if isinstance(arg, ast.Attribute) and arg.attr == "data":
            return self.expr(arg.value)
        if dialect_name(arg) == "address_of":
            load = address_of(arg)
            whole = self.expr(load.value)
            indices = "".join(f"{self.expr(item)}, " for item in items_of(load.slice))
            return f"{whole}.reshape(-1)[np.ravel_multi_index(({indices}), {whole}.shape):]"
        return self.expr(arg)

    # ---- memory ---------------------------------------------------------------------------------

    def allocation(self, name: str, call: ast.Call) -> None:
        dtype = string_of(argument_of(call, 1, "dtype"), "float32")
        self.line(f"{name} = allocate({self.expr(call.args[0])}, {dtype!r})")

    def view(self, name: str, call: ast.Call) -> None:
        data = argument_of(call, 2, "data")
        if data is None:
            return self.allocation(name, call)
        if not (isinstance(data, ast.Attribute) and data.attr == "data"):
            raise NotCovered(f"memory {ast.unparse(data)}")
        return self.line(f"{name} = pointed({self.expr(data.value)}, {self.expr(call.args[0])})")

    def match(self, name: str, call: ast.Call) -> None:
        source, shape = call.args[0], call.args[1]
        if isinstance(source, ast.Name) and source.id in self.handles:
            return self.parameter(name, source.id, shape)
        if isinstance(source, ast.Name):
            return self.line(f"{name} = matched({source.id}, {self.expr(shape)})")
        if not isinstance(source, ast.Subscript):
            raise NotCovered(f"match of {ast.unparse(source)}")
        parts = source.slice.elts if isinstance(source.slice, ast.Tuple) else [source.slice]
        region = []
        for part in parts:
            if isinstance(part, ast.Slice):
                low = self.expr(part.lower) if part.lower else "0"
                region.append(f"slice({low}, {self.expr(part.upper) if part.upper else None})")
            else:
                index = self.expr(part)
                region.append(f"slice({index}, {index} + 1)")
        place = f"{self.expr(source.value)}[{', '.join(region)}]" if region else ""
        return self.line(f"{name} = matched({place}, {self.expr(shape)})")

    # ---- loops ----------------------------------------------------------------------------------

    def loop(self, stmt: ast.For) -> None:
        ranges = ranges_of(stmt)
        self.one_loop(ranges, stmt.body)

    def one_loop(self, ranges: list[LoopRange], body: list[ast.stmt]) -> None:
        if not ranges:
            return self.statements(body)
        head, *rest = ranges
        low, high = self.expr(head.low), self.expr(head.high)
        if head.may_be_empty and has_init(body):
            self.loops += 1
            span = f"span_{self.loops}"
            self.line(f"{span} = np.arange({low}, {high})")
            self.line(f"for {head.name} in {span}:")
        else:
            span = ""
            self.line(f"for {head.name} in np.arange({low}, {high}):")
        self.depth += 1
        self.line("pass")
        self.one_loop(rest, body)
        self.depth -= 1
        if span:
            # A reduction over nothing leaves what it starts with.
            self.line(f"if not {span}.size:")
            self.depth += 1
            self.line(f"{head.name} = np.int64({low})")
            self.starts(loops_of(rest, body), {head.name}, {head.name})
            self.depth -= 1
        return None

    def starts(self, body: Sequence[ast.stmt], root: set[str], missing: set[str]) -> None:
        """Write the inits of what reduces over ``root``, which has no values.

        ``missing`` are those variables and what depends on them, and the loops inside that only
        reduce; all of them have their first values.
        """
        self.line("pass")
        for stmt in body:
            if id(stmt) in self.hidden:
                continue
            if isinstance(stmt, ast.For):
                self.start_of_loop(stmt, root, missing)
            elif isinstance(stmt, ast.With) and dialect_name(stmt.items[0].context_expr) == "block":
                self.start_of_block(taken_apart(stmt), root, missing)
            elif isinstance(stmt, ast.If) and not uses(stmt.test, missing):
                for head, part in ((f"if {self.expr(stmt.test)}:", stmt.body),
                                   ("else:", stmt.orelse)):  # fmt: skip
                    self.line(head)
                    self.depth += 1
                    self.starts(part, root, missing)
                    self.depth -= 1
            elif isinstance(stmt, ast.With) and not uses(stmt.items[0].context_expr, missing):
                self.let(stmt.items[0])
                self.starts(stmt.body, root, missing)

    def start_of_loop(self, stmt: ast.For, root: set[str], missing: set[str]) -> None:
        head, *rest = ranges_of(stmt)
        low, high = self.expr(head.low), self.expr(head.high)
        inner = loops_of(rest, stmt.body)
        driven = driven_axes(head.name, inner)
        reducing = {block for block, kinds in driven.items() if kinds == {True}}
        whole = set().union(*driven.values()) == {True}
        before = self.hidden
        if reducing:
            self.hidden = before | (set() if whole else set(driven) - reducing)
            self.line(f"{head.name} = np.int64({low})")
            self.starts(inner, root, missing | {head.name})
        if not (whole or uses(head.low, missing) or uses(head.high, missing)):
            self.hidden = before | reducing
            self.line(f"for {head.name} in np.arange({low}, {high}):")
            self.depth += 1
            self.starts(inner, root, missing)
            self.depth -= 1
        self.hidden = before

    def start_of_block(self, block: BlockText, root: set[str], missing: set[str]) -> None:
        gone = {axis.name for axis in block.axes if uses(axis.value, missing)}
        if any(axis.kind != "reduce" and axis.name in gone for axis in block.axes):
            return
        reduced = {axis.name for axis in block.axes if uses(axis.value, root)}
        if block.init is not None and not reduced:
            return
        self.bind(block)
        tests = [self.expr(part) for part in block.predicates if not uses(part, missing)]
        if block.init is not None:
            tests += self.first(block, of_nothing=True)
        self.line(f"if {' and '.join(tests) or 'True'}:")
        self.depth += 1
        self.line("pass")
        self.statements(block.before)
        if block.init is not None:
            self.statements(block.init)
        else:
            self.starts(block.body, root | reduced, missing | gone)
        self.depth -= 1

    # ---- blocks ---------------------------------------------------------------------------------

    def with_(self, stmt: ast.With) -> None:
        item = stmt.items[0]
        if dialect_name(item.context_expr) == "block":
            self.block(taken_apart(stmt))
            return
        self.let(item)
        self.statements(stmt.body)

    def let(self, item: ast.withitem) -> None:
        call, name = item.context_expr, dialect_name(item.context_expr)
        if name == "LetStmt" and isinstance(call, ast.Call) and item.optional_vars is not None:
            self.line(f"{ast.unparse(item.optional_vars)} = {self.expr(call.args[0])}")
        elif name != "attr":
            raise NotCovered(f"with {ast.unparse(call)}")

    def bind(self, block: BlockText) -> None:
        for axis in block.axes:
            self.line(f"{axis.name} = np.int64({self.expr(axis.value)})")

    def first(self, block: BlockText, *, of_nothing: bool = False) -> list[str]:
        """Say that a reduction is at its start; ``of_nothing``: or that its axis has no values."""
        tests = []
        for axis in block.axes:
            if axis.kind == "reduce":
                test = f"{axis.name} == {self.expr(axis.low)}"
                if of_nothing and axis.high is not None:
                    test = f"({test} or {self.expr(axis.high)} <= {self.expr(axis.low)})"
                tests.append(test)
        return tests

    def block(self, block: BlockText) -> None:
        self.bind(block)
        tests = [f"({self.expr(part)})" for part in block.predicates]
        if tests:
            self.line(f"if {' and '.join(tests)}:")
            self.depth += 1
        self.line("pass")
        self.statements(block.before)
        if block.init is not None:
            self.nested(f"if {' and '.join(self.first(block)) or 'True'}:", block.init)
        self.statements(block.body)
        if tests:
            self.depth -= 1

    # ---- expressions ----------------------------------------------------------------------------

    def expr(self, node: ast.expr) -> str:
        return ast.unparse(_Expressions(self.constants).visit(copied(node)))


class _Expressions(ast.NodeTransformer):
    """Puts functions of NumPy scalars in place of the dialect's."""

    def __init__(self, constants: dict[str, object]) -> None:
        self.constants = constants

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = dialect_name(node)
        args: list[ast.expr] = [self.visit(arg) for arg in node.args]
        if name == "Let":
            return self.let(args[0], node.keywords[0].value)
        if name in ("if_then_else", "Select"):
            return ast.IfExp(test=args[0], body=args[1], orelse=args[2])
        if name in ("likely", "ignore_loop_partition"):
            return args[0]
        if name == "Div" and any(
            isinstance(arg, ast.Call) and dialect_name(arg).startswith("float") for arg in node.args
        ):
            return ast.BinOp(left=args[0], op=ast.Div(), right=args[1])  # as of constants
        if name == "Cast":
            return self.cast(string_of(node.args[0]), args[1])
        if name in _DTYPES:
            return self.cast(name, args[0])
        if name in _OPERATORS:
            left, right = (f"({ast.unparse(arg)})" for arg in args)
            return ast.parse(f"{left} {_OPERATORS[name]} {right}", mode="eval").body
        if name not in FUNCTIONS:
            raise NotCovered(ast.unparse(node.func))
        func = ast.Name(id=f"{_PREFIX}{name}", ctx=ast.Load())
        return ast.Call(func=func, args=args, keywords=[])

    def let(self, body: ast.expr, where: ast.expr) -> ast.expr:
        if not isinstance(where, ast.Dict):
            raise NotCovered(f"names {ast.unparse(where)}")
        for name, value in zip(where.keys, where.values):
            assert isinstance(name, ast.Name)
            text = f"(lambda {name.id}: {ast.unparse(body)})({ast.unparse(self.visit(value))})"
            body = ast.parse(text, mode="eval").body
        return body

    def cast(self, dtype: str, value: ast.expr) -> ast.expr:
        """A constant is made once."""
        try:
            number = ast.literal_eval(value)
        except ValueError:
            return ast.Call(
                func=ast.Name(id=_CAST, ctx=ast.Load()),
                args=[ast.Constant(value=dtype), value],
                keywords=[],
            )
        name = f"constant_{len(self.constants)}"
        self.constants[name] = cast(dtype, number)
        return ast.Name(id=name, ctx=ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        raise NotCovered(ast.unparse(node))


_MEMORY: dict[str, Callable[[_Function, str, ast.Call], None]] = {
    "alloc_buffer": _Function.allocation,
    "decl_buffer": _Function.view,
    "match_buffer": _Function.match,
}
