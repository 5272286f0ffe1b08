"""The rule for contractions of small numbers: exact results, dot instructions, fused epilogues."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.everyday import few
from tilewright import compile, te, topi
from tilewright.dlight.cpu import DotProductTile
from tilewright.ir import IRModule, maximum, minimum, structural_equal
from tilewright.scheduling import NotApplicable
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import CONSTANT_BYTES, LAYOUT_FREE, PREFETCH_DISTANCE
from tilewright.tir.interpreter import run
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.op import nearbyint
from tilewright.tir.schedule import Schedule, Trace

NATIVE = Target("native").with_options(num_cores=1)
WIDE = Target("llvm -mcpu=icelake-server -num-cores=1")
# Elsewhere many bfloat16 numbers are multiplied as float32.
DOTS = NATIVE if NATIVE.has_fast_bf16_dots else Target("llvm -mcpu=znver4 -num-cores=1")
PAIRS = [("uint8", "int8"), ("int8", "int8"), ("bfloat16", "bfloat16")]


def dtype_of(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype in ("bfloat16", "float32"):
        return rng.standard_normal(shape).astype(dtype_of(dtype))
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def scheduled(func: PrimFunc, target: Target | None = None) -> PrimFunc:
    """Apply the rule; it must apply."""
    if target is None:
        floats = any(buffer.dtype == "bfloat16" for buffer in func.buffers)
        target = DOTS if floats else NATIVE
    found = DotProductTile().apply_to(Schedule(IRModule({"main": func})), target)
    assert isinstance(found, Schedule), found
    made: PrimFunc = found.mod["main"]
    return made


def call(func: PrimFunc, *args: np.ndarray, target: Target | str = NATIVE) -> None:
    """Run compiled code, with constant operands packed beforehand."""
    main, packers = split_layout_rewrite(func)
    given = list(args)
    for position, packer in packers.items():
        packed = packer.buffers[1]
        out = np.zeros([int(e.value) for e in packed.shape], dtype_of(packed.dtype))  # type: ignore[attr-defined]
        compile(packer, target)(args[position], out)
        given[position] = out
    compile(main, target)(*given)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype("float64")


def matmul(
    m: Any, n: int, k: int, a: str, b: str, *, transposed: bool = True, constant: bool = True
) -> PrimFunc:
    x = te.placeholder((m, k), a, "x")
    w = te.placeholder((n, k) if transposed else (k, n), b, "w")
    total = "float32" if a == "bfloat16" else "int32"
    func = te.create_prim_func([x, w, topi.matmul(x, w, False, transposed, total)])
    return func.with_attr(LAYOUT_FREE, [1]) if constant else func


def check_matmul(func: PrimFunc, m: int, n: int, k: int, a: str, b: str, **options: Any) -> None:
    transposed = options.pop("transposed", True)
    x, w = numbers((m, k), a), numbers((n, k) if transposed else (k, n), b, 1)
    out = np.zeros((m, n), "float32" if a == "bfloat16" else "int32")
    call(func, x, w, out, **options)
    expected = wide(x) @ wide(w.T if transposed else w)
    exact = a != "bfloat16"
    np.testing.assert_allclose(out, expected, rtol=0 if exact else 1e-4, atol=0 if exact else 1e-3)


@few(("a", "b"), PAIRS, every=3)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("shape", [(24, 64, 64), (1, 48, 32), (13, 21, 19), (5, 3, 3)])
def test_matmul(
    shape: tuple[int, int, int], transposed: bool, constant: bool, a: str, b: str
) -> None:
    func = matmul(*shape, a, b, transposed=transposed, constant=constant)
    made = scheduled(func)
    assert "dot_accumulate" in made.script()
    check_matmul(made, *shape, a, b, transposed=transposed)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("shape", [(24, 64, 64), (13, 21, 19), (5, 3, 3)])
def test_constant_weights_are_packed_beforehand(
    shape: tuple[int, int, int], constant: bool
) -> None:
    made = scheduled(matmul(*shape, "uint8", "int8", constant=constant), WIDE)
    assert bool(split_layout_rewrite(made)[1]) == constant


def test_words_that_are_broadcast_are_near_each_other() -> None:
    """Of weights with columns side by side those of the next step are lines further on."""
    target = Target("llvm -mcpu=x86-64-v3").with_options(num_cores=1)
    made = scheduled(matmul(128, 768, 3072, "uint8", "int8", transposed=False), target)
    assert "x_wide = T.alloc_buffer((128, 3072)" in made.script()
    assert "w_wide = T.alloc_buffer((48, 1536, 16, 2)" in made.script()


@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_targets_without_the_instruction(a: str, b: str, target: str) -> None:
    chosen = Target(target).with_options(num_cores=1)
    func = scheduled(matmul(9, 20, 30, a, b), chosen)
    check_matmul(func, 9, 20, 30, a, b, target=chosen)


def test_extreme_bytes_do_not_saturate() -> None:
    for target in (NATIVE, Target("llvm -mcpu=x86-64-v3 -num-cores=1")):
        func = scheduled(matmul(4, 16, 64, "uint8", "int8"), target)
        x, w = np.full((4, 64), 255, "uint8"), np.full((16, 64), -128, "int8")
        out = np.zeros((4, 16), "int32")
        call(func, x, w, out, target=target)
        assert (out == 255 * -128 * 64).all()


def test_scheduled_program_means_the_same_to_the_interpreter() -> None:
    func = scheduled(matmul(5, 18, 6, "int8", "int8"))
    x, w, out = numbers((5, 6), "int8"), numbers((18, 6), "int8", 1), np.zeros((5, 18), "int32")
    run(func, x, w, out)
    np.testing.assert_array_equal(out, x.astype("int32") @ w.T.astype("int32"))


def test_symbolic_rows() -> None:
    m = te.var("m", "int64")
    func = scheduled(matmul(m, 40, 24, "uint8", "int8"))
    for rows in (1, 7, 33):
        check_matmul(func, rows, 40, 24, "uint8", "int8")


def test_not_finite_numbers_reach_their_results_only() -> None:
    func = scheduled(matmul(6, 16, 8, "bfloat16", "bfloat16"))
    x, w = numbers((6, 8), "bfloat16"), numbers((16, 8), "bfloat16", 1)
    x[2, 3], x[4, 0], w[5, 1] = np.inf, np.nan, -np.inf
    out = np.zeros((6, 16), "float32")
    call(func, x, w, out)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(out, wide(x) @ wide(w).T, rtol=1e-3, atol=1e-3)


def test_symbolic_or_short_reductions_are_left_to_other_rules() -> None:
    k = te.var("k", "int64")
    for func in (
        matmul(8, 16, k, "uint8", "int8"),  # type: ignore[arg-type]
        matmul(8, 16, 1, "uint8", "int8"),
        matmul(8, 16, 16, "float32", "float32"),
    ):
        found = DotProductTile().apply_to(Schedule(IRModule({"main": func})), NATIVE)
        assert isinstance(found, NotApplicable)


@pytest.mark.parametrize("out", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("channels_last", [True, False])
def test_bias_scale_and_clip_are_fused(out: str, channels_last: bool) -> None:
    m, n, k = 11, 20, 12
    x, w = te.placeholder((m, k), "uint8", "x"), te.placeholder((n, k), "int8", "w")
    bias, scale = te.placeholder((n,), "int32", "bias"), te.placeholder((n,), "float32", "scale")
    total = topi.matmul(x, w, False, True, "int32")
    shape = (m, n) if channels_last else (n, m)

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        return (i, j) if channels_last else (j, i)

    biased = te.compute(shape, lambda i, j: total(*place(i, j)) + bias(place(i, j)[1]), "biased")
    made = te.compute(shape, lambda i, j: biased(i, j).astype("float32") * scale(place(i, j)[1]))
    if out != "float32":
        low, high = (float(np.iinfo(out).min), float(np.iinfo(out).max))
        real = made
        made = te.compute(
            shape,
            lambda i, j: minimum(maximum(nearbyint(real(i, j)), low), high).astype(out),
        )
    func = te.create_prim_func([x, w, bias, scale, made]).with_attr(LAYOUT_FREE, [1])
    scheduled_func = scheduled(func)
    args = (numbers((m, k), "uint8"), numbers((n, k), "int8", 1), numbers((n,), "int8", 2))
    values = (*args[:2], args[2].astype("int32"), (np.arange(n) / 5000).astype("float32"))
    found = np.zeros(shape, out)
    call(scheduled_func, *values, found)
    expected = wide(args[0]) @ wide(args[1]).T + values[2]
    expected = expected.astype("float32") * values[3]
    if out != "float32":
        expected = np.clip(np.rint(expected), np.iinfo(out).min, np.iinfo(out).max)
    np.testing.assert_allclose(found, expected if channels_last else expected.T, rtol=1e-6)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    "shape", [(24, 40, 64), (13, 21, 32), (9, 70, 12), (1, 40, 128), (3, 21, 320)]
)
def test_signed_operands_become_unsigned_once(shape: tuple[int, int, int], constant: bool) -> None:
    """Products of signed bytes are rewritten where that is faster; results stay exact."""
    func = matmul(*shape, "int8", "int8", constant=constant)
    sch = Schedule(IRModule({"main": func}), record=False)
    found = DotProductTile().apply_to(sch, NATIVE)
    assert isinstance(found, Schedule)
    made: PrimFunc = found.mod["main"]
    if NATIVE.has("avx512vnni") and not NATIVE.has("avxvnniint8"):
        # Whole vectors of a row are summed; a copy is turned, and panels are summed, otherwise.
        by_rows = shape[2] % 64 == 0 and (constant or shape[0] >= 8)
        if by_rows:
            assert "w_unsigned" in made.script() and "x_sum" in made.script()
        elif min(shape[:2]) >= 8:
            assert "x_unsigned" in made.script() and "w_sum" in made.script()
    assert bool(split_layout_rewrite(made)[1]) == constant
    check_matmul(made, *shape, "int8", "int8")
    m, n, k = shape
    x, w = np.full((m, k), -128, "int8"), np.full((n, k), -128, "int8")
    out = np.zeros((m, n), "int32")
    call(made, x, w, out)
    assert (out == 128 * 128 * k).all()


@pytest.mark.parametrize(
    ("columns", "constants", "fetched"),
    [(2048, 1 << 40, True), (2048, 0, False), (64, 1 << 40, False)],
)
def test_panels_from_memory_are_fetched_ahead(columns: int, constants: int, fetched: bool) -> None:
    rows = 4
    plain = matmul(rows, columns, 1024, "uint8", "int8", constant=True)
    func = scheduled(plain.with_attr(CONSTANT_BYTES, constants))
    assert (PREFETCH_DISTANCE in func.script()) == fetched
    check_matmul(func, rows, columns, 1024, "uint8", "int8")


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_recorded_schedules_replay(a: str, b: str) -> None:
    func = matmul(13, 21, 20, a, b)
    found = DotProductTile().apply_to(Schedule(IRModule({"main": func})), NATIVE)
    assert isinstance(found, Schedule)
    again = Schedule(IRModule({"main": func}))
    Trace.from_json(json.loads(json.dumps(found.trace.as_json()))).apply_to_schedule(again)
    assert structural_equal(again.mod, found.mod)
    plain = Schedule(IRModule({"main": func}), record=False)
    unrecorded = DotProductTile().apply_to(plain, NATIVE)
    assert isinstance(unrecorded, Schedule)
    assert structural_equal(unrecorded.mod, found.mod)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"block": "nothing"}, "'nothing' is no block"),
        ({"block": "matmul", "turned": "out", "along": "k"}, "'out' along 'k' is no operand"),
        ({"block": "matmul", "turned": "x", "along": "i"}, "'x' along 'i' is no operand"),
    ],
)
def test_only_operands_become_unsigned(options: dict[str, str], reason: str) -> None:
    func = matmul(13, 21, 20, "int8", "int8")
    with pytest.raises(ScheduleError, match=reason):
        Schedule(IRModule({"main": func})).use_kernel("root", "unsigned_operand", options)


def test_unsigned_operands_stay() -> None:
    options = {"block": "matmul", "turned": "x", "along": "k"}
    sch = Schedule(IRModule({"main": matmul(13, 21, 20, "uint8", "int8")}))
    with pytest.raises(ScheduleError, match="not both int8"):
        sch.use_kernel("root", "unsigned_operand", options)


def test_signed_convolution_with_bias() -> None:
    x, weight = (
        te.placeholder((1, 8, 6, 6), "int8", "x"),
        te.placeholder((20, 8, 3, 3), "int8", "w"),
    )
    bias = te.placeholder((20,), "int32", "bias")
    total = topi.nn.conv2d(x, weight, 1, 1, out_dtype="int32")
    out = te.compute(total.shape, lambda n, f, h, w: total(n, f, h, w) + bias(f))
    func = te.create_prim_func([x, weight, bias, out]).with_attr(LAYOUT_FREE, [1])
    found = DotProductTile().apply_to(Schedule(IRModule({"main": func}), record=False), NATIVE)
    assert isinstance(found, Schedule)
    data, filters = numbers((1, 8, 6, 6), "int8"), numbers((20, 8, 3, 3), "int8", 1)
    added, result = np.arange(20, dtype="int32"), np.zeros((1, 20, 6, 6), "int32")
    call(found.mod["main"], data, filters, added, result)
    expected = _conv2d(data, filters, 1, 1, 1) + added[None, :, None, None]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("size", [(7, 7), (5, 9), (1, 3)])
def test_pixels_of_pointwise_convolutions_are_one_axis(
    size: tuple[int, int], with_bias: bool
) -> None:
    x, w = te.placeholder((2, 12, *size), "uint8", "x"), te.placeholder((40, 12, 1, 1), "int8", "w")
    bias = te.placeholder((40,), "int32", "bias")
    total = topi.nn.conv2d(x, w, out_dtype="int32")
    added = te.compute(total.shape, lambda n, f, h, v: total(n, f, h, v) + bias(f), "added")
    made = added if with_bias else total
    func = te.create_prim_func([x, w, bias, made]).with_attr(LAYOUT_FREE, [1])
    found = scheduled(func)
    assert size[0] == 1 or f"v2 // {size[1]}, v2 % {size[1]}" in found.script()
    data, filters = numbers((2, 12, *size), "uint8"), numbers((40, 12, 1, 1), "int8", 1)
    offsets, result = np.arange(40, dtype="int32"), np.zeros((2, 40, *size), "int32")
    call(found, data, filters, offsets, result)
    expected = _conv2d(data, filters, 1, 0, 1)
    expected = expected + offsets[None, :, None, None] if with_bias else expected
    np.testing.assert_array_equal(result, expected)


CONVOLUTIONS = [
    # n, c, h, w, filters, kernel, stride, padding, dilation
    (1, 16, 7, 7, 20, 3, 1, 1, 1),
    (2, 8, 6, 5, 33, 1, 1, 0, 1),
    (1, 3, 12, 12, 8, 5, 2, 2, 1),
    (1, 6, 9, 8, 16, 3, 1, 2, 2),
]


@pytest.mark.parametrize("sizes", CONVOLUTIONS)
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_conv2d(sizes: tuple[int, ...], a: str, b: str) -> None:
    n, c, h, w, f, k, stride, padding, dilation = sizes
    x, weight = te.placeholder((n, c, h, w), a, "x"), te.placeholder((f, c, k, k), b, "w")
    total = "float32" if a == "bfloat16" else "int32"
    made = topi.nn.conv2d(x, weight, stride, padding, dilation, out_dtype=total)
    func = te.create_prim_func([x, weight, made]).with_attr(LAYOUT_FREE, [1])
    data, filters = numbers((n, c, h, w), a), numbers((f, c, k, k), b, 1)
    expected = _conv2d(data, filters, stride, padding, dilation)
    out = np.zeros(expected.shape, total)
    call(scheduled(func), data, filters, out)
    exact = a != "bfloat16"
    np.testing.assert_allclose(out, expected, rtol=0 if exact else 1e-4, atol=0 if exact else 1e-3)


def _conv2d(
    x: np.ndarray, weight: np.ndarray, stride: int, padding: int, dilation: int
) -> np.ndarray:
    n, _, h, w = x.shape
    f, _, k, _ = weight.shape
    source = np.pad(wide(x), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    reach = (k - 1) * dilation
    rows = (h + 2 * padding - reach - 1) // stride + 1
    columns = (w + 2 * padding - reach - 1) // stride + 1
    out = np.zeros((n, f, rows, columns))
    for i in range(k):
        for j in range(k):
            top, left = i * dilation, j * dilation
            part = source[:, :, top : top + rows * stride : stride]
            part = part[:, :, :, left : left + columns * stride : stride]
            out += np.einsum("nchw,fc->nfhw", part, wide(weight[:, :, i, j]))
    return out
