"""Expressions to C-like text; above :mod:`emit_value`, below :mod:`emit_memory`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith import Analyzer, holds_data
from tilewright.codegen.c import text as t
from tilewright.codegen.c.dialect import NARROW, Dialect
from tilewright.codegen.c.emit_value import ValueEmitter
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value, Vector, lane_of
from tilewright.codegen.checks import no_value
from tilewright.ir import (
    EFFECTS,
    INDEX,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Node,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Var,
    Visitor,
    as_int,
    contains,
    dtypes,
    pre_order,
)
from tilewright.support.errors import CodegenError
from tilewright.tir import Buffer, BufferLoad, LetStmt
from tilewright.tir.interpreter.emit_threads import COLLECTIVES

CallHandler = Callable[[Any, Call], Value]
INTRINSICS: dict[str, CallHandler] = {}
"""How calls of operators are written, by the operator's name; a dialect's own come first."""

_may_hold_data = contains(BufferLoad, Call, Cast, Let)
_has_effects = contains(EFFECTS)


def _changes_memory(expr: Expr) -> bool:
    """Whether evaluating an expression writes; shuffles and votes don't."""
    return _has_effects(expr) and any(
        isinstance(item, Call)
        and item.op.effect in ("update", "opaque")
        and item.op.name not in COLLECTIVES
        for item in pre_order(expr)
    )


_PACKED_OPS = {"Add": "add2", "Sub": "sub2", "Mul": "mul2"}


def intrinsic(*names: str) -> Callable[[CallHandler], CallHandler]:
    """Register a function ``(emitter, call) -> value`` for operators."""

    def register(handler: CallHandler) -> CallHandler:
        INTRINSICS.update(dict.fromkeys(names, handler))
        return handler

    return register


