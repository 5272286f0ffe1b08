"""The format of a database's lines: from JSON data to fields of workloads and records.

The only place that parses untrusted lines. Every value is checked by type and range before it is
used; other faults (a schedule that doesn't fit, an impossible time) are left to the code that uses
it.

A line of format 1 is a list. Lines of later formats say so: ``{"format": 2, "data": …}``. A change
of the format is a number in ``FORMAT`` and a function in ``MIGRATIONS``; older lines stay as they
are and are migrated when they are read. Lines of a format that isn't known yet are left alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewright.meta_schedule.arg_info import ArgInfo, arg_info_from_json
from tilewright.support.errors import TuneError
from tilewright.target import Target
from tilewright.tir.schedule import Trace

FORMAT = 1
"""The format of lines that are written."""

MIGRATIONS: dict[str, tuple[Callable[[Any], Any], ...]] = {"workload": (), "record": ()}
"""For each kind of line, how data of format 1, 2, … become those of the next format."""

LONGEST_LINE = 32 << 20
"""Bytes of a line; programs with large constants take some."""

_MOST_INSTRUCTIONS = 100_000
_MOST_WORKLOADS = 1 << 48
_MOST_TIMES = 10_000
_DEEPEST_ORIGIN = 16
LATEST = 1e11
"""Seconds since 1970 that a record may say; about where dates end."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_line(line: bytes) -> Any:
    """Return the JSON value of a line.

    Raises ``TuneError`` if it is too long, too deep or not JSON.
    """
    if len(line) > LONGEST_LINE:
        raise TuneError(f"the line has {len(line)} bytes, more than {LONGEST_LINE}")
    try:
        value = json.loads(line.decode())  # else it may be taken for UTF-16
        if _SURROGATE.search(line):
            json.dumps(value, ensure_ascii=False).encode()  # halves of characters are no text
    except RecursionError:
        raise TuneError("the line is nested too deeply") from None
    except (ValueError, MemoryError) as error:
        raise TuneError(f"not JSON: {error}") from None
    return value


class LaterFormat(TuneError):
    """A line was written by a later version."""


def to_line(data: object) -> object:
    """Return what a line holds for data of the present format."""
    return data if FORMAT == 1 else {"format": FORMAT, "data": data}


def _migrated(value: object, kind: str) -> object:
    """Return a line's data in the present format.

    Raises ``LaterFormat`` for a format that isn't known.
    """
    number = 1
    if isinstance(value, dict):
        said, value = value.get("format"), value.get("data")
        if type(said) is not int or said < 2:
            raise TuneError(f"a line of format {_short(said)}")
        number = said
    if number > FORMAT:
        raise LaterFormat(f"the {kind} is of format {number}; this version reads up to {FORMAT}")
    for step in MIGRATIONS[kind][number - 1 :]:
        value = step(value)
    return value


def read_workload(data: object) -> tuple[str, str]:
    """Return the hash and the script of a workload.

    Raises ``TuneError`` if it is anything else.
    """
    data = _migrated(data, "workload")
    if not (isinstance(data, list) and len(data) == 2 and all(type(x) is str for x in data)):
        raise TuneError("a workload is a list of a hash and a script")
    return data[0], data[1]


@dataclass(frozen=True)
class RecordData:
    """The contents of a record's line; the workload is given by its index."""

    workload: int
    trace: Trace
    run_secs: tuple[float, ...] | None
    target: Target | None
    args_info: tuple[ArgInfo, ...]
    provenance: dict[str, object]


@dataclass(frozen=True)
class Measured:
    """A record without what it takes longest to read: its trace and arguments are as they came."""

    workload: int
    trace: object
    run_secs: tuple[float, ...] | None
    target: Target | None
    args_info: list[object]
    provenance: dict[str, object]

    def whole(self) -> RecordData:
        """Read the rest.

        Raises ``TuneError`` if anything has a wrong type, or is out of bounds.
        """
        return RecordData(
            self.workload,
            Trace.from_json(self.trace, trusted=False),
            self.run_secs,
            self.target,
            tuple(map(arg_info_from_json, self.args_info)),
            self.provenance,
        )


