"""The host's part of a module with kernels: LLVM code that launches them.

Functions are compiled as those for CPUs are, and have the same wrappers; their tensors are on the
device. Each has two parts: ``NAME.kernel`` makes a frame (:mod:`launch`), and ``NAME.host``, which
others of the module call, too, computes sizes, allocates workspaces on the device and launches.
What the host needs to know of a tensor's contents (a condition of a graph, an extent) it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tilewright.codegen.c.kernels import KernelInfo, TensorMap
from tilewright.codegen.cuda.alignments import Alignments
from tilewright.codegen.cuda.launch import CONSTANT, ENTER, FRAME, LEAVE, MODULE, UNLOAD
from tilewright.codegen.cuda.tensor_maps import DTYPES, MAP_ALIGNMENT, MAP_BYTES, SWIZZLES
from tilewright.codegen.llvm.builder import Callee, Function, Global, exported
from tilewright.codegen.llvm.builder import Module as Builder
from tilewright.codegen.llvm.emit import ModuleEmitter
from tilewright.codegen.llvm.emit_stmt import FunctionEmitter
from tilewright.codegen.llvm.ffi_abi import FunctionSpec, kernel_callee
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.types import global_name, memory_bytes, memory_type
from tilewright.codegen.llvm.values import I32, PTR, VOID, Value, array
from tilewright.ir import (
    INDEX,
    Expr,
    IRModule,
    Var,
    as_expr,
    cast,
    dtypes,
    pre_order,
    substitute,
)
from tilewright.support.errors import BuildError, CodegenError
from tilewright.target import Target
from tilewright.tir import (
    PARALLEL,
    SERIAL,
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    PrimFunc,
)
from tilewright.tir.transform import cluster_shape

#: Symbols of what all functions of a module share: the kernels, the record, what frees all.
IMAGE, RECORD, RELEASE = "tw_cuda_image", "tw_cuda_record", "tw_cuda_release"
#: Attribute of functions that are graphs: they may read what they need to know.
_GRAPH = "relax.graph"
_LINE = 256  # what constants are aligned to on the device
_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")


@dataclass(frozen=True)
class HostCode:
    """LLVM IR text that defines the kernels of ``specs`` and refers to constants by symbol."""

    text: str
    specs: tuple[FunctionSpec, ...]


def emit_host(
    host: IRModule, kernels: Mapping[str, KernelInfo], constants: Mapping[str, int], arch: str
) -> HostCode:
    """Generate the host's functions.

    ``constants`` are sizes in bytes by symbol; ``arch`` is what the kernels are compiled for.

    Raises ``BuildError`` for a function that computes outside of kernels.
    """
    for name, func in host.functions.items():
        if isinstance(func, PrimFunc):
            _refuse_work(name, func)
    emitter = _HostEmitter(host, kernels, constants)
    for name, func in host.functions.items():
        if isinstance(func, PrimFunc):
            emitter.emit_function(name, func)
    specs = tuple(signature.spec for signature in emitter.signatures.values())
    return HostCode(f"{emitter.text()}\n{_shared_text(emitter, specs, arch)}", specs)


def _refuse_work(name: str, func: PrimFunc) -> None:
    """Refuse a function that touches memory of the device by itself."""
    own: set[Var] = set()
    for item in pre_order(func.body):
        if isinstance(item, Allocate) and item.buffer.scope == "local":
            own.add(item.buffer.data)
    for item in pre_order(func.body):
        is_store = isinstance(item, BufferStore)
        if not isinstance(item, (BufferStore, BufferLoad)) or item.buffer.data in own:
            continue
        if is_store or not func.attrs.get(_GRAPH):
            raise BuildError(
                f"{name}: the host {'writes to' if is_store else 'reads'} {item.buffer.name}, "
                "which is memory of the device: all loops that compute must be bound to threads "
                "(blockIdx.x, threadIdx.x); schedule the function, or apply "
                "tilewright.dlight.ApplyDefaultSchedule"
            )


class _HostFunction(FunctionEmitter):
    """Emits one function of the host."""

    def visit_For(self, node: For) -> None:
        """A loop around launches; those of different iterations keep their order."""
        super().visit_For(node.replace(kind=SERIAL) if node.kind == PARALLEL else node)

    def visit_BufferLoad(self, node: BufferLoad) -> str:
        """What the host reads from the device, when all that was launched before is done."""
        if node.buffer.scope != "global":
            return super().visit_BufferLoad(node)
        if dtypes.lanes_of(node.dtype) != 1 or len(node.indices) != 1:
            raise CodegenError(f"the host reads numbers of the device one by one, got {node!r}")
        kind = memory_type(node.dtype)
        room = self.fresh("read")
        self.entry.append(f"  {room} = alloca {kind}, align 8")
        self.module.declare("declare i32 @tw_cuda_read(ptr, ptr, ptr, i64)")
        place = self.pointer(node.buffer, node.indices[0])
        size = memory_bytes(node.buffer.dtype)
        frame = self.module.frame
        code = self.here(
            f"call i32 @tw_cuda_read(ptr {frame}, ptr {room}, ptr {place}, i64 {size})"
        )
        self.return_if_failed(code)
        return str(self.from_memory(self.here(f"load {kind}, ptr {room}"), node.dtype))

    def _fits_stack(self, buffer: Buffer, size: int) -> bool:
        return buffer.scope != "global" and super()._fits_stack(buffer, size)

    def take(self, amount: str, buffer: Buffer) -> str:
        """Take memory of the device."""
        self.module.declare("declare ptr @tw_cuda_alloc(ptr, i64, ptr)")
        name, frame = self.module.string(buffer.name), self.module.frame
        return str(self.here(f"call ptr @tw_cuda_alloc(ptr {frame}, i64 {amount}, ptr {name})"))

    def raise_no_memory(self, buffer: Buffer) -> None:
        """``tw_cuda_alloc`` has said it."""

    def give_back(self, pointer: str) -> None:
        """Give memory of the device back, when what was launched so far is done."""
        self.module.declare("declare void @tw_cuda_free(ptr, ptr)")
        self.effect(f"call void @tw_cuda_free(ptr {self.module.frame}, ptr {pointer})")


class _HostEmitter(ModuleEmitter):
    device = "cuda"
    frame = "%cuda"
    function_emitter = _HostFunction

    def __init__(
        self, host: IRModule, kernels: Mapping[str, KernelInfo], constants: Mapping[str, int]
    ) -> None:
        # For the oldest CPU of the architecture: what the host computes are sizes.
        super().__init__(host, Target({"kind": "llvm", "mtriple": host_triple()}))
        self.kernels = {name: (i, kernel) for i, (name, kernel) in enumerate(kernels.items())}
        needed = Alignments(host, kernels)
        for name, signature in self.signatures.items():
            spec = needed.applied(name, signature.spec)
            self.signatures[name] = replace(signature, spec=spec)
        self.sizes = dict(constants)
        self.offsets: dict[str, int] = {}
        total = 0
        for symbol, size in constants.items():
            self.offsets[symbol] = total
            total += -(-size // _LINE) * _LINE
        self.constant_bytes = total

    def symbol_of(self, name: str) -> str:
        """The part of a function that others of the module call."""
        return f"{name}.host"

    def constant_pointer(self, emitter: FunctionEmitter, symbol: str, size: int) -> str:
        """The address on the device."""
        if symbol not in self.offsets:
            raise CodegenError(f"the module has no constant {symbol!r}")
        self.declare("declare ptr @tw_cuda_constant(ptr, i64)")
        offset = self.offsets[symbol]
        return str(emitter.here(f"call ptr @tw_cuda_constant(ptr {self.frame}, i64 {offset})"))

    def device_number(self, emitter: FunctionEmitter) -> str:
        """The number of the frame's device."""
        self.declare("declare i64 @tw_cuda_device(ptr)")
        number = emitter.here(f"call i64 @tw_cuda_device(ptr {self.frame})")
        return str(emitter.here(f"trunc i64 {number} to i32"))

    def emit_launch(
        self, emitter: FunctionEmitter, name: str, args: Sequence[Expr], values: Sequence[str]
    ) -> bool:
        """Launch a kernel: its sizes are computed from what it is called with."""
        if name not in self.kernels:
            return False
        number, kernel = self.kernels[name]
        if len(kernel.params) != len(args):
            raise CodegenError(
                f"{name} takes {len(kernel.params)} values, it is called with {len(args)}"
            )
        known = dict(zip(kernel.params, args))
        one = as_expr(1)
        sizes = [kernel.launch.get(tag, one) for tag in _TAGS]
        cluster = cluster_shape(kernel.launch)
        # Loops on blockIdx number clusters; the grid counts blocks.
        sizes[:3] = [extent * own for extent, own in zip(sizes, cluster)]
        shared = kernel.dynamic_shared_bytes
        sizes += [as_expr(shared), as_expr(prod(cluster))]
        extents = [emitter.visit(cast(substitute(size, known), INDEX)) for size in sizes]
        size_room = _filled(emitter, "sizes", [f"i64 {extent}" for extent in extents])
        slots = [_slot(emitter, arg, value) for arg, value in zip(args, values)]
        for item in kernel.tensor_maps:
            slots.append(self.emit_tensor_map(emitter, number, item, known, values))
        pointers = _filled(emitter, "params", [f"ptr {slot}" for slot in slots] or ["ptr null"])
        self.declare("declare i32 @tw_cuda_launch(ptr, i64, ptr, ptr)")
        code = emitter.here(
            f"call i32 @tw_cuda_launch(ptr {self.frame}, i64 {number}, ptr {size_room}, "
            f"ptr {pointers})"
        )
        emitter.return_if_failed(code)
        return True

    def emit_tensor_map(
        self,
        emitter: FunctionEmitter,
        kernel: int,
        item: TensorMap,
        known: Mapping[Var, Expr],
        values: Sequence[str],
    ) -> str:
        """Describe a tensor on the stack; returns where."""
        width = dtypes.bytes_of(item.dtype)
        sizes, strides = (
            [emitter.visit(cast(substitute(value, known), INDEX)) for value in reversed(part)]
            for part in (item.sizes, [stride * width for stride in item.strides])
        )
        steps = [f"i64 {stride}" for stride in strides[1:]] or ["i64 0"]
        room = emitter.fresh("map")
        kind = f"[{MAP_BYTES // 8} x i64]"
        emitter.entry.append(f"  {room} = alloca {kind}, align {MAP_ALIGNMENT}")
        tensor = _record_of(
            emitter,
            [
                f"ptr {room}",
                f"ptr {values[item.position]}",
                f"ptr {_filled(emitter, 'sizes', [f'i64 {size}' for size in sizes])}",
                f"ptr {_filled(emitter, 'strides', steps)}",
                f"ptr {_filled(emitter, 'box', [f'i32 {size}' for size in reversed(item.box)])}",
                f"i32 {DTYPES[item.dtype]}",
                f"i32 {len(item.box)}",
                f"i32 {SWIZZLES[item.swizzle]}",
            ],
        )
        self.declare("declare i32 @tw_cuda_tensor_map(ptr, i64, ptr)")
        code = emitter.here(
            f"call i32 @tw_cuda_tensor_map(ptr {self.frame}, i64 {kernel}, ptr {tensor})"
        )
        emitter.return_if_failed(code)
        return str(room)


