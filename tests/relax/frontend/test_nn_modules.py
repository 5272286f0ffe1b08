"""``nn`` modules and operators that TVM has: values, containers, subroutines, other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import random
from tilewright import relax, te
from tilewright.relax.frontend import nn
from tilewright.relax.frontend.nn import op, spec
from tilewright.script import tir as T
from tilewright.support.errors import VerifyError

torch = pytest.importorskip("torch")
functional = torch.nn.functional


class Calling(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def forward(self, **tensors: Any) -> Any:
        return self.function(*tensors.values())


def run(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    described = {f"x{n}": spec.Tensor(a.shape, a.dtype.name) for n, a in enumerate(arrays)}
    mod, _ = Calling(function).export_tvm({"forward": described})
    return relax.interpreter.run(mod, *arrays, name="forward")


IMAGE, LINE, VOLUME = random(1, 4, 5, 5), random(1, 4, 6), random(1, 4, 3, 3, 3)
ROW = random(1, 2, 3, 3)
SCALE, SHIFT = random(4, seed=1), random(4, seed=2)
PROB = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]], "float32")
SORTED = -np.sort(-PROB, axis=1)
ORDER = np.argsort(-PROB, axis=1, kind="stable")


def column(*numbers: float, dtype: str = "float32") -> np.ndarray:
    return np.array(numbers, dtype).reshape(-1, 1)


def of_torch(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    return np.asarray(function(*map(torch.from_numpy, arrays)))


def last(x: np.ndarray) -> np.ndarray:
    """Channels at the end."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], Any]] = {
    "group_norm": (
        lambda x, w, b: op.group_norm(x, 2, w, b, 1e-3),
        (IMAGE, SCALE, SHIFT),
        of_torch(lambda x, w, b: functional.group_norm(x, 2, w, b, 1e-3), IMAGE, SCALE, SHIFT),
    ),
    "group_norm, channels last": (
        lambda x: op.group_norm(x, 2, None, None, channel_axis=-1),
        (last(IMAGE),),
        last(of_torch(lambda x: functional.group_norm(x, 2), IMAGE)),
    ),
    "conv2d NHWC same": (
        lambda x, w, b: op.conv2d(x, w, b, padding="same", data_layout="NHWC"),
        (last(IMAGE), random(4, 4, 3, 3), SHIFT),
        last(of_torch(
            lambda x, w, b: functional.conv2d(x, w, b, padding="same"),
            IMAGE, random(4, 4, 3, 3), SHIFT,
        )),
    ),
    "conv3d NDHWC": (
        lambda x, w, b: op.conv3d(x, w, b, data_layout="NDHWC"),
        (last(VOLUME), random(4, 4, 2, 2, 2), SHIFT),
        last(of_torch(functional.conv3d, VOLUME, random(4, 4, 2, 2, 2), SHIFT)),
    ),
    "bilinear": (
        lambda x: op.interpolate(x, (7, 4), mode="bilinear"),
        (IMAGE,),
        of_torch(lambda x: functional.interpolate(x, (7, 4), mode="bilinear"), IMAGE),
    ),
    "nearest, to a size": (
        lambda x: op.interpolate(x, (3, 5)), (ROW,), ROW[..., [0, 1, 1, 2, 2]]
    ),
    "nearest, by a factor": (
        lambda x: op.interpolate(x, scale_factor=(1, 2), data_layout="NHWC"),
        (last(ROW),),
        last(ROW[..., [0, 0, 1, 2, 2, 2]]),
    ),
    "bilinear, corners": (
        lambda x: op.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True),
        (IMAGE,),
        of_torch(
            lambda x: functional.interpolate(x, (10, 10), mode="bilinear", align_corners=True),
            IMAGE,
        ),
    ),
    "pad reflect": (
        lambda x: op.pad(x, [0, 0, 2, 1], "reflect"),
        (PROB,),
        np.pad(PROB, [(0, 0), (2, 1)], mode="reflect"),
    ),
    "pad replicate": (
        lambda x: op.pad(x, [1, 0, 2, 3], "replicate"),
        (PROB,),
        np.pad(PROB, [(1, 0), (2, 3)], mode="edge"),
    ),
    "pad circular": (
        lambda x: op.pad(x, [1, 2, 4, 1], "circular"),
        (PROB,),
        np.pad(PROB, [(1, 2), (4, 1)], mode="wrap"),
    ),
    "time steps": (
        lambda t: op.get_timestep_embedding(t, 5, True, 1, 2.0, 100),
        (np.array([1.0, 2.0], "float32"),),
        np.array(
            [[np.cos(2 * t), np.cos(0.02 * t), np.sin(2 * t), np.sin(0.02 * t), 0] for t in (1, 2)]
        ).astype("float32"),
    ),
    "full of a tensor": (
        lambda x: op.full((2, 3), op.max(x), "float16"),
        (PROB,),
        np.full((2, 3), np.float16(np.float32(0.4))),
    ),
    "where of numbers": (
        lambda x: nn.where(x > 0.25, x, 0.0), (PROB,), np.where(PROB > 0.25, PROB, 0)
    ),
    "maximum": (lambda x: (x.maximum(0.2)).minimum(0.3), (PROB,), np.clip(PROB, 0.2, 0.3)),
    "comparison": (lambda x: x <= 0.2, (PROB,), np.float32(0.2) >= PROB),
    "reshape with -1": (lambda x: op.reshape(x, (4, -1)), (PROB,), PROB.reshape(4, 2)),
    "triu": (lambda x: op.triu(x, diagonal=1, name="upper"), (PROB,), np.triu(PROB, 1)),
    "tensor_expr_op": (
        lambda x: op.tensor_expr_op(
            lambda a, k: te.compute(a.shape, lambda i, j: a[i, j] * k), "scaled", [x, 3]
        ),
        (PROB,),
        PROB * 3,
    ),
    "top p": (
        op.sample_top_p_top_k_from_sorted_prob,
        (SORTED, ORDER, column(0.5, 0.5), column(4, 4, dtype="int64"), column(0.5, 0.9)),
        np.array([[3], [1]]),
    ),
    "top k of rows": (
        op.sample_top_p_top_k_from_sorted_prob,
        (SORTED, ORDER, column(1, 1), column(1, 2, dtype="int64"), column(0.9, 0.9, 0.1),
         column(0, 1, 1, dtype="int64")),
        np.array([[3], [1], [0]]),
    ),
    "renormalize": (
        op.renormalize_top_p_top_k_prob,
        (PROB, SORTED, column(0.5, 1.0), column(4, 1, dtype="int64")),
        np.array([[0, 0, 3 / 7, 4 / 7], [1, 0, 0, 0]], "float32"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    function, arrays, expected = CASES[name]
    found = run(function, *arrays)
    assert found.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: op.interpolate(x, 3, mode="area"), "mode must be one of"),
        (lambda x: op.interpolate(x), "size or scale_factor"),
        (lambda x: op.pad(x, [0] * 7 + [5], "reflect"), "axis 3 has 5 elements"),
        (lambda x: op.pad(x, [0] * 8, "edge"), "mode must be constant"),
        (lambda x: op.conv2d(x, x, padding="half"), "padding must be"),
        (lambda x: op.group_norm(x, 3, None, None), "do not divide into 3 groups"),
        (lambda x: op.gelu(x, "erf"), "approximate must be"),
        (lambda x: op.conv2d(x, x, data_layout="CHWN"), "data_layout must be"),
    ],
)
def test_refusals(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(make, IMAGE)


def test_layers_of_volumes_and_back() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.conv = nn.Conv3D(4, 2, 2, padding=1)
            self.back = nn.ConvTranspose1D(4, 6, 3, stride=2, groups=2)
            self.norm = nn.GroupNorm(2, 4)

        def forward(self, v: nn.Tensor, x: nn.Tensor) -> Any:
            return self.conv(v), self.back(self.norm(x))

    described = {"v": spec.Tensor(VOLUME.shape, "float32"), "x": spec.Tensor(LINE.shape, "float32")}
    mod, params = Model().export_tvm({"forward": described})
    w = {name: random(*p.shape, seed=i) for i, (name, p) in enumerate(params)}
    first, second = relax.interpreter.run(mod, VOLUME, LINE, *w.values(), name="forward")
    t = {name: torch.from_numpy(array) for name, array in w.items()}
    volume, line = torch.from_numpy(VOLUME), torch.from_numpy(LINE)
    expected = functional.conv3d(volume, t["conv.weight"], t["conv.bias"], padding=1)
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-4)
    normal = functional.group_norm(line, 2, t["norm.weight"], t["norm.bias"])
    expected = functional.conv_transpose1d(
        normal, t["back.weight"], t["back.bias"], stride=2, groups=2
    )
    np.testing.assert_allclose(second, expected, rtol=1e-4, atol=1e-4)


