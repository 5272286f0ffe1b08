"""Passes made of functions, and what pass options say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from transform_cases import applied, body, lowered, module, program, same, unchanged

from tilewright import tir, transform
from tilewright.ir import IRModule, ModulePass, PassContext, PassInfo
from tilewright.script import parse
from tilewright.support.errors import LowerError, TilewrightError, VerifyError
from tilewright.tir import PrimFunc
from tilewright.tir import transform as T

A, C = np.arange(8, dtype="float32"), np.zeros(8, "float32")
ADD = program("for i in range(8):", "    C[i] = A[i] + T.float32(1)")


def marked(mod: IRModule) -> list[str]:
    return [name for name, func in mod.functions.items() if "mark" in func.attrs]


def test_a_function_becomes_a_pass() -> None:
    seen: list[Any] = []

    @T.prim_func_pass(opt_level=1, name="mark")
    def mark(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        seen.append((mod, ctx))
        return func.with_attr("mark", 1)

    mod = module(ADD)
    context = PassContext(opt_level=3)
    with context:
        assert marked(mark(mod)) == ["main"]
    assert seen == [(mod, context)] and isinstance(mark, T.PrimFuncPass)
    assert mark.pass_info == mark.info == "mark" and mark.pass_info.opt_level == 1
    with pytest.raises(VerifyError, match="must return a PrimFunc, got int"):
        T.prim_func_pass(lambda func, mod, ctx: 3, name="bad")(mod)


def test_a_class_becomes_a_pass() -> None:
    @T.prim_func_pass(opt_level=1)
    class Mark:
        def __init__(self, value: int) -> None:
            self.value = value

        def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
            return func.with_attr("mark", self.value)

    made = Mark(5)
    assert made.info.name == Mark.__name__ == "Mark" and isinstance(made, transform.Pass)
    assert made(module(ADD))["main"].attrs["mark"] == 5


def test_passes_without_a_function_are_for_subclasses() -> None:
    info = PassInfo(0, "own")
    for made in (ModulePass(info), T.PrimFuncPass(info)):
        assert made.pass_info is info
        with pytest.raises(NotImplementedError, match="must define"):
            made(module(ADD))


def test_apply_and_filter() -> None:
    two = IRModule({"one": parse(ADD), "two": parse(ADD)})
    assert marked(T.Apply(lambda func: func.with_attr("mark", 1))(two)) == ["one", "two"]
    kept = T.Filter(lambda func: func is two["two"])(two)
    assert list(kept.functions) == ["two"] and T.Filter(lambda _: True)(two) is two


def test_targets_are_noted_and_memory_verified() -> None:
    cuda = T.BindTarget("cuda -arch=sm_80")
    bound = cuda(module(ADD))
    assert bound["main"].attrs["target"].kind.name == "cuda"
    assert T.BindTarget("llvm")(bound)["main"] is bound["main"]
    with pytest.raises(VerifyError, match="outside of its threads"):
        T.VerifyMemory()(bound)
    threads = ADD.replace("range(8)", 'T.thread_binding(8, thread="threadIdx.x")')
    good = cuda(module(threads))
    assert T.VerifyMemory()(good) is good and unchanged(T.VerifyMemory(), module(ADD))


def test_assumptions_are_removed() -> None:
    text = program(
        "for i in range(8):",
        "    T.assume(A[i] > T.float32(0))",
        "if n > 3:",
        "    T.assume(n < 8)",
        "else:",
        "    C[0] = A[0]",
        "for i in range(8):",
        "    C[i] = A[i]",
    )
    found = applied(T.RemoveAssume(), module(text), A, C, 3)
    assert "assume" not in found and found.count("for i") == 1 and "if n > 3" in found
    assert unchanged(T.RemoveAssume(), module(ADD))


def test_formulas_stand_for_operators() -> None:
    text = program("for i in range(8):", "    C[i] = T.hypot(A[i], A[i])")
    found = applied(T.LowerIntrin(), module(text), A, C, 0)
    assert "hypot" not in found and "sqrt" in found


def test_vectors_may_be_turned_off() -> None:
    text = program("for i in T.vectorized(8):", "    C[i] = A[i]")
    assert "for i in range(8)" in applied(T.VectorizeLoop(False), lowered(text), A, C, 0)


SMALL = """
@T.prim_func
def main(A: T.Buffer((8,), "{0}"), C: T.Buffer((8,), "{0}")):
    for i in range(8):
        C[i] = A[i] * A[i] + A[i]
