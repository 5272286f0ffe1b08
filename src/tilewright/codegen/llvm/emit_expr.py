"""Expressions to LLVM IR: arithmetic, comparisons, vectors, conditional values.

The middle part of the LLVM emitter, above :mod:`emit_value` and below :mod:`emit_memory`. Every
``visit_X`` returns the operand text of a value whose LLVM type is ``register_type(expr.dtype)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.arith import holds_data
from tilewright.codegen.checks import no_value
from tilewright.codegen.llvm.comparisons import comparison_instruction, known_truth
from tilewright.codegen.llvm.emit_masked import compare_ramp, joined_masks
from tilewright.codegen.llvm.emit_value import ValueEmitter, lane_vector
from tilewright.codegen.llvm.extrema import extremum_of_numbers, is_number, operands_to_test
from tilewright.codegen.llvm.guards import always_read, loads_scalars, needs_guard, reads_more
from tilewright.codegen.llvm.math import MATH_FUNCTIONS
from tilewright.codegen.llvm.saturate import is_clipped
from tilewright.codegen.llvm.types import (
    constant_text,
    intrinsic_suffix,
    is_narrow,
    register_type,
)
from tilewright.codegen.llvm.whole import constant_operand, floored
from tilewright.codegen.llvm.writer import Scope
from tilewright.ir import (
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
    ScalableLanes,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
    Visitor,
    contains,
    dtypes,
    is_const,
    is_vscale,
)
from tilewright.support.errors import CodegenError
from tilewright.target import Target
from tilewright.tir import Buffer, BufferLoad, LetStmt

T = TypeVar("T")

_FLOAT_OPS = {"Add": "fadd", "Sub": "fsub", "Mul": "fmul", "Div": "fdiv"}
#: Intrinsics with code of their own whose results may need rounding; others choose or move values.
_ROUNDED_CALLS = ("sqrt", "fma", "vector_reduce_add")
#: Elementary functions that are one operation to LLVM, of which it has no scalable form.
_FIXED_MATH = ("fmod",)
_INT_OPS = {"Add": "add", "Sub": "sub", "Mul": "mul"}

#: An expression with one of these may have another value later, or another operand stand for it.
may_change = contains(BufferLoad, Call, Let)
_may_hold_data = contains(BufferLoad, Call, Cast, Let)

CallHandler = Callable[[Any, Call], str]
INTRINSICS: dict[str, CallHandler] = {}
"""How calls of intrinsic operators are emitted, by the operator's name."""


def intrinsic(*names: str) -> Callable[[CallHandler], CallHandler]:
    """Register a function ``(emitter, call) -> operand`` for intrinsics."""

    def register(handler: CallHandler) -> CallHandler:
        for name in names:
            INTRINSICS[name] = handler
        return handler

    return register


def _is_rounded(node: Any) -> bool:
    """Whether nothing in a choice of values is the result of arithmetic."""
    if not is_narrow(node.dtype):
        return True
    if type(node) is Min or type(node) is Max:
        return _is_rounded(node.a) and _is_rounded(node.b)
    if type(node) is Select:
        return _is_rounded(node.true_value) and _is_rounded(node.false_value)
    return type(node).__name__ not in _FLOAT_OPS


