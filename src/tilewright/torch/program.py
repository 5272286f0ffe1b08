"""The Python function that runs a graph: one straight line of calls, written as text.

::

    def run(inputs):
        arg0, arg1, arg2 = inputs
        inputs.clear()
        mm = empty(shape0, dtype=float32, device=cpu)
        part0(arg0, arg1, mm)
        topk = op1(mm, 5)
        ...
        return (mm, topk)

A call costs what these lines cost, so nothing is looked up or decided in them. Values are dropped
after their last use, as in eager mode.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.relax import Executable
from tilewright.support.errors import BuildError
from tilewright.torch.layout import is_natural, memory_order
from tilewright.torch.partition import Part, Partition

if TYPE_CHECKING:
    from torch.fx import Node

VECTOR_BYTES = 16
"""What the addresses of tensors are multiples of for a GPU's longest vectors."""

Compile = Callable[[Part, Sequence[str], "dict[Node, tuple[int, ...]]"], Executable]


@dataclass
class _Line:
    text: str
    makes: tuple[str, ...] = ()
    reads: set[str] = field(default_factory=set)


class Program:
    """Writes the function of one partitioned graph; ``compile_part`` compiles its parts."""

    def __init__(self, partition: Partition, compile_part: Compile) -> None:
        import torch

        self._torch = torch
        self._partition = partition
        self._compile = compile_part
        self._lines: list[_Line] = []
        self._scope: dict[str, Any] = {
            "empty": torch.empty,
            "view_as_complex": torch.view_as_complex,
            "view_as_real": torch.view_as_real,
            partition.device.type: partition.device,
            "min": min,
            "max": max,
        }
        self._constants: dict[int, str] = {}
        self._names: dict[object, str] = {}
        self._sizes: dict[str, str] = {}
        self._reading: set[str] = set()
        self._written: set[Node] = set()  # of the partition's: those that a part does itself

    def function(self) -> Callable[[list[Any]], Any]:
        """Compile the parts; return the function, which takes a list of inputs and empties it."""
        graph = self._partition.graph
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        for number, node in enumerate(inputs):
            self._names[node] = f"arg{number}"
        self._find_sizes(inputs)
        for number, step in enumerate(self._partition.steps):
            if step.part.outputs:
                self._call_part(number, step.part)
            for node in step.by_torch:
                self._value(node)
        for node in self._partition.writes:
            if node not in self._written:
                self._call_operator(node)
        (results,) = graph.output_node().args
        self._reading = set()
        text = self._render(results)
        self._line(f"return {text}")
        return self._finish([self._names[node] for node in inputs])

    # ---- values ---------------------------------------------------------------------------------

    def _line(self, text: str, *makes: str) -> None:
        self._lines.append(_Line(text, makes, self._reading))
        self._reading = set()

    def _constant(self, value: object, hint: str) -> str:
        """Name of an object that the function refers to."""
        name = self._constants.get(id(value))
        if name is None:
            name = self._constants[id(value)] = f"{hint}{len(self._scope)}"
            self._scope[name] = value
        return name

    def _read(self, name: str) -> str:
        self._reading.add(name)
        return name

    def _value(self, node: Node) -> str:
        """Name of a node's value; PyTorch computes it first if nothing has so far."""
        if node not in self._names:
            if node.op == "get_attr":
                found = self._partition.graph.owning_module
                for part in str(node.target).split("."):
                    found = getattr(found, part)
                return self._constant(found, "const")
            if node.op != "call_function" or self._partition.is_compiled(node):
                raise BuildError(f"node {node.name!r} ({node.op}) has no place in the program")
            self._call_operator(node)
        return self._names[node]

    def _call_operator(self, node: Node) -> None:
        for source in node.all_input_nodes:
            self._value(source)
        before, self._reading = self._reading, set()
        if str(node.target) == "<built-in function getitem>":
            source, index = node.args
            text = f"{self._render(source)}[{self._render(index)}]"
        else:
            args = [self._render(arg) for arg in node.args]
            args += [f"{key}={self._render(value)}" for key, value in node.kwargs.items()]
            text = f"{self._constant(node.target, 'op')}({', '.join(args)})"
        name = self._names[node] = f"v{len(self._names)}"
        self._line(f"{name} = {text}", name)
        self._reading = before

    def _render(self, value: object) -> str:
        if isinstance(value, self._torch.fx.Node):
            name = self._value(value)
            return name if name in self._scope else self._read(name)
        if isinstance(value, (list, tuple)):
            items = ", ".join(map(self._render, value))
            if isinstance(value, list):
                return f"[{items}]"
            return f"({items},)" if items else "()"
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if value is None or type(value) in (bool, int, float, str):
            return repr(value)
        return self._constant(value, "const")

    # ---- sizes ----------------------------------------------------------------------------------

    def _find_sizes(self, inputs: Sequence[Node]) -> None:
        """Where the number of each symbol is found: a scalar, or an extent."""
        for node in inputs:
            value = node.meta.get("val")
            symbol = _symbol(value)
            if symbol is not None:
                self._sizes[symbol] = self._names[node]
        for node in inputs:
            value = node.meta.get("val")
            if isinstance(value, self._torch.Tensor):
                for axis, extent in enumerate(value.shape):
                    symbol = _symbol(extent)
                    if symbol is not None and symbol not in self._sizes:
                        self._read(self._names[node])
                        name = self._sizes[symbol] = f"size{len(self._sizes)}"
                        self._line(f"{name} = {self._names[node]}.shape[{axis}]", name)

    def _size_of_a_value(self, symbol: str) -> str:
        """Where a symbol is found that only data told: an extent of what PyTorch has computed."""
        for node in self._partition.graph.nodes:
            value = node.meta.get("val")
            if not isinstance(value, self._torch.Tensor) or not self._is_computed(node):
                continue
            for axis, extent in enumerate(value.shape):
                if _symbol(extent) == symbol:
                    source = self._read(self._value(node))
                    name = self._sizes[symbol] = f"size{len(self._sizes)}"
                    self._line(f"{name} = {source}.shape[{axis}]", name)
                    return name
        raise BuildError(f"no value that is there tells the size {symbol}")

    def _is_computed(self, node: Node) -> bool:
        return node in self._names or (
            node.target is operator.getitem and node.args[0] in self._names
        )

    def _missing_sizes(self, part: Part) -> list[str]:
        """Symbols of a part that are no extents of its inputs."""
        used: dict[str, None] = {}
        for node in [*part.inputs, *part.nodes]:
            for item in (node, *node.all_input_nodes):
                for size in _sizes_of(item.meta.get("val")):
                    used.update(dict.fromkeys(sorted(map(str, _formula(size).free_symbols))))
        known = {_symbol(extent) for node in part.inputs for extent in node.meta["val"].shape}
        return [name for name in used if name not in known]

    # ---- parts ----------------------------------------------------------------------------------

    def _call_part(self, number: int, part: Part) -> None:
        sizes = self._missing_sizes(part)
        layouts: dict[Node, tuple[int, ...]] = {}
        args: list[str] = []
        for node in part.inputs:
            args.append(self._argument(node, layouts))
        args += [self._sizes.get(name) or self._size_of_a_value(name) for name in sizes]
        outputs = []
        for node in part.outputs:
            order = memory_order(node.meta["val"])
            if order is not None and not is_natural(order):
                layouts[node] = order
        executable = self._compile(part, sizes, layouts)
        signature = executable.signatures["main"]
        for name, argument, axis in signature.symbols:
            source = args[argument]
            self._read(source)
            self._line(f"{name} = {source}" + (f".shape[{axis}]" if axis >= 0 else ""), name)
        in_place = self._in_place(number, part, executable)
        for node, spec in zip(part.outputs, signature.outputs):
            if node in in_place:
                outputs.append(args[part.inputs.index(in_place[node])])
                continue
            name = self._names[node] = f"v{len(self._names)}"
            shape = "(" + "".join(f"{extent}, " for extent in spec.shape) + ")"
            for symbol, _, _ in signature.symbols:
                self._read(symbol)
            value = node.meta["val"]
            kind = value.dtype.to_real() if value.is_complex() else value.dtype
            dtype = self._constant(kind, "dtype")
            device = self._partition.device.type
            self._line(f"{name} = empty({shape}, dtype={dtype}, device={device})", name)
            outputs.append(name)
        call = self._constant(executable.module["main"].ffi, "part")
        self._constant(executable, "executable")  # whose code it is
        self._reading = {*args, *outputs}
        given = ", ".join([*args, *outputs])
        text = f"{call}({given})"
        if self._partition.device.type != "cpu":
            # Vectors need addresses that views may not have; trying costs nothing.
            again = self._constant(call_with_copies, "call_with_copies")
            text = f"try: {text}\n    except ValueError: {again}({call}, ({given},), {len(args)})"
        self._line(text)
        for node, name in zip(part.outputs, outputs):
            if node in in_place:
                self._names[node] = self._names[in_place[node]]
                continue
            if node.meta["val"].is_complex():
                self._read(name)
                self._line(f"{name} = view_as_complex({name})", name)
            if node in layouts:
                order = layouts[node]
                inverse = tuple(order.index(axis) for axis in range(len(order)))
                self._read(name)
                self._line(f"{name} = {name}.permute({inverse})", name)
            strides = self._partition.gaps_to_make(node)
            if strides is not None:
                self._names[node] = self._apart(name, node.meta["val"], strides)

    def _apart(self, name: str, value: Any, strides: tuple[int, ...]) -> str:
        """A copy of a compact tensor that has gaps in memory."""
        self._scope["empty_strided"] = self._torch.empty_strided
        made = f"{name}_apart"
        where = f"dtype={self._constant(value.dtype, 'dtype')}, device={value.device.type}"
        self._line(f"{made} = empty_strided({tuple(value.shape)}, {strides}, {where})", made)
        self._reading = {made, name}
        self._line(f"{made}.copy_({name})")
        return made

    def _in_place(self, level: int, part: Part, executable: Executable) -> dict[Node, Node]:
        """The outputs that a part writes over its inputs, and which."""
        partition, made = self._partition, {}
        for index, number in executable.overwritable.get("main", ()):
            # Scalars come after the inputs.
            place, node = dict(enumerate(part.inputs)).get(index), part.outputs[number]
            others = [item for item in part.inputs if item is not place]
            if place is None or partition.overwritten(node, level) is not place:
                continue
            if place not in partition.storages(others):
                made[node] = place
                self._written |= {write for write in partition.writes if write.args[1] is node}
        return made

    def _argument(self, node: Node, layouts: dict[Node, tuple[int, ...]]) -> str:
        """A compact tensor of a part's input, and how it lies if that isn't as it seems."""
        name = self._value(node)
        value = node.meta["val"]
        order = memory_order(value)
        # What is to be negated when it is read: the imaginary part of a conjugate. Of an input's
        # memory PyTorch guards that, of a gradient's it doesn't.
        negated = value.is_neg() or value.is_complex() or _is_gradient(node)
        text = f"{name}.resolve_neg()" if negated else name
        if value.is_complex():
            text = f"view_as_real({text}.resolve_conj())"
        if order is not None and not is_natural(order):
            layouts[node] = order
            axes = (*order, len(order)) if value.is_complex() else order
            text += f".permute({axes})"
        known = node.op == "placeholder" or self._partition.is_compiled(node)
        if order is None or not known:
            text += ".contiguous()"
        if text == name:
            return name
        self._read(name)
        made = f"v{len(self._names)}_{len(self._lines)}"
        self._line(f"{made} = {text}", made)
        return made

    # ---- text -----------------------------------------------------------------------------------

    def _finish(self, inputs: Sequence[str]) -> Callable[[list[Any]], Any]:
        text = ["def run(inputs):"]
        if inputs:
            text.append(f"    {', '.join(inputs)}, = inputs")
        text.append("    inputs.clear()")
        last: dict[str, int] = {}
        for number, line in enumerate(self._lines):
            for name in (*line.makes, *line.reads):
                last[name] = number
        ends: dict[int, list[str]] = {}
        for name, number in last.items():
            ends.setdefault(number, []).append(name)
        for number, line in enumerate(self._lines):
            text.append(f"    {line.text}")
            gone = sorted(ends.get(number, ()))
            if gone and number + 1 < len(self._lines):
                text.append(f"    del {', '.join(gone)}")
        source = "\n".join(text)
        exec(compile(source, "<tilewright graph>", "exec"), self._scope)
        run: Callable[[list[Any]], Any] = self._scope["run"]
        run.__doc__ = source
        return run


