"""Process replay: what comes out of the compiler, as text, to be compared between two versions.

``python -m benchmarks.replay write FOLDER`` writes the LLVM IR of every workload by rule (with
weights that come with each call, and with constant ones) for each number of threads, and the
traces of a fixed search on some of them. ``python -m benchmarks.replay compare OLD NEW`` says which
files differ, and exits with 1 if any does. A change that is to change no code changes no file.

Run both from clean worktrees of the two versions, with ``PYTHONPATH`` set to the version's
``src``. Costs of the search's candidates are random numbers of a seed, so that no measurement has
a say in it.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from unittest import mock

from benchmarks.own import graph_of
from benchmarks.workload import Unavailable, Workload
from benchmarks.workloads import WORKLOADS
from tilewright import dlight, driver, relax
from tilewright.codegen.llvm.emit import EmittedModule, emit_module
from tilewright.ir import IRModule
from tilewright.meta_schedule.cost_model import CostModel
from tilewright.meta_schedule.packing import split_packing
from tilewright.meta_schedule.tune_context import TuneContext
from tilewright.relax.tuning.models import to_tensor_functions
from tilewright.target import Target

#: Tasks whose search is replayed, and how many candidates are drawn of each.
SEARCHED = (
    "gemm 128x768x3072",
    "conv2d 128->128 3x3 @28",
    "depthwise 96 3x3 @112",
    "softmax 197x197",
    "sum 4096x4096 axis 0",
)
CANDIDATES = 24


def code(workload: Workload, target: Target, constant: bool) -> str:
    """Return the LLVM IR of a workload by rule, or why there is none."""
    texts: list[str] = []

    def emit(lowered: IRModule, target: Target) -> EmittedModule:
        emitted = emit_module(lowered, target)
        texts.append(emitted.text)
        return emitted

    # ``tilewright.driver.build`` is the function, not its module.
    build = importlib.import_module("tilewright.driver.build")
    # A graph that is found in the cache isn't emitted.
    uncached = mock.patch.dict(os.environ, {"TILEWRIGHT_CACHE_GRAPHS": "0"})
    with uncached, mock.patch.object(build, "emit_module", emit):
        try:
            if constant and workload.graph is not None:
                relax.build(to_tensor_functions(graph_of(workload), target), target)
            else:
                mod = IRModule({"main": workload.prim_func(constant)})
                mod = dlight.default_schedule(target)(mod)
                emit(driver.lower(split_packing(mod)[0], target), target)
        except Unavailable as reason:
            return f"{reason}\n"
    return "\n".join(texts)


def search(workload: Workload, target: Target) -> str:
    """Return the sketches of a workload, and the first candidates of its search, as traces."""
    context = TuneContext(workload.prim_func(), target=target)
    sketches = context.generate_design_space()
    strategy = context.search_strategy
    strategy._initialize_with_tune_context(context)
    strategy.pre_tuning(
        max_trials=CANDIDATES,
        num_trials_per_iter=CANDIDATES,
        design_spaces=sketches,
        cost_model=CostModel.create("random"),
    )
    found = strategy.generate_measure_candidates(CANDIDATES) or []
    traces = [item.trace for item in sketches] + [item.sch.trace for item in found]
    return "\n\n".join(str(trace) for trace in traces)


def _file(folder: Path, target: Target, threads: int, case: tuple[str, str]) -> None:
    name, what = case
    workload, target = WORKLOADS[name], target.with_options(num_cores=threads)
    if what == "search":
        text = search(workload, target)
    else:
        text = code(workload, target, what == "constant weights")
    stem = re.sub(r"[^\w.-]+", "_", f"{name} {threads} {what}")
    (folder / f"{stem}.txt").write_text(text)


def write(folder: Path, target: Target, threads: list[int], jobs: int) -> None:
    """Write a file for each workload, number of threads, and kind of text."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs) as pool:
        for count in threads:
            cases = [(name, "weights as arguments") for name in WORKLOADS]
            cases += [(name, "constant weights") for name, w in WORKLOADS.items() if w.weights]
            cases += [(name, "search") for name in SEARCHED]
            list(pool.map(partial(_file, folder, target, count), cases))
    print(f"{len(list(folder.iterdir()))} files in {folder}")


def compare(old: Path, new: Path, *, lines: int) -> int:
    """Print which files differ, and the first ``lines`` lines of the first difference of each."""
    names = sorted({item.name for folder in (old, new) for item in folder.iterdir()})
    differing = 0
    for name in names:
        texts = [
            path.read_text().splitlines() if path.exists() else []
            for path in (old / name, new / name)
        ]
        if texts[0] == texts[1]:
            continue
        differing += 1
        print(name)
        for line in list(difflib.unified_diff(texts[0], texts[1], lineterm="", n=0))[2 : 2 + lines]:
            print(f"    {line[:160]}")
    print(f"{differing} of {len(names)} files differ")
    return 1 if differing else 0


def main(arguments: list[str] | None = None) -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write", help="write the texts of this version")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--target", default="native")
    writing.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    writing.add_argument("--jobs", type=int, default=2)
    comparing = commands.add_parser("compare", help="compare the texts of two versions")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--lines", type=int, default=4)
    options = parser.parse_args(arguments)
    if options.command == "compare":
        return compare(options.old, options.new, lines=options.lines)
    write(options.folder, Target(options.target), options.threads, options.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
