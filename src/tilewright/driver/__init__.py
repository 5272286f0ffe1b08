"""From programs to callable modules: ``lower``, ``build`` and ``compile``."""

from __future__ import annotations

from tilewright.driver.build import build, check_target, compile, lower, resolve_target

__all__ = ["build", "check_target", "compile", "lower", "resolve_target"]
