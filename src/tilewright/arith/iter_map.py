"""Iteration maps: index expressions as splits and fusions of loop variables.

A quasi-affine map takes loops apart (``i // 4 % 8``), scales the pieces and adds them up. Detection
brings each index into that form and checks that the pieces don't overlap:

- an :class:`IterMark` is a range of whole numbers ``[0, extent)``: an input variable (less its
  minimum), or a sum of pieces that were fused and are taken apart again;
- an :class:`IterSplitExpr` is a piece ``(mark // lower_factor) % extent * scale``;
- an :class:`IterSumExpr` is a sum of pieces and a base that is free of the inputs.

Extents and factors may be symbolic (products of positive variables). Block bindings, reductions,
``transform_layout``, ``blockize`` and ``tensorize`` rest on this analysis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.polynomial import (
    DIV,
    MOD,
    VAR,
    Poly,
    poly_add,
    poly_atoms,
    poly_key,
    poly_mul,
    poly_sub,
)
from tilewright.arith.simplify import cost
from tilewright.ir import (
    FALSE,
    TRUE,
    And,
    Expr,
    IntImm,
    Range,
    Var,
    as_expr,
    const,
    or_,
    pre_order,
    uses_var,
)


class IterMapError(Exception):
    """Internal: an index is not quasi-affine; the text says why."""


@dataclass(eq=False)
class IterMark:
    """The range ``[0, extent)`` of an expression: a variable less its minimum, or a fused sum."""

    source: Any  # Expr or IterSumExpr
    extent: Expr
    var: Var | None = None
    offset: Expr | None = None  # value = source; var = value + offset
    serial: int = 0
    padded: bool = False

    def to_expr(self) -> Expr:
        """The expression whose range this is."""
        return self.source.to_expr() if isinstance(self.source, IterSumExpr) else self.source  # type: ignore[no-any-return]


@dataclass(eq=False)
class IterSplitExpr:
    """The piece ``(source // lower_factor) % extent * scale``."""

    source: IterMark
    lower_factor: Expr
    extent: Expr
    scale: Expr

    def to_expr(self) -> Expr:
        """The expression, without divisions that do nothing."""
        return self._value() * self.scale

    def _value(self) -> Expr:
        value = self.source.to_expr()
        value = value // self.lower_factor
        covers = same_value(self.lower_factor * self.extent, self.source.extent)
        return value if covers or (self.source.padded and self._is_top()) else value % self.extent

    def _is_top(self) -> bool:
        """Whether nothing is above this piece in a padded mark."""
        from_top = (
            known_int(self.source.extent),
            known_int(self.lower_factor),
            known_int(self.extent),
        )
        whole, low, extent = from_top
        if whole is None or low is None or extent is None:
            return False
        return low * extent >= whole

    def with_scale(self, scale: Expr) -> IterSplitExpr:
        """The same piece at another scale."""
        return IterSplitExpr(self.source, self.lower_factor, self.extent, scale)


@dataclass(eq=False)
class IterSumExpr:
    """``base`` plus pieces, greatest scale first."""

    args: tuple[IterSplitExpr, ...]
    base: Expr

    def to_expr(self) -> Expr:
        """The sum as an expression."""
        total: Expr | None = None
        for arg in self.args:
            term = arg.to_expr()
            total = term if total is None else total + term
        return self.base if total is None else total + self.base


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


def known_int(expr: Expr) -> int | None:
    """The value of an integer constant, else ``None``."""
    return expr.value if isinstance(expr, IntImm) else None


def same_value(a: Expr, b: Expr) -> bool:
    """Whether two extents are equal, knowing nothing about their variables."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    return a is b or Analyzer().can_prove_equal(a, b)


_ZERO, _ONE = const(0), const(1)


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
        self.constrained: list[tuple[tuple[IterSplitExpr, ...], IterMark]] = []
        self.implied: set[IterMark] = set()  # marks whose condition another one implies
        self.serial = 0
        self.inputs = inputs
        self.gaps = False
        narrowed, rest = self._narrowed(inputs, predicate)
        for var, value in narrowed.items():
            number = self.context.table.var(var)
            analyzer.bind(var, value, override=True)
            source: Expr = var if known_int(value.min) == 0 else var - value.min
            self.var_marks[number] = self._mark(source, value.extent, var, value.min)
        for condition in rest:
            analyzer.assume(condition)
        self.rest = rest

    def _mark(
        self, source: Any, extent: Expr, var: Var | None = None, offset: Expr | None = None
    ) -> IterMark:
        self.serial += 1
        return IterMark(source, extent, var, offset, self.serial)

    # ---- predicates -------------------------------------------------------------------------

    def _narrowed(
        self, inputs: Mapping[Var, Range], predicate: Expr
    ) -> tuple[dict[Var, Range], list[Expr]]:
        """Use conditions on one variable to narrow its range; return the others."""
        ranges = dict(inputs)
        rest: list[Expr] = []
        for condition in conjuncts(predicate):
            if isinstance(condition, IntImm) and condition.value:
                continue
            inside = [var for var in ranges if uses_var(condition, {var})]
            if len(inside) != 1 or not self._narrow_one(ranges, inside[0], condition):
                rest.append(condition)
        return ranges, rest

    def _narrow_one(self, ranges: dict[Var, Range], var: Var, condition: Expr) -> bool:
        sides = comparison_goals(self.analyzer, condition)
        if sides is None:
            return False
        number = self.context.table.var(var)
        low, extent = ranges[var].min, ranges[var].extent
        for goal in sides:
            value = goal.get((number,))
            if value not in (1, -1) or any(number in mono and len(mono) > 1 for mono in goal):
                return False
        for goal in sides:
            value = goal[(number,)]
            bound = {mono: -value * k for mono, k in goal.items() if mono != (number,)}
            text = self.analyzer.from_poly(bound, var.dtype)
            simplify = self.analyzer.simplify
            if any(_uses_number(self.context, bound, self.context.table.var(v)) for v in ranges):
                return False
            if value == 1:  # var >= bound
                gap = simplify(text - low)
                if self.analyzer.can_prove_le(gap, 0):
                    continue
                if not self.analyzer.can_prove_ge(gap, 0):
                    return False
                low, extent = text, simplify(extent - gap)
            else:  # var <= bound
                most = simplify(text - low + 1)
                if self.analyzer.can_prove_ge(most, extent):
                    continue
                if not self.analyzer.can_prove_le(most, extent):
                    return False
                extent = most
        ranges[var] = Range(low, extent)
        return True

    def add_constraints(self) -> list[str]:
        """Turn conditions ``i0*16 + i1 < 1000`` into fused marks of that extent."""
        left: list[str] = []
        pending = []
        for condition in self.rest:
            goals = comparison_goals(self.analyzer, condition, reduce=False)
            if goals is None or len(goals) != 1:
                left.append(f"the condition `{condition!r}` is not an upper bound of a fused index")
                continue
            pending.append((len(goals[0]), condition, goals[0]))
        pending.sort(key=lambda item: item[0])  # small sums may be parts of greater ones
        for _, condition, goal in pending:
            minus = {mono: -value for mono, value in goal.items()}
            try:
                total = self.sum_of(minus)
                args = total.args
                chain, scale, span = self._chain(args)
                if len(chain) != len(args) or len(args) < 2 or known_int(scale) is None:
                    raise IterMapError("not a chain")
                # scale * x + base <= 0  <=>  x < floor(-base / scale) + 1
                bound = self.analyzer.simplify((_ZERO - total.base) // scale + 1)
                if not self.analyzer.can_prove_ge(bound, 1):
                    raise IterMapError("empty")
            except IterMapError:
                left.append(f"the condition `{condition!r}` does not bound a fused index")
                continue
            if self.analyzer.can_prove_ge(bound, span):
                continue
            unit = tuple(arg.with_scale(self._quotient(arg.scale, scale)) for arg in chain)
            self._add_constraint(unit, bound)
        return left

    def _add_constraint(self, chain: tuple[IterSplitExpr, ...], bound: Expr) -> None:
        """Remember that a chain is below ``bound``; of nested conditions keep what counts.

        If an earlier, shorter chain ``v`` is this one without its last pieces, this one is
        ``v*s + rest`` with ``rest < s``, so ``v < b`` means that it is below ``b*s``: one of the
        two conditions implies the other.
        """
        analyzer = self.analyzer
        for number, (args, other) in enumerate(self.constrained):
            if len(args) > len(chain):
                continue
            unit = chain[len(args) - 1].scale
            if not all(
                _same_piece(analyzer, x, y) and analyzer.can_prove_equal(x.scale, y.scale * unit)
                for x, y in zip(chain, args)
            ):
                continue
            limit = analyzer.simplify(other.extent * unit)
            if analyzer.can_prove_ge(bound, limit):
                return
            if analyzer.can_prove_le(bound, limit):
                self.implied.add(other)
                if len(args) == len(chain):
                    del self.constrained[number]
                    break
        self.constrained.append((chain, self._mark(IterSumExpr(chain, _ZERO), bound)))

    # ---- normal form ------------------------------------------------------------------------

    def _depends(self, number: int) -> bool:
        table = self.context.table
        parts = table.parts[number]
        if table.kinds[number] == VAR:
            return number in self.var_marks
        if parts is not None:
            return any(self._depends(a) for part in parts for a in poly_atoms(part))
        return any(
            type(item) is Var and table.numbers.get(item) in self.var_marks
            for item in pre_order(table.expr(number))
        )

    def _text(self, poly: Poly) -> str:
        return repr(self.context.table.to_expr(poly))

    def sum_of(self, poly: Poly) -> IterSumExpr:
        """Bring a polynomial into sum form; ``IterMapError`` if it is not quasi-affine."""
        groups: dict[int, Poly] = {}
        base: Poly = {}
        for mono, value in poly.items():
            inside = [number for number in mono if self._depends(number)]
            if not inside:
                base = poly_add(base, {mono: value})
                continue
            if len(inside) > 1:
                raise IterMapError(f"`{self._text({mono: value})}` is not linear in the loops")
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
        args = self._merged([arg for arg in args if known_int(arg.extent) != 1])
        return IterSumExpr(tuple(args), self.analyzer.from_poly(base))

    def _product(self, a: Expr, scale: Poly) -> Expr:
        return self.analyzer.from_poly(poly_mul(self.analyzer.poly(a), scale))

    def _quotient(self, a: Expr, b: Expr) -> Expr:
        return self.analyzer.simplify(a // b)

    def _atom(self, number: int) -> IterSumExpr:
        mark = self.var_marks.get(number)
        if mark is not None:
            assert mark.offset is not None
            split = IterSplitExpr(mark, _ONE, mark.extent, _ONE)
            return IterSumExpr((split,), mark.offset)
        table = self.context.table
        kind, parts = table.kinds[number], table.parts[number]
        if kind not in (DIV, MOD) or parts is None:
            raise IterMapError(f"`{table.expr(number)!r}` is not made of splits of the loops")
        if any(self._depends(a) for a in poly_atoms(parts[1])):
            raise IterMapError(f"`{table.expr(number)!r}` divides by something that varies")
        divisor = self.analyzer.from_poly(parts[1])
        if not self.canonical.positive(parts[1]):
            raise IterMapError(f"the divisor `{divisor!r}` may not be positive")
        piece = self._piece(self.sum_of(parts[0]), divisor)
        return IterSumExpr((self._split(piece, divisor, kind),), _ZERO)

    def _piece(self, total: IterSumExpr, divisor: Expr) -> IterSplitExpr:
        """Fuse a sum that is to be divided into one piece of scale 1."""
        if known_int(total.base) == 0 and len(total.args) == 1:
            (arg,) = total.args
            if known_int(arg.scale) == 1:
                return arg
        chain, scale, span = self._chain(total.args)
        if len(chain) != len(total.args) or known_int(scale) != 1:
            raise IterMapError(
                f"`{total.to_expr()!r}` divided by `{divisor!r}` is not a fusion of loops"
            )
        mark = self._fused(tuple(chain), span, total.base)
        return IterSplitExpr(mark, _ONE, mark.extent, _ONE)

    def _fused(self, chain: tuple[IterSplitExpr, ...], span: Expr, base: Expr) -> IterMark:
        """Return the mark of a fused chain, the same one each time."""
        total = IterSumExpr(chain, base)
        if known_int(base) == 0:
            for args, mark in self.constrained:
                if _same_chain(self.analyzer, args, chain):
                    return mark
        key = poly_key(self.analyzer.poly(total.to_expr()))
        found = self.marks.get(key)
        if found is None:
            found = self._mark(total, self.analyzer.simplify(span + base))
            if known_int(base) != 0:
                if not self.analyzer.can_prove_ge(base, 0):
                    raise IterMapError(f"`{total.to_expr()!r}` may be negative")
                found.padded = True
            self.marks[key] = found
        return found

    def _split(self, piece: IterSplitExpr, divisor: Expr, kind: int) -> IterSplitExpr:
        """Divide a piece: ``piece // divisor`` or ``piece % divisor``."""
        analyzer = self.analyzer
        extent = analyzer.simplify(piece.extent // divisor)
        if not analyzer.can_prove_equal(extent * divisor, piece.extent):
            whole = analyzer.can_prove_equal(piece.lower_factor * piece.extent, piece.source.extent)
            if not whole and not (piece.source.padded and piece._is_top()):
                raise IterMapError(
                    f"`{piece.to_expr()!r}` of extent {piece.extent!r} "
                    f"is not divisible by {divisor!r}"
                )
            piece.source.padded = True
            extent = analyzer.simplify((piece.extent + divisor - 1) // divisor)
        if kind == MOD:
            return IterSplitExpr(piece.source, piece.lower_factor, divisor, _ONE)
        lower = analyzer.simplify(piece.lower_factor * divisor)
        return IterSplitExpr(piece.source, lower, extent, _ONE)

    def _merged(self, args: list[IterSplitExpr]) -> list[IterSplitExpr]:
        """Join neighbouring pieces of one mark: ``i // 4 % 4 * 4 + i % 4`` is ``i % 16``."""
        equal = self.analyzer.can_prove_equal
        changed = len(args) > 1
        while changed:
            changed = False
            for low in args:
                for high in args:
                    if (
                        low is not high
                        and low.source is high.source
                        and equal(high.lower_factor, low.lower_factor * low.extent)
                        and equal(high.scale, low.scale * low.extent)
                    ):
                        extent = self.analyzer.simplify(low.extent * high.extent)
                        made = IterSplitExpr(low.source, low.lower_factor, extent, low.scale)
                        args = [made if a is low else a for a in args if a is not high]
                        changed = True
                        break
                if changed:
                    break
        return args

    # ---- fusing -----------------------------------------------------------------------------

    def _chain(self, args: Sequence[IterSplitExpr]) -> tuple[list[IterSplitExpr], Expr, Expr]:
        """Order pieces so that each starts where the last one's span ends.

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
        """The piece with the smallest scale: by value, or the one that divides all others."""
        numbers = [known_int(arg.scale) for arg in args]
        if all(number is not None for number in numbers):
            return min(args, key=lambda arg: abs(arg.scale.value))  # type: ignore[attr-defined]
        polys = [self.analyzer.poly(arg.scale) for arg in args]
        for index, poly in enumerate(polys):
            if poly and all(
                other is poly or self.canonical.exact(other, poly) is not None for other in polys
            ):
                return args[index]
        return args[0]

    def fused_index(self, total: IterSumExpr) -> IterSumExpr:
        """Fuse an index's pieces into one, and refuse overlaps."""
        if not total.args:
            return total
        constrained = self._constrained_index(total)
        if constrained is not None:
            total = constrained
        if len(total.args) == 1:
            (only,) = total.args
            if self.bijective and known_int(only.scale) != 1:
                raise IterMapError(f"`{total.to_expr()!r}` has stride {only.scale!r}")
            return total
        chain, scale, span = self._chain(total.args)
        if len(chain) != len(total.args):
            if self.bijective or not self._spread(total.args):
                raise IterMapError(f"the pieces of `{total.to_expr()!r}` overlap or leave gaps")
            self.gaps = True
            return total
        if self.bijective and known_int(scale) != 1:
            raise IterMapError(f"`{total.to_expr()!r}` has stride {scale!r}")
        unit = (
            tuple(chain)
            if known_int(scale) == 1
            else tuple(arg.with_scale(self._quotient(arg.scale, scale)) for arg in chain)
        )
        mark = self._fused(unit, span, _ZERO)
        return IterSumExpr((IterSplitExpr(mark, _ONE, mark.extent, scale),), total.base)

    def _constrained_index(self, total: IterSumExpr) -> IterSumExpr | None:
        """Replace pieces that a condition bounds together by their mark, the largest first."""
        for args, mark in sorted(self.constrained, key=lambda item: -len(item[0])):
            low = args[-1]
            for candidate in total.args:
                if not _same_piece(self.analyzer, low, candidate):
                    continue
                scale = candidate.scale
                used = []
                for arg in args:
                    for other in total.args:
                        if _same_piece(self.analyzer, arg, other) and (
                            self.analyzer.can_prove_equal(other.scale, arg.scale * scale)
                        ):
                            used.append(other)
                            break
                if len(used) == len(args):
                    rest = [arg for arg in total.args if arg not in used]
                    piece = IterSplitExpr(mark, _ONE, mark.extent, scale)
                    return IterSumExpr((*rest, piece), total.base)
        return None

    def _spread(self, args: Sequence[IterSplitExpr]) -> bool:
        """Whether no two combinations of pieces meet: each scale exceeds the sum of those below."""
        left = sorted(args, key=lambda arg: abs(known_int(arg.scale) or 0))
        if any(known_int(arg.scale) is None for arg in left):
            return False
        span: Expr = _ZERO
        for arg in left:
            scale = abs(arg.scale.value)  # type: ignore[attr-defined]
            if not self.analyzer.can_prove_lt(span, scale):
                return False
            span = self.analyzer.simplify(span + (arg.extent - 1) * scale)
        return True

    # ---- checking ---------------------------------------------------------------------------

    def check(self, totals: Sequence[IterSumExpr]) -> tuple[list[str], bool, Expr]:
        """Check that pieces of each mark don't overlap; say whether they cover it."""
        uses: dict[IterMark, list[IterSplitExpr]] = {}
        pending = [arg for total in totals for arg in total.args]
        seen: set[IterMark] = set()
        while pending:
            arg = pending.pop()
            uses.setdefault(arg.source, []).append(arg)
            if arg.source not in seen:
                seen.add(arg.source)
                if isinstance(arg.source.source, IterSumExpr):
                    pending.extend(arg.source.source.args)
        errors: list[str] = []
        covered = True
        padding: Expr = FALSE
        for mark, pieces in uses.items():
            ok, full, top = self._check_mark(mark, pieces)
            if not ok:
                errors.append(f"pieces of `{mark.to_expr()!r}` are used more than once")
            elif not full:
                covered = False
                if self.bijective:
                    errors.append(f"the pieces of `{mark.to_expr()!r}` do not cover its extent")
            fused = mark.source
            if self.bijective and isinstance(fused, IterSumExpr) and known_int(fused.base) != 0:
                errors.append(f"`{mark.to_expr()!r}` is padded at its start, by {fused.base!r}")
            if not ok or not mark.padded or top is None:
                continue
            if not self.analyzer.can_prove_equal(top, mark.extent):
                padding = or_(padding, mark.to_expr() >= mark.extent)
                if self.bijective:
                    errors.append(
                        f"`{mark.to_expr()!r}` of extent {mark.extent!r} is padded to {top!r}"
                    )
        if self.bijective:
            for number, mark in self.var_marks.items():
                if mark not in uses and known_int(mark.extent) != 1:
                    name = self.context.table.expr(number)
                    errors.append(f"the indices do not depend on `{name!r}`")
            for _, mark in self.constrained:
                if mark not in uses and mark not in self.implied:
                    errors.append(
                        f"no index fuses what the condition `{mark.to_expr()!r} < "
                        f"{mark.extent!r}` bounds"
                    )
        return errors, covered, padding

    def _check_mark(
        self, mark: IterMark, pieces: list[IterSplitExpr]
    ) -> tuple[bool, bool, Expr | None]:
        """Order pieces from the lowest; return (no overlap, covered, where they end)."""
        analyzer = self.analyzer
        left = list(pieces)
        expected: Expr = _ONE
        full = True
        while left:
            following = [
                arg for arg in left if analyzer.can_prove_equal(arg.lower_factor, expected)
            ]
            if len(following) > 1:
                return False, False, None
            if not following:
                full = False
                lowest = min(left, key=lambda arg: known_int(arg.lower_factor) or 0)
                numbers = [known_int(arg.lower_factor) for arg in left]
                if any(number is None for number in numbers):
                    lowest = self._divides_all(left)
                # A piece may start higher up if what is below is simply not used.
                if not self._multiple(lowest.lower_factor, expected):
                    return False, False, None
                following = [lowest]
            left.remove(following[0])
            expected = analyzer.simplify(following[0].lower_factor * following[0].extent)
        if not analyzer.can_prove_ge(expected, mark.extent):
            full = False
        return True, full, expected

    def _multiple(self, a: Expr, b: Expr) -> bool:
        return self.canonical.exact(self.analyzer.poly(a), self.analyzer.poly(b)) is not None

    def _divides_all(self, pieces: list[IterSplitExpr]) -> IterSplitExpr:
        for piece in pieces:
            if all(self._multiple(other.lower_factor, piece.lower_factor) for other in pieces):
                return piece
        return pieces[0]


def _same_piece(analyzer: Analyzer, a: IterSplitExpr, b: IterSplitExpr) -> bool:
    """Whether two pieces are the same but for their scale."""
    return (
        a.source is b.source
        and analyzer.can_prove_equal(a.lower_factor, b.lower_factor)
        and analyzer.can_prove_equal(a.extent, b.extent)
    )


def _same_chain(analyzer: Analyzer, a: Sequence[IterSplitExpr], b: Sequence[IterSplitExpr]) -> bool:
    return len(a) == len(b) and all(
        _same_piece(analyzer, x, y) and analyzer.can_prove_equal(x.scale, y.scale)
        for x, y in zip(a, b)
    )


def _uses_number(context: Any, poly: Poly, number: int) -> bool:
    table = context.table
    for atom in poly_atoms(poly):
        if atom == number:
            return True
        parts = table.parts[atom]
        if parts is not None and any(_uses_number(context, part, number) for part in parts):
            return True
    return False


def conjuncts(condition: Expr) -> list[Expr]:
    """Split a condition at its ``and`` nodes, and see through ``likely``."""
    if type(condition) is And:
        return conjuncts(condition.a) + conjuncts(condition.b)  # type: ignore[attr-defined]
    if getattr(getattr(condition, "op", None), "name", "") == "likely":
        return conjuncts(condition.args[0])  # type: ignore[attr-defined]
    return [condition]


_ORDERING = {"LT": (0, 1, 1), "LE": (0, 1, 0), "GT": (1, 0, 1), "GE": (1, 0, 0)}


def comparison_goals(
    analyzer: Analyzer, condition: Expr, *, reduce: bool = True
) -> list[Poly] | None:
    """Return polynomials that are >= 0 exactly if the condition holds, or ``None``."""
    name = type(condition).__name__
    if name not in _ORDERING and name != "EQ":
        return None
    sides: Any = condition
    if sides.a.dtype not in ("int32", "int64"):
        return None
    a, b = analyzer.poly(sides.a), analyzer.poly(sides.b)
    if name == "EQ":
        return [poly_sub(a, b), poly_sub(b, a)]
    first, second, strict = _ORDERING[name]
    goal = poly_sub((a, b)[second], (a, b)[first])
    if strict:
        goal = poly_sub(goal, {(): 1})
    goal = analyzer._canonical.merged(goal)
    return [analyzer._simplifier.comparisons.reduced_goal(goal) if reduce else goal]


def detect_iter_map(
    indices: Sequence[Expr],
    input_iters: Mapping[Var, Range],
    predicate: Expr = TRUE,
    *,
    require_bijective: bool = False,
    simplify_trivial: bool = True,
    analyzer: Analyzer | None = None,
) -> IterMapResult:
    """Bring indices into the form of splits and fusions of ``input_iters``.

    Without ``require_bijective`` it is enough that no piece of an input is used twice; pieces may
    be left out, strides may be greater than one, and extents may be padded. With it, the inputs
    (under ``predicate``) and the box of indices must correspond one to one.
    ``simplify_trivial`` treats inputs of extent one as constants.
    """
    known = analyzer.copy() if analyzer is not None else Analyzer()
    inputs = dict(input_iters)
    if simplify_trivial:
        for var, value in input_iters.items():
            if known_int(value.extent) == 1:
                known.bind(var, value.min, override=True)
                del inputs[var]
    detector = _Detector(inputs, predicate, require_bijective, known)
    result = IterMapResult()
    unmatched = detector.add_constraints()
    if unmatched and require_bijective:
        result.errors = unmatched
        return result
    totals: list[IterSumExpr] = []
    for index in indices:
        try:
            poly = known._canonical.merged(known.poly(as_expr(index)))
            totals.append(detector.fused_index(detector.sum_of(poly)))
        except IterMapError as error:
            result.errors.append(f"`{index!r}`: {error}")
    if result.errors:
        return result
    result.errors, covered, result.padding_predicate = detector.check(totals)
    if not result.errors:
        result.indices = totals
        result.injective = covered
    return result


def normalize_iter_map_to_expr(value: IterSumExpr | IterSplitExpr | IterMark) -> Expr:
    """Write a detected map as an ordinary expression."""
    return Analyzer().simplify(value.to_expr())


def iter_map_simplify(
    indices: Sequence[Expr],
    input_iters: Mapping[Var, Range],
    predicate: Expr = TRUE,
    require_bijective: bool = False,
    *,
    analyzer: Analyzer | None = None,
) -> list[Expr]:
    """Simplify indices knowing their loops, and how they split them where that is shorter."""
    known = analyzer.copy() if analyzer is not None else Analyzer()
    known.bind_ranges(input_iters)
    known.assume(predicate)
    made = [known.simplify(as_expr(index)) for index in indices]
    found = detect_iter_map(
        made, input_iters, predicate, require_bijective=require_bijective, analyzer=analyzer
    )
    if found.errors:
        return made
    result = []
    for index, total in zip(made, found.indices):
        other = known.simplify(total.to_expr())
        result.append(other if cost(other) < cost(index) else index)
    return result
