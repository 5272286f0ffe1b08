"""Kernels in C-like languages: parameters, launch, shared memory, whatever the language is.

A kernel that ``SplitHostDevice`` made becomes one function of the text, and a :class:`KernelInfo`
says how it is launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arith import Analyzer
from tilewright.codegen.c import text as t
from tilewright.codegen.c.dialect import Dialect
from tilewright.codegen.c.emit_stmt import FunctionEmitter
from tilewright.codegen.c.helpers import helper_texts, used_helpers
from tilewright.codegen.c.text import Text
from tilewright.ir import (
    INDEX,
    Call,
    Expr,
    IRModule,
    Var,
    as_int,
    ceildiv,
    const,
    dtypes,
    pre_order,
)
from tilewright.support.errors import CodegenError
from tilewright.target import Target
from tilewright.target.gpus import STATIC_SHARED_BYTES
from tilewright.tir import Allocate, AttrStmt, Buffer, BufferStore, DeclBuffer, PrimFunc
from tilewright.tir.attrs import ASYNC_WAIT, EXCESS_PRECISION, MIN_BLOCKS, NO_ALIAS
from tilewright.tir.gpu_ops import is_gpu_op, memory_uses
from tilewright.tir.interpreter.emit_threads import COLLECTIVES
from tilewright.tir.thread_scope import is_shared
from tilewright.tir.transform import NarrowDataType, launch_extents
from tilewright.tir.transform.base import function_analyzer
from tilewright.tir.transform.kernels import thread_nest

KERNEL = "device_kernel_launch"
"""The calling convention of a kernel, in its attribute ``calling_conv``."""
_PLACE_ALIGNMENT = 128


@dataclass(frozen=True)
class KernelParam:
    """A parameter of a kernel, as it is passed.

    ``dtype`` is the element type; ``alignment`` the bytes of which a pointer must be a multiple,
    since the kernel moves vectors.
    """

    name: str
    dtype: str
    is_pointer: bool
    written: bool = False
    alignment: int = 1


@dataclass(frozen=True)
class TensorMap:
    """A tensor of which hardware copies boxes, as the host describes it to a kernel.

    ``position`` is that of the tensor among the kernel's parameters. ``sizes`` and ``strides`` (in
    elements) are expressions of these, the outermost dimension first, as is the ``box``.
    """

    position: int
    dtype: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True)
class KernelInfo:
    """How a kernel is launched.

    ``launch`` has the blocks and threads by tag, ``dynamic_shared_bytes`` the shared memory to ask
    for: numbers, or expressions of the parameters ``params``. ``arguments`` describes the same
    parameters one by one; ``shared_bytes`` is what the kernel has without asking.
    ``tensor_maps`` are further parameters, 128 bytes each, that follow those.
    """

    symbol: str
    params: tuple[Var, ...]
    arguments: tuple[KernelParam, ...]
    launch: Mapping[str, Expr]
    dynamic_shared_bytes: int | Expr = 0
    shared_bytes: int = 0
    tensor_maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True)
class KernelCode:
    """The text of all kernels of a module, and how each is launched, by the function's name."""

    text: str
    kernels: Mapping[str, KernelInfo]


def kernels_of(mod: IRModule) -> dict[str, PrimFunc]:
    """Return the kernels of a lowered module by name."""
    return {
        name: func
        for name, func in mod.functions.items()
        if isinstance(func, PrimFunc) and func.attrs.get("calling_conv") == KERNEL
    }


def emit_kernels_text(
    mod: IRModule, dialect: Dialect, target: Target, emitter: type[KernelEmitter]
) -> KernelCode:
    """Write all kernels of a lowered module in a dialect.

    Raises ``CodegenError`` for what has no code, naming the kernel.
    """
    helpers: dict[tuple[str, str], None] = {}
    taken: set[str] = set()
    texts, infos = [], {}
    for name, func in kernels_of(mod).items():
        symbol = base = t.identifier(name)
        number = 0
        while symbol in taken:
            number += 1
            symbol = f"{base}_{number}"
        taken.add(symbol)
        writer = emitter(dialect, helpers, func, symbol, target)
        try:
            texts.append(writer.kernel())
        except CodegenError as error:
            raise CodegenError(f"kernel {name}: {error}") from error
        infos[name] = writer.info()
    parts = [dialect.header, *helper_texts(dialect, used_helpers(helpers, texts)), *texts]
    return KernelCode("\n\n".join(part for part in parts if part) + "\n", infos)


