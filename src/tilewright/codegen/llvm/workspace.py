"""Memory for large intermediate buffers: a cached allocator, compiled for the oldest CPU.

    ptr @tw_workspace_alloc(i64 bytes)     64-byte aligned, or null
    void @tw_workspace_free(ptr)

Kernels want the same sizes again and again, and getting large blocks from the system means page
faults on each call. Freed blocks are therefore kept in small per-size caches: four size classes per
power of two, a few slots each. Taking and giving back is one atomic exchange; there are no locks,
so threads, nested calls and forks need no care. Blocks above 1 GiB go straight back to the system.

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

_SLOTS = 8
#: Size classes 4*e .. 4*e+3 hold blocks of (4..7) * 2**(e-2) bytes; those from here aren't kept.
_KEPT = 4 * 30
#: Bytes of a header, and what blocks are aligned to.
_LINE = 64

_HEADER = Struct("tw.header", size_class=U64, unused=array(_LINE // 8 - 1, U64))
_CACHE = Global("tw.cache", array(_KEPT, array(_SLOTS, PTR)), align=_LINE)

_ALIGNED_ALLOC = external(PTR, "aligned_alloc", U64, U64)
_FREE = external(VOID, "free", PTR)
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
    fresh = f.call(_ALIGNED_ALLOC, _LINE, ((quarters << shift) + (_LINE - 1)) & -_LINE)
    with f.if_(fresh.eq(0)):
        f.ret(0)
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
