"""The definition of attention against float64, and what it refuses."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from attention_reference import attention, paged_attention, paged_hostile, paged_operands

import tilewright
from tilewright import dlight, te, topi
from tilewright.ir import IRModule, Var
from tilewright.runtime import Module
from tilewright.support.errors import VerifyError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import run

RNG = np.random.default_rng(0)


def evaluate(*arrays: np.ndarray, dv: int | None = None, **options: Any) -> np.ndarray:
    names = ("q", "k", "v", "mask")
    tensors = [te.placeholder(a.shape, str(a.dtype), n) for a, n in zip(arrays, names)]
    out = topi.nn.scaled_dot_product_attention(*tensors, **options)
    result = np.zeros([extent.value for extent in out.shape], out.dtype)
    run(te.create_prim_func([*tensors, out]), *arrays, result)
    return result


def compiled(func: PrimFunc) -> list[Module]:
    """A function as it is, and by rule."""
    mod = IRModule({"main": func})
    by_rule = dlight.default_schedule(Target("native"))(mod)
    return [tilewright.compile(item, "native") for item in (mod, by_rule)]


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def check(arrays: list[np.ndarray], **options: Any) -> np.ndarray:
    made = evaluate(*arrays, **options)
    expected = attention(*arrays, **options)
    np.testing.assert_allclose(made, expected, rtol=2e-5, atol=2e-6)
    return made


@pytest.mark.parametrize("causal", [None, "TopLeft", "BottomRight"])
def test_groups_of_heads_and_lengths(causal: str | None) -> None:
    check([normal(2, 4, 3, 5), normal(2, 2, 6, 5), normal(2, 2, 6, 4)], causal_mask=causal)


def test_layouts_of_each_operand() -> None:
    arrays = [normal(2, 3, 4, 5), normal(2, 2, 6, 5), normal(2, 6, 2, 4)]
    arrays[0] = normal(2, 4, 3, 5)
    check(arrays, layout=("BHSD", "BHSD", "BSHD", "BSHD"))
    check([normal(1, 3, 2, 4)] * 3, layout="BSHD", scale=0.3)


@pytest.mark.parametrize("shape", [(3, 6), (2, 4, 3, 6), (2, 1, 1, 6), (4, 3, 1), (1, 1, 3, 6)])
def test_masks_broadcast(shape: tuple[int, ...]) -> None:
    arrays = [normal(2, 4, 3, 5), normal(2, 4, 6, 5), normal(2, 4, 6, 5)]
    check([*arrays, normal(*shape)])
    check([*arrays, RNG.random(shape) < 0.5])


def test_a_query_without_keys_gives_zeros() -> None:
    arrays = [normal(1, 1, 3, 4), normal(1, 1, 5, 4), normal(1, 1, 5, 4)]
    mask = np.zeros((3, 5), bool)
    mask[0, 2] = True
    made = check([*arrays, mask])
    np.testing.assert_array_equal(made[0, 0, 1:], 0.0)
    np.testing.assert_allclose(made[0, 0, 0], arrays[2][0, 0, 2], rtol=1e-6)
    # More queries than keys: the first of them come before every key.
    made = check([normal(1, 1, 5, 4), *(normal(1, 1, 3, 4) for _ in range(2))],
                 causal_mask="BottomRight")  # fmt: skip
    np.testing.assert_array_equal(made[0, 0, :2], 0.0)


@pytest.mark.parametrize(("causal", "window"), [("TopLeft", 1), ("BottomRight", 2), ("TopLeft", 9)])
def test_windows(causal: str, window: int) -> None:
    arrays = [normal(1, 2, 5, 4), normal(1, 1, 7, 4), normal(1, 1, 7, 3)]
    check(arrays, causal_mask=causal, window_size=window)


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_keys_in_pages(window: int | None, hostile: bool) -> None:
    if hostile:
        arrays = paged_hostile(RNG, 4, 5)
    else:
        arrays = paged_operands(RNG, [0, 1, 11], 2, (4, 2), 4, 3, 5)
    tensors = [te.placeholder(a.shape, str(a.dtype), f"x{n}") for n, a in enumerate(arrays)]
    out = topi.nn.paged_attention(*tensors, window_size=window)
    func = te.create_prim_func([*tensors, out])
    expected = paged_attention(*arrays, window_size=window)
    for call in (partial(run, func), *compiled(func)):
        result = np.full(arrays[0].shape, 7, "float32")
        call(*arrays, result)
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6)


def test_a_cache_without_pages() -> None:
    count = Var("n")
    shapes: list[Any] = [(1, 2, 2, 4), (count, 2, 1, 4, 4), (1, 3), (1,)]
    tensors = [te.placeholder(s, d) for s, d in zip(shapes, ["float32"] * 2 + ["int32"] * 2)]
    func = te.create_prim_func([*tensors, topi.nn.paged_attention(*tensors)])
    arrays = [normal(1, 2, 2, 4), normal(0, 2, 1, 4, 4)]
    arrays += [np.full((1, 3), 9, "int32"), np.full(1, 12, "int32")]
    for call in compiled(func):
        result = np.full((1, 2, 2, 4), 7, "float32")
        call(*arrays, result)
        np.testing.assert_array_equal(result, 0.0)


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({1: (9, 2, 2, 4)}, {}, "pages: x1 must have 5 dimensions"),
        ({1: (9, 3, 2, 4, 5)}, {}, "keys and values in a page"),
        ({1: (9, 2, 2, 4, 6)}, {}, "depths of queries and pages"),
        ({1: (9, 2, 3, 4, 5)}, {}, "4 query heads are no multiple of 3"),
        ({2: (4, 3)}, {}, "batches of query and page_table"),
        ({3: (4,)}, {}, "batches of query and lengths"),
        ({}, {"window_size": 0}, "a window is of 1 or more keys"),
    ],
)
def test_refusals_of_pages(changed: Any, options: dict[str, Any], message: str) -> None:
    shapes = {0: (3, 2, 4, 5), 1: (9, 2, 2, 4, 5), 2: (3, 3), 3: (3,), **changed}
    dtypes = ["float32", "float32", "int32", "int32"]
    tensors = [te.placeholder(shapes[n], dtypes[n], f"x{n}") for n in range(4)]
    with pytest.raises(VerifyError, match=message):
        topi.nn.paged_attention(*tensors, **options)


def test_pages_are_counted_in_int32() -> None:
    shapes, dtypes = [(1, 1, 1, 4), (2, 2, 1, 4, 4), (1, 2), (1,)], ["float32", "float32"]
    for dtypes_of in (["int64", "int32"], ["int32", "int64"]):
        tensors = [te.placeholder(s, d) for s, d in zip(shapes, [*dtypes, *dtypes_of])]
        with pytest.raises(VerifyError, match="must be int32, got int64"):
            topi.nn.paged_attention(*tensors)


def test_agrees_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    arrays = [normal(2, 4, 3, 5), normal(2, 2, 6, 5), normal(2, 2, 6, 5)]
    mask = RNG.random((2, 1, 3, 6)) < 0.5
    mask[0, 0, 1] = False
    attend = torch.nn.functional.scaled_dot_product_attention
    tensors = [torch.from_numpy(a) for a in (*arrays, mask)]
    np.testing.assert_allclose(
        evaluate(*arrays, mask), attend(*tensors, enable_gqa=True).numpy(), rtol=2e-5, atol=1e-6
    )
    causal = attend(*tensors[:3], is_causal=True, enable_gqa=True).numpy()
    np.testing.assert_allclose(
        evaluate(*arrays, causal_mask="TopLeft"), causal, rtol=2e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        ([(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 5)], {}, "depths of query and key"),
        ([(1, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 4)], {}, "batches of query and key"),
        ([(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 4, 4)], {}, "sequences of key and value"),
        ([(1, 3, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)], {}, "3 query heads are no multiple of 2"),
        ([(2, 3, 4)] * 3, {}, "must have 4 dimensions"),
        ([(1, 2, 3, 4)] * 3, {"layout": "SBHD"}, "layout must be one of BHSD, BSHD"),
        ([(1, 2, 3, 4)] * 3, {"causal_mask": "Left"}, "causal_mask must be None, TopLeft"),
        ([(1, 2, 3, 4)] * 3, {"window_size": 3}, "needs a causal_mask"),
        ([(1, 2, 3, 4)] * 3, {"causal_mask": "TopLeft", "window_size": 0}, "1 or more keys"),
        ([(1, 2, 3, 4)] * 3 + [(5, 3)], {}, "do not broadcast|don't broadcast|broadcast"),
        ([(1, 2, 3, 4)] * 3 + [(1, 1, 1, 3, 3)], {}, "mask must have up to 4 dimensions"),
    ],
)
def test_refusals(shapes: Any, options: dict[str, Any], message: str) -> None:
    tensors = [te.placeholder(shape, name=f"x{n}") for n, shape in enumerate(shapes)]
    with pytest.raises(VerifyError, match=message):
        topi.nn.scaled_dot_product_attention(*tensors, **options)
