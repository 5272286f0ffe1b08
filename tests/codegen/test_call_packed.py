"""Compiled code calls global functions: Python's, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import runtime
from tilewright.meta_schedule.containment import check_containment
from tilewright.script import tir as T
from tilewright.support.errors import CodegenError, RunError


@T.prim_func
def program(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32"), n: T.int32):
    T.evaluate(
        T.call_packed(
            "test.note",
            T.packed_tensor(x.data, "float32", 2, n),
            T.packed_tensor(y.data, "float32", 4),
            T.float32(2.5),
            "text",
            n > 2,
            n,
        )
    )


@pytest.fixture
def seen() -> Iterator[list[Any]]:
    found: list[Any] = []

    @tilewright.register_global_func("test.note")
    def note(x: Any, y: Any, *rest: Any) -> int:
        found.append((x.shape, *rest))
        y.numpy()[...] = x.numpy().reshape(-1) * 2
        return 7

    yield found
    runtime.remove_global_func("test.note")


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(4, dtype="float32"), np.zeros(4, "float32")


def test_python_gets_tensors_numbers_and_texts(seen: list[Any], tmp_path: Path) -> None:
    built = tilewright.compile(program)
    x, y = arrays()
    built(x, y, 2)
    assert seen == [((2, 2), 2.5, "text", False, 2)]
    np.testing.assert_array_equal(y, x * 2)
    library = tmp_path / "packed.so"
    built.export_library(library)
    tilewright.load_module(library)["main"](x, y, 2)
    assert len(seen) == 2


def test_errors_of_the_function_are_those_of_the_call(seen: list[Any]) -> None:
    built = tilewright.compile(program)

    def refuse(*args: Any) -> None:
        raise KeyError("not today")

    tilewright.register_global_func("test.note", refuse, override=True)
    with pytest.raises(KeyError, match="not today"):
        built(*arrays(), 2)


def test_missing_functions_are_named() -> None:
    with pytest.raises(RuntimeError, match=r"no global function 'test\.note': register it"):
        tilewright.compile(program)(*arrays(), 2)


def test_names_are_registered_once(seen: list[Any]) -> None:
    with pytest.raises(RunError, match=r"'test\.note' already; override=True replaces it"):
        tilewright.register_global_func("test.note", print)
    with pytest.raises(RunError, match="must be a function, got int"):
        tilewright.register_global_func("test.number", 1)  # type: ignore[arg-type]
    assert tilewright.get_global_func("test.none", allow_missing=True) is None
    with pytest.raises(RunError, match=r"no global function 'test\.nota'.*test\.note"):
        tilewright.get_global_func("test.nota")
    assert callable(tilewright.get_global_func("ffi.Array"))


def test_a_database_may_not_call_them() -> None:
    faults = [reason for _, reason in check_containment(program)]
    assert "it calls 'test.note' (call_packed), which is not allowed by name" in faults


def test_what_is_no_argument_is_refused() -> None:
    @T.prim_func
    def lone(x: T.Buffer((4,), "float32")):
        T.evaluate(T.packed_tensor(x.data, "float32", 4))

    with pytest.raises(CodegenError, match="is an argument of call_packed, and nothing else"):
        tilewright.compile(lone)


def test_each_iteration_of_a_vectorized_loop_calls() -> None:
    @T.prim_func
    def repeated(y: T.Buffer((8,), "float32")):
        for i in T.vectorized(8):
            y[i] = T.float32(1)
            T.evaluate(T.call_packed("test.count", 3))

    found: list[int] = []
    tilewright.register_global_func("test.count", found.append)
    try:
        tilewright.compile(repeated)(np.zeros(8, "float32"))
    finally:
        runtime.remove_global_func("test.count")
    assert found == [3] * 8
