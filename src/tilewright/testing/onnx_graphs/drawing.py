"""A graph while it is drawn: nodes, and what each value is by ONNX's reference implementation."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.relax.frontend.onnx import require_onnx
from tilewright.relax.frontend.onnx.order import names_used

Array = np.ndarray[Any, Any]
FLOATS = ("float32", "float32", "float32", "float16", "float64", "bfloat16")
INTS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 1e-7, 3e38, np.inf, -np.inf, np.nan)
_ODD_NAMES = ("a b", "x/y:0", "é", "1st", "for", "x.y", "main", "lambda", "lv", "lv1", "int64", "n")


class Redraw(Exception):
    """What was drawn makes no sense to ONNX: draw again."""


def dtype_named(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a name, those of ``ml_dtypes`` among them."""
    return np.dtype(getattr(ml_dtypes, name, name))


class Drawing:
    """Nodes in order, and the arrays of all values."""

    def __init__(self, rng: random.Random, opset: int) -> None:
        self.rng = rng
        self.opset = opset
        self.nodes: list[Any] = []
        self.arrays: dict[str, Array] = {}
        self.inputs: list[str] = []
        self.constants: list[str] = []
        self.functions: list[Any] = []
        """The model's own, of the domain ``mine``."""
        self.coarsest: dict[str, float] = {}
        """The greatest rounding error inside of nodes with nodes inside, by their first result."""
        self._count = 0
        self.odd = rng.random() < 0.15
        """Whether names have characters that variables can't have."""

    # ---- names and leaves -----------------------------------------------------------------------

    def name(self, stem: str = "v") -> str:
        """A name that nothing has yet."""
        self._count += 1
        if self.odd and self.rng.random() < 0.5:
            stem = self.rng.choice(_ODD_NAMES)
            return stem if stem not in self.arrays else f"{stem}#{self._count}"
        return f"{stem}{self._count}"

    def leaf(self, array: Any, *, constant: bool | None = None, stem: str = "x") -> str:
        """An input or an initial value; ``constant=True`` where it must be known at import."""
        name = self.name(stem)
        self.arrays[name] = np.asarray(array)
        if self.rng.random() < 0.35 if constant is None else constant:
            self.constants.append(name)
        else:
            self.inputs.append(name)
        return name

    def ints(self, values: Any, dtype: str = "int64") -> str:
        """Integers that decide sizes, as an initial value."""
        return self.leaf(np.asarray(values, dtype), constant=True, stem="c")

    def fresh(self, shape: Sequence[int], dtype: str, likes: str = "") -> str:
        """A leaf of random numbers."""
        return self.leaf(self.array(shape, dtype, likes))

    def array(self, shape: Sequence[int], dtype: str, likes: str = "") -> Array:
        """Random numbers: ``likes`` is ``""``, ``tame``, ``positive``, ``unit`` or ``index:N``."""
        rng = np.random.default_rng(self.rng.getrandbits(32))
        shape = tuple(shape)
        kind = dtype_named(dtype)
        if dtype == "bool":
            return rng.random(shape) < 0.5
        if likes.startswith("index:"):
            limit = int(likes[6:])
            least = -limit if self.rng.random() < 0.4 and kind.kind == "i" else 0
            return rng.integers(least, max(limit, least + 1), shape).astype(kind)
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            if likes or self.rng.random() < 0.7:
                return rng.integers(max(-5, limits.min), 8, shape).astype(kind)
            made = rng.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
            ends = np.array([limits.min, limits.max, 0, 1], kind)
            return np.where(rng.random(shape) < 0.2, rng.choice(ends, shape), made)
        made = rng.standard_normal(shape) * self.rng.choice([0.5, 1.0, 3.0])
        if likes == "positive":
            made = np.abs(made) + 0.1
        elif likes == "unit":
            made = np.tanh(made) * 0.99
        elif not likes and self.rng.random() < 0.3:
            made = np.round(made * 2) / 2
        if not likes and self.rng.random() < 0.1:
            made = np.where(rng.random(shape) < 0.2, rng.choice(_SPECIAL, shape), made)
        with np.errstate(all="ignore"):
            return np.asarray(made).astype(kind)

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        """A random shape; extents 0 and 1 are not rare."""
        extents = (1, 2, 3, 4, 5, 7) if self.rng.random() < 0.8 else (0, 1, 2, 3)
        return tuple(self.rng.choice(extents) for _ in range(self.rng.randint(least, most)))

    # ---- values ---------------------------------------------------------------------------------

    def pick(self, accept: Callable[[Array], bool]) -> str | None:
        """One of the values that are accepted, later ones rather than earlier ones."""
        found = [name for name, array in self.arrays.items() if accept(array)]
        if not found:
            return None
        return found[max(self.rng.randrange(len(found)), self.rng.randrange(len(found)))]

    def value(
        self,
        dtypes: Sequence[str] = FLOATS,
        least: int = 0,
        most: int = 4,
        likes: str = "",
        accept: Callable[[Array], bool] = lambda array: True,
    ) -> str:
        """A value of one of the dtypes, of so many dimensions: one that is there, or a new one."""
        if not likes and self.rng.random() < 0.7:
            found = self.pick(
                lambda a: a.dtype.name in dtypes and least <= a.ndim <= most and accept(a)
            )
            if found is not None:
                return found
        for _ in range(20):
            made = self.array(self.shape(least, most), self.rng.choice(dtypes), likes)
            if accept(made):
                return self.leaf(made)
        raise Redraw

    def of(self, name: str) -> Array:
        """The array of a value."""
        return self.arrays[name]

    def axis(self, ndim: int) -> int:
        """An axis, at times counted from the end."""
        if not ndim:
            raise Redraw
        return self.rng.randrange(ndim) - (ndim if self.rng.random() < 0.4 else 0)

    def axes(self, ndim: int, least: int = 0) -> list[int]:
        """Different axes."""
        count = self.rng.randint(min(least, ndim), ndim)
        found = self.rng.sample(range(ndim), count)
        return [axis - (ndim if self.rng.random() < 0.3 else 0) for axis in found]

    def emit(self, kind: str, inputs: Sequence[str | None], results: int = 1, **attrs: Any) -> Any:
        """Add a node; returns the name of its result, or names.

        Raises ``Redraw`` if the reference implementation refuses it.
        """
        onnx = require_onnx()
        given = ["" if name is None else name for name in inputs]
        while given and not given[-1]:
            given.pop()
        names = [self.name() for _ in range(results)]
        attrs = {key: value for key, value in attrs.items() if value is not None}
        node = onnx.helper.make_node(kind, given, names, **attrs)
        self.add(node)
        return names[0] if results == 1 else names

    def add(self, node: Any) -> None:
        """Add a node, and what it makes."""
        kinds = [] if node.domain else _allowed_kinds(node, self.arrays, self.opset)
        made = reference(node, self.arrays, self.opset, self.functions)
        if any(kind and kind != _kind(array) for kind, array in zip(kinds, made)):
            raise Redraw(f"the reference gives {[a.dtype for a in made]} of {node.op_type}")
        self.arrays.update(zip(node.output, made))
        self.nodes.append(node)


