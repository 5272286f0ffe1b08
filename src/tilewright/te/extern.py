"""Operations written as statements: those without a formula per element (sorting)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import Expr, ExprLike, Var, dtypes, pre_order, structural_equal
from tilewright.support.errors import VerifyError
from tilewright.te.tag import current_tag
from tilewright.te.tensor import Operation, Tensor
from tilewright.tir import (
    Block,
    BlockRealize,
    Buffer,
    Evaluate,
    PrimFunc,
    Stmt,
    decl_buffer,
    make_root_block,
    renew_definitions,
)

ExternBody = Callable[[Sequence[Buffer], Sequence[Buffer]], Stmt]
"""From the buffers of inputs and outputs to statements: blocks under loops."""


class ExternOp(Operation):
    """An operation made of statements.

    ``body`` are statements that access ``input_placeholders`` and write ``output_placeholders``,
    buffers which stand for ``inputs`` and results; or it makes them from a function's buffers, once
    for each function. Results have the shapes and dtypes of their placeholders.

    Raises ``VerifyError`` if the placeholders don't fit the inputs.
    """

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: Mapping[str, Any] | None,
        inputs: Sequence[Tensor],
        input_placeholders: Sequence[Buffer],
        output_placeholders: Sequence[Buffer],
        body: Stmt | ExternBody,
    ) -> None:
        super().__init__(name, (), (), current_tag(tag), attrs)
        if [item.dtype for item in inputs] != [item.dtype for item in input_placeholders]:
            raise VerifyError(
                f"extern {name!r}: the placeholders {list(input_placeholders)} don't fit the "
                f"inputs {list(inputs)}"
            )
        self._inputs = list(dict.fromkeys(inputs))
        self.operands = tuple(inputs)
        self.input_placeholders = tuple(input_placeholders)
        self.output_placeholders = tuple(output_placeholders)
        self.body = body
        self.dtypes = tuple(buffer.dtype for buffer in output_placeholders)
        several = len(self.dtypes) > 1
        self.outputs = tuple(
            Tensor(
                buffer.shape,
                buffer.dtype,
                self,
                number,
                name=f"{name}_v{number}" if several else name,
            )
            for number, buffer in enumerate(output_placeholders)
        )

    def statements(self, ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        """Return the body on a function's buffers: statements of their own."""
        if not isinstance(self.body, Stmt):
            return self.body(ins, outs)
        pairs = dict(zip((*self.input_placeholders, *self.output_placeholders), (*ins, *outs)))
        pointers = {a.data: b.data for a, b in pairs.items()}
        made: Stmt = renew_definitions(self.body, {**pairs, **pointers})
        return _in_block(self.name, made, ins, outs)

    @property
    def inputs(self) -> list[Tensor]:
        """Tensors that the statements read, once each."""
        return self._inputs


