"""``tilewright demo``: the whole workflow, on two small networks.

Networks are divided into tasks, the tasks tuned into a database, the records applied, and the
results compared with NumPy and timed against the untuned, the rule-based and PyTorch's version.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tilewright.cli.compile import flat_arrays, relative_error
from tilewright.cli.logs import log_options
from tilewright.cli.options import target_option
from tilewright.cli.output import json_option, make_console, make_folder, print_json
from tilewright.cli.tune import describe, run_tuning
from tilewright.ir import IRModule
from tilewright.meta_schedule.database import JSONDatabase
from tilewright.meta_schedule.extracted_task import ExtractedTask
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.meta_schedule.progress import task_table
from tilewright.relax import VirtualMachine, build
from tilewright.relax.frontend import nn
from tilewright.relax.transform import BindParams
from tilewright.relax.tuning.models import extract_tasks, to_tensor_functions
from tilewright.support.errors import RunError
from tilewright.support.text import human_time
from tilewright.target import Target

Array = np.ndarray[Any, Any]
logger = logging.getLogger("tilewright.cli")


class MLP(nn.Module):
    """784 - 256 - 10 without bias."""

    def __init__(self) -> None:
        self.fc1 = nn.Linear(784, 256, bias=False)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(256, 10, bias=False)

    def forward(self, x: object) -> Any:
        """Apply: ``[N, 784] -> [N, 10]``."""
        return self.fc2(self.relu(self.fc1(x)))


class ConvNet(nn.Module):
    """Three convolutions, a mean over the image and a linear layer."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2D(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2D(32, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2D(64, 64, 3, padding=1)
        self.relu = nn.ReLU()
        self.head = nn.Linear(64, 10)

    def forward(self, x: object) -> Any:
        """Apply: ``[N, 3, 32, 32] -> [N, 10]``."""
        for conv in (self.conv1, self.conv2, self.conv3):
            x = self.relu(conv(x))
        return self.head(nn.op.mean(x, axis=[2, 3]))


def mlp_numpy(state: dict[str, Array], x: Array) -> Array:
    """Compute the MLP in double precision."""
    w = {key: value.astype("float64") for key, value in state.items()}
    hidden = np.maximum(x.astype("float64") @ w["fc1.weight"].T, 0)
    return np.asarray(hidden @ w["fc2.weight"].T)


def conv_numpy(x: Array, weight: Array, bias: Array, stride: int) -> Array:
    """Compute a padded 3x3 convolution with windows of the padded image."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    sums: Array = np.einsum("nchwij,fcij->nfhw", windows, weight, optimize=True)
    return sums + bias[:, None, None]


def conv_net_numpy(state: dict[str, Array], x: Array) -> Array:
    """Compute the convolutional network in double precision."""
    w = {key: value.astype("float64") for key, value in state.items()}
    y = x.astype("float64")
    for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 1)):
        y = np.maximum(conv_numpy(y, w[f"{name}.weight"], w[f"{name}.bias"], stride), 0)
    return np.asarray(y.mean((2, 3)) @ w["head.weight"].T + w["head.bias"])


@dataclass
class Network:
    """A network of the demo: graph, parameters, input, and NumPy's result."""

    name: str
    mod: IRModule
    state: dict[str, Array]
    x: Array
    reference: Array


def networks() -> list[Network]:
    """Make the networks with random parameters, equal in each run."""
    rng = np.random.default_rng(0)
    made = []
    for name, model, shape, numpy_version in (
        ("MLP 784-256-10", MLP(), (1, 784), mlp_numpy),
        ("ConvNet 3x32x32", ConvNet(), (1, 3, 32, 32), conv_net_numpy),
    ):
        for parameter in model.parameters():
            fan_in = int(np.prod(parameter.shape[1:])) or 1
            values = rng.standard_normal(parameter.shape) / np.sqrt(fan_in)
            parameter.data = values.astype("float32")
        state = {name: parameter.data for name, parameter in model.named_parameters()}
        x = rng.standard_normal(shape).astype("float32")
        mod, _ = model.export({"forward": {"x": nn.spec.Tensor(shape, "float32")}})
        mod = BindParams("forward", state)(mod)
        made.append(Network(name, mod, state, x, numpy_version(state, x)))
    return made


# The peer runs in a process of its own: its thread pool and ours would disturb each other.
_PYTORCH = """
import json, sys, time, numpy as np, torch
kind, threads, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(threads)
data = np.load(path)
w = {key: torch.from_numpy(data[key]) for key in data.files}
F = torch.nn.functional
def mlp(x):
    return F.linear(F.relu(F.linear(x, w["fc1.weight"])), w["fc2.weight"])
def conv(x):
    for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 1)):
        x = F.relu(F.conv2d(x, w[name + ".weight"], w[name + ".bias"], stride, 1))
    return F.linear(x.mean((2, 3)), w["head.weight"], w["head.bias"])
run, x = (mlp if kind.startswith("MLP") else conv), w["input"]
times = []
with torch.inference_mode():
    for _ in range(20): run(x)
    for _ in range(15):
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < 0.02:
            run(x); count += 1
        times.append((time.perf_counter() - start) / count)
print(json.dumps(sorted(times)[len(times) // 2]))
"""


