"""``PrimFunc``: a function over buffers and scalars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ir import (
    BaseFunc,
    DictAttrs,
    TupleType,
    Var,
    attr,
    child,
    definitions,
    dtypes,
    free_vars,
    node,
    set_span,
)
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer
from tilewright.tir.stmt import Block, BlockRealize, Stmt


@node
class PrimFunc(BaseFunc):
    """A tensor function.

    ``params`` are variables: handles for buffers (``buffer_map`` says which) and scalars. Symbolic
    extents are variables inside the buffers' shapes, defined by their first appearance there, in
    the order of parameters. A *schedulable* function has a ``BlockRealize`` of the root block as
    its body (script, ``te.create_prim_func`` and the importers all make that).

    A parameter may be given as its buffer, whose handle is made then; else ``buffer_map`` says
    which buffers the handles among ``params`` are of.
    """

    params: tuple[Var, ...] = definitions()
    buffer_map: Mapping[Var, Buffer] = attr()
    body: Stmt = child()
    ret_dtype: str = attr(default="void")
    attrs: Mapping[str, Any] = attr(default=None)

    init_takes_fields = False

    def __init__(
        self,
        params: Iterable[Var | Buffer],
        body: Stmt,
        ret_type: Any = None,
        attrs: Mapping[Any, Any] | None = None,
        span: Any = None,
        *,
        buffer_map: Mapping[Var, Buffer] | None = None,
    ) -> None:
        if isinstance(span, Mapping) or (attrs and isinstance(next(iter(attrs)), Var)):
            # Older versions of TVM have the map of buffers here, and attributes behind it.
            if buffer_map is not None:
                raise VerifyError("the map of buffers is given twice")
            buffer_map, attrs, span = attrs, span, None
        buffers, variables = dict(buffer_map or {}), []
        for param in params:
            handle = Var(f"{param.name}_handle", "handle") if isinstance(param, Buffer) else param
            if isinstance(param, Buffer):
                buffers[handle] = param
            variables.append(handle)
        is_nothing = ret_type is None or (isinstance(ret_type, TupleType) and not ret_type.fields)
        kind = "void" if is_nothing else dtypes.dtype_text(ret_type)
        self.fill(tuple(variables), buffers, body, kind, attrs)
        if span is not None:
            set_span(self, span)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attrs", DictAttrs.of(self.attrs))
        if self.ret_dtype != "void":
            dtypes.check_dtype(self.ret_dtype)
        known = set(self.params)  # Compared by identity; a tuple's ``in`` would build expressions.
        for var in self.buffer_map:
            if var not in known:
                raise VerifyError(f"buffer_map names {var.name}, which is not a parameter")

    @property
    def buffers(self) -> list[Buffer]:
        """Buffers of the parameters that have one, in order."""
        return [self.buffer_map[var] for var in self.params if var in self.buffer_map]

    @property
    def root(self) -> Block:
        """The root block; ``VerifyError`` if the function is lowered already."""
        if not isinstance(self.body, BlockRealize):
            raise VerifyError("the function has no root block: it is lowered already")
        return self.body.block

    def symbolic_vars(self) -> list[Var]:
        """Variables that shapes, strides and offsets of the parameter buffers define, in order."""
        scalars = {var for var in self.params if var not in self.buffer_map}
        found: dict[Var, None] = {}
        for buffer in self.buffers:
            for extent in (*buffer.shape, *buffer.strides, buffer.elem_offset):
                if type(extent) is Var and extent not in scalars:
                    found.setdefault(extent)
        return list(found)

    def sizes(self) -> list[Var]:
        """Variables that come with the call and are in shapes: extents, and scalars in formulas."""
        found = dict.fromkeys(self.symbolic_vars())
        for buffer in self.buffers:
            for extent in buffer.shape:
                found.update(dict.fromkeys(free_vars(extent)))
        return list(found)

    if TYPE_CHECKING:  # `tir.specialize` adds it: renewing definitions stands on this module

        def specialize(self, param_map: Mapping[Var, Any]) -> PrimFunc: ...

    def with_body(self, new_body: Stmt, span: object = None) -> PrimFunc:
        """Return a copy with another body."""
        made: PrimFunc = self.replace(body=new_body)
        if span is not None:
            set_span(made, span)
        return made

    @property
    def ret_type(self) -> str:
        """The dtype of the result, as TVM calls it."""
        return self.ret_dtype

    def __repr__(self) -> str:
        return f"PrimFunc({', '.join(var.name for var in self.params)})"
