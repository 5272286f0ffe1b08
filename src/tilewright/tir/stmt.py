"""Statements: loops, blocks and what stands inside them.

Scheduling works on programs made of ``For``, ``BlockRealize``/``Block``, ``BufferStore``,
``IfThenElse``, ``SeqStmt`` and ``Evaluate``. Lowering replaces blocks by ``Allocate`` and flat
stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tilewright.ir import (
    TRUE,
    Expr,
    ExprLike,
    Node,
    Range,
    Var,
    add_content,
    as_expr,
    as_int,
    attr,
    cast,
    check_name,
    child,
    children,
    const,
    definition,
    definitions,
    dtypes,
    node,
    set_span,
)
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches
from tilewright.tir.buffer import Buffer, BufferRegion

SERIAL = "serial"
PARALLEL = "parallel"
VECTORIZED = "vectorized"
UNROLLED = "unrolled"
THREAD_BINDING = "thread_binding"
FOR_KINDS = (SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD_BINDING)
VTHREAD = "vthread"
THREAD_TAGS = (
    *(f"{group}.{axis}" for group in ("blockIdx", "threadIdx", VTHREAD) for axis in "xyz"),
    VTHREAD,
)
"""What a thread-bound loop may number: blocks, threads, virtual threads."""

SPATIAL = "spatial"
REDUCE = "reduce"
OPAQUE = "opaque"
THREAD_INDEX = "thread_index"
"""The kind of an axis that stands for a number of threads, outside of blocks."""
ITER_KINDS = {"S": SPATIAL, "R": REDUCE, "O": OPAQUE}
_KINDS_OF_ITERS = (SPATIAL, REDUCE, OPAQUE, THREAD_INDEX)
_TVM_KINDS = {0: SPATIAL, 1: THREAD_INDEX, 2: REDUCE, 3: OPAQUE, 4: OPAQUE}
"""Kinds of axes by TVM's numbers; its ``Ordered`` is one that must not be reordered."""


class Stmt(Node):
    """Base of all statements."""

    __slots__ = ()


@node
class BufferStore(Stmt):
    """``buffer[indices] = value``."""

    buffer: Buffer = child()
    value: Expr = child()
    indices: tuple[Expr, ...] = children()

    def __post_init__(self) -> None:
        if not isinstance(self.value, Expr):
            object.__setattr__(self, "value", cast(as_expr(self.value), self.buffer.dtype))
        for index in self.indices:
            if not isinstance(index, Expr):
                object.__setattr__(self, "indices", tuple(map(as_expr, self.indices)))
                break


def _vstore(buffer: Buffer, begin: Any, value: ExprLike) -> BufferStore:
    """The statement that writes an element, or a vector along the last axis."""
    made = as_expr(value)
    return BufferStore(buffer, made, buffer._from(begin, made.dtype))


Buffer.vstore = _vstore  # type: ignore[assignment, method-assign]


@node
class Evaluate(Stmt):
    """An expression evaluated for its effect; ``Evaluate(0)`` does nothing."""

    value: Expr = child()

    def __post_init__(self) -> None:
        if not isinstance(self.value, Expr):
            object.__setattr__(self, "value", as_expr(self.value))


@node
class SeqStmt(Stmt):
    """Statements one after the other; build with :func:`seq`, which flattens."""

    stmts: tuple[Stmt, ...] = children(alias="seq")

    @property
    def seq(self) -> tuple[Stmt, ...]:
        """The statements, as TVM calls them."""
        return self.stmts


@node
class IfThenElse(Stmt):
    """A branch."""

    condition: Expr = child()
    then_case: Stmt = child()
    else_case: Stmt | None = child(default=None)


@node
class LetStmt(Stmt):
    """``body`` with ``var`` holding ``value``."""

    var: Var = definition()
    value: Expr = child()
    body: Stmt = child()


@node
class AssertStmt(Stmt):
    """Stops the program with ``message`` if ``condition`` does not hold.

    Each ``{}`` in the message stands for one of the integers ``values``, as they are then.
    """

    condition: Expr = child()
    message: str = attr()
    values: tuple[Expr, ...] = children(default=())

    def __post_init__(self) -> None:
        if self.values and self.message.count("{}") != len(self.values):
            raise VerifyError(f"{self.message!r} has no place for {len(self.values)} values")
        for value in self.values:
            if not dtypes.is_integer(value.dtype) or dtypes.lanes_of(value.dtype) > 1:
                raise VerifyError(f"a message shows integers, got {value!r} of {value.dtype}")


@node
class While(Stmt):
    """Repeats ``body`` while ``condition`` holds."""

    condition: Expr = child()
    body: Stmt = child()


