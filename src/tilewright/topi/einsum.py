"""``einsum``: sums of products by Einstein's notation.

Operands first lose what is theirs alone: diagonals of repeated labels are taken, and axes that no
other operand and no result has are summed. Then pairs are contracted, in the order that needs the
fewest multiplications (``einsum_notation``). Each pair becomes one product of matrices: labels of
batches, then rows, then columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.ir import Expr, as_int
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.topi.contraction import contract
from tilewright.topi.einsum_notation import contraction_order, read_subscripts
from tilewright.topi.elementwise import identity
from tilewright.topi.transform import transpose
from tilewright.topi.utils import is_one

_UNKNOWN = 64
"""What a symbolic extent counts for when orders are compared."""


@with_conditions
def einsum(subscripts: str, *operand: Tensor) -> Tensor:
    """Sum products of operands as ``subscripts`` say, such as ``"bij,bjk->bik"``.

    Each axis of an operand has a letter; ``...`` stands for axes that broadcast. Without ``->`` the
    result has the ellipsis, then the letters that occur once, in alphabetical order; a result that
    leaves the ellipsis out sums over it, as PyTorch's does. Axes of one letter have one extent, or
    1, which broadcasts, as in ``numpy.einsum``.

    Raises ``VerifyError`` for malformed subscripts, and for extents that differ.
    """
    inputs, output = read_subscripts(subscripts, [x.ndim for x in operand])
    _check_extents(operand, inputs)
    terms = [_Term(x, tuple(labels)) for x, labels in zip(operand, inputs)]
    terms = [_own(term, [t.labels for t in terms[:n] + terms[n + 1 :]], output)
             for n, term in enumerate(terms)]  # fmt: skip
    for i, j in _order(terms, output):
        rest = [term for n, term in enumerate(terms) if n not in (i, j)]
        later = {label for term in rest for label in term.labels} | set(output)
        terms = [*rest, _pair(terms[i], terms[j], later, None if rest else output)]
    (last,) = terms
    if last.labels == tuple(output):
        return identity(last.tensor) if last.tensor in operand else last.tensor
    return transpose(last.tensor, [last.labels.index(label) for label in output])


class _Term(NamedTuple):
    """A tensor and its labels, each of them once."""

    tensor: Tensor
    labels: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, int]:
        return {
            label: _UNKNOWN if as_int(extent) is None else as_int(extent) or 0
            for label, extent in zip(self.labels, self.tensor.shape)
        }


def _check_extents(operands: Sequence[Tensor], inputs: Sequence[Sequence[str]]) -> None:
    known: dict[str, Expr] = {}
    for x, labels in zip(operands, inputs):
        for label, extent in zip(labels, x.shape):
            if is_one(extent):
                continue
            if label in known:
                require_equal(f"einsum: extents of {label!r}", extent, known[label])
            known.setdefault(label, extent)


# ---- contraction ---------------------------------------------------------------------------------


def _own(term: _Term, others: Sequence[Sequence[str]], output: Sequence[str]) -> _Term:
    """Take diagonals, and sum what neither another operand nor the result has."""
    x, labels = term
    if len(set(labels)) < len(labels):
        single = tuple(dict.fromkeys(labels))
        extents: dict[str, Expr] = {}
        for label, extent in zip(labels, x.shape):
            if label not in extents or is_one(extents[label]):
                extents[label] = extent
        source = x
        x = compute(
            tuple(extents[label] for label in single),
            lambda *i: source(
                *(
                    0 if is_one(extent) and not is_one(extents[label]) else i[single.index(label)]
                    for label, extent in zip(labels, source.shape)
                )
            ),
            name="diagonal",
            tag="injective",
        )
        labels = single
    needed = {label for each in others for label in each} | set(output)
    kept = tuple(label for label in labels if label in needed)
    if kept != labels:
        x = contract([(x, labels)], kept, "einsum_sum")
    return _Term(x, kept)


def _pair(a: _Term, b: _Term, later: set[str], output: Sequence[str] | None) -> _Term:
    """Contract two terms; the last one directly into the ``output``."""
    if output is not None:
        made = contract([a, b], output, "einsum")
        return _Term(made, tuple(output))
    kept = _kept(a.labels, b.labels, later)
    return _Term(contract([a, b], kept, "einsum_pair"), kept)


def _kept(a: Sequence[str], b: Sequence[str], later: set[str]) -> tuple[str, ...]:
    """The labels of a product: those of both, of the first, of the second."""
    both = [label for label in a if label in b]
    rows = [label for label in a if label not in b]
    columns = [label for label in b if label not in a]
    return tuple(label for label in (*both, *rows, *columns) if label in later)


def _order(terms: Sequence[_Term], output: Sequence[str]) -> list[tuple[int, int]]:
    sizes: dict[str, int] = {}
    for term in terms:
        for label, size in term.sizes.items():
            sizes[label] = max(size, sizes.get(label, 0))
    return contraction_order([term.labels for term in terms], output, sizes)