class ExprEmitter(ValueEmitter, Visitor):
    """Emits expressions into one function."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module  # of ModuleEmitter: declarations, math requests, target
        self.target: Target = module.target
        self._single_extrema = False
        self.has_fma: bool = module.has_fma
        self.rounds_narrow = True  # 16-bit floats after each operation, see `rounded`
        self.values: dict[Any, str] = {}
        self.mask: tuple[str, int] | None = None  # operand and lanes
        # Loads that were evaluated already, under wider masks than what is emitted now.
        self.already_read: list[tuple[BufferLoad, tuple[str, int] | None]] = []
        self.prefetching = 0  # bytes ahead that the innermost loop asks for
        self.offsets: dict[str, int] = {}  # of addresses there, bytes from one that others share
        self.stack_elements: dict[Var, int] = {}  # of allocas, by their data
        self.streaming = 0  # whether stores go past the caches, see STREAMING_STORES
        self.has_streamed = False
        self.tile_columns: dict[tuple[str, ...], list[str]] = {}
        self.lanes_off: dict[str, frozenset[int]] = {}

    def generic_visit(self, node: Node) -> str:
        raise CodegenError(
            f"the LLVM code generator can't emit {type(node).__name__}: {node!r}; "
            "lower the program first (tilewright.driver.lower)"
        )

    # ---- leaves

    def define(self, symbol: Var | Buffer, operand: str) -> None:
        """Give a variable its value, at the present scope if the operand is new."""
        if self.values.get(symbol, operand) != operand:
            for scope in self.scopes:  # another value than when they were found
                scope.places.clear()
                scope.known.clear()
        self.values[symbol] = operand

    def bind(self, node: Let | LetStmt) -> None:
        """Give the variable of a let its value."""
        if holds_data(node.value, self.module.data_vars):
            self.module.data_vars.add(node.var)
        self.module.let_values[node.var] = node.value
        self.define(node.var, self.visit(node.value))

    def no_wrap(self, expr: Expr) -> str:
        """What LLVM is told of sums and products in an index: that they don't overflow, or nothing.

        Integers of data wrap, also where they make an index.
        """
        known = self.module.data_vars
        return "" if (known or _may_hold_data(expr)) and holds_data(expr, known) else " nsw"

    def lookup(self, symbol: Var | Buffer) -> str | None:
        """Return the operand that a variable stands for; outlined functions capture here."""
        return self.values.get(symbol)

    def visit_Var(self, node: Var) -> str:
        found = self.values.get(node)
        if found is None:
            found = self.lookup(node)
            if found is None:
                raise no_value(node)
        return found

    def visit_IntImm(self, node: IntImm) -> str:
        if node.dtype == INDEX:
            return str(node.value)
        return constant_text(node.value, node.dtype)

    def visit_FloatImm(self, node: FloatImm) -> str:
        return constant_text(node.value, node.dtype)

    def visit_StringImm(self, node: StringImm) -> str:
        return str(self.module.string(node.value))

    # ---- arithmetic

    def visit_BinaryExpr(self, node: BinaryExpr) -> str:
        name = type(node).__name__
        dtype = node.dtype
        if dtype == INDEX and name in _INT_OPS:
            return self.linear(node)
        if dtypes.is_float(dtype):
            return self.rounded(self._float_arithmetic(node), dtype)
        a, b = self.visit(node.a), self.visit(node.b)
        if name not in _INT_OPS:
            raise CodegenError(f"{name} on {dtype} has no code: {node!r}")
        return self.pure(f"{_INT_OPS[name]} {register_type(dtype)} {a}, {b}", a, b)

    def _float_arithmetic(self, node: Any) -> str:
        """Emit an operation in the precision of registers."""
        dtype = node.dtype
        a, b = self.visit(node.a), self.visit(node.b)
        operation = _FLOAT_OPS[type(node).__name__]
        return self.guarded(f"{operation} {register_type(dtype)} {a}, {b}", a, b)

    def rounded(self, value: str, dtype: str) -> str:
        """Round what an operation gave to its dtype, if registers are wider.

        So an operator has one result, whether it is stored or taken up by the next one.
        """
        if self.rounds_narrow and is_narrow(dtype):
            return self.round_half(value, dtype)
        return value

    def _unrounded(self, node: Expr) -> str:
        """Emit an operand of an operation that may be done before the operand is rounded.

        Rounding keeps order, so the greater of two is the same before and after it.
        """
        if self.rounds_narrow and is_narrow(node.dtype):
            if type(node).__name__ in _FLOAT_OPS:
                return self._float_arithmetic(node)
            if type(node) is Min or type(node) is Max:
                return self._extremum(node)
            if type(node) is Select:
                return self._selected(node)
        return str(self.visit(node))

    def _rounded_late(self, node: Expr, value: str) -> str:
        """Round what was made of unrounded operands, unless each of them is rounded already."""
        return value if _is_rounded(node) else self.rounded(value, node.dtype)

    def _contracts(self, dtype: str) -> bool:
        """Whether a product and a sum may be one operation, rounded once.

        A product and a difference are two: where equal numbers cancel (a softmax takes its greatest
        product from all of them) nothing must be left, least of all half a unit of a large one.
        """
        return self.has_fma and not (self.rounds_narrow and is_narrow(dtype))

    def visit_Add(self, node: Add) -> str:
        if dtypes.is_float(node.dtype) and self._contracts(node.dtype):
            for product, other in ((node.a, node.b), (node.b, node.a)):
                if type(product) is Mul:
                    return self._fma(product, self.visit(other), node.dtype)
        return self.visit_BinaryExpr(node)

    def _fma(self, product: BinaryExpr, other: str, dtype: str) -> str:
        a, b = self.visit(product.a), self.visit(product.b)
        return self.call_float("fma", dtype, a, b, other)

    # ---- index arithmetic: sums of products, invariant terms first

    def linear(self, expr: Expr) -> str:
        """Emit an index sum with what is known in outer scopes added first."""
        terms, constant = self.linear_terms(expr)
        flag = self.no_wrap(expr)
        total: str | None = None
        for operand, factor in terms:
            if factor != 1:
                operand = self.pure(f"mul{flag} i64 {operand}, {factor}", operand)
            if total is None:
                total = operand
            else:
                total = self.pure(f"add{flag} i64 {total}, {operand}", total, operand)
        if total is None:
            return str(constant)
        return self.pure(f"add{flag} i64 {total}, {constant}", total) if constant else total

    def linear_terms(self, expr: Expr) -> tuple[list[tuple[str, int]], int]:
        """Return (operand, factor) terms, outermost level first, and the constant."""
        factors: dict[str, int] = {}
        constant = 0
        stack: list[tuple[Any, int]] = [(expr, 1)]
        while stack:
            item, factor = stack.pop()
            kind = type(item)
            if kind is IntImm:
                constant += item.value * factor
                continue
            if kind is Add:
                stack.append((item.b, factor))
                stack.append((item.a, factor))
                continue
            if kind is Sub:
                stack.append((item.b, -factor))
                stack.append((item.a, factor))
                continue
            if kind is Mul:
                if type(item.b) is IntImm:
                    stack.append((item.a, factor * item.b.value))
                    continue
                if type(item.a) is IntImm:
                    stack.append((item.b, factor * item.a.value))
                    continue
                a, b = self.visit(item.a), self.visit(item.b)
                operand = self.pure(f"mul{self.no_wrap(item)} i64 {a}, {b}", a, b)
            else:
                operand = self.visit(item)
            try:  # unrolled loops put numbers in place of variables
                constant += int(operand) * factor
            except ValueError:
                factors[operand] = factors.get(operand, 0) + factor
        levels = self.levels
        terms = [(operand, factor) for operand, factor in factors.items() if factor]
        terms.sort(key=lambda term: levels.get(term[0], 0))
        return terms, constant

    # ---- division, comparison, logic

    def visit_FloorDiv(self, node: FloorDiv) -> str:
        a, b = self.visit(node.a), self.visit(node.b)
        return floored(self, "div", node.dtype, a, b, constant_operand(node.b, b))

    def visit_FloorMod(self, node: FloorMod) -> str:
        a, b = self.visit(node.a), self.visit(node.b)
        return floored(self, "rem", node.dtype, a, b, constant_operand(node.b, b))

    def visit_CompareExpr(self, node: CompareExpr) -> str:
        if dtypes.lanes_of(node.dtype) == 1:
            return self._compare(node)
        # Masks take long to emit, and unrolled copies of a statement share them.
        return self.known(node) or self._remembered(node, self._compare(node))

    def _remembered(self, node: Expr, name: str) -> str:
        return name if may_change(node) else self.remember(node, name)

    def _compare(self, node: CompareExpr) -> str:
        edge = compare_ramp(self, node)
        if edge is not None:
            return edge
        a, b = self.visit(node.a), self.visit(node.b)
        dtype, name = node.a.dtype, type(node).__name__
        if name == "And" and dtypes.lanes_of(dtype) > 1:
            return joined_masks(self, a, b, dtypes.lanes_of(dtype))
        known = known_truth(name, dtype, a, b)
        if known is not None:
            return known
        instruction = comparison_instruction(name, dtype)
        return self.pure(f"{instruction} {register_type(dtype)} {a}, {b}", a, b)

    def _and_or(self, node: CompareExpr, op: str) -> str:
        """Short-circuit when the second operand may fault."""
        lanes = dtypes.lanes_of(node.dtype)
        if lanes > 1 and reads_more(node.b, read := always_read(node.a)):
            first = self.visit(node.a)
            mask = first if op == "and" else self.not_(first, lanes)
            outer = self.already_read
            self.already_read = [*outer, *((load, self.mask) for load in read)]
            second = self.for_lanes(mask, lanes, node.b)
            self.already_read = outer
            if op == "and":
                return joined_masks(self, first, second, lanes)
            return self.pure(f"or <{lanes} x i1> {first}, {second}", first, second)
        if lanes > 1 or not needs_guard(node.b):
            return self.visit_CompareExpr(node)
        first = self.visit(node.a)
        if op == "and":
            return self.choose(first, lambda: self.visit(node.b), lambda: "false", "bool")
        return self.choose(first, lambda: "true", lambda: self.visit(node.b), "bool")

    def visit_And(self, node: And) -> str:
        return self._and_or(node, "and")

    def visit_Or(self, node: Or) -> str:
        return self._and_or(node, "or")

    def visit_Not(self, node: Not) -> str:
        a = self.visit(node.a)
        return self.pure(f"xor {register_type(node.dtype)} {a}, {constant_text(1, node.dtype)}", a)

    def _extremum(self, node: Any) -> str:
        predicates, single = self.target.has("avx512f"), self._single_extrema
        if self.target.has("sse2") and not single:
            operands = operands_to_test(node, predicates)
            if operands:
                return extremum_of_numbers(
                    self, node, operands, self.extremum_of_ordered, predicates
                )
            # Parts of a large tree would be computed in both ways, which takes more registers.
            self._single_extrema = operands is not None and not predicates
        a, b = self._unrounded(node.a), self._unrounded(node.b)
        self._single_extrema = single
        dtype, name = node.dtype, type(node).__name__.lower()
        kind = register_type(dtype)
        if dtypes.kind_of(dtype) == "float":
            if is_number(node.b):
                a, b = b, a
            test = "olt" if name == "min" else "ogt"
            return self.float_extremum(test, dtype, a, b, is_number(node.a, node.b))
        sign = "s" if dtypes.kind_of(dtype) == "int" else "u"
        suffix = intrinsic_suffix(dtype)
        return self.pure(f"call {kind} @llvm.{sign}{name}.{suffix}({kind} {a}, {kind} {b})", a, b)

    def visit_Min(self, node: Min) -> str:
        return self._rounded_late(node, self._extremum(node))

    def visit_Max(self, node: Max) -> str:
        return self._rounded_late(node, self._extremum(node))

    # ---- conditional values

    def visit_Select(self, node: Select) -> str:
        return self._rounded_late(node, self._selected(node))

    def _selected(self, node: Select) -> str:
        condition = self.visit(node.condition)
        a, b = self._unrounded(node.true_value), self._unrounded(node.false_value)
        return self.select(condition, node.condition.dtype, a, b, node.dtype)

    def choose(
        self, condition: str, yes: Callable[[], str], no: Callable[[], str], dtype: str
    ) -> str:
        """Evaluate one of two expressions, by a branch."""
        if condition in ("true", "false"):
            return yes() if condition == "true" else no()
        labels = self.label("then"), self.label("else"), self.label("join")
        results = []
        scopes = Scope("if"), Scope("if")
        # Both sides share the lines before the branch: one may use what the other hoisted.
        scopes[1].pre = scopes[0].pre
        self.enter(scopes[0])
        self.branch_if(condition, labels[0], labels[1])
        self.start_block(labels[0])
        results.append((yes(), self.block))
        self.branch(labels[2])
        self.leave()
        self.scopes.append(scopes[1])
        self._floor = len(self.scopes) - 1
        self.start_block(labels[1])
        results.append((no(), self.block))
        self.branch(labels[2])
        self.leave()
        self.start_block(labels[2])
        incoming = ", ".join(f"[ {value}, %{block} ]" for value, block in results)
        return self.here(f"phi {register_type(dtype)} {incoming}")

    def for_lanes(self, mask: str, lanes: int, expr: Expr) -> str:
        """Evaluate for the lanes of ``mask``; single elements are read behind a branch."""

        def emit() -> str:
            return str(self.under_mask(mask, lanes, lambda: self.visit(expr)))

        if not loads_scalars(expr):
            return emit()
        some = self.any_lane(self.within_mask(mask, lanes), lanes)
        zero = constant_text(0, expr.dtype)
        return self.choose(some, emit, lambda: zero, expr.dtype)

    def not_(self, mask: str, lanes: int) -> str:
        """The lanes that a mask leaves out."""
        return self.pure(f"xor <{lanes} x i1> {mask}, splat (i1 true)", mask)

    def within_mask(self, mask: str, lanes: int) -> str:
        """The lanes of ``mask`` that are on where this stands.

        An inner condition was simplified by what the outer one says, and says nothing without it.
        """
        if self.mask is None or self.mask[1] != lanes:
            return mask
        return joined_masks(self, self.mask[0], mask, lanes)

    def under_mask(self, mask: str, lanes: int, emit: Callable[[], T]) -> T:
        """Emit with only some lanes on."""
        outer = self.mask
        self.mask = (self.within_mask(mask, lanes), lanes)
        try:
            return emit()
        finally:
            self.mask = outer

    # ---- conversions

    def visit_Cast(self, node: Cast) -> str:
        if node.dtype == INDEX and is_vscale(node.value):
            return self.vscale(INDEX)
        value, source = self.visit(node.value), node.value.dtype
        whole = dtypes.is_integer(node.dtype) and dtypes.is_float(source)
        return self.convert(value, source, node.dtype, whole and is_clipped(node.value, node.dtype))

    # ---- vectors

    def visit_Broadcast(self, node: Broadcast) -> str:
        return self.broadcast(self.visit(node.value), node.value.dtype, node.lanes)

    def visit_Ramp(self, node: Ramp) -> str:
        dtype, kind = node.dtype, register_type(node.dtype)
        base = self.broadcast(self.visit(node.base), node.base.dtype, node.lanes)
        element = register_type(node.base.dtype)
        stride = node.stride
        if dtypes.is_float(dtype):
            raise CodegenError("a Ramp of floats has no code; cast an integer Ramp instead")
        if isinstance(node.lanes, ScalableLanes):
            steps = self._lane_numbers(node.base.dtype, node.lanes)
            if not is_const(stride, 1):
                factor = self.convert(self.visit(stride), stride.dtype, node.base.dtype)
                factor = self.broadcast(factor, node.base.dtype, node.lanes)
                steps = self.pure(f"mul {kind} {steps}, {factor}", steps, factor)
        elif isinstance(stride, IntImm):
            steps = lane_vector([stride.value * lane for lane in range(node.lanes)], element)
        else:
            lanes = lane_vector(list(range(node.lanes)), element)
            factor = self.broadcast(self.visit(stride), stride.dtype, node.lanes)
            steps = self.pure(f"mul {kind} {lanes}, {factor}", factor)
        return self.pure(f"add {kind} {base}, {steps}", base, steps)

    def _lane_numbers(self, dtype: str, lanes: int) -> str:
        """The numbers of a scalable vector's lanes, each in its lane."""
        vector = dtypes.vector_dtype(dtype, lanes)
        return self.pure(
            f"call {register_type(vector)} @llvm.stepvector.{intrinsic_suffix(vector)}()"
        )

    def visit_Shuffle(self, node: Shuffle) -> str:
        element = dtypes.element_of(node.vectors[0].dtype)
        values = []
        for vector in node.vectors:
            value = self.visit(vector)
            if dtypes.lanes_of(vector.dtype) == 1:
                kind = f"<1 x {register_type(element)}>"
                scalar = register_type(element)
                value = self.pure(f"insertelement {kind} poison, {scalar} {value}, i64 0", value)
            values.append((value, dtypes.lanes_of(vector.dtype)))
        joined, lanes = values[0]
        picks = list(node.indices)
        if len(values) == 2 and values[1][1] == lanes and len(picks) > 1:
            return self.pick(values[0][0], values[1][0], lanes, picks, register_type(element))
        for value, count in values[1:]:
            joined, lanes = self.concat(joined, lanes, value, count, register_type(element))
        if len(picks) == 1:
            kind = f"<{lanes} x {register_type(element)}>"
            return self.pure(f"extractelement {kind} {joined}, i64 {picks[0]}", joined)
        return self.shuffle(joined, lanes, picks, register_type(element))

    # ---- calls and lets

    def visit_Let(self, node: Let) -> str:
        self.bind(node)
        return str(self.visit(node.body))

    def vscale(self, dtype: str) -> str:
        """What the lanes of scalable vectors are multiples of, as an int32 or int64."""
        self.target.require_scalable_vectors()
        kind = register_type(dtype)
        return self.pure(f"call {kind} @llvm.vscale.{kind}()")

    def visit_Call(self, node: Call) -> str:
        handler = INTRINSICS.get(node.op.name)
        if handler is None:
            if node.op.name in MATH_FUNCTIONS:
                return self.rounded(self._math(node), node.dtype)
            raise CodegenError(
                f"the LLVM code generator has no code for {node.op.name!r}; it knows "
                f"{', '.join(sorted({*INTRINSICS, *MATH_FUNCTIONS}))}"
            )
        made = handler(self, node)
        return self.rounded(made, node.dtype) if node.op.name in _ROUNDED_CALLS else made

    def _math(self, node: Call) -> str:
        """Call our own vector math."""
        dtype = node.args[0].dtype
        if not dtypes.is_float(dtype):
            raise CodegenError(
                f"{node.op.name} takes floating-point numbers, got {dtype}; cast the argument"
            )
        if dtypes.is_scalable(dtype) and node.op.name in _FIXED_MATH:
            raise CodegenError(
                f"{node.op.name} of scalable vectors has no code; loop over the elements, or use "
                "vectors of a constant number of lanes"
            )
        element = "float64" if dtypes.element_of(dtype) == "float64" else "float32"
        lanes = dtypes.lanes_of(dtype)
        symbol = self.module.math(node.op.name, element, lanes)
        kind, result = register_type(dtype), register_type(node.dtype)
        args = [self.visit(arg) for arg in node.args]
        text = ", ".join(f"{kind} {arg}" for arg in args)
        return self.guarded(f"call {result} @{symbol}({text})", *args)
