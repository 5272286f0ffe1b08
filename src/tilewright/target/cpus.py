"""LLVM's knowledge of CPUs: their features, and how features imply and depend on each other.

The tables come from LLVM (``tools/cpu_tables.py``), so that a target can be created without it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tilewright.support.errors import TargetError
from tilewright.support.registry import near_matches
from tilewright.target import aarch64_tables, x86_tables

# Lengths of SVE registers that are not the least, 128 bits. Code for one length runs on no other.
_SVE_BITS = {"neoverse-v1": 256, "neoverse-512tvb": 256, "a64fx": 512}


@dataclass(frozen=True)
class CPUTable:
    """CPUs and features of one instruction set, as LLVM names them.

    ``baseline`` is the default CPU; ``needed`` are the features without which no code can be
    generated.
    """

    name: str
    baseline: str
    needed: frozenset[str]
    implied_text: str
    cpus_text: str
    others_text: str

    @cached_property
    def implied(self) -> Mapping[str, frozenset[str]]:
        """The features that a feature implies, itself included."""
        direct = _lines(self.implied_text)
        return {name: frozenset(_reach(name, direct)) for name in direct}

    @cached_property
    def dependents(self) -> Mapping[str, frozenset[str]]:
        """The features that must be disabled with a feature, itself included: all that imply it."""
        found: dict[str, set[str]] = {name: set() for name in self.implied}
        for name, brought in self.implied.items():
            for low in brought:
                found[low].add(name)
        return {name: frozenset(high) for name, high in found.items()}

    @cached_property
    def cpus(self) -> Mapping[str, tuple[str, ...]]:
        """The features of each CPU, without those that others imply."""
        return _lines(self.cpus_text)

    @cached_property
    def others(self) -> frozenset[str]:
        """Features that tune code generation, rather than enable instructions."""
        return frozenset(self.others_text.split())

    def features_of(self, cpu: str) -> frozenset[str]:
        """Return all features that a CPU has, or raise ``TargetError`` if there is no such CPU."""
        if cpu not in self.cpus:
            raise TargetError(self._unknown_cpu(cpu))
        # LLVM gives every x86-64 CPU SSE2, but not 64 bits.
        return self.closed([*self.cpus[cpu], *self.needed & {"sse2"}])

    def _unknown_cpu(self, cpu: str) -> str:
        of_others = [table.name for table in _TABLES if cpu in table.cpus]
        hint = (
            f"it is one of {of_others[0]}, which needs -mtriple"
            if of_others
            else near_matches(cpu, list(self.cpus))
        )
        return f"LLVM knows no {self.name} CPU {cpu!r} (-mcpu); {hint}"

    def closed(self, features: Iterable[str]) -> frozenset[str]:
        """Return features with all that they imply."""
        return frozenset().union(*(self.implied.get(name, {name}) for name in features))

    def without(self, features: frozenset[str], gone: Iterable[str]) -> frozenset[str]:
        """Return features without some, and without those that imply them."""
        return features.difference(*(self.dependents.get(name, {name}) for name in gone))

    def changed(self, features: frozenset[str], changes: str) -> frozenset[str]:
        """Apply ``-mattr``: ``+name`` with what it implies, ``-name`` with what depends on it.

        Raises ``TargetError`` for a feature that LLVM doesn't know.
        """
        for sign, name in _changes(changes):
            if name not in self.implied and name not in self.others:
                known = [*self.implied, *sorted(self.others)]
                raise TargetError(
                    f"LLVM knows no {self.name} feature {name!r} (-mattr); "
                    f"{near_matches(name, known)}"
                )
            if sign == "-":
                features = self.without(features, [name])
            else:
                features |= self.closed([name])
        return features


def _changes(text: str) -> list[tuple[str, str]]:
    items = [item.strip() for item in text.split(",")]
    return [("-" if item[0] == "-" else "+", item.lstrip("+-")) for item in items if item]


def named(changes: str, sign: str) -> frozenset[str]:
    """Return the names with a given sign in a text such as ``+avx,-fma``."""
    return frozenset(name for given, name in _changes(changes) if given == sign)


def _lines(text: str) -> dict[str, tuple[str, ...]]:
    """Read ``name: words`` with continued lines indented."""
    joined = text.strip().replace("\n  ", " ")
    pairs = (line.partition(":") for line in joined.splitlines())
    return {head: tuple(rest.split()) for head, _, rest in pairs}


def _reach(name: str, direct: Mapping[str, tuple[str, ...]]) -> set[str]:
    found, waiting = {name}, [name]
    while waiting:
        for low in direct[waiting.pop()]:
            if low not in found:
                found.add(low)
                waiting.append(low)
    return found


_X86, _ARM = (
    (tables.IMPLIED, tables.CPUS, tables.OTHERS) for tables in (x86_tables, aarch64_tables)
)
_TABLES = (
    CPUTable("x86-64", "x86-64", frozenset({"64bit", "sse2"}), *_X86),
    CPUTable("32-bit x86", "pentium4", frozenset(), *_X86),
    CPUTable("AArch64", "generic", frozenset({"neon"}), *_ARM),
)
_PREFIXES = (r"x86_64|amd64", r"i[3-9]86|x86(?!_)", r"aarch64|arm64")


@lru_cache(maxsize=64)
def table_of(triple: str) -> CPUTable | None:
    """Return the table of a triple's architecture, this machine's for none; ``None`` if unknown."""
    text = triple or platform.machine().lower()
    for table, prefix in zip(_TABLES, _PREFIXES, strict=True):
        if re.match(prefix, text):
            return table
    return None


def sve_vector_bits(name: str) -> int:
    """Return the length of a CPU's SVE registers, 128 bits if unknown."""
    return _SVE_BITS.get(name, 128)
