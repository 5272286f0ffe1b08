"""The CUDA driver, as native code uses it: found when it is first needed, errors told in words.

Host functions call libcuda through a table of addresses, which ``dlopen`` and ``dlsym`` fill: a
library with kernels loads on machines that have no driver, and needs no toolkit anywhere. A device
is opened once in a process: its primary context (which PyTorch uses, too) and a pool of memory.
"""

from __future__ import annotations

from tilewright.codegen.llvm.builder import Function, Global, external, function
from tilewright.codegen.llvm.messages import COLD, MESSAGE, new_message, raise_message, say
from tilewright.codegen.llvm.values import (
    ACQUIRE,
    I32,
    I64,
    PTR,
    RELEASE,
    U64,
    VOID,
    Operand,
    Place,
    Struct,
    Value,
    array,
)

#: What is called, by the names that the library exports.
CALLS = (
    "cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
    "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
    "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxSynchronize",
    "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction",
    "cuFuncGetAttribute", "cuFuncSetAttribute", "cuLaunchKernel",
    "cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2",
    "cuMemPoolCreate", "cuMemPoolSetAttribute", "cuMemAllocFromPoolAsync", "cuMemFreeAsync",
    "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize", "cuTensorMapEncodeTiled",
)  # fmt: skip

#: A device that is open. ``lost`` is the code of the fault that ended its context, ``last`` the
#: name of the kernel that was launched last, ``pool`` is null where the device has no pools.
DEVICE = Struct(
    "tw.cuda_device", next=PTR, number=I64, context=PTR, pool=PTR, last=PTR, lost=I32, unused=I32
)

_ADDRESSES = Global("tw.cuda_driver", array(len(CALLS), PTR), 8)
_IS_OPEN = Global("tw.cuda_is_open", I32, 4)
_DEVICES = Global("tw.cuda_devices", PTR, 8)
#: Held while something is opened or loaded.
_LOCK = Global("tw.cuda_lock", I32, 4)

_DLOPEN = external(PTR, "dlopen", PTR, I32)
_DLSYM = external(PTR, "dlsym", PTR, PTR)
_DLERROR = external(PTR, "dlerror")
_YIELD = external(I32, "sched_yield")
CALLOC = external(PTR, "calloc", U64, U64)
FREE = external(VOID, "free", PTR)
_RTLD_NOW = 2

# Results, attributes and properties, by the numbers of cuda.h.
_OUT_OF_MEMORY, _NO_DEVICE = 2, 100
#: Faults of kernels, after which a context can't be used any more.
_FAULTS = (700, 702, 710, 714, 715, 716, 717, 718, 719, 721)
_CAPTURE_FIRST, _CAPTURE_LAST = 900, 908
_POOLS_SUPPORTED = 115
_RELEASE_THRESHOLD = 4

#: The beginning of ``CUmemPoolProps``: pinned memory of a device.
_POOL_PROPERTIES = Struct("tw.cuda_pool", type=I32, handles=I32, place=I32, device=I32)
_POOL_BYTES = 88


def driver(f: Function, name: str, *arguments: Operand) -> Value:
    """Call a function of the driver, which must be open; returns its code."""
    pointer = f.use(_ADDRESSES)[CALLS.index(name)].get()
    values = [
        item.get() if isinstance(item, (Value, Place)) else f.constant(I32, int(item))
        for item in arguments
    ]
    return f.call_pointer(pointer, I32, *values)


@function(VOID)
def lock(f: Function) -> None:
    """Wait for the lock, and take it."""
    with f.while_():
        with f.if_(f.use(_LOCK).compare_exchange(0, 1, ACQUIRE)):
            f.ret()
        f.call(_YIELD)


@function(VOID)
def unlock(f: Function) -> None:
    """Give the lock back."""
    f.use(_LOCK).set(0, RELEASE)


# ---- errors


