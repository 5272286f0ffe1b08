"""What models that learn corrections of the machine model have in common: their data and files.

A candidate's score is the machine model's prediction (``-log2`` of cycles) plus the sum of a
model's corrections over its stores. Before any measurement the score is the prediction alone. Times
are relative to their task, so that one model serves all tasks; fast candidates weigh more.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilewright.meta_schedule.cost_model._arrays import read_arrays
from tilewright.meta_schedule.cost_model.base import CostModel
from tilewright.meta_schedule.cost_model.simple import analytic_score
from tilewright.meta_schedule.feature import FEATURE_NAMES, Evaluation, names_by_width
from tilewright.support.errors import TuneError

logger = logging.getLogger("tilewright.meta_schedule")

_CLIP = 6.0

Array = NDArray[Any]
Fitted = TypeVar("Fitted")
"""What a model keeps of its fit."""


@dataclass
class Samples:
    """What a model is fitted to: rows of features, whose candidate each is of, and its target.

    ``rows`` is ``[stores of all candidates, features]``, ``owner`` the candidate of each row. Each
    candidate has the correction that is ``wanted``, the ``weight`` that it has, the score ``prior``
    that is corrected, and the seconds that it took (``times``; infinity if it failed).
    """

    rows: Array
    owner: Array
    wanted: Array
    weight: Array
    prior: Array
    times: Array


def _targets(times: Array, prior: Array) -> tuple[Array, Array]:
    """Return the corrections to learn for a task, and their weights."""
    good = np.isfinite(times)
    if not good.any():
        return np.zeros(len(times)), np.zeros(len(times))
    score = np.zeros(len(times))
    score[good] = -np.log2(times[good])
    score[~good] = score[good].min() - 1.0
    gap = score - prior
    # The scale of expectation and time differs by a factor that is the task's own.
    wanted = np.clip(gap - np.median(gap[good]), -_CLIP, _CLIP)
    return wanted, 0.3 + np.exp2(score - score.max())


class MeasuredModel(CostModel, Generic[Fitted]):
    """Base of models that learn corrections: define ``_fit`` and ``_corrections``.

    They are fitted to all data whenever there are new data, from ``min_data`` on. At most
    ``max_data`` candidates are kept per task, the latest ones.
    """

    def __init__(self, *, min_data: int, max_data: int) -> None:
        self.min_data = min_data
        self.max_data = max_data
        self._features: dict[str, list[Array]] = {}
        self._times: dict[str, list[float]] = {}
        self._priors: dict[str, list[float]] = {}
        self._fitted: Fitted | None = None
        self._stale = False

    def _fit(self, samples: Samples) -> Fitted:
        """Return what ``_corrections`` will need."""
        raise NotImplementedError(f"{type(self).__name__} must define _fit")

    def _corrections(self, fitted: Fitted, rows: Array) -> Array:
        """Return corrections of rows, ``[members, rows]``, of several models if there are."""
        raise NotImplementedError(f"{type(self).__name__} must define _corrections")

    def _base(self, rows: Array) -> Array:
        """Return what is added to all corrections of rows; nothing, unless it is overridden."""
        return np.zeros(len(rows), dtype=np.float32)

    @property
    def trained(self) -> bool:
        """Whether there are corrections from measurements, or will be once they are asked for."""
        count = sum(map(len, self._times.values()))
        return self._fitted is not None or (self._stale and count >= self.min_data)

    def knows(self, task: str) -> bool:
        """Whether it has learned from candidates of a task."""
        return bool(self._times.get(task))

    def _current(self) -> Fitted | None:
        """What was fitted; that is done on demand: it isn't needed after the last batch."""
        if self._stale:
            self._stale = False
            samples = self.samples()
            if len(samples.wanted) >= self.min_data:
                self._fitted = self._fit(samples)
        return self._fitted

    def score(self, task: str, evaluation: Evaluation) -> Array:
        """Return prediction plus corrections; less where several models disagree."""
        count, stores, width = evaluation.features.shape
        rows = evaluation.features.reshape(count * stores, width)
        score: Array = analytic_score(evaluation)
        score = score + self._base(rows).reshape(count, stores).sum(axis=1)
        fitted = self._current()
        if fitted is None:
            return score
        made = self._corrections(fitted, rows).reshape(-1, count, stores).sum(axis=2)
        score = score + made.mean(axis=0) - made.std(axis=0)
        return score

    def learn(
        self, task: str, evaluations: Sequence[Evaluation], seconds: Sequence[float | None]
    ) -> None:
        """Add measurements and refit the corrections.

        Raises ``TuneError`` for features of another kind of target than those before.
        """
        if not len(evaluations):
            return
        widths = {item.features.shape[2] for item in evaluations}
        widths |= {known[0].shape[1] for known in self._features.values() if known}
        if len(widths) > 1:
            raise TuneError(
                "a cost model learns of one kind of target: it was given features of CPUs and of "
                "GPUs; make a model for each"
            )
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

    # ---- what is learned ----------------------------------------------------------------------
    def samples(self) -> Samples:
        """Return what the model has to learn from all measurements so far."""
        tasks = [task for task, times in self._times.items() if len(times)]
        stores = [item for task in tasks for item in self._features[task]]
        rows = np.concatenate(stores) if stores else np.zeros((0, len(FEATURE_NAMES)), np.float32)
        owner = np.repeat(np.arange(len(stores)), [len(item) for item in stores])
        base = np.bincount(owner, weights=self._base(rows), minlength=len(stores))
        starts = np.cumsum([0, *(len(self._times[task]) for task in tasks)])
        wanted, weight, prior, times = np.zeros((4, len(stores)))
        for task, start, end in zip(tasks, starts, starts[1:]):
            own = slice(start, end)
            prior[own] = np.array(self._priors[task]) + base[own]
            times[own] = self._times[task]
            wanted[own], weight[own] = _targets(times[own], prior[own])
        return Samples(rows, owner, wanted, weight, prior, times)

    # ---- files --------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all measurements to one ``.npz`` file; whoever loads it fits the model again."""
        tasks = [task for task in self._times if self._times[task]]
        samples = [item for task in tasks for item in self._features[task]]
        width = samples[0].shape[1] if samples else len(FEATURE_NAMES)
        arrays: dict[str, Any] = {
            "names": np.array(names_by_width(width) or FEATURE_NAMES),
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
        try:
            with open(part, "wb") as file:
                np.savez(file, **arrays)
            os.replace(part, path)  # so that whoever reads it meanwhile finds all of it
        except OSError:
            Path(part).unlink(missing_ok=True)
            raise

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a file that ``save`` wrote; the model is fitted when it is needed.

        Raises ``TuneError`` if the file is damaged, or is of other features.
        """
        arrays = read_arrays(path, os.fspath(path))
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
    times, priors = arrays["times"].astype(np.float64), arrays["priors"].astype(np.float64)
    tasks = arrays["tasks"].tolist()
    count = int(sizes.sum())
    whole = features.ndim == 2 and features.shape[1] == len(arrays["names"])
    if not whole or int(stores.sum()) != len(features) or (sizes < 0).any() or (stores < 0).any():
        raise ValueError("its features don't fit each other")
    if {len(stores), len(times), len(priors)} != {count} or len(tasks) != len(sizes):
        raise ValueError("its measurements don't fit each other")
    if any(array.ndim != 1 for array in (stores, sizes, times, priors)):
        raise ValueError("its measurements are no lists")
    if not (times > 0.0).all() or not np.isfinite(priors).all():  # infinity: it failed
        raise ValueError("its measurements are no times")
    if not np.isfinite(features).all():
        raise ValueError("its features aren't finite")
    samples = np.split(features.astype(np.float32), np.cumsum(stores)[:-1]) if count else []
    ends = np.cumsum(sizes).tolist()
    parts = [slice(end - size, end) for end, size in zip(ends, sizes.tolist())]
    return [
        (str(task), list(samples[part]), times[part].tolist(), priors[part].tolist())
        for task, part in zip(tasks, parts)
    ]
