"""Operators with TVM's arguments, through `tilewright.compile`, against PyTorch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tests.relax.helpers import graph, graph_of, random, symbol, tensor
from tests.relax.test_gradients import check_with_torch
from tilewright import relax
from tilewright.relax import gradients, op
from tilewright.script import relax as R
from tilewright.script.ir_builder import IRBuilder
from tilewright.script.ir_builder import relax as B
from tilewright.support.errors import VerifyError

torch = pytest.importorskip("torch")
F = torch.nn.functional

AXES = {1: "W", 2: "HW", 3: "DHW"}


def compiled(body: Any, *arrays: np.ndarray) -> Any:
    """What the graph of a body gives, as arrays."""
    made = tilewright.compile(graph_of(body, *arrays), target="llvm")(*arrays)
    if isinstance(made, (tuple, list)):
        return [np.asarray(item) for item in made]
    return np.asarray(made)


def check(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(
        found.astype("float64"), expected.astype("float64"), tolerance, tolerance
    )


def turned(x: np.ndarray, have: str, want: str) -> np.ndarray:
    return np.ascontiguousarray(x.transpose([have.index(axis) for axis in want]))


# ---- layouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("out_layout", [None, "usual"])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_convolutions_of_channels_last(spatial: int, out_layout: str | None) -> None:
    axes = "NC" + AXES[spatial]
    last, kernel, own = "N" + AXES[spatial] + "C", AXES[spatial] + "IO", "OI" + AXES[spatial]
    x, w = random(2, 4, *[5, 6, 4][:spatial]), random(6, 2, *[3, 2, 3][:spatial], seed=1)
    expected = getattr(F, f"conv{spatial}d")(
        torch.from_numpy(x), torch.from_numpy(w), None, 2, 1, 1, 2
    ).numpy()
    wanted = last if out_layout is None else axes
    found = compiled(
        lambda x, w: getattr(op.nn, f"conv{spatial}d")(
            x, w, 2, 1, 1, 2, last, kernel, None if out_layout is None else axes
        ),
        turned(x, axes, last),
        turned(w, own, kernel),
    )
    check(found, turned(expected, axes, wanted))


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_transposed_convolutions_of_channels_last(spatial: int) -> None:
    axes = "NC" + AXES[spatial]
    last, kernel, own = "N" + AXES[spatial] + "C", "O" + AXES[spatial] + "I", "IO" + AXES[spatial]
    x, w = random(2, 4, *[5, 3, 4][:spatial]), random(4, 3, *[3, 2, 3][:spatial], seed=1)
    expected = getattr(F, f"conv_transpose{spatial}d")(
        torch.from_numpy(x), torch.from_numpy(w), None, 2, 1, 1
    ).numpy()
    found = compiled(
        lambda x, w: getattr(op.nn, f"conv{spatial}d_transpose")(x, w, 2, 1, 1, 1, 1, last, kernel),
        turned(x, axes, last),
        turned(w, own, kernel),
    )
    check(found, turned(expected, axes, last))


@pytest.mark.parametrize(
    ("have", "want"), [("int8", "int32"), ("float16", "float32"), ("float32", "float16")]
)
def test_out_dtype_of_a_convolution(have: str, want: str) -> None:
    x, w = (np.rint(random(*shape) * 9).astype(have) for shape in ((1, 3, 5, 5), (4, 3, 3, 3)))
    expected = F.conv2d(*(torch.from_numpy(item.astype("float64")) for item in (x, w)))
    found = compiled(lambda x, w: op.nn.conv2d(x, w, out_dtype=want), x, w)
    check(found, expected.numpy().astype(want))


def test_convolutions_of_bytes_of_either_sign() -> None:
    x, w = np.uint8([[[200, 3, 4]]]), np.int8([[[-100, 5]]])
    found = compiled(lambda x, w: op.nn.conv1d(x, w, out_dtype="int32"), x, w)
    check(found, np.int32([[[-19985, -280]]]))
    found = compiled(lambda x, w: op.nn.conv1d_transpose(x, w, out_dtype="int32"), x, w)
    check(found, np.int32([[[-20000, 700, -385, 20]]]))
    for dtype in (None, "int4"):
        with pytest.raises(VerifyError, match="operands have dtypes uint8 and int8"):
            graph_of(lambda x, w, dtype=dtype: op.nn.conv1d(x, w, out_dtype=dtype), x, w)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_pools_of_channels_last(spatial: int, kind: str) -> None:
    axes, last = "NC" + AXES[spatial], "N" + AXES[spatial] + "C"
    x = random(2, 3, *[6, 5, 4][:spatial])
    theirs = getattr(F, f"{kind}_pool{spatial}d")
    image = torch.from_numpy(x)
    options: dict[str, Any] = {} if kind == "max" else {"count_include_pad": spatial != 2}
    expected = theirs(image, 3, 2, 1, **options).numpy()
    pool = getattr(op.nn, f"{kind}_pool{spatial}d")
    found = compiled(lambda x: pool(x, 3, 2, 1, layout=last), turned(x, axes, last))
    check(found, turned(expected, axes, last))
    adaptive = getattr(op.nn, f"adaptive_{kind}_pool{spatial}d")
    expected = getattr(F, f"adaptive_{kind}_pool{spatial}d")(image, 2).numpy()
    found = compiled(lambda x: adaptive(x, 2, last, axes), turned(x, axes, last))
    check(found, expected)
    whole = graph_of(lambda x: adaptive(x, layout=last), turned(x, axes, last))
    assert [int(str(n)) for n in whole["main"].ret_struct_info.shape] == [
        *turned(x, axes, last).shape
    ]


def test_dilated_means_and_their_gradient() -> None:
    x = random(1, 2, 7, 6)

    def theirs(x: Any) -> Any:
        taps = F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 2).unfold(3, 3, 1)[..., ::2, ::2]
        ones = F.pad(torch.ones_like(x), (1, 1, 1, 1)).unfold(2, 3, 2).unfold(3, 3, 1)
        return taps.sum((-1, -2)) / ones[..., ::2, ::2].sum((-1, -2))

    check_with_torch(lambda x: op.nn.avg_pool2d(x, 2, (2, 1), 1, 2), theirs, [x])


GRADIENTS: dict[str, tuple[Any, Any, list[np.ndarray]]] = {
    "conv2d NHWC": (
        lambda x, w: op.nn.conv2d(x, w, 2, 1, data_layout="NHWC", kernel_layout="HWIO"),
        lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), None, 2, 1).permute(
            0, 2, 3, 1
        ),
        [random(1, 5, 6, 3), random(3, 3, 3, 4)],
    ),
    "max_pool2d NHWC": (
        lambda x: op.nn.max_pool2d(x, 2, 2, layout="NHWC"),
        lambda x: F.max_pool2d(x.permute(0, 3, 1, 2), 2, 2).permute(0, 2, 3, 1),
        [random(1, 4, 6, 3)],
    ),
    "layer_norm without scale": (
        lambda x, g: op.nn.layer_norm(x, g, g, [-1], scale=False),
        lambda x, g: F.layer_norm(x, (5,)) + g,
        [random(3, 5), random(5, seed=1)],
    ),
    "instance_norm": (
        lambda x, g, b: op.nn.instance_norm(x, g, b, 1, [2, 3]),
        lambda x, g, b: F.instance_norm(x, weight=g, bias=b),
        [random(2, 3, 4, 5), random(3), random(3, seed=1)],
    ),
    "grid_sample": (
        lambda x, g: op.image.grid_sample(x, op.permute_dims(g, (0, 3, 1, 2)), align_corners=True),
        lambda x, g: F.grid_sample(x, g, align_corners=True),
        [random(2, 3, 5, 6), random(2, 3, 4, 2, seed=1) / 2],
    ),
    "affine_grid": (
        lambda x: op.image.affine_grid(x, (3, 4)),
        lambda x: F.affine_grid(x, (2, 1, 3, 4), align_corners=True).permute(0, 3, 1, 2),
        [random(2, 2, 3)],
    ),
    **{
        f"{mode} pad": (
            lambda x, mode=mode: op.nn.pad(x, (0, 0, 1, 2, 3, 0), mode),
            lambda x, mode=mode: F.pad(x[None], (3, 0, 1, 2), mode)[0],
            [random(2, 4, 5)],
        )
        for mode in ("reflect", "replicate", "circular")
    },
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    body, theirs, arrays = GRADIENTS[name]
    check(compiled(body, *arrays), theirs(*map(torch.from_numpy, arrays)).numpy(), tolerance=1e-4)
    check_with_torch(body, theirs, arrays)


def test_exclusive_scans_of_any_length() -> None:
    for scan, first in ((op.cumsum, 0), (op.cumprod, 1)):
        mod = graph(lambda x, scan=scan: scan(x, 0, exclusive=True), tensor((symbol("n"), 2)))
        run = relax.build(mod)
        x = random(3, 2)
        later = np.cumsum(x[:2], 0) if first == 0 else np.cumprod(x[:2], 0)
        check(np.asarray(run(x)), np.concatenate([np.full((1, 2), first, "float32"), later]))
        assert np.asarray(run(x[:0])).shape == (0, 2)


def test_gradient_of_a_pad_that_takes_away() -> None:
    check_with_torch(
        lambda x: op.nn.pad(x, (1, -2, -1, 2), "constant", 3.0),
        lambda x: F.pad(x, (-1, 2, 1, -2), value=3.0),
        [random(3, 4)],
    )


# ---- norms -------------------------------------------------------------------------------------


def test_batch_norm_gives_its_statistics_too() -> None:
    x, gamma, beta, mean = random(4, 3, 5), random(3), random(3, seed=1), random(3, seed=2)
    var = np.abs(random(3, seed=3)) + 1
    for training in (True, False):
        new_mean, new_var = mean, var
        used_mean, used_var = mean, var
        if training:
            used_mean, used_var = x.mean((0, 2)), x.var((0, 2))
            new_mean = mean * np.float32(0.9) + used_mean * np.float32(0.1)
            new_var = var * np.float32(0.9) + used_var * np.float32(0.1)
        view = (1, 3, 1)
        normal = (x - used_mean.reshape(view)) / np.sqrt(used_var.reshape(view) + 1e-5)
        made = (normal * gamma.reshape(view) + beta.reshape(view)).astype("float32")
        found = compiled(
            lambda *t, training=training: op.nn.batch_norm(*t, 1, training=training),
            x, gamma, beta, mean, var,
        )  # fmt: skip
        for have, want in zip(found, (made, new_mean, new_var)):
            check(have, want, 1e-4)


def test_batch_norm_refuses_other_dtypes() -> None:
    stats = [tensor((3,))] * 4
    with pytest.raises(VerifyError, match="operands have dtypes float16 and float32"):
        graph(lambda *t: op.nn.batch_norm(*t)[0], tensor((2, 3), "float16"), *stats)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("channel", [1, 3])
def test_groups_along_any_axis(channel: int, dtype: str) -> None:
    x = random(2, 4, 3, 4).astype(dtype)
    gamma, beta = random(4).astype(dtype), random(4, seed=1).astype(dtype)
    first = x if channel == 1 else turned(x, "NHWC", "NCHW")
    wide = [torch.from_numpy(item.astype("float32")) for item in (first, gamma, beta)]
    others = [axis for axis in (1, 2, 3) if axis != channel]
    tolerance = 2e-3 if dtype == "float16" else 1e-4
    for center, scale in ((True, True), (False, True), (True, False)):
        weights = wide[1] if scale else None, wide[2] if center else None
        expected = F.group_norm(wide[0], 2, *weights).numpy()
        expected = expected if channel == 1 else turned(expected, "NCHW", "NHWC")
        found = compiled(
            lambda x, g, b, flags=(center, scale): op.nn.group_norm(
                x, g, b, 2, channel, others, 1e-5, *flags
            ),
            x, gamma, beta,
        )  # fmt: skip
        check(found, expected.astype(dtype), tolerance)


def test_a_pad_that_has_nothing_to_repeat_is_refused() -> None:
    mod = graph(lambda x: op.nn.pad(x, (2, 1), "reflect"), tensor((symbol("n"),)))
    run = relax.build(mod)
    np.testing.assert_array_equal(np.asarray(run(np.float32([1, 2, 3]))), [3, 2, 1, 2, 3, 2])
    with pytest.raises(RuntimeError, match="reflect of 2 elements needs 3 along axis 0"):
        run(np.float32([1, 2]))
    with pytest.raises(VerifyError, match="pad_mode is one of constant, reflect"):
        graph(lambda x: op.nn.pad(x, (2, 1), "edge"), tensor((4,)))


# ---- images ------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_grid_sample_of_either_layout(layout: str) -> None:
    x, grid = random(2, 3, 5, 6), random(2, 2, 4, 3, seed=1)
    expected = F.grid_sample(
        torch.from_numpy(x), torch.from_numpy(turned(grid, "NCHW", "NHWC")), align_corners=False
    ).numpy()
    found = compiled(
        lambda x, g: op.image.grid_sample(x, g, layout=layout), turned(x, "NCHW", layout), grid
    )
    check(found, turned(expected, "NCHW", layout), 1e-4)


def test_affine_grid_between_edges() -> None:
    matrices = random(2, 3, 4)
    expected = F.affine_grid(torch.from_numpy(matrices), (2, 1, 2, 3, 4), align_corners=False)
    found = compiled(lambda x: op.image.affine_grid(x, (2, 3, 4), False), matrices)
    check(found, expected.permute(0, 4, 1, 2, 3).numpy(), 1e-4)


def test_resize_with_all_of_tvms_arguments() -> None:
    x = np.arange(6, dtype="float32").reshape(1, 1, 1, 6)
    # Halves round to even: pixels 0.5, 2.5 and 4.5.
    found = compiled(lambda x: op.image.resize2d(x, (1, 3), method="nearest_neighbor"), x)
    np.testing.assert_array_equal(found.ravel(), [0, 2, 4])
    crop = compiled(
        lambda x: op.image.resize2d(
            x, (1, 3), (0, 0.4, 0, 1.2), "NCHW", "linear", "tf_crop_and_resize", "", -0.75, 0, 9.5,
            "float16",
        ),
        x,
    )  # fmt: skip
    assert crop.dtype == np.float16
    np.testing.assert_allclose(crop.ravel(), [2, 4, 9.5], rtol=1e-3)
    bytes_ = compiled(lambda x: op.image.resize2d(x, (1, 3)), x.astype("uint8"))
    assert bytes_.dtype == np.uint8
    with pytest.raises(VerifyError, match="takes no scale_factor"):
        graph_of(
            lambda x: op.image.resize2d(x, 2, method="nearest_neighbor", scale_factor=(1, 1)), x
        )


# ---- boxes and regions -------------------------------------------------------------------------

BOXES = np.float32(
    [[[0, 0.9, 0, 0, 4, 4], [0, 0.8, 0, 0, 4, 5], [1, 0.7, 0, 0, 4, 4], [-1, 0.9, 0, 0, 1, 1]]]
)


def test_boxes_that_overlap_a_better_one() -> None:
    def body(data: Any) -> Any:
        count, rows, places = (op.vision.get_valid_counts(data, 0.5)[n] for n in range(3))
        return op.vision.non_max_suppression(rows, count, places, iou_threshold=0.5)

    kept, number = compiled(body, BOXES)
    assert number.tolist() == [[2]]
    assert kept.tolist() == [[0, 2, -1, -1]]
    count, rows, places = compiled(lambda x: op.vision.get_valid_counts(x, 0.5), BOXES)
    assert (count.tolist(), places.tolist()) == ([3], [[0, 1, 2, -1]])
    np.testing.assert_array_equal(rows[0, :3], BOXES[0, :3])


@pytest.mark.parametrize("form", ["onnx", "tensorflow"])
def test_boxes_of_all_classes(form: str) -> None:
    boxes = np.ascontiguousarray(BOXES[:, :, 2:])
    scores = np.float32([[[0.9, 0.8, 0.1, 0.6], [0.1, 0.7, 0.9, 0.2]]])
    found = compiled(
        lambda b, s: op.all_class_non_max_suppression(b, s, 2, 0.5, 0.3, form), boxes, scores
    )
    if form == "onnx":
        rows, count = found
        assert count.tolist() == [3]
        assert rows[:3].tolist() == [[0, 0, 0], [0, 0, 3], [0, 1, 2]]
    else:
        rows, best, count = found
        assert count.tolist() == [3]
        assert rows[0, :3].tolist() == [[0, 0], [0, 3], [1, 2]]
        np.testing.assert_allclose(best[0, :3], [0.9, 0.6, 0.9])


def test_regions() -> None:
    x = np.arange(36, dtype="float32").reshape(1, 1, 6, 6)
    rois = np.float32([[0, 0, 0, 3, 3], [0, 2, 2, 5, 5]])
    pooled = compiled(lambda x, r: op.vision.roi_pool(x, r, (2, 2), 1.0), x, rois)
    check(pooled, np.float32([[[[7, 9], [19, 21]]], [[[21, 23], [33, 35]]]]))
    # Cells of one point each: the middles of quarters.
    aligned = compiled(
        lambda x, r: op.vision.roi_align(x, r, 2, 1.0, 1, layout="NHWC"),
        turned(x, "NCHW", "NHWC"),
        rois,
    )
    places = np.float32([[0.75, 2.25], [2.75, 4.25]])
    expected = [[[[6 * y + z] for z in row] for y in row] for row in places]
    check(aligned, np.float32(expected))


def test_predictions_become_boxes() -> None:
    classes, offsets = random(1, 3, 2), random(1, 8, seed=1) / 4
    anchors = np.float32([[[0.1, 0.2, 0.5, 0.8], [0.3, 0.3, 0.9, 0.6]]])
    boxes, scores = compiled(
        lambda c, o, a: op.multibox_transform_loc(c, o, a, variances=(0.1, 0.1, 0.2, 0.2),
                                                  keep_background=False),
        classes, offsets, anchors,
    )  # fmt: skip
    left, top, right, bottom = (anchors[0, :, n] for n in range(4))
    x, y, w, h = offsets.reshape(2, 4).T * np.float32([[0.1], [0.1], [0.2], [0.2]])
    middle = (left + right) / 2 + x * (right - left), (top + bottom) / 2 + y * (bottom - top)
    half = np.exp(w) * (right - left) / 2, np.exp(h) * (bottom - top) / 2
    sides = [middle[1] - half[1], middle[0] - half[0], middle[1] + half[1], middle[0] + half[0]]
    check(boxes, np.stack(sides, -1)[None])
    expected = torch.softmax(torch.from_numpy(classes), 1).numpy()
    expected[:, 0] = 0
    check(scores, expected)


# ---- attention and losses ----------------------------------------------------------------------


def attended(q: Any, k: Any, v: Any, seen: np.ndarray) -> np.ndarray:
    """PyTorch's attention over `[batch, sequence, heads, depth]`; zero where nothing is seen."""
    q, k, v = (torch.from_numpy(item).transpose(1, 2) for item in (q, k, v))
    made = F.scaled_dot_product_attention(q, k, v, torch.from_numpy(seen))
    return torch.nan_to_num(made.transpose(1, 2)).numpy()


