"""Shapes and scalars as values: what tensors are of, and what is computed from them."""

from __future__ import annotations

from tilewright import te
from tilewright.ir import Expr, as_expr, as_int, const, select
from tilewright.relax.expr import RelaxExpr, ShapeExpr
from tilewright.relax.ops.common import known
from tilewright.relax.registry import Prim, Shape, Tensor, builder, operator
from tilewright.relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo
from tilewright.support.errors import VerifyError


def get_shape_of(expr: RelaxExpr) -> RelaxExpr:
    """The shape of a tensor as a value of the graph.

    Raises ``VerifyError`` for what is no tensor of known shape.
    """
    return shape_of(expr)


@builder("shape_of")
def shape_of(expr: RelaxExpr) -> ShapeExpr:
    """The shape of a tensor, which must be known."""
    return ShapeExpr(expr.shape)


def _as_elements(shape: tuple[Expr, ...]) -> te.Tensor:
    def element(i: object) -> Expr:
        value: Expr = const(0)
        for axis, extent in reversed(list(enumerate(shape))):
            value = select(i == axis, as_expr(extent), value)
        return value

    made: te.Tensor = te.compute((len(shape),), element, name="shape_to_tensor")
    return made


@operator("shape_to_tensor", legalize=_as_elements)
def shape_to_tensor(expr: Shape) -> StructInfo:
    """The extents of a shape as int64 numbers."""
    return TensorStructInfo((len(expr),), "int64")


@operator("tensor_to_shape")
def tensor_to_shape(expr: Tensor) -> StructInfo:
    """A shape of which a tensor of int64 numbers holds the extents.

    ``match_cast`` of the result to ``R.Shape(["m", "n"])`` names them. Results of compiled graphs
    can't have shapes that are computed from data.

    Raises ``VerifyError`` unless ``expr`` has one axis of known extent.
    """
    shape = known(expr)
    extent = as_int(shape[0]) if len(shape) == 1 else None
    if extent is None or expr.dtype != "int64":
        raise VerifyError(f"needs int64 numbers along one axis of known extent, got {expr!r}")
    return ShapeStructInfo(None, extent)


def _as_tensor(value: Expr | int) -> te.Tensor:
    made: te.Tensor = te.compute((), lambda: as_expr(value), name="scalar_to_tensor")
    return made


@operator("scalar_to_tensor", legalize=_as_tensor)
def scalar_to_tensor(value: Prim) -> StructInfo:
    """A scalar as a tensor without axes; operators do that with scalars among their operands.

    Raises ``VerifyError`` if the scalar isn't an integer of 64 bits, as sizes are.
    """
    if value is None or value.dtype != "int64":
        raise VerifyError(
            "a scalar that is computed with must be int64 and have a name: R.Prim('int64', 'n')"
        )
    return TensorStructInfo((), value.dtype)
