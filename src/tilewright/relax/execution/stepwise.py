"""Runs a compiled graph kernel by kernel: what the profiler measures and instruments see.

The steps are those of the planned graph, with the same memory; each kernel is called through its
own entry in the compiled module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arith import simplify
from tilewright.ir import Expr, IRModule, Var, as_int, const, dtypes, substitute
from tilewright.relax.assertion import assertion_operands
from tilewright.relax.branches import If
from tilewright.relax.call_packed import PACKED
from tilewright.relax.call_tir import CALL_DPS
from tilewright.relax.execution.executable import Executable, as_numpy
from tilewright.relax.execution.graph_call import flat_inputs
from tilewright.relax.expr import (
    Constant,
    ExternFunc,
    Function,
    FunctionRef,
    MatchCast,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    SeqExpr,
    ShapeExpr,
    StringValue,
    Tuple,
)
from tilewright.relax.registry import is_call_to
from tilewright.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from tilewright.relax.values import numpy_dtype
from tilewright.runtime import Module, empty, from_numpy, get_global_func
from tilewright.support.errors import RunError


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel: its name, its operands, and how many of them are inputs."""

    name: str
    operands: tuple[Any, ...]
    inputs: int

    @property
    def tensors(self) -> list[Any]:
        """The operands that are tensors."""
        return [item for item in self.operands if hasattr(item, "shape")]

    @property
    def shapes(self) -> list[str]:
        """Dtype and shape of each tensor."""
        return [f"{item.dtype.name}{list(item.shape)}" for item in self.tensors]


RunKernel = Callable[[KernelCall, Callable[..., Any]], None]
"""Runs a kernel: takes the call and the compiled function."""


def planned_graph(executable: Executable, name: str) -> tuple[IRModule, Function]:
    """The planned graph function.

    Raises ``RunError`` for an executable without one, for one for GPUs, and an unknown function.
    """
    if executable.device_kind != "cpu":
        raise RunError(
            f"kernels are called one by one on the CPU only; these are for {executable.device_kind}"
            ": NVIDIA's profilers (nsys, ncu) show them"
        )
    if executable.planned is None:
        raise RunError(
            "kernels are known of executables that relax.build made in this process, "
            "not of those that were loaded or pickled: build the model again"
        )
    executable[name]  # an unknown name is refused there
    function = executable.planned[name]
    assert isinstance(function, Function)
    return executable.planned, function


def run_stepwise(
    executable: Executable, name: str, inputs: Sequence[object], run_kernel: RunKernel
) -> Any:
    """Run a graph function kernel by kernel; returns NumPy arrays.

    Raises ``RunError`` as ``planned_graph`` does, for wrong inputs and failed assertions.
    """
    _, function = planned_graph(executable, name)
    signature = executable.signatures[name]
    flat = [_as_array(item) for item in flat_inputs(signature, inputs)]
    if len(flat) != len(function.params):
        raise RunError(f"{name} takes {len(function.params)} arguments, got {len(flat)}")
    steps = _Steps(executable, run_kernel)
    for param, value in zip(function.params, flat):
        steps.define(param, value)
    return steps.sequence(function.body)


def _as_array(value: object) -> object:
    if isinstance(value, (bool, int, float, np.generic)):
        return value
    array = as_numpy(value)
    return np.ascontiguousarray(array).reshape(array.shape)  # one without axes gets none


