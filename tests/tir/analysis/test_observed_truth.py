"""Analyses against what the interpreter does, on random programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from observed import observe, programs, scheduled_at_random, shape_of, stages, value_of

from tilewright import te
from tilewright.ir import as_int
from tilewright.script import parse
from tilewright.support.errors import RunError
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import (
    check_out_of_bounds,
    check_region_cover,
    count_flops,
    enumeration,
    estimate_flops,
    estimate_traffic,
    infer_regions,
)
from tilewright.tir.interpreter import run


def zeros(func: PrimFunc, **sizes: int) -> list[np.ndarray[Any, Any]]:
    return [np.zeros(shape_of(func, buffer, sizes), buffer.dtype) for buffer in func.buffers]


def in_bounds(func: PrimFunc, **sizes: int) -> bool:
    try:
        run(func, *zeros(func, **sizes))
    except RunError as error:
        assert "outside dimension" in str(error)
        return False
    return True


@given(programs())
def test_no_report_means_in_bounds(func: PrimFunc):
    if not check_out_of_bounds(func):
        assert in_bounds(func)


@given(programs(conditions=False))
def test_the_report_agrees_with_the_interpreter(func: PrimFunc):
    assert (not check_out_of_bounds(func)) == in_bounds(func)


@given(programs(symbolic=True), st.integers(1, 4))
def test_no_report_means_in_bounds_for_all_sizes(func: PrimFunc, n: int):
    if not check_out_of_bounds(func):
        assert in_bounds(func, n=n)


@given(programs())
def test_regions_cover_what_is_touched(func: PrimFunc):
    if not in_bounds(func):
        return
    with pytest.MonkeyPatch.context() as patch:
        touched = observe(func, patch)
    reads, writes = infer_regions(func.root.body)
    for regions, kind in ((reads, "reads"), (writes, "writes")):
        boxes = {region.buffer.name: region for region in regions}
        for name, found in touched.items():
            for place in set(getattr(found, kind)):
                region = boxes[name]
                shape = [as_int(extent) for extent in region.buffer.shape]
                at = np.unravel_index(place, shape)
                for index, side in zip(at, region.region):
                    low, extent = as_int(side.min), as_int(side.extent)
                    assert low <= index < low + extent


@given(programs(symbolic=True), st.integers(1, 4))
def test_symbolic_regions_cover_what_is_touched(func: PrimFunc, n: int):
    if not in_bounds(func, n=n):
        return
    with pytest.MonkeyPatch.context() as patch:
        touched = observe(func, patch, n=n)
    sizes = {"n": n}
    reads, writes = infer_regions(func.root.body)
    for regions, kind in ((reads, "reads"), (writes, "writes")):
        for region in regions:
            places = set(getattr(touched[region.buffer.name], kind))
            shape = shape_of(func, region.buffer, sizes)
            for place in places:
                for index, side in zip(np.unravel_index(place, shape), region.region):
                    low = value_of(func, side.min, sizes)
                    assert low <= index < low + value_of(func, side.extent, sizes)


@given(programs(conditions=False))
def test_operations_are_counted_alike(func: PrimFunc):
    assert count_flops(func).number == estimate_flops(func)


def check_traffic(func: PrimFunc, **sizes: int) -> list[bool]:
    """Compare with the interpreter; returns which counts are exact."""
    with pytest.MonkeyPatch.context() as patch:
        touched = observe(func, patch, **sizes)
    exact = []
    for buffer, traffic in estimate_traffic(func).items():
        found = touched[buffer.name]
        for count, truth in (
            (traffic.reads, len(found.reads)),
            (traffic.writes, len(found.writes)),
            (traffic.read_footprint, len(set(found.reads))),
            (traffic.write_footprint, len(set(found.writes))),
            (traffic.footprint, len({*found.reads, *found.writes})),
        ):
            value = value_of(func, count.value, sizes)
            assert value == truth if count.exact else value >= truth, (buffer, count, truth)
            exact.append(count.exact)
    return exact


@given(programs())
def test_traffic_is_what_is_counted(func: PrimFunc):
    if in_bounds(func):
        # Small nests without structure are enumerated, so all counts are exact.
        assert all(check_traffic(func))


@given(programs(tricky=False, conditions=False))
def test_number_of_accesses_needs_no_enumeration(func: PrimFunc):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enumeration, "ENUMERATION_LIMIT", 0)
        for traffic in estimate_traffic(func).values():
            assert traffic.reads.exact
            assert traffic.writes.exact


@given(programs())
def test_traffic_by_structure_alone(func: PrimFunc):
    if in_bounds(func):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(enumeration, "ENUMERATION_LIMIT", 0)
            check_traffic(func)


@given(programs(symbolic=True), st.integers(1, 4))
def test_symbolic_traffic(func: PrimFunc, n: int):
    if in_bounds(func, n=n):
        check_traffic(func, n=n)


@pytest.mark.parametrize("seed", range(30))
def test_scheduled_programs(seed: int):
    func = scheduled_at_random(stages(), seed)
    assert all(check_traffic(func))
    assert not check_out_of_bounds(func)
    assert not check_region_cover(func)


@pytest.mark.parametrize("seed", range(30))
def test_scheduled_programs_of_symbolic_size(seed: int):
    func = scheduled_at_random(stages(te.var("n")), seed)
    assert sum(check_traffic(func, n=5)) > 0
    assert not check_out_of_bounds(func)
    assert not check_region_cover(func)


def test_conditions_that_never_hold():
    func = parse(
        """
@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("x"):
            vi = T.axis.spatial(8, i)
            T.where(T.bool(False))
            T.reads()
            T.writes(A[vi])
            A[vi] = T.float32(0)
"""
    )
    (traffic,) = estimate_traffic(func).values()
    assert traffic.writes.number == 0
    assert traffic.footprint.number == 0
