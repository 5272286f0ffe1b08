"""Make each kernel a function of its own, which the host's function calls.

A kernel takes pointers to the global memory it uses, then the numbers it needs (symbolic extents,
loop variables of the host). It keeps its thread-bound loops: their extents, as functions of its
parameters, are how it is to be launched (``launch_extents``).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tilewright.ir import (
    GLOBAL_SYMBOL,
    Expr,
    IRModule,
    Pass,
    StringImm,
    Var,
    as_int,
    call,
    const,
    free_vars,
    pre_order,
)
from tilewright.support.errors import LowerError
from tilewright.target import Target
from tilewright.tir.attrs import EXCESS_PRECISION, NO_ALIAS
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.rewrite import fresh_name, renew_definitions
from tilewright.tir.stmt import Allocate, DeclBuffer, Evaluate, For, Stmt
from tilewright.tir.thread_scope import CLUSTER_TAGS, LARGEST_CLUSTER
from tilewright.tir.transform.kernels import map_kernels, thread_nest

CALLING_CONV = "calling_conv"
"""Function attribute: ``device_kernel_launch`` for a kernel."""
LAUNCH_PARAMS = "tir.kernel_launch_params"
"""Function attribute: the thread tags of a kernel, in the order of its loops."""

_INHERITED = (NO_ALIAS, EXCESS_PRECISION)
"""What a function says of its arguments and numbers, and its kernels say too."""


class SplitHostDevice(Pass):
    """Outline the outermost thread-bound nests of all functions."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target

    def transform(self, mod: IRModule) -> IRModule:
        """Return the module with kernels beside the functions that call them."""
        functions: dict[str, object] = {}
        taken = set(mod.functions)
        for name, func in mod.functions.items():
            functions[name] = func
            if not isinstance(func, PrimFunc) or CALLING_CONV in func.attrs:
                continue
            kernels: dict[str, PrimFunc] = {}

            def outline(kernel: For, name: str = name, kernels: Any = kernels) -> Stmt:
                symbol = fresh_name(f"{name}_kernel", taken)
                kernels[symbol], stmt = _outlined(kernel, symbol, self.target)
                return stmt

            functions[name] = map_kernels(func, outline)
            own = {key: func.attrs[key] for key in _INHERITED if key in func.attrs}
            functions.update(
                {key: item.replace(attrs={**item.attrs, **own}) for key, item in kernels.items()}
            )
        if len(functions) == len(mod.functions):
            return mod
        return mod.replace(functions=functions)


def launch_extents(func: PrimFunc) -> dict[str, Expr]:
    """Return the number of blocks and threads of a kernel per tag, in terms of its parameters."""
    body = func.body
    while isinstance(body, (DeclBuffer, Allocate)):
        body = body.body
    if not isinstance(body, For) or body.thread is None:
        raise LowerError("the function is no kernel: its body is no thread-bound loop")
    return {loop.thread or "": loop.extent for loop in thread_nest(body)[0]}


def cluster_shape(extents: Mapping[str, Expr]) -> tuple[int, int, int]:
    """Return the blocks of a cluster along x, y and z, from a kernel's extents by thread tag.

    Raises ``LowerError`` for what can't be a cluster on any GPU.
    """
    shape = []
    for tag in CLUSTER_TAGS:
        extent = as_int(extents.get(tag, const(1)))
        if extent is None or extent < 1:
            raise LowerError(
                f"the extent of {tag} is {extents[tag]!r}: how many blocks a cluster has is a "
                "constant"
            )
        shape.append(extent)
    if prod(shape) > LARGEST_CLUSTER:
        raise LowerError(
            f"a cluster has {prod(shape)} blocks ({' x '.join(map(str, shape))}), more than "
            f"{LARGEST_CLUSTER}"
        )
    return shape[0], shape[1], shape[2]


def check_cluster(extents: Mapping[str, Expr], target: Target) -> None:
    """Raise ``LowerError`` if a target has no clusters as large as a kernel's."""
    blocks, most = prod(cluster_shape(extents)), target.gpu.cluster_blocks
    if blocks > most:
        has = f"at most {most} blocks in a cluster" if most > 1 else "no clusters"
        raise LowerError(
            f"a kernel has clusters of {blocks} blocks (loops on clusterCtaIdx); the target "
            f"{target.kind} -arch={target.arch} has {has}"
        )


def _outlined(kernel: For, symbol: str, target: Target | None) -> tuple[PrimFunc, Stmt]:
    loops, body = thread_nest(kernel)
    extents = {loop.thread or "": loop.extent for loop in loops}
    if target is not None:
        check_cluster(extents, target)
    else:
        cluster_shape(extents)
    for item in pre_order(body):
        if type(item) is For and item.thread is not None:
            raise LowerError(
                f"the loop on {item.thread} is not at the top of its kernel; run "
                "UnifyThreadBinding and LiftThreadBinding before SplitHostDevice"
            )
    used, inside = _buffers(kernel)
    outside: dict[Var, Buffer] = {}
    views: list[Buffer] = []
    for buffer in used:
        if buffer.data in inside:
            continue
        if buffer.scope != "global":
            raise LowerError(
                f"a kernel uses {buffer.name!r} of scope {buffer.scope!r}, which is allocated "
                "outside of it; such memory lives in one kernel only"
            )
        if outside.setdefault(buffer.data, buffer) is not buffer:
            views.append(buffer)
    scalars = _scalars(kernel, [*used, *inside.values()], set(outside))
    handles = {Var(f"{buffer.name}_handle", "handle"): buffer for buffer in outside.values()}
    stmt: Stmt = kernel
    for buffer in reversed(views):
        stmt = DeclBuffer(buffer, stmt)
    attrs: dict[str, Any] = {
        GLOBAL_SYMBOL: symbol,
        CALLING_CONV: "device_kernel_launch",
        LAUNCH_PARAMS: [loop.thread for loop in loops],
    }
    if target is not None:
        attrs["target"] = target
    func = PrimFunc((*handles, *scalars), stmt, attrs=attrs, buffer_map=handles)
    launch = call("call_extern", StringImm(symbol), *outside, *scalars, dtype="int32")
    made: PrimFunc = renew_definitions(func)
    return made, Evaluate(launch)


def _buffers(kernel: For) -> tuple[list[Buffer], dict[Var, Buffer]]:
    """Buffers that are used, and memory that is allocated, in a kernel."""
    used: dict[Buffer, None] = {}
    inside: dict[Var, Buffer] = {}
    declared: set[Buffer] = set()
    for item in pre_order(kernel):
        if isinstance(item, Buffer):
            used.setdefault(item)
        elif type(item) is Allocate:
            inside[item.buffer.data] = item.buffer
        elif type(item) is DeclBuffer:
            declared.add(item.buffer)
    return [buffer for buffer in used if buffer not in declared], inside


def _scalars(kernel: For, buffers: list[Buffer], pointers: set[Var]) -> list[Var]:
    """Variables from outside that the kernel or the shapes of its buffers use."""
    found: dict[Var, None] = dict.fromkeys(free_vars(kernel))
    defined = {item.loop_var for item in pre_order(kernel) if type(item) is For}
    declared = [item.buffer for item in pre_order(kernel) if type(item) is DeclBuffer]
    for buffer in (*buffers, *declared):
        for expr in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            if expr is not None:
                found.update((var, None) for var in free_vars(expr) if var not in defined)
    return [var for var in found if var not in pointers and var.dtype != "handle"]
