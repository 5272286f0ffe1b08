"""``lstm`` by TVM's name: a scan over time, with projections, peepholes and activations given."""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te
from tilewright.ir import Expr, const
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal
from tilewright.topi.elementwise import sigmoid, tanh
from tilewright.topi.utils import require_ndim

Activation = Callable[[Tensor], Tensor]


def lstm(
    Xs: Tensor,
    Wi: Tensor,
    Wh: Tensor,
    Bi: Tensor | None = None,
    Bh: Tensor | None = None,
    h_init: Tensor | None = None,
    c_init: Tensor | None = None,
    proj: Tensor | None = None,
    p_i: Tensor | None = None,
    p_f: Tensor | None = None,
    p_o: Tensor | None = None,
    f_act: Activation = sigmoid,
    g_act: Activation = tanh,
    h_act: Activation = tanh,
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> tuple[Tensor, Tensor]:
    """Run an LSTM over ``Xs [time, batch, input]``; return all hidden and all cell states.

    ``Wi [4 * cell, input]``, ``Wh [4 * cell, hidden]`` and the biases have the gates in the order
    of ``weight_layout``: input, forget, new, output. ``proj [hidden, cell]`` maps cells to hidden
    states; peepholes ``p_i``, ``p_f`` and ``p_o`` are ``[batch, cell]``. States begin as ``h_init
    [batch, hidden]`` and ``c_init [batch, cell]``, or zero. Results ``[time, batch, hidden]`` and
    ``[time, batch, cell]`` are in the order of computation, with ``reverse`` from the last time to
    the first. Algorithm: Hochreiter & Schmidhuber (1997), Gers et al. (2002).

    Raises ``VerifyError`` for other orders of gates, and shapes that don't fit.
    """
    for name, tensor, ndim in (("Xs", Xs, 3), ("Wi", Wi, 2), ("Wh", Wh, 2)):
        require_ndim(f"lstm: {name}", tensor, ndim)
    if sorted(weight_layout) != sorted("IFGO"):
        raise VerifyError(f"lstm: weight_layout orders I, F, G and O, got {weight_layout!r}")
    require_equal("lstm: rows of the weights", Wi.shape[0], Wh.shape[0])
    require_equal("lstm: inputs", Xs.shape[2], Wi.shape[1])
    time, batch, _ = Xs.shape
    cell, hidden = Wi.shape[0] // 4, Wh.shape[1]
    gates = _from_inputs(Xs, Wi, [b for b in (Bi, Bh) if b is not None], reverse)
    states = [
        te.placeholder((time + 1, batch, n), Xs.dtype, s)
        for n, s in ((hidden, "h_state"), (cell, "c_state"))
    ]
    h_state, c_state = states
    k = te.reduce_axis((0, hidden), "k")
    own: Tensor = compute(
        (time + 1, batch, Wi.shape[0]),
        lambda t, b, j: te.sum(h_state(t - 1, b, k.var) * Wh(j, k.var), axis=k),
        name="own_gates",
    )

    def gate(
        letter: str, act: Activation, peephole: Tensor | None, cells: Tensor, lag: int
    ) -> Tensor:
        first = weight_layout.index(letter) * cell

        def summed(t: Expr, b: Expr, j: Expr) -> Expr:
            made: Expr = gates(t - 1, b, first + j) + own(t, b, first + j)
            return made if peephole is None else made + peephole(b, j) * cells(t - lag, b, j)

        return act(compute((time + 1, batch, cell), summed, name=f"gate_{letter.lower()}"))

    keep, write = gate("F", f_act, p_f, c_state, 1), gate("I", f_act, p_i, c_state, 1)
    new = gate("G", g_act, None, c_state, 1)
    c_next: Tensor = compute(
        (time + 1, batch, cell),
        lambda t, b, j: keep(t, b, j) * c_state(t - 1, b, j) + write(t, b, j) * new(t, b, j),
        name="next_cell",
    )
    show, shown = gate("O", f_act, p_o, c_next, 0), h_act(c_next)
    h_next: Tensor = compute(
        (time + 1, batch, cell), lambda t, b, j: show(t, b, j) * shown(t, b, j), name="next_hidden"
    )
    if proj is not None:
        h_next = _projected(h_next, proj)
    firsts = [_first(state, given) for state, given in zip(states, (h_init, c_init))]
    made = te.scan(firsts, [h_next, c_next], states, name="lstm_scan")
    hs, cs = (
        compute((time, *s.shape[1:]), lambda t, b, j, s=s: s(t + 1, b, j), name="lstm_states")
        for s in made
    )
    return hs, cs


def _from_inputs(x: Tensor, weight: Tensor, biases: list[Tensor], reverse: bool) -> Tensor:
    """What the inputs add to all gates, at each step; they don't wait for earlier ones."""
    time, batch, width = x.shape
    k = te.reduce_axis((0, width), "k")
    total: Tensor = compute(
        (time, batch, weight.shape[0]),
        lambda t, b, j: te.sum(
            x(time - 1 - t if reverse else t, b, k.var) * weight(j, k.var), axis=k
        ),
        name="input_gates",
    )

    def biased(t: Expr, b: Expr, j: Expr) -> Expr:
        made: Expr = total(t, b, j)
        for bias in biases:
            made = made + bias(j)
        return made

    if not biases:
        return total
    made: Tensor = compute(total.shape, biased, name="input_bias")
    return made


def _projected(h: Tensor, proj: Tensor) -> Tensor:
    require_equal("lstm: projected cells", h.shape[2], proj.shape[1])
    k = te.reduce_axis((0, proj.shape[1]), "k")
    made: Tensor = compute(
        (*h.shape[:2], proj.shape[0]),
        lambda t, b, j: te.sum(h(t, b, k.var) * proj(j, k.var), axis=k),
        name="projected",
    )
    return made


def _first(state: Tensor, given: Tensor | None) -> Tensor:
    if given is not None:
        for extent, wanted in zip(given.shape, state.shape[1:]):
            require_equal("lstm: initial state", extent, wanted)
    made: Tensor = compute(
        (1, *state.shape[1:]),
        lambda t, b, j: const(0, state.dtype) if given is None else given(b, j),
        name="first_state",
    )
    return made
