"""Vector expressions: ramps, broadcasts and shuffles of lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tilewright.ir.dtype import (
    ScalableLanes,
    element_of,
    lanes_of,
    vector_dtype,
)
from tilewright.ir.expr import BUILD, BinaryExpr, Expr, ExprLike, as_exprs
from tilewright.ir.expr_checks import (
    lanes_dtype,
)
from tilewright.ir.node import (
    attr,
    child,
    children,
    derived,
    node,
)
from tilewright.support.errors import VerifyError


def _set_lanes(vector: Ramp | Broadcast, lane: Expr) -> None:
    """Note the lanes of a vector, which may be given as an expression, and its dtype."""
    if isinstance(vector.lanes, Expr):
        object.__setattr__(vector, "lanes", BUILD.lanes_number(vector.lanes))
    object.__setattr__(vector, "dtype", lanes_dtype(lane.dtype, vector.lanes))


@node
class Ramp(Expr):
    """The vector ``base, base + stride, …`` of ``lanes`` lanes, a number or ``T.vscale() * 4``."""

    base: Expr = child()
    stride: Expr = child()
    lanes: int = attr()
    dtype: str = derived()
    field_types: ClassVar = {"lanes": int | ScalableLanes}

    def __post_init__(self) -> None:
        _set_lanes(self, self.base)

    as_children = staticmethod(BinaryExpr.as_children)

    if TYPE_CHECKING:

        def __init__(self, base: ExprLike, stride: ExprLike, lanes: int | Expr) -> None: ...


@node
class Broadcast(Expr):
    """A vector whose ``lanes`` lanes all hold ``value``."""

    value: Expr = child()
    lanes: int = attr()
    dtype: str = derived()
    field_types: ClassVar = {"lanes": int | ScalableLanes}

    def __post_init__(self) -> None:
        _set_lanes(self, self.value)

    as_children = staticmethod(as_exprs)

    if TYPE_CHECKING:

        def __init__(self, value: ExprLike, lanes: int | Expr) -> None: ...


@node
class Shuffle(Expr):
    """Lanes picked by constant ``indices`` from the concatenation of ``vectors``."""

    vectors: tuple[Expr, ...] = children()
    indices: tuple[int, ...] = attr()
    dtype: str = derived()

    def __post_init__(self) -> None:
        if not all(isinstance(vector, Expr) for vector in self.vectors):
            object.__setattr__(self, "vectors", as_exprs(*self.vectors))
        if type(self.indices) is not tuple:
            object.__setattr__(self, "indices", tuple(map(int, self.indices)))
        count = sum(lanes_of(vector.dtype) for vector in self.vectors)
        if not self.indices or not all(0 <= index < count for index in self.indices):
            raise VerifyError(f"Shuffle picks from {count} lanes, got the indices {self.indices}")
        element = element_of(self.vectors[0].dtype)
        object.__setattr__(self, "dtype", vector_dtype(element, len(self.indices)))
