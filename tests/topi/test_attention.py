"""The definition of attention against float64, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_reference import attention

from tilewright import te, topi
from tilewright.support.errors import VerifyError
from tilewright.tir.interpreter import run

RNG = np.random.default_rng(0)


def evaluate(*arrays: np.ndarray, dv: int | None = None, **options: Any) -> np.ndarray:
    names = ("q", "k", "v", "mask")
    tensors = [te.placeholder(a.shape, str(a.dtype), n) for a, n in zip(arrays, names)]
    out = topi.nn.scaled_dot_product_attention(*tensors, **options)
    result = np.zeros([extent.value for extent in out.shape], out.dtype)
    run(te.create_prim_func([*tensors, out]), *arrays, result)
    return result


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
        ([(1, 2, 3, 4)] * 3 + [(5, 3)], {}, "do not broadcast|don't broadcast|broadcast"),
        ([(1, 2, 3, 4)] * 3 + [(1, 1, 1, 3, 3)], {}, "mask must have up to 4 dimensions"),
    ],
)
def test_refusals(shapes: Any, options: dict[str, Any], message: str) -> None:
    tensors = [te.placeholder(shape, name=f"x{n}") for n, shape in enumerate(shapes)]
    with pytest.raises(VerifyError, match=message):
        topi.nn.scaled_dot_product_attention(*tensors, **options)
