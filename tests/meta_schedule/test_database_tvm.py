"""Databases of TVM are read: ``tvm_records`` was written by TVM 0.27, a product with ReLU."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from database_cases import lines_of

from tilewright import script
from tilewright.meta_schedule.database import JSONDatabase
from tilewright.meta_schedule.database.transfer import merge
from tilewright.meta_schedule.database.tvm_files import TVMFiles
from tilewright.tir.interpreter import run

WRITTEN = Path(__file__).parent / "tvm_records"
WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"

PRODUCT = """from tilewright.script import ir as I
from tilewright.script import tir as T


@I.ir_module
class Module:
    @T.prim_func
    def main(
        A: T.Buffer((16, 16), "float32"),
        B: T.Buffer((16, 16), "float32"),
        D: T.Buffer((16, 16), "float32"),
    ):
        C = T.alloc_buffer((16, 16), "float32")
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                T.reads(A[v_i, v_k], B[v_k, v_j])
                T.writes(C[v_i, v_j])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        for i_1, j_1 in T.grid(16, 16):
            with T.block("D"):
                v_i_1, v_j_1 = T.axis.remap("SS", [i_1, j_1])
                T.reads(C[v_i_1, v_j_1])
                T.writes(D[v_i_1, v_j_1])
                D[v_i_1, v_j_1] = T.max(C[v_i_1, v_j_1], T.float32(0.0))
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN, tmp_path / "tvm"))


def change_program(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    digest, packed = json.loads((folder / WORKLOADS).read_text())
    graph = json.loads(base64.b64decode(packed)[8:])
    change(graph)
    text = json.dumps(graph).encode()
    packed = base64.b64encode(len(text).to_bytes(8, "little") + text).decode()
    (folder / WORKLOADS).write_text(json.dumps([digest, packed]) + "\n")


def test_programs_and_schedules_are_read(tmp_path: Path) -> None:
    found = TVMFiles(WRITTEN)
    records = list(found.records())
    assert (len(records), found.refused) == (len(lines_of(WRITTEN / RECORDS)), {})
    first = records[0]
    assert script.parse(first.workload.text).script() == PRODUCT
    assert first.run_secs == (1e-4, 1.1e-4) and not first.verified
    assert first.target is not None
    assert (first.target.mcpu, first.target.num_cores) == ("znver4", 2)
    assert "sample_perfect_tile" in str(first.trace)
    assert "i_0, j_0" in first.schedule().mod.script()
    database = JSONDatabase(work_dir=tmp_path)
    assert merge(database, records).added == len(records)
    assert database.query_tuning_record(script.parse(PRODUCT)) is not None


def test_the_schedules_compute_the_same() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 4, (16, 16)).astype("float32") for _ in range(2))
    for record in TVMFiles(WRITTEN).records():
        out = np.zeros((16, 16), "float32")
        run(record.schedule().mod["main"], a, b, out)
        np.testing.assert_array_equal(out, np.maximum(a @ b, 0))


@pytest.mark.parametrize(
    "old, new, reason",
    [
        ('"Reorder"', '"ReorderAll"', "no primitive for TVM's ReorderAll"),
        ('"GetConsumers",["b0"]', '"GetConsumers",["b0",3]', "GetConsumers has more arguments"),
        ('"SamplePerfectTile",["l3"]', '"SamplePerfectTile",["q"]', "is not an instruction"),
        ("[4,64]", "[5,64]", ""),
        ('"C","main"', '"E","main"', "E"),
        ("[0.0001,0.00011]", '["fast"]', "a time is a number"),
        ('"kind":"llvm"', '"kind":"abacus"', "abacus"),
        ("[[[[", "[[[7,", "no record of TVM"),
    ],
)
def test_what_does_not_fit_is_counted(copied: Path, old: str, new: str, reason: str) -> None:
    lines = lines_of(copied / RECORDS)
    assert old in lines[0]
    lines[0] = lines[0].replace(old, new, 1)
    (copied / RECORDS).write_text("".join(f"{line}\n" for line in [*lines, "{torn", "[]"]))
    found = TVMFiles(copied)
    assert len(list(found.records())) == len(lines) - 1
    assert sum(found.refused.values()) == 3
    assert any(reason in text for text in found.refused)


def loop_of_itself(graph: dict[str, Any]) -> None:
    for node in graph["nodes"]:
        if node["type"] == "tirx.For":
            node["data"]["body"] = graph["nodes"].index(node)


def many_of_nothing(graph: dict[str, Any]) -> None:
    nodes = graph["nodes"]
    for _ in range(40):
        nodes.append({"type": "ffi.Array", "data": [len(nodes) - 1] * 2})
        nodes.append({"type": "tirx.SeqStmt", "data": {"seq": len(nodes) - 1}})
    for node in nodes:
        if node["type"] == "tirx.PrimFunc":
            node["data"]["body"] = len(nodes) - 1


def set_all(kind: str, /, **fields: Any) -> Callable[[dict[str, Any]], None]:
    def change(graph: dict[str, Any]) -> None:
        for node in graph["nodes"]:
            if node["type"].endswith(f".{kind}"):
                node["data"].update(fields)

    return change


@pytest.mark.parametrize(
    "change, reason",
    [
        (loop_of_itself, "no graph of TVM's objects"),
        (many_of_nothing, ""),
        (set_all("For", kind=1), "scheduled already"),
        (set_all("For", loop_var=10**9), "no graph of TVM's objects"),
        (set_all("For", body="x"), "no graph of TVM's objects"),
        (set_all("IterVar", iter_type=4), "an axis is neither"),
        (set_all("FloatImm", value="import os"), "no graph of TVM's objects"),
        (set_all("FloatImm", value=float("nan")), ""),
        (lambda graph: graph.update(root_index=0), "no module of one function"),
        (lambda graph: graph["nodes"].clear(), "no graph of TVM's objects"),
    ],
)
def test_other_programs_are_counted(
    copied: Path, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    change_program(copied, change)
    found = TVMFiles(copied)
    assert list(found.records()) == []
    assert sum(found.refused.values()) == len(lines_of(copied / RECORDS))
    assert all("its program can't be read" in text and reason in text for text in found.refused)


def test_names_are_no_code(copied: Path) -> None:
    def rename(graph: dict[str, Any]) -> None:
        for node in graph["nodes"]:
            if node.get("data") in ("i", "A", "v_k"):
                node["data"] = "for"
            if node.get("data") == "j":
                node["data"] = "j = __import__('os')  # "

    change_program(copied, rename)
    record = next(TVMFiles(copied).records())
    assert "vfor" in record.workload.text and "__import__(" not in record.workload.text
