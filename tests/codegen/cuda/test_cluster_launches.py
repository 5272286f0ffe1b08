"""Launches of kernels whose blocks form clusters: grids count blocks, and what drivers ask for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cuda_programs import built, contents, on_device
from fake_cuda import FakeDriver

from tilewright.runtime import load_module
from tilewright.script import parse

# Each block stores its number in the memory of the next one of its cluster.
PROGRAM = """
@T.prim_func
def main(b: T.handle):
    n = T.int64()
    B = T.match_buffer(b, (n, SIZE), "int32")
    for bx in T.thread_binding(n, thread="blockIdx.x"):
        for cx in T.thread_binding(SIZE, thread="clusterCtaIdx.AXIS"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                S = T.allocate((1,), "int32", scope="shared")
                T.evaluate(T.ptx_barrier_cluster_arrive())
                T.evaluate(T.ptx_barrier_cluster_wait())
                if tx == 0:
                    T.evaluate(T.ptx_st_shared_cluster(
                        T.address_of(S[0]), T.Cast("int32", cx), (cx + 1) % SIZE))
                T.evaluate(T.ptx_barrier_cluster_arrive())
                T.evaluate(T.ptx_barrier_cluster_wait())
                if tx == 0:
                    B[bx, cx] = S[0]
"""


@pytest.mark.parametrize(("size", "axis"), [(2, "x"), (4, "y"), (16, "x")])
def test_a_launch(fake_cuda: FakeDriver, tmp_path: Path, size: int, axis: str) -> None:
    """Of more than eight blocks the driver must be told; the same in an exported library."""
    program = parse(PROGRAM.replace("SIZE", str(size)).replace("AXIS", axis))
    module = built(program, "cuda -arch=sm_90a")
    module.export_library(tmp_path / "clusters.so")
    for made in (module, load_module(tmp_path / "clusters.so")):
        fake_cuda.launches.clear()
        result = on_device(fake_cuda, np.full((3, size), -1, "int32"))
        made(result)
        found = contents(fake_cuda, result)
        np.testing.assert_array_equal(found, [[(i - 1) % size for i in range(size)]] * 3)
        grid = (3 * size, 1, 1) if axis == "x" else (3, size, 1)
        assert fake_cuda.launches == [("main_kernel", (*grid, 32, 1, 1), 0, 0)]


def test_a_refused_launch_tells_of_the_cluster(fake_cuda: FakeDriver) -> None:
    program = parse(PROGRAM.replace("SIZE", "2").replace("AXIS", "x"))
    module = built(program, "cuda -arch=sm_90a")
    result = on_device(fake_cuda, np.zeros((3, 2), "int32"))
    fake_cuda.failing["cuLaunchKernel"] = 701
    with pytest.raises(RuntimeError, match="bytes of dynamic shared memory in clusters of 2 block"):
        module(result)
    del fake_cuda.failing["cuLaunchKernel"]
