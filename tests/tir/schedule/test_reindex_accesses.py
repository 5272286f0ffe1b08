"""``reindex`` of one of several accesses to a buffer: the others stay, and so does the meaning."""

from __future__ import annotations

import random

import pytest
from schedule_cases import check, refuses

from tilewright import te
from tilewright.ir import as_int
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.schedule import Schedule

INDICES = (
    "vi, vj", "vj, vi", "vi, vk", "vj, vk", "vk, vi", "vi + 1, vj", "vk, vk", "2, vj",
    "G[vi] % 6, vj",
)  # fmt: skip
"""By which a block of axes ``vi, vj, vk`` over 5 each may read a matrix of 6 x 6."""


def product(indices: list[str]) -> PrimFunc:
    """A sum of products of one matrix's elements at several places."""
    value = " * ".join(f"A[{item}]" for item in indices)
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((6, 6)), G: T.Buffer((5,), "int64"), Z: T.Buffer((5, 5))):
    for i, j, k in T.grid(5, 5, 5):
        with T.block("Z"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Z[vi, vj] = T.float32(0)
            Z[vi, vj] = Z[vi, vj] + {value}
""")


@pytest.mark.parametrize("seed", range(40))
def test_any_access_of_two_or_three(seed: int) -> None:
    """Draw what is read, then copy one access after the other until none of them is left."""
    rng = random.Random(seed)
    drawn = [rng.choice(INDICES) for _ in range(rng.choice([2, 3]))]
    func = product(drawn)
    sch = Schedule(func)
    left = len(set(drawn))
    while left:
        refuses(sch, lambda n=left: sch.reindex("Z", ("read", "A", n)), "there is no access")
        if left > 1:
            refuses(sch, lambda: sch.reindex("Z", "A"), "by different indices")
        sch.reindex("Z", ("read", "A", rng.randrange(left)))
        verify(sch.mod)
        left -= 1
        block = sch.get(sch.get_block("Z"))
        assert ("A" in {region.buffer.name for region in block.reads}) == (left > 0)
    check(sch, func)


def test_what_is_left_is_declared_no_wider_than_it_is_read() -> None:
    a = te.placeholder((8, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    func = te.create_prim_func(
        [a, te.compute((8, 8), lambda i, j: te.sum(a[i, k] * a[j, k], axis=k), name="Z")]
    )
    sch = Schedule(func)
    second = sch.reindex("Z", ("read", 0, 1))
    assert [region.buffer.name for region in sch.get(sch.get_block("Z")).reads] == [
        "A_reindex",
        "A",
    ]
    left = next(region for region in sch.get(sch.get_block("Z")).reads if region.buffer.name == "A")
    assert all(as_int(item.extent) == 1 for item in left.region)
    sch.compute_at(second, sch.get_loops("Z")[1])
    sch.reindex("Z", "A")
    check(sch, func)


def test_an_access_by_data_of_the_same_buffer() -> None:
    """``A[A[v]]``: either the inner or the outer access may be copied."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,), "int64"), Z: T.Buffer((7,), "int64")):
    for i in T.serial(7):
        with T.block("Z"):
            v = T.axis.spatial(7, i)
            Z[v] = A[A[v] % 7] + A[6 - v]
""")
    for number in range(3):
        sch = Schedule(func)
        sch.reindex("Z", ("read", 0, number))
        verify(sch.mod)
        check(sch, func)


def test_what_a_block_writes_as_well_is_refused() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,))):
    for i in T.serial(7):
        with T.block("A"):
            v = T.axis.spatial(7, i)
            A[v] = A[v] + A[v + 1]
""")
    sch = Schedule(func)
    for number in (0, 1):
        refuses(sch, lambda n=number: sch.reindex("A", ("read", 0, n)), "also writes A")


@pytest.mark.parametrize("number", [True, "0", 1.0])
def test_an_access_has_a_number(number: object) -> None:
    sch = Schedule(product(["vi, vk", "vj, vk"]))
    with pytest.raises(ScheduleError, match="by its number"):
        sch.reindex("Z", ("read", 0, number))


def test_the_choice_is_recorded() -> None:
    func = product(["vi, vk", "vj, vk"])
    sch = Schedule(func)
    sch.reindex("Z", ("read", "A", 1))
    again = Schedule(func)
    sch.trace.apply_to_schedule(again)
    assert again.mod["main"].script() == sch.mod["main"].script()
    assert "('read', 0, 1)" in str(sch.trace) or '"read", 0, 1' in str(sch.trace)
