"""Portable C: a lowered module for any machine that has a C compiler.

The text is C99; where a program has vectors it uses those of GCC and Clang. Parallel loops have
OpenMP's pragma and are serial for compilers that don't know it. A sum of a product is two
operations: what a machine fuses isn't known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.arith import linear_coefficients
from tilewright.codegen.c import math_helpers as _math_helpers  # noqa: F401 - registers helpers
from tilewright.codegen.c import text as t
from tilewright.codegen.c.dialect import SUFFIXES, Dialect, Helper
from tilewright.codegen.c.emit_stmt import FunctionEmitter
from tilewright.codegen.c.helpers import fill, helper_texts, used_helpers
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value, Vector
from tilewright.codegen.llvm.ffi_abi import NO_VALUE, FunctionSpec
from tilewright.codegen.llvm.signature import Signature, kernel_symbol, make_signature
from tilewright.codegen.llvm.types import wide_dtype
from tilewright.ir import (
    INDEX,
    Call,
    Expr,
    IRModule,
    Ramp,
    StringImm,
    Var,
    as_int,
    cast,
    dtypes,
    free_vars,
    pre_order,
)
from tilewright.support.errors import CodegenError
from tilewright.support.text import printf_form
from tilewright.tir import Allocate, AssertStmt, Buffer, For, PrimFunc, fresh_name
from tilewright.tir.attrs import EXCESS_PRECISION, NO_ALIAS
from tilewright.tir.transform.base import function_analyzer

#: Memory of constant size up to this many bytes is on the stack.
_STACK_BYTES = 1 << 14
_MESSAGE_BYTES = 512

_HEADER = f"""\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Where errors go: their kind and message. Functions return -1 after one. */
#ifdef TW_RAISE
void TW_RAISE(const char*, const char*);
#else
static void TW_RAISE(const char* kind, const char* message) {{
  fprintf(stderr, "%s: %s\\n", kind, message);
}}
#endif
/* Another name of a function for the linker. */
#ifndef TW_SYMBOL
#define TW_SYMBOL(name)
#endif
#define TW_MESSAGE_BYTES {_MESSAGE_BYTES}"""


def _math() -> dict[tuple[str, str], str]:
    made: dict[tuple[str, str], str] = {}
    unary = (
        "exp exp2 expm1 log log2 log10 log1p tanh erf erfc sin cos tan sinh cosh asin acos atan "
        "asinh acosh atanh sqrt floor ceil trunc nearbyint fabs"
    ).split()
    binary = "pow atan2 fmod hypot copysign nextafter".split()
    for element, suffix in (("float32", "f"), ("float64", "")):
        one = f"1.0{suffix}"
        made.update({(name, element): f"{name}{suffix}({{0}})" for name in unary})
        made.update({(name, element): f"{name}{suffix}({{0}}, {{1}})" for name in binary})
        made["fma", element] = f"fma{suffix}({{0}}, {{1}}, {{2}})"
        made["rsqrt", element] = f"({one} / sqrt{suffix}({{0}}))"
        made["exp10", element] = f"pow{suffix}(10.0{suffix}, {{0}})"
    return made


def _atomic_add(dialect: Dialect, element: str) -> Helper:
    """Update an element that other threads of a parallel loop may update too."""
    name, short = SUFFIXES[element], dialect.memory(element) != dialect.register(element)
    if short or dtypes.bits_of(element) < 8:
        raise CodegenError(f"atomic_add of {element} has no code in C")
    text = f"""
$fn $T tw_atomic_add_{name}($T* place, $T value) {{
  $T before;
#pragma omp atomic capture
  {{ before = *place; *place += value; }}
  return before;
}}"""
    return Helper(fill(dialect, element, text))


def _put_nibble(dialect: Dialect, element: str) -> Helper:
    text = """
$fn void tw_put_nibble_u4($u8* data, $i64 place, $u32 value) {
  const int shift = (int)(place & 1) * 4;
  $u8* byte = data + (place >> 1);
  *byte = ($u8)((*byte & ~(15u << shift)) | (value & 15u) << shift);
}"""
    return Helper(fill(dialect, element, text))


