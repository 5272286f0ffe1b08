"""Tuning, step by step: from a model to a database, and from the database to faster code.

Scheduling is a pass over the functions of a module. Tuning is one thing, applying what was found
another: a build never tunes, and a database serves every module that has the same functions.

    python examples/tutorial_tuning.py [TRIALS [WORK_DIR]]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from tilewright import relax
from tilewright.ir import IRModule, Sequential
from tilewright.meta_schedule.database import JSONDatabase, OrderedUnionDatabase
from tilewright.relax.frontend import nn
from tilewright.relax.transform import (
    MetaScheduleApplyDatabase,
    MetaScheduleTuneIRMod,
    MetaScheduleTuneTIR,
)
from tilewright.target import Target
from tilewright.tir import IS_SCHEDULED, PrimFunc


class MLP(nn.Module):
    """784 pixels to scores, through a hidden layer of 256."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, 256, bias=False)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(256, classes, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Return the scores."""
        return self.fc2(self.relu(self.fc1(x)))


def exported(classes: int) -> IRModule:
    """Return the model as a graph; its parameters are arguments."""
    mod, _ = MLP(classes).export({"forward": {"x": nn.spec.Tensor((1, 784), "float32")}})
    return mod


def inputs(classes: int) -> tuple[np.ndarray, ...]:
    """Return an image and weights."""
    rng = np.random.default_rng(classes)
    shapes = ((1, 784), (256, 784), (classes, 256))
    return tuple(rng.standard_normal(shape, dtype="float32") for shape in shapes)


def check(executable: relax.Executable, classes: int, target: Target) -> float:
    """Run a built model, compare it with numpy; returns microseconds per call."""
    x, w1, w2 = inputs(classes)
    machine = relax.VirtualMachine(executable)
    expected = np.maximum(x @ w1.T, 0) @ w2.T
    found = np.asarray(machine["forward"](x, w1, w2))
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    assert error < 1e-4, error
    timer = machine.time_evaluator("forward", number=50, repeat=9)
    return float(timer(x, w1, w2).min * 1e6)


def scheduled(mod: IRModule) -> list[str]:
    """Return the functions that a database had records for."""
    return [
        name
        for name, function in mod.functions.items()
        if isinstance(function, PrimFunc) and function.attrs.get(IS_SCHEDULED)
    ]


def main(trials: int = 64, folder: str | None = None) -> None:
    """Run the tutorial with so many measurements for the whole model."""
    target = Target("native")
    work = Path(folder or tempfile.mkdtemp(prefix="tilewright-tutorial-"))
    local_dir, shared_dir = work / "local", work / "shared"

    # 1. A model, and what there is to tune in it: its different functions, by how often they run.
    mod = exported(classes=10)
    mod.show()
    for task in relax.extract_tasks(mod, target):
        print(f"task {task.task_name}: weight {task.weight}, {task.flops / 1e3:.0f} kflop")

    # 2. Passes in a row. `zero` makes fused tensor functions of the operators; tuning measures
    #    schedules into the database of the folder and leaves the module alone; applying rewrites
    #    the functions that have records. The order is yours.
    with target:
        tuned = Sequential(
            [
                relax.get_pipeline("zero"),
                MetaScheduleTuneTIR(work_dir=shared_dir, max_trials_global=trials),
                MetaScheduleApplyDatabase(work_dir=shared_dir),
            ]
        )(mod)
    tuned.show()

    # 3. Build, run, compare. Functions without a record get a schedule by rule.
    by_rule = check(relax.build(mod, target), 10, target)
    by_search = check(relax.build(tuned, target), 10, target)
    print(f"one image: {by_rule:.1f} us scheduled by rule, {by_search:.1f} us tuned")

    # 4. Another model with the same first layer takes its schedule from the same database.
    other = relax.get_pipeline("zero")(exported(classes=100))
    with target:
        applied = MetaScheduleApplyDatabase(work_dir=shared_dir)(other)
    print(f"the other model: {scheduled(applied)} found in {shared_dir}")
    check(relax.build(applied, target), 100, target)

    # 5. Tune only some functions: those with one of these words in their name. The records go to a
    #    database of our own.
    with target:
        MetaScheduleTuneIRMod(
            params={}, work_dir=local_dir, max_trials_global=trials, op_names=["matmul"]
        )(other)

    # 6. Two databases as one: ours where it has a record, the shared one for the rest. The one of
    #    the innermost `with` is what passes use.
    local, shared = JSONDatabase(work_dir=local_dir), JSONDatabase(work_dir=shared_dir)
    with target, OrderedUnionDatabase(local, shared):
        both = MetaScheduleApplyDatabase()(other)
    print(f"with both databases: {scheduled(both)}")
    before = check(relax.build(other, target), 100, target)
    after = check(relax.build(both, target), 100, target)
    print(f"the other model: {before:.1f} us scheduled by rule, {after:.1f} us tuned")
    print(f"records: {len(shared)} shared, {len(local)} local, in {work}")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 64,
        sys.argv[2] if len(sys.argv) > 2 else None,
    )
