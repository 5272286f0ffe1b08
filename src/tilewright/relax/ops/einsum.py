"""Sums of products by an equation: diagonals, sums, one batched matrix product for each pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.arith import simplify
from tilewright.ir import Expr, as_int
from tilewright.relax.expr import RelaxExpr as Tensor
from tilewright.relax.expr import Tuple
from tilewright.relax.ops.linear import matmul
from tilewright.relax.ops.manipulate import permute_dims, reshape, squeeze
from tilewright.relax.ops.rearrange import diagonal
from tilewright.relax.registry import BUILDERS, builder
from tilewright.relax.values import as_relax
from tilewright.support.errors import VerifyError
from tilewright.topi.einsum_notation import contraction_order, read_subscripts

Require = Callable[[bool, str], None]
"""Raises an error with a message unless a condition holds."""


@builder("einsum")
def einsum(operands: object, subscripts: str) -> Tensor:
    """Sum products of elements by an equation such as ``"ij,jk->ik"``, as ``numpy.einsum``.

    Raises ``VerifyError`` for an equation that doesn't fit the operands.
    """
    given = as_relax(operands)
    items = given.fields if isinstance(given, Tuple) else (given,)

    def require(holds: bool, message: str) -> None:
        if not holds:
            raise VerifyError(f"einsum: {message}")

    return sum_products(subscripts, items, require)


_UNKNOWN = 64
"""What a symbolic extent counts for when orders are compared."""
Labels = tuple[str, ...]


def sum_products(equation: str, tensors: Sequence[Tensor], require: Require) -> Tensor:
    """Sum products of elements over the labels that the result doesn't have."""
    try:
        terms, result = read_subscripts(equation, [tensor.ndim for tensor in tensors])
    except VerifyError as error:
        require(False, error.message.removeprefix("einsum: "))
        raise
    parts = [_without_repeats(tensor, tuple(term)) for tensor, term in zip(tensors, terms)]
    for i, j in contraction_order([labels for _, labels in parts], result, _sizes(parts)):
        rest = [part for n, part in enumerate(parts) if n not in (i, j)]
        later = set(result).union(*(labels for _, labels in rest))
        parts = [*rest, _pair(*parts[i], *parts[j], later)]
    made, labels = _summed(*parts[0], set(result))
    return permute_dims(made, [labels.index(x) for x in result]) if result else made


def _sizes(parts: Sequence[tuple[Tensor, Labels]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for tensor, labels in parts:
        for label, extent in zip(labels, tensor.shape):
            known = as_int(extent)
            sizes[label] = max(sizes.get(label, 0), _UNKNOWN if known is None else known)
    return sizes


def _without_repeats(x: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """A label that stands twice means the diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = diagonal(x, 0, first, second)
            labels = (*labels[:first], *labels[first + 1 : second], *labels[second + 1 :], label)
    return x, labels


def _summed(x: Tensor, labels: Labels, kept: set[str]) -> tuple[Tensor, Labels]:
    gone = tuple(n for n, label in enumerate(labels) if label not in kept)
    if not gone:
        return x, labels
    return BUILDERS["sum"](x, gone), tuple(label for label in labels if label in kept)


def _count(extents: Sequence[Expr]) -> Expr | int:
    made: Expr | int = 1
    for extent in extents:
        made = simplify(extent * made)
    return made


def _pair(
    a: Tensor, left: Labels, b: Tensor, right: Labels, later: set[str]
) -> tuple[Tensor, Labels]:
    """The product of two operands, summed over labels that nothing else has."""
    a, left = _summed(a, left, later | set(right))
    b, right = _summed(b, right, later | set(left))
    shared = [x for x in left if x in right]
    # Extents of one broadcast: they are no part of the product.
    for label in shared:
        m, n = as_int(a.shape[left.index(label)]), as_int(b.shape[right.index(label)])
        if m != n and 1 in (m, n):
            if m == 1:
                a, left = _dropped(a, left, label)
            else:
                b, right = _dropped(b, right, label)
    batch = [x for x in left if x in right and x in later]
    inner = [x for x in left if x in right and x not in later]
    rows = [x for x in left if x not in right]
    columns = [x for x in right if x not in left]
    a = permute_dims(a, [left.index(x) for x in (*batch, *rows, *inner)]) if left else a
    b = permute_dims(b, [right.index(x) for x in (*batch, *inner, *columns)]) if right else b
    n, r = len(batch), len(rows)
    outer, row_shape = a.shape[:n], a.shape[n : n + r]
    column_shape = b.shape[n + len(inner) :]
    summed = _count(a.shape[n + r :])
    first = reshape(a, (*outer, _count(row_shape), summed))
    second = reshape(b, (*outer, summed, _count(column_shape)))
    made = matmul(first, second)
    return reshape(made, (*outer, *row_shape, *column_shape)), (*batch, *rows, *columns)


def _dropped(x: Tensor, labels: Labels, label: str) -> tuple[Tensor, Labels]:
    """An operand without an axis of extent 1."""
    return squeeze(x, labels.index(label)), tuple(each for each in labels if each != label)
