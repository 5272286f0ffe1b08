"""``tilewright compile MODEL`` and ``tilewright run MODEL``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from tilewright.cli.inputs import input_option, random_inputs, with_inputs
from tilewright.cli.logs import log_options
from tilewright.cli.model import MODEL_HELP, LoadedModel, load_model
from tilewright.cli.options import (
    Dynamic,
    Place,
    Shapes,
    dynamic_option,
    place_options,
    shape_option,
    target_option,
)
from tilewright.cli.output import given, json_option, make_console, print_json
from tilewright.meta_schedule.database import Database, MemoryDatabase, is_url, open_place
from tilewright.meta_schedule.passes import ADAPT, Applied
from tilewright.relax import Executable, VirtualMachine, as_numpy, build, load_executable
from tilewright.relax.frontend.onnx import load_model as load_onnx
from tilewright.relax.tuning.models import apply_database
from tilewright.runtime import tensor
from tilewright.runtime.timing import TimingResult
from tilewright.support.errors import BuildError, RunError
from tilewright.support.text import human_time
from tilewright.target import Target
from tilewright.tir import PrimFunc


def build_model(
    loaded: LoadedModel, target: Target, place: str | None, adapt: str = "never"
) -> tuple[Executable, list[Applied]]:
    """Build a model; return it, and what became of its functions."""
    if all(isinstance(function, PrimFunc) for function in loaded.mod.functions.values()):
        raise BuildError(
            f"{loaded.name} gives tensor functions and no graph: `tilewright tune` takes that, "
            "tilewright.compile builds it from Python"
        )
    if place is None:
        database: Database = MemoryDatabase()
    else:
        database = open_place(place, allow_missing=not is_url(place))
    mod, report = apply_database(database, loaded.mod, target, adapt=adapt)
    return build(mod, target, relax_pipeline=None), report


def tuned_functions(report: Sequence[Applied]) -> int:
    """How many functions have a record's schedule, their own or another's."""
    return sum(item.outcome in ("record", "adapted") for item in report)


@click.command("compile", epilog=MODEL_HELP)
@click.argument("model")
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True,
              help="The shared library to write (.so); signatures go beside it.")  # fmt: skip
@click.option("--explain", is_flag=True,
              help="Say of each function which schedule it gets, and why.")  # fmt: skip
@click.option("--adapt", type=click.Choice(ADAPT), default=ADAPT[0], show_default=True,
              help="Whether functions without a record get one of another shape or fusion: if it "
                   "is measured to be faster than by rule, or always.")  # fmt: skip
@shape_option
@dynamic_option
@target_option
@place_options
@json_option
@log_options
def compile_command(
    model: str, output: str, explain: bool, adapt: str, shapes: Shapes,
    dynamic: tuple[Dynamic, ...], target: Target, place: Place, as_json: bool,
) -> None:  # fmt: skip
    """Compile a model into a shared library.

    Functions with a record in the database get the tuned schedule, others one by rule.
    """
    found = place.existing()
    loaded = load_model(model, shapes, dynamic)
    executable, report = build_model(loaded, target, found, adapt)
    path, tuned = executable.export_library(output), tuned_functions(report)
    if as_json:
        made = {"library": str(path), "functions": len(report), "tuned": tuned}
        reasons = {"explained": [asdict(item) for item in report]} if explain else {}
        print_json({**made, "target": str(target), **reasons})
        return
    if explain:
        width = max((len(item.name) for item in report), default=0)
        for item in report:
            click.echo(f"{item.name:{width}}  {item.outcome:7}  {item.why}")
    click.echo(f"wrote {path}: {len(report)} functions, {tuned} of them tuned")


@click.command("run", epilog=MODEL_HELP)
@click.argument("model")
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True,
              help="Measurements of the latency.")  # fmt: skip
@click.option("--tolerance", type=click.FloatRange(min=0), default=1e-2, show_default=True,
              help="Fail if a result differs by more, relative to the largest value.")  # fmt: skip
@shape_option
@dynamic_option
@input_option
@target_option
@place_options
@json_option
@log_options
def run_command(
    model: str, repeat: int, tolerance: float, shapes: Shapes, dynamic: tuple[Dynamic, ...],
    inputs_by_name: tuple[tuple[str, Path], ...], target: Target, place: Place, as_json: bool,
) -> None:  # fmt: skip
    """Run a model or a compiled library on example inputs, and measure it.

    A library that `tilewright compile` wrote (.so) and an ONNX model run on random inputs, except
    those that --input gives. The result of a PyTorch model is compared with PyTorch's.
    """
    error: float | None = None
    if model.endswith(".so"):
        for option in ("target", "work_dir", "database", "tolerance", "dynamic"):
            if given(option):
                name = option.replace("_", "-")
                raise click.UsageError(
                    f"--{name} says how a model is compiled and compared; "
                    f"{model} is compiled already"
                )
        if not Path(model).is_file():
            raise click.UsageError(f"there is no file {model}")
        executable, loaded = load_executable(model), None
        if not executable.signatures:
            raise BuildError(f"{model} holds no graph function")
        entry = next(iter(executable.signatures))
        inputs = random_inputs(executable.signatures[entry], shapes)
    else:
        found = place.existing()
        sizes = [item for item in shapes if _is_size(model, item)]
        loaded = load_model(model, [item for item in shapes if item not in sizes], dynamic)
        executable, _ = build_model(loaded, target, found)
        entry = loaded.entry
        signature = executable.signatures[entry]
        inputs = random_inputs(signature, sizes) if loaded.inputs is None else loaded.inputs
    if inputs_by_name:
        inputs = with_inputs(executable.signatures[entry], inputs, inputs_by_name)
        loaded = None  # whose reference is of other inputs
    machine = VirtualMachine(executable)
    if machine.device.kind != "cpu":
        inputs = [tensor(item, device=machine.device) for item in inputs]
    try:
        outputs = flat_arrays(machine[entry](*inputs))
    except (TypeError, ValueError, RuntimeError) as problem:  # inputs that don't fit
        raise RunError(f"{model}: {problem}") from problem
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
    else:
        _show(outputs, timing, error)
    if error is not None and not error <= tolerance:
        raise RunError(
            f"the result differs from the model's own by {error:.1e} (relative), "
            f"more than {tolerance:g}"
        )


def _is_size(model: str, item: tuple[str, list[int]]) -> bool:
    """Whether a shape is one of a size, such as ``n=32``, and of no input of an ONNX model."""
    name, shape = item
    if len(shape) != 1 or not model.endswith(".onnx") or not Path(model).is_file():
        return False
    return name not in [value.name for value in load_onnx(model).graph.input]


def _show(outputs: list[Any], timing: TimingResult, error: float | None) -> None:
    console = make_console()
    for number, output in enumerate(outputs):
        console.print(f"output {number}: {output.dtype}{list(output.shape)}", markup=False)
    console.print(f"latency: median {human_time(timing.median)}, least {human_time(timing.min)}")
    if error is not None:
        console.print(f"max relative error against the model itself: {error:.2e}")


def flat_arrays(result: object) -> list[np.ndarray[Any, Any]]:
    """Return the tensors of a result as NumPy arrays."""
    if isinstance(result, (tuple, list)):
        return [array for item in result for array in flat_arrays(item)]
    return [as_numpy(result)]


def relative_error(actual: list[Any], expected: list[Any]) -> float:
    """Return the largest difference relative to the largest expected magnitude.

    Infinity if a result is NaN or infinite where the expected one is finite.
    """
    if len(actual) != len(expected):
        raise RunError(f"{len(actual)} outputs, {len(expected)} were expected")
    worst = 0.0
    for number, (a, e) in enumerate(zip(actual, expected)):
        if a.shape != e.shape:
            raise RunError(f"output {number} has shape {a.shape}, {e.shape} was expected")
        a, e = a.astype("float64"), e.astype("float64")
        finite = np.isfinite(e)
        if not np.array_equal(a[~finite], e[~finite], equal_nan=True):
            return float("inf")
        scale = max(float(np.abs(e[finite]).max(initial=0.0)), 1e-30)
        error = float(np.abs(a[finite] - e[finite]).max(initial=0.0)) / scale
        worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst
