"""Dictionaries of tensors as bytes, in TVM's format."""

from __future__ import annotations

import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tilewright import runtime
from tilewright.support.errors import RunError

# What TVM 0.27 writes for {"w": float32 [[0, 1, 2], [3, 4, 5]], "b": [True, False]}.
BY_TVM = bytes.fromhex(
    "b79c04054f8de5f700000000000000000200000000000000010000000000000077010000000000000062020000000000"
    "00003fa1b496f0405edd0000000000000000010000000000000002000000022001000200000000000000030000000000"
    "00001800000000000000000000000000803f0000004000004040000080400000a0403fa1b496f0405edd000000000000"
    "00000100000000000000010000000608010002000000000000000200000000000000"
    "0100"
)
W = np.arange(6, dtype="float32").reshape(2, 3)
B = np.array([True, False])


def test_bytes_are_tvms() -> None:
    assert runtime.save_param_dict({"w": runtime.tensor(W), "b": B}) == BY_TVM
    found = runtime.load_param_dict(bytearray(BY_TVM))
    assert list(found) == ["w", "b"]
    np.testing.assert_array_equal(found["w"].numpy(), W)
    np.testing.assert_array_equal(found["b"].numpy(), B)


ARRAYS = {
    "empty": np.zeros((0, 3), "int8"),
    "a number": np.array(3.5, "float64"),
    "bfloat16": np.array([1, -2], ml_dtypes.bfloat16),
    "not compact": np.arange(12, dtype="int32").reshape(3, 4)[:, ::2],
    "ä": np.array([2**63], "uint64"),
}


def test_files_hold_any_array(tmp_path: Path) -> None:
    runtime.save_param_dict_to_file(ARRAYS, tmp_path / "params")
    found = runtime.load_param_dict_from_file(tmp_path / "params")
    for name, array in ARRAYS.items():
        assert found[name].shape == array.shape
        np.testing.assert_array_equal(found[name].numpy(), array)
    assert runtime.load_param_dict(runtime.save_param_dict({})) == {}


SHAPE_AT = BY_TVM.index(struct.pack("<qq", 2, 3))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "end after 0 bytes"),
        (b"x" * 100, "begin with another number"),
        (BY_TVM[:-1], "end after"),
        (BY_TVM[:60], "end after 60 bytes"),
        (BY_TVM[:16] + b"\xff" * 8 + BY_TVM[24:], "damaged"),
        (BY_TVM[:SHAPE_AT] + struct.pack("<qq", -2, -3) + BY_TVM[SHAPE_AT + 16 :], "24 bytes for"),
        (BY_TVM[:SHAPE_AT] + struct.pack("<qq", 2, 4) + BY_TVM[SHAPE_AT + 16 :], "24 bytes for"),
    ],
    ids=["nothing", "text", "cut", "cut early", "many names", "negative", "larger"],
)
def test_damaged_bytes_are_refused(data: bytes, told: str) -> None:
    with pytest.raises(RunError, match=told):
        runtime.load_param_dict(data)
