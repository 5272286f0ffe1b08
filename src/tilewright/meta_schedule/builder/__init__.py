"""Builders: from scheduled modules to compiled ones, many at a time."""

from __future__ import annotations

from tilewright.meta_schedule.builder.base import (
    BUILDERS,
    Builder,
    BuilderInput,
    BuilderResult,
    PyBuilder,
)
from tilewright.meta_schedule.builder.local import LocalBuilder

BUILDERS.register("local", LocalBuilder)

create = Builder.create

__all__ = [
    "create",
    "BUILDERS",
    "Builder",
    "BuilderInput",
    "BuilderResult",
    "LocalBuilder",
    "PyBuilder",
]
