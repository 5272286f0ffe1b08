"""What inference rules need of sizes: proven, refused, or a condition of their call.

See :mod:`tilewright.arith.requirements`; ``CheckShapes`` makes assertions of the conditions, which
run before the first kernel does.
"""

from __future__ import annotations

from tilewright.arith import Condition, collect_conditions, holds_or_stays, same_extent
from tilewright.ir import Expr, ExprLike, as_expr
from tilewright.support.errors import VerifyError

__all__ = ["Condition", "collect_conditions", "require", "require_equal"]


def require(condition: ExprLike, *parts: str | Expr) -> None:
    """State what must hold; ``parts`` are the words and extents that say why it does not.

    Raises ``VerifyError`` if it surely doesn't.
    """
    if not holds_or_stays(condition, parts):
        raise VerifyError("".join(p if isinstance(p, str) else repr(p) for p in parts))


def require_equal(what: str, a: ExprLike, b: ExprLike) -> None:
    """State that two extents are equal."""
    if not same_extent(a, b):
        x, y = as_expr(a), as_expr(b)
        require(x == y, f"{what}: ", x, " against ", y)
