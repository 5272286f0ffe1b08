"""Operators next to their peers: ``python -m benchmarks.ops --threads 1``.

Each operator is scheduled by rule and, with ``--trials``, tuned. Every subject has a fresh process
for each operator and takes turns with the others: one begins when the threads of all others sleep,
with calls that don't count (``race.py``). What each computes is compared with a float64 reference.

A rate is given of what limits the workload, arithmetic or memory: operations per second, or the
fewest bytes that must move per second. Its peak is what a bare loop of these reaches, which takes
turns with the others (``floor.py``). Ratios are the peer's time over our best; the best peer is the
one with the shortest median. Who is wrong has no ratio: it may have done less.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import own, table
from benchmarks.instruction_sets import limits, notes
from benchmarks.peers import PEERS
from benchmarks.race import complaints, race, ratio
from benchmarks.workload import Unavailable, Workload
from benchmarks.workloads import FAMILIES, WORKLOADS
from benchmarks.workloads.novel import FAMILY as NOVEL
from tilewright.driver.peak import Peaks, measured_peaks
from tilewright.support.errors import TilewrightError
from tilewright.support.registry import near_matches
from tilewright.target import Target

#: Our own subjects.
_COMPILED = ("rule", "tuned")

#: Limits that are memory's.
_LEVELS = ("L1", "L2", "L3", "DRAM")


def measure(
    workload: Workload,
    *,
    ways: Sequence[str],
    threads: int,
    options: argparse.Namespace,
    work_dir: Path,
    target: Target,
    tuned_in: float | None = None,
) -> dict[str, Any]:
    """Race one operator; returns its cost, times and ratios.

    ``tuned_in`` seconds it was tuned before, and isn't tuned again.
    """
    tuning, start = None, time.perf_counter()
    if options.trials and tuned_in is None:
        try:
            own.tune(workload, target, options.trials, work_dir, options.weights == "constant")
        except Unavailable:
            pass  # the subject will say so
        except TilewrightError as error:
            tuning = f"tuning failed: {error}"
    tuning_seconds = time.perf_counter() - start if tuned_in is None else tuned_in
    expected = workload.expected(workload.arrays())
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, expected)
        file.flush()
        results = race(
            {
                way: {
                    "kind": "op",
                    "way": way,
                    "name": workload.name,
                    "threads": threads,
                    "target": options.target,
                    "work_dir": str(work_dir),
                    "expected": file.name,
                    "weights": options.weights,
                }
                for way in ways
            },
            threads,
            options.rounds,
            options.burst,
            options.patience,
            limits(target),
        )
    compiled = [results[way] for way in _COMPILED if way in results]
    peers = {name: item for name, item in results.items() if name in PEERS}
    ours = min(compiled, key=lambda item: (item.is_wrong, item.seconds or float("inf")))
    ratios = {name: ratio(ours, item) for name, item in peers.items()}
    known = {name: value for name, value in ratios.items() if value is not None}
    best = min(known, key=lambda name: known[name]) if known else None
    return {
        "name": workload.name,
        "family": workload.family,
        "flops": workload.flops,
        "read_bytes": workload.read_bytes,
        "written_bytes": workload.written_bytes(expected.shape),
        "times": {way: result.as_dict() for way, result in results.items()},
        "best": ours.seconds,
        "ratios": ratios,
        "best_peer": best,
        "best_ratio": None if best is None else known[best],
        "rule_of_tuned": (ratio(results["rule"], results["tuned"]) if "tuned" in results else None),
        "tuning_seconds": tuning_seconds if options.trials else None,
        "unavailable": compiled[0].unavailable,
        "complaints": [*([tuning] if tuning else []), *complaints(results)],
    }


class Kept:
    """Results by operator, in a file too: of runs with the same options.

    What was measured on disturbed cores is measured again by the next run, but not tuned again.
    """

    def __init__(self, path: Path | None, key: Sequence[Any]) -> None:
        self.path, self.key = path, list(key)
        self.known: dict[str, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            with contextlib.suppress(ValueError):  # the last line of a run that was killed
                found, result = json.loads(line)
                if found == self.key:
                    self.known[result["name"]] = result

    def is_final(self, name: str) -> bool:
        """Whether an operator was measured, on undisturbed cores."""
        result = self.known.get(name)
        return result is not None and not any(
            item["disturbed"] for item in result["times"].values()
        )

    def add(self, name: str, result: dict[str, Any]) -> None:
        """Add a result."""
        self.known[name] = result
        if self.path is not None:
            torn = self.path.exists() and self.path.read_text()[-1:] not in ("", "\n")
            with self.path.open("a") as file:
                file.write("\n" * torn + json.dumps([self.key, result]) + "\n")


def share(result: dict[str, Any]) -> dict[str, Any]:
    """Return what limits an operator, its rate, and its share of the floor (``floor.py``)."""
    floor, seconds = result["times"]["floor"], result["best"]
    by_memory = floor.get("bound") in _LEVELS
    moved = result["read_bytes"] + result["written_bytes"]
    amount = moved if by_memory else result["flops"]
    return {
        "limit": floor.get("bound", "-"),
        "unit": "GB/s" if by_memory else "GFLOP/s",
        "rate": None if seconds is None else amount / seconds / 1e9,
        "of_peak": None if None in (seconds, floor["seconds"]) else floor["seconds"] / seconds,
    }


def chosen(
    only: str | None = None, families: Sequence[str] = (), quick: bool = False
) -> list[Workload]:
    """Return the operators whose name contains ``only``, of some families, or the quick ones.

    Those that no library has are left out unless somebody asks for them.
    """
    for family in families:
        if family not in FAMILIES:
            raise SystemExit(f"no family {family!r}; {near_matches(family, list(FAMILIES))}")
    found = [
        workload
        for workload in WORKLOADS.values()
        if (only or "") in workload.name
        and (workload.quick or not quick)
        and (workload.family in families if families else only or workload.family != NOVEL)
    ]
    if not found:
        wanted = [f"whose name contains {only!r}"] if only else []
        wanted += [f"of {', '.join(families)}"] if families else []
        hint = "; without --quick there are more" if quick else ""
        among = ", ".join(w.name for w in WORKLOADS.values() if w.quick or not quick)
        raise SystemExit(f"no operator {' and '.join(wanted)}{hint}; there are: {among}")
    return found


def installed(wanted: str | None, parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Return the peers that can run, and a line for each that can't."""
    names = list(PEERS) if wanted is None else [name for name in wanted.split(",") if name]
    for name in names:
        if name not in PEERS:
            parser.error(f"unknown peer {name!r}; known: {', '.join(PEERS)}")
    notes = [
        f"{name} is left out: {', '.join(PEERS[name].missing)} isn't installed"
        for name in names
        if PEERS[name].missing
    ]
    return [name for name in names if not PEERS[name].missing], notes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ops", description=__doc__)
    parser.add_argument("--peers", help=f"of {', '.join(PEERS)}; may be empty (default: all)")
    parser.add_argument("--threads", default="1", help="numbers of threads, with commas")
    parser.add_argument(
        "--target",
        default="native",
        help="such as 'llvm -mcpu=x86-64-v3'; peers are held to its instructions",
    )
    parser.add_argument("--trials", type=int, default=0, help="tune with so many trials each")
    parser.add_argument("--work-dir", type=Path, help="keep the databases of tuning here")
    parser.add_argument(
        "--results",
        type=Path,
        help="keep what was measured here, a line per operator; what is there isn't measured again",
    )
    parser.add_argument("--only", help="operators whose name contains this")
    parser.add_argument("--family", help=f"of {', '.join(FAMILIES)}, with commas")
    parser.add_argument(
        "--weights",
        choices=("constant", "dynamic"),
        default="constant",
        help="whether weights are known beforehand, so that everyone may pack them",
    )
    parser.add_argument("--quick", action="store_true", help="a few operators")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.05, help="seconds per turn")
    parser.add_argument(
        "--patience", type=float, default=1.0, help="seconds a turn waits for undisturbed cores"
    )
    parser.add_argument("--json", action="store_true")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = _parser()
    options = parser.parse_args(arguments)
    peers, left_out = installed(options.peers, parser)
    left_out += notes(Target(options.target), peers)
    families = options.family.split(",") if options.family else []
    workloads = chosen(options.only, families, options.quick)
    ways = ["rule", *(["tuned"] if options.trials else []), *peers, "floor"]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for threads in map(int, options.threads.split(",")):
            work_dir = (options.work_dir or Path(folder)) / f"{threads}-threads"
            results, peaks = _measured(workloads, ways, threads, options, work_dir)
            runs.append({"threads": threads, "peaks": peaks.as_dict(), "operators": results})
            if not options.json:
                _show(results, threads, peaks, ways, peers, options)
    if options.json:
        table.dump(
            {"weights": options.weights, "target": options.target, "notes": left_out, "runs": runs}
        )
    else:
        print("\n".join(left_out))


