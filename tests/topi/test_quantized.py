"""Quantisation, and products of 8-bit and 4-bit numbers, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright import compile, te, topi
from tilewright.dlight import kernels_and_rules
from tilewright.dlight.cpu import GroupedReduction
from tilewright.ir import IRModule
from tilewright.scheduling import first_schedule
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir.attrs import LAYOUT_FREE
from tilewright.tir.interpreter import run
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule
from tilewright.topi.nn import ZeroPoint

NATIVE = Target("native").with_options(num_cores=1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def evaluate(
    build: Callable[..., Any], *arrays: np.ndarray, constant: tuple[int, ...] = ()
) -> np.ndarray:
    """Interpret the definition, run what the rules make of it, and compare both."""
    inputs = [
        te.placeholder(array.shape, str(array.dtype), f"x{number}")
        for number, array in enumerate(arrays)
    ]
    result = build(*inputs)
    func = te.create_prim_func([*inputs, result])
    if constant:
        func = func.with_attr(LAYOUT_FREE, list(constant))
    shape = [extent.value for extent in result.shape]
    dtype = np.dtype(getattr(ml_dtypes, result.dtype, result.dtype))
    expected, found = np.zeros(shape, dtype), np.zeros(shape, dtype)
    run(func, *arrays, expected)
    sch = first_schedule(func, kernels_and_rules(), NATIVE)
    assert sch is not None
    main, packers = split_layout_rewrite(sch.mod["main"])
    given = list(arrays)
    for position, packer in packers.items():
        packed = packer.buffers[1]
        given[position] = np.zeros([e.value for e in packed.shape], packed.dtype)  # type: ignore[attr-defined]
        compile(packer, NATIVE)(arrays[position], given[position])
    compile(main, NATIVE)(*given, found)
    exact = not np.issubdtype(np.float32, found.dtype) and found.dtype.kind in "iu"
    np.testing.assert_allclose(
        found.astype("float64"),
        expected.astype("float64"),
        rtol=0 if exact else 2e-2 if found.dtype.itemsize == 2 else 1e-4,
        atol=0 if exact else 1e-3,
    )
    return found


def test_quantize_rounds_to_even_and_clips() -> None:
    x = np.array([0.25, 0.75, 1.25, -0.75, 100.0, -100.0, np.inf, -np.inf], "float32")
    found = evaluate(lambda t: topi.nn.quantize(t, 0.5, 3, "uint8"), x)
    np.testing.assert_array_equal(found, [3, 5, 5, 1, 203, 0, 255, 0])
    found = evaluate(lambda t: topi.nn.quantize(t, 0.5), x)
    np.testing.assert_array_equal(found, [0, 2, 2, -2, 127, -128, 127, -128])


@pytest.mark.parametrize("axis", [0, 1])
def test_quantize_and_dequantize_by_channel(axis: int) -> None:
    x = rng().normal(size=(3, 5)).astype("float32")
    scale = rng(1).uniform(0.01, 0.02, x.shape[axis]).astype("float32")
    zero = numbers(scale.shape, "int8", 2)
    along = (slice(None), None) if axis == 0 else (None, slice(None))
    found = evaluate(lambda t, s, z: topi.nn.quantize(t, s, z, "int8", axis), x, scale, zero)
    expected = np.rint(x / scale[along]) + zero[along]
    np.testing.assert_array_equal(found, expected.clip(-128, 127))
    back = evaluate(lambda t, s, z: topi.nn.dequantize(t, s, z, axis=axis), found, scale, zero)
    wide = found.astype("int32") - zero[along]
    np.testing.assert_allclose(back, wide * scale[along], rtol=1e-6)


def test_requantize() -> None:
    x = np.array([[-70000, 12, 100], [5, 6, 2000000]], "int32")
    scale = np.array([0.001, 0.5, 0.01], "float32")
    found = evaluate(lambda t, s: topi.nn.requantize(t, s, -1), x, scale)
    np.testing.assert_array_equal(found, [[-71, 5, 0], [-1, 2, 127]])


@pytest.mark.parametrize(("dtype", "zero"), [("int8", 0), ("int8", -7), ("uint8", 0), ("uint8", 9)])
@pytest.mark.parametrize("with_sums", [True, False])
def test_dense_int8(dtype: str, zero: int, with_sums: bool) -> None:
    x, w = numbers((5, 27), dtype), numbers((18, 27), "int8", 1)
    bias, sums = numbers((18,), "int16", 2).astype("int32"), topi.nn.weight_sums(w)
    expected = (x.astype("int32") - zero) @ w.T.astype("int32") + bias

    def build(data: Any, weight: Any, b: Any, s: Any = None) -> Any:
        return topi.nn.dense_int8(data, weight, ZeroPoint(zero, s), b)

    given = (sums,) if with_sums else ()
    found = evaluate(build, x, w, bias, *given, constant=(1,))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("dtype", "zero"), [("int8", 3), ("uint8", 0), ("uint8", 130)])
def test_conv2d_int8_pads_with_the_zero_point(dtype: str, zero: int) -> None:
    x, w = numbers((1, 5, 6, 7), dtype), numbers((9, 5, 3, 3), "int8", 1)
    sums = topi.nn.weight_sums(w)
    found = evaluate(
        lambda d, k, s: topi.nn.conv2d_int8(d, k, 1, 1, zero_point=ZeroPoint(zero, s)), x, w, sums
    )
    source = np.pad(x.astype("int32") - zero, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.zeros(found.shape, "int32")
    for i in range(3):
        for j in range(3):
            part = source[:, :, i : i + 6, j : j + 7]
            expected += np.einsum("nchw,fc->nfhw", part, w[:, :, i, j].astype("int32"))
    np.testing.assert_array_equal(found, expected)


def test_quantised_layer_in_one_function() -> None:
    """Product, bias, scale by channel, clip and cast: one kernel, exact."""
    x, w = numbers((6, 32), "int8"), numbers((20, 32), "int8", 1)
    bias, sums = numbers((20,), "int16", 2).astype("int32"), topi.nn.weight_sums(w)
    scale = rng(3).uniform(1e-4, 1e-3, 20).astype("float32")

    def build(data: Any, weight: Any, s: Any, b: Any, factor: Any) -> Any:
        total = topi.nn.dense_int8(data, weight, ZeroPoint(0, s), b)
        return topi.nn.requantize(topi.nn.relu(total), factor, -5)

    found = evaluate(build, x, w, sums, bias, scale, constant=(1,))
    total = np.maximum(x.astype("int32") @ w.T.astype("int32") + bias, 0)
    expected = np.rint(total.astype("float32") * scale) - 5
    np.testing.assert_array_equal(found, expected.clip(-128, 127))


def test_pack_int4_puts_the_first_number_lowest() -> None:
    w = np.array([[1, 2, 3, 4, 5, 6, 7, 8], [15, 0, 0, 0, 0, 0, 0, 9]])
    packed = topi.nn.pack_int4(w)
    assert packed.shape == (1, 2) and packed.dtype == np.uint32
    assert packed.tolist() == [[0x87654321, 0x9000000F]]
    np.testing.assert_array_equal(topi.nn.unpack_int4(packed), w)


@pytest.mark.parametrize("symmetric", [True, False])
def test_quantize_int4_is_off_by_half_a_step(symmetric: bool) -> None:
    w = rng().normal(size=(6, 64)).astype("float32")
    w[2, :32] = 0
    packed, scales, zeros = topi.nn.quantize_int4(w, 32, symmetric=symmetric)
    assert (zeros is None) == symmetric
    back = topi.nn.dequantize_int4(packed, scales, zeros)
    step = np.repeat(scales.T, 32, axis=1)
    # A rounded zero point moves the ends of the range by another half.
    assert (np.abs(back - w) <= (0.5 if symmetric else 1.0) * step + 1e-6).all()
    assert (back[2, :32] == 0).all()


@pytest.mark.parametrize(
    "shape", [(1, 64, 64, 32), (1, 21, 32, 8), (5, 40, 64, 32), (2, 6, 48, 16)]
)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("constant", [True, False])
def test_dense_int4(shape: tuple[int, ...], symmetric: bool, constant: bool) -> None:
    m, n, k, group = shape
    w = rng(1).normal(size=(n, k)).astype("float32")
    x, bias = rng(2).normal(size=(m, k)).astype("float32"), rng(3).normal(size=n).astype("float32")
    packed, scales, zeros = topi.nn.quantize_int4(w, group, symmetric=symmetric)
    given = [x, packed, scales, bias] + ([] if zeros is None else [zeros])

    def build(data: Any, p: Any, s: Any, b: Any, z: Any = None) -> Any:
        return topi.nn.dense_int4(data, p, s, z, b)

    found = evaluate(build, *given, constant=(1, 2) if constant else ())
    expected = x @ topi.nn.dequantize_int4(packed, scales, zeros).T.astype("float64") + bias
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("constant", [True, False])
def test_dense_int4_of_bytes(symmetric: bool, constant: bool) -> None:
    """The other format: outputs first, two weights a byte."""
    w = rng(1).normal(size=(19, 48)).astype("float32")
    x = rng(2).normal(size=(3, 48)).astype("float32")
    packed, scales, zeros = topi.nn.quantize_int4(w, 24, symmetric=symmetric)
    numbers = topi.nn.unpack_int4(packed)
    octets = numbers[:, 0::2] | numbers[:, 1::2] << 4
    given = [x, octets, np.ascontiguousarray(scales.T)]
    given += [] if zeros is None else [np.ascontiguousarray(zeros.T)]
    found = evaluate(
        lambda d, p, s, z=None: topi.nn.dense_int4(d, p, s, z),
        *given,
        constant=tuple(range(1, len(given))) if constant else (),
    )
    expected = x @ topi.nn.dequantize_int4(packed, scales, zeros).T.astype("float64")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["uint32", "uint8"])
def test_4_bit_weights_are_packed_beforehand_and_decoded_in_registers(dtype: str) -> None:
    n, k, group = 64, 64, 32
    words = dtype == "uint32"
    x = te.placeholder((1, k), "float32", "x")
    packed = te.placeholder((k // 8, n) if words else (n, k // 2), dtype, "packed")
    scales = te.placeholder((k // group, n) if words else (n, k // group), "float32", "scales")
    made = topi.nn.dense_int4(x, packed, scales)
    func = te.create_prim_func([x, packed, scales, made]).with_attr(LAYOUT_FREE, [1, 2])
    found = GroupedReduction().apply_to(Schedule(IRModule({"main": func})), NATIVE)
    assert isinstance(found, Schedule), found
    main, packers = split_layout_rewrite(found.mod["main"])
    assert set(packers) == {1, 2}
    assert main.buffers[1].dtype == "uint32"
    assert 'group_sum = T.alloc_buffer((1, 2, 64), "float32", scope="local")' in main.script()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dense_int4_of_16_bit_activations(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = rng(2).normal(size=(2, 32)).astype(kind)
    packed, scales, _ = topi.nn.quantize_int4(rng(1).normal(size=(16, 32)), 16)
    found = evaluate(lambda d, p, s: topi.nn.dense_int4(d, p, s), x, packed, scales)
    assert found.dtype == kind
    expected = x.astype("float64") @ topi.nn.dequantize_int4(packed, scales).T
    np.testing.assert_allclose(found.astype("float64"), expected, rtol=2e-2, atol=1e-2)


def refused(build: Callable[..., Any], *tensors: tuple[tuple[int, ...], str]) -> str:
    with pytest.raises(VerifyError) as caught:
        build(*(te.placeholder(shape, dtype, "t") for shape, dtype in tensors))
    return str(caught.value)


def test_refusals_name_what_is_wrong() -> None:
    nn = topi.nn
    assert "uint8 data and int8 weights" in refused(
        nn.dense_int8, ((2, 4), "int32"), ((3, 4), "int8")
    )
    assert "300 is no uint8" in refused(
        lambda a, b: nn.dense_int8(a, b, ZeroPoint(300)), ((2, 4), "uint8"), ((3, 4), "int8")
    )
    assert "makes int8" in refused(lambda x: nn.quantize(x, 0.5, 0, "float16"), ((2,), "float32"))
    assert "int32 sums" in refused(lambda x: nn.requantize(x, 0.5), ((2,), "float32"))
    assert "uint32 words" in refused(
        nn.dense_int4, ((2, 64), "float32"), ((8, 3), "int8"), ((2, 3), "float32")
    )
    assert "multiples of 8 inputs" in refused(
        nn.dense_int4, ((2, 40), "float32"), ((5, 3), "uint32"), ((10, 3), "float32")
    )
    with pytest.raises(VerifyError, match="from 0 to 15"):
        nn.pack_int4(np.full((1, 8), -1))
