"""``ExpandTupleArguments``: private functions take the items of tuples one by one."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax.analysis import private_functions
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.transform.flatten_tuple_params import Flattener


class ExpandTupleArguments(GraphPass):
    """Replace tuples among the parameters of private functions by their items, and pass these.

    A function is private if it has no ``global_symbol`` and another graph function of the module
    calls it. One that is passed on keeps its parameters.

    Before:
        def first(pair): return pair[0]
        def main(x, y): return first((x, y))
    After:
        def first(pair_0, pair_1): return pair_0
        def main(x, y): return first(x, y)
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return Flattener(mod, private_functions(mod), shapes=False)