class Parts(nn.Module):
    def __init__(self) -> None:
        self.named = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ReLU()})
        self.listed = nn.ModuleList([nn.ReLU(), nn.Linear(2, 2, bias=False)])
        self.scales = nn.ParameterList([nn.Parameter((2,))])
        self.table = nn.ParameterDict({"w": nn.Parameter((2,))})
        self.cache = nn.KVCache(1, (2,))

    def forward(self, x: nn.Tensor) -> Any:
        for module in self.named:
            x = module(x)
        return self.listed(x) * self.scales[0] + self.table["w"]


def test_containers_name_what_they_hold() -> None:
    parts = Parts()
    names = ["named.a.weight", "named.a.bias", "listed.1.weight", "scales.0", "table.w"]
    assert list(parts.state_dict()) == names
    assert list(parts.named.keys()) == ["a", "b"] and "a" in parts.named and len(parts.named) == 2
    assert parts.named.get("c") is None and isinstance(parts.named.pop("b"), nn.ReLU)
    parts.scales.extend([nn.Parameter((1,))])
    assert [name for name, _ in parts.named_parameters("p")][-2:] == ["p.scales.1", "p.table.w"]
    parts.to("float16")
    assert {p.dtype for p in parts.parameters()} == {"float16"} and parts.cache.dtype == "float16"
    weights = {name: np.ones(p.shape, "float16") for name, p in parts.named_parameters()}
    assert parts.load_state_dict(weights) == ([], [])
    other = Parts()
    assert other.load_state_dict(parts.state_dict(), strict=False) == ([], ["scales.1"])
    np.testing.assert_array_equal(other.table["w"].data, [1, 1])
    assert other.load_state_dict({"x": 1}, strict=False) == (names, ["x"])


