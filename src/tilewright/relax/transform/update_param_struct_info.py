"""``UpdateParamStructInfo``: parameters get other struct infos, and all that follows from them."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import IRModule
from tilewright.relax.expr import Binding, Function, RelaxVar, VarBinding
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import StructInfo
from tilewright.support.calling import other_names
from tilewright.support.errors import VerifyError

UpdateFunction = Callable[[RelaxVar], StructInfo | None]
"""Takes a parameter and returns its new struct info, or ``None`` to keep the one it has."""


class UpdateParamStructInfo(GraphPass):
    """Give parameters the struct info that ``sinfo_func(param)`` returns; ``None``: as it was.

    Struct infos of values and results are inferred again; what doesn't fit any more is refused by
    the operators' rules.

    Before ``UpdateParamStructInfo(lambda p: R.Tensor((8, 4)) if p.name == "x" else None)``:
        def main(x: R.Tensor(("n", 4), "float32")): ...
    After:
        def main(x: R.Tensor((8, 4), "float32")): ...
    """

    @other_names(sinfo_func="ty_func")
    def __init__(self, ty_func: UpdateFunction) -> None:
        self.sinfo_func = ty_func

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Updater(mod, self.sinfo_func)


class _Updater(FunctionRewriter):
    def __init__(self, mod: IRModule, sinfo_func: UpdateFunction) -> None:
        super().__init__(mod)
        self.sinfo_func = sinfo_func

    def rewrite_params(self, function: Function) -> list[RelaxVar]:
        made = []
        for param in function.params:
            info = self.sinfo_func(param)
            if info is not None and not isinstance(info, StructInfo):
                raise VerifyError(
                    f"sinfo_func must return a StructInfo or None, got {type(info).__name__} "
                    f"for {param.name}"
                )
            made.append(param if info is None else self.renew(param, info))
        return made

    def rewrite_binding(self, binding: Binding) -> None:
        value = self.resolve(binding.value)
        if isinstance(binding, VarBinding) and value is not binding.value:
            self.bind(binding.var, value)
        else:
            super().rewrite_binding(binding)


UpdateParamType = UpdateParamStructInfo
