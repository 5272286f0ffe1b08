"""Architectures through every way in: ``python -m benchmarks.zoo --page docs/models.md``.

Each architecture of ``zoo/families.py`` goes through ``tilewright.compile`` and ``torch.compile``,
is compared with PyTorch and timed against eager and inductor, each in a process of its own. What is
in the results already isn't run again, so a long run can be ended and continued. Inductor is
frozen; ``--ways inductor,frozen`` compares it with our backend when that is frozen too. It needs
``torchvision``, ``timm``, ``transformers`` and ``diffusers``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.zoo.build import torchvision
from benchmarks.zoo.families import ENTRIES, SYMBOLIC_NAMES
from benchmarks.zoo.judge import SYMBOLIC, USUAL, WAYS, judge
from benchmarks.zoo.page import key, render, right


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit status is 1 if one of ours fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("--only", default="", help="architectures whose names match this pattern")
    known_ways = (*WAYS, SYMBOLIC)
    parser.add_argument(
        "--ways",
        default=",".join((*USUAL, SYMBOLIC)),
        help=f"with commas, of {', '.join(known_ways)}; all but frozen",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0, help="longest time for each")
    parser.add_argument("--untimed", action="store_true", help="only whether results are right")
    parser.add_argument("--again", action="store_true", help="also what has results already")
    parser.add_argument("--failed", action="store_true", help="also what failed")
    parser.add_argument("--results", type=Path, default=Path("build/zoo.json"))
    parser.add_argument("--page", type=Path, help="write the page of results")
    options = parser.parse_args(arguments)
    ways = options.ways.split(",")
    if unknown := set(ways) - set(known_ways):
        parser.error(f"no way {', '.join(sorted(unknown))}; there are: {', '.join(known_ways)}")
    results: dict[str, dict[str, Any]] = {}
    if options.results.exists():
        results = json.loads(options.results.read_text())
    chosen = [entry for entry in ENTRIES if re.search(options.only, key(entry))]
    _warm_imports()
    begun, failed = time.perf_counter(), 0
    for number, entry in enumerate(chosen):
        mine = results.setdefault(key(entry), {})
        for way in ways:
            if way == SYMBOLIC and entry.name not in SYMBOLIC_NAMES:
                continue
            known = mine.get(way)
            stale = options.again or (options.failed and known is not None and not right(known))
            if (
                known is None
                or stale
                or ("seconds" not in known and not options.untimed and right(known))
            ):
                mine[way] = judge(entry, way, options.threads, options.seconds, not options.untimed)
                _save(options.results, results)
            failed += way in ("export", "compile", "frozen", SYMBOLIC) and not right(mine[way])
            if not right(mine[way]):
                error = mine[way].get("error") or f"differs by {mine[way]['difference']}"
                print(f"{key(entry)} {way}: {error.splitlines()[0][:240]}", flush=True)
        if sys.stderr.isatty():
            passed = time.perf_counter() - begun
            print(f"{number + 1}/{len(chosen)} {passed:.0f} s {key(entry)}", file=sys.stderr)
    if options.page is not None:
        machine = table.machine()
        name = f"one machine with {machine['cpu']}, {options.threads} thread(s)"
        options.page.write_text(
            render(results, name, "python -m benchmarks.zoo --page docs/models.md")
        )
    print(f"{len(chosen)} architectures, {failed} failures in {time.perf_counter() - begun:.0f} s")
    return 1 if failed else 0


def _save(path: Path, results: dict[str, dict[str, Any]]) -> None:
    """Write the results; whoever stops the run loses none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(results, indent=1, sort_keys=True))
    fresh.replace(path)


def _warm_imports() -> None:
    """Import what each child would: they are forks."""
    torchvision()
    import diffusers
    import timm
    import transformers

    import tilewright.torch

    _ = diffusers.ModelMixin, timm.create_model, transformers.AutoModel, tilewright.torch.compile


if __name__ == "__main__":
    raise SystemExit(main())
