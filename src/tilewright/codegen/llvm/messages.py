"""Messages of native code: text that is put together where something failed, and raised.

What runs when something is wrong is cold: it is compiled without optimisation, which would cost
more than running it does.
"""

from __future__ import annotations

from tilewright.codegen.llvm.builder import Function, external, function
from tilewright.codegen.llvm.values import I8, I32, I64, PTR, VOID, Place, Struct, Value, array

#: Attributes of functions that run when something is wrong.
COLD = "cold noinline optnone nounwind"

#: Bytes of a message; what is longer is cut.
_BYTES = 1024
MESSAGE = Struct("tw.message", used=I64, text=array(_BYTES, I8))

_SNPRINTF = external(I32, "snprintf", PTR, I64, PTR, variadic=True)
_SET_RAISED = external(VOID, "TVMFFIErrorSetRaisedFromCStr", PTR, PTR, weak=True)


def new_message(f: Function) -> Place:
    """Return an empty message."""
    m = f.local(MESSAGE)
    m["used"].set(0)
    return m


def say(f: Function, m: Place, form: str | Value, *values: Value | Place) -> None:
    """Append formatted text to a message."""
    used = m["used"].get()
    form = f.string(form) if isinstance(form, str) else form
    written = f.call(_SNPRINTF, m["text"][used].address, _BYTES - used, form, *values)
    f.call(_advance, m, written)


@function(VOID, COLD, m=MESSAGE, written=I32)
def _advance(f: Function, m: Place, written: Value) -> None:
    used = m["used"] + f.greatest(written, 0).to(I64)
    m["used"].set(f.least(used, _BYTES - 1))


@function(I32, COLD, kind=PTR, m=MESSAGE)
def raise_message(f: Function, kind: Value, m: Place) -> None:
    """Raise through tvm-ffi; return -1. A program without it (plain dlopen) just sees the -1."""
    with f.if_(f.address_of(_SET_RAISED).ne(0)):
        f.call(_SET_RAISED, kind, m["text"].address)
    f.ret(-1)


@function(VOID, COLD, m=MESSAGE, values=PTR, count=I32)
def say_list(f: Function, m: Place, values: Value, count: Value) -> None:
    """``(a, b, c)``; a null pointer stands for unknown values."""
    nothing = f.string("")
    say(f, m, "(")
    with f.if_(values.ne(0)), f.for_(count) as i:
        separator = f.select(i.eq(0), nothing, f.string(", "))
        say(f, m, "%s%lld", separator, values.at(I64, i))
    say(f, m, "%s)", f.select(count.eq(1), f.string(","), nothing))
