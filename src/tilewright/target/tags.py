"""Names for whole targets: those of GPUs, and those that users register.

>>> register_tag("my/server", {"kind": "llvm", "mcpu": "znver4", "num-cores": 16})
>>> Target("my/server")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.support.errors import TargetError
from tilewright.target import gpus
from tilewright.target.target import REGISTERED_TAGS, Target


def register_tag(name: str, config: Mapping[str, Any], override: bool = False) -> Target:
    """Let a name stand for a target, given as a dictionary of its kind and options; return it.

    Raises ``TargetError`` if the name is taken, unless it is to ``override`` a registered one.
    """
    known = name in REGISTERED_TAGS
    if gpus.is_tag(name) or (known and not override):
        raise TargetError(
            f"the tag {name!r} is taken"
            + (
                "; override=True replaces it"
                if known
                else ": it is a GPU's, or starts as theirs do"
            )
        )
    REGISTERED_TAGS[name] = dict(config)
    try:
        return Target(name)
    except TargetError:
        del REGISTERED_TAGS[name]
        raise


def list_tags() -> dict[str, Target]:
    """Return all tags, and the targets that they stand for."""
    return {name: Target(name) for name in (*gpus.GPUS, *REGISTERED_TAGS)}
