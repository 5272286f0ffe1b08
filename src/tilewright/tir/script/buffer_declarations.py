"""The part of the dialect ``T`` that declares buffers, and says which part of one is meant.

``A[i, j:j + 4]`` is a region or a vector; ``T.Buffer``, ``T.alloc_buffer``, ``T.allocate``,
``T.decl_buffer`` and ``T.match_buffer`` return records, to which the parser gives a meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from tilewright.ir import (
    INDEX,
    Expr,
    ExprLike,
    IntImm,
    Ramp,
    Range,
    Var,
    as_expr,
    as_int,
    const,
    dtypes,
    floordiv,
    found_lanes,
)
from tilewright.script.allowance import register_values
from tilewright.script.references import register_subscript
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches
from tilewright.tir.buffer import Buffer, BufferLoad, BufferRegion
from tilewright.tir.buffer import decl_buffer as make_buffer
from tilewright.tir.script.scalars import DTypeLike, as_dtype, split_range

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
                made.append(
                    Range.from_min_extent(
                        *split_range(start, extent if item.stop is None else item.stop)
                    )
                )
            else:
                made.append(Range.from_min_extent(item, const(1)))
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
            lanes = found_lanes(extent) if count is None and stride == 1 else count
            if lanes is None or stride is None or stride < 1:
                raise VerifyError(
                    f"a slice of {self.buffer.name} as a value needs a constant length and step, "
                    f"got {begin!r}:{begin!r} + {extent!r}"
                )
            if count is None and type(begin) is IntImm:
                begin = const(begin.value)
            elif count is not None:
                lanes = -(-count // stride)
            if lanes < 1:
                raise VerifyError(f"the slice of {self.buffer.name} is empty")
            made.append(begin if lanes == 1 else Ramp(begin, const(stride, begin.dtype), lanes))
        if any(type(index) is Ramp for index in made[:-1]):
            raise VerifyError(
                f"only the last index of {self.buffer.name} may be a slice of several elements "
                "where a value is expected"
            )
        return tuple(made)

    def as_expr(self) -> BufferLoad:
        """The vector that stands there."""
        return BufferLoad(self.buffer, self.indices())

    def astype(self, dtype: str) -> Expr:
        """Convert the vector."""
        return self.as_expr().astype(dtype)


Region = Buffer | BufferRegion | BufferLoad | BufferSlice
Extents = Buffer | ExprLike | str | Sequence[ExprLike | str]


def _index(buffer: Buffer, index: slice | ExprLike) -> Any:
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


def as_region(value: object) -> BufferRegion:
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
        return BufferRegion(
            value.buffer, tuple(Range.from_min_extent(index, const(1)) for index in value.indices)
        )
    raise VerifyError(f"expected a buffer or a region such as A[i, 0:16], got {value!r}")


Pointer = Var | Buffer | None


class Layout(TypedDict, total=False):
    """What a declaration may say of a buffer besides its shape and dtype."""

    data: Pointer
    strides: Extents | None
    elem_offset: ExprLike | None
    byte_offset: ExprLike | None
    scope: str
    align: int
    offset_factor: int
    buffer_type: str
    axis_separators: Sequence[int]
    layout: str | None
    allocated_addr: None
    buffer_name: str
    annotations: Mapping[str, object] | None


_FIRST = ("data", "strides", "elem_offset")
_THEN = ("scope", "align", "offset_factor")
_ORDER = (*_FIRST, "byte_offset", *_THEN, "layout", "allocated_addr", "buffer_name")
"""In which order the layout may be told by position, as TVM's declarations have it."""
_OLD_ORDER = (*_FIRST, *_THEN, "buffer_type", "axis_separators")
"""The order of TVM's versions without ``byte_offset``, and of ``match_buffer``."""
_ALLOCATED = (*_ORDER[:-1], "annotations")


def _layout(
    given: tuple[Any, ...], named: Mapping[str, Any], order: tuple[str, ...] = _ORDER
) -> Layout:
    """Join what is told by position with what is told by name."""
    made = Layout()
    if len(given) > 3 and isinstance(given[3], str):
        order = _OLD_ORDER
    known = list(Layout.__annotations__)
    for key, value in [*zip(order, given), *named.items()]:
        if key not in known:
            raise VerifyError(f"a buffer takes no {key!r}; {near_matches(key, known)}")
        if key in made:
            raise VerifyError(f"{key} is given twice")
        made[key] = value  # type: ignore[literal-required]  # the key is one of the layout's
    if len(given) > len(order):
        raise VerifyError(f"a buffer is told at most {len(order) + 2} things by position")
    return made


