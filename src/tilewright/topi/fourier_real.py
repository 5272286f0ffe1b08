"""Fourier transforms of real numbers, which take half the work of complex ones.

``n`` real numbers, an even count, are transformed as ``n / 2`` complex ones, of which the even
elements are the real and the odd ones the imaginary parts; what belongs to which is separated
afterwards (Sorensen, Jones, Heideman and Burrus, 1987)::

    x[0 .. n) ── pairs ──> stages of n / 2 ── separated ──> X[0 .. n / 2]

and in the opposite order for what becomes real. An odd count is transformed with imaginary parts of
zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.ir import Expr, Var, const, minimum, select
from tilewright.te import Tensor
from tilewright.tir import Buffer, LetStmt, Stmt
from tilewright.tir.building import load
from tilewright.topi.butterflies import Complex, negative, rotated
from tilewright.topi.fourier import turns_of


class Spectra(NamedTuple):
    """How spectra of ``length`` real numbers are made of what the stages give, times ``scale``."""

    length: int
    dtype: str
    scale: float

    @property
    def is_paired(self) -> bool:
        """Whether two real numbers are transformed as one complex one."""
        return self.length % 2 == 0

    def turns(self) -> tuple[Tensor, ...]:
        """Tables that :meth:`element` reads."""
        if not self.is_paired:
            return ()
        return turns_of(self.length, -1.0, self.dtype, self.length // 2 + 1)

    def element(
        self, at: Callable[[Expr], Complex], f: Expr, frequencies: int, turns: Sequence[Buffer]
    ) -> tuple[Complex, list[Stmt]]:
        """Return frequency ``f`` of so many, and statements that name what it is made of.

        ``at`` reads what the stages gave, which is ``cyclic`` if numbers are paired.
        """
        half, lets = self.length // 2, list[Stmt]()
        factor = const(self.scale / 2 if self.is_paired else self.scale, self.dtype)

        def named(value: Expr) -> Expr:
            var = Var("x", value.dtype)
            lets.append(LetStmt(var, value))
            return var

        def read(place: Expr) -> Complex:
            re, im = at(place)
            return named(re), named(im)

        if not self.is_paired:
            re, im = read(f)
            return (re * factor, im * factor), lets
        near = f if frequencies <= half + 1 else minimum(f, self.length - f)
        a, b = read(near), read(half - near)
        even = a[0] + b[0], a[1] - b[1]
        odd = named(a[1] + b[1]), named(b[0] - a[0])
        turned = rotated(odd, *(load(t, near) for t in turns))
        re, im = even[0] + turned[0], even[1] + turned[1]
        if near is not f:
            im = select(f > half, negative(im), im)
        return (re * factor, im * factor), lets
