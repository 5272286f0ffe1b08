"""Prints TensorIR: expressions, statements, blocks and functions, as the dialect ``T``.

What is printed parses back to the same tree. Where the usual spelling would not (``1 + 2`` folds),
the node is spelled out: ``T.Add(1, 2)``.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import (
    EQ,
    GE,
    GT,
    INDEX,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Op,
    Or,
    Ramp,
    Range,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
    dtypes,
    expr_equal,
    free_vars,
    uses_var,
)
from tilewright.script.printer import (
    AND,
    ATOM,
    COMPARE,
    NOT,
    OR,
    PRODUCT,
    SUM,
    Printer,
    quote,
    register,
    register_lines,
)
from tilewright.target import Target
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from tilewright.tir.function import PrimFunc
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

# ---- symbols ----------------------------------------------------------------------------------


def _var(p: Printer, node: Var, precedence: int) -> str:
    name = p.names.get(node)
    if name is None:
        return _declare_var(p, node)
    return p.name(node) if p.marks else name


register(Var)(_var)


def _declare_var(p: Printer, node: Var) -> str:
    """Declare a variable that nothing in the text defines, in front of everything."""
    p.use("tir")
    name = p.names[node] = p.fresh(node.name)
    p.prelude.append(f"{name} = T.{node.dtype}()")
    return p.name(node)


def _buffer(p: Printer, node: Buffer, precedence: int = 0) -> str:
    name = p.names.get(node)
    if name is None:
        return _declare_buffer(p, node)
    return p.name(node) if p.marks else name


register(Buffer)(_buffer)


def _declare_buffer(p: Printer, node: Buffer) -> str:
    p.use("tir")
    arguments = buffer_arguments(p, node)
    name = p.names[node] = p.fresh(node.name)
    p.names.setdefault(node.data, name + ".data")
    p.late_prelude.append(f"{name} = T.Buffer({arguments})")
    return p.name(node)


def define_buffer(p: Printer, buffer: Buffer) -> str:
    """Name a buffer; its pointer is spelled ``name.data`` if nothing else has named it."""
    name = p.define(buffer)
    if buffer.data not in p.names:
        p.alias(buffer.data, p.names[buffer] + ".data")
    return name


def buffer_arguments(p: Printer, buffer: Buffer) -> str:
    """Return shape, dtype and whatever else is not the default."""
    parts = [p.tuple([p.expr(extent) for extent in buffer.shape]), f'"{buffer.dtype}"']
    if buffer.data in p.names:
        parts.append(f"data={p.names[buffer.data]}")
    if buffer.strides:
        parts.append(f"strides={p.tuple([p.expr(stride) for stride in buffer.strides])}")
    if buffer.elem_offset is not None:
        parts.append(f"elem_offset={p.expr(buffer.elem_offset)}")
    if buffer.scope != "global":
        parts.append(f"scope={p.value(buffer.scope)}")
    if buffer.alignment != 64:
        parts.append(f"align={buffer.alignment}")
    if buffer.axis_separators:
        parts.append(f"axis_separators={p.value(tuple(buffer.axis_separators))}")
    return ", ".join(parts)


# ---- expressions ------------------------------------------------------------------------------


@register(IntImm)
def _int(p: Printer, node: IntImm, precedence: int) -> str:
    if node.dtype == INDEX and precedence <= ATOM:
        return str(node.value)
    p.use("tir")
    value = bool(node.value) if node.dtype == "bool" else node.value
    return f"T.{node.dtype}({value})"


@register(FloatImm)
def _float(p: Printer, node: FloatImm, precedence: int) -> str:
    value = float(node.value)
    p.use("tir")
    if value != value or value in (float("inf"), float("-inf")):
        return f'T.{node.dtype}("{value}")'
    return f"T.{node.dtype}({value!r})"


@register(StringImm)
def _string(p: Printer, node: StringImm, precedence: int) -> str:
    p.use("tir")
    return f"T.StringImm({quote(node.value)})"


_CONSTANTS = (IntImm, FloatImm)


def _spelled_out(p: Printer, node: Any) -> str:
    p.use("tir")
    return f"T.{type(node).__name__}({p.expr(node.a)}, {p.expr(node.b)})"


_INFIX: dict[type, tuple[str, int, str]] = {}
"""Symbol, precedence and kind of operands of the operators that stand between their operands."""


def _is_usual(node: Any, operands: str) -> bool:
    """Whether ``a op b`` parses to this very node."""
    a, b = node.a, node.b
    if a.dtype != b.dtype or (isinstance(a, _CONSTANTS) and isinstance(b, _CONSTANTS)):
        return False
    if not operands:
        return True
    element = dtypes.element_of(a.dtype)
    if operands == "bool":
        return element == "bool"
    if operands == "float":
        return dtypes.is_float(element)
    return dtypes.is_integer(element) and not (type(b) is IntImm and b.value == 0)


def _infix(p: Printer, node: Any, precedence: int) -> str:
    symbol, own, operands = _INFIX[type(node)]
    if not _is_usual(node, operands):
        return _spelled_out(p, node)
    # Chains such as a + b + c are as deep as they are long: go down them without recursion.
    left = own + 1 if own == COMPARE else own
    chain = [(symbol, node.b)]
    node = node.a
    while not p.marks:
        found = _INFIX.get(type(node))
        if found is None or found[1] != left or not _is_usual(node, found[2]):
            break
        chain.append((found[0], node.b))
        node = node.a
    text = p.expr(node, left)
    for symbol, right in reversed(chain):
        text = f"{text} {symbol} {p.expr(right, own + 1)}"
    return f"({text})" if precedence > own else text


for _cls, _symbol, _precedence, _operands in (
    (Add, "+", SUM, ""),
    (Sub, "-", SUM, ""),
    (Mul, "*", PRODUCT, ""),
    (Div, "/", PRODUCT, "float"),
    (FloorDiv, "//", PRODUCT, "integer"),
    (FloorMod, "%", PRODUCT, "integer"),
    (EQ, "==", COMPARE, ""),
    (NE, "!=", COMPARE, ""),
    (LT, "<", COMPARE, ""),
    (LE, "<=", COMPARE, ""),
    (GT, ">", COMPARE, ""),
    (GE, ">=", COMPARE, ""),
    (And, "and", AND, "bool"),
    (Or, "or", OR, "bool"),
):
    _INFIX[_cls] = (_symbol, _precedence, _operands)
register(*_INFIX)(_infix)


@register(Min, Max)
def _extremum(p: Printer, node: Any, precedence: int) -> str:
    a, b = node.a, node.b
    if a.dtype != b.dtype or (isinstance(a, _CONSTANTS) and isinstance(b, _CONSTANTS)):
        return _spelled_out(p, node)
    p.use("tir")
    return f"T.{'min' if type(node) is Min else 'max'}({p.expr(a)}, {p.expr(b)})"


@register(Not)
def _not(p: Printer, node: Not, precedence: int) -> str:
    if dtypes.element_of(node.a.dtype) != "bool":
        return f"T.Not({p.expr(node.a)})"
    text = f"not {p.expr(node.a, NOT)}"
    return f"({text})" if precedence > NOT else text


@register(Select)
def _select(p: Printer, node: Select, precedence: int) -> str:
    p.use("tir")
    same = node.true_value.dtype == node.false_value.dtype
    # A bare number would take the other side's dtype.
    level = 0 if same else ATOM + 1
    true, false = p.expr(node.true_value, level), p.expr(node.false_value, level)
    return f"T.Select({p.expr(node.condition)}, {true}, {false})"


@register(Cast)
def _cast(p: Printer, node: Cast, precedence: int) -> str:
    p.use("tir")
    return f'T.Cast("{node.dtype}", {p.expr(node.value)})'


@register(Ramp)
def _ramp(p: Printer, node: Ramp, precedence: int) -> str:
    p.use("tir")
    return f"T.Ramp({p.expr(node.base)}, {p.expr(node.stride)}, {node.lanes})"


@register(Broadcast)
def _broadcast(p: Printer, node: Broadcast, precedence: int) -> str:
    p.use("tir")
    return f"T.Broadcast({p.expr(node.value)}, {node.lanes})"


@register(Shuffle)
def _shuffle(p: Printer, node: Shuffle, precedence: int) -> str:
    p.use("tir")
    vectors = ", ".join([p.expr(vector) for vector in node.vectors])
    return f"T.Shuffle([{vectors}], {list(node.indices)})"


@register(Op)
def _op(p: Printer, node: Op, precedence: int) -> str:
    p.use("tir")
    return f'T.Op("{node.name}")'


@register(Call)
def _call(p: Printer, node: Call, precedence: int) -> str:
    p.use("tir")
    op, args = node.op, node.args
    texts = [quote(arg.value) if type(arg) is StringImm else p.expr(arg) for arg in args]
    usual = op.arity is None or op.arity == len(args)
    derived: str | None = None
    if usual and op.result != "given" and args:
        derived = args[-1].dtype if op.result == "last" else args[0].dtype
        if op.result == "bool":
            derived = dtypes.vector_dtype("bool", dtypes.lanes_of(derived))
        elif op.name == "if_then_else":
            usual = args[1].dtype == args[2].dtype
        elif op.arity == 2:
            usual = args[0].dtype == args[1].dtype
    if op.name in ("min_value", "max_value", "infinity"):
        usual = False  # these names make constants in script
    if not usual:
        texts.insert(0, f'"{op.name}"')
    if not usual or derived != node.dtype:
        texts.append(f'dtype="{node.dtype}"')
    return f"T.{op.name if usual else 'Call'}({', '.join(texts)})"


@register(Let)
def _let(p: Printer, node: Let, precedence: int) -> str:
    p.use("tir")
    value = p.expr(node.value)
    name = p.define(node.var)
    p.line(f"{name} = T.{node.var.dtype}()")
    return f"T.Let({p.expr(node.body)}, where={{{name}: {value}}})"


def _indices(p: Printer, indices: tuple[Expr, ...]) -> str:
    if not indices:
        return "()"
    return ", ".join([_index(p, index) for index in indices])


def _index(p: Printer, index: Expr) -> str:
    if type(index) is Ramp and index.base.dtype == INDEX:
        stride, base = index.stride, index.base
        if type(stride) is IntImm and stride.value == 1 and stride.dtype == INDEX:
            if type(base) is IntImm:
                return f"{base.value}:{base.value + index.lanes}"
            text = p.expr(base, SUM)
            # A long base would stand there twice; one that defines variables may not.
            if len(text) <= 40 and "T." not in text:
                return f"{text}:{text} + {index.lanes}"
    return p.expr(index)


@register(BufferLoad)
def _load(p: Printer, node: BufferLoad, precedence: int) -> str:
    return f"{_buffer(p, node.buffer)}[{_indices(p, node.indices)}]"


def bounds(p: Printer, minimum: Expr, extent: Expr) -> tuple[str, str]:
    """Return start and stop such that the parser finds ``extent`` again."""
    same = minimum.dtype == extent.dtype
    if type(minimum) is IntImm and same:
        if minimum.value == 0:
            return "0", p.expr(extent)
        if type(extent) is IntImm:
            if extent.dtype == INDEX:
                return str(minimum.value), str(minimum.value + extent.value)
            return p.expr(minimum), f"T.{extent.dtype}({minimum.value + extent.value})"
    if not same:
        return p.expr(minimum, ATOM + 1 if type(minimum) is IntImm else 0), _spelled_out(
            p, Add(minimum, extent)
        )
    return p.expr(minimum), p.expr(Add(minimum, extent))


def _is_index_const(expr: Expr, value: int) -> bool:
    return type(expr) is IntImm and expr.value == value and expr.dtype == INDEX


def region_text(p: Printer, node: BufferRegion) -> str:
    """Return ``A[i, j:j + 4]``; extents of one print as points."""
    if not node.region:
        return f"{_buffer(p, node.buffer)}[()]"
    parts = []
    for item in node.region:
        if _is_index_const(item.extent, 1):
            parts.append(p.expr(item.min))
        else:
            start, stop = bounds(p, item.min, item.extent)
            parts.append(f"{start}:{stop}")
    return f"{_buffer(p, node.buffer)}[{', '.join(parts)}]"


@register(BufferRegion)
def _region(p: Printer, node: BufferRegion, precedence: int) -> str:
    p.use("tir")
    return f"T.region({region_text(p, node)})"


@register(Range)
def _range(p: Printer, node: Range, precedence: int) -> str:
    p.use("tir")
    start, stop = bounds(p, node.min, node.extent)
    return f"T.Range({start}, {stop})"


@register(Target)
def _target(p: Printer, node: Target, precedence: int) -> str:
    p.use("tir")
    return f"T.target({quote(str(node))})"


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
        if concise is None:
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
    p.line(f"{_buffer(p, node.buffer)}[{_indices(p, node.indices)}] = {value}")


@register_lines(Evaluate)
def _evaluate(p: Printer, node: Evaluate) -> None:
    p.use("tir")
    p.line(f"T.evaluate({p.expr(node.value)})")


@register_lines(AssertStmt)
def _assert(p: Printer, node: AssertStmt) -> None:
    p.line(f"assert {p.expr(node.condition)}, {quote(node.message)}")


@register_lines(While)
def _while(p: Printer, node: While) -> None:
    p.line(f"while {p.expr(node.condition)}:")
    with p.indented():
        write_suite(p, node.body)


@register_lines(IfThenElse)
def _if(p: Printer, node: IfThenElse) -> None:
    keyword = "if"
    while True:
        token = p.enter()
        with p.captured() as before:
            condition = p.expr(node.condition)
        if before and keyword == "elif":
            p.leave(token)
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


def _is_plain(loop: For) -> bool:
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
    if _is_plain(node):
        inner = node.body
        loop_vars = {node.loop_var}
        while type(inner) is For and _is_plain(inner) and inner not in p.marks:
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
    with p.indented():
        write_suite(p, chain[-1].body)
    for loop in chain:
        del p.context[loop.loop_var]
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
    plain = node.kind == SERIAL and len(parts) <= 2 and "=" not in parts[-1]
    kind = "range" if plain else LOOP_NAMES[node.kind]
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
    with p.indented():
        _write_axes(p, block, realize)
        if realize is not None and not _is_true(realize.predicate):
            p.line(f"T.where({p.expr(realize.predicate)})")
        for function, regions in (("T.reads", block.reads), ("T.writes", block.writes)):
            p.line(f"{function}({', '.join([region_text(p, region) for region in regions])})")
        if block.annotations:
            p.line(f"T.block_attr({p.value(dict(block.annotations))})")
        _write_allocations(p, block)
        for match in block.match_buffers:
            _write_match(p, match)
        if block.init is not None:
            p.line("with T.init():")
            with p.indented():
                write_suite(p, block.init)
        write_suite(p, block.body)


def _is_true(expr: Expr) -> bool:
    return type(expr) is IntImm and expr.dtype == "bool" and expr.value == 1


def _write_allocations(p: Printer, block: Block) -> None:
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
        and item.var.dtype == value.dtype
        and expr_equal(item.dom.min, loop.min)
        and expr_equal(item.dom.extent, loop.extent)
        and item not in p.marks
    )


def _write_axes(p: Printer, block: Block, realize: BlockRealize | None) -> None:
    axes = block.iter_vars
    values = realize.iter_values if realize is not None else (None,) * len(axes)
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


# ---- functions --------------------------------------------------------------------------------


def _is_static(p: Printer, buffer: Buffer) -> bool:
    parts = [*buffer.shape, *buffer.strides]
    if buffer.elem_offset is not None:
        parts.append(buffer.elem_offset)
    return buffer.data not in p.names and all(
        type(part) is IntImm or not free_vars(part) for part in parts
    )


@register_lines(PrimFunc)
def _function(p: Printer, node: PrimFunc) -> None:
    p.use("tir")
    if not _write_function(p, node, explicit_handles=False, explicit_root=False):
        return
    for handles, root in ((False, True), (True, False), (True, True)):
        if not _write_function(p, node, explicit_handles=handles, explicit_root=root):
            return


def _write_function(
    p: Printer, node: PrimFunc, *, explicit_handles: bool, explicit_root: bool
) -> bool:
    """Write the function; return whether another form is needed, and write nothing then.

    A handle parameter that the body uses needs a name of its own, and a root block without blocks
    or allocations inside must be spelled out. Both are rare and only seen while printing.
    """
    saved = p.save()
    params: list[str] = []
    matches: list[str] = []
    inline: list[Var] = []
    later: list[tuple[str, Buffer]] = []
    p.context["blocks"] = False
    for var in node.params:
        buffer = node.buffer_map.get(var)
        if buffer is None:
            params.append(f"{p.define(var)}: T.{var.dtype}")
        elif not explicit_handles and _is_static(p, buffer):
            arguments = buffer_arguments(p, buffer)
            params.append(f"{define_buffer(p, buffer)}: T.Buffer({arguments})")
            inline.append(var)
        else:
            base = var.name if var.name != buffer.name else f"{var.name}_handle"
            handle = p.define(var, base)
            params.append(f"{handle}: T.handle")
            later.append((handle, buffer))
    for handle, buffer in later:
        arguments = buffer_arguments(p, buffer)
        matches.append(f"{define_buffer(p, buffer)} = T.match_buffer({handle}, {arguments})")
    pad = p.pad
    with p.captured() as lines, p.indented():
        if node.attrs:
            p.line(f"T.func_attr({p.value(dict(node.attrs))})")
        body_start = len(p.lines)
        has_root = _write_body(p, node, explicit_root)
        blocks = p.context["blocks"]
    redo = any(var in p.names for var in inline)
    if has_root and not blocks and not explicit_root:
        redo = redo or not node.root.alloc_buffers
    if redo:
        p.restore(saved)
        return True
    options = []
    if not (has_root or explicit_root) and blocks:
        options.append("root=False")
    name = p.option_name or "main"
    safe = name if name.isidentifier() else Printer().fresh(name)
    if safe != name:
        options.append(f"name={quote(name)}")
    p.line(f"@T.prim_func({', '.join(options)})" if options else "@T.prim_func")
    returns = "" if node.ret_dtype == "void" else f" -> T.{node.ret_dtype}"
    p.signature(f"def {safe}", params, f"{returns}:")
    inner = pad + "    "
    p.lines.extend(lines[:body_start])
    p.lines.extend(inner + text for text in (*p.prelude, *matches, *p.late_prelude))
    p.lines.extend(lines[body_start:])
    return False


def _write_body(p: Printer, node: PrimFunc, explicit_root: bool) -> bool:
    """Write the body; return whether it is an implicit root block."""
    body = node.body
    if explicit_root or not _is_plain_root(p, body):
        write_suite(p, body)
        # An explicit root is recognised by the parser; anything else with blocks is marked.
        return (
            isinstance(body, BlockRealize) and not body.iter_values and (body.block.name == "root")
        )
    assert isinstance(body, BlockRealize)
    _write_allocations(p, body.block)
    write_suite(p, body.block.body)
    return True


def _is_plain_root(p: Printer, body: Stmt) -> bool:
    if type(body) is not BlockRealize or body.iter_values or not _is_true(body.predicate):
        return False
    block = body.block
    return (
        block.name == "root"
        and not (block.iter_vars or block.reads or block.writes or block.match_buffers)
        and block.init is None
        and not block.annotations
        and body not in p.marks
        and block not in p.marks
    )


__all__ = ["bounds", "buffer_arguments", "decl_buffer", "define_buffer", "write_suite"]
