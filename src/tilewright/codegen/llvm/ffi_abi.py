"""The calling convention of compiled functions: tvm-ffi outside, plain pointers inside.

For a kernel ``NAME`` this emits ``int __tvm_ffi_NAME(self, args, count, result)``, which any
tvm-ffi host can call: it has its arguments checked against a constant table by the binder
(:mod:`binder`), and calls the kernel as

    i32 NAME(ptr tensor..., scalar..., i64 extent...)

- tensors in the order of the arguments, the byte offset applied;
- scalars in their order, each in its own LLVM type (``bool`` is ``i1``);
- the symbolic extents that no scalar argument names, in the order of their first occurrence
  (arguments from first to last; of a tensor first the shape, then the strides from the last).

:meth:`FunctionSpec.parameters` gives this list. A kernel returns 0, or -1 after it has raised an
error through tvm-ffi, or any other code, which the wrapper raises as a ``RuntimeError``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.codegen.llvm.types import c_string
from tilewright.runtime.dlpack import dlpack_dtype
from tilewright.support.errors import CodegenError

#: Declarations that the wrappers of a module need, once per module.
WRAPPER_DECLARATIONS = (
    "declare i32 @tw_bind(ptr, ptr, i32, ptr)",
    "declare i32 @tw_fail_code(ptr, i32)",
    "declare i32 @tw_return_text(ptr, i64, ptr)",
)

_LLVM_FLOATS = {"float16": "half", "bfloat16": "bfloat", "float32": "float", "float64": "double"}
_INT_MAX = 2**31 - 1


@dataclass(frozen=True)
class TensorArg:
    """A tensor argument.

    An extent is a number, a symbol's name, or None for "any". ``strides`` are in elements; None
    means compact, row by row. ``alignment`` is what the address must be a multiple of, in bytes.
    ``written`` tells whether the function may write to it: only then a read-only array is refused.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    strides: tuple[int | str | None, ...] | None = None
    alignment: int = 1
    device_type: int = 1
    written: bool = True


@dataclass(frozen=True)
class ScalarArg:
    """A scalar argument; one of an integer type may name a symbol of the tensors' shapes."""

    name: str
    dtype: str


@dataclass(frozen=True)
class FunctionSpec:
    """What a function takes: its public name, its arguments, and the kernel that it calls."""

    name: str
    args: tuple[TensorArg | ScalarArg, ...]
    symbol: str | None = None
    returns_void: bool = False

    @property
    def kernel(self) -> str:
        """The symbol of the kernel: ``symbol``, or the function's name."""
        return self.symbol or self.name

    def parameters(self) -> list[tuple[str, str]]:
        """Return the kernel's parameters as (name, LLVM type)."""
        layout = _Layout(self)
        return [(name, kind) for name, kind, _ in layout.parameters]

    def written(self) -> tuple[bool, ...]:
        """For each argument, whether the function may write to it."""
        return tuple(isinstance(arg, TensorArg) and arg.written for arg in self.args)


def scalar_llvm_type(dtype: str) -> str:
    """Return the LLVM type in which a scalar of ``dtype`` is passed."""
    code, bits, lanes = dlpack_dtype(dtype)
    if dtype == "bool":
        return "i1"
    if lanes == 1 and code in (0, 1):
        return f"i{bits}"
    if dtype in _LLVM_FLOATS:
        return _LLVM_FLOATS[dtype]
    raise CodegenError(
        f"a scalar argument can't be of type {dtype!r}; possible are bool, the integers, "
        f"{', '.join(_LLVM_FLOATS)}"
    )


def _packed(dtype: str) -> int:
    code, bits, lanes = dlpack_dtype(dtype)
    packed = code | bits << 8 | lanes << 16
    return packed - 2**32 if packed > _INT_MAX else packed


