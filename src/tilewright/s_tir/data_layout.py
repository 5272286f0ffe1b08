"""Layouts of tensors by name, and the maps between two of them: ``NCHW`` and ``NCHW16c``.

They are those of operators (``topi.layout``), with TVM's interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import simplify
from tilewright.ir import Expr, Range, Var, as_expr, cast, const, substitute
from tilewright.support.errors import VerifyError
from tilewright.tir import SPATIAL, IterVar
from tilewright.topi.layout import Layout, layout_of


class SLayout:
    """The dimensions of a tensor: capitals are axes, ``16c`` is a block of 16 of axis ``C``.

    ``axes`` are made if they aren't given. Raises ``VerifyError`` for a name that is no layout, and
    for axes that aren't called as those of the name.
    """

    def __init__(
        self, name: str, axes: Sequence[IterVar] | None = None, dtype: str = "int32"
    ) -> None:
        self.layout: Layout = layout_of(name)
        self._names = [f"{size}{axis.lower()}" if size else axis for axis, size in self.layout.dims]
        if axes is None:
            axes = [
                self._axis(item, size, dtype)
                for item, (_, size) in zip(self._names, self.layout.dims)
            ]
        called = [axis.var.name for axis in axes]
        if called != self._names:
            raise VerifyError(f"layout {name} has the axes {self._names}, not {called}")
        self.axes = tuple(axes)
        """An axis for each dimension; the extent of one that isn't a block is a variable."""

    @staticmethod
    def _axis(name: str, size: int, dtype: str) -> IterVar:
        var = Var(name, dtype)
        return IterVar(Range.from_min_extent(const(0, dtype), _extent(var, size)), var, SPATIAL)

    @property
    def _vars(self) -> tuple[Var, ...]:
        return tuple(axis.var for axis in self.axes)

    @property
    def name(self) -> str:
        """The layout's name."""
        return self.layout.name

    def index_of(self, axis: str) -> int:
        """Return the dimension of an axis such as ``C`` or ``16c``; -1 if there is none."""
        return self._names.index(axis) if axis in self._names else -1

    def factor_of(self, axis: str) -> int:
        """Return the size of the block of an axis, named ``C`` or ``c``; -1 if it has none."""
        size = self.layout.block(axis.upper())
        return -1 if size == 1 else size

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> str:
        return self._names[index]

    def __contains__(self, axis: str) -> bool:
        return axis in self._names or any(axis == name.lstrip("0123456789") for name in self._names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SLayout) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"SLayout({self.name})"


class SBijectiveLayout:
    """The maps of indices and shapes between two layouts of the same axes, in both directions.

    Rules are an expression for each dimension of the result, in terms of the variables of the axes
    that they start from. By default they are what the names of the layouts say, and shapes are
    rounded up to whole blocks. Raises ``VerifyError`` if the axes differ, or the number of rules.
    """

    def __init__(
        self,
        src_layout: SLayout | str,
        dst_layout: SLayout | str,
        index_forward_rule: Sequence[Any] | None = None,
        index_backward_rule: Sequence[Any] | None = None,
        shape_forward_rule: Sequence[Any] | None = None,
        shape_backward_rule: Sequence[Any] | None = None,
    ) -> None:
        src, dst = slayout(src_layout), slayout(dst_layout)
        self.src_layout, self.dst_layout = src, dst
        # Refuses other axes.
        self.index_forward_rule = _rule(dst, index_forward_rule, _mapped(src, dst, src._vars))
        self.index_backward_rule = _rule(src, index_backward_rule, _mapped(dst, src, dst._vars))
        self.shape_forward_rule = _rule(dst, shape_forward_rule, _reshaped(src, dst, _extents(src)))
        self.shape_backward_rule = _rule(
            src, shape_backward_rule, _reshaped(dst, src, _extents(dst))
        )

    def forward_index(self, index: Sequence[Any]) -> tuple[Expr, ...]:
        """Return the indices in the second layout of an element of the first."""
        return _by_rule(self.src_layout, self.index_forward_rule, index)

    def backward_index(self, index: Sequence[Any]) -> tuple[Expr, ...]:
        """Return the indices in the first layout of an element of the second."""
        return _by_rule(self.dst_layout, self.index_backward_rule, index)

    def forward_shape(self, shape: Sequence[Any]) -> tuple[Expr, ...]:
        """Return the shape in the second layout of a tensor in the first."""
        return _by_rule(self.src_layout, self.shape_forward_rule, shape)

    def backward_shape(self, shape: Sequence[Any]) -> tuple[Expr, ...]:
        """Return the shape in the first layout of a tensor in the second."""
        return _by_rule(self.dst_layout, self.shape_backward_rule, shape)

    def __repr__(self) -> str:
        return f"SBijectiveLayout({self.src_layout.name}->{self.dst_layout.name})"


def slayout(layout_str: SLayout | str, dtype: str = "int32") -> SLayout:
    """Return the layout of a name; ``dtype`` is that of the variables of its axes."""
    return layout_str if isinstance(layout_str, SLayout) else SLayout(layout_str, dtype=dtype)


def sbijective_layout(src_layout: SLayout | str, dst_layout: SLayout | str) -> SBijectiveLayout:
    """Return the maps between two layouts of the same axes."""
    return SBijectiveLayout(src_layout, dst_layout)


def _extent(var: Var, size: int) -> Expr:
    return const(size, var.dtype) if size else var


def _extents(layout: SLayout) -> list[Expr]:
    return [_extent(var, size) for var, (_, size) in zip(layout._vars, layout.layout.dims)]


def _rule(
    target: SLayout, given: Sequence[Any] | None, usual: tuple[Expr, ...]
) -> tuple[Expr, ...]:
    if given is None:
        return usual
    if len(given) != len(target):
        raise VerifyError(f"layout {target.name} has {len(target)} dimensions, not {len(given)}")
    return tuple(map(as_expr, given))


def _by_rule(source: SLayout, rule: Sequence[Expr], given: Sequence[Any]) -> tuple[Expr, ...]:
    if len(given) != len(source):
        raise VerifyError(f"layout {source.name} has {len(source)} dimensions, got {len(given)}")
    values = dict(zip(source._vars, map(as_expr, given)))
    made = [substitute(item, values) for item in rule]
    dtype = as_expr(given[0]).dtype  # what doesn't depend on the variables has theirs
    return tuple(simplify(item if item.dtype == dtype else cast(item, dtype)) for item in made)


def _mapped(source: SLayout, target: SLayout, index: Sequence[Any]) -> tuple[Expr, ...]:
    if len(index) != len(source):
        raise VerifyError(f"layout {source.name} has {len(source)} dimensions, got {len(index)}")
    found = source.layout.map_to(target.layout).map_indices([as_expr(item) for item in index])
    return tuple(simplify(item) for item in found)


def _reshaped(source: SLayout, target: SLayout, shape: Sequence[Any]) -> tuple[Expr, ...]:
    extents = source.layout.extents([as_expr(item) for item in shape])
    made = []
    for axis, size in target.layout.dims:
        extent, block = as_expr(extents[axis]), target.layout.block(axis)
        made.append(const(size, extent.dtype) if size else (extent + (block - 1)) // block)
    return tuple(simplify(item) for item in made)