class KernelEmitter(FunctionEmitter):
    """Writes one kernel."""

    def __init__(
        self,
        dialect: Dialect,
        helpers: dict[tuple[str, str], None],
        func: PrimFunc,
        symbol: str,
        target: Target,
    ) -> None:
        super().__init__(dialect, helpers, Analyzer())
        self.original = func
        self.name = symbol
        self.taken.add(symbol)
        self.target = target
        self.func = narrowed(func, dialect.options.get("thread_limits", {}))
        self.analyzer = function_analyzer(self.func)
        self.rounds_narrow = not func.attrs.get(EXCESS_PRECISION, False)
        self.names: list[str] = []
        self.launch = launch_extents(func)
        self.dynamic_bytes: int | Expr = 0
        self.static_bytes = 0
        self.queues = _queues(self.func)

    # ---- the whole kernel

    def kernel(self) -> str:
        """Return the kernel's text."""
        params = self._parameters()
        self._plan_shared()
        self.visit(self.func.body)
        params += self.map_parameters()
        params += self.dialect.more_parameters
        sizes = {tag[-1]: as_int(n) or 1 for tag, n in self.launch.items() if tag[0] == "t"}
        axes = {axis: sizes.get(axis, 1) for axis in "xyz"}
        threads, blocks = self.threads(), self.least_blocks()
        bounds = f"{threads}, {blocks}" if blocks > 1 else str(threads)
        head = self.dialect.kernel.format(threads=threads, bounds=bounds, **axes)
        lines = ",\n    ".join(params)
        break_ = "\n    " if len(params) > 1 else ""
        head = f"{head} {self.attributes()}".rstrip()
        return "\n".join([f"{head} {self.name}({break_}{lines}) {{", *self.lines, "}"])

    def attributes(self) -> str:
        """Return what else the head of the kernel says."""
        return ""

    def tensor_maps(self) -> tuple[TensorMap, ...]:
        """Return the descriptions of tensors that the kernel takes."""
        return ()

    def map_parameters(self) -> list[str]:
        """Return the parameters that these are, as text."""
        return []

    def least_blocks(self) -> int:
        """How many blocks are to fit onto a processor; 1 if nobody asks for more."""
        body: Any = self.func.body
        while isinstance(body, (DeclBuffer, Allocate)):
            body = body.body
        loops, _ = thread_nest(body)
        return max([1, *(as_int(loop.annotations.get(MIN_BLOCKS)) or 1 for loop in loops)])

    def threads(self) -> int:
        """How many threads a block has, at most."""
        total = 1
        for tag, extent in self.launch.items():
            if tag.startswith("threadIdx"):
                own = as_int(extent)
                if own is None:
                    return int(self.target.options.get("max-threads", self.target.gpu.max_threads))
                total *= max(own, 1)
        return total

    def info(self) -> KernelInfo:
        """Return how the kernel is launched."""
        params = []
        for var, name in zip(self.func.params, self.names):
            buffer = self.func.buffer_map.get(var)
            if buffer is None:
                params.append(KernelParam(name, var.dtype, False))
                continue
            element = dtypes.element_of(buffer.dtype)
            data = buffer.data
            align = max(self.assumed[data], dtypes.bytes_of(element))
            params.append(KernelParam(name, element, True, data in self.written, align))
        return KernelInfo(
            self.name,
            tuple(self.original.params),
            tuple(params),
            dict(self.launch),
            self.dynamic_bytes,
            self.static_bytes,
            self.tensor_maps(),
        )

    # ---- parameters

    def _parameters(self) -> list[str]:
        func = self.func
        alias, written = func.attrs.get(NO_ALIAS, True), _written(func)
        texts = []
        for var in func.params:
            buffer = func.buffer_map.get(var)
            if buffer is None:
                texts.append(self._scalar(var))
            else:
                texts.append(self._tensor(buffer, buffer.data in written, bool(alias)))
        return texts

    def _scalar(self, var: Var) -> str:
        element = dtypes.element_of(var.dtype)
        name = self.fresh(var.name)
        self.names.append(name)
        self.values[var] = self.from_memory(Text(name), element)
        if element != INDEX and dtypes.is_integer(element):
            self.data_vars.add(var)
        kind = self.dialect.memory(element)
        return self.dialect.scalar_parameter.format(type=kind, name=name, index=len(self.names) - 1)

    def _tensor(self, buffer: Buffer, written: bool, alone: bool) -> str:
        element = dtypes.element_of(buffer.dtype)
        kind = self.dialect.memory(element)
        name = self.fresh(buffer.name)
        self.names.append(name)
        data = buffer.data
        self.assumed[data] = 1
        self.space_of[data] = self.dialect.spaces.get("global", "")
        if written:
            self.written.add(data)
        self.pointers[data, kind] = name
        if isinstance(buffer.elem_offset, Var):
            self.values[buffer.elem_offset] = Text("0")
        made = self.dialect.pointer_parameter.format(
            type=self.pointer_type(data, kind),
            restrict=self.dialect.restrict if alone else "",
            name=name,
            index=len(self.names) - 1,
        )
        return " ".join(made.split())

    # ---- shared memory

    def _plan_shared(self) -> None:
        """Decide whether shared memory is of fixed size, or the launch says how much there is."""
        buffers = [
            item.buffer
            for item in pre_order(self.func.body)
            if type(item) is Allocate and (is_shared(item.buffer.scope) or _is_warp(item.buffer))
        ]
        end: Expr = const(0)
        places: dict[Buffer, Expr] = {}
        for buffer in buffers:
            places[buffer] = end
            size = const(self.copies(buffer) * dtypes.lanes_of(buffer.dtype))
            for extent in buffer.shape:
                size = size * extent
            size = ceildiv(size * dtypes.bits_of(dtypes.element_of(buffer.dtype)), 8)
            end = self.analyzer.simplify(end + ceildiv(size, _PLACE_ALIGNMENT) * _PLACE_ALIGNMENT)
        total = as_int(end)
        if total is not None and total <= STATIC_SHARED_BYTES:
            self.static_bytes = total
            return
        limit = self.target.max_shared_memory
        if total is not None and total > limit:
            raise CodegenError(
                f"it needs {total} bytes of shared memory, the target has {limit} per block; use "
                "smaller tiles, or name the GPU in the target (nvidia/nvidia-h200)"
            )
        if not self.dialect.dynamic_shared:
            raise CodegenError(
                f"it needs {end!r} bytes of shared memory; {self.dialect.name} has "
                f"{STATIC_SHARED_BYTES} per block, of constant size"
            )
        self.shared_places = dict(places)
        self.dynamic_bytes = end if total is None else total
        name = self.dialect.options["dynamic_name"]
        self.taken.add(name)
        self.line(self.dialect.dynamic_shared.format(name=name))

    def copies(self, buffer: Buffer) -> int:
        """How many instances a buffer has in a thread block: one, or one for each warp."""
        if not _is_warp(buffer):
            return 1
        return -(-self.threads() // self.target.gpu.warp_size)

    def warp_index(self) -> str:
        """The number of a thread's warp in its block."""
        stride, terms = 1, []
        for axis in "xyz":
            tag = f"threadIdx.{axis}"
            if tag in self.launch:
                index = self.dialect.indices[tag]
                terms.append(index if stride == 1 else f"{index} * {stride}")
                stride *= as_int(self.launch[tag]) or 0
        if not stride:
            raise CodegenError("memory of scope warp needs a constant number of threads")
        return f"(({' + '.join(terms) or '0'}) / {self.target.gpu.warp_size})"


def _is_warp(buffer: Buffer) -> bool:
    return buffer.scope == "warp"


def _queues(func: PrimFunc) -> set[int]:
    """Numbers of the stages whose asynchronous copies are waited for."""
    return {
        as_int(item.value) or 0
        for item in pre_order(func.body)
        if isinstance(item, AttrStmt) and item.key == ASYNC_WAIT
    }


def _written(func: PrimFunc) -> set[Var]:
    """Data that the kernel stores to, or gives to what may."""
    found: set[Var] = set()
    for item in pre_order(func.body):
        if isinstance(item, BufferStore):
            found.add(item.buffer.data)
        elif is_gpu_op(item):
            uses = memory_uses(item)  # type: ignore[arg-type]
            found.update(use.tile.along.buffer.data for use in uses if "w" in use.access)
        elif isinstance(item, Call) and item.op.effect in ("opaque", "update"):
            if item.op.name in COLLECTIVES:
                continue  # they take values
            for inner in pre_order(item):
                if isinstance(inner, Buffer):
                    found.add(inner.data)
                elif isinstance(inner, Var) and inner.dtype == "handle":
                    found.add(inner)
    return found


def narrowed(func: PrimFunc, thread_limits: Mapping[str, int]) -> PrimFunc:
    """Return a kernel whose indices have 32 bits where they are proven to fit."""
    made = NarrowDataType(thread_limits=thread_limits)(IRModule({"kernel": func}))
    result = made["kernel"]
    assert isinstance(result, PrimFunc)
    return result
