"""Moving bindings into a function of their own: what grouping passes share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright.ir import Var, free_vars, substitute
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import (
    Binding,
    Constant,
    Function,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    Tuple,
    VarBinding,
)
from tilewright.relax.rewriter import renew_symbols
from tilewright.relax.struct_info import ShapeStructInfo, defined_vars, used_vars
from tilewright.tir import fresh_name


def outline(
    bindings: Sequence[Binding],
    results: Sequence[RelaxVar],
    attrs: Mapping[str, Any],
    *,
    bind_constants: bool = True,
) -> tuple[Function, tuple[RelaxExpr, ...]]:
    """Make a function of bindings, and the operands with which it gives their ``results``.

    One result is given as it is, several as a tuple. Constants stay inside unless
    ``bind_constants`` is ``False``. Symbolic extents that no operand defines are passed as a shape.
    """
    inside = {binding.var for binding in bindings}
    params: dict[RelaxExpr, RelaxVar] = {}
    names: set[str] = set()
    for binding in bindings:
        for operand in _operands(binding.value, bind_constants):
            if operand not in inside and operand not in params:
                name = operand.name if isinstance(operand, RelaxVar) else "param"
                params[operand] = RelaxVar(fresh_name(name, names, ""), operand.struct_info)
    operands: list[RelaxExpr] = list(params)
    made_params = list(params.values())
    missing = _undefined_extents(bindings, made_params)
    if missing:
        made_params.append(RelaxVar(fresh_name("s", names, ""), ShapeStructInfo(missing)))
        operands.append(ShapeExpr(tuple(missing)))
    builder = BlockBuilder()
    mapping: dict[Any, Any] = dict(params)

    def body() -> RelaxExpr:
        with builder.dataflow():
            for binding in bindings:
                value = substitute(binding.value, mapping)
                if binding.var in results:
                    var = RelaxVar(binding.var.name, binding.var.struct_info)
                    mapping[binding.var] = builder.emit_binding(VarBinding(var, value))
                else:
                    mapping[binding.var] = builder.emit(value, binding.var.name)
        made = tuple(mapping[var] for var in results)
        return made[0] if len(made) == 1 else Tuple(made)

    function = builder.build_function(made_params, body, attrs)
    return renew_symbols(function), tuple(operands)


def _operands(value: RelaxExpr, bind_constants: bool) -> Iterable[RelaxExpr]:
    if bind_constants:
        yield from used_graph_vars(value)
        return
    pending: list[Any] = [value]
    while pending:
        item = pending.pop(0)
        if isinstance(item, (RelaxVar, Constant)):
            yield item
        else:
            pending[:0] = item.child_nodes()


def _undefined_extents(bindings: Sequence[Binding], params: Sequence[RelaxVar]) -> list[Var]:
    infos = [param.struct_info for param in params]
    defined = set(defined_vars(infos))
    used: dict[Var, None] = {}
    for info in (*infos, *(binding.var.struct_info for binding in bindings)):
        used.update(dict.fromkeys(used_vars(info)))
    for binding in bindings:
        used.update(dict.fromkeys(free_vars(binding.value)))
    return [var for var in used if var not in defined]


def function_name(parts: Iterable[str], suffix: str = "") -> str:
    """A name made of the names of what is inside."""
    words = [re.sub(r"\W", "_", part) for part in parts]
    made = "_".join(["fused", *words]) + suffix
    return made if len(made) <= 120 else f"{made[:100]}_and_{len(words)}_calls{suffix}"


def used_outside(
    bindings: Sequence[Binding], chosen: set[RelaxVar], elsewhere: Callable[[RelaxVar], bool]
) -> set[RelaxVar]:
    """Which chosen variables other bindings use, or are used ``elsewhere``."""
    found = {var for var in chosen if elsewhere(var)}
    for binding in bindings:
        if binding.var not in chosen:
            found.update(var for var in used_graph_vars(binding.value) if var in chosen)
    return found