class ExprEmitter(ValueEmitter, Visitor):
    """Writes expressions of one function."""

    def __init__(
        self, dialect: Dialect, helpers: dict[tuple[str, str], None], analyzer: Analyzer
    ) -> None:
        super().__init__(dialect, helpers)
        self.analyzer = analyzer
        self.values: dict[Var, Value] = {}
        self.data_vars: set[Var] = set()
        self.in_order = False
        """Whether what is read gets a name at once, as a later operand may change it."""
        self.mask: Sequence[str] | None = None
        """Which lanes are on, where a condition has one for each."""

    def generic_visit(self, node: Node) -> Value:
        raise CodegenError(
            f"the {self.dialect.name} code generator can't emit {type(node).__name__}: {node!r}; "
            "lower the program first (tilewright.driver.lower)"
        )

    def scalar(self, node: Expr) -> str:
        """Return the text of a scalar expression."""
        value = self.visit(node)
        if isinstance(value, Vector):
            raise CodegenError(f"a scalar was expected, got {node!r} of {node.dtype}")
        return str(value) if not isinstance(value, Text) else value

    def evaluate(self, node: Expr) -> Value:
        """Return the value of an expression that is a statement's own."""
        before, self.in_order = self.in_order, _changes_memory(node)
        made: Value = self.visit(node)
        self.in_order = before
        return made

    # ---- leaves and lets

    def visit_Var(self, node: Var) -> Value:
        found = self.values.get(node)
        if found is None:
            raise no_value(node)
        return found

    def visit_IntImm(self, node: IntImm) -> Text:
        return self.number(node.value, node.dtype)

    def visit_FloatImm(self, node: FloatImm) -> Text:
        value = node.value
        if node.dtype in NARROW:
            value = round_to(value, node.dtype)
        return self.number(value, node.dtype)

    def visit_StringImm(self, node: StringImm) -> Text:
        return Text(t.string_text(node.value))

    def bind(self, node: Let | LetStmt) -> None:
        """Give the variable of a let its value."""
        if holds_data(node.value, self.data_vars):
            self.data_vars.add(node.var)
        value, element = self.evaluate(node.value), dtypes.element_of(node.var.dtype)
        if isinstance(value, Vector):
            self.values[node.var] = self.named_lanes(value, node.var.name)
            return
        if element == "handle":
            self.values[node.var] = value
        else:
            self.values[node.var] = self.let(value, element, node.var.name)
        if node.var.dtype in (INDEX, "int32") and node.var not in self.data_vars:
            self.analyzer.bind(node.var, node.value, override=True)

    def visit_Let(self, node: Let) -> Value:
        self.bind(node)
        made: Value = self.visit(node.body)
        return made

    # ---- arithmetic

    def wraps(self, node: Expr) -> bool:
        """Whether integers may overflow, and wrap then: those of data do, indices don't."""
        if dtypes.element_of(node.dtype) not in (INDEX, "int32"):
            return True
        known = self.data_vars
        return bool(known or _may_hold_data(node)) and holds_data(node, known)

    def visit_BinaryExpr(self, node: BinaryExpr) -> Value:
        name, element = type(node).__name__, dtypes.element_of(node.dtype)
        a, b = self.visit(node.a), self.visit(node.b)
        made = self.packed(_PACKED_OPS.get(name), node.dtype, a, b)
        if made is not None:
            return made
        made = self.native(name, node.dtype, a, b)
        if made is not None:
            return made
        wraps = dtypes.is_integer(element) and self.wraps(node)
        return self.each(node.dtype, lambda x, y: self.arithmetic(name, element, x, y, wraps), a, b)

    def native(self, name: str, dtype: str, a: Value, b: Value) -> Value | None:
        """The operation on whole vectors, where the dialect has vectors and both are whole."""
        return None

    def packed(self, family: str | None, dtype: str, *values: Value) -> Value | None:
        """An operation on pairs of lanes at once, where there are instructions for it."""
        element, lanes = dtypes.split_dtype(dtype)
        if family is None or element not in self.dialect.packed or lanes % 2:
            return None
        if family in self.dialect.options.get("unpacked", ()):
            return None
        if not self.rounds_narrow or not any(
            isinstance(value, Vector) and value.words is not None for value in values
        ):
            return None
        operands = [self.words(value) for value in values if isinstance(value, Vector)]
        made = [
            self.let(
                self.help(family, element, *(words[n] for words in operands)), "uint32", "pair"
            )
            for n in range(lanes // 2)
        ]
        return self.from_words(list(made), dtype)

    def visit_Add(self, node: Add) -> Value:
        element = dtypes.element_of(node.dtype)
        if dtypes.is_float(element) and not (self.rounds_narrow and element in NARROW):
            for product, other in ((node.a, node.b), (node.b, node.a)):
                if type(product) is Mul:
                    parts = (product.a, product.b, other)
                    a, b, c = (self.visit(part) for part in parts)
                    return self.each(
                        node.dtype, lambda x, y, z: self.fma(element, x, y, z), a, b, c
                    )
        return self.visit_BinaryExpr(node)

    def _extremum(self, node: Any, name: str) -> Value:
        element = dtypes.element_of(node.dtype)
        a, b = self.visit(node.a), self.visit(node.b)
        made = self.packed(f"{name}2", node.dtype, a, b)
        if made is not None:
            return made
        return self.each(node.dtype, lambda x, y: self.extremum(name, element, x, y), a, b)

    def visit_Min(self, node: Min) -> Value:
        return self._extremum(node, "min")

    def visit_Max(self, node: Max) -> Value:
        return self._extremum(node, "max")

    # ---- division of integers

    def visit_FloorDiv(self, node: FloorDiv) -> Value:
        return self._divided(node, "floor_div", "/")

    def visit_FloorMod(self, node: FloorMod) -> Value:
        return self._divided(node, "floor_mod", "%")

    def _divided(self, node: Any, family: str, symbol: str) -> Value:
        element = dtypes.element_of(node.dtype)
        divisor = as_int(node.b.value if isinstance(node.b, Broadcast) else node.b)
        a, b = self.visit(node.a), self.visit(node.b)
        if divisor is not None and divisor > 0:
            if dtypes.kind_of(element) == "uint" or self._is_positive(node.a):
                return self.each(node.dtype, lambda x, y: t.binary(symbol, x, y), a, b)
            if divisor & (divisor - 1) == 0 and dtypes.bits_of(element) > 4:
                shift = str(divisor.bit_length() - 1)
                if symbol == "/":
                    return self.each(node.dtype, lambda x: t.binary(">>", x, shift), a)
                mask = self.number(divisor - 1, element)
                return self.each(node.dtype, lambda x: t.binary("&", x, mask), a)
        return self.each(node.dtype, lambda x, y: self.help(family, element, x, y), a, b)

    def _is_positive(self, expr: Expr) -> bool:
        """Whether an index is proven not to be negative."""
        if dtypes.lanes_of(expr.dtype) > 1 or self.wraps(expr):
            return False
        bound = self.analyzer.const_int_bound(expr)
        return bool(bound.min >= 0)

    # ---- truth values

    def visit_CompareExpr(self, node: CompareExpr) -> Value:
        name = type(node).__name__
        a, b = self.visit(node.a), self.visit(node.b)
        return self.each(node.dtype, lambda x, y: self.compare(name, x, y), a, b)

    def visit_And(self, node: And) -> Value:
        return self._joined(node, "&&")

    def visit_Or(self, node: Or) -> Value:
        return self._joined(node, "||")

    def _joined(self, node: Any, symbol: str) -> Value:
        """The second operand is computed only where the first doesn't decide."""
        a = self.visit(node.a)
        if isinstance(a, Vector):
            on = [self.named(x, "bool", "on") for x in a.lanes()]
            decide = on if symbol == "&&" else [t.prefix("!", x) for x in on]
            b = self.under_mask(list(decide), lambda: self.visit(node.b))
            return self.each(
                node.dtype, lambda x, y: t.binary(symbol, x, y), Vector(a.dtype, on), b
            )
        if a in ("true", "false"):
            decided = a == ("false" if symbol == "&&" else "true")
            return Text(a) if decided else self.scalar(node.b)
        with self.aside() as lines:
            b = self.scalar(node.b)
        if not lines:
            return t.binary(symbol, a, b)
        result = self.fresh("both" if symbol == "&&" else "either")
        self.line(f"{self.dialect.register('bool')} {result} = {a};")
        with self.braces(f"if ({result if symbol == '&&' else '!' + result})"):
            self.spliced(lines)
            self.line(f"{result} = {b};")
        return Text(result)

    def spliced(self, lines: list[str]) -> None:
        """Write lines that were written aside one level further out."""
        self.lines += ["  " + line for line in lines]

    def visit_Not(self, node: Not) -> Value:
        return self.each(node.dtype, lambda x: t.prefix("!", x), self.visit(node.a))

    def visit_Select(self, node: Select) -> Value:
        condition = self.visit(node.condition)
        if not isinstance(condition, Vector) and dtypes.lanes_of(node.dtype) > 1:
            condition = self.named(condition, "bool", "on")
        a, b = self.visit(node.true_value), self.visit(node.false_value)
        return self.each(node.dtype, self.choose, condition, a, b)

    # ---- conditional evaluation

    def evaluated_if(
        self, condition: str, yes: Callable[[], Value], no: Callable[[], Value], dtype: str
    ) -> Value:
        """Evaluate one of two expressions: by a conditional expression, or by a branch."""
        if condition in ("true", "false"):
            return yes() if condition == "true" else no()
        with self.aside() as first:
            a = yes()
        with self.aside() as second:
            b = no()
        scalars = not isinstance(a, Vector) and not isinstance(b, Vector)
        if scalars and not first and not second:
            return t.ternary(condition, a, b)  # type: ignore[arg-type]
        return self._branched(condition, (a, b), (first, second), dtype)

    def _branched(
        self, condition: str, values: tuple[Value, Value], bodies: tuple[list[str], ...], dtype: str
    ) -> Value:
        element, lanes = dtypes.split_dtype(dtype)
        in_words = lanes > 1 and all(isinstance(v, Vector) and v.words is not None for v in values)
        kind = "uint32" if in_words else element
        count = len(values[0].words) if in_words else lanes  # type: ignore[union-attr,arg-type]
        results = [self.fresh("chosen") for _ in range(count)]
        self.line(f"{self.dialect.register(kind)} {', '.join(results)};")
        for head, value, lines in zip((f"if ({condition})", "} else"), values, bodies):
            self.line(f"{head} {{")
            with self.inside():
                self.spliced(lines)
                for number, result in enumerate(results):
                    if in_words:
                        part = value.words[number]  # type: ignore[union-attr,index]
                    else:
                        part = lane_of(value, number)
                    self.line(f"{result} = {part};")
        self.line("}")
        if lanes == 1:
            return Text(results[0])
        if in_words:
            return self.from_words(list(results), dtype)
        return Vector(dtype, [Text(result) for result in results])

    def under_mask(self, mask: Sequence[str], emit: Callable[[], Any]) -> Any:
        """Write with only some lanes on, of those that are on already."""
        outer = self.mask
        if outer is not None and len(outer) == len(mask):
            joined = [t.binary("&&", a, b) for a, b in zip(outer, mask)]
            mask = [self.let(lane, "bool", "on") for lane in joined]
        self.mask = mask
        try:
            return emit()
        finally:
            self.mask = outer

    # ---- conversions and vectors

    def visit_Cast(self, node: Cast) -> Value:
        source, element = dtypes.element_of(node.value.dtype), dtypes.element_of(node.dtype)
        value = self.visit(node.value)
        pairs = self.cast_pairs(value, source, node.dtype)
        if pairs is not None:
            return pairs
        return self.each(node.dtype, lambda x: self.convert(x, source, element), value)

    def cast_pairs(self, value: Value, source: str, dtype: str) -> Value | None:
        """Conversion of two lanes at once, where there is an instruction for it."""
        element, lanes = dtypes.split_dtype(dtype)
        if (source, element) not in self.dialect.options.get("cast_pairs", ()) or lanes % 2:
            return None
        if not isinstance(value, Vector) or value.words is None:
            return None
        half = self.dialect.register("uint16")
        made: list[str] = []
        for number in range(lanes // 2):
            word = Text(value.words[number // 2])
            part = t.binary(">>", word, "16") if number % 2 else word
            text = self.help("pair_from", source, t.prefix(f"({half})", part))
            made.append(self.let(text, "uint32", "pair"))
        return self.from_words(made, dtype)

    def visit_Broadcast(self, node: Broadcast) -> Value:
        return self.broadcast(self.scalar(node.value), node.value.dtype, node.lanes)

    def visit_Ramp(self, node: Ramp) -> Value:
        element = dtypes.element_of(node.dtype)
        base = self.place(self.scalar(node.base), element)
        stride = as_int(node.stride)
        step = self.named(self.scalar(node.stride), element, "step") if stride is None else ""
        lanes: list[str] = []
        for number in range(node.lanes):
            if stride is not None:
                lanes.append(self._plus(base, number * stride))
            else:
                scaled = t.binary("*", step, str(number))
                lanes.append(t.binary("+", base, scaled) if number else base)
        return Vector(node.dtype, lanes)

    def _plus(self, base: str, number: int) -> Text:
        if base == "0":
            return Text(str(number), t.UNARY if number < 0 else t.ATOM)
        if not number:
            return Text(base)
        return t.binary("+" if number > 0 else "-", base, str(abs(number)))

    def visit_Shuffle(self, node: Shuffle) -> Value:
        lanes: list[str] = []
        for vector in node.vectors:
            value = self.visit(vector)
            if isinstance(value, Vector):
                lanes += self.named_lanes(value).lanes()
            else:
                lanes.append(self.named(value, dtypes.element_of(vector.dtype)))
        picked = [lanes[index] for index in node.indices]
        return Text(picked[0]) if len(picked) == 1 else Vector(node.dtype, picked)

    # ---- calls

    def visit_Call(self, node: Call) -> Value:
        name = node.op.name
        handler = self.dialect.calls.get(name) or INTRINSICS.get(name)
        if handler is None:
            known = sorted({*INTRINSICS, *self.dialect.calls})
            raise CodegenError(
                f"the {self.dialect.name} code generator has no code for {name!r}; it knows "
                f"{', '.join(known)}"
            )
        return handler(self, node)

    def define(self, symbol: Var | Buffer, value: Value) -> None:
        """Give a variable its value."""
        assert isinstance(symbol, Var)
        self.values[symbol] = value


def round_to(value: float, element: str) -> float:
    """Round a number to a short format, as constants are."""
    import ml_dtypes
    import numpy as np

    kind = np.float16 if element == "float16" else getattr(ml_dtypes, element)
    with np.errstate(over="ignore"):
        return float(np.asarray(value).astype(kind))
