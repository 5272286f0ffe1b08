"""``RemoveRedundantReshape``: of several reshapes in a row one is left, or none."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax.expr import Function, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo, same_shape


class RemoveRedundantReshape(GraphPass):
    """Reshape what the first of several reshapes takes; a reshape to the same shape is no reshape.

    Before:
        lv = R.reshape(x, R.shape((6,)))
        gv = R.reshape(lv, R.shape((3, 2)))
    After:
        lv = R.reshape(x, R.shape((6,)))
        gv = R.reshape(x, R.shape((3, 2)))
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Remover(mod)


class _Remover(FunctionRewriter):
    def rewrite(self, function: Function) -> Function:
        self.source: dict[RelaxVar, RelaxExpr] = {}
        """What each reshape takes, through those before it."""
        return super().rewrite(function)

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not is_call_to(value, "reshape"):
            return value
        assert isinstance(value, RelaxCall)
        first = value.args[0]
        source = self.source.get(first, first) if isinstance(first, RelaxVar) else first
        have = source.struct_info
        if not isinstance(have, TensorStructInfo) or not have.has_shape:
            return value
        if same_shape(have.shape, value.shape):
            return source
        self.source[var] = source
        return value if source is first else value.replace(args=(source, *value.args[1:]))
