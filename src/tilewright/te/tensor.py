"""Tensor expressions: tensors defined by a formula over their indices.

A tensor is one output of an operation; an operation is a placeholder (an input) or a compute (a
formula). They have no schedule: ``create_prim_func`` turns them into a TensorIR function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.arith import Condition
from tilewright.ir import (
    INDEX,
    Expr,
    ExprLike,
    PrimType,
    Range,
    Var,
    as_expr,
    attr,
    check_extents,
    check_name,
    children,
    dtypes,
    node,
    pre_order,
    set_span,
)
from tilewright.support.errors import VerifyError
from tilewright.te.operators import TensorOperators
from tilewright.te.tag import current_tag
from tilewright.tir import REDUCE, SPATIAL, THREAD_INDEX, IterVar
from tilewright.tir.reduction import Reduce


class Operation:
    """A producer of one or more tensors; compared by identity."""

    def __init__(
        self,
        name: str,
        shape: tuple[Expr, ...],
        dtypes_: tuple[str, ...],
        tag: str = "",
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.tag = tag
        self.attrs = dict(attrs or {})
        self.shape = shape
        self.dtypes = dtypes_
        self.conditions: tuple[Condition, ...] = ()
        """What the operator that defined this needs of sizes, and couldn't prove."""
        self.outputs = tuple(
            Tensor(
                shape, dtype, self, index, name=name if len(dtypes_) == 1 else f"{name}_v{index}"
            )
            for index, dtype in enumerate(dtypes_)
        )

    @property
    def inputs(self) -> list[Tensor]:
        """Tensors that the formula reads, once each, in order of appearance."""
        return []

    @property
    def input_tensors(self) -> list[Tensor]:
        """The same as ``inputs``."""
        return self.inputs

    @property
    def num_outputs(self) -> int:
        """Number of tensors that the operation makes."""
        return len(self.outputs)

    def output(self, index: int) -> Tensor:
        """Return one output."""
        return self.outputs[index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class PlaceholderOp(Operation):
    """An input of a ``shape`` and ``dtype``."""

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: Mapping[str, Any] | None,
        shape: Sequence[ExprLike] | ExprLike,
        dtype: str,
    ) -> None:
        dtypes.split_dtype(dtype)
        super().__init__(name, _shape(shape), (dtype,), tag, attrs)

    @property
    def dtype(self) -> str:
        """The dtype of the elements."""
        return self.dtypes[0]


class ComputeOp(Operation):
    """A formula: ``body`` has one expression per output, over ``axis`` and ``reduce_axis``.

    Raises ``VerifyError`` if ``reduce_axis`` isn't what the formula reduces over.
    """

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: Mapping[str, Any] | None,
        axis: Sequence[IterVar],
        reduce_axis: Sequence[IterVar],
        body: Sequence[Expr],
    ) -> None:
        self.axis = axis = tuple(axis)
        self.body = body = tuple(body)
        _check_body(name, body)
        self.reduce_axis = reduce_axis_of(body)
        if tuple(reduce_axis) != self.reduce_axis:
            raise VerifyError(
                f"compute {name!r} reduces over {list(self.reduce_axis)}, not {list(reduce_axis)}"
            )
        shape = tuple(iter_var.dom.extent for iter_var in axis)
        super().__init__(name, shape, tuple(expr.dtype for expr in body), current_tag(tag), attrs)

    @property
    def inputs(self) -> list[Tensor]:
        """Tensors that the formula reads, once each, in order of appearance."""
        found: dict[Tensor, None] = {}
        for expr in self.body:
            for item in pre_order(expr):
                if isinstance(item, ProducerLoad):
                    found.setdefault(item.producer)
        return list(found)


def reduce_axis_of(body: Sequence[Expr]) -> tuple[IterVar, ...]:
    """Return what a formula reduces over: all results of one reduce over the same axes."""
    return body[0].axis if body and isinstance(body[0], Reduce) else ()