class _Layout:
    """Where the binder puts each value, and which occurrence of a symbol defines it."""

    def __init__(self, spec: FunctionSpec) -> None:
        self.spec = spec
        self._check_names()
        scalars = [arg for arg in spec.args if isinstance(arg, ScalarArg)]
        tensors = [arg for arg in spec.args if isinstance(arg, TensorArg)]
        order: list[TensorArg | ScalarArg] = [*tensors, *scalars]
        self.slots = {arg.name: index for index, arg in enumerate(order)}
        self.symbols: dict[str, tuple[int, int, int]] = {}  # name -> number, slot, argument
        self.shape_rules: dict[str, list[tuple[int, int, int]]] = {}
        self.stride_rules: dict[str, list[tuple[int, int, int]]] = {}
        self.scalar_rules: dict[str, tuple[int, int]] = {}
        self._extra: list[str] = []
        used = {
            extent
            for arg in tensors
            for extent in (*arg.shape, *(arg.strides or ()))
            if isinstance(extent, str)
        }
        for index, arg in enumerate(spec.args):
            if isinstance(arg, TensorArg):
                self.shape_rules[arg.name] = [self._rule(e, index) for e in arg.shape]
                if arg.strides is not None:
                    # The binder goes through strides from the last to the first.
                    rules = [self._rule(e, index) for e in reversed(arg.strides)]
                    self.stride_rules[arg.name] = rules[::-1]
            elif arg.name in used and dlpack_dtype(arg.dtype)[0] in (0, 1):
                self.scalar_rules[arg.name] = self._rule(arg.name, index)[:2]
        self.parameters: list[tuple[str, str, int]] = [
            (arg.name, "ptr", self.slots[arg.name]) for arg in tensors
        ]
        for scalar in scalars:
            kind = scalar_llvm_type(scalar.dtype)
            self.parameters.append((scalar.name, kind, self.slots[scalar.name]))
        self.parameters += [(name, "i64", self.slots[name]) for name in self._extra]

    def _check_names(self) -> None:
        spec = self.spec
        names = [arg.name for arg in spec.args]
        if len(set(names)) != len(names):
            raise CodegenError(f"{spec.name}: argument names must differ, got {names}")
        for arg in spec.args:
            if isinstance(arg, ScalarArg):
                continue
            if arg.strides is not None and len(arg.strides) != len(arg.shape):
                raise CodegenError(
                    f"{spec.name}: tensor {arg.name!r} has {len(arg.shape)} extents but "
                    f"{len(arg.strides)} strides"
                )
            if arg.alignment < 1 or arg.alignment & (arg.alignment - 1):
                raise CodegenError(
                    f"{spec.name}: alignment of {arg.name!r} must be a power of two, "
                    f"got {arg.alignment}"
                )

    def _rule(self, extent: int | str | None, argument: int) -> tuple[int, int, int]:
        """(rule, symbol's number, value) of an extent, in the order in which they are checked."""
        if extent is None:
            return 3, 0, 0
        if isinstance(extent, int):
            return 0, 0, extent
        if extent in self.symbols:
            return 2, self.symbols[extent][0], 0
        if extent not in self.slots:
            self.slots[extent] = len(self.slots)
            self._extra.append(extent)
        number = len(self.symbols)
        self.symbols[extent] = number, self.slots[extent], argument
        return 1, number, 0


def _tuple_text(values: Iterable[int | str | None]) -> str:
    items = ["?" if value is None else str(value) for value in values]
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _narrowed(made: str, wide: str, kind: str) -> list[str]:
    """Lines that convert a double; LLVM's way to bfloat is a library call nobody defines."""
    if kind != "bfloat":
        return [f"  {made} = fptrunc double {wide} to {kind}"]
    return [
        f"  {made}.single = fptrunc double {wide} to float",
        f"  {made}.bits = bitcast float {made}.single to i32",
        f"  {made}.high = lshr i32 {made}.bits, 16",
        f"  {made}.odd = and i32 {made}.high, 1",
        f"  {made}.bias = add i32 {made}.odd, {0x7FFF}",
        f"  {made}.sum = add i32 {made}.bits, {made}.bias",
        f"  {made}.nearest = lshr i32 {made}.sum, 16",
        f"  {made}.nan = fcmp uno double {wide}, {wide}",
        f"  {made}.picked = select i1 {made}.nan, i32 {0x7FC0}, i32 {made}.nearest",
        f"  {made}.short = trunc i32 {made}.picked to i16",
        f"  {made} = bitcast i16 {made}.short to bfloat",
    ]


def quoted(name: str) -> str:
    """Return a name as an LLVM global."""
    if not name or any(not 32 < ord(c) < 127 or c in '"\\' for c in name):
        raise CodegenError(f"{name!r} can't be the name of a function")
    return f'@"{name}"'


