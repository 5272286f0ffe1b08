"""Choosing tokens by their probabilities, with numbers that are uniform in [0, 1)."""

from __future__ import annotations

from tilewright.relax import ops
from tilewright.relax.frontend.nn.operators.elementwise import astype, where
from tilewright.relax.frontend.nn.operators.shapes import reshape
from tilewright.relax.frontend.nn.tensor import Tensor, emit_tensor


def _summed(prob: Tensor) -> Tensor:
    return emit_tensor(ops.cumsum(prob._expr, 1, "float32"))


def _count(test: Tensor, last: object) -> Tensor:
    """How many of a row hold, ``[n, 1]``, but not more than ``last``."""
    made = emit_tensor(ops.sum(astype(test, "int64"), (1,), True))
    return made.minimum(last)  # type: ignore[arg-type]


def _rows(x: Tensor, sample_indices: Tensor | None) -> Tensor:
    """The row of ``x`` for each sample."""
    if sample_indices is None:
        return x
    return emit_tensor(ops.take(x, reshape(sample_indices, [-1]), 0))


def multinomial_from_uniform(
    prob: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
    dtype: str = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:
    """Choose an index of a row of ``prob [n, k]`` for each ``uniform_sample [m, 1]``.

    It is the first whose sum of probabilities up to there is more than the sample.
    ``sample_indices [m, 1]`` says the row of each sample; else ``m`` is ``n``. Returns ``[m, 1]``.
    """
    rows = None if sample_indices is None else sample_indices._expr
    made = ops.multinomial_from_uniform(prob._expr, uniform_sample._expr, rows, dtype)
    return emit_tensor(made, name)


def _last_kept(sums: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """The place of the last token that top-p and top-k keep in sorted rows, ``[n, 1]``.

    A token is kept if those before it have less than ``top_p`` together and are fewer than
    ``top_k``; the first one always is.
    """
    count = sums.shape[1]
    places = reshape(emit_tensor(ops.arange(1, count + 1, 1, "int64")), [1, -1])
    fewer = emit_tensor(ops.less(places, astype(top_k, "int64")))
    below = sums < astype(top_p, "float32")
    return _count(emit_tensor(ops.logical_and(below, fewer)), count - 1)


def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor,
    sorted_index: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:
    """Choose a token of those that top-p and top-k keep, for each ``uniform_sample [m, 1]``.

    ``sorted_prob`` and ``sorted_index`` ``[n, k]`` have the largest first; ``top_p`` and ``top_k``
    are ``[n, 1]``. ``sample_indices [m, 1]`` says the row of each sample; else ``m`` is ``n``.
    Returns ``[m, 1]`` of ``sorted_index``'s dtype.
    """
    sums = _summed(sorted_prob)
    kept = emit_tensor(ops.gather_elements(sums, _last_kept(sums, top_p, top_k), 1))
    wanted = astype(uniform_sample, "float32") * _rows(kept, sample_indices)
    place = _count(_rows(sums, sample_indices) < wanted, sums.shape[1] - 1)
    made = ops.gather_elements(_rows(sorted_index, sample_indices), place, 1)
    return emit_tensor(made, "sample_top_p_top_k")


def renormalize_top_p_top_k_prob(
    prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor
) -> Tensor:
    """Set probabilities that top-p and top-k don't keep to zero, and divide the rest by their sum.

    ``prob`` is ``[n, k]``, ``sorted_prob`` the same with the largest first; ``top_p`` and ``top_k``
    are ``[n, 1]``. Of equal probabilities all are kept if one is.
    """
    sums = _summed(sorted_prob)
    least = emit_tensor(ops.gather_elements(sorted_prob, _last_kept(sums, top_p, top_k), 1))
    kept = where(prob >= least, prob, emit_tensor(ops.zeros_like(prob._expr)))
    total = emit_tensor(ops.sum(kept, (1,), True))
    return emit_tensor(ops.divide(kept, total), "renormalize_top_p_top_k")


__all__ = [
    "multinomial_from_uniform",
    "renormalize_top_p_top_k_prob",
    "sample_top_p_top_k_from_sorted_prob",
]
