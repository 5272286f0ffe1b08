"""Python's builtins and operators as text from elsewhere may use them: with a price first.

A single call can take any time and memory (``pow(3, 10**8)``, ``"a" * 10**10``), so what it will
cost is looked at before it runs.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from typing import Any

from tilewright.ir import Node
from tilewright.script.allowance import CONTAINERS, MAX_BITS, SCALARS, Budget
from tilewright.support.errors import ParseError

_NUMBERS = (bool, int, float)
_SEQUENCES = (str, list, tuple)
_MAX_WIDTH = 400
_MAX_SPECIFICATION = 32


class BoundedBuiltins:
    """What text may call besides the dialects: nothing that reaches the machine."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.by_name: dict[str, object] = {
            "range": range,
            "pow": self.power,
            "round": self.round,
            "str": self.text,
            "sum": self.sum,
            "len": self._of_members(len),
        }
        for name in ("abs", "bool", "divmod", "float", "int"):
            self.by_name[name] = self._of_scalars(getattr(builtins, name))
        for name in ("all", "any", "list", "set", "sorted", "tuple", "dict"):
            self.by_name[name] = self._of_members(getattr(builtins, name))
        for name in ("enumerate", "reversed", "zip"):
            self.by_name[name] = self._of_members(getattr(builtins, name), list)
        for name in ("max", "min"):
            self.by_name[name] = self._extremum(getattr(builtins, name))

    def _of_scalars(self, function: Callable[..., object]) -> Callable[..., Any]:
        def call(*values: object) -> Any:
            for value in values:
                if type(value) not in SCALARS and not isinstance(value, Node):
                    raise ParseError(f"{function.__name__} takes numbers")
            return function(*values)

        return call

    def _of_members(
        self, function: Callable[..., object], collect: Callable[[Any], object] = lambda made: made
    ) -> Callable[..., Any]:
        def call(*values: object, **options: object) -> Any:
            for value in values:
                if type(value) is not int:  # the start of enumerate
                    members = self.budget.members_of(value)
                    if function in (dict, set):
                        self.budget.spend_keys(members)
            return collect(function(*values, **options))

        return call

    def _extremum(self, function: Callable[..., object]) -> Callable[..., Any]:
        of_members = self._of_members(function)

        def call(*values: object, **options: object) -> Any:
            if len(values) == 1:
                return of_members(*values, **options)
            for value in values:
                self.budget.spend(self.budget.size(value) >> 3)
            return function(*values, **options)

        return call

    def sum(self, values: object, start: object = 0) -> Any:
        """Numbers and expressions only: joining lists one by one takes quadratic time."""
        if type(start) not in _NUMBERS and not isinstance(start, Node):
            raise ParseError("sum starts with a number")
        total = start
        for value in self.budget.members_of(values):
            total = apply_operator(self.budget, "Add", lambda a, b: a + b, total, value)
        return total

    def power(self, base: Any, exponent: Any, modulus: Any = None) -> Any:
        """``pow`` of numbers whose result is short."""
        if modulus is not None:
            self._pay_for_modular_power(base, exponent, modulus)
            return pow(base, exponent, modulus)
        return apply_operator(self.budget, "Pow", pow, base, exponent)

    def _pay_for_modular_power(self, *values: Any) -> None:
        """A multiplication per bit of the exponent: short operands, yet long work."""
        if not all(type(value) in (bool, int) for value in values):
            raise ParseError("pow with a modulus takes integers")
        words = max(value.bit_length() for value in values) // 30 + 1
        self.budget.spend(words**3 >> 5)

    def round(self, value: Any, digits: Any = None) -> Any:
        """``round`` to a number of digits that a float can have."""
        if isinstance(digits, int) and abs(digits) > _MAX_WIDTH:
            raise ParseError(f"round takes at most {_MAX_WIDTH} digits")
        return round(value, digits)

    def text(self, value: object = "") -> str:
        """``str`` of a value, which may be as long as the value is large."""
        self.budget.spend(self.budget.size(value))
        return str(value)


