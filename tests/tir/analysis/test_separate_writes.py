"""Blocks that write several elements each: which instances write different ones."""

from __future__ import annotations

import pytest

from tilewright.script import parse
from tilewright.tir import Block, decl_buffer, seq
from tilewright.tir.analysis.block_kind import is_complete_block, is_reduction_block
from tilewright.tir.building import Axis, block, load, store
from tilewright.tir.walk import statements


def stage(extent: int, *shifts: int, size: int = 64) -> Block:
    """A block that writes ``v + shift`` for each of the shifts."""
    a, b = decl_buffer((size,), name="A"), decl_buffer((size,), name="B")
    made = block(
        "stage",
        [Axis("i", extent)],
        lambda v: seq(*(store(b, load(a, v), v + shift) for shift in shifts)),
    )
    (found,) = (item for item in statements(made) if isinstance(item, Block))
    return found


@pytest.mark.parametrize("shifts", [(0, 8), (8, 24, 0), (16,)])
def test_the_remainder_tells_the_instance(shifts: tuple[int, ...]) -> None:
    assert is_complete_block(stage(8, *shifts))


@pytest.mark.parametrize("shifts", [(0, 7), (0, 8, 4), (4, 9)])
def test_instances_may_write_the_same(shifts: tuple[int, ...]) -> None:
    assert not is_complete_block(stage(8, *shifts))


def test_parts_that_no_variable_moves_do_not_count() -> None:
    """``B[4 * v + w, 0:2]``: the first index alone tells the instance."""
    a, b = decl_buffer((32,), name="A"), decl_buffer((32, 2), name="B")

    def body(*at: object) -> object:
        v, w = at
        place = v * 4 + w  # type: ignore[operator]
        return seq(store(b, load(a, place), place, 0), store(b, load(a, place), place, 1))

    made = block("pairs", [Axis("i", 8), Axis("j", 4)], body)  # type: ignore[arg-type]
    (found,) = (item for item in statements(made) if isinstance(item, Block))
    assert is_complete_block(found)


@pytest.mark.parametrize(("init", "separate"), [("v", True), ("7 - v", False)])
def test_what_init_writes_counts(init: str, separate: bool) -> None:
    """Zeros in another instance's element would come after its sum."""
    made = parse(f"""
@T.prim_func
def main(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (8, 4), "float32")
    B = T.match_buffer(b, (8,), "float32")
    for i, k in T.grid(8, 4):
        with T.block("sum"):
            v, r = T.axis.remap("SR", [i, k])
            T.reads(A[v, r], B[0:8])
            T.writes(B[0:8])
            with T.init():
                B[{init}] = T.float32(0)
            B[v] = B[v] + A[v, r]
""")
    found = next(
        item for item in statements(made.body) if isinstance(item, Block) and item.iter_vars
    )
    assert is_reduction_block(found) == separate
