"""Made by `tools/package_stubs.py`."""

from tilewright.meta_schedule.schedule_rule.add_rfactor import AddRFactor as AddRFactor
from tilewright.meta_schedule.schedule_rule.auto_inline import AutoInline as AutoInline
from tilewright.meta_schedule.schedule_rule.auto_inline import InlineConstantScalars as InlineConstantScalars
from tilewright.meta_schedule.schedule_rule.base import NotApplicable as NotApplicable
from tilewright.meta_schedule.schedule_rule.base import SCHEDULE_RULES as SCHEDULE_RULES
from tilewright.meta_schedule.schedule_rule.base import ScheduleRule as ScheduleRule
from tilewright.meta_schedule.schedule_rule.multi_level_tiling import MultiLevelTiling as MultiLevelTiling
from tilewright.meta_schedule.schedule_rule.parallelize_vectorize_unroll import ParallelizeVectorizeUnroll as ParallelizeVectorizeUnroll
from tilewright.meta_schedule.schedule_rule.random_compute_location import RandomComputeLocation as RandomComputeLocation
from tilewright.meta_schedule.schedule_rule.register_tile import RegisterTile as RegisterTile
