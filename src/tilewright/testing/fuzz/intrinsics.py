"""Tensor intrinsics for the fuzzer: a row is copied from its end.

They are registered when they are asked for by name, so that a reproduction needs one line.
"""

from __future__ import annotations

from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import TensorIntrin

LONGEST = 16
"""The longest row for which there is an intrinsic."""

_DESCRIPTION = """
@T.prim_func
def description(A: T.Buffer(({n},), "{dtype}"), B: T.Buffer(({n},), "{dtype}")):
    with T.block("root"):
        T.reads(A[0:{n}])
        T.writes(B[0:{n}])
        for i in T.serial({n}):
            with T.block("row"):
                v = T.axis.spatial({n}, i)
                B[v] = A[v]
"""
_IMPLEMENTATION = """
@T.prim_func
def implementation(a: T.handle, b: T.handle):
    s = T.int64()
    t = T.int64()
    A = T.match_buffer(a, ({n},), "{dtype}", strides=(s,))
    B = T.match_buffer(b, ({n},), "{dtype}", strides=(t,))
    with T.block("root"):
        T.reads(A[0:{n}])
        T.writes(B[0:{n}])
        for i in T.serial({n}):
            B[{last} - i] = A[{last} - i]
"""


def copy_intrinsic(dtype: str, n: int) -> str:
    """Return the name of the intrinsic that copies ``n`` elements, registering it if need be."""
    name = f"fuzz.copy.{dtype}.{n}"
    try:
        TensorIntrin.get(name)
    except ScheduleError:
        values = {"dtype": dtype, "n": n, "last": n - 1}
        TensorIntrin.register(
            name, parse(_DESCRIPTION.format(**values)), parse(_IMPLEMENTATION.format(**values))
        )
    return name
