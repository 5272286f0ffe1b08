"""Sum up long reductions in blocks.

A sum of ``n`` terms, added one by one, is off by up to ``n`` roundings: a chain of 4096 float32
terms of one sign may lose 12 of 24 bits. Where a loop adds to float32 sums in registers, blocks of
its iterations are summed up by themselves, from zero, and the sums of blocks are added to one
another: ``b + n / b`` roundings (A. M. Castaldo, R. C. Whaley, A. T. Chronopoulos, *Reducing
Floating Point Error in Dot Product Using the Superblock Family of Algorithms*, SIAM J. Sci. Comput.
31(2), 2008). That is one addition more for each register in some hundreds. Runs when places of sums
are constant, so that they are registers; what is put aside is memory::

    for k in 3072:                      for b in 8:
        acc[0:16] = acc[0:16] + ...         if b > 0:
                                                if b > 1:
                                                    acc[0:16] = aside[0:16] + acc[0:16]
                                                aside[0:16] = acc[0:16]
                                                acc[0:16] = -0
                                            for k in 384:
                                                acc[0:16] = acc[0:16] + ...
                                        acc[0:16] = aside[0:16] + acc[0:16]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tilewright.ir import (
    Add,
    Call,
    Expr,
    IntImm,
    Ramp,
    Var,
    as_int,
    ceildiv,
    const,
    dtypes,
    minimum,
    pre_order,
    select,
    substitute,
)
from tilewright.tir.buffer import Buffer, BufferLoad, decl_buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    SERIAL,
    Allocate,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.transform.base import FunctionTransform, StmtMutator

#: Terms that a block has, about, and the longest sum that isn't cut. A block costs a core some 50
#: cycles, in which its sums begin, end and are added: 1 % of the time of a tile of 12 registers.
BLOCK, LONGEST = 512, 1024
# More elements than that aren't in registers, where another addition would cost little.
_MOST_ELEMENTS = 1024

# A place of a buffer: the first element, and their number.
_Place = tuple[int, int]
_Sums = dict[Buffer, dict[_Place, BufferStore]]


class SumInBlocks(FunctionTransform):
    """Cut serial loops that add many terms to float32 sums in registers into blocks.

    A ``block`` has about so many terms; sums of at most ``longest`` stay whole.
    """

    def __init__(self, block: int = BLOCK, longest: int = LONGEST) -> None:
        self.block, self.longest = block, longest

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Blocks(self.block, self.longest, func).visit)


class _Blocks(StmtMutator):
    def __init__(self, block: int, longest: int, func: PrimFunc) -> None:
        self.block, self.longest, self.func = block, longest, func

    @cached_property
    def pointed(self) -> set[Var]:
        """The memory that something else may reach by a pointer."""
        return set(_pointers(self.func.body))

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_For(self, node: For) -> Stmt:
        each = _terms(node.body)
        if each == 0:
            return node
        if node.kind != SERIAL or each is None or each > self.longest:
            return self.generic_visit(node)
        extent = as_int(node.extent)
        if extent is not None and extent * each <= self.longest:
            return node
        sums = _sums_of(node)
        sums = {buffer: sums[buffer] for buffer in sums if buffer.data not in self.pointed}
        if not sums:
            return self.generic_visit(node)
        return _in_blocks(node, sums, self._size(extent, each), self.longest // each)

    def _size(self, extent: int | None, each: int) -> int:
        """Iterations of a block: a divisor that makes about the wanted number of terms, if any."""
        usual, most = max(1, self.block // each), self.longest // each
        sizes = range(-(-self.block // (2 * each)), min(most + 1, extent or 0))
        near = [n for n in sizes if extent % n == 0]  # type: ignore[operator]
        return min(near or [usual], key=lambda size: abs(size * each - self.block))


def _terms(stmt: Stmt) -> int | None:
    """The most terms that a statement adds to one element; ``None`` where a call must tell."""
    if isinstance(stmt, For):
        inside, extent = _terms(stmt.body), as_int(stmt.extent)
        if inside == 0:
            return 0
        return None if inside is None or extent is None else inside * extent
    if isinstance(stmt, BufferStore):
        return _added(stmt)
    if isinstance(stmt, SeqStmt):
        return _terms_of_all(stmt)
    found = [_terms(item) for item in stmt.child_nodes() if isinstance(item, Stmt)]
    return None if None in found else max((n for n in found if n), default=0)


def _terms_of_all(stmts: SeqStmt) -> int | None:
    """Of statements one after another: those that add to the same place add up."""
    places: dict[tuple[Buffer, _Place | None], int] = {}
    most = 0
    for item in stmts.seq:
        found = _terms(item)
        if found is None:
            return None
        if isinstance(item, BufferStore):
            key = item.buffer, _place(item.indices[0])
            found = places[key] = places.get(key, 0) + found
        most = max(most, found)
    return most


def _added(store: BufferStore) -> int:
    """How many terms a store adds to what is at its place; 0 if it does something else."""
    value: Expr = store.value
    count = 0
    while isinstance(value, Add):
        value, count = value.a, count + 1
    if isinstance(value, Call) and value.op.name == "dot_accumulate":
        value, count = value.args[0], count + 1
    if not isinstance(value, BufferLoad) or value.buffer is not store.buffer:
        return 0
    at = _place(value.indices[0])
    same = at is not None and at == _place(store.indices[0])
    return count if same and store.buffer.dtype == "float32" else 0


def _place(index: Expr) -> _Place | None:
    """The elements of a constant index, side by side."""
    if isinstance(index, IntImm):
        return index.value, 1
    if not isinstance(index, Ramp) or dtypes.is_scalable(index.dtype):
        return None
    if isinstance(index.base, IntImm) and as_int(index.stride) == 1:
        return index.base.value, dtypes.lanes_of(index.dtype)
    return None


def _sums_of(loop: For) -> _Sums:
    """The sums that a loop adds to and uses for nothing else, with a store for each place."""
    sums: _Sums = {}
    uses: dict[Var, int] = {}
    inside: set[Var] = set()
    for node in pre_order(loop.body):
        if isinstance(node, Allocate):
            inside.add(node.buffer.data)
        elif isinstance(node, BufferStore | BufferLoad):
            uses[node.buffer.data] = uses.get(node.buffer.data, 0) + 1
        if isinstance(node, BufferStore) and node.buffer.scope == "local" and _added(node):
            place = _place(node.indices[0])
            assert place is not None
            sums.setdefault(node.buffer, {}).setdefault(place, node)
            uses[node.buffer.data] -= 2  # this store, and what it adds to
    return {
        buffer: stores
        for buffer, stores in sums.items()
        if buffer.data not in inside and uses[buffer.data] == 0 and _apart(stores)
    }


def _pointers(stmt: Stmt) -> Iterator[Var]:
    """The variables of memory whose address is taken."""
    for node in pre_order(stmt):
        if isinstance(node, Call):
            yield from (item for item in node.args if isinstance(item, Var))
            if node.op.name == "address_of":
                yield from (item.buffer.data for item in node.args if isinstance(item, BufferLoad))
        elif isinstance(node, LetStmt) and isinstance(node.value, Var):
            yield node.value


def _apart(places: dict[_Place, BufferStore]) -> bool:
    """Whether places don't overlap, and there are few of them."""
    end = 0
    for start, count in sorted(places):
        if start < end:
            return False
        end = start + count
    return end <= _MOST_ELEMENTS


