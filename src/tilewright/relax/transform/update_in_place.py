"""``UpdateInPlace``: what copies an operand and updates the copy is called as the update alone.

Whether the operand is copied is then a question of the graph: ``CallTIRRewrite`` does so where
something else needs it, and ``LowerGraph`` lets a caller have the result in a parameter's memory.
Runs behind records and kernels, which know functions as they were, and before rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.ir import TRUE, GlobalVar, IRModule, expr_equal, is_const
from tilewright.relax.call_tir import (
    CALL_TIR,
    call_tir_inplace,
    call_tir_operands,
    output_infos,
    tensor_function,
)
from tilewright.relax.expr import RelaxCall, RelaxExpr, RelaxVar, Tuple
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import same_struct_info
from tilewright.relax.transform.dataflow_use_inplace_calls import written_over
from tilewright.tir import (
    SERIAL,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.walk import symbols_in


class UpdateInPlace(GraphPass):
    """Call functions that update a copy of an operand without the copy, in place.

    Before:
        gv = R.call_tir(cls.scatter, (x, i, v), ...)     # copies x, then writes some elements
    After:
        gv = R.call_tir_inplace(cls.scatter_inplace, (x, i, v), inplace_indices=[0], ...)
    """

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Rewriter(mod)


class _Rewriter(FunctionRewriter):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.made: dict[tuple[str, tuple[int, ...]], GlobalVar] = {}

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not isinstance(value, RelaxCall) or value.op is not CALL_TIR:
            return value
        ref, args, scalars = call_tir_operands(value)
        function, infos = tensor_function(self.mod, ref), output_infos(value)
        if function is None or function.attrs.get(IS_SCHEDULED):
            return value
        if len(function.buffers) != len(args) + len(infos):
            return value
        found = _copies(function, len(args))
        places = [-1] * len(infos)
        for copy in found:
            if same_struct_info(args[copy.source].struct_info, infos[copy.result]):
                places[copy.result] = copy.source
        copies = [copy for copy in found if places[copy.result] == copy.source]
        if not copies or len({copy.source for copy in copies}) < len(copies):
            return value
        key = ref.name, tuple(places)
        if key not in self.made:
            made = written_over(_without(function, copies), len(args), places)
            self.made[key] = self.builder.add_func(made, f"{ref.name}_inplace")
        gvar = self.made[key]
        return call_tir_inplace(gvar, Tuple(args), places, list(infos), scalars or ())


class _Copy(NamedTuple):
    """A statement of a function that copies an operand to a result, both by position."""

    stmt: Stmt
    source: int
    result: int


def _statements(function: PrimFunc) -> Sequence[Stmt]:
    """The statements of the root block, if there is nothing else to it than memory."""
    body = function.body
    if not isinstance(body, BlockRealize) or body.block.iter_vars:
        return ()
    inner = body.block.body
    return inner.seq if isinstance(inner, SeqStmt) else ()


def _copies(function: PrimFunc, inputs: int) -> list[_Copy]:
    """Results that start as a copy of an operand that nothing else in the function accesses."""
    buffers = function.buffers
    places = {buffer: number for number, buffer in enumerate(buffers)}
    found: list[_Copy] = []
    stmts = _statements(function)
    accessed = [set(symbols_in(stmt)) for stmt in stmts]
    for number, stmt in enumerate(stmts):
        pair = _copied(stmt)
        if pair is None:
            continue
        source, result = (places.get(item, -1) for item in pair)
        if not (0 <= source < inputs <= result):
            continue
        before, others = accessed[:number], accessed[:number] + accessed[number + 1 :]
        apart = not any(pair[0] in item or pair[0].data in item for item in others)
        later = any(pair[1] in item for item in accessed[number + 1 :])
        if apart and later and not any(pair[1] in item for item in before):
            found.append(_Copy(stmt, source, result - inputs))
    return found


def _copied(stmt: Stmt) -> tuple[Buffer, Buffer] | None:
    """The buffers of a nest that copies one as a whole to another."""
    loops = []
    while isinstance(stmt, For) and stmt.kind == SERIAL and is_const(stmt.min, 0):
        loops.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, BlockRealize) or stmt.predicate is not TRUE:
        return None
    block, store = stmt.block, stmt.block.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, BufferLoad):
        return None
    source, result = store.value.buffer, store.buffer
    axes = tuple(axis.var for axis in block.iter_vars)
    same = store.indices == axes == store.value.indices and block.init is None
    if not same or stmt.iter_values != tuple(loop.loop_var for loop in loops):
        return None
    whole = len(loops) == len(result.shape) == len(source.shape) and all(
        expr_equal(loop.extent, a) and expr_equal(a, b)
        for loop, a, b in zip(loops, result.shape, source.shape)
    )
    return (source, result) if whole and source.dtype == result.dtype else None


def _without(function: PrimFunc, copies: Sequence[_Copy]) -> PrimFunc:
    """The function without its copies."""
    gone = {id(copy.stmt) for copy in copies}
    body = function.body
    assert isinstance(body, BlockRealize)
    rest = seq(*(stmt for stmt in _statements(function) if id(stmt) not in gone))
    made: PrimFunc = function.replace(
        body=body.replace(block=body.block.replace(body=rest)),
    )
    return made
