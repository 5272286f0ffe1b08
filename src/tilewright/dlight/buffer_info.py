"""What custom rules ask about the buffers of a block: which loop goes along each axis."""

from __future__ import annotations

from tilewright.ir import Expr, FloorMod, Var, as_int, dtypes
from tilewright.tir import BufferRegion
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule


class BufferInfo:
    """A region that a block reads or writes, with the loop along each axis.

    ``assoc_lps`` has a loop for each axis whose index is the loop's variable ``v``, or ``v % n``;
    ``None`` for other axes. ``assoc_lps_info`` has the loops themselves.
    """

    def __init__(self, sch: Schedule, block_rv: BlockRV, buf_region: BufferRegion) -> None:
        loops = {sch.get(loop).loop_var: loop for loop in sch.get_loops(block_rv)}
        realize = sch.state.get_block(block_rv)
        of_axis = {
            axis.var: loops.get(value)
            for axis, value in zip(realize.block.iter_vars, realize.iter_values)
            if isinstance(value, Var)
        }
        starts = [_variable(axis.min) for axis in buf_region.region]
        self.buf_region = buf_region
        self.assoc_lps: list[LoopRV | None] = [
            None if v is None else of_axis.get(v) for v in starts
        ]
        self.assoc_lps_info = [None if loop is None else sch.get(loop) for loop in self.assoc_lps]
        self.shape = buf_region.buffer.shape

    def get_scope(self) -> str:
        """Return the memory of the buffer: ``"global"``, ``"shared"`` …"""
        return self.buf_region.buffer.scope

    def get_vecsize(self, buf_index: int = 0, vbits: int = 128) -> int | None:
        """Return how many elements of the last axis may be a vector of at most ``vbits`` bits.

        A power of two that divides the axis and its loop; ``None`` if no loop goes along it, or
        one of both has an extent that is a variable. ``buf_index`` is TVM's, which doesn't use it.
        """
        loop = self.assoc_lps_info[-1] if self.assoc_lps_info else None
        extents = [] if loop is None else [as_int(loop.extent), as_int(self.shape[-1])]
        known = [extent for extent in extents if extent is not None]
        if len(known) < 2:
            return None
        fits = vbits // dtypes.bits_of(self.buf_region.buffer.dtype)
        return min(*(extent & -extent for extent in known), fits)

    def __repr__(self) -> str:
        return f"BufferInfo({self.buf_region!r})"


def _variable(index: Expr) -> Var | None:
    """The variable of an index that is one, or its remainder."""
    value = index.a if isinstance(index, FloorMod) else index
    return value if isinstance(value, Var) else None
