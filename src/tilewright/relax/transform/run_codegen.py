"""``RunCodegen``: external code generators compile the functions that were made for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import GlobalVar, IRModule, Pass, pre_order
from tilewright.relax.analysis import called_functions
from tilewright.relax.call_packed import call_dps_packed
from tilewright.relax.call_tir import call_tir
from tilewright.relax.expr import (
    Constant,
    Function,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    Tuple,
)
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.runtime import BaseModule, get_global_func, register_global_func
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import CODEGEN

PREFIX = "relax.ext."
"""Code generators are global functions of this prefix and their name."""

Codegen = Callable[[list[IRModule], Mapping[str, Any], Mapping[Constant, str]], Sequence[Any]]
"""Takes the functions, options, and names for their constants; returns what each became."""


class RunCodegen(Pass):
    """Replace calls of functions with the attribute ``Codegen`` by what a code generator made.

    The code generator ``NAME`` is the global function ``relax.ext.NAME`` (see
    ``tilewright.register_global_func``). It is called once, with a list of modules, the options
    ``target_options[NAME]`` (``{}`` without), and a name for each constant. Each module holds one
    function, which comes first, and the composite functions that it calls. It returns a list with
    what each of them becomes:

    - a ``PrimFunc``, or an ``IRModule`` of several in which the function has its name: it is called
      by ``call_tir``, and scheduled and compiled like others unless it has a schedule;
    - a Python function, or a compiled module with the function's name, that takes the inputs, then
      tensors for the results: it is registered as the global function ``relax.ext.NAME.FUNCTION``
      and called by ``call_dps_packed``. Where an exported library is loaded, it must be registered
      again.

    With ``entry_functions`` only calls in these are replaced.
    """

    def __init__(
        self,
        target_options: Mapping[str, Mapping[str, Any]] | None = None,
        entry_functions: Sequence[str] | None = None,
    ) -> None:
        self.target_options = dict(target_options or {})
        self.entry_functions = None if entry_functions is None else tuple(entry_functions)

    def transform(self, mod: IRModule) -> IRModule:
        """Run the code generators, then rewrite the calls.

        Raises ``VerifyError`` if a code generator isn't registered, or returns something else.
        """
        callers = [
            name
            for name, function in mod.functions.items()
            if isinstance(function, Function) and not function.is_partition
        ]
        if self.entry_functions is not None:
            callers = [name for name in self.entry_functions if isinstance(mod[name], Function)]
        by_codegen: dict[str, list[str]] = {}
        for name in dict.fromkeys(n for c in callers for n in called_functions(mod[c])):
            target = mod[name].attrs.get(CODEGEN) if name in mod else None
            if isinstance(mod.functions.get(name), Function) and target is not None:
                by_codegen.setdefault(str(target), []).append(name)
        if not by_codegen:
            return mod
        made: dict[str, Any] = {}
        for target, names in by_codegen.items():
            made.update(self._run(mod, target, names))
        rewriter = _CallRewriter(mod, made)
        for name, item in made.items():
            rewriter.add(name, item)
        for name in callers:
            rewriter.builder.update_func(name, rewriter.rewrite(mod[name]))
        return _without_unused(rewriter.builder.get())

    def _run(self, mod: IRModule, target: str, names: Sequence[str]) -> dict[str, object]:
        codegen: Codegen | None = get_global_func(PREFIX + target, allow_missing=True)
        if codegen is None:
            raise VerifyError(
                f"there is no code generator {target!r}: register the global function "
                f"{PREFIX}{target}"
            )
        parts = [_part(mod, name) for name in names]
        constants: dict[Constant, str] = {}
        for name, part in zip(names, parts):
            for function in part.functions.values():
                for item in pre_order(function):
                    if isinstance(item, Constant):
                        constants.setdefault(item, f"{name}_const_{len(constants)}")
        found = codegen(parts, dict(self.target_options.get(target, {})), constants)
        if not isinstance(found, (list, tuple)) or len(found) != len(names):
            raise VerifyError(
                f"{PREFIX}{target} must return a list of {len(names)}, one for each function; "
                f"got {found!r}"
            )
        return {name: _checked(target, name, item) for name, item in zip(names, found)}


def _part(mod: IRModule, name: str) -> IRModule:
    """A function and those it calls, itself first."""
    inside = {name: mod[name]}
    for callee in called_functions(mod[name]):
        inside[callee] = mod[callee]
    return IRModule(inside)


def _checked(target: str, name: str, item: object) -> object:
    if isinstance(item, BaseModule):
        item = item[name]
    if isinstance(item, IRModule):
        if not isinstance(item.functions.get(name), PrimFunc):
            raise VerifyError(f"{PREFIX}{target} returned a module without a PrimFunc {name!r}")
        return item
    if not isinstance(item, PrimFunc) and not callable(item):
        raise VerifyError(
            f"{PREFIX}{target} must make a PrimFunc, a module or a function of {name}, got "
            f"{type(item).__name__}"
        )
    return item


def _without_unused(mod: IRModule) -> IRModule:
    """Remove partitions that nothing calls any more."""
    called = {name for f in mod.functions.values() for name in called_functions(f)}
    kept = mod.map_functions(
        lambda name, function: None if function.is_partition and name not in called else function,
        Function,
    )
    return mod if kept is mod else _without_unused(kept)


class _CallRewriter(FunctionRewriter):
    def __init__(self, mod: IRModule, made: Mapping[str, Any]) -> None:
        super().__init__(mod)
        self.made = made
        self.tensor_functions: dict[str, GlobalVar] = {}

    def add(self, name: str, item: Any) -> None:
        """Add a tensor function to the module, or register a function of Python."""
        if isinstance(item, PrimFunc):
            item = IRModule({name: item})
        if isinstance(item, IRModule):
            for other, function in item.functions.items():
                if other == name:
                    self.builder.remove_func(name)
                    self.tensor_functions[name] = GlobalVar(name)
                elif other in self.mod:
                    raise VerifyError(f"the module has a function {other!r} besides that of {name}")
                self.builder.update_func(other, function)
        else:
            register_global_func(self.symbol(name), item, override=True)

    def symbol(self, name: str) -> str:
        """The global function that a partition becomes."""
        return f"{PREFIX}{self.mod[name].attrs[CODEGEN]}.{name}"

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not isinstance(value, RelaxCall) or not isinstance(value.op, GlobalVar):
            return value
        name = value.op.name
        if name not in self.made:
            return value
        args = tuple(arg for arg in value.args if not isinstance(arg, ShapeExpr))
        sizes = [e for arg in value.args if isinstance(arg, ShapeExpr) for e in arg.values]
        info = value.sinfo_args[0]
        infos = _tensors(name, info)
        if name in self.tensor_functions:
            made = call_tir(self.tensor_functions[name], Tuple(args), infos, sizes)
        else:
            scalars = tuple(map(PrimValue, sizes))
            made = call_dps_packed(self.symbol(name), Tuple((*args, *scalars)), infos)
        single = isinstance(made.struct_info, TensorStructInfo)
        return Tuple((made,)) if single and isinstance(info, TupleStructInfo) else made


def _tensors(name: str, info: StructInfo) -> Any:
    infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
    for item in infos:
        if not isinstance(item, TensorStructInfo) or not item.has_shape:
            raise VerifyError(f"{name} must give tensors of known shape, not {item!r}")
    return info if isinstance(info, TensorStructInfo) else list(infos)
