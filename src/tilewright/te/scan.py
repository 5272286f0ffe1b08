"""Scans: tensors whose elements at one time are formulas of those at earlier times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith import Condition, simplify
from tilewright.ir import Range, Var, as_expr, as_int, is_const, structural_equal
from tilewright.support.errors import VerifyError
from tilewright.te.tag import current_tag
from tilewright.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from tilewright.tir import OPAQUE, IterVar


class ScanOp(Operation):
    """Results that start as ``init`` and go on by ``update``, along the first dimension.

    ``scan_axis`` are the times that updates are computed for, ``spatial_axis_`` has an axis for
    each other dimension of each state; both are made if they aren't given. Raises ``VerifyError``
    if they aren't those of the tensors.

    ``steps`` are the operations that each step computes, in order: those between the states and the
    updates, and the updates themselves.
    """

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: Mapping[str, Any] | None,
        scan_axis: IterVar | None,
        init: Sequence[Tensor],
        update: Sequence[Tensor],
        state_placeholder: Sequence[Tensor],
        inputs: Sequence[Tensor],
        spatial_axis_: Sequence[IterVar] | None = None,
    ) -> None:
        super().__init__(name, (), (), current_tag(tag), attrs)
        self.init = tuple(init)
        self.update = tuple(update)
        self.state_placeholder = tuple(state_placeholder)
        self.steps = _steps(name, self.update, {tensor.op for tensor in self.state_placeholder})
        own = {*self.steps, *(tensor.op for tensor in self.state_placeholder)}
        outside = [tensor for op in self.steps for tensor in op.inputs if tensor.op not in own]
        self._inputs = list(dict.fromkeys([*self.init, *outside, *inputs]))
        self.dtypes = tuple(tensor.dtype for tensor in self.update)
        self.outputs = tuple(
            Tensor(
                state.shape, state.dtype, self, number,
                name=name if len(self.update) == 1 else f"{name}_v{number}",
            )
            for number, state in enumerate(self.state_placeholder)
        )  # fmt: skip
        first, total = self.init[0].shape[0], self.update[0].shape[0]
        if any(not structural_equal(x.shape[0], first, map_free_vars=False) for x in self.init):
            raise VerifyError(f"scan {name!r}: all of init are to have as many times, {first}")
        words = (f"scan {name!r} has ", first, " initial elements in time, of ", total)
        self.conditions = _undecided(Condition(simplify(total >= first), words))
        times = Range.from_min_extent(first, total - first)
        self.scan_axis = scan_axis or IterVar(times, Var("scan_idx"), OPAQUE)
        others = [
            IterVar(Range.from_min_extent(as_expr(0), extent), Var(f"i{number}"), OPAQUE)
            for state in self.state_placeholder
            for number, extent in enumerate(state.shape[1:], 1)
        ]
        self.spatial_axis_ = tuple(others if spatial_axis_ is None else spatial_axis_)
        wanted = [times, *(axis.dom for axis in others)]
        given = [axis.dom for axis in (self.scan_axis, *self.spatial_axis_)]
        if not _are_equal(given, wanted):
            raise VerifyError(f"scan {name!r} has axes over {wanted}, not {given}")

    @property
    def inputs(self) -> list[Tensor]:
        """Tensors that the scan reads and doesn't compute itself, once each."""
        return self._inputs


def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state_placeholder: Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    name: str = "scan",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Define tensors step by step along their first dimension, the time.

    ``init`` are the first elements in time; ``update`` is a tensor over all times whose formula
    reads ``state_placeholder``, the result so far, at earlier ones. It is computed for the times
    that ``init`` doesn't have, in order. All three may be lists, of one tensor per result.

    >>> state = te.placeholder((m, n))
    >>> first = te.compute((1, n), lambda _, i: X[0, i])
    >>> next_ = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
    >>> te.scan(first, next_, state, inputs=[X])       # a cumulative sum

    Raises ``VerifyError`` if the tensors don't fit, or a step computes anything but formulas.
    """
    lists = [[x] if isinstance(x, Tensor) else list(x) for x in (init, update, state_placeholder)]
    firsts, updates, states = lists
    if not len(firsts) == len(updates) == len(states) or not firsts:
        raise VerifyError(
            f"scan {name!r} takes as many init as update and state tensors, got "
            f"{len(firsts)}, {len(updates)} and {len(states)}"
        )
    for first, following, state in zip(firsts, updates, states):
        _check(name, first, following, state)
    op = ScanOp(name, tag, attrs, None, firsts, updates, states, inputs or ())
    return op.outputs[0] if len(op.outputs) == 1 else list(op.outputs)


def _are_equal(given: Sequence[Range | None], wanted: Sequence[Range]) -> bool:
    """Whether ranges are the same, whatever the form of their extents."""
    return len(given) == len(wanted) and all(
        a is not None
        and is_const(simplify(a.min - b.min), 0)
        and is_const(simplify(a.extent - b.extent), 0)
        for a, b in zip(given, wanted)
    )


def _undecided(condition: Condition) -> tuple[Condition, ...]:
    """The condition, if the call will decide it; ``VerifyError`` if it can't hold."""
    holds = as_int(condition.expr)
    if holds == 0:
        raise VerifyError(condition.text)
    return () if holds else (condition,)


def _check(name: str, first: Tensor, following: Tensor, state: Tensor) -> None:
    if not isinstance(state.op, PlaceholderOp) or not isinstance(following.op, ComputeOp):
        raise VerifyError(f"scan {name!r}: states are placeholders, and updates computed")
    same = state.ndim == following.ndim == first.ndim > 0 and all(
        structural_equal(a, b, map_free_vars=False)
        for a, b in (*zip(state.shape, following.shape), *zip(state.shape[1:], first.shape[1:]))
    )
    if not same or not state.dtype == following.dtype == first.dtype:
        raise VerifyError(
            f"scan {name!r}: {first!r}, {following!r} and {state!r} are to have one dtype and "
            "shape, but for the first extent of the initial tensor"
        )


def _steps(name: str, updates: Sequence[Tensor], states: set[Operation]) -> list[ComputeOp]:
    """Operations that depend on the states, each after what it reads."""
    order: dict[Operation, bool] = {}  # whether it depends on a state
    stack: list[tuple[Operation, bool]] = [(tensor.op, False) for tensor in reversed(updates)]
    while stack:
        op, expanded = stack.pop()
        if op in order:
            continue
        if not expanded:
            stack.append((op, True))
            stack.extend((tensor.op, False) for tensor in op.inputs if tensor.op not in order)
            continue
        order[op] = op in states or any(order[tensor.op] for tensor in op.inputs)
    found = [op for op, depends in order.items() if depends and op not in states]
    own = {tensor.op for tensor in updates}
    found += [op for op in dict.fromkeys(t.op for t in updates) if op not in found]
    total = updates[0].shape[0]
    made: list[ComputeOp] = []
    for op in found:
        if not isinstance(op, ComputeOp):
            raise VerifyError(f"scan {name!r}: {op!r} depends on the state; only te.compute may")
        extent = op.axis[0].dom.extent if op.axis else None
        if extent is None or not structural_equal(extent, total, map_free_vars=False):
            raise VerifyError(
                f"scan {name!r}: {op!r} depends on the state, so its first dimension is the time"
            )
        if op in own and len(op.outputs) != 1:
            raise VerifyError(f"scan {name!r}: {op!r} has several results; give each an update")
        made.append(op)
    return made
