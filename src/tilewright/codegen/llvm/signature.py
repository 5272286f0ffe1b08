"""How a PrimFunc's parameters map to the kernel's.

The link between TensorIR and the calling convention of :mod:`ffi_abi`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.llvm.ffi_abi import FunctionSpec, ScalarArg, TensorArg
from tilewright.ir import Call, Expr, IntImm, Var, dtypes, pre_order
from tilewright.support.errors import CodegenError
from tilewright.tir import Buffer, BufferStore, PrimFunc, fresh_name


@dataclass(frozen=True)
class Signature:
    """The spec of a function, and what each kernel parameter stands for, in order.

    A parameter is a buffer's data variable, a scalar variable, a symbolic extent's variable, or an
    expression of an extent (such as ``n * 2``) that the kernel checks against the value passed.
    """

    spec: FunctionSpec
    parameters: tuple[Expr, ...]
    noalias: frozenset[Var]
    calls: bool  # whether the body calls foreign code


def kernel_symbol(name: str) -> str:
    """The LLVM symbol of a kernel; the suffix keeps clear of libc's names (``exp``, ``main``)."""
    return f"{name}.kernel"


def make_signature(name: str, func: PrimFunc) -> Signature:
    """Describe the arguments of a function."""
    taken: set[str] = set()
    names: dict[Var, str] = {}
    args: list[TensorArg | ScalarArg] = []
    written, calls = _written(func)
    tensors: list[Expr] = []
    scalars: list[Expr] = []
    # Arguments get their names first: symbols give way.
    arg_names = [
        fresh_name(func.buffer_map[var].name if var in func.buffer_map else var.name, taken)
        for var in func.params
    ]
    by_name: dict[str, Expr] = {}
    for var, arg_name in zip(func.params, arg_names):
        if var not in func.buffer_map:
            names[var] = arg_name
    for var, arg_name in zip(func.params, arg_names):
        buffer = func.buffer_map.get(var)
        if buffer is None:
            if dtypes.kind_of(var.dtype) == "handle":
                raise CodegenError(
                    f"parameter {var.name!r} of {name} is a bare handle; give it a buffer "
                    "(T.match_buffer, T.Buffer), so that its arguments can be checked"
                )
            scalars.append(var)
            args.append(ScalarArg(arg_name, var.dtype))
            continue
        _check_offset(buffer, name)
        tensors.append(buffer.data)

        def extent(value: Expr, where: str) -> int | str:
            if isinstance(value, IntImm):
                return value.value
            if isinstance(value, Var):
                if value not in names:
                    names[value] = fresh_name(value.name, taken)
                    by_name[names[value]] = value
                return names[value]
            label = fresh_name(where, taken)
            by_name[label] = value
            return label

        shape = tuple(
            extent(value, f"{arg_name}_shape_{axis}") for axis, value in enumerate(buffer.shape)
        )
        # The convention goes through strides from the last; names must appear in that order.
        strides = tuple(
            extent(value, f"{arg_name}_stride_{axis}")
            for axis, value in reversed(list(enumerate(buffer.strides)))
        )[::-1]
        args.append(
            TensorArg(
                arg_name,
                buffer.dtype,
                shape,
                strides if buffer.strides else None,
                alignment=dtypes.bytes_of(dtypes.element_of(buffer.dtype)),
                written=buffer.data in written,
            )
        )
    spec = FunctionSpec(name, tuple(args), kernel_symbol(name))
    count = len(tensors) + len(scalars)
    symbols = tuple(by_name[label] for label, _ in spec.parameters()[count:])
    noalias = frozenset(var for var in tensors if isinstance(var, Var) and tensors.count(var) == 1)
    return Signature(spec, (*tensors, *scalars, *symbols), noalias, calls)


def _check_offset(buffer: Buffer, name: str) -> None:
    offset = buffer.elem_offset
    if offset is not None and not (isinstance(offset, (IntImm, Var))):
        raise CodegenError(
            f"buffer {buffer.name} of {name} has offset {offset!r}; an argument's offset may be "
            "zero or a variable, since the pointer passed is that of its first element"
        )


def _written(func: PrimFunc) -> tuple[set[Var], bool]:
    """Data variables that the body writes, and whether it calls code that may write more."""
    found: set[Var] = set()
    calls = False
    for item in pre_order(func.body):
        if type(item) is BufferStore:
            found.add(item.buffer.data)
        elif type(item) is Call and item.op.effect in ("opaque", "update"):
            # Such code may write to whatever it is given.
            calls = True
            for inner in pre_order(item):
                if isinstance(inner, Buffer):
                    found.add(inner.data)
                elif type(inner) is Var and inner.dtype == "handle":
                    found.add(inner)
    return found, calls
