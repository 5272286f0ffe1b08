"""Control flow: branches, and loops whose number of steps is known, which are unrolled.

A condition that isn't known at import becomes an ``If``, of which only the branch that is taken is
computed. A loop that data may end keeps what its variables were when its condition failed first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.relax import ops as op
from tilewright.relax.branches import If
from tilewright.relax.expr import RelaxExpr, SeqExpr, Tuple
from tilewright.relax.frontend.onnx.converters.base import (
    Context,
    Graph,
    Tensor,
    Value,
    converts,
)
from tilewright.relax.frontend.onnx.model import dtype_of
from tilewright.relax.frontend.onnx.values import (
    NeedsBranchesError,
    Numbers,
    UnknownValueError,
)
from tilewright.relax.struct_info import TensorStructInfo, same_struct_info
from tilewright.relax.values import const

#: Steps of one loop that are unrolled.
MOST_STEPS = 1024


def _decided(ctx: Context, condition: Value) -> bool | None:
    """A truth value, if it is known."""
    found = ctx.known(condition)
    if found is None or found.size != 1 or found.dtype == object:
        return None
    return bool(found.reshape(-1)[0])


def _chosen(ctx: Context, condition: Tensor, first: Value, second: Value, source: Value) -> Value:
    """One of two values of the same form; ``source`` is what the condition was made of."""
    if first is second:
        return first
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return [_chosen(ctx, condition, a, b, source) for a, b in zip(first, second)]
    _check_alike(ctx, first, second, source)
    a = ctx.tensor(first)
    return ctx.alike(op.where(condition, a, ctx.tensor(second)), a)


def _check_alike(ctx: Context, first: Value, second: Value, source: Value) -> None:
    """Raise unless two results have one dtype and shape."""
    if not isinstance(first, (RelaxExpr, Numbers)) or not isinstance(second, (RelaxExpr, Numbers)):
        raise UnknownValueError(
            ctx.error(
                "its branches give different kinds of values, so its condition must be known when "
                "the model is imported"
            ).message,
            source,
        )
    a, b = (TensorStructInfo(value.shape, value.dtype) for value in (first, second))
    if not same_struct_info(a, b):
        raise UnknownValueError(
            ctx.error(
                f"its branches give {a!r} and {b!r}, so its condition must be known when the model "
                "is imported"
            ).message,
            source,
        )


@converts("If")
def _if(
    ctx: Context, condition: Value, *, then_branch: Graph, else_branch: Graph
) -> tuple[Value, ...]:
    decided = _decided(ctx, condition)
    if decided is not None:
        return tuple(ctx.run_graph(then_branch if decided else else_branch, []))
    if ctx.builder.in_dataflow:
        raise NeedsBranchesError(ctx.error("its condition depends on data").message)
    test = ctx.emit(ctx.cast(op.reshape(ctx.tensor(condition, "condition"), ()), "bool"))
    results: list[list[Value]] = []

    def branch(graph: Graph) -> SeqExpr:
        def body() -> RelaxExpr:
            results.append(ctx.run_graph(graph, []))
            return Tuple(tuple(_tensors(ctx, results[-1])))

        return ctx.builder.build_branch(body)

    branches = branch(then_branch), branch(else_branch)
    first, second = results
    ctx.require(len(first) == len(second), "its branches give different numbers of results")
    whole = ctx.builder.emit(If(test, *branches))
    number = itertools.count()

    def joined(a: Value, b: Value) -> Value:
        """What stands for two results; tensors are taken out of the whole in turn."""
        if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            return [joined(x, y) for x, y in zip(a, b)]
        if a is None and b is None:
            return None
        _check_alike(ctx, a, b, condition)
        item = whole[next(number)]
        return a if a is b else ctx.alike(item, a)

    return tuple(joined(a, b) for a, b in zip(first, second))


def _tensors(ctx: Context, values: Sequence[Value]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, list):
            yield from _tensors(ctx, value)
        elif value is not None:
            yield ctx.tensor(value)


@converts("Loop")
def _loop(
    ctx: Context, trips: Value, condition: Value, *initial: Value, body: Graph
) -> tuple[Value, ...]:
    limit = None
    if trips is not None:
        limit = ctx.ints(ctx.sizes(trips, "the number of steps"), "the number of steps")[0]
    variables: list[Value] = list(initial)
    count = len(variables)
    ctx.require(
        len(body.input) == count + 2 and len(body.output) > count,
        f"its body takes {len(body.input)} values and gives {len(body.output)}, with {count} "
        "variables",
    )
    collected: list[list[Value]] = [[] for _ in body.output[count + 1 :]]
    going: Value = const(True) if condition is None else condition
    step = 0
    while limit is None or step < limit:
        decided = _decided(ctx, going)
        if decided is False:
            break
        if step >= MOST_STEPS:
            raise ctx.error(f"it has more than {MOST_STEPS} steps; loops are unrolled")
        if decided is None and (limit is None or collected):
            raise UnknownValueError(
                ctx.error(
                    "its condition depends on data, so there must be a greatest number of steps, "
                    "and results only for the last one"
                ).message,
                going,
            )
        made = ctx.run_graph(body, [const(np.int64(step)), going, *variables])
        if decided is None:
            active = ctx.emit(ctx.cast(op.reshape(ctx.tensor(going), ()), "bool"))
            kept = zip(made[1 : count + 1], variables)
            variables = [_chosen(ctx, active, new, old, going) for new, old in kept]
            after = _decided(ctx, made[0])
            if after is not True:
                going = active if after is None else const(False)
                if after is None:
                    test = ctx.cast(op.reshape(ctx.tensor(made[0]), ()), "bool")
                    going = ctx.emit(op.logical_and(active, test))
        else:
            variables = list(made[1 : count + 1])
            going = made[0]
        for values, value in zip(collected, made[count + 1 :]):
            values.append(value)
        step += 1
    results = [
        _stacked(ctx, values, body.output[count + 1 + number])
        for number, values in enumerate(collected)
    ]
    return (*variables, *results)


def _stacked(ctx: Context, values: Sequence[Value], info: Any, axis: int = 0) -> Tensor:
    """The results of all steps along a new axis."""
    if values:
        parts = [ctx.tensor(value) for value in values]
        at = ctx.axis(axis, parts[0].ndim + 1)
        return ctx.alike(op.stack(parts, at), parts[0])
    kind = info.type.tensor_type
    dims = [dim.dim_value for dim in kind.shape.dim]
    ctx.require(
        kind.HasField("shape") and kind.elem_type,
        f"there is no step, and {info.name!r} has no shape",
    )
    return op.zeros((0, *dims), dtype_of(kind.elem_type))


@dataclass(frozen=True, kw_only=True)
class _Scan:
    """The attributes of ``Scan``; ``directions`` is the first version's."""

    body: Graph
    num_scan_inputs: int
    scan_input_axes: tuple[int, ...] = ()
    scan_input_directions: tuple[int, ...] = ()
    scan_output_axes: tuple[int, ...] = ()
    scan_output_directions: tuple[int, ...] = ()
    directions: tuple[int, ...] = ()


