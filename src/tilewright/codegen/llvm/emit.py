"""Flat TensorIR to the text of an LLVM module: the LLVM backend's code generator.

Takes what ``driver.lower`` gives (no blocks, one index per buffer access, no vectorized loops), and
gives LLVM IR text with the calling convention of :mod:`ffi_abi`. Text is written directly: building
LLVM's objects from Python would take longer than compiling them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.arith import linear_coefficients
from tilewright.codegen.llvm import workspace as _workspace  # noqa: F401 - the loader knows it
from tilewright.codegen.llvm.builder import Callee, function_text
from tilewright.codegen.llvm.emit_stmt import RETURNED, FunctionEmitter
from tilewright.codegen.llvm.ffi_abi import NO_VALUE, FunctionSpec, TensorArg
from tilewright.codegen.llvm.math import collect, emit_math, instruction_set
from tilewright.codegen.llvm.near_gather import near_gather_function
from tilewright.codegen.llvm.parallel import emit_parallel
from tilewright.codegen.llvm.signature import Signature, kernel_symbol, make_signature
from tilewright.codegen.llvm.streaming import NONTEMPORAL, streaming_function
from tilewright.codegen.llvm.types import c_string, global_name, is_narrow
from tilewright.ir import INDEX, Expr, IRModule, Var, as_int, free_vars
from tilewright.support.errors import CodegenError
from tilewright.support.folder import modules_in
from tilewright.target import Target
from tilewright.tir import For, PrimFunc
from tilewright.tir.attrs import EXCESS_PRECISION, NO_ALIAS

modules_in(__package__, "emit_")  # they register how calls of intrinsics are emitted


@dataclass(frozen=True)
class EmittedModule:
    """LLVM IR text that defines the kernels of ``specs``."""

    text: str
    specs: tuple[FunctionSpec, ...]


class ModuleEmitter:
    """What the functions of one module share: declarations, constants, math functions."""

    #: Where the tensors are.
    device = "cpu"
    #: A parameter that all functions have after their own, and pass on.
    frame = ""
    function_emitter: type[FunctionEmitter] = FunctionEmitter

    def __init__(self, mod: IRModule, target: Target) -> None:
        self.target = target
        self.has_fma = target.has("fma") or target.has("avx512f") or target.has("neon")
        self.can_stream = target.has("sse2") or target.has("sse4.2") or target.has("avx")
        self.instruction_set = instruction_set(target.features)
        self.attributes = function_attributes(target)
        self.functions: list[str] = []
        self.element_of_data: dict[Var, str] = {}
        self.data_vars: set[Var] = set()
        self.let_values: dict[Var, Expr] = {}
        self.signatures: dict[str, Signature] = {}
        for name, func in mod.functions.items():
            if isinstance(func, PrimFunc):
                self.signatures[name] = make_signature(name, func, self.device)
        self._declarations: dict[str, None] = {}
        self._strings: dict[str, str] = {}
        self._math: dict[tuple[str, str, int], str] = {}
        self._externs: dict[str, str] = {}
        self._names: set[str] = set()
        self._helpers: set[str] = set()

    # ---- shared things

    def declare(self, text: str) -> None:
        """Add a declaration, once."""
        self._declarations[text] = None

    def string(self, text: str) -> str:
        """Return a pointer to a constant text."""
        name = self._strings.get(text)
        if name is None:
            name = self._strings[text] = f'@"text.{len(self._strings)}"'
        return name

    def math(self, name: str, dtype: str, lanes: int) -> str:
        """Return the symbol of a function of the math library, which will be included."""
        key = (name, dtype, lanes)
        if key not in self._math:
            self._math[key] = emit_math(name, dtype, lanes, self.instruction_set).symbol
        return self._math[key]

    def streaming_store(self, kind: str, element: str, size: int, *, parts: bool) -> str:
        """Return the symbol of a function that stores a vector of ``size`` bytes past the caches.

        Such stores need aligned addresses, which only shows when the program runs: callers' arrays
        begin where their allocators like. What isn't aligned at all is stored as usual.
        """
        name = f"stream.{element}.{size}.{'parts' if parts else 'whole'}"
        widest = self.target.vector_bits // 8
        self.declare("declare void @llvm.x86.sse.sfence()")
        self.declare(f"{NONTEMPORAL} = !{{i32 1}}")
        return self._once(streaming_function(name, kind, size, widest, parts))

    def near_gather(self, element: str, windows: int) -> str:
        """Return the symbol of a function that looks up elements within so many vectors."""
        return self._once(
            near_gather_function(f"gather.near.{element}.{windows}", element, windows)
        )

    def _once(self, callee: Callee) -> str:
        """Write a function, unless one of its name is there; return its symbol."""
        if callee.name not in self._helpers:
            self._helpers.add(callee.name)
            self.functions.append(function_text(callee))
        return callee.symbol

    def unique_name(self, base: str) -> str:
        """Return an unused name of an internal function."""
        number = 0
        while f"{base}{number}" in self._names:
            number += 1
        self._names.add(f"{base}{number}")
        return f"{base}{number}"

    def symbol_of(self, name: str) -> str:
        """Return the LLVM symbol of a function of this module."""
        return kernel_symbol(name)

    def kernel_of_call(self, name: str, kinds: Sequence[str], dtype: str) -> FunctionSpec | None:
        """Return what a kernel of this module is that is called by name, else ``None``."""
        signature = self.signatures.get(name)
        if signature is None:
            return None
        wanted = [kind for _, kind in signature.spec.parameters()]
        signature.spec.check_result(dtype)
        if list(kinds) != wanted:
            raise CodegenError(
                f"call_extern({name!r}) passes ({', '.join(kinds)}), but the kernel takes "
                f"({', '.join(f'{k} {n}' for n, k in signature.spec.parameters())})"
            )
        return signature.spec

    def emit_launch(
        self, emitter: FunctionEmitter, name: str, args: Sequence[Expr], values: Sequence[str]
    ) -> bool:
        """Launch a kernel of a device; return whether the name is one's."""
        return False

    def constant_pointer(self, emitter: FunctionEmitter, symbol: str, size: int) -> str:
        """Return the address of a constant of the module."""
        name = global_name(symbol)
        self.declare(f"{name} = external constant [{size} x i8]")
        return name

    def device_number(self, emitter: FunctionEmitter) -> str:
        """Return the number of the device that the tensors are on, as an ``i32``."""
        return "0"

    def extern(self, name: str, result: str, kinds: Sequence[str]) -> str:
        """Declare a function from elsewhere and return its symbol."""
        symbol = global_name(name)
        text = f"declare {result} {symbol}({', '.join(kinds)})"
        if self._externs.setdefault(name, text) != text:
            raise CodegenError(
                f"{name!r} is called with two signatures: {text} and {self._externs[name]}"
            )
        self.declare(text)
        return symbol

    def emit_parallel(self, emitter: FunctionEmitter, loop: For) -> None:
        """Outline and launch a parallel loop."""
        emit_parallel(self, emitter, loop)

    # ---- functions

    def emit_function(self, name: str, func: PrimFunc) -> None:
        """Write one kernel."""
        signature = self.signatures[name]
        emitter = self.function_emitter(self, name)
        emitter.noalias = set(signature.noalias)
        emitter.returns = signature.spec.returns or ""
        emitter.rounds_narrow = not func.attrs.get(EXCESS_PRECISION, False)
        params = []
        checks = []
        places = []
        for index, (expr, (label, kind)) in enumerate(
            zip(signature.parameters, signature.spec.parameters())
        ):
            operand = f"%a{index}"
            emitter.levels[operand] = 0
            attributes = " noalias" if expr in signature.noalias and _no_alias(func) else ""
            params.append(f"{kind}{attributes} {operand}")
            if not isinstance(expr, Var):
                checks.append((expr, operand))
                places.append(_place_of(signature, label))
                continue
            if kind == "i64" and expr.dtype != INDEX and expr not in func.params:
                operand = emitter.convert(operand, INDEX, expr.dtype)
            elif is_narrow(expr.dtype):
                operand = emitter.from_memory(operand, expr.dtype)
            emitter.define(expr, operand)
        for buffer in func.buffers:
            self.element_of_data[buffer.data] = buffer.dtype
            if isinstance(buffer.elem_offset, Var):
                emitter.define(buffer.elem_offset, "0")
        _solve_extents(emitter, name, checks)
        for (expr, operand), place in zip(checks, places):
            _check_extent(emitter, f"{name}: {place}", expr, operand)
        emitter.visit(func.body)
        emitter.finish_streaming()
        emitter.effect(f"ret i32 {NO_VALUE if signature.spec.returns else 0}")
        if self.frame:
            params.append(f"ptr {self.frame}")
        if signature.spec.returns:
            params.append(f"ptr {RETURNED}")
        symbol = self.symbol_of(name)
        self.functions.append(
            f'define hidden i32 @"{symbol}"({", ".join(params)}) {self.attributes} {{\nentry:'
        )
        self.functions.extend(emitter.text_lines())
        self.functions.append("}")

    def text(self) -> str:
        """The whole module."""
        constants = [
            f"{name} = private constant {c_string(text)}" for text, name in self._strings.items()
        ]
        return "\n".join(
            [
                *constants,
                *self._declarations,
                *self.functions,
                collect(list(self._math), self.instruction_set),
            ]
        )


