"""A CUDA driver without a GPU: memory of the device is the host's, the interpreter runs kernels.

It is a real ``libcuda.so.1``, a library whose functions call into Python, so all code is tested
that calls the driver, however it finds it. Work of a stream is done when somebody waits for it;
memory is NaN before it is written and gone when it is freed; what touches anything else is a fault
that, as on a GPU, everybody is told of from then on. Launches are checked: sizes, shared memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from tilewright.arith import simplify
from tilewright.codegen.cuda import package
from tilewright.codegen.cuda.tensor_maps import tensor_maps
from tilewright.codegen.elf import link_shared
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.ir import IRModule, as_expr, as_int, substitute
from tilewright.support.errors import RunError
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import compile_function
from tilewright.tir.transform import CALLING_CONV, launch_extents

_KINDS = {"i": ("i32", ctypes.c_int), "l": ("i64", ctypes.c_int64), "p": ("ptr", ctypes.c_void_p)}
# Functions, with the kinds of what they take.
CALLS = {
    "cuInit": "i",
    "cuDriverGetVersion": "p",
    "cuGetExportTable": "pp",
    "cuGetErrorName": "ip",
    "cuGetErrorString": "ip",
    "cuDeviceGet": "pi",
    "cuDeviceGetCount": "p",
    "cuDeviceGetName": "pii",
    "cuDeviceGetAttribute": "pii",
    "cuDeviceTotalMem_v2": "pi",
    "cuDevicePrimaryCtxRetain": "pi",
    "cuCtxGetCurrent": "p",
    "cuCtxPushCurrent_v2": "p",
    "cuCtxPopCurrent_v2": "p",
    "cuCtxSetCurrent": "p",
    "cuCtxSynchronize": "",
    "cuModuleLoadData": "pp",
    "cuModuleUnload": "p",
    "cuModuleGetFunction": "ppp",
    "cuFuncGetAttribute": "pip",
    "cuFuncSetAttribute": "pii",
    "cuLaunchKernel": "piiiiiiippp",
    "cuTensorMapEncodeTiled": "piipppppiiii",
    "cuMemGetInfo_v2": "pp",
    "cuMemAlloc_v2": "pl",
    "cuMemFree_v2": "l",
    "cuMemcpyHtoD_v2": "lpl",
    "cuMemcpyHtoDAsync_v2": "lplp",
    "cuMemcpyDtoHAsync_v2": "pllp",
    "cuMemcpyDtoDAsync_v2": "lllp",
    "cuMemsetD8Async": "lilp",
    "cuMemPoolCreate": "pp",
    "cuMemPoolDestroy": "p",
    "cuMemPoolSetAttribute": "pip",
    "cuMemAllocFromPoolAsync": "plpp",
    "cuMemFreeAsync": "lp",
    "cuStreamCreate": "pi",
    "cuStreamDestroy_v2": "p",
    "cuStreamSynchronize": "p",
    "cuStreamWaitEvent": "ppi",
    "cuStreamBeginCapture_v2": "pi",
    "cuStreamEndCapture": "pp",
    "cuEventCreate": "pi",
    "cuEventDestroy_v2": "p",
    "cuEventRecord": "pp",
    "cuEventSynchronize": "p",
    "cuEventElapsedTime": "ppp",
    "cuGraphInstantiateWithFlags": "ppl",
    "cuGraphLaunch": "pp",
    "cuGraphDestroy": "p",
    "cuGraphExecDestroy": "p",
}
ERRORS = {
    0: ("CUDA_SUCCESS", "no error"),
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    100: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    101: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    200: ("CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"),
    201: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    209: (
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "no kernel image is available for execution on the device",
    ),
    400: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    500: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    701: (
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "too many resources requested for launch",
    ),
    900: (
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "operation not permitted when stream is capturing",
    ),
    999: ("CUDA_ERROR_UNKNOWN", "unknown error"),
}
# Attributes of devices, by the numbers of cuda.h.
ATTRIBUTES = {
    1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: 49152, 10: 32,
    12: 65536, 13: 1_755_000, 16: 132, 36: 1_593_000, 37: 5120, 38: 50 << 20, 39: 2048,
    75: 9, 76: 0, 81: 233_472, 82: 65536, 97: 232_448, 115: 1,
}  # fmt: skip
_STATIC_SHARED = 49152


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Refused(Exception):
    """A call returns a code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Memory:
    """An allocation: bytes at a multiple of 256."""

    device: int
    size: int
    room: np.ndarray[Any, Any] = field(init=False)
    address: int = field(init=False)

    def __post_init__(self) -> None:
        self.room = np.full(self.size + 256, 0xFF, np.uint8)
        self.address = -(-self.room.ctypes.data // 256) * 256

    def bytes_from(self, address: int) -> np.ndarray[Any, Any]:
        """What lies there, up to the end."""
        start = self.address - self.room.ctypes.data
        return self.room[start + address - self.address : start + self.size]


@dataclass
class Kernel:
    """A kernel that is loaded on a device."""

    device: int
    name: str
    func: PrimFunc
    mod: IRModule
    shared: int = _STATIC_SHARED


@dataclass
class Stream:
    """Work in its order; ``captured`` while it is recorded."""

    device: int
    work: list[Callable[[], None]] = field(default_factory=list)
    captured: list[Callable[[], None]] | None = None
    # What is allocated while work is recorded belongs to the graph.
    owned: set[int] = field(default_factory=set)


class EncodedMap(NamedTuple):
    """What a tensor map says, the innermost dimension first."""

    dtype: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


class FakeDriver:
    """The state behind the functions; tests look at it, and make calls fail."""

    def __init__(self) -> None:
        self.reset()

    def reset(self, devices: int = 1) -> None:
        """Begin again with so many devices; what processes hold of before stays valid."""
        self.attributes: list[dict[int, int]] = [dict(ATTRIBUTES) for _ in range(devices)]
        self.capacity = 1 << 30
        self.version = 12040
        if not hasattr(self, "memory"):
            self.memory: dict[int, Memory] = {}
            self.handles: dict[int, Any] = {}
            self.numbers = itertools.count(0x1000, 16)
            self.compiled: dict[int, Callable[..., None]] = {}
            self.images: list[tuple[bytes, IRModule]] = []
        self.contexts: list[int] = []
        self.streams: dict[int, Stream] = {0: Stream(0)}
        self.log: list[tuple[str, tuple[Any, ...]]] = []
        self.failing: dict[str, int] = {}
        self.lost = 0
        # Kernels that ran: each takes half a millisecond of the device's time; events take 1 us.
        self.runs = self.reached = 0
        self.errors: list[str] = []
        self.launches: list[tuple[str, tuple[int, ...], int, int]] = []
        # What tensors were described by, and what of that kernels were given.
        self.encoded: list[EncodedMap] = []
        self.mapped: list[EncodedMap] = []

    # ---- what tests use

    def add_image(self, image: bytes, mod: IRModule) -> None:
        """Tell which kernels an image has: those of a lowered module."""
        self.images.append((image, mod))

    def called(self, name: str) -> list[tuple[Any, ...]]:
        """What a function was called with."""
        return [args for known, args in self.log if known == name]

    def used(self) -> int:
        """Bytes that are allocated."""
        return sum(memory.size for memory in self.memory.values())

    def settled(self) -> int:
        """Bytes that are allocated, when all that tests have dropped is gone."""
        gc.collect()
        self.finish()
        return self.used()

    def array(self, address: int, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        """A view of memory of the device, when all work is done."""
        self.finish()
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.find(address).bytes_from(address)[:size].view(dtype).reshape(shape)

    def put(self, array: np.ndarray[Any, Any], device: int = 0) -> int:
        """Allocate memory with contents; return its address."""
        memory = self.allocate(device, max(array.nbytes, 1))
        memory.bytes_from(memory.address)[: array.nbytes] = (
            np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        )
        return memory.address

    # ---- memory

    def allocate(self, device: int, size: int) -> Memory:
        if size <= 0:
            raise Refused(1)
        if self.used() + size > self.capacity:
            raise Refused(2)
        memory = Memory(device, size)
        self.memory[memory.address] = memory
        return memory

    def free(self, address: int) -> None:
        memory = self.memory.pop(address, None)
        if memory is None:
            raise Refused(1)
        memory.room[:] = 0xAA
        # What still points there must not find memory of somebody else.
        self.handles[next(self.numbers)] = memory

    def find(self, address: int, device: int | None = None) -> Memory:
        for memory in self.memory.values():
            if memory.address <= address < memory.address + memory.size:
                if device is not None and memory.device != device:
                    break
                return memory
        raise Refused(700)

    # ---- streams

    def handle(self, item: Any) -> int:
        number = next(self.numbers)
        self.handles[number] = item
        return number

    def device(self) -> int:
        if not self.contexts or self.contexts[-1] == 0:
            raise Refused(201)
        return self.contexts[-1] - 1

    def submit(self, stream: int | None, action: Callable[[], None]) -> None:
        known = self.streams.get(stream or 0)
        if known is None:
            raise Refused(400)
        (known.work if known.captured is None else known.captured).append(action)

    def finish(self, stream: int | None = None) -> None:
        """Do the work of a stream, or of all."""
        if self.lost:
            raise Refused(self.lost)
        chosen = self.streams.values() if not stream else [self.streams[0], self.streams[stream]]
        # Whoever frees something in the middle of a kernel would wait for its end.
        with without_collections():
            for item in list(chosen):
                while item.work:
                    action = item.work.pop(0)
                    try:
                        action()
                    except Refused as error:
                        self.lost = error.code
                        raise

    def no_capture(self) -> None:
        if any(stream.captured is not None for stream in self.streams.values()):
            raise Refused(900)

    # ---- kernels

    def run(self, kernel: Kernel, sizes: tuple[int, ...], values: list[int | float]) -> None:
        self.runs += 1
        func = kernel.func
        known = {
            var: as_expr(value)
            for var, value in zip(func.params, values)
            if var not in func.buffer_map
        }

        def number(expr: Any) -> int:
            made = as_int(simplify(substitute(as_expr(expr), known)))
            assert made is not None, f"{expr!r} isn't known"
            return made

        extents = {tag: number(extent) for tag, extent in launch_extents(func).items()}
        wanted = tuple(
            extents.get(f"{what}.{axis}", 1) for what in ("blockIdx", "threadIdx") for axis in "xyz"
        )
        assert sizes == wanted, f"{kernel.name} is launched with {sizes}, not {wanted}"
        arguments: list[Any] = []
        for var, value in zip(func.params, values):
            buffer = func.buffer_map.get(var)
            if buffer is None:
                arguments.append(value)
                continue
            count = 1
            for extent in buffer.shape:
                count *= number(extent)
            dtype = np.dtype(buffer.dtype)
            if not value and not count:
                arguments.append(np.empty([number(e) for e in buffer.shape], dtype))
                continue
            memory = self.find(int(value), kernel.device).bytes_from(int(value))
            if memory.size < count * dtype.itemsize:
                raise Refused(700)
            shape = [number(extent) for extent in buffer.shape]
            arguments.append(memory[: count * dtype.itemsize].view(dtype).reshape(shape))
        call = self.compiled.get(id(func))
        if call is None:
            call = compile_function(func, kernel.mod, check_races=True)
            self.compiled[id(func)] = call
        try:
            call(*arguments)
        except RunError as error:
            self.errors.append(str(error))
            raise Refused(700) from error


def _at(address: int, kind: Any, value: Any) -> None:
    kind.from_address(address).value = value


def _text(address: int) -> str:
    return ctypes.string_at(address).decode()


class Functions:
    """The driver's functions, by their names: each takes numbers and addresses."""

    def __init__(self, driver: FakeDriver) -> None:
        self.d = driver
        self.texts = {
            code: tuple(ctypes.create_string_buffer(text.encode()) for text in pair)
            for code, pair in ERRORS.items()
        }

    def cuInit(self, flags: int) -> None:
        if not self.d.attributes:
            raise Refused(100)

    def cuDriverGetVersion(self, to: int) -> None:
        _at(to, ctypes.c_int, self.d.version)

    def cuGetExportTable(self, to: int, number: int) -> None:
        """NVRTC asks for one, where there is a driver, and does without."""
        raise Refused(500)

    def cuGetErrorName(self, code: int, to: int) -> None:
        _at(to, ctypes.c_void_p, ctypes.addressof(self.texts.get(code, self.texts[999])[0]))

    def cuGetErrorString(self, code: int, to: int) -> None:
        _at(to, ctypes.c_void_p, ctypes.addressof(self.texts.get(code, self.texts[999])[1]))

    # ---- devices

    def _check(self, device: int) -> None:
        if not 0 <= device < len(self.d.attributes):
            raise Refused(101)

    def cuDeviceGet(self, to: int, number: int) -> None:
        self._check(number)
        _at(to, ctypes.c_int, number)

    def cuDeviceGetCount(self, to: int) -> None:
        _at(to, ctypes.c_int, len(self.d.attributes))

    def cuDeviceGetName(self, to: int, size: int, device: int) -> None:
        self._check(device)
        ctypes.memmove(to, b"Imaginary H100\0", 15)

    def cuDeviceGetAttribute(self, to: int, attribute: int, device: int) -> None:
        self._check(device)
        _at(to, ctypes.c_int, self.d.attributes[device].get(attribute, 0))

    def cuDeviceTotalMem_v2(self, to: int, device: int) -> None:
        _at(to, ctypes.c_size_t, self.d.capacity)

    def cuDevicePrimaryCtxRetain(self, to: int, device: int) -> None:
        self._check(device)
        _at(to, ctypes.c_void_p, device + 1)

    def cuCtxGetCurrent(self, to: int) -> None:
        _at(to, ctypes.c_void_p, self.d.contexts[-1] if self.d.contexts else 0)

    def cuCtxSetCurrent(self, context: int) -> None:
        self.d.contexts[-1:] = [context]

    def cuCtxPushCurrent_v2(self, context: int) -> None:
        self.d.contexts.append(context)

    def cuCtxPopCurrent_v2(self, to: int) -> None:
        _at(to, ctypes.c_void_p, self.d.contexts.pop())

    def cuCtxSynchronize(self) -> None:
        self.d.no_capture()
        self.d.finish()

    # ---- modules

    def cuModuleLoadData(self, to: int, image: int) -> None:
        self.d.no_capture()
        device = self.d.device()
        for known, mod in self.d.images:
            if ctypes.string_at(image, len(known)) == known:
                _at(to, ctypes.c_void_p, self.d.handle((device, mod)))
                return
        raise Refused(200)

    def cuModuleUnload(self, module: int) -> None:
        del self.d.handles[module]

    def cuModuleGetFunction(self, to: int, module: int, name: int) -> None:
        device, mod = self.d.handles[module]
        symbol = _text(name)
        if symbol not in mod or CALLING_CONV not in mod[symbol].attrs:
            raise Refused(500)
        _at(to, ctypes.c_void_p, self.d.handle(Kernel(device, symbol, mod[symbol], mod)))

    def cuFuncGetAttribute(self, to: int, attribute: int, function: int) -> None:
        _at(to, ctypes.c_int, {0: 1024, 1: 0, 4: 32}.get(attribute, 0))

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        kernel: Kernel = self.d.handles[function]
        if attribute != 8 or value > self.d.attributes[kernel.device][97]:
            raise Refused(1)
        kernel.shared = value

    def cuLaunchKernel(self, function: int, *rest: int) -> None:
        sizes, shared, stream, params = rest[:6], rest[6], rest[7], rest[8]
        kernel: Kernel = self.d.handles[function]
        if kernel.device != self.d.device():
            raise Refused(400)
        if self.d.lost:
            raise Refused(self.d.lost)
        if min(sizes) < 1 or np.prod(sizes[3:]) > 1024 or shared > max(kernel.shared, 49152):
            raise Refused(1)
        values: list[Any] = []
        for index, var in enumerate(kernel.func.params):
            place = ctypes.c_void_p.from_address(params + 8 * index).value or 0
            kind = "uint64" if var.dtype == "handle" else var.dtype
            raw = ctypes.string_at(place, np.dtype(kind).itemsize)
            values.append(np.frombuffer(raw, kind)[0].item())
        for index in range(len(tensor_maps(kernel.func, kernel.func).maps), 0, -1):
            place = ctypes.c_void_p.from_address(params + 8 * (len(values) + index - 1)).value or 0
            number = ctypes.c_uint64.from_address(place).value
            self.d.mapped.insert(0, self.d.encoded[number - 1])
        self.d.launches.append((kernel.name, tuple(sizes), shared, stream or 0))
        self.d.submit(stream, lambda: self.d.run(kernel, tuple(sizes), values))

    def cuTensorMapEncodeTiled(
        self, to: int, dtype: int, rank: int, address: int, sizes: int, strides: int, box: int,
        steps: int, interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> None:  # fmt: skip
        def read(place: int, kind: Any, count: int) -> tuple[int, ...]:
            return tuple((kind * count).from_address(place))

        found = EncodedMap(
            dtype, address, read(sizes, ctypes.c_uint64, rank),
            read(strides, ctypes.c_uint64, rank - 1), read(box, ctypes.c_uint32, rank), swizzle,
        )  # fmt: skip
        wrong = (
            to % 64 or address % 16 or not 1 <= rank <= 5
            or any(stride % 16 or not 0 < stride < 1 << 40 for stride in found.strides)
            or any(not 1 <= size <= 1 << 32 for size in found.sizes)
            or any(not 1 <= size <= 256 for size in found.box)
            or set(read(steps, ctypes.c_uint32, rank)) != {1}
            or (interleave, promotion, fill) != (0, 2, 0)
        )  # fmt: skip
        if wrong:
            raise Refused(1)
        self.d.encoded.append(found)
        _at(to, ctypes.c_uint64, len(self.d.encoded))

    # ---- memory

    def cuMemGetInfo_v2(self, free: int, total: int) -> None:
        _at(free, ctypes.c_size_t, self.d.capacity - self.d.used())
        _at(total, ctypes.c_size_t, self.d.capacity)

    def cuMemAlloc_v2(self, to: int, size: int) -> None:
        self.d.no_capture()
        _at(to, ctypes.c_uint64, self.d.allocate(self.d.device(), size).address)

    def cuMemFree_v2(self, address: int) -> None:
        self.d.finish()
        self.d.free(address)

    def cuMemcpyHtoD_v2(self, to: int, source: int, size: int) -> None:
        self.d.no_capture()
        self.d.finish()
        self._copy(to, ctypes.string_at(source, size))

    def _copy(self, to: int, data: bytes) -> None:
        room = self.d.find(to).bytes_from(to)
        if room.size < len(data):
            raise Refused(1)
        room[: len(data)] = np.frombuffer(data, np.uint8)

    def _bytes(self, source: int, size: int) -> bytes:
        room = self.d.find(source).bytes_from(source)
        if room.size < size:
            raise Refused(1)
        return room[:size].tobytes()

    def cuMemcpyHtoDAsync_v2(self, to: int, source: int, size: int, stream: int) -> None:
        data = ctypes.string_at(source, size)
        self.d.submit(stream, lambda: self._copy(to, data))

    def cuMemcpyDtoHAsync_v2(self, to: int, source: int, size: int, stream: int) -> None:
        self.d.submit(stream, lambda: ctypes.memmove(to, self._bytes(source, size), size))

    def cuMemcpyDtoDAsync_v2(self, to: int, source: int, size: int, stream: int) -> None:
        self.d.submit(stream, lambda: self._copy(to, self._bytes(source, size)))

    def cuMemsetD8Async(self, to: int, value: int, size: int, stream: int) -> None:
        self.d.submit(stream, lambda: self._copy(to, bytes([value & 255]) * size))

    def cuMemPoolCreate(self, to: int, properties: int) -> None:
        kind, _, place, device = (ctypes.c_int * 4).from_address(properties)
        assert (kind, place) == (1, 1) and not any(ctypes.string_at(properties + 16, 72))
        _at(to, ctypes.c_void_p, self.d.handle(("pool", device)))

    def cuMemPoolDestroy(self, pool: int) -> None:
        del self.d.handles[pool]

    def cuMemPoolSetAttribute(self, pool: int, attribute: int, value: int) -> None:
        assert attribute == 4 and ctypes.c_uint64.from_address(value).value == 2**64 - 1

    def cuMemAllocFromPoolAsync(self, to: int, size: int, pool: int, stream: int) -> None:
        _, device = self.d.handles[pool]
        address = self.d.allocate(device, size).address
        known = self.d.streams[stream or 0]
        if known.captured is not None:
            known.owned.add(address)
        _at(to, ctypes.c_uint64, address)

    def cuMemFreeAsync(self, address: int, stream: int) -> None:
        known = self.d.streams.get(stream or 0)
        if known is not None and known.captured is not None:
            assert address in known.owned, "a graph frees memory that isn't its own"
            return
        self.d.submit(stream, lambda: self.d.free(address))

    # ---- streams and events

    def cuStreamCreate(self, to: int, flags: int) -> None:
        number = next(self.d.numbers)
        self.d.streams[number] = Stream(self.d.device())
        _at(to, ctypes.c_void_p, number)

    def cuStreamDestroy_v2(self, stream: int) -> None:
        self.d.finish(stream)
        del self.d.streams[stream]

    def cuStreamSynchronize(self, stream: int) -> None:
        if (stream or 0) not in self.d.streams:
            raise Refused(400)
        self.d.no_capture()
        self.d.finish(stream)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self.d.submit(stream, lambda: None)

    def cuEventCreate(self, to: int, flags: int) -> None:
        _at(to, ctypes.c_void_p, self.d.handle({}))

    def cuEventDestroy_v2(self, event: int) -> None:
        del self.d.handles[event]

    def cuEventRecord(self, event: int, stream: int) -> None:
        known = self.d.handles[event]

        def record() -> None:
            self.d.reached += 1
            known["time"] = 0.5 * self.d.runs + 0.001 * self.d.reached

        known["stream"] = stream
        self.d.submit(stream, record)

    def cuEventSynchronize(self, event: int) -> None:
        self.d.finish(self.d.handles[event]["stream"])

    def cuEventElapsedTime(self, to: int, first: int, second: int) -> None:
        times = [self.d.handles[event]["time"] for event in (first, second)]
        _at(to, ctypes.c_float, times[1] - times[0])

    # ---- graphs

    def cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:
        if not stream:
            raise Refused(900)
        self.d.streams[stream].captured = []

    def cuStreamEndCapture(self, stream: int, to: int) -> None:
        known = self.d.streams[stream]
        work, known.captured = known.captured, None
        _at(to, ctypes.c_void_p, self.d.handle(work))

    def cuGraphInstantiateWithFlags(self, to: int, graph: int, flags: int) -> None:
        _at(to, ctypes.c_void_p, self.d.handle(list(self.d.handles[graph])))

    def cuGraphLaunch(self, graph: int, stream: int) -> None:
        for action in self.d.handles[graph]:
            self.d.submit(stream, action)

    def cuGraphDestroy(self, graph: int) -> None:
        del self.d.handles[graph]

    def cuGraphExecDestroy(self, graph: int) -> None:
        del self.d.handles[graph]


# ---- the library


def _library_text(calls: dict[str, str]) -> str:
    lines = [f"@table = internal global [{len(calls)} x ptr] zeroinitializer"]
    for index, (name, kinds) in enumerate(calls.items()):
        types = [_KINDS[kind][0] for kind in kinds]
        params = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(types))
        place = f"getelementptr ([{len(calls)} x ptr], ptr @table, i64 0, i64 {index})"
        lines += [
            f"define i32 @{name}({params}) {{",
            f"  %f = load ptr, ptr {place}",
            f"  %r = call i32 %f({params})",
            "  ret i32 %r",
            "}",
        ]
    place = f"getelementptr [{len(calls)} x ptr], ptr @table, i64 0, i64 %i"
    lines += [
        "define void @fake_cuda_set(i64 %i, ptr %f) {",
        f"  %p = {place}",
        "  store ptr %f, ptr %p",
        "  ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"


def write_library(folder: Path, calls: dict[str, str] = CALLS) -> Path:
    """Write the library into a folder, under the name that programs look for."""
    code = compile_portable(_library_text(calls), host_triple())
    path = folder / "libcuda.so.1"
    path.write_bytes(link_shared([code], [*calls, "fake_cuda_set"], soname="libcuda.so.1"))
    return path


def _callback(driver: FakeDriver, name: str, body: Callable[..., None]) -> Callable[..., int]:
    quiet = name.startswith("cuGetError")

    def call(*args: int) -> int:
        if sys.is_finalizing():
            return 4  # CUDA_ERROR_DEINITIALIZED
        if not quiet:
            driver.log.append((name, args))
        if name in driver.failing:
            return driver.failing[name]
        try:
            body(*(arg or 0 for arg in args))
        except Refused as error:
            return error.code
        except BaseException:
            driver.errors.append(traceback.format_exc())
            return 999
        return 0

    return call


_alive: list[Any] = []


def load() -> FakeDriver:
    """Load the library into this process, once."""
    if _alive:
        return _alive[0]
    driver = FakeDriver()
    functions = Functions(driver)
    folder = tempfile.TemporaryDirectory(prefix="fake-cuda-")
    library = ctypes.CDLL(str(write_library(Path(folder.name))))
    library.fake_cuda_set.argtypes = [ctypes.c_int64, ctypes.c_void_p]
    _alive.extend([driver, folder, library])
    for index, (name, kinds) in enumerate(CALLS.items()):
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *(_KINDS[item][1] for item in kinds))
        made = kind(_callback(driver, name, getattr(functions, name)))
        # The last tensors may be dropped when this module is gone.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        library.fake_cuda_set(index, ctypes.cast(made, ctypes.c_void_p))
    return driver


@contextlib.contextmanager
def watched(driver: FakeDriver) -> Iterator[None]:
    """Tell the driver of all kernels that are compiled meanwhile."""
    emit, compile_text = package.emit_kernels, package.compile_text
    texts: dict[str, IRModule] = {}

    def emit_kernels(lowered: IRModule, target: Any) -> Any:
        code = emit(lowered, target)
        texts[code.text] = lowered
        return code

    def compiled(text: str, arch: str) -> Any:
        made = compile_text(text, arch)
        driver.add_image(made.cubin, texts[text])
        return made

    with (
        mock.patch.object(package, "emit_kernels", emit_kernels),
        mock.patch.object(package, "compile_text", compiled),
    ):
        yield


@contextlib.contextmanager
def fake_driver(devices: int = 1) -> Iterator[FakeDriver]:
    """The driver, as it is after it was started; what failed in it fails the test."""
    driver = load()
    driver.reset(devices)
    with watched(driver):
        yield driver
    assert not driver.errors, "\n".join(driver.errors)
