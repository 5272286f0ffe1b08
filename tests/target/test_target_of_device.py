"""Targets of the GPUs that are here."""

from __future__ import annotations

import pytest
from fake_cuda import FakeDriver

import tilewright
from tilewright import Target
from tilewright.support.errors import RunError, TargetError
from tilewright.target.gpus import model_named


def test_a_gpu_says_what_it_is(fake_cuda: FakeDriver) -> None:
    target = Target.from_device(tilewright.cuda(0))
    assert target.kind == "cuda" and target.arch == "sm_90a"
    assert target.max_shared_memory == 232_448
    assert target.num_cores == 132
    assert target.options["l2"] == 50 << 20 and target.options["clock"] == 1755
    assert target.options["bandwidth"] == 2039 and target.options["registers"] == 65536
    assert "model" not in target.options  # nobody knows an Imaginary H100
    assert Target(str(target)) == target
    fake_cuda.attributes[1].update({75: 8, 76: 6})
    assert Target.from_device(tilewright.cuda(1)).arch == "sm_86"


@pytest.mark.parametrize(
    "name, tag",
    [
        ("NVIDIA H100 80GB HBM3", "nvidia/nvidia-h100"),
        ("NVIDIA H100 PCIe", "nvidia/nvidia-h100-pcie"),
        ("NVIDIA H200", "nvidia/nvidia-h200"),
        ("NVIDIA A100-SXM4-80GB", "nvidia/nvidia-a100"),
        ("NVIDIA GeForce RTX 4090", "nvidia/geforce-rtx-4090"),
        ("Tesla T4", "nvidia/tesla-t4"),
        ("NVIDIA L4", "nvidia/nvidia-l4"),
        ("NVIDIA L40S", "nvidia/nvidia-l40s"),
        ("NVIDIA H2000", None),
        ("", None),
    ],
)
def test_models_by_their_makers_names(name: str, tag: str | None) -> None:
    assert model_named(name) == tag


def test_devices_that_can_not_be_asked(fake_cuda: FakeDriver) -> None:
    with pytest.raises(RunError, match="there is no cuda:8; this process sees 8 devices"):
        Target.from_device(tilewright.cuda(8))
    with pytest.raises(TargetError, match="no target can be detected for device cuda;"):
        Target.from_device("cuda")
