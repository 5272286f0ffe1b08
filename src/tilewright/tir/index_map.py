"""``IndexMap``: a function from indices to indices, as layouts and iteration spaces are changed by.

``IndexMap.from_func(lambda i, j: (i // 16, j, i % 16))`` maps a row-major matrix to one that is
tiled by 16 rows. Schedules use index maps in ``transform_layout`` and ``transform_block_layout``;
inlining uses :func:`solve_indices` to turn accesses round.

How inversion works: a map made of ``+ * // %`` by constants splits and fuses its inputs; the
iteration-map analysis of ``arith`` says how, and reads the inverse off. If an input is split by a
factor that doesn't divide its extent, the extent is first rounded up; the extra points are the
*padding*, and a predicate over the new indices tells them from the rest.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from tilewright.arith import Analyzer, detect_iter_map, inverse_affine_iter_map
from tilewright.ir import (
    FALSE,
    TRUE,
    Add,
    Expr,
    ExprLike,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Node,
    Range,
    Sub,
    Var,
    as_expr,
    as_int,
    attr,
    ceildiv,
    children,
    const,
    definitions,
    maximum,
    minimum,
    node,
    or_,
    post_order,
    structural_equal,
    substitute,
    uses_var,
)
from tilewright.support.errors import ScheduleError

IndexMapLike = Union["IndexMap", Callable[..., Any], str]


@node
class IndexMap(Node):
    """``final_indices`` as expressions of the variables ``initial_indices``.

    ``inverse_map`` may be given where it can't be derived.
    """

    AXIS_SEPARATOR = "axis_separator"

    initial_indices: tuple[Var, ...] = definitions()
    final_indices: tuple[Expr, ...] = children()
    inverse_map: IndexMap | None = attr(default=None)

    @staticmethod
    def from_func(
        function: Callable[..., Any],
        ndim: int | None = None,
        *,
        inverse_index_map: IndexMapLike | None = None,
    ) -> IndexMap:
        """Make a map from a Python function of index variables.

        ``ndim`` is needed when the function takes ``*args``: how many indices they stand for.

        >>> IndexMap.from_func(lambda i, j: (j, i))
        IndexMap(lambda i, j: (j, i))
        """
        made, separators = IndexMap.from_func_with_separators(
            function, ndim, inverse_index_map=inverse_index_map
        )
        if separators:
            raise ScheduleError(
                "the index map holds IndexMap.AXIS_SEPARATOR: use from_func_with_separators"
            )
        return made

    @staticmethod
    def from_func_with_separators(
        function: Callable[..., Any],
        ndim: int | None = None,
        *,
        inverse_index_map: IndexMapLike | None = None,
    ) -> tuple[IndexMap, list[int]]:
        """Like ``from_func``; ``IndexMap.AXIS_SEPARATOR`` in the result starts a physical axis."""
        variables = _parameter_vars(function, ndim)
        result = function(*variables)
        items = list(result) if isinstance(result, (tuple, list)) else [result]
        final: list[Expr] = []
        separators: list[int] = []
        for item in items:
            if isinstance(item, str) and item == IndexMap.AXIS_SEPARATOR:
                separators.append(len(final))
            else:
                final.append(as_expr(item))
        inverse = None
        if inverse_index_map is not None:
            inverse = as_index_map(inverse_index_map, len(final))
        return IndexMap(tuple(variables), tuple(final), inverse), separators

    @staticmethod
    def from_text(text: str) -> IndexMap:
        """Parse what ``to_text`` gives: a lambda over integers. Nothing is executed."""
        return _parse(text)

    @staticmethod
    def identity(ndim: int) -> IndexMap:
        """The map that changes nothing."""
        variables = tuple(Var(f"i{axis}") for axis in range(ndim))
        return IndexMap(variables, variables)

    def to_text(self) -> str:
        """Return the map as a Python lambda; ``from_text`` reads it back."""
        names = _distinct_names(self.initial_indices)
        inside = ", ".join(_expr_text(expr, names) for expr in self.final_indices)
        if len(self.final_indices) == 1:
            inside += ","
        arguments = ", ".join(names[var] for var in self.initial_indices)
        return f"lambda {arguments}: ({inside})"

    def __repr__(self) -> str:
        return f"IndexMap({self.to_text()})"

    def is_identity(self) -> bool:
        """Whether each index stays what it is."""
        return len(self.initial_indices) == len(self.final_indices) and all(
            a is b for a, b in zip(self.initial_indices, self.final_indices)
        )

    def is_equivalent_to(self, other: IndexMap) -> bool:
        """Whether both maps give the same results, as far as simplification can tell."""
        if len(self.initial_indices) != len(other.initial_indices) or len(
            self.final_indices
        ) != len(other.final_indices):
            return False
        if structural_equal(self, other):
            return True
        theirs = other.map_indices(self.initial_indices)
        analyzer = Analyzer()
        return all(analyzer.can_prove_equal(a, b) for a, b in zip(self.final_indices, theirs))

    # ---- applying ---------------------------------------------------------------------------

    def map_indices(
        self, indices: Sequence[ExprLike], analyzer: Analyzer | None = None
    ) -> tuple[Expr, ...]:
        """Apply the map to indices and simplify; ``analyzer`` may know their bounds."""
        if len(indices) != len(self.initial_indices):
            raise ScheduleError(
                f"the index map takes {len(self.initial_indices)} indices, got {len(indices)}: "
                f"{self.to_text()}"
            )
        mapping = {var: as_expr(index) for var, index in zip(self.initial_indices, indices)}
        mapped: list[Expr] = []
        for expr in self.final_indices:
            if type(expr) is Var:
                mapped.append(mapping.get(expr, expr))
                continue
            analyzer = analyzer or Analyzer()
            mapped.append(analyzer.simplify(substitute(expr, mapping)))
        return tuple(mapped)

    def map_shape(
        self, shape: Sequence[ExprLike], analyzer: Analyzer | None = None
    ) -> tuple[Expr, ...]:
        """Return the least shape that holds the images of all indices inside ``shape``."""
        self._check_ndim(shape)
        domain = self._domain(shape)
        mapped: list[Expr] = []
        for expr in self.final_indices:
            if type(expr) is Var and expr in domain:
                mapped.append(domain[expr].extent)
                continue
            analyzer = analyzer or Analyzer()
            bounds = analyzer.int_set(expr, domain)
            if _is_infinite(bounds.max):
                raise ScheduleError(
                    f"cannot bound the index `{_expr_text(expr, {})}` of {self.to_text()} "
                    f"over the shape {tuple(shape)}"
                )
            mapped.append(analyzer.simplify(bounds.max + 1))
        return tuple(mapped)

    def map_ndarray(self, array: np.ndarray) -> np.ndarray:
        """Return a NumPy array laid out by the map; padding holds zeros."""
        # All extents are constants, as those of the array are.
        shape = [extent.value for extent in map(_as_const, self.map_shape(array.shape))]
        result = np.zeros(shape, dtype=array.dtype)
        # One array of indices per input axis, evaluated through the expressions at once.
        grids = dict(zip(self.initial_indices, np.ogrid[tuple(map(slice, array.shape))]))
        result[tuple(_evaluate(expr, grids) for expr in self.final_indices)] = array
        return result

    def compose(self, first: IndexMap) -> IndexMap:
        """Return the map that applies ``first``, then this one."""
        fresh = {var: Var(var.name, var.dtype) for var in first.initial_indices}
        inner = tuple(substitute(expr, fresh) for expr in first.final_indices)
        return IndexMap(tuple(fresh.values()), self.map_indices(inner, Analyzer()))

    # ---- inverting --------------------------------------------------------------------------

    def inverse(self, shape: Sequence[ExprLike]) -> IndexMap:
        """Return the inverse over ``shape``; ``ScheduleError`` if the map is no bijection."""
        made, predicate = self.non_surjective_inverse(shape)
        if predicate is not FALSE:
            raise ScheduleError(
                f"the index map {self.to_text()} adds padding over the shape {tuple(shape)}: "
                "it has no inverse; non_surjective_inverse gives one with a predicate"
            )
        return made

    def non_surjective_inverse(self, shape: Sequence[ExprLike]) -> tuple[IndexMap, Expr]:
        """Return the inverse and the predicate (of its inputs) that holds in the padding."""
        self._check_ndim(shape)
        variables = tuple(Var(f"axis{axis}") for axis in range(len(self.final_indices)))
        if self.inverse_map is not None:
            given = self.inverse_map.map_indices(variables)
            return IndexMap(variables, given), FALSE
        domain = self._domain(shape)
        padded = {
            var: Range(as_expr(0), _padded_extent(var, dom.extent, self.final_indices))
            for var, dom in domain.items()
        }
        solved = solve_indices(self.final_indices, padded, variables)
        if solved is None:
            raise ScheduleError(
                f"the index map {self.to_text()} is not a bijection over the shape {tuple(shape)} "
                "that can be inverted: it must split, fuse and reorder its indices only"
            )
        predicate: Expr = FALSE
        for var in self.initial_indices:
            if padded[var].extent is not domain[var].extent:
                predicate = or_(predicate, solved[var] >= domain[var].extent)
        inverse = tuple(solved[var] for var in self.initial_indices)
        return IndexMap(variables, inverse), predicate

    def _check_ndim(self, shape: Sequence[Any]) -> None:
        if len(shape) != len(self.initial_indices):
            raise ScheduleError(
                f"the index map takes {len(self.initial_indices)} indices, "
                f"but the shape has {len(shape)} dimensions: {self.to_text()}"
            )

    def _domain(self, shape: Sequence[ExprLike]) -> dict[Var, Range]:
        return {
            var: Range(as_expr(0), as_expr(extent))
            for var, extent in zip(self.initial_indices, shape)
        }


def as_index_map(value: IndexMapLike, ndim: int | None = None) -> IndexMap:
    """Turn a function or a lambda's text into an index map that takes ``ndim`` indices."""
    if isinstance(value, str):
        value = _parse(value, ndim)
    elif not isinstance(value, IndexMap):
        if not callable(value):
            raise ScheduleError(
                f"expected an IndexMap, a function or a lambda's text, got {type(value).__name__}"
            )
        value = IndexMap.from_func(value, ndim)
    if ndim is not None and len(value.initial_indices) != ndim:
        raise ScheduleError(
            f"the index map takes {len(value.initial_indices)} indices, expected {ndim}: "
            f"{value.to_text()}"
        )
    return value


