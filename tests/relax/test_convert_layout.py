"""``ConvertLayout``: whole small graphs give the same in both layouts, with few conversions."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import graph, random, symbol, tensor, values

from tests.everyday import few
from tilewright import relax, script
from tilewright.relax import op
from tilewright.relax.transform import CanonicalizeBindings, ConvertLayout, DeadCodeElimination
from tilewright.support.errors import TilewrightError, VerifyError

BLOCKS = {"nn.conv2d": ("NCHW16c", "OIHW16i16o")}
CONVERSIONS = ("layout_transform", "reshape")


def conv(x, filters, seed=1, size=3, groups=1, **options):
    channels = x.struct_info.shape[1].value
    weight = relax.const(random(filters, channels // groups, size, size, seed=seed) / 8)
    return op.nn.conv2d(x, weight, **{"padding": size // 2, "groups": groups, **options})


def bias(channels, *shape, seed=7):
    return relax.const(random(channels, *(shape or (1, 1)), seed=seed))


def chain(x):
    y = op.nn.relu(op.add(conv(x, 32), bias(32)))
    y = op.nn.relu6(conv(y, 16, 2, strides=2))
    return op.multiply(conv(y, 32, 3, 1), op.sigmoid(conv(y, 32, 4, 1)))


def residual(x):
    y = op.nn.relu(conv(x, 32))
    z = op.nn.relu(op.add(conv(y, 32, 2), bias(32)))
    y = op.nn.relu(op.add(conv(z, 32, 3), y))
    return op.add(y, op.nn.leaky_relu(y, 0.1))


def branches(x):
    y = conv(x, 32)
    parts = [op.nn.max_pool2d(y, 3, 1, 1), conv(y, 16, 2, 1), op.nn.avg_pool2d(y, 3, 1, 1)]
    return conv(op.concat(parts, 1), 16, 3)


def odd_channels(x):
    y = op.nn.relu(conv(x, 20))
    z = conv(y, 32, 2)
    return op.concat([op.nn.max_pool2d(z, 2, 2), op.nn.max_pool2d(conv(y, 13, 3), 2, 2)], 1)


def grouped(x):
    y = op.nn.relu6(conv(x, 32, 1, 1))
    y = op.nn.relu6(conv(y, 32, 2, groups=32, strides=2))
    y = conv(y, 64, 3, groups=2)
    return conv(y, 64, 4, groups=8)


def excitation(x):
    y = conv(x, 32)
    scale = op.mean(y, (2, 3), keepdims=True)
    scale = op.sigmoid(conv(op.nn.relu(conv(scale, 16, 2, 1)), 32, 3, 1))
    return op.multiply(y, scale)


def classifier(x):
    y = op.nn.relu(conv(x, 32))
    y = op.nn.adaptive_avg_pool2d(y, 1)
    y = op.flatten(y, start_dim=1)
    return op.matmul(y, relax.const(random(32, 10)))


def means(x):
    y = conv(x, 32)
    return op.add(op.mean(y, (2, 3)), op.max(y, (2, 3)))


def awkward_operands(x):
    y = conv(x, 32)
    y = op.add(y, relax.const(random(9)))  # one number per column
    y = op.multiply(y, relax.const(random(7, 1)))
    y = op.where(op.greater(y, relax.const(np.float32(0))), y, op.astype(y, "float32"))
    y = op.subtract(y, op.mean(y, 1, keepdims=True))  # needs channels
    y = conv(op.nn.pad(y, (0, 0, 0, 0, 1, 2, 0, 1)), 16, 2)
    return op.nn.softmax(y, 1)


def two_inputs(x):
    y = op.add(conv(x, 32), op.tanh(op.concat([x, x], 1)))
    return op.permute_dims(y, (0, 2, 3, 1))


def no_channels(x):
    """Images of no channels are joined, and added; a convolution makes one, another takes it."""
    y = conv(x, 32)
    none = op.strided_slice(x, [1], [0], [0])
    empty = op.add(conv(x, 0, 2), none)
    z = op.concat([y, none, conv(empty, 16, 3)], 1)
    return conv(z, 32, 4)


MODELS = {
    f.__name__: f
    for f in (
        chain, residual, branches, odd_channels, grouped, excitation, classifier, means,
        awkward_operands, two_inputs, no_channels,
    )
}  # fmt: skip


def run(mod, *arrays):
    return relax.VirtualMachine(relax.build(mod, "native"))["main"](*arrays).numpy()


def converted(mod, layouts=BLOCKS):
    made = DeadCodeElimination()(CanonicalizeBindings()(ConvertLayout(layouts)(mod)))
    relax.verify_graph(made)
    return made


def layouts_of(mod):
    return [
        tuple(b.value.attrs[f"{k}_layout"] for k in ("data", "kernel", "out"))
        for b in mod["main"].bindings
        if isinstance(b.value, relax.Call) and b.value.op_name == "nn.conv2d"
    ]


@few("name", MODELS, every=3)
@pytest.mark.parametrize("layouts", [BLOCKS, {"relax.nn.conv2d": ("NCHW8c", "OIHW8i8o")}], ids=str)
def test_models_give_the_same_in_blocks(name, layouts):
    x = random(2, 16, 7, 9)
    mod = graph(MODELS[name], tensor(x.shape))
    made = converted(mod, layouts)
    assert any("c" in (out or "") for *_, out in layouts_of(made))
    np.testing.assert_allclose(run(made, x), run(mod, x), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("model", "conversions"),
    [(chain, 2), (residual, 2), (branches, 2), (excitation, 2), (classifier, 2), (means, 3)],
)
def test_images_are_converted_at_the_borders_only(model, conversions):
    made = converted(graph(model, tensor((1, 16, 7, 9))))
    found = [name for name in values(made) if name in CONVERSIONS]
    assert len(found) == conversions, values(made)


def test_all_convolutions_of_a_chain_get_blocks():
    made = converted(graph(chain, tensor((1, 16, 8, 8))))
    assert layouts_of(made) == [("NCHW16c", "OIHW16i16o", "NCHW16c")] * 4


def test_few_channels_stay_plain_and_become_blocks():
    mod = graph(lambda x: op.nn.relu(conv(x, 32, strides=2)), tensor((1, 3, 9, 9)))
    made = converted(mod)
    assert layouts_of(made) == [("NCHW", "OIHW16o", "NCHW16c")]
    assert values(made) == ["nn.conv2d", "nn.relu", "layout_transform"]
    x = random(1, 3, 9, 9)
    np.testing.assert_allclose(run(made, x), run(mod, x), rtol=1e-4, atol=1e-5)


def test_what_blocks_do_not_divide_stays_plain():
    mod = graph(lambda x: conv(conv(x, 20), 30, 2), tensor((1, 16, 5, 5)))
    assert ConvertLayout(BLOCKS)(mod) is mod


def test_depthwise_filters_have_no_input_blocks():
    made = converted(graph(lambda x: conv(x, 32, groups=32), tensor((1, 32, 5, 5))))
    assert layouts_of(made) == [("NCHW16c", "OIHW16o", "NCHW16c")]


def test_images_may_differ_from_results():
    layouts = {"nn.conv2d": ("NCHW8c", "OIHW8i16o", "NCHW16c")}
    x = random(1, 24, 6, 6)
    mod = graph(lambda x: conv(conv(x, 48), 16, 2), tensor(x.shape))
    made = converted(mod, layouts)
    assert layouts_of(made) == [("NCHW8c", "OIHW8i16o", "NCHW16c")] * 2
    np.testing.assert_allclose(run(made, x), run(mod, x), rtol=1e-4, atol=1e-4)


def test_a_function_chooses_call_by_call():
    chosen = []

    def choose(call):
        chosen.append(call.args[0].struct_info.shape[1].value)
        return BLOCKS["nn.conv2d"] if len(chosen) == 2 else None

    x = random(1, 16, 6, 6)
    mod = graph(chain, tensor(x.shape))
    made = converted(mod, choose)
    assert chosen == [16, 32, 16, 16]  # it is shown the graph as it was
    assert sum(data == "NCHW16c" for data, *_ in layouts_of(made)) == 1
    np.testing.assert_allclose(run(made, x), run(mod, x), rtol=1e-4, atol=1e-5)


def test_symbolic_batches_stay_symbolic():
    mod = graph(residual, tensor((symbol("n"), 16, 7, 7)))
    made = converted(mod)
    assert made["main"].ret_struct_info == mod["main"].ret_struct_info
    x = random(3, 16, 7, 7)
    np.testing.assert_allclose(run(made, x), run(mod, x), rtol=2e-4, atol=1e-5)


def test_filters_that_come_at_run_time_are_converted_in_the_call():
    x, w = random(1, 16, 6, 6), random(32, 16, 3, 3, seed=2)
    mod = graph(lambda x, w: op.nn.conv2d(x, w), tensor(x.shape), tensor(w.shape))
    made = converted(mod)
    assert values(made).count("layout_transform") == 3
    np.testing.assert_allclose(run(made, x, w), run(mod, x, w), rtol=1e-4, atol=1e-4)


def test_layouts_survive_printing():
    made = converted(graph(residual, tensor((1, 16, 7, 7))))
    again = script.parse(made.script(), {"metadata": relax.script.metadata_of(made)})
    assert layouts_of(again) == layouts_of(made)


def test_calls_with_layouts_of_their_own_are_left():
    made = converted(graph(chain, tensor((1, 16, 8, 8))))
    assert ConvertLayout(BLOCKS)(made) is made


def test_other_operators_and_layouts_are_refused():
    with pytest.raises(TilewrightError, match=r"converts nn.conv2d only, got .*'matmul'"):
        ConvertLayout({"matmul": ("NCHW16c", "OIHW16i16o")})
    with pytest.raises(VerifyError, match="layout 'NHWC' is not supported"):
        ConvertLayout({"nn.conv2d": ("NHWC", "OHWI")})
    with pytest.raises(TilewrightError, match="layouts of image, filters and maybe result"):
        ConvertLayout({"nn.conv2d": ("NCHW16c",)})


def test_inference_refuses_layouts_that_do_not_fit():
    x = relax.Var("x", tensor((1, 2, 5, 5, 16)))
    w = relax.const(random(2, 2, 3, 3, 16, 16))
    with pytest.raises(VerifyError, match=r"nn\.conv2d.*blocks of I"):
        op.nn.conv2d(x, w, data_layout="NCHW8c", kernel_layout="OIHW16i16o")
    with pytest.raises(VerifyError, match="data must have 4 dimensions"):
        op.nn.conv2d(x, w, data_layout="NCHW", kernel_layout="OIHW")