def _put_nibble_atomically(dialect: Dialect, element: str) -> Helper:
    text = """
$fn void tw_put_nibble_atomically_u4($u8* data, $i64 place, $u32 value) {
  const int shift = (int)(place & 1) * 4;
  __atomic_fetch_and(data + (place >> 1), ($u8)~(15u << shift), __ATOMIC_RELAXED);
  __atomic_fetch_or(data + (place >> 1), ($u8)((value & 15u) << shift), __ATOMIC_RELAXED);
}"""
    return Helper(fill(dialect, element, text))


C = Dialect(
    name="c",
    types={},
    kernel="",
    restrict="restrict",
    long_suffix="ll",
    infinity={"inf": "INFINITY", "nan": "NAN", "inf64": "(double)INFINITY", "nan64": "(double)NAN"},
    math=_math(),
    helpers={
        "atomic_add": _atomic_add,
        "put_nibble": _put_nibble,
        "put_nibble_atomically": _put_nibble_atomically,
    },
    header=_HEADER,
    vector_bytes=1,  # vectors are GCC's own, see CEmitter
    native_vectors=True,
    unroll="#pragma GCC unroll 64",
    options={"fused": False},
)

_NATIVE = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}


class CEmitter(FunctionEmitter):
    """Writes one function of the host in C."""

    def __init__(
        self,
        module: CModule,
        name: str,
        func: PrimFunc,
    ) -> None:
        super().__init__(C, module.helpers, function_analyzer(func))
        self.module = module
        self.name = name
        self.func = func
        self.rounds_narrow = not func.attrs.get(EXCESS_PRECISION, False)
        self.returns = ""  # the dtype of the function's value
        self.returned = ""  # the parameter that points to where it goes
        self.taken.update(module.symbols.values())
        self.heap: list[str] = []  # memory that a return gives back
        self.parallel_ends: list[str] = []  # labels at the ends of iterations that run at once

    # ---- vectors of GCC

    def vector_type(self, element: str, lanes: int) -> str:
        """Return the name of a vector type, which the text defines."""
        name = f"tw_{SUFFIXES[element]}x{lanes}"
        size = dtypes.bits_of(element) // 8
        self.module.types[name] = (
            f"typedef {self.dialect.memory(element)} {name} __attribute__((vector_size("
            f"{size * lanes}), aligned({size}), may_alias));"
        )
        return name

    def _has_vector(self, element: str, lanes: int) -> bool:
        return dtypes.bits_of(element) >= 8 and lanes > 1 and lanes & (lanes - 1) == 0

    def _contiguous(self, buffer: Buffer, index: Ramp, dtype: str) -> Value:
        element, lanes = dtypes.split_dtype(dtype)
        if not self._has_vector(element, lanes):
            return self._one_by_one(buffer, index, dtype)
        kind, place = self._vector_at(buffer, index, element)
        name = self.fresh(buffer.name)
        self.line(f"const {kind} {name} = {place};")
        return self._whole(name, dtype)

    def _whole(self, name: str, dtype: str) -> Vector:
        element = dtypes.element_of(dtype)
        return Vector(
            dtype, make=lambda n: self.from_memory(Text(f"{name}[{n}]"), element), whole=name
        )

    def _vector_at(self, buffer: Buffer, index: Ramp, element: str) -> tuple[str, str]:
        kind = self.vector_type(element, index.lanes)
        pointer = self.pointer(buffer.data, self.dialect.memory(element))
        base = self.scalar(index.base)
        place = t.binary("+", pointer, base) if base != "0" else Text(pointer)
        cast_to = self.pointer_type(buffer.data, kind)
        return kind, t.prefix(f"*({cast_to})", place)

    def _store_contiguous(self, buffer: Buffer, index: Ramp, value: Vector) -> None:
        element = dtypes.element_of(buffer.dtype)
        if not self._has_vector(element, index.lanes):
            super()._store_contiguous(buffer, index, value)
            return
        if value.whole is None:
            name = self._made_whole(value).whole
        else:
            name = value.whole
        _, place = self._vector_at(buffer, index, element)
        self.line(f"{place} = {name};")

    def _made_whole(self, value: Vector) -> Vector:
        """Give a vector a name of its own, of a vector type."""
        if value.whole is not None:
            return value
        element = dtypes.element_of(value.dtype)
        kind, name = self.vector_type(element, len(value)), self.fresh("v")
        lanes = ", ".join(self.to_memory(lane, element) for lane in value.lanes())
        self.line(f"const {kind} {name} = {{{lanes}}};")
        return self._whole(name, value.dtype)

    def native(self, name: str, dtype: str, a: Value, b: Value) -> Value | None:
        """An operation on vectors that the C compiler has; ``None`` where it has none."""
        element, lanes = dtypes.split_dtype(dtype)
        if element not in ("float32", "float64") or not self._has_vector(element, lanes):
            return None
        if name not in _NATIVE or not (isinstance(a, Vector) and isinstance(b, Vector)):
            return None
        if a.whole is None and b.whole is None:
            return None
        x, y = self._made_whole(a).whole, self._made_whole(b).whole
        made = self.fresh("v")
        kind = self.vector_type(element, lanes)
        self.line(f"const {kind} {made} = {x} {_NATIVE[name]} {y};")
        return self._whole(made, dtype)

    def visit_Add(self, node: object) -> Value:
        return self.visit_BinaryExpr(node)  # type: ignore[arg-type]

    # ---- memory, errors, parallel loops

    def visit_Allocate(self, node: Allocate) -> None:
        buffer = node.buffer
        element = dtypes.element_of(buffer.dtype)
        count = self.elements(buffer)
        if count is not None and count * max(dtypes.bits_of(element), 8) <= 8 * _STACK_BYTES:
            self.private(buffer)
            self.visit(node.body)
            return
        kind, name = self.dialect.memory(element), self.fresh(buffer.name)
        size = self._bytes(buffer)
        self.line(f"{kind}* const {name} = ({kind}*)malloc((size_t)({size}) + 1);")
        with self.braces(f"if ({name} == NULL)"):
            self.fail("MemoryError", t.string_text(f"{self.name}: no memory for {buffer.name}"))
        self._known(buffer, kind, name, 16, "")
        self.heap.append(name)
        self.visit(node.body)
        self.heap.pop()
        self.line(f"free({name});")

    def _bytes(self, buffer: Buffer) -> str:
        size: Expr = cast(dtypes.bytes_of(buffer.dtype), INDEX)
        for extent in buffer.shape:
            size = size * cast(extent, INDEX)
        return self.scalar(size)

    def private(self, buffer: Buffer) -> None:
        """Memory on the stack, whatever its scope: all of it is a thread's own."""
        super().private(buffer)

    def fail(self, kind: str, message: str) -> None:
        """Report an error, and return; in a parallel loop the iteration ends and the loop tells."""
        self.line(f"TW_RAISE({t.string_text(kind)}, {message});")
        if self.parallel_ends:
            for name in self.heap:
                self.line(f"free({name});")
            self.line("tw_failed = -1;")
            self.line(f"goto {self.parallel_ends[-1]};")
            return
        self.leave("-1")

    def leave(self, code: str) -> None:
        """Return, and give back memory."""
        if self.parallel_ends:
            raise CodegenError("ret inside a parallel loop has no code: only a whole function ends")
        for name in reversed(self.heap):
            self.line(f"free({name});")
        self.line(f"return {code};")

    def visit_AssertStmt(self, node: AssertStmt) -> None:
        condition = self.scalar(node.condition)
        with self.braces(f"if (!{t.within(condition, t.ATOM)})"):
            if not node.values:
                self.fail(node.kind, t.string_text(node.message))
                return
            form = t.string_text(printf_form(node.message))
            values = "".join(
                f", (long long){t.within(self.scalar(cast(value, INDEX)), t.UNARY)}"
                for value in node.values
            )
            self.line("char tw_message[TW_MESSAGE_BYTES];")
            self.line(f"snprintf(tw_message, sizeof tw_message, {form}{values});")
            self.fail(node.kind, "tw_message")

    def parallel(self, node: For) -> None:
        """Have the iterations of the next loop run at once."""
        if not self.parallel_ends:
            self.line("#pragma omp parallel for")

    def visit_For(self, node: For) -> None:
        if node.kind != "parallel" or self.parallel_ends:
            super().visit_For(node)
            return
        fails = any(
            isinstance(item, (AssertStmt, Allocate))
            or (isinstance(item, Call) and item.op.name == "call_extern")
            for item in pre_order(node.body)
        )
        heap, self.heap = self.heap, []
        if not fails:
            self._parallel_loop(node, "")
            self.heap = heap
            return
        with self.braces(""):
            self.line("int32_t tw_failed = 0;")
            self._parallel_loop(node, self.fresh("end_of_iteration"))
            self.heap = heap
            with self.braces("if (tw_failed != 0)"):
                self.leave("tw_failed")

    def _parallel_loop(self, node: For, label: str) -> None:
        kind = self.dialect.register(node.loop_var.dtype)
        begin, end = self.scalar(node.min), self.scalar(node.min + node.extent)
        name = self.fresh(node.loop_var.name)
        self.define(node.loop_var, Text(name))
        self.line("#pragma omp parallel for")
        self.parallel_ends.append(label)
        with self.braces(f"for ({kind} {name} = {begin}; {name} < {end}; ++{name})"):
            self.visit(node.body)
            if label:
                self.line(f"{label}:;")
        self.parallel_ends.pop()


