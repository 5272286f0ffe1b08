"""Products and convolutions of bf16, fp16, int8 and int4 with wide accumulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Array, Input, Workload, data, weight
from benchmarks.workloads.conv import conv_reference
from tilewright import topi


def _int8_gemm(m: int, n: int, k: int, left: str, quick: bool = False) -> Workload:
    return Workload(
        f"gemm {'u8' if left == 'uint8' else 's8'}xs8 {m}x{n}x{k}",
        "int8",
        (data(m, k, dtype=left), weight(k, n, dtype="int8")),
        lambda a, b: topi.matmul(a, b, out_dtype="int32"),
        lambda a, b: a @ b,
        lambda torch, F, a, b: torch._int_mm(a, b),
        (lambda g, a, b: g.op("MatMulInteger", a, b, dtype="int32"),),
        2.0 * m * n * k,
        kind="int8",
        out_dtype="int32",
        numpy=None,
        needs=("matmul:out_dtype",),
        quick=quick,
    )


def _float_gemm(kind: str, m: int, n: int, k: int, quick: bool = False) -> Workload:
    """A product of 16-bit floats; peers round the result to 16 bits, so do we."""
    return Workload(
        f"{'gemv' if m == 1 else 'gemm'} {_SHORT[kind]} {m}x{n}x{k}",
        _SHORT[kind],
        (data(m, k, dtype=kind), weight(k, n, dtype=kind)),
        lambda a, b: topi.matmul(a, b),
        lambda a, b: a @ b,
        lambda torch, F, a, b: a @ b,
        (lambda g, a, b: g.op("MatMul", a, b, dtype=kind),),
        2.0 * m * n * k,
        kind=_UNITS[kind],
        out_dtype=kind,
        numpy=None,
        tolerance=_LIMIT[kind],
        quick=quick,
    )


def _float_batch(kind: str, batch: int, m: int, n: int, k: int) -> Workload:
    return Workload(
        f"batch_matmul {_SHORT[kind]} {batch}x{m}x{n}x{k}",
        _SHORT[kind],
        (data(batch, m, k, dtype=kind), data(batch, k, n, dtype=kind)),
        lambda a, b: topi.nn.batch_matmul(a, b, transpose_b=False),
        lambda a, b: a @ b,
        lambda torch, F, a, b: a @ b,
        (lambda g, a, b: g.op("MatMul", a, b, dtype=kind),),
        2.0 * batch * m * n * k,
        kind=_UNITS[kind],
        out_dtype=kind,
        numpy=None,
        tolerance=_LIMIT[kind],
    )


_SHORT = {"bfloat16": "bf16", "float16": "fp16"}
#: What multiplies them: CPUs have no sums in float32 of products of fp16.
_UNITS = {"bfloat16": "bfloat16", "float16": "float32"}
_LIMIT = {"bfloat16": 1e-2, "float16": 2e-3}


def _conv(
    kind: str, channels: int, size: int, filters: int, kernel: int, stride: int = 1
) -> Workload:
    pad, integer = kernel // 2, kind == "int8"
    out = (size + 2 * pad - kernel) // stride + 1
    left, right, made = ("uint8", "int8", "int32") if integer else (kind, kind, "float32")

    def in_torch(torch: Any, F: Any, x: Any, w: Any) -> Any:
        return F.conv2d(x, w, stride=stride, padding=pad)

    op, result = ("ConvInteger", "int32") if integer else ("Conv", kind)
    return Workload(
        f"conv2d {'u8xs8' if integer else 'bf16'} {channels}->{filters} {kernel}x{kernel} @{size}",
        "int8" if integer else "bf16",
        (
            data(1, channels, size, size, dtype=left),
            weight(filters, channels, kernel, kernel, dtype=right),
        ),
        lambda x, w: topi.nn.conv2d(x, w, strides=stride, padding=pad, out_dtype=made),
        lambda x, w: conv_reference(x, w, stride, pad),
        None if integer else in_torch,
        (lambda g, x, w: g.op(op, x, w, strides=[stride] * 2, pads=[pad] * 4, dtype=result),),
        2.0 * channels * kernel * kernel * filters * out * out,
        kind="int8" if integer else "bfloat16",
        out_dtype=made,
        numpy=None,
        tolerance=None if integer else 1e-2,
        needs=("nn.conv2d:out_dtype",),
    )


GROUP = 32


def _unpack(packed: Array) -> Array:
    """Two weights a byte, the first in the low half; 8 stands for zero."""
    wide = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
    return np.asarray(wide - 8)


def _int4(m: int, n: int, k: int, bits: int | None = None, quick: bool = False) -> Workload:
    """Weights of 4 bits; who can rounds the other operand to ``bits``, if any."""

    def in_torch(torch: Any, F: Any, x: Any, packed: Any, zeros: Any) -> Any:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, zeros)

    def prepare(torch: Any, x: Any, packed: Any, scale: Any) -> tuple[Any, ...]:
        wide = torch.stack([packed & 15, packed >> 4], -1).reshape(n, k).to(torch.int32)
        made = torch.ops.aten._convert_weight_to_int4pack_for_cpu(wide, 1)
        zeros = torch.stack([scale, torch.zeros_like(scale)], -1).transpose(0, 1).contiguous()
        return x, made, zeros

    def in_nbits(g: Any, x: str, packed: str, scale: str) -> str:
        g.reshape_constant(packed, (n, k // GROUP, GROUP // 2))
        level = 4 if bits == 8 else 1  # int8 or float32
        attributes = {"K": k, "N": n, "bits": 4, "block_size": GROUP, "accuracy_level": level}
        return str(g.op("MatMulNBits", x, packed, scale, domain="com.microsoft", **attributes))

    def in_blocks(g: Any, x: str, packed: str, scale: str) -> str:
        g.as_uint4(packed, (n, k))
        zero = g.constant_uint4(8, (n, k // GROUP))
        w = g.op("DequantizeLinear", packed, scale, zero, axis=1, block_size=GROUP)
        return str(g.op("MatMul", x, g.op("Transpose", w, perm=[1, 0])))

    return Workload(
        f"{'gemv' if m == 1 else 'gemm'} int4 {m}x{n}x{k} groups of {GROUP}"
        + (f", {bits} bits" if bits else ""),
        "int4",
        (data(m, k), Input((n, k // 2), "uint8", weight=True), weight(n, k // GROUP)),
        lambda x, packed, scale: topi.nn.dense_int4(x, packed, scale, activation_bits=bits),
        lambda x, packed, scale: x @ (_unpack(packed) * np.repeat(scale, GROUP, 1)).T,
        in_torch,
        (in_nbits, in_blocks),
        2.0 * m * n * k,
        numpy=None,
        quick=quick,
        torch_prepare=prepare,
        tolerance=2e-2 if bits else 5e-3,  # torch computes in bf16
    )


WORKLOADS = (
    _int8_gemm(512, 512, 512, "uint8", quick=True),
    _int8_gemm(512, 512, 512, "int8"),
    _int8_gemm(128, 768, 3072, "uint8"),
    _int8_gemm(197, 197, 64, "uint8"),
    _int8_gemm(1, 4096, 4096, "uint8"),
    _conv("int8", 64, 56, 64, 3),
    _conv("int8", 256, 14, 1024, 1),
    _float_gemm("bfloat16", 512, 512, 512, quick=True),
    _float_gemm("bfloat16", 128, 768, 3072),
    _float_gemm("bfloat16", 197, 197, 64),
    _float_gemm("bfloat16", 333, 77, 129),
    _float_gemm("bfloat16", 1, 4096, 4096),
    _float_batch("bfloat16", 12, 128, 64, 128),
    _conv("bfloat16", 64, 56, 64, 3),
    _conv("bfloat16", 256, 14, 1024, 1),
    _float_gemm("float16", 512, 512, 512),
    _float_gemm("float16", 197, 197, 64),
    _float_gemm("float16", 1, 4096, 4096),
    _float_batch("float16", 12, 128, 64, 128),
    _int4(1, 4096, 4096, quick=True),
    _int4(1, 4096, 4096, bits=8),
    _int4(32, 4096, 4096),
    _int4(32, 4096, 4096, bits=8),
)
