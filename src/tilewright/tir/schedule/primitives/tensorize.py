"""``tensorize``: a nest is replaced by a tensor intrinsic that computes the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import Expr, Range, const
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.tir import (
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    MatchBufferRegion,
    PrimFunc,
    renew_definitions,
)
from tilewright.tir.analysis import undeclared_accesses
from tilewright.tir.attrs import TENSOR_INTRIN
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives._tensor_match import (
    Axis,
    Match,
    Nest,
    Unreadable,
    assignments,
    description,
    match_body,
    read_nest,
)
from tilewright.tir.schedule.primitives.blockize import blockize
from tilewright.tir.stmt import Stmt
from tilewright.tir.tensor_intrin import TensorIntrin
from tilewright.tir.walk import child_blocks

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def tensorize(
    sch: Schedule,
    block_or_loop: BlockRV | LoopRV,
    tensor_intrin: str,
    preserve_unit_iters: bool = True,
) -> BlockRV:
    """Replace a nest by a tensor intrinsic whose description it matches.

    Given a loop, its nest is turned into a block first, as by ``blockize``. The nest's loops may be
    in any order and split further, if the order of its instances doesn't matter. Returns the block.
    The intrinsic's description and implementation are compared on random data when it is first
    used.

    Preconditions:
        - the intrinsic is registered, and its implementation computes what its description says
        - below a loop there is one block, which ``blockize`` accepts
        - the block holds one nest that starts at zero, without init, predicate and own buffers
        - the iterators of the nest are those of the description, by kind and extent
        - the block computes what the description says, in the scopes it says, into a buffer that it
          uses for nothing else
        - every parameter of the intrinsic is accessed by the description
    Before:
        for i0, i1 in T.grid(8, 16):
            with T.block("B"):
                vi = T.axis.spatial(128, i0 * 16 + i1)
                B[vi] = A[vi] + T.float32(1)
    After ``tensorize(i1, "add_one_16")``:
        for i0 in range(8):
            with T.block("B_o"):
                vi_o = T.axis.spatial(8, i0)
                T.reads(A[vi_o * 16:vi_o * 16 + 16])
                T.writes(B[vi_o * 16:vi_o * 16 + 16])
                T.block_attr({"tensor_intrin": "add_one_16"})
                X = T.match_buffer(A[vi_o * 16:vi_o * 16 + 16], (16,), "float32")
                Y = T.match_buffer(B[vi_o * 16:vi_o * 16 + 16], (16,), "float32")
                Y[T.Ramp(0, 1, 16)] = X[T.Ramp(0, 1, 16)] + T.Broadcast(T.float32(1), 16)
    """
    intrin = TensorIntrin.get(tensor_intrin)
    try:
        intrin.verify()
    except VerifyError as error:
        raise sch.error(error.message) from error
    if isinstance(block_or_loop, LoopRV):
        blocks = child_blocks(sch.state.get_loop(block_or_loop))
        if len(blocks) != 1:
            raise sch.error(
                f"there are {len(blocks)} blocks below the loop, an intrinsic stands for one",
                *blocks[:2],
            )
        rv: BlockRV = blockize(sch, block_or_loop, preserve_unit_iters)
    else:
        rv = block_or_loop
    realize = sch.state.get_block(rv)
    found = _match(sch, realize, intrin)
    block = _implemented(sch, rv.func, realize.block, intrin, found)
    sch.state.replace(realize.block, block)
    made = sch.state.get_block(rv)
    for verb, buffer, _ in undeclared_accesses(made.block, sch.state.axes_around(made)):
        raise sch.error(
            f"what tensor intrinsic {intrin.name!r} {verb} of {buffer.name} is not surely in the "
            f"regions of block {made.block.name!r}",
            made,
            remedy="indices from memory leave too much open; choose loops that they don't vary in",
        )
    return rv


def _match(sch: Schedule, realize: BlockRealize, intrin: TensorIntrin) -> Match:
    """Find the description in a block's nest."""

    def fail(why: str) -> ScheduleError:
        return sch.error(
            f"the program does not do what tensor intrinsic {intrin.name!r} describes: {why}",
            realize,
            remedy="compare the block with the description, tensor_intrin.desc",
        )

    analyzer = sch.state.analyzer_at(realize)
    for iter_var in realize.block.iter_vars:
        analyzer.bind(iter_var.var, iter_var.dom)
    try:
        mine = read_nest(realize.block.body, analyzer)
        theirs = description(intrin.desc).nest
    except Unreadable as error:
        raise fail(str(error)) from None
    for axis in mine.axes:
        analyzer.bind(axis.var, Range.from_min_extent(const(0, axis.var.dtype), axis.extent))

    def fits(wanted: Axis, offered: Axis) -> bool:
        same_kind = not wanted.kind or not offered.kind or wanted.kind == offered.kind
        return same_kind and analyzer.can_prove_equal(wanted.extent, offered.extent)

    orders = list(assignments(theirs.axes, mine.axes, fits))
    if len(mine.axes) != len(theirs.axes):
        orders = []
    if mine.ordered or theirs.ordered:
        orders = [order for order in orders if order == list(mine.axes)]
    if not orders:
        raise fail(
            f"its iterators are {_listed(mine)}, the description has {_listed(theirs)}"
            + (f"; their order matters, since {mine.reason}" if mine.ordered else "")
        )
    found, why = match_body(mine, theirs, iter(orders), analyzer)
    if found is None:
        raise fail(why)
    return found


