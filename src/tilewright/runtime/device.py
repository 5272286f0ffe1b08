"""Names of devices: ``cpu``, ``cuda:1``.

A :class:`Device` says where a tensor lives, with DLPack's numbering of kinds.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


def device(text: str | Device) -> Device:
    """Parse ``"cpu"`` or ``"cuda:1"``; a :class:`Device` is returned as it is.

    >>> device("cuda:1")
    Device(kind='cuda', index=1)

    Raises ``RunError`` if the text names no device.
    """
    if isinstance(text, Device):
        return text
    kind, sep, index = text.partition(":")
    if sep and not index.isdigit():
        raise RunError(f"can't read device {text!r}: expected KIND or KIND:INDEX, such as 'cuda:1'")
    return Device(kind, int(index) if sep else 0)


def cpu(index: int = 0) -> Device:
    """Return the CPU."""
    return Device("cpu", index)


def cuda(index: int = 0) -> Device:
    """Return an NVIDIA GPU."""
    return Device("cuda", index)
