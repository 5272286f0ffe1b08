"""Aligned strides in kernels: a transposition through a padded tile in shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.ir import as_int, const
from tilewright.target import Target
from tilewright.tir import PrimFunc, Schedule
from tilewright.tir.interpreter import run
from tilewright.tir.transform import gpu_pipeline
from tilewright.tir.transform.align_storage import aligned_strides


def transposition(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    return te.create_prim_func([a, te.compute((m, n), lambda i, j: a[j, i] * 2.0, name="B")])


def tiled(func: PrimFunc) -> Schedule:
    """Tiles of 8 by 8, one thread per element; columns of the tile are read."""
    sch = Schedule(func)
    i, j = sch.get_loops("B")
    (i0, i1), (j0, j1) = sch.split(i, [None, 8]), sch.split(j, [None, 8])
    sch.reorder(i0, j0, i1, j1)
    copy = sch.cache_read("B", 0, "shared")
    sch.compute_at(copy, j0)
    y, x = sch.get_loops(copy)[-2:]
    for outer, inner in ((i1, y), (j1, x)):
        thread = "threadIdx.y" if outer is i1 else "threadIdx.x"
        sch.bind(outer, thread)
        sch.bind(inner, thread)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    return sch


@pytest.mark.parametrize("aligned", [False, True])
def test_tiles_in_shared_memory_get_padded_rows(aligned: bool) -> None:
    func = transposition(16, 24)
    sch = tiled(func)
    if aligned:
        sch.storage_align("A_shared", 0, -2, 32, 1)
    mod = gpu_pipeline(Target("cuda"))(sch.mod)
    text = mod["main_kernel"].script()
    assert ("* 33" in text) == aligned
    data = np.arange(16 * 24, dtype="float32").reshape(16, 24)
    out = np.zeros((24, 16), "float32")
    run(mod, data, out, check_races=True)
    np.testing.assert_array_equal(out, data.T * 2)


def test_strides_are_the_least_that_satisfy_all_alignments() -> None:
    shape = tuple(const(extent) for extent in (4, 6, 10))
    for wanted, expected in (
        ({}, [60, 10, 1]),
        ({1: (8, 3)}, [66, 11, 1]),
        ({0: (32, 0)}, [64, 10, 1]),
        ({2: (4, 2)}, [120, 20, 2]),
        ({0: (7, 5), 1: (4, 0)}, [75, 12, 1]),
    ):
        strides = [as_int(stride) for stride in aligned_strides(shape, wanted)]
        assert strides == expected
        assert all(strides[axis] % factor == off for axis, (factor, off) in wanted.items())
