"""The part of the dialect ``T`` that declares: loops, blocks, axes, and what is said of blocks.

Each function returns a small record of what was said. The parser gives it its meaning by where it
stands (right of ``=``, after ``with``, after ``for … in``, or alone), so no function here needs to
know about a parser.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tilewright.ir import (
    INDEX,
    TRUE,
    Expr,
    ExprLike,
    Range,
    StringImm,
    Var,
    as_expr,
    as_int,
    ceildiv,
    content_mask,
    contents,
    dtypes,
)
from tilewright.script.allowance import register_constructors, register_values
from tilewright.script.ir import MetaVar as MetaVar
from tilewright.script.ir import meta_var as meta_var
from tilewright.script.operators import to_value
from tilewright.support.errors import VerifyError
from tilewright.support.naming import named
from tilewright.tir.attrs import AUTO_STEP
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion, access_dtype
from tilewright.tir.script.buffer_declarations import Region, as_region, subscript
from tilewright.tir.script.scalars import DTypeLike, as_dtype, split_range
from tilewright.tir.script.threads import EnvThread, launch_thread
from tilewright.tir.steps import Steps
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
    THREAD_BINDING,
    UNROLLED,
    VECTORIZED,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    Stmt,
    check_thread,
)

# ---- loops ------------------------------------------------------------------------------------


@dataclass
class Loop:
    """One loop: its range, kind, thread tag and annotations, and the dtype of its variable."""

    kind: str
    minimum: Expr
    extent: Expr
    thread: str | None = None
    annotations: dict[str, Any] = field(default_factory=dict)
    dtype: str | None = None
    step: Expr | None = None
    """Distance of the values that its variable takes, if that is not 1."""


@dataclass
class Loops:
    """What follows ``in`` of a ``for``: one loop, or the several of ``T.grid``, outermost first."""

    nest: tuple[Loop, ...]

    def __iter__(self) -> Iterator[Any]:
        raise VerifyError("loops run inside @T.prim_func only")


def _loop(
    kind: str,
    start: ExprLike,
    stop: ExprLike | None,
    annotations: Mapping[str, object] | None,
    dtype: DTypeLike | None,
    thread: str | None = None,
    step: ExprLike | None = None,
) -> Loops:
    if stop is None:
        start, stop = 0, start
    minimum, extent = split_range(start, stop)
    for part in (minimum, extent):
        if dtypes.kind_of(part.dtype) not in ("int", "uint") or dtypes.lanes_of(part.dtype) > 1:
            raise VerifyError(f"a loop runs over integers, got {part!r}: {part.dtype}")
    if thread is not None:
        check_thread(thread)
    made = None if dtype is None else as_dtype(dtype)
    by = _step(step, extent.dtype)
    return Loops((Loop(kind, minimum, extent, thread, dict(annotations or {}), made, by),))


def _step(step: ExprLike | None, dtype: str) -> Expr | None:
    if step is None or as_int(step) == 1:
        return None
    made = as_expr(step, dtype)
    number = as_int(made)
    if not dtypes.is_integer(made.dtype) or (number is not None and number < 1):
        raise VerifyError(f"the step of a loop is a positive integer, got {step!r}")
    return made


def over_steps(loops: Loops) -> tuple[Loops, list[tuple[Var, Expr]]]:
    """Make the extents of loops with steps numbers of iterations.

    Also returns what is bound around the loops: starts and steps that read memory, which the bodies
    may change.
    """
    fixed, nest = Steps(), []
    for loop in loops.nest:
        if loop.step is not None:
            start, extent, step = (
                fixed(part) if contents(part) & content_mask(BufferLoad) else part
                for part in (loop.minimum, loop.extent, loop.step)
            )
            loop = replace(loop, minimum=start, extent=ceildiv(extent, step), step=step)
        nest.append(loop)
    return Loops(tuple(nest)), fixed.bound


class _LoopKind(Protocol):
    def __call__(
        self,
        start: ExprLike,
        stop: ExprLike | None = None,
        *,
        annotations: Mapping[str, Any] | None = None,
        step: ExprLike | None = None,
        unroll: builtins.bool | None = None,
        dtype: DTypeLike | None = None,
        thread: str | None = None,
    ) -> Loops: ...


def _loop_kind(name: str, kind: str, doc: str) -> _LoopKind:
    """Make the function that declares loops of a kind."""

    def declare(
        start: ExprLike,
        stop: ExprLike | None = None,
        *,
        annotations: Mapping[str, Any] | None = None,
        step: ExprLike | None = None,
        unroll: builtins.bool | None = None,
        dtype: DTypeLike | None = None,
        thread: str | None = None,
    ) -> Loops:
        hints, chosen = dict(annotations or {}), kind
        if unroll is not None:
            if kind != SERIAL or not isinstance(unroll, builtins.bool):
                raise VerifyError(
                    "unroll= of T.serial is True or False; for a factor, put a loop of that many "
                    "iterations inside: for i, j in T.grid(n // 4, T.unroll(4))"
                )
            chosen = UNROLLED if unroll else SERIAL
            hints.update({} if unroll else {AUTO_STEP: 0})
        return _loop(chosen, start, stop, hints, dtype, thread, step)

    return named(declare, name, doc)


serial = _loop_kind(
    "serial", SERIAL, "A loop that runs in order: ``T.serial(stop)`` or ``T.serial(start, stop)``."
)
parallel = _loop_kind("parallel", PARALLEL, "A loop whose iterations run on several threads.")
vectorized = _loop_kind(
    "vectorized", VECTORIZED, "A loop whose iterations are the lanes of vectors."
)
unroll = _loop_kind("unroll", UNROLLED, "A loop that is written out.")


def thread_binding(
    start: ExprLike,
    stop: ExprLike | str | None = None,
    thread: str | None = None,
    *,
    annotations: Mapping[str, object] | None = None,
    dtype: DTypeLike | None = None,
) -> Loops:
    """A loop whose iterations are the threads of a tag: ``T.thread_binding(32, "threadIdx.x")``."""
    if isinstance(stop, str) and thread is None:
        stop, thread = None, stop
    if isinstance(stop, str):
        raise VerifyError(f"thread_binding takes one tag, got {stop!r} and {thread!r}")
    return _loop(THREAD_BINDING, start, stop, annotations, dtype, thread)


def grid(
    *extents: ExprLike | tuple[ExprLike, ExprLike] | Loops, dtype: DTypeLike | None = None
) -> Loops:
    """Nested loops: an extent or a pair ``(start, stop)`` for a serial one, or a loop of any kind.

    ``for i, j in T.grid(n, T.vectorized(16))``; one name, or a starred one, takes several of the
    variables: ``for *spatial, k in T.grid(n, m, 16)``.
    """
    nest: list[Loop] = []
    for extent in extents:
        if isinstance(extent, Loops):
            nest.extend(extent.nest)
        elif not isinstance(extent, tuple):
            nest.extend(_loop(SERIAL, extent, None, None, dtype).nest)
        elif len(extent) == 2:
            nest.extend(_loop(SERIAL, *extent, None, dtype).nest)
        else:
            raise VerifyError(f"a range is an extent or (start, stop), got {extent!r}")
    return Loops(tuple(nest))


# ---- blocks -----------------------------------------------------------------------------------


@dataclass
class BlockDecl:
    """``with T.block("name"):``."""

    name: str
    no_realize: bool


_suffix: ContextVar[str] = ContextVar("suffix of blocks", default="")


@contextmanager
def block_name_suffix_context(block_suffix: str) -> Iterator[None]:
    """Append a text to the names of the blocks that are made in this context."""
    token = _suffix.set(block_suffix)
    try:
        yield
    finally:
        _suffix.reset(token)


def block(name: str = "", no_realize: bool = False, exec_scope: str = "") -> Any:
    """A block. ``no_realize`` gives the block alone, without values for its axes.

    Raises ``VerifyError`` for an ``exec_scope``: loops say which threads run what is inside.
    """
    if not isinstance(name, str):
        raise VerifyError(f"a block's name is text, got {name!r}")
    name += _suffix.get() if name else ""
    if exec_scope != "":
        raise VerifyError(
            f"blocks have no exec_scope, got {exec_scope!r}: put the block below a loop of threads"
        )
    return BlockDecl(name, no_realize)


@dataclass
class AxisDecl:
    """``vi = T.axis.spatial(dom, value)``."""

    kind: str
    dom: Range
    value: Expr | None
    dtype: str


@dataclass
class RemapDecl:
    """``vi, vk = T.axis.remap("SR", [i, k])``."""

    kinds: str
    values: list[Any]


def _axis(
    kind: str,
    dom: ExprLike | Range | slice | tuple[ExprLike, ...] | list[ExprLike],
    value: ExprLike | None,
    dtype: DTypeLike | None,
) -> AxisDecl:
    if isinstance(dom, (tuple, list)):
        if len(dom) != 2:
            raise VerifyError(f"the range of an axis is an extent or (start, stop), got {dom!r}")
        made = Range.from_min_extent(*split_range(*dom))
    elif isinstance(dom, slice):
        made = Range.from_min_extent(*split_range(0 if dom.start is None else dom.start, dom.stop))
    elif isinstance(dom, Range):
        made = dom
    else:
        made = Range.from_min_extent(*split_range(0, dom))
    if dtypes.kind_of(made.extent.dtype) not in ("int", "uint"):
        raise VerifyError(f"the range of an axis must be of integers, got {made.extent.dtype}")
    bound = None if value is None else as_expr(value, INDEX)
    if bound is not None and dtypes.kind_of(bound.dtype) not in ("int", "uint"):
        raise VerifyError(f"an axis takes integer values, got {bound.dtype}")
    return AxisDecl(kind, made, bound, made.extent.dtype if dtype is None else as_dtype(dtype))


AxisRange = ExprLike | Range | slice | tuple[ExprLike, ...] | list[ExprLike]


class AxisNames(type):
    """The class of ``T.axis``, which is itself the only thing of its kind."""


class axis(metaclass=AxisNames):
    """The axes of a block."""

    @staticmethod
    def spatial(
        dom: AxisRange, binding: ExprLike | None = None, dtype: DTypeLike | None = None
    ) -> Any:
        """An axis whose iterations are independent."""
        return _axis("spatial", dom, binding, dtype)

    @staticmethod
    def reduce(
        dom: AxisRange, binding: ExprLike | None = None, dtype: DTypeLike | None = None
    ) -> Any:
        """An axis that is reduced over."""
        return _axis("reduce", dom, binding, dtype)

    @staticmethod
    def opaque(
        dom: AxisRange, binding: ExprLike | None = None, dtype: DTypeLike | None = None
    ) -> Any:
        """An axis about whose iterations nothing is known."""
        return _axis("opaque", dom, binding, dtype)

    @staticmethod
    def remap(kinds: str, bindings: Sequence[object], dtype: DTypeLike | None = None) -> Any:
        """Axes over the ranges of the loops they are bound to; ``kinds`` has S, R or O for each.

        They have the dtypes of these loops; raises ``VerifyError`` if ``dtype`` is another one.
        """
        if not isinstance(kinds, str) or set(kinds) - set("SRO"):
            raise VerifyError(f"remap takes a letter S, R or O for each axis, got {kinds!r}")
        values = list(bindings)
        if len(kinds) != len(values):
            raise VerifyError(f"remap names {len(kinds)} kinds for {len(values)} loop variables")
        if dtype is not None:
            for value in map(as_expr, map(to_value, values)):
                if value.dtype != as_dtype(dtype):
                    raise VerifyError(f"{value!r} is {value.dtype}, so its axis is no {dtype!r}")
        return RemapDecl(kinds, values)

    S = spatial
    R = reduce
    scan = opaque
    """An axis whose iterations come in order: nothing else is known about them."""


@dataclass
class Where:
    """``T.where(predicate)``."""

    predicate: ExprLike


def where(predicate: ExprLike) -> Where:
    """Run the block only where ``predicate`` holds."""
    return Where(predicate)


@dataclass
class Accesses:
    """``T.reads(...)`` or ``T.writes(...)``."""

    kind: str
    regions: tuple[BufferRegion, ...]


def _accesses(kind: str, regions: tuple[object, ...]) -> Accesses:
    if len(regions) == 1 and isinstance(regions[0], (list, tuple)):
        regions = tuple(regions[0])
    return Accesses(kind, tuple(map(as_region, regions)))


def reads(*regions: Region | Sequence[Region]) -> Accesses:
    """State what an instance of the block reads; inferred if left out."""
    return _accesses("reads", regions)


def writes(*regions: Region | Sequence[Region]) -> Accesses:
    """State what an instance of the block writes; inferred if left out."""
    return _accesses("writes", regions)


@dataclass
class Attributes:
    """``T.block_attr({...})`` or ``T.func_attr({...})``."""

    kind: str
    attrs: dict[str, Any]


def _attributes(kind: str, attrs: object) -> Attributes:
    if not isinstance(attrs, Mapping) or not all(isinstance(key, str) for key in attrs):
        raise VerifyError(f"{kind} takes a dict with text as keys, got {attrs!r}")
    return Attributes(kind, dict(attrs))


def block_attr(attrs: Mapping[str, object]) -> Attributes:
    """State annotations of the block."""
    return _attributes("block_attr", attrs)


def func_attr(attrs: Mapping[str, object]) -> Attributes:
    """State attributes of the function."""
    return _attributes("func_attr", attrs)


class InitDecl:
    """``with T.init():``."""


def init() -> Any:
    """What runs at the first iteration of a reduction."""
    return InitDecl()


# ---- other statements -------------------------------------------------------------------------


@dataclass
class LetDecl:
    """``with T.LetStmt(value) as x:``."""

    value: object
    dtype: str | None
    var: Var | None = None


def let_stmt(value: ExprLike, dtype: DTypeLike | None = None) -> LetDecl:
    """Bind a variable for the body of the ``with``."""
    return LetDecl(value, None if dtype is None else as_dtype(dtype))


@dataclass
class AttrDecl:
    """``T.attr(node, key, value)``, for the rest of the suite or the ``with`` body.

    ``said`` has pairs of a key and a value, outermost first.
    """

    node: object
    said: tuple[tuple[str, Expr], ...]

    def around(self, body: Stmt) -> Stmt:
        """The statement."""
        for key, value in reversed(self.said):
            body = AttrStmt(self.node, key, value, body)
        return body


def attr(
    node_or_dict: object, attr_key: str | None = None, value: ExprLike | str | None = None
) -> Any:
    """Say something about a node that holds in what follows.

    ``T.attr({"key": value, "other": value})`` says it about nothing in particular. The extent of
    threads, which TVM's lowered programs state so, launches them: see ``T.launch_thread``.
    """
    if isinstance(node_or_dict, Mapping) and attr_key is None and value is None and node_or_dict:
        return AttrDecl(0, tuple(_said(*pair) for pair in node_or_dict.items()))
    if value is None:
        raise VerifyError("attr takes a node, a key and a value, or a dictionary")
    said = _said(attr_key, value)
    if isinstance(node_or_dict, EnvThread) and said[0] in ("thread_extent", "virtual_thread"):
        return launch_thread(node_or_dict, said[1])
    return AttrDecl(node_or_dict, (said,))


def _said(key: object, value: ExprLike | str) -> tuple[str, Expr]:
    if not isinstance(key, str):
        raise VerifyError(f"the key of an attribute is text, got {key!r}")
    return key, StringImm(value) if isinstance(value, str) else as_expr(to_value(value))


class SeqDecl:
    """``with T.seq():``."""


def seq_stmt() -> SeqDecl:
    """Statements kept together as one sequence."""
    return SeqDecl()


@dataclass
class IfFrame:
    """``with T.If(condition):``."""

    condition: object


@dataclass
class BranchFrame:
    """``with T.Then():`` or ``with T.Else():``."""

    name: str


@dataclass
class WhileFrame:
    """``with T.While(condition):``."""

    condition: object


@dataclass
class AssertFrame:
    """``with T.Assert(condition, message):``."""

    condition: object
    message: str
    kind: str = "RuntimeError"


def if_frame(condition: ExprLike) -> IfFrame:
    """A branch, with the cases ``with T.Then():`` and ``with T.Else():``; as ``if``."""
    return IfFrame(condition)


def then_frame() -> BranchFrame:
    """What runs where the condition of ``T.If`` holds."""
    return BranchFrame("Then")


def else_frame() -> BranchFrame:
    """What runs where the condition of ``T.If`` does not hold."""
    return BranchFrame("Else")


def while_frame(condition: ExprLike) -> WhileFrame:
    """Repeat the body of the ``with`` while a condition holds."""
    return WhileFrame(condition)


def assert_frame(
    condition: ExprLike, message: str | Sequence[str], error_kind: str = "RuntimeError"
) -> AssertFrame:
    """Check a condition before the body of the ``with`` runs; as ``assert``.

    ``error_kind`` names the error that the caller gets; a message may be a list of parts.
    """
    parts: Any = message
    made = AssertStmt(error_kind, TRUE, parts)
    return AssertFrame(condition, made.message, made.kind)


def bind(
    value: ExprLike, type_annotation: DTypeLike | None = None, *, var: Var | None = None
) -> LetDecl:
    """Bind a variable for the rest of the suite: ``x = T.bind(A[i])``, as ``x: T.let = A[i]``.

    ``var`` is the variable, if there is one already: ``T.bind(A[i], var=x)``.
    """
    if var is not None and type(var) is not Var:
        raise VerifyError(f"bind gives a variable its value, got {var!r}")
    made = let_stmt(value, type_annotation if var is None else var.dtype)
    return replace(made, var=var)


def buffer_store(buffer: Buffer, value: ExprLike, indices: Sequence[Any] | ExprLike) -> BufferStore:
    """Store an element: ``T.buffer_store(A, 0.0, [i, j])``, as ``A[i, j] = T.float32(0)``."""
    given = tuple(indices) if isinstance(indices, (list, tuple)) else (indices,)
    access = subscript(buffer, given)
    places = access.indices if isinstance(access, BufferLoad) else access.indices()
    return BufferStore(buffer, as_expr(value, access_dtype(buffer, places)), places)


def evaluate(value: ExprLike | Stmt) -> Stmt:
    """Evaluate an expression for its effect; what is a statement already, stays one."""
    return value if isinstance(value, Stmt) else Evaluate(as_expr(value))


register_constructors(axis)
register_values(AxisNames, attributes="spatial reduce opaque scan remap S R")
register_values(Loops, BlockDecl, AxisDecl, RemapDecl, Where, Accesses, Attributes, InitDecl)
register_values(LetDecl, AttrDecl, SeqDecl)
register_values(IfFrame, BranchFrame, WhileFrame, AssertFrame)
