"""``tilewright db``: looking into databases, damaged ones too."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Tilewright

from tilewright import script
from tilewright.ir import structural_hash

RECORDS, WORKLOADS = "database_tuning_record.json", "database_workload.json"


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, values: list[Any]) -> None:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def test_list_and_best(tilewright: Tilewright, records: Path) -> None:
    listed = tilewright("db", "list", records, "--json").json
    assert len(listed) == len(lines(records / RECORDS))
    best = tilewright("db", "best", records, "--json").json
    assert len(best) == 2
    for row in best:
        own = [r for r in listed if r["workload"] == row["workload"]]
        assert row in own and bool(row["beat"]) == any(r["beat"] for r in own)
        if not row["beat"]:
            assert row["seconds"] == min(r["seconds"] for r in own)


def test_tables_are_not_folded_when_piped(tilewright: Tilewright, records: Path) -> None:
    done = tilewright("db", "best", records, "--trace")
    assert done.code == 0
    assert any(
        "matmul" in line and "2x16" in line and "2x8" in line for line in done.out.split("\n")
    )
    assert "sch.get_block(name=" in done.out
    assert "…" not in done.out


@pytest.mark.parametrize("command", ["list", "best", "verify"])
def test_a_folder_without_a_database(tilewright: Tilewright, tmp_path: Path, command: str) -> None:
    done = tilewright("db", command, tmp_path)
    assert (done.code, done.out) == (2, "")
    assert f"there is no database in {tmp_path}" in done.err
    done = tilewright("db", command, tmp_path / "missing")
    assert (done.code, done.out) == (2, "")
    assert "there is no folder" in done.err
    pytest.importorskip("sqlalchemy")
    done = tilewright("db", command, f"sqlite:///{tmp_path / 'missing.db'}")
    assert (done.code, done.out) == (2, "")
    assert "there is no database file" in done.err


def test_a_database_without_records(tilewright: Tilewright, records: Path) -> None:
    (records / RECORDS).write_text("")
    assert tilewright("db", "list", records).out == "no records\n"
    assert tilewright("db", "list", records, "--json").json == []


@pytest.mark.parametrize("name", [RECORDS, WORKLOADS])
def test_a_corrupt_line_is_reported_and_the_rest_shown(
    tilewright: Tilewright, records: Path, name: str
) -> None:
    count = len(lines(records / RECORDS))
    with (records / name).open("a") as file:
        file.write('{"torn": \n')
    done = tilewright("db", "list", records, "--json")
    assert done.code == 0
    assert len(done.json) == count
    assert f"a line of {records / name} can't be read" in done.err
    assert "set aside" in done.err
    assert (records / f"{name}.corrupt").read_text() == '{"torn": \n'


def test_right_records_verify(tilewright: Tilewright, records: Path) -> None:
    done = tilewright("db", "verify", records, "--all", "--json")
    assert done.code == 0, done.err
    count = len(lines(records / RECORDS))
    assert (done.json["right"], done.json["wrong"], done.json["skipped"]) == (count, 0, 0)


def test_a_record_of_another_workload_is_found(tilewright: Tilewright, records: Path) -> None:
    values = lines(records / RECORDS)
    values[0][0] = 1 - values[0][0]
    write(records / RECORDS, values)
    done = tilewright("db", "verify", records, "--all", "--json")
    assert done.code == 1
    assert done.json["wrong"] == 1
    verdicts = [row["verdict"] for row in done.json["records"]]
    assert verdicts == ["wrong"] + ["right"] * (len(values) - 1)
    assert done.json["records"][0]["problem"]


def test_a_changed_decision_is_found(tilewright: Tilewright, records: Path) -> None:
    values = lines(records / RECORDS)
    decided = next(inst for value in values for inst in value[1][0] if len(inst) == 4)
    decided[3] = 99 if isinstance(decided[3], int) else [99 for _ in decided[3]]
    write(records / RECORDS, values)
    done = tilewright("db", "verify", records, "--all")
    assert done.code == 1
    assert f"{len(values) - 1} right, 1 wrong, 0 refused, 0 skipped" in done.out
    assert "Traceback" not in done.err


def test_a_changed_program_is_found(tilewright: Tilewright, records: Path) -> None:
    values = lines(records / WORKLOADS)
    for value in values:
        value[1] = value[1].replace("+", "-")
    write(records / WORKLOADS, values)
    done = tilewright("db", "verify", records)
    assert done.code == 1
    assert done.out.count("does not have the hash it is kept under") == 2


def test_records_for_another_cpu_are_skipped(tilewright: Tilewright, records: Path) -> None:
    values = lines(records / RECORDS)
    for value in values:
        value[1][2].update({"mcpu": "neoverse-v2", "mtriple": "aarch64-linux-gnu"})
    write(records / RECORDS, values)
    done = tilewright("db", "verify", records)
    assert done.code == 0
    assert "0 right, 0 wrong, " in done.out
    assert "it is for neoverse-v2" in done.out


def test_names_of_strangers_do_not_steer_the_terminal(
    tilewright: Tilewright, records: Path
) -> None:
    values = lines(records / WORKLOADS)
    for value in values:
        value[0] = "\x1b[2J" + value[0]
        value[1] = value[1].replace('T.block("', 'T.block("\x1b]0;')
    write(records / WORKLOADS, values)
    write(records / RECORDS, [*lines(records / RECORDS), ["\x1b[2J"]])
    for command in ("list", "best", "verify"):
        done = tilewright("db", command, records)
        assert "\x1b" not in done.out and "\x1b" not in done.err
        assert "\\x1b[2J" in done.out


CALLER = """from tilewright.script import ir as I
from tilewright.script import tir as T


