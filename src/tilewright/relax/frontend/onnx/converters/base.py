"""The context that converters receive, and the table in which they are registered.

A converter turns one ONNX node into graph values::

    @converts("LeakyRelu")
    def _leaky_relu(ctx: Context, x: Tensor, *, alpha: float = 0.01) -> Tensor:
        return op.nn.leaky_relu(x, alpha)

Positional parameters are the node's inputs, in order; those with a default may be left out.
Keyword-only ones are its attributes, checked against their annotations; an attribute that a
converter does not name is refused. (One that is called as an input has an underscore after it.)
Where there are many, a parameter takes several, in a dataclass that has them as fields::

    @dataclass(frozen=True, kw_only=True)
    class _Scaling:
        alpha: float = 1.0
        beta: float = 1.0

    @converts("Scale")
    def _scale(ctx: Context, x: Tensor, *, attrs: _Scaling) -> Tensor:
        return op.add(op.multiply(x, ctx.scalar(attrs.alpha, x)), ctx.scalar(attrs.beta, x))

Annotations of inputs say in which form they come; ``| None`` says that one may be left out:

- ``Tensor``, or none: a graph value;
- ``Shape``: integers that must be known, as a tuple, of which some may be formulas of extents;
- ``Array``: a tensor whose elements must be known, as a NumPy array;
- ``Value``: whatever there is: a sequence, an optional, a tensor that may be known or not.

A converter returns a value, or a tuple of values for operators with several results; ``DEFINED``
leaves a node to ONNX's own definition of its operator. Operators of
other domains than ONNX's own are registered as ``com.microsoft.FastGelu``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilewright.ir import Expr, as_int
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import Constant, RelaxExpr
from tilewright.relax.frontend.converting import converted
from tilewright.relax.frontend.onnx.converters.signature import Converter, Entry
from tilewright.relax.frontend.onnx.values import Numbers, UnknownValueError, place
from tilewright.relax.frontend.onnx.values import Value as Value
from tilewright.relax.values import const
from tilewright.support.errors import ImportModelError, VerifyError
from tilewright.support.registry import Registry
from tilewright.topi.utils import normal_axis

if TYPE_CHECKING:
    import onnx

Tensor = RelaxExpr
Shape = tuple[Expr | int, ...]
Array = NDArray[Any]
Graph = Any  # onnx.GraphProto


@dataclass(frozen=True, eq=False)
class Quantized:
    """What a dequantised tensor was: integers, scales and zero points, along an axis if several."""

    x: Tensor
    scale: Tensor
    zero_point: Tensor | None
    axis: int


@dataclass(eq=False)
class Noted:
    """What is known of a graph's values besides their dtypes and shapes."""

    held: dict[RelaxExpr, Array] = field(default_factory=dict)
    """The numbers of parameters."""
    elements: dict[RelaxExpr, str] = field(default_factory=dict)
    """ONNX's element types of values whose dtype does not tell, as far as known."""
    quantized: dict[RelaxExpr, Quantized] = field(default_factory=dict)
    """What dequantised tensors come from."""


CONVERTERS: Registry[Entry] = Registry("ONNX operator", ImportModelError)
"""Converters by the operator's name, with its domain in front if that isn't ONNX's own."""

F = TypeVar("F", bound=Converter)


def converts(*names: str) -> Callable[[F], F]:
    """Register a function as the converter of operators."""

    def register(function: F) -> F:
        for name in names:
            CONVERTERS.register(name, Entry(name, function))
        return function

    return register


# What the value of an attribute must be, by the converter's annotation.
_ATTRIBUTES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float,),
    "str": (str,),
    "Array": (np.ndarray,),
    "tuple[int, ...]": (int,),
    "tuple[float, ...]": (float,),
    "tuple[str, ...]": (str,),
}


class Defined(Enum):
    """The type of ``DEFINED``."""

    DEFINED = "defined"


DEFINED = Defined.DEFINED
"""What a converter returns for a node to which ONNX's definition shall be applied."""

Result = Value | tuple[Value, ...] | Defined
"""What a converter may return."""


