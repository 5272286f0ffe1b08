"""Storage of intermediate buffers: what lowering makes of it, and that meaning stays."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from schedule_cases import agree, chain, check, compiled_agrees, matmul_relu, refuses

from tilewright import te
from tilewright.ir import IRModule, as_int, pre_order
from tilewright.script import parse
from tilewright.support.errors import LowerError
from tilewright.tir import Allocate, BufferStore, IndexMap, PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import FlattenBuffer, block_passes


def lowered(sch: Schedule, *passes: object) -> PrimFunc:
    mod: IRModule = sch.mod
    for item in (*block_passes(), *passes):
        mod = item(mod)  # type: ignore[operator]
    func: PrimFunc = mod["main"]
    return func


def agrees(sch: Schedule, original: PrimFunc, func: PrimFunc | None = None) -> None:
    """Compare what a lowered function and compiled code compute with the original."""
    if func is not None:
        agree(original, partial(run, func))
    compiled_agrees(sch, original)


def allocated(func: PrimFunc, name: str) -> object:
    (found,) = [
        item.buffer
        for item in pre_order(func.body)
        if isinstance(item, Allocate) and item.buffer.name == name
    ]
    return found


def test_strides_are_aligned() -> None:
    func = chain(16, 12)
    sch = Schedule(func)
    sch.storage_align("B", 0, 0, 32, 1)
    made = lowered(sch)
    assert [as_int(stride) for stride in allocated(made, "B").strides] == [33, 1]  # type: ignore[attr-defined]
    assert not allocated(made, "C").strides  # type: ignore[attr-defined]
    flat = lowered(sch, FlattenBuffer())
    assert as_int(allocated(flat, "B").shape[0]) == 15 * 33 + 12  # type: ignore[attr-defined]
    agrees(sch, func, flat)


def test_what_is_compacted_is_aligned_afterwards() -> None:
    func = chain(16, 12)
    sch = Schedule(func)
    sch.storage_align("B", 0, -2, 8, 1)
    i, _ = sch.get_loops("C")
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at("B", i0)
    made = lowered(sch)
    buffer = allocated(made, "B")
    assert [as_int(extent) for extent in buffer.shape] == [4, 12]  # type: ignore[attr-defined]
    assert [as_int(stride) for stride in buffer.strides] == [17, 1]  # type: ignore[attr-defined]
    agrees(sch, func, lowered(sch, FlattenBuffer()))


def test_the_last_alignment_of_an_axis_holds() -> None:
    sch = Schedule(chain(16, 12))
    sch.storage_align("B", 0, 0, 8, 1)
    sch.storage_align("B", "B", 1, 2, 0)
    sch.storage_align("B", 0, 0, 16, 2)
    entries = sch.get(sch.get_block("B")).annotations["buffer_dim_align"]
    assert entries == [[0, 1, 2, 0], [0, 0, 16, 2]]
    strides = allocated(lowered(sch), "B").strides  # type: ignore[attr-defined]
    assert [as_int(stride) for stride in strides] == [34, 2]
    agrees(sch, chain(16, 12))


@pytest.mark.parametrize("seed", range(12))
def test_random_alignments_change_no_result(seed: int) -> None:
    rng = np.random.default_rng(seed)
    func = matmul_relu(*(int(size) for size in rng.integers(1, 14, 3)))
    sch = Schedule(func)
    for _ in range(int(rng.integers(1, 3))):
        factor = int(rng.integers(1, 20))
        axis = int(rng.integers(-2, 2))
        sch.storage_align("C", 0, axis, factor, int(rng.integers(0, factor)))
    if rng.integers(2):
        sch.compute_at("C", sch.get_loops("D")[int(rng.integers(2))])
    agrees(sch, func, lowered(sch, FlattenBuffer()))


def test_an_alignment_of_an_axis_that_is_gone() -> None:
    sch = Schedule(chain(16, 12))
    sch.storage_align("B", 0, 1, 8, 1)
    sch.transform_layout("B", ("write", 0), lambda i, j: (i * 12 + j,))
    with pytest.raises(LowerError, match="apply storage_align after transform_layout"):
        lowered(sch)


def test_pointers_see_aligned_strides() -> None:
    mod = parse(
        """
