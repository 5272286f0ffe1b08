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
    the hashes of workloads that the rules schedule, whatever records there are.
    """

    graph: str
    target: Target
    measured_ways: bool
    by_rule: tuple[str, ...]

    def as_json(self) -> list[object]:
        """Return JSON data."""
        return [self.graph, self.target.export(), self.measured_ways, list(self.by_rule)]

    @staticmethod
    def from_json(data: object) -> GraphChoice:
        """Inverse of ``as_json``; ``TuneError`` for anything else."""
        if isinstance(data, list) and len(data) == 4:
            graph, target, measured, by_rule = data
            if (
                _is_hash(graph)
                and isinstance(target, dict)
                and type(measured) is bool
                and isinstance(by_rule, list)
                and len(by_rule) <= _MOST
                and all(map(_is_hash, by_rule))
            ):
                return GraphChoice(graph, read_target(target), measured, tuple(by_rule))
        raise TuneError("not a choice for a graph")


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None
