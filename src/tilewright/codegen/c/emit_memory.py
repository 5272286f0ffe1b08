"""Loads and stores to C-like text: pointers, vectors that memory moves at once, masks.

A vector access becomes as few loads as are proven to be aligned, of up to 16 bytes each. Elements
shorter than 32 bits are moved in words of 32 bits, from which lanes are taken where they are used.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from tilewright.codegen.c import text as t
from tilewright.codegen.c.emit_expr import ExprEmitter
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value, Vector
from tilewright.ir import (
    Broadcast,
    Expr,
    IntImm,
    Ramp,
    Var,
    as_int,
    dtypes,
)
from tilewright.support.errors import CodegenError
from tilewright.tir import Buffer, BufferLoad

LANE_NAMES = "xyzw"


class MemoryEmitter(ExprEmitter):
    """Writes accesses of buffers."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pointers: dict[tuple[Var, str], str] = {}
        """Names of pointers by data and by the type of what they point to."""
        self.space_of: dict[Var, str] = {}
        self.written: set[Var] = set()
        self.alignment: dict[Var, int] = {}
        """Bytes from a multiple of which memory begins, by its data."""
        self.assumed: dict[Var, int] = {}
        """Bytes of which the addresses of arguments are taken to be multiples, by data."""

    # ---- pointers

    def pointer(self, data: Var, kind: str) -> str:
        """Return a pointer to memory as elements of a type (that of memory)."""
        found = self.pointers.get((data, kind))
        if found is not None:
            return found
        others = [name for (var, _), name in self.pointers.items() if var is data]
        if not others:
            raise CodegenError(f"the memory of {data.name!r} is not defined here")
        return t.prefix(f"({self.pointer_type(data, kind)})", others[0])

    def pointer_type(self, data: Var, kind: str) -> str:
        """Return the type of a pointer into memory."""
        const = "const " if data in self.assumed and data not in self.written else ""
        space = self.space_of.get(data, "")
        return f"{space + ' ' if space else ''}{const}{kind}*"

    def flat_index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Return the only index of an access."""
        if len(indices) != 1:
            raise CodegenError(
                f"buffer {buffer.name} is accessed with {len(indices)} indices; the code generator "
                "takes flat buffers: run FlattenBuffer (tilewright.driver.lower does)"
            )
        return indices[0]

    def address(self, load: BufferLoad) -> Text:
        """Return the address of an element."""
        buffer = load.buffer
        index: Any = self.flat_index(buffer, load.indices)
        index = index.base if isinstance(index, Ramp) else index
        base = self.pointer(buffer.data, self.dialect.memory(dtypes.element_of(buffer.dtype)))
        if dtypes.bits_of(buffer.dtype) < 8:
            raise CodegenError(f"an element of {buffer.name} ({buffer.dtype}) has no address")
        text = self.scalar(index)
        return t.binary("+", base, text) if text != "0" else Text(base)

    # ---- loads

    def visit_BufferLoad(self, node: BufferLoad) -> Value:
        buffer, own = node.buffer, dtypes.lanes_of(node.buffer.dtype)
        index = self.flat_index(buffer, node.indices)
        element, lanes = dtypes.split_dtype(node.dtype)
        if own > 1:
            index = self._of_vectors(buffer, index)
        if dtypes.lanes_of(index.dtype) == 1:
            on = None if self.mask is None else " || ".join(self.mask)
            return self._guarded(on, self.load_one(buffer, self.scalar(index)), element)
        if isinstance(index, Broadcast):
            on = None if self.mask is None else " || ".join(self.mask)
            one = self._guarded(on, self.load_one(buffer, self.scalar(index.value)), element)
            return self.broadcast(one, element, lanes)
        mask = self.mask if self.mask is not None and len(self.mask) == lanes else None
        if mask is None and isinstance(index, Ramp) and as_int(index.stride) == 1:
            return self._contiguous(buffer, index, node.dtype)
        places = self.visit(index)
        made = []
        for number in range(lanes):
            one = self.load_one(buffer, places.lane(number))
            made.append(self._guarded(mask[number] if mask else None, one, element))
        return Vector(node.dtype, made)

    def _of_vectors(self, buffer: Buffer, index: Expr) -> Ramp:
        own = dtypes.lanes_of(buffer.dtype)
        if dtypes.lanes_of(index.dtype) > 1:
            raise CodegenError(f"a vector of the vectors of {buffer.name} ({buffer.dtype}) is read")
        return Ramp(index * own, IntImm(index.dtype, 1), own)

    def _guarded(self, on: str | None, value: Text, element: str) -> Text:
        if on is not None:
            level = t.OR if " || " in on else t.ATOM
            value = t.ternary(Text(on, level), value, self.number(0, element))
        return self.let(value, element, "read") if self.in_order else value

    def load_one(self, buffer: Buffer, index: str) -> Text:
        """Return an element."""
        element = dtypes.element_of(buffer.dtype)
        pointer = self.pointer(buffer.data, self.dialect.memory(element))
        if dtypes.bits_of(element) == 4:
            place = self.place(index, "int64")
            byte = t.element(pointer, t.binary(">>", place, "1"))
            shift = t.binary("*", t.binary("&", place, "1"), "4")
            return self.help("nibble", element, t.binary(">>", byte, shift))
        return self.from_memory(t.element(pointer, index), element)

    def _contiguous(self, buffer: Buffer, index: Ramp, dtype: str) -> Value:
        """Neighbours in memory, in as few loads as may be."""
        element, lanes = dtypes.split_dtype(dtype)
        chunks = self.chunks(buffer, index.base, lanes)
        if all(size == 1 for _, size in chunks):
            return self._one_by_one(buffer, index, dtype)
        base = self.place(self.scalar(index.base), index.base.dtype)
        short = dtypes.bits_of(element) < 32
        words: list[str] = []
        made: list[str] = []
        for start, size in chunks:
            parts = self.load_chunk(buffer, element, self._plus(base, start), size)
            if short:
                words += parts
            else:
                made += parts
        if short:
            return self.from_words(words, dtype)
        return Vector(dtype, made)

    def _one_by_one(self, buffer: Buffer, index: Ramp, dtype: str) -> Vector:
        base = self.place(self.scalar(index.base), index.base.dtype)
        lanes = range(index.lanes)
        return Vector(dtype, [self.load_one(buffer, self._plus(base, lane)) for lane in lanes])

    def load_chunk(self, buffer: Buffer, element: str, index: str, size: int) -> list[str]:
        """Load ``size`` neighbours at once; return names of 32-bit words, or of lanes."""
        kind, count, _ = self._moved(element, size)
        place = self.chunk_address(buffer, element, index, kind)

        def load() -> list[str]:
            name = self.fresh(buffer.name)
            self.line(f"const {kind} {name} = {place};")
            if count > 1:
                return [Text(f"{name}.{LANE_NAMES[number]}") for number in range(count)]
            if dtypes.bits_of(element) * size < 32:
                return [t.prefix(f"({self.dialect.register('uint32')})", name)]
            return [Text(name)]

        return self.loaded(place, load)

    def _moved(self, element: str, size: int) -> tuple[str, int, int]:
        """The type that moves ``size`` elements, its parts, and its bytes."""
        total = dtypes.bits_of(element) * size // 8
        if dtypes.bits_of(element) >= 32:
            kind, count = self.dialect.memory(element), size
        elif total >= 4:
            kind, count = self.dialect.type("uint32_t"), total // 4
        else:
            kind, count = self.dialect.type(f"uint{total * 8}_t"), 1
        if count > 1:
            kind = self.dialect.vector_types[kind, count]
        return kind, count, total

    def chunk_address(self, buffer: Buffer, element: str, index: str, kind: str) -> Text:
        """Return the chunk of memory of a type at an element."""
        memory = self.dialect.memory(element)
        pointer = self.pointer(buffer.data, memory)
        if dtypes.bits_of(element) == 4:
            index = t.binary(">>", index, "1")
        place = t.binary("+", pointer, index) if index != "0" else Text(pointer)
        if kind == memory:
            return t.element(pointer, index)
        cast = self.pointer_type(buffer.data, kind)
        return Text(f"*({cast}){t.within(place, t.UNARY)}", t.UNARY)

    # ---- how much is aligned

    def chunks(self, buffer: Buffer, base: Expr, lanes: int) -> list[tuple[int, int]]:
        """Cut ``lanes`` neighbours from ``base`` into (start, size) that are proven aligned."""
        element = dtypes.element_of(buffer.dtype)
        bits = dtypes.bits_of(element)
        least = 1 if bits >= 8 else 2
        step = self._multiple(base)
        made, start = [], 0
        while start < lanes:
            size = 1
            while self._moves(element, 2 * size) and start + 2 * size <= lanes:
                if gcd(step, start) % (2 * size):
                    break
                if not self._is_aligned(buffer, 2 * size * bits // 8):
                    break
                size *= 2
            made.append((start, size))
            start += size
        if bits < 32 and (len({size for _, size in made}) > 1 or made[0][1] * bits < 32):
            # Words have no holes: pieces of other sizes are moved one by one, unless it is one.
            whole = len(made) == 1 and made[0][1] * bits in (8, 16)
            if not whole:
                return [(number, 1) for number in range(lanes)]
        return made if least == 1 or made[0][1] >= least else [(n, 1) for n in range(lanes)]

    def _moves(self, element: str, size: int) -> bool:
        """Whether there is a type of ``size`` elements that memory moves at once."""
        bits = dtypes.bits_of(element) * size
        if bits > 8 * self.dialect.vector_bytes:
            return False
        if dtypes.bits_of(element) < 32:
            kind, count = self.dialect.type("uint32_t"), bits // 32
        else:
            kind, count = self.dialect.memory(element), size
        return count <= 1 or (kind, count) in self.dialect.vector_types

    def _multiple(self, base: Expr) -> int:
        """A number of which an index is proven to be a multiple, 0 for the index 0."""
        number = as_int(base)
        if number is not None:
            return number
        if self.wraps(base):
            return 1
        known = self.analyzer.modular_set(base)
        return gcd(known.coeff, known.base)

    def _is_aligned(self, buffer: Buffer, size: int) -> bool:
        """Whether memory begins at a multiple of ``size`` bytes; arguments are made to."""
        data = buffer.data
        known = self.alignment.get(data)
        if known is not None:
            return known % size == 0
        if data not in self.assumed or not self.dialect.options.get("aligned_arguments", False):
            return False
        self.assumed[data] = max(self.assumed[data], size)
        return True

    def require_aligned(self, buffer: Buffer, size: int) -> None:
        """Let an argument begin at a multiple of ``size`` bytes, for what moves so many at once."""
        self._is_aligned(buffer, size)

    # ---- stores

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Value, dtype: str) -> None:
        """Write a value of ``dtype`` to a buffer."""
        index = self.flat_index(buffer, indices)
        element, lanes = dtypes.split_dtype(dtype)
        if dtypes.lanes_of(buffer.dtype) > 1:
            index = self._of_vectors(buffer, index)
        if dtypes.lanes_of(index.dtype) == 1:
            assert not isinstance(value, Vector)
            on = None if self.mask is None else " || ".join(self.mask)
            self.store_one(buffer, self.scalar(index), value, on)
            return
        if not isinstance(value, Vector):
            value = self.broadcast(value, element, lanes)
        mask = self.mask if self.mask is not None and len(self.mask) == lanes else None
        if mask is None and isinstance(index, Ramp) and as_int(index.stride) == 1:
            self._store_contiguous(buffer, index, value)
            return
        value = self.evaluated(value)
        places = self.visit(index)
        if not isinstance(places, Vector):
            raise CodegenError(f"a vector is stored to {buffer.name} at one place: {index!r}")
        for number in range(lanes):
            on = mask[number] if mask else None
            self.store_one(buffer, places.lane(number), value.lane(number), on)

    def evaluated(self, value: Vector) -> Vector:
        """Read all lanes before the first is stored: it may be one of those that are read."""
        if value.words is not None:
            return value
        element = dtypes.element_of(value.dtype)
        if all("[" not in lane and "(" not in lane for lane in value.lanes()):
            return value
        return Vector(value.dtype, [self.named(lane, element, "value") for lane in value.lanes()])

    def store_one(self, buffer: Buffer, index: str, value: str, on: str | None = None) -> None:
        """Write one element, if ``on``."""
        element = dtypes.element_of(buffer.dtype)
        pointer = self.pointer(buffer.data, self.dialect.memory(element))
        guard = "" if on is None else f"if ({on}) "
        if dtypes.bits_of(element) == 4:
            self.line(f"{guard}{self.store_nibble(buffer, pointer, index, value)};")
            return
        self.line(f"{guard}{t.element(pointer, index)} = {self.to_memory(value, element)};")

    def store_nibble(self, buffer: Buffer, pointer: str, index: str, value: str) -> Text:
        """Return a call that writes one of the two elements of a byte."""
        private = buffer.scope != "global" and not buffer.scope.startswith("shared")
        family = "put_nibble" if private else "put_nibble_atomically"
        return self.help(family, "uint4", pointer, index, t.prefix("(unsigned)", value))

    def _store_contiguous(self, buffer: Buffer, index: Ramp, value: Vector) -> None:
        element, lanes = dtypes.element_of(buffer.dtype), index.lanes
        chunks = self.chunks(buffer, index.base, lanes)
        base = self.place(self.scalar(index.base), index.base.dtype)
        if all(size == 1 for _, size in chunks):
            value = self.evaluated(value)
            for lane in range(lanes):
                self.store_one(buffer, self._plus(base, lane), value.lane(lane))
            return
        short = dtypes.bits_of(element) < 32
        if short:
            parts = self.words(value)
        else:
            parts = (self.evaluated(value) if len(chunks) > 1 else value).lanes()
            parts = [self.to_memory(part, element) for part in parts]
        for start, size in chunks:
            kind, count, _ = self._moved(element, size)
            place = self.chunk_address(buffer, element, self._plus(base, start), kind)
            first = start * dtypes.bits_of(element) // 32 if short else start
            self.line(f"{place} = {self.made(kind, count, parts[first : first + count])};")

    def made(self, kind: str, count: int, parts: list[str]) -> str:
        """Return a value of a type that memory moves, of its parts."""
        if count == 1:
            return t.prefix(f"({kind})", parts[0])
        return self.dialect.make.format(type=kind, parts=", ".join(parts))
