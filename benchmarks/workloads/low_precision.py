"""Products and convolutions of bf16, int8 and int4 with wide accumulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Array, Input, Workload, data, weight
from benchmarks.workloads.conv import conv_reference
from tilewright import topi


def _int8_gemm(m: int, n: int, k: int, left: str) -> Workload:
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
    )


def _bf16_gemm(m: int, n: int, k: int) -> Workload:
    return Workload(
        f"gemm bf16 {m}x{n}x{k}",
        "bf16",
        (data(m, k, dtype="bfloat16"), weight(k, n, dtype="bfloat16")),
        lambda a, b: topi.matmul(a, b, out_dtype="float32"),
        lambda a, b: a @ b,
        lambda torch, F, a, b: a @ b,
        (lambda g, a, b: g.op("MatMul", a, b, dtype="bfloat16"),),
        2.0 * m * n * k,
        kind="bfloat16",
        numpy=None,
        tolerance=1e-2,  # peers round the result to bf16
        needs=("matmul:out_dtype",),
    )


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


def _int4_gemv(n: int, k: int) -> Workload:
    def in_torch(torch: Any, F: Any, x: Any, packed: Any, zeros: Any) -> Any:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, zeros)

    def prepare(torch: Any, x: Any, packed: Any, scale: Any) -> tuple[Any, ...]:
        wide = torch.stack([packed & 15, packed >> 4], -1).reshape(n, k).to(torch.int32)
        made = torch.ops.aten._convert_weight_to_int4pack_for_cpu(wide, 1)
        zeros = torch.stack([scale, torch.zeros_like(scale)], -1).transpose(0, 1).contiguous()
        return x, made, zeros

    def in_nbits(g: Any, x: str, packed: str, scale: str) -> str:
        g.reshape_constant(packed, (n, k // GROUP, GROUP // 2))
        attributes = {"K": k, "N": n, "bits": 4, "block_size": GROUP}
        return str(g.op("MatMulNBits", x, packed, scale, domain="com.microsoft", **attributes))

    def in_blocks(g: Any, x: str, packed: str, scale: str) -> str:
        g.as_uint4(packed, (n, k))
        zero = g.constant_uint4(8, (n, k // GROUP))
        w = g.op("DequantizeLinear", packed, scale, zero, axis=1, block_size=GROUP)
        return str(g.op("MatMul", x, g.op("Transpose", w, perm=[1, 0])))

    return Workload(
        f"gemv int4 1x{n}x{k} groups of {GROUP}",
        "int4",
        (data(1, k), Input((n, k // 2), "uint8", weight=True), weight(n, k // GROUP)),
        lambda x, packed, scale: topi.nn.dense_int4(x, packed, scale),
        lambda x, packed, scale: x @ (_unpack(packed) * np.repeat(scale, GROUP, 1)).T,
        in_torch,
        (in_nbits, in_blocks),
        2.0 * n * k,
        numpy=None,
        torch_prepare=prepare,
        tolerance=2e-2,  # peers compute in bf16 or quantise the operand
    )


WORKLOADS = (
    _int8_gemm(512, 512, 512, "uint8"),
    _int8_gemm(512, 512, 512, "int8"),
    _int8_gemm(128, 768, 3072, "uint8"),
    _conv("int8", 64, 56, 64, 3),
    _conv("int8", 256, 14, 1024, 1),
    _bf16_gemm(512, 512, 512),
    _bf16_gemm(128, 768, 3072),
    _conv("bfloat16", 64, 56, 64, 3),
    _conv("bfloat16", 256, 14, 1024, 1),
    _int4_gemv(4096, 4096),
)
