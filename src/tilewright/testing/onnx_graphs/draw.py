"""Whole models: random nodes, and the forms in which a model may say the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.relax.frontend.onnx import require_onnx
from tilewright.testing.onnx_graphs.drawing import Drawing, Redraw, tensor_info
from tilewright.testing.onnx_graphs.nests import NESTS, some_nodes


@dataclass(eq=False)
class Case:
    """A drawing, and how its model is written."""

    name: str
    drawing: Drawing
    outputs: list[str]
    symbolic: str
    """Which extents of inputs have names: ``none``, ``same`` (by number), ``own``."""

    def model(self, outputs: Sequence[str] | None = None) -> Any:
        """The model that gives some values, those of the case if left out."""
        onnx = require_onnx()
        rng = random.Random(self.name)
        d = self.drawing
        helper, arrays = onnx.helper, d.arrays
        initial, first, inputs = [], [], []
        for name in d.inputs:
            extents: list[int | str] = list(arrays[name].shape)
            if self.symbolic == "same":
                extents = [f"d{e}" if rng.random() < 0.6 else e for e in extents]
            elif self.symbolic == "own":
                extents = [
                    f"{name}_{n}" if rng.random() < 0.4 else e for n, e in enumerate(extents)
                ]
            inputs.append(tensor_info(name, arrays[name].dtype, extents))
        for name in d.constants:
            tensor = onnx.numpy_helper.from_array(arrays[name], name)
            how = rng.random()
            if how < 0.3:
                first.append(helper.make_node("Constant", [], [name], value=tensor))
                continue
            initial.append(tensor)
            if how > 0.8:
                inputs.append(tensor_info(name, arrays[name].dtype, arrays[name].shape))
        infos = [
            tensor_info(name, arrays[name].dtype, [None] * arrays[name].ndim)
            for name in (self.outputs if outputs is None else outputs)
        ]
        graph = helper.make_graph([*first, *d.nodes], "drawn", inputs, infos, initial)
        versions = [helper.make_opsetid("", d.opset), helper.make_opsetid("mine", 1)]
        return helper.make_model(
            graph, opset_imports=versions, functions=d.functions, ir_version=10
        )

    @property
    def results(self) -> list[str]:
        """All that the graph's nodes make."""
        return [name for node in self.drawing.nodes for name in node.output if name]


def draw_case(name: str) -> Case:
    """The case of a name."""
    onnx = require_onnx()
    rng = random.Random(name)
    newest = min(onnx.defs.onnx_opset_version(), 25)
    opset = rng.choice((*range(7, newest + 1), 13, 18, newest, newest))
    d = Drawing(rng, opset)
    while not d.nodes:
        for _ in range(rng.choice((1, 1, 2, 3, 5))):
            if rng.random() < 0.15:
                marks = len(d.nodes), dict(d.arrays), len(d.inputs), len(d.constants)
                try:
                    NESTS[rng.choice(sorted(NESTS))](d)
                except Redraw:
                    del d.nodes[marks[0] :]
                    d.arrays = marks[1]
                    del d.inputs[marks[2] :], d.constants[marks[3] :]
            else:
                some_nodes(d, 1)
    case = Case(name, d, [], rng.choice(("none", "none", "same", "own")))
    made = case.results
    case.outputs = (
        made if rng.random() < 0.5 else rng.sample(made, rng.randint(1, min(2, len(made))))
    )
    if rng.random() < 0.1:
        case.outputs = [*case.outputs, rng.choice([*d.inputs, *d.constants, *made])]
    return case
