"""Text of expressions that can be computed with, so that a layout gives text for text."""

from __future__ import annotations


class Text(str):
    """Text of an expression that can be computed with, so that maps give text, too."""

    def _joined(self, sign: str, other: object) -> Text:
        return Text(f"({self} {sign} {other})")

    def __mod__(self, other: object) -> Text:
        return self._joined("%", other)

    def __floordiv__(self, other: object) -> Text:
        return self._joined("//", other)

    def __mul__(self, other: object) -> Text:
        return self._joined("*", other)

    def __rmul__(self, other: object) -> Text:
        return Text(f"({other} * {self})")

    def __add__(self, other: object) -> Text:
        return self._joined("+", other)
