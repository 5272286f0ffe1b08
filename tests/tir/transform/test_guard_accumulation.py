"""One test around a tile's step in place of one per element."""

from __future__ import annotations

import numpy as np

from tilewright.ir import FloorMod, IRModule, collect
from tilewright.script import tir as T
from tilewright.tir import BufferStore, For, IfThenElse, PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.transform import GuardAccumulation


@T.prim_func
def tile(A: T.Buffer((2, 3, 4), "float32"), C: T.Buffer((2, 4), "float32")):
    for p in range(2):
        acc = T.allocate((4,), "float32", scope="local")
        for i in T.unroll(4):
            acc[i] = T.float32(0)
        for k in range(3):
            for i in T.unroll(4):
                acc[i] = acc[i] + T.if_then_else((p + k) % 2 == 0, A[p, k, i], T.float32(0))
        for i in T.unroll(4):
            C[p, i] = acc[i]


@T.prim_func
def per_element(A: T.Buffer((2, 4), "float32"), C: T.Buffer((4,), "float32")):
    acc = T.allocate((4,), "float32", scope="local")
    for i in T.unroll(4):
        acc[i] = T.float32(0)
    for k in range(2):
        for i in T.unroll(4):
            acc[i] = acc[i] + T.if_then_else(i + k < 4, A[k, i], T.float32(0))
    for i in T.unroll(4):
        C[i] = acc[i]


def guarded(func: PrimFunc) -> PrimFunc:
    return GuardAccumulation()(IRModule({"main": func}))["main"]  # type: ignore[no-any-return]


def test_the_condition_stands_around_the_tile() -> None:
    made = guarded(tile)
    (test,) = collect(made.body, IfThenElse)
    assert collect(test.condition, FloorMod)
    assert isinstance(test.then_case, For)
    assert isinstance(test.then_case.body, BufferStore)
    a = np.arange(24, dtype="float32").reshape(2, 3, 4)
    c = np.zeros((2, 4), "float32")
    run(made, a, c)
    np.testing.assert_array_equal(c, [a[0, 0] + a[0, 2], a[1, 1]])


def test_a_condition_on_the_element_stays() -> None:
    assert guarded(per_element).body is per_element.body
