"""ONNX operators that backend tests don't reach: control flow by data, ONNX Runtime's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright import relax
from tilewright.ir import IRModule
from tilewright.support.errors import ImportModelError

onnx = pytest.importorskip("onnx")

from onnx import TensorProto  # noqa: E402
from onnx_models import graph, model, node  # noqa: E402

from tilewright.relax.frontend.onnx import CONVERTERS, from_onnx  # noqa: E402

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def results(proto: Any, *inputs: Any) -> Any:
    made = relax.build(from_onnx(proto), "llvm -mcpu=x86-64-v3")(*map(np.asarray, inputs))
    return [np.asarray(x) for x in made] if isinstance(made, (list, tuple)) else np.asarray(made)


def close(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def script(mod: IRModule) -> str:
    return str(mod.script())


# ---- control flow --------------------------------------------------------------------------------


def test_a_branch_that_data_decide() -> None:
    then = graph([node("Add", "x x", "t")], {}, ["t"])
    other = graph([node("Neg", "x", "e")], {}, ["e"])
    proto = model(
        [node("If", "c", "y", then_branch=then, else_branch=other)],
        {"c": np.array(True), "x": [3]},
        ["y"],
    )
    x = floats(3)
    close(results(proto, np.array(True), x), 2 * x)
    close(results(proto, np.array(False), x), -x)
    assert "else:" in script(from_onnx(proto))


def test_branches_in_branches() -> None:
    inner = graph([node("Mul", "a x", "i"), node("Identity", "a", "j")], {}, ["i", "j"])
    same = graph([node("Identity", "x", "k"), node("Identity", "a", "l")], {}, ["k", "l"])
    then = graph([node("If", "d", "t u", then_branch=inner, else_branch=same)], {}, ["t", "u"])
    other = graph([node("Neg", "a", "e")], {}, ["e", "x"])
    proto = model(
        [
            node("Exp", "x", "a"),
            node("ReduceSum", "a", "r", keepdims=0),
            node("Less", "r limit", "d"),
            node("If", "c", "y z", then_branch=then, else_branch=other),
            node("Add", "y z", "sum"),
        ],
        {"c": np.array(True), "x": [3]},
        ["sum"],
        {"limit": np.float32(4.0)},
    )
    for x in (floats(3), floats(3) + 2):
        a = np.exp(x)
        close(results(proto, np.array(True), x), (a * x if a.sum() < 4 else x) + a)
        close(results(proto, np.array(False), x), x - a)


def test_branches_of_different_shapes() -> None:
    then = graph([node("Identity", "x", "t")], {}, ["t"])
    other = graph([node("ReduceSum", "x", "e", keepdims=0)], {}, ["e"])
    proto = model(
        [node("If", "c", "y", then_branch=then, else_branch=other)],
        {"c": np.array(True), "x": [3]},
        ["y"],
    )
    with pytest.raises(ImportModelError, match="so its condition must be known"):
        from_onnx(proto)


def loop_body(nodes: list[Any], outputs: list[str]) -> Any:
    made = graph(nodes, {"i": np.int64(0), "c": np.array(True), "v": [2]}, outputs)
    return made


def test_a_loop_is_unrolled() -> None:
    body = loop_body(
        [node("Identity", "c", "c2"), node("Add", "v x", "v2"), node("Identity", "v2", "row")],
        ["c2", "v2", "row"],
    )
    proto = model(
        [node("Loop", "n - x", "y rows", body=body)], {"x": [2]}, ["y", "rows"], {"n": np.int64(3)}
    )
    x = floats(2)
    last, rows = results(proto, x)
    close(last, 4 * x)
    close(rows, np.stack([2 * x, 3 * x, 4 * x]))


def test_a_loop_that_data_end() -> None:
    # Doubled until the sum is at least 10, at most 6 times.
    body = loop_body(
        [
            node("Add", "v v", "v2"),
            node("ReduceSum", "v2", "s", keepdims=0),
            node("Less", "s ten", "c2"),
        ],
        ["c2", "v2"],
    )
    proto = model(
        [node("Loop", "n yes x", "y", body=body)],
        {"x": [2]},
        ["y"],
        {"n": np.int64(6), "yes": np.array(True), "ten": np.float32(10)},
    )
    close(results(proto, np.float32([1, 1])), [8, 8])
    close(results(proto, np.float32([5, 5])), [10, 10])
    close(results(proto, np.float32([0, 0.01])), [0, 0.64])


def test_a_loop_without_an_end() -> None:
    body = loop_body([node("Identity", "c", "c2"), node("Add", "v x", "v2")], ["c2", "v2"])
    proto = model(
        [node("Loop", "- yes x", "y", body=body)], {"x": [2]}, ["y"], {"yes": np.array(True)}
    )
    with pytest.raises(ImportModelError, match="more than 1024 steps"):
        from_onnx(proto)


# ---- quantised models ----------------------------------------------------------------------------


def test_dequantised_products_are_products_of_integers() -> None:
    w = RNG.integers(-100, 100, (8, 4)).astype(np.int8)
    scales = (RNG.random(4) / 50 + 0.01).astype(np.float32)
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w ws wz", "dw", axis=1),
        node("MatMul", "d dw", "y"),
    ]
    initial = {
        "s": np.float32(0.05), "z": np.uint8(120), "w": w, "ws": scales, "wz": np.zeros(4, np.int8),
    }  # fmt: skip
    mod = from_onnx(model(nodes, {"x": [3, 8]}, ["y"], initial))
    assert 'out_dtype="int32"' in script(mod)
    x = floats(3, 8)
    q = np.clip(np.round(x / np.float32(0.05)) + 120, 0, 255)
    wanted = ((q - 120) * 0.05) @ (w * scales)
    close(np.asarray(relax.build(mod, "llvm -mcpu=x86-64-v3")(x)), wanted)


def test_dequantised_convolutions_are_convolutions_of_integers() -> None:
    w = RNG.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8)
    nodes = [
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w ws", "dw", axis=0),
        node("Conv", "d dw b", "y", pads=[1, 1, 1, 1]),
    ]
    scales, b = (RNG.random(4) / 50 + 0.01).astype(np.float32), floats(4)
    initial = {"s": np.float32(0.05), "z": np.uint8(120), "w": w, "ws": scales, "b": b}
    q = RNG.integers(0, 256, (1, 3, 5, 5)).astype(np.uint8)
    mod = from_onnx(model(nodes, {"q": q}, ["y"], initial))
    assert "conv2d_int8" in script(mod)
    data = np.pad((q.astype(np.float64) - 120) * 0.05, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), (2, 3))
    real = w * scales[:, None, None, None]
    wanted = np.einsum("nchwij,ocij->nohw", windows, real) + b[:, None, None]
    close(np.asarray(relax.build(mod, "llvm -mcpu=x86-64-v3")(q)), wanted, 1e-3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_integer_products_with_zero_points_on_both_sides(dtype: Any) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a = RNG.integers(low, high, (3, 8)).astype(dtype)
    b = RNG.integers(low, high, (8, 4)).astype(dtype)
    za, zb = dtype(3), RNG.integers(low, high, 4).astype(dtype)
    proto = model(
        [node("MatMulInteger", "a b za zb", "y")], {"a": a, "b": b, "za": za, "zb": zb}, ["y"]
    )
    wide = [item.astype(np.int64) for item in (a, b, za, zb)]
    wanted = (wide[0] - wide[2]) @ (wide[1] - wide[3])
    np.testing.assert_array_equal(results(proto, a, b, za, zb), wanted)


def test_weights_of_4_bits() -> None:
    n, k, block = 6, 64, 32
    q = RNG.integers(0, 16, (n, k)).astype(np.uint8)
    zeros = RNG.integers(0, 16, (n, 2)).astype(np.uint8)
    scales = RNG.random((n, 2)).astype(np.float32)
    packed = (q[:, 0::2] | q[:, 1::2] << 4).reshape(n, 2, 16)
    zero_bytes = zeros[:, 0] | zeros[:, 1] << 4
    real = (q.astype(np.float32) - np.repeat(zeros, block, 1)) * np.repeat(scales, block, 1)
    a = floats(3, k)
    proto = model(
        [node("com.microsoft.MatMulNBits", "a b s z", "y", K=k, N=n, bits=4, block_size=block)],
        {"a": [3, k]},
        ["y"],
        {"b": packed, "s": scales.reshape(-1), "z": zero_bytes},
    )
    assert "dense_int4" in script(from_onnx(proto))
    close(results(proto, a), a @ real.T, 1e-3)


def test_quantised_elementwise_operators() -> None:
    a, b = (RNG.integers(0, 256, 50).astype(np.uint8) for _ in range(2))
    initial = {
        "as": np.float32(0.1), "az": np.uint8(10), "bs": np.float32(0.2), "bz": np.uint8(20),
        "ys": np.float32(0.3), "yz": np.uint8(30),
    }  # fmt: skip
    names = "a as az b bs bz ys yz"
    left, right = (a.astype(float) - 10) * 0.1, (b.astype(float) - 20) * 0.2
    for kind, wanted in (("QLinearAdd", left + right), ("QLinearMul", left * right)):
        proto = model([node(f"com.microsoft.{kind}", names, "y")], {"a": a, "b": b}, ["y"], initial)
        quantised = np.clip(np.round(wanted / 0.3) + 30, 0, 255)
        assert np.abs(results(proto, a, b).astype(int) - quantised).max() <= 1


def test_a_zero_point_that_is_left_out_is_zero() -> None:
    a = RNG.integers(0, 256, 50).astype(np.uint8)
    for inputs in ("a s - a s - s", "a s z a s z s"):
        proto = model(
            [node("com.microsoft.QLinearAdd", inputs, "y")], {"a": a}, ["y"],
            {"s": np.float32(0.5), "z": np.uint8(0)},
        )  # fmt: skip
        np.testing.assert_array_equal(results(proto, a), np.minimum(2 * a.astype(int), 255))


# ---- com.microsoft -------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"auto_pad": "SAME_UPPER"}])
def test_a_transposed_convolution_of_half_floats_is_rounded_once(more: dict[str, Any]) -> None:
    x = np.ones((1, 2, 3), "float16")
    weights = {"w": np.array([1, 2**-13], "float16").reshape(2, 1, 1), "b": -np.ones(1, "float16")}
    proto = model([node("ConvTranspose", "x w b", "y", **more)], {"x": x}, ["y"], weights)
    found = results(proto, x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, np.full((1, 1, 3), 2**-13))


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def normal(x: Any, epsilon: float) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)


def test_activations_with_biases() -> None:
    x, b = floats(2, 6), floats(6)
    nodes = [
        node("com.microsoft.BiasGelu", "x b", "p"),
        node("com.microsoft.FastGelu", "x b", "q"),
        node("com.microsoft.QuickGelu", "x", "r"),
    ]
    found = results(model(nodes, {"x": [2, 6]}, ["p", "q", "r"], {"b": b}), x)
    close(found[0], gelu(x + b))
    close(found[1], gelu(x + b), 1e-2)
    close(found[2], x / (1 + np.exp(-1.702 * x)))


def test_norms_with_residuals() -> None:
    x, skip, gamma, beta, bias = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)
    nodes = [
        node("com.microsoft.SkipLayerNormalization", "x k g e b", "p - - s", epsilon=1e-5),
        node("com.microsoft.SkipSimplifiedLayerNormalization", "x k g", "q", epsilon=1e-5),
    ]
    for made in nodes:
        made.output[:] = ["" if name == "-" else name for name in made.output]
    proto = model(
        nodes, {"x": [2, 3, 8], "k": [2, 3, 8]}, ["p", "s", "q"],
        {"g": gamma, "e": beta, "b": bias},
    )  # fmt: skip
    p, s, q = results(proto, x, skip)
    close(s, x + skip + bias)
    close(p, normal(x + skip + bias, 1e-5) * gamma + beta)
    both = x + skip
    close(q, both / np.sqrt((both**2).mean(-1, keepdims=True) + 1e-5) * gamma)


def heads(x: Any, count: int) -> Any:
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(0, 2, 1, 3)


def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Of ``[B, H, S, D]``; back as ``[B, S, H * D]``."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[3])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    made = shares / shares.sum(-1, keepdims=True) @ v
    return made.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1)


def test_attention_with_packed_weights_and_a_mask() -> None:
    x, w, b = floats(2, 5, 8), floats(8, 24), floats(24)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    proto = model(
        [node("com.microsoft.Attention", "x w b m", "y", num_heads=2)],
        {"x": [2, 5, 8], "m": mask},
        ["y"],
        {"w": w, "b": b},
    )
    q, k, v = (heads(part, 2) for part in np.split(x @ w + b, 3, -1))
    close(results(proto, x, mask), attend(q, k, v, mask[:, None, None, :] == 1), 1e-3)


def test_multi_head_attention_with_a_past() -> None:
    q, k, v, b = floats(1, 3, 8), floats(1, 3, 8), floats(1, 3, 8), floats(24)
    past_k, past_v = floats(1, 2, 4, 4), floats(1, 2, 4, 4)
    proto = model(
        [node("com.microsoft.MultiHeadAttention", "q k v b - - pk pv", "y nk nv", num_heads=2)],
        {"q": [1, 3, 8], "k": [1, 3, 8], "v": [1, 3, 8], "pk": [1, 2, 4, 4], "pv": [1, 2, 4, 4]},
        ["y", "nk", "nv"],
        {"b": b},
    )
    y, new_k, _ = results(proto, q, k, v, past_k, past_v)
    own = [heads(x + part, 2) for x, part in zip((q, k, v), np.split(b, 3))]
    whole_k, whole_v = (np.concatenate(pair, 2) for pair in ((past_k, own[1]), (past_v, own[2])))
    close(new_k, whole_k)
    close(y, attend(own[0], whole_k, whole_v), 1e-3)


def turned(x: Any, cos: Any, sin: Any, first: int) -> Any:
    half = x.shape[3] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = cos[first : first + x.shape[2]], sin[first : first + x.shape[2]]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def test_group_query_attention_with_rotations() -> None:
    cos, sin = floats(16, 2), floats(16, 2)
    q, k, v = floats(1, 2, 16), floats(1, 2, 8), floats(1, 2, 8)
    past_k, past_v = floats(1, 2, 3, 4), floats(1, 2, 3, 4)
    proto = model(
        [
            node(
                "com.microsoft.GroupQueryAttention", "q k v pk pv n t c s", "y nk nv",
                num_heads=4, kv_num_heads=2, do_rotary=1,
            )
        ],
        {"q": [1, 2, 16], "k": [1, 2, 8], "v": [1, 2, 8], "pk": past_k, "pv": past_v,
         "n": np.array([4], np.int32)},
        ["y", "nk", "nv"],
        {"t": np.int32(5), "c": cos, "s": sin},
    )  # fmt: skip
    y, new_k, _ = results(proto, q, k, v, past_k, past_v, np.array([4], np.int32))
    whole_k = np.concatenate([past_k, turned(heads(k, 2), cos, sin, 3)], 2)
    whole_v = np.concatenate([past_v, heads(v, 2)], 2)
    close(new_k, whole_k)
    seen = np.arange(5) <= np.arange(3, 5)[:, None]
    close(y, attend(turned(heads(q, 4), cos, sin, 3), whole_k, whole_v, seen), 1e-3)


def test_group_query_attention_of_packed_operands_without_a_past() -> None:
    packed = floats(1, 3, 32)
    q, k, v = np.split(packed, [16, 24], 2)
    proto = model(
        [
            node(
                "com.microsoft.GroupQueryAttention", "x - - - - n t", "y nk nv",
                num_heads=4, kv_num_heads=2,
            )
        ],
        {"x": packed},
        ["y", "nk", "nv"],
        {"n": np.array([2], np.int32), "t": np.int32(3)},
    )  # fmt: skip
    y, new_k, new_v = results(proto, packed)
    close(new_k, heads(k, 2))
    close(new_v, heads(v, 2))
    close(y, attend(heads(q, 4), new_k, new_v, np.tri(3, dtype=bool)), 1e-3)


def test_rotary_embedding_of_interleaved_pairs() -> None:
    x, cos, sin = floats(1, 3, 8), floats(8, 2), floats(8, 2)
    places = np.array([[5, 0, 2]])
    proto = model(
        [node("com.microsoft.RotaryEmbedding", "x p c s", "y", interleaved=1, num_heads=2)],
        {"x": [1, 3, 8], "p": places},
        ["y"],
        {"c": cos, "s": sin},
    )
    pairs = x.reshape(1, 3, 2, 2, 2)
    c, s = cos[places][:, :, None], sin[places][:, :, None]
    a, b = pairs[..., 0], pairs[..., 1]
    wanted = np.stack([a * c - b * s, b * c + a * s], -1).reshape(1, 3, 8)
    close(results(proto, x, places), wanted)


# ---- shapes --------------------------------------------------------------------------------------


def test_nearest_resize_of_symbolic_images() -> None:
    proto = model(
        [node("Resize", "x - s", "y", mode="nearest")],
        {"x": [1, 1, "h", "w"]},
        ["y"],
        {"s": np.float32([1, 1, 2, 2])},
    )
    x = floats(1, 1, 3, 2)
    close(results(proto, x), x.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "cubic"},
        {"mode": "cubic", "exclude_outside": 1, "coordinate_transformation_mode": "align_corners"},
        {"mode": "linear", "antialias": 1},
        {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
        {"mode": "nearest", "nearest_mode": "ceil"},
    ],
)
def test_symbolic_images_are_resized_in_every_way(attributes: dict[str, Any]) -> None:
    """By factors, and to sizes that are computed from the image's."""
    from onnx.reference import ReferenceEvaluator

    by_factor = [node("Resize", "x - factors", "y", **attributes)]
    by_size = [
        node("Shape", "x", "shape", start=2),
        node("Mul", "shape three", "more"),
        node("Div", "more two", "size"),
        node("Resize", "x - - size", "y", axes=[2, 3], **attributes),
    ]
    initial = {"factors": np.float32([1, 1, 1.7, 0.6])}
    numbers = {"three": np.array([3, 1]), "two": np.array([2, 1])}
    for nodes, known in ((by_factor, initial), (by_size, numbers)):
        proto = model(nodes, {"x": ["n", 2, "h", "w"]}, ["y"], known)
        run, reference = relax.build(from_onnx(proto)), ReferenceEvaluator(proto)
        for shape in ((1, 2, 8, 9), (2, 2, 5, 7)):
            x = floats(*shape)
            close(np.asarray(run(x)), reference.run(None, {"x": x})[0])


