"""Random TIR: every node class, nested scopes, strange names, all dtypes.

Programs need not make sense (nothing runs them); they only have to be trees that the IR can hold.
"""

from __future__ import annotations

import math
from random import Random

from tilewright.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    OPS,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    GlobalVar,
    IntImm,
    IRModule,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Range,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
    as_int,
    const,
    dtypes,
)
from tilewright.target import Target
from tilewright.tir import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IndexMap,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    SeqStmt,
    While,
    make_root_block,
)
from tilewright.tir.stmt import ERROR_KINDS

NAMES = (
    "i", "i", "v", "A", "A", "T", "I", "R", "for", "lambda", "None", "True", "i_1", "A.local",
    "1x", "", "x y", "ä", "print", "range", "data", "v_1", "A_data", "match", "self", "cls",
    "main", "float", "max", "int64", "__class__", "tilewright", "_", "é-1", "ﬁ", "root",
)  # fmt: skip
TEXTS = (
    "",
    "a",
    "it's",
    'say "x"',
    "a\nb",
    "\\",
    "{x}",
    "\x01",
    "tab\t",
    "# no",
    "ä",
    "'''",
    "T.x",
)
FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64")
INTS = (
    "int64", "int64", "int64", "int32", "int16", "int8", "int4", "uint4", "uint8", "uint16",
    "uint32", "uint64",
)  # fmt: skip
DTYPES = (*FLOATS, *INTS, "bool")
SPECIAL = (0.0, -0.0, 1.0, -1.5, 1e-30, 3.0e38, math.inf, -math.inf, math.nan, 1 / 3)
PURE = tuple(OPS.get(name) for name in ("exp", "pow", "isnan", "shift_left", "bitwise_not"))
KINDS = ("serial", "parallel", "vectorized", "unrolled", "thread_binding")
THREADS = ("threadIdx.x", "blockIdx.y", "vthread.x", "vthread")


