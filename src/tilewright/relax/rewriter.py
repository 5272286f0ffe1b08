"""Rebuilding graph functions binding by binding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from tilewright.ir import IRModule, Pass, Var, substitute
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import If, all_bindings
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Function,
    MatchCast,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    VarBinding,
)
from tilewright.relax.struct_info import (
    StructInfo,
    defined_vars,
    same_struct_info,
    substitute_info,
)


class FunctionRewriter:
    """Rebuilds functions of a module; override ``rewrite_value`` (or ``rewrite_binding``).

    Bound variables keep their identity unless their struct info changes. ``self.mapping`` maps old
    variables to their replacements.
    """

    isolated: ClassVar[tuple[str, ...]] = ()
    """Names of attributes that say what was bound before, and are empty at a branch's start."""

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule({}) if mod is None else mod
        """The module as it was."""
        self.builder = BlockBuilder(mod)
        self.mapping: dict[Any, Any] = {}
        self.function: Function | None = None
        self.extents: set[Var] = set()
        """Extents that the parameters, and casts before the current binding, define."""

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        """Return the new value of ``var``; nested operands are normalised."""
        return value

    def rewrite_binding(self, binding: Binding) -> None:
        """Emit the replacement of a binding."""
        value = self.resolve(binding.value)
        if isinstance(binding, MatchCast):
            info = substitute_info(binding.struct_info, self.mapping)
            if value is binding.value and info is binding.struct_info:
                self.builder.emit_binding(binding)
            else:
                var = self.renew(binding.var, info)
                self.builder.emit_binding(MatchCast(var, value, info))
            return
        made = self.rewrite_value(value, binding.var)
        if made is binding.value:
            self.builder.emit_binding(binding)
        else:
            self.bind(binding.var, made)

    def bind(self, var: RelaxVar, value: RelaxExpr) -> None:
        """Bind an old variable to a new value."""
        value = self.builder.normalize(value)
        self.builder.emit_binding(VarBinding(self.renew(var, value.struct_info), value))

    def renew(self, var: RelaxVar, info: StructInfo) -> RelaxVar:
        """Return ``var``, or a new variable if its struct info changes."""
        if same_struct_info(var.struct_info, info):
            return var
        made = type(var)(var.name, info)
        self.mapping[var] = made
        return made

    def resolve(self, expr: RelaxExpr) -> Any:  # a call stays a call, a tuple a tuple
        """Replace old variables by their new values."""
        return substitute(expr, self.mapping)

    def rewrite_params(self, function: Function) -> Sequence[RelaxVar]:
        """Return the new function's parameters."""
        return function.params

    def rewrite(self, function: Function) -> Function:
        """Rebuild one function."""
        self.function = function
        self.extents = set(defined_vars([param.struct_info for param in function.params]))
        params = tuple(self.rewrite_params(function))

        def body() -> RelaxExpr:
            self.rewrite_blocks(function.body.blocks)
            return self.rewrite_result(function.body)

        made = self.builder.build_function(params, body, function.attrs)
        return function if _same_function(function, made) else made

    def rewrite_blocks(self, blocks: Sequence[BindingBlock]) -> None:
        """Rebuild blocks of bindings."""
        for block in blocks:
            if isinstance(block, DataflowBlock):
                with self.builder.dataflow():
                    self.rewrite_block(block.bindings)
            else:
                self.rewrite_block(block.bindings)

    def rewrite_block(self, bindings: Sequence[Binding]) -> None:
        """Rebuild the bindings of one block."""
        for binding in bindings:
            if isinstance(binding.value, If):
                self.rewrite_if(binding, binding.value)
            else:
                self.rewrite_binding(binding)
            if isinstance(binding, MatchCast):
                self.extents.update(defined_vars([binding.struct_info]))

    def rewrite_if(self, binding: Binding, value: If) -> None:
        """Rebuild what is inside of branches, as outside."""
        self.bind_if(binding, value, map(self.rewrite_branch, value.branches))

    def bind_if(self, binding: Binding, value: If, branches: Iterable[SeqExpr]) -> None:
        """Bind an ``If`` with new branches."""
        cond = self.resolve(value.cond)
        made = tuple(branches)
        if cond is value.cond and made == value.branches:
            self.builder.emit_binding(binding)
        else:
            self.bind(binding.var, If(cond, *made))

    def rewrite_branch(self, branch: SeqExpr) -> SeqExpr:
        """Rebuild a branch; return the same one if nothing changed."""

        def body() -> RelaxExpr:
            self.rewrite_blocks(branch.blocks)
            return self.rewrite_branch_result(branch)

        outer, extents = {name: getattr(self, name) for name in self.isolated}, set(self.extents)
        for name, state in outer.items():
            setattr(self, name, type(state)())
        made = self.builder.build_branch(body)
        self.extents = extents
        for name, state in outer.items():
            setattr(self, name, state)
        return branch if _same_body(branch, made) else made

    def rewrite_branch_result(self, branch: SeqExpr) -> RelaxExpr:
        """Return the new result of a branch."""
        result: RelaxExpr = self.resolve(branch.body)
        return result

    def rewrite_result(self, body: SeqExpr) -> RelaxExpr:
        """Return the new result."""
        result: RelaxExpr = self.resolve(body.body)
        return result


