"""From tensor expressions to a TensorIR function: a block per compute, an extern's statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import Condition, simplify
from tilewright.ir import (
    GLOBAL_SYMBOL,
    INDEX,
    TRUE,
    Expr,
    Range,
    Var,
    as_int,
    const,
    if_then_else,
    is_const,
    rewrite_bottom_up,
    rewrite_top_down,
    substitute,
)
from tilewright.support.errors import VerifyError
from tilewright.te.extern import ExternOp
from tilewright.te.requirements import Requirements
from tilewright.te.scan import ScanOp
from tilewright.te.tensor import ComputeOp, Operation, PlaceholderOp, ProducerLoad, Tensor
from tilewright.tir import (
    OPAQUE,
    SERIAL,
    SPATIAL,
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    LetStmt,
    PrimFunc,
    Stmt,
    decl_buffer,
    fresh_name,
    make_root_block,
    renew_definitions,
    seq,
)
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.reduction import Reduce


def create_prim_func(
    ops: Sequence[Tensor | Var],
    index_dtype_override: str | None = None,
    *,
    name: str | None = None,
    sizes_checked: bool = False,
) -> PrimFunc:
    """Make a function whose parameters are ``ops``: inputs, scalars and outputs in any order.

    Every compute that the outputs need becomes a block; those that are not in ``ops`` get
    intermediate buffers. Indices are int64, which is all that ``index_dtype_override`` may ask for.
    Requirements on symbolic sizes that operators couldn't prove are checked
    when the function is called; ``sizes_checked`` says that the caller has checked them. Raises
    ``VerifyError`` if a placeholder is used but not in ``ops``, or if sizes can't be as required.
    """
    if index_dtype_override not in (None, INDEX):
        raise VerifyError(
            f"indices are of {INDEX} everywhere, got index_dtype_override="
            f"{index_dtype_override!r}; lowering narrows those that fit"
        )
    return _Builder(ops, sizes_checked).build(name)


def conditions_of(tensors: Sequence[Tensor]) -> list[Condition]:
    """The requirements on sizes that the tensors' operators couldn't prove."""
    order = _topological([tensor.op for tensor in tensors])
    return [condition for op in order for condition in op.conditions]


def _extents_of_intermediates(args: Sequence[Tensor]) -> list[Condition]:
    """That no extent of an intermediate is negative (the caller shows it for arguments)."""
    return [
        Condition(extent >= 0, (f"{tensor.name} has a negative extent: ", extent))
        for op in _topological([tensor.op for tensor in args])
        for tensor in op.outputs
        if tensor not in args
        for extent in tensor.shape
        if as_int(extent) is None and type(extent) is not Var
    ]


class _Builder:
    def __init__(self, args: Sequence[Tensor | Var], sizes_checked: bool) -> None:
        self.args = list(args)
        self.sizes_checked = sizes_checked
        self.buffers: dict[Tensor, Buffer] = {}
        self.block_names: set[str] = {"root"}
        self.buffer_names: set[str] = set()
        self.solved: dict[Var, Expr] = {}

    def build(self, name: str | None) -> PrimFunc:
        params: list[Var] = []
        buffer_map: dict[Var, Buffer] = {}
        tensors = [arg for arg in self.args if isinstance(arg, Tensor)]
        checks = self.requirements(tensors)
        for arg in self.args:
            if isinstance(arg, Tensor):
                buffer = self.declare(arg)
                handle = Var(f"{buffer.name}_handle", "handle")
                params.append(handle)
                buffer_map[handle] = buffer
            elif isinstance(arg, Var):
                params.append(arg)
            else:
                raise VerifyError(
                    f"create_prim_func takes tensors and variables, got {type(arg).__name__}"
                )
        stmts, allocated = checks, []
        for op in _topological([tensor.op for tensor in tensors]):
            if isinstance(op, PlaceholderOp):
                if op.output(0) not in self.buffers:
                    raise VerifyError(f"placeholder {op.name!r} is used but not an argument")
                continue
            for tensor in op.outputs:
                if tensor not in self.buffers:
                    allocated.append(self.declare(tensor))
            if isinstance(op, ExternOp):
                stmts.append(self.extern_blocks(op))
            elif isinstance(op, ScanOp):
                stmts.extend(self.scan_blocks(op, allocated))
            else:
                assert isinstance(op, ComputeOp)
                stmts.append(self.compute_block(op))
        attrs: dict[str, Any] = {GLOBAL_SYMBOL: name} if name else {}
        body = make_root_block(seq(*stmts), tuple(allocated))
        return PrimFunc(params, body, attrs=attrs, buffer_map=buffer_map)

    def requirements(self, tensors: Sequence[Tensor]) -> list[Stmt]:
        """Learn what extents must equal; return assertions for what shapes can't express."""
        conditions = [*conditions_of(tensors), *_extents_of_intermediates(tensors)]
        if not conditions:
            return []
        scalars = [arg for arg in self.args if isinstance(arg, Var)]
        extents = [extent for tensor in tensors for extent in tensor.shape]
        needed = Requirements(conditions, extents, scalars)
        self.solved = needed.solved
        if self.sizes_checked:
            return []
        return [
            AssertStmt("RuntimeError", item.expr, item.message, item.values)
            for item in needed.asserted
        ]

    def extent(self, value: Expr) -> Expr:
        """An extent, rewritten by the solved requirements."""
        return simplify(substitute(value, self.solved)) if self.solved else value

    def declare(self, tensor: Tensor) -> Buffer:
        if tensor in self.buffers:
            raise VerifyError(f"tensor {tensor.name!r} is given twice")
        name = fresh_name(tensor.name, self.buffer_names)
        buffer = decl_buffer(tuple(map(self.extent, tensor.shape)), tensor.dtype, name)
        self.buffers[tensor] = buffer
        return buffer

    def load(self, expr: Expr) -> Expr:
        """Replace tensor elements by buffer elements."""

        def rewrite(current: object) -> Expr | None:
            if not isinstance(current, ProducerLoad):
                return None
            indices = tuple(map(self.load, current.indices))
            return BufferLoad(self.buffers[current.producer], indices)

        made: Expr = rewrite_top_down(expr, rewrite)
        return made

    def extern_blocks(self, op: ExternOp) -> Stmt:
        operands = [self.buffers[tensor] for tensor in op.operands]
        made = op.statements(operands, [self.buffers[tensor] for tensor in op.outputs])
        if self.solved:
            made = renew_definitions(made, self.solved)

        def rename(current: object) -> Block | object:
            if not isinstance(current, Block):
                return current
            name = fresh_name(current.name, self.block_names)
            return current if name == current.name else current.replace(name=name)

        stmt: Stmt = rewrite_bottom_up(made, rename)
        return stmt

    def scan_blocks(self, op: ScanOp, allocated: list[Buffer]) -> list[Stmt]:
        """The first elements are copied; then a loop over time has the blocks of each step."""
        states = [self.buffers[tensor] for tensor in op.outputs]
        stmts = []
        for first, state in zip(op.init, states):
            extents = tuple(map(self.extent, first.shape))
            loops = [Var(f"i{number}") for number in range(first.ndim)]
            stmts.append(_copy(f"{op.name}_init", self, extents, loops, self.buffers[first], state))
        for state, placeholder, update in zip(states, op.state_placeholder, op.update):
            self.buffers[placeholder] = self.buffers[update] = state
        for step in op.steps:
            for tensor in step.outputs:
                if tensor not in self.buffers:
                    allocated.append(self.declare(tensor))
        first_time, times = self.extent(op.scan_axis.dom.min), self.extent(op.scan_axis.dom.extent)
        loop = Var("t")
        body = seq(*(self.compute_block(step, loop + first_time) for step in op.steps))
        stmts.append(For(loop, const(0), times, SERIAL, body))
        return stmts

    def compute_block(self, op: ComputeOp, time: Expr | None = None) -> Stmt:
        """The nest of a compute; with ``time``, of one step of a scan: the first index is given."""
        axes = tuple(map(self.axis, (*op.axis, *op.reduce_axis)))
        if time is not None:  # later steps read what earlier ones wrote
            axes = (axes[0].replace(kind=OPAQUE), *axes[1:])
        iter_vars = tuple(IterVar(axis.dom, Var(f"v_{axis.var.name}"), axis.kind) for axis in axes)
        mapping: dict[Var, Expr] = {axis.var: it.var for axis, it in zip(axes, iter_vars)}
        mapping.update(self.solved)
        # A symbolic extent may not refer to other axes, so domains need no substitution.
        loops = [Var(axis.var.name) for axis in axes]
        where = tuple(iter_var.var for iter_var in iter_vars[: len(op.axis)])
        targets = [self.buffers[tensor] for tensor in op.outputs]
        body = tuple(substitute(self.load_body(expr), mapping) for expr in op.body)
        init: Stmt | None = None
        first = body[0]
        if isinstance(first, Reduce):
            init = seq(
                *(
                    BufferStore(target, value, where)
                    for target, value in zip(targets, first.init or first.combiner.identity)
                )
            )
            update = _reduction_update(first, targets, where)
        else:
            update = seq(*(BufferStore(t, value, where) for t, value in zip(targets, body)))
        block = Block(
            iter_vars,
            (),
            (),
            fresh_name(op.name, self.block_names),
            update,
            init,
            annotations=dict(op.attrs),
        )
        reads, writes = block_access_regions(block)
        block = block.replace(reads=tuple(reads), writes=tuple(writes))
        # Loops of extent one stay: schedules address every axis by position.
        values = tuple(_loop_value(loop, axis.dom) for loop, axis in zip(loops, axes))
        nest = list(zip(loops, axes))
        if time is not None:
            values, nest = (time, *values[1:]), nest[1:]
        stmt: Stmt = BlockRealize(values, TRUE, block)
        for loop, axis in reversed(nest):
            stmt = For(loop, const(0), axis.dom.extent, SERIAL, stmt)
        return stmt

    def axis(self, axis: IterVar) -> IterVar:
        if not self.solved:
            return axis
        return axis.replace(
            dom=Range.from_min_extent(self.extent(axis.dom.min), self.extent(axis.dom.extent))
        )

    def load_body(self, expr: Expr) -> Expr:
        if isinstance(expr, Reduce):
            return expr.replace(
                source=tuple(map(self.load, expr.source)),
                condition=self.load(expr.condition),
                init=tuple(map(self.load, expr.init)),
            )
        return self.load(expr)


