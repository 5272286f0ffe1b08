"""What the functions of a module share, such as devices: ``IRModule.global_infos``.

A device is ``target.VDevice``, as it needs to know targets.
"""

from __future__ import annotations

from tilewright.ir.node import Node, node


class GlobalInfo(Node):
    """Base of what the functions of a module share."""

    __slots__ = ()


@node
class DummyGlobalInfo(GlobalInfo):
    """Global information that says nothing."""
