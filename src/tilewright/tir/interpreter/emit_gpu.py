"""Emits the operators of GPUs (``tir/gpu_ops.py``): requests to a warp, or calls of one thread.

What an operand touches is passed as flat memory and places, checked against the buffer's bounds;
what doesn't change from call to call (extents, names, shapes) goes along as a constant.
"""

from __future__ import annotations

from typing import Any, Protocol

from tilewright.ir import Call, Expr, Ramp, const
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.gpu_ops import (
    GPU_OPS,
    THREAD,
    WMMA_OPS,
    Tile,
    is_left_out,
    tile_at,
)

WAITS = {"ptx_wait_barrier": "mbarrier", "ptx_barrier_cluster_wait": "cluster"}
"""What a thread waits at until others, or copies, have arrived; and what the request is called."""
LANES_TAG = "threadIdx.x"


class Emits(Protocol):
    """What writes everything else, as this part sees it."""

    threads: Any

    def expr(self, expr: Expr) -> str: ...
    def memory(self, buffer: Buffer) -> str: ...
    def address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str: ...


def gpu_call(emitter: Emits, node: Call) -> str:
    """Return the text of a call."""
    op = GPU_OPS[node.op.name]
    operands = op.named(node)
    threads = emitter.threads
    texts = []
    for spec, value in zip(op.operands, operands.values()):
        _, is_memory, access = spec.partition(":")
        if is_memory and is_left_out(spec, value):
            texts.append("None")
        elif is_memory:
            texts.append(_memory(emitter, value, op.name, access.rstrip("?")))
        else:
            texts.append(emitter.expr(value))
    if op.level != THREAD:
        return _together(emitter, node, texts)
    brought = f"({', '.join(texts)},)" if texts else "()"
    if not threads.lockstep:
        return f"run_unwatched({op.name!r}, {threads.site(op.name)!r}, {brought})"
    if op.name in WAITS:
        return f"(yield ({WAITS[op.name]!r}, {threads.site(op.name)!r}, {brought}))"
    return f"thread.run({op.name!r}, {threads.site(op.name)!r}, {brought})"


def _together(emitter: Emits, node: Call, texts: list[str]) -> str:
    """What a warp, or a warpgroup, does as one."""
    threads, name = emitter.threads, node.op.name
    brought = f"({', '.join(texts)},)" if texts else "()"
    if threads.lockstep and LANES_TAG in threads.tags:
        return f"(yield ({GPU_OPS[name].level!r}, {threads.site(name)!r}, ({name!r}, {brought})))"
    if name in WMMA_OPS:  # a thread that has no lanes stands for its warp
        return f"run_alone({name!r}, {threads.site(name)!r}, {brought})"
    raise VerifyError(f"{name} is outside of a loop on {LANES_TAG}, whose threads are its lanes")


def _memory(emitter: Emits, pointer: Expr, op: str, access: str) -> str:
    """Text of an operand: memory, first place, and places at the end of first column and row."""
    tile = tile_at(pointer, op)
    buffer = tile.along.buffer
    memory = emitter.memory(buffer)
    emitter.threads.indices = tile.along.indices
    constant = (
        buffer.name,
        tile.rows,
        tile.columns,
        emitter.threads.is_bytewise(buffer),
        emitter.threads.is_private(buffer),
        buffer.scope,
        emitter.threads.number_of(buffer, access),
    )
    first = _place(emitter, tile.along, last=False)
    along = _place(emitter, tile.along, last=True) if tile.columns > 1 else first
    down = first
    if tile.down is not None and tile.rows > 1:
        _check_same_start(tile, op)
        down = _place(emitter, tile.down, last=True)
    loops = emitter.threads.loops() if emitter.threads.report else "()"
    return f"({memory}_np, {first}, {down}, {along}, {constant!r}, {loops})"


def _place(emitter: Emits, load: BufferLoad, *, last: bool) -> str:
    """Place of the first or last element of a load."""
    indices = []
    for index in load.indices:
        if isinstance(index, Ramp):
            end = index.stride * const(index.lanes - 1, index.stride.dtype)
            index = index.base + end if last else index.base
        indices.append(index)
    return emitter.address(load.buffer, tuple(indices))


def _check_same_start(tile: Tile, op: str) -> None:
    assert tile.down is not None
    for load in (tile.down, tile.along):
        if sum(isinstance(index, Ramp) for index in load.indices) > 1:
            raise VerifyError(f"{op}: {load!r} runs along more than one dimension")
