"""What a candidate writes into the pipe of answers is neither loaded nor believed."""

from __future__ import annotations

import json
import math
import pickle
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.meta_schedule.test_runner import CONFIG, TARGET, double, kernel
from tilewright import driver
from tilewright.meta_schedule.arg_info import arg_infos
from tilewright.meta_schedule.runner import LocalRunner, Reference, RunnerInput, RunnerResult
from tilewright.meta_schedule.runner.answers import (
    LENGTH,
    MOST_BYTES,
    Answer,
    InvalidAnswerError,
    decoded,
    encoded,
    length_of,
)
from tilewright.runtime import Module

RESULT = RunnerResult((1e-3, 2e-3), error_ratio=1e-7, inputs=("random", "again"), seed=3)


class Touch:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def prefixed(data: bytes) -> bytes:
    return struct.pack("<q", len(data)) + data


def writing(data: bytes) -> Module:
    """A right kernel, that also writes into all descriptors."""
    escaped = "".join(f"\\{byte:02x}" for byte in data)
    before = (
        f'@data = constant [{len(data)} x i8] c"{escaped}"\ndeclare i64 @write(i32, ptr, i64)\n'
    )
    return kernel(
        "br label %l\nl:\n%i = phi i64 [0, %0], [%j, %l]\n"
        "%p = getelementptr float, ptr %a, i64 %i\n%q = getelementptr float, ptr %b, i64 %i\n"
        "%x = load float, ptr %p\n%y = fadd float %x, %x\nstore float %y, ptr %q\n"
        f"%f = trunc i64 %i to i32\n%r = call i64 @write(i32 %f, ptr @data, i64 {len(data)})\n"
        "%j = add i64 %i, 1\n%c = icmp slt i64 %j, 64\nbr i1 %c, label %l, label %e\n"
        "e:\nret i32 0",
        before,
    )


def test_a_candidate_that_writes_everywhere_costs_itself_only(tmp_path: Path) -> None:
    good = driver.compile(double(), TARGET)
    reference = Reference("double", good, arg_infos(double()))
    forged = replace(RESULT, run_secs=(1e-9,))
    hostile = [
        prefixed(pickle.dumps(Touch(tmp_path / "loaded"))),
        encoded(Answer((forged,)), "0" * 32),
    ]
    modules = [item for data in hostile for item in (writing(data), good)]
    runner = LocalRunner(evaluator_config=CONFIG, timeout_sec=20.0, num_threads=1)
    try:
        results = list(
            runner.run([RunnerInput(module=module, reference=reference) for module in modules])
        )
        (raced,) = runner.race([RunnerInput(module=modules[2], reference=reference)], 1)
    finally:
        runner.close()
    assert not (tmp_path / "loaded").exists()
    for wrong, right in zip(results[::2], results[1::2]):
        assert wrong.run_secs is None and wrong.reason == "crash"
        assert "wrote into the pipe" in (wrong.error or "")
        assert right.run_secs is not None and min(right.run_secs) > 2e-9
    assert raced.reason == "crash"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(),
        Answer(problem="it can't be run: \ud800\x00é"),
        Answer((RESULT, RunnerResult(None, "no\n", "wrong", math.inf), RunnerResult(None))),
        Answer((replace(RESULT, error_ratio=None, cold=True, verified=False, slowdown=1.5),)),
    ],
)
def test_an_answer_is_read_as_it_was_written(answer: Answer) -> None:
    data = encoded(answer, "token")
    assert length_of(data[: LENGTH.size]) == len(data) - LENGTH.size
    assert decoded(data[LENGTH.size :], "token", len(answer.results)) == answer


def test_a_long_error_is_cut() -> None:
    data = encoded(Answer((RunnerResult(None, "x" * MOST_BYTES, "run"),)), "t")
    (result,) = decoded(data[LENGTH.size :], "t", 1).results
    assert result.error is not None and 1000 < len(result.error) < MOST_BYTES / 100


@pytest.mark.parametrize(
    "wrong",
    [
        {"run_secs": []},
        {"run_secs": [-1.0]},
        {"run_secs": [math.nan]},
        {"run_secs": [math.inf]},
        {"run_secs": ["1"]},
        {"run_secs": 1.0},
        {"reason": "[red]other"},
        {"trusted": 1},
        {"slowdown": None},
        {"seed": True},
        {"inputs": [1]},
        {"inputs": None},
        {"error": 5},
        {"beat": []},
    ],
)
def test_other_values_are_refused(wrong: dict[str, object]) -> None:
    found = json.loads(encoded(Answer((RESULT,)), "t")[LENGTH.size :])
    found["results"][0] |= wrong
    with pytest.raises(InvalidAnswerError):
        decoded(json.dumps(found).encode(), "t", 1)


def test_another_token_or_number_of_results_is_refused() -> None:
    data = encoded(Answer((RESULT,)), "t")[LENGTH.size :]
    for token, count in (("u", 1), ("t", 0), ("t", 2), ("", 1)):
        with pytest.raises(InvalidAnswerError):
            decoded(data, token, count)


@pytest.mark.parametrize("length", [0, -1, MOST_BYTES + 1, 2**62])
def test_lengths_are_bounded(length: int) -> None:
    with pytest.raises(InvalidAnswerError):
        length_of(struct.pack("<q", length))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_order(data: bytes) -> None:
    with pytest.raises(InvalidAnswerError):
        decoded(data, "token", 1)
