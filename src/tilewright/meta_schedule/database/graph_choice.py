"""What serves a whole graph best, where its kernels were measured among their neighbours."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.meta_schedule.database.schema import read_target
from tilewright.support.errors import TuneError
from tilewright.target import Target

_HASH = re.compile(r"[0-9a-f]{8,128}")
_MOST = 100_000


@dataclass(frozen=True)
class GraphChoice:
    """Which records of a database one graph uses, for one target.

    ``graph`` is the structural hash of the graph, constants by shape and dtype. ``measured_ways``:
    algorithms and layouts of convolutions go by measured times, else by estimate. ``by_rule`` are
    the hashes of workloads that the rules schedule, whatever records there are; ``records`` has the
    digests of the records that others use, by the hashes of their workloads. A workload in neither
    has its best record.
    """

    graph: str
    target: Target
    measured_ways: bool
    by_rule: tuple[str, ...]
    records: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> list[object]:
        """Return JSON data."""
        data = [self.graph, self.target.export(), self.measured_ways, list(self.by_rule)]
        return [*data, dict(self.records)] if self.records else data

    @staticmethod
    def from_json(data: object) -> GraphChoice:
        """Inverse of ``as_json``; ``TuneError`` for anything else."""
        if isinstance(data, list) and len(data) in (4, 5):
            graph, target, measured, by_rule = data[:4]
            records = data[4] if len(data) == 5 else {}
            if (
                _is_hash(graph)
                and isinstance(target, dict)
                and type(measured) is bool
                and isinstance(by_rule, list)
                and len(by_rule) <= _MOST
                and all(map(_is_hash, by_rule))
                and isinstance(records, dict)
                and len(records) <= _MOST
                and all(map(_is_hash, (*records, *records.values())))
            ):
                found = read_target(target)
                return GraphChoice(graph, found, measured, tuple(by_rule), tuple(records.items()))
        raise TuneError("not a choice for a graph")


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None
