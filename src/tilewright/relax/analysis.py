"""Facts about graph functions: uses of variables, liveness, well-formedness."""

from __future__ import annotations

from tilewright.ir import GLOBAL_SYMBOL, GlobalVar, IRModule, Node, Var, free_vars, pre_order
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    FunctionRef,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    VarBinding,
    is_atom,
)
from tilewright.relax.registry import RelaxOp
from tilewright.relax.struct_info import defined_vars, extents_of, used_vars
from tilewright.support.errors import VerifyError
from tilewright.tir.attrs import wrong_annotation


def used_graph_vars(expr: Node) -> list[RelaxVar]:
    """Graph variables used in an expression, once each, in order of appearance."""
    found: dict[RelaxVar, None] = {}
    for item in pre_order(expr):
        if isinstance(item, RelaxVar):
            found.setdefault(item)
    return list(found)


def use_counts(function: Function) -> dict[RelaxVar, int]:
    """How often each variable is used in a function's values and result."""
    counts: dict[RelaxVar, int] = {}
    for expr in [binding.value for binding in function.bindings] + [function.body.body]:
        for item in pre_order(expr):
            if isinstance(item, RelaxVar):
                counts[item] = counts.get(item, 0) + 1
    return counts


def get_var2val(function: Function) -> dict[RelaxVar, RelaxExpr]:
    """The value of each variable that a function binds, apart from casts."""
    return {b.var: b.value for b in function.bindings if isinstance(b, VarBinding)}


def called_functions(node: Node) -> list[str]:
    """Names of the module's functions that a graph function refers to, without duplicates."""
    found: dict[str, None] = {}
    for item in pre_order(node):
        if isinstance(item, FunctionRef) and isinstance(item.callee, GlobalVar):
            found.setdefault(item.callee.name)
        elif isinstance(item, RelaxCall) and isinstance(item.op, GlobalVar):
            found.setdefault(item.op.name)
    return list(found)


def is_impure(value: RelaxExpr) -> bool:
    """Whether evaluating a value may have side effects."""
    return isinstance(value, RelaxCall) and isinstance(value.op, RelaxOp) and not value.op.pure


def private_functions(mod: IRModule) -> set[str]:
    """Names of graph functions that only the module itself calls.

    They have no ``global_symbol``, are no fusion groups, and another graph function calls them.
    """
    graphs = {name: f for name, f in mod.functions.items() if isinstance(f, Function)}
    return {
        callee
        for name, function in graphs.items()
        for callee in called_functions(function)
        if callee != name
        and callee in graphs
        and not graphs[callee].is_primitive
        and GLOBAL_SYMBOL not in graphs[callee].attrs
    }


def has_operators(function: Node) -> bool:
    """Whether a function is a graph with operators that are not tensor functions yet."""
    return isinstance(function, Function) and any(
        isinstance(item, RelaxCall)
        and isinstance(item.op, RelaxOp)
        and (item.op.legalize is not None or item.op.decompose is not None)
        for item in pre_order(function)
    )


def verify_graph(mod: IRModule) -> None:
    """Check that every graph function is well formed; ``VerifyError`` says what is wrong.

    Variables are bound once and before use, those of a dataflow block are not used outside it,
    operands are atoms, symbolic extents are defined, and called functions exist.
    """
    for name, function in mod.functions.items():
        if isinstance(function, Function):
            _FunctionChecker(name, function, mod).check()


class _FunctionChecker:
    """Checks one graph function, binding by binding, with the variables bound so far."""

    def __init__(self, name: str, function: Function, mod: IRModule) -> None:
        self.name, self.function, self.mod = name, function, mod
        self.bound: set[RelaxVar] = set()
        self.extents: set[Var] = set(defined_vars([param.struct_info for param in function.params]))

    def check(self) -> None:
        wrong = wrong_annotation(self.function)
        if wrong is not None:
            self._fail(wrong)
        for param in self.function.params:
            self._define(param)
            if isinstance(param, DataflowVar):
                self._fail(f"parameter {param.name} is a dataflow variable")
        for param in self.function.params:
            for var in used_vars(param.struct_info):
                if var not in self.extents:
                    self._fail(
                        f"parameter {param.name} uses extent {var.name}, which none is exactly"
                    )
        for block in self.function.body.blocks:
            for binding in block.bindings:
                self._check_binding(block, binding)
            # Dataflow variables are seen in their block only.
            self.bound -= {b.var for b in block.bindings if isinstance(b.var, DataflowVar)}
        result = self.function.body.body
        self._check_use(result, "the result")
        if not is_atom(result):
            self._fail("the result is not a variable, constant or tuple of them")

    def _fail(self, reason: str) -> None:
        raise VerifyError(f"graph function {self.name!r}: {reason}")

    def _define(self, var: RelaxVar) -> None:
        if var in self.bound:
            self._fail(f"variable {var.name} is bound twice")
        self.bound.add(var)

    def _check_use(self, value: RelaxExpr, where: str) -> None:
        for item in pre_order(value):
            if isinstance(item, RelaxVar) and item not in self.bound:
                self._fail(f"{where} uses {item.name}, which is not bound there")
        for extent in free_vars(value):
            if extent not in self.extents:
                self._fail(f"{where} uses the symbolic extent {extent.name}, which nothing defines")
        for callee in called_functions(value):
            if callee not in self.mod:
                self._fail(f"{where} calls {callee}, which the module does not have")

    def _check_binding(self, block: BindingBlock, binding: Binding) -> None:
        var, value = binding.var, binding.value
        self._check_use(value, f"the value of {var.name}")
        if not is_atom(value):
            for item in value.child_nodes():
                if isinstance(item, RelaxExpr) and not is_atom(item):
                    self._fail(f"the value of {var.name} is nested: {value!r}")
        if isinstance(binding, MatchCast):
            for extent in extents_of(binding.struct_info):
                if type(extent) is Var:
                    self.extents.add(extent)
        self._define(var)
        if isinstance(var, DataflowVar) and not isinstance(block, DataflowBlock):
            self._fail(f"dataflow variable {var.name} outside a dataflow block")
