"""Tuning from end to end: results, resuming, interrupts, kills, places that can't be written."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import driver, te, topi
from tilewright.ir import IRModule
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import JSONDatabase, MemoryDatabase
from tilewright.meta_schedule.runner import EvaluatorConfig, LocalRunner
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.meta_schedule.tir_integration import compile_tir, tune_tir
from tilewright.meta_schedule.tune import tune_tasks
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir import PrimFunc

TARGET = Target("native").with_options(num_cores=1)


def matmul(n: int = 16) -> PrimFunc:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def quick(**options: Any) -> dict[str, Any]:
    scheduler = TaskScheduler.create("gradient")
    scheduler.final_rounds = 0
    return {
        "task_scheduler": scheduler,
        "cost_model": CostModel.create("random"),
        "runner": LocalRunner(
            evaluator_config=EvaluatorConfig(repeat=1, min_repeat_ms=0.2), num_threads=1
        ),
        "num_trials_per_iter": 4,
    } | options


def keys(database: Any) -> list[str]:
    return [str(record.trace.as_json()) for record in database.get_all_tuning_records()]


def check(mod: IRModule, n: int = 16) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((n, n), dtype="float32"), rng.random((n, n), dtype="float32")
    c = np.zeros((n, n), "float32")
    driver.compile(mod, TARGET)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)


def test_tuning_finds_a_program_that_is_right(tmp_path: Path) -> None:
    database = tune_tir(matmul(), TARGET, tmp_path, 6, **quick())
    assert len(database) == 6
    sch = compile_tir(database, matmul(), TARGET)
    assert sch is not None
    check(sch.mod)
    assert compile_tir(database, matmul(24), TARGET) is None
    log = (tmp_path / "tuning.log").read_text()
    assert "INFO tilewright.meta_schedule: task main" in log


def test_a_run_goes_on_from_the_records(tmp_path: Path) -> None:
    first = keys(tune_tir(matmul(), TARGET, tmp_path, 4, **quick()))
    database = tune_tir(matmul(), TARGET, tmp_path, 4, **quick())
    found = keys(database)
    assert found[:4] == first
    assert len(set(found)) == 8  # nothing is measured twice
    assert len(keys(tune_tir(matmul(), TARGET, tmp_path, 0, **quick()))) == 8


def test_without_a_work_dir_records_stay_in_memory() -> None:
    database = tune_tir(matmul(), TARGET, max_trials_global=2, **quick())
    assert isinstance(database, MemoryDatabase) and not isinstance(database, JSONDatabase)
    assert len(database) == 2


def test_the_functions_of_a_module_are_tuned_together() -> None:
    functions = {"small": matmul(8), "large": matmul(16)}
    database = tune_tir(IRModule(functions), TARGET, None, 8, **quick())
    assert len(database) == 8
    for function in functions.values():
        assert database.query_tuning_record(function, TARGET) is not None


def test_logging_is_left_as_it_was(tmp_path: Path) -> None:
    logger = logging.getLogger("tilewright")
    before = logger.level, list(logger.handlers)
    with pytest.raises(TuneError):
        tune_tir(matmul(), TARGET, tmp_path, 2, **quick(task_scheduler="no such"))
    tune_tir(matmul(), TARGET, tmp_path, 0, **quick())
    assert (logger.level, list(logger.handlers)) == before


# ---- wrong use -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_trials_global": -1}, "max_trials_global is a number of trials, not negative"),
        ({"num_trials_per_iter": 0}, "num_trials_per_iter positive"),
        ({"builder": "remote"}, "unknown builder 'remote'; known: local"),
        ({"runner": "rpc"}, "unknown runner 'rpc'; known: local"),
        ({"runner": 3}, "builder and runner are names or instances"),
        ({"database": "sql3"}, "unknown database 'sql3'; known: json, memory"),
        ({"task_scheduler": "gradiant"}, "gradient"),
        ({"strategy": "evolutionery"}, "evolutionary"),
        ({"space": "post-order"}, "post-order-apply"),
        ({"module_equality": "equal"}, "structural"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TuneError, match=message):
        tune_tir(matmul(), TARGET, **quick(**({"max_trials_global": 1} | options)))


def test_nothing_to_tune_is_refused() -> None:
    with pytest.raises(TuneError, match="no TensorIR function to tune"):
        tune_tir(IRModule({}), TARGET)
    with pytest.raises(TuneError, match="there is nothing to tune: no tasks"):
        tune_tasks([], max_trials_global=1)


@pytest.mark.parametrize("database", ["json", "memory"])
def test_a_work_dir_that_can_not_be_written_is_refused_at_once(
    database: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    start = time.monotonic()
    for folder in (tmp_path / "file" / "records", Path("/proc/records")):
        with pytest.raises(TuneError, match=r"can't be written: .*; choose another work_dir"):
            tune_tir(matmul(), TARGET, folder, 64, **quick(database=database))
    assert time.monotonic() - start < 2


# ---- ends from outside ---------------------------------------------------------------------------

SCRIPT = """
import sys
from tilewright import te
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.measure_callback import MeasureCallback, default_callbacks
from tilewright.meta_schedule.progress import ConsoleProgress
from tilewright.meta_schedule.runner import EvaluatorConfig, LocalRunner
from tilewright.meta_schedule.tir_integration import tune_tir
from tilewright.target import Target

