"""The loops that CPUs are measured with do what they say."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.llvm import bare_loops
from tilewright.driver.measure_costs import measure_costs
from tilewright.target import Target
from tilewright.target.costs import MEASURED

TARGET = Target("native")


def test_multiply_adds_are_all_done() -> None:
    step = bare_loops.steps(TARGET)["float32"]
    module, chains = bare_loops.chained(TARGET, step)
    x, y = (bare_loops.aligned(2 * bare_loops.CHAIN_BYTES) for _ in range(2))
    values = x.view("float32")
    values[:] = 0.5
    module["main"](x, y, 100, 3, 2)
    lanes, part = TARGET.vector_lanes(32), bare_loops.CHAIN_BYTES // 4
    for thread in range(2):
        made = y.view("float32")[thread * part :][: chains * lanes]
        np.testing.assert_array_equal(made, np.float32(0.5 + 100 * 0.25))


def test_shifts_follow_each_other() -> None:
    x, y = (bare_loops.aligned(bare_loops.CHAIN_BYTES) for _ in range(2))
    x.view("uint64")[0] = word = 88172645463325252
    bare_loops.shifting(TARGET)["main"](x, y, 1000, 1, 1)
    for _ in range(1000):
        word ^= word << 13 & 2**64 - 1
        word ^= word >> 7
        word ^= word << 17 & 2**64 - 1
    assert int(y.view("uint64")[0]) == word


@pytest.mark.parametrize("streaming", [False, True])
def test_memory_is_read_copied_and_filled(streaming: bool) -> None:
    size = 8192
    data = np.random.default_rng(0).integers(0, 256, 2 * size, np.uint8)
    x, y = bare_loops.aligned(2 * size), bare_loops.aligned(2 * size)
    x[:] = data
    bare_loops.copying(TARGET, size, streaming)["main"](x, y, size, 2, 2)
    np.testing.assert_array_equal(y, data)
    bare_loops.filling(TARGET, size, streaming)["main"](x, y, size, 1, 2)
    assert not y.any()
    bare_loops.reading(TARGET, size)["main"](x, y, size, 1, 2)
    width = TARGET.vector_bits // 8
    for thread in range(2):
        lines = data[thread * size :][:size].reshape(-1, width)
        union = np.bitwise_or.reduce(lines, axis=0)
        np.testing.assert_array_equal(y[thread * size :][:width], union)


def test_what_is_measured_is_plausible() -> None:
    found = measure_costs(TARGET)
    wanted = set(MEASURED) if TARGET.num_cores > 1 else set(MEASURED) - {"launch", "parallel_work"}
    if "bfloat16" not in bare_loops.steps(TARGET):
        wanted.discard("bf16_dots")
    assert set(found) == wanted
    assert 1e8 < found["clock"] < 2e10
    assert 0.5 <= found["multiply_adds"] <= 8 and 0.5 <= found["loads"] <= 8
    assert 1 <= found["multiply_add_latency"] <= 30
    assert all(value > 0 for value in found.values())
