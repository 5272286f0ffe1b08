"""Calling compiled graphs: inputs by name, whose tensors come out, where memory goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright import relax
from tilewright.codegen.llvm.tensors import native_empty, packed_dtype
from tilewright.relax import BlockBuilder, TensorStructInfo, op
from tilewright.relax.interpreter import run as interpret
from tilewright.runtime import Tensor, tensor
from tilewright.script import parse
from tilewright.support.errors import BuildError, RunError
from tilewright.te import var


def graph(shape: tuple[Any, ...] = (2, 3), dtype: str = "float32", names: str = "xy") -> Any:
    builder = BlockBuilder()
    x, y = (relax.Var(name, TensorStructInfo(shape, dtype)) for name in names)
    with builder.function("main", [x, y]):
        with builder.dataflow():
            low, high = builder.emit(op.subtract(x, y)), builder.emit(op.add(x, y))
            out = builder.emit_output(relax.Tuple((low, relax.Tuple((high,)))))
        builder.emit_func_output(out)
    return builder.get()


A = np.arange(6, dtype="float32").reshape(2, 3)
B = np.ones((2, 3), "float32")


@pytest.fixture(scope="module")
def run() -> Any:
    return relax.build(graph())["main"]


@pytest.fixture(scope="module")
def sized() -> Any:
    return relax.build(graph((var("call"), var("for"))))["main"]


@pytest.mark.parametrize("call", ["f(A, B)", "f(A, y=B)", "f(y=B, x=A)"])
def test_inputs_by_position_and_name(run: Any, call: str) -> None:
    low, (high,) = eval(call, {"f": run, "A": A, "B": B})
    np.testing.assert_array_equal(low, A - B)
    np.testing.assert_array_equal(high, A + B)
    assert type(low) is Tensor and type(high) is Tensor


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("f(A)", r"main takes 2 arguments \(x, y\), got 1"),
        ("f(A, B, A)", "got 3"),
        ("f(A, B, x=A)", "got 2 and x"),
        ("f(A, z=B)", "got 1 and z"),
        ("f(x=A)", "got 0 and x"),
    ],
)
def test_inputs_that_are_missing_or_too_many(run: Any, call: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        eval(call, {"f": run, "A": A, "B": B})


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (A[0], r"argument 'x': expected a tensor of 2 dimensions, got ndarray of shape \(3,\)"),
        (3.0, "argument 'x': expected a tensor of 2 dimensions, got float"),
        ([[1.0]], "argument 'x': expected a tensor of 2 dimensions, got list"),
    ],
)
def test_inputs_of_which_no_size_can_be_read(sized: Any, x: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        sized(x, B)


def test_sizes_may_have_any_name(sized: Any) -> None:
    low, (high,) = sized(A, B)
    np.testing.assert_array_equal(low, A - B)
    np.testing.assert_array_equal(high, A + B)
    assert [name for name, _, _ in sized.signature.symbols] == ["call", "n"]


def test_results_are_of_the_library_of_the_first_tensor(run: Any, sized: Any) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(A), torch.from_numpy(B)
    for function in (run, sized):
        for inputs in ((x, y), (x, tensor(B)), (x, B)):
            low, (high,) = function(*inputs)
            assert type(low) is type(high) is torch.Tensor
            assert torch.equal(low, x - y) and torch.equal(high, x + y)
        low, _ = function(A, y)
        assert type(low) is Tensor


def test_narrow_results_of_pytorch_become_arrays() -> None:
    torch = pytest.importorskip("torch")
    run = relax.build(graph(dtype="bfloat16"))["main"]
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    low, (high,) = relax.as_numpy(run(x, x))
    assert low.dtype == high.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(high.astype("float32"), np.full((2, 3), 2.0))


def test_results_keep_their_memory_until_the_last_owner_drops_it(run: Any) -> None:
    low, _ = run(A, B)
    array, address = low.numpy(), low.data_ptr()
    assert address % 64 == 0
    del low
    others = [run(A, A)[0] for _ in range(20)]
    assert address not in {other.data_ptr() for other in others}
    np.testing.assert_array_equal(array, A - B)
    del array, others
    again = [run(A, A)[0] for _ in range(20)]
    assert address in {other.data_ptr() for other in again}


@pytest.mark.parametrize("dtype", ["float32", "bool", "float16", "bfloat16", "int64", "uint8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)])
def test_fresh_tensors_of_native_code(shape: tuple[int, ...], dtype: str) -> None:
    made = native_empty()(None, packed_dtype(dtype), *shape)
    assert tuple(made.shape) == shape and str(made.dtype) == dtype
    array = made.numpy()
    array[...] = 1
    np.testing.assert_array_equal(made.numpy().astype("float32"), np.ones(shape, "float32"))


def test_fresh_tensors_that_there_cannot_be() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        native_empty()(None, packed_dtype("float32"), 2, -1)
    for shape in ((1 << 62, 4), (1 << 40, 1 << 40), (1 << 55,)):
        with pytest.raises(MemoryError):
            native_empty()(None, packed_dtype("float32"), *shape)


@pytest.mark.parametrize("symbol", [["__call", 0, 0], ["for", 0, 0], ["n", 7, 0], ["n", 0, 5]])
def test_sizes_in_files_that_name_something_else(tmp_path: Path, symbol: list[Any]) -> None:
    library = relax.build(graph((var("n"), 3))).export_library(tmp_path / "lib.so")
    beside = Path(f"{library}.json")
    data = json.loads(beside.read_text())
    data["functions"][0]["symbols"] = [symbol]
    from tilewright.runtime import load_module
    from tilewright.runtime.beside import beside_checksum

    del data["checksum"]
    data["checksum"] = beside_checksum(data, load_module(library).checksum or b"")
    beside.write_text(json.dumps(data))
    with pytest.raises(BuildError, match="is damaged: ValueError"):
        relax.load_executable(library)


def test_names_that_python_takes_for_one_another() -> None:
    built = relax.build(graph((var("\ufb01"), var("fi"))))  # the first is one letter, a ligature
    low, _ = built["main"](A, B)
    np.testing.assert_array_equal(low, A - B)


SCALARS = [
    ('x: R.Tensor(("n", "m * 2"), "float32"), s: R.Prim("int64", "m")', (3,), (4,), "8; got 6"),
    ('x: R.Tensor(("n", "n * m"), "float32"), s: R.Prim("int64", "m")', (3,), (2,), "4; got 6"),
    ('x: R.Tensor(("n", "m"), "float32"), s: R.Prim("int64", "m")', (6,), (7,), "6"),
    ('x: R.Tensor(("n", 6), "float32"), s: R.Prim("int64", "m"), t: R.Prim("int64", "m")',
     (5, 5), (5, 7), "t must be m, which is 5; got 7"),
    ('x: R.Tensor(("n", "m"), "float32"), s: R.Prim("int64", "m + 1")', (7,), (8,), "7; got 8"),
    ('x: R.Tensor(("n", 6), "float32"), s: R.Prim("int64", 6)', (6,), (7,), "6; got 7"),
]  # fmt: skip


@pytest.mark.parametrize(("params", "right", "wrong", "message"), SCALARS)
def test_scalars_are_what_extents_say(
    params: str, right: tuple[int, ...], wrong: tuple[int, ...], message: str
) -> None:
    mod = parse(f"""
from tilewright.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main({params}):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y
""")
    x = np.arange(12, dtype="float32").reshape(2, 6)
    built = relax.build(mod)["main"]
    np.testing.assert_array_equal(built(x, *right), x + x)
    with pytest.raises((RunError, RuntimeError, ValueError), match=message):
        built(x, *wrong)
    np.testing.assert_array_equal(interpret(mod, x, *right), x + x)
    with pytest.raises(RunError):
        interpret(mod, x, *wrong)
