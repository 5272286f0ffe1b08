"""Tensors as TVM's users write them: slices, arithmetic, scans, statements, tags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import driver, te, tir, topi
from tilewright.ir import structural_equal
from tilewright.support.errors import VerifyError
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run

X = np.arange(12, dtype="float32").reshape(3, 4)


def evaluate(inputs: list[te.Tensor], made: te.Tensor, *arrays: Any) -> np.ndarray[Any, Any]:
    """Run what defines a tensor on arrays."""
    func = te.create_prim_func([*inputs, made])
    assert not verify(func)
    result = np.zeros([int(extent) for extent in made.shape], made.dtype)
    run(func, *(array.copy() for array in arrays), result)
    return result


def test_a_slice_takes_the_indices_that_are_left() -> None:
    x = te.placeholder((3, 4), name="x")
    assert isinstance(x[1], te.TensorSlice) and x[1].indices == (1,) and x[1].dtype == "float32"
    made = te.compute((4, 3), lambda i, j: x[j][i] * 2.0)
    np.testing.assert_array_equal(evaluate([x], made, X), X.T * 2)
    with pytest.raises(VerifyError, match="2 dimensions, got 1"):
        te.compute((3,), lambda i: x[i])
    with pytest.raises(VerifyError, match="got 3 indices"):
        x[0][1, 2]
    with pytest.raises(VerifyError, match="strided_slice"):
        x[0:2]


ARITHMETIC = {
    "add": lambda a, b: a + b,
    "number_left": lambda a, b: 2 + a,
    "subtract": lambda a, b: a - b,
    "from_number": lambda a, b: 1.5 - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / (b + 1),
    "divided_number": lambda a, b: 2.0 / (a + 1),
    "floor_divide": lambda a, b: a // (b + 1),
    "modulo": lambda a, b: a % (b + 3),
    "power": lambda a, b: a**2.0,
    "negative": lambda a, b: -a,
    "astype": lambda a, b: a.astype("int32"),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_broadcasts(name: str) -> None:
    a, b = te.placeholder((3, 4), name="a"), te.placeholder((4,), name="b")
    made, expected = ARITHMETIC[name](a, b), ARITHMETIC[name](X, X[1])
    inputs = [a, b] if name in ("add", "subtract", "multiply", "divide") else [a]
    if name in ("from_number", "floor_divide", "modulo"):
        inputs = [a, b] if name != "from_number" else [b]
    found = evaluate(inputs, made, *(X if item is a else X[1] for item in inputs))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_tensors_of_rank_0() -> None:
    scale = te.placeholder((), name="scale")
    twice = te.compute((), lambda: scale() * 2.0, name="twice")
    x = te.placeholder((4,), name="x")
    made = te.compute((4,), lambda i: x[i] * twice[()])
    np.testing.assert_array_equal(
        evaluate([scale, x], made, np.array(3, "float32"), X[1]), X[1] * 6
    )
    plus = scale + 1.0
    assert plus.ndim == 0 and evaluate([scale], plus, np.array(3, "float32")) == 4
    k = te.reduce_axis((0, 4), "k")
    total = te.compute((), lambda: te.sum(x[k], axis=k))
    assert evaluate([x], total, X[1]) == X[1].sum()


def test_reductions_start_at_init() -> None:
    x, start = te.placeholder((3, 4), name="x"), te.placeholder((3,), name="start")
    k = te.reduce_axis((0, 4), "k")
    made = te.compute((3,), lambda i: te.max(x[i, k], axis=k, init=start[i]))
    begin = np.array([1, 100, -3], "float32")
    expected = np.maximum(X.max(axis=1), begin)
    np.testing.assert_array_equal(evaluate([x, start], made, X, begin), expected)
    where = te.compute((3,), lambda i: te.sum(x[i, k], k, where=k < 2, init=0.5))
    np.testing.assert_array_equal(evaluate([x], where, X), X[:, :2].sum(axis=1) + 0.5)
    with pytest.raises(VerifyError, match="needs as many to start at"):
        te.sum(x[0, k], axis=k, init=(0.0, 1.0))


def test_reductions_of_values() -> None:
    n = te.var("n")
    assert int(te.max(te.const(3), te.const(5), 4)) == 5
    assert structural_equal(te.min(n, 4), te.minimum(n, 4), map_free_vars=False)
    assert int(te.sum(te.const(1), te.const(2))) == 3
    larger = te.comm_reducer(lambda a, b: te.Select(a > b, a, b), te.min_value, name="larger")
    assert isinstance(larger(n, te.const(4)), tir.Select)
    with pytest.raises(VerifyError, match="takes where and init"):
        te.sum(n, te.reduce_axis((0, 2)), None, None, 3)


def cumulative(m: Any) -> tuple[te.Tensor, te.Tensor]:
    x, state = te.placeholder((m, 4), name="x"), te.placeholder((m, 4), name="state")
    first = te.compute((1, 4), lambda _, i: x[0, i], name="first")
    following = te.compute((m, 4), lambda t, i: state[t - 1, i] + x[t, i], name="following")
    return x, te.scan(first, following, state, inputs=[x])


@pytest.mark.parametrize("rows", [3, te.var("m")], ids=["constant", "symbolic"])
def test_scan(rows: Any) -> None:
    x, made = cumulative(rows)
    func = te.create_prim_func([x, made])
    assert not verify(func)
    for values in (X, X[:1]) if not isinstance(rows, int) else (X,):
        result = np.zeros(values.shape, "float32")
        run(func, values, result)
        np.testing.assert_array_equal(result, np.cumsum(values, axis=0))


def test_scan_of_two_states_and_a_cell() -> None:
    x = te.placeholder((3, 4), name="x")
    states = [te.placeholder((3, 4), name=name) for name in ("p", "q")]
    k = te.reduce_axis((0, 4), "k")
    cell = te.compute((3,), lambda t: te.sum(states[0][t - 1, k] * x[t, k], axis=k), name="cell")
    firsts = [te.compute((1, 4), lambda t, i, n=n: x[t, i] + n, name=f"f{n}") for n in range(2)]
    following = [
        te.compute((3, 4), lambda t, i: states[0][t - 1, i] * 0.5 + cell[t], name="next_p"),
        te.compute((3, 4), lambda t, i: states[1][t - 1, i] - states[0][t - 1, i], name="next_q"),
    ]
    p, q = te.scan(firsts, following, states)
    func = te.create_prim_func([x, p, q])
    assert not verify(func)
    found = [np.zeros((3, 4), "float32") for _ in range(2)]
    run(func, X, *found)
    a, b = [X[0]], [X[0] + 1]
    for t in (1, 2):
        b.append(b[-1] - a[-1])
        a.append(a[-1] * 0.5 + (a[-1] * X[t]).sum())
    np.testing.assert_allclose(found[0], np.stack(a))
    np.testing.assert_allclose(found[1], np.stack(b))


def test_scans_that_do_not_fit() -> None:
    x, state = te.placeholder((3, 4)), te.placeholder((3, 4))
    first = te.compute((1, 4), lambda t, i: x[t, i])
    good = te.compute((3, 4), lambda t, i: state[t - 1, i])
    with pytest.raises(VerifyError, match="one dtype and shape"):
        te.scan(te.compute((1, 3), lambda t, i: x[t, i]), good, state)
    with pytest.raises(VerifyError, match="as many init as update"):
        te.scan([first, first], good, state)
    shifted = te.compute((4, 3), lambda i, t: state[t, i])
    with pytest.raises(VerifyError, match="first dimension is the time"):
        te.scan(first, te.compute((3, 4), lambda t, i: shifted[i, t - 1]), state)
    with pytest.raises(VerifyError, match="has 4 initial elements in time, of 3"):
        te.scan(te.compute((4, 4), lambda t, i: x[0, i]), good, state)
    two = [te.compute((n, 4), lambda t, i: x[t, i]) for n in (1, 2)]
    with pytest.raises(VerifyError, match="as many times, 1"):
        te.scan(two, [good, good], [state, state])


def test_scans_of_fewer_times_than_they_begin_with() -> None:
    func = te.create_prim_func([*cumulative(te.var("m"))])
    nothing = np.zeros((0, 4), "float32")
    with pytest.raises(RuntimeError, match="1 initial elements in time, of m = 0"):
        driver.compile(func, "llvm")(nothing, nothing.copy())


def test_extern_gives_one_tensor_or_a_list() -> None:
    x = te.placeholder((4,), name="x")

    def twice(ins: Any, outs: Any) -> Any:
        loop = tir.Var("i")
        stores = [tir.BufferStore(out, ins[0][loop] * 2.0, [loop]) for out in outs]
        return tir.For(loop, 0, 4, "serial", tir.seq(*stores))

    one = te.extern((4,), [x], twice, name="one")
    assert one.dtype == "float32" and one.op.tag == ""
    np.testing.assert_array_equal(evaluate([x], one, X[1]), X[1] * 2)
    two = te.extern([(4,), (4,)], [x], twice, dtype=["float32", "float32"])
    assert [tensor.name for tensor in two] == ["extern_v0", "extern_v1"]
    declared, out = tir.decl_buffer((4,), name="d"), tir.decl_buffer((4,), name="o")
    made = twice([declared], [out])
    given = te.extern((4,), [x], lambda *_: made, in_buffers=declared, out_buffers=[out])
    np.testing.assert_array_equal(evaluate([x], given, X[1]), X[1] * 2)
    with pytest.raises(VerifyError, match="2 out_buffers for 1 tensors"):
        te.extern((4,), [x], twice, out_buffers=[out, out])
    with pytest.raises(VerifyError, match="needs dtype="):
        te.extern((4,), [], twice)


@pytest.mark.parametrize("rows", [3, te.var("n")], ids=["constant", "symbolic"])
def test_extern_primfunc(rows: Any) -> None:
    a = te.placeholder((rows, 4), name="a")
    k = te.reduce_axis((0, 4), "k")
    shifted = te.compute((rows, 4), lambda i, j: a[i, j] + 1.0, name="shifted")
    func = te.create_prim_func([a, te.compute((rows,), lambda i: te.sum(shifted[i, k], k))])
    x = te.placeholder((3, 4), name="x")
    made = te.extern_primfunc([topi.negative(x)], func, name="rows")
    np.testing.assert_array_equal(evaluate([x], made, X), (1 - X).sum(axis=1))
    assert [int(extent) for extent in made.shape] == [3]
    for wrong in ([te.placeholder((3, 5))], [te.placeholder((3, 4), "int8")], [x, x]):
        with pytest.raises(VerifyError):
            te.extern_primfunc(wrong, func)


def test_tags_and_attributes_of_operations() -> None:
    x = te.placeholder((4,), name="x")
    with te.tag_scope("outer"):
        assert te.compute((4,), lambda i: x[i]).op.tag == "outer"
        with pytest.raises(VerifyError, match="in the scope of tag"):
            te.compute((4,), lambda i: x[i], tag="own")
        with pytest.raises(VerifyError, match="inside that of"), te.tag_scope(tag="inner"):
            pass

    @te.tag_scope(tag="gemm")
    def define() -> te.Tensor:
        made: te.Tensor = te.compute((4,), lambda *i: x(*i), varargs_names=["row"])
        return made

    op = define().op
    assert op.tag == "gemm" and op.axis[0].var.name == "row"
    assert op.num_outputs == 1 and op.input_tensors == [x] and x.op.attrs == {}
    assert te.compute((4,), lambda i: x[i]).op.tag == ""


def test_axes_of_threads() -> None:
    axis = te.thread_axis((0, 16), "threadIdx.x", name="tx")
    assert axis.thread_tag == "threadIdx.x" and int(axis.dom.extent) == 16
    assert axis.iter_type == tir.IterVar.ThreadIndex
    assert te.thread_axis("blockIdx.x").dom is None
    with pytest.raises(VerifyError, match="needs a tag"):
        te.thread_axis((0, 4))
    with pytest.raises(VerifyError, match="a schedule binds"):
        te.reduce_axis((0, 4), thread_tag="threadIdx.x")


def test_names_that_ask_for_something_else() -> None:
    with pytest.raises(VerifyError, match="int64 everywhere"):
        te.create_prim_func([te.placeholder((4,))], index_dtype_override="int32")
    with pytest.raises(VerifyError, match="call_packed"):
        te.trace([te.var("x")])


def test_operations_are_made_as_in_tvm() -> None:
    x = te.PlaceholderOp("x", "", {}, (4, 8), "float16").output(0)
    assert (x.name, x.dtype, x.op.tag, [int(n) for n in x.shape]) == ("x", "float16", "", [4, 8])
    i, k = tir.IterVar((0, 4), "i", tir.SPATIAL), te.reduce_axis((0, 8), "k")
    total = te.ComputeOp("y", "sums", {"note": 1}, [i], [k], [te.sum(x[i, k], axis=k)])
    (y,) = total.outputs
    assert (total.tag, total.attrs, total.reduce_axis) == ("sums", {"note": 1}, (k,))
    func = te.create_prim_func([x, y])
    like = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="y", attrs={"note": 1})
    assert structural_equal(func, te.create_prim_func([x, like]))
    with pytest.raises(VerifyError, match="reduces over"):
        te.ComputeOp("y", "", {}, [i], [], [te.sum(x[i, k], axis=k)])
    with pytest.raises(VerifyError, match="mixes reductions"):
        te.ComputeOp("y", "", {}, [i], [k], [te.sum(x[i, k], axis=k), x[i, 0]])


def test_scans_are_made_as_in_tvm() -> None:
    x, state = te.placeholder((5, 3), name="x"), te.placeholder((5, 3), name="s")
    first = te.compute((1, 3), lambda _, j: x[0, j], name="first")
    following = te.compute((5, 3), lambda t, j: state[t - 1, j] + x[t, j], name="next")
    time = te.thread_axis((1, 5), "t")
    columns = tir.IterVar((0, 3), "j", tir.SPATIAL)
    op = te.ScanOp("sum", "", None, time, [first], [following], [state], [x], [columns])
    assert op.scan_axis is time and op.spatial_axis_ == (columns,)
    made = te.scan(first, following, state, inputs=[x], name="sum")
    assert [int(axis.dom.extent) for axis in made.op.spatial_axis_] == [3]
    funcs = [te.create_prim_func([x, out]) for out in (op.output(0), made)]
    assert structural_equal(*funcs)
    with pytest.raises(VerifyError, match="has axes over"):
        te.ScanOp("sum", "", None, columns, [first], [following], [state], [x])
    with pytest.raises(VerifyError, match="has axes over"):
        te.ScanOp("sum", "", None, time, [first], [following], [state], [x], [time])


def test_statements_are_made_operations_as_in_tvm() -> None:
    x = te.placeholder((3, 4), name="x")
    read, written = tir.decl_buffer((3, 4), name="read"), tir.decl_buffer((4,), name="written")
    i = tir.Var("i")
    loop = tir.For(i, 0, 4, tir.SERIAL, tir.BufferStore(written, read[1, i] * 2.0, [i]))
    op = te.ExternOp("row", "tagged", None, [x], [read], [written], loop)
    assert (op.tag, op.inputs, op.body) == ("tagged", [x], loop)
    assert (op.input_placeholders, op.output_placeholders) == ((read,), (written,))
    for _ in range(2):  # each function has statements of its own
        np.testing.assert_array_equal(evaluate([x], op.output(0), X), X[1] * 2)
    with pytest.raises(VerifyError, match="don't fit the inputs"):
        te.ExternOp("row", "", None, [x, x], [read], [written], loop)
    made = te.extern((4,), [x], lambda ins, outs: loop, in_buffers=read, out_buffers=written)
    assert made.op.input_placeholders == (read,)


def test_tensors_are_results_of_operations() -> None:
    x = te.placeholder((2, 3), name="x")
    again = te.Tensor((2, 3), "float32", x.op, 0)
    assert (again.name, again.op, again.value_index) == ("x", x.op, 0)
    assert te.Tensor(x.shape, "float32", x.op, 0, ty=x.expr_ty()).dtype == "float32"
    with pytest.raises(VerifyError, match="has elements of"):
        te.Tensor(x.shape, "int32", x.op, 0, ty=x.expr_ty())


def test_a_reduction_may_say_that_it_has_no_init() -> None:
    x, k = te.placeholder((8,), name="x"), te.reduce_axis((0, 8), "k")
    total = te.sum(x[k], axis=k)
    made = te.Reduce(total.combiner, [x[k]], [k], total.condition, 0, None)
    assert made.init == () == te.Reduce(total.combiner, [x[k]], [k], total.condition, 0).init
    assert made.dtype == "float32" and made.axis == total.axis
