"""What operators need of symbolic sizes is checked when the function is called."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import driver, te, topi
from tilewright.support.errors import RunError, VerifyError
from tilewright.tir import interpreter

K, M, N, P = (te.var(name) for name in "kmnp")


def _operand(name, *shape):
    return te.placeholder(shape, name=name)


def _call(inputs, made, shapes, out):
    """Run the compiled function and the interpreter; what they say is the same or both refuse."""
    func = te.create_prim_func([*inputs, made], name="f")
    rng = np.random.default_rng(0)
    arrays = [rng.random(shape, np.float32) for shape in shapes]
    result, again = (np.full(out, 7, np.float32) for _ in range(2))
    try:
        interpreter.run(func, *arrays, again)
    except RunError:
        with pytest.raises((ValueError, RuntimeError)) as caught:
            driver.compile(func, "llvm")["f"](*arrays, result)
        return str(caught.value)
    driver.compile(func, "llvm")["f"](*arrays, result)
    np.testing.assert_allclose(result, again, rtol=1e-5)
    return (*arrays, result)


def test_a_symbolic_depth_that_meets_a_number_becomes_it():
    a, b = _operand("a", 3, 4), _operand("b", K, 6)
    made = topi.matmul(a, b)
    x, y, z = _call([a, b], made, [(3, 4), (4, 6)], (3, 6))
    np.testing.assert_allclose(z, x @ y, rtol=1e-5)
    said = _call([a, b], made, [(3, 4), (2, 6)], (3, 6))
    assert "expected shape (4, 6), got (2, 6)" in said


def test_two_symbolic_depths_become_one():
    a, b = _operand("a", N, M), _operand("b", K, P)
    made = topi.matmul(a, b)
    x, y, z = _call([a, b], made, [(3, 4), (4, 6)], (3, 6))
    np.testing.assert_allclose(z, x @ y, rtol=1e-5)
    said = _call([a, b], made, [(3, 4), (5, 6)], (3, 6))
    assert "got (5, 6): 'm' is 4 by argument #0 'a'" in said
    func = te.create_prim_func([a, b, made])
    assert func.buffers[0].shape[1] is func.buffers[1].shape[0]


def test_an_extent_becomes_a_formula_of_others():
    a, b, c = _operand("a", N), _operand("b", M), _operand("c", K)
    made = topi.add(topi.concatenate([a, b]), c)
    x, y, z, result = _call([a, b, c], made, [(4,), (2,), (6,)], (6,))
    np.testing.assert_allclose(result, np.concatenate([x, y]) + z, rtol=1e-5)
    said = _call([a, b, c], made, [(4,), (2,), (3,)], (6,))
    assert "extent 0 of argument 'c' must be (n + m), which is 6; got 3" in said


def test_what_shapes_cannot_say_is_asserted():
    a = _operand("a", N, M)
    made = topi.reshape(a, (K, 4))
    x, result = _call([a], made, [(2, 6)], (3, 4))
    np.testing.assert_array_equal(result, x.reshape(3, 4))
    said = _call([a], made, [(2, 6)], (4, 4))
    assert "(n * m) = 12 is not (k * 4) = 16" in said


def test_a_scalar_is_asserted_to_be_the_extent():
    a, b = _operand("a", K), _operand("b", 4)
    func = te.create_prim_func([a, b, K, topi.add(a, b)], name="f")
    compiled = driver.compile(func, "llvm")["f"]
    x, y, z = (np.ones(size, np.float32) for size in (4, 4, 4))
    compiled(x, y, 4, z)
    assert (z == 2).all()
    with pytest.raises(RuntimeError, match="k = 5"):
        compiled(np.ones(5, np.float32), y, 5, z)


def test_sizes_that_contradict_are_refused():
    a, b, c = _operand("a", 4), _operand("b", K), _operand("c", 5)
    with pytest.raises(VerifyError, match="do not broadcast"):
        te.create_prim_func([a, b, c, topi.add(a, b), topi.add(b, c)])


def test_only_what_a_function_computes_is_required():
    a, b = _operand("a", 4), _operand("b", K)
    topi.add(a, b)
    func = te.create_prim_func([b, topi.exp(b)])
    assert func.buffers[0].shape == (K,)


def test_known_sizes_cost_nothing():
    a, b = _operand("a", N, 4), _operand("b", 4, M)
    made = topi.matmul(a, b)
    assert not te.conditions_of([made])
    assert "assert" not in te.create_prim_func([a, b, made]).script()


def test_what_nothing_would_check_is_refused():
    with pytest.raises(VerifyError, match="nothing would check it"):
        topi.broadcast_shape((N,), (M,))


@pytest.mark.parametrize("extent", [4, N])
def test_a_broadcast_does_not_widen_its_target(extent):
    with pytest.raises(VerifyError, match="does not broadcast"):
        te.create_prim_func([_operand("a", 5), topi.broadcast_to(_operand("x", 5), (1,))])
    x = _operand("x", extent)
    if extent == 4:
        with pytest.raises(VerifyError, match="does not broadcast"):
            topi.broadcast_to(x, (3, 1))
    else:
        func = te.create_prim_func([x, topi.broadcast_to(x, (3, 1))])
        assert func.buffers[0].shape[0].value == 1


def test_slices_of_symbolic_axes_lie_in_them():
    a = _operand("a", N)
    x, result = _call([a], topi.strided_slice(a, [1], [4]), [(5,)], (3,))
    np.testing.assert_array_equal(result, x[1:4])
    assert "extent n = 3 has no elements from 1 to 4" in _call(
        [a], topi.strided_slice(a, [1], [4]), [(3,)], (3,)
    )
    x, result = _call([a], topi.strided_slice(a, [-3], [-1]), [(5,)], (2,))
    np.testing.assert_array_equal(result, x[-3:-1])


def test_no_intermediate_result_has_a_negative_extent():
    a = _operand("a", 1, 2, N)
    made = topi.sum(topi.nn.max_pool1d(a, 3), axis=2)
    x, result = _call([a], made, [(1, 2, 4)], (1, 2))
    np.testing.assert_allclose(
        result, np.maximum(x[..., :2], np.maximum(x[..., 1:3], x[..., 2:])).sum(2), 1e-5
    )
    assert "max_pool1d has a negative extent: " in _call([a], made, [(1, 2, 1)], (1, 2))
    # Where an argument has the extent, the binder sees to that.
    made = topi.nn.relu(topi.nn.max_pool1d(a, 3))
    assert "assert" not in te.create_prim_func([a, made]).script()
    assert "argument 'relu' must be" in _call([a], made, [(1, 2, 1)], (1, 2, 0))


@pytest.mark.parametrize(
    "norm",
    [
        lambda x, w: topi.nn.layer_norm(x, w, None),
        lambda x, w: topi.nn.rms_norm(x, w),
        lambda x, w: topi.nn.batch_norm(x, w, None, w, w),
        lambda x, w: topi.nn.group_norm(x, w, None, 2),
        lambda x, w: topi.nn.dense(x, te.placeholder((4, 4)), w),
    ],
)
def test_weights_have_the_size_of_their_axis(norm):
    with pytest.raises(VerifyError, match="5 is not 4"):
        norm(_operand("x", 3, 4), _operand("w", 5))
