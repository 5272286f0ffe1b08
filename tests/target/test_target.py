from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tilewright.support.errors import TargetError
from tilewright.target import Target


def test_native_is_filled_in() -> None:
    target = Target("native")
    assert target.kind == "llvm"
    assert target.num_cores == len(os.sched_getaffinity(0))
    assert target.mcpu and target.vector_bits >= 128


def test_text_round_trips() -> None:
    target = Target("llvm -mcpu=znver4 -num-cores=2")
    assert Target(str(target)) == target
    assert Target(target.export()) == target


def test_missing_num_cores_is_not_an_error() -> None:
    assert Target("llvm").num_cores >= 1


def test_features_follow_the_named_cpu() -> None:
    assert Target("llvm -mcpu=haswell").vector_bits == 256
    assert Target("llvm -mcpu=znver4").vector_bits == 512
    assert Target("llvm -mcpu=znver4 -mattr=-avx512f").vector_bits == 256


def test_unknown_kind_names_near_matches() -> None:
    with pytest.raises(TargetError, match=r"unknown target 'lvm'; did you mean 'llvm'"):
        Target("lvm")


def test_unknown_option() -> None:
    with pytest.raises(TargetError, match=r"no option 'num-core'; did you mean 'num-cores'"):
        Target("llvm -num-core=2")


def test_bad_value() -> None:
    with pytest.raises(TargetError, match="takes int, got 'two'"):
        Target("llvm -num-cores=two")


def test_current_nests() -> None:
    assert Target.current() is None
    with Target("llvm") as outer:
        with Target("llvm -num-cores=1") as inner:
            assert Target.current() is inner
        assert Target.current() is outer


@pytest.mark.parametrize("value", ["0", "-2"])
def test_numbers_are_positive(value: str) -> None:
    with pytest.raises(TargetError, match=r"'num-cores' of target 'llvm' must be positive"):
        Target(f"llvm -num-cores={value}")


def test_what_is_no_description() -> None:
    with pytest.raises(TargetError, match=r"a target is text such as 'native' .* got int"):
        Target(3)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="can't be read: No closing quotation"):
        Target("llvm -mcpu='x")
    with pytest.raises(TargetError, match="an empty target"):
        Target("")


@pytest.mark.parametrize("triple", ["nonsense", "foo-bar-baz", "x86_6"])
def test_llvm_has_a_code_generator_for_a_triple(triple: str) -> None:
    with pytest.raises(TargetError, match=f"LLVM has no target for -mtriple='{triple}'"):
        Target(f"llvm -mtriple={triple}")
    with pytest.raises(TargetError, match="LLVM has no target"):
        Target({"kind": "llvm", "mtriple": triple})


def test_triples_without_a_table_are_llvms_to_know() -> None:
    assert Target("llvm -mtriple=riscv64-unknown-linux-gnu").triple.startswith("riscv64")


def test_this_machine_may_be_taken_for_a_lesser_one() -> None:
    """The setting is read by a process once, so another one is asked."""
    ask = (
        "from tilewright.target import Target, host; here = Target('native');"
        "print(here.mcpu, here.has('avx512f'), here.has('avx2'), '-avx512f' in host.feature_text())"
    )

    def ask_as(cpu: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TILEWRIGHT_HOST_CPU": cpu}
        return subprocess.run(
            [sys.executable, "-c", ask], env=environment, capture_output=True, text=True
        )

    if Target("native").has("avx2"):
        assert ask_as("haswell").stdout.split() == ["haswell", "False", "True", "True"]
        refused = ask_as("diamondrapids").stderr
        assert "host_cpu=diamondrapids: this machine lacks" in refused
    assert "TargetError" in ask_as("nonsense").stderr


def test_a_virtual_machine_shares_the_last_cache() -> None:
    # Whatever it is told, two cores of many don't have all of it.
    assert Target("native").l3_bytes <= (24 << 20) * (os.cpu_count() or 1)
    assert Target("llvm -l3=300000000").l3_bytes == 300_000_000
