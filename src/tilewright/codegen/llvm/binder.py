"""The argument binder: native code that checks the arguments of every compiled function.

A tvm-ffi function gets an array of untyped values. ``tw_bind`` compares it with a constant table
that describes what the function takes (:mod:`binder_tables`, made by :mod:`ffi_abi`), and writes
data pointers, scalars and symbolic extents to slots. One binder serves all functions, so a function
costs a table and three instructions; the binder is a support object (see ``runtime.loader``) and is
compiled once.

    i32 @tw_bind(ptr table, ptr args, i32 count, ptr slots)      0, or -1 with the error raised
    i32 @tw_check_results(ptr table, ptr args, ptr results, i32 count)    likewise, after tw_bind
    i32 @tw_fail_code(ptr name, i32 code)                        raises "NAME: failed with code N"
    i32 @tw_fail_wide(ptr name)                                  raises that its uint64 is too big
    i32 @tw_return_text(ptr bytes, i64 size, ptr result)         stores a tvm-ffi string
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tilewright.codegen.llvm import binder_messages as messages
from tilewright.codegen.llvm.binder_tables import (
    ANY,
    ANY_BOOL,
    ANY_FLOAT,
    ANY_INT,
    ANY_POINTER,
    ANY_TENSOR,
    ANY_TENSOR_OBJECT,
    ARGUMENT,
    BOOL_KIND,
    BYTES,
    EXTENT,
    FLOAT_KIND,
    INT_KIND,
    IS_COMPARED,
    IS_DEFINED,
    IS_VALUE,
    RESULT,
    SYMBOL,
    TABLE,
    TENSOR,
    TENSOR_KIND,
    TENSOR_OBJECT,
    UINT_KIND,
)
from tilewright.codegen.llvm.builder import (
    Callee,
    Function,
    exported,
    external,
    function,
    module_text,
)
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.codegen.llvm.values import (
    BOOL,
    DOUBLE,
    I8,
    I32,
    I64,
    PTR,
    U64,
    Operand,
    Place,
    Value,
)
from tilewright.runtime.loader import SupportObject, register_support_object

BINDER_SYMBOLS = (
    "tw_bind",
    "tw_check_results",
    "tw_fail_code",
    "tw_fail_wide",
    "tw_return_text",
)

_MAKE_STRING = external(I32, "TVMFFIStringFromByteArray", BYTES, PTR, weak=True)


@exported("tw_return_text", I32, bytes=PTR, size=I64, result=PTR)
def _return_text(f: Function, data: Value, size: Value, result: Value) -> None:
    with f.if_(f.address_of(_MAKE_STRING).eq(0)):
        f.ret(-1)
    text = f.local(BYTES)
    text["data"].set(data)
    text["size"].set(size)
    f.ret(f.call(_MAKE_STRING, text, result))


@function(BOOL, shape=PTR, ndim=I64)
def _is_hollow(f: Function, shape: Value, ndim: Value) -> None:
    """Whether the tensor has no elements."""
    with f.for_(ndim) as i, f.if_(shape.at(I64, i).eq(0)):
        f.ret(True)
    f.ret(False)


@function(I64, tensor=TENSOR)
def _bytes_of(f: Function, tensor: Place) -> None:
    """The bytes of a compact tensor."""
    bits = ((tensor["dtype"] >> 8) & 255) * (tensor["dtype"] >> 16)
    total, shape = f.variable(I64, bits.to(I64)), tensor["shape"].get()
    with f.for_(tensor["ndim"].to(I64)) as i:
        total *= shape.at(I64, i)
    f.ret((total + 7) >> 3)


def _tensor_of(f: Function, given: Place) -> Place:
    """The tensor that an argument is, as an object or by itself."""
    value = given["value"].seen_as(PTR).get()
    is_object = given["type_index"].eq(ANY_TENSOR_OBJECT)
    return f.select(is_object, value.at(TENSOR_OBJECT)["tensor"].address, value).at(TENSOR)


def _begin_of(tensor: Place) -> Value:
    return tensor["data"].get().at(I8, tensor["byte_offset"]).address.to(I64)


@dataclass(frozen=True)
class _Check:
    """The check of one argument: what it is to be, and what was given."""

    f: Function
    table: Place
    argument: Place
    index: Value
    given: Place
    slots: Value

    def fail(self, how: Callee, *values: Operand) -> None:
        """Raise an error."""
        self.f.ret(self.f.call(how, self.table, self.argument, self.index, *values))

    def out(self) -> Place:
        """The slot for the argument."""
        return self.slots.at(I64, self.argument["slot"])

    def match(self, extent: Place, value: Value, check: Callable[[Value], None]) -> None:
        """Compare an extent, or define its symbol; ``check`` gets whether it differs."""
        f, rule = self.f, extent["rule"].get()

        def symbol() -> Place:
            known = self.table["symbols"].at(SYMBOL, extent["symbol"])
            return self.slots.at(I64, known["slot"])

        with f.if_(rule.eq(IS_VALUE)):
            check(extent["value"].ne(value))
        with f.else_():
            with f.if_(rule.eq(IS_DEFINED)):
                symbol().set(value)
            with f.else_(), f.if_(rule.eq(IS_COMPARED)):
                check(symbol().ne(value))

    # ---- tensors

    def tensor(self) -> None:
        """Check a tensor, and store where its elements are."""
        f, argument = self.f, self.argument
        tensor = self._given_tensor()
        with f.if_(tensor["dtype"].ne(argument["dtype"])):
            self.fail(messages.fail_dtype, tensor["dtype"])
        with f.if_(tensor["device"].ne(argument["device"])):
            self.fail(messages.fail_device, tensor)
        self._common_device(tensor)
        with f.if_(tensor["ndim"].ne(argument["ndim"])):
            self.fail(messages.fail_shape, tensor, self.slots)
        shape, ndim = tensor["shape"].get(), tensor["ndim"].to(I64)
        self._shape(tensor, shape, ndim)
        strides, wanted = tensor["strides"].get(), argument["strides"].get()
        with f.if_(wanted.ne(0)):
            self._strides(tensor, shape, ndim, strides, wanted)
        with f.else_(), f.if_(strides.ne(0)):
            self._compact(tensor, shape, ndim, strides)
        self._memory(tensor, shape, ndim)

    def _common_device(self, tensor: Place) -> None:
        """See to it that all tensors are on one device, where that matters."""
        f, slot, number = self.f, self.table["device_slot"].get(), tensor["device_id"].to(I64)
        with f.if_(slot >= 0):
            known = self.slots.at(I64, slot)
            with f.if_(known < 0):
                known.set(number)
            with f.if_(known.ne(number)):
                self.fail(messages.fail_common_device, tensor, known.get())

    def _given_tensor(self) -> Place:
        f, type_index = self.f, self.given["type_index"].get()
        with f.if_(type_index.ne(ANY_TENSOR_OBJECT)), f.if_(type_index.ne(ANY_TENSOR)):
            self.fail(messages.fail_type, type_index)
        return _tensor_of(f, self.given)

    def _shape(self, tensor: Place, shape: Value, ndim: Value) -> None:
        f, extents = self.f, self.argument["extents"].get()

        def check(differs: Value) -> None:
            with f.if_(differs):
                self.fail(messages.fail_shape, tensor, self.slots)

        with f.for_(ndim) as i:
            self.match(extents.at(EXTENT, i), shape.at(I64, i).get(), check)

    def _strides(
        self, tensor: Place, shape: Value, ndim: Value, strides: Value, wanted: Value
    ) -> None:
        """Compare each stride; a tensor without strides has compact ones."""
        f = self.f
        compact = f.variable(I64, 1)
        with f.for_(ndim) as passed:
            i = ndim - 1 - passed
            stride = f.variable(I64, compact)
            with f.if_(strides.ne(0)):
                stride.set(strides.at(I64, i))
            size = shape.at(I64, i).get()

            def check(differs: Value) -> None:
                # The stride of a dimension with one element, or none, is never used.
                with f.if_(differs), f.if_(size > 1):
                    self.fail(messages.fail_strides, tensor)

            self.match(wanted.at(EXTENT, i), stride.get(), check)
            compact *= size

    def _compact(self, tensor: Place, shape: Value, ndim: Value, strides: Value) -> None:
        f = self.f
        compact = f.variable(I64, 1)
        with f.for_(ndim) as passed:
            i = ndim - 1 - passed
            size = shape.at(I64, i).get()
            with f.if_(strides.at(I64, i).ne(compact)), f.if_(size.ne(1)):
                with f.if_(f.call(_is_hollow, shape, ndim)):
                    f.break_()
                self.fail(messages.fail_strides, tensor)
            compact *= size

    def _memory(self, tensor: Place, shape: Value, ndim: Value) -> None:
        f, data = self.f, tensor["data"].get()
        memory = data.at(I8, tensor["byte_offset"]).address
        self.out().seen_as(PTR).set(memory)
        rest = memory.to(I64) & (self.argument["alignment"].to(I64) - 1)
        is_null = data.eq(0)
        with f.if_(rest.ne(0) | is_null), f.if_(~f.call(_is_hollow, shape, ndim)):
            with f.if_(is_null):
                self.fail(messages.fail_null)
            self.fail(messages.fail_alignment, memory)

    # ---- scalars

    def scalar(self) -> None:
        """Check a scalar, and store it."""
        f, type_index = self.f, self.given["type_index"].get()
        is_int = type_index.eq(ANY_INT) | type_index.eq(ANY_BOOL)
        with f.if_(self.argument["kind"].eq(FLOAT_KIND)):
            self._float(type_index, is_int)
        with f.else_():
            self._int(type_index, is_int)

    def _float(self, type_index: Value, is_int: Value) -> None:
        f, value = self.f, self.given["value"].get()
        with f.if_(type_index.eq(ANY_FLOAT)):
            self.out().set(value)
        with f.else_():
            with f.if_(~is_int):
                self.fail(messages.fail_type, type_index)
            self.out().set(value.convert("sitofp", DOUBLE).convert("bitcast", I64))

    def _int(self, type_index: Value, is_int: Value) -> None:
        f, argument, kind = self.f, self.argument, self.argument["kind"].get()
        value = self.given["value"].get()
        bits = (argument["dtype"] >> 8) & 255
        with f.if_(is_int):
            unused = 64 - f.select(kind.eq(BOOL_KIND), 1, bits).to(I64)
            is_signed = kind.eq(INT_KIND)
            high = value << unused
            kept = f.select(is_signed, high >> unused, high.to(U64) >> unused)
            with f.if_(~(kept.eq(value) & (is_signed | (value >= 0)))):
                self.fail(messages.fail_range, value)
        with f.else_():
            # The convention's ints are int64: a uint64 beyond that comes as the bits of a pointer.
            is_wide = kind.eq(UINT_KIND) & bits.eq(64)
            with f.if_(~(type_index.eq(ANY_POINTER) & is_wide)):
                self.fail(messages.fail_type, type_index)
        known = self.out()
        with f.if_(argument["rule"].eq(IS_COMPARED)), f.if_(known.ne(value)):
            self.fail(messages.fail_symbol, value, known)
        known.set(value)


@exported("tw_bind", I32, table=TABLE, args=PTR, count=I32, slots=PTR)
def _bind(f: Function, table: Place, args: Value, count: Value, slots: Value) -> None:
    with f.if_(count.ne(table["count"])):
        f.ret(f.call(messages.fail_count, table, count))
    with f.if_(table["device_slot"] >= 0):
        slots.at(I64, table["device_slot"]).set(-1)
    with f.for_(count) as index:
        argument, given = table["arguments"].at(ARGUMENT, index), args.at(ANY, index)
        check = _Check(f, table, argument, index, given, slots)
        with f.if_(argument["kind"].eq(TENSOR_KIND)):
            check.tensor()
        with f.else_():
            check.scalar()
    f.ret(0)


@exported("tw_check_results", I32, table=TABLE, args=PTR, results=PTR, count=I32)
def _check_results(f: Function, table: Place, args: Value, results: Value, count: Value) -> None:
    """Refuse results that share memory with arguments before them, but where that is right."""
    with f.for_(count) as number:
        result = results.at(RESULT, number)
        index = result["argument"].get()
        tensor = _tensor_of(f, args.at(ANY, index))
        begin, size = _begin_of(tensor), f.call(_bytes_of, tensor)
        with f.for_(index) as other:
            with f.if_(table["arguments"].at(ARGUMENT, other)["kind"].ne(TENSOR_KIND)):
                f.continue_()
            tensor = _tensor_of(f, args.at(ANY, other))
            start = _begin_of(tensor)
            with f.if_(start.eq(begin) & result["place"].eq(other)):
                f.continue_()
            with f.if_(start < begin + size):
                length = f.call(_bytes_of, tensor)
                with f.if_((begin < start + length) & (length > 0) & (size > 0)):
                    argument = table["arguments"].at(ARGUMENT, index)
                    f.ret(f.call(messages.fail_overlap, table, argument, index, other))
    f.ret(0)


@cache
def binder_object(triple: str | None = None) -> bytes:
    """Return the compiled binder, for the oldest CPU of the architecture."""
    own = _bind, _check_results, messages.fail_code, messages.fail_wide, _return_text
    text = module_text(own)
    return compile_portable(text, triple or host_triple())


register_support_object(SupportObject("binder", BINDER_SYMBOLS, binder_object))
