"""What the names of an ONNX graph stand for while it is imported.

Most are tensors of the graph. Small integer tensors that follow from the inputs' extents stay
formulas (``Numbers``) until something needs them as tensors; sequences are lists of values, and an
input that is left out, or an optional without an element, is ``None``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arith import simplify
from tilewright.ir import Expr, as_expr, as_int
from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.values import const
from tilewright.support.errors import ImportModelError

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, eq=False)
class Numbers:
    """A tensor of integers of which some are formulas: an array of ``int`` and ``Expr``.

    Its dtype may be a float one, of which the elements are still integers.
    """

    array: NDArray[Any]
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        return self.array.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.array.ndim

    def tensor(self) -> RelaxExpr:
        """The graph value."""
        flat = [_element(item) for item in self.array.reshape(-1)]
        made = op.concat(flat, 0) if len(flat) > 1 else flat[0]
        made = op.reshape(made, self.shape)
        return made if self.dtype == "int64" else op.astype(made, self.dtype)


Value = RelaxExpr | Numbers | list[Any] | None


class UnknownValueError(ImportModelError):
    """An operator needs the elements of a tensor that only a call of the model will tell.

    ``value`` is the tensor, and ``inputs`` are the names of the model's inputs from which it is
    computed.
    """

    def __init__(self, message: str, value: Value = None, inputs: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.value = value
        self.inputs = tuple(inputs)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, None, self.inputs)


class NeedsBranchesError(ImportModelError):
    """Data decide what is computed, so the graph can't be one dataflow block."""


def _element(item: Any) -> RelaxExpr:
    """A vector of one integer; a range of one element holds a formula."""
    number = as_int(as_expr(item))
    return const(np.asarray([number], "int64")) if number is not None else op.arange(item, item + 1)


def numbers(array: NDArray[Any], dtype: str) -> RelaxExpr | Numbers:
    """Make a value of an object array: a constant if all elements are known."""
    made = np.empty(array.shape, object)
    for at, item in np.ndenumerate(array):
        extent = simplify(item) if isinstance(item, Expr) else item
        number = as_int(as_expr(extent))
        made[at] = extent if number is None else number
    if not any(isinstance(item, Expr) for item in made.reshape(-1)):
        return const(np.asarray(made.tolist(), "int64").reshape(made.shape), dtype)
    return Numbers(made, dtype)


def place(node: onnx.NodeProto) -> str:
    """A node in words: its operator, and its name or first result."""
    kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    if node.name:
        return f"{kind} (node {node.name!r})"
    result = next((name for name in node.output if name), "")
    return f"{kind} (node that makes {result!r})"
