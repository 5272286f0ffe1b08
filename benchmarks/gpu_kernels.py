"""``python benchmarks/gpu_kernels.py``: the main GPU kernels by rule, and what bounds them.

Needs no GPU: kernels are lowered, compiled by NVRTC where it is installed, and counted
(``scheduling/gpu/kernel_bounds.py``). ``--target`` takes a tag, such as ``nvidia/nvidia-a100``;
``--write`` puts the tables into ``docs/cuda.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright import dlight, te, topi
from tilewright.codegen.cuda import nvrtc
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.ir import IRModule
from tilewright.scheduling.gpu.kernel_bounds import KernelBound, kernel_bounds
from tilewright.scheduling.gpu.simt_tile import TILES
from tilewright.support.errors import MissingExtraError
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.transform import gpu_pipeline

PAGE = Path(__file__).parents[1] / "docs" / "cuda.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def tensor(*shape: int, dtype: str = "float32", name: str = "x") -> te.Tensor:
    """A placeholder."""
    return te.placeholder(shape, dtype, name=name)


def function(build: Callable[..., Any], *inputs: te.Tensor) -> PrimFunc:
    """The function of what is built of inputs."""
    return te.create_prim_func([*inputs, build(*inputs)])


def matmul(m: int, n: int, k: int, dtype: str = "float32") -> PrimFunc:
    """A product of matrices."""
    a, b = tensor(m, k, dtype=dtype, name="A"), tensor(k, n, dtype=dtype, name="B")
    return function(topi.matmul, a, b)


def matvec(n: int, k: int, vectors: int = 1, dtype: str = "float16") -> PrimFunc:
    """Weights times vectors, as decoding has them."""
    a, b = tensor(vectors, k, dtype=dtype, name="x"), tensor(n, k, dtype=dtype, name="W")
    return function(topi.nn.dense, a, b)


def conv(images: int, channels: int, size: int) -> PrimFunc:
    """A 3x3 convolution as in ResNet."""
    x, w = tensor(images, channels, size, size), tensor(channels, channels, 3, 3, name="w")
    return function(lambda x, w: topi.nn.conv2d(x, w, 1, 1), x, w)


def depthwise(channels: int, size: int) -> PrimFunc:
    """A depthwise 3x3 convolution."""
    x, w = tensor(1, channels, size, size), tensor(channels, 1, 3, 3, name="w")
    return function(lambda x, w: topi.nn.depthwise_conv2d(x, w, 1, 1), x, w)


def layer_norm(rows: int, width: int) -> PrimFunc:
    """Normalised rows, scaled and shifted."""
    return function(
        topi.nn.layer_norm, tensor(rows, width), tensor(width, name="g"), tensor(width, name="b")
    )


KERNELS: dict[str, Callable[[], PrimFunc]] = {
    "matmul 4096³ float32": lambda: matmul(4096, 4096, 4096),
    "matmul 1024³ float32": lambda: matmul(1024, 1024, 1024),
    "conv2d 3x3, 32x64x56x56": lambda: conv(32, 64, 56),
    "depthwise 3x3, 256x112x112": lambda: depthwise(256, 112),
    "matvec 4096x4096 float16": lambda: matvec(4096, 4096),
    "matvec 11008x4096 float16": lambda: matvec(11008, 4096),
    "4 vectors, 4096x4096 float16": lambda: matvec(4096, 4096, 4),
    "softmax 8192x1024": lambda: function(topi.nn.softmax, tensor(8192, 1024)),
    "softmax 1024x32768": lambda: function(topi.nn.softmax, tensor(1024, 32768)),
    "layer_norm 8192x4096": lambda: layer_norm(8192, 4096),
    "sum of rows 8192x4096": lambda: function(lambda x: topi.sum(x, 1), tensor(8192, 4096)),
    "sum of columns 8192x4096": lambda: function(lambda x: topi.sum(x, 0), tensor(8192, 4096)),
    "transpose 8192x8192": lambda: function(topi.transpose, tensor(8192, 8192)),
    "relu 64M": lambda: function(topi.nn.relu, tensor(8192, 8192)),
}


def row_of(name: str, func: PrimFunc, target: Target) -> list[str]:
    """What a function's kernels take, and their bounds, for the table."""
    mod = dlight.ApplyDefaultSchedule(target=target)(IRModule({"main": func}))
    lowered = gpu_pipeline(target)(mod)
    bounds = kernel_bounds(lowered, target)
    try:
        code = nvrtc.compile_text(emit_kernels(lowered, target).text, target.arch).resources
    except MissingExtraError:
        code = {}
    largest = max(bounds, key=lambda bound: bound.seconds)
    taken = code.get(largest.symbol)
    registers = "?" if taken is None else str(taken.registers)
    spilled = "?" if taken is None else str(taken.spill_bytes + taken.stack_bytes)
    return [
        name, str(len(bounds)), f"{largest.blocks} x {largest.threads}", registers, spilled,
        str(largest.shared_bytes), f"{_occupancy(largest, taken, target):.0%}",
        f"{largest.waves:.1f}", f"{largest.worst(shared=True):.1f}",
        f"{largest.worst(shared=False):.1f}", largest.limiter,
        f"{1e6 * sum(bound.seconds for bound in bounds):.1f}",
        f"{sum(bound.memory for bound in bounds) / sum(bound.seconds for bound in bounds):.0%}",
    ]  # fmt: skip


def _occupancy(bound: KernelBound, taken: Any, target: Target) -> float:
    """Threads that run at once, of those that a processor could have, with the real registers."""
    arch = target.gpu
    if taken is None:
        return bound.occupancy
    each = -(-taken.registers // 8) * 8 * bound.threads
    blocks = min(arch.registers_per_sm // each, arch.threads_per_sm // bound.threads)
    if bound.shared_bytes:
        blocks = min(blocks, arch.shared_per_sm // (bound.shared_bytes + 1024))
    return min(blocks, arch.blocks_per_sm) * bound.threads / arch.threads_per_sm


HEAD = ("kernel", "kernels", "grid x threads", "registers", "spilled, stack", "shared bytes",
        "occupancy", "waves", "shared: turns", "global: sectors", "bound by", "at least, µs",
        "memory's share")  # fmt: skip


def tables(target: Target) -> str:
    """Both tables as Markdown."""
    lines = [f"Kernels by rule on `{target.options.get('model', target)}`:", "", _line(HEAD)]
    lines.append(_line(["---"] * len(HEAD)))
    lines += [_line(row_of(name, make(), target)) for name, make in KERNELS.items()]
    lines += ["", "Tiles of products on plain threads (float32):", ""]
    head = ("tile of a block", "tile of a thread", "threads", "shared bytes",
            "shared bytes read per multiply-add", "flops per byte fetched")  # fmt: skip
    lines += [_line(head), _line(["---"] * len(head))]
    for tile in TILES:
        own = f"{tile.own_rows} x {tile.own_columns}"
        block = f"{tile.rows} x {tile.columns} x {tile.depth}"
        lines.append(_line([
            block, own, str(tile.threads[0] * tile.threads[1]), str(tile.shared_bytes(4, 4)),
            f"{4 * tile.loads_per_multiply_add():.2f}", f"{tile.flops_per_byte():.1f}",
        ]))  # fmt: skip
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description="GPU kernels by rule and their bounds.")
    parser.add_argument("--target", default="nvidia/nvidia-h200")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/cuda.md")
    args = parser.parse_args(argv)
    made = tables(Target(args.target))
    if not args.write:
        print(made)
        return 0
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
