"""Primitives that reshape loop nests: split, fuse, reorder, add_unit_loop.

Loops outside a block are visible to the block only through its bindings and predicate, so these
primitives rewrite nothing inside blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import is_
from typing import TYPE_CHECKING, Any, Union

from tilewright.ir import (
    INDEX,
    Add,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Range,
    Var,
    add,
    and_,
    as_int,
    ceildiv,
    const,
    floordiv,
    floormod,
    free_vars,
    is_const,
    mul,
    uses_var,
)
from tilewright.tir import (
    SERIAL,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    Stmt,
)
from tilewright.tir.analysis import has_division
from tilewright.tir.schedule.handles import BlockRV, ExprRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.legality import check_reorder
from tilewright.tir.schedule.state import statements

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule

Factor = Union[int, ExprRV, Expr, None]


def substitute_index(expr: Any, mapping: dict[Var, Expr]) -> Any:
    """Replace variables in an index expression, multiplying constants out over sums.

    So ``i * 4`` with ``i = i0 * 8 + i1`` becomes ``i0 * 32 + i1 * 4``: repeated splits stay sums of
    products. The same object comes back if no variable is used.
    """

    def go(node: Any) -> Any:
        kind = type(node)
        if kind is Var:
            return mapping.get(node, node)
        if kind is IntImm:
            return node
        if kind is Add or kind is Mul:
            a, b = go(node.a), go(node.b)
            if a is node.a and b is node.b:
                return node
            return add(a, b) if kind is Add else scaled(a, b)
        made = node.map_children(go)
        if made is not node and (kind is FloorDiv or kind is FloorMod):
            return floordiv(made.a, made.b) if kind is FloorDiv else floormod(made.a, made.b)
        return made

    return go(expr)


def scaled(a: Any, b: Any) -> Expr:
    """Build ``a * b``, multiplied out where ``b`` is a constant and ``a`` a sum or product."""
    if type(b) is IntImm:
        if type(a) is Add:
            return add(scaled(a.a, b), scaled(a.b, b))
        if type(a) is Mul and type(a.b) is IntImm:
            return mul(a.a, const(a.b.value * b.value, b.dtype))
    return mul(a, b)


def rewrite_outside_blocks(
    stmt: Any, on_expr: Callable[[Any], Any], guard: Expr | None = None
) -> Any:
    """Rewrite the expressions of loops, branches and block bindings below ``stmt``.

    ``guard`` is added to the predicate of each block; statements outside blocks are wrapped in a
    branch on it.
    """

    def go(node: Any) -> Any:
        kind = type(node)
        if kind is BlockRealize:
            values = tuple([on_expr(value) for value in node.iter_values])
            predicate = on_expr(node.predicate)
            if guard is not None:
                predicate = and_(predicate, guard)
            if predicate is node.predicate and all(map(is_, values, node.iter_values)):
                return node
            return BlockRealize(values, predicate, node.block)
        if kind is BufferStore or kind is Evaluate:
            made = node.map_children(on_expr)
            return made if guard is None else IfThenElse(guard, made)
        return node.map_children(lambda item: go(item) if isinstance(item, Stmt) else on_expr(item))

    return go(stmt)


def check_plain_loop(sch: Schedule, loop: For) -> None:
    """Refuse a loop that carries meaning which reshaping would lose."""
    if loop.annotations:
        raise sch.error(
            lambda: f"loop {loop.loop_var.name!r} has annotations {sorted(loop.annotations)}",
            loop,
            remedy="unannotate it first, or annotate after reshaping",
        )
    if loop.kind != SERIAL:
        raise sch.error(
            lambda: (
                f"loop {loop.loop_var.name!r} is {loop.kind}"
                + (f" on {loop.thread}" if loop.thread else "")
                + ", and would lose that"
            ),
            loop,
            remedy="reshape loops first, then mark them parallel, vectorized, unrolled or bound",
        )
    if not is_const(loop.min, 0):
        raise sch.error(
            lambda: f"loop {loop.loop_var.name!r} starts at {loop.min!r}; only 0 is supported",
            loop,
        )


def resolve_factor(sch: Schedule, factor: Factor, loop: For) -> Expr:
    """Turn a factor into an expression; numbers must be positive."""
    value = factor.value if isinstance(factor, ExprRV) else factor
    if not isinstance(value, Expr):
        value = const(int(value), loop.loop_var.dtype)  # type: ignore[arg-type]
    number = as_int(value)
    if number is not None and number < 1:
        raise sch.error(f"a factor must be positive, got {number}", loop)
    return value


def _product(factors: Sequence[Expr]) -> Expr:
    result: Expr = const(1)
    for factor in factors:
        result = mul(result, factor)
    return result


def known_product(sch: Schedule, factors: Sequence[Expr], extent: Expr) -> bool:
    """Whether symbolic tile factors were drawn to multiply to exactly ``extent``."""
    for variables, total, _ in sch.state.symbolic:
        if len(variables) == len(factors) and all(
            any(var is factor for factor in factors) for var in variables
        ):
            left, right = as_int(total), as_int(extent)
            return total is extent or (left is not None and left == right)
    return False


@primitive
def split(
    sch: Schedule,
    loop: LoopRV,
    factors: Sequence[Factor],
    *,
    preserve_unit_iters: bool = True,
) -> list[LoopRV]:
    """Split one loop into a nest of loops, one per factor, the first outermost.

    One factor may be ``None``: it becomes what is needed to cover the loop. If the product of the
    factors exceeds the extent, blocks below get a predicate. With ``preserve_unit_iters=False``
    constant factors of 1 get no place in the blocks' bindings.

    Before:
        for i in T.serial(1024): ...
    After ``split(i, [None, 16])``:
        for i_0, i_1 in T.grid(64, 16): ...
    """
    target = sch.state.get_loop(loop)
    check_plain_loop(sch, target)
    if not factors:
        raise sch.error("split needs at least one factor", target)
    if sum(factor is None for factor in factors) > 1:
        raise sch.error("at most one factor may be None", target)
    dtype = target.loop_var.dtype
    extents: list[Any] = [
        None if factor is None else resolve_factor(sch, factor, target) for factor in factors
    ]
    extent = target.extent
    given = [item for item in extents if item is not None]
    numbers = [as_int(item) for item in given]
    size = as_int(extent)
    perfect = False
    if len(given) < len(extents):
        product = _product(given)
        number = as_int(product)
        if size is not None and number is not None:
            inferred: Expr = const(-(-size // number), dtype)
            perfect = size % number == 0
        else:
            analyzer = sch.state.analyzer_at(target)
            perfect = analyzer.can_prove_equal(floormod(extent, product), 0)
            inferred = analyzer.simplify(
                floordiv(extent, product) if perfect else ceildiv(extent, product)
            )
        extents = [inferred if item is None else item for item in extents]
    elif size is not None and None not in numbers:
        product_value = 1
        for number in numbers:
            product_value *= number  # type: ignore[operator]
        perfect = product_value == size
        if product_value < size:
            raise sch.error(
                f"the factors multiply to {product_value}, which does not cover the extent {size}",
                target,
                remedy="give None for one factor",
            )
    elif known_product(sch, given, extent):
        perfect = True
    else:
        analyzer = sch.state.analyzer_at(target)
        product = _product(given)
        perfect = analyzer.can_prove_equal(product, extent)
        if not perfect and not analyzer.can_prove(product >= extent):
            raise sch.error(
                lambda: f"the factors are not known to cover the extent {extent!r}",
                target,
                remedy="give None for one factor",
            )
    base = target.loop_var.name
    variables = [Var(f"{base}_{n}", dtype) for n in range(len(extents))]
    value = _flattened(variables, extents, preserve_unit_iters)
    guard = None if perfect else value < extent
    mapping = {target.loop_var: value}
    body: Any = rewrite_outside_blocks(
        target.body, lambda expr: substitute_index(expr, mapping), guard
    )
    zero = const(0, dtype)
    for var, size_expr in zip(reversed(variables), reversed(extents)):
        body = For(var, zero, size_expr, SERIAL, body)
    sch.state.replace(target, body)
    return [LoopRV(loop.func, var) for var in variables]


def _flattened(variables: Sequence[Var], extents: Sequence[Expr], keep_unit: bool) -> Expr:
    """Row-major index of a nest: ``v0*(e1*e2) + v1*e2 + v2``."""
    terms: list[Expr] = []
    stride: Expr = const(1)
    for var, extent in zip(reversed(variables), reversed(extents)):
        if keep_unit or not is_const(extent, 1):
            terms.append(mul(var, stride))
        stride = mul(extent, stride)
    result: Expr = const(0)
    for term in reversed(terms):
        result = add(result, term)
    return result


@primitive
def fuse(sch: Schedule, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
    """Fuse a chain of directly nested loops, given from the outermost, into one.

    With ``preserve_unit_iters=False`` loops of extent 1 leave no trace in the bindings.

    Before:
        for i, j in T.grid(64, 16): ...
    After:
        for i_j_fused in range(1024): ...
    """
    if not loops:
        raise sch.error("fuse needs at least one loop")
    chain = [sch.state.get_loop(item) for item in loops]
    for item in chain:
        check_plain_loop(sch, item)
    for outer, inner in pairwise(chain):
        if outer.body is not inner:
            raise sch.error(
                f"loop {inner.loop_var.name!r} is not the only statement directly inside "
                f"loop {outer.loop_var.name!r}",
                inner,
                remedy="give the loops from outer to inner without gaps; reorder brings them there",
            )
    variables = {item.loop_var for item in chain}
    for item in chain[1:]:
        if type(item.extent) is not IntImm and uses_var(item.extent, variables):
            raise sch.error(
                f"the extent of loop {item.loop_var.name!r} depends on a loop to be fused",
                item,
            )
    if len(chain) == 1:
        return LoopRV(loops[0].func, chain[0].loop_var)
    name = "_".join(item.loop_var.name for item in chain) + "_fused"
    fused = Var(name, chain[0].loop_var.dtype)
    mapping: dict[Var, Expr] = {}
    rest: Expr = fused
    kept = [item for item in chain if preserve_unit_iters or not is_const(item.extent, 1)]
    for item in chain:
        if item not in kept:
            mapping[item.loop_var] = const(0, item.loop_var.dtype)
    for item in reversed(kept[1:]):
        mapping[item.loop_var] = floormod(rest, item.extent)
        rest = floordiv(rest, item.extent)
    if kept:
        mapping[kept[0].loop_var] = rest
    extent = _product([item.extent for item in chain])
    simplify = _Simplifier(sch, chain[0], variables, {fused: extent}, chain[-1].body)
    body = rewrite_outside_blocks(
        chain[-1].body, lambda expr: simplify(expr, substitute_index(expr, mapping))
    )
    zero = const(0, fused.dtype)
    sch.state.replace(chain[0], For(fused, zero, extent, SERIAL, body))
    return LoopRV(loops[0].func, fused)


class _Simplifier:
    """Simplifies bindings that a rewrite made quotients of."""

    def __init__(
        self, sch: Schedule, at: For, fused: set[Var], extents: dict[Var, Expr], body: Any
    ) -> None:
        self.sch, self.at, self.fused, self.extents, self.body = sch, at, fused, extents, body
        self.analyzer: Any = None

    def __call__(self, old: Expr, new: Expr) -> Expr:
        if new is old or type(new) in (Var, IntImm) or type(old) is Var:
            return new
        # Two fused loops in one sum may join again, and quotients may cancel; else nothing can.
        if not has_division(old) and sum(var in self.fused for var in free_vars(old)) < 2:
            return new
        if self.analyzer is None:
            self.analyzer = loop_analyzer(self.sch, self.at, self.extents, self.body)
        made: Expr = self.analyzer.simplify(new)
        return made


def loop_analyzer(sch: Schedule, at: For, extents: dict[Var, Expr], body: Any) -> Any:
    """Return an analyzer for below ``at``, where loops ``extents`` replace it."""
    analyzer = sch.state.analyzer_at(at)
    for var, extent in extents.items():
        analyzer.bind(var, Range(const(0, var.dtype), extent))
    for stmt in statements(body):
        if type(stmt) is For:
            analyzer.bind(stmt.loop_var, Range(stmt.min, stmt.extent))
    return analyzer


@primitive
def reorder(sch: Schedule, *loops: LoopRV) -> None:
    """Give loops of one nest another order, the first named outermost.

    Loops of the nest that are not named stay where they are.

    Before:
        for i, j, k in T.grid(4, 5, 6): ...
    After ``reorder(k, i)``:
        for k, j, i in T.grid(6, 5, 4): ...
    """
    if not loops:
        raise sch.error("reorder needs at least one loop")
    ordered = [sch.state.get_loop(item) for item in loops]
    named = set(ordered)
    if len(named) != len(ordered):
        raise sch.error("a loop is named twice", *ordered[:1])
    chain = _chain_of(sch, ordered, named)
    # The named loops take the places that named loops had, in the order given.
    queue = iter(ordered)
    made = [next(queue) if item in named else item for item in chain]
    if all(new is old for new, old in zip(made, chain)):
        return
    _check_bounds_allow(sch, made)
    check_reorder(sch, chain, made)
    body: Any = chain[-1].body
    for item in reversed(made):
        body = For(
            item.loop_var, item.min, item.extent, item.kind, body, item.thread, item.annotations
        )
    sch.state.replace(chain[0], body)


def _chain_of(sch: Schedule, ordered: list[For], named: set[For]) -> list[For]:
    """Return the loops from the outermost to the innermost named one, which must be a chain."""
    parents = sch.state.index(sch.state.func_name_of(ordered[0])).parents
    # The innermost named loop is the one that has all others above it.
    for start in ordered:
        chain: list[For] = []
        left = set(named)
        current: Any = start
        while type(current) is For:
            chain.append(current)
            left.discard(current)
            if not left:
                return list(reversed(chain))
            current = parents[current]
    raise sch.error(
        "the loops are not in one nest without other statements between them",
        *ordered,
        remedy="only loops with nothing but each other inside can change places",
    )


def _check_bounds_allow(sch: Schedule, made: list[For]) -> None:
    inside: set[Var] = set()
    for item in reversed(made):
        for bound in (item.min, item.extent):
            if type(bound) is not IntImm and inside and uses_var(bound, inside):
                raise sch.error(
                    f"the bounds of loop {item.loop_var.name!r} depend on a loop "
                    "that would come to be inside it",
                    item,
                )
        inside.add(item.loop_var)


@primitive
def add_unit_loop(sch: Schedule, block_or_loop: BlockRV | LoopRV) -> LoopRV:
    """Put a loop of extent 1 around a block or loop.

    After:
        for u in range(1): ...
    """
    target: Any
    if isinstance(block_or_loop, BlockRV):
        target = sch.state.get_block(block_or_loop)
        if sch.state.parent(target) is None:
            raise sch.error("the root block can't be inside a loop", target)
    else:
        target = sch.state.get_loop(block_or_loop)
    var = Var("u", INDEX)
    sch.state.replace(target, For(var, const(0), const(1), SERIAL, target))
    return LoopRV(block_or_loop.func, var)
