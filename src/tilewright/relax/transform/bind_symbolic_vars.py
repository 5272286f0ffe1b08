"""``BindSymbolicVars``: symbolic extents become numbers."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import Expr, IRModule, Pass, Var, as_int
from tilewright.ir import const as number
from tilewright.relax.branches import all_bindings
from tilewright.relax.expr import Function, MatchCast, RelaxVar
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import defined_vars, substitute_info
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches


class BindSymbolicVars(Pass):
    """Bind symbolic extents, by name or variable, in one function or in all that have them.

    Raises ``VerifyError`` for a value that is no integer.

    Before ``BindSymbolicVars({"n": 8})``:
        def main(x: R.Tensor(("n", 4), "float32")): ...
    After:
        def main(x: R.Tensor((8, 4), "float32")): ...
    """

    def __init__(self, binding_map: Mapping[str | Var, int], func_name: str | None = None) -> None:
        self.binding_map = dict(binding_map)
        self.func_name = func_name
        for key, value in self.binding_map.items():
            if isinstance(value, bool) or as_int(value) is None:
                raise VerifyError(f"the value of {_name(key)} must be an integer, got {value!r}")

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild the functions.

        Raises ``VerifyError`` if no function has an extent, a name stands for several, or a size
        would be negative.
        """
        names = [self.func_name] if self.func_name is not None else list(mod.functions)
        unknown = dict(self.binding_map)
        known: list[str] = []
        made = mod
        for name in names:
            function = mod[name]
            if not isinstance(function, Function):
                if self.func_name is not None:
                    raise VerifyError(f"{name} is no graph function")
                continue
            extents = _extents(function)
            known.extend(var.name for var in extents)
            mapping = self._mapping(name, extents)
            for key in self.binding_map:
                if key in extents or key in [var.name for var in extents]:
                    unknown.pop(key, None)
            if mapping:
                made = made.with_function(name, _bind(function, mapping))
        if unknown:
            missing = _name(next(iter(unknown)))
            where = self.func_name or "the module"
            raise VerifyError(
                f"{where} has no symbolic extent {missing!r}; {near_matches(missing, known)}"
            )
        return made

    def _mapping(self, name: str, extents: list[Var]) -> dict[Var, Expr]:
        mapping: dict[Var, Expr] = {}
        for key, value in self.binding_map.items():
            found = [var for var in extents if var is key or var.name == key]
            if len(found) > 1:
                raise VerifyError(
                    f"{name} has {len(found)} symbolic extents named {key!r}: bind the variables"
                )
            for var in found:
                given = mapping.setdefault(var, number(int(value), var.dtype))
                if as_int(given) != int(value):
                    raise VerifyError(f"{var.name} is bound to {as_int(given)} and to {value}")
        return mapping


def _name(key: str | Var) -> str:
    return key.name if isinstance(key, Var) else str(key)


def _extents(function: Function) -> list[Var]:
    infos = [param.struct_info for param in function.params]
    infos += [b.struct_info for b in all_bindings(function) if isinstance(b, MatchCast)]
    return defined_vars(infos)


def _bind(function: Function, mapping: dict[Var, Expr]) -> Function:
    binder = _Binder()
    binder.mapping.update(mapping)
    return binder.rewrite(function)


class _Binder(FunctionRewriter):
    def rewrite_params(self, function: Function) -> list[RelaxVar]:
        return [
            self.renew(param, substitute_info(param.struct_info, self.mapping))
            for param in function.params
        ]
