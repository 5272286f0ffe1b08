"""What host functions call: kernels loaded on first use, launches, memory of the device.

A module has one record of its kernels and constants (``MODULE``), a constant of its host code; what
is loaded on a device hangs there. A host function makes a frame on its stack for each call:

    i32 tw_cuda_enter(frame, module, name, device)     context, stream, kernels of the device
    void tw_cuda_leave(frame)
    i32 tw_cuda_launch(frame, kernel, sizes, params)   grid, block, shared bytes, cluster
    i32 tw_cuda_tensor_map(frame, kernel, tensor)      describes a tensor to a kernel (``TENSOR``)
    ptr tw_cuda_alloc(frame, bytes, name)              in the order of the stream; null: raised
    void tw_cuda_free(frame, memory)
    ptr tw_cuda_constant(frame, offset)                a constant of the module, on the device
    i32 tw_cuda_read(frame, to, from, bytes)           to the host, when the stream is done
    i64 tw_cuda_device(frame)                          the device's number
    void tw_cuda_unload(module)                        frees all that a module has on devices

Functions with a code return 0, or -1 with the error raised. The stream is the caller's: tvm-ffi
passes PyTorch's current one.
"""

from __future__ import annotations

from functools import cache

from tilewright.codegen.cuda.driver_calls import (
    CALLOC,
    DEVICE,
    FREE,
    device,
    driver,
    fail,
    fail_lost,
    lock,
    unlock,
)
from tilewright.codegen.cuda.stream import current_stream, enter_context, leave_context
from tilewright.codegen.cuda.tensor_maps import L2_PROMOTION
from tilewright.codegen.cuda.tensors import EMPTY, empty
from tilewright.codegen.llvm.builder import (
    Function,
    Global,
    exported,
    external,
    function,
    module_text,
)
from tilewright.codegen.llvm.jit import host_triple
from tilewright.codegen.llvm.messages import COLD, MESSAGE, new_message, raise_message, say
from tilewright.codegen.llvm.object_cache import compile_portable
from tilewright.codegen.llvm.values import (
    ACQUIRE,
    I8,
    I32,
    I64,
    PTR,
    RELEASE,
    U64,
    VOID,
    Place,
    Struct,
    Value,
    array,
)
from tilewright.runtime.loader import SupportObject, register_support_object
from tilewright.target.gpus import PORTABLE_CLUSTER
from tilewright.tir.gpu_ops import TENSOR_RANK

#: Kernels are names; constants come one after the other, at offsets in their memory. ``loaded`` is
#: the list of what is on devices.
MODULE = Struct(
    "tw.cuda_module",
    image=PTR,
    arch=PTR,
    kernels=PTR,
    kernel_count=I64,
    constants=PTR,
    constant_count=I64,
    constant_bytes=I64,
    loaded=PTR,
)
CONSTANT = Struct("tw.cuda_constant", data=PTR, bytes=I64, offset=I64)
#: A module on a device, followed by an entry for each kernel.
_LOADED = Struct("tw.cuda_loaded", next=PTR, device=PTR, module=PTR, constants=PTR)
_KERNEL = Struct("tw.cuda_kernel", function=PTR, shared=I64)
FRAME = Struct(
    "tw.cuda_frame", device=PTR, loaded=PTR, module=PTR, stream=PTR, name=PTR, pushed=I32
)
#: What a tensor map says: ``map`` is where it goes, ``dtype`` and ``swizzle`` are cuda.h's;
#: ``sizes`` are I64, ``strides`` in bytes (one less) I64, the ``box`` I32, the innermost first.
TENSOR = Struct(
    "tw.cuda_tensor", map=PTR, memory=PTR, sizes=PTR, strides=PTR, box=PTR,
    dtype=I32, rank=I32, swizzle=I32, unused=I32,
)  # fmt: skip
#: What ``tw_cuda_launch`` takes: grid, block, bytes of dynamic shared memory, blocks of a cluster.
SIZES = array(8, I64)

ENTER = external(I32, "tw_cuda_enter", FRAME, MODULE, PTR, I64)
LEAVE = external(VOID, "tw_cuda_leave", FRAME)
UNLOAD = external(VOID, "tw_cuda_unload", MODULE)

LAUNCH_SYMBOLS = (
    "tw_cuda_enter", "tw_cuda_leave", "tw_cuda_launch", "tw_cuda_alloc", "tw_cuda_free",
    "tw_cuda_constant", "tw_cuda_read", "tw_cuda_device", "tw_cuda_unload",
    "tw_cuda_tensor_map", EMPTY,
)  # fmt: skip

