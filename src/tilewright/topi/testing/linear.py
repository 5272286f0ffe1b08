"""Products of matrices, attention, recurrent networks and losses in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.support.errors import VerifyError
from tilewright.topi.testing.normalization import softmax_python
from tilewright.topi.testing.windows import Array, wide


def dense(
    x: Array,
    y: Array,
    bias: Array | None,
    use_bias: bool = False,
    use_relu: bool = False,
    out_dtype: str | None = None,
) -> Array:
    """Multiply ``(M, K)`` by the transpose of ``(N, K)``; add a bias, cut what is negative."""
    dtype = np.dtype(out_dtype or x.dtype)
    made = _operand(x, dtype) @ _operand(y, dtype).T
    if use_bias:
        if bias is None:
            raise VerifyError("use_bias needs a bias")
        made = made + bias
    return (np.maximum(made, 0) if use_relu else made).astype(dtype)


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """Multiply batches of matrices; a batch of one is used for all of the other."""
    dtype = np.dtype(out_dtype or x.dtype)
    left = x.swapaxes(1, 2) if trans_x else x
    right = y.swapaxes(1, 2) if trans_y else y
    return (_operand(left, dtype) @ _operand(right, dtype)).astype(dtype)


def _operand(x: Array, dtype: np.dtype[Any]) -> Array:
    return wide(x.astype(dtype)) if dtype.kind != "f" else x.astype("float64")


def attention_python(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None,
    qk_scale: float | None,
    causal: str,
    window_size: int | None = None,
    layout: str = "BSNH",
) -> Array:
    """Return ``softmax(q k^T * qk_scale + bias) v`` of each head.

    Operands are ``(batch, length, heads, size)``, or ``(batch, heads, length, size)`` in layout
    BNSH. ``causal`` is ``"none"``, ``"TopLeft"`` or ``"BottomRight"``: the corner in which the
    mask's diagonal begins or ends. With a ``window_size`` below it query ``i`` sees keys from
    ``i - window_size + 1`` on. A query that sees none gives zeros. The scale is one over the root
    of ``size`` unless it is given.
    """
    if layout not in ("BSNH", "BNSH"):
        raise VerifyError(f"layout is BSNH or BNSH, got {layout}")
    if causal not in ("none", "TopLeft", "BottomRight"):
        raise VerifyError(f"causal is none, TopLeft or BottomRight, got {causal}")
    if layout == "BSNH":
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    if q.shape[1] % k.shape[1]:
        raise VerifyError(f"{q.shape[1]} heads of queries for {k.shape[1]} of keys")
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if qk_scale is None else qk_scale
    scores = wide(q) @ wide(k).swapaxes(2, 3) * scale
    if bias is not None:
        scores = scores + bias
    if causal != "none":
        scores = np.where(_visible(scores.shape[2], scores.shape[3], causal, window_size),
                          scores, -np.inf)  # fmt: skip
    blind = np.isneginf(scores).all(-1, keepdims=True)
    powers = np.where(blind, 0, softmax_python(np.where(blind, 0, scores), -1))
    made = (powers @ wide(v)).astype(q.dtype)
    return made.swapaxes(1, 2) if layout == "BSNH" else made


def _visible(queries: int, keys: int, causal: str, window_size: int | None) -> Array:
    behind = np.arange(queries)[:, None] - np.arange(keys)[None]
    seen = behind >= (queries - keys if causal == "BottomRight" else 0)
    return np.asarray(seen if window_size is None else seen & (behind < window_size))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}


def lstm_python(
    Xs: Array,
    Wi: Array,
    Wh: Array,
    Bi: Array | None = None,
    Bh: Array | None = None,
    h_init: Array | None = None,
    c_init: Array | None = None,
    proj: Array | None = None,
    p_i: Array | None = None,
    p_f: Array | None = None,
    p_o: Array | None = None,
    f_act: str = "sigmoid",
    g_act: str = "tanh",
    h_act: str = "tanh",
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> tuple[Array, Array]:
    """Run an LSTM over ``(time, batch, input)``; return all hidden and all cell states.

    ``Wi`` is ``(4 * cell, input)`` and ``Wh`` ``(4 * cell, hidden)``, gates in the order of
    ``weight_layout``; ``proj`` ``(hidden, cell)`` maps cells to hidden states, ``p_i``, ``p_f`` and
    ``p_o`` are peepholes. The states are in the order in which they are computed, with ``reverse``
    from the last time to the first.
    """
    if sorted(weight_layout) != sorted("IFGO"):
        raise VerifyError(f"weight_layout orders the gates I, F, G and O, got {weight_layout}")
    for name in (f_act, g_act, h_act):
        if name not in ACTIVATIONS:
            raise VerifyError(f"activations are {', '.join(ACTIVATIONS)}, got {name}")
    gate, cell_in, cell_out = (ACTIVATIONS[name] for name in (f_act, g_act, h_act))
    time, batch, _ = Xs.shape
    size, hidden = Wi.shape[0] // 4, Wh.shape[1]
    h = np.zeros((batch, hidden)) if h_init is None else wide(h_init)
    c = np.zeros((batch, size)) if c_init is None else wide(c_init)
    hs, cs = np.empty((time, batch, hidden)), np.empty((time, batch, size))
    for t, x in enumerate(Xs[::-1] if reverse else Xs):
        summed = wide(x) @ wide(Wi).T + h @ wide(Wh).T
        for bias in (Bi, Bh):
            summed = summed if bias is None else summed + bias
        parts = dict(zip(weight_layout, np.split(summed, 4, 1)))
        peep_i, peep_f = (0 if p is None else p * c for p in (p_i, p_f))
        c = gate(parts["F"] + peep_f) * c + gate(parts["I"] + peep_i) * cell_in(parts["G"])
        h = gate(parts["O"] + (0 if p_o is None else p_o * c)) * cell_out(c)
        h = h if proj is None else h @ wide(proj).T
        hs[t], cs[t] = h, c
    return hs.astype(Xs.dtype), cs.astype(Xs.dtype)


def nll_loss(
    predictions: Array,
    targets: Array,
    weights: Array,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Array:
    """Return the negative log likelihood of targets ``(N, ...)`` under ``(N, C, ...)``.

    The ``"mean"`` is over the weights of the targets' classes; targets that are ``ignore_index``
    count for nothing.
    """
    if reduction not in ("mean", "sum", "none"):
        raise VerifyError(f"reduction is mean, sum or none, got {reduction}")
    axis = min(1, predictions.ndim - 1)
    known = targets != ignore_index
    safe = np.where(known, targets, 0)
    taken = np.take_along_axis(predictions, np.expand_dims(safe, axis), axis).squeeze(axis)
    weight = np.where(known, weights[safe], 0).astype("float64")
    loss = -taken * weight
    if reduction == "none":
        return np.asarray(loss, predictions.dtype)
    with np.errstate(invalid="ignore"):  # NaN if all are ignored, as of the operator
        made = loss.sum() / weight.sum() if reduction == "mean" else loss.sum()
    return np.asarray(made, predictions.dtype)