def test_symbolic_images_and_what_needs_their_sizes() -> None:
    proto = model(
        [node("Resize", "x - - k", "y", mode="linear", keep_aspect_ratio_policy="not_larger")],
        {"x": [1, 1, "h", "w"]}, ["y"], {"k": np.array([1, 1, 4, 6])},
    )  # fmt: skip
    with pytest.raises(ImportModelError, match="keeping the aspect ratio needs known sizes"):
        from_onnx(proto)


def test_sizes_computed_in_floats() -> None:
    # As exporters write a resize by a scale: the sizes go through floats.
    nodes = [
        node("Shape", "x", "s", start=1),
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Mul", "f two", "d"),
        node("Floor", "d", "e"),
        node("Cast", "e", "n", to=TensorProto.INT64),
        node("ConstantOfShape", "n", "y"),
    ]
    mod = from_onnx(model(nodes, {"x": [2, "n"]}, ["y"], {"two": np.float32([2])}))
    assert repr(mod["main"].ret_struct_info) == "Tensor(((n * 2),), float32)"


def test_slices_up_to_symbolic_sizes() -> None:
    # A table of positions, cut to the length of the input.
    nodes = [
        node("Shape", "x", "n", start=0, end=1),
        node("Slice", "p zero n zero", "own"),
        node("Add", "x own", "y"),
    ]
    table = floats(8, 2)
    proto = model(nodes, {"x": ["n", 2]}, ["y"], {"p": table, "zero": np.array([0])})
    x = floats(5, 2)
    close(results(proto, x), x + table[:5])
    with pytest.raises(RuntimeError, match="broadcast"):
        results(proto, floats(9, 2))


