"""Models that exporters rarely write, judged by ONNX's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.relax.interpreter import run

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, parser  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tilewright.relax.frontend.onnx import from_onnx  # noqa: E402

HEADER = '<ir_version: 10, opset_import: ["": 21]>'
X = np.arange(24, dtype=np.float32).reshape(4, 6) - 9


def agrees(model: Any, *inputs: Any, wanted: Any = None) -> None:
    """Compare a model, or the text of one, with the reference, or with what is wanted."""
    if isinstance(model, str):
        model = parser.parse_model(f"{HEADER}\n{model}")
    found = run(from_onnx(model), *inputs)
    if wanted is None:
        names = [item.name for item in model.graph.input]
        wanted = ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))
    for have, want in zip(found if isinstance(found, tuple) else (found,), wanted):
        assert have.dtype == want.dtype and have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=1e-5)


SIZES = """g (float[n, m] x) => (T y) <int64[1] a = {0}, int64[1] b = {1}, int64[1] five = {5},
    int64[1] two = {2}> { s = Shape (x) n = Gather (s, a) m = Gather (s, b) BODY }"""


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        # Quotients of floats, and of negative integers; numbers that wrap or are rounded.
        ("float", "p = Cast <to: int = 1> (n) q = Cast <to: int = 1> (m) y = Div (p, q)"),
        ("int64", "d = Sub (n, five) y = Div (d, two)"),
        ("int64", "d = Sub (n, five) e = Neg (two) y = Div (d, e)"),
        ("int64", "d = Sub (two, five) e = Concat <axis: int = 0> (d, n) y = Div (e, two)"),
        (
            "int64",
            "p = Cast <to: int = 2> (n) q = Mul (p, p) t = Mul (q, q) y = Cast <to: int = 7> (t)",
        ),
        (
            "float",
            "p = Cast <to: int = 1> (a) q = Cast <to: int = 1> (n) o = Cast <to: int = 1> (b) "
            "y = Range (p, q, o)",
        ),
    ],
)
def test_what_is_computed_of_sizes(kind: str, body: str) -> None:
    text = SIZES.replace("T y", f"{kind}[?] y").replace("BODY", body)
    if "Range" in body:
        text = text.replace("int64[1] a = {0}, int64[1] b = {1}", "int64 a = {0}, int64 b = {1}")
    agrees(text, X)


NARROW = """g (float[4] x, bool c) => (int8[4] y) <float[1] s = {0.1}, int64[1] one = {1},
    int64 three = {3}, bool yes = {1}> { BODY y = Cast <to: int = 3> (t) }"""


@pytest.mark.parametrize(
    "body",
    [
        "q = Identity (z)",
        "q = Reshape (z, one)",
        "q = Concat <axis: int = 0> (z)",
        "q = If (c) <then_branch = a () => (int4[1] u) { u = Identity (z) }, "
        "else_branch = b () => (int4[1] v) { v = Reshape (z, one) }>",
        "q = Loop (three, yes, z) <body = l (int64 i, bool k, int4[1] v) => (bool k2, int4[1] v2) "
        "{ k2 = Identity (k) v2 = Reshape (v, one) }>",
        "r = Scan <num_scan_inputs = 1, body = l (int4 v) => (int4 v2) { v2 = Identity (v) }> (z) "
        "q = Identity (r)",
    ],
)
def test_narrow_types_go_through_nodes(body: str) -> None:
    quantize = "t = QuantizeLinear <axis: int = 0, block_size: int = 4> (x, s, q)"
    model = parser.parse_model(f"{HEADER}\n{NARROW.replace('BODY', f'{body} {quantize}')}")
    model.graph.initializer.append(helper.make_tensor("z", TensorProto.INT4, [1], [1]))
    x = np.array([5, -5, 0.1, 0.4], np.float32)
    agrees(model, x, np.array(True), wanted=[np.array([7, -8, 2, 5], np.int8)])


def test_narrow_types_of_constants() -> None:
    like = helper.make_tensor("z", TensorProto.INT4, [1], [1])
    make = helper.make_node
    nodes = [
        make("Constant", [], ["z"], value=like),
        make("CastLike", ["w", "z"], ["t"]),
        make("Cast", ["t"], ["y"], to=TensorProto.INT8),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [], [info("y", TensorProto.INT8, [3])],
        [helper.make_tensor("w", TensorProto.INT32, [3], [200, 100, -9])],
    )  # fmt: skip
    agrees(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def test_names_inside_of_branches_may_come_again() -> None:
    agrees(
        """g (float[2] x, bool c) => (float[2] a) {
            y = If (c) <then_branch = t () => (float[2] r) { a = Neg (x) r = Abs (a) },
                        else_branch = e () => (float[2] u) { u = Neg (x) }>
            a = Exp (y)
        }""",
        np.ones(2, np.float32),
        np.array(True),
    )


@pytest.mark.parametrize("rows", [4, 0])
@pytest.mark.parametrize("reverse", [0, 1])
def test_sums_before_each_element(rows: int, reverse: int) -> None:
    agrees(
        f"""g (float[n, m] x) => (float[n, m] y) <int64 zero = {{0}}>
        {{ y = CumSum <exclusive: int = 1, reverse: int = {reverse}> (x, zero) }}""",
        np.ones((rows, 3), np.float32),
    )


def test_means_of_integers_over_symbolic_axes() -> None:
    x = np.array([[5, -7], [6, 3], [9, -4]], np.int32)
    agrees(
        "g (int32[n, m] x) => (int32[1, m] y) <int64[1] zero = {0}> { y = ReduceMean (x, zero) }",
        x,
        wanted=[np.array([[6, -2]], np.int32)],
    )


def test_places_of_the_least_numbers_are_in_the_image() -> None:
    agrees(
        """g (int8[1, 1, 3] x) => (int8[1, 1, 4] y, int64[1, 1, 4] z)
        { y, z = MaxPool <kernel_shape: ints = [2], pads: ints = [1, 1]> (x) }""",
        np.full((1, 1, 3), -128, np.int8),
        wanted=[np.full((1, 1, 4), -128, np.int8), np.array([[[0, 0, 1, 2]]])],
    )


def test_limits_that_cross_and_steps_that_are_not_whole() -> None:
    make = helper.make_node
    info = helper.make_tensor_value_info
    clip = helper.make_graph(
        [make("Clip", ["x"], ["y"], min=2.0, max=-1.0)], "g",
        [info("x", TensorProto.FLOAT, [4, 6])], [info("y", TensorProto.FLOAT, [4, 6])],
    )  # fmt: skip
    agrees(helper.make_model(clip, opset_imports=[helper.make_opsetid("", 10)]), X)
    agrees(
        "g (int8[3] x) => (int8[3] y) { y = Shrink <bias: float = 0.5> (x) }",
        np.array([94, -94, 0], np.int8),
    )


@pytest.mark.parametrize("factor", [0.0, 1.0, -1.0])
def test_dynamic_quantisation_of_nothing_but_zeros(factor: float) -> None:
    text = """g (float[4, 6] x) => (uint8[4, 6] y, float s, uint8 z) {
        y, s, z = DynamicQuantizeLinear (x) }"""
    agrees(text, X * np.float32(factor))
