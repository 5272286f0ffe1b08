"""``tilewright compile MODEL`` and ``tilewright run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from tilewright.cli.model import LoadedModel, load_model
from tilewright.cli.options import json_option, print_json, target_option, work_dir_option
from tilewright.meta_schedule.database import JSONDatabase
from tilewright.meta_schedule.passes import IS_SCHEDULED, MetaScheduleApplyDatabase
from tilewright.relax import Executable, VirtualMachine, build, load_executable
from tilewright.relax.tuning import to_tensor_functions
from tilewright.runtime import numpy_dtype
from tilewright.support.errors import BuildError
from tilewright.support.text import human_time
from tilewright.target import Target
from tilewright.tir import PrimFunc


def build_model(
    loaded: LoadedModel, target: Target, work_dir: str | None
) -> tuple[Executable, int, int]:
    """Build a model; return it with the number of functions and of those with a record."""
    mod = to_tensor_functions(loaded.mod, target)
    functions = [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
    tuned = 0
    if work_dir is not None and Path(work_dir).is_dir():
        database = JSONDatabase(work_dir=work_dir)
        mod = MetaScheduleApplyDatabase(database=database, target=target)(mod)
        tuned = sum(
            bool(f.attrs.get(IS_SCHEDULED))
            for f in mod.functions.values()
            if isinstance(f, PrimFunc)
        )
    return build(mod, target, pipeline=None), len(functions), tuned


@click.command("compile")
@click.argument("model")
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True,
              help="The shared library to write (.so); signatures go beside it.")  # fmt: skip
@target_option
@work_dir_option
@json_option
def compile_command(model: str, output: str, target: Target, work_dir: str, as_json: bool) -> None:
    """Compile a model into a library, with the tuned schedules where the database has some."""
    executable, functions, tuned = build_model(load_model(model), target, work_dir)
    path = executable.export_library(output)
    if as_json:
        print_json({"library": str(path), "functions": functions, "tuned": tuned})
    else:
        click.echo(f"wrote {path}: {functions} functions, {tuned} of them tuned")


@click.command("run")
@click.argument("model")
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True,
              help="Measurements of the latency.")  # fmt: skip
@target_option
@work_dir_option
@json_option
def run_command(model: str, repeat: int, target: Target, work_dir: str, as_json: bool) -> None:
    """Run a model or a compiled library on example inputs, and measure it.

    MODEL is a library that `tilewright compile` wrote (.so), a .pt2 file, or module:function. Where
    the model's own framework can compute the result, it is compared.
    """
    error: float | None = None
    if model.endswith(".so"):
        executable, loaded = load_executable(model), None
        entry = next(iter(executable.signatures))
        inputs = _random_inputs(executable, entry)
    else:
        loaded = load_model(model)
        executable, _, _ = build_model(loaded, target, work_dir)
        entry, inputs = loaded.entry, loaded.inputs
    machine = VirtualMachine(executable)
    outputs = flat_arrays(machine[entry](*inputs))
    if loaded is not None and loaded.reference is not None:
        error = relative_error(outputs, loaded.reference())
    timing = machine.time_evaluator(entry, number=1, repeat=repeat, min_repeat_ms=20)(*inputs)
    report = {
        "outputs": [{"shape": list(o.shape), "dtype": str(o.dtype)} for o in outputs],
        "median_seconds": timing.median,
        "min_seconds": timing.min,
        "max_relative_error": error,
    }
    if as_json:
        print_json(report)
        return
    console = Console()
    for number, output in enumerate(outputs):
        console.print(f"output {number}: {output.dtype}{list(output.shape)}", markup=False)
    console.print(f"latency: median {human_time(timing.median)}, least {human_time(timing.min)}")
    if error is not None:
        console.print(f"max relative error against the model itself: {error:.2e}")


def _random_inputs(executable: Executable, entry: str) -> list[Any]:
    rng = np.random.default_rng(0)
    made = []
    for spec in executable.signatures[entry].inputs:
        shape = [extent for extent in spec.shape if isinstance(extent, int)]
        if len(shape) != len(spec.shape):
            raise BuildError(
                f"input {spec.name} has a symbolic shape {list(spec.shape)}; run it from Python"
            )
        dtype = numpy_dtype(spec.dtype)
        values = rng.random(shape) if dtype.kind in "fV" else rng.integers(0, 2, shape)
        made.append(values.astype(dtype))
    return made


def flat_arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    """Return the tensors of a result as NumPy arrays."""
    if isinstance(result, (tuple, list)):
        return [array for item in result for array in flat_arrays(item)]
    return [np.asarray(result.numpy() if hasattr(result, "numpy") else result)]


def relative_error(actual: list[Any], expected: list[Any]) -> float:
    """Return the largest difference relative to the largest expected magnitude."""
    if len(actual) != len(expected):
        raise BuildError(f"{len(actual)} outputs, {len(expected)} were expected")
    worst = 0.0
    for a, e in zip(actual, expected):
        scale = max(float(np.abs(e).max(initial=0.0)), 1e-30)
        worst = max(worst, float(np.abs(a.astype("float64") - e).max(initial=0.0)) / scale)
    return worst