def best_of_pytorch(network: Network, cores: int, folder: Path) -> float | None:
    """Measure PyTorch on one thread and on all cores; return the better result, if any.

    On a busy machine its threads wait for each other much longer than ours.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    measured = [pytorch_seconds(network, threads, folder) for threads in sorted({1, cores})]
    return min((seconds for seconds in measured if seconds is not None), default=None)


def pytorch_seconds(network: Network, threads: int, folder: Path) -> float | None:
    """Measure PyTorch's latency of a network; ``None``, with a warning, if that fails."""
    path = folder / "network.npz"
    arrays: dict[str, Any] = {**network.state, "input": network.x}
    np.savez(path, **arrays)
    command = [sys.executable, "-c", _PYTORCH, network.name, str(threads), str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        logger.warning("PyTorch is installed but took too long to be measured")
        return None
    finally:
        path.unlink(missing_ok=True)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        logger.warning("PyTorch is installed but can't be measured: %s", reason)
        return None
    return float(json.loads(done.stdout))


def _measure(
    mod: IRModule, target: Target, x: Array, schedule: Any = "default"
) -> tuple[Any, float]:
    """Build; return the result and the median seconds of a call."""
    machine = VirtualMachine(build(mod, target, relax_pipeline=None, tir_pipeline=schedule))
    result = flat_arrays(machine["forward"](x))
    timing = machine.time_evaluator("forward", repeat=15, min_repeat_ms=20)(x)
    return result, timing.median


def _needs_tuning(tasks: Sequence[ExtractedTask], work_dir: Path, target: Target) -> list[str]:
    """Return the names of the tasks without a record in the database."""
    database = JSONDatabase(work_dir=work_dir)
    return [
        task.task_name for task in tasks if database.query_tuning_record(task.mod, target) is None
    ]


@click.command("demo")
@click.option("--trials", type=click.IntRange(min=1), default=40, show_default=True,
              help="Candidates to measure per task.")  # fmt: skip
@click.option("--again", is_flag=True, help="Tune even if the database has records already.")
@click.option("--work-dir", type=click.Path(file_okay=False), default="demo_work",
              show_default=True, help="Folder of the databases.")  # fmt: skip
@target_option
@json_option
@log_options
def demo_command(trials: int, again: bool, work_dir: str, target: Target, as_json: bool) -> None:
    """Tune, apply and run two small networks; compare with NumPy and PyTorch.

    Tasks with a record in the work directory's database are not tuned again.
    """
    console = make_console(stderr=as_json)
    start = time.monotonic()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    folder = make_folder(work_dir)
    say(f"target: {target}")
    report = []
    for network in networks():
        report.append(_demonstrate(network, folder, trials, again, target, console, say))
    say(f"\ndone in {time.monotonic() - start:.0f} s; the records are in {folder}/")
    if as_json:
        print_json({"target": str(target), "networks": report})
    else:
        console.print(_latencies(report))
    worst = max(entry["max_relative_error"] for entry in report)
    if not worst <= 1e-4:
        raise RunError(f"a result differs from NumPy's by {worst:.1e} (relative)")


def _demonstrate(
    network: Network,
    folder: Path,
    trials: int,
    again: bool,
    target: Target,
    console: Console,
    say: Callable[[str], None],
) -> dict[str, Any]:
    say(f"\n== {network.name} ==")
    tasks = extract_tasks(network.mod, target)
    missing = _needs_tuning(tasks, folder, target)
    records: list[Any] = []
    if missing or again:
        chosen = tasks if again else [task for task in tasks if task.task_name in missing]
        say(f"tuning {len(chosen)} of {len(tasks)} tasks, {trials} trials each")
        search = run_tuning(
            chosen, console, work_dir=str(folder), trials=trials * len(chosen),
            trials_per_task=trials, num_trials_per_iter=min(trials, 20),
        )  # fmt: skip
        records = search.tasks
        console.print(task_table(records))
        if search.interrupted:
            raise click.Abort  # the rest of the demo was not wanted
    else:
        say(f"the database has records for all {len(tasks)} tasks; nothing to tune (--again tunes)")
    mod = to_tensor_functions(network.mod, target)
    applied = MetaScheduleApplyDatabase(folder, target=target)(mod)
    _, untuned = _measure(mod, target, network.x, schedule=None)
    _, by_rule = _measure(mod, target, network.x)
    result, tuned = _measure(applied, target, network.x)
    error = relative_error(result, [network.reference])
    say(f"max relative error against NumPy (double precision): {error:.2e}")
    return {
        "network": network.name,
        "tasks": describe(records),
        "max_relative_error": error,
        "seconds": {
            "untuned": untuned,
            "rule-based": by_rule,
            "tuned": tuned,
            "pytorch": best_of_pytorch(network, target.num_cores, folder),
        },
    }


def _latencies(report: list[dict[str, Any]]) -> Table:
    table = Table(title="latency (median; PyTorch: the better of one thread and all cores)")
    table.add_column("network")
    columns = ("untuned", "rule-based", "tuned", "pytorch")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("tuned against PyTorch", justify="right")
    for entry in report:
        seconds = entry["seconds"]
        peer = seconds["pytorch"]
        table.add_row(
            escape(entry["network"]),
            *(human_time(seconds[c]) if seconds[c] else "not available" for c in columns),
            f"{peer / seconds['tuned']:.2f}x" if peer else "-",
        )
    return table
