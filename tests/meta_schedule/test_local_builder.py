"""The local builder: what a candidate does to its process costs that candidate only."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from started import processes

from tests.everyday import few
from tilewright import driver, te
from tilewright.ir import IRModule
from tilewright.meta_schedule.builder import (
    Builder,
    BuilderInput,
    BuilderResult,
    LocalBuilder,
    local,
)
from tilewright.runtime import Module
from tilewright.support.errors import LowerError, TuneError
from tilewright.target import Target

TARGET = Target("native")


def add_constant(value: float) -> IRModule:
    a = te.placeholder((8,), name="A")
    func = te.create_prim_func([a, te.compute((8,), lambda i: a[i] + value, name="B")])
    return IRModule({"main": func}, {"value": value})


def inputs(count: int) -> list[BuilderInput]:
    return [BuilderInput(add_constant(float(number)), TARGET) for number in range(count)]


def abort() -> None:
    faulthandler.disable()  # no report of what is meant to happen
    os.abort()


def number_of(candidate: BuilderInput) -> int:
    return int(candidate.mod.attrs["value"])


def check(module: Module | None, number: int) -> None:
    assert module is not None
    result = np.zeros(8, "float32")
    module(np.zeros(8, "float32"), result)
    assert (result == number).all()


def test_candidates_are_built_in_order_by_other_processes() -> None:
    parent = os.getpid()

    def build(candidate: BuilderInput) -> Module:
        assert os.getpid() != parent
        return driver.compile(candidate.mod, candidate.target)

    results = LocalBuilder(max_workers=2, f_build=build).build(inputs(5))
    assert [result.error for result in results] == [None] * 5
    for number, result in enumerate(results):
        check(result.module, number)
        assert result.seconds > 0


def test_what_takes_too_much_memory_is_refused() -> None:
    def build(candidate: BuilderInput) -> Module:
        if number_of(candidate) == 1:
            bytearray(1 << 30)
        return driver.compile(candidate.mod, candidate.target)

    results = LocalBuilder(max_workers=1, f_build=build, memory_bytes=1 << 28).build(inputs(3))
    assert [result.reason for result in results] == [None, "build", None]
    assert results[1].error == f"compiling took more than {1 << 28} bytes of memory"
    check(results[2].module, 2)


def test_what_takes_far_longer_than_the_others_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(candidate: BuilderInput) -> Module:
        if number_of(candidate) == 5:
            time.sleep(20)
        return driver.compile(candidate.mod, candidate.target)

    monkeypatch.setattr(local, "_LEAST_SECONDS", 0.3)
    start = time.monotonic()
    results = LocalBuilder(max_workers=1, f_build=build).build(inputs(7))
    assert time.monotonic() - start < 15
    assert [result.reason for result in results] == [None] * 5 + ["build-timeout", None]
    assert "compiling took longer than" in str(results[5].error)


def test_the_usual_time_is_that_of_the_faster_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(candidate: BuilderInput) -> Module:
        time.sleep(0.8 if number_of(candidate) % 2 else 0.0)
        return driver.compile(candidate.mod, candidate.target)

    monkeypatch.setattr(local, "_LEAST_SECONDS", 0.4)
    results = LocalBuilder(max_workers=1, f_build=build).build(inputs(6))
    assert [result.reason for result in results][3:] == ["build-timeout", None, "build-timeout"]


def test_what_becomes_too_many_lines_is_refused_before_llvm_sees_it() -> None:
    some = [replace(item, max_lines=5) for item in inputs(1)]
    (refused,) = LocalBuilder(max_workers=1).build(some)
    assert refused.module is None and refused.reason == "build"
    assert "lines of LLVM IR, more than 5" in str(refused.error)
    (built,) = LocalBuilder(max_workers=1).build([replace(some[0], max_lines=5000)])
    check(built.module, 0)


def test_texts_of_a_module_are_made_when_somebody_asks() -> None:
    (result,) = LocalBuilder(max_workers=1).build(inputs(1))
    assert result.module is not None
    whole = driver.compile(inputs(1)[0].mod, TARGET)
    for kind in ("ll", "tir", "asm"):
        assert result.module.get_source(kind) == whole.get_source(kind)
    copy = pickle.loads(pickle.dumps(result.module))
    assert copy.get_source("tir") == whole.get_source("tir")


def test_nothing_to_build() -> None:
    assert LocalBuilder().build([]) == []


def test_candidates_that_fail_leave_the_others_alone() -> None:
    def build(candidate: BuilderInput) -> Module:
        number = number_of(candidate)
        if number == 1:
            raise LowerError("no such loop")
        if number == 2:
            raise KeyError("a bug")
        if number == 3:
            abort()
        if number == 4:
            os._exit(7)
        if number == 5:
            time.sleep(60)
        if number == 6:
            sys.exit(3)
        if number == 7:
            return threading.Lock()  # type: ignore[return-value]  # can't be pickled
        return driver.compile(candidate.mod, candidate.target)

    start = time.monotonic()
    results = LocalBuilder(max_workers=2, timeout_sec=0.5, f_build=build).build(inputs(10))
    assert time.monotonic() - start < 10
    assert [result.reason for result in results] == [
        None, "build", "build", "build-crash", "build-crash", "build-timeout", "build-crash",
        "build", None, None,
    ]  # fmt: skip
    assert [result.error for result in results[1:6]] == [
        "no such loop",
        "KeyError: 'a bug'",
        "the build process died (SIGABRT)",
        "the build process died (exit code 7)",
        "compiling took longer than 0.5 s",
    ]
    assert "must return a module, got lock" in (results[7].error or "")
    for number in (0, 8, 9):
        check(results[number].module, number)


def _open_files() -> dict[int, str]:
    """What each number is open for; numbers come again, files don't."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the folder itself
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 64, b"\0" * 12, b"\1\0\0\0\5" + b"\0" * 7 + b"hello"],
    ids=["ones", "zeros", "a message"],
)
def test_what_writes_into_every_file_costs_itself_only(garbage: bytes) -> None:
    """As the messages of its process look like, too: an index, a length, and no result."""
    known = set(_open_files().values())

    def build(candidate: BuilderInput) -> Module:
        for number, file in _open_files().items() if number_of(candidate) == 1 else ():
            if file not in known:
                with contextlib.suppress(OSError):
                    os.write(number, garbage)
        return driver.compile(candidate.mod, candidate.target)

    results = LocalBuilder(2, timeout_sec=20.0, f_build=build).build(inputs(6))
    for number, result in enumerate(results):
        if number == 1:
            assert result.reason == "build-crash" and "wrote into the pipe" in str(result.error)
        else:
            check(result.module, number)


