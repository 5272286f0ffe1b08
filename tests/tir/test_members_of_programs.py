"""Members of tensor programs' classes that TVM's users touch, with TVM's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tilewright.s_tir.schedule import Dependency, DepKind, ScheduleDebugMask
from tilewright.tirx import transform as passes

from tilewright import s_tir, sym, te, tirx
from tilewright.ir import IRModule, Range, structural_equal
from tilewright.s_tir import Schedule
from tilewright.script import tirx as T
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run

IterVar = tirx.IterVar
KINDS = {
    IterVar.DataPar: 0, IterVar.ThreadIndex: 1, IterVar.CommReduce: 2, IterVar.Ordered: 3,
    IterVar.Opaque: 4, IterVar.Unrolled: 5, IterVar.Vectorized: 6, IterVar.Parallelized: 7,
    IterVar.Tensorized: 8,
}  # fmt: skip


def test_kinds_of_iterations_and_loops() -> None:
    assert {kind: int(kind) for kind in KINDS} == KINDS
    i, body = tirx.Var("i", "int32"), tirx.Evaluate(0)
    assert tirx.For(i, 0, 4, tirx.ForKind.UNROLLED, body).kind == tirx.ForKind.UNROLLED
    assert tirx.ForKind.UNROLLED != tirx.ForKind.VECTORIZED


def test_kinds_of_conditions_that_are_hoisted() -> None:
    kinds = passes.HoistedConditionals
    bits = [kinds.IfElseStmt, kinds.IfElseExpr, kinds.BooleanExpression, kinds.UsingBlockVar]
    assert [kind.value for kind in bits] == [1, 2, 4, 8]
    assert passes.HoistedLetBindings.LetExpr.value == 4


#: Options by name, what they are if nobody says, and another value.
OPTIONS: dict[Any, dict[str, tuple[Any, Any]]] = {
    passes.UnrollLoopConfig: {
        "auto_max_depth": (8, 2), "auto_max_extent": (0, 4), "auto_max_step": (0, 16),
        "explicit_unroll": (True, False), "unroll_local_access": (True, False),
    },
    passes.StmtSimplifyConfig: {
        "apply_constraints_to_boolean_branches": (True, False),
        "convert_boolean_to_and_of_ors": (False, True),
        "transitively_prove_inequalities": (True, False),
    },
    passes.HoistExpressionConfig: {
        "hoisted_conditionals": (passes.HoistedConditionals.All, passes.HoistedConditionals.Never),
        "hoisted_let_bindings": (passes.HoistedLetBindings.All, passes.HoistedLetBindings.Never),
    },
    passes.HoistIfThenElseConfig: {"support_block_scope_hoisting": (False, True)},
    s_tir.transform.LoopPartitionConfig: {"partition_const_loop": (True, False)},
}  # fmt: skip


@pytest.mark.parametrize("config", OPTIONS)
def test_options_of_passes(config: Any) -> None:
    table = OPTIONS[config]
    assert {name: getattr(config(), name) for name in table} == {
        name: usual for name, (usual, _) in table.items()
    }
    others = {name: other for name, (_, other) in table.items()}
    made = config(**others)
    assert {name: getattr(made, name) for name in table} == others


def test_each_option_is_read_by_its_name() -> None:
    assert passes.UnrollLoopConfig(auto_max_step=16).auto_max_step == 16
    assert passes.UnrollLoopConfig(auto_max_depth=2).auto_max_depth == 2
    assert passes.UnrollLoopConfig(auto_max_extent=2).auto_max_extent == 2
    assert not passes.UnrollLoopConfig(explicit_unroll=False).explicit_unroll
    assert not passes.UnrollLoopConfig(unroll_local_access=False).unroll_local_access
    simplify = passes.StmtSimplifyConfig()
    assert simplify.apply_constraints_to_boolean_branches
    assert simplify.transitively_prove_inequalities and not simplify.convert_boolean_to_and_of_ors
    hoist = passes.HoistExpressionConfig()
    assert hoist.hoisted_conditionals and hoist.hoisted_let_bindings
    assert not passes.HoistIfThenElseConfig().support_block_scope_hoisting
    assert s_tir.transform.LoopPartitionConfig().partition_const_loop


def test_the_value_of_a_reducer_of_nothing() -> None:
    x, y = tirx.Var("x", "float32"), tirx.Var("y", "float32")
    one = tirx.const(1.0, "float32")
    made = tirx.CommReducer([x], [y], [x * y], [one])
    assert structural_equal(made.identity_element[0], one)


def test_the_indices_that_a_map_gives() -> None:
    made = tirx.IndexMap.from_func(lambda i, j: [j, i])
    i, j = made.initial_indices
    assert list(made.final_indices) == [j, i]


def test_extensions_and_answers_of_the_analyzer() -> None:
    assert sym.CompareResult.INCONSISTENT == 0 and sym.ProofStrength.DEFAULT == 0
    extension = sym.Extension
    assert [extension.NoExtensions.value, extension.ComparisonOfProductAndSum.value] == [0, 8]
    analyzer, x = sym.Analyzer(), tirx.Var("x", "int32")
    analyzer.bind(x, Range(0, 8))
    made = analyzer.canonical_simplify(x * 2 + x * 3 - x)
    assert structural_equal(made, x * 4)


def test_iterators_are_made_of_marks() -> None:
    x = tirx.Var("x", "int32")
    mark = sym.IterMark(x, tirx.const(16, "int32"))
    split = sym.IterSplitExpr(mark, tirx.const(4), tirx.const(4), tirx.const(1))
    whole = sym.IterSumExpr((split,), tirx.const(3))
    assert (mark.source, mark.extent.value) == (x, 16)
    assert (split.source, split.lower_factor.value, split.extent.value) == (mark, 4, 4)
    value = sym.normalize_to_iter_sum(x // 4 + 3, {x: Range(0, 16)})
    assert value.base.value == whole.base.value and len(value.args) == len(whole.args)
    assert value.args[0].lower_factor.value == split.lower_factor.value


def test_states_of_scans_and_parts_of_tensors() -> None:
    init = te.compute((1, 3), lambda _, i: tirx.const(1.0, "float32"))
    state = te.placeholder((4, 3), "float32", "state")
    update = te.compute((4, 3), lambda t, i: state[t - 1, i] * 2.0)
    made = te.scan(init, update, state)
    assert list(made.op.state_placeholder) == [state]
    i = tirx.Var("i", "int32")
    part = state[i, 2]
    assert structural_equal(te.TensorSlice(state, (i, 2)).asobject(), part)


# ---- schedules ---------------------------------------------------------------------------------


@T.prim_func
def matmul(
    A: T.Buffer((4, 8), "float32"), B: T.Buffer((8, 4), "float32"), C: T.Buffer((4, 4), "float32")
) -> None:
    for i, j, k in T.grid(4, 4, 8):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def test_types_of_annotations() -> None:
    value: Schedule.AnnotationValueT = {"a": [1, "two"]}
    plain: Schedule.PrimAnnotationValueT = "text"
    schedule = Schedule(matmul)
    block = schedule.get_sblock("C")
    schedule.annotate(block, "plain", plain)
    schedule.annotate(block, "value", value)
    assert schedule.get(block).annotations["plain"] == "text"


def test_checks_and_dependences() -> None:
    assert [int(mask) for mask in ScheduleDebugMask] == [1, 2]
    assert int(ScheduleDebugMask.VERIFY_CACHED_FLAGS) == 2 and int(DepKind.WAR) == 2
    made = Dependency("a", "b", DepKind.WAR)
    assert (made.src, made.dst, made.kind) == ("a", "b", DepKind.WAR)


def test_descriptions_of_blocks() -> None:
    schedule = Schedule(matmul)
    info = s_tir.dlight.analysis.normalize_prim_func(schedule)
    assert info is not None and info[0].dom_kind() == "SSR"
    i = info[0].iters[0]
    again = s_tir.dlight.IterInfo(i.kind, i.var, i.dom, i.loop_rv)
    block = s_tir.dlight.SBlockInfo("C", [again, *info[0].iters[1:]], info[0].block_rv, True)
    assert (block.name, block.dom_kind(), block.is_reduction()) == ("C", "SSR", True)


def test_definitions_are_made_anew() -> None:
    made = s_tir.renew_defs(matmul)
    assert structural_equal(made, matmul)
    assert not {id(p) for p in made.params} & {id(p) for p in matmul.params}


def test_passes_for_gpus_leave_other_programs_alone() -> None:
    mod = IRModule({"main": matmul})
    for each in (s_tir.transform.InjectPTXAsyncCopy(), passes.LowerWarpMemory()):
        assert structural_equal(each(mod)["main"].without_attr("target"), matmul)


def test_masked_lanes_and_printed_memory() -> None:
    A = tirx.decl_buffer((8,), "float32", "A")
    mask = T.Broadcast(tirx.const(True), 4)
    load = T.masked_load("float32x4", A, T.Ramp(0, 1, 4), mask)
    assert load.dtype == "float32x4"
    store = T.masked_store(A, T.float32x4(1), T.Ramp(0, 1, 4), mask)
    assert isinstance(store, tirx.IfThenElse)
    shown = T.print_buffer(A.data, "float32", False, False, 1, 8)
    assert shown.op.name == "call_packed"


def test_loops_that_end_early() -> None:
    @T.prim_func
    def first(A: T.Buffer((8,), "int32"), B: T.Buffer((1,), "int32")) -> None:
        B[0] = -1
        for i in range(8):
            if A[i] < 0:
                T.evaluate(T.continue_loop())
            if A[i] > 2:
                B[0] = i
                T.evaluate(T.break_loop())

    found = np.zeros(1, "int32")
    run(first, np.int32([0, -5, 1, 7, 9, 0, 0, 0]), found)
    assert found[0] == 3


def test_what_is_refused() -> None:
    with pytest.raises(VerifyError):
        T.infinity("int32")
