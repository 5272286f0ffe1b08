"""``dot_accumulate`` to LLVM IR: the instruction of the target, or shorter products that it has.

Operands are seen as *words*: what belongs to one lane of the result, 32 bits with ``width``
neighbours. A word for all lanes is broadcast. Where there is no instruction for the types, bytes
become pairs of 16-bit numbers and those 32-bit products, all of it exact: no step saturates.
Unsigned bytes that a mask keeps below 128 are multiplied as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.llvm.emit_expr import intrinsic
from tilewright.codegen.llvm.emit_masked import masked_load
from tilewright.codegen.llvm.emit_stmt import FunctionEmitter
from tilewright.codegen.llvm.types import memory_bytes, memory_type, register_type
from tilewright.ir import Broadcast, Call, Expr, IntImm, Ramp, dtypes
from tilewright.support.errors import CodegenError
from tilewright.tir import BufferLoad

WORD = 32


@dataclass(frozen=True)
class Instruction:
    """A dot instruction: the features that bring it, its widths in bits, the intrinsic's name.

    ``{result}`` and ``{operand}`` in the name are the vector types, ``{bits}`` the width. No widths
    mean those of SVE's registers, whose vectors are scalable.
    """

    a: str
    b: str
    features: frozenset[str]
    widths: tuple[int, ...]
    name: str
    element: str = "i8"


def _row(a: str, b: str, features: str, widths: tuple[int, ...], *rest: str) -> Instruction:
    return Instruction(a, b, frozenset(features.split()), widths, *rest)


_ZMM, _YMM, _XMM, _SVE = (512,), (256, 128), (128,), ()
_BUSD, _WSSD = "x86.avx512.vpdpbusd.{bits}", "x86.avx512.vpdpwssd.{bits}"
_DPBF16 = "x86.avx512bf16.dpbf16ps.{bits}"
#: In the order of preference. The names of AVX512-VNNI stand for those of AVX-VNNI too.
INSTRUCTIONS = (
    _row("uint8", "int8", "avx512vnni", _ZMM, _BUSD),
    _row("uint8", "int8", "avx512vnni avx512vl", _YMM, _BUSD),
    _row("uint8", "int8", "avxvnni", _YMM, _BUSD),
    _row("int8", "int8", "avxvnniint8", _YMM, "x86.avx2.vpdpbssd.{bits}"),
    _row("uint8", "uint8", "avxvnniint8", _YMM, "x86.avx2.vpdpbuud.{bits}"),
    _row("int16", "int16", "avx512vnni", _ZMM, _WSSD, "i16"),
    _row("int16", "int16", "avx512vnni avx512vl", _YMM, _WSSD, "i16"),
    _row("int16", "int16", "avxvnni", _YMM, _WSSD, "i16"),
    _row("bfloat16", "bfloat16", "avx512bf16", _ZMM, _DPBF16, "bfloat"),
    _row("bfloat16", "bfloat16", "avx512bf16 avx512vl", _YMM, _DPBF16, "bfloat"),
    _row("int8", "int8", "sve", _SVE, "aarch64.sve.sdot.nxv4i32"),
    _row("uint8", "uint8", "sve", _SVE, "aarch64.sve.udot.nxv4i32"),
    _row("uint8", "int8", "sve i8mm", _SVE, "aarch64.sve.usdot.nxv4i32"),
    _row("bfloat16", "bfloat16", "sve bf16", _SVE, "aarch64.sve.bfdot", "bfloat"),
    _row("int8", "int8", "dotprod", _XMM, "aarch64.neon.sdot.{result}.{operand}"),
    _row("uint8", "uint8", "dotprod", _XMM, "aarch64.neon.udot.{result}.{operand}"),
    _row("uint8", "int8", "i8mm neon", _XMM, "aarch64.neon.usdot.{result}.{operand}"),
    _row(
        "bfloat16", "bfloat16", "bf16 neon", _XMM, "aarch64.neon.bfdot.{result}.{operand}", "bfloat"
    ),
)  # fmt: skip
#: Products of 16-bit numbers, neighbours added: what older x86 has instead.
_PAIRS = (("avx512bw", 512, "avx512.pmaddw.d.512"), ("avx2", 256, "avx2.pmadd.wd"),
          ("sse2", 128, "sse2.pmadd.wd"))  # fmt: skip
#: Products of unsigned and signed bytes, neighbours added to 16 bits with saturation.
_BYTE_PAIRS = (("avx512bw", 512, "avx512.pmaddubs.w.512"), ("avx2", 256, "avx2.pmadd.ub.sw"),
               ("ssse3", 128, "ssse3.pmadd.ub.sw.128"))  # fmt: skip


@intrinsic("dot_accumulate")
def _dot_accumulate(emitter: FunctionEmitter, call: Call) -> str:
    total, a, b = call.args
    kinds = tuple(dtypes.element_of(arg.dtype) for arg in (a, b))
    lanes = dtypes.lanes_of(call.dtype)
    if kinds[1] == "uint8" and kinds[0] != "uint8":
        kinds, a, b = (kinds[1], kinds[0]), b, a
    operands = [Words(emitter, arg, lanes) for arg in (a, b)]
    value = emitter.visit(total)
    dot = _Dot(
        emitter, kinds, register_type(dtypes.element_of(call.dtype)), _small_bytes(a, emitter)
    )
    parts, start = [], 0
    while start < lanes:
        count, size = dot.chunk(lanes - start)
        piece = _slice(emitter, value, dot.element, lanes, start, count, size)
        words = [item.slice(start, count, size) for item in operands]
        made = dot.emit(piece, words[0], words[1], size)
        parts.append((_narrow(emitter, made, dot.element, size, count), count))
        start += count
    joined, done = parts[0]
    for part, count in parts[1:]:
        joined, done = emitter.concat(joined, done, part, count, dot.element)
    if lanes > 1:
        return str(joined)
    return str(emitter.guarded(f"extractelement <1 x {dot.element}> {joined}, i64 0", joined))


def _small_bytes(expr: Expr, emitter: FunctionEmitter) -> bool:
    """Whether a mask of integers, seen as bytes, leaves these below 128.

    Two products of such a byte and a signed one add up to less than ``2 ** 15``.
    """
    if not (isinstance(expr, Call) and expr.op.name == "reinterpret"):
        return False
    (words,) = expr.args
    words = emitter.module.let_values.get(words, words)
    if not (isinstance(words, Call) and words.op.name == "bitwise_and"):
        return False
    masks = [arg.value if isinstance(arg, Broadcast) else arg for arg in words.args]
    size = dtypes.bits_of(words.dtype) // 8
    return any(
        isinstance(mask, IntImm)
        and all(byte < 128 for byte in mask.value.to_bytes(size, "little", signed=mask.value < 0))
        for mask in masks
    )


def _slice(
    emitter: FunctionEmitter,
    value: str,
    element: str,
    lanes: int,
    start: int,
    count: int,
    size: int,
) -> str:
    """Lanes ``start .. start + count`` as a vector of ``size``; what is beyond is anything."""
    if lanes == 1:
        kind = f"<{size} x {element}>"
        return str(emitter.guarded(f"insertelement {kind} poison, {element} {value}, i64 0", value))
    if (start, count, size) == (0, lanes, lanes):
        return value
    picks = [*range(start, start + count), *[-1] * (size - count)]
    return str(emitter.shuffle(value, lanes, picks, element))


def _narrow(emitter: FunctionEmitter, value: str, element: str, size: int, count: int) -> str:
    return value if size == count else emitter.shuffle(value, size, list(range(count)), element)


class Words:
    """One operand, from which 32-bit words are taken in vectors."""

    def __init__(self, emitter: FunctionEmitter, expr: Expr, lanes: int) -> None:
        self.emitter = emitter
        self.kind = dtypes.element_of(expr.dtype)
        width = WORD // dtypes.bits_of(self.kind)
        self.count = dtypes.lanes_of(expr.dtype) // width
        if self.count not in (1, lanes) or self.count * width != dtypes.lanes_of(expr.dtype):
            raise CodegenError(
                f"dot_accumulate of {lanes} results takes {width} or {width * lanes} lanes of "
                f"{self.kind}, got {expr!r}"
            )
        self.value = self._read(expr)

    @property
    def type(self) -> str:
        """LLVM type of all words together."""
        return "i32" if self.count == 1 else f"<{self.count} x i32>"

    def _read(self, expr: Expr) -> str:
        emitter = self.emitter
        index = expr.indices[0] if isinstance(expr, BufferLoad) and len(expr.indices) == 1 else None
        if isinstance(expr, BufferLoad) and isinstance(index, Ramp) and _is_one(index.stride):
            pointer = emitter.pointer(expr.buffer, index.base)
            align = memory_bytes(expr.buffer.dtype)
            mask = emitter.mask
            if mask is None or mask[1] != self.count:
                text = f"load {self.type}, ptr {pointer}, align {align}"
                return str(emitter.fetching_read(text, expr.buffer, pointer, expr.dtype))
            words = dtypes.vector_dtype("int32", self.count)
            return masked_load(emitter, expr.buffer, pointer, words, mask[0])
        value = emitter.to_memory(emitter.visit(expr), expr.dtype)
        return str(emitter.pure(f"bitcast {memory_type(expr.dtype)} {value} to {self.type}", value))

    def slice(self, start: int, count: int, size: int) -> str:
        """``size`` words from ``start``, of which ``count`` matter, as ``<size x i32>``."""
        if self.count > 1:
            return _slice(self.emitter, self.value, "i32", self.count, start, count, size)
        return str(self.emitter.broadcast(self.value, "int32", size))


def _is_one(stride: Expr) -> bool:
    return getattr(stride, "value", None) == 1


class _Dot:
    """Products of words of two kinds, added to a vector."""

    def __init__(
        self, emitter: FunctionEmitter, kinds: tuple[str, ...], element: str, small: bool = False
    ) -> None:
        self.emitter = emitter
        self.small = small  # whether the first operand's bytes are below 128
        self.kinds = kinds
        self.element = element
        self.features: frozenset[str] = emitter.module.target.features
        self.fits = self._widths(*kinds)
        steps = {
            ("bfloat16", "bfloat16"): self._bfloat_pairs,
            ("int16", "int16"): self._pairs,
        }
        self.step = steps.get((kinds[0], kinds[1]), self._bytes)
        if self.step == self._bytes and not {*kinds} <= {"int8", "uint8"}:
            raise CodegenError(f"dot_accumulate has no code for {kinds[0]} times {kinds[1]}")

    def _widths(self, a: str, b: str) -> dict[int, Instruction]:
        """The instructions for two types by their number of lanes."""
        found: dict[int, Instruction] = {}
        widest = self.emitter.module.target.vector_bits
        for row in INSTRUCTIONS:
            if (row.a, row.b) == (a, b) and row.features <= self.features:
                for bits in row.widths or ((widest,) if widest > 128 else ()):
                    found.setdefault(bits // WORD, row)
        return found

    def chunk(self, lanes: int) -> tuple[int, int]:
        """How many of ``lanes`` to do next, and lanes of the vectors for it."""
        widest = self.emitter.module.target.vector_bits // WORD
        sizes = sorted(size for size in self.fits or (4, 8, 16) if size <= widest)
        return next(((size, size) for size in reversed(sizes) if lanes >= size), (lanes, sizes[0]))

    def emit(self, total: str, a: str, b: str, size: int) -> str:
        """Return ``total`` plus the products of the words ``a`` and ``b``."""
        row = self.fits.get(size)
        if row is None:
            return self.step(total, a, b, size)
        return self._instruction(row, total, a, b, size)

    def _instruction(self, row: Instruction, total: str, a: str, b: str, size: int) -> str:
        emitter, result = self.emitter, f"<{size} x {self.element}>"
        width = {"i8": 4, "i16": 2, "bfloat": 2}[row.element] * size
        operand = f"<{width} x {row.element}>"
        if not row.widths:
            return self._scalable(row, total, (a, b), size, width)
        suffix = {"i8": "i8", "i16": "i16", "bfloat": "bf16"}[row.element]
        own = {"i32": "i32", "float": "f32"}[self.element]
        name = row.name.format(
            bits=size * WORD, result=f"v{size}{own}", operand=f"v{width}{suffix}"
        )
        values = [
            emitter.guarded(f"bitcast <{size} x i32> {value} to {operand}", value)
            for value in (a, b)
        ]
        text = f"call {result} @llvm.{name}({result} {total}, {operand} {values[0]}, "
        return str(emitter.guarded(f"{text}{operand} {values[1]})", total, *values))

    def _scalable(
        self, row: Instruction, total: str, words: tuple[str, str], size: int, width: int
    ) -> str:
        """The same on vectors of one whole SVE register, which are the same bits."""
        emitter = self.emitter

        def widen(value: str, element: str, lanes: int) -> tuple[str, str, str]:
            least, suffix = (
                lanes * 4 // size,
                {"bfloat": "bf16", "float": "f32"}.get(element, element),
            )
            kind, fixed = f"<vscale x {least} x {element}>", f"<{lanes} x {element}>"
            name = f"nxv{least}{suffix}.v{lanes}{suffix}"
            text = f"call {kind} @llvm.vector.insert.{name}({kind} poison, {fixed} {value}, i64 0)"
            return kind, str(emitter.guarded(text, value)), f"v{lanes}{suffix}.nxv{least}{suffix}"

        kind, start, back = widen(total, self.element, size)
        operands = []
        for value in words:
            fixed = f"bitcast <{size} x i32> {value} to <{width} x {row.element}>"
            operands.append(widen(emitter.guarded(fixed, value), row.element, width)[:2])
        text = ", ".join(f"{k} {v}" for k, v in ((kind, start), *operands))
        values = (start, *(value for _, value in operands))
        made = emitter.guarded(f"call {kind} @llvm.{row.name}({text})", *values)
        call = f"call <{size} x {self.element}> @llvm.vector.extract.{back}({kind} {made}, i64 0)"
        return str(emitter.guarded(call, made))

    # ---- without an instruction

    def _bytes(self, total: str, a: str, b: str, size: int) -> str:
        """Products of bytes: the even and the odd ones, as 16-bit numbers."""
        if self.kinds == ("int8", "int8"):
            mixed = _Dot(self.emitter, ("uint8", "int8"), self.element)
            if size in mixed.fits:
                return self._shifted(mixed, total, a, b, size)
        if self.kinds == ("uint8", "int8") and self.small:
            made = self._byte_pairs(total, a, b, size)
            if made is not None:
                return made
        pairs = _Dot(self.emitter, ("int16", "int16"), self.element)
        for odd in (False, True):
            halves = [self._half(value, kind, odd, size) for value, kind in zip((a, b), self.kinds)]
            total = pairs.emit(total, halves[0], halves[1], size)
        return total

    def _shifted(self, mixed: _Dot, total: str, a: str, b: str, size: int) -> str:
        """``(a + 128) * b - 128 * b``; what is subtracted is the same for all that share ``b``."""
        emitter, kind = self.emitter, f"<{size} x i32>"
        top = "splat (i32 -2139062144)"  # 0x80 in each byte
        extra = mixed.emit("zeroinitializer", top, b, size)
        total = emitter.guarded(f"sub {kind} {total}, {extra}", total, extra)
        flipped = emitter.guarded(f"xor {kind} {a}, {top}", a)
        return mixed.emit(total, flipped, b, size)

    def _half(self, words: str, kind: str, odd: bool, size: int) -> str:
        """Every second byte of the words, extended to 16 bits, as words again."""
        emitter, wide = self.emitter, f"<{2 * size} x i16>"
        value = emitter.guarded(f"bitcast <{size} x i32> {words} to {wide}", words)
        eight = "splat (i16 8)"
        if kind == "uint8":
            text = (
                f"lshr {wide} {value}, {eight}" if odd else f"and {wide} {value}, splat (i16 255)"
            )
            value = emitter.guarded(text, value)
        else:
            if not odd:
                value = emitter.guarded(f"shl {wide} {value}, {eight}", value)
            value = emitter.guarded(f"ashr {wide} {value}, {eight}", value)
        return str(emitter.guarded(f"bitcast {wide} {value} to <{size} x i32>", value))

    def _byte_pairs(self, total: str, a: str, b: str, size: int) -> str | None:
        """Products of small bytes: sums of two in 16 bits, then of two of those in 32."""
        name = next((n for f, w, n in _BYTE_PAIRS if f in self.features and w == size * WORD), None)
        if name is None:
            return None
        emitter, kind = self.emitter, f"<{size} x i32>"
        bytes_, shorts = f"<{4 * size} x i8>", f"<{2 * size} x i16>"
        x, y = (emitter.guarded(f"bitcast {kind} {v} to {bytes_}", v) for v in (a, b))
        text = f"call {shorts} @llvm.x86.{name}({bytes_} {x}, {bytes_} {y})"
        sums = emitter.guarded(text, x, y)
        words = emitter.guarded(f"bitcast {shorts} {sums} to {kind}", sums)
        ones = "splat (i32 65537)"  # 1 in each half
        return self._pairs(total, words, ones, size)

    def _pairs(self, total: str, a: str, b: str, size: int) -> str:
        """Products of 16-bit numbers, by the instruction that adds neighbours or one by one."""
        emitter, kind = self.emitter, f"<{size} x i32>"
        name = next((n for f, w, n in _PAIRS if f in self.features and w == size * WORD), None)
        if name is not None:
            wide = f"<{2 * size} x i16>"
            x, y = (emitter.guarded(f"bitcast {kind} {v} to {wide}", v) for v in (a, b))
            text = f"call {kind} @llvm.x86.{name}({wide} {x}, {wide} {y})"
            product = emitter.guarded(text, x, y)
            return str(emitter.guarded(f"add {kind} {total}, {product}", total, product))
        sixteen = "splat (i32 16)"
        for low in (True, False):
            x, y = (emitter.guarded(f"shl {kind} {v}, {sixteen}", v) if low else v for v in (a, b))
            x, y = (emitter.guarded(f"ashr {kind} {v}, {sixteen}", v) for v in (x, y))
            product = emitter.guarded(f"mul {kind} {x}, {y}", x, y)
            total = emitter.guarded(f"add {kind} {total}, {product}", total, product)
        return total

    def _bfloat_pairs(self, total: str, a: str, b: str, size: int) -> str:
        """The upper half of a float is a bfloat16: shift or mask, then multiply and add twice."""
        emitter, kind, wide = self.emitter, f"<{size} x i32>", f"<{size} x float>"
        for text in ("shl {} {}, splat (i32 16)", "and {} {}, splat (i32 -65536)"):
            floats = []
            for value in (a, b):
                bits = emitter.guarded(text.format(kind, value), value)
                floats.append(emitter.guarded(f"bitcast {kind} {bits} to {wide}", bits))
            x, y = floats
            if emitter.has_fma:
                dtype = dtypes.vector_dtype("float32", size)
                total = emitter.call_float("fma", dtype, x, y, total)
            else:
                product = emitter.guarded(f"fmul {wide} {x}, {y}", x, y)
                total = emitter.guarded(f"fadd {wide} {total}, {product}", total, product)
        return total
