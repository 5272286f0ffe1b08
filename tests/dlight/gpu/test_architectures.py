"""What each rule makes of an operator of its own, compiled for every generation of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from gpu_rules import compiled, function, lowered, scheduled, tensor

from tests.everyday import few
from tilewright import topi
from tilewright.dlight import gpu
from tilewright.scheduling import ScheduleRule
from tilewright.target import Target

NEWEST = "sm_100a"
ARCHS = ("sm_75", "sm_80", "sm_90a", NEWEST)


def bytes_product(a: Any, b: Any) -> Any:
    return topi.nn.matmul(a, b, out_dtype="int32")


def padded(x: Any, w: Any) -> Any:
    return topi.nn.conv2d(x, w, padding=1)


def channels_last(x: Any, w: Any) -> Any:
    return topi.nn.conv2d(x, w, 1, 1, 1, "NHWC", "HWIO")


def depthwise(x: Any, w: Any) -> Any:
    return topi.nn.depthwise_conv2d(x, w, 1, 1)


Case = tuple[type[ScheduleRule], Callable[..., Any], tuple[tuple[int, ...], ...], str]
CASES: dict[str, Case] = {
    "product": (gpu.Matmul, topi.matmul, ((200, 128), (128, 96)), "float16"),
    "product of bytes": (gpu.Matmul, bytes_product, ((256, 128), (128, 256)), "int8"),
    "product of floats": (gpu.Matmul, topi.matmul, ((200, 128), (128, 96)), "float32"),
    "convolution": (gpu.Convolution, padded, ((1, 16, 4, 4), (16, 16, 3, 3)), "float16"),
    "channels last": (
        gpu.Convolution, channels_last, ((1, 16, 16, 64), (3, 3, 64, 64)), "float16",
    ),
    "vector": (gpu.GEMV, topi.nn.dense, ((1, 256), (64, 256)), "float16"),
    "few vectors": (gpu.LowBatchGEMV, topi.nn.dense, ((3, 256), (64, 256)), "float16"),
    "depthwise": (gpu.Depthwise, depthwise, ((1, 32, 16, 16), (32, 1, 3, 3)), "float16"),
    "transpose": (gpu.Transpose, topi.transpose, ((96, 130),), "float16"),
    "sum of columns": (gpu.Reduction, lambda x: topi.sum(x, 0), ((256, 64),), "bfloat16"),
    "root mean square": (gpu.RMSNorm, topi.nn.rms_norm, ((16, 512), (512,)), "float16"),
    "softmax": (gpu.GeneralReduction, topi.nn.softmax, ((16, 512),), "float16"),
    "scan": (gpu.Fallback, lambda x: topi.cumsum(x, 1), ((16, 33),), "float32"),
}  # fmt: skip


@few(
    "name, arch",
    product(CASES, ARCHS),
    *product(CASES, [NEWEST]),
    every=9,
)
def test_nothing_spills(name: str, arch: str) -> None:
    rule, build, shapes, dtype = CASES[name]
    inputs = [tensor(*s, dtype=dtype, name=f"x{n}") for n, s in enumerate(shapes)]
    target = Target(f"cuda -arch={arch}")
    made = lowered(scheduled(function(build, *inputs), rule(), target=target), target)
    for resources in compiled(made, target).values():
        assert resources.spill_bytes == resources.stack_bytes == 0


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, *_ in CASES.values()} == {type(rule) for rule in gpu.rules()}
