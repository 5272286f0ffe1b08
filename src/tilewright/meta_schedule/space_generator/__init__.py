"""Space generators: what makes the sketches of a task."""

from __future__ import annotations

from tilewright.meta_schedule.space_generator.base import SPACE_GENERATORS, SpaceGenerator
from tilewright.meta_schedule.space_generator.post_order_apply import PostOrderApply
from tilewright.meta_schedule.space_generator.schedule_fn import ScheduleFnSpace

__all__ = ["SPACE_GENERATORS", "PostOrderApply", "ScheduleFnSpace", "SpaceGenerator"]
