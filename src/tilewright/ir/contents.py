"""What a tree of nodes contains, answered without walking it.

Most lowering passes have nothing to do in most programs, and most of what they would rewrite is
unchanged since the last pass looked. So each node remembers, once somebody asks, which classes of
nodes are found in its tree, which element types its expressions have and whether it calls code with
effects. Trees never change, so the answer stays; a new tree asks its new nodes only.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.dtype import element_of
from tilewright.ir.expr import Call
from tilewright.ir.node import Node
from tilewright.ir.visitor import post_order

EFFECTS = "effects"
"""Kind of content: calls of operators that write memory or must keep their place."""

Kind = type[Node] | str

_BITS: dict[Kind, int] = {EFFECTS: 1}
#: Bits of nodes by class and dtype, without what is below.
_OWN: dict[type, dict[str | None, int]] = {}


def _bit(kind: Kind) -> int:
    found = _BITS.get(kind)
    if found is None:
        found = _BITS[kind] = 1 << len(_BITS)
    return found


def content_mask(*kinds: Kind) -> int:
    """Return the bits that stand for some kinds of content.

    A kind is a class of nodes (without its subclasses), an element type such as ``"float16"``, or
    ``EFFECTS``.
    """
    mask = 0
    for kind in kinds:
        mask |= _bit(kind)
    return mask


def contents(node: Node) -> int:
    """Return the bits of all that is found in a tree, the root included."""
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


_set = object.__setattr__  # nodes may refuse assignment


def _collect(node: Node) -> int:
    kind = type(node)
    of_kind = _OWN.get(kind)
    if of_kind is None:
        of_kind = _OWN[kind] = {}
    dtype: str | None = getattr(node, "dtype", None)
    found = of_kind.get(dtype)
    if found is None:
        found = of_kind[dtype] = _bit(kind) | (0 if dtype is None else _bit(element_of(dtype)))
    if kind is Call and node.op.effect in ("update", "opaque"):  # type: ignore[attr-defined]
        found |= 1
    for item in node.child_nodes():
        below = item._contents
        found |= _collect(item) if below is None else below
    _set(node, "_contents", found)
    return found
