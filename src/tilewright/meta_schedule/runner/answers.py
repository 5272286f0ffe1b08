"""What the process that runs candidates answers, as JSON.

A candidate is native code in that process: it may write whatever it likes into the pipe. So
answers are data of known fields and types, of a bounded length, and hold the token of their
request, which bytes that were prepared in advance don't.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.meta_schedule.runner.base import REASONS, RunnerResult

LENGTH = struct.Struct("<q")
"""What comes before a message: how many bytes it has."""
MOST_BYTES = 16 << 20
"""Of an answer."""
_LONGEST_TEXT = 20_000
_MOST_VALUES = 100_000


class InvalidAnswerError(Exception):
    """What was read is no answer to the request."""


@dataclass(frozen=True)
class Answer:
    """Results of candidates, or what went wrong with an unscheduled program (``None``: nothing)."""

    results: tuple[RunnerResult, ...] = ()
    problem: str | None = None


def encoded(answer: Answer, token: str) -> bytes:
    """Return an answer as bytes, its length first."""
    results = [
        {name: getattr(result, name) for name in _FIELDS}
        | {"error_msg": None if result.error is None else result.error[:_LONGEST_TEXT]}
        for result in answer.results
    ]
    problem = None if answer.problem is None else answer.problem[:_LONGEST_TEXT]
    data = json.dumps({"token": token, "results": results, "problem": problem}).encode()
    return LENGTH.pack(len(data)) + data


def length_of(head: bytes) -> int:
    """Return how many bytes an answer has.

    Raises ``InvalidAnswerError`` for a length that none has.
    """
    (length,) = LENGTH.unpack(head)
    if not 0 < length <= MOST_BYTES:
        raise InvalidAnswerError(f"a length of {length} bytes")
    return int(length)


def decoded(data: bytes, token: str, count: int) -> Answer:
    """Read the answer to the request with a token, which asked for ``count`` results.

    Raises ``InvalidAnswerError`` for anything else.
    """
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError):
        raise InvalidAnswerError("it is no JSON") from None
    if not isinstance(found, dict) or found.get("token") != token:
        raise InvalidAnswerError("it is no answer to the request")
    results, problem = found.get("results"), found.get("problem")
    if not isinstance(results, list) or len(results) != count or not _is_text(problem):
        raise InvalidAnswerError("it has other results than were asked for")
    return Answer(tuple(map(_result, results)), problem)


def _result(found: object) -> RunnerResult:
    if not isinstance(found, dict) or found.keys() != _FIELDS.keys():
        raise InvalidAnswerError("a result has other fields")
    for name, is_right in _FIELDS.items():
        if not is_right(found[name]):
            raise InvalidAnswerError(f"a result's {name} is {str(found[name])[:50]}")
    return RunnerResult(**{name: _frozen(value) for name, value in found.items()})


def _frozen(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_text(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= _LONGEST_TEXT)


def _is_reason(value: object) -> bool:
    return value is None or value in REASONS


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_ratio(value: object) -> bool:
    return value is None or _is_number(value)


def _is_seed(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _are_times(value: object) -> bool:
    if value is None:
        return True
    few = isinstance(value, list) and 0 < len(value) <= _MOST_VALUES
    return few and all(
        isinstance(x, float) and 0.0 <= x < math.inf
        for x in value  # type: ignore[attr-defined]
    )


def _are_names(value: object) -> bool:
    few = isinstance(value, Sequence) and len(value) <= _MOST_VALUES
    return few and all(isinstance(x, str) for x in value)  # type: ignore[attr-defined]


_FIELDS: Mapping[str, Callable[[object], bool]] = {
    "run_secs": _are_times,
    "error_msg": _is_text,
    "reason": _is_reason,
    "error_ratio": _is_ratio,
    "trusted": _is_flag,
    "slowdown": _is_number,
    "cold": _is_flag,
    "verified": _is_flag,
    "inputs": _are_names,
    "seed": _is_seed,
}
"""What the process says of a result, and what is such a value."""
