"""Constants whose values are made when somebody asks for them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from tilewright import relax
from tilewright.ir import load_json, save_json
from tilewright.relax.expr import Constant, ConstantData
from tilewright.support.errors import VerifyError


def _doubled(source):
    calls = []

    def make():
        calls.append(None)
        return source.compute() * 2

    return ConstantData.later((2, 3), np.dtype("float32"), make, [source]), calls


def _source(**options):
    return ConstantData(np.arange(6, dtype="float32").reshape(2, 3), **options)


def test_values_are_made_when_asked_for_and_kept_only_as_array():
    data, calls = _doubled(_source())
    assert (data.shape, data.nbytes, repr(data)) == ((2, 3), 24, "float32[2, 3]")
    assert Constant(data).struct_info.dtype == "float32" and not calls
    first = data.compute()
    assert data.compute() is not first and len(calls) == 2
    assert data.array is data.array and data.compute() is data.array and len(calls) == 3
    assert not data.array.flags.writeable
    np.testing.assert_array_equal(data.array, np.arange(6).reshape(2, 3) * 2)


def test_they_compare_and_travel_as_values():
    data, _ = _doubled(_source())
    same = ConstantData(_source().array * 2)
    assert data.content_key(False) == same.content_key(False)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data)).array, same.array)


def test_materialized_constants_own_their_memory():
    owner = np.arange(6, dtype="float32").reshape(2, 3)
    lent = ConstantData(owner, lent=True)
    view = ConstantData.later((3, 2), owner.dtype, lambda: lent.compute().reshape(3, 2), [lent])
    made, _ = _doubled(lent)
    before = owner.copy()
    for data in (view, made, lent):
        data.materialize()
    owner[...] = -1
    np.testing.assert_array_equal(view.array, before.reshape(3, 2))
    np.testing.assert_array_equal(made.array, before * 2)
    np.testing.assert_array_equal(lent.array, before)


def test_what_is_not_lent_is_not_copied():
    array = np.ones((2, 3), "float32")
    data = ConstantData(array)
    assert np.shares_memory(data.materialize().array, array)


def test_a_compiled_model_does_not_see_later_changes_of_the_weights():
    import pytest

    torch = pytest.importorskip("torch")
    import tilewright

    layer = torch.nn.Linear(3, 2)
    x = torch.randn(1, 3)
    want = layer(x).detach().numpy().copy()
    compiled = tilewright.compile(layer, example_inputs=(x,))
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    np.testing.assert_allclose(np.asarray(compiled(x)), want, rtol=1e-5, atol=1e-6)


def test_graphs_with_other_weights_are_the_same_code():
    def text(value):
        x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(x + relax.const(np.full((2, 3), value, "f4"))))
        return relax.build(builder.get()).module.get_source("ll")

    assert text(1.5) == text(2.5)


def test_constants_of_numpy_are_of_their_dtype():
    for dtype in ("float64", "float16", "int8", "int64", "bool"):
        scalar = np.dtype(dtype).type(1)
        assert relax.const(scalar).data.dtype == relax.const(np.array(scalar)).data.dtype == dtype
    assert relax.const(1.0).data.dtype == "float32" and relax.const(1).data.dtype == "int32"
    assert relax.const(2**31).data.dtype == "int64" == relax.const([2**31]).data.dtype
    assert relax.const([1]).data.dtype == "int32"
    assert relax.const(np.float64(1 / 3)).data == 1 / 3
    assert relax.const(np.float64(1 / 3), "float32").data == np.float32(1 / 3)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((0, 3), "float32"),
        np.array(3, "int8"),
        np.array([True, False]),
        np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3),
        np.arange(6.0).reshape(2, 3).T,
        np.array([np.nan, -0.0]),
    ],
    ids=lambda values: f"{values.dtype}{values.shape}",
)
def test_they_travel_as_text(values):
    text = save_json(relax.const(values))
    found = load_json(text).data
    assert found.dtype == values.dtype and found.shape == values.shape
    assert found.tobytes() == np.ascontiguousarray(values).tobytes() and not found.flags.writeable
    with pytest.raises(VerifyError, match="no text of save_json"):
        load_json(text.replace(r'", [', r'", [-7, ', 1))


def test_text_with_constants_is_read_by_itself():
    program = "import sys; from tilewright.ir import load_json; print(load_json(sys.stdin.read()))"
    text = save_json(relax.const(np.ones(3, "float32")))
    done = subprocess.run(
        [sys.executable, "-c", program], input=text, text=True, capture_output=True
    )
    assert done.stdout == "const(float32[3])\n", done.stderr
