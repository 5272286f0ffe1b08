"""Nodes as JSON text: ``save_json`` and ``load_json``.

::

    {"root": {"node": 2}, "nodes": [["tilewright.ir.expr.Var", {"name": "n", ...}], ...]}

Each node is written once, after those that it refers to, so that variables and buffers are the same
object wherever they occur. Values of fields are JSON's own, or an object with one key that says
what they are (``_encode``).
"""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.dtype import ScalableLanes
from tilewright.ir.field_types import is_concrete, mismatch
from tilewright.ir.node import Node
from tilewright.ir.op import OPS, Op
from tilewright.support.errors import TilewrightError, VerifyError

_ROOT = __name__.partition(".")[0]
# The packages that declare nodes. To import them has no effect, and loads them all.
_PACKAGES = frozenset(("ir", "relax", "target", "te", "tir"))
# Far more than a program has; a few nodes that refer to each other twice stand for more.
_MOST_NODES = 1 << 32

# Other classes of values, registered where they are defined: how to write them as text, and read.
_TEXTS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {}


def register_text(
    name: str, cls: type, write: Callable[[Any], str], read: Callable[[str], Any]
) -> None:
    """Let values of a class stand in nodes that are written as JSON."""
    _TEXTS[name] = (cls, write, read)


def save_json(node: Node) -> str:
    """Return a node (a module, a function, an expression …) as JSON text.

    Raises ``VerifyError`` if it holds a value that JSON can't.
    """
    numbers: dict[int, int] = {}
    entries: list[list[Any]] = []
    stack = [(each, False) for each in _nodes_in(node)]
    while stack:
        item, done = stack.pop()
        if id(item) in numbers:
            continue
        fields = _fields_of(item)
        inner = [each for value in fields.values() for each in _nodes_in(value)]
        if not done and any(id(each) not in numbers for each in inner):
            stack += [(item, True), *((each, False) for each in inner)]
            continue
        kind = type(item)
        numbers[id(item)] = len(entries)
        encoded = {name: _encode(value, numbers) for name, value in fields.items()}
        entries.append([f"{kind.__module__}.{kind.__qualname__}", encoded])
    return json.dumps({"root": _encode(node, numbers), "nodes": entries})


def load_json(json_str: str) -> Any:
    """Return the node that ``save_json`` wrote, with variables of its own.

    The text may be a stranger's: nothing but nodes of this package is made, each of values that its
    declaration allows. Whether the whole is a sound program, ``tir.analysis.verify`` and
    ``relax.analysis.well_formed`` tell. Raises ``VerifyError`` for any other text.
    """
    try:
        data = json.loads(json_str)
        nodes = _Nodes()
        for kind, fields in data["nodes"]:
            cls = _class_named(kind)  # its package says how its values are read
            made = {name: _decode(value, nodes) for name, value in fields.items()}
            nodes.add(_made_of(cls, made))
        return _decode(data["root"], nodes)
    except (
        ValueError,
        LookupError,
        ArithmeticError,
        TypeError,
        AttributeError,
        RecursionError,
        TilewrightError,
    ) as error:
        raise VerifyError(f"this is no text of save_json: {error}") from error


class _Nodes:
    """The nodes so far, by number."""

    def __init__(self) -> None:
        self._made: list[Node] = []
        self._sizes: dict[int, int] = {}

    def add(self, node: Node) -> None:
        """Add the next node; ``ValueError`` if nobody can ever go through the tree below it."""
        inner = (each for value in _fields_of(node).values() for each in _nodes_in(value))
        size = 1 + sum(self._sizes.get(id(each), 1) for each in inner)
        if size > _MOST_NODES:
            raise ValueError(f"the {type(node).__name__} stands for {size} nodes")
        self._made.append(node)
        self._sizes[id(node)] = size

    def __getitem__(self, number: object) -> Node:
        if type(number) is not int or not 0 <= number < len(self._made):
            raise ValueError(f"no node before this one has the number {number!r}")
        return self._made[number]


def _made_of(kind: type[Node], values: dict[str, Any]) -> Node:
    """Make a node of its fields; ``ValueError`` if they aren't of the types that it declares."""
    wrong = mismatch(kind, values)
    if wrong is not None:
        raise ValueError(wrong)
    make, parameters = _constructor(kind)  # type: ignore[arg-type]  # a class has a hash
    return make(**{parameters[name]: value for name, value in values.items()})


@cache
def _constructor(kind: type[Node]) -> tuple[Callable[..., Node], dict[str, str]]:
    """What makes a node of its fields, and their parameters.

    Where the class's own constructor can, it does, since it checks what it is given.
    """
    fields = [field for field in kind.node_fields if field.role != "derived"]
    parameters = {field.name: field.parameter for field in fields}
    if getattr(kind, "init_takes_fields", True):
        return kind, parameters
    if inspect.signature(kind).parameters.keys() >= parameters.keys():
        return kind, {name: name for name in parameters}
    return kind.of_fields, parameters


