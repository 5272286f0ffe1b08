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
)
from tilewright.support.errors import VerifyError
from tilewright.tir import REDUCE, SPATIAL, IterVar
from tilewright.tir.reduction import Reduce


class Operation:
    """A producer of one or more tensors; compared by identity."""

    def __init__(self, name: str, shape: tuple[Expr, ...], dtypes_: tuple[str, ...]) -> None:
        self.name = name
        self.shape = shape
        self.dtypes = dtypes_
        self.conditions: tuple[Condition, ...] = ()
        """What the operator that defined this needs of sizes, and couldn't prove."""
        self.outputs = tuple(
            Tensor(self, index, shape, dtype, name if len(dtypes_) == 1 else f"{name}_v{index}")
            for index, dtype in enumerate(dtypes_)
        )

    @property
    def inputs(self) -> list[Tensor]:
        """Tensors that the formula reads, once each, in order of appearance."""
        return []

    def output(self, index: int) -> Tensor:
        """Return one output."""
        return self.outputs[index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class PlaceholderOp(Operation):
    """An input."""


class ComputeOp(Operation):
    """A formula: ``body`` has one expression per output, over ``axis`` and ``reduce_axis``."""

    def __init__(
        self,
        name: str,
        axis: tuple[IterVar, ...],
        body: tuple[Expr, ...],
        tag: str,
        attrs: Mapping[str, object],
    ) -> None:
        self.axis = axis
        self.body = body
        self.tag = tag
        self.attrs = dict(attrs)
        first = body[0]
        self.reduce_axis = first.axis if isinstance(first, Reduce) else ()
        shape = tuple(iter_var.dom.extent for iter_var in axis)
        super().__init__(name, shape, tuple(expr.dtype for expr in body))

    @property
    def inputs(self) -> list[Tensor]:
        """Tensors that the formula reads, once each, in order of appearance."""
        found: dict[Tensor, None] = {}
        for expr in self.body:
            for item in pre_order(expr):
                if isinstance(item, ProducerLoad):
                    found.setdefault(item.producer)
        return list(found)


class Tensor:
    """A tensor; index it to use an element: ``A[i, j]`` or ``A(i, j)``."""

    def __init__(
        self, op: Operation, value_index: int, shape: tuple[Expr, ...], dtype: str, name: str
    ) -> None:
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

    def __getitem__(self, indices: object) -> ProducerLoad:
        return self(*(indices if isinstance(indices, tuple) else (indices,)))

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
    shape: Sequence[ExprLike] | ExprLike, dtype: str = "float32", name: str = "placeholder"
) -> Tensor:
    """Make an input tensor; extents are numbers or ``te.var``s."""
    dtypes.split_dtype(dtype)
    return PlaceholderOp(name, _shape(shape), (dtype,)).output(0)


def var(name: str = "n", dtype: str = INDEX) -> Var:
    """Make a symbolic extent or scalar."""
    return Var(name, dtype)


size_var = var


def reduce_axis(dom: object, name: str = "rv") -> IterVar:
    """Make a reduction axis over ``(begin, end)`` or a ``Range``.

    Raises ``VerifyError`` for anything else.
    """
    if not isinstance(dom, Range):
        if not isinstance(dom, (tuple, list)) or len(dom) != 2:
            raise VerifyError(f"reduce_axis takes (begin, end), got {dom!r}")
        begin, end = as_expr(dom[0]), as_expr(dom[1])
        dom = Range(begin, end - begin)
    return IterVar(Var(name), dom, REDUCE)


def compute(
    shape: Sequence[ExprLike] | ExprLike,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Define a tensor by a formula over its indices.

    ``fcompute`` takes one variable per dimension and returns an expression, a reduction
    (``te.sum(…)``), or a tuple for several outputs, in which case it returns a tuple of tensors.
    ``attrs`` become annotations of the block.

    Raises ``VerifyError`` if the formula's results are not scalars.
    """
    extents = _shape(shape)
    names = _argument_names(fcompute, len(extents))
    axis = tuple(
        IterVar(Var(arg), Range(as_expr(0), extent), SPATIAL) for arg, extent in zip(names, extents)
    )
    body = fcompute(*(iter_var.var for iter_var in axis))
    if isinstance(body, Tensor):
        raise VerifyError(f"compute {name!r} returns a tensor; index it to get an element")
    several = isinstance(body, (tuple, list))
    exprs = tuple(as_expr(item) for item in body) if several else (as_expr(body),)
    _check_body(name, exprs)
    op = ComputeOp(name, axis, exprs, tag, attrs or {})
    return op.outputs if several else op.output(0)


def _argument_names(fcompute: Callable[..., object], ndim: int) -> list[str]:
    parameters = list(inspect.signature(fcompute).parameters.values())
    named = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    if len(named) < len(parameters):  # lambda *i
        return named + [f"i{index}" for index in range(len(named), ndim)]
    required = [p for p in parameters if p.default is p.empty]
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
