"""Convolutions over images so small that some taps of the window meet only padding."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule
from tilewright.target import Target
from tilewright.topi.nn.spatial import taps_of


def _expected(x, w, stride, dilation, before, after):
    wide = [(b, a) for b, a in zip(before, after)]
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *wide])
    out = [
        (x.shape[2 + a] - (w.shape[2 + a] - 1) * dilation - 1) // stride + 1
        for a in range(len(wide))
    ]
    made = np.zeros((x.shape[0], w.shape[0], *out))
    for taps in product(*(range(size) for size in w.shape[2:])):
        part = x[
            (
                slice(None),
                slice(None),
                *(
                    slice(t * dilation, t * dilation + (o - 1) * stride + 1, stride)
                    for t, o in zip(taps, out)
                ),
            )
        ]
        made += np.einsum("nc...,fc->nf...", part, w.astype(np.float64)[(..., *taps)])
    return made


@pytest.mark.parametrize("spatial", [1, 2])
@pytest.mark.parametrize(
    "extent, kernel, stride, dilation, before, after",
    [
        (1, 3, 1, 1, 1, 1),
        (1, 3, 2, 1, 1, 1),
        (2, 3, 1, 2, 2, 2),
        (2, 7, 1, 1, 3, 3),
        (3, 3, 1, 5, 5, 5),
        (3, 5, 2, 1, 2, 1),
        (3, 2, 1, 3, 1, 0),
        (2, 2, 1, 3, 1, 0),
        (1, 4, 1, 1, 3, 0),
        (1, 4, 1, 1, 0, 3),
    ],
)
def test_taps_beyond_the_image_change_nothing(
    spatial, extent, kernel, stride, dilation, before, after
):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 8) + (extent,) * spatial).astype("float32")
    w = rng.standard_normal((16, 8) + (kernel,) * spatial).astype("float32")
    data, weight = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w")
    conv = {1: topi.nn.conv1d, 2: topi.nn.conv2d}[spatial]
    padding = (before,) * spatial + (after,) * spatial
    made = conv(data, weight, stride, padding, dilation)
    func = te.create_prim_func([data, weight, made])
    wanted = _expected(x, w, stride, dilation, (before,) * spatial, (after,) * spatial)
    for threads in (1, 2):
        target = Target("native").with_options(num_cores=threads)
        mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(
            IRModule({"main": func})
        )
        out = np.full(wanted.shape, np.nan, "float32")
        driver.compile(mod, target)["main"](x, w, out)
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


def test_blocked_images_leave_out_the_same_taps():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 2, 1, 2, 16)).astype("float32")
    w = rng.standard_normal((1, 2, 3, 5, 16, 16)).astype("float32")
    data, weight = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w")
    made = topi.nn.conv2d(
        data, weight, 1, (1, 2), data_layout="NCHW16c", kernel_layout="OIHW16i16o"
    )
    plain = x.transpose(0, 1, 4, 2, 3).reshape(1, 32, 1, 2)
    filters = w.transpose(0, 5, 1, 4, 2, 3).reshape(16, 32, 3, 5)
    wanted = _expected(plain, filters, 1, 1, (1, 2), (1, 2))
    out = np.empty((1, 1, 1, 2, 16), "float32")
    target = Target("native").with_options(num_cores=1)
    mod = IRModule({"main": te.create_prim_func([data, weight, made])})
    mod = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(mod)
    driver.compile(mod, target)["main"](x, w, out)
    np.testing.assert_allclose(out[:, 0].transpose(0, 3, 1, 2), wanted, rtol=1e-4, atol=1e-5)


def test_only_taps_that_meet_the_image_are_used():
    one = taps_of(1, 3, 1, 1, 1, 1)
    assert (one.first, one.count, one.before, one.after, one.out) == (1, 1, 0, 0, 1)
    # Both taps meet the padding on the left or lie beyond the image: the window stays as it is.
    assert taps_of(2, 2, 1, 3, 1, 0).count == 2
    assert taps_of(3, 2, 1, 3, 1, 0).begin == 2
    assert taps_of(14, 3, 1, 1, 1, 1).count == 3
