"""Matrix products with 4-bit weights that have a scale, and perhaps a zero point, per group.

Two formats, told apart by their dtype:

- ``packed[K / 8, N]`` of ``uint32``, whose word ``(j, n)`` holds the weights of output ``n`` for
  inputs ``8 * j`` to ``8 * j + 7``, the first in the lowest four bits; ``scales[K / group, N]``
  (as GPTQ has it);
- ``packed[N, K / 2]`` of ``uint8``, whose byte ``(n, j)`` holds the weights for inputs ``2 * j``,
  in the low half, and ``2 * j + 1``; ``scales[N, K / group]`` (as ONNX's ``MatMulNBits`` has it).

A group is a run of ``group`` inputs of one output, a multiple of 8. ``zero_points`` are ``uint8``,
of the shape of ``scales``. A weight is ``(q - zero_point) * scale`` with ``q`` from 0 to 15;
without zero points 8 is subtracted (symmetric quantisation).

How it is computed: ``(word & (15 << 4 * i))`` is a weight times ``16 ** i``. It is converted to
float unshifted, since activations are divided by ``16 ** i`` beforehand; so decoding takes two
operations. Zero points are multiplied by the sum of a group's activations. All of this is exact
except for the rounding of sums, and of activations below ``2 ** -98``, which become denormal; a row
with infinite or NaN activations gives NaN. CPUs with byte products compute it in another, equally
accurate way: ``kernels.cpu.int4_product``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.ir import Expr, as_int, cast, const, maximum
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require_equal, with_conditions
from tilewright.tir.attrs import integer, one_of, options_of, register_annotation
from tilewright.tir.op import bitwise_and, bitwise_or, fabs, nearbyint, shift_left
from tilewright.topi.utils import require_ndim

ACTIVATION_LEVELS = {8: 127, 16: 127 * 256}
"""Largest rounded activation by the number of bits."""

DENSE_INT4 = register_annotation(
    "dense_int4",
    options_of(stages=integer(1, 64), activation_bits=one_of(0, *ACTIVATION_LEVELS)),
    means="On the last stage: how many stages, one after the other, make the product, and the bits "
    "of the activations (0 for all that data have).",
    read_by=("kernels.cpu.int4_product.problem",),
)

PER_WORD = 8
SYMMETRIC_ZERO = 8


@with_conditions
def dense_int4(
    data: Tensor,
    packed: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    activation_bits: int | None = None,
) -> Tensor:
    """``data [..., K] @ dequantised [K, N] + bias [N]``; see the module for the packing.

    The number of groups follows from the shape of ``scales``. Products are summed in float32
    within a group, then scaled. The result is in ``out_dtype`` (the data's, if not given).
    ``activation_bits`` of 8 or 16 rounds data to signed integers of so many bits, relative to the
    largest magnitude in a group, which makes products with several rows faster.

    Raises ``VerifyError`` for unsupported shapes, dtypes or ``activation_bits``.
    """
    if activation_bits not in (None, *ACTIVATION_LEVELS):
        known = ", ".join(map(str, ACTIVATION_LEVELS))
        raise VerifyError(f"dense_int4: activation_bits is None, {known}; got {activation_bits!r}")
    groups, group = _check(data, packed, scales, zero_points)
    by_output = packed.dtype == "uint8"
    real: Tensor = data
    if data.dtype != "float32":
        real = compute(data.shape, lambda *at: cast(data(*at), "float32"), "activation")
    if activation_bits is not None:
        real = _rounded(real, groups, group, ACTIVATION_LEVELS[activation_bits])
    activations = _group_totals(real, groups, group)
    sums = _group_sums(real, _words_of(packed) if by_output else packed, groups, group)

    def at_group(values: Tensor, g: Expr, n: Expr) -> Expr:
        return cast(values(n, g) if by_output else values(g, n), "float32")

    g = te.reduce_axis((0, groups), "g")

    def total(*at: Expr) -> Expr:
        *row, n = at
        zero: Expr = const(float(SYMMETRIC_ZERO), "float32")
        if zero_points is not None:
            zero = at_group(zero_points, g.var, n)
        centred = sums(*row, g.var, n) - activations(*row, g.var) * zero
        made: Expr = te.sum(centred * at_group(scales, g.var, n), axis=g)
        return made

    stages = 4 + (data.dtype != "float32") + 2 * (activation_bits is not None) + by_output
    mark = {"stages": stages, "activation_bits": activation_bits or 0}
    columns = packed.shape[0 if by_output else 1]
    result: Tensor = compute(
        (*data.shape[:-1], columns),
        total,
        name="dense_int4",
        tag="dense_int4",
        attrs={DENSE_INT4: mark},
    )
    return _finished(result, bias, out_dtype or data.dtype)


def _group_totals(data: Tensor, groups: int, group: int) -> Tensor:
    """The sum of activations in each group, by which zero points are multiplied."""
    member = te.reduce_axis((0, group), "k")
    made: Tensor = compute(
        (*data.shape[:-1], groups),
        lambda *at: te.sum(data(*at[:-1], at[-1] * group + member.var), axis=member),
        name="activation_sum",
        tag="comm_reduce",
    )
    return made


def _group_sums(data: Tensor, packed: Tensor, groups: int, group: int) -> Tensor:
    """Products summed within each group; ``packed`` is ``[K / 8, N]``."""
    words = group // PER_WORD
    shifted = compute(
        data.shape,
        lambda *at: data(*at) / cast(shift_left(1, 4 * (at[-1] % PER_WORD)), "float32"),
        name="shifted",
        tag="injective",
    )
    j = te.reduce_axis((0, words), "j")
    i = te.reduce_axis((0, PER_WORD), "i")

    def in_group(*at: Expr) -> Expr:
        *row, g, n = at
        mask = shift_left(const(15, "uint32"), cast(i.var * 4, "uint32"))
        weight = cast(bitwise_and(packed(g * words + j.var, n), mask), "float32")
        value = shifted(*row, g * group + j.var * PER_WORD + i.var)
        made: Expr = te.sum(value * weight, axis=[j, i])
        return made

    made: Tensor = compute(
        (*data.shape[:-1], groups, packed.shape[1]),
        in_group,
        name="group_sum",
        tag="group_sum_int4",
    )
    return made


def _finished(result: Tensor, bias: Tensor | None, out_dtype: str) -> Tensor:
    """Add the bias, and convert."""
    if bias is None and out_dtype == "float32":
        return result
    if bias is not None:
        require_ndim("dense_int4", bias, 1)
        require_equal("dense_int4: outputs and bias", result.shape[-1], bias.shape[0])

    def finish(*at: Expr) -> Expr:
        value: Expr = result(*at)
        if bias is not None:
            value = value + cast(bias(at[-1]), "float32")
        return cast(value, out_dtype)

    finished: Tensor = compute(result.shape, finish, name="dense_int4_out", tag="broadcast")
    return finished


def _rounded(data: Tensor, groups: int, group: int, levels: int) -> Tensor:
    """Round data to ``levels`` steps of the largest magnitude in each group."""
    member = te.reduce_axis((0, group), "k")
    tops = compute(
        (*data.shape[:-1], groups),
        lambda *at: te.max(fabs(data(*at[:-1], at[-1] * group + member.var)), axis=member),
        name="activation_top",
        tag="comm_reduce",
    )

    def rounded(*at: Expr) -> Expr:
        top = tops(*at[:-1], at[-1] // group)
        # A tiny top doesn't make it infinite.
        factor = const(float(levels), "float32") / maximum(top, const(2.0**-100, "float32"))
        number = nearbyint(data(*at) * factor)
        made: Expr = number * (top * const(1.0 / levels, "float32"))
        return made

    made: Tensor = compute(data.shape, rounded, name="activation_rounded", tag="injective")
    return made


def _words_of(packed: Tensor) -> Tensor:
    """Join the bytes ``[N, K / 2]`` to words ``[K / 8, N]``."""

    def word(j: Expr, n: Expr) -> Expr:
        made: Expr = cast(packed(n, 4 * j), "uint32")
        for place in range(1, 4):
            byte = cast(packed(n, 4 * j + place), "uint32")
            made = bitwise_or(made, shift_left(byte, const(8 * place, "uint32")))
        return made

    shape = (packed.shape[1] // 4, packed.shape[0])
    made: Tensor = compute(shape, word, name="packed_words", tag="injective")
    return made


def _check(
    data: Tensor, packed: Tensor, scales: Tensor, zero_points: Tensor | None
) -> tuple[int, int]:
    """Return the number of groups and their length."""
    require_ndim("dense_int4", packed, 2)
    require_ndim("dense_int4", scales, 2)
    if packed.dtype not in ("uint32", "uint8"):
        raise VerifyError(
            f"dense_int4: packed weights are uint32 words or uint8 bytes, got {packed.dtype}"
        )
    if data.ndim < 1 or data.dtype not in ("float32", "float16", "bfloat16"):
        raise VerifyError(f"dense_int4: data must be floats with a dimension, got {data!r}")
    deep, per = (1, 2) if packed.dtype == "uint8" else (0, PER_WORD)
    depth = as_int(data.shape[-1])
    held, groups = as_int(packed.shape[deep]), as_int(scales.shape[deep])
    if depth is None or held is None or groups is None:
        raise VerifyError("dense_int4: the extent of the inputs must be constant")
    require_equal("dense_int4: inputs of data and of packed weights", depth, held * per)
    wide = 1 - deep
    require_equal(
        "dense_int4: outputs of weights and scales", packed.shape[wide], scales.shape[wide]
    )
    if groups == 0 or depth % groups or depth // groups % PER_WORD:
        raise VerifyError(
            f"dense_int4: {depth} inputs in {groups} groups; groups are equal, and multiples of "
            f"{PER_WORD} inputs"
        )
    if zero_points is not None:
        require_ndim("dense_int4", zero_points, 2)
        if zero_points.dtype != "uint8":
            raise VerifyError(f"dense_int4: zero points are uint8, got {zero_points.dtype}")
        for dim in range(2):
            require_equal(
                "dense_int4: zero points and scales", zero_points.shape[dim], scales.shape[dim]
            )
    return groups, depth // groups


# ---- preparing weights, in NumPy -------------------------------------------------------------


def pack_int4(weight: object) -> np.ndarray[Any, Any]:
    """Pack ``weight [N, K]`` of numbers from 0 to 15 into ``uint32 [K / 8, N]`` words.

    Raises ``VerifyError`` for other shapes and numbers.
    """
    numbers = np.asarray(weight)
    if numbers.ndim != 2 or numbers.shape[1] % PER_WORD:
        raise VerifyError(
            f"pack_int4 takes [N, K] with K a multiple of {PER_WORD}, got {list(numbers.shape)}"
        )
    if numbers.size and (numbers.min() < 0 or numbers.max() > 15):
        raise VerifyError(
            f"pack_int4 takes numbers from 0 to 15, got {numbers.min()} to {numbers.max()}"
        )
    outputs, depth = numbers.shape
    nibbles = numbers.astype(np.uint32).reshape(outputs, depth // PER_WORD, PER_WORD)
    shifted = nibbles << (4 * np.arange(PER_WORD, dtype=np.uint32))
    return np.ascontiguousarray(np.bitwise_or.reduce(shifted, axis=2).T)


def unpack_int4(packed: object) -> np.ndarray[Any, Any]:
    """Return the numbers ``uint8 [N, K]`` of packed words; the inverse of ``pack_int4``."""
    words = np.asarray(packed, np.uint32)
    nibbles = (words.T[:, :, None] >> (4 * np.arange(PER_WORD, dtype=np.uint32))) & 15
    return nibbles.reshape(words.shape[1], -1).astype(np.uint8)


def quantize_int4(weight: object, group: int, *, symmetric: bool = True) -> tuple[Any, Any, Any]:
    """Quantise ``weight [N, K]`` of floats; return packed weights, scales and zero points.

    Each ``group`` of neighbouring inputs of an output has its own scale, by its largest magnitude
    (``symmetric``, zero points are ``None``) or by its range.

    Raises ``VerifyError`` if the groups don't divide K.
    """
    values = np.asarray(weight, np.float32)
    if values.ndim != 2 or group < 1 or values.shape[1] % group or group % PER_WORD:
        raise VerifyError(
            f"quantize_int4 takes [N, K] in groups of K by multiples of {PER_WORD}, got "
            f"{list(values.shape)} and {group}"
        )
    outputs, depth = values.shape
    grouped = values.reshape(outputs, depth // group, group)
    if symmetric:
        scales = np.abs(grouped).max(axis=2) / 7
        zeros = np.full_like(scales, SYMMETRIC_ZERO)
    else:
        low, high = np.minimum(grouped.min(axis=2), 0), np.maximum(grouped.max(axis=2), 0)
        scales = (high - low) / 15
        zeros = np.rint(-low / np.where(scales == 0, 1, scales)).clip(0, 15)
    scales = np.where(scales == 0, 1, scales).astype(np.float32)
    numbers = np.rint(grouped / scales[:, :, None]) + zeros[:, :, None]
    packed = pack_int4(numbers.clip(0, 15).reshape(outputs, depth))
    by_group = np.ascontiguousarray(zeros.T.astype(np.uint8))
    return packed, np.ascontiguousarray(scales.T), None if symmetric else by_group


def dequantize_int4(packed: object, scales: object, zero_points: object = None) -> Any:
    """Return the float32 weights ``[N, K]`` of packed ones."""
    numbers = unpack_int4(packed).astype(np.float32)
    scales = np.asarray(scales, np.float32)
    group = numbers.shape[1] // scales.shape[0]
    zeros: Any = SYMMETRIC_ZERO
    if zero_points is not None:
        zeros = np.repeat(np.asarray(zero_points, np.float32).T, group, axis=1)
    return (numbers - zeros) * np.repeat(scales.T, group, axis=1)
