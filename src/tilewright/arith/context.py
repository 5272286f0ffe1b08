"""What is known at a point of the program: values, ranges and conditions of variables.

A :class:`Context` is the state that the parts of an :class:`~tilewright.arith.Analyzer` share. It
is changed by binding variables and by entering conditions, which are undone by restoring a
snapshot; caches live and die with the state they were computed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.polynomial import AtomTable, Monomial, Poly
from tilewright.ir import Expr, Var

_STATE = (
    "values",
    "substitutions",
    "ranges",
    "limits",
    "poly_limits",
    "facts",
    "rules",
    "residues",
    "conditions",
)
_CACHES = ("bound_cache", "residue_cache", "proof_cache")


class Context:
    """Facts about atoms (by number in ``table``).

    - ``values``: variables that stand for a polynomial;
    - ``ranges``: symbolic lower and upper ends (both inclusive, either may be missing);
    - ``limits``: const bounds learnt from conditions; ``poly_limits`` the same for linear forms;
    - ``facts``: polynomials that are known to be >= 0;
    - ``rules``: monomials that equal something simpler (``f0*f1`` is ``512``);
    - ``residues``: atoms known modulo a number;
    - ``conditions``: keys of boolean expressions known to be true or false.
    """

    def __init__(self) -> None:
        self.table = AtomTable()
        self.values: dict[Var, Poly] = {}
        self.substitutions: dict[Var, Expr] = {}
        self.ranges: dict[int, tuple[Poly | None, Poly | None]] = {}
        self.limits: dict[int, tuple[Any, Any]] = {}
        self.poly_limits: dict[Any, tuple[Any, Any]] = {}
        self.facts: list[Poly] = []
        self.rules: dict[Monomial, Poly] = {}
        self.residues: dict[int, tuple[int, int]] = {}
        self.conditions: dict[Any, bool] = {}
        self.bound_cache: dict[int, tuple[Any, Any]] = {}
        self.residue_cache: dict[int, tuple[int, int]] = {}
        self.proof_cache: dict[Any, bool] = {}
        self.bound_of: Callable[[Expr], tuple[Any, Any]]
        self.residue_of: Callable[[Expr], tuple[int, int]]

    def changed(self) -> None:
        """Forget what was computed from an older state."""
        self.bound_cache = {}
        self.residue_cache = {}
        self.proof_cache = {}

    def snapshot(self) -> tuple[Any, ...]:
        """Return what ``restore`` needs, and make the state safe to change."""
        saved = tuple(getattr(self, name) for name in (*_STATE, *_CACHES))
        for name in _STATE:
            setattr(self, name, getattr(self, name).copy())
        self.changed()
        return saved

    def restore(self, saved: tuple[object, ...]) -> None:
        """Go back to a snapshot."""
        for name, value in zip((*_STATE, *_CACHES), saved):
            setattr(self, name, value)

    def copy_state_to(self, other: Context) -> None:
        """Give another context the same knowledge; the table of atoms is shared."""
        other.table = self.table
        for name in _STATE:
            setattr(other, name, getattr(self, name).copy())
