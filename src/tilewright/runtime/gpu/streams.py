"""Streams and events of GPUs."""

from __future__ import annotations

from ctypes import c_float, c_void_p

from tilewright.runtime.ffi import tvm_ffi
from tilewright.runtime.gpu.driver import ask, call, drop, on_device

_NON_BLOCKING = 1
_WITHOUT_TIMING = 2


def current_stream(index: int) -> int:
    """Return the stream, as a number, that calls use on a device: the default one is 0.

    tvm-ffi passes PyTorch's current stream to functions that get tensors of PyTorch; elsewhere it
    is the innermost ``with Stream(...)``.
    """
    return int(tvm_ffi.get_raw_stream(tvm_ffi.device("cuda", index)) or 0)


def create(index: int) -> int:
    """Return the handle of a new stream on device ``index``.

    Raises ``RunError`` if there is no such device.
    """
    with on_device(index):
        doing = f"making a stream on cuda:{index}"
        return int(ask(doing, "cuStreamCreate", c_void_p, _NON_BLOCKING))


def destroy(index: int, handle: int) -> None:
    """Destroy a stream by its handle, once its work is done."""
    with on_device(index):
        call(f"destroying a stream of cuda:{index}", "cuStreamDestroy_v2", handle)


def use(index: int, handle: int) -> None:
    """Let this thread's further calls on a device use a stream, given by its handle."""
    tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", index), handle).__enter__()  # and never leave it


def as_stream(index: int, stream: int | Stream) -> Stream:
    """Return a stream, or the one of a handle on device ``index``."""
    return stream if isinstance(stream, Stream) else Stream(index, handle=stream)


class Stream:
    """A queue of work on a GPU; ``with stream:`` makes calls use it.

    It doesn't wait for the default stream, nor that for it. ``handle`` wraps a ``CUstream`` of
    somebody else, which isn't destroyed here.
    """

    def __init__(self, index: int = 0, *, handle: int | None = None) -> None:
        """Make a stream on device ``index``.

        Raises ``RunError`` if there is no such device.
        """
        self.index = index
        self._owned = handle is None
        self.handle = handle or 0
        if self._owned:
            self.handle = create(index)
        self._entered: list[object] = []

    def synchronize(self) -> None:
        """Wait until all its work is done.

        Raises ``DriverError`` if a kernel has failed.
        """
        with on_device(self.index):
            call(f"waiting for a stream of cuda:{self.index}", "cuStreamSynchronize", self.handle)

    def wait(self, event: Event) -> None:
        """Let what comes after wait for an event."""
        with on_device(self.index):
            call("waiting for an event", "cuStreamWaitEvent", self.handle, event.handle, 0)

    def __enter__(self) -> Stream:
        entered = tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", self.index), self.handle)
        entered.__enter__()
        self._entered.append(entered)
        return self

    def __exit__(self, *raised: object) -> None:
        entered = self._entered.pop()
        entered.__exit__(*raised)  # type: ignore[attr-defined]

    def __del__(self) -> None:
        if self._owned and self.handle:
            drop(self.index, "cuStreamDestroy_v2", self.handle)

    def __repr__(self) -> str:
        return f"Stream({self.index}, handle={self.handle:#x})"


class Event:
    """A point in a stream: to wait for, and to measure the time between two."""

    def __init__(self, index: int = 0, *, timing: bool = True) -> None:
        self.index, self.handle = index, 0
        with on_device(index):
            flags = 0 if timing else _WITHOUT_TIMING
            self.handle = int(ask("making an event", "cuEventCreate", c_void_p, flags))

    def record(self, stream: Stream | None = None) -> None:
        """Put it after all work that a stream has so far; the current one if none is given."""
        handle = current_stream(self.index) if stream is None else stream.handle
        with on_device(self.index):
            call("recording an event", "cuEventRecord", self.handle, handle)

    def synchronize(self) -> None:
        """Wait until the stream has come there.

        Raises ``DriverError`` if a kernel before it has failed.
        """
        with on_device(self.index):
            call("waiting for an event", "cuEventSynchronize", self.handle)

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds until a later event; both must have been reached."""
        with on_device(self.index):
            doing = "asking for the time between two events"
            return float(ask(doing, "cuEventElapsedTime", c_float, self.handle, end.handle))

    def __del__(self) -> None:
        if self.handle:
            drop(self.index, "cuEventDestroy_v2", self.handle)


def synchronize(index: int) -> None:
    """Wait for all work on a device.

    Raises ``DriverError`` if a kernel has failed, ``RunError`` if there is no such device.
    """
    with on_device(index):
        call(f"waiting for cuda:{index}", "cuCtxSynchronize")
