"""``SelectConvLayout``: chains of convolutions get blocks, single ones don't, options decide."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import graph, random, symbol, tensor, values

from tests.everyday import few
from tilewright import relax
from tilewright.ir import PassContext
from tilewright.relax import op
from tilewright.relax.transform import SelectConvLayout
from tilewright.support.errors import TilewrightError
from tilewright.target import Target

WIDE = Target("llvm -mcpu=znver4 -num-cores=1")
NARROW = Target("llvm -mcpu=haswell -num-cores=1")


def conv(x, filters, seed=1, size=3, groups=1, **options):
    channels = x.struct_info.shape[1].value
    weight = relax.const(random(filters, channels // groups, size, size, seed=seed) / 8)
    return op.nn.conv2d(x, weight, **{"padding": size // 2, "groups": groups, **options})


def network(x):
    """From few channels to one row of numbers: no image is converted."""
    y = op.nn.relu(conv(x, 32, strides=2))
    y = op.nn.max_pool2d(y, 3, 2, 1)
    z = op.nn.relu(conv(y, 32, 2))
    y = op.nn.relu(op.add(conv(z, 32, 3), y))
    y = op.nn.relu6(conv(conv(y, 24, 4, 1), 24, 5, groups=24))
    return op.flatten(op.nn.adaptive_avg_pool2d(y, 1), start_dim=1)


def two_chains(x):
    """Between the chains, channels are mixed by something else."""
    y = conv(conv(x, 16), 16, 2)
    y = op.mean(op.nn.softmax(y, 1), 1, keepdims=True)
    return conv(op.concat([y, y, y], 1), 16, 3)


def chosen(mod, target=WIDE):
    made = SelectConvLayout(target)(mod)
    relax.verify_graph(made)
    return made, [
        binding.value.attrs["data_layout"] + " " + (binding.value.attrs["out_layout"] or "")
        for binding in made["main"].bindings
        if isinstance(binding.value, relax.Call) and binding.value.op_name == "nn.conv2d"
    ]


def test_networks_are_converted_as_a_whole():
    mod = graph(network, tensor((1, 3, 40, 40)))
    made, layouts = chosen(mod)
    assert layouts == [
        "NCHW NCHW16c", "NCHW16c NCHW16c", "NCHW16c NCHW16c", "NCHW16c NCHW24c", "NCHW24c NCHW24c",
    ]  # fmt: skip
    assert "layout_transform" not in values(made)


@few("batch", [2, "n"], every=2)
def test_results_are_the_same(batch):
    batch = symbol(batch) if isinstance(batch, str) else batch
    x = random(2, 3, 40, 40)
    results = []
    for layout in ("NCHW", "NCHWc"):
        with PassContext(config={"relax.conv_layout": layout}):
            mod = relax.get_pipeline("zero", "native")(
                graph(network, tensor((batch, *x.shape[1:])))
            )
        results.append(relax.VirtualMachine(relax.build(mod, "native"))["main"](x).numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_single_convolutions_between_other_operators_stay():
    mod = graph(lambda x: op.nn.softmax(conv(op.nn.softmax(x, 1), 32), 1), tensor((1, 32, 28, 28)))
    assert SelectConvLayout(WIDE)(mod) is mod


def test_images_of_one_place_stay():
    def mod(size):
        image = tensor((1, 3, size, size))
        return graph(lambda x: op.mean(conv(conv(x, 32), 64, size=1), (2, 3)), image)

    assert chosen(mod(1))[1] == ["NCHW ", "NCHW "]
    assert chosen(mod(30))[1] == ["NCHW NCHW16c", "NCHW16c NCHW16c"]


def test_groups_are_weighed_one_by_one():
    mod = graph(two_chains, tensor((1, 3, 20, 20)))
    assert chosen(mod)[1] == ["NCHW ", "NCHW ", "NCHW "]
    with PassContext(config={"relax.conv_layout": "NCHWc"}):
        assert chosen(mod)[1] == ["NCHW NCHW16c", "NCHW16c NCHW16c", "NCHW NCHW16c"]


def test_vectors_that_are_half_empty_do_not_pay():
    def chain(filters):
        return graph(lambda x: op.mean(conv(conv(x, filters), filters, 2), (2, 3)), image)

    image = tensor((1, 3, 20, 20))
    assert chosen(chain(8))[1] == ["NCHW ", "NCHW "]
    assert chosen(chain(16))[1] == ["NCHW NCHW16c", "NCHW16c NCHW16c"]


def test_half_the_arithmetic_and_half_the_loads_in_a_cycle_change_no_choice():
    """MobileNetV2's narrow waists: blocks of 24 channels leave a quarter of the vectors empty."""
    whole = Target("llvm -mcpu=znver5 -num-cores=1")
    assert (WIDE.costs.loads, whole.costs.loads) == (1, 2)

    def narrow_waists(x, stages):
        y = conv(conv(conv(x, 32, strides=2), 32, 2, groups=32), 16, 3, 1)
        for wide, narrow, strides in stages:
            y = conv(op.nn.relu6(conv(y, wide, 4, 1)), wide, 5, groups=wide, strides=strides)
            y = conv(op.nn.relu6(y), narrow, 6, 1)
        return op.mean(y, (2, 3))

    stages = [(96, 24, 2), (144, 24, 1), (144, 32, 2)]
    for some in (stages[:2], stages):
        mod = graph(lambda x, some=some: narrow_waists(x, some), tensor((1, 3, 224, 224)))
        assert chosen(mod)[1] == chosen(mod, whole)[1]
    assert "NCHW16c NCHW24c" in chosen(mod)[1]


