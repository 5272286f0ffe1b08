"""Sums of products by an equation: diagonals, sums, one batched matrix product for each pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.arith import simplify
from tilewright.ir import Expr, as_int
from tilewright.relax.expr import RelaxExpr as Tensor
from tilewright.relax.expr import Tuple, as_relax
from tilewright.relax.ops.linear import matmul
from tilewright.relax.ops.manipulate import permute_dims, reshape, squeeze
from tilewright.relax.ops.rearrange import diagonal
from tilewright.relax.registry import BUILDERS, builder
from tilewright.support.errors import VerifyError

Require = Callable[[bool, str], None]
"""Raises an error with a message unless a condition holds."""


@builder("einsum")
def einsum(operands: object, subscripts: str) -> Tensor:
    """Sum products of elements by an equation such as ``"ij,jk->ik"``, as ``numpy.einsum``.

    Raises ``VerifyError`` for an equation that doesn't fit the operands.
    """
    given = as_relax(operands)
    items = given.items if isinstance(given, Tuple) else (given,)

    def require(holds: bool, message: str) -> None:
        if not holds:
            raise VerifyError(f"einsum: {message}")

    return sum_products(subscripts, items, require)


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def sum_products(equation: str, tensors: Sequence[Tensor], require: Require) -> Tensor:
    """Sum products of elements over the letters that the result doesn't have."""
    terms, result = _parsed(require, equation, tensors)
    parts = [_without_repeats(tensor, term) for tensor, term in zip(tensors, terms)]
    made, letters = parts[0]
    for number, (tensor, term) in enumerate(parts[1:], 1):
        later = set(result).union(*(t for _, t in parts[number + 1 :]))
        made, letters = _pair(made, letters, tensor, term, later)
    made, letters = _summed(made, letters, set(result))
    return permute_dims(made, [letters.index(x) for x in result]) if result else made


def _parsed(require: Require, equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with letters for what ``...`` stands for."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    require(
        len(terms) == len(tensors) > 0,
        f"the equation {equation!r} is for {len(terms)} operands, there are {len(tensors)}",
    )
    used = set(text)
    free = [letter for letter in _LETTERS if letter not in used]
    widest = 0
    for term, tensor in zip(terms, tensors):
        own = term.replace("...", "")
        require(
            all(letter in _LETTERS for letter in own) and term.count("...") <= 1,
            f"{term!r} in the equation {equation!r} is no term",
        )
        hidden = tensor.ndim - len(own)
        require(
            hidden == 0 or (hidden > 0 and "..." in term),
            f"{term!r} doesn't fit {tensor.ndim} dimensions",
        )
        widest = max(widest, hidden)
    require(widest <= len(free), "there are too many dimensions")
    rest = "".join(free[:widest])
    full = []
    for term, tensor in zip(terms, tensors):
        hidden = tensor.ndim - len(term.replace("...", ""))
        full.append(term.replace("...", rest[widest - hidden :] if hidden else ""))
    if arrow:
        result = right.replace("...", rest)
    else:
        joined = left.replace("...", "").replace(",", "")
        result = rest + "".join(sorted(x for x in set(joined) if joined.count(x) == 1))
    known = set("".join(full))
    require(
        set(result) <= known and len(set(result)) == len(result),
        f"the result {result!r} of the equation {equation!r} has other letters than the operands",
    )
    return full, result


def _without_repeats(x: Tensor, letters: str) -> tuple[Tensor, str]:
    """A letter that stands twice means the diagonal."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            x = diagonal(x, 0, first, second)
            letters = letters[:first] + letters[first + 1 : second] + letters[second + 1 :] + letter
    return x, letters


def _summed(x: Tensor, letters: str, kept: set[str]) -> tuple[Tensor, str]:
    gone = tuple(n for n, letter in enumerate(letters) if letter not in kept)
    if not gone:
        return x, letters
    return BUILDERS["sum"](x, gone), "".join(letter for letter in letters if letter in kept)


def _count(extents: Sequence[Expr]) -> Expr | int:
    made: Expr | int = 1
    for extent in extents:
        made = simplify(extent * made)
    return made


def _pair(a: Tensor, left: str, b: Tensor, right: str, later: set[str]) -> tuple[Tensor, str]:
    """The product of two operands, summed over letters that nothing else has."""
    a, left = _summed(a, left, later | set(right))
    b, right = _summed(b, right, later | set(left))
    shared = [x for x in left if x in right]
    # Extents of one broadcast: they are no part of the product.
    for letter in shared:
        m, n = as_int(a.shape[left.index(letter)]), as_int(b.shape[right.index(letter)])
        if m != n and 1 in (m, n):
            if m == 1:
                a, left = squeeze(a, left.index(letter)), left.replace(letter, "")
            else:
                b, right = squeeze(b, right.index(letter)), right.replace(letter, "")
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
    return reshape(made, (*outer, *row_shape, *column_shape)), "".join([*batch, *rows, *columns])