def _copy(
    name: str,
    builder: _Builder,
    extents: tuple[Expr, ...],
    loops: list[Var],
    source: Buffer,
    target: Buffer,
) -> Stmt:
    """A nest that copies a box from the start of a buffer to that of another."""
    iter_vars = tuple(
        IterVar(Range.from_min_extent(const(0), extent), Var(f"v_{loop.name}"), SPATIAL)
        for loop, extent in zip(loops, extents)
    )
    where = tuple(item.var for item in iter_vars)
    store = BufferStore(target, BufferLoad(source, where), where)
    block = Block(iter_vars, (), (), fresh_name(name, builder.block_names), store)
    reads, writes = block_access_regions(block)
    block = block.replace(reads=tuple(reads), writes=tuple(writes))
    stmt: Stmt = BlockRealize(tuple(loops), TRUE, block)
    for loop, extent in zip(reversed(loops), reversed(extents)):
        stmt = For(loop, const(0), extent, SERIAL, stmt)
    return stmt


def _loop_value(loop: Var, dom: Range) -> Expr:
    """Loops start at zero; the start of a domain is added to the loop variable."""
    return loop if as_int(dom.min) == 0 else loop + dom.min


def _reduction_update(reduce: Reduce, targets: list[Buffer], where: tuple[Expr, ...]) -> Stmt:
    old = tuple(BufferLoad(target, where) for target in targets)
    source = reduce.source
    if not is_const(reduce.condition, 1):
        # What the condition leaves out is not read either: it may lie outside of a tensor.
        source = tuple(
            if_then_else(reduce.condition, value, identity)
            for value, identity in zip(source, reduce.combiner.identity)
        )
    new = reduce.combiner.combine(old, source)
    if len(new) == 1:
        return BufferStore(targets[0], new[0], where)
    # All new values are computed before the first is stored.
    names = [Var(f"v_{target.name}", value.dtype) for target, value in zip(targets, new)]
    stmt = seq(*(BufferStore(target, var, where) for target, var in zip(targets, names)))
    for var, value in zip(reversed(names), reversed(new)):
        stmt = LetStmt(var, value, stmt)
    return stmt


def _topological(roots: Sequence[Operation]) -> list[Operation]:
    """Operations in order of computation, inputs first; not recursive, as graphs may be deep."""
    order: dict[Operation, None] = {}
    stack: list[tuple[Operation, bool]] = [(op, False) for op in reversed(roots)]
    while stack:
        op, expanded = stack.pop()
        if op in order:
            continue
        if expanded:
            order[op] = None
            continue
        stack.append((op, True))
        stack.extend((tensor.op, False) for tensor in reversed(op.inputs))
    return list(order)