def solve_indices(
    indices: Sequence[Expr],
    domain: Mapping[Var, Range],
    outputs: Sequence[Expr],
    predicate: Expr = TRUE,
) -> dict[Var, Expr] | None:
    """Solve ``indices == outputs`` for the variables of ``domain``; ``None`` if that can't be done.

    The indices must be a bijection of the domain onto a box. Variables whose extent is one need not
    appear. Plain permutations take a short way round the analysis.
    """
    solved: dict[Var, Expr] = {}
    rest: list[Expr] = []
    rest_outputs: list[Expr] = []
    for index, output in zip(indices, outputs):
        if type(index) is Var and index in domain and index not in solved:
            solved[index] = output
        elif as_int(index) is None:
            rest.append(index)
            rest_outputs.append(output)
    for var, dom in domain.items():
        if var not in solved and as_int(dom.extent) == 1:
            solved[var] = dom.min
    if rest and any(uses_var(index, set(solved)) for index in rest):
        # An index seen both plainly and inside another one: leave all of it to the analysis.
        solved = {var: dom.min for var, dom in domain.items() if as_int(dom.extent) == 1}
        rest, rest_outputs = list(indices), list(outputs)
    if rest:
        inner = {var: dom for var, dom in domain.items() if var not in solved}
        fixed = [substitute(index, solved) for index in rest]
        result = detect_iter_map(fixed, inner, predicate, require_bijective=True)
        if result.errors or not result.indices:
            return None
        solved.update(inverse_affine_iter_map(result.indices, rest_outputs))
    return solved if all(var in solved for var in domain) else None


