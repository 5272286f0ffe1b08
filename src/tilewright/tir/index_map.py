"""``IndexMap``: a function from indices to indices, as layouts and iteration spaces are changed by.

``IndexMap.from_func(lambda i, j: (i // 16, j, i % 16))`` maps a row-major matrix to one that is
tiled by 16 rows. Schedules use index maps in ``transform_layout`` and ``transform_block_layout``;
inlining uses :func:`solve_indices` to turn accesses round.

How inversion works: a map made of ``+ * // %`` splits and fuses its inputs; the iteration-map
analysis of ``arith`` says how, and reads off the inverse. If an input is split by a factor that
doesn't divide its extent, the extent is first rounded up. Points of the mapped shape that no
input gives are the *padding*: those whose inverse lies outside of the domain, or is mapped
elsewhere. The predicate that tells them from the rest is built from just that.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from tilewright.arith import Analyzer, detect_iter_map, evaluate, inverse_affine_iter_map
from tilewright.ir import (
    FALSE,
    INDEX,
    TRUE,
    Expr,
    ExprLike,
    IntImm,
    Node,
    Range,
    Var,
    as_expr,
    as_int,
    attr,
    children,
    const,
    definitions,
    free_vars,
    maximum,
    node,
    or_,
    product,
    structural_equal,
    substitute,
)
from tilewright.support.errors import ScheduleError, TilewrightError
from tilewright.tir.index_map_solve import padded_extent, solve_indices
from tilewright.tir.index_map_text import AXIS_SEPARATOR, expr_text, map_text, parse_map
from tilewright.tir.rewrite import renew_definitions

IndexMapLike = Union["IndexMap", Callable[..., Any], str, Mapping[str, str]]

_ENUMERATED = 1 << 16
"""Maps over at most so many points may be checked by trying them all."""


@node
class IndexMap(Node):
    """``final_indices`` as expressions of the variables ``initial_indices``.

    ``inverse_map`` may be given where it can't be derived. ``axis_separators`` are the positions
    in the result before which a new physical axis starts.
    """

    AXIS_SEPARATOR = AXIS_SEPARATOR

    own_scope = True

    initial_indices: tuple[Var, ...] = definitions()
    final_indices: tuple[Expr, ...] = children()
    inverse_map: IndexMap | None = attr(default=None, alias="inverse_index_map")
    axis_separators: tuple[int, ...] = attr(default=())

    def __post_init__(self) -> None:
        if not all(isinstance(item, Expr) for item in self.final_indices):
            object.__setattr__(self, "final_indices", tuple(map(_index, self.final_indices)))

    @property
    def inverse_index_map(self) -> IndexMap | None:
        """The given inverse, as TVM calls it."""
        return self.inverse_map

    @staticmethod
    def from_func(
        mapping_function: Callable[..., object],
        ndim: int | None = None,
        inverse_index_map: IndexMapLike | None = None,
        *,
        index_dtype: str = INDEX,
    ) -> IndexMap:
        """Make a map from a Python function of index variables.

        ``ndim`` is needed when the function takes ``*args``: how many indices they stand for.
        ``AXIS_SEPARATOR`` among the results starts a physical axis. ``index_dtype`` is that of the
        variables.

        >>> IndexMap.from_func(lambda i, j: (j, i))
        IndexMap(lambda i, j: (j, i))
        """
        variables = _parameter_vars(mapping_function, ndim, index_dtype)
        result = mapping_function(*variables)
        items = list(result) if isinstance(result, (tuple, list)) else [result]
        final: list[Expr] = []
        separators: list[int] = []
        for item in items:
            if isinstance(item, str) and item == AXIS_SEPARATOR:
                separators.append(len(final))
            else:
                final.append(_index(item))
        inverse = None
        if inverse_index_map is not None:
            inverse = as_index_map(inverse_index_map, len(final), index_dtype=index_dtype)
        return IndexMap(tuple(variables), tuple(final), inverse, tuple(separators))

    @staticmethod
    def from_func_with_separators(
        mapping_function: Callable[..., object],
        ndim: int | None = None,
        inverse_index_map: IndexMapLike | None = None,
        *,
        index_dtype: str = INDEX,
    ) -> tuple[IndexMap, list[int]]:
        """Like ``from_func``, with the axis separators beside the map instead of in it."""
        made = IndexMap.from_func(
            mapping_function, ndim, inverse_index_map, index_dtype=index_dtype
        )
        return made.replace(axis_separators=()), list(made.axis_separators)

    @staticmethod
    def from_text(text: str, symbols: Mapping[str, Var] | None = None) -> IndexMap:
        """Parse what ``to_text`` gives: a lambda over integers. Nothing is executed.

        ``symbols`` are the symbolic extents that the text may name.
        """
        variables, final, separators = parse_map(text, symbols)
        return IndexMap(variables, final, None, separators)

    @staticmethod
    def from_json(data: object, symbols: Mapping[str, Var] | None = None) -> IndexMap:
        """Rebuild what ``to_json`` gives.

        Raises ``ScheduleError`` for anything else.
        """
        if isinstance(data, str):
            return IndexMap.from_text(data, symbols)
        if not isinstance(data, Mapping) or set(data) != {"map", "inverse"}:
            raise ScheduleError(f"{data!r} is not an index map")
        made = IndexMap.from_text(data["map"], symbols)
        inverse = IndexMap.from_text(data["inverse"], symbols)
        if len(inverse.initial_indices) != len(made.final_indices):
            raise ScheduleError(f"{data!r}: the inverse takes another number of indices")
        return made.with_inverse(inverse)

    @staticmethod
    def identity(ndim: int) -> IndexMap:
        """The map that changes nothing."""
        variables = tuple(Var(f"i{axis}") for axis in range(ndim))
        return IndexMap(variables, variables)

    def to_text(self) -> str:
        """Return the map as a Python lambda; ``from_text`` reads it back."""
        return map_text(self.initial_indices, self.final_indices, self.axis_separators)

    def to_json(self) -> str | dict[str, str]:
        """Return JSON data: the text, or a dict of two texts if an inverse was given."""
        if self.inverse_map is None:
            return self.to_text()
        return {"map": self.to_text(), "inverse": self.inverse_map.to_text()}

    def __repr__(self) -> str:
        return f"IndexMap({self.to_text()})"

    def is_identity(self) -> bool:
        """Whether each index stays what it is."""
        return len(self.initial_indices) == len(self.final_indices) and all(
            a is b for a, b in zip(self.initial_indices, self.final_indices)
        )

    def is_equivalent_to(self, other_map: IndexMap, analyzer: Analyzer | None = None) -> bool:
        """Whether both maps give the same results, as far as simplification can tell.

        An ``analyzer`` knows more, of sizes that the maps name.
        """
        other = other_map
        if (
            len(self.initial_indices) != len(other.initial_indices)
            or len(self.final_indices) != len(other.final_indices)
            or self.axis_separators != other.axis_separators
        ):
            return False
        if structural_equal(self, other, map_free_vars=True):
            return True
        theirs = other.map_indices(self.initial_indices)
        known = analyzer or Analyzer()
        return all(known.can_prove_equal(a, b) for a, b in zip(self.final_indices, theirs))

    def with_inverse(self, inverse: IndexMapLike) -> IndexMap:
        """Return the same map with a known inverse.

        Raises ``ScheduleError`` if the numbers of indices differ.
        """
        made = as_index_map(inverse, len(self.final_indices))
        if len(made.final_indices) != len(self.initial_indices):
            raise ScheduleError(
                f"{made.to_text()} gives {len(made.final_indices)} indices, but {self.to_text()} "
                f"takes {len(self.initial_indices)}: it is no inverse"
            )
        return self.replace(inverse_map=made)

    def rename_variables(self, rename: Callable[[Var], str | None]) -> IndexMap:
        """Return the same map with other names of its variables (``None`` keeps a name)."""
        fresh = tuple(Var(rename(var) or var.name, var.dtype) for var in self.initial_indices)
        mapping = dict(zip(self.initial_indices, fresh))
        final = tuple(substitute(expr, mapping) for expr in self.final_indices)
        return self.replace(initial_indices=fresh, final_indices=final)

    # ---- applying ---------------------------------------------------------------------------

    def map_indices(
        self, indices: Sequence[ExprLike], analyzer: Analyzer | None = None
    ) -> tuple[Expr, ...]:
        """Apply the map to indices and simplify; ``analyzer`` may know their bounds.

        Raises ``ScheduleError`` for another number of indices.
        """
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
        # What an index names is defined once, however often the index is used.
        return tuple(map(renew_definitions, mapped))

    def map_ranges(
        self, ranges: Sequence[Range], analyzer: Analyzer | None = None
    ) -> tuple[Range, ...]:
        """Return the least box that holds the images of all indices inside ``ranges``.

        Raises ``ScheduleError`` if an index has no bounds.
        """
        self._check_ndim(ranges)
        domain = dict(zip(self.initial_indices, ranges))
        known = analyzer or self._analyzer([e for r in ranges for e in (r.min, r.extent)])
        mapped: list[Range] = []
        for expr in self.final_indices:
            if type(expr) is Var and expr in domain:
                mapped.append(domain[expr])
                continue
            bounds = known.int_set(expr, domain)
            if _is_infinite(bounds.max) or _is_infinite(bounds.min):
                raise ScheduleError(
                    f"cannot bound the index `{expr_text(expr, {})}` of {self.to_text()} "
                    f"over the ranges {tuple(ranges)}"
                )
            low, high = as_int(bounds.min), as_int(bounds.max)
            if low is not None and high is not None:
                mapped.append(Range.from_min_extent(const(low), const(high - low + 1)))
                continue
            extent = known.simplify(bounds.max - bounds.min + 1)
            mapped.append(Range.from_min_extent(known.simplify(bounds.min), extent))
        return tuple(mapped)

    def map_shape(
        self, shape: Sequence[ExprLike], analyzer: Analyzer | None = None
    ) -> tuple[Expr, ...]:
        """Return the least shape that holds the images of all indices inside ``shape``.

        Raises ``ScheduleError`` if an index has no bounds, or may be negative.
        """
        self._check_ndim(shape)
        empty = {var for var, e in zip(self.initial_indices, shape) if as_int(as_expr(e)) == 0}
        if empty:
            # There is nothing to hold along axes that are made of empty ones.
            one = [const(1) if var in empty else e for var, e in zip(self.initial_indices, shape)]
            return tuple(
                const(0) if empty.intersection(free_vars(expr)) else extent
                for expr, extent in zip(self.final_indices, self.map_shape(one, analyzer))
            )
        if all(type(expr) is Var for expr in self.final_indices):
            sizes = dict(zip(self.initial_indices, map(as_expr, shape)))
            if all(expr in sizes for expr in self.final_indices):
                return tuple(sizes[expr] for expr in self.final_indices)  # type: ignore[index]
        shape_exprs = [as_expr(extent) for extent in shape]
        known = analyzer or self._analyzer(shape_exprs)
        ranges = self.map_ranges(
            [Range.from_min_extent(const(0), extent) for extent in shape_exprs], known
        )
        for expr, item in zip(self.final_indices, ranges):
            start = as_int(item.min)
            if start is None and known.can_prove_ge(item.min, 0):
                continue
            if start is None or start < 0:
                raise ScheduleError(
                    f"the index `{expr_text(expr, {})}` of {self.to_text()} may be negative over "
                    f"the shape {tuple(shape)}: a buffer's indices start at zero"
                )
        extents = (
            item.extent
            if as_int(item.min) == 0 or type(expr) is Var
            else known.simplify(item.min + item.extent)
            for expr, item in zip(self.final_indices, ranges)
        )
        least = self._analyzer(shape_exprs, 0)
        return tuple(
            extent if type(expr) is Var else _not_negative(extent, least)
            for expr, extent in zip(self.final_indices, extents)
        )

    def map_ndarray(self, array: np.ndarray) -> np.ndarray:
        """Return a NumPy array laid out by the map; padding holds zeros."""
        # All extents are constants, as those of the array are.
        shape = [extent.value for extent in map(_as_const, self.map_shape(array.shape))]
        result = np.zeros(shape, dtype=array.dtype)
        # One array of indices per input axis, evaluated through the expressions at once.
        grids = dict(zip(self.initial_indices, np.ogrid[tuple(map(slice, array.shape))]))
        result[tuple(evaluate(expr, grids) for expr in self.final_indices)] = array
        return result

    def compose(self, first: IndexMap) -> IndexMap:
        """Return the map that applies ``first``, then this one."""
        fresh = {var: Var(var.name, var.dtype) for var in first.initial_indices}
        inner = tuple(substitute(expr, fresh) for expr in first.final_indices)
        final = self.map_indices(inner, Analyzer())
        return IndexMap(tuple(fresh.values()), final, None, self.axis_separators)

    # ---- inverting --------------------------------------------------------------------------

    def inverse(self, shape: Sequence[ExprLike], analyzer: Analyzer | None = None) -> IndexMap:
        """Return the inverse over ``shape``; ``ScheduleError`` if the map is no bijection.

        Results may begin at other numbers than 0: ``i + 4`` has the inverse ``i - 4``.
        """
        made, predicate = self.non_surjective_inverse(shape, analyzer)
        from_zero = None if predicate is FALSE else self._from_zero(shape)
        if from_zero is not None and from_zero.non_surjective_inverse(shape, analyzer)[1] is FALSE:
            return made
        return self._without_padding(made, predicate, shape)

    def layout_inverse(self, shape: Sequence[ExprLike]) -> IndexMap:
        """Return the inverse of a layout; ``ScheduleError`` if it has elements that hold none."""
        return self._without_padding(*self.non_surjective_inverse(shape), shape)

    def _without_padding(
        self, made: IndexMap, predicate: Expr, shape: Sequence[ExprLike]
    ) -> IndexMap:
        if predicate is not FALSE:
            raise ScheduleError(
                f"the index map {self.to_text()} adds padding over the shape {tuple(shape)}: "
                "it has no inverse; non_surjective_inverse gives one with a predicate"
            )
        return made

    def non_surjective_inverse(
        self,
        shape: Sequence[ExprLike],
        analyzer: Analyzer | None = None,
        *,
        mapped_shape: Sequence[Expr] | None = None,
    ) -> tuple[IndexMap, Expr]:
        """Return the inverse and the predicate (of its inputs) that holds in the padding.

        ``mapped_shape`` is what ``map_shape`` gives, for who has it already.

        Raises ``ScheduleError`` if the map doesn't tell all indices apart.
        """
        self._check_ndim(shape)
        domain = self._domain(shape)
        known = analyzer or self._analyzer([item.extent for item in domain.values()])
        variables = tuple(Var(f"axis{axis}") for axis in range(len(self.final_indices)))
        solved = self._solved(domain, variables, known)
        if solved is None:
            raise ScheduleError(
                f"the index map {self.to_text()} is not a bijection over the shape {tuple(shape)} "
                "that can be inverted: it must split, fuse and reorder its indices only"
            )
        inverse = IndexMap(variables, tuple(solved[var] for var in self.initial_indices))
        if self._is_permutation():
            return inverse, FALSE
        mapped = mapped_shape or self.map_shape(shape, known)
        return inverse, self._padding(domain, inverse, mapped, known)

    def _from_zero(self, shape: Sequence[ExprLike]) -> IndexMap | None:
        """The map with results that begin at 0; ``None`` if they do, or where isn't known."""
        known = Analyzer()
        known.bind_ranges(self._domain(shape))
        least = [known.const_int_bound(item).min_value for item in self.final_indices]
        if not any(least) or not all(isinstance(low, int) for low in least):
            return None
        results = (known.simplify(item - low) for item, low in zip(self.final_indices, least))
        return IndexMap(self.initial_indices, tuple(results))

    def _is_permutation(self) -> bool:
        return len(self.final_indices) == len(self.initial_indices) and set(
            self.final_indices
        ) == set(self.initial_indices)

    def _solved(
        self, domain: Mapping[Var, Range], variables: Sequence[Var], known: Analyzer
    ) -> Mapping[Var, Expr] | None:
        """Solve for the inputs; ``None`` unless the solution surely undoes the map."""
        if self.inverse_map is not None:
            given = self.inverse_map.map_indices(variables)
            solved: Mapping[Var, Expr] = dict(zip(self.initial_indices, given))
            return solved if self._undoes(solved, variables, domain, known) else None
        padded = {
            var: Range.from_min_extent(
                const(0), padded_extent(var, dom.extent, self.final_indices, known)
            )
            for var, dom in domain.items()
        }
        found = solve_indices(self.final_indices, padded, variables, analyzer=known)
        if found is not None:
            return found
        # Fused indices that are split again, and maps with holes.
        result = detect_iter_map(self.final_indices, domain, TRUE, analyzer=known)
        if result.errors or not result.indices:
            return None
        solved = {var: dom.min for var, dom in domain.items() if as_int(dom.extent) == 1}
        solved = {**solved, **inverse_affine_iter_map(result.indices, variables)}
        if any(var not in solved for var in domain):
            return None
        return solved if self._undoes(solved, variables, domain, known) else None

    def _undoes(
        self,
        solved: Mapping[Var, Expr],
        variables: Sequence[Var],
        domain: Mapping[Var, Range],
        known: Analyzer,
    ) -> bool:
        """Whether ``solved`` at the map's results gives back each index of the domain."""
        inside = known.copy()
        inside.bind_ranges(domain)
        results = dict(zip(variables, self.final_indices))
        if all(inside.can_prove_equal(substitute(e, results), v) for v, e in solved.items()):
            return True
        sizes = [as_int(dom.extent) for dom in domain.values()]
        constant = [size for size in sizes if size is not None]
        if len(constant) < len(sizes) or math.prod(constant) > _ENUMERATED:
            return False
        grids = dict(zip(domain, np.ogrid[tuple(map(slice, constant))]))
        if any(set(free_vars(expr)) - set(domain) for expr in self.final_indices):
            return False
        values = {var: evaluate(expr, grids) for var, expr in zip(variables, self.final_indices)}
        return all(bool(np.all(evaluate(solved[v], values) == grids[v])) for v in domain)

    def _padding(
        self,
        domain: Mapping[Var, Range],
        inverse: IndexMap,
        shape: Sequence[Expr],
        known: Analyzer,
    ) -> Expr:
        """Points of the mapped shape whose inverse is outside of the domain or mapped elsewhere."""
        variables = inverse.initial_indices
        if known.can_prove_equal(product(shape), product(dom.extent for dom in domain.values())):
            return FALSE  # no two inputs share a point, so every point has its input
        inside = known.copy()
        inside.bind_ranges(
            dict(zip(variables, (Range.from_min_extent(const(0), extent) for extent in shape)))
        )
        padding: Expr = FALSE
        solved = dict(zip(self.initial_indices, inverse.final_indices))
        for var, dom in domain.items():
            value = solved[var]
            if not inside.can_prove_ge(value, 0):
                padding = or_(padding, value < 0)
            if not inside.can_prove_lt(value, dom.extent):
                padding = or_(padding, value >= dom.extent)
        # What follows matters only where the inverse is inside of the domain.
        for var, expr in zip(variables, self.final_indices):
            again = substitute(expr, solved)
            if type(expr) is not Var and not inside.can_prove_equal(again, var):
                padding = or_(padding, (inside.simplify(again) < var) | (again > var))
        return padding

    def _check_ndim(self, shape: Sequence[object]) -> None:
        if len(shape) != len(self.initial_indices):
            raise ScheduleError(
                f"the index map takes {len(self.initial_indices)} indices, "
                f"but the shape has {len(shape)} dimensions: {self.to_text()}"
            )

    def _domain(self, shape: Sequence[ExprLike]) -> dict[Var, Range]:
        return {
            var: Range.from_min_extent(as_expr(0), as_expr(extent))
            for var, extent in zip(self.initial_indices, shape)
        }

    def _analyzer(self, sizes: Sequence[Expr], least: int = 1) -> Analyzer:
        """An analyzer that takes symbolic extents to be positive, or ``least`` at least."""
        made = Analyzer()
        own = set(self.initial_indices)
        for expr in (*sizes, *self.final_indices):
            for var in free_vars(expr):
                if var not in own:
                    made.limit(var, least)
        return made


