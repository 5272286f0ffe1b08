"""Training against PyTorch: losses, optimizers, and whole steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, random, tensor
from tilewright import relax, script
from tilewright.ir import IRModule, structural_equal
from tilewright.relax import interpreter, op
from tilewright.relax.training import AppendLoss, SetupTrainer, Trainer, loss, optimizer
from tilewright.runtime import cpu
from tilewright.script import relax as R
from tilewright.support.errors import RunError, VerifyError

torch = pytest.importorskip("torch")
F = torch.nn.functional

LABELS = tensor((6,), "int64")


def mlp() -> IRModule:
    x = relax.Var("x", tensor((6, 4)))
    params = [
        relax.Var(name, tensor(shape))
        for name, shape in (("w1", (4, 8)), ("b1", (8,)), ("w2", (8, 3)))
    ]
    w1, b1, w2 = params
    builder = relax.BlockBuilder()
    with builder.function("backbone", [x, *params]):
        with builder.dataflow():
            hidden = op.tanh(op.matmul(x, w1) + b1)
            out = builder.emit_output(op.matmul(hidden, w2))
        builder.emit_func_output(out)
    return builder.get().with_attr("param_num", 3).with_attr("state_num", 0)


def trainer_of(mod: IRModule, setup: SetupTrainer, zeros: bool = False) -> Trainer:
    made = setup(mod)
    relax.verify_graph(made)
    return Trainer(made, relax.VirtualMachine(relax.build(made), cpu()), cpu(), zeros)


OPTIMIZERS: dict[str, tuple[Any, Any]] = {
    "SGD": (optimizer.SGD(0.1, 0.01), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.01)),
    "MomentumSGD": (
        optimizer.MomentumSGD(0.1, 0.9, 0, 0.01, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01, nesterov=True),
    ),
    "Adam": (
        optimizer.Adam(0.01, (0.8, 0.99), 1e-7, 0.02),
        lambda p: torch.optim.Adam(p, 0.01, (0.8, 0.99), 1e-7, 0.02),
    ),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_a_small_mlp_of_20_steps(name: str) -> None:
    ours, reference = OPTIMIZERS[name]
    setup = SetupTrainer(loss.CrossEntropyLoss(), ours, [tensor((6, 3)), LABELS])
    trainer = trainer_of(mlp(), setup)
    start = [random(4, 8), random(8, seed=1), random(8, 3, seed=2)]
    trainer.load_params(start)
    leaves = [torch.tensor(array, requires_grad=True) for array in start]
    step = reference(leaves)
    x, y = random(6, 4, seed=3), np.array([0, 1, 2, 0, 1, 2])
    images, labels = torch.tensor(x), torch.tensor(y)
    for _ in range(20):
        found = trainer.update(x, [y])
        step.zero_grad()
        expected = F.cross_entropy(torch.tanh(images @ leaves[0] + leaves[1]) @ leaves[2], labels)
        expected.backward()
        step.step()
        np.testing.assert_allclose(np.asarray(found), expected.item(), rtol=1e-4, atol=1e-5)
    for got, leaf in zip(trainer.export_params().values(), leaves):
        np.testing.assert_allclose(np.asarray(got), leaf.detach(), rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        outputs = torch.tanh(images @ leaves[0] + leaves[1]) @ leaves[2]
    np.testing.assert_allclose(np.asarray(trainer.predict(x)), outputs, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(start[0], random(4, 8))  # what was loaded stays


SHAPES = {"w": (4, 2, 3, 3), "gamma": (4,), "beta": (4,), "v": (4, 3), "mean": (4,), "var": (4,)}


def convnet(training: bool) -> IRModule:
    """A convolution with batch norm, pooling and a linear layer; its state are running means."""
    x = relax.Var("x", tensor((2, 2, 6, 6)))
    params = [relax.Var(name, tensor(shape)) for name, shape in SHAPES.items()]
    w, gamma, beta, v, mean, var = params
    builder = relax.BlockBuilder()
    with builder.function("backbone", [x, *params]):
        with builder.dataflow():
            y = builder.emit(op.nn.conv2d(x, w, 1, 1))
            normal = builder.emit(
                op.nn.batch_norm(y, gamma, beta, mean, var, 1, momentum=0.1, training=training)
            )
            image, *statistics = [normal[n] for n in range(3)]
            pooled = op.nn.max_pool2d(op.nn.relu(image), 2, 2)
            rows = op.mean(pooled, (2, 3))
            outputs = [builder.emit_output(op.matmul(rows, v))]
            outputs += [builder.emit_output(item) for item in statistics]
        builder.emit_func_output(relax.Tuple(tuple(outputs)))
    return builder.get().with_attr("param_num", 4).with_attr("state_num", 2)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_convnet_with_running_means(name: str) -> None:
    ours, reference = OPTIMIZERS[name]
    setup = SetupTrainer(loss.MSELoss("sum"), ours, [tensor((2, 3)), tensor((2, 3))])
    trainer = trainer_of(convnet(training=True), setup)
    start = {name: random(*shape, seed=n) for n, (name, shape) in enumerate(SHAPES.items())}
    start["mean"], start["var"] = np.zeros(4, "float32"), np.ones(4, "float32")
    trainer.load_params({name: start[name] for name in ("v", "w", "gamma", "beta")})
    with pytest.raises(RunError, match="state mean has no value: load_states sets it"):
        trainer.update(random(2, 2, 6, 6), random(2, 3))
    trainer.load_states([start["mean"], start["var"]])
    w, gamma, beta, v = leaves = [
        torch.tensor(start[name], requires_grad=True) for name in ("w", "gamma", "beta", "v")
    ]
    step = reference(leaves)
    x, y = random(2, 2, 6, 6, seed=7), random(2, 3, seed=8)
    mean, var = torch.tensor(start["mean"]), torch.tensor(start["var"])
    for _ in range(20):
        found = trainer.update([x], [y])
        step.zero_grad()
        image = F.conv2d(torch.tensor(x), w, None, 1, 1)
        own_var, own_mean = torch.var_mean(image.detach(), (0, 2, 3), correction=0)
        mean, var = mean * 0.9 + own_mean * 0.1, var * 0.9 + own_var * 0.1
        image = F.batch_norm(image, None, None, gamma, beta, training=True)
        rows = F.max_pool2d(image.relu(), 2, 2).mean((2, 3)) @ v
        expected = F.mse_loss(rows, torch.tensor(y), reduction="sum")
        expected.backward()
        step.step()
        np.testing.assert_allclose(np.asarray(found), expected.item(), rtol=1e-4, atol=1e-5)
    for got, wanted in zip(trainer.export_states().values(), (mean, var)):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4, atol=1e-5)


LOSSES: dict[str, tuple[Any, Any, Any]] = {
    "l1": (loss.L1Loss, F.l1_loss, random(3, 4, seed=1)),
    "mse": (loss.MSELoss, F.mse_loss, random(3, 4, seed=1)),
    "cross entropy": (loss.CrossEntropyLoss, F.cross_entropy, np.array([0, 3, 1])),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_losses(name: str, reduction: str) -> None:
    ours, reference, targets = LOSSES[name]
    x = random(3, 4)
    function = ours(reduction)(tensor((3, 4)), tensor(targets.shape, targets.dtype.name))
    found = interpreter.run(function, x, targets)
    expected = reference(torch.tensor(x), torch.tensor(targets), reduction=reduction)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (3, 4, 2)])
def test_categorical_cross_entropy(shape: tuple[int, ...]) -> None:
    x, weights = random(*shape), np.abs(random(4, seed=1)) + 1
    axis = 0 if len(shape) == 1 else 1
    rest = tuple(n for a, n in enumerate(shape) if a != axis)
    at = np.random.default_rng(0).integers(0, 4, rest)
    one_hot = np.moveaxis(np.eye(4, dtype="float32")[at], -1, axis)
    plain = loss.CategoricalCrossEntropyLoss()(tensor(shape), tensor(shape))
    expected = F.cross_entropy(torch.tensor(x), torch.tensor(at))
    np.testing.assert_allclose(interpreter.run(plain, x, one_hot), expected, rtol=1e-5)
    weighted = loss.CategoricalCrossEntropyLoss("sum", 1)(
        tensor(shape), tensor(shape), tensor((4,))
    )
    expected = F.cross_entropy(
        torch.tensor(x), torch.tensor(at), torch.tensor(weights), reduction="sum", ignore_index=1
    )
    found = interpreter.run(weighted, x, one_hot, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_append_loss_keeps_further_results() -> None:
    mod = graph(lambda x, w: op.split(op.matmul(x, w), 2, 1), tensor((3, 4)), tensor((4, 4)))
    made = relax.BlockBuilder(mod)
    x = relax.Var("x", tensor((3, 4)))
    with made.function("backbone", [x]):
        first, second = made.emit(op.exp(x)), made.emit(op.sum(x))
        made.emit_func_output(relax.Tuple((first, second)))
    function = loss.L1Loss()(tensor((3, 4)), relax.Var("targets", tensor((3, 4))))
    joined = AppendLoss("backbone", function)(made.get())
    relax.verify_graph(joined)
    assert [param.name for param in joined["backbone_loss"].params] == ["x", "targets"]
    a, b = random(3, 4), random(3, 4, seed=1)
    found = interpreter.run(joined, a, b, name="backbone_loss")
    np.testing.assert_allclose(found[0], np.abs(np.exp(a) - b).mean(), rtol=1e-5)
    np.testing.assert_allclose(found[1], a.sum(), rtol=1e-4)


def test_what_setup_makes_prints_and_parses() -> None:
    setup = SetupTrainer(
        loss.MSELoss(), optimizer.Adam(0.1), [tensor((6, 3)), tensor((6, 3))], False
    )
    made = setup(mlp())
    parsed = script.parse(made.script(), {"metadata": R.metadata_of(made)})
    assert structural_equal(parsed, made)


def test_functions_that_take_tuples() -> None:
    pair = relax.TupleStructInfo((tensor((3,)), relax.TupleStructInfo((tensor((3,)),))))
    p, x = relax.Var("p", pair), relax.Var("p_0", tensor((3,)))
    builder = relax.BlockBuilder()
    with builder.function("main", [p, x]):
        inner = builder.emit(p[1])
        total = builder.emit(builder.emit(p[0]) + builder.emit(inner[0]) + x)
        builder.emit_func_output(relax.Tuple((total, p)))
    mod = builder.get()
    run = relax.build(mod)["main"]
    a, b, c = random(3), random(3, seed=1), random(3, seed=2)
    for found in (run((a, [b]), c), run(p=(a, (b,)), p_0=c), interpreter.run(mod, (a, (b,)), c)):
        np.testing.assert_allclose(np.asarray(found[0]), a + b + c, rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(found[1][1][0]), b)
    for wrong in ((a,), (a, b, c), (a, (b, b)), a, 3):
        with pytest.raises(RunError, match=r"main: argument 'p.*' is a tuple of . items, got"):
            run(wrong, c)


def test_refusals() -> None:
    w, i = relax.Var("w", tensor((2,))), relax.Var("i", tensor((2,), "int64"))
    half = relax.Var("h", tensor((2,), "float16"))
    mod = mlp()
    setup = SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [tensor((6, 3)), tensor((6, 3))])
    cases: list[tuple[Any, str]] = [
        (lambda: optimizer.SGD(0.1).get_function(), r"call SGD.init\(params\) first"),
        (lambda: optimizer.SGD(0.1).init([]), "at least one parameter"),
        (lambda: optimizer.SGD(0.1).init([w, w]), "a parameter twice"),
        (lambda: optimizer.Adam(0.1).init([w, i]), "i is Tensor"),
        (lambda: optimizer.Adam(0.1).init([w, half]), "w is float32, h is float16"),
        (lambda: optimizer.Adam(0.1, (0.9, 1.0)), "betas must be at least 0.0 and less than 1.0"),
        (lambda: optimizer.SGD(float("nan")), "lr must be at least 0"),
        (lambda: loss.MSELoss("most"), "reduction must be mean, sum, none"),
        (lambda: loss.MSELoss()(w, 3), "predictions targets".split()[1]),
        (lambda: setup(mod.with_attr("param_num", None)), "needs the attribute 'param_num'"),
        (lambda: setup(mod.with_attr("param_num", 5)), "has 4 parameters, but param_num is 5"),
        (lambda: setup(IRModule({}, dict(mod.attrs))), "no graph function 'backbone' to train"),
        (
            lambda: SetupTrainer(
                loss.MSELoss(), optimizer.SGD(0.1), [tensor((6, 4)), tensor((6, 4))]
            )(mod),
            r"result 0 of backbone is Tensor\(\(6, 3\), float32\), the loss takes predictions",
        ),
        (lambda: Trainer(mod, None, cpu()), "Trainer takes the module that SetupTrainer made"),
    ]
    for call, message in cases:
        with pytest.raises(VerifyError, match=message):
            call()


def test_parameters_are_checked() -> None:
    setup = SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [tensor((6, 3)), tensor((6, 3))])
    trainer = trainer_of(mlp(), setup, zeros=True)
    assert not np.asarray(trainer.predict(random(6, 4))).any()
    trainer.xaiver_uniform_init_params()
    drawn = trainer.export_params()
    assert 0 < np.abs(np.asarray(drawn["w1"])).max() <= np.sqrt(6 / 12)
    assert not np.asarray(drawn["b1"]).any()
    trainer.zero_init_params()
    trainer.zero_init_states()
    assert not np.asarray(trainer.export_params()["w1"]).any()
    names = Trainer.BACKBONE_FUNC, Trainer.BACKBONE_LOSS_FUNC
    names += Trainer.ADJOINT_FUNC, Trainer.OPTIMIZER_FUNC
    made = setup(mlp())
    assert {var.name_hint for var in made.functions} >= set(names)
    cases: list[tuple[Any, str]] = [
        ([random(4, 8)], "there are 3 parameters .w1, b1, w2., got 1"),
        ({"w3": random(4, 8)}, "no parameter 'w3'; known: b1, w1, w2"),
        ({"w1": random(8, 4)}, r"parameter w1 is float32\[4, 8\], got float32\[8, 4\]"),
        ({"b1": np.zeros(8)}, r"parameter b1 is float32\[8\], got float64\[8\]"),
    ]
    for given, message in cases:
        with pytest.raises(RunError, match=message):
            trainer.load_params(given)
    with pytest.raises(RunError, match="takes 1 inputs, got 2"):
        trainer.predict(random(6, 4), random(6, 4))