@dataclass
class DeferredBuffer:
    """A buffer whose shape names symbolic variables by text: ``T.Buffer(("n", 4))``."""

    shape: tuple[Any, ...]
    dtype: DTypeLike
    layout: Layout


def _shape(shape: object) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def _make(shape: Extents, dtype: DTypeLike, layout: Layout) -> Buffer:
    if isinstance(shape, Buffer):  # declared above, because something there names it already
        return shape
    align, data, strides = layout.get("align", 64), layout.get("data"), layout.get("strides")
    align = 64 if align in (0, -1) else align  # TVM's words for the usual alignment
    if not isinstance(align, int) or align < 1:
        raise VerifyError(f"align is a number of bytes, got {align!r}")
    _check_promises(layout)
    parts = (*_shape(shape), *(_shape(strides) if strides is not None else ()))
    for extent in parts:
        kind = dtypes.kind_of(as_expr(extent).dtype)
        if kind not in ("int", "uint"):
            raise VerifyError(f"shapes and strides are integers, got {extent!r}")
    return make_buffer(
        _shape(shape),
        as_dtype(dtype),
        layout.get("buffer_name", ""),
        data=data.data if isinstance(data, Buffer) else data,
        strides=_shape(strides) if strides is not None else (),
        elem_offset=_offset(layout, as_dtype(dtype)),
        scope=layout.get("scope", "global"),
        alignment=align,
        axis_separators=layout.get("axis_separators", ()),
    )


def _offset(layout: Layout, dtype: str) -> ExprLike | None:
    """The offset in elements."""
    in_bytes = layout.get("byte_offset")
    if in_bytes is None:
        return layout.get("elem_offset")
    if layout.get("elem_offset") is not None:
        raise VerifyError("a buffer has an elem_offset or a byte_offset, not both")
    size, number = dtypes.bytes_of(dtype), as_int(as_expr(in_bytes))
    if number is not None and number % size:
        raise VerifyError(f"byte_offset={number} is no multiple of the {size} bytes of {dtype}")
    return floordiv(as_expr(in_bytes), size)


def _check_promises(layout: Layout) -> None:
    """Check what is promised of a buffer and needs no memory of its own.

    That an offset is a multiple of ``offset_factor`` is seen from the offset itself.
    """
    if layout.get("layout", "default") not in ("default", None):
        raise VerifyError(f"layout is 'default', got {layout['layout']!r}; state strides instead")
    if layout.get("allocated_addr") is not None:
        raise VerifyError("memory has no allocated_addr: it is placed when programs are built")
    factor, kind = layout.get("offset_factor", 0), layout.get("buffer_type", "default")
    if not isinstance(factor, int) or factor < 0:
        raise VerifyError(f"offset_factor is a number of elements, got {factor!r}")
    if kind not in ("default", ""):
        raise VerifyError(f"buffer_type is 'default', got {kind!r}; state strides instead")


def buffer_type(
    shape: Extents, dtype: DTypeLike = "float32", *given: object, **layout: Unpack[Layout]
) -> Buffer | DeferredBuffer:
    """A buffer: as a parameter's annotation, or declared by ``A = T.Buffer(...)``.

    Extents are numbers, expressions, or text that names symbolic variables (``("n", "n * 4")``).
    The layout follows, by position or name: see ``Layout``.
    """
    told = _layout(given, layout)
    if any(isinstance(extent, str) for extent in _shape(shape)):
        return DeferredBuffer(_shape(shape), dtype, told)
    return _make(shape, dtype, told)


@dataclass
class AllocBuffer:
    """``C = T.alloc_buffer(...)``: memory of the enclosing block.

    A buffer that Python has made keeps its name: ``T.alloc_buffer(buffer)``.
    """

    buffer: Buffer
    is_made: bool = False


