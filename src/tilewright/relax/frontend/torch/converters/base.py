"""The context that converters receive, and the table in which they are registered.

A converter turns one call of a PyTorch operator into graph values::

    @converts("aten.square.default")
    def _square(ctx: Context, x: RelaxExpr) -> RelaxExpr:
        return op.square(x)

Arguments come in the order of the operator's schema, defaults filled in, keyword-only ones by
name. Tensors are graph values, symbolic sizes are ``ir`` expressions, lists are lists. Arguments
that don't affect the result (device, layout, memory format) are dropped. A converter returns a
graph value, or a list of them for operators with several results (``None`` for one that it can't
compute). The importer compares the result's shape and dtype with what PyTorch recorded.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright.ir import Expr, as_expr, as_int, dtypes
from tilewright.relax import ops as op
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import Constant, RelaxExpr
from tilewright.relax.frontend.converting import converted
from tilewright.relax.frontend.torch.pairs import PART_DTYPES, Complex
from tilewright.relax.frontend.torch.symbols import SymbolTable
from tilewright.relax.struct_info import ShapeStructInfo
from tilewright.relax.values import const
from tilewright.support.errors import ImportModelError
from tilewright.support.registry import Registry

if TYPE_CHECKING:
    import torch

Converter = Callable[..., object]

# What arguments are, as PyTorch's schemas say: SymInt, Scalar, SymInt[1], Tensor or Scalar.
Size = Expr | int
Number = Expr | float
Sizes = Size | Sequence[Size]
Operand = RelaxExpr | Expr | complex
# The same where it may be a complex tensor.
ComplexOperand = Operand | Complex
# What converters of operators with several results return.
Results = list[RelaxExpr | None]

CONVERTERS: Registry[Converter] = Registry("converter of a PyTorch operator", ImportModelError)
"""Converters by the name of the operator's overload, such as ``aten.add.Tensor``."""

COMPLEX_CONVERTERS: Registry[Converter] = Registry(
    "converter of a PyTorch operator on complex numbers", ImportModelError
)
"""Converters of operators that take or give complex tensors, which are ``Complex`` for them."""


F = TypeVar("F", bound=Converter)


def converts(*names: str, form: type | None = None) -> Callable[[F], F]:
    """Register a function as the converter of operators.

    With ``form``, a dataclass, the function's last parameter is one of these: it holds the
    arguments that come after those of the other parameters, in the order of its fields.
    """

    def register(function: F) -> F:
        for name in names:
            CONVERTERS.register(name, function if form is None else _forming(function, form))
        return function

    return register


def converts_complex(*names: str) -> Callable[[F], F]:
    """Register a function as the converter of operators where they take or give complex numbers."""

    def register(function: F) -> F:
        for name in names:
            COMPLEX_CONVERTERS.register(name, function)
        return function

    return register


def _forming(function: Converter, form: type) -> Converter:
    before = len(inspect.signature(function).parameters) - 2  # the context and the form

    def convert(ctx: Context, *args: object, **options: object) -> object:
        return function(ctx, *args[:before], form(*args[before:], **options))

    return convert


