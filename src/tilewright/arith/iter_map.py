"""Iteration maps: index expressions as splits and fusions of loop variables.

A quasi-affine map takes loops apart (``i // 4 % 8``), scales the splits and adds them up. Detection
brings each index into that form (see ``iter_expr``), fuses the splits of each into one, and checks
that those of all indices together don't overlap (``iter_check``).

Extents and factors may be symbolic (products of positive variables). Block bindings, reductions,
``transform_layout``, ``blockize`` and ``tensorize`` rest on this analysis.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.conditions import comparison_goals, narrowed
from tilewright.arith.iter_check import SplitChecker, uses_of
from tilewright.arith.iter_expr import IterMark, IterSplitExpr, IterSumExpr, same_split
from tilewright.arith.options import IterMapLevel
from tilewright.arith.polynomial import (
    DIV,
    MOD,
    VAR,
    ConstantTooLarge,
    Poly,
    poly_add,
    poly_atoms,
    poly_exact,
    poly_key,
    poly_mul,
    poly_scale,
)
from tilewright.ir import (
    FALSE,
    TRUE,
    Expr,
    ExprLike,
    Range,
    Var,
    as_expr,
    as_int,
    const,
    pre_order,
)


class _NotQuasiAffine(Exception):
    """Internal: an index is no sum of splits and fusions; the text says why."""


@dataclass
class IterMapResult:
    """What detection found.

    ``indices`` holds one sum per index (empty if there are ``errors``). ``padding_predicate`` is
    true for the values of padded marks that no input takes; ``injective`` tells whether every
    input that appears is determined by the indices.
    """

    indices: list[IterSumExpr] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    padding_predicate: Expr = FALSE
    injective: bool = False

    def ranges(self) -> list[Range] | None:
        """The range that each index runs over in steps of one; ``None`` if one doesn't."""
        found = []
        for total in self.indices:
            extent: Expr = const(1)
            if total.args:
                if len(total.args) > 1 or as_int(total.args[0].scale) != 1:
                    return None
                extent = total.args[0].extent
            found.append(Range.from_min_extent(total.base, extent))
        return found


_ZERO, _ONE = const(0), const(1)


@dataclass(eq=False)
class _Bound:
    """What a condition says of a chain of splits: ``chain >= value``, or ``chain < value``."""

    chain: tuple[IterSplitExpr, ...]
    value: Expr
    lower: bool
    implied: bool = False  # by another one

    def to_expr(self) -> Expr:
        """The condition."""
        total = IterSumExpr(self.chain, _ZERO).to_expr()
        return total >= self.value if self.lower else total < self.value


