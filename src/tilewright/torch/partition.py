"""Division of a graph between compiled code and PyTorch.

::

    mm ── relu ── topk ── add        part 0: mm, relu    PyTorch: topk    part 1: add

A node's *level* counts the changes from PyTorch to compiled code on the longest way to it. What is
compiled on one level is one part, so there are as few parts as there can be. Views belong to no
part: a part computes those that it reads from what they are views of, and PyTorch makes those that
leave the graph or that its own operators read. So strides and aliases of results are those of
eager mode. A part makes compact values; one that has gaps in eager mode, as the copy of a slice
does, is copied to such a place where that can be seen (``gaps_to_make``), and nowhere else.

What a graph writes into its inputs (``copy_`` at its end) is no part's either: it comes last,
unless the part that computes it can write there itself (``overwritten``).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.relax.frontend.torch import find_convertible, main_device
from tilewright.torch.layout import memory_order, strides_with_gaps

if TYPE_CHECKING:
    from torch.fx import Graph, Node

# Scalars that come from the shape of a tensor, which needn't exist.
_OF_SHAPES = frozenset(
    "aten.sym_size.int aten.sym_stride.int aten.sym_numel.default "
    "aten.sym_storage_offset.default".split()
)


@dataclass
class Part:
    """Nodes that are compiled together: in the graph's order, with the views that they read."""

    nodes: list[Node] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)


@dataclass
class Step:
    """What runs on one level: a compiled part, then operators of PyTorch."""

    part: Part
    by_torch: list[Node] = field(default_factory=list)


def is_view(node: Node) -> bool:
    """Whether a node's results share memory with an operand."""
    if node.target is operator.getitem:
        return is_view(node.args[0])
    schema = getattr(node.target, "_schema", None)
    return (
        node.op == "call_function"
        and schema is not None
        and not schema.is_mutable
        and any(item.alias_info is not None for item in schema.returns)
    )


def is_random(node: Node) -> bool:
    """Whether PyTorch draws random numbers for a node."""
    import torch

    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _is_write(node: Node) -> bool:
    """Whether a node writes a value into an input, once nothing else is left to do."""
    return (
        str(node.target) == "aten.copy_.default"
        and len(node.args) == 2
        and all(getattr(arg, "op", None) == "placeholder" for arg in node.args[:1])
        and hasattr(node.args[1], "meta")
        and not node.users
    )


def _behind(nodes: Iterable[Node], through: Callable[[Node], bool]) -> set[Node]:
    """The nodes, but instead of those to look through, what they are made of."""
    found: set[Node] = set()
    pending, seen = list(nodes), set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if through(node):
            pending += node.all_input_nodes
        else:
            found.add(node)
    return found


