"""Running sums and products against NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, graph_of, random
from tilewright import dlight, driver, relax, te, topi
from tilewright.ir import IRModule, Var
from tilewright.relax import interpreter, op
from tilewright.target import Target

torch = pytest.importorskip("torch")

from tilewright.relax.frontend.torch import from_exported_program  # noqa: E402

SHAPES = [(7,), (1,), (0,), (5, 33), (3, 4), (4, 6, 5), (2, 0, 3), (0, 5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_axes(name: str, shape: tuple[int, ...]) -> None:
    x, function = random(*shape), getattr(np, name)
    for axis in (*range(len(shape)), -1):
        body = lambda x, axis=axis: getattr(op, name)(x, axis)
        expected = function(x.astype("float64"), axis)
        mod = graph_of(body, x)
        folded = relax.transform.FoldConstant()(graph(lambda b=body: b(relax.const(x))))
        for found in (relax.build(mod)(x), interpreter.run(mod, x), interpreter.run(folded)):
            np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int64"])
def test_dtypes(dtype: str) -> None:
    x = np.random.default_rng(0).integers(-2, 3, (3, 50)).astype(dtype)
    found = relax.build(graph_of(lambda x: op.cumsum(x, 1), x))(x)
    assert found.numpy().dtype == dtype
    np.testing.assert_array_equal(found.numpy(), np.cumsum(x, 1, dtype=dtype))
    wide = relax.build(graph_of(lambda x: op.cumsum(x, 0, "float32"), x))(x)
    np.testing.assert_array_equal(wide.numpy(), np.cumsum(x.astype("float32"), 0))


def test_special_values() -> None:
    x = random(4, 21)
    x[0, 5], x[1, 7], x[2, 3], x[2, 9] = np.nan, np.inf, np.inf, -np.inf
    found = relax.build(graph_of(lambda x: op.cumsum(x, -1), x))(x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(np.asarray(found), np.cumsum(x, -1), rtol=1e-5, atol=1e-5)


def test_symbolic_extents_and_threads() -> None:
    n, m = Var("n"), Var("m")
    x = te.placeholder((n, m), "float32", "x")
    func = te.create_prim_func([x, topi.cumsum(x, -1)])
    target = Target("native").with_options(num_cores=2)
    mod = dlight.default_schedule(target)(IRModule({"main": func}))
    assert "T.parallel" in mod["main"].script()  # the call knows for how many threads there is work
    module = driver.compile(mod, target)["main"]
    for shape in ((0, 3), (3, 0), (1, 1), (9, 31)):
        array = random(*shape)
        out = np.zeros(shape, "float32")
        module(array, out)
        np.testing.assert_allclose(out, np.cumsum(array, 1), rtol=1e-5, atol=1e-5)


def test_rows_are_shared_among_threads() -> None:
    x = te.placeholder((64, 1000), "float32", "x")
    func = te.create_prim_func([x, topi.cumsum(x, -1)])
    target = Target("native").with_options(num_cores=2)
    mod = dlight.default_schedule(target)(IRModule({"main": func}))
    assert "T.parallel" in mod["main"].script()
    array, out = random(64, 1000), np.zeros((64, 1000), "float32")
    driver.compile(mod, target)["main"](array, out)
    np.testing.assert_allclose(out, np.cumsum(array, 1, "float64"), rtol=1e-4, atol=1e-4)


class Scans(torch.nn.Module):
    """What PyTorch calls them."""

    def forward(self, x: Any, i: Any) -> list[Any]:
        return [
            x.cumsum(-1),
            torch.cumsum(x, 0, dtype=torch.float64),
            i.cumsum(1),
            (i > 1).cumsum(0),
            x.cumprod(1),
            x.sum().cumsum(0),
        ]


def test_torch_models() -> None:
    x, i = torch.randn(4, 6), torch.arange(24, dtype=torch.int32).reshape(4, 6)
    mod = from_exported_program(torch.export.export(Scans().eval(), (x, i)))
    for found, expected in zip(interpreter.run(mod, x.numpy(), i.numpy()), Scans()(x, i)):
        assert found.dtype == expected.numpy().dtype
        np.testing.assert_allclose(np.asarray(found), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_without_an_axis_the_tensor_is_flat() -> None:
    x = random(2, 3, 4)
    found = relax.build(graph_of(lambda x: op.cumsum(x), x))(x)
    np.testing.assert_allclose(np.asarray(found), np.cumsum(x), rtol=1e-5, atol=1e-5)
    assert [extent.value for extent in topi.cumprod(te.placeholder((2, 3))).shape] == [6]
