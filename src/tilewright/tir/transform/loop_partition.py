"""Cut loops where a condition inside them changes, so that inner loops run without it."""

from __future__ import annotations
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.base import FunctionTransform


class LoopPartition(FunctionTransform):
    def transform_function(self, func: PrimFunc) -> PrimFunc:
        return func
