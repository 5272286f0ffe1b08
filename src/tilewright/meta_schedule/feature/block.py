"""Blocks of candidates in machine code: their numbers, arrays over levels of loops, arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tilewright.codegen.llvm.builder import Function, external
from tilewright.codegen.llvm.values import (
    BOOL,
    DOUBLE,
    FLOAT,
    I32,
    I64,
    Operand,
    Place,
    Type,
    Value,
    vector,
)
from tilewright.meta_schedule.feature.names import FEATURE_NAMES, MAX_ACCESSES
from tilewright.meta_schedule.feature.tables import (
    ACCESS_FIELDS,
    BUFFER_FIELDS,
    HEADER,
    MACHINE,
    STORE_REALS,
    TERM_FIELDS,
)

LANES = 8
"""Candidates that are computed together."""
REALS, INTS, TRUTHS = vector(LANES, DOUBLE), vector(LANES, I64), vector(LANES, BOOL)
FLOATS, WORDS = vector(LANES, FLOAT), vector(LANES, I32)
POINTERS = Type(f"<{LANES} x ptr>", lanes=LANES)
_CEIL = external(REALS, f"llvm.ceil.v{LANES}f64", REALS)
_ABS = external(REALS, f"llvm.fabs.v{LANES}f64", REALS)
_GATHER = external(
    REALS, f"llvm.masked.gather.v{LANES}f64.v{LANES}p0", POINTERS, I32, TRUTHS, REALS
)
_BY_LEVEL = "stride other unique lines rows reuse depends".split()
_LEVEL_ARRAYS = 10
"""Arrays by level that a store has itself."""


def scratch_vectors(table: Sequence[int]) -> int:
    """Return how many vectors of memory the function needs for a program's table."""
    head = dict(zip(HEADER, table))
    by_level = _LEVEL_ARRAYS + len(_BY_LEVEL) * MAX_ACCESSES
    fixed = 3 * MAX_ACCESSES + len(FEATURE_NAMES)
    return head["loops"] + head["shapes"] + by_level * head["levels"] + fixed


class Access(NamedTuple):
    """An access of the current store: what is the same for all candidates, and arrays by level."""

    number: Value
    reads: Value
    writes: Value
    shape: Value
    dims: Value
    local: Value
    bytes: Value
    table: Value
    stride: Value
    other: Value
    unique: Value
    lines: Value
    rows: Value
    reuse: Value
    depends: Value


