"""Statements: loops, blocks and what stands inside them.

Scheduling works on programs made of ``For``, ``BlockRealize``/``Block``, ``BufferStore``,
``IfThenElse``, ``SeqStmt`` and ``Evaluate``. Lowering replaces blocks by ``Allocate`` and flat
stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.ir import (
    TRUE,
    Expr,
    ExprLike,
    Shown,
    StringImm,
    Var,
    add_content,
    as_expr,
    as_int,
    attr,
    cast,
    ceildiv,
    check_name,
    child,
    children,
    const,
    content_mask,
    contents,
    definition,
    definitions,
    dtypes,
    node,
    set_span,
    substitute,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.axes import ITER_KINDS as ITER_KINDS
from tilewright.tir.axes import OPAQUE as OPAQUE
from tilewright.tir.axes import REDUCE as REDUCE
from tilewright.tir.axes import SPATIAL as SPATIAL
from tilewright.tir.axes import THREAD_INDEX as THREAD_INDEX
from tilewright.tir.axes import IterVar as IterVar
from tilewright.tir.axes import check_one_of
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.match_buffer import MatchBufferRegion as MatchBufferRegion
from tilewright.tir.thread_scope import CLUSTER

SERIAL = "serial"
PARALLEL = "parallel"
VECTORIZED = "vectorized"
UNROLLED = "unrolled"
THREAD_BINDING = "thread_binding"
FOR_KINDS = (SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD_BINDING)
VTHREAD = "vthread"
THREAD_TAGS = (
    *(f"{group}.{axis}" for group in ("blockIdx", CLUSTER, "threadIdx", VTHREAD) for axis in "xyz"),
    VTHREAD,
)
"""What a thread-bound loop may number: blocks (or clusters of them), the blocks of a cluster,
threads, virtual threads."""


class Stmt(Shown):
    """Base of all statements. They print as script; ``repr`` is short or names the fields."""

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

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A copy of what marks a statement as made without a body is the mark itself.
        return "REST" if self is REST else Stmt.__reduce_ex__(self, protocol)


REST = Evaluate(const(0))
"""The body of a statement that is to hold for what follows it: see :class:`SeqStmt`."""


@node
class SeqStmt(Stmt):
    """Statements one after the other; build with :func:`seq`, which flattens.

    What stands behind a ``LetStmt``, ``Allocate`` or ``DeclBuffer`` that was made without a body
    becomes its body: ``SeqStmt([Bind(x, value), use_of_x])``.
    """

    stmts: tuple[Stmt, ...] = children(alias="seq")

    def __post_init__(self) -> None:
        if _HOLDING.isdisjoint(map(type, self.stmts)):
            return
        for place, stmt in enumerate(self.stmts[:-1]):
            if getattr(stmt, "body", None) is REST:
                rest = SeqStmt(self.stmts[place + 1 :])
                held = stmt.replace(body=rest if len(rest.stmts) > 1 else rest.stmts[0])
                object.__setattr__(self, "stmts", (*self.stmts[:place], held))
                return

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
    """``body`` with ``var`` holding ``value``; without a body, what follows in its sequence."""

    var: Var = definition()
    value: Expr = child()
    body: Stmt = child(default=REST)

    def __post_init__(self) -> None:
        if not isinstance(self.value, Expr):
            object.__setattr__(self, "value", as_expr(self.value, self.var.dtype))


@node
class AssertStmt(Stmt):
    """Stops the program with ``message`` if ``condition`` does not hold.

    ``kind`` names the class of Python's errors that the caller gets, such as ``ValueError``; a
    message in parts is joined. Each ``{}`` in the message stands for one of the integers
    ``values``, as they are then.
    """

    kind: str = attr()
    condition: Expr = child()
    message: str = attr(default=None, alias="message_parts")
    values: tuple[Expr, ...] = children(default=())

    def __post_init__(self) -> None:
        if type(self.kind) is not str or type(self.message) is not str:
            self._from_tvm_form()
        if self.kind not in ERROR_KINDS:
            check_one_of(ERROR_KINDS, "kind of error", self.kind)
        if self.values and self.message.count("{}") != len(self.values):
            raise VerifyError(f"{self.message!r} has no place for {len(self.values)} values")
        for value in self.values:
            if not dtypes.is_integer(value.dtype) or dtypes.lanes_of(value.dtype) > 1:
                raise VerifyError(f"a message shows integers, got {value!r} of {value.dtype}")

    def _from_tvm_form(self) -> None:
        """Take texts as expressions, and a message in parts."""
        given: Any = self.message
        parts = () if given is None else (given,) if isinstance(given, StringImm) else given
        for name, text in (("kind", (self.kind,)), ("message", parts)):
            object.__setattr__(self, name, "".join(map(_plain_text, text)))

    @property
    def error_kind(self) -> StringImm:
        """The kind, as TVM's nodes hold it."""
        return StringImm(self.kind)

    @property
    def message_parts(self) -> tuple[StringImm, ...]:
        """The message, as TVM's nodes hold it; it has one part or none."""
        return (StringImm(self.message),) if self.message else ()


ERROR_KINDS = (
    "RuntimeError", "ValueError", "TypeError", "IndexError", "AssertionError", "MemoryError",
    "KeyError", "AttributeError", "NotImplementedError",
)  # fmt: skip
"""Kinds of errors that an assertion may raise: the classes of Python that callers know."""


