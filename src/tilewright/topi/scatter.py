"""Operators that write where indices say: ``scatter_elements``, ``scatter_nd``, ``index_put``.

Each copies its operand, then goes through the updates in row-major order: of updates of one element
by ``"update"`` the last one stays, and sums are always made in the same order. Negative indices
count from the end of their axis; an update whose index is outside of it even so is left out, so
nothing is ever written outside of the result.

A block has the axes that no index stands for, which may run in any order or at once; the loops over
the indices are inside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tilewright.ir import (
    Expr,
    Var,
    and_,
    as_expr,
    as_int,
    cast,
    const,
    dtypes,
    if_then_else,
    maximum,
    minimum,
    or_,
)
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, extern, require, require_equal, with_conditions
from tilewright.te.arithmetic import broadcast_shape
from tilewright.tir import Buffer, IfThenElse, Stmt, seq
from tilewright.tir.building import Axis, block, let, load, loop, store
from tilewright.topi.utils import is_one, normal_axis, sum_dtype

Combine = Callable[[Expr, Expr], Expr]

_COMBINE: dict[str, tuple[Combine, Combine]] = {
    "update": (lambda old, new: new, lambda old, new: new),
    "add": (lambda old, new: old + new, or_),
    "mul": (lambda old, new: old * new, and_),
    "min": (minimum, and_),
    "max": (maximum, or_),
}
"""What an element becomes, by reduction: of numbers, and of bools."""

REDUCTIONS = (*_COMBINE, "mean")
"""What ``scatter_elements`` and ``scatter_nd`` can do with an update."""


@with_conditions
def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> Tensor:
    """Update the elements of ``data`` whose positions along ``axis`` are given.

    ``updates[i0, …]`` is for ``data[i0, …, indices[i0, …], …]``. Along other axes there may be
    fewer indices than elements, and along all of them fewer indices than updates. ``reduction`` is
    ``"update"``, ``"add"``, ``"mul"``, ``"min"``, ``"max"``, or ``"mean"`` of an element and all of
    its updates (rounded down, of integers).

    Raises ``VerifyError`` if dtypes or numbers of dimensions don't fit, or there are more indices
    than elements along another axis, or than updates.
    """
    what = "scatter_elements"
    axis = normal_axis(axis, data.ndim)
    _check(what, data, updates, reduction)
    require_indices(what, indices)
    if not data.ndim == indices.ndim == updates.ndim:
        raise VerifyError(
            f"{what}: data, indices and updates need one number of dimensions, they have "
            f"{data.ndim}, {indices.ndim} and {updates.ndim}"
        )
    for a, (count, size, there) in enumerate(zip(indices.shape, data.shape, updates.shape)):
        require(
            count <= there, f"{what}: more indices than updates along axis {a}: ", count, " and ",
            there,
        )  # fmt: skip
        if a != axis:
            require(
                count <= size, f"{what}: more indices than elements along axis {a}: ", count,
                " and ", size,
            )  # fmt: skip

    def place(tables: Sequence[Buffer], *i: Var) -> list[Expr]:
        return [load(tables[0], *i) if a == axis else i[a] for a in range(data.ndim)]

    def value(source: Buffer, *i: Var) -> Expr:
        return load(source, *i)

    walk = Walk(indices.shape, {axis}, place, [axis])
    return _reduced(what, data, [indices], updates, walk, value, reduction)


@with_conditions
def scatter_nd(
    data: Tensor, indices: Tensor, updates: Tensor, mode: str = "update", *, index_axis: int = 0
) -> Tensor:
    """Update elements or slices of ``data`` at multi-dimensional indices.

    The ``index_axis`` of ``indices`` goes through the leading axes of ``data``: TVM's has it first,
    ONNX's last. ``updates`` has the shape of the rest of ``indices``, followed by that of the
    other axes of ``data``. ``mode`` is a reduction of ``scatter_elements``.

    Raises ``VerifyError`` if shapes or dtypes don't fit.
    """
    what = "scatter_nd"
    _check(what, data, updates, mode)
    index_axis, depth, outer = indexed(what, data, indices, index_axis)
    shape = (*outer, *data.shape[depth:])
    _require_shape(what, updates, shape)

    def place(tables: Sequence[Buffer], *i: Var) -> list[Expr]:
        first, rest = i[:index_axis], i[index_axis : len(outer)]
        return [
            *(load(tables[0], *first, const(n), *rest) for n in range(depth)),
            *i[len(outer) :],
        ]

    def value(source: Buffer, *i: Var) -> Expr:
        return load(source, *i)

    walk = Walk(shape, set(range(len(outer))), place, range(depth))
    return _reduced(what, data, [indices], updates, walk, value, mode)


@with_conditions
def index_put(
    data: Tensor,
    indices: Sequence[Tensor],
    values: Tensor,
    accumulate: bool = False,
    axis: int = 0,
) -> Tensor:
    """Write, or with ``accumulate`` add, ``values`` at ``data[indices]``, as NumPy indexes.

    The index tensors broadcast together and stand for neighbouring axes, of which ``axis`` is the
    first; ``values`` broadcast to what ``index_tensor`` would return.

    Raises ``VerifyError`` if shapes or dtypes don't fit.
    """
    what = "index_put"
    _check(what, data, values, "add" if accumulate else "update")
    axis, count, common = neighbouring(what, data, indices, axis)
    shape = (*data.shape[:axis], *common, *data.shape[axis + count :])
    _require_broadcast(what, values, shape)
    last = axis + len(common)

    def place(tables: Sequence[Buffer], *i: Var) -> list[Expr]:
        chosen = [_read(table, i[axis:last], common) for table in tables]
        return [*i[:axis], *chosen, *i[last:]]

    def value(source: Buffer, *i: Var) -> Expr:
        return _read(source, i, shape)

    walk = Walk(shape, set(range(axis, last)), place, range(axis, axis + count))
    return _updated(
        what, data, list(indices), values, walk, value, "add" if accumulate else "update"
    )


# ---- the definition ------------------------------------------------------------------------------

Value = Callable[..., Expr]
"""From the buffer of the updates and the indices of one of them to what is written."""


class Walk(NamedTuple):
    """The updates: their number along each axis, and where they go.

    ``place(buffers of indices, *i)`` is where in the result, with negative indices and some that
    are outside along the axes in ``named``. Updates along the axes in ``ordered`` may meet.
    """

    shape: Sequence[Expr]
    ordered: AbstractSet[int]
    place: Callable[..., list[Expr]]
    named: Sequence[int]


def _reduced(
    name: str, data: Tensor, tables: list[Tensor], updates: Tensor, walk: Walk, value: Value,
    reduction: str,
) -> Tensor:  # fmt: skip
    """As ``_updated``, and means."""
    if reduction != "mean":
        return _updated(name, data, tables, updates, walk, value, reduction)
    inner = sum_dtype(data.dtype) if dtypes.is_float(data.dtype) else "int64"

    def converted(x: Tensor) -> Tensor:
        made: Tensor = compute(x.shape, lambda *i: cast(x(*i), inner), name=f"{x.name}_wide")
        return x if x.dtype == inner else made

    sums = _updated(name, converted(data), tables, converted(updates), walk, value, "add")
    once = compute(data.shape, lambda *i: const(1, "int64"), name="once")
    one = lambda updates, *i: const(1, "int64")
    counts = _updated(f"{name}_count", once, tables, None, walk, one, "add")

    def formula(*i: Expr) -> Expr:
        total, number = sums(*i), cast(counts(*i), inner)
        return cast(total / number if dtypes.is_float(inner) else total // number, data.dtype)

    made: Tensor = compute(data.shape, formula, name=f"{name}_mean", tag="elemwise")
    return made


def _updated(
    name: str, data: Tensor, tables: list[Tensor], updates: Tensor | None, walk: Walk,
    value: Value, reduction: str,
) -> Tensor:  # fmt: skip
    """Copy ``data``, then update it."""
    combine = _COMBINE[reduction][dtypes.is_bool(data.dtype)]

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        source, result = operands[0], outputs[0]
        known = operands[1 : 1 + len(tables)]

        def copy(*i: Var) -> Stmt:
            return store(result, load(source, *i), *i)

        def update(*free: Var) -> Stmt:
            rest = iter(free)
            return _loops(walk, [None if n in walk.ordered else next(rest)
                                 for n in range(len(walk.shape))], give)  # fmt: skip

        def give(*i: Var) -> Stmt:
            at = walk.place(known, *i)
            return _at(result, at, walk.named, lambda *at: put(at, i))

        def put(at: Sequence[Expr], i: Sequence[Var]) -> Stmt:
            return store(result, combine(load(result, *at), value(operands[-1], *i)), *at)

        whole = [Axis(f"i{n}", extent) for n, extent in enumerate(result.shape)]
        free = [Axis(f"i{n}", e) for n, e in enumerate(walk.shape) if n not in walk.ordered]
        return seq(block(f"{name}_data", whole, copy), block(name, free, update))

    inputs = [data, *tables, *([] if updates is None else [updates])]
    made: Tensor = extern([data.shape], inputs, body, dtype=[data.dtype], name=name)
    return made


def _loops(walk: Walk, i: Sequence[Var | None], body: Callable[..., Stmt]) -> Stmt:
    """Loops over what is not known of the indices, in row-major order."""
    n = next((n for n, index in enumerate(i) if index is None), None)
    if n is None:
        return body(*i)
    return loop(f"k{n}", walk.shape[n], lambda k: _loops(walk, [*i[:n], k, *i[n + 1 :]], body))


def _at(
    buffer: Buffer, place: Sequence[Expr], named: Sequence[int], body: Callable[..., Stmt]
) -> Stmt:
    """Run ``body`` at a place if it is in the buffer."""

    def resolve(rest: Sequence[int], at: list[Expr], inside: list[Expr]) -> Stmt:
        if not rest:
            return IfThenElse(and_(*inside), body(*at)) if inside else body(*at)
        axis, extent = rest[0], buffer.shape[rest[0]]
        raw = cast(at[axis], "int64")
        counted = if_then_else(raw < 0, raw + extent, raw)

        def known(index: Expr) -> Stmt:
            here = [*at[:axis], index, *at[axis + 1 :]]
            return resolve(rest[1:], here, [*inside, index >= 0, index < extent])

        return let(f"place{axis}", counted, known)

    return resolve(list(named), list(place), [])


def _read(buffer: Buffer, i: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """Read what broadcasts to ``shape`` at the indices of that."""
    first = len(i) - len(buffer.shape)
    return load(
        buffer,
        *(
            const(0) if is_one(extent) and not is_one(target) else index
            for index, extent, target in zip(i[first:], buffer.shape, shape[first:])
        ),
    )


# ---- checks --------------------------------------------------------------------------------------


def require_indices(what: str, indices: Tensor) -> None:
    """Raise ``VerifyError`` unless a tensor holds integers."""
    if not dtypes.is_integer(indices.dtype):
        raise VerifyError(f"{what}: indices must be integers, not {indices.dtype}")


def indexed(
    what: str, data: Tensor, indices: Tensor, index_axis: int, batch_dims: int = 0
) -> tuple[int, int, tuple[Expr, ...]]:
    """What multi-dimensional indices are: where their axis is, its extent, and the other extents.

    Raises ``VerifyError`` if the extent isn't known, or is more than ``data`` has dimensions.
    """
    require_indices(what, indices)
    if indices.ndim == 0:
        raise VerifyError(f"{what}: indices need at least one dimension")
    index_axis = normal_axis(index_axis, indices.ndim)
    depth = as_int(indices.shape[index_axis])
    if depth is None or depth > data.ndim - batch_dims:
        raise VerifyError(
            f"{what}: axis {index_axis} of indices holds an index for each of the first axes of "
            f"data, so its extent is a number up to {data.ndim - batch_dims}; it is "
            f"{indices.shape[index_axis]!r}"
        )
    outer = (*indices.shape[:index_axis], *indices.shape[index_axis + 1 :])
    return index_axis, depth, outer


def neighbouring(
    what: str, data: Tensor, indices: Sequence[Tensor], axis: int
) -> tuple[int, int, tuple[Expr, ...]]:
    """What index tensors for neighbouring axes are: the first axis, their number, common shape.

    Raises ``VerifyError`` if there are none, or more than axes.
    """
    for table in indices:
        require_indices(what, table)
    axis = normal_axis(axis, data.ndim)
    if not 1 <= len(indices) <= data.ndim - axis:
        raise VerifyError(
            f"{what}: from axis {axis} of {data.ndim} dimensions there may be 1 to "
            f"{data.ndim - axis} index tensors, got {len(indices)}"
        )
    return axis, len(indices), broadcast_shape(*(table.shape for table in indices))


def _check(what: str, data: Tensor, updates: Tensor, reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise VerifyError(
            f"{what}: unknown reduction {reduction!r}; known: {', '.join(REDUCTIONS)}"
        )
    if updates.dtype != data.dtype:
        raise VerifyError(
            f"{what}: data is {data.dtype} and the updates are {updates.dtype}: convert one"
        )
    if reduction == "mean" and dtypes.is_bool(data.dtype):
        raise VerifyError(f"{what}: there is no mean of bools")


def _require_shape(what: str, updates: Tensor, shape: Sequence[object]) -> None:
    if updates.ndim != len(shape):
        raise VerifyError(
            f"{what}: the updates need shape {list(shape)}, they have {list(updates.shape)}"
        )
    for a, (extent, wanted) in enumerate(zip(updates.shape, shape)):
        require_equal(f"{what}: extent of axis {a} of the updates", extent, as_expr(wanted))


def _require_broadcast(what: str, values: Tensor, shape: Sequence[Expr]) -> None:
    if values.ndim > len(shape):
        raise VerifyError(
            f"{what}: values of shape {list(values.shape)} do not broadcast to {list(shape)}"
        )
    first = len(shape) - values.ndim
    for a, (extent, wanted) in enumerate(zip(values.shape, shape[first:])):
        if not is_one(extent):
            require_equal(f"{what}: extent of axis {a} of values", extent, wanted)
