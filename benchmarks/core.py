"""The steps of Tilewright itself: ``python -m benchmarks.core``.

Compile time per kernel, cost of a call, import time, replay with postprocs per candidate, speed of
the search. Each has a target, which the table shows.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.race import ROOT
from benchmarks.workload import Unavailable
from benchmarks.workloads import WORKLOADS
from tilewright import dlight, driver, te, topi
from tilewright.codegen.llvm.jit import keep_switches
from tilewright.ir import IRModule
from tilewright.meta_schedule.builder import BuilderInput
from tilewright.meta_schedule.builder.local import default_build
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.database import MemoryDatabase
from tilewright.meta_schedule.runner import RunnerResult
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.runtime import from_numpy
from tilewright.support.interference import Watch
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

#: What `import tilewright` must not load.
HEAVY = ("torch", "onnx", "xgboost", "cuda", "llvmlite", "rich", "scipy")


#: Operators whose candidates are compiled.
TUNED = (
    "gemm 512x512x512", "gemm 128x768x3072", "batch_matmul 12x128x64x128",
    "conv2d 64->64 3x3 @56", "softmax 12x128x128", "layer_norm 128x768", "transpose 4096x4096",
    "gemm u8xs8 512x512x512",
)  # fmt: skip

#: Seconds to wait for undisturbed cores, for each figure of many.
_PATIENCE = 0.3
_WATCH = Watch()


@dataclass(frozen=True)
class Figure:
    """One figure, and what is aimed at."""

    name: str
    value: float
    unit: str
    target: float | None = None
    note: str = ""

    def row(self) -> list[str]:
        aim = "-" if self.target is None else f"< {self.target:g} {self.unit}"
        return [self.name, f"{self.value:,.3g} {self.unit}", aim, self.note]


def _best(run: Callable[..., Any], *args: Any, count: int) -> float:
    """Return the CPU time of the shortest of some calls, which a busy machine changes least.

    Calls on disturbed cores (``support.interference``) don't count, as long as patience lasts.
    """
    end, times = time.perf_counter() + _PATIENCE, []
    while count:
        _WATCH.begin()
        start = time.process_time()
        run(*args)
        times.append(time.process_time() - start)
        if _WATCH.undisturbed() or time.perf_counter() > end:
            count -= 1
    return min(times)


@contextlib.contextmanager
def _without_cache() -> Iterator[None]:
    name = "TILEWRIGHT_CACHE_MEGABYTES"
    before = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def compile_time(target: Target, repeats: int = 5) -> list[Figure]:
    """Lower and compile each operator's rule-based schedule; the best of some times counts.

    Once without and once with the cache of objects. What candidates of a workload share (the
    wrapper) is compiled beforehand.
    """
    rules = dlight.default_schedule(target)
    both, lowering, cached = {}, {}, {}
    for workload in WORKLOADS.values():
        try:
            mod = rules(IRModule({"main": workload.prim_func()}))
        except Unavailable:
            continue
        driver.compile(mod, target)
        cached[workload.name] = _best(driver.compile, mod, target, count=repeats)
        lowering[workload.name] = _best(driver.lower, mod, target, count=repeats)
        with _without_cache():
            both[workload.name] = _best(driver.compile, mod, target, count=repeats)
    slowest = max(both, key=lambda name: both[name])
    return [
        Figure(
            "compile a kernel, median",
            1e3 * statistics.median(both.values()),
            "ms",
            15,
            f"CPU time of {len(both)} kernels; lowering "
            f"{1e3 * statistics.median(lowering.values()):.1f} ms",
        ),
        Figure(
            "compile a kernel whose object is cached, median",
            1e3 * statistics.median(cached.values()),
            "ms",
        ),
        Figure("compile a kernel, slowest", 1e3 * both[slowest], "ms", None, slowest),
    ]


def _add(size: int) -> PrimFunc:
    a, b = te.placeholder((size,), name="A"), te.placeholder((size,), name="B")
    return te.create_prim_func([a, b, te.compute((size,), lambda i: a[i] + b[i], name="C")])


def call_overhead(target: Target, calls: int = 20_000) -> list[Figure]:
    """Call a kernel that does nearly nothing with three arrays of each kind."""
    module = driver.compile(_add(16), target)
    arrays = [np.zeros(16, "float32") for _ in range(3)]
    kinds: dict[str, Sequence[Any]] = {
        "tvm-ffi tensors": [from_numpy(array) for array in arrays],
        "numpy": arrays,
    }
    if importlib.util.find_spec("torch") is not None:
        import torch

        kinds["torch"] = [torch.zeros(16) for _ in range(3)]

    def per_call(function: Any, args: Sequence[Any]) -> float:
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(calls // 5):
                function(*args)
            best = min(best, (time.perf_counter() - start) / (calls // 5))
        return best

    figures = [
        Figure(
            "call, tvm-ffi function and tensors",
            1e6 * per_call(module["main"].ffi, kinds["tvm-ffi tensors"]),
            "us",
            1,
        )
    ]
    for kind, args in kinds.items():
        aim = 1 if kind == "tvm-ffi tensors" else None
        seconds = per_call(module["main"], args)
        figures.append(Figure(f"call, {kind}", 1e6 * seconds, "us", aim))
    return figures


def import_time(repeats: int = 7) -> list[Figure]:
    """Import in fresh interpreters; the note says which heavy modules that loads."""

    def measure(statement: str) -> tuple[float, str]:
        program = (
            f"import sys, time; start = time.perf_counter(); {statement}; "
            f"print(time.perf_counter() - start); "
            f"print(', '.join(name for name in {HEAVY!r} if name in sys.modules))"
        )
        times, loaded = [], ""
        for _ in range(repeats):
            output = subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                check=True,
                env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
            ).stdout.splitlines()
            times.append(float(output[0]))
            loaded = output[1] if len(output) > 1 else ""
        return statistics.median(times), loaded

    figures = []
    for name, statement, aim in (
        ("import tilewright", "import tilewright", 300),
        ("import with te and compile", "import tilewright as t; t.compile, t.te.compute", None),
        (
            "import with relax and tuning",
            "import tilewright as t; t.meta_schedule.tune_tir, t.relax.build",
            None,
        ),
    ):
        seconds, loaded = measure(statement)
        note = f"of {', '.join(HEAVY)} loads {loaded or 'none'}"
        figures.append(Figure(name, 1e3 * seconds, "ms", aim, note))
    return figures


def _replay(context: TuneContext, candidate: Any) -> None:
    """Make a candidate again from its trace, postprocs included."""
    sch = Schedule(context.mod)
    candidate.sch.trace.apply_to_schedule(sch, remove_postproc=True)
    sch.enter_postproc()
    for postproc in context.space_generator.postprocs:
        assert postproc.apply(sch) is None


def _conv2d_bias_relu(channels: int = 64, size: int = 56) -> PrimFunc:
    x = te.placeholder((1, channels, size, size), name="X")
    weight = te.placeholder((channels, channels, 3, 3), name="W")
    bias = te.placeholder((channels,), name="bias")
    conv = topi.nn.conv2d(x, weight, strides=1, padding=1)
    added = te.compute(conv.shape, lambda n, c, h, w: conv[n, c, h, w] + bias[c], name="add")
    relu = te.compute(conv.shape, lambda *i: te.maximum(added[i], 0.0), name="relu")
    return te.create_prim_func([x, weight, bias, relu])


def _candidates(func: PrimFunc, target: Target, count: int) -> tuple[TuneContext, Any]:
    """Return the candidates that a search without knowledge measures first."""
    context = TuneContext(func, target=target)
    spaces = context.generate_design_space()
    strategy = context.search_strategy
    strategy._initialize_with_tune_context(context)
    strategy.pre_tuning(
        max_trials=count,
        num_trials_per_iter=count,
        design_spaces=spaces,
        database=MemoryDatabase(),
        cost_model=CostModel.create("random"),
    )
    return context, strategy.generate_measure_candidates(count)


def candidate_compile_time(target: Target, count: int = 16) -> list[Figure]:
    """Lower and compile candidates of the search, as a builder's worker does, without the cache."""
    gc.freeze()
    keep_switches()
    times = []
    for name in TUNED:
        _, candidates = _candidates(WORKLOADS[name].prim_func(), target, count)
        for candidate in candidates:
            wanted = BuilderInput(candidate.sch.mod, target)
            with _without_cache():
                default_build(wanted)
                times.append(_best(default_build, wanted, count=2))
    return [
        Figure(
            "compile a candidate, median",
            1e3 * statistics.median(times),
            "ms",
            15,
            f"CPU time of {len(times)} candidates of {len(TUNED)} operators",
        )
    ]


