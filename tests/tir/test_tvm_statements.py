"""Statements, functions and calls made with TVM's arguments, and what they print and do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import tirx
from tilewright.ir import (
    PrimType,
    StringImm,
    TupleType,
    Var,
    assert_structural_equal,
    const,
    load_json,
    save_json,
    structural_equal,
)
from tilewright.script import from_source
from tilewright.support.errors import RunError, VerifyError
from tilewright.tir import interpreter

SERIAL = tirx.ForKind.SERIAL


def buffers(*names: str, shape: tuple[int, ...] = (8,)) -> list[tirx.Buffer]:
    return [tirx.decl_buffer(shape, "float32", name) for name in names]


def printed(func: tirx.PrimFunc) -> str:
    text: str = func.script()
    assert_structural_equal(from_source(text), func)
    return text.partition(":\n")[2]


def ran(func: tirx.PrimFunc, size: int = 8) -> list[float]:
    tirx.analysis.verify(func)
    arrays = [np.arange(1, size + 1, dtype="float32"), np.zeros(size, "float32")]
    interpreter.run(func, *arrays)
    return arrays[1].tolist()


def test_statements_hold_for_what_follows_them() -> None:
    A, B, t = buffers("A", "B", "t")
    x = Var("x", "float32")
    parts = [
        tirx.AllocBuffer(t, {"align": 32}),
        tirx.BufferStore(t, 2, [0]),
        tirx.Bind(x, A[1] + t[0]),
        tirx.BufferStore(B, x * 2.0, [0]),
        tirx.BufferStore(B, x, [1]),
    ]
    func = tirx.PrimFunc([A, B], tirx.SeqStmt(parts))
    assert ran(func)[:2] == [8, 4]
    assert "x: T.float32 = A[1] + t[0]" in printed(func)
    assert '"align": 32' in printed(func)
    assert structural_equal(func.with_body(tirx.stmt_seq(*parts)).body, func.body.stmts[0])


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": lambda given: [*given[:2], *map(copy.copy, given[2:])],
    "deepcopy": copy.deepcopy,
    "json": lambda given: load_json(save_json(given)),
    "pickle 2": lambda given: pickle.loads(pickle.dumps(given, 2)),
    "pickle": lambda given: pickle.loads(pickle.dumps(given)),
}


@pytest.mark.parametrize("how", COPIES)
def test_copied_statements_hold_for_what_follows_them(how: str) -> None:
    A, B, t = buffers("A", "B", "t")
    view = tirx.decl_buffer((4, 2), "float32", "view", data=t.data)
    x = Var("x", "float32")
    parts = (
        tirx.AllocBuffer(t),
        tirx.DeclBuffer(view),
        tirx.BufferStore(t, A[1], [1]),
        tirx.Bind(x, view[0, 1]),
        tirx.BufferStore(B, x, [0]),
    )
    a, b, *copied = COPIES[how]((A, B, *parts))
    made = tirx.SeqStmt(copied)
    assert len(made.seq) == 1
    assert ran(tirx.PrimFunc([a, b], made))[0] == 2


@pytest.mark.parametrize("how", COPIES)
def test_copied_bodies_that_were_given_are_kept(how: str) -> None:
    let = tirx.LetStmt(Var("x"), 3, tirx.Evaluate(0))
    assert len(tirx.SeqStmt(COPIES[how]((0, 0, let, tirx.Evaluate(1)))[2:]).seq) == 2


@pytest.mark.parametrize("last", [True, False])
def test_a_binding_at_the_end_holds_for_nothing(last: bool) -> None:
    (A,) = buffers("A")
    bound, store = tirx.LetStmt(Var("x"), 3), tirx.BufferStore(A, 1.0, [0])
    made = tirx.SeqStmt([store, bound] if last else [bound, store])
    assert len(made.seq) == (2 if last else 1)
    assert bound.value.dtype == "int64" and bound.var.name == "x"


def test_views_are_declared_over_their_memory() -> None:
    A, B = buffers("A", "B")
    view = tirx.decl_buffer((4, 2), "float32", "view", data=A.data)
    declared = tirx.DeclBuffer(view, data=A.data)
    assert declared.data is A.data and declared.buffer is view
    func = tirx.PrimFunc([A, B], tirx.SeqStmt([declared, tirx.BufferStore(B, view[1, 1], [0])]))
    assert ran(func)[0] == 4
    printed(func)
    with pytest.raises(VerifyError, match="lies in the memory"):
        tirx.DeclBuffer(view, data=B.data)


@pytest.mark.parametrize(
    ("low", "extent", "step", "values"),
    [(0, 8, None, range(8)), (0, 8, 3, (0, 3, 6)), (1, 5, 2, (1, 3, 5)), (2, 0, 4, ())],
)
def test_loops_with_steps(low: int, extent: int, step: int | None, values: range) -> None:
    A, B = buffers("A", "B")
    i = Var("i")
    body = tirx.BufferStore(B, A[i], [i])
    loop = tirx.For(i, low, extent, SERIAL, body, None, None, step)
    assert loop.step is None
    func = tirx.PrimFunc([A, B], loop)
    assert ran(func) == [n + 1 if n in values else 0 for n in range(8)]
    printed(func)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("step", [None, 3, const(3, "int32")])
def test_numbers_of_a_loop_are_of_its_dtype(dtype: str, step: Any) -> None:
    A, B = buffers("A", "B")
    i = Var("i", dtype)
    loop = tirx.For(i, 1, 6, SERIAL, tirx.BufferStore(B, A[i], [i]), step=step)
    assert loop.min.dtype == loop.extent.dtype == dtype
    found = ran(tirx.PrimFunc([A, B], loop))
    assert found == [n + 1 if n in range(1, 7, 3 if step else 1) else 0 for n in range(8)]


def test_loops_refuse_steps_that_are_none() -> None:
    (A,) = buffers("A", shape=(1,))
    i = Var("i")
    for step in (0, -1):
        with pytest.raises(VerifyError, match="positive integer"):
            tirx.For(i, 0, 4, SERIAL, tirx.Evaluate(i), step=step)
    with pytest.raises(VerifyError, match="read no memory"):
        tirx.For(i, A[0].astype("int64"), 4, SERIAL, tirx.Evaluate(i), step=2)


def test_loops_are_left_and_functions_end() -> None:
    A, B = buffers("A", "B")
    i = Var("i")
    body = tirx.SeqStmt(
        [
            tirx.IfThenElse(i == 1, tirx.Continue()),
            tirx.IfThenElse(i == 3, tirx.Break()),
            tirx.BufferStore(B, A[i], [i]),
        ]
    )
    func = tirx.PrimFunc([A, B], tirx.For(i, 0, 8, SERIAL, body))
    assert ran(func) == [1, 0, 3, 0, 0, 0, 0, 0]
    text = printed(func)
    assert "continue" in text and "break" in text
    ended = tirx.PrimFunc([A], tirx.Return(A[0]), "float32")
    assert "return A[0]" in printed(ended)
    kinds = [tirx.Break(), tirx.Continue(), tirx.Return(1), tirx.Evaluate(1)]
    for place, kind in enumerate((tirx.Break, tirx.Continue, tirx.Return)):
        assert [isinstance(stmt, kind) for stmt in kinds] == [n == place for n in range(4)]
    assert isinstance(tirx.Evaluate(tirx.break_loop()), tirx.Break)
    assert isinstance(tirx.Evaluate(tirx.continue_loop()), tirx.Continue)


@pytest.mark.parametrize(
    ("kind", "error"),
    [("RuntimeError", RunError), ("ValueError", ValueError), ("IndexError", IndexError)],
)
def test_assertions_raise_what_they_name(kind: str, error: type[Exception]) -> None:
    (A,) = buffers("A")
    stmt = tirx.AssertStmt(StringImm(kind), A[0] > 5.0, [StringImm("too "), "small"])
    assert stmt.error_kind.value == kind
    assert [part.value for part in stmt.message_parts] == ["too small"]
    func = tirx.PrimFunc([A], stmt)
    assert "too small" in printed(func)
    with pytest.raises(error, match="too small"):
        interpreter.run(func, np.zeros(8, "float32"))
    if kind == "ValueError":
        with pytest.raises(error, match="too small"):
            tirx.build(func)["main"](np.zeros(8, "float32"))


def test_assertions_without_a_message_and_of_unknown_kinds() -> None:
    assert tirx.AssertStmt("ValueError", const(True, "bool"), None).message_parts == ()
    with pytest.raises(VerifyError, match="unknown kind of error"):
        tirx.AssertStmt("Exception", const(True, "bool"), "text")
    with pytest.raises(VerifyError, match="both text"):
        tirx.AssertStmt("ValueError", const(True, "bool"), [3])


def test_functions_take_tvm_arguments() -> None:
    A, B = buffers("A", "B")
    n, handle = Var("n", "int64"), Var("h", "handle")
    made = tirx.PrimFunc([A, n], tirx.Evaluate(n), None, {"a": 1})
    assert made.buffer_map[made.params[0]] is A and made.params[1] is n
    assert made.attrs == {"a": 1} and made.ret_type == "void"
    older = tirx.PrimFunc([handle], tirx.Evaluate(0), "int32", {handle: B}, {"b": 2})
    assert older.buffer_map == {handle: B} and older.attrs == {"b": 2}
    assert older.ret_type == "int32"
    by_name = tirx.PrimFunc([handle], tirx.Evaluate(0), buffer_map={handle: B})
    assert by_name.buffer_map == {handle: B}
    with pytest.raises(VerifyError, match="not a parameter"):
        tirx.PrimFunc([], tirx.Evaluate(0), buffer_map={handle: B})


def test_reductions_start_at_the_identity() -> None:
    x, k = Var("x", "float32"), tilewright.te.reduce_axis((0, 4), "k")
    whole = tirx.sum(x, axis=k)
    made = tirx.Reduce(whole.combiner, [x], [k], const(True, "bool"), 0, None)
    assert made.init == () and structural_equal(made, whole, map_free_vars=True)


def test_buffers_have_what_buffer_variables_have() -> None:
    """Buffers are variables in TVM: what those have, ours have."""
    o = Var("o", "int64")
    b = tirx.decl_buffer((4, 4), "float32", "b", strides=[8, 1], elem_offset=o, layout="default")
    half = tirx.decl_buffer((4,), "int4", "half", elem_offset=3)
    value = const(1.0, "float32")
    shown = {
        "byte_offset": b.byte_offset,
        "elem_offset": b.elem_offset,
        "data_alignment": b.data_alignment,
        "offset_factor": b.offset_factor,
        "offset_of": b.offset_of([1, 2])[0],
        "shape": b.shape,
        "strides": b.strides,
        "scope": b.scope(),
        "vload": b.vload([0, 0], "float32x4"),
        "access_ptr": b.access_ptr("rw", offset=4).args[1],
        "vstore": b.vstore([0, 0], value).value,
        "with_dtype": b.with_dtype("int32").dtype,
        "flat": b.get_flattened_buffer().shape,
    }
    assert {name: repr(made) for name, made in shown.items()} == {
        "byte_offset": "(o * 4)",
        "elem_offset": "o",
        "data_alignment": "64",
        "offset_factor": "1",
        "offset_of": "(10 + o)",
        "shape": "(4, 4)",
        "strides": "(8, 1)",
        "scope": "'global'",
        "vload": "b[0, Ramp(base=0, stride=1, lanes=4)]",
        "access_ptr": "(o + 4)",
        "vstore": repr(value),
        "with_dtype": "'int32'",
        "flat": "(32,)",
    }
    assert tilewright.ir.as_int(half.byte_offset) == 1
    assert tirx.is_buffer_var(b) and not tirx.is_buffer_var(o) and not tirx.is_buffer_var(3)
    assert tirx.buffer_data(b) is b.data
    with pytest.raises(TypeError, match="takes a buffer"):
        tirx.buffer_data(o)
    with pytest.raises(VerifyError, match="layout"):
        tirx.decl_buffer((4,), layout="tiles")


def test_conditions_at_which_no_loop_is_cut() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((1000,), "float32"), B: T.Buffer((1000,), "float32")):
    for i, j in T.grid(63, 16):
        if {condition}:
            B[i * 16 + j] = A[i * 16 + j]
"""
    cut = tirx.transform.LoopPartition()
    plain, told = (
        from_source(text.format(condition=condition))
        for condition in ("i * 16 + j < 1000", "T.ignore_loop_partition(i * 16 + j < 1000)")
    )
    loops = [cut(tilewright.IRModule({"main": func}))["main"] for func in (plain, told)]
    assert not structural_equal(loops[0], plain)
    assert structural_equal(loops[1], told)
    assert ran(told, 1000) == list(range(1, 1001))
    printed(told)
    arrays = [np.arange(1000, dtype="float32"), np.zeros(1000, "float32")]
    tirx.build(told)["main"](*arrays)
    assert (arrays[0] == arrays[1]).all()


