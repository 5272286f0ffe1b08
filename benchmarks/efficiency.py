"""How few trials the search needs: ``python -m benchmarks.efficiency run FILE``, then ``plot``.

The rules' schedules are left out, so that the search stands alone. ``run`` tunes ``OPERATORS`` with
each of ``WAYS`` and appends a line of JSON for each to a file; what is there already isn't run
again. ``table`` shows the best after some trials relative to the best of all in the file, ``plot``
draws the curves as SVG.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import own
from benchmarks.table import show
from benchmarks.workloads import WORKLOADS
from tilewright.meta_schedule import MeasureCallback, TuneContext, tune_tasks
from tilewright.meta_schedule.cost_model import CostModel, MLPModel, RandomModel, XGBModel
from tilewright.meta_schedule.measure_callback import Trial, UpdateCostModel
from tilewright.meta_schedule.runner import TUNING, LocalRunner
from tilewright.meta_schedule.task_scheduler import TaskScheduler
from tilewright.target import Target

OPERATORS = (
    "gemm 1024x1024x1024",
    "conv2d 64->64 3x3 @56",
    "depthwise 144 3x3 @56",
    "softmax 12x128x128",
    "conv3d 16->32 3x3x3 @16x56x56",
)
#: By name: the strategy, and what makes the cost model.
WAYS: dict[str, tuple[str, Callable[[], CostModel]]] = {
    "evolutionary": ("evolutionary", lambda: XGBModel(pretrained=False)),
    "pretrained": ("evolutionary", lambda: XGBModel(pretrained=True)),
    "mlp": ("evolutionary", MLPModel),
    "coordinate-descent": ("coordinate-descent", lambda: XGBModel(pretrained=True)),
    "random": ("evolutionary", RandomModel),
    "replay-trace": ("replay-trace", RandomModel),
}
_AFTER = (4, 8, 16, 32, 64, 128, 256, 512)


class _Curve(MeasureCallback):
    """Notes the time of each trial."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_result(self, scheduler: Any, task: Any, trial: Trial) -> None:
        """Note one."""
        self.seconds.append(trial.result.seconds)


def curve(name: str, way: str, target: Target, trials: int, batch: int, seed: int) -> list[float]:
    """Return the seconds of each trial of a search."""
    strategy, model = WAYS[way]
    noted = _Curve()
    task = TuneContext(
        WORKLOADS[name].prim_func(),
        target=target,
        search_strategy=strategy,
        start_from_rules=False,
        rand_state=seed,
    )
    scheduler = TaskScheduler.create("round-robin")
    scheduler.final_rounds = 0
    tune_tasks(
        [task],
        max_trials_global=trials,
        num_trials_per_iter=batch,
        cost_model=model(),
        measure_callbacks=[noted, UpdateCostModel()],
        task_scheduler=scheduler,
        runner=LocalRunner(evaluator_config=replace(TUNING, verify=False)),
    )
    return noted.seconds


def known(path: Path) -> list[dict[str, Any]]:
    """Return what a file holds."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(path: Path, options: argparse.Namespace) -> None:
    """Run what the file lacks, for about so many seconds."""
    until = time.monotonic() + options.seconds
    done = {(item["operator"], item["way"], item["seed"], item["trials"]) for item in known(path)}
    target = own.target_of(1, options.target)
    for seed in range(options.seeds):
        for name in OPERATORS if options.operators is None else options.operators.split(";"):
            for way in options.ways.split(","):
                key = (name, way, seed, options.trials)
                if key in done or time.monotonic() > until:
                    continue
                start = time.monotonic()
                found = curve(name, way, target, options.trials, options.batch, seed)
                item = dict(zip(("operator", "way", "seed", "trials"), key))
                item |= {"batch": options.batch, "seconds": found}
                with path.open("a") as file:
                    file.write(json.dumps(item) + "\n")
                best = min(found, default=math.inf)
                spent = time.monotonic() - start
                print(f"{name} {way} {seed}: {best * 1e3:.3f} ms in {spent:.0f} s", flush=True)


def shares(items: Sequence[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Return, by operator and way, the best of all over the best after each trial; mean of seeds.

    A search that has ended early stays where it was.
    """
    best: dict[str, float] = {}
    for item in items:
        best[item["operator"]] = min([best.get(item["operator"], math.inf), *item["seconds"]])
    found: dict[tuple[str, str], list[Any]] = {}
    for item in items:
        trials = item["seconds"] + [math.inf] * (item["trials"] - len(item["seconds"]))
        share = best[item["operator"]] / np.minimum.accumulate(trials)
        found.setdefault((item["operator"], item["way"]), []).append(share)
    return {
        key: np.mean([row[: min(map(len, rows))] for row in rows], axis=0)
        for key, rows in found.items()
    }


