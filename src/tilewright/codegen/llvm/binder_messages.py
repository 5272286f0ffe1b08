"""The messages of the argument binder: what runs when an argument is wrong.

Each failure is a cold function that appends what was expected and what was found to a message, and
raises it. The tables that it reads are described in :mod:`binder_tables`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from tilewright.codegen.llvm.binder_tables import (
    ARGUMENT,
    EXTENT,
    IS_COMPARED,
    IS_VALUE,
    SYMBOL,
    TABLE,
    TENSOR,
)
from tilewright.codegen.llvm.builder import (
    Callee,
    Function,
    exported,
    function,
)
from tilewright.codegen.llvm.messages import (
    COLD,
    MESSAGE,
    new_message,
    raise_message,
    say,
    say_list,
)
from tilewright.codegen.llvm.values import BOOL, I32, I64, PTR, U32, VOID, Place, Type, Value
from tilewright.runtime.device import DEVICE_TYPES
from tilewright.runtime.dlpack import DLPACK_DTYPES

_TYPE_NAMES = {
    0: "None",
    1: "an int",
    2: "a bool",
    3: "a float",
    4: "an opaque pointer",
    5: "a data type",
    6: "a device",
    7: "a Tensor",
    8: "a string",
    9: "bytes",
    11: "a string",
    12: "bytes",
    64: "an object",
    65: "a string",
    66: "bytes",
    67: "an error",
    68: "a function",
    69: "a shape",
    70: "a Tensor",
    71: "an array",
    72: "a map",
    73: "a module",
    74: "a Python object that is no array",
    75: "a list",
    76: "a dict",
    78: "one outside of -2**63 .. 2**63 - 1 (0 .. 2**64 - 1 for uint64)",
}

#: How types are spelled by their code, for printf with their bits and the code.
_ODD_DTYPE = "type code %2$d of %1$d bits"
_DTYPES = {
    **{code: name for name, (code, _) in DLPACK_DTYPES.items() if code >= 6},
    **dict(
        enumerate(f"{name}%d" for name in ("int", "uint", "float", "handle", "bfloat", "complex"))
    ),
}
_KINDS = ("a Tensor", "an int", "an int", "a float", "a bool")


@function(VOID, COLD, m=MESSAGE, dtype=U32)
def _say_dtype(f: Function, m: Place, dtype: Value) -> None:
    code, bits, lanes = dtype & 255, (dtype >> 8) & 255, dtype >> 16
    form = f.name_of("tw.dtypes", code, _DTYPES, gap=_ODD_DTYPE, beyond=_ODD_DTYPE)
    say(f, m, form, bits, code)
    with f.if_(lanes > 1):
        say(f, m, "x%d", lanes)


def _device(f: Function, code: Place) -> Value:
    names = {code: name for name, code in DEVICE_TYPES.items()}
    unknown = "an unknown device"
    return f.name_of("tw.devices", code.get(), names, gap=unknown, beyond=unknown)


@function(VOID, COLD, m=MESSAGE, table=TABLE, argument=ARGUMENT, tensor=TENSOR, slots=PTR)
def _say_why(
    f: Function, m: Place, table: Place, argument: Place, tensor: Place, slots: Value
) -> None:
    """Which symbol of an argument disagrees with its definition, if one does."""
    with f.if_(tensor["ndim"].ne(argument["ndim"])):
        f.ret()
    stopped = f.variable(BOOL, False)
    with f.for_(tensor["ndim"].get()) as i:
        extent, size = argument["extents"].at(EXTENT, i), tensor["shape"].at(I64, i).get()
        with f.if_(extent["rule"].eq(IS_VALUE)), f.if_(extent["value"].ne(size)):
            stopped.set(True)
        with f.if_(extent["rule"].eq(IS_COMPARED)):
            symbol = table["symbols"].at(SYMBOL, extent["symbol"])
            known = slots.at(I64, symbol["slot"])
            # The binder stopped at the first difference, so the argument's own may have no value.
            is_own = symbol["argument_name"].eq(argument["name"])
            with f.if_(known.ne(size) & ~(is_own & stopped)):
                by = symbol["argument"], symbol["argument_name"]
                say(f, m, ": '%s' is %lld by argument #%d '%s'", symbol["name"], known, *by)
                f.ret()


@function(I32, COLD, table=TABLE, count=I32)
def fail_count(f: Function, table: Place, count: Value) -> None:
    """The number of arguments is wrong."""
    m = new_message(f)
    plural = f.select(table["count"].eq(1), f.string(""), f.string("s"))
    values = table["name"], table["count"], plural, table["signature"], count
    say(f, m, "%s: expected %d argument%s (%s), got %d", *values)
    f.ret(f.call(raise_message, f.string("TypeError"), m))


@exported("tw_fail_code", I32, COLD, function=PTR, code=I32)
def fail_code(f: Function, name: Value, code: Value) -> None:
    """A function returned a code."""
    m = new_message(f)
    say(f, m, "%s: failed with code %d", name, code)
    f.ret(f.call(raise_message, f.string("RuntimeError"), m))


@exported("tw_fail_wide", I32, COLD, function=PTR)
def fail_wide(f: Function, name: Value) -> None:
    """A function returned more than the convention's int64 holds."""
    m = new_message(f)
    say(f, m, "%s: it returns a uint64 above 2**63 - 1, which its callers can't be given", name)
    f.ret(f.call(raise_message, f.string("ValueError"), m))