class Context:
    """One node of an ONNX graph while it is converted."""

    def __init__(
        self,
        node: onnx.NodeProto,
        opset: int,
        builder: BlockBuilder,
        noted: Noted,
        run_graph: Callable[[Any, Sequence[Value]], list[Value]],
        named: Callable[[str], Value],
    ) -> None:
        self.node = node
        self.opset = opset
        """The version of the node's domain."""
        self.builder = builder
        self.run_graph = run_graph
        """Convert a graph that is an attribute, given its inputs; returns its results."""
        self.named = named
        """The value of a name in the node's graph, or in one around it."""
        self.element_of_result = ""
        """ONNX's element type of the results, if a converter says it: one without a dtype here."""
        self.quantized = noted.quantized
        self._noted = noted

    # ---- arguments ------------------------------------------------------------------------------

    def call(
        self, entry: Entry, inputs: Sequence[Value], attributes: Mapping[str, object]
    ) -> Result:
        """Run a converter on a node's inputs and attributes.

        Raises ``ImportModelError`` if they don't fit its signature.
        """
        if entry.variadic is None and len(inputs) > len(entry.inputs):
            extra = inputs[len(entry.inputs) :]
            if any(item is not None for item in extra):
                raise self.error(f"takes up to {len(entry.inputs)} inputs, got {len(inputs)}")
            inputs = inputs[: len(entry.inputs)]
        args: list[object] = []
        for number, value in enumerate(inputs):
            if number < len(entry.inputs):
                parameter = entry.inputs[number]
                if value is None and parameter.required and parameter.kind != "Value":
                    raise self.error(f"input {parameter.name} is missing")
                args.append(self._argument(parameter.name, parameter.kind, value))
            else:
                args.append(self._argument(f"input {number}", entry.variadic or "", value))
        for parameter in entry.inputs[len(inputs) :]:
            if parameter.required:
                raise self.error(f"input {parameter.name} is missing")
            args.append(None)
        made: Result = entry.run(self, args, self._attributes(entry, attributes))
        return made

    def _argument(self, name: str, kind: str, value: Value) -> object:
        if value is None:
            return None
        if kind == "Tensor":
            return self.tensor(value, name)
        if kind == "Shape":
            return self.sizes(value, name)
        return self.array(value, name) if kind == "Array" else value

    def _attributes(self, entry: Entry, given: Mapping[str, object]) -> dict[str, object]:
        """The attributes of a node, checked."""
        made: dict[str, object] = {}
        for name, value in given.items():
            parameter = entry.attributes.get(name)
            if parameter is None:
                known = ", ".join(sorted(entry.attributes)) or "none"
                raise self.error(f"attribute {name!r} is not supported; supported: {known}")
            made[name] = self._checked(name, parameter.kind, value)
        for name, parameter in entry.attributes.items():
            if parameter.required and name not in made:
                raise self.error(f"attribute {name!r} is missing")
        return made

    def _checked(self, name: str, kind: str, value: object) -> object:
        wanted = _ATTRIBUTES.get(kind)
        if wanted is None:
            return value
        items = value if isinstance(value, tuple) else (value,)
        if isinstance(value, tuple) is not kind.startswith("tuple") or not all(
            isinstance(item, wanted) for item in items
        ):
            raise self.error(f"attribute {name!r} must be {kind}, got {value!r}")
        return value

    # ---- values ---------------------------------------------------------------------------------

    def tensor(self, value: Value, name: str = "an input") -> RelaxExpr:
        """Turn a value into a tensor.

        Raises ``ImportModelError`` for a sequence or an optional without an element.
        """
        if isinstance(value, RelaxExpr):
            return value
        if isinstance(value, Numbers):
            return self.builder.emit(value.tensor())
        what = "a sequence" if isinstance(value, list) else "empty"
        raise self.error(f"{name} must be a tensor, it is {what}")

    def known(self, value: Value) -> Array | None:
        """The elements of a tensor if they are known; formulas of extents are ``Expr`` objects."""
        if isinstance(value, Numbers):
            return value.array
        if isinstance(value, Constant):
            return value.data
        return self._noted.held.get(value) if isinstance(value, RelaxExpr) else None

    def element(self, value: RelaxExpr) -> str:
        """ONNX's element type of a value, if that has no dtype here, else its dtype."""
        return self._noted.elements.get(value, value.dtype)

    def alike(self, made: RelaxExpr, source: Value) -> RelaxExpr:
        """Bind a value that is of the same element type as another one."""
        bound = self.emit(made)
        if isinstance(source, RelaxExpr) and source in self._noted.elements:
            self._noted.elements[bound] = self._noted.elements[source]
        return bound

    def array(self, value: Value, name: str) -> Array:
        """The elements of a tensor that must be known as numbers.

        Raises ``UnknownValueError`` if they aren't.
        """
        found = self.known(value)
        if found is None or isinstance(value, Numbers):
            raise UnknownValueError(
                self._placed(
                    f"{name} decides what is computed, so it must be known when the model is "
                    "imported: a constant, or follow from fixed sizes of the inputs"
                ),
                value,
            )
        return found

    def sizes(self, value: Value, name: str) -> Shape:
        """The elements of a vector of integers that must be known.

        Raises ``UnknownValueError`` if they aren't.
        """
        found = self.known(value)
        if found is None:
            raise UnknownValueError(
                self._placed(
                    f"{name} decides sizes, so it must be known when the model is imported: a "
                    "constant, or computed from sizes of the inputs"
                ),
                value,
            )
        if found.ndim > 1 or found.dtype.kind not in "iuO":
            raise self.error(f"{name} must be a vector of integers")
        return tuple(item if isinstance(item, Expr) else int(item) for item in found.reshape(-1))

    def ints(self, sizes: Sequence[Expr | int], name: str) -> list[int]:
        """Sizes that must be numbers.

        Raises ``UnknownValueError`` if one is a formula.
        """
        found = [item if isinstance(item, int) else as_int(item) for item in sizes]
        if any(item is None for item in found):
            raise UnknownValueError(self._placed(f"{name} must be numbers, got {list(sizes)}"))
        return found  # type: ignore[return-value]

    def emit(self, expr: RelaxExpr) -> RelaxExpr:
        """Bind a value that is used more than once."""
        return self.builder.emit(expr)

    def te(self, function: Callable[..., Any], *args: Any, name: str = "", **kwargs: Any) -> Tensor:
        """A tensor function made of ``te`` code, called on graph values."""
        hint = name or getattr(function, "__name__", "") or "onnx"
        return self.builder.call_te(function, *args, primfunc_name_hint=hint.strip("_"), **kwargs)

    def scalar(self, value: float, like: RelaxExpr | str) -> Constant:
        """A constant of a tensor's dtype."""
        return const(value, like if isinstance(like, str) else like.dtype)

    def cast(self, value: RelaxExpr, dtype: str) -> RelaxExpr:
        """Convert a tensor if it has another dtype."""
        return converted(value, dtype)

    # ---- checks ---------------------------------------------------------------------------------

    def axis(self, axis: int, ndim: int) -> int:
        """Count an axis from the front.

        Raises ``ImportModelError`` if there is none such.
        """
        try:
            return normal_axis(axis, ndim)
        except VerifyError as error:
            raise self.error(str(error)) from None

    def axes(self, axes: Sequence[int], ndim: int) -> tuple[int, ...]:
        """Count axes from the front.

        Raises ``ImportModelError`` if there is none such.
        """
        return tuple(self.axis(axis, ndim) for axis in axes)

    def uses(self, number: int) -> bool:
        """Whether the node has this result."""
        return len(self.node.output) > number and bool(self.node.output[number])

    def require(self, condition: object, message: str) -> None:
        """Raise ``ImportModelError`` unless a condition holds."""
        if not condition:
            raise self.error(message)

    def choice(self, what: str, value: str, known: Sequence[str]) -> str:
        """Refuse a word that isn't one of those known, by an ``ImportModelError``."""
        self.require(value in known, f"{what} must be one of {', '.join(known)}, got {value!r}")
        return value

    def error(self, message: str) -> ImportModelError:
        """Make an error that names the place in the model."""
        return ImportModelError(self._placed(message))

    def _placed(self, message: str) -> str:
        return f"{place(self.node)}: {message}"
