"""Elements outside of their buffer that are accessed for sure, for ``verify``.

``analysis.bounds`` lists what isn't *shown* to be inside, which may still be right. Here is what
can't be: an element that doesn't exist, accessed wherever the function runs. So an index is looked
at where the loops of known bounds around it, each of which runs, are in their first or last
iteration, and vectors in each of their lanes. What stands under a condition, or in a loop that may
be empty, is left alone: passes leave such things behind. Both values of a ``Select`` are evaluated,
so both are accessed. An access by a view is one of the memory that this is a view of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from tilewright.arith import NotEvaluable, evaluate
from tilewright.ir import (
    And,
    Call,
    Expr,
    IntImm,
    Node,
    Or,
    Ramp,
    Var,
    as_int,
    content_mask,
    contents,
    dtypes,
    least_lanes,
    pre_order,
    product,
)
from tilewright.tir.buffer import Buffer, BufferRegion
from tilewright.tir.function import PrimFunc
from tilewright.tir.lanes import scalarized
from tilewright.tir.match_buffer import constant_strides
from tilewright.tir.stmt import (
    AssertStmt,
    Block,
    BlockRealize,
    For,
    IfThenElse,
    SeqStmt,
    While,
)

Places = NDArray[np.int64]
"""What an index is in the iterations that are looked at."""

_MOST_LOOPS = 10
"""Of so many loops around an access all combinations are looked at."""


class Ends:
    """What variables are in the first and last iterations of the loops around, as arrays.

    Each loop has a dimension of its own, so that what is made of several has all combinations.
    """

    def __init__(self) -> None:
        self._values: dict[Var, Places] = {}
        self._loops = 0
        self._regions: dict[Buffer, BufferRegion] = {}
        self._memory: dict[Var, Buffer] = {}

    @contextmanager
    def inside(self, loop: For) -> Iterator[None]:
        """Know the variable of a loop while its body is looked at."""
        low, extent, before = as_int(loop.min), as_int(loop.extent), self._loops
        if low is not None and extent is not None and extent > 0 and before < _MOST_LOOPS:
            self._values[loop.loop_var] = self._side_by_side(sorted({low, low + extent - 1}))
            self._loops += extent > 1
        yield
        self._loops = before

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Know nothing of what is around: an ``init`` runs in some iterations only."""
        around, self._values = self._values, {}
        yield
        self._values = around

    def bind(self, var: Var, value: Expr) -> None:
        """Know a variable that stands for a value."""
        found = self._of(value)
        if found is not None:
            self._values[var] = found

    def owns(self, buffer: Buffer) -> None:
        """Know the memory of a buffer of its own."""
        self._memory[buffer.data] = buffer

    def memory_of(self, symbols: Iterable[object]) -> list[Buffer | None]:
        """Return for each buffer the one whose memory it is in, if that is known."""
        return [self._memory.get(item.data) for item in symbols if type(item) is Buffer]

    def stands_for(self, buffer: Buffer, region: BufferRegion) -> None:
        """Know that a buffer stands for a region of another one."""
        self._regions[buffer] = region

    def outside(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str | None:
        """Say which index is no element of a buffer, if one is in some of these iterations.

        What the buffer is a view of has to have the element, too.
        """
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape)):
            size, reach = as_int(extent), _span(index)
            if size is not None and reach > size:
                where = f"axis {axis} of {buffer.name!r}, whose extent is {size}"
                return f"an index spans {reach} elements of {where}"
        is_view = buffer in self._regions or self._memory.get(buffer.data, buffer) is not buffer
        places = [
            self._elements(index) if is_view or as_int(extent) is not None else None
            for index, extent in zip(indices, buffer.shape)
        ]
        return self._no_element(buffer, places)

    def _no_element(self, buffer: Buffer, places: Sequence[Places | None]) -> str | None:
        for axis, (place, extent) in enumerate(zip(places, buffer.shape)):
            size = as_int(extent)
            if size is None or place is None:
                continue
            least, greatest = int(np.min(place)), int(np.max(place))
            if least < 0 or greatest >= size:
                wrong = least if least < 0 else greatest
                where = f"axis {axis} of {buffer.name!r}, whose extent is {size}"
                return f"index {wrong} is outside of {where}"
        region = self._regions.get(buffer)
        if region is not None:
            first = [self._elements(item.min) for item in region.region]
            inside = [*[np.asarray(0)] * (len(first) - len(places)), *places]
            moved = [None if a is None or b is None else a + b for a, b in zip(first, inside)]
            return self._no_element(region.buffer, moved)
        owner = self._memory.get(buffer.data)
        return None if owner is None or owner is buffer else _beyond(owner, buffer, places)

    def _elements(self, index: Expr) -> Places | None:
        """The values of an index, as an array; ``None`` if they aren't known."""
        if type(index) is IntImm:
            return np.asarray(index.value)
        if dtypes.lanes_of(index.dtype) == 1:
            return self._of(index)
        lane = Var("lane")
        scalar = scalarized(index, lane)
        if scalar is None or dtypes.is_scalable(index.dtype):
            return None
        self._values[lane] = self._side_by_side(range(dtypes.lanes_of(index.dtype)))
        found = self._of(scalar)
        del self._values[lane]
        return found

    def _of(self, expr: Expr) -> Places | None:
        if type(expr) is Var:
            return self._values.get(expr)
        try:
            found: Places = evaluate(expr, self._values)
        except NotEvaluable:
            return None
        return found

    def _side_by_side(self, values: Iterable[int]) -> Places:
        return np.reshape(list(values), (-1, *(1 for _ in range(self._loops))))


