"""Layouts by name, and operators on images whose channels are in blocks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright import te, topi
from tilewright.driver import compile as compile_module
from tilewright.ir import as_int
from tilewright.support.errors import VerifyError
from tilewright.topi.layout import layout_of, map_layout


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(inputs: list[te.Tensor], out: te.Tensor, *arrays: NDArray[np.float32]):
    func = te.create_prim_func([*inputs, out])
    result = np.zeros([as_int(extent) for extent in func.buffers[-1].shape], out.dtype)
    compile_module(func, "native", name="f")["f"](*arrays, result)
    return result


def test_names_of_layouts_say_how_dimensions_are_cut():
    made = layout_of("NCHW16c")
    assert made.axes == "NCHW" and made.block("C") == 16 and made.block("H") == 1
    assert made.shape({"N": 2, "C": 48, "H": 5, "W": 7}) == (2, 3, 5, 7, 16)
    assert made.extents((2, 3, 5, 7, 16)) == {"N": 2, "C": 48, "H": 5, "W": 7}
    assert layout_of("NCHW").blocked(C=8) == layout_of("NCHW8c")


@pytest.mark.parametrize("name", ["", "NCHWc", "NC16c16c", "nchw", "NCCHW", "NC16k", "N C", "NC1c"])
def test_other_names_are_refused(name):
    with pytest.raises(VerifyError, match="is no layout"):
        layout_of(name)


def test_blocks_must_divide():
    with pytest.raises(VerifyError, match="blocks of 16 do not divide the extent 24"):
        layout_of("NCHW16c").shape({"N": 1, "C": 24, "H": 1, "W": 1})


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ((2, 32, 3, 5), ("NCHW", "NCHW16c", "NHWC", "NCHW8c", "NCHW4c", "CNHW")),
        ((16, 32, 3, 2), ("OIHW", "OIHW16i8o", "OIHW8o16i", "HWIO", "OIHW16o", "OIHW4i2h")[:5]),
    ],
)
def test_arrays_go_from_layout_to_layout_as_the_maps_say(shape, names):
    plain = random(*shape)
    for first in names:
        array = layout_of(names[0]).transform(plain, layout_of(first))
        for second in names:
            made = layout_of(first).transform(array, layout_of(second))
            mapped = layout_of(first).map_to(layout_of(second)).map_ndarray(array)
            np.testing.assert_array_equal(made, mapped)


def test_layout_transform_moves_and_pads():
    x = te.placeholder((3, 10), "float32", name="x")
    data = random(3, 10)
    made = run([x], map_layout(x, "lambda i, j: (j // 4, i, j % 4)", 7.0), data)
    padded = np.pad(data, ((0, 0), (0, 2)), constant_values=7.0)
    np.testing.assert_array_equal(made, padded.reshape(3, 3, 4).transpose(1, 0, 2))
    with pytest.raises(VerifyError, match="state pad_value"):
        map_layout(x, "lambda i, j: (j // 4, i, j % 4)")


CONVOLUTIONS = {
    "dense": ({"padding": 1}, 32, 32, 1, "NCHW16c", "OIHW16i16o", "NCHW16c"),
    "strided, dilated": (
        {"strides": (2, 1), "dilation": (1, 2), "padding": (0, 1, 2, 1)},
        16, 24, 1, "NCHW16c", "OIHW16i8o", "NCHW8c",
    ),
    "first": ({"strides": 2, "padding": 1}, 3, 16, 1, "NCHW", "OIHW16o", "NCHW16c"),
    "last": ({}, 16, 5, 1, "NCHW16c", "OIHW16i", "NCHW"),
    "plain filters": ({}, 16, 16, 1, "NCHW8c", "OIHW", "NCHW16c"),
    "grouped": ({"padding": 1}, 32, 64, 2, "NCHW16c", "OIHW16i8o", "NCHW8c"),
    "depthwise": ({"padding": 1}, 24, 24, 24, "NCHW8c", "OIHW8o", "NCHW8c"),
    "depthwise, plain filters": ({"strides": 2}, 16, 16, 16, "NCHW16c", "OIHW", "NCHW16c"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_in_blocks_are_the_same(case):
    options, channels, filters, groups, *names = CONVOLUTIONS[case]
    data_layout, kernel_layout, out_layout = map(layout_of, names)
    data, weight = random(2, channels, 7, 9), random(filters, channels // groups, 3, 3, seed=1)
    image, kernel = layout_of("NCHW"), layout_of("OIHW")
    x, w = te.placeholder(data.shape, name="x"), te.placeholder(weight.shape, name="w")
    plain = run([x, w], topi.nn.conv2d(x, w, groups=groups, **options), data, weight)
    data, weight = image.transform(data, data_layout), kernel.transform(weight, kernel_layout)
    x, w = te.placeholder(data.shape, name="x"), te.placeholder(weight.shape, name="w")
    layouts = dict(zip(("data_layout", "kernel_layout", "out_layout"), names))
    made = run([x, w], topi.nn.conv2d(x, w, groups=groups, **options, **layouts), data, weight)
    expected = image.transform(plain, out_layout)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "filters", "groups", "layouts", "message"),
    [
        (16, 16, 1, ("NHWC", "OIHW", "NCHW16c"), "only NCHW and NCHW<n>c"),
        (16, 16, 1, ("NCHW16c", "HWIO", "NCHW16c"), "kernel layout 'HWIO' is not supported"),
        (16, 16, 1, ("NCHW16c", "OIHW8i16o", "NCHW16c"), "blocks of I .* differ"),
        (32, 32, 4, ("NCHW16c", "OIHW", "NCHW16c"), "groups must be whole blocks"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(channels, filters, groups, layouts, message):
    data = layout_of("NCHW").shape({"N": 1, "C": channels, "H": 4, "W": 4})
    if layouts[0] == "NCHW16c":
        data = layout_of("NCHW16c").shape({"N": 1, "C": channels, "H": 4, "W": 4})
    kernel = {"O": filters, "I": channels // groups, "H": 1, "W": 1}
    x = te.placeholder(data, name="x")
    w = te.placeholder(layout_of(layouts[1]).shape(kernel), name="w")
    with pytest.raises(VerifyError, match=message):
        topi.nn.conv2d(x, w, 1, 0, 1, *layouts[:2], groups=groups, out_layout=layouts[2])


POOLS = {
    "max": lambda x, layout: topi.nn.max_pool2d(x, 3, 2, 1, layout=layout),
    "max, up": lambda x, layout: topi.nn.max_pool2d(x, 2, 2, ceil_mode=True, layout=layout),
    "mean": lambda x, layout: topi.nn.avg_pool2d(x, 3, 1, 1, layout=layout),
    "mean with padding": lambda x, layout: topi.nn.avg_pool2d(
        x, 3, 2, 1, count_include_pad=True, layout=layout
    ),
    "adaptive": lambda x, layout: topi.nn.adaptive_avg_pool2d(x, (3, 4), layout),
    "adaptive, whole": lambda x, layout: topi.nn.adaptive_avg_pool2d(x, (7, 3), layout),
    "global": lambda x, layout: topi.nn.adaptive_avg_pool2d(x, 1, layout),
    "adaptive max": lambda x, layout: topi.nn.adaptive_max_pool2d(x, (2, 5), layout),
}


@pytest.mark.parametrize("case", POOLS)
def test_pooling_in_blocks_is_the_same(case):
    image, blocks = layout_of("NCHW"), layout_of("NCHW8c")
    data = random(2, 16, 7, 9)
    x = te.placeholder(data.shape, name="x")
    expected = image.transform(run([x], POOLS[case](x, "NCHW"), data), blocks)
    data = image.transform(data, blocks)
    x = te.placeholder(data.shape, name="x")
    np.testing.assert_allclose(run([x], POOLS[case](x, "NCHW8c"), data), expected, rtol=1e-6)


def test_pooling_refuses_other_layouts():
    x = te.placeholder((1, 2, 4, 4, 8), name="x")
    with pytest.raises(VerifyError, match="only NCHW and NCHW<n>c"):
        topi.nn.max_pool2d(x, 2, layout="NHWC8c")
    with pytest.raises(VerifyError, match="the block of C has extent 8"):
        topi.nn.max_pool2d(x, 2, layout="NCHW16c")
