"""Memory for large intermediate buffers: a cached allocator, written as LLVM IR.

    ptr @tw_workspace_alloc(i64 bytes)     64-byte aligned, or null
    void @tw_workspace_free(ptr)

Kernels want the same sizes again and again, and getting large blocks from the system means page
faults on each call. Freed blocks are therefore kept in small per-size caches: four size classes per
power of two, a few slots each. Taking and giving back is one atomic exchange; there are no locks,
so threads, nested calls and forks need no care. Blocks above 1 GiB go straight back to the system.

A block is preceded by 64 bytes that hold its size class.
"""

from __future__ import annotations

from functools import cache

from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.runtime.loader import SupportObject, register_support_object

WORKSPACE_SYMBOLS = ("tw_workspace_alloc", "tw_workspace_free")

_SLOTS = 8
# Classes 4*e .. 4*e+3 hold blocks of (4..7) * 2**(e-2) bytes; e up to 30.
_CLASSES = 128

_TEXT = f"""
@tw.cache = internal global [{_CLASSES * _SLOTS} x ptr] zeroinitializer, align 64

declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)

define ptr @tw_workspace_alloc(i64 %bytes) nounwind {{
entry:
  ; 64 bytes more for the header, at least 4096.
  %b0 = add i64 %bytes, 64
  %small = icmp ult i64 %b0, 4096
  %b = select i1 %small, i64 4096, i64 %b0
  ; Round up to the next multiple of a quarter of the greatest power of two below.
  %lead = call i64 @llvm.ctlz.i64(i64 %b, i1 true)
  %e = sub i64 63, %lead
  %shift = sub i64 %e, 2
  %unit = shl i64 1, %shift
  %mask = sub i64 %unit, 1
  %up = add i64 %b, %mask
  %quarters = lshr i64 %up, %shift
  %size0 = shl i64 %quarters, %shift
  %size1 = add i64 %size0, 63
  %size = and i64 %size1, -64
  %e4 = shl i64 %e, 2
  %q = sub i64 %quarters, 4
  %class = add i64 %e4, %q
  %big = icmp uge i64 %class, {4 * 30}
  br i1 %big, label %fresh, label %search
search:
  %base = mul i64 %class, {_SLOTS}
  br label %slot
slot:
  %i = phi i64 [ 0, %search ], [ %i1, %next ]
  %at = add i64 %base, %i
  %p = getelementptr ptr, ptr @tw.cache, i64 %at
  %seen = load atomic ptr, ptr %p monotonic, align 8
  %none = icmp eq ptr %seen, null
  br i1 %none, label %next, label %take
take:
  %got = atomicrmw xchg ptr %p, ptr null acquire
  %lost = icmp eq ptr %got, null
  br i1 %lost, label %next, label %found
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {_SLOTS}
  br i1 %more, label %slot, label %fresh
found:
  ret ptr %got
fresh:
  %block = call ptr @aligned_alloc(i64 64, i64 %size)
  %bad = icmp eq ptr %block, null
  br i1 %bad, label %fail, label %good
good:
  store i64 %class, ptr %block
  %user = getelementptr i8, ptr %block, i64 64
  ret ptr %user
fail:
  ret ptr null
}}

define void @tw_workspace_free(ptr %user) nounwind {{
entry:
  %block = getelementptr i8, ptr %user, i64 -64
  %class = load i64, ptr %block
  %big = icmp uge i64 %class, {4 * 30}
  br i1 %big, label %release, label %search
search:
  %base = mul i64 %class, {_SLOTS}
  br label %slot
slot:
  %i = phi i64 [ 0, %search ], [ %i1, %next ]
  %at = add i64 %base, %i
  %p = getelementptr ptr, ptr @tw.cache, i64 %at
  %seen = load atomic ptr, ptr %p monotonic, align 8
  %free = icmp eq ptr %seen, null
  br i1 %free, label %try, label %next
try:
  %x = cmpxchg ptr %p, ptr null, ptr %user release monotonic
  %done = extractvalue {{ ptr, i1 }} %x, 1
  br i1 %done, label %out, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {_SLOTS}
  br i1 %more, label %slot, label %release
release:
  call void @free(ptr %block)
  ret void
out:
  ret void
}}
"""


@cache
def workspace_object(triple: str | None = None) -> bytes:
    """Return the compiled allocator, for the oldest CPU of the architecture."""
    triple = triple or host_triple()
    return compile_portable(_TEXT, triple)


register_support_object(SupportObject("workspace", WORKSPACE_SYMBOLS, workspace_object))
