"""Kernels for GPUs: bounds and resources without a device, times beside PyTorch with one.

    python -m benchmarks.gpu --bounds                    what a data sheet allows, what limits us
    python -m benchmarks.gpu --bounds --target a100      for another GPU
    python -m benchmarks.gpu                             measured, on the GPU of this machine
    python -m benchmarks.gpu --trials 64 --work-dir DIR  tuned

Bounds are read off the lowered kernels (``tilewright.scheduling.gpu.kernel_bounds``): the floor is
the larger of operations over peak and bytes over bandwidth; ``share`` is how much of it a kernel
reaches if nothing but its own roofs limits it. Registers, spills and shared memory are what NVRTC
reports. Measured times are medians by CUDA events with the level-2 cache flushed, ours and the
peers' in turn; results are compared with PyTorch's in float32.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import tilewright as tw
from tilewright import dlight, driver, te, topi
from tilewright.codegen.cuda import nvrtc
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.ir import IRModule, dtypes
from tilewright.scheduling.gpu.kernel_bounds import kernel_bounds
from tilewright.support.errors import MissingExtraError
from tilewright.target import Target
from tilewright.tir import PrimFunc

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One operator: how we and PyTorch compute it, operations, and bytes that must be moved."""

    name: str
    inputs: tuple[tuple[Shape, str], ...]
    build: Callable[..., te.Tensor]
    torch: Callable[..., Any]
    flops: float
    tensor_cores: bool = False
    quick: bool = False

    def prim_func(self) -> PrimFunc:
        """Return the operator as a function of its inputs and its result."""
        tensors = [te.placeholder(s, d, name=f"x{n}") for n, (s, d) in enumerate(self.inputs)]
        return te.create_prim_func([*tensors, self.build(*tensors)])


def _bytes(func: PrimFunc) -> float:
    total = 0.0
    for buffer in func.buffer_map.values():
        elements = math.prod(int(extent.value) for extent in buffer.shape)  # type: ignore[attr-defined]
        total += elements * dtypes.bits_of(buffer.dtype) / 8
    return total


def _matmul(size: int, dtype: str, **options: Any) -> Case:
    shape = (size, size)
    total = "int32" if dtype == "int8" else "float32"
    return Case(
        f"gemm {dtype} {size}³",
        ((shape, dtype), (shape, dtype)),
        lambda a, b: topi.nn.matmul(a, b, out_dtype=total),
        lambda torch, a, b: torch.matmul(a, b),
        2.0 * size**3,
        tensor_cores=dtype != "float32",
        **options,
    )


def _rows(name: str, build: Callable[..., Any], peer: Callable[..., Any], steps: int) -> Case:
    shape = (4096, 4096)
    return Case(
        f"{name} 4096²", ((shape, "float16"),), build, peer, float(steps * math.prod(shape))
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
        tensor_cores=True,
    )


def _gemv(n: int, k: int) -> Case:
    return Case(
        f"gemv float16 {n}x{k}",
        (((1, k), "float16"), ((n, k), "float16")),
        lambda x, w: topi.nn.dense(x, w),
        lambda torch, x, w: torch.nn.functional.linear(x, w),
        2.0 * n * k,
        quick=True,
    )


CASES = (
    _matmul(1024, "float32", quick=True),
    _matmul(1024, "float16", quick=True),
    _matmul(4096, "float16"),
    _matmul(4096, "bfloat16"),
    _matmul(8192, "float16"),
    _matmul(4096, "int8"),
    _gemv(4096, 4096),
    _gemv(14336, 4096),
    _rows("softmax", topi.nn.softmax, lambda torch, x: torch.softmax(x, -1), 4),
    _rows("sum of rows", lambda x: topi.sum(x, axis=1), lambda torch, x: x.sum(1), 1),
    _rows("transpose", topi.transpose, lambda torch, x: x.t().contiguous(), 0),
    _rows("gelu", topi.nn.gelu, lambda torch, x: torch.nn.functional.gelu(x), 8),
    Case(
        "layer_norm 4096²",
        (((4096, 4096), "float16"), ((4096,), "float16"), ((4096,), "float16")),
        lambda x, w, b: topi.nn.layer_norm(x, w, b, [1]),
        lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (4096,), w, b),
        8.0 * 4096 * 4096,
    ),
    Case(
        "rms_norm 4096²",
        (((4096, 4096), "float16"), ((4096,), "float16")),
        lambda x, w: topi.nn.rms_norm(x, w),
        lambda torch, x, w: torch.nn.functional.rms_norm(x, (4096,), w),
        4.0 * 4096 * 4096,
    ),
    Case(
        "conv2d 64->64 3x3 @56, 8 images",
        (((8, 64, 56, 56), "float16"), ((64, 64, 3, 3), "float16")),
        lambda x, w: topi.nn.conv2d(x, w, padding=1),
        lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1),
        2.0 * 8 * 64 * 64 * 56 * 56 * 9,
        tensor_cores=True,
    ),
    _attention(4096, 32),
    _attention(16384, 32),
    _attention(8192, 32, queries=1),
)


def scheduled(case: Case, target: Target, args: argparse.Namespace) -> IRModule:
    """Return an operator's module by rule, or tuned."""
    mod = IRModule({"main": case.prim_func()})
    if args.trials:
        database = tw.meta_schedule.tune_tir(
            mod, target, work_dir=args.work_dir / case.name.replace(" ", "-").replace("/", "-"),
            max_trials_global=args.trials,
        )  # fmt: skip
        mod = tw.relax.transform.MetaScheduleApplyDatabase(database=database, target=target)(mod)
    with target:
        return dlight.default_schedule(target)(mod)