def replay_fused(target: Target, count: int = 16) -> list[Figure]:
    """Replay candidates of a convolution whose bias and ReLU are fused into its tiles."""
    context, candidates = _candidates(_conv2d_bias_relu(), target, count)
    each = [_best(_replay, context, candidate, count=5) for candidate in candidates]
    return [
        Figure(
            "replay + postprocs, conv2d + bias + ReLU",
            1e3 * statistics.median(each),
            "ms",
            5,
            f"{len(each)} candidates, slowest {1e3 * max(each):.1f} ms, CPU time",
        )
    ]


def search(target: Target, count: int = 48) -> list[Figure]:
    """Search for candidates of a matrix product; replay them with postprocs."""
    func = WORKLOADS["gemm 512x512x512"].prim_func()
    start = time.perf_counter()
    context = TuneContext(func, target=target)
    spaces = context.generate_design_space()
    made = time.perf_counter() - start
    strategy = context.search_strategy
    start = time.perf_counter()
    model = CostModel.create("xgb")
    assert model is not None
    strategy._initialize_with_tune_context(context)
    strategy.pre_tuning(
        max_trials=4 * count,
        num_trials_per_iter=count,
        design_spaces=spaces,
        database=MemoryDatabase(),
        cost_model=model,
    )
    prepared = time.perf_counter() - start
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(3):
        start = time.perf_counter()
        candidates = strategy.generate_measure_candidates(count) or []
        batches.append(time.perf_counter() - start)
        results = [RunnerResult((float(s),)) for s in rng.uniform(1e-3, 2e-3, len(candidates))]
        strategy.notify_runner_results(candidates, results)
        start = time.perf_counter()
        model.update(context, candidates, results)
        model.predict(context, candidates[:1])  # trees are fitted when they are first asked
        learned = time.perf_counter() - start

    each = [_best(_replay, context, candidate, count=3) for candidate in candidates]
    return [
        Figure(
            "replay + postprocs per candidate",
            1e3 * statistics.median(each),
            "ms",
            3,
            f"matmul, {len(each)} candidates of {len(spaces)} sketches, CPU time",
        ),
        Figure("design space, matmul", 1e3 * made, "ms"),
        Figure("symbolic replay of its sketches", 1e3 * prepared, "ms"),
        Figure(
            f"search for {count} candidates",
            1e3 * statistics.median(batches),
            "ms",
            None,
            "replay and postprocs included",
        ),
        Figure("update of the cost model", 1e3 * learned, "ms"),
    ]


def figures() -> list[Figure]:
    """Measure everything."""
    target = Target("native").with_options(num_cores=1)
    return [
        *import_time(),
        *call_overhead(target),
        *compile_time(target),
        *candidate_compile_time(target),
        *replay_fused(target),
        *search(target),
    ]


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core", description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = figures()
    if options.json:
        table.dump([figure.__dict__ for figure in found])
        return
    table.show(
        "Tilewright's own steps",
        ["step", "measured", "target", "note"],
        [figure.row() for figure in found],
    )


if __name__ == "__main__":
    main()