def _record_of(emitter: FunctionEmitter, cells: Sequence[str]) -> str:
    """A structure on the stack, all cells of which are set here."""
    kind = "{ " + ", ".join(cell.split()[0] for cell in cells) + " }"
    room: str = emitter.fresh("record")
    emitter.entry.append(f"  {room} = alloca {kind}, align 8")
    for index, cell in enumerate(cells):
        place = emitter.here(f"getelementptr {kind}, ptr {room}, i32 0, i32 {index}")
        emitter.effect(f"store {cell}, ptr {place}")
    return room


def _filled(emitter: FunctionEmitter, hint: str, cells: Sequence[str]) -> str:
    """An array on the stack, all cells of which are set here."""
    kind = f"[{len(cells)} x {cells[0].split()[0]}]"
    room: str = emitter.fresh(hint)
    emitter.entry.append(f"  {room} = alloca {kind}, align 8")
    for index, cell in enumerate(cells):
        place = emitter.here(f"getelementptr {kind}, ptr {room}, i64 0, i64 {index}")
        emitter.effect(f"store {cell}, ptr {place}")
    return room


def _slot(emitter: FunctionEmitter, arg: Expr, value: str) -> str:
    """Memory with a value, as the driver takes the parameters of kernels."""
    slot: str = emitter.fresh("param")
    emitter.entry.append(f"  {slot} = alloca i64, align 8")
    if dtypes.is_bool(arg.dtype):
        value = emitter.here(f"zext i1 {value} to i8")
    emitter.effect(f"store {memory_type(arg.dtype)} {value}, ptr {slot}")
    return slot