def _fields_of(item: Node) -> dict[str, Any]:
    """What to write of a node: not the very node that is a field's default, which marks it."""
    return {
        field.name: value
        for field in item.node_fields
        if field.role != "derived"
        and not ((value := getattr(item, field.name)) is field.default and isinstance(value, Node))
    }


def _nodes_in(value: object) -> Iterator[Node]:
    """The nodes that a value is or holds."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _nodes_in(each)
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _nodes_in(pair)


def _encode(value: object, numbers: dict[int, int]) -> Any:
    if value is None or type(value) in (bool, int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Node):
        return {"node": numbers[id(value)]}
    if isinstance(value, (tuple, list)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encode(each, numbers) for each in value]}
    if isinstance(value, dict):
        pairs = value.items()
        return {"dict": [[_encode(k, numbers), _encode(v, numbers)] for k, v in pairs]}
    if type(value) is Op:
        return {"op": value.name}
    if isinstance(value, np.ndarray):
        return {"array": array_as_json(value)}
    if isinstance(value, ScalableLanes):
        return {"scalable": value.factor}
    for name, (cls, write, _) in _TEXTS.items():
        if isinstance(value, cls):
            return {name: write(value)}
    raise VerifyError(f"save_json can't write a {type(value).__name__}: {str(value)[:100]}")


def _decode(value: object, nodes: _Nodes) -> Any:
    if isinstance(value, list):
        raise ValueError("a list is written as an object")
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind in _TEXTS:
        if not isinstance(held, str):
            raise ValueError(f"a {kind} is written as text, got {str(held)[:60]}")
        return _TEXTS[kind][2](held)
    return _READERS[kind](held, nodes)


def _float(held: Any, _: object) -> float:
    if held not in ("nan", "inf", "-inf"):
        raise ValueError(f"{str(held)[:60]!r} is written as a number, or is none")
    return float(held)


def array_as_json(array: NDArray[Any]) -> list[Any]:
    """Return dtype, shape and, in base64, the values of an array."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return [array.dtype.name, list(array.shape), data]


def array_from_json(held: Any) -> NDArray[Any]:
    """Inverse of ``array_as_json``; ``ValueError`` or ``TypeError`` if it is no such thing."""
    name, shape, data = held
    dtype = np.dtype(name)
    if dtype.name != name or dtype.hasobject or dtype.kind not in "?biufcV" or not dtype.itemsize:
        raise ValueError(f"{str(name)[:60]!r} is no dtype of numbers")
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"an array has the shape {str(shape)[:60]}")
    return np.frombuffer(base64.b64decode(data, validate=True), dtype).reshape(shape)


def _scalable(held: Any, _: object) -> ScalableLanes:
    if type(held) is not int or held < 1:
        raise ValueError(f"lanes are a positive number, got {str(held)[:60]}")
    return ScalableLanes(held)


def _several(held: Any, nodes: _Nodes) -> list[Any]:
    if not isinstance(held, list):
        raise ValueError(f"several values are written as a list, got {str(held)[:60]}")
    return [_decode(each, nodes) for each in held]


_READERS: dict[str, Callable[[Any, _Nodes], Any]] = {
    "float": _float,
    "node": lambda held, nodes: nodes[held],
    "tuple": lambda held, nodes: tuple(_several(held, nodes)),
    "list": _several,
    "dict": lambda held, nodes: {_decode(k, nodes): _decode(v, nodes) for k, v in held},
    "op": lambda held, _: OPS.get(held),
    "array": lambda held, _: array_from_json(held),
    "scalable": _scalable,
}


@cache
def _class_named(path: str) -> type[Node]:
    """Return a class of nodes of this package; text names nothing else.

    In which file of its package it stands is of the version that wrote the text.
    """
    root, *inner = path.split(".")
    if root == _ROOT and len(inner) > 1 and inner[0] in _PACKAGES:
        importlib.import_module(f"{root}.{inner[0]}")
        for cls in _subclasses(Node):
            home = cls.__module__.split(".")[:2]
            if home == [root, inner[0]] and cls.__qualname__ == inner[-1] and is_concrete(cls):
                return cls
    raise ValueError(f"no class of nodes is named {path[:200]!r}")


def make_node(type_key: str, **kwargs: object) -> Node:
    """Make a node of the class that a key such as ``"tirx.Add"`` ends in, from its fields.

    Raises ``VerifyError`` if no class of nodes, or several, have the name.
    """
    name = type_key.rpartition(".")[2]
    found = [cls for cls in _subclasses(Node) if cls.__qualname__ == name]
    if len(found) != 1:
        which = ", ".join(f"{cls.__module__}.{name}" for cls in found) or "none"
        raise VerifyError(f"make_node({type_key!r}) needs one class of that name, not {which}")
    return found[0](**kwargs)


def _subclasses(cls: type[Node]) -> Iterator[type[Node]]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)
