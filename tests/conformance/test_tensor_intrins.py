"""Every registered tensor intrinsic does what its description says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tilewright.tir.schedule  # registers what the package brings
from tilewright.support.errors import VerifyError
from tilewright.tir.analysis.verify import verify
from tilewright.tir.tensor_intrin import TensorIntrin

sys.path.insert(0, str(Path(__file__).parent.parent / "tir" / "schedule"))
import intrin_cases

WRONG = "test_add_two"
# Other tests register wrong ones too, to see them refused; those begin with `test_`.
# Those of GPUs, which are made by a table when they are used, are verified in tests/tir/intrin.
NAMES = [name for name in TensorIntrin.names(later=False) if not name.startswith("test_")]
NAMES += ["test_mma_4x8x3", "test_mma_4x4x4"]


@pytest.mark.parametrize("name", NAMES)
def test_halves_agree(name: str) -> None:
    intrin = TensorIntrin.get(name)
    for half in (intrin.desc, intrin.impl):
        verify(half)
    again = TensorIntrin(intrin.desc, intrin.impl, name=name)
    again.verify(seed=11)
    assert again.checked


def test_halves_that_differ_are_found() -> None:
    intrin = TensorIntrin(intrin_cases.ADD_ONE, TensorIntrin.get(WRONG).impl, name=WRONG)
    with pytest.raises(VerifyError, match="differ in 'Y' by up to 1"):
        intrin.verify()
    assert not intrin.checked


assert tilewright.tir.schedule is not None
