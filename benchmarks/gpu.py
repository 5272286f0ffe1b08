"""Kernels for GPUs: bounds and resources without a device, times beside PyTorch with one.

    python -m benchmarks.gpu --bounds                    what a data sheet allows, what limits us
    python -m benchmarks.gpu --bounds --target a100      for another GPU
    python -m benchmarks.gpu --bounds --write            into docs/cuda.md
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
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import tilewright as tw
from benchmarks.gpu_cases import CASES, Case, bytes_of, shape_of
from tilewright import dlight, driver
from tilewright.codegen.cuda import nvrtc
from tilewright.codegen.cuda.emit import emit_kernels
from tilewright.ir import IRModule, PassContext, dtypes
from tilewright.scheduling.gpu.kernel_bounds import KernelBound, kernel_bounds
from tilewright.scheduling.gpu.roofs import Launch
from tilewright.support.errors import MissingExtraError
from tilewright.target import Target

PAGE = Path(__file__).parents[1] / "docs" / "cuda.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def scheduled(case: Case, target: Target, args: argparse.Namespace) -> IRModule:
    """Return an operator's module by rule, or tuned."""
    mod = IRModule({"main": case.prim_func()})
    if args.trials:
        database = tw.meta_schedule.tune_tir(
            mod, target, work_dir=args.work_dir / case.name.replace(" ", "-").replace("/", "-"),
            max_trials_global=args.trials,
        )  # fmt: skip
        mod = tw.relax.transform.MetaScheduleApplyDatabase(database=database, target=target)(mod)
    with target, PassContext(config={"dlight.tensor_maps": case.tensor_maps}):
        return dlight.default_schedule(target)(mod)


def floor(case: Case, target: Target) -> float:
    """Return the seconds that a data sheet allows at best."""
    gpu, options = target.gpu, target.options
    clock = float(options["clock"]) * 1e6 * target.num_cores
    narrow = 16 / dtypes.bits_of(case.inputs[0][1])
    rate = gpu.tensor_flops * narrow if case.tensor_cores else 2 * gpu.fp32_lanes
    return max(
        case.flops / (rate * clock),
        bytes_of(case.prim_func()) / (float(options["bandwidth"]) * 1e9),
    )


def bounds(case: Case, target: Target, args: argparse.Namespace) -> dict[str, Any]:
    """Return what limits a case's kernels, without a device."""
    lowered = driver.lower(scheduled(case, target, args), target)
    found = kernel_bounds(lowered, target)
    code = nvrtc.compile_text(emit_kernels(lowered, target).text, target.arch)
    seconds, least = sum(item.seconds for item in found), floor(case, target)
    slowest = max(found, key=lambda item: item.seconds)
    taken = code.resources[slowest.symbol]
    return {
        "kernels": len(found),
        "grid x threads": f"{slowest.blocks} x {slowest.threads}",
        "registers": taken.registers,
        "spilled": max(item.spill_bytes for item in code.resources.values()),
        "shared bytes": slowest.shared_bytes,
        "occupancy": f"{occupancy(slowest, taken, target):.0%}",
        "waves": round(slowest.waves, 1),
        "shared: turns": round(max(item.worst(shared=True) for item in found), 2),
        "global: sectors": round(max(item.worst(shared=False) for item in found), 2),
        "bound by": slowest.limiter,
        "at least, µs": round(seconds * 1e6, 1),
        "data sheet, µs": round(least * 1e6, 1),
        "share": f"{least / seconds if seconds else 1.0:.0%}",
    }


def occupancy(bound: KernelBound, taken: nvrtc.Resources, target: Target) -> float:
    """Return the threads that run at once, of those that a processor could have."""
    launch = Launch(bound.blocks, bound.threads, bound.shared_bytes, -(-taken.registers // 8) * 8)
    return float(launch.resident(target) * bound.threads / target.gpu.threads_per_sm)


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
        kind = getattr(torch, func.buffer_map[func.params[-1]].dtype)
        result = torch.empty(shape_of(func, -1), dtype=kind, device="cuda")
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
        made["gbps"] = bytes_of(func) / ours / 1e9
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
    for name in ("case", *columns):
        table.add_column(name, justify="left" if name == "case" else "right")
    for name, row in rows.items():
        cells = [row.get(key) for key in columns]
        table.add_row(name, *(f"{x:.3g}" if isinstance(x, float) else str(x) for x in cells))
    Console(width=220).print(table)


def write(rows: dict[str, dict[str, Any]], title: str) -> None:
    """Put the table into the page."""
    columns = ["case", *next(iter(rows.values()))]
    lines = [f"By rule on `{title}`:", "", columns, ["---"] * len(columns)]
    lines += [[name, *row.values()] for name, row in rows.items()]
    text = "\n".join(
        line if isinstance(line, str) else "| " + " | ".join(map(str, line)) + " |"
        for line in lines
    )
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


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
    parser.add_argument("--write", action="store_true", help="put bounds into docs/cuda.md")
    args = parser.parse_args()
    if args.write and not args.bounds:
        parser.error("--write goes with --bounds")
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
        (write if args.write else show)(rows, str(target.options.get("model", target)))


if __name__ == "__main__":
    main()
