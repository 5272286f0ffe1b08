"""Join the lanes of a partial reduction by one vector operation instead of a loop.

A reduction split over lanes ends with a short loop over them, ``for l in 16: acc = acc +
part[l]``: a chain of dependent additions. Where the parts are an intermediate buffer of the
function, side by side, and their number is a power of two, they are reduced as a vector, in the
tree that the hardware likes. Runs after vectorising, so that what is left is scalar code.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith import detect_linear_equation
from tilewright.ir import (
    Add,
    Expr,
    Max,
    Min,
    Mutator,
    Ramp,
    Var,
    as_int,
    call,
    const,
    expr_equal,
)
from tilewright.tir.buffer import BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import SERIAL, Allocate, BufferStore, For
from tilewright.tir.transform.base import FunctionTransform, uses_any

_JOINS: dict[type, str] = {
    Add: "vector_reduce_add",
    Max: "vector_reduce_max",
    Min: "vector_reduce_min",
}
_DTYPES = ("float32", "float64", "int32", "int64", "uint32", "uint64")
#: More elements than that are a reduction of their own, not the lanes of one.
MAX_LANES = 128


class JoinLanes(FunctionTransform):
    """Replace loops over the lanes of a partial result by vector reductions."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return func.map_children(_Joiner().visit)


class _Joiner(Mutator):
    def __init__(self) -> None:
        self.own: set[Var] = set()

    def visit_Expr(self, node: Expr) -> Expr:
        return node

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_Allocate(self, node: Allocate) -> Any:
        self.own.add(node.buffer.data)
        return self.generic_visit(node)

    def visit_For(self, node: For) -> Any:
        return self.joined(node) or self.generic_visit(node)

    def joined(self, loop: For) -> BufferStore | None:
        """The loop as one store; ``None`` if it isn't a join of lanes."""
        lanes, start, store = as_int(loop.extent), as_int(loop.min), loop.body
        if loop.kind != SERIAL or lanes is None or start is None or type(store) is not BufferStore:
            return None
        value = store.value
        name = _JOINS.get(type(value))
        if name is None or not 4 <= lanes <= MAX_LANES or lanes & (lanes - 1):
            return None
        total, part = value.a, value.b  # type: ignore[attr-defined]
        if type(total) is not BufferLoad or type(part) is not BufferLoad:
            return None
        if value.dtype not in _DTYPES:
            return None
        if (
            total.buffer.data is not store.buffer.data
            or part.buffer.data is store.buffer.data
            or part.buffer.data not in self.own
            or len(part.indices) != 1
            or len(store.indices) != 1
            or not expr_equal(total.indices[0], store.indices[0])
            or uses_any(store.indices[0], [loop.loop_var])
        ):
            return None
        linear = detect_linear_equation(part.indices[0], [loop.loop_var])
        if linear is None or as_int(linear[0]) != 1:
            return None
        base = linear[1] + start if start else linear[1]
        vector = BufferLoad(part.buffer, (Ramp(base, const(1), lanes),))
        made = call(name, vector, dtype=value.dtype)
        joined: BufferStore = store.replace(value=value.replace(b=made))
        return joined
