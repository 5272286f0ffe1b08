"""Nodes with nodes inside: branches, loops, scans, and calls of a model's own functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.relax.frontend.onnx import require_onnx
from tilewright.testing.onnx_graphs import moves as moves  # fill the table
from tilewright.testing.onnx_graphs import networks as networks
from tilewright.testing.onnx_graphs.drawing import Array, Drawing, Redraw, rounding, tensor_info
from tilewright.testing.onnx_graphs.operators import ALL, OPERATORS

_NAMES = sorted(OPERATORS)


def some_nodes(d: Drawing, count: int) -> list[str]:
    """Draw a few nodes; returns what they make."""
    before = set(d.arrays)
    for _ in range(count * 6):
        if count <= 0:
            break
        marks = len(d.nodes), dict(d.arrays), len(d.inputs), len(d.constants)
        try:
            OPERATORS[d.rng.choice(_NAMES)](d)
            made = [name for node in d.nodes[marks[0] :] for name in node.output]
            if any(d.arrays[name].size > 3000 or d.arrays[name].ndim > 6 for name in made):
                raise Redraw
            count -= 1
        except Redraw:
            del d.nodes[marks[0] :]
            d.arrays.clear()
            d.arrays.update(marks[1])
            del d.inputs[marks[2] :], d.constants[marks[3] :]
    return [name for name in d.arrays if name not in before]


def _inside(d: Drawing) -> Drawing:
    """A graph inside of another one, whose values it sees."""
    child = Drawing(d.rng, d.opset)
    child.arrays = dict(d.arrays)
    child._count = d._count + 1000
    d._count += 2000
    child.odd = d.odd
    return child


def _close(d: Drawing, child: Drawing, name: str, inputs: list[Any], outputs: list[str]) -> Any:
    """The child as a graph; its leaves are initial values of its own, or inputs of the model."""
    onnx = require_onnx()
    own = list(child.constants)
    for leaf in child.inputs:
        if d.rng.random() < 0.5:
            own.append(leaf)
        else:
            d.arrays[leaf] = child.arrays[leaf]
            d.inputs.append(leaf)
    initial = [onnx.numpy_helper.from_array(child.arrays[leaf], leaf) for leaf in own]
    infos = [tensor_info(n, child.arrays[n].dtype, [None] * child.arrays[n].ndim) for n in outputs]
    return onnx.helper.make_graph(child.nodes, name, inputs, infos, initial)


def _add(d: Drawing, child: Drawing, node: Any) -> None:
    """Add the node around a child."""
    d.add(node)
    made = [child.arrays[name] for inner in child.nodes for name in inner.output if name]
    found = [rounding(array) for array in made]
    d.coarsest[node.output[0]] = max([*found, *child.coarsest.values(), 0.0])


def _made(child: Drawing, like: Array | None = None) -> str | None:
    """The last result of a child's nodes, of the same shape and dtype as an array."""
    names = [name for node in child.nodes for name in node.output if name]
    for name in reversed(names):
        array = child.arrays[name]
        if like is None or (array.dtype == like.dtype and array.shape == like.shape):
            return str(name)
    return None


def draw_if(d: Drawing) -> None:
    """A branch."""
    onnx = require_onnx()
    first = _inside(d)
    some_nodes(first, d.rng.randint(1, 3))
    result = _made(first)
    if result is None:
        raise Redraw
    want = first.arrays[result]
    second = _inside(d)
    like = [n for n, a in d.arrays.items() if a.dtype == want.dtype and a.shape == want.shape]
    other = (
        d.rng.choice(like)
        if like and d.rng.random() < 0.7
        else second.leaf(second.array(want.shape, want.dtype.name), constant=True)
    )
    second.emit("Identity", [other])
    graphs = [(first, result), (second, second.nodes[-1].output[0])]
    if d.rng.random() < 0.5:
        graphs.reverse()
    condition = d.leaf(np.asarray(d.rng.random() < 0.5))
    node = onnx.helper.make_node(
        "If",
        [condition],
        [d.name()],
        then_branch=_close(d, graphs[0][0], "then", [], [graphs[0][1]]),
        else_branch=_close(d, graphs[1][0], "else", [], [graphs[1][1]]),
    )
    _add(d, first, node)


