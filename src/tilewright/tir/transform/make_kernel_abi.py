"""Record how a function is called: the last pass, which code generators and binders read.

A kernel is called with the addresses of its tensors, then its scalars, then the symbolic extents,
each group in the order of the function's parameters. What is passed for a symbol is found in the
shapes and strides of the arguments; where an extent is a formula (``n * 2``) it gets a symbol of
its own, and the kernel checks the value against the formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir import (
    EFFECTS,
    Call,
    Expr,
    IntImm,
    Node,
    Var,
    as_int,
    contains,
    dtypes,
    pre_order,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import READ_ONLY, Annotation, register_function_attribute
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.gpu_ops import is_gpu_op, memory_uses
from tilewright.tir.rewrite import fresh_name
from tilewright.tir.stmt import Block, BufferStore, Stmt
from tilewright.tir.transform.base import FunctionTransform


def _is_abi(value: object, node: Node) -> bool:
    if not isinstance(value, Mapping) or set(value) != {"arguments", "symbols"}:
        return False
    arguments, symbols = value["arguments"], value["symbols"]
    return (
        isinstance(arguments, (list, tuple))
        and all(isinstance(item, Mapping) and set(item) in _FIELDS for item in arguments)
        and isinstance(symbols, Mapping)
        and all(isinstance(item, Expr) for item in symbols.values())
    )


_SCALAR = frozenset(("name", "dtype"))
_FIELDS = (_SCALAR, _SCALAR | {"shape", "strides", "alignment", "written"})

KERNEL_ABI = register_function_attribute(
    "tir.kernel_abi",
    Annotation("what MakeKernelABI records", _is_abi),
    means="What ``kernel_abi`` says of the function.",
    read_by=("codegen.llvm.signature",),
)


class MakeKernelABI(FunctionTransform):
    """Describe each function's arguments in its attribute ``tir.kernel_abi``.

    Passes that change parameters, shapes or what is written have to run before.
    """

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Describe one function."""
        return func.replace(attrs={**func.attrs, KERNEL_ABI: kernel_abi(func)})


def kernel_abi(func: PrimFunc) -> dict[str, Any]:
    """Return how a function is called, as text, numbers and expressions.

    ``arguments`` has an entry per parameter: ``name`` and ``dtype``, for tensors also ``shape``
    (numbers, and names of symbols), ``strides`` in elements (``None``: compact), ``alignment`` in
    bytes and whether they are ``written``. ``symbols`` maps names to the variable or formula that
    each stands for.

    Raises ``LowerError`` for parameters that can't be checked when the function is called.
    """
    taken: set[str] = set()
    names: dict[Var, str] = {}
    symbols: dict[str, Expr] = {}
    written = _written(func)
    for item in func.attrs.get(READ_ONLY, ()):
        position = as_int(item)
        assert position is not None
        written.discard(func.buffer_map[func.params[position]].data)
    # Arguments get their names first: symbols give way.
    arg_names = [
        fresh_name(func.buffer_map[var].name if var in func.buffer_map else var.name, taken)
        for var in func.params
    ]
    names.update((v, n) for v, n in zip(func.params, arg_names) if v not in func.buffer_map)

    def extent(value: Expr, where: str) -> int | str:
        if isinstance(value, IntImm):
            return value.value
        if isinstance(value, Var) and value in names:
            return names[value]
        label = fresh_name(value.name if isinstance(value, Var) else where, taken)
        if isinstance(value, Var):
            names[value] = label
        symbols[label] = value
        return label

    arguments: list[dict[str, Any]] = []
    for var, name in zip(func.params, arg_names):
        buffer = func.buffer_map.get(var)
        if buffer is None:
            if dtypes.kind_of(var.dtype) == "handle":
                raise LowerError(
                    f"parameter {var.name!r} is a bare handle; give it a buffer "
                    "(T.match_buffer, T.Buffer), so that its arguments can be checked"
                )
            arguments.append({"name": name, "dtype": var.dtype})
            continue
        _check_offset(buffer)
        shape = [extent(value, f"{name}_shape_{n}") for n, value in enumerate(buffer.shape)]
        # The convention goes through strides from the last; names must appear in that order.
        strides = [
            extent(value, f"{name}_stride_{n}")
            for n, value in reversed(list(enumerate(buffer.strides)))
        ][::-1]
        arguments.append(
            {
                "name": name,
                "dtype": buffer.dtype,
                "shape": shape,
                "strides": strides if buffer.strides else None,
                "alignment": dtypes.bytes_of(dtypes.element_of(buffer.dtype)),
                "written": buffer.data in written,
            }
        )
    return {"arguments": arguments, "symbols": symbols}


def _check_offset(buffer: Buffer) -> None:
    offset = buffer.elem_offset
    if not (offset is None or isinstance(offset, Var) or as_int(offset) == 0):
        raise LowerError(
            f"buffer {buffer.name} has offset {offset!r}; an argument's offset may be zero or a "
            "variable, since the pointer passed is that of its first element"
        )


_has_effects = contains(EFFECTS)
# What has an effect, but writes to no memory that it is given.
_ONLY_READING = ("prefetch", "assume")


def _written(func: PrimFunc) -> set[Var]:
    """Data variables that the body writes, or hands to code that may."""
    found: set[Var] = set()
    views: list[tuple[Var, Var]] = []
    # Only statements and what calls code are looked at: in most kernels that is the stores.
    stack: list[Any] = [func.body]
    while stack:
        item = stack.pop()
        if type(item) is BufferStore:
            found.add(item.buffer.data)
            if not _has_effects(item):
                continue
        elif type(item) is Call and item.op.name in _ONLY_READING:
            continue
        elif is_gpu_op(item):
            uses = memory_uses(item)
            found.update(use.tile.along.buffer.data for use in uses if "w" in use.access)
            continue
        elif type(item) is Call and item.op.effect in ("opaque", "update"):
            # Such code may write to whatever it is given.
            for inner in pre_order(item):
                if isinstance(inner, Buffer):
                    found.add(inner.data)
                elif type(inner) is Var and inner.dtype == "handle":
                    found.add(inner)
            continue
        elif type(item) is Block:
            views += [(m.buffer.data, m.source.buffer.data) for m in item.match_buffers]
        stack += [
            below for below in item.child_nodes() if isinstance(below, Stmt) or _has_effects(below)
        ]
    # Views inside of views come later: what is written goes outwards.
    found.update(source for view, source in reversed(views) if view in found)
    return found
