"""Hostile ONNX models: a graph, or an error that says what is wrong, and nothing else.

Valid models are damaged as bytes, or field by field: numbers, names, kinds of operators, shapes,
element types, nodes that are lost, repeated or exchanged. Nothing may take long or much memory,
whatever sizes a model claims.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any

from tilewright.ir.contents import make_collectors
from tilewright.relax.frontend.onnx import from_onnx, parse_model, require_onnx
from tilewright.support.errors import TilewrightError
from tilewright.testing.hostile.kind import OWN_FILES, Case, Kind, Limits, emptied_folder, folder
from tilewright.testing.hostile.mutate import damaged_bytes

if TYPE_CHECKING:
    import onnx

_HEADER = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1, "mine": 1]>'
_MODELS = (
    """convolution (float[n, 3, 8, 8] x) => (float[] y)
    <float[2, 3, 3, 3] w, float[2] b = {1.0, 2.0}, int64[2] shape = {-1, 2}>
    {
        c = Conv <pads: ints = [1, 1, 1, 1], strides: ints = [2, 2]> (x, w, b)
        r = Relu (c)
        p = MaxPool <kernel_shape: ints = [2, 2], ceil_mode: int = 1> (r)
        g = GlobalAveragePool (p)
        f = Reshape (g, shape)
        y = Softmax <axis: int = 1> (f)
    }""",
    """sizes (float[batch, length, 4] x) => (float[] y)
    <int64 zero = {0}, int64[1] last = {-1}, int64[1] first = {0}>
    {
        s = Shape (x)
        n = Gather (s, zero)
        m = Unsqueeze (n, first)
        t = Concat <axis: int = 0> (m, last)
        r = Reshape (x, t)
        y = Transpose <perm: ints = [1, 0]> (r)
    }""",
    """moves (float[4, 6] x) => (float[] y, float[] z)
    <int64[1] starts = {1}, int64[1] ends = {3}, int64[1] axes = {1}, int64[4] pads = {1, 0, 0, 1},
     int64[2] repeats = {2, 1}, int64[2] splits = {2, 2}, int64[2, 1] places = {0, 3}>
    {
        a = Slice (x, starts, ends, axes)
        b = Pad <mode: string = "reflect"> (a, pads)
        c = Tile (b, repeats)
        d = GatherND (c, places)
        e, z = Split <axis: int = 0> (x, splits)
        y = Concat <axis: int = 1> (d, d)
    }""",
    """products (float[2, 8] x) => (float[] y, uint8[] q)
    <int8[8, 4] w, float s = {0.1}, uint8 z = {3}, float[4] t = {0.1, 0.2, 0.3, 0.4}>
    {
        q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z)
        e = DequantizeLinear <axis: int = 1> (w, t)
        m = MatMul (d, e)
        y = com.microsoft.FastGelu (m)
    }""",
    """control (float[3] x, bool c) => (float[] y, float[] rows)
    <int64 n = {3}, bool yes = {1}>
    {
        b = If (c) <then_branch = a () => (float[3] t) { t = Neg (x) },
                    else_branch = e () => (float[3] u) { u = Abs (x) }>
        y, rows = Loop (n, yes, b) <body = l (int64 i, bool k, float[3] v) =>
            (bool k2, float[3] v2, float[3] row) { k2 = Identity (k) v2 = Add (v, x)
            row = Identity (v2) }>
    }""",
    """attention (float[1, 4, 8] x) => (float[] y)
    <float[8, 24] w, float[24] b>
    {
        a = com.microsoft.Attention <num_heads: int = 2, unidirectional: int = 1> (x, w, b)
        s, m, d, t = com.microsoft.SkipLayerNormalization (a, x, g)
        y = Einsum <equation: string = "bij,bkj->bik"> (s, t)
        g = Constant <value_floats: floats = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]> ()
    }""",
    """recurrent (float[3, 1, 4] x) => (float[] y)
    <float[1, 8, 4] w, float[1, 8, 2] r, float[4] scales = {1.0, 1.0, 2.0, 2.0}, int64 k = {2}>
    {
        h, last, cell = LSTM <hidden_size: int = 2> (x, w, r)
        z = Resize <mode: string = "linear"> (h, , scales)
        y, at = TopK <axis: int = 0> (z, one)
        one = Constant <value_ints: ints = [1]> ()
    }""",
    """pictures (float[1, 4, 6, 6] x) => (float[] y, float[] s)
    <float[4] scales = {1.0, 1.0, 0.5, 1.5}>
    {
        a = LRN <size: int = 3> (x)
        b, at = MaxPool <kernel_shape: ints = [2, 2], dilations: ints = [2, 1]> (a)
        c = AveragePool <kernel_shape: ints = [2, 2], dilations: ints = [2, 1]> (a)
        d = LpPool <kernel_shape: ints = [2, 2], p: int = 3> (a)
        e = Resize <antialias: int = 1, mode: string = "cubic"> (x, , scales)
        f, g = Split <num_outputs: int = 2, axis: int = 1> (e)
        h = SplitToSequence <axis: int = 0> (f, one)
        i = ConcatFromSequence <axis: int = 0, new_axis: int = 1> (h)
        y = DepthToSpace <blocksize: int = 2> (x)
        s = Det (x)
        one = Constant <value_int: int = 1> ()
    }""",
    """signals (float[1, 16, 1] x, int64[2, 5] words) => (float[] y, float[] z)
    <int64 step = {4}, int64 size = {8}>
    {
        w = HannWindow (size)
        f = STFT (x, step, w, size)
        y = DFT <inverse: int = 1, axis: int = 1> (f)
        z = TfIdfVectorizer <mode: string = "TF", min_gram_length: int = 1,
            max_gram_length: int = 2, max_skip_count: int = 1, ngram_counts: ints = [0, 2],
            ngram_indexes: ints = [0, 1, 2], pool_int64s: ints = [1, 2, 3, 4]> (words)
    }""",
    """functions (float[3] x) => (float[] y)
    { a = mine.twice <slope: float = 0.5> (x) y = Celu (a) }
    <domain: "mine", opset_import: ["": 21]>
    twice <slope> (u) => (v) { w = LeakyRelu <alpha: float = @slope> (u) v = Add (w, w) }""",
)
_NUMBERS = (
    0, 1, -1, 2, 3, 7, 255, 1 << 20, 2**31 - 1, -(2**31), 2**31, 2**61 + 1, 2**62, 2**62 + 1,
    2**63 - 1, -(2**63),
)  # fmt: skip
"""Some of them times an extent are small again in 64 bits."""
_WEIGHTS = "weights.bin"
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, float("inf"), float("nan"))
_KINDS = (
    "Add Concat Conv Reshape Slice Loop If Scan Resize Gather Expand Tile Pad Range Split Einsum "
    "ConstantOfShape DFT MaxPool Attention OneHot Cast TopK SequenceAt Softmax Nothing MaxUnpool "
    "Unique NonZero NonMaxSuppression RoiAlign GRU Col2Im DeformConv GridSample Trilu EyeLike "
    "CumSum Compress ReverseSequence MelWeightMatrix GroupNormalization SpaceToDepth ScatterND"
).split()


@lru_cache(maxsize=1)
def _corpus() -> tuple[bytes, ...]:
    parser = importlib.import_module("onnx.parser")
    found = []
    for text in _MODELS:
        model = parser.parse_model(f"{_HEADER}\n{text}")
        for info in model.graph.value_info:  # what has no numbers in the text is a weight
            kind = info.type.tensor_type
            tensor = model.graph.initializer.add(name=info.name, data_type=kind.elem_type)
            tensor.dims.extend(dim.dim_value for dim in kind.shape.dim)
            numbers = tensor.float_data if kind.elem_type == 1 else tensor.int32_data
            numbers.extend([1] * math.prod(tensor.dims))
        model.graph.ClearField("value_info")
        found.append(model.SerializeToString())
    return tuple(found)


def make(rng: Random) -> Case:
    """Damage a model."""
    data = rng.choice(_corpus())
    if rng.random() < 0.25:
        return Case("bytes", damaged_bytes(rng, data))
    model = parse_model(data)
    labels = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        label = rng.choice(list(_CHANGES))
        _CHANGES[label](rng, model)
        labels.append(label)
    return Case("+".join(labels), model.SerializeToString())


def _messages(message: Any, found: list[Any]) -> list[Any]:
    """A message and all in it."""
    found.append(message)
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for item in value if not hasattr(value, "ListFields") else [value]:
            _messages(item, found)
    return found


def _drawn_message(
    rng: Random, model: onnx.ModelProto, name: str
) -> Any:  # of the type that is named
    """A message of a type, if there is one."""
    return rng.choice([m for m in _messages(model, []) if m.DESCRIPTOR.name == name] or [None])


def _change_attribute(rng: Random, model: onnx.ModelProto) -> None:
    found = _drawn_message(rng, model, "AttributeProto")
    if found is None:
        return
    if found.ints and rng.random() < 0.7:
        found.ints[rng.randrange(len(found.ints))] = rng.choice(_NUMBERS)
    elif found.ints:
        del found.ints[rng.randrange(len(found.ints)) :]
    found.i = rng.choice(_NUMBERS)
    found.f = rng.choice(_FLOATS)
    found.s = rng.choice((b"", b"linear", b"SAME_UPPER", b"\xff\x00", b"...,ij->k", b"a" * 5000))
    if rng.random() < 0.2:
        found.type = rng.randrange(15)
    if rng.random() < 0.2:
        found.name = rng.choice(("axis", "body", "value", "perm", "to", "kernel_shape", ""))


def _change_tensor(rng: Random, model: onnx.ModelProto) -> None:
    found = _drawn_message(rng, model, "TensorProto")
    if found is None:
        return
    how = rng.randrange(4)
    if how == 0 and found.dims:
        found.dims[rng.randrange(len(found.dims))] = rng.choice(_NUMBERS)
    elif how == 1:
        found.data_type = rng.randrange(30)
    elif how == 2:
        for field in ("int64_data", "float_data"):
            values = getattr(found, field)
            if values:
                pool: tuple[float, ...] = _NUMBERS if field == "int64_data" else _FLOATS
                values[rng.randrange(len(values))] = rng.choice(pool)
    else:
        found.data_location = 1
        found.ClearField("raw_data")
        places = ("/etc/passwd", "../x", ".", "", "a" * 300, "a/" * 5000, "\x00", "/dev/zero")
        place = rng.choice((*places, _WEIGHTS, _WEIGHTS, "circle", "outside", "model.onnx"))
        found.external_data.add(key="location", value=place)
        for key in ("offset", "length"):
            if rng.random() < 0.3:
                number = rng.choice((*_NUMBERS, "1e3", "0x4", "9" * 5000))
                found.external_data.add(key=key, value=str(number))


def _change_shape(rng: Random, model: onnx.ModelProto) -> None:
    found = _drawn_message(rng, model, "Dimension")
    if found is None:
        return
    if rng.random() < 0.3:
        found.dim_param = rng.choice(("n", "batch", "", "a b", "x" * 300, "0"))
    else:
        found.dim_value = rng.choice(_NUMBERS)


def _change_type(rng: Random, model: onnx.ModelProto) -> None:
    found = _drawn_message(rng, model, "Tensor")
    if found is not None:
        found.elem_type = rng.randrange(30)


def _change_node(rng: Random, model: onnx.ModelProto) -> None:
    found = _drawn_message(rng, model, "NodeProto")
    how = rng.randrange(5)
    if found is None:
        return
    if how == 0:
        found.op_type = rng.choice(_KINDS)
    elif how == 1 and found.input:
        names = [name for m in _messages(model, []) for name in getattr(m, "output", ())]
        texts = [name for name in names if isinstance(name, str)]
        found.input[rng.randrange(len(found.input))] = rng.choice([*texts, "", "x", "w"])
    elif how == 2 and found.input:
        del found.input[rng.randrange(len(found.input)) :]
    elif how == 3:
        found.input.append(rng.choice(["x", "", "w"]))
    elif found.output:
        found.output[rng.randrange(len(found.output))] = rng.choice(["x", "y", "", "t"])


def _change_graph(rng: Random, model: onnx.ModelProto) -> None:
    found = _drawn_message(rng, model, "GraphProto")
    if found is None:
        return
    if found.node and rng.random() < 0.6:
        place = rng.randrange(len(found.node))
        if rng.random() < 0.5:
            del found.node[place]
        else:
            found.node.add().CopyFrom(found.node[place])
    elif found.initializer:
        del found.initializer[rng.randrange(len(found.initializer))]


def _change_versions(rng: Random, model: onnx.ModelProto) -> None:
    if model.opset_import:
        rng.choice(model.opset_import).version = rng.choice((*_NUMBERS, 7, 9, 11, 13))


_CHANGES: dict[str, Callable[[Random, onnx.ModelProto], None]] = {
    "attribute": _change_attribute,
    "tensor": _change_tensor,
    "shape": _change_shape,
    "type": _change_type,
    "node": _change_node,
    "graph": _change_graph,
    "versions": _change_versions,
}


def check(data: bytes) -> str:
    """Import the model from a file, beside which there are others."""
    path = folder() / "model.onnx"
    path.write_bytes(data)
    try:
        from_onnx(path)
    except TilewrightError:
        return "refused"
    return "imported"


def _prepare() -> None:
    """Load what imports need, all of the models' operators among it."""
    require_onnx()
    make_collectors()
    for data in _corpus():
        from_onnx(parse_model(data))
    own = emptied_folder()
    (own / _WEIGHTS).write_bytes(bytes(4096))
    (own / "circle").symlink_to("circle")
    (own / "outside").symlink_to("/etc/passwd")


_LIMITS = Limits(seconds=20.0, memory=1 << 30, harmless=OWN_FILES)
KIND = Kind(make, check, _LIMITS, _prepare)
