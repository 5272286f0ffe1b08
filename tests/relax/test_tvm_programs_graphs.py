"""Programs on graphs as TVM's users write them, of its newest version and of the one before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import IRModule, relax, topi
from tilewright.relax.backend import get_pattern, get_patterns_with_prefix
from tilewright.relax.backend.pattern_registry import register_patterns
from tilewright.relax.dpl import is_op, wildcard
from tilewright.relax.frontend import nn
from tilewright.s_tir import dlight as dl
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tirx as T
from tilewright.support.errors import VerifyError


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(24, 16)
        self.relu = nn.ReLU()
        self.second = nn.Linear(16, 5, bias=False)

    def forward(self, x: Any) -> Any:
        return self.second(self.relu(self.first(x)))


def exported(rows: int | str = 1) -> tuple[IRModule, list[Any]]:
    mod, params = Perceptron().export_tvm({"forward": {"x": nn.spec.Tensor((rows, 24), "float32")}})
    return mod, params


def draw(params: list[Any], rows: int = 1) -> tuple[Any, list[Any], Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 24)).astype("float32")
    arrays = [rng.standard_normal(p.shape).astype(p.dtype) for _, p in params]
    w0, b0, w1 = arrays
    return x, arrays, np.maximum(x @ w0.T + b0, 0) @ w1.T


@pytest.mark.parametrize("make", [tvm.nd.array, tvm.runtime.tensor])
def test_a_module_of_layers_runs_in_the_virtual_machine(make: Any) -> None:
    mod, params = exported()
    x, arrays, expected = draw(params)
    machine = relax.VirtualMachine(
        relax.build(relax.get_pipeline("zero")(mod), tvm.target.Target("llvm")), tvm.cpu()
    )
    got = machine["forward"](make(x, tvm.cpu()), *[make(a, tvm.cpu()) for a in arrays])
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_passes_one_after_another_keep_the_meaning() -> None:
    mod, params = exported("n")
    made = tvm.relax.transform.LegalizeOps()(mod)
    made = tvm.ir.transform.Sequential(
        [
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
        ]
    )(made)
    assert "fused_matmul_add_relu" in made
    x, arrays, expected = draw(params, 3)
    machine = relax.VirtualMachine(tvm.compile(made, target="llvm"), tvm.cpu())
    np.testing.assert_allclose(
        machine["forward"](tvm.runtime.tensor(x), *arrays).numpy(), expected, rtol=1e-4, atol=1e-4
    )


X, W, B = wildcard(), wildcard(), wildcard()
DENSE = is_op("relax.nn.relu")(
    is_op("relax.add")(is_op("relax.matmul")(X, is_op("relax.permute_dims")(W)), B)
)


def test_patterns_are_registered_and_found_by_name() -> None:
    single = is_op("relax.nn.relu")(wildcard())
    register_patterns([("test_lib.relu", single), ("test_lib.dense", DENSE, {"x": X, "w": W})])
    found = [item.name for item in get_patterns_with_prefix("test_lib")]
    assert found == ["test_lib.dense", "test_lib.relu"], "later ones have higher priority"
    register_patterns([relax.transform.FusionPattern("test_lib.relu", single)])
    assert get_patterns_with_prefix("test_lib")[0].name == "test_lib.relu"
    assert get_pattern("test_lib.none") is None
    assert relax.backend.get_pattern("test_lib.dense").pattern is DENSE
    with pytest.raises(VerifyError, match="FusionPattern"):
        register_patterns([single])


def test_a_code_generator_of_ones_own_gets_what_patterns_match() -> None:
    taken = []

    def generate(functions: Any, options: Any, names: Any) -> Any:
        taken.extend(functions)
        raise NotImplementedError("only looks")

    tvm.register_func("relax.ext.test_only_looks", generate, override=True)
    register_patterns([("test_only_looks.dense", DENSE, {"x": X, "w": W, "b": B})])
    patterns = [relax.backend.get_pattern("test_only_looks.dense")]
    mod = relax.transform.FuseOpsByPattern(patterns, annotate_codegen=True)(exported()[0])
    assert any("Codegen" in func.attrs for func in mod.functions.values())
    with pytest.raises(NotImplementedError):
        relax.transform.RunCodegen()(mod)
    assert len(taken) == 1


@pytest.mark.parametrize(
    "module",
    ["rpc", "relax.frontend.tflite", "relax.backend.cuda", "relax.backend.contrib", "contrib.cc",
     "contrib.tar"],
)  # fmt: skip
def test_what_is_not_here_says_what_is(module: str) -> None:
    with pytest.raises(ImportError, match=f"there is no tilewright.{module}: .{{20}}"):
        __import__(f"tilewright.{module}")


@T.prim_func(s_tir=True)
def linear(x: T.handle, w: T.handle, b: T.handle, z: T.handle):
    M = T.int64()
    N = T.int64()
    K = T.int64()
    X = T.match_buffer(x, (M, K), "float32")
    W = T.match_buffer(w, (N, K), "float32")
    B = T.match_buffer(b, (N,), "float32")
    Z = T.match_buffer(z, (M, N), "float32")
    for i, j, k in T.grid(M, N, K):
        with T.sblock("linear"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Z[vi, vj] = 0
            Z[vi, vj] = Z[vi, vj] + X[vi, vk] * W[vj, vk]
    for i, j in T.grid(M, N):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = Z[vi, vj] + B[vj]


class OfAllLevels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.second = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        rows = x.shape[0]
        x = nn.extern(
            "test.env_linear",
            [x, self.first.weight, self.first.bias],
            out=nn.Tensor.placeholder((rows, 4), "float32"),
        )
        x = nn.tensor_expr_op(topi.nn.relu, "relu", [x])
        return nn.tensor_ir_op(
            linear,
            "linear",
            [x, self.second.weight, self.second.bias],
            out=nn.Tensor.placeholder((rows, 3), "float32"),
        )


def by_builder() -> IRModule:
    builder = relax.BlockBuilder()
    n = T.int64()
    x = relax.Var("x", R.Tensor((n, 6), "float32"))
    weights = [
        relax.Var(name, R.Tensor(shape, "float32"))
        for name, shape in (("w0", (4, 6)), ("b0", (4,)), ("w1", (3, 4)), ("b1", (3,)))
    ]
    with builder.function("forward", [x, *weights]):
        with builder.dataflow():
            hidden = builder.emit(
                relax.call_dps_packed(
                    "test.env_linear",
                    [x, *weights[:2]],
                    out_ty=relax.TensorType((n, 4), "float32"),
                )
            )
            hidden = builder.emit_te(topi.nn.relu, hidden)
            callee = builder.add_func(linear, "linear")
            result = builder.emit(
                relax.call_tir(
                    callee, [hidden, *weights[2:]], out_ty=relax.TensorType((n, 3), "float32")
                )
            )
            builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("way", ["layers", "builder"])
def test_graphs_call_external_functions_te_and_tensor_functions(way: str) -> None:
    @tvm.register_global_func("test.env_linear", override=True)
    def env_linear(x: Any, w: Any, b: Any, out: Any) -> None:
        out[:] = x.numpy() @ w.numpy().T + b.numpy()

    spec = {"forward": {"x": nn.spec.Tensor(("n", 6), "float32")}}
    mod = OfAllLevels().export_tvm(spec)[0] if way == "layers" else by_builder()
    rng = np.random.default_rng(1)
    x, w0, b0, w1, b1 = (
        rng.standard_normal(s).astype("float32") for s in ((2, 6), (4, 6), (4,), (3, 4), (3,))
    )
    got = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())["forward"](
        *map(tvm.runtime.tensor, (x, w0, b0, w1, b1))
    )
    np.testing.assert_allclose(
        got.numpy(), np.maximum(x @ w0.T + b0, 0) @ w1.T + b1, rtol=1e-4, atol=1e-4
    )


def test_rules_for_a_gpu_are_asked_one_by_one() -> None:
    target = tvm.target.Target("nvidia/nvidia-a100")
    with target:
        mod = relax.get_pipeline("zero")(exported()[0])
    by_rule = {}
    for rule in (dl.gpu.Matmul(), dl.gpu.GEMV(), dl.gpu.Reduction(), dl.gpu.GeneralReduction()):
        with target:
            made = dl.ApplyDefaultSchedule(rule)(mod)
        for var, func in made.functions_items():
            if isinstance(func, tvm.tirx.Function) and "tirx.is_scheduled" in func.attrs:
                assert func.attrs["tirx.is_scheduled"] == func.attrs["tir.is_scheduled"] == 1
                by_rule.setdefault(var.name_hint, type(rule).__name__)
    assert "GEMV" in by_rule.values()
    with target:
        full = dl.ApplyDefaultSchedule(dl.gpu.Matmul(), dl.gpu.GEMV(), dl.gpu.Fallback())(mod)
    assert "threadIdx.x" in full.script()
    assert isinstance(tvm.compile(full, target=target), relax.VMExecutable)


def test_attributes_of_newer_names_are_those_of_older_ones() -> None:
    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((4,), "float32")):
            T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": 1})
            for i in range(4):
                A[i] = A[i] + T.float32(1)

    attrs = Module["main"].attrs
    assert attrs["tir.is_scheduled"] == 1 and attrs.get("tirx.is_scheduled") == 1
    assert "tirx.noalias" in attrs and "tirx.other" not in attrs
    assert "tir.noalias" not in Module["main"].without_attr("tirx.noalias").attrs
    assert not IRModule({}, {"tirx.a": 1}).without_attr("tirx.a").attrs
    with pytest.raises(KeyError, match=r"^'tirx.other'"):
        attrs["tirx.other"]
    with tvm.target.Target("llvm"):
        assert dl.ApplyDefaultSchedule(dl.cpu.GEMV())(Module)["main"] is Module["main"]


def test_modules_and_functions_are_printed_as_script(capsys: pytest.CaptureFixture[str]) -> None:
    mod, _ = exported()
    graph = mod["forward"]
    kernels = relax.transform.LegalizeOps()(mod)
    kernel = kernels["relu"]
    for item in (mod, graph, kernels, kernel):
        print(item)
        assert capsys.readouterr().out == item.script() + "\n"
        assert f"{item}" == item.script() and "\n" not in repr(item)
