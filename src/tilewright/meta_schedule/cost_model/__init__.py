"""Cost models: they rate candidates before measurement."""

from __future__ import annotations

from tilewright.meta_schedule.cost_model.base import COST_MODELS, CostModel, PyCostModel
from tilewright.support.folder import classes_in, register_classes

_FOUND = register_classes(COST_MODELS, classes_in(__name__, CostModel))
globals().update(_FOUND)

__all__ = ["COST_MODELS", "CostModel", "PyCostModel", *_FOUND]