class _Emitter:
    def __init__(self, spec: FunctionSpec) -> None:
        self.spec = spec
        self.layout = _Layout(spec)
        self.lines: list[str] = []
        self._texts: dict[str, str] = {}
        self._rows: dict[str, str] = {}

    def text(self, text: str) -> str:
        if text not in self._texts:
            name = f'@"{self.spec.name}.t{len(self._texts)}"'
            self._texts[text] = name
            self.lines.append(f"{name} = private constant {c_string(text)}")
        return f"ptr {self._texts[text]}"

    def extents(self, rules: list[tuple[int, int, int]]) -> str:
        cells = ", ".join(
            f"{{ i32, i32, i64 }} {{ i32 {rule}, i32 {symbol}, i64 {value} }}"
            for rule, symbol, value in rules
        )
        if not cells:
            return "ptr null"
        body = f"[{len(rules)} x {{ i32, i32, i64 }}] [{cells}]"
        if body not in self._rows:
            name = f'@"{self.spec.name}.d{len(self._rows)}"'
            self._rows[body] = name
            self.lines.append(f"{name} = private constant {body}")
        return f"ptr {self._rows[body]}"

    def argument(self, arg: TensorArg | ScalarArg) -> str:
        slot = self.layout.slots[arg.name]
        name, dtype = self.text(arg.name), self.text(arg.dtype)
        packed = _packed(arg.dtype)
        if isinstance(arg, ScalarArg):
            scalar_llvm_type(arg.dtype)
            code = dlpack_dtype(arg.dtype)[0]
            kind = 4 if arg.dtype == "bool" else {0: 1, 1: 2}.get(code, 3)
            rule, symbol = self.layout.scalar_rules.get(arg.name, (0, 0))
            pointers = f"{name}, ptr null, ptr null, ptr null, ptr null, {dtype}"
            numbers = (kind, 0, packed, 0, 1, slot, rule, symbol)
        else:
            shape = self.extents(self.layout.shape_rules[arg.name])
            if arg.strides is None:
                strides, wanted = "ptr null", "compact row-major strides"
            elif not arg.strides:
                strides, wanted = "ptr null", ""
            else:
                strides = self.extents(self.layout.stride_rules[arg.name])
                wanted = f"strides {_tuple_text(arg.strides)}"
            texts = f"{self.text(_tuple_text(arg.shape))}, {self.text(wanted)}"
            pointers = f"{name}, {shape}, {strides}, {texts}, {dtype}"
            numbers = (0, len(arg.shape), packed, arg.device_type, arg.alignment, slot, 0, 0)
        return f"%tw.argument {{ {pointers}, {', '.join(f'i32 {n}' for n in numbers)} }}"

    def table(self) -> None:
        spec, layout = self.spec, self.layout
        rows = ", ".join(self.argument(arg) for arg in spec.args)
        symbols = ", ".join(
            f"{{ ptr, ptr, i32, i32 }} {{ {self.text(name)}, "
            f"{self.text(spec.args[argument].name)}, i32 {slot}, i32 {argument} }}"
            for name, (_, slot, argument) in layout.symbols.items()
        )
        signature = ", ".join(
            f"{arg.name}: {'Tensor' if isinstance(arg, TensorArg) else arg.dtype}"
            for arg in spec.args
        )
        prefix = f'@"{spec.name}'
        count = len(spec.args)
        name, text = self.text(spec.name), self.text(signature)
        self.lines += [
            f'{prefix}.a" = private constant [{count} x %tw.argument] [{rows}]',
            f'{prefix}.y" = private constant [{len(layout.symbols)} x {{ ptr, ptr, i32, i32 }}] '
            f"[{symbols}]",
            f'{prefix}.table" = private constant {{ ptr, ptr, ptr, ptr, i32, i32 }} '
            f'{{ {name}, ptr {prefix}.a", ptr {prefix}.y", {text}, i32 {count}, i32 0 }}',
        ]

    def wrapper(self) -> None:
        spec, layout = self.spec, self.layout
        size = max(len(layout.slots), 1)
        body = [
            f"define i32 {quoted('__tvm_ffi_' + spec.name)}"
            "(ptr %self, ptr %args, i32 %count, ptr %result) noinline optnone nounwind {",
            f"  %slots = alloca [{size} x i64], align 8",
            f'  %bound = call i32 @tw_bind(ptr @"{spec.name}.table", ptr %args, i32 %count, '
            "ptr %slots)",
            "  %refused = icmp ne i32 %bound, 0",
            "  br i1 %refused, label %out, label %run",
            "out:",
            "  ret i32 -1",
            "run:",
        ]
        actual = []
        for index, (_, kind, slot) in enumerate(layout.parameters):
            body.append(f"  %p{index} = getelementptr i64, ptr %slots, i64 {slot}")
            value = f"%v{index}"
            if kind in ("ptr", "i64", "double"):
                body.append(f"  {value} = load {kind}, ptr %p{index}")
            elif kind in _LLVM_FLOATS.values():
                body.append(f"  %w{index} = load double, ptr %p{index}")
                body += _narrowed(value, f"%w{index}", kind)
            else:
                body.append(f"  %w{index} = load i64, ptr %p{index}")
                body.append(f"  {value} = trunc i64 %w{index} to {kind}")
            actual.append(f"{kind} {value}")
        call = f"{quoted(spec.kernel)}({', '.join(actual)})"
        if spec.returns_void:
            body += [f"  call void {call}", "  ret i32 0", "}"]
        else:
            body += [
                f"  %code = call i32 {call}",
                "  switch i32 %code, label %fail [ i32 0, label %good\n"
                "                                  i32 -1, label %out ]",
                "good:",
                "  ret i32 0",
                "fail:",
                f"  %raised = call i32 @tw_fail_code({self.text(spec.name)}, i32 %code)",
                "  ret i32 %raised",
                "}",
            ]
        self.lines += body

    def metadata(self) -> None:
        """Emit ``__tvm_ffi__metadata_NAME``, which tells a host (and us) about the arguments."""
        spec = self.spec
        text = json.dumps(spec_metadata(spec))
        size = len(text.encode())
        self.lines += [
            f'@"{spec.name}.meta" = private constant {c_string(text)}',
            f"define i32 {quoted('__tvm_ffi__metadata_' + spec.name)}"
            "(ptr %self, ptr %args, i32 %count, ptr %result) noinline optnone nounwind {",
            f'  %rc = call i32 @tw_return_text(ptr @"{spec.name}.meta", i64 {size}, ptr %result)',
            "  ret i32 %rc",
            "}",
        ]


