"""Virtual devices: places where tensors of a module may be, ``mod.global_infos["vdevice"]``.

They print, parse, compare and are found by number. A graph is compiled for one device, that of its
target, so nothing is placed on one of several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir import GlobalInfo, attr, node
from tilewright.support.errors import VerifyError
from tilewright.target.target import Target


@node
class VDevice(GlobalInfo):
    """A device that tensors may be on: a target, which of its devices, and the kind of memory."""

    target: Target | None = attr(default=None)
    vdevice_id: int = attr(default=0)
    memory_scope: str = attr(default="global")

    def __init__(
        self,
        target: str | Mapping[str, Any] | Target | None = None,
        vdevice_id: int = 0,
        memory_scope: str = "global",
    ) -> None:
        """Make a device of a target, or what makes one; ``None`` leaves it open.

        Raises ``TargetError`` for an unknown target, ``VerifyError`` for a wrong number or scope.
        """
        number = isinstance(vdevice_id, int) and vdevice_id >= 0
        if not number or not isinstance(memory_scope, str):
            raise VerifyError(
                "a device has a target, a number from 0 and a scope of memory, "
                f"got {vdevice_id!r} and {memory_scope!r}"
            )
        made = target if target is None or isinstance(target, Target) else Target(target)
        for name, value in zip(("target", "vdevice_id"), (made, vdevice_id)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "memory_scope", memory_scope)
        object.__setattr__(self, "_contents", None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VDevice) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def _fields(self) -> tuple[Target | None, int, str]:
        return self.target, self.vdevice_id, self.memory_scope