def test_what_is_taken_by_a_process_that_is_ended_is_built_by_another() -> None:
    """The garbage shows only when the process has answered, and so goes on with the next one."""
    known = set(_open_files().values())

    def build(candidate: BuilderInput) -> Module:
        for number, file in _open_files().items() if number_of(candidate) == 1 else ():
            if file not in known:
                with contextlib.suppress(OSError):
                    os.write(number, b"\1")
        return driver.compile(candidate.mod, candidate.target)

    results = LocalBuilder(1, timeout_sec=20.0, f_build=build).build(inputs(4))
    assert results[1].reason == "build-crash"
    for number in (0, 2, 3):
        check(results[number].module, number)


@pytest.mark.parametrize("made", [None, "text", lambda: 0])
def test_what_builds_no_module_costs_itself_only(made: object) -> None:
    def build(candidate: BuilderInput) -> Any:
        if number_of(candidate) == 1:
            return made
        return driver.compile(candidate.mod, candidate.target)

    results = LocalBuilder(2, f_build=build).build(inputs(3))
    assert results[1].reason == "build"
    assert f"f_build must return a module, got {type(made).__name__}" in str(results[1].error)
    check(results[0].module, 0)
    check(results[2].module, 2)


@pytest.mark.parametrize(
    "change, got",
    [
        (lambda made: made[:-1], "of 3 inputs, got 2 of BuilderResult"),
        (lambda made: made * 2, "of 3 inputs, got 6 of BuilderResult"),
        (lambda made: [None] * len(made), "of 3 inputs, got 3 of NoneType"),
        (lambda made: [], "of 3 inputs, got 0 of nothing"),
    ],
)
def test_a_builder_of_ones_own_gives_a_result_for_each_input(
    change: Callable[[list[Any]], list[Any]], got: str
) -> None:
    class Odd(Builder):
        def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
            return change([BuilderResult(None, "no", "build") for _ in build_inputs])

    with pytest.raises(TuneError, match=f"Odd must give a BuilderResult for each {got}"):
        list(Odd().build_each(inputs(3)))


