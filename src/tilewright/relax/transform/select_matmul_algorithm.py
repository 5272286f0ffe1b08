"""``SelectMatmulAlgorithm``: chooses the algorithms of products with constant matrices.

A product of many rows by a large constant matrix may be computed by Strassen's algorithm, with an
eighth fewer multiplications but larger weights and a larger rounding error
(``topi.nn.matmul_strassen``). The pass takes it where it is estimated to be faster, sums and memory
traffic included, and transforms the weights. Runs before ``LegalizeOps``; all other products are
direct.

The user chooses the accuracy: ``max_error`` (or the pass option ``relax.matmul_max_error``) bounds
the error of each result relative to the norms of its row and its column, against exact arithmetic.
The default of 1e-5 is the convolutions' (``SelectConvAlgorithm``) and admits the algorithm; 0
keeps all products direct. Half of the rows are added to the other half, and so are columns and
channels. Powers of two bring their norms to one size first, so a small row next to a very large
one, as a language model's tokens have it, keeps the digits that it has in a direct product. A row
that has an infinity or a NaN has NaN for all its results, where direct products may have
infinities, and no other row has; rows of zeros have zeros. The matrix must be finite.
docs/results.md has a table of errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright import topi
from tilewright.ir import IRModule, as_int, pass_option
from tilewright.relax.expr import Constant, ConstantData, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.target import Target

#: Error of Strassen's algorithm in float32, relative to the norms of a result's row and column:
#: what hostile numbers show at depths up to 4096 (6.2e-6), with a margin.
STRASSEN_ERROR = 8e-6
MAX_ERROR = pass_option(
    "relax.matmul_max_error",
    float,
    1e-5,
    "Error that a faster algorithm may add to a result of a product by a constant matrix, relative "
    "to the norms of its row and its column. Strassen's (8e-6) takes 1.75 times the matrix's "
    "memory, and the results of a row with an infinity are NaN; with 0, all products are direct.",
)
# Rows of the last axis of rows from which these are added to one another, not to other sequences'.
_OWN_ROWS = 16
# Vectors side by side in tiles of the products: with one, they would be slow.
_VECTORS = range(2, 7)
# Loads, operations and stores of vectors for four quarters of the data (first for the norms of
# their rows, then scaled), and of the result.
_SUM_STEPS, _RESULT_STEPS = 25, 25


class SelectMatmulAlgorithm(GraphPass):
    """Replace products by Strassen's algorithm where that is faster and accurate enough."""

    def __init__(
        self, target: Target | None = None, *, max_error: float = MAX_ERROR.default
    ) -> None:
        self.target = target
        self.max_error = max_error

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        target = self.target or Target.current() or Target("native")
        allowed = MAX_ERROR.value(self.max_error) >= STRASSEN_ERROR
        return _AlgorithmSelector(mod, target, allowed and target.device_kind == "cpu")


class _AlgorithmSelector(FunctionRewriter):
    def __init__(self, mod: IRModule, target: Target, allowed: bool) -> None:
        super().__init__(mod)
        self.target = target
        self.allowed = allowed
        self.transformed: dict[tuple[ConstantData, bool], Sequence[Constant] | None] = {}

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not self.allowed or not isinstance(value, RelaxCall) or not is_call_to(value, "matmul"):
            return value
        data, weight = value.args
        axis = strassen_axis(value, self.target)
        if axis is None or not isinstance(weight, Constant):
            return value
        made = self.transform(weight.value, bool(value.attrs["transpose_b"]))
        if made is None:
            return value
        return self.builder.call_te(
            topi.nn.matmul_strassen,
            data,
            *made,
            axis,
            primfunc_name_hint="matmul_strassen",
            primfunc_key="matmul_strassen",
        )

    def transform(self, source: ConstantData, turned: bool) -> Sequence[Constant] | None:
        """Return transformed weights and their scales; each constant is transformed once.

        ``None`` if a number isn't finite: its column would be no other's concern.
        """
        key = source, turned
        if key not in self.transformed:
            self.transformed[key] = _transformed(source, turned)
        return self.transformed[key]


def _transformed(source: ConstantData, turned: bool) -> Sequence[Constant] | None:
    def matrix() -> NDArray[Any]:
        made = source.compute()
        return made.T if turned else made

    weight = matrix()
    if not np.isfinite(weight).all():
        return None
    depths, widths = topi.nn.strassen_scales(weight)
    shape = topi.nn.STRASSEN_PRODUCTS, *(extent // 2 for extent in weight.shape)
    sums = ConstantData.later(
        shape, source.dtype, lambda: topi.nn.strassen_weight(matrix(), depths, widths), [source]
    )
    return [Constant(sums), *(Constant(ConstantData(scales)) for scales in (depths, widths))]


def strassen_axis(call: RelaxCall, target: Target) -> int | None:
    """Return the axis of rows to cut in halves; ``None`` if a direct product is as fast.

    That is the last one, if it is long enough: then rows of different sequences aren't added.
    """
    infos = [item.struct_info for item in (*call.args, call)]
    data, weight, made = (item if isinstance(item, TensorStructInfo) else None for item in infos)
    if data is None or weight is None or made is None:
        return None
    if not data.has_shape or {data.dtype, weight.dtype, made.dtype} != {"float32"}:
        return None
    shape, matrix = [[as_int(extent) for extent in info.shape] for info in (data, made)]
    if len(shape) < 2 or weight.ndim != 2 or not all(shape) or not all(matrix):
        return None
    *rows, depth = [extent or 0 for extent in shape]
    width, last = matrix[-1] or 0, len(rows) - 1
    axis = last if rows[last] >= _OWN_ROWS else rows.index(max(rows))
    lanes, costs = target.vector_lanes(32), target.costs
    wide = any(width % (2 * vectors * lanes) == 0 for vectors in _VECTORS)
    if depth % 2 or not wide or max(rows) < 2:
        return None
    count = math.prod(rows)
    half = count // rows[axis] * -(-rows[axis] // 2)
    rate, bandwidth = costs.multiply_adds * lanes, costs.weights_bandwidth
    direct = max(count * depth * width / rate, 4 * depth * width / bandwidth)
    parts = topi.nn.STRASSEN_PRODUCTS * depth * width / 4
    cycles = max(half * parts / rate, 4 * parts / bandwidth)
    cycles += half * (_SUM_STEPS * depth + _RESULT_STEPS * width) / (2 * lanes)
    return axis if cycles * costs.strassen_gain < direct else None
