"""Random tiles that don't divide: results are right, and nothing outside a buffer is touched.

Arrays lie against pages that may not be accessed, so that an access beyond either end of one ends
the process.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import random
from typing import Any

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.driver import compile
from tilewright.support.errors import ScheduleError
from tilewright.target import Target

PAGE = mmap.PAGESIZE
TARGETS = ["native"]
if platform.machine() in ("x86_64", "AMD64"):
    TARGETS.append("llvm -mcpu=haswell -num-cores=1")  # no masks for most vector instructions


def fenced(array: Any, at_end: bool, keep: list[Any]) -> Any:
    """A copy of an array between two forbidden pages, against the first or the last."""
    pages = -(-array.nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    keep.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    for fence in (0, (pages + 1) * PAGE):
        assert protect(ctypes.c_void_p(start + fence), PAGE, 0) == 0
    offset = PAGE + pages * PAGE - array.nbytes if at_end else PAGE
    made = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    made[...] = array
    return made


def program(rng: random.Random) -> list[Any]:
    if rng.random() < 0.6:
        m, n, k = (rng.randint(1, 70) for _ in range(3))
        a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
        r = te.reduce_axis((0, k), "r")
        c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")
    else:
        size, inner, outer, stride = rng.randint(5, 12), rng.randint(1, 5), rng.randint(1, 40), 2
        a = te.placeholder((size, size, inner), name="A")
        b = te.placeholder((3, 3, inner, outer), name="B")
        y, x, z = (te.reduce_axis((0, n), name) for n, name in ((3, "y"), (3, "x"), (inner, "z")))
        places = (size - 3) // stride + 1
        c = te.compute(
            (places, places, outer),
            lambda i, j, f: te.sum(
                a[i * stride + y, j * stride + x, z] * b[y, x, z, f], axis=[y, x, z]
            ),
            "C",
        )
    if rng.random() < 0.5:
        return [a, b, c]
    return [a, b, te.compute(c.shape, lambda *at: c[at] * 2.0 + 1.0, "D")]


@pytest.mark.parametrize("seed", range(16))
def test_random_tiles(seed: int) -> None:
    rng = random.Random(seed)
    args = program(rng)
    func = te.create_prim_func(args)
    sch = tir.Schedule(func)
    block = sch.get_block("C")
    copy = sch.cache_write(block, 0, "local")
    *loops, i, j, k = [
        *sch.get_loops(block)[: len(args[-1].shape)],
        sch.get_loops(block)[-1],
    ]
    middle = sch.get_loops(block)[len(args[-1].shape) : -1]
    i0, i1 = sch.split(i, [None, rng.randint(1, 9)])
    j0, j1 = sch.split(j, [None, rng.choice([4, 8, 16, 32, 64, rng.randint(1, 48)])])
    inner = sch.split(k, [None, rng.randint(2, 9)]) if rng.random() < 0.4 else [k]
    outer = [*loops, *rng.sample([i0, j0], 2)]
    sch.reorder(*outer, *middle, *inner, i1, j1)
    at = sch.fuse(*outer) if rng.random() < 0.5 else outer[-1]
    sch.reverse_compute_at(copy, at)
    if rng.random() < 0.7:
        sch.decompose_reduction(block, (middle or inner)[0])
    for name in ("C_init", "C_update", "C", "C_local", "D"):
        try:
            *_, rows, columns = sch.get_loops(sch.get_block(name))
        except (ScheduleError, ValueError):
            continue
        sch.vectorize(columns)
        if rows is not at and name != "D":
            sch.unroll(rows)
    keep: list[Any] = []
    numbers = np.random.default_rng(seed)
    shapes = [[extent.value for extent in arg.shape] for arg in args]
    arrays = [numbers.integers(-4, 5, shape).astype("float32") for shape in shapes]
    expected = [array.copy() for array in arrays]
    compile(func, "native")(*expected)
    for target in TARGETS:
        actual = [fenced(array, rng.random() < 0.7, keep) for array in arrays]
        compile(sch.mod, Target(target))(*actual)
        np.testing.assert_array_equal(actual[-1], expected[-1])
