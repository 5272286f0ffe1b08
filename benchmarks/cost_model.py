"""The cost model that ships with the package: its data, its training, what it is good for.

    python -m benchmarks.cost_model gather DIRECTORY [--target TARGET] [--trials 64] [--again]
    python -m benchmarks.cost_model train DIRECTORY

``gather`` measures candidates of ``TRAINING`` and ``HELD_OUT`` without the rules' schedules (half
of them as the search chooses them, half at random), and writes a file of features and times for
each operator; what has a file is left alone, so it may be stopped and taken up again. A search
finds what a model overestimates: ``--again`` measures that for the model of now. ``train`` states
the rank correlation on operators that the model hasn't seen, and writes the model.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import own
from benchmarks.table import show
from benchmarks.workloads import WORKLOADS
from tilewright import te, topi
from tilewright.meta_schedule import TuneContext, tune_tasks
from tilewright.meta_schedule.cost_model import XGBModel
from tilewright.meta_schedule.cost_model._measured import Samples
from tilewright.meta_schedule.cost_model.forest import Forest, forest_of
from tilewright.meta_schedule.cost_model.pretrained import PATH, write_forest
from tilewright.meta_schedule.runner import TUNING, LocalRunner
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.support.errors import TilewrightError
from tilewright.tir import PrimFunc

#: What the model learns from: an operator or two of each kind, of several sizes.
TRAINING = (
    "gemm 512x512x512",
    "gemm 128x768x3072",
    "gemm 333x77x129",
    "gemv 1x256x784",
    "batch_matmul 12x128x64x128",
    "gemm+bias+relu 128x768x3072",
    "gemm+bias+residual+relu 128x768x768",
    "conv2d 64->256 1x1 @56",
    "conv2d 128->128 3x3 @28",
    "conv2d 256->256 3x3/2 @28",
    "conv2d 512->2048 1x1 @7",
    "conv2d 32->16 1x1 @112",
    "conv2d 96->576 1x1 @14",
    "depthwise 96 3x3 @112",
    "depthwise 384 3x3 @14",
    "softmax 197x197",
    "log_softmax 1024x1000",
    "layer_norm 128x768",
    "sum 4096x4096 axis 0",
    "max 1024x1024 axis 1",
    "max_pool 64x112x112 3x3/2",
    "gemm 197x197x64",
    "gemv 1x4096x4096",
    "gemm bf16 512x512x512",
    "gemm u8xs8 197x197x64",
    "conv2d 256->64 1x1 @56",
    "conv2d 512->1024 1x1/2 @28",
    "conv2d 256->256 3x3 @14",
    "conv2d 512->512 3x3 @7",
    "conv2d 144->32 1x1 @28",
    "conv2d 160->960 1x1 @7",
    "depthwise 32 3x3 @112",
    "depthwise 192 3x3/2 @28",
    "depthwise 960 3x3 @7",
    "conv2d_transpose 128->64 4x4/2 @28",
    "rms_norm 4096x4096",
    "sum 4096x4096 axis 1",
    "attention 12x128x64",
    "max-plus product 256x256x256",
    "complex product 256x256x256 of planes",
    "N-body forces 1024",
    "stereo costs 256x256, 16 disparities, windows of 5",
    "lattice Boltzmann step 256x256",
    "means of 32 ragged sequences 256x256",
    "bilateral filter 5x5 of 256x256",
)
#: Further ones (channels, depth, size, filters, taps): the list of workloads has only one of them.
CONV3D = ((8, 8, 28, 16, 3), (32, 4, 14, 64, 3), (3, 8, 56, 16, 3), (64, 8, 14, 64, 1))
#: What it is judged by.
HELD_OUT = (
    "gemm 1024x1024x1024",
    "batch_matmul 12x128x128x64 NT",
    "gemm+bias+gelu 128x3072x768",
    "conv2d 64->64 3x3 @56",
    "conv2d 1024->256 1x1 @14",
    "depthwise 144 3x3 @56",
    "softmax 12x128x128",
    "rms_norm 128x768",
    "conv3d 16->32 3x3x3 @16x56x56",
    "banded 1024x1024 (33 diagonals) times 1024x128",
    "L1 distances 512x512x64",
)

#: Fewer candidates of an operator say nothing about their order.
_FEWEST = 8
_ROUNDS = 200
_TREES: dict[str, Any] = {
    "max_depth": 6,
    "eta": 0.05,
    "min_child_weight": 3.0,
    "lambda": 3.0,
    "gamma": 0.001,
    "base_score": 0.0,
    "tree_method": "hist",
    "max_bin": 64,
    "subsample": 0.8,
    "colsample_bytree": 0.5,
    "nthread": 1,
    "disable_default_eval_metric": 1,
    "verbosity": 0,
}


def operators(names: Sequence[str]) -> dict[str, PrimFunc]:
    """Return operators by name; with those of ``TRAINING`` the further ones."""
    made = {name: WORKLOADS[name].prim_func() for name in names}
    for channels, depth, size, filters, taps in CONV3D if names is TRAINING else ():
        data = te.placeholder((1, channels, depth, size, size), "float32", name="data")
        weight = te.placeholder((filters, channels, taps, taps, taps), "float32", name="weight")
        result = topi.nn.conv3d(data, weight, strides=1, padding=taps // 2)
        name = f"conv3d {channels}->{filters} {taps}x{taps}x{taps} @{depth}x{size}x{size}"
        made[name] = te.create_prim_func([data, weight, result])
    return made


def gather(folder: Path, target: str, trials: int, seconds: float, *, again: bool) -> None:
    """Measure what has no file yet, for about so many seconds.

    ``again`` is what the search chooses with the model of now: those that it overestimates.
    """
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + seconds
    held_out = {} if again else operators(HELD_OUT)
    for name, func in {**operators(TRAINING), **held_out}.items():
        suffix = " again" if again else ""
        path = folder / f"{name.replace('/', ' by ')} on {target.split('=')[-1]}{suffix}.npz"
        if path.exists() or time.monotonic() > until:
            continue
        start, model = time.monotonic(), XGBModel(pretrained=again)
        for strategy in ("evolutionary",) if again else ("evolutionary", "replay-trace"):
            task = TuneContext(
                func,
                target=own.target_of(1, target),
                search_strategy=strategy,
                start_from_rules=False,
            )
            scheduler = TaskScheduler.create("round-robin")
            scheduler.final_rounds = 0
            try:
                tune_tasks(
                    [task],
                    max_trials_global=trials // 2,
                    num_trials_per_iter=16,
                    cost_model=model,
                    task_scheduler=scheduler,
                    runner=LocalRunner(evaluator_config=replace(TUNING, verify=False)),
                )
            except TilewrightError as error:
                print(f"{name}: {error.summary}", flush=True)
        model.save(path)
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)


def load(folder: Path, names: Sequence[str]) -> dict[str, Samples]:
    """Read what was measured of some operators; by the names of the files."""
    found = {}
    for path in sorted(folder.glob("*.npz")):
        if path.stem.replace(" by ", "/").rpartition(" on ")[0] in names:
            model = XGBModel(pretrained=False)
            model.load(path)
            samples = model.samples()
            if len(samples.wanted) >= _FEWEST:
                found[path.stem] = samples
    return found


def fit(tasks: Sequence[Samples], seed: int) -> object:
    """Fit trees to all tasks; scores are compared within a task only, so its offset is free."""
    import xgboost

    wanted = np.concatenate([item.wanted for item in tasks])
    weight = np.concatenate([item.weight for item in tasks])
    task = np.repeat(np.arange(len(tasks)), [len(item.wanted) for item in tasks])
    starts = np.cumsum([0, *(len(item.wanted) for item in tasks)])
    owner = np.concatenate([item.owner + start for item, start in zip(tasks, starts)])
    counts = np.bincount(owner, minlength=len(wanted)).astype(np.float64)
    whole = np.bincount(task, weights=weight)

    def objective(predicted: np.ndarray, _: object) -> tuple[np.ndarray, np.ndarray]:
        rest = np.bincount(owner, weights=predicted, minlength=len(wanted)) - wanted
        rest -= (np.bincount(task, weights=weight * rest) / whole)[task]
        return (weight * rest)[owner], (weight * counts)[owner]

    data = xgboost.DMatrix(np.concatenate([item.rows for item in tasks]))
    return xgboost.train({**_TREES, "seed": seed}, data, num_boost_round=_ROUNDS, obj=objective)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return the rank correlation (Spearman's)."""
    ranks = [np.argsort(np.argsort(item)).astype(np.float64) for item in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def judge(forest: Forest, samples: Samples) -> tuple[float, float, float, float]:
    """Return rank correlation and best of the first four, by the machine model and with trees.

    The latter is relative to the best of all.
    """
    valid = np.isfinite(samples.times)
    seconds = samples.times[valid]
    sums = np.bincount(samples.owner, weights=forest(samples.rows)[0])
    made = []
    for score in (samples.prior, samples.prior + sums):
        first = np.argsort(-score[valid])[:4]
        made.append((correlation(score[valid], -seconds), seconds.min() / seconds[first].min()))
    (before, first_before), (after, first_after) = made
    return before, after, first_before, first_after


def train(folder: Path) -> None:
    """Train, judge, and write the model that ships."""
    training, held_out = (load(folder, list(operators(n))) for n in (TRAINING, HELD_OUT))
    forest = forest_of([fit(list(training.values()), seed=0)], _TREES["max_depth"])
    judged = {name: judge(forest, samples) for name, samples in held_out.items()}
    rows = [(name, *(f"{value:.2f}" for value in values)) for name, values in judged.items()]
    mean = np.mean(list(judged.values()), axis=0)
    rows.append(("mean", *(f"{value:.3f}" for value in mean)))
    show(
        f"Held-out operators ({len(training)} others were learned from)",
        ("operator", "correlation, machine model", "with trees", "best of 4", "with trees"),
        rows,
    )
    write_forest(forest, PATH)
    print(f"{PATH}: {PATH.stat().st_size} bytes")


def main(arguments: list[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["gather", "train"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="native")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument(
        "--again", action="store_true", help="what the search chooses with the model of now"
    )
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    if options.what == "gather":
        gather(options.folder, options.target, options.trials, options.seconds, again=options.again)
    else:
        train(options.folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
