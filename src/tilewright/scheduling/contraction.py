"""What a contraction is made of: axes by role, operands by how they are read, blocks around it.

::

    result[b, m, n] = epilogue(sum over k of left[b, m, k] * right[b, k, n])

Rules for sums of products (and for other reductions over what is read often: windows, pooling) ask
the same of a program. :func:`describe` finds it out once; a rule is left with what makes its own
shape of computation. Nothing here is of one kind of target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import uses_var
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
    """What a block reduces: it reads ``loads`` and sums into ``store``, over its ``axes``.

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
        """The axes of the result that have several elements."""
        return tuple(axis for axis in self.spatial if axis.extent != 1)

    def along(self, axis: Axis) -> list[BufferLoad]:
        """The operands that depend on an axis."""
        return [load for load in self.loads if depends(load, axis)]

    def reusing(self, *loads: BufferLoad) -> list[Axis]:
        """The axes of the result along which all of some operands stay the same."""
        return [a for a in self.places if not any(depends(load, a) for load in loads)]

    def other_than(self, *loads: BufferLoad) -> list[BufferLoad]:
        """The operands that aren't among some."""
        return [load for load in self.loads if all(load is not item for item in loads)]

    def taps(self, load: BufferLoad, *axes: Axis) -> list[Axis]:
        """The steps that go along with axes of the result in an operand: those of a window."""
        moving = {d for axis in axes for d in dimensions_of(load, axis)}
        return [a for a in self.steps if not moving.isdisjoint(dimensions_of(load, a))]

    def is_contiguous(self, axis: Axis) -> bool:
        """Whether neighbouring results along an axis lie side by side."""
        return stride(self.store, axis) == 1


@dataclass(frozen=True)
class Contraction(Reduction):
    """A reduction and the blocks around it.

    ``consumers`` read the sums, ``others`` are the rest of the function; ``is_last`` says that
    nothing comes after the consumers.
    """

    consumers: tuple[BlockRV, ...]
    others: tuple[BlockRV, ...]
    is_last: bool

    @property
    def has_one_epilogue(self) -> bool:
        """Whether at most one block follows, and nothing after it."""
        return len(self.consumers) < 2 and self.is_last


def describe(sch: Schedule) -> Contraction | NotApplicable:
    """Begin a rule for functions with one reduction: inline what is cheap, describe it."""
    inline_injective(sch)
    reductions = [rv for rv in leaf_blocks(sch) if not is_injective(sch, rv)]
    if len(reductions) != 1:
        return NotApplicable(f"{len(reductions)} reductions, one is expected")
    return contraction_of(sch, reductions[0])


def contraction_of(sch: Schedule, main: BlockRV) -> Contraction | NotApplicable:
    """Describe a reduction and what is around it, as they are now."""
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
    """Describe what a block reduces."""
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
    """The dimensions whose index an axis is a part of."""
    return [d for d, index in enumerate(access.indices) if uses_var(index, {axis.var})]


def dimension_of(access: BufferLoad | BufferStore, axis: Axis) -> int | None:
    """The dimension that an axis is, by itself and in no other index."""
    using = dimensions_of(access, axis)
    return using[0] if len(using) == 1 and access.indices[using[0]] is axis.var else None


def longest(axes: Sequence[Axis]) -> Axis | None:
    """The axis with the most elements, the first of equal ones."""
    return max(axes, key=lambda axis: work_of([axis]), default=None)
