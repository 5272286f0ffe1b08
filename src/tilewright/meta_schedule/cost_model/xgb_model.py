"""Boosted trees (XGBoost) over the features of stores, on top of a model of the machine.

The sum of the trees over a candidate's stores is fitted to measured times as in Ansor (Zheng et
al., OSDI 2020, section 5.2).
"""

from __future__ import annotations

import importlib
import logging
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tilewright.meta_schedule.cost_model._measured import Array, MeasuredModel, Samples
from tilewright.meta_schedule.cost_model.forest import MAX_DEPTH, Forest, forest_of
from tilewright.meta_schedule.cost_model.pretrained import pretrained_forest
from tilewright.meta_schedule.feature import FEATURE_NAMES, FeatureExtractor, PerStoreFeature
from tilewright.support.errors import MissingExtraError, TuneError
from tilewright.support.refused import refuse_options

logger = logging.getLogger("tilewright.meta_schedule")

_LANES, _FEWEST_LANES = FEATURE_NAMES.index("lanes"), 8


def _xgboost() -> ModuleType:
    try:
        return importlib.import_module("xgboost")
    except ImportError:
        raise MissingExtraError("xgboost-cpu", "xgb", "the cost model 'xgb'") from None


_TREE_METHODS = ("auto", "exact", "approx", "hist")


class XGBConfig(NamedTuple):
    """Parameters of XGBoost under the names and with the values that TVM gives them."""

    max_depth: int = 10
    gamma: float = 0.001
    min_child_weight: float = 0
    eta: float = 0.2
    seed: int = 43
    nthread: int | None = None
    tree_method: str = "auto"


class XGBModel(MeasuredModel[Forest]):
    """``rounds`` boosting rounds over all data whenever there are new data, from ``min_data`` on.

    At most ``max_data`` candidates are kept per task, the latest ones. ``members`` models are
    fitted to different subsets of the data; where they disagree the score is lowered, because a
    search finds the candidates that a model overestimates most. With ``pretrained`` they are fitted
    to what the model that ships with the package gets wrong, which rates candidates until then; it
    was trained on CPUs with AVX2 and AVX-512, and says nothing of vectors of fewer than 8 elements.

    Of TVM's options, ``config`` has parameters of the trees, instead of ``max_depth``,
    ``learning_rate`` and ``seed``; ``num_warmup_samples`` is ``min_data``, and ``num_tuning_cores``
    the number of threads that fit. What it learns is always the whole of the data, in a fixed
    number of rounds (so ``adaptive_training`` is false), from the features per store. Raises
    ``TuneError`` for options that mean nothing here.

    A batch of trials waits for the fit. Trees that are deeper, or twice as many of half the rate,
    rank what comes next no better: the rows are few.
    """

    name = "xgb"

    def __init__(
        self,
        *,
        rounds: int = 30,
        max_depth: int = 5,
        learning_rate: float = 0.25,
        members: int = 3,
        min_data: int = 12,
        max_data: int = 1024,
        seed: int = 0,
        pretrained: bool = True,
        extractor: FeatureExtractor | str = "per-store-feature",
        config: XGBConfig | None = None,
        num_warmup_samples: int | None = None,
        early_stopping_rounds: int | None = None,
        verbose_eval: int | None = None,
        average_peak_n: int | None = None,
        adaptive_training: bool = False,
        num_tuning_cores: int | None = None,
        tree_method: str | None = None,
    ) -> None:
        refuse_options(
            XGBModel,
            {
                "early_stopping_rounds": early_stopping_rounds,
                "verbose_eval": verbose_eval or None,
                "average_peak_n": average_peak_n,
                "adaptive_training": adaptive_training or None,
            },
            "a fit has a fixed number of rounds over all data, whenever there are new ones",
        )
        _check_extractor(extractor)
        if config is None:
            config = XGBConfig(
                max_depth, eta=learning_rate, seed=seed, nthread=1, tree_method="hist"
            )
        elif (max_depth, learning_rate, seed) != (5, 0.25, 0):
            raise TuneError("max_depth, learning_rate and seed are in config, if there is one")
        max_depth, seed = config.max_depth, config.seed
        min_data = min_data if num_warmup_samples is None else num_warmup_samples
        threads = config.nthread if num_tuning_cores is None else num_tuning_cores
        if threads is not None and threads < 1:
            raise TuneError(f"num_tuning_cores is a positive number, got {threads}")
        method = config.tree_method if tree_method is None else tree_method
        if method not in _TREE_METHODS:
            raise TuneError(f"tree_method is one of {', '.join(_TREE_METHODS)}, not {method!r}")
        super().__init__(min_data=min_data, max_data=max_data)
        if not 1 <= max_depth <= MAX_DEPTH:
            raise TuneError(f"trees are from 1 to {MAX_DEPTH} deep, not {max_depth}")
        self.rounds = rounds
        self.members = members
        self.seed = seed
        self.pretrained = pretrained_forest() if pretrained else None
        self.parameters: dict[str, Any] = {
            "max_depth": max_depth,
            "eta": config.eta,
            "min_child_weight": config.min_child_weight,
            "gamma": config.gamma,
            "lambda": 1.0,
            "base_score": 0.0,
            "tree_method": method,
            "max_bin": 64,
            "subsample": 0.8,
            "colsample_bytree": 0.5,
            "verbosity": 0,
            # The data are small: threads would only wait for each other.
            "nthread": threads or 1,
            "disable_default_eval_metric": 1,
        }

    def _base(self, rows: Array) -> Array:
        nothing = super()._base(rows)
        if self.pretrained is None:
            return nothing
        # Of narrower vectors, and of GPUs, it has seen nothing.
        return np.where(rows[:, _LANES] >= _FEWEST_LANES, self.pretrained(rows)[0], nothing)

    def _corrections(self, fitted: Forest, rows: Array) -> Array:
        made: Array = fitted(rows)
        return made

    def _fit(self, samples: Samples) -> Forest:
        xgboost = _xgboost()
        owner, wanted, weight = samples.owner, samples.wanted, samples.weight
        data = xgboost.DMatrix(samples.rows)
        counts = np.bincount(owner, minlength=len(wanted)).astype(np.float64)

        def objective(predicted: Any, _: object) -> tuple[object, object]:
            total = np.bincount(owner, weights=predicted, minlength=len(wanted))
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
        logger.debug("cost model: fitted to %d candidates", len(wanted))
        return forest_of(boosters, self.parameters["max_depth"])


def _check_extractor(extractor: FeatureExtractor | str) -> None:
    """Refuse features that aren't those of the populations that the search rates."""
    if isinstance(extractor, str):
        extractor = FeatureExtractor.create(extractor)
    if type(extractor) is not PerStoreFeature or extractor.extract_workload:
        raise TuneError(
            "XGBModel learns from features per store, as PerStoreFeature() has them; for others "
            "write a CostModel whose `predict` calls an extractor"
        )
