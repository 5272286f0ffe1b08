"""Latency of whole models: ``python -m benchmarks.models --threads 1 --peers torch,inductor``.

Models are compiled by ``tilewright.compile`` and called with PyTorch's tensors; their results are
compared with PyTorch's before they are timed. Ways of ours: ``rule``, ``tuned`` (with ``--trials``
or ``--seconds``, or with records that ``--work-dir`` holds already), ``plain`` (by rule, all images
in ``NCHW``) and ``none`` (without any schedule). Peers: ``torch``, ``inductor`` (frozen),
``onnxruntime``, ``openvino``. The figure is the best peer's time over that of the last of our ways.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.networks import MODEL_PEERS, MODELS, imported_model
from benchmarks.race import complaints, race, ratio
from tilewright.meta_schedule.progress import ConsoleProgress
from tilewright.relax.tuning.models import tune_relax
from tilewright.target import Target

WAYS = ("none", "plain", "rule", "tuned")


def tune(name: str, batch: int, threads: int, work_dir: Path, options: argparse.Namespace) -> None:
    """Tune a model into the database of ``work_dir``."""
    mod, _, _ = imported_model(name, batch)
    tune_relax(
        mod,
        None,
        Target("native").with_options(num_cores=threads),
        work_dir,
        options.trials or None,
        time_budget=options.seconds,
        progress=None if options.json else ConsoleProgress(),
    )


def measure(
    name: str, batch: int, threads: int, ways: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    """Race all ways to run a model."""
    work_dir = options.work_dir / f"{threads}-threads"
    if options.trials or options.seconds:
        tune(name, batch, threads, work_dir, options)
    wanted = {
        "kind": "model",
        "name": name,
        "batch": batch,
        "threads": threads,
        "work_dir": str(work_dir),
        "onnx": str(options.work_dir / "onnx" / f"{name}-{batch}.onnx"),
    }
    subjects = {way: {**wanted, "way": way} for way in ways}
    times = race(subjects, threads, options.rounds, options.burst, clock=options.clock)
    ours = times[[way for way in ways if way in WAYS][-1]]
    ratios = {
        way: value
        for way, item in times.items()
        if way in MODEL_PEERS and (value := ratio(ours, item)) is not None
    }
    return {
        "model": name,
        "batch": batch,
        "threads": threads,
        "times": {way: item.as_dict() for way, item in times.items()},
        "best_ratio": min(ratios.values(), default=None),
        "ratios": ratios,
        "complaints": complaints(times),
    }


def _show(results: Sequence[dict[str, Any]], ways: Sequence[str], rounds: int) -> None:
    for batch, threads in dict.fromkeys((item["batch"], item["threads"]) for item in results):
        mine = [item for item in results if (item["batch"], item["threads"]) == (batch, threads)]
        rows = []
        for item in mine:
            figures = [item["times"][way] for way in ways]
            build = [one["compile_seconds"] for one in figures if "compile_seconds" in one]
            worst = [one["difference"] for one in figures if "difference" in one]
            best = item["best_ratio"]
            rows.append(
                [
                    item["model"],
                    *(_ms(one["seconds"]) for one in figures),
                    "-" if best is None else f"{best:.2f}",
                    f"{worst[0]:.0e}" if worst else "-",
                    f"{build[0]:.1f}" if build else "-",
                ]
            )
        table.show(
            f"batch {batch}, {threads} thread(s): milliseconds, median of {rounds} rounds",
            ["model", *ways, "best peer/ours", "difference", "build s"],
            rows,
        )
        known = [math.log(item["best_ratio"]) for item in mine if item["best_ratio"]]
        if known:
            print(f"geometric mean of best peer/ours: {math.exp(sum(known) / len(known)):.2f}")
    for item in results:
        for text in item["complaints"]:
            print(f"{item['model']}, batch {item['batch']}, {item['threads']} thread(s): {text}")


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.4g}"


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; all but the last")
    parser.add_argument("--batch", default="1", help="batch sizes, with commas")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, with commas")
    parser.add_argument("--ways", default="rule", help=f"with commas, of {', '.join(WAYS)}")
    parser.add_argument("--peers", default="torch", help=f"of {', '.join(MODEL_PEERS)}")
    parser.add_argument("--trials", type=int, default=0, help="tune with so many trials")
    parser.add_argument("--seconds", type=float, help="tune each model for so long")
    parser.add_argument("--work-dir", type=Path, help="keep databases and ONNX models here")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.2, help="seconds per turn")
    parser.add_argument(
        "--clock",
        choices=("wall", "processor"),
        default="wall",
        help="whose seconds count; the processor's where others use the cores too",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    ways = options.ways.split(",")
    if (options.trials or options.seconds) and "tuned" not in ways:
        ways.append("tuned")
    ways += [peer for peer in options.peers.split(",") if peer]
    models = options.models or list(MODELS)[:-1]
    for given, known in ((ways, (*WAYS, *MODEL_PEERS)), (models, tuple(MODELS))):
        if unknown := set(given) - set(known):
            parser.error(f"no {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    if not set(ways) & set(WAYS):
        parser.error(f"--ways needs one of {', '.join(WAYS)}")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        options.work_dir = options.work_dir or Path(folder)
        for threads in map(int, options.threads.split(",")):
            for batch in map(int, options.batch.split(",")):
                for name in models:
                    results.append(measure(name, batch, threads, ways, options))
    if options.json:
        table.dump(results)
        return
    _show(results, ways, options.rounds)


if __name__ == "__main__":
    main()