class Tensor(TensorOperators):
    """A tensor; index it to use an element: ``A[i, j]``, ``A[i][j]`` or ``A(i, j)``.

    A tensor of rank 0 has the element ``A()``. Arithmetic defines tensors. It is the result
    ``value_index`` of ``op``, whose name it has by default; ``ty`` says its dtype as a type.
    """

    def __init__(
        self,
        shape: Sequence[ExprLike] | ExprLike,
        dtype: str,
        op: Operation,
        value_index: int,
        ty: PrimType | None = None,
        *,
        name: str = "",
    ) -> None:
        if ty not in (None, PrimType(dtype)):
            raise VerifyError(f"a tensor of {dtype} has elements of {PrimType(dtype)}, not {ty}")
        name, shape = name or op.name, _shape(shape)
        check_name(name, "a tensor")
        check_extents(shape, "tensor ", name)
        self.op = op
        self.value_index = value_index
        self.shape = shape
        self.dtype = dtype
        self.name = name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def expr_ty(self) -> PrimType:
        """Return the type of the elements."""
        return PrimType(self.dtype)

    def __getitem__(self, indices: object) -> Any:
        return _indexed(self, (), indices)

    __iter__ = None  # else Python would iterate by A[0], A[1], ... without an end

    def __call__(self, *indices: Any) -> ProducerLoad:
        if len(indices) != self.ndim:
            raise VerifyError(
                f"tensor {self.name} has {self.ndim} dimensions, got {len(indices)} indices"
            )
        exprs = tuple(
            index.var if isinstance(index, IterVar) else as_expr(index) for index in indices
        )
        return ProducerLoad(self, exprs, self.dtype)

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}{list(self.shape)})"


class TensorSlice:
    """A tensor with some of its indices: ``A[i]``, which ``[j]`` completes to an element."""

    def __init__(self, tensor: Tensor, indices: Any) -> None:
        self.tensor = tensor
        self.indices = indices if isinstance(indices, tuple) else (indices,)

    @property
    def dtype(self) -> str:
        """The dtype of the tensor's elements."""
        return self.tensor.dtype

    def expr_ty(self) -> PrimType:
        """Return the type of the tensor's elements."""
        return PrimType(self.dtype)

    def __getitem__(self, indices: object) -> Any:
        return _indexed(self.tensor, self.indices, indices)

    __iter__ = None  # else Python would iterate by A[0], A[1], ... without an end

    def astype(self, dtype: str, span: object = None) -> Expr:
        """Convert the element to another dtype."""
        return self.as_expr().astype(dtype, span)

    def equal(self, other: ExprLike, span: object = None) -> Expr:
        """Whether the element equals a value."""
        return self.as_expr().equal(other, span)

    def as_expr(self) -> ProducerLoad:
        """The element, if the indices are all there; else raise ``VerifyError``."""
        return self.tensor(*self.indices)

    asobject = as_expr

    def __repr__(self) -> str:
        return f"{self.tensor.name}[{', '.join(map(repr, self.indices))}]"


def _indexed(
    tensor: Tensor, before: tuple[Any, ...], indices: object
) -> ProducerLoad | TensorSlice:
    given = (*before, *(indices if isinstance(indices, tuple) else (indices,)))
    if any(isinstance(index, slice) for index in given):
        raise VerifyError(
            f"{tensor.name}[...] takes indices; topi.strided_slice makes a tensor of a part"
        )
    if len(given) < tensor.ndim:
        return TensorSlice(tensor, given)
    return tensor(*given)


@node
class ProducerLoad(Expr):
    """An element of a tensor."""

    producer: Tensor = attr()
    indices: tuple[Expr, ...] = children()
    dtype: str = attr()

    def __repr__(self) -> str:
        return f"{self.producer.name}[{', '.join(map(repr, self.indices))}]"


def _shape(shape: Any) -> tuple[Expr, ...]:
    if isinstance(shape, (int, Expr)):
        shape = (shape,)
    return tuple(as_expr(extent) for extent in shape)


def placeholder(
    shape: Sequence[ExprLike] | ExprLike, dtype: str | None = None, name: str = "placeholder"
) -> Tensor:
    """Make an input tensor, by default of float32; extents are numbers or ``te.var``s."""
    return PlaceholderOp(name, "", None, shape, dtype or "float32").output(0)


def var(name: str = "tindex", dtype: str = INDEX, span: object = None) -> Var:
    """Make a symbolic extent or scalar."""
    made = Var(name, dtype)
    if span is not None:
        set_span(made, span)
    return made


size_var = var


