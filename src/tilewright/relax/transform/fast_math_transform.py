"""``FastMathTransform``: elementary functions with larger errors, where these are faster."""

from __future__ import annotations

from tilewright import topi
from tilewright.ir import IRModule
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo

FAST = {"tanh": topi.fast_tanh, "erf": topi.fast_erf}
"""What replaces operators; not ``exp``, whose precise form is faster than a polynomial."""


class FastMathTransform(GraphPass):
    """Replace ``tanh`` and ``erf`` of float32 by ``topi.fast_tanh`` and ``topi.fast_erf``.

    Their relative errors are up to 1e-6. They are for CPUs with AVX2 and below: with AVX-512 the
    precise functions are as fast.

    Before:
        lv = R.tanh(x)
    After:
        lv = R.call_tir(cls.fast_tanh, (x,), ...)
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Replacer(mod)


class _Replacer(FunctionRewriter):
    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not isinstance(value, RelaxCall) or value.op_name not in FAST:
            return value
        info = value.struct_info
        if not isinstance(info, TensorStructInfo) or not info.has_shape or info.dtype != "float32":
            return value
        made: RelaxExpr = self.builder.call_te(
            FAST[value.op_name], value.args[0], primfunc_name_hint=f"fast_{value.op_name}"
        )
        return made
