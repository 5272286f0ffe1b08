"""Values of a model under construction: ``Tensor``, ``Parameter``, ``Object``.

While a module is exported its ``forward`` runs once with these, and each operator that it calls is
emitted into the graph function under construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir import Expr, ExprLike, Var, dtypes
from tilewright.relax import ops
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import RelaxExpr, RelaxVar
from tilewright.relax.struct_info import ObjectStructInfo, TensorStructInfo, TupleStructInfo
from tilewright.relax.values import as_relax, const, numpy_dtype
from tilewright.support.errors import VerifyError

_default_dtype = "float32"


def get_default_dtype() -> str:
    """Return the element type of parameters that are declared without one."""
    return _default_dtype


def set_default_dtype(dtype: str) -> None:
    """Set the element type of parameters that are declared without one."""
    global _default_dtype
    dtypes.check_dtype(dtype)
    _default_dtype = dtype


def current_builder() -> BlockBuilder:
    """Return the builder of the function under construction.

    Raises ``VerifyError`` if there is none.
    """
    builder = BlockBuilder.current()
    if builder is None:
        raise VerifyError(
            "operators of nn run only while a module is exported, mod.export_tvm(spec), or inside "
            "`with builder.function(...)`"
        )
    return builder


class Tensor:
    """A value of the graph under construction."""

    def __init__(self, _expr: RelaxExpr) -> None:
        self._value = _expr

    @property
    def _expr(self) -> RelaxExpr:
        return self._value

    @staticmethod
    def from_const(data: object) -> Tensor:
        """Make a tensor of known values."""
        return Tensor(const(data))

    @staticmethod
    def from_scalar(data: int | float, dtype: str) -> Tensor:
        """Make a tensor of one number, without axes."""
        return Tensor(const(data, dtype))

    @staticmethod
    def from_ty(ty: TensorStructInfo, name: str = "tensor") -> Tensor:
        """Make a variable of given struct info."""
        return Tensor(RelaxVar(name, ty))

    from_struct_info = from_ty

    @staticmethod
    def placeholder(shape: Sequence[int | str | Expr], dtype: str, name: str = "tensor") -> Tensor:
        """Make a variable; texts in the shape are names of symbolic extents."""
        extents = [Var(item) if isinstance(item, str) else item for item in shape]
        return Tensor(RelaxVar(name, TensorStructInfo(extents, dtype)))

    @property
    def shape(self) -> list[Any]:
        """Extents: Python ints where constant, else expressions."""
        return [getattr(extent, "value", extent) for extent in self._expr.shape]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._expr.ndim

    @property
    def dtype(self) -> str:
        """Element type."""
        return self._expr.dtype

    def __add__(self, other: Operand) -> Tensor:
        return emit_tensor(ops.add(self, other), "add")

    def __radd__(self, other: ExprLike) -> Tensor:
        return emit_tensor(ops.add(self._operand(other), self), "add")

    def __sub__(self, other: Operand) -> Tensor:
        return emit_tensor(ops.subtract(self, other), "subtract")

    def __rsub__(self, other: ExprLike) -> Tensor:
        return emit_tensor(ops.subtract(self._operand(other), self), "subtract")

    def __mul__(self, other: Operand) -> Tensor:
        return emit_tensor(ops.multiply(self, other), "mul")

    def __rmul__(self, other: ExprLike) -> Tensor:
        return emit_tensor(ops.multiply(self._operand(other), self), "mul")

    def __truediv__(self, other: Operand) -> Tensor:
        return emit_tensor(ops.divide(self, other), "divide")

    def __rtruediv__(self, other: ExprLike) -> Tensor:
        return emit_tensor(ops.divide(self._operand(other), self), "divide")

    def __pow__(self, other: Operand) -> Tensor:
        return emit_tensor(ops.power(self, other), "power")

    def __matmul__(self, other: Operand) -> Tensor:
        return emit_tensor(ops.matmul(self, other), "matmul")

    def __neg__(self) -> Tensor:
        return emit_tensor(ops.negative(self), "neg")

    def __lt__(self, other: Operand) -> Tensor:
        return emit_tensor(ops.less(self, other), "less")

    def __le__(self, other: Operand) -> Tensor:
        return emit_tensor(ops.less_equal(self, other), "less_equal")

    def __gt__(self, other: Operand) -> Tensor:
        return emit_tensor(ops.greater(self, other), "greater")

    def __ge__(self, other: Operand) -> Tensor:
        return emit_tensor(ops.greater_equal(self, other), "greater_equal")

    def _operand(self, value: Operand) -> RelaxExpr:
        return as_relax(value, self._expr)

    def astype(self, dtype: str) -> Tensor:
        """Convert to another dtype."""
        return emit_tensor(ops.astype(self, dtype), "astype")

    def maximum(self, other: Operand) -> Tensor:
        """The larger of both, element by element."""
        return emit_tensor(ops.maximum(self, other), "maximum")

    def minimum(self, other: Operand) -> Tensor:
        """The smaller of both, element by element."""
        return emit_tensor(ops.minimum(self, other), "minimum")

    def permute_dims(self, *axes: int | Sequence[int] | None) -> Tensor:
        """Reorder dimensions; without axes reverse them."""
        order: Any = axes
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
            order = axes[0]
        return emit_tensor(ops.permute_dims(self, tuple(order or ()) or None), "permute_dims")

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        """Repeat each element, or each part along an axis."""
        return emit_tensor(ops.repeat(self, repeats, axis), "repeat")

    def reshape(self, *shape: ExprLike | Sequence[ExprLike]) -> Tensor:
        """Reshape to as many elements; one extent may be -1."""
        target: Any = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return emit_tensor(ops.reshape(self._expr, target), "reshape")

    def __repr__(self) -> str:
        return f'Tensor({self.shape}, "{self.dtype}")'


Operand = Tensor | RelaxExpr | ExprLike
"""What stands next to a tensor in arithmetic."""


class Object:
    """A value of the graph that is no tensor, such as a cache that global functions work on."""

    def __init__(self, *, _expr: RelaxExpr, _name: str) -> None:
        if not isinstance(_expr, RelaxVar):
            _expr = current_builder().emit(_expr, _name)
        if not isinstance(_expr.struct_info, ObjectStructInfo):
            raise VerifyError(f"an nn.Object is a value of which nothing is known, got {_expr!r}")
        self._expr = _expr

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._expr!r})"


class Parameter(Tensor):
    """A tensor that a module owns; it becomes a parameter of exported functions.

    ``data`` holds its values once they are set (an array, or anything that converts to one).
    """

    def __init__(self, shape: Sequence[int | str | Expr], dtype: str | None = None) -> None:
        self.param_dtype = get_default_dtype() if dtype is None else dtype
        dtypes.check_dtype(self.param_dtype)
        self.param_shape = tuple(Var(item) if isinstance(item, str) else item for item in shape)
        self._data: NDArray[Any] | None = None
        self._bound: RelaxExpr | None = None

    @property
    def _expr(self) -> RelaxExpr:
        if self._bound is None:
            raise VerifyError("a parameter is used outside the export of its module")
        return self._bound

    @property
    def shape(self) -> list[Any]:
        """Extents: as declared, or as the function under construction has them."""
        return list(self.param_shape) if self._bound is None else super().shape

    @property
    def dtype(self) -> str:
        """Element type as declared."""
        return self.param_dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.param_shape)

    @property
    def data(self) -> Any:
        """The values, or ``None`` if they were not set."""
        return self._data

    @data.setter
    def data(self, value: object) -> None:
        if value is None:
            self._data = None
            return
        array = const(value).data
        expected = self.param_shape
        if len(array.shape) != len(expected) or any(
            isinstance(want, int) and want != have for want, have in zip(expected, array.shape)
        ):
            raise VerifyError(
                f"the parameter has shape {list(expected)}, got data of shape {list(array.shape)}"
            )
        self._data = array.astype(numpy_dtype(self.param_dtype), copy=False)

    def to(self, dtype: str | None = None) -> None:
        """Change the element type (converting the data if there is any)."""
        if dtype is None:
            return
        dtypes.check_dtype(dtype)
        self.param_dtype = dtype
        if self._data is not None:
            self._data = self._data.astype(numpy_dtype(dtype))


# ---- into and out of the graph ---------------------------------------------------------------


def emit_tensor(expr: RelaxExpr, name: str = "") -> Tensor:
    """Emit an expression that is a tensor."""
    return Tensor(current_builder().emit(expr, name))


def wrap_nested(expr: RelaxExpr, name: str) -> Any:
    """Emit an expression; return a ``Tensor``, an ``Object``, or a (nested) tuple of them."""
    var = current_builder().emit(expr, name)
    info = var.struct_info
    if isinstance(info, TupleStructInfo):
        return tuple(
            wrap_nested(var[index], f"{name}.{index}") for index in range(len(info.fields))
        )
    if isinstance(info, ObjectStructInfo):
        return Object(_expr=var, _name=name)
    return Tensor(var)


def emit(expr: RelaxExpr, name: str = "") -> Any:
    """``wrap_nested``; items of a tuple get names by themselves."""
    var = current_builder().emit(expr, name)
    info = var.struct_info
    if isinstance(info, TupleStructInfo):
        return tuple(emit(var[index]) for index in range(len(info.fields)))
    if isinstance(info, ObjectStructInfo):
        return Object(_expr=var, _name=name)
    return Tensor(var)


def unwrapped(value: object) -> Any:
    """Graph values behind tensors and objects, also in lists and tuples."""
    if isinstance(value, (Tensor, Object)):
        return value._expr
    if isinstance(value, (list, tuple)):
        return type(value)(unwrapped(item) for item in value)
    return value


def unwrapped_result(result: object, method: str) -> RelaxExpr:
    """What a method returned, as a graph value.

    Raises ``VerifyError`` for anything but tensors, objects, arrays, and tuples of these.
    """
    if isinstance(result, (Tensor, Object)):
        return result._expr
    if isinstance(result, (tuple, list)):
        return as_relax(tuple(unwrapped_result(item, method) for item in result))
    if isinstance(result, (np.ndarray, RelaxExpr)):
        return as_relax(result)
    raise VerifyError(f"{method} must return tensors, it returned {type(result).__name__}")
