"""Made by `tools/package_stubs.py`."""

create = SearchStrategy.create
from tilewright.meta_schedule.measure_candidate import MeasureCandidate as MeasureCandidate
from tilewright.meta_schedule.search_strategy.base import PySearchStrategy as PySearchStrategy
from tilewright.meta_schedule.search_strategy.base import SEARCH_STRATEGIES as SEARCH_STRATEGIES
from tilewright.meta_schedule.search_strategy.base import SearchStrategy as SearchStrategy
from tilewright.meta_schedule.search_strategy.coordinate_descent import CoordinateDescent as CoordinateDescent
from tilewright.meta_schedule.search_strategy.evolutionary import EvolutionarySearch as EvolutionarySearch
from tilewright.meta_schedule.search_strategy.exhaustive import Exhaustive as Exhaustive
from tilewright.meta_schedule.search_strategy.replay_func import ReplayFunc as ReplayFunc
from tilewright.meta_schedule.search_strategy.replay_trace import ReplayTrace as ReplayTrace
from tilewright.meta_schedule.search_strategy.rule_choices import RuleChoices as RuleChoices
