"""``StaticPlanBlockMemory``: intermediate tensors share one workspace.

Tensors of constant size are placed by greedy best fit, largest first, where they overlap no tensor
that is live at the same time (Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net
Inference", 2020); both branches of an ``If`` may use the same memory. Tensors of symbolic size are
placed after them; one may reuse the memory of another of provably equal size that is dead. Results
of the function keep their own memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arith import NotEvaluable, evaluate, simplify
from tilewright.ir import Expr, IRModule, Pass, as_expr, as_int, const, dtypes, free_vars
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
from tilewright.relax.struct_info import TensorStructInfo, defined_vars, prove_equal, used_vars

ALIGNMENT = 64
"""Pieces start at multiples of this many bytes: a cache line, and the widest vector."""


class StaticPlanBlockMemory(Pass):
    """Place intermediate tensors into a workspace."""

    def transform(self, mod: IRModule) -> IRModule:
        """Plan every graph function that ``CallTIRRewrite`` has prepared."""
        return mod.map_functions(
            lambda _, function: function if function.is_primitive else _plan(function), Function
        )


@dataclass(eq=False)
class _Lifetime:
    var: RelaxVar
    first: int
    last: int
    size: Expr
    offset: Expr | None = None

    def overlaps(self, other: _Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def tensor_bytes(info: TensorStructInfo) -> Expr:
    """Size of a tensor in bytes, rounded up to the alignment."""
    total: Expr = as_expr(dtypes.bytes_of(info.dtype))
    for extent in info.shape:
        total = total * extent
    return simplify((total + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT)


def _plan(function: Function) -> Function:
    lifetimes = _lifetimes(function, all_bindings(function))
    if not lifetimes:
        return function
    total = assign_offsets(list(lifetimes.values()))
    info = TensorStructInfo((total,), "uint8")
    storage = RelaxVar("workspace", info)
    made: list[Binding] = [VarBinding(workspace(PrimValue(total)), storage)]

    def place(binding: Binding) -> Binding:
        life = lifetimes.get(binding.var)
        if life is None:
            return map_branches(binding, place_branch)
        value = binding.value
        assert isinstance(value, RelaxCall)
        shape = value.args[0]
        assert isinstance(shape, ShapeExpr) and life.offset is not None
        placed = alloc_tensor(storage, PrimValue(life.offset), shape, value.attrs["dtype"])
        return VarBinding(placed, binding.var)

    def place_branch(branch: SeqExpr) -> SeqExpr:
        blocks = (b.replace(bindings=tuple(map(place, b.bindings))) for b in branch.blocks)
        return SeqExpr(tuple(blocks), branch.body)

    made += map(place, function.bindings)
    return function.replace(body=SeqExpr((BindingBlock(tuple(made)),), function.body.body))


def _lifetimes(function: Function, bindings: list[Binding]) -> dict[RelaxVar, _Lifetime]:
    root: dict[RelaxVar, RelaxVar] = {}
    found: dict[RelaxVar, _Lifetime] = {}
    early = set(defined_vars([param.struct_info for param in function.params]))
    for position, binding in enumerate(bindings):
        value = binding.value
        if is_call_to(value, "memory.empty"):
            info = binding.var.struct_info
            assert isinstance(info, TensorStructInfo)
            if early.issuperset(used_vars(info)):  # else it's allocated when its size is known
                size = tensor_bytes(info)
                found[binding.var] = _Lifetime(binding.var, position, position, size)
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


def assign_offsets(lifetimes: list[_Lifetime]) -> Expr:
    """Give each lifetime an offset; return the total size."""
    fixed = [(as_int(life.size), life) for life in lifetimes]
    constant = [(size, life) for size, life in fixed if size is not None]
    end = 0
    placed: list[tuple[int, int, _Lifetime]] = []
    # A tensor is alive from its first use (the call that writes it follows its allocation).
    for size, life in sorted(constant, key=lambda item: (-item[0], item[1].first)):
        busy = sorted(
            (start, start + length) for start, length, other in placed if life.overlaps(other)
        )
        best, best_gap, cursor = None, None, 0
        for start, stop in busy:
            gap = start - cursor
            if gap >= size and (best_gap is None or gap < best_gap):
                best, best_gap = cursor, gap
            cursor = max(cursor, stop)
        offset = cursor if best is None else best
        placed.append((offset, size, life))
        life.offset = const(offset)
        end = max(end, offset + size)
    return _place_symbolic([life for size, life in fixed if size is None], const(end))


def _place_symbolic(lifetimes: list[_Lifetime], end: Expr) -> Expr:
    samples = _samples([life.size for life in lifetimes])
    slots: list[_Lifetime] = []
    for life in sorted(lifetimes, key=lambda item: item.first):
        for position, slot in enumerate(slots):
            alike = samples[id(slot.size)] == samples[id(life.size)]
            if slot.last < life.first and alike and prove_equal(slot.size, life.size):
                life.offset = slot.offset
                slots[position] = life
                break
        else:
            life.offset = end
            end = simplify(end + life.size)
            slots.append(life)
    return end


def _samples(sizes: list[Expr]) -> dict[int, int | None]:
    """Sizes at some extents, by identity: other values tell at once that it is another formula."""
    variables = {var: None for size in sizes for var in free_vars(size)}
    values = {var: 97 + 6 * number for number, var in enumerate(variables)}
    made: dict[int, int | None] = {}
    for size in sizes:
        try:
            made[id(size)] = int(evaluate(size, values))
        except NotEvaluable:
            made[id(size)] = None
    return made
