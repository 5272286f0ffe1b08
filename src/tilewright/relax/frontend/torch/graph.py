"""Parts of FX graphs as graph functions: what ``torch.compile`` compiles.

The graphs are those of AOTAutograd: operators of ATen, functional, with an example value at each
node. ``find_convertible`` says which nodes can be converted; ``from_graph_nodes`` makes a function
of some of them.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.ir import INDEX, IRModule
from tilewright.relax.expr import RelaxVar, Tuple
from tilewright.relax.frontend.torch.converters import Converter, dtype_name
from tilewright.relax.frontend.torch.exported import require_torch
from tilewright.relax.frontend.torch.nodes import (
    NodeConverter,
    constant,
    example,
    is_complex,
    is_scalar,
    is_statement,
    named_constant,
    table_converter,
)
from tilewright.relax.frontend.torch.pairs import PART_DTYPES, Complex
from tilewright.relax.struct_info import PrimStructInfo, TensorStructInfo
from tilewright.support.errors import TilewrightError

if TYPE_CHECKING:
    import torch

_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 bfloat16 float32 float64".split()
)

_RANDOM = "PyTorch draws its random numbers"


def main_device(graph: torch.fx.Graph) -> torch.device:
    """Return where a graph is compiled for: the first GPU that a tensor is on, else the CPU."""
    torch = require_torch()
    for node in graph.nodes:
        value = example(node)
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, torch.Tensor) and item.device.type == "cuda":
                return item.device
    return torch.device("cpu")


def find_convertible(graph: torch.fx.Graph) -> tuple[set[torch.fx.Node], dict[torch.fx.Node, str]]:
    """Nodes that can be converted, and for each other operator on tensors the reason why not.

    Each node is converted to see. One that can't be is taken as given by those after it.
    """
    return _Trial(_table_converter).run(graph)


def from_graph_nodes(
    nodes: Sequence[torch.fx.Node],
    inputs: Sequence[torch.fx.Node],
    outputs: Sequence[torch.fx.Node],
    *,
    sizes: Sequence[str] = (),
    layouts: Mapping[torch.fx.Node, tuple[int, ...]] | None = None,
) -> IRModule:
    """Make a module whose ``main`` computes ``outputs`` by ``nodes``, given ``inputs``.

    ``nodes`` are in the graph's order, with all that they need besides ``inputs`` and constants.
    ``sizes`` names symbols that are no extent of an input: scalar int64 parameters after them.
    ``layouts`` has the axes of a tensor in the order of memory, outermost first; an input or output
    with an entry is passed transposed so, as a compact tensor. Complex inputs and outputs are real
    tensors with a last axis of 2. The result is a tuple.

    Raises ``ImportModelError`` if a node can't be converted.
    """
    part = NodeConverter(_table_converter)
    layouts = layouts or {}
    for node in inputs:
        part.symbols.define(node.meta["val"].shape)
    numbers = [part.symbols.define_name(name) for name in sizes]
    params = [part.parameter(node, layouts.get(node)) for node in inputs]
    params += [RelaxVar(f"size_{var.name}", PrimStructInfo(INDEX, var)) for var in numbers]
    wanted = set(outputs)
    with part.builder.function("main", params):
        with part.builder.dataflow():
            part.receive()
            for node in nodes:
                if node.op == "get_attr":
                    part.values[node] = constant(named_constant(node))
                else:
                    part.convert(node, is_output=node in wanted and node not in layouts)
            results = [part.output(node, layouts.get(node)) for node in outputs]
        part.builder.emit_func_output(Tuple(tuple(results)))
    return part.builder.get()


def _table_converter(node: torch.fx.Node) -> Converter | None:
    return table_converter(require_torch(), node)


class _Trial(NodeConverter):
    """Converts each node of a graph to see whether it can be converted."""

    _device: object = None

    def run(self, graph: torch.fx.Graph) -> tuple[set[torch.fx.Node], dict[torch.fx.Node, str]]:
        self._device = main_device(graph)
        nodes = list(graph.nodes)
        found: set[torch.fx.Node] = set()
        refused: dict[object, str] = {}
        for node in nodes:
            if node.op == "placeholder":
                value = node.meta.get("val")
                is_tensor = isinstance(value, self.torch.Tensor)
                self.symbols.define(value.shape if is_tensor else (value,))
        with self.builder.function("main", ()):
            with self.builder.dataflow():
                for node in nodes:
                    if node.op == "call_function":
                        reason = self._try(node)
                        if reason is None:
                            found.add(node)
                        else:
                            refused[node] = reason
                            self._take_as_given(node)
                    elif node.op != "output":
                        self._take_as_given(node)
            self.builder.emit_func_output(Tuple(()))
        for node in list(refused):
            self._refuse_source(node, found, refused)
        return found, refused

    def _refuse_source(
        self, node: torch.fx.Node, found: set[object], refused: dict[object, str]
    ) -> None:
        """A result that can't be had makes all of its operator's results PyTorch's."""
        if node.target is not operator.getitem or not node.users:
            return
        source = node.args[0]
        if source in found:
            found.remove(source)
            refused[source] = refused[node]
        for user in source.users:
            found.discard(user)

    def _try(self, node: torch.fx.Node) -> str | None:
        """Convert a node; the reason why that can't be, if it can't."""
        if is_statement(node) or is_scalar(self.torch, node.meta.get("val")):
            return "it has no tensor as result"
        is_random = self.torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if node.target is not operator.getitem and self.converter_of(node) is None:
            kind = " for complex numbers" if is_complex(self.torch, node) else ""
            return _RANDOM if is_random else f"there is no converter{kind}"
        for item in (node, *node.all_input_nodes):
            reason = self._strange(example(item))
            if reason is not None:
                return reason
        try:
            self.convert(node, is_output=False)
            if node.target is operator.getitem and not node.users:
                return None
        except TilewrightError as error:
            return _RANDOM if is_random else str(error)
        return None

    def _strange(self, value: object) -> str | None:
        """What keeps a value out of compiled code."""
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(item, self.torch.Tensor):
                continue
            if item.device != self._device:
                return f"a tensor is on {item.device}"
            if item.layout is not self.torch.strided:
                return f"a tensor's layout is {item.layout}"
            if str(item.dtype).removeprefix("torch.") not in _DTYPES | PART_DTYPES.keys():
                return f"a tensor's dtype is {item.dtype}"
        return None

    def _take_as_given(self, node: torch.fx.Node) -> None:
        """Stand for a value that comes from outside, if it is a tensor that a graph can have."""
        value = example(node)
        try:
            if isinstance(value, (list, tuple)):
                self.values[node] = [None] * len(value)
            elif isinstance(value, self.torch.Tensor) and self._strange(value) is None:
                info = TensorStructInfo(self.symbols.shape(value.shape), dtype_name(value.dtype))
                made = RelaxVar(node.name, info)
                self.values[node] = Complex(made, made) if value.is_complex() else made
        except TilewrightError:
            return  # no graph has such a size; what uses the value says so
