"""``ReorderTakeAfterMatmul``: a product with chosen weights is chosen of products with all weights.

Several small adapters (LoRA) are kept in one tensor, and each request chooses one: choosing rows of
results is cheaper than copying weights.
"""

from __future__ import annotations

from tilewright.ir import IRModule
from tilewright.relax import ops
from tilewright.relax.dpl.rewriting import ReplacingRewriter
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo


class ReorderTakeAfterMatmul(GraphPass):
    """Rewrite ``matmul(x, take(weights, indices))`` to choose from ``matmul(x, weights)``.

    Either columns of a matrix are chosen, or for each batch of ``x`` ``[batch, rows, k]`` one of
    the matrices ``[table, k, n]``.

    Before:
        lv = R.take(weights, indices, axis=1)
        gv = R.matmul(x, lv)
    After:
        lv = R.matmul(x, weights)
        gv = R.take(lv, indices, axis=1)
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Reorderer(mod)


class _Reorderer(ReplacingRewriter):
    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not is_call_to(value, "matmul"):
            return value
        assert isinstance(value, RelaxCall)
        x, weight = value.args
        chosen = self.values.get(weight) if isinstance(weight, RelaxVar) else None
        if not is_call_to(chosen, "take") or value.attrs["transpose_b"]:
            return value
        assert isinstance(chosen, RelaxCall)
        table, indices = chosen.args
        if _ndim(indices) != 1 or chosen.attrs["axis"] is None:
            return value
        axis = chosen.attrs["axis"] % table.ndim
        if table.ndim == 2 and axis == 1:
            product = value.replace(args=(x, table))
            made: RelaxExpr = ops.take(product, indices, product.ndim - 1, chosen.attrs["mode"])
            return made
        if table.ndim == 3 and axis == 0 and _ndim(x) == 3 and chosen.attrs["mode"] != "wrap":
            return self.choose_batches(value, table, indices)
        return value

    def choose_batches(self, product: RelaxCall, table: RelaxExpr, indices: RelaxExpr) -> RelaxExpr:
        """Multiply each batch by all matrices as one, then choose."""
        x = product.args[0]
        count, depth, columns = table.shape
        wide = ops.reshape(ops.permute_dims(table, (1, 0, 2)), (depth, count * columns))
        every = product.replace(args=(x, wide))
        batch, rows = every.shape[:2]
        by_matrix = ops.permute_dims(
            ops.reshape(every, (batch, rows, count, columns)), (0, 2, 1, 3)
        )
        made: RelaxExpr = ops.gather_nd(by_matrix, ops.expand_dims(indices, 1), batch_dims=1)
        return made


def _ndim(value: RelaxExpr) -> int:
    info = value.struct_info
    return info.ndim if isinstance(info, TensorStructInfo) and info.has_shape else -1
