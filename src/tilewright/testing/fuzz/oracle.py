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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.testing.fuzz.oracle_values import FUNCTIONS, allocate, cast, matched, pointed

_LOOPS = {"serial", "parallel", "vectorized", "unroll", "thread_binding", "grid"}
_IGNORED = {"reads", "writes", "block_attr", "func_attr", "storage_sync"}
_DTYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64",
}  # fmt: skip
_OPERATORS = {"floordiv": "//", "floormod": "%", "bitwise_and": "&", "bitwise_or": "|",
              "bitwise_xor": "^"}  # fmt: skip
_PREFIX = "T_"
"""In front of functions: buffers may be called ``max`` as well."""

Function = Callable[..., None]


class NotCovered(Exception):
    """The program uses what the oracle doesn't know."""


def numpy_function(text: str, name: str = "main") -> Function:
    """Return a function of arrays (and numbers) that does in place what a program does.

    ``text`` is a function in the dialect ``T``, or a module with several.
    """
    tree = ast.parse(text)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    functions: dict[str, Function] = {}
    for node in found:
        functions[node.name] = _Function(node).compiled(functions)
    if name not in functions and len(functions) == 1:
        name = next(iter(functions))
    if name not in functions:
        raise NotCovered(f"no function {name}")
    return functions[name]


@dataclass
class _Block:
    """A block's text, taken apart."""

    axes: list[tuple[str, str, ast.expr, ast.expr]] = field(default_factory=list)
    """Name, kind, first value and binding."""
    predicates: list[ast.expr] = field(default_factory=list)
    before: list[ast.stmt] = field(default_factory=list)
    """Allocations and matches."""
    init: list[ast.stmt] | None = None
    body: list[ast.stmt] = field(default_factory=list)


