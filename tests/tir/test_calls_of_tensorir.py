"""Names of TVM's TensorIR and TE, called with TVM's arguments by their names."""

from __future__ import annotations

import pytest
from tilewright.s_tir.schedule import InstructionKind

from tilewright import get_global_func, ir, runtime, s_tir, te, tirx
from tilewright.ir import assert_structural_equal
from tilewright.script import tirx as T
from tilewright.script.ir_builder import IRBuilder
from tilewright.support.errors import RunError, VerifyError
from tilewright.target import Target

X = tirx.Var("x", "int32")
A = tirx.decl_buffer((4, 8), "float32", "A")
PLACE = te.placeholder((4,), "float32", "P")
FIRST = tirx.address_of(A[0, 0])

EXPRESSIONS = {
    "BitwiseNot": (tirx.BitwiseNot(a=X, span=None), ~X),
    "BitwiseNot of script": (T.BitwiseNot(a=X, span=None), ~X),
    "address_of": (tirx.address_of(obj=A[1, 2], span=None), T.address_of(A[1, 2])),
    "address_of a buffer": (tirx.address_of(obj=A, span=None), FIRST),
    "address_of of script": (T.address_of(obj=A[0, 0], span=None), FIRST),
    "address_of a buffer, of script": (T.address_of(A), FIRST),
    "call_packed": (T.call_packed("f", X, 1, span=None), tirx.call_packed("f", X, 1)),
    "call_packed of a buffer": (T.call_packed("f", A), tirx.call_packed("f", A)),
    "call_pure_extern": (
        T.call_pure_extern("float32", "sinf", 1.0, span=None),
        tirx.call_pure_extern("float32", "sinf", 1.0, span=None),
    ),
    "call_pure_extern, by names": (
        T.call_pure_extern(dtype="float32", func_name="zero"),
        tirx.call_pure_extern(dtype="float32", func_name="zero"),
    ),
    "any": (tirx.any(X > 1, X < 0, span=None), tirx.Or(X > 1, X < 0)),
    "any of te": (te.any(X > 1, X < 0, X < 3, span=None), ((X > 1) | (X < 0)) | (X < 3)),
    "any of one": (tirx.any(X > 1), X > 1),
    "astype": (PLACE[X].astype(dtype="int32", span=None), tirx.Cast("int32", PLACE[X])),
    "equal": (PLACE[X].equal(other=1.0, span=None), tirx.EQ(PLACE[X], tirx.const(1.0))),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(name: str) -> None:
    found, expected = EXPRESSIONS[name]
    assert_structural_equal(found, expected, map_free_vars=True)


def test_addresses_in_script() -> None:
    @T.prim_func
    def first(A: T.Buffer((4,), "float32")):
        T.evaluate(T.call_extern("int32", "f", T.address_of(A)))

    @T.prim_func
    def same(A: T.Buffer((4,), "float32")):
        T.evaluate(T.call_extern("int32", "f", T.address_of(A[0])))

    assert_structural_equal(first.body, same.body, map_free_vars=True)


def test_srefs_of_a_state() -> None:
    made = te.compute((4,), lambda i: PLACE[i] + 1.0, name="made")
    assert made.op.output(index=0) is made
    schedule = s_tir.Schedule(te.create_prim_func([PLACE, made]))
    state, block = schedule.state, schedule.get(schedule.get_sblock("made"))
    sref = state.get_sref(stmt=block)
    assert sref.stmt is block and sref == schedule.get_sref(block)
    assert state.get_sref(stmt=block.body) is None  # neither a loop nor a block
    root = state.get_sref(schedule.get(schedule.get_sblock("root")))
    scope = state.get_sblock_scope(block_sref=root)
    assert isinstance(scope, s_tir.SBlockScope) and scope.get_deps_by_src(sref) == []


def test_kinds_and_intrinsics_are_made() -> None:
    kind = InstructionKind(name="Mine", _is_pure=True)
    assert kind.name == "Mine" and kind.is_pure
    made = te.compute((4,), lambda i: PLACE[i], name="made")
    func = te.create_prim_func([PLACE, made])
    intrin = s_tir.TensorIntrin(desc=func, impl=func)
    assert intrin.desc is func and intrin.impl is func
    index_map = tirx.IndexMap(
        initial_indices=[X], final_indices=[X // 4, X % 4], inverse_index_map=None
    )
    assert index_map.is_equivalent_to(tirx.IndexMap.from_func(lambda i: (i // 4, i % 4)))


def test_pipelines_by_name() -> None:
    default = tirx.get_tir_pipeline(name="default")
    for target in ("llvm", "cuda -arch=sm_80"):
        assert type(tirx.get_default_tir_pipeline(target=Target(target))) is type(default)
    asked = []

    def factory(**options: object) -> ir.transform.Pass:
        asked.append(options)
        return default

    tirx.register_tir_pipeline(name="of this test", pipeline_factory=factory)
    assert tirx.get_tir_pipeline(name="of this test", fast=1) is default
    assert asked == [{"fast": 1}]
    with pytest.raises(ValueError, match="unknown pipeline 'nothing'"):
        tirx.get_tir_pipeline("nothing")


def test_what_stands_alone() -> None:
    assert [ir.is_prim_expr(value=each) for each in (X, X + 1, A, 1, None)] == [True, True] + [
        False
    ] * 3
    assert get_global_func(name="nothing", allow_missing=True) is None
    with pytest.raises(RunError, match="nothing") as caught:
        get_global_func(name="nothing", allow_missing=False)
    assert isinstance(caught.value, ValueError)
    before = runtime.num_threads()
    runtime.set_num_threads(3)
    assert runtime.num_threads() == 3
    runtime.set_num_threads(before)
    with IRBuilder() as builder:
        assert IRBuilder.current() is builder
    with pytest.raises(VerifyError, match="no builder is open"):
        IRBuilder.current()
