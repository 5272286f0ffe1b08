"""Broken kernels are rejected, right ones are not; what breaks nothing isn't counted."""

from __future__ import annotations

import pytest

from tilewright.ir import IRModule, collect
from tilewright.testing.mutants.campaign import Campaign
from tilewright.testing.mutants.mutations import MUTATIONS, mutated, places
from tilewright.testing.mutants.subjects import OPERATORS, subject
from tilewright.tir import BufferStore, For


def test_broken_kernels_are_rejected_and_right_ones_are_not() -> None:
    report = Campaign(4, ("matmul of primes",)).run(5)
    assert report.survivors == [] and report.refused_unchanged == []
    assert sum(report.verdicts.values()) == 5


def test_changes_without_consequences_are_no_mutants() -> None:
    campaign = Campaign(0)
    item = subject("matmul of primes")
    lowered = campaign._lower(item, 0)["main"]
    assert not campaign._differs(item, 0, lowered)
    way = next(way for way in MUTATIONS if way.name == "a store left out")
    old, new = places(lowered, way)[-1]
    broken = mutated(lowered, old, new)
    assert campaign._differs(item, 0, broken)
    assert len(collect(broken, BufferStore)) < len(collect(lowered, BufferStore))


@pytest.mark.parametrize(
    "way", [way for way in MUTATIONS if way.kind == (For,)], ids=lambda x: x.name
)
def test_ways_find_places(way) -> None:
    item = subject("matmul of primes")
    mods: list[IRModule] = list(item.scheduled)
    if not way.scheduled:
        mods = [Campaign(0)._lower(item, number) for number in range(len(mods))]
    assert any(places(mod["main"], way) for mod in mods)


def test_operators_have_schedules() -> None:
    assert len(OPERATORS) == 12
    assert len(subject("max of rows").scheduled) >= 2