@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                T.reads(A[vi])
                T.writes(B[vi])
                B[vi] = T.call_pure_extern("sqrtf", A[vi] * A[vi], dtype="float32")
"""


def test_functions_outside_are_called_only_if_allowed(
    tilewright: Tilewright, records: Path
) -> None:
    digest = structural_hash(script.parse(CALLER))
    write(records / WORKLOADS, [[digest, CALLER]])
    record = lines(records / RECORDS)[0]
    infos = [["TENSOR", "float32", [4]]] * 2
    write(records / RECORDS, [[0, [[], [1e-3], record[1][2], infos, {}]]])
    done = tilewright("db", "verify", records)
    assert done.code == 1
    assert "refused: " in done.out and "'sqrtf' (call_pure_extern)" in done.out
    assert "0 right, 0 wrong, 1 refused, 0 skipped" in done.out
    assert tilewright("db", "verify", records, "--allow-extern", "sqrt").code == 1
    assert tilewright("db", "verify", records, "--allow-extern", "sqrtf").code == 0


@pytest.mark.parametrize("kind", ["folder", "sqlite"])
def test_records_go_from_one_database_to_another(
    tilewright: Tilewright, records: Path, tmp_path: Path, kind: str
) -> None:
    def place(name: str) -> str:
        return str(tmp_path / name) if kind == "folder" else f"sqlite:///{tmp_path / name}.db"

    if kind == "sqlite":
        pytest.importorskip("sqlalchemy")
    count = len(lines(records / RECORDS))
    stat = tilewright("db", "stat", records, "--json").json
    assert (stat["workloads"], stat["records"]) == (len(lines(records / WORKLOADS)), count)
    assert sum(row["records"] for row in stat["targets"]) == count
    pruned = tilewright("db", "prune", records, place("best"), "--json").json
    assert pruned["added"] == 2
    assert len(tilewright("db", "list", place("best"), "--json").json) == 2
    again = tilewright("db", "prune", records, place("best"))
    assert (again.code, again.out) == (2, "") and "there is a database in" in again.err
    done = tilewright("db", "merge", place("best"), records)
    assert done.out.startswith(f"{count - 2} records added, 2 were there, 0 left out; ")
    assert f"{count} records" in tilewright("db", "stat", place("best")).out
    done = tilewright("db", "export", place("best"), tmp_path / "all.gz")
    assert done.out == f"{count} records written\n"
    done = tilewright("db", "import", tmp_path / "all.gz", place("imported"), "--json")
    assert (done.json["added"], done.json["refused"]) == (count, {})
    done = tilewright("db", "diff", records, place("imported"))
    assert "1.00" in done.out
    assert f"2 in both, 0 only in {records}, 0 only in {place('imported')}" in done.out
    colder = tmp_path / "colder"
    shutil.copytree(records, colder)
    text = (colder / RECORDS).read_text()
    made = re.sub(r'"timing": ?\{', '"timing":{"caches":"cold",', text)
    assert made != text
    (colder / RECORDS).write_text(made)
    done = tilewright("db", "diff", records, colder, "--json").json
    assert done["both"] == 2 and not any(row["ratio"] for row in done["workloads"])
    assert {row["caches"] for row in done["workloads"]} == {None}
    tilewright("db", "merge", colder, records)
    done = tilewright("db", "diff", colder, colder, "--json").json
    assert done["both"] == 2
    ratios = [(row["caches"], row["ratio"]) for row in done["workloads"]]
    assert ratios == [("cold", 1.0), ("warm", 1.0)] * 2
    written = Path(__file__).parents[1] / "meta_schedule" / "tvm_records"
    done = tilewright("db", "import", written, place("imported"))
    assert done.out.startswith("3 records added, 0 were there, 0 left out; ")
