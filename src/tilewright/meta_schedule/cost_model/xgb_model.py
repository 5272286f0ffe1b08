"""Boosted trees (XGBoost) over the features of stores, on top of a model of the machine.

A candidate's score is the machine model's prediction (``-log2`` of cycles) plus the sum of a tree
model's corrections over its stores; the sum is fitted to measured times as in Ansor (Zheng et al.,
OSDI 2020, section 5.2). Before any measurement the score is the prediction alone. Times are
relative to their task, so that one model serves all tasks; fast candidates weigh more.
"""

from __future__ import annotations

import importlib
import logging
import os
import zipfile
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tilewright.meta_schedule.cost_model.base import CostModel
from tilewright.meta_schedule.cost_model.forest import MAX_DEPTH, Forest, forest_of
from tilewright.meta_schedule.cost_model.simple import analytic_score
from tilewright.meta_schedule.feature import FEATURE_NAMES, Evaluation
from tilewright.support.errors import MissingExtraError, TuneError

logger = logging.getLogger("tilewright.meta_schedule")

_CLIP = 6.0


def _xgboost() -> ModuleType:
    try:
        return importlib.import_module("xgboost")
    except ImportError:
        raise MissingExtraError("xgboost-cpu", "xgb", "the cost model 'xgb'") from None


