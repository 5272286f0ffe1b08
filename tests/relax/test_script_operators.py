"""Every graph operator prints as script text that parses back to the same graph."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, symbol, tensor
from tilewright import relax, script
from tilewright.ir import structural_equal
from tilewright.relax import op
from tilewright.script import relax as R
from tilewright.support.errors import ParseError

N = symbol("n")
MATRIX, IMAGE, FLAGS = tensor((N, 4)), tensor((1, 4, 8, 8)), tensor((2, 4), "bool")
VECTOR, LINE, VOLUME = tensor((4,)), tensor((1, 4, 8)), tensor((1, 4, 8, 8, 8))
KERNEL, INDEX = tensor((4, 4, 3, 3)), tensor((2, 3), "int64")
HEADS = tensor((1, 2, 4, 8))

# What isn't called on tensors alone, or has attributes to print.
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "arange": (lambda x: op.arange(1, 9, 2, "int32") + x, [tensor((4,), "int32")]),
    "assert_op": (lambda x: op.assert_op(N > 3, (N,), "{} > 3"), [MATRIX]),
    "as_strided": (lambda x: op.as_strided(x, (N, 2), (4, 1), 1), [MATRIX]),
    "astype": (lambda x: op.astype(x, "int32"), [MATRIX]),
    "broadcast_to": (lambda x: op.broadcast_to(x, (3, N, 4)), [MATRIX]),
    "clip": (lambda x: op.clip(x, -math.inf, 2.5), [MATRIX]),
    "concat": (lambda x, y: op.concat([x, y], 1), [MATRIX, MATRIX]),
    "cummax": (lambda x: op.cummax(x, 0, "int32"), [MATRIX]),
    "diag_embed": (lambda x: op.diag_embed(x, -1, 0), [MATRIX]),
    "expand_dims": (lambda x: op.expand_dims(x, (0, -1)), [MATRIX]),
    "flip": (lambda x: op.flip(x, 1), [MATRIX]),
    "full": (lambda x: op.full((N, 4), -math.inf) + x, [MATRIX]),
    "gather_elements": (lambda x, i: op.gather_elements(x, i, 1, "wrap"), [INDEX, INDEX]),
    "gather_nd": (lambda x, i: op.gather_nd(x, i, 1), [tensor((2, 5, 4, 3)), INDEX]),
    "index_put": (
        lambda x, i, v: op.index_put(x, [i, i], v, True, 1),
        [tensor((N, 5, 4)), INDEX, tensor((N, 2, 3))],
    ),
    "index_tensor": (lambda x, i: op.index_tensor(x, [i], 1), [MATRIX, INDEX]),
    "image.sample_at": (
        lambda x, grid: op.image.sample_at(x, grid, "cubic"), [IMAGE, tensor((1, 3, N, 2))]
    ),
    "image.resize": (lambda x: op.image.resize2d(x, (4, 6), method="cubic"), [IMAGE]),
    "image.resize2d": (
        lambda x: op.image.resize2d(
            x, (4, 6), method="nearest_neighbor", rounding_method="pytorch",
            scale_factor=(0.5, 0.7),
        ),
        [IMAGE],
    ),
    "image.resize_by_mode": (
        lambda x: op.image.resize2d(
            x, 4, (0.1, 0.2, 0.8, 1.5), "NHWC", "cubic", "tf_crop_and_resize", "ceil", -0.5, 1, 2.0,
            "float16",
        ),
        [IMAGE],
    ),
    "image.grid_sample": (
        lambda x, g: op.image.grid_sample(x, g, "nearest", "NHWC", "border", True),
        [IMAGE, tensor((1, 2, N, 3))],
    ),
    "image.affine_grid": (
        lambda x: op.image.affine_grid(x, (4, 5), False), [tensor((N, 2, 3))]
    ),
    "nn.group_norm": (
        lambda x, g: op.nn.group_norm(x, g, g, 2, 1, [2, -1], 1e-3, False), [IMAGE, VECTOR]
    ),
    "nn.instance_norm": (
        lambda x, g: op.nn.instance_norm(x, g, g, 1, [2, -1], 1e-3, True, False), [IMAGE, VECTOR]
    ),
    "vision.roi_align": (
        lambda x, r: op.vision.roi_align(x, r, (2, 3), 0.5, 2, True, "NHWC", "max"),
        [IMAGE, tensor((N, 5))],
    ),
    "vision.roi_pool": (
        lambda x, r: op.vision.roi_pool(x, r, 2, 0.5), [IMAGE, tensor((N, 5))]
    ),
    "vision.get_valid_counts": (
        lambda x: op.vision.get_valid_counts(x, 0.5, -1), [tensor((N, 3, 6))]
    ),
    "vision.non_max_suppression": (
        lambda x, c, i: op.vision.non_max_suppression(x, c, i, 3, soft_nms_sigma=0.5),
        [tensor((N, 3, 6)), tensor((N,), "int32"), tensor((N, 3), "int32")],
    ),
    "vision.all_class_non_max_suppression": (
        lambda b, s: op.vision.all_class_non_max_suppression(b, s, 3, 0.5, 0.25, "tensorflow"),
        [tensor((N, 5, 4)), tensor((N, 2, 5))],
    ),
    "vision.multibox_transform_loc": (
        lambda c, l, a: op.vision.multibox_transform_loc(c, l, a, True, 0.5, (1, 1, 2, 2)),
        [tensor((N, 2, 3)), tensor((N, 12)), tensor((1, 3, 4))],
    ),
    "layout_transform": (lambda x: op.layout_transform(x, lambda i, j: (j, i)), [FLAGS]),
    "matmul": (lambda x, y: op.matmul(x, y, "float32", True), [MATRIX, MATRIX]),
    "memory.empty": (lambda x: relax.memory.empty((N, 4), "int8"), [MATRIX]),
    "memory.alloc_tensor": (
        lambda x, y: relax.memory.alloc_tensor(x, 8, (N, 4), "int8"),
        [tensor((N * 4 + 8,), "uint8"), MATRIX],
    ),
    "memory.view": (lambda x: relax.memory.view(x, (4, N)), [MATRIX]),
    "memory.workspace": (lambda x: relax.memory.workspace(N * 4), [MATRIX]),
    "call_inplace_packed": (
        lambda x: op.call_inplace_packed("f", x, 3, inplace_indices=[0], sinfo_args=MATRIX),
        [MATRIX],
    ),
    "call_with_objects": (
        lambda x: op.call_with_objects("f", "t;t-1", x, sinfo_args=MATRIX), [MATRIX]
    ),
    "quantize": (lambda x, s, z: op.quantize(x, s, z, 1, "uint8"), [MATRIX, VECTOR, VECTOR]),
    "dequantize": (
        lambda x, s, z: op.dequantize(x, s, z, 0, "float16"), [INDEX, tensor((2,)), tensor(())]
    ),
    "nn.attention": (
        lambda q, b: op.nn.attention(q, q, q, b, 0.5), [HEADS, tensor((2, 2))]
    ),
    "nn.batch_norm": (lambda x, y: op.nn.batch_norm(x, y, y, y, y, 1, 1e-3), [IMAGE, VECTOR]),
    "nn.layer_norm": (lambda x, y: op.nn.layer_norm(x, y, y, -1, 1e-3), [MATRIX, VECTOR]),
    "nn.pad": (lambda x: op.nn.pad(x, (0, 1, 2, 3), "constant", -math.inf), [MATRIX]),
    "nn.prelu": (lambda x, y: op.nn.prelu(x, y, 1), [MATRIX, VECTOR]),
    "nn.recurrence": (
        lambda x, w, b, h: op.nn.recurrence(x, w, b, h, cell="gru", reverse=True),
        [tensor((N, 2, 12)), tensor((4, 12)), tensor((12,)), tensor((2, 4))],
    ),
    "nn.rms_norm": (lambda x, y: op.nn.rms_norm(x, y, 1, 1e-3), [MATRIX, VECTOR]),
    "irfft_pairs": (lambda x: op.irfft(x, x, 4, axis=1, scale=0.5), [tensor((2, 3))]),
    "stft": (
        lambda x, w: op.stft(x, w, 2, normalized=True, onesided=False),
        [tensor((2, 20)), tensor((8,))],
    ),
    "overlap_rows": (lambda x: op.overlap_add(x, 2), [tensor((2, 5, 4))]),
    "nn.append_paged_kv": (
        lambda k, p, t, n: op.nn.append_paged_kv(k, k, p, t, n, n),
        [tensor((1, N, 2, 8)), tensor((9, 2, 2, 4, 8)), tensor((1, 3), "int32"),
         tensor((1,), "int32")],
    ),
    "nn.paged_attention": (
        lambda q, p, t, n: op.nn.paged_attention(q, p, t, n, 0.5, 3),
        [HEADS, tensor((N, 2, 2, 4, 8)), tensor((1, 3), "int32"), tensor((1,), "int32")],
    ),
    "nn.scaled_dot_product_attention": (
        lambda q: op.nn.scaled_dot_product_attention(
            q, q, q, scale=0.5, causal_mask="TopLeft", layout=("BHSD", "BHSD", "BHSD", "BSHD"),
            window_size=2,
        ), [HEADS]
    ),
    "nn.conv1d": (lambda x, w: op.nn.conv1d(x, w, 2, 1), [LINE, tensor((4, 4, 3))]),
    "nn.conv2d": (lambda x, w: op.nn.conv2d(x, w, (2, 1), (1, 0, 1, 0)), [IMAGE, KERNEL]),
    "nn.conv3d": (lambda x, w: op.nn.conv3d(x, w, groups=2), [VOLUME, tensor((4, 2, 3, 3, 3))]),
    "nn.conv1d_transpose": (
        lambda x, w: op.nn.conv1d_transpose(x, w, 2, 1, 1), [LINE, tensor((4, 4, 3))]
    ),
    "nn.conv2d_transpose": (lambda x, w: op.nn.conv2d_transpose(x, w, 2), [IMAGE, KERNEL]),
    "nn.conv3d_transpose": (
        lambda x, w: op.nn.conv3d_transpose(x, w), [VOLUME, tensor((4, 4, 3, 3, 3))]
    ),
    **{
        f"grad.{kind}_pool{axes}d_backward": (
            lambda g, x, name=f"{kind}_pool{axes}d_backward": getattr(op.grad, name)(g, x),
            [info, info],
        )
        for kind in ("max", "avg")
        for axes, info in ((1, LINE), (2, IMAGE), (3, VOLUME))
    },
    "grad.max_pool_places_backward": (
        lambda g, x, i: op.grad.max_pool_places_backward(g, x, i),
        [tensor((1, 4, 4, 4)), IMAGE, tensor((1, 4, 4, 4), "int64")],
    ),
    "grad.conv_weight_backward": (
        lambda g, x: op.grad.conv_weight_backward(g, x, (3, 3), by_image=True),
        [tensor((1, 4, 6, 6)), IMAGE],
    ),
    "nn.adaptive_max_pool_places": (lambda x: op.nn.adaptive_max_pool_places(x, 3), [VOLUME]),
    "nn.max_pool_places": (lambda x: op.nn.max_pool_places(x, 2, 2), [LINE]),
    "grad.take_backward": (
        lambda x, i: op.grad.take_backward(op.take(x, i, 1), x, i, 1), [MATRIX, INDEX]
    ),
    "grad.gather_elements_backward": (
        lambda x, i: op.grad.gather_elements_backward(x, x, i, 1), [MATRIX, tensor((4, 4), "int64")]
    ),
    "nn.attention_var_len": (
        lambda q, s, m: op.nn.attention_var_len(q, q, q, s, m, s, m, 0.5, "TopLeft", 3),
        [tensor((1, N, 2, 4)), tensor((3,), "int32"), tensor((1,), "int32")],
    ),
    "grad.nll_loss_backward": (
        lambda x, i, g: op.grad.nll_loss_backward(g, x, i, ignore_index=1),
        [MATRIX, tensor((N,), "int64"), tensor(())],
    ),
    "nn.nll_loss": (
        lambda x, i: op.nn.nll_loss(x, i, ignore_index=1), [MATRIX, tensor((N,), "int64")]
    ),
    "one_hot": (lambda i: op.one_hot(i, 2, 1, 5, 0, "int8"), [INDEX]),
    "permute_dims": (lambda x: op.permute_dims(x, (1, 0)), [MATRIX]),
    "repeat": (lambda x: op.repeat(x, 2, 1), [MATRIX]),
    "reshape": (lambda x: op.reshape(x, (2, -1, 2)), [MATRIX]),
    "roll": (lambda x: op.roll(x, -3, 1), [MATRIX]),
    "scatter_elements": (
        lambda x, i, u: op.scatter_elements(x, i, u, 1, "max"),
        [tensor((2, 4)), INDEX, tensor((2, 3))],
    ),
    "scatter_nd": (
        lambda x, i, u: op.scatter_nd(x, i, u, "add"),
        [tensor((N, 4, 5)), tensor((2, 3), "int64"), tensor((2,))],
    ),
    "scalar_to_tensor": (lambda x: op.scalar_to_tensor(N + 1), [MATRIX]),
    "searchsorted": (lambda s, v: op.searchsorted(s, v, True, "int32"), [VECTOR, MATRIX]),
    "shape_to_tensor": (lambda x: op.shape_to_tensor((N, 4)), [MATRIX]),
    "slice_scatter": (
        lambda x, u: op.slice_scatter(x, u, N, 2 * N, 1, 0), [tensor((3 * N, 4)), MATRIX]
    ),
    "split": (lambda x: op.split(x, (1, 3), 1), [MATRIX]),
    "squeeze": (lambda x: op.squeeze(x, (0, -1)), [tensor((1, N, 1))]),
    "strided_slice": (lambda x: op.strided_slice(x, [0, -1], [1, 0], [-1, 4], [1, 2]), [MATRIX]),
    "take": (lambda x, i: op.take(x, i, 1, "wrap"), [MATRIX, INDEX]),
    "tensor_to_shape": (op.tensor_to_shape, [tensor((2,), "int64")]),
    "tile": (lambda x: op.tile(x, (2, 3)), [MATRIX]),
    "topk": (lambda x: op.topk(x, 3, 1, "both", False, "int64"), [MATRIX]),
    "where": (op.where, [FLAGS, tensor((2, 4)), tensor((2, 4))]),
}  # fmt: skip

_INTEGERS = {
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "floor_mod", "left_shift",
    "right_shift",
}  # fmt: skip
_BOOLS = {"all", "any", "logical_and", "logical_not", "logical_or"}
_POOLS = {"1d": LINE, "2d": IMAGE, "3d": VOLUME}
# These have tests of their own (`test_global_functions`, `test_inplace`, …).
_BUILT_BY_FUNCTIONS = {
    "assert_tensor", "call_dps", "call_dps_packed", "call_packed", "call_pure_packed", "call_tir",
    "call_tir_inplace", "call_tir_with_grad", "invoke_closure", "print",
}  # fmt: skip


def case(name: str) -> tuple[Callable[..., Any], list[Any]]:
    """A call of an operator: from the table, or on tensors alone with attributes as they are."""
    if name in CASES:
        return CASES[name]
    found = op.get_op(name)
    info = FLAGS if name in _BOOLS else INDEX if name in _INTEGERS else MATRIX
    info = _POOLS[name[-2:]] if "pool" in name else info
    required = [
        parameter
        for parameter in inspect.signature(found.rule).parameters.values()
        if parameter.default is inspect.Parameter.empty
    ]
    return found.build, [info] * len(required)


@pytest.mark.parametrize("name", [n for n in op.OPERATORS if n not in _BUILT_BY_FUNCTIONS])
def test_calls_print_and_parse(name: str) -> None:
    body, infos = case(name)
    mod = graph(body, *infos)
    used = {getattr(binding.value, "op_name", "") for binding in mod["main"].bindings}
    assert name in used
    text = mod.script()
    parsed = script.parse(text, {"metadata": R.metadata_of(mod)})
    assert parsed.script() == text
    assert structural_equal(parsed, mod)


def test_tensors_of_known_rank_only() -> None:
    text = 'def main(x: R.Tensor("int8", ndim=2), y: R.Tensor("float16"), z: R.Tensor(ndim=1)):'
    header = f"from tilewright.script import relax as R\n@R.function\n{text}\n    return x\n"
    parsed = script.parse(header)
    infos = [param.struct_info for param in parsed.params]
    assert [(i.dtype, i.ndim, i.has_shape) for i in infos] == [
        ("int8", 2, False), ("float16", -1, False), ("float32", 1, False)
    ]  # fmt: skip
    for wrong in ('R.Tensor("n", "float32")', "R.Tensor(4)", 'R.Shape("n")'):
        with pytest.raises(ParseError, match="extents"):
            script.parse(header.replace('R.Tensor("int8", ndim=2)', wrong))
    for wrong in ('R.Tensor("int8", ndim=-5)', "R.Shape(ndim=-2)", 'R.Prim("float99")'):
        with pytest.raises(ParseError, match=r"number of dimensions|unknown dtype"):
            script.parse(header.replace('R.Tensor("int8", ndim=2)', wrong))


def test_constants_print_and_parse() -> None:
    data = np.arange(6, dtype="float32").reshape(2, 3)
    mod = graph(lambda x: x + relax.const(data), tensor((2, 3)))
    parsed = script.parse(mod.script(), {"metadata": R.metadata_of(mod)})
    assert structural_equal(parsed, mod)
