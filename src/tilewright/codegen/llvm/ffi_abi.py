"""The calling convention of compiled functions: tvm-ffi outside, plain pointers inside.

For a kernel ``NAME`` this emits ``int __tvm_ffi_NAME(self, args, count, result)``, which any
tvm-ffi host can call: it has its arguments checked against a constant table by the binder
(:mod:`binder`), and calls the kernel as

    i32 NAME(ptr tensor..., scalar..., i64 extent...)

- tensors in the order of the arguments, the byte offset applied;
- scalars in their order, each in its own LLVM type (``bool`` is ``i1``, ``bfloat16`` its bits);
- the symbolic extents that no scalar argument names, in the order of their first occurrence
  (arguments from first to last; of a tensor first the shape, then the strides from the last);
- for functions on a device other than the CPU its number, which all tensors have in common, or -1
  if there are none: ``i64``;
- for functions that return a value, eight bytes for it: ``ptr``. It is an ``i64`` (integers and
  bool) or a ``double`` there, zero before the call. A ``uint64`` beyond that is an error.

:meth:`FunctionSpec.parameters` gives this list. A kernel returns 0, or -1 after it has raised an
error through tvm-ffi, or any other code, which the wrapper raises as a ``RuntimeError``. One that
returns a value gives ``NO_VALUE`` if it ended without: its callers outside get nothing, as TVM's
do, and for one inside that needs the value it is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilewright.codegen.llvm.binder_tables import (
    ANY,
    ANY_BOOL,
    ANY_FLOAT,
    ANY_INT,
    ARGUMENT,
    BIND,
    BOOL_KIND,
    CHECK_RESULTS,
    EXTENT,
    FAIL_CODE,
    FAIL_WIDE,
    FLOAT_KIND,
    INT_KIND,
    IS_ANY,
    IS_COMPARED,
    IS_DEFINED,
    IS_VALUE,
    RESULT,
    RETURN_TEXT,
    SYMBOL,
    TABLE,
    TENSOR_KIND,
    UINT_KIND,
)
from tilewright.codegen.llvm.builder import (
    Callee,
    Function,
    Global,
    Module,
)
from tilewright.codegen.llvm.values import (
    BOOL,
    DOUBLE,
    FLOAT,
    HALF,
    I8,
    I16,
    I32,
    I64,
    PTR,
    U32,
    VOID,
    Place,
    Struct,
    Value,
    array,
)
from tilewright.runtime.dlpack import dlpack_dtype
from tilewright.support.errors import CodegenError

_LLVM_FLOATS = {"float16": "half", "float32": "float", "float64": "double"}
NO_VALUE = 1
_NAME = re.compile(r"[\w.$]+", re.ASCII)
_INT_MAX = 2**31 - 1
_TYPES = {kind.text: kind for kind in (BOOL, PTR, I8, I16, I32, I64, HALF, FLOAT, DOUBLE)}
_ANY_KINDS = {"int": ANY_INT, "bool": ANY_BOOL, "float": ANY_FLOAT}
_FFI_PARAMETERS = {"self": PTR, "args": PTR, "count": I32, "result": PTR}


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
    """What a function takes: its public name, its arguments, and the kernel that it calls.

    The kernel of one that is ``on_device`` gets the number of its tensors' device as well.
    """

    name: str
    args: tuple[TensorArg | ScalarArg, ...]
    symbol: str | None = None
    returns_void: bool = False
    on_device: bool = False
    returns: str | None = None
    """The dtype of the value that the function returns; its kernel still returns a code."""
    results: tuple[tuple[int, int], ...] = ()
    """Tensors that must lie apart from arguments before them, each with the one in whose place it
    may lie (itself: none), by position."""

    @property
    def kernel(self) -> str:
        """The symbol of the kernel: ``symbol``, or the function's name."""
        return self.symbol or self.name

    def without_value(self) -> str:
        """The message for a caller in the module that needs the value of a call without one."""
        return f"{self.name} ended without returning its {self.returns}"

    def check_result(self, dtype: str) -> None:
        """Raise ``CodegenError`` if a caller in the module can't take its value as a ``dtype``."""
        if self.returns and dtype not in (self.returns, "void"):
            raise CodegenError(
                f"call_extern({self.name!r}) is of {dtype}, but the function returns "
                f"{self.returns}; a call that doesn't need the value is of void"
            )

    def parameters(self) -> list[tuple[str, str]]:
        """Return the kernel's parameters as (name, LLVM type), without the device's number."""
        layout = _Layout(self)
        return [(name, scalar_llvm_type(dtype)) for name, dtype, _ in layout.parameters]

    def written(self) -> tuple[bool, ...]:
        """For each argument, whether the function may write to it."""
        return tuple(isinstance(arg, TensorArg) and arg.written for arg in self.args)


