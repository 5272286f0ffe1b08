"""Recurrent layers: LSTM, GRU and plain ones, of several layers and both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.relax import ops as op
from tilewright.relax.expr import RelaxExpr
from tilewright.relax.frontend.torch.converters.base import Context, Results, converts

#: Cells by the operator's name.
_CELLS = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "tanh", "rnn_relu": "relu"}


@dataclass(frozen=True)
class _Form:
    """The operators' parameters after the tensors."""

    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def step_axis(self) -> int:
        return 1 if self.batch_first else 0


@converts("aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input", form=_Form)
def _with_one_state(
    ctx: Context, x: RelaxExpr, state: RelaxExpr, params: Sequence[RelaxExpr], form: _Form
) -> Results:
    return _layers(ctx, x, [state], params, form)


@converts("aten.lstm.input", form=_Form)
def _layers(
    ctx: Context,
    x: RelaxExpr,
    states: Sequence[RelaxExpr],
    params: Sequence[RelaxExpr],
    form: _Form,
) -> Results:
    """All layers; each takes the outputs of both directions of the one before."""
    if form.train and form.dropout and form.num_layers > 1:
        raise ctx.error("dropout in training draws random numbers: export the model in evaluation")
    count = len(params) // (form.num_layers * form.directions)
    lasts: list[Sequence[RelaxExpr]] = []
    for layer in range(form.num_layers):
        outputs = []
        for direction in range(form.directions):
            number = layer * form.directions + direction
            own = params[number * count : (number + 1) * count]
            first = [_at(state, number) for state in states]
            y, *last = _direction(ctx, x, first, own, form, direction == 1)
            outputs.append(y)
            lasts.append(last)
        x = outputs[0] if len(outputs) == 1 else ctx.emit(op.concat(outputs, 2))
    return [x, *(op.stack(list(items), 0) for items in zip(*lasts))]


def _at(state: RelaxExpr, number: int) -> RelaxExpr:
    return op.squeeze(op.strided_slice(state, [0], [number], [number + 1]), 0)


def _direction(
    ctx: Context,
    x: RelaxExpr,
    first: list[RelaxExpr],
    params: Sequence[RelaxExpr],
    form: _Form,
    reverse: bool,
) -> list[RelaxExpr]:
    """One direction of a layer: outputs and last state."""
    cell = _CELLS[str(ctx.node.target).split(".")[1]]
    weight, recurrent, *others = params
    products: RelaxExpr
    bias: RelaxExpr
    biases, projection = (others[:2], others[2:]) if form.has_biases else ([], others)
    if not biases:
        products, bias = op.linear(x, weight), op.zeros((weight.shape[0],), x.dtype)
    elif cell == "gru":  # the reset gate is applied to the second bias too
        products, bias = op.linear(x, weight, biases[0]), biases[1]
    else:
        products, bias = op.linear(x, weight), op.add(*biases)
    if projection:
        # The state before it is projected makes the same products, with one weight made of two.
        products = _added_to_first(products, op.linear(first[0], recurrent), form, reverse)
        recurrent = op.matmul(recurrent, projection[0])
        first = [op.zeros(first[1].shape, x.dtype), first[1]]
    made = ctx.emit(
        op.nn.recurrence(
            products, op.permute_dims(recurrent), bias, *first,
            cell=cell, reverse=reverse, batch_first=form.batch_first,
        )
    )  # fmt: skip
    results = [ctx.emit(made[number]) for number in range(1 + len(first))]
    if projection:
        results[:2] = [op.linear(item, projection[0]) for item in results[:2]]
    return results


def _added_to_first(products: RelaxExpr, value: RelaxExpr, form: _Form, reverse: bool) -> RelaxExpr:
    """Add to the products of the step that is done first."""
    axis = form.step_axis
    steps = products.shape[axis]
    cut = steps - 1 if reverse else 1
    parts = [
        op.strided_slice(products, [axis], [start], [stop])
        for start, stop in ((0, cut), (cut, steps))
    ]
    parts[int(reverse)] = op.add(parts[int(reverse)], op.expand_dims(value, axis))
    return op.concat(parts, axis)
