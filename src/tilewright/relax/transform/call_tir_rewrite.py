"""``CallTIRRewrite``: memory is allocated for results of tensor functions; calls write into it.

After it a function is a list of allocations, views and ``call_dps``. Each result of the function
has its own memory: results that are parameters, constants, views of them or duplicates are copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import GlobalVar, IRModule, Node, Var
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.branches import If, all_bindings, map_branches, seen_outside
from tilewright.relax.call_packed import CALL_PACKED, CALLS, PACKED, lowered_packed
from tilewright.relax.call_tir import (
    CALL_TIR,
    CALL_TIR_INPLACE,
    call_dps,
    call_tir_operands,
    inplace_indices,
    output_infos,
)
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    Constant,
    ExternFunc,
    Function,
    FunctionRef,
    MatchCast,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    VarBinding,
)
from tilewright.relax.memory import empty, view
from tilewright.relax.registry import RelaxOp, is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import (
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    prove_equal,
)
from tilewright.relax.transform.legalize_ops import RESHAPE
from tilewright.support.errors import LowerError

COPY = "relax.copy"
"""Attribute of a tensor function that copies its operand, and does nothing if it gets one tensor as
both operand and result."""


_MADE = ("memory.empty", "memory.workspace")


class CallTIRRewrite(GraphPass):
    """Allocate memory for results."""

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Allocator(mod)


class _Allocator(FunctionRewriter):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)

    def rewrite(self, function: Function) -> Function:
        calls = [b.value for b in all_bindings(function) if isinstance(b.value, RelaxCall)]
        left = any(call.op in (CALL_TIR, CALL_TIR_INPLACE) for call in calls)
        if not left and any(is_call_to(call, name) for call in calls for name in _MADE):
            return function  # it was rewritten before, and perhaps planned
        # Memory operations have effects, so the blocks are no dataflow blocks any more.
        self.owned: set[RelaxVar] = set()
        self.view_of: dict[RelaxVar, RelaxExpr] = {}
        self.needed = _operands_needed_later(self.mod, function)
        return super().rewrite(function.replace(body=_without_dataflow(function.body)))

    def rewrite_if(self, binding: Binding, value: If) -> None:
        """Allocate what an ``If`` gives before it; both branches write into that."""
        name, cond = binding.var.name, self.resolve(value.cond)
        if isinstance(value.struct_info, ShapeStructInfo):
            shapes = [self.resolve(branch.body) for branch in value.branches]
            self.mapping[binding.var] = self.shape(cond, shapes, name)
            return
        infos = [seen_outside(branch, self.extents) for branch in value.branches]
        output = self.output(cond, value.struct_info, infos, name)
        leaves = list(_leaves(output))
        first, second = (self.writing(branch, leaves) for branch in value.branches)
        self.builder.emit(If(cond, first, second), "_")
        self.mapping[binding.var] = output

    def output(
        self, cond: RelaxExpr, info: StructInfo, infos: Sequence[Any], name: str
    ) -> RelaxExpr:
        """Memory for what branches give; ``infos`` are those of each branch."""
        if isinstance(info, TupleStructInfo):
            items = (
                self.output(cond, field, [each.fields[i] for each in infos], name)
                for i, field in enumerate(info.fields)
            )
            return Tuple(tuple(items))
        if isinstance(info, TensorStructInfo) and info.has_shape:
            return self.allocate(info, name)
        if not isinstance(info, TensorStructInfo) or not all(
            each.has_shape and each.ndim == info.ndim for each in infos
        ):
            raise LowerError(
                f"{name} is {info!r}: branches must give tensors of one dtype and number of "
                "dimensions, whose sizes are known outside of the branches"
            )
        # Sizes that differ are those of the branch that is taken.
        pairs = list(zip(*(each.shape for each in infos)))
        differing = [axis for axis, pair in enumerate(pairs) if not prove_equal(*pair)]
        if not differing:
            return self.allocate(infos[0], name)
        chosen = [ShapeExpr(tuple(each.shape[axis] for axis in differing)) for each in infos]
        named = {axis: Var(f"{name}_{axis}") for axis in differing}
        cast = ShapeStructInfo(tuple(named.values()))
        self.builder.match_cast(self.shape(cond, chosen, name), cast, f"{name}_shape")
        extents = [named.get(axis, first) for axis, (first, _) in enumerate(pairs)]
        return self.allocate(TensorStructInfo(extents, info.dtype), name)

    def shape(self, cond: RelaxExpr, shapes: Sequence[RelaxExpr], name: str) -> RelaxVar:
        """One of two shapes."""
        return self.builder.emit(If(cond, *shapes), f"{name}_shape")

    def writing(self, branch: SeqExpr, outputs: Sequence[RelaxVar]) -> SeqExpr:
        """A branch that writes what it gives into ``outputs``."""
        outer, extents = set(self.owned), set(self.extents)
        places: dict[RelaxVar, RelaxVar] = {}

        def body() -> RelaxExpr:
            self.rewrite_blocks(branch.blocks)
            results = _leaves(self.resolve(branch.body))
            for result, output in zip(results, outputs, strict=True):
                root = self.root(result)
                own = self.owned - outer - places.keys()
                if isinstance(root, RelaxVar) and root in own:
                    places[root] = output  # what is made in the branch is made in place
                else:
                    into = self.builder.emit(view(output, ShapeExpr(result.shape)), "_")
                    self.copy_into(result, into)
            return Tuple(())

        made = self.builder.build_branch(body)
        self.extents = extents
        blocks = tuple(
            block.replace(bindings=tuple(_placed(b, places) for b in block.bindings))
            for block in made.blocks
        )
        return SeqExpr(blocks, made.body)

    def rewrite_binding(self, binding: Binding) -> None:
        if isinstance(binding, MatchCast):
            super().rewrite_binding(binding)
            made = self.mapping.get(binding.var, binding.var)
            self.view_of[made] = self.resolve(binding.value)
            return
        value: RelaxExpr = self.resolve(binding.value)
        if isinstance(value, RelaxCall) and value.op in (CALL_TIR, CALL_TIR_INPLACE):
            self.call(binding.var, value)
        elif isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Tuple):
            self.mapping[binding.var] = value.tuple_value.fields[value.index]
        elif isinstance(value, (RelaxVar, Constant, PrimValue, ShapeExpr, Tuple)):
            self.mapping[binding.var] = value
        elif is_call_to(value, "assert_op"):
            self.builder.emit_binding(binding)
        elif is_call_to(value, "tensor_to_shape"):
            self.bind(binding.var, value)
        elif isinstance(value, RelaxCall) and value.op in CALLS:
            self.call_packed(binding.var, value)
        elif isinstance(value, RelaxCall) and isinstance(value.op, RelaxOp):
            raise LowerError(
                f"{value.op_name} is not a tensor function yet: it has no legalisation, or "
                "LegalizeOps did not run"
            )
        elif isinstance(value, RelaxCall):
            raise LowerError(
                f"the call of graph function {value.op!r} can't be lowered: inline it "
                "into its caller"
            )
        else:
            raise LowerError(f"cannot lower the value of {binding.var.name}: {value!r}")

    def call(self, var: RelaxVar, value: RelaxCall) -> None:
        ref, args, extra = call_tir_operands(value)
        infos = output_infos(value)
        if len(infos) == 1 and _is_reshape(self.mod, ref.callee):
            made = self.builder.emit(view(args[0], ShapeExpr(infos[0].shape)), var.name)
            self.view_of[made] = args[0]
            self.mapping[var] = made
            return
        places = inplace_indices(value)
        needed = self.needed.get(var, ())
        made_args = [
            self.writable(arg, number in needed) if number in places else arg
            for number, arg in enumerate(args)
        ]
        outputs = [
            self.allocate(info, var.name) if place == -1 else made_args[place]
            for info, place in zip(infos, places)
        ]
        fresh = tuple(output for output, place in zip(outputs, places) if place == -1)
        self.builder.emit(call_dps(ref, Tuple(tuple(made_args)), Tuple(fresh), extra), "_")
        single = isinstance(value.struct_info, TensorStructInfo)
        self.mapping[var] = outputs[0] if single else Tuple(tuple(outputs))

    def writable(self, arg: RelaxExpr, needed: bool) -> RelaxExpr:
        """A tensor that may be written: a copy, if it is needed or not the function's own."""
        own = isinstance(arg, RelaxVar) and arg in self.owned
        return arg if own and not needed else self.copied(arg)

    def call_packed(self, var: RelaxVar, value: RelaxCall) -> None:
        name, args, infos = lowered_packed(value)
        for info in infos:
            if not isinstance(info, TensorStructInfo) or not info.has_shape:
                raise LowerError(
                    f"{var.name} is {info!r}: {value.op_name} gives tensors of known shape"
                )
        outputs = [self.allocate(info, var.name) for info in infos]  # type: ignore[arg-type]
        attrs = {PACKED: True, **({"writes": True} if value.op is CALL_PACKED else {})}
        ref = FunctionRef(ExternFunc(name, attrs=attrs))
        self.builder.emit(call_dps(ref, Tuple(args), Tuple(tuple(outputs))), "_")
        single = isinstance(value.struct_info, TensorStructInfo)
        self.mapping[var] = outputs[0] if single else Tuple(tuple(outputs))

    def allocate(self, info: TensorStructInfo, name: str) -> RelaxVar:
        made = self.builder.emit(empty(ShapeExpr(info.shape), info.dtype), name)
        self.owned.add(made)
        return made

    def rewrite_result(self, body: SeqExpr) -> RelaxExpr:
        result: RelaxExpr = self.resolve(body.body)
        taken: set[RelaxVar] = set()
        return self.own(result, taken)

    def own(self, result: RelaxExpr, taken: set[RelaxVar]) -> RelaxExpr:
        """Return the result with copies such that each of its tensors has its own memory."""
        if isinstance(result, Tuple):
            return Tuple(tuple(self.own(item, taken) for item in result.fields))
        info = result.struct_info
        if isinstance(info, TupleStructInfo):
            raise LowerError(f"the result {result!r} is a tuple that is not written out")
        if not isinstance(info, TensorStructInfo):
            raise LowerError(f"only tensors can be results, {result!r} is {info!r}")
        root = self.root(result)
        if isinstance(root, RelaxVar) and root in self.owned and root not in taken:
            taken.add(root)
            return result
        made = self.copied(result)
        taken.add(made)
        return made

    def copied(self, value: RelaxExpr) -> RelaxVar:
        """A copy of a tensor, in memory of its own."""
        info = value.struct_info
        assert isinstance(info, TensorStructInfo)
        made = self.allocate(info, "out")
        self.copy_into(value, made)
        return made

    def copy_into(self, value: RelaxExpr, output: RelaxVar) -> None:
        copied = self.builder.call_te(
            lambda x: te.compute(x.shape, lambda *i: x(*i), name="copy"),
            value,
            primfunc_name_hint="copy",
            primfunc_attrs={COPY: True},
        )
        ref, args, extra = call_tir_operands(copied)
        self.builder.emit(call_dps(ref, Tuple(args), Tuple((output,)), extra), "_")

    def root(self, expr: RelaxExpr) -> RelaxExpr:
        """The tensor at the start of a chain of views."""
        while isinstance(expr, RelaxVar) and expr in self.view_of:
            expr = self.view_of[expr]
        return expr