@node
class For(Stmt):
    """A loop of ``loop_var`` over ``[min, min + extent)``.

    ``kind`` is one of ``FOR_KINDS``; ``thread`` is the thread tag (``threadIdx.x`` …) of a
    thread-bound loop, one of ``THREAD_TAGS``. ``annotations`` map text to Python values. A loop of
    a negative extent does nothing, as one of none.
    """

    loop_var: Var = definition()
    min: Expr = child()
    extent: Expr = child()
    kind: str = attr()
    body: Stmt = child()
    thread: Any = attr(default=None, alias="thread_binding")
    annotations: Mapping[str, Any] = attr(default=None)

    def __post_init__(self) -> None:
        if self.annotations is None:
            object.__setattr__(self, "annotations", {})
        if self.kind not in FOR_KINDS:
            self._from_tvm_form()
            _check_one_of(FOR_KINDS, "loop kind", self.kind)
        if not isinstance(self.min, Expr) or not isinstance(self.extent, Expr):
            object.__setattr__(self, "min", as_expr(self.min))
            object.__setattr__(self, "extent", as_expr(self.extent))
        if self.thread is not None:
            if isinstance(self.thread, IterVar):  # TVM's ``thread_binding``
                object.__setattr__(self, "thread", self.thread.thread_tag)
            check_thread(self.thread)

    def _from_tvm_form(self) -> None:
        """Take TVM's number of a kind of loop."""
        kind: Any = self.kind
        if isinstance(kind, int) and 0 <= kind < len(FOR_KINDS):
            object.__setattr__(self, "kind", FOR_KINDS[kind])

    @property
    def thread_binding(self) -> IterVar | None:
        """The axis of threads that the loop is bound to, with its ``thread_tag``, if it is."""
        if self.thread is None:
            return None
        return IterVar(None, Var(self.thread), THREAD_INDEX, self.thread)


AT_ONCE = "loops that run at once"
"""Kind of content: loops whose iterations run at the same time."""
add_content(For, AT_ONCE, lambda loop: loop.kind not in (SERIAL, UNROLLED))


def check_thread(tag: object) -> None:
    """Refuse what is no thread tag."""
    _check_one_of(THREAD_TAGS, "thread tag", tag)


def _check_one_of(known: Collection[str], what: str, found: object) -> None:
    if not isinstance(found, str) or found not in known:
        raise VerifyError(f"unknown {what} {found!r}; {near_matches(str(found), list(known))}")


@node
class AttrStmt(Stmt):
    """Says something (``key``, ``value``) about ``node`` that holds in ``body``."""

    node: Any = attr()
    key: str = attr(alias="attr_key")
    value: Expr = child()
    body: Stmt = child()

    def __post_init__(self) -> None:
        check_name(self.key, "an attribute")

    @property
    def attr_key(self) -> str:
        """The key, as TVM calls it."""
        return self.key


@node
class Allocate(Stmt):
    """Memory for ``buffer`` that lives as long as ``body`` runs."""

    buffer: Buffer = definition()
    body: Stmt = child()
    annotations: Mapping[str, Any] = attr(default=None)

    def __post_init__(self) -> None:
        if self.annotations is None:
            object.__setattr__(self, "annotations", {})


@node
class DeclBuffer(Stmt):
    """Another view (``buffer``) of memory that exists already (``buffer.data``)."""

    buffer: Buffer = definition()
    body: Stmt = child()


class _ActsAsVar(Node):
    """Arithmetic and comparisons of an axis: those of its variable."""

    __slots__ = ()
    var: Var

    def expr_ty(self) -> Any:
        """Return the type (``ir.Type``) of the variable."""
        return self.var.ty

    def __add__(self, other: ExprLike) -> Expr:
        return self.var + other

    def __radd__(self, other: ExprLike) -> Expr:
        return other + self.var

    def __sub__(self, other: ExprLike) -> Expr:
        return self.var - other

    def __rsub__(self, other: ExprLike) -> Expr:
        return other - self.var

    def __mul__(self, other: ExprLike) -> Expr:
        return self.var * other

    def __rmul__(self, other: ExprLike) -> Expr:
        return other * self.var

    def __floordiv__(self, other: ExprLike) -> Expr:
        return self.var // other

    def __mod__(self, other: ExprLike) -> Expr:
        return self.var % other

    def __lt__(self, other: ExprLike) -> Expr:
        return self.var < other

    def __le__(self, other: ExprLike) -> Expr:
        return self.var <= other

    def __gt__(self, other: ExprLike) -> Expr:
        return self.var > other

    def __ge__(self, other: ExprLike) -> Expr:
        return self.var >= other

    def astype(self, dtype: str, span: object = None) -> Expr:
        """Convert the variable to another dtype."""
        return self.var.astype(dtype, span)

    def equal(self, other: ExprLike, span: object = None) -> Expr:
        """``self == other`` as an expression; ``==`` asks whether both are one axis."""
        return self.var.equal(other, span)


