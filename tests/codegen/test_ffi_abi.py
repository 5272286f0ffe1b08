"""Calls through the tvm-ffi wrapper: what is passed on, and how wrong arguments are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import runtime
from tilewright.codegen.llvm.ffi_abi import FunctionSpec, ScalarArg, TensorArg, emit_ffi_wrappers
from tilewright.codegen.llvm.package import build_module
from tilewright.support.errors import CodegenError


def recorder(spec: FunctionSpec, code: int = 0) -> Callable[..., Any]:
    """A function whose kernel writes what it is passed into its last tensor, as doubles."""
    parameters = spec.parameters()
    out = [name for name, kind in parameters if kind == "ptr"][-1]
    body = []
    position = 0
    for index, (name, kind) in enumerate(parameters):
        if kind == "ptr":
            continue
        body.append(f"  %p{index} = getelementptr double, ptr %{out}, i64 {position}")
        operation = {
            "double": f"fadd double %{name}, 0.0",
            "i1": f"uitofp i1 %{name} to double",
        }.get(kind)
        if operation is None:
            verb = "fpext" if kind in ("half", "float") else "sitofp"
            operation = f"{verb} {kind} %{name} to double"
        body += [f"  %d{index} = {operation}", f"  store double %d{index}, ptr %p{index}"]
        position += 1
    formal = ", ".join(f"{kind} %{name}" for name, kind in parameters)
    text = f"define i32 @{spec.kernel}({formal}) {{\n" + "\n".join(body) + f"\n  ret i32 {code}\n}}"
    return build_module(text, [spec])[spec.name]


def tensor(name: str, shape: tuple[Any, ...], **options: Any) -> TensorArg:
    return TensorArg(name, "float32", shape, **options)


OUT = TensorArg("out", "float64", (16,))


def out() -> np.ndarray[Any, Any]:
    return np.full(16, -1.0)


def test_order_of_kernel_parameters() -> None:
    spec = FunctionSpec(
        "f",
        (
            ScalarArg("alpha", "float32"),
            tensor("A", ("n", "m")),
            ScalarArg("m", "int32"),
            tensor("B", ("k", "n")),
        ),
    )
    assert spec.parameters() == [
        ("A", "ptr"),
        ("B", "ptr"),
        ("alpha", "float"),
        ("m", "i32"),
        ("n", "i64"),
        ("k", "i64"),
    ]


def test_scalars_and_extents_arrive() -> None:
    spec = FunctionSpec(
        "f",
        (
            ScalarArg("a", "int8"),
            ScalarArg("b", "float32"),
            ScalarArg("c", "bool"),
            ScalarArg("d", "float16"),
            ScalarArg("e", "int64"),
            tensor("A", ("n", 3, "m")),
            OUT,
        ),
    )
    result = out()
    recorder(spec)(-5, 1.5, True, 2, 2**40, np.zeros((4, 3, 7), "float32"), result)
    assert result[:7].tolist() == [-5, 1.5, 1, 2, 2**40, 4, 7]


def test_strided_tensor_passes_its_strides() -> None:
    spec = FunctionSpec("f", (tensor("A", ("n", "m"), strides=("s", "t")), OUT))
    result = out()
    recorder(spec)(np.zeros((6, 8), "float32")[::2, ::4], result)
    # strides are defined from the last to the first
    assert dict(zip([n for n, k in spec.parameters() if k == "i64"], result, strict=False)) == {
        "n": 3,
        "m": 2,
        "t": 4,
        "s": 16,
    }


def test_byte_offset_is_applied() -> None:
    kernel = """