from tilewright.script import tir as T
@T.prim_func
def main(A: T.Buffer((4, 6)), C: T.Buffer((4, 6))):
    B = T.alloc_buffer((4, 6))
    for i, j in T.grid(4, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.block_attr({"buffer_dim_align": [[0, 0, 8, 3]]})
            B[vi, vj] = A[vi, vj]
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            T.reads(B[vi, 0:6])
            T.writes(C[vi, 0:6])
            s = T.int64()
            M = T.match_buffer(B[vi, 0:6], (1, 6), strides=[s, 1])
            T.call_extern("take", T.address_of(M[0, 0], dtype="handle"), s, dtype="int32")
"""
    )
    text = lowered(Schedule(mod), FlattenBuffer()).script()
    assert "vi * 11" in text or "i * 11" in text
    assert ", T.int64(11)" in text or ", 11" in text


def test_physical_axes_are_kept_or_joined() -> None:
    func = chain(16, 12)
    sch = Schedule(func)
    sch.transform_layout(
        "B", ("write", 0), lambda i, j: (i // 4, i % 4, IndexMap.AXIS_SEPARATOR, j // 4, j % 4)
    )
    assert sch.get(sch.get_block("B")).writes[0].buffer.axis_separators == (2,)
    kept = lowered(sch, FlattenBuffer())
    buffer = allocated(kept, "B")
    assert [as_int(extent) for extent in buffer.shape] == [16, 12]  # type: ignore[attr-defined]
    stores = [item for item in pre_order(kept.body) if isinstance(item, BufferStore)]
    assert [len(item.indices) for item in stores if item.buffer is buffer] == [2]
    joined = lowered(sch, FlattenBuffer(keep_separators=False))
    assert as_int(allocated(joined, "B").shape[0]) == 192  # type: ignore[attr-defined]
    agrees(sch, func, kept)
    agrees(sch, func, joined)


def test_physical_axes_have_no_strides() -> None:
    sch = Schedule(chain(16, 12))
    sch.set_axis_separator("B", ("write", 0), [1])
    sch.storage_align("B", 0, 0, 8, 1)
    with pytest.raises(LowerError, match="axis separators as well as strides"):
        lowered(sch, FlattenBuffer())
    agrees(sch, chain(16, 12), lowered(sch, FlattenBuffer(keep_separators=False)))


def test_parameters_get_physical_axes() -> None:
    func = chain(16, 12)
    sch = Schedule(func)
    sch.set_axis_separator("B", "A", [1])
    assert sch.mod["main"].buffers[0].axis_separators == (1,)
    check(sch, func)
    agrees(sch, func)


def test_element_types_change_with_casts() -> None:
    func = matmul_relu()
    sch = Schedule(func)
    sch.unsafe_set_dtype("C", 0, "float64")
    assert sch.get(sch.get_block("D")).reads[0].buffer.dtype == "float64"
    check(sch, func)
    agrees(sch, func)
    narrow = Schedule(func)
    narrow.unsafe_set_dtype("C", 0, "float16")
    check(narrow, func)  # small whole numbers fit
    before = narrow.mod
    narrow.unsafe_set_dtype("C", 0, "float16")
    assert narrow.mod is before


def test_rounding_of_the_narrow_type_is_seen() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 0.0, name="B")
    c = te.compute((4,), lambda i: b[i] * 1.0, name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    sch.unsafe_set_dtype("B", 0, "int32")
    data, out = np.array([1.5, -1.5, 2.0, 0.25], "float32"), np.zeros(4, "float32")
    run(sch.mod, data, out)
    np.testing.assert_array_equal(out, [1, -1, 2, 0])


def test_scopes_follow_matched_buffers() -> None:
    sch = Schedule(chain(16, 12))
    sch.set_scope("B", 0, "shared.dyn")
    assert sch.get(sch.get_block("C")).reads[0].buffer.scope == "shared.dyn"
    refuses(sch, lambda: sch.set_scope(sch.get_block("B"), 0, "Shared Memory"), "no name")