def test_every_candidate_may_crash() -> None:
    def build(candidate: BuilderInput) -> Module:
        abort()
        raise AssertionError

    results = LocalBuilder(max_workers=2, f_build=build).build(inputs(6))
    assert [result.reason for result in results] == ["build-crash"] * 6


def test_no_process_and_no_file_is_left() -> None:
    def build(candidate: BuilderInput) -> Module:
        if number_of(candidate) == 1:
            abort()
        if number_of(candidate) == 2:
            time.sleep(60)
        return driver.compile(candidate.mod, candidate.target)

    before, children = sorted(os.listdir("/proc/self/fd")), processes()
    LocalBuilder(max_workers=2, timeout_sec=0.2, f_build=build).build(inputs(4))
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert processes() <= children


def test_an_interrupt_ends_the_workers() -> None:
    def build(candidate: BuilderInput) -> Module:
        time.sleep(60)
        raise AssertionError

    children = processes()
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), 2))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        LocalBuilder(max_workers=2, f_build=build).build(inputs(4))
    timer.join()
    assert time.monotonic() - start < 10
    assert processes() <= children


@pytest.mark.parametrize("options", [{"max_workers": -1}, {"timeout_sec": 0}])
def test_options_without_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(TuneError, match="at least one worker and a positive timeout"):
        LocalBuilder(**options)  # type: ignore[arg-type]


def test_the_first_is_given_while_later_ones_are_built(tmp_path: Path) -> None:
    module, measured = driver.compile(add_constant(0.0), TARGET), tmp_path / "measured"

    def build(candidate: BuilderInput) -> Module:
        while number_of(candidate) and not measured.exists():
            time.sleep(0.01)
        return module

    builds = LocalBuilder(1, f_build=build, overlap=True).build_each(inputs(3))
    assert next(builds).module is not None
    measured.touch()
    assert [item.error for item in builds] == [None, None]


def test_results_are_the_same_however_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    module = driver.compile(add_constant(0.0), TARGET)

    def build(candidate: BuilderInput) -> Module:
        number = number_of(candidate)
        time.sleep(0.02 * (number % 3))  # they end in another order
        if number == 2:
            abort()
        if number == 4:
            raise LowerError(f"number {number}")
        return module

    def reasons(**options: bool) -> list[tuple[str | None, str | None]]:
        builder = LocalBuilder(3, f_build=build, **options)
        return [(item.reason, item.error) for item in builder.build_each(inputs(8))]

    assert reasons(overlap=True) == reasons(overlap=False)
    monkeypatch.setattr(local.host, "core_count", lambda: 16)
    assert reasons() == reasons(overlap=False)
    assert [reason for reason, _ in reasons() if reason] == ["build-crash", "build"]


def test_who_stops_early_leaves_no_process() -> None:
    def build(candidate: BuilderInput) -> Module:
        if number_of(candidate):
            time.sleep(60)
        return driver.compile(candidate.mod, candidate.target)

    before = processes()
    builds = LocalBuilder(2, f_build=build, overlap=True).build_each(inputs(4))
    next(builds)
    assert len(processes()) > len(before)
    builds.close()
    assert len(processes()) == len(before)


