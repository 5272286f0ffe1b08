"""``RemoveUnusedOutputs``: private functions don't return what no caller uses."""

from __future__ import annotations

from tilewright.ir import GlobalVar, IRModule, Pass, pre_order
from tilewright.relax.analysis import private_functions, remove_all_unused
from tilewright.relax.branches import If, all_bindings, nested_bodies
from tilewright.relax.expr import (
    Binding,
    Function,
    FunctionRef,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    Tuple,
    TupleGetItem,
    VarBinding,
)
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import TupleStructInfo


class RemoveUnusedOutputs(Pass):
    """Drop items of the tuple that a private function returns if no call's item is used.

    A function is private if it has no ``global_symbol`` and another graph function of the module
    calls it. One item that is left is returned as it is, not as a tuple.

    Before:
        def both(x): return (R.exp(x), R.tanh(x))
        def main(x): return both(x)[1]
    After:
        def both(x): return R.tanh(x)
        def main(x): return both(x)
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Repeat until nothing changes: what is not computed may be what another returned."""
        while True:
            kept = _used_items(mod)
            if not kept:
                return mod
            mod = _drop(mod, kept)


def _used_items(mod: IRModule) -> dict[str, list[int]]:
    """Positions of the used items, by function, of those that have unused ones."""
    private = private_functions(mod)
    used: dict[str, set[int]] = {}
    counts: dict[str, int] = {}
    for name in private:
        result = mod[name].body.body
        if isinstance(mod[name].ret_struct_info, TupleStructInfo) and isinstance(result, Tuple):
            used[name] = set()
            counts[name] = len(result.fields)
        elif isinstance(result, RelaxVar) and isinstance(result.struct_info, TupleStructInfo):
            used[name] = set()
            counts[name] = len(result.struct_info.fields)
    for function in mod.functions.values():
        if isinstance(function, Function):
            _note_uses(function, used, counts)
    return {name: sorted(items) for name, items in used.items() if 0 < len(items) < counts[name]}


def _note_uses(function: Function, used: dict[str, set[int]], counts: dict[str, int]) -> None:
    calls: dict[RelaxVar, str] = {}
    bindings = all_bindings(function)
    for binding in bindings:
        value = binding.value
        if isinstance(value, RelaxCall) and isinstance(value.op, GlobalVar):
            if value.op.name in used and isinstance(binding, VarBinding):
                calls[binding.var] = value.op.name
            elif value.op.name in used:
                used[value.op.name].update(range(counts[value.op.name]))
    values = (b.value.cond if isinstance(b.value, If) else b.value for b in bindings)
    for expr in (*values, *(body.body for body in nested_bodies(function.body))):
        if isinstance(expr, TupleGetItem) and expr.tuple_value in calls:
            used[calls[expr.tuple_value]].add(expr.index)
            continue
        for item in pre_order(expr):
            name = calls.get(item) if isinstance(item, RelaxVar) else None
            if isinstance(item, FunctionRef) and item.name in used:
                name = item.name
            if name is not None:
                used[name].update(range(counts[name]))


def _drop(mod: IRModule, kept: dict[str, list[int]]) -> IRModule:
    rewriter = _CallRewriter(kept)

    def rewrite(name: str, function: Function) -> Function:
        made = rewriter.rewrite(function)
        if name in kept:
            made = remove_all_unused(_with_items(made, kept[name]))
        return made

    return mod.map_functions(rewrite, Function)


def _with_items(function: Function, kept: list[int]) -> Function:
    result = function.body.body
    if isinstance(result, Tuple):
        items = [result.fields[i] for i in kept]
        made = items[0] if len(items) == 1 else Tuple(tuple(items))
        return Function(function.params, SeqExpr(function.body.blocks, made), attrs=function.attrs)
    rewriter = _Selector(kept)
    return rewriter.rewrite(function)


class _Selector(FunctionRewriter):
    """Returns some items of a variable that is a tuple."""

    def __init__(self, kept: list[int]) -> None:
        super().__init__()
        self.kept = kept

    def rewrite_result(self, body: SeqExpr) -> RelaxExpr:
        result = super().rewrite_result(body)
        items = [self.builder.emit(result[i]) for i in self.kept]
        return items[0] if len(items) == 1 else Tuple(tuple(items))


class _CallRewriter(FunctionRewriter):
    def __init__(self, kept: dict[str, list[int]]) -> None:
        super().__init__()
        self.kept = kept

    def rewrite(self, function: Function) -> Function:
        self.calls: dict[RelaxExpr, list[int]] = {}
        return super().rewrite(function)

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, TupleGetItem) and value.tuple_value in self.calls:
            kept = self.calls[value.tuple_value]
            made: RelaxExpr = self.mapping[value.tuple_value]
            if len(kept) > 1:
                made = TupleGetItem(made, kept.index(value.index))
            self.bind(binding.var, made)
            return
        if (
            isinstance(value, RelaxCall)
            and isinstance(value.op, GlobalVar)
            and value.op.name in self.kept
        ):
            kept = self.kept[value.op.name]
            info = value.sinfo_args[0]
            assert isinstance(info, TupleStructInfo)
            infos = [info.fields[i] for i in kept]
            result = infos[0] if len(infos) == 1 else TupleStructInfo(tuple(infos))
            args = self.resolve(Tuple(value.args)).fields
            call = value.replace(args=args, sinfo_args=(result,))
            var = type(binding.var)(binding.var.name, result)
            self.calls[binding.var] = kept
            self.mapping[binding.var] = var
            self.builder.emit_binding(VarBinding(var, call))
            return
        super().rewrite_binding(binding)
