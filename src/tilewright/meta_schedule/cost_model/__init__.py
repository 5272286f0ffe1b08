"""Cost models: what rates candidates before they are measured."""

from __future__ import annotations

from tilewright.meta_schedule.cost_model.base import COST_MODELS, CostModel
from tilewright.meta_schedule.cost_model.simple import AnalyticModel, RandomModel
from tilewright.meta_schedule.cost_model.xgb_model import XGBModel

__all__ = ["COST_MODELS", "AnalyticModel", "CostModel", "RandomModel", "XGBModel"]
