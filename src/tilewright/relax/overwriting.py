"""Which results may be written over operands: of a tensor function, and of a whole graph."""

from __future__ import annotations

from typing import Any

from tilewright.ir import (
    Call,
    GlobalVar,
    IRModule,
    Node,
    Range,
    as_int,
    collect,
    expr_equal,
    free_vars,
    pre_order,
)
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.branches import contains_if
from tilewright.relax.call_tir import CALL_DPS
from tilewright.relax.expr import (
    Function,
    FunctionRef,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    Tuple,
)
from tilewright.relax.registry import is_call_to
from tilewright.relax.struct_info import same_struct_info
from tilewright.tir import (
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    For,
    PrimFunc,
    While,
)
from tilewright.tir.analysis import is_injective_binding

Places = tuple[tuple[int, int], ...]
"""Pairs of a parameter and a result, by position: the result may take the parameter's memory."""


def overwritable_parameters(mod: IRModule, function: Function) -> Places:
    """Return which results of a planned graph function a caller may have in a parameter's memory.

    The parameter has the result's shape and dtype, the call that writes the result is the last one
    that reads it, and reads an element only where it writes that element.
    """
    if contains_if(function):
        return ()
    found = _Uses(function)
    body = function.body.body
    results = list(body.fields) if isinstance(body, Tuple) else [body]
    roots = [found.root(item) for item in results]
    made = []
    for number, (result, root) in enumerate(zip(results, roots)):
        if not isinstance(root, RelaxVar) or roots.count(root) > 1 or root not in found.writer:
            continue
        call, position, place = found.writer[root]
        kernel = mod.functions.get(call.args[0].name)
        inputs = call.args[1].fields
        if not isinstance(kernel, PrimFunc):
            continue
        for index, param in enumerate(function.params):
            reads = [n for n, arg in enumerate(inputs) if found.root(arg) is param]
            if (
                len(reads) == 1
                and inputs[reads[0]] is param
                and param not in roots
                and found.last[param] == position
                and same_struct_info(param.struct_info, result.struct_info)
                and may_overwrite(kernel, kernel.buffers[reads[0]], kernel.buffers[place])
            ):
                made.append((index, number))
                break
    return tuple(made)


class _Uses:
    """Where a function uses its values, and the calls that write its tensors.

    ``writer`` has the call, its position and the place of the tensor among the callee's buffers;
    nothing for what several calls write.
    """

    def __init__(self, function: Function) -> None:
        self.source: dict[RelaxExpr, RelaxExpr] = {}
        self.last: dict[RelaxExpr, int] = {}
        self.writer: dict[RelaxExpr, tuple[Any, int, int]] = {}
        twice: set[RelaxExpr] = set()
        for position, binding in enumerate(function.bindings):
            value = binding.value
            used = used_graph_vars(value)
            if (is_call_to(value, "memory.view") or isinstance(binding, MatchCast)) and used:
                self.source[binding.var] = self.root(used[0])
            for var in used:
                self.last[self.root(var)] = position
            if not isinstance(value, RelaxCall) or value.op is not CALL_DPS:
                continue
            ref, inputs, outputs = value.args[:3]
            assert isinstance(inputs, Tuple) and isinstance(outputs, Tuple)
            for number, output in enumerate(outputs.fields):
                root = self.root(output)
                if root in self.writer:
                    twice.add(root)
                if isinstance(ref, FunctionRef) and isinstance(ref.callee, GlobalVar):
                    self.writer[root] = (value, position, len(inputs.fields) + number)
        for root in twice:
            del self.writer[root]

    def root(self, var: RelaxExpr) -> RelaxExpr:
        """The tensor of which a value is a view."""
        return self.source.get(var, var)


def may_overwrite(function: PrimFunc, source: Buffer, result: Buffer) -> bool:
    """Whether an element of an operand is read only where that of the result is written."""
    if any(map(_hides_accesses, pre_order(function.body))):
        return False
    both = (source, result)
    stores = [item for item in collect(function.body, BufferStore) if item.buffer in both]
    loads = [item for item in collect(function.body, BufferLoad) if item.buffer in both]
    if len(stores) != 1 or stores[0].buffer is not result:
        return False
    store = stores[0]
    inside = [item for item in collect(store.value, BufferLoad) if item.buffer is source]
    if len(inside) != len(loads) or not _is_written_once(function, store):
        return False
    return all(len(load.indices) == len(store.indices) for load in inside) and all(
        expr_equal(a, b) for load in inside for a, b in zip(load.indices, store.indices)
    )


def _hides_accesses(node: Node) -> bool:
    """Whether a node may access memory that loads and stores don't show."""
    if isinstance(node, Call):
        return node.op.effect != "pure" or node.op.name == "address_of"
    return isinstance(node, DeclBuffer) or (isinstance(node, Block) and bool(node.match_buffers))


def _is_written_once(function: PrimFunc, store: BufferStore) -> bool:
    """Whether a block writes each element, in one iteration only (not in overlapping tiles)."""
    found = _home_of(function, store)
    if found is None:
        return False
    realize, loops = found
    home = realize.block
    spatial = [axis.var for axis in home.iter_vars if axis.kind == SPATIAL]
    if home.init is not None or len(spatial) < len(home.iter_vars):
        return False
    if set(store.indices) != set(spatial) or len(store.indices) != len(spatial):
        return False
    used = {var for value in realize.iter_values for var in free_vars(value)}
    ranges = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    return all(
        loop.loop_var in used or as_int(loop.extent) == 1 for loop in loops
    ) and is_injective_binding(tuple(realize.iter_values), ranges, realize.predicate)


def _home_of(function: PrimFunc, store: BufferStore) -> tuple[BlockRealize, tuple[For, ...]] | None:
    """The block, directly in the root block, that only stores; with the loops around it."""
    pending: list[tuple[Any, tuple[For, ...]]] = [(function.body, ())]
    while pending:
        node, loops = pending.pop()
        if isinstance(node, BlockRealize) and node.block.iter_vars:
            if node.block.body is store:
                return node, loops
            continue
        if isinstance(node, For):
            loops = (*loops, node)
        if not isinstance(node, While):
            pending += [(item, loops) for item in node.child_nodes()]
    return None
