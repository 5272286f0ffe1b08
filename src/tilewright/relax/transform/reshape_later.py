"""``ReshapeLater``: what follows a product element by element is computed in the product's shape.

    reshape(gelu(reshape(x @ w + b)))  ->  gelu(x @ w + b)

So it is an epilogue of the product, where PyTorch's linear layers multiply matrices and give the
result the shape of the layer's input. Shapes that differ only by axes of one element are left as
they are: fusion sees through them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Expr, IRModule, as_int
from tilewright.relax.expr import DataflowVar, Function, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.ops import reshape
from tilewright.relax.registry import RelaxOp, is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo, same_shape
from tilewright.relax.transform.layout_rules import RULES, elementwise


class ReshapeLater(GraphPass):
    """Move reshapes of products behind the element-wise operators that follow."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Mover(mod)


class _Mover(FunctionRewriter):
    isolated = ("products", "sources")

    def rewrite(self, function: Function) -> Function:
        self.products: set[RelaxExpr] = set()
        """Products, and what is computed from them element by element."""
        self.sources: dict[RelaxExpr, RelaxExpr] = {}
        """What is reshaped, of the products."""
        return super().rewrite(function)

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if is_call_to(value, "matmul"):
            self.products.add(var)
        elif is_call_to(value, "reshape"):
            return self.reshaped(value, var)
        elif isinstance(value, RelaxCall) and _is_elementwise(value):
            if any(arg in self.products and _same(arg, var) for arg in value.args):
                self.products.add(var)
            return self.moved(value, var)
        return value

    def reshaped(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        """Note a reshape of a product; one after another becomes one, or none."""
        assert isinstance(value, RelaxCall)
        whole = value.args[0]
        source = self.sources.get(whole, whole)
        if source not in self.products:
            return value
        if _same(source, var) and isinstance(var, DataflowVar):
            self.mapping[var] = source
            return source
        if not same_shape(_long(source), _long(var)):
            self.sources[var] = source
        return value if source is whole else reshape(source, _shape(var))

    def moved(self, value: RelaxCall, var: RelaxVar) -> RelaxExpr:
        """Compute before reshaping, if all operands allow."""
        whole = next((arg for arg in value.args if arg in self.sources), None)
        if whole is None or not _same(whole, var):
            return value
        source = self.sources[whole]
        found = (self.operand(arg, whole, source) for arg in value.args)
        args = tuple(arg for arg in found if arg is not None)
        if len(args) < len(value.args):
            return value
        made = self.builder.emit(RelaxCall(value.op, args, value.attrs))
        if not _same(made, source):
            return value
        self.products.add(made)
        self.sources[var] = made
        return reshape(made, _shape(var))

    def operand(self, arg: RelaxExpr, whole: RelaxExpr, source: RelaxExpr) -> RelaxExpr | None:
        """An operand in the product's shape; ``None`` if it hasn't one."""
        own = self.sources.get(arg)
        if own is not None and _same(own, source) and _same(arg, whole):
            return own
        if not isinstance(arg.struct_info, TensorStructInfo):
            return arg
        if arg.struct_info.ndim == 0:
            return arg
        # A row's factors, if rows stay rows.
        row = _shape(arg)
        ends = (_shape(whole)[-1:], _shape(source)[-1:])
        return arg if len(row) == 1 and all(same_shape(row, end) for end in ends) else None


def _is_elementwise(call: RelaxCall) -> bool:
    return isinstance(call.op, RelaxOp) and RULES.get(call.op.key) is elementwise


def _shape(expr: RelaxExpr) -> Sequence[Expr]:
    """The shape of a tensor; empty if it isn't known."""
    info = expr.struct_info
    return info.shape if isinstance(info, TensorStructInfo) and info.has_shape else ()


def _same(a: RelaxExpr, b: RelaxExpr) -> bool:
    return len(_shape(a)) > 0 and same_shape(_shape(a), _shape(b))


def _long(expr: RelaxExpr) -> list[Expr]:
    """The extents other than one."""
    return [extent for extent in _shape(expr) if as_int(extent) != 1]
