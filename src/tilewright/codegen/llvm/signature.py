"""How a PrimFunc's parameters map to the kernel's.

The link between what ``MakeKernelABI`` recorded and the calling convention of :mod:`ffi_abi`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.codegen.llvm.ffi_abi import FunctionSpec, ScalarArg, TensorArg, check_function_name
from tilewright.ir import Expr, Var, as_int, dtypes
from tilewright.runtime.device import DEVICE_TYPES
from tilewright.support.errors import CodegenError
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import APART
from tilewright.tir.returned_values import returned_dtype, returned_values
from tilewright.tir.transform import KERNEL_ABI, kernel_abi


@dataclass(frozen=True)
class Signature:
    """The spec of a function, and what each kernel parameter stands for, in order.

    A parameter is a buffer's data variable, a scalar variable, a symbolic extent's variable, or an
    expression of an extent (such as ``n * 2``) that the kernel checks against the value passed.
    """

    spec: FunctionSpec
    parameters: tuple[Expr, ...]
    noalias: frozenset[Var]


def kernel_symbol(name: str) -> str:
    """The LLVM symbol of a kernel; the suffix keeps clear of libc's names (``exp``, ``main``)."""
    return f"{name}.kernel"


def make_signature(name: str, func: PrimFunc, device: str = "cpu") -> Signature:
    """Describe the arguments of a function, whose tensors are on a kind of device."""
    check_function_name(name)
    abi = func.attrs.get(KERNEL_ABI) or kernel_abi(func)
    kind = DEVICE_TYPES[device]
    args = tuple(_argument(entry, kind) for entry in abi["arguments"])
    spec = FunctionSpec(
        name,
        args,
        kernel_symbol(name),
        on_device=device != "cpu",
        returns=_returned(name, func),
        results=_results(func),
    )
    if spec.returns and spec.on_device:
        raise CodegenError(f"{name} returns a value; only functions of the CPU do")
    tensors = [func.buffer_map[var].data for var in func.params if var in func.buffer_map]
    scalars = [var for var in func.params if var not in func.buffer_map]
    labels = [label for label, _ in spec.parameters()[len(func.params) :]]
    symbols = [abi["symbols"][label] for label in labels]
    noalias = frozenset(var for var in tensors if tensors.count(var) == 1)
    return Signature(spec, (*tensors, *scalars, *symbols), noalias)


def _results(func: PrimFunc) -> tuple[tuple[int, int], ...]:
    """The parameters that must lie apart, each with the one in whose place it may lie."""
    pairs = (map(as_int, pair) for pair in func.attrs.get(APART, ()))
    return tuple((result or 0, place or 0) for result, place in pairs)


def _returned(name: str, func: PrimFunc) -> str | None:
    """The dtype of a number that a function returns; ``CodegenError`` for what is none."""
    dtype = returned_dtype(func)
    if dtype == "void":
        return None
    for given in (dtype, *(value.dtype for value in returned_values(func))):
        if given == "handle" or dtypes.lanes_of(given) > 1:
            raise CodegenError(f"{name} returns {given}; a function returns a number or nothing")
    return dtype


def _argument(entry: dict[str, Any], device_type: int) -> TensorArg | ScalarArg:
    if "shape" not in entry:
        return ScalarArg(entry["name"], entry["dtype"])
    strides = entry["strides"]
    return TensorArg(
        entry["name"],
        entry["dtype"],
        tuple(entry["shape"]),
        None if strides is None else tuple(strides),
        alignment=entry["alignment"],
        device_type=device_type,
        written=entry["written"],
    )
