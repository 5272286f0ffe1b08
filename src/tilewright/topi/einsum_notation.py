"""Einstein's notation for sums of products: what ``einsum``'s subscripts say, and in which order.

Pairs of operands are contracted in the order that needs the fewest multiplications: all orders are
tried for few operands, else always the cheapest next pair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations

from tilewright.support.errors import VerifyError

_ALL_ORDERS = 5
"""Up to so many operands, all orders of contraction are compared."""


def read_subscripts(subscripts: str, ndims: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Return the labels of each operand and of the result; those of an ellipsis are numbers.

    Raises ``VerifyError`` for malformed subscripts, or those of other operands.
    """
    text = subscripts.replace(" ", "")
    if not re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", text):
        raise VerifyError(
            f"einsum: {subscripts!r} has other signs than letters, '...', ',' and one '->'"
        )
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ndims):
        raise VerifyError(f"einsum: {subscripts!r} is of {len(parts)} operands, not {len(ndims)}")
    if not ndims:
        raise VerifyError("einsum needs an operand")
    inputs = [_labels(subscripts, part, ndim) for part, ndim in zip(parts, ndims)]
    dots = max((sum(label.isdigit() for label in labels) for labels in inputs), default=0)
    broadcast = [str(number) for number in range(dots - 1, -1, -1)]
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        once = sorted(label for label in {*letters} if letters.count(label) == 1)
        return inputs, broadcast + once
    if "..." not in right:
        dots = 0  # what the ellipsis stands for is summed
    output = _labels(subscripts, right, len(right.replace("...", "")) + dots)
    known = {label for labels in inputs for label in labels}
    for label in output:
        if label not in known or output.count(label) > 1:
            raise VerifyError(
                f"einsum: the result of {subscripts!r} has axis {label!r} twice, or no operand has"
            )
    return inputs, output


def _labels(subscripts: str, part: str, ndim: int) -> list[str]:
    """One label per axis; those of an ellipsis are counted from the right, as axes broadcast."""
    before, dots, after = part.partition("...")
    if "." in before + after:
        raise VerifyError(f"einsum: {part!r} of {subscripts!r} has dots that are no single '...'")
    count = ndim - len(before) - len(after)
    if count < 0 or (count and not dots):
        raise VerifyError(
            f"einsum: {part!r} of {subscripts!r} has labels for {len(before) + len(after)} axes, "
            f"the tensor has {ndim}"
        )
    return [*before, *(str(number) for number in range(count - 1, -1, -1)), *after]


def contraction_order(
    terms: Sequence[Sequence[str]], output: Sequence[str], sizes: Mapping[str, int]
) -> list[tuple[int, int]]:
    """Return the pairs to contract, in turn; a product takes the last place of what is left."""
    labels = [frozenset(term) for term in terms]
    search = _best if len(terms) <= _ALL_ORDERS else _greedy
    return search(labels, frozenset(output), sizes)[1]


_Found = tuple[float, list[tuple[int, int]]]


def _cost(labels: frozenset[str], sizes: Mapping[str, int]) -> float:
    return reduce(lambda total, label: total * sizes[label], labels, 1.0)


def _joined(
    terms: Sequence[frozenset[str]], i: int, j: int, output: frozenset[str]
) -> list[frozenset[str]]:
    rest = [labels for n, labels in enumerate(terms) if n not in (i, j)]
    return [*rest, (terms[i] | terms[j]) & frozenset().union(output, *rest)]


def _best(
    terms: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]
) -> _Found:
    """The cheapest of all orders."""
    if len(terms) == 1:
        return 0.0, []
    found: _Found | None = None
    for i, j in combinations(range(len(terms)), 2):
        cost, rest = _best(_joined(terms, i, j, output), output, sizes)
        cost += _cost(terms[i] | terms[j], sizes)
        if found is None or cost < found[0]:
            found = cost, [(i, j), *rest]
    assert found is not None
    return found


def _greedy(
    terms: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]
) -> _Found:
    """Always the pair that is cheapest now."""
    total, made = 0.0, []
    while len(terms) > 1:
        cost, i, j = min(
            (_cost(terms[i] | terms[j], sizes), i, j) for i, j in combinations(range(len(terms)), 2)
        )
        total, terms = total + cost, _joined(terms, i, j, output)
        made.append((i, j))
    return total, made
