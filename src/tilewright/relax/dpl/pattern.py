"""Patterns of graph values, and whether a value matches one.

A pattern is built as the value would be: ``is_op("relax.add")(is_op("relax.matmul")(x, w), b)``
with ``x = wildcard()`` and so on. Matching follows variables to the values that they are bound to
(``var2val``), tries every way (both arms of ``|``, both orders of ``add`` and ``multiply``), and a
pattern that occurs in several places matches one value there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tilewright.ir import ExprLike, GlobalVar, as_expr, dtypes
from tilewright.relax.analysis import get_var2val
from tilewright.relax.dpl.matching import (
    COMMUTATIVE,
    OPEN_CONTEXTS,
    Bindings,
    Matching,
    as_tuples,
    has_extents,
    info_of,
)
from tilewright.relax.expr import (
    Constant,
    DataflowVar,
    ExternFunc,
    Function,
    FunctionRef,
    LocalFunction,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    Tuple,
    TupleGetItem,
)
from tilewright.relax.registry import RelaxOp, get_op
from tilewright.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    same_struct_info,
)
from tilewright.support.calling import other_names
from tilewright.support.errors import VerifyError


class DFPattern:
    """Base of patterns."""

    def __init__(self) -> None:
        context = OPEN_CONTEXTS.current()
        if context is not None:
            context.add_pattern(self)

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Go through the ways in which this matches, apart from what is known of the pattern."""
        raise NotImplementedError(f"{type(self).__name__} must define ways(operand, matching)")

    def parts(self) -> Sequence[DFPattern]:
        """The patterns inside this one."""
        return ()

    # ---- building -------------------------------------------------------------------------

    def __call__(self, *args: DFPattern, varg_default_wildcard: bool = False) -> CallPattern:
        """Match a call whose callee matches this; further operands are anything if so stated."""
        return CallPattern(self, args, varg_default_wildcard)

    def __getitem__(self, index: int | None) -> TupleGetItemPattern:
        """Match an item of a tuple that matches this; ``None`` is any item."""
        return TupleGetItemPattern(self, index)

    def __or__(self, other: DFPattern) -> OrPattern:
        return OrPattern(self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        return NotPattern(self)

    def __add__(self, other: DFPattern) -> CallPattern:
        return ExprPattern(get_op("add"))(self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        return ExprPattern(get_op("subtract"))(self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        return ExprPattern(get_op("multiply"))(self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        return ExprPattern(get_op("divide"))(self, other)

    def has_attr(self, attrs: Mapping[str, object]) -> AttrPattern:
        """Match what this does if the call has these attributes."""
        return AttrPattern(self, attrs)

    def has_struct_info(self, struct_info: StructInfo) -> StructInfoPattern:
        """Match what this does if the value has this struct info."""
        return StructInfoPattern(self, struct_info)

    def has_ty(self, ty: StructInfo) -> StructInfoPattern:
        """``has_struct_info``, as newer versions of TVM call it."""
        return StructInfoPattern(self, ty)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """Match what this does if the value is a tensor of this dtype."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[ExprLike]) -> ShapePattern:
        """Match what this does if the value is a tensor (or a shape) of these extents."""
        return ShapePattern(self, shape)

    def dup(self) -> DFPattern:
        """Copy the pattern: the copy, parts included, may match other values than this one."""
        made = type(self).__new__(type(self))
        copies = {part: part.dup() for part in dict.fromkeys(self.parts())}
        for name, value in vars(self).items():
            if isinstance(value, tuple) and value and isinstance(value[0], DFPattern):
                value = tuple(copies[item] for item in value)
            elif isinstance(value, DFPattern):
                value = copies[value]
            setattr(made, name, value)
        DFPattern.__init__(made)
        return made

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """In a context, demand that ``other`` uses this, as operand ``index`` if that is given."""
        return PatternSeq([self]).used_by(other, index)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Like ``used_by``, and nothing else uses it."""
        return PatternSeq([self]).only_used_by(other, index)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def fork_to(self, *args: DFPattern) -> None:
        """Demand that each of the others uses this."""
        for other in args:
            self.used_by(other)

    def same_shape_as(self, *args: DFPattern) -> SameShapeConstraint:
        """In a context, demand that this and others match tensors of one shape."""
        return SameShapeConstraint(self, *args)

    # ---- matching -------------------------------------------------------------------------

    def match(self, expr: RelaxExpr, var2val: Bindings | None = None) -> bool:
        """Whether an expression matches; variables stand for their values in ``var2val``."""
        return Matching(var2val).matches(self, expr)

    def extract_matched_expr(
        self, expr: RelaxExpr, var2val: Bindings | None = None
    ) -> dict[DFPattern, RelaxExpr] | None:
        """Return what each pattern matched, variables followed to their values; ``None`` if not."""
        matching = Matching(var2val)
        if not matching.matches(self, expr):
            return None
        return {pattern: matching.value(found) for pattern, found in matching.found.items()}


class PatternSeq:
    """Patterns in a chain, each used by the next one, and by nothing else if ``only_use``.

    Raises ``VerifyError`` for several patterns outside of a context.
    """

    def __init__(self, patterns: Sequence[DFPattern], only_use: bool = False) -> None:
        self.patterns = tuple(patterns)
        for source, user in zip(self.patterns, self.patterns[1:]):
            _open_context("a chain of patterns").add_edge(source, user, -1, only_use)

    def dup(self) -> PatternSeq:
        """Copy the patterns and their demands: the copy may match other values."""
        made = PatternSeq(())
        made.patterns = tuple(pattern.dup() for pattern in self.patterns)
        copies = dict(zip(self.patterns, made.patterns))
        if len(copies) > 1:
            _open_context("a chain of patterns").copy_edges(copies)
        return made

    def __getitem__(self, index: int) -> DFPattern:
        return self.patterns[index]

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Demand that ``other`` uses the last of these."""
        return self._then(other, index, only=False)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Demand that ``other``, and nothing else, uses the last of these."""
        return self._then(other, index, only=True)

    def _then(self, other: DFPattern | PatternSeq, index: int, only: bool) -> PatternSeq:
        context = _open_context("used_by")
        following = other.patterns if isinstance(other, PatternSeq) else (other,)
        context.add_edge(self.patterns[-1], following[0], index, only)
        made = PatternSeq(())
        made.patterns = (*self.patterns, *following)
        return made

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)


def _open_context(what: str) -> Any:
    context = OPEN_CONTEXTS.current()
    if context is None:
        raise VerifyError(f"{what} is for a context: say so inside `with PatternContext() as ctx:`")
    return context


class DFConstraint:
    """Base of demands on what several patterns of a context match.

    Raises ``VerifyError`` outside of one.
    """

    def __init__(self, *args: DFPattern) -> None:
        self.args = args
        _open_context(type(self).__name__).add_constraint(self)

    def holds(self, operands: Sequence[RelaxExpr]) -> bool:
        """Whether what the patterns matched meets the demand."""
        raise NotImplementedError(f"{type(self).__name__} must define holds(operands)")


class SameShapeConstraint(DFConstraint):
    """What the patterns match has one shape: extents are provably equal."""

    def holds(self, operands: Sequence[RelaxExpr]) -> bool:
        """Compare extents with those of the first."""
        with suppress(VerifyError):  # no known shape
            return all(has_extents(operand, operands[0].shape) for operand in operands)
        return False


class WildcardPattern(DFPattern):
    """Anything."""

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Match."""
        yield


class ExprPattern(DFPattern):
    """One expression, or an operator as the callee of a call."""

    def __init__(self, expr: RelaxExpr | RelaxOp) -> None:
        super().__init__()
        self.expr = expr

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Compare identities."""
        if operand is self.expr or matching.value(operand) is self.expr:
            yield


class VarPattern(DFPattern):
    """A variable, of this name if one is given, whatever it is bound to."""

    kind: type[RelaxVar] = RelaxVar

    def __init__(self, name_hint: str = "") -> None:
        super().__init__()
        self.name = name_hint

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Look at the operand itself."""
        if isinstance(operand, self.kind) and self.name in ("", operand.name):
            yield


class DataflowVarPattern(VarPattern):
    """A variable of a dataflow block."""

    kind = DataflowVar


class ConstantPattern(DFPattern):
    """A constant tensor."""

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Look at the value."""
        if isinstance(matching.value(operand), Constant):
            yield


class _FunctionPattern(DFPattern):
    """A function of a ``kind``, called or referred to, of the name that is given, if any."""

    kind: type[GlobalVar | ExternFunc]

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self._wanted = wanted

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Look at a callee, or at a reference to a function."""
        callee: object = operand.callee if isinstance(operand, FunctionRef) else operand
        if isinstance(callee, self.kind):
            name = callee.name if isinstance(callee, GlobalVar) else callee.global_symbol
            if self._wanted in ("", name):
                yield


class GlobalVarPattern(_FunctionPattern):
    """A function of the module, of this name if one is given."""

    kind = GlobalVar

    def __init__(self, name_hint: str = "") -> None:
        super().__init__(name_hint)
        self.name = name_hint


class ExternFuncPattern(_FunctionPattern):
    """A function of a library, of this symbol if one is given."""

    kind = ExternFunc

    def __init__(self, global_symbol: str = "") -> None:
        super().__init__(global_symbol)
        self.global_symbol = global_symbol


class CallPattern(DFPattern):
    """A call of what matches ``op``."""

    def __init__(
        self, op: DFPattern, args: Sequence[DFPattern], varg_default_wildcard: bool = False
    ) -> None:
        super().__init__()
        self.op = op
        self.args = tuple(args)
        self.varg_default_wildcard = varg_default_wildcard
        for arg in self.args:
            if not isinstance(arg, DFPattern):
                raise VerifyError(
                    f"the operands of a call's pattern are patterns, got {type(arg).__name__} "
                    f"{arg!r}; is_expr(...) matches one expression"
                )

    def parts(self) -> Sequence[DFPattern]:
        """Callee and operands."""
        return (self.op, *self.args)

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Match callee and operands; ``add`` and ``multiply`` in both orders."""
        call = matching.value(operand)
        if not isinstance(call, RelaxCall):
            return
        count = len(self.args)
        if len(call.args) < count or (len(call.args) > count and not self.varg_default_wildcard):
            return
        for _ in matching.ways(self.op, call.op):
            yield from matching.all_ways(self.args, call.args)
            if count == 2 and isinstance(call.op, RelaxOp) and call.op.key in COMMUTATIVE:
                yield from matching.all_ways(self.args, call.args[::-1])


class FunctionPattern(DFPattern):
    """A graph function, or one inside of a function, by its parameters and its result."""

    def __init__(self, params: Sequence[DFPattern], body: DFPattern) -> None:
        super().__init__()
        self.params = tuple(params)
        self.body = body

    def parts(self) -> Sequence[DFPattern]:
        """Parameters and result."""
        return (*self.params, self.body)

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Match the parameters, then the result, through the function's own bindings."""
        found: object = matching.value(operand)
        function = found.func if isinstance(found, LocalFunction) else found
        if not isinstance(function, Function) or len(function.params) != len(self.params):
            return
        # Variables are bound once, so a function's own may be known outside of it.
        matching.values = {**matching.values, **get_var2val(function)}
        for _ in matching.all_ways(self.params, function.params):
            yield from matching.ways(self.body, function.body.body)


class TuplePattern(DFPattern):
    """A tuple written out, item by item."""

    def __init__(self, fields: Sequence[DFPattern]) -> None:
        super().__init__()
        self.fields = tuple(fields)

    def parts(self) -> Sequence[DFPattern]:
        """The items."""
        return self.fields

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Match all items."""
        found = matching.value(operand)
        if isinstance(found, Tuple) and len(found.fields) == len(self.fields):
            yield from matching.all_ways(self.fields, found.fields)


class UnorderedTuplePattern(TuplePattern):
    """A tuple written out, its items in any order."""

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Match each pattern to an item of its own."""
        found = matching.value(operand)
        if isinstance(found, Tuple) and len(found.fields) == len(self.fields):
            yield from self._assign(self.fields, list(found.fields), matching)

    def _assign(
        self, patterns: Sequence[DFPattern], items: list[RelaxExpr], matching: Matching
    ) -> Iterator[None]:
        if not patterns:
            yield
            return
        for position, item in enumerate(items):
            rest = items[:position] + items[position + 1 :]
            for _ in matching.ways(patterns[0], item):
                yield from self._assign(patterns[1:], rest, matching)


class TupleGetItemPattern(DFPattern):
    """An item of a tuple; ``index`` ``None`` is any."""

    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        super().__init__()
        self.tuple_value = tuple_value
        self.index = index

    @property
    def tuple(self) -> DFPattern:
        """The tuple, under TVM's name."""
        return self.tuple_value

    def parts(self) -> Sequence[DFPattern]:
        """The tuple."""
        return (self.tuple_value,)

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Match the tuple."""
        found = matching.value(operand)
        if isinstance(found, TupleGetItem) and self.index in (None, found.index):
            yield from matching.ways(self.tuple_value, found.tuple_value)


class _PairPattern(DFPattern):
    """Two patterns of one operand."""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        super().__init__()
        self.left, self.right = left, right

    def parts(self) -> Sequence[DFPattern]:
        """The two patterns."""
        return (self.left, self.right)


class OrPattern(_PairPattern):
    """Either of two patterns."""

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Try the left one first."""
        yield from matching.ways(self.left, operand)
        yield from matching.ways(self.right, operand)


class AndPattern(_PairPattern):
    """Both of two patterns."""

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Match both."""
        for _ in matching.ways(self.left, operand):
            yield from matching.ways(self.right, operand)


class NotPattern(DFPattern):
    """Anything that a pattern doesn't match."""

    def __init__(self, to_reject: DFPattern) -> None:
        super().__init__()
        self.reject = to_reject

    def parts(self) -> Sequence[DFPattern]:
        """The pattern that must not match."""
        return (self.reject,)

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Try in a copy: what is rejected leaves nothing behind."""
        attempt = Matching(matching.values)
        attempt.found.update(matching.found)
        if not attempt.matches(self.reject, operand):
            yield


class _Constraint(DFPattern):
    """Base of patterns that demand something more of what another one matches."""

    def __init__(self, pattern: DFPattern) -> None:
        super().__init__()
        self.pattern = pattern

    def parts(self) -> Sequence[DFPattern]:
        """The other pattern."""
        return (self.pattern,)

    def holds(self, operand: RelaxExpr, matching: Matching) -> bool:
        """Whether the demand is met."""
        raise NotImplementedError(f"{type(self).__name__} must define holds(operand, matching)")

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Check the demand first."""
        if self.holds(operand, matching):
            yield from matching.ways(self.pattern, operand)


class StructInfoPattern(_Constraint):
    """What a pattern matches and has this struct info."""

    @other_names(struct_info="ty")
    def __init__(self, pattern: DFPattern, ty: StructInfo) -> None:
        super().__init__(pattern)
        self.struct_info = self.ty = ty

    def holds(self, operand: RelaxExpr, matching: Matching) -> bool:
        """Compare struct infos over the same variables."""
        info = info_of(operand)
        return info is not None and same_struct_info(info, self.struct_info)


class DataTypePattern(_Constraint):
    """What a pattern matches and is a tensor of this dtype."""

    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        super().__init__(pattern)
        dtypes.split_dtype(dtype)
        self.dtype = dtype

    def holds(self, operand: RelaxExpr, matching: Matching) -> bool:
        """Compare dtypes."""
        info = info_of(operand)
        return isinstance(info, TensorStructInfo) and info.dtype == self.dtype


class ShapePattern(_Constraint):
    """What a pattern matches and has these extents."""

    def __init__(self, pattern: DFPattern, shape: Sequence[ExprLike]) -> None:
        super().__init__(pattern)
        self.shape = tuple(as_expr(extent, "int64") for extent in shape)

    def holds(self, operand: RelaxExpr, matching: Matching) -> bool:
        """Compare extents; symbolic ones must be provably equal."""
        return has_extents(operand, self.shape)


class PrimArrPattern(DFPattern):
    """A shape of these extents."""

    def __init__(self, shape: Sequence[ExprLike]) -> None:
        super().__init__()
        self.fields = tuple(as_expr(extent, "int64") for extent in shape)

    def ways(self, operand: RelaxExpr, matching: Matching) -> Iterator[None]:
        """Compare extents."""
        found = matching.value(operand)
        if isinstance(found, ShapeExpr) and has_extents(found, self.fields):
            yield


class AttrPattern(_Constraint):
    """A call that a pattern matches and that has these attributes."""

    def __init__(self, pattern: DFPattern, attrs: Mapping[str, object]) -> None:
        super().__init__(pattern)
        self.attrs = dict(attrs)

    def holds(self, operand: RelaxExpr, matching: Matching) -> bool:
        """Compare the attributes that are asked for."""
        call = matching.value(operand)
        return isinstance(call, RelaxCall) and all(
            name in call.attrs and as_tuples(call.attrs[name]) == as_tuples(value)
            for name, value in self.attrs.items()
        )
