"""The primitive that schedules a program differently for ranges of a symbolic size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tilewright.ir import Expr, IRModule, Var, const, free_vars, structural_equal
from tilewright.support.errors import ScheduleError
from tilewright.tir import Block, Buffer, IfThenElse, PrimFunc, SeqStmt, Stmt, seq
from tilewright.tir.layout_rewrite import constants_of, packing_block, packs_constant
from tilewright.tir.rewrite import fresh_name, renew_definitions, split_size_checks
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.trace import Trace
from tilewright.tir.stmt import make_root_block

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule

# Each variant is a copy of the program, inside of all conditions before it.
_MOST_VARIANTS = 32


@primitive
def size_variants(
    sch: Schedule, block: BlockRV, symbol: str, limits: Sequence[int], traces: Sequence[str]
) -> None:
    """Schedule the program once for each range of a symbolic size, which chooses when it runs.

    ``traces`` are ``json.dumps(trace.as_json())`` of schedules of the program as it is. The first
    one serves sizes up to the first of the ``limits``, and so on; the last one serves all above.
    Operands that all variants pack alike are packed once. Handles of blocks and loops are dead
    afterwards.

    Preconditions:
        - the block is the root block of its function, which has neither variants yet nor other
          conditions around its blocks
        - the symbol is the name of a size of the function's buffers
        - the limits ascend, and there is one trace more than there are limits, 32 at most
        - each trace is one that replays on the program, and has no variants itself
        - variants differ in the body only, and pack constant operands alike
    Before:
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * 2.0
    After, with ``B`` made parallel where ``n`` is larger than 64:
        if n <= 64:
            for i in range(n):
                with T.block("B"):
                    vi = T.axis.spatial(n, i)
                    B[vi] = A[vi] * 2.0
        else:
            for i in T.parallel(n):
                with T.block("B_1"):
                    vi = T.axis.spatial(n, i)
                    B[vi] = A[vi] * 2.0
    """
    root = sch.state.get_block(block)
    func = sch.state.func(block.func)
    if sch.state.scope_realize(root) is not None:
        raise sch.error(f"block {root.block.name!r} is not the root block", root)
    if any(isinstance(stmt, IfThenElse) for stmt in _stmts(root.block.body)):
        raise sch.error("it has variants, or another condition around its blocks", root)
    size = _size(func, symbol)
    if size is None:
        raise sch.error(f"no buffer of the function has the size {symbol!r}", root)
    ascend = all(a < b for a, b in pairwise(limits))
    if len(traces) > _MOST_VARIANTS:
        raise sch.error(f"{len(traces)} variants are too many, {_MOST_VARIANTS} may be", root)
    if not limits or not ascend or len(traces) != len(limits) + 1:
        raise sch.error(
            f"{len(traces)} variants need {len(traces) - 1} ascending limits, at least one, got "
            f"{list(limits)}",
            root,
        )
    variants = [_scheduled(sch, func, block.func, text) for text in traces]
    sch.state.replace(root.block, _dispatching(sch, func, size, limits, variants))


def _stmts(body: Stmt) -> Sequence[Stmt]:
    return body.stmts if isinstance(body, SeqStmt) else (body,)


def _size(func: PrimFunc, symbol: str) -> Var | None:
    extents = (extent for buffer in func.buffers for extent in buffer.shape)
    found = (var for extent in extents for var in free_vars(extent))
    return next((var for var in found if var.name == symbol), None)


def _scheduled(sch: Schedule, func: PrimFunc, name: str, text: str) -> Block:
    """Replay a trace; return the root block."""
    made = type(sch)(IRModule({name: func}), record=False)
    try:
        trace = Trace.from_json(json.loads(text), trusted=False)
        if any(inst.name == "size_variants" for inst in trace.insts):
            raise ScheduleError("it has variants itself")
        trace.apply_to_schedule(made)
    except (ValueError, RecursionError) as error:
        raise sch.error(f"a trace is no JSON text: {error}", func.root) from None
    except ScheduleError as error:
        raise sch.error(f"a trace does not replay: {error.message}", func.root) from error
    result = made.mod[name]
    assert isinstance(result, PrimFunc)
    same = (
        result.buffer_map == func.buffer_map
        and dict(result.attrs) == dict(func.attrs)
        and result.root.annotations == func.root.annotations
    )
    if not same:
        raise sch.error("a variant changes parameters, attributes or annotations", func.root)
    return renew_definitions(result.root)  # type: ignore[no-any-return]  # a Block


def _dispatching(
    sch: Schedule, func: PrimFunc, size: Var, limits: Sequence[int], variants: Sequence[Block]
) -> Block:
    """Return the root block that chooses between bodies."""
    checks, _ = split_size_checks(variants[0].body)
    allocated = [buffer for variant in variants for buffer in variant.alloc_buffers]
    packing, bodies, left_out = _packed_once(sch, func, variants)
    allocated = [buffer for buffer in allocated if buffer not in left_out]
    taken: set[str] = set()
    packing = [_with_names(nest, taken) for nest in packing]
    bodies = [_with_names(body, taken) for body in bodies]
    made = bodies[-1]
    for limit, body in reversed(list(zip(limits, bodies))):
        made = IfThenElse(size <= const(limit, size.dtype), body, made)
    return func.root.replace(body=seq(*checks, *packing, made), alloc_buffers=tuple(allocated))


def _packed_once(
    sch: Schedule, func: PrimFunc, variants: Sequence[Block]
) -> tuple[list[Stmt], list[Stmt], set[Buffer]]:
    """Take what packs constant operands out of the bodies, once for all of them.

    It can be done before the function runs, if it isn't inside of a branch. Returns the packing,
    the bodies, and buffers that aren't needed any more.
    """
    nests: list[list[Stmt]] = []
    rests: list[Stmt] = []
    constants = constants_of(func)
    for variant in variants:
        _, body = split_size_checks(variant.body)
        stmts = _stmts(body)
        packs = [packs_constant(stmt, variant, constants) for stmt in stmts]
        nests.append([stmt for stmt, first in zip(stmts, packs) if first])
        rests.append(seq(*(stmt for stmt, first in zip(stmts, packs) if not first)))
    left_out: set[Buffer] = set()
    for number, own in enumerate(nests[1:], 1):
        if len(own) != len(nests[0]):
            raise sch.error("the variants pack different operands", func.root)
        changed: dict[Buffer, Buffer] = {}
        for first, other in zip(nests[0], own):
            if not structural_equal(_standalone(first), _standalone(other), map_free_vars=True):
                raise sch.error("the variants pack an operand into different layouts", func.root)
            changed[_packed(other)] = _packed(first)
        left_out |= set(changed)
        rests[number] = renew_definitions(rests[number], changed)
    return nests[0], rests, left_out


def _packed(nest: Stmt) -> Buffer:
    block = packing_block(nest)
    assert block is not None
    return block.writes[0].buffer


def _standalone(nest: Stmt) -> Stmt:
    """The packing with the buffer that it packs into as its own, to compare two of them."""
    return make_root_block(nest, (_packed(nest),))


def _with_names(stmt: Stmt, taken: set[str]) -> Any:
    """Rename blocks whose names are taken."""

    def go(node: Any) -> Any:
        if isinstance(node, Expr):
            return node
        made = node.map_children(go)
        if type(made) is not Block:
            return made
        name = fresh_name(made.name, taken)
        return made if name == made.name else made.replace(name=name)

    return go(stmt)
