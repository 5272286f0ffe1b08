"""Schedules that rules have in common, and facts that they ask for, under TVM's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.dlight.analysis import SBlockInfo
from tilewright.ir import Expr, as_int, dtypes
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import For
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule


def try_inline(sch: Schedule, blocks: Sequence[SBlockInfo]) -> list[SBlockInfo]:
    """Inline blocks into their users, else into what they use; return those that are left."""
    left = list(blocks)
    while True:
        done = _first(sch.compute_inline, left) or _first(sch.reverse_compute_inline, left)
        if done is None:
            return left
        left.remove(done)


def _first(
    primitive: Callable[[BlockRV], object], blocks: Sequence[SBlockInfo]
) -> SBlockInfo | None:
    for block in blocks:
        try:
            primitive(block.block_rv)
        except ScheduleError:
            continue
        return block
    return None


def try_inline_contiguous_spatial(
    sch: Schedule, block_infos: Sequence[SBlockInfo]
) -> list[SBlockInfo]:
    """Inline spatial blocks as :func:`try_inline` does, but not across other blocks."""
    left: list[SBlockInfo] = []
    spatial: list[SBlockInfo] = []
    for block in block_infos:
        if block.is_injective():
            spatial.append(block)
            continue
        left += [*try_inline(sch, spatial), block]
        spatial = []
    return [*left, *try_inline(sch, spatial)]


def get_bytes(dtype: str) -> int:
    """Return the bytes of an element."""
    return -(-dtypes.bits_of(dtype) * dtypes.lanes_of(dtype) // 8)


def get_extent(sch: Schedule, loop_rv: LoopRV) -> int | Expr:
    """Return how many iterations a loop has: a number, if it is one."""
    extent = sch.get(loop_rv).extent
    number = as_int(extent)
    return extent if number is None else number


def auto_vectorize(sch: Schedule, loop: LoopRV, max_vec: int) -> None:
    """Make vectors of up to ``max_vec`` iterations of a loop, if their number is known."""
    extent = get_extent(sch, loop)
    if isinstance(extent, int):
        sch.vectorize(loop if extent <= max_vec else sch.split(loop, [None, max_vec])[-1])


def max_threads_per_block(target: Target) -> int:
    """Return how many threads a block of a GPU may have; 256 for other targets."""
    return target.gpu.max_threads if target.device_kind == "cuda" else 256


def suggest_threads_per_block(
    target: Target, loops: Sequence[For], max_threads_for_dynamic_loop: int = 32
) -> list[int]:
    """Return how many threads may share each loop's iterations: powers of two.

    Loops of known extent come first. Of the others, each has up to
    ``max_threads_for_dynamic_loop``, and the last one all threads that are left.
    """
    left = _power_of_two(max_threads_per_block(target))
    extents = [as_int(loop.extent) for loop in loops]
    made = [1] * len(loops)
    unknown = [number for number, extent in enumerate(extents) if extent is None]
    for number, extent in enumerate(extents):
        if extent is not None:
            made[number] = min(left, _power_of_two(extent))
            left //= made[number]
    for number in unknown:
        most = left if number == unknown[-1] else _power_of_two(max_threads_for_dynamic_loop)
        made[number] = min(left, most)
        left //= made[number]
    return made


def _power_of_two(number: int) -> int:
    """The largest power of two that isn't larger."""
    return 1 << (max(number, 1).bit_length() - 1)
