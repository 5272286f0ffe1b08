"""What a compiled function says of arguments that don't fit: it names them."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright import driver, runtime, script, te
from tilewright.runtime.dlpack import numpy_capsule

SHAPE = (4, 8)


@pytest.fixture(scope="module")
def module() -> runtime.Module:
    x = te.placeholder(SHAPE, name="x")
    y = te.compute(SHAPE, lambda i, j: x[i, j] + 1.0, name="y")
    return driver.compile(te.create_prim_func([x, y]))


def good() -> np.ndarray[Any, Any]:
    return np.ones(SHAPE, "float32")


def read_only() -> np.ndarray[Any, Any]:
    array = good()
    array.flags.writeable = False
    return array


def misaligned() -> np.ndarray[Any, Any]:
    memory = np.zeros(2 + good().nbytes + 64, "uint8")
    start = -memory.ctypes.data % 64 + 2
    return memory[start : start + good().nbytes].view("float32").reshape(SHAPE)


class OnGPU:
    """A tensor that says it is on a CUDA device."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        capsule = numpy_capsule(good())
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        device_type = ctypes.sizeof(ctypes.c_void_p)  # stands behind the data pointer
        ctypes.c_int32.from_address(get(capsule, b"dltensor") + device_type).value = 2
        return capsule


class Unexportable:
    """A tensor whose library can't give its memory away."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise RuntimeError("the tensor is lazy")


X, Y = "main: argument #0 'x': ", "main: argument #1 'y': "


@pytest.mark.parametrize(
    "args, kind, message",
    [
        ((good(),), TypeError, "main: expected 2 arguments (x: Tensor, y: Tensor), got 1"),
        ((good(),) * 3, TypeError, "main: expected 2 arguments (x: Tensor, y: Tensor), got 3"),
        ((None, good()), TypeError, X + "expected a Tensor, got None"),
        ((good(), 3), TypeError, Y + "expected a Tensor, got an int"),
        (("x", good()), TypeError, X + "expected a Tensor, got a string"),
        (([1.0], good()), TypeError, X + "expected a Tensor, got an array"),
        ((object(), good()), TypeError, X + "expected a Tensor, got a Python object"),
        ((np.ones((4, 9), "f4"), good()), ValueError, X + "expected shape (4, 8), got (4, 9)"),
        ((good(), np.ones(32, "f4")), ValueError, Y + "expected shape (4, 8), got (32,)"),
        ((np.ones(SHAPE), good()), TypeError, X + "expected dtype float32, got float64"),
        (
            (np.ones(SHAPE, ml_dtypes.bfloat16), good()),
            TypeError,
            X + "expected dtype float32, got bfloat16",
        ),
        (
            (runtime.empty(SHAPE, "float16"), good()),
            TypeError,
            X + "expected dtype float32, got float16",
        ),
        (
            (good(), np.ones((4, 16), "f4")[:, ::2]),
            ValueError,
            Y + "expected compact row-major strides, got strides (16, 2) for shape (4, 8)",
        ),
        ((good()[::-1], good()), ValueError, X + "expected compact row-major strides, got"),
        ((np.asfortranarray(good()), good()), ValueError, X + "expected compact row-major"),
        ((good(), read_only()), ValueError, Y + "the function writes to it, but the array is"),
        ((misaligned(), good()), ValueError, X + "expected memory aligned to 4 bytes, got address"),
        ((good().astype(">f4"), good()), TypeError, X + "expected native byte order, got"),
        ((np.array([None]), good()), TypeError, X + "data type 'object' has no DLPack code"),
        ((good(), np.array(["a"])), TypeError, Y + "data type 'str32' has no DLPack code"),
        ((OnGPU(), good()), ValueError, X + "expected a tensor on cpu, got one on cuda:0"),
        (
            (good(), Unexportable()),
            TypeError,
            Y + "expected a Tensor with memory, but this Unexportable can't be exported: the "
            "tensor is lazy",
        ),
    ],
)
def test_wrong_arguments_are_named(
    module: runtime.Module, args: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        module(*args)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "make, kind, message",
    [
        ("torch.ones(4, 8, dtype=torch.float64)", TypeError, "expected dtype float32, got float64"),
        ("torch.ones(8, 4).t()", ValueError, "expected compact row-major strides"),
        ("torch.ones(4, 9)", ValueError, "expected shape (4, 8), got (4, 9)"),
        ("torch.ones(4, 8, device='meta')", TypeError, "can't be exported"),
        ("torch.ones(4, 8).to_sparse()", TypeError, "can't be exported"),
    ],
)
def test_wrong_pytorch_tensors_are_named(
    module: runtime.Module, make: str, kind: type[Exception], message: str
) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(kind) as caught:
        module(good(), eval(make, {"torch": torch}))
    assert str(caught.value).startswith(Y)
    assert message in str(caught.value)


def test_nothing_is_written_when_an_argument_is_wrong(module: runtime.Module) -> None:
    out = np.zeros(SHAPE, "float32")
    with pytest.raises(ValueError):
        module(np.ones((4, 9), "float32"), out)
    assert not out.any()


def test_arrays_that_numpy_cannot_export_are_passed_again_and_again() -> None:
    """The second call exports at once; views, read-only and plain arrays mix with others."""
    x, y = te.placeholder((4, 6), "bfloat16", "x"), te.placeholder((4, 6), "float32", "y")
    total = te.compute((4, 6), lambda i, j: x(i, j).astype("float32") + y(i, j))
    function = driver.compile(te.create_prim_func([x, y, total]))
    a = np.arange(24).reshape(4, 6).astype(ml_dtypes.bfloat16)
    b, out = np.ones((4, 6), "float32"), np.zeros((4, 6), "float32")
    fixed = a.copy()
    fixed.flags.writeable = False
    for array in (a, a, fixed, a):
        out[:] = 0
        function(array, b, out)
        np.testing.assert_array_equal(out, np.arange(24).reshape(4, 6) + 1)
    with pytest.raises(TypeError, match="float16"):
        function(a.astype("float16"), b, out)
    with pytest.raises(TypeError, match="uint16"):
        function(a.view("uint16"), b, out)
    assert a.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_scalars_of_floats_are_rounded_as_arrays_are(dtype: str, target: str) -> None:
    func = script.parse(
        f"@T.prim_func\ndef main(A: T.Buffer((1,), '{dtype}'), s: T.{dtype}):\n    A[0] = s\n"
    )
    function = driver.compile(func, target)
    numbers = np.array([1.5, 1 + 2**-11 + 2**-40, 1 + 2**-8, -0.0, 1e-7, 1e40, np.inf, np.nan])
    with np.errstate(over="ignore"):
        expected = numbers.astype(runtime.empty((1,), dtype).numpy().dtype)
    for number, wanted in zip(numbers, expected):
        out = np.zeros(1, expected.dtype)
        function(out, float(number))
        np.testing.assert_array_equal(out.astype("float64"), np.float64(wanted))
