"""The caller's stream, and the context that calls of the driver are for."""

from __future__ import annotations

from tilewright.codegen.cuda.driver_calls import DEVICE, driver
from tilewright.codegen.llvm.builder import Function, external
from tilewright.codegen.llvm.values import I32, PTR, Place, Value

#: DLPack's number of the kind of device.
CUDA = 2

_GET_STREAM = external(PTR, "TVMFFIEnvGetStream", I32, I32, weak=True)


def current_stream(f: Function, device: Value) -> Value:
    """Return the stream that the caller uses on a device; the default one where nobody says."""
    stream = f.variable(PTR, 0)
    with f.if_(f.address_of(_GET_STREAM).ne(0)):
        stream.set(f.call(_GET_STREAM, CUDA, device.at(DEVICE)["number"].to(I32)))
    return stream.get()


def enter_context(f: Function, device: Value) -> Place:
    """Make a device's context the thread's current one; returns what ``leave_context`` takes.

    That is 1, or 0 where it is the current one already, or minus the code of what failed.
    """
    current, pushed = f.variable(PTR, 0), f.variable(I32, 0)
    wanted = device.at(DEVICE)["context"].get()
    driver(f, "cuCtxGetCurrent", current.address)
    with f.if_(current.ne(wanted)):
        code = driver(f, "cuCtxPushCurrent_v2", wanted)
        pushed.set(f.select(code.eq(0), f.constant(I32, 1), 0 - code))
    return pushed


def leave_context(f: Function, pushed: Value | Place) -> None:
    """Make the context that was current before current again."""
    with f.if_(pushed > 0):
        before = f.variable(PTR, 0)
        driver(f, "cuCtxPopCurrent_v2", before.address)
