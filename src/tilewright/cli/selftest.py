"""Checks that ``tilewright doctor`` runs in a separate process.

``python -m tilewright.cli.selftest`` prints one JSON value: facts about the CPU, and for each check
``null`` or what went wrong. A separate process, because the faults that doctor looks for, a missing
package or an instruction that the CPU doesn't have, would end doctor itself.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import driver, te
from tilewright.runtime import Module, load_module
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.tir.schedule import Schedule


def _module(parallel: bool) -> Module:
    x = te.placeholder((100,), name="x")
    y = te.compute((100,), lambda i: te.exp(x[i]) + 1.0, name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    if parallel:
        outer, inner = sch.split(sch.get_loops(sch.get_block("y"))[0], [None, 8])
        sch.parallel(outer)
        sch.vectorize(inner)
    return driver.compile(sch.mod, "native")


def _check(module: Any) -> str | None:
    values = np.linspace(-1, 1, 100, dtype="float32")
    out = np.zeros(100, "float32")
    module(values, out)
    wrong = float(np.abs(out - (np.exp(values) + 1)).max())
    return None if wrong < 1e-5 else f"a compiled kernel is off by {wrong}"


def _kernel() -> str | None:
    return _check(_module(parallel=False))


def _parallel() -> str | None:
    return _check(_module(parallel=True))


def _library() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        path = _module(parallel=False).export_library(Path(folder) / "selftest.so")
        return _check(load_module(path))


CHECKS: dict[str, Callable[[], str | None]] = {
    "compiles and runs a kernel": _kernel,
    "runs on several cores, with vectors": _parallel,
    "exports a library and loads it": _library,
}


def run() -> dict[str, Any]:
    """Run all checks; return facts and results."""
    target = Target("native")
    checks = {}
    for name, check in CHECKS.items():
        try:
            checks[name] = check()
        except (TilewrightError, OSError, ImportError) as error:
            checks[name] = f"{type(error).__name__}: {error}"
    return {
        "cpu": {
            "name": target.mcpu,
            "cores": target.num_cores,
            "vector_bits": target.vector_bits,
            "features": sorted(target.features),
            "l1": target.l1_bytes,
            "l2": target.l2_bytes,
            "l3": target.l3_bytes,
        },
        "target": str(target),
        "checks": checks,
    }


if __name__ == "__main__":
    print(json.dumps(run()))
