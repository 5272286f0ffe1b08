"""Operators by TVM's names: how they are called, and what NumPy makes of the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import te, topi

RNG = np.random.default_rng(7)


@dataclass(frozen=True)
class Case:
    """A tensor function, its operands, and its NumPy form."""

    build: Callable[..., Any]
    numpy: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]


def case(build: Callable[..., Any], numpy: Callable[..., Any], *arrays: Any) -> Case:
    return Case(build, numpy, tuple(map(np.asarray, arrays)))


def f32(*shape: int) -> np.ndarray:
    return RNG.uniform(-2, 2, shape).astype("float32")


def whole(low: int, high: int, *shape: int, dtype: str = "int64") -> np.ndarray:
    return RNG.integers(low, high, shape).astype(dtype)


def summed(subscripts: str, *shapes: tuple[int, ...]) -> Case:
    return case(
        lambda *t: topi.einsum(subscripts, *t),
        lambda *t: np.einsum(subscripts, *t),
        *(f32(*shape) for shape in shapes),
    )


def _transform(inverse: bool) -> Callable[..., Any]:
    def reference(re: Any, im: Any) -> list[Any]:
        made = (np.fft.ifft if inverse else np.fft.fft)(re + 1j * im)
        return [made.real.astype("float32"), made.imag.astype("float32")]

    return reference


def _spectrum(x: Any, window: Any, n_fft: int, hop: int) -> Any:
    left = (n_fft - len(window)) // 2
    weights = np.pad(window, (left, n_fft - len(window) - left))
    starts = range(0, x.shape[-1] - n_fft + 1, hop)
    parts = np.stack([np.fft.rfft(x[:, i : i + n_fft] * weights) for i in starts], -1)
    return np.stack([parts.real, parts.imag], -1)


def _hamming(n: int, periodic: bool) -> Any:
    last = n if periodic else n - 1
    return (0.54 - 0.46 * np.cos(2 * np.pi * np.arange(n) / last)).astype("float32")


def _set_diagonals(data: Any, diagonal: Any) -> Any:
    """Diagonals -1 to 1, short ones above at the right of their row, below at the left."""
    made = data.copy()
    rows, columns = data.shape[-2:]
    for i in range(rows):
        for j in range(columns):
            offset = j - i
            if -1 <= offset <= 1:
                size = min(rows + min(offset, 0), columns - max(offset, 0))
                moved = diagonal.shape[-1] - size if offset >= 0 else 0
                made[..., i, j] = diagonal[..., 1 - offset, min(i, j) + moved]
    return made


def _reversed(a: Any, lengths: Any) -> Any:
    made = a.copy()
    for row, length in enumerate(lengths):
        inside = min(max(length, 0), a.shape[1])
        made[row, :inside] = a[row, :inside][::-1]
    return made


def _set(a: Any, v: Any, begin: Any, end: Any, strides: Any) -> Any:
    made = a.copy()
    made[tuple(slice(b, e, s) for b, e, s in zip(begin, end, strides))] = v
    return made


def _dense(indices: Any, values: Any) -> Any:
    made = np.full((3, 4), 1.5, "float32")
    made[tuple(indices.T)] = values
    return made


def _coordinates(indices: Any, before: Any, after: Any) -> list[Any]:
    flat = np.ravel_multi_index(tuple(indices.T), tuple(before))
    shape = np.where(after < 0, np.prod(before) // -np.prod(after), after)
    return [np.stack(np.unravel_index(flat, tuple(shape)), 1), shape]


def _scaled(x: Any, factor: int, shift: int) -> Any:
    right = 31 - shift
    return ((x.astype("int64") * factor + (1 << (right - 1))) >> right).astype("int32")


def _valid_order(x: Any, counts: Any) -> Any:
    made = np.tile(np.arange(x.shape[1]), (len(x), 1))
    for row, count in enumerate(counts):
        made[row, :count] = np.argsort(x[row, :count], kind="stable")
    return made.astype("float32")


def _batched(a: Any, i: Any) -> Any:
    return np.stack([np.take(row, index, 0) for row, index in zip(a, i)])


def _or_nan(a: Any, i: Any) -> Any:
    inside = (i >= 0) & (i < a.shape[1])
    return np.where(inside, a[:, np.where(inside, i, 0)], np.nan)


def _before(total: Callable[..., Any], first: float) -> Callable[..., Any]:
    def reference(x: Any) -> Any:
        return np.concatenate([np.full((len(x), 1), first, x.dtype), total(x, 1)[:, :-1]], 1)

    return reference


SEQUENCES = f32(3, 5, 2)
EINSUMS = {
    "einsum ij,jk->ik": summed("ij,jk->ik", (2, 3), (3, 4)),
    "einsum without a result": summed("ij,jk", (2, 3), (3, 4)),
    "einsum of a diagonal": summed("ii->i", (3, 3)),
    "einsum of a trace and a vector": summed("iij,k->jk", (2, 2, 3), (4,)),
    "einsum to a number": summed("ij,ij->", (2, 3), (2, 3)),
    "einsum of batches": summed("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    "einsum turns": summed("ba", (2, 3)),
    "einsum of axes of 1": summed("ij,ij->i", (1, 3), (4, 3)),
    "einsum of a chain": summed("ij,jk,kl,lm->im", (2, 6), (6, 2), (2, 5), (5, 3)),
    "einsum of many": summed("a,ab,bc,cd,de,ef->f", (2,), (2, 3), (3, 2), (2, 3), (3, 2), (2, 4)),
    "einsum of nothing": summed("ij,jk->ik", (2, 0), (0, 4)),
    "einsum of ellipsis only": summed("...", (2, 3)),
    "einsum sums an ellipsis of one operand": summed("b...n,n->b...", (2, 3, 4), (4,)),
}  # fmt: skip
CASES: dict[str, Case] = {
    **EINSUMS,
    "tensordot": case(
        lambda a, b: topi.tensordot(a, b, axes=((1, 0), (0, 1))),
        lambda a, b: np.tensordot(a, b, ((1, 0), (0, 1))), f32(2, 3, 4), f32(3, 2, 5),
    ),
    "tensordot of a number of axes": case(
        lambda a, b: topi.tensordot(a, b, 2), lambda a, b: np.tensordot(a, b, 2),
        f32(2, 3, 4), f32(3, 4, 5),
    ),
    "dft": case(lambda a, b: topi.dft(a, b, False), _transform(False), f32(2, 7), f32(2, 7)),
    "dft of factors": case(
        lambda a, b: topi.dft(a, b, te.const(1, "int32")), _transform(True), f32(1, 66), f32(1, 66)
    ),
    "stft": case(
        lambda a, w: topi.stft(a, 8, 3, 6, w, False, True, [2, 5, 5, 2]),
        lambda a, w: _spectrum(a, w, 8, 3), f32(2, 20), f32(6),
    ),
    "hamming_window": case(
        lambda: topi.hamming_window(7, True, 0.54, 0.46, "float32"), lambda: _hamming(7, True)
    ),
    "hamming_window, symmetric": case(
        lambda: topi.hamming_window(7, 0, 0.54, 0.46, "float32"), lambda: _hamming(7, False)
    ),
    "meshgrid": case(
        lambda a, b, c: topi.meshgrid([a, b, c], "xy"), lambda *t: np.meshgrid(*t),
        f32(3), f32(4), f32(1),
    ),
    "eye": case(lambda: topi.eye(3, 5, -1, "int32"), lambda: np.eye(3, 5, -1, "int32")),
    "full_like": case(
        lambda a: topi.full_like(a, 2.5), lambda a: np.full_like(a, 2.5), f32(2, 0, 3)
    ),
    "const_vector": case(lambda: topi.const_vector([3, 1, 2]), lambda: np.array([3, 1, 2])),
    "shape": case(topi.shape, lambda a: np.array(a.shape, "int32"), f32(2, 1, 3)),
    "tensor_size": case(
        lambda a: topi.tensor_size(a, "int64"), lambda a: np.array(a.size), f32(2, 1, 3)
    ),
    "matrix_set_diag": case(
        lambda a, d: topi.matrix_set_diag(a, d, k=(-1, 1)), _set_diagonals,
        f32(2, 3, 4), f32(2, 3, 3),
    ),
    "trilu": case(lambda a: topi.trilu(a, -1, True), lambda a: np.triu(a, -1), f32(2, 3, 4)),
    "sliding_window": case(
        lambda a: topi.sliding_window(a, 1, [2, 3], [1, 2]),
        lambda a: np.lib.stride_tricks.sliding_window_view(a, (2, 3), (1, 2))[:, :, ::2],
        f32(2, 5, 8),
    ),
    "unravel_index": case(
        topi.unravel_index, lambda i, s: np.stack(np.unravel_index(i, tuple(s))),
        whole(0, 24, 2, 5, dtype="int32").astype("int64"), np.array([2, 3, 4], "int32"),
    ),
    "sequence_mask": case(
        lambda a, v: topi.sequence_mask(a, v, mask_value=-1, axis=1),
        lambda a, v: np.where(np.arange(5)[None, :, None] < v[:, None, None], a, -1),
        SEQUENCES, np.array([1, 9, 0], "int32"),
    ),
    "reverse_sequence": case(
        topi.reverse_sequence, _reversed, SEQUENCES, np.array([4, 9, -1], "int32")
    ),
    "dynamic_strided_slice": case(
        lambda a, b, e, s: topi.dynamic_strided_slice(a, b, e, s, [2, 3, 2]),
        lambda a, b, e, s: a[b[0] : e[0] : s[0], b[1] : e[1] : s[1]],
        SEQUENCES, np.array([-2, 4]), np.array([3, -9]), np.array([1, -2]),
    ),
    "strided_set": case(
        topi.strided_set, _set,
        f32(5, 6), f32(2, 3), np.array([-2, -1]), np.array([9, -9]), np.array([1, -2]),
    ),
    "dyn_tile": case(
        lambda a: topi.dyn_tile(a, [2, 6, 4], 3), lambda a: np.tile(a, (2, 2, 1)), f32(3, 4)
    ),
    "sparse_to_dense": case(
        lambda i, v: topi.sparse_to_dense(i, [3, 4], v, 1.5), _dense,
        np.array([[0, 1], [2, 3], [1, 0]], "int32"), f32(3),
    ),
    "sparse_reshape": case(
        lambda i, p, n: topi.sparse_reshape(i, p, n, (4, 2), (2,)), _coordinates,
        np.array([[0, 0, 0], [0, 1, 0], [1, 0, 5], [1, 2, 3]]), np.array([2, 3, 6]),
        np.array([9, -1]),
    ),
    "fixed_point_multiply": case(
        lambda x: topi.fixed_point_multiply(x, 1395864371, -3),
        lambda x: _scaled(x, 1395864371, -3), whole(-(2**31), 2**31, 40, dtype="int32"),
    ),
    "fixed_point_multiply_per_axis": case(
        lambda x, y, left, right: topi.fixed_point_multiply_per_axis(x, y, left, right, 1, 1, [1]),
        lambda x, y, left, right: np.stack(
            [_scaled(x[:, n] << left[n], int(y[n]), -int(right[n])) for n in range(3)], 1
        ),
        whole(-(2**20), 2**20, 4, 3, dtype="int32"), whole(2**30, 2**31 - 1, 3, dtype="int32"),
        np.array([0, 3, 1], "int32"), np.array([2, 0, 5], "int32"),
    ),
    "expand_like": case(
        lambda a, b: topi.expand_like(a, b, (0, -1)),
        lambda a, b: np.broadcast_to(a[None, :, None], b.shape), f32(3), f32(2, 3, 4),
    ),
    "collapse_sum": case(
        lambda a: topi.collapse_sum(a, (3, 1)), lambda a: a.sum((0, 2))[:, None], f32(2, 3, 4)
    ),
    "elemwise_sum": case(
        lambda a, b: topi.elemwise_sum([a, b, a]), lambda a, b: a + b + a, f32(3, 4), f32(3, 4)
    ),
    "reinterpret": case(
        lambda a: topi.reinterpret(a, "int32"), lambda a: a.view("int32"), f32(3, 4)
    ),
    "ceil_log2": case(
        topi.ceil_log2, lambda a: np.ceil(np.log2(a)).astype("int32"),
        np.array([1, 2, 3, 4, 5, 1023, 1024, 1025, 2**31 - 1], "int32"),
    ),
    "scanop": case(
        lambda a: topi.scanop(a, lambda x, y: x * y, te.const(1.0), "product", 1),
        lambda a: np.cumprod(a, 1), f32(3, 4),
    ),
    "cumsum, exclusive": case(
        lambda a: topi.cumsum(a, 1, exclusive=True), _before(np.cumsum, 0), f32(3, 4)
    ),
    "cumprod, exclusive": case(
        lambda a: topi.cumprod(a, 1, exclusive=True), _before(np.cumprod, 1), f32(3, 4)
    ),
    "argsort of valid elements": case(
        topi.argsort, _valid_order,
        np.array([[2, 1, np.nan, -np.inf], [np.inf, 3, 2, 1]], "float32"), np.array([3, 0]),
    ),
    "take of batches": case(
        lambda a, i: topi.take(a, i, 1, 1), _batched, f32(2, 3, 4), whole(0, 3, 2, 5)
    ),
    "take, NaN outside": case(
        lambda a, i: topi.take(a, i, axis=-1, mode="nan"), _or_nan,
        f32(3, 4), np.array([-5, -1, 0, 3, 4]),
    ),
    "strided_slice of sizes": case(
        lambda a: topi.strided_slice(a, [-2, 1], [2, -1], slice_mode="size"),
        lambda a: a[-2:, 1:], f32(3, 4),
    ),
    "expand_dims by several": case(
        lambda a: topi.expand_dims(a, -1, num_newaxis=2), lambda a: a[..., None, None], f32(3, 4)
    ),
    "layout_transform": case(
        lambda a: topi.layout_transform(a, "NCHW", "NCHW2c"),
        lambda a: a.reshape(1, 2, 2, 3, 2).transpose(0, 1, 3, 4, 2), f32(1, 4, 3, 2),
    ),
    "clip of integers": case(
        lambda a: topi.clip(a, -1.5, 1e30), lambda a: np.clip(a, -1, None),
        whole(-4, 5, 6, dtype="int32"),
    ),
}  # fmt: skip
