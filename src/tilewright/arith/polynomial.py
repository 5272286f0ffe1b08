"""Canonical multivariate polynomials with integer coefficients over *atoms*.

An atom is a variable or an expression that is not polynomial in its operands (a floor division, a
minimum, a load, …). An :class:`AtomTable` numbers atoms, structurally equal ones alike, so that a
monomial is a sorted tuple of small integers (with repetition: ``x*x*y`` is ``(x, x, y)``) and a
polynomial a dict from monomial to coefficient. Tile factors may be variables: ``i0*f1*f2 + i1*f2``
has two monomials of several variables.

This is the bottom of ``arith``: the simplifier normalises into polynomials, the bounds, the prover,
the iteration maps and the linear solver read them. Polynomials are never changed in place once
handed out. Terms keep the order of first appearance, so that simplified text looks like its source.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from math import gcd
from typing import Any, ParamSpec, TypeVar

from tilewright.arith.data import holds_data
from tilewright.ir import (
    INDEX,
    Add,
    Call,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Node,
    Sub,
    Var,
    const,
)
from tilewright.ir.dtype import integer_limits

_P = ParamSpec("_P")
_T = TypeVar("_T")

Monomial = tuple[int, ...]
Poly = dict[Monomial, int]

VAR, DIV, MOD, MIN, MAX, OTHER = range(6)
"""What an atom is: a variable, ``n // d``, ``n % d``, ``min``, ``max``, or anything else."""

_CHAINS = frozenset((Add, Sub, Mul, Min, Max))
_NODE_OF = {DIV: FloorDiv, MOD: FloorMod, MIN: Min, MAX: Max}


def poly_add(a: Poly, b: Poly) -> Poly:
    """``a + b``."""
    if not a:
        return b
    if not b:
        return a
    out = dict(a)
    for mono, value in b.items():
        total = out.get(mono, 0) + value
        if total:
            out[mono] = total
        else:
            del out[mono]
    return out


def poly_sub(a: Poly, b: Poly) -> Poly:
    """``a - b``."""
    if not b:
        return a
    out = dict(a)
    for mono, value in b.items():
        total = out.get(mono, 0) - value
        if total:
            out[mono] = total
        else:
            del out[mono]
    return out


def poly_scale(a: Poly, factor: int) -> Poly:
    """``a * factor``."""
    if factor == 1:
        return a
    if factor == 0:
        return {}
    return {mono: value * factor for mono, value in a.items()}


def poly_mul(a: Poly, b: Poly) -> Poly:
    """``a * b``, multiplied out."""
    if len(b) == 1 and () in b:
        return poly_scale(a, b[()])
    if len(a) == 1 and () in a:
        return poly_scale(b, a[()])
    out: Poly = {}
    for mono_a, value_a in a.items():
        for mono_b, value_b in b.items():
            if not mono_a:
                mono = mono_b
            elif not mono_b:
                mono = mono_a
            else:
                mono = tuple(sorted(mono_a + mono_b))
            total = out.get(mono, 0) + value_a * value_b
            if total:
                out[mono] = total
            elif mono in out:
                del out[mono]
    return out


def poly_const(value: int) -> Poly:
    """The constant polynomial ``value``."""
    return {(): value} if value else {}


def constant_of(a: Poly) -> int | None:
    """Return the value of a constant polynomial, else ``None``."""
    if not a:
        return 0
    if len(a) == 1:
        return a.get(())
    return None


def mono_divide(mono: Monomial, by: Monomial) -> Monomial | None:
    """Return ``mono / by`` if it is a monomial, else ``None``."""
    if not by:
        return mono
    if mono == by:
        return ()
    rest = list(mono)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def mono_gcd(a: Monomial, b: Monomial) -> Monomial:
    """Return the greatest common divisor of two monomials."""
    if not a or not b:
        return ()
    rest, common = list(b), []
    for atom in a:
        if atom in rest:
            rest.remove(atom)
            common.append(atom)
    return tuple(common)


