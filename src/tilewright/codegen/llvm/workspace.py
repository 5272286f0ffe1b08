"""Memory for large intermediate buffers: a cached allocator, compiled for the oldest CPU.

    ptr @tw_workspace_alloc(i64 bytes)     64-byte aligned, or null
    void @tw_workspace_free(ptr)

Kernels want the same sizes again and again, and getting large blocks from the system means page
faults on each call. Freed blocks are therefore kept in small per-size caches: four size classes per
power of two, a few slots each. Taking and giving back is one atomic exchange; there are no locks,
so threads, nested calls and forks need no care. Blocks above 1 GiB go straight back to the system.
Large blocks lie on huge pages where the system has them: 512 times fewer page faults, and misses of
the TLB.

A block is preceded by a header that holds its size class.
"""

from __future__ import annotations

from functools import cache

from tilewright.codegen.llvm.builder import (
    Function,
    Global,
    exported,
    external,
    module_text,
)
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.codegen.llvm.values import (
    ACQUIRE,
    BOOL,
    I32,
    PTR,
    RELAXED,
    RELEASE,
    U64,
    VOID,
    Struct,
    Value,
    array,
)
from tilewright.runtime.loader import SupportObject, register_support_object

WORKSPACE_SYMBOLS = ("tw_workspace_alloc", "tw_workspace_free")

#: The two, for other support objects.
WORKSPACE_ALLOC = external(PTR, "tw_workspace_alloc", U64)
WORKSPACE_FREE = external(VOID, "tw_workspace_free", PTR)

_SLOTS = 8
#: Size classes 4*e .. 4*e+3 hold blocks of (4..7) * 2**(e-2) bytes; those from here aren't kept.
_KEPT = 4 * 30
#: Bytes of a header, and what blocks are aligned to.
_LINE = 64

_HEADER = Struct("tw.header", size_class=U64, unused=array(_LINE // 8 - 1, U64))
_CACHE = Global("tw.cache", array(_KEPT, array(_SLOTS, PTR)), align=_LINE)

#: Bytes of a huge page (x86-64, and AArch64 with pages of 4 KiB), and of blocks that lie on some.
_HUGE_PAGE = 1 << 21
_LARGE = 2 * _HUGE_PAGE
_MADV_HUGEPAGE = 14

_ALIGNED_ALLOC = external(PTR, "aligned_alloc", U64, U64)
_FREE = external(VOID, "free", PTR)
_MADVISE = external(I32, "madvise", PTR, U64, I32)
_LEADING_ZEROS = external(U64, "llvm.ctlz.i64", U64, BOOL)


@exported("tw_workspace_alloc", PTR, bytes=U64)
def _alloc(f: Function, asked: Value) -> None:
    size = f.greatest(asked + _LINE, 4096)
    # Round up to the next multiple of a quarter of the greatest power of two below.
    exponent = 63 - f.call(_LEADING_ZEROS, size, True)
    shift = exponent - 2
    quarters = (size + ((1 << shift) - 1)) >> shift
    size_class = (exponent << 2) + (quarters - 4)
    with f.if_(size_class < _KEPT), f.for_(_SLOTS) as i:
        slot = f.use(_CACHE)[size_class][i]
        with f.if_(slot.get(RELAXED).ne(0)):
            block = slot.exchange(0, ACQUIRE)
            with f.if_(block.ne(0)):
                f.ret(block)
    is_large = size >= _LARGE
    unit = f.select(is_large, _HUGE_PAGE, _LINE, U64)
    whole = ((quarters << shift) + (unit - 1)) & -unit
    fresh = f.call(_ALIGNED_ALLOC, unit, whole)
    with f.if_(fresh.eq(0)):
        f.ret(0)
    with f.if_(is_large):
        f.call(_MADVISE, fresh, whole, _MADV_HUGEPAGE)  # a wish: without huge pages it fails
    fresh.at(_HEADER)["size_class"].set(size_class)
    f.ret(fresh.at(_HEADER, 1).address)


@exported("tw_workspace_free", VOID, block=PTR)
def _release(f: Function, block: Value) -> None:
    header = block.at(_HEADER, -1)
    size_class = header["size_class"].get()
    with f.if_(size_class < _KEPT), f.for_(_SLOTS) as i:
        slot = f.use(_CACHE)[size_class][i]
        with f.if_(slot.get(RELAXED).eq(0)), f.if_(slot.compare_exchange(0, block, RELEASE)):
            f.ret()
    f.call(_FREE, header.address)


@cache
def workspace_object(triple: str | None = None) -> bytes:
    """Return the compiled allocator, for the oldest CPU of the architecture."""
    return compile_portable(module_text((_alloc, _release)), triple or host_triple())


register_support_object(SupportObject("workspace", WORKSPACE_SYMBOLS, workspace_object))