class Context:
    """One node of a PyTorch graph while it is converted."""

    def __init__(
        self,
        node: torch.fx.Node,
        builder: BlockBuilder,
        symbols: SymbolTable,
        place: Callable[[Any], str],
    ) -> None:
        self.node = node  # torch.fx.Node
        self.builder = builder
        self.symbols = symbols
        self._place = place

    # ---- what PyTorch says of the result ------------------------------------------------------

    @property
    def result(self) -> Any:
        """The example value (a fake tensor, or a sequence of them) that PyTorch recorded."""
        return self.node.meta.get("val")

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Extents of the result."""
        return self.symbols.shape(self.result.shape)

    @property
    def dtype(self) -> str:
        """Element type of the result; of complex numbers, that of their parts."""
        return dtype_name(self.result.dtype)

    def operand_dtype(self) -> str:
        """Dtype to which PyTorch promotes the first two arguments."""
        import torch

        def sample(value: object) -> Any:
            value = value.meta["val"] if isinstance(value, torch.fx.Node) else value
            if isinstance(value, torch.SymFloat):
                return 1.0
            return 1 if isinstance(value, torch.SymInt) else value

        first, second = map(sample, self.node.args[:2])
        return dtype_name(torch.result_type(first, second))

    @property
    def is_complex(self) -> bool:
        """Whether the result (or the first of several) has complex numbers."""
        first = self.result[0] if isinstance(self.result, (list, tuple)) else self.result
        return first is not None and bool(first.is_complex())

    @property
    def spatial(self) -> int:
        """How many axes of an image an operator is for, by its name: 2 for ``max_pool2d``."""
        found = re.search(r"([123])d", str(self.node.target))
        assert found, f"{self.node.target} isn't named for a number of axes"
        return int(found[1])

    def uses(self, *numbers: int) -> bool:
        """Whether anything uses one of these results of an operator with several."""
        return any(
            user.users and user.args[1] in numbers
            for user in self.node.users
            if user.target is operator.getitem
        )

    # ---- building -------------------------------------------------------------------------------

    def emit(self, expr: RelaxExpr) -> RelaxExpr:
        """Bind a value that is used more than once."""
        return self.builder.emit(expr)

    def tensor(self, value: Operand, dtype: str | None = None) -> RelaxExpr:
        """Turn an argument into a tensor of ``dtype``; numbers and sizes become 0-dimensional.

        Raises ``ImportModelError`` for complex numbers.
        """
        if isinstance(value, Constant) and dtype not in (None, value.dtype) and not value.ndim:
            return const(value.data, dtype)
        if isinstance(value, RelaxExpr):
            return self.cast(value, dtype or value.dtype)
        if isinstance(value, Expr):
            number = as_int(value)
            if number is None:
                # A range of one element holds a symbolic number.
                made = op.reshape(op.arange(value, value + 1), ())
                return made if dtype in (None, "int64") else op.astype(made, dtype)
            value = number
        if dtype is None and type(value) is int:
            dtype = "int64"  # PyTorch's integers, of sizes too
        if isinstance(value, complex):
            raise self.error(f"the complex number {value} is not supported as this operand")
        return const(self.number(value, dtype), dtype)

    @staticmethod
    def number(value: object, dtype: str | None) -> Any:
        """A number as an element: of booleans, whether it isn't zero."""
        return bool(value) if dtype is not None and dtypes.is_bool(dtype) else value

    def complex(self, value: ComplexOperand, dtype: str | None = None) -> Complex:
        """Turn an argument into a complex tensor with parts of ``dtype``."""
        if isinstance(value, Complex):
            return value.map(lambda part: self.cast(part, dtype or part.dtype))
        if dtype is None and type(value) is int:
            dtype = "int64"  # PyTorch's integers, of sizes too
        if isinstance(value, complex):
            return Complex(self.tensor(value.real, dtype), self.tensor(value.imag, dtype))
        real = self.tensor(value, dtype)
        return Complex(real, op.zeros(real.shape, real.dtype))

    def bind(self, value: Complex) -> Complex:
        """Bind both parts of a value that is used more than once."""
        return value.map(self.emit)

    def cast(self, value: RelaxExpr, dtype: str) -> RelaxExpr:
        """Convert a tensor if it has another dtype."""
        return converted(value, dtype)

    def axis(self, axis: int, ndim: int) -> int:
        """Count an axis from the front."""
        return axis % ndim if ndim else 0

    def row(self, x: RelaxExpr) -> RelaxExpr:
        """A tensor with axes: a scalar counts as a row of one."""
        return x if x.ndim else op.reshape(x, (1,))

    def as_result(self, x: RelaxExpr, number: int | None = None) -> RelaxExpr:
        """A value in the shape of the result, or of one of several."""
        shape = self.symbols.shape((self.result if number is None else self.result[number]).shape)
        return x if len(shape) == x.ndim else op.reshape(x, shape)

    def axes(self, dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
        """Turn PyTorch's ``dim`` argument into axes; none or an empty list means all."""
        if dim is None or dim == []:
            return tuple(range(ndim))
        return tuple(self.axis(item, ndim) for item in ([dim] if isinstance(dim, int) else dim))

    def ints(self, values: Sequence[Size], what: str) -> list[int]:
        """Integers that must be known when the model is imported.

        Raises ``ImportModelError`` if they aren't.
        """
        found = [as_int(as_expr(value)) for value in values]
        if any(value is None for value in found):
            raise self.error(f"{what} must be constant, got {list(values)}")
        return found  # type: ignore[return-value]

    def known(self, value: Size) -> int | None:
        """A size as a number, if it is known when the model is imported."""
        return as_int(as_expr(value))

    def int(self, value: Size, what: str) -> int:
        """A number that must be known when the model is imported."""
        return self.ints([value], what)[0]

    def is_one(self, extent: Size) -> bool:
        """Whether an extent is known to be 1."""
        return self.known(extent) == 1

    def is_empty(self, x: RelaxExpr) -> bool:
        """Whether a tensor is known to have no elements."""
        return any(self.known(extent) == 0 for extent in x.shape)

    def counted(self, count: RelaxExpr, extent: object = None, most: Size | None = None) -> Expr:
        """A size that only data tell: ``count`` is a tensor with it, ``most`` how large it may be.

        ``extent`` is that size of the result, as PyTorch recorded it. Raises ``ImportModelError``
        where graphs can't have such sizes.
        """
        if isinstance(extent, int):
            return as_expr(extent)
        if extent is not None and self.symbols.has(extent):
            return self.symbols.expr(extent)
        if not self.symbols.from_data:
            raise self.error("only data tell a size of its result")
        name = f"{self.node.name}_size" if extent is None else str(extent)
        size = self.symbols.define_name(name)
        if most is not None:
            self.symbols.bounds[size] = as_expr(most)
        shape = self.emit(op.tensor_to_shape(op.reshape(self.cast(count, "int64"), (1,))))
        self.builder.match_cast(shape, ShapeStructInfo((size,)))
        return size

    def error(self, message: str) -> ImportModelError:
        """Make an error that names the place in the model."""
        return ImportModelError(f"{self.node.target} ({self._place(self.node)}): {message}")


def dtype_name(dtype: torch.dtype) -> str:
    """Name of a ``torch.dtype``; of complex numbers, the dtype of their parts.

    Raises ``ImportModelError`` for quantised ones.
    """
    name = str(dtype).removeprefix("torch.")
    if name.startswith("q"):
        raise ImportModelError(
            f"tensors of {name} are not supported; supported: bool, integers, floats, complex "
            "numbers"
        )
    return PART_DTYPES.get(name, name)


def same_tensor(x: RelaxExpr, expected: Sequence[Expr]) -> bool:
    """Whether a tensor has exactly this shape, as numbers."""
    found = [as_int(extent) for extent in x.shape]
    return None not in found and found == [as_int(extent) for extent in expected]
