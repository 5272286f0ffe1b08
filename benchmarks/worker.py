"""One subject in a process of its own: ``python -m benchmarks.worker``, one JSON line per request.

``{"prepare": {...}}`` makes a subject ready and answers with what that showed. ``{"run": seconds,
"patience": seconds, "fastest_tick": seconds}`` calls it for about so long while the cores are quiet
(``support.interference``), after calls that don't count, and answers with the seconds per call.
With ``"clock": "processor"`` these are the processor's seconds, whatever runs beside.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import PEERS, Call, Request, difference
from benchmarks.workload import Unavailable
from benchmarks.workloads import WORKLOADS
from tilewright.support.interference import Watch, is_undisturbed

#: Share of a turn's time that goes into calls which aren't timed, before those that are.
_WARM_UP = 0.2

#: Seconds of calls between two looks at whether the cores are disturbed.
_STRETCH = 0.004

#: Seconds of calls before a stretch: threads may have fallen asleep during the look.
_AWAKE = 5e-4


def _prepare_op(
    way: str, name: str, threads: int, target: str, work_dir: str, expected: str, weights: str
) -> tuple[Call, dict[str, Any]]:
    """Make an operator ready; ``expected`` is the file with the reference's result."""
    workload, wanted = WORKLOADS[name], np.load(expected)
    constant = weights == "constant"
    info: dict[str, Any] = {}
    if way == "floor":
        from benchmarks import floor, own

        return floor.prepare(workload, own.target_of(threads, target), wanted.shape)
    if way in PEERS:
        arrays = workload.arrays()
        request = Request(workload, arrays, wanted.shape, threads, constant)
        prepared = PEERS[way].prepare(request)
    else:
        from benchmarks import own  # peers' processes hold nothing of ours

        made_for = own.target_of(threads, target)
        prepared, info = own.prepare(workload, way, made_for, work_dir, wanted.shape, constant)
    info["difference"] = difference(prepared.result(), wanted)
    info["limit"] = workload.limit
    return prepared.call, info


def _prepare_model(**wanted: Any) -> tuple[Call, dict[str, Any]]:
    from benchmarks import networks

    return networks.prepare(**wanted)


def _prepare_dynamic(**wanted: Any) -> tuple[Call, dict[str, Any]]:
    from benchmarks import dynamic

    return dynamic.prepare(**wanted)


def _prepare_training(**wanted: Any) -> tuple[Call, dict[str, Any]]:
    from benchmarks import training

    return training.prepare(**wanted)


_PREPARE: dict[str, Callable[..., tuple[Call, dict[str, Any]]]] = {
    "op": _prepare_op,
    "model": _prepare_model,
    "dynamic": _prepare_dynamic,
    "training": _prepare_training,
}


def processor_seconds(call: Call, seconds: float) -> dict[str, float]:
    """Call for about so long; return the median over calls of the processor's seconds per call.

    Other programs on the same cores leave these as they are, as far as caches do.
    """
    each = _warmed(call, seconds * _WARM_UP)
    count = max(1, int(min(seconds, _STRETCH) / max(each, 1e-7)))
    stretches: list[float] = []
    end = time.process_time() + seconds
    while not stretches or time.process_time() < end:
        start = time.process_time()
        for _ in range(count):
            call()
        stretches.append((time.process_time() - start) / count)
    return {"seconds": statistics.median(stretches), "tick": 0.0, "fastest_tick": float("inf")}


def run_for(call: Call, seconds: float, patience: float, fastest: float) -> dict[str, float]:
    """Call until undisturbed calls (``support.interference``) add up to about so long.

    If they don't within ``patience`` seconds more, it ends all the same.

    Calls before that aren't timed: they fill the caches, wake the subject's threads, and tell how
    many calls make a stretch. ``fastest`` is the shortest tick known. Returns the median over
    stretches of the mean seconds per call, the longest tick beside those that count, and the
    shortest of all.
    """
    each = _warmed(call, seconds * _WARM_UP)
    count = max(1, int(min(seconds, _STRETCH) / max(each, 1e-7)))
    stretches: list[tuple[float, float]] = []
    undisturbed_seconds, end = 0.0, time.perf_counter() + seconds + patience
    watch = Watch(threads=len(os.sched_getaffinity(0)))  # of a subject: a core for each thread
    before, watch.fastest = watch.tick(), min(fastest, watch.fastest)
    while not stretches or (undisturbed_seconds < seconds and time.perf_counter() < end):
        if count > 1:
            _warmed(call, _AWAKE)
        start = time.perf_counter()
        for _ in range(count):
            call()
        passed = time.perf_counter() - start
        after = watch.tick()
        stretches.append((max(before, after), passed / count))
        undisturbed_seconds += passed if is_undisturbed(stretches[-1][0], watch.fastest) else 0.0
        before = after
    counted = [item for item in stretches if is_undisturbed(item[0], watch.fastest)] or stretches
    return {
        "seconds": statistics.median(each for _, each in counted),
        "tick": max(tick for tick, _ in counted),
        "fastest_tick": watch.fastest,
    }


def _warmed(call: Call, seconds: float) -> float:
    """Call for so long, at least twice; returns the seconds of the last call."""
    call()
    until = time.perf_counter() + seconds
    while True:
        begun = time.perf_counter()
        call()
        if (now := time.perf_counter()) >= until:
            return now - begun


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not disturb the answers
    call: Call | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                wanted = request["prepare"]
                prepare = _PREPARE[wanted.pop("kind")]
                call, answer = prepare(**wanted)
                call()
            else:
                assert call is not None
                limits = request["patience"], request["fastest_tick"]
                if request["clock"] == "processor":
                    answer = {**processor_seconds(call, request["run"])}
                else:
                    answer = {**run_for(call, request["run"], *limits)}
        except Unavailable as reason:
            answer = {"unavailable": str(reason)}
        except Exception as error:  # told to the parent, which shows it in the table
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
