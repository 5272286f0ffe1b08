"""Evolutionary search on arrays.

A population is distributed over the variants of the design space. In each generation, parents are
drawn by score; children come from mutation (one decision changes) and crossover (decisions of two
parents of one variant); validity and scores are computed for whole arrays. Only the few that are
measured are replayed into programs: the best by score, and a share of random ones to counter a
biased model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.meta_schedule.cost_model.simple import analytic_score
from tilewright.meta_schedule.feature import Evaluation
from tilewright.meta_schedule.measure_candidate import MeasureCandidate
from tilewright.meta_schedule.mutator import Mutator
from tilewright.meta_schedule.search_strategy.base import (
    SearchStrategy,
    candidate_of,
)
from tilewright.meta_schedule.search_strategy.design import Variant, first_of_equals
from tilewright.support.errors import TuneError
from tilewright.support.refused import refuse_options

Rows = Any

_NEAR = 0.5
"""A score is the logarithm of a speed, to the base 2: candidates with new tiles, within this of the
best, are expected to be at least 0.7 times as fast."""
_FEW_OPTIONS = 8
"""Decisions with no more options have all of them tried, by score, of the best candidates."""
_RATED = 4
"""A model that rates schedules one by one rates so many times those that are measured."""
_TRIES = 4
"""Candidates of one variant that may be refused before others get their chance."""


@dataclass
class Group:
    """Candidates of one variant, with their features and scores."""

    rows: Rows
    evaluation: Evaluation
    scores: Any

    def take(self, chosen: object) -> Group:
        """Return some of the candidates."""
        picked = Evaluation(
            self.evaluation.features[chosen],
            self.evaluation.cycles[chosen],
            self.evaluation.valid[chosen],
            self.evaluation.code[chosen],
        )
        return Group(self.rows[chosen], picked, self.scores[chosen])


# A population is so many times the candidates that are asked for, up to ``population_size``.
_PER_CANDIDATE, _LEAST_POPULATION = 64, 256
_LEAST_SHARE = 64
"""Candidates of each variant in the first generation, at least."""


class EvolutionarySearch(SearchStrategy):
    """``population_size`` candidates for ``genetic_num_iters`` generations, per batch.

    A fraction ``genetic_mutate_prob`` of the children are mutants, the others crossovers. One of
    ``eps_greedy`` of a batch is drawn at random. The innermost tiles decide most about a candidate:
    before anything is known each has tiles of its own, later a fraction ``fresh_tiles`` of a batch
    has some that weren't tried. ``fallback_population`` limits variants whose candidates must be
    replayed one by one.

    The first generation has the ``elites`` best that were measured, or as many as make up the
    fraction ``init_measured_ratio`` of a population, and at least ``init_min_unmeasured`` that are
    drawn. Where none of them is valid, more are drawn, ``max_fail_count`` times.
    """

    name = "evolutionary"

    def __init__(
        self,
        *,
        population_size: int = 2048,
        genetic_num_iters: int = 4,
        genetic_mutate_prob: float = 0.85,
        eps_greedy: float = 0.08,
        elites: int = 64,
        focus: int = 8,
        fresh_tiles: float = 0.25,
        fallback_population: int = 24,
        init_measured_ratio: float | None = None,
        init_min_unmeasured: int = 50,
        max_fail_count: int = 1,
        genetic_max_fail_count: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(seed=seed)
        refuse_options(
            EvolutionarySearch,
            {"genetic_max_fail_count": genetic_max_fail_count},
            "children are bred all at once, and invalid ones left out",
        )
        if init_measured_ratio is not None and not 0.0 <= init_measured_ratio <= 1.0:
            raise TuneError(f"init_measured_ratio is from 0 to 1, got {init_measured_ratio}")
        if init_min_unmeasured < 0 or max_fail_count < 0:
            raise TuneError("init_min_unmeasured and max_fail_count must not be negative")
        self.init_measured_ratio = init_measured_ratio
        self.init_min_unmeasured = init_min_unmeasured
        self.max_fail_count = max_fail_count
        self.population_size = population_size
        self.genetic_num_iters = genetic_num_iters
        self.genetic_mutate_prob = genetic_mutate_prob
        self.eps_greedy = eps_greedy
        self.elites = elites
        self.focus = focus
        self.fresh_tiles = fresh_tiles
        self.fallback_population = fallback_population
        self._looks: set[bytes] = set()
        self._tiles: set[tuple[int, ...]] = set()

    def generate_measure_candidates(
        self, count: int | None = None
    ) -> list[MeasureCandidate] | None:
        """Search, and return the most promising candidates that were not measured yet."""
        return list(self._found(self._wanted(count))) or None

    def each_measure_candidate(self, count: int | None = None) -> Iterator[MeasureCandidate]:
        """Search, and yield them while they are replayed."""
        own = (
            type(self).generate_measure_candidates is EvolutionarySearch.generate_measure_candidates
        )
        # Else a subclass says which there are.
        yield from (
            self._found(self._wanted(count)) if own else super().each_measure_candidate(count)
        )

    def _found(self, count: int) -> Iterator[MeasureCandidate]:
        if not self.variants or count < 1:
            return
        size = min(self.population_size, max(_LEAST_POPULATION, _PER_CANDIDATE * count))
        groups = self._initial(size)
        initial = dict(groups)
        for _ in range(self.genetic_num_iters):
            groups = self._generation(groups, size)
        groups = {number: self._with_all_options(number, group) for number, group in groups.items()}
        if self.cost_model is not None and self.cost_model.rates_schedules:
            yield from self._rated(list(self._select(groups, initial, _RATED * count)), count)
        else:
            yield from self._select(groups, initial, count)

    def _rated(self, made: list[MeasureCandidate], count: int) -> Iterator[MeasureCandidate]:
        """Yield those of some schedules that a cost model rates best, and forget the others."""
        assert self.cost_model is not None
        scores = np.asarray(self.cost_model.predict(self.context, made), dtype=np.float64)
        if scores.shape != (len(made),):
            raise TuneError(
                f"{type(self.cost_model).__name__}.predict returns a score for each candidate: "
                f"{len(made)} numbers, got shape {scores.shape}"
            )
        order = np.argsort(-scores, kind="stable")
        for place in order[count:]:
            self._take_back(made[place])
        yield from (made[place] for place in order[:count])

    def post_tuning(self) -> None:
        """Release the task."""
        super().post_tuning()
        self._looks, self._tiles = set(), set()

    # ---- populations --------------------------------------------------------------------------
    def _evaluated(self, variant: Variant, rows: Rows) -> Group:
        """Evaluate rows without duplicates, and keep the valid ones."""
        rows = rows[first_of_equals(rows)]
        evaluation = variant.evaluate(rows)
        task = self.context.hash
        if self.cost_model is None:
            scores = self.rng.random(len(rows))
        elif self.cost_model.rates_schedules:
            scores = analytic_score(evaluation)
        else:
            scores = np.asarray(self.cost_model.score(task, evaluation), dtype=np.float64)
        group = Group(rows, evaluation, scores)
        return group if evaluation.valid.all() else group.take(evaluation.valid)

    def _initial(self, population: int) -> dict[int, Group]:
        """Draw candidates of all variants; add the best measured ones."""
        share = max(_LEAST_SHARE, population // len(self.variants))
        share = max(share, -(-self.init_min_unmeasured // len(self.variants)))
        most = self.elites
        if self.init_measured_ratio is not None:
            most = round(self.init_measured_ratio * population)
        best: dict[int, list[Any]] = {}
        for key, _ in sorted(self.times.items(), key=lambda item: item[1])[:most]:
            number, data = key
            if np.isfinite(self.times[key]):
                best.setdefault(number, []).append(np.frombuffer(data, dtype=np.int64))
        groups = {}
        for number, variant in enumerate(self.variants):
            size = share if variant.function is not None else self.fallback_population
            rows = variant.draw(size, self.rng)
            if number in best:
                rows = np.concatenate([rows, np.stack(best[number])])
            group = self._evaluated(variant, rows)
            for _ in range(self.max_fail_count if variant.function is not None else 0):
                if len(group.rows):
                    break
                # Valid candidates are rare here: look harder.
                group = self._evaluated(variant, variant.draw(8 * size, self.rng))
            if len(group.rows):
                groups[number] = group
        return groups

    def _generation(self, groups: dict[int, Group], population: int) -> dict[int, Group]:
        """Return the survivors of parents and children."""
        evolving = [n for n in groups if self.variants[n].function is not None]
        evolving.sort(key=lambda n: -float(groups[n].scores.max()))
        evolving = evolving[: self.focus]
        if not evolving:
            return groups
        weights = self._shares([groups[n] for n in evolving])
        made = dict(groups)
        moved: dict[int, list[Rows]] = {}
        for number, weight in zip(evolving, weights):
            size = max(16, int(population * weight))
            children, strays = self._children(number, groups[number], size)
            moved.setdefault(number, []).append(children)
            for other, rows in strays.items():
                moved.setdefault(other, []).append(rows)
        for number, parts in moved.items():
            variant = self.variants[number]
            if variant.function is None:
                continue
            fresh = self._evaluated(variant, np.concatenate(parts))
            known = made.get(number)
            together = fresh if known is None else _joined(known, fresh)
            if len(together.rows):
                order = np.argsort(-together.scores, kind="stable")[:population]
                made[number] = together.take(order)
        return made

    @staticmethod
    def _shares(groups: list[Group]) -> Any:
        """The distribution of the population: better variants get more, but each gets some."""
        best = np.array([float(group.scores.max()) for group in groups])
        weights = np.exp2(np.maximum(best - best.max(), -4.0))
        return weights / weights.sum()

    def _children(self, number: int, group: Group, size: int) -> tuple[Rows, dict[int, Rows]]:
        """Make children of one variant's candidates; the second result moved to other variants."""
        order = np.argsort(-group.scores, kind="stable")
        chances = 1.0 / (8.0 + np.arange(len(order)))
        chances /= chances.sum()
        parents = group.rows[order[self.rng.choice(len(order), size=size, p=chances)]]
        if not parents.shape[1]:
            return parents, {}
        mutants = self.rng.random(size) < self.genetic_mutate_prob
        mates = group.rows[order[self.rng.choice(len(order), size=size, p=chances)]]
        mask = self.rng.random(parents.shape) < 0.5
        children = np.where(mutants[:, None], parents, np.where(mask, parents, mates))
        strays: dict[int, Rows] = {}
        mutators = self.context.space_generator.mutator_probs
        if not mutators:
            return children, strays
        kinds = list(mutators)
        probs = np.array([mutators[kind] for kind in kinds])
        chosen = self.rng.choice(len(kinds), size=size, p=probs / probs.sum())
        for position, mutator in enumerate(kinds):
            where = np.flatnonzero(mutants & (chosen == position))
            if not len(where):
                continue
            if mutator.structural:
                strays.update(self._relocated(number, children[where]))
            else:
                self._mutate(number, mutator, children, where)
        return children, strays

    def _with_all_options(self, number: int, group: Group) -> Group:
        """Add the best candidates with all options of each decision that has few.

        A generation tries only some, and whoever measures a good tile with a bad option would
        take the tile for bad.
        """
        variant = self.variants[number]
        best = group.rows[np.argsort(-group.scores, kind="stable")[: self.elites]]
        found = []
        for place, column in enumerate(variant.columns if variant.function is not None else ()):
            if len(column.options) <= _FEW_OPTIONS:
                for option in range(len(column.options)):
                    found.append(best.copy())
                    found[-1][:, place] = option
        if not found or not len(best):
            return group
        return _joined(group, self._evaluated(variant, np.concatenate(found)))

    def _mutate(self, number: int, mutator: Mutator, children: Rows, where: Any) -> None:
        columns = self.variants[number].columns
        own = [n for n, column in enumerate(columns) if mutator.applies(column)]
        if not own:
            return
        # A second step now and then gets over candidates that are invalid half way.
        for rows in (where, where[self.rng.random(len(where)) < 0.3]):
            target = self.rng.integers(0, len(own), len(rows))
            for place, column in enumerate(own):
                at = rows[target == place]
                if len(at):
                    children[at, column] = mutator.mutate(
                        columns[column], children[at, column], self.rng
                    )

    def _relocated(self, number: int, rows: Rows) -> dict[int, Rows]:
        """Move candidates to variants of the same sketch with other compute locations."""
        own = self.variants[number]
        others = [
            n
            for n, variant in enumerate(self.variants)
            if n != number
            and variant.family == own.family
            and len(variant.columns) == len(own.columns)
            and all(
                np.array_equal(a.options, b.options) for a, b in zip(variant.columns, own.columns)
            )
        ]
        if not others:
            return {}
        target = self.rng.integers(0, len(others), len(rows))
        return {
            other: rows[target == place]
            for place, other in enumerate(others)
            if (target == place).any()
        }

    # ---- what gets measured -------------------------------------------------------------------
    def _select(
        self, groups: dict[int, Group], initial: dict[int, Group], count: int
    ) -> Iterator[MeasureCandidate]:
        random_count = max(1, round(count * self.eps_greedy)) if count > 2 else 0
        trained = self.cost_model is not None and self.cost_model.trained
        made: list[MeasureCandidate] = []
        if not trained:
            # Nothing is known yet: every variant gets a chance with its best candidate.
            by_best = sorted(groups, key=lambda n: -float(groups[n].scores.max()))
            for number in by_best[: max(1, count // 2)]:
                best = self._ranked({number: groups[number]}, 0.0)
                yield from self._measure(made, best, len(made) + 1, tries=_TRIES)
        wanted = count - random_count
        fresh = self.fresh_tiles * count if trained or not self.fresh_tiles else wanted
        fresh = min(wanted, len(made) + round(fresh))
        yield from self._measure(made, self._ranked(groups, 0.0), fresh, fresh=True)
        # A little noise keeps a batch from being variations of one candidate.
        ranked = self._ranked(groups, 0.1 if trained else 0.4)
        yield from self._measure(made, ranked, wanted)
        # Random ones from the better part: what a model calls hopeless costs most to measure.
        better = {
            number: group.take(group.scores >= np.quantile(group.scores, 0.75))
            for number, group in initial.items()
        }
        pool = self._ranked(better, None)
        yield from self._measure(made, pool, count)
        for rest in (ranked, self._ranked(initial, None)):
            yield from self._measure(made, rest, count, alike=True)

    def _ranked(
        self, groups: dict[int, Group], noise: float | None
    ) -> list[tuple[int, Group, int]]:
        """Order all candidates by score with some noise, or at random (``None``)."""
        owners, places, scores = [], [], []
        for number, group in groups.items():
            owners.append(np.full(len(group.rows), number))
            places.append(np.arange(len(group.rows)))
            scores.append(group.scores)
        if not owners:
            return []
        owner, place, score = map(np.concatenate, (owners, places, scores))
        if noise is None:
            order = self.rng.permutation(len(score))
        else:
            order = np.argsort(-(score + noise * self.rng.gumbel(size=len(score))), kind="stable")
        return [(int(owner[n]), groups[int(owner[n])], int(place[n])) for n in order[:4096]]

    def _measure(
        self,
        made: list[MeasureCandidate],
        ranked: list[tuple[int, Group, int]],
        count: int,
        *,
        alike: bool = False,
        fresh: bool = False,
        tries: int | None = None,
    ) -> Iterator[MeasureCandidate]:
        """Replay candidates in order until ``count`` are made, or ``tries`` were refused.

        Candidates with equal features are mostly the same program, so unless ``alike`` only one of
        them is replayed; ``fresh`` ones have innermost tiles that weren't tried, and scores near
        the best one.
        """
        refused = 0
        least = max((float(g.scores[n]) for _, g, n in ranked), default=0.0) - _NEAR if fresh else 0
        for number, group, place in ranked:
            if len(made) >= count or refused == tries:
                return
            row = group.rows[place]
            if (number, row.tobytes()) in self.times:
                continue
            if group.evaluation.code[place] > self.variants[number].max_code:
                continue  # larger than others of the variant that were too large
            tiles = self._innermost(number, row)
            if fresh and (tiles in self._tiles or group.scores[place] < least):
                continue
            look = group.evaluation.features[place].tobytes()
            if look in self._looks and not alike:
                continue
            self._looks.add(look)
            candidate = self._finish(number, row, candidate_of(group.evaluation, place))
            if candidate is None:
                refused += 1
            else:
                made.append(candidate)
                self._tiles.add(tiles)
                yield candidate

    def _innermost(self, number: int, row: Any) -> tuple[int, ...]:
        """The innermost factors of a candidate's tiles, and its variant."""
        columns = self.variants[number].columns
        tiles = (
            int(column.options[option, -1])
            for column, option in zip(columns, row)
            if column.use == "tile"
        )
        return (number, *tiles)


def _joined(a: Group, b: Group) -> Group:
    """Merge two groups without duplicate candidates."""
    rows = np.concatenate([a.rows, b.rows])
    first = first_of_equals(rows)
    whole = Group(
        rows,
        Evaluation(
            np.concatenate([a.evaluation.features, b.evaluation.features]),
            np.concatenate([a.evaluation.cycles, b.evaluation.cycles]),
            np.concatenate([a.evaluation.valid, b.evaluation.valid]),
            np.concatenate([a.evaluation.code, b.evaluation.code]),
        ),
        np.concatenate([a.scores, b.scores]),
    )
    return whole.take(first)
