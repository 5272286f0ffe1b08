"""Sorts, as kernels see them: recognised by ``topi``'s definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright import te
from tilewright.ir import Expr, annotated, as_int, const, contains, pre_order
from tilewright.kernels.definition import is_definition
from tilewright.kernels.problems.sort_keys import KeyCoder
from tilewright.scheduling import NotApplicable
from tilewright.tir import Block, Buffer, PrimFunc
from tilewright.tir.building import Axis, load
from tilewright.topi.sort import SORT, SortOptions, define_sort


@dataclass(frozen=True)
class Sorting:
    """A sorting function: its buffers and options; a result that isn't requested is ``None``."""

    x: Buffer
    values: Buffer | None
    indices: Buffer | None
    options: SortOptions

    @property
    def extent(self) -> Expr:
        """Length of the rows."""
        extent: Expr = self.x.shape[self.options.axis]
        return extent

    @property
    def count(self) -> Expr:
        """The number of elements of a row to return."""
        return self.extent if self.options.count is None else const(self.options.count)

    @property
    def rows(self) -> tuple[Expr, ...]:
        """Extents of the other axes."""
        at = self.options.axis
        return (*self.x.shape[:at], *self.x.shape[at + 1 :])

    def place(self, row: Sequence[Expr], index: Expr) -> tuple[Expr, ...]:
        """Indices of an element of a row."""
        at = self.options.axis
        return (*row[:at], index, *row[at:])

    def coder(self, *, exact: bool) -> KeyCoder:
        """The converter of elements to keys."""
        return KeyCoder(self.x.dtype, self.options.is_ascend, exact)

    def read(self, row: Sequence[Expr], index: Expr) -> Expr:
        """An element of a row."""
        return load(self.x, *self.place(row, index))

    def axes(self) -> list[Axis]:
        """Loops over the rows."""
        return [Axis(f"i{number}", extent) for number, extent in enumerate(self.rows)]


_has_sort = contains(annotated(SORT))


def read_sorting(func: PrimFunc) -> Sorting | NotApplicable:
    """Read buffers and options from a function, or say why it is not a sort."""
    if not _has_sort(func.body):
        return NotApplicable("the function is not one sort")
    blocks = [item for item in pre_order(func.body) if isinstance(item, Block)]
    found = [item for item in blocks if SORT in item.annotations]
    if len(found) != 1 or len(blocks) != 2 or not found[0].reads:
        return NotApplicable("the function is not one sort")
    options = SortOptions.from_annotation(found[0].annotations[SORT])
    outputs = [region.buffer for region in found[0].writes]
    x = found[0].reads[0].buffer
    if options.axis >= x.ndim:
        return NotApplicable(f"{x!r} has no axis {options.axis} to sort")
    extent = as_int(x.shape[options.axis])
    if extent is not None and extent < (options.count or 0):
        return NotApplicable(f"{x!r} has fewer than {options.count} elements to sort")
    wanted = 2 if options.returns == "both" else 1
    if len(outputs) != wanted or any(b not in func.buffers for b in (x, *outputs)):
        return NotApplicable("the sort isn't of arguments")
    values = outputs[0] if options.returns != "indices" else None
    indices = outputs[-1] if options.returns != "values" else None
    sorting = Sorting(x, values, indices, options)

    def define(tensors: Mapping[Buffer, te.Tensor]) -> dict[Buffer, te.Tensor]:
        return dict(zip(outputs, define_sort(tensors[x], options)))

    if not is_definition(func, [x], define):
        return NotApplicable("the function is more or less than a sort")
    return sorting
