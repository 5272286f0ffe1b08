"""The messages of the argument binder: LLVM IR of what runs when an argument is wrong.

Each failure is a cold function that appends what was expected and what was found to a message, and
raises it. All of it is ``optnone``: compiling it costs far more than running it. The tables that it
reads are described in :mod:`binder`.
"""

from __future__ import annotations

import itertools

from tilewright.codegen.llvm.types import c_string
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


class Strings:
    """Collects the string constants of the module."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[str, str] = {}
        self._numbers = itertools.count()

    def string(self, text: str) -> str:
        if text not in self._known:
            name = f"@tw.s{next(self._numbers)}"
            self._known[text] = name
            self.lines.append(f"{name} = internal constant {c_string(text)}")
        return self._known[text]

    def table(self, name: str, entries: dict[int, str], size: int) -> None:
        cells = (f"ptr {self.string(entries[i]) if i in entries else 'null'}" for i in range(size))
        self.lines.append(f"@{name} = internal constant [{size} x ptr] [{', '.join(cells)}]")


def _say(strings: Strings, label: str, form: str, *arguments: str) -> str:
    """Lines that append formatted text to the message in ``%m``."""
    tail = "".join(f", {argument}" for argument in arguments)
    return f"""
  %{label}.a = call ptr @tw.at(ptr %m)
  %{label}.r = call i64 @tw.room(ptr %m)
  %{label}.n = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %{label}.a, i64 %{label}.r, ptr {strings.string(form)}{tail})
  call void @tw.advance(ptr %m, i32 %{label}.n)"""  # noqa: E501


def _field(label: str, kind: str, base: str, offset: int) -> str:
    return f"""
  %{label}.p = getelementptr i8, ptr {base}, i64 {offset}
  %{label} = load {kind}, ptr %{label}.p"""


def _failure(strings: Strings, name: str, parameters: str, body: str, kind: str) -> str:
    """A cold function that makes a message about argument %i and raises it.

    All code for messages is ``optnone``: compiling it costs far more than running it.
    """
    begin = _say(strings, "h", "%s: argument #%d '%s': ", "ptr %fn", "i32 %i", "ptr %an")
    return f"""
define internal i32 @tw.f.{name}(ptr %t, ptr %a, i32 %i{parameters}) #0 {{
  %m = alloca %message, align 8
  store i64 0, ptr %m
  %fn = load ptr, ptr %t
  %an = load ptr, ptr %a{begin}{body}
  %rc = call i32 @tw.raise(ptr {strings.string(kind)}, ptr %m)
  ret i32 %rc
}}
"""


def _list_function(strings: Strings) -> str:
    """Appends "(a, b, c)" to a message; a null pointer stands for unknown values."""
    separator = strings.string(", ")
    nothing = strings.string("")
    return f"""
define internal void @tw.list(ptr %m, ptr %values, i32 %n) #0 {{
entry:{_say(strings, "o", "(")}
  %none = icmp eq ptr %values, null
  br i1 %none, label %end, label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %one ]
  %more = icmp slt i32 %i, %n
  br i1 %more, label %one, label %end
one:
  %i64 = sext i32 %i to i64
  %p = getelementptr i64, ptr %values, i64 %i64
  %v = load i64, ptr %p
  %first = icmp eq i32 %i, 0
  %sep = select i1 %first, ptr {nothing}, ptr {separator}{_say(strings, "v", "%s%lld", "ptr %sep", "i64 %v")}
  %i1 = add i32 %i, 1
  br label %loop
end:
  %single = icmp eq i32 %n, 1
  %tail = select i1 %single, ptr {strings.string(",")}, ptr {nothing}{_say(strings, "c", "%s)", "ptr %tail")}
  ret void
}}
"""  # noqa: E501


def _dtype_function(strings: Strings) -> str:
    """Appends the name of a packed DLPack type to a message."""
    return f"""
define internal void @tw.dtype(ptr %m, i32 %dt) #0 {{
entry:
  %code = and i32 %dt, 255
  %bits0 = lshr i32 %dt, 8
  %bits = and i32 %bits0, 255
  %lanes = lshr i32 %dt, 16
  %over = icmp uge i32 %code, 18
  br i1 %over, label %odd, label %known
known:
  %code64 = zext i32 %code to i64
  %whole.p = getelementptr ptr, ptr @tw.whole, i64 %code64
  %whole = load ptr, ptr %whole.p
  %haswhole = icmp ne ptr %whole, null
  br i1 %haswhole, label %whole.say, label %base
whole.say:{_say(strings, "w", "%s", "ptr %whole")}
  br label %lanes.say
base:
  %base.p = getelementptr ptr, ptr @tw.base, i64 %code64
  %name = load ptr, ptr %base.p
  %hasname = icmp ne ptr %name, null
  br i1 %hasname, label %base.say, label %odd
base.say:{_say(strings, "b", "%s%d", "ptr %name", "i32 %bits")}
  br label %lanes.say