def extern(
    shape: Sequence[Any] | ExprLike,
    inputs: Sequence[Tensor],
    fcompute: Callable[[Sequence[Buffer], Sequence[Buffer]], Any],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    in_buffers: Buffer | Sequence[Buffer] | None = None,
    out_buffers: Buffer | Sequence[Buffer] | None = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Define tensors by statements; ``shape`` is one, or a list of one for each tensor.

    ``fcompute`` takes the buffers of ``inputs`` and those of the results, and returns blocks under
    loops, or a call (``tir.call_packed("name", ins[0], outs[0])``). It is called once for each
    function that is created, and must declare new buffers each time. ``in_buffers`` and
    ``out_buffers`` are what statements made before call the inputs and results. Without ``dtype``
    results have that of the inputs. One shape gives a tensor, several a list.

    Raises ``VerifyError`` if there are not as many dtypes or buffers as tensors.
    """
    shapes = _shapes(shape)
    kinds = _result_dtypes(name, dtype, inputs, len(shapes))
    declared_in, declared_out = _buffers(in_buffers), _buffers(out_buffers)
    for what, declared, count in (
        ("in_buffers", declared_in, len(inputs)),
        ("out_buffers", declared_out, len(shapes)),
    ):
        if declared and len(declared) != count:
            raise VerifyError(f"extern {name!r}: {len(declared)} {what} for {count} tensors")

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        made = fcompute(declared_in or ins, declared_out or outs)
        stmt = Evaluate(made) if isinstance(made, Expr) else made
        if not isinstance(stmt, Stmt):
            raise VerifyError(f"extern {name!r} is to give a statement or a call, got {made!r}")
        mapping = dict(zip(declared_in, ins)) | dict(zip(declared_out, outs))
        if mapping:
            pointers = {a.data: b.data for a, b in mapping.items()}
            stmt = renew_definitions(stmt, {**mapping, **pointers})
        return _in_block(name, stmt, ins, outs)

    ins = declared_in or [decl_buffer(x.shape, x.dtype, x.name) for x in inputs]
    outs = declared_out or [decl_buffer(x, kind, name) for x, kind in zip(shapes, kinds)]
    outputs = ExternOp(name, tag, attrs, inputs, ins, outs, body).outputs
    return outputs[0] if len(outputs) == 1 else list(outputs)


def _shapes(shape: Any) -> list[tuple[Any, ...]]:
    if isinstance(shape, (int, Expr)):
        return [(shape,)]
    if all(isinstance(item, (int, Expr)) for item in shape):
        return [tuple(shape)]
    return [tuple(item) for item in shape]


def _buffers(given: Buffer | Sequence[Buffer] | None) -> list[Buffer]:
    if given is None:
        return []
    return [given] if isinstance(given, Buffer) else list(given)


def _result_dtypes(
    name: str, dtype: str | Sequence[str] | None, inputs: Sequence[Tensor], count: int
) -> list[str]:
    if dtype is None:
        found = {tensor.dtype for tensor in inputs}
        if len(found) != 1:
            raise VerifyError(
                f"extern {name!r} needs dtype=: its inputs are of {sorted(found) or 'no dtype'}"
            )
        return [found.pop()] * count
    made = [dtype] if isinstance(dtype, str) else list(dtype)
    if len(made) != count:
        raise VerifyError(
            f"extern {name!r} needs a dtype for each shape, got {count} shapes and "
            f"{len(made)} dtypes"
        )
    for item in made:
        dtypes.split_dtype(item)
    return made


def _in_block(name: str, stmt: Stmt, ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
    """Statements without blocks, as a block that says what it accesses: everything."""
    if any(isinstance(item, BlockRealize) for item in pre_order(stmt)):
        return stmt
    made = make_root_block(stmt)
    return made.replace(block=made.block.replace(name=name, **_accesses(ins, outs)))


def _accesses(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> dict[str, tuple[Any, ...]]:
    """The regions of a block that may access all of its operands."""
    return {
        "reads": tuple(buffer.region() for buffer in dict.fromkeys(ins)),
        "writes": tuple(buffer.region() for buffer in outs),
    }


def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: PrimFunc, **kwargs: Any) -> Any:
    """Define tensors by a function: its first parameters are the inputs, the last its results.

    What the function writes is a result. ``kwargs`` are those of :func:`extern` (name, tag, attrs).
    One result gives a tensor, several a list.

    Raises ``VerifyError`` if the inputs don't fit the parameters, or results stand before inputs.
    """
    unknown = set(kwargs) - {"name", "tag", "attrs"}
    if unknown:
        raise VerifyError(f"extern_primfunc takes name, tag and attrs, got {sorted(unknown)}")
    buffers = primfunc.buffers
    if len(buffers) != len(primfunc.params):
        raise VerifyError("extern_primfunc takes a function whose parameters are all buffers")
    ins, outs = buffers[: len(input_tensors)], buffers[len(input_tensors) :]
    written = {
        region.buffer
        for item in pre_order(primfunc.body)
        if isinstance(item, Block)
        for region in item.writes
    }
    if len(ins) < len(input_tensors) or not outs or written & set(ins) or set(outs) - written:
        raise VerifyError(
            f"{primfunc!r} with {len(input_tensors)} inputs is to read the first parameters and "
            f"write the rest; it writes {sorted(item.name for item in written & set(buffers))}"
        )
    sizes = _sizes_of(input_tensors, ins)

    def known(extent: Expr) -> Expr:
        made: Expr = renew_definitions(extent, sizes)
        return made

    def body(given: Sequence[Buffer], made: Sequence[Buffer]) -> Stmt:
        inner: Any = primfunc.body
        if isinstance(inner, BlockRealize) and inner.block.name == "root":
            if inner.block.alloc_buffers:
                accessed = _accesses([*ins], [*outs])
                inner = inner.replace(block=inner.block.replace(name=name, **accessed))
            else:
                inner = inner.block.body
        pairs = dict(zip(buffers, (*given, *made)))
        pointers = {a.data: b.data for a, b in pairs.items()}
        stmt: Stmt = renew_definitions(inner, {**sizes, **pairs, **pointers})
        return stmt

    made_of = [decl_buffer(tuple(map(known, x.shape)), x.dtype, x.name) for x in outs]
    tag, attrs = kwargs.get("tag", ""), kwargs.get("attrs")
    name = kwargs.get("name", "extern")
    outputs = ExternOp(name, tag, attrs, input_tensors, ins, made_of, body).outputs
    return outputs[0] if len(outputs) == 1 else list(outputs)


def _sizes_of(tensors: Sequence[Tensor], buffers: Sequence[Buffer]) -> dict[Var, Expr]:
    """What the extents of a function's parameters are for these tensors."""
    sizes: dict[Var, Expr] = {}
    for tensor, buffer in zip(tensors, buffers):
        if tensor.dtype != buffer.dtype or tensor.ndim != buffer.ndim:
            raise VerifyError(f"{tensor!r} does not fit the parameter {buffer!r}")
        for found, stated in zip(tensor.shape, buffer.shape):
            if type(stated) is Var:
                stated = sizes.setdefault(stated, found)
            if not structural_equal(stated, found, map_free_vars=False):
                raise VerifyError(f"{tensor!r} does not fit the parameter {buffer!r}")
    return sizes
