"""The operators that ``benchmarks.gpu`` looks at, with what PyTorch calls them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te, topi
from tilewright.ir import as_int, dtypes
from tilewright.tir import PrimFunc

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One operator: how we, PyTorch and Triton compute it, and how many operations it has.

    ``torch`` says what is computed, for float32 too. Where PyTorch has it under another name for
    these dtypes alone, ``library`` returns that, given PyTorch and a device. ``triton`` is given
    ``benchmarks.gpu_triton``.
    """

    name: str
    inputs: tuple[tuple[Shape, str], ...]
    build: Callable[..., te.Tensor]
    torch: Callable[..., Any]
    flops: float
    library: Callable[..., Callable[..., Any]] | None = None
    triton: Callable[..., Any] | None = None
    tensor_cores: bool = False
    quick: bool = False
    tensor_maps: bool = False

    def prim_func(self) -> PrimFunc:
        """Return the operator as a function of its inputs and its result."""
        tensors = [te.placeholder(s, d, name=f"x{n}") for n, (s, d) in enumerate(self.inputs)]
        return te.create_prim_func([*tensors, self.build(*tensors)])


def shape_of(func: PrimFunc, position: int) -> list[int]:
    """Return the shape of an argument."""
    return [as_int(extent) or 0 for extent in func.buffer_map[func.params[position]].shape]


def bytes_of(func: PrimFunc) -> float:
    """Return the bytes of all arguments."""
    kinds = [dtypes.bits_of(func.buffer_map[var].dtype) / 8 for var in func.params]
    return sum(math.prod(shape_of(func, n)) * size for n, size in enumerate(kinds))


