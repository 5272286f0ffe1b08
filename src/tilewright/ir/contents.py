"""What a tree of nodes contains, answered without walking it each time.

Most lowering passes have nothing to do in most programs, and most of what they would rewrite is
unchanged since the last pass looked. So each node caches, on the first query, which classes of
nodes its tree contains, which element types its expressions have, which annotations its statements
have, and whether it defines symbols, calls code with effects or has strided vectors. Trees never
change, so the answer stays valid; a new tree queries only its new nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.ir.dtype import element_of, is_scalable
from tilewright.ir.expr import Call, IntImm
from tilewright.ir.node import Field, Node
from tilewright.ir.op import OPS
from tilewright.ir.vector_expr import Ramp
from tilewright.ir.visitor import definition_fields, post_order, pre_order
from tilewright.support.settings import setting

EFFECTS = "effects"
"""Kind of content: calls of operators that write memory or must keep their place."""
STRIDED = "strided"
"""Kind of content: ramps whose constant stride is more than one, up or down."""
DEFINITIONS = "definitions"
"""Kind of content: nodes that bring variables or buffers into scope."""
SCALABLE = "scalable"
"""Kind of content: vectors of scalable length, and ``vscale`` itself."""

VSCALE = OPS.get("vscale")

Kind = type[Node] | str
T = TypeVar("T", bound=Node)

_BITS: dict[Kind, int] = {EFFECTS: 1, STRIDED: 2, DEFINITIONS: 4, SCALABLE: 8}
#: For each class of nodes, what finds the bits of a node and leaves them there.
_COLLECTORS: dict[type, Callable[[Any], int]] = {}


def _bit(kind: Kind) -> int:
    found = _BITS.get(kind)
    if found is None:
        found = _BITS[kind] = 1 << len(_BITS)
    return found


def annotated(key: str) -> str:
    """Return the kind of content: statements with an annotation."""
    return "@" + key


def content_mask(*kinds: Kind) -> int:
    """Return the bit mask of some kinds of content.

    A kind is a class of nodes (without its subclasses), an element type such as ``"float16"``,
    ``EFFECTS``, ``STRIDED``, ``DEFINITIONS``, ``SCALABLE``, or ``annotated(key)``.
    """
    mask = 0
    for kind in kinds:
        mask |= _bit(kind)
    return mask


def contents(node: Node) -> int:
    """Return the bit mask of all content of a tree, the root included."""
    found = node._contents
    if found is None:
        try:
            found = _collect(node)
        except RecursionError:  # a sum of thousands of terms: from the leaves up
            for item in post_order(node):
                _collect(item)
            found = _collect(node)
    return found


def contains(*kinds: Kind) -> Callable[[Node], bool]:
    """Return a test of whether a tree contains one of some kinds of content.

    >>> has_division = contains(FloorDiv, FloorMod)
    >>> has_division(i // 4 + 1)
    True
    """
    mask = content_mask(*kinds)

    def test(node: Node) -> bool:
        found = node._contents
        return bool((contents(node) if found is None else found) & mask)

    return test


def collect(node: Node, kind: type[T] | tuple[type, ...]) -> list[T]:
    """Return all nodes of a class below ``node``, parents first."""
    if not isinstance(kind, tuple) and issubclass(kind, Node) and not kind.__subclasses__():
        mask = _bit(kind)
        if not contents(node) & mask:
            return []
        inside = pre_order(node, enter=lambda item: bool(contents(item) & mask))
        return [item for item in inside if type(item) is kind]
    return [item for item in pre_order(node) if isinstance(item, kind)]  # type: ignore[misc]


def make_collectors() -> None:
    """Generate the collectors of all existing node classes now, rather than on first use."""
    pending: list[type] = [Node]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind not in _COLLECTORS and "node_fields" in vars(kind):
            _COLLECTORS[kind] = _make_collector(kind)


def _collect(node: Node) -> int:
    collector = _COLLECTORS.get(type(node))
    if collector is None:
        collector = _COLLECTORS[type(node)] = _make_collector(type(node))
    return collector(node)


def _effects(node: Any) -> int:
    if node.op is VSCALE:
        return _BITS[SCALABLE]
    return _BITS[EFFECTS] if node.op.effect in ("update", "opaque") else 0


def _strided(node: Any) -> int:
    stride = node.stride
    return _BITS[STRIDED] if type(stride) is IntImm and abs(stride.value) > 1 else 0


def _annotations(node: Any) -> int:
    return content_mask(*map(annotated, node.annotations))


#: What single nodes add to what their class says, besides their annotations.
_FURTHER: dict[type, Callable[[Any], int]] = {Call: _effects, Ramp: _strided}


def add_content(kind: type[Node], name: str, test: Callable[[Any], bool]) -> None:
    """Add a kind of content: those nodes of a class that pass a test.

    It is called where the class is declared, before there are nodes of it. A class has one.
    """
    bit = _bit(name)
    _FURTHER[kind] = lambda item: bit if test(item) else 0


class _OfType(dict[Any, int]):
    """The bits of one class's nodes, by dtype, without those of their children."""

    def __init__(self, kind: type[Node]) -> None:
        super().__init__()
        self.of_all = _bit(kind)
        if definition_fields(kind) and not getattr(kind, "symbol", False):
            self.of_all |= _BITS[DEFINITIONS]

    def __missing__(self, dtype: str | None) -> int:
        found = self.of_all
        if dtype is not None:
            found |= _bit(element_of(dtype)) | (_BITS[SCALABLE] if is_scalable(dtype) else 0)
        self[dtype] = found
        return found


def _make_collector(kind: type[Node]) -> Callable[[Any], int]:
    """Generate the collector of a class as straight-line code: it runs for every new node."""
    names = {field.name for field in kind.node_fields}
    lines = ["def collect(node):", f"    found = own[{'node.dtype' if 'dtype' in names else None}]"]
    further = _FURTHER.get(kind)
    if further is not None:
        lines.append("    found |= further(node)")
    if "annotations" in names:
        lines.append("    if node.annotations: found |= annotations(node)")
    for field in kind.node_fields:
        lines += _collecting(field)
    frozen = setting("freeze_nodes")
    lines.append("    set(node, '_contents', found)" if frozen else "    node._contents = found")
    lines.append("    return found")
    scope: dict[str, Any] = {
        "own": _OfType(kind),
        "further": further,
        "annotations": _annotations,
        "below": _collect,
        "set": object.__setattr__,
    }
    exec("\n".join(lines), scope)
    collector: Callable[[Any], int] = scope["collect"]
    return collector


def _collecting(field: Field) -> list[str]:
    """Return the lines of code that add the contents of a field."""
    one = [
        "bits = item._contents",
        "found |= below(item) if bits is None else bits",
    ]
    if field.role == "child":
        lines = [f"item = node.{field.name}", "if item is not None:"]
    elif field.role in ("children", "child_map"):
        values = ".values()" if field.role == "child_map" else ""
        lines = [f"for item in node.{field.name}{values}:"]
    else:
        return []
    return [f"    {line}" for line in [*lines, *(f"    {line}" for line in one)]]