def _plain_text(text: object) -> str:
    plain = text.value if isinstance(text, StringImm) else text
    if not isinstance(plain, str):
        raise VerifyError(f"an assertion has a kind of error and a message, both text: {text!r}")
    return plain


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

    With ``step``, the loop has ``ceildiv(extent, step)`` iterations, and where the body names the
    variable it gets ``min + loop_var * step``. Raises ``VerifyError`` for a step below 1, and where
    the start or step of such a loop reads memory.
    """

    loop_var: Var = definition()
    min: Expr = child()
    extent: Expr = child()
    kind: str = attr()
    body: Stmt = child()
    thread: Any = attr(default=None, alias="thread_binding")
    annotations: Mapping[str, Any] = attr(default=None)

    step = None
    """Loops go by 1: what was made with another step says that in its body."""

    init_takes_fields = False

    def __init__(
        self,
        loop_var: Var,
        min: ExprLike,
        extent: ExprLike,
        kind: str | int,
        body: Stmt,
        thread_binding: object = None,
        annotations: Mapping[str, Any] | None = None,
        step: ExprLike | None = None,
        span: object = None,
    ) -> None:
        min, extent = as_expr(min, loop_var.dtype), as_expr(extent, loop_var.dtype)
        if step is not None and as_int(step) != 1:
            min, extent, body = _in_steps(loop_var, min, extent, step, body)
        self.fill(loop_var, min, extent, kind, body, thread_binding, annotations)
        if span is not None:
            set_span(self, span)

    def __post_init__(self) -> None:
        if self.annotations is None:
            object.__setattr__(self, "annotations", {})
        if self.kind not in FOR_KINDS:
            self._from_tvm_form()
            check_one_of(FOR_KINDS, "loop kind", self.kind)
        if not isinstance(self.min, Expr) or not isinstance(self.extent, Expr):
            object.__setattr__(self, "min", as_expr(self.min, self.loop_var.dtype))
            object.__setattr__(self, "extent", as_expr(self.extent, self.loop_var.dtype))
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


def _in_steps(
    loop_var: Var, low: Expr, extent: Expr, step: ExprLike, body: Stmt
) -> tuple[Expr, Expr, Stmt]:
    """Return start, extent and body of a loop that goes by 1 instead of ``step``."""
    by = as_expr(step, loop_var.dtype)
    number = as_int(by)
    if number is not None:
        by = const(number, loop_var.dtype)
    if not dtypes.is_integer(by.dtype) or (number is not None and number < 1):
        raise VerifyError(f"the step of a loop is a positive integer, got {step!r}")
    if any(contents(part) & content_mask(BufferLoad) for part in (low, by)):
        raise VerifyError("start and step of a loop read no memory: bind what they read before it")
    value = loop_var * by if as_int(low) == 0 else low + loop_var * by
    return const(0, low.dtype), ceildiv(extent, by), substitute(body, {loop_var: value})


AT_ONCE = "loops that run at once"
"""Kind of content: loops whose iterations run at the same time."""
add_content(For, AT_ONCE, lambda loop: loop.kind not in (SERIAL, UNROLLED))


def check_thread(tag: object) -> None:
    """Refuse what is no thread tag."""
    check_one_of(THREAD_TAGS, "thread tag", tag)


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
    """Memory for ``buffer`` that lives as long as ``body`` runs.

    Without a body it lives while what follows in its sequence does; ``annotations`` may then take
    its place: ``AllocBuffer(buffer, {"align": 32})``.
    """

    buffer: Buffer = definition()
    body: Stmt = child(default=REST)
    annotations: Mapping[str, Any] = attr(default=None)

    init_takes_fields = False

    def __init__(
        self,
        buffer: Buffer,
        body: Stmt | Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        span: object = None,
    ) -> None:
        if isinstance(body, Mapping):
            body, annotations = None, body
        self.fill(buffer, REST if body is None else body, dict(annotations or {}))
        if span is not None:
            set_span(self, span)


@node
class DeclBuffer(Stmt):
    """Another view (``buffer``) of memory that exists already (``buffer.data``).

    Without a body it is one in what follows in its sequence. ``data`` says again what memory that
    is; raises ``VerifyError`` for another one than the buffer's.
    """

    buffer: Buffer = definition()
    body: Stmt = child(default=REST)

    init_takes_fields = False

    def __init__(
        self,
        buffer: Buffer,
        body: Stmt | None = None,
        span: object = None,
        *,
        data: Var | None = None,
    ) -> None:
        if data is not None and data is not buffer.data:
            raise VerifyError(
                f"buffer {buffer.name} lies in the memory {buffer.data.name}, not {data!r}: make "
                "it with tir.decl_buffer(..., data=...)"
            )
        self.fill(buffer, REST if body is None else body)
        if span is not None:
            set_span(self, span)

    @property
    def data(self) -> Var:
        """The memory that the buffer is a view of."""
        return self.buffer.data


_HOLDING = frozenset((LetStmt, Allocate, DeclBuffer))
"""Statements that hold for what follows them, if they are made without a body."""


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
    if len(flat) == 1:
        return flat[0]
    made = SeqStmt(tuple(flat))
    return made if len(made.stmts) > 1 else made.stmts[0]


def loop_nest(loops: Iterable[For], body: Stmt) -> Stmt:
    """Wrap ``body`` into copies of ``loops``, the first outermost."""
    for loop in reversed(tuple(loops)):
        body = loop if loop.body is body else loop.replace(body=body)
    return body


def make_root_block(body: Stmt, alloc_buffers: tuple[Buffer, ...] = ()) -> BlockRealize:
    """Wrap a function's body into the root block that schedulable functions have."""
    return BlockRealize((), TRUE, Block((), (), (), "root", body, None, alloc_buffers))