def test_a_mutator_replaces_modules() -> None:
    seen: list[str] = []

    class Narrow(nn.Mutator):
        def visit_module(self, name: str, node: nn.Module) -> Any:
            seen.append(name)
            if isinstance(node, nn.Linear):
                return nn.Linear(node.in_features, node.out_features, bias=False)
            return super().visit_module(name, node)

        def visit_param(self, name: str, node: nn.Parameter) -> Any:
            seen.append(name)
            return node

        def visit_effect(self, name: str, node: nn.Effect) -> Any:
            seen.append(name)
            return node

    made = Narrow().visit_module("m", Parts())
    assert seen == [
        "m", "m.named.a", "m.named.b", "m.listed.0", "m.listed.1", "m.scales.0", "m.table.w",
        "m.cache",
    ]  # fmt: skip
    assert "named.a.bias" not in made.state_dict()


class Scaled(nn.Module):
    define_subroutine = True

    def __init__(self) -> None:
        self.w = nn.Parameter(("n", "n"))

    def forward(self, x: nn.Tensor) -> Any:
        return op.matmul(x, self.w) * 2.0


class Twice(nn.Module):
    def __init__(self) -> None:
        self.first, self.second = Scaled(), Scaled()

    def forward(self, x: nn.Tensor) -> Any:
        return self.second(self.first(x))


