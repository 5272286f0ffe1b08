"""Modules, parameters and tensors: writing a model as a graph, in the manner of PyTorch.

While a module is exported its ``forward`` runs once with :class:`Tensor` arguments, and each
operator it calls is emitted into the graph function under construction.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir import Expr, ExprLike, IRModule, Var, dtypes
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import (
    Constant,
    RelaxExpr,
    RelaxVar,
    as_relax,
    const,
    numpy_dtype,
)
from tilewright.relax.frontend.nn import spec as specs
from tilewright.relax.ops import (
    add,
    astype,
    divide,
    matmul,
    multiply,
    negative,
    permute_dims,
    power,
    reshape,
    subtract,
)
from tilewright.relax.struct_info import PrimStructInfo, TensorStructInfo, TupleStructInfo
from tilewright.support.errors import VerifyError

_state = threading.local()


def current_builder() -> BlockBuilder:
    """Return the builder of the export that is running.

    Raises ``VerifyError`` if there is none.
    """
    builder = getattr(_state, "builder", None)
    if builder is None:
        raise VerifyError("operators of nn run only while a module is exported: mod.export(spec)")
    made: BlockBuilder = builder
    return made


class Tensor:
    """A value of the graph under construction."""

    def __init__(self, expr: RelaxExpr) -> None:
        self._expr = expr

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents: Python ints where constant, else expressions."""
        return tuple(_number_or_expr(extent) for extent in self._expr.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._expr.ndim

    @property
    def dtype(self) -> str:
        """Element type."""
        return self._expr.dtype

    def __add__(self, other: Operand) -> Tensor:
        return emit_tensor(add(self, other))

    def __radd__(self, other: ExprLike) -> Tensor:
        return emit_tensor(add(_operand(other, self), self))

    def __sub__(self, other: Operand) -> Tensor:
        return emit_tensor(subtract(self, other))

    def __rsub__(self, other: ExprLike) -> Tensor:
        return emit_tensor(subtract(_operand(other, self), self))

    def __mul__(self, other: Operand) -> Tensor:
        return emit_tensor(multiply(self, other))

    def __rmul__(self, other: ExprLike) -> Tensor:
        return emit_tensor(multiply(_operand(other, self), self))

    def __truediv__(self, other: Operand) -> Tensor:
        return emit_tensor(divide(self, other))

    def __rtruediv__(self, other: ExprLike) -> Tensor:
        return emit_tensor(divide(_operand(other, self), self))

    def __pow__(self, other: Operand) -> Tensor:
        return emit_tensor(power(self, other))

    def __matmul__(self, other: Operand) -> Tensor:
        return emit_tensor(matmul(self, other))

    def __neg__(self) -> Tensor:
        return emit_tensor(negative(self))

    def reshape(self, *shape: ExprLike | Sequence[ExprLike]) -> Tensor:
        """Reshape to as many elements; one extent may be -1."""
        target: Any = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return emit_tensor(reshape(self._expr, target))

    def permute_dims(self, *axes: int | Sequence[int]) -> Tensor:
        """Reorder dimensions."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return emit_tensor(permute_dims(self, tuple(order) or None))

    def astype(self, dtype: str) -> Tensor:
        """Convert to another dtype."""
        return emit_tensor(astype(self, dtype))

    def __repr__(self) -> str:
        return f"Tensor({self._expr!r}: {self._expr.struct_info!r})"


def _number_or_expr(extent: Expr) -> Expr | int:
    return getattr(extent, "value", extent)


def emit_tensor(expr: RelaxExpr, name: str = "") -> Tensor:
    """Emit an expression that is a tensor."""
    return Tensor(current_builder().emit(expr, name))


def _operand(value: Operand, like: Tensor) -> RelaxExpr:
    return as_relax(value, like._expr)


def emit(expr: RelaxExpr, name: str = "") -> Any:
    """Emit an expression; returns a ``Tensor``, or a tuple of them."""
    return wrap(current_builder().emit(expr, name))


def wrap(expr: RelaxExpr) -> Any:
    """Wrap a graph value; tuples item by item."""
    if isinstance(expr.struct_info, TupleStructInfo):
        return tuple(
            wrap(current_builder().emit(expr[index]))
            for index in range(len(expr.struct_info.fields_))
        )
    return Tensor(expr)


Operand = Tensor | RelaxExpr | ExprLike
"""What stands next to a tensor in arithmetic."""


class Parameter(Tensor):
    """A tensor that a module owns; it becomes a parameter of exported functions.

    ``data`` holds its values once they are set (an array, or anything that converts to one).
    """

    def __init__(self, shape: Sequence[int | str], dtype: str = "float32") -> None:
        dtypes.check_dtype(dtype)
        self.param_shape = tuple(shape)
        self.param_dtype = dtype
        self._data: NDArray[Any] | None = None
        self._bound: RelaxExpr | None = None

    @property
    def _expr(self) -> RelaxExpr:  # type: ignore[override]
        if self._bound is None:
            raise VerifyError("a parameter is used outside the export of its module")
        return self._bound

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents as declared."""
        return self.param_shape

    @property
    def dtype(self) -> str:
        """Element type as declared."""
        return self.param_dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.param_shape)

    @property
    def data(self) -> NDArray[Any] | None:
        """The values, or ``None`` if they were not set."""
        return self._data

    @data.setter
    def data(self, value: object) -> None:
        array = const(value).data
        expected = tuple(self.param_shape)
        if len(array.shape) != len(expected) or any(
            isinstance(want, int) and want != have for want, have in zip(expected, array.shape)
        ):
            raise VerifyError(
                f"the parameter has shape {list(expected)}, got data of shape {list(array.shape)}"
            )
        self._data = array.astype(numpy_dtype(self.param_dtype), copy=False)

    def to(self, dtype: str) -> None:
        """Change the element type (converting the data if there is any)."""
        self.param_dtype = dtype
        if self._data is not None:
            self._data = self._data.astype(numpy_dtype(dtype))

    def __repr__(self) -> str:
        return f"Parameter({list(self.param_shape)}, {self.param_dtype!r})"