def scalar_llvm_type(dtype: str) -> str:
    """Return the LLVM type in which a scalar of ``dtype`` is passed; a handle is an address."""
    if dtype == "handle":
        return "ptr"
    code, bits, lanes = dlpack_dtype(dtype)
    if dtype == "bool":
        return "i1"
    if lanes == 1 and code in (0, 1):
        return f"i{bits}"
    if dtype == "bfloat16":
        return "i16"
    if dtype in _LLVM_FLOATS:
        return _LLVM_FLOATS[dtype]
    raise CodegenError(
        f"a scalar argument can't be of type {dtype!r}; possible are bool, the integers, "
        f"bfloat16, {', '.join(_LLVM_FLOATS)}"
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
            (arg.name, "handle", self.slots[arg.name]) for arg in tensors
        ]
        self.parameters += [(arg.name, arg.dtype, self.slots[arg.name]) for arg in scalars]
        self.parameters += [(name, "int64", self.slots[name]) for name in self._extra]
        self.device_slot = len(self.slots) if spec.on_device else -1
        self.slot_count = len(self.slots) + spec.on_device

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
            return IS_ANY, 0, 0
        if isinstance(extent, int):
            return IS_VALUE, 0, extent
        if extent in self.symbols:
            return IS_COMPARED, self.symbols[extent][0], 0
        if extent not in self.slots:
            self.slots[extent] = len(self.slots)
            self._extra.append(extent)
        number = len(self.symbols)
        self.symbols[extent] = number, self.slots[extent], argument
        return IS_DEFINED, number, 0


def _value_kind(dtype: str) -> str:
    """What a scalar is to tvm-ffi: ``int``, ``bool`` or ``float``."""
    return {0: "int", 1: "int", 6: "bool"}.get(dlpack_dtype(dtype)[0], "float")


def _tuple_text(values: Iterable[int | str | None]) -> str:
    items = ["?" if value is None else str(value) for value in values]
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def kernel_callee(spec: FunctionSpec) -> Callee:
    """Return a function's kernel, as what calls or defines it sees it."""
    parameters = {f"p{i}": _TYPES[kind] for i, (_, kind) in enumerate(spec.parameters())}
    if spec.on_device:
        parameters["device"] = I64
    if spec.returns:
        parameters["returned"] = PTR
    return Callee(_checked(spec.kernel), VOID if spec.returns_void else I32, parameters)


def _loaded(slot: Place, dtype: str) -> Value:
    """What the binder left in a slot, as the kernel takes it."""
    made = _TYPES[scalar_llvm_type(dtype)]
    if dtype == "handle":
        return slot.seen_as(made).get()
    if dtype == "bfloat16":
        return _bfloat_bits(slot.seen_as(DOUBLE).get())
    if dtype not in _LLVM_FLOATS:
        return slot.to(made)
    wide = slot.seen_as(DOUBLE).get()
    return wide if made is DOUBLE else wide.convert("fptrunc", made)


