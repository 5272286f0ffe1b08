"""Programs that mix Python, tensor functions and graphs, as TVM's users write them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relax
from tilewright.relax.base_py_module import BasePyModule
from tilewright.relax.relax_to_pyfunc_converter import RelaxToPyFuncConverter
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tirx as T
from tilewright.support.errors import ParseError, RunError, VerifyError

torch = pytest.importorskip("torch")


@R.py_module
class Mixed(BasePyModule):
    """Methods, tensor functions of fixed and of symbolic sizes, and a graph."""

    factor = 3

    @T.prim_func(s_tir=True)
    def multiply(var_A: T.handle, var_B: T.handle, var_C: T.handle):
        n = T.int32()
        A = T.match_buffer(var_A, (n, 4), "float32")
        B = T.match_buffer(var_B, (4, 3), "float32")
        C = T.match_buffer(var_C, (n, 3), "float32")
        for i, j, k in T.grid(n, 3, 4):
            with T.sblock("matmul"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    @T.prim_func(s_tir=True)
    def double(var_x: T.handle, var_out: T.handle):
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "float32")
        out = T.match_buffer(var_out, (n,), "float32")
        for i in T.serial(n):
            out[i] = x[i] * T.float32(2)

    @R.function
    def total(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(
        ("n",), "float32"
    ):
        return R.add(x, y)

    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        h = R.call_py_func("test_norm", (x,), out_ty=R.Tensor((4, 8), "float32"))
        return R.call_py_func("test_swish", (h,), out_ty=R.Tensor((4, 8), "float32"))

    @I.pyfunc
    def test_norm(self, x: Any) -> Any:
        return torch.nn.functional.layer_norm(x, x.shape[-1:])

    @I.pyfunc
    def test_swish(self, x: Any) -> Any:
        return torch.sigmoid(x) * x

    @I.pyfunc
    def forward(self, x: Any, w: Any, b: Any) -> Any:
        given = [self._convert_pytorch_to_tvm(x), self._convert_pytorch_to_tvm(w)]
        made = self.call_tir(self.multiply, given, out_ty=R.Tensor((x.shape[0], 3), "float32"))
        hidden = self._convert_tvm_to_pytorch(made)
        out = R.Tensor((x.shape[0], 3), "float32")
        return torch.relu(self.call_dps_packed("test_bias_add", [hidden, b], out_ty=out))

    def plain(self) -> int:
        return self.factor


@pytest.fixture(scope="module")
def mixed() -> Any:
    return Mixed(device=tvm.cpu(0))


def test_methods_call_tensor_functions_and_global_ones(mixed: Any) -> None:
    @tvm.register_global_func("test_bias_add", override=True)
    def bias_add(x: Any, bias: Any, out: Any) -> None:
        out[:] = x.numpy() + bias.numpy()

    for rows in (2, 5):
        x, w, b = torch.randn(rows, 4), torch.randn(4, 3), torch.randn(3)
        torch.testing.assert_close(mixed.forward(x, w, b), torch.relu(x @ w + b))


def test_graphs_call_methods_that_are_marked(mixed: Any) -> None:
    x = torch.randn(4, 8)
    expected = torch.nn.functional.silu(torch.nn.functional.layer_norm(x, (8,)))
    torch.testing.assert_close(mixed.main(x), expected)
    made = mixed.call_py_func("test_swish", [mixed.call_py_func("test_norm", [x])])
    torch.testing.assert_close(made, expected)


def test_functions_are_listed_by_kind_and_others_stay_methods(mixed: Any) -> None:
    assert mixed.list_functions() == {
        "tir": ["multiply", "double"],
        "relax": ["total", "main"],
        "python": ["test_norm", "test_swish", "forward"],
    }
    assert mixed.plain() == 3
    assert set(Mixed.functions) == {"multiply", "double", "total", "main"}
    assert "def total" in mixed.script()


def test_symbolic_sizes_are_those_of_the_arguments(mixed: Any) -> None:
    n = T.int64()
    for size in (0, 1, 7):
        x = torch.randn(size)
        made = mixed.call_tir("double", [x], relax.TensorType((n,), "float32"))
        torch.testing.assert_close(made, x * 2)
        torch.testing.assert_close(mixed.total(x, x), x + x)
    with pytest.raises(RunError, match="no argument has as many dimensions"):
        mixed.call_tir("double", [torch.randn(3)], relax.TensorType((n, n), "float32"))


def test_tensors_are_converted_without_copies(mixed: Any) -> None:
    x = torch.zeros(3, requires_grad=True)
    made = mixed._convert_pytorch_to_tvm([x])
    made[0][:] = np.arange(3)
    back = mixed._convert_tvm_to_pytorch(made)
    assert back[0].tolist() == x.tolist() == [0, 1, 2]


def test_only_modules_with_python_have_bases() -> None:
    with pytest.raises(ParseError, match="must be derived from"):

        @R.py_module
        class Other:
            @T.prim_func
            def f(A: T.Buffer((4,), "float32")):
                A[0] = T.float32(0)


@I.ir_module
class Dense:
    @T.prim_func(s_tir=True)
    def bias_add(var_x: T.handle, var_b: T.handle, var_out: T.handle):
        x = T.match_buffer(var_x, (2, 4), "float32")
        b = T.match_buffer(var_b, (4,), "float32")
        out = T.match_buffer(var_out, (2, 4), "float32")
        for i, j in T.grid(2, 4):
            out[i, j] = x[i, j] + b[j]

    @R.function
    def main(
        x: R.Tensor((2, 4), "float32"),
        w: R.Tensor((4, 4), "float32"),
        b: R.Tensor((4,), "float32"),
    ) -> R.Tensor((2, 4), "float32"):
        cls = Dense
        h = R.matmul(x, w)
        h_bias = R.call_tir(cls.bias_add, (h, b), out_ty=R.Tensor((2, 4), "float32"))
        return R.nn.relu(h_bias)


@pytest.mark.parametrize("optimize", [lambda mod: mod, relax.get_pipeline("zero")])
def test_graphs_become_functions_of_python_at_any_stage(optimize: Any) -> None:
    converter = RelaxToPyFuncConverter(optimize(Dense))
    x, w, b = torch.randn(2, 4, requires_grad=True), torch.randn(4, 4), torch.randn(4)
    for made in (converter.convert(["main"]).__pyfuncs__, converter.convert("main").pyfuncs):
        torch.testing.assert_close(made["main"](x, w, b), torch.relu(x @ w + b).detach())
    with pytest.raises(VerifyError, match="no graph function 'bias_add'"):
        converter.convert(["bias_add"])


def test_members_of_the_base_hide_no_global_functions(mixed: Any) -> None:
    @tvm.register_global_func("get_function", override=True)
    def double(x: Any, out: Any) -> None:
        out[:] = x.numpy() * 2

    try:
        info = R.Tensor((2,), "float32")
        made = mixed.call_dps_packed("get_function", [torch.ones(2)], out_ty=info)
        assert made.tolist() == [2.0, 2.0]
        x = torch.ones(4, 8)
        torch.testing.assert_close(
            mixed.call_dps_packed("test_swish", [x], out_ty=info), torch.sigmoid(x)
        )
    finally:
        tvm.runtime.remove_global_func("get_function")


def test_what_makes_modules_can_be_copied() -> None:
    assert copy.copy(Mixed).ir_module is Mixed.ir_module
    with pytest.raises(AttributeError, match="missing"):
        Mixed.missing