def function_attributes(target: Target) -> str:
    """Return the attributes of functions that compute.

    With a known length of SVE's registers LLVM uses them for vectors of fixed lengths.
    """
    if not target.has("sve") or target.vector_bits <= 128:
        return "nounwind"
    scale = target.vector_bits // 128
    return f"nounwind vscale_range({scale},{scale})"


def _no_alias(func: PrimFunc) -> bool:
    return bool(func.attrs.get(NO_ALIAS, True))


def _solve_extents(
    emitter: FunctionEmitter, name: str, extents: Sequence[tuple[Expr, str]]
) -> None:
    """Find the variables that stand in formulas only: ``n`` where a shape has ``n * 4``.

    A formula gives its variable a value if it is linear in that and all else in it is known. What
    doesn't divide is noticed when the extent is checked against the formula.
    """
    left = list(extents)
    while left:
        unsolved = []
        for expr, operand in left:
            unknown = [var for var in free_vars(expr) if emitter.lookup(var) is None]
            linear = linear_coefficients(expr, unknown) if len(unknown) == 1 else None
            factor = None if linear is None else as_int(linear[0])
            if linear is not None and factor:
                rest = emitter.convert(emitter.visit(linear[1]), linear[1].dtype, INDEX)
                difference = emitter.pure(f"sub i64 {operand}, {rest}", operand, rest)
                value = emitter.pure(f"sdiv i64 {difference}, {factor}", difference)
                emitter.define(unknown[0], emitter.convert(value, INDEX, unknown[0].dtype))
            elif unknown:
                unsolved.append((expr, operand))
        if len(unsolved) == len(left):
            expr = left[0][0]
            unknown = [var for var in free_vars(expr) if emitter.lookup(var) is None]
            raise CodegenError(
                f"{name}: the value of {', '.join(repr(var.name) for var in unknown)} does not "
                f"follow from the arguments: the extent {expr!r} is not a multiple of one unknown "
                "variable plus what is known; make it a parameter, or an extent of its own"
            )
        left = unsolved


