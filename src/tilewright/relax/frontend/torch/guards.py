"""What ``torch.export`` took for granted about symbolic sizes: conditions of each call.

Where a model, or an operator, decides by a size, the exported graph has what was right for the
example, and the program a guard such as ``L['x'].size()[0] > 5``. PyTorch's own module checks them
when it is called, and the ranges that a ``Dim`` allows.

PyTorch takes all sizes for other than 0 and 1 while it exports, but doesn't check that: operators
are right for these as well. Here the same goes for sizes of the graph's tensors, such as the height
of a convolution's result, and for their strides, products of ``max(1, size)``, since how a tensor
lies in memory decides nothing here. Other formulas that a model compares with 0 or 1 are checked.
"""

from __future__ import annotations

import ast
import logging
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer
from tilewright.arith.polynomial import poly_key
from tilewright.ir import (
    INDEX,
    Expr,
    and_,
    as_expr,
    call,
    cast,
    const_value,
    free_vars,
    maximum,
    minimum,
    not_,
    or_,
    product,
    select,
)
from tilewright.relax.conditions import Condition
from tilewright.relax.frontend.torch.symbols import SymbolTable
from tilewright.support.errors import VerifyError

if TYPE_CHECKING:
    import torch

_log = logging.getLogger("tilewright.relax.frontend.torch")
#: The least that PyTorch takes a size for where it isn't told otherwise: not 0 or 1.
_LEAST = 2
#: The largest power of a size that is multiplied out.
_MOST_FACTORS = 8

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: lambda a, b: _real(a) / _real(b),
    ast.Mod: lambda a, b: _remainder(a, b),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.Pow: lambda a, b: _power(a, b),
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.And: and_,
    ast.Or: or_,
    ast.Not: not_,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Max": lambda *items: reduce(maximum, _alike(items)),
    "Min": lambda *items: reduce(minimum, _alike(items)),
    "max": lambda *items: reduce(maximum, _alike(items)),
    "min": lambda *items: reduce(minimum, _alike(items)),
    "abs": lambda x: maximum(x, -x),
    "round": lambda x, *digits: _rounded(x, *digits),
    "math.trunc": lambda x: cast(_real(x), INDEX),
    "math.floor": lambda x: cast(call("floor", _real(x)), INDEX),
    "math.ceil": lambda x: cast(call("ceil", _real(x)), INDEX),
    "math.sqrt": lambda x: call("sqrt", _real(x)),
    "torch.sym_float": lambda x: _real(x),
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
}


def guards_of(
    program: torch.export.ExportedProgram,
    shapes: Mapping[str, Sequence[Expr]],
    symbols: SymbolTable,
    tensors: Iterable[Sequence[Expr]],
) -> Iterator[Condition]:
    """Conditions on the inputs' sizes; ``shapes`` has the inputs' by their names in the graph.

    ``tensors`` are the shapes of the graph's tensors. Guards that have no form here can't be
    checked: a warning says which.
    """
    reader = _Reader(shapes)
    sizes: _Sizes | None = None
    for symbol, allowed in program.range_constraints.items():
        var = symbols.variable(str(symbol))
        if var is None:
            continue
        least, most = _whole(allowed.lower), _whole(allowed.upper)
        if least is not None and least > _LEAST:
            yield _condition(var >= least)
        if most is not None:
            yield _condition(var <= most)
    for text in getattr(program, "_guards_code", ()):
        guard = ast.parse(text, mode="eval").body
        try:
            found = reader.read(guard)
            sides = _compared(guard)
            if sides:
                sizes = _Sizes(tensors) if sizes is None else sizes
                parts = [part for side in sides for part in _greatest_factors(side) or [side]]
                if all(reader.read(part) in sizes for part in parts):
                    continue
        except (_Unknown, VerifyError) as reason:
            _log.warning(
                "the model was exported for sizes with %s, which isn't checked when it is called "
                "(%s): for other sizes its results may be wrong", text, reason,
            )  # fmt: skip
            continue
        yield _condition(found)


def _compared(guard: ast.AST) -> list[ast.expr]:
    """What a guard says is not 0 or not 1; both sides of one that compares strides."""
    if not isinstance(guard, ast.Compare) or len(guard.ops) != 1:
        return []
    other = guard.comparators[0]
    if isinstance(other, ast.Constant):
        few = isinstance(guard.ops[0], ast.NotEq) and other.value in (0, 1)
        return [guard.left] if few else []
    sides = [guard.left, other]
    return sides if all(map(_greatest_factors, sides)) else []


def _greatest_factors(formula: ast.expr) -> list[ast.expr]:
    """The sizes of a product of ``max(1, size)``; none of another formula."""
    if isinstance(formula, ast.BinOp) and isinstance(formula.op, ast.Mult):
        left, right = map(_greatest_factors, (formula.left, formula.right))
        return [*left, *right] if left and right else []
    if isinstance(formula, ast.Call) and ast.unparse(formula.func) in ("max", "Max"):
        return formula.args[1:] if ast.unparse(formula.args[0]) == "1" else []
    return []


