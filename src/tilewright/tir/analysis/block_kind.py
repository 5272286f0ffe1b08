"""What a block is, as far as moving it around is concerned.

- A *complete* block computes each element of its outputs once, from other buffers, in any order:
  all iteration variables are spatial, nobody else in the scope writes its outputs, and it doesn't
  read them.
- A *reduction* block has ``init`` and combines values over its reduce iteration variables, which
  don't take part in the indices it writes. Of what it writes it reads only what it combines into.
- An *update* block is what is left of a reduction after ``init`` went into a block of its own.
- Everything else is *opaque*: only rewrites that keep the order of its instances may touch it.

What a block says of itself is kept per block object; loop transformations don't change blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

from tilewright.arith import Analyzer, detect_iter_map, sum_terms
from tilewright.ir import (
    TRUE,
    Add,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Min,
    Mul,
    Range,
    Var,
    as_int,
    collect,
    expr_equal,
    free_vars,
    is_const,
    pre_order,
    structural_equal,
    substitute,
    uses_var,
)
from tilewright.tir.analysis.dependency import DependencyGraph, block_dependencies
from tilewright.tir.analysis.regions import covers_box, same_box
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.stmt import OPAQUE, REDUCE, SPATIAL, Block, BlockRealize, BufferStore, LetStmt

COMPLETE = "complete"
REDUCTION = "reduction"
UPDATE = "update"


class BlockFacts:
    """What a block alone tells: ``kind`` (if it is the only writer), and why it is opaque."""

    __slots__ = ("has_reduce", "kind", "reason")

    def __init__(self, kind: str, reason: str, has_reduce: bool) -> None:
        self.kind = kind
        self.reason = reason
        self.has_reduce = has_reduce


_facts: WeakKeyDictionary[Block, BlockFacts] = WeakKeyDictionary()


def block_facts(block: Block) -> BlockFacts:
    """Return the kind of a block, as far as it alone tells; kept per block."""
    found = _facts.get(block)
    if found is None:
        found = _facts[block] = _find_facts(block)
    return found


def _find_facts(block: Block) -> BlockFacts:
    kinds = {iter_var.kind for iter_var in block.iter_vars}
    has_reduce = REDUCE in kinds
    if OPAQUE in kinds:
        return BlockFacts(OPAQUE, "it has an opaque iteration variable", has_reduce)
    if not block.writes:
        return BlockFacts(OPAQUE, "it declares no writes", has_reduce)
    read = {region.buffer for region in block.reads}
    written = {region.buffer for region in block.writes}
    reduce_vars = {item.var for item in block.iter_vars if item.kind == REDUCE}
    for region in block.writes:
        if any(uses_var(e, reduce_vars) for r in region.region for e in (r.min, r.extent)):
            return BlockFacts(
                OPAQUE, "a reduce iteration variable takes part in what it writes", has_reduce
            )
    why = _overlap_of_writes(block) or _two_names(written, read)
    if why:
        return BlockFacts(OPAQUE, why, has_reduce)
    if block.init is not None:
        why = _reads_of_others(block)
        return BlockFacts(OPAQUE if why else REDUCTION, why, has_reduce)
    if not has_reduce and not read & written:
        return BlockFacts(COMPLETE, "", has_reduce)
    if _updates_in_place(block) or _opaque_update(block):
        return BlockFacts(UPDATE, "", has_reduce)
    if has_reduce:
        return BlockFacts(OPAQUE, "it reduces without init", has_reduce)
    return BlockFacts(OPAQUE, "it reads what it writes", has_reduce)


def _reads_of_others(block: Block) -> str:
    """Say which elements a reduction reads that other instances may write, or return ``""``."""
    own = {region.buffer: region for region in block.writes}
    for region in block.reads:
        written = own.get(region.buffer)
        if written is not None and not covers_box(written.region, region.region):
            return f"it reads elements of {region.buffer.name!r} that it doesn't combine into"
    return ""


def _two_names(written: Set[Buffer], read: Set[Buffer]) -> str:
    """Say which memory a block writes that it also uses by another name, or return ``""``."""
    for buffer in written:
        for other in (*written, *read):
            if other is not buffer and other.data is buffer.data:
                return f"{buffer.name!r} and {other.name!r} are names of the same memory"
    return ""


def _overlap_of_writes(block: Block) -> str:
    """Say why two instances may write the same element, or return ``""`` if they can't."""
    spatial = {
        item.var: item.dom
        for item in block.iter_vars
        if item.kind == SPATIAL and not is_const(item.dom.extent, 1)
    }
    for region in block.writes:
        left = dict(spatial)
        simple = True
        for dim, item in enumerate(region.region):
            var = _strided_var(item)
            if var is None:
                var = _var_by_remainder(block, region.buffer, dim)
            if var is not None:
                left.pop(var, None)
            elif uses_var(item.min, spatial):
                simple = False
        if not left:
            continue
        if any(type(node) is BufferLoad for item in region.region for node in pre_order(item.min)):
            return f"where it writes in {region.buffer.name!r} depends on data"
        moving = [item for item in region.region if uses_var(item.min, spatial)]
        if simple or any(not is_const(item.extent, 1) for item in moving):
            names = ", ".join(repr(var.name) for var in left)
            return f"instances that differ in {names} may write the same elements"
        known = Analyzer()
        for extent in region.buffer.shape:
            known.assume(extent >= 1)  # else there is no instance: none writes outside
        found = detect_iter_map(
            [item.min for item in moving],
            spatial,
            TRUE,
            require_bijective=True,
            analyzer=known,
        )
        if found.errors:
            return f"it is not clear that its instances write different elements: {found.errors[0]}"
        # Bijective onto the indices: but every variable must be there at all.
        for var in left:
            if not any(uses_var(item.min, {var}) for item in moving):
                return f"instances that differ in {var.name!r} write the same elements"
    return ""


