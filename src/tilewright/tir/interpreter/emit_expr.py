"""Translates expressions, and the places of elements, to Python source text."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from tilewright.arith import holds_data
from tilewright.ir import (
    INDEX,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Expr,
    FloatImm,
    IntImm,
    Let,
    Not,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Var,
    Visitor,
    as_int,
    contains,
    dtypes,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.interpreter.emit_calls import call_text
from tilewright.tir.interpreter.emit_threads import ThreadEmitter
from tilewright.tir.interpreter.lanes import LaneOf, lane_text
from tilewright.tir.interpreter.values import (
    PLACES,
    is_view_dtype,
)
from tilewright.tir.rewrite import fresh_name

_USUAL_FLOATS = ("float16", "bfloat16", "float32")
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*"}
_may_hold_data = contains(BufferLoad, Call, Cast, Let)
_DIVISIONS = {"FloorDiv": ("//", "floor_divide"), "FloorMod": ("%", "floor_modulo")}


class ExprEmitter(Visitor):
    """Writes expressions as Python."""

    threads: ThreadEmitter

    def __init__(self, functions: Container[str]) -> None:
        self.functions = functions
        self.lines: list[str] = []
        self.depth = 0
        self.names: dict[Any, str] = {}
        self.taken: set[str] = set()
        self.ending = "_g"  # of names: those of all pieces, and those of one, never meet
        self.shared: frozenset[Buffer] = frozenset()  # buffers that the first piece declares
        self.checks: dict[str, tuple[str, int, int]] = {}
        self.open_checks: dict[str, str] = {}  # the same for extents that arguments tell
        self.layouts: dict[Buffer, tuple[str, list[str], str]] = {}
        # Where the pointers of parameters with strides point to, in elements of their own.
        self.bases: dict[Var, str] = {}
        self.owners: dict[Var, str] = {}  # dtype of the memory behind a pointer
        self.intrinsics: dict[str, None] = {}
        self.data_vars: set[Var] = set()

    # ---- text ---------------------------------------------------------------------------
    def line(self, text: str) -> None:
        """Write a line of Python at the present depth."""
        self.lines.append("    " * self.depth + text)

    def name(self, symbol: Any) -> str:
        """The Python name of a variable or buffer, one of its own."""
        found = self.names.get(symbol)
        if found is None:
            # ASCII only: Python takes other letters that look alike for the same name.
            base = re.sub(r"\W|^(?=\d)", "_", symbol.name, flags=re.ASCII) + self.ending
            found = self.names[symbol] = fresh_name(base, self.taken, "")
        return found

    def expr(self, expr: Expr) -> str:
        """Python text of an expression."""
        text: str = self.visit(expr)
        return text

    # ---- where elements lie --------------------------------------------------------------
    def declare(
        self, buffer: Buffer, offset: str | None = None, strides: list[str] | None = None
    ) -> None:
        """Note how ``buffer[indices]`` becomes a place in flat memory."""
        memory = self.name(buffer.data)
        element = dtypes.element_of(buffer.dtype)
        if self.owners.setdefault(buffer.data, element) != element:
            # Other elements in the same bytes.
            source, memory = memory, f"{memory}{element}"
            self.line(f"{memory}_np = recast({source}_np, {element!r})")
            self.line(f"{memory} = view({memory}_np, {element!r})")
        if strides is None:
            if buffer.strides:
                strides = [self.expr(stride) for stride in buffer.strides]
            else:
                strides, running = [], "1"
                for extent in reversed(buffer.shape):
                    strides.append(running)
                    text = self.expr(extent)
                    running = text if running == "1" else f"{text} * {running}"
                strides.reverse()
                strides = [f"({stride})" if "*" in stride else stride for stride in strides]
        if offset is None:
            offset = "0" if buffer.elem_offset is None else self.expr(buffer.elem_offset)
            base = self.bases.get(buffer.data)
            if base is not None:
                own, other = dtypes.bits_of(self.owners[buffer.data]), dtypes.bits_of(element)
                base = base if own == other else f"{base} * {own} // {other}"
                offset = base if offset == "0" else f"{base} + {offset}"
        self.layouts[buffer] = (memory, strides, offset)

    def address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Flat place of an element; every index is checked against its dimension."""
        if buffer not in self.layouts:
            raise VerifyError(f"buffer {buffer.name} is used but never defined")
        memory, strides, offset = self.layouts[buffer]
        if buffer.data in self.bases and not buffer.strides and buffer.ndim == 1:
            return self.flat_address(buffer, indices, f"len({memory}_np)", offset)
        terms = [] if offset == "0" else [offset]
        for axis, (index, extent, stride) in enumerate(zip(indices, buffer.shape, strides)):
            text = self.expr(index)
            place, limit = as_int(index), as_int(extent)
            if place is None or limit is None or not 0 <= place < limit:
                text = self.checked(buffer, axis, text, dtypes.lanes_of(index.dtype) > 1)
            terms.append(text if stride == "1" else f"{text} * {stride}")
        return " + ".join(terms) or "0"

    def checked(self, buffer: Buffer, axis: int, text: str, vector: bool) -> str:
        """Text of an index that is checked against its dimension.

        Looking it up in a table of the places that were found to be inside takes the least code.
        """
        extent = buffer.shape[axis]
        known, limit = as_int(extent), self.expr(extent)
        if vector:
            return f"check_vector({buffer.name!r}, {axis}, {text}, {limit})"
        name = re.sub(r"[^a-zA-Z0-9]", lambda match: f"_{ord(match[0]):x}_", buffer.name)
        if known is not None and 0 <= known <= PLACES:
            table = f"{name}_{axis}_{known}_c"
            self.checks[table] = (buffer.name, axis, known)
        elif type(extent) is Var and buffer in self.shared:
            table = f"{name}_{axis}_{limit}_c"
            self.open_checks[table] = f"{buffer.name!r}, {axis}, {limit}"
        else:
            return (
                f"(_i if 0 <= (_i := {text}) < {limit} "
                f"else out_of_bounds({buffer.name!r}, {axis}, _i, {limit}))"
            )
        return f"{table}[{text}]"

    def flat_address(
        self, buffer: Buffer, indices: tuple[Expr, ...], size: str, offset: str
    ) -> str:
        """Place in the memory of a parameter with strides, of which the shape says nothing."""
        (index,) = indices
        check = "check_vector" if dtypes.lanes_of(index.dtype) > 1 else "check_index"
        return f"{check}({buffer.name!r}, 0, {self.expr(index)} + {offset}, {size})"

    def memory(self, buffer: Buffer) -> str:
        """Name of the flat memory that a buffer is a view of."""
        return self.layouts[buffer][0]

    # ---- expressions --------------------------------------------------------------------
    def visit_Var(self, node: Var) -> str:
        """The variable's name."""
        return self.name(node)

    def visit_IntImm(self, node: IntImm) -> str:
        """The number, as its dtype holds it."""
        if node.dtype == "bool":
            return "True" if node.value else "False"
        return str(node.value) if node.value >= 0 else f"({node.value})"

    def visit_FloatImm(self, node: FloatImm) -> str:
        """The number, rounded to its dtype."""
        # The constant has the precision of its dtype, like a value loaded from memory.
        exact = node.value in (0.0, 1.0, -1.0, 0.5, 2.0) and node.dtype in _USUAL_FLOATS
        if exact or node.dtype == "float64":
            return _float_text(node.value)
        return f"convert({_float_text(node.value)}, 'float64', {node.dtype!r})"

    def visit_StringImm(self, node: StringImm) -> str:
        """The text as a literal."""
        return repr(node.value)

    def visit_Cast(self, node: Cast) -> str:
        """A conversion, rounded and wrapped as the compiled program does."""
        # As what is stored, or another whole number comes out where code has rounded up to it.
        whole = dtypes.kind_of(node.dtype) != "float"
        value = self.rounded(node.value) if whole else self.expr(node.value)
        return f"convert({value}, {node.value.dtype!r}, {node.dtype!r})"

    def rounded(self, node: Expr) -> str:
        """An expression as code has it: in the precision of its dtype."""
        value = self.expr(node)
        if isinstance(node, (BufferLoad, FloatImm)) or dtypes.element_of(node.dtype) != "float32":
            return value
        return f"convert({value}, 'float64', 'float32')"

    def is_data(self, expr: Expr) -> bool:
        """Whether integers wrap at 64 bits; indices don't get there, and it would take time."""
        if expr.dtype != INDEX or not (self.data_vars or _may_hold_data(expr)):
            return False
        return holds_data(expr, self.data_vars)

    def bound(self, node: Any) -> str:
        """Text of a let's value."""
        if holds_data(node.value, self.data_vars):
            self.data_vars.add(node.var)
        return self.expr(node.value)

    def wrapped(self, text: str, dtype: str, *, always: bool = False) -> str:
        """Wrap integers narrower than 64 bits, and unsigned ones; others if asked.

        Floats below 32 bits are rounded.
        """
        kind, bits = dtypes.kind_of(dtype), dtypes.bits_of(dtype)
        if kind == "float" and bits < 32:
            return f"convert({text}, 'float64', {dtype!r})"
        if kind == "uint" or (kind == "int" and (bits < 64 or always)):
            return f"wrap({text}, {bits}, {kind == 'int'})"
        return text

    def visit_BinaryExpr(self, node: BinaryExpr) -> str:
        """An operation; integers of data wrap, floats are rounded to their dtype."""
        a, b = self.expr(node.a), self.expr(node.b)
        name = type(node).__name__
        if name in _ARITHMETIC:
            text = f"({a} {_ARITHMETIC[name]} {b})"
            return self.wrapped(text, node.dtype, always=self.is_data(node))
        if name == "Div":
            return self.wrapped(f"divide({a}, {b})", node.dtype)
        if name in _DIVISIONS:
            symbol, function = _DIVISIONS[name]
            if as_int(node.b) and as_int(node.b) != -1:
                return f"({a} {symbol} {b})"
            return self.wrapped(f"{function}({a}, {b})", node.dtype, always=True)
        return f"{'minimum' if name == 'Min' else 'maximum'}({a}, {b})"

    def visit_CompareExpr(self, node: CompareExpr) -> str:
        """A comparison; what was stored before must equal what is computed again."""
        a, b = self.rounded(node.a), self.rounded(node.b)
        vector = dtypes.lanes_of(node.dtype) > 1
        symbol = {"and": "&", "or": "|"}.get(node.symbol, node.symbol) if vector else node.symbol
        return f"({a} {symbol} {b})"

    def visit_Not(self, node: Not) -> str:
        text = self.expr(node.a)
        return f"(~{text})" if dtypes.lanes_of(node.dtype) > 1 else f"(not {text})"

    def visit_Select(self, node: Select) -> str:
        parts = map(self.expr, (node.condition, node.true_value, node.false_value))
        return f"select({', '.join(parts)})"

    def visit_Ramp(self, node: Ramp) -> str:
        return f"({self.expr(node.base)} + {self.expr(node.stride)} * np.arange({lane_text(node)}))"

    def visit_Broadcast(self, node: Broadcast) -> str:
        # NumPy shifts no unsigned numbers by signed ones.
        kind = ", np.uint64" if dtypes.kind_of(node.dtype) == "uint" else ""
        return f"np.full({lane_text(node)}, {self.expr(node.value)}{kind})"

    def visit_Shuffle(self, node: Shuffle) -> str:
        parts = ", ".join(f"np.atleast_1d({self.expr(vector)})" for vector in node.vectors)
        picked = f"np.concatenate([{parts}])[{list(node.indices)}]"
        return picked if len(node.indices) > 1 else f"{picked}[0].item()"

    def visit_LaneOf(self, node: LaneOf) -> str:
        return f"{self.expr(node.vector)}.item({self.expr(node.lane)})"

    def visit_Let(self, node: Let) -> str:
        return f"(({self.name(node.var)} := {self.bound(node)}), {self.expr(node.body)})[1]"

    def visit_BufferLoad(self, node: BufferLoad) -> str:
        place = self.address(node.buffer, node.indices)
        memory = self.layouts[node.buffer][0]
        self.threads.indices = node.indices
        place = self.threads.noted(node.buffer, place, "read")
        if dtypes.lanes_of(node.dtype) > 1:
            wide = ".astype(np.float64)" if dtypes.is_float(node.dtype) else ""
            return f"{memory}_np[{place}]{wide}"
        if is_view_dtype(node.buffer.dtype):
            return f"{memory}[{place}]"
        return f"{'float' if dtypes.is_float(node.dtype) else 'int'}({memory}[{place}])"

    def visit_Call(self, node: Call) -> str:
        return call_text(self, node)


def _float_text(value: float) -> str:
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "(-inf)"
    return repr(value) if value >= 0 else f"({value!r})"
