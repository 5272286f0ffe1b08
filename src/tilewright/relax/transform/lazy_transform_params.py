"""``LazyTransformParams``: weights are loaded one by one when they are transformed.

Before:
    def main_transform_params(params):
        return exp(params[0]), params[1]
After:
    def main_transform_params():                    # has effects
        a = call_packed("get_item", 0)
        b = exp(a)
        call_packed("set_item", 0, b)
        c = call_packed("get_item", 1)
        call_packed("set_item", 1, c)
        return ()

So there is never more than a few of them in memory: each is asked for at its first use, and handed
over as soon as it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import IRModule, Pass
from tilewright.relax.analysis import NUM_INPUT, get_var2val, used_graph_vars
from tilewright.relax.branches import all_bindings
from tilewright.relax.call_packed import call_packed
from tilewright.relax.expr import (
    Binding,
    Function,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    Tuple,
    TupleGetItem,
    VarBinding,
)
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import TupleStructInfo
from tilewright.relax.transform.dataflow_blocks import ToNonDataflow
from tilewright.relax.values import prim_value
from tilewright.support.errors import VerifyError
from tilewright.tir.attrs import IMPURE


class LazyTransformParams(Pass):
    """Let functions named ``…transform_params`` ask for weights and hand over results by callbacks.

    ``fget_item(*extra, index)`` and ``fset_item(*extra, index, value)`` are names of global
    functions. The extra parameters become parameters of the function. Without ``fset_item`` results
    are returned as before. A function's first ``num_input`` parameters (an attribute) stay; the one
    after them is the tuple of weights.
    """

    def __init__(
        self,
        fget_item: str = "get_item",
        fset_item: str | None = "set_item",
        extra_get_item_params: Sequence[RelaxVar] | None = None,
        extra_set_item_params: Sequence[RelaxVar] | None = None,
    ) -> None:
        self.fget_item, self.fset_item = fget_item, fset_item
        self.extra_get_item_params = list(extra_get_item_params or ())
        self.extra_set_item_params = list(extra_set_item_params or ())

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild the functions.

        Raises ``VerifyError`` for one that doesn't take a tuple of weights, or uses it as a whole.
        """
        chosen = {
            name: function
            for name, function in mod.functions.items()
            if name.endswith("transform_params") and isinstance(function, Function)
        }
        plain = ToNonDataflow()(IRModule(chosen))
        made = {name: _Lazy(self, name).rewrite(plain[name]) for name in chosen}
        return mod.replace(functions={**mod.functions, **made}) if made else mod


class _Lazy(FunctionRewriter):
    def __init__(self, options: LazyTransformParams, name: str) -> None:
        super().__init__()
        self.options, self.name = options, name

    def rewrite(self, function: Function) -> Function:
        count = function.attrs.get(NUM_INPUT, 0)
        if len(function.params) != count + 1 or not isinstance(
            function.params[count].struct_info, TupleStructInfo
        ):
            raise VerifyError(
                f"{self.name!r} must take {count} inputs and a tuple of weights, as "
                "LiftTransformParams and BundleModelParams make it"
            )
        self.weights = function.params[count]
        self.pending: dict[RelaxVar, TupleGetItem] = {}
        """Weights that were named and not used so far."""
        self.bound = function.body.body
        result = get_var2val(function).get(self.bound, self.bound)  # type: ignore[call-overload]
        if not isinstance(result, Tuple):
            result = self.bound
        results = result.fields if isinstance(result, Tuple) else (result,)
        self.places: dict[RelaxExpr, list[int]] = {}
        for place, result in enumerate(results):
            self.places.setdefault(result, []).append(place)
        if any(self._is_whole(b.value) for b in all_bindings(function)) or self.weights in results:
            raise VerifyError(f"{self.name!r} uses its weights as a whole: take items by params[i]")
        made = super().rewrite(function)
        return made.with_attrs({IMPURE: True})

    def _is_whole(self, value: RelaxExpr) -> bool:
        return not isinstance(value, TupleGetItem) and self.weights in used_graph_vars(value)

    def rewrite_params(self, function: Function) -> list[RelaxVar]:
        extra = [*self.options.extra_get_item_params, *self.options.extra_set_item_params]
        return [*function.params[:-1], *dict.fromkeys(extra)]

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, TupleGetItem) and value.tuple_value is self.weights:
            self.pending[binding.var] = value
            return
        if binding.var is self.bound and isinstance(value, Tuple) and self.options.fset_item:
            return  # its items are handed over
        for var in used_graph_vars(value):
            self._load(var)
        super().rewrite_binding(binding)
        self._hand_over(binding.var)

    def rewrite_result(self, body: SeqExpr) -> RelaxExpr:
        for result in tuple(self.places):
            if isinstance(result, RelaxVar):
                self._load(result)
            self._hand_over(result)
        return self.resolve(body.body) if self.options.fset_item is None else Tuple(())

    def _load(self, var: RelaxVar) -> None:
        item = self.pending.pop(var, None)
        if item is None:
            return
        extra = self.options.extra_get_item_params
        call = call_packed(
            self.options.fget_item, *extra, prim_value(item.index), ty_args=item.struct_info
        )
        self.builder.emit_binding(VarBinding(var, call))
        self._hand_over(var)

    def _hand_over(self, result: RelaxExpr) -> None:
        if self.options.fset_item is None:
            return
        for place in self.places.pop(result, ()):
            extra = self.options.extra_set_item_params
            value = self.resolve(result)
            call = call_packed(self.options.fset_item, *extra, prim_value(place), value)
            self.builder.emit(call, "_")
