"""What a GPU is: numbers that the driver tells, under TVM's names."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t

from tilewright.runtime.gpu.driver import ask, call, check_device, on_device

#: Attributes by the numbers of ``cuda.h``; clocks are in kHz, sizes in bytes.
_NUMBERS = {
    "max_threads_per_block": 1,
    "max_block_dim_x": 2,
    "max_block_dim_y": 3,
    "max_block_dim_z": 4,
    "max_shared_memory_per_block": 97,  # what a kernel may ask for
    "warp_size": 10,
    "max_clock_rate": 13,
    "multi_processor_count": 16,
    "registers_per_block": 12,
    "registers_per_multiprocessor": 82,
    "shared_memory_per_multiprocessor": 81,
    "l2_cache_size_bytes": 38,
    "threads_per_multiprocessor": 39,
    "memory_clock_rate": 36,
    "memory_bus_bits": 37,
    "compute_major": 75,
    "compute_minor": 76,
}
_NAME_BYTES = 256


def attribute(index: int, name: str) -> int:
    """Return an attribute of a device.

    Raises ``RunError`` if there is no such device.
    """
    check_device(index)
    doing = f"asking cuda:{index} for its {name}"
    return int(ask(doing, "cuDeviceGetAttribute", c_int, _NUMBERS[name], index))


def device_name(index: int) -> str:
    """Return what its maker calls a device."""
    check_device(index)
    room = ctypes.create_string_buffer(_NAME_BYTES)
    call("asking for a device's name", "cuDeviceGetName", room, _NAME_BYTES, index)
    return room.value.decode(errors="replace")


def total_memory(index: int) -> int:
    """Return the bytes of a device's memory."""
    check_device(index)
    return int(ask("asking for a device's memory", "cuDeviceTotalMem_v2", c_size_t, index))


def free_memory(index: int) -> int:
    """Return the bytes of a device's memory that nobody uses."""
    total = c_size_t()
    with on_device(index):
        doing = "asking for a device's free memory"
        return int(ask(doing, "cuMemGetInfo_v2", c_size_t, ctypes.addressof(total)))


def driver_version(index: int) -> int:
    """Return the CUDA version that the driver is for: 12040 for 12.4."""
    check_device(index)
    return int(ask("asking for the driver's version", "cuDriverGetVersion", c_int))