def _kind(array: Array) -> str:
    """ONNX's name of an array's element type."""
    helper = require_onnx().helper
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    return str(helper.tensor_dtype_to_string(element)).rpartition(".")[2].lower()


def _allowed_kinds(node: Any, arrays: Mapping[str, Array], opset: int) -> list[str]:
    """Element types of results as far as those of operands say them.

    Raises ``Redraw`` unless the operator's schema takes the node's inputs and attributes.
    """
    onnx = require_onnx()
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        raise Redraw(f"there is no {node.op_type} {opset}") from None
    unknown = [item.name for item in node.attribute if item.name not in schema.attributes]
    most = len(schema.inputs)
    variadic = bool(most) and schema.inputs[-1].option.name == "Variadic"
    if schema.deprecated or unknown or (len(node.input) > most and not variadic):
        raise Redraw(f"{node.op_type} {opset} has no {unknown}")
    bound: dict[str, str] = {}
    for number, name in enumerate(node.input):
        if not name:
            continue
        parameter = schema.inputs[min(number, most - 1)]
        kind = _kind(arrays[name])
        if f"tensor({kind})" not in parameter.types:
            raise Redraw(f"{node.op_type} {opset} does not take {kind}")
        same = parameter.is_homogeneous
        if same and bound.setdefault(parameter.type_str, kind) != kind:
            raise Redraw(f"{node.op_type} takes {bound[parameter.type_str]} beside {kind}")
    results = schema.outputs
    return [
        bound.get(results[min(n, len(results) - 1)].type_str, "") for n in range(len(node.output))
    ]


def reference(
    node: Any, arrays: Mapping[str, Array], opset: int, functions: Sequence[Any] = ()
) -> list[Array]:
    """What ONNX's reference implementation makes of a node, given what it reads.

    Raises ``Redraw`` if it refuses.
    """
    onnx = require_onnx()
    from onnx.reference import ReferenceEvaluator

    helper = onnx.helper
    read = [name for name in dict.fromkeys(names_used(node)) if name in arrays]
    infos = [tensor_info(name, arrays[name].dtype, arrays[name].shape) for name in read]
    results = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output]
    graph = helper.make_graph([node], "one", infos, results)
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    model = helper.make_model(graph, opset_imports=versions, functions=functions)
    try:
        with np.errstate(all="ignore"):
            made = ReferenceEvaluator(model).run(None, {name: arrays[name] for name in read})
    except Exception as error:  # of any kind, from inside the reference implementation
        raise Redraw(f"{node.op_type}: {error}") from error
    for item in made:
        if not isinstance(item, (np.ndarray, np.generic)) or np.asarray(item).dtype == object:
            raise Redraw(f"{node.op_type} makes {type(item).__name__}")
    return [np.asarray(item) for item in made]


_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}


def rounding(array: Array) -> float:
    """The rounding error of an array's floats, relative to them; 0 for integers."""
    return 0.0 if array.dtype.kind in "iub" else 2.0 ** -_BITS.get(array.dtype.name, 2)


def tensor_info(name: str, dtype: np.dtype[Any], shape: Sequence[int | str | None]) -> Any:
    """ONNX's description of a tensor."""
    helper = require_onnx().helper
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), list(shape))
