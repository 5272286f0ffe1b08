"""Made by `tools/package_stubs.py`."""

from tilewright.meta_schedule.cost_model.base import COST_MODELS as COST_MODELS
from tilewright.meta_schedule.cost_model.base import CostModel as CostModel
from tilewright.meta_schedule.cost_model.base import PyCostModel as PyCostModel
from tilewright.meta_schedule.cost_model.mlp_model import MLPModel as MLPModel
from tilewright.meta_schedule.cost_model.simple import AnalyticModel as AnalyticModel
from tilewright.meta_schedule.cost_model.simple import RandomModel as RandomModel
from tilewright.meta_schedule.cost_model.xgb_model import XGBModel as XGBModel