define i32 @f(ptr %A, ptr %out) {
  %v = load float, ptr %A
  %d = fpext float %v to double
  store double %d, ptr %out
  ret i32 0
}
"""
    function = build_module(kernel, [FunctionSpec("f", (tensor("A", (2,)), OUT))])["f"]
    result = out()
    function(np.arange(6, dtype="float32")[3:5], result)
    assert result[0] == 3
    torch = pytest.importorskip("torch")
    function(torch.arange(6, dtype=torch.float32)[4:], result)
    assert result[0] == 4


def test_layouts_that_count_as_compact() -> None:
    function = recorder(FunctionSpec("f", (tensor("A", ("n", "m")), OUT)))
    function(np.zeros((1, 8), "float32")[:, :3], out())  # stride of the one row is never used
    function(np.zeros((8, 0), "float32").T, out())  # no elements at all
    function(np.zeros((5, 1), "float32", order="F"), out())


def check(spec: FunctionSpec, args: tuple[Any, ...], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        recorder(spec)(*args)
    assert str(caught.value) == message


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, "float32")


MATMUL = FunctionSpec(
    "matmul", (tensor("A", ("n", 512)), tensor("B", (512, 512)), tensor("C", ("n", 512)))
)


@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        (
            (zeros(2, 512),),
            TypeError,
            "matmul: expected 3 arguments (A: Tensor, B: Tensor, C: Tensor), got 1",
        ),
        (
            (zeros(2, 512), zeros(512, 256), zeros(2, 512)),
            ValueError,
            "matmul: argument #1 'B': expected shape (512, 512), got (512, 256)",
        ),
        (
            (zeros(2, 512), zeros(512, 512), zeros(3, 512)),
            ValueError,
            "matmul: argument #2 'C': expected shape (n, 512), got (3, 512): "
            "'n' is 2 by argument #0 'A'",
        ),
        (
            (zeros(512), zeros(512, 512), zeros(3, 512)),
            ValueError,
            "matmul: argument #0 'A': expected shape (n, 512), got (512,)",
        ),
        (
            (zeros(2, 512), None, zeros(2, 512)),
            TypeError,
            "matmul: argument #1 'B': expected a Tensor, got None",
        ),
        (
            (zeros(2, 512), 3, zeros(2, 512)),
            TypeError,
            "matmul: argument #1 'B': expected a Tensor, got an int",
        ),
        (
            (zeros(2, 512), np.zeros((512, 512)), zeros(2, 512)),
            TypeError,
            "matmul: argument #1 'B': expected dtype float32, got float64",
        ),
        (
            (zeros(2, 512), zeros(512, 512).astype(bool), zeros(2, 512)),
            TypeError,
            "matmul: argument #1 'B': expected dtype float32, got bool",
        ),
        (
            (zeros(512, 2).T, zeros(512, 512), zeros(2, 512)),
            ValueError,
            "matmul: argument #0 'A': expected compact row-major strides, got strides (1, 2) "
            "for shape (2, 512)",
        ),
    ],
)
def test_wrong_tensors_are_refused(
    args: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    check(MATMUL, args, kind, message)


def test_wrong_strides_and_alignment_are_refused() -> None:
    fixed = FunctionSpec("f", (tensor("A", (2, 4), strides=(8, 1)), OUT))
    recorder(fixed)(zeros(2, 8)[:, :4], out())
    check(
        fixed,
        (zeros(2, 4), out()),
        ValueError,
        "f: argument #0 'A': expected strides (8, 1), got strides (4, 1) for shape (2, 4)",
    )
    aligned = FunctionSpec("f", (tensor("A", (4,), alignment=64), OUT))
    memory = runtime.empty((8,)).numpy()
    recorder(aligned)(memory[:4], out())
    with pytest.raises(ValueError, match="'A': expected memory aligned to 64 bytes, got address"):
        recorder(aligned)(memory[1:5], out())


def test_wrong_device_is_refused() -> None:
    spec = FunctionSpec("f", (tensor("A", (4,), device_type=2),))
    check(
        spec,
        (zeros(4),),
        ValueError,
        "f: argument #0 'A': expected a tensor on cuda, got one on cpu:0",
    )


@pytest.mark.parametrize(
    ("dtype", "value", "kind", "message"),
    [
        ("int32", 1.5, TypeError, "f: argument #0 'x': expected an int, got a float"),
        (
            "int32",
            2**31,
            ValueError,
            "f: argument #0 'x': expected a value of type int32, got 2147483648",
        ),
        ("uint8", -1, ValueError, "f: argument #0 'x': expected a value of type uint8, got -1"),
        ("bool", 2, ValueError, "f: argument #0 'x': expected a value of type bool, got 2"),
        ("float32", "a", TypeError, "f: argument #0 'x': expected a float, got a string"),
        ("float32", zeros(1), TypeError, "f: argument #0 'x': expected a float, got a Tensor"),
    ],
)
def test_wrong_scalars_are_refused(
    dtype: str, value: object, kind: type[Exception], message: str
) -> None:
    check(FunctionSpec("f", (ScalarArg("x", dtype), OUT)), (value, out()), kind, message)


@pytest.mark.parametrize(("dtype", "value"), [("int8", -128), ("uint8", 255), ("int64", -(2**63))])
def test_extreme_scalars_are_taken(dtype: str, value: int) -> None:
    recorder(FunctionSpec("f", (ScalarArg("x", dtype), OUT)))(value, out())


def test_scalar_must_agree_with_extents_before_and_after_it() -> None:
    before = FunctionSpec("f", (ScalarArg("n", "int64"), tensor("A", ("n",)), OUT))
    result = out()
    recorder(before)(3, zeros(3), result)
    assert result[0] == 3
    check(
        before,
        (4, zeros(3), out()),
        ValueError,
        "f: argument #1 'A': expected shape (n,), got (3,): 'n' is 4 by argument #0 'n'",
    )
    # `n` has no value yet when the first extent differs.
    check(
        FunctionSpec("f", (tensor("A", (2, "n", "n")), OUT)),
        (zeros(3, 4, 5), out()),
        ValueError,
        "f: argument #0 'A': expected shape (2, n, n), got (3, 4, 5)",
    )
    after = FunctionSpec("f", (tensor("A", ("n",)), ScalarArg("n", "int32"), OUT))
    recorder(after)(zeros(3), 3, out())
    check(
        after,
        (zeros(3), 5, out()),
        ValueError,
        "f: argument #1 'n': expected 3 as in argument #0 'A', got 5",
    )


def test_codes_of_the_kernel_become_errors() -> None:
    spec = FunctionSpec("f", (OUT,))
    check_code = recorder(spec, code=7)
    with pytest.raises(RuntimeError, match="f: failed with code 7"):
        check_code(out())


def test_void_kernels_and_other_symbols() -> None:
    spec = FunctionSpec("f", (OUT,), symbol="kernel_of_f", returns_void=True)
    text = """
