"""Recurrent layers: the operator, the kernel, gradients, and PyTorch's modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, graph_of, random, symbol, tensor
from tilewright import dlight, kernels, relax, te, topi
from tilewright.ir import IRModule, collect
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir import PARALLEL, For
from tilewright.tir.attrs import IS_SCHEDULED
from tilewright.tir.interpreter import run as run_functions
from tilewright.tir.schedule import Schedule

torch = pytest.importorskip("torch")
WIDTHS = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


def operands(cell: str, steps: int, batch: int, hidden: int, dtype: str = "float32") -> list[Any]:
    shapes: list[tuple[int, ...]] = [(steps, batch, WIDTHS[cell] * hidden)]
    shapes += [(hidden, WIDTHS[cell] * hidden), (WIDTHS[cell] * hidden,)]
    shapes += [(batch, hidden)] * (2 if cell == "lstm" else 1)
    return [random(*shape, seed=n, dtype=dtype) / 2 for n, shape in enumerate(shapes)]


def by_pytorch(cell: str, arrays: Sequence[np.ndarray], reverse: bool = False) -> list[np.ndarray]:
    """The same by PyTorch's cells."""
    x, weight, bias, *states = map(torch.from_numpy, arrays)
    hidden = weight.shape[0]
    unit = torch.eye(x.shape[2], dtype=x.dtype)
    none = torch.zeros(x.shape[2], dtype=x.dtype)
    rest = (unit, weight.T, none, bias)
    function = {
        "lstm": torch.lstm_cell, "gru": torch.gru_cell,
        "tanh": torch.rnn_tanh_cell, "relu": torch.rnn_relu_cell,
    }[cell]  # fmt: skip
    y = torch.zeros(*x.shape[:2], hidden, dtype=x.dtype)
    for step in reversed(range(len(x))) if reverse else range(len(x)):
        made = function(x[step], states if cell == "lstm" else states[0], *rest)
        states = list(made) if cell == "lstm" else [made]
        y[step] = states[0]
    return [item.numpy() for item in (y, *states)]