# ---- what the functions share


def _shared_text(emitter: _HostEmitter, specs: Sequence[FunctionSpec], arch: str) -> str:
    """The record of the module, and the functions that make frames."""
    builder = Builder(texts="tw.h")  # wrappers, which may follow, have theirs
    record = _record(builder, emitter, arch)
    inner: set[str] = set()
    for spec in specs:
        kernel = kernel_callee(spec)
        parameters = dict(list(kernel.parameters.items())[:-1])
        name = emitter.symbol_of(spec.name)
        inner.add(name)
        host = Callee(name, I32, {**parameters, "frame": PTR})
        builder.refer(exported(kernel.name, I32, **kernel.parameters)(_entry(spec, host, record)))
    builder.refer(exported(RELEASE, VOID)(lambda f: f.call(UNLOAD, f.use(record))))
    data = [f"{global_name(s)} = external constant i8" for s in (IMAGE, *emitter.offsets)]
    return "\n".join([builder.text(defined=inner), *data])


def _entry(spec: FunctionSpec, host: Callee, record: Global) -> Callable[..., None]:
    def body(f: Function, *values: Value) -> None:
        frame = f.local(FRAME)
        name = f.string(spec.name)
        with f.if_(f.call(ENTER, frame, f.use(record), name, values[-1]).ne(0)):
            f.ret(-1)
        code = f.call(host, *values[:-1], frame.address)
        f.call(LEAVE, frame)
        f.ret(code)

    return body


def _record(builder: Builder, emitter: _HostEmitter, arch: str) -> Global:
    """The module's record, as a global that the runtime changes."""
    names = [builder.string(kernel.symbol) for _, kernel in emitter.kernels.values()]
    rows = [
        CONSTANT.constant(data=global_name(symbol), bytes=emitter.sizes[symbol], offset=offset)
        for symbol, offset in emitter.offsets.items()
    ]
    builder.need(CONSTANT)
    builder.need(MODULE)
    kernels = Global(
        "tw.cuda_kernels",
        array(len(names), PTR),
        8,
        f"[{', '.join(f'ptr {name}' for name in names)}]",
        constant=True,
    )
    constants = Global(
        "tw.cuda_constants",
        array(len(rows), CONSTANT),
        8,
        f"[{', '.join(rows)}]",
        constant=True,
    )
    initial = MODULE.initial(
        image=global_name(IMAGE),
        arch=builder.string(arch),
        kernels=builder.use(kernels),
        kernel_count=len(names),
        constants=builder.use(constants),
        constant_count=len(rows),
        constant_bytes=emitter.constant_bytes,
        loaded="null",
    )
    return Global(RECORD, MODULE, 8, initial)