@function(VOID, COLD, m=MESSAGE, code=I32)
def _say_code(f: Function, m: Place, code: Value) -> None:
    """The driver's words for a code, and its name."""
    name, text = f.variable(PTR, 0), f.variable(PTR, 0)
    unknown = f.string("unknown error")
    driver(f, "cuGetErrorName", code, name.address)
    driver(f, "cuGetErrorString", code, text.address)
    name.set(f.select(name.eq(0), unknown, name.get()))
    text.set(f.select(text.eq(0), unknown, text.get()))
    say(f, m, "%s (%s, %d)", text, name, code)


@function(VOID, COLD, m=MESSAGE, device=PTR)
def _say_memory(f: Function, m: Place, device: Value) -> None:
    free, total = f.variable(I64, 0), f.variable(I64, 0)
    with f.if_(driver(f, "cuMemGetInfo_v2", free.address, total.address).eq(0)):
        say(f, m, "; %lld of %lld bytes are free", free, total)
        say(f, m, ": free tensors, or make the problem smaller")


@function(VOID, COLD, m=MESSAGE, device=PTR)
def _say_lost(f: Function, m: Place, device: Value) -> None:
    """What a fault means, where nobody has been told so yet."""
    say(f, m, ". A kernel that was launched before has failed")
    last = device.at(DEVICE)["last"].get()
    with f.if_(last.ne(0)):
        say(f, m, "; the last one was %s", last)
    say(f, m, ". What this process had on the device is lost: start another one. ")
    say(f, m, "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer tells which kernel it was")


@function(I32, COLD, m=MESSAGE, code=I32, device=PTR)
def fail(f: Function, m: Place, code: Value, device: Value) -> None:
    """Raise the error of a call of the driver; the message says what was tried. Returns -1.

    ``device`` is null as long as none is open.
    """
    kind = f.variable(PTR, f.string("RuntimeError"))
    f.call(_say_code, m, code)
    is_fault = f.variable(I32, 0)
    for fault in _FAULTS:
        with f.if_(code.eq(fault)):
            is_fault.set(1)
    with f.if_(is_fault.ne(0)), f.if_(device.ne(0)):
        lost = device.at(DEVICE)["lost"]
        with f.if_(lost.eq(0)):
            f.call(_say_lost, m, device)
        lost.set(code)
    with f.if_(code.eq(_OUT_OF_MEMORY)):
        kind.set(f.string("MemoryError"))
        f.call(_say_memory, m, device)
    with f.if_((code >= _CAPTURE_FIRST) & (code <= _CAPTURE_LAST)):
        say(f, m, "; a function must have been called once before its launches are captured")
    f.ret(f.call(raise_message, kind.get(), m))


@function(I32, COLD, name=PTR, device=PTR)
def fail_lost(f: Function, name: Value, device: Value) -> None:
    """Say that a device has been lost before."""
    m = new_message(f)
    number, code = device.at(DEVICE)["number"], device.at(DEVICE)["lost"].get()
    say(f, m, "%s: cuda:%lld was lost to the fault of a kernel before: ", name, number)
    f.ret(f.call(fail, m, code, device))


# ---- opening


def _names_of_calls(f: Function) -> Place:
    texts = ", ".join(f"ptr {f.module.string(name)}" for name in CALLS)
    kind = array(len(CALLS), PTR)
    return f.use(Global("tw.cuda_names", kind, 8, f"[{texts}]", constant=True))


@function(I32, COLD, name=PTR)
def _open_driver(f: Function, name: Value) -> None:
    m = new_message(f)
    error = f.string("RuntimeError")
    library = f.call(_DLOPEN, f.string("libcuda.so.1"), _RTLD_NOW)
    with f.if_(library.eq(0)):
        say(f, m, "%s: there is no CUDA driver (%s); ", name, f.call(_DLERROR))
        say(f, m, "libcuda.so.1 comes with the driver of an NVIDIA GPU")
        f.ret(f.call(raise_message, error, m))
    names = _names_of_calls(f)
    with f.for_(len(CALLS)) as i:
        address = f.call(_DLSYM, library, names[i].get())
        with f.if_(address.eq(0)):
            say(f, m, "%s: the CUDA driver is too old: it lacks %s; ", name, names[i])
            say(f, m, "drivers for CUDA 12 have it")
            f.ret(f.call(raise_message, error, m))
        f.use(_ADDRESSES)[i].set(address)
    code = driver(f, "cuInit", 0)
    with f.if_(code.ne(0)):
        say(f, m, "%s: the CUDA driver doesn't start: ", name)
        f.ret(f.call(fail, m, code, f.constant(PTR, 0)))
    f.use(_IS_OPEN).set(1, RELEASE)
    f.ret(0)