def _failure(error: str, **parameters: Type) -> Callable[[Callable[..., None]], Callee]:
    """A function that raises an error about one argument: what it is about, and then the rest."""

    def made(tell: Callable[..., None]) -> Callee:
        @function(I32, COLD, table=TABLE, argument=ARGUMENT, index=I32, **parameters)
        @wraps(tell)
        def body(f: Function, table: Place, argument: Place, index: Value, *values: Value) -> None:
            m = new_message(f)
            say(f, m, "%s: argument #%d '%s': ", table["name"], index, argument["name"])
            tell(f, m, table, argument, *values)
            f.ret(f.call(raise_message, f.string(error), m))

        return body

    return made


@_failure("TypeError", type_index=U32)
def fail_type(f: Function, m: Place, _: Place, argument: Place, type_index: Value) -> None:
    """It is of another kind than expected."""
    kinds = dict(enumerate(_KINDS))
    want = f.name_of("tw.kinds", argument["kind"].get(), kinds, gap="", beyond="")
    got = f.name_of("tw.types", type_index, _TYPE_NAMES, gap="something else", beyond="an object")
    say(f, m, "expected %s, got %s", want, got)


@_failure("TypeError", dtype=U32)
def fail_dtype(f: Function, m: Place, _: Place, argument: Place, dtype: Value) -> None:
    """Its elements are of another type."""
    say(f, m, "expected dtype %s, got ", argument["dtype_text"])
    f.call(_say_dtype, m, dtype)


@_failure("ValueError", tensor=TENSOR)
def fail_device(f: Function, m: Place, _: Place, argument: Place, tensor: Place) -> None:
    """It is somewhere else."""
    want, got = _device(f, argument["device"]), _device(f, tensor["device"])
    say(f, m, "expected a tensor on %s, got one on %s:%d", want, got, tensor["device_id"])


@_failure("ValueError", tensor=TENSOR, known=I64)
def fail_common_device(
    f: Function, m: Place, _: Place, argument: Place, tensor: Place, known: Value
) -> None:
    """It is on another device of that kind than the first tensor."""
    kind = _device(f, argument["device"])
    form = "expected a tensor on %s:%lld, where the first tensor is, got one on %s:%d"
    say(f, m, form, kind, known, kind, tensor["device_id"])


@_failure("ValueError", tensor=TENSOR, slots=PTR)
def fail_shape(
    f: Function, m: Place, table: Place, argument: Place, tensor: Place, slots: Value
) -> None:
    """It has another shape."""
    say(f, m, "expected shape %s, got ", argument["shape_text"])
    f.call(say_list, m, tensor["shape"], tensor["ndim"])
    f.call(_say_why, m, table, argument, tensor, slots)


@_failure("ValueError", tensor=TENSOR)
def fail_strides(f: Function, m: Place, _: Place, argument: Place, tensor: Place) -> None:
    """It has other strides."""
    say(f, m, "expected %s, got strides ", argument["strides_text"])
    f.call(say_list, m, tensor["strides"], tensor["ndim"])
    say(f, m, " for shape ")
    f.call(say_list, m, tensor["shape"], tensor["ndim"])


@_failure("ValueError")
def fail_null(f: Function, m: Place, _: Place, argument: Place) -> None:
    """It has no memory."""
    say(f, m, "expected memory, got a null pointer")


@_failure("ValueError", memory=PTR)
def fail_alignment(f: Function, m: Place, _: Place, argument: Place, memory: Value) -> None:
    """Its memory begins at an odd address."""
    form = "expected memory aligned to %d bytes, got address %p"
    say(f, m, form, argument["alignment"], memory)


@_failure("ValueError", other=I32)
def fail_overlap(f: Function, m: Place, table: Place, _: Place, other: Value) -> None:
    """It is a result that would be written over another argument."""
    name = table["arguments"].at(ARGUMENT, other)["name"]
    say(f, m, "expected memory apart from other arguments', got some of #%d '%s'", other, name)


@_failure("ValueError", value=I64)
def fail_range(f: Function, m: Place, _: Place, argument: Place, value: Value) -> None:
    """The number is out of its type's range."""
    say(f, m, "expected a value of type %s, got %lld", argument["dtype_text"], value)


@_failure("ValueError", value=I64, known=I64)
def fail_symbol(
    f: Function, m: Place, table: Place, argument: Place, value: Value, known: Value
) -> None:
    """The number isn't what its name stands for already."""
    symbol = table["symbols"].at(SYMBOL, argument["symbol"])
    by = symbol["argument"], symbol["argument_name"]
    say(f, m, "expected %lld as in argument #%d '%s', got %lld", known, *by, value)
