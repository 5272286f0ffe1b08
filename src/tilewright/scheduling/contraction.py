"""The structure of a contraction: axes by role, operands by how they are read, other blocks.

::

    result[b, m, n] = epilogue(sum over k of left[b, m, k] * right[b, k, n])

Rules for sums of products (and for other reductions that reuse operands: windows, pooling) need the
same facts about a program. :func:`describe` collects them once; a rule adds what is specific to its
own shape of computation. Nothing here depends on the kind of target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import FloorDiv, FloorMod, Var, as_int, pre_order, uses_var
from tilewright.scheduling.blocks import (
    Axis,
    axes_of,
    inline_injective,
    is_injective,
    leaf_blocks,
    loads_of,
    stores_of,
    stride_of,
    work_of,
)
from tilewright.scheduling.rule import NotApplicable
from tilewright.tir import Block, Buffer, BufferLoad, BufferStore
from tilewright.tir.layout_rewrite import constants_of
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV


@dataclass(frozen=True)
class Reduction:
    """A block's reduction: it reads ``loads`` and accumulates into ``store``, over its ``axes``.

    ``constants`` are the operands of the function that are known before it runs.
    """

    main: BlockRV
    block: Block
    axes: tuple[Axis, ...]
    loads: tuple[BufferLoad, ...]
    store: BufferStore
    constants: frozenset[Buffer]

    @property
    def spatial(self) -> tuple[Axis, ...]:
        """The axes of the result."""
        return tuple(axis for axis in self.axes if not axis.is_reduce)

    @property
    def steps(self) -> tuple[Axis, ...]:
        """The axes that are reduced over."""
        return tuple(axis for axis in self.axes if axis.is_reduce)

    @property
    def places(self) -> tuple[Axis, ...]:
        """The axes of the result with more than one element."""
        return tuple(axis for axis in self.spatial if axis.extent != 1)

    def along(self, axis: Axis) -> list[BufferLoad]:
        """The operands that depend on an axis."""
        return [load for load in self.loads if depends(load, axis)]

    def reusing(self, *loads: BufferLoad) -> list[Axis]:
        """The axes of the result on which none of some operands depends."""
        return [a for a in self.places if not any(depends(load, a) for load in loads)]

    def other_than(self, *loads: BufferLoad) -> list[BufferLoad]:
        """The operands other than some."""
        return [load for load in self.loads if all(load is not item for item in loads)]

    def is_read_otherwise(self, load: BufferLoad) -> bool:
        """Whether an operand is read at another place too (both sides of a product with itself)."""
        return any(item.buffer is load.buffer for item in self.other_than(load))

    def taps(self, load: BufferLoad, *axes: Axis) -> list[Axis]:
        """The steps that are added to axes of the result in an operand's index (a window's)."""
        moving = {d for axis in axes for d in dimensions_of(load, axis)}
        return [a for a in self.steps if not moving.isdisjoint(dimensions_of(load, a))]

    def is_contiguous(self, axis: Axis) -> bool:
        """Whether neighbouring results along an axis are contiguous."""
        return stride(self.store, axis) == 1


@dataclass(frozen=True)
class Contraction(Reduction):
    """A reduction and the blocks around it.

    ``consumers`` read the sums, ``others`` are the rest of the function; ``is_last``: nothing comes
    after the consumers.
    """

    consumers: tuple[BlockRV, ...]
    others: tuple[BlockRV, ...]
    is_last: bool

    @property
    def has_one_epilogue(self) -> bool:
        """Whether at most one block follows, and nothing after it."""
        return len(self.consumers) < 2 and self.is_last


def describe(sch: Schedule) -> Contraction | NotApplicable:
    """Begin a rule for functions with one reduction: inline cheap blocks, describe it."""
    inline_injective(sch)
    reductions = [rv for rv in leaf_blocks(sch) if not is_injective(sch, rv)]
    if len(reductions) != 1:
        return NotApplicable(f"{len(reductions)} reductions, one is expected")
    return contraction_of(sch, reductions[0])


def contraction_of(sch: Schedule, main: BlockRV) -> Contraction | NotApplicable:
    """Describe a reduction and the blocks around it in their present state."""
    found = reduction_of(sch, main)
    if isinstance(found, NotApplicable):
        return found
    consumers = sch.get_consumers(main)
    around = {rv.name for rv in (main, *consumers)}
    return Contraction(
        **vars(found),
        consumers=tuple(consumers),
        others=tuple(rv for rv in leaf_blocks(sch) if rv.name not in around),
        is_last=not any(sch.get_consumers(rv) for rv in consumers),
    )


def reduction_of(sch: Schedule, main: BlockRV) -> Reduction | NotApplicable:
    """Describe a block's reduction."""
    block, axes = sch.get(main), axes_of(sch, main)
    stores, loads = stores_of(block), loads_of(block)
    if axes is None:
        return NotApplicable("the loops are not the axes")
    if block.init is None or len(stores) != 1:
        return NotApplicable("no reduction into one buffer that starts by itself")
    constants = constants_of(sch.mod["main"])
    return Reduction(main, block, tuple(axes), tuple(loads), stores[0], constants)


def depends(load: BufferLoad, axis: Axis) -> bool:
    """Whether an operand depends on an axis."""
    return uses_var(load, {axis.var})


def stride(access: BufferLoad | BufferStore, axis: Axis) -> int | None:
    """Elements between neighbours along an axis; 0 for none, ``None`` if not constant."""
    return stride_of(access.indices, access.buffer, axis.var)


def dimensions_of(access: BufferLoad | BufferStore, axis: Axis) -> list[int]:
    """The dimensions whose index depends on an axis."""
    return [d for d, index in enumerate(access.indices) if uses_var(index, {axis.var})]


def dimension_of(access: BufferLoad | BufferStore, axis: Axis) -> int | None:
    """The dimension whose index is just this axis, if the axis is in no other index."""
    using = dimensions_of(access, axis)
    return using[0] if len(using) == 1 and access.indices[using[0]] is axis.var else None


def longest(axes: Sequence[Axis]) -> Axis | None:
    """The axis with the most elements, the first of equal ones."""
    return max(axes, key=lambda axis: work_of([axis]), default=None)


def divisors_of(contraction: Contraction) -> dict[Var, int]:
    """Spatial axes whose quotients or remainders index what a block reads, with the divisors.

    Axes on which only one operand depends are excluded: splitting them gains nothing.
    """
    found: dict[Var, int] = {}
    spatial = {axis.var for axis in contraction.places if len(contraction.along(axis)) > 1}
    for load in contraction.loads:
        for index in load.indices:
            for item in pre_order(index):
                if type(item) not in (FloorDiv, FloorMod):
                    continue
                number = as_int(item.b)  # type: ignore[attr-defined]
                divided = [v for v in spatial if uses_var(item.a, {v})]  # type: ignore[attr-defined]
                if number is None or number < 2 or len(divided) != 1:
                    continue
                if found.setdefault(divided[0], number) != number:
                    del found[divided[0]]
                    spatial.discard(divided[0])
    return found
