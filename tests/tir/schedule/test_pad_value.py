"""What padding may hold: numbers and functions of the buffer's own dtype."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tilewright import te
from tilewright.ir import FloatImm, IntImm, IRModule, cast, const
from tilewright.support.errors import ScheduleError
from tilewright.tir.schedule import Schedule, Trace


def chain(dtype: str) -> IRModule:
    a = te.placeholder((6,), dtype, "A")
    b = te.compute((6,), lambda i: a[i], name="B")
    c = te.compute((6,), lambda i: b[i], name="C")
    return IRModule({"main": te.create_prim_func([a, c])})


def padded(dtype: str, value: Any) -> Schedule:
    sch = Schedule(chain(dtype))
    sch.transform_layout("B", ("write", 0), lambda i: (i // 4, i % 4), pad_value=value)
    return sch


FITS: list[tuple[str, Any]] = [
    ("float32", 0),
    ("float32", 0.5),
    ("float32", const(0)),
    ("float32", const(0.5, "float32")),
    ("float32", np.float32(0.5)),
    ("float32", np.float64(0.5)),
    ("float32", lambda i, j: i * 4 + j),
    ("float32", "lambda i, j: 0"),
    ("int8", -128),
    ("int8", const(3, "int8")),
    ("int8", np.int8(3)),
    ("int8", np.int64(3)),
    ("bool", True),
    ("bool", 1),
    ("uint64", 2**64 - 1),
]

DIFFERS: list[tuple[str, Any, str]] = [
    ("float32", const(0, "int32"), "pad_value is of int32"),
    ("float32", IntImm("int8", 0), "pad_value is of int8"),
    ("float32", FloatImm("float64", 0.0), "pad_value is of float64"),
    ("float32", FloatImm("float16", 0.0), "pad_value is of float16"),
    ("float32", True, "pad_value is of bool"),
    ("float32", np.bool_(False), "pad_value is of bool"),
    ("float32", np.int32(0), "pad_value is of int32"),
    ("float32", np.float16(0), "pad_value is of float16"),
    ("float32", lambda i, j: cast(i, "int8"), "pad_value is of int8"),
    ("float32", lambda i, j: const(0, "int8"), "pad_value is of int8"),
    ("float32", lambda i, j: True, "pad_value is of bool"),
    ("float32", lambda i, j: i < j, "pad_value is of bool"),
    ("int8", 0.0, "pad_value is of float64"),
    ("int8", 128, "pad_value 128 is no int8"),
    ("int8", False, "pad_value is of bool"),
    ("int8", const(0, "uint8"), "pad_value is of uint8"),
    ("int8", lambda i, j: 300, "pad_value 300 is no int8"),
    ("uint8", -1, "pad_value -1 is no uint8"),
    ("bool", 2, "pad_value 2 is no bool"),
    ("bool", 0.0, "pad_value is of float64"),
    ("uint64", 2**64, "is no uint64"),
]


@pytest.mark.parametrize(("dtype", "value"), FITS)
def test_padding_of_the_buffers_dtype(dtype: str, value: Any) -> None:
    sch = padded(dtype, value)
    again = Schedule(chain(dtype))
    Trace.from_json(json.loads(json.dumps(sch.trace.as_json()))).apply_to_schedule(again)
    assert again.mod.script() == sch.mod.script()


@pytest.mark.parametrize(("dtype", "value", "message"), DIFFERS)
def test_padding_of_another_dtype(dtype: str, value: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        padded(dtype, value)


@pytest.mark.parametrize("value", [True, 0.0, 2**40])
def test_a_record_brings_no_padding_of_another_dtype(value: Any) -> None:
    sch = padded("int8", 7)
    data = json.dumps(sch.trace.as_json())
    assert data.count("7") == 1
    with pytest.raises(ScheduleError, match="pad_value"):
        Trace.from_json(json.loads(data.replace("7", json.dumps(value)))).apply_to_schedule(
            Schedule(chain("int8"))
        )