def poly_divide(a: Poly, b: Poly) -> tuple[Poly, Poly]:
    """Return quotient and rest of a long division by a polynomial that isn't zero."""
    lead = max(b, key=lambda mono: (len(mono), mono))
    quotient: Poly = {}
    rest = a
    for _ in range(16):
        for mono, value in rest.items():
            over = mono_divide(mono, lead)
            if over is not None and value % b[lead] == 0:
                step: Poly = {over: value // b[lead]}
                quotient = poly_add(quotient, step)
                rest = poly_sub(rest, poly_mul(step, b))
                break
        else:
            break
    return quotient, rest


def poly_exact(a: Poly, b: Poly) -> Poly | None:
    """Return ``a / b`` if it is a polynomial."""
    if not b:
        return None  # division by zero
    quotient, rest = poly_divide(a, b)
    return None if rest else quotient


def shared_factors(a: Poly, by: int, mono: Monomial) -> list[tuple[int, Monomial]]:
    """Return what terms of ``a`` have in common with ``by * mono``, the largest first."""
    shared: list[tuple[int, Monomial]] = []
    for term, value in a.items():
        common = gcd(value, by), mono_gcd(term, mono)
        if (common[0] > 1 or common[1]) and term and common not in shared:
            shared.append(common)
    return sorted(shared, key=lambda item: (-len(item[1]), -item[0]))


def poly_key(a: Poly) -> frozenset[tuple[Monomial, int]]:
    """A hashable value equal for equal polynomials."""
    return frozenset(a.items())


def poly_atoms(a: Poly) -> set[int]:
    """All atoms that appear."""
    return {atom for mono in a for atom in mono}


def linear_in(a: Poly, atom: int) -> tuple[Poly, Poly] | None:
    """Split ``a`` into ``(p, q)`` with ``a == p * atom + q``; ``None`` for higher powers."""
    inner: Poly = {}
    outer: Poly = {}
    for mono, value in a.items():
        if atom in mono:
            index = mono.index(atom)
            rest = mono[:index] + mono[index + 1 :]
            if atom in rest:
                return None
            inner[rest] = value
        else:
            outer[mono] = value
    return inner, outer


def substitute_atom(a: Poly, atom: int, value: Poly) -> Poly:
    """Replace an atom by a polynomial (top level only: not inside other atoms)."""
    out: Poly = {}
    for mono, coefficient in a.items():
        count = mono.count(atom)
        if not count:
            out = poly_add(out, {mono: coefficient})
            continue
        term: Poly = {tuple(item for item in mono if item != atom): coefficient}
        for _ in range(count):
            term = poly_mul(term, value)
        out = poly_add(out, term)
    return out


class ConstantTooLarge(Exception):
    """Internal: a polynomial has a coefficient that its dtype can't hold."""


def none_if_too_large(function: Callable[_P, _T | None]) -> Callable[_P, _T | None]:
    """Give ``None`` for what has an answer that no number of its dtype can express."""

    @wraps(function)
    def asked(*args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        try:
            return function(*args, **kwargs)
        except ConstantTooLarge:
            return None

    return asked


def _constant(value: int, dtype: str) -> Expr:
    if -(2**31) <= value < 2**31:
        return const(value, dtype)
    low, high = integer_limits(dtype)
    if low <= value <= high:
        return const(value, dtype)
    raise ConstantTooLarge


class AtomTable:
    """Numbers atoms: the same number for structurally equal ones.

    ``data`` are those whose integers wrap (see ``arith.data``), and ``pairing`` those that
    another term may make superfluous (see ``arith.term_pairs``). Compound atoms get greater numbers
    than the atoms inside them, because they are made later.
    """

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.exprs: list[Expr | None] = []
        self.kinds: list[int] = []
        self.operands: list[tuple[Poly, Poly] | None] = []
        self.dtypes: list[str] = []
        self.orders: dict[Monomial, Monomial] = {}
        self.data: set[int] = set()
        self.data_vars: set[Var] = set()
        self.products: set[int] = set()
        self.pairing: set[int] = set()
        self.shifted: dict[int, list[int]] = {}
        """Minima and maxima by number: all whose sides are as far apart, itself among them."""

    def note_order(self, a: Monomial, b: Monomial) -> None:
        """Remember how a product was first written, so that ``x*f`` doesn't become ``f*x``."""
        if a[-1] > b[0]:
            written = self.orders.get(a, a) + self.orders.get(b, b)
            self.orders.setdefault(tuple(sorted(a + b)), written)

    def _new(
        self,
        key: Hashable,
        kind: int,
        expr: Expr | None,
        operands: tuple[Poly, Poly] | None,
        dtype: str = INDEX,
    ) -> int:
        number = len(self.exprs)
        self.numbers[key] = number
        self.exprs.append(expr)
        self.kinds.append(kind)
        self.operands.append(operands)
        self.dtypes.append(dtype)
        return number

    def mark_data(self, var: Var) -> None:
        """Know that a variable stands for data."""
        self.data_vars.add(var)
        self.data.add(self.var(var))

    def has_data(self, *polys: Poly) -> bool:
        """Whether data is in any of some polynomials."""
        data = self.data
        return bool(data) and any(n in data for poly in polys for mono in poly for n in mono)

    def var(self, var: Var) -> int:
        """Return the number of a variable."""
        number = self.numbers.get(var)
        return self._new(var, VAR, var, None, var.dtype) if number is None else number

    def compound(self, kind: int, a: Poly, b: Poly, dtype: str) -> int:
        """Return the number of ``a // b``, ``a % b``, ``min(a, b)`` or ``max(a, b)``."""
        key_a, key_b = frozenset(a.items()), frozenset(b.items())
        key: tuple[Any, ...] = (kind, key_a, key_b)
        if kind >= MIN:
            key = (kind, frozenset((key_a, key_b)))
        number = self.numbers.get(key)
        if number is None:
            number = self._new(key, kind, None, (a, b), dtype)
            if self.has_data(a, b):
                self.data.add(number)
            if kind >= MIN:
                self._note_shifted(number, a, b)
            elif kind == MOD:
                self.pairing.add(number)
            else:
                for mono in a:
                    if len(mono) == 1 and self.kinds[mono[0]] == MOD:
                        self.pairing.add(number)
        return number

    def _note_shifted(self, number: int, a: Poly, b: Poly) -> None:
        gap = poly_sub(a, b)
        key = ("gap", frozenset((poly_key(gap), poly_key(poly_scale(gap, -1)))))
        first = self.numbers.setdefault(key, number)
        alike = self.shifted.setdefault(first, [])
        alike.append(number)
        self.shifted[number] = alike
        if len(alike) > 1:
            self.pairing.update(alike)

    def other(self, key: Hashable, expr: Expr) -> int:
        """Return the number of an expression identified by ``key``."""
        number = self.numbers.get(key)
        if number is None:
            number = self._new(key, OTHER, expr, None, expr.dtype)
            if type(expr) is Call and expr.op.name in ("truncdiv", "truncmod"):
                self.pairing.add(number)
            if holds_data(expr, self.data_vars):
                self.data.add(number)
        return number

    def product(self, a: Poly, b: Poly, expr: Expr) -> int:
        """Return the number of a product that isn't multiplied out: it has too many terms.

        What is multiplied by it isn't multiplied out either, else the terms would grow all the
        same: each would be as large as the product.
        """
        number = self.other(("product", frozenset((poly_key(a), poly_key(b)))), expr)
        self.products.add(number)
        return number

    def holds_product(self, *polys: Poly) -> bool:
        """Whether a product that isn't multiplied out stands in one of the polynomials."""
        return any(not self.products.isdisjoint(mono) for poly in polys for mono in poly)

    def expr(self, number: int) -> Expr:
        """Return the expression of an atom, built on first use."""
        found = self.exprs[number]
        if found is None:
            operands = self.operands[number]
            assert operands is not None
            dtype = self.dtypes[number]
            found = _NODE_OF[self.kinds[number]](
                self.to_expr(operands[0], dtype), self.to_expr(operands[1], dtype)
            )
            self.exprs[number] = found
        return found

    def term_expr(self, mono: Monomial, coefficient: int, dtype: str) -> Expr:
        """Build one term; the coefficient comes last."""
        exprs, made = self.exprs, None
        if len(mono) > 1:
            mono = self.orders.get(mono, mono)
        for number in mono:
            atom = exprs[number]
            if atom is None:
                atom = self.expr(number)
            made = atom if made is None else Mul(made, atom)
        if made is None:
            return _constant(coefficient, dtype)
        return made if coefficient == 1 else Mul(made, _constant(coefficient, dtype))

    def to_expr(self, a: Poly, dtype: str = INDEX) -> Expr:
        """Build an expression: positive terms in order, negative ones subtracted, constant last."""
        made: Expr | None = None
        late: list[tuple[Monomial, int]] = []
        for mono, value in a.items():
            if not mono:
                continue
            if value > 0:
                term = self.term_expr(mono, value, dtype)
                made = term if made is None else Add(made, term)
            elif made is None:
                late.append((mono, value))
            else:
                made = Sub(made, self.term_expr(mono, -value, dtype))
        constant = a.get((), 0)
        if made is None and late and (constant > 0 or (constant and late[0][1] == -1)):
            made, constant = _constant(constant, dtype), 0
        for mono, value in late:
            if made is None:
                made = self.term_expr(mono, value, dtype)
            else:
                made = Sub(made, self.term_expr(mono, -value, dtype))
        if made is None:
            return _constant(constant, dtype)
        if constant > 0:
            made = Add(made, _constant(constant, dtype))
        elif constant < 0:
            made = Sub(made, _constant(-constant, dtype))
        return made


class Polynomial:
    """A polynomial together with the table of its atoms; see ``Analyzer.to_polynomial``.

    ``terms`` maps monomials (sorted tuples of atom numbers) to integer coefficients.
    """

    __slots__ = ("dtype", "table", "terms")

    def __init__(self, terms: Poly, table: AtomTable, dtype: str = INDEX) -> None:
        self.terms = terms
        self.table = table
        self.dtype = dtype

    def _with(self, terms: Poly) -> Polynomial:
        return Polynomial(terms, self.table, self.dtype)

    def _other(self, other: Polynomial | int) -> Poly:
        return poly_const(other) if isinstance(other, int) else other.terms

    def __add__(self, other: Polynomial | int) -> Polynomial:
        return self._with(poly_add(self.terms, self._other(other)))

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self._with(poly_sub(self.terms, self._other(other)))

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        return self._with(poly_mul(self.terms, self._other(other)))

    def __neg__(self) -> Polynomial:
        return self._with(poly_scale(self.terms, -1))

    @property
    def constant(self) -> int | None:
        """The value if there are no atoms, else ``None``."""
        return constant_of(self.terms)

    def atoms(self) -> list[Expr]:
        """The atoms' expressions in the order of their numbers."""
        return [self.table.expr(number) for number in sorted(poly_atoms(self.terms))]

    def equals(self, other: Polynomial) -> bool:
        """Whether both are the same polynomial (they must share a table)."""
        return self.table is other.table and self.terms == other.terms

    def factors(self) -> Mapping[tuple[Expr, ...], int]:
        """Coefficient by the tuple of a monomial's atoms, as expressions."""
        return {
            tuple(self.table.expr(number) for number in mono): value
            for mono, value in self.terms.items()
        }

    def to_expr(self) -> Expr:
        """Build the expression."""
        return self.table.to_expr(self.terms, self.dtype)

    def __repr__(self) -> str:
        return f"Polynomial({self.to_expr()!r})"


def same_expr(a: Any, b: Any) -> bool:
    """Whether two arithmetic expressions are the same tree (variables by identity), quickly."""
    # Chains such as a + b + c are as deep as they are long: go down them without recursion.
    while type(a) in _CHAINS and type(a) is type(b) and a is not b:
        if a.b is not b.b and not same_expr(a.b, b.b):
            return False
        a, b = a.a, b.a
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b) or kind is Var:
        return False
    if kind is IntImm:
        return bool(a.value == b.value and a.dtype == b.dtype)
    if kind is FloatImm:  # tells 0.0 from -0.0, and finds NaN equal to itself
        return bool(repr(a.value) == repr(b.value) and a.dtype == b.dtype)
    return getattr(kind, "symbol", False) is not True and _same_fields(a, b)


def _same_fields(a: Node, b: object) -> bool:
    """Whether two nodes of one class are the same in all that they are made of."""
    for field in a.node_fields:
        role = field.role
        if role == "derived":
            continue
        left, right = getattr(a, field.name), getattr(b, field.name)
        if left is right:
            continue
        if role == "child":
            if left is None or right is None or not same_expr(left, right):
                return False
        elif role == "children":
            if len(left) != len(right) or not all(map(same_expr, left, right)):
                return False
        elif role in ("child_map", "definition", "definitions") or left != right:
            return False
    return True
