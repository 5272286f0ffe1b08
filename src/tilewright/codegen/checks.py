"""What every code generator refuses, in the same words."""

from __future__ import annotations

import re

from tilewright.ir import Call, StringImm, Var
from tilewright.support.errors import CodegenError
from tilewright.tir import VECTORIZED, For


def no_value(variable: Var) -> CodegenError:
    """Return the error for a variable that nothing defines."""
    return CodegenError(
        f"variable {variable.name!r} has no value here: it is neither a parameter nor defined by "
        "an enclosing loop or let"
    )


def check_loop(loop: For) -> None:
    """Raise ``CodegenError`` for a loop that lowering should have taken away."""
    if loop.kind == VECTORIZED:
        raise CodegenError(
            f"loop {loop.loop_var.name!r} is still vectorized: run VectorizeLoop first "
            "(tilewright.driver.lower does)"
        )


def named_by(call: Call, what: str, names: re.Pattern[str]) -> str:
    """Return the name that a call has as its first operand: that of a function, an intrinsic …

    Raises ``CodegenError`` if there is none, or one that isn't among the possible ``names``.
    """
    name = call.args[0]
    if not isinstance(name, StringImm):
        raise CodegenError(f"{call.op.name} takes the {what}'s name first, got {name!r}")
    if not names.fullmatch(name.value):
        raise CodegenError(f"{call.op.name}: {name.value!r} is no {what}'s name")
    return name.value
