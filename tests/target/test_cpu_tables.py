"""CPUs and features of targets are those of the LLVM that compiles."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import llvmlite.binding as llvm
import pytest

from tilewright import driver, te
from tilewright.ir import IRModule
from tilewright.support.errors import TargetError
from tilewright.target import Target, cpus, x86_tables
from tilewright.tir import Schedule

ROOT = Path(__file__).parents[2]
ARM = "llvm -mtriple=aarch64-linux-gnu"
X86 = "llvm -mtriple=x86_64-linux-gnu"
sys.path.insert(0, str(ROOT / "tools"))

SAME_LLVM = pytest.mark.skipif(
    tuple(llvm.llvm_version_info) != x86_tables.LLVM_VERSION,
    reason="the tables are of another LLVM",
)


def tool() -> ModuleType:
    import cpu_tables as made

    return made


def vector_sum() -> IRModule:
    a = te.placeholder((64,), name="a")
    sch = Schedule(te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="b")]))
    _, inner = sch.split(sch.get_loops("b")[0], [None, 16])
    sch.vectorize(inner)
    return sch.mod


@SAME_LLVM
@pytest.mark.parametrize("place", [0, 1])
def test_llvm_has_the_features_of_each_cpu_and_no_other(place: int) -> None:
    made = tool()
    arch, table = (
        made.ARCHITECTURES[place],
        (cpus.table_of("i386"), cpus.table_of("aarch64"))[place],
    )
    assert table is not None
    names = sorted(table.cpus)
    has = {name: table.closed(table.cpus[name]) - {"64bit"} for name in names}
    features = sorted(set(table.implied) - {"64bit"})
    chosen = [(name, feature) for name in names for feature in features if feature not in has[name]]
    chosen = random.Random(place).sample(chosen, 150)
    all_of_them = [((name, ""), ",".join(f"+{one}" for one in sorted(has[name]))) for name in names]
    lacking = [((name, ""), f"+{feature}") for name, feature in chosen]
    answers = made.covers(arch, all_of_them + lacking)
    assert answers == [True] * len(names) + [False] * len(lacking)


@SAME_LLVM
@pytest.mark.parametrize("place", [0, 1])
def test_llvm_brings_what_a_feature_needs(place: int) -> None:
    made = tool()
    arch, table = (
        made.ARCHITECTURES[place],
        (cpus.table_of("i386"), cpus.table_of("aarch64"))[place],
    )
    assert table is not None
    features = sorted(set(table.implied) - {"64bit"})
    least = {name: (arch.cpu, f"{arch.without},+{name}") for name in features}
    brought = [(least[a], f"+{b}") for a in features for b in sorted(table.implied[a])]
    pairs = random.Random(place).sample([(a, b) for a in features for b in features], 150)
    others = [(a, b) for a, b in pairs if b not in table.implied[a]]
    answers = made.covers(arch, brought + [(least[a], f"+{b}") for a, b in others])
    assert answers == [True] * len(brought) + [False] * len(others)


@SAME_LLVM
def test_names_are_llvms() -> None:
    made = tool()
    for arch, triple in zip(made.ARCHITECTURES, ("x86_64", "aarch64"), strict=True):
        table = cpus.table_of(triple)
        assert table is not None
        named, features = made.names_of(arch)
        assert sorted(table.cpus) == named
        assert sorted({*table.implied, *table.others}) == sorted(features)


@pytest.mark.parametrize(
    ("cpu", "bits", "registers"),
    [
        ("sandybridge", 256, 16),
        ("ivybridge", 256, 16),
        ("btver2", 256, 16),
        ("bdver4", 256, 16),
        ("tigerlake", 512, 32),
        ("rocketlake", 512, 32),
        ("cooperlake", 512, 32),
        ("knl", 512, 32),
        ("diamondrapids", 512, 32),
        ("arrowlake", 256, 16),
        ("nehalem", 128, 16),
        ("k8", 128, 16),
        ("x86-64", 128, 16),
    ],
)
def test_vectors_of_x86_cpus(cpu: str, bits: int, registers: int) -> None:
    target = Target(f"{X86} -mcpu={cpu}")
    assert (target.vector_bits, target.vector_registers) == (bits, registers)


def test_vectors_of_arm_cpus() -> None:
    assert Target(f"{ARM} -mcpu=cortex-a72").vector_bits == 128
    assert Target(f"{ARM} -mcpu=a64fx").vector_bits == 512
    assert Target(f"{ARM} -mcpu=grace").has("sve2")
    assert Target(ARM).features == {"neon", "fp-armv8"}


def test_a_feature_brings_what_it_needs() -> None:
    target = Target(f"{X86} -mcpu=x86-64 -mattr=+avx2")
    assert target.vector_bits == 256
    assert {"avx2", "avx", "sse4.2", "ssse3"} <= target.features
    assert not target.has("fma")


def test_what_a_feature_takes_with_it() -> None:
    target = Target(f"{X86} -mcpu=skylake-avx512 -mattr=-avx512f")
    assert target.vector_bits == 256 and not target.has("avx512bw")
    assert target.has("avx2") and target.has("fma")
    words = target.feature_string.split(",")
    assert {"-avx512f", "-avx512bw", "-avx512vl", "+avx2"} <= set(words)


def test_changes_apply_in_order() -> None:
    assert not Target(f"{X86} -mattr=+avx512bw,-avx512f").has("avx512bw")
    assert Target(f"{X86} -mattr=-avx512f,+avx512bw").has("avx512f")


def test_how_code_is_made_can_be_said_too() -> None:
    target = Target(f"{X86} -mcpu=znver4 -mattr=+prefer-256-bit,-slow-shld")
    assert "+prefer-256-bit" in target.feature_string
    assert "-slow-shld" in target.feature_string


@pytest.mark.parametrize("cpu", ["skylake-avx512", "knl"])
def test_llvm_keeps_to_what_was_taken_away(cpu: str) -> None:
    kept = driver.compile(vector_sum(), f"{X86} -mcpu={cpu}").get_source("asm")
    assert "zmm" in kept
    taken = driver.compile(vector_sum(), f"{X86} -mcpu={cpu} -mattr=-avx512f").get_source("asm")
    assert "zmm" not in taken and "ymm" in taken


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llvm -mcpu=nonsense", "no x86-64 CPU 'nonsense'.*known: alderlake"),
        ("llvm -mcpu=skylake-avx51", "did you mean 'skylake-avx512'"),
        ("llvm -mcpu=neoverse-v1", "one of AArch64, which needs -mtriple"),
        ("llvm -mcpu=pentium3", "needs 64bit, which -mcpu=pentium3 lacks"),
        ("llvm -mattr=-sse2", "needs sse2, which .* with -mattr=-sse2 lacks"),
        ("llvm -mattr=+avx9", r"no x86-64 feature 'avx9' \(-mattr\); did you mean 'avx'"),
        ("llvm -mattr=+soft-float", "no x86-64 feature 'soft-float'"),
        (f"{ARM} -mcpu=haswell", "one of x86-64"),
        (f"{ARM} -mattr=-fp-armv8", "AArch64 needs neon"),
    ],
)
def test_what_llvm_does_not_know_is_refused(text: str, message: str) -> None:
    text = text.replace("llvm", X86, 1) if "mtriple" not in text else text
    with pytest.raises(TargetError, match=message):
        Target(text)


def test_importing_does_not_load_llvm() -> None:
    program = (
        "import sys, tilewright; "
        "tilewright.target.Target('llvm -mcpu=haswell -mtriple=x86_64-linux-gnu'); "
        "print([name for name in sys.modules if 'llvmlite' in name])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout == "[]\n", said.stderr


def test_this_machine_lacks_what_its_hypervisor_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "skylake-avx512"
    monkeypatch.setattr("tilewright.target.host.cpu_name", lambda: name)
    shown = (frozenset({"64bit", "sse2", "avx2"}), frozenset({"avx512bw", "rtm"}))
    monkeypatch.setattr("tilewright.target.host.cpu_features", lambda: shown)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    target = Target("native")
    assert target.has("avx512f") and not target.has("avx512bw")
    assert "-avx512bw" in target.feature_string