def test_attributes_of_the_wrong_kind_of_image() -> None:
    proto = model([node("AveragePool", "x", "y", kernel_shape=[2])], {"x": [1, 1, 4, 4]}, ["y"])
    with pytest.raises(ImportModelError, match="kernel_shape, strides and dilations need 2"):
        from_onnx(proto)


# ---- the table -----------------------------------------------------------------------------------


def test_all_operators_on_numbers_are_there() -> None:
    missing, unknown = set(), set()
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain or not 7 <= schema.since_version <= 28 or schema.deprecated:
            continue
        if schema.name in CONVERTERS:
            known = CONVERTERS.get(schema.name).attributes
            unknown |= {f"{schema.name}.{name}" for name in schema.attributes if name not in known}
        elif not (schema.has_function or schema.has_context_dependent_function):
            missing.add(schema.name)
    assert missing == set(
        "ImageDecoder Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike "
        "RegexFullMatch StringConcat StringNormalizer StringSplit".split()
    )
    assert unknown == {
        "Constant.value_string", "Constant.value_strings", "TfIdfVectorizer.pool_strings",
    }  # fmt: skip


def test_gradients() -> None:
    gradient = "ai.onnx.preview.training.Gradient"
    nodes = [node("Add", "a b", "c"), node("Mul", "c a", "d")]

    def model_of(inputs: str, **attributes: Any) -> Any:
        return model(
            [*nodes, node(gradient, inputs, "da db", **attributes)],
            {"a": [2, 3], "b": [3]}, ["da", "db"],
            opsets=[onnx.helper.make_opsetid("ai.onnx.preview.training", 1)],
        )  # fmt: skip

    a, b = floats(2, 3), floats(3)
    da, db = results(model_of("a b", xs=["a", "b"], y="d"), a, b)
    close(da, 2 * a + b)
    close(db, a.sum(0))
    da, dc = results(model_of("a c b", xs=["a", "c"], zs=["b"], y="d"), a, b)
    close(da, a + b)  # c doesn't change
    close(dc, a)
    with pytest.raises(ImportModelError, match="must be the values that it names: a, c"):
        from_onnx(model_of("a b", xs=["a", "c"], y="d"))


