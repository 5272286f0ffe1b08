"""Products of mixed and of 16-bit operands: what they are summed in, and what comes out."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from tilewright import compile, te, topi
from tilewright.dlight import default_schedule
from tilewright.dlight.cpu import DotProductTile, rules
from tilewright.dlight.cpu.contraction.promoted_operand import PromotedOperand
from tilewright.ir import IRModule, collect, structural_equal
from tilewright.scheduling import first_schedule
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import Block
from tilewright.tir.attrs import LAYOUT_FREE
from tilewright.tir.interpreter import run
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule, Trace

TARGETS = ["native", "llvm -mcpu=x86-64-v3"]


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def product(a: np.ndarray, b: np.ndarray, out: str | None, target: str | None) -> np.ndarray:
    """``a @ b``, interpreted, or compiled as the rules schedule it."""
    x = te.placeholder(a.shape, str(a.dtype), "x")
    w = te.placeholder(b.shape, str(b.dtype), "w")
    made = topi.nn.matmul(x, w, out_dtype=out)
    func = te.create_prim_func([x, w, made])
    found = np.zeros([e.value for e in made.shape], dtype_of(made.dtype))  # type: ignore[attr-defined]
    if target is None:
        run(func, a, b, found)
        return found
    chosen = Target(target).with_options(num_cores=1)
    sch = first_schedule(func, rules(), chosen)
    assert sch is not None
    compile(sch.mod, chosen)(a, b, found)
    return found


@pytest.mark.parametrize("target", [None, *TARGETS])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_16_bit_floats_are_wide(dtype: str, target: str | None) -> None:
    ones = np.ones((2, 600), dtype_of(dtype))
    found = product(ones, np.ones((600, 17), ones.dtype), None, target)
    assert found.dtype == ones.dtype
    # 600 needs ten bits: added one by one in bfloat16 it would stop at 256.
    np.testing.assert_array_equal(found.astype("float32"), np.float32(600).astype(ones.dtype))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ("float16", "float16", "float32"),
        ("bfloat16", "bfloat16", "float32"),
        ("float16", "float16", None),
        ("float32", "float16", None),
        ("float32", "bfloat16", None),
        ("bfloat16", "float32", "float32"),
        ("uint8", "int8", "int32"),
        ("int8", "int32", "int32"),
    ],
)
def test_mixed_operands(a: str, b: str, out: str | None, target: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, (13, 21)), rng.integers(-9, 9, (21, 19))
    x = np.abs(x) if a == "uint8" else x
    found = product(x.astype(dtype_of(a)), y.astype(dtype_of(b)), out, target)
    assert found.dtype == dtype_of(out or a)
    np.testing.assert_array_equal(found.astype("float64"), (x @ y).astype(found.dtype))


def test_operands_of_calls_are_widened_once() -> None:
    x, w = te.placeholder((40, 64), "float16", "x"), te.placeholder((64, 48), "float16", "w")
    func = te.create_prim_func([x, w, topi.nn.matmul(x, w, out_dtype="float32")])
    func = func.with_attr(LAYOUT_FREE, [1])
    target = Target("native").with_options(num_cores=1)
    found = PromotedOperand().apply_to(Schedule(IRModule({"main": func})), target)
    assert isinstance(found, Schedule)
    again = Schedule(IRModule({"main": func}))
    Trace.from_json(json.loads(json.dumps(found.trace.as_json()))).apply_to_schedule(again)
    assert structural_equal(again.mod, found.mod)
    text = found.mod["main"].script()
    assert "x_wide" in text and "w_wide" not in text
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype("float16") for s in ((40, 64), (64, 48)))
    out = np.zeros((40, 48), "float32")
    compile(found.mod, target)(a, b, out)
    np.testing.assert_allclose(out, a.astype("float64") @ b.astype("float64"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_filters_that_are_scalars_are_packed_in_float32(kind: str, kernel: int) -> None:
    x = te.placeholder((1, 12, 16, 33), kind, "x")
    w = te.placeholder((32, 12, kernel, kernel), kind, "w")
    made = topi.nn.conv2d(x, w, padding=kernel // 2, out_dtype="float32")
    func = te.create_prim_func([x, w, made]).with_attr(LAYOUT_FREE, [1])
    target = Target("llvm -mcpu=x86-64-v3").with_options(num_cores=1)
    (rule,) = [item for item in rules() if isinstance(item, PromotedOperand)]
    found = rule.apply_to(Schedule(IRModule({"main": func})), target)
    assert isinstance(found, Schedule)
    again = Schedule(IRModule({"main": func}))
    Trace.from_json(json.loads(json.dumps(found.trace.as_json()))).apply_to_schedule(again)
    assert structural_equal(again.mod, found.mod)
    packed = split_layout_rewrite(found.mod["main"])[1][1].buffers[1]
    assert packed.dtype == "float32"
    rng = np.random.default_rng(0)
    data = rng.normal(size=(1, 12, 16, 33)).astype(dtype_of(kind))
    filters = rng.normal(size=(32, 12, kernel, kernel)).astype(dtype_of(kind))
    out, plain = (np.zeros((1, 32, 16, 33), "float32") for _ in range(2))
    compile(found.mod, target)(data, filters, out)
    compile(func, target)(data, filters, plain)
    np.testing.assert_allclose(out, plain, rtol=1e-4, atol=1e-4)


def test_only_packed_operands_become_wide() -> None:
    x, w = te.placeholder((40, 64), "float16", "x"), te.placeholder((64, 48), "float16", "w")
    func = te.create_prim_func([x, w, topi.nn.matmul(x, w, out_dtype="float32")])
    with pytest.raises(ScheduleError, match="'w' is packed into 0 copies"):
        Schedule(IRModule({"main": func})).use_kernel("root", "widened_copy", {"operand": "w"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"block": "nothing", "operand": "x"}, "no block 'nothing'"),
        ({"block": "matmul", "operand": "w"}, "'w' is no operand of float16"),
        ({"block": "matmul"}, "None is no operand"),
    ],
)
def test_only_16_bit_operands_are_widened(options: dict[str, str], reason: str) -> None:
    x, w = te.placeholder((4, 8), "float16", "x"), te.placeholder((8, 4), "float32", "w")
    func = te.create_prim_func([x, w, topi.nn.matmul(x, w, out_dtype="float32")])
    with pytest.raises(ScheduleError, match=reason):
        Schedule(IRModule({"main": func})).use_kernel("root", "widened_operand", options)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("a", "b"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "skylake-avx512"])
def test_bytes_become_pairs_where_there_are_no_products_of_bytes(
    target: str, a: str, b: str, constant: bool
) -> None:
    x, w = te.placeholder((40, 67), a, "x"), te.placeholder((67, 50), b, "w")
    func = te.create_prim_func([x, w, topi.nn.matmul(x, w, out_dtype="int32")])
    func = func.with_attr(LAYOUT_FREE, [1]) if constant else func
    made_for = Target(f"llvm -mcpu={target}").with_options(num_cores=1)
    (rule,) = [item for item in rules() if isinstance(item, DotProductTile)]
    found = rule.apply_to(Schedule(IRModule({"main": func})), made_for)
    assert isinstance(found, Schedule)
    text = found.mod["main"].script()
    assert "x_wide" in text and "w_wide" in text and "dot_s16s16s32" in text
    again = Schedule(IRModule({"main": func}))
    Trace.from_json(json.loads(json.dumps(found.trace.as_json()))).apply_to_schedule(again)
    assert structural_equal(again.mod, found.mod)
    # The largest products: what pairs of bytes would saturate at.
    ends = [(np.iinfo(kind).min, np.iinfo(kind).max) for kind in (a, b)]
    for low in (0, 1):
        left, right = np.full((40, 67), ends[0][low], a), np.full((67, 50), ends[1][low], b)
        left[::3], right[:, ::2] = ends[0][1], ends[1][0]
        out = np.zeros((40, 50), "int32")
        compile(found.mod, "native" if "512" in target else made_for)(left, right, out)
        np.testing.assert_array_equal(out, left.astype("int64") @ right.astype("int64"))


def test_bytes_that_are_used_once_stay_bytes() -> None:
    x, w = te.placeholder((1, 256), "uint8", "x"), te.placeholder((256, 512), "int8", "w")
    func = te.create_prim_func([x, w, topi.nn.matmul(x, w, out_dtype="int32")])
    func = func.with_attr(LAYOUT_FREE, [1])
    target = Target("llvm -mcpu=x86-64-v3").with_options(num_cores=1)
    made = default_schedule(target)(IRModule({"main": func}))
    assert "_wide" not in made["main"].script()


def test_operands_are_not_rounded_to_a_narrower_result() -> None:
    a = np.array([[1 + 2.0**-30, -1.0], [70000.0, -69000.0]])
    b = np.ones((2, 1))
    cases = (("float64", "float32"), ("float64", "float16"), ("float32", "int32"))
    for source, target in cases:
        x, y = te.placeholder((2, 2), source, "x"), te.placeholder((2, 1), source, "y")
        func = te.create_prim_func([x, y, topi.matmul(x, y, out_dtype=target)])
        left = (a + (0.75 if target == "int32" else 0)).astype(source)
        expected = (left @ b.astype(source)).astype(target)
        out = np.zeros((2, 1), target)
        compile(IRModule({"main": func}), "native")["main"](left, b.astype(source), out)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("cpu", ["x86-64-v3", "emeraldrapids"])
def test_panels_that_many_rows_share_are_converted_once(cpu: str, dtype: str) -> None:
    x, w = te.placeholder((96, 64), dtype, "x"), te.placeholder((64, 80), dtype, "w")
    func = te.create_prim_func([x, w, topi.nn.matmul(x, w, out_dtype="float32")])
    target = Target(f"llvm -mcpu={cpu} -num-cores=1 -l1=32768 -l2=1048576")
    func = func.with_attr(LAYOUT_FREE, [1])
    made = default_schedule(target)(IRModule({"main": func}))["main"]
    update = next(b for b in collect(made.body, Block) if b.name.endswith("_update"))
    assert {region.buffer.dtype for region in update.reads} == {"float32"}
    assert len({b.dtype for b in made.root.alloc_buffers} & {dtype}) == 1  # packed as it is
