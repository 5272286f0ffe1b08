"""Names of devices: ``cpu``, ``cuda:1``.

A :class:`Device` says where a tensor lives, with DLPack's numbering of kinds. What a GPU is can be
asked of it, under TVM's names.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.runtime.gpu import attributes, driver, streams
from tilewright.support.errors import RunError

#: DLPack's device types by name.
DEVICE_TYPES = {
    "cpu": 1,
    "cuda": 2,
    "cuda_host": 3,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "rocm": 10,
}


@dataclass(frozen=True)
class Device:
    """One device: its kind and its index among those of its kind."""

    kind: str
    index: int = 0

    def __post_init__(self) -> None:
        if self.kind not in DEVICE_TYPES:
            raise RunError(f"unknown device {self.kind!r}; known are {', '.join(DEVICE_TYPES)}")
        if self.index < 0:
            raise RunError(f"device index must not be negative, got {self.index}")

    @property
    def type_code(self) -> int:
        """DLPack's number for the kind."""
        return DEVICE_TYPES[self.kind]

    @property
    def type(self) -> str:
        """The kind, as TVM calls it."""
        return self.kind

    def dlpack_device_type(self) -> int:
        """DLPack's number for the kind, as TVM calls it."""
        return self.type_code

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    @property
    def exist(self) -> bool:
        """Whether there is such a device."""
        if self.kind == "cuda":
            return self.index < driver.device_count()
        return self.kind == "cpu" and self.index == 0

    def sync(self, stream: int | streams.Stream | None = None) -> None:
        """Wait until a GPU has done all its work, or that of a stream (a handle).

        Raises ``RunError`` if one of its kernels has failed.
        """
        if self.kind == "cpu":
            return
        if stream:
            streams.as_stream(self._gpu(), stream).synchronize()
        else:
            streams.synchronize(self._gpu())

    def create_raw_stream(self) -> int:
        """Return the handle of a new stream of a GPU; ``free_raw_stream`` destroys it."""
        return streams.create(self._gpu())

    def free_raw_stream(self, stream: int) -> None:
        """Destroy a stream that ``create_raw_stream`` made."""
        streams.destroy(self._gpu(), stream)

    def set_raw_stream(self, stream: int) -> None:
        """Let this thread's further calls use a stream of a GPU: a handle; 0 is the default one.

        ``with Stream(...)`` does so for some of them.
        """
        streams.use(self._gpu(), stream)

    def _gpu(self) -> int:
        """The number of a GPU; only these can be asked what they are."""
        if self.kind != "cuda":
            raise RunError(f"only cuda devices can be asked what they are, not {self}")
        return self.index

    @property
    def device_name(self) -> str:
        """What a GPU's maker calls it."""
        return attributes.device_name(self._gpu())

    @property
    def compute_version(self) -> str:
        """The compute capability of a GPU: ``"9.0"``."""
        gpu = self._gpu()
        return ".".join(str(attributes.attribute(gpu, f"compute_{p}")) for p in ("major", "minor"))

    @property
    def max_threads_per_block(self) -> int:
        """How many threads a block may have."""
        return attributes.attribute(self._gpu(), "max_threads_per_block")

    @property
    def max_thread_dimensions(self) -> list[int]:
        """How many threads a block may have along x, y and z."""
        gpu = self._gpu()
        return [attributes.attribute(gpu, f"max_block_dim_{axis}") for axis in "xyz"]

    @property
    def max_shared_memory_per_block(self) -> int:
        """How many bytes of shared memory a kernel may ask for."""
        return attributes.attribute(self._gpu(), "max_shared_memory_per_block")

    @property
    def registers_per_block(self) -> int:
        """How many registers a block may have."""
        return attributes.attribute(self._gpu(), "registers_per_block")

    @property
    def warp_size(self) -> int:
        """How many threads run in lock step."""
        return attributes.attribute(self._gpu(), "warp_size")

    @property
    def multi_processor_count(self) -> int:
        """How many multiprocessors there are."""
        return attributes.attribute(self._gpu(), "multi_processor_count")

    @property
    def max_clock_rate(self) -> int:
        """The highest clock in kHz."""
        return attributes.attribute(self._gpu(), "max_clock_rate")

    @property
    def memory_bandwidth(self) -> int:
        """Bytes per second of the memory, at two transfers a clock."""
        gpu = self._gpu()
        bits = attributes.attribute(gpu, "memory_bus_bits")
        return 2 * 1000 * attributes.attribute(gpu, "memory_clock_rate") * bits // 8

    @property
    def l2_cache_size_bytes(self) -> int:
        """Bytes of the last cache."""
        return attributes.attribute(self._gpu(), "l2_cache_size_bytes")

    @property
    def total_global_memory(self) -> int:
        """Bytes of memory."""
        return attributes.total_memory(self._gpu())

    @property
    def available_global_memory(self) -> int:
        """Bytes of memory that nobody uses."""
        return attributes.free_memory(self._gpu())

    @property
    def api_version(self) -> int:
        """The CUDA version that the driver is for: 12040 for 12.4."""
        return attributes.driver_version(self._gpu())


def device(device_type: str | int | Device, index: int | None = None) -> Device:
    """Return a device by name (``"cpu"``, ``"cuda:1"``) or DLPack's number, and its index.

    >>> device("cuda:1")
    Device(kind='cuda', index=1)

    A :class:`Device` is returned as it is. Raises ``RunError`` if there is no such kind.
    """
    if isinstance(device_type, Device):
        return device_type
    if isinstance(device_type, int):
        names = {code: name for name, code in DEVICE_TYPES.items()}
        device_type = names.get(device_type, str(device_type))
    kind, sep, number = device_type.partition(":")
    if sep and (not number.isdigit() or index is not None):
        raise RunError(
            f"can't read device {device_type!r}: expected KIND or KIND:INDEX, such as 'cuda:1'"
        )
    return Device(_KINDS.get(kind, kind), int(number) if sep else index or 0)


def cpu(dev_id: int = 0) -> Device:
    """Return the CPU."""
    return Device("cpu", dev_id)


def cuda(dev_id: int = 0) -> Device:
    """Return an NVIDIA GPU."""
    return Device("cuda", dev_id)


#: Kinds of devices by what targets and TVM's users call them.
_KINDS = {"llvm": "cpu", "c": "cpu", "native": "cpu", "nvptx": "cuda", "hip": "rocm"}


def device_from_target(target: object, index: int | None = None) -> Device:
    """Return the device that code for a target, or for its text, runs on."""
    kind = str(target).split(" ")[0]
    kind = "cuda" if kind.startswith("nvidia/") else kind
    return Device(_KINDS.get(kind, kind), index or 0)


def enabled(target: object) -> bool:
    """Whether code for a target, a kind of target or of device can run here."""
    try:
        return device_from_target(target).exist
    except RunError:
        return False
