"""Workloads as ONNX models, for the peers that read those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.workload import Array, Workload

# The newest that the runtimes of today read.
OPSET = 23
IR_VERSION = 11

_TYPES = {
    "float32": TensorProto.FLOAT,
    "bfloat16": TensorProto.BFLOAT16,
    "float16": TensorProto.FLOAT16,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}


class Graph:
    """A graph under construction; ``op`` adds a node and returns the name of its result."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], constants: dict[str, Array]) -> None:
        self._shapes = shapes
        self._count = 0
        self.nodes: list[Any] = []
        self.constants = {
            name: self._tensor(name, _TYPES[array.dtype.name], array.shape, array.tobytes())
            for name, array in constants.items()
        }
        self.result_type = TensorProto.FLOAT

    def op(
        self,
        kind: str,
        *inputs: str,
        domain: str = "",
        dtype: str | None = None,
        results: int = 1,
        wanted: int = 0,
        **attributes: Any,
    ) -> str:
        """Add a node and return the name of the wanted one of its results.

        ``dtype`` is the type of the model's result if this is the last one.
        """
        self._count += 1
        name = f"t{self._count}"
        names = [name if n == wanted else f"{name}_{n}" for n in range(results)]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        if dtype is not None:
            self.result_type = _TYPES[dtype]
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an operand of the model."""
        return self._shapes[name]

    def constant(self, array: Any) -> str:
        """Add a constant."""
        self._count += 1
        name, array = f"c{self._count}", np.asarray(array)
        kind = _TYPES[array.dtype.name]
        self.constants[name] = self._tensor(name, kind, array.shape, array.tobytes())
        return name

    def integers(self, values: Sequence[int]) -> str:
        """Add a constant vector of int64."""
        return self.constant(np.asarray(values, np.int64))

    def constant_uint4(self, value: int, shape: tuple[int, ...]) -> str:
        """Add a constant of 4-bit integers that are all the same."""
        self._count += 1
        name = f"c{self._count}"
        count = int(np.prod(shape))
        packed = bytes([value | value << 4]) * (count // 2)
        self.constants[name] = self._tensor(name, TensorProto.UINT4, shape, packed)
        return name

    def as_uint4(self, name: str, shape: tuple[int, ...]) -> None:
        """Take a constant of bytes as one of 4-bit integers, the low half first."""
        self._retype(name, TensorProto.UINT4, shape)

    def reshape_constant(self, name: str, shape: tuple[int, ...]) -> None:
        """Give a constant another shape."""
        self._retype(name, self.constants[name].data_type, shape)

    def _retype(self, name: str, kind: int, shape: tuple[int, ...]) -> None:
        self.constants[name] = self._tensor(name, kind, shape, self.constants[name].raw_data)

    @staticmethod
    def _tensor(name: str, kind: int, shape: Sequence[int], raw: bytes) -> Any:
        return helper.make_tensor(name, kind, shape, raw, raw=True)


def make_model(
    workload: Workload,
    write: Callable[..., str],
    arrays: Sequence[Array],
    out_shape: Sequence[int],
    constant_weights: bool,
) -> bytes:
    """Return a model of one of a workload's ``onnx`` ways; its result is ``y``."""
    names = [f"x{n}" for n in range(len(arrays))]
    fixed = set(workload.weights) if constant_weights else set()
    graph = Graph(
        {name: array.shape for name, array in zip(names, arrays)},
        {names[n]: arrays[n] for n in sorted(fixed)},
    )
    result = write(graph, *names)
    for node in graph.nodes:
        node.output[:] = ["y" if name == result else name for name in node.output]
    inputs = [
        helper.make_tensor_value_info(names[n], _TYPES[array.dtype.name], array.shape)
        for n, array in enumerate(arrays)
        if n not in fixed
    ]
    output = helper.make_tensor_value_info("y", graph.result_type, tuple(out_shape))
    made = helper.make_graph(
        graph.nodes, "workload", inputs, [output], list(graph.constants.values())
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model: onnx.ModelProto = helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION)
    return bytes(model.SerializeToString())