@function(PTR, COLD, number=I64)
def _new_pool(f: Function, number: Value) -> None:
    """A pool that keeps its memory for the next allocation; null where there are none."""
    supported, pool = f.variable(I32, 0), f.variable(PTR, 0)
    driver(f, "cuDeviceGetAttribute", supported.address, _POOLS_SUPPORTED, number.to(I32))
    with f.if_(supported.eq(0)):
        f.ret(0)
    room = f.local(array(_POOL_BYTES // 8, I64))
    f.clear(room)
    properties = room.seen_as(_POOL_PROPERTIES)
    properties["type"].set(1)
    properties["place"].set(1)
    properties["device"].set(number.to(I32))
    with f.if_(driver(f, "cuMemPoolCreate", pool.address, properties.address).ne(0)):
        f.ret(0)
    everything = f.variable(U64, -1)
    driver(f, "cuMemPoolSetAttribute", pool, _RELEASE_THRESHOLD, everything.address)
    f.ret(pool.get())


@function(PTR, COLD, name=PTR, number=I64)
def _open_device(f: Function, name: Value, number: Value) -> None:
    """Open a device; null after an error was raised."""
    with f.if_(f.use(_IS_OPEN).eq(0)), f.if_(f.call(_open_driver, name).ne(0)):
        f.ret(0)
    m, none = new_message(f), f.constant(PTR, 0)
    count = f.variable(I32, 0)
    code = f.variable(I32, driver(f, "cuDeviceGetCount", count.address))
    with f.if_(code.eq(0)), f.if_(number >= count.to(I64)):
        say(f, m, "%s: there is no cuda:%lld; ", name, number)
        say(f, m, "this process sees %d devices: ", count)
        f.call(fail, m, f.constant(I32, _NO_DEVICE), none)
        f.ret(0)
    context = f.variable(PTR, 0)
    with f.if_(code.eq(0)):
        code.set(driver(f, "cuDevicePrimaryCtxRetain", context.address, number.to(I32)))
    with f.if_(code.ne(0)):
        say(f, m, "%s: cuda:%lld can't be used: ", name, number)
        f.call(fail, m, code.get(), none)
        f.ret(0)
    made = f.call(CALLOC, 1, 56).at(DEVICE)
    made["number"].set(number)
    made["context"].set(context.get())
    made["pool"].set(f.call(_new_pool, number))
    made["next"].set(f.use(_DEVICES).get())
    f.use(_DEVICES).set(made.address, RELEASE)
    f.ret(made.address)


@function(PTR, number=I64)
def _find_device(f: Function, number: Value) -> None:
    item = f.variable(PTR, f.use(_DEVICES).get(ACQUIRE))
    with f.while_(lambda: item.ne(0)):
        with f.if_(item.at(DEVICE)["number"].eq(number)):
            f.ret(item.get())
        item.set(item.at(DEVICE)["next"].get())
    f.ret(0)


@function(PTR, name=PTR, number=I64)
def device(f: Function, name: Value, number: Value) -> None:
    """Return the record of a device, opened if it wasn't; null after an error was raised.

    ``name`` is whose message an error is. A negative number is that of any device: the first.
    """
    number = f.greatest(number, 0)
    found = f.call(_find_device, number)
    with f.if_(found.ne(0)):
        f.ret(found)
    f.call(lock)
    again = f.variable(PTR, f.call(_find_device, number))
    with f.if_(again.eq(0)):
        again.set(f.call(_open_device, name, number))
    f.call(unlock)
    f.ret(again.get())
