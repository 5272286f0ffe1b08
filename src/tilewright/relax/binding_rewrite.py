"""Changing one dataflow block of a graph function, binding by binding.

rewrite = DataflowBlockRewrite(function.body.blocks[0], function)
made = rewrite.add(op.negative(x))
rewrite.replace_all_uses(y, made)
rewrite.remove_all_unused()
mod = rewrite.mutate_irmodule(mod)
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import IRModule, pre_order
from tilewright.relax.analysis import bound_vars, remove_all_unused
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    VarBinding,
)
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.values import as_relax
from tilewright.support.errors import VerifyError
from tilewright.tir import fresh_name


class DataflowBlockRewrite:
    """A dataflow block of a function with what was changed so far; neither is changed itself.

    Raises ``VerifyError`` if the function has no such block outside of branches.
    """

    def __init__(self, dfb: DataflowBlock, root_fn: Function) -> None:
        places = [n for n, block in enumerate(root_fn.body.blocks) if block is dfb]
        if not places or not isinstance(dfb, DataflowBlock):
            raise VerifyError("DataflowBlockRewrite takes a dataflow block of the function")
        self._original = root_fn
        self._function = root_fn
        self._before = _filled(root_fn.body.blocks[: places[0]])
        self._bindings = list(dfb.bindings)
        self._after = _filled(root_fn.body.blocks[places[0] + 1 :])
        self._taken = {var.name for var in bound_vars(root_fn)}

    @property
    def dfb(self) -> DataflowBlock:
        """The block as it is now."""
        return DataflowBlock(tuple(self._bindings))

    @property
    def root_fn(self) -> Function:
        """The function as it is now."""
        blocks = (*self._before, *_filled([self.dfb]), *self._after)
        return self._function.replace(body=SeqExpr(blocks, self._function.body.body))

    def mutated_dfb(self) -> DataflowBlock:
        """Return the block as it is now."""
        return self.dfb

    def mutated_root_fn(self) -> Function:
        """Return the function as it is now."""
        return self.root_fn

    def mutate_irmodule(self, irmodule: IRModule) -> IRModule:
        """Return the module with the function as it is now.

        Raises ``VerifyError`` if the module doesn't have the function.
        """
        made = self.root_fn
        for name, function in irmodule.functions.items():
            if function is self._original:
                return irmodule.with_function(name, made)
        raise VerifyError("the module doesn't have the function that DataflowBlockRewrite was for")

    def add(self, expr: RelaxExpr, name: str | None = None, is_dfvar: bool = False) -> RelaxVar:
        """Bind an expression at the block's end, its operands before it; return the variable.

        It is seen outside of the block unless ``is_dfvar``. Its name is ``name``, or one that is
        free.
        """
        builder = BlockBuilder()

        def emit() -> RelaxExpr:
            for taken in self._taken:
                builder.get_unique_name(taken)
            return builder.normalize(as_relax(expr))

        value, operands = builder.build_block(emit, DataflowBlock)
        self._bindings += operands.bindings
        self._taken.update(binding.var.name for binding in operands.bindings)
        kind = DataflowVar if is_dfvar else RelaxVar
        var = kind(fresh_name(name or "tmp", self._taken, ""), value.struct_info)
        self._bindings.append(VarBinding(var, value))
        return var

    def add_binding(self, binding: Binding) -> None:
        """Add a binding at the block's end, as it is.

        Raises ``VerifyError`` if its variable is bound already.
        """
        if binding.var in bound_vars(self.root_fn):
            raise VerifyError(f"{binding.var!r} is bound already")
        self._taken.add(binding.var.name)
        self._bindings.append(binding)

    def replace_all_uses(self, old_var: RelaxVar, new_var: RelaxVar) -> None:
        """Use ``new_var`` where the function uses ``old_var``; what follows from it is inferred."""
        rewriter = FunctionRewriter()
        rewriter.mapping[old_var] = new_var
        self._follow(rewriter.rewrite(self.root_fn))

    def remove_unused(self, var: RelaxVar, allow_undef: bool = False) -> None:
        """Remove the binding of a variable of the block.

        Raises ``VerifyError`` if it is used, or if the block doesn't bind it, unless
        ``allow_undef``.
        """
        kept = [binding for binding in self._bindings if binding.var is not var]
        if len(kept) == len(self._bindings):
            if allow_undef:
                return
            raise VerifyError(f"the block doesn't bind {var!r}")
        if any(item is var for item in pre_order(self.root_fn.body)):
            raise VerifyError(f"{var!r} is used, so it can't be removed")
        self._bindings = kept

    def remove_all_unused(self) -> None:
        """Remove all bindings that nothing uses and that have no effect, in other blocks too."""
        own = {binding.var for binding in self._bindings}
        made = remove_all_unused(self.root_fn)
        blocks = made.body.blocks
        place = next(
            (n for n, b in enumerate(blocks) if any(item.var in own for item in b.bindings)), None
        )
        self._function = made
        if place is None:
            known = {binding.var for block in self._before for binding in block.bindings}
            count = sum(any(b.var in known for b in block.bindings) for block in blocks)
            self._before, self._bindings, self._after = blocks[:count], [], blocks[count:]
        else:
            self._before, self._after = blocks[:place], blocks[place + 1 :]
            self._bindings = list(blocks[place].bindings)

    def _follow(self, function: Function) -> None:
        """Go on with a function that has the same blocks."""
        blocks, place = function.body.blocks, len(self._before)
        own = 1 if self._bindings else 0
        self._function = function
        self._before, self._after = blocks[:place], blocks[place + own :]
        self._bindings = [b for block in blocks[place : place + own] for b in block.bindings]


def _filled(blocks: Sequence[BindingBlock]) -> tuple[BindingBlock, ...]:
    """Blocks with bindings: others are dropped when a function is rebuilt."""
    return tuple(block for block in blocks if block.bindings)