def _measured(
    workloads: Sequence[Workload],
    ways: Sequence[str],
    threads: int,
    options: argparse.Namespace,
    work_dir: Path,
) -> tuple[list[dict[str, Any]], Peaks]:
    """Race operators, but for those whose results are kept."""
    target = own.target_of(threads, options.target)
    peaks = measured_peaks(target, threads)
    key = [options.weights, threads, options.trials, ways]
    key += [] if options.target == "native" else [options.target]
    kept = Kept(options.results, key)
    for workload in workloads:
        if not kept.is_final(workload.name):
            known = kept.known.get(workload.name)
            result = measure(
                workload,
                ways=ways,
                threads=threads,
                options=options,
                work_dir=work_dir,
                target=target,
                tuned_in=None if known is None else known["tuning_seconds"],
            )
            kept.add(workload.name, {**result, **share(result)})
    return [kept.known[workload.name] for workload in workloads], peaks


def _mean(values: Iterable[float | None]) -> float | None:
    """Geometric mean of what there is."""
    found = [value for value in values if value is not None]
    return statistics.geometric_mean(found) if found else None


def _show(
    results: list[dict[str, Any]],
    threads: int,
    peaks: Peaks,
    ways: Sequence[str],
    peers: Sequence[str],
    options: argparse.Namespace,
) -> None:
    compiled = [way for way in ways if way in _COMPILED]
    table.show(
        f"Operators on {threads} thread(s), {options.target}, {options.weights} weights: "
        f"microseconds, median of {options.rounds} rounds; peers: their time over our best\n"
        f"{peaks.text()}",
        ["operator", *compiled, "rate", "limit", "of peak", *peers, "best"],
        [_row(result, compiled, peers) for result in results],
    )
    families = [family for family in FAMILIES if any(r["family"] == family for r in results)]
    rows = [
        _mean_row(family, [r for r in results if r["family"] == family], ways, peers)
        for family in families
    ]
    rows.append(_mean_row("all", results, ways, peers))
    tuned = ["rule of tuned"] if "tuned" in ways else []
    table.show(
        "Geometric means of the peers' times over ours",
        ["family", "operators", *peers, "best", "least", *tuned],
        rows,
    )
    for result in results:
        if result["unavailable"]:
            times = {name: item["seconds"] for name, item in result["times"].items()}
            others = [f"{name} {table.us(time)} us" for name, time in times.items() if time]
            print(f"{result['name']}: {'; '.join([result['unavailable'], *others])}")
        for text in result["complaints"]:
            print(f"{result['name']}: {text}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _row(result: dict[str, Any], compiled: Sequence[str], peers: Sequence[str]) -> list[str]:
    rate, of_peak = result["rate"], result["of_peak"]
    return [
        result["name"],
        *(table.us(result["times"][way]["seconds"]) for way in compiled),
        "-" if rate is None else f"{rate:.1f} {result['unit']}",
        result["limit"],
        "-" if of_peak is None else f"{100 * of_peak:.0f} %",
        *(_number(result["ratios"][peer]) for peer in peers),
        _number(result["best_ratio"]),
    ]


def _mean_row(
    name: str, results: Sequence[dict[str, Any]], ways: Sequence[str], peers: Sequence[str]
) -> list[str]:
    ratios = [r["best_ratio"] for r in results if r["best_ratio"] is not None]
    return [
        name,
        f"{len(ratios)} of {len(results)}",
        *(_number(_mean(r["ratios"][peer] for r in results)) for peer in peers),
        _number(_mean(ratios)),
        _number(min(ratios, default=None)),
        *([_number(_mean(r["rule_of_tuned"] for r in results))] if "tuned" in ways else []),
    ]


if __name__ == "__main__":
    main()
