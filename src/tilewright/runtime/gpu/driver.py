"""The CUDA driver: its functions by name, its codes as errors, contexts of devices."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

from tilewright.support.errors import RunError

_OUT_OF_MEMORY = 2
#: Codes of faults of kernels: the context, with all that it holds, can't be used any more.
FAULTS = frozenset((700, 702, 710, *range(714, 720), 721))
_CAPTURING = range(900, 909)

_TO = c_void_p  # where a result goes
_HANDLE, _ADDRESS = c_void_p, c_uint64
#: What the functions take, by the names that the library exports.
_CALLS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_TO,),
    "cuGetErrorName": (c_int, _TO),
    "cuGetErrorString": (c_int, _TO),
    "cuDeviceGet": (_TO, c_int),
    "cuDeviceGetCount": (_TO,),
    "cuDeviceGetName": (_TO, c_int, c_int),
    "cuDeviceGetAttribute": (_TO, c_int, c_int),
    "cuDeviceTotalMem_v2": (_TO, c_int),
    "cuDevicePrimaryCtxRetain": (_TO, c_int),
    "cuCtxGetCurrent": (_TO,),
    "cuCtxPushCurrent_v2": (_HANDLE,),
    "cuCtxPopCurrent_v2": (_TO,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_TO, _TO),
    "cuMemAlloc_v2": (_TO, c_size_t),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemPoolCreate": (_TO, c_void_p),
    "cuMemPoolSetAttribute": (_HANDLE, c_int, c_void_p),
    "cuMemAllocFromPoolAsync": (_TO, c_size_t, _HANDLE, _HANDLE),
    "cuMemFreeAsync": (_ADDRESS, _HANDLE),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, c_void_p, c_size_t, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (c_void_p, _ADDRESS, c_size_t, _HANDLE),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, c_size_t, _HANDLE),
    "cuMemsetD8Async": (_ADDRESS, c_int, c_size_t, _HANDLE),
    "cuStreamCreate": (_TO, c_uint),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamWaitEvent": (_HANDLE, _HANDLE, c_uint),
    "cuStreamBeginCapture_v2": (_HANDLE, c_int),
    "cuStreamEndCapture": (_HANDLE, _TO),
    "cuEventCreate": (_TO, c_uint),
    "cuEventDestroy_v2": (_HANDLE,),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventSynchronize": (_HANDLE,),
    "cuEventElapsedTime": (_TO, _HANDLE, _HANDLE),
    "cuGraphInstantiateWithFlags": (_TO, _HANDLE, c_uint64),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuGraphDestroy": (_HANDLE,),
    "cuGraphExecDestroy": (_HANDLE,),
}


class DriverError(RunError):
    """A call of the driver failed; ``code`` is its number in ``cuda.h``."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.code)


class _Driver:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions: dict[str, Any] = {}
        for name, kinds in _CALLS.items():
            function = getattr(library, name, None)
            if function is None:
                raise RunError(
                    f"the CUDA driver is too old: it lacks {name}; drivers for CUDA 12 have it"
                )
            function.restype, function.argtypes = c_int, kinds
            self._functions[name] = function

    def text(self, code: int) -> str:
        """The driver's words for a code, with its name."""
        name, words = c_char_p(), c_char_p()
        self._functions["cuGetErrorName"](code, ctypes.addressof(name))
        self._functions["cuGetErrorString"](code, ctypes.addressof(words))
        told = [(item.value or b"unknown error").decode() for item in (words, name)]
        return f"{told[0]} ({told[1]}, {code})"

    def code(self, name: str, *args: object) -> int:
        """Call a function, and return its code."""
        made: int = self._functions[name](*args)
        return made


@cache
def _driver() -> _Driver:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RunError(
            f"there is no CUDA driver ({error}); libcuda.so.1 comes with the driver of an NVIDIA "
            "GPU"
        ) from None
    made = _Driver(library)
    code = made.code("cuInit", 0)
    if code:
        raise DriverError(f"the CUDA driver doesn't start: {made.text(code)}", code)
    return made


def call(doing: str, name: str, *args: object) -> None:
    """Call a function of the driver.

    Raises ``MemoryError`` if the device has none left, else ``DriverError``; ``doing`` begins the
    message. Raises ``RunError`` if there is no driver.
    """
    driver = _driver()
    code = driver.code(name, *args)
    if not code:
        return
    message = f"{doing}: {driver.text(code)}"
    if code == _OUT_OF_MEMORY:
        raise MemoryError(message)
    if code in FAULTS:
        message += (
            ". A kernel that was launched before has failed, and what this process had on the "
            "device is lost: start another one. CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer tells "
            "which kernel it was"
        )
    if code in _CAPTURING:
        message += "; while launches are captured nothing may wait for the device"
    raise DriverError(message, code)


def ask(doing: str, name: str, kind: Any, *args: object) -> Any:
    """Call a function whose first argument is where its result goes, and return that."""
    made = kind()
    call(doing, name, ctypes.addressof(made), *args)
    return made.value


def device_count() -> int:
    """Return the number of GPUs that this process sees; 0 without a driver."""
    try:
        return int(ask("counting devices", "cuDeviceGetCount", c_int))
    except RunError:
        return 0


def check_device(index: int) -> None:
    """Raise ``RunError`` if there is no such GPU."""
    count = int(ask("counting devices", "cuDeviceGetCount", c_int))
    if index >= count:
        raise RunError(f"there is no cuda:{index}; this process sees {count} devices")


@cache
def _context(index: int) -> int:
    """The primary context of a device, kept until the process ends: PyTorch's, too."""
    check_device(index)
    made = ask(f"cuda:{index} can't be used", "cuDevicePrimaryCtxRetain", c_void_p, index)
    assert made is not None
    return int(made)


@contextmanager
def on_device(index: int) -> Iterator[None]:
    """Make a device the current one of this thread for a while."""
    wanted = _context(index)
    if ask(f"cuda:{index}", "cuCtxGetCurrent", c_void_p) == wanted:
        yield
        return
    call(f"cuda:{index} can't be used", "cuCtxPushCurrent_v2", wanted)
    try:
        yield
    finally:
        ask(f"cuda:{index}", "cuCtxPopCurrent_v2", c_void_p)


def drop(index: int, name: str, *args: object) -> None:
    """Give something of a device back, when its owner goes.

    A lost device has nothing left to give back to, nor has a process that ends.
    """
    if sys.is_finalizing():
        return
    with suppress(RunError), on_device(index):
        call("dropping", name, *args)


__all__ = ["DriverError", "ask", "call", "check_device", "device_count", "drop", "on_device"]
