"""``SplitBatch``: which layers run for a part of the batch at a time; results stay the same.

The target's second-level cache is small here, so that small images are large ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tests.relax.helpers import agree, graph, graph_of, random, symbol, tensor, values
from tilewright import relax
from tilewright.ir import IRModule
from tilewright.relax import op
from tilewright.relax.transform import SplitBatch
from tilewright.target import Target

SMALL = Target("llvm -mcpu=x86-64-v3 -l2=64 -num-cores=1")


def weight(*shape: int) -> relax.Constant:
    return relax.const(random(*shape, seed=sum(shape)))


def conv(x: Any, filters: int, channels: int, **attrs: Any) -> Any:
    return op.nn.conv2d(x, weight(filters, channels, 3, 3), padding=(1, 1), **attrs)


def split(mod: IRModule, target: Target = SMALL) -> IRModule:
    return SplitBatch(target)(mod)


def parts(body: Callable[..., Any], *arrays: np.ndarray) -> Counter[str]:
    """What is called after the pass, which changes no result."""
    mod = graph_of(body, *arrays)
    made = split(mod)
    agree(mod, made, *arrays, tolerance=1e-4)
    return Counter(values(made))


def test_large_images_pass_one_by_one() -> None:
    def body(x):
        return op.sum(op.nn.max_pool2d(op.nn.relu(conv(x, 8, 1)), (8, 8), (8, 8)), (0,))

    image = ["strided_slice", "nn.conv2d", "nn.relu", "nn.max_pool2d"]
    assert values(split(graph_of(body, random(2, 1, 16, 16)))) == [*image, *image, "concat", "sum"]


@few("batch, made", [(2, 2), (3, 3), (16, 16), (32, 16), (34, 2), (17, 0)], (3, 3), (17, 0))
def test_a_batch_has_at_most_16_parts_of_one_size(batch: int, made: int) -> None:
    def body(x):
        y = op.nn.max_pool2d(op.nn.relu(conv(x, 8, 1)), (4, 4), (4, 4))
        return op.sum(y, (1, 2, 3))

    found = parts(body, random(batch, 1, 16, 16))
    assert found["strided_slice"] == made and found["nn.conv2d"] == max(made, 1)
    assert found["concat"] == (made > 0) and found["sum"] == 1


@pytest.mark.parametrize("layers, made", [(40, 16), (70, 0)])
def test_parts_of_many_layers_would_be_too_much_code(layers: int, made: int) -> None:
    def body(x):
        y = conv(x, 8, 1)
        for _ in range(layers):
            y = op.nn.relu(y)
        return op.sum(op.nn.max_pool2d(y, (4, 4), (4, 4)), (1, 2, 3))

    found = values(split(graph_of(body, random(16, 1, 16, 16))))
    assert found.count("strided_slice") == made and found.count("nn.conv2d") == max(made, 1)


def test_branches_broadcasts_and_scales_by_channel_stay_inside() -> None:
    offset = weight(8, 1, 1)

    def body(x, shift):
        y = conv(x, 8, 1)
        z = op.nn.silu(op.add(y, offset))
        pooled = op.nn.adaptive_avg_pool2d(z, (1, 1))
        gate = op.sigmoid(op.nn.conv2d(pooled, weight(8, 8, 1, 1)))
        z = op.add(op.multiply(z, gate), op.multiply(y, shift))
        z = op.concat([z, op.maximum(y, z)], 1)
        z = op.permute_dims(op.reshape(z, (2, 2, 8, 16, 16)), (0, 2, 1, 3, 4))
        z = op.nn.relu(op.reshape(z, (2, 16, 16, 16)))
        return op.sum(op.nn.max_pool2d(z, (8, 8), (8, 8)), (0,))

    found = parts(body, random(2, 1, 16, 16), random(1, 8, 1, 1))
    assert found["nn.conv2d"] == 4 and found["permute_dims"] == 2 and found["concat"] == 2 + 1
    assert found["sum"] == 1


def test_what_others_read_in_between_is_joined() -> None:
    def body(x):
        y = op.nn.max_pool2d(conv(x, 8, 1), (4, 4), (4, 4))
        z = op.nn.relu(conv(x, 8, 1))
        return op.add(op.sum(y, (0,)), op.sum(op.nn.max_pool2d(z, (4, 4), (4, 4)), (0,)))

    found = parts(body, random(2, 1, 16, 16))
    assert found["nn.conv2d"] == 4 and found["concat"] == 2 and found["strided_slice"] == 2


def test_what_depends_on_all_images_ends_the_region() -> None:
    """A batch's own statistics: what is computed with them isn't split, and comes after."""

    def body(x):
        y = op.nn.relu(conv(x, 8, 1))
        small = op.nn.max_pool2d(y, (8, 8), (8, 8))
        centre = op.mean(small, (0, 2, 3), keepdims=True)
        z = op.nn.relu(op.subtract(small, centre))
        w = op.nn.max_pool2d(op.nn.relu(conv(x, 8, 1)), (8, 8), (8, 8))
        return op.add(z, w)

    found = parts(body, random(4, 1, 16, 16))
    assert found["nn.conv2d"] == 8 and found["mean"] == found["subtract"] == 1


@pytest.mark.parametrize(
    "body",
    [
        # Every image comes out as it is: joining them moves as much as is saved.
        lambda x: op.nn.relu(conv(x, 8, 1)),
        # No convolution, and small images.
        lambda x: op.sum(op.nn.relu(x), (2, 3)),
        lambda x: op.sum(conv(op.nn.max_pool2d(x, (8, 8), (8, 8)), 1, 1), (2, 3)),
        # Weights outweigh the images.
        lambda x: op.sum(op.nn.conv2d(x, weight(8, 1, 15, 15)), (1, 2, 3)),
    ],
)
def test_what_gains_nothing_stays(body: Callable[..., Any]) -> None:
    mod = graph_of(body, random(2, 1, 16, 16))
    assert split(mod) is mod


def test_weights_of_the_call_other_layouts_and_unknown_batches_stay() -> None:
    def weights(x, w):
        return op.sum(op.nn.relu(op.nn.conv2d(x, w)), (1, 2, 3))

    def rows(x):  # no axis of the batch comes first
        y = op.nn.conv2d(x, weight(4, 1, 3, 3), data_layout="CHWN", out_layout="CHWN")
        return op.sum(y, (0, 1, 2))

    mod = graph_of(weights, random(2, 1, 16, 16), random(8, 1, 3, 3))
    assert split(mod) is mod
    n = symbol("n")
    mod = graph(lambda x: op.sum(conv(x, 8, 1), (1, 2, 3)), tensor((n, 1, 16, 16)))
    assert split(mod) is mod
    mod = graph(lambda x: op.sum(conv(x, 8, 1), (1, 2, 3)), tensor((1, 1, 16, 16)))
    assert split(mod) is mod


def test_extents_that_depend_on_the_region_come_before_what_goes_by_them() -> None:
    n = symbol("n")

    def body(x):
        builder = relax.BlockBuilder.current()
        y = op.nn.max_pool2d(op.nn.relu(conv(x, 8, 1)), (8, 8), (8, 8))
        kept = builder.match_cast(op.sum(y, (0, 1)), tensor((n, 2)))
        ones = builder.emit(op.ones((n,), "float32"))
        z = op.nn.max_pool2d(op.nn.relu(conv(x, 8, 1)), (8, 8), (8, 8))
        return relax.Tuple((op.sum(z, (0,)), ones, kept))

    found = parts(body, random(2, 1, 16, 16))
    assert found["nn.conv2d"] == 4


def test_rows_that_look_like_a_batch_are_no_images() -> None:
    """A result of the region that another one reads along another axis."""

    def body(x, y):
        image = op.nn.relu(conv(x, 8, 1))
        factors = op.sum(op.nn.max_pool2d(image, (4, 4), (4, 4)), (2, 3))  # of all images
        return op.sum(op.multiply(op.nn.relu(y), factors), (0,))

    found = parts(body, random(2, 1, 16, 16), random(2, 2, 8))
    assert found["multiply"] == 1 and found["nn.conv2d"] == 2


def test_results_that_are_the_function_s_own() -> None:
    def body(x):
        y = op.nn.relu(conv(x, 8, 1))
        z = op.nn.max_pool2d(y, (8, 8), (8, 8))
        return relax.Tuple((z, op.nn.relu(z)))

    found = parts(body, random(4, 1, 16, 16))
    assert found["nn.conv2d"] == 4


def test_compiled_networks_give_the_same() -> None:
    x = random(2, 1, 16, 16)

    def body(x):
        y = op.nn.relu(conv(x, 8, 1))
        y = op.add(y, op.nn.relu(conv(y, 8, 8)))
        y = op.nn.max_pool2d(y, (4, 4), (4, 4))
        return op.mean(conv(y, 8, 8), (2, 3))

    mod = graph_of(body, x)
    target = Target("native").with_options(num_cores=2)
    small = Target(f"{target} -l2=64") if "-l2=" not in str(target) else _with_l2(target)
    assert "strided_slice" in values(split(mod, small))
    made = relax.build(mod, small)["main"](x)
    np.testing.assert_allclose(
        np.asarray(made), relax.interpreter.run(mod, x), rtol=1e-4, atol=1e-4
    )


def _with_l2(target: Target) -> Target:
    words = [word for word in str(target).split() if not word.startswith("-l2=")]
    return Target(" ".join([*words, "-l2=64"]))
