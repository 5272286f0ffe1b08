"""Software pipelines, double buffers, permuted tiles and automatic copies mean what was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tilewright import te
from tilewright.ir import IRModule, as_int, pre_order
from tilewright.script import parse
from tilewright.support.errors import LowerError, ScheduleError
from tilewright.target import Target
from tilewright.tir import AttrStmt, For, PrimFunc, Schedule
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.transform import (
    InjectDoubleBuffer,
    InjectPermutedLayout,
    InjectSoftwarePipeline,
    LowerAutoCopy,
    cpu_pipeline,
    gpu_pipeline,
)

HEAD = "from tilewright.script import tir as T\n@T.prim_func\n"


def pipelined(annotations: str, extent: str = "16", params: str = "") -> PrimFunc:
    """Three steps per iteration; ``S`` and ``R`` belong to the iteration."""
    return parse(
        HEAD
        + f'def main({params}A: T.Buffer(({extent}, 8), "float32"), '
        + f'B: T.Buffer(({extent}, 8), "float32")):\n'
        + f"    for i in T.serial({extent}, annotations={annotations}):\n"
        + '        S = T.allocate((8,), "float32", scope="shared")\n'
        + '        R = T.allocate((8,), "float32", scope="local")\n'
        + "        for j in range(8):\n            S[j] = A[i, j] * T.float32(2)\n"
        + "        for j in range(8):\n            R[j] = S[7 - j] + T.float32(1)\n"
        + "        for j in range(8):\n            B[i, j] = R[j] + S[j]\n"
    )


def results(program: PrimFunc | IRModule, rows: int, *scalars: int) -> np.ndarray:
    a = np.arange(rows * 8, dtype="float32").reshape(rows, 8)
    b = np.zeros_like(a)
    run(program, *scalars, a, b)
    return b


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 16])
@pytest.mark.parametrize(
    ("stages", "order"),
    [
        ([0, 0, 0], [0, 1, 2]),
        ([0, 0, 1], [0, 1, 2]),
        ([0, 1, 1], [0, 1, 2]),
        ([0, 1, 2], [0, 1, 2]),
        ([0, 1, 2], [2, 1, 0]),
        ([0, 1, 3], [1, 2, 0]),
        ([1, 1, 2], [0, 1, 2]),
        ([0, 2, 2], [2, 0, 1]),
    ],
)
def test_pipeline_keeps_the_meaning(rows: int, stages: list[int], order: list[int]) -> None:
    func = pipelined(
        str({"software_pipeline_stage": stages, "software_pipeline_order": order}), str(rows)
    )
    made = InjectSoftwarePipeline()(IRModule({"main": func}))
    verify(made)
    np.testing.assert_array_equal(results(made, rows), results(func, rows))


@pytest.mark.parametrize("rows", [1, 2, 3, 9])
def test_pipeline_of_unknown_length(rows: int) -> None:
    func = parse(
        HEAD
        + "def main(a: T.handle, b: T.handle):\n"
        + "    n = T.int64()\n"
        + '    A = T.match_buffer(a, (n, 8), "float32")\n'
        + '    B = T.match_buffer(b, (n, 8), "float32")\n'
        + '    for i in T.serial(n, annotations={"software_pipeline_stage": [0, 2]}):\n'
        + '        S = T.allocate((8,), "float32")\n'
        + "        for j in range(8):\n            S[j] = A[i, j] * T.float32(2)\n"
        + "        for j in range(8):\n            B[i, j] = S[j]\n"
    )
    made = InjectSoftwarePipeline()(IRModule({"main": func}))
    verify(made)
    np.testing.assert_array_equal(results(made, rows), results(func, rows))


def test_text_of_a_pipeline() -> None:
    func = parse(
        HEAD
        + 'def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):\n'
        + '    for i in T.serial(8, annotations={"software_pipeline_stage": [0, 1]}):\n'
        + '        S = T.allocate((1,), "float32")\n'
        + "        S[0] = A[i]\n"
        + "        B[i] = S[0]\n"
    )
    text = InjectSoftwarePipeline()(IRModule({"main": func}))["main"].script()
    expected = """
    S = T.allocate((2, 1), "float32")
    S[0, 0] = A[0]
    for i in range(7):
        S[(i + 1) % 2, 0] = A[i + 1]
        B[i] = S[i % 2, 0]
    B[7] = S[1, 0]
