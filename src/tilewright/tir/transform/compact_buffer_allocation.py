"""Shrink."""

from __future__ import annotations
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.base import FunctionTransform


class CompactBufferAllocation(FunctionTransform):
    def transform_function(self, func: PrimFunc) -> PrimFunc:
        return func
