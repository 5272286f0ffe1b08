"""``CombineParallelMatmul``: products of one tensor with several weights become one product."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from tilewright.ir import IRModule, as_int
from tilewright.relax import ops
from tilewright.relax.analysis import get_var2val, used_graph_vars
from tilewright.relax.branches import all_bindings, map_blocks
from tilewright.relax.dpl.matching import Bindings
from tilewright.relax.dpl.rewriting import in_dependency_order
from tilewright.relax.expr import (
    Binding,
    DataflowBlock,
    DataflowVar,
    Function,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    VarBinding,
)
from tilewright.relax.registry import is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo, same_shape

Check = Callable[
    [RelaxExpr, Sequence[RelaxExpr], Sequence[RelaxExpr], Bindings],
    bool,
]
"""Takes the shared operand, the weights, the biases and the function's bindings."""

ACTIVATIONS = ("nn.relu", "nn.gelu", "nn.silu")
"""What may follow all products of a group and be computed once."""


class CombineParallelMatmul(GraphPass):
    """Join weights (and biases) of products that share their first operand.

    Weights must have the same shape but for their columns, whose number must be known. If a bias
    of one dimension is added to all products of a group, or one of ``ACTIVATIONS`` follows all of
    them, that is computed on the joined product too. ``check(input, weights, biases, bindings)``
    says whether a group is to be joined; weights that are neither parameters nor constants are
    joined in each call, which may cost more than it saves.

    Before:
        lv = R.matmul(x, w0)
        lv1 = R.matmul(x, w1)
    After:
        lv = R.concat((w0, w1), axis=1)
        lv1 = R.matmul(x, lv)
        lv2 = R.split(lv1, (n0,), axis=1)
        lv3, lv4 = lv2[0], lv2[1]
    """

    def __init__(self, check: Check | None = None) -> None:
        self.check = check

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Combiner(mod, self.check)


@dataclass(frozen=True)
class _Branch:
    """A product, and the sum with a bias and the activation that follow it."""

    product: RelaxCall
    columns: int
    inner: tuple[RelaxVar, ...]
    result: RelaxVar
    bias: RelaxExpr | None = None
    activation: RelaxCall | None = None

    @property
    def x(self) -> RelaxExpr:
        return self.product.args[0]

    @property
    def weight(self) -> RelaxExpr:
        return self.product.args[1]

    def key(self) -> Hashable:
        """What branches of a group have in common, apart from the shapes of weights."""
        follows = None
        if self.activation is not None:
            follows = (self.activation.op_name, repr(sorted(self.activation.attrs.items())))
        attrs = repr(sorted(self.product.attrs.items()))
        return self.x, self.weight.ndim, self.weight.dtype, attrs, self.bias is not None, follows


