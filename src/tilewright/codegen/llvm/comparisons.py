"""Comparisons, ``and`` and ``or``: LLVM's instruction, and the result where it is known."""

from __future__ import annotations

from operator import eq, ge, gt, le, lt, ne

from tilewright.ir import dtypes

_FLOAT = {"EQ": "oeq", "NE": "une", "LT": "olt", "LE": "ole", "GT": "ogt", "GE": "oge"}
_SIGNED = {"EQ": "eq", "NE": "ne", "LT": "slt", "LE": "sle", "GT": "sgt", "GE": "sge"}
_UNSIGNED = {"EQ": "eq", "NE": "ne", "LT": "ult", "LE": "ule", "GT": "ugt", "GE": "uge"}
_OPERATORS = {"EQ": eq, "NE": ne, "LT": lt, "LE": le, "GT": gt, "GE": ge}


def comparison_instruction(name: str, dtype: str) -> str:
    """Return the instruction for an operator on operands of a dtype."""
    if name in ("And", "Or"):
        return name.lower()
    kind = dtypes.kind_of(dtype)
    if kind == "float":
        return f"fcmp {_FLOAT[name]}"
    return f"icmp {(_SIGNED if kind == 'int' else _UNSIGNED)[name]}"


def known_truth(name: str, dtype: str, a: str, b: str) -> str | None:
    """Return what an operator gives for two operands of a dtype, if their texts tell."""
    if name in ("And", "Or"):
        neutral, final = ("true", "false") if name == "And" else ("false", "true")
        if final in (a, b):
            return final
        return b if a == neutral else a if b in (neutral, a) else None
    if not (dtypes.is_integer(dtype) and _is_literal(a) and _is_literal(b)):
        return None
    return "true" if _OPERATORS[name](int(a), int(b)) else "false"


def _is_literal(operand: str) -> bool:
    return operand.lstrip("-").isdigit()
