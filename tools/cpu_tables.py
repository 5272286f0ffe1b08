"""Write `src/tilewright/target/*_tables.py`: CPUs and their features, asked of LLVM.

python tools/cpu_tables.py           # write the tables (a few minutes)
python tools/cpu_tables.py --check   # exit status 1 if LLVM answers otherwise

LLVM's bindings name CPUs and features, but don't say what a CPU has or what a feature brings. The
inliner tells: it takes a function in only if the caller has all features of the callee.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm

TARGET = Path(__file__).parent.parent / "src/tilewright/target"
_BATCH = 4000
# Other modes and calling conventions: LLVM ends the process, or other code can't call what it made.
_UNUSABLE = re.compile(r"\d\dbit-mode|soft-float|x32")
_CALLER = re.compile(r"^define i32 @caller(\d+)\(.*?^}", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Architecture:
    """How LLVM is asked about the CPUs of one architecture."""

    name: str
    triple: str
    cpu: str  # one that has as little as possible,
    without: str  # and what of that is taken away for comparisons
    not_instructions: str  # a pattern of features that say how code is made, or for the kernel only


ARCHITECTURES = (
    Architecture(
        "x86",
        # CPUs without 64 bits end the process where 64 are asked for.
        "i686-unknown-linux-gnu",
        "i386",
        "-x87",
        r"retpoline|lvi-|seses|harden-|tagged-|prefer-|inline-asm|slow-|fast|"
        r"use-|false-deps|branch|sbb-|no-|ermsb|cx16",
    ),
    Architecture(
        "aarch64",
        "aarch64-unknown-linux-gnu",
        "generic",
        "-trbe,-fuse-aes,-fuse-adrp-add,-use-postra-scheduler,-enable-select-opt,-fp-armv8",
        # What the compiler may use has one of these names; most others are tuning or for kernels.
        r"(?!(neon|fp-armv8|fullfp16|fp16fml|dotprod|bf16|i8mm|f32mm|f64mm|f16mm|f16f32|sve|sme|"
        r"ssve|fp8|faminmax|lut|complxnum|jsconv|rdm|crc|lse|aes|sha2|sha3|sm4|crypto|fptoint|"
        r"rcpc|flagm|mops|cssc|v[89]\.?\d?a$)).*",
    ),
)


def names_of(arch: Architecture) -> tuple[list[str], list[str]]:
    """Return LLVM's names of CPUs and of features, which it prints once in a process."""
    program = (
        "import llvmlite.binding as llvm; llvm.initialize_all_targets();"
        f"llvm.Target.from_triple({arch.triple!r}).create_target_machine(cpu={arch.cpu!r},"
        "features='+help')"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr
    cpus, _, features = said.partition("Available features")
    return (
        re.findall(r"^  (\S+)\s+- ", cpus, re.MULTILINE),
        [
            name
            for name in re.findall(r"^  (\S+)\s+- ", features, re.MULTILINE)
            if not _UNUSABLE.fullmatch(name)
        ],
    )


def covers(arch: Architecture, pairs: Sequence[tuple[tuple[str, str], str]]) -> list[bool]:
    """Whether callers ``(CPU, features)`` have all of the features that stand beside them."""
    found: list[bool] = []
    for start in range(0, len(pairs), _BATCH):
        found += _covers(arch, pairs[start : start + _BATCH])
    return found


def _covers(arch: Architecture, pairs: Sequence[tuple[tuple[str, str], str]]) -> list[bool]:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    lines = [f'target triple = "{arch.triple}"']
    for n, ((cpu, features), wanted) in enumerate(pairs):
        lines += [
            f'define internal i32 @callee{n}(ptr %p) "target-cpu"="{arch.cpu}" '
            f'"target-features"="{arch.without},{wanted}" {{',
            "  %v = load volatile i32, ptr %p\n  ret i32 %v\n}",
            f'define i32 @caller{n}(ptr %p) "target-cpu"="{cpu}" "target-features"="{features}" {{',
            f"  %v = call i32 @callee{n}(ptr %p)\n  ret i32 %v\n}}",
        ]
    module = llvm.parse_assembly("\n".join(lines))
    machine = llvm.Target.from_triple(arch.triple).create_target_machine(cpu=arch.cpu)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    builder.getModulePassManager().run(module, builder)
    bodies = {int(m[1]): m[0] for m in _CALLER.finditer(str(module))}
    return [f"@callee{n}(" not in bodies[n] for n in range(len(pairs))]


def runs_64_bit(cpu: str) -> bool:
    """Whether code of 64 bits can be made for a CPU of x86; LLVM ends the process if not."""
    child = os.fork()
    if child == 0:
        os.close(2)
        machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu=cpu)
        machine.emit_object(llvm.parse_assembly("define void @f() { ret void }"))
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@dataclass(frozen=True)
class Table:
    """What LLVM knows of an architecture: all that a feature or a CPU brings, and other names."""

    implied: Mapping[str, frozenset[str]]
    cpus: Mapping[str, frozenset[str]]
    others: Sequence[str]

    def least(self, names: Iterable[str]) -> list[str]:
        """Leave out of a set of features those that others bring."""
        kept = set(names)
        return sorted(kept - {low for name in kept for low in self.implied[name] - {name}})


