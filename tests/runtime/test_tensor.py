"""Tensors, and their exchange with numpy and PyTorch."""

from __future__ import annotations

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

from tilewright import runtime
from tilewright.runtime.dlpack import numpy_dtype
from tilewright.support.errors import RunError

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint32",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_round_trips(dtype: str) -> None:
    kind = runtime.numpy_dtype(dtype)
    source = np.arange(12).reshape(3, 4).astype(kind)
    result = runtime.tensor(source)
    assert str(result.dtype) == dtype
    assert result.numpy().dtype == kind
    np.testing.assert_array_equal(result.numpy(), source)


def test_memory_is_aligned_and_shared_with_numpy() -> None:
    tensor = runtime.empty((5, 7), "float32")
    assert tensor.data_ptr() % 64 == 0
    view = tensor.numpy()
    view[...] = 3
    assert (tensor.numpy() == 3).all() and view.flags.writeable


def test_numpy_view_keeps_the_memory_alive() -> None:
    view = runtime.tensor(np.arange(1000)).numpy()
    gc.collect()
    np.testing.assert_array_equal(view, np.arange(1000))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_memory_is_released_with_the_last_tensor(dtype: str) -> None:
    source = np.zeros(16).astype(numpy_dtype(dtype))
    watch = weakref.ref(source)
    tensors = [runtime.from_numpy(source) for _ in range(3)]
    del source
    gc.collect()
    assert watch() is not None
    del tensors
    gc.collect()
    assert watch() is None


def test_scalars_and_empty_shapes() -> None:
    assert runtime.empty((), "int32").numpy().shape == ()
    assert runtime.empty((0, 3)).numpy().shape == (0, 3)


def test_strided_arrays_are_shared() -> None:
    base = np.arange(24, dtype="float32").reshape(4, 6)
    tensor = runtime.from_numpy(base[::2, ::3])
    assert tensor.strides == (12, 3)
    np.testing.assert_array_equal(tensor.numpy(), base[::2, ::3])


def test_dtype_is_converted_on_request() -> None:
    result = runtime.tensor([1.5, 2.5], dtype="bfloat16")
    assert result.numpy().dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(np.asarray(result, dtype="float32"), [1.5, 2.5])


def test_from_dlpack_shares_torch_memory() -> None:
    torch = pytest.importorskip("torch")
    source = torch.zeros(4)
    tensor = runtime.from_dlpack(source)
    tensor.numpy()[1] = 5
    assert source[1] == 5
    assert type(tensor) is runtime.Tensor


def test_other_devices_are_refused_with_advice() -> None:
    with pytest.raises(RunError, match=r"can't be allocated here.*from_dlpack"):
        runtime.empty((1,), device="metal")


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(RunError, match="'float33' has no DLPack code"):
        runtime.empty((1,), "float33")
    with pytest.raises(RunError, match="can't hold"):
        runtime.empty((1,), "float32x4")


def test_dlpack_codes() -> None:
    assert runtime.dlpack_dtype("bfloat16") == (4, 16, 1)
    assert runtime.dlpack_dtype("float8_e4m3fn") == (10, 8, 1)
    assert runtime.dlpack_dtype("int8x4") == (0, 8, 4)
    assert runtime.dtype_name(6, 8) == "bool"
    assert runtime.dtype_name(2, 32, 8) == "float32x8"
