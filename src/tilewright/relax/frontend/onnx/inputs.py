"""The inputs of a model as parameters of a graph function."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import Expr, Var
from tilewright.relax.expr import RelaxExpr, RelaxVar
from tilewright.relax.frontend.onnx.model import NARROW, dtype_of, element_name
from tilewright.relax.frontend.onnx.values import Value
from tilewright.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    defined_vars,
)
from tilewright.support.errors import ImportModelError, TilewrightError
from tilewright.support.registry import near_matches

if TYPE_CHECKING:
    import onnx

MOST_ELEMENTS = 1 << 40
"""Elements of one tensor, if its extents are known."""
_UNSAID = object()

ShapeDict = Mapping[str, Any]


class Inputs:
    """The inputs that have no initial value; ``params`` are the function's parameters.

    Raises ``ImportModelError`` for a name or shape that doesn't fit the graph's, a name that stands
    for two inputs, and an input whose type tensors don't have.
    """

    def __init__(
        self,
        graph: onnx.GraphProto,
        initial: Mapping[str, Any],
        shapes: ShapeDict,
        dtypes: str | Mapping[str, str],
        sanitize: bool,
    ) -> None:
        self.values: dict[str, Value] = {}
        """What names of inputs stand for."""
        self.elements: dict[RelaxExpr, str] = {}
        """ONNX's element types of those whose dtype does not tell."""
        self.sizes: dict[str, Var] = {}
        _require_names(graph, shapes, dtypes)
        made: list[RelaxVar] = []
        for item in graph.input:
            if item.name in initial:
                continue
            if item.name in self.values:
                raise ImportModelError(f"there are two inputs {item.name!r}")
            name = free_name(identifier(item.name, "input"), made) if sanitize else item.name
            dtype = dtypes if isinstance(dtypes, str) else dtypes.get(item.name)
            given = shapes.get(item.name, _UNSAID)
            info = self._info(item.name, item.type, given, dtype)
            if info is None or (isinstance(info, TupleStructInfo) and not info.fields):
                self.values[item.name] = None if info is None else []
                continue
            try:
                var = RelaxVar(name, info)
            except TilewrightError as error:
                raise ImportModelError(
                    f"input {item.name!r}: {error}; sanitize_input_names=True renames it"
                ) from None
            element = item.type.tensor_type.elem_type
            if element and element_name(element) in NARROW:
                self.elements[var] = element_name(element)
            items = isinstance(info, TupleStructInfo)
            self.values[item.name] = list(var) if items else var
            made.append(var)
        defined = set(defined_vars([var.struct_info for var in made]))
        for size in self.sizes.values():
            if size not in defined:
                raise ImportModelError(f"no input has the size {size!r}")
        self.params = made

    def _info(
        self, name: str, kind: onnx.TypeProto, shape: Any, dtype: str | None
    ) -> StructInfo | None:
        """The struct info of an input; ``None`` for an optional without an element."""
        which = kind.WhichOneof("value")
        if which == "optional_type":
            if shape is None:
                return None
            return self._info(name, kind.optional_type.elem_type, shape, dtype)
        if which == "sequence_type":
            if not isinstance(shape, (list, tuple)):
                raise ImportModelError(
                    f"input {name!r} is a sequence: give the shape of each of its elements by "
                    "shape_dict"
                )
            element = kind.sequence_type.elem_type
            items = [self._info(f"{name}_{n}", element, own, dtype) for n, own in enumerate(shape)]
            return TupleStructInfo(tuple(item for item in items if item is not None))
        if which != "tensor_type":
            raise ImportModelError(
                f"input {name!r} is of the kind {which or 'unknown'}; inputs must be tensors, or "
                "sequences or optionals of tensors"
            )
        tensor = kind.tensor_type
        if tensor.elem_type:
            dtype = dtype_of(tensor.elem_type)
        if dtype is None:
            raise ImportModelError(f"input {name!r} has no element type: give it by dtype_dict")
        if shape is _UNSAID:
            if not tensor.HasField("shape"):
                raise ImportModelError(f"input {name!r} has no shape: give it by shape_dict")
            shape = [
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{name}_{axis}"
                for axis, dim in enumerate(tensor.shape.dim)
            ]
        extents = [self._extent(name, extent) for extent in shape]
        known_part = [extent for extent in extents if isinstance(extent, int)]
        if math.prod(known_part) > MOST_ELEMENTS:
            raise ImportModelError(f"input {name!r} of the shape {list(shape)} is too large")
        return TensorStructInfo(extents, dtype)

    def _extent(self, name: str, extent: Expr) -> Expr | int:
        if isinstance(extent, str):
            made = identifier(extent, "size")
            if extent not in self.sizes:
                taken = {var.name for var in self.sizes.values()}
                while made in taken:
                    made += "_"
                self.sizes[extent] = Var(made, "int64")
            return self.sizes[extent]
        if isinstance(extent, Expr):
            return extent
        if not isinstance(extent, (int, np.integer)) or isinstance(extent, bool) or extent < 0:
            raise ImportModelError(
                f"an extent of input {name!r} is {extent!r}; give its shape by shape_dict, of "
                "numbers from 0 up, and names of symbolic sizes"
            )
        return int(extent)


def _require_names(
    graph: onnx.GraphProto, shapes: ShapeDict, dtypes: str | Mapping[str, str]
) -> None:
    names = [item.name for item in graph.input]
    for name in [*shapes, *(dtypes if not isinstance(dtypes, str) else ())]:
        if name not in names:
            raise ImportModelError(f"the model has no input {name!r}; {near_matches(name, names)}")


def identifier(name: str, default: str) -> str:
    """A name that a variable may have."""
    made = re.sub(r"[^0-9A-Za-z_]", "_", name)[:80] or default
    return made if made[0].isalpha() or made[0] == "_" else f"{default}_{made}"


def free_name(name: str, taken: Sequence[RelaxVar]) -> str:
    """A name that no other variable has."""
    names = {var.name for var in taken}
    made, number = name, 0
    while made in names:
        number += 1
        made = f"{name}_{number}"
    return made
