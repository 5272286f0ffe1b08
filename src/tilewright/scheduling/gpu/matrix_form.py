"""Contractions as products of matrices: ``C[b, m, n] = sum over k of A[b, m, k] * B[b, n, k]``.

Axes are sorted by role: ``b`` in both operands and the result, ``m`` in the first and the result,
``n`` in the second and the result, ``k`` reduced. Copies of the operands in that form are inserted,
and axes of one role are fused; the copies are computed later where a tile of them is fetched, so
that a convolution is its matrix product without the matrix (implicit GEMM).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.ir import Expr, Range, as_int, collect, pre_order, uses_var
from tilewright.scheduling.blocks import is_injective, leaf_blocks
from tilewright.scheduling.contraction import Contraction, depends
from tilewright.scheduling.rule import NotApplicable
from tilewright.support.errors import ScheduleError
from tilewright.tir import Block, BufferLoad, IterVar
from tilewright.tir.analysis import match_reduction
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.handles import BlockRV

ROLES = "bmnk"
_MOST_INLINED = 256
"""Nodes of a formula that is computed where an operand is fetched: padding, decoding."""


class Operand(NamedTuple):
    """What a product reads: a buffer, and which of its accesses if it is read twice."""

    buffer: str
    access: int | None = None

    def reindexed(self, sch: Schedule, main: BlockRV) -> BlockRV:
        """Copy it into a layout by the axes of the block."""
        asked = ("read", self.buffer)
        made: BlockRV = sch.reindex(main, asked if self.access is None else (*asked, self.access))
        return made


@dataclass(frozen=True)
class MatrixForm:
    """Positions of a block's axes by role, and which operand is the first one."""

    roles: tuple[str, ...]
    """The role of each axis of the block, in order."""
    first: Operand
    """The operand ``A``."""
    second: Operand

    def axes(self, role: str) -> list[int]:
        """Positions of the axes with a role."""
        return [n for n, own in enumerate(self.roles) if own == role]


def matrix_form_of(sch: Schedule, found: Contraction) -> MatrixForm | NotApplicable:
    """Sort the axes of a contraction by role.

    Both operands may be of one buffer: of a matrix and itself, of two windows of it.
    """
    if len(found.loads) != 2:
        return NotApplicable("it isn't a product of two operands, each read once")
    reduction = match_reduction(found.block)
    if reduction is None or reduction.name != "sum" or len(reduction.targets) != 1:
        return NotApplicable("it is no sum")
    a, b = found.loads
    operands = _operands(a, b)
    last = [axis for axis in found.places if found.is_contiguous(axis)]
    if last and depends(a, last[-1]) and not depends(b, last[-1]):
        a, b = b, a  # neighbouring results are along n
        operands = operands[::-1]
    roles = []
    for axis in found.block.iter_vars:
        role = _role(axis, a, b)
        if role is None:
            return NotApplicable(f"axis {axis.var.name} reuses or reduces one operand alone")
        roles.append(role)
    if "k" not in roles or ("m" not in roles and "n" not in roles):
        return NotApplicable("it has no rows and columns, or reduces over nothing")
    return MatrixForm(tuple(roles), *operands)


def _operands(a: BufferLoad, b: BufferLoad) -> tuple[Operand, Operand]:
    """Two operands in the order in which a block reads them, to be copied in any order."""
    if a.buffer is not b.buffer:
        return Operand(a.buffer.name), Operand(b.buffer.name)
    return Operand(a.buffer.name, 0), Operand(b.buffer.name, 1)


def _role(axis: IterVar, a: BufferLoad, b: BufferLoad) -> str | None:
    in_a, in_b = uses_var(a, {axis.var}), uses_var(b, {axis.var})
    if axis.kind == "reduce":
        return "k" if in_a and in_b else None
    if in_a and in_b:
        return "b"
    return "m" if in_a else "n" if in_b else None


def extents_of(block: Block, form: MatrixForm, role: str) -> int | None:
    """All elements along the axes of a role; ``None`` if their number comes with the call."""
    total = 1
    for position in form.axes(role):
        extent = as_int(block.iter_vars[position].dom.extent)
        if extent is None:
            return None
        total *= extent
    return total


def bring_into_form(sch: Schedule, main: BlockRV, form: MatrixForm) -> tuple[BlockRV, BlockRV]:
    """Rewrite a contraction so that it has four axes ``b, m, n, k``, whatever it had.

    Returns the blocks that copy the operands. Raises ``ScheduleError`` if that is impossible.
    """
    # The last access comes first: the others keep their numbers.
    last_first = sorted((form.first, form.second), reverse=True, key=lambda item: item.access or 0)
    copy_of = {operand: operand.reindexed(sch, main) for operand in last_first}
    copies = [copy_of[form.first], copy_of[form.second]]
    domains = [item.dom for item in sch.get(main).iter_vars]
    used = [[n for n, role in enumerate(form.roles) if role in own] for own in ("bmk", "bnk")]
    result = [n for n, role in enumerate(form.roles) if role != "k"]
    writer = sch.reindex(main, ("write", 0))
    for copy, axes, own in zip(copies, used, ("bmk", "bnk")):
        sch.transform_layout(copy, ("write", 0), _fused(form, axes, own, domains))
    sch.transform_layout(main, ("write", 0), _fused(form, result, "bmn", domains))
    everything = list(range(len(form.roles)))
    sch.transform_block_layout(main, _fused(form, everything, ROLES, domains))
    for copy, axes, own in zip(copies, used, ("bmk", "bnk")):
        sch.transform_block_layout(copy, _fused(form, axes, own, domains))
    sch.transform_block_layout(writer, _fused(form, result, "bmn", domains))
    return copies[0], copies[1]


def _fused(
    form: MatrixForm, axes: Sequence[int], roles: str, domains: Sequence[Range]
) -> Callable[..., tuple[Expr | int, ...]]:
    """Map indices of some axes to one index per role."""

    def indices(*i: Expr) -> tuple[Expr | int, ...]:
        made: list[Expr | int] = []
        for role in roles:
            joined: Expr | int = 0
            for place, axis in enumerate(axes):
                if form.roles[axis] == role:
                    joined = joined * domains[axis].extent + i[place]
            made.append(joined)
        return tuple(made)

    return indices


def inline_into(sch: Schedule, rv: BlockRV) -> None:
    """Compute what a block reads of other blocks where it reads it, as far as that is possible."""
    for _ in range(len(leaf_blocks(sch))):
        done = True
        for producer in sch.get_producers(rv):
            if not is_injective(sch, producer) or len(sch.get_consumers(producer)) != 1:
                continue
            if _size_with(sch.get(rv), sch.get(producer)) > _MOST_INLINED:
                continue  # so long a formula would be computed for each tile
            try:
                sch.compute_inline(producer)
            except ScheduleError:
                continue
            done = False
            break
        if done:
            return


def _size_with(block: Block, producer: Block) -> int:
    """Nodes of a block's formula with another one's in place of what it reads of it."""
    made = {region.buffer for region in producer.writes}
    uses = sum(load.buffer in made for load in collect(block.body, BufferLoad))
    sizes = [sum(1 for _ in pre_order(item.body)) for item in (block, producer)]
    return sizes[0] + uses * sizes[1]
