"""Operators on complex numbers that are the real ones on parts: moving elements, sums.

Tables say which arguments are tensors (or numbers) of the result's kind; what else an operator
takes, such as sizes and indices, is the same for both parts.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import (
    COMPLEX_CONVERTERS,
    CONVERTERS,
    Context,
    Converter,
)
from tilewright.relax.frontend.torch.pairs import Complex
from tilewright.relax.values import const

#: By which arguments are taken apart. Both parts of the result are made by the real converter.
_BY_PARTS: dict[tuple[int, ...], str] = {
    (): """
        zeros.default empty.memory_format empty_permuted.default empty_strided.default
    """,
    (0,): """
        _unsafe_index.Tensor _unsafe_view.default alias.default as_strided.default
        as_strided_copy.default broadcast_to.default cat.default chunk.default clone.default
        concat.default contiguous.default cumsum.default detach.default diagonal.default
        diagonal_copy.default empty_like.default expand.default expand_as.default flatten.using_ints
        flip.default gather.default index.Tensor index_select.default lift_fresh.default
        lift_fresh_copy.default linalg_diagonal.default mT.default mean.default mean.dim
        movedim.int movedim.intlist
        nan_to_num.default narrow.default neg.default new_empty.default new_empty_strided.default
        new_zeros.default numpy_T.default permute.default positive.default ravel.default
        repeat.default repeat_interleave.self_int reshape.default reshape_as.default roll.default
        select.int slice.Tensor split.Tensor split.sizes split_with_sizes.default squeeze.default
        squeeze.dim squeeze.dims stack.default sum.default sum.dim_IntList swapaxes.default
        swapdims.default t.default take.default tensor_split.indices tensor_split.sections
        transpose.int tril.default triu.default unbind.int unflatten.int unfold.default
        unfold_copy.default unsqueeze.default view.default view_as.default zeros_like.default
    """,
    (0, 1): """
        add.Scalar add.Tensor as_strided_scatter.default copy.default diagonal_scatter.default
        fill.Scalar fill.Tensor full.default full_like.default rsub.Scalar rsub.Tensor
        scalar_tensor.default select_scatter.default slice_scatter.default sub.Scalar sub.Tensor
    """,
    (0, 2): """
        _unsafe_index_put.default constant_pad_nd.default index_put.default masked_fill.Scalar
        masked_fill.Tensor masked_scatter.default new_full.default
    """,
    (0, 3): """
        index_add.default index_copy.default index_fill.int_Scalar index_fill.int_Tensor
        scatter.src scatter.value scatter_add.default
    """,
    (1, 2): "where.Scalar where.ScalarOther where.ScalarSelf where.self",
}

#: Operators that ask which numbers aren't zero.
_BY_TRUTH = """
    all.default all.dim all.dims any.default any.dim any.dims logical_and.default
    logical_not.default logical_or.default logical_xor.default nonzero.default
    nonzero_static.default
"""


def find_converter(name: str, *, is_complex: bool) -> Converter | None:
    """The converter of an operator, by its overload's name; ``is_complex`` if numbers are."""
    table = COMPLEX_CONVERTERS if is_complex else CONVERTERS
    if name in table:
        return table.get(name)
    if not is_complex:
        return None
    arguments = _ARGUMENTS.get(name)
    if arguments is not None:
        return _by_parts(name, arguments)
    return _by_truth(name) if name in _OF_TRUTH else None


def is_known(name: str) -> bool:
    """Whether there is a converter of an operator, be it for real or for complex numbers."""
    return name in CONVERTERS or name in COMPLEX_CONVERTERS


def known_parts() -> list[str]:
    """Operators whose real converters serve complex numbers too."""
    return [*_ARGUMENTS, *_OF_TRUTH]


def nonzero(value: Complex) -> RelaxExpr:
    """Which complex numbers aren't zero."""
    zero = const(0, value.dtype)
    made: RelaxExpr = op.logical_or(op.not_equal(value.real, zero), op.not_equal(value.imag, zero))
    return made


def _by_parts(name: str, numbers: tuple[int, ...]) -> Converter:
    real = CONVERTERS.get(name)

    @wraps(real)
    def convert(ctx: Context, *args: object, **options: object) -> object:
        inspect.signature(real).bind(ctx, *args, **options)
        parts: list[Any] = []
        for part in (_real, _imag) if ctx.is_complex else (_real,):
            chosen = [part(ctx, a) if i in numbers else a for i, a in enumerate(args)]
            parts.append(real(ctx, *chosen, **options))
        if len(parts) == 1:
            return parts[0]
        if isinstance(parts[0], list):
            return [Complex(a, b) for a, b in zip(*parts)]
        return Complex(*parts)

    return convert


def _by_truth(name: str) -> Converter:
    real = CONVERTERS.get(name)

    @wraps(real)
    def convert(ctx: Context, *args: object, **options: object) -> object:
        truths = [nonzero(arg) if isinstance(arg, Complex) else arg for arg in args]
        return real(ctx, *truths, **options)

    return convert


def _real(ctx: Context, value: object) -> Any:
    if isinstance(value, list):
        return [_real(ctx, item) for item in value]
    return value.real if isinstance(value, (Complex, complex)) else value


def _imag(ctx: Context, value: object) -> Any:
    if isinstance(value, list):
        return [_imag(ctx, item) for item in value]
    if isinstance(value, (Complex, complex)):
        return value.imag
    return op.zeros(value.shape, value.dtype) if isinstance(value, RelaxExpr) else 0


_ARGUMENTS = {
    f"aten.{name}": numbers for numbers, names in _BY_PARTS.items() for name in names.split()
}
_OF_TRUTH = frozenset(f"aten.{name}" for name in _BY_TRUTH.split())
