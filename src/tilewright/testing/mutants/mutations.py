"""Ways to break a program: a table of rewrites of one node.

Each is tried where it applies, in scheduled programs (with blocks) or in lowered ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.ir import (
    LE,
    LT,
    Add,
    And,
    Broadcast,
    CompareExpr,
    Expr,
    FloatImm,
    IntImm,
    Max,
    Min,
    Mul,
    Node,
    Ramp,
    Select,
    Sub,
    as_int,
    cast,
    const,
    dtypes,
    pre_order,
    rewrite_top_down,
)
from tilewright.tir import (
    NO_OP,
    PARALLEL,
    REDUCE,
    BlockRealize,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    PrimFunc,
)

Rewrite = Callable[[Any], "Node | None"]


@dataclass(frozen=True)
class Mutation:
    """Replaces a node of class ``kind`` by what ``rewrite`` returns; ``None`` where it can't.

    It is for programs with blocks if ``scheduled``, for lowered ones otherwise. What is a fault by
    ``construction`` need not be seen by the interpreter. With ``of_function``, ``rewrite`` takes a
    function, and returns what rewrites nodes.
    """

    name: str
    kind: tuple[type[Node], ...]
    rewrite: Rewrite | Callable[[PrimFunc], Rewrite]
    scheduled: bool = False
    of_function: bool = False
    construction: bool = False


def _extent(by: int) -> Rewrite:
    def rewrite(loop: For) -> For | None:
        extent = as_int(loop.extent)
        if extent is not None and extent + by < 1:
            return None
        return loop.replace(extent=loop.extent + by)

    return rewrite


def _late(loop: For) -> For | None:
    """Leave the first iteration out."""
    extent = as_int(loop.extent)
    if extent is None or extent < 2:
        return None
    return loop.replace(min=loop.min + 1, extent=loop.extent - 1)


def _moved(index: Expr, by: int) -> Expr:
    if isinstance(index, Ramp):
        return index.replace(base=index.base + by)
    return index + by


def _index(by: int) -> Rewrite:
    def rewrite(access: BufferLoad | BufferStore) -> Node:
        *outer, last = access.indices
        return access.replace(indices=(*outer, _moved(last, by)))

    return rewrite


def _lanes(value: Expr, number: float) -> Expr:
    dtype = value.dtype
    one = const(number, dtypes.element_of(dtype))
    lanes = dtypes.lanes_of(dtype)
    return Broadcast(one, lanes) if lanes > 1 else one


def _number(value: Expr) -> FloatImm | IntImm | None:
    """The number that all lanes of a value are."""
    inner = value.value if isinstance(value, Broadcast) else value
    return inner if isinstance(inner, (FloatImm, IntImm)) else None


def _initial(value: Expr) -> bool:
    return _number(value) is not None


def _wrong_init(store: BufferStore) -> Node | None:
    """Begin a sum with one, and a maximum with zero."""
    number = _number(store.value)
    if number is None:
        return None
    return store.replace(value=_lanes(store.value, 1 if number.value == 0 else 0))


def _no_init(func: PrimFunc) -> Rewrite:
    """Begin a sum with what memory happens to hold: what the result's memory does.

    Memory that isn't initialised at all may hold the right number by chance, or code generation
    may take that for it, as it may take any.
    """
    result = func.buffers[-1]
    views = [item.buffer for item in pre_order(func.body) if isinstance(item, DeclBuffer)]
    flat = next((view for view in views if view.data is result.data), result)

    def rewrite(store: BufferStore) -> Node | None:
        if not _initial(store.value) or len(flat.shape) != 1:
            return None
        found = cast(BufferLoad(flat, (const(0),)), dtypes.element_of(store.value.dtype))
        lanes = dtypes.lanes_of(store.value.dtype)
        return store.replace(value=Broadcast(found, lanes) if lanes > 1 else found)

    return rewrite


def _no_store(store: BufferStore) -> Node | None:
    return None if _initial(store.value) else NO_OP


def _rounded(dtype: str) -> Rewrite:
    def rewrite(store: BufferStore) -> Node | None:
        value = store.value
        if dtypes.element_of(value.dtype) != "float32" or _initial(value):
            return None
        lanes = dtypes.lanes_of(value.dtype)
        narrow = dtypes.vector_dtype(dtype, lanes) if lanes > 1 else dtype
        return store.replace(value=cast(cast(value, narrow), value.dtype))

    return rewrite


def _of_data(expr: Expr) -> bool:
    return any(isinstance(item, BufferLoad) for item in pre_order(expr))


def _swapped(other: Callable[[Expr, Expr], Expr]) -> Rewrite:
    def rewrite(expr: Any) -> Node | None:
        return other(expr.a, expr.b) if _of_data(expr) else None

    return rewrite


def _one_side(expr: Any) -> Node | None:
    """Forget the first operand: what was summed up so far."""
    return expr.b if _of_data(expr) else None


def _loose(compare: CompareExpr) -> Node | None:
    """Let one more through."""
    return None if _of_data(compare) else LE(compare.a, compare.b)


def _true(condition: And) -> Node | None:
    """Drop half of a condition."""
    return None if _of_data(condition) else condition.a


def _unguarded(branch: IfThenElse) -> Node | None:
    return None if branch.else_case is not None else branch.then_case


def _always(realize: BlockRealize) -> Node | None:
    return (
        None if as_int(realize.predicate) == 1 else realize.replace(predicate=const(True, "bool"))
    )


def _other_number(number: FloatImm) -> Node | None:
    return FloatImm(number.dtype, number.value * 1.01) if number.value not in (0.0,) else None


def _ignores_nan(select: Select | Max) -> Node | None:
    if not dtypes.is_float(select.dtype):
        return None
    lowest = _lanes(select, -1e30)
    return Select(LT(lowest, select), select, lowest)


def _saturated(store: BufferStore) -> Node | None:
    """Keep sums of integers in 16 bits."""
    value = store.value
    if dtypes.element_of(value.dtype) != "int32" or _initial(value):
        return None
    return store.replace(value=Max(Min(value, _lanes(value, 32767)), _lanes(value, -32768)))


def _race(loop: For) -> Node | None:
    """Run the iterations of a reduction at the same time."""
    if as_int(loop.extent) == 1 or loop.kind == PARALLEL:
        return None
    for item in pre_order(loop.body):
        if isinstance(item, BlockRealize):
            for axis, value in zip(item.block.iter_vars, item.iter_values):
                used = any(part is loop.loop_var for part in pre_order(value))
                if axis.kind == REDUCE and used:
                    return loop.replace(kind=PARALLEL)
    return None


#: All ways, in no order.
MUTATIONS: tuple[Mutation, ...] = (
    Mutation("loop too short", (For,), _extent(-1)),
    Mutation("loop too long", (For,), _extent(1)),
    Mutation("first iteration left out", (For,), _late),
    Mutation("loaded from the next place", (BufferLoad,), _index(1)),
    Mutation("stored in the next place", (BufferStore,), _index(1)),
    Mutation("stored far away", (BufferStore,), _index(4096)),
    Mutation("wrong initial value", (BufferStore,), _wrong_init),
    Mutation("no initial value", (BufferStore,), _no_init, of_function=True),
    Mutation("a store left out", (BufferStore,), _no_store),
    Mutation("rounded to bfloat16", (BufferStore,), _rounded("bfloat16")),
    Mutation("rounded to float16", (BufferStore,), _rounded("float16")),
    Mutation("sums of 16 bits", (BufferStore,), _saturated),
    Mutation("minimum for maximum", (Max,), _swapped(Min)),
    Mutation("difference for sum", (Add,), _swapped(Sub)),
    Mutation("sum for product", (Mul,), _swapped(Add)),
    Mutation("one term of a sum", (Add,), _one_side),
    Mutation("bound one too large", (LT,), _loose),
    Mutation("half a condition", (And,), _true),
    Mutation("condition left out", (IfThenElse,), _unguarded),
    Mutation("another constant", (FloatImm,), _other_number),
    Mutation("NaN ignored", (Select, Max), _ignores_nan),
    Mutation("predicate left out", (BlockRealize,), _always, scheduled=True),
    Mutation("bound of a block too large", (LT,), _loose, scheduled=True),
    Mutation("loop of a block too short", (For,), _extent(-1), scheduled=True),
    Mutation("race", (For,), _race, scheduled=True, construction=True),
)


def places(func: PrimFunc, mutation: Mutation) -> list[tuple[Node, Node]]:
    """Return where a mutation applies: a node, and what takes its place."""
    found: dict[int, tuple[Node, Node]] = {}
    rewrite: Any = mutation.rewrite(func) if mutation.of_function else mutation.rewrite
    for item in pre_order(func.body):
        if isinstance(item, mutation.kind) and id(item) not in found:
            changed = rewrite(item)
            if changed is not None:
                found[id(item)] = item, changed
    return list(found.values())


def mutated(func: PrimFunc, old: Node, new: Node) -> PrimFunc:
    """Return a function with one node replaced, wherever it stands."""
    return func.replace(body=rewrite_top_down(func.body, lambda item: new if item is old else None))
