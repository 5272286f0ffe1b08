"""``BundleModelParams``: the weights of a function become one tuple."""

from __future__ import annotations

from tilewright.ir import IRModule, Pass
from tilewright.relax.analysis import NUM_INPUT, weights_of
from tilewright.relax.expr import BindingBlock, Function, RelaxVar, SeqExpr, VarBinding
from tilewright.relax.struct_info import TupleStructInfo
from tilewright.support.errors import VerifyError


class BundleModelParams(Pass):
    """Replace the parameters after the first ``num_input`` (an attribute) by one tuple of them.

    The new parameter is named ``param_tuple_name``, or ``model_params``. Functions without the
    attribute, and those with nothing to bundle, are left alone.

    Before:
        def main(x, w, b): ...               # num_input: 1
    After:
        def main(x, model_params):           # num_input: 1
            w = model_params[0]
            b = model_params[1]
            ...
    """

    def __init__(self, param_tuple_name: str | None = None) -> None:
        self.param_tuple_name = param_tuple_name or "model_params"

    def transform(self, mod: IRModule) -> IRModule:
        """Bundle in every function.

        Raises ``VerifyError`` if ``num_input`` is no number of parameters, or the name is taken.
        """
        return mod.map_functions(lambda _, function: self._bundle(function), Function)

    def _bundle(self, function: Function) -> Function:
        if NUM_INPUT not in function.attrs:
            return function
        weights = weights_of(function)
        inputs = function.params[: len(function.params) - len(weights)]
        bundled = len(weights) == 1 and isinstance(weights[0].struct_info, TupleStructInfo)
        if not weights or bundled:
            return function
        if any(param.name == self.param_tuple_name for param in inputs):
            raise VerifyError(
                f"a parameter is named {self.param_tuple_name!r} already: give param_tuple_name"
            )
        info = TupleStructInfo(tuple(weight.struct_info for weight in weights))
        bundle = RelaxVar(self.param_tuple_name, info)
        # The parameters themselves become variables of the body: their uses stay as they are.
        bindings = tuple(VarBinding(weight, bundle[i]) for i, weight in enumerate(weights))
        blocks = (BindingBlock(bindings), *function.body.blocks)
        body = SeqExpr(blocks, function.body.body)
        return function.replace(params=(*inputs, bundle), body=body)
