"""The argument binder: native code that checks the arguments of every compiled function.

A tvm-ffi function gets an array of untyped values. ``tw_bind`` compares it with a constant table
that describes what the function takes (made by :mod:`ffi_abi`), and writes data pointers, scalars
and symbolic extents to slots. One binder serves all functions, so a function costs a table and
three instructions; the binder is a support object (see ``runtime.loader``) and is compiled once.

    i32 @tw_bind(ptr table, ptr args, i32 count, ptr slots)      0, or -1 with the error raised
    i32 @tw_fail_code(ptr name, i32 code)                        raises "NAME: failed with code N"
    i32 @tw_return_text(ptr bytes, i64 size, ptr result)         stores a tvm-ffi string

Layout of the tables, all natural alignment:

    table  = { ptr name, ptr arguments, ptr symbols, ptr signature, i32 count, i32 unused }
    argument = { ptr name, ptr extents, ptr strides (null: compact), ptr shape text,
                 ptr strides text, ptr dtype text, i32 kind, i32 ndim, i32 dtype, i32 device,
                 i32 alignment, i32 slot, i32 rule, i32 symbol }
    extent = { i32 rule, i32 symbol, i64 value }    rule: 0 value, 1 define, 2 compare, 3 any
    symbol = { ptr name, ptr defining argument's name, i32 slot, i32 defining argument }

Argument kinds: 0 tensor, 1 int, 2 uint, 3 float, 4 bool.
"""

from __future__ import annotations

import itertools
from functools import cache, lru_cache

from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.runtime.device import DEVICE_TYPES
from tilewright.runtime.dlpack import DLPACK_DTYPES
from tilewright.runtime.loader import SupportObject, register_support_object

BINDER_SYMBOLS = ("tw_bind", "tw_fail_code", "tw_return_text")

#: Bytes of a message; what is longer is cut.
_MESSAGE = 1024

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
    78: "an int of more than 64 bits",
}


class _Text:
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


def c_string(text: str) -> str:
    """Return the LLVM type and value of a constant that holds ``text`` and a zero byte."""
    data = text.encode() + b"\0"
    body = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in data
    )
    return f'[{len(data)} x i8] c"{body}"'


def _say(strings: _Text, label: str, form: str, *arguments: str) -> str:
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


def _failure(strings: _Text, name: str, parameters: str, body: str, kind: str) -> str:
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


_HELPERS = r"""
; cold: whatever makes messages
attributes #0 = { cold noinline optnone nounwind }

%message = type { i64, [SIZE x i8] }

declare i32 @snprintf(ptr, i64, ptr, ...)
declare extern_weak void @TVMFFIErrorSetRaisedFromCStr(ptr, ptr)
declare extern_weak i32 @TVMFFIStringFromByteArray(ptr, ptr)

define internal ptr @tw.at(ptr %m) #0 {
  %p = load i64, ptr %m
  %b = getelementptr i8, ptr %m, i64 8
  %r = getelementptr i8, ptr %b, i64 %p
  ret ptr %r
}

define internal i64 @tw.room(ptr %m) #0 {
  %p = load i64, ptr %m
  %r = sub i64 SIZE, %p
  ret i64 %r
}

define internal void @tw.advance(ptr %m, i32 %n) #0 {
  %bad = icmp slt i32 %n, 0
  %w = zext i32 %n to i64
  %s = select i1 %bad, i64 0, i64 %w
  %p = load i64, ptr %m
  %q = add i64 %p, %s
  %over = icmp ugt i64 %q, LAST
  %r = select i1 %over, i64 LAST, i64 %q
  store i64 %r, ptr %m
  ret void
}

; Raise through tvm-ffi. A program without it (plain dlopen) just sees the -1.
define internal i32 @tw.raise(ptr %kind, ptr %m) #0 {
  %none = icmp eq ptr @TVMFFIErrorSetRaisedFromCStr, null
  br i1 %none, label %out, label %set
set:
  %b = getelementptr i8, ptr %m, i64 8
  call void @TVMFFIErrorSetRaisedFromCStr(ptr %kind, ptr %b)
  br label %out
out:
  ret i32 -1
}

define i32 @tw_return_text(ptr %bytes, i64 %size, ptr %result) nounwind {
  %none = icmp eq ptr @TVMFFIStringFromByteArray, null
  br i1 %none, label %fail, label %make
make:
  %b = alloca { ptr, i64 }, align 8
  store ptr %bytes, ptr %b
  %sp = getelementptr i8, ptr %b, i64 8
  store i64 %size, ptr %sp
  %rc = call i32 @TVMFFIStringFromByteArray(ptr %b, ptr %result)
  ret i32 %rc
fail:
  ret i32 -1
}

; Does the tensor have no elements?
define internal i1 @tw.hollow(ptr %shape, i32 %ndim) nounwind {
entry:
  %n = sext i32 %ndim to i64
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %look, label %no
look:
  %p = getelementptr i64, ptr %shape, i64 %i
  %v = load i64, ptr %p
  %z = icmp eq i64 %v, 0
  br i1 %z, label %yes, label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
yes:
  ret i1 1
no:
  ret i1 0
}
"""