"""


@pytest.mark.parametrize(
    "dtype, compute, store, wide",
    [
        ("bfloat16", T.BF16ComputeLegalize(), T.BF16StorageLegalize(), "float32"),
        ("float8_e4m3fn", T.FP8ComputeLegalize(), T.FP8StorageLegalize(), "float32"),
        ("float8_e5m2", T.FP8ComputeLegalize("float16"), T.FP8StorageLegalize(), "float16"),
    ],
    ids=["bf16", "fp8", "fp8 in fp16"],
)
def test_small_floats(dtype: str, compute: Any, store: Any, wide: str) -> None:
    import ml_dtypes

    kind = getattr(ml_dtypes, dtype)
    a, c = (A / 4).astype(kind), C.astype(kind)
    mod = lowered(SMALL.format(dtype))
    found = compute(mod)
    assert f'T.Cast("{wide}", A' in body(found)
    same(mod, found, a, c)
    same(found, store(found), a, c)
    other = lowered(SMALL.format("float16"))
    assert unchanged(compute, other) and unchanged(store, other)


def test_small_floats_are_computed_in_what_there_is() -> None:
    with pytest.raises(LowerError, match="'float8_e5m2' is no native float"):
        T.FP8ComputeLegalize("float8_e5m2")


WIDE = program("for i in range(n):", "    C[i * 2 % 8] = A[i % 8]")


def test_indices_of_32_bits() -> None:
    mod = lowered(WIDE)
    assert unchanged(T.NarrowDataType(64), mod)
    assert 'T.Cast("int32", n)' not in body(T.NarrowDataType(32)(mod))  # n has no bound
    with pytest.raises(VerifyError, match="32 or 64 bits, not 16"):
        T.NarrowDataType(16)
    found = applied(T.ForceNarrowIndexToInt32(), mod, A, C, 7)
    assert 'range(T.Cast("int32", n))' in found
    with pytest.raises(LowerError, match="2147483648 needs more than 32 bits"):
        T.ForceNarrowIndexToInt32()(lowered(WIDE.replace("i * 2 %", "(i + 2147483648) %")))
    with pytest.raises(LowerError, match=r"buffer '[AC]' holds int64"):
        T.ForceNarrowIndexToInt32()(lowered(WIDE.replace("float32", "int64")))


NEST = program(
    "for i in range(2):",
    "    for j in range(4):",
    "        C[i * 4 + j] = A[i * 4 + j]",
    "for k in T.unroll(2):",
    "    A[k] = T.float32(1)",
)


@pytest.mark.parametrize(
    "given, loops, unrolled",
    [
        ({}, 2, 0),
        ({"auto_max_step": 4}, 1, 0),
        ({"auto_max_step": 8}, 0, 0),
        ({"auto_max_extent": 4}, 0, 0),
        ({"auto_max_extent": 3}, 2, 0),
        ({"auto_max_step": 8, "auto_max_depth": 0}, 1, 0),
        ({"explicit_unroll": False}, 3, 1),
        ({"explicit_unroll": False, "auto_max_step": 8}, 3, 3),
    ],
    ids=str,
)
def test_what_is_unrolled(given: dict[str, Any], loops: int, unrolled: int) -> None:
    for option in (given, T.UnrollLoopConfig(**given)):
        with PassContext(config={"tirx.UnrollLoop": option}):
            found = applied(T.UnrollLoop(), lowered(NEST), A.copy(), C, 0)
        assert found.count("for ") - found.count("in T.grid") * -1 == loops
        assert found.count("T.unroll") == unrolled


def test_register_tiles_may_stay_in_memory() -> None:
    text = program(
        "D = T.alloc_buffer((2,), 'float32', scope='local')",
        "for i in range(2):",
        "    D[i] = A[i]",
        "for i in range(2):",
        "    C[i] = D[i]",
    )
    mod = T.LowerOpaqueBlock()(module(text))
    assert "for" not in body(T.UnrollLoop()(mod))
    with PassContext(config={"tir.UnrollLoop": {"unroll_local_access": False}}):
        assert unchanged(T.UnrollLoop(), mod)


def test_options_of_hoisting() -> None:
    text = program("for i in range(8):", "    if n > 3:", "        C[i] = A[i]")
    mod = lowered(text)
    assert not unchanged(T.HoistExpression(), mod)
    never = T.HoistExpressionConfig(hoisted_conditionals=T.HoistedConditionals.Never)
    with PassContext(config={"s_tir.HoistExpression": never}):
        assert unchanged(T.HoistExpression(), mod)
        assert not unchanged(T.HoistExpression(T.HoistedConditionals.All), mod)
    threads = lowered(
        program(
            'for t in T.thread_binding(8, thread="threadIdx.x"):',
            "    for i in range(8):",
            "        if t < n:",
            "            C[i] = A[i]",
        )
    )
    assert unchanged(T.HoistIfThenElse(), threads)
    config = {"s_tir.HoistIfThenElse": {"support_block_scope_hoisting": True}}
    with PassContext(config=config):
        assert not unchanged(T.HoistIfThenElse(), threads)
        assert unchanged(T.HoistIfThenElse("basic"), threads)


def test_constant_loops_may_stay_whole() -> None:
    two = ("    if i < 5:", "        C[i] = A[i]", "    else:", "        C[i] = A[0]")
    mod = lowered(program("for i in range(8):", *two))
    assert "if" not in body(T.LoopPartition()(mod))
    with PassContext(config={"s_tir.LoopPartition": {"partition_const_loop": False}}):
        assert "range(8)" in body(T.LoopPartition()(mod))


def test_options_that_there_are_not() -> None:
    with pytest.raises(TilewrightError, match="unexpected keyword argument 'nope'"):
        PassContext(config={"tirx.UnrollLoop": {"nope": 1}})
    asked = T.StmtSimplifyConfig(convert_boolean_to_and_of_ors=True)
    missing = pytest.raises(VerifyError, match="ConvertBooleanToAndOfOrs")
    with PassContext(config={"tirx.StmtSimplify": asked}), missing:
        T.StmtSimplify()(lowered(ADD))
    with PassContext(config={"tirx.StmtSimplify": {"transitively_prove_inequalities": True}}):
        assert unchanged(T.StmtSimplify(), lowered(ADD))


def test_compaction_is_strict_or_not() -> None:
    mod = tir.transform.ConvertBlocksToOpaque()(module(ADD))
    assert unchanged(T.CompactBufferAllocation(False), mod)
    assert T.ThreadSync(storage_scope="shared.dyn").scope == T.ThreadSync("shared").scope
