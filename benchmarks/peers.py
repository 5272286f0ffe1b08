"""What we are compared with: each peer makes a workload ready the way its users would.

With constant weights a peer gets them as constants, and may pack them beforehand: parameters of a
frozen module for torch.compile, initializers of the model for onnxruntime and OpenVINO.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workload import Array, Unavailable, Workload

Call = Callable[[], Any]


def difference(found: Any, expected: Any) -> float:
    """Return the largest difference over the largest value; infinite where shapes differ."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if found.shape != expected.shape:
        if found.size != expected.size:
            return float("inf")
        found = found.reshape(expected.shape)
    worst = float(np.abs(found - expected).max(initial=0.0))
    if not np.isfinite(worst):
        return float("inf")
    return worst / max(float(np.abs(expected).max(initial=0.0)), 1e-30)


@dataclass(frozen=True)
class Prepared:
    """A workload made ready: ``call`` runs it, ``result`` runs it and returns numbers."""

    call: Callable[[], Any]
    result: Callable[[], Array]


@dataclass(frozen=True)
class Request:
    """What a peer is to make ready; ``out_shape`` is the shape of the result."""

    workload: Workload
    arrays: Sequence[Array]
    out_shape: tuple[int, ...]
    threads: int
    constant_weights: bool


def _numpy(request: Request) -> Prepared:
    workload, arrays = request.workload, request.arrays
    if workload.numpy is None:
        raise Unavailable("numpy has no fast way")
    function = workload.reference if isinstance(workload.numpy, str) else workload.numpy

    def call() -> Array:
        return function(*arrays)

    return Prepared(call, call)