def check(mod: IRModule, arrays: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    for found in (interpreter.run(mod, *arrays), relax.build(mod)(*arrays)):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", WIDTHS)
@pytest.mark.parametrize("sizes", [(3, 4, 20), (2, 1, 5)])
def test_cells(cell: str, sizes: tuple[int, int, int]) -> None:
    arrays = operands(cell, *sizes)
    check(graph_of(lambda *x: op.nn.recurrence(*x, cell=cell), *arrays), arrays,
          by_pytorch(cell, arrays))  # fmt: skip


def test_reverse_with_the_batch_first_and_symbolic_sizes() -> None:
    arrays = operands("gru", 3, 2, 4)
    y, last = by_pytorch("gru", arrays, reverse=True)
    n, m = symbol("n"), symbol("m")
    infos = [tensor((n, m, 12)), tensor((4, 12)), tensor((12,)), tensor((n, 4))]
    mod = graph(lambda *x: op.nn.recurrence(*x, cell="gru", reverse=True, batch_first=True), *infos)
    given = [arrays[0].swapaxes(0, 1).copy(), *arrays[1:]]
    check(mod, given, [y.swapaxes(0, 1), last])


@pytest.mark.parametrize("cores", [1, 2])
def test_batches_of_any_size(cores: int) -> None:
    n, m = symbol("n"), symbol("m")
    infos = [tensor((n, m, 20)), tensor((5, 20)), tensor((20,)), tensor((m, 5)), tensor((m, 5))]
    target = Target("native").with_options(num_cores=cores)
    compiled = relax.build(graph(op.nn.recurrence, *infos), target)
    for batch in (0, 1, 2, 3, 4, 7, 9):
        arrays = operands("lstm", 3, batch, 5)
        for found, want in zip(compiled(*arrays), by_pytorch("lstm", arrays), strict=True):
            np.testing.assert_allclose(np.asarray(found), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_batches_of_any_size_have_a_kernel(cores: int) -> None:
    n, m = te.var("n"), te.var("m")
    shapes = [(n, m, 80), (20, 80), (80,), (m, 20), (m, 20)]
    given = [te.placeholder(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
    func = te.create_prim_func([*given, *topi.nn.recurrence(*given)])
    target = Target("native").with_options(num_cores=cores)
    made = kernels.ApplyKernels(target=target)(IRModule({"main": func}))["main"]
    assert IS_SCHEDULED in made.attrs
    parallel = [loop for loop in collect(made.body, For) if loop.kind == PARALLEL]
    assert len(parallel) == (cores > 1)


def test_no_steps_leave_the_state() -> None:
    arrays = operands("lstm", 0, 2, 3)
    mod = graph_of(op.nn.recurrence, *arrays)
    check(mod, arrays, [np.zeros((0, 2, 3), "float32"), *arrays[3:]])


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_dtypes(dtype: str) -> None:
    arrays = operands("lstm", 2, 2, 9, dtype)
    found = relax.build(graph_of(op.nn.recurrence, *arrays))(*arrays)
    want = by_pytorch("lstm", [item.astype("float64") for item in arrays])
    for a, b in zip(found, want):
        assert np.asarray(a).dtype == dtype
        np.testing.assert_allclose(np.asarray(a), b, atol=4e-3 if dtype == "float16" else 1e-12)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "znver5"])
def test_the_kernel_means_the_definition(cpu: str) -> None:
    arrays = operands("lstm", 2, 4, 21)
    tensors = [te.placeholder(a.shape, "float32", f"x{n}") for n, a in enumerate(arrays)]
    func = te.create_prim_func([*tensors, *topi.nn.recurrence(*tensors)])
    mod = dlight.default_schedule(Target(f"llvm -mcpu={cpu} -num-cores=2"))(
        IRModule({"main": func})
    )
    assert [rv.name for rv in Schedule(mod).get_child_blocks("root")] == ["recurrence_rows"]
    outs = [np.zeros(shape, "float32") for shape in ((2, 4, 21), (4, 21), (4, 21))]
    run_functions(mod, *arrays, *outs)
    for found, want in zip(outs, by_pytorch("lstm", arrays)):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_refusals() -> None:
    x, weight, bias, state = (tensor(s) for s in ((5, 2, 8), (2, 8), (8,), (2, 2)))
    for body, infos, message in (
        (op.nn.recurrence, [x, weight, bias, state], "lstm needs a memory"),
        (lambda *v: op.nn.recurrence(*v, cell="elman"), [x, weight, bias, state], "one of lstm"),
        (op.nn.recurrence, [x, weight, tensor((9,)), state, state], "gates of bias"),
        (op.nn.recurrence, [x, weight, bias, tensor((3, 2)), state], "batches of x"),
        (op.nn.recurrence, [x, weight, bias, tensor((2, 3)), state], "hidden sizes"),
    ):
        with pytest.raises(VerifyError, match=message):
            graph(body, *infos)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients(cell: str) -> None:
    arrays = operands(cell, 3, 2, 2, "float64")
    mod = graph_of(lambda *x: op.sum(op.nn.recurrence(*x, cell=cell, reverse=True)[0]), *arrays)
    made = relax.transform.Gradient("main")(mod)
    _, found = interpreter.run(IRModule({"main": made["main_adjoint"]}), *arrays)

    def total(*given: Any) -> float:
        return float(by_pytorch(cell, given, reverse=True)[0].sum())

    for number, gradient in enumerate(found):
        at = (0,) * gradient.ndim
        near = []
        for step in (1e-5, -1e-5):
            moved = [item.copy() for item in arrays]
            moved[number][at] += step
            near.append(total(*moved))
        np.testing.assert_allclose(gradient[at], (near[0] - near[1]) / 2e-5, rtol=1e-4, atol=1e-7)


MODULES: dict[str, Any] = {
    "lstm": lambda: torch.nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True),
    "gru": lambda: torch.nn.GRU(4, 3, 2, bidirectional=True),
    "projected": lambda: torch.nn.LSTM(4, 5, proj_size=2, bidirectional=True),
    "relu without biases": lambda: torch.nn.RNN(4, 3, nonlinearity="relu", bias=False),
    "tanh": lambda: torch.nn.RNN(4, 3, batch_first=True),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_pytorch(name: str) -> None:
    torch.manual_seed(0)
    model = MODULES[name]().eval()
    x = torch.randn(3, 2, 4)
    batch = x.shape[0 if model.batch_first else 1]
    shapes = [(model.proj_size or model.hidden_size)]
    if isinstance(model, torch.nn.LSTM):
        shapes.append(model.hidden_size)
    layers = model.num_layers * (2 if model.bidirectional else 1)
    states = [torch.randn(layers, batch, size) for size in shapes]
    args = (x, tuple(states) if len(states) == 2 else states[0])
    with torch.no_grad():
        y, last = model(*args)
        exported = torch.export.export(model, args)
    mod = relax.frontend.torch.from_exported_program(exported)
    found = interpreter.run(mod, x.numpy(), *(state.numpy() for state in states))
    want = [y, *(last if isinstance(last, tuple) else (last,))]
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)
