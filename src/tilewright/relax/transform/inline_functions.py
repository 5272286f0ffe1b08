"""``InlineFunctions``: inlines calls of graph functions.

A compiled graph function is one native function, and inlined callees are fused and planned together
with it. The callee also stays in the module.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from tilewright.ir import GlobalVar, IRModule, Pass, Var, substitute
from tilewright.relax.analysis import (
    called_functions,
    defined_symbolic_vars,
)
from tilewright.relax.branches import If, all_bindings, contains_if, nested_bodies
from tilewright.relax.closures import is_invocation
from tilewright.relax.expr import (
    Binding,
    DataflowBlock,
    Function,
    FunctionRef,
    LocalFunction,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    SeqExpr,
    Tuple,
    is_atom,
)
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    defined_vars,
    extents_of,
    same_struct_info,
    substitute_info,
)
from tilewright.relax.transform.dataflow_blocks import ConvertToDataflow, ToNonDataflow
from tilewright.support.errors import VerifyError

_MOST_DEEP = 200


class InlineFunctions(Pass):
    """Inline every call of a graph function that is not a fusion group.

    That includes functions inside of functions, and those that a parameter stands for, where it is
    known which one is called.
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Rewrite all callers; a function that calls itself is refused."""
        done = Inlined(mod)
        return mod.map_functions(
            lambda name, function: function if function.is_primitive else done.function(name),
            Function,
        )


class Inlined:
    """Functions of a module with all calls inlined, or those of ``names``, computed on demand."""

    def __init__(self, mod: IRModule, names: Collection[str] | None = None) -> None:
        self.mod = mod
        self.names = names
        self.known: dict[str, Function] = {}
        self.open: list[str] = []

    def has(self, callee: object) -> bool:
        """Whether a function is to be inlined."""
        if not isinstance(callee, GlobalVar) or callee not in self.mod:
            return False
        if self.names is not None:
            return callee.name in self.names
        function = self.mod[callee]
        return isinstance(function, Function) and not function.is_primitive

    def function(self, name: str) -> Function:
        """Return a function with all its calls inlined; ``VerifyError`` if it calls itself."""
        if name in self.open:
            way = " -> ".join([*self.open[self.open.index(name) :], name])
            raise VerifyError(f"graph function {name!r} calls itself ({way}), it can't be inlined")
        if name not in self.known:
            self.open.append(name)
            self.known[name] = _Inliner(self).rewrite(self.mod[name])
            self.open.pop()
        return self.known[name]


def _is_one_of(have: StructInfo, wanted: StructInfo) -> bool:
    """Whether what is wanted says less than what is known."""
    if isinstance(have, TensorStructInfo) and isinstance(wanted, TensorStructInfo):
        known = wanted.has_shape or have.dtype != wanted.dtype
        return not known and wanted.ndim in (-1, have.ndim)
    if isinstance(have, PrimStructInfo) and isinstance(wanted, PrimStructInfo):
        return have.dtype == wanted.dtype and wanted.value is None
    if isinstance(have, ShapeStructInfo) and isinstance(wanted, ShapeStructInfo):
        return not wanted.is_known and wanted.ndim in (-1, have.ndim)
    return isinstance(wanted, ObjectStructInfo)


def is_local(value: RelaxCall) -> bool:
    """Whether a call is one of a function inside of the function."""
    return is_invocation(value) and isinstance(value.args[0], LocalFunction)


class _Inliner(FunctionRewriter):
    def __init__(self, done: Inlined) -> None:
        super().__init__(done.mod)
        self.done = done

    def rewrite(self, function: Function) -> Function:
        self.outer = set(defined_symbolic_vars(function))
        self.depth = 0
        if not self.brings_branches(function):
            return super().rewrite(function)
        # Dataflow blocks take no branches.
        opened = ToNonDataflow()(IRModule({"main": function}))["main"]
        inlined = IRModule({"main": super().rewrite(opened)})
        made: Function = ConvertToDataflow(1)(inlined)["main"]
        return made

    def brings_branches(self, function: Function) -> bool:
        """Whether a dataflow block may call a function with branches."""
        bodies = nested_bodies(function.body)
        blocks = [b for body in bodies for b in body.blocks if isinstance(b, DataflowBlock)]
        if not blocks:
            return False
        local = [b.value for b in all_bindings(function) if isinstance(b.value, LocalFunction)]
        return any(map(contains_if, local)) or any(
            self.done.has(GlobalVar(name)) and contains_if(self.done.function(name))
            for name in called_functions(function)
        )

    def rewrite_binding(self, binding: Binding) -> None:
        value: RelaxExpr = self.resolve(binding.value)
        if isinstance(value, LocalFunction):
            self.mapping[binding.var] = value  # where it is called, its body is written
            return
        callee = self.callee(value)
        if callee is None:
            super().rewrite_binding(binding)
            return
        self.bind(binding.var, self.call(value, callee, binding.var.name))

    def callee(self, value: RelaxExpr) -> Function | None:
        """The function that a value calls, if its body can be put in place."""
        if not isinstance(value, RelaxCall):
            return None
        called = value.op
        if is_invocation(value):
            called = value.args[0]
            if isinstance(called, LocalFunction):
                return called.func
            if isinstance(called, FunctionRef):
                called = called.callee
        return self.done.function(called.name) if self.done.has(called) else None

    def call(self, value: RelaxExpr, callee: Function, name: str) -> RelaxExpr:
        """Write what a call computes; return its result."""
        assert isinstance(value, RelaxCall)
        self.depth += 1
        if self.depth > _MOST_DEEP:
            raise VerifyError(f"functions call each other {_MOST_DEEP} deep: {value!r}")
        args = value.args[1:] if is_invocation(value) else value.args
        # What an inner function uses of the outer one stays; names of another one are its own, even
        # where they are the same variables.
        outer = self.outer if is_local(value) else set()
        made = self.inline(value, args, callee, outer)
        self.depth -= 1
        stated = value.sinfo_args[0]
        # A function that a parameter stands for gives what it gives, whatever is stated.
        free = is_invocation(value) and not isinstance(stated, TensorStructInfo)
        return made if free else self.cast(made, stated, name)

    def inline(
        self, call: RelaxCall, args: Sequence[RelaxExpr], callee: Function, outer: set[Var]
    ) -> RelaxExpr:
        """Emit the callee's bindings, its parameters replaced; return its result.

        ``outer`` are the extents that mean the same in the callee and around the call.
        """
        if len(args) != len(callee.params):
            raise VerifyError(f"{call!r} passes {len(args)} arguments, not {len(callee.params)}")
        mapping: dict[Any, Any] = {}
        for param, arg in zip(callee.params, args):
            for extent, actual in zip(extents_of(param.struct_info), extents_of(arg.struct_info)):
                if type(extent) is Var and extent not in outer:
                    mapping.setdefault(extent, actual)
        self.renew_extents([param.struct_info for param in callee.params], mapping, outer)
        for param, arg in zip(callee.params, args):
            mapping[param] = self.cast(arg, substitute_info(param.struct_info, mapping), param.name)
        return self.copy(callee.body, mapping, outer)

    def copy(self, body: SeqExpr, mapping: dict[Any, Any], outer: set[Var]) -> RelaxExpr:
        """Emit what a body binds, to new variables; return its result."""
        for binding in (b for block in body.blocks for b in block.bindings):
            made: RelaxExpr
            if isinstance(binding.value, If):
                made = self.copy_if(binding, binding.value, mapping, outer)
                mapping[binding.var] = made
                continue
            value = substitute(binding.value, mapping)
            if isinstance(binding, MatchCast):
                self.renew_extents([binding.struct_info], mapping, outer)
                info = substitute_info(binding.struct_info, mapping)
                made = self.builder.match_cast(value, info, binding.var.name)
            elif isinstance(value, LocalFunction):
                made = value
            else:
                inner = self.callee(value)
                name = binding.var.name
                if inner is not None:
                    value = self.call(value, inner, name)
                made = value if is_atom(value) else self.builder.emit(value, name)
            mapping[binding.var] = made
        result: RelaxExpr = substitute(body.body, mapping)
        return result

    def copy_if(
        self, binding: Binding, value: If, mapping: dict[Any, Any], outer: set[Var]
    ) -> RelaxExpr:
        first, second = (
            self.builder.build_branch(partial(self.copy, branch, mapping, outer))
            for branch in value.branches
        )
        made = If(substitute(value.cond, mapping), first, second)
        return self.builder.emit(made, binding.var.name)

    def renew_extents(
        self, infos: list[StructInfo], mapping: dict[object, object], outer: set[Var]
    ) -> None:
        """Give extents that are not mapped yet new variables for this copy."""
        for var in defined_vars(infos):
            if var not in outer:
                mapping.setdefault(var, Var(var.name, var.dtype))

    def cast(self, value: RelaxExpr, wanted: StructInfo, name: str) -> RelaxExpr:
        """Cast a value, checked at run time, to the struct info of a parameter or result."""
        have = value.struct_info
        if isinstance(wanted, FuncStructInfo) and isinstance(value, (FunctionRef, LocalFunction)):
            return value
        if same_struct_info(have, wanted) or _is_one_of(have, wanted):
            return value
        if (
            isinstance(have, TupleStructInfo)
            and isinstance(wanted, TupleStructInfo)
            and len(have.fields) == len(wanted.fields)
        ):
            items = value.fields if isinstance(value, Tuple) else tuple(value)
            named = enumerate(zip(items, wanted.fields))
            return Tuple(tuple(self.cast(a, field, f"{name}_{n}") for n, (a, field) in named))
        if not isinstance(have, TensorStructInfo) or not isinstance(wanted, TensorStructInfo):
            raise VerifyError(f"{name} is stated to be {wanted!r}, but is {have!r}")
        if have.dtype != wanted.dtype or (
            have.ndim != wanted.ndim and -1 not in (have.ndim, wanted.ndim)
        ):
            raise VerifyError(f"{name} is stated to be {wanted!r}, but is {have!r}")
        return self.builder.match_cast(value, wanted, name)
