"""Operators next to their peers: ``python -m benchmarks.ops --peers torch,numpy --threads 1``.

Each operator is scheduled by rule and, with ``--trials``, tuned. The share of peak is that of the
FMA throughput measured in the same run. Ratios are the peer's time over our best.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.peak import measured_peak_flops
from benchmarks.race import complaints, race, ratio
from benchmarks.workloads import WORKLOADS, Workload
from tilewright.meta_schedule import tune_tir
from tilewright.target import Target

PEERS = ("torch", "numpy")


def tune(workload: Workload, threads: int, trials: int, work_dir: Path) -> None:
    """Tune an operator into the database of ``work_dir``."""
    target = Target("native").with_options(num_cores=threads)
    tune_tir(workload.prim_func(), target, work_dir, trials)


def measure(
    workload: Workload,
    *,
    peers: list[str],
    threads: int,
    trials: int,
    work_dir: Path,
    rounds: int,
    burst: float,
) -> dict[str, Any]:
    """Race one operator; returns times and ratios."""
    if trials:
        tune(workload, threads, trials, work_dir)
    ways = ["rule", *(["tuned"] if trials else []), *peers]
    results = race(
        {
            way: {
                "kind": "op",
                "way": way,
                "name": workload.name,
                "threads": threads,
                "work_dir": str(work_dir),
            }
            for way in ways
        },
        threads,
        rounds,
        burst,
    )
    ours = min(
        (results[way] for way in ("rule", "tuned") if way in results),
        key=lambda item: item.seconds or float("inf"),
    )
    return {
        "name": workload.name,
        "flops": workload.flops,
        "times": {way: result.as_dict() for way, result in results.items()},
        "best": ours.seconds,
        "ratios": {peer: ratio(ours, results[peer]) for peer in peers},
        "complaints": complaints(results),
    }


def chosen(only: str | None, quick: bool) -> list[Workload]:
    """Return the operators whose name contains ``only``, or the quick ones."""
    found = [w for w in WORKLOADS.values() if (only or "") in w.name and (w.quick or not quick)]
    if not found:
        raise SystemExit(f"no operator is called {only!r}; there are: {', '.join(WORKLOADS)}")
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ops", description=__doc__)
    parser.add_argument("--peers", default="torch,numpy", help="of torch, numpy; may be empty")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trials", type=int, default=0, help="tune with so many trials each")
    parser.add_argument("--work-dir", type=Path, help="keep the databases of tuning here")
    parser.add_argument("--only", help="operators whose name contains this")
    parser.add_argument("--quick", action="store_true", help="a few operators")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.05, help="seconds per turn")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    peers = [peer for peer in options.peers.split(",") if peer]
    for peer in peers:
        if peer not in PEERS:
            parser.error(f"unknown peer {peer!r}; known: {', '.join(PEERS)}")
        if importlib.util.find_spec(peer) is None:
            parser.error(f"{peer} isn't installed; leave it out of --peers")
    peak = measured_peak_flops(Target("native")) * options.threads
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for workload in chosen(options.only, options.quick):
            results.append(
                measure(
                    workload,
                    peers=peers,
                    threads=options.threads,
                    trials=options.trials,
                    work_dir=options.work_dir or Path(folder),
                    rounds=options.rounds,
                    burst=options.burst,
                )
            )
    if options.json:
        table.dump({"peak_flops": peak, "threads": options.threads, "operators": results})
        return
    ways = ["rule", *(["tuned"] if options.trials else []), *peers]
    table.show(
        f"Operators on {options.threads} thread(s): microseconds, median of {options.rounds} "
        f"rounds; measured peak {peak / 1e9:.0f} GFLOP/s",
        ["operator", *ways, "GFLOP/s", "of peak", *(f"{peer}/ours" for peer in peers)],
        [_row(result, ways, peers, peak) for result in results],
    )
    for result in results:
        for text in result["complaints"]:
            print(f"{result['name']}: {text}")


def _row(result: dict[str, Any], ways: list[str], peers: list[str], peak: float) -> list[str]:
    rate = result["flops"] / result["best"] if result["best"] else 0.0
    ratios = [result["ratios"][peer] for peer in peers]
    return [
        result["name"],
        *(table.us(result["times"][way]["seconds"]) for way in ways),
        f"{rate / 1e9:.1f}",
        f"{100 * rate / peak:.0f} %",
        *("-" if value is None else f"{value:.2f}" for value in ratios),
    ]


if __name__ == "__main__":
    main()
