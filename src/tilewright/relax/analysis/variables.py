"""Variables and functions that occur in an expression, and visiting all that it consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.ir import GlobalVar, Node, Var, post_order, pre_order
from tilewright.ir import free_vars as free_symbols
from tilewright.relax.branches import all_bindings
from tilewright.relax.expr import Binding, Function, FunctionRef, MatchCast, RelaxCall, RelaxVar
from tilewright.relax.struct_info import StructInfo, defined_vars, used_vars


def bound_vars(expr: Node) -> list[RelaxVar]:
    """Graph variables that an expression or function binds, parameters included, in order."""
    return list(dict.fromkeys(_bound(expr)))


def all_vars(expr: Node) -> list[RelaxVar]:
    """Graph variables that an expression or function binds or uses, in order."""
    found: dict[RelaxVar, None] = {}
    for item in pre_order(expr):
        if isinstance(item, RelaxVar):
            found.setdefault(item)
        for var in _bound_by(item):
            found.setdefault(var)
    return list(found)


def free_vars(expr: Node) -> list[RelaxVar]:
    """Graph variables that an expression or function uses and does not bind, in order."""
    bound = set(_bound(expr))
    return [var for var in all_vars(expr) if var not in bound]


def all_global_vars(expr: Node) -> list[GlobalVar]:
    """Functions of the module that an expression or function names, once each, in order."""
    return _global_vars(expr, called_only=False)


def called_global_vars(expr: Node) -> list[GlobalVar]:
    """Functions of the module that an expression or function calls, tensor functions included."""
    return _global_vars(expr, called_only=True)


def defined_symbolic_vars(func: Function) -> list[Var]:
    """Symbolic extents that a function's parameters and casts define."""
    casts = [b.struct_info for b in all_bindings(func) if isinstance(b, MatchCast)]
    return defined_vars([*(param.struct_info for param in func.params), *casts])


def free_symbolic_vars(func: Function) -> list[Var]:
    """Symbolic extents that a function uses and does not define."""
    defined = set(defined_symbolic_vars(func))
    infos: list[StructInfo] = [param.struct_info for param in func.params]
    infos += [binding.var.struct_info for binding in all_bindings(func)]
    used = [var for info in infos for var in used_vars(info)]
    used += [*free_symbols(func.body), *used_vars(func.ret_struct_info)]
    return [var for var in dict.fromkeys(used) if var not in defined]


def post_order_visit(expr: Node, fvisit: Callable[[Node], object]) -> None:
    """Call ``fvisit`` with each node of an expression or function once, operands first."""
    seen: set[int] = set()
    for item in post_order(expr):
        if id(item) not in seen:
            seen.add(id(item))
            fvisit(item)


def _bound_by(item: Node) -> tuple[RelaxVar, ...]:
    if isinstance(item, Function):
        return item.params
    return (item.var,) if isinstance(item, Binding) else ()


def _bound(expr: Node) -> Iterator[RelaxVar]:
    for item in pre_order(expr):
        yield from _bound_by(item)


def _global_vars(expr: Node, *, called_only: bool) -> list[GlobalVar]:
    found: dict[str, GlobalVar] = {}
    for item in pre_order(expr):
        if not isinstance(item, RelaxCall):
            if isinstance(item, FunctionRef) and not called_only:
                _note(found, item.callee)
            continue
        _note(found, item.op)
        callee = item.args[0] if item.args else None
        if item.op_name in ("call_tir", "call_dps") and isinstance(callee, FunctionRef):
            _note(found, callee.callee)
    return list(found.values())


def _note(found: dict[str, GlobalVar], callee: object) -> None:
    if isinstance(callee, GlobalVar):
        found.setdefault(callee.name, callee)
