"""Turn vectorized loops into vector expressions.

A loop over ``n`` iterations becomes one pass over its body in which the loop variable is the
vector ``0 .. n-1``. Lengths that make no good vector are cut into chunks of the target's vector
width and a rest of smaller powers of two; a symbolic length ends in one masked chunk. Conditions
that differ between lanes become branches with a vector condition, which the code generator turns
into masks. Of an iteration's own memory each lane has a copy. Bodies that can't be vectorized (a
loop whose length differs between lanes, calls of foreign code) become serial loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith import Analyzer, holds_data
from tilewright.ir import (
    INDEX,
    Add,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Mul,
    Not,
    Ramp,
    ScalableLanes,
    Select,
    Shuffle,
    Sub,
    Var,
    and_,
    as_int,
    cast,
    const,
    dtypes,
    floordiv,
    floormod,
    found_lanes,
    most_lanes,
    pre_order,
    substitute,
    uses_var,
)
from tilewright.tir.attrs import NO_ALIAS
from tilewright.tir.buffer import Buffer, BufferLoad, decl_buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import renew_definitions
from tilewright.tir.stmt import (
    NO_OP,
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Allocate,
    AssertStmt,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
    seq,
)
from tilewright.tir.transform.base import (
    FunctionTransform,
    Replacing,
    StmtMutator,
    bind_loop,
    function_analyzer,
)
from tilewright.tir.transform.effects import memory_read
from tilewright.tir.transform.square_tiles import in_square_tiles
from tilewright.tir.walk import loads_of, statements

#: Vectors longer than this many registers are cut into chunks.
MAX_REGISTERS = 4
_UNROLL_CHUNKS = 8
#: Most vectors whose lanes are stored by turns.
_INTERLEAVED = 8
#: Most elements of memory of an iteration's own, of which every lane gets a copy.
_OWN = 64
#: What has the same effect if it is done once for all lanes.
_ONCE = ("assume", "prefetch", "storage_sync", "warp_")


class VectorizeLoop(FunctionTransform):
    """Vectorize loops for registers of ``vector_bits`` bits.

    Without ``enable_vectorize``, loops to be vectorized become serial ones.
    """

    def __init__(self, enable_vectorize: bool = True, *, vector_bits: int = 512) -> None:
        self.enable_vectorize = enable_vectorize
        self.vector_bits = vector_bits

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        if not self.enable_vectorize:
            return func.map_children(_Serialiser().visit)
        return func.map_children(_LoopFinder(func, self.vector_bits).visit)


class _CannotVectorize(Exception):
    pass


class _Serialiser(StmtMutator):
    def visit_For(self, node: For) -> For:
        made: For = self.generic_visit(node)
        return made.replace(kind=SERIAL) if made.kind == VECTORIZED else made


class _LoopFinder(StmtMutator):
    def __init__(self, func: PrimFunc, vector_bits: int) -> None:
        self.func = func
        self.vector_bits = vector_bits
        # Whether moves may be cut into tiles that overlap.
        self.tiles = bool(func.attrs.get(NO_ALIAS, True))
        self.around: list[For] = []
        self._known: Analyzer | None = None

    def known(self) -> Analyzer:
        """What the loops around and below say; made for the few loops that ask."""
        if self._known is None:
            self._known = function_analyzer(self.func)
            below = statements(self.around[-1]) if self.around else ()
            for loop in (*self.around, *below):
                if isinstance(loop, For) and (loop in self.around or as_int(loop.extent)):
                    bind_loop(self._known, loop)
        return self._known

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        return node

    def visit_For(self, node: For) -> Any:
        if self.tiles and node.kind == UNROLLED:
            tiled = in_square_tiles(node, self.vector_bits, self.known)
            if tiled is not None:
                return self.visit(tiled)
        self.around.append(node)
        node = self.generic_visit(node)
        made: Stmt = node
        if node.kind == VECTORIZED:
            self.around[-1], self._known = node, None
            made = self._vectorize(node)
        self.around.pop()
        self._known = None
        return made

    def _vectorize(self, loop: For) -> Stmt:
        width = max(1, self.vector_bits // _element_bits(loop.body))
        extent = as_int(loop.extent)
        if extent is not None and extent <= 0:
            return NO_OP
        if memory_read(loop.min):
            return loop.replace(kind=SERIAL)  # what is written may change where it started
        try:
            scalable = found_lanes(loop.extent) if extent is None else None
            if scalable is not None:
                return self._vectorized(loop, loop.min, scalable)
            if extent is None:
                return self._symbolic(loop, width)
            if extent & (extent - 1) == 0 and extent <= MAX_REGISTERS * width:
                return self._vectorized(loop, loop.min, extent)
            segments: list[Stmt] = []
            chunks = extent // width
            if chunks:
                chunk = Var(f"{loop.loop_var.name}_chunk", loop.loop_var.dtype)
                body = self._vectorized(loop, loop.min + chunk * width, width)
                kind = UNROLLED if chunks <= _UNROLL_CHUNKS else SERIAL
                segments.append(For(chunk, const(0), const(chunks), kind, body))
            done = chunks * width
            while done < extent:
                lanes = 1 << ((extent - done).bit_length() - 1)
                segments.append(self._vectorized(loop, loop.min + done, lanes))
                done += lanes
            return seq(*segments)
        except _CannotVectorize:
            return loop.replace(kind=SERIAL)

    def _vectorized(self, loop: For, start: Expr, lanes: int, *, masked: bool = False) -> Stmt:
        """The body for iterations ``start .. start + lanes - 1``; some may be ``masked`` off."""
        body = loop.body
        if lanes == 1:
            made: Stmt = substitute(body, {loop.loop_var: start})
        else:
            made = _Vectorizer(loop.loop_var, start, lanes, self.known, masked).visit(body)
        copied: Stmt = renew_definitions(made)
        return copied

    def _symbolic(self, loop: For, width: int) -> Stmt:
        """Full chunks, then one whose lanes beyond the end are masked off."""
        chunk = Var(f"{loop.loop_var.name}_chunk", loop.loop_var.dtype)
        full = floordiv(loop.extent, width)
        body = self._vectorized(loop, loop.min + chunk * width, width)
        main = For(chunk, const(0), full, SERIAL, body)
        start = full * width
        lane = Ramp(start, const(1), width)
        mask = lane < Broadcast(loop.extent, width)
        tail = IfThenElse(mask, self._vectorized(loop, loop.min + start, width, masked=True))
        left = start < loop.extent
        if not self._outside().can_prove(loop.extent >= 0):
            left = and_(loop.extent > 0, left)  # no iteration, as of 0
        return seq(main, IfThenElse(left, tail))

    def _outside(self) -> Analyzer:
        """What is known where the innermost loop may have no iterations."""
        known = function_analyzer(self.func)
        for loop in self.around[:-1]:
            bind_loop(known, loop)
        return known


def _element_bits(body: Stmt) -> int:
    """Bits of the widest element that the body stores."""
    found = [
        max(8, dtypes.bits_of(item.buffer.dtype))
        for item in (body, *statements(body))
        if isinstance(item, BufferStore)
    ]
    return max(found, default=32)


def _lanes(expr: Expr) -> int:
    return dtypes.lanes_of(expr.dtype)


class _Vectorizer(Replacing):
    """Rewrites a loop body with the loop variable replaced by a vector."""

    def __init__(
        self, var: Var, start: Expr, lanes: int, known: Callable[[], Analyzer], masked: bool
    ) -> None:
        self.var = var
        self.lanes = lanes
        self.masked = masked  # whether the code will run under a condition of as many lanes
        self.known = known
        self.values: dict[Var, Expr] = {var: Ramp(start, const(1, var.dtype), lanes)}
        self.own: dict[Buffer, Buffer] = {}  # memory of an iteration, and of all lanes

    def widen(self, expr: Expr) -> Expr:
        """Repeat a scalar in all lanes."""
        count = _lanes(expr)
        if count == self.lanes:
            return expr
        if count != 1:
            raise _CannotVectorize
        return Broadcast(expr, self.lanes)

    def together(self, *exprs: Expr) -> tuple[Expr, ...]:
        """Bring operands to the same number of lanes."""
        if all(_lanes(expr) == 1 for expr in exprs):
            return exprs
        return tuple(map(self.widen, exprs))

    # ---- expressions

    def visit_BinaryExpr(self, node: BinaryExpr) -> Expr:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        return type(node)(*self.together(a, b))

    def visit_Add(self, node: Add) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        for first, second in ((a, b), (b, a)):
            if isinstance(first, Ramp) and _lanes(second) == 1:
                return Ramp(first.base + second, first.stride, first.lanes)
        if isinstance(a, Ramp) and isinstance(b, Ramp):
            return Ramp(a.base + b.base, a.stride + b.stride, a.lanes)
        return Add(*self.together(a, b))

    def visit_Sub(self, node: Sub) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        if isinstance(a, Ramp) and _lanes(b) == 1:
            return Ramp(a.base - b, a.stride, a.lanes)
        if isinstance(b, Ramp) and _lanes(a) == 1:
            return Ramp(a - b.base, 0 - b.stride, b.lanes)
        return Sub(*self.together(a, b))

    def visit_Mul(self, node: Mul) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        for first, second in ((a, b), (b, a)):
            if isinstance(first, Ramp) and _lanes(second) == 1:
                return Ramp(first.base * second, first.stride * second, first.lanes)
        return Mul(*self.together(a, b))

    def _division(self, node: Any) -> Any:
        """Quotient and remainder of a ramp that stays within one multiple are simple again."""
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        divisor = as_int(b) if isinstance(b, IntImm) else None
        quotient = type(node) is FloorDiv
        whole = isinstance(a, Ramp) and not holds_data(a.base)  # lanes of data may wrap
        if whole and divisor and divisor > 0 and as_int(a.stride) is not None:
            stride = as_int(a.stride)
            assert stride is not None
            if stride % divisor == 0:
                if quotient:
                    step = const(stride // divisor, a.stride.dtype)
                    return Ramp(floordiv(a.base, b), step, a.lanes)
                return Broadcast(floormod(a.base, b), a.lanes)
            span = stride * (most_lanes(a.lanes) - 1)
            rest = self.known().simplify(floormod(a.base, b))
            if stride > 0 and self.known().can_prove(rest + span < b):
                if quotient:
                    return Broadcast(self.known().simplify(floordiv(a.base, b)), a.lanes)
                return Ramp(rest, a.stride, a.lanes)
        return type(node)(*self.together(a, b))

    def visit_FloorDiv(self, node: FloorDiv) -> Any:
        return self._division(node)

    def visit_FloorMod(self, node: FloorMod) -> Any:
        return self._division(node)

    def visit_Not(self, node: Not) -> Expr:
        a = self.visit(node.a)
        return node if a is node.a else Not(a)

    def visit_Cast(self, node: Cast) -> Expr:
        value = self.visit(node.value)
        if value is node.value:
            return node
        if isinstance(value, Broadcast):
            return Broadcast(Cast(node.dtype, value.value), value.lanes)
        return Cast(dtypes.vector_dtype(dtypes.element_of(node.dtype), _lanes(value)), value)

    def visit_Select(self, node: Select) -> Expr:
        condition = self.visit(node.condition)
        a, b = self.together(self.visit(node.true_value), self.visit(node.false_value))
        if condition is node.condition and a is node.true_value and b is node.false_value:
            return node
        if _lanes(condition) > 1:
            a, b = self.widen(a), self.widen(b)
        return Select(condition, a, b)

    def visit_Ramp(self, node: Ramp) -> Expr:
        return self._keep_vector(node)

    def visit_Broadcast(self, node: Broadcast) -> Expr:
        return self._keep_vector(node)

    def visit_Shuffle(self, node: Shuffle) -> Expr:
        return self._keep_vector(node)

    def _keep_vector(self, node: Expr) -> Expr:
        """Vectors inside must be the same for all iterations: there are no vectors of vectors."""
        if uses_var(node, self.values) or any(loads_of(node, buffer) for buffer in self.own):
            raise _CannotVectorize
        return node

    def visit_BufferLoad(self, node: BufferLoad) -> Expr:
        if node.buffer in self.own:
            return BufferLoad(self.own[node.buffer], (self._of_lanes(node.indices),))
        indices = tuple(map(self.visit, node.indices))
        if all(a is b for a, b in zip(indices, node.indices)):
            return node
        if dtypes.lanes_of(node.dtype) > 1:
            raise _CannotVectorize
        return BufferLoad(node.buffer, indices)

    def visit_Call(self, node: Call) -> Expr:
        if node.op.name == "dot_accumulate":
            return self._dot(node)
        args = tuple(map(self.visit, node.args))
        if all(a is b for a, b in zip(args, node.args)):
            if node.op.effect in ("update", "opaque") and not node.op.name.startswith(_ONCE):
                raise _CannotVectorize  # each iteration has the effect
            return node
        if node.op.effect != "pure" or node.op.name.startswith(("vector_", "address_of")):
            raise _CannotVectorize
        if node.op.name == "if_then_else":
            condition, yes, no = args
            yes, no = self.together(yes, no)
            if _lanes(condition) > 1:
                yes, no = self.widen(yes), self.widen(no)
            return Call.of_fields(node.op, (condition, yes, no), yes.dtype)
        if node.op.name.startswith("call_"):
            raise _CannotVectorize
        args = self.together(*args)
        if args and _lanes(args[0]) == 1:  # what is new in them is the same for all lanes
            return Call.of_fields(node.op, args, node.dtype)
        dtype = dtypes.vector_dtype(dtypes.element_of(node.dtype), self.lanes)
        return Call.of_fields(node.op, args, dtype)

    def _dot(self, node: Call) -> Call:
        """Results side by side: neighbours of an operand lie side by side too, or are shared."""
        total = self.widen(self.visit(node.args[0]))
        operands = tuple(map(self._neighbours, node.args[1:]))
        return Call.of_fields(node.op, (total, *operands), total.dtype)

    def _neighbours(self, expr: Expr) -> Expr:
        if not uses_var(expr, self.values):
            return expr
        index = expr.indices[0] if isinstance(expr, BufferLoad) and len(expr.indices) == 1 else None
        if not isinstance(expr, BufferLoad) or not isinstance(index, Ramp):
            raise _CannotVectorize
        base = self.visit(index.base)
        if not isinstance(base, Ramp) or as_int(index.stride) != 1:
            raise _CannotVectorize
        if as_int(self.known().simplify(base.stride)) != index.lanes:
            raise _CannotVectorize
        if self.masked:
            raise _CannotVectorize  # the mask has one lane for each result
        lanes = index.lanes * self.lanes
        return BufferLoad(expr.buffer, (Ramp(base.base, index.stride, lanes),))

    def visit_Let(self, node: Let) -> Expr:
        value = self.visit(node.value)
        self._bind(node.var, value)
        body = self.visit(node.body)
        if value is node.value and body is node.body:
            return node
        return Let(self._bound(node.var), value, body)

    def _bind(self, var: Var, value: Expr) -> None:
        if _lanes(value) > 1:
            self.values[var] = Var(var.name, value.dtype)

    def _bound(self, var: Var) -> Var:
        found = self.values.get(var, var)
        assert isinstance(found, Var)
        return found

    # ---- statements

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        value = self.visit(node.value)
        if node.buffer in self.own:
            if dtypes.lanes_of(node.value.dtype) > 1:
                raise _CannotVectorize
            place = self._of_lanes(node.indices)
            return BufferStore(self.own[node.buffer], self.widen(value), (place,))
        indices = tuple(map(self.visit, node.indices))
        wide = any(_lanes(index) > 1 for index in indices)
        if not wide:
            if _lanes(value) > 1 or loads_of(value, node.buffer):
                raise _CannotVectorize
            if value is node.value:
                return node
            return BufferStore(node.buffer, value, indices)
        if dtypes.lanes_of(node.value.dtype) > 1:
            raise _CannotVectorize
        return BufferStore(node.buffer, self.widen(value), indices)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        condition = self.visit(node.condition)
        then_case = self.visit(node.then_case)
        else_case = None if node.else_case is None else self.visit(node.else_case)
        if _lanes(condition) > 1:
            for case in (then_case, else_case):
                if case is not None and not _maskable(case, self.lanes):
                    raise _CannotVectorize
        return IfThenElse(condition, then_case, else_case)

    def visit_For(self, node: For) -> BufferStore | For:
        minimum, extent = self.visit(node.min), self.visit(node.extent)
        if _lanes(minimum) > 1 or _lanes(extent) > 1:
            raise _CannotVectorize
        if (made := self._interleaved(node)) is not None:
            return made
        # Some lanes may be off: threads would not know which.
        kind = SERIAL if node.kind == PARALLEL else node.kind
        return node.replace(min=minimum, extent=extent, body=self.visit(node.body), kind=kind)

    def _interleaved(self, loop: For) -> BufferStore | None:
        """``for q in 4: A[i * 4 + q] = ...``: all lanes of ``i`` together fill one place.

        One vector for each ``q``, and one store of what they have by turns.
        """
        store, count = loop.body, as_int(loop.extent)
        if not isinstance(store, BufferStore) or as_int(loop.min) != 0 or count is None:
            return None
        if self.masked or store.buffer in self.own:
            return None  # the mask has one lane for each iteration, not for each element
        if not 2 <= count <= _INTERLEAVED or dtypes.lanes_of(store.value.dtype) > 1:
            return None
        if len(store.indices) != 1 or _reads_data(store.value, store.buffer):
            return None
        first = self.visit(substitute(store.indices[0], {loop.loop_var: const(0)}))
        step = substitute(store.indices[0], {loop.loop_var: const(1)}) - substitute(
            store.indices[0], {loop.loop_var: const(0)}
        )
        if not isinstance(first, Ramp) or as_int(self.known().simplify(step)) != 1:
            return None
        if as_int(self.known().simplify(first.stride)) != count:
            return None
        values = [
            self.widen(self.visit(substitute(store.value, {loop.loop_var: const(q)})))
            for q in range(count)
        ]
        picks = tuple(q * self.lanes + lane for lane in range(self.lanes) for q in range(count))
        index = Ramp(first.base, const(1), count * self.lanes)
        return BufferStore(store.buffer, Shuffle(tuple(values), picks), (index,))

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        value = self.visit(node.value)
        self._bind(node.var, value)
        body = self.visit(node.body)
        return LetStmt(self._bound(node.var), value, body)

    def visit_While(self, node: While) -> Stmt:
        raise _CannotVectorize

    def visit_AssertStmt(self, node: AssertStmt) -> Stmt:
        condition = self.visit(node.condition)
        if _lanes(condition) > 1:
            raise _CannotVectorize
        return node if condition is node.condition else node.replace(condition=condition)

    def visit_Allocate(self, node: Allocate) -> Stmt:
        """Each iteration has memory of its own: of each element, all lanes lie side by side."""
        buffer = node.buffer
        extent = as_int(buffer.shape[0]) if buffer.ndim == 1 else None
        if extent is None or extent > _OWN or node.annotations or buffer.strides:
            raise _CannotVectorize
        if dtypes.lanes_of(buffer.dtype) > 1 or isinstance(self.lanes, ScalableLanes):
            raise _CannotVectorize
        wide = decl_buffer((extent * self.lanes,), buffer.dtype, buffer.name, scope=buffer.scope)
        self.own[buffer] = wide
        return Allocate(wide, self.visit(node.body))

    def _of_lanes(self, indices: Sequence[Expr]) -> Expr:
        """Where the lanes' copies of an element are."""
        (index,) = indices
        if _lanes(index) > 1:
            raise _CannotVectorize  # a vector of an iteration, not one of its places
        index = self.visit(index)
        if _lanes(index) == 1:
            return Ramp(cast(index, INDEX) * self.lanes, const(1), self.lanes)
        # In a narrow integer the place of an element of all copies may have no room.
        wide = cast(self.widen(index), dtypes.vector_dtype(INDEX, self.lanes))
        return wide * Broadcast(const(self.lanes), self.lanes) + Ramp(
            const(0), const(1), self.lanes
        )

    def visit_DeclBuffer(self, node: DeclBuffer) -> Stmt:
        raise _CannotVectorize


def _reads_data(expr: Expr, buffer: Buffer) -> bool:
    return any(isinstance(i, BufferLoad) and i.buffer.data is buffer.data for i in pre_order(expr))


def _maskable(stmt: Stmt, lanes: int) -> bool:
    """Whether all stores inside may be masked lane by lane."""
    return all(
        not isinstance(item, BufferStore) or _lanes(item.indices[-1]) == lanes
        for item in pre_order(stmt)
    )
