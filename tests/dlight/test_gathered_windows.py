"""Windows whose elements are gathered: vectors of results, whose elements are neighbours."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, collect
from tilewright.target import Target
from tilewright.tir import Block, For
from tilewright.topi import nn


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "pad"),
    [((1, 2, 16, 16), 3, 2, 1), ((2, 3, 9, 13), 2, 2, 0), ((1, 1, 5, 40), 3, 1, 1)],
)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_gradients_of_pools(
    kind: str, shape: tuple[int, ...], kernel: int, stride: int, pad: int, cores: int
) -> None:
    target = Target("native").with_options(num_cores=cores)
    x = np.random.default_rng(0).integers(-3, 3, shape).astype("float32")  # with equal maxima
    given = torch.from_numpy(x).requires_grad_()
    pool = getattr(torch.nn.functional, f"{kind}_pool2d")
    made = pool(given, kernel, stride, pad)
    grads = np.random.default_rng(1).standard_normal(made.shape).astype("float32")
    (expected,) = torch.autograd.grad(made, given, torch.from_numpy(grads))
    tensors = [te.placeholder(a.shape, name="gx"[n]) for n, a in enumerate((grads, x))]
    func = te.create_prim_func([*tensors, nn.pool_grad(*tensors, kernel, stride, [pad] * 4, kind)])
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))
    loops = [
        loop.kind
        for loop in collect(mod["main"].body, For)
        if any(item.name == "pool_grad_update" for item in collect(loop, Block))
    ]
    assert loops[-1] == "vectorized"
    found = np.empty(shape, "float32")
    driver.compile(mod, target)["main"](grads, x, found)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
@pytest.mark.parametrize("width", [5, 8, 33])
def test_samples_are_vectors(method: str, width: int) -> None:
    """Data tell where the elements of a sum are; some places are outside of the image."""
    target = Target("native").with_options(num_cores=1)
    rng = np.random.default_rng(0)
    image = rng.standard_normal((2, 3, 6, 7)).astype("float32")
    grid = rng.uniform(-1.3, 1.3, (2, 2, 4, width)).astype("float32")
    tensors = [te.placeholder(a.shape, name="xg"[n]) for n, a in enumerate((image, grid))]
    made = topi.image.grid_sample(*tensors, method, "NCHW", "zeros", False)
    func = IRModule({"main": te.create_prim_func([*tensors, made])})
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(func)
    loops = [
        loop.kind
        for loop in collect(mod["main"].body, For)
        if any(item.name == "grid_sample_update" for item in collect(loop, Block))
    ]
    assert (loops[-1] == "vectorized") == (width >= 8)
    found = np.empty((2, 3, 4, width), "float32")
    driver.compile(mod, target)["main"](image, grid, found)
    places = torch.from_numpy(grid).permute(0, 2, 3, 1)
    expected = torch.nn.functional.grid_sample(
        torch.from_numpy(image), places, method, "zeros", align_corners=False
    )
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)