class Trees:
    """Makes trees; ``rng`` decides, ``depth`` bounds."""

    def __init__(self, rng: Random, *, vectors: bool = True) -> None:
        self.rng = rng
        self.vars: list[Var] = []
        self.buffers: list[Buffer] = []
        self.blocks = 0
        self.vectors = vectors

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def name(self) -> str:
        return self.rng.choice(NAMES)

    def var(self, dtype: str = "int64") -> Var:
        return Var(self.name(), dtype)

    # ---- expressions ---------------------------------------------------------------------

    def scalar_dtype(self) -> str:
        return "int64" if self.chance(40) else self.rng.choice(DTYPES)

    def dtype(self) -> str:
        element = self.scalar_dtype()
        if self.vectors and self.chance(12):
            return f"{element}x{self.rng.choice((2, 4, 8))}"
        return element

    def constant(self, dtype: str):
        element, lanes = dtypes.split_dtype(dtype)
        if lanes > 1:
            return Broadcast(self.constant(element), lanes)
        if dtypes.is_float(element):
            return FloatImm(element, self.rng.choice(SPECIAL))
        if element == "handle":
            return IntImm(element, 0)
        low, high = dtypes.integer_limits(element)
        value = self.rng.choice((0, 1, 2, -1, 7, low, high, low + 1))
        return IntImm(element, min(max(value, low), high))

    def leaf(self, dtype: str):
        found = [var for var in self.vars if var.dtype == dtype]
        if found and self.chance(70):
            return self.rng.choice(found)
        if self.chance(15):
            var = self.var(dtype)
            self.vars.append(var)
            return var
        return self.constant(dtype)

    def expr(self, dtype: str = "int64", depth: int = 3):
        if depth <= 0 or self.chance(20):
            return self.leaf(dtype)
        element, lanes = dtypes.split_dtype(dtype)
        makers = [self._arithmetic, self._select, self._let, self._cast, self._call, self._load]
        if lanes > 1:
            makers += [self._ramp, self._broadcast, self._shuffle]
        if element == "bool":
            makers += [self._compare] * 3 + [self._logic] * 3
        return self.rng.choice(makers)(dtype, depth - 1)

    def _arithmetic(self, dtype, depth):
        element = dtypes.element_of(dtype)
        if element == "bool":
            return self._logic(dtype, depth)
        kinds = [Add, Sub, Mul, Min, Max, Add, Sub]
        kinds += [Div] if dtypes.is_float(element) else [FloorDiv, FloorMod]
        right = dtype if self.chance(96) else self.scalar_dtype()
        return self.rng.choice(kinds)(self.expr(dtype, depth), self.expr(right, depth))

    def _compare(self, dtype, depth):
        operand = dtypes.vector_dtype(self.scalar_dtype(), dtypes.lanes_of(dtype))
        kind = self.rng.choice((EQ, NE, LT, LE, GT, GE))
        return kind(self.expr(operand, depth), self.expr(operand, depth))

    def _logic(self, dtype, depth):
        kind = self.rng.choice((And, Or, Not))
        if kind is Not:
            return Not(self.expr(dtype, depth))
        return kind(self.expr(dtype, depth), self.expr(dtype, depth))

    def _condition(self, depth):
        return self.expr("bool", depth)

    def _select(self, dtype, depth):
        values = self.expr(dtype, depth), self.expr(dtype, depth)
        if self.chance(50):
            return Select(self._condition(depth), *values)
        return Call.of_fields(OPS.get("if_then_else"), (self._condition(depth), *values), dtype)

    def _let(self, dtype, depth):
        kind = self.scalar_dtype()
        var = self.var(kind)
        value = self.expr(kind, depth)
        before = list(self.vars)
        self.vars.append(var)
        body = self.expr(dtype, depth)
        self.vars = before
        return Let(var, value, body)

    def _cast(self, dtype, depth):
        source = dtypes.vector_dtype(self.scalar_dtype(), dtypes.lanes_of(dtype))
        return Cast(dtype, self.expr(source, depth))

    def _call(self, dtype, depth):
        pick = self.rng.randrange(4)
        if pick == 0:
            args = (StringImm(self.rng.choice(TEXTS)), self.expr(self.dtype(), depth))
            if self.buffers and self.chance(60):
                args += (self.rng.choice(self.buffers).data,)
            return Call.of_fields(OPS.get("call_extern"), args, dtype)
        if pick == 1:
            return Call.of_fields(
                OPS.get("truncdiv"), (self.expr(dtype, depth), self.expr(dtype, depth)), dtype
            )
        op = self.rng.choice(PURE)
        count = op.arity if self.chance(90) else self.rng.randrange(3)
        return Call.of_fields(op, tuple(self.expr(dtype, depth) for _ in range(count or 0)), dtype)

    def _load(self, dtype, depth):
        element, lanes = dtypes.split_dtype(dtype)
        found = [b for b in self.buffers if b.dtype == element and (b.shape or lanes == 1)]
        if not found:
            return self.leaf(dtype)
        buffer = self.rng.choice(found)
        return BufferLoad(buffer, self._indices(buffer, lanes, depth))

    def _indices(self, buffer, lanes, depth):
        indices = [self.expr("int64", depth) for _ in buffer.shape]
        if lanes > 1:
            indices[-1] = (
                Ramp(indices[-1], const(1), lanes) if self.chance(60)
                else self.expr(f"int64x{lanes}", depth)
            )  # fmt: skip
        return tuple(indices)

    def _ramp(self, dtype, depth):
        element, lanes = dtypes.split_dtype(dtype)
        return Ramp(self.expr(element, depth), self.expr(element, depth), lanes)

    def _broadcast(self, dtype, depth):
        element, lanes = dtypes.split_dtype(dtype)
        return Broadcast(self.expr(element, depth), lanes)

    def _shuffle(self, dtype, depth):
        element, lanes = dtypes.split_dtype(dtype)
        vectors = tuple(self.expr(f"{element}x2", depth) for _ in range(self.rng.randrange(1, 3)))
        total = 2 * len(vectors)
        return Shuffle(vectors, tuple(self.rng.randrange(total) for _ in range(lanes)))

    # ---- attributes ----------------------------------------------------------------------

    def attribute(self, depth: int = 2):
        makers = [
            lambda: self.rng.choice(TEXTS),
            lambda: self.rng.choice((0, -1, 2**70, True, False, None, 1.5, -math.inf, b"x")),
            lambda: self.expr(self.scalar_dtype(), 1),
            lambda: self.constant(self.scalar_dtype()),
            lambda: StringImm(self.rng.choice(TEXTS)),
            lambda: Range.from_min_extent(self.expr(depth=1), self.expr(depth=1)),
            lambda: Target("llvm"),
            lambda: GlobalVar(self.name()),
            self._index_map,
        ]
        if self.buffers:
            makers.append(lambda: self.rng.choice(self.buffers))
            makers.append(lambda: self._region(self.rng.choice(self.buffers)))
        if depth > 0:
            inside = range(self.rng.randrange(3))
            makers += [
                lambda: [self.attribute(depth - 1) for _ in inside],
                lambda: tuple(self.attribute(depth - 1) for _ in inside),
                lambda: self.annotations(depth - 1),
            ]
        return self.rng.choice(makers)()

    def _index_map(self):
        first, second = self.var(), self.var()
        outside = self.vars
        self.vars = [first, second]
        final = tuple(self.expr("int64", 2) for _ in range(self.rng.randrange(1, 4)))
        self.vars = outside
        separators = (1,) if len(final) > 1 and self.chance(50) else ()
        return IndexMap((first, second), final, None, separators)

    def plain_attributes(self):
        values = (0, 2**70, None, "it's", [1, (2.5,)], {"k": Target("llvm")}, GlobalVar("main"))
        return {key: self.rng.choice(values) for key in self.rng.sample(TEXTS, 2)}

    def annotations(self, depth: int = 2):
        if not self.chance(30):
            return {}
        return {self.rng.choice(TEXTS): self.attribute(depth) for _ in range(2)}

    # ---- buffers -------------------------------------------------------------------------

    def buffer(self, ndim: int | None = None, dtype: str | None = None, **fixed) -> Buffer:
        ndim = self.rng.randrange(4) if ndim is None else ndim
        rare = self.chance(30)
        shape = tuple(
            self._extent() if self.chance(25) else const(self.rng.choice((1, 4, 16, 33)))
            for _ in range(ndim)
        )
        if math.prod(as_int(extent) or 1 for extent in shape) >= 1 << 63:
            shape = tuple(const(4) for _ in shape)  # more elements than that aren't a buffer's
        dtype = dtype or self.rng.choice(DTYPES)
        if self.vectors and self.chance(4):
            dtype += "x4"
        strides = tuple(self.expr("int64", 1) for _ in shape) if rare and self.chance(50) else ()
        offset = self.expr("int64", 1) if rare and self.chance(50) else None
        scope = self.rng.choice(("global", "global", "local", "shared", "shared.dyn", "wmma.x_y"))
        separators = (1,) if rare and ndim > 1 else ()
        align = 64 if not rare else self.rng.choice((1, 64, 128))
        data = fixed.get("data")
        if data is None and self.buffers and self.chance(15):
            data = self.rng.choice(self.buffers).data
        if data is None and self.chance(10):
            data = self.var("handle")
        made = Buffer(self.name(), shape, dtype, strides, offset, scope, align, separators, data)
        return made

    def _extent(self):
        made = self.expr("int64", 1)
        return const(0) if isinstance(made, IntImm) and made.value < 0 else made

    def _region(self, buffer: Buffer) -> BufferRegion:
        return BufferRegion(
            buffer,
            tuple(
                Range.from_min_extent(
                    self.expr("int64", 2),
                    const(self.rng.choice((1, 1, 4))) if self.chance(70) else self.expr("int64", 2),
                )
                for _ in buffer.shape
            ),
        )

    # ---- statements ----------------------------------------------------------------------

    def stmt(self, depth: int = 4):
        if depth <= 0:
            return self.rng.choice((self._store, self._evaluate, self._assert))(0)
        makers = (
            self._store, self._evaluate, self._assert, self._seq, self._seq, self._if, self._while,
            self._let_stmt, self._for, self._for, self._for, self._attr, self._allocate,
            self._declare, self._realize, self._realize, self._bare_block,
        )  # fmt: skip
        saved = list(self.vars), list(self.buffers)
        made = self.rng.choice(makers)(depth - 1)
        self.vars, self.buffers = saved
        return made

    def _store(self, depth):
        if not self.buffers:
            return self._evaluate(depth)
        buffer = self.rng.choice(self.buffers)
        lanes = 4 if buffer.shape and self.vectors and self.chance(20) else 1
        element, own = dtypes.split_dtype(buffer.dtype)
        indices = self._indices(buffer, lanes, 2)
        value = self.expr(dtypes.vector_dtype(element, own * lanes))
        return BufferStore(buffer, value, indices)

    def _evaluate(self, depth):
        return Evaluate(self.expr(self.dtype()))

    def _assert(self, depth):
        return AssertStmt(self.rng.choice(ERROR_KINDS), self._condition(2), self.rng.choice(TEXTS))

    def _seq(self, depth):
        return SeqStmt(tuple(self.stmt(depth) for _ in range(self.rng.randrange(4))))

    def _if(self, depth):
        condition = self._condition(2)
        other = self.stmt(depth) if self.chance(50) else None
        return IfThenElse(condition, self.stmt(depth), other)

    def _while(self, depth):
        return While(self._condition(2), self.stmt(depth))

    def _let_stmt(self, depth):
        dtype = self.dtype() if self.chance(90) else "handle"
        value = self.expr(dtype if self.chance(95) else self.dtype())
        var = self.var(dtype)
        self.vars.append(var)
        return LetStmt(var, value, self.stmt(depth))

    def _for(self, depth):
        dtype = "int64" if self.chance(80) else self.rng.choice(INTS)
        var = self.var(dtype)
        minimum = IntImm(dtype, 0) if self.chance(70) else self.expr(dtype, 1)
        extent = self.constant(dtype) if self.chance(60) else self.expr(dtype, 2)
        kind = "serial" if self.chance(60) else self.rng.choice(KINDS)
        thread = self.rng.choice(THREADS) if kind == "thread_binding" else None
        annotations = self.annotations()
        self.vars.append(var)
        return For(var, minimum, extent, kind, self.stmt(depth), thread, annotations)

    def _attr(self, depth):
        subject = self.attribute()
        return AttrStmt(subject, self.rng.choice(TEXTS), self.expr(self.dtype()), self.stmt(depth))

    def _allocate(self, depth):
        buffer = self.buffer()
        annotations = self.annotations()
        self.buffers.append(buffer)
        return Allocate(buffer, self.stmt(depth), annotations)

    def _declare(self, depth):
        data = self.rng.choice(self.buffers).data if self.buffers and self.chance(80) else None
        buffer = self.buffer(data=data)
        self.buffers.append(buffer)
        return DeclBuffer(buffer, self.stmt(depth))

    def _bare_block(self, depth):
        return self._block(depth)

    def _realize(self, depth):
        ints = [var for var in self.vars if var.dtype in INTS]
        loops = self.rng.sample(ints, min(len(ints), self.rng.randrange(3)))
        values = tuple(
            var if self.chance(70) else self.expr(var.dtype, 2) for var in loops
        )  # fmt: skip
        predicate = IntImm("bool", 1) if self.chance(60) else self._condition(2)
        return BlockRealize(values, predicate, self._block(depth, [v.dtype for v in values]))

    def _block(self, depth, axes=None):
        axes = ["int64"] * self.rng.randrange(3) if axes is None else axes
        iter_vars = []
        for dtype in axes:
            minimum = IntImm(dtype, 0) if self.chance(80) else self.expr(dtype, 1)
            dom = Range.from_min_extent(
                minimum, self.constant(dtype) if self.chance(60) else self.expr(dtype, 1)
            )
            kind = self.rng.choice(("spatial", "reduce", "opaque"))
            iter_vars.append(IterVar(dom, self.var(dtype), kind))
        self.vars += [item.var for item in iter_vars]
        allocated = tuple(self.buffer() for _ in range(self.rng.choice((0, 0, 1, 2))))
        self.buffers += allocated
        matches = []
        if self.buffers and self.chance(25):
            matches.append(self._match())
        regions = [
            tuple(self._region(self.rng.choice(self.buffers)) for _ in range(self.rng.randrange(3)))
            if self.buffers else ()
            for _ in range(2)
        ]  # fmt: skip
        self.blocks += 1
        name = self.rng.choice(("C", "a b", "root", "it's", "for")) + str(self.blocks)
        annotations = self.annotations()
        self.buffers += [match.buffer for match in matches]
        init = self.stmt(depth) if self.chance(30) else None
        body = self.stmt(depth)
        return Block(
            tuple(iter_vars), *regions, name, body, init, allocated, tuple(matches), annotations
        )

    def _match(self):
        source = self.rng.choice(self.buffers)
        extents = [const(self.rng.choice((1, 2, 4))) for _ in source.shape]
        region = tuple(Range.from_min_extent(self.expr("int64", 1), extent) for extent in extents)
        ndim = len(extents)
        strides = tuple(self.var() for _ in extents) if self.chance(60) else ()
        offset = self.var() if self.chance(60) else None
        view = Buffer(
            self.name(), tuple(extents), source.dtype, strides, offset, source.scope, 64,
            (1,) if ndim > 1 and self.chance(20) else (),
        )  # fmt: skip
        self.vars += [*strides, *([offset] if offset is not None else [])]
        return MatchBufferRegion(view, BufferRegion(source, region))

    # ---- functions -----------------------------------------------------------------------

    def function(self) -> PrimFunc:
        self.vars, self.buffers = [], []
        params, buffer_map = [], {}
        for _ in range(self.rng.randrange(4)):
            if self.chance(70):
                var = self.var("handle")
                buffer_map[var] = self.buffer()
                self.buffers.append(buffer_map[var])
                if self.chance(10):
                    self.vars.append(var)
            else:
                var = self.var(self.scalar_dtype())
                self.vars.append(var)
            params.append(var)
        attrs = {} if self.chance(50) else {"global_symbol": "f", **self.annotations()}
        body = self.stmt()
        if self.chance(60):
            body = make_root_block(body, tuple(self.buffer() for _ in range(self.rng.randrange(2))))
        ret = "void" if self.chance(80) else self.scalar_dtype()
        return PrimFunc(params, body, ret, attrs, buffer_map=buffer_map)

    def module(self) -> IRModule:
        names = self.rng.sample(("main", "a-b", "for", "f", "T", "", "1"), self.rng.randrange(1, 4))
        functions = {name: self.function() for name in names}
        return IRModule(functions, self.plain_attributes())
