"""Let programs with small floating-point types run on hardware that lacks them.

``FloatComputeLegalize`` computes in ``float32``: an operation on a type that isn't native takes
operands widened to ``float32`` and gives a ``float32``, which is rounded to the type as hardware
that has it would do. With ``excess`` it is rounded only where it is stored, or where the program
casts; code generators, which round what is native on paper only, are told by an attribute.
``FloatStorageLegalize``, to be run after it, then takes the types away altogether: buffers of them
become buffers of ``uint8``/``uint16``, and conversions become integer arithmetic on bits. Rounding
is to nearest, ties to even; what is too large becomes an infinity, or what its format has instead
(``ir.float_formats``).

``native`` names the types that the hardware computes with (for the storage pass: that it can load,
store and convert). Parameters keep their dtypes, since they say what a caller passes; the body sees
their memory through views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.ir import (
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    Let,
    Max,
    Min,
    Select,
    Shuffle,
    Var,
    call,
    cast,
    const,
    content_mask,
    contents,
    dtypes,
    maximum,
    minimum,
    or_,
    pre_order,
    select,
)
from tilewright.ir.float_formats import (
    EXPONENT,
    FINITE,
    FLOAT_FORMATS,
    IEEE,
    NUMBERS,
    UNSIGNED_ZERO,
    FloatFormat,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import EXCESS_PRECISION
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.formulas import in_simpler_operators
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import BlockRealize, BufferStore, DeclBuffer, LetStmt, Stmt
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.transform.effects import BufferMutator

WIDE = "float32"


def _others(start: str) -> tuple[str, ...]:
    """The small formats but for those whose names start so."""
    return tuple(name for name in FLOAT_FORMATS if not name.startswith(start))


class _FloatPass(FunctionTransform):
    def __init__(self, native: Sequence[str] = ("float16",)) -> None:
        for dtype in native:
            if not dtypes.is_float(dtype):
                raise LowerError(f"{self.name}: native types are floats, got {dtype!r}")
        self.native = tuple(native)

    def is_foreign(self, dtype: str) -> bool:
        """Whether the hardware lacks a type (or the type of a vector's lanes)."""
        element = dtypes.element_of(dtype)
        return element in FLOAT_FORMATS and element not in self.native

    def concerns(self, func: PrimFunc) -> bool:
        """Whether a function has anything of a type that the hardware lacks."""
        foreign = content_mask(*(name for name in FLOAT_FORMATS if name not in self.native))
        return any(self.is_foreign(b.dtype) for b in func.buffers) or bool(
            contents(func.body) & foreign
        )


def _like(element: str, dtype: str) -> str:
    return dtypes.vector_dtype(element, dtypes.lanes_of(dtype))


# ---- computing ----------------------------------------------------------------------------------


class FloatComputeLegalize(_FloatPass):
    """Do arithmetic on types other than ``native`` in ``promote_dtype``.

    Raises ``LowerError`` if that isn't native itself.
    """

    def __init__(
        self,
        native: Sequence[str] = ("float16",),
        *,
        excess: bool = False,
        promote_dtype: str = WIDE,
    ) -> None:
        super().__init__(native)
        self.excess = excess
        self.promote_dtype = promote_dtype
        if not dtypes.is_float(promote_dtype) or self.is_foreign(promote_dtype):
            raise LowerError(f"{self.name}: {promote_dtype!r} is no native float to compute in")

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if self.excess:
            func = func.replace(attrs={**func.attrs, EXCESS_PRECISION: True})
        return func.map_children(_Widener(self).visit) if self.concerns(func) else func


class BF16ComputeLegalize(FloatComputeLegalize):
    """Do arithmetic on ``bfloat16`` in ``float32``."""

    def __init__(self) -> None:
        super().__init__(_others("bfloat16"))


class FP8ComputeLegalize(FloatComputeLegalize):
    """Do arithmetic on floats of 8 bits in ``promote_dtype``, which should hold their numbers."""

    def __init__(self, promote_dtype: str = WIDE) -> None:
        super().__init__(_others("float8"), promote_dtype=promote_dtype)


_EXACT_CALLS = frozenset(
    "floor ceil trunc round nearbyint abs fabs copysign likely ignore_loop_partition "
    "reinterpret min_value max_value "
    "infinity vector_low vector_high vector_combine vector_reduce_max vector_reduce_min".split()
)
"""Calls whose results have a form in the type of their operands."""


class _Widener(BufferMutator):
    """Gives each expression of a foreign type as a ``float32``, or another ``promote_dtype``.

    ``visit`` gives what operations compute; ``wide`` the number of the type that it stands for.
    """

    def __init__(self, owner: FloatComputeLegalize) -> None:
        super().__init__()
        self.foreign = owner.is_foreign
        self.excess = owner.excess
        self.computed = owner.promote_dtype
        self.variables: dict[Var, Var] = {}

    def loose(self, expr: Expr) -> Expr:
        """An operand, in the wider type if its type is foreign; it may be rounded later."""
        made: Expr = self.visit(expr)
        return cast(made, _like(self.computed, made.dtype)) if self.foreign(made.dtype) else made

    def wide(self, expr: Expr) -> Expr:
        """An operand, in the wider type if its type is foreign, rounded to that."""
        if not self.foreign(expr.dtype) or self.excess or _is_rounded(expr):
            return self.loose(expr)
        if _chooses(expr):
            return self._choice(expr, self.wide)
        made = self.visit(expr)
        return Cast(made.dtype, Cast(expr.dtype, made))

    def _choice(self, node: Expr, operand: Callable[[Expr], Expr]) -> Expr:
        """A choice of values with the values as ``operand`` gives them."""
        if isinstance(node, Call):
            args = (self.visit(node.args[0]), *map(operand, node.args[1:]))
            return Call.of_fields(node.op, args, _like(self.computed, node.dtype))
        if type(node) is not Select:
            return node.map_children(operand)
        condition = node.condition
        return node.map_children(lambda c: self.visit(c) if c is condition else operand(c))

    def exact(self, expr: Expr) -> Expr:
        """An operand in its own dtype, rounded if it was computed."""
        if type(expr) is FloatImm:
            return expr
        made: Expr = self.visit(expr)
        if made.dtype == expr.dtype:
            return made
        if type(made) is Cast and made.value.dtype == expr.dtype:
            return made.value  # only widened
        return Cast(expr.dtype, made)

    def visit_Expr(self, node: Expr) -> Expr:
        if not _chooses(node):
            return node.map_children(self.wide)
        # Rounding keeps order, so that of two the same one is greater before and after it; but what
        # overflows to NaN is no longer the greater one.
        compares = isinstance(node, (Min, Max)) and _overflows_to_nan(node.dtype)
        return self._choice(node, self.wide if compares else self.loose)

    def visit_Var(self, node: Var) -> Expr:
        made = self.variables.get(node)
        return node if made is None else made

    def visit_FloatImm(self, node: FloatImm) -> Expr:
        if not self.foreign(node.dtype):
            return node
        return FloatImm(self.computed, round_to(node.value, node.dtype))

    def visit_Cast(self, node: Cast) -> Expr:
        value = self.wide(node.value) if self.foreign(node.value.dtype) else self.visit(node.value)
        if not self.foreign(node.dtype):
            return node if value is node.value else cast(value, node.dtype)
        if type(value) is Cast and value.value.dtype == node.dtype:
            return value
        # The program rounds here.
        return Cast(_like(self.computed, node.dtype), Cast(node.dtype, value))

    def visit_Call(self, node: Call) -> Expr:
        if _chooses(node) and self.foreign(node.dtype):
            return self._choice(node, self.loose)
        name = node.op.name
        if name == "nextafter" and self.foreign(node.dtype):  # which is next depends on the type
            made: Expr = self.visit(in_simpler_operators(node))
            return made
        # Others see bits (reinterpret, calls of foreign code): they get the type they ask for.
        computes = (
            node.op.result in ("same", "bool", "last")
            or name.startswith("vector_")
            or name == "infinity"
        )
        computes = computes and node.op.effect == "pure" and name != "dot_accumulate"
        args = tuple(map(self.wide if computes else self.exact, node.args))
        if not self.foreign(node.dtype):
            same = all(a is b for a, b in zip(args, node.args))
            return node if same else Call.of_fields(node.op, args, node.dtype)
        if not computes:
            return Cast(_like(self.computed, node.dtype), Call.of_fields(node.op, args, node.dtype))
        return Call.of_fields(node.op, args, _like(self.computed, node.dtype))

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        made = node.map_children(self.visit)
        return Cast(_like(self.computed, made.dtype), made) if self.foreign(made.dtype) else made

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        indices = tuple(map(self.visit, node.indices))
        return BufferStore(self.visit(node.buffer), self.exact(node.value), indices)

    def visit_LetStmt(self, node: LetStmt) -> Any:
        return self._let(node)

    def visit_Let(self, node: Let) -> Any:
        return self._let(node)

    def _let(self, node: Let | LetStmt) -> Let | LetStmt:
        if not self.foreign(node.var.dtype):
            return node.map_children(self.visit)
        value = self.wide(node.value)
        var = self.variables[node.var] = Var(node.var.name, value.dtype)
        body = self.wide(node.body) if isinstance(node, Let) else self.visit(node.body)
        return node.replace(var=var, value=value, body=body)


def _chooses(node: Expr) -> bool:
    """Whether an expression is one of its operands."""
    if isinstance(node, Call):
        return node.op.name == "if_then_else"
    return isinstance(node, (Min, Max, Select, Broadcast, Shuffle))


def _overflows_to_nan(dtype: str) -> bool:
    form = FLOAT_FORMATS.get(dtypes.element_of(dtype))
    return form is not None and form.special not in (IEEE, NUMBERS)


def _is_rounded(node: Expr) -> bool:
    """Whether an expression is a number of its type without more ado."""
    if isinstance(node, Call):
        form = FLOAT_FORMATS.get(dtypes.element_of(node.dtype))
        has_zero = form is None or form.special != EXPONENT  # floors may be zero
        return (node.op.name in _EXACT_CALLS and has_zero) or node.op.effect != "pure"
    return isinstance(node, (FloatImm, BufferLoad, Var, Cast, Let))


# ---- storing ------------------------------------------------------------------------------------


class FloatStorageLegalize(_FloatPass):
    """Keep types other than ``native`` as unsigned integers, and convert by bit arithmetic."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not self.concerns(func):
            return func
        rewriter = _BitRewriter(self)
        for buffer in func.buffers:
            if self.is_foreign(buffer.dtype):
                rewriter.view(buffer)
        body = rewriter.visit(func.body)
        # A root block can't use what is declared around it.
        root = body if isinstance(body, BlockRealize) and not body.iter_values else None
        inner = body if root is None else root.block.body
        for buffer in reversed(func.buffers):
            made = rewriter.views.get(buffer)
            if made is not None and any(item is made for item in pre_order(body)):
                inner = DeclBuffer(made, inner)
        if root is None:
            return func.replace(body=inner)
        return func.replace(body=root.replace(block=root.block.replace(body=inner)))


class BF16StorageLegalize(FloatStorageLegalize):
    """Keep ``bfloat16`` as ``uint16``."""

    def __init__(self) -> None:
        super().__init__(_others("bfloat16"))


class FP8StorageLegalize(FloatStorageLegalize):
    """Keep floats of 8 bits as ``uint8``."""

    def __init__(self) -> None:
        super().__init__(_others("float8"))


class _BitRewriter(BufferMutator):
    def __init__(self, owner: _FloatPass) -> None:
        super().__init__()
        self.owner = owner
        self.foreign = owner.is_foreign
        self.views: dict[Buffer, Buffer] = {}
        self.variables: dict[Var, Var] = {}

    def _bits(self, dtype: str) -> str:
        element, lanes = dtypes.split_dtype(dtype)
        return dtypes.vector_dtype(stored_as(element), lanes)

    def view(self, buffer: Buffer) -> None:
        """Let a parameter's memory be seen as integers."""
        if dtypes.bits_of(buffer.dtype) < 8:
            raise LowerError(
                f"{self.owner.name}: elements of the parameter {buffer.name!r} share bytes: "
                f"they are {buffer.dtype}. Pass uint8, and take the bits out of it"
            )
        made = buffer.replace(dtype=self._bits(buffer.dtype), data=buffer.data)
        self.buffers[buffer] = self.views[buffer] = made

    def rewrite_buffer(self, buffer: Buffer) -> Buffer:
        made = super().rewrite_buffer(buffer)
        if not self.foreign(buffer.dtype):
            return made
        return made.replace(dtype=self._bits(buffer.dtype), data=buffer.data)

    def visit_Expr(self, node: Expr) -> Expr:
        if self.foreign(node.dtype):
            raise LowerError(
                f"{self.owner.name}: {node!r} computes with {node.dtype}; "
                "run FloatComputeLegalize first"
            )
        return node.map_children(self.visit)

    def visit_FloatImm(self, node: FloatImm) -> Expr:
        if not self.foreign(node.dtype):
            return node
        return const(number_bits(node.value, node.dtype), self._bits(node.dtype))

    def visit_Var(self, node: Var) -> Expr:
        if self.foreign(node.dtype):
            raise LowerError(
                f"{self.owner.name}: {node.name!r} is a scalar of type {node.dtype}, which has no "
                "form without it; pass a buffer, or a float32"
            )
        return self.variables.get(node, node)

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        return node.map_children(self.visit)  # as bits

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        return node.map_children(self.visit)

    def visit_Cast(self, node: Cast) -> Expr:
        value = self.visit(node.value)
        if self.foreign(node.value.dtype):
            value = bits_to_float32(value, dtypes.element_of(node.value.dtype))
        if not self.foreign(node.dtype):
            return node if value is node.value else cast(value, node.dtype)
        return float32_to_bits(cast(value, _like(WIDE, node.dtype)), dtypes.element_of(node.dtype))

    def visit_Call(self, node: Call) -> Expr:
        if node.op.name != "reinterpret":
            foreign = [arg.dtype for arg in node.args if self.foreign(arg.dtype)]
            if foreign or self.foreign(node.dtype):
                raise LowerError(
                    f"{self.owner.name}: {node.op.name} takes or gives "
                    f"{(*foreign, node.dtype)[0]}, which has no form without the type"
                )
            return node.map_children(self.visit)
        dtype = self._bits(node.dtype) if self.foreign(node.dtype) else node.dtype
        value = self.visit(node.args[0])
        return value if value.dtype == dtype else call("reinterpret", value, dtype=dtype)


def stored_as(element: str) -> str:
    """The integers that numbers of a small format are kept as: of a byte at least."""
    return f"uint{max(8, FLOAT_FORMATS[element].bits)}"


def _numbers_like(dtype: str) -> Callable[[int], Expr]:
    """What makes integers as wide as ``float32``, as many as ``dtype`` has lanes."""
    wide = _like("uint32", dtype)
    return lambda value: const(value, wide)


def bits_to_float32(bits: Expr, dtype: str) -> Expr:
    """Widen a small float given by its bits to ``float32``; exact."""
    form = FLOAT_FORMATS[dtype]
    wide = _like("uint32", bits.dtype)

    number = _numbers_like(bits.dtype)
    value = Var("bits", wide)
    moved = 23 - form.mantissa_bits
    if form.exponent_bits == 8:
        made = value << number(moved)
        if form.special == EXPONENT:
            made = select(value.__eq__(number(0)), number(0x00400000), made)
            made = select(value.__eq__(number(form.nan)), number(0x7FC00000), made)
        return Let(value, cast(bits, wide), call("reinterpret", made, dtype=_like(WIDE, wide)))
    sign = (value >> number(form.bits - 1)) << number(31)
    rest = value & number((1 << (form.bits - 1)) - 1)
    normal = (rest << number(moved)) + number((127 - form.bias) << 23)
    scale = const(2.0 ** (1 - form.bias - form.mantissa_bits), _like(WIDE, wide))
    subnormal = call("reinterpret", cast(rest, _like(WIDE, wide)) * scale, dtype=wide)
    made = select(rest < number(1 << form.mantissa_bits), subnormal, normal)
    if form.special == FINITE:
        made = select(rest.__eq__(number(form.nan)), number(0x7FC00000), made)
    elif form.special == UNSIGNED_ZERO:
        made = select(value.__eq__(number(form.nan)), number(0x7FC00000), made)
    elif form.special == IEEE:
        # Infinities keep a zero mantissa, NaNs theirs.
        special = number(0x7F800000) | (rest << number(moved))
        made = select(rest >= number(form.overflow), special, made)
    return Let(value, cast(bits, wide), call("reinterpret", made | sign, dtype=_like(WIDE, wide)))


def float32_to_bits(value: Expr, dtype: str) -> Expr:
    """Round a ``float32`` to a small format, given by its bits: to nearest, ties to even."""
    form = FLOAT_FORMATS[dtype]
    wide = _like("uint32", value.dtype)

    number = _numbers_like(value.dtype)
    bits = Var("bits", wide)
    size = bits & number(0x7FFFFFFF)
    if form.special == EXPONENT:
        made = _power_of_two(bits, form, number)
    else:
        made = _signed(
            bits, size, minimum(_rounded(size, form, number), number(form.overflow)), form
        )
    source = call("reinterpret", value, dtype=wide)
    return Let(bits, source, cast(made, _like(stored_as(dtype), wide)))


def _rounded(size: Expr, form: FloatFormat, number: Callable[[int], Expr]) -> Expr:
    """The bits of a number without its sign, beyond the format's greatest ones too."""
    moved = 23 - form.mantissa_bits
    odd = (size >> number(moved)) & number(1)
    rounded: Expr = (size + number((1 << (moved - 1)) - 1) + odd) >> number(moved)
    if form.exponent_bits == 8:
        return rounded
    normal = rounded - number((127 - form.bias) << form.mantissa_bits)
    least = number((127 + 1 - form.bias) << 23)  # the smallest normal number
    return select(size < least, _subnormal(size, form, number), normal)


def _signed(bits: Expr, size: Expr, made: Expr, form: FloatFormat) -> Expr:
    """Give rounded bits their sign, and NaNs theirs; ``size`` has no sign."""
    number = _numbers_like(bits.dtype)
    sign = (bits >> number(31)) << number(form.bits - 1)
    is_nan = size > number(0x7F800000)
    if form.special == UNSIGNED_ZERO:
        plain = or_(made.__eq__(number(0)), made.__eq__(number(form.overflow)))
        return select(is_nan, number(form.nan), select(plain, made, made | sign))
    if form.special == NUMBERS:  # as `ml_dtypes` has it: a zero of the other sign
        return select(is_nan, sign ^ number(1 << (form.bits - 1)), made | sign)
    return select(is_nan, number(form.nan), made) | sign


def _power_of_two(bits: Expr, form: FloatFormat, number: Callable[[int], Expr]) -> Expr:
    """The exponent of the nearest power of two, the greater of two; below them all the least.

    What is not positive has none and becomes NaN.
    """
    half = select(bits < number(1 << 23), number((1 << 22) - 1), number(1 << 22))
    # The bits of NaNs and of negative numbers are above infinity's, whose exponent is NaN here.
    rounded = (minimum(bits, number(0x7F800000)) + half) >> number(23)
    return select(bits.__eq__(number(0)), number(form.nan), rounded)


def _subnormal(size: Expr, form: FloatFormat, number: Callable[[int], Expr]) -> Expr:
    """The bits of a number below the format's normal range: its mantissa shifted into place."""
    mantissa = (size & number(0x7FFFFF)) | number(0x800000)
    # The last bit of the format is worth 2 ** (1 - bias - mantissa_bits).
    shift = number(127 + 1 - form.bias + 23 - form.mantissa_bits) - (size >> number(23))
    # Other numbers get some shift too, which must be one: their result is not used.
    shift = maximum(minimum(shift, number(31)), number(1))
    odd = (mantissa >> shift) & number(1)
    half = (number(1) << (shift - number(1))) - number(1)
    made: Expr = (mantissa + half + odd) >> shift
    return made


def _numpy(value: float, dtype: str) -> np.ndarray[Any, Any]:
    known: dict[str, Any] = {"float16": np.float16}
    with np.errstate(over="ignore"):  # what is too large is infinite
        return np.asarray(value, np.float64).astype(known.get(dtype) or getattr(ml_dtypes, dtype))


def round_to(value: float, dtype: str) -> float:
    """Round a Python number to a small format."""
    return float(_numpy(value, dtype))


def number_bits(value: float, dtype: str) -> int:
    """The bits of a Python number in a small format."""
    return int(_numpy(value, dtype).view(stored_as(dtype)))
