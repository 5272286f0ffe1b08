"""Programs that import models of PyTorch in all the ways that TVM has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relax
from tilewright.support.errors import BuildError, ImportModelError

torch = pytest.importorskip("torch")

from tilewright.relax.frontend.torch import (  # noqa: E402
    dynamo_capture_subgraphs,
    from_exported_program,
    from_fx,
    relax_dynamo,
)

nn = torch.nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(4, 5)
        self.register_buffer("scale", torch.rand(4, 1, 1))

    def forward(self, x: Any, y: Any) -> Any:
        z = self.drop(torch.relu(self.norm(self.conv(x)))) * self.scale
        z += y.sum()
        return self.last(z.mean(dim=(2, 3)))


INFO = [((2, 3, 8, 8), "float32"), ((5,), "torch.float32")]


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    made = Net()
    with torch.no_grad():
        made.norm.running_mean += torch.rand(4)
        made.norm.running_var += torch.rand(4)
    return made


def inputs() -> tuple[Any, Any]:
    return torch.randn(2, 3, 8, 8), torch.randn(5)


def run(mod: tvm.IRModule, *arrays: Any, name: str = "main") -> Any:
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    return machine[name](*[tvm.runtime.tensor(np.asarray(array)) for array in arrays])


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keep", [False, True])
def test_traced_graphs(net: Any, keep: bool) -> None:
    graph, given = torch.fx.symbolic_trace(net), inputs()
    with torch.no_grad():
        mod = from_fx(graph, INFO, keep_params_as_input=keep)
    values: list[Any] = []
    if keep:
        mod, params = relax.frontend.detach_params(mod)
        values = [p.numpy() for p in params["main"]]
    names = [param.name_hint for param in mod["main"].params]
    assert names[:2] == ["inp_0", "inp_1"]
    assert len(names) == 2 + (9 if keep else 0)
    assert net.training and net.drop.training and graph.training
    close(run(mod, *given, *values), net.eval()(*given))


class Results(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a + b, (a * b, [a - b]), {"c": a / b}


@pytest.mark.parametrize("bound", [False, True])
def test_results_keep_their_nesting(bound: bool) -> None:
    info = [([4], "float32"), ([4], torch.float32)]
    mod = from_fx(torch.fx.symbolic_trace(Results()), info, no_bind_return_tuple=not bound)
    assert ("return outputs" in mod["main"].script()) is bound
    first, (second, (third,)), (fourth,) = run(mod, np.full(4, 6, "f"), np.full(4, 3, "f"))
    assert [item.numpy()[0] for item in (first, second, third, fourth)] == [9, 18, 3, 2]


class One(nn.Module):
    def __init__(self, form: type) -> None:
        super().__init__()
        self.form = form

    def forward(self, a: Any) -> Any:
        return torch.exp(a) if self.form is torch.Tensor else self.form([torch.exp(a)])


@pytest.mark.parametrize("form", [torch.Tensor, tuple, list])
@pytest.mark.parametrize("unwrap", [False, True])
@pytest.mark.parametrize("bound", [False, True])
def test_a_single_result_is_a_tensor_or_a_tuple(form: type, unwrap: bool, bound: bool) -> None:
    options = {"unwrap_unit_return_tuple": unwrap, "no_bind_return_tuple": not bound}
    model = One(form)
    x, graph = np.zeros(3, "float32"), torch.fx.symbolic_trace(model)
    traced = run(from_fx(graph, [((3,), "float32")], **options), x)
    program = torch.export.export(model, (torch.zeros(3),))
    exported = run(from_exported_program(program, **options), x)
    # An exported program returns a tuple always; a traced graph what the model does.
    assert isinstance(exported, tuple) is not unwrap
    assert isinstance(traced, tuple) is (form is not torch.Tensor and not unwrap)


def test_extents_of_traced_graphs_may_be_variables() -> None:
    n, m = tvm.tir.Var("n", "int64"), tvm.tir.Var("m", "int64")

    class Product(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return (a @ b).relu()

    info = [((n, 3, m), "float32"), ((n, m, 3), "float32")]
    mod = from_fx(torch.fx.symbolic_trace(Product()), info)
    for rows, width in ((1, 1), (2, 5), (0, 3), (4, 4)):
        a, b = torch.randn(rows, 3, width), torch.randn(rows, width, 3)
        close(run(mod, a, b), (a @ b).relu())
    with pytest.raises(Exception, match="n"):
        run(mod, np.ones((2, 3, 4), "f"), np.ones((3, 4, 3), "f"))


@pytest.mark.parametrize("key", ["silu", "silu.default", "aten.silu.default"])
def test_converters_of_ones_own_by_name(key: str) -> None:
    seen = []

    def convert(node: Any, importer: Any) -> relax.Var:
        seen.append(node)
        (x,) = importer.retrieve_args(node)
        return importer.block_builder.emit(relax.op.sigmoid(x))

    x = torch.randn(4)
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.SiLU(), nn.ReLU()))
    mod = from_fx(graph, [((4,), "float32")], custom_convert_map={key: convert})
    close(run(mod, x), torch.sigmoid(x).relu())
    program = torch.export.export(nn.SiLU(), (x,))
    mod = from_exported_program(
        program, custom_convert_map={key: convert}, unwrap_unit_return_tuple=True
    )
    close(run(mod, x), torch.sigmoid(x))
    assert len(seen) == 2


def test_graphs_that_are_refused(net: Any) -> None:
    graph = torch.fx.symbolic_trace(net)
    with pytest.raises(ImportModelError, match="symbolic_trace"):
        from_fx(net, INFO)
    with pytest.raises(ImportModelError, match="1 inputs, the model takes 2: x, y"):
        from_fx(graph, INFO[:1])
    with pytest.raises(ImportModelError, match="'float31' is no dtype"):
        from_fx(graph, [INFO[0], ((5,), "float31")])
    with pytest.raises(ImportModelError, match="no name of an operator"):
        from_fx(graph, INFO, custom_convert_map={nn.ReLU: None})  # type: ignore[dict-item]
    n = tvm.tir.Var("n", "int64")
    with pytest.raises(ImportModelError, match="must be a number, not negative, or a variable"):
        from_fx(graph, [INFO[0], ((n + 1,), "float32")])

    class Writes(nn.Module):
        def forward(self, a: Any) -> Any:
            return a.add_(1) * 2

    with pytest.raises(ImportModelError, match="writes into its inputs"):
        from_fx(torch.fx.symbolic_trace(Writes()), [((3,), "float32")])


@pytest.mark.parametrize("pipeline", [None, "zero", relax.get_pipeline("zero")])
def test_a_backend_of_torch_compile(net: Any, pipeline: Any) -> None:
    given = inputs()
    compiled = torch.compile(net.eval(), backend=relax_dynamo(pipeline))
    torch.testing.assert_close(compiled(*given), net(*given), rtol=1e-4, atol=1e-5)


def test_the_pipeline_of_a_backend_sees_each_graph() -> None:
    seen: list[str] = []

    @tvm.transform.module_pass(opt_level=0, name="Watch")
    class Watch:
        def transform_module(self, mod: Any, ctx: Any) -> Any:
            seen.append(mod.script())
            return mod

    def model(x: Any, w: Any) -> Any:
        return torch.nn.functional.silu(x) @ w

    compiled = torch.compile(model, backend=relax_dynamo(Watch()))
    x, w = torch.randn(5, 6), torch.randn(6, 7, requires_grad=True)
    out = compiled(x, w)
    torch.testing.assert_close(out, model(x, w))
    out.sum().backward()  # gradients are compiled, too
    torch.testing.assert_close(w.grad, torch.nn.functional.silu(x).sum(0)[:, None].expand(6, 7))
    assert len(seen) == 2 and all("R.matmul" in text for text in seen)


def test_pipelines_that_are_none() -> None:
    with pytest.raises(tvm.TilewrightError, match="pipeline"):
        relax_dynamo("no such pipeline")
    with pytest.raises(BuildError, match="a pass or a name"):
        relax_dynamo(3)  # type: ignore[arg-type]


class TwoParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("shift", torch.rand(4))

    def forward(self, x: Any, *, more: Any) -> Any:
        x = self.layer(x) + self.shift
        return x + more if x.sum() > 0 else x - more


@pytest.mark.parametrize("keep", [False, True])
def test_graphs_of_torch_compile_are_captured(keep: bool) -> None:
    torch.manual_seed(1)
    model, x, more = TwoParts().eval(), torch.randn(2, 4), torch.randn(2, 4)
    mod = dynamo_capture_subgraphs(model, x, more=more, keep_params_as_input=keep)
    assert [gv.name_hint for gv in mod.get_global_vars()] == ["subgraph_0", "subgraph_1"]
    values: list[Any] = []
    if keep:
        mod, params = relax.frontend.detach_params(mod)
        values = [p.numpy() for p in params["subgraph_0"]]
        assert len(values) == 3
    results = run(mod, x, *values, name="subgraph_0")
    (layer,) = [item for item in results if item.shape]
    close(layer, model.layer(x) + model.shift)
    a, b = np.full((2, 4), 3, "f"), np.full((2, 4), 2, "f")
    places = [param.name_hint for param in mod["subgraph_1"].params]
    assert len(places) == 2
    assert set(run(mod, a, b, name="subgraph_1").numpy().ravel()) <= {5, 1, -1}


def test_functions_are_captured_too() -> None:
    mod = dynamo_capture_subgraphs(lambda x: torch.sin(x) + 1, torch.zeros(3))
    np.testing.assert_array_equal(run(mod, np.zeros(3, "f"), name="subgraph_0").numpy(), 1)


def test_graphs_of_symbolic_sizes_are_not_captured() -> None:
    x = torch.zeros(3, 4)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(ImportModelError, match="only graphs of tensors of known sizes"):
        dynamo_capture_subgraphs(lambda x: torch.sin(x) + 1, x)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ((-1, 3), "extent 0 of input 0 is -1: it must be a number, not negative"),
        ((2, "n"), "extent 1 of input 0 is 'n'"),
    ],
)
def test_extents_of_inputs_are_sizes(info: tuple[object, ...], message: str) -> None:
    graph = torch.fx.symbolic_trace(torch.nn.Identity())
    with pytest.raises(ImportModelError, match=message):
        from_fx(graph, [(info, "float32")])


@pytest.mark.parametrize("info", [3, (3, "float32"), ((3,),), ((3,), "float32", 1)])
def test_inputs_are_shapes_with_dtypes(info: object) -> None:
    graph = torch.fx.symbolic_trace(torch.nn.Identity())
    with pytest.raises(ImportModelError, match=r"input 0 is .*: it must be a shape and a dtype"):
        from_fx(graph, [info])


def test_a_size_that_is_an_input_of_a_graph_is_refused() -> None:
    def scaled(x: Any) -> Any:
        return x.sum() * x.shape[0]

    x = torch.ones(4)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(ImportModelError, match="only graphs of tensors of known sizes"):
        dynamo_capture_subgraphs(scaled, x)