class CModule:
    """What the functions of one module share: helpers, types, declarations."""

    def __init__(self, mod: IRModule) -> None:
        self.helpers: dict[tuple[str, str], None] = {}
        self.types: dict[str, str] = {}
        self.externs: dict[str, str] = {}
        self.functions = {n: f for n, f in mod.functions.items() if isinstance(f, PrimFunc)}
        self.signatures = {name: make_signature(name, f) for name, f in self.functions.items()}
        taken: set[str] = set()
        self.symbols: dict[str, str] = {}
        for name in self.functions:
            if name[0].isdigit():
                raise CodegenError(f"{name!r} is no name of a C function: a digit begins it")
            self.symbols[name] = fresh_name(t.identifier(f"{name}_kernel"), taken)
        self.texts: list[str] = []
        self.heads: list[str] = []

    def text(self) -> str:
        """The whole module."""
        helpers = helper_texts(C, used_helpers(self.helpers, self.texts))
        parts = [_HEADER, "\n".join(self.types.values()), *helpers]
        parts += ["\n".join(self.externs.values()), "\n".join(self.heads), *self.texts]
        return "\n\n".join(part for part in parts if part) + "\n"

    def emit_function(self, name: str, func: PrimFunc) -> None:
        """Write one function, which returns 0, or -1 after an error."""
        signature = self.signatures[name]
        emitter = CEmitter(self, self.symbols[name], func)
        params, checks = _parameters(emitter, func, signature)
        if signature.spec.returns:
            emitter.returns = signature.spec.returns
            emitter.returned = emitter.fresh("returned")
            params.append(f"{_wide(emitter, emitter.returns)} *{emitter.returned}")
        _solve(emitter, checks)
        for expr, text in checks:
            wanted = emitter.scalar(expr)
            with emitter.braces(f"if ({t.binary('!=', text, wanted)})"):
                message = f"{name}: an extent must be {expr!r}, the arguments say something else"
                emitter.fail("ValueError", t.string_text(message))
        emitter.visit(func.body)
        emitter.line(f"return {NO_VALUE if emitter.returns else 0};")
        head = f"int32_t {self.symbols[name]}({', '.join(params) or 'void'})"
        symbol = t.string_text(kernel_symbol(name))
        self.heads.append(f"{head} TW_SYMBOL({symbol});")
        self.texts.append("\n".join([f"{head} {{", *emitter.lines, "}"]))