@pytest.mark.parametrize("causal", ["TopLeft", "BottomRight"])
def test_attention_in_a_window(causal: str) -> None:
    q, k = random(1, 4, 2, 8), random(1, 6, 2, 8, seed=1)
    rows = np.arange(4)[:, None] + (2 if causal == "BottomRight" else 0)
    near = (np.arange(6) <= rows) & (np.arange(6) > rows - 2)
    found = compiled(lambda q, k: op.nn.attention(q, k, k, causal_mask=causal, window_size=2), q, k)
    check(found, attended(q, k, k, near), 1e-4)
    bias = random(1, 2, 4, 6, seed=2)
    found = compiled(lambda q, k, b: op.nn.attention_bias(q, k, k, b, None, causal, 2), q, k, bias)
    check(found, attended(q, k, k, np.where(near, bias, -np.inf).astype("float32")), 1e-4)
    with pytest.raises(VerifyError, match="needs a causal_mask"):
        graph_of(lambda q, k: op.nn.attention(q, k, k, window_size=2), q, k)


@pytest.mark.parametrize("causal", [None, "TopLeft", "BottomRight"])
def test_attention_of_sequences_side_by_side(causal: str | None) -> None:
    starts, other = np.int32([0, 2, 2, 7]), np.int32([0, 3, 4, 8])
    q, k, most = random(1, 8, 2, 4), random(1, 8, 2, 4, seed=1), np.int32([5])
    expected = np.zeros_like(q)
    for a, b, c, d in zip(starts, starts[1:], other, other[1:]):
        seen = np.ones((b - a, d - c), bool)
        if causal:
            seen = np.tril(seen, (d - c) - (b - a) if causal == "BottomRight" else 0)
        expected[:, a:b] = attended(q[:, a:b], k[:, c:d], k[:, c:d], seen)
    found = compiled(
        lambda q, k, s, m, t: op.nn.attention_var_len(q, k, k, s, m, t, m, causal_mask=causal),
        q, k, starts, most, other,
    )  # fmt: skip
    check(found, expected, 1e-4)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradient_of_a_loss_by_itself(reduction: str) -> None:
    scores, classes = random(3, 4, 2), np.int64([[0, 3], [1, -100], [2, 2]])
    weights = np.abs(random(4, seed=1)) + np.float32(0.5)
    x = torch.from_numpy(scores).requires_grad_()
    loss = F.nll_loss(x, torch.from_numpy(classes), torch.from_numpy(weights), reduction=reduction)
    grad = random(*loss.shape, seed=2)
    loss.backward(torch.from_numpy(np.asarray(grad)))
    found = compiled(
        lambda g, p, t, w: op.grad.nll_loss_backward(g, p, t, w, reduction),
        np.asarray(grad, "float32"), scores, classes, weights,
    )  # fmt: skip
    check(found, x.grad.numpy())