odd:{_say(strings, "u", "type code %d of %d bits", "i32 %code", "i32 %bits")}
  br label %lanes.say
lanes.say:
  %vector = icmp ugt i32 %lanes, 1
  br i1 %vector, label %more, label %end
more:{_say(strings, "l", "x%d", "i32 %lanes")}
  br label %end
end:
  ret void
}}
"""


def _device_function(strings: Strings) -> str:
    """Names a kind of device."""
    return f"""
define internal ptr @tw.device(i32 %code) #0 {{
  %known = icmp ult i32 %code, 19
  %safe = select i1 %known, i32 %code, i32 0
  %code64 = zext i32 %safe to i64
  %p = getelementptr ptr, ptr @tw.devices, i64 %code64
  %n = load ptr, ptr %p
  %unnamed = icmp eq ptr %n, null
  %r = select i1 %unnamed, ptr {strings.string("an unknown device")}, ptr %n
  ret ptr %r
}}
"""


def _count_failure(strings: Strings) -> str:
    """Says that the number of arguments is wrong."""
    return f"""
define internal i32 @tw.f.count(ptr %t, i32 %got) #0 {{
  %m = alloca %message, align 8
  store i64 0, ptr %m
  %fn = load ptr, ptr %t{_field("sig", "ptr", "%t", 24)}{_field("want", "i32", "%t", 32)}
  %single = icmp eq i32 %want, 1
  %plural = select i1 %single, ptr {strings.string("")}, ptr {strings.string("s")}{
        _say(
            strings,
            "s",
            "%s: expected %d argument%s (%s), got %d",
            "ptr %fn",
            "i32 %want",
            "ptr %plural",
            "ptr %sig",
            "i32 %got",
        )
    }
  %rc = call i32 @tw.raise(ptr {strings.string("TypeError")}, ptr %m)
  ret i32 %rc
}}
"""


def _code_failure(strings: Strings) -> str:
    """Says that a function returned a code."""
    return f"""
define i32 @tw_fail_code(ptr %fn, i32 %code) #0 {{
  %m = alloca %message, align 8
  store i64 0, ptr %m{_say(strings, "s", "%s: failed with code %d", "ptr %fn", "i32 %code")}
  %rc = call i32 @tw.raise(ptr {strings.string("RuntimeError")}, ptr %m)
  ret i32 %rc
}}
"""


def _why_function(strings: Strings) -> str:
    """Appends which symbol of an argument disagrees with its definition, if one does."""
    return f"""
define internal void @tw.why(ptr %m, ptr %t, ptr %a, ptr %dl, ptr %slots) #0 {{
entry:{_field("nd", "i32", "%dl", 16)}{_field("wnd", "i32", "%a", 52)}{
        _field("shape", "ptr", "%dl", 24)
    }{_field("dims", "ptr", "%a", 8)}{_field("sy", "ptr", "%t", 16)}
  %nd64 = sext i32 %nd to i64
  %same = icmp eq i32 %nd, %wnd
  br i1 %same, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp slt i64 %i, %nd64
  br i1 %more, label %one, label %end
one:
  %xp = getelementptr i64, ptr %shape, i64 %i
  %x = load i64, ptr %xp
  %d = getelementptr [16 x i8], ptr %dims, i64 %i
  %rule = load i32, ptr %d
  %compare = icmp eq i32 %rule, 2
  br i1 %compare, label %look, label %next
look:
  %sp = call ptr @tw.symbol(ptr %d, ptr %sy, ptr %slots)
  %v = load i64, ptr %sp
  %differs = icmp ne i64 %v, %x
  br i1 %differs, label %tell, label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
tell:{_field("k", "i32", "%d", 4)}
  %k64 = zext i32 %k to i64
  %s = getelementptr [24 x i8], ptr %sy, i64 %k64
  %sn = load ptr, ptr %s{_field("dn", "ptr", "%s", 8)}{_field("da", "i32", "%s", 20)}{
        _say(
            strings,
            "y",
            ": '%s' is %lld by argument #%d '%s'",
            "ptr %sn",
            "i64 %v",
            "i32 %da",
            "ptr %dn",
        )
    }
  br label %end