def _in_blocks(loop: For, sums: _Sums, usual: int, longest: int) -> Stmt:
    """Cut a loop into blocks of ``usual`` iterations; at most ``longest`` are a single block."""
    for field, end in (("min", loop.min), ("extent", loop.extent)):
        if any(isinstance(node, BufferLoad | Call) for node in pre_order(end)):
            # Computed once, before the loop: what the loop does may change it.
            kept = Var(f"{loop.loop_var.name}_{field}", end.dtype)
            inside = _in_blocks(loop.replace(**{field: kept}), sums, usual, longest)
            return LetStmt(kept, end, inside)
    size, blocks = const(usual, loop.extent.dtype), ceildiv(loop.extent, usual)
    if as_int(loop.extent) is not None:
        return _nest(loop, sums, size, blocks)
    is_short = loop.extent <= longest
    values = select(is_short, loop.extent, size), select(is_short, 1, blocks)
    names = [
        Var(f"{loop.loop_var.name}_{name}", value.dtype)
        for name, value in zip(("size", "blocks"), values)
    ]
    nest = _nest(loop, sums, *names)
    for name, value in zip(names, values):
        nest = LetStmt(name, value, nest)
    return nest


def _nest(loop: For, sums: _Sums, size: Expr, blocks: Expr) -> Stmt:
    """Make of a loop so many blocks.

    A block adds to the sums where these are, and what is summed up before it is put aside: so a
    single block is the loop as it was, but for two conditions. Things are put aside at one of two
    places by turns, since what is at a fixed one becomes registers: these would be spilled and
    reloaded around the loop, even for a single block.
    """
    outer = Var(f"{loop.loop_var.name}_block", loop.loop_var.dtype)
    inner = Var(loop.loop_var.name, loop.loop_var.dtype)
    done = outer * size
    extent, length = as_int(loop.extent), as_int(size)
    even = extent is not None and length is not None and extent % length == 0
    block = loop.replace(
        loop_var=inner,
        min=const(0, inner.dtype),
        extent=size if even else minimum(size, loop.extent - done),
        body=substitute(loop.body, {loop.loop_var: loop.min + done + inner}),
    )
    aside = {buffer: _two_of(buffer) for buffer in sums}
    old, new = (Var(f"{loop.loop_var.name}_{name}") for name in ("old", "new"))
    join, put_aside, restart = [], [], []
    for buffer, stores in sums.items():
        count, memory = as_int(buffer.shape[0]) or 0, aside[buffer]
        for at in (store.indices[0] for store in stores.values()):
            here = BufferLoad(buffer, (at,))
            earlier = BufferLoad(memory, (_moved(at, old * count),))
            join.append(BufferStore(buffer, earlier + here, (at,)))
            put_aside.append(BufferStore(memory, here, (_moved(at, new * count),)))
            restart.append(BufferStore(buffer, const(-0.0, here.dtype), (at,)))
    begin: Stmt = seq(IfThenElse(outer > 1, seq(*join)), *put_aside, *restart)
    begin = LetStmt(old, (outer % 2).astype(old.dtype), LetStmt(new, 1 - old, begin))
    nest: Stmt = For(outer, 0, blocks, SERIAL, seq(IfThenElse(outer > 0, begin), block))
    last = Var(old.name)
    end = substitute(seq(*join), {old: last})
    end = LetStmt(last, (blocks % 2).astype(last.dtype), end)
    nest = seq(nest, end if extent is not None else IfThenElse(blocks > 1, end))
    for memory in aside.values():
        nest = Allocate(memory, nest)
    return nest


def _two_of(buffer: Buffer) -> Buffer:
    shape = (2 * buffer.shape[0],)
    return decl_buffer(shape, buffer.dtype, f"{buffer.name}_aside", scope="local")


def _moved(index: Expr, by: Expr) -> Expr:
    """A constant index, so many elements further."""
    return index.replace(base=index.base + by) if isinstance(index, Ramp) else index + by
