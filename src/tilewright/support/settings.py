"""All settings that come from the environment, in one table.

Nothing else in the package reads environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.support.errors import TilewrightError


@dataclass(frozen=True)
class Setting:
    """One setting: environment variable ``TILEWRIGHT_<NAME>``."""

    name: str
    convert: Callable[[str], Any]
    default: Any
    help: str


def _home() -> Path:
    """The user's folder; one that isn't there if the system knows of none (a container's user)."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("expected 0 or 1")


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "cache_dir",
            Path,
            _home() / ".cache" / "tilewright",
            "Folder for compiled objects and other things that can be made again.",
        ),
        Setting(
            "cache_megabytes",
            int,
            256,
            "About how large the folder of compiled objects may become; 0 keeps none.",
        ),
        Setting(
            "cache_graphs",
            _flag,
            True,
            "Whether a compiled graph is found by the graph, before it is scheduled.",
        ),
        Setting(
            "num_threads", int, 0, "Threads of the pool; 0 means the target's number of cores."
        ),
        Setting(
            "thread_affinity",
            str,
            "none",
            "CPUs that threads of the pool are bound to: none, cores (one each), or 0,2,4-7.",
        ),
        Setting(
            "llvm_library",
            str,
            "",
            "A libLLVM of llvmlite's major version that compiles in its place; often faster.",
        ),
        Setting(
            "host_cpu",
            str,
            "",
            "LLVM's name of a lesser CPU, such as haswell, that this machine is taken for.",
        ),
        Setting("freeze_nodes", _flag, False, "Make IR nodes refuse assignment (tests set it)."),
    )
}


def setting(name: str) -> Any:
    """Return the value of a setting: the environment's, else the default.

    Raises ``TilewrightError`` if the environment's isn't valid.
    """
    entry = SETTINGS[name]
    text = os.environ.get("TILEWRIGHT_" + name.upper())
    if text is None:
        return entry.default
    try:
        return entry.convert(text)
    except ValueError as error:
        raise TilewrightError(
            f"TILEWRIGHT_{name.upper()}={text!r} is not valid: {error}. {entry.help}"
        ) from None
