"""Sums of products over labelled axes: ``tensordot``, and ``contract`` for ``einsum``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright import te
from tilewright.ir import Expr, match_types
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.utils import is_one, normal_axis, normal_count, rounded, total_dtype


@with_conditions
def tensordot(
    a: Tensor, b: Tensor, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2
) -> Tensor:
    """Sum products over the last ``axes`` of ``a`` and the first of ``b``, or over given pairs.

    ``axes`` may be an axis of each, or several of each, as of ``numpy.tensordot``. The result has
    the other axes of ``a``, then those of ``b``.

    Raises ``VerifyError`` if the axes don't exist, or aren't as many of both.
    """
    if isinstance(axes, int):
        count = normal_count("tensordot: axes", axes)
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise VerifyError(f"tensordot: {axes} axes of {a.ndim} and {b.ndim} dimensions")
        first, second = tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    else:
        if len(axes) != 2:
            raise VerifyError(f"tensordot: axes are of both tensors, got {axes!r}")
        first, second = _axes_of(a, axes[0]), _axes_of(b, axes[1])
    if len(first) != len(second) or len({*first}) < len(first) or len({*second}) < len(second):
        raise VerifyError(f"tensordot: axes {axes!r} don't pair axes of both tensors")
    for i, j in zip(first, second):
        require_equal(f"tensordot: axes {i} and {j}", a.shape[i], b.shape[j])
    labels_a = [f"a{axis}" for axis in range(a.ndim)]
    labels_b = [
        labels_a[first[second.index(axis)]] if axis in second else f"b{axis}"
        for axis in range(b.ndim)
    ]
    kept = [label for n, label in enumerate(labels_a) if n not in first]
    kept += [label for n, label in enumerate(labels_b) if n not in second]
    return contract([(a, labels_a), (b, labels_b)], kept, "tensordot")


def _axes_of(x: Tensor, axes: int | Sequence[int]) -> tuple[int, ...]:
    chosen = (axes,) if isinstance(axes, int) else axes
    return tuple(normal_axis(axis, x.ndim) for axis in chosen)


Labelled = tuple[Tensor, Sequence[str]]
"""A tensor and the label of each of its axes."""


def contract(operands: Sequence[Labelled], kept: Sequence[str], name: str) -> Tensor:
    """Sum the products of operands over all labels but those that are ``kept``, in this order.

    Axes of one label have one extent, or 1, which broadcasts. Narrow floats are summed in float32,
    and rounded once to the operands' common dtype.
    """
    extents: dict[str, Expr] = {}
    for tensor, labels in operands:
        for label, extent in zip(labels, tensor.shape):
            if label not in extents or is_one(extents[label]):
                extents[label] = extent
    summed = [label for label in extents if label not in kept]
    dtype = _common_dtype([tensor for tensor, _ in operands])
    wide = total_dtype(dtype, *(tensor.dtype for tensor, _ in operands)) if summed else dtype
    axes = {label: te.reduce_axis((0, extents[label]), f"k_{label}") for label in summed}

    def value(place: Mapping[str, Expr]) -> Expr:
        made: Expr | None = None
        for tensor, labels in operands:
            item = cast_expr(_read(tensor, labels, place, extents), wide)
            made = item if made is None else made * item
        assert made is not None
        return made

    def formula(*i: Expr) -> Expr:
        place = {**dict(zip(kept, i)), **{label: axis.var for label, axis in axes.items()}}
        total: Callable[..., Expr] = te.sum
        return total(value(place), axis=list(axes.values())) if axes else value(place)

    tag = "comm_reduce" if axes else "injective"
    sums: Tensor = compute(tuple(extents[label] for label in kept), formula, name=name, tag=tag)
    return rounded(sums, dtype)


def _common_dtype(tensors: Sequence[Tensor]) -> str:
    made = cast_expr(0, tensors[0].dtype)
    for tensor in tensors[1:]:
        made, _ = match_types(made, cast_expr(0, tensor.dtype))
    return made.dtype


def _read(
    x: Tensor, labels: Sequence[str], place: Mapping[str, Expr], extents: Mapping[str, Expr]
) -> Expr:
    return x(
        *(
            0 if is_one(extent) and not is_one(extents[label]) else place[label]
            for label, extent in zip(labels, x.shape)
        )
    )
