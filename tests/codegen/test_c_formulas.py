"""Our own math functions as C: the CPU's formulas, within the CPU's bounds."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tilewright.codegen.c.formulas import formula
from tilewright.codegen.c.helpers import HELPERS, helper_symbol
from tilewright.codegen.cuda.dialect import cuda_dialect
from tilewright.codegen.cuda.math import EXACT, FAST, table
from tilewright.codegen.llvm.math import MATH_FUNCTIONS, max_ulp
from tilewright.support.errors import CodegenError

BRANCHING = {"sin", "cos", "tan"}


@pytest.mark.parametrize("name", sorted(MATH_FUNCTIONS))
def test_every_function_has_code_on_cuda(name: str) -> None:
    dialect = cuda_dialect(80)
    for element in ("float32", "float64"):
        if name in ("isnan", "isinf", "isfinite", "round") or (name, element) in dialect.math:
            continue
        text = HELPERS[name](dialect, element).text
        assert helper_symbol(name, element) in text and "%" not in text


def test_cudas_own_functions_are_as_exact_as_the_cpus_but_for_those_that_branch() -> None:
    for (name, element), row in EXACT.items():
        if name in MATH_FUNCTIONS and name not in BRANCHING:
            # CUDA states whole units.
            assert row.ulp <= np.ceil(max_ulp(name, element)), name


def test_fast_functions_take_the_place_of_exact_ones() -> None:
    assert (
        table(True)["exp", "float32"]
        == FAST["exp", "float32"].text
        != table(False)["exp", "float32"]
    )
    assert ("erf", "float32") in table(True) and ("erf", "float32") not in table(False)


@pytest.mark.parametrize("name", ["sin", "tan"])
def test_what_branches_has_no_formula(name: str) -> None:
    with pytest.raises(CodegenError, match="of which there is no C"):
        formula(name)(cuda_dialect(80), "float32")


def test_constants_are_those_of_the_cpu() -> None:
    text = formula("exp2")(cuda_dialect(80), "float64").text
    numbers = [word.strip("(),;") for word in text.split() if "0.6931" in word]
    assert any(abs(mpmath.mpf(number) - mpmath.log(2)) < 1e-9 for number in numbers)
