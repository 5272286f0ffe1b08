"""Values of C-like text: names, arithmetic, conversions, whatever the values came from.

The lowest part of the emitter. Nothing here knows expressions: values are texts or vectors of
texts, and their dtypes stand beside them. Statements that a value needs are written as it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.codegen.c import text as t
from tilewright.codegen.c.dialect import NARROW, SUFFIXES, Dialect
from tilewright.codegen.c.helpers import helper_symbol
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value, Vector, lane_of
from tilewright.ir import dtypes
from tilewright.support.errors import CodegenError

_SYMBOLS = {"Add": "+", "Sub": "-", "Mul": "*"}
_COMPARISONS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}


class ValueEmitter:
    """Writes statements of one function, and the texts of values."""

    def __init__(self, dialect: Dialect, helpers: dict[tuple[str, str], None]) -> None:
        self.dialect = dialect
        self.helpers = helpers
        """The helpers that the text calls, in order."""
        self.lines: list[str] = []
        self.depth = 1
        self.taken: set[str] = set()
        self.rounds_narrow = True
        self._unrounded: dict[tuple[str, str], str] = {}
        self._in_memory: dict[tuple[str, str], str] = {}
        self._places: list[dict[str, Text]] = [{}]
        self._loads: list[dict[str, list[str]]] = [{}]

    # ---- statements and names

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def braces(self, head: str, tail: str = "}") -> Iterator[None]:
        """Write lines in braces behind ``head``."""
        self.line(f"{head} {{" if head else "{")
        with self.inside():
            yield
        self.line(tail)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Write lines that stand in braces; what they name ends there."""
        self.depth += 1
        self._places.append({})
        self._loads.append({})
        yield
        self._places.pop()
        self._loads.pop()
        self.depth -= 1

    @contextmanager
    def aside(self) -> Iterator[list[str]]:
        """Collect the lines that are written meanwhile instead of writing them."""
        before, self.lines = self.lines, []
        self._places.append({})
        self._loads.append({})
        try:
            yield self.lines
        finally:
            self.lines = before
            self._places.pop()
            self._loads.pop()

    def new_statement(self) -> None:
        """Forget what was loaded: memory may have changed."""
        for known in self._loads:
            known.clear()

    def loaded(self, place: str, load: Callable[[], list[str]]) -> list[str]:
        """Return the parts of what is loaded, which a statement loads once."""
        for known in self._loads:
            if place in known:
                return known[place]
        made = self._loads[-1][place] = load()
        return made

    def fresh(self, name: str) -> str:
        """Return an unused name like the given one."""
        base = t.identifier(name)
        made = base = f"v_{base}" if base in self.dialect.words else base
        number = 0
        while made in self.taken:
            number += 1
            made = f"{base}_{number}"
        self.taken.add(made)
        return made

    def named(self, value: str, element: str, name: str = "x") -> Text:
        """Give a scalar a name, unless it may be repeated as it is."""
        return Text(value) if t.is_simple(value) else self.let(value, element, name)

    def place(self, value: str, element: str) -> Text:
        """Give an index a name, the one that it has already if it is known here."""
        if t.is_simple(value):
            return Text(value)
        for names in self._places:
            if value in names:
                return names[value]
        made = self._places[-1][value] = self.let(value, element, "at")
        return made

    def let(self, value: str, element: str, name: str) -> Text:
        """Write the definition of a name for a scalar."""
        made = self.fresh(name)
        self.line(f"const {self.dialect.register(element)} {made} = {value};")
        return Text(made)

    def named_lanes(self, value: Vector, name: str = "x") -> Vector:
        """Give each lane a name, where it has none."""
        if value.words is not None or value.whole is not None:
            return value
        element = dtypes.element_of(value.dtype)
        return Vector(value.dtype, [self.named(lane, element, name) for lane in value.lanes()])

    def help(self, family: str, element: str, *args: str) -> Text:
        """Call a helper, which the text will hold."""
        self.helpers[family, element] = None
        return Text(f"{helper_symbol(family, element)}({', '.join(args)})")

    def math(self, name: str, element: str, *args: str) -> Text:
        """Call a function of the dialect's table."""
        made = self.dialect.math.get((name, element))
        if made is None:
            return self.help(name, element, *args)
        return Text(made.format(*(t.within(arg, t.TERNARY) for arg in args)))

    # ---- lanes

    def each(self, dtype: str, compute: Callable[..., str], *values: Value) -> Value:
        """Compute a scalar, or each lane of a vector; scalars among the values serve all lanes."""
        lanes = dtypes.lanes_of(dtype)
        if lanes == 1:
            return compute(*values)
        return Vector(dtype, [compute(*(lane_of(v, n) for v in values)) for n in range(lanes)])

    def broadcast(self, value: str, element: str, lanes: int) -> Vector:
        """Repeat a scalar."""
        text = self.named(value, element)
        return Vector(dtypes.vector_dtype(element, lanes), [text] * lanes)

    # ---- constants

    def number(self, value: float | int, element: str) -> Text:
        """Return a constant of an element type, as registers hold it."""
        kind, bits = dtypes.kind_of(element), dtypes.bits_of(element)
        if kind == "bool":
            return Text("true" if value else "false")
        if kind == "handle":
            return Text(f"({self.dialect.register('handle')}){int(value)}", t.UNARY)
        if kind != "float":
            return t.integer_text(int(value), bits, kind == "int", self.dialect.long_suffix)
        single = element != "float64"
        made = t.float_text(float(value), single)
        if made is not None:
            return made
        names = self.dialect.infinity
        if value != value:
            return Text(names["nan" if single else "nan64"])
        text = names["inf" if single else "inf64"]
        return t.prefix("-", text) if value < 0 else Text(text)

    # ---- arithmetic on scalars

    def arithmetic(self, name: str, element: str, a: str, b: str, wraps: bool) -> Text:
        """``Add``, ``Sub``, ``Mul`` or ``Div``; integers that may overflow wrap."""
        kind, bits = dtypes.kind_of(element), dtypes.bits_of(element)
        if kind == "float":
            made = t.binary("/" if name == "Div" else _SYMBOLS[name], a, b)
            return self.rounded(made, element)
        if name not in _SYMBOLS:
            raise CodegenError(f"{name} on {element} has no code; `/` is of floats")
        symbol = _SYMBOLS[name]
        if not wraps:
            return t.binary(symbol, a, b)
        if kind == "uint" and bits >= 32:
            return t.binary(symbol, a, b)
        if bits == 4:
            return self.help("nibble", element, t.binary(symbol, a, b))
        if bits >= 32 or (name == "Mul" and bits == 16):
            wide = self.dialect.register(f"uint{max(bits, 32)}")
            made = t.binary(symbol, t.prefix(f"({wide})", a), t.prefix(f"({wide})", b))
        else:
            made = t.binary(symbol, a, b)
        return t.prefix(f"({self.dialect.register(element)})", made)

    def rounded(self, value: str, element: str) -> Text:
        """Round what an operation gave to its dtype, if registers are wider."""
        if self.rounds_narrow and element in NARROW:
            return self._round(value, element)
        return value if isinstance(value, Text) else Text(value)

    def _round(self, value: str, element: str) -> Text:
        made = self.help("round", element, value)
        self._unrounded[element, made] = value
        return made

    def unrounded(self, value: str, element: str) -> str:
        """What a value was before it was rounded, for what rounds by itself."""
        return self._unrounded.get((element, value), value)

    def fma(self, element: str, a: str, b: str, c: str) -> Text:
        """``a * b + c``, rounded once."""
        return self.rounded(
            self.math("fma", "float64" if element == "float64" else "float32", a, b, c), element
        )

    def extremum(self, name: str, element: str, a: str, b: str) -> Text:
        """``min`` or ``max``; NaN if either is NaN."""
        wide = "float32" if element in NARROW else element
        return self.math(name, wide, a, b)

    def compare(self, name: str, a: str, b: str) -> Text:
        """A comparison."""
        return t.binary(_COMPARISONS[name], a, b)

    def bitwise(self, name: str, element: str, a: str, b: str) -> Text:
        """``bitwise_and`` and its like, of integers or truth values."""
        if element == "bool":
            logical = {"bitwise_and": "&&", "bitwise_or": "||", "bitwise_xor": "!="}[name]
            return t.binary(logical, a, b)
        made = t.binary(_BITWISE[name], a, b)
        if dtypes.bits_of(element) < 32:
            return t.prefix(f"({self.dialect.register(element)})", made)
        return made

    def choose(self, condition: str, a: str, b: str) -> Text:
        """One of two values that may both be computed."""
        if condition in ("true", "false"):
            return Text(a) if condition == "true" else Text(b)
        return t.ternary(condition, a, b)

    # ---- conversions of scalars

    def convert(self, value: str, source: str, element: str) -> Text:
        """Convert a scalar between element types, as ``ir.Cast`` says."""
        if source == element:
            return value if isinstance(value, Text) else Text(value)
        old, new = dtypes.kind_of(source), dtypes.kind_of(element)
        if "handle" in (old, new):
            raise CodegenError(
                f"a cast from {source} to {element} has no code on {self.dialect.name}"
            )
        if new == "bool":
            return t.binary("!=", value, self.number(0, source))
        if new == "float":
            return self._to_float(value, source, element)
        if old == "float":
            family = "double_to" if source == "float64" else "float_to"
            return self.help(family, element, value)
        cast = t.prefix(f"({self.dialect.register(element)})", value)
        if dtypes.bits_of(element) == 4:
            return self.help("nibble", element, cast)
        return cast

    def _to_float(self, value: str, source: str, element: str) -> Text:
        single = self.dialect.type("float")
        if element == "float64":
            return t.prefix(f"({self.dialect.type('double')})", value)
        if dtypes.kind_of(source) != "float" or source == "float64":
            odd = source == "float64" and element in NARROW
            value = self.help("to_odd", "float64", value) if odd else t.prefix(f"({single})", value)
        if element == "float32":
            return value if isinstance(value, Text) else Text(value)
        return self._round(value, element)

    def to_memory(self, value: str, element: str) -> Text:
        """Convert a scalar to its form in memory."""
        if element in NARROW:
            moved = self._in_memory.get((element, value))  # its bits, which nothing has changed
            if moved is not None:
                return Text(moved)
            return self.help("to", element, self.unrounded(value, element))
        if element == "bool":
            return t.prefix(f"({self.dialect.memory('bool')})", value)
        return value if isinstance(value, Text) else Text(value)

    def from_memory(self, value: str, element: str) -> Text:
        """Convert a scalar from its form in memory."""
        if element in NARROW:
            made = self.help("from", element, value)
            self._in_memory[element, made] = value
            return made
        if element == "bool":
            return t.binary("!=", value, "0")
        return value if isinstance(value, Text) else Text(value)

    def to_bits(self, value: str, element: str) -> Text:
        """The bits of a scalar as an unsigned integer of its width."""
        if element in ("float32", "float64"):
            return self.math("bits", element, value)
        if element in NARROW:
            return self.to_memory(value, element)
        bits = dtypes.bits_of(element)
        if bits == 4:
            return self.help("nibble", "uint4", value)
        return t.prefix(f"({self.dialect.register(f'uint{bits}')})", value)

    def from_bits(self, value: str, element: str) -> Text:
        """The scalar that bits stand for."""
        if element in ("float32", "float64"):
            return self.math("from_bits", element, value)
        if element in NARROW:
            return self.from_memory(value, element)
        if element == "bool":
            return t.binary("!=", value, "0")
        if dtypes.bits_of(element) == 4:
            return self.help("nibble", element, value)
        return t.prefix(f"({self.dialect.register(element)})", value)

    # ---- words: what memory holds in 32 bits

    def words(self, value: Vector) -> list[str]:
        """Return a vector of short elements as 32-bit words, as memory has it."""
        if value.words is not None:
            return value.words
        element = dtypes.element_of(value.dtype)
        bits = dtypes.bits_of(element)
        per, unsigned = 32 // bits, self.dialect.register("uint32")
        made: list[str] = []
        known: dict[tuple[str, ...], str] = {}  # constants repeat
        for start in range(0, len(value), per):
            if element in self.dialect.packed and start + 1 < len(value):
                lanes = (value.lane(start + 1), value.lane(start))
                pair = tuple(self.unrounded(lane, element) for lane in lanes)
                if pair not in known:
                    known[pair] = self.let(self.help("pack", element, *pair), "uint32", "pair")
                made.append(known[pair])
                continue
            word = ""
            for number in range(start, min(start + per, len(value))):
                lane = t.prefix(f"({unsigned})", self.to_bits(value.lane(number), element))
                shift = (number - start) * bits
                part = t.binary("<<", lane, str(shift)) if shift else lane
                word = t.binary("|", word, part) if word else part
            made.append(self.let(word, "uint32", "word"))
        return made  # not kept: the names may be those of a branch

    def word_lane(self, words: Sequence[str], number: int, element: str) -> Text:
        """Return a lane of a vector that is in words."""
        bits = dtypes.bits_of(element)
        per = 32 // bits
        word, shift = words[number // per], number % per * bits
        moved = t.binary(">>", word, str(shift)) if shift else Text(word)
        if bits == 4:
            signed = element == "int4"
            return self.help("nibble", element, t.prefix("(int)", moved) if signed else moved)
        unsigned = self.dialect.register(f"uint{bits}")
        return self.from_bits(t.prefix(f"({unsigned})", moved), element)

    def from_words(self, words: Sequence[str], dtype: str) -> Vector:
        """Return the vector that words stand for; their names may be repeated."""
        element = dtypes.element_of(dtype)
        return Vector(dtype, make=lambda n: self.word_lane(words, n, element), words=words)

    def suffix(self, element: str) -> str:
        """The element's part in names of helpers."""
        return SUFFIXES[element]


Handler = Callable[[Any, Any], Value]
