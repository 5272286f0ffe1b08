"""Lanes of scalable vectors: numbers of lanes that are ``vscale`` times a constant.

``vscale`` is what LLVM calls so: the length of the machine's vectors by the least that their
architecture has (SVE: 128 bits, RVV: 64). It never changes while a program runs.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.contents import SCALABLE, VSCALE, contains
from tilewright.ir.dtype import ScalableLanes
from tilewright.ir.expr import Call, Cast, Expr, IntImm, Mul, builds
from tilewright.ir.expr_convert import as_expr, const
from tilewright.ir.visitor import rewrite_bottom_up
from tilewright.support.errors import VerifyError

#: The greatest ``vscale`` that there is: RVV's vectors have up to 65536 bits (SVE's 2048).
MAX_VSCALE = 1024


def vscale(dtype: str = "int32") -> Expr:
    """Return the number that the lanes of scalable vectors are multiples of."""
    made: Expr = Call.of_fields(VSCALE, (), "int32")
    return made if dtype == "int32" else Cast(dtype, made)


def is_vscale(expr: object) -> bool:
    """Whether an expression is ``vscale`` itself, as an integer of any width."""
    while type(expr) is Cast:
        expr = expr.value
    return type(expr) is Call and expr.op is VSCALE


has_scalable = contains(SCALABLE)
"""Whether a tree has scalable vectors, or ``vscale`` itself."""


@builds
def lanes_number(lanes: Expr) -> int:
    """Return lanes that are given as an expression: a constant, or ``vscale`` times one.

    Raises ``VerifyError`` for anything else.
    """
    made = found_lanes(lanes)
    if made is None:
        raise VerifyError(
            f"the lanes of a vector are a number, or T.vscale() times one that is more than 1: "
            f"got {lanes!r}"
        )
    return made


def found_lanes(lanes: Any) -> int | None:
    """Return lanes that are given as an expression; ``None`` if it can't be any."""
    while type(lanes) is Cast:
        lanes = lanes.value
    if type(lanes) is IntImm:
        return int(lanes.value)
    if type(lanes) is Mul:
        number = lanes.b if is_vscale(lanes.a) else lanes.a if is_vscale(lanes.b) else None
        if type(number) is IntImm and number.value > 1:
            scalable: Any = ScalableLanes(number.value)
            return scalable  # type: ignore[no-any-return]
    return None


def with_vscale(expr: Expr, number: int) -> Expr:
    """Return an index with a number in place of ``vscale``."""

    def known(node: Any) -> Any:
        return IntImm(node.dtype, number) if type(node) is Call and node.op is VSCALE else node

    made: Expr = rewrite_bottom_up(expr, known) if has_scalable(expr) else expr
    return made


def most_lanes(lanes: int) -> int:
    """Return how many lanes a vector has at most."""
    return lanes.factor * MAX_VSCALE if isinstance(lanes, ScalableLanes) else lanes


def least_lanes(lanes: int) -> int:
    """Return how many lanes a vector has at least."""
    return lanes.factor if isinstance(lanes, ScalableLanes) else lanes


@builds
def lane_count(lanes: int, dtype: str = "int32") -> Expr:
    """Return the number of lanes as an expression."""
    if isinstance(lanes, ScalableLanes):
        return Mul(vscale(dtype), as_expr(lanes.factor, dtype))
    return const(lanes, dtype)
