"""What trees contain: remembered by nodes, the same as a walk finds."""

from __future__ import annotations

from tilewright.ir import (
    DEFINITIONS,
    EFFECTS,
    STRIDED,
    Add,
    Call,
    FloorDiv,
    FloorMod,
    Mul,
    Ramp,
    Var,
    annotated,
    call,
    cast,
    const,
    contains,
    contents,
    pre_order,
)
from tilewright.script import tir as T
from tilewright.tir import BufferStore, For, IfThenElse, renew_definitions
from tilewright.tir.analysis import runs_at_once


def test_classes_of_a_tree() -> None:
    i = Var("i")
    has_division = contains(FloorDiv, FloorMod)
    inner = i * 3 + 1
    assert not has_division(inner)
    assert has_division((inner + i // 4) * 2)
    assert not has_division(inner)
    assert contains(Mul)(inner) and contains(Var)(inner) and not contains(Call)(inner)


def test_element_types_of_vectors_and_scalars() -> None:
    x = Var("x", "float16x8")
    assert contains("float16")(x) and not contains("float32")(x)
    wide = cast(x, "float32x8")
    assert contains("float16")(wide) and contains("float32")(wide)


def test_calls_with_effects() -> None:
    pointer = Var("p", "handle")
    assert not contains(EFFECTS)(call("exp", const(1.0)))
    assert contains(EFFECTS)(call("call_extern", "f", pointer, dtype="int32") + 1)


def test_statements_contain_what_is_in_their_expressions() -> None:
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float16")):
        for i in range(8):
            A[i] = T.cast(B[i // 2], "float32")

    body = func.body
    assert contains("float16")(body) and contains(For)(body) and contains(FloorDiv)(body)
    assert not contains(IfThenElse)(body)
    for node in pre_order(body):
        below = list(pre_order(node))
        for kind in (For, FloorDiv, BufferStore, Var):
            assert contains(kind)(node) == any(type(item) is kind for item in below)


def test_sums_of_thousands_of_terms() -> None:
    total = Var("x") // 3
    for number in range(5000):
        total = Add(total, const(number))
    assert contains(FloorDiv)(total)
    assert contents(total.a.a) == contents(total)


def test_strides_and_annotations() -> None:
    i = Var("i")
    assert contains(STRIDED)(Ramp(i, const(2), 4) + 1) and contains(STRIDED)(Ramp(i, const(-3), 4))
    assert not contains(STRIDED)(Ramp(i, const(1), 4)) and not contains(STRIDED)(Ramp(i, i, 4))

    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for j in T.serial(8, annotations={"software_pipeline_stage": [0]}):
            A[j] = 1.0

    assert contains(annotated("software_pipeline_stage"))(func.body)
    assert not contains(annotated("software_pipeline_order"))(func.body)
    assert not contains(annotated("software_pipeline_stage"))(func.body.body)


def test_definitions() -> None:
    i = Var("i")
    defines = contains(DEFINITIONS)

    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for j in range(8):
            A[j] = A[j] + 1.0

    loop = func.body
    assert defines(loop) and not defines(loop.body) and not defines(i + 1)
    assert renew_definitions(loop.body) is loop.body
    assert renew_definitions(loop).loop_var is not loop.loop_var


def test_loops_that_run_at_once() -> None:
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32")):
        for i in T.serial(8, annotations={"pragma": 1}):
            for j in T.vectorized(8):
                A[i, j] = 0.0
        for i in range(8):
            for j in T.unroll(8):
                A[i, j] = 1.0

    first, second = func.body.stmts
    assert runs_at_once(func.body) and runs_at_once(first) and runs_at_once(first.body)
    assert not runs_at_once(first.body.body) and not runs_at_once(second)
    assert contains(annotated("pragma"))(first) and not contains(annotated("pragma"))(second)