def test_the_older_place_of_the_map_of_buffers() -> None:
    (A,) = buffers("A")
    handle, body = Var("a", "handle"), tirx.Evaluate(0)
    for variables, given in (([handle], {handle: A}), ([], {}), ([], None)):
        func = tirx.PrimFunc(variables, body, None, given, {"key": 1})
        assert dict(func.buffer_map) == (given or {}) and func.attrs["key"] == 1
    with pytest.raises(VerifyError, match="given twice"):
        tirx.PrimFunc([handle], body, None, {handle: A}, buffer_map={handle: A})


@pytest.mark.parametrize("leave", [tirx.Break, tirx.Continue])
def test_what_leaves_a_loop_stands_in_one(leave: Any) -> None:
    (A,) = buffers("A")
    func = tirx.PrimFunc([A], tirx.IfThenElse(A[0] > 0.0, leave()))
    for check in (tirx.analysis.verify, lambda func: interpreter.run(func, np.ones(8, "float32"))):
        with pytest.raises(VerifyError, match=r"_loop\(\) stands in no loop"):
            check(func)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [(None, "void"), (TupleType([]), "void"), (PrimType("int8"), "int8"), ("float32", "float32")],
)
def test_the_type_of_the_result(given: Any, dtype: str) -> None:
    assert tirx.PrimFunc([], tirx.Evaluate(0), given).ret_dtype == dtype