def _is_reshape(mod: IRModule, function: object) -> bool:
    if not isinstance(function, GlobalVar) or function not in mod:
        return False
    return bool(mod[function].attrs.get(RESHAPE, False))


def _makes_memory(mod: IRModule, value: object) -> bool:
    """Whether a value's memory is its own, not that of an operand by another name."""
    if not isinstance(value, RelaxCall):
        return False
    if value.op is CALL_TIR:
        return not _is_reshape(mod, call_tir_operands(value)[0].callee)
    return value.op is CALL_TIR_INPLACE or value.op in CALLS


def _operands_needed_later(mod: IRModule, function: Function) -> dict[RelaxVar, set[int]]:
    """For each call that works in place: the operands whose elements are read again, by position.

    They may be used later, under another name too, or be another operand of the call.
    """
    memory: dict[RelaxVar, set[RelaxVar]] = {}
    """What each variable's memory may be: its own, or what it is another name for."""

    def memory_of(value: Node) -> set[RelaxVar]:
        return {root for used in used_graph_vars(value) for root in memory.get(used, {used})}

    calls: list[tuple[int, RelaxVar, RelaxCall]] = []
    last: dict[RelaxVar, int] = {}
    positions = itertools.count()

    def note(body: SeqExpr) -> None:
        for binding in (b for block in body.blocks for b in block.bindings):
            value = binding.value
            position = next(positions)
            read = value.cond if isinstance(value, If) else value
            last.update(dict.fromkeys(memory_of(read), position))
            if isinstance(value, If):  # what it gives has memory of its own
                for branch in value.branches:
                    note(branch)
            own = isinstance(value, If) or _makes_memory(mod, value)
            memory[binding.var] = {binding.var} if own else memory_of(value)
            if isinstance(value, RelaxCall) and value.op is CALL_TIR_INPLACE:
                calls.append((position, binding.var, value))
        last.update(dict.fromkeys(memory_of(body.body), next(positions)))

    note(function.body)
    found: dict[RelaxVar, set[int]] = {}
    for position, var, value in calls:
        _, args, _ = call_tir_operands(value)
        roots = [memory_of(arg) for arg in args]
        for number in set(inplace_indices(value)) - {-1}:
            others = set().union(*(r for n, r in enumerate(roots) if n != number))
            if roots[number] & others or any(last[root] > position for root in roots[number]):
                found.setdefault(var, set()).add(number)
    return found


def _without_dataflow(body: SeqExpr) -> SeqExpr:
    """Memory operations have effects, so the blocks are no dataflow blocks any more."""
    blocks = (
        BindingBlock(tuple(map_branches(b, _without_dataflow) for b in block.bindings))
        for block in body.blocks
    )
    return SeqExpr(tuple(blocks), body.body)


def _leaves(value: RelaxExpr) -> Iterator[Any]:
    if isinstance(value, Tuple):
        for item in value.fields:
            yield from _leaves(item)
    elif isinstance(value.struct_info, TensorStructInfo):
        yield value
    else:
        raise LowerError(f"a branch gives {value!r}, which is {value.struct_info!r}, no tensor")


def _placed(binding: Binding, places: Mapping[RelaxVar, RelaxVar]) -> Binding:
    """An allocation as another name of the memory of a result."""
    output = places.get(binding.var)
    if output is None:
        return binding
    return VarBinding(binding.var, view(output, ShapeExpr(binding.var.shape)))
