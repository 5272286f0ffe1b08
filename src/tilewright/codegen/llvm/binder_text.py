"""LLVM IR text of the argument binder: the fixed parts of what :mod:`binder` puts together."""

from __future__ import annotations

# SIZE and LAST are filled in: the bytes of a message, and the last of them.
HELPERS = r"""
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

# The success path. Every failure ends in one of the functions that `binder` generates.
BIND = r"""
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
  %sdt.p = getelementptr i8, ptr %a, i64 56
  %sdt = load i32, ptr %sdt.p
  %sbits0 = lshr i32 %sdt, 8
  %sbits1 = and i32 %sbits0, 255
  br i1 %integral, label %int.range, label %int.bits
int.bits:
  ; The convention's ints are int64: a uint64 beyond that comes as the bits of a pointer.
  %isbits = icmp eq i32 %ti, 4
  %unsigned = icmp eq i32 %kind, 2
  %wide = icmp eq i32 %sbits1, 64
  %isbits1 = and i1 %isbits, %unsigned
  %isbits2 = and i1 %isbits1, %wide
  br i1 %isbits2, label %scalar.symbol, label %bad.type
int.range:
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
