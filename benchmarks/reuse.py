"""What records of other shapes are worth: ``python -m benchmarks.reuse --trials 24``.

For each operator three shapes are tuned into a database. For other shapes these are compared in one
race: what the rules make, the nearest record adapted, the best of up to four adapted ones (which
is what ``adapt="measure"`` costs no trials for), and the best of as many trials on that very shape.
The figures are the rules' time over theirs: above 1, they are faster than by rule. Where the rules'
own schedule won, nothing is adapted; ``--search-alone`` leaves the rules out of what is tuned.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from statistics import geometric_mean, median

from tilewright import te, topi
from tilewright.meta_schedule import TuneContext, tune_tasks
from tilewright.meta_schedule.adapted import adapted_schedules
from tilewright.meta_schedule.builder import BuilderInput, LocalBuilder
from tilewright.meta_schedule.database import MemoryDatabase
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.runner import LocalRunner
from tilewright.meta_schedule.task_scheduler.base import make_reference
from tilewright.meta_schedule.task_scheduler.final_ranking import runner_input
from tilewright.support.text import human_time
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

Shape = Sequence[int]
_ROUNDS = 12


def matmul(m: int, n: int, k: int) -> PrimFunc:
    """A product."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return te.create_prim_func([a, b, topi.nn.matmul(a, b)])


def dense(m: int, n: int, k: int) -> PrimFunc:
    """A product, a bias and an activation: another fusion of the product above."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    bias = te.placeholder((n,), name="bias")
    return te.create_prim_func([a, b, bias, topi.nn.relu(topi.add(topi.nn.matmul(a, b), bias))])


def conv2d(channels: int, size: int, filters: int) -> PrimFunc:
    """A 3 × 3 convolution."""
    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((filters, channels, 3, 3), name="weight")
    return te.create_prim_func([data, weight, topi.nn.conv2d(data, weight, padding=1)])


def max_plus(m: int, n: int, k: int) -> PrimFunc:
    """A product of maxima and sums, which no library has."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    return te.create_prim_func(
        [a, b, te.compute((m, n), lambda i, j: te.max(a[i, r] + b[r, j], axis=r), name="C")]
    )


Make = Callable[..., PrimFunc]
PRODUCTS: tuple[Shape, ...] = ((128, 512, 256), (512, 512, 512), (64, 1024, 512))
OTHERS: tuple[Shape, ...] = (
    (256, 512, 256), (384, 768, 512), (96, 1000, 512), (197, 768, 256), (64, 509, 128),
)  # fmt: skip
CASES: dict[str, tuple[Make, Sequence[Shape], Make, Sequence[Shape]]] = {
    "matmul": (matmul, PRODUCTS, matmul, OTHERS),
    "matmul to dense": (matmul, PRODUCTS, dense, OTHERS),
    "max-plus": (max_plus, PRODUCTS, max_plus, OTHERS),
    "conv2d": (
        conv2d,
        ((64, 28, 64), (32, 56, 64), (128, 14, 128)),
        conv2d,
        ((64, 32, 64), (48, 28, 96), (96, 14, 96), (64, 27, 64), (24, 56, 32)),
    ),
}


def tune(
    func: PrimFunc, target: Target, database: MemoryDatabase, options: argparse.Namespace,
    runner: LocalRunner,
) -> None:  # fmt: skip
    """Tune a function into a database, with or without what the rules make."""
    context = TuneContext(func, target=target, start_from_rules=not options.search_alone)
    tune_tasks([context], max_trials_global=options.trials, database=database, runner=runner)


def compare(
    func: PrimFunc, target: Target, known: MemoryDatabase, options: argparse.Namespace,
    runner: LocalRunner,
) -> tuple[float, dict[str, float]]:  # fmt: skip
    """Return the seconds by rule, and the speedup over that of each way."""
    context = TuneContext(func, target=target)
    found = adapted_schedules(known, func, target)
    ways: dict[str, list[Schedule]] = {"nearest": [], "adapted": [], "tuned": []}
    ways["adapted"] = [item.schedule for item in found]
    ways["nearest"] = ways["adapted"][:1]
    if not options.untuned:
        own = MemoryDatabase()
        tune(func, target, own, options, runner)
        best = own.query_schedule(func, target)
        ways["tuned"] = [] if best is None else [best]
    base = context.rule_schedule() or Schedule(context.mod)
    schedules = list(dict.fromkeys([base, *(sch for way in ways.values() for sch in way)]))
    builder = LocalBuilder()
    built = builder.build([BuilderInput(sch.mod, target) for sch in schedules])
    reference = make_reference(context, builder)
    inputs = [
        runner_input(MeasureCandidate(sch, context.args_info), build, reference)
        for sch, build in zip(schedules, built)
        if build.module is not None
    ]
    results = iter(runner.race(inputs, _ROUNDS))
    times = {
        sch: median(result.run_secs)
        for sch, build in zip(schedules, built)
        if build.module is not None and (result := next(results)).run_secs
    }
    speedups = {
        name: max((times[base] / times[sch] for sch in way if sch in times), default=0.0)
        for name, way in ways.items()
    }
    return times[base], speedups


def main() -> None:
    """Tune, adapt, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=24, help="of each shape")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="operators with these words in their name")
    parser.add_argument("--untuned", action="store_true", help="don't tune the other shapes")
    parser.add_argument("--search-alone", action="store_true", help="records of no rule")
    options = parser.parse_args()
    target = Target(f"native -num-cores={options.threads}")
    runner = LocalRunner(num_threads=options.threads)
    print("| operator | by rule | nearest | best adapted | tuned |\n|---|---|---|---|---|")
    every: dict[str, list[float]] = {}
    for name, (make, shapes, other, other_shapes) in CASES.items():
        if options.only not in name:
            continue
        known = MemoryDatabase()
        for shape in shapes:
            tune(make(*shape), target, known, options, runner)
        for shape in other_shapes:
            seconds, speedups = compare(other(*shape), target, known, options, runner)
            for way, value in speedups.items():
                every.setdefault(way, []).extend([value] if value else [])
            cells = " | ".join(f"{value:.2f}" if value else "" for value in speedups.values())
            text = "x".join(map(str, shape))
            print(f"| {name} {text} | {human_time(seconds)} | {cells} |", flush=True)
    means = " | ".join(f"{geometric_mean(v):.2f}" if v else "" for v in every.values())
    print(f"| geometric mean | | {means} |")
    runner.close()


if __name__ == "__main__":
    main()
