"""Search strategies: what says which candidates to measure."""

from __future__ import annotations

from tilewright.meta_schedule.search_strategy.base import SEARCH_STRATEGIES, SearchStrategy
from tilewright.meta_schedule.search_strategy.evolutionary import EvolutionarySearch
from tilewright.meta_schedule.search_strategy.replay_trace import ReplayTrace
from tilewright.meta_schedule.search_strategy.rule_choices import RuleChoices

__all__ = [
    "SEARCH_STRATEGIES",
    "EvolutionarySearch",
    "ReplayTrace",
    "RuleChoices",
    "SearchStrategy",
]
