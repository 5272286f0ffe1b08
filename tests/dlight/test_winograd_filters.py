"""Winograd convolutions that transform filters in the call, a panel at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import random
from tilewright import driver, te, topi
from tilewright.dlight.cpu import Winograd
from tilewright.ir import IRModule
from tilewright.target import Target
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.schedule import Schedule


def reference(x: Any, w: Any) -> Any:
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.float64), optimize=True)


@pytest.mark.parametrize(
    "shape, cores, turned",
    # Rows of products are parts of a row of tiles, whole rows, and whole images.
    [((1, 16, 8, 61), 1, False), ((2, 16, 9, 9), 2, True), ((6, 16, 3, 3), 1, False)],
    ids=str,
)
def test_results(shape: tuple[int, ...], cores: int, turned: bool) -> None:
    target = Target("native").with_options(num_cores=cores)
    data, weight = random(*shape), random(16, 32, 3, 3, seed=1)
    plain = np.flip(weight, (2, 3)).swapaxes(0, 1)
    given = weight if turned else np.ascontiguousarray(plain)
    x, w = te.placeholder(shape, name="x"), te.placeholder(given.shape, name="w")
    made = topi.nn.relu(topi.nn.conv2d_winograd(x, w, 1, 4, turned))
    sch = Winograd().apply_to(
        Schedule(IRModule({"main": te.create_prim_func([x, w, made])})), target
    )
    assert isinstance(sch, Schedule), sch
    # Transformed by panels: in the loop over them.
    inside = [sch.get_loops(sch.get_block(name))[0] for name in ("taps", "products_update")]
    assert sch.get(inside[0]) is sch.get(inside[1])
    run = driver.compile(IRModule({"main": sch.mod["main"].with_attr(IS_SCHEDULED, 1)}), target)[
        "main"
    ]
    found, expected = np.empty((shape[0], 32, *shape[2:]), np.float32), reference(data, plain)
    run(data, given, found)
    expected = np.maximum(expected, 0)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
