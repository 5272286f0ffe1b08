"""What the kernels of a compiled graph take: ``VirtualMachine.profile`` makes a ``Report``.

The roofline of a kernel is the time that the machine needs at least: for its arithmetic at the
greatest rate, or for its bytes from the level of memory that they fit in, by the target's costs
(``tilewright doctor --measure`` measures those of this machine).
"""

from __future__ import annotations

import csv
import io
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.ir import Var, dtypes
from tilewright.relax.execution.executable import Executable
from tilewright.relax.execution.stepwise import KernelCall, as_tensors, planned_graph, run_stepwise
from tilewright.runtime import num_threads
from tilewright.support.errors import RunError, TilewrightError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import estimate_flops

_COLUMNS = ("kernel", "calls", "us", "share", "GFLOP/s", "GB/s", "roofline", "shapes")


@dataclass(frozen=True)
class KernelRow:
    """A kernel: how often it is called, and what all its calls take and do.

    ``seconds`` is the median over runs, ``starts`` are when each call began, in the median run.
    ``flops`` is ``None`` where it isn't known; ``roofline`` is the shortest time that the machine
    allows.
    """

    name: str
    calls: int
    seconds: float
    share: float
    flops: int | None
    nbytes: int
    roofline: float
    shapes: tuple[str, ...]

    @property
    def gflops(self) -> float | None:
        """Billions of operations per second."""
        return None if self.flops is None else self.flops / max(self.seconds, 1e-12) / 1e9

    @property
    def gbytes(self) -> float:
        """Billions of bytes of operands per second."""
        return self.nbytes / max(self.seconds, 1e-12) / 1e9

    @property
    def roofline_share(self) -> float:
        """The shortest possible time as a share of the measured one."""
        return self.roofline / max(self.seconds, 1e-12)

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON values."""
        return {
            "kernel": self.name, "calls": self.calls, "seconds": self.seconds, "share": self.share,
            "flops": self.flops, "bytes": self.nbytes, "gflops": self.gflops,
            "gbytes": self.gbytes, "roofline_seconds": self.roofline,
            "roofline_share": self.roofline_share, "shapes": list(self.shapes),
        }  # fmt: skip


@dataclass(frozen=True)
class Report:
    """A profile: every call in order, and how it was measured."""

    function: str
    target: str
    threads: int
    repeat: int
    calls: tuple[KernelRow, ...]

    @property
    def seconds(self) -> float:
        """Time of all kernels."""
        return sum(call.seconds for call in self.calls)

    def kernels(self) -> list[KernelRow]:
        """One row for each kernel with operands of the same shapes, the slowest first."""
        groups: dict[tuple[str, tuple[str, ...]], list[KernelRow]] = {}
        for call in self.calls:
            groups.setdefault((call.name, call.shapes), []).append(call)
        return sorted(map(_joined, groups.values()), key=lambda row: -row.seconds)

    def table(self, sort: bool = True, aggregate: bool = True) -> str:
        """Return the report as text: kernels, or with ``aggregate=False`` single calls."""
        rows = self.kernels() if aggregate else list(self.calls)
        if sort:
            rows = sorted(rows, key=lambda row: -row.seconds)
        lines = [list(_COLUMNS), *map(_cells, rows)]
        lines.append(["total", str(len(self.calls)), f"{self.seconds * 1e6:.1f}", "100.0 %"])
        lines[-1] += [""] * (len(_COLUMNS) - len(lines[-1]))
        widths = [max(len(line[n]) for line in lines) for n in range(len(_COLUMNS))]
        text = [
            "  ".join(
                cell.ljust(width) if n in (0, len(_COLUMNS) - 1) else cell.rjust(width)
                for n, (cell, width) in enumerate(zip(line, widths))
            ).rstrip()
            for line in lines
        ]
        head = f"{self.function} on {self.target}, {self.threads} threads, {self.repeat} runs"
        return "\n".join([head, *text])

    def __str__(self) -> str:
        return self.table()

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "function": self.function, "target": self.target, "threads": self.threads,
            "repeat": self.repeat, "seconds": self.seconds,
            "calls": [call.as_dict() for call in self.calls],
        }  # fmt: skip

    def json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(self.as_dict(), indent=1)

    def csv(self) -> str:
        """Return the calls as CSV."""
        out = io.StringIO()
        rows = [call.as_dict() for call in self.calls]
        writer = csv.DictWriter(out, list(rows[0]) if rows else ["kernel"])
        writer.writeheader()
        writer.writerows({**row, "shapes": " ".join(row["shapes"])} for row in rows)
        return out.getvalue()

    def chrome_trace(self, path: str | Path | None = None) -> str:
        """Return the calls one after the other as a trace for chrome://tracing, or write it."""
        events, start = [], 0.0
        for call in self.calls:
            events.append({
                "name": call.name, "ph": "X", "pid": 0, "tid": 0, "ts": start * 1e6,
                "dur": call.seconds * 1e6, "cat": "kernel",
                "args": {"shapes": list(call.shapes), "gflops": call.gflops,
                         "gbytes": call.gbytes, "roofline_share": call.roofline_share},
            })  # fmt: skip
            start += call.seconds
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
        if path is not None:
            Path(path).write_text(text)
        return text