def call_with_copies(call: Callable[..., object], given: Sequence[Any], inputs: int) -> None:
    """Repeat a refused call, with copies of tensors that begin where no vector may.

    Called where an error is handled, which is raised again if no tensor is such a one. What comes
    after ``inputs`` in the call is written, in place where it is an input as well.
    """
    copies = {
        id(item): item.clone()
        for item in given
        if hasattr(item, "data_ptr") and item.data_ptr() % VECTOR_BYTES
    }
    if not copies:
        raise  # the error that is being handled
    call(*(copies.get(id(item), item) for item in given))
    for item in {id(item): item for item in given[inputs:]}.values():
        if id(item) in copies:
            item.copy_(copies[id(item)])


def _is_gradient(node: Node) -> bool:
    """Whether an input of a backward graph is the gradient of a result; PyTorch tells by name."""
    return node.op == "placeholder" and "tangents" in str(node.target)


def _formula(size: object) -> Any:
    """The formula of a symbolic size; ``None`` for anything else."""
    return getattr(getattr(size, "node", None), "expr", None)


def _symbol(size: object) -> str | None:
    """Name of a size that is a single symbol."""
    formula = _formula(size)
    return formula.name if formula is not None and formula.is_Symbol else None


def _sizes_of(value: object) -> list[object]:
    """Symbolic sizes in an example value."""
    values = value if isinstance(value, (list, tuple)) else [value]
    sizes = [size for item in values for size in getattr(item, "shape", (item,))]
    return [size for size in sizes if _formula(size) is not None]
