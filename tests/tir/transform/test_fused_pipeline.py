"""Loops of different stages of a software pipeline that run as one loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import IRModule, collect
from tilewright.script import parse
from tilewright.support.errors import LowerError
from tilewright.tir import For, PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.transform import InjectSoftwarePipeline

HEAD = "from tilewright.script import tir as T\n@T.prim_func\n"


def passes(annotations: dict[str, list[int]], rows: str = "6", second: str = "8") -> PrimFunc:
    """A sum of each row, then the row over its sum: 0 begins, 1 and 2 are loops."""
    extent = f"({rows}, 8)"
    start = (
        "def main(a: T.handle, b: T.handle):\n    n = T.int64()\n"
        + f'    A = T.match_buffer(a, {extent}, "float32")\n'
        + f'    B = T.match_buffer(b, {extent}, "float32")\n'
        if rows == "n"
        else f'def main(A: T.Buffer({extent}, "float32"), B: T.Buffer({extent}, "float32")):\n'
    )
    return parse(
        HEAD
        + start
        + f"    for i in T.serial({rows}, annotations={annotations}):\n"
        + '        S = T.allocate((1,), "float32")\n'
        + "        S[0] = T.float32(0)\n"
        + "        for j in range(8):\n            S[0] = S[0] + A[i, j]\n"
        + f"        for k in range({second}):\n            B[i, k] = A[i, k] / S[0]\n"
    )


def results(program: PrimFunc | IRModule, rows: int) -> np.ndarray[Any, Any]:
    a = np.arange(1, rows * 8 + 1, dtype="float32").reshape(rows, 8)
    b = np.zeros_like(a)
    run(program, a, b)
    return b


def annotations(stages: list[int], fused: list[int]) -> dict[str, list[int]]:
    return {"software_pipeline_stage": stages, "software_pipeline_fuse": fused}


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("stages", [[0, 0, 1], [0, 0, 2]])
@pytest.mark.parametrize("extent", ["known", "n"])
def test_the_meaning_stays(rows: int, stages: list[int], extent: str) -> None:
    func = passes(annotations(stages, [1, 2]), str(rows) if extent == "known" else extent)
    made = InjectSoftwarePipeline()(IRModule({"main": func}))
    verify(made)
    np.testing.assert_array_equal(results(made, rows), results(func, rows))


def test_text() -> None:
    func = passes(annotations([0, 0, 1], [1, 2]), "4")
    text = InjectSoftwarePipeline()(IRModule({"main": func}))["main"].script()
    expected = """
    S = T.allocate((2, 1), "float32")
    S[0, 0] = T.float32(0.0)
    for j in range(8):
        S[0, 0] = S[0, 0] + A[0, j]
    for i in range(3):
        S[(i + 1) % 2, 0] = T.float32(0.0)
        for j in range(8):
            S[(i + 1) % 2, 0] = S[(i + 1) % 2, 0] + A[i + 1, j]
            B[i, j] = A[i, j] / S[i % 2, 0]
    for k in range(8):
        B[3, k] = A[3, k] / S[1, 0]
"""
    assert expected.strip("\n") in text


def test_steady_loop_of_unknown_length_is_fused() -> None:
    func = passes(annotations([0, 0, 1], [1, 2]), "n")
    made = InjectSoftwarePipeline()(IRModule({"main": func}))["main"]
    (loop,) = [item for item in collect(made.body, For) if item.loop_var.name == "i"]
    assert len(collect(loop.body, For)) == 1


def test_annotations_of_all_loops_are_kept() -> None:
    func = parse(
        HEAD
        + 'def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32"),'
        + ' C: T.Buffer((4, 8), "float32")):\n'
        + f"    for i in T.serial(4, annotations={annotations([0, 1], [0, 1])}):\n"
        + '        for j in T.serial(8, annotations={"one": 1}):\n            B[i, j] = A[i, j]\n'
        + '        for k in T.serial(8, annotations={"two": 2}):\n            C[i, k] = A[i, k]\n'
    )
    made = InjectSoftwarePipeline()(IRModule({"main": func}))["main"]
    fused = [item for item in collect(made.body, For) if len(item.annotations) == 2]
    assert [dict(item.annotations) for item in fused] == [{"one": 1, "two": 2}]


@pytest.mark.parametrize(
    ("stages", "fused", "message"),
    [
        ([0, 0, 0], [1, 2], "S would be shared at one time"),
        ([0, 0, 1], [1, 1], "are not different ones of 3 statements"),
        ([0, 0, 1], [1, 3], "are not different ones of 3 statements"),
        ([0, 0, 1], [0, 1], "only serial loops"),
    ],
)
def test_refusals(stages: list[int], fused: list[int], message: str) -> None:
    with pytest.raises(LowerError, match=message):
        InjectSoftwarePipeline()(IRModule({"main": passes(annotations(stages, fused))}))


@pytest.mark.parametrize("extent", ["4", "i + 1"])
def test_other_extents_are_refused(extent: str) -> None:
    func = passes(annotations([0, 0, 1], [1, 2]), second=extent)
    with pytest.raises(LowerError, match="their extents are the same each time"):
        InjectSoftwarePipeline()(IRModule({"main": func}))


def test_extents_that_change_are_refused() -> None:
    text = passes(annotations([0, 0, 1], [1, 2]), second="i + 1").script()
    func = parse(text.replace("in range(8)", "in range(i + 1)"))
    with pytest.raises(LowerError, match="their extents are the same each time"):
        InjectSoftwarePipeline()(IRModule({"main": func}))


def test_loops_apart_in_the_order_are_refused() -> None:
    func = parse(
        HEAD
        + 'def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32"),'
        + ' C: T.Buffer((4, 8), "float32")):\n'
        + f"    for i in T.serial(4, annotations={annotations([0, 0, 1], [0, 2])}):\n"
        + "        for j in range(8):\n            B[i, j] = A[i, j]\n"
        + "        C[i, 0] = A[i, 0]\n"
        + "        for k in range(7):\n            C[i, k + 1] = A[i, k]\n"
    )
    with pytest.raises(LowerError, match="must follow each other in order"):
        InjectSoftwarePipeline()(IRModule({"main": func}))


def test_a_value_that_iterations_share_is_refused() -> None:
    """What one iteration leaves in memory for the next one must not be overtaken."""
    func = parse(
        HEAD
        + 'def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32"),'
        + ' C: T.Buffer((8,), "float32")):\n'
        + "    for i in T.serial(4, annotations="
        + '{"software_pipeline_stage": [0, 1], "software_pipeline_order": [1, 0], '
        + '"software_pipeline_fuse": [0, 1]}):\n'
        + "        for j in range(8):\n            C[j] = A[i, j]\n"
        + "        for k in range(8):\n            B[i, k] = C[7 - k]\n"
    )
    with pytest.raises(LowerError, match="C would be shared at one time"):
        InjectSoftwarePipeline()(IRModule({"main": func}))