class Partition:
    """The steps of a graph, and what each of its nodes is."""

    def __init__(self, graph: Graph) -> None:
        import torch

        self._torch = torch
        self.graph = graph
        convertible, self.reasons = find_convertible(graph)
        self.device = main_device(graph)
        self.convertible = {node for node in convertible if not self._is_strided_oddly(node)}
        self._level: dict[Node, int] = {}
        self._place = {node: number for number, node in enumerate(graph.nodes)}
        calls = [node for node in graph.nodes if node.op == "call_function"]
        self.writes = [node for node in calls if _is_write(node)]
        self._calls = [node for node in calls if not _is_write(node)]
        self.steps = self._make_steps()

    # ---- what nodes are -------------------------------------------------------------------------

    def _is_strided_oddly(self, node: Node) -> bool:
        """Whether a result of its own lies in memory as no copy of a compiled value does."""
        value = node.meta.get("val")
        values = value if isinstance(value, (list, tuple)) else [value]
        tensors = [item for item in values if isinstance(item, self._torch.Tensor)]
        odd = not is_view(node) and any(
            memory_order(item) is None and (item is not value or strides_with_gaps(item) is None)
            for item in tensors
        )
        if odd:
            self.reasons[node] = "its result has gaps in memory"
        return odd

    def gaps_to_make(self, node: Node) -> tuple[int, ...] | None:
        """Strides that a compiled value gets by a copy: where PyTorch or a caller may see them."""
        strides = strides_with_gaps(node.meta["val"])
        return strides if strides is not None and node in self._seen else None

    @cached_property
    def _seen(self) -> set[Node]:
        """The compiled values whose memory PyTorch's operators or the graph's caller see."""
        readers = [node for step in self.steps for node in step.by_torch]
        return self.roots(
            source
            for reader in (*readers, self.graph.output_node())
            for source in reader.all_input_nodes
        )

    def is_size(self, node: Node) -> bool:
        """Whether a node is arithmetic on sizes, done wherever it is needed."""
        value = node.meta.get("val")
        torch = self._torch
        numbers = (bool, int, float, torch.SymInt, torch.SymBool, torch.SymFloat)
        if node.op != "call_function" or not isinstance(value, numbers):
            return False
        overload = isinstance(node.target, torch._ops.OpOverload)
        return not overload or str(node.target) in _OF_SHAPES

    def is_free(self, node: Node) -> bool:
        """Whether a node is of no level: sizes, and views that compiled code can make as well."""
        if node.op != "call_function":
            return False
        return (node in self.convertible and is_view(node)) or self.is_size(node)

    def is_compiled(self, node: Node) -> bool:
        """Whether a node's results come from compiled code."""
        if node.target is operator.getitem and not is_view(node):
            return self.is_compiled(node.args[0])
        return node in self.convertible and not self.is_free(node)

    def roots(self, nodes: Iterable[Node]) -> set[Node]:
        """What nodes are, or are views or sizes of."""
        return _behind(nodes, self.is_free)

    def storages(self, nodes: Iterable[Node]) -> set[Node]:
        """Whose memory nodes may be in: views are replaced by what they are views of."""
        return _behind(nodes, is_view)

    # ---- inputs that are written ----------------------------------------------------------------

    def overwritten(self, node: Node, level: int) -> Node | None:
        """The input that a part's output is copied to in the end, if it can be computed there.

        It can't if something reads the input later, or if the output leaves the graph as well. What
        the part itself does with the input isn't considered.
        """
        places = [write.args[0] for write in self.writes if write.args[1] is node]
        if len(places) != 1 or not self._are_alike(places[0], node):
            return None
        (place,) = places
        once = sum(write.args[0] is place for write in self.writes) == 1
        stays = self._leaving.isdisjoint((place, node))
        return place if once and stays and self._last_read[place] <= 2 * level else None

    @cached_property
    def _last_read(self) -> Counter[Node]:
        """When memory is read for the last time: twice the level, and 1 if PyTorch does so."""
        found: Counter[Node] = Counter()
        for reader, level in self._level.items():
            time = 2 * level + (not self.is_compiled(reader))
            for place in self.storages(reader.all_input_nodes):
                found[place] = max(found[place], time)
        for write in self.writes:
            for place in self.storages(write.args[1:]):
                if place.op == "placeholder":
                    found[place] = 2 * len(self.steps) + 1
        return found

    @cached_property
    def _leaving(self) -> set[Node]:
        """What is in memory that leaves the graph."""
        return self.storages(self.graph.output_node().all_input_nodes)

    def _are_alike(self, place: Node, node: Node) -> bool:
        """Whether both are tensors that lie in memory in the same way, of known size."""
        a, b = place.meta["val"], node.meta["val"]
        known = all(isinstance(size, int) for size in (*a.shape, *a.stride(), *b.shape))
        return (
            known
            and (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
            and not a.is_complex()
            and memory_order(a) is not None
        )

    # ---- levels and steps -----------------------------------------------------------------------

    def _make_steps(self) -> list[Step]:
        steps: list[Step] = []
        last_random = 0
        for node in self._calls:
            if self.is_free(node) or (not node.users and not self._is_kept(node)):
                continue
            level = self._level_of(node)
            if is_random(node) or node.is_impure():
                # Random numbers are drawn in the program's order.
                level = last_random = max(level, last_random)
            self._level[node] = level
            while len(steps) <= level:
                steps.append(Step(Part()))
            if not self.is_compiled(node):
                steps[level].by_torch.append(node)
        wanted = self._wanted()
        for level, step in enumerate(steps):
            step.part.outputs = [node for node in wanted if self._level[node] == level]
            self._fill(step.part, level)
        return steps

    def _is_kept(self, node: Node) -> bool:
        return bool(node.is_impure()) or is_random(node)

    def _level_of(self, node: Node) -> int:
        compiled = self.is_compiled(node)
        levels = [0]
        for root in self.roots(node.all_input_nodes):
            if root in self._level:
                levels.append(self._level[root] + (compiled and not self.is_compiled(root)))
        return max(levels)

    def _wanted(self) -> list[Node]:
        """Compiled values that are read outside of their own part, in the graph's order."""
        found: set[Node] = set()
        for node in [*self._level, *self.writes, self.graph.output_node()]:
            compiled = self.is_compiled(node)
            for root in self.roots(node.all_input_nodes):
                if root.op != "call_function" or not self.is_compiled(root):
                    continue
                inside = compiled and self._level[root] == self._level[node]
                # The several results of an operator are read by its own `getitem` nodes only.
                if not inside and not isinstance(root.meta.get("val"), (list, tuple)):
                    found.add(root)
        return sorted(found, key=self._place.__getitem__)

    def _fill(self, part: Part, level: int) -> None:
        """Collect what a part's outputs are computed from."""
        nodes: set[Node] = set()
        inputs: set[Node] = set()
        pending = list(part.outputs)
        while pending:
            node = pending.pop()
            if node in nodes or node in inputs or self.is_size(node):
                continue
            own = self.is_compiled(node) and self._level[node] == level
            if own or self.is_free(node):
                nodes.add(node)
                pending += node.all_input_nodes
            elif node.op == "get_attr":
                nodes.add(node)
            elif isinstance(node.meta.get("val"), self._torch.Tensor):
                inputs.add(node)
        part.nodes = sorted(nodes, key=self._place.__getitem__)
        part.inputs = sorted(inputs, key=self._place.__getitem__)