def thread_axis(dom: object = None, tag: str = "", name: str = "", span: object = None) -> IterVar:
    """Make an axis that numbers threads: ``thread_axis((0, 16), "threadIdx.x")``.

    ``thread_axis("threadIdx.x")`` has as many as the launch. Its ``thread_tag`` is the tag.
    """
    if isinstance(dom, str):
        tag, dom = dom, None
    if not tag:
        raise VerifyError("a thread axis needs a tag such as threadIdx.x")
    made = IterVar(None if dom is None else _range(dom), Var(name or tag), THREAD_INDEX, tag)
    if span is not None:
        set_span(made, span)
    return made


def reduce_axis(
    dom: object, name: str = "rv", thread_tag: str = "", span: object = None
) -> IterVar:
    """Make a reduction axis over ``(begin, end)`` or a ``Range``.

    Raises ``VerifyError`` for anything else, and for a thread tag: schedules bind loops.
    """
    if thread_tag:
        raise VerifyError(
            f"reduce_axis({name!r}) takes no thread tag: a schedule binds the loop "
            f"(sch.bind(loop, {thread_tag!r}))"
        )
    made = IterVar(_range(dom), Var(name), REDUCE)
    if span is not None:
        set_span(made, span)
    return made


def _range(dom: object) -> Range:
    if not isinstance(dom, Range):
        if not isinstance(dom, (tuple, list)) or len(dom) != 2:
            raise VerifyError(f"an axis takes (begin, end), got {dom!r}")
        begin, end = as_expr(dom[0]), as_expr(dom[1])
        return Range.from_min_extent(begin, end - begin)
    return dom


def compute(
    shape: Sequence[ExprLike] | ExprLike,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """Define a tensor by a formula over its indices.

    ``fcompute`` takes one variable per dimension and returns an expression, a reduction
    (``te.sum(…)``), or a tuple for several outputs, in which case it returns a tuple of tensors.
    ``attrs`` become annotations of the block. ``varargs_names`` name the indices that a formula
    ``lambda *i`` takes.

    Raises ``VerifyError`` if the formula's results are not scalars.
    """
    extents = _shape(shape)
    names = _argument_names(fcompute, len(extents), varargs_names)
    axis = tuple(
        IterVar(Range.from_min_extent(as_expr(0), extent), Var(arg), SPATIAL)
        for arg, extent in zip(names, extents)
    )
    body = fcompute(*(iter_var.var for iter_var in axis))
    if isinstance(body, Tensor):
        raise VerifyError(f"compute {name!r} returns a tensor; index it to get an element")
    if isinstance(body, Mapping):
        raise VerifyError(f"compute {name!r} returns a dict; give attributes as attrs=")
    several = isinstance(body, (tuple, list))
    exprs = tuple(as_expr(item) for item in body) if several else (as_expr(body),)
    op = ComputeOp(name, tag, attrs, axis, reduce_axis_of(exprs), exprs)
    return op.outputs if several else op.output(0)


def _argument_names(
    fcompute: Callable[..., object], ndim: int, rest: Sequence[str] | None
) -> list[str]:
    parameters = list(inspect.signature(fcompute).parameters.values())
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p.name for p in placed]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):  # lambda *i
        if rest is None:
            rest = [f"i{index}" for index in range(len(named), ndim)]
        if len(named) + len(rest) != ndim:
            raise VerifyError(
                f"{len(rest)} varargs_names after {len(named)} indices for {ndim} dimensions"
            )
        return [*named, *rest]
    if rest:
        raise VerifyError("varargs_names are for formulas `lambda *i`, which this one is not")
    required = [p for p in placed if p.default is p.empty]
    if not len(required) <= ndim <= len(named):
        raise VerifyError(
            f"the formula takes {len(named)} indices but the shape has {ndim} dimensions"
        )
    return named[:ndim]


def _check_body(name: str, exprs: tuple[Expr, ...]) -> None:
    reduces = [expr for expr in exprs if isinstance(expr, Reduce)]
    if reduces and len(reduces) != len(exprs):
        raise VerifyError(f"compute {name!r} mixes reductions with other formulas")
    for expr in exprs:
        inner = expr.source if isinstance(expr, Reduce) else (expr,)
        if any(isinstance(item, Reduce) for part in inner for item in pre_order(part)):
            raise VerifyError(
                f"compute {name!r} uses a reduction inside a formula; "
                "give the reduction a compute of its own and read that"
            )
