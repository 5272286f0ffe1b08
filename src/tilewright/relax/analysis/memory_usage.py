"""How much memory graph functions take, before and after ``StaticPlanBlockMemory``."""

from __future__ import annotations

from tilewright.arith import simplify
from tilewright.ir import Expr, IRModule, as_expr, as_int, dtypes
from tilewright.relax.branches import all_bindings
from tilewright.relax.call_tir import is_call_tir
from tilewright.relax.expr import Binding, Function, PrimValue, RelaxCall
from tilewright.relax.registry import is_call_to
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo

_ALLOCATIONS = ("memory.empty", "memory.alloc_tensor")


def estimate_memory_usage(mod: IRModule | Function) -> str:
    """Describe the memory of each graph function's values: if each had its own, and as planned.

    ``mod`` is a graph of ``call_tir``, or what ``CallTIRRewrite`` and ``StaticPlanBlockMemory``
    make of it; only the last has a plan. Sizes that depend on symbolic extents are formulas.
    """
    if isinstance(mod, Function):
        mod = IRModule({"main": mod})
    lines = ["Memory usage estimation:"]
    for name, function in mod.functions.items():
        if isinstance(function, Function) and not function.is_primitive:
            lines += [f" * Function {name}:", *_describe(all_bindings(function))]
    return "\n".join(lines)


def _describe(bindings: list[Binding]) -> list[str]:
    values = [
        b.var.struct_info
        for b in bindings
        if is_call_tir(b.value) or any(is_call_to(b.value, name) for name in _ALLOCATIONS)
    ]
    own = [
        b.var.struct_info
        for b in bindings
        if is_call_to(b.value, "memory.empty") or is_call_tir(b.value)
    ]
    workspaces = [_size(b) for b in bindings if is_call_to(b.value, "memory.workspace")]
    lines = [f"   - Without planning, {len(values)} values take {_shown(_total(values))}."]
    if workspaces:
        total = simplify(sum(workspaces, _total(own)))
        lines.append(
            f"   - As planned, they take {_shown(total)}: a workspace of "
            f"{_shown(simplify(sum(workspaces, as_expr(0))))} and {len(own)} results."
        )
    return lines


def _size(binding: Binding) -> Expr:
    value = binding.value
    assert isinstance(value, RelaxCall) and isinstance(value.args[0], PrimValue)
    return value.args[0].value


def _total(infos: list[StructInfo]) -> Expr:
    return simplify(sum(map(_bytes, infos), as_expr(0)))


def _bytes(info: StructInfo) -> Expr:
    if isinstance(info, TupleStructInfo):
        return sum(map(_bytes, info.fields), as_expr(0))
    assert isinstance(info, TensorStructInfo)
    total: Expr = as_expr(dtypes.bytes_of(info.dtype))
    for extent in info.shape:
        total = total * extent
    return total


def _shown(size: Expr) -> str:
    number = as_int(size)
    return f"{size!r} bytes" if number is None else f"{number:,} bytes"
