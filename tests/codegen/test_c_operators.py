"""Portable C computes what the interpreter does: every operator, dtype and width."""

from __future__ import annotations

import numpy as np
import operator_cases as cases
import pytest

from tests.everyday import few
from tilewright import driver
from tilewright.codegen.c.compiler import c_compiler

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="needs a C compiler")

GROUPS = {
    "arithmetic": [*cases.at_widths(cases.ARITHMETIC, (4,)), *cases.ARITHMETIC[::5]],
    "conditions": [*cases.at_widths(cases.CONDITIONS, (2,)), *cases.CONDITIONS[::5]],
    "casts": cases.at_widths(cases.CASTS, (8,)),
    "reinterprets": cases.at_widths(cases.REINTERPRETS, (2,)),
    "functions": cases.FUNCTIONS,
    "formulas": cases.FORMULAS,
}


@few("group", GROUPS, every=2)
def test_operators(group: str) -> None:
    chosen = GROUPS[group]
    module = driver.compile(cases.module_of(chosen, cases.host_function), "c")
    wrong = []
    for case in chosen:
        result = np.zeros(len(cases.operands(case)[0]), cases.numpy_of(case.output))
        module[case.name](*cases.operands(case), result)
        wrong.append(cases.check(case, result, cases.expected(case)))
    assert not [text for text in wrong if text]
