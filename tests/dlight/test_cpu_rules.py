"""Every rule: it applies where it should, means the same, and is parallel, vectorised, tiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import dlight, driver, te, topi
from tilewright.dlight.cpu import Fallback, RowWise, SlidingWindow, TiledReduction
from tilewright.ir import IRModule, as_int, collect
from tilewright.meta_schedule.arg_info import arg_infos, random_arguments
from tilewright.scheduling import ScheduleRule, joined
from tilewright.support.errors import ScheduleError, TilewrightError
from tilewright.target import Target
from tilewright.tir import Block, For, PrimFunc
from tilewright.tir.attrs import IS_SCHEDULED, LAYOUT_FREE, LAYOUT_REWRITE
from tilewright.tir.interpreter import run
from tilewright.tir.layout_rewrite import split_layout_rewrite
from tilewright.tir.schedule import Schedule

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")


def tensor(*shape: Any, name: str = "x") -> te.Tensor:
    return te.placeholder(shape, name=name)


def dense(m: Any, n: int, k: int, transposed: bool = False) -> PrimFunc:
    a, b = tensor(m, k, name="A"), tensor(*((n, k) if transposed else (k, n)), name="B")
    bias = tensor(n, name="bias")
    out = topi.nn.relu(topi.add(topi.matmul(a, b, transp_b=transposed), bias))
    return te.create_prim_func([a, b, bias, out])


def conv(
    c: int, f: int, size: int, kernel: int, stride: int, pad: int, groups: int = 1
) -> PrimFunc:
    x, w = tensor(1, c, size, size), tensor(f, c // groups, kernel, kernel, name="w")
    b = tensor(1, f, 1, 1, name="b")
    out = topi.nn.relu(topi.add(topi.nn.conv2d(x, w, stride, pad, 1, groups=groups), b))
    return te.create_prim_func([x, w, b, out])


def bare_conv(c: int, f: int, size: int) -> PrimFunc:
    x, w = tensor(1, c, size, size), tensor(f, c, 3, 3, name="w")
    return te.create_prim_func([x, w, topi.nn.conv2d(x, w, 1, 1)])


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
    "conv-odd-channels": conv(5, 13, 9, 3, 1, 1),
    "conv-channels-just-over-a-tile": conv(3, 33, 8, 3, 1, 1),
    "conv-no-epilogue": bare_conv(3, 32, 7),
    "conv-grouped": conv(8, 8, 8, 3, 1, 1, groups=2),
    "dense-tall": dense(40, 100, 12),
    "dense-prime-transposed": dense(23, 67, 9, transposed=True),
    "depthwise": conv(4, 4, 10, 3, 1, 1, groups=4),
    "depthwise-no-padding": conv(3, 3, 9, 3, 1, 0, groups=3),
    "depthwise-stride-2": conv(3, 3, 35, 3, 2, 1, groups=3),
    "depthwise-5x5": conv(2, 2, 18, 5, 1, 2, groups=2),
    "depthwise-7x7": conv(2, 2, 13, 7, 1, 3, groups=2),
    "softmax": one(topi.nn.softmax, 2, 3, 40),
    "softmax-odd": one(topi.nn.softmax, 5, 7),
    "softmax-first-axis": one(lambda x: topi.nn.softmax(x, 0), 6, 32),
    "layer-norm": layer_norm(),
    "gelu": one(topi.nn.gelu, 3, 50),
    "transpose": one(topi.transpose, 17, 20),
    "transpose-batch": one(lambda x: topi.transpose(x, (0, 2, 1)), 3, 32, 48),
    "transpose-heads": one(lambda x: topi.transpose(x, (0, 2, 1, 3)), 2, 5, 4, 16),
    "sum-rows": one(lambda x: topi.sum(x, 1), 5, 64),
    "sum-columns": one(lambda x: topi.sum(x, 0), 5, 64),
    "mean-all": one(topi.mean, 3, 4, 32),
    "argmax": one(lambda x: topi.argmax(x, 1), 5, 20),
    "max-pool": one(lambda x: topi.nn.max_pool2d(x, 3, 2, 1), 1, 3, 9, 9),
    "max-pool-wide": one(lambda x: topi.nn.max_pool2d(x, 3, 2, 1), 1, 2, 40, 70),
    "avg-pool-2": one(lambda x: topi.nn.avg_pool2d(x, 2, 2), 2, 3, 12, 12),
    "avg-pool": one(lambda x: topi.nn.adaptive_avg_pool2d(x, 1), 1, 5, 4, 4),
    "concatenate": one(lambda x: topi.concatenate([x, x], 1), 3, 16),
    "scalar": one(lambda x: topi.add(x, 1.0)),
}


def scheduled(func: PrimFunc, target: Target = TARGET) -> PrimFunc:
    pass_ = dlight.default_schedule(target)
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


@pytest.mark.parametrize(
    "name", [name for name in FUNCTIONS if name.startswith(("dense", "conv", "depthwise"))]
)
def test_packed_weights_mean_the_same(name: str) -> None:
    func = FUNCTIONS[name]
    made = scheduled(func.with_attr(LAYOUT_FREE, [1]))
    main, packers = split_layout_rewrite(made)
    infos = arg_infos(func, {"n": 11})
    expected, actual, whole = (random_arguments(infos) for _ in range(3))
    run(func, *expected)
    run(made, *whole)
    np.testing.assert_allclose(whole[-1], expected[-1], rtol=1e-5, atol=1e-6)
    for position, packer in packers.items():
        packed = np.full([as_int(e) for e in packer.buffers[1].shape], np.nan, "float32")
        run(packer, actual[position], packed)
        actual[position] = packed
    run(main, *actual)
    np.testing.assert_allclose(actual[-1], expected[-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transposed", [False, True])
def test_large_operands_are_packed_in_the_call(transposed: bool) -> None:
    func = dense(192, 320, 128, transposed)
    native = Target("native").with_options(num_cores=2)
    made = scheduled(func, native)
    assert any(block.annotations.get(LAYOUT_REWRITE) for block in collect(made.body, Block))
    infos = arg_infos(func)
    expected, actual = random_arguments(infos), random_arguments(infos)
    driver.compile(func, native)(*expected)
    driver.compile(made, native)(*actual)
    np.testing.assert_allclose(actual[-1], expected[-1], rtol=1e-4, atol=1e-5)


def packing_of(func: PrimFunc, *free: int) -> list[int]:
    made = scheduled(func.with_attr(LAYOUT_FREE, list(free)))
    return sorted(split_layout_rewrite(made)[1])


def test_constant_weights_are_packed() -> None:
    assert packing_of(conv(16, 64, 7, 3, 1, 1), 1) == [1]
    assert packing_of(dense(128, 256, 64), 1) == [1]
    assert packing_of(dense(1, 256, 64), 1) == [1]
    assert packing_of(dense(16, 64, 20, transposed=True), 1, 2) == [1]


def test_operands_that_are_not_constant_stay() -> None:
    assert packing_of(dense(128, 256, 64), 2) == []
    assert "layout_free_buffers" in scheduled(dense(128, 256, 64).with_attr(LAYOUT_FREE, [2])).attrs
    whole = scheduled(conv(16, 64, 7, 3, 1, 1))
    assert split_layout_rewrite(whole) == (whole, {})


def test_convolutions_vectorise_channels() -> None:
    main, _ = split_layout_rewrite(scheduled(conv(16, 64, 7, 3, 1, 1).with_attr(LAYOUT_FREE, [1])))
    panels = main.buffers[1].shape
    assert [as_int(extent) for extent in panels[1:4]] == [16, 3, 3]
    assert as_int(panels[0]) * as_int(panels[4]) == 64 and as_int(panels[4]) % 16 == 0


def kinds(func: PrimFunc) -> set[str]:
    return {loop.kind for loop in collect(func.body, For)}


@pytest.mark.parametrize(
    ("func", "rule"),
    [
        (dense(128, 256, 64), TiledReduction),
        (conv(16, 32, 28, 3, 1, 1), TiledReduction),
        (conv(16, 16, 28, 3, 1, 1, groups=16), SlidingWindow),
        (one(lambda x: topi.nn.max_pool2d(x, 3, 2, 1), 1, 16, 56, 56), SlidingWindow),
        (one(topi.nn.softmax, 64, 512), RowWise),
        (one(topi.nn.gelu, 128, 512), Fallback),
    ],
)
def test_the_right_rule_applies(func: PrimFunc, rule: type) -> None:
    for candidate in dlight.cpu.rules():
        result = None
        try:
            result = candidate.apply_to(Schedule(func, record=False), TARGET)
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


@pytest.mark.parametrize("axis", [1, None])
def test_places_of_extrema_are_looked_for_in_rows_that_are_near(axis: int | None) -> None:
    made = scheduled(one(lambda x: topi.argmax(x, axis), 100, 256), Target("llvm -num-cores=1"))
    loops = [item for item in collect(made.body, For) if as_int(item.extent) == 100]
    nested = [{block.name for block in collect(loop, Block)} for loop in loops]
    assert any(
        any("value" in name for name in names) and any("place" in name for name in names)
        for names in nested
    )


def test_a_rule_joins_the_order_before_one_that_it_names() -> None:
    class Early(ScheduleRule):
        before = "RowWise"

    class Asked(ScheduleRule):
        pass

    class Lost(ScheduleRule):
        before = "RowWize"

    listed = dlight.cpu.rules()
    names = [rule.name for rule in joined(listed, [Early, Asked])]
    assert names.index("Early") == names.index("RowWise") - 1
    assert len(names) == len(listed) + 1
    with pytest.raises(ScheduleError, match=r"Lost comes before 'RowWize'.*'RowWise'"):
        joined(listed, [Lost])