def alloc_buffer(
    shape: Extents,
    dtype: DTypeLike = "float32",
    *given: object,
    **layout: Unpack[Layout],
) -> Any:
    """Declare a buffer of the enclosing block, or of the root block outside of all.

    With annotations it is an allocation for the rest of the suite, as ``T.allocate`` makes it.
    Instead of a shape a kernel's macro may give a buffer that Python has made.
    """
    if isinstance(shape, Buffer):
        return AllocBuffer(shape, is_made=True)
    told = _layout(given, layout, _ALLOCATED)
    buffer, annotations = _make(shape, dtype, told), told.get("annotations")
    return AllocateDecl(buffer, dict(annotations)) if annotations else AllocBuffer(buffer)


def alloc_local(shape: Extents, dtype: DTypeLike = "float32", **layout: Any) -> Any:
    """Declare a buffer in registers: ``T.alloc_buffer`` of scope ``local``."""
    return alloc_buffer(shape, dtype, **{"scope": "local", **layout})


def alloc_shared(shape: Extents, dtype: DTypeLike = "float32", **layout: Any) -> Any:
    """Declare a buffer that a block of threads shares: ``T.alloc_buffer`` of scope ``shared``."""
    return alloc_buffer(shape, dtype, **{"scope": "shared", **layout})


@dataclass
class ScalarDecl:
    """``x = T.alloc_scalar("float32")``: a variable that is assigned as often as one likes."""

    dtype: str
    scope: str


def alloc_scalar(dtype: DTypeLike = "float32", scope: str = "local") -> ScalarDecl:
    """Declare a variable that can change; ``x: T.float32`` does the same."""
    return ScalarDecl(as_dtype(dtype), scope)


@dataclass
class BufferDecl:
    """``B = T.decl_buffer(..., data=A.data)``: another view of memory."""

    buffer: Buffer


def decl_buffer(
    shape: Extents, dtype: DTypeLike = "float32", *given: object, **layout: Unpack[Layout]
) -> Any:
    """Declare a view of the memory that ``data`` points at; without ``data``, memory of its own."""
    told = _layout(given, layout)
    buffer = _make(shape, dtype, told)
    own = told.get("data") is None and not isinstance(shape, Buffer)
    return AllocateDecl(buffer, {}) if own else BufferDecl(buffer)


@dataclass
class AllocateDecl:
    """``buf = T.allocate(...)``: memory for the rest of the suite, or of the ``with`` body."""

    buffer: Buffer
    annotations: dict[str, Any]


def allocate(
    extents: Extents,
    dtype: DTypeLike = "float32",
    scope: str = "global",
    condition: ExprLike | None = None,
    annotations: Mapping[str, object] | None = None,
    **layout: object,
) -> AllocateDecl:
    """Allocate memory in a lowered program; the layout is told as to ``decl_buffer``."""
    if condition is not None and as_int(as_expr(condition)) != 1:
        raise VerifyError("memory is allocated always: put what needs it under an if")
    buffer = _make(extents, dtype, _layout((), {"scope": scope, **layout}))
    return AllocateDecl(buffer, dict(annotations or {}))


@dataclass
class MatchBuffer:
    """``A = T.match_buffer(source, ...)``."""

    source: Var | BufferRegion
    buffer: Buffer


class _LeftOut(str):
    """A dtype that nobody has told."""


_LEFT_OUT = _LeftOut("float32")


def match_buffer(
    param: Var | Region,
    shape: Extents | None = None,
    dtype: DTypeLike = _LEFT_OUT,
    *given: object,
    **layout: Unpack[Layout],
) -> MatchBuffer:
    """Give a handle parameter its buffer, or a region of a buffer a name inside a block.

    For a region, shape, dtype and scope are those of the region if left out.
    """
    source, told = param, _layout(given, layout, _OLD_ORDER)
    if isinstance(source, (Buffer, BufferLoad, BufferSlice)):
        source = as_region(source)
        shape = tuple(item.extent for item in source.region) if shape is None else shape
        dtype = source.buffer.dtype if dtype is _LEFT_OUT else dtype
        told.setdefault("scope", source.buffer.scope)
        if told.get("offset_factor") and told.get("elem_offset") is None:
            told["elem_offset"] = Var("elem_offset", INDEX)
    elif shape is None:
        raise VerifyError("match_buffer of a handle needs a shape")
    return MatchBuffer(source, _make(shape, dtype, told))


register_values(Buffer, attributes="data shape strides elem_offset dtype scope ndim")
register_values(BufferSlice, attributes="astype")
register_values(DeferredBuffer, ScalarDecl, AllocBuffer, AllocateDecl, BufferDecl, MatchBuffer)
