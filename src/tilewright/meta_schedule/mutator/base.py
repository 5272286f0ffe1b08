"""The base of mutators: each changes one decision in many candidates at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.meta_schedule import defaults
from tilewright.meta_schedule.column import Column
from tilewright.support.errors import TuneError
from tilewright.support.registry import Registry
from tilewright.target import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self


class Mutator:
    """Base of mutators.

    A population holds, for each decision (``Column``), the number of the chosen option in each
    candidate. ``applies`` says which decisions this mutator handles; ``mutate`` gets the options of
    some candidates and returns others. A *structural* mutator moves candidates to another variant
    of their sketch instead.
    """

    name = "mutator"
    structural = False

    def applies(self, column: Column) -> bool:
        """Whether the mutator changes decisions of this kind."""
        raise NotImplementedError(f"{type(self).__name__} must define applies")

    def initialize(self, target: Target) -> None:
        """Learn what the task is tuned for."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Learn of which task (a ``TuneContext``) the schedules are; after ``initialize``."""

    def mutate(
        self, column: Column, chosen: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return other options for the candidates that chose ``chosen``."""
        return other_option(column, chosen, rng)

    def clone(self) -> Self:
        """Return a copy that shares nothing that it changes."""
        return copy.deepcopy(self)

    @staticmethod
    def create(kind: str) -> dict[Mutator, float]:
        """Return the default mutators for a kind of target (``"llvm"``, ``"cuda"``), with weights.

        Raises ``TuneError`` if the kind has none.
        """
        weights = defaults.of_kind(kind).mutator_probs
        return {MUTATORS.get(name)(): weight for name, weight in weights.items()}


def other_option(
    column: Column, chosen: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw an option uniformly among the others."""
    count = len(column.options)
    if count < 2:
        return chosen
    return (chosen + rng.integers(1, count, chosen.shape)) % count


PyMutator = Mutator
"""The name under which TVM's users derive from it."""

MUTATORS: Registry[Callable[[], Mutator]] = Registry("mutator", TuneError)
"""Mutators by name; ``defaults.py`` gives the default weights."""