@node
class IterVar(_ActsAsVar):
    """An axis of a block's domain: variable, range and kind (spatial, reduce, opaque).

    ``dom`` may be given as ``(begin, end)`` and ``var`` by a name; ``iter_type`` is a kind or TVM's
    number of one. ``thread_tag`` is that of an axis of threads (``te.thread_axis``), whose ``dom``
    is ``None`` if there are as many as the launch has.
    """

    var: Var = definition()
    dom: Any = child()
    kind: str = attr()
    thread_tag: str = attr(default="")

    DataPar, ThreadIndex, CommReduce, Ordered, Opaque = range(5)
    Unrolled, Vectorized, Parallelized, Tensorized = range(5, 9)  # of loops here, not of axes

    init_takes_fields = False

    def __init__(
        self,
        dom: Any,
        var: Any,
        iter_type: int | str,
        thread_tag: str = "",
        span: object = None,
    ) -> None:
        if isinstance(dom, (tuple, list)):
            dom = Range(*dom)
        var = Var(var) if isinstance(var, str) else var
        if type(var) is not Var or not (dom is None or isinstance(dom, Range)):
            raise VerifyError(f"an axis has a variable and a range, got {var!r} and {dom!r}")
        kind = _TVM_KINDS.get(iter_type, iter_type) if type(iter_type) is int else iter_type
        if kind not in _KINDS_OF_ITERS:
            _check_one_of(_KINDS_OF_ITERS, "kind of axis", kind)
        self.fill(var, dom, kind, thread_tag)
        if span is not None:
            set_span(self, span)

    @property
    def iter_type(self) -> int:
        """The kind as TVM's number: ``IterVar.DataPar``, ``IterVar.CommReduce`` …"""
        return next(number for number, kind in _TVM_KINDS.items() if kind == self.kind)

    def as_expr(self) -> Var:
        """Stand for the variable where an expression is expected (``A[i + axis]``)."""
        return self.var

    def __repr__(self) -> str:
        return f"IterVar({self.var.name}, {self.dom!r}, {self.kind})"


@node
class MatchBufferRegion(Node):
    """``buffer`` stands for a region of another buffer inside a block."""

    buffer: Buffer = definition()
    source: BufferRegion = child()

    def mismatch(self) -> str | None:
        """Say how the buffer does not fit the region, if that is certain.

        The buffer has the region's extents; leading extents of 1 may be left out.
        """
        buffer, region = self.buffer, self.source.region
        extents = [item.extent for item in region]
        rest = max(0, len(extents) - len(buffer.shape))
        left_out, kept = extents[:rest], extents[rest:]
        pairs: list[tuple[int | None, int | None]] = [(as_int(extent), 1) for extent in left_out]
        pairs += [(as_int(a), as_int(b)) for a, b in zip(kept, buffer.shape)]
        differs = any(a is not None and b is not None and a != b for a, b in pairs)
        if differs or len(buffer.shape) > len(extents):
            shapes = [", ".join(map(repr, shape)) for shape in (buffer.shape, extents)]
            return (
                f"buffer {buffer.name} has shape ({shapes[0]}), the region of "
                f"{self.source.buffer.name} that it stands for ({shapes[1]})"
            )
        if buffer.dtype != self.source.buffer.dtype:
            return (
                f"buffer {buffer.name} has dtype {buffer.dtype}, "
                f"{self.source.buffer.name} {self.source.buffer.dtype}"
            )
        if buffer.scope != self.source.buffer.scope:
            return (
                f"buffer {buffer.name} is in {buffer.scope} memory, "
                f"{self.source.buffer.name} in {self.source.buffer.scope}"
            )
        return self._place_mismatch()

    def stride_variables(self) -> list[tuple[Var, int]]:
        """Variables that stand for strides, with the axes from whose strides they have their value.

        With one element along an axis, any step along it is right: such an axis says what a
        variable is only if no other does.
        """
        buffer = self.buffer
        found = [
            (stride, axis, as_int(extent) == 1)
            for axis, (stride, extent) in enumerate(zip(buffer.strides, buffer.shape))
            if type(stride) is Var
        ]
        said = [(var, axis) for var, axis, single in found if not single]
        known = {var for var, _ in said}
        rest = {var: axis for var, axis, single in found if single and var not in known}
        return said + list(rest.items())

    def _place_mismatch(self) -> str | None:
        """Say how strides and offset that are stated contradict the source's, if that is certain.

        What is stated is a number, or a variable that takes the first number it stands for.
        """
        source, buffer = self.source.buffer, self.buffer
        strides = constant_strides(source)
        kept = strides[len(strides) - len(buffer.strides) :]
        pairs = [
            (f"stride {{}} on axis {axis}", stated, found)
            for axis, (stated, found) in enumerate(zip(buffer.strides, kept))
            # Where an axis has one element, nothing is ever a step away.
            if as_int(buffer.shape[axis]) != 1
        ]
        if buffer.elem_offset is not None:
            pairs.append(("offset {}", buffer.elem_offset, self._constant_offset(strides)))
        values: dict[Expr, int] = {}
        for what, stated, found in pairs:
            if found is None:
                continue
            number = values.setdefault(stated, found) if type(stated) is Var else as_int(stated)
            if number is not None and number != found:
                shown = f"{stated!r} = {number}" if type(stated) is Var else f"{number}"
                return (
                    f"buffer {buffer.name} has {what.format(shown)}, the region of "
                    f"{source.name} that it stands for {found}"
                )
        return None

    def _constant_offset(self, strides: list[int | None]) -> int | None:
        """Where the region starts in its memory, if that is a number."""
        source = self.source.buffer
        offset = 0 if source.elem_offset is None else as_int(source.elem_offset)
        for item, stride in zip(self.source.region, strides):
            first = as_int(item.min)
            if first == 0:
                continue
            if offset is None or first is None or stride is None:
                return None
            offset += first * stride
        return offset