@pytest.mark.parametrize(
    ("cores", "threads", "options", "workers"),
    [
        (2, 1, {}, 0),
        (3, 1, {}, 0),
        (4, 1, {}, 2),
        (4, 4, {}, 0),
        (4, 3, {}, 0),
        (16, 1, {}, 14),
        (16, 8, {"max_workers": 4}, 4),
        (16, 1, {"overlap": False}, 0),
        (2, 2, {"overlap": True}, 1),
    ],
)
def test_builds_overlap_where_there_are_cores(
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    threads: int,
    options: dict[str, int],
    workers: int,
) -> None:
    monkeypatch.setattr(local.host, "core_count", lambda: cores)
    candidate = BuilderInput(add_constant(0.0), TARGET.with_options(num_cores=threads))
    assert LocalBuilder(**options)._beside([candidate]) == workers  # type: ignore[arg-type]
    assert LocalBuilder(**options)._beside([]) == 0  # type: ignore[arg-type]


def test_what_a_subclass_builds_is_what_each_is() -> None:
    class Own(LocalBuilder):
        def build(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
            return [BuilderResult(None, "own", "build") for _ in inputs]

    assert [x.error for x in Own(overlap=True).build_each(inputs(2))] == ["own", "own"]


# ---- inputs that are made one by one -------------------------------------------------------------


def until(condition: Callable[[], bool]) -> bool:
    """Wait up to 20 s for a condition."""
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_inputs_are_compiled_while_others_are_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local.host, "core_count", lambda: 2)

    def build(candidate: BuilderInput) -> Module:
        (tmp_path / str(number_of(candidate))).touch()
        return driver.compile(candidate.mod, candidate.target)

    builder, seen = LocalBuilder(2, f_build=build), []

    def made() -> Iterator[BuilderInput]:
        assert not builder.is_building
        for candidate in inputs(10):
            yield candidate
            if number_of(candidate) == 4:  # enough for a process, which knows nothing of the rest
                seen.append(builder.is_building)
                assert until(lambda: len(list(tmp_path.iterdir())) >= 4)

    results = list(builder.build_each(made()))
    assert seen == [True] and not builder.is_building
    for number, result in enumerate(results):
        check(result.module, number)
    assert len(results) == 10


def test_one_core_makes_all_inputs_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.host, "core_count", lambda: 1)
    builder = LocalBuilder()

    def made() -> Iterator[BuilderInput]:
        for candidate in inputs(9):
            assert not builder.is_building
            yield candidate

    for number, result in enumerate(builder.build_each(made())):
        check(result.module, number)


@pytest.mark.parametrize("cores", [1, 2, 3, 16])
@few("count", [0, 1, 4, 5, 23], 0, 5)
def test_results_do_not_depend_on_when_inputs_come(
    monkeypatch: pytest.MonkeyPatch, cores: int, count: int
) -> None:
    monkeypatch.setattr(local.host, "core_count", lambda: cores)
    module = driver.compile(add_constant(0.0), TARGET)

    def build(candidate: BuilderInput) -> Module:
        number = number_of(candidate)
        if number % 7 == 3:
            abort()
        if number % 5 == 4:
            raise LowerError(f"number {number}")
        return module

    def slowly() -> Iterator[BuilderInput]:
        for candidate in inputs(count):
            time.sleep(0.002)
            yield candidate

    def outcome(found: Iterable[BuilderResult]) -> list[tuple[str | None, str | None]]:
        return [(item.reason, item.error) for item in found]

    builder = LocalBuilder(3, f_build=build)
    assert outcome(builder.build_each(slowly())) == outcome(builder.build(inputs(count)))


def test_a_search_that_fails_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.host, "core_count", lambda: 2)

    def build(candidate: BuilderInput) -> Module:
        time.sleep(60)
        return driver.compile(candidate.mod, candidate.target)

    def made() -> Iterator[BuilderInput]:
        yield from inputs(6)
        raise LowerError("no more")

    before, builder = processes(), LocalBuilder(2, f_build=build)
    start = time.monotonic()
    with pytest.raises(LowerError, match="no more"):
        list(builder.build_each(made()))
    assert not builder.is_building and len(processes()) == len(before)
    assert time.monotonic() - start < 30


def test_parameters_are_refused_before_anything_is_built() -> None:
    candidate = replace(inputs(1)[0], params={"B": np.zeros(8, "float32")})
    for ask in (LocalBuilder().build, lambda items: list(LocalBuilder().build_each(items))):
        with pytest.raises(TuneError, match="binds no params"):
            ask([candidate])
