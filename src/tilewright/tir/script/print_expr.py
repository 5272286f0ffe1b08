"""Prints expressions, buffers and regions of the dialect ``T``.

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
    STATED_RESULTS,
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
    ScalableLanes,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
    dtypes,
    wrong_operand,
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
)
from tilewright.target import Target
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion

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


def buffer_name(p: Printer, node: Buffer, precedence: int = 0) -> str:
    """Return a buffer's name; one that nothing defines is declared in front."""
    name = p.names.get(node)
    if name is None:
        return _declare_buffer(p, node)
    return p.name(node) if p.marks else name


register(Buffer)(buffer_name)


def _declare_buffer(p: Printer, node: Buffer) -> str:
    p.use("tir")
    p.needs_early(node.data)
    arguments = buffer_arguments(p, node)
    name = p.names[node] = p.fresh(node.name)
    p.names.setdefault(node.data, name + ".data")
    p.late_prelude.append(f"{name} = T.Buffer({arguments})")
    return p.name(node)


def define_buffer(p: Printer, buffer: Buffer) -> str:
    """Name a buffer; its pointer is spelled ``name.data`` if nothing else has named it.

    One that was used before this place has its name already.
    """
    if buffer in p.names:
        return p.name(buffer)
    name = p.define(buffer)
    if buffer.data not in p.names:
        p.alias(buffer.data, p.names[buffer] + ".data")
    return name


def buffer_arguments(p: Printer, buffer: Buffer) -> str:
    """Return shape, dtype and whatever else is not the default.

    A buffer that was used before the place that defines it (a region around an allocation may name
    it) stands for itself.
    """
    if buffer in p.names:
        return p.names[buffer]
    fields = [p.tuple([p.expr(extent) for extent in buffer.shape]), f'"{buffer.dtype}"']
    if buffer.data in p.names:
        fields.append(f"data={p.names[buffer.data]}")
    elif buffer.data in p.early:
        fields.append(f"data={p.expr(buffer.data)}")
    if buffer.strides:
        fields.append(f"strides={p.tuple([p.expr(stride) for stride in buffer.strides])}")
    if buffer.elem_offset is not None:
        fields.append(f"elem_offset={p.expr(buffer.elem_offset)}")
    if buffer.scope != "global":
        fields.append(f"scope={p.value(buffer.scope)}")
    if buffer.alignment != 64:
        fields.append(f"align={buffer.alignment}")
    if buffer.axis_separators:
        fields.append(f"axis_separators={p.value(tuple(buffer.axis_separators))}")
    return ", ".join(fields)


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
    same = node.a.dtype == node.b.dtype
    a, b = (p.expr(part) if same else _stated(p, part) for part in (node.a, node.b))
    return f"T.{type(node).__name__}({a}, {b})"


def _stated(p: Printer, node: Expr) -> str:
    """The text of an operand whose dtype is not the other one's, which a bare number would take."""
    return p.expr(node, ATOM + 1 if type(node) is IntImm else 0)


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
    chain = [(symbol, node.b, own + 1)]
    node = node.a
    while not p.marks:
        found = _INFIX.get(type(node))
        if found is None or found[1] != left or not _is_usual(node, found[2]):
            break
        chain.append((found[0], node.b, left + 1))
        node = node.a
    text = p.expr(node, left)
    for symbol, right, needed in reversed(chain):
        text = f"{text} {symbol} {p.expr(right, needed)}"
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
    texts = [p.expr(node.base), p.expr(node.stride)]
    if node.base.dtype != node.stride.dtype:  # a plain number would take the other one's dtype
        for place, item in enumerate((node.base, node.stride)):
            if type(item) is IntImm and item.dtype == INDEX:
                texts[place] = f"T.int64({item.value})"
    return f"T.Ramp({', '.join(texts)}, {_lanes(p, node.lanes)})"


def _lanes(p: Printer, lanes: int) -> str:
    """The lanes of a vector: a number, or the expression that it is a dtype's short form of."""
    return f"T.vscale() * {lanes.factor}" if isinstance(lanes, ScalableLanes) else str(lanes)