def _not_negative(extent: Expr, sizes: Analyzer) -> Expr:
    """Return an extent, or zero where an axis that is empty for some sizes would make it less."""
    return extent if sizes.can_prove_ge(extent, 0) else maximum(extent, 0)


def _index(item: object) -> Expr:
    try:
        return as_expr(item)
    except TilewrightError as error:
        raise ScheduleError(f"an index map gives expressions: {error.message}") from None


def as_index_map(
    value: IndexMapLike,
    ndim: int | None = None,
    symbols: Mapping[str, Var] | None = None,
    *,
    index_dtype: str = INDEX,
) -> IndexMap:
    """Turn a function, a lambda's text or ``to_json``'s data into a map of ``ndim`` indices.

    ``symbols`` are the symbolic extents that a text may name.

    Raises ``ScheduleError`` for anything else, and for another number of indices.
    """
    if isinstance(value, (str, Mapping)):
        value = IndexMap.from_json(value, symbols)
    elif not isinstance(value, IndexMap):
        if not callable(value):
            raise ScheduleError(
                f"expected an IndexMap, a function or a lambda's text, got {type(value).__name__}"
            )
        value = IndexMap.from_func(value, ndim, index_dtype=index_dtype)
    if ndim is not None and len(value.initial_indices) != ndim:
        raise ScheduleError(
            f"the index map takes {len(value.initial_indices)} indices, expected {ndim}: "
            f"{value.to_text()}"
        )
    return value


def _as_const(expr: Expr) -> IntImm:
    assert isinstance(expr, IntImm), expr
    return expr


def _is_infinite(bound: Expr) -> bool:
    return not isinstance(bound, Expr) or math.isinf(getattr(bound, "value", 0))


def _parameter_vars(function: Callable[..., object], ndim: int | None, dtype: str) -> list[Var]:
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
            variables.append(Var(parameter.name, dtype))
        else:
            raise ScheduleError("the function of an index map takes positional parameters only")
    if variadic is not None:
        if ndim is None:
            raise ScheduleError("an index map of a function with *args needs ndim")
        extra = [Var(f"{variadic}_{axis}", dtype) for axis in range(ndim - len(variables))]
        variables[position:position] = extra
    return variables


__all__ = ["AXIS_SEPARATOR", "IndexMap", "IndexMapLike", "as_index_map", "solve_indices"]
