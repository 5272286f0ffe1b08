"""The operators of networks by TVM's names, against PyTorch and NumPy."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch.nn.functional as F
from by_rule import evaluate, moved, numbers, t

from tilewright import te, topi
from tilewright.support.errors import VerifyError

nn = topi.nn


class Form(NamedTuple):
    """A convolution by name: its layouts, and the extra arguments it takes at its end."""

    data: str
    kernel: str
    rest: tuple[Any, ...] = ()
    groups: int = 1


FORMS = {
    "conv1d_ncw": Form("NCW", "OIW"),
    "conv1d_nwc": Form("NWC", "WIO"),
    "group_conv1d_ncw": Form("NCW", "OIW", (2,), 2),
    "group_conv1d_nwc": Form("NWC", "WIO", (2,), 2),
    "conv2d_nchw": Form("NCHW", "OIHW"),
    "conv2d_nhwc": Form("NHWC", "HWIO"),
    "conv2d_hwcn": Form("HWCN", "HWIO"),
    "group_conv2d_nchw": Form("NCHW", "OIHW", (2,), 2),
    "group_conv2d_nhwc": Form("NHWC", "HWIO", (2,), 2),
    "conv3d_ncdhw": Form("NCDHW", "OIDHW", (2,), 2),
    "conv3d_ndhwc": Form("NDHWC", "DHWIO", (1,)),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 2)])
def test_convolutions_by_layout(name: str, stride: int, padding: int, dilation: int) -> None:
    form = FORMS[name]
    spatial = len(form.data) - 2
    axes = "DHW"[3 - spatial :]
    x, w = numbers(2, 4, *(7, 5, 6)[:spatial]), numbers(6, 4 // form.groups, *(3, 2, 1)[:spatial])
    conv = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[spatial]
    expected = conv(t(x), t(w), None, stride, padding, dilation, form.groups).numpy()
    made = evaluate(
        lambda a, b: getattr(nn, name)(a, b, stride, padding, dilation, *form.rest),
        moved(x, "NC" + axes, form.data),
        moved(w, "OI" + axes, form.kernel),
    )
    np.testing.assert_allclose(made, moved(expected, "NC" + axes, form.data), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("word", ["SAME", "VALID"])
def test_padding_by_word(word: str) -> None:
    x, w = numbers(1, 2, 8, 7), numbers(3, 2, 4, 3)
    sides = (1, 1, 2, 1) if word == "SAME" else (0, 0, 0, 0)  # left, right, top, bottom
    expected = F.conv2d(F.pad(t(x), sides), t(w)).numpy()
    made = evaluate(lambda a, b: nn.conv2d(a, b, 1, word), x, w)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC HWOI", "NHWC HWIO"])
@pytest.mark.parametrize("number", [1, 2])
def test_depthwise_convolutions(layout: str, number: int) -> None:
    x, w = numbers(2, 3, 6, 5), numbers(3 * number, 1, 3, 3)
    expected = F.conv2d(t(x), t(w), None, 2, 1, 1, 3).numpy()
    filters = w.reshape(3, number, 3, 3)
    if layout == "NCHW":
        made = evaluate(lambda a, b: nn.depthwise_conv2d_nchw(a, b, 2, 1, 1), x, filters)
    else:
        kernel = layout.split()[1]
        order = (2, 3, 0, 1) if kernel == "HWOI" else (2, 3, 1, 0)
        made = evaluate(
            lambda a, b: nn.depthwise_conv2d_nhwc(a, b, 2, 1, 1, kernel),
            moved(x, "NCHW", "NHWC"),
            np.ascontiguousarray(filters.transpose(order)),
        )
        made = moved(made, "NHWC", "NCHW")
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def in_blocks(x: np.ndarray, size: int) -> np.ndarray:
    n, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(n, c // size, size, h, w).transpose(0, 1, 3, 4, 2))


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_in_blocks(groups: int) -> None:
    x, w = numbers(1, 8, 5, 6), numbers(8, 8 // groups, 3, 3)
    expected = F.conv2d(t(x), t(w), None, 1, 1, 1, groups).numpy()
    data = in_blocks(x, 4)
    kernel = w.reshape(2, 4, 8 // groups // 4, 4, 3, 3).transpose(0, 2, 4, 5, 3, 1)

    def define(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        made = nn.conv2d_NCHWc(a, b, 1, 1, 1, "NCHW4c", "NCHW4c")
        return nn.unpack_NCHWc_to_nchw(made, "float32")

    made = evaluate(define, data, np.ascontiguousarray(kernel))
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
    kernel = w.reshape(2, 4, 8 // groups, 3, 3).transpose(0, 2, 3, 4, 1)
    made = evaluate(
        lambda a, b: nn.conv2d_NCHWc_OIHWo(a, b, 1, 1, 1, "NCHW4c", "NCHW4c"),
        data,
        np.ascontiguousarray(kernel),
    )
    np.testing.assert_allclose(made, in_blocks(expected, 4), rtol=1e-4, atol=1e-5)


def test_depthwise_convolution_in_blocks() -> None:
    x, w = numbers(2, 8, 5, 6), numbers(8, 1, 3, 3)
    expected = F.conv2d(t(x), t(w), None, 2, 1, 1, 8).numpy()
    kernel = np.ascontiguousarray(w.reshape(2, 4, 1, 3, 3, 1).transpose(0, 2, 3, 4, 5, 1))
    made = evaluate(
        lambda a, b: nn.depthwise_conv2d_NCHWc(a, b, 2, 1, 1, "NCHW4c", "NCHW4c"),
        in_blocks(x, 4),
        kernel,
    )
    np.testing.assert_allclose(made, in_blocks(expected, 4), rtol=1e-4, atol=1e-5)


TRANSPOSED = {
    "conv1d_transpose_ncw": (), "group_conv1d_transpose_ncw": (2,), "conv2d_transpose_nchw": (),
    "group_conv2d_transpose_nchw": (2,), "conv3d_transpose_ncdhw": (),
    "group_conv3d_transpose_ncdhw": (2,),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions(name: str) -> None:
    groups = TRANSPOSED[name]
    spatial = int(name[name.index("d_") - 1])
    x, w = numbers(2, 4, *(4, 3, 2)[:spatial]), numbers(4, 3, *(3, 2, 2)[:spatial])
    conv = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[spatial]
    expected = conv(t(x), t(w), None, 2, 1, 1, *groups).numpy()
    one = (1,) * spatial
    made = evaluate(lambda a, b: getattr(nn, name)(a, b, 2, 1, "float32", one, *groups), x, w)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("conv1d_ncw", "(data, kernel, strides=1, padding='VALID', dilation=1, out_dtype=None)"),
        ("conv2d_nhwc", "(Input, Filter, stride, padding, dilation, out_dtype='float32')"),
        ("group_conv2d_nchw", "(Input, Filter, stride, padding, dilation, groups, out_dtype=None)"),
        ("conv2d_transpose_nchw",
         "(Input, Filter, strides, padding, out_dtype, output_padding)"),
    ],
)  # fmt: skip
def test_forms_have_their_own_parameters(name: str, parameters: str) -> None:
    function = getattr(nn, name)
    assert str(inspect.signature(function)) == parameters
    assert function.__name__ == name and function.__doc__
    with pytest.raises(TypeError, match=f"{name}.*argument"):
        function(te.placeholder((1, 1, 4)), te.placeholder((1, 1, 3)), group=3)


def test_layouts_that_no_image_has() -> None:
    x, w = te.placeholder((1, 4, 4, 2)), te.placeholder((3, 3, 2, 4))
    with pytest.raises(VerifyError, match=r"layouts 'NHWC' of images and 'OIDHW'"):
        nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OIDHW")
    with pytest.raises(VerifyError, match="needs windows of constant extents"):
        nn.conv2d(x, te.placeholder((te.var("k"), 3, 2, 4)), 1, "SAME", data_layout="NHWC")
    with pytest.raises(VerifyError, match="'SAME', 'VALID' or numbers, got 'FULL'"):
        nn.conv2d(x, w, 1, "FULL", data_layout="NHWC")
    with pytest.raises(VerifyError, match="kernel_layout is one of HWOI, HWIO"):
        nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1, "OIHW")


POOLS = {
    1: (nn.pool1d, F.max_pool1d, F.avg_pool1d, "NCW", "NWC"),
    2: (nn.pool2d, F.max_pool2d, F.avg_pool2d, "NCHW", "NHWC"),
    3: (nn.pool3d, F.max_pool3d, F.avg_pool3d, "NCDHW", "NDHWC"),
}


@pytest.mark.parametrize("spatial", POOLS)
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("whole", [True, False])
def test_pools_by_kind_and_layout(spatial: int, kind: str, whole: bool) -> None:
    pool, largest, mean, plain, last = POOLS[spatial]
    x = numbers(2, 3, *(7, 5, 4)[:spatial])
    if kind == "max":
        expected = largest(t(x), 3, 2, 1, 1, not whole).numpy()
    else:
        expected = mean(t(x), 3, 2, 1, not whole, whole).numpy()
    size, one = (3,) * spatial, (1,) * spatial
    for layout in (plain, last):
        made = evaluate(
            lambda a, to=layout: pool(
                a, size, (2,) * spatial, one, one, kind, not whole, to, whole
            ),
            moved(x, plain, layout),
        )
        np.testing.assert_allclose(made, moved(expected, plain, layout), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "dilation", "padding"), [(3, 2, (1, 2)), (2, 4, (4, 4)), (2, 1, (3, 4))]
)
@pytest.mark.parametrize("include", [False, True], ids=["inside", "padding, too"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_means_of_windows_partly_or_wholly_in_padding(
    size: int, dilation: int, padding: tuple[int, int], include: bool, dtype: str
) -> None:
    x = np.arange(-7, 9).reshape(1, 2, 8).astype(dtype)
    padded = np.pad(x, ((0, 0), (0, 0), padding))
    counts = np.pad(np.ones(8), padding, constant_values=float(include))
    reach = (size - 1) * dilation + 1
    taps = [slice(o, o + reach, dilation) for o in range(padded.shape[-1] - reach + 1)]
    expected = np.stack(
        [padded[..., at].sum(-1) / max(counts[at].sum(), 1) for at in taps], axis=-1
    )
    made = evaluate(
        lambda a: nn.pool1d(
            a, [size], [1], [dilation], list(padding), "avg", count_include_pad=include
        ),
        x,
    )
    np.testing.assert_allclose(made, expected.astype(dtype), rtol=1e-6)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_adaptive_pools(kind: str) -> None:
    x = numbers(2, 3, 7, 5)
    pool = F.adaptive_max_pool2d if kind == "max" else F.adaptive_avg_pool2d
    for layout in ("NCHW", "NHWC"):
        for size in ((3, 2), (1, 1), (7, 5)):
            made = evaluate(
                lambda a, to=layout, n=size: nn.adaptive_pool(a, n, kind, to),
                moved(x, "NCHW", layout),
            )
            expected = moved(pool(t(x), size).numpy(), "NCHW", layout)
            np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    made = evaluate(lambda a: nn.global_pool(a, kind, "NHWC"), moved(x, "NCHW", "NHWC"))
    expected = (x.max((2, 3)) if kind == "max" else x.mean((2, 3)))[:, None, None]
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


GRADIENTS = {
    "max": ("max", 3, 2, 1, False, True),
    "max, overlapping": ("max", (3, 2), 1, (1, 0), False, True),
    "max, partial": ("max", 2, 3, 0, True, True),
    "avg": ("avg", 3, 2, 1, False, True),
    "avg, without padding": ("avg", 3, 2, 1, True, False),
    "avg, gaps": ("avg", 2, 3, 0, False, True),
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_pools(name: str, layout: str) -> None:
    kind, kernel, stride, padding, ceil, include = GRADIENTS[name]
    x = t(numbers(2, 3, 7, 5)).requires_grad_()
    if kind == "max":
        made = F.max_pool2d(x, kernel, stride, padding, 1, ceil)
    else:
        made = F.avg_pool2d(x, kernel, stride, padding, ceil, include)
    grad = numbers(*made.shape, seed=1)
    made.backward(t(grad))
    found = evaluate(
        lambda g, a: nn.pool_grad(g, a, kernel, stride, padding, kind, ceil, include, layout),
        moved(grad, "NCHW", layout),
        moved(x.detach().numpy(), "NCHW", layout),
    )
    expected = moved(x.grad.numpy(), "NCHW", layout)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


PADS = {
    "symmetric": (nn.mirror_pad, {}, "symmetric"),
    "reflect": (nn.mirror_pad, {"mode": "REFLECT"}, "reflect"),
    "reflect_pad": (nn.reflect_pad, {}, "reflect"),
    "replicate_pad": (nn.replicate_pad, {}, "edge"),
    "circular_pad": (nn.circular_pad, {}, "wrap"),
}


@pytest.mark.parametrize("name", PADS)
def test_pads_from_inside(name: str) -> None:
    pad, options, mode = PADS[name]
    x = numbers(3, 5, 2)
    made = evaluate(lambda a: pad(a, (2, 0, 0), (1, 4, 0), **options), x)
    np.testing.assert_array_equal(made, np.pad(x, ((2, 1), (0, 4), (0, 0)), mode=mode))


def test_pads_wrap_and_repeat_as_often_as_needed() -> None:
    x = numbers(2)
    for pad, mode in ((nn.circular_pad, "wrap"), (nn.replicate_pad, "edge")):
        made = evaluate(lambda a, pad=pad: pad(a, (5,), (7,)), x)
        np.testing.assert_array_equal(made, np.pad(x, (5, 7), mode=mode))
    with pytest.raises(VerifyError, match="2 elements do not give 2"):
        nn.reflect_pad(te.placeholder((2,)), (2,))
    with pytest.raises(VerifyError, match="nothing to repeat"):
        nn.replicate_pad(te.placeholder((0,)), (1,))


def test_dilate_puts_values_between() -> None:
    x = numbers(3, 1, 4)
    expected = np.full((5, 1, 10), 1.5, "float32")
    expected[::2, :, ::3] = x
    made = evaluate(lambda a: nn.dilate(a, (2, 2, 3), 1.5), x)
    np.testing.assert_array_equal(made, expected)
    assert evaluate(lambda a: nn.dilate(a, (2,)), numbers(0)).shape == (0,)


def test_norms_over_any_axes() -> None:
    x, g, b = numbers(2, 6, 3, 4), numbers(6, seed=1), numbers(6, seed=2)
    last = moved(x, "NCHW", "NHWC")
    expected = F.group_norm(t(x), 3, t(g), t(b)).numpy()
    made = evaluate(lambda a, s, o: nn.group_norm(a, s, o, 3, 1, [2, 3]), x, g, b)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
    made = evaluate(lambda a, s, o: nn.group_norm(a, s, o, 3, -1, [1, 2]), last, g, b)
    np.testing.assert_allclose(made, moved(expected, "NCHW", "NHWC"), rtol=1e-4, atol=1e-5)
    expected = F.instance_norm(t(x), None, None, t(g), t(b)).numpy()
    made = evaluate(lambda a, s, o: nn.instance_norm(a, s, o, 3, [1, 2]), last, g, b)
    np.testing.assert_allclose(made, moved(expected, "NCHW", "NHWC"), rtol=1e-4, atol=1e-5)


def test_batch_norm_in_training_gives_moving_statistics() -> None:
    x, g, b, mean, var = numbers(4, 3, 5), *(abs(numbers(3, seed=n)) for n in range(4))
    own, spread = x.mean((0, 2)), x.var((0, 2))
    expected = F.batch_norm(t(x), None, None, t(g), t(b), True, 0, 1e-5).numpy()
    for number, wanted in enumerate(
        (expected, 0.75 * mean + 0.25 * own, 0.75 * var + 0.25 * spread)
    ):
        made = evaluate(
            lambda *a, n=number: nn.batch_norm(*a, training=True, momentum=0.25)[n],
            x,
            g,
            b,
            mean,
            var,
        )
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_products_with_a_bias() -> None:
    a, b, c = numbers(3, 4), numbers(5, 4), numbers(5)
    made = evaluate(lambda x, y, z: nn.matmul(x, y, z, transpose_b=True), a, b, c)
    np.testing.assert_allclose(made, a @ b.T + c, rtol=1e-5, atol=1e-5)
    with pytest.raises(VerifyError, match="oshape"):
        nn.batch_matmul(te.placeholder((2, 3, 4)), te.placeholder((2, 5, 4)), (2, 3, 4))


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1), ((2, 3), (1, 0))])
def test_gradients_of_depthwise_convolutions(stride: Any, padding: Any) -> None:
    x, w = t(numbers(2, 3, 7, 6)).requires_grad_(), t(numbers(6, 1, 3, 2)).requires_grad_()
    made = F.conv2d(x, w, None, stride, padding, 1, 3)
    grad = numbers(*made.shape, seed=1)
    made.backward(t(grad))
    last = moved(grad, "NCHW", "NHWC")
    kernel = np.ascontiguousarray(w.detach().numpy().reshape(3, 2, 3, 2).transpose(2, 3, 0, 1))
    found = evaluate(
        lambda b, g: nn.depthwise_conv2d_backward_input_nhwc(
            b, g, g.shape, (2, 7, 6, 3), stride, padding
        ), kernel, last,
    )  # fmt: skip
    np.testing.assert_allclose(found, moved(x.grad.numpy(), "NCHW", "NHWC"), rtol=1e-4, atol=1e-5)
    found = evaluate(
        lambda a, g: nn.depthwise_conv2d_backward_weight_nhwc(
            a, g, g.shape, (3, 2, 3, 2), stride, padding
        ), moved(x.detach().numpy(), "NCHW", "NHWC"), last,
    )  # fmt: skip
    expected = w.grad.numpy().reshape(3, 2, 3, 2).transpose(2, 3, 0, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_padding_as_tuples() -> None:
    assert nn.get_pad_tuple("SAME", (4, 3)) == (2, 1, 1, 1)
    assert nn.get_pad_tuple((1, 2), (3, 3)) == (1, 2, 1, 2)
    assert nn.get_pad_tuple1d("SAME", (4,)) == (2, 1)
    assert nn.get_pad_tuple3d("VALID", (4, 3, 2)) == (0,) * 6
    assert nn.get_pad_tuple_generic((1, 2, 3, 4), (3, 3)) == ((1, 2), (3, 4))
