"""Products whose operands come by tensor maps: right, without races, and broken ones reported."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from gpu_rules import compiled, function, tensor
from test_warpgroups import HOPPER, agrees, lowered, product

from tests.everyday import few
from tilewright import te, topi
from tilewright.ir import IRModule, PassContext
from tilewright.script import parse
from tilewright.support.errors import RunError
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run

COPY = "T.ptx_cp_async_bulk_tensor("


def by_maps(func: PrimFunc) -> IRModule:
    with PassContext(config={"dlight.tensor_maps": True}):
        return lowered(func)


CASES: dict[str, tuple[int, int, int, tuple[bool, bool], str]] = {
    "rows along k": (64, 64, 320, (False, True), "float16"),
    "b turned": (64, 128, 128, (False, False), "bfloat16"),
    "both turned": (64, 64, 128, (True, False), "float16"),
    "bytes": (64, 64, 256, (False, True), "int8"),
    "eighths": (64, 64, 256, (False, True), "float8_e4m3fn"),
    "odd": (41, 75, 72, (False, True), "float16"),
    "odd and turned": (41, 72, 72, (False, False), "float16"),
}


@few("name", CASES, "rows along k", "odd and turned")
def test_products(name: str) -> None:
    m, n, k, turned, dtype = CASES[name]
    total = "int32" if dtype == "int8" else "float32"
    module = by_maps(product(m, n, k, dtype, total, turned))
    text = module.script()
    assert COPY in text and "T.ptx_wgmma(" in text and "T.ptx_cp_async(" not in text
    assert agrees(module, m, n, k, turned, dtype).bank_conflicts == 0
    assert all(item.spill_bytes == 0 for item in compiled(module, HOPPER).values())


def epilogue(a: te.Tensor, b: te.Tensor, bias: te.Tensor, residual: te.Tensor) -> te.Tensor:
    product = topi.nn.batch_matmul(a, b, transpose_b=True, out_dtype="float32")
    return topi.add(topi.nn.relu(topi.add(product, bias)), residual)


def test_batches_with_an_epilogue() -> None:
    shapes = (2, 64, 128), (2, 64, 128), (64,), (2, 64, 64)
    kinds = "float16", "float16", "float32", "float32"
    tensors = [tensor(*shape, dtype=kind, name=x) for shape, kind, x in zip(shapes, kinds, "abcd")]
    module = by_maps(function(epilogue, *tensors))
    assert COPY in module.script()
    rng = np.random.default_rng(0)
    a, b, bias, residual = (
        rng.integers(-4, 5, shape).astype(kind) for shape, kind in zip(shapes, kinds)
    )
    found = np.zeros((2, 64, 64), "float32")
    run(module, a, b, bias, residual, found, check_races=True)
    product = a.astype("float32") @ b.astype("float32").transpose(0, 2, 1)
    np.testing.assert_array_equal(found, np.maximum(product + bias, 0) + residual)


def test_rows_may_come_with_the_call() -> None:
    n = te.var("n")
    func = function(
        lambda a, b: topi.nn.relu(topi.nn.dense(a, b)),
        tensor(n, 128, dtype="float16", name="a"),
        tensor(64, 128, dtype="float16", name="b"),
    )
    module = by_maps(func)
    assert COPY in module.script()
    rng = np.random.default_rng(0)
    for rows in (0, 65):
        a, b = (rng.integers(-4, 5, (size, 128)).astype("float16") for size in (rows, 64))
        found = np.zeros((rows, 64), "float16")
        run(module, a, b, found, check_races=True)
        np.testing.assert_array_equal(found, np.maximum(a @ b.T, 0))


def test_large_products_fit_registers_and_launch_with_as_many_as_they_take() -> None:
    module = by_maps(product(4096, 4096, 4096))
    text = module.script()
    assert "T.ptx_setmaxnreg(40, 0)" in text and "T.ptx_setmaxnreg(232, 1)" in text
    (resources,) = compiled(module, HOPPER).values()
    assert resources.spill_bytes == 0
    # What consumers take is there once the producer has given its registers back; all have as many
    # again where the roles end, as code there is compiled for the fewest that any of them may have.
    assert resources.registers == 168 and 3 * 168 >= 40 + 2 * 232
    assert text.count("T.ptx_setmaxnreg(168, ") == 2


def test_what_has_no_tensor_map_is_copied_by_threads(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "tilewright"):
        module = by_maps(product(64, 60, 128, turned=(False, False)))
    assert COPY not in module.script()
    assert "120 bytes, which must be a multiple of 16" in caplog.text


@pytest.mark.parametrize("k", [128, 72])
def test_no_tensor_maps_unless_they_are_asked_for(k: int) -> None:
    """Nor where threads can't copy for ``wgmma``: rows of 144 bytes are no whole ones of 128."""
    func = product(64, 64, k)
    assert COPY not in lowered(func).script()
    assert COPY in by_maps(func).script()


