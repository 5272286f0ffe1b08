"""The order of a graph's nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.relax.frontend.onnx.values import place
from tilewright.support.errors import ImportModelError

if TYPE_CHECKING:
    import onnx


def in_order(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Nodes such that each comes after those that make its inputs.

    Raises ``ImportModelError`` if two make the same value, or some need each other's.
    """
    producers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in producers:
                raise ImportModelError(f"two nodes make {name!r}")
            producers[name] = number
    state = [0] * len(nodes)  # 1: being visited, 2: done
    order: list[onnx.NodeProto] = []
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            number = stack[-1]
            if state[number] == 2:
                stack.pop()
                continue
            needed = {
                producers[name]
                for name in names_used(nodes[number])
                if name in producers and producers[name] != number
            }
            waiting = [item for item in sorted(needed) if state[item] != 2]
            if number in {producers.get(name) for name in nodes[number].input}:
                raise ImportModelError(f"{place(nodes[number])} needs its own result")
            if not waiting:
                state[number] = 2
                order.append(nodes[number])
                stack.pop()
                continue
            if state[number] == 1:
                raise ImportModelError(
                    f"{place(nodes[number])} and {place(nodes[waiting[0]])} need each other's "
                    "results"
                )
            state[number] = 1
            stack.extend(waiting)
    return order


def names_used(node: onnx.NodeProto) -> list[str]:
    """What a node reads of the graph that it is in, its subgraphs too, by name."""
    found = [name for name in node.input if name]
    for item in node.attribute:
        if item.HasField("g"):
            found.extend(_names_from_around(item.g))
    return found


def _names_from_around(graph: onnx.GraphProto) -> list[str]:
    """What a subgraph reads and does not make itself."""
    own = {item.name for item in (*graph.input, *graph.initializer)}
    own.update(item.values.name for item in graph.sparse_initializer)
    own.update(name for node in graph.node for name in node.output)
    used = [name for node in graph.node for name in names_used(node)]
    return [name for name in (*used, *(item.name for item in graph.output)) if name not in own]