class Say(MeasureCallback):
    def on_result(self, *_):
        print("measured", flush=True)

n = 16
a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
k = te.reduce_axis((0, n), "k")
c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
database = tune_tir(
    te.create_prim_func([a, b, c]),
    Target("native").with_options(num_cores=1),
    sys.argv[1],
    1000,
    num_trials_per_iter=6,
    cost_model=CostModel.create("random"),
    runner=LocalRunner(
        evaluator_config=EvaluatorConfig(repeat=1, min_repeat_ms=5.0), num_threads=1
    ),
    measure_callbacks=[*default_callbacks(), Say()],
    progress=ConsoleProgress(),
)
print("ended with", len(database), "records", flush=True)
"""


def start_and_signal(work_dir: Path, number: int, after: int) -> tuple[int, str, int]:
    """Tune in another process, end it after some measurements; returns code, text, measured."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(work_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    text, measured = "", 0
    while measured < after:
        line = process.stdout.readline()
        assert line, text
        text += line
        measured += line == "measured\n"
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        os.kill(process.pid, number)
    # Not ``communicate``, which forgets the lines that came together with the last one.
    rest = process.stdout.read()
    process.wait(timeout=30)
    return process.returncode, text + rest, measured + rest.count("measured\n")


def test_kill_loses_nothing_that_was_measured(tmp_path: Path) -> None:
    code, _, measured = start_and_signal(tmp_path, signal.SIGKILL, after=8)
    assert code == -signal.SIGKILL
    kept = keys(JSONDatabase(work_dir=tmp_path))
    assert measured <= len(kept) <= measured + 1
    # As if the kill had come in the middle of a line.
    path = tmp_path / "database_tuning_record.json"
    with path.open("a") as file:
        file.write(path.read_text().splitlines()[-1][:50])
    found = keys(tune_tir(matmul(), TARGET, tmp_path, 4, **quick()))
    assert found[: len(kept)] == kept
    assert len(set(found)) == len(kept) + 4
    assert keys(JSONDatabase(work_dir=tmp_path)) == found


def test_an_interrupt_ends_cleanly_with_everything_kept(tmp_path: Path) -> None:
    code, text, measured = start_and_signal(tmp_path, signal.SIGINT, after=3)
    assert code == 0, text
    kept = len(JSONDatabase(work_dir=tmp_path))
    assert measured <= kept <= measured + 1
    assert f"ended with {kept} records" in text
    assert "interrupted; everything measured so far is kept" in text
    assert "Traceback" not in text


def test_work_that_depends_on_data_can_be_tuned() -> None:
    x = te.placeholder((2, 40), name="x")
    values = topi.topk(x, k=3, ret_type="values")
    func = te.create_prim_func([x, values])
    context = TuneContext(func, target=TARGET)
    assert context.flops == 0.0
    assert context.rule_schedule() is not None


def test_the_last_quarter_may_go_to_coordinate_descent(tmp_path: Path) -> None:
    database = tune_tir(matmul(), TARGET, tmp_path, 8, post_optimization=True, **quick())
    assert len(database) == 8
    log = (tmp_path / "tuning.log").read_text()
    assert log.count("where the time went") == 2