WAIT_FULL = "T.evaluate(T.ptx_wait_barrier("
BROKEN = {
    "no wait for the copies": (
        WAIT_FULL, 1, "pass  # ", "race|nothing has written|are there already",
    ),
    "no wait for an empty stage": (
        WAIT_FULL, 0, "pass  # ", "arrivals of the phase are there already|race",
    ),
    "too many bytes": ("16384))", 0, "16400))", "lacks 0 of 1 arrivals and 16 bytes"),
    "too few bytes": ("16384))", 0, "8192))", "race|lacks|nothing has written|nobody waits"),
    "nobody says that a stage is empty": (
        "T.evaluate(T.ptx_arrive_barrier(", 0, "pass  # ", "lacks 4 of 4 arrivals",
    ),
    "no wait for products": (
        "T.evaluate(T.ptx_wgmma_wait_group(1))", 0, "pass",
        "race|nothing has written|without waiting",
    ),
}  # fmt: skip


@few("name", BROKEN, "too many bytes")
def test_broken_pipelines_are_reported(name: str) -> None:
    m, n, k, turned, dtype = 64, 64, 512, (False, True), "float16"
    text = _lines_joined(by_maps(product(m, n, k, dtype, "float32", turned)).script())
    agrees(parse(text), m, n, k, turned, dtype)
    old, number, new, message = BROKEN[name]
    before = text.split(old)
    assert len(before) > number + 1
    broken = old.join(before[: number + 1]) + new + old.join(before[number + 1 :])
    with pytest.raises(RunError, match=message):
        agrees(parse(broken), m, n, k, turned, dtype)


def _lines_joined(text: str) -> str:
    """Put each statement on one line, so that it can be replaced."""
    made: list[str] = []
    depth = 0
    for line in text.splitlines():
        if depth:
            made[-1] += " " + line.strip()
        else:
            made.append(line)
        depth += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
    return "\n".join(made)


def test_the_numbers_are_those_of_the_driver() -> None:
    driver: Any = pytest.importorskip("cuda.bindings.driver")
    from tilewright.codegen.cuda.tensor_maps import DTYPES, L2_PROMOTION, MAP_BYTES, SWIZZLES

    names = {"int8": "UINT8", "float8_e4m3fn": "UINT8", "float8_e5m2": "UINT8", "int16": "UINT16"}
    kinds = driver.CUtensorMapDataType
    for dtype, number in DTYPES.items():
        name = names.get(dtype, dtype.upper())
        assert number == getattr(kinds, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
    for rows, number in SWIZZLES.items():
        name = f"{rows}B" if rows else "NONE"
        assert number == getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{name}")
    promotion = driver.CUtensorMapL2promotion
    assert promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B == L2_PROMOTION
    assert driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE == 0
    assert driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE == 0
    assert len(driver.CUtensorMap().opaque) * 8 == MAP_BYTES
