"""Write operators that are formulas of simpler ones in terms of these (``tir/formulas.py``).

Code generators do that where a target has neither an instruction nor a function; a pass that looks
into what operators compute may want it earlier.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import Call, Mutator
from tilewright.tir.formulas import FORMULAS, in_simpler_operators
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.base import FunctionTransform


class LowerIntrin(FunctionTransform):
    """Replace calls of operators that have a formula by that formula."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Lowerer().visit)


class _Lowerer(Mutator):
    def visit_Call(self, node: Call) -> Any:
        made = node.map_children(self.visit)
        return self.visit(in_simpler_operators(made)) if made.op.name in FORMULAS else made