def _place_of(signature: Signature, label: str) -> str:
    """Say which extent or stride of which argument has a name."""
    for arg in signature.spec.args:
        if isinstance(arg, TensorArg):
            for what, items in (("extent", arg.shape), ("stride", arg.strides or ())):
                if label in items:
                    return f"{what} {items.index(label)} of argument {arg.name!r}"
    return f"argument {label!r}"


def _check_extent(emitter: FunctionEmitter, place: str, expr: Expr, operand: str) -> None:
    """Raise at run time if an extent that is a formula has another value."""
    wanted = emitter.convert(emitter.visit(expr), expr.dtype, INDEX)
    same = emitter.here(f"icmp eq i64 {wanted}, {operand}")
    passed, failed = emitter.label("extent"), emitter.label("mismatch")
    emitter.branch_if(same, passed, failed)
    emitter.start_block(failed)
    message = f"{place} must be {expr!r}, which is {{}}; got {{}}"
    emitter.raise_error("ValueError", message, (wanted, operand))
    emitter.effect("ret i32 -1")
    emitter.start_block(passed)


def emit_module(mod: IRModule, target: Target) -> EmittedModule:
    """Generate the LLVM IR text of all functions of a lowered module."""
    emitter = ModuleEmitter(mod, target)
    for name, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            emitter.emit_function(name, func)
    specs = tuple(signature.spec for signature in emitter.signatures.values())
    return EmittedModule(emitter.text(), specs)


__all__ = ["EmittedModule", "ModuleEmitter", "emit_module"]
