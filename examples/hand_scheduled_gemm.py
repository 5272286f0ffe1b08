"""A matrix product scheduled by hand, next to numpy on one thread.

The program says what is computed. The schedule says how: a panel of B is packed so that the inner
loops read it in order, a tile of C stays in registers while the reduction runs over it, and the
tile's columns are vectors. The schedule's trace is printed, saved, read again and replayed on a
fresh copy of the program.

    python examples/hand_scheduled_gemm.py
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__" and os.environ.get("OPENBLAS_NUM_THREADS") != "1":
    # Libraries below numpy read these when they are loaded, so they must be set before.
    single = dict.fromkeys(
        ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS"), "1"
    )
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **single})

import numpy as np

import tilewright
from tilewright.ir import structural_equal
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.target import Target
from tilewright.tir.schedule import Schedule, Trace

N = 512


@I.ir_module
class Matmul:
    """What is computed."""

    @T.prim_func
    def main(
        A: T.Buffer((512, 512), "float32"),
        B: T.Buffer((512, 512), "float32"),
        C: T.Buffer((512, 512), "float32"),
    ):
        for i, j, k in T.grid(512, 512, 512):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def register_tile(target: Target) -> tuple[int, int]:
    """Return rows and columns of the tile of C that fills the registers.

    Two vectors of B, one value of A and some room for the compiler; the rest are accumulators.
    """
    return (target.vector_registers - 4) // 2, 2 * target.vector_bits // 32


def schedule(target: Target) -> Schedule:
    """Return the scheduled program."""
    rows, columns = register_tile(target)
    sch = Schedule(Matmul)
    block = sch.get_block("C")

    # B in panels as wide as the tile: [panel, k, column]. Copied once, before the product.
    packed = sch.cache_read(block, 1, "global")
    sch.transform_layout(packed, ("write", 0), lambda k, j: (j // columns, k, j % columns))
    # The accumulators: a tile of C that lives in registers.
    tile = sch.cache_write(block, 0, "local")

    i, j, k = sch.get_loops(block)
    i_outer, i_inner = sch.split(i, [None, rows])
    j_outer, j_inner = sch.split(j, [None, columns])
    sch.reorder(j_outer, i_outer, k, i_inner, j_inner)
    sch.reverse_compute_at(tile, i_outer)
    start = sch.decompose_reduction(block, k)
    for each in (block, start, tile):
        *_, row, column = sch.get_loops(each)
        sch.unroll(row)
        sch.vectorize(column)

    k, j = sch.get_loops(packed)
    panel, inner = sch.split(j, [None, columns])
    sch.reorder(panel, k, inner)
    sch.vectorize(inner)
    return sch


def seconds_per_call(
    functions: list[Callable[[], object]], calls: int = 4, rounds: int = 30
) -> list[float]:
    """Return the best time of each function; they take turns, so that all meet the same machine."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for number, function in enumerate(functions):
            start = time.perf_counter()
            for _ in range(calls):
                function()
            best[number] = min(best[number], (time.perf_counter() - start) / calls)
    return best


def main(rounds: int = 30) -> float:
    """Schedule, save, replay, compare; returns numpy's time over ours."""
    target = Target("native").with_options(num_cores=1)
    sch = schedule(target)
    print(sch.mod.script())
    print(sch.trace)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gemm_trace.json"
        path.write_text(json.dumps(sch.trace.as_json()))
        saved = Trace.from_json(json.loads(path.read_text()))
    replayed = Schedule(Matmul)
    saved.apply_to_schedule(replayed)
    assert structural_equal(replayed.mod, sch.mod)
    print(f"the saved trace ({len(saved)} instructions) gives the same program")

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N), dtype="float32") for _ in range(2))
    c, again, expected = (np.zeros((N, N), "float32") for _ in range(3))
    module = tilewright.compile(sch.mod, target)
    module(a, b, c)
    tilewright.compile(replayed.mod, target)(a, b, again)
    assert np.array_equal(c, again), "the replayed schedule computes something else"
    np.matmul(a, b, out=expected)
    error = float(np.abs(c - expected).max() / np.abs(expected).max())
    assert error < 1e-5, error
    print(f"largest difference from numpy, relative to the largest value: {error:.1e}")

    ours, numpys = seconds_per_call(
        [lambda: module(a, b, c), lambda: np.matmul(a, b, out=expected)], rounds=rounds
    )
    for name, seconds in (("tilewright", ours), ("numpy", numpys)):
        print(f"{name:10} {seconds * 1e3:6.3f} ms  {2 * N**3 / seconds / 1e9:6.1f} GFLOP/s")
    print(f"ratio to numpy on one thread: {numpys / ours:.2f}")
    return numpys / ours


if __name__ == "__main__":
    main()