def _listed(nest: Nest) -> str:
    return "[" + ", ".join(f"{axis.kind} {axis.extent!r}".strip() for axis in nest.axes) + "]"


def _implemented(
    sch: Schedule, func_name: str, block: Block, intrin: TensorIntrin, found: Match
) -> Block:
    """Return ``block`` with the implementation as its body, on matched regions of its buffers."""
    impl: PrimFunc = renew_definitions(intrin.impl)
    matches = []
    for wanted, buffer in zip(intrin.desc.buffers, impl.buffers):
        mine: Buffer | None = found.buffers.get(wanted)
        if mine is None:
            raise sch.error(
                f"parameter {wanted.name!r} of tensor intrinsic {intrin.name!r} is not used"
            )
        skipped = mine.ndim - wanted.ndim
        extents = [const(1)] * skipped + list(wanted.shape)
        region = tuple(
            Range.from_min_extent(low, extent) for low, extent in zip(found.starts[wanted], extents)
        )
        matches.append(MatchBufferRegion(buffer, BufferRegion(mine, region)))
    body = impl.body
    allocated: tuple[Buffer, ...] = ()
    match_buffers = tuple(matches)
    # The root block, and one that only says what is read and written, dissolve in this block.
    for _ in range(2):
        if type(body) is BlockRealize and not body.block.iter_vars and body.block.init is None:
            allocated = (*allocated, *body.block.alloc_buffers)
            match_buffers = (*match_buffers, *body.block.match_buffers)
            body = body.block.body
    return block.replace(
        body=_with_fresh_names(sch, func_name, body),
        alloc_buffers=(*block.alloc_buffers, *allocated),
        match_buffers=(*block.match_buffers, *match_buffers),
        annotations={**block.annotations, TENSOR_INTRIN: intrin.name},
    )


def _with_fresh_names(sch: Schedule, func_name: str, body: Stmt) -> Any:
    """Rename the implementation's blocks to names that the function doesn't have yet."""
    taken: set[str] = set()

    def rename(block: Block) -> Block:
        name = sch.state.fresh_block_name(func_name, block.name)
        while name in taken:
            name = sch.state.fresh_block_name(func_name, name + "_")
        taken.add(name)
        return block if name == block.name else block.replace(name=name)

    def go(node: Any) -> Any:
        if isinstance(node, Expr):
            return node
        made = node.map_children(go)
        return rename(made) if type(made) is Block else made

    return go(body)