def _strided_var(item: Range) -> Var | None:
    """Return ``v`` for the ranges ``[v, v+1)`` and ``[v*c, v*c+e)`` with ``e <= c``."""
    low: Any = item.min
    stride = 1
    if type(low) is Add and type(low.b) is IntImm:
        low = low.a
    if type(low) is Mul and type(low.b) is IntImm:
        low, stride = low.a, low.b.value
    elif type(low) is Mul and type(low.a) is Var and expr_equal(low.b, item.extent):
        return low.a
    if type(low) is not Var:
        return None
    # The last chunk may be cut short: ``min(c, n - v*c)``.
    extent: Any = item.extent
    bounds = [extent.a, extent.b] if type(extent) is Min else [extent]
    for bound in map(as_int, bounds):
        if bound is not None and bound <= stride:
            return low
    return None


def _var_by_remainder(block: Block, buffer: Buffer, dim: int) -> Var | None:
    """The variable that is the remainder of each index written: ``v + c * extent`` for many ``c``.

    So the results of a stage of a Fourier transform lie, which is a block that writes each of them.
    """
    extents = {
        item.var: as_int(item.dom.extent)
        for item in block.iter_vars
        if item.kind == SPATIAL and is_const(item.dom.min, 0)
    }
    found: Var | None = None
    if block.match_buffers:
        return None
    stmts = (block.body,) if block.init is None else (block.init, block.body)
    for item in chain.from_iterable(map(pre_order, stmts)):
        if type(item) is Block or (type(item) is Call and item.op.effect not in ("pure", "read")):
            return None
        if type(item) is not BufferStore or item.buffer.data is not buffer.data:
            continue
        index: Any = item.indices[dim] if item.buffer is buffer else None
        shift = 0
        if type(index) is Add and type(index.b) is IntImm:
            index, shift = index.a, index.b.value
        extent = extents.get(index) if type(index) is Var else None
        if not extent or shift % extent or (found is not None and index is not found):
            return None
        found = index
    return found


def _updates_in_place(block: Block) -> bool:
    """Whether the body is ``X[i] = f(X[i], ...)`` with ``X`` read at ``i`` only, at any depth."""
    stores: list[BufferStore] = []
    lets: dict[Var, Expr] = {}
    for item in pre_order(block.body):
        if type(item) is BufferStore:
            stores.append(item)
        elif isinstance(item, (LetStmt, Let)):
            lets[item.var] = item.value
    if not stores:
        return False
    written = {store.buffer: _spelled_out(store.indices, lets) for store in stores}
    if len(written) != len(stores):
        return False
    for store in stores:
        combined = False
        for load in _loads_behind(store.value, lets):
            if load.buffer in written:
                here = written[load.buffer]
                if not all(map(expr_equal, _spelled_out(load.indices, lets), here)):
                    return False
                combined = combined or load.buffer is store.buffer
        if not combined:
            return False
    return True


