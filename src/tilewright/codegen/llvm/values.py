"""Types, values and places: what :mod:`builder` and the math library compute with.

A value is an LLVM operand with its type. Types tell signed from unsigned, so operators know which
division, shift, comparison or extension is meant. A place is memory for one value: a variable, a
field of a struct, an element of an array, a global; in arithmetic it stands for what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from tilewright.codegen.llvm.types import float_text
from tilewright.codegen.llvm.writer import Writer
from tilewright.ir import least_lanes
from tilewright.support.errors import CodegenError

# Orders of atomic accesses, by LLVM's names.
RELAXED, ACQUIRE, RELEASE = "monotonic", "acquire", "release"
ACQUIRE_RELEASE, SEQUENTIAL = "acq_rel", "seq_cst"


@dataclass(frozen=True)
class Type:
    """A type: how LLVM spells it, its bytes, whether its integers are signed, or it is a float."""

    text: str
    bytes: int = 0
    signed: bool = False
    is_float: bool = False
    element: Type | None = None
    """What an array or a vector holds."""
    lanes: int = 1
    """More in a vector."""

    def __str__(self) -> str:
        return self.text

    @property
    def is_pointer(self) -> bool:
        """Whether values are addresses."""
        return self.text == "ptr"

    @property
    def passed(self) -> str:
        """What is passed for it: structs by their address."""
        return self.text


VOID, BOOL, PTR = Type("void"), Type("i1"), Type("ptr", 8)
I8, I16, I32, I64 = (Type(f"i{8 * size}", size, signed=True) for size in (1, 2, 4, 8))
U8, U16, U32, U64 = (Type(f"i{8 * size}", size) for size in (1, 2, 4, 8))
HALF, FLOAT, DOUBLE = (
    Type(name, size, is_float=True) for name, size in (("half", 2), ("float", 4), ("double", 8))
)


def array(count: int, element: Type) -> Type:
    """Return the type of so many elements in a row."""
    return Type(f"[{count} x {element.text}]", count * element.bytes, element=element)


@cache
def vector(lanes: int, element: Type) -> Type:
    """Return the type of so many lanes; of one, the element itself.

    A scalable vector has the bytes of the least one, which is enough to compare types by size.
    """
    if lanes == 1:
        return element
    text, size = f"<{lanes} x {element.text}>", least_lanes(lanes) * element.bytes
    return Type(text, size, element.signed, element.is_float, element, lanes)


def _plain_number(value: float, kind: Type) -> str:
    if kind.is_pointer and value == 0:
        return "null"
    scalar = kind.element or kind
    if scalar is BOOL:
        text = "true" if value else "false"
    else:
        text = float_text(value, scalar is DOUBLE) if kind.is_float else str(int(value))
    return text if kind.lanes == 1 else f"splat ({scalar.text} {text})"


_number = lru_cache(maxsize=4096)(_plain_number)


def number_text(value: float, kind: Type) -> str:
    """Return the text of a number; it is in all lanes of a vector."""
    # As a key, -0.0 would be 0.0.
    return _number(value, kind) if value else _plain_number(value, kind)


class Struct(Type):
    """A struct, in C's layout, whose fields have names. A parameter of it is the address of one.

    Without a name of its own, it is spelled out wherever it is used.
    """

    def __init__(self, name: str, /, **fields: Type) -> None:
        contents = f"{{ {', '.join(kind.text for kind in fields.values())} }}"
        super().__init__(f"%{name}" if name else contents)
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "declaration", f"%{name} = type {contents}" if name else "")

    fields: dict[str, Type]
    declaration: str

    @property
    def passed(self) -> str:
        """The type as which a struct is passed: a pointer."""
        return PTR.text

    def position(self, field: str) -> int:
        """Return the number of a field."""
        if field not in self.fields:
            known = ", ".join(self.fields)
            raise CodegenError(f"{self.text} has no field {field!r}; it has {known}")
        return list(self.fields).index(field)

    def initial(self, /, **values: int | str) -> str:
        """Return contents: for each field a number, or the name of a global; all must be there."""
        if values.keys() != self.fields.keys():
            raise CodegenError(
                f"a constant of {self.text} must have the fields {', '.join(self.fields)}; "
                f"got {', '.join(values)}"
            )
        cells = (f"{kind.text} {values[field]}" for field, kind in self.fields.items())
        return f"{{ {', '.join(cells)} }}"

    def constant(self, /, **values: int | str) -> str:
        """Return contents with their type, as they stand in an array."""
        return f"{self.text} {self.initial(**values)}"


# Instructions for signed and unsigned integers, and for floats.
_ADD, _SUB, _MUL = ("add", "add", "fadd"), ("sub", "sub", "fsub"), ("mul", "mul", "fmul")
_DIVIDE, _QUOTIENT = ("", "", "fdiv"), ("sdiv", "udiv", "")
_REMAINDER = "srem", "urem", "frem"
_AND, _OR, _XOR = ("and", "and", ""), ("or", "or", ""), ("xor", "xor", "")
_LEFT, _RIGHT = ("shl", "shl", ""), ("ashr", "lshr", "")


class Operators:
    """The operators of values and of places, which stand for what they hold."""

    __slots__ = ()

    type: Type

    def get(self) -> Value:
        """Return the value that stands here."""
        raise NotImplementedError

    def _binary(self, ops: tuple[str, str, str], other: Operand, swap: bool = False) -> Value:
        """Apply one of three instructions: for signed and unsigned integers, and for floats."""
        value = self.get()
        f, kind = value.f, value.type
        op = ops[2 if kind.is_float else 0 if kind.signed else 1]
        if not op:
            known = "/".join(dict.fromkeys(filter(None, ops)))
            raise CodegenError(f"{known} isn't defined on values of type {kind.text}")
        left, right = value.text, f.operand(other, kind)
        if swap:
            left, right = right, left
        return Value(f, kind, f.here(f"{op} {kind.text} {left}, {right}"))

    def compare(self, how: str, other: Operand) -> Value:
        """Compare by an LLVM predicate: ``olt``, ``uno``, ... or ``eq``, ``slt``, ... ."""
        value = self.get()
        f, kind = value.f, value.type
        op = "fcmp" if kind.is_float else "icmp"
        text = f"{op} {how} {kind.text} {value.text}, {f.operand(other, kind)}"
        return Value(f, vector(kind.lanes, BOOL), f.here(text))

    def _ordered(self, how: str, other: Operand) -> Value:
        value = self.get()
        kind = value.type
        return value.compare(f"{'o' if kind.is_float else 's' if kind.signed else 'u'}{how}", other)

    def __add__(self, other: Operand) -> Value:
        return self._binary(_ADD, other)

    def __radd__(self, other: Operand) -> Value:
        return self._binary(_ADD, other)

    def __sub__(self, other: Operand) -> Value:
        return self._binary(_SUB, other)

    def __rsub__(self, other: Operand) -> Value:
        return self._binary(_SUB, other, swap=True)

    def __mul__(self, other: Operand) -> Value:
        return self._binary(_MUL, other)

    def __rmul__(self, other: Operand) -> Value:
        return self._binary(_MUL, other)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary(_DIVIDE, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._binary(_DIVIDE, other, swap=True)

    def __floordiv__(self, other: Operand) -> Value:
        """Divide integers as C does: towards zero."""
        return self._binary(_QUOTIENT, other)

    def __mod__(self, other: Operand) -> Value:
        """Return what such a division leaves."""
        return self._binary(_REMAINDER, other)

    def __and__(self, other: Operand) -> Value:
        return self._binary(_AND, other)

    def __or__(self, other: Operand) -> Value:
        return self._binary(_OR, other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary(_XOR, other)

    def __lshift__(self, other: Operand) -> Value:
        return self._binary(_LEFT, other)

    def __rlshift__(self, other: Operand) -> Value:
        return self._binary(_LEFT, other, swap=True)

    def __rshift__(self, other: Operand) -> Value:
        return self._binary(_RIGHT, other)

    def __neg__(self) -> Value:
        value = self.get()
        if not value.type.is_float:
            return 0 - value
        return Value(value.f, value.type, value.f.here(f"fneg {value.type.text} {value.text}"))

    def __invert__(self) -> Value:
        return self ^ -1

    # Comparisons of floats are false for NaN, but for `ne`.

    def __lt__(self, other: Operand) -> Value:
        return self._ordered("lt", other)

    def __le__(self, other: Operand) -> Value:
        return self._ordered("le", other)

    def __gt__(self, other: Operand) -> Value:
        return self._ordered("gt", other)

    def __ge__(self, other: Operand) -> Value:
        return self._ordered("ge", other)

    def eq(self, other: Operand) -> Value:
        """``self == other``."""
        return self.compare("oeq" if self.type.is_float else "eq", other)

    def ne(self, other: Operand) -> Value:
        """``self != other``."""
        return self.compare("une" if self.type.is_float else "ne", other)

    def to(self, kind: Type) -> Value:
        """Convert to another integer type, or between addresses and integers."""
        value = self.get()
        old = value.type
        if old.text == kind.text:
            return Value(value.f, kind, value.text)
        if old.is_pointer or kind.is_pointer:
            op = "ptrtoint" if old.is_pointer else "inttoptr"
        elif kind.bytes < old.bytes:
            op = "trunc"
        else:
            op = "sext" if old.signed else "zext"
        return value.convert(op, kind)

    def convert(self, op: str, kind: Type) -> Value:
        """Convert by an instruction of LLVM: ``bitcast``, ``sitofp``, ..."""
        value = self.get()
        text = f"{op} {value.type.text} {value.text} to {kind.text}"
        return Value(value.f, kind, value.f.here(text))

    def at(self, kind: Type, index: Operand = 0) -> Place:
        """Return the element of an array that this address points to."""
        address = self.get()
        f = address.f
        if not isinstance(index, Operators) and index == 0:
            return Place(f, kind, address.text)
        text = f"getelementptr {kind.text}, ptr {address.text}, {f.index(index)}"
        return Place(f, kind, f.here(text))


class Value(Operators):
    """What an instruction computed, a parameter or a constant."""

    __slots__ = ("f", "text", "type")

    def __init__(self, f: ValueWriter, kind: Type, text: str) -> None:
        self.f, self.type, self.text = f, kind, text

    def get(self) -> Value:
        """Return itself."""
        return self

    def lane(self, index: int) -> Value:
        """Return one lane of a vector."""
        element = self.type.element or self.type
        text = f"extractelement {self.type.text} {self.text}, i64 {index}"
        return Value(self.f, element, self.f.here(text))

    def shuffle(self, picks: Iterable[int]) -> Value:
        """Return a vector of some lanes; -1 takes anything."""
        lanes = [f"i32 {pick}" if pick >= 0 else "i32 poison" for pick in picks]
        kind, mask = self.type.text, f"<{len(lanes)} x i32> <{', '.join(lanes)}>"
        text = f"shufflevector {kind} {self.text}, {kind} poison, {mask}"
        made = vector(len(lanes), self.type.element or self.type)
        return Value(self.f, made, self.f.here(text))

    def splat(self, lanes: int) -> Value:
        """Return a vector that holds it in all lanes."""
        kind = vector(lanes, self.type)
        text = f"insertelement {kind.text} poison, {self.type.text} {self.text}, i64 0"
        return Value(self.f, kind, self.f.here(text)).shuffle([0] * lanes)


class Place(Operators):
    """Memory for one value of a type."""

    __slots__ = ("_pointer", "f", "type")

    def __init__(self, f: ValueWriter, kind: Type, pointer: str) -> None:
        self.f, self.type, self._pointer = f, kind, pointer
        f.need(kind)

    @property
    def address(self) -> Value:
        """Where it is."""
        return Value(self.f, PTR, self._pointer)

    def __getitem__(self, key: str | Operand) -> Place:
        """Return a field of a struct, or an element of an array."""
        kind, base = self.type, f"getelementptr {self.type.text}, ptr {self._pointer}, i64 0"
        if isinstance(key, str):
            if not isinstance(kind, Struct):
                raise CodegenError(f"{kind.text} has no field {key!r}: it is no struct")
            number = kind.position(key)
            pointer = self.f.here(f"{base}, i32 {number}") if number else self._pointer
            return Place(self.f, kind.fields[key], pointer)
        if kind.element is None:
            raise CodegenError(f"{kind.text} has no elements: it is no array")
        return Place(self.f, kind.element, self.f.here(f"{base}, {self.f.index(key)}"))

    def get(self, order: str = "", *, align: int = 0) -> Value:
        """Read it, atomically if an order is given."""
        how = f"load atomic {self.type.text}" if order else f"load {self.type.text}"
        text = f"{how}, ptr {self._pointer}{self._how(order, align)}"
        return Value(self.f, self.type, self.f.here(text))

    def set(self, value: Operand, order: str = "", *, align: int = 0, mark: str = "") -> None:
        """Write it, atomically if an order is given; ``mark`` is metadata of the instruction."""
        how = "store atomic" if order else "store"
        what = f"{self.type.text} {self.f.operand(value, self.type)}"
        self.f.effect(f"{how} {what}, ptr {self._pointer}{self._how(order, align)}{mark}")

    def seen_as(self, kind: Type) -> Place:
        """Return the same memory, for a value of another type."""
        return Place(self.f, kind, self._pointer)

    def _how(self, order: str, align: int) -> str:
        if order:
            return f" {order}, align {align or self.type.bytes}"
        return f", align {align}" if align else ""

    # A place stays what it is: `x += 1` writes to it, unlike `y = x + 1`.
    def __iadd__(self, other: Operand) -> Place:  # type: ignore[override]
        self.set(self + other)
        return self

    def __imul__(self, other: Operand) -> Place:  # type: ignore[override]
        self.set(self * other)
        return self

    def _modify(self, op: str, value: Operand, order: str) -> Value:
        what = f"{self.type.text} {self.f.operand(value, self.type)}"
        text = f"atomicrmw {op} ptr {self._pointer}, {what} {order}"
        return Value(self.f, self.type, self.f.here(text))

    def fetch_add(self, value: Operand, order: str) -> Value:
        """Add, and return what was there before."""
        return self._modify("add", value, order)

    def fetch_sub(self, value: Operand, order: str) -> Value:
        """Subtract, and return what was there before."""
        return self._modify("sub", value, order)

    def exchange(self, value: Operand, order: str) -> Value:
        """Write, and return what was there before."""
        return self._modify("xchg", value, order)

    def compare_exchange(self, old: Operand, new: Operand, order: str) -> Value:
        """Write ``new`` if ``old`` is there; return whether it was."""
        f, kind = self.f, self.type.text
        before, after = f.operand(old, self.type), f.operand(new, self.type)
        text = f"cmpxchg ptr {self._pointer}, {kind} {before}, {kind} {after} {order} {RELAXED}"
        return Value(f, BOOL, f.here(f"extractvalue {{ {kind}, i1 }} {f.here(text)}, 1"))


Operand = Value | Place | float


class ValueWriter(Writer):
    """Writes operations on values."""

    def need(self, kind: Type) -> None:
        """See to it that a struct is declared."""
        raise NotImplementedError

    def operand(self, value: Operand, kind: Type) -> str:
        """Return the text of an operand of a type; 0 is the null of addresses."""
        if not isinstance(value, Operators):
            return number_text(value, kind)
        if isinstance(kind, Struct):
            made = value.address if isinstance(value, Place) and value.type is kind else value.get()
            kind = PTR if made.type is PTR else kind
        else:
            made = value.get()
        if made.type.text != kind.text:
            raise CodegenError(f"expected a value of type {kind.text}, got one of {made.type.text}")
        return made.text

    def index(self, value: Operand) -> str:
        """Return an operand that counts elements, with its type."""
        if not isinstance(value, Operators):
            return f"i64 {value}"
        return f"i64 {value.to(I64).text}"

    def constant(self, kind: Type, value: int) -> Value:
        """Return a number as a value."""
        return Value(self, kind, self.operand(value, kind))

    def select(self, condition: Operand, a: Operand, b: Operand, kind: Type | None = None) -> Value:
        """Return one of two values; their type must be told if both are numbers."""
        if kind is None:
            kind = next(item.type for item in (a, b) if isinstance(item, Operators))
        text, truth = kind.text, vector(kind.lanes, BOOL)
        one, other = self.operand(a, kind), self.operand(b, kind)
        test = f"{truth.text} {self.operand(condition, truth)}"
        return Value(self, kind, self.here(f"select {test}, {text} {one}, {text} {other}"))

    def least(self, a: Value, b: Operand) -> Value:
        """Return the lesser."""
        return self.select(a < b, a, b)

    def greatest(self, a: Value, b: Operand) -> Value:
        """Return the greater."""
        return self.select(a > b, a, b)
