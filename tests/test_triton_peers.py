"""The kernels in Triton that ``benchmarks.gpu`` measures, by Triton's interpreter on the CPU.

Its interpreter takes effect before Triton is imported, hence a process of its own. It multiplies
the bits of bfloat16, so these products aren't here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not importlib.util.find_spec("triton"):
    pytest.skip("needs Triton", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture(scope="module")
def difference() -> Iterator[Callable[..., float]]:
    """Return what calls a function in a process where Triton interprets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            yield lambda call, *given: pool.submit(call, *given).result()


def _relative(found: Any, expected: Any) -> float:
    return float((found.float() - expected).abs().max() / expected.abs().max())


def _gemm(dtype: str, turned: bool, m: int, n: int, k: int) -> float:
    from benchmarks import gpu_triton

    torch.manual_seed(0)
    b_shape = (n, k) if turned else (k, n)
    a, b = (
        torch.randint(-8, 8, shape, dtype=torch.int8) if dtype == "int8"
        else torch.randn(shape).to(getattr(torch, dtype))
        for shape in ((m, k), b_shape)
    )  # fmt: skip
    found = gpu_triton.gemm(a, b, turned=turned)
    kinds = {"float16": torch.float16, "int8": torch.int32, "float8_e4m3fn": torch.bfloat16}
    assert found.dtype == kinds[dtype]
    return _relative(found, a.float() @ (b.t() if turned else b).float())


def _rows(name: str, rows: int, width: int) -> float:
    from benchmarks import gpu_triton

    torch.manual_seed(0)
    x, weight, bias = (torch.randn(shape).half() for shape in ((rows, width), width, width))
    x = 3 * x + 1
    wide, scale, shift = (given.float() for given in (x, weight, bias))
    if name == "softmax":
        return _relative(gpu_triton.softmax(x), wide.softmax(-1))
    if name == "layer_norm":
        expected = torch.nn.functional.layer_norm(wide, (width,), scale, shift)
        return _relative(gpu_triton.layer_norm(x, weight, bias), expected)
    expected = torch.nn.functional.rms_norm(wide, (width,), scale, 1e-5)
    return _relative(gpu_triton.rms_norm(x, weight), expected)


def _attention(heads: int, queries: int, tokens: int, width: int, causal: bool) -> float:
    from benchmarks import gpu_triton

    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, n, width).half() for n in (queries, tokens, tokens))
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), is_causal=causal
    )
    return _relative(gpu_triton.attention(q, k, v, causal=causal), expected)


@pytest.mark.parametrize("size", [(64, 128, 64), (48, 80, 112), (1, 16, 16), (320, 64, 32)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "int8", "float8_e4m3fn"])
def test_products(
    dtype: str, turned: bool, size: tuple[int, int, int], difference: Callable[..., float]
) -> None:
    assert difference(_gemm, dtype, turned, *size) < 6e-3


@pytest.mark.parametrize("size", [(5, 100), (3, 128), (2, 1)])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm"])
def test_rows(name: str, size: tuple[int, int], difference: Callable[..., float]) -> None:
    assert difference(_rows, name, *size) < 2e-3


@pytest.mark.parametrize(
    ("size", "causal"),
    [
        ((2, 64, 64, 128), True), ((2, 40, 56, 32), False), ((3, 50, 50, 32), True),
        ((1, 1, 70, 32), False), ((1, 70, 1, 16), False), ((1, 33, 70, 32), True),
        ((1, 70, 33, 32), True),
    ],
)  # fmt: skip
def test_attention(
    size: tuple[int, int, int, int], causal: bool, difference: Callable[..., float]
) -> None:
    assert difference(_attention, *size, causal) < 2e-3


def _keys() -> dict[str, list[str]]:
    from benchmarks import gpu_triton

    names = ("_softmax_kernel", "_norm_kernel", "_attention_kernel")
    return {name: list(getattr(gpu_triton, name).keys) for name in names}


def test_what_is_tuned_for_one_kernel_isnt_taken_for_another(
    difference: Callable[..., Any],
) -> None:
    """Norms with and without a mean are two kernels, as is attention in heads of each width."""
    keys = difference(_keys)
    assert keys["_softmax_kernel"] == ["width"]
    assert "CENTRED" in keys["_norm_kernel"] and "WIDTH" in keys["_attention_kernel"]
