"""Shared by kernels for GPUs: exchange between the threads of a warp.

Each returns a call, which has to be bound to a name where its value is used more than once. All
threads of a block run it.
"""

from __future__ import annotations

from tilewright.ir import Expr, ExprLike, call, const

WARP = 32
"""Threads of a warp."""


def mask_of(threads: int) -> Expr:
    """The lanes that run, in a block of so many threads: whole warps, or part of one."""
    assert threads < WARP or threads % WARP == 0, "blocks are whole warps, or less than one"
    return const(2 ** min(threads, WARP) - 1, "uint32")


def from_other_lane(value: Expr, step: int, width: int, threads: int) -> Expr:
    """The value of the lane whose number differs in the bit ``step``, in segments of ``width``."""
    return _exchange("warp_shuffle_xor", value, step, width, threads)


def from_lane_before(value: Expr, step: int, width: int, threads: int) -> Expr:
    """The value of the lane ``step`` before; the own one of the first lanes of a segment."""
    return _exchange("warp_shuffle_up", value, step, width, threads)


def from_lane(value: Expr, lane: ExprLike, width: int, threads: int) -> Expr:
    """The value of one lane of the segment."""
    return _exchange("warp_shuffle", value, lane, width, threads)


def _exchange(kind: str, value: Expr, operand: ExprLike, width: int, threads: int) -> Expr:
    return call(kind, mask_of(threads), value, operand, width, dtype=value.dtype)


def steps_down(width: int) -> list[int]:
    """The bits of lanes' numbers, the highest first: exchanges that join a segment."""
    return [1 << bit for bit in reversed(range(width.bit_length() - 1))]