def _bfloat_bits(wide: Value) -> Value:
    """Round a number; LLVM's way to bfloat is a library call nobody defines."""
    bits = wide.convert("fptrunc", FLOAT).convert("bitcast", U32)
    nearest = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    return wide.f.select(wide.compare("uno", wide), 0x7FC0, nearest).to(I16)


def check_function_name(name: str) -> None:
    """Raise ``CodegenError`` for a name that no compiled function can have."""
    if not _NAME.fullmatch(name):
        shown = repr(name if len(name) < 80 else f"{name[:80]}...")
        raise CodegenError(
            f"{shown} can't be the name of a compiled function, which are of English letters, "
            "digits, and the signs _ . $"
        )


def _checked(name: str) -> str:
    """Return the name of a function, unless it can't be one."""
    if not name or any(not 32 < ord(c) < 127 or c in '"\\' for c in name):
        raise CodegenError(f"{name!r} can't be the name of a function")
    return name


class _Wrapper:
    """Writes what a function needs: its tables, its wrapper and its description."""

    def __init__(self, module: Module, spec: FunctionSpec) -> None:
        self.module, self.spec = module, spec
        self.layout = _Layout(spec)
        self._rows: dict[str, str] = {}
        module.refer(self._callable("__tvm_ffi_", self._wrapper))
        module.refer(self._callable("__tvm_ffi__metadata_", self._metadata))

    def _callable(self, prefix: str, body: Callable[..., None]) -> Callee:
        name = _checked(prefix + self.spec.name)
        return Callee(name, I32, _FFI_PARAMETERS, "noinline optnone nounwind", body=body)

    # ---- tables

    def _rows_of(self, name: str, kind: Struct, rows: list[str]) -> str:
        """Define an array of structs; return its name."""
        made = array(len(rows), kind)
        initial = f"[{', '.join(rows)}]"
        own = Global(f"{self.spec.name}.{name}", made, 8, initial, constant=True)
        self.module.need(kind)
        return self.module.use(own)

    def _extents(self, rules: list[tuple[int, int, int]]) -> str:
        if not rules:
            return "null"
        rows = [EXTENT.constant(rule=r, symbol=s, value=v) for r, s, v in rules]
        key = " ".join(rows)
        if key not in self._rows:
            self._rows[key] = self._rows_of(f"d{len(self._rows)}", EXTENT, rows)
        return self._rows[key]

    def _argument(self, arg: TensorArg | ScalarArg) -> str:
        text = self.module.string
        common: dict[str, int | str] = {
            "name": text(arg.name),
            "dtype_text": text(arg.dtype),
            "dtype": _packed(arg.dtype),
            "slot": self.layout.slots[arg.name],
        }
        if isinstance(arg, ScalarArg):
            scalar_llvm_type(arg.dtype)
            code = dlpack_dtype(arg.dtype)[0]
            rule, symbol = self.layout.scalar_rules.get(arg.name, (0, 0))
            return ARGUMENT.constant(
                **common,
                **dict.fromkeys(("extents", "strides", "shape_text", "strides_text"), "null"),
                kind=BOOL_KIND
                if arg.dtype == "bool"
                else {0: INT_KIND, 1: UINT_KIND}.get(code, FLOAT_KIND),
                ndim=0,
                device=0,
                alignment=1,
                rule=rule,
                symbol=symbol,
            )
        wanted = "compact row-major strides"
        if arg.strides is not None:
            wanted = f"strides {_tuple_text(arg.strides)}" if arg.strides else ""
        return ARGUMENT.constant(
            **common,
            extents=self._extents(self.layout.shape_rules[arg.name]),
            strides=self._extents(self.layout.stride_rules.get(arg.name, [])),
            shape_text=text(_tuple_text(arg.shape)),
            strides_text=text(wanted),
            kind=TENSOR_KIND,
            ndim=len(arg.shape),
            device=arg.device_type,
            alignment=arg.alignment,
            rule=0,
            symbol=0,
        )

    def _table(self) -> Global:
        spec, text = self.spec, self.module.string
        symbols = [
            SYMBOL.constant(
                name=text(name),
                argument_name=text(spec.args[argument].name),
                slot=slot,
                argument=argument,
            )
            for name, (_, slot, argument) in self.layout.symbols.items()
        ]
        signature = ", ".join(
            f"{arg.name}: {'Tensor' if isinstance(arg, TensorArg) else arg.dtype}"
            for arg in spec.args
        )
        initial = TABLE.initial(
            name=text(spec.name),
            arguments=self._rows_of("a", ARGUMENT, [self._argument(arg) for arg in spec.args]),
            symbols=self._rows_of("y", SYMBOL, symbols),
            signature=text(signature),
            count=len(spec.args),
            device_slot=self.layout.device_slot,
        )
        return Global(f"{spec.name}.table", TABLE, 8, initial, constant=True)

    # ---- functions

    def _wrapper(self, f: Function, _: Value, args: Value, count: Value, result: Value) -> None:
        spec = self.spec
        slots = f.local(array(max(self.layout.slot_count, 1), I64))
        table = f.use(self._table())
        bound = f.call(BIND, table, args, count, slots.address)
        with f.if_(bound.ne(0)):
            f.ret(-1)
        if spec.results:
            rows = [RESULT.constant(argument=a, place=b) for a, b in spec.results]
            results = Value(f, PTR, self._rows_of("r", RESULT, rows))
            checked = f.call(CHECK_RESULTS, table, args, results, len(rows))
            with f.if_(checked.ne(0)):
                f.ret(-1)
        values = [_loaded(slots[slot], dtype) for _, dtype, slot in self.layout.parameters]
        if spec.on_device:
            values.append(slots[self.layout.device_slot].get())
        returned = f.local(I64) if spec.returns else None
        if returned is not None:
            returned.set(0)
            values.append(returned.address)
        code = f.call(kernel_callee(spec), *values)
        if spec.returns_void:
            f.ret(0)
            return
        if returned is not None:
            with f.if_(code.eq(NO_VALUE)):
                f.ret(0)
        with f.if_(code.ne(0)), f.if_(code.ne(-1)):
            f.ret(f.call(FAIL_CODE, f.string(spec.name), code))
        if returned is not None and spec.returns:
            with f.if_(code.eq(0)):
                if spec.returns == "uint64":
                    with f.if_(returned.get() < 0):
                        f.ret(f.call(FAIL_WIDE, f.string(spec.name)))
                made = result.at(ANY, 0)
                made["type_index"].set(_ANY_KINDS[_value_kind(spec.returns)])
                made["unused"].set(0)
                made["value"].set(returned)
        f.ret(code)

    def _metadata(self, f: Function, _: Value, __: Value, ___: Value, result: Value) -> None:
        """Tell a host (and us) about the arguments."""
        text = json.dumps(spec_metadata(self.spec))
        f.ret(f.call(RETURN_TEXT, f.string(text), len(text.encode()), result))


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
            kinds.append(_value_kind(arg.dtype))
            arguments.append({"name": arg.name, "dtype": arg.dtype, "written": False})
    kinds = [_value_kind(spec.returns) if spec.returns else "None", *kinds]
    schema = {"type": "ffi.Function", "args": [{"type": kind} for kind in kinds]}
    return {"type_schema": json.dumps(schema), "arguments": arguments}


def kernel_declaration(spec: FunctionSpec) -> str:
    """Return the declaration of a function's kernel, for wrappers in a module of their own."""
    return kernel_callee(spec).declaration


def emit_ffi_wrappers(specs: Iterable[FunctionSpec]) -> str:
    """Return the LLVM IR text of ``__tvm_ffi_NAME`` and its tables, for several functions.

    A description of each for hosts, ``__tvm_ffi__metadata_NAME``, comes with it. The module must
    also hold the kernels.
    """
    module = Module()
    specs = tuple(specs)
    for spec in specs:
        _Wrapper(module, spec)
    return module.text(defined={spec.kernel for spec in specs})
