"""Images of another size: graph operator and PyTorch's, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tests.relax.helpers import graph, graph_of, random, symbol
from tilewright import relax
from tilewright.relax import interpreter, op
from tilewright.support.errors import TilewrightError, VerifyError

torch = pytest.importorskip("torch")

from tilewright.relax.frontend.torch import from_exported_program  # noqa: E402

EXACT = {"method": "nearest_neighbor", "rounding_method": "pytorch"}
NEAREST = {**EXACT, "coordinate_transformation_mode": "asymmetric"}
ALIGNED = {"coordinate_transformation_mode": "align_corners"}
# Shape, options of PyTorch's `interpolate`, and those of the operator besides the size.
CASES: dict[str, tuple[tuple[int, ...], dict[str, Any], dict[str, Any]]] = {
    "nearest twice": ((2, 3, 7, 9), {"size": (14, 18), "mode": "nearest"}, NEAREST),
    "nearest thrice": ((1, 2, 40, 50), {"size": (120, 150), "mode": "nearest"}, NEAREST),
    "nearest odd": ((1, 2, 7, 9), {"size": (11, 4), "mode": "nearest"}, NEAREST),
    "nearest factors": (
        (1, 2, 9, 8),
        {"scale_factor": (1.7, 2.3), "mode": "nearest"},
        {**NEAREST, "scale_factor": (1.7, 2.3)},
    ),
    "exact": ((2, 2, 7, 9), {"size": (10, 5), "mode": "nearest-exact"}, EXACT),
    "linear twice": ((2, 3, 20, 40), {"size": (40, 80), "mode": "bilinear"}, {}),
    "linear thrice": ((1, 3, 8, 33), {"size": (24, 99), "mode": "bilinear"}, {}),
    "linear smaller": ((1, 3, 20, 70), {"size": (7, 31), "mode": "bilinear"}, {}),
    "linear odd": ((1, 3, 17, 37), {"size": (23, 101), "mode": "bilinear"}, {}),
    "linear much wider": ((1, 1, 2, 3), {"size": (3, 200), "mode": "bilinear"}, {}),
    "linear factors": (
        (1, 2, 9, 30),
        {"scale_factor": (1.3, 2.7), "mode": "bilinear"},
        {"scale_factor": (1.3, 2.7)},
    ),
    "corners": (
        (1, 2, 9, 21),
        {"size": (20, 64), "mode": "bilinear", "align_corners": True},
        ALIGNED,
    ),
    "corners of one": (
        (1, 2, 5, 6),
        {"size": (1, 1), "mode": "bilinear", "align_corners": True},
        ALIGNED,
    ),
    "one pixel": ((1, 2, 1, 1), {"size": (5, 40), "mode": "bilinear"}, {}),
    "no image": ((0, 2, 4, 4), {"size": (8, 8), "mode": "bilinear"}, {}),
}


def resized(name: str) -> tuple[np.ndarray, np.ndarray, Any]:
    shape, theirs, ours = CASES[name]
    x = random(*shape)
    expected = (
        np.empty((0, 2, 8, 8), "float32")
        if 0 in shape
        else torch.nn.functional.interpolate(torch.from_numpy(x), **theirs).numpy()
    )
    return x, expected, lambda x: op.image.resize2d(x, expected.shape[2:], **ours)


def check(found: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=2e-5)


@few("name", CASES, every=3)
def test_scheduled(name: str) -> None:
    x, expected, body = resized(name)
    check(relax.build(graph_of(body, x))(x), expected)


@pytest.mark.parametrize("name", CASES)
def test_interpreted_and_folded(name: str) -> None:
    x, expected, body = resized(name)
    check(interpreter.run(graph_of(body, x), x), expected)
    folded = relax.transform.FoldConstant()(graph(lambda: body(relax.const(x))))
    check(interpreter.run(folded), expected)


# Builder, options, PyTorch's mode, and shapes of an image and of the result.
BY_AXIS: dict[str, tuple[Any, dict[str, Any], str, tuple[int, ...], tuple[int, ...]]] = {
    "cubic": (op.image.resize2d, {"method": "cubic"}, "bicubic", (1, 2, 7, 9), (11, 5)),
    "aligned cubic": (
        op.image.resize2d, {"method": "cubic", **ALIGNED}, "bicubic", (1, 2, 7, 9), (3, 1),
    ),
    "rows": (op.image.resize1d, {}, "linear", (2, 3, 9), (4,)),
    "aligned rows": (op.image.resize1d, ALIGNED, "linear", (2, 3, 9), (14,)),
    "nearest rows": (op.image.resize1d, NEAREST, "nearest", (2, 3, 9), (13,)),
    "volumes": (op.image.resize3d, {}, "trilinear", (1, 2, 3, 4, 5), (5, 2, 7)),
    "exact volumes": (op.image.resize3d, EXACT, "nearest-exact", (1, 2, 3, 4, 5), (5, 2, 7)),
    "smooth": (op.image.resize, {"antialias": True}, "bilinear", (1, 2, 9, 7), (4, 8)),
    "smooth cubic": (
        op.image.resize, {"antialias": True, "method": "cubic"}, "bicubic", (1, 2, 9, 7), (4, 8),
    ),
}  # fmt: skip


@few("name", BY_AXIS, every=2)
def test_axis_by_axis(name: str) -> None:
    build, ours, mode, shape, size = BY_AXIS[name]
    x = random(*shape)
    theirs = {"align_corners": True} if ALIGNED.items() <= ours.items() else {}
    theirs |= {"antialias": True} if "antialias" in ours else {}
    expected = torch.nn.functional.interpolate(torch.from_numpy(x), size, mode=mode, **theirs)
    for extents in (size, None):  # known, and as large as another tensor

        def body(x: Any, like: Any, extents: Any = extents) -> Any:
            return build(x, like.shape[2:] if extents is None else extents, **ours)

        like = np.zeros((1, 1, *size), "float32")
        sizes = ["n", "k", *"abc"[: len(size)]], ["i", "j", *"uvw"[: len(size)]]
        mod = symbolic_graph(body, *sizes) if extents is None else graph_of(body, x, like)
        check(relax.build(mod)(x, like), expected.numpy())
    folded = relax.transform.FoldConstant()(graph(lambda: build(relax.const(x), size, **ours)))
    check(interpreter.run(folded), expected.numpy())


def symbolic_graph(body: Any, *shapes: Any) -> Any:
    """A graph of float32 tensors whose extents are named."""
    names = {name: symbol(name) for shape in shapes for name in shape}
    infos = [relax.TensorStructInfo([names[n] for n in shape], "float32") for shape in shapes]
    return graph(body, *infos)


def test_an_image_without_pixels_is_refused_when_called() -> None:
    mod = symbolic_graph(lambda x: op.image.resize1d(x, (3,)), ["n", "c", "w"])
    run = relax.build(mod)
    assert run(np.zeros((0, 2, 4), "float32")).numpy().shape == (0, 2, 3)
    with pytest.raises(RuntimeError, match="the image is empty"):
        run(np.zeros((1, 2, 0), "float32"))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8"])
def test_dtypes(dtype: str) -> None:
    x = (random(1, 2, 6, 17) * 50).astype(dtype)
    options: dict[str, Any] = NEAREST if dtype == "int8" else {}
    mode = "nearest" if dtype == "int8" else "bilinear"
    wide = torch.from_numpy(x.astype("float64"))
    expected = torch.nn.functional.interpolate(wide, size=(9, 51), mode=mode).numpy()
    found = relax.build(graph_of(lambda x: op.image.resize2d(x, (9, 51), **options), x))(x)
    assert found.numpy().dtype == dtype
    tolerance = 1e-2 if dtype == "float16" else 1e-9 if dtype == "float64" else 0
    np.testing.assert_allclose(found.numpy().astype("float64"), expected, tolerance, tolerance)


def test_channels_last() -> None:
    x = random(2, 8, 9, 3)
    for options in (NEAREST, {}):
        first = op_result(x.transpose(0, 3, 1, 2).copy(), "NCHW", options)
        last = op_result(x, "NHWC", options)
        np.testing.assert_allclose(last, first.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6)


def op_result(x: np.ndarray, layout: str, options: dict[str, Any]) -> np.ndarray:
    body = graph_of(lambda x: op.image.resize2d(x, (19, 20), None, layout, **options), x)
    return np.asarray(relax.build(body)(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "area"}, "nearest_neighbor, linear, cubic"),
        ({"coordinate_transformation_mode": "tf"}, "half_pixel, align_corners, asymmetric"),
        ({"layout": "CHWN"}, "NCHW, NHWC"),
        ({"scale_factor": (0.0, 1.0)}, "positive"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises((VerifyError, TilewrightError), match=message):
        graph_of(lambda x: op.image.resize2d(x, (4, 4), **options), random(1, 2, 3, 3))


class Resizing(torch.nn.Module):
    """All ways to say it in PyTorch."""

    def forward(self, x: Any) -> list[Any]:
        resize = torch.nn.functional.interpolate
        return [
            resize(x, scale_factor=2, mode="nearest"),
            resize(x, size=(11, 5), mode="nearest"),
            resize(x, scale_factor=1.5, mode="nearest-exact"),
            resize(x, size=(20, 30), mode="bilinear"),
            resize(x, scale_factor=(1.3, 2.6), mode="bilinear"),
            resize(x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True),
            resize(x, scale_factor=1.5, mode="bilinear", align_corners=True),
            torch.ops.aten.upsample_bilinear2d(x, [9, 12], False, 1.25, 1.75),
            torch.ops.aten.upsample_nearest2d(x, [9, 12]),
        ]


def test_torch_models_keep_it_whole() -> None:
    x = torch.randn(1, 3, 8, 7, generator=torch.Generator().manual_seed(0))
    mod = from_exported_program(torch.export.export(Resizing().eval(), (x,)))
    text = mod.script()
    assert text.count("image.resize2d") == 9
    for found, expected in zip(interpreter.run(mod, x.numpy()), Resizing()(x)):
        check(found, expected.numpy())
