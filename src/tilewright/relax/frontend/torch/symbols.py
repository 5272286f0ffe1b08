"""Symbolic sizes: ``torch.export``'s sympy expressions become ``ir`` expressions.

Every extent of a user input that is a single symbol becomes an int64 variable, named after the
``Dim`` of the export if PyTorch still has it (saved files don't), else after PyTorch's own symbol
(``s77``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

from tilewright.arith import simplify
from tilewright.ir import (
    INDEX,
    Add,
    Expr,
    IntImm,
    Mul,
    Var,
    as_expr,
    ceildiv,
    free_vars,
    maximum,
    minimum,
    substitute,
)
from tilewright.support.errors import ImportModelError

if TYPE_CHECKING:
    import torch


def _power(base: Expr, exponent: Expr) -> Expr:
    times = getattr(exponent, "value", None)
    if not isinstance(times, int) or times < 1:
        raise ImportModelError(f"the size {base!r} ** {exponent!r} has no integer form")
    return reduce(lambda a, b: a * b, [base] * times)


# Functions of sympy and of torch.utils._sympy.functions, by class name.
_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "Add": lambda *terms: reduce(lambda a, b: a + b, terms),
    "Mul": lambda *factors: reduce(lambda a, b: a * b, factors),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "CeilDiv": ceildiv,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "Max": lambda *items: reduce(maximum, items),
    "Min": lambda *items: reduce(minimum, items),
}


#: Functions that make floats whole. Sizes aren't negative, so both of these round down.
_WHOLE = ("TruncToInt", "FloorToInt", "CeilToInt")
#: Factors of symbolic sizes are fractions with denominators up to this.
FINEST = 1 << 12


def fraction_of(factor: Fraction, *, up: bool = False) -> Fraction | None:
    """The fraction that scales whole sizes as a float does; ``None`` if there is none.

    PyTorch multiplies in double precision and rounds down (or ``up``). A product that isn't whole
    is too far from whole numbers to matter. A whole one must not come out on the wrong side: it
    doesn't where the float is at most 2**-54 of its value on that side of the fraction, half of
    the distance between floats.
    """
    if factor <= 0:
        return Fraction(0) if factor == 0 else None
    found = factor.limit_denominator(FINEST)
    if not found:
        return None
    off = factor / found - 1
    wrong = off if up else -off
    return found if abs(off) < Fraction(1, 1 << 52) and wrong <= Fraction(1, 1 << 54) else None


class SymbolTable:
    """Variables of the symbols that the inputs' shapes define.

    With ``from_data``, those of sizes that a graph reads from its tensors as well.
    """

    def __init__(self, *, from_data: bool = False) -> None:
        self.from_data = from_data
        self.bounds: dict[Var, Expr] = {}
        """How large sizes that only data tell may become, by formulas of the inputs' extents."""
        self._vars: dict[str, Var] = {}
        self._names: set[str] = set()

    def define(self, shape: Sequence[object]) -> None:
        """Make variables for the extents of an input that are single symbols."""
        for extent in shape:
            symbol = getattr(getattr(extent, "node", None), "expr", None)
            if symbol is not None and symbol.is_Symbol and symbol.name not in self._vars:
                name = self._free(_dim_name(extent) or symbol.name)
                self._vars[symbol.name] = Var(name, INDEX)

    def define_name(self, name: str) -> Var:
        """Make a variable for a symbol that is given by its name."""
        self._vars[name] = made = Var(self._free(name), INDEX)
        return made

    def variable(self, symbol: str) -> Var | None:
        """The variable of a symbol, if it has one."""
        return self._vars.get(symbol)

    def _free(self, name: str) -> str:
        made, number = name, 1
        while made in self._names:
            made, number = f"{name}_{number}", number + 1
        self._names.add(made)
        return made

    def shape(self, shape: Sequence[object]) -> tuple[Expr, ...]:
        """Convert the sizes of a tensor."""
        return tuple(map(self.expr, shape))

    def expr(self, size: int | torch.SymInt) -> Expr:
        """Convert an ``int`` or a ``torch.SymInt``."""
        if isinstance(size, int):
            return as_expr(size, INDEX)
        return simplify(self._convert(size.node.expr))

    def has(self, size: torch.SymInt) -> bool:
        """Whether a size is a formula of extents of the inputs."""
        return all(symbol.name in self._vars for symbol in size.node.expr.free_symbols)

    def bound(self, size: Expr) -> Expr | None:
        """How large a formula of sizes that only data tell may become, as far as it is known.

        Sums and products of sizes have a bound, since those aren't negative.
        """
        unknown = [var for var in free_vars(size) if var in self.bounds]
        return simplify(substitute(size, self.bounds)) if unknown and _is_rising(size) else None

    def _convert(self, item: Any) -> Expr:
        if item.is_Symbol:
            if item.name not in self._vars:
                known = ", ".join(sorted(self._vars)) or "none"
                raise ImportModelError(
                    f"the size {item.name} is decided by data or only by a compound size of an "
                    f"input; sizes must be extents of inputs (known symbols: {known})"
                )
            return self._vars[item.name]
        if item.is_Integer:
            return as_expr(int(item), INDEX)
        if type(item).__name__ in _WHOLE:
            return self._whole(item)
        function = _FUNCTIONS.get(type(item).__name__)
        if function is None:
            raise ImportModelError(
                f"the symbolic size {item} uses {type(item).__name__}; "
                f"supported: {', '.join(sorted(_FUNCTIONS))}"
            )
        return function(*map(self._convert, item.args))

    def _whole(self, item: Any) -> Expr:
        """A share of a size, as of an image that is scaled by a factor, as a whole number."""
        factor, sizes = Fraction(1), []
        (share,) = item.args
        for part in share.args if type(share).__name__ == "Mul" else (share,):
            if type(part).__name__ in ("ToFloat", "FloatTrueDiv", "IntTrueDiv"):
                sizes.append(part.args[0])
                factor /= Fraction(str(part.args[1])) if len(part.args) > 1 else 1
            elif part.is_number:
                factor *= Fraction(float(part))
            else:
                sizes.append(part)
        up = type(item).__name__ == "CeilToInt"
        share = fraction_of(factor, up=up)
        if len(sizes) != 1 or share is None:
            raise ImportModelError(
                f"the symbolic size {item} isn't a size times a fraction with a denominator up to "
                f"{FINEST}"
            )
        scaled = self._convert(sizes[0]) * share.numerator
        return ceildiv(scaled, share.denominator) if up else scaled // share.denominator


