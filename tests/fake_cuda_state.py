"""What a CUDA driver without a GPU knows: memory, streams, kernels and how they are run.

Work of a stream is done when somebody waits for it. Memory is the host's: NaN before it is written
and gone when it is freed. The interpreter runs kernels.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tilewright.arith import simplify
from tilewright.ir import IRModule, as_expr, as_int, substitute
from tilewright.support.errors import RunError
from tilewright.tir import PrimFunc
from tilewright.tir.interpreter import compile_function
from tilewright.tir.transform import cluster_shape, launch_extents

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
    large_clusters: bool = False


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
            extents.get(f"{what}.{axis}", 1) * (cluster if what == "blockIdx" else 1)
            for what in ("blockIdx", "threadIdx")
            for axis, cluster in zip("xyz", cluster_shape(launch_extents(func)))
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
