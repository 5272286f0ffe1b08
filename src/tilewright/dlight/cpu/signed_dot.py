"""Products of signed bytes by instructions that take unsigned times signed ones.

``sum(a * b)`` is ``sum((a + 128) * b) - 128 * sum(b)``, and ``a + 128`` is ``a`` with its highest
bit turned. :func:`with_unsigned_operand` writes a function so: the operand is turned once, the
sums of the other are computed once for all rows, by dot products with a word of 128s, and what
follows subtracts them. All of it is exact, since sums wrap.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dlight.cpu.nests import ReadInstead, nest_of, over, replaced_nest, with_block
from tilewright.ir import (
    Expr,
    IRModule,
    Var,
    call,
    cast,
    const,
    pre_order,
    substitute,
    uses_var,
)
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
from tilewright.tir.op import bitwise_xor
from tilewright.tir.schedule import Schedule

_TOP = 128
_WORD = 4


def wants_unsigned(target: Target) -> bool:
    """Whether a target multiplies unsigned by signed bytes, but not signed by signed ones."""
    has = target.has("avx512vnni") or target.has("avxvnni")
    return has and not target.has("avxvnniint8")


def with_unsigned_operand(
    sch: Schedule, block: Block, turned: BufferLoad, other: BufferLoad, reduce: Var
) -> tuple[Schedule, str] | None:
    """Return a schedule of the rewritten function, and the name of the block of ``other``'s sums.

    ``turned`` and ``other`` are the factors in the block, ``reduce`` its axis along which four
    neighbours make a word. ``None`` if the block's loops aren't by themselves in the function.
    """
    if not isinstance(block.body, BufferStore):
        return None
    func: PrimFunc = sch.mod["main"]
    parts = _Parts(func, block, turned, other, reduce)
    made = replaced_nest(func, block, parts.nests, parts.buffers)
    if made is None:
        return None
    return Schedule(IRModule({"main": made}), record=False), parts.sums.name


class _Parts:
    """The buffers and nests that take the place of a sum of products."""

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
            axis
            for axis in block.iter_vars
            if axis.kind == REDUCE or any(uses_var(i, {axis.var}) for i in other.indices)
        ]
        kept = [axis for axis in self.axes if axis.kind != REDUCE]
        self.kept = [axis.var for axis in kept]

        def buffer(base: str, shape: Sequence[Expr], dtype: str) -> Buffer:
            return decl_buffer(shape, dtype, fresh_name(base, taken))

        self.unsigned = buffer(f"{turned.buffer.name}_unsigned", turned.buffer.shape, "uint8")
        self.tops = buffer("tops", (const(_WORD),), "uint8")
        self.sums = buffer(
            f"{other.buffer.name}_sum", [axis.dom.extent for axis in kept], total.dtype
        )
        self.raw = buffer(f"{total.name}_raw", total.shape, total.dtype)
        self.buffers = (self.unsigned, self.tops, self.sums, self.raw)

    def nests(self, nest: Stmt) -> list[Stmt]:
        """What computes the same as ``nest``, in order."""
        source = self.turned.buffer

        def turn(*at: Var) -> BufferStore:
            flipped = bitwise_xor(BufferLoad(source, at), const(-_TOP, "int8"))
            return BufferStore(self.unsigned, call("reinterpret", flipped, dtype="uint8"), at)

        def top(*at: Var) -> BufferStore:
            return BufferStore(self.tops, const(_TOP, "uint8"), at)

        return [
            over(self.unsigned.shape, turn, self.unsigned.name),
            over(self.tops.shape, top, self.tops.name),
            self._sum(),
            self._product(nest),
            self._difference(),
        ]

    def _sum(self) -> Stmt:
        """Sums of the other operand over all that is reduced."""
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
        """The product itself, of the turned operand, into a buffer of its own."""
        block, total = self.block, self.store.buffer
        body = ReadInstead(self.turned.buffer, self.unsigned).visit(block.body)
        renamed = {total: self.raw}
        made = block.replace(body=substitute(body, renamed), init=substitute(block.init, renamed))
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
