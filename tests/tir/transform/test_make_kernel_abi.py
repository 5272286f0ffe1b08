"""How functions are called is recorded once, by the last pass."""

from __future__ import annotations

import pytest

from tilewright import driver
from tilewright.ir import IRModule, as_int
from tilewright.script import parse, to_text
from tilewright.support.errors import LowerError
from tilewright.target import Target
from tilewright.tir.transform import KERNEL_ABI, MakeKernelABI

HEAD = "from tilewright.script import tir as T\n@T.prim_func\n"
SYMBOLIC = parse(
    HEAD
    + """def main(a: T.handle, b: T.handle, n: T.int64, scale: T.float32):
    m = T.int64()
    s = T.int64()
    A = T.match_buffer(a, (n, m), "float16", strides=(s, 1))
    B = T.match_buffer(b, (m * 2,), "float32")
    for i in range(m):
        B[i * 2] = scale
"""
)


def test_arguments_and_symbols() -> None:
    abi = MakeKernelABI()(IRModule({"main": SYMBOLIC}))["main"].attrs[KERNEL_ABI]
    assert abi["arguments"] == [
        {
            "name": "A",
            "dtype": "float16",
            "shape": ["n", "m"],
            "strides": ["s", 1],
            "alignment": 2,
            "written": False,
        },
        {
            "name": "B",
            "dtype": "float32",
            "shape": ["B_shape_0"],
            "strides": None,
            "alignment": 4,
            "written": True,
        },
        {"name": "n", "dtype": "int64"},
        {"name": "scale", "dtype": "float32"},
    ]
    assert set(abi["symbols"]) == {"m", "s", "B_shape_0"}


def test_it_prints_and_parses() -> None:
    mod = MakeKernelABI()(IRModule({"main": SYMBOLIC}))
    again = parse(to_text(mod, header=True))
    assert to_text(again) == to_text(mod)


def test_lowered_functions_have_it() -> None:
    lowered = driver.lower(SYMBOLIC, Target("native"))
    (func,) = lowered.functions.values()
    names = [item["name"] for item in func.attrs[KERNEL_ABI]["arguments"]]
    assert names == ["A", "B", "n", "scale"]


def test_calls_of_unknown_code() -> None:
    func = parse(
        HEAD
        + 'def main(A: T.Buffer((4,), "float32")):\n'
        + '    T.evaluate(T.call_extern("f", A.data, dtype="int32"))\n'
    )
    abi = MakeKernelABI()(IRModule({"main": func}))["main"].attrs[KERNEL_ABI]
    assert abi["arguments"][0]["written"]
    assert as_int(func.buffers[0].shape[0]) == 4


def test_what_is_only_fetched_ahead_is_not_written() -> None:
    func = parse(
        HEAD
        + """def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        T.evaluate(T.prefetch(T.address_of(A[i], dtype="handle"), 0, 3, dtype="int32"))
        B[i] = A[i]
"""
    )
    abi = MakeKernelABI()(IRModule({"main": func}))["main"].attrs[KERNEL_ABI]
    assert [item["written"] for item in abi["arguments"]] == [False, True]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def main(a: T.handle):\n    T.evaluate(0)\n", "'a' is a bare handle"),
        (
            "def main(a: T.handle, n: T.int64):\n"
            '    A = T.match_buffer(a, (4,), "float32", elem_offset=n * 2)\n'
            "    A[0] = T.float32(0)\n",
            "an argument's offset may be zero or a variable",
        ),
        (
            "def main(a: T.handle):\n"
            '    A = T.match_buffer(a, (4,), "float32", elem_offset=100)\n'
            "    A[0] = T.float32(0)\n",
            "an argument's offset may be zero or a variable",
        ),
    ],
)
def test_what_can_not_be_checked(code: str, message: str) -> None:
    with pytest.raises(LowerError, match=message):
        MakeKernelABI()(IRModule({"main": parse(HEAD + code)}))
