"""Random trees print to text that parses back equal, and that prints the same again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.script.random_trees import Trees
from tilewright import script
from tilewright.ir import (
    Expr,
    first_difference,
    pre_order,
    structural_hash,
)
from tilewright.tir import Stmt

RANDOM = st.randoms(use_true_random=False)


def check(node):
    text = script.to_text(node)
    back = script.parse(text)
    difference = first_difference(back, node, map_free_vars=True)
    assert difference is None, f"{difference}\n{text}"
    assert script.to_text(back) == text
    return back


@given(RANDOM)
def test_expressions(rng: Random):
    trees = Trees(rng)
    check(trees.expr(trees.dtype(), 4))


@given(RANDOM)
def test_statements(rng: Random):
    check(Trees(rng).stmt())


@given(RANDOM)
def test_functions(rng: Random):
    function = Trees(rng).function()
    assert structural_hash(check(function)) == structural_hash(function)


@given(RANDOM)
def test_modules(rng: Random):
    check(Trees(rng).module())


@pytest.mark.parametrize("seed", range(20))
def test_modules_of_many_sizes(seed):
    rng = Random(seed)
    for _ in range(10):
        check(Trees(rng).module())


def test_every_class_is_made():
    """A node class that somebody adds must be generated here too."""
    modules = ("tilewright.ir.expr", "tilewright.tir.stmt", "tilewright.tir.buffer")
    wanted: set[type] = set()
    todo: list[type] = [Expr, Stmt]
    while todo:
        kinds = todo.pop().__subclasses__()
        todo += kinds
        wanted |= {
            kind for kind in kinds if kind.__module__ in modules and not kind.__subclasses__()
        }
    seen: set[type] = set()
    for seed in range(400):
        seen.update(map(type, pre_order(Trees(Random(seed)).function())))
    assert {kind.__name__ for kind in wanted - seen} == set()