class _Steps:
    def __init__(self, executable: Executable, run_kernel: RunKernel) -> None:
        self.executable = executable
        self.run_kernel = run_kernel
        self.values: dict[RelaxExpr, Any] = {}
        self.extents: dict[Var, Expr] = {}

    def sequence(self, body: SeqExpr) -> Any:
        for binding in (binding for block in body.blocks for binding in block.bindings):
            self.define(binding.var, self.evaluate(binding.value))
            if isinstance(binding, MatchCast):
                self.bind(binding.struct_info, self.values[binding.var])
        return self.result(body.body)

    def define(self, var: RelaxExpr, value: object) -> None:
        self.values[var] = value
        self.bind(var.struct_info, value)

    def bind(self, info: StructInfo, value: Any) -> None:
        """Learn symbolic extents from a value."""
        if isinstance(info, PrimStructInfo) and isinstance(info.value, Var):
            self.extents.setdefault(info.value, const(int(value)))
        elif isinstance(info, TensorStructInfo) and info.has_shape:
            found = list(np.shape(value))
            for extent, size in zip(info.shape, found):
                if type(extent) is Var:
                    self.extents.setdefault(extent, const(size))
            known = [as_int(simplify(substitute(extent, self.extents))) for extent in info.shape]
            if known != found or np.asarray(value).dtype.name != info.dtype:
                raise RunError(f"expected {info!r}, got {value.dtype.name}{found}")
        elif isinstance(info, ShapeStructInfo):
            for extent, size in zip(info.values, value):
                if type(extent) is Var:
                    self.extents.setdefault(extent, const(size))
                if self.number(extent) != size:
                    raise RunError(f"expected {info!r}, got the shape {list(value)}")
        elif isinstance(info, TupleStructInfo):
            for field, item in zip(info.fields, value):
                self.bind(field, item)

    def number(self, extent: Expr) -> int:
        value = as_int(simplify(substitute(extent, self.extents)))
        if value is None:
            raise RunError(f"the size {extent!r} is not known when it is needed")
        return value

    @staticmethod
    def items(arg: RelaxExpr) -> tuple[RelaxExpr, ...]:
        assert isinstance(arg, Tuple)
        return arg.fields

    def result(self, expr: RelaxExpr) -> Any:
        if isinstance(expr, Tuple):
            return tuple(map(self.result, expr.fields))
        return self.evaluate(expr)

    def evaluate(self, value: RelaxExpr) -> Any:
        if value in self.values:
            return self.values[value]
        if isinstance(value, If):
            outer = self.extents
            self.extents = dict(outer)  # what a branch defines is another extent elsewhere
            made = self.sequence(value.branches[0 if self.evaluate(value.cond) else 1])
            self.extents = outer
            return made
        if isinstance(value, Constant):
            return value.data
        if isinstance(value, Tuple):
            return tuple(map(self.evaluate, value.fields))
        if isinstance(value, StringValue):
            return value.value
        if isinstance(value, PrimValue):
            return self.number(value.value)
        if isinstance(value, ShapeExpr):
            return tuple(map(self.number, value.values))
        if is_call_to(value, "tensor_to_shape"):
            assert isinstance(value, RelaxCall)
            return tuple(map(int, self.evaluate(value.args[0])))
        if is_call_to(value, "assert_op"):
            assert isinstance(value, RelaxCall)
            condition, shown, message = assertion_operands(value)
            if not self.number(condition):
                raise RunError(message.format(*map(self.number, shown)))
            return ()
        if isinstance(value, RelaxCall) and value.op is CALL_DPS:
            return self.call(value)
        if isinstance(value, RelaxCall) and value.op_name.startswith("memory."):
            return self.memory(value)
        raise RunError(f"{value!r} can't be run kernel by kernel")

    def memory(self, call: RelaxCall) -> Any:
        operands = [self.evaluate(arg) for arg in call.args]
        if call.op_name == "memory.view":
            return operands[0].reshape(operands[1])
        if call.op_name == "memory.workspace":
            return empty((operands[0],), "uint8").numpy()
        if call.op_name == "memory.empty":
            return empty(operands[0], call.attrs["dtype"]).numpy()
        storage, offset, shape = operands
        dtype = call.attrs["dtype"]
        length = int(np.prod(shape, dtype=np.int64)) * dtypes.bytes_of(dtype)
        made = storage[offset : offset + length].view(numpy_dtype(dtype))
        return made.reshape(shape)

    def call(self, call: RelaxCall) -> Any:
        ref = call.args[0]
        assert isinstance(ref, FunctionRef)
        module = self.executable.module
        if isinstance(ref.callee, ExternFunc) and ref.callee.attrs.get(PACKED):
            values = [self.evaluate(item) for arg in call.args[1:] for item in self.items(arg)]
            self.run_kernel(
                KernelCall(ref.name, tuple(values), len(self.items(call.args[1]))),
                _taking_arrays(get_global_func(ref.name)),
            )
            return ()
        if isinstance(module, Module) and not module.implements_function(ref.name):
            raise RunError(f"{ref.name} is no kernel of the executable, it can't be run by itself")
        inputs, outputs = self.evaluate(call.args[1]), self.evaluate(call.args[2])
        scalars = self.evaluate(call.args[3]) if len(call.args) > 3 else ()
        step = KernelCall(ref.name, (*inputs, *outputs, *scalars), len(inputs))
        self.run_kernel(step, module[ref.name])
        return ()


def as_tensors(operands: Sequence[object]) -> list[object]:
    """Operands as what compiled functions take at once: conversions aren't measured."""
    return [from_numpy(item) if isinstance(item, np.ndarray) else item for item in operands]


def _taking_arrays(function: Callable[..., object]) -> Callable[..., object]:
    """A global function, which takes tensors, as one that takes arrays."""

    def call(*operands: object) -> Any:
        given = [from_numpy(x) if isinstance(x, np.ndarray) else x for x in operands]
        return function(*given)

    return call
