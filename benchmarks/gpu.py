"""Kernels for GPUs: bounds and resources without a device, times beside peers with one.

    python -m benchmarks.gpu --bounds                    what a data sheet allows, what limits us
    python -m benchmarks.gpu --bounds --target a100      for another GPU
    python -m benchmarks.gpu --bounds --write            into docs/cuda.md
    python -m benchmarks.gpu                             measured, on the GPU of this machine
    python -m benchmarks.gpu --trials 64 --work-dir DIR  tuned

Bounds are read off the lowered kernels (``tilewright.scheduling.gpu.kernel_bounds``): the floor is
the larger of operations over peak and bytes over bandwidth; ``share`` is how much of it a kernel
reaches if nothing but its own roofs limits it. Registers, spills and shared memory are what NVRTC
reports. Measured times are medians by CUDA events with the level-2 cache flushed, ours and the
peers' in turn: PyTorch (cuBLAS, cuDNN), ``torch.compile`` and kernels in Triton. All results are
compared with PyTorch's in float32. A case that fails is told at the end, a peer that does at
once; the others are measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from functools import cached_property, partial
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
WAYS = "ours", "torch", "torch.compile", "triton"
NOTES = Console(stderr=True, soft_wrap=True)


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


def triton_kernels() -> Any:
    """Return the kernels in Triton, None where it isn't installed."""
    try:
        from benchmarks import gpu_triton
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "triton":
            raise
        return None
    return gpu_triton


def inputs_of(case: Case, torch: Any, device: str) -> list[Any]:
    """Return random operands of a case."""
    torch.manual_seed(0)
    return [
        torch.randint(-8, 8, shape, dtype=torch.int8, device=device)
        if dtype == "int8"
        else torch.randn(shape, device=device).to(getattr(torch, dtype))
        for shape, dtype in case.inputs
    ]


def peers_of(case: Case, torch: Any, triton: Any, device: str) -> dict[str, Callable[..., Any]]:
    """Return what computes a case's result besides us, by name."""
    peers: dict[str, Callable[..., Any]] = {}
    if case.inputs[0][1] != "int8":  # PyTorch has no product of int8 with this layout
        eager = case.library(torch, device) if case.library else partial(case.torch, torch)
        peers["torch"] = eager
        # All cases are one function to its cache, which holds a few and then runs it uncompiled.
        torch.compiler.reset()
        peers["torch.compile"] = torch.compile(
            lambda *x: eager(*x), mode="max-autotune", fullgraph=True
        )
    if case.triton and triton:
        peers["triton"] = partial(case.triton, triton)
    return peers


def difference(found: Any, expected: Any) -> float:
    """Return the largest difference, of the largest magnitude that is expected."""
    wide = expected.float()
    return float((found.float() - wide).abs().max() / wide.abs().max())


class Measured:
    """Ours and the peers' times on the device of this machine."""

    device = "cuda"

    def __init__(self, args: argparse.Namespace) -> None:
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise SystemExit("no GPU here (torch.cuda.is_available()): --bounds needs none")
        self.torch, self.args, self.triton = torch, args, triton_kernels()
        if not self.triton:
            NOTES.print("triton: not measured: triton isn't installed")

    def __call__(self, case: Case, target: Target) -> dict[str, Any]:
        """Measure one case; a wrong result of ours is an error, peers that fail are left out."""
        torch = self.torch
        given = inputs_of(case, torch, self.device)
        module = self.compiled(case, target)
        func = case.prim_func()
        kind = getattr(torch, func.buffer_map[func.params[-1]].dtype)
        result = torch.empty(shape_of(func, -1), dtype=kind, device=self.device)
        expected = case.torch(torch, *(x.float() for x in given))

        def ours(*given: Any) -> Any:
            module(*given, result)
            return result

        made: dict[str, Any] = {}
        ways = {"ours": ours, **peers_of(case, torch, self.triton, self.device)}
        for name, call in list(ways.items()):
            try:
                error = difference(call(*given), expected)
                if not error < 2e-2:
                    raise ArithmeticError(f"wrong result, relative difference {error:.3g}")
            except Exception as error:
                if name == "ours":
                    raise
                del ways[name]
                NOTES.print(f"{case.name}: {name}: not measured: {error}", markup=False)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(self.args.rounds):
            for name, call in ways.items():
                times[name].append(self.seconds(partial(call, *given)))
        for name in WAYS:
            made[f"{name}_us"] = statistics.median(times[name]) * 1e6 if name in times else None
        seconds = statistics.median(times["ours"])
        peers = [statistics.median(t) for name, t in times.items() if name != "ours"]
        made["ratio"] = min(peers) / seconds if peers else None
        made["tflops"] = case.flops / seconds / 1e12
        made["gbps"] = bytes_of(func) / seconds / 1e9
        made["share"] = floor(case, target) / seconds
        return made

    def compiled(self, case: Case, target: Target) -> Any:
        """Return our function."""
        return driver.compile(scheduled(case, target, self.args), target)

    @cached_property
    def flush(self) -> Any:
        """Memory larger than the level-2 cache."""
        return self.torch.empty(512 << 20, dtype=self.torch.int8, device=self.device)

    def seconds(self, call: Callable[[], Any]) -> float:
        """Return the seconds of one call."""
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
    failed: list[str] = []
    for case in cases:
        try:
            rows[case.name] = run(case, target)
        except MissingExtraError as error:
            raise SystemExit(str(error)) from None
        except Exception as error:  # one case must not cost the measurements of the others
            if args.bounds:
                raise
            failed.append(f"{case.name}: {type(error).__name__}: {error}")
            continue
        if not args.bounds:  # so that nothing is lost if time is up
            NOTES.print(case.name, json.dumps(rows[case.name]), markup=False)
    if args.json:
        print(json.dumps(rows, indent=1))
    elif rows:
        (write if args.write else show)(rows, str(target.options.get("model", target)))
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