def _same_function(old: Function, new: Function) -> bool:
    return old.params == new.params and _same_body(old.body, new.body)


def _same_body(old: SeqExpr, new: SeqExpr) -> bool:
    if old.body is not new.body or len(old.blocks) != len(new.blocks):
        return False
    return all(
        type(a) is type(b)
        and len(a.bindings) == len(b.bindings)
        and all(x is y for x, y in zip(a.bindings, b.bindings))
        for a, b in zip(old.blocks, new.blocks)
    )


class GraphPass(Pass):
    """A pass that rebuilds every graph function by ``rewriter(mod)``."""

    include_primitive = False
    """Whether fusion groups (functions with attribute ``Primitive``) are rebuilt too."""

    func_name: str | None = None
    """The one function to rebuild; ``None``: all."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter for a module."""
        raise NotImplementedError(f"{self.name} must define rewriter(mod)")

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild the graph functions.

        Raises ``VerifyError`` if there is no function ``func_name``.
        """
        rewriter = self.rewriter(mod)
        chosen = mod.functions
        if self.func_name is not None:
            chosen = {self.func_name: mod[self.func_name]}
        for name, function in chosen.items():
            if isinstance(function, Function) and (
                self.include_primitive or not function.is_primitive
            ):
                made = rewriter.rewrite(function)
                if made is not function:
                    rewriter.builder.update_func(name, made)
        made_mod = rewriter.builder.get()
        if len(made_mod.functions) == len(mod.functions) and all(
            made_mod.functions.get(name) is function for name, function in mod.functions.items()
        ):
            return mod
        return made_mod


class _SymbolRenewer(FunctionRewriter):
    """Copies a function with symbolic extents of its own."""

    def rewrite_params(self, function: Function) -> list[RelaxVar]:
        for var in defined_vars([param.struct_info for param in function.params]):
            self.mapping[var] = Var(var.name, var.dtype)
        for binding in all_bindings(function):
            if isinstance(binding, MatchCast):
                for var in defined_vars([binding.struct_info]):
                    self.mapping.setdefault(var, Var(var.name, var.dtype))
        return [
            self.renew(param, substitute_info(param.struct_info, self.mapping))
            for param in function.params
        ]


def renew_symbols(function: Function) -> Function:
    """Copy a function so that it shares no symbolic extent with another."""
    return _SymbolRenewer().rewrite(function)


class _Binder(FunctionRewriter):
    """Gives a function other parameters."""

    def __init__(self, params: Sequence[RelaxVar]) -> None:
        super().__init__()
        self.params = params

    def rewrite_params(self, function: Function) -> Sequence[RelaxVar]:
        return self.params


def with_params(
    function: Function, params: Sequence[RelaxVar], mapping: Mapping[Any, Any]
) -> Function:
    """Give a function other parameters, and replace what it uses."""
    binder = _Binder(params)
    binder.mapping.update(mapping)
    return binder.rewrite(function)
