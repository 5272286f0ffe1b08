"""Tuning on several machines: builders and devices of a Ray cluster (``tilewright[ray]``).

``RayBuilder`` and ``RayRunner`` stand in for ``LocalBuilder`` and ``LocalRunner``. The process that
tunes searches, learns, and alone writes the database; the others compile and measure.

A Ray cluster runs the code of whoever reaches it: keep it within a network that you trust, and use
Ray's token. ``tilewright farm start`` listens on this machine only, unless told otherwise.
"""

from __future__ import annotations

from tilewright.meta_schedule.farm.builder import RayBuilder
from tilewright.meta_schedule.farm.runner import DeviceRunner, RayRunner, RPCRunner

__all__ = ["DeviceRunner", "RPCRunner", "RayBuilder", "RayRunner"]
