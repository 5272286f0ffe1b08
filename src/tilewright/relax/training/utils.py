"""``AppendLoss``: a backbone followed by its loss, as one function."""

from __future__ import annotations

from typing import Any

from tilewright.ir import GLOBAL_SYMBOL, IRModule, Pass, substitute
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import (
    Binding,
    DataflowBlock,
    DataflowVar,
    Function,
    RelaxExpr,
    RelaxVar,
    Tuple,
)
from tilewright.relax.gradients.te_gradients import register_te_gradient
from tilewright.relax.struct_info import StructInfo, same_struct_info
from tilewright.support.errors import VerifyError

__all__ = ["AppendLoss", "register_te_gradient"]


class AppendLoss(Pass):
    """Append a loss function to the function ``func_name``, under ``new_func_name``.

    The first ``num_backbone_outputs`` parameters of the loss are the first results of the backbone;
    the others become further parameters. The new function (by default ``<func_name>_loss``) returns
    the loss, followed by the results of the backbone that the loss doesn't take, if any.
    """

    def __init__(
        self,
        func_name: str,
        loss_function: Function,
        num_backbone_outputs: int = 1,
        new_func_name: str | None = None,
    ) -> None:
        self.func_name = func_name
        self.loss_function = loss_function
        self.num_backbone_outputs = num_backbone_outputs
        self.new_func_name = new_func_name or f"{func_name}_loss"

    def transform(self, mod: IRModule) -> IRModule:
        """Add the function.

        Raises ``VerifyError`` if there is no such function, or its results aren't what the loss
        takes.
        """
        backbone = mod[self.func_name]
        if not isinstance(backbone, Function):
            raise VerifyError(f"{self.func_name} is no graph function")
        results = _results(backbone.body.body)
        count, takes = self.num_backbone_outputs, self.loss_function.params
        if not 1 <= count <= min(len(results), len(takes)):
            raise VerifyError(
                f"num_backbone_outputs is {count}, but {self.func_name} has {len(results)} results "
                f"and the loss takes {len(takes)} parameters"
            )
        for number, (result, param) in enumerate(zip(results[:count], takes)):
            if not same_struct_info(result.struct_info, param.struct_info):
                raise VerifyError(
                    f"result {number} of {self.func_name} is {result.struct_info!r}, the loss "
                    f"takes {param.name}: {param.struct_info!r}"
                )
        made = _Appended(backbone, self.loss_function, count).function(self.new_func_name)
        return IRModule({**mod.functions, self.new_func_name: made}, dict(mod.attrs))


def _results(result: RelaxExpr) -> tuple[RelaxExpr, ...]:
    return result.fields if isinstance(result, Tuple) else (result,)


class _Appended:
    def __init__(self, backbone: Function, loss: Function, count: int) -> None:
        self.backbone, self.loss, self.count = backbone, loss, count
        self.builder = BlockBuilder()
        self.mapping: dict[Any, Any] = {}
        self.names: set[str] = set()

    def function(self, name: str) -> Function:
        extra = self.loss.params[self.count :]
        params = [self.renew(var, RelaxVar) for var in (*self.backbone.params, *extra)]
        functions = (self.backbone, self.loss)
        blocks = [block for function in functions for block in function.body.blocks]
        is_dataflow = all(isinstance(block, DataflowBlock) for block in blocks)

        def body() -> RelaxExpr:
            if not is_dataflow:
                return self.both(RelaxVar)
            with self.builder.dataflow():
                return self.both(DataflowVar)

        attrs = {**self.backbone.attrs}
        if GLOBAL_SYMBOL in attrs:
            attrs[GLOBAL_SYMBOL] = name
        return self.builder.build_function(params, body, attrs)

    def both(self, local: type[RelaxVar]) -> RelaxExpr:
        """Emit backbone and loss; give the loss and the results that it doesn't take."""
        for binding in self.backbone.bindings:
            self.copy(binding, local)
        results = [substitute(item, self.mapping) for item in _results(self.backbone.body.body)]
        self.mapping.update(zip(self.loss.params, results[: self.count]))
        for binding in self.loss.bindings:
            self.copy(binding, local)
        loss: RelaxExpr = substitute(self.loss.body.body, self.mapping)
        rest = results[self.count :]
        return Tuple((loss, *rest)) if rest else loss

    def copy(self, binding: Binding, local: type[RelaxVar]) -> None:
        value = substitute(binding.value, self.mapping)
        kind = local if isinstance(binding.var, DataflowVar) else RelaxVar
        self.builder.emit_binding(binding.replace(value=value, var=self.renew(binding.var, kind)))

    def renew(self, var: RelaxVar, kind: type[RelaxVar]) -> RelaxVar:
        name, number = var.name, 0
        while name in self.names:
            number += 1
            name = f"{var.name}_{number}"
        self.names.add(name)
        info: StructInfo = var.struct_info
        self.mapping[var] = kind(name, info)
        made: RelaxVar = self.mapping[var]
        return made
