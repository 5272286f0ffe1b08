"""Axes of blocks and of threads: a variable, its range, and what kind of axis it is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from tilewright.ir import (
    Expr,
    ExprLike,
    Node,
    Range,
    Var,
    attr,
    child,
    definition,
    node,
    set_span,
)
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches

SPATIAL = "spatial"
REDUCE = "reduce"
OPAQUE = "opaque"
THREAD_INDEX = "thread_index"
"""The kind of an axis that stands for a number of threads, outside of blocks."""
ITER_KINDS = {"S": SPATIAL, "R": REDUCE, "O": OPAQUE}
_KINDS_OF_ITERS = (SPATIAL, REDUCE, OPAQUE, THREAD_INDEX)
_TVM_KINDS = {0: SPATIAL, 1: THREAD_INDEX, 2: REDUCE, 3: OPAQUE, 4: OPAQUE}
"""Kinds of axes by TVM's numbers; its ``Ordered`` is one that must not be reordered."""


def check_one_of(known: Collection[str], what: str, found: object) -> None:
    """Refuse what is none of the known names."""
    if not isinstance(found, str) or found not in known:
        raise VerifyError(f"unknown {what} {found!r}; {near_matches(str(found), list(known))}")


class _ActsAsVar(Node):
    """Arithmetic and comparisons of an axis: those of its variable."""

    __slots__ = ()
    var: Var

    def expr_ty(self) -> Any:
        """Return the type (``ir.Type``) of the variable."""
        return self.var.ty

    def __add__(self, other: ExprLike) -> Expr:
        return self.var + other

    def __radd__(self, other: ExprLike) -> Expr:
        return other + self.var

    def __sub__(self, other: ExprLike) -> Expr:
        return self.var - other

    def __rsub__(self, other: ExprLike) -> Expr:
        return other - self.var

    def __mul__(self, other: ExprLike) -> Expr:
        return self.var * other

    def __rmul__(self, other: ExprLike) -> Expr:
        return other * self.var

    def __floordiv__(self, other: ExprLike) -> Expr:
        return self.var // other

    def __mod__(self, other: ExprLike) -> Expr:
        return self.var % other

    def __lt__(self, other: ExprLike) -> Expr:
        return self.var < other

    def __le__(self, other: ExprLike) -> Expr:
        return self.var <= other

    def __gt__(self, other: ExprLike) -> Expr:
        return self.var > other

    def __ge__(self, other: ExprLike) -> Expr:
        return self.var >= other

    def astype(self, dtype: str, span: object = None) -> Expr:
        """Convert the variable to another dtype."""
        return self.var.astype(dtype, span)

    def equal(self, other: ExprLike, span: object = None) -> Expr:
        """``self == other`` as an expression; ``==`` asks whether both are one axis."""
        return self.var.equal(other, span)


@node
class IterVar(_ActsAsVar):
    """An axis of a block's domain: variable, range and kind (spatial, reduce, opaque).

    ``dom`` may be given as ``(begin, end)`` and ``var`` by a name; ``iter_type`` is a kind or TVM's
    number of one. ``thread_tag`` is that of an axis of threads (``te.thread_axis``), whose ``dom``
    is ``None`` if there are as many as the launch has.
    """

    var: Var = definition()
    dom: Any = child()
    kind: str = attr()
    thread_tag: str = attr(default="")

    DataPar, ThreadIndex, CommReduce, Ordered, Opaque = range(5)
    Unrolled, Vectorized, Parallelized, Tensorized = range(5, 9)  # of loops here, not of axes

    init_takes_fields = False
    field_types: ClassVar = {"dom": Range | None}

    def __init__(
        self,
        dom: Any,
        var: Any,
        iter_type: int | str,
        thread_tag: str = "",
        span: object = None,
    ) -> None:
        if isinstance(dom, (tuple, list)):
            dom = Range(*dom)
        var = Var(var) if isinstance(var, str) else var
        kind = _TVM_KINDS.get(iter_type, iter_type) if type(iter_type) is int else iter_type
        self.fill(var, dom, kind, thread_tag)
        if span is not None:
            set_span(self, span)

    def __post_init__(self) -> None:
        if type(self.var) is not Var or not (self.dom is None or isinstance(self.dom, Range)):
            raise VerifyError(
                f"an axis has a variable and a range, got {self.var!r} and {self.dom!r}"
            )
        if self.kind not in _KINDS_OF_ITERS:
            check_one_of(_KINDS_OF_ITERS, "kind of axis", self.kind)

    @property
    def iter_type(self) -> int:
        """The kind as TVM's number: ``IterVar.DataPar``, ``IterVar.CommReduce`` …"""
        return next(number for number, kind in _TVM_KINDS.items() if kind == self.kind)

    def as_expr(self) -> Var:
        """Stand for the variable where an expression is expected (``A[i + axis]``)."""
        return self.var

    def __repr__(self) -> str:
        return f"IterVar({self.var.name}, {self.dom!r}, {self.kind})"