def table(items: Sequence[dict[str, Any]]) -> None:
    """Show the shares after some trials."""
    made = shares(items)
    rows = []
    for way in dict.fromkeys(way for _, way in made):
        own_rows = {name: share for (name, other), share in made.items() if other == way}
        for name, share in [*own_rows.items(), ("geometric mean", _mean(list(own_rows.values())))]:
            after = [f"{share[n - 1]:.2f}" if n <= len(share) else "" for n in _AFTER]
            rows.append((f"{way}: {name}", *after))
    show("Best of all, over the best after so many trials", ("search", *map(str, _AFTER)), rows)


def _mean(shares: Sequence[Any]) -> Any:
    least = min(map(len, shares))
    with np.errstate(divide="ignore"):
        return np.exp(np.mean([np.log(share[:least]) for share in shares], axis=0))


_COLOURS = {
    "pretrained": "#1b6ca8", "evolutionary": "#d1495b", "coordinate-descent": "#66a182",
    "mlp": "#8d6bb8", "random": "#edae49", "replay-trace": "#8c8c8c",
}  # fmt: skip


def plot(items: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the curves of all operators as an SVG file."""
    made = shares(items)
    names = list(dict.fromkeys(name for name, _ in made))
    ways = list(dict.fromkeys(way for _, way in made))
    wide, high, gap = 250, 170, 46
    longest = max(len(share) for share in made.values())
    parts = []
    for number, name in enumerate(names):
        left, top = gap + (number % 3) * (wide + gap), gap + (number // 3) * (high + gap + 10)
        parts.append(
            f'<text x="{left}" y="{top - 8}" class="t">{name.replace(">", "&gt;")}</text>'
            f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" class="f"/>'
        )
        for share in (0.25, 0.5, 0.75, 0.95):
            y = top + high * (1 - share)
            parts.append(
                f'<path d="M{left} {y:.1f}h{wide}" class="g"/>'
                f'<text x="{left - 4}" y="{y + 3:.1f}" class="y">{share:g}</text>'
            )
        for trials in (n for n in _AFTER if n <= longest):
            x = left + wide * math.log(trials) / math.log(longest)
            parts.append(f'<text x="{x:.1f}" y="{top + high + 12}" class="x">{trials}</text>')
        for way in ways:
            curve = made.get((name, way))
            if curve is None:
                continue
            points = " ".join(
                f"{left + wide * math.log(n) / math.log(longest):.1f},{top + high * (1 - s):.1f}"
                for n, s in enumerate(curve, 1)
            )
            parts.append(f'<polyline points="{points}" stroke="{_COLOURS[way]}" class="c"/>')
    left, top = gap + 2 * (wide + gap), gap + high + gap + 10
    for number, way in enumerate(ways):
        y = top + 20 + 18 * number
        parts.append(
            f'<path d="M{left} {y}h24" stroke="{_COLOURS[way]}" class="c"/>'
            f'<text x="{left + 30}" y="{y + 4}" class="t">{way}</text>'
        )
    style = (
        "text{font:11px sans-serif;fill:#333}.x{text-anchor:middle}.y{text-anchor:end}"
        ".f{fill:#fff;stroke:#bbb}.g{stroke:#e4e4e4}.c{fill:none;stroke-width:1.6}"
    )
    size = f'width="{gap + 3 * (wide + gap)}" height="{gap + 2 * (high + gap + 10)}"'
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def main(arguments: list[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.efficiency",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["run", "table", "plot"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--svg", type=Path, default=Path("docs/efficiency.svg"))
    parser.add_argument("--trials", type=int, default=512)
    parser.add_argument("--batch", type=int, default=16, help="trials between refits")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--ways", default="pretrained,evolutionary,random,replay-trace")
    parser.add_argument("--operators", help="separated by semicolons")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--target", default="native")
    options = parser.parse_args(arguments)
    if options.what == "run":
        run(options.file, options)
    elif options.what == "table":
        table(known(options.file))
    else:
        plot(known(options.file), options.svg)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
