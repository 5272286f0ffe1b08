"""All workloads by name; a file per family."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads import (
    attention,
    conv,
    gemm,
    low_precision,
    memory,
    novel,
    novel_elements,
    novel_grids,
    order,
    rows,
    sampling,
)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for module in (
        *(gemm, low_precision, conv, rows, memory, order, attention, sampling),
        *(novel, novel_grids, novel_elements),
    )
    for workload in module.WORKLOADS
}

#: Families in the order in which they are shown.
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(w.family for w in WORKLOADS.values()))

__all__ = ["FAMILIES", "WORKLOADS"]
