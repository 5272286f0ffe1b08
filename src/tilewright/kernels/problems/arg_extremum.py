"""Argmax and argmin of rows, as kernels see them: an extremum and its index.

The blocks are compared with the formulas of a search instead of with ``topi``'s definition: the
computation of the elements was inlined into both, so there is no operand to define them from.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import (
    Expr,
    cast,
    dtypes,
    greatest_of,
    least_of,
    maximum,
    minimum,
    or_,
    select,
    structural_equal,
    substitute,
)
from tilewright.scheduling import NotApplicable, block_of, nests_of
from tilewright.scheduling.blocks import inline_injective
from tilewright.tir import (
    REDUCE,
    SPATIAL,
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    IterVar,
    PrimFunc,
)
from tilewright.tir.schedule import Schedule
from tilewright.tir.walk import statements


@dataclass(frozen=True)
class Search:
    """An extremum of rows and its index; ``element`` is a formula of ``rows`` and ``along``."""

    value: Block
    place: Block
    rows: tuple[IterVar, ...]
    along: IterVar
    element: Expr
    least: bool
    last: bool

    @property
    def best(self) -> Buffer:
        """The buffer of the extrema."""
        return self.value.writes[0].buffer

    @property
    def where(self) -> Buffer:
        """The buffer of the indices."""
        return self.place.writes[0].buffer

    @property
    def never(self) -> Expr:
        """The index in an empty row."""
        dtype = self.where.dtype
        return least_of(dtype) if self.last else greatest_of(dtype)

    @property
    def worst(self) -> Expr:
        """The identity: every element is at least as good."""
        dtype = self.best.dtype
        return greatest_of(dtype) if self.least else least_of(dtype)

    def joined_value(self, before: Expr, element: Expr) -> Expr:
        """The better of two elements."""
        return minimum(before, element) if self.least else maximum(before, element)

    def joined_place(self, before: Expr, element: Expr, best: Expr, place: Expr) -> Expr:
        """The index so far, or an element's if that is the extremum."""
        hit = element == best
        if dtypes.is_float(self.best.dtype):
            hit = or_(hit, element != element)
        found = select(hit, place, self.never)
        return maximum(before, found) if self.last else minimum(before, found)

    @property
    def has_nan(self) -> bool:
        """Whether an element may be NaN, which beats any number."""
        return dtypes.is_float(self.best.dtype)

    def replaces(self, element: Expr, before: Expr) -> Expr:
        """Whether a later number of a lane replaces the earlier one."""
        if self.last:
            return element <= before if self.least else element >= before
        return element < before if self.least else element > before


def inline_elements(sch: Schedule) -> None:
    """Inline the computation of the elements, if there may be a search of them."""
    found = statements(sch.mod["main"])
    if sum(type(item) is Block and item.init is not None for item in found) > 1:
        inline_injective(sch)


def read_search(func: PrimFunc) -> Search | NotApplicable:
    """Recognise the search that a function begins with, or say why there is none."""
    nests = nests_of(func)
    if len(nests) < 2:
        return NotApplicable("the function has fewer than two stages")
    value, place = block_of(nests[0]), block_of(nests[1])
    if value is None or place is None:
        return NotApplicable("the function doesn't begin with two blocks under loops")
    rows = tuple(axis for axis in value.iter_vars if axis.kind == SPATIAL)
    along = [axis for axis in value.iter_vars if axis.kind == REDUCE]
    body = value.body
    if (
        len(along) != 1
        or not isinstance(body, BufferStore)
        or len(rows) + 1 != len(value.iter_vars)
    ):
        return NotApplicable("the first block is no reduction of rows")
    if not (hasattr(body.value, "a") and hasattr(body.value, "b")):
        return NotApplicable("the first block is no extremum")
    for least in (False, True):
        for last in (False, True):
            made = Search(value, place, rows, along[0], body.value.b, least, last)
            if _is_search(made):
                return made
    return NotApplicable("the first blocks are not an extremum and its place")


def _is_search(search: Search) -> bool:
    """Whether the two blocks match the definition of a search."""
    value, place, rows = search.value, search.place, search.rows
    same = [axis.kind for axis in place.iter_vars] == [axis.kind for axis in value.iter_vars]
    if not same or len(place.writes) != 1 or len(value.writes) != 1:
        return False
    at = tuple(axis.var for axis in rows)
    before = BufferLoad(search.best, at)
    expected = BufferStore(search.best, search.joined_value(before, search.element), at)
    start = BufferStore(search.best, search.worst, at)
    if not structural_equal((value.body, value.init), (expected, start), map_free_vars=True):
        return False
    theirs = {axis.var: mine.var for axis, mine in zip(place.iter_vars, value.iter_vars)}
    if any(
        not structural_equal(axis.dom.extent, mine.dom.extent, map_free_vars=True)
        for axis, mine in zip(place.iter_vars, value.iter_vars)
    ):
        return False
    found = cast(search.along.var, search.where.dtype)
    old = BufferLoad(search.where, at)
    joined = search.joined_place(old, search.element, before, found)
    expected = BufferStore(search.where, joined, at)
    start = BufferStore(search.where, search.never, at)
    assert place.init is not None
    body, init = (substitute(item, theirs) for item in (place.body, place.init))
    return structural_equal(body, expected, map_free_vars=True) and structural_equal(
        init, start, map_free_vars=True
    )
