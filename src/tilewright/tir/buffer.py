"""Buffers: named, shaped memory, and reading them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from tilewright.ir import (
    INDEX,
    Expr,
    ExprLike,
    Node,
    Range,
    Var,
    as_expr,
    attr,
    check_extents,
    check_name,
    child,
    children,
    definition,
    derived,
    dtypes,
    node,
    set_span,
)
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches
from tilewright.tir.buffer_access import BufferPlaces, make_indices

MEMORIES = (
    "global", "local", "shared", "warp", "warpgroup", "wmma", "m16n8k8", "mma", "texture",
    "constant", "metal",
)  # fmt: skip
"""First parts of storage scopes: ``shared.dyn`` and ``wmma.accumulator`` are of these, too."""

_SCOPE = re.compile(r"[a-z][A-Za-z0-9_]*(\.[A-Za-z0-9_-]+)*")


@cache
def check_scope(scope: str) -> None:
    """Refuse what is no storage scope: a memory, and maybe names of what it is used for."""
    if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
        raise VerifyError(f"{scope!r} is no name of a memory")
    first = scope.partition(".")[0]
    if first not in MEMORIES:
        raise VerifyError(f"unknown storage scope {scope!r}; {near_matches(first, [*MEMORIES])}")


class Scope(str):
    """The name of a memory; a call gives it too: ``buffer.scope()`` is ``buffer.scope``."""

    __slots__ = ()

    def __call__(self) -> str:
        return str(self)


@cache
def _scope(name: str) -> Scope:
    check_scope(name)
    return Scope(name)


@node
class Buffer(BufferPlaces):
    """A buffer: identity is the object; all uses of one buffer share it.

    ``shape`` in elements, row-major unless ``strides`` (in elements) are given. ``elem_offset``
    (in elements) is ``None`` for zero. ``scope`` names the memory: ``global``, ``local``
    (registers), ``shared``, ``warp``, ``wmma.*`` …. ``alignment`` in bytes. ``data`` is the pointer
    variable; two buffers with one ``data`` alias. ``axis_separators`` are the axes before which a
    new physical axis starts.

    Traversals treat a buffer as a leaf: expressions inside its shape belong to its definition.
    """

    symbol = True

    name: str = attr()
    shape: tuple[Expr, ...] = attr()
    dtype: str = attr(default="float32")
    strides: tuple[Expr, ...] = attr(default=())
    elem_offset: Expr | None = attr(default=None)
    scope: str = attr(default="global")
    alignment: int = attr(default=64)
    axis_separators: tuple[int, ...] = attr(default=())
    data: Var = definition(default=None)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        if type(self.name) is not str:
            check_name(self.name, "a buffer")
        set_field(self, "shape", tuple(as_expr(extent) for extent in self.shape))
        set_field(self, "strides", tuple(as_expr(stride) for stride in self.strides))
        if self.data is None:
            set_field(self, "data", Var(self.name, "handle"))
        if type(self.scope) is not Scope:
            check_scope(self.scope)
            set_field(self, "scope", _scope(self.scope))
        if dtypes.is_scalable(self.dtype):
            element = dtypes.element_of(self.dtype)
            raise VerifyError(
                f"memory holds elements of a known size: buffer {self.name} is of {element}, and "
                f"an index of scalable lanes reads a {self.dtype} from it"
            )
        check_extents(self.shape, "buffer ", self.name)
        if self.strides and len(self.strides) != len(self.shape):
            raise VerifyError(
                f"buffer {self.name} has {len(self.shape)} dimensions "
                f"but {len(self.strides)} strides"
            )

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, indices: object) -> BufferLoad:
        """Read an element: ``A[i, j]``; a slice with a constant extent reads a vector."""
        indices = indices if isinstance(indices, tuple) else (indices,)
        return BufferLoad(self, make_indices(self, indices))

    if TYPE_CHECKING:
        # In script alone; Python has no statement to give back.
        def __setitem__(self, indices: object, value: object) -> None: ...

    __iter__ = None  # else Python would iterate by A[0], A[1], ... without an end

    def region(self) -> BufferRegion:
        """The whole buffer as a region."""
        return BufferRegion(
            self, tuple(Range.from_min_extent(as_expr(0), extent) for extent in self.shape)
        )

    def with_fresh_data(self, **changes: object) -> Buffer:
        """Return a copy with other fields and a pointer variable of its own."""
        return self.replace(**{"data": None, **changes})

    def __repr__(self) -> str:
        return f"Buffer({self.name}: {self.dtype}{list(self.shape)}, {self.scope})"


def access_dtype(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    """The dtype of a value read or written at ``indices``: vector if the last index is one."""
    return _repeated(buffer.dtype, indices[-1].dtype) if indices else buffer.dtype


def _load_dtype(load: BufferLoad) -> str:
    for index in load.indices:
        if not isinstance(index, Expr):  # numbers
            object.__setattr__(load, "indices", tuple(map(as_expr, load.indices)))
            break
    return access_dtype(load.buffer, load.indices)


@cache
def _repeated(dtype: str, index: str) -> str:
    """As many values of a dtype as an index has lanes."""
    element, own = dtypes.split_dtype(dtype)
    return dtypes.vector_dtype(element, own * dtypes.lanes_of(index))


@node
class BufferLoad(Expr):
    """An element of a buffer, or a vector of them if the last index is a vector."""

    reads_memory = True
    buffer: Buffer = child()
    indices: tuple[Expr, ...] = children()
    dtype: str = derived(_load_dtype)

    def __repr__(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(repr, self.indices))}]"


@node
class BufferRegion(Node):
    """A box inside a buffer: one range per dimension."""

    buffer: Buffer = child()
    region: tuple[Range, ...] = children()

    def __repr__(self) -> str:
        inside = ", ".join(f"{r.min!r}:{r.min!r}+{r.extent!r}" for r in self.region)
        return f"{self.buffer.name}[{inside}]"


def decl_buffer(
    shape: Sequence[ExprLike] | ExprLike,
    dtype: str | None = None,
    name: str = "buffer",
    data: Var | None = None,
    strides: Sequence[ExprLike] | None = None,
    elem_offset: ExprLike | None = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    span: object = None,
    layout: str | None = "default",
    *,
    alignment: int | None = None,
    axis_separators: Sequence[int] = (),
) -> Buffer:
    """Declare a buffer; see :class:`Buffer` for the units.

    ``data_alignment`` is ``alignment``, by default 64 bytes. With ``offset_factor`` and no offset,
    the offset is a new variable; a stated number must be a multiple of it. ``layout`` is the
    default one, row by row: state ``strides`` for another.
    """
    if layout not in ("default", None):
        raise VerifyError(f"layout is 'default', got {layout!r}; state strides instead")
    dtype, scope, strides = dtype or "float32", scope or "global", strides or ()
    if alignment is None:
        alignment = 64 if data_alignment < 1 else data_alignment
    if offset_factor:
        if elem_offset is None:
            elem_offset = Var(f"{name}_elem_offset", INDEX)
        number = getattr(elem_offset, "value", elem_offset)
        if isinstance(number, int) and number % offset_factor:
            raise VerifyError(f"the offset {number} is no multiple of {offset_factor}")
    extents = (shape,) if isinstance(shape, (Expr, int, float)) else tuple(shape)
    made = Buffer(
        name,
        tuple(as_expr(extent, INDEX) for extent in extents),
        dtype,
        tuple(as_expr(stride, INDEX) for stride in strides),
        None if elem_offset is None else as_expr(elem_offset, INDEX),
        scope,
        alignment,
        tuple(axis_separators),
        cast(Any, data),  # None makes a fresh one
    )
    if span is not None:
        set_span(made, span)
    return made