def test_subroutines_are_functions_that_alike_modules_share() -> None:
    mod, params = Twice().export_tvm({"forward": {"x": spec.Tensor((3, "n"), "float32")}})
    assert sorted(mod.functions) == ["forward", "scaled"]
    assert len(mod["forward"].bindings) == 3
    x, v, w = random(3, 2), random(2, 2, seed=1), random(2, 2, seed=2)
    found = np.asarray(relax.build(mod)["forward"](x, v, w))
    np.testing.assert_allclose(found, x @ v @ w * 4, rtol=1e-4, atol=1e-5)
    assert [name for name, _ in params] == ["first.w", "second.w"]


@T.prim_func
def add_number(a: T.handle, b: T.handle, n: T.int64):
    A = T.match_buffer(a, (4,), "float32")
    B = T.match_buffer(b, (4,), "float32")
    for i in range(4):
        with T.block("B"):
            v = T.axis.spatial(4, i)
            B[v] = A[v] + T.Cast("float32", n)


@T.prim_func
def double(a: T.handle):
    A = T.match_buffer(a, (4,), "float32")
    for i in range(4):
        with T.block("A"):
            v = T.axis.spatial(4, i)
            A[v] = A[v] * 2.0


def test_tensor_functions() -> None:
    out = nn.Tensor.placeholder([4], "float32")

    class Model(nn.Module):
        def forward(self, x: nn.Tensor, n: Any) -> Any:
            made = op.tensor_ir_op(add_number, "add_number", [x, n], out)
            return op.tensor_ir_inplace_op(double, "double", made, 0, out), made

    described = {"x": spec.Tensor((4,), "float32"), "n": int}
    mod, _ = Model().export_tvm({"forward": described})
    x = random(4)
    for results in (
        relax.build(mod)["forward"](x, 3),
        relax.interpreter.run(mod, x, 3, name="forward"),
    ):
        for found, want in zip(results, ((x + 3) * 2, x + 3)):
            np.testing.assert_allclose(np.asarray(found), want, rtol=1e-6)
    with pytest.raises(VerifyError, match="takes tensors, then sizes"):
        run(lambda x: op.tensor_ir_op(add_number, "f", [3, x], out), x)


SOURCE = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
void negate(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < x.size(0); ++i) to[i] = -from[i];
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(tests_negate, negate);
"""


def test_functions_of_other_languages() -> None:
    kernels = nn.SourceModule(
        {"tests_negate": lambda x: nn.Tensor.placeholder(x.shape, x.dtype)}, SOURCE, "cpp",
        compile_options=[o for o in nn.SourceModule.get_compile_options("cpp") if o != "-O3"],
    )  # fmt: skip

    class Model(nn.Module):
        def forward(self, x: nn.Tensor) -> Any:
            nn.add_extern(kernels)
            return kernels["tests_negate"](x)

    described = {"forward": {"x": spec.Tensor((3,), "float32")}}
    mod, _, modules = Model().export_tvm(described, allow_extern=True)
    assert modules == [kernels]
    mod = relax.transform.AttachExternModules(modules)(mod)
    x = random(3)
    np.testing.assert_array_equal(np.asarray(relax.build(mod)(x)), -x)
    with pytest.raises(VerifyError, match="allow_extern=True"):
        Model().export_tvm(described)
    with pytest.raises(VerifyError, match="no function 'other'"):
        kernels["other"]


def test_operators_of_nn_op_are_in_nn_too() -> None:
    assert nn.relu is op.relu and nn.concat is op.concat
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    with builder.function("main", [x]):
        made = nn.exp(nn.Tensor(_expr=x), name="powers")
        builder.emit_func_output(made._expr)
    assert builder.get()["main"].bindings[0].var.name == "powers"
