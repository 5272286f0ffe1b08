"""Numbers in single bits: packing signs and bits into words, products of packed signs."""

from __future__ import annotations

from tilewright import te
from tilewright.ir import Expr, as_int, call, cast, const, dtypes
from tilewright.support.errors import VerifyError
from tilewright.te import Tensor, compute, require, require_equal, with_conditions
from tilewright.topi.utils import normal_axis, require_ndim

_WORD = 32


@with_conditions
def binarize_pack(data: Tensor, axis: int | None = None, name: str = "PackedInput") -> Tensor:
    """Pack the signs of 32 numbers along an axis (the last, if not given) into a uint32.

    A bit is set where a number isn't negative; the first number has the highest bit.

    Raises ``VerifyError`` if the axis doesn't divide into words.
    """
    at = normal_axis(-1 if axis is None else axis, data.ndim)
    require(data.shape[at] % _WORD == 0, "binarize_pack: ", data.shape[at], " is no multiple of 32")

    def formula(*i: Expr) -> Expr:
        word: Expr = const(0, "uint32")
        for bit in range(_WORD):
            value = data(*i[:at], i[at] * _WORD + bit, *i[at + 1 :])
            set_ = cast(value >= const(0, data.dtype), "uint32")
            word = word | call("shift_left", set_, const(_WORD - 1 - bit, "uint32"))
        return word

    shape = (*data.shape[:at], data.shape[at] // _WORD, *data.shape[at + 1 :])
    made: Tensor = compute(shape, formula, name=name, tag="binarize_pack")
    return made


@with_conditions
def binary_dense(data: Tensor, weight: Tensor) -> Tensor:
    """Multiply signs, packed by :func:`binarize_pack`: ``[M, K / 32] x [N, K / 32]``, float32.

    Raises ``VerifyError`` unless both are uint32 with as many words.
    """
    for tensor in (data, weight):
        require_ndim("binary_dense", tensor, 2)
        if tensor.dtype != "uint32":
            raise VerifyError(f"binary_dense: {tensor.name} must be uint32, is {tensor.dtype}")
    require_equal("binary_dense: words", data.shape[1], weight.shape[1])
    k = te.reduce_axis((0, data.shape[1]), "k")
    differing: Tensor = compute(
        (data.shape[0], weight.shape[0]),
        lambda m, n: te.sum(
            cast(call("popcount", data(m, k.var) ^ weight(n, k.var)), "int32"), axis=[k]
        ),
        name="differing",
    )
    bits = data.shape[1] * _WORD
    made: Tensor = compute(
        differing.shape,
        lambda m, n: cast(cast(bits, "int32") - differing(m, n) * const(2, "int32"), "float32"),
        name="binary_dense",
        tag="binary_dense",
    )
    return made


@with_conditions
def bitpack(
    data: Tensor,
    bits: int,
    pack_axis: int,
    bit_axis: int,
    pack_type: str,
    name: str = "QuantizeInput",
) -> Tensor:
    """Pack each of the lowest ``bits`` of numbers along ``pack_axis`` into words of ``pack_type``.

    Words of the bits, lowest first, are along a new axis ``bit_axis``; the first number has a
    word's highest bit.

    Raises ``VerifyError`` if the axis doesn't divide into words, or words aren't unsigned.
    """
    if not pack_type.startswith("uint") or not dtypes.is_integer(data.dtype):
        raise VerifyError(f"bitpack: packs integers into uint8 to uint64, not {pack_type}")
    width = dtypes.bits_of(pack_type)
    at = normal_axis(pack_axis, data.ndim)
    where = normal_axis(bit_axis, data.ndim + 1)
    require(data.shape[at] % width == 0, "bitpack: ", data.shape[at], f" is no multiple of {width}")
    shape = [*data.shape]
    shape[at] = shape[at] // width
    shape.insert(where, const(bits))

    def formula(*i: Expr) -> Expr:
        bit, rest = i[where], [*i[:where], *i[where + 1 :]]
        words = [const(0, pack_type) for _ in range(bits)]
        for number in range(width):
            value = cast(data(*rest[:at], rest[at] * width + number, *rest[at + 1 :]), pack_type)
            for b in range(bits):
                one = call("shift_right", value, const(b, pack_type)) & const(1, pack_type)
                shifted = call("shift_left", one, const(width - 1 - number, pack_type))
                words[b] = words[b] | shifted
        made = words[-1]
        for b in reversed(range(bits - 1)):
            made = te.if_then_else(bit == b, words[b], made)
        return made

    assert as_int(shape[where]) == bits
    made: Tensor = compute(tuple(shape), formula, name=name, tag="bitpack")
    return made