def _beyond(owner: Buffer, view: Buffer, places: Sequence[Places | None]) -> str | None:
    """Say that elements of a view lie outside of the memory of the buffer that it is a view of."""
    if owner.strides or owner.elem_offset is not None:
        return None
    begin = 0 if view.elem_offset is None else as_int(view.elem_offset)
    elements = as_int(product(owner.shape))
    if begin is None or elements is None:
        return None
    flat: Places = np.asarray(begin)
    bits = dtypes.bits_of(view.dtype) * dtypes.lanes_of(view.dtype)
    have = elements * dtypes.bits_of(owner.dtype) * dtypes.lanes_of(owner.dtype)
    for place, stride in zip(places, constant_strides(view)):
        if place is None or stride is None:
            return None
        flat = flat + place * stride
    least, greatest = int(np.min(flat)), int(np.max(flat))
    if least >= 0 and (greatest + 1) * bits <= have:
        return None
    wrong = least if least < 0 else greatest
    return (
        f"element {wrong} of {view.name!r} is outside of the memory of {owner.name!r}, which holds "
        f"{have // bits} of its elements"
    )


def _span(index: Expr) -> int:
    """How many elements lie between the outermost lanes of an index at least."""
    stride = as_int(index.stride) if isinstance(index, Ramp) else None
    return (
        1 if stride is None else abs(stride) * (least_lanes(dtypes.lanes_of(index.dtype)) - 1) + 1
    )


def runs_for_sure(func: PrimFunc) -> set[Node]:
    """The statements and expressions that are reached whenever a function runs to its end."""
    has_calls = contents(func.body) & content_mask(Call)
    if has_calls and any(
        type(item) is Call and item.op.name == "ret" for item in pre_order(func.body)
    ):
        return set()
    found: set[Node] = set()
    stack: list[Node] = [func.body]
    while stack:
        item = stack.pop()
        if item not in found:
            found.add(item)
            stack += _reached(item)
    return found


def _reached(item: Node) -> Sequence[Node]:
    """The parts of a node that are reached if it is."""
    if type(item) is For:
        extent = as_int(item.extent)
        return item.child_nodes() if extent is not None and extent > 0 else []
    if (
        type(item) is Block
    ):  # What it declares isn't read, in whatever terms: data may be among them.
        regions = {*item.reads, *item.writes}
        return [part for part in item.child_nodes() if part not in regions]
    if type(item) is BlockRealize:
        return [item.block] if as_int(item.predicate) == 1 else []
    if type(item) is SeqStmt:  # What fails an assertion doesn't go on.
        stops = [at for at, stmt in enumerate(item.stmts) if type(stmt) is AssertStmt]
        return item.stmts[: stops[0] if stops else None]
    if isinstance(item, (IfThenElse, While)):
        return [item.condition]
    if isinstance(item, (And, Or)):
        return [item.a]
    if type(item) is Call and item.op.name == "if_then_else":
        return [item.args[0]]
    # The address of an element that isn't there is no access: it may be what a loop ends at.
    if type(item) is Call and (
        item.op.effect != "pure" or item.op.name in ("address_of", "tile_of")
    ):
        return []
    return item.child_nodes()
