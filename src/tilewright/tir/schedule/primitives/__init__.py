"""The primitives, by family: importing a family registers its primitives, and all are imported."""

from __future__ import annotations

from tilewright.support.folder import modules_in

modules_in(__name__)
