"""Prints statements and blocks of the dialect ``T``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tilewright.ir import (
    INDEX,
    Call,
    Expr,
    IntImm,
    Node,
    Var,
    expr_equal,
    pre_order,
    uses_var,
)
from tilewright.script.printer import (
    ATOM,
    Printer,
    quote,
    register_lines,
)
from tilewright.tir.loop_exits import exit_of
from tilewright.tir.script.print_expr import (
    bounds,
    buffer_arguments,
    buffer_name,
    define_buffer,
    region_text,
    write_indices,
)
from tilewright.tir.stmt import (
    SERIAL,
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
)

LOOP_NAMES = {
    "serial": "T.serial",
    "parallel": "T.parallel",
    "vectorized": "T.vectorized",
    "unrolled": "T.unroll",
    "thread_binding": "T.thread_binding",
}
_AXIS_LETTERS = {"spatial": "S", "reduce": "R", "opaque": "O"}

# ---- statements -------------------------------------------------------------------------------


def write_suite(p: Printer, stmt: Stmt) -> None:
    """Write a statement as the rest of a suite, where lets and allocations need no indentation."""
    while True:
        kind = type(stmt)
        if kind is SeqStmt and len(stmt.stmts) > 1:  # type: ignore[attr-defined]
            *first, last = stmt.stmts  # type: ignore[attr-defined]
            for item in first:
                p.stmt(item)
            if type(last) is SeqStmt:
                p.stmt(last)
                return
            stmt = last
            continue
        concise = _CONCISE.get(kind)
        if concise is None or (kind is LetStmt and stmt.var.dtype != stmt.value.dtype):  # type: ignore[attr-defined]
            p.stmt(stmt)
            return
        start = len(p.lines)
        p.line(concise(p, stmt, False))
        if p.marks:
            p.mark(stmt, start)
        stmt = stmt.body  # type: ignore[attr-defined]


def _let_header(p: Printer, node: LetStmt, nested: bool) -> str:
    value = p.expr(node.value)
    same = node.var.dtype == node.value.dtype
    if nested:
        dtype = "" if same else f', dtype="{node.var.dtype}"'
        if type(node.value) is IntImm:
            value = p.expr(node.value, ATOM + 1)
        return f"with T.LetStmt({value}{dtype}) as {p.define(node.var)}:"
    return f"{p.define(node.var)}: T.{node.var.dtype} = {value}"


def _attr_header(p: Printer, node: AttrStmt, nested: bool) -> str:
    subject = p.value(node.node)
    value = p.expr(node.value)
    text = f"T.attr({subject}, {quote(node.key)}, {value})"
    return f"with {text}:" if nested else text


def _allocate_header(p: Printer, node: Allocate, nested: bool) -> str:
    arguments = buffer_arguments(p, node.buffer)
    if node.annotations:
        arguments += f", annotations={p.value(dict(node.annotations))}"
    name = define_buffer(p, node.buffer)
    text = f"T.allocate({arguments})"
    return f"with {text} as {name}:" if nested else f"{name} = {text}"


def _declare_header(p: Printer, node: DeclBuffer, nested: bool) -> str:
    if node.buffer.data not in p.names:
        p.expr(node.buffer.data)  # without a pointer the text would ask for memory
    arguments = buffer_arguments(p, node.buffer)
    name = define_buffer(p, node.buffer)
    text = f"T.decl_buffer({arguments})"
    return f"with {text} as {name}:" if nested else f"{name} = {text}"


_CONCISE: dict[type, Any] = {
    LetStmt: _let_header,
    AttrStmt: _attr_header,
    Allocate: _allocate_header,
    DeclBuffer: _declare_header,
}


@register_lines(LetStmt, AttrStmt, Allocate, DeclBuffer)
def _nested(p: Printer, node: Any) -> None:
    p.use("tir")
    token = p.enter()
    p.line(_CONCISE[type(node)](p, node, True))
    with p.indented():
        write_suite(p, node.body)
    p.leave(token)


@register_lines(SeqStmt)
def _seq(p: Printer, node: SeqStmt) -> None:
    p.use("tir")
    p.line("with T.seq():")
    with p.indented():
        for item in node.stmts:
            p.stmt(item)
        if not node.stmts:
            p.line("pass")


@register_lines(BufferStore)
def _store(p: Printer, node: BufferStore) -> None:
    value = p.expr(node.value)
    p.line(f"{buffer_name(p, node.buffer)}[{write_indices(p, node.indices)}] = {value}")


@register_lines(Evaluate)
def _evaluate(p: Printer, node: Evaluate) -> None:
    p.use("tir")
    text = _jump(p, node)
    p.line(text or f"T.evaluate({p.expr(node.value)})")


def _jump(p: Printer, node: Evaluate) -> str | None:
    """Return the text of a ``break``, ``continue`` or ``return``, where it has one."""
    leaves, value = exit_of(node), node.value
    if leaves is not None and p.context.get("loops"):
        return leaves.removesuffix("_loop")
    if type(value) is not Call or value.op.name != "ret" or value.dtype != "void":
        return None
    result, kind = value.args[0], p.context.get("result")
    if kind == "void" and type(result) is IntImm and result.dtype == INDEX and not result.value:
        return "return"
    return f"return {p.expr(result)}" if result.dtype == kind else None


@contextmanager
def _open_loops(p: Printer, count: int) -> Iterator[None]:
    """Write the body of a loop (1), or of a block, whose own loops are counted anew (0)."""
    before = p.context.get("loops", 0)
    p.context["loops"] = before + 1 if count else 0
    yield
    p.context["loops"] = before


@register_lines(AssertStmt)
def _assert(p: Printer, node: AssertStmt) -> None:
    condition, message = p.expr(node.condition), quote(node.message)
    if node.values:
        message = p.tuple([message, *map(p.expr, node.values)])
    if node.kind != "RuntimeError":
        message = f"({quote(node.kind)}, [{message}])"
    p.line(f"assert {condition}, {message}")


@register_lines(While)
def _while(p: Printer, node: While) -> None:
    p.line(f"while {p.expr(node.condition)}:")
    with p.indented(), _open_loops(p, 1):
        write_suite(p, node.body)


@register_lines(IfThenElse)
def _if(p: Printer, node: IfThenElse) -> None:
    keyword = "if"
    while True:
        token = p.enter()
        with p.captured() as before:
            condition = p.expr(node.condition)
        if before and keyword == "elif":
            p.leave(token, suite=True)
            # The condition declares variables, which needs lines of its own.
            p.line("else:")
            with p.indented():
                _if(p, node)
            return
        p.lines.extend(before)
        p.line(f"{keyword} {condition}:")
        if keyword == "elif" and p.marks:
            p.mark(node, len(p.lines) - 1)
        with p.indented():
            write_suite(p, node.then_case)
        other = node.else_case
        if other is None:
            return
        if type(other) is IfThenElse:
            node, keyword = other, "elif"
            continue
        p.line("else:")
        with p.indented():
            write_suite(p, other)
        return


def _fits_grid(loop: For) -> bool:
    return (
        loop.kind == SERIAL
        and loop.thread is None
        and not loop.annotations
        and type(loop.min) is IntImm
        and loop.min.value == 0
        and loop.min.dtype == loop.extent.dtype == loop.loop_var.dtype
    )


@register_lines(For)
def _for(p: Printer, node: For) -> None:
    p.use("tir")
    token = p.enter()
    chain = [node]
    if _fits_grid(node):
        inner = node.body
        loop_vars = {node.loop_var}
        while type(inner) is For and _fits_grid(inner) and inner not in p.marks:
            if type(inner.extent) is not IntImm and uses_var(inner.extent, loop_vars):
                break
            chain.append(inner)
            loop_vars.add(inner.loop_var)
            inner = inner.body
    if len(chain) > 1:
        extents = ", ".join([p.expr(loop.extent) for loop in chain])
        names = ", ".join([p.define(loop.loop_var) for loop in chain])
        p.line(f"for {names} in T.grid({extents}):")
    else:
        p.line(_loop_header(p, node))
    for loop in chain:
        p.context[loop.loop_var] = loop
    with p.indented(), _open_loops(p, 1):
        write_suite(p, chain[-1].body)
    for loop in chain:
        p.context.pop(loop.loop_var, None)
    p.leave(token)


def _loop_header(p: Printer, node: For) -> str:
    start, stop = bounds(p, node.min, node.extent)
    parts = [stop] if start == "0" else [start, stop]
    if node.thread is not None:
        parts.append(f"thread={quote(node.thread)}")
    if node.annotations:
        parts.append(f"annotations={p.value(dict(node.annotations))}")
    if node.loop_var.dtype != node.extent.dtype:
        parts.append(f'dtype="{node.loop_var.dtype}"')
    as_range = node.kind == SERIAL and len(parts) <= 2 and "=" not in parts[-1]
    kind = "range" if as_range else LOOP_NAMES.get(node.kind, f"T.{node.kind}")
    return f"for {p.define(node.loop_var)} in {kind}({', '.join(parts)}):"


# ---- blocks -----------------------------------------------------------------------------------


@register_lines(BlockRealize)
def _realize(p: Printer, node: BlockRealize) -> None:
    p.context["blocks"] = True
    _write_block(p, node.block, node)


@register_lines(Block)
def _block(p: Printer, node: Block) -> None:
    p.context["blocks"] = True
    _write_block(p, node, None)


def _write_block(p: Printer, block: Block, realize: BlockRealize | None) -> None:
    p.use("tir")
    start = len(p.lines)
    option = "" if realize is not None else ", no_realize=True"
    p.line(f"with T.block({quote(block.name)}{option}):")
    if p.marks and realize is not None:
        p.mark(block, start)
    with p.indented(), _open_loops(p, 0):
        _write_axes(p, block, realize)
        if realize is not None and not is_true(realize.predicate):
            p.line(f"T.where({p.expr(realize.predicate)})")
        # Buffers of the block stand below what is said about it, unless that names them.
        early = _mentions((block.reads, block.writes, block.annotations), _own_symbols(block))
        if early:
            _write_own_buffers(p, block)
        for function, regions in (("T.reads", block.reads), ("T.writes", block.writes)):
            p.line(f"{function}({', '.join([region_text(p, region) for region in regions])})")
        if block.annotations:
            p.line(f"T.block_attr({p.value(dict(block.annotations))})")
        if not early:
            _write_own_buffers(p, block)
        if block.init is not None:
            p.line("with T.init():")
            with p.indented():
                write_suite(p, block.init)
        write_suite(p, block.body)


def _write_own_buffers(p: Printer, block: Block) -> None:
    write_allocations(p, block)
    for match in block.match_buffers:
        _write_match(p, match)


def _own_symbols(block: Block) -> set[Any]:
    own = [*block.alloc_buffers, *(match.buffer for match in block.match_buffers)]
    return {*own, *(buffer.data for buffer in own)}


def _mentions(value: object, own: set[object]) -> bool:
    """Whether regions or Python values name one of the buffers or pointers."""
    if not own:
        return False
    if isinstance(value, Node):
        return any(node in own for node in pre_order(value))
    if isinstance(value, Mapping):
        return any(_mentions(item, own) for item in value.values())
    return isinstance(value, (tuple, list)) and any(_mentions(item, own) for item in value)


def is_true(expr: Expr) -> bool:
    """Whether an expression is the constant true."""
    return type(expr) is IntImm and expr.dtype == "bool" and expr.value == 1


def write_allocations(p: Printer, block: Block) -> None:
    """Write the buffers that a block allocates."""
    for buffer in block.alloc_buffers:
        arguments = buffer_arguments(p, buffer)
        p.line(f"{define_buffer(p, buffer)} = T.alloc_buffer({arguments})")


@register_lines(MatchBufferRegion)
def _write_match(p: Printer, match: MatchBufferRegion) -> None:
    p.use("tir")
    start = len(p.lines)
    source = region_text(p, match.source)
    arguments = buffer_arguments(p, match.buffer)
    p.line(f"{define_buffer(p, match.buffer)} = T.match_buffer({source}, {arguments})")
    if p.marks:
        p.mark(match, start)


def _remaps(p: Printer, item: IterVar, value: Expr | None) -> bool:
    """Whether an axis runs over exactly the range of the loop that it is bound to."""
    loop = p.context.get(value)
    return (
        type(value) is Var
        and loop is not None
        and item.kind in _AXIS_LETTERS
        and item.var.dtype == value.dtype
        and expr_equal(item.dom.min, loop.min)
        and expr_equal(item.dom.extent, loop.extent)
        and item not in p.marks
    )


def _write_axes(p: Printer, block: Block, realize: BlockRealize | None) -> None:
    axes = block.iter_vars
    values: list[Expr | None] = list(realize.iter_values) if realize is not None else []
    # A program that is not well formed is printed too: somebody wants to see what is wrong.
    values += [None] * (len(axes) - len(values))
    index = 0
    while index < len(axes):
        stop = index
        if realize is not None:
            while stop < len(axes) and _remaps(p, axes[stop], values[stop]):
                stop += 1
        if stop - index > 1:
            letters = "".join(_AXIS_LETTERS[item.kind] for item in axes[index:stop])
            texts = ", ".join([p.expr(value) for value in values[index:stop]])
            names = ", ".join([p.define(item.var) for item in axes[index:stop]])
            p.line(f'{names} = T.axis.remap("{letters}", [{texts}])')
            index = stop
            continue
        _write_axis(p, axes[index], values[index])
        index += 1


def _write_axis(p: Printer, item: IterVar, value: Expr | None) -> None:
    start_line = len(p.lines)
    start, stop = bounds(p, item.dom.min, item.dom.extent)
    parts = [stop if start == "0" else f"({start}, {stop})"]
    if value is not None:
        parts.append(p.expr(value))
    if item.var.dtype != item.dom.extent.dtype:
        parts.append(f'dtype="{item.var.dtype}"')
    p.line(f"{p.define(item.var)} = T.axis.{item.kind}({', '.join(parts)})")
    if p.marks:
        p.mark(item, start_line)


@register_lines(IterVar)
def _iter_var(p: Printer, node: IterVar) -> None:
    p.use("tir")
    _write_axis(p, node, None)
