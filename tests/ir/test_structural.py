from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest

from tilewright import te, topi
from tilewright.ir import (
    Expr,
    IRModule,
    Var,
    assert_structural_equal,
    expr_equal,
    first_difference,
    structural_equal,
    structural_hash,
)
from tilewright.support.errors import VerifyError
from tilewright.tir import PrimFunc, renew_definitions


def softmax(rows: int = 4, name: str = "x") -> PrimFunc:
    x = te.placeholder((rows, 8), name=name)
    return te.create_prim_func([x, topi.nn.softmax(x)])


def test_variables_are_matched_by_position() -> None:
    a, b, c, d = (Var(name) for name in "abcd")
    same = partial(structural_equal, map_free_vars=True)
    assert same(a + b, c + d) and same(a + a, c + c)
    assert not same(a + b, c + c) and not same(a + a, c + d)


def test_free_variables_can_be_held_fixed() -> None:
    a, b = Var("a"), Var("b")
    assert structural_equal(a + 1, a + 1, map_free_vars=False)
    assert not structural_equal(a + 1, b + 1, map_free_vars=False)


def test_axes_of_reductions_are_no_free_variables() -> None:
    x, row = te.placeholder((4, 8), name="x"), Var("row")

    def total(extent: int = 8) -> Expr:
        k = te.reduce_axis((0, extent), "k")
        return te.sum(x[row, k], axis=k)

    assert structural_equal(total(), total())
    assert not structural_equal(total(), total(7))


def test_functions_made_twice_are_equal_and_hash_alike() -> None:
    assert structural_equal(softmax(), softmax(name="other"))
    assert structural_hash(softmax()) == structural_hash(softmax(name="other"))


def test_a_copy_with_fresh_names_is_equal() -> None:
    func = softmax()
    assert structural_equal(func, renew_definitions(func))


def test_the_first_difference_has_a_path() -> None:
    difference = first_difference(softmax(4), softmax(5))
    assert difference is not None
    assert "buffer_map" in difference and "4 against 5" in difference


def test_attributes_and_dtypes_count() -> None:
    func = softmax()
    assert not structural_equal(func, func.with_attr("key", 1))
    assert structural_hash(func) != structural_hash(func.with_attr("key", 1))
    assert not structural_equal(Var("a", "int32") + Var("b", "int32"), Var("a") + Var("b"))


def test_assertion_shows_both_sides() -> None:
    with pytest.raises(VerifyError, match="the programs differ at"):
        assert_structural_equal(softmax(4), softmax(5))


def test_functions_of_a_module_do_not_share_variables() -> None:
    func = softmax()
    shared = IRModule({"a": func, "b": func})
    apart = IRModule({"a": func, "b": renew_definitions(func)})
    assert structural_equal(shared, apart)
    assert structural_hash(shared) == structural_hash(apart)


def test_the_hash_is_stable_across_processes() -> None:
    code = (
        "from tilewright import te, topi\n"
        "from tilewright.ir import structural_hash\n"
        "x = te.placeholder((4, 8), name='x')\n"
        "print(structural_hash(te.create_prim_func([x, topi.nn.softmax(x)])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.strip() == structural_hash(softmax())


def test_what_cannot_be_hashed_says_so() -> None:
    with pytest.raises(VerifyError, match="cannot hash a object"):
        structural_hash(softmax().with_attr("key", object()))


def test_expr_equal_compares_trees_over_the_same_variables() -> None:
    a, b = Var("a"), Var("b")
    assert expr_equal(a * 2 + b, a * 2 + b)
    assert not expr_equal(a * 2 + b, b * 2 + a)