def floor(case: Case, target: Target) -> float:
    """Return the seconds that a data sheet allows at best."""
    gpu, options = target.gpu, target.options
    clock = float(options["clock"]) * 1e6 * target.num_cores
    rate = gpu.tensor_flops if case.tensor_cores else 2 * gpu.fp32_lanes
    return max(
        case.flops / (rate * clock), _bytes(case.prim_func()) / (float(options["bandwidth"]) * 1e9)
    )


def bounds(case: Case, target: Target, args: argparse.Namespace) -> dict[str, Any]:
    """Return what limits a case's kernels, without a device."""
    lowered = driver.lower(scheduled(case, target, args), target)
    found = kernel_bounds(lowered, target)
    code = nvrtc.compile_text(emit_kernels(lowered, target).text, target.arch)
    seconds, least = sum(item.seconds for item in found), floor(case, target)
    slowest = max(found, key=lambda item: item.seconds)
    taken = code.resources.values()
    return {
        "floor_us": least * 1e6,
        "bound_us": seconds * 1e6,
        "share": least / seconds if seconds else 1.0,
        "limiter": slowest.limiter,
        "kernels": len(found),
        "occupancy": slowest.occupancy,
        "waves": slowest.waves,
        "shared_excess": max(item.worst(shared=True) for item in found),
        "global_excess": max(item.worst(shared=False) for item in found),
        "shared_bytes": max(item.shared_bytes for item in found),
        "registers": max(item.registers for item in taken),
        "spill_bytes": max(item.spill_bytes for item in taken),
    }


class Measured:
    """Ours and the peers' times on the device of this machine."""

    def __init__(self, args: argparse.Namespace) -> None:
        import torch

        if not torch.cuda.is_available():
            raise SystemExit("no GPU here (torch.cuda.is_available()): --bounds needs none")
        self.torch, self.args = torch, args
        self.flush = torch.empty(512 << 20, dtype=torch.int8, device="cuda")

    def __call__(self, case: Case, target: Target) -> dict[str, Any]:
        """Measure one case; a wrong result is an error."""
        torch = self.torch
        kinds = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
        torch.manual_seed(0)
        given = [
            torch.randint(-8, 8, shape, dtype=torch.int8, device="cuda")
            if dtype == "int8"
            else torch.randn(shape, device="cuda").to(kinds[dtype])
            for shape, dtype in case.inputs
        ]
        module = driver.compile(scheduled(case, target, self.args), target)
        func = case.prim_func()
        out = func.buffer_map[func.params[-1]]
        shape = [int(extent.value) for extent in out.shape]  # type: ignore[attr-defined]
        result = torch.empty(shape, dtype=getattr(torch, out.dtype), device="cuda")
        ways: dict[str, Callable[[], Any]] = {"ours": lambda: module(*given, result)}
        if case.inputs[0][1] != "int8":  # PyTorch has no product of int8 with this layout
            ways["torch"] = lambda: case.torch(torch, *given)
            compiled = torch.compile(lambda *x: case.torch(torch, *x), mode="max-autotune")
            ways["torch.compile"] = lambda: compiled(*given)
        ways["ours"]()
        wide = [x.float() for x in given]
        expected = case.torch(torch, *wide)
        error = (result.float() - expected.float()).abs().max() / expected.float().abs().max()
        if not float(error) < 2e-2:
            raise SystemExit(f"{case.name}: wrong result, relative difference {float(error):.3g}")
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(self.args.rounds):
            for name, call in ways.items():
                times[name].append(self._seconds(call))
        made: dict[str, Any] = {f"{n}_us": statistics.median(t) * 1e6 for n, t in times.items()}
        ours = statistics.median(times["ours"])
        peers = [statistics.median(t) for name, t in times.items() if name != "ours"]
        made["ratio"] = min(peers) / ours if peers else None
        made["tflops"] = case.flops / ours / 1e12
        made["gbps"] = _bytes(func) / ours / 1e9
        made["share"] = floor(case, target) / ours
        return made

    def _seconds(self, call: Callable[[], Any]) -> float:
        torch = self.torch
        call()
        self.flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3


def show(rows: dict[str, dict[str, Any]], title: str) -> None:
    """Print a table of all that was found."""
    table = Table(title=title)
    columns = list(next(iter(rows.values())))
    table.add_column("case")
    for name in columns:
        table.add_column(name, justify="right")
    for name, row in rows.items():
        cells = [row.get(key) for key in columns]
        table.add_row(name, *(f"{x:.3g}" if isinstance(x, float) else str(x) for x in cells))
    Console(width=200).print(table)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    parser.add_argument("--bounds", action="store_true", help="bounds and resources: no device")
    parser.add_argument("--target", help="a GPU by its tag (default: h200, or this machine's)")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="a few cases")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--trials", type=int, default=0, help="tune with so many trials each")
    parser.add_argument("--work-dir", type=Path, default=Path("gpu_logs"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.bounds:
        target = Target(args.target or "nvidia/nvidia-h200")
        run: Callable[[Case, Target], dict[str, Any]] = lambda case, where: bounds(
            case, where, args
        )
    else:
        run = Measured(args)
        target = Target(args.target) if args.target else Target.from_device(tw.cuda(0))
    cases = [c for c in CASES if args.only in c.name and (c.quick or not args.quick)]
    rows: dict[str, dict[str, Any]] = {}
    for case in cases:
        try:
            rows[case.name] = run(case, target)
        except MissingExtraError as error:
            raise SystemExit(str(error)) from None
    if args.json:
        print(json.dumps(rows, indent=1))
    elif rows:
        show(rows, str(target.options.get("model", target)))


if __name__ == "__main__":
    main()
