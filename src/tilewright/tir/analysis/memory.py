"""How much memory a function allocates, by storage scope.

A buffer lives while the block or statement that allocates it runs. Buffers of a nest add up; of
statements one after the other the greater need counts. Iterations of a parallel loop or threads
each have their own: the figures are those of one of them.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    GLOBAL_SYMBOL,
    Expr,
    IRModule,
    Range,
    Var,
    add,
    as_int,
    const,
    dtypes,
    floordiv,
    maximum,
    mul,
    uses_var,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, Block, BlockRealize, For, SeqStmt, Stmt

Memory = dict[str, Expr]


def buffer_bytes(buffer: Buffer) -> Expr:
    """Return the bytes that a buffer takes, gaps between rows included; packed types round up."""
    elements: Expr = const(1)
    if buffer.strides:
        for extent, stride in zip(buffer.shape, buffer.strides):
            elements = add(elements, mul(extent - 1, stride))
    else:
        for extent in buffer.shape:
            elements = mul(elements, extent)
    bits = dtypes.bits_of(buffer.dtype) * dtypes.lanes_of(buffer.dtype)
    if bits % 8 == 0:
        return mul(elements, bits // 8)
    return floordiv(add(mul(elements, bits), 7), 8)


def allocated_memory(target: PrimFunc | Stmt) -> Memory:
    """Return the bytes that live at the same time, at most, by storage scope.

    Sizes that depend on loops around an allocation count with their greatest value; symbolic sizes
    give expressions.
    """
    known = Analyzer()
    if isinstance(target, PrimFunc):
        for var in target.symbolic_vars():
            known.bind_positive(var)
        target = target.body
    found = _Needs(known).stmt(target)
    return {scope: known.simplify(size) for scope, size in found.items()}


def calculate_allocated_bytes(func_or_mod: IRModule | PrimFunc) -> dict[str, dict[str, int]]:
    """Return, by function and storage scope, the bytes of ``allocated_memory`` as numbers.

    Symbolic sizes have no number; ask ``allocated_memory`` for them.

    Raises ``VerifyError`` for sizes that aren't constant.
    """
    if isinstance(func_or_mod, PrimFunc):
        functions = {func_or_mod.attrs.get(GLOBAL_SYMBOL, "main"): func_or_mod}
    else:
        functions = {k: v for k, v in func_or_mod.functions.items() if isinstance(v, PrimFunc)}
    made: dict[str, dict[str, int]] = {}
    for name, func in functions.items():
        sizes = made[name] = {}
        for scope, size in allocated_memory(func).items():
            number = as_int(size)
            if number is None:
                raise VerifyError(
                    f"function {name!r} allocates {size!r} bytes of {scope!r}: "
                    "use allocated_memory for symbolic sizes"
                )
            sizes[scope] = number
    return made


class _Needs:
    def __init__(self, known: Analyzer) -> None:
        self.known = known
        self.ranges: dict[Var, Range] = {}

    def stmt(self, node: Any) -> Memory:
        kind = type(node)
        if kind is SeqStmt:
            most: Memory = {}
            for item in node.stmts:
                most = self.greater(most, self.stmt(item))
            return most
        if kind is For:
            self.ranges[node.loop_var] = Range.from_min_extent(node.min, node.extent)
            return self.stmt(node.body)
        if kind is BlockRealize:
            return self.block(node.block)
        if kind is Allocate:
            return self.plus((node.buffer,), self.stmt(node.body))
        most = {}
        for item in node.child_nodes():
            if isinstance(item, Stmt):
                most = self.greater(most, self.stmt(item))
        return most

    def block(self, block: Block) -> Memory:
        self.ranges.update({item.var: item.dom for item in block.iter_vars})
        inner = self.stmt(block.body)
        if block.init is not None:
            inner = self.greater(inner, self.stmt(block.init))
        return self.plus(block.alloc_buffers, inner)

    def plus(self, buffers: tuple[Buffer, ...], inner: Memory) -> Memory:
        total = dict(inner)
        for buffer in buffers:
            size = self.at_most(buffer_bytes(buffer))
            total[buffer.scope] = add(total.get(buffer.scope, const(0)), size)
        return total

    def at_most(self, size: Expr) -> Expr:
        """The greatest value of a size while loops around the allocation run."""
        for var in reversed(list(self.ranges)):
            if uses_var(size, {var}):
                top = self.known.int_set(size, {var: self.ranges[var]}).max
                size = top if isinstance(top, Expr) else size
        return self.known.simplify(size)

    def greater(self, a: Memory, b: Memory) -> Memory:
        made = dict(a)
        for scope, size in b.items():
            other = made.get(scope)
            if other is None or self.known.can_prove_ge(size, other):
                made[scope] = size
            elif not self.known.can_prove_ge(other, size):
                made[scope] = maximum(other, size)
        return made