def ask(arch: Architecture) -> Table:
    """Ask LLVM for everything about an architecture."""
    cpus, named = names_of(arch)
    tuning = re.compile(rf"({arch.not_instructions})")
    features = [name for name in named if not tuning.match(name)]
    # What the inliner doesn't look at, it finds in the least of CPUs too.
    unseen = covers(arch, [((arch.cpu, arch.without), f"+{name}") for name in features])
    features = [name for name, hidden in zip(features, unseen) if not hidden]
    has = covers(arch, [((cpu, ""), f"+{name}") for cpu in cpus for name in features])
    least = [(arch.cpu, f"{arch.without},+{name}") for name in features]
    brings = covers(arch, [(caller, f"+{name}") for caller in least for name in features])
    table = Table(_rows(features, features, brings), _rows(cpus, features, has), [])
    if arch.name != "x86":
        return Table(table.implied, table.cpus, sorted(set(named) - set(features)))
    wide = {
        name: found | {"64bit"} if runs_64_bit(name) else found
        for name, found in table.cpus.items()
    }
    return Table(
        {**table.implied, "64bit": frozenset({"64bit"})},
        wide,
        sorted(set(named) - {*features, "64bit"}),
    )


def _rows(
    rows: Sequence[str], columns: Sequence[str], answers: Sequence[bool]
) -> dict[str, frozenset[str]]:
    answer = iter(answers)
    return {row: frozenset([name for name in columns if next(answer)]) for row in rows}


def _lines(heads: Mapping[str, Iterable[str]]) -> Iterator[str]:
    for head, names in sorted(heads.items()):
        yield textwrap.fill(
            f"{head}: {' '.join(names)}".rstrip(),
            99,
            subsequent_indent="  ",
            break_on_hyphens=False,
            break_long_words=False,
        )


def page(arch: Architecture) -> str:
    """Return the text of the module with the tables of an architecture."""
    table = ask(arch)
    implied = {name: table.least(low - {name}) for name, low in table.implied.items()}
    cpus = {name: table.least(has) for name, has in table.cpus.items()}
    others = textwrap.fill(" ".join(table.others), 99, break_on_hyphens=False)
    parts = [
        f'"""CPUs of {arch.name} and their features, as LLVM knows them; '
        "made by ``tools/cpu_tables.py``.",
        "",
        "A line of ``IMPLIED`` is a feature and what it brings, one of ``CPUS`` a CPU and what",
        "it has that no other of its features brings. ``OTHERS`` are features that are not about",
        "instructions, or about none that matter here.",
        '"""',
        "",
        f"LLVM_VERSION = {tuple(llvm.llvm_version_info)!r}",
        *("", 'IMPLIED = """', *_lines(implied), '"""'),
        *("", 'CPUS = """', *_lines(cpus), '"""'),
        *("", 'OTHERS = """', others, '"""'),
    ]
    return "\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wrong = 0
    for arch in ARCHITECTURES:
        path, text = TARGET / f"{arch.name}_tables.py", page(arch)
        if not check:
            path.write_text(text)
        elif path.read_text() != text:
            print(f"{path} is not what LLVM says; run tools/cpu_tables.py", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