_INT_MAX = 2**31 - 1
#: The most blocks and threads along each axis, on all devices there are.
_LIMITS = (_INT_MAX, 65535, 65535, 1024, 1024, 64)
_BYTES_OF_LOADED, _BYTES_OF_KERNEL = 32, 16

# Attributes of functions and devices, by the numbers of cuda.h.
_MAX_DYNAMIC_SHARED, _LARGE_CLUSTERS = 8, 14
_MAX_THREADS, _STATIC_SHARED = 0, 1
_DEVICE_SHARED, _MAJOR, _MINOR = 97, 75, 76
_INVALID_VALUE, _INVALID_IMAGE, _NO_BINARY, _NOT_FOUND, _RESOURCES = 1, 200, 209, 500, 701


# ---- loading


@function(PTR, module=MODULE, device=PTR)
def _find_loaded(f: Function, module: Place, device: Value) -> None:
    item = f.variable(PTR, module["loaded"].get(ACQUIRE))
    with f.while_(lambda: item.ne(0)):
        with f.if_(item.at(_LOADED)["device"].eq(device)):
            f.ret(item.get())
        item.set(item.at(_LOADED)["next"].get())
    f.ret(0)


def _kernel(loaded: Value, index: Value) -> Place:
    return loaded.at(I8, _BYTES_OF_LOADED).address.at(_KERNEL, index)


