"""Where graphs come from: modules written here (``nn``) and models of frameworks."""

from __future__ import annotations

from tilewright.relax.frontend import nn

__all__ = ["nn"]