end:
  ret void
}}
"""


def _type_failure(strings: Strings) -> str:
    """Says that an argument is of another kind than expected."""
    body = f"""{_field("kind", "i32", "%a", 48)}
  %kind64 = zext i32 %kind to i64
  %wp = getelementptr ptr, ptr @tw.kinds, i64 %kind64
  %w = load ptr, ptr %wp
  %known = icmp ult i32 %ti, 79
  %safe = select i1 %known, i32 %ti, i32 64
  %ti64 = zext i32 %safe to i64
  %gp = getelementptr ptr, ptr @tw.types, i64 %ti64
  %g0 = load ptr, ptr %gp
  %unnamed = icmp eq ptr %g0, null
  %g = select i1 %unnamed, ptr {strings.string("something else")}, ptr %g0"""
    said = _say(strings, "s", "expected %s, got %s", "ptr %w", "ptr %g")
    return _failure(strings, "type", ", i32 %ti", body + said, "TypeError")


def _tensor_failures(strings: Strings) -> list[str]:
    """Messages about tensors that are not what a function takes."""
    shape = (
        _field("nd", "i32", "%dl", 16)
        + _field("shape", "ptr", "%dl", 24)
        + "\n  call void @tw.list(ptr %m, ptr %shape, i32 %nd)"
    )
    why = "\n  call void @tw.why(ptr %m, ptr %t, ptr %a, ptr %dl, ptr %slots)"
    return [
        _failure(
            strings,
            "dtype",
            ", i32 %dt",
            _field("w", "ptr", "%a", 40)
            + _say(strings, "s", "expected dtype %s, got ", "ptr %w")
            + "\n  call void @tw.dtype(ptr %m, i32 %dt)",
            "TypeError",
        ),
        _failure(
            strings,
            "device",
            ", ptr %dl",
            _field("want", "i32", "%a", 60)
            + _field("got", "i32", "%dl", 8)
            + _field("id", "i32", "%dl", 12)
            + """
  %wn = call ptr @tw.device(i32 %want)
  %gn = call ptr @tw.device(i32 %got)"""
            + _say(
                strings,
                "s",
                "expected a tensor on %s, got one on %s:%d",
                "ptr %wn",
                "ptr %gn",
                "i32 %id",
            ),
            "ValueError",
        ),
        _failure(
            strings,
            "shape",
            ", ptr %dl, ptr %slots",
            _field("w", "ptr", "%a", 24)
            + _say(strings, "s", "expected shape %s, got ", "ptr %w")
            + shape
            + why,
            "ValueError",
        ),
        _failure(
            strings,
            "strides",
            ", ptr %dl",
            _field("w", "ptr", "%a", 32)
            + _field("st", "ptr", "%dl", 32)
            + _say(strings, "s", "expected %s, got strides ", "ptr %w")
            + _field("nd0", "i32", "%dl", 16)
            + "\n  call void @tw.list(ptr %m, ptr %st, i32 %nd0)"
            + _say(strings, "f", " for shape ")
            + shape,
            "ValueError",
        ),
    ]


def _memory_failures(strings: Strings) -> list[str]:
    """Messages about the memory of tensors."""
    return [
        _failure(
            strings,
            "null",
            "",
            _say(strings, "s", "expected memory, got a null pointer"),
            "ValueError",
        ),
        _failure(
            strings,
            "align",
            ", i32 %al, ptr %mem",
            _say(
                strings,
                "s",
                "expected memory aligned to %d bytes, got address %p",
                "i32 %al",
                "ptr %mem",
            ),
            "ValueError",
        ),
    ]


def _value_failures(strings: Strings) -> list[str]:
    """Messages about numbers: out of range, or not what a symbol stands for already."""
    return [
        _failure(
            strings,
            "range",
            ", i64 %v",
            _field("w", "ptr", "%a", 40)
            + _say(strings, "s", "expected a value of type %s, got %lld", "ptr %w", "i64 %v"),
            "ValueError",
        ),
        _failure(
            strings,
            "symbol",
            ", i64 %v, i64 %known",
            _field("k", "i32", "%a", 76)
            + _field("sy", "ptr", "%t", 16)
            + """
  %k64 = zext i32 %k to i64
  %s = getelementptr [24 x i8], ptr %sy, i64 %k64"""
            + _field("dn", "ptr", "%s", 8)
            + _field("da", "i32", "%s", 20)
            + _say(
                strings,
                "s",
                "expected %lld as in argument #%d '%s', got %lld",
                "i64 %known",
                "i32 %da",
                "ptr %dn",
                "i64 %v",
            ),
            "ValueError",
        ),
    ]


def message_text() -> str:
    """Return the constants and functions by which the binder tells what is wrong."""
    strings = Strings()
    functions = [
        _list_function(strings),
        _dtype_function(strings),
        _device_function(strings),
        _count_failure(strings),
        _code_failure(strings),
        _why_function(strings),
        _type_failure(strings),
        *_tensor_failures(strings),
        *_memory_failures(strings),
        *_value_failures(strings),
    ]
    strings.table("tw.types", _TYPE_NAMES, 79)
    kinds = ("a Tensor", "an int", "an int", "a float", "a bool")
    strings.table("tw.kinds", dict(enumerate(kinds)), len(kinds))
    # Types whose code says everything, and families that have several widths.
    whole = {code: name for name, (code, _) in DLPACK_DTYPES.items() if code >= 6}
    base = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat", 5: "complex"}
    strings.table("tw.whole", whole, 18)
    strings.table("tw.base", base, 18)
    strings.table("tw.devices", {code: name for name, code in DEVICE_TYPES.items()}, 19)
    return "\n".join([*strings.lines, *functions])
