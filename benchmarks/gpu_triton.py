"""Kernels in Triton that ``benchmarks.gpu`` measures ours beside; imports Triton.

Written as its users write them: operands of products come by tensor descriptors (TMA on Hopper),
tiles are chosen by Triton's autotuning at the first call with given sizes. With
``TRITON_INTERPRET=1`` they run on the CPU, in small tiles and untuned. Rows of operands of
products, and of heads, must be multiples of 16 bytes, as descriptors demand.
"""

# Triton has no types that a checker knows, and its kernels are no Python functions.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

INTERPRETED = bool(triton.knobs.runtime.interpret)
LOG2_E = tl.constexpr(1.4426950408889634)


def _describe(argument: str, *tile: str) -> Any:
    """Return what sets a descriptor's tile to the sizes of a configuration."""

    def prepare(given: dict[str, Any]) -> None:
        shape = [given[name] for name in tile]
        found = given[argument]
        found.block_shape = [1] * (len(found.shape) - len(shape)) + shape

    return prepare


def _configs(sizes: list[tuple[dict[str, int], int, int]], *descriptors: Any) -> list[Any]:
    """Return configurations of sizes, warps and stages, the first alone where interpreted."""

    def prepare(given: dict[str, Any]) -> None:
        for descriptor in descriptors:
            descriptor(given)

    made = [
        triton.Config(kwargs, num_warps=warps, num_stages=stages, pre_hook=prepare)
        for kwargs, warps, stages in sizes
    ]
    return made[:1] if INTERPRETED else made[1:]


