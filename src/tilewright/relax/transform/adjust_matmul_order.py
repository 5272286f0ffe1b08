"""``AdjustMatmulOrder``: of ``(a b) c`` and ``a (b c)`` the one that takes less work."""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir import Expr, IRModule, as_expr, free_vars
from tilewright.relax import ops
from tilewright.relax.dpl.rewriting import ReplacingRewriter
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo

UPPER_BOUNDS = "tir_var_upper_bound"
"""Attribute of graph functions: the greatest values of symbolic extents, by name."""


class AdjustMatmulOrder(GraphPass):
    """Reorder products of three matrices where the other order surely takes less work.

    The product that moves must have no other user. Sums of floats are rounded in another order.
    With symbolic extents the order changes only if that is better for any size from 1, up to the
    bounds in the function's attribute ``tir_var_upper_bound``, a dict by name.

    Before, for ``x`` of (n, 64), ``a`` of (64, 4) and ``b`` of (4, 64):
        lv = R.matmul(a, b)
        gv = R.matmul(x, lv)
    After:
        lv = R.matmul(x, a)
        gv = R.matmul(lv, b)
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Reorderer(mod)


class _Reorderer(ReplacingRewriter):
    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        outer = _plain_product(value)
        if outer is None:
            return value
        best, work = value, None
        for position, reorder in enumerate((_to_the_right, _to_the_left)):
            inner = self.inner(outer.args[position])
            if inner is None or not _is_associative(inner, outer.args[1 - position]):
                continue
            made = reorder(outer, inner)
            if made is None:
                continue
            least = _work(inner) + _work(outer) if work is None else work
            found = sum(map(_work, made), as_expr(0))
            if self.is_less(found, least):
                best, work = made[-1], found
        return best

    def is_less(self, a: Expr, b: Expr) -> bool:
        assert self.function is not None
        bounds = self.function.attrs.get(UPPER_BOUNDS, {})
        analyzer = Analyzer()
        for var in {*free_vars(a), *free_vars(b)}:
            analyzer.bind_positive(var, bounds.get(var.name))
        return analyzer.can_prove_lt(a, b)

    def inner(self, operand: RelaxExpr) -> RelaxCall | None:
        """The product that made an operand, if nothing else uses that."""
        return _plain_product(self.value_used_once(operand))


def _plain_product(value: RelaxExpr | None) -> RelaxCall | None:
    """A product whose operands and result have one dtype and known shapes."""
    if not is_call_to(value, "matmul"):
        return None
    assert isinstance(value, RelaxCall)
    infos = [value.struct_info, *(arg.struct_info for arg in value.args)]
    if not all(isinstance(info, TensorStructInfo) and info.has_shape for info in infos):
        return None
    return value if len({info.dtype for info in infos}) == 1 else None  # type: ignore[attr-defined]


def _is_associative(inner: RelaxCall, other: RelaxExpr) -> bool:
    """Whether no vector is taken for a matrix, or the other way round, in the other order."""
    ranks = [arg.ndim for arg in inner.args]
    return min(ranks) >= 2 and (other.ndim >= 2 or ranks == [2, 2])


def _to_the_right(outer: RelaxCall, inner: RelaxCall) -> tuple[RelaxCall, RelaxCall] | None:
    """Make ``a (b c)`` of ``(a b) c``: both products."""
    (a, b), c = inner.args, outer.args[1]
    swapped = inner.attrs["transpose_b"], outer.attrs["transpose_b"]
    if not swapped[0]:
        first = _matmul(b, c, swapped[1])
        return first, _matmul(a, first, False)
    if swapped[1]:  # the transposed product of both: (b' c')' is c b
        first = _matmul(c, b, False)
        return first, _matmul(a, first, True)
    return None


def _to_the_left(outer: RelaxCall, inner: RelaxCall) -> tuple[RelaxCall, RelaxCall] | None:
    """Make ``(a b) c`` of ``a (b c)``: both products."""
    a, (b, c) = outer.args[0], inner.args
    if outer.attrs["transpose_b"]:  # a (b c)' is (a c') b'
        first = _matmul(a, c, not inner.attrs["transpose_b"])
        return first, _matmul(first, b, True)
    first = _matmul(a, b, False)
    return first, _matmul(first, c, inner.attrs["transpose_b"])


def _matmul(a: RelaxExpr, b: RelaxExpr, transpose_b: bool) -> RelaxCall:
    made: RelaxCall = ops.matmul(a, b, transpose_b=transpose_b)
    return made


def _work(product: RelaxCall) -> Expr:
    """The number of multiplications."""
    total = product.args[0].shape[-1]
    for extent in product.shape:
        total = total * extent
    return total
