"""Search strategies: they choose the candidates to measure."""

from __future__ import annotations

from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.search_strategy.base import (
    SEARCH_STRATEGIES,
    PySearchStrategy,
    SearchStrategy,
)
from tilewright.meta_schedule.search_strategy.rule_choices import RuleChoices
from tilewright.support.folder import classes_in, register_classes

_FOUND = register_classes(SEARCH_STRATEGIES, classes_in(__name__, SearchStrategy))
globals().update(_FOUND)

create = SearchStrategy.create

__all__ = [
    "create",
    "MeasureCandidate",
    "RuleChoices",
    "SEARCH_STRATEGIES",
    "SearchStrategy",
    "PySearchStrategy",
    *_FOUND,
]
