"""The cost model that ships with the package: its data, its training, what it is good for.

    python -m benchmarks.cost_model gather DIRECTORY [--target TARGET] [--trials 64]
    python -m benchmarks.cost_model train DIRECTORY

``gather`` measures candidates of ``TRAINING`` and ``HELD_OUT`` without the rules' schedules (half
of them as the search chooses them, half at random), and writes a file of features and times for
each operator; what has a file is left alone, so it may be stopped and taken up again. ``train``
states the rank correlation on operators that the model hasn't seen, and writes the model.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

from benchmarks import own
from benchmarks.workloads import WORKLOADS
from tilewright.meta_schedule import TuneContext, tune_tasks
from tilewright.meta_schedule.cost_model import XGBModel
from tilewright.meta_schedule.runner import EvaluatorConfig, LocalRunner
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.support.errors import TilewrightError

#: What the model learns from: an operator or two of each kind, of several sizes.
TRAINING = (
    "gemm 512x512x512",
    "gemm 128x768x3072",
    "gemm 333x77x129",
    "gemm 1x256x784",
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
    "gelu 128x3072",
    "add 1024x1024",
    "sum 4096x4096 axis 0",
    "max 1024x1024 axis 1",
    "transpose 1024x1024",
    "max_pool 64x112x112 3x3/2",
    "max-plus product 256x256x256",
    "bilateral filter 5x5 of 256x256",
)
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
    "heat step 128x128x128",
    "L1 distances 512x512x64",
)


def gather(folder: Path, target: str, trials: int, seconds: float) -> None:
    """Measure what has no file yet, for about so many seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + seconds
    for name in (*TRAINING, *HELD_OUT):
        path = folder / f"{name.replace('/', ' by ')} on {target.split('=')[-1]}.npz"
        if path.exists() or name not in WORKLOADS or time.monotonic() > until:
            continue
        start, model = time.monotonic(), XGBModel()
        for strategy, count in (("evolutionary", trials // 2), ("replay-trace", trials // 2)):
            task = TuneContext(
                WORKLOADS[name].prim_func(),
                target=own.target_of(1, target),
                search_strategy=strategy,
                start_from_rules=False,
            )
            scheduler = TaskScheduler.create("round-robin")
            scheduler.final_rounds = 0
            try:
                tune_tasks(
                    [task],
                    max_trials_global=count,
                    num_trials_per_iter=16,
                    cost_model=model,
                    task_scheduler=scheduler,
                    runner=LocalRunner(EvaluatorConfig(verify=False)),
                )
            except TilewrightError as error:
                print(f"{name}: {error.summary}", flush=True)
        model.save(path)
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)


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
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    if options.what == "gather":
        gather(options.folder, options.target, options.trials, options.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
