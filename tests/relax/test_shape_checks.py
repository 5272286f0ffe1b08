"""What inference can't prove of symbolic sizes is checked when a graph is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.everyday import few
from tests.relax.helpers import graph, random, symbol, tensor
from tilewright import relax, script, te, topi
from tilewright.ir import IRModule
from tilewright.relax import interpreter, op
from tilewright.relax.transform import CheckShapes
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.support.errors import LowerError, RunError, VerifyError

N, M, K = symbol("n"), symbol("m"), symbol("k")
ONE = np.ones


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


Row = tuple[Callable[..., Any], list[Any], list[np.ndarray], list[np.ndarray], str]

# operator: the graph, its parameters, arguments that are right, arguments that aren't, the message
CASES: dict[str, Row] = {
    "matmul": (op.matmul, [(3, 4), (K, 6)], [random(3, 4), random(4, 6)],
               [random(3, 4), random(2, 6)], "matmul: inner extents differ: 4 against k = 2"),
    "matmul batch": (op.matmul, [(N, 2, 3), (M, 3, 2)], [random(2, 2, 3), random(2, 3, 2)],
                     [random(2, 2, 3), random(3, 3, 2)], "n = 2 against m = 3"),
    "add": (op.add, [(N,), (M,)], [random(2), random(2)], [random(2), random(1)],
            "add: extents do not broadcast: n = 2 against m = 1"),
    "less": (op.less, [(N, 4), (4, M)], [random(4, 4), random(4, 4)], [random(5, 4), random(4, 4)],
             "less: extents do not broadcast: n = 5 against 4"),
    "where": (lambda c, x: op.where(op.greater(c, 0.0), x, x), [(N,), (M,)],
              [random(3), random(3)], [random(3), random(2)], "where: extents do not broadcast"),
    "broadcast_to": (lambda x, y: op.broadcast_to(x, (2, M)) + y, [(N,), (M,)],
                     [random(3), random(3)], [random(3), random(4)], "broadcast_to: extents"),
    "concat": (lambda x, y: op.concat([x, y], 1), [(N, 2), (M, 3)], [random(2, 2), random(2, 3)],
               [random(3, 2), random(2, 3)], "concat: extents of axis 0 differ: n = 3"),
    "stack": (lambda x, y: op.stack([x, y]), [(N,), (M,)], [random(2), random(2)],
              [random(2), random(3)], "concat: extents of axis 1 differ"),
    "reshape": (lambda x: op.reshape(x, (4, 2)), [(N, 2)], [random(4, 2)], [random(5, 2)],
                "reshape: numbers of elements differ: (n * 2) = 10 against 8"),
    "reshape -1": (lambda x: op.reshape(x, (-1, 4)), [(N, 2)], [random(6, 2)], [random(5, 2)],
                   "reshape: numbers of elements differ: (n * 2) = 10"),
    "squeeze": (lambda x: op.squeeze(x, 0), [(N, 2)], [random(1, 2)], [random(2, 2)],
                "squeeze: extent of axis 0: n = 2 against 1"),
    "split": (lambda x: op.split(x, 3)[1], [(N,)], [random(6)], [random(4)],
              "split: extent n = 4 does not divide into 3 sections"),
    "split at": (lambda x: op.split(x, (1, 3))[1], [(N,)], [random(6)], [random(2)],
                 "split: places [1, 3] do not ascend in n = 2"),
    "slice": (lambda x: op.strided_slice(x, [0], [1], [4], assume_inbound=True), [(N,)],
              [random(4)], [random(3)],
              "strided_slice: the slice 1:4 is not in axis 0 of extent n = 3"),
    "topk": (lambda x: op.topk(x, 3, ret_type="values"), [(N,)], [random(3)], [random(2)],
             "topk: k is 3, but the axis has n = 2 elements"),
    "max": (op.max, [(N,)], [random(1)], [random(0)], "max: there is no element along axis 0"),
    "min": (lambda x: op.min(x, 1), [(2, N)], [random(2, 1)], [random(2, 0)], "extent is n = 0"),
    "argmax": (lambda x: op.argmax(x, 0), [(N, 2)], [random(1, 2)], [random(0, 2)],
               "argmax: there is no element along axis 0: its extent is n = 0"),
    "argmin": (op.argmin, [(N, 2)], [random(1, 2)], [random(0, 2)], "argmin: there is no element"),
    "take": (lambda x: op.take(x, relax.const(ints(0, 5)), 0), [(N,)], [random(3)], [random(0)],
             "take: there is nothing to look up along an axis of n = 0"),
    "take wrap": (lambda x: op.take(x, relax.const(ints(-1, 5)), 0, "wrap"), [(N,)], [random(3)],
                  [random(0)], "take: there is nothing to look up"),
    "gather": (lambda x: op.gather_elements(x, relax.const(ints(0, 5).reshape(2, 1)), 0), [(N, M)],
               [random(3, 1)], [random(3, 0)],
               "gather_elements: more indices than elements along axis 1: 1 against m = 0"),
    "conv": (lambda x, w: op.nn.conv2d(x, w), [(1, N, 3, 3), (2, M, 2, 2)],
             [random(1, 3, 3, 3), random(2, 3, 2, 2)], [random(1, 3, 3, 3), random(2, 4, 2, 2)],
             "nn.conv2d: input channels differ (data, weight * groups): n = 3 against m = 4"),
    "conv window": (lambda x, w: op.nn.conv1d(x, w), [(1, 2, N), (2, 2, 3)],
                    [random(1, 2, 3), random(2, 2, 3)], [random(1, 2, 2), random(2, 2, 3)],
                    "nn.conv1d: the window of 3 does not fit extent n = 2"),
    "pool": (lambda x: op.nn.max_pool2d(x, 3), [(1, 1, N, N)], [random(1, 1, 3, 3)],
             [random(1, 1, 1, 1)], "nn.max_pool2d: the window of 3 does not fit extent n = 1"),
    "resize": (lambda x: op.image.resize2d(x, 2), [(1, 1, N, 3)], [random(1, 1, 1, 3)],
               [random(1, 1, 0, 3)], "image.resize2d: the image is empty: an extent of n = 0"),
    "adaptive": (lambda x: op.nn.adaptive_avg_pool2d(x, 1), [(1, 1, N, 3)], [random(1, 1, 1, 3)],
                 [random(1, 1, 0, 3)], "nn.adaptive_avg_pool2d: the image is empty"),
    "layer_norm": (lambda x, g: op.nn.layer_norm(x, g), [(2, N), (M,)], [random(2, 3), random(3)],
                   [random(2, 3), random(2)], "nn.layer_norm: extent of gamma for axis 1: m = 2"),
    "rms_norm": (lambda x, g: op.nn.rms_norm(x, g), [(2, 3), (M,)], [random(2, 3), random(3)],
                 [random(2, 3), random(4)], "nn.rms_norm: extent of weight for axis 1: m = 4"),
    "batch_norm": (lambda x, g: op.nn.batch_norm(x, g, g, g, op.abs(g), training=False)[0],
                   [(2, 3, 2), (M,)],
                   [random(2, 3, 2), np.abs(random(3))], [random(2, 3, 2), random(4)],
                   "nn.batch_norm: extent of gamma for axis 1: m = 4 against 3"),
    "attention": (lambda q, k: op.nn.attention(q, k, k), [(1, 2, 2, 4), (N, 3, 2, 4)],
                  [random(1, 2, 2, 4), random(1, 3, 2, 4)],
                  [random(1, 2, 2, 4), random(2, 3, 2, 4)],
                  "nn.attention: batches of query and key differ: 1 against n = 2"),
    "attention mask": (lambda q, m: op.nn.scaled_dot_product_attention(q, q, q, m),
                       [(1, 2, N, 4), (M, M)], [random(1, 2, 3, 4), random(3, 3)],
                       [random(1, 2, 3, 4), random(2, 2)], "m = 2 against n = 3"),
}  # fmt: skip


@few("name", CASES, every=3)
def test_sizes_are_checked_before_anything_runs(name: str) -> None:
    body, shapes, right, wrong, message = CASES[name]
    mod = graph(body, *map(tensor, shapes))
    compiled = relax.build(mod)
    expected = interpreter.run(mod, *right)
    np.testing.assert_allclose(np.asarray(compiled(*right)), expected, rtol=1e-4, atol=1e-5)
    for run in (compiled, lambda *args: interpreter.run(mod, *args)):
        with pytest.raises((RuntimeError, RunError)) as caught:
            run(*wrong)
        assert message in str(caught.value)


def test_what_can_not_be_equal_is_refused_at_once() -> None:
    with pytest.raises(VerifyError, match=r"inner extents differ: k against \(k \+ 1\)"):
        graph(op.matmul, tensor((3, K)), tensor((K + 1, 6)))
    with pytest.raises(VerifyError, match="extents do not broadcast"):
        graph(op.add, tensor((N,)), tensor((N + 2,)))


def test_what_is_proven_costs_nothing() -> None:
    mod = graph(lambda x: op.reshape(op.nn.softmax(x) * x, (-1, 4)), tensor((N, 2, 2)))
    assert CheckShapes()(mod) is mod


def test_each_condition_is_asserted_once() -> None:
    mod = CheckShapes()(graph(lambda x, y: (x + y) * (y - x), tensor((N,)), tensor((M,))))
    first, *rest = mod["main"].bindings
    assert isinstance(first.value, relax.Call) and first.value.op_name == "assert_op"
    assert not any(getattr(b.value, "op_name", "") == "assert_op" for b in rest)
    assert CheckShapes()(mod) is mod


def test_assertions_print_and_parse() -> None:
    mod = CheckShapes()(graph(op.matmul, tensor((3, 4)), tensor((K, 6))))
    text = mod.script()
    assert 'format="matmul: inner extents differ: 4 against k = {}"' in text
    assert script.parse(text).script() == text
    lowered = relax.get_pipeline("default_build")(mod)
    text = lowered.script()
    assert "assert k == " in text or "assert 4 == k" in text
    assert script.parse(text).script() == text


def test_sizes_that_a_match_cast_defines_are_checked_where_it_stands() -> None:
    builder = relax.BlockBuilder()
    x, y = relax.Var("x", tensor((N,))), relax.Var("y", tensor((M,)))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            cast = builder.match_cast(builder.emit(op.exp(x)), tensor((K,)))
            out = builder.emit_output(op.add(cast, y))
        builder.emit_func_output(out)
    mod = builder.get()
    compiled = relax.build(mod)
    np.testing.assert_allclose(
        np.asarray(compiled(ONE(2, "float32"), ONE(2, "float32"))), np.e + ONE(2), rtol=1e-6
    )
    for run in (compiled, lambda *args: interpreter.run(mod, *args)):
        with pytest.raises((RuntimeError, RunError), match="add: extents do not broadcast: k = 2"):
            run(ONE(2, "float32"), ONE(3, "float32"))


def test_exported_graphs_check_sizes(tmp_path: Any) -> None:
    body = lambda x, y: op.nn.max_pool1d(op.concat([x, y], 1), 3)
    mod = graph(body, tensor((1, 2, N)), tensor((1, 1, M)))
    relax.build(mod).export_library(tmp_path / "lib.so")
    loaded = relax.load_executable(tmp_path / "lib.so")
    assert np.asarray(loaded(random(1, 2, 3), random(1, 1, 3))).shape == (1, 3, 1)
    with pytest.raises(
        RuntimeError, match=r"concat: extents of axis 2 differ: n = 3 against m = 4"
    ):
        loaded(random(1, 2, 3), random(1, 1, 4))
    with pytest.raises(RunError, match="the window of 3 does not fit extent n = 1"):
        loaded(random(1, 2, 1), random(1, 1, 1))


def test_symbolic_slices_are_clamped_as_pythons() -> None:
    for begin, end, step in [(0, 4, 1), (2, 5, 2), (-3, -1, 1), (-2, 2**31 - 1, 1), (1, -1, 1),
                             (-3, 2, 1), (5, 3, 1), (3, 2**63 - 1, 3)]:  # fmt: skip
        mod = graph(lambda x, s=(begin, end, step): op.strided_slice(x, [0], *([v] for v in s)),
                    tensor((N,)))  # fmt: skip
        compiled = relax.build(mod)
        for size in range(8):
            x = random(size)
            expected = x[begin:end:step]
            np.testing.assert_array_equal(np.asarray(compiled(x)), expected)
            np.testing.assert_array_equal(interpreter.run(mod, x), expected)


def test_indices_outside_do_not_read_outside() -> None:
    data, where = random(3, 2), ints(-9, 0, 7, 2).reshape(2, 2)
    clipped = np.take_along_axis(data, np.clip(where, 0, 2), 0)
    wrapped = np.take_along_axis(data, where % 3, 0)
    for mode, expected in (("clip", clipped), ("wrap", wrapped)):
        mod = graph(lambda x, i, m=mode: op.gather_elements(x, i, 0, m), tensor((N, 2)),
                    tensor((2, 2), "int64"))  # fmt: skip
        np.testing.assert_array_equal(np.asarray(relax.build(mod)(data, where)), expected)
        np.testing.assert_array_equal(interpreter.run(mod, data, where), expected)


def test_scalars_make_no_negative_extents() -> None:
    count = symbol("count")
    info = relax.PrimStructInfo("int64", count)
    mod: IRModule = graph(lambda x, _: op.sum(op.full((count,), 2.0)) + x, tensor(()), info)
    compiled = relax.build(mod)
    x = np.zeros((), "float32")
    assert float(np.asarray(compiled(x, 3))) == 6.0
    for run in (compiled, lambda *args: interpreter.run(mod, *args)):
        with pytest.raises((RuntimeError, RunError), match="negative"):
            run(x, -3)


def test_errors_name_the_extent_of_an_argument_that_does_not_follow() -> None:
    compiled = relax.build(graph(op.matmul, tensor((3, K)), tensor((K, K * 2 + 1))))
    assert np.asarray(compiled(random(3, 2), random(2, 5))).shape == (3, 5)
    with pytest.raises(ValueError, match=r"main: extent 1 of argument 'y' must be .* is 5; got 4"):
        compiled(random(3, 2), random(2, 4))


def test_attention_of_no_queries_divides_by_nothing() -> None:
    # How many threads a loop is worth was estimated with `% m`, also where there is none.
    mod = graph(lambda q: op.nn.attention(q, q, q), tensor((N, M, 1, 1)))
    compiled = relax.build(mod)
    for batch, queries in ((2, 0), (0, 3), (0, 0), (2, 3)):
        x = random(batch, queries, 1, 1)
        np.testing.assert_allclose(np.asarray(compiled(x)), interpreter.run(mod, x), rtol=1e-5)


def call_of_kernel(given: Any, other: Any, out: Any) -> IRModule:
    """A graph that adds by a kernel of ``(n,)``, ``(n,)`` and ``(n,)``, and fuses what follows."""
    n = te.var("n")
    a, b = (te.placeholder((n,), name=name) for name in "ab")
    kernel = te.create_prim_func([a, b, topi.add(a, b)])
    builder = relax.BlockBuilder()
    params = [relax.Var("x", tensor(given)), relax.Var("y", tensor(other))]
    with builder.function("main", params):
        gvar = builder.add_func(kernel, "kernel")
        with builder.dataflow():
            made = builder.emit(relax.call_tir(gvar, params, tensor(out)))
            result = builder.emit_output(op.exp(made))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("shapes", [((N,), (M,), (N,)), ((N,), (M,), (M,)), ((N,), (M,), (4,)),
                                    ((4,), (M,), (M,))])  # fmt: skip
def test_calls_of_kernels_check_shapes_also_where_they_are_fused(shapes: Any) -> None:
    mod = call_of_kernel(*shapes)
    compiled = relax.build(mod)
    x, y = random(4), random(4)
    np.testing.assert_allclose(np.asarray(compiled(x, y)), np.exp(x + y), rtol=1e-5)
    for run in (compiled, lambda *args: interpreter.run(mod, *args)):
        with pytest.raises((RuntimeError, RunError, ValueError), match="3"):
            run(x, random(3))


def test_calls_of_kernels_that_never_fit_are_refused() -> None:
    with pytest.raises(LowerError, match="is 4, not 5"):
        relax.build(call_of_kernel((4,), (5,), (4,)))
    with pytest.raises(LowerError, match="is 4, not 3"):
        relax.build(call_of_kernel((4,), (4,), (3,)))


def test_local_functions_assert_what_their_own_extents_are() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
            @R.function
            def inner(a: R.Tensor(("p",), "float32"), b: R.Tensor(("r",), "float32")) -> R.Tensor(
                ("p",), "float32"
            ):
                c = R.add(a, b)
                return c

            z = inner(x, y)
            return z

    checked = CheckShapes()(Module)
    assert checked["main"].script().count("assert_op") == 1
    assert CheckShapes()(checked) is checked and relax.analysis.well_formed(checked)
    np.testing.assert_array_equal(interpreter.run(checked, ONE(2, "float32"), ONE(2, "float32")), 2)
    with pytest.raises(RunError, match="extents do not broadcast: p = 2 against r = 3"):
        interpreter.run(checked, ONE(2, "float32"), ONE(3, "float32"))
