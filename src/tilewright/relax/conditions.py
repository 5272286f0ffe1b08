"""Requirements of inference rules on sizes: proven, refused, or a condition of the call.

See :mod:`tilewright.arith.requirements`; ``CheckShapes`` turns the conditions into assertions,
which run before the first kernel.
"""

from __future__ import annotations

from tilewright.arith import Condition, collect_conditions, holds_or_stays, same_extent
from tilewright.ir import Expr, ExprLike, as_expr
from tilewright.support.errors import VerifyError

__all__ = ["Condition", "collect_conditions", "require", "require_equal"]


def require(condition: ExprLike, *parts: str | Expr) -> None:
    """Require a condition; ``parts`` are the words and extents of the error message.

    Raises ``VerifyError`` if it surely doesn't.
    """
    if not holds_or_stays(condition, parts):
        raise VerifyError("".join(p if isinstance(p, str) else repr(p) for p in parts))


def require_equal(what: str, a: ExprLike, b: ExprLike) -> None:
    """Require that two extents are equal."""
    if not same_extent(a, b):
        x, y = as_expr(a), as_expr(b)
        require(x == y, f"{what}: ", x, " against ", y)