def _spelled_out(indices: Sequence[Expr], lets: Mapping[Var, Expr]) -> list[Expr]:
    """Indices without names for parts of them."""
    found = list(indices)
    while lets and any(var in lets for index in found for var in free_vars(index)):
        found = [substitute(index, lets) for index in found]
    return found


def _loads_behind(value: Expr, lets: Mapping[Var, Expr]) -> Iterator[BufferLoad]:
    """The loads of a value and of the names that it uses.

    Tuples are combined into variables first, then stored. Formulas have names for what they use
    several times: names of names, so nothing is put in their place.
    """
    seen: set[Var] = set()
    rest = [value]
    while rest:
        for item in pre_order(rest.pop()):
            if type(item) is BufferLoad:
                yield item
            elif type(item) is Var and item in lets and item not in seen:
                seen.add(item)
                rest.append(lets[item])


def _opaque_update(block: Block) -> bool:
    """Whether an intrinsic does the work, and what is written is declared to be read as well."""
    if not any(type(item) is Call and item.op.effect == "opaque" for item in pre_order(block.body)):
        return False
    read = {region.buffer: region for region in block.reads}
    for region in block.writes:
        other = read.get(region.buffer)
        if other is None or not same_box(region.region, other.region):
            return False
    return True


def block_kind(block: Block, scope: Block | None) -> tuple[str, str]:
    """Return the kind of a block in its scope, and for an opaque one the reason."""
    facts = block_facts(block)
    if facts.kind in (OPAQUE, UPDATE) or scope is None:
        return facts.kind, facts.reason
    graph = block_dependencies(scope)
    if block.name in graph.children:
        for region in block.writes:
            others = [name for name in graph.writers.get(region.buffer, ()) if name != block.name]
            if others:
                why = f"block {others[0]!r} writes {region.buffer.name!r} too"
                return OPAQUE, why
    return facts.kind, facts.reason


def _block_of(block: Block | BlockRealize) -> Block:
    return block.block if isinstance(block, BlockRealize) else block


def is_complete_block(block: Block | BlockRealize, scope: Block | None = None) -> bool:
    """Whether a block is complete (in ``scope``, if given); see the module's text."""
    return block_kind(_block_of(block), scope)[0] == COMPLETE


def is_reduction_block(block: Block | BlockRealize, scope: Block | None = None) -> bool:
    """Whether a block is a reduction with ``init`` (in ``scope``, if given)."""
    return block_kind(_block_of(block), scope)[0] == REDUCTION


def check_dominant_block(block: Block | BlockRealize, scope: Block) -> str:
    """Say why a block is not *dominant* in its scope, or return ``""`` if it is.

    A dominant block alone writes its outputs, and comes before all that read them.
    """
    block = _block_of(block)
    graph = block_dependencies(scope)
    if block.name not in graph.children:
        return f"it is not a child block of {scope.name!r}"
    order = list(graph.children)
    for region in block.writes:
        buffer = region.buffer
        for other in graph.writers.get(buffer, ()):
            if other != block.name:
                return f"block {other!r} writes {buffer.name!r} too"
        for other in graph.readers.get(buffer, ()):
            if order.index(other) < order.index(block.name):
                return f"block {other!r} reads {buffer.name!r} before it is written"
    return ""


def check_complete_block(block: Block | BlockRealize, scope: Block | None = None) -> str:
    """Say why a block is not complete (and dominant in ``scope``), or return ``""`` if it is."""
    block = _block_of(block)
    kind, why = block_kind(block, scope)
    if kind == REDUCTION:
        return "it is a reduction with init"
    if kind == UPDATE:
        return "it updates elements that it reads, so each may be written more than once"
    if kind != COMPLETE:
        return why
    return "" if scope is None else check_dominant_block(block, scope)