def test_max_roi_pool() -> None:
    x = floats(1, 1, 6, 6)
    rois = np.float32([[0, 1, 1, 4, 4]])
    proto = model([node("MaxRoiPool", "x r", "y", pooled_shape=[2, 2])], {"x": x, "r": rois}, ["y"])
    inner = x[0, 0, 1:5, 1:5]
    close(results(proto, x, rois)[0, 0], inner.reshape(2, 2, 2, 2).max((1, 3)))


# ---- Fourier transforms --------------------------------------------------------------------------


def parts(z: Any) -> Any:
    return np.stack([z.real, z.imag], -1)


def test_transforms_along_axes() -> None:
    x, length = floats(2, 10, 3, 2), np.array(7)
    z = x[..., 0] + 1j * x[..., 1].astype("float64")

    def transformed(given: Any, initial: Any = None, names: str = "x", **options: Any) -> Any:
        proto = model([node("DFT", names, "y", **options)], {"x": given}, ["y"], initial)
        return results(proto, given)

    axis = np.array(2)
    close(transformed(x, {"a": axis}, "x - a"), parts(np.fft.fft(z, axis=2)))
    close(transformed(x, {"n": length, "a": axis}, "x n a"), parts(np.fft.fft(z, 7, axis=2)))
    axis = np.array(1)
    close(transformed(x, {"a": axis}, "x - a", inverse=1), parts(np.fft.ifft(z, axis=1)))
    real = np.ascontiguousarray(x[..., :1])
    half = np.fft.rfft(real[..., 0].astype("float64"), axis=1)
    close(transformed(real, {"a": axis}, "x - a", onesided=1), parts(half))
    back = transformed(parts(half).astype("float32"), {"a": axis}, "x - a", onesided=1, inverse=1)
    close(back, real)


@pytest.mark.parametrize("numbers", [1, 2])
def test_spectra_of_frames(numbers: int) -> None:
    x, window = floats(2, 50, numbers), floats(8)
    z = x[..., 0] if numbers == 1 else x[..., 0] + 1j * x[..., 1]
    places = np.arange(15)[:, None] * 3 + np.arange(8)
    wanted = parts(np.fft.fft(z[:, places] * window))
    step = {"s": np.array(3), "w": window}
    proto = model([node("STFT", "x s w", "y", onesided=0)], {"x": ["b", "n", numbers]}, ["y"], step)
    close(results(proto, x), wanted)
    proto = model([node("STFT", "x s w", "y")], {"x": x}, ["y"], step)
    close(results(proto, x), wanted[:, :, :5])