def read_record(data: object) -> RecordData:
    """Read ``TuningRecord.as_row``'s data.

    Raises ``TuneError`` if anything has a wrong type, or is out of bounds.
    """
    return read_measured(data).whole()


def read_measured(data: object) -> Measured:
    """Read what ``TuningRecord.as_row``'s data are ranked by.

    Raises ``TuneError`` if any of that has a wrong type, or is out of bounds.
    """
    index, parts = _list(_migrated(data, "record"), 2, "a record")
    trace, seconds, target, infos, origin = _list(parts, 5, "a record's second part")
    if type(index) is not int or not 0 <= index <= _MOST_WORKLOADS:
        raise TuneError(f"the workload's number is {_short(index)}")
    if len(_list(trace, None, "a trace")) > _MOST_INSTRUCTIONS:
        raise TuneError(f"the trace has {len(trace)} instructions, more than {_MOST_INSTRUCTIONS}")
    return Measured(
        index,
        trace,
        None if seconds is None else _seconds(seconds),
        None if target is None else read_target(target),
        _list(infos, None, "the arguments"),
        _provenance(origin),
    )


def _list(value: object, length: int | None, what: str) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        size = "" if length is None else f" of {length}"
        raise TuneError(f"{what} is a list{size}, got {_short(value)}")
    return value


def _short(value: object) -> str:
    return (
        f"{type(value).__name__} {str(value)[:80]}" if _is_scalar(value) else type(value).__name__
    )


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _number(value: object, what: str, low: float = -math.inf, high: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TuneError(f"{what} is a number, got {_short(value)}")
    if not (abs(value) <= 1e300 and low <= value <= high):
        raise TuneError(f"{what} is {str(value)[:80]}")
    return float(value)


def _seconds(value: object) -> tuple[float, ...]:
    times = _list(value, None, "the times")
    if not 0 < len(times) <= _MOST_TIMES:
        raise TuneError(f"a record has 1 to {_MOST_TIMES} times, this one {len(times)}")
    return tuple(_number(item, "a time", low=0.0) for item in times)


def read_target(value: object) -> Target:
    """Read ``Target.export``'s data.

    Raises ``TuneError`` if it is anything else.
    """
    if not isinstance(value, dict):
        raise TuneError(f"a target is a dict, got {_short(value)}")
    for key, item in value.items():
        if type(item) is int:
            _number(item, f"option {key!r} of the target", high=2**53)
        elif type(item) is not str:
            raise TuneError(f"option {key!r} of the target is {_short(item)}")
    if type(value.get("kind")) is not str:
        raise TuneError(f"the kind of the target is {_short(value.get('kind'))}")
    return _target(tuple(value.items()))


@lru_cache(maxsize=64)
def _target(items: tuple[tuple[str, int | str], ...]) -> Target:
    """Make a target, once: a database has few of them, and many records of each."""
    return Target(dict(items))


def _provenance(value: object) -> dict[str, object]:
    """Check a record's origin: any text is allowed, but its time must be a number."""
    if not isinstance(value, dict):
        raise TuneError(f"a record's origin is a dict, got {_short(value)}")
    time = value.get("time")
    if type(time) in (int, float):
        _number(time, "the time of a record", 0.0, LATEST)
    _check_depth(value)
    return dict(value)


def _check_depth(value: object) -> None:
    """Refuse data too deep for recursive readers."""
    level = [value]
    for _ in range(_DEEPEST_ORIGIN):
        inner = [
            part
            for item in level
            if isinstance(item, (dict, list))
            for part in (item.values() if isinstance(item, dict) else item)
        ]
        if not inner:
            return
        level = inner
    raise TuneError("a record's origin is nested too deeply")


__all__ = [
    "FORMAT", "LATEST", "LONGEST_LINE", "LaterFormat", "Measured", "RecordData", "read_line",
    "read_measured", "read_record", "read_target", "read_workload", "to_line",
]  # fmt: skip
