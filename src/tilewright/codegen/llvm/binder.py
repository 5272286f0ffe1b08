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

from functools import cache, lru_cache

from tilewright.codegen.llvm.binder_messages import message_text
from tilewright.codegen.llvm.binder_text import BIND, HELPERS
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.runtime.loader import SupportObject, register_support_object

BINDER_SYMBOLS = ("tw_bind", "tw_fail_code", "tw_return_text")

#: Bytes of a message; what is longer is cut.
_MESSAGE = 1024


@lru_cache(maxsize=1)
def binder_ll() -> str:
    """Return the binder's LLVM IR text."""
    helpers = HELPERS.replace("SIZE", str(_MESSAGE)).replace("LAST", str(_MESSAGE - 1))
    return "\n".join([helpers, message_text(), BIND])


@cache
def binder_object(triple: str | None = None) -> bytes:
    """Return the compiled binder, for the oldest CPU of the architecture."""
    triple = triple or host_triple()
    return compile_portable(binder_ll(), triple)


register_support_object(SupportObject("binder", BINDER_SYMBOLS, binder_object))
