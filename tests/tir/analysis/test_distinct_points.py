"""The different rows of a table of indices are those that NumPy finds, in its order."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tir.analysis.enumeration import _distinct


@pytest.mark.parametrize("seed", range(8))
def test_drawn_tables(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for dtype in ("int64", "int32", "uint8", "bool"):
        for scale in (1, 2**20, 2**56):
            rows, columns, most = rng.integers(0, 40), rng.integers(1, 5), rng.integers(1, 100)
            table = rng.integers(-most, most, (rows, columns)) * scale
            made = _distinct(table.astype(dtype))
            expected = np.unique(table.astype(dtype), axis=0)
            assert made.dtype == expected.dtype
            np.testing.assert_array_equal(made, expected)


def test_whole_boxes() -> None:
    box = np.stack(np.unravel_index(np.arange(1 << 16), (16, 64, 4, 16)), axis=1)
    mixed = np.random.default_rng(0).permutation(np.concatenate([box, box])) - 5
    np.testing.assert_array_equal(_distinct(mixed), box - 5)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16", "uint64"])
def test_differences_beyond_the_dtype(dtype: str) -> None:
    """Indices have the dtypes that casts give them."""
    info = np.iinfo(dtype)
    low = min(info.max - 60_000, 2**63 - 30_000) if dtype == "uint64" else info.min + 3
    steps = np.array([0, 5, 127, 128, 130, 200, 5], object)
    steps = steps * (1 if dtype == "int8" else 300) + low
    for table in (steps[:, None], np.stack([steps, steps[::-1]], axis=1)):
        made = _distinct(table.astype(dtype))
        np.testing.assert_array_equal(made, np.unique(table.astype(dtype), axis=0))
        assert made.dtype == dtype
