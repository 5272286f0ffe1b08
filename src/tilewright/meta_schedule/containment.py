"""What a program from an untrusted database must not do if it is to be compiled and run.

A workload is run to check its records, and it may come from anywhere. A *contained* program
accesses only its own arrays: it calls no external code, makes no pointers, has no views of memory,
and writes inside its arrays. Where that depends on data (a merge sort's indices, say) each write
gets an assertion. Reads at data-dependent indices are allowed: their results are used only as
numbers, and an invalid one only ends the process that runs the program.

Only constructs of unscheduled programs are supported here. Schedules need no such check: primitives
keep the program's meaning, and what they insert (tensor intrinsics, kernels) is registered in this
process, by its user.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tilewright.ir import (
    Call,
    Expr,
    IRModule,
    Mutator,
    Node,
    StringImm,
    Var,
    and_,
    as_int,
    dtypes,
    pre_order,
)
from tilewright.script import to_text
from tilewright.support.errors import VerifyError
from tilewright.support.text import indent
from tilewright.tir import (
    Allocate,
    AssertStmt,
    Block,
    Buffer,
    BufferStore,
    DeclBuffer,
    For,
    PrimFunc,
    Stmt,
    seq,
)
from tilewright.tir.analysis import check_out_of_bounds, verify
from tilewright.tir.attrs import (
    APART,
    AUTO_COPY,
    BUFFER_DIM_ALIGN,
    DOUBLE_BUFFER,
    PERMUTED_LAYOUT,
    PERMUTED_ROWS,
    PIPELINE_ASYNC_STAGES,
    PIPELINE_FUSE,
    PIPELINE_ORDER,
    PIPELINE_STAGE,
    READ_ONLY,
    TENSOR_INTRIN,
    TRUSTED_REGIONS,
)
from tilewright.tir.transform import CALLING_CONV, KERNEL_ABI

Fault = tuple[Node, str]

EXTERNAL_CALLS = (
    "call_extern", "call_pure_extern", "call_packed", "call_llvm_intrin", "call_llvm_pure_intrin",
)  # fmt: skip
"""Operators that call code by its name."""

_POINTERS = ("address_of", "access_ptr", "constant_data", "atomic_add")
# Promises about a program that the compiler believes.
_PROMISES = ("assume",)
# Annotations with which lowering places memory otherwise, takes loops apart, or takes a block for
# what an intrinsic does.
_SCHEDULED = (
    BUFFER_DIM_ALIGN,
    DOUBLE_BUFFER,
    PERMUTED_LAYOUT,
    PERMUTED_ROWS,
    PIPELINE_STAGE,
    PIPELINE_ORDER,
    PIPELINE_ASYNC_STAGES,
    PIPELINE_FUSE,
    AUTO_COPY,
    TENSOR_INTRIN,
)
# Attributes of functions that only lowering may leave, for they are believed.
_OF_LOWERING = (APART, READ_ONLY, KERNEL_ABI, CALLING_CONV)


def check_containment(func: PrimFunc, allow_extern: Collection[str] = ()) -> list[Fault]:
    """Return what keeps a function from being contained: nodes, each with a reason.

    Calls of the functions named in ``allow_extern`` are allowed, with pointers as arguments.
    """
    found = [*_memory_faults(func), *_expression_faults(func, allow_extern)]
    for fault in check_out_of_bounds(func):
        node = fault.access.node
        if fault.access.is_write:
            if not isinstance(node, BufferStore) or any(_is_vector(i) for i in node.indices):
                found.append((node, f"it may write out of bounds: {fault.reason}"))
        elif "depends on data" not in fault.reason:
            found.append((node, f"it may read out of bounds: {fault.reason}"))
    return found


def contained(mod: IRModule, allow_extern: Collection[str] = ()) -> IRModule:
    """Return an untrusted module in a form that can be run: unproven writes are asserted.

    Raises ``VerifyError`` if it may do more than compute on its arrays.
    """
    verify(mod)
    made = {}
    for name, func in mod.functions.items():
        if not isinstance(func, PrimFunc):
            raise VerifyError(f"function {name!r} of the workload is no tensor function")
        faults = check_containment(func, allow_extern)
        if faults:
            reasons = "\n".join(f"  {reason}" for reason in dict.fromkeys(r for _, r in faults))
            text = indent(to_text(func, underline=list(dict.fromkeys(node for node, _ in faults))))
            raise VerifyError(f"{name!r} is not run, for it is from a database:\n{reasons}\n{text}")
        unproved = {fault.access.node for fault in check_out_of_bounds(func)}
        made[name] = func.replace(body=_Guard(unproved).visit(func.body))
    return mod.replace(functions=made)


class _Guard(Mutator):
    """Puts assertions before stores."""

    def __init__(self, unproved: Collection[Node]) -> None:
        self.unproved = unproved

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        if node not in self.unproved:
            return node
        tests = [
            test
            for index, extent in zip(node.indices, node.buffer.shape)
            for test in (index >= 0, index < extent)
        ]
        return seq(
            AssertStmt("RuntimeError", and_(*tests), f"a write outside of {node.buffer.name!r}"),
            node,
        )


def _is_vector(index: Expr) -> bool:
    return dtypes.lanes_of(index.dtype) > 1


def _memory_faults(func: PrimFunc) -> Iterator[Fault]:
    """Buffers that are not simply arrays of their own."""
    pointers: set[Var] = set()
    for var in func.params:
        if var.dtype == "handle" and var not in func.buffer_map:
            yield func, f"parameter {var.name!r} is a bare pointer"
    for key in _OF_LOWERING:
        if key in func.attrs:
            yield func, f"it is lowered already (attribute {key!r})"
    owned: list[tuple[Node, Buffer]] = [(func, buffer) for buffer in func.buffers]
    for node in pre_order(func.body):
        if isinstance(node, Block):
            owned += [(node, buffer) for buffer in node.alloc_buffers]
            if node.match_buffers:
                yield node, "it has views of memory (match_buffer)"
        elif isinstance(node, Allocate):
            owned.append((node, node.buffer))
        elif isinstance(node, DeclBuffer):
            yield node, f"it has views of memory ({node.buffer.name!r})"
        if isinstance(node, (Block, For)):
            for key in node.annotations:
                if key == TRUSTED_REGIONS:
                    yield node, f"it makes promises that nothing checks (annotation {key!r})"
                elif key in _SCHEDULED:
                    yield node, f"it is scheduled already (annotation {key!r})"
    for node, buffer in owned:
        if buffer.data in pointers:
            yield node, f"buffer {buffer.name!r} shares memory with another"
        pointers.add(buffer.data)
        is_argument = node is func
        offset = buffer.elem_offset
        starts = offset is None or as_int(offset) == 0 or (is_argument and isinstance(offset, Var))
        if not starts:
            yield node, f"buffer {buffer.name!r} begins at an offset"
        if buffer.strides and not is_argument:
            yield node, f"buffer {buffer.name!r} has strides"


def _expression_faults(func: PrimFunc, allow_extern: Collection[str]) -> Iterator[Fault]:
    granted: set[object] = set()
    for node in pre_order(func.body):
        if node in granted or not isinstance(node, Expr):
            continue
        if isinstance(node, Call):
            name = node.op.name
            if name in EXTERNAL_CALLS:
                called = node.args[0] if node.args else None
                text = called.value if isinstance(called, StringImm) else None
                if text in allow_extern:
                    granted.update(item for arg in node.args for item in pre_order(arg))
                else:
                    yield node, f"it calls {text!r} ({name}), which is not allowed by name"
                continue
            if name in _POINTERS:
                yield node, f"it makes pointers ({name})"
                continue
            if name in _PROMISES:
                yield node, f"it makes promises that nothing checks ({name})"
                continue
        if node.dtype == "handle":
            yield node, "it computes with pointers"


__all__ = ["EXTERNAL_CALLS", "check_containment", "contained"]