class _Function:
    """Translates one function to Python text."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node
        self.lines: list[str] = []
        self.depth = 1
        self.constants: dict[str, Any] = {}
        self.handles: set[str] = set()
        self.loops = 0

    def compiled(self, functions: dict[str, Function]) -> Function:
        params = self.parameters()
        self.extents()
        self.statements(self.node.body)
        text = f"def program({', '.join([*params, '*extents'])}):\n" + "\n".join(
            self.lines or ["    pass"]
        )
        scope: dict[str, Any] = {_PREFIX + name: item for name, item in FUNCTIONS.items()}
        scope.update(self.constants, np=np, cast=cast, allocate=allocate, functions=functions)
        scope.update(matched=matched, pointed=pointed)
        exec(compile(text, f"<oracle of {self.node.name}>", "exec"), scope)
        program: Function = scope["program"]

        def run(*args: Any) -> None:
            with np.errstate(all="ignore"):
                program(*args)

        run.text = text  # type: ignore[attr-defined]  # for those who look for a fault
        return run

    # ---- parameters -----------------------------------------------------------------------------

    def parameters(self) -> list[str]:
        names = []
        for arg in self.node.args.args:
            names.append(arg.arg)
            note = arg.annotation
            if isinstance(note, ast.Call) and _dialect(note) == "Buffer":
                self.parameter(arg.arg, arg.arg, note.args[0])
            elif isinstance(note, ast.Attribute) and note.attr in _DTYPES:
                self.line(f"{arg.arg} = cast({note.attr!r}, {arg.arg})")
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
            name, call, target = _dialect(stmt.value), stmt.value, stmt.targets[0]
            if name in _DTYPES and not call.args and isinstance(target, ast.Name):
                symbols.add(target.id)
            elif name == "match_buffer" and isinstance(call.args[0], ast.Name):
                for axis, extent in enumerate(_items(call.args[1])):
                    if isinstance(extent, ast.Name) and extent.id in symbols:
                        symbols.discard(extent.id)
                        shape = f"{call.args[0].id}.shape[{axis}]"
                        passed = f"extents[{count}] if extents else {shape}"
                        self.line(f"{extent.id} = np.int64({passed})")
                        count += 1

    def parameter(self, name: str, source: str, shape: ast.expr) -> None:
        """Give a parameter the shape that it has: callers may pass memory only."""
        sizes = "".join(f"{self.expr(extent)}, " for extent in _items(shape))
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
                value = f"cast({note.attr!r}, {value})"
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
        name = _dialect(value)
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
        name = _dialect(value)
        if isinstance(value, ast.Constant) or name in _IGNORED:
            return
        if not isinstance(value, ast.Call):
            raise NotCovered(ast.unparse(value))
        if name == "evaluate":
            self.evaluate(value.args[0])
        elif name == "atomic_add":
            place = self.expr(_address(value.args[0]))
            self.line(f"{place} += {self.expr(value.args[1])}")
        elif name == "call_extern":
            texts = [item for item in value.args if _string(item)]
            callee = _string(texts[-1]) if texts else ""
            args = value.args[value.args.index(texts[-1]) + 1 :] if texts else []
            passed = ", ".join(self.pointer(arg) for arg in args)
            self.line(f"functions[{callee!r}]({passed})")
        else:
            raise NotCovered(ast.unparse(value.func))

    def pointer(self, arg: ast.expr) -> str:
        if isinstance(arg, ast.Attribute) and arg.attr == "data":
            return self.expr(arg.value)
        if _dialect(arg) == "address_of":
            load = _address(arg)
            whole = self.expr(load.value)
            indices = "".join(f"{self.expr(item)}, " for item in _items(load.slice))
            return f"{whole}.reshape(-1)[np.ravel_multi_index(({indices}), {whole}.shape):]"
        return self.expr(arg)

    # ---- memory ---------------------------------------------------------------------------------

    def allocation(self, name: str, call: ast.Call) -> None:
        dtype = _string(_argument(call, 1, "dtype"), "float32")
        self.line(f"{name} = allocate({self.expr(call.args[0])}, {dtype!r})")

    def view(self, name: str, call: ast.Call) -> None:
        data = _argument(call, 2, "data")
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
        ranges = _ranges(stmt)
        self.one_loop(ranges, stmt.body)

    def one_loop(self, ranges: list[_Range], body: list[ast.stmt]) -> None:
        if not ranges:
            return self.statements(body)
        head, *rest = ranges
        low, high = self.expr(head.low), self.expr(head.high)
        if head.may_be_empty and _has_init(body):
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
            self.starts(_loops_of(rest, body), {head.name}, {head.name})
            self.depth -= 1
        return None

    def starts(self, body: Sequence[ast.stmt], root: set[str], missing: set[str]) -> None:
        """Write the inits of what reduces over ``root``, which has no values.

        ``missing`` are those variables and what depends on them, and the loops inside that only
        reduce; all of them have their first values.
        """
        self.line("pass")
        for stmt in body:
            if isinstance(stmt, ast.For):
                self.start_of_loop(stmt, root, missing)
            elif isinstance(stmt, ast.With) and _dialect(stmt.items[0].context_expr) == "block":
                self.start_of_block(_taken_apart(stmt), root, missing)
            elif isinstance(stmt, ast.If) and not _uses(stmt.test, missing):
                for head, part in ((f"if {self.expr(stmt.test)}:", stmt.body),
                                   ("else:", stmt.orelse)):  # fmt: skip
                    self.line(head)
                    self.depth += 1
                    self.starts(part, root, missing)
                    self.depth -= 1
            elif isinstance(stmt, ast.With) and not _uses(stmt.items[0].context_expr, missing):
                self.let(stmt.items[0])
                self.starts(stmt.body, root, missing)

    def start_of_loop(self, stmt: ast.For, root: set[str], missing: set[str]) -> None:
        head, *rest = _ranges(stmt)
        low, high = self.expr(head.low), self.expr(head.high)
        inner = _loops_of(rest, stmt.body)
        if _only_reduces(head.name, inner):
            self.line(f"{head.name} = np.int64({low})")
            return self.starts(inner, root, missing | {head.name})
        if _uses(head.low, missing) or _uses(head.high, missing):
            return None
        self.line(f"for {head.name} in np.arange({low}, {high}):")
        self.depth += 1
        self.starts(inner, root, missing)
        self.depth -= 1
        return None

    def start_of_block(self, block: _Block, root: set[str], missing: set[str]) -> None:
        gone = {name for name, _, _, value in block.axes if _uses(value, missing)}
        if any(kind != "reduce" and name in gone for name, kind, _, _ in block.axes):
            return
        reduced = {name for name, _, _, value in block.axes if _uses(value, root)}
        if block.init is not None and not reduced:
            return
        self.bind(block)
        tests = [self.expr(part) for part in block.predicates if not _uses(part, missing)]
        if block.init is not None:
            tests += self.first(block)
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
        if _dialect(item.context_expr) == "block":
            self.block(_taken_apart(stmt))
            return
        self.let(item)
        self.statements(stmt.body)

    def let(self, item: ast.withitem) -> None:
        call, name = item.context_expr, _dialect(item.context_expr)
        if name == "LetStmt" and isinstance(call, ast.Call) and item.optional_vars is not None:
            self.line(f"{ast.unparse(item.optional_vars)} = {self.expr(call.args[0])}")
        elif name != "attr":
            raise NotCovered(f"with {ast.unparse(call)}")

    def bind(self, block: _Block) -> None:
        for name, _, _, value in block.axes:
            self.line(f"{name} = np.int64({self.expr(value)})")

    def first(self, block: _Block) -> list[str]:
        """Say that a reduction is at its start."""
        return [
            f"{name} == {self.expr(low)}" for name, kind, low, _ in block.axes if kind == "reduce"
        ]

    def block(self, block: _Block) -> None:
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
        return ast.unparse(_Expressions(self.constants).visit(_copied(node)))


class _Expressions(ast.NodeTransformer):
    """Puts functions of NumPy scalars in place of the dialect's."""

    def __init__(self, constants: dict[str, Any]) -> None:
        self.constants = constants

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _dialect(node)
        args: list[ast.expr] = [self.visit(arg) for arg in node.args]
        if name in ("if_then_else", "Select"):
            return ast.IfExp(test=args[0], body=args[1], orelse=args[2])
        if name == "likely":
            return args[0]
        if name == "Div" and any(
            isinstance(arg, ast.Call) and _dialect(arg).startswith("float") for arg in node.args
        ):
            return ast.BinOp(left=args[0], op=ast.Div(), right=args[1])  # as of constants
        if name == "Cast":
            return self.cast(_string(node.args[0]), args[1])
        if name in _DTYPES:
            return self.cast(name, args[0])
        if name in _OPERATORS:
            left, right = (f"({ast.unparse(arg)})" for arg in args)
            return ast.parse(f"{left} {_OPERATORS[name]} {right}", mode="eval").body
        if name not in FUNCTIONS:
            raise NotCovered(ast.unparse(node.func))
        func = ast.Name(id=f"{_PREFIX}{name}", ctx=ast.Load())
        return ast.Call(func=func, args=args, keywords=[])

    def cast(self, dtype: str, value: ast.expr) -> ast.expr:
        """A constant is made once."""
        try:
            number = ast.literal_eval(value)
        except ValueError:
            return ast.Call(
                func=ast.Name(id="cast", ctx=ast.Load()),
                args=[ast.Constant(value=dtype), value],
                keywords=[],
            )
        name = f"constant_{len(self.constants)}"
        self.constants[name] = cast(dtype, number)
        return ast.Name(id=name, ctx=ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        raise NotCovered(ast.unparse(node))


@dataclass
class _Range:
    name: str
    low: ast.expr
    high: ast.expr

    @property
    def may_be_empty(self) -> bool:
        try:
            return int(ast.literal_eval(self.high)) <= int(ast.literal_eval(self.low))
        except ValueError:
            return True


def _ranges(stmt: ast.For) -> list[_Range]:
    call = stmt.iter
    kind = _dialect(call)
    zero = ast.Constant(value=0)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range":
        kind = "serial"
    if not isinstance(call, ast.Call) or kind not in _LOOPS:
        raise NotCovered(f"for … in {ast.unparse(call)}")
    names = [item.id for item in ast.walk(stmt.target) if isinstance(item, ast.Name)]
    if kind == "grid":
        return [_Range(name, zero, extent) for name, extent in zip(names, call.args)]
    if len(call.args) == 1:
        return [_Range(names[0], zero, call.args[0])]
    return [_Range(names[0], call.args[0], call.args[1])]


def _loops_of(ranges: list[_Range], body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a nest of loops."""
    for item in reversed(ranges):
        call = ast.parse("T.serial(0, 0)", mode="eval").body
        assert isinstance(call, ast.Call)
        call.args = [item.low, item.high]
        target = ast.Name(id=item.name, ctx=ast.Store())
        body = [ast.For(target=target, iter=call, body=body, orelse=[])]
    return body


def _taken_apart(stmt: ast.With) -> _Block:
    made = _Block()
    for item in stmt.body:
        value = getattr(item, "value", None)
        name = _dialect(value)
        if isinstance(item, ast.Assign) and isinstance(value, ast.Call) and _is_axis(value):
            made.axes += _axes(item, value)
        elif name == "where" and isinstance(value, ast.Call):
            made.predicates.append(value.args[0])
        elif isinstance(item, ast.With) and _dialect(item.items[0].context_expr) == "init":
            made.init = item.body
        elif isinstance(item, ast.Assign) and name in _MEMORY:
            made.before.append(item)
        elif name not in _IGNORED:
            made.body.append(item)
    return made


def _axes(stmt: ast.Assign, call: ast.Call) -> Iterator[tuple[str, str, ast.expr, ast.expr]]:
    assert isinstance(call.func, ast.Attribute)
    kinds = {"S": "spatial", "R": "reduce", "O": "opaque"}
    names = [item.id for item in ast.walk(stmt.targets[0]) if isinstance(item, ast.Name)]
    zero = ast.Constant(value=0)
    if call.func.attr == "remap":
        values = call.args[1]
        if not isinstance(values, ast.List):
            raise NotCovered(ast.unparse(call))
        for name, letter, value in zip(names, _string(call.args[0]), values.elts):
            yield name, kinds[letter], zero, value
        return
    domain, value = call.args
    low = domain.elts[0] if isinstance(domain, ast.Tuple) else zero
    yield names[0], kinds.get(call.func.attr, call.func.attr), low, value


def _is_axis(call: ast.Call) -> bool:
    return ast.unparse(call.func).startswith("T.axis.")


def _only_reduces(name: str, body: Sequence[ast.stmt]) -> bool:
    """Whether a loop's variable drives axes of reductions, and no others."""
    kinds = set()
    for stmt in body:
        for node in ast.walk(stmt):
            if isinstance(node, ast.With) and _dialect(node.items[0].context_expr) == "block":
                axes = _taken_apart(node).axes
                kinds |= {kind == "reduce" for _, kind, _, value in axes if _uses(value, {name})}
    return kinds == {True}


def _has_init(body: Sequence[ast.stmt]) -> bool:
    nodes = [node for stmt in body for node in ast.walk(stmt)]
    return any(
        isinstance(n, ast.With) and _dialect(n.items[0].context_expr) == "init" for n in nodes
    )


def _uses(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(item, ast.Name) and item.id in names for item in ast.walk(node))


def _dialect(node: Any) -> str:
    """Return the name in ``T.name(…)`` or ``T.name``; empty for anything else."""
    func = node.func if isinstance(node, ast.Call) else node
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        return func.attr if func.value.id == "T" else ""
    return ""


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]


def _string(node: ast.expr | None, default: str = "") -> str:
    return (
        str(node.value) if isinstance(node, ast.Constant) and type(node.value) is str else default
    )


def _argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    if place < len(call.args):
        return call.args[place]
    return next((item.value for item in call.keywords if item.arg == name), None)


def _address(node: ast.expr) -> ast.Subscript:
    if isinstance(node, ast.Call) and isinstance(node.args[0], ast.Subscript):
        return node.args[0]
    raise NotCovered(ast.unparse(node))


def _copied(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body


_MEMORY: dict[str, Callable[[_Function, str, ast.Call], None]] = {
    "alloc_buffer": _Function.allocation,
    "decl_buffer": _Function.view,
    "match_buffer": _Function.match,
}
