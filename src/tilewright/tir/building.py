"""Writing TensorIR in Python: blocks under loops, loads and stores.

For kernels and definitions that are no formula per element (attention, sorting). Each block infers
what it accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tilewright.arith import simplify
from tilewright.ir import TRUE, Expr, ExprLike, Ramp, Range, Var, as_expr, as_int, const
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.attrs import AUTO_STEP, PREFETCH_DISTANCE
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.stmt import (
    SERIAL,
    SPATIAL,
    Block,
    BlockRealize,
    BufferStore,
    For,
    IterVar,
    LetStmt,
    Stmt,
)


class Axis(NamedTuple):
    """A loop around a block and the iteration variable that it drives.

    ``ahead`` asks for memory so many bytes ahead of what the loop reads. ``keep`` says that the
    loop stays one, though what it indexes is small enough for registers.
    """

    name: str
    extent: ExprLike
    loop: str = SERIAL
    kind: str = SPATIAL
    ahead: int = 0
    keep: bool = False


def loop(name: str, extent: ExprLike, body: Callable[[Var], Stmt], kind: str = SERIAL) -> Stmt:
    """A loop from zero."""
    var = Var(name)
    return For(var, const(0), simplify(as_expr(extent)), kind, body(var))


def let(name: str, value: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
    """A statement that uses a value more than once."""
    value = simplify(value)
    if as_int(value) is not None or isinstance(value, Var):
        return body(value)
    var = Var(name, value.dtype)
    return LetStmt(var, value, body(var))


def block(
    name: str,
    axes: Sequence[Axis],
    body: Callable[..., Stmt],
    alloc: Sequence[Buffer] = (),
    annotations: Mapping[str, object] | None = None,
) -> Stmt:
    """Make a block under one loop per axis; ``body`` takes the iteration variables."""
    loops = [Var(axis.name) for axis in axes]
    extents = [simplify(as_expr(axis.extent)) for axis in axes]
    iter_vars = tuple(
        IterVar(Range.from_min_extent(const(0), extent), Var(f"v_{axis.name}"), axis.kind)
        for axis, extent in zip(axes, extents)
    )
    made = Block(
        iter_vars,
        (),
        (),
        name,
        body(*(v.var for v in iter_vars)),
        alloc_buffers=tuple(alloc),
        annotations=dict(annotations or {}),
    )
    reads, writes = block_access_regions(made)
    made = made.replace(reads=tuple(reads), writes=tuple(writes))
    stmt: Stmt = BlockRealize(tuple(loops), TRUE, made)
    for loop, extent, axis in zip(reversed(loops), reversed(extents), reversed(axes)):
        hints = {PREFETCH_DISTANCE: axis.ahead} if axis.ahead else {}
        if axis.keep:
            hints[AUTO_STEP] = 0
        stmt = For(loop, const(0), extent, axis.loop, stmt, annotations=hints)
    return stmt


def store(buffer: Buffer, value: ExprLike, *indices: ExprLike) -> Stmt:
    """``buffer[indices] = value``."""
    return BufferStore(buffer, as_expr(value), tuple(map(as_expr, indices)))


def load(buffer: Buffer, *indices: ExprLike) -> BufferLoad:
    """``buffer[indices]``."""
    return BufferLoad(buffer, tuple(map(as_expr, indices)))


def lanes_from(start: ExprLike, lanes: int) -> Expr:
    """Neighbouring indices, as a vector."""
    return Ramp(as_expr(start), const(1), lanes) if lanes > 1 else as_expr(start)