@register(Broadcast)
def _broadcast(p: Printer, node: Broadcast, precedence: int) -> str:
    p.use("tir")
    return f"T.Broadcast({p.expr(node.value)}, {_lanes(p, node.lanes)})"


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
    usual = (op.arity is None or op.arity == len(args)) and wrong_operand(op, args) is None
    derived: str | None = None
    if op.result in STATED_RESULTS:
        derived = op.result
    elif usual and op.result != "given" and args:
        derived = args[-1].dtype if op.result == "last" else args[0].dtype
        if op.result == "bool":
            derived = dtypes.vector_dtype("bool", dtypes.lanes_of(derived))
            usual = dtypes.is_float(args[0].dtype)  # known without a call
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
    name = p.define(node.var, lasting=True)
    p.line(f"{name} = T.{node.var.dtype}()")
    return f"T.Let({p.expr(node.body)}, where={{{name}: {value}}})"


def write_indices(p: Printer, indices: tuple[Expr, ...]) -> str:
    """Return indices as they stand between brackets."""
    if not indices:
        return "()"
    # Only the last one may be a slice where a value is meant.
    return ", ".join([*(p.expr(index) for index in indices[:-1]), _index(p, indices[-1])])


_MOST_INDEX = dtypes.integer_limits(INDEX)[1]


def _index(p: Printer, index: Expr) -> str:
    if type(index) is Ramp and index.base.dtype == INDEX and not dtypes.is_scalable(index.dtype):
        stride, base = index.stride, index.base
        if type(stride) is IntImm and stride.value == 1 and stride.dtype == INDEX:
            if type(base) is IntImm:
                if base.value + index.lanes > _MOST_INDEX:
                    return f"T.Ramp({base.value}, 1, {index.lanes})"
                return f"{base.value}:{base.value + index.lanes}"
            text = p.expr(base, SUM)
            # A long base would stand there twice.
            if len(text) <= 40 and "T." not in text:
                return f"{text}:{text} + {index.lanes}"
            return f"T.Ramp({text}, {p.expr(stride)}, {index.lanes})"
    return p.expr(index)


@register(BufferLoad)
def _load(p: Printer, node: BufferLoad, precedence: int) -> str:
    return f"{buffer_name(p, node.buffer)}[{write_indices(p, node.indices)}]"


def bounds(p: Printer, minimum: Expr, extent: Expr) -> tuple[str, str]:
    """Return start and stop such that the parser finds ``extent`` again."""
    same = minimum.dtype == extent.dtype
    if type(minimum) is IntImm and same:
        if minimum.value == 0:
            return "0", p.expr(extent)
        if type(extent) is IntImm:
            stop = minimum.value + extent.value
            if not dtypes.integer_limits(extent.dtype)[1] >= stop >= minimum.value:
                return p.expr(minimum), _spelled_out(p, Add(minimum, extent))
            if extent.dtype == INDEX:
                return str(minimum.value), str(stop)
            return p.expr(minimum), f"T.{extent.dtype}({stop})"
    # Both use one text of the start: it may define variables.
    if not same:
        start = _stated(p, minimum)
        return start, f"T.Add({start}, {_stated(p, extent)})"
    start = p.expr(minimum, SUM)
    return start, f"{start} + {p.expr(extent, PRODUCT)}"


def _is_index_const(expr: Expr, value: int) -> bool:
    return type(expr) is IntImm and expr.value == value and expr.dtype == INDEX


def region_text(p: Printer, node: BufferRegion) -> str:
    """Return ``A[i, j:j + 4]``; extents of one print as points."""
    if not node.region:
        return f"{buffer_name(p, node.buffer)}[()]"
    fields = []
    for item in node.region:
        if _is_index_const(item.extent, 1):
            fields.append(p.expr(item.min))
        else:
            start, stop = bounds(p, item.min, item.extent)
            fields.append(f"{start}:{stop}")
    return f"{buffer_name(p, node.buffer)}[{', '.join(fields)}]"


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
