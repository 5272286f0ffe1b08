"""Regions, block kinds, dependencies, flops."""

from __future__ import annotations

import pytest

from tilewright import te
from tilewright.ir import TRUE, Range, Var, as_int, const
from tilewright.script import parse
from tilewright.support.errors import VerifyError
from tilewright.tir import Block, Schedule
from tilewright.tir.analysis import (
    block_access_regions,
    block_dependencies,
    block_kind,
    estimate_bytes,
    estimate_flops,
    infer_regions,
    is_affine_binding,
    is_complete_block,
    is_injective_binding,
    is_output_block,
    is_reduction_block,
    verify,
)
from tilewright.tir.analysis.reduction import match_reduction
from tilewright.tir.analysis.update_order import updates_commute
from tilewright.tir.walk import child_blocks

HEADER = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
"""


def blocks(text: str) -> tuple[Block, dict[str, Block]]:
    root = parse(HEADER + text).root
    return root, {item.block.name: item.block for item in child_blocks(root)}


def shown(regions) -> list[str]:
    return [repr(region) for region in regions]


def matmul(n: int = 4, m: int = 5, k: int = 6):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return te.create_prim_func([a, b, c])


# ---- regions ------------------------------------------------------------------------------------


def test_reduction_does_not_read_its_result():
    block = child_blocks(matmul().root)[0].block
    reads, writes = block_access_regions(block)
    assert [region.buffer.name for region in reads] == ["A", "B"]
    assert [region.buffer.name for region in writes] == ["C"]


def test_neighbours_are_joined():
    _, found = blocks(
        """
    for i, j in T.grid(14, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + A[vi + 2, vj] + A[vi + 1, vj]
"""
    )
    reads, _ = block_access_regions(found["B"])
    assert shown(reads) == ["A[vi:vi+3, vj:vj+1]"]


def test_loops_inside_are_relaxed():
    _, found = blocks(
        """
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            for j in range(8):
                B[vi, j * 2 + 1] = A[j, vi]
"""
    )
    reads, writes = block_access_regions(found["B"])
    assert shown(reads) == ["A[0:0+8, vi:vi+1]"]
    assert shown(writes) == ["B[vi:vi+1, 1:1+15]"]


def test_inner_blocks_count_by_their_regions():
    _, found = blocks(
        """
    for i in range(4):
        with T.block("outer"):
            vo = T.axis.spatial(4, i)
            for j, k in T.grid(4, 16):
                with T.block("inner"):
                    vi = T.axis.spatial(16, vo * 4 + j)
                    vk = T.axis.spatial(16, k)
                    B[vi, vk] = A[vi, vk]
"""
    )
    reads, writes = block_access_regions(found["outer"])
    assert shown(reads) == ["A[(vo * 4):(vo * 4)+4, 0:0+16]"]
    assert shown(writes) == ["B[(vo * 4):(vo * 4)+4, 0:0+16]"]


def test_data_dependent_index_covers_the_dimension():
    _, found = blocks(
        """
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            for j in range(16):
                B[vi, j] = A[T.Cast("int64", A[vi, j]), j]
"""
    )
    reads, _ = block_access_regions(found["B"])
    assert [as_int(r.extent) for r in reads[0].region] == [16, 16]


def test_regions_of_a_loop():
    root = matmul(4, 5, 6).root
    reads, writes = infer_regions(root.body)
    assert [[as_int(r.extent) for r in region.region] for region in reads] == [[4, 6], [6, 5]]
    assert [as_int(r.extent) for r in writes[0].region] == [4, 5]


# ---- kinds --------------------------------------------------------------------------------------


def test_kinds():
    root, found = blocks(
        """
    S = T.alloc_buffer((16,), "float32")
    for i, j in T.grid(16, 16):
        with T.block("sum"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + A[vi, vj]
    for i, j in T.grid(16, 16):
        with T.block("out"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] - S[vi]
    for i, j in T.grid(16, 16):
        with T.block("again"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = B[vi, vj] * T.float32(2)
    for i, j in T.grid(16, 15):
        with T.block("scan"):
            vi = T.axis.spatial(16, i)
            vj = T.axis.opaque(15, j)
            B[vi, vj + 1] = B[vi, vj]
"""
    )
    assert block_kind(found["sum"], root) == ("reduction", "")
    assert is_reduction_block(found["sum"], root)
    assert block_kind(found["out"], None) == ("complete", "")
    assert block_kind(found["out"], root) == ("opaque", "block 'again' writes 'B' too")
    assert is_complete_block(found["out"])
    assert not is_complete_block(found["out"], root)
    assert block_kind(found["again"], root)[0] == "update"
    assert block_kind(found["scan"], root)[0] == "opaque"
    assert is_output_block(found["out"], root)
    assert not is_output_block(found["sum"], root)


def test_names_of_names_are_not_put_in_their_places() -> None:
    """Each of 40 names stands twice in the next one's value."""
    count, head = 40, "\n    for i, j in T.grid(16, 16):\n        with T.block('update'):\n"
    head += "            vi, vj = T.axis.remap('SR', [i, j])\n"
    head += "".join(f"            x{number} = T.float32()\n" for number in range(count))
    for place, kind in (("0", "update"), ("vj", "opaque")):
        value = f"x{count - 1} + B[vi, {place}]"
        for number in reversed(range(count)):
            before = f"x{number - 1}" if number else "A[vi, vj]"
            value = f"T.Let({value}, where={{x{number}: {before} * {before}}})"
        _, found = blocks(f"{head}            B[vi, 0] = {value}\n")
        assert block_kind(found["update"], None)[0] == kind


def test_values_with_names_of_names_are_no_reduction() -> None:
    head = "\n    for i, j in T.grid(16, 16):\n        with T.block('sum'):\n"
    head += "            vi, vj = T.axis.remap('SR', [i, j])\n"
    head += "            with T.init():\n                B[vi, 0] = T.float32(0)\n"
    for count, known in ((8, True), (40, False)):
        names = "            x0: T.float32 = A[vi, vj]\n" + "".join(
            f"            x{n + 1}: T.float32 = x{n} * x{n}\n" for n in range(count)
        )
        _, found = blocks(f"{head}{names}            B[vi, 0] = B[vi, 0] + x{count}\n")
        assert (match_reduction(found["sum"]) is not None) is known
        assert updates_commute(found["sum"]) is known


def test_an_index_that_names_a_value_covers_the_dimension() -> None:
    body = "\n    for i, j in T.grid(16, 16):\n        with T.block('b'):\n"
    body += "            vi, vj = T.axis.remap('SS', [i, j])\n            n = T.int64()\n"
    body += "            B[vi, vj] = A[vi, T.Let(n * n % 16, where={n: vj + 1})]\n"
    root = parse(HEADER + body)
    verify(root)
    made = Schedule(root)
    made.reorder(*reversed(made.get_loops("b")))
    verify(made.mod)
    assert shown(blocks(body)[1]["b"].reads) == ["A[vi:vi+1, 0:0+16]"]


def test_bindings():
    i, j = Var("i"), Var("j")
    loops = {
        i: Range.from_min_extent(const(0), const(4)),
        j: Range.from_min_extent(const(0), const(8)),
    }
    assert is_injective_binding((i * 8 + j,), loops)
    assert is_injective_binding((i * 9 + j,), loops)
    assert not is_injective_binding((i * 4 + j,), loops)
    assert is_injective_binding((i, j), loops)
    assert is_injective_binding(((i * 8 + j) // 4, (i * 8 + j) % 4), loops, TRUE)
    assert not is_injective_binding((i // 2, j), loops)
    realize = child_blocks(matmul().root)[0]
    ranges = {v: Range.from_min_extent(const(0), const(9)) for v in realize.iter_values}
    assert is_affine_binding(realize, ranges)
    assert not is_affine_binding(realize.replace(iter_values=(i + j, i, j)), loops)


# ---- dependencies -------------------------------------------------------------------------------


def test_dependencies():
    root, _ = blocks(
        """
    C = T.alloc_buffer((16, 16), "float32")
    for i, j in T.grid(16, 16):
        with T.block("first"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj]
    for i, j in T.grid(16, 16):
        with T.block("second"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj]
    for i, j in T.grid(16, 16):
        with T.block("third"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj]
"""
    )
    graph = block_dependencies(root)
    edges = {(e.source, e.target, e.kind, e.buffer.name) for e in graph.edges}
    assert edges == {
        ("first", "second", "RAW", "C"),
        ("second", "third", "RAW", "B"),
        ("first", "third", "WAW", "C"),
        ("second", "third", "WAR", "C"),
    }
    assert graph.producers("third") == ["first", "second"]
    assert graph.consumers("first") == ["second", "third"]
    assert block_dependencies(root) is graph


# ---- counting -----------------------------------------------------------------------------------


def test_flops_of_matmul():
    assert estimate_flops(matmul(4, 5, 6)) == 2 * 4 * 5 * 6
    assert estimate_bytes(matmul(4, 5, 6)) == 4 * (24 + 30 + 20)


def test_flops_leave_index_arithmetic_out():
    a = te.placeholder((8,), name="A")
    b = te.compute((4,), lambda i: te.exp(a[i * 2 + 1]) * 3.0, name="B")
    assert estimate_flops(te.create_prim_func([a, b])) == 8


def test_flops_of_symbolic_sizes():
    func = parse(
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] + T.float32(1)
"""
    )
    assert estimate_flops(func, {"n": 10}) == 10
    with pytest.raises(VerifyError, match=r"is symbolic: give values"):
        estimate_flops(func)
