"""Made by `tools/package_stubs.py`."""

create = SpaceGenerator.create
from tilewright.meta_schedule.space_generator.base import PySpaceGenerator as PySpaceGenerator
from tilewright.meta_schedule.space_generator.base import SPACE_GENERATORS as SPACE_GENERATORS
from tilewright.meta_schedule.space_generator.base import ScheduleFnType as ScheduleFnType
from tilewright.meta_schedule.space_generator.base import SpaceGenerator as SpaceGenerator
from tilewright.meta_schedule.space_generator.post_order_apply import PostOrderApply as PostOrderApply
from tilewright.meta_schedule.space_generator.schedule_fn import ScheduleFn as ScheduleFn
from tilewright.meta_schedule.space_generator.space_generator_union import SpaceGeneratorUnion as SpaceGeneratorUnion
