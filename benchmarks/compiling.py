"""Processor seconds that compiling whole models takes: ``python -m benchmarks.compiling resnet50``.

Models are those of ``benchmarks.zoo``, by name. Each is compiled twice, in processes of their own:
with an empty cache, and with what the first one left there. Imports come before; counted are the
process and its children, apart for PyTorch's export, its further tracings, and all the rest.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock


def main(arguments: list[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiling", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(measured(options.names[0]), flush=True)
        return 0
    for name in options.names:
        with tempfile.TemporaryDirectory() as cache:
            for state in ("cold", "warm"):
                command = [sys.executable, "-m", "benchmarks.compiling", "--one", name]
                env = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache}
                done = subprocess.run(command, env=env, capture_output=True, text=True)
                if done.returncode:
                    print(done.stderr, file=sys.stderr)
                    return 1
                print(f"{name} {state}: {done.stdout.splitlines()[-1]}", flush=True)
    return 0


def measured(name: str) -> str:
    """Compile a model once, and say how long each part took."""
    import torch
    import torch.export._trace  # what exporting imports when it is first called

    import tilewright.compiling
    from benchmarks.zoo.build import build
    from benchmarks.zoo.families import ENTRIES

    entry = next(entry for entry in ENTRIES if entry.name == name)
    model, inputs = build(entry)
    torch.set_num_threads(1)
    spent: dict[str, float] = {"export": 0.0, "tracings": 0.0}

    def counting(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = _processor()
            try:
                return function(*args, **kwargs)
            finally:
                spent[part] += _processor() - start

        return call

    program = torch.export.ExportedProgram
    export = counting("export", torch.export.export)
    again = counting("tracings", program.run_decompositions)
    with (
        torch.no_grad(),
        mock.patch.object(torch.export, "export", export),
        mock.patch.object(program, "run_decompositions", again),
    ):
        start = _processor()
        tilewright.compile(model, example_inputs=inputs)
        total = _processor() - start
    rest = total - sum(spent.values())
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{total:.1f} s, of which torch.export {spent['export']:.1f}, further tracings "
        f"{spent['tracings']:.1f}, ours {rest:.1f}; {most:.0f} MB at most"
    )


def _processor() -> float:
    """Seconds of this process and its children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(item.ru_utime + item.ru_stime for item in used)


if __name__ == "__main__":
    raise SystemExit(main())