def _padded_extent(var: Var, extent: Expr, indices: Sequence[Expr]) -> Expr:
    """Round ``extent`` up so that the factors by which ``indices`` split ``var`` divide it."""
    factor = 1
    for index in indices:
        for item in post_order(index):
            if isinstance(item, (FloorDiv, FloorMod)):
                divisor = as_int(item.b)
                if divisor is not None and item.a is var:
                    factor = math.lcm(factor, divisor)
    # (i // 4) % 8 splits i by 4 and by 32: walk the chains of divisions of var.
    for index in indices:
        for item in post_order(index):
            if (
                isinstance(item, (FloorDiv, FloorMod))
                and isinstance(item.a, FloorDiv)
                and item.a.a is var
            ):
                inner, outer = as_int(item.a.b), as_int(item.b)
                if inner is not None and outer is not None:
                    factor = math.lcm(factor, inner * outer)
    if factor == 1:
        return extent
    known = as_int(extent)
    if known is not None:
        return extent if known % factor == 0 else const(-(-known // factor) * factor)
    if Analyzer().can_prove_equal(extent % factor, 0):
        return extent
    return ceildiv(extent, factor) * factor


def _as_const(expr: Expr) -> IntImm:
    assert isinstance(expr, IntImm), expr
    return expr


def _is_infinite(bound: Any) -> bool:
    return not isinstance(bound, Expr) or math.isinf(getattr(bound, "value", 0))


def _parameter_vars(function: Callable[..., Any], ndim: int | None) -> list[Var]:
    """Make a variable for each parameter of ``function``, named like it."""
    variables: list[Var] = []
    variadic: str | None = None
    position = 0
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            variadic, position = parameter.name, len(variables)
        elif parameter.kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            variables.append(Var(parameter.name))
        else:
            raise ScheduleError("the function of an index map takes positional parameters only")
    if variadic is not None:
        if ndim is None:
            raise ScheduleError("an index map of a function with *args needs ndim")
        extra = [Var(f"{variadic}_{axis}") for axis in range(ndim - len(variables))]
        variables[position:position] = extra
    return variables


# ---- text -------------------------------------------------------------------------------------

_SYMBOLS: dict[type, tuple[str, int]] = {
    Add: ("+", 1),
    Sub: ("-", 1),
    Mul: ("*", 2),
    FloorDiv: ("//", 2),
    FloorMod: ("%", 2),
}


def _distinct_names(variables: Sequence[Var]) -> dict[Var, str]:
    names: dict[Var, str] = {}
    for position, var in enumerate(variables):
        name = var.name if var.name.isidentifier() else f"i{position}"
        names[var] = name if name not in names.values() else f"{name}_{position}"
    return names


def _expr_text(expr: Expr, names: Mapping[Var, str], level: int = 0) -> str:
    """Render index arithmetic as Python; ``level`` is the binding strength around it."""
    if isinstance(expr, Var):
        return names.get(expr, expr.name)
    if isinstance(expr, IntImm):
        return str(expr.value) if expr.value >= 0 else f"({expr.value})"
    if isinstance(expr, (Min, Max)):
        return (
            f"{'min' if isinstance(expr, Min) else 'max'}"
            f"({_expr_text(expr.a, names)}, {_expr_text(expr.b, names)})"
        )
    found = _SYMBOLS.get(type(expr))
    if found is None:
        raise ScheduleError(f"an index map holds + - * // % min max of integers only, not {expr!r}")
    symbol, strength = found
    text = (
        f"{_expr_text(expr.a, names, strength)} {symbol} "  # type: ignore[attr-defined]
        f"{_expr_text(expr.b, names, strength + 1)}"  # type: ignore[attr-defined]
    )
    return f"({text})" if strength < level else text


_NUMERIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _parse(text: str, ndim: int | None = None) -> IndexMap:
    """Read a lambda's text by its syntax tree, so that text from a stranger is harmless."""

    def fail(reason: str) -> ScheduleError:
        return ScheduleError(f"{text!r} is not an index map: {reason}")

    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise fail(f"syntax error, {error.msg}") from error
    if not isinstance(tree, ast.Lambda):
        raise fail("expected `lambda i, j: (…)`")
    arguments = tree.args
    if arguments.vararg or arguments.kwonlyargs or arguments.kwarg or arguments.defaults:
        raise fail("only plain parameters are allowed")
    variables = {item.arg: Var(item.arg) for item in (*arguments.posonlyargs, *arguments.args)}

    def read(item: ast.expr) -> Any:
        if isinstance(item, ast.Constant) and type(item.value) is int:
            return const(item.value)
        if isinstance(item, ast.Name):
            if item.id not in variables:
                raise fail(f"unknown name {item.id}")
            return variables[item.id]
        if isinstance(item, ast.BinOp) and type(item.op) in _OPERATORS:
            return _OPERATORS[type(item.op)](read(item.left), read(item.right))
        if isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.USub):
            return -read(item.operand)
        if (
            isinstance(item, ast.Call)
            and isinstance(item.func, ast.Name)
            and item.func.id in ("min", "max")
            and len(item.args) == 2
            and not item.keywords
        ):
            make = minimum if item.func.id == "min" else maximum
            return make(read(item.args[0]), read(item.args[1]))
        raise fail(f"`{ast.unparse(item)}` is not index arithmetic")

    body = tree.body.elts if isinstance(tree.body, (ast.Tuple, ast.List)) else [tree.body]
    return IndexMap(tuple(variables.values()), tuple(read(item) for item in body))


def _evaluate(expr: Expr, values: Mapping[Any, Any]) -> Any:
    """Evaluate index arithmetic on NumPy arrays."""
    if isinstance(expr, Var):
        return values[expr]
    if isinstance(expr, IntImm):
        return expr.value
    a, b = _evaluate(expr.a, values), _evaluate(expr.b, values)  # type: ignore[attr-defined]
    if isinstance(expr, Min):
        return np.minimum(a, b)
    if isinstance(expr, Max):
        return np.maximum(a, b)
    symbol, _ = _SYMBOLS[type(expr)]
    return _NUMERIC[symbol](a, b)


__all__ = ["IndexMap", "IndexMapLike", "as_index_map", "solve_indices"]
