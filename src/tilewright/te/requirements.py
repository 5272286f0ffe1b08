"""What operators require of symbolic sizes, and how a function checks it.

An operator states its requirements by :func:`require` and :func:`require_equal`. Conditions that
aren't decided yet are attached to the operations that the operator defines
(:func:`with_conditions`), and ``create_prim_func`` puts them into the function: an extent that must
equal something else is replaced by it in the function's shapes, so that the argument binder checks
it and schedules know it; what no shape can express is asserted before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

from tilewright.arith import (
    Analyzer,
    Condition,
    collect_conditions,
    collects_conditions,
    conjuncts,
    holds_or_stays,
    linear_coefficients,
    same_extent,
    simplify,
)
from tilewright.ir import (
    EQ,
    Expr,
    ExprLike,
    Var,
    as_expr,
    as_int,
    expr_equal,
    free_vars,
    substitute,
)
from tilewright.support.errors import VerifyError
from tilewright.te.tensor import Tensor

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


def require(condition: ExprLike, *parts: str | Expr) -> None:
    """Require a condition; ``parts`` are the words and extents of the error message.

    Raises ``VerifyError`` if it can't hold, or is undecided outside of an operator
    (:func:`with_conditions`), where nothing would check it.
    """
    text = Condition(as_expr(condition), parts).text
    if not holds_or_stays(condition, parts):
        raise VerifyError(text)
    if not collects_conditions() and as_int(simplify(as_expr(condition))) is None:
        raise VerifyError(f"{text}: nothing says whether that is so, and nothing would check it")


def require_equal(what: str, a: ExprLike, b: ExprLike) -> None:
    """Require that two extents are equal."""
    if not same_extent(a, b):
        x, y = as_expr(a), as_expr(b)
        require(x == y, f"{what}: ", x, " is not ", y)


def with_conditions(define: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Attach the undecided requirements of ``define`` to the tensors that it returns."""

    @wraps(define)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        made, found = collect_conditions(lambda: define(*args, **kwargs))
        if found:
            for tensor in made if isinstance(made, (list, tuple)) else (made,):
                assert isinstance(tensor, Tensor)
                tensor.op.conditions += found
        return made

    return run


class Requirements:
    """The conditions of a function's operations, by how they are checked.

    ``solved`` says what extents become; ``asserted`` is what shapes can't express. ``extents`` are
    the arguments', in order: variables of later ones are replaced by those of earlier ones.
    """

    def __init__(
        self, conditions: Sequence[Condition], extents: Sequence[Expr], scalars: Sequence[Var]
    ) -> None:
        given = set(scalars)
        inside = [var for extent in extents for var in free_vars(extent)]
        self.places = [var for var in extents if type(var) is Var and var not in given]
        self.known = {*inside, *scalars}
        self.solved: dict[Var, Expr] = {}
        self.asserted: list[Condition] = []
        left = []
        for condition in conditions:
            if not all(map(self.solve, conjuncts(condition.expr))):
                left.append(condition)
        analyzer = Analyzer()
        for extent in extents:
            # What an argument has is not negative.
            if type(extent) is Var:
                analyzer.limit(extent, 0)
            elif as_int(extent) is None:
                analyzer.assume(simplify(substitute(extent, self.solved)) >= 0)
        for condition in left:
            self.add_assertion(condition.substitute(self.solved), analyzer)

    def solve(self, condition: Expr) -> bool:
        """Solve an equation for a variable, if possible; return whether it was."""
        made = simplify(substitute(condition, self.solved))
        if as_int(made) is not None:
            return bool(as_int(made))
        if not isinstance(made, EQ):
            return False
        sides = made
        used = set(free_vars(made))
        for var in reversed(self.places):
            if var not in used or var in self.solved:
                continue
            linear = linear_coefficients(sides.a - sides.b, [var])
            factor = None if linear is None else as_int(linear[0])
            if linear is None or factor not in (1, -1):
                continue
            value = simplify(linear[1] * -factor)
            if value.dtype != var.dtype or not self.known.issuperset(free_vars(value)):
                continue
            self.solved = {
                old: simplify(substitute(known, {var: value})) for old, known in self.solved.items()
            }
            self.solved[var] = value
            return True
        return False

    def add_assertion(self, condition: Condition, analyzer: Analyzer) -> None:
        """Assert a condition that is not implied yet; ``VerifyError`` if it can't hold."""
        if as_int(condition.expr) == 0:
            raise VerifyError(condition.text)
        known = any(expr_equal(condition.expr, other.expr) for other in self.asserted)
        if not known and not analyzer.can_prove(condition.expr):
            analyzer.assume(condition.expr)
            self.asserted.append(condition)