def check_reduction_block(block: Block | BlockRealize, scope: Block | None = None) -> str:
    """Say why a block is not a reduction (dominant in ``scope``), or return ``""`` if it is."""
    block = _block_of(block)
    kind, why = block_kind(block, scope)
    if kind in (COMPLETE, UPDATE):
        return "it has no init"
    if kind != REDUCTION:
        return why
    return "" if scope is None else check_dominant_block(block, scope)


def check_affine_binding(
    realize: BlockRealize, loops: Mapping[Var, Range], *, analyzer: Analyzer | None = None
) -> str:
    """Say why the bindings of a block are not affine, or return ``""`` if they are."""
    if is_affine_binding(realize, loops, analyzer=analyzer):
        return ""
    found = detect_iter_map(
        list(realize.iter_values), dict(loops), realize.predicate, analyzer=analyzer
    )
    return "; ".join(found.errors)


def is_dominant_block(block: Block | BlockRealize, scope: Block) -> bool:
    """Whether a block alone writes its outputs, and before they are read."""
    return not check_dominant_block(block, scope)


def is_output_block(block: Block | BlockRealize, scope: Block) -> bool:
    """Whether a block writes something that its scope doesn't allocate."""
    own = set(scope.alloc_buffers)
    return any(region.buffer not in own for region in _block_of(block).writes)


# ---- bindings -------------------------------------------------------------------------------


def linear_terms(expr: Expr) -> tuple[dict[Var, int], int] | None:
    """Return coefficients by variable and the constant of ``a*c + b*d + e``, or ``None``."""
    terms: dict[Var, int] = {}
    constant = 0
    for item, factor in sum_terms(expr):
        if type(item) is Var:
            terms[item] = terms.get(item, 0) + factor
        elif type(item) is IntImm:
            constant += item.value * factor
        else:
            return None
    return terms, constant


def is_injective_binding(
    values: tuple[Expr, ...],
    loops: Mapping[Var, Range],
    predicate: Expr = TRUE,
    *,
    analyzer: Callable[[], Analyzer] | None = None,
) -> bool:
    """Whether different values of the loops that are used give different iteration values.

    ``analyzer`` makes an analyzer that knows symbolic extents; it is called only if needed.
    """
    verdict = _positional(values, loops)
    if verdict is not None:
        return verdict
    if _detected(values, loops, predicate, analyzer):
        return True
    joined = _with_digits_joined(values, loops)
    return joined is not None and is_injective_binding(joined, loops, predicate, analyzer=analyzer)


Digit = tuple[Var, int, int]
"""A variable, and which part of it: ``var // low % size``."""


def _part(expr: Any) -> tuple[Any, int, int | None] | None:
    """Read ``e // low % size``: ``e``, ``e // a``, ``e % b``, ``e // a % b`` or ``e % b // a``."""
    low, size = 1, None
    if type(expr) is FloorMod and type(expr.b) is IntImm:
        size = expr.b.value
        expr = expr.a
        if type(expr) is FloorDiv and type(expr.b) is IntImm:
            low = expr.b.value
            expr = expr.a
    elif type(expr) is FloorDiv and type(expr.b) is IntImm:
        low = expr.b.value
        expr = expr.a
        if type(expr) is FloorMod and type(expr.b) is IntImm:
            if expr.b.value % low:
                return None
            size = expr.b.value // low
            expr = expr.a
    return expr, low, size


def _with_digits_joined(
    values: Iterable[Expr], loops: Mapping[Var, Range]
) -> tuple[Expr, ...] | None:
    """Put numbers in the place of values that are all of their digits in mixed radix, if any are.

    So a loop is bound that was fused of several, and then split into others.
    """
    made: list[Expr] = []
    numbers: list[tuple[Expr, list[tuple[int, int | None]]]] = []
    for value in values:
        found = _part(value) if uses_var(value, loops) else None
        if found is None or found[0] is value or type(found[0]) is Var:
            made.append(value)
            continue
        number, low, size = found
        parts = next(
            (own for other, own in numbers if structural_equal(other, number, map_free_vars=True)),
            None,
        )
        if parts is None:
            numbers.append((number, parts := []))
        parts.append((low, size))
    for number, parts in numbers:
        weight: int | None = 1
        for low, size in sorted(parts, key=lambda part: part[0]):
            # What is above the highest digit, which has no bound, repeats it.
            if low == weight:
                weight = None if size is None else low * size
            elif weight is not None:
                return None
        if weight is not None:
            return None
        made.append(number)
    return tuple(made) if numbers else None


