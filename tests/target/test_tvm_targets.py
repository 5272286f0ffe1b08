"""Targets take the arguments, and have the members, that TVM's have."""

from __future__ import annotations

import pickle

import pytest

from tilewright.support.errors import TargetError
from tilewright.target import Target, TargetKind, list_tags, register_tag, tags

CUDA = {"kind": "cuda", "arch": "sm_90"}


def test_hosts_are_this_machine() -> None:
    target = Target(CUDA, host="llvm")
    assert target.host == Target("native")
    assert Target(target).host == target.host and Target(target, host=None).host is not None
    assert Target({**CUDA, "host": {"kind": "llvm"}}).host == Target(CUDA).with_host("llvm").host
    assert Target(CUDA).host is None and target.with_host().host is None
    assert target == Target(CUDA)  # kernels are the same
    assert pickle.loads(pickle.dumps(target)).host == target.host
    for host in ("cuda", "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1"):
        with pytest.raises(TargetError, match="this machine's CPU"):
            Target(CUDA, host)


def test_kinds_are_texts_that_know_more() -> None:
    kind = Target(CUDA).kind
    assert kind == "cuda" and kind.name == "cuda" and isinstance(kind, TargetKind)
    assert (kind.default_device_type, kind.default_keys) == (2, ("cuda", "gpu"))
    assert kind.options["arch"] == "str"
    assert TargetKind.options_from_name("llvm")["num-cores"] == "int"
    with pytest.raises(TargetError, match="unknown kind of target 'lvm'; did you mean 'llvm'"):
        TargetKind.options_from_name("lvm")
    assert {"llvm", "cuda"} <= set(Target.list_kinds())


def test_keys_are_those_of_the_kind_unless_stated() -> None:
    assert Target("llvm").keys == ("cpu",)
    assert Target(CUDA).keys == ("cuda", "gpu")
    assert Target("llvm -device=arm_cpu").keys == ("arm_cpu", "cpu")
    assert Target({"kind": "llvm", "keys": ["mine", "cpu"]}).keys == ("mine", "cpu")
    stated = Target("llvm -keys=mine,cpu")
    assert Target(str(stated)) == stated and stated.export()["keys"] == "mine,cpu"


def test_options_by_tvms_names() -> None:
    attrs = Target("nvidia/nvidia-h100").attrs
    assert (
        attrs["max_threads_per_block"] == attrs["max_num_threads"] == attrs["max-threads"] == 1024
    )
    assert attrs["thread_warp_size"] == 32 and attrs["arch"] == "sm_90a"
    assert "registers_per_block" not in attrs
    assert Target("llvm -num-cores=3").attrs["num-cores"] == 3
    assert Target(CUDA).get_target_device_type() == 2
    assert Target("llvm").get_target_device_type() == 1


def test_json_text_is_a_dictionary() -> None:
    assert Target('{"kind": "cuda", "tag": "", "arch": "sm_90"}') == Target(CUDA)
    with pytest.raises(TargetError, match="is no JSON"):
        Target("{kind: llvm}")


def test_tags_are_registered_once() -> None:
    known = tags.REGISTERED_TAGS
    try:
        config = {"kind": "llvm", "mcpu": "znver4", "num-cores": 16}
        assert register_tag("my/server", config) == Target("llvm -mcpu=znver4 -num-cores=16")
        assert Target({"tag": "my/server", "num-cores": 2}).num_cores == 2
        assert {"my/server", "nvidia/nvidia-h100"} <= set(list_tags())
        with pytest.raises(TargetError, match="override=True replaces it"):
            register_tag("my/server", config)
        assert register_tag("my/server", {"kind": "cuda"}, override=True).kind == "cuda"
        with pytest.raises(TargetError, match="it is a GPU's"):
            register_tag("nvidia/mine", config)
        with pytest.raises(TargetError, match="unknown target"):
            register_tag("my/other", {"kind": "lvm"})
        assert "my/other" not in known
    finally:
        known.pop("my/server", None)
    assert Target("nvidia/nvidia-h100").tag == "nvidia/nvidia-h100" and Target("llvm").tag == ""


def test_given_or_current() -> None:
    with pytest.raises(TargetError, match="no target is active"):
        Target.target_or_current(None)
    with Target(CUDA) as target:
        assert Target.target_or_current(None) is target is Target.current(False)
        assert Target.target_or_current("llvm").kind == "llvm"
