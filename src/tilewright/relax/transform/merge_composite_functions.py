"""``MergeCompositeFunctions``: composite functions for one code generator become one function."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir import GLOBAL_SYMBOL, GlobalVar, IRModule, Pass
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import map_blocks
from tilewright.relax.dpl.rewriting import in_dependency_order
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    TupleGetItem,
    VarBinding,
)
from tilewright.relax.struct_info import TupleStructInfo
from tilewright.relax.transform.outline import function_name, outline, used_outside
from tilewright.tir.attrs import CODEGEN, COMPOSITE


class MergeCompositeFunctions(Pass):
    """Merge calls of composite functions that feed each other, and are for one code generator.

    Each group becomes a function with the attributes ``Codegen``, the name of the code generator
    (what precedes the first dot in ``Composite``), and ``global_symbol``. A group holds as many
    calls as there can be without waiting for something that itself waits for the group. Results
    that are used outside of it are its results, as a tuple if there are several.

    Before:
        lv = R.call(cls.fused_relax_matmul, (x, w), ...)     # Composite: mine.matmul
        gv = R.call(cls.fused_relax_nn_relu, (lv,), ...)     # Composite: mine.relu
    After:
        gv = R.call(cls.fused_relax_matmul_relax_nn_relu_mine, (x, w), ...)
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Merge in every dataflow block of functions that are no groups themselves."""
        builder = BlockBuilder(mod)
        for name, function in mod.functions.items():
            if isinstance(function, Function) and not function.is_partition:
                made = _merged(mod, builder, function)
                if made is not function:
                    builder.update_func(name, made)
        return builder.get()


def _merged(mod: IRModule, builder: BlockBuilder, function: Function) -> Function:
    def merged(block: BindingBlock) -> BindingBlock:
        # What isn't local may be used outside.
        return _Merger(mod, builder, block).run() if isinstance(block, DataflowBlock) else block

    body = map_blocks(function.body, merged)
    return function if body is function.body else function.replace(body=body)


class _Merger:
    """Groups the calls of one block."""

    def __init__(self, mod: IRModule, builder: BlockBuilder, block: DataflowBlock) -> None:
        self.mod = mod
        self.builder = builder
        self.block = block
        self.members: dict[RelaxVar, list[RelaxVar]] = {}
        """The group of each binding: a list that all of its members share."""
        self.bindings = {binding.var: binding for binding in block.bindings}

    def run(self) -> DataflowBlock:
        for binding in self.block.bindings:
            self.members[binding.var] = [binding.var]
            target = self.codegen(binding.value)
            if target is None:
                continue
            for operand in used_graph_vars(binding.value):
                if operand in self.members and self.target_of(operand) == target:
                    self.try_merge(operand, binding.var)
        groups = list({id(group): group for group in self.members.values()}.values())
        chosen = [g for g in groups if self.codegen(self.bindings[g[0]].value) is not None]
        if not chosen:
            return self.block
        made: dict[RelaxVar, list[Binding]] = {}
        for group in chosen:
            made[group[0]] = self.outlined(group)
        inside = {var for group in chosen for var in group}
        bindings: list[Binding] = []
        for binding in self.block.bindings:
            if binding.var in made:
                bindings += made[binding.var]
            elif binding.var not in inside:
                bindings.append(binding)
        return DataflowBlock(tuple(in_dependency_order(bindings)))

    def codegen(self, value: RelaxExpr) -> str | None:
        """The code generator of a call's callee, if that is composite."""
        if not isinstance(value, RelaxCall) or not isinstance(value.op, GlobalVar):
            return None
        callee = self.mod.functions.get(value.op.name)
        name = callee.attrs.get(COMPOSITE) if isinstance(callee, Function) else None
        return None if name is None else str(name).partition(".")[0]

    def target_of(self, var: RelaxVar) -> str | None:
        return self.codegen(self.bindings[var].value)

    def try_merge(self, a: RelaxVar, b: RelaxVar) -> None:
        """Join two groups unless something outside lies on a way from one to the other."""
        first, second = self.members[a], self.members[b]
        if first is second:
            return
        joined = {*first, *second}
        if any(self.leads_to(var, joined) for var in self.needed(joined)):
            return
        first.extend(second)
        for var in second:
            self.members[var] = first

    def needed(self, group: Iterable[RelaxVar]) -> set[RelaxVar]:
        """What the bindings of a group use and don't bind."""
        inside = set(group)
        used = (var for item in inside for var in used_graph_vars(self.bindings[item].value))
        return {var for var in used if var in self.members and var not in inside}

    def leads_to(self, start: RelaxVar, targets: set[RelaxVar]) -> bool:
        """Whether a value, or the group that makes it, needs one of the targets."""
        pending, seen = [start], {start}
        while pending:
            group = self.members[pending.pop()]
            for var in self.needed(group):
                if var in targets:
                    return True
                if var not in seen:
                    seen.add(var)
                    pending.append(var)
        return False

    def outlined(self, group: list[RelaxVar]) -> list[Binding]:
        """Add the group's function; return the call of it, and what takes its results apart."""
        members = [b for b in self.block.bindings if b.var in group]
        target = self.target_of(group[0])
        assert target is not None
        seen = used_outside(
            self.block.bindings,
            set(group),
            lambda var: not isinstance(var, DataflowVar),
        )
        results = [b.var for b in members if b.var in seen] or [members[-1].var]
        function, operands = outline(members, results, {CODEGEN: target})
        calls = [b.value for b in members if isinstance(b.value, RelaxCall)]
        parts = [call.op_name.removeprefix("fused_") for call in calls]
        gvar = self.builder.add_func(function, function_name(parts, f"_{target}"))
        self.builder.update_func(gvar, function.with_attr(GLOBAL_SYMBOL, gvar.name))
        if len(results) == 1:
            call = RelaxCall(gvar, operands, {}, (results[0].struct_info,))
            return [VarBinding(results[0], call)]
        info = TupleStructInfo(tuple(var.struct_info for var in results))
        whole = DataflowVar("lv", info)
        call = RelaxCall(gvar, operands, {}, (info,))
        items = [VarBinding(var, TupleGetItem(whole, i)) for i, var in enumerate(results)]
        return [VarBinding(whole, call), *items]