def _gemm_kernel(
    a, b, c, m, n, k,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
    TURNED: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """Multiply ``a [m, k]`` by ``b [k, n]``, or ``[n, k]`` if that is turned: a tile a program."""
    tile = tl.program_id(0)
    # Tiles of some rows of tiles one after the other: what they share is in the level-2 cache.
    of_group = GROUP * tl.cdiv(n, COLUMNS)
    first = tile // of_group * GROUP
    height = min(tl.cdiv(m, ROWS) - first, GROUP)
    row = (first + tile % of_group % height) * ROWS
    column = tile % of_group // height * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), TOTAL)
    for step in range(0, k, DEPTH):
        left = a.load([row, step])
        if TURNED:
            right = b.load([column, step]).T
        else:
            right = b.load([step, column])
        total = tl.dot(left, right, total, out_dtype=TOTAL)
    c.store([row, column], total.to(c.dtype))


@cache
def _gemm_tuned(turned: bool, dtype: Any) -> Any:
    """Return the kernel for a dtype, which Triton doesn't see in descriptors when it tunes."""
    across = ("COLUMNS", "DEPTH") if turned else ("DEPTH", "COLUMNS")
    descriptors = (
        _describe("a", "ROWS", "DEPTH"), _describe("b", *across), _describe("c", "ROWS", "COLUMNS")
    )  # fmt: skip
    row = 128 // dtype.itemsize  # elements in as many bytes as a swizzled row of shared memory has
    sizes = [
        ({"ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "GROUP": 8}, warps, stages)
        for rows, columns, depth, warps, stages in (
            (32, 64, 32, 4, 2),
            (128, 256, row, 8, 3), (128, 256, row, 8, 4), (256, 128, row, 8, 3),
            (128, 128, row, 8, 4), (128, 128, row, 4, 4), (64, 128, row, 4, 5),
        )
    ]  # fmt: skip
    tune = triton.autotune(_configs(sizes, *descriptors), key=["m", "n", "k"])
    return tune(triton.jit(_gemm_kernel))


def gemm(a: Any, b: Any, *, turned: bool = False) -> Any:
    """Multiply matrices, ``b`` stored ``[n, k]`` if turned; products of bytes are wider ones."""
    (m, k), n = a.shape, b.shape[0 if turned else 1]
    if k != b.shape[1 if turned else 0] or a.dtype != b.dtype or a.element_size() > 2:
        raise ValueError(f"gemm: no product of {a.dtype}{[*a.shape]} and {b.dtype}{[*b.shape]}")
    whole = a.dtype == torch.int8
    narrow = torch.int32 if whole else torch.bfloat16
    dtype = a.dtype if a.element_size() == 2 else narrow
    c = torch.empty((m, n), dtype=dtype, device=a.device)
    operands = [TensorDescriptor.from_tensor(x, [1, 1]) for x in (a, b, c)]
    _gemm_tuned(turned, a.dtype)[
        lambda meta: (triton.cdiv(m, meta["ROWS"]) * triton.cdiv(n, meta["COLUMNS"]),)
    ](*operands, m, n, k, TURNED=turned, TOTAL=tl.int32 if whole else tl.float32)
    return c


def _tuned_by_rows(*key: str) -> Any:
    """Return what tunes the warps that have a row, anew where one of the key's values differs."""
    return triton.autotune(_configs([({}, warps, 1) for warps in (4, 4, 8, 16, 32)]), key=[*key])


@_tuned_by_rows("width")
@triton.jit
def _softmax_kernel(x, result, width, SIZE: tl.constexpr):
    """Compute one row's softmax."""
    at = tl.arange(0, SIZE)
    start = tl.program_id(0).to(tl.int64) * width
    row = tl.load(x + start + at, mask=at < width, other=-float("inf")).to(tl.float32)
    power = tl.exp(row - tl.max(row, 0))
    tl.store(result + start + at, power / tl.sum(power, 0), mask=at < width)


@_tuned_by_rows("width", "CENTRED")
@triton.jit
def _norm_kernel(
    x, weight, bias, result, width, epsilon, SIZE: tl.constexpr, CENTRED: tl.constexpr
):
    """Normalise one row: by its mean and variance if centred, else by its mean of squares."""
    at = tl.arange(0, SIZE)
    start = tl.program_id(0).to(tl.int64) * width
    row = tl.load(x + start + at, mask=at < width, other=0.0).to(tl.float32)
    if CENTRED:
        row = tl.where(at < width, row - tl.sum(row, 0) / width, 0.0)
    scaled = row * tl.rsqrt(tl.sum(row * row, 0) / width + epsilon)
    scaled *= tl.load(weight + at, mask=at < width, other=0.0).to(tl.float32)
    if CENTRED:
        scaled += tl.load(bias + at, mask=at < width, other=0.0).to(tl.float32)
    tl.store(result + start + at, scaled, mask=at < width)


def softmax(x: Any) -> Any:
    """Return the softmax of each row of a matrix."""
    rows, width = x.shape
    result = torch.empty_like(x)
    _softmax_kernel[(rows,)](x, result, width, SIZE=triton.next_power_of_2(width))
    return result


def _norm(x: Any, weight: Any, bias: Any, epsilon: float, *, centred: bool) -> Any:
    rows, width = x.shape
    result = torch.empty_like(x)
    size = triton.next_power_of_2(width)
    _norm_kernel[(rows,)](x, weight, bias, result, width, epsilon, SIZE=size, CENTRED=centred)
    return result


def layer_norm(x: Any, weight: Any, bias: Any, epsilon: float = 1e-5) -> Any:
    """Normalise each row of a matrix to mean 0 and variance 1, then scale and shift it."""
    return _norm(x, weight, bias, epsilon, centred=True)


def rms_norm(x: Any, weight: Any, epsilon: float = 1e-5) -> Any:
    """Divide each row of a matrix by the root of its mean square, then scale it."""
    return _norm(x, weight, weight, epsilon, centred=False)


@triton.jit
def _attend(
    q, k, v, total, power_sum, highest, head, row, begin, end, tokens,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Add keys of ``begin`` to ``end`` to sums of online softmax; ``q`` is scaled, in base 2."""
    for key in range(begin, end, KEYS):
        score = tl.dot(q, k.load([head, key, 0]).reshape(KEYS, WIDTH).T)
        if MASKED:
            at = key + tl.arange(0, KEYS)
            seen = (at < tokens)[None, :]
            if CAUSAL:
                seen = seen & (at[None, :] <= row[:, None])
            score = tl.where(seen, score, -float("inf"))
        above = tl.maximum(highest, tl.max(score, 1))
        power = tl.exp2(score - above[:, None])
        shrink = tl.exp2(highest - above)
        power_sum = power_sum * shrink + tl.sum(power, 1)
        values = v.load([head, key, 0]).reshape(KEYS, WIDTH)
        total = tl.dot(power.to(values.dtype), values, total * shrink[:, None])
        highest = above
    return total, power_sum, highest


_TILE = ("QUERIES", "WIDTH"), ("KEYS", "WIDTH"), ("KEYS", "WIDTH"), ("QUERIES", "WIDTH")


@triton.autotune(
    _configs(
        [
            ({"QUERIES": queries, "KEYS": keys}, warps, stages)
            for queries, keys, warps, stages in (
                (32, 16, 4, 1),
                (128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 4, 3), (64, 128, 4, 2), (64, 64, 4, 3),
            )
        ],
        *(_describe(name, *tile) for name, tile in zip(("q", "k", "v", "result"), _TILE)),
    ),
    key=["queries", "tokens", "WIDTH", "CAUSAL"],
)  # fmt: skip
@triton.jit
def _attention_kernel(
    q, k, v, result, queries, tokens, scale,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Attend to all keys, or the first as many as a query's place, for a block of queries."""
    # Long ones first: the last of a causal head sees all keys.
    begin = (tl.num_programs(0) - 1 - tl.program_id(0)) * QUERIES
    head = tl.program_id(1)
    row = begin + tl.arange(0, QUERIES)
    query = q.load([head, begin, 0]).reshape(QUERIES, WIDTH)
    query = (query.to(tl.float32) * (scale * LOG2_E)).to(query.dtype)
    end, plain = tokens, tokens
    if CAUSAL:
        end, plain = min(tokens, begin + QUERIES), min(tokens, begin + 1)
    plain = plain // KEYS * KEYS  # before that, all keys of a block exist and are seen
    total = tl.zeros((QUERIES, WIDTH), tl.float32)
    power_sum = tl.zeros((QUERIES,), tl.float32)
    highest = tl.full((QUERIES,), -float("inf"), tl.float32)
    total, power_sum, highest = _attend(
        query, k, v, total, power_sum, highest, head, row, 0, plain, tokens,
        KEYS, WIDTH, False, CAUSAL,
    )  # fmt: skip
    total, power_sum, highest = _attend(
        query, k, v, total, power_sum, highest, head, row, plain, end, tokens,
        KEYS, WIDTH, True, CAUSAL,
    )  # fmt: skip
    scaled = total / power_sum[:, None]
    result.store([head, begin, 0], scaled.to(result.dtype).reshape(1, QUERIES, WIDTH))


def attention(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    """Return attention of ``[batch, heads, tokens, width]``; causal: query i sees keys to i."""
    batch, heads, queries, width = q.shape
    tokens = k.shape[2]
    if triton.next_power_of_2(width) != width:
        raise ValueError(f"attention: the width of heads must be a power of two, got {width}")
    result = torch.empty_like(q)
    operands = [
        TensorDescriptor.from_tensor(x.view(batch * heads, x.shape[2], width), [1, 1, width])
        for x in (q, k, v, result)
    ]
    grid = lambda meta: (triton.cdiv(queries, meta["QUERIES"]), batch * heads)
    _attention_kernel[grid](
        *operands, queries, tokens, width**-0.5, WIDTH=width, CAUSAL=causal
    )  # fmt: skip
    return result
