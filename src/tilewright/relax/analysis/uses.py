"""What uses what in graph functions and modules."""

from __future__ import annotations

from tilewright.ir import GLOBAL_SYMBOL, GlobalVar, IRModule, Node, pre_order
from tilewright.relax.branches import If, all_bindings, map_branches, nested_bindings
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Function,
    FunctionRef,
    LocalFunction,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    VarBinding,
)
from tilewright.relax.registry import RelaxOp


def used_graph_vars(expr: Node) -> list[RelaxVar]:
    """Graph variables used in an expression, once each, in order of appearance.

    What the expression itself binds, as branches do, is left out.
    """
    found: dict[RelaxVar, None] = {}
    bound: set[RelaxVar] = set()
    for item in pre_order(expr):
        if isinstance(item, RelaxVar):
            found.setdefault(item)
        elif isinstance(item, Binding):
            bound.add(item.var)
        elif isinstance(item, Function):
            bound.update(item.params)
    return [var for var in found if var not in bound] if bound else list(found)


def use_counts(function: Function) -> dict[RelaxVar, int]:
    """How often each variable is used in a function's values and result."""
    counts: dict[RelaxVar, int] = {}
    for expr in [binding.value for binding in function.bindings] + [function.body.body]:
        for item in pre_order(expr):
            if isinstance(item, RelaxVar):
                counts[item] = counts.get(item, 0) + 1
    return counts


def get_var2val(func: Function) -> dict[RelaxVar, RelaxExpr]:
    """The value of each variable that a function binds, in branches too, apart from casts."""
    return {b.var: b.value for b in all_bindings(func) if isinstance(b, VarBinding)}


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
    """Whether evaluating a value may have side effects.

    A call of a graph function says so itself: it has the attribute ``pure`` ``False`` if the
    function is impure. An ``If`` has the effects of its branches.
    """
    if isinstance(value, If):
        return any(is_impure(b.value) for branch in value.branches for b in nested_bindings(branch))
    if not isinstance(value, RelaxCall):
        return False
    if isinstance(value.op, RelaxOp) and value.op.effect != "pure":
        return True
    return not value.attrs.get("pure", True)


def has_effect(value: RelaxExpr) -> bool:
    """Whether evaluating a value has an effect that the world sees: prints, foreign functions.

    Assertions and allocations are impure, but have none.
    """
    if isinstance(value, If):
        inner = (b.value for branch in value.branches for b in nested_bindings(branch))
        return any(map(has_effect, inner))
    if isinstance(value, RelaxCall) and isinstance(value.op, RelaxOp):
        return value.op.effect == "opaque" or not value.attrs.get("pure", True)
    return is_impure(value)


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


def contains_impure_call(expr: Node, own_name: str | GlobalVar | RelaxVar | None = None) -> bool:
    """Whether a graph function, or another expression, has a call with effects.

    Calls of ``own_name``, the function itself, do not count; nor do those in functions inside of
    it, which are not made by that.
    """
    own = getattr(own_name, "name", own_name)
    pending: list[Node] = [expr.body if isinstance(expr, Function) else expr]
    while pending:
        item = pending.pop()
        if isinstance(item, RelaxCall) and is_impure(item):
            callee = item.op if isinstance(item.op, GlobalVar) else _callee(item)
            if own is None or getattr(callee, "name", None) != own:
                return True
        if not isinstance(item, LocalFunction):
            pending.extend(item.child_nodes())
    return False


def _callee(call: RelaxCall) -> RelaxExpr | None:
    """The variable that an ``invoke_closure`` calls."""
    return call.args[0] if call.op_name == "invoke_closure" else None


def udchain(dfb: DataflowBlock) -> dict[RelaxVar, list[RelaxVar]]:
    """For each variable that a block uses or binds, the variables whose values use it."""
    users: dict[RelaxVar, dict[RelaxVar, None]] = {}
    for binding in dfb.bindings:
        users.setdefault(binding.var, {})
        for var in used_graph_vars(binding.value):
            users.setdefault(var, {}).setdefault(binding.var)
    return {var: list(found) for var, found in users.items()}


def name_to_binding(func: Function) -> dict[str, list[Binding]]:
    """Bindings by the name of their variable; names need not be unique."""
    found: dict[str, list[Binding]] = {}
    for binding in all_bindings(func):
        found.setdefault(binding.var.name, []).append(binding)
    return found


def remove_all_unused(func: Function) -> Function:
    """Remove bindings whose variable is never used and whose value has no effect."""
    made = _without_unused(func.body, set())
    return func if made is func.body else func.replace(body=made)


def _without_unused(body: SeqExpr, needed: set[RelaxVar]) -> SeqExpr:
    """Remove unused bindings; ``needed`` grows by what the rest uses."""
    needed.update(used_graph_vars(body.body))
    blocks: list[BindingBlock] = []
    changed = False
    for block in reversed(body.blocks):
        kept: list[Binding] = []
        same = True
        for binding in reversed(block.bindings):
            used = binding.var in needed or isinstance(binding, MatchCast)
            if not used and not is_impure(binding.value):
                same = False
                continue
            made = map_branches(binding, lambda branch: _without_unused(branch, needed))
            same = same and made is binding
            needed.update(used_graph_vars(made.value))
            kept.append(made)
        if not same:
            changed = True
            block = block.replace(bindings=tuple(reversed(kept)))
        if block.bindings:
            blocks.append(block)
    return SeqExpr(tuple(reversed(blocks)), body.body) if changed else body


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """Groups of graph functions that call themselves, also by way of each other."""
    calls = {
        name: [callee for callee in called_functions(function) if callee in mod]
        for name, function in mod.functions.items()
        if isinstance(function, Function)
    }
    reached = {name: _reachable(name, calls) for name in calls}
    groups: list[list[GlobalVar]] = []
    done: set[str] = set()
    for name in calls:
        if name in done or name not in reached[name]:
            continue
        group = [other for other in calls if other in reached[name] and name in reached[other]]
        done.update(group)
        groups.append([GlobalVar(item) for item in group])
    return groups


def _reachable(name: str, calls: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(calls[name])
    while pending:
        callee = pending.pop()
        if callee not in found:
            found.add(callee)
            pending.extend(calls.get(callee, ()))
    return found
