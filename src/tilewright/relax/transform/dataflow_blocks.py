"""``ConvertToDataflow`` and ``ToNonDataflow``: what is pure moves into dataflow blocks, or out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir import GlobalVar, IRModule, Pass
from tilewright.relax.analysis import is_impure, used_graph_vars
from tilewright.relax.branches import If, all_bindings, map_branches, nested_bodies
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    RelaxCall,
    RelaxVar,
    SeqExpr,
)
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.support.errors import VerifyError


class ToNonDataflow(Pass):
    """Turn dataflow blocks into ordinary ones, and their variables into ordinary ones.

    Before:
        with R.dataflow():
            lv = R.exp(x)
            gv = R.exp(lv)
            R.output(gv)
    After:
        lv = R.exp(x)
        gv = R.exp(lv)
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild every function."""
        return mod.map_functions(lambda _, function: _opened(function), Function)


def _opened(function: Function) -> Function:
    blocks = [block for body in nested_bodies(function.body) for block in body.blocks]
    if not any(isinstance(block, DataflowBlock) for block in blocks):
        return function
    local = [b.var for b in all_bindings(function) if isinstance(b.var, DataflowVar)]
    renamed = _with_variables(function, {v: RelaxVar(v.name, v.struct_info) for v in local})
    return renamed.replace(body=_opened_body(renamed.body))


def _opened_body(body: SeqExpr) -> SeqExpr:
    bindings = tuple(map_branches(b, _opened_body) for block in body.blocks for b in block.bindings)
    return SeqExpr((BindingBlock(bindings),) if bindings else (), body.body)


class ConvertToDataflow(Pass):
    """Put runs of at least ``min_size`` pure bindings into dataflow blocks.

    Their variables that are used nowhere else become dataflow variables. Calls of graph functions
    stay outside, as control flow does.

    Raises ``VerifyError`` if ``min_size`` is less than 1.

    Before:
        lv = R.exp(x)
        gv = R.exp(lv)
    After:
        with R.dataflow():
            lv = R.exp(x)
            gv = R.exp(lv)
            R.output(gv)
    """

    def __init__(self, min_size: int = 2) -> None:
        if min_size < 1:
            raise VerifyError(f"min_size is a number of bindings, at least 1; got {min_size}")
        self.min_size = min_size

    def transform(self, mod: IRModule) -> IRModule:
        """Rebuild every function."""
        return mod.map_functions(lambda _, function: self._converted(function), Function)

    def _converted(self, function: Function) -> Function:
        body = self._converted_body(function.body)
        if body is function.body:
            return function
        made = function.replace(body=body)
        local = list(_local_variables(made))
        return _with_variables(made, {v: DataflowVar(v.name, v.struct_info) for v in local})

    def _converted_body(self, body: SeqExpr) -> SeqExpr:
        blocks: list[BindingBlock] = []
        changed = False
        for block in body.blocks:
            if isinstance(block, DataflowBlock):
                blocks.append(block)
                continue
            inner = tuple(map_branches(b, self._converted_body) for b in block.bindings)
            parts = list(self._blocks_of(inner))
            if inner == block.bindings and [type(part) for part in parts] == [type(block)]:
                parts = [block]
            else:
                changed = True
            blocks.extend(parts)
        return SeqExpr(tuple(blocks), body.body) if changed else body

    def _blocks_of(self, bindings: Sequence[Binding]) -> Iterator[BindingBlock]:
        rest: list[Binding] = []
        for pure, run in _runs(bindings):
            if pure and len(run) >= self.min_size:
                if rest:
                    yield BindingBlock(tuple(rest))
                rest = []
                yield DataflowBlock(tuple(run))
            else:
                rest += run
        if rest:
            yield BindingBlock(tuple(rest))


def _runs(bindings: Sequence[Binding]) -> Iterator[tuple[bool, list[Binding]]]:
    """Bindings that follow each other and are alike in whether a dataflow block may hold them."""
    run: list[Binding] = []
    kind = False
    for binding in bindings:
        value = binding.value
        calls = isinstance(value, RelaxCall) and isinstance(value.op, GlobalVar)
        branches = isinstance(value, If)
        pure = isinstance(binding, MatchCast) or not (calls or branches or is_impure(value))
        if run and pure is not kind:
            yield kind, run
            run = []
        kind = pure
        run.append(binding)
    if run:
        yield kind, run


def _local_variables(function: Function) -> Iterator[RelaxVar]:
    """Ordinary variables that a dataflow block binds and nothing outside of it uses."""
    home: dict[RelaxVar, BindingBlock] = {}
    seen_outside: set[RelaxVar] = set()
    for body in nested_bodies(function.body):
        seen_outside.update(used_graph_vars(body.body))
        for block in body.blocks:
            for binding in block.bindings:
                for var in used_graph_vars(binding.value):
                    if home.get(var, block) is not block:
                        seen_outside.add(var)
                home[binding.var] = block
    for var, block in home.items():
        local = isinstance(var, DataflowVar) or var in seen_outside
        if isinstance(block, DataflowBlock) and not local:
            yield var


def _with_variables(function: Function, mapping: dict[RelaxVar, RelaxVar]) -> Function:
    """Replace variables that are bound, with all their uses."""
    renamer = _Renamer()
    renamer.mapping.update(mapping)
    return renamer.rewrite(function)


class _Renamer(FunctionRewriter):
    def rewrite_binding(self, binding: Binding) -> None:
        var = self.mapping.get(binding.var, binding.var)
        self.builder.emit_binding(binding.replace(var=var, value=self.resolve(binding.value)))
