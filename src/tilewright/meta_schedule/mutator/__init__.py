"""Mutators: they change candidates from generation to generation."""

from __future__ import annotations

from tilewright.meta_schedule.mutator.base import MUTATORS, Mutator, PyMutator
from tilewright.support.folder import classes_in, register_classes

_FOUND = register_classes(MUTATORS, classes_in(__name__, Mutator))
globals().update(_FOUND)

__all__ = ["MUTATORS", "Mutator", "PyMutator", *_FOUND]
