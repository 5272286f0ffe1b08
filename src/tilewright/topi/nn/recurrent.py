"""Recurrent layers, step by step: ``recurrence`` of LSTM, GRU and plain cells.

The products with the inputs are made before, for all steps at once; what is here is the rest: the
products with the state, and the cell. Sequences of a batch are independent of each other.

The definition's block carries the options as the annotation ``RECURRENCE``, by which a kernel
(``kernels.cpu.recurrence``) recognises it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.ir import Expr, Var, as_int, call, const, dtypes, maximum
from tilewright.ir import cast as cast_expr
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, extern, require_equal, with_conditions
from tilewright.tir import Buffer, Stmt, decl_buffer, seq
from tilewright.tir.attrs import FLAG, one_of, options_of, register_annotation
from tilewright.tir.building import Axis, block, load, loop, store
from tilewright.topi.utils import require_ndim, sum_dtype


@dataclass(frozen=True)
class Activations:
    """The functions of cells, of whatever values: elements or tensors of a graph.

    ``share`` is called with what is used more than once.
    """

    sigmoid: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    relu: Callable[[Any], Any]
    share: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True)
class Cell:
    """What a step makes of the gates.

    ``step`` takes the activations, for each gate what comes from the input and what from the state,
    and the values of the state; it gives the new values, of which the first is the output.
    """

    gates: int
    states: int
    step: Callable[[Activations, Sequence[Any], Sequence[Any], Sequence[Any]], tuple[Any, ...]]


def _lstm(
    f: Activations, x: Sequence[Any], own: Sequence[Any], states: Sequence[Any]
) -> tuple[Any, ...]:
    """Gates: input, forget, cell, output."""
    write, keep, new, show = (a + b for a, b in zip(x, own))
    memory = f.share(f.sigmoid(keep) * states[1] + f.sigmoid(write) * f.tanh(new))
    return f.sigmoid(show) * f.tanh(memory), memory


def _gru(
    f: Activations, x: Sequence[Any], own: Sequence[Any], states: Sequence[Any]
) -> tuple[Any, ...]:
    """Gates: reset, update, new; the reset comes after the product."""
    reset, update = (f.sigmoid(a + b) for a, b in zip(x[:2], own[:2]))
    new = f.share(f.tanh(x[2] + reset * own[2]))
    return (new + update * (states[0] - new),)


CELLS = {
    "lstm": Cell(4, 2, _lstm),
    "gru": Cell(3, 1, _gru),
    "tanh": Cell(1, 1, lambda f, x, own, states: (f.tanh(x[0] + own[0]),)),
    "relu": Cell(1, 1, lambda f, x, own, states: (f.relu(x[0] + own[0]),)),
}
"""Cells by name, with PyTorch's gates in PyTorch's order."""

SCALARS = Activations(
    lambda x: call("sigmoid", x),
    lambda x: call("tanh", x),
    lambda x: maximum(x, const(0, x.dtype)),
)
"""The activations of elements."""

RECURRENCE = register_annotation(
    "recurrent_layer",
    options_of(cell=one_of(*CELLS), reverse=FLAG, batch_first=FLAG),
    means="On the definition: the fields of ``RecurrenceOptions``.",
    read_by=("kernels.cpu.recurrence.kernel", "dlight.cpu.annotated_rows"),
)


@dataclass(frozen=True)
class RecurrenceOptions:
    """What distinguishes one recurrence from another, besides its operands."""

    cell: str
    reverse: bool = False
    batch_first: bool = False

    def annotation(self) -> dict[str, Any]:
        """The options as a block annotation: Python values only."""
        return asdict(self)

    @staticmethod
    def from_annotation(value: Mapping[str, Any]) -> RecurrenceOptions:
        """Read what ``annotation`` wrote."""
        flags = (bool(value[name]) for name in ("reverse", "batch_first"))
        return RecurrenceOptions(str(value["cell"]), *flags)

    def place(self, step: Expr, sequence: Expr) -> tuple[Expr, Expr]:
        """Leading indices into inputs and outputs."""
        return (sequence, step) if self.batch_first else (step, sequence)

    def at(self, number: Expr, steps: Expr) -> Expr:
        """Which step is done as the one of this number."""
        return steps - 1 - number if self.reverse else number


def cell_named(name: str, has_memory: bool) -> Cell:
    """Return a cell, for operands with or without a memory.

    Raises ``VerifyError`` for an unknown name, and if the cell's state is another.
    """
    if name not in CELLS:
        raise VerifyError(f"cell must be one of {', '.join(CELLS)}, got {name!r}")
    cell = CELLS[name]
    if (cell.states == 2) != has_memory:
        raise VerifyError(f"{name} {'has no' if has_memory else 'needs a'} memory")
    return cell


@with_conditions
def recurrence(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    state: Tensor,
    memory: Tensor | None = None,
    *,
    cell: str = "lstm",
    reverse: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, ...]:
    """Run a recurrent layer over its steps: the outputs ``[steps, batch, hidden]``, the last state.

    ``x`` is ``[steps, batch, gates * hidden]``, the inputs' products with their weight; ``weight``
    is ``[hidden, gates * hidden]`` and ``bias`` ``[gates * hidden]``, for the product with the
    state. ``state`` is the output before the first step, ``[batch, hidden]``, as is ``memory``,
    which an LSTM has besides. ``reverse`` goes from the last step to the first. With
    ``batch_first`` inputs and outputs have the batch before the steps.

    Raises ``VerifyError`` if shapes, dtypes or the operands don't fit each other and the cell.
    """
    gates = cell_named(cell, memory is not None).gates
    for name, tensor, ndim in (("x", x, 3), ("weight", weight, 2), ("bias", bias, 1)):
        require_ndim(f"recurrence: {name}", tensor, ndim)
    hidden = weight.shape[0]
    size = as_int(hidden)
    if size is None:
        raise VerifyError(f"recurrence: the hidden size must be constant, got {hidden!r}")
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
        require_equal(f"recurrence: gates of {name}", tensor.shape[-1], const(gates * size))
    states = [state] if memory is None else [state, memory]
    for item in states:
        require_ndim("recurrence: state", item, 2)
        require_equal("recurrence: batches", x.shape[0 if batch_first else 1], item.shape[0])
        require_equal("recurrence: hidden sizes", hidden, item.shape[1])
    operands = [x, weight, bias, *states]
    found = {tensor.dtype for tensor in operands}
    if len(found) > 1 or not dtypes.is_float(x.dtype):
        raise VerifyError(f"recurrence: needs floats of one dtype, got {', '.join(sorted(found))}")
    return define_recurrence(operands, RecurrenceOptions(cell, reverse, batch_first))


def define_recurrence(operands: Sequence[Tensor], options: RecurrenceOptions) -> tuple[Tensor, ...]:
    """Define outputs and last state of operands that have been checked."""
    x, _, _, *states = operands
    shapes = [(*x.shape[:2], states[0].shape[1]), *(state.shape for state in states)]

    def body(sources: Sequence[Buffer], results: Sequence[Buffer]) -> Stmt:
        return _Definition(sources, results, options).build()

    return tuple(extern(shapes, operands, body, dtype=[x.dtype] * len(shapes), name="recurrence"))


class _Definition:
    """One sequence after another; the state is kept in the results for the last one."""

    def __init__(
        self, sources: Sequence[Buffer], results: Sequence[Buffer], options: RecurrenceOptions
    ) -> None:
        self.options, self.cell = options, CELLS[options.cell]
        self.x, self.weight, self.bias, *self.first = sources
        self.y, *self.state = results
        self.hidden = self.weight.shape[0]
        self.inner = sum_dtype(self.x.dtype)
        # The products of a step, and the new state, which the products still read the old one of.
        self.gates = decl_buffer((self.weight.shape[1],), self.inner, "gates")

    def build(self) -> Stmt:
        batch = self.first[0].shape[0]
        options = {RECURRENCE: self.options.annotation()}
        return block("recurrence", [Axis("b", batch)], self._sequence, [self.gates], options)

    def _sequence(self, b: Var) -> Stmt:
        steps = self.x.shape[1 if self.options.batch_first else 0]

        def start(j: Var) -> Stmt:
            return seq(*(store(s, load(f, b, j), b, j) for s, f in zip(self.state, self.first)))

        return seq(
            loop("j", self.hidden, start),
            loop("t", steps, lambda t: self._step(self.options.at(t, steps), b)),
        )

    def _step(self, t: Expr, b: Var) -> Stmt:
        def start(j: Var) -> Stmt:
            return store(self.gates, self._wide(load(self.bias, j)), j)

        def multiply(k: Var, j: Var) -> Stmt:
            product = self._wide(load(self.state[0], b, k)) * self._wide(load(self.weight, k, j))
            return store(self.gates, load(self.gates, j) + product, j)

        return seq(
            loop("j", self.gates.shape[0], start),
            loop(
                "k", self.hidden, lambda k: loop("j", self.gates.shape[0], lambda j: multiply(k, j))
            ),
            loop("j", self.hidden, lambda j: self._cell(t, b, j)),
        )

    def _cell(self, t: Expr, b: Var, j: Var) -> Stmt:
        places = [j + gate * self.hidden for gate in range(self.cell.gates)]
        at = self.options.place(t, b)
        made = self.cell.step(
            SCALARS,
            [self._wide(load(self.x, *at, place)) for place in places],
            [load(self.gates, place) for place in places],
            [self._wide(load(state, b, j)) for state in self.state],
        )
        narrow = [cast_expr(value, self.x.dtype) for value in made]
        return seq(
            store(self.y, narrow[0], *at, j),
            # The output of an LSTM is made of its old memory.
            *(store(state, value, b, j) for state, value in zip(self.state, narrow)),
        )

    def _wide(self, value: Expr) -> Expr:
        return cast_expr(value, self.inner)