class Module:
    """Base of modules: attributes that are parameters or modules are found by name."""

    def forward(self, *args: Any) -> Any:
        """Compute the module's result; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(...)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """All parameters with dotted names, in the order of attributes; shared ones once."""
        seen: set[int] = set()
        for name, parameter in self._walk(prefix):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

    def _walk(self, prefix: str) -> Iterator[tuple[str, Parameter]]:
        for name, value in self._members():
            path = f"{prefix}.{name}" if prefix else name
            if isinstance(value, Parameter):
                yield path, value
            elif isinstance(value, Module):
                yield from value._walk(path)

    def _members(self) -> Iterator[tuple[str, object]]:
        yield from vars(self).items()

    def parameters(self) -> Iterator[Parameter]:
        """All parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Values of the parameters that have any, by name."""
        return OrderedDict(
            (name, parameter.data)
            for name, parameter in self.named_parameters()
            if parameter.data is not None
        )

    def load_state_dict(self, state: Mapping[str, object], strict: bool = True) -> None:
        """Set parameters by name; with ``strict`` both must have the same names.

        Raises ``VerifyError`` if they aren't.
        """
        own = dict(self.named_parameters())
        missing = [name for name in own if name not in state]
        unknown = [name for name in state if name not in own]
        if strict and (missing or unknown):
            raise VerifyError(
                f"load_state_dict: missing {missing or 'none'}, unexpected {unknown or 'none'}"
            )
        for name, value in state.items():
            if name in own:
                own[name].data = value

    def to(self, dtype: str) -> Module:
        """Change the element type of all parameters."""
        for parameter in self.parameters():
            parameter.to(dtype)
        return self

    def export(self, spec: specs.ModuleSpec) -> tuple[IRModule, list[tuple[str, Parameter]]]:
        """Turn methods into graph functions.

        ``spec`` describes each method's arguments:
        ``{"forward": {"x": nn.spec.Tensor((1, 784), "float32")}}``. The functions take these, then
        the parameters, under the methods' names. Returns the module and the named parameters.
        """
        return _Exporter(self, spec).export()


class ModuleList(Module):
    """Modules in a list."""

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        self.modules = list(modules)

    def _members(self) -> Iterator[tuple[str, object]]:
        for index, module in enumerate(self.modules):
            yield str(index), module

    def append(self, module: Module) -> None:
        """Add a module."""
        self.modules.append(module)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __getitem__(self, index: int) -> Module:
        return self.modules[index]

    def __len__(self) -> int:
        return len(self.modules)

    def forward(self, x: Any) -> Any:
        """Run the modules in order."""
        for module in self.modules:
            x = module(x)
        return x


class _Exporter:
    def __init__(self, module: Module, spec: specs.ModuleSpec) -> None:
        self.module = module
        self.spec = spec
        self.named = list(module.named_parameters())

    def export(self) -> tuple[IRModule, list[tuple[str, Parameter]]]:
        builder = BlockBuilder()
        for method, arguments in self.spec.items():
            if not hasattr(self.module, method):
                raise VerifyError(f"{type(self.module).__name__} has no method {method!r}")
            self.method(builder, method, arguments)
        return builder.get(), self.named

    def method(self, builder: BlockBuilder, method: str, arguments: specs.MethodSpec) -> None:
        extents: dict[str, Var] = {}
        inputs: list[RelaxVar] = []
        actual: dict[str, Tensor | Var] = {}
        for name, item in arguments.items():
            if isinstance(item, specs.Tensor):
                var = RelaxVar(name, TensorStructInfo(_shape(item.shape, extents), item.dtype))
                actual[name] = Tensor(var)
            elif isinstance(item, specs.Int):
                extent = extents.setdefault(name, Var(name))
                var = RelaxVar(name, PrimStructInfo("int64", extent))
                actual[name] = extent
            else:
                raise VerifyError(
                    f"argument {name!r} of {method}: expected nn.spec.Tensor or nn.spec.Int, "
                    f"got {item!r}"
                )
            inputs.append(var)
        weights = [
            RelaxVar(name, TensorStructInfo(_shape(param.param_shape, extents), param.param_dtype))
            for name, param in self.named
        ]
        before = getattr(_state, "builder", None)
        _state.builder = builder
        try:
            for (_, param), var in zip(self.named, weights):
                param._bound = var
            attrs = {"num_input": len(inputs)}
            with builder.function(method, [*inputs, *weights], attrs):
                with builder.dataflow():
                    result = getattr(self.module, method)(**actual)
                    output = builder.emit_output(_unwrap(result, method))
                builder.emit_func_output(output)
        finally:
            _state.builder = before
            for _, param in self.named:
                param._bound = None


def _shape(shape: Sequence[int | str], extents: dict[str, Var]) -> list[Var | int]:
    return [
        extents.setdefault(extent, Var(extent)) if isinstance(extent, str) else extent
        for extent in shape
    ]


def _unwrap(result: object, method: str) -> RelaxExpr:
    if isinstance(result, Tensor):
        return result._expr
    if isinstance(result, (tuple, list)):
        return as_relax(tuple(_unwrap(item, method) for item in result))
    if isinstance(result, (np.ndarray, Constant)):
        return as_relax(result)
    raise VerifyError(f"{method} must return tensors, it returned {type(result).__name__}")