def _parameters(
    emitter: CEmitter, func: PrimFunc, signature: Signature
) -> tuple[list[str], list[tuple[Expr, str]]]:
    """Texts of the parameters, and those that are values of formulas."""
    buffers = {buffer.data: buffer for buffer in func.buffers}
    written = {
        entry.name: getattr(entry, "written", False) for entry in signature.spec.args
    }  # fmt: skip
    texts: list[str] = []
    checks: list[tuple[Expr, str]] = []
    tensors = [entry.name for entry in signature.spec.args if hasattr(entry, "shape")]
    names = iter(tensors)
    for expr, (label, kind) in zip(signature.parameters, signature.spec.parameters()):
        name = emitter.fresh(label)
        if isinstance(expr, Var) and expr in buffers:
            buffer = buffers[expr]
            element = dtypes.element_of(buffer.dtype)
            memory = emitter.dialect.memory(element)
            emitter.assumed[expr] = 1
            if written[next(names)]:
                emitter.written.add(expr)
            if (expr, memory) not in emitter.pointers:
                emitter.pointers[expr, memory] = name
            alone = func.attrs.get(NO_ALIAS, True) and expr in signature.noalias
            texts.append(
                f"{emitter.pointer_type(expr, memory)}{' restrict' if alone else ''} {name}"
            )
            if isinstance(buffer.elem_offset, Var):
                emitter.values[buffer.elem_offset] = Text("0")
            continue
        if isinstance(expr, Var):
            element = dtypes.element_of(expr.dtype)
            # Extents are passed as 64 bits, whatever the program calls them.
            wide = kind == "i64" and element != INDEX and expr not in func.params
            texts.append(f"{'int64_t' if wide else emitter.dialect.memory(element)} {name}")
            value = Text(name)
            text = (
                emitter.convert(value, INDEX, element)
                if wide
                else emitter.from_memory(value, element)
            )
            emitter.values[expr] = text
            if element != INDEX and dtypes.is_integer(element):
                emitter.data_vars.add(expr)
            continue
        texts.append(f"int64_t {name}")
        checks.append((expr, name))
    return texts, checks


