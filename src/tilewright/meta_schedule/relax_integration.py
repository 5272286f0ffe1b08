"""Tuning of whole models, under the name by which TVM's users import it.

It is a part of ``relax``, which stands on this package.
"""

from __future__ import annotations

from tilewright.meta_schedule.extracted_task import extracted_tasks_to_tune_contexts
from tilewright.support.later import imported_later

_NAMES = ("compile_relax", "extract_tasks", "tune_relax")

__all__ = [*_NAMES, "extracted_tasks_to_tune_contexts"]
__getattr__ = imported_later(__name__, dict.fromkeys(_NAMES, "tilewright.relax.tuning.models"))
