"""Conditions on the shapes that a graph passes to a tensor function, from its signature."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Expr, Var, substitute
from tilewright.relax.conditions import Condition
from tilewright.relax.struct_info import prove_different, prove_equal
from tilewright.support.errors import LowerError
from tilewright.tir import PrimFunc

Shapes = Sequence[tuple[Expr, ...]]


def extent_values(
    func: PrimFunc, name: str, shapes: Shapes, scalars: Sequence[Expr]
) -> dict[Var, Expr]:
    """The values of a function's symbolic extents, from the shapes that the graph passes.

    Raises ``LowerError`` if numbers of tensors or dimensions differ.
    """
    if len(func.buffers) != len(shapes):
        raise LowerError(
            f"{name} takes {len(func.buffers)} tensors, the graph passes {len(shapes)}"
        )
    given = [var for var in func.params if var not in func.buffer_map]
    values: dict[Var, Expr] = dict(zip(given, scalars))
    for buffer, shape in zip(func.buffers, shapes):
        if len(shape) != buffer.ndim:
            raise LowerError(
                f"{name}: {buffer.name} has {buffer.ndim} dimensions, not {len(shape)}"
            )
        for extent, value in zip(buffer.shape, shape):
            if type(extent) is Var:
                values.setdefault(extent, value)
    return values


def extent_conditions(
    func: PrimFunc, name: str, shapes: Shapes, values: dict[Var, Expr]
) -> list[Condition]:
    """The conditions under which the shapes that the graph passes match a function's signature.

    Raises ``LowerError`` for a condition that never holds.
    """
    made: list[Condition] = []
    for buffer, shape in zip(func.buffers, shapes):
        for axis, (extent, value) in enumerate(zip(buffer.shape, shape)):
            wanted = substitute(extent, values)
            if prove_equal(wanted, value):
                continue
            if prove_different(wanted, value):
                raise LowerError(f"{name}: extent of {buffer.name} is {wanted!r}, not {value!r}")
            said = (f"{name}: extent {axis} of {buffer.name} must be ", wanted, ", not ", value)
            made.append(Condition(wanted == value, said))
    return made