class XGBModel(CostModel):
    """``rounds`` boosting rounds over all data whenever there are new data, from ``min_data`` on.

    At most ``max_data`` candidates are kept per task, the latest ones. ``members`` models are
    fitted to different subsets of the data; where they disagree the score is lowered, because a
    search finds the candidates that a model overestimates most.
    """

    name = "xgb"

    def __init__(
        self,
        *,
        rounds: int = 50,
        max_depth: int = 6,
        learning_rate: float = 0.15,
        members: int = 3,
        min_data: int = 12,
        max_data: int = 1024,
        seed: int = 0,
    ) -> None:
        if not 1 <= max_depth <= MAX_DEPTH:
            raise TuneError(f"trees are from 1 to {MAX_DEPTH} deep, not {max_depth}")
        self.rounds = rounds
        self.members = members
        self.seed = seed
        self.min_data = min_data
        self.max_data = max_data
        self.parameters: dict[str, Any] = {
            "max_depth": max_depth,
            "eta": learning_rate,
            "min_child_weight": 0.0,
            "gamma": 0.001,
            "lambda": 1.0,
            "base_score": 0.0,
            "tree_method": "hist",
            "max_bin": 64,
            "subsample": 0.8,
            "colsample_bytree": 0.5,
            "verbosity": 0,
            # The data are small: threads would only wait for each other.
            "nthread": 1,
            "disable_default_eval_metric": 1,
        }
        self._features: dict[str, list[Any]] = {}
        self._times: dict[str, list[float]] = {}
        self._priors: dict[str, list[float]] = {}
        self._fitted: Forest | None = None
        self._stale = False

    @property
    def trained(self) -> bool:
        """Whether there are corrections."""
        return self._forest is not None

    def knows(self, task: str) -> bool:
        """Whether it has learned from candidates of a task."""
        return bool(self._times.get(task))

    @property
    def _forest(self) -> Forest | None:
        """The trees, fitted on demand: they are not needed after the last batch."""
        if self._stale:
            self._stale = False
            self._fit()
        return self._fitted

    def score(self, task: str, evaluation: Evaluation) -> Any:
        """Return prediction plus corrections."""
        prior = analytic_score(evaluation)
        forest = self._forest
        if forest is None:
            return prior
        features = evaluation.features
        count, stores, width = features.shape
        sums = forest(features.reshape(count * stores, width))
        corrections = sums.reshape(self.members, count, stores).sum(axis=2)
        return prior + corrections.mean(axis=0) - corrections.std(axis=0)

    def learn(
        self, task: str, evaluations: Sequence[Evaluation], seconds: Sequence[float | None]
    ) -> None:
        """Add measurements and refit the corrections."""
        if not len(evaluations):
            return
        features = self._features.setdefault(task, [])
        times = self._times.setdefault(task, [])
        priors = self._priors.setdefault(task, [])
        for evaluation, time in zip(evaluations, seconds):
            features.append(np.asarray(evaluation.features[0], dtype=np.float32))
            priors.append(float(analytic_score(evaluation)[0]))
            times.append(np.inf if time is None else float(time))
        for values in (features, times, priors):
            del values[: max(0, len(values) - self.max_data)]
        self._stale = True

    def _targets(self, task: str) -> tuple[object, object]:
        """Return the corrections to learn for a task, and their weights."""
        times = np.array(self._times[task])
        good = np.isfinite(times)
        if not good.any():
            return np.zeros(len(times)), np.zeros(len(times))
        score = np.full(len(times), 0.0)
        score[good] = -np.log2(times[good])
        score[~good] = score[good].min() - 1.0
        gap = score - np.array(self._priors[task])
        # The scale of expectation and time differs by a factor that is the task's own.
        wanted = np.clip(gap - np.median(gap[good]), -_CLIP, _CLIP)
        weight = 0.3 + np.exp2(score - score.max())
        return wanted, weight

    def _fit(self) -> None:
        tasks = [task for task, times in self._times.items() if len(times)]
        if sum(len(self._times[task]) for task in tasks) < self.min_data:
            return
        xgboost = _xgboost()
        samples = [item for task in tasks for item in self._features[task]]
        pairs = [self._targets(task) for task in tasks]
        wanted = np.concatenate([pair[0] for pair in pairs])
        weight = np.concatenate([pair[1] for pair in pairs])
        owner = np.repeat(np.arange(len(samples)), [len(item) for item in samples])
        data = xgboost.DMatrix(np.concatenate(samples))
        counts = np.bincount(owner, minlength=len(samples)).astype(np.float64)

        def objective(predicted: Any, _: object) -> tuple[object, object]:
            total = np.bincount(owner, weights=predicted, minlength=len(samples))
            gradient = (weight * (total - wanted))[owner]
            # Each store takes an equal part of the step that its candidate needs.
            hessian = (weight * counts)[owner]
            return gradient, hessian

        boosters = [
            xgboost.train(
                {**self.parameters, "seed": self.seed + member},
                data,
                num_boost_round=self.rounds,
                obj=objective,
            )
            for member in range(self.members)
        ]
        self._fitted = forest_of(boosters, self.parameters["max_depth"])
        logger.debug("cost model: fitted to %d candidates of %d tasks", len(samples), len(tasks))

    # ---- files --------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all measurements to one ``.npz`` file; whoever loads it fits the trees again."""
        tasks = [task for task in self._times if self._times[task]]
        samples = [item for task in tasks for item in self._features[task]]
        arrays: dict[str, Any] = {
            "names": np.array(FEATURE_NAMES),
            "tasks": np.array(tasks, dtype=str),
            "sizes": np.array([len(self._times[task]) for task in tasks], dtype=np.int64),
            "stores": np.array([len(item) for item in samples], dtype=np.int64),
            "features": np.concatenate(samples)
            if samples
            else np.zeros((0, len(FEATURE_NAMES)), dtype=np.float32),
            "times": np.array([t for task in tasks for t in self._times[task]]),
            "priors": np.array([p for task in tasks for p in self._priors[task]]),
        }
        part = f"{os.fspath(path)}.{os.getpid()}"
        with open(part, "wb") as file:
            np.savez(file, **arrays)
        os.replace(part, path)  # so that whoever reads it meanwhile finds all of it

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a file that ``save`` wrote; the trees are fitted when they are needed.

        Raises ``TuneError`` if the file is damaged, or is of other features.
        """
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise TuneError(f"{os.fspath(path)} can't be read: {error}") from error
        if "names" not in arrays or tuple(arrays["names"].tolist()) != FEATURE_NAMES:
            raise TuneError(f"{os.fspath(path)} holds a cost model of other features")
        try:
            measured = _measurements(arrays)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise TuneError(f"{os.fspath(path)} is damaged: {error}") from error
        self._features, self._times, self._priors = {}, {}, {}
        for task, features, times, priors in measured:
            self._features[task], self._times[task], self._priors[task] = features, times, priors
        self._fitted, self._stale = None, True


def _measurements(
    arrays: dict[str, Any],
) -> list[tuple[str, list[Any], list[float], list[float]]]:
    """Divide the arrays of a file among the tasks.

    Raises ``ValueError`` if they don't fit each other.
    """
    features, stores, sizes = arrays["features"], arrays["stores"], arrays["sizes"]
    times, priors, tasks = arrays["times"], arrays["priors"], arrays["tasks"].tolist()
    count = int(sizes.sum())
    whole = features.ndim == 2 and features.shape[1] == len(FEATURE_NAMES)
    if not whole or int(stores.sum()) != len(features) or (sizes < 0).any() or (stores < 0).any():
        raise ValueError("its features don't fit each other")
    if {len(stores), len(times), len(priors)} != {count} or len(tasks) != len(sizes):
        raise ValueError("its measurements don't fit each other")
    samples = np.split(features.astype(np.float32), np.cumsum(stores)[:-1]) if count else []
    ends = np.cumsum(sizes).tolist()
    parts = [slice(end - size, end) for end, size in zip(ends, sizes.tolist())]
    return [
        (str(task), list(samples[part]), times[part].tolist(), priors[part].tolist())
        for task, part in zip(tasks, parts)
    ]
