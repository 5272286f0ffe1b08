"""Every rule: it applies where it should, means the same, and is parallel, vectorised, tiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, te, topi
from tilewright.dlight.cpu import BlockByBlock, RowWise, TiledReduction
from tilewright.ir import IRModule, collect
from tilewright.meta_schedule.arg_info import arg_infos, random_arguments
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.tir import IS_SCHEDULED, For, PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")


def tensor(*shape: Any, name: str = "x") -> te.Tensor:
    return te.placeholder(shape, name=name)


def dense(m: Any, n: int, k: int, transposed: bool = False) -> PrimFunc:
    a, b = tensor(m, k, name="A"), tensor(*((n, k) if transposed else (k, n)), name="B")
    bias = tensor(n, name="bias")
    out = topi.nn.relu(topi.add(topi.matmul(a, b, transpose_b=transposed), bias))
    return te.create_prim_func([a, b, bias, out])


def conv(
    c: int, f: int, size: int, kernel: int, stride: int, pad: int, groups: int = 1
) -> PrimFunc:
    x, w = tensor(1, c, size, size), tensor(f, c // groups, kernel, kernel, name="w")
    b = tensor(1, f, 1, 1, name="b")
    out = topi.nn.relu(topi.add(topi.nn.conv2d(x, w, stride, pad, 1, groups), b))
    return te.create_prim_func([x, w, b, out])


def one(build: Any, *shape: int) -> PrimFunc:
    x = tensor(*shape)
    return te.create_prim_func([x, build(x)])


def layer_norm() -> PrimFunc:
    x, g, b = tensor(6, 64), tensor(64, name="g"), tensor(64, name="b")
    return te.create_prim_func([x, g, b, topi.nn.layer_norm(x, g, b)])


FUNCTIONS = {
    "dense": dense(12, 64, 20),
    "dense-odd": dense(13, 37, 5),
    "dense-transposed": dense(16, 64, 20, transposed=True),
    "dense-one-row": dense(1, 64, 20),
    "dense-symbolic": dense(te.var("n"), 32, 8),
    "conv": conv(4, 8, 8, 3, 1, 1),
    "conv-stride-2": conv(3, 8, 9, 3, 2, 1),
    "conv-1x1": conv(8, 16, 7, 1, 1, 0),
    "depthwise": conv(4, 4, 10, 3, 1, 1, groups=4),
    "softmax": one(topi.nn.softmax, 2, 3, 40),
    "softmax-odd": one(topi.nn.softmax, 5, 7),
    "softmax-first-axis": one(lambda x: topi.nn.softmax(x, 0), 6, 32),
    "layer-norm": layer_norm(),
    "gelu": one(topi.nn.gelu, 3, 50),
    "transpose": one(topi.transpose, 17, 20),
    "sum-rows": one(lambda x: topi.sum(x, 1), 5, 64),
    "sum-columns": one(lambda x: topi.sum(x, 0), 5, 64),
    "mean-all": one(topi.mean, 3, 4, 32),
    "argmax": one(lambda x: topi.argmax(x, 1), 5, 20),
    "max-pool": one(lambda x: topi.nn.max_pool2d(x, 3, 2, 1), 1, 3, 9, 9),
    "avg-pool": one(lambda x: topi.nn.adaptive_avg_pool2d(x, 1), 1, 5, 4, 4),
    "concatenate": one(lambda x: topi.concatenate([x, x], 1), 3, 16),
    "scalar": one(lambda x: topi.add(x, 1.0)),
}


def scheduled(func: PrimFunc, target: Target = TARGET) -> PrimFunc:
    pass_ = dlight.ApplyDefaultSchedule(*dlight.cpu.rules(), target=target)
    made: PrimFunc = pass_(IRModule({"main": func}))["main"]
    return made


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scheduled_functions_mean_the_same(name: str) -> None:
    func = FUNCTIONS[name]
    made = scheduled(func)
    assert made.attrs[IS_SCHEDULED]
    infos = arg_infos(func, {"n": 11})
    expected, actual = random_arguments(infos), random_arguments(infos)
    run(func, *expected)
    run(made, *actual)
    np.testing.assert_allclose(actual[-1], expected[-1], rtol=1e-5, atol=1e-6)


def kinds(func: PrimFunc) -> set[str]:
    return {loop.kind for loop in collect(func.body, For)}


@pytest.mark.parametrize(
    ("func", "rule"),
    [
        (dense(128, 256, 64), TiledReduction),
        (conv(16, 32, 28, 3, 1, 1), TiledReduction),
        (one(topi.nn.softmax, 64, 512), RowWise),
        (one(topi.nn.gelu, 128, 512), BlockByBlock),
    ],
)
def test_the_right_rule_applies(func: PrimFunc, rule: type) -> None:
    for candidate in dlight.cpu.rules():
        result = None
        try:
            result = candidate.apply(Schedule(func, record=False), TARGET)
        except TilewrightError:
            continue
        if isinstance(result, Schedule):
            assert type(candidate) is rule
            assert {"parallel", "vectorized"} <= kinds(result.mod["main"])
            return
    raise AssertionError("no rule applied")


def test_one_core_gets_no_parallel_loop() -> None:
    single = TARGET.with_options(num_cores=1)
    assert "parallel" not in kinds(scheduled(dense(128, 256, 64), single))


def test_scheduled_functions_are_left_alone() -> None:
    once = scheduled(dense(128, 256, 64))
    assert scheduled(once) is once


def test_a_loop_that_somebody_marked_counts_as_scheduled() -> None:
    sch = Schedule(dense(128, 256, 64))
    sch.parallel(sch.get_loops(sch.get_block("matmul"))[0])
    func = sch.mod["main"]
    assert scheduled(func) is func


def test_rules_are_checked() -> None:
    with pytest.raises(TilewrightError, match="takes rules, got str"):
        dlight.ApplyDefaultSchedule("cpu")  # type: ignore[arg-type]
