"""The fuzzer's programs, scheduled at random, print and parse back after every lowering pass."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from tests.everyday import few
from tilewright import script
from tilewright.ir import first_difference
from tilewright.support.errors import LowerError
from tilewright.target import Target
from tilewright.testing.fuzz.driver import Chooser
from tilewright.testing.fuzz.session import Fault, Session
from tilewright.testing.fuzz.stages import generate
from tilewright.tir.transform.gpu_pipeline import gpu_pipeline
from tilewright.tir.transform.pipeline import cpu_pipeline


def check(node):
    text = script.to_text(node)
    back = script.parse(text)
    difference = first_difference(back, node, map_free_vars=True)
    assert difference is None, f"{difference}\n{text}"
    assert script.to_text(back) == text


def scheduled(seed: int):
    session = Session(generate(f"script {seed}"), seed=seed)
    rng, chooser = Random(seed), Chooser()
    check(session.sch.mod)
    for number in range(6):
        step = chooser.step(session, rng, number)
        if step is None:
            continue
        with suppress(Fault):  # the fuzzer's own tests tell of these
            session.apply(step, render=False)
    check(session.sch.mod)
    return session.sch.mod


@pytest.mark.parametrize(
    "pipeline, target", [(cpu_pipeline, "llvm"), (gpu_pipeline, "cuda")], ids=["cpu", "gpu"]
)
@few("seed", range(8), every=2)
def test_after_every_pass(seed, pipeline, target):
    module = scheduled(seed)
    with Target(target) as chosen:
        for item in pipeline(chosen).passes:
            try:
                module = item(module)
            except LowerError:  # virtual threads, say, whose number isn't constant
                return
            check(module)