"""
    assert expected.strip("\n") in text


def test_values_from_the_iteration_before() -> None:
    """A running sum may not be overtaken: its reader must stay within one stage."""
    template = (
        HEAD
        + 'def main(A: T.Buffer((8, 1), "float32"), B: T.Buffer((8, 1), "float32")):\n'
        + '    S = T.allocate((1,), "float32")\n'
        + "    S[0] = T.float32(0)\n"
        + "    for i in T.serial(8, annotations=ANNOTATIONS):\n"
        + "        S[0] = S[0] + A[i, 0]\n"
        + "        B[i, 0] = S[0]\n"
    )
    ok = parse(template.replace("ANNOTATIONS", '{"software_pipeline_stage": [0, 1], '
                                '"software_pipeline_order": [1, 0]}'))  # fmt: skip
    made = InjectSoftwarePipeline()(IRModule({"main": ok}))
    a, b, c = np.arange(8, dtype="float32")[:, None], np.zeros((8, 1), "f4"), np.zeros((8, 1), "f4")
    run(ok, a, b)
    run(made, a, c)
    np.testing.assert_array_equal(b, c)
    bad = parse(template.replace("ANNOTATIONS", '{"software_pipeline_stage": [0, 1]}'))
    with pytest.raises(LowerError, match=r"statements 0 and 1 .* share S.* in the next iteration"):
        InjectSoftwarePipeline()(IRModule({"main": bad}))


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"software_pipeline_stage": [0, 1]}, "has 3 statements"),
        ({"software_pipeline_stage": [0, -1, 1]}, "numbers from 0"),
        (
            {"software_pipeline_stage": [0, 0, 0], "software_pipeline_order": [0, 0, 1]},
            "no order of 3 statements",
        ),
        ({"software_pipeline_stage": [1, 0, 1]}, "statements 0 and 1 of the body share S"),
        (
            {"software_pipeline_stage": [0, 0, 0], "software_pipeline_order": [1, 0, 2]},
            "statements 0 and 1",
        ),
        (
            {
                "software_pipeline_stage": [0, 1, 1],
                "software_pipeline_async_stages": [3],
            },
            "asynchronous stage 3",
        ),
    ],
)
def test_wrong_pipelines(annotations: dict[str, Any], message: str) -> None:
    with pytest.raises(LowerError, match=message):
        InjectSoftwarePipeline()(IRModule({"main": pipelined(str(annotations))}))


def _groups(made: IRModule) -> list[tuple[str, int, int]]:
    """The commits and waits of a program without loops, in the order in which they happen."""
    found: list[tuple[str, int, int]] = []

    def walk(node: Any) -> None:
        if isinstance(node, AttrStmt) and node.key == "async_wait_queue_scope":
            found.append(("wait", as_int(node.value) or 0, as_int(node.body.value) or 0))
        for child in node.child_nodes():
            walk(child)
        if isinstance(node, AttrStmt) and node.key == "async_commit_queue_scope":
            found.append(("commit", as_int(node.value) or 0, 0))

    walk(made["main"].body)
    return found


@pytest.mark.parametrize("distance", [1, 2, 3])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_waits_are_right_and_no_stricter(distance: int, order: list[int]) -> None:
    """Iterations as many as stages: prologue and epilogue only, which can be counted."""
    rows = distance
    annotations = {
        "software_pipeline_stage": [0, distance],
        "software_pipeline_order": order,
        "software_pipeline_async_stages": [0],
    }
    func = parse(
        HEAD
        + f'def main(A: T.Buffer(({rows}, 8), "float32"), B: T.Buffer(({rows}, 8), "float32")):\n'
        + f"    for i in T.serial({rows}, annotations={annotations}):\n"
        + '        S = T.allocate((8,), "float32", scope="shared")\n'
        + "        for j in range(8):\n            S[j] = A[i, j] * T.float32(2)\n"
        + "        for j in range(8):\n            B[i, j] = S[j]\n"
    )
    made = InjectSoftwarePipeline()(IRModule({"main": func}))
    np.testing.assert_array_equal(results(made, rows), results(func, rows))
    committed = consumed = 0
    for kind, stage, count in _groups(made):
        assert stage == 0
        if kind == "commit":
            committed += 1
            continue
        # Group ``consumed`` must be complete: no more than those after it may be under way.
        assert count == committed - consumed - 1
        consumed += 1
    assert (committed, consumed) == (rows, rows)


def test_async_scopes_of_the_steady_loop() -> None:
    annotations = {"software_pipeline_stage": [0, 2, 2], "software_pipeline_async_stages": [0]}
    made = InjectSoftwarePipeline()(IRModule({"main": pipelined(str(annotations))}))
    loop = next(n for n in pre_order(made["main"]) if isinstance(n, For) and n.extent.value == 14)
    counts = [
        as_int(n.value)
        for n in pre_order(loop)
        if isinstance(n, AttrStmt) and n.key == "async_wait_inflight_count"
    ]
    assert counts == [2, 2]
    np.testing.assert_array_equal(
        results(made, 16), results(pipelined('{"software_pipeline_stage": [0, 0, 0]}'), 16)
    )


# ---- from schedules to code --------------------------------------------------------------------


def matmul(n: int = 32) -> PrimFunc:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def tiled(copies: Callable[[Schedule, Any, Any], None], bind: bool = True) -> Schedule:
    """A 32x32 product in tiles of 16x16x8 on 16x4 threads; ``copies`` brings tiles in."""
    sch = Schedule(matmul())
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 16])
    j0, j1 = sch.split(j, [None, 16])
    k0, k1 = sch.split(k, [None, 8])
    j1, j2 = sch.split(j1, [4, 4])
    sch.reorder(i0, j0, i1, j1, k0, k1, j2)
    if bind:
        sch.bind(i0, "blockIdx.y")
        sch.bind(j0, "blockIdx.x")
        sch.bind(i1, "threadIdx.y")
        sch.bind(j1, "threadIdx.x")
    copies(sch, sch.get_block("C"), k0)
    return sch


def check(sch: Schedule, gpu: bool) -> IRModule:
    pipeline = gpu_pipeline(Target("cuda")) if gpu else cpu_pipeline(Target("native"))
    mod = pipeline(sch.mod)
    verify(mod)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (32, 32)).astype("float32") for _ in range(2))
    c = np.zeros((32, 32), "float32")
    run(mod, a, b, c, check_races=gpu)
    np.testing.assert_array_equal(c, a @ b)
    return mod


def _cooperative(sch: Schedule, block: Any, loop: Any, *, double: bool, permuted: bool) -> None:
    for index in (0, 1):
        copy = sch.read_at(loop, block, index, "shared")
        if double:
            sch.annotate(copy, "double_buffer_scope", 0)
        if permuted and index == 1:
            sch.annotate(copy, "permuted_layout", 1)


@pytest.mark.parametrize("double", [False, True])
@few("permuted", [False, True], every=2)
def test_tiles_in_shared_memory(double: bool, permuted: bool) -> None:
    sch = tiled(lambda s, b, k: _cooperative(s, b, k, double=double, permuted=permuted))
    mod = check(sch, gpu=True)
    text = mod["main_kernel"].script()
    assert ("bitwise_xor" in text) == permuted
    # A tile of 16x8 and one of 8x16, in one arena; two of each when the next ones are on their way.
    arena = max(as_int(b.shape[0]) or 0 for b in _allocated(mod["main_kernel"], "shared"))
    assert arena == (2 if double else 1) * (16 * 8 + 8 * 16) * 4


def _allocated(func: Any, scope: str) -> list[Any]:
    return [
        item.buffer
        for item in pre_order(func)
        if type(item).__name__ == "Allocate" and item.buffer.scope.startswith(scope)
    ]


def test_copies_are_dealt_out_to_threads() -> None:
    """256 elements by 64 threads: each moves one vector per tile, and none moves all."""
    sch = tiled(lambda s, b, k: _cooperative(s, b, k, double=False, permuted=False))
    text = check(sch, gpu=True)["main_kernel"].script()
    copies = [line for line in text.split("\n") if "= A[" in line or "= B[" in line]
    assert len(copies) == 2
    assert all("T.Ramp" in line or ":" in line for line in copies), text


@pytest.mark.parametrize("double", [False, True])
def test_the_same_on_a_cpu(double: bool) -> None:
    check(
        tiled(lambda s, b, k: _cooperative(s, b, k, double=double, permuted=False), bind=False),
        gpu=False,
    )


def test_copies_before_threads_begin() -> None:
    """A tile brought in at a blockIdx loop gets threads, which join those that compute."""
    sch = Schedule(matmul())
    i, j, _ = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 16])
    sch.bind(i0, "blockIdx.x")
    sch.reorder(i0, i1, j)
    sch.read_at(i0, sch.get_block("C"), 0, "shared")
    sch.bind(j, "threadIdx.x")
    check(sch, gpu=True)


def test_what_cannot_be_double_buffered_or_permuted() -> None:
    sch = Schedule(matmul())
    copy = sch.cache_read("C", 0, "shared")
    sch.annotate(copy, "double_buffer_scope", 0)
    with pytest.raises(LowerError, match="can't be double-buffered, since no serial loop"):
        cpu_pipeline(Target("native"))(sch.mod)
    sch = Schedule(matmul(6))
    sch.annotate(sch.cache_read("C", 0, "shared"), "permuted_layout", 4)
    with pytest.raises(LowerError, match="even number of chunks of 4 elements"):
        cpu_pipeline(Target("native"))(sch.mod)
    sch = Schedule(matmul())
    copy = sch.cache_read("C", 0, "shared")
    sch.annotate(copy, "permuted_layout", 4)
    sch.annotate(copy, "permuted_rows", 0)
    with pytest.raises(LowerError, match="permuted_rows is at least 1, got 0"):
        cpu_pipeline(Target("native"))(sch.mod)
    sch = Schedule(matmul())
    copy = sch.cache_read("C", 0, "shared")
    with pytest.raises(ScheduleError, match="one of the block's writes; found 3"):
        sch.annotate(copy, "double_buffer_scope", 3)


def test_passes_leave_other_functions_alone() -> None:
    mod = IRModule({"main": matmul()})
    for item in (
        InjectDoubleBuffer(),
        InjectPermutedLayout(),
        InjectSoftwarePipeline(),
        LowerAutoCopy(),
    ):
        assert item(mod)["main"] is mod["main"]


def test_no_iterations_of_a_size_that_comes_with_the_call() -> None:
    """The last times are drained only if there was an iteration, also inside of other loops."""
    func = parse(
        HEAD
        + "def main(a: T.handle, b: T.handle):\n    k = T.int64()\n"
        + "    A = T.match_buffer(a, (k, 8))\n    B = T.match_buffer(b, (2, 8))\n"
        + "    for r in range(2):\n        B[r, 0] = T.float32(1)\n"
        + "        for i in T.serial(k, annotations={'software_pipeline_stage': [0, 1]}):\n"
        + '            S = T.allocate((8,), "float32", scope="local")\n'
        + "            for j in range(8):\n                S[j] = A[i, j]\n"
        + "            for j in range(8):\n                B[r, j] = B[r, j] + S[j]\n"
    )
    made = InjectSoftwarePipeline()(IRModule({"main": func}))
    for rows in (0, 1, 3):
        a, first, second = np.ones((rows, 8), "float32"), *np.zeros((2, 2, 8), "float32")
        run(func, a, first)
        run(made, a, second)
        np.testing.assert_array_equal(second, first)
