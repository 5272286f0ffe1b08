"""Keys and values of new positions are written into the pages of their sequences.

The block's axes are head, place in a page and element: what they tell apart lies apart, whatever
the table holds, so they run in any order or at once. Sequences and their pages are loops inside, in
order: of two that name one place, the last one's values stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import (
    Expr,
    Var,
    and_,
    as_expr,
    cast,
    ceildiv,
    const,
    floordiv,
    maximum,
    minimum,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, extern, require_equal, with_conditions
from tilewright.tir import Buffer, IfThenElse, Stmt, seq
from tilewright.tir.building import Axis, block, let, load, loop, store
from tilewright.topi.utils import require_ndim


@with_conditions
def append_paged_kv(
    key: Tensor,
    value: Tensor,
    pages: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    counts: Tensor | None = None,
) -> Tensor:
    """Return ``pages`` with the keys and values of each sequence's last positions in their places.

    ``key`` and ``value``: ``[batch, new, key heads, depth]``. ``pages``, ``page_table`` and
    ``lengths`` are those of :func:`paged_attention`, which reads what this writes: the new
    positions are the last ones of each sequence, and ``lengths`` count them. Of a sequence that has
    fewer new positions than others, ``counts`` (int32, ``[batch]``) says how many: the last so many
    rows of its keys and values; none are written of one that has 0.

    Nothing but the places of these positions is written, whatever the table and the lengths hold:
    positions before a sequence or beyond the table, and those of which the table names no page,
    are left out. If two positions have the same place, that of the later sequence, or the later
    entry of the table, stays.

    Raises ``VerifyError`` if shapes or dtypes don't fit each other.
    """
    what = "append_paged_kv"
    tables = [("page_table", page_table), ("lengths", lengths)]
    tables += [] if counts is None else [("counts", counts)]
    for name, tensor, ndim in (("key", key, 4), ("value", value, 4), ("pages", pages, 5)):
        require_ndim(f"{what}: {name}", tensor, ndim)
        if tensor.dtype != pages.dtype:
            raise VerifyError(
                f"{what}: {name} is {tensor.dtype} and the pages are {pages.dtype}: convert one"
            )
    for name, tensor in tables:
        require_ndim(f"{what}: {name}", tensor, 2 if tensor is page_table else 1)
        if tensor.dtype != "int32":
            raise VerifyError(f"{what}: {name} must be int32, got {tensor.dtype}")
        require_equal(f"{what}: batches of key and {name}", key.shape[0], tensor.shape[0])
    require_equal(f"{what}: keys and values in a page", pages.shape[1], const(2))
    for axis, name in enumerate(("batches", "new positions", "heads", "depths")):
        require_equal(f"{what}: {name} of key and value", key.shape[axis], value.shape[axis])
    require_equal(f"{what}: heads of key and pages", key.shape[2], pages.shape[2])
    require_equal(f"{what}: depths of key and pages", key.shape[3], pages.shape[4])

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        (result,) = outputs
        source = operands[2]
        whole = [Axis(f"i{n}", extent) for n, extent in enumerate(result.shape)]
        copy = block(f"{what}_data", whole, lambda *i: store(result, load(source, *i), *i))
        _, _, heads, page_size, depth = result.shape
        places = [Axis("h", heads), Axis("s", page_size), Axis("d", depth)]
        update = block(what, places, lambda *at: _updates(operands, result, *at))
        return seq(copy, update)

    inputs = [key, value, pages, page_table, lengths, *([] if counts is None else [counts])]
    made: Tensor = extern([pages.shape], inputs, body, dtype=[pages.dtype], name=what)
    return made


def _updates(operands: Sequence[Buffer], result: Buffer, h: Var, s: Var, d: Var) -> Stmt:
    """Write element ``d`` of head ``h`` at place ``s`` of all pages that get new positions."""
    key, value, _, table, lengths, *counts = operands
    batch, new = key.shape[:2]
    number, page_size = result.shape[0], result.shape[3]
    most = table.shape[1] * page_size

    def of_sequence(b: Var) -> Stmt:
        end = cast(load(lengths, b), "int64")
        count = minimum(cast(load(counts[0], b), "int64"), new) if counts else new
        first = maximum(end - maximum(count, 0), 0)

        def of_page(begin: Expr, entry: Expr) -> Stmt:
            position = entry * page_size + s
            row = position - (end - new)
            known = [position >= begin, position < minimum(end, most)]
            page = cast(load(table, b, entry), "int64")
            named = lambda page: IfThenElse(
                and_(page >= 0, page < number),
                seq(*(store(result, load(x, b, row, h, d), page, part, h, s, d)
                      for part, x in enumerate((key, value)))),
            )  # fmt: skip
            return IfThenElse(and_(*known), let("page", page, named))

        def pages_of(begin: Expr) -> Stmt:
            # New positions may start at the end of a page.
            touched = ceildiv(maximum(as_expr(new) - 1, 0), page_size) + 1
            return loop("j", touched, lambda j: of_page(begin, floordiv(begin, page_size) + j))

        return let("begin", first, pages_of)

    return loop("b", batch, of_sequence)
