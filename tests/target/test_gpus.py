"""GPUs by name: tags, architectures, options as TVM spells them."""

from __future__ import annotations

import pytest

from tilewright.support.errors import TargetError
from tilewright.target import Target, gpus


@pytest.mark.parametrize("tag", [*gpus.GPUS])
def test_every_tag_is_a_target_whose_text_is_read_back(tag: str) -> None:
    target = Target(tag)
    assert target.kind == "cuda" and target.arch == gpus.GPUS[tag].arch
    assert Target(str(target)) == target == Target(target.export())
    assert target.gpu.threads_per_sm % target.gpu.warp_size == 0
    assert target.max_shared_memory == target.gpu.shared_per_block <= target.gpu.shared_per_sm


def test_short_names_and_tags_in_dictionaries() -> None:
    assert Target("h200") == Target("nvidia/nvidia-h200") == Target({"tag": "nvidia/nvidia-h200"})
    assert Target("rtx-4090").options["num-cores"] == 128


def test_options_beside_a_tag_count() -> None:
    assert (
        Target("nvidia/nvidia-h200 -max_shared_memory_per_block=49152").max_shared_memory == 49152
    )


def test_cuda_alone_takes_what_any_gpu_has() -> None:
    target = Target("cuda")
    assert str(target) == "cuda" and target.arch == gpus.DEFAULT_ARCH
    assert target.max_shared_memory == 48 << 10
    assert Target("cuda -arch=sm_90a").max_shared_memory == 227 << 10


def test_names_of_options_are_tvms_too() -> None:
    given = {"kind": "cuda", "max_num_threads": 256, "l2_cache_size_bytes": 1 << 20}
    assert Target(given).options == {"max-threads": 256, "l2": 1 << 20}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nvidia/h201", r"unknown GPU 'nvidia/h201'; did you mean 'nvidia/nvidia-h200'"),
        ("cuda -arch=sm_33", "unknown GPU architecture 'sm_33'"),
        ("cuda -arch=hopper", "unknown GPU architecture 'hopper'"),
        ("cuda -math=loose", "'math' of target 'cuda' is one of exact, fast, got 'loose'"),
        ("cuda -max-thread=3", "no option 'max-thread'; did you mean 'max-threads'"),
    ],
)
def test_what_is_unknown_is_refused(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        Target(text)


def test_a_cpu_is_no_gpu() -> None:
    with pytest.raises(TargetError, match="'llvm' is no GPU"):
        _ = Target("llvm").gpu