class _Detector:
    """Detects the maps of one call of ``detect_iter_map``."""

    def __init__(
        self, inputs: Mapping[Var, Range], predicate: Expr, bijective: bool, analyzer: Analyzer
    ) -> None:
        self.analyzer = analyzer
        self.context = analyzer._context
        self.canonical = analyzer._canonical
        self.bijective = bijective
        self.marks: dict[Any, IterMark] = {}
        self.var_marks: dict[int, IterMark] = {}
        self.bounds: list[_Bound] = []
        self.bounded: dict[tuple[_Bound, ...], IterMark] = {}
        self.serial = 0
        ranges, self.rest = narrowed(analyzer, inputs, predicate)
        for var, value in ranges.items():
            number = self.context.table.var(var)
            analyzer.bind(var, value, override=True)
            source: Expr = var if as_int(value.min) == 0 else var - value.min
            self.var_marks[number] = self._mark(source, value.extent, var, value.min)

    def _mark(
        self, source: object, extent: Expr, var: Var | None = None, offset: Expr | None = None
    ) -> IterMark:
        self.serial += 1
        return IterMark(source, extent, var, offset, self.serial)

    # ---- predicates -------------------------------------------------------------------------

    def add_constraints(self) -> list[str]:
        """Turn conditions ``i0*16 + i1 < 1000`` into fused marks of that extent."""
        left: list[str] = []
        pending = []
        for condition in self.rest:
            goals = comparison_goals(self.analyzer, condition, reduce=False)
            if goals is None or len(goals) != 1:
                left.append(f"the condition `{condition!r}` is not a bound of a fused index")
                continue
            pending.append((condition, goals[0]))
        pending.sort(key=lambda item: len(item[1]))  # small sums may be parts of greater ones
        for condition, goal in pending:
            if not self._constrain(goal):
                left.append(f"the condition `{condition!r}` does not bound a fused index")
        # Not before: that something satisfies a bound doesn't follow from the bound.
        for condition in self.rest:
            self.analyzer.assume(condition)
        return left

    def _constrain(self, goal: Poly) -> bool:
        """Learn from ``goal >= 0`` the bound of a chain of splits; ``False`` if it says no such."""
        try:
            total = self.sum_of(poly_scale(goal, -1))
        except _NotQuasiAffine:
            return False
        chain, scale, span = self._chain(total.args)
        unit = as_int(scale)
        if len(chain) != len(total.args) or len(chain) < 2 or unit is None:
            return False
        simplify, at_most = self.analyzer.simplify, self.analyzer.can_prove_le
        if unit < 0:
            # scale * x + base <= 0  <=>  x >= ceil(base / -scale)
            low = simplify((total.base - unit - 1) // -unit)
            if at_most(low, 0):
                return True
            bound = _Bound(self._in_units(chain, scale), low, True)
            return at_most(0, low) and at_most(low, span - 1) and self._add_bound(bound)
        # scale * x + base <= 0  <=>  x < floor(-base / scale) + 1
        high = simplify((_ZERO - total.base) // scale + 1)
        if at_most(span, high):
            return True
        bound = _Bound(self._in_units(chain, scale), high, False)
        return at_most(1, high) and at_most(high, span) and self._add_bound(bound)

    def _in_units(self, chain: Sequence[IterSplitExpr], scale: Expr) -> tuple[IterSplitExpr, ...]:
        """A chain whose smallest scale is one."""
        if as_int(scale) == 1:
            return tuple(chain)
        simplify = self.analyzer.simplify
        return tuple(arg.with_scale(simplify(arg.scale // scale)) for arg in chain)

    def _add_bound(self, bound: _Bound) -> bool:
        """Remember a bound; of nested ones keep what counts. ``False`` if nothing may be left.

        If an earlier, shorter chain ``v`` is this one without its last splits, this one is
        ``v*s + rest`` with ``rest < s``, so ``v < b`` means that it is below ``b*s``, and
        ``v >= b`` that it is not below ``b*s``: one of the two conditions implies the other.
        """
        analyzer, chain = self.analyzer, bound.chain
        for other in list(self.bounds):
            if len(other.chain) > len(chain):
                continue
            unit = chain[len(other.chain) - 1].scale
            if not all(
                same_split(analyzer, x, y) and analyzer.can_prove_equal(x.scale, y.scale * unit)
                for x, y in zip(chain, other.chain)
            ):
                continue
            limit = analyzer.simplify(other.value * unit)
            low, high = (bound.value, limit) if bound.lower else (limit, bound.value)
            if other.lower is not bound.lower:
                if len(other.chain) == len(chain) and not analyzer.can_prove_lt(low, high):
                    return False
            elif analyzer.can_prove_le(low, high):
                return True
            elif analyzer.can_prove_ge(low, high):
                other.implied = True
                if len(other.chain) == len(chain):
                    self.bounds.remove(other)
        self.bounds.append(bound)
        return True

    def _bounds_of(self, chain: Sequence[IterSplitExpr]) -> list[_Bound]:
        return [bound for bound in self.bounds if _same_chain(self.analyzer, bound.chain, chain)]

    def _bounded(self, bounds: Sequence[_Bound]) -> tuple[IterMark, Expr]:
        """Return the mark of a chain inside of bounds, the same one each time, and its start."""
        key = tuple(bounds)
        low: Expr = _ZERO
        chain = bounds[0].chain
        high: Expr = chain[0].scale * chain[0].extent
        for bound in bounds:
            if bound.lower:
                low = bound.value
            else:
                high = bound.value
        found = self.bounded.get(key)
        if found is None:
            simplify = self.analyzer.simplify
            total = IterSumExpr(chain, simplify(_ZERO - low))
            found = self.bounded[key] = self._mark(total, simplify(high - low))
        return found, low

    # ---- normal form ------------------------------------------------------------------------

    def _depends(self, number: int) -> bool:
        table = self.context.table
        operands = table.operands[number]
        if table.kinds[number] == VAR:
            return number in self.var_marks
        if operands is not None:
            return any(self._depends(a) for operand in operands for a in poly_atoms(operand))
        return any(
            type(item) is Var and table.numbers.get(item) in self.var_marks
            for item in pre_order(table.expr(number))
        )

    def _text(self, poly: Poly) -> str:
        return repr(self.context.table.to_expr(poly))

    def sum_of(self, poly: Poly) -> IterSumExpr:
        """Bring a polynomial into sum form; ``_NotQuasiAffine`` if it is not quasi-affine."""
        groups: dict[int, Poly] = {}
        base: Poly = {}
        for mono, value in poly.items():
            inside = [number for number in mono if self._depends(number)]
            if not inside:
                base = poly_add(base, {mono: value})
                continue
            if len(inside) > 1:
                raise _NotQuasiAffine(f"`{self._text({mono: value})}` is not linear in the loops")
            rest = list(mono)
            rest.remove(inside[0])
            scale = groups.setdefault(inside[0], {})
            groups[inside[0]] = poly_add(scale, {tuple(rest): value})
        args: list[IterSplitExpr] = []
        for number, scale in groups.items():
            if not scale:
                continue
            inner = self._atom(number)
            for arg in inner.args:
                args.append(arg.with_scale(self._product(arg.scale, scale)))
            base = poly_add(base, poly_mul(self.analyzer.poly(inner.base), scale))
        args = self._merged([arg for arg in args if as_int(arg.extent) != 1])
        return IterSumExpr(tuple(args), self.analyzer.from_poly(base))

    def _product(self, a: Expr, scale: Poly) -> Expr:
        return self.analyzer.from_poly(poly_mul(self.analyzer.poly(a), scale))

    def _atom(self, number: int) -> IterSumExpr:
        mark = self.var_marks.get(number)
        if mark is not None:
            assert mark.offset is not None
            split = IterSplitExpr(mark, _ONE, mark.extent, _ONE)
            return IterSumExpr((split,), mark.offset)
        table = self.context.table
        kind, operands = table.kinds[number], table.operands[number]
        if kind not in (DIV, MOD) or operands is None:
            raise _NotQuasiAffine(f"`{table.expr(number)!r}` is not made of splits of the loops")
        if any(self._depends(a) for a in poly_atoms(operands[1])):
            raise _NotQuasiAffine(f"`{table.expr(number)!r}` divides by something that varies")
        divisor = self.analyzer.from_poly(operands[1])
        if not self.canonical.positive(operands[1]):
            raise _NotQuasiAffine(f"the divisor `{divisor!r}` may not be positive")
        split = self._fused_split(self.sum_of(operands[0]), divisor)
        return IterSumExpr((self._split(split, divisor, kind),), _ZERO)

    def _fused_split(self, total: IterSumExpr, divisor: Expr) -> IterSplitExpr:
        """Fuse a sum that is to be divided into one split of scale 1."""
        if as_int(total.base) == 0 and len(total.args) == 1:
            (arg,) = total.args
            if as_int(arg.scale) == 1:
                return arg
        chain, scale, span = self._chain(total.args)
        if len(chain) != len(total.args) or as_int(scale) != 1:
            raise _NotQuasiAffine(
                f"`{total.to_expr()!r}` divided by `{divisor!r}` is not a fusion of loops"
            )
        mark = self._fused(tuple(chain), span, total.base)
        return IterSplitExpr(mark, _ONE, mark.extent, _ONE)

    def _fused(self, chain: tuple[IterSplitExpr, ...], span: Expr, base: Expr) -> IterMark:
        """Return the mark of a fused chain, the same one each time."""
        total = IterSumExpr(chain, base)
        if as_int(base) == 0:
            # One that starts higher up can't be divided: what is below would be padding.
            below = [bound for bound in self._bounds_of(chain) if not bound.lower]
            if below:
                return self._bounded(below)[0]
        key = poly_key(self.analyzer.poly(total.to_expr()))
        found = self.marks.get(key)
        if found is None:
            found = self._mark(total, self.analyzer.simplify(span + base))
            if as_int(base) != 0:
                if not self.analyzer.can_prove_ge(base, 0):
                    raise _NotQuasiAffine(f"`{total.to_expr()!r}` may be negative")
                found.padded = True
            self.marks[key] = found
        return found

    def _split(self, split: IterSplitExpr, divisor: Expr, kind: int) -> IterSplitExpr:
        """Divide a split: ``split // divisor`` or ``split % divisor``."""
        analyzer = self.analyzer
        extent = analyzer.simplify(split.extent // divisor)
        if not analyzer.can_prove_equal(extent * divisor, split.extent):
            whole = analyzer.can_prove_equal(split.lower_factor * split.extent, split.source.extent)
            if not whole and not (split.source.padded and split.is_top()):
                raise _NotQuasiAffine(
                    f"`{split.to_expr()!r}` of extent {split.extent!r} "
                    f"is not divisible by {divisor!r}"
                )
            split.source.padded = True
            extent = analyzer.simplify((split.extent + divisor - 1) // divisor)
        if kind == MOD:
            return IterSplitExpr(split.source, split.lower_factor, divisor, _ONE)
        lower = analyzer.simplify(split.lower_factor * divisor)
        return IterSplitExpr(split.source, lower, extent, _ONE)

    def _merged(self, args: list[IterSplitExpr]) -> list[IterSplitExpr]:
        """Join neighbouring splits of one mark: ``i // 4 % 4 * 4 + i % 4`` is ``i % 16``."""
        while True:
            pair = next(filter(self._are_neighbours, permutations(args, 2)), None)
            if pair is None:
                return args
            low, high = pair
            extent = self.analyzer.simplify(low.extent * high.extent)
            made = IterSplitExpr(low.source, low.lower_factor, extent, low.scale)
            args = [made if arg is low else arg for arg in args if arg is not high]

    def _are_neighbours(self, pair: tuple[IterSplitExpr, IterSplitExpr]) -> bool:
        low, high = pair
        equal = self.analyzer.can_prove_equal
        return (
            low.source is high.source
            and equal(high.lower_factor, low.lower_factor * low.extent)
            and equal(high.scale, low.scale * low.extent)
        )

    # ---- fusing -----------------------------------------------------------------------------

    def _chain(self, args: Sequence[IterSplitExpr]) -> tuple[list[IterSplitExpr], Expr, Expr]:
        """Order splits so that each starts where the last one's span ends.

        Return the chain (greatest scale first), its smallest scale, and its span in units of that.
        The chain is shorter than ``args`` if they don't fit together.
        """
        if not args:
            return [], _ONE, _ONE
        analyzer = self.analyzer
        left = list(args)
        start = self._smallest(left)
        chain = [start]
        left.remove(start)
        expected = analyzer.simplify(start.scale * start.extent)
        span = start.extent
        while left:
            following = [arg for arg in left if analyzer.can_prove_equal(arg.scale, expected)]
            if not following:
                break
            chain.append(following[0])
            left.remove(following[0])
            expected = analyzer.simplify(expected * following[0].extent)
            span = analyzer.simplify(span * following[0].extent)
        chain.reverse()
        return chain, start.scale, span

    def _smallest(self, args: list[IterSplitExpr]) -> IterSplitExpr:
        """The split with the smallest scale: by value, or the one that divides all others."""
        numbers = [as_int(arg.scale) for arg in args]
        if all(number is not None for number in numbers):
            return min(args, key=lambda arg: abs(arg.scale.value))  # type: ignore[attr-defined]
        polys = [self.analyzer.poly(arg.scale) for arg in args]
        for index, poly in enumerate(polys):
            if poly and all(
                other is poly or poly_exact(other, poly) is not None for other in polys
            ):
                return args[index]
        return args[0]

    def fused_index(self, total: IterSumExpr) -> IterSumExpr:
        """Fuse an index's splits into one, and refuse overlaps."""
        if not total.args:
            return total
        constrained = self._constrained_index(total)
        if constrained is not None:
            total = constrained
        if len(total.args) == 1:
            (only,) = total.args
            if self.bijective and as_int(only.scale) != 1:
                raise _NotQuasiAffine(f"`{total.to_expr()!r}` has stride {only.scale!r}")
            return total
        chain, scale, span = self._chain(total.args)
        if len(chain) != len(total.args):
            if self.bijective or not self._spread(total.args):
                raise _NotQuasiAffine(f"the splits of `{total.to_expr()!r}` overlap or leave gaps")
            return total
        if self.bijective and as_int(scale) != 1:
            raise _NotQuasiAffine(f"`{total.to_expr()!r}` has stride {scale!r}")
        mark = self._fused(self._in_units(chain, scale), span, _ZERO)
        return IterSumExpr((IterSplitExpr(mark, _ONE, mark.extent, scale),), total.base)

    def _constrained_index(self, total: IterSumExpr) -> IterSumExpr | None:
        """Replace splits that a condition bounds together by their mark, the largest first."""
        for bound in sorted(self.bounds, key=lambda item: -len(item.chain)):
            args = bound.chain
            low = args[-1]
            for candidate in total.args:
                if not same_split(self.analyzer, low, candidate):
                    continue
                scale = candidate.scale
                used = []
                for arg in args:
                    for other in total.args:
                        if same_split(self.analyzer, arg, other) and (
                            self.analyzer.can_prove_equal(other.scale, arg.scale * scale)
                        ):
                            used.append(other)
                            break
                if len(used) == len(args):
                    rest = [arg for arg in total.args if arg not in used]
                    mark, start = self._bounded(self._bounds_of(args))
                    split = IterSplitExpr(mark, _ONE, mark.extent, scale)
                    base = self.analyzer.simplify(total.base + start * scale)
                    return IterSumExpr((*rest, split), base)
        return None

    def _spread(self, args: Sequence[IterSplitExpr]) -> bool:
        """Whether no two combinations of splits meet: each scale exceeds the sum of those below."""
        left = sorted(args, key=lambda arg: abs(as_int(arg.scale) or 0))
        if any(as_int(arg.scale) is None for arg in left):
            return False
        span: Expr = _ZERO
        for arg in left:
            scale = abs(arg.scale.value)  # type: ignore[attr-defined]
            if not self.analyzer.can_prove_lt(span, scale):
                return False
            span = self.analyzer.simplify(span + (arg.extent - 1) * scale)
        return True

    # ---- checking ---------------------------------------------------------------------------

    def check(self, totals: Sequence[IterSumExpr]) -> SplitChecker:
        """Check that splits of each mark don't overlap; say whether they cover it."""
        checker = SplitChecker(self.analyzer, self.bijective)
        uses = uses_of(totals)
        for mark, splits in uses.items():
            checker.check(mark, splits)
        if self.bijective:
            checker.errors += self._unused(uses)
        return checker

    def _unused(self, uses: Container[IterMark]) -> list[str]:
        """What the indices leave out of the inputs and the conditions on them."""
        errors = []
        for number, mark in self.var_marks.items():
            if mark not in uses and as_int(mark.extent) != 1:
                name = self.context.table.expr(number)
                errors.append(f"the indices do not depend on `{name!r}`")
        met = {operand for key, mark in self.bounded.items() if mark in uses for operand in key}
        for bound in self.bounds:
            if bound not in met and not bound.implied:
                errors.append(f"no index fuses what the condition `{bound.to_expr()!r}` bounds")
        return errors


def _same_chain(analyzer: Analyzer, a: Sequence[IterSplitExpr], b: Sequence[IterSplitExpr]) -> bool:
    return len(a) == len(b) and all(
        same_split(analyzer, x, y) and analyzer.can_prove_equal(x.scale, y.scale)
        for x, y in zip(a, b)
    )


def detect_iter_map(
    indices: Sequence[Expr],
    input_iters: Mapping[Var, Range],
    predicate: ExprLike = TRUE,
    check_level: IterMapLevel | int = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
    *,
    require_bijective: bool = False,
) -> IterMapResult:
    """Bring indices into the form of splits and fusions of ``input_iters``.

    ``Surjective``: it is enough that no split of an input is used twice; splits may be left out,
    strides may be greater than one, and extents may be padded. ``Bijective``, or
    ``require_bijective``: the inputs (under ``predicate``) and the box of indices must correspond
    one to one. ``NoCheck``: indices may use the same splits.
    ``simplify_trivial_iterators`` treats inputs of extent one as constants.
    """
    level = IterMapLevel.Bijective if require_bijective else IterMapLevel(check_level)
    known = analyzer.copy() if analyzer is not None else Analyzer()
    inputs = dict(input_iters)
    if simplify_trivial_iterators:
        for var, value in input_iters.items():
            if as_int(value.extent) == 1:
                known.bind(var, value.min, override=True)
                del inputs[var]
    try:
        bijective = level is IterMapLevel.Bijective
        detector = _Detector(inputs, as_expr(predicate), bijective, known)
        return _detect(detector, indices, level is not IterMapLevel.NoCheck)
    except ConstantTooLarge:
        result = IterMapResult()
        result.errors = ["an index holds numbers that are none of its dtype's"]
        return result


def sums_of(
    indices: Sequence[ExprLike], input_iters: Mapping[Var, Range], analyzer: Analyzer | None = None
) -> list[IterSumExpr] | None:
    """Write each index as a sum of splits, not fused; ``None`` if one is none."""
    known = analyzer.copy() if analyzer is not None else Analyzer()
    detector = _Detector(input_iters, TRUE, False, known)
    try:
        return [
            detector.sum_of(known._canonical.merged(known.poly(as_expr(index))))
            for index in indices
        ]
    except (_NotQuasiAffine, ConstantTooLarge):
        return None


def _detect(detector: _Detector, indices: Sequence[Expr], check: bool) -> IterMapResult:
    known = detector.analyzer
    result = IterMapResult()
    unmatched = detector.add_constraints()
    if unmatched and detector.bijective:
        result.errors = unmatched
        return result
    totals: list[IterSumExpr] = []
    for index in indices:
        try:
            poly = known._canonical.merged(known.poly(as_expr(index)))
            totals.append(detector.fused_index(detector.sum_of(poly)))
        except _NotQuasiAffine as error:
            result.errors.append(f"`{index!r}`: {error}")
    if result.errors:
        return result
    if not check:
        result.indices = totals
        return result
    checked = detector.check(totals)
    result.errors, result.padding_predicate = checked.errors, checked.padding
    if not result.errors:
        result.indices = totals
        result.injective = checked.covered
    return result