define void @kernel_of_f(ptr %out) {
  store double 4.0, ptr %out
  ret void
}
"""
    result = out()
    build_module(text, [spec])["f"](result)
    assert result[0] == 4


def test_long_messages_are_cut() -> None:
    spec = FunctionSpec("f", tuple(tensor("x" * 200 + str(i), (1,)) for i in range(8)))
    with pytest.raises(TypeError) as caught:
        recorder(spec)()
    assert len(str(caught.value)) < 1024


def test_bad_specs_are_refused() -> None:
    with pytest.raises(CodegenError, match="names must differ"):
        emit_ffi_wrappers([FunctionSpec("f", (OUT, OUT))])
    with pytest.raises(CodegenError, match="power of two"):
        emit_ffi_wrappers([FunctionSpec("f", (tensor("A", (1,), alignment=3),))])
    with pytest.raises(CodegenError, match="1 extents but 2 strides"):
        emit_ffi_wrappers([FunctionSpec("f", (tensor("A", (1,), strides=(1, 1)),))])
    with pytest.raises(CodegenError, match="can't be of type 'float8_e5m2'"):
        emit_ffi_wrappers([FunctionSpec("f", (ScalarArg("x", "float8_e5m2"),))])
    with pytest.raises(CodegenError, match="can't be the name"):
        emit_ffi_wrappers([FunctionSpec("a b", (OUT,))])
