"""``DataflowUseInplaceCalls``: results are written over operands that nothing needs any more.

Fewer temporary tensors are alive at once, so the workspace is smaller, and more of it stays in the
caches.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import IRModule, Pass
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import map_blocks
from tilewright.relax.call_tir import (
    CALL_TIR,
    CALL_TIR_INPLACE,
    call_tir_inplace,
    call_tir_operands,
    is_call_tir,
    output_infos,
    tensor_function,
)
from tilewright.relax.expr import (
    Binding,
    DataflowBlock,
    DataflowVar,
    Function,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    Tuple,
    VarBinding,
)
from tilewright.relax.overwriting import may_overwrite
from tilewright.relax.struct_info import same_struct_info
from tilewright.relax.transform.legalize_ops import RESHAPE
from tilewright.tir import PrimFunc, replace_buffers


class DataflowUseInplaceCalls(Pass):
    """Let calls of tensor functions write a result over an operand, in dataflow blocks.

    The operand is a value of the block, of the result's shape and dtype, that nothing uses later;
    the function reads an element of it only where it writes that element. Run this last, after
    fusion and schedules: other passes take values for immutable.

    Before:
        lv = R.call_tir(cls.matmul, (x, w), ...)
        gv = R.call_tir(cls.relu, (lv,), ...)
    After:
        lv = R.call_tir(cls.matmul, (x, w), ...)
        gv = R.call_tir_inplace(cls.relu_inplace, (lv,), inplace_indices=[0], ...)
    """

    def transform(self, mod: IRModule) -> IRModule:
        """Rewrite every function that is no fusion group."""
        builder = BlockBuilder(mod)
        changed = False
        for name, function in mod.functions.items():
            if isinstance(function, Function) and not function.is_primitive:
                made = _rewritten(mod, builder, function)
                if made is not function:
                    changed = True
                    builder.update_func(name, made)
        return builder.get() if changed else mod


def _rewritten(mod: IRModule, builder: BlockBuilder, function: Function) -> Function:
    body = map_blocks(
        function.body,
        lambda block: (
            _Block(mod, builder, block).run() if isinstance(block, DataflowBlock) else block
        ),
    )
    return function if body is function.body else function.replace(body=body)


class _Block:
    def __init__(self, mod: IRModule, builder: BlockBuilder, block: DataflowBlock) -> None:
        self.mod = mod
        self.builder = builder
        self.block = block
        self.last: dict[RelaxVar, int] = {}
        self.fixed: set[RelaxVar] = set()
        """What something else than a tensor function uses: it may go by another name as well."""
        self.made_here: set[RelaxVar] = set()
        for position, binding in enumerate(block.bindings):
            for var in used_graph_vars(binding.value):
                self.last[var] = position
                if self.callee(binding.value) is None:
                    self.fixed.add(var)
            if self.callee(binding.value) is not None and isinstance(binding.var, DataflowVar):
                self.made_here.add(binding.var)

    def callee(self, value: RelaxExpr) -> PrimFunc | None:
        """The tensor function that a value calls, if its results are memory of their own."""
        if not isinstance(value, RelaxCall) or value.op not in (CALL_TIR, CALL_TIR_INPLACE):
            return None
        ref, _, _ = call_tir_operands(value)
        function = tensor_function(self.mod, ref)
        return None if function is None or function.attrs.get(RESHAPE, False) else function

    def run(self) -> DataflowBlock:
        bindings: list[Binding] = []
        changed = False
        for position, binding in enumerate(self.block.bindings):
            made = self.in_place(binding.value, position) if is_call_tir(binding.value) else None
            if made is None:
                bindings.append(binding)
            else:
                changed = True
                bindings.append(VarBinding(binding.var, made))
        return DataflowBlock(tuple(bindings)) if changed else self.block

    def in_place(self, value: RelaxExpr, position: int) -> RelaxCall | None:
        function = self.callee(value)
        if function is None:
            return None
        assert isinstance(value, RelaxCall)
        ref, args, scalars = call_tir_operands(value)
        infos = output_infos(value)
        if len(function.buffers) != len(args) + len(infos):
            return None
        places: list[int] = []
        for number, info in enumerate(infos):
            result = function.buffers[len(args) + number]
            found = -1
            for index, arg in enumerate(args):
                if (
                    index not in places
                    and self.is_dead(arg, args, position)
                    and same_struct_info(arg.struct_info, info)
                    and may_overwrite(function, function.buffers[index], result)
                ):
                    found = index
                    break
            places.append(found)
        if all(place == -1 for place in places):
            return None
        made = written_over(function, len(args), places)
        gvar = self.builder.add_func(made, f"{ref.name}_inplace")
        return call_tir_inplace(gvar, Tuple(args), places, list(infos), scalars or ())

    def is_dead(self, arg: RelaxExpr, args: Sequence[RelaxExpr], position: int) -> bool:
        return (
            isinstance(arg, RelaxVar)
            and arg in self.made_here
            and arg not in self.fixed
            and self.last[arg] == position
            and sum(other is arg for other in args) == 1
        )


def written_over(function: PrimFunc, inputs: int, places: Sequence[int]) -> PrimFunc:
    """The function with results in place of operands, as ``places`` says."""
    handles = [param for param in function.params if param in function.buffer_map]
    mapping = {}
    gone = set()
    for number, place in enumerate(places):
        if place != -1:
            handle = handles[inputs + number]
            gone.add(handle)
            mapping[function.buffer_map[handle]] = function.buffer_map[handles[place]]
    made: PrimFunc = function.replace(
        params=tuple(param for param in function.params if param not in gone),
        buffer_map={k: v for k, v in function.buffer_map.items() if k not in gone},
        body=replace_buffers(function.body, mapping),
    )
    return made
