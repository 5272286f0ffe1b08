"""Products of signed bytes by instructions for unsigned ones, used by rules."""

from __future__ import annotations

from tilewright.kernels.cpu.unsigned_product.kernel import (
    UNSIGNED_OPERAND,
    has_rows_to_sum,
    reads,
    schedule_row_sums,
    sums_of,
    wants_unsigned,
)
from tilewright.kernels.cpu.unsigned_product.operands import dot_operands

__all__ = [
    "UNSIGNED_OPERAND",
    "dot_operands",
    "has_rows_to_sum",
    "reads",
    "schedule_row_sums",
    "sums_of",
    "wants_unsigned",
]
