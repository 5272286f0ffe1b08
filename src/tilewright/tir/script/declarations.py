"""The part of the dialect ``T`` that declares: loops, blocks, axes, buffers, regions.

Each function returns a small record of what was said. The parser gives it its meaning by where it
stands (right of ``=``, after ``with``, after ``for … in``, or alone), so no function here needs to
know about a parser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir import INDEX, Expr, Ramp, Range, as_expr, as_int, const, dtypes
from tilewright.script.evaluator import register_subscript
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.buffer import decl_buffer as make_buffer
from tilewright.tir.script.scalars import as_dtype, split_range
from tilewright.tir.stmt import PARALLEL, SERIAL, THREAD_BINDING, UNROLLED, VECTORIZED, Evaluate

THREAD_TAGS = tuple(
    f"{group}.{axis}" for group in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"
)

# ---- buffers ----------------------------------------------------------------------------------


@dataclass
class BufferSlice:
    """``A[i, j:j + 4]``: a vector where a value is needed, a region where one is."""

    buffer: Buffer
    items: tuple[Any, ...]

    def ranges(self) -> tuple[Range, ...]:
        """One range per dimension."""
        made = []
        for item, extent in zip(self.items, self.buffer.shape):
            if isinstance(item, slice):
                if item.step is not None and as_int(item.step) != 1:
                    raise VerifyError("a region takes no step")
                start = 0 if item.start is None else item.start
                made.append(Range(*split_range(start, extent if item.stop is None else item.stop)))
            else:
                made.append(Range(item, const(1)))
        return tuple(made)

    def as_region(self) -> BufferRegion:
        """The region."""
        return BufferRegion(self.buffer, self.ranges())

    def indices(self) -> tuple[Expr, ...]:
        """Index expressions: slices become ramps."""
        made: list[Expr] = []
        for item, whole in zip(self.items, self.buffer.shape):
            if not isinstance(item, slice):
                made.append(item)
                continue
            start = 0 if item.start is None else item.start
            begin, extent = split_range(start, whole if item.stop is None else item.stop)
            step = as_expr(1 if item.step is None else item.step)
            count, stride = as_int(extent), as_int(step)
            if count is None or stride is None or stride < 1:
                raise VerifyError(
                    f"a slice of {self.buffer.name} as a value needs a constant length and step, "
                    f"got {begin!r}:{begin!r} + {extent!r}"
                )
            lanes = -(-count // stride)
            if lanes < 1:
                raise VerifyError(f"the slice of {self.buffer.name} is empty")
            made.append(begin if lanes == 1 else Ramp(begin, const(stride, begin.dtype), lanes))
        return tuple(made)

    def as_expr(self) -> BufferLoad:
        """The vector that stands there."""
        return BufferLoad(self.buffer, self.indices())

    def astype(self, dtype: str) -> Expr:
        """Convert the vector."""
        return self.as_expr().astype(dtype)


def _index(buffer: Buffer, index: Any) -> Any:
    if isinstance(index, slice):
        return index
    made = as_expr(index)
    if dtypes.kind_of(made.dtype) not in ("int", "uint"):
        raise VerifyError(f"an index of {buffer.name} must be an integer, got {made.dtype}")
    return made


@register_subscript(Buffer)
def subscript(buffer: Buffer, indices: tuple[Any, ...]) -> BufferLoad | BufferSlice:
    """Give ``buffer[indices]`` its meaning."""
    if len(indices) != buffer.ndim:
        raise VerifyError(
            f"buffer {buffer.name} has {buffer.ndim} dimensions, got {len(indices)} indices"
        )
    items = tuple(_index(buffer, index) for index in indices)
    if any(isinstance(item, slice) for item in items):
        return BufferSlice(buffer, items)
    return BufferLoad(buffer, items)


def as_region(value: Any) -> BufferRegion:
    """Turn ``A``, ``A[i, j]`` or ``A[i, j:j + 4]`` into a region."""
    if isinstance(value, BufferRegion):
        return value
    if isinstance(value, Buffer):
        return value.region()
    if isinstance(value, BufferSlice):
        return value.as_region()
    if isinstance(value, BufferLoad):
        for index in value.indices:
            if dtypes.lanes_of(index.dtype) > 1:
                raise VerifyError("a region is given by ranges such as A[i:i + 4], not by vectors")
        return BufferRegion(value.buffer, tuple(Range(index, const(1)) for index in value.indices))
    raise VerifyError(f"expected a buffer or a region such as A[i, 0:16], got {value!r}")


@dataclass
class DeferredBuffer:
    """A buffer whose shape names symbolic variables by text: ``T.Buffer(("n", 4))``."""

    shape: tuple[Any, ...]
    options: dict[str, Any]


def _shape(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def _make(
    shape: Any,
    dtype: Any,
    data: Any,
    strides: Any,
    elem_offset: Any,
    scope: str,
    align: int,
    axis_separators: Sequence[int],
) -> Buffer:
    if isinstance(shape, Buffer):  # declared above, because something there names it already
        return shape
    if not isinstance(align, int) or align < 1:
        raise VerifyError(f"align is a number of bytes, got {align!r}")
    parts = (*_shape(shape), *(_shape(strides) if strides is not None else ()))
    for extent in parts:
        kind = dtypes.kind_of(as_expr(extent).dtype)
        if kind not in ("int", "uint"):
            raise VerifyError(f"shapes and strides are integers, got {extent!r}")
    buffer = make_buffer(
        _shape(shape),
        as_dtype(dtype),
        "",
        data=data,
        strides=_shape(strides) if strides is not None else (),
        elem_offset=elem_offset,
        scope=scope,
        alignment=align,
        axis_separators=axis_separators,
    )
    return buffer


def buffer_type(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 64,
    axis_separators: Sequence[int] = (),
) -> Any:
    """A buffer: as a parameter's annotation, or declared by ``A = T.Buffer(...)``.

    Extents are numbers, expressions, or text that names symbolic variables (``("n", "n * 4")``).
    """
    if any(isinstance(extent, str) for extent in _shape(shape)):
        return DeferredBuffer(
            _shape(shape),
            {
                "dtype": dtype,
                "data": data,
                "strides": strides,
                "elem_offset": elem_offset,
                "scope": scope,
                "align": align,
                "axis_separators": axis_separators,
            },
        )
    return _make(shape, dtype, data, strides, elem_offset, scope, align, axis_separators)


@dataclass
class AllocBuffer:
    """``C = T.alloc_buffer(...)``: memory of the enclosing block."""

    buffer: Buffer


def alloc_buffer(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 64,
    axis_separators: Sequence[int] = (),
) -> Any:
    """Declare a buffer of the enclosing block, or of the root block outside of all."""
    return AllocBuffer(
        _make(shape, dtype, data, strides, elem_offset, scope, align, axis_separators)
    )


@dataclass
class AllocateDecl:
    """``buf = T.allocate(...)``: memory for the rest of the suite, or of the ``with`` body."""

    buffer: Buffer
    annotations: dict[str, Any]


def allocate(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 64,
    axis_separators: Sequence[int] = (),
    annotations: Mapping[str, Any] | None = None,
) -> Any:
    """Allocate memory in a lowered program."""
    buffer = _make(shape, dtype, data, strides, elem_offset, scope, align, axis_separators)
    return AllocateDecl(buffer, dict(annotations or {}))


@dataclass
class BufferDecl:
    """``B = T.decl_buffer(..., data=A.data)``: another view of memory."""

    buffer: Buffer


def decl_buffer(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 64,
    axis_separators: Sequence[int] = (),
) -> Any:
    """Declare a view of the memory that ``data`` points at."""
    return BufferDecl(
        _make(shape, dtype, data, strides, elem_offset, scope, align, axis_separators)
    )


@dataclass
class MatchBuffer:
    """``A = T.match_buffer(source, ...)``."""

    source: Any
    buffer: Buffer


def match_buffer(
    source: Any,
    shape: Any = None,
    dtype: Any = None,
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str | None = None,
    align: int = 64,
    axis_separators: Sequence[int] = (),
) -> Any:
    """Give a handle parameter its buffer, or a region of a buffer a name inside a block.

    For a region, shape, dtype and scope are those of the region if left out.
    """
    if isinstance(source, (Buffer, BufferLoad, BufferSlice)):
        source = as_region(source)
        shape = tuple(item.extent for item in source.region) if shape is None else shape
        dtype = source.buffer.dtype if dtype is None else dtype
        scope = source.buffer.scope if scope is None else scope
    elif shape is None:
        raise VerifyError("match_buffer of a handle needs a shape")
    return MatchBuffer(
        source,
        _make(
            shape, dtype or "float32", data, strides, elem_offset, scope or "global", align,
            axis_separators,
        ),
    )  # fmt: skip


# ---- loops ------------------------------------------------------------------------------------


@dataclass
class Loops:
    """What follows ``in`` of a ``for``: one loop, or several of ``T.grid``."""

    kind: str
    ranges: list[tuple[Expr, Expr]]
    thread: str | None = None
    annotations: dict[str, Any] = field(default_factory=dict)
    dtype: str | None = None

    def __iter__(self) -> Any:
        raise VerifyError("loops run inside @T.prim_func only")


def _loop(
    kind: str, start: Any, stop: Any, annotations: Any, dtype: Any, thread: str | None = None
) -> Any:
    if stop is None:
        start, stop = 0, start
    minimum, extent = split_range(start, stop)
    for part in (minimum, extent):
        if dtypes.kind_of(part.dtype) not in ("int", "uint") or dtypes.lanes_of(part.dtype) > 1:
            raise VerifyError(f"a loop runs over integers, got {part!r}: {part.dtype}")
    if thread is not None and not isinstance(thread, str):
        raise VerifyError(f"thread is a tag such as 'threadIdx.x', got {thread!r}")
    made = None if dtype is None else as_dtype(dtype)
    return Loops(kind, [(minimum, extent)], thread, dict(annotations or {}), made)


def serial(
    start: Any,
    stop: Any = None,
    *,
    annotations: Mapping[str, Any] | None = None,
    dtype: Any = None,
    thread: str | None = None,
) -> Any:
    """A loop that runs in order: ``T.serial(stop)`` or ``T.serial(start, stop)``."""
    return _loop(SERIAL, start, stop, annotations, dtype, thread)


def parallel(
    start: Any,
    stop: Any = None,
    *,
    annotations: Mapping[str, Any] | None = None,
    dtype: Any = None,
    thread: str | None = None,
) -> Any:
    """A loop whose iterations run on several threads."""
    return _loop(PARALLEL, start, stop, annotations, dtype, thread)


def vectorized(
    start: Any,
    stop: Any = None,
    *,
    annotations: Mapping[str, Any] | None = None,
    dtype: Any = None,
    thread: str | None = None,
) -> Any:
    """A loop whose iterations are the lanes of vectors."""
    return _loop(VECTORIZED, start, stop, annotations, dtype, thread)


def unroll(
    start: Any,
    stop: Any = None,
    *,
    annotations: Mapping[str, Any] | None = None,
    dtype: Any = None,
    thread: str | None = None,
) -> Any:
    """A loop that is written out."""
    return _loop(UNROLLED, start, stop, annotations, dtype, thread)


def thread_binding(
    start: Any,
    stop: Any = None,
    thread: str | None = None,
    *,
    annotations: Mapping[str, Any] | None = None,
    dtype: Any = None,
) -> Any:
    """A loop whose iterations are the threads of a tag: ``threadIdx.x``, ``blockIdx.y``, …."""
    return _loop(THREAD_BINDING, start, stop, annotations, dtype, thread)


def grid(*extents: Any) -> Any:
    """Nested serial loops; an extent may be a pair ``(start, stop)``."""
    ranges: list[tuple[Expr, Expr]] = []
    for extent in extents:
        if isinstance(extent, tuple):
            if len(extent) != 2:
                raise VerifyError(f"a range is an extent or (start, stop), got {extent!r}")
            ranges.extend(_loop(SERIAL, extent[0], extent[1], None, None).ranges)
        else:
            ranges.extend(_loop(SERIAL, extent, None, None, None).ranges)
    return Loops(SERIAL, ranges)


# ---- blocks -----------------------------------------------------------------------------------


@dataclass
class BlockDecl:
    """``with T.block("name"):``."""

    name: str
    no_realize: bool


def block(name: str = "", no_realize: bool = False) -> Any:
    """A block. ``no_realize`` gives the block alone, without values for its axes."""
    if not isinstance(name, str):
        raise VerifyError(f"a block's name is text, got {name!r}")
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


def _axis(kind: str, dom: Any, value: Any, dtype: Any) -> Any:
    if isinstance(dom, (tuple, list)):
        if len(dom) != 2:
            raise VerifyError(f"the range of an axis is an extent or (start, stop), got {dom!r}")
        made = Range(*split_range(*dom))
    elif isinstance(dom, slice):
        made = Range(*split_range(0 if dom.start is None else dom.start, dom.stop))
    elif isinstance(dom, Range):
        made = dom
    else:
        made = Range(*split_range(0, dom))
    if dtypes.kind_of(made.extent.dtype) not in ("int", "uint"):
        raise VerifyError(f"the range of an axis must be of integers, got {made.extent.dtype}")
    bound = None if value is None else as_expr(value, INDEX)
    if bound is not None and dtypes.kind_of(bound.dtype) not in ("int", "uint"):
        raise VerifyError(f"an axis takes integer values, got {bound.dtype}")
    return AxisDecl(kind, made, bound, made.extent.dtype if dtype is None else as_dtype(dtype))


class Axis:
    """``T.axis``: the axes of a block."""

    __slots__ = ()

    @staticmethod
    def spatial(dom: Any, value: Any = None, dtype: Any = None) -> Any:
        """An axis whose iterations are independent."""
        return _axis("spatial", dom, value, dtype)

    @staticmethod
    def reduce(dom: Any, value: Any = None, dtype: Any = None) -> Any:
        """An axis that is reduced over."""
        return _axis("reduce", dom, value, dtype)

    @staticmethod
    def opaque(dom: Any, value: Any = None, dtype: Any = None) -> Any:
        """An axis about whose iterations nothing is known."""
        return _axis("opaque", dom, value, dtype)

    @staticmethod
    def remap(kinds: str, values: Sequence[Any]) -> Any:
        """Axes over the ranges of the loops they are bound to; ``kinds`` has S, R or O for each."""
        if not isinstance(kinds, str) or set(kinds) - set("SRO"):
            raise VerifyError(f"remap takes a letter S, R or O for each axis, got {kinds!r}")
        values = list(values)
        if len(kinds) != len(values):
            raise VerifyError(f"remap names {len(kinds)} kinds for {len(values)} loop variables")
        return RemapDecl(kinds, values)

    S = spatial
    R = reduce


axis = Axis()


@dataclass
class Where:
    """``T.where(predicate)``."""

    predicate: Any


def where(predicate: Any) -> Any:
    """Run the block only where ``predicate`` holds."""
    return Where(predicate)


@dataclass
class Accesses:
    """``T.reads(...)`` or ``T.writes(...)``."""

    kind: str
    regions: tuple[BufferRegion, ...]


def _accesses(kind: str, regions: tuple[Any, ...]) -> Any:
    if len(regions) == 1 and isinstance(regions[0], (list, tuple)):
        regions = tuple(regions[0])
    return Accesses(kind, tuple(map(as_region, regions)))


def reads(*regions: Any) -> Any:
    """State what an instance of the block reads; inferred if left out."""
    return _accesses("reads", regions)


def writes(*regions: Any) -> Any:
    """State what an instance of the block writes; inferred if left out."""
    return _accesses("writes", regions)


@dataclass
class Attributes:
    """``T.block_attr({...})`` or ``T.func_attr({...})``."""

    kind: str
    attrs: dict[str, Any]


def _attributes(kind: str, attrs: Any) -> Any:
    if not isinstance(attrs, Mapping) or not all(isinstance(key, str) for key in attrs):
        raise VerifyError(f"{kind} takes a dict with text as keys, got {attrs!r}")
    return Attributes(kind, dict(attrs))


def block_attr(attrs: Mapping[str, Any]) -> Any:
    """State annotations of the block."""
    return _attributes("block_attr", attrs)


def func_attr(attrs: Mapping[str, Any]) -> Any:
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

    value: Any
    dtype: str | None


def let_stmt(value: Any, dtype: Any = None) -> Any:
    """Bind a variable for the body of the ``with``."""
    return LetDecl(value, None if dtype is None else as_dtype(dtype))


@dataclass
class AttrDecl:
    """``T.attr(node, key, value)``, for the rest of the suite or the ``with`` body."""

    node: Any
    key: str
    value: Expr


def attr(node: Any, key: str, value: Any) -> Any:
    """Say something about ``node`` that holds in what follows."""
    return AttrDecl(node, key, as_expr(value))


class SeqDecl:
    """``with T.seq():``."""


def seq_stmt() -> Any:
    """Statements kept together as one sequence."""
    return SeqDecl()


@dataclass
class MetaVar:
    """``x = T.meta_var(value)``."""

    value: Any


def meta_var(value: Any) -> Any:
    """Give an expression a name in the text only: uses are replaced by it."""
    return MetaVar(value)


def evaluate(value: Any) -> Any:
    """Evaluate an expression for its effect."""
    return Evaluate(as_expr(value))
