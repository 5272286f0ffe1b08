"""Checking records that strangers wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright import script, te, topi
from tilewright.ir import IRModule
from tilewright.meta_schedule.containment import contained
from tilewright.meta_schedule.database import TuningRecord, Workload
from tilewright.meta_schedule.record_check import REFUSED, RIGHT, WRONG, RecordChecker
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir.schedule import Trace

HEAD = """from tilewright.script import ir as I
from tilewright.script import tir as T


@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64")):
"""


def program(body: str, head: str = HEAD) -> IRModule:
    """A module of one function of ``A`` and ``B``, 8 numbers each; ``&B`` is where they are."""
    body = re.sub("&([AB])", r'T.address_of(\1[0], dtype="handle")', body)
    text = "".join(f"        {line}\n" for line in body.strip().splitlines())
    mod: Any = script.parse(head + text)
    return mod


def record(mod: IRModule) -> TuningRecord:
    return TuningRecord(Trace(), Workload(mod), (1e-3,), Target("native"))


@pytest.fixture(scope="module")
def checker() -> Iterator[RecordChecker]:
    with RecordChecker(timeout_sec=60, memory_bytes=3 << 30) as made:
        yield made


@pytest.mark.parametrize(
    "body, reason",
    [
        ('T.evaluate(T.call_extern("abort", dtype="void"))', "calls 'abort' (call_extern)"),
        ('B[0] = T.call_pure_extern("abs", A[0], dtype="int64")', "'abs' (call_pure_extern)"),
        (
            'T.evaluate(T.call_llvm_intrin("llvm.memset.p0.i64", B.data, T.int8(0), '
            'T.int64(1 << 20), T.bool(False), dtype="void"))',
            "'llvm.memset.p0.i64' (call_llvm_intrin)",
        ),
        ("T.evaluate(&A)", "makes pointers (address_of)"),
        ('T.evaluate(T.atomic_add(&B, T.int64(1)))', "makes pointers"),
        ('T.evaluate(T.constant_data("environ", 8, dtype="handle"))', "(constant_data)"),
        (
            'T.evaluate(T.assume(A[0] < 8, dtype="void"))\nB[A[0]] = T.int64(1)',
            "promises that nothing checks",
        ),
        ('C = T.decl_buffer((8,), "int64", data=B.data)\nC[7] = T.int64(1)', "has views"),
        ('C = T.alloc_buffer((8,), "int64", strides=[4])\nC[7] = T.int64(1)', "has strides"),
        (
            "for i in range(9):\n    if A[0] > 0:\n        B[i] = A[i]",
            "may read out of bounds: index i of dimension 0",
        ),
        (
            'with T.block("B"):\n    T.reads(A[0])\n    T.writes(B[0])\n'
            '    T.block_attr({"trusted_regions": True})\n    B[0] = A[7]',
            "promises that nothing checks (annotation 'trusted_regions')",
        ),
        (
            'with T.block("B"):\n    T.block_attr({"tensor_intrin": "fill"})\n    B[0] = A[7]',
            "scheduled already (annotation 'tensor_intrin')",
        ),
        ('T.func_attr({"tir.read_only": [1]})\nB[0] = A[0]', "(attribute 'tir.read_only')"),
        ('T.func_attr({"tir.apart": [[1, 0]]})\nB[0] = A[0]', "(attribute 'tir.apart')"),
        (
            'T.func_attr({"tir.kernel_abi": {"arguments": [], "symbols": {}}})\nB[0] = A[0]',
            "(attribute 'tir.kernel_abi')",
        ),
        ('T.func_attr({"calling_conv": "x"})\nB[0] = A[0]', "(attribute 'calling_conv')"),
        ("B[T.Ramp(A[0], 1, 4)] = T.Broadcast(T.int64(1), 4)", "may write out of bounds"),
    ],
)  # fmt: skip
def test_programs_that_are_not_contained(body: str, reason: str) -> None:
    with pytest.raises(VerifyError) as caught:
        contained(program(body))
    assert "is not run, for it is from a database" in str(caught.value)
    assert reason in str(caught.value)


def test_allowed_functions_may_get_pointers() -> None:
    mod = program('T.evaluate(T.call_extern("fill", &B, dtype="void"))')
    with pytest.raises(VerifyError, match="'fill'"):
        contained(mod, ["fil"])
    contained(mod, ["fill"])
    mod = program('T.evaluate(T.call_extern("fill", &B, dtype="void"))\nT.evaluate(&B)')
    with pytest.raises(VerifyError, match="makes pointers"):
        contained(mod, ["fill"])


def test_refused_programs_are_not_run(checker: RecordChecker) -> None:
    found = checker.check(record(program('T.evaluate(T.call_extern("abort", dtype="void"))')))
    assert found.verdict == REFUSED
    assert "'abort'" in (found.problem or "")


def test_writes_where_data_say_are_checked(checker: RecordChecker) -> None:
    # Arguments of integers are indices: not negative and below all extents.
    assert checker.check(record(program("for i in range(8):\n    B[A[i]] = A[i]"))).verdict == RIGHT
    found = checker.check(record(program("for i in range(8):\n    B[A[i] + 100] = A[i]")))
    assert found.verdict == WRONG
    assert "a write outside of 'B'" in (found.problem or "")


def test_a_crash_and_a_hang_are_verdicts(checker: RecordChecker) -> None:
    found = checker.check(record(program("for i in range(8):\n    B[i] = A[A[i] + (1 << 50)]")))
    assert found.verdict == WRONG
    assert "SIGSEGV" in (found.problem or "")
    with RecordChecker(timeout_sec=0.7) as hasty:
        found = hasty.check(record(program("while B[0] < T.int64(100):\n    B[0] = T.int64(1)")))
    assert found.verdict == WRONG
    assert "took longer than 0.7 s" in (found.problem or "")
    assert checker.check(record(program("for i in range(8):\n    B[i] = A[i]"))).verdict == RIGHT


def test_memory_is_bounded(checker: RecordChecker) -> None:
    mod = program("B[0] = A[0]", HEAD.replace("(8,)", "(1 << 29,)"))
    found = checker.check(record(mod))
    assert found.verdict == WRONG
    assert "memory" in (found.problem or "").lower()


def test_sorting_and_looking_up_are_contained(checker: RecordChecker) -> None:
    x = te.placeholder((2, 9), "float32", name="x")
    table, rows = te.placeholder((5, 4), "float32"), te.placeholder((3,), "int64")
    for result, arguments in (
        (topi.sort(x), [x]),
        (topi.take(table, rows, axis=0), [table, rows]),
    ):
        mod = IRModule({"main": te.create_prim_func([*arguments, result])})
        assert checker.check(record(mod)).verdict == RIGHT
