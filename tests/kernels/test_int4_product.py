"""Products with 4-bit weights by dot instructions, against float64."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.everyday import few
from tilewright import compile, te, topi
from tilewright.ir import IRModule, Var, structural_equal
from tilewright.kernels.cpu.int4_product import Int4ProductKernel
from tilewright.scheduling import NotApplicable
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import LAYOUT_FREE
from tilewright.tir.interpreter import run
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule, Trace

# The emitter widens operands where the machine has no such instruction.
ZMM = Target("llvm -mcpu=znver4").with_options(num_cores=1)
NATIVE = Target("native").with_options(num_cores=1)
HAS_DOT = NATIVE.has("ssse3") or NATIVE.has("i8mm")
needs_dot = pytest.mark.skipif(not HAS_DOT, reason="the machine multiplies no bytes")


def quantized(n: int, k: int, group: int, symmetric: bool, octets: bool) -> list[np.ndarray]:
    w = np.random.default_rng(1).normal(size=(n, k)).astype("float32")
    packed, scales, zeros = topi.nn.quantize_int4(w, group, symmetric=symmetric)
    made = [packed, scales] + ([] if zeros is None else [zeros])
    if octets:
        numbers = topi.nn.unpack_int4(packed)
        made = [numbers[:, 0::2] | numbers[:, 1::2] << 4] + [item.T.copy() for item in made[1:]]
    return made


def product(
    x: np.ndarray,
    weights: list[np.ndarray],
    constant: bool = True,
    bias: np.ndarray | None = None,
    activation_bits: int | None = None,
) -> PrimFunc:
    given = [x, *weights] + ([] if bias is None else [bias])
    tensors = [te.placeholder(a.shape, str(a.dtype), f"x{n}") for n, a in enumerate(given)]
    data, packed, scales, *rest = tensors
    zeros = rest[0] if len(weights) == 3 else None
    added = None if bias is None else rest[-1]
    result = topi.nn.dense_int4(data, packed, scales, zeros, added, activation_bits=activation_bits)
    func = te.create_prim_func([*tensors, result])
    return func.with_attr(LAYOUT_FREE, list(range(1, len(given)))) if constant else func


def scheduled(func: PrimFunc, target: Target = NATIVE) -> PrimFunc:
    found = Int4ProductKernel().apply_to(Schedule(IRModule({"main": func})), target)
    assert isinstance(found, Schedule), found
    return found.mod["main"]


def evaluate(func: PrimFunc, *arrays: np.ndarray, target: Target = NATIVE) -> np.ndarray:
    """Run a scheduled function, its weights packed before."""
    main, packers = split_layout_rewrite(func)
    given = list(arrays)
    for position, packer in packers.items():
        packed = packer.buffers[1]
        given[position] = np.zeros([e.value for e in packed.shape], packed.dtype)  # type: ignore[attr-defined]
        compile(packer, NATIVE)(arrays[position], given[position])
    result = func.buffers[-1]
    kind = np.dtype(getattr(ml_dtypes, result.dtype, result.dtype))
    out = np.zeros([e.value for e in result.shape], kind)  # type: ignore[attr-defined]
    compile(main, target)(*given, out)
    return out


def dense(weights: list[np.ndarray], octets: bool = False) -> np.ndarray:
    packed, scales, *zeros = weights
    if octets:
        numbers = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
        packed, scales, zeros = topi.nn.pack_int4(numbers), scales.T, [z.T for z in zeros]
    return topi.nn.dequantize_int4(packed, scales, *zeros).astype("float64")


SHAPES = [
    # rows, outputs, inputs, group
    ((1,), 64, 64, 32),
    ((1,), 21, 48, 8),
    ((5,), 40, 64, 32),
    ((13,), 100, 80, 16),
    ((2, 3), 70, 272, 136),  # parts of groups, leading dimensions
    ((), 16, 512, 256),
]


@needs_dot
@few(("rows", "n", "k", "group"), SHAPES, every=3)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("octets", [True, False])
def test_as_good_as_float32(
    rows: tuple[int, ...], n: int, k: int, group: int, symmetric: bool, octets: bool
) -> None:
    x = np.random.default_rng(2).normal(size=(*rows, k)).astype("float32")
    weights = quantized(n, k, group, symmetric, octets)
    func = scheduled(product(x, weights))
    assert "dot_accumulate" in func.script()
    wide = dense(weights, octets)
    # What rounding each product to float32 may add up to.
    bound = 2.0**-22 * (np.abs(x).astype("float64") @ np.abs(wide).T) + 1e-30
    error = np.abs(evaluate(func, x, *weights) - x.astype("float64") @ wide.T)
    # Activations are rounded in relation to the largest one of a run.
    tops = np.abs(x).max(axis=-1, keepdims=True) * np.abs(wide).sum(axis=1) * 2.0**-20
    assert (error <= bound + tops).all()


@pytest.mark.skipif(not NATIVE.has("avx2"), reason="the CPU has no AVX2")
@pytest.mark.parametrize("bits", [None, 16, 8])
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v2"])
def test_without_dot_instructions(cpu: str, bits: int | None) -> None:
    """The largest weights and activations meet; bits of activations cost what they round."""
    target = Target(f"llvm -mcpu={cpu} -num-cores=1")
    x = np.random.default_rng(2).choice([-1.0, 1.0, 0.5], (5, 64)).astype("float32")
    weights = quantized(40, 64, 32, True, False)
    weights[0] |= np.uint32(0xF0F0F0F0)  # half of the weights are 15
    func = scheduled(product(x, weights, activation_bits=bits), target)
    found = evaluate(func, x, *weights, target=target)
    wanted = x @ dense(weights).T
    tolerance = {None: 1e-5, 16: 1e-3, 8: 0.2}[bits]
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@needs_dot
@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_that_change_are_read_as_they_lie(symmetric: bool) -> None:
    x = np.random.default_rng(2).normal(size=(3, 64)).astype("float32")
    weights = quantized(128, 64, 32, symmetric, octets=False)
    func = scheduled(product(x, weights, constant=False))
    assert not split_layout_rewrite(func)[1]
    np.testing.assert_allclose(
        evaluate(func, x, *weights), x @ dense(weights).T, rtol=1e-5, atol=1e-5
    )


@needs_dot
def test_what_follows_stays() -> None:
    x = np.random.default_rng(2).normal(size=(4, 64)).astype("float32")
    weights, bias = quantized(48, 64, 32, True, False), np.arange(48, dtype="float32")
    found = evaluate(scheduled(product(x, weights, bias=bias)), x, *weights, bias)
    np.testing.assert_allclose(found, x @ dense(weights).T + bias, rtol=1e-5, atol=1e-5)


@needs_dot
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_activations_have_two_limbs(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.random.default_rng(2).normal(size=(7, 96)).astype(kind)
    weights = quantized(33, 96, 32, False, False)
    func = scheduled(product(x, weights))
    assert "limbs = T.alloc_buffer((7, 3, 2, 32)" in func.script()
    found = evaluate(func, x, *weights)
    assert found.dtype == kind
    expected = (x.astype("float64") @ dense(weights).T).astype(kind).astype("float64")
    step = 2.0 ** (-10 if dtype == "float16" else -7)
    np.testing.assert_allclose(found.astype("float64"), expected, rtol=step, atol=1e-3)


@needs_dot
@few("bits", [8, 16], every=2)
@pytest.mark.parametrize("octets", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_activations_are_rounded_as_the_definition_says(
    bits: int, octets: bool, dtype: str
) -> None:
    x = np.random.default_rng(2).normal(size=(6, 96)).astype(dtype)
    x[2, :32] = 0
    weights = quantized(40, 96, 32, False, octets)
    func = product(x, weights, activation_bits=bits)
    made = scheduled(func)
    assert f"limbs = T.alloc_buffer((6, 3, {bits // 8}, 32)" in made.script()
    expected = np.zeros((6, 40), dtype)
    run(func, x, *weights, expected)
    found = evaluate(made, x, *weights)
    step = 1e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(found, expected, rtol=step, atol=20 * step)
    plain = x.astype("float64") @ dense(weights, octets).T
    assert np.abs(found - plain).max() < np.abs(plain).max() * 2.0 ** (2 - bits) + 20 * step


def test_activation_bits_that_there_are() -> None:
    with pytest.raises(VerifyError, match="activation_bits is None, 8, 16; got 4"):
        product(np.zeros((1, 32), "float32"), quantized(8, 32, 8, True, False), activation_bits=4)


@needs_dot
@pytest.mark.parametrize("scale", [1e-42, 1e-38, 1e-30, 1e-12, 1e30, 1e36])
def test_denormal_and_huge_activations(scale: float) -> None:
    x = (np.random.default_rng(2).normal(size=(2, 64)) * scale).astype("float32")
    weights = quantized(24, 64, 32, True, False)
    found = evaluate(scheduled(product(x, weights)), x, *weights).astype("float64")
    expected = x.astype("float64") @ dense(weights).T
    np.testing.assert_allclose(
        found, expected, rtol=1e-5, atol=np.abs(expected).max() * 1e-5 + 2e-43
    )


@needs_dot
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_with_numbers_that_are_not_finite_give_nan(bad: float) -> None:
    x = np.random.default_rng(2).normal(size=(3, 64)).astype("float32")
    x[1, 33] = bad
    weights = quantized(24, 64, 32, True, False)
    found = evaluate(scheduled(product(x, weights)), x, *weights)
    assert np.isnan(found[1]).all()
    finite = x[::2] @ dense(weights).T
    np.testing.assert_allclose(found[::2], finite, rtol=1e-5, atol=1e-5)


@needs_dot
def test_zeros_and_extremes_are_exact() -> None:
    """Numbers that have few bits come out as they are, however large the sums."""
    weights = [topi.nn.pack_int4(np.full((16, 256), 15)), np.ones((2, 16), "float32")]
    weights.append(np.zeros((2, 16), "uint8"))
    for value in (0.0, -1.0, 2.0**20):
        x = np.full((2, 256), value, "float32")
        assert (evaluate(scheduled(product(x, weights)), x, *weights) == value * 15 * 256).all()


def test_scheduled_program_means_the_same_to_the_interpreter() -> None:
    x = np.random.default_rng(2).normal(size=(3, 32)).astype("float32")
    weights = quantized(20, 32, 16, False, True)
    func = product(x, weights)
    expected, found = np.zeros((3, 20), "float32"), np.zeros((3, 20), "float32")
    run(func, x, *weights, expected)
    run(scheduled(func, ZMM), x, *weights, found)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_traces_replay() -> None:
    func = product(np.zeros((4, 64), "float32"), quantized(40, 64, 32, True, True))
    found = Int4ProductKernel().apply_to(Schedule(IRModule({"main": func})), ZMM)
    assert isinstance(found, Schedule)
    again = Schedule(IRModule({"main": func}))
    Trace.from_json(json.loads(json.dumps(found.trace.as_json()))).apply_to_schedule(again)
    assert structural_equal(again.mod, found.mod)


@needs_dot
def test_large_products_run_on_all_cores() -> None:
    cores = NATIVE.with_options(num_cores=2)
    x = np.random.default_rng(2).normal(size=(32, 1024)).astype("float32")
    weights = quantized(256, 1024, 32, True, True)
    func = scheduled(product(x, weights), cores)
    assert func.script().count("T.parallel") >= 2
    np.testing.assert_allclose(
        evaluate(func, x, *weights), x @ dense(weights, True).T, rtol=1e-4, atol=1e-4
    )


def reason(func: PrimFunc, target: Target = ZMM) -> str:
    found = Int4ProductKernel().apply_to(Schedule(IRModule({"main": func})), target)
    assert isinstance(found, NotApplicable)
    return found.reason


def test_what_the_kernel_is_not_for() -> None:
    x, octets = np.zeros((4, 64), "float32"), quantized(40, 64, 32, True, True)
    assert "in another order" in reason(product(x, octets, constant=False))
    old = Target("llvm -mcpu=x86-64").with_options(num_cores=1)
    assert "no products of unsigned and signed bytes" in reason(product(x, octets), old)
    plain = te.placeholder((4, 4), "float32", "a")
    other = te.create_prim_func([plain, topi.nn.matmul(plain, plain)])
    assert "0 products with 4-bit weights" in reason(other)
    rows = Var("m")
    tensors: list[Any] = [te.placeholder((rows, 64), "float32", "x")]
    tensors += [te.placeholder(a.shape, str(a.dtype), f"w{n}") for n, a in enumerate(octets)]
    symbolic = te.create_prim_func([*tensors, topi.nn.dense_int4(*tensors)])
    assert "symbolic" in reason(symbolic)
    with pytest.raises(ScheduleError, match="0 products"):
        Schedule(IRModule({"main": other})).use_kernel("root", "int4_dot", {})
    sizes = {"rows": 4, "columns": 32, "lanes": 16, "limbs": 3}
    for wrong in ({"rows": 0}, {"lanes": -16}, {"columns": 24}):
        with pytest.raises(ScheduleError, match="sizes are positive"):
            Schedule(product(x, octets)).use_kernel("root", "int4_dot", {**sizes, **wrong})
