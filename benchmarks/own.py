"""Workloads as Tilewright compiles them: scheduled by rule or by records, weights packed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.peers import Prepared
from benchmarks.workload import Workload
from tilewright import dlight, driver, relax, runtime
from tilewright.ir import IRModule
from tilewright.meta_schedule import tune_tir
from tilewright.meta_schedule.database import JSONDatabase
from tilewright.meta_schedule.packing import split_packing
from tilewright.meta_schedule.passes import MetaScheduleApplyDatabase
from tilewright.relax.tuning.models import to_tensor_functions, tune_relax
from tilewright.target import Target

Made = tuple[Prepared, dict[str, Any]]


def target_of(threads: int, text: str = "native") -> Target:
    """Return a target, this machine unless told, with so many threads."""
    return Target(text).with_options(num_cores=threads)


def tune(workload: Workload, target: Target, trials: int, work_dir: Path, constant: bool) -> None:
    """Tune an operator into the database of ``work_dir``."""
    if constant and workload.graph is not None:
        tune_relax(graph_of(workload), None, target, work_dir, trials)
    else:
        tune_tir(workload.prim_func(constant), target, work_dir, trials)


def prepare(
    workload: Workload,
    way: str,
    target: Target,
    work_dir: str,
    out_shape: tuple[int, ...],
    constant: bool,
) -> Made:
    """Compile an operator scheduled by ``rule``, or ``tuned`` with the records of ``work_dir``."""
    runtime.set_num_threads(target.num_cores)
    records = work_dir if way == "tuned" else None
    if constant and workload.graph is not None:
        return _as_graph(workload, target, records, out_shape)
    return _as_kernel(workload, target, records, out_shape, constant)


def _with_records(mod: IRModule, target: Target, work_dir: str | None) -> IRModule:
    if work_dir is None:
        return mod
    database = JSONDatabase(work_dir=work_dir)
    return MetaScheduleApplyDatabase(database=database, target=target, enable_warning=True)(mod)


def _as_kernel(
    workload: Workload,
    target: Target,
    work_dir: str | None,
    out_shape: tuple[int, ...],
    constant: bool,
) -> Made:
    """Compile a tensor function; what it wants packed is packed here."""
    mod = _with_records(IRModule({"main": workload.prim_func(constant)}), target, work_dir)
    mod = dlight.default_schedule(target)(mod)
    mod, packed = split_packing(mod)
    start = time.perf_counter()
    module = driver.compile(mod, target)
    seconds = time.perf_counter() - start
    tensors = [runtime.tensor(array) for array in workload.arrays()]
    for operand in packed:
        # What only fills up the last panel is zero.
        made = runtime.empty(operand.info.shape, operand.info.dtype)
        made.numpy()[...] = 0
        module[operand.packer](tensors[operand.position], made)
        tensors[operand.position] = made
    out = runtime.empty(out_shape, workload.out_dtype)
    info = {"compile_seconds": seconds, "packed": [operand.packer for operand in packed]}
    return _prepared(module["main"].ffi, tensors, out), info


def _as_graph(
    workload: Workload, target: Target, work_dir: str | None, out_shape: tuple[int, ...]
) -> Made:
    """Compile a graph that holds the weights as constants."""
    database = None if work_dir is None else JSONDatabase(work_dir=work_dir)
    mod = to_tensor_functions(graph_of(workload), target, database=database)
    mod = _with_records(mod, target, work_dir)
    start = time.perf_counter()
    executable = relax.build(mod, target)
    seconds = time.perf_counter() - start
    arrays = workload.arrays()
    tensors = [
        runtime.tensor(array) for array, item in zip(arrays, workload.inputs) if not item.weight
    ]
    out = runtime.empty(out_shape, workload.out_dtype)
    kernels = [name for name in mod.functions if name != "main"]
    info = {"compile_seconds": seconds, "kernels": kernels}
    return _prepared(executable.mod["main"].ffi, tensors, out), info


def graph_of(workload: Workload) -> IRModule:
    assert workload.graph is not None
    builder = relax.BlockBuilder()
    operands: list[Any] = [
        relax.const(array)
        if item.weight
        else relax.Var(f"x{n}", relax.TensorStructInfo(item.shape, item.dtype))
        for n, (array, item) in enumerate(zip(workload.arrays(), workload.inputs))
    ]
    variables = [operand for operand in operands if isinstance(operand, relax.Var)]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(workload.graph(relax.op, *operands))
        builder.emit_func_output(result)
    return builder.get()


def _prepared(function: Any, tensors: list[Any], out: Any) -> Prepared:
    args = [*tensors, out]

    def call() -> Any:
        return function(*args)

    def result() -> Any:
        call()
        return out.numpy()

    return Prepared(call, result)
