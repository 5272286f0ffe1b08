"""Sorting along an axis: ``sort``, ``argsort``, ``topk``.

All are stable: of equal elements the one with the lower index comes first, whatever the direction.
NaN is greater than anything, as in NumPy and PyTorch: last in ascending order, first in descending.

The definition is a bottom-up merge sort of indices. Its block carries the options as the annotation
``SORT``, by which a rule recognises it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.ir import (
    Expr,
    Var,
    and_,
    as_int,
    call,
    ceildiv,
    const,
    dtypes,
    greatest_of,
    least_of,
    minimum,
    not_,
    or_,
    product,
    select,
)
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, extern, require, require_equal, with_conditions
from tilewright.te.arithmetic import cast
from tilewright.tir import Buffer, For, IfThenElse, LetStmt, Stmt, While, decl_buffer, seq
from tilewright.tir.attrs import (
    FLAG,
    INTEGER_DTYPE,
    integer,
    one_of,
    options_of,
    register_annotation,
)
from tilewright.tir.building import Axis, block, load, store
from tilewright.topi.utils import normal_axis, normal_count, ravel

RETURNS = ("both", "values", "indices")

SORT = register_annotation(
    "sort",
    options_of(
        axis=integer(),
        is_ascend=FLAG,
        returns=one_of(*RETURNS),
        count=integer(-1),
        index_dtype=INTEGER_DTYPE,
    ),
    means="On the definition: the fields of ``SortOptions``.",
    read_by=("kernels.problems.sorting", "dlight.cpu.annotated_rows"),
)


@dataclass(frozen=True)
class SortOptions:
    """What distinguishes one sort from another, besides its operand.

    ``count`` is the number of elements to return; ``None`` means all of them.
    """

    axis: int
    is_ascend: bool
    returns: str = "values"
    count: int | None = None
    index_dtype: str = "int64"

    def annotation(self) -> dict[str, Any]:
        """The options as a block annotation: Python values only."""
        return {**asdict(self), "count": -1 if self.count is None else self.count}

    @staticmethod
    def from_annotation(value: Mapping[str, Any]) -> SortOptions:
        """Read what ``annotation`` wrote."""
        count = int(value["count"])
        return SortOptions(
            int(value["axis"]),
            bool(value["is_ascend"]),
            str(value["returns"]),
            None if count < 0 else count,
            str(value["index_dtype"]),
        )


def sort(data: Tensor, axis: int = -1, is_ascend: int | bool = 1) -> Tensor:
    """Sort the elements along an axis; NaN counts as the greatest.

    Zeros of both signs are equal, so their order is unspecified; ``argsort`` is stable.
    """
    options = SortOptions(normal_axis(axis, data.ndim), bool(is_ascend))
    return define_sort(data, options)[0]


@with_conditions
def argsort(
    data: Tensor,
    valid_count: Tensor | None = None,
    axis: int = -1,
    is_ascend: int | bool = 1,
    dtype: str = "float32",
) -> Tensor:
    """Return the indices that would sort the elements, as numbers of ``dtype``.

    ``valid_count`` has a number for each row along the axis (in a vector, or in a tensor of the
    other dimensions): what comes after so many elements stays where it is.

    Raises ``VerifyError`` if there isn't a count for each row.
    """
    axis = normal_axis(axis, data.ndim)
    if valid_count is not None:
        data = _only_valid(data, valid_count, axis, bool(is_ascend))
    places = dtype if dtypes.is_integer(dtype) else "int64"
    made = define_sort(data, SortOptions(axis, bool(is_ascend), "indices", None, places))[0]
    return cast(made, dtype)


def _only_valid(data: Tensor, counts: Tensor, axis: int, is_ascend: bool) -> Tensor:
    """Replace the elements after each row's first ones by what comes last in order.

    Sorting is stable, so that they stay behind equal elements and in their order.
    """
    outer = (*data.shape[:axis], *data.shape[axis + 1 :])
    if counts.ndim != 1 and counts.ndim != len(outer):
        raise VerifyError(
            f"argsort: valid_count needs a number for each row of {list(outer)}, it has shape "
            f"{list(counts.shape)}"
        )
    wanted = outer if counts.ndim == len(outer) else (product(outer),)
    for extent, rows in zip(counts.shape, wanted):
        require_equal("argsort: numbers of valid_count and of rows", extent, rows)
    if dtypes.is_float(data.dtype):
        last = const(math.nan if is_ascend else -math.inf, data.dtype)
    else:
        last = greatest_of(data.dtype) if is_ascend else least_of(data.dtype)

    def element(*i: Expr) -> Expr:
        row = (*i[:axis], *i[axis + 1 :])
        count = counts(*row) if counts.ndim == len(outer) else counts(ravel(row, outer))
        return select(i[axis] < cast_expr(count, "int64"), data(*i), last)

    made: Tensor = compute(data.shape, element, name="valid", tag="injective")
    return made


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: int | bool = False,
    dtype: str = "int64",
) -> Tensor | tuple[Tensor, ...]:
    """Return the first ``k`` elements of the sorted axis: the largest, or with ``is_ascend`` least.

    ``ret_type`` says what is returned: ``"values"``, ``"indices"`` (of ``dtype``) or ``"both"``.
    A ``k`` below 1 means all elements.

    Raises ``VerifyError`` for a ``k`` above the extent, and an unknown ``ret_type``.
    """
    k = normal_count("topk: k", k)
    return first_in_order(data, None if k < 1 else k, axis, ret_type, bool(is_ascend), dtype)


@with_conditions
def first_in_order(
    x: Tensor, count: int | None, axis: int, ret_type: str, is_ascend: bool, dtype: str
) -> Tensor | tuple[Tensor, ...]:
    """As ``topk``, but of no elements for a ``count`` of 0, and of all of them for ``None``."""
    if ret_type not in RETURNS:
        raise VerifyError(f"topk: ret_type must be one of {', '.join(RETURNS)}, got {ret_type!r}")
    axis = normal_axis(axis, x.ndim)
    if count is not None:
        said = f"topk: k must be at most {x.shape[axis]!r}, got {count}"
        require(x.shape[axis] >= count, f"{said}: the extent is ", x.shape[axis])
    wanted = None if count == as_int(x.shape[axis]) else count
    made = define_sort(x, SortOptions(axis, is_ascend, ret_type, wanted, dtype))
    return made if ret_type == "both" else made[0]


def define_sort(x: Tensor, options: SortOptions) -> tuple[Tensor, ...]:
    """Define the results requested by the options: values, indices, or both in this order.

    Raises ``VerifyError`` if the dtype of indices is not an integer.
    """
    if not dtypes.is_integer(options.index_dtype):
        raise VerifyError(f"sort: indices must be integers, not {options.index_dtype}")
    shape = list(x.shape)
    if options.count is not None:
        shape[options.axis] = const(options.count)
    results = [x.dtype] if options.returns != "indices" else []
    if options.returns != "values":
        results.append(options.index_dtype)

    def body(operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        return MergeSort(operands[0], list(outputs), options).build()

    name = "sort" if options.count is None else "topk"
    if options.returns == "indices":
        name = f"arg{name}"
    made = extern([shape] * len(results), [x], body, dtype=results, name=name)
    return tuple(made) if len(results) > 1 else (made,)


class MergeSort:
    """Builds the merge sort: all of it, or the sort of one ``row`` with buffers ``alloc``."""

    def __init__(self, x: Buffer, outputs: list[Buffer], options: SortOptions) -> None:
        self.x, self.outputs, self.options = x, outputs, options
        self.extent = x.shape[options.axis]
        self.order = decl_buffer((self.extent,), "int64", "order")
        self.merged = decl_buffer((self.extent,), "int64", "merged")
        # Length of the sorted runs, and the next place of each of two that are merged.
        self.width, self.left, self.right = (
            decl_buffer((1,), "int64", name, scope="local") for name in ("width", "left", "right")
        )

    def build(self) -> Stmt:
        """Return the block that sorts all rows."""
        extents = [*self.x.shape]
        del extents[self.options.axis]
        return block(
            "sort",
            [Axis(f"i{number}", extent) for number, extent in enumerate(extents)],
            self.row,
            self.alloc,
            {SORT: self.options.annotation()},
        )

    @property
    def alloc(self) -> list[Buffer]:
        """Buffers for a row."""
        return [self.order, self.merged, self.width, self.left, self.right]

    def row(self, *outer: Var) -> Stmt:
        """Sort one row."""
        at = self.options.axis

        def place(index: Expr) -> tuple[Expr, ...]:
            return (*outer[:at], index, *outer[at:])

        def element(place_in_order: Expr) -> Expr:
            return comparable(load(self.x, *place(load(self.order, place_in_order))))

        def give(index: Expr) -> Stmt:
            source = load(self.order, index)
            values: list[Expr] = []
            if self.options.returns != "indices":
                values.append(load(self.x, *place(source)))
            if self.options.returns != "values":
                values.append(cast_expr(source, self.options.index_dtype))
            return seq(*(store(o, value, *place(index)) for o, value in zip(self.outputs, values)))

        width = load(self.width, 0)
        return seq(
            _loop("i", self.extent, lambda i: store(self.order, i, i)),
            store(self.width, 1, 0),
            While(
                width < self.extent,
                seq(
                    _loop(
                        "run", ceildiv(self.extent, width * 2), lambda r: self._merge(r, element)
                    ),
                    _loop("i", self.extent, lambda i: store(self.order, load(self.merged, i), i)),
                    store(self.width, width * 2, 0),
                ),
            ),
            _loop("i", self.outputs[0].shape[at], give),
        )

    def _merge(self, run: Expr, element: Callable[[Expr], Expr]) -> Stmt:
        """Merge two neighbouring runs; the left one goes first if elements are equal."""
        start, middle, stop = (Var(name) for name in ("start", "middle", "stop"))
        width, left, right = load(self.width, 0), load(self.left, 0), load(self.right, 0)

        def step(i: Expr) -> Stmt:
            # Beyond the end of a run, what is compared doesn't matter.
            first = element(minimum(left, self.extent - 1))
            second = element(minimum(right, self.extent - 1))
            from_right = and_(
                right < stop, or_(left >= middle, is_before(second, first, self.options.is_ascend))
            )
            return IfThenElse(
                from_right,
                self._append_next(self.right, start + i),
                self._append_next(self.left, start + i),
            )

        body = seq(
            store(self.left, start, 0),
            store(self.right, middle, 0),
            _loop("i", stop - start, step),
        )
        body = LetStmt(stop, minimum(middle + width, self.extent), body)
        body = LetStmt(middle, minimum(start + width, self.extent), body)
        return LetStmt(start, run * (width * 2), body)

    def _append_next(self, cursor: Buffer, target: Expr) -> Stmt:
        next_place = load(cursor, 0)
        return seq(
            store(self.merged, load(self.order, next_place), target),
            store(cursor, next_place + 1, 0),
        )


def _loop(name: str, extent: Expr, body: Callable[[Var], Stmt]) -> Stmt:
    var = Var(name)
    return For(var, const(0), extent, "serial", body(var))


def comparable(value: Expr) -> Expr:
    """Convert an element to a type that the machine compares."""
    if dtypes.is_bool(value.dtype):
        return cast_expr(value, "int32")
    narrow = dtypes.is_float(value.dtype) and dtypes.bits_of(value.dtype) < 32
    return cast_expr(value, "float32") if narrow else value


def is_before(a: Expr, b: Expr, is_ascend: bool) -> Expr:
    """Whether ``a`` comes strictly before ``b`` in order; NaN is the greatest."""
    low, high = (a, b) if is_ascend else (b, a)
    if not dtypes.is_float(a.dtype):
        return low < high
    return or_(low < high, and_(call("isnan", high), not_(call("isnan", low))))