def _cells(row: KernelRow) -> list[str]:
    rate = "" if row.gflops is None else f"{row.gflops:.2f}"
    return [
        row.name, str(row.calls), f"{row.seconds * 1e6:.1f}", f"{row.share * 100:.1f} %", rate,
        f"{row.gbytes:.2f}", f"{row.roofline_share * 100:.0f} %", " ".join(row.shapes),
    ]  # fmt: skip


def _joined(rows: Sequence[KernelRow]) -> KernelRow:
    flops = [row.flops for row in rows]
    return KernelRow(
        rows[0].name,
        len(rows),
        sum(row.seconds for row in rows),
        sum(row.share for row in rows),
        None if None in flops else sum(item or 0 for item in flops),
        sum(row.nbytes for row in rows),
        sum(row.roofline for row in rows),
        rows[0].shapes,
    )


def profile(
    executable: Executable, name: str, inputs: Sequence[object], repeat: int = 10
) -> Report:
    """Run a graph ``repeat`` times and measure each kernel.

    Raises ``RunError`` as ``run_stepwise`` does.
    """
    if repeat < 1:
        raise RunError(f"repeat must be positive, got {repeat}")
    mod, _ = planned_graph(executable, name)
    times: list[list[float]] = []
    steps: list[KernelCall] = []

    def measured(step: KernelCall, kernel: Callable[..., object]) -> None:
        operands = as_tensors(step.operands)
        start = time.perf_counter()
        kernel(*operands)
        times[-1].append(time.perf_counter() - start)
        steps.append(step)

    for _ in range(repeat + 1):  # the first run warms up
        times.append([])
        steps.clear()
        run_stepwise(executable, name, inputs, measured)
    medians = [statistics.median(column) for column in zip(*times[1:])]
    total = max(sum(medians), 1e-12)
    machine = _Machine(Target(executable.target))
    rows = []
    for step, seconds in zip(steps, medians):
        flops = _flops(mod.functions.get(step.name), step)
        nbytes = sum(int(np.asarray(item).nbytes) for item in step.tensors)
        bound = machine.shortest(step, flops or 0, nbytes)
        rows.append(
            KernelRow(
                step.name, 1, seconds, seconds / total, flops, nbytes, bound, tuple(step.shapes)
            )
        )
    return Report(name, executable.target, machine.threads, repeat, tuple(rows))


def _flops(kernel: object, step: KernelCall) -> int | None:
    """Operations of a kernel with the sizes of a call; ``None`` if they can't be told."""
    if not isinstance(kernel, PrimFunc):
        return None
    sizes: dict[Any, int] = {}
    for buffer, tensor in zip(kernel.buffers, step.tensors):
        for extent, size in zip(buffer.shape, tensor.shape):
            if type(extent) is Var:
                sizes[extent] = int(size)
    scalars = [item for item in step.operands if not hasattr(item, "shape")]
    plain = [param for param in kernel.params if param not in kernel.buffer_map]
    sizes.update(zip(plain, scalars))
    try:
        return int(estimate_flops(kernel, sizes))
    except (TilewrightError, ValueError):
        return None


class _Machine:
    """Rates of the machine that a target describes."""

    def __init__(self, target: Target) -> None:
        self.target, self.costs = target, target.costs
        self.threads = max(1, min(target.num_cores, num_threads()))

    def shortest(self, step: KernelCall, flops: int, nbytes: int) -> float:
        """Seconds that arithmetic and bytes take at least."""
        costs, target = self.costs, self.target
        floats = [str(item.dtype.name) for item in step.tensors]
        bits = max([dtypes.bits_of(name) for name in floats if dtypes.is_float(name)] or [32])
        lanes = target.vector_lanes(max(bits, 32))
        rate = 2 * lanes * costs.multiply_adds
        bandwidth = costs.memory_bandwidth
        if nbytes <= target.l2_bytes:
            bandwidth = costs.l2_bandwidth
        elif nbytes <= target.l3_bytes:
            bandwidth = costs.l3_bandwidth
        cycles = max(flops / rate, nbytes / bandwidth)
        return cycles / self.threads / costs.clock