def draw_loop(d: Drawing) -> None:
    """A loop with a variable, and at times rows."""
    onnx = require_onnx()
    start = d.value(ALL, 0, 3)
    child = _inside(d)
    step, going, variable = child.name("step"), child.name("go"), child.name("var")
    child.arrays.update({step: np.asarray(1), going: np.asarray(True), variable: d.of(start)})
    inputs = [
        tensor_info(n, child.arrays[n].dtype, [None] * child.arrays[n].ndim)
        for n in (step, going, variable)
    ]
    some_nodes(child, d.rng.randint(1, 3))
    after = _made(child, d.of(start)) or child.emit("Identity", [variable])
    goes_on = child.emit("Identity", [going])
    if d.rng.random() < 0.4:
        goes_on = child.emit(
            "Not",
            [
                child.emit(
                    "Equal", [step, child.leaf(np.asarray(d.rng.randint(0, 3)), constant=True)]
                )
            ],
        )
    row = _made(child)
    # The reference gives numbers, in rows, an axis more.
    rows = d.rng.random() < 0.6 and row is not None and child.of(row).ndim > 0
    outputs = [goes_on, after, *([row] if rows and row else [])]
    limit = d.rng.randint(1 if rows else 0, 4)
    # Without a condition the reference does one step, or none.
    given = [d.ints(limit), d.leaf(np.asarray(True), constant=True)]
    names = [d.name() for _ in outputs[1:]]
    body = _close(d, child, "body", inputs, outputs)
    _add(d, child, onnx.helper.make_node("Loop", [*given, start], names, body=body))


def draw_scan(d: Drawing) -> None:
    """A scan of one sequence, with a state."""
    onnx = require_onnx()
    if d.opset < 9:
        raise Redraw
    scanned = d.value(ALL, 1, 3, accept=lambda a: a.size > 0)
    state = d.value(ALL, 0, 2)
    axis = d.axis(d.of(scanned).ndim) if d.opset >= 11 else d.rng.randrange(d.of(scanned).ndim)
    child = _inside(d)
    before, item = child.name("state"), child.name("item")
    child.arrays[before] = d.of(state)
    child.arrays[item] = np.take(d.of(scanned), 0, axis)
    inputs = [
        tensor_info(n, child.arrays[n].dtype, [None] * child.arrays[n].ndim) for n in (before, item)
    ]
    some_nodes(child, d.rng.randint(1, 3))
    after = _made(child, d.of(state)) or child.emit("Identity", [before])
    row = _made(child) or child.emit("Identity", [item])
    names = [d.name(), d.name()]
    attrs = {
        "scan_input_axes": [axis],
        "scan_input_directions": [d.rng.choice((0, 1))],
        "scan_output_directions": [d.rng.choice((0, 1))],
    }
    body = _close(d, child, "body", inputs, [after, row])
    _add(
        d,
        child,
        onnx.helper.make_node(
            "Scan", [state, scanned], names, body=body, num_scan_inputs=1, **attrs
        ),
    )


def draw_function(d: Drawing) -> None:
    """A function of the model, and calls of it."""
    onnx = require_onnx()
    chosen = [d.value(ALL) for _ in range(d.rng.randint(1, 2))]
    child = _inside(d)
    child.arrays = {}
    names = [f"p{n}" for n in range(len(chosen))]
    child.arrays.update({name: d.of(value) for name, value in zip(names, chosen)})
    child.functions = d.functions
    made = some_nodes(child, d.rng.randint(1, 4))
    results = [n for node in child.nodes for n in node.output if n][-2:]
    if not made or not results:
        raise Redraw
    leaves = [
        onnx.helper.make_node(
            "Constant", [], [leaf], value=onnx.numpy_helper.from_array(child.arrays[leaf])
        )
        for leaf in (*child.constants, *child.inputs)
    ]
    given: dict[str, Any] = {}
    for node in child.nodes:
        for attribute in node.attribute:
            if attribute.type in (1, 2, 7) and d.rng.random() < 0.4 and not node.domain:
                name = f"a{len(given)}"
                given[name] = onnx.helper.get_attribute_value(attribute)
                kept = attribute.name, attribute.type
                attribute.Clear()
                attribute.name, attribute.type = kept
                attribute.ref_attr_name = name
    versions = [onnx.helper.make_opsetid("", d.opset), onnx.helper.make_opsetid("mine", 1)]
    function = onnx.helper.make_function(
        "mine",
        f"f{len(d.functions)}",
        names,
        results,
        [*leaves, *child.nodes],
        versions,
        list(given),
    )
    d.functions.append(function)
    try:
        _add(
            d,
            child,
            onnx.helper.make_node(
                function.name, chosen, [d.name() for _ in results], domain="mine", **given
            ),
        )
    except Redraw:
        d.functions.pop()
        raise


NESTS = {"If": draw_if, "Loop": draw_loop, "Scan": draw_scan, "function": draw_function}
