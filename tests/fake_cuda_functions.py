"""The functions of a CUDA driver without a GPU: their names, what they take, and what they do."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from fake_cuda_state import EncodedMap, FakeDriver, Kernel, Refused, Stream

from tilewright.codegen.cuda.tensor_maps import tensor_maps
from tilewright.tir.transform import CALLING_CONV, cluster_shape, launch_extents

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


# Bytes of a file's header, which says where its sections are and how many.
_ELF_HEADER = 64


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
        # Only an image that begins alike is as long: beyond its end others' memory may stop.
        head = ctypes.string_at(image, _ELF_HEADER)
        for known, mod in self.d.images:
            if known[:_ELF_HEADER] == head and ctypes.string_at(image, len(known)) == known:
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
        if attribute == 14:
            kernel.large_clusters = bool(value)
            return
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
        if np.prod(cluster_shape(launch_extents(kernel.func))) > 8 and not kernel.large_clusters:
            raise Refused(912)
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
