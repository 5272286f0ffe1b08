"""``python -m benchmarks.gpu``: its cases are right where small, and its run survives its peers."""

from __future__ import annotations

import argparse
import builtins
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import gpu, gpu_cases  # noqa: E402
from tests.everyday import few  # noqa: E402
from tilewright import driver  # noqa: E402
from tilewright.codegen.cuda import nvrtc  # noqa: E402
from tilewright.runtime.dlpack import numpy_dtype  # noqa: E402
from tilewright.support.errors import MissingExtraError  # noqa: E402
from tilewright.target import Target  # noqa: E402
from tilewright.tir.interpreter import simulate  # noqa: E402

HOPPER = Target("nvidia/nvidia-h200")
BY_RULE = argparse.Namespace(trials=0, rounds=3)


def arrays(case: gpu_cases.Case) -> tuple[list[Any], list[Any]]:
    """Operands as PyTorch's tensors and as NumPy's arrays."""
    given = gpu.inputs_of(case, torch, "cpu")
    kinds = [numpy_dtype(dtype) for _, dtype in case.inputs]
    return given, [
        x.view(torch.uint8).numpy().view(kind) if x.dtype.itemsize == 1
        else x.float().numpy().astype(kind)
        for x, kind in zip(given, kinds)
    ]  # fmt: skip


PRODUCTS = {
    f"{dtype}{', tensor maps' if maps else ''}": (dtype, maps)
    for dtype in ("float16", "float8_e4m3fn")
    for maps in (False, True)
}


@few("name", PRODUCTS, "float8_e4m3fn")
def test_products_are_right_on_the_simulator(name: str) -> None:
    dtype, maps = PRODUCTS[name]
    shapes = ((64, 128), (64, 128)) if "8_" in dtype else ((64, 64), (64, 64))
    case = replace(
        gpu_cases._matmul(64, dtype, tensor_maps=maps),
        inputs=tuple((shape, dtype) for shape in shapes),
    )
    lowered = driver.lower(gpu.scheduled(case, HOPPER, BY_RULE), HOPPER)
    assert "T.ptx_wgmma(" in lowered.script()
    given, operands = arrays(case)
    func = case.prim_func()
    result = np.zeros((64, 64), func.buffer_map[func.params[-1]].dtype)
    simulate(lowered, *operands, result, check_races=True)
    expected = case.torch(torch, *(x.float() for x in given))
    assert gpu.difference(torch.from_numpy(result.astype("float32")), expected) < 1e-2


@few("maps", [False, True], True)
def test_products_of_8_bits_take_no_memory_for_registers(maps: bool) -> None:
    try:
        nvrtc.nvrtc_version()
    except MissingExtraError:
        pytest.skip("needs NVRTC (the extra 'cuda')")
    found = gpu.bounds(gpu_cases._matmul(4096, "float8_e4m3fn", tensor_maps=maps), HOPPER, BY_RULE)
    assert found["spilled"] == 0 and found["shared: turns"] == 1.0


def test_what_the_library_multiplies_is_what_is_said() -> None:
    case = gpu_cases._matmul(64, "float8_e4m3fn")
    given = gpu.inputs_of(case, torch, "cpu")
    assert case.library is not None
    found = case.library(torch, "cpu")(*given)
    assert found.dtype == torch.bfloat16
    assert gpu.difference(found, case.torch(torch, *(x.float() for x in given))) < 1e-2


def test_the_page_has_all_cases() -> None:
    page = gpu.PAGE.read_text().partition(gpu.BEGIN)[2].partition(gpu.END)[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if "|" in line]
    assert rows[2:] == [case.name for case in gpu_cases.CASES]
    for dtype in ("float16", "bfloat16", "float8_e4m3fn"):
        assert {f"gemm {dtype} {size}³" for size in (4096, 8192)} <= {*rows}


