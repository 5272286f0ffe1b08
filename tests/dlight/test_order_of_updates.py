"""Rules and reductions whose updates don't commute: each does nothing, or keeps their order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.everyday import few
from tilewright import dlight, driver
from tilewright.dlight import NotApplicable
from tilewright.dlight.cpu import SlidingWindow, rules
from tilewright.ir import IRModule
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule

# Domain, kinds of the axes, what is read, and where it is written.
SHAPES = {
    "window": ("2, 9, 12, 3, 3", "SSSRR", ("A[a, b + d, c + e]", "W[d, e]"), "B[a, b, c]"),
    "product": ("12, 20, 16", "SSR", ("A[a, c]", "W[c, b]"), "B[a, b]"),
    "vector": ("40, 30", "SR", ("A[a, b]", "W[b]"), "B[a]"),
    "columns": ("30, 40", "RS", ("A[a, b]", "W[a]"), "B[b]"),
    "two axes": ("8, 6, 10", "SRR", ("A[a, b, c]", "W[b, c]"), "B[a]"),
    "convolution": (
        "1, 5, 6, 16, 3, 3, 4",
        "SSSSRRR",
        ("A[a, b + e, c + f, g]", "W[e, f, g, d]"),
        "B[a, b, c, d]",
    ),
}
UPDATES = {
    "horner": "{b} = {b} * T.{t}(3) + {x} * {w}",
    "last": "{b} = {x} * {w}",
    "difference": "{b} = {x} * {w} - {b}",
    "two results": "{b} = {b} + {x} * {w}\n            {c} = {c} + {b}",
    "select": "{b} = T.Select({x} > {w}, {b} * T.{t}(2), {b} + {x})",
}


def function(shape: str, update: str, dtype: str) -> PrimFunc:
    domain, kinds, (data, weight), out = SHAPES[shape]
    sizes = dict(zip("abcdefg", map(int, domain.split(", "))))

    def extents(access: str) -> str:
        parts = access[2:-1].split(", ")
        reach = [sum(sizes[name] - 1 for name in part.split(" + ")) + 1 for part in parts]
        return "(" + "".join(f"{extent}, " for extent in reach) + ")"

    axes = ", ".join(sizes)
    loops = ", ".join(f"x{name}" for name in sizes)
    other = out.replace("B[", "C[")
    body = UPDATES[update].format(b=out, c=other, x=data, w=weight, t=dtype)
    two = update == "two results"
    return parse(f"""
@T.prim_func
def main(
    A: T.Buffer({extents(data)}, "{dtype}"),
    W: T.Buffer({extents(weight)}, "{dtype}"),
    B: T.Buffer({extents(out)}, "{dtype}"),
    C: T.Buffer({extents(out)}, "{dtype}"),
):
    for {loops} in T.grid({domain}):
        with T.block("B"):
            {axes} = T.axis.remap("{kinds}", [{loops}])
            with T.init():
                {out} = T.{dtype}(1)
                {other + f" = T.{dtype}(2)" if two else "T.evaluate(0)"}
            {body}
""")


def agrees(func: PrimFunc, target: Target, made: PrimFunc) -> None:
    rng = np.random.default_rng(1)
    inputs = [
        rng.integers(-3, 4, [int(e.value) for e in buffer.shape]).astype(buffer.dtype)
        for buffer in func.buffers
    ]
    expected, actual = [a.copy() for a in inputs], [a.copy() for a in inputs]
    run(func, *expected)
    driver.compile(made, target)(*actual)
    for left, right in zip(actual, expected):
        np.testing.assert_allclose(left, right, rtol=1e-4)


@pytest.mark.parametrize("cores", [1, 2])
@few("update", UPDATES, every=2)
@pytest.mark.parametrize("shape", SHAPES)
def test_rules_keep_the_order_of_updates(shape: str, update: str, cores: int) -> None:
    target = Target("native").with_options(num_cores=cores)
    func = function(shape, update, "int32")
    made = dlight.ApplyDefaultSchedule(*rules(), target=target)(IRModule({"main": func}))
    agrees(func, target, made["main"])


def test_the_rule_for_windows_does_not_apply() -> None:
    target = Target("native").with_options(num_cores=1)
    func = function("window", "horner", "float32")
    with pytest.raises(ScheduleError, match="don't commute"):
        SlidingWindow().apply_to(Schedule(IRModule({"main": func})), target)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
@pytest.mark.parametrize("shape", ["window", "product", "columns", "convolution"])
def test_each_rule_keeps_the_order_or_does_not_apply(shape: str, rule: object) -> None:
    target = Target("native").with_options(num_cores=1)
    func = function(shape, "horner", "int32")
    try:
        made = rule.apply_to(Schedule(IRModule({"main": func})), target)  # type: ignore[attr-defined]
    except ScheduleError:
        return  # as a rule says that it does not apply
    if isinstance(made, NotApplicable):
        return
    agrees(func, target, made.mod["main"])
