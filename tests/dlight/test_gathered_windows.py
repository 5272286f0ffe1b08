"""Windows whose elements are gathered: vectors of results, whose elements are neighbours."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, collect
from tilewright.script import tir as T
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


@T.prim_func
def running(x: T.Buffer((64, 100), "float32"), y: T.Buffer((64, 100), "float32")):
    """A loop through each row."""
    for i in range(64):
        with T.block("row"):
            v = T.axis.spatial(64, i)
            total = T.alloc_buffer((1,), "float32", scope="local")
            total[0] = T.float32(0)
            for k in range(100):
                total[0] = total[0] + x[v, k]
                y[v, k] = total[0]


def test_loops_along_rows_stay_in_their_row() -> None:
    target = Target("native").with_options(num_cores=1)
    func = IRModule({"main": running})
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(func)
    assert all(loop.kind != "vectorized" for loop in collect(mod["main"].body, For))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_regions_are_vectors_of_channels(layout: str) -> None:
    """What lanes share, the places and weights of samples, is most of the work."""
    target = Target("native").with_options(num_cores=1)
    x = te.placeholder((1, 32, 9, 10) if layout == "NCHW" else (1, 9, 10, 32), name="x")
    rois = te.placeholder((5, 5), name="rois")
    made = topi.vision.roi_align(x, rois, 3, 0.5, "avg", 2, False, layout)
    func = IRModule({"main": te.create_prim_func([x, rois, made])})
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(func)
    lanes = [loop for loop in collect(mod["main"].body, For) if loop.kind == "vectorized"]
    assert [loop.loop_var.name[0] for loop in lanes] == ["c"]
