"""CUDA C++ of every operator, dtype and width: it compiles, and computes as the interpreter does.

There is no GPU here. NVRTC compiles the text for several architectures; a C++ compiler runs it on
the CPU, with C++ in place of the instructions that a GPU has.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import operator_cases as cases
import pytest

from tests.everyday import few
from tilewright import driver
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.codegen.cuda.nvrtc import compile_text
from tilewright.target import Target

sys.path.insert(0, str(Path(__file__).parent / "cuda"))
from cuda_on_cpu import COMPILER, Program

SHORT = ("int8", "float16", "bfloat16", *cases.FP8)
GROUPS = {
    "arithmetic": cases.at_widths(cases.ARITHMETIC, (4,)),
    "conditions": cases.at_widths(cases.CONDITIONS, (2,)),
    "casts": cases.at_widths(cases.CASTS, (8,)),
    "reinterprets": cases.at_widths(cases.REINTERPRETS, (2,)),
    "functions": cases.FUNCTIONS,
    "formulas": cases.FORMULAS,
}
ARCHS = ("sm_75", "sm_80", "sm_90a", "sm_100a")


def chosen(group: str, number: int, step: int) -> list[cases.Case]:
    """Every ``step``-th case of a group, and of short types more."""
    own = GROUPS[group]
    short = [case for case in own if {case.output, *case.inputs} & {*SHORT}]
    return list(dict.fromkeys([*own[number::step], *short[number % 3 :: 6]]))


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@few("group", GROUPS, every=2)
def test_values(group: str) -> None:
    target = Target("cuda -arch=sm_90a")
    some = chosen(group, 1, 8)
    program = Program(driver.lower(cases.module_of(some, cases.gpu_function), target), target)
    wrong = []
    for case in some:
        result = np.zeros(len(cases.operands(case)[0]), cases.numpy_of(case.output))
        program(f"{case.name}_kernel", Z=result, **dict(zip("ABC", cases.operands(case))))
        wrong.append(cases.check(case, result, cases.expected(case)))
    assert not [text for text in wrong if text]


@pytest.mark.parametrize("arch", ARCHS)
def test_nvrtc_compiles(arch: str) -> None:
    target = Target(f"cuda -arch={arch}")
    some = [case for group in GROUPS for case in chosen(group, ARCHS.index(arch), 20)]
    lowered = driver.lower(cases.module_of(some, cases.gpu_function), target)
    code = emit_kernels(lowered, target)
    compiled = compile_text(code.text, arch)
    assert {*compiled.resources} == {info.symbol for info in code.kernels.values()}
    assert not any(item.spill_bytes for item in compiled.resources.values())
