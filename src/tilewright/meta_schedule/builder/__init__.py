"""Builders: from scheduled modules to compiled ones, many at a time."""

from __future__ import annotations

from tilewright.meta_schedule.builder.base import Builder, BuilderInput, BuilderResult
from tilewright.meta_schedule.builder.local import LocalBuilder

__all__ = ["Builder", "BuilderInput", "BuilderResult", "LocalBuilder"]