def test_each_case_is_compiled_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the first ones, until its cache of one function is full."""
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    compiler = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda call, *, mode, **given: compiler(call, backend=backend, **given)
    )
    cases = [case for case in gpu_cases.CASES if len(case.inputs) == 1]
    with torch._dynamo.config.patch(recompile_limit=1):  # what monkeypatch would lose at the end
        for case in cases:
            small = replace(case, inputs=(((8, 16), "float16"),))
            (given,) = gpu.inputs_of(small, torch, "cpu")
            gpu.peers_of(small, torch, None, "cpu")["torch.compile"](given)
    assert len(graphs) == len(cases) > 2


class OnProcessor(gpu.Measured):
    """The run on this processor, whose time stands still."""

    device = "cpu"

    def compiled(self, case: gpu_cases.Case, target: Target) -> Any:
        return driver.compile(case.prim_func(), Target("llvm"))

    def seconds(self, call: Any) -> float:
        call()
        return 1e-3


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> OnProcessor:
    monkeypatch.setattr(torch, "compile", lambda call, **_: call)
    monkeypatch.setattr(gpu, "triton_kernels", lambda: None)
    return OnProcessor(BY_RULE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float8_e4m3fn"])
def test_ours_is_measured_beside_its_peers(dtype: str, measured: OnProcessor) -> None:
    row = measured(gpu_cases._matmul(64, dtype), HOPPER)
    assert row["ours_us"] == pytest.approx(1e3) and row["triton_us"] is None
    if dtype == "int8":
        assert row["torch_us"] is None and row["ratio"] is None
    else:
        assert row["torch_us"] == row["torch.compile_us"] == pytest.approx(1e3)
        assert row["ratio"] == 1.0


def test_peers_that_fail_or_are_wrong_are_left_out_and_told(
    measured: OnProcessor, capsys: pytest.CaptureFixture[str]
) -> None:
    def gemm(a: Any, b: Any, *, turned: bool) -> Any:
        return torch.matmul(a, b) * (1.0 if turned else 1.1)

    def broken(*_: Any) -> Any:
        raise RuntimeError("no such kernel")

    measured.triton = SimpleNamespace(gemm=gemm)
    case = gpu_cases._matmul(64, "float16")
    row = measured(replace(case, library=lambda torch, device: broken), HOPPER)
    assert row["torch_us"] is row["torch.compile_us"] is row["triton_us"] is row["ratio"] is None
    told = capsys.readouterr().err
    assert "gemm float16 64³: torch: not measured: no such kernel" in told
    assert "gemm float16 64³: triton: not measured: wrong result, relative difference" in told


def test_a_wrong_result_of_ours_is_an_error(measured: OnProcessor) -> None:
    case = gpu_cases._matmul(64, "float16")
    with pytest.raises(ArithmeticError, match="wrong result"):
        measured(replace(case, torch=lambda torch, a, b: torch.matmul(b, a)), HOPPER)


def test_a_case_that_fails_does_not_cost_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(case: gpu_cases.Case, target: Target) -> dict[str, Any]:
        if "gelu" in case.name:
            raise ArithmeticError("wrong result")
        return {"ours_us": 1.0}

    monkeypatch.setattr(gpu, "Measured", lambda args: run)
    monkeypatch.setattr(
        sys, "argv", ["gpu", "--target", "nvidia/nvidia-h200", "--only", "elu 4096", "--json"]
    )
    with pytest.raises(SystemExit, match="gelu 4096²: ArithmeticError: wrong result"):
        gpu.main()
    assert '"relu 4096²": {' in capsys.readouterr().out.encode().decode("unicode_escape")


def test_no_triton_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "benchmarks.gpu_triton", raising=False)
    monkeypatch.delattr("benchmarks.gpu_triton", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)  # which is then not found
    assert gpu.triton_kernels() is None


def test_a_module_that_the_kernels_lack_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    find = builtins.__import__

    def missing(name: str, *given: Any, **named: Any) -> Any:
        if name == "benchmarks":
            raise ModuleNotFoundError("no torch", name="torch")
        return find(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ModuleNotFoundError, match="no torch"):
        gpu.triton_kernels()