def constant_strides(buffer: Buffer) -> list[int | None]:
    """The strides of a buffer, as far as they are numbers."""
    strides = [as_int(stride) for stride in buffer.strides]
    if not strides:
        step: int | None = 1
        for extent in reversed(buffer.shape):
            strides.insert(0, step)
            size = as_int(extent)
            step = None if size is None or step is None else step * size
    return strides


@node
class Block(Stmt):
    """The unit of scheduling: a computation over iteration variables, with its accesses.

    ``name`` is unique in a function. ``reads``/``writes`` say which regions an instance accesses,
    in terms of the iteration variables. ``init`` runs at the first iteration of the reduction.
    """

    early_fields = ("iter_vars", "match_buffers")

    iter_vars: tuple[IterVar, ...] = children()
    reads: tuple[BufferRegion, ...] = children()
    writes: tuple[BufferRegion, ...] = children()
    name: str = attr(alias="name_hint")
    body: Stmt = child()
    init: Stmt | None = child(default=None)
    alloc_buffers: tuple[Buffer, ...] = definitions(default=None)
    match_buffers: tuple[MatchBufferRegion, ...] = children(default=None)
    annotations: Mapping[str, Any] = attr(default=None)

    def __post_init__(self) -> None:
        if self.annotations is None:
            object.__setattr__(self, "annotations", {})
        if type(self.name) is not str:
            check_name(self.name, "a block")

    @property
    def name_hint(self) -> str:
        """The name, as TVM calls it."""
        return self.name

    def __repr__(self) -> str:
        return f"Block({self.name})"


@node
class BlockRealize(Stmt):
    """A block with a value for each iteration variable; runs only where ``predicate`` holds."""

    iter_values: tuple[Expr, ...] = children()
    predicate: Expr = child()
    block: Block = child()

    def __repr__(self) -> str:
        return f"BlockRealize({self.block.name})"


NO_OP = Evaluate(const(0))


def is_no_op(stmt: Stmt) -> bool:
    """Whether a statement does nothing."""
    if isinstance(stmt, Evaluate):
        return getattr(stmt.value, "value", None) is not None
    return isinstance(stmt, SeqStmt) and all(map(is_no_op, stmt.stmts))


def seq(*stmts: Stmt | Iterable[Stmt]) -> Stmt:
    """Join statements into one; nested sequences are flattened and no-ops dropped."""
    flat: list[Stmt] = []
    stack: list[Any] = list(reversed(stmts))
    while stack:
        item = stack.pop()
        if isinstance(item, SeqStmt):
            stack.extend(reversed(item.stmts))
        elif isinstance(item, Stmt):
            if not is_no_op(item):
                flat.append(item)
        else:
            stack.extend(reversed(tuple(item)))
    if not flat:
        return NO_OP
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def loop_nest(loops: Iterable[For], body: Stmt) -> Stmt:
    """Wrap ``body`` into copies of ``loops``, the first outermost."""
    for loop in reversed(tuple(loops)):
        body = loop if loop.body is body else loop.replace(body=body)
    return body


def make_root_block(body: Stmt, alloc_buffers: tuple[Buffer, ...] = ()) -> BlockRealize:
    """Wrap a function's body into the root block that schedulable functions have."""
    return BlockRealize((), TRUE, Block((), (), (), "root", body, None, alloc_buffers))