# ---- small ones --------------------------------------------------------------------------------


def test_a_tensor_full_of_a_tensor() -> None:
    assert graph(lambda: op.full((2, 3), relax.const(1, "int32")))[
        "main"
    ].ret_struct_info.dtype == ("int32")
    value = np.asarray(2.5, "float32")
    check(compiled(lambda v: op.full((2, 3), v), value), np.full((2, 3), value))
    check(compiled(lambda v: op.full((2,), v, "int8"), value), np.full((2,), 2, "int8"))
    with pytest.raises(VerifyError, match="fill_value has no axes"):
        graph(lambda x: op.full((2,), x), tensor((2,)))


def test_medians_of_several_axes() -> None:
    x = random(3, 5, 4)
    t = torch.from_numpy(x)
    check(compiled(lambda x: op.median(x), x), t.median().numpy())
    rows = t.permute(1, 0, 2).reshape(5, 12).median(1).values.numpy()
    check(compiled(lambda x: op.median(x, [0, -1]), x), rows)
    check(compiled(lambda x: op.median(x, [0, -1], True), x), rows.reshape(1, 5, 1))
    values, places = compiled(lambda x: op.median(x, [1]), x)
    check(values, t.median(1).values.numpy())
    check(places, t.median(1).indices.numpy())


def test_levels_of_gradients() -> None:
    def gradient(*_: Any) -> list[Any]:
        return [None]

    kept = gradients.GRADIENTS["tanh"]
    try:
        op.register_gradient("relax.tanh", gradient, 5)
        assert gradients.GRADIENTS["tanh"] is kept
        with pytest.raises(VerifyError, match="has a gradient"):
            op.register_gradient("relax.tanh", gradient)
        op.register_gradient("relax.tanh", gradient, level=11)
        assert gradients.GRADIENTS["tanh"] is gradient
    finally:
        op.register_gradient("tanh", kept, override=True)


