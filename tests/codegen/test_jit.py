"""Compiling LLVM IR text."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from llvm_texts import ADD, UNDOMINATED

from tilewright.codegen.llvm import jit
from tilewright.runtime import Library
from tilewright.support.errors import CodegenError


@pytest.mark.parametrize("passes", jit.PASS_SETS)
def test_compiled_code_runs(passes: str) -> None:
    library = Library([jit.compile_ll(ADD, passes=passes)], ["add"])
    add = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(library.addresses["add"])
    assert add(40, 2) == 42


def test_same_text_gives_the_same_object() -> None:
    assert jit.compile_ll(ADD) == jit.compile_ll(ADD)


def test_fast_passes_put_stack_slots_into_registers() -> None:
    assert "alloca" in jit.optimized_ll(ADD, passes="none")
    assert "alloca" not in jit.optimized_ll(ADD)


def test_conditions_are_combined_only_if_there_are_many() -> None:
    few, many = (
        "define i32 @f(i32 %x0) {\n"
        + "".join(f"  %x{n + 1} = xor i32 %x{n}, -1\n" for n in range(count))
        + f"  ret i32 %x{count}\n}}\n"
        for count in (2, 20)
    )
    assert jit.optimized_ll(few).count("xor") == 2
    assert "xor" not in jit.optimized_ll(many)


def test_other_targets_compile() -> None:
    object_code = jit.compile_ll(ADD, triple="aarch64-unknown-linux-gnu")
    assert object_code[18:20] == b"\xb7\x00"
    text = jit.assembly(ADD, triple="x86_64-unknown-linux-gnu", cpu="x86-64")
    assert "add:" in text


def test_target_machines_are_cached() -> None:
    assert jit.host_machine() is jit.host_machine()


def test_syntax_error_shows_the_line() -> None:
    with pytest.raises(CodegenError) as caught:
        jit.compile_ll(ADD.replace("add i64 %x, %b", "add i64 %x, %nothing"))
    assert "6 |   %r = add i64 %x, %nothing" in str(caught.value)
    assert "^" in str(caught.value)


def test_verifier_error_shows_the_instruction() -> None:
    with pytest.raises(CodegenError, match="does not dominate"):
        jit.compile_ll(UNDOMINATED)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(CodegenError, match="unknown pass set 'O9'"):
        jit.compile_ll(ADD, passes="O9")
    with pytest.raises(CodegenError, match="no target for triple 'z80-unknown-linux-gnu'"):
        jit.compile_ll(ADD, triple="z80-unknown-linux-gnu")


SCALE = """
define void @scale(ptr %a, i64 %n, i64 %stride) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = mul i64 %i, %stride
  %p = getelementptr float, ptr %a, i64 %at
  %x = load float, ptr %p
  %y = fadd float %x, 1.0
  store float %y, ptr %p
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""
BASELINE = ("x86_64-unknown-linux-gnu", "x86-64", "")


def ours(passes: str = "fast") -> str:
    triple, cpu, features = BASELINE
    return jit.assembly(SCALE, triple=triple, cpu=cpu, features=features, passes=passes)


def others() -> str:
    """What somebody else would get from the same LLVM."""
    module, machine = jit._prepare(SCALE, *BASELINE, "fast")
    return str(machine.emit_assembly(module))


def test_the_switch_of_the_process_is_put_back() -> None:
    """Our short pipeline turns strength reduction off; others' compilations still have it."""
    before = others()
    assert ours().count("imul") > before.count("imul")
    assert others() == before


def test_a_process_that_only_compiles_gets_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before, alone = others(), {passes: ours(passes) for passes in jit.PASS_SETS}
    with monkeypatch.context() as patch:
        patch.setattr(jit, "_keeps_switches", False)  # put back afterwards
        jit.keep_switches()
        for passes in (*jit.PASS_SETS, *reversed(jit.PASS_SETS)):
            assert ours(passes) == alone[passes]
        ours()
        assert others() != before  # they do stay
    ours()
    assert others() == before


BY_THREES = [i for start in range(0, 24, 3) for i in (start + 2, start + 1, start)]


@pytest.mark.parametrize(
    ("count", "element", "order"),
    [(24, "int32", BY_THREES), (12, "int64", [6, 5, 4, 3, 10, 9, 8, 7, 11])],
)
@pytest.mark.parametrize("passes", ["none", "fast"])
def test_elements_of_odd_vectors_are_stored_in_any_order(
    count: int, element: str, order: list[int], passes: str
) -> None:
    kind = element.replace("int", "i")
    vector = f"<{count} x {kind}>"
    # An address of an element is aligned to elements, not to vectors.
    lines = [f"%c = load {vector}, ptr %a, align 4", f"%r = add {vector} %c, %c"]
    for i in order:
        lines += [
            f"%e{i} = extractelement {vector} %r, i32 {i}",
            f"%g{i} = getelementptr {kind}, ptr %o, i64 {i}",
            f"store {kind} %e{i}, ptr %g{i}",
        ]
    body = "\n".join(lines)
    text = f"define void @twice(ptr %a, ptr %o) {{\n{body}\nret void\n}}"
    given = np.arange(64, dtype=element)
    made = np.zeros_like(given)
    library = Library([jit.compile_ll(text, passes=passes)], ["twice"])
    twice = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.addresses["twice"])
    twice(given.ctypes.data, made.ctypes.data)
    np.testing.assert_array_equal(made[order], 2 * given[order])
