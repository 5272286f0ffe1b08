"""Indices as polynomials, with facts about the loops and symbolic tiles at one place.

Symbolic tile factors cancel by themselves (``arith.polynomial``), and ``normal`` knows that the
factors of a tile multiply to its extent. Outer loops and axes are symbols, and their ranges give
bounds. ``_regions`` builds on this; it does less than ``arith.Analyzer``, in a fraction of the
time, since every replay of a trace runs it many times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tilewright.arith.polynomial import (
    DIV,
    MAX,
    MIN,
    MOD,
    VAR,
    AtomTable,
    Poly,
    constant_of,
    linear_in,
    poly_add,
    poly_atoms,
    poly_const,
    poly_mul,
    poly_scale,
    poly_sub,
)
from tilewright.ir import (
    INDEX,
    Add,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Range,
    Sub,
    Var,
    substitute,
    uses_var,
)
from tilewright.tir import Block, For
from tilewright.tir.schedule.state import ScheduleState

ONE: Poly = {(): 1}
_COMPOUND = {FloorDiv: DIV, FloorMod: MOD, Min: MIN, Max: MAX}


class IndexArithmetic:
    """Arithmetic of indices at one place of a program: under the loops ``outer``."""

    def __init__(self, state: ScheduleState, func_name: str, outer: Sequence[For]) -> None:
        self.state = state
        self.func_name = func_name
        self.table = AtomTable()
        self.outer: dict[int, tuple[Poly, Poly]] = {}
        # Axes of blocks further out: fixed here, but their values have a range.
        self.around: dict[int, tuple[Poly, Poly]] = {}
        self.outer_vars: dict[Var, Range] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        self._rules: list[tuple[tuple[int, ...], Poly]] = []
        for tile in state.symbolic:
            if tile.exact:
                product = tuple(sorted(self.table.var(var) for var in tile.variables))
                self._rules.append((product, self.poly(tile.extent)))
        for loop in outer:
            self.add_outer(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))

    @property
    def has_tiles(self) -> bool:
        """Whether there are symbolic tiles, whose products ``normal`` resolves."""
        return bool(self._rules)

    def add_outer(self, var: Var, dom: Range) -> None:
        """Declare a variable that stays a symbol, with a known range."""
        self.outer_vars[var] = dom
        number, ends = self.table.var(var), (self.poly(dom.min), self.poly(dom.extent))
        self.outer[number] = ends
        self.know_range(number, *ends)

    def add_block_axes(self, block: Block) -> None:
        """Make the axes of the enclosing block symbols; learn the ranges of those further out."""
        for iter_var in block.iter_vars:
            self.add_outer(iter_var.var, iter_var.dom)
        for item in self.state.parents(block):
            if type(item) is Block:
                for iter_var in item.iter_vars:
                    ends = (self.poly(iter_var.dom.min), self.poly(iter_var.dom.extent))
                    number = self.table.var(iter_var.var)
                    self.around[number] = ends
                    self.know_range(number, *ends)

    # ---- expressions and polynomials ----------------------------------------------------------

    def poly(self, expr: Expr, env: Mapping[Var, Poly] | None = None) -> Poly:
        """Turn an index expression into a polynomial; ``env`` gives values of variables."""
        kind = type(expr)
        if kind is IntImm:
            return poly_const(expr.value)  # type: ignore[attr-defined]
        if kind is Var:
            if env is not None:
                found = env.get(expr)  # type: ignore[call-overload]
                if found is not None:
                    return found  # type: ignore[no-any-return]
            return {(self.table.var(expr),): 1}  # type: ignore[arg-type]
        if kind is Add:
            return poly_add(self.poly(expr.a, env), self.poly(expr.b, env))  # type: ignore[attr-defined]
        if kind is Sub:
            return poly_sub(self.poly(expr.a, env), self.poly(expr.b, env))  # type: ignore[attr-defined]
        if kind is Mul:
            return poly_mul(self.poly(expr.a, env), self.poly(expr.b, env))  # type: ignore[attr-defined]
        compound = _COMPOUND.get(kind)
        if compound is not None:
            a, b = self.poly(expr.a, env), self.poly(expr.b, env)  # type: ignore[attr-defined]
            fold = self._divide if compound in (DIV, MOD) else self._fold
            folded = fold(compound, a, b)
            if folded is not None:
                return folded
            return {(self.table.compound(compound, a, b, expr.dtype),): 1}
        if env:
            expr = substitute(expr, {var: self.expr(value) for var, value in env.items()})
        return {(self.table.other(("expr", expr), expr),): 1}

    def _divide(self, kind: int, a: Poly, b: Poly) -> Poly | None:
        """Divide by a constant: multiples of it move out, and small remainders vanish."""
        divisor = constant_of(b)
        if divisor is None or divisor <= 0:
            return None
        whole: Poly = {}
        rest: Poly = {}
        for mono, value in a.items():
            if mono and value % divisor == 0:
                whole[mono] = value // divisor
            else:
                rest[mono] = value
        low, high = self._limits(rest)
        if low is None or high is None or low // divisor != high // divisor:
            left = self._divide_steps(kind, rest, divisor)
            if left is None and not whole:
                return None
            if left is None:
                left = {(self.table.compound(kind, rest, b, INDEX),): 1}
            return poly_add(whole, left) if kind == DIV else left
        quotient = low // divisor
        if kind == DIV:
            return poly_add(whole, poly_const(quotient))
        return poly_add(rest, poly_const(-quotient * divisor))

    def _divide_steps(self, kind: int, a: Poly, divisor: int) -> Poly | None:
        """Divide what goes in steps of a part of the divisor: ``(2*i + j) // 14`` is ``i // 7``.

        What is less than a step (``j < 2``) has no effect on the quotient, and stays in the
        remainder: ``i % 7 * 2 + j``.
        """
        steps = {math.gcd(value, divisor) for mono, value in a.items() if mono} - {1}
        for step in sorted(steps, reverse=True):
            count, below = divmod(a.get((), 0), step)
            whole = {mono: value // step for mono, value in a.items() if mono and value % step == 0}
            rest = {mono: value for mono, value in a.items() if mono and value % step}
            whole, rest = poly_add(whole, poly_const(count)), poly_add(rest, poly_const(below))
            low, high = self._limits(rest)
            if low is None or high is None or low < 0 or high >= step:
                continue
            b = poly_const(divisor // step)
            quotient = self._divide(kind, whole, b)
            if quotient is None:
                quotient = {(self.table.compound(kind, whole, b, INDEX),): 1}
            return quotient if kind == DIV else poly_add(poly_scale(quotient, step), rest)
        return None

    def _limits(self, poly: Poly) -> tuple[int | None, int | None]:
        """Constant limits of a polynomial that is linear in loops of constant ranges."""
        low = high = poly.get((), 0)
        for mono, value in poly.items():
            if not mono:
                continue
            limits = self._ranges.get(mono[0]) if len(mono) == 1 else None
            if limits is None:
                return None, None
            low += value * limits[0 if value > 0 else 1]
            high += value * limits[1 if value > 0 else 0]
        return low, high

    def know_range(self, number: int, start: Poly, extent: Poly) -> None:
        """Remember the range of a loop, by the number of its variable."""
        first, count = constant_of(start), constant_of(extent)
        if first is not None and count is not None:
            self._ranges[number] = (first, first + count - 1)

    @staticmethod
    def _fold(kind: int, a: Poly, b: Poly) -> Poly | None:
        """The minimum or maximum of two constants."""
        x, y = constant_of(a), constant_of(b)
        if x is None or y is None:
            return None
        return poly_const(min(x, y) if kind == MIN else max(x, y))

    def expr(self, poly: Poly) -> Expr:
        """Turn a polynomial back into an expression."""
        return self.table.to_expr(poly)

    def normal(self, poly: Poly) -> Poly:
        """Replace the product of all factors of a symbolic tile by its extent."""
        for product, value in self._rules:
            for mono in list(poly):
                rest = list(mono)
                try:
                    for atom in product:
                        rest.remove(atom)
                except ValueError:
                    continue
                term: Poly = {tuple(rest): poly[mono]}
                poly = poly_add(
                    {key: c for key, c in poly.items() if key != mono}, poly_mul(term, value)
                )
        return poly

    def same(self, a: Poly, b: Poly) -> bool:
        """Whether two polynomials are equal, given what is known of symbolic tiles."""
        return a == b or not self.normal(poly_sub(a, b))

    def difference(self, a: Poly, b: Poly) -> int | None:
        """Return ``a - b`` if that is a constant."""
        if a == b:
            return 0
        return constant_of(self.normal(poly_sub(a, b)))

    def is_outer_free(self, poly: Poly) -> bool:
        """Whether a polynomial depends on no loop."""
        return all(not self.depends(number, self.outer) for number in poly_atoms(poly))

    def depends(self, number: int, atoms: Iterable[int]) -> bool:
        """Whether an atom is, or contains, one of ``atoms``."""
        if number in atoms:
            return True
        kind = self.table.kinds[number]
        if kind == VAR:
            return False
        operands = self.table.operands[number]
        if operands is not None:
            return any(
                self.depends(inner, atoms) for operand in operands for inner in poly_atoms(operand)
            )
        inside = {self.table.exprs[item] for item in atoms}
        expr = self.table.exprs[number]
        return expr is not None and uses_var(expr, inside.__contains__)

    def replace_form(self, poly: Poly, form: Poly, number: int) -> Poly | None:
        """Write ``poly`` with the variable ``number`` in place of the linear form ``form``.

        Also inside divisions; terms that aren't a multiple of the form stay. ``None`` if the terms
        of the form have different factors.
        """
        made: Poly = {}
        for mono, value in poly.items():
            kinds = [self.table.kinds[atom] for atom in mono]
            if any(kind in (DIV, MOD) for kind in kinds):
                if len(mono) != 1:
                    return None
                operands = self.table.operands[mono[0]]
                assert operands is not None
                inner = self.replace_form(operands[0], form, number)
                if inner is None:
                    return None
                new = self._divide(kinds[0], inner, operands[1])
                if new is None:
                    new = {(self.table.compound(kinds[0], inner, operands[1], INDEX),): 1}
                made = poly_add(made, poly_scale(new, value))
            else:
                made = poly_add(made, {mono: value})
        lead = next((mono for mono in form if mono), None)
        if lead is None or lead not in made:
            return made
        factor, remainder = divmod(made[lead], form[lead])
        if remainder:
            return None
        return poly_add(poly_sub(made, poly_scale(form, factor)), {(number,): factor})

    # ---- bounds -------------------------------------------------------------------------------

    def bounds(self, poly: Poly) -> tuple[Poly | None, Poly | None]:
        """Bounds (inclusive, free of loops) of a polynomial over all values of the outer loops."""
        low: Poly | None = poly
        high: Poly | None = poly
        for number in poly_atoms(poly):
            box = self.outer.get(number) or self.around.get(number)
            if box is not None:
                start, extent = box
                ends: tuple[Poly, Poly] | None = (start, poly_add(start, poly_sub(extent, ONE)))
            elif self.depends(number, self.outer):
                ends = self._atom_bounds(number)
            else:
                continue
            split = linear_in(poly, number)
            if ends is None or split is None:
                return None, None
            coefficient = split[0]
            sign = self._sign(coefficient)
            if sign is None:
                return None, None
            at_low, at_high = ends if sign > 0 else ends[::-1]
            low = self._replace(low, number, at_low)
            high = self._replace(high, number, at_high)
        return low, high

    def _replace(self, poly: Poly | None, number: int, value: Poly) -> Poly | None:
        split = linear_in(poly, number) if poly is not None else None
        if split is None:
            return None
        return poly_add(poly_mul(split[0], value), split[1])

    def _sign(self, coefficient: Poly) -> int | None:
        """Sign of a coefficient made of positive symbols (extents and tile factors)."""
        if any(number in self.outer for number in poly_atoms(coefficient)):
            return None
        values = coefficient.values()
        if all(value > 0 for value in values):
            return 1
        return -1 if all(value < 0 for value in values) else None

    def _atom_bounds(self, number: int) -> tuple[Poly, Poly] | None:
        """Bounds of ``a // c`` and ``a % c``: constants, or those of ``i // n`` below ``k * n``."""
        kind, operands = self.table.kinds[number], self.table.operands[number]
        if kind not in (DIV, MOD) or operands is None:
            return None
        divisor = constant_of(operands[1])
        low, high = self.bounds(operands[0])
        if divisor is None:
            return self._bounds_by_size(kind, low, high, operands[1])
        first = constant_of(low) if low is not None else None
        last = constant_of(high) if high is not None else None
        if divisor <= 0:
            return None
        if kind == MOD:
            if first is not None and last is not None and first >= 0 and last < divisor:
                return poly_const(first), poly_const(last)
            return {}, poly_const(divisor - 1)
        if first is None or last is None:
            return None
        return poly_const(first // divisor), poly_const(last // divisor)

    def _bounds_by_size(
        self, kind: int, low: Poly | None, high: Poly | None, divisor: Poly
    ) -> tuple[Poly, Poly] | None:
        """Bounds of a quotient or remainder by a size that isn't zero where the loops run."""
        if len(divisor) != 1:
            return None
        ((size, factor),) = divisor.items()
        if factor != 1 or not self._positive_symbols().issuperset(size):
            return None
        if kind == MOD:
            return {}, poly_sub(divisor, ONE)
        least = constant_of(low) if low is not None else None
        if high is None or least is None or least < 0:
            return None
        count: Poly = {}
        for mono, value in poly_add(high, ONE).items():
            rest = list(mono)
            for symbol in size:
                if symbol not in rest:
                    return None
                rest.remove(symbol)
            count[tuple(rest)] = value
        return {}, poly_sub(count, ONE)

    def surely_at_least(self, a: Poly, b: Poly) -> bool:
        """Whether ``a >= b`` for all values of the outer loops."""
        gap = self.normal(poly_sub(a, b))
        least, _ = self._limits(gap)
        if least is not None:
            return least >= 0
        low, _ = self.bounds(gap)
        if low is None:
            return False
        low = self.normal(low)
        value = constant_of(low)
        if value is not None:
            return value >= 0
        # Symbols are sizes, from 0 up, or from 1 where something runs over them: non-negative
        # coefficients, and a sum that is not negative for the least of them, suffice.
        others = [number for mono, number in low.items() if mono]
        symbolic = all(
            self.table.kinds[atom] == VAR and atom not in self.outer and atom not in self.around
            for mono in low
            for atom in mono
        )
        if not symbolic or any(value < 0 for value in others):
            return False
        positive = self._positive_symbols()
        return sum(value for mono, value in low.items() if positive.issuperset(mono)) >= 0

    def _positive_symbols(self) -> set[int]:
        """Tile variables, and extents of enclosing loops and axes."""
        found = {self.table.var(var) for tile in self.state.symbolic for var in tile.variables}
        for _, extent in (*self.outer.values(), *self.around.values()):
            if len(extent) == 1:
                ((mono, _),) = extent.items()
                found.update(mono)
        return found

    def proves_at_least(self, a: Poly, b: Poly) -> bool:
        """Like ``surely_at_least``, where limits don't suffice: ``(n + 7) // 8 * 8 >= n``."""
        gap = self.difference(a, b)
        if gap is not None:
            return gap >= 0
        if not (self.is_outer_free(a) and self.is_outer_free(b)):
            return False
        return self.state.analyzer(self.func_name).can_prove(self.expr(a) >= self.expr(b))