def apply_operator(
    budget: Budget, name: str, function: Callable[[Any, Any], Any], a: Any, b: Any
) -> Any:
    """Apply a Python operator (``name`` is its ``ast`` class) to two values of text."""
    kinds = type(a), type(b)
    if isinstance(a, Node) or isinstance(b, Node):
        return function(a, b)
    if all(kind in _NUMBERS for kind in kinds):
        _check_bits(name, a, b)
        return function(a, b)
    if name == "Mult" and int in kinds and any(kind in _SEQUENCES for kind in kinds):
        sequence, count = (a, b) if kinds[1] is int else (b, a)
        budget.spend(budget.size(sequence) * max(0, count))
        if type(sequence) is str:
            budget.spend(len(sequence) * max(0, count) >> 3)
        return function(a, b)
    joins = name == "Add" and kinds[0] in _SEQUENCES
    merges = name in ("BitOr", "BitAnd", "BitXor", "Sub") and kinds[0] in (set, dict)
    if kinds[0] is kinds[1] and (joins or merges):
        budget.spend(len(a) + len(b) if kinds[0] is not str else len(a) + len(b) >> 4)
        return function(a, b)
    raise ParseError(
        f"the operator takes two numbers or expressions, got {kinds[0].__name__} and "
        f"{kinds[1].__name__}"
    )


def _check_bits(name: str, a: object, b: object) -> None:
    if not isinstance(a, int) or not isinstance(b, int):
        return
    bits = 0
    if name == "Pow" and b > 0:
        bits = a.bit_length() * b if abs(a) > 1 else 1
    elif name == "LShift":
        bits = a.bit_length() + b
    if bits > MAX_BITS:
        raise ParseError(f"text may not compute integers of more than {MAX_BITS} bits")


def compare_values(
    budget: Budget, name: str, function: Callable[[Any, Any], Any], a: object, b: object
) -> Any:
    """Compare two values of text."""
    for value in (a, b):
        if type(value) in CONTAINERS:
            budget.spend(budget.size(value) >> 2)
        elif type(value) is str:
            budget.spend(len(value) >> 4)
    if name in ("In", "NotIn"):
        if type(b) not in (*CONTAINERS, str, range):
            raise ParseError(f"a {type(b).__name__} holds nothing that `in` could find")
        if type(b) in (dict, set):
            budget.admit_key(a)
        if type(b) is range and type(a) is not int:
            raise ParseError("a range holds integers")
    return function(a, b)


def format_value(budget: Budget, value: object, specification: str) -> str:
    """Render a part of an f-string; the widths that it asks for are bounded."""
    # Digits of all scripts: `format` reads those too.
    widths = [int(digits) for digits in re.findall(r"\d+", specification[:_MAX_SPECIFICATION])]
    if len(specification) > _MAX_SPECIFICATION or any(width > _MAX_WIDTH for width in widths):
        raise ParseError(f"a format takes widths of at most {_MAX_WIDTH}")
    if specification and type(value) not in (*_NUMBERS, str):
        raise ParseError(f"numbers and text take a format, a {type(value).__name__} does not")
    budget.spend(budget.size(value))
    try:
        return format(value, specification)
    except ValueError as error:
        raise ParseError(f"the format {specification!r} doesn't fit: {error}") from None


def item_of(budget: Budget, value: Any, index: Any) -> Any:
    """Take an item of a built-in container, or of a node that has items."""
    if type(value) is dict:
        budget.admit_key(index)
        if index not in value:
            raise ParseError(f"there is no key {index!r}")
    elif type(value) in (list, tuple, str, range):
        members = (index.start, index.stop, index.step) if type(index) is slice else (index,)
        if not all(
            type(member) is int or (member is None and len(members) == 3) for member in members
        ):
            raise ParseError(f"an index of a {type(value).__name__} is an integer, got {index!r}")
    elif not isinstance(value, Node) or not hasattr(type(value), "__getitem__"):
        raise ParseError(f"a {type(value).__name__} has no items")
    try:
        return value[index]
    except IndexError:
        raise ParseError(f"there is no item {index}") from None
