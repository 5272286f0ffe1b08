"""Facts about graph functions: uses of variables, liveness, well-formedness."""

from __future__ import annotations

from tilewright.ir import GlobalVar, IRModule, Node, Var, free_vars, pre_order
from tilewright.relax.expr import (
    DataflowBlock,
    DataflowVar,
    Function,
    FunctionRef,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    is_atom,
)
from tilewright.relax.registry import RelaxOp
from tilewright.relax.struct_info import defined_vars, extents_of, used_vars
from tilewright.support.errors import VerifyError


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


def called_functions(node: Node) -> list[str]:
    """Names of the module's functions that a graph function refers to, once each."""
    found: dict[str, None] = {}
    for item in pre_order(node):
        if isinstance(item, FunctionRef) and isinstance(item.callee, GlobalVar):
            found.setdefault(item.callee.name)
        elif isinstance(item, RelaxCall) and isinstance(item.op, GlobalVar):
            found.setdefault(item.op.name)
    return list(found)


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

    Variables are bound once and before use, those of a dataflow block do not leave it, operands are
    atoms, symbolic extents are defined, and functions that are called exist.
    """
    for name, function in mod.functions.items():
        if isinstance(function, Function):
            _check_function(name, function, mod)


def _check_function(name: str, function: Function, mod: IRModule) -> None:
    bound: set[RelaxVar] = set()
    extents: set[Var] = set(defined_vars([param.struct_info for param in function.params]))

    def fail(reason: str) -> None:
        raise VerifyError(f"graph function {name!r}: {reason}")

    def define(var: RelaxVar) -> None:
        if var in bound:
            fail(f"variable {var.name} is bound twice")
        bound.add(var)

    def check_use(value: RelaxExpr, where: str) -> None:
        for item in pre_order(value):
            if isinstance(item, RelaxVar) and item not in bound:
                fail(f"{where} uses {item.name}, which is not bound there")
        for extent in free_vars(value):
            if extent not in extents:
                fail(f"{where} uses the symbolic extent {extent.name}, which nothing defines")
        for callee in called_functions(value):
            if callee not in mod:
                fail(f"{where} calls {callee}, which the module does not have")

    for param in function.params:
        define(param)
        if isinstance(param, DataflowVar):
            fail(f"parameter {param.name} is a dataflow variable")
    for param in function.params:
        for var in used_vars(param.struct_info):
            if var not in extents:
                fail(f"parameter {param.name} uses extent {var.name}, which none is exactly")
    for block in function.body.blocks:
        local = []
        for binding in block.bindings:
            check_use(binding.value, f"the value of {binding.var.name}")
            if not is_atom(binding.value):
                for item in binding.value.child_nodes():
                    if isinstance(item, RelaxExpr) and not is_atom(item):
                        fail(f"the value of {binding.var.name} is nested: {binding.value!r}")
            if isinstance(binding, MatchCast):
                for extent in extents_of(binding.struct_info):
                    if type(extent) is Var:
                        extents.add(extent)
            define(binding.var)
            if isinstance(binding.var, DataflowVar):
                if not isinstance(block, DataflowBlock):
                    fail(f"dataflow variable {binding.var.name} outside a dataflow block")
                local.append(binding.var)
        bound.difference_update(local)
    check_use(function.body.body, "the result")
    if not is_atom(function.body.body):
        fail("the result is not a variable, constant or tuple of them")