def test_calls_state_their_result_by_either_name() -> None:
    x = relax.Var("x", tensor((2,)))
    for name in ("out_ty", "out_sinfo"):
        call = op.call_dps_packed("f", (x,), **{name: tensor((2,))})
        assert relax.struct_info.same_struct_info(call.struct_info, x.struct_info)
    for name in ("ty_args", "sinfo_args"):
        call = op.call_pure_packed("f", x, **{name: tensor((3,))})
        assert [int(str(n)) for n in call.struct_info.shape] == [3]


# ---- script and builder ------------------------------------------------------------------------


def test_nodes_and_options_of_the_dialect() -> None:
    @R.function(pure=True, private=False, check_well_formed=True)
    def main(x: R.Tensor((4, 2), "float32"), s: R.Shape(ndim=2)):
        pair = R.tuple(x, R.ShapeExpr([4, 2]))
        first = R.TupleGetItem(pair, 0)
        y = R.match_cast(first, ty=R.Tensor(None, "float32", ndim=2))
        z = R.emit(R.emit_with_ty("relax.abs", (y,)), annotate_ty=R.Tensor(("n", 2), "float32"))
        return R.call_pure_packed("f", z, ty_args=R.Tensor((4,), "float32"))

    assert "R.abs" in main.script()
    assert repr(main.ret_struct_info) == "Tensor((4,), float32)"
    assert relax.ExternFunc("f").global_symbol == R.ExternFunc(global_symbol="f").global_symbol
    assert (R.cuda(1), R.device("cpu")) == (R.device("cuda", 1), R.cpu())
    with pytest.raises(VerifyError, match="no builder is open"):
        R.func_name("main")


def test_frames_of_the_builder_are_in_the_dialect() -> None:
    y = relax.Var("y", tensor((3,)))
    with IRBuilder() as builder, B.function():
        R.func_name("main")
        x = R.arg("x", R.Tensor((3,), "float32"))
        assert R.emit_var_binding(relax.VarBinding(y, op.abs(x))) is y
        R.func_ret_type(R.Tensor((3,), "float32"))
        R.func_ret_value(y)
    np.testing.assert_array_equal(
        relax.interpreter.run(
            tilewright.ir.IRModule({"main": builder.get()}), np.float32([-1, 2, -3])
        ),
        [1, 2, 3],
    )
