"""Latency of whole models: ``python -m benchmarks.models resnet18 --threads 1,2 --trials 256``.

Compared are the model without any schedule, scheduled by rule, tuned (with ``--trials``, or with
records that ``--work-dir`` holds already), and PyTorch; with ``--plain-layout`` also by rule with
all images in ``NCHW``. Models are those of ``examples/models``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.race import complaints, race, ratio
from benchmarks.worker import imported_model
from tilewright.meta_schedule.progress import ConsoleProgress
from tilewright.relax.tuning import tune_relax
from tilewright.target import Target


def tune(name: str, threads: int, trials: int, work_dir: Path, quiet: bool) -> None:
    """Tune a model into the database of ``work_dir``."""
    mod, _, _ = imported_model(name)
    target = Target("native").with_options(num_cores=threads)
    tune_relax(mod, None, target, work_dir, trials, progress=None if quiet else ConsoleProgress())


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("model", nargs="?", default="resnet18")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, with commas")
    parser.add_argument("--trials", type=int, default=0, help="tune with so many trials")
    parser.add_argument("--work-dir", type=Path, help="keep the databases of tuning here")
    parser.add_argument("--skip", default="", help="ways to leave out: none, rule, tuned, torch")
    parser.add_argument("--plain-layout", action="store_true", help="also without blocked channels")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.2, help="seconds per turn")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    ways = ["none", "rule", "torch"]
    if options.trials or options.work_dir is not None:
        ways.insert(2, "tuned")
    if options.plain_layout:
        ways.insert(1, "plain")
    ways = [way for way in ways if way not in options.skip.split(",")]
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for threads in map(int, options.threads.split(",")):
            work_dir = (options.work_dir or Path(folder)) / f"{threads}-threads"
            if options.trials:
                tune(options.model, threads, options.trials, work_dir, options.json)
            times = race(
                {
                    way: {
                        "kind": "model",
                        "way": way,
                        "name": options.model,
                        "threads": threads,
                        "work_dir": str(work_dir),
                    }
                    for way in ways
                },
                threads,
                options.rounds,
                options.burst,
            )
            peer = times.get("torch")
            results.append(
                {
                    "threads": threads,
                    "times": {way: item.as_dict() for way, item in times.items()},
                    "torch_over": {
                        way: ratio(item, peer) for way, item in times.items() if peer is not None
                    },
                    "complaints": complaints(times),
                }
            )
    if options.json:
        table.dump({"model": options.model, "latency": results})
        return
    names = {
        "none": "no schedule",
        "plain": "by rule, NCHW",
        "rule": "by rule",
        "tuned": "tuned",
        "torch": "PyTorch",
    }
    rows = []
    for result in results:
        for way, item in result["times"].items():
            over, difference = result["torch_over"].get(way), item.get("difference")
            rows.append(
                [
                    f"{result['threads']} thread(s), {names[way]}",
                    table.ms(item["seconds"]),
                    "-" if over is None else f"{over:.2f}",
                    "-" if difference is None else f"{difference:.1e}",
                    "-" if "compile_seconds" not in item else f"{item['compile_seconds']:.1f}",
                ]
            )
    table.show(
        f"{options.model}: milliseconds, median of {options.rounds} rounds",
        ["subject", "ms", "PyTorch/this", "difference", "build s"],
        rows,
    )
    for result in results:
        for text in result["complaints"]:
            print(f"{result['threads']} thread(s): {text}")


if __name__ == "__main__":
    main()