@function(I32, COLD, frame=FRAME, code=I32)
def _fail_image(f: Function, frame: Place, code: Value) -> None:
    """The driver doesn't take the kernels: tell what they are for, and what the device is."""
    m, device = new_message(f), frame["device"].get()
    number, arch = device.at(DEVICE)["number"], frame["module"].at(MODULE)["arch"]
    say(f, m, "%s: kernels for %s can't be loaded on cuda:%lld", frame["name"], arch, number)
    major, minor, version = (f.variable(I32, 0) for _ in range(3))
    index = number.to(I32)
    driver(f, "cuDeviceGetAttribute", major.address, _MAJOR, index)
    driver(f, "cuDeviceGetAttribute", minor.address, _MINOR, index)
    driver(f, "cuDriverGetVersion", version.address)
    say(f, m, " (compute capability %d.%d, driver for CUDA ", major, minor)
    say(f, m, "%d.%d): ", version // 1000, version % 1000 // 10)
    with f.if_(code.eq(_INVALID_IMAGE) | code.eq(_NO_BINARY)):
        say(f, m, "build for the target 'cuda -arch=sm_%d%d', ", major, minor)
        say(f, m, "or install a driver that is not older than the compiler: ")
    f.ret(f.call(fail, m, code, device))


@function(I32, frame=FRAME, loaded=PTR)
def _load_constants(f: Function, frame: Place, loaded: Value) -> None:
    """Copy the module's constants to the device."""
    module, device = frame["module"].at(MODULE), frame["device"].get()
    total = module["constant_bytes"].get()
    with f.if_(total.eq(0)):
        f.ret(0)
    memory = loaded.at(_LOADED)["constants"]
    code = f.variable(I32, driver(f, "cuMemAlloc_v2", memory.address, total))
    with f.if_(code.eq(0)), f.for_(module["constant_count"].get()) as i:
        constant = module["constants"].at(CONSTANT, i)
        to = memory.at(I8, constant["offset"]).address
        with f.if_(code.eq(0)):
            code.set(driver(f, "cuMemcpyHtoD_v2", to, constant["data"], constant["bytes"]))
    with f.if_(code.eq(0)):
        # Streams that don't wait for the default one may read them from now on.
        code.set(driver(f, "cuCtxSynchronize"))
    with f.if_(code.ne(0)):
        m = new_message(f)
        number = device.at(DEVICE)["number"]
        say(f, m, "%s: %lld bytes of constants ", frame["name"], total)
        say(f, m, "can't be copied to cuda:%lld: ", number)
        f.ret(f.call(fail, m, code.get(), device))
    f.ret(0)


@function(I32, frame=FRAME, loaded=PTR)
def _load_kernels(f: Function, frame: Place, loaded: Value) -> None:
    module = frame["module"].at(MODULE)
    handle = loaded.at(_LOADED)["module"]
    code = f.variable(I32, driver(f, "cuModuleLoadData", handle.address, module["image"]))
    with f.if_(code.ne(0)):
        f.ret(f.call(_fail_image, frame, code.get()))
    with f.for_(module["kernel_count"].get()) as i:
        entry, name = _kernel(loaded, i), module["kernels"].at(PTR, i)
        code.set(driver(f, "cuModuleGetFunction", entry["function"].address, handle, name))
        with f.if_(code.ne(0)):
            m = new_message(f)
            say(f, m, "%s: kernel %s can't be loaded: ", frame["name"], name)
            f.ret(f.call(fail, m, code.get(), frame["device"].get()))
    f.ret(0)


@function(VOID, loaded=PTR)
def _drop(f: Function, loaded: Value) -> None:
    """Free what is loaded, in the context of its device; a driver that has ended has done so."""
    known = loaded.at(_LOADED)
    with f.if_(known["module"].ne(0)):
        driver(f, "cuModuleUnload", known["module"])
    with f.if_(known["constants"].ne(0)):
        driver(f, "cuMemFree_v2", known["constants"])
    f.call(FREE, loaded)


@function(PTR, COLD, frame=FRAME)
def _load(f: Function, frame: Place) -> None:
    """Load kernels and constants on the device; null after an error was raised."""
    module, device = frame["module"].at(MODULE), frame["device"].get()
    f.call(lock)
    known = f.call(_find_loaded, module, device)
    with f.if_(known.ne(0)):
        f.call(unlock)
        f.ret(known)
    size = module["kernel_count"] * _BYTES_OF_KERNEL + _BYTES_OF_LOADED
    loaded = f.call(CALLOC, 1, size.to(U64))
    loaded.at(_LOADED)["device"].set(device)
    failed = f.variable(I32, f.call(_load_kernels, frame, loaded))
    with f.if_(failed.eq(0)):
        failed.set(f.call(_load_constants, frame, loaded))
    with f.if_(failed.ne(0)):
        f.call(_drop, loaded)
        f.call(unlock)
        f.ret(0)
    loaded.at(_LOADED)["next"].set(module["loaded"].get())
    module["loaded"].set(loaded, RELEASE)
    f.call(unlock)
    f.ret(loaded)


@exported("tw_cuda_unload", VOID, module=MODULE)
def _unload(f: Function, module: Place) -> None:
    item = f.variable(PTR, module["loaded"].exchange(0, ACQUIRE))
    with f.while_(lambda: item.ne(0)):
        loaded = item.get()
        item.set(loaded.at(_LOADED)["next"].get())
        device = loaded.at(_LOADED)["device"].at(DEVICE)
        pushed = enter_context(f, device.address)
        with f.if_(pushed >= 0):
            driver(f, "cuCtxSynchronize")  # kernels that still run
            device["last"].set(0)  # may be a name in the module
            f.call(_drop, loaded)
            leave_context(f, pushed)


# ---- frames


@exported("tw_cuda_leave", VOID, frame=FRAME)
def _leave(f: Function, frame: Place) -> None:
    leave_context(f, frame["pushed"])


@exported("tw_cuda_enter", I32, frame=FRAME, module=MODULE, name=PTR, number=I64)
def _enter(f: Function, frame: Place, module: Place, name: Value, number: Value) -> None:
    found = f.call(device, name, number)
    with f.if_(found.eq(0)):
        f.ret(-1)
    opened = found.at(DEVICE)
    with f.if_(opened["lost"].ne(0)):
        f.ret(f.call(fail_lost, name, found))
    frame["device"].set(found)
    frame["module"].set(module.address)
    frame["name"].set(name)
    frame["stream"].set(current_stream(f, found))
    pushed = enter_context(f, found)
    with f.if_(pushed < 0):
        m = new_message(f)
        say(f, m, "%s: cuda:%lld can't be used: ", name, opened["number"])
        f.ret(f.call(fail, m, 0 - pushed, found))
    frame["pushed"].set(pushed)
    loaded = f.variable(PTR, f.call(_find_loaded, module, found))
    with f.if_(loaded.eq(0)):
        loaded.set(f.call(_load, frame))
    with f.if_(loaded.eq(0)):
        f.call(_leave, frame)
        f.ret(-1)
    frame["loaded"].set(loaded.get())
    f.ret(0)


@exported("tw_cuda_device", I64, frame=FRAME)
def _number(f: Function, frame: Place) -> None:
    f.ret(frame["device"].at(DEVICE)["number"].get())


# ---- launches


@function(VOID, COLD, m=MESSAGE, frame=FRAME, kernel=I64, sizes=PTR)
def _say_launch(f: Function, m: Place, frame: Place, kernel: Value, sizes: Value) -> None:
    name = frame["module"].at(MODULE)["kernels"].at(PTR, kernel)
    size = [sizes.at(I64, i) for i in range(7)]
    say(f, m, "%s: kernel %s can't be launched ", frame["name"], name)
    say(f, m, "with a grid of (%lld, %lld, %lld), ", *size[:3])
    say(f, m, "blocks of (%lld, %lld, %lld) threads and ", *size[3:6])
    say(f, m, "%lld bytes of dynamic shared memory ", size[6])
    cluster = sizes.at(I64, 7)
    with f.if_(cluster > 1):
        say(f, m, "in clusters of %lld blocks ", cluster)
    say(f, m, "on cuda:%lld: ", frame["device"].at(DEVICE)["number"])


@function(I32, COLD, frame=FRAME, kernel=I64, sizes=PTR, axis=I64)
def _fail_size(f: Function, frame: Place, kernel: Value, sizes: Value, axis: Value) -> None:
    """A grid or block is larger than any device takes."""
    m = new_message(f)
    f.call(_say_launch, m, frame, kernel, sizes)
    what = f.select(axis < 3, f.string("blocks"), f.string("threads"))
    letter = axis % 3 + ord("x")
    say(f, m, "%lld %s along %c are more than ", sizes.at(I64, axis), what, letter.to(I32))
    say(f, m, "%lld; schedule it with more work in each", _limits(f)[axis])
    f.ret(f.call(raise_message, f.string("ValueError"), m))


@function(I32, COLD, frame=FRAME, kernel=I64, sizes=PTR, code=I32)
def _fail_launch(f: Function, frame: Place, kernel: Value, sizes: Value, code: Value) -> None:
    """The driver refuses a launch: tell what the kernel and the device can do."""
    m, device = new_message(f), frame["device"].get()
    f.call(_say_launch, m, frame, kernel, sizes)
    with f.if_(code.eq(_INVALID_VALUE) | code.eq(_RESOURCES)):
        threads, static, most = (f.variable(I32, 0) for _ in range(3))
        function = _kernel(frame["loaded"].get(), kernel)["function"]
        number = device.at(DEVICE)["number"].to(I32)
        driver(f, "cuFuncGetAttribute", threads.address, _MAX_THREADS, function)
        driver(f, "cuFuncGetAttribute", static.address, _STATIC_SHARED, function)
        driver(f, "cuDeviceGetAttribute", most.address, _DEVICE_SHARED, number)
        say(f, m, "there, a block of this kernel may have %d threads", threads)
        say(f, m, " and %d bytes of shared memory, ", most)
        say(f, m, "%d of which are the kernel's own: ", static)
    f.ret(f.call(fail, m, code, device))


def _limits(f: Function) -> Place:
    cells = ", ".join(f"i64 {limit}" for limit in _LIMITS)
    return f.use(Global("tw.cuda_limits", array(6, I64), 8, f"[{cells}]", constant=True))


@exported("tw_cuda_launch", I32, frame=FRAME, kernel=I64, sizes=PTR, params=PTR)
def _launch(f: Function, frame: Place, kernel: Value, sizes: Value, params: Value) -> None:
    with f.for_(6) as i, f.if_(sizes.at(I64, i) <= 0):
        f.ret(0)  # no blocks, or no threads in them
    with f.for_(6) as i, f.if_(sizes.at(I64, i) > _limits(f)[i]):
        f.ret(f.call(_fail_size, frame, kernel, sizes, i))
    entry, shared = _kernel(frame["loaded"].get(), kernel), sizes.at(I64, 6).get()
    with f.if_(shared > _INT_MAX):
        f.ret(f.call(_fail_launch, frame, kernel, sizes, f.constant(I32, _INVALID_VALUE)))
    function = entry["function"].get()
    code = f.variable(I32, 0)
    with f.if_(shared > entry["shared"]):
        f.call(lock)  # a thread that asks for less must not take away what another one asked for
        with f.if_(shared > entry["shared"]):
            code.set(driver(f, "cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared.to(I32)))
            with f.if_(code.eq(0)):
                entry["shared"].set(shared)
        f.call(unlock)
    with f.if_(code.eq(0)), f.if_(sizes.at(I64, 7) > PORTABLE_CLUSTER):
        code.set(driver(f, "cuFuncSetAttribute", function, _LARGE_CLUSTERS, 1))
    with f.if_(code.eq(0)):
        size = [sizes.at(I64, i).to(I32) for i in range(7)]
        code.set(
            driver(
                f, "cuLaunchKernel", function, *size, frame["stream"], params, f.constant(PTR, 0)
            )
        )
    with f.if_(code.ne(0)):
        f.ret(f.call(_fail_launch, frame, kernel, sizes, code.get()))
    frame["device"].at(DEVICE)["last"].set(frame["module"].at(MODULE)["kernels"].at(PTR, kernel))
    f.ret(0)


@exported("tw_cuda_tensor_map", I32, frame=FRAME, kernel=I64, tensor=TENSOR)
def _tensor_map(f: Function, frame: Place, kernel: Value, tensor: Place) -> None:
    """Encode a map: no interleaving, zeros outside of the tensor, lines of the cache whole."""
    rank = tensor["rank"].get()
    sizes, steps = tensor["sizes"].get(), f.local(array(TENSOR_RANK, I32))
    with f.for_(TENSOR_RANK) as i:
        steps[i].set(1)
    with f.for_(rank.to(I64)) as i, f.if_(sizes.at(I64, i) <= 0):
        f.ret(0)  # there is nothing to copy, and no map of that
    code = driver(
        f, "cuTensorMapEncodeTiled", tensor["map"], tensor["dtype"], rank, tensor["memory"],
        sizes, tensor["strides"], tensor["box"], steps.address, 0, tensor["swizzle"],
        L2_PROMOTION, 0,
    )  # fmt: skip
    with f.if_(code.ne(0)):
        m = new_message(f)
        name = frame["module"].at(MODULE)["kernels"].at(PTR, kernel)
        say(f, m, "%s: kernel %s can't copy boxes of a tensor ", frame["name"], name)
        say(f, m, "of %d dimensions, the last of %lld elements: ", rank, sizes.at(I64, 0))
        f.ret(f.call(fail, m, code, frame["device"].get()))
    f.ret(0)


# ---- memory


@exported("tw_cuda_alloc", PTR, frame=FRAME, bytes=I64, name=PTR)
def _alloc(f: Function, frame: Place, asked: Value, name: Value) -> None:
    device = frame["device"].get()
    size, made = f.greatest(asked, 1), f.variable(PTR, 0)
    pool, code = device.at(DEVICE)["pool"].get(), f.variable(I32, 0)
    with f.if_(pool.ne(0)):
        stream = frame["stream"]
        code.set(driver(f, "cuMemAllocFromPoolAsync", made.address, size, pool, stream))
    with f.else_():
        code.set(driver(f, "cuMemAlloc_v2", made.address, size))
    with f.if_(code.ne(0)):
        m = new_message(f)
        say(f, m, "%s: no memory for %s: ", frame["name"], name)
        say(f, m, "%lld bytes on cuda:%lld: ", asked, device.at(DEVICE)["number"])
        f.call(fail, m, code.get(), device)
        f.ret(0)
    f.ret(made.get())


@exported("tw_cuda_free", VOID, frame=FRAME, memory=PTR)
def _release(f: Function, frame: Place, memory: Value) -> None:
    # An error is that of something else before: the next call that can tell, tells it.
    with f.if_(frame["device"].at(DEVICE)["pool"].ne(0)):
        driver(f, "cuMemFreeAsync", memory, frame["stream"])
    with f.else_():
        driver(f, "cuMemFree_v2", memory)


@exported("tw_cuda_constant", PTR, frame=FRAME, offset=I64)
def _constant(f: Function, frame: Place, offset: Value) -> None:
    f.ret(frame["loaded"].at(_LOADED)["constants"].at(I8, offset).address)


@exported("tw_cuda_read", I32, frame=FRAME, to=PTR, source=PTR, bytes=I64)
def _read(f: Function, frame: Place, to: Value, source: Value, size: Value) -> None:
    stream = frame["stream"]
    code = f.variable(I32, driver(f, "cuMemcpyDtoHAsync_v2", to, source, size, stream))
    with f.if_(code.eq(0)):
        code.set(driver(f, "cuStreamSynchronize", stream))
    with f.if_(code.ne(0)):
        m, device = new_message(f), frame["device"].get()
        say(f, m, "%s: a number that the host needs can't be read ", frame["name"])
        say(f, m, "from cuda:%lld: ", device.at(DEVICE)["number"])
        f.ret(f.call(fail, m, code.get(), device))
    f.ret(0)


_ALL = (
    _enter, _leave, _launch, _tensor_map, _alloc, _release, _constant, _read, _number, _unload,
    empty,
)  # fmt: skip


@cache
def launch_object(triple: str | None = None) -> bytes:
    """Return the compiled functions, for the oldest CPU of the architecture."""
    return compile_portable(module_text(_ALL), triple or host_triple())


register_support_object(SupportObject("cuda", LAUNCH_SYMBOLS, launch_object))