class _Sizes:
    """Extents of tensors, and how many elements are in their last axes."""

    def __init__(self, tensors: Iterable[Sequence[Expr]]) -> None:
        self.analyzer = Analyzer()
        self.known = {
            self.key(size)
            for shape in tensors
            for size in (*shape, *(product(shape[axis:]) for axis in range(len(shape))))
        }

    def key(self, size: Expr) -> object:
        return poly_key(self.analyzer.poly(size))

    def __contains__(self, size: Expr) -> bool:
        return not size.dtype.startswith("float") and self.key(size) in self.known


def _real(x: Expr) -> Expr:
    """A number as Python's floats are."""
    return x if x.dtype == "float64" else cast(x, "float64")


def _alike(items: Sequence[Expr]) -> Sequence[Expr]:
    """Numbers of which none or all are floats."""
    return list(map(_real, items)) if any(x.dtype == "float64" for x in items) else items


def _remainder(a: Expr, b: Expr) -> Expr:
    if a.dtype != "float64":
        return a % b
    rest = call("fmod", a, b)
    return select(rest * b < 0, rest + b, rest)


def _rounded(x: Expr, *digits: Expr) -> Expr:
    if digits:
        raise _Unknown("rounding to digits is not supported")
    return cast(call("round", _real(x)), INDEX)  # to the even one of two, as Python's


def _power(base: Expr, exponent: Expr) -> Expr:
    power = const_value(exponent)
    if power == 0.5:
        return call("sqrt", _real(base))
    if type(power) is int and 0 < power <= _MOST_FACTORS:
        return reduce(operator.mul, [base] * power)
    return call("pow", _real(base), _real(exponent))


def _condition(expr: Expr) -> Condition:
    phrases: list[str | Expr] = [f"the model was exported for sizes with {expr!r}"]
    for number, var in enumerate(free_vars(expr)):
        phrases += [", " if number else "; here ", var]
    return Condition(expr, tuple(phrases))


def _whole(bound: Any) -> int | None:
    """A bound as a number; ``None`` for the infinite ones."""
    return int(bound) if getattr(bound, "is_Integer", isinstance(bound, int)) else None


class _Unknown(Exception):
    """A part of a guard that has no form here."""


class _Reader:
    """Reads the Python text of a guard."""

    def __init__(self, shapes: Mapping[str, Sequence[Expr]]) -> None:
        self.shapes = shapes

    def read(self, item: ast.AST) -> Any:
        """The expression of a part of the text; raises ``_Unknown``."""
        if isinstance(item, ast.Constant) and type(item.value) in (int, float):
            return as_expr(item.value, INDEX if type(item.value) is int else "float64")
        if isinstance(item, ast.BinOp):
            return self.apply(item.op, item.left, item.right)
        if isinstance(item, ast.UnaryOp):
            return self.apply(item.op, item.operand)
        if isinstance(item, ast.BoolOp):
            return self.apply(item.op, *item.values)
        if isinstance(item, ast.Compare) and len(item.ops) == 1:
            return self.apply(item.ops[0], item.left, item.comparators[0])
        if isinstance(item, ast.Call):
            function = _FUNCTIONS.get(ast.unparse(item.func))
            if function is not None and not item.keywords:
                return function(*map(self.read, item.args))
        if isinstance(item, ast.Subscript):
            return self.size(item)
        raise _Unknown(f"{ast.unparse(item)} is not supported")

    def apply(self, kind: ast.AST, *operands: ast.AST) -> Any:
        function = _OPERATORS.get(type(kind))
        if function is None:
            raise _Unknown(f"{type(kind).__name__} is not supported")
        return function(*_alike(list(map(self.read, operands))))

    def size(self, item: ast.Subscript) -> Expr:
        """The extent ``L['x'][0].size()[1]`` of an input, which the graph calls ``x_0``."""
        call, axis = item.value, item.slice
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "size"
            and isinstance(axis, ast.Constant)
        ):
            shape = self.shapes.get(_name(call.func.value), ())
            if isinstance(axis.value, int) and axis.value in range(len(shape)):
                return shape[axis.value]
        raise _Unknown(f"{ast.unparse(item)} is no size of an input")


def _name(path: ast.AST) -> str:
    """The name that PyTorch gives to an input in the graph."""
    parts: list[str] = []
    while isinstance(path, ast.Subscript) and isinstance(path.slice, ast.Constant):
        parts.insert(0, str(path.slice.value).lower())
        path = path.value
    return re.sub(r"\W", "_", "_".join(parts), flags=re.ASCII)