@converts("Scan")
def _scan(ctx: Context, *inputs: Value, attrs: _Scan) -> tuple[Value, ...]:
    body, num_scan_inputs = attrs.body, attrs.num_scan_inputs
    values = list(inputs)
    if ctx.opset < 9:
        # The first version has an input for lengths, and an axis of batches in front.
        ctx.require(values and values[0] is None, "sequence_lens is not supported")
        values = values[1:]
    ctx.require(0 < num_scan_inputs <= len(values), "num_scan_inputs is wrong")
    states = values[: len(values) - num_scan_inputs]
    scanned = [ctx.tensor(value) for value in values[len(states) :]]
    outputs = len(body.output) - len(states)
    ctx.require(outputs >= 0, "its body gives fewer values than there are states")
    forward = attrs.scan_input_directions or attrs.directions
    if ctx.opset < 9:
        return _scan_batches(ctx, body, states, scanned, forward)
    axes = [
        ctx.axis(attrs.scan_input_axes[n] if attrs.scan_input_axes else 0, x.ndim)
        for n, x in enumerate(scanned)
    ]
    states, collected = _scanned(ctx, body, states, scanned, axes, forward)
    results = []
    for number, items in enumerate(collected):
        if attrs.scan_output_directions and attrs.scan_output_directions[number]:
            items = items[::-1]
        axis = attrs.scan_output_axes[number] if attrs.scan_output_axes else 0
        results.append(_stacked(ctx, items, body.output[len(states) + number], axis))
    return (*states, *results)


def _scanned(
    ctx: Context, body: Graph, states: Sequence[Value], scanned: Sequence[Tensor],
    axes: Sequence[int], backward: Sequence[int],
) -> tuple[list[Value], list[list[Value]]]:  # fmt: skip
    steps = ctx.ints([x.shape[a] for x, a in zip(scanned, axes)], "extents that are scanned")
    ctx.require(len(set(steps)) == 1, f"inputs have {steps} steps")
    ctx.require(steps[0] <= MOST_STEPS, f"it has more than {MOST_STEPS} steps; they are unrolled")
    current = list(states)
    collected: list[list[Value]] = [[] for _ in body.output[len(current) :]]
    for step in range(steps[0]):
        parts: list[Value] = []
        for number, (x, axis) in enumerate(zip(scanned, axes)):
            place = steps[0] - 1 - step if backward and backward[number] else step
            parts.append(_item(ctx, x, axis, place))
        made = ctx.run_graph(body, [*current, *parts])
        current = made[: len(current)]
        for items, value in zip(collected, made[len(current) :]):
            items.append(value)
    return current, collected


def _item(ctx: Context, x: Tensor, axis: int, place: int) -> Tensor:
    item = op.squeeze(op.strided_slice(x, [axis], [place], [place + 1]), axis)
    return ctx.alike(item, x)


def _scan_batches(
    ctx: Context, body: Graph, states: Sequence[Value], scanned: Sequence[Tensor],
    backward: Sequence[int],
) -> tuple[Value, ...]:  # fmt: skip
    (batch,) = {*ctx.ints([x.shape[0] for x in scanned], "the batch")}
    ctx.require(batch <= MOST_STEPS, f"there are more than {MOST_STEPS} batches to unroll")
    per_batch = []
    for number in range(batch):
        own = [_item(ctx, ctx.tensor(state), 0, number) for state in states]
        parts = [_item(ctx, x, 0, number) for x in scanned]
        last, collected = _scanned(ctx, body, own, parts, [0] * len(parts), backward)
        first = len(last)
        rows = [_stacked(ctx, c, body.output[first + n]) for n, c in enumerate(collected)]
        per_batch.append([*last, *rows])
    return tuple(op.stack([ctx.tensor(v) for v in values], 0) for values in zip(*per_batch))
