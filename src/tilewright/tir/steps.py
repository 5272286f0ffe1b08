"""Formulas in steps: values that are used several times are computed once."""

from __future__ import annotations

from tilewright.ir import Expr, Let, Var


class Steps:
    """Binds the values of a formula to variables, in order.

    ``steps(value)`` gives a variable; ``steps.result(body)`` binds them all around ``body``.
    """

    def __init__(self) -> None:
        self.bound: list[tuple[Var, Expr]] = []

    def __call__(self, value: Expr) -> Expr:
        var = Var(f"s{len(self.bound)}", value.dtype)
        self.bound.append((var, value))
        return var

    def result(self, body: Expr) -> Expr:
        """``body`` with everything bound that it may use."""
        for var, value in reversed(self.bound):
            body = Let(var, value, body)
        return body