def spec_metadata(spec: FunctionSpec) -> dict[str, object]:
    """Describe a function for ``tvm_ffi.Module.get_function_metadata``."""
    kinds = []
    arguments: list[dict[str, object]] = []
    for arg in spec.args:
        if isinstance(arg, TensorArg):
            kinds.append("Tensor")
            arguments.append(
                {
                    "name": arg.name,
                    "dtype": arg.dtype,
                    "shape": list(arg.shape),
                    "written": arg.written,
                }
            )
            if arg.strides is not None:
                arguments[-1]["strides"] = list(arg.strides)
        else:
            code = dlpack_dtype(arg.dtype)[0]
            kinds.append({0: "int", 1: "int", 6: "bool"}.get(code, "float"))
            arguments.append({"name": arg.name, "dtype": arg.dtype, "written": False})
    schema = {"type": "ffi.Function", "args": [{"type": "None"}, *({"type": k} for k in kinds)]}
    return {"type_schema": json.dumps(schema), "arguments": arguments}


#: The type of a row of the tables; once per module, before the first wrapper.
WRAPPER_TYPES = (
    "%tw.argument = type { ptr, ptr, ptr, ptr, ptr, ptr, i32, i32, i32, i32, i32, i32, i32, i32 }",
)


def emit_ffi_wrapper(spec: FunctionSpec, *, metadata: bool = True) -> str:
    """Return the LLVM IR text of ``__tvm_ffi_NAME`` and its tables.

    The module must also hold :data:`WRAPPER_TYPES` and :data:`WRAPPER_DECLARATIONS`, once, and
    the kernel. Without ``metadata`` the description for hosts is left out.
    """
    emitter = _Emitter(spec)
    emitter.table()
    emitter.wrapper()
    if metadata:
        emitter.metadata()
    return "\n".join(emitter.lines) + "\n"


def kernel_declaration(spec: FunctionSpec) -> str:
    """Return the declaration of a function's kernel, for wrappers in a module of their own."""
    kinds = ", ".join(kind for _, kind in spec.parameters())
    return f"declare {'void' if spec.returns_void else 'i32'} {quoted(spec.kernel)}({kinds})"


def emit_ffi_wrappers(specs: Iterable[FunctionSpec], *, metadata: bool = True) -> str:
    """Return the text for several functions, with the types and declarations that they need."""
    parts = [*WRAPPER_TYPES, *WRAPPER_DECLARATIONS]
    parts += [emit_ffi_wrapper(spec, metadata=metadata) for spec in specs]
    return "\n".join(parts) + "\n"