# Comparing one extent or stride `%v` with its entry; what follows is the same for both.
_BIND = r"""
define i32 @tw_bind(ptr %t, ptr %args, i32 %count, ptr %slots) nounwind {
entry:
  %ap.p = getelementptr i8, ptr %t, i64 8
  %ap = load ptr, ptr %ap.p
  %sy.p = getelementptr i8, ptr %t, i64 16
  %sy = load ptr, ptr %sy.p
  %want.p = getelementptr i8, ptr %t, i64 32
  %want = load i32, ptr %want.p
  %countok = icmp eq i32 %count, %want
  br i1 %countok, label %args.loop, label %bad.count

args.loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %args.next ]
  %i64 = zext i32 %i to i64
  %more = icmp slt i32 %i, %count
  br i1 %more, label %one, label %good
one:
  %a = getelementptr [80 x i8], ptr %ap, i64 %i64
  %any = getelementptr [16 x i8], ptr %args, i64 %i64
  %ti = load i32, ptr %any
  %vp = getelementptr i8, ptr %any, i64 8
  %kind.p = getelementptr i8, ptr %a, i64 48
  %kind = load i32, ptr %kind.p
  %slot.p = getelementptr i8, ptr %a, i64 68
  %slot = load i32, ptr %slot.p
  %slot64 = zext i32 %slot to i64
  %out = getelementptr i64, ptr %slots, i64 %slot64
  %istensor = icmp eq i32 %kind, 0
  br i1 %istensor, label %tensor, label %scalar

tensor:
  %obj = load ptr, ptr %vp
  %isobj = icmp eq i32 %ti, 70
  br i1 %isobj, label %boxed, label %raw
boxed:
  %inner = getelementptr i8, ptr %obj, i64 24
  br label %have
raw:
  %israw = icmp eq i32 %ti, 7
  br i1 %israw, label %have, label %bad.type
have:
  %dl = phi ptr [ %inner, %boxed ], [ %obj, %raw ]
  %dt.p = getelementptr i8, ptr %dl, i64 20
  %dt = load i32, ptr %dt.p
  %wdt.p = getelementptr i8, ptr %a, i64 56
  %wdt = load i32, ptr %wdt.p
  %dtok = icmp eq i32 %dt, %wdt
  br i1 %dtok, label %dev, label %bad.dtype
dev:
  %dv.p = getelementptr i8, ptr %dl, i64 8
  %dv = load i32, ptr %dv.p
  %wdv.p = getelementptr i8, ptr %a, i64 60
  %wdv = load i32, ptr %wdv.p
  %dvok = icmp eq i32 %dv, %wdv
  br i1 %dvok, label %rank, label %bad.device
rank:
  %nd.p = getelementptr i8, ptr %dl, i64 16
  %nd = load i32, ptr %nd.p
  %wnd.p = getelementptr i8, ptr %a, i64 52
  %wnd = load i32, ptr %wnd.p
  %ndok = icmp eq i32 %nd, %wnd
  br i1 %ndok, label %extents, label %bad.shape
extents:
  %nd64 = zext i32 %nd to i64
  %shape.p = getelementptr i8, ptr %dl, i64 24
  %shape = load ptr, ptr %shape.p
  %strides.p = getelementptr i8, ptr %dl, i64 32
  %strides = load ptr, ptr %strides.p
  %dims.p = getelementptr i8, ptr %a, i64 8
  %dims = load ptr, ptr %dims.p
  br label %ext.loop
ext.loop:
  %e = phi i64 [ 0, %extents ], [ %e.next, %ext.next ]
  %emore = icmp slt i64 %e, %nd64
  br i1 %emore, label %ext, label %layout
ext:
  %xv.p = getelementptr i64, ptr %shape, i64 %e
  %xv = load i64, ptr %xv.p
  %d = getelementptr [16 x i8], ptr %dims, i64 %e
  %rule = load i32, ptr %d
  switch i32 %rule, label %ext.next [ i32 0, label %ext.value
                                      i32 1, label %ext.define
                                      i32 2, label %ext.compare ]
ext.value:
  %dval.p = getelementptr i8, ptr %d, i64 8
  %dval = load i64, ptr %dval.p
  %dvalok = icmp eq i64 %dval, %xv
  br i1 %dvalok, label %ext.next, label %bad.shape
ext.define:
  %ds.p = call ptr @tw.symbol(ptr %d, ptr %sy, ptr %slots)
  store i64 %xv, ptr %ds.p
  br label %ext.next
ext.compare:
  %cs.p = call ptr @tw.symbol(ptr %d, ptr %sy, ptr %slots)
  %cs = load i64, ptr %cs.p
  %csok = icmp eq i64 %cs, %xv
  br i1 %csok, label %ext.next, label %bad.shape
ext.next:
  %e.next = add i64 %e, 1
  br label %ext.loop

layout:
  %ws.p = getelementptr i8, ptr %a, i64 16
  %ws = load ptr, ptr %ws.p
  %compact = icmp eq ptr %ws, null
  br i1 %compact, label %cmp.start, label %str.start
cmp.start:
  %nostr = icmp eq ptr %strides, null
  br i1 %nostr, label %data, label %cmp.loop
cmp.loop:
  %c = phi i64 [ %nd64, %cmp.start ], [ %c1, %cmp.next ]
  %run = phi i64 [ 1, %cmp.start ], [ %run1, %cmp.next ]
  %cmore = icmp sgt i64 %c, 0
  br i1 %cmore, label %cmp, label %data
cmp:
  %c1 = sub i64 %c, 1
  %cx.p = getelementptr i64, ptr %shape, i64 %c1
  %cx = load i64, ptr %cx.p
  %cst.p = getelementptr i64, ptr %strides, i64 %c1
  %cst = load i64, ptr %cst.p
  %fits = icmp eq i64 %cst, %run
  br i1 %fits, label %cmp.next, label %cmp.unit
cmp.unit:
  %unit = icmp eq i64 %cx, 1
  br i1 %unit, label %cmp.next, label %cmp.hollow
cmp.hollow:
  %hollow = call i1 @tw.hollow(ptr %shape, i32 %nd)
  br i1 %hollow, label %data, label %bad.strides
cmp.next:
  %run1 = mul i64 %run, %cx
  br label %cmp.loop

str.start:
  br label %str.loop
str.loop:
  %s = phi i64 [ %nd64, %str.start ], [ %s1, %str.next ]
  %srun = phi i64 [ 1, %str.start ], [ %srun1, %str.next ]
  %smore = icmp sgt i64 %s, 0
  br i1 %smore, label %str, label %data
str:
  %s1 = sub i64 %s, 1
  %sx.p = getelementptr i64, ptr %shape, i64 %s1
  %sx = load i64, ptr %sx.p
  %snull = icmp eq ptr %strides, null
  br i1 %snull, label %str.have, label %str.load
str.load:
  %sst.p = getelementptr i64, ptr %strides, i64 %s1
  %sst = load i64, ptr %sst.p
  br label %str.have
str.have:
  %sv = phi i64 [ %srun, %str ], [ %sst, %str.load ]
  %sd = getelementptr [16 x i8], ptr %ws, i64 %s1
  %srule = load i32, ptr %sd
  switch i32 %srule, label %str.next [ i32 0, label %str.value
                                       i32 1, label %str.define
                                       i32 2, label %str.compare ]
str.value:
  %sval.p = getelementptr i8, ptr %sd, i64 8
  %sval = load i64, ptr %sval.p
  br label %str.test
str.define:
  %sds.p = call ptr @tw.symbol(ptr %sd, ptr %sy, ptr %slots)
  store i64 %sv, ptr %sds.p
  br label %str.next
str.compare:
  %scs.p = call ptr @tw.symbol(ptr %sd, ptr %sy, ptr %slots)
  %scs = load i64, ptr %scs.p
  br label %str.test
str.test:
  %swant = phi i64 [ %sval, %str.value ], [ %scs, %str.compare ]
  %sok = icmp eq i64 %swant, %sv
  ; the stride of a dimension with one element, or none, is never used
  %sfew = icmp sle i64 %sx, 1
  %sgo = or i1 %sok, %sfew
  br i1 %sgo, label %str.next, label %bad.strides
str.next:
  %srun1 = mul i64 %srun, %sx
  br label %str.loop

data:
  %base = load ptr, ptr %dl
  %off.p = getelementptr i8, ptr %dl, i64 40
  %off = load i64, ptr %off.p
  %mem = getelementptr i8, ptr %base, i64 %off
  store ptr %mem, ptr %out
  %al.p = getelementptr i8, ptr %a, i64 64
  %al = load i32, ptr %al.p
  %al64 = zext i32 %al to i64
  %mask = sub i64 %al64, 1
  %addr = ptrtoint ptr %mem to i64
  %low = and i64 %addr, %mask
  %misplaced = icmp ne i64 %low, 0
  %isnull = icmp eq ptr %base, null
  %odd = or i1 %misplaced, %isnull
  br i1 %odd, label %data.odd, label %args.next
data.odd:
  %nothing = call i1 @tw.hollow(ptr %shape, i32 %nd)
  br i1 %nothing, label %args.next, label %data.bad
data.bad:
  br i1 %isnull, label %bad.null, label %bad.align

scalar:
  %v = load i64, ptr %vp
  %isint = icmp eq i32 %ti, 1
  %isbool = icmp eq i32 %ti, 2
  %integral = or i1 %isint, %isbool
  %wantf = icmp eq i32 %kind, 3
  br i1 %wantf, label %float, label %int
float:
  %isfloat = icmp eq i32 %ti, 3
  br i1 %isfloat, label %scalar.store, label %float.int
float.int:
  %fv = sitofp i64 %v to double
  %fb = bitcast double %fv to i64
  br i1 %integral, label %scalar.store, label %bad.type
int:
  br i1 %integral, label %int.range, label %bad.type
int.range:
  %sdt.p = getelementptr i8, ptr %a, i64 56
  %sdt = load i32, ptr %sdt.p
  %sbits0 = lshr i32 %sdt, 8
  %sbits1 = and i32 %sbits0, 255
  %wantb = icmp eq i32 %kind, 4
  %sbits = select i1 %wantb, i32 1, i32 %sbits1
  %sbits64 = zext i32 %sbits to i64
  %sh = sub i64 64, %sbits64
  %up = shl i64 %v, %sh
  %sg = ashr i64 %up, %sh
  %us = lshr i64 %up, %sh
  %signed = icmp eq i32 %kind, 1
  %back = select i1 %signed, i64 %sg, i64 %us
  %inrange = icmp eq i64 %back, %v
  %nonneg = icmp sge i64 %v, 0
  %signok = or i1 %signed, %nonneg
  %rangeok = and i1 %inrange, %signok
  br i1 %rangeok, label %scalar.symbol, label %bad.range
scalar.symbol:
  %rl.p = getelementptr i8, ptr %a, i64 72
  %rl = load i32, ptr %rl.p
  %cmp2 = icmp eq i32 %rl, 2
  br i1 %cmp2, label %scalar.compare, label %scalar.store
scalar.compare:
  %known = load i64, ptr %out
  %agrees = icmp eq i64 %known, %v
  br i1 %agrees, label %scalar.store, label %bad.symbol
scalar.store:
  %sto = phi i64 [ %v, %float ], [ %fb, %float.int ], [ %v, %scalar.symbol ],
                 [ %v, %scalar.compare ]
  store i64 %sto, ptr %out
  br label %args.next

args.next:
  %i.next = add i32 %i, 1
  br label %args.loop
good:
  ret i32 0

bad.count:
  %rc0 = call i32 @tw.f.count(ptr %t, i32 %count)
  ret i32 %rc0
bad.type:
  %rc1 = call i32 @tw.f.type(ptr %t, ptr %a, i32 %i, i32 %ti)
  ret i32 %rc1
bad.dtype:
  %rc2 = call i32 @tw.f.dtype(ptr %t, ptr %a, i32 %i, i32 %dt)
  ret i32 %rc2
bad.device:
  %rc3 = call i32 @tw.f.device(ptr %t, ptr %a, i32 %i, ptr %dl)
  ret i32 %rc3
bad.shape:
  %rc4 = call i32 @tw.f.shape(ptr %t, ptr %a, i32 %i, ptr %dl, ptr %slots)
  ret i32 %rc4
bad.strides:
  %rc5 = call i32 @tw.f.strides(ptr %t, ptr %a, i32 %i, ptr %dl)
  ret i32 %rc5
bad.null:
  %rc6 = call i32 @tw.f.null(ptr %t, ptr %a, i32 %i)
  ret i32 %rc6
bad.align:
  %rc7 = call i32 @tw.f.align(ptr %t, ptr %a, i32 %i, i32 %al, ptr %mem)
  ret i32 %rc7
bad.range:
  %rc8 = call i32 @tw.f.range(ptr %t, ptr %a, i32 %i, i64 %v)
  ret i32 %rc8
bad.symbol:
  %rc9 = call i32 @tw.f.symbol(ptr %t, ptr %a, i32 %i, i64 %v, i64 %known)
  ret i32 %rc9
}

; The slot of the symbol that an extent names.
define internal ptr @tw.symbol(ptr %d, ptr %symbols, ptr %slots) nounwind alwaysinline {
  %k.p = getelementptr i8, ptr %d, i64 4
  %k = load i32, ptr %k.p
  %k64 = zext i32 %k to i64
  %s = getelementptr [24 x i8], ptr %symbols, i64 %k64
  %slot.p = getelementptr i8, ptr %s, i64 16
  %slot = load i32, ptr %slot.p
  %slot64 = zext i32 %slot to i64
  %r = getelementptr i64, ptr %slots, i64 %slot64
  ret ptr %r
}
"""


