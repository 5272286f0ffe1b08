"""``tilewright doctor``: what works on this machine, what is missing and how to install it.

It imports nothing that may be missing: checks that need the compiler run in ``cli.selftest``.
"""

from __future__ import annotations

import json
import platform
import shutil
import signal
import subprocess
import sys
from importlib import metadata
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import tilewright
from tilewright.cli.logs import log_options
from tilewright.cli.output import json_option, make_console

# Distributions that bring each part of the core, the usual one first.
CORE = (
    ("numpy",),
    ("ml_dtypes",),
    ("llvmlite",),
    ("apache-tvm-ffi",),
    ("xgboost-cpu", "xgboost"),
    ("rich",),
    ("click",),
)
# Optional packages: distribution, what it is for, the extra that brings it. A row comes with the
# feature that uses it.
OPTIONAL = (
    ("torch", "importing PyTorch models, comparing with PyTorch", "torch"),
    ("onnx", "importing ONNX models", "onnx"),
    ("sqlalchemy", "databases behind a URL: SQLite, PostgreSQL", "sql"),
)


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or ``None``."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def self_test() -> dict[str, Any]:
    """Run ``cli.selftest``; ``problem`` says why it ended without a result, if it did."""
    command = [sys.executable, "-m", "tilewright.cli.selftest"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return {"problem": "the self-test hangs"}
    if done.returncode < 0:
        return {"problem": f"the self-test died of {signal.Signals(-done.returncode).name}"}
    if done.returncode > 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"problem": lines[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def diagnosis() -> dict[str, Any]:
    """Collect the report of the command."""
    tested = self_test()
    packages = {names[0]: next(filter(None, map(version_of, names)), None) for names in CORE}
    optional = [
        {"package": name, "version": version_of(name), "for": purpose, "extra": extra}
        for name, purpose, extra in OPTIONAL
    ]
    checks = tested.get("checks", {})
    problems = [f"{name}: {problem}" for name, problem in checks.items() if problem]
    if tested.get("problem"):
        problems.append(tested["problem"])
    missing = [name for name, version in packages.items() if version is None]
    return {
        "tilewright": tilewright.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpu": tested.get("cpu"),
        "target": tested.get("target"),
        "packages": packages,
        "optional": optional,
        "checks": checks,
        "problems": problems,
        "missing": missing,
        "nvidia_driver": shutil.which("nvidia-smi") is not None,
        "ok": not problems and not missing,
    }


def measured_costs() -> dict[str, Any]:
    """Measure the costs on this machine, for all later targets of its CPU."""
    from tilewright.driver.measure_costs import measure_costs
    from tilewright.target import Target
    from tilewright.target.costs import save_measured

    target = Target("native")
    values = measure_costs(target)
    return {"file": str(save_measured(target.mcpu, values)), "measured": sorted(values)}


def costs_here() -> list[dict[str, Any]]:
    """Return the costs that rules and the cost model use on this machine."""
    from tilewright.target import Target
    from tilewright.target.costs import describe, measured

    target = Target("native")
    return describe(target.costs, measured(target.mcpu))


@click.command("doctor")
@click.option(
    "--measure",
    is_flag=True,
    help="Measure what things cost on this machine (bandwidths, latencies, launches, peaks) and "
    "keep it in the cache folder: rules and cost model use it from then on. On a quiet machine.",
)
@click.option("--costs", is_flag=True, help="List what things are taken to cost here.")
@click.option(
    "--model", metavar="MODEL",
    help="Tell what of a model is compiled, which operators PyTorch runs under torch.compile, and "
    "why. MODEL is what `tilewright compile` takes.",
)  # fmt: skip
@json_option
@log_options
def doctor_command(measure: bool, costs: bool, model: str | None, as_json: bool) -> None:
    """Show versions, CPU features, what works, what is missing and how to install it.

    The exit code is 0 if the core is complete and works, and the model, if one is named, can be
    compiled.
    """
    found = diagnosis()
    if model is not None and found["ok"]:
        from tilewright.cli.survey import survey_model

        found["model"] = survey_model(model)
        found["ok"] = found["model"]["ok"]
    if measure and not found["problems"] and not found["missing"]:
        found |= measured_costs()
    if (measure or costs) and not found["problems"] and not found["missing"]:
        found["costs"] = costs_here()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _show(found)
    if not found["ok"]:
        raise click.exceptions.Exit(1)


def _show(found: dict[str, Any]) -> None:
    console = make_console()

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    say(f"tilewright {found['tilewright']}, Python {found['python']}, {found['platform']}")
    cpu = found["cpu"]
    if cpu is not None:
        say(
            f"CPU {cpu['name']}: {cpu['cores']} cores, {cpu['vector_bits']}-bit vectors, "
            f"caches {cpu['l1'] >> 10} KB / {cpu['l2'] >> 10} KB / {cpu['l3'] >> 10} KB"
        )
        say("features: " + " ".join(cpu["features"]))
    for name, problem in found["checks"].items():
        say(f"{name}: " + ("yes" if problem is None else f"NO: {problem}"))
    if not found["checks"]:
        say(f"works: NO: {'; '.join(found['problems'])}")
    if found["nvidia_driver"]:
        say("an NVIDIA driver is here: the target 'cuda' makes code for the GPU")
    table = Table()
    for column in ("package", "version", "for", "how to get it"):
        # A command must stay on one line; the purpose may fold.
        table.add_column(column, no_wrap=column != "for")
    for name, version in found["packages"].items():
        how = "" if version else f"pip install {name}"
        table.add_row(name, version or "missing", "the core", escape(how))
    for item in found["optional"]:
        how = "" if item["version"] else f"pip install 'tilewright[{item['extra']}]'"
        table.add_row(item["package"], item["version"] or "-", item["for"], escape(how))
    console.print(table)
    if "model" in found:
        _show_model(console, found["model"])
    if "costs" in found:
        _show_costs(console, found["costs"])
    if "file" in found:
        say(f"{len(found['measured'])} of these were measured now, and are kept in {found['file']}")


def _show_costs(console: Console, costs: list[dict[str, Any]]) -> None:
    table = Table()
    for column in ("cost", "here", "unit", "meaning", "from"):
        table.add_column(column, no_wrap=column in ("cost", "here"))
    for row in costs:
        cells = (f"{row['value']:g}", row["unit"], row["meaning"], row["source"])
        table.add_row(row["name"], *map(escape, cells))
    console.print(table)


def _show_model(console: Console, found: dict[str, Any]) -> None:
    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    counts = f"{found['compiled']} operators compiled"
    if found["way"] == "torch.compile":
        counts += f", {found['not_compiled']} run by PyTorch; {found['graphs']} graph(s)"
    elif found["not_compiled"]:
        counts += f", {found['not_compiled']} not supported"
    say(f"{found['name']}, by {found['way']}: {counts}")
    for reason, count in found["breaks"].items():
        say(f"graph break ({count}x): {reason}")
    if found["export"] is not None:
        say(f"tilewright.compile takes it whole: {found['export'] or 'yes'}")
    if not found["operators"]:
        return
    table = Table()
    for column in ("operator", "times", "why", "where first"):
        table.add_column(column, no_wrap=column == "operator")
    for item in found["operators"]:
        cells = (item["operator"], str(item["count"]), item["reason"], item["place"])
        table.add_row(*map(escape, cells))
    console.print(table)
