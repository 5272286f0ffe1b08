"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

F = TensorProto.FLOAT
MICROSOFT = helper.make_opsetid("com.microsoft", 1)


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node; names are separated by blanks, and ``-`` is an input that is left out."""
    names = ["" if name == "-" else name for name in inputs.split()]
    domain, _, op_type = kind.rpartition(".")
    return helper.make_node(op_type, names, outputs.split(), domain=domain, **attributes)


def graph(
    nodes: Sequence[Any],
    inputs: dict[str, Any],
    outputs: Sequence[str],
    initial: dict[str, Any] | None = None,
) -> Any:
    """A graph; inputs are float32 of the given shape, or as the given array."""
    return helper.make_graph(
        nodes,
        "g",
        [_info(name, like) for name, like in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (initial or {}).items()],
    )


def _info(name: str, like: Any) -> Any:
    if isinstance(like, (np.ndarray, np.generic)):
        kind = helper.np_dtype_to_tensor_dtype(like.dtype)
        return helper.make_tensor_value_info(name, kind, list(like.shape))
    return helper.make_tensor_value_info(name, F, like)


def model(
    nodes: Sequence[Any],
    inputs: dict[str, Any],
    outputs: Sequence[str],
    initial: dict[str, Any] | None = None,
    opset: int = 21,
    opsets: Sequence[Any] = (MICROSOFT,),
    **options: Any,
) -> Any:
    """A model of such a graph."""
    imports = [helper.make_opsetid("", opset), *opsets]
    return helper.make_model(
        graph(nodes, inputs, outputs, initial), opset_imports=imports, **options
    )
