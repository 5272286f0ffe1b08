"""What rules leave to a search: every option computes the same as the function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.everyday import few
from tilewright import dlight, driver, te, topi
from tilewright.ir import IRModule, structural_equal
from tilewright.meta_schedule.arg_info import arg_infos, random_arguments
from tilewright.meta_schedule.search_strategy import RuleChoices
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule

NATIVE = Target("native").with_options(num_cores=1)


def function(*shapes: tuple[int, ...], of: Callable[..., te.Tensor], dtype: str) -> PrimFunc:
    operands = [te.placeholder(shape, dtype, f"x{n}") for n, shape in enumerate(shapes)]
    return te.create_prim_func([*operands, of(*operands)])


def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute(
        (a.shape[0], b.shape[1]),
        lambda i, j: te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k),
        name="product",
    )


FUNCTIONS = {
    "add": (topi.add, [(33, 31), (33, 31)]),
    "softmax": (topi.nn.softmax, [(6, 37)]),
    "sum of rows": (lambda x: topi.sum(x, axis=1), [(12, 200)]),
    "transpose": (lambda x: topi.transpose(x, (1, 0)), [(64, 48)]),
    "matrix times vector": (topi.nn.matmul, [(1, 96), (96, 80)]),
    "pointwise": (topi.nn.conv2d, [(1, 8, 24, 24), (12, 8, 1, 1)]),
    "product": (topi.nn.matmul, [(37, 24), (24, 70)]),
    "convolution": (lambda x, w: topi.nn.conv2d(x, w, padding=1), [(1, 5, 9, 11), (18, 5, 3, 3)]),
    "window": (lambda x: topi.nn.max_pool2d(x, 3, strides=2, padding=1), [(1, 3, 19, 17)]),
    "attention": (topi.nn.scaled_dot_product_attention, [(1, 2, 40, 8)] * 3),
    "attention, one query": (
        topi.nn.scaled_dot_product_attention,
        [(1, 2, 1, 8), (1, 2, 40, 8), (1, 2, 40, 8)],
    ),
}


def check(func: PrimFunc, least: int, most: int = 8, target: Target = NATIVE) -> None:
    rules = RuleChoices(func, arg_infos(func), dlight.kernels_and_rules(), target)
    made = rules.candidates(most)
    assert len(made) >= least and made[0].by_rule
    untuned = dlight.first_schedule(func, dlight.kernels_and_rules(), target)
    assert untuned is not None and structural_equal(made[0].sch.mod, untuned.mod)
    results = []
    for item in made:
        replayed = Schedule(IRModule({"main": func}))
        item.sch.trace.simplified().apply_to_schedule(replayed)
        assert structural_equal(replayed.mod, item.sch.mod)
        arguments = random_arguments(arg_infos(func))
        driver.compile(item.sch.mod, target)(*arguments)
        results.append(np.asarray(arguments[-1], np.float64))
    expected = random_arguments(arg_infos(func))
    driver.compile(IRModule({"main": func}), NATIVE)(*expected)
    for result in results:
        np.testing.assert_allclose(result, np.asarray(expected[-1], np.float64), 1e-5, 1e-5)


@few("name", list(FUNCTIONS), every=3)
def test_every_option_computes_the_same(name: str) -> None:
    of, shapes = FUNCTIONS[name]
    most = 4 if "attention" in name else 8
    check(function(*shapes, of=of, dtype="float32"), least=2, most=most)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_options_of_dot_products(dtype: str) -> None:
    of = product if dtype == "int8" else topi.nn.matmul
    check(function((19, 36), (36, 48), of=of, dtype=dtype), least=3, most=4)


def test_threads_share_work_in_other_ways_or_not_at_all() -> None:
    func = function((300, 512), (512,), of=topi.add, dtype="float32")
    two = NATIVE.with_options(num_cores=2)
    check(func, least=4, target=two)
    made = RuleChoices(func, arg_infos(func), dlight.kernels_and_rules(), two).candidates(8)
    texts = [item.sch.mod.script() for item in made]
    assert "parallel(" in texts[0] and "dynamic" not in texts[0]
    assert any("dynamic" in text for text in texts)
    assert any("parallel(" not in text for text in texts)