def _solve(emitter: CEmitter, checks: Sequence[tuple[Expr, str]]) -> None:
    """Find variables that stand in formulas only: ``n`` where a shape has ``n * 4``."""
    left = list(checks)
    while left:
        unsolved = []
        for expr, text in left:
            unknown = [var for var in free_vars(expr) if var not in emitter.values]
            linear = linear_coefficients(expr, unknown) if len(unknown) == 1 else None
            factor = None if linear is None else as_int(linear[0])
            if linear is not None and factor:
                rest = emitter.scalar(linear[1])
                value = t.binary("/", t.binary("-", text, rest), str(factor))
                var = unknown[0]
                emitter.values[var] = emitter.let(
                    emitter.convert(value, INDEX, var.dtype), var.dtype, var.name
                )
            elif unknown:
                unsolved.append((expr, text))
        if len(unsolved) == len(left):
            names = ", ".join(repr(var.name) for var in free_vars(left[0][0]))
            raise CodegenError(
                f"{emitter.name}: the value of {names} does not follow from the extent "
                f"{left[0][0]!r}; make it a parameter, or an extent of its own"
            )
        left = unsolved


@dataclass(frozen=True)
class CText:
    """C text that defines the kernels of ``specs``."""

    text: str
    specs: tuple[FunctionSpec, ...]


def emit_module(mod: IRModule) -> CText:
    """Write all functions of a lowered module in C."""
    module = CModule(mod)
    for name, func in module.functions.items():
        try:
            module.emit_function(name, func)
        except CodegenError as error:
            raise CodegenError(f"{name}: {error}") from error
    return CText(module.text(), tuple(item.spec for item in module.signatures.values()))


