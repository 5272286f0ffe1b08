"""Products of signed bytes by instructions that take unsigned times signed ones.

``sum(a * b)`` is ``sum((a + 128) * b) - 128 * sum(b)``, and ``a + 128`` is ``a`` with its highest
bit turned. :func:`with_unsigned_operand` writes a function so: the operand is turned once, the
sums of the other are computed once for all rows, by dot products with a word of 128s, and what
follows subtracts them. All of it is exact, since sums wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import (
    TRUE,
    Expr,
    IRModule,
    Mutator,
    Range,
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
    SERIAL,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    SeqStmt,
    Stmt,
    decl_buffer,
    fresh_name,
    seq,
)
from tilewright.tir.analysis import block_access_regions
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
    func: PrimFunc = sch.mod["main"]
    root = func.root
    nests = list(root.body.stmts) if isinstance(root.body, SeqStmt) else [root.body]
    place = next((n for n, nest in enumerate(nests) if _block_of(nest) is block), None)
    if place is None or not isinstance(block.body, BufferStore):
        return None
    parts = _Parts(func, block, turned, other, reduce)
    nests[place : place + 1] = parts.nests(nests[place])
    made = root.replace(body=seq(*nests), alloc_buffers=(*root.alloc_buffers, *parts.buffers))
    body = func.body.replace(block=made)  # type: ignore[attr-defined]
    return Schedule(IRModule({"main": func.replace(body=body)}), record=False), parts.sums.name


def _block_of(nest: Stmt) -> Block | None:
    while isinstance(nest, For):
        nest = nest.body
    return nest.block if isinstance(nest, BlockRealize) else None


class _Turned(Mutator):
    """Reads the unsigned copy in place of an operand."""

    def __init__(self, old: BufferLoad, new: BufferLoad) -> None:
        self.old, self.new = old, new

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        return self.new if node.buffer is self.old.buffer else node


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
            _over(self.unsigned.shape, turn, self.unsigned.name),
            _over(self.tops.shape, top, self.tops.name),
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
        return _nest(axes, body, self.sums.name, init)

    def _product(self, nest: Stmt) -> Stmt:
        """The product itself, of the turned operand, into a buffer of its own."""
        block, total = self.block, self.store.buffer
        unsigned = BufferLoad(self.unsigned, self.turned.indices)
        body = substitute(_Turned(self.turned, unsigned).visit(block.body), {total: self.raw})
        made = block.replace(body=body, init=substitute(block.init, {total: self.raw}))
        reads, writes = block_access_regions(made)
        made = made.replace(reads=tuple(reads), writes=tuple(writes))
        return _with_block(nest, made)

    def _difference(self) -> Stmt:
        axes = [axis for axis in self.block.iter_vars if axis.kind != REDUCE]
        fresh = {axis.var: Var(axis.var.name, axis.var.dtype) for axis in axes}
        where = tuple(substitute(index, fresh) for index in self.store.indices)
        sums = BufferLoad(self.sums, tuple(fresh[var] for var in self.kept))
        value = BufferLoad(self.raw, where) - sums
        body = BufferStore(self.store.buffer, value, where)
        name = f"{self.block.name}_signed"
        return _nest([axis.replace(var=fresh[axis.var]) for axis in axes], body, name, None)


def _over(shape: Sequence[Expr], body: Callable[..., BufferStore], name: str) -> Stmt:
    """Loops over the elements of a shape."""
    axes = [IterVar(Var(f"v{d}"), Range(const(0), n), SPATIAL) for d, n in enumerate(shape)]
    return _nest(axes, body(*(axis.var for axis in axes)), name, None)


def _nest(axes: Sequence[IterVar], body: BufferStore, name: str, init: BufferStore | None) -> Stmt:
    """Loops around one block, an axis each."""
    block = Block(tuple(axes), (), (), name, body, init)
    reads, writes = block_access_regions(block)
    loops = tuple(Var(f"ax{d}") for d in range(len(axes)))
    block = block.replace(reads=tuple(reads), writes=tuple(writes))
    nest: Stmt = BlockRealize(loops, TRUE, block)
    for var, axis in zip(reversed(loops), reversed(axes)):
        nest = For(var, axis.dom.min, axis.dom.extent, SERIAL, nest)
    return nest


def _with_block(nest: Stmt, block: Block) -> Stmt:
    if isinstance(nest, For):
        return nest.replace(body=_with_block(nest.body, block))
    assert isinstance(nest, BlockRealize)
    return nest.replace(block=block)
