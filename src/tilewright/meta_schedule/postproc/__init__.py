"""Postprocs: they complete a schedule after all decisions, or reject it. One per file."""

from __future__ import annotations

from tilewright.meta_schedule.postproc.base import POSTPROCS, Postproc, PyPostproc, Rejected
from tilewright.support.folder import classes_in, register_classes

_FOUND = register_classes(POSTPROCS, classes_in(__name__, Postproc))
globals().update(_FOUND)

__all__ = ["POSTPROCS", "Postproc", "Rejected", "PyPostproc", *_FOUND]