def _wide(emitter: CEmitter, dtype: str) -> str:
    return emitter.dialect.register(wide_dtype(dtype))


def _ret(emitter: CEmitter, call: Call) -> Value:
    value = call.args[0]
    if emitter.returns and not emitter.parallel_ends:
        narrow = emitter.convert(emitter.scalar(value), value.dtype, emitter.returns)
        made = emitter.convert(narrow, emitter.returns, wide_dtype(emitter.returns))
        emitter.line(f"*{emitter.returned} = {made};")
    emitter.leave("0")
    return Text("0")


def _call_extern(emitter: CEmitter, call: Call) -> Value:
    """Call another function of the module, or one that the text declares."""
    name, *args = call.args
    if not isinstance(name, StringImm):
        raise CodegenError(f"{call.op.name} takes the function's name first, got {name!r}")
    texts = [_argument(emitter, arg) for arg in args]
    symbol = emitter.module.symbols.get(name.value)
    if symbol is not None:
        spec = emitter.module.signatures[name.value].spec
        spec.check_result(call.dtype)
        place = ""
        if spec.returns:
            place = emitter.fresh("returned")
            emitter.line(f"{_wide(emitter, spec.returns)} {place} = 0;")
            texts.append(f"&{place}")
        code = emitter.let(f"{symbol}({', '.join(texts)})", "int32", "code")
        with emitter.braces(f"if ({code} != 0{f' && {code} != {NO_VALUE}' if place else ''})"):
            if emitter.parallel_ends:
                emitter.line("tw_failed = -1;")
                emitter.line(f"goto {emitter.parallel_ends[-1]};")
            else:
                emitter.leave(code)
        if not place or call.dtype == "void":
            return code
        with emitter.braces(f"if ({code} == {NO_VALUE})"):
            emitter.fail("RuntimeError", t.string_text(spec.without_value()))
        made = emitter.convert(Text(place), wide_dtype(call.dtype), call.dtype)
        return emitter.let(made, call.dtype, "result")
    kinds = [emitter.dialect.register(dtypes.element_of(arg.dtype)) for arg in args]
    result = emitter.dialect.register(dtypes.element_of(call.dtype))
    if t.identifier(name.value) != name.value:
        raise CodegenError(f"{call.op.name}: {name.value!r} is no name of a C function")
    declared = f"{result} {name.value}({', '.join(kinds) or 'void'});"
    if emitter.module.externs.setdefault(name.value, declared) != declared:
        raise CodegenError(f"{name.value!r} is called with two signatures")
    made = Text(f"{name.value}({', '.join(texts)})")
    if call.dtype == "void" or call.op.name == "call_pure_extern":
        return made
    return emitter.let(made, dtypes.element_of(call.dtype), "result")


def _argument(emitter: CEmitter, arg: Expr) -> str:
    """An argument of a C function; memory is passed as it is, whatever its elements are."""
    if type(arg) is Var and arg not in emitter.values:
        named = [name for (var, _), name in emitter.pointers.items() if var is arg]
        if named:
            return t.prefix("(void*)", named[0])
    return emitter.scalar(arg)


def _constant_data(emitter: CEmitter, call: Call) -> Value:
    symbol, size = call.args
    if not isinstance(symbol, StringImm) or as_int(size) is None:
        raise CodegenError("constant_data(symbol, bytes) takes a text and a number")
    name = t.identifier(symbol.value)
    emitter.module.externs[name] = (
        f"extern const uint8_t {name}[{as_int(size)}] TW_SYMBOL({t.string_text(symbol.value)});"
    )
    return t.prefix("(void*)", name)


C.calls.update(  # type: ignore[attr-defined]
    {
        "ret": _ret,
        "call_extern": _call_extern,
        "call_pure_extern": _call_extern,
        "constant_data": _constant_data,
    }
)