def _scaled_mm(torch: Any, device: str) -> Callable[..., Any]:
    """Return cuBLAS's product of floats of 8 bits, with sums as inexact as ours on Hopper."""
    one = torch.ones((), device=device)
    return lambda a, b: torch._scaled_mm(
        a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def _matmul(size: int, dtype: str, **options: Any) -> Case:
    """Multiply square matrices; the result has the dtype that libraries give it."""
    shape = (size, size)
    total = "int32" if dtype == "int8" else "float32"
    small = dtype.startswith("float8")  # their products exist for rows along what is summed over
    result = {"int8": "int32"}.get(dtype, "bfloat16" if small else dtype)
    way = ", tensor maps" if options.get("tensor_maps") else ""
    return Case(
        f"gemm {dtype} {size}³{way}",
        ((shape, dtype), (shape, dtype)),
        lambda a, b: topi.cast(topi.nn.matmul(a, b, transpose_b=small, out_dtype=total), result),
        lambda torch, a, b: torch.matmul(a, b.t() if small else b),
        2.0 * size**3,
        library=_scaled_mm if small else None,
        triton=None if dtype == "float32" else lambda triton, a, b: triton.gemm(a, b, turned=small),
        tensor_cores=dtype != "float32",
        **options,
    )


def _rows(
    name: str,
    build: Callable[..., Any],
    peer: Callable[..., Any],
    steps: int,
    shape: tuple[int, int] = (4096, 4096),
    **options: Any,
) -> Case:
    size = f"{shape[0]}²" if shape[0] == shape[1] else f"{shape[0]}x{shape[1]}"
    return Case(
        f"{name} {size}",
        ((shape, "float16"),),
        build,
        peer,
        float(steps * math.prod(shape)),
        **options,
    )


def _softmax(shape: tuple[int, int]) -> Case:
    return _rows(
        "softmax",
        topi.nn.softmax,
        lambda torch, x: torch.softmax(x, -1),
        4,
        shape,
        triton=lambda triton, x: triton.softmax(x),
    )


def _attention(tokens: int, heads: int, *, queries: int | None = None) -> Case:
    queries = queries or tokens
    q, k = (1, heads, queries, 128), (1, heads, tokens, 128)
    causal = queries == tokens
    return Case(
        f"attention {queries}x{tokens} {heads} heads",
        ((q, "float16"), (k, "float16"), (k, "float16")),
        lambda *x: topi.nn.scaled_dot_product_attention(
            *x, causal_mask="TopLeft" if causal else None
        ),
        lambda torch, *x: torch.nn.functional.scaled_dot_product_attention(*x, is_causal=causal),
        4.0 * heads * queries * tokens * 128 * (0.5 if causal else 1.0),
        # One query is too few for blocks of them.
        triton=(lambda triton, *x: triton.attention(*x, causal=causal)) if queries > 1 else None,
        tensor_cores=True,
    )


def _gemv(n: int, k: int, vectors: int = 1) -> Case:
    return Case(
        f"gemv float16 {n}x{k}" + (f", {vectors} vectors" if vectors > 1 else ""),
        (((vectors, k), "float16"), ((n, k), "float16")),
        lambda x, w: topi.nn.dense(x, w),
        lambda torch, x, w: torch.nn.functional.linear(x, w),
        2.0 * vectors * n * k,
        quick=True,
    )


CASES = (
    _matmul(1024, "float32", quick=True),
    _matmul(1024, "float16", quick=True),
    _matmul(4096, "float16"),
    _matmul(4096, "bfloat16"),
    _matmul(8192, "float16"),
    _matmul(8192, "bfloat16"),
    _matmul(4096, "int8"),
    _matmul(4096, "float8_e4m3fn"),
    _matmul(8192, "float8_e4m3fn"),
    _matmul(4096, "float16", tensor_maps=True),
    _matmul(8192, "float16", tensor_maps=True),
    _matmul(4096, "float8_e4m3fn", tensor_maps=True),
    _matmul(8192, "float8_e4m3fn", tensor_maps=True),
    _gemv(4096, 4096),
    _gemv(14336, 4096),
    _gemv(4096, 4096, vectors=4),
    _softmax((4096, 4096)),
    _softmax((1024, 32768)),
    _rows("sum of columns", lambda x: topi.sum(x, axis=0), lambda torch, x: x.sum(0), 1),
    _rows("relu", topi.nn.relu, lambda torch, x: torch.relu(x), 1),
    _rows("sum of rows", lambda x: topi.sum(x, axis=1), lambda torch, x: x.sum(1), 1),
    _rows("transpose", topi.transpose, lambda torch, x: x.t().contiguous(), 0),
    _rows("gelu", topi.nn.gelu, lambda torch, x: torch.nn.functional.gelu(x), 8),
    Case(
        "layer_norm 4096²",
        (((4096, 4096), "float16"), ((4096,), "float16"), ((4096,), "float16")),
        lambda x, w, b: topi.nn.layer_norm(x, w, b, [1]),
        lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (4096,), w, b),
        8.0 * 4096 * 4096,
        triton=lambda triton, x, w, b: triton.layer_norm(x, w, b),
    ),
    Case(
        "rms_norm 4096²",
        (((4096, 4096), "float16"), ((4096,), "float16")),
        lambda x, w: topi.nn.rms_norm(x, w),
        lambda torch, x, w: torch.nn.functional.rms_norm(x, (4096,), w),
        4.0 * 4096 * 4096,
        triton=lambda triton, x, w: triton.rms_norm(x, w),
    ),
    Case(
        "conv2d 64->64 3x3 @56, 8 images",
        (((8, 64, 56, 56), "float16"), ((64, 64, 3, 3), "float16")),
        lambda x, w: topi.nn.conv2d(x, w, padding=1),
        lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1),
        2.0 * 8 * 64 * 64 * 56 * 56 * 9,
        tensor_cores=True,
    ),
    Case(
        "conv2d 64->64 3x3 @56, 8 images, NHWC",
        (((8, 56, 56, 64), "float16"), ((3, 3, 64, 64), "float16")),
        lambda x, w: topi.nn.conv2d(x, w, 1, 1, 1, "NHWC", "HWIO"),
        lambda torch, x, w: torch.nn.functional.conv2d(
            x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1
        ).permute(0, 2, 3, 1),
        2.0 * 8 * 64 * 64 * 56 * 56 * 9,
        tensor_cores=True,
    ),
    Case(
        "depthwise 3x3, 256 @112",
        (((1, 256, 112, 112), "float16"), ((256, 1, 3, 3), "float16")),
        lambda x, w: topi.nn.depthwise_conv2d(x, w, 1, 1),
        lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1, groups=256),
        2.0 * 256 * 112 * 112 * 9,
    ),
    _attention(4096, 32),
    _attention(16384, 32),
    _attention(8192, 32, queries=1),
)