def torch_module(threads: int) -> Any:
    """Import torch, with so many threads and without gradients."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch


def _torch_tensor(torch: Any, array: Array) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _torch_numbers(torch: Any, tensor: Any) -> Array:
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return np.asarray(tensor.numpy())


def _torch(request: Request) -> Prepared:
    workload = request.workload
    function = workload.torch
    if function is None:
        raise Unavailable("torch has no such operator")
    torch = torch_module(request.threads)
    tensors: Sequence[Any] = [_torch_tensor(torch, array) for array in request.arrays]
    if workload.torch_prepare is not None:
        tensors = workload.torch_prepare(torch, *tensors)
    functional = torch.nn.functional

    def call() -> Any:
        return function(torch, functional, *tensors)

    return Prepared(call, lambda: _torch_numbers(torch, call()))


def inductor(threads: int, *, freezing: bool) -> Any:
    """Import torch with ``torch.compile`` set up."""
    # Compiling in this process: idle helpers would disturb the others' turns.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch = torch_module(threads)
    import torch._inductor.config as config

    torch._dynamo.reset()
    config.freezing = freezing
    return torch


def _torch_compile(request: Request) -> Prepared:
    workload = request.workload
    function = workload.torch
    if function is None:
        raise Unavailable("torch has no such operator")
    run, torch = function, inductor(request.threads, freezing=request.constant_weights)
    tensors: Sequence[Any] = [_torch_tensor(torch, array) for array in request.arrays]
    if workload.torch_prepare is not None:
        tensors = workload.torch_prepare(torch, *tensors)
    fixed = set(workload.weights) if request.constant_weights else set()

    class Subject(torch.nn.Module):  # type: ignore[name-defined]  # torch is imported late
        def __init__(self) -> None:
            super().__init__()
            for n in sorted(fixed):
                self.register_buffer(f"x{n}", tensors[n])

        def forward(self, *rest: Any) -> Any:
            given = iter(rest)
            args = [
                getattr(self, f"x{n}") if n in fixed else next(given) for n in range(len(tensors))
            ]
            return run(torch, torch.nn.functional, *args)

    compiled = torch.compile(Subject().eval(), dynamic=False, fullgraph=True)
    rest = [tensor for n, tensor in enumerate(tensors) if n not in fixed]

    def call() -> Any:
        return compiled(*rest)

    return Prepared(call, lambda: _torch_numbers(torch, call()))


def _numba(request: Request) -> Prepared:
    loops, arrays = request.workload.loops, request.arrays
    if loops is None:
        raise Unavailable("there is no loop nest for Numba")
    import numba

    numba.set_num_threads(request.threads)
    # Compiled below: until then, functions and ``prange`` are plain Python's.
    loops.__globals__["prange"] = numba.prange
    compiled = numba.njit(
        loops, parallel=request.threads > 1, fastmath=True, error_model="numpy", cache=False
    )

    def call() -> Any:
        return compiled(*arrays)

    return Prepared(call, lambda: np.asarray(call()))


def _fastest(request: Request, load: Callable[[bytes], Prepared]) -> Prepared:
    """Try every way to write the workload as a graph; return the fastest that the peer takes."""
    from benchmarks.onnx_graph import make_model

    found: list[tuple[float, Prepared]] = []
    refusals = []
    for write in request.workload.onnx:
        model = make_model(
            request.workload, write, request.arrays, request.out_shape, request.constant_weights
        )
        try:
            prepared = load(model)
            prepared.call()
        except Exception as error:  # the peer's own classes; what it says is reported
            refusals.append(str(error).strip().replace("\n", " "))
            continue
        found.append((_briefly(prepared.call), prepared))
    if not found:
        raise Unavailable(f"no such operator: {'; '.join(refusals)[:200]}")
    return min(found, key=lambda item: item[0])[1]


def _briefly(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _onnxruntime(request: Request) -> Prepared:
    if any(array.dtype.name == "bfloat16" for array in request.arrays):
        raise Unavailable("onnxruntime computes no bf16 on CPUs")
    return _fastest(
        request, lambda model: load_onnxruntime(model, request.arrays, request.threads).first
    )


def _openvino(request: Request) -> Prepared:
    precision = "bf16" if request.workload.kind == "bfloat16" else "f32"
    # Operands of products with quantised weights are rounded to 8 bits in groups of so many.
    rounded = 32 if request.workload.limit > 1e-2 else 0
    return _fastest(
        request,
        lambda model: (
            load_openvino(model, request.arrays, request.threads, precision, rounded).first
        ),
    )


@dataclass(frozen=True)
class Loaded:
    """A graph made ready: ``call`` runs it, ``results`` runs it and returns numbers."""

    call: Callable[[], Any]
    results: Callable[[], Sequence[Array]]

    @property
    def first(self) -> Prepared:
        """The graph with its first result only."""
        return Prepared(self.call, lambda: self.results()[0])


def load_onnxruntime(model: bytes | str, arrays: Sequence[Array], threads: int) -> Loaded:
    """Make an ONNX model, or the file of one, ready; its inputs are named x0, x1 …"""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    values = []  # bound values must outlive the binding
    for item in session.get_inputs():
        values.append(ort.OrtValue.ortvalue_from_numpy(arrays[int(item.name[1:])]))
        binding.bind_ortvalue_input(item.name, values[-1])
    for item in session.get_outputs():
        binding.bind_output(item.name, "cpu")

    def call() -> Any:
        session.run_with_iobinding(binding)
        return values

    def results() -> Sequence[Array]:
        call()
        return [np.asarray(item) for item in binding.copy_outputs_to_cpu()]

    return Loaded(call, results)


def load_openvino(
    model: bytes | str,
    arrays: Sequence[Array],
    threads: int,
    precision: str = "f32",
    rounded: int = 0,
) -> Loaded:
    """The same for OpenVINO, which computes in ``precision`` ("f32" or "bf16")."""
    import openvino as ov

    core = ov.Core()
    compiled = core.compile_model(
        core.read_model(model),
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": str(threads),
            # Without this, fp32 models are computed in bf16 where the CPU has it.
            "INFERENCE_PRECISION_HINT": precision,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(rounded),
        },
    )
    running = compiled.create_infer_request()
    tensors = []
    for item in compiled.inputs:
        array = arrays[int(item.get_any_name()[1:])]
        if array.dtype.name == "bfloat16":
            tensors.append(ov.Tensor(array.view(np.uint16), array.shape, ov.Type.bf16))
        else:
            tensors.append(ov.Tensor(array, shared_memory=True))
        running.set_tensor(item, tensors[-1])

    def call() -> Any:
        running.infer()
        return tensors

    def numbers(tensor: Any) -> Array:
        if tensor.element_type == ov.Type.bf16:
            import ml_dtypes

            return np.asarray(tensor.data).view(ml_dtypes.bfloat16).astype(np.float32)
        return np.array(tensor.data)

    def results() -> Sequence[Array]:
        call()
        return [numbers(running.get_output_tensor(n)) for n in range(len(compiled.outputs))]

    return Loaded(call, results)


@dataclass(frozen=True)
class Peer:
    """How a peer makes workloads ready, and the packages that this needs."""

    prepare: Callable[[Request], Prepared]
    packages: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        """The packages that aren't installed."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]


PEERS: dict[str, Peer] = {
    "torch": Peer(_torch, ("torch",)),
    "torch_compile": Peer(_torch_compile, ("torch",)),
    "onnxruntime": Peer(_onnxruntime, ("onnxruntime", "onnx")),
    "openvino": Peer(_openvino, ("openvino", "onnx")),
    "numpy": Peer(_numpy, ("numpy",)),
    "numba": Peer(_numba, ("numba",)),
}