def _digit(expr: Any, loops: Mapping[Var, Range]) -> Digit | None:
    """Read a part of a loop from zero."""
    found = _part(expr)
    if found is None:
        return None
    expr, low, size = found
    domain = loops.get(expr) if type(expr) is Var else None
    if domain is None or type(domain.extent) is not IntImm or not is_const(domain.min, 0):
        return None
    left = -(-domain.extent.value // low)
    return expr, low, left if size is None else min(size, left)


def _positional(values: tuple[Expr, ...], loops: Mapping[Var, Range]) -> bool | None:
    """Decide injectivity of bindings that are numbers in mixed radix, as splits and fusions make.

    ``None`` means that they are not, so this proves nothing. Each value must be a sum of digits of
    loops in which no digit can reach the next one's weight; each loop must be told by its digits.
    """
    digits: dict[Var, list[tuple[int, int]]] = {}
    for value in values:
        terms: list[tuple[int, int]] = []
        for item, scale in sum_terms(value):
            if type(item) is IntImm or (type(item) is Var and item not in loops):
                continue
            digit = _digit(item, loops)
            if digit is None or scale <= 0:
                return None
            var, low, size = digit
            digits.setdefault(var, []).append((low, size))
            if size > 1:
                terms.append((scale, size))
        terms.sort()
        reach = 0
        for scale, size in terms:
            if scale <= reach:
                return None
            reach += scale * (size - 1)
    for var, parts in digits.items():
        parts.sort()
        weight = 1
        for low, size in parts:
            if low != weight:
                return None
            weight = low * size
        if weight < as_int(loops[var].extent):  # type: ignore[operator]
            return None
    return True


def _detected(
    values: tuple[Expr, ...],
    loops: Mapping[Var, Range],
    predicate: Expr,
    analyzer: Callable[[], Analyzer] | None,
) -> bool:
    known = analyzer() if analyzer is not None else None
    found = detect_iter_map(list(values), dict(loops), predicate, analyzer=known)
    if found.errors or not found.injective:
        return False
    # A loop may be in a value that is the same in all its iterations: ``l // 2`` of two of them.
    told = {var for index in found.indices for var in free_vars(index.to_expr())}
    used = {var for value in values for var in free_vars(value) if var in loops}
    untold = [var for var in used - told if not is_const(loops[var].extent, 1)]
    if not untold:
        return True
    known = analyzer() if analyzer is not None else Analyzer()
    known.bind_ranges(loops)
    with known.constraint(predicate):
        return all(known.can_prove(var == loops[var].min) for var in untold)


def is_affine_binding(
    realize: BlockRealize, loops: Mapping[Var, Range], *, analyzer: Analyzer | None = None
) -> bool:
    """Whether a realize's values are independent quasi-affine maps of the loops around it."""
    values = realize.iter_values
    used: set[Var] = set()
    for value in values:
        if type(value) is Var and value in loops and value not in used:
            used.add(value)
        elif type(value) is not IntImm:
            break
    else:
        return True
    found = detect_iter_map(list(values), dict(loops), realize.predicate, analyzer=analyzer)
    return not found.errors


def has_branch(block: Block) -> bool:
    """Whether a block chooses between values by a condition (padding, concatenation)."""
    return any(item.op.name == "if_then_else" for item in collect(block.body, Call))


def has_division(expr: Expr) -> bool:
    """Whether an index expression has a quotient or remainder."""
    return any(type(item) is FloorDiv or type(item) is FloorMod for item in pre_order(expr))


__all__ = [
    "COMPLETE",
    "REDUCTION",
    "UPDATE",
    "BlockFacts",
    "DependencyGraph",
    "block_facts",
    "block_kind",
    "check_affine_binding",
    "check_complete_block",
    "check_dominant_block",
    "check_reduction_block",
    "has_division",
    "is_affine_binding",
    "is_complete_block",
    "is_dominant_block",
    "is_injective_binding",
    "is_output_block",
    "is_reduction_block",
    "linear_terms",
]
