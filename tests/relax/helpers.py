from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import relax
from tilewright.ir import IRModule, Pass, Var, assert_structural_equal
from tilewright.relax import interpreter


def tensor(shape: Sequence[Any], dtype: str = "float32") -> relax.TensorStructInfo:
    return relax.TensorStructInfo(shape, dtype)


def graph(body: Callable[..., Any], *infos: relax.StructInfo, names: str = "xyzwabcd") -> IRModule:
    """A module whose ``main`` returns ``body(*params)``."""
    params = [relax.Var(name, info) for name, info in zip(names, infos)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(body(*params))
        builder.emit_func_output(out)
    mod = builder.get()
    relax.verify_graph(mod)
    return mod


def graph_of(body: Callable[..., Any], *arrays: np.ndarray) -> IRModule:
    return graph(body, *(tensor(a.shape, a.dtype.name) for a in arrays))


def symbol(name: str) -> Var:
    return Var(name)


def values(mod: IRModule, name: str = "main") -> list[str]:
    """Names of what the bindings of a function call."""
    found = []
    for binding in mod[name].bindings:
        value = binding.value
        if isinstance(value, relax.Call):
            if value.op_name in ("call_tir", "call_tir_inplace", "call_dps"):
                found.append(value.args[0].name)
            else:
                found.append(value.op_name)
        else:
            found.append(type(value).__name__)
    return found


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def shown(mod: IRModule, name: str = "main") -> list[str]:
    """The bindings and the result of a function as text, without dtypes and attributes."""
    function = mod[name]
    lines = [f"{binding.var.name} = {binding.value!r}" for binding in function.bindings]
    return [*lines, f"return {function.body.body!r}"]


def agree(before: IRModule, after: IRModule, *arrays: np.ndarray, tolerance: float = 1e-5) -> None:
    """Check that two modules are well formed, and that ``main`` gives the same."""
    relax.verify_graph(before)
    relax.verify_graph(after)
    want, have = interpreter.run(before, *arrays), interpreter.run(after, *arrays)
    want, have = (result if isinstance(result, tuple) else (result,) for result in (want, have))
    assert len(want) == len(have)
    for a, b in zip(want, have):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)


def same(found: Any, expected: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Compare results, or lists of them: shapes, dtypes and values."""
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            same(one, other, rtol, atol)
        return
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(np.asarray(found), expected, rtol, atol)


def golden(
    change: Pass, before: Any, after: Any, *arrays: np.ndarray, tolerance: float = 1e-5
) -> None:
    """Check that a pass makes ``after`` of ``before``, that both mean the same, and that is all."""
    made = change(before)
    assert_structural_equal(made, after)
    assert_structural_equal(change(made), made)
    if arrays:
        agree(before, made, *arrays, tolerance=tolerance)
