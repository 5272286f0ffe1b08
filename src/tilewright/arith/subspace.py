"""Taking iteration maps apart: division by inner loops, and inversion.

``blockize`` and ``tensorize`` divide bindings into an outer and an inner part; ``transform_layout``
inverts maps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.conditions import conjuncts
from tilewright.arith.iter_expr import IterMark, IterSplitExpr, IterSumExpr, same_value
from tilewright.arith.iter_map import detect_iter_map
from tilewright.arith.options import IterMapLevel
from tilewright.arith.polynomial import constant_of, none_if_too_large, poly_exact
from tilewright.ir import (
    TRUE,
    Expr,
    ExprLike,
    Range,
    Var,
    and_,
    as_expr,
    as_int,
    const,
    uses_var,
)

_ZERO, _ONE = const(0), const(1)


@dataclass
class SubspaceDivision:
    """Bindings divided into an outer and an inner part: ``binding == outer * extent + inner``.

    Iterating gives the pairs ``(outer, inner)`` of marks, where ``extent`` is the inner's.
    """

    pairs: list[tuple[IterMark, IterMark]]
    outer_predicate: Expr = TRUE
    inner_predicate: Expr = TRUE

    def __iter__(self) -> Iterator[tuple[IterMark, IterMark]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[IterMark, IterMark]:
        return self.pairs[index]


@none_if_too_large
def subspace_divide(
    bindings: Sequence[Expr],
    input_iters: Mapping[Var, Range],
    sub_iters: set[Var] | Sequence[Var],
    predicate: ExprLike = TRUE,
    check_level: IterMapLevel | int = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
    *,
    require_bijective: bool = False,
) -> SubspaceDivision | None:
    """Divide each binding into a part over the outer loops and one over ``sub_iters``.

    ``check_level`` and ``simplify_trivial_iterators`` are those of ``detect_iter_map``.
    Return ``None`` if a binding mixes them in another way.
    """
    known = analyzer.copy() if analyzer is not None else Analyzer()
    inner_vars = set(sub_iters)
    outer_vars = {var for var in input_iters if var not in inner_vars}
    level = IterMapLevel.Bijective if require_bijective else IterMapLevel(check_level)
    predicate = as_expr(predicate)
    detected = detect_iter_map(
        bindings,
        input_iters,
        predicate if level is IterMapLevel.Bijective else TRUE,
        level,
        simplify_trivial_iterators,
        analyzer,
    )
    if detected.errors:
        return None
    known.bind_ranges(input_iters)
    pairs = []
    for total in detected.indices:
        pair = _divide_one(known, total, inner_vars, outer_vars)
        if pair is None:
            return None
        pairs.append(pair)
    predicates: list[list[Expr]] = [[], []]
    for condition in conjuncts(known.simplify(predicate)):
        in_inner, in_outer = uses_var(condition, inner_vars), uses_var(condition, outer_vars)
        if in_inner and in_outer:
            return None
        predicates[1 if in_inner else 0].append(condition)
    return SubspaceDivision(pairs, and_(*predicates[0]), and_(*predicates[1]))


def _splits(total: IterSumExpr) -> list[IterSplitExpr]:
    """Open fused marks that are used whole, so that the splits are of variables."""
    made: list[IterSplitExpr] = []
    for arg in total.args:
        source = arg.source.source
        whole = same_value(arg.extent, arg.source.extent) and as_int(arg.lower_factor) == 1
        if isinstance(source, IterSumExpr) and whole and as_int(source.base) == 0:
            for inner in _splits(source):
                made.append(inner.with_scale(Analyzer().simplify(inner.scale * arg.scale)))
        else:
            made.append(arg)
    return made


def _divide_one(
    known: Analyzer, total: IterSumExpr, inner_vars: set[Var], outer_vars: set[Var]
) -> tuple[IterMark, IterMark] | None:
    simplify = known.simplify
    outer: list[IterSplitExpr] = []
    inner: list[IterSplitExpr] = []
    for arg in _splits(total):
        expr = arg.source.to_expr()
        in_inner, in_outer = uses_var(expr, inner_vars), uses_var(expr, outer_vars)
        if in_inner and in_outer:
            return None
        (inner if in_inner else outer).append(arg)
    inner_span: Expr = _ONE
    for arg in inner:
        inner_span = inner_span + (arg.extent - 1) * arg.scale
    inner_span = simplify(inner_span)
    if not outer:
        inner_sum = IterSumExpr(tuple(inner), total.base)
        zero = IterMark(IterSumExpr((), _ZERO), _ONE)
        return zero, IterMark(inner_sum, inner_span)
    if not inner:
        span: Expr = _ONE
        for arg in outer:
            span = span + (arg.extent - 1) * arg.scale
        return IterMark(IterSumExpr(tuple(outer), total.base), simplify(span)), IterMark(
            IterSumExpr((), _ZERO), _ONE
        )
    divided = []
    poly = known.poly
    unit = poly(inner_span)
    span = _ONE
    for arg in outer:
        scale = poly_exact(poly(arg.scale), unit)
        if scale is None:
            return None
        made = known.from_poly(scale)
        divided.append(arg.with_scale(made))
        span = span + (arg.extent - 1) * made
    base = poly_exact(poly(total.base), unit)
    outer_base = _ZERO if base is None else known.from_poly(base)
    inner_base = total.base if base is None else _ZERO
    if base is None and constant_of(poly(total.base)) is None:
        return None
    return (
        IterMark(IterSumExpr(tuple(divided), outer_base), simplify(span)),
        IterMark(IterSumExpr(tuple(inner), inner_base), inner_span),
    )


def inverse_affine_iter_map(
    iter_map: Sequence[IterSumExpr], outputs: Sequence[Expr]
) -> dict[Var, Expr]:
    """Solve ``iter_map == outputs`` for the input variables of a bijective map."""
    values: dict[IterMark, Expr] = {}
    analyzer = Analyzer()

    def give(arg: IterSplitExpr, value: Expr) -> None:
        part = value * arg.lower_factor
        known = values.get(arg.source)
        values[arg.source] = part if known is None else known + part

    def take_apart(args: Sequence[IterSplitExpr], value: Expr, whole: Expr | None) -> None:
        """Spread a value over splits; the topmost needs no remainder if ``whole`` bounds it."""
        for arg in args:
            digit = value // arg.scale
            top = whole is not None and same_value(arg.scale * arg.extent, whole)
            if len(args) > 1 and not top and as_int(arg.extent) != 0:
                digit = digit % arg.extent
            give(arg, analyzer.simplify(digit))

    for total, output in zip(iter_map, outputs):
        if total.args:
            value = output if as_int(total.base) == 0 else output - total.base
            take_apart(total.args, value, None)
    solved: dict[Var, Expr] = {}
    pending = set(values)
    while pending:
        # Fused marks are newer than what they are made of: newest first.
        mark = max(pending, key=lambda item: item.serial)
        pending.remove(mark)
        value = values[mark]
        if isinstance(mark.source, IterSumExpr):
            base = mark.source.base
            shifted = value if as_int(base) == 0 else value - base
            before = set(values)
            span: Expr = mark.extent
            if mark.source.args:
                top = mark.source.args[0]
                span = top.scale * top.extent
            take_apart(mark.source.args, shifted, span)
            pending |= set(values) - before
        elif mark.var is not None:
            offset = mark.offset if mark.offset is not None else _ZERO
            solved[mark.var] = analyzer.simplify(value + offset)
    return solved
