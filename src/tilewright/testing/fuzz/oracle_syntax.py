"""The dialect's text as Python's parser sees it: loops, blocks, axes, and who drives them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LOOPS = {"serial", "parallel", "vectorized", "unroll", "thread_binding", "grid"}
IGNORED = {"reads", "writes", "block_attr", "func_attr", "storage_sync"}
MEMORY = {"alloc_buffer", "decl_buffer", "match_buffer"}


class NotCovered(Exception):
    """The program uses what the oracle doesn't know."""


@dataclass
class AxisText:
    """An axis of a block: its values begin at ``low`` and end before ``high``, if that is said."""

    name: str
    kind: str
    low: ast.expr
    high: ast.expr | None
    value: ast.expr


@dataclass
class BlockText:
    """A block's text, taken apart."""

    axes: list[AxisText] = field(default_factory=list)
    predicates: list[ast.expr] = field(default_factory=list)
    before: list[ast.stmt] = field(default_factory=list)
    """Allocations and matches."""
    init: list[ast.stmt] | None = None
    body: list[ast.stmt] = field(default_factory=list)


@dataclass
class LoopRange:
    """One loop: its variable, from where and up to where."""

    name: str
    low: ast.expr
    high: ast.expr

    @property
    def may_be_empty(self) -> bool:
        """Whether the loop may have no iteration."""
        try:
            return int(ast.literal_eval(self.high)) <= int(ast.literal_eval(self.low))
        except ValueError:
            return True


def ranges_of(stmt: ast.For) -> list[LoopRange]:
    """Return the loops that one ``for`` stands for."""
    call = stmt.iter
    kind = dialect_name(call)
    zero = ast.Constant(value=0)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range":
        kind = "serial"
    if not isinstance(call, ast.Call) or kind not in LOOPS:
        raise NotCovered(f"for … in {ast.unparse(call)}")
    names = [item.id for item in ast.walk(stmt.target) if isinstance(item, ast.Name)]
    if kind == "grid":
        return [LoopRange(name, zero, extent) for name, extent in zip(names, call.args)]
    if len(call.args) == 1:
        return [LoopRange(names[0], zero, call.args[0])]
    return [LoopRange(names[0], call.args[0], call.args[1])]


def loops_of(ranges: list[LoopRange], body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a nest of loops."""
    for item in reversed(ranges):
        call = ast.parse("T.serial(0, 0)", mode="eval").body
        assert isinstance(call, ast.Call)
        call.args = [item.low, item.high]
        target = ast.Name(id=item.name, ctx=ast.Store())
        body = [ast.For(target=target, iter=call, body=body, orelse=[])]
    return body


def taken_apart(stmt: ast.With) -> BlockText:
    """Return the parts of a block."""
    made = BlockText()
    for item in stmt.body:
        value = getattr(item, "value", None)
        name = dialect_name(value)
        if isinstance(item, ast.Assign) and isinstance(value, ast.Call) and _is_axis(value):
            made.axes += _axes(item, value)
        elif name == "where" and isinstance(value, ast.Call):
            made.predicates += conjuncts(value.args[0])
        elif isinstance(item, ast.With) and dialect_name(item.items[0].context_expr) == "init":
            made.init = item.body
        elif isinstance(item, ast.Assign) and name in MEMORY:
            made.before.append(item)
        elif name not in IGNORED:
            made.body.append(item)
    return made


def conjuncts(test: ast.expr) -> list[ast.expr]:
    """Return what must hold for a test to hold."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for value in test.values for part in conjuncts(value)]
    return [test]


def _axes(stmt: ast.Assign, call: ast.Call) -> Iterator[AxisText]:
    assert isinstance(call.func, ast.Attribute)
    kinds = {"S": "spatial", "R": "reduce", "O": "opaque"}
    names = [item.id for item in ast.walk(stmt.targets[0]) if isinstance(item, ast.Name)]
    zero = ast.Constant(value=0)
    if call.func.attr == "remap":
        values = call.args[1]
        if not isinstance(values, ast.List):
            raise NotCovered(ast.unparse(call))
        for name, letter, value in zip(names, string_of(call.args[0]), values.elts):
            yield AxisText(name, kinds[letter], zero, None, value)
        return
    domain, value = call.args
    low, high = domain.elts if isinstance(domain, ast.Tuple) else (zero, domain)
    yield AxisText(names[0], kinds.get(call.func.attr, call.func.attr), low, high, value)


def _is_axis(call: ast.Call) -> bool:
    return ast.unparse(call.func).startswith("T.axis.")


def driven_axes(name: str, body: Sequence[ast.stmt]) -> dict[int, set[bool]]:
    """Say of each outermost block, by identity, whether the axes that a loop drives reduce."""
    found: dict[int, set[bool]] = {}
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.With) and dialect_name(node.items[0].context_expr) == "block":
            axes = taken_apart(node).axes
            found[id(node)] = {x.kind == "reduce" for x in axes if uses(x.value, {name})}
        else:
            stack += ast.iter_child_nodes(node)
    return found


def has_init(body: Sequence[ast.stmt]) -> bool:
    """Whether a block in a body starts a reduction."""
    nodes = [node for stmt in body for node in ast.walk(stmt)]
    return any(
        isinstance(n, ast.With) and dialect_name(n.items[0].context_expr) == "init" for n in nodes
    )


def uses(node: ast.AST, names: set[str]) -> bool:
    """Whether one of some names is in an expression."""
    return any(isinstance(item, ast.Name) and item.id in names for item in ast.walk(node))


def dialect_name(node: object) -> str:
    """Return the name in ``T.name(…)`` or ``T.name``; empty for anything else."""
    func = node.func if isinstance(node, ast.Call) else node
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        return func.attr if func.value.id == "T" else ""
    return ""


def items_of(node: ast.expr) -> list[ast.expr]:
    """Return the elements of a tuple or list, or what stands alone."""
    return node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]


def string_of(node: ast.expr | None, default: str = "") -> str:
    """Return a string literal's value."""
    return (
        str(node.value) if isinstance(node, ast.Constant) and type(node.value) is str else default
    )


def argument_of(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """Return an argument of a call, given by place or by name."""
    if place < len(call.args):
        return call.args[place]
    return next((item.value for item in call.keywords if item.arg == name), None)


def address_of(node: ast.expr) -> ast.Subscript:
    """Return the element in ``T.address_of(element)``."""
    if isinstance(node, ast.Call) and isinstance(node.args[0], ast.Subscript):
        return node.args[0]
    raise NotCovered(ast.unparse(node))


def copied(node: ast.expr) -> ast.expr:
    """Return an expression that may be changed."""
    return ast.parse(ast.unparse(node), mode="eval").body
