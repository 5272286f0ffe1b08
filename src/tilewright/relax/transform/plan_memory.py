"""``StaticPlanBlockMemory``: intermediate tensors share one workspace.

Tensors that aren't live at the same time may use the same memory (``pack_memory`` says where each
lies), and so may both branches of an ``If``. Results of the function keep their own memory.
"""

from __future__ import annotations

from tilewright.ir import IRModule, Pass
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.branches import all_bindings, map_branches
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    Function,
    MatchCast,
    PrimValue,
    RelaxCall,
    RelaxVar,
    SeqExpr,
    ShapeExpr,
    VarBinding,
)
from tilewright.relax.memory import alloc_tensor, workspace
from tilewright.relax.registry import is_call_to
from tilewright.relax.struct_info import TensorStructInfo, defined_vars, used_vars
from tilewright.relax.transform.pack_memory import Piece, Sizes, assign_offsets


class StaticPlanBlockMemory(Pass):
    """Place intermediate tensors into a workspace."""

    def transform(self, mod: IRModule) -> IRModule:
        """Plan every graph function that ``CallTIRRewrite`` has prepared."""
        return mod.map_functions(
            lambda _, function: function if function.is_primitive else _plan(function), Function
        )


def _plan(function: Function) -> Function:
    sizes = Sizes()
    lifetimes = _lifetimes(function, all_bindings(function), sizes)
    if not lifetimes:
        return function
    total = assign_offsets(list(lifetimes.values()), sizes)
    info = TensorStructInfo((total,), "uint8")
    storage = RelaxVar("workspace", info)
    made: list[Binding] = [VarBinding(storage, workspace(PrimValue(total)))]

    def place(binding: Binding) -> Binding:
        life = lifetimes.get(binding.var)
        if life is None:
            return map_branches(binding, place_branch)
        value = binding.value
        assert isinstance(value, RelaxCall)
        shape = value.args[0]
        assert isinstance(shape, ShapeExpr) and life.offset is not None
        placed = alloc_tensor(storage, PrimValue(life.offset), shape, value.attrs["dtype"])
        return VarBinding(binding.var, placed)

    def place_branch(branch: SeqExpr) -> SeqExpr:
        blocks = (b.replace(bindings=tuple(map(place, b.bindings))) for b in branch.blocks)
        return SeqExpr(tuple(blocks), branch.body)

    made += map(place, function.bindings)
    return function.replace(body=SeqExpr((BindingBlock(tuple(made)),), function.body.body))


def _lifetimes(function: Function, bindings: list[Binding], sizes: Sizes) -> dict[RelaxVar, Piece]:
    root: dict[RelaxVar, RelaxVar] = {}
    found: dict[RelaxVar, Piece] = {}
    early = set(defined_vars([param.struct_info for param in function.params]))
    for position, binding in enumerate(bindings):
        value = binding.value
        if is_call_to(value, "memory.empty"):
            info = binding.var.struct_info
            assert isinstance(info, TensorStructInfo)
            if early.issuperset(used_vars(info)):  # else it's allocated when its size is known
                found[binding.var] = Piece(position, position, sizes.of(info))
            continue
        used = used_graph_vars(value)
        for var in used:
            life = found.get(root.get(var, var))
            if life is not None:
                life.last = position
        if (is_call_to(value, "memory.view") or isinstance(binding, MatchCast)) and used:
            root[binding.var] = root.get(used[0], used[0])
    for var in used_graph_vars(function.body.body):
        found.pop(root.get(var, var), None)
    return found
