"""The steps under a search and a build: ``python -m benchmarks.ir``.

Replay of a convolution's trace with bias and ReLU, structural hash of a large module, throughput of
the simplifier on index expressions as they come out of schedules, lowering of ResNet-18 pass by
pass. Times are CPU times of this process; of repeated calls the shortest counts.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from typing import Any

from benchmarks import table
from benchmarks.core import Figure, _best
from benchmarks.networks import imported_model
from benchmarks.workloads import WORKLOADS
from tilewright import dlight, driver, te, topi
from tilewright.arith import Analyzer
from tilewright.ir import (
    Expr,
    IRModule,
    PassContext,
    PassTimingInstrument,
    Range,
    Visitor,
    structural_hash,
)
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.relax import get_pipeline
from tilewright.script import parse
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform import FlattenBuffer, block_passes


def conv2d_bias_relu() -> PrimFunc:
    """A 3x3 convolution of ResNet-18 with bias and ReLU."""
    data = te.placeholder((1, 128, 28, 28), name="data")
    weight = te.placeholder((128, 128, 3, 3), name="weight")
    bias = te.placeholder((1, 128, 1, 1), name="bias")
    out = topi.nn.relu(topi.add(topi.nn.conv2d(data, weight, strides=1, padding=1), bias))
    return te.create_prim_func([data, weight, bias, out])


def replay(target: Target, samples: int = 12) -> list[Figure]:
    """Replay traces of the search's sketches, with all postprocs."""
    context = TuneContext(conv2d_bias_relu(), target=target)
    spaces = context.generate_design_space()
    postprocs = context.space_generator.postprocs

    def once(trace: Any) -> bool:
        sch = Schedule(context.mod)
        trace.apply_to_schedule(sch, remove_postproc=True)
        sch.enter_postproc()
        return all(postproc.apply(sch) is None for postproc in postprocs)

    usable = []
    for seed in range(samples):
        for space in spaces:
            sch = Schedule(context.mod, seed=seed)
            space.trace.apply_to_schedule(sch, decision_provider=lambda *_: None)
            if once(sch.trace):
                usable.append(sch.trace)
    each = [1e3 * _best(once, trace, count=5) for trace in usable]
    note = f"{len(each)} traces of {len(spaces)} sketches, {max(map(len, usable))} instructions"
    return [
        Figure("replay + postprocs, conv2d + bias + ReLU, median", statistics.median(each), "ms",
               5, note),
        Figure("replay + postprocs, the slowest of these", max(each), "ms", 5),
    ]  # fmt: skip


def large_module(blocks: int) -> PrimFunc:
    """A chain of elementwise blocks."""
    value = te.placeholder((64, 64), name="A")
    first = value
    for number in range(blocks):
        value = te.compute(
            (64, 64),
            lambda i, j, value=value: value[i, j] * 2.0 + 1.0,
            name=f"B{number}",
        )
    return te.create_prim_func([first, value])


def hashing(blocks: int = 200) -> list[Figure]:
    """Hash a module of many blocks; each time a fresh tree, so that nothing is remembered."""
    mod = IRModule({"main": large_module(blocks)})
    text = mod.script()
    fresh = [parse(text) for _ in range(3)]
    seconds = min(_best(structural_hash, item, count=1) for item in fresh)
    return [Figure(f"structural_hash of {blocks} blocks", 1e3 * seconds, "ms", 10)]


class _Indices(Visitor):
    """Collects index expressions with the loops around them."""

    def __init__(self) -> None:
        self.loops: list[Any] = []
        self.found: list[tuple[Expr, tuple[Any, ...]]] = []

    def visit_For(self, node: Any) -> None:
        self.loops.append(node)
        self.generic_visit(node)
        self.loops.pop()

    def visit_BufferLoad(self, node: Any) -> None:
        self.found.extend((index, tuple(self.loops)) for index in node.indices)
        self.generic_visit(node)

    def visit_BufferStore(self, node: Any) -> None:
        self.found.extend((index, tuple(self.loops)) for index in node.indices)
        self.generic_visit(node)


def simplifying(target: Target) -> list[Figure]:
    """Simplify the flat indices of all rule-based schedules of the operator benchmark."""
    rules = dlight.default_schedule(target)
    cases = []
    for workload in WORKLOADS.values():
        mod = rules(IRModule({"main": workload.prim_func()}))
        for item in (*block_passes(), FlattenBuffer()):
            mod = item(mod)
        collector = _Indices()
        collector.visit(mod["main"].body)
        by_loops: dict[tuple[Any, ...], list[Expr]] = {}
        for index, loops in collector.found:
            by_loops.setdefault(loops, []).append(index)
        cases.append(list(by_loops.items()))
    count = sum(len(exprs) for case in cases for _, exprs in case)

    def run() -> None:
        for case in cases:
            for loops, exprs in case:
                analyzer = Analyzer()
                for loop in loops:
                    analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
                for expr in exprs:
                    analyzer.simplify(expr)

    seconds = _best(run, count=5)
    return [
        Figure(
            "simplifier, flat indices of schedules",
            count / seconds,
            "expressions/s",
            None,
            f"{count} expressions, {1e6 * seconds / count:.0f} us each",
        )
    ]


def lowering(target: Target) -> list[Figure]:
    """Lower the scheduled functions of ResNet-18."""
    mod, _, _ = imported_model("resnet18")
    with target:
        mod = dlight.default_schedule(target)(get_pipeline("zero")(mod))
    functions = {name: func for name, func in mod.functions.items() if isinstance(func, PrimFunc)}
    each = {
        name: 1e3 * _best(driver.lower, func, target, count=3) for name, func in functions.items()
    }
    gc.freeze()  # else one pass pays for a walk over the whole model
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        driver.lower(IRModule(functions), target)
    total = sum(seconds for name, seconds in timing.seconds.items() if name != "LowerForCPU")
    costly = sorted(timing.seconds.items(), key=lambda row: -row[1])
    parts = [f"{name} {100 * s / total:.0f} %" for name, s in costly if name != "LowerForCPU"][:4]
    slowest = max(each, key=lambda name: each[name])
    return [
        Figure(f"lower ResNet-18, {len(each)} functions", sum(each.values()), "ms", None,
               ", ".join(parts)),
        Figure("lower one of them, median", statistics.median(each.values()), "ms"),
        Figure("lower one of them, slowest", each[slowest], "ms", None, slowest),
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ir", description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    target = Target("native").with_options(num_cores=1)
    start = time.perf_counter()
    found = [*replay(target), *hashing(), *simplifying(target), *lowering(target)]
    if options.json:
        table.dump([figure.__dict__ for figure in found])
        return
    table.show(
        f"IR and schedules ({time.perf_counter() - start:.0f} s)",
        ["step", "measured", "target", "note"],
        [figure.row() for figure in found],
    )


if __name__ == "__main__":
    main()