class Block:
    """Writes what all parts of the function need; a subclass sets the attributes below."""

    column: Value
    """The first candidate of the block."""
    first: Value
    count: Value
    """Where the accesses of the current store begin in their table, and how many there are."""
    store_reals: Value
    """Where its constants begin."""

    def __init__(
        self, f: Function, table: Value, reals: Value, numbers: Value, padded: Value, scratch: Value
    ) -> None:
        self.f, self.table, self.reals, self.numbers = f, table, reals, numbers
        self.padded, self.scratch = padded, scratch
        self.head = {name: self.word(f.constant(I64, n)) for n, name in enumerate(HEADER)}
        self.used: Value = f.constant(I64, 0)
        self.levels = levels = self.head["levels"]
        self.extents = self._room(self.head["loops"])
        self.shapes = self._room(self.head["shapes"])
        self.own, self.reduce, self.outer = (self._room(levels) for _ in range(3))
        self.footprint, self.size, self.ratio = (self._room(levels) for _ in range(3))
        self.steps, self.run, self.runs, self.joined = (self._room(levels) for _ in range(4))
        self.by_level = self._room(levels * (len(_BY_LEVEL) * MAX_ACCESSES))
        self.moved = self._room(f.constant(I64, 3 * MAX_ACCESSES))
        self.row = self._room(f.constant(I64, len(FEATURE_NAMES)))
        self.lane_numbers = Value(f, INTS, f"<{', '.join(f'i64 {n}' for n in range(LANES))}>")

    # ---- access to tables and arrays ----------------------------------------------------------
    def word(self, at: Value) -> Value:
        """A word of the program's tables."""
        return self.table.at(I32, at).get().to(I64)

    def fields(self, table: str, number: Value, names: list[str]) -> dict[str, Value]:
        """An entry of a table of the program."""
        at = self.head[table] + number * len(names)
        return {name: self.word(at + n) for n, name in enumerate(names)}

    def real(self, at: Value) -> Value:
        """A real constant, in all lanes."""
        return self.reals.at(DOUBLE, at).get().splat(LANES)

    def machine(self, name: str) -> Value:
        """A constant of the target."""
        return self.real(self.f.constant(I64, MACHINE.index(name)))

    def constant(self, name: str) -> Value:
        """A real constant of the current store."""
        return self.real(self.store_reals + STORE_REALS.index(name))

    def _room(self, count: Value) -> Value:
        made = self.scratch.at(REALS, self.used).address
        self.used = self.used + count
        return made

    def load(self, array: Value, at: Operand) -> Value:
        """A vector of an array."""
        return array.at(REALS, at).get(align=8)

    def store(self, array: Value, at: Operand, value: Operand) -> None:
        """Write a vector of an array."""
        array.at(REALS, at).set(value, align=8)

    def scale(self, array: Value, at: Operand, factor: Operand) -> None:
        """Multiply a vector of an array."""
        self.store(array, at, self.load(array, at) * factor)

    def number(self, at: Value) -> Value:
        """A number of the current candidates."""
        place = self.numbers.at(DOUBLE, at * self.padded + self.column).address.at(REALS)
        return place.get(align=8)

    def pick(self, array: Value, level: Value) -> Value:
        """Of an array by level each candidate's own element."""
        f, at = self.f, level * LANES + self.lane_numbers
        each = f.here(f"getelementptr double, ptr {array.text}, {at.type} {at.text}")
        return f.call(_GATHER, Value(f, POINTERS, each), 8, True, 0)

    def true(self, word: Value) -> Value:
        """A flag of a table, in all lanes."""
        return word.ne(0).splat(LANES)

    def choose(self, truth: Value, a: Operand, b: Operand) -> Value:
        """One of two vectors."""
        return self.f.select(truth, a, b, REALS)

    def as_real(self, truth: Value) -> Value:
        """1 where it holds, else 0."""
        return self.choose(truth, 1, 0)

    def variable(self, initial: Operand) -> Place:
        """A vector that changes."""
        return self.f.variable(REALS, initial)

    def ceil(self, value: Value) -> Value:
        """The next integer."""
        return self.f.call(_CEIL, value)

    def log(self, value: Value) -> Value:
        """``log2(1 + max(value, 0))`` as float32, good to its last digits; exact for zero."""
        f = self.f
        small = (f.greatest(value, 0) + 1).convert("fptrunc", FLOATS)
        bits = small.convert("bitcast", WORDS)
        exponent = ((bits >> 23) - 127).convert("sitofp", FLOATS)
        mantissa = ((bits & 0x7FFFFF) | 0x3F800000).convert("bitcast", FLOATS)
        large = mantissa > 1.4142135
        mantissa = f.select(large, mantissa * 0.5, mantissa)
        exponent = f.select(large, exponent + 1, exponent)
        # log(m) = 2 artanh(s), by its series: |s| < 0.172.
        s = (mantissa - 1) / (mantissa + 1)
        square, scale = s * s, 2.885390081777927
        total = square * (scale / 9) + scale / 7
        for odd in (5, 3, 1):
            total = total * square + scale / odd
        return total * s + exponent

    @contextmanager
    def down(self, count: Value) -> Iterator[Value]:
        """Repeat for ``count - 1`` down to 0."""
        with self.f.for_(count) as number:
            yield (count - 1) - number

    @contextmanager
    def terms(self, begin: Value, end: Value) -> Iterator[tuple[Value, Value]]:
        """Repeat for the terms of an index: the loop or row, and the size of its steps."""
        with self.f.for_(end, begin) as term:
            own = self.fields("term_table", term, TERM_FIELDS)
            yield own["loop"], self.f.call(_ABS, self.number(own["stride"]))

    @contextmanager
    def accesses(self) -> Iterator[Access]:
        """Repeat for the accesses of the current store."""
        with self.f.for_(self.count) as number:
            yield self.access(number)

    def access(self, number: Value) -> Access:
        """An access of the current store."""
        own = self.fields("access_table", self.first + number, ACCESS_FIELDS)
        buffer = self.fields("buffer_table", own["buffer"], BUFFER_FIELDS)
        start = self.levels * (number * len(_BY_LEVEL))
        arrays = [
            self.by_level.at(REALS, start + self.levels * n).address for n in range(len(_BY_LEVEL))
        ]
        return Access(
            number, own["read"], own["write"], buffer["shape"], buffer["dims"],
            self.true(buffer["local"]), self.real(own["buffer"] + len(MACHINE)), own["dims"],
            *arrays,
        )  # fmt: skip