def _list_function(strings: _Text) -> str:
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


def _dtype_function(strings: _Text) -> str:
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


def _failures(strings: _Text) -> list[str]:
    def say(label: str, form: str, *arguments: str) -> str:
        return _say(strings, label, form, *arguments)

    shape = (
        _field("nd", "i32", "%dl", 16)
        + _field("shape", "ptr", "%dl", 24)
        + "\n  call void @tw.list(ptr %m, ptr %shape, i32 %nd)"
    )
    why = """
  call void @tw.why(ptr %m, ptr %t, ptr %a, ptr %dl, ptr %slots)"""
    return [
        f"""
define internal i32 @tw.f.count(ptr %t, i32 %got) #0 {{
  %m = alloca %message, align 8
  store i64 0, ptr %m
  %fn = load ptr, ptr %t{_field("sig", "ptr", "%t", 24)}{_field("want", "i32", "%t", 32)}
  %single = icmp eq i32 %want, 1
  %plural = select i1 %single, ptr {strings.string("")}, ptr {strings.string("s")}{
            say(
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
define i32 @tw_fail_code(ptr %fn, i32 %code) #0 {{
  %m = alloca %message, align 8
  store i64 0, ptr %m{say("s", "%s: failed with code %d", "ptr %fn", "i32 %code")}
  %rc = call i32 @tw.raise(ptr {strings.string("RuntimeError")}, ptr %m)
  ret i32 %rc
}}
; Which symbol of an argument disagrees with its definition, if one does.
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
            say(
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
""",
        _failure(
            strings,
            "type",
            ", i32 %ti",
            _field("kind", "i32", "%a", 48)
            + """
  %kind64 = zext i32 %kind to i64
  %wp = getelementptr ptr, ptr @tw.kinds, i64 %kind64
  %w = load ptr, ptr %wp
  %known = icmp ult i32 %ti, 79
  %safe = select i1 %known, i32 %ti, i32 64
  %ti64 = zext i32 %safe to i64
  %gp = getelementptr ptr, ptr @tw.types, i64 %ti64
  %g0 = load ptr, ptr %gp
  %unnamed = icmp eq ptr %g0, null
  %g = select i1 %unnamed, ptr """
            + strings.string("something else")
            + ", ptr %g0"
            + say("s", "expected %s, got %s", "ptr %w", "ptr %g"),
            "TypeError",
        ),
        _failure(
            strings,
            "dtype",
            ", i32 %dt",
            _field("w", "ptr", "%a", 40)
            + say("s", "expected dtype %s, got ", "ptr %w")
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
            + say(
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
            + say("s", "expected shape %s, got ", "ptr %w")
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
            + say("s", "expected %s, got strides ", "ptr %w")
            + _field("nd0", "i32", "%dl", 16)
            + "\n  call void @tw.list(ptr %m, ptr %st, i32 %nd0)"
            + say("f", " for shape ")
            + shape,
            "ValueError",
        ),
        _failure(
            strings, "null", "", say("s", "expected memory, got a null pointer"), "ValueError"
        ),
        _failure(
            strings,
            "align",
            ", i32 %al, ptr %mem",
            say("s", "expected memory aligned to %d bytes, got address %p", "i32 %al", "ptr %mem"),
            "ValueError",
        ),
        _failure(
            strings,
            "range",
            ", i64 %v",
            _field("w", "ptr", "%a", 40)
            + say("s", "expected a value of type %s, got %lld", "ptr %w", "i64 %v"),
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
            + say(
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


def _device_function(strings: _Text) -> str:
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


@lru_cache(maxsize=1)
def binder_ll() -> str:
    """Return the binder's LLVM IR text."""
    strings = _Text()
    functions = [
        _list_function(strings),
        _dtype_function(strings),
        _device_function(strings),
        *_failures(strings),
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
    helpers = _HELPERS.replace("SIZE", str(_MESSAGE)).replace("LAST", str(_MESSAGE - 1))
    return "\n".join([helpers, *strings.lines, *functions, _BIND])


@cache
def binder_object(triple: str | None = None) -> bytes:
    """Return the compiled binder, for the oldest CPU of the architecture."""
    triple = triple or host_triple()
    return compile_portable(binder_ll(), triple)


register_support_object(SupportObject("binder", BINDER_SYMBOLS, binder_object))
