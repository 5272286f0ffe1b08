"""How good the search itself is: ``python -m benchmarks.search scoring | share | trials``.

``scoring``: candidates scored per second of one core, from rows of decisions to scores: formulas of
the decisions, features, and the cost model, trained on candidates of the operator. ``share``: how
many sketches of whole models' functions are searched as arrays; candidates of the others are
replayed one by one. ``trials``: verified trials per second, where the time of a tuning run goes,
and by how much it misses a budget of the same time. What goes on at once counts as building, not as
searching: the run doesn't wait for the search then. So the time that this process takes of all
processors is told too: it holds the search, the model, and what passes between processes.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import own
from benchmarks.table import show
from benchmarks.workloads import WORKLOADS
from tilewright.meta_schedule import MeasureCallback, Profiler, TuneContext, tune_tir
from tilewright.meta_schedule.cost_model import CostModel, XGBModel
from tilewright.meta_schedule.measure_callback import Batch, default_callbacks
from tilewright.meta_schedule.search_strategy.base import candidate_of
from tilewright.meta_schedule.search_strategy.design import Variant, make_variants
from tilewright.relax import extract_tasks
from tilewright.target import Target

SCORED = (
    "gemm 1024x1024x1024",
    "conv2d+bias+residual+relu 64->256 1x1 @56",
    "conv2d 64->64 3x3 @56",
    "depthwise 144 3x3 @56",
    "softmax 197x197",
)
#: Candidates scored in one call, as in a generation of the search.
_POPULATION = 2048
#: What the model has learned from by then.
_LEARNED = 192


def variants_of(name: str, target: Target) -> list[Variant]:
    """Return the design space of an operator."""
    task = TuneContext(WORKLOADS[name].prim_func(), target=target, start_from_rules=False)
    return make_variants(task.mod, task.generate_design_space(), target)


def trained_model(variants: list[Variant], rng: np.random.Generator) -> CostModel:
    """Return a model that has learned from some candidates; what they take is made up."""
    model = XGBModel()
    each = -(-_LEARNED // len(variants))
    for variant in variants:
        made = variant.evaluate(variant.draw(each, rng))
        seconds = made.cycles * 1e-9 * rng.uniform(0.5, 2.0, each)
        model.learn("task", [candidate_of(made, n) for n in range(each)], seconds.tolist())
    return model


def scored(name: str, target: Target, rounds: int) -> tuple[float, float]:
    """Return microseconds per candidate for formulas and features, and for the model."""
    rng = np.random.default_rng(0)
    variants = [item for item in variants_of(name, target) if item.function is not None]
    model = trained_model(variants, rng)
    found = []
    for _ in range(rounds + 1):
        features = scores = 0.0
        for variant in variants:
            rows = variant.draw(_POPULATION, rng)
            start = time.process_time()
            made = variant.evaluate(rows)
            middle = time.process_time()
            model.score("task", made)
            features += middle - start
            scores += time.process_time() - middle
        found.append((features, scores))
    median = np.median(found[1:], axis=0) / (_POPULATION * len(variants)) * 1e6
    return float(median[0]), float(median[1])


def scoring(target: Target, rounds: int) -> None:
    """Measure ``SCORED``."""
    rows = []
    for name in SCORED:
        features, model = scored(name, target, rounds)
        rate = 1e6 / (features + model)
        rows.append((name, f"{features:.2f}", f"{model:.2f}", f"{rate:,.0f}"))
    show("Candidates scored", ("operator", "features µs", "model µs", "per second"), rows)


def variants_of_model(name: str, target: Target) -> Iterator[Variant]:
    """Return the design spaces of a model's functions."""
    from benchmarks.networks import imported_model

    mod, _, _ = imported_model(name)
    for task in extract_tasks(mod, target):
        context = TuneContext(task.mod, target=target, start_from_rules=False)
        yield from make_variants(context.mod, context.generate_design_space(), target)


def share(models: list[str], target: Target) -> None:
    """Count the sketches of models that are searched as arrays."""
    rows = []
    for name in models:
        found = list(variants_of_model(name, target))
        arrays = sum(item.function is not None for item in found)
        rows.append((name, str(len(found)), str(arrays), f"{arrays / len(found):.1%}"))
        reasons = {item.fallback_reason for item in found if item.fallback_reason is not None}
        for reason in sorted(reasons):
            print(f"{name}: {reason}")
    show("Sketches", ("model", "sketches", "as arrays", "share"), rows)


class _Count(MeasureCallback):
    """Counts trials: a run may end before it has taken all that it was given."""

    def __init__(self) -> None:
        self.trials = self.verified = 0

    def on_batch(self, scheduler: Any, task: Any, batch: Batch) -> None:
        """Count those of a batch."""
        self.trials += len(batch.results)
        self.verified += sum(item.run_secs is not None and item.verified for item in batch.results)


def _of_children() -> float:
    """Seconds of processors that processes took which have ended: those that build, and run."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def trials(names: list[str], count: int, target: Target) -> None:
    """Tune some operators for a number of trials, and again for the time that this took."""
    rows = []
    for name in names:
        func = WORKLOADS[name].prim_func()
        counted = _Count()
        begun, before = time.process_time(), _of_children()
        with Profiler() as profiler:
            tune_tir(func, target, None, count, measure_callbacks=[counted, *default_callbacks()])
        busy, others = time.process_time() - begun, _of_children() - before
        spent = profiler.get()
        total = spent["total"]
        start = time.monotonic()
        tune_tir(func, target, None, time_budget=total)
        missed = (time.monotonic() - start) / total - 1.0
        phases = [
            spent.get("measuring", 0.0),
            spent.get("comparing the best", 0.0),
            spent.get("building", 0.0) + spent.get("searching while building", 0.0),
        ]
        shares = [seconds / total for seconds in (*phases, total - sum(phases))]
        made = f"{counted.trials} ({counted.verified})"
        rows.append(
            (name, made, f"{counted.verified / total:.1f}", *(f"{share:.0%}" for share in shares),
             f"{busy / counted.trials * 1e3:.1f}", f"{busy / (busy + others):.0%}",
             f"{missed:+.1%}")
        )  # fmt: skip
    columns = (
        "operator", "trials (verified)", "verified/s", "measuring", "races", "building",
        "searching", "ms of this process", "of all CPU time", "budget",
    )  # fmt: skip
    show(f"Up to {count} trials on {target.num_cores} threads", columns, rows)


def main(arguments: list[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("what", choices=["scoring", "share", "trials"])
    parser.add_argument("--models", default="resnet50,bert_base", help="for share, with commas")
    parser.add_argument("--operators", default="gemm 512x512x512", help="for trials, with commas")
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="native")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    target = own.target_of(options.threads, options.target)
    if options.what == "scoring":
        scoring(target, options.rounds)
    elif options.what == "trials":
        trials(options.operators.split(","), options.trials, target)
    else:
        share(options.models.split(","), target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
