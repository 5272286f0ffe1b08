"""Graphs of ``torch.compile`` with tensors on a GPU: compiled for it; without a GPU, not called."""

from __future__ import annotations

from typing import Any

import pytest
from fake_cuda import FakeDriver

from tilewright.support.errors import BuildError
from tilewright.torch.dynamo import compile_aten
from tilewright.torch.options import Options
from tilewright.torch.partition import Partition
from tilewright.torch.program import call_with_copies

torch = pytest.importorskip("torch")


def traced(function: Any, *places: str) -> Any:
    """The graph of a function of tensors on devices that needn't be there."""
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode() as mode:
        inputs = [torch.empty(4, 8, device=place) for place in places]
        with mode:
            return make_fx(function)(*inputs)


def test_a_graph_is_compiled_for_its_gpu(fake_cuda: FakeDriver) -> None:
    fake_cuda.attributes[3].update({75: 8, 76: 6})
    graph = traced(lambda x, y: torch.relu(x + y), "cuda:3", "cuda:3")
    assert Partition(graph.graph).device == torch.device("cuda:3")
    run = compile_aten(graph, Options())
    (executable,) = [item for item in run.__globals__.values() if hasattr(item, "signatures")]
    assert executable.device_kind == "cuda" and "-arch=sm_86" in executable.target
    assert run.__globals__["cuda"] == torch.device("cuda:3")


def test_what_is_on_other_devices_is_pytorchs(fake_cuda: FakeDriver) -> None:
    graph = traced(lambda x, y: (x.exp() + 1, y.exp(), x * y.sum()), "cuda:0", "cpu")
    partition = Partition(graph.graph)
    compiled = {node.target for node in partition.convertible}
    assert torch.ops.aten.add.Tensor in compiled
    reasons = [reason for reason in partition.reasons.values() if reason == "a tensor is on cpu"]
    assert len(reasons) == 3  # y's exponentials, their sum, the product with x


def test_threads_are_for_the_cpu(fake_cuda: FakeDriver) -> None:
    graph = traced(lambda x: x + 1, "cuda:0")
    with pytest.raises(BuildError, match="option 'threads' is for the CPU; the graph runs on cuda"):
        compile_aten(graph, Options(threads=2))


def test_views_that_begin_between_vectors_are_copied() -> None:
    """A kernel that moves vectors refuses them; what it writes in place gets back to them."""
    seen = []

    def add_into(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
        for item in (x, y, out):
            if item.data_ptr() % 16:
                raise ValueError("aligned")
        seen.append((x.data_ptr(), y.data_ptr(), out.data_ptr()))
        out.copy_(x + y)

    def called(*given: torch.Tensor) -> None:
        try:
            add_into(*given)
        except ValueError:
            call_with_copies(add_into, given, 2)

    memory = torch.arange(40, dtype=torch.float32)
    odd, even, result = memory[1:9], memory[16:24], torch.zeros(8)
    called(odd, even, result)
    assert result.tolist() == [18 + 2 * i - 1 for i in range(8)]
    ((x, y, out),) = seen
    assert x % 16 == 0 and x != odd.data_ptr() and (y, out) == (even.data_ptr(), result.data_ptr())
    called(odd, even, odd)  # in place
    assert odd.tolist() == result.tolist() and memory[9] == 9
    assert seen[1][0] == seen[1][2]


def test_other_refusals_stay_as_they_are() -> None:
    def refuse(x: torch.Tensor) -> None:
        raise ValueError("of another shape")

    with pytest.raises(ValueError, match="of another shape"):
        try:
            refuse(torch.zeros(4))
        except ValueError:
            call_with_copies(refuse, (torch.zeros(4), 3), 1)


def test_calls_for_gpus_are_repeated_with_copies(fake_cuda: FakeDriver) -> None:
    fake_cuda.attributes[0].update({75: 8, 76: 6})
    graph = traced(lambda x, y: torch.relu(x + y), "cuda:0", "cuda:0")
    run = compile_aten(graph, Options())
    assert "except ValueError: call_with_copies" in run.__doc__
