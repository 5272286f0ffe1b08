"""How threads use memory: bank conflicts by width, sectors of global memory, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.script import parse
from tilewright.support.errors import RunError
from tilewright.tir.interpreter import MemoryReport, run, simulate
from tilewright.tir.interpreter.traffic import sectors, wavefronts

KERNEL = """
@T.prim_func
def main(A: T.Buffer((4096,), "{dtype}"), B: T.Buffer((4096,), "{dtype}")):
    for b in T.thread_binding({blocks}, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            S = T.allocate((4096,), "{dtype}", scope="shared")
            {body}
"""


def _report(body: str, dtype: str = "float32", blocks: int = 1) -> MemoryReport:
    func = parse(KERNEL.format(body=body, dtype=dtype, blocks=blocks))
    return simulate(func, *(np.zeros(4096, dtype) for _ in range(2)))


@pytest.mark.parametrize(
    ("index", "conflicts"),
    [("t", 0), ("t * 2", 1), ("t * 8", 7), ("t * 32", 31), ("t * 33", 0), ("t // 4", 0), ("7", 0)],
)
def test_conflicts_of_words(index: str, conflicts: int) -> None:
    (store,) = _report(f"S[{index}] = T.float32(1)").of("S")
    assert (store.conflicts, store.requests, store.site.access) == (conflicts, 1, "store")


def test_shorter_elements_share_words() -> None:
    (store,) = _report("S[t] = T.float16(1)", "float16").of("S")
    assert (store.wavefronts, store.ideal_wavefronts, store.bytes) == (1, 1, 64)


@pytest.mark.parametrize(
    ("index", "lanes", "taken", "ideal"),
    [
        ("t * 2", 2, 2, 2),  # by half warps
        ("t * 4", 4, 4, 4),  # by quarters
        ("t * 8", 4, 8, 4),  # each second group of four banks
        ("t * 36", 4, 4, 4),  # rows of 144 bytes
        ("t * 64", 4, 32, 4),
    ],
)
def test_conflicts_of_vectors(index: str, lanes: int, taken: int, ideal: int) -> None:
    one = f"T.Broadcast(T.float32(1), {lanes})"
    (store,) = _report(f"S[T.Ramp({index}, 1, {lanes})] = {one}").of("S")
    assert (store.wavefronts, store.ideal_wavefronts) == (taken, ideal)


@pytest.mark.parametrize(
    ("index", "taken", "ideal"),
    [("t", 4, 4), ("t + 1", 5, 4), ("t * 2", 8, 4), ("t * 8", 32, 4), ("0", 1, 1)],
)
def test_sectors_of_global_memory(index: str, taken: int, ideal: int) -> None:
    (load,) = _report(f"S[t] = A[{index}]").of("A", "load")
    assert (load.sectors, load.ideal_sectors) == (taken, ideal)
    assert load.sector_efficiency == ideal / taken


def test_iterations_of_loops_are_requests_of_their_own() -> None:
    (load,) = _report("for i in range(3): S[i * 32 + t] = A[i * 32 + t]", blocks=2).of("A")
    assert (load.requests, load.lanes, load.sectors) == (6, 192, 24)


def test_lanes_that_take_no_part_are_not_counted() -> None:
    (load,) = _report("if t < 8: S[t] = A[t]").of("A")
    assert (load.requests, load.lanes, load.bytes, load.sectors) == (1, 8, 32, 1)


def test_a_loop_without_a_variable() -> None:
    report = _report(
        "n = T.allocate((1,), 'int32', scope='local')\n"
        "            n[0] = 0\n"
        "            while n[0] < 2:\n"
        "                S[t * 2 + n[0]] = A[t]\n"
        "                n[0] = n[0] + 1"
    )
    (store,) = report.of("S")
    assert (store.requests, store.conflicts) == (2, 2)


def test_the_report_reads_as_a_table() -> None:
    report = _report("S[t * 2] = A[t * 8]")
    lines = report.table().splitlines()
    assert lines[0].split()[:4] == ["access", "buffer", "scope", "requests"]
    assert any("S[(t * 2)]" in line and "1.00 conflicts" in line for line in lines)
    assert any("A[(t * 8)]" in line and "32.00 sectors" in line for line in lines)
    assert (report.bank_conflicts, report.wavefronts) == (1, 2)
    assert (report.sectors, report.ideal_sectors) == (32, 4)


def test_an_unknown_buffer_names_those_there_are() -> None:
    with pytest.raises(RunError, match="no access of 'C' in the report, which has A, S"):
        _report("S[t] = A[t]").of("C")


def test_nothing_is_counted_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise AssertionError("counted")

    monkeypatch.setattr("tilewright.tir.interpreter.traffic.Traffic._add", fail)
    func = parse(KERNEL.format(body="S[t] = A[t]", dtype="float32", blocks=1))
    run(func, np.zeros(4096, "float32"), np.zeros(4096, "float32"), check_races=True)


def test_memory_that_nothing_wrote() -> None:
    for scope in ("shared", "local"):
        func = parse(
            KERNEL.format(body="B[t] = S[t]", dtype="float32", blocks=1).replace(
                '"shared"', f'"{scope}"'
            )
        )
        with pytest.raises(RunError, match=r"threadIdx.x=0\) reads element 0 of S, which nothing"):
            run(func, np.zeros(4096, "f4"), np.zeros(4096, "f4"), check_races=True)


def test_the_counting_against_a_count_by_hand() -> None:
    rng = np.random.default_rng(0)
    for width in (1, 2, 4, 8, 16):
        lanes = np.arange(32)
        starts = rng.integers(0, 512, 32) * width
        widths = np.full(32, width)
        group = {8: 16, 16: 8}.get(width, 32)
        taken = 0
        for first in range(0, 32, group):
            by_bank: dict[int, set[int]] = {}
            for start in starts[first : first + group]:
                for byte in range(start, start + width):
                    by_bank.setdefault(byte // 4 % 32, set()).add(byte // 4)
            taken += max(map(len, by_bank.values()))
        assert wavefronts(lanes, starts, widths)[0] == taken
        touched = {byte // 32 for start in starts for byte in range(start, start + width)}
        assert sectors(starts, widths)[0] == len(touched)