def _is_rising(size: Expr) -> bool:
    """Whether a formula can only become larger with the sizes in it."""
    if isinstance(size, (Add, Mul)):
        return _is_rising(size.a) and _is_rising(size.b)
    if isinstance(size, IntImm):
        return bool(size.value >= 0)
    return isinstance(size, Var)


def bounds_of_sizes(program: torch.export.ExportedProgram) -> dict[str, tuple[int, int]]:
    """The least and the greatest value of each size of the inputs that has such, by its name."""
    table, found = SymbolTable(), {}
    for node in program.graph.nodes:
        shape = getattr(node.meta.get("val"), "shape", None)
        if node.op == "placeholder" and shape is not None:
            table.define(shape)
    for symbol, allowed in program.range_constraints.items():
        var, most = table.variable(str(symbol)), allowed.upper
        if var is not None and most.is_Integer and allowed.lower.is_Integer:
            found[var.name] = max(1, int(allowed.lower)), int(most)
    return found


def _dim_name(extent: torch.SymInt) -> str | None:
    """Name of the ``torch.export.Dim`` behind a size, if the export remembers it."""
    shape_env = extent.node.shape_env
    names = getattr(shape_env, "source_name_to_debug_name", None)
    sources = getattr(shape_env, "source_to_var", None)
    if not names or not sources:
        return None
    for source, symbol in sources.items():
        if symbol == extent.node.expr and source in names:
            name = str(names[source])
            return name if name.isidentifier() else None
    return None
