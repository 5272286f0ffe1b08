"""Operators that are formulas: LLVM code computes what the interpreter does."""

from __future__ import annotations

import numpy as np
import operator_cases as cases

from tilewright import driver


def test_formulas() -> None:
    chosen = [*cases.FORMULAS, *cases.at_widths(cases.FORMULAS, (4,))]
    chosen += [case for case in cases.FUNCTIONS if case.name.startswith("hypot")]
    module = driver.compile(cases.module_of(chosen, cases.host_function), "llvm")
    wrong = []
    for case in chosen:
        result = np.zeros(len(cases.operands(case)[0]), cases.numpy_of(case.output))
        module[case.name](*cases.operands(case), result)
        wrong.append(cases.check(case, result, cases.expected(case)))
    assert not [text for text in wrong if text]