class _Combiner(FunctionRewriter):
    def __init__(self, mod: IRModule, check: Check | None) -> None:
        super().__init__(mod)
        self.check = check

    def rewrite(self, function: Function) -> Function:
        self.bindings = get_var2val(function)
        self.users: dict[RelaxVar, list[RelaxVar]] = {}
        for binding in all_bindings(function):
            for used in used_graph_vars(binding.value):
                self.users.setdefault(used, []).append(binding.var)
        self.joined: dict[RelaxVar, RelaxExpr] = {}
        body = map_blocks(
            function.body,
            lambda block: self.combine(block) if isinstance(block, DataflowBlock) else block,
        )
        return super().rewrite(function.replace(body=body)) if self.joined else function

    def rewrite_binding(self, binding: Binding) -> None:
        if binding.var in self.joined:
            self.bind(binding.var, self.resolve(binding.value))
        else:
            super().rewrite_binding(binding)

    def combine(self, block: DataflowBlock) -> DataflowBlock:
        """Replace the results of groups; bindings that they leave unused are dropped."""
        groups: dict[Hashable, list[list[_Branch]]] = {}
        for binding in block.bindings:
            branch = self.branch(binding)
            if branch is None:
                continue
            alike = groups.setdefault(branch.key(), [])
            for group in alike:
                if _same_rows(group[0].product, branch.product):
                    group.append(branch)
                    break
            else:
                alike.append([branch])
        made: dict[RelaxVar, RelaxExpr] = {}
        dropped: set[RelaxVar] = set()
        for group in (group for alike in groups.values() for group in alike):
            chosen = self.independent(group, made)
            if len(chosen) > 1 and self.wanted(chosen):
                made.update(_join(chosen))
                dropped.update(var for branch in chosen for var in branch.inner)
        if not made:
            return block
        self.joined.update(made)
        bindings = [
            VarBinding(b.var, made[b.var]) if b.var in made else b
            for b in block.bindings
            if b.var not in dropped
        ]
        return DataflowBlock(tuple(in_dependency_order(bindings)))

    def branch(self, binding: Binding) -> _Branch | None:
        """The branch that starts with a product; ``None`` if this is none that can be joined."""
        value = binding.value
        if not isinstance(binding, VarBinding) or not is_call_to(value, "matmul"):
            return None
        assert isinstance(value, RelaxCall)
        infos = [arg.struct_info for arg in value.args]
        if not all(isinstance(info, TensorStructInfo) and info.has_shape for info in infos):
            return None
        if value.args[1].ndim < 2:
            return None
        columns = as_int(value.shape[-1])
        if columns is None:
            return None
        made = _Branch(value, columns, (), binding.var)
        follower = self.only_user(made.result)
        if follower is not None and is_call_to(self.bindings.get(follower), "add"):
            bias = _other(self.bindings[follower], made.result)
            if bias is not None and bias.ndim == 1 and as_int(bias.shape[0]) == columns:
                made = _Branch(value, columns, (made.result,), follower, bias)
        follower = self.only_user(made.result)
        activation = self.bindings.get(follower) if follower is not None else None
        if any(is_call_to(activation, name) for name in ACTIVATIONS):
            assert follower is not None and isinstance(activation, RelaxCall)
            inner = (*made.inner, made.result)
            made = _Branch(value, columns, inner, follower, made.bias, activation)
        return made

    def only_user(self, var: RelaxVar) -> RelaxVar | None:
        users = self.users.get(var, [])
        return users[0] if isinstance(var, DataflowVar) and len(users) == 1 else None

    def independent(self, group: list[_Branch], made: dict[RelaxVar, RelaxExpr]) -> list[_Branch]:
        """Leave out branches with operands that depend on another one of the group."""
        chosen: list[_Branch] = []
        for branch in group:
            operands = [branch.weight, *([] if branch.bias is None else [branch.bias])]
            targets = {b.result for b in group} | {v for b in group for v in b.inner}
            if not self.depends(operands, targets, made):
                chosen.append(branch)
        return chosen

    def depends(
        self,
        operands: Sequence[RelaxExpr],
        targets: set[RelaxVar],
        made: dict[RelaxVar, RelaxExpr],
    ) -> bool:
        pending = [var for operand in operands for var in used_graph_vars(operand)]
        seen = set(pending)
        while pending:
            var = pending.pop()
            if var in targets:
                return True
            value = made.get(var, self.bindings.get(var))
            for used in used_graph_vars(value) if value is not None else ():
                if used not in seen:
                    seen.add(used)
                    pending.append(used)
        return False

    def wanted(self, group: list[_Branch]) -> bool:
        if self.check is None:
            return True
        biases = [branch.bias for branch in group if branch.bias is not None]
        weights = [branch.weight for branch in group]
        return bool(self.check(group[0].x, weights, biases, self.bindings))


def _other(call: RelaxExpr, var: RelaxVar) -> RelaxExpr | None:
    """The other operand of a sum with a tensor of known shape."""
    assert isinstance(call, RelaxCall)
    others = [arg for arg in call.args if arg is not var]
    if len(others) != 1:
        return None
    info = others[0].struct_info
    return others[0] if isinstance(info, TensorStructInfo) and info.has_shape else None


def _same_rows(a: RelaxCall, b: RelaxCall) -> bool:
    """Whether weights differ in their columns only."""
    axis = _column_axis(a)
    shapes = [list(call.args[1].shape) for call in (a, b)]
    for shape in shapes:
        del shape[axis]
    return same_shape(*shapes)


def _column_axis(product: RelaxCall) -> int:
    ndim = product.args[1].ndim
    return ndim - 2 if product.attrs["transpose_b"] else ndim - 1


def _join(group: list[_Branch]) -> dict[RelaxVar, RelaxExpr]:
    first = group[0]
    axis = _column_axis(first.product)
    weight = ops.concat([branch.weight for branch in group], axis)
    value: RelaxExpr = first.product.replace(args=(first.x, weight))
    if first.bias is not None:
        value = ops.add(value, ops.concat([branch.bias for branch in group], 0))
    if first.activation is not None:
        value = first.activation.replace(args=(value,))
    places, end = [], 0
    for branch in group[:-1]:
        end += branch.columns
        places.append(end)
    parts = ops.split(value, tuple(places), value.ndim - 1)
    return {branch.result: parts[index] for index, branch in enumerate(group)}
