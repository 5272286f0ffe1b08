"""The input of features: the stores of a scheduled program, with loops and accesses.

Extraction runs on the program before postprocs, with symbolic or concrete tiles alike. Indices are
normalised to the form ``sum of stride * loop``, with strides and extents as ``Num``s. The packing
of constant operands happens before the program runs, so it is excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir import (
    Add,
    Call,
    Cast,
    CompareExpr,
    Div,
    Expr,
    ExprLike,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Select,
    Sub,
    Var,
    dtypes,
    is_const,
)
from tilewright.meta_schedule.feature.numbers import Num, num_add, num_div, num_mul, num_sub, to_num
from tilewright.meta_schedule.schedule_rule.patterns import is_prepacking
from tilewright.scheduling.cpu import EXPENSIVE
from tilewright.support.errors import TuneError
from tilewright.tir import (
    REDUCE,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
)
from tilewright.tir.attrs import PARALLEL_KEY, UNROLL_KEY, VECTORIZE_KEY

FLOP_KINDS = ("mad", "add", "mul", "div", "compare", "math", "integer", "select")

Linear = dict[int, Num]
"""Strides by loop number."""


@dataclass
class LoopInfo:
    """A loop: extent, whether a reduction runs over it, whether it holds one loop only."""

    extent: Num
    reduce: bool = False
    chain: bool = True


@dataclass
class BufferInfo:
    """A buffer: bytes per element, extents, memory, and the loops around all its uses."""

    index: int
    bytes: float
    shape: list[Num]
    local: bool
    intermediate: bool
    around: tuple[int, ...] | None = None


@dataclass
class Access:
    """One buffer read or written by a store: strides of each index by loop."""

    buffer: BufferInfo
    write: bool
    read: bool
    indices: list[Linear]


@dataclass
class StoreInfo:
    """A store statement: loops around it, operations per execution, accesses (written first)."""

    loops: tuple[int, ...]
    flops: dict[str, float]
    accesses: list[Access]
    guarded: bool
    instances: Num
    """How often the block must run, without what a guard skips."""


@dataclass
class Program:
    """The facts about a scheduled function from which features are computed."""

    loops: list[LoopInfo] = field(default_factory=list)
    stores: list[StoreInfo] = field(default_factory=list)
    buffers: list[BufferInfo] = field(default_factory=list)
    parallel: Num = 0
    vectorize: Num = 0
    unroll: Num = 0


def extract(func: PrimFunc, tiles: Mapping[Var, Num] | None = None) -> Program:
    """Extract a function's stores; ``tiles`` gives columns (or values) of tile variables.

    Raises ``TuneError`` if an extent depends on something else.
    """
    return _Extractor(func, dict(tiles or {})).run()


class _Extractor:
    def __init__(self, func: PrimFunc, tiles: dict[Var, Num]) -> None:
        self.func = func
        self.tiles = tiles
        self.program = Program()
        self.values: dict[Var, Linear] = {}
        self.buffers: dict[Buffer, BufferInfo] = {}
        self.owned: set[Buffer] = set()
        self.path: list[int] = []
        self.guarded = False
        self.instances: Num = 1

    def run(self) -> Program:
        root = self.func.body
        if isinstance(root, BlockRealize):
            notes = root.block.annotations
            program = self.program
            program.parallel = self._note(notes.get(PARALLEL_KEY, 0))
            program.vectorize = self._note(notes.get(VECTORIZE_KEY, 0))
            program.unroll = self._note(notes.get(UNROLL_KEY, 0))
        self.walk(root)
        return self.program

    def _note(self, value: ExprLike) -> Num:
        if isinstance(value, Expr):
            return to_num(value, self.tiles)
        number: Num = value
        return number

    # ---- statements ---------------------------------------------------------------------------
    def walk(self, stmt: Any) -> None:
        kind = type(stmt)
        if kind is For:
            self.program.loops.append(
                LoopInfo(to_num(stmt.extent, self.tiles), chain=type(stmt.body) is For)
            )
            number = len(self.program.loops) - 1
            self.values[stmt.loop_var] = {number: 1}
            self.path.append(number)
            self.walk(stmt.body)
            self.path.pop()
        elif kind is SeqStmt:
            for item in stmt.stmts:
                self.walk(item)
        elif kind is BlockRealize:
            self.realize(stmt)
        elif kind is BufferStore:
            self.store(stmt)
        else:
            for item in stmt.child_nodes():
                if not isinstance(item, (Expr, Buffer)):
                    self.walk(item)

    def realize(self, stmt: BlockRealize) -> None:
        block = stmt.block
        if is_prepacking(block):
            self.owned.difference_update(region.buffer for region in block.writes)
            return
        self.owned.update(block.alloc_buffers)
        saved = self.guarded, self.instances
        self.guarded = self.guarded or not is_const(stmt.predicate, 1)
        for iter_var, value in zip(block.iter_vars, stmt.iter_values):
            linear = self.linear(value)
            self.values[iter_var.var] = linear
            self.instances = num_mul(self.instances, self.scalar(iter_var.dom.extent))
            if iter_var.kind == REDUCE:
                for loop in linear:
                    self.program.loops[loop].reduce = True
        self.walk(block.body)
        self.guarded, self.instances = saved

    def store(self, stmt: BufferStore) -> None:
        flops = dict.fromkeys(FLOP_KINDS, 0.0)
        loads: list[BufferLoad] = []
        self.count(stmt.value, flops, loads)
        accesses = [self.access(stmt.buffer, stmt.indices, write=True)]
        for load in loads:
            made = self.access(load.buffer, load.indices, write=False)
            for known in accesses:
                if known.buffer is made.buffer and known.indices == made.indices:
                    known.read = True
                    break
            else:
                accesses.append(made)
        path = tuple(self.path)
        for access in accesses:
            around = access.buffer.around
            access.buffer.around = path if around is None else _common(around, path)
        self.program.stores.append(StoreInfo(path, flops, accesses, self.guarded, self.instances))

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], *, write: bool) -> Access:
        info = self.buffers.get(buffer)
        if info is None:
            bits = dtypes.bits_of(buffer.dtype) * dtypes.lanes_of(buffer.dtype)
            info = self.buffers[buffer] = BufferInfo(
                len(self.buffers),
                bits / 8,
                [to_num(extent, self.tiles) for extent in buffer.shape],
                buffer.scope == "local",
                buffer in self.owned,
            )
            self.program.buffers.append(info)
        return Access(info, write, not write, [self.linear(index) for index in indices])

    # ---- expressions --------------------------------------------------------------------------
    def linear(self, expr: Expr) -> Linear:
        """Return strides by loop; quotients are taken as if they were exact."""
        if type(expr) is Var:
            return self.values.get(expr, {})
        read = _STRIDES.get(type(expr))
        return {} if read is None else read(self, expr)

    def _sum(self, expr: Add | Sub) -> Linear:
        left, right = self.linear(expr.a), self.linear(expr.b)
        if not right:
            return left
        made, join = dict(left), num_add if type(expr) is Add else num_sub
        for loop, stride in right.items():
            made[loop] = join(made.get(loop, 0), stride)
        return made

    def _product(self, expr: Mul) -> Linear:
        left, right = self.linear(expr.a), self.linear(expr.b)
        if left and right:
            return {**right, **left}
        factor = self.scalar(expr.b if left else expr.a)
        return {loop: num_mul(stride, factor) for loop, stride in (left or right).items()}

    def _quotient(self, expr: FloorDiv) -> Linear:
        parts = self.digits(expr)
        if parts is not None:
            return parts[0]
        left, right = self.linear(expr.a), self.linear(expr.b)
        if not left or right:
            return {**right, **left}
        factor = self.scalar(expr.b)
        return {loop: num_div(stride, factor) for loop, stride in left.items()}

    def _remainder(self, expr: FloorMod) -> Linear:
        parts = self.digits(expr)
        return self.linear(expr.a) if parts is None else parts[1]

    def _extremum(self, expr: Min | Max) -> Linear:
        return self.linear(expr.a) or self.linear(expr.b)

    def _by_data(self, expr: Any) -> Linear:
        """A data-dependent index: assume that consecutive iterations access random elements."""
        made: Linear = {}
        for item in expr.child_nodes():
            if not isinstance(item, Buffer):
                made.update(self.linear(item))
        return made

    def digits(self, expr: Any) -> tuple[Linear, Linear] | None:
        """Return quotient and remainder by a constant, if some loops count through the remainder.

        Such indices come from a loop split by the width of a panel. The strides of other loops are
        then multiples of the width, even where they depend on tiles.
        """
        width = self.scalar(expr.b) if type(expr.b) is IntImm else 0
        if not isinstance(width, int) or width <= 1:
            return None
        high: Linear = {}
        low: Linear = {}
        reach = 0
        for loop, stride in self.linear(expr.a).items():
            extent = self.program.loops[loop].extent
            if isinstance(stride, int) and 0 < stride < width and isinstance(extent, int):
                low[loop] = stride
                reach += stride * (extent - 1)
            elif isinstance(stride, str):
                high[loop] = num_div(stride, width)
            elif stride % width == 0:
                high[loop] = stride // width
            else:
                return None
        return (high, low) if low and reach < width else None

    def scalar(self, expr: Expr | IntImm) -> Num:
        try:
            return to_num(expr, self.tiles)
        except TuneError:
            return 1

    def count(self, expr: Any, flops: dict[str, float], loads: list[BufferLoad]) -> None:
        """Count operations by kind, and collect loads."""
        kind: Any = type(expr)
        if kind is BufferLoad:
            loads.append(expr)
            return
        if kind is Var or not issubclass(kind, Expr):
            return
        floating = dtypes.is_float(dtypes.element_of(expr.dtype))
        if kind is Call:
            name = expr.op.name
            if name == "if_then_else":
                flops["select"] += 1
            else:
                flops["math" if name in EXPENSIVE else "add"] += 1
        elif kind is Select or kind is Not:
            flops["select"] += 1
        elif issubclass(kind, CompareExpr):
            flops["compare"] += 1
        elif kind in (Add, Sub, Mul, Div, FloorDiv, FloorMod, Min, Max):
            if not floating:
                flops["integer"] += 1
            elif kind is Add and (type(expr.a) is Mul or type(expr.b) is Mul):
                flops["mad"] += 1
                flops["mul"] -= 1
            elif kind in (Add, Sub):
                flops["add"] += 1
            elif kind is Mul:
                flops["mul"] += 1
            elif kind in (Min, Max):
                flops["compare"] += 1
            else:
                flops["div"] += 1
        for item in expr.child_nodes():
            self.count(item, flops, loads)


_STRIDES: dict[type, Callable[[_Extractor, Any], Linear]] = {
    Add: _Extractor._sum,
    Sub: _Extractor._sum,
    Mul: _Extractor._product,
    FloorDiv: _Extractor._quotient,
    FloorMod: _Extractor._remainder,
    Min: _Extractor._extremum,
    Max: _Extractor._extremum,
    Cast: lambda self, expr: self.linear(expr.value),
    BufferLoad: _Extractor._by_data,
    Call: _Extractor._by_data,
    Select: _Extractor._by_data,
}
"""How indices of each kind give strides; others have none."""


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return a[:length]
