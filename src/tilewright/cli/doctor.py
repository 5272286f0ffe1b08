"""``tilewright doctor``: what works on this machine, what is missing and how to get it."""

from __future__ import annotations

import platform
import shutil
import sys
from importlib import metadata
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import tilewright
from tilewright import driver, te
from tilewright.cli.options import json_option, print_json
from tilewright.support.errors import TilewrightError
from tilewright.target import Target

CORE = ("numpy", "ml_dtypes", "llvmlite", "apache-tvm-ffi", "xgboost-cpu", "rich", "click")
# Optional packages: distribution, what it is for, the extra that brings it.
OPTIONAL = (
    ("torch", "importing PyTorch models", "torch"),
    ("onnx", "importing ONNX models", "onnx"),
    ("cuda-bindings", "NVIDIA GPUs", "cuda"),
    ("ray", "tuning on several machines", "ray"),
    ("matplotlib", "pictures in reports", "report"),
)


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or ``None``."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def self_test() -> str | None:
    """Compile and run a small kernel; return what went wrong, or ``None``."""
    x = te.placeholder((100,), name="x")
    y = te.compute((100,), lambda i: te.exp(x[i]) + 1.0, name="y")
    values = np.linspace(-1, 1, 100, dtype="float32")
    out = np.zeros(100, "float32")
    try:
        driver.compile(te.create_prim_func([x, y]), "native")(values, out)
    except (TilewrightError, OSError) as error:
        return str(error)
    wrong = float(np.abs(out - (np.exp(values) + 1)).max())
    return None if wrong < 1e-5 else f"a compiled kernel is off by {wrong}"


def diagnosis() -> dict[str, Any]:
    """Collect everything that the command prints."""
    target = Target("native")
    problem = self_test()
    packages = {name: version_of(name) for name in CORE}
    optional = [
        {"package": name, "version": version_of(name), "for": purpose, "extra": extra}
        for name, purpose, extra in OPTIONAL
    ]
    return {
        "tilewright": tilewright.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": packages,
        "optional": optional,
        "cpu": {
            "name": target.mcpu,
            "cores": target.num_cores,
            "vector_bits": target.vector_bits,
            "features": sorted(target.features),
            "l1": target.l1_bytes,
            "l2": target.l2_bytes,
            "l3": target.l3_bytes,
        },
        "compiles_and_runs": problem is None,
        "problem": problem,
        "missing": [name for name, version in packages.items() if version is None],
        "nvidia_driver": shutil.which("nvidia-smi") is not None,
    }


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> None:
    """Tell versions, CPU features, what works, what is missing and how to get it."""
    found = diagnosis()
    if as_json:
        print_json(found)
    else:
        _show(found)
    if not found["compiles_and_runs"] or found["missing"]:
        raise click.exceptions.Exit(1)


def _show(found: dict[str, Any]) -> None:
    console = Console()
    cpu = found["cpu"]
    console.print(
        f"tilewright {found['tilewright']}, Python {found['python']}, {found['platform']}",
        highlight=False,
    )
    console.print(
        f"CPU {cpu['name']}: {cpu['cores']} cores, {cpu['vector_bits']}-bit vectors, "
        f"caches {cpu['l1'] >> 10} KB / {cpu['l2'] >> 10} KB / {cpu['l3'] >> 10} KB",
        highlight=False,
    )
    console.print("features: " + " ".join(cpu["features"]), highlight=False, markup=False)
    works = "yes" if found["compiles_and_runs"] else f"NO: {found['problem']}"
    console.print(f"compiles and runs a kernel: {works}", markup=False, highlight=False)
    table = Table()
    for column in ("package", "version", "for", "how to get it"):
        table.add_column(column)
    for name, version in found["packages"].items():
        table.add_row(
            name, version or "missing", "the core", "" if version else f"pip install {name}"
        )
    for item in found["optional"]:
        how = "" if item["version"] else f"pip install 'tilewright[{item['extra']}]'"
        table.add_row(item["package"], item["version"] or "-", item["for"], how)
    console.print(table)
