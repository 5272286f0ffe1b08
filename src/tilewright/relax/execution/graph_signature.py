"""Describes a graph function to its callers: inputs, results, sizes, and what these must fulfil."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Expr, IntImm, Var, as_int, free_vars, pre_order
from tilewright.relax.assertion import assertion_operands
from tilewright.relax.execution.graph_call import (
    GraphSignature,
    SizeCheck,
    TensorSpec,
    is_size_name,
)
from tilewright.relax.expr import Function, MatchCast, RelaxCall, RelaxExpr, Tuple
from tilewright.relax.registry import is_call_to
from tilewright.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    extents_of,
)
from tilewright.support.errors import BuildError
from tilewright.tir import fresh_name


def graph_signature(
    name: str, function: Function, parameters: tuple[tuple[str, Any], ...] = ()
) -> GraphSignature:
    """Describe inputs and results of a graph function."""
    names: dict[Var, str] = {}
    symbols: list[tuple[str, int, int]] = []

    def define(var: Var, argument: int, axis: int) -> None:
        if var not in names:
            base = var.name if is_size_name(var.name) else "n"
            made = names[var] = fresh_name(base, set(names.values()))
            symbols.append((made, argument, axis))

    for position, param in enumerate(function.params):
        info = param.struct_info
        if isinstance(info, PrimStructInfo) and isinstance(info.value, Var):
            define(info.value, position, -1)
        elif isinstance(info, TensorStructInfo):
            for axis, extent in enumerate(info.shape):
                if type(extent) is Var:
                    define(extent, position, axis)
    for binding in function.bindings:
        have, want = binding.value.struct_info, binding.var.struct_info
        if isinstance(binding, MatchCast) and isinstance(have, (TensorStructInfo, ShapeStructInfo)):
            for actual, extent in zip(have.values, extents_of(want)):
                if type(extent) is Var and set(names).issuperset(free_vars(actual)):
                    names.setdefault(extent, str(_formula(actual, names)))
    inputs = [_describe(param.name, param.struct_info, names) for param in function.params]
    outputs: list[TensorSpec] = []
    structure = _describe_result(function.body.body, outputs, names)
    checks = _size_checks(function, names)
    return GraphSignature(
        name, tuple(inputs), tuple(outputs), structure, tuple(symbols), checks, parameters
    )


def _size_checks(function: Function, names: dict[Var, str]) -> tuple[SizeCheck, ...]:
    """The function's assertions about its parameters' extents.

    Those with floats or bits are left to the function itself.
    """
    made = []
    for binding in function.bindings:
        if not is_call_to(binding.value, "assert_op"):
            continue
        assert isinstance(binding.value, RelaxCall)
        condition, values, message = assertion_operands(binding.value)
        if set(names).issuperset(free_vars(condition)) and _is_of_whole_numbers(condition):
            shown = tuple(str(_formula(value, names)) for value in values)
            made.append(SizeCheck(str(_formula(condition, names)), message, shown))
    return tuple(made)


def _describe(name: str, info: StructInfo, names: dict[Var, str]) -> TensorSpec:
    if isinstance(info, PrimStructInfo):
        return TensorSpec(name, (), info.dtype)
    if not isinstance(info, TensorStructInfo) or not info.has_shape:
        raise BuildError(f"{name} is {info!r}; compiled graphs take and give tensors of known rank")
    return TensorSpec(name, tuple(_formula(extent, names) for extent in info.shape), info.dtype)


def _describe_result(result: RelaxExpr, outputs: list[TensorSpec], names: dict[Var, str]) -> object:
    if isinstance(result, Tuple):
        return tuple(_describe_result(item, outputs, names) for item in result.fields)
    return _describe_leaves(result.struct_info, outputs, names)


def _describe_leaves(info: StructInfo, outputs: list[TensorSpec], names: dict[Var, str]) -> object:
    if isinstance(info, TupleStructInfo):
        # A tuple in one variable: its items are results one by one.
        return tuple(_describe_leaves(field, outputs, names) for field in info.fields)
    outputs.append(_describe(f"out{len(outputs)}", info, names))
    return None


_OPERATORS = {
    "Add": "({} + {})",
    "Sub": "({} - {})",
    "Mul": "({} * {})",
    "FloorDiv": "({} // {})",
    "FloorMod": "({} % {})",
    "Min": "min({}, {})",
    "Max": "max({}, {})",
    "EQ": "({} == {})",
    "NE": "({} != {})",
    "LT": "({} < {})",
    "LE": "({} <= {})",
    "GT": "({} > {})",
    "GE": "({} >= {})",
    "And": "({} and {})",
    "Or": "({} or {})",
    "Not": "(not {})",
}


def _is_of_whole_numbers(condition: Expr) -> bool:
    return all(
        isinstance(node, (Var, IntImm)) or type(node).__name__ in _OPERATORS
        for node in pre_order(condition)
    )


def _formula(extent: Expr, names: dict[Var, str]) -> int | str:
    """An extent as a number or a Python formula."""
    value = as_int(extent)
    if value is not None:
        return value
    if isinstance(extent, Var):
        if extent not in names:
            raise BuildError(
                f"the extent {extent.name} is not that of any parameter: the sizes of results must "
                "follow from the parameters'"
            )
        return names[extent]
    form = _OPERATORS.get(type(extent).__name__)
    if form is None:
        used = ", ".join(var.name for var in free_vars(extent))
        raise BuildError(f"an extent computed from {used} is not arithmetic on sizes: {extent!r}")
    operands = extent.child_nodes()
    return form.format(*(_formula(item, names) for item in operands))  # type: ignore[arg-type]
