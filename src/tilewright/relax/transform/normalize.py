"""``Normalize``: operands become variables or constants; each binding computes one thing."""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax.expr import Binding, MatchCast, RelaxExpr, is_atom
from tilewright.relax.rewriter import FunctionRewriter, GraphPass


class Normalize(GraphPass):
    """Bind operands that are calls to variables of their own.

    What builds graphs does that already; nested calls come from code that makes nodes by hand.

    Before:
        gv = R.add(R.exp(x), R.exp(x))
    After:
        lv = R.exp(x)
        lv1 = R.exp(x)
        gv = R.add(lv, lv1)
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Normalizer(mod)


class _Normalizer(FunctionRewriter):
    def rewrite_binding(self, binding: Binding) -> None:
        if isinstance(binding, MatchCast) and not is_atom(binding.value):
            value = self.builder.emit(self.resolve(binding.value))
            binding = binding.replace(value=value)
        super().rewrite_binding(binding)

    def rewrite_value(self, value: RelaxExpr, var: object) -> RelaxExpr:
        return self.builder.normalize(value)
