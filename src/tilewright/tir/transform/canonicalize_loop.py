"""Make every loop start at zero.

A loop over ``[lo, lo + n)`` becomes one over ``[0, n)`` whose body uses ``i + lo``, so that later
passes and other people's code generators need to know one form of loop only. Steps need no work:
a ``For`` has none, it always counts by one.

Not in the default order for CPUs: code generation takes any start, and loops that LoopPartition
has cut read better with theirs.
"""

from __future__ import annotations

from tilewright.ir import Expr, Var, const, is_const
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import For, LetStmt, Stmt
from tilewright.tir.transform.base import FunctionTransform, Replacing
from tilewright.tir.transform.effects import BufferMutator, is_pure, memory_read


class CanonicalizeLoops(FunctionTransform):
    """Shift loops so that they start at zero."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Shifter().visit)


CanonicalizeLoop = CanonicalizeLoops  # TVM's name


class _Shifter(Replacing, BufferMutator):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Var, Expr] = {}

    def visit_For(self, node: For) -> Stmt:
        if is_const(node.min, 0):
            return self.generic_visit(node)
        start, extent = self.visit(node.min), self.visit(node.extent)
        named = None
        if memory_read(start) or not is_pure(start):
            # What the body writes must not change where it started.
            named, value = Var(f"{node.loop_var.name}_start", start.dtype), start
            start = named
        self.values[node.loop_var] = node.loop_var + start
        body = self.visit(node.body)
        del self.values[node.loop_var]
        zero = const(0, node.loop_var.dtype)
        made = node.replace(min=zero, extent=extent, body=body)
        return made if named is None else LetStmt(named, value, made)
