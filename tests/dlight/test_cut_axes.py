"""Axes that are read as quotient and remainder: cut, so that whole vectors move; right results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.ir import Call, IRModule, collect
from tilewright.target import Target
from tilewright.tir import VECTORIZED, For, PrimFunc
from tilewright.tir.transform.pipeline import cpu_pipeline
from tilewright.topi.layout import layout_of, map_layout

BLOCKS, PLAIN = layout_of("NCHW16c"), layout_of("NCHW")


def conversion(
    batch: Any, channels: int, height: int, width: int, *, relu: bool = False
) -> PrimFunc:
    x = te.placeholder((batch, channels // 16, height, width, 16), name="x")
    y = map_layout(x, BLOCKS.map_to(PLAIN))
    return te.create_prim_func([x, topi.nn.relu(y) if relu else y])


def scheduled(func: PrimFunc, target: Target) -> IRModule:
    return dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)(IRModule({"main": func}))


def has_vectors(mod: IRModule) -> bool:
    return any(loop.kind == VECTORIZED for loop in collect(mod["main"].body, For))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(1, 64, 8, 32), (2, 32, 7, 7), (3, 32, 1, 50), (1, 48, 5, 1)])
def test_images_lose_their_blocks(shape: tuple[int, ...], relu: bool, cores: int) -> None:
    target = Target("native").with_options(num_cores=cores)
    mod = scheduled(conversion(*shape, relu=relu), target)
    expected = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    data, found = PLAIN.transform(expected, BLOCKS), np.empty(shape, np.float32)
    driver.compile(mod, target)(data, found)
    np.testing.assert_array_equal(found, np.maximum(expected, 0) if relu else expected)
    assert has_vectors(mod) or shape[-1] == 1


def test_symbolic_batch() -> None:
    target = Target("native")
    mod = scheduled(conversion(te.var("n"), 32, 6, 16), target)
    assert has_vectors(mod)
    expected = np.random.default_rng(0).standard_normal((3, 32, 6, 16), dtype=np.float32)
    found = np.empty_like(expected)
    driver.compile(mod, target)(PLAIN.transform(expected, BLOCKS), found)
    np.testing.assert_array_equal(found, expected)


def regroup(x: te.Tensor, shape: Any, axes: Any, result: Any) -> te.Tensor:
    return topi.reshape(topi.transpose(topi.reshape(x, shape), axes), result)


MOVES = [
    ("tile", (5, 33), lambda x: topi.tile(x, [2, 3]), lambda x: np.tile(x, (2, 3))),
    ("repeat 2", (6, 40), lambda x: topi.repeat(x, 2, 1), lambda x: x.repeat(2, 1)),
    ("repeat 3", (6, 37), lambda x: topi.repeat(x, 3, 1), lambda x: x.repeat(3, 1)),
    ("repeat 20", (3, 7), lambda x: topi.repeat(x, 20, 1), lambda x: x.repeat(20, 1)),
    (
        "patches",
        (1, 3, 32, 48),
        lambda x: regroup(x, (1, 3, 2, 16, 3, 16), (0, 2, 4, 1, 3, 5), (6, 768)),
        lambda x: x.reshape(1, 3, 2, 16, 3, 16).transpose(0, 2, 4, 1, 3, 5).reshape(6, 768),
    ),
    (
        "pixels from channels",
        (1, 8, 7, 28),
        lambda x: regroup(x, (1, 2, 2, 2, 7, 28), (0, 1, 4, 2, 5, 3), (1, 2, 14, 56)),
        lambda x: x.reshape(1, 2, 2, 2, 7, 28).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 14, 56),
    ),
    (
        "channels from pixels",
        (1, 2, 14, 28),
        lambda x: regroup(x, (1, 2, 7, 2, 14, 2), (0, 1, 3, 5, 2, 4), (1, 8, 7, 14)),
        lambda x: x.reshape(1, 2, 7, 2, 14, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 7, 14),
    ),
    ("reversed", (5, 100), lambda x: topi.flip(x, 1), lambda x: x[:, ::-1]),
    (
        "every second",
        (5, 101),
        lambda x: topi.strided_slice(x, [0, 1], [5, 101], [1, 2]),
        lambda x: x[:, 1::2],
    ),
    (
        "every fifth",
        (4, 203),
        lambda x: topi.strided_slice(x, [0, 2], [4, 203], [1, 5]),
        lambda x: x[:, 2::5],
    ),
    (
        "joined",
        (3, 90),
        lambda x: topi.concatenate(
            [topi.strided_slice(x, [0, 53], [3, 90], [1, 1]), x, topi.negative(x)], 1
        ),
        lambda x: np.concatenate([x[:, 53:], x, -x], 1),
    ),
    (
        "stacked",
        (5, 50),
        lambda x: topi.stack([x, topi.negative(x)], 2),
        lambda x: np.stack([x, -x], 2),
    ),
]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
@pytest.mark.parametrize(
    ("shape", "ours", "expected"), [m[1:] for m in MOVES], ids=[m[0] for m in MOVES]
)
def test_moves_have_vectors(shape: tuple[int, ...], ours: Any, expected: Any, dtype: str) -> None:
    target = Target("native").with_options(num_cores=1)
    x = te.placeholder(shape, dtype, name="x")
    mod = scheduled(te.create_prim_func([x, ours(x)]), target)
    assert has_vectors(mod)
    data = (np.arange(np.prod(shape)).reshape(shape) % 101 - 50).astype(dtype)
    wanted = np.ascontiguousarray(expected(data))
    found = np.zeros_like(wanted)
    driver.compile(mod, target)(data, found)
    np.testing.assert_array_equal(found, wanted)


def test_parts_of_a_row_ask_no_conditions() -> None:
    shapes = [(4, 100), (4, 37), (4, 1), (4, 500)]
    operands = [te.placeholder(s, name=f"x{i}") for i, s in enumerate(shapes)]
    func = te.create_prim_func([*operands, topi.concatenate(operands, 1)])
    target = Target("native").with_options(num_cores=2)
    mod = scheduled(func, target)
    with target:
        body = cpu_pipeline(target)(mod)["main"].body
    assert not [call for call in collect(body, Call) if call.op.name == "if_then_else"]
    data = [np.random.default_rng(0).random(s, "float32") for s in shapes]
    found = np.zeros((4, 638), "float32")
    driver.compile(mod, target)(*data, found)
    np.testing.assert_array_equal(found, np.concatenate(data, 1))


def test_what_does_not_divide_stays() -> None:
    x = te.placeholder((4, 8), name="x")
    y = te.compute((4, 22), lambda i, j: x(i, j // 3), name="y")
    target = Target("native")
    data = np.arange(32, dtype="float32").reshape(4, 8)
    found = np.zeros((4, 22), "float32")
    driver.compile(scheduled(te.create_prim_func([x, y]), target), target)(data, found)
    np.testing.assert_array_equal(found, data.repeat(3, 1)[:, :22])
