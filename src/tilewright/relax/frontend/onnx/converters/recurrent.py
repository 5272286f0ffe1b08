"""Recurrent layers: ``RNN``, ``GRU``, ``LSTM``.

The products with inputs are one product for all steps. The rest is one operator if the cell is the
usual one and all sequences are as long; otherwise it is unrolled over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.relax import ops as op
from tilewright.relax.frontend.onnx.converters.base import Context, Tensor, converts
from tilewright.relax.values import const

_MOST_STEPS = 1024
Activation = Callable[[Tensor], Tensor]

# Activation functions by name; alpha and beta have the defaults of their operators.
_ACTIVATIONS: dict[str, Callable[[Tensor, float | None, float | None], Tensor]] = {
    "relu": lambda x, a, b: op.nn.relu(x),
    "tanh": lambda x, a, b: op.tanh(x),
    "sigmoid": lambda x, a, b: op.sigmoid(x),
    "affine": lambda x, a, b: _affine(x, 1.0 if a is None else a, 0.0 if b is None else b),
    "leakyrelu": lambda x, a, b: op.nn.leaky_relu(x, 0.01 if a is None else a),
    "thresholdedrelu": lambda x, a, b: op.nn.threshold(x, 1.0 if a is None else a, 0.0),
    "scaledtanh": lambda x, a, b: _affine(
        op.tanh(_affine(x, 1.0 if b is None else b, 0.0)), 1.0 if a is None else a, 0.0
    ),
    "hardsigmoid": lambda x, a, b: op.clip(
        _affine(x, 0.2 if a is None else a, 0.5 if b is None else b), 0, 1
    ),
    "elu": lambda x, a, b: op.nn.elu(x, 1.0 if a is None else a),
    "softsign": lambda x, a, b: op.nn.softsign(x),
    "softplus": lambda x, a, b: op.nn.softplus(x),
}


def _affine(x: Tensor, scale: float, shift: float) -> Tensor:
    if scale != 1:
        x = op.multiply(x, const(scale, x.dtype))
    return x if shift == 0 else op.add(x, const(shift, x.dtype))


@dataclass(frozen=True, eq=False)
class _Inputs:
    """Sequences, ``[steps, batch, size]``; products by ``[directions, gates * hidden, …]``."""

    x: Tensor
    weight: Tensor
    recurrent: Tensor
    bias: Tensor | None = None
    """``[directions, 2 * gates * hidden]``, for both products."""
    sequence_lens: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class _Attributes:
    """The attributes that the operators have in common."""

    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    activations: tuple[str, ...] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def goes_back(self, number: int) -> bool:
        """Whether a direction goes from the last step to the first."""
        return self.direction == "reverse" or number == 1


@dataclass
class _Layer:
    """What the operators have in common."""

    inputs: _Inputs
    attrs: _Attributes
    gates: int
    hidden: int
    activations: list[Activation]
    per_direction: int
    cell: str | None
    """That of ``nn.recurrence`` which computes the same, if one does."""


@dataclass
class _Direction:
    """One direction of a layer."""

    projected: list[Tensor]
    """The products of inputs, ``[batch, gates * hidden]`` for each step, biases added."""
    recurrent: Tensor
    """``[hidden, gates * hidden]``."""
    bias: Tensor | None
    """That of the recurrent product, ``[gates * hidden]``."""
    activations: Sequence[Activation]
    number: int
    active: list[Tensor | None]
    """Whether a sequence has the step, ``[batch, 1]``."""


Step = Callable[[Context, _Direction, int, list[Tensor]], list[Tensor]]


def _activations(ctx: Context, attrs: _Attributes, defaults: Sequence[str]) -> list[Activation]:
    """The functions of all directions; ``defaults`` are those of one."""
    directions = attrs.directions
    chosen = list(attrs.activations or list(defaults) * directions)
    ctx.require(
        len(chosen) == len(defaults) * directions,
        f"activations needs {len(defaults) * directions} names, got {len(chosen)}",
    )
    alphas, betas = list(attrs.activation_alpha), list(attrs.activation_beta)
    made: list[Activation] = []
    for name in chosen:
        key = name.lower()
        ctx.choice("an activation", key, tuple(_ACTIVATIONS))
        a = alphas.pop(0) if alphas and key in _HAS_ALPHA else None
        b = betas.pop(0) if betas and key in _HAS_BETA else None
        made.append(_clipped(_ACTIVATIONS[key], a, b, attrs.clip))
    return made


def _clipped(
    function: Callable[[Tensor, float | None, float | None], Tensor],
    alpha: float | None, beta: float | None, clip: float | None,
) -> Activation:  # fmt: skip
    """A function with its parameters, of inputs limited to ``-clip`` to ``clip``."""
    if clip is None:
        return lambda x: function(x, alpha, beta)
    return lambda x: function(op.clip(x, -clip, clip), alpha, beta)


_HAS_ALPHA = frozenset("affine leakyrelu thresholdedrelu scaledtanh hardsigmoid elu".split())
_HAS_BETA = frozenset("affine scaledtanh hardsigmoid".split())


def _run(
    ctx: Context, layer: _Layer, states: list[Tensor | None], step: Step
) -> tuple[Tensor, ...]:
    """All directions; gives the outputs of all steps, and the last states."""
    x, layout = layer.inputs.x, layer.attrs.layout
    x = x if layout == 0 else op.permute_dims(x, (1, 0, 2))
    states = [s if s is None or layout == 0 else op.permute_dims(s, (1, 0, 2)) for s in states]
    x = ctx.emit(x)
    made = (
        _unrolled(ctx, layer, x, states, step)
        if layer.cell is None
        else _whole(ctx, layer, x, states)
    )
    outputs, lasts = zip(*made)
    y = op.stack(list(outputs), 1)
    last = [op.stack([items[n] for items in lasts], 0) for n in range(len(states))]
    if layout:
        y = op.permute_dims(y, (2, 0, 1, 3))
        last = [op.permute_dims(item, (1, 0, 2)) for item in last]
    return (y, *last)


def _whole(
    ctx: Context, layer: _Layer, x: Tensor, states: list[Tensor | None]
) -> list[tuple[Tensor, list[Tensor]]]:
    """Each direction as one operator: its outputs, and its last states."""
    cell, hidden = layer.cell, layer.hidden
    assert cell is not None
    made: list[tuple[Tensor, list[Tensor]]] = []
    for number in range(layer.attrs.directions):
        weight, recurrent = (
            _in_order(_at(item, number), cell, hidden)
            for item in (layer.inputs.weight, layer.inputs.recurrent)
        )
        products: Tensor = op.linear(x, weight)
        bias: Tensor = op.zeros((layer.gates * hidden,), x.dtype)
        if layer.inputs.bias is not None:
            given, own = op.split(_at(layer.inputs.bias, number), 2, 0)
            products = op.add(products, _in_order(given, cell, hidden))
            bias = _in_order(own, cell, hidden)
        first = [
            op.zeros((x.shape[1], hidden), x.dtype) if s is None else _at(s, number) for s in states
        ]
        found = ctx.emit(
            op.nn.recurrence(
                products, op.permute_dims(recurrent), bias, *first,
                cell=cell, reverse=layer.attrs.goes_back(number),
            )
        )  # fmt: skip
        made.append((found[0], [found[1 + n] for n in range(len(states))]))
    return made


def _in_order(rows: Tensor, cell: str, hidden: int) -> Tensor:
    """Rows of gates in the order of ``nn.recurrence``."""
    if cell not in _ORDERS:
        return rows
    parts = op.split(rows, len(_ORDERS[cell]), 0)
    return op.concat([parts[place] for place in _ORDERS[cell]], 0)


# Where the gates of ``nn.recurrence`` are in ONNX's order: input, output, forget, cell; update,
# reset, hidden.
_ORDERS = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2)}


def _unrolled(
    ctx: Context, layer: _Layer, x: Tensor, states: list[Tensor | None], step: Step
) -> list[tuple[Tensor, list[Tensor]]]:
    """Each direction step by step: its outputs, and its last states."""
    steps, batch = ctx.ints([x.shape[0]], "the number of steps")[0], x.shape[1]
    ctx.require(steps <= _MOST_STEPS, f"there are more than {_MOST_STEPS} steps")
    made_of_all: list[tuple[Tensor, list[Tensor]]] = []
    for number in range(layer.attrs.directions):
        backward = layer.attrs.goes_back(number)
        one = _direction(ctx, layer, x, number, steps)
        current = [
            op.zeros((batch, layer.hidden), x.dtype) if s is None else _at(s, number)
            for s in states
        ]
        rows: dict[int, Tensor] = {}
        for place in reversed(range(steps)) if backward else range(steps):
            made = [ctx.emit(item) for item in step(ctx, one, place, current)]
            active = one.active[place]
            output = made[0]
            if active is not None:
                made = [ctx.emit(op.where(active, a, b)) for a, b in zip(made, current)]
                output = ctx.emit(op.where(active, output, const(0, x.dtype)))
            current = made
            rows[place] = output
        made_of_all.append((op.stack([rows[place] for place in range(steps)], 0), current))
    return made_of_all


def _direction(ctx: Context, layer: _Layer, x: Tensor, number: int, steps: int) -> _Direction:
    inputs, wide = layer.inputs, layer.gates * layer.hidden
    weight, recurrent = (
        op.permute_dims(_at(item, number), (1, 0)) for item in (inputs.weight, inputs.recurrent)
    )
    projected: Tensor = op.matmul(x, weight)
    own = None
    if inputs.bias is not None:
        bias = _at(inputs.bias, number)
        projected = op.add(projected, op.strided_slice(bias, [0], [0], [wide]))
        own = ctx.emit(op.strided_slice(bias, [0], [wide], [2 * wide]))
    projected = ctx.emit(projected)
    active: list[Tensor | None] = [None] * steps
    if inputs.sequence_lens is not None:
        lengths = op.reshape(inputs.sequence_lens, (x.shape[1], 1))
        active = [
            ctx.emit(op.greater(lengths, const(place, lengths.dtype))) for place in range(steps)
        ]
    first = number * layer.per_direction
    return _Direction(
        [_at(projected, place) for place in range(steps)],
        ctx.emit(recurrent),
        own,
        layer.activations[first : first + layer.per_direction],
        number,
        active,
    )


def _at(x: Tensor, number: int) -> Tensor:
    return op.squeeze(op.strided_slice(x, [0], [number], [number + 1]), 0)


def _gates(x: Tensor, count: int, hidden: int) -> list[Tensor]:
    return [op.strided_slice(x, [1], [n * hidden], [(n + 1) * hidden]) for n in range(count)]


def _setup(
    ctx: Context, inputs: _Inputs, attrs: _Attributes, gates: int, defaults: tuple[str, ...],
    cell: str | None,
) -> _Layer:  # fmt: skip
    ctx.choice("direction", attrs.direction, ("forward", "reverse", "bidirectional"))
    (hidden,) = ctx.ints([inputs.recurrent.shape[2]], "the hidden size")
    ctx.require(
        attrs.hidden_size in (None, hidden), f"hidden_size is {attrs.hidden_size}, R has {hidden}"
    )
    chosen = _activations(ctx, attrs, defaults)
    names = attrs.activations or defaults * attrs.directions
    usual = all(name.lower() == default for name, default in zip(names, defaults * 2))
    whole = usual and attrs.clip is None and inputs.sequence_lens is None
    return _Layer(inputs, attrs, gates, hidden, chosen, len(defaults), cell if whole else None)


@converts("RNN")
def _rnn(
    ctx: Context, inputs: _Inputs, initial_h: Tensor | None = None, *, attrs: _Attributes
) -> tuple[Tensor, ...]:
    names = {name.lower() for name in attrs.activations or ("tanh",)}
    cell = names.pop() if names in ({"tanh"}, {"relu"}) else "tanh"
    layer = _setup(ctx, inputs, attrs, 1, (cell,), cell)

    def step(ctx: Context, one: _Direction, place: int, states: list[Tensor]) -> list[Tensor]:
        total = op.add(one.projected[place], op.matmul(states[0], one.recurrent))
        return [one.activations[0](total if one.bias is None else op.add(total, one.bias))]

    return _run(ctx, layer, [initial_h], step)


@dataclass(frozen=True, kw_only=True)
class _GruAttributes(_Attributes):
    linear_before_reset: int = 0


@converts("GRU")
def _gru(
    ctx: Context, inputs: _Inputs, initial_h: Tensor | None = None, *, attrs: _GruAttributes
) -> tuple[Tensor, ...]:
    cell = "gru" if attrs.linear_before_reset else None
    layer = _setup(ctx, inputs, attrs, 3, ("sigmoid", "tanh"), cell)
    hidden = layer.hidden

    def step(ctx: Context, one: _Direction, place: int, states: list[Tensor]) -> list[Tensor]:
        (before,) = states
        from_input = _gates(one.projected[place], 3, hidden)
        f, g = one.activations
        if attrs.linear_before_reset:
            product: Tensor = op.matmul(before, one.recurrent)
            product = ctx.emit(product if one.bias is None else op.add(product, one.bias))
            own = _gates(product, 3, hidden)
            z, r = (f(op.add(from_input[n], own[n])) for n in range(2))
            h = g(op.add(from_input[2], op.multiply(r, own[2])))
        else:
            zr = op.matmul(before, op.strided_slice(one.recurrent, [1], [0], [2 * hidden]))
            if one.bias is not None:
                zr = op.add(zr, op.strided_slice(one.bias, [0], [0], [2 * hidden]))
            own = _gates(ctx.emit(zr), 2, hidden)
            z, r = (f(op.add(from_input[n], own[n])) for n in range(2))
            last = op.strided_slice(one.recurrent, [1], [2 * hidden], [3 * hidden])
            total = op.add(from_input[2], op.matmul(op.multiply(r, before), last))
            if one.bias is not None:
                total = op.add(total, op.strided_slice(one.bias, [0], [2 * hidden], [3 * hidden]))
            h = g(total)
        z = ctx.emit(z)
        rest = op.subtract(const(1, z.dtype), z)
        return [op.add(op.multiply(rest, h), op.multiply(z, before))]

    return _run(ctx, layer, [initial_h], step)


@dataclass(frozen=True, kw_only=True)
class _LstmAttributes(_Attributes):
    input_forget: int = 0


@converts("LSTM")
def _lstm(
    ctx: Context, inputs: _Inputs, initial_h: Tensor | None = None,
    initial_c: Tensor | None = None, peepholes: Tensor | None = None, *, attrs: _LstmAttributes,
) -> tuple[Tensor, ...]:  # fmt: skip
    cell = "lstm" if peepholes is None and not attrs.input_forget else None
    layer = _setup(ctx, inputs, attrs, 4, ("sigmoid", "tanh", "tanh"), cell)
    hidden = layer.hidden

    def step(ctx: Context, one: _Direction, place: int, states: list[Tensor]) -> list[Tensor]:
        before, cell = states
        product: Tensor = op.add(one.projected[place], op.matmul(before, one.recurrent))
        product = ctx.emit(product if one.bias is None else op.add(product, one.bias))
        i, o, f, c = _gates(product, 4, hidden)
        activate, squash, show = one.activations
        if peepholes is not None:
            p = [
                op.strided_slice(_at(peepholes, one.number), [0], [n * hidden], [(n + 1) * hidden])
                for n in range(3)
            ]
            i, f = op.add(i, op.multiply(p[0], cell)), op.add(f, op.multiply(p[2], cell))
        i = ctx.emit(activate(i))
        f = op.subtract(const(1, i.dtype), i) if attrs.input_forget else activate(f)
        new = ctx.emit(op.add(op.multiply(f, cell), op.multiply(i, squash(c))))
        if peepholes is not None:
            o = op.add(o, op.multiply(p[1], new))
        return [op.multiply(activate(o), show(new)), new]

    return _run(ctx, layer, [initial_h, initial_c], step)
