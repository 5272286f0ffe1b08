"""What kernels need of the addresses that host functions pass on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.codegen.c.kernels import KernelInfo
from tilewright.codegen.llvm.ffi_abi import FunctionSpec, TensorArg
from tilewright.ir import Call, IRModule, StringImm, Var, pre_order
from tilewright.tir import PrimFunc


class Alignments:
    """Of what the addresses of tensors must be multiples, since kernels move vectors."""

    def __init__(self, host: IRModule, kernels: Mapping[str, KernelInfo]) -> None:
        self._host, self._kernels = host, kernels
        self._known: dict[str, tuple[int, ...]] = {}

    def of(self, name: str) -> tuple[int, ...]:
        """The alignment of each tensor that a function or kernel gets, in order."""
        if name in self._kernels:
            given = self._kernels[name].arguments
            return tuple(param.alignment for param in given if param.is_pointer)
        if name not in self._known:
            func = self._host.functions.get(name)
            self._known[name] = ()  # of one that calls itself
            self._known[name] = self._of(func) if isinstance(func, PrimFunc) else ()
        return self._known[name]

    def _of(self, func: PrimFunc) -> tuple[int, ...]:
        tensors = [func.buffer_map[var].data for var in func.params if var in func.buffer_map]
        found = dict.fromkeys(tensors, 1)
        for item in pre_order(func.body):
            if not isinstance(item, Call) or item.op.name != "call_extern":
                continue
            callee, *args = item.args
            needed = self.of(callee.value) if isinstance(callee, StringImm) else ()
            for arg, alignment in zip(args, needed):
                if isinstance(arg, Var) and arg in found:
                    found[arg] = max(found[arg], alignment)
        return tuple(found[data] for data in tensors)

    def applied(self, name: str, spec: FunctionSpec) -> FunctionSpec:
        """Return a function's description with what its kernels need."""
        needed = iter(self.of(name))
        args = tuple(
            replace(arg, alignment=max(arg.alignment, next(needed)))
            if isinstance(arg, TensorArg)
            else arg
            for arg in spec.args
        )
        return replace(spec, args=args)
