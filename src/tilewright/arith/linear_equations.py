"""Systems of linear equations over the integers, solved by elimination with unimodular steps.

Columns of the coefficients are combined, as in Euclid's algorithm, until each equation holds one
new variable more: the Hermite normal form. What the equations leave open are new variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.linear import linear_coefficients
from tilewright.ir import EQ, FALSE, Expr, IntImm, Range, Var, const
from tilewright.support.errors import VerifyError


@dataclass(frozen=True)
class IntConstraints:
    """Variables, the ranges they are in, and conditions (``relations``) on them."""

    variables: tuple[Var, ...]
    ranges: Mapping[Var, Range]
    relations: tuple[Expr, ...]


@dataclass(frozen=True)
class IntConstraintsTransform:
    """Two systems with the same solutions, and the way from one's variables to the other's."""

    src: IntConstraints
    dst: IntConstraints
    src_to_dst: Mapping[Var, Expr]
    dst_to_src: Mapping[Var, Expr]


def solve_linear_equations(
    equations: Sequence[Expr],
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None,
) -> IntConstraintsTransform:
    """Solve equations for ``variables``, in terms of as few new ones as there are freedoms.

    ``dst.relations`` is what must hold besides: conditions of divisibility and of other symbols,
    and that the variables are in their ``ranges``. A system without a solution has ``False`` there.

    Raises ``VerifyError`` for what is no equation, or not linear with numbers as coefficients.
    """
    unknown = _variables(equations) if variables is None else list(variables)
    rows, right = _coefficients(equations, unknown)
    basis = [[int(i == j) for j in range(len(unknown))] for i in range(len(unknown))]
    pivots = _eliminated(rows, basis)
    known, relations = Analyzer(), []
    values: list[Expr] = []
    for row, constant in zip(rows, right):
        rest = constant
        for number, value in enumerate(values):
            rest = rest - value * row[number]
        if len(values) < len(pivots) and row[len(values)]:
            factor = row[len(values)]
            relations.append(EQ(rest % abs(factor), const(0)))
            values.append(known.simplify(rest // factor))
        else:
            relations.append(EQ(rest, const(0)))
    free = [Var(f"n{i}", "int64") for i in range(len(unknown) - len(values))]
    parts: list[Expr] = [*values, *free]
    src_to_dst = {
        var: known.simplify(_combined(row, parts)) for var, row in zip(unknown, basis)
    }  # fmt: skip
    given = dict(ranges or {})
    for var, dom in given.items():
        if var in src_to_dst:
            made = src_to_dst[var]
            relations += [made >= dom.min, made < dom.min + dom.extent]
    kept = [known.simplify(item) for item in relations]
    kept = [item for item in kept if not (isinstance(item, IntImm) and item.value)]
    if any(isinstance(item, IntImm) for item in kept):
        kept = [FALSE]
    inverse = _inverse(basis)
    dst_to_src = {
        var: known.simplify(_combined(inverse[len(values) + i], list(unknown)))
        for i, var in enumerate(free)
    }
    return IntConstraintsTransform(
        IntConstraints(tuple(unknown), given, tuple(equations)),
        IntConstraints(tuple(free), {}, tuple(kept)),
        src_to_dst,
        dst_to_src,
    )


def _variables(equations: Sequence[Expr]) -> list[Var]:
    found: dict[Var, None] = {}
    for equation in equations:
        stack: list[object] = [equation]
        while stack:
            item = stack.pop()
            if isinstance(item, Var):
                found.setdefault(item)
            elif isinstance(item, Expr):
                stack.extend(reversed(list(item.child_nodes())))
    return list(found)


def _coefficients(
    equations: Sequence[Expr], unknown: Sequence[Var]
) -> tuple[list[list[int]], list[Expr]]:
    """The rows of the system, and what each sum of multiples must be."""
    rows, right = [], []
    for equation in equations:
        if not isinstance(equation, EQ):
            raise VerifyError(f"solve_linear_equations: `{equation!r}` is no equation a == b")
        found = linear_coefficients(equation.a - equation.b, list(unknown))
        if found is None or not all(isinstance(item, IntImm) for item in found[:-1]):
            names = ", ".join(var.name for var in unknown)
            raise VerifyError(
                f"solve_linear_equations: `{equation!r}` is not linear in {names} with numbers as "
                "coefficients"
            )
        rows.append([int(item.value) for item in found[:-1] if isinstance(item, IntImm)])
        right.append(const(0) - found[-1])
    return rows, right


def _eliminated(rows: list[list[int]], basis: list[list[int]]) -> list[int]:
    """Combine columns of ``rows`` (and of ``basis`` alike) until it is a staircase."""
    pivots: list[int] = []
    width = len(basis)
    for index, row in enumerate(rows):
        column = len(pivots)
        while True:
            left = [j for j in range(column, width) if row[j]]
            if len(left) < 2:
                break
            least = min(left, key=lambda j: abs(row[j]))
            for j in left:
                if j != least:
                    factor = row[j] // row[least]
                    for matrix in (rows, basis):
                        for line in matrix:
                            line[j] -= factor * line[least]
        if left:
            for matrix in (rows, basis):
                for line in matrix:
                    line[column], line[left[0]] = line[left[0]], line[column]
            pivots.append(index)
    return pivots


def _combined(row: Sequence[int], parts: Sequence[Expr]) -> Expr:
    total: Expr = const(0)
    for factor, part in zip(row, parts):
        total = total + part * factor
    return total


def _inverse(matrix: Sequence[Sequence[int]]) -> list[list[int]]:
    """The inverse of a unimodular matrix, which has whole numbers too."""
    size = len(matrix)
    wide = [[*row, *(int(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        while True:
            left = [i for i in range(column, size) if wide[i][column]]
            least = min(left, key=lambda i: abs(wide[i][column]))
            wide[column], wide[least] = wide[least], wide[column]
            if len(left) == 1:
                break
            for i in range(column + 1, size):
                factor = wide[i][column] // wide[column][column]
                wide[i] = [a - factor * b for a, b in zip(wide[i], wide[column])]
        if wide[column][column] < 0:
            wide[column] = [-value for value in wide[column]]
    for column in range(size - 1, -1, -1):
        for i in range(column):
            factor = wide[i][column]
            wide[i] = [a - factor * b for a, b in zip(wide[i], wide[column])]
    return [row[size:] for row in wide]