def test_images_of_unknown_size_get_blocks():
    image = tensor((symbol("n"), 3, symbol("h"), symbol("w")))
    mod = graph(lambda x: op.mean(conv(conv(x, 16), 32, 2), (2, 3)), image)
    assert chosen(mod)[1] == ["NCHW NCHW16c", "NCHW16c NCHW16c"]


def test_results_on_images_of_unknown_size():
    def network(x):
        return conv(op.nn.relu(conv(x, 16, strides=2)), 32, 2, 1)

    target, found = Target("native"), {}
    image = tensor((symbol("n"), 3, symbol("h"), symbol("w")))
    for mode in ("NCHW", "NCHWc"):
        with PassContext(config={"relax.conv_layout": mode}):
            found[mode] = relax.VirtualMachine(relax.build(graph(network, image), target))["main"]
    for size in ((2, 3, 33, 21), (1, 3, 1, 4)):
        x = random(*size)
        expected, result = (found[mode](x).numpy() for mode in ("NCHW", "NCHWc"))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype", "target"),
    [
        ((1, 3, 40, 40), "float32", NARROW),  # nothing was measured there
        ((1, 3, 40, 40), "float64", WIDE),
        ((1, symbol("c"), 40, 40), "float32", WIDE),
    ],
    ids=["narrow", "wide numbers", "unknown channels"],
)
def test_what_the_rules_do_not_serve_stays(shape, dtype, target):
    def body(x):
        weights = [random(16, c, 3, 3, dtype=dtype) for c in (3, 16)]
        return op.nn.conv2d(op.nn.conv2d(x, relax.const(weights[0])), relax.const(weights[1]))

    mod = graph(body, tensor(shape, dtype))
    assert SelectConvLayout(target)(mod) is mod


def test_filters_that_come_at_run_time_stay():
    mod = graph(lambda x, w: op.nn.conv2d(x, w), tensor((1, 3, 40, 40)), tensor((16, 3, 3, 3)))
    with PassContext(config={"relax.conv_layout": "NCHWc"}):
        assert SelectConvLayout(WIDE)(mod) is mod


def test_the_option_keeps_the_plain_layout():
    mod = graph(network, tensor((1, 3, 40, 40)))
    with PassContext(config={"relax.conv_layout": "NCHW"}):
        assert SelectConvLayout(WIDE)(mod) is mod
    assert SelectConvLayout(WIDE, mode="NCHW")(mod) is mod


def test_other_options_are_refused():
    with pytest.raises(TilewrightError, match=r"must be one of \('auto', 'NCHW', 'NCHWc'\)"):
        SelectConvLayout(WIDE, mode="NHWC")(graph(network, tensor((1, 3, 40, 40))))
