"""Products of signed bytes by instructions that take unsigned times signed ones.

``sum(a * b)`` is ``sum((a + 128) * b) - 128 * sum(b)``, and ``a + 128`` is ``a`` with its highest
bit flipped. The kernel ``unsigned_operand`` rewrites a function accordingly: the operand is flipped
once, the sums of the other are computed once, by dot products with a word of 128s, and subtracted
afterwards. All of this is exact, since sums wrap.

Weights are flipped where they are packed, when the program is built if they are constant: then each
call sums rows of the other operand, and neither writes a copy of it nor reads weights twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir import (
    Expr,
    Var,
    as_int,
    call,
    cast,
    const,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.kernels.cpu.unsigned_product.operands import dot_operands
from tilewright.scheduling import (
    block_named,
    block_of,
    nest_of,
    over,
    replaced_nest,
    with_block,
)
from tilewright.scheduling.cpu import SEPARATE, Axis, axes_of, parallelize, work_of
from tilewright.target import Target
from tilewright.tir import (
    REDUCE,
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    PrimFunc,
    Stmt,
    decl_buffer,
    fresh_name,
)
from tilewright.tir.intrin import dot_product_of
from tilewright.tir.op import bitwise_xor
from tilewright.tir.schedule import KERNELS, Schedule
from tilewright.tir.schedule.handles import BlockRV

UNSIGNED_OPERAND = "unsigned_operand"
_TOP = 128
_WORD = 4
# Lanes of the vectors that rows are summed by.
_LANES = 16


def wants_unsigned(target: Target) -> bool:
    """Whether a target multiplies unsigned by signed bytes, but not signed by signed ones."""
    has = target.has("avx512vnni") or target.has("avxvnni")
    return has and not target.has("avxvnniint8")


def has_rows_to_sum(block: Block, load: BufferLoad, reduce: Axis) -> bool:
    """Whether an operand is reduced in rows along an axis, whole vectors of dot products long."""
    *others, last = load.indices
    if sum(axis.kind == REDUCE for axis in block.iter_vars) != 1:
        return False
    whole = reduce.extent is not None and reduce.extent % (_WORD * _LANES) == 0
    direct = all(isinstance(index, Var) or as_int(index) is not None for index in others)
    return whole and direct and last is reduce.var and any(isinstance(i, Var) for i in others)


def reads(sch: Schedule, rv: BlockRV, buffer: Buffer) -> bool:
    """Whether a block reads a buffer."""
    return any(region.buffer is buffer for region in sch.get(rv).reads)


def schedule_row_sums(sch: Schedule, sums: BlockRV, target: Target) -> list[BlockRV]:
    """Sum rows of words by dot products, vectors at a time; return the new blocks."""
    axes = axes_of(sch, sums)
    dot = dot_product_of("uint8", "int8", "int32")
    assert axes is not None and dot is not None
    (deep,) = [axis for axis in axes if axis.is_reduce]
    words, rows = (deep.extent or 0) // _WORD, len(axes) - 1
    lanes = max(n for n in (_LANES, 2 * _LANES, 4 * _LANES) if words % n == 0)
    _, lane, _ = sch.split(deep.loop, [None, lanes, _WORD])
    partial = sch.rfactor(lane, rows)
    sch.reverse_compute_at(sums, sch.get_loops(partial)[rows - 1])
    loops = sch.get_loops(partial)
    steps, lane, neighbour = loops[rows:]
    sch.set_scope(partial, 0, "local")
    init = sch.decompose_reduction(partial, steps)
    sch.tensorize(neighbour, dot.name)
    sch.vectorize(lane)
    sch.vectorize(sch.get_loops(init)[-1])
    parallelize(sch, loops[:rows], target, work_of(axes) // _LANES)
    return [partial, init]


@KERNELS.decorator(UNSIGNED_OPERAND)
def unsigned_operand(func: PrimFunc, options: Mapping[str, object]) -> Block | str:
    """The function with an unsigned operand in place of a signed one.

    Options name the ``block``, the operand that is ``turned`` (flipped) and the axis ``along``
    which four neighbours form a word. The block :func:`sums_of` computes the sums of the other
    operand.
    """
    block = block_named(func, options.get("block"))
    found = None if block is None else dot_operands(block)
    if block is None or found is None:
        return f"{options.get('block')!r} is no block that sums products of small numbers"
    dot, *factors = found
    turned = [load for load in factors if load.buffer.name == options.get("turned")]
    axes = [axis.var for axis in block.iter_vars if axis.kind == REDUCE]
    along = [var for var in axes if var.name == options.get("along")]
    if not isinstance(block.body, BufferStore) or (dot.a, dot.b) != ("int8", "int8"):
        return "operands are not both int8"
    if len(turned) != 1 or len(along) != 1:
        return f"{options.get('turned')!r} along {options.get('along')!r} is no operand and axis"
    (other,) = [load for load in factors if load is not turned[0]]
    made_nests = _Nests(func, block, turned[0], other, along[0])
    made = replaced_nest(func, block, made_nests.nests, made_nests.buffers)
    return "the block's loops are not by themselves" if made is None else made


def sums_of(operand: Buffer) -> str:
    """The name of the sums of an operand, before it is made unique."""
    return f"{operand.name}_sum"


class _Nests:
    """The buffers and nests that replace a sum of products."""

    def __init__(
        self, func: PrimFunc, block: Block, turned: BufferLoad, other: BufferLoad, reduce: Var
    ) -> None:
        self.block, self.turned, self.other, self.reduce = block, turned, other, reduce
        assert isinstance(block.body, BufferStore)
        self.store = block.body
        taken = {buffer.name for buffer in (*func.buffers, *func.root.alloc_buffers)}
        taken |= {item.name for item in pre_order(func.body) if isinstance(item, Block)}
        total = self.store.buffer
        self.axes = [
            axis for axis in block.iter_vars if axis.kind == REDUCE or uses_var(other, {axis.var})
        ]
        kept = [axis for axis in self.axes if axis.kind != REDUCE]
        self.kept = [axis.var for axis in kept]

        def buffer(base: str, shape: Sequence[Expr], dtype: str) -> Buffer:
            return decl_buffer(shape, dtype, fresh_name(base, taken))

        self.unsigned = buffer(f"{turned.buffer.name}_unsigned", turned.buffer.shape, "uint8")
        self.tops = buffer("tops", (const(_WORD),), "uint8")
        self.sums = buffer(sums_of(other.buffer), [axis.dom.extent for axis in kept], total.dtype)
        self.raw = buffer(f"{total.name}_raw", total.shape, total.dtype)
        self.buffers = (self.unsigned, self.tops, self.sums, self.raw)

    def nests(self, nest: Stmt) -> list[Stmt]:
        """The nests that replace ``nest``, in order."""
        source = self.turned.buffer

        def turn(*at: Var) -> BufferStore:
            flipped = bitwise_xor(BufferLoad(source, at), const(-_TOP, "int8"))
            return BufferStore(self.unsigned, call("reinterpret", flipped, dtype="uint8"), at)

        def top(*at: Var) -> BufferStore:
            return BufferStore(self.tops, const(_TOP, "uint8"), at)

        turning = over(self.unsigned.shape, turn, self.unsigned.name)
        made = block_of(turning)
        assert made is not None
        return [
            # It stays, even if every element is used once: operands of instructions are loads.
            with_block(turning, made.replace(annotations={SEPARATE: 1})),
            over(self.tops.shape, top, self.tops.name),
            self._sum(),
            self._product(nest),
            self._difference(),
        ]

    def _sum(self) -> Stmt:
        """Sums of the other operand over the reduction axes."""
        fresh = {axis.var: Var(axis.var.name, axis.var.dtype) for axis in self.axes}
        where = tuple(fresh[var] for var in self.kept)
        before = BufferLoad(self.sums, where)
        word = BufferLoad(self.tops, (fresh[self.reduce] % _WORD,))
        load = substitute(self.other, fresh)
        dtype = self.sums.dtype
        body = BufferStore(self.sums, before + cast(word, dtype) * cast(load, dtype), where)
        init = BufferStore(self.sums, const(0, dtype), where)
        axes = [axis.replace(var=fresh[axis.var]) for axis in self.axes]
        return nest_of(axes, body, self.sums.name, init)

    def _product(self, nest: Stmt) -> Stmt:
        """The product itself, of the flipped operand, into a new buffer."""
        block, dtype, where = self.block, self.raw.dtype, self.store.indices
        turned = BufferLoad(self.unsigned, self.turned.indices)
        value = BufferLoad(self.raw, where) + cast(turned, dtype) * cast(self.other, dtype)
        assert block.init is not None
        init = substitute(block.init, {self.store.buffer: self.raw})
        made = block.replace(body=BufferStore(self.raw, value, where), init=init)
        return with_block(nest, made)

    def _difference(self) -> Stmt:
        axes = [axis for axis in self.block.iter_vars if axis.kind != REDUCE]
        fresh = {axis.var: Var(axis.var.name, axis.var.dtype) for axis in axes}
        where = tuple(substitute(index, fresh) for index in self.store.indices)
        sums = BufferLoad(self.sums, tuple(fresh[var] for var in self.kept))
        value = BufferLoad(self.raw, where) - sums
        body = BufferStore(self.store.buffer, value, where)
        name = f"{self.block.name}_signed"
        return nest_of([axis.replace(var=fresh[axis.var]) for axis in axes], body, name)
